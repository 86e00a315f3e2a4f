/*
 * ledger_history.c: see ledger_history.h.  Each call opens the file, reads one state of it and closes
 * it, so that nothing here lasts and a file that was moved away is noticed.
 */
#include "store/ledger_history.h"

#include "store/ledger_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct reader {
	const char *path;
	sqlite3 *db; /* NULL: the file is not there, or empty */
	int64_t version;
	sqlite3_stmt *st;
	struct ig_error *err;
};

static int fail(struct reader *r, int code)
{
	return ig_database_fail(&ledger_kind, r->db, code, r->path, "cannot be read", r->err);
}

static int open_reader(struct reader *r, const char *path, struct ig_error *err)
{
	int rc;

	*r = (struct reader){ .path = path, .err = err };
	if (access(path, F_OK))
		return 0;
	rc = ig_database_open_to_read(&ledger_kind, path, &r->db, &r->version, err);
	if (!rc && r->version)
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

#define TTFT_LEAST_MS 0.01
#define TTFT_RATIO 1.02

struct series {
	struct ig_ledger_sums *steps, total; /* [n_steps] */
	size_t n_steps;
};

static void count_ttft(struct ig_ledger_sums *s, double ms)
{
	double at = ms > TTFT_LEAST_MS ? log(ms / TTFT_LEAST_MS) / log(TTFT_RATIO) : 0;

	s->ttft[at < IG_TTFT_BUCKETS - 1 ? (int)at : IG_TTFT_BUCKETS - 1]++;
}

double ig_ledger_ttft_quantile(const struct ig_ledger_sums *s, unsigned percent)
{
	uint64_t n = 0, below = 0;

	for (int i = 0; i < IG_TTFT_BUCKETS; i++)
		n += (uint64_t)s->ttft[i];
	uint64_t rank = (n * percent + 99) / 100;
	for (int i = 0; i < IG_TTFT_BUCKETS && rank; i++) {
		below += (uint64_t)s->ttft[i];
		if (below >= rank)
			return TTFT_LEAST_MS * pow(TTFT_RATIO, i + 0.5);
	}
	return NAN;
}

#define FIRST_ITL 7

/* The last column is the name of the group. */
static void put_series(struct ig_strbuf *sql, const char *group)
{
	ig_strbuf_puts(sql, "SELECT received_ns, finish, prompt_tokens, cached_tokens, "
			    "output_tokens, decode_ms, ttft_ms");
	for (int i = 0; i < IG_ITL_BUCKETS; i++)
		ig_strbuf_printf(sql, ", itl_%d", i);
	ig_strbuf_printf(sql, ", %s AS name FROM requests", group);
	ig_strbuf_puts(sql, where);
}

static void add_row(struct reader *r, struct ig_ledger_sums *s)
{
	const char *finish = text_at(r, 1);
	double decode_ms = real_at(r, 5), ttft_ms = real_at(r, 6);

	s->n++;
	s->refused += !strcmp(finish, "refused");
	s->errors += !strcmp(finish, "error");
	s->cancelled += !strcmp(finish, "cancelled");
	s->prompt += sqlite3_column_int64(r->st, 2);
	s->cached += sqlite3_column_int64(r->st, 3);
	s->output += sqlite3_column_int64(r->st, 4);
	if (!isnan(decode_ms))
		s->decode_ms += decode_ms;
	if (!isnan(ttft_ms))
		count_ttft(s, ttft_ms);
	for (int i = 0; i < IG_ITL_BUCKETS; i++)
		s->itl[i] += sqlite3_column_int64(r->st, FIRST_ITL + i);
}

static void write_sums(const struct ig_ledger_sums *s, struct ig_json_writer *w)
{
	ig_json_putf(
		w,
		"'requests': %lld, 'refused': %lld, 'errors': %lld, 'cancelled': %lld, "
		"'prompt_tokens': %lld, 'cached_tokens': %lld, 'output_tokens': %lld, "
		"'decode_ms': %.1f, 'ttft_ms': [%.4g, %.4g, %.4g], 'itl_ms': [%.4g, %.4g, %.4g]",
		(long long)s->n, (long long)s->refused, (long long)s->errors,
		(long long)s->cancelled, (long long)s->prompt, (long long)s->cached,
		(long long)s->output, s->decode_ms, ig_ledger_ttft_quantile(s, 50),
		ig_ledger_ttft_quantile(s, 95), ig_ledger_ttft_quantile(s, 99),
		ig_itl_quantile(s->itl, 0.50), ig_itl_quantile(s->itl, 0.95),
		ig_itl_quantile(s->itl, 0.99));
}

static int read_series(struct reader *r, const struct ig_ledger_query *q, struct series *s)
{
	struct ig_strbuf sql = { 0 };

	put_series(&sql, "''");
	int rc = prepare(r, &sql, q);
	while (!rc && next_row(r, &rc)) {
		size_t i = (size_t)((sqlite3_column_int64(r->st, 0) - q->from_ns) / q->step_ns);
		if (i < s->n_steps)
			add_row(r, &s->steps[i]);
		add_row(r, &s->total);
	}
	return rc;
}

static void write_series(const struct series *s, const struct ig_ledger_query *q,
			 struct ig_json_writer *w)
{
	ig_json_open_array(w, "data");
	for (size_t i = 0; i < s->n_steps; i++) {
		if (!s->steps[i].n)
			continue;
		ig_json_putf(w, "{'at': %.3f",
			     ((double)q->from_ns + (double)i * (double)q->step_ns) * 1e-9);
		write_sums(&s->steps[i], w);
		ig_json_close_object(w);
	}
	ig_json_close_array(w);
	ig_json_open_object(w, "total");
	write_sums(&s->total, w);
	ig_json_close_object(w);
}

int ig_ledger_write_series(const char *path, const struct ig_ledger_query *q,
			   struct ig_json_writer *w, struct ig_error *err)
{
	struct series *s = calloc(1, sizeof *s);
	struct reader r;
	int rc;

	if (s)
		s->n_steps = (size_t)((q->to_ns - q->from_ns - 1) / q->step_ns) + 1;
	if (s)
		s->steps = calloc(s->n_steps, sizeof *s->steps);
	if (!s || !s->steps) {
		free(s);
		return ig_fail(err, -ENOMEM, "ledger %s: out of memory", path);
	}
	rc = open_reader(&r, path, err);
	if (!rc && r.db)
		rc = read_series(&r, q, s);
	if (!rc)
		write_series(s, q, w);
	close_reader(&r);
	free(s->steps);
	free(s);
	return rc;
}

/* ---- groups ---------------------------------------------------------------------------------- */

static void write_group(const char *name, const struct ig_ledger_sums *s, struct ig_json_writer *w)
{
	ig_json_open_object(w, NULL);
	ig_json_put_text(w, "name", name);
	write_sums(s, w);
	/* most of these are 0: [bucket, count] of the others */
	ig_json_open_array(w, "ttft_counts");
	for (int i = 0; i < IG_TTFT_BUCKETS; i++)
		if (s->ttft[i])
			ig_json_putf(w, "[%d, %lld]", i, (long long)s->ttft[i]);
	ig_json_close_array(w);
	ig_json_open_array(w, "itl_counts");
	for (int i = 0; i < IG_ITL_BUCKETS; i++)
		ig_json_put_int(w, NULL, s->itl[i]);
	ig_json_close_array(w);
	ig_json_close_object(w);
}

int ig_ledger_write_groups(const char *path, const struct ig_ledger_query *q,
			   struct ig_json_writer *w, struct ig_error *err)
{
	struct ig_ledger_sums *s = calloc(1, sizeof *s);
	struct ig_strbuf sql = { 0 }, name = { 0 };
	struct reader r;
	int rc;

	if (!s)
		return ig_fail(err, -ENOMEM, "ledger %s: out of memory", path);
	rc = open_reader(&r, path, err);
	if (!rc && r.db) {
		put_series(&sql, ig_ledger_by_name(q->by));
		ig_strbuf_puts(&sql, " ORDER BY name");
		rc = prepare(&r, &sql, q);
	}
	ig_json_open_array(w, "data");
	while (r.st && !rc && next_row(&r, &rc)) {
		const char *its = text_at(&r, FIRST_ITL + IG_ITL_BUCKETS);
		if (s->n && strcmp(ig_strbuf_text(&name), its)) {
			write_group(ig_strbuf_text(&name), s, w);
			memset(s, 0, sizeof *s);
		}
		ig_strbuf_clear(&name);
		ig_strbuf_puts(&name, its);
		if (!ig_strbuf_ok(&name))
			rc = ig_fail(err, -ENOMEM, "ledger %s: out of memory", path);
		add_row(&r, s);
	}
	if (!rc && s->n)
		write_group(ig_strbuf_text(&name), s, w);
	ig_json_close_array(w);
	close_reader(&r);
	ig_strbuf_finish(&name);
	free(s);
	return rc;
}

/* A count of another daemon's; at most 2^53, so that sums of a million of them do not overflow. */
static bool take_count(const json_t *v, int64_t *to)
{
	if (!json_is_integer(v) || json_integer_value(v) < 0 ||
	    json_integer_value(v) > (int64_t)1 << 53 || *to > (int64_t)1 << 61)
		return false;
	*to += json_integer_value(v);
	return true;
}

int ig_ledger_sums_add(struct ig_ledger_sums *to, const json_t *element)
{
	const json_t *ttft = json_object_get(element, "ttft_counts");
	const json_t *itl = json_object_get(element, "itl_counts");
	const json_t *decode = json_object_get(element, "decode_ms");
	struct ig_ledger_sums *s = malloc(sizeof *s);
	const struct {
		const char *name;
		int64_t *to;
	} counts[] = {
		{ "requests", s ? &s->n : NULL },
		{ "refused", s ? &s->refused : NULL },
		{ "errors", s ? &s->errors : NULL },
		{ "cancelled", s ? &s->cancelled : NULL },
		{ "prompt_tokens", s ? &s->prompt : NULL },
		{ "cached_tokens", s ? &s->cached : NULL },
		{ "output_tokens", s ? &s->output : NULL },
	};
	bool ok = true;

	if (!s)
		return -ENOMEM;
	*s = *to;
	for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
		ok = ok && take_count(json_object_get(element, counts[i].name), counts[i].to);
	ok = ok && json_is_number(decode) && json_is_array(ttft) &&
	     json_array_size(itl) == IG_ITL_BUCKETS;
	for (size_t i = 0; ok && i < IG_ITL_BUCKETS; i++)
		ok = take_count(json_array_get(itl, i), &s->itl[i]);
	for (size_t i = 0; ok && i < json_array_size(ttft); i++) {
		const json_t *pair = json_array_get(ttft, i), *at = json_array_get(pair, 0);
		ok = json_is_integer(at) && json_integer_value(at) >= 0 &&
		     json_integer_value(at) < IG_TTFT_BUCKETS &&
		     take_count(json_array_get(pair, 1), &s->ttft[json_integer_value(at)]);
	}
	if (ok) {
		s->decode_ms += json_number_value(decode);
		*to = *s;
	}
	free(s);
	return ok ? 0 : -EBADMSG;
}

/* ---- rows ---------------------------------------------------------------------------------------- */

enum kind { INTEGER, REAL, TEXT };

static const struct column {
	const char *name;
	enum kind kind;
	int since; /* the schema's version; 0: it is old */
} columns[] = {
	{ "row", INTEGER },
	{ "id", TEXT },
	{ "received_ns", INTEGER },
	{ "request_id", TEXT, 3 },
	{ "model", TEXT },
	{ "endpoint", TEXT },
	{ "client", TEXT },
	{ "key", TEXT, 2 },
	{ "status", INTEGER },
	{ "finish", TEXT },
	{ "cancel_reason", TEXT },
	{ "error", TEXT },
	{ "ignored", TEXT, 4 },
	{ "prompt_tokens", INTEGER },
	{ "cached_tokens", INTEGER },
	{ "output_tokens", INTEGER },
	{ "queue_ms", REAL },
	{ "prefill_ms", REAL },
	{ "decode_ms", REAL },
	{ "ttft_ms", REAL },
	{ "total_ms", REAL },
	{ "cache_reason", TEXT, 6 },
	{ "cache_compared", TEXT, 6 },
	{ "cache_same_tokens", INTEGER, 6 },
	{ "priority", INTEGER, 7 },
	{ "draft_tokens", INTEGER, 8 },
	{ "accepted_tokens", INTEGER, 8 },
	{ "restored_tokens", INTEGER, 9 },
	{ "normalized", TEXT, 9 },
	{ "model_draft_tokens", INTEGER, 10 },
	{ "model_accepted_tokens", INTEGER, 10 },
	{ "draft_gain_ms", REAL, 10 },
	{ "mtp_draft_tokens", INTEGER, 11 },
	{ "mtp_accepted_tokens", INTEGER, 11 },
};
#define N_COLUMNS (int)(sizeof columns / sizeof columns[0])

static int begin_rows(struct reader *r, const struct ig_ledger_query *q, int64_t limit)
{
	struct ig_strbuf sql = { 0 };

	for (int i = 0; i < N_COLUMNS; i++)
		ig_strbuf_printf(&sql, "%s%s%s", i ? ", " : "SELECT ",
				 r->version < columns[i].since ? "NULL AS " : "", columns[i].name);
	ig_strbuf_puts(&sql, " FROM requests");
	ig_strbuf_puts(&sql, where);
	if (q->ran)
		ig_strbuf_puts(&sql, r->version < 6 ? " AND 0" : " AND cache_reason != ''");
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
		else if (c->kind == REAL || sqlite3_column_type(r->st, i) == SQLITE_NULL)
			ig_json_put_real(w, c->name, "%.3f", real_at(r, i));
		else
			ig_json_put_int(w, c->name, sqlite3_column_int64(r->st, i));
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
		else if (sqlite3_column_type(r->st, i) == SQLITE_NULL)
			continue;
		else if (columns[i].kind == INTEGER)
			ig_strbuf_printf(out, "%lld", (long long)sqlite3_column_int64(r->st, i));
		else
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
