/* ledger_private.h: shared by the writing and the reading side of the ledger. */
#pragma once

#include "store/database.h"
#include "store/ledger.h"

extern const struct ig_database_kind ledger_kind;

/* The quantile q of the counted times, interpolated linearly in its bucket; in the last bucket,
 * which has no upper bound, the lower bound.  NaN: nothing was counted. */
double ig_itl_quantile(const int64_t counts[IG_ITL_BUCKETS], double q);
