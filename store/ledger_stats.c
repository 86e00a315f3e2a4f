/*
 * ledger_stats.c: the reading side of the ledger: statistics by model, over a read-only connection,
 * also while a daemon writes.  SQLite 3.40 has no percentile function: times to first token are
 * ranked with row_number(), and the percentiles of inter-token times are computed from the sums of
 * the histograms.
 */
#include "store/ledger_private.h"

#include "base/array.h"
#include "base/strbuf.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double quantiles[3] = { 0.50, 0.95, 0.99 };

double ig_itl_quantile(const int64_t counts[IG_ITL_BUCKETS], double q)
{
	double total = 0, below = 0, rank, from, to;

	for (int i = 0; i < IG_ITL_BUCKETS; i++)
		total += (double)counts[i];
	if (total <= 0)
		return NAN;
	rank = q * total;
	for (int i = 0; i < IG_ITL_BUCKETS - 1; i++) {
		if (counts[i] > 0 && below + (double)counts[i] >= rank) {
			from = i ? (double)ig_itl_bounds_ms[i - 1] : 0;
			to = (double)ig_itl_bounds_ms[i];
			return from + (to - from) * (rank - below) / (double)counts[i];
		}
		below += (double)counts[i];
	}
	return (double)ig_itl_bounds_ms[IG_ITL_BUCKETS - 2];
}

/* Counts and sums; the models sorted by name. */
static int read_sums(sqlite3 *db, const char *path, int64_t since_ns, struct ig_ledger_stats **out,
		     size_t *n, struct ig_error *err)
{
	struct ig_ledger_stats *all = NULL, *s;
	size_t n_all = 0, cap = 0;
	sqlite3_stmt *st = NULL;
	struct ig_strbuf sql = { 0 };
	int code = SQLITE_NOMEM, rc = 0;

	ig_strbuf_puts(&sql, "SELECT model, count(*), sum(finish IN ('error', 'refused')), "
			     "sum(finish = 'cancelled'), sum(prompt_tokens), sum(cached_tokens), "
			     "sum(output_tokens)");
	for (int i = 0; i < IG_ITL_BUCKETS; i++)
		ig_strbuf_printf(&sql, ", sum(itl_%d)", i);
	ig_strbuf_puts(&sql,
		       " FROM requests WHERE received_ns >= ?1 GROUP BY model ORDER BY model");
	if (ig_strbuf_ok(&sql))
		code = sqlite3_prepare_v2(db, sql.data, -1, &st, NULL);
	ig_strbuf_finish(&sql);
	if (code == SQLITE_OK)
		code = sqlite3_bind_int64(st, 1, since_ns);
	while (code == SQLITE_OK && (code = sqlite3_step(st)) == SQLITE_ROW) {
		const unsigned char *name = sqlite3_column_text(st, 0);
		int64_t counts[IG_ITL_BUCKETS];
		if (!ig_array_grow(all, &cap, n_all)) {
			rc = ig_fail(err, -ENOMEM, "ledger %s: out of memory", path);
			goto out;
		}
		s = &all[n_all++];
		snprintf(s->model, sizeof s->model, "%s", name ? (const char *)name : "");
		s->n_requests = sqlite3_column_int64(st, 1);
		s->n_errors = sqlite3_column_int64(st, 2);
		s->n_cancelled = sqlite3_column_int64(st, 3);
		s->n_prompt = sqlite3_column_int64(st, 4);
		s->n_cached = sqlite3_column_int64(st, 5);
		s->n_output = sqlite3_column_int64(st, 6);
		for (int i = 0; i < IG_ITL_BUCKETS; i++)
			counts[i] = sqlite3_column_int64(st, 7 + i);
		for (int i = 0; i < 3; i++) {
			s->ttft_ms[i] = NAN;
			s->itl_ms[i] = ig_itl_quantile(counts, quantiles[i]);
		}
		code = SQLITE_OK;
	}
	if (code != SQLITE_DONE) {
		rc = ig_database_fail(&ledger_kind, db, code, path, "cannot be read", err);
		goto out;
	}
	*out = all;
	*n = n_all;
	all = NULL;
out:
	sqlite3_finalize(st);
	free(all);
	return rc;
}

/* Percentiles of the time to first token by nearest rank: the smallest value that at least this
 * share of all values does not exceed. */
static int read_ttft(sqlite3 *db, const char *path, int64_t since_ns, struct ig_ledger_stats *all,
		     size_t n_all, struct ig_error *err)
{
	static const char sql[] =
		"WITH ranked AS (SELECT model, ttft_ms,"
		" row_number() OVER (PARTITION BY model ORDER BY ttft_ms) AS r,"
		" count(*) OVER (PARTITION BY model) AS n"
		" FROM requests WHERE received_ns >= ?1 AND ttft_ms IS NOT NULL) "
		"SELECT model, max(ttft_ms) FILTER (WHERE r = (n * 50 + 99) / 100),"
		" max(ttft_ms) FILTER (WHERE r = (n * 95 + 99) / 100),"
		" max(ttft_ms) FILTER (WHERE r = (n * 99 + 99) / 100) "
		"FROM ranked GROUP BY model";
	sqlite3_stmt *st = NULL;
	int code = sqlite3_prepare_v2(db, sql, -1, &st, NULL);

	if (code == SQLITE_OK)
		code = sqlite3_bind_int64(st, 1, since_ns);
	while (code == SQLITE_OK && (code = sqlite3_step(st)) == SQLITE_ROW) {
		const unsigned char *name = sqlite3_column_text(st, 0);
		for (size_t i = 0; name && i < n_all; i++) {
			if (strcmp(all[i].model, (const char *)name))
				continue;
			for (int q = 0; q < 3; q++)
				all[i].ttft_ms[q] = sqlite3_column_double(st, 1 + q);
		}
		code = SQLITE_OK;
	}
	sqlite3_finalize(st);
	return code == SQLITE_DONE ?
		       0 :
		       ig_database_fail(&ledger_kind, db, code, path, "cannot be read", err);
}

int ig_ledger_stats(const char *path, int64_t since_ns, struct ig_ledger_stats **out, size_t *n,
		    struct ig_error *err)
{
	struct ig_ledger_stats *all = NULL;
	size_t n_all = 0;
	sqlite3 *db = NULL;
	int64_t version = 0;
	int code, rc;

	*out = NULL;
	*n = 0;
	if (access(path, R_OK))
		return ig_fail(err, -errno, "ledger %s: cannot be read: %s", path, strerror(errno));
	code = sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL);
	sqlite3_busy_timeout(db, 2000);
	rc = code == SQLITE_OK ?
		     ig_database_check(&ledger_kind, db, path, &version, err) :
		     ig_database_fail(&ledger_kind, db, code, path, "cannot be read", err);
	if (rc || version == 0)
		goto out; /* an empty file has no models */
	/* Both queries must read the same state of the file. */
	code = sqlite3_exec(db, "BEGIN", NULL, NULL, NULL);
	rc = code == SQLITE_OK ?
		     read_sums(db, path, since_ns, &all, &n_all, err) :
		     ig_database_fail(&ledger_kind, db, code, path, "cannot be read", err);
	if (!rc)
		rc = read_ttft(db, path, since_ns, all, n_all, err);
	if (rc) {
		free(all);
		goto out;
	}
	*out = all;
	*n = n_all;
out:
	sqlite3_close(db);
	return rc;
}
