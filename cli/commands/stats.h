/* stats.h: statistics of the ledger as text. */
#pragma once

#include "base/strbuf.h"
#include "cli/net/endpoint.h"
#include "store/ledger.h"

/* The ledger's path, from --ledger (NULL: none) or the configuration; the caller's (free). */
int ig_stats_ledger(const char *ledger, const char *config, char **out, struct ig_error *err);
/* The joined statistics of the daemons at w->url, addresses with commas between them, sorted by name;
 * times to first token within 1 %.  *out is the caller's (free). */
int ig_stats_fleet(const struct ig_where *w, enum ig_ledger_by by, int64_t since_s,
		   struct ig_ledger_stats **out, size_t *n, struct ig_error *err);
/* Append a table with a row for each name, and a row of sums when there are several. */
bool ig_stats_table(const struct ig_ledger_stats *s, size_t n, enum ig_ledger_by by,
		    struct ig_strbuf *out);
/* Append one JSON object; since_s: the span, 0: all. */
bool ig_stats_json(const struct ig_ledger_stats *s, size_t n, enum ig_ledger_by by, int64_t since_s,
		   struct ig_strbuf *out);
/* Append CSV (RFC 4180, but lines end with LF), with a header; unknown values are empty. */
bool ig_stats_csv(const struct ig_ledger_stats *s, size_t n, enum ig_ledger_by by,
		  struct ig_strbuf *out);
