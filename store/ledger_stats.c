/*
 * ledger_stats.c: the reading side of the ledger: statistics by model, key or client, and a copy,
 * over a read-only connection, also while a daemon writes.  SQLite 3.40 has no percentile function: times to first token are
 * ranked with row_number(), and the percentiles of inter-token times are computed from the sums of
 * the histograms.
 */
#include "store/ledger_history.h"
#include "store/ledger_private.h"

#include "base/array.h"
#include "base/strbuf.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

/* An open ledger, and what of it is asked. */
struct query {
	sqlite3 *db;
	const char *path, *column;
	int64_t since_ns;
};

/* Counts and sums, sorted by name. */
static int read_sums(const struct query *q, struct ig_ledger_stats **out, size_t *n,
		     struct ig_error *err)
{
	struct ig_ledger_stats *all = NULL, *s;
	size_t n_all = 0, cap = 0;
	sqlite3_stmt *st = NULL;
	struct ig_strbuf sql = { 0 };
	int code = SQLITE_NOMEM, rc = 0;

	ig_strbuf_printf(&sql,
			 "SELECT %s AS name, count(*), sum(finish IN ('error', 'refused')), "
			 "sum(finish = 'cancelled'), sum(prompt_tokens), sum(cached_tokens), "
			 "sum(output_tokens)",
			 q->column);
	for (int i = 0; i < IG_ITL_BUCKETS; i++)
		ig_strbuf_printf(&sql, ", sum(itl_%d)", i);
	ig_strbuf_puts(&sql, " FROM requests WHERE received_ns >= ?1 GROUP BY name ORDER BY name");
	if (ig_strbuf_ok(&sql))
		code = sqlite3_prepare_v2(q->db, sql.data, -1, &st, NULL);
	ig_strbuf_finish(&sql);
	if (code == SQLITE_OK)
		code = sqlite3_bind_int64(st, 1, q->since_ns);
	while (code == SQLITE_OK && (code = sqlite3_step(st)) == SQLITE_ROW) {
		const unsigned char *name = sqlite3_column_text(st, 0);
		int64_t counts[IG_ITL_BUCKETS];
		if (!ig_array_grow(all, &cap, n_all)) {
			rc = ig_fail(err, -ENOMEM, "ledger %s: out of memory", q->path);
			goto out;
		}
		s = &all[n_all++];
		snprintf(s->name, sizeof s->name, "%s", name ? (const char *)name : "");
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
		rc = ig_database_fail(&ledger_kind, q->db, code, q->path, "cannot be read", err);
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
 * share of all values does not exceed.  Both lists are sorted by name. */
static int read_ttft(const struct query *q, struct ig_ledger_stats *all, size_t n_all,
		     struct ig_error *err)
{
	struct ig_strbuf sql = { 0 };
	sqlite3_stmt *st = NULL;
	int code = SQLITE_NOMEM;
	size_t i = 0;

	ig_strbuf_printf(&sql,
			 "WITH ranked AS (SELECT name, ttft_ms,"
			 " row_number() OVER (PARTITION BY name ORDER BY ttft_ms) AS r,"
			 " count(*) OVER (PARTITION BY name) AS n"
			 " FROM (SELECT %s AS name, ttft_ms FROM requests"
			 " WHERE received_ns >= ?1 AND ttft_ms IS NOT NULL)) "
			 "SELECT name, max(ttft_ms) FILTER (WHERE r = (n * 50 + 99) / 100),"
			 " max(ttft_ms) FILTER (WHERE r = (n * 95 + 99) / 100),"
			 " max(ttft_ms) FILTER (WHERE r = (n * 99 + 99) / 100) "
			 "FROM ranked GROUP BY name ORDER BY name",
			 q->column);
	if (ig_strbuf_ok(&sql))
		code = sqlite3_prepare_v2(q->db, sql.data, -1, &st, NULL);
	ig_strbuf_finish(&sql);
	if (code == SQLITE_OK)
		code = sqlite3_bind_int64(st, 1, q->since_ns);
	while (code == SQLITE_OK && (code = sqlite3_step(st)) == SQLITE_ROW) {
		const char *name = (const char *)sqlite3_column_text(st, 0);
		while (name && i < n_all && strncmp(all[i].name, name, sizeof all[i].name - 1) < 0)
			i++;
		if (name && i < n_all && !strncmp(all[i].name, name, sizeof all[i].name - 1))
			for (int p = 0; p < 3; p++)
				all[i].ttft_ms[p] = sqlite3_column_double(st, 1 + p);
		code = SQLITE_OK;
	}
	sqlite3_finalize(st);
	return code == SQLITE_DONE ?
		       0 :
		       ig_database_fail(&ledger_kind, q->db, code, q->path, "cannot be read", err);
}

const char *ig_ledger_by_name(enum ig_ledger_by by)
{
	static const char *const names[IG_N_LEDGER_BY] = { "model", "key", "client" };

	return names[by];
}

int ig_ledger_stats(const char *path, enum ig_ledger_by by, int64_t since_ns,
		    struct ig_ledger_stats **out, size_t *n, struct ig_error *err)
{
	struct query q = { NULL, path, ig_ledger_by_name(by), since_ns };
	struct ig_ledger_stats *all = NULL;
	size_t n_all = 0;
	int64_t version = 0;
	int code, rc;

	*out = NULL;
	*n = 0;
	rc = ig_database_open_to_read(&ledger_kind, path, &q.db, &version, err);
	if (rc || version == 0)
		goto out; /* an empty file has no requests */
	if (by == IG_LEDGER_BY_KEY && version < 2)
		q.column = "''"; /* version 1 had no keys */
	/* Both queries must read the same state of the file. */
	code = sqlite3_exec(q.db, "BEGIN", NULL, NULL, NULL);
	rc = code == SQLITE_OK ?
		     read_sums(&q, &all, &n_all, err) :
		     ig_database_fail(&ledger_kind, q.db, code, path, "cannot be read", err);
	if (!rc)
		rc = read_ttft(&q, all, n_all, err);
	if (rc) {
		free(all);
		goto out;
	}
	*out = all;
	*n = n_all;
out:
	sqlite3_close(q.db);
	return rc;
}

int ig_ledger_copy(const char *path, const char *to, int64_t *n_rows, struct ig_error *err)
{
	return ig_database_copy(&ledger_kind, path, to, "SELECT count(*) FROM requests", n_rows,
				err);
}
