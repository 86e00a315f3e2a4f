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
	int64_t before;	 /* rows: only those with a smaller number; 0: all */
	int32_t limit;	 /* rows: at most so many, the latest first */
	bool ran;	 /* rows: only requests with a cache_reason */
};

/* Members of an open object: "data", an element for each step in which requests arrived, and "total",
 * over all of them.  A file that is not there yet has none. */
int ig_ledger_write_series(const char *path, const struct ig_ledger_query *q,
			   struct ig_json_writer *w, struct ig_error *err);
/* Members of an open object: "data", the rows, and "has_more". */
int ig_ledger_write_rows(const char *path, const struct ig_ledger_query *q,
			 struct ig_json_writer *w, struct ig_error *err);
/* The rows as CSV (RFC 4180), with a line of names. */
int ig_ledger_write_csv(const char *path, const struct ig_ledger_query *q, struct ig_strbuf *out,
			struct ig_error *err);
