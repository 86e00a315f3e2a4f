/* origin.c: see origin.h. */
#include "daemon/engine/origin.h"

#include "base/clock.h"
#include "base/hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ig_origin *ig_origin_create(const char *request_id, const char *endpoint, const char *client,
				   const struct ig_principal *who)
{
	struct ig_origin *o = calloc(1, sizeof *o);

	if (!o)
		return NULL;
	atomic_init(&o->n_refs, 1);
	snprintf(o->request_id, sizeof o->request_id, "%s", request_id);
	snprintf(o->endpoint, sizeof o->endpoint, "%s", endpoint);
	snprintf(o->client, sizeof o->client, "%s", client);
	o->who = *who;
	o->received_ns = ig_now_ns();
	o->received_wall_ns = ig_wall_ns();
	return o;
}

struct ig_origin *ig_origin_ref(struct ig_origin *o)
{
	atomic_fetch_add(&o->n_refs, 1);
	return o;
}

void ig_origin_unref(struct ig_origin *o)
{
	if (o && atomic_fetch_sub(&o->n_refs, 1) == 1)
		free(o);
}

uint64_t ig_origin_client(const struct ig_origin *o)
{
	return o->who.identity ? o->who.identity : ig_fnv1a(IG_FNV1A, o->client, strlen(o->client));
}

void ig_origin_row(const struct ig_origin *o, int64_t now_ns, struct ig_ledger_row *row)
{
	*row = (struct ig_ledger_row){
		.received_ns = o->received_wall_ns,
		.n_same = -1,
		.queue_ms = -1,
		.prefill_ms = -1,
		.decode_ms = -1,
		.ttft_ms = -1,
		.total_ms = (float)((double)(now_ns - o->received_ns) * 1e-6),
	};
	snprintf(row->request_id, sizeof row->request_id, "%s", o->request_id);
	snprintf(row->endpoint, sizeof row->endpoint, "%s", o->endpoint);
	snprintf(row->client, sizeof row->client, "%s", o->client);
	snprintf(row->key, sizeof row->key, "%s", o->who.key);
	snprintf(row->ignored, sizeof row->ignored, "%s", o->ignored);
	snprintf(row->normalized, sizeof row->normalized, "%s", o->normalized);
}
