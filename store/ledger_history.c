/*
 * ledger_history.c: see ledger_history.h.  Each call opens the file, reads one state of it and closes
 * it, so that nothing here lasts and a file that was moved away is noticed.
 */
#include "store/ledger_history.h"

#include "store/ledger_private.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct reader {
	const char *path;
	sqlite3 *db; /* NULL: the file is not there, or empty */
	sqlite3_stmt *st;
	struct ig_error *err;
};

static int fail(struct reader *r, int code)
{
	return ig_database_fail(&ledger_kind, r->db, code, r->path, "cannot be read", r->err);
}

static int open_reader(struct reader *r, const char *path, struct ig_error *err)
{
	int64_t version = 0;
	int code, rc;

	*r = (struct reader){ .path = path, .err = err };
	if (access(path, F_OK))
		return 0;
	code = sqlite3_open_v2(path, &r->db, SQLITE_OPEN_READONLY, NULL);
	sqlite3_busy_timeout(r->db, 2000);
	rc = code == SQLITE_OK ? ig_database_check(&ledger_kind, r->db, path, &version, err) :
				 fail(r, code);
	if (!rc && version)
		return 0;
	sqlite3_close(r->db);
	r->db = NULL;
	return rc;
}

static void close_reader(struct reader *r)
{
	sqlite3_finalize(r->st);
	sqlite3_close(r->db);
}

/* ---- statements --------------------------------------------------------------------------- */

/* What a query asks for: parameters 1 to 7. */
static const char where[] =
	" WHERE received_ns >= ?1 AND received_ns < ?2 AND (?3 = '' OR model = ?3)"
	" AND (?4 = '' OR key = ?4) AND (?5 = '' OR client = ?5) AND (?6 = '' OR finish = ?6)"
	" AND (?7 = '' OR endpoint = ?7)";

static int prepare(struct reader *r, struct ig_strbuf *sql, const struct ig_ledger_query *q)
{
	const char *texts[] = { q->model, q->key, q->client, q->finish, q->endpoint };
	int code = SQLITE_NOMEM;

	if (ig_strbuf_ok(sql))
		code = sqlite3_prepare_v2(r->db, sql->data, -1, &r->st, NULL);
	ig_strbuf_finish(sql);
	if (code == SQLITE_OK)
		code = sqlite3_bind_int64(r->st, 1, q->from_ns);
	if (code == SQLITE_OK)
		code = sqlite3_bind_int64(r->st, 2, q->to_ns);
	for (int i = 0; i < 5 && code == SQLITE_OK; i++)
		code = sqlite3_bind_text(r->st, 3 + i, texts[i], -1, SQLITE_STATIC);
	return code == SQLITE_OK ? 0 : fail(r, code);
}

static int bind_numbers(struct reader *r, int64_t a, int64_t b)
{
	int code = sqlite3_bind_int64(r->st, 8, a);

	if (code == SQLITE_OK)
		code = sqlite3_bind_int64(r->st, 9, b);
	return code == SQLITE_OK ? 0 : fail(r, code);
}

/* Whether there is another row; *rc: why not, if that is an error. */
static bool next_row(struct reader *r, int *rc)
{
	int code = sqlite3_step(r->st);

	if (code != SQLITE_ROW && code != SQLITE_DONE)
		*rc = fail(r, code);
	return code == SQLITE_ROW;
}

static const char *text_at(struct reader *r, int i)
{
	const unsigned char *s = sqlite3_column_text(r->st, i);

	return s ? (const char *)s : "";
}

/* NULL: not a number. */
static double real_at(struct reader *r, int i)
{
	return sqlite3_column_type(r->st, i) == SQLITE_NULL ? NAN : sqlite3_column_double(r->st, i);
}

/* ---- the series ------------------------------------------------------------------------------ */

/* Sums of each step, and the times to first token at its quantiles, by nearest rank. */
static void put_series(struct ig_strbuf *sql)
{
	ig_strbuf_puts(sql, "WITH chosen AS MATERIALIZED (SELECT (received_ns - ?8) / ?9 AS step, *"
			    " FROM requests");
	ig_strbuf_puts(sql, where);
	ig_strbuf_puts(
		sql,
		"), ranked AS (SELECT step, ttft_ms,"
		" row_number() OVER (PARTITION BY step ORDER BY ttft_ms) AS r,"
		" count(*) OVER (PARTITION BY step) AS n FROM chosen WHERE ttft_ms IS NOT NULL),"
		" first AS (SELECT step, max(ttft_ms) FILTER (WHERE r = (n * 50 + 99) / 100) AS p50,"
		" max(ttft_ms) FILTER (WHERE r = (n * 95 + 99) / 100) AS p95,"
		" max(ttft_ms) FILTER (WHERE r = (n * 99 + 99) / 100) AS p99"
		" FROM ranked GROUP BY step),"
		" sums AS (SELECT step, count(*) AS n, sum(finish = 'refused') AS refused,"
		" sum(finish = 'error') AS errors, sum(finish = 'cancelled') AS cancelled,"
		" sum(prompt_tokens) AS prompt, sum(cached_tokens) AS cached,"
		" sum(output_tokens) AS output, sum(decode_ms) AS decode_ms");
	for (int i = 0; i < IG_ITL_BUCKETS; i++)
		ig_strbuf_printf(sql, ", sum(itl_%d) AS itl_%d", i, i);
	ig_strbuf_puts(sql, " FROM chosen GROUP BY step) SELECT sums.step, n, refused, errors, "
			    "cancelled, prompt, cached, output, decode_ms, p50, p95, p99");
	for (int i = 0; i < IG_ITL_BUCKETS; i++)
		ig_strbuf_printf(sql, ", itl_%d", i);
	ig_strbuf_puts(sql, " FROM sums LEFT JOIN first ON first.step = sums.step ORDER BY 1");
}

#define FIRST_ITL 12

static void write_step(struct reader *r, struct ig_json_writer *w)
{
	int64_t counts[IG_ITL_BUCKETS];

	for (int i = 0; i < IG_ITL_BUCKETS; i++)
		counts[i] = sqlite3_column_int64(r->st, FIRST_ITL + i);
	ig_json_putf(w,
		     "'requests': %lld, 'refused': %lld, 'errors': %lld, 'cancelled': %lld, "
		     "'prompt_tokens': %lld, 'cached_tokens': %lld, 'output_tokens': %lld, "
		     "'decode_ms': %.1f, 'ttft_ms': [%.3f, %.3f, %.3f], 'itl_ms': [%.3f, %.3f, %.3f]",
		     (long long)sqlite3_column_int64(r->st, 1),
		     (long long)sqlite3_column_int64(r->st, 2),
		     (long long)sqlite3_column_int64(r->st, 3),
		     (long long)sqlite3_column_int64(r->st, 4),
		     (long long)sqlite3_column_int64(r->st, 5),
		     (long long)sqlite3_column_int64(r->st, 6),
		     (long long)sqlite3_column_int64(r->st, 7), real_at(r, 8), real_at(r, 9),
		     real_at(r, 10), real_at(r, 11), ig_itl_quantile(counts, 0.50),
		     ig_itl_quantile(counts, 0.95), ig_itl_quantile(counts, 0.99));
}

static int begin_series(struct reader *r, const struct ig_ledger_query *q, int64_t step_ns)
{
	struct ig_strbuf sql = { 0 };

	sqlite3_finalize(r->st);
	r->st = NULL;
	put_series(&sql);
	int rc = prepare(r, &sql, q);
	return rc ? rc : bind_numbers(r, q->from_ns, step_ns);
}

static int write_steps(struct reader *r, const struct ig_ledger_query *q, struct ig_json_writer *w)
{
	int rc = begin_series(r, q, q->step_ns);

	while (!rc && next_row(r, &rc)) {
		double at = (double)q->from_ns +
			    (double)sqlite3_column_int64(r->st, 0) * (double)q->step_ns;
		ig_json_putf(w, "{'at': %.3f", at * 1e-9);
		write_step(r, w);
		ig_json_close_object(w);
	}
	return rc;
}

static int write_total(struct reader *r, const struct ig_ledger_query *q, struct ig_json_writer *w)
{
	int rc = begin_series(r, q, INT64_MAX);

	if (!rc && next_row(r, &rc))
		write_step(r, w);
	return rc;
}

int ig_ledger_write_series(const char *path, const struct ig_ledger_query *q,
			   struct ig_json_writer *w, struct ig_error *err)
{
	struct reader r;
	int rc = open_reader(&r, path, err);

	if (!rc && r.db && sqlite3_exec(r.db, "BEGIN", NULL, NULL, NULL) != SQLITE_OK)
		rc = fail(&r, sqlite3_errcode(r.db));
	ig_json_open_array(w, "data");
	if (!rc && r.db)
		rc = write_steps(&r, q, w);
	ig_json_close_array(w);
	ig_json_open_object(w, "total");
	if (!rc && r.db)
		rc = write_total(&r, q, w);
	ig_json_close_object(w);
	close_reader(&r);
	return rc;
}

/* ---- rows ---------------------------------------------------------------------------------------- */

enum kind { INTEGER, REAL, TEXT };

static const struct column {
	const char *name;
	enum kind kind;
} columns[] = {
	{ "row", INTEGER },	      { "id", TEXT },		 { "received_ns", INTEGER },
	{ "request_id", TEXT },	      { "model", TEXT },	 { "endpoint", TEXT },
	{ "client", TEXT },	      { "key", TEXT },		 { "status", INTEGER },
	{ "finish", TEXT },	      { "cancel_reason", TEXT }, { "error", TEXT },
	{ "ignored", TEXT },	      { "prompt_tokens", INTEGER }, { "cached_tokens", INTEGER },
	{ "output_tokens", INTEGER }, { "queue_ms", REAL },	 { "prefill_ms", REAL },
	{ "decode_ms", REAL },	      { "ttft_ms", REAL },	 { "total_ms", REAL },
};
#define N_COLUMNS (int)(sizeof columns / sizeof columns[0])

static int begin_rows(struct reader *r, const struct ig_ledger_query *q, int64_t limit)
{
	struct ig_strbuf sql = { 0 };

	for (int i = 0; i < N_COLUMNS; i++)
		ig_strbuf_printf(&sql, "%s%s", i ? ", " : "SELECT ", columns[i].name);
	ig_strbuf_puts(&sql, " FROM requests");
	ig_strbuf_puts(&sql, where);
	ig_strbuf_puts(&sql, " AND (?8 = 0 OR row < ?8) ORDER BY row DESC LIMIT ?9");
	int rc = prepare(r, &sql, q);
	return rc ? rc : bind_numbers(r, q->before, limit);
}

static void write_row(struct reader *r, struct ig_json_writer *w)
{
	ig_json_open_object(w, NULL);
	for (int i = 0; i < N_COLUMNS; i++) {
		const struct column *c = &columns[i];
		if (c->kind == TEXT)
			ig_json_put_text(w, c->name, text_at(r, i));
		else if (c->kind == INTEGER)
			ig_json_put_int(w, c->name, sqlite3_column_int64(r->st, i));
		else
			ig_json_put_real(w, c->name, "%.3f", real_at(r, i));
	}
	ig_json_close_object(w);
}

int ig_ledger_write_rows(const char *path, const struct ig_ledger_query *q,
			 struct ig_json_writer *w, struct ig_error *err)
{
	bool more = false;
	struct reader r;
	int32_t n = 0;
	int rc = open_reader(&r, path, err);

	if (!rc && r.db)
		rc = begin_rows(&r, q, (int64_t)q->limit + 1);
	ig_json_open_array(w, "data");
	while (r.st && !more && !rc && next_row(&r, &rc)) {
		more = n++ == q->limit;
		if (!more)
			write_row(&r, w);
	}
	ig_json_close_array(w);
	ig_json_putf(w, "'has_more': %-s", ig_json_bool(more));
	close_reader(&r);
	return rc;
}

/* ---- CSV -------------------------------------------------------------------------------------- */

/* A spreadsheet must not take a client's text for a formula. */
static void put_field(struct ig_strbuf *out, const char *s)
{
	bool formula = s[0] && strchr("=+-@\t\r", s[0]);

	if (!formula && !strpbrk(s, ",\"\r\n")) {
		ig_strbuf_puts(out, s);
		return;
	}
	ig_strbuf_puts(out, formula ? "\"'" : "\"");
	for (; *s; s++) {
		if (*s == '"')
			ig_strbuf_puts(out, "\"");
		ig_strbuf_add(out, s, 1);
	}
	ig_strbuf_puts(out, "\"");
}

static void put_line(struct reader *r, struct ig_strbuf *out)
{
	for (int i = 0; i < N_COLUMNS; i++) {
		if (i)
			ig_strbuf_puts(out, ",");
		if (columns[i].kind == TEXT)
			put_field(out, text_at(r, i));
		else if (columns[i].kind == INTEGER)
			ig_strbuf_printf(out, "%lld", (long long)sqlite3_column_int64(r->st, i));
		else if (sqlite3_column_type(r->st, i) != SQLITE_NULL)
			ig_strbuf_printf(out, "%.3f", sqlite3_column_double(r->st, i));
	}
	ig_strbuf_puts(out, "\r\n");
}

int ig_ledger_write_csv(const char *path, const struct ig_ledger_query *q, struct ig_strbuf *out,
			struct ig_error *err)
{
	struct reader r;
	int rc = open_reader(&r, path, err);

	for (int i = 0; i < N_COLUMNS; i++)
		ig_strbuf_printf(out, "%s%s", i ? "," : "", columns[i].name);
	ig_strbuf_puts(out, "\r\n");
	if (!rc && r.db)
		rc = begin_rows(&r, q, q->limit);
	while (r.st && !rc && next_row(&r, &rc))
		put_line(&r, out);
	close_reader(&r);
	return rc;
}
