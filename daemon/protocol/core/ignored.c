/*
 * ignored.c: what requests have that is not known here: fields, parts and tools that were invented
 * later, or that only other servers have.  They are left out, and everybody is told: the client by a
 * header, its administrator by the log, the ledger and a metric.
 */
#include "daemon/protocol/core/ignored.h"

#include "base/log.h"
#include "daemon/protocol/core/params.h"
#include "daemon/protocol/core/reply.h"

#include <stdio.h>
#include <string.h>

/* ---- a request's list ------------------------------------------------------------------ */

/* Whether two names are the same but for the indices of lists. */
static bool is_same(const char *a, size_t n, const char *b)
{
	size_t i = 0;

	for (; i < n && *b; i++, b++) {
		if (a[i] != *b)
			return false;
		if (*b != '[')
			continue;
		while (i + 1 < n && a[i + 1] >= '0' && a[i + 1] <= '9')
			i++;
		while (b[1] >= '0' && b[1] <= '9')
			b++;
	}
	return i == n && !*b;
}

static bool is_listed(const char *list, const char *name)
{
	for (const char *p = list, *end; *p; p = *end ? end + 2 : end) {
		end = strstr(p, ", ");
		if (!end)
			end = p + strlen(p);
		if (is_same(p, (size_t)(end - p), name))
			return true;
	}
	return false;
}

/* Fit for a header, and for a list that commas separate. */
static void make_plain(char *s)
{
	for (; *s; s++)
		if (*s <= 0x20 || *s > 0x7e || *s == ',')
			*s = '?';
}

int ig_request_ignore(struct ig_request *r, const char *name, const char *value,
		      const char *accepted, struct ig_api_error *e)
{
	static const char more[] = ", ...";
	char full[224], shown[64] = "";
	size_t n = strlen(r->ignored);

	if (value)
		ig_printable(shown, sizeof shown, value);
	if (r->refuse_unknown && !value)
		return ig_fail_unsupported(e, name, accepted);
	if (r->refuse_unknown)
		return ig_api_fail(e, 400, "unsupported_parameter", name,
				   "Unsupported value: '%s' is '%s'%s%s.", name, shown,
				   accepted ? "; this server has " : "", accepted ? accepted : "");
	snprintf(full, sizeof full, "%s%s%s", name, value ? "=" : "", shown);
	make_plain(full);
	if (is_listed(r->ignored, full) || is_listed(r->ignored, more + 2))
		return 0;
	if (n + 2 + strlen(full) + sizeof more > sizeof r->ignored)
		snprintf(r->ignored + n, sizeof r->ignored - n, "%s", more);
	else
		snprintf(r->ignored + n, sizeof r->ignored - n, "%s%s", n ? ", " : "", full);
	return 0;
}

/* ---- log and metrics ------------------------------------------------------------------- */

/* Names without the indices of lists: those of all elements are one. */
static void drop_indices(char *name)
{
	char *to = name;

	for (const char *p = name; *p;) {
		bool opens = *p == '[';
		*to++ = *p++;
		while (opens && *p >= '0' && *p <= '9')
			p++;
	}
	*to = 0;
}

/* Whether this client has sent this name before.  A full table forgets all of them. */
static bool is_seen(struct ig_ignored *g, const char *client, const char *name)
{
	char both[IG_IGNORED_CAP + 128];
	size_t n = (size_t)snprintf(both, sizeof both, "%s %s", client, name);
	uint64_t h = ig_hash_bytes(&g->key, both, n < sizeof both ? n : sizeof both - 1) | 1;

	if (g->n >= IG_IGNORED_SEEN / 2) {
		memset(g->seen, 0, sizeof g->seen);
		g->n = 0;
	}
	size_t i = h % IG_IGNORED_SEEN;
	while (g->seen[i] && g->seen[i] != h)
		i = (i + 1) % IG_IGNORED_SEEN;
	if (g->seen[i])
		return true;
	g->seen[i] = h;
	g->n++;
	return false;
}

static void tell(struct ig_api *api, const struct ig_origin *o, const char *shown)
{
	const char *client = o->who.key[0] ? o->who.key : o->client;
	char name[IG_IGNORED_CAP];

	snprintf(name, sizeof name, "%s", shown);
	drop_indices(name);
	ig_metrics_ignored(api->deps.metrics, name);
	if (!is_seen(&api->ignored, client, name))
		ig_log_info(
			"client %s, %s (x-request-id %s): %s is not known here and was left out",
			client, o->endpoint, o->request_id, shown);
}

void ig_ignored_init(struct ig_ignored *g)
{
	*g = (struct ig_ignored){ 0 };
	ig_hash_key_init(&g->key);
}

void ig_ignored_take(struct ig_reply *r)
{
	char list[IG_IGNORED_CAP], *rest, *name;

	if (!r->request.ignored[0] || r->origin->ignored[0])
		return;
	snprintf(r->origin->ignored, sizeof r->origin->ignored, "%s", r->request.ignored);
	snprintf(list, sizeof list, "%s", r->request.ignored);
	for (name = strtok_r(list, ", ", &rest); name; name = strtok_r(NULL, ", ", &rest))
		if (strcmp(name, "..."))
			tell(r->api, r->origin, name);
}
