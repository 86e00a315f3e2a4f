/* ledger_history.h: the ledger over time, and its rows, for clients of the daemon.  Reads the file over
 * a connection of its own, as JSON or CSV; any thread that may wait for the disk. */
#pragma once

#include "base/json.h"
#include "store/ledger.h"

struct ig_ledger_query {
	int64_t from_ns, to_ns; /* wall clock: from_ns <= arrival < to_ns */
	/* "": any; else exactly this */
	char model[129], key[40], client[64], finish[24], endpoint[32];
	int64_t step_ns; /* of the series */
	bool grouped;	 /* by what, instead of a series */
	enum ig_ledger_by by;
	int64_t before; /* rows: only those with a smaller number; 0: all */
	int32_t limit;	/* rows: at most so many, the latest first */
	bool ran;	/* rows: only requests with a cache_reason */
};

/* Members of an open object: "data", an element for each step in which requests arrived, and "total",
 * over all of them.  A file that is not there yet has none. */
int ig_ledger_write_series(const char *path, const struct ig_ledger_query *q,
			   struct ig_json_writer *w, struct ig_error *err);
/* Times to first token are counted in buckets, each 2 % wider than the one before, so that the memory
 * does not grow with the ledger, counts of several ledgers can be added, and a percentile is within
 * 1 %.  Bucket i ends at 0.01 ms * 1.02^(i + 1); the last one has no end. */
#define IG_TTFT_BUCKETS 1200 /* up to 2e8 ms */

/* Sums over requests. */
struct ig_ledger_sums {
	int64_t n, refused, errors, cancelled, prompt, cached, output;
	double decode_ms;
	int64_t itl[IG_ITL_BUCKETS];
	int64_t ttft[IG_TTFT_BUCKETS];
};

/* The middle of the first bucket up to which at least this share of the times is; NaN: there are
 * none. */
double ig_ledger_ttft_quantile(const struct ig_ledger_sums *s, unsigned percent);
/* The quantile q of the counted times, interpolated linearly in its bucket; in the last bucket,
 * which has no upper bound, the lower bound.  NaN: nothing was counted. */
double ig_itl_quantile(const int64_t counts[IG_ITL_BUCKETS], double q);

/* A member "data" of an open object, an element for each model, key or client, with the counts of
 * its buckets.  A file that is not there yet has none. */
int ig_ledger_write_groups(const char *path, const struct ig_ledger_query *q,
			   struct ig_json_writer *w, struct ig_error *err);
/* Add an element of that member, which comes from another daemon.  -EBADMSG: it is none; to is then
 * as it was. */
int ig_ledger_sums_add(struct ig_ledger_sums *to, const json_t *element);

/* Members of an open object: "data", the rows, and "has_more". */
int ig_ledger_write_rows(const char *path, const struct ig_ledger_query *q,
			 struct ig_json_writer *w, struct ig_error *err);
/* The rows as CSV (RFC 4180), with a line of names. */
int ig_ledger_write_csv(const char *path, const struct ig_ledger_query *q, struct ig_strbuf *out,
			struct ig_error *err);
