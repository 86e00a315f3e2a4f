/* ledger_private.h: shared by the writing and the reading side of the ledger. */
#pragma once

#include "store/database.h"
#include "store/ledger.h"

extern const struct ig_database_kind ledger_kind;
