/* stats.h: the ledger's statistics as text. */
#pragma once

#include "base/strbuf.h"
#include "store/ledger.h"

/* Append a table, a row a model; and the sums when there are several. */
bool ig_stats_table(const struct ig_ledger_stats *s, size_t n, struct ig_strbuf *out);
/* Append one JSON object; since_s is the span asked for, 0: all. */
bool ig_stats_json(const struct ig_ledger_stats *s, size_t n, int64_t since_s,
		   struct ig_strbuf *out);
