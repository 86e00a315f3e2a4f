/* history.h: the ledger for administrators. */
#pragma once

#include "daemon/protocol/core/exchange.h"

void ig_get_stats(struct ig_exchange *x, const struct ig_http_request *r);
void ig_get_ledger(struct ig_exchange *x, const struct ig_http_request *r);
