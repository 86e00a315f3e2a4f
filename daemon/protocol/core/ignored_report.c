/* ignored_report.c: tells an administrator what requests have that is not known here: in the log and
 * the metrics.  The ledger and the reply's header have it from the request's origin. */
#include "daemon/protocol/core/ignored.h"

#include "base/log.h"
#include "daemon/protocol/core/reply.h"

#include <stdio.h>
#include <string.h>

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
	size_t n_told = strlen(r->origin->ignored); /* prep may have added to what was parsed */

	if (!r->request.ignored[n_told])
		return;
	snprintf(list, sizeof list, "%s", r->request.ignored + n_told);
	snprintf(r->origin->ignored, sizeof r->origin->ignored, "%s", r->request.ignored);
	for (name = strtok_r(list, ", ", &rest); name; name = strtok_r(NULL, ", ", &rest))
		if (strcmp(name, "..."))
			tell(r->api, r->origin, name);
}
