/* history.c: the ledger for administrators: /v1/ingot/stats, sums over time, and /v1/ingot/ledger, the
 * rows. */
#include "daemon/protocol/status/history.h"

#include "base/clock.h"
#include "daemon/protocol/core/errand.h"
#include "daemon/protocol/core/url_query.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SECOND_NS 1000000000
/* Beyond the year 9999 nothing is asked for. */
#define MAX_SECONDS 253402300800.0
#define DEFAULT_RANGE_S 3600
#define DEFAULT_STEPS 60
#define MAX_STEPS 1500
#define DEFAULT_ROWS 100
#define MAX_ROWS 1000
#define MAX_CSV_ROWS 100000

static int read_seconds(const struct ig_query_pair *p, int64_t *out, struct ig_api_error *e)
{
	char *end;
	double v = strtod(p->value, &end);

	/* strtod also reads blanks, signs, hexadecimal numbers and words */
	if (!p->value[0] || *end || strspn(p->value, "0123456789.") != strlen(p->value) ||
	    v > MAX_SECONDS)
		return ig_fail_value(e, p->name, "expected seconds, as 1767225600 or 0.5");
	*out = (int64_t)(v * SECOND_NS);
	return 0;
}

static int read_text(const struct ig_query_pair *p, char *out, size_t cap, struct ig_api_error *e)
{
	if (strlen(p->value) >= cap)
		return ig_fail_value(e, p->name, "it is longer than %zu bytes", cap - 1);
	snprintf(out, cap, "%s", p->value);
	return 0;
}

static int read_row(const struct ig_query_pair *p, int64_t *out, struct ig_api_error *e)
{
	size_t n = strlen(p->value);

	if (!n || n > 18 || strspn(p->value, "0123456789") != n)
		return ig_fail_value(e, p->name, "expected the number of a row");
	*out = strtoll(p->value, NULL, 10);
	return 0;
}

/* What both paths have.  1: it is none of these. */
static int read_common(struct ig_ledger_query *q, const struct ig_query_pair *p,
		       struct ig_api_error *e)
{
	const struct {
		const char *name;
		char *out;
		size_t cap;
	} texts[] = {
		{ "model", q->model, sizeof q->model },
		{ "key", q->key, sizeof q->key },
		{ "client", q->client, sizeof q->client },
		{ "finish", q->finish, sizeof q->finish },
		{ "endpoint", q->endpoint, sizeof q->endpoint },
	};

	if (!strcmp(p->name, "from"))
		return read_seconds(p, &q->from_ns, e);
	if (!strcmp(p->name, "to"))
		return read_seconds(p, &q->to_ns, e);
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
		if (!strcmp(p->name, texts[i].name))
			return read_text(p, texts[i].out, texts[i].cap, e);
	return 1;
}

static int fail_unknown(const struct ig_query_pair *p, struct ig_api_error *e)
{
	return ig_api_fail(e, 400, "unsupported_parameter", p->name,
			   "%.60s is not a parameter of this path.", p->name);
}

static int check_range(struct ig_ledger_query *q, struct ig_api_error *e)
{
	if (!q->to_ns)
		q->to_ns = ig_wall_ns() + SECOND_NS;
	if (q->from_ns >= q->to_ns)
		return ig_fail_value(e, "from", "it must be before to");
	return 0;
}

/* The file's trouble is the server's. */
static void fail_reading(struct ig_errand *e, const struct ig_error *err)
{
	ig_api_fail(&e->error, 503, "ledger_unreadable", NULL, "%s", err->text);
}

/* NULL, with an error as the reply: there is no ledger. */
static const char *ledger_path(struct ig_exchange *x)
{
	const char *path = x->api->deps.ledger_path;
	struct ig_api_error e;

	if (path)
		return path;
	ig_api_fail(&e, 404, "no_ledger", NULL,
		    "This daemon keeps no ledger (ledger.enabled is false).");
	ig_exchange_fail(x, &e);
	return NULL;
}

static void start(struct ig_exchange *x, const struct ig_ledger_query *q, bool csv,
		  void (*run)(struct ig_errand *e))
{
	struct ig_errand *e = ig_errand_create(x, run);

	if (!e)
		return;
	e->query = *q;
	e->csv = csv;
	ig_errand_start(e);
}

/* ---- sums over time ------------------------------------------------------------------------- */

static int read_by(const struct ig_query_pair *p, struct ig_ledger_query *q, struct ig_api_error *e)
{
	for (enum ig_ledger_by by = 0; by < IG_N_LEDGER_BY; by++)
		if (!strcmp(p->value, ig_ledger_by_name(by))) {
			q->grouped = true;
			q->by = by;
			return 0;
		}
	return ig_fail_value(e, p->name, "expected model, key or client");
}

static int read_stats(struct ig_ledger_query *q, const char *query, struct ig_api_error *e)
{
	struct ig_query_pair p;
	int rc;

	while (query && ig_query_next(&query, &p)) {
		rc = !strcmp(p.name, "step") ? read_seconds(&p, &q->step_ns, e) :
		     !strcmp(p.name, "by")   ? read_by(&p, q, e) :
					       read_common(q, &p, e);
		if (rc)
			return rc < 0 ? rc : fail_unknown(&p, e);
	}
	if (q->grouped && q->step_ns)
		return ig_fail_value(e, "step", "there are no steps with by");
	if (!q->from_ns)
		q->from_ns =
			(q->to_ns ? q->to_ns : ig_wall_ns()) - (int64_t)DEFAULT_RANGE_S * SECOND_NS;
	if (check_range(q, e) < 0)
		return -1;
	if (q->grouped)
		return 0;
	if (!q->step_ns)
		q->step_ns = (q->to_ns - q->from_ns + DEFAULT_STEPS - 1) / DEFAULT_STEPS;
	if ((q->to_ns - q->from_ns) / q->step_ns > MAX_STEPS)
		return ig_fail_value(e, "step", "the range has more than %d steps", MAX_STEPS);
	return 0;
}

static void write_stats(struct ig_errand *e)
{
	struct ig_json_writer w = { .out = &e->out };
	const struct ig_ledger_query *q = &e->query;
	const char *path = e->api->deps.ledger_path;
	struct ig_error err = { 0 };
	int rc;

	ig_json_putf(&w, "{'object': 'list', 'from': %.3f, 'to': %.3f", (double)q->from_ns * 1e-9,
		     (double)q->to_ns * 1e-9);
	if (q->grouped) {
		ig_json_put_text(&w, "by", ig_ledger_by_name(q->by));
		rc = ig_ledger_write_groups(path, q, &w, &err);
	} else {
		ig_json_put_real(&w, "step_s", "%.3f", (double)q->step_ns * 1e-9);
		rc = ig_ledger_write_series(path, q, &w, &err);
	}
	if (rc < 0)
		fail_reading(e, &err);
	ig_json_close_object(&w);
}

void ig_get_stats(struct ig_exchange *x, const struct ig_http_request *r)
{
	struct ig_ledger_query q = { 0 };
	struct ig_api_error error;

	if (!ledger_path(x))
		return;
	if (read_stats(&q, r->query, &error) < 0) {
		ig_exchange_fail(x, &error);
		return;
	}
	start(x, &q, false, write_stats);
}

/* ---- rows ---------------------------------------------------------------------------------------- */

struct rows_query {
	struct ig_ledger_query q;
	bool csv, has_limit;
};

static int read_format(const struct ig_query_pair *p, bool *csv, struct ig_api_error *e)
{
	*csv = !strcmp(p->value, "csv");
	if (!*csv && strcmp(p->value, "json"))
		return ig_fail_value(e, p->name, "expected json or csv");
	return 0;
}

static int read_rows(struct rows_query *rows, const char *query, struct ig_api_error *e)
{
	struct ig_ledger_query *q = &rows->q;
	const char *limit = NULL;
	struct ig_query_pair p, given;
	int rc;

	while (query && ig_query_next(&query, &p)) {
		rc = 0;
		if (!strcmp(p.name, "limit")) {
			given = p;
			limit = given.value;
		} else if (!strcmp(p.name, "before")) {
			rc = read_row(&p, &q->before, e);
		} else if (!strcmp(p.name, "format")) {
			rc = read_format(&p, &rows->csv, e);
		} else {
			rc = read_common(q, &p, e);
		}
		if (rc)
			return rc < 0 ? rc : fail_unknown(&p, e);
	}
	q->limit = rows->csv ? MAX_CSV_ROWS : DEFAULT_ROWS;
	if (limit && ig_query_limit(&given, rows->csv ? MAX_CSV_ROWS : MAX_ROWS, &q->limit, e) < 0)
		return -1;
	return check_range(q, e);
}

static void write_rows(struct ig_errand *e)
{
	struct ig_json_writer w = { .out = &e->out };
	const char *path = e->api->deps.ledger_path;
	struct ig_error err = { 0 };
	int rc;

	if (e->csv) {
		e->content_type = "text/csv; charset=utf-8";
		rc = ig_ledger_write_csv(path, &e->query, &e->out, &err);
	} else {
		ig_json_putf(&w, "{'object': 'list'");
		rc = ig_ledger_write_rows(path, &e->query, &w, &err);
		ig_json_close_object(&w);
	}
	if (rc < 0)
		fail_reading(e, &err);
}

void ig_get_ledger(struct ig_exchange *x, const struct ig_http_request *r)
{
	struct rows_query rows = { 0 };
	struct ig_api_error error;

	if (!ledger_path(x))
		return;
	if (read_rows(&rows, r->query, &error) < 0) {
		ig_exchange_fail(x, &error);
		return;
	}
	start(x, &rows.q, rows.csv, write_rows);
}
