/* stats_fleet.c: statistics of several daemons: their ledgers' counts are added, and percentiles are
 * those of all requests together.  Nothing is shown unless all have answered: a sum without one of
 * them would be a wrong sum. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "cli/commands/stats.h"
#include "cli/net/http_client.h"
#include "store/ledger_history.h"

#define TIMEOUT_MS 60000

struct group {
	char name[sizeof((struct ig_ledger_stats *)0)->name];
	struct ig_ledger_sums sums;
};

struct groups {
	struct group **all;
	size_t n, cap;
};

static void finish(struct groups *g)
{
	for (size_t i = 0; i < g->n; i++)
		free(g->all[i]);
	free(g->all);
}

/* The group of this name, made if it is not there; NULL without memory. */
static struct group *find(struct groups *g, const char *name)
{
	for (size_t i = 0; i < g->n; i++)
		if (!strncmp(g->all[i]->name, name, sizeof g->all[i]->name - 1))
			return g->all[i];
	struct group *new = ig_array_grow(g->all, &g->cap, g->n) ? calloc(1, sizeof *new) : NULL;
	if (new) {
		snprintf(new->name, sizeof new->name, "%s", name);
		g->all[g->n++] = new;
	}
	return new;
}

/* Add what a daemon replied. */
static int add(struct groups *g, const struct ig_endpoint *e, const json_t *reply,
	       struct ig_error *err)
{
	const json_t *data = json_object_get(reply, "data");
	int rc = json_is_array(data) ? 0 : -EBADMSG;

	for (size_t i = 0; !rc && i < json_array_size(data); i++) {
		const json_t *element = json_array_get(data, i);
		const char *name = ig_json_text(element, "name");
		struct group *group = name ? find(g, name) : NULL;
		if (!name)
			rc = -EBADMSG;
		else
			rc = group ? ig_ledger_sums_add(&group->sums, element) : -ENOMEM;
	}
	if (rc == -EBADMSG)
		ig_fail(err, rc,
			"%s: the reply is not that of /v1/ingot/stats; is it as new as this "
			"program?",
			e->url);
	else if (rc)
		ig_fail(err, rc, "out of memory");
	return rc;
}

static int compare(const void *a, const void *b)
{
	return strcmp((*(struct group *const *)a)->name, (*(struct group *const *)b)->name);
}

static void summarize(const struct group *g, struct ig_ledger_stats *out)
{
	static const unsigned percents[3] = { 50, 95, 99 };
	const struct ig_ledger_sums *s = &g->sums;

	*out = (struct ig_ledger_stats){ .n_requests = s->n,
					 .n_errors = s->errors + s->refused,
					 .n_cancelled = s->cancelled,
					 .n_prompt = s->prompt,
					 .n_cached = s->cached,
					 .n_output = s->output };
	memcpy(out->name, g->name, sizeof out->name);
	for (int i = 0; i < 3; i++) {
		out->ttft_ms[i] = ig_ledger_ttft_quantile(s, percents[i]);
		out->itl_ms[i] = ig_itl_quantile(s->itl, percents[i] / 100.0);
	}
}

/* Ask each address of the list, all with the same key and certificates. */
static int ask_all(const struct ig_where *w, const char *path, struct groups *g,
		   struct ig_error *err)
{
	struct ig_where first = *w;
	struct ig_endpoint e;
	const char *p = w->url;
	int rc = 0;

	for (bool begun = false; !rc; begun = true) {
		char url[sizeof e.url];
		size_t len = strcspn(p, ",");
		json_t *reply = NULL;
		long status;
		if (len >= sizeof url)
			return ig_fail(err, -EINVAL, "--url: an address is too long");
		snprintf(url, sizeof url, "%.*s", (int)len, p);
		first.url = url;
		if (begun) { /* keeps the key, which is read once */
			struct ig_endpoint next;
			rc = ig_endpoint_parse(url, &next, err);
			memcpy(next.api_key, e.api_key, sizeof e.api_key);
			memcpy(next.cacert, e.cacert, sizeof e.cacert);
			e = next;
		} else {
			rc = ig_endpoint_open(&first, &e, err);
		}
		if (!rc && (rc = ig_http_get_json(&e, path, TIMEOUT_MS, &reply, &status, err)) &&
		    !strstr(err->text, e.url)) {
			struct ig_error why = *err;
			ig_fail(err, rc, "%s: %.300s", e.url, why.text);
		}
		if (!rc)
			rc = add(g, &e, reply, err);
		json_decref(reply);
		p += len;
		if (!*p++)
			break;
	}
	memset(e.api_key, 0, sizeof e.api_key);
	return rc;
}

int ig_stats_fleet(const struct ig_where *w, enum ig_ledger_by by, int64_t since_s,
		   struct ig_ledger_stats **out, size_t *n, struct ig_error *err)
{
	struct groups g = { 0 };
	char path[100];
	/* without a beginning it would be the last hour */
	int64_t from = since_s ? ig_wall_ns() / 1000000000 - since_s : 1;
	int rc;

	snprintf(path, sizeof path, "/v1/ingot/stats?by=%s&from=%lld", ig_ledger_by_name(by),
		 (long long)from);
	rc = ask_all(w, path, &g, err);
	*out = rc ? NULL : calloc(g.n + 1, sizeof **out);
	*n = g.n;
	if (!rc && !*out)
		rc = ig_fail(err, -ENOMEM, "out of memory");
	if (!rc && g.n)
		qsort(g.all, g.n, sizeof(struct group *), compare);
	for (size_t i = 0; !rc && i < g.n; i++)
		summarize(g.all[i], &(*out)[i]);
	finish(&g);
	return rc;
}
