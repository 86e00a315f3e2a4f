/*
 * api.c: the shared state of the protocol: ids, errors, and how the engine's news get back
 * to the loop.
 *
 * The engine wakes a stream's slot (any thread): a flag in the slot, one in the
 * api, one wake of the loop.  Slots are recycled but never freed while the engine
 * lives, so that a late wake hits a slot and at worst costs a look.  Everything
 * else here is the loop thread's.
 */
#include "daemon/protocol/core/api_private.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "daemon/protocol/responses/stored.h"
#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS_PER_CHUNK 64

struct wake_slot {
	struct ig_api *api;
	atomic_bool dirty;
	struct ig_call *call;	     /* loop; NULL: free */
	struct wake_slot *next;	     /* loop: all of them */
	struct wake_slot *next_free; /* loop */
};

struct slot_chunk {
	struct slot_chunk *next;
	struct wake_slot slots[SLOTS_PER_CHUNK];
};

/* ---- ids ---------------------------------------------------------------------- */

static void random_bytes(void *out, size_t n)
{
	int rc = ig_random_bytes(out, n);

	if (rc < 0) {
		ig_log_error("random bytes: %s", strerror(-rc));
		abort(); /* ids that repeat would mix up clients */
	}
}

void ig_random_id(char *out, size_t cap, const char *prefix)
{
	static const char digits[] = "abcdefghijklmnopqrstuvwxyz012345";
	unsigned char raw[32];
	char text[33];

	random_bytes(raw, sizeof raw);
	for (size_t i = 0; i < sizeof raw; i++)
		text[i] = digits[raw[i] & 31];
	text[32] = 0;
	snprintf(out, cap, "%s%s", prefix, text);
}

uint64_t ig_random_seed(void)
{
	uint64_t v;

	random_bytes(&v, sizeof v);
	return v;
}

/* ---- errors -------------------------------------------------------------------- */

void ig_json_text(struct ig_strbuf *out, const char *s)
{
	if (s)
		ig_strbuf_json(out, s, strlen(s));
	else
		ig_strbuf_puts(out, "null");
}

void ig_error_members(struct ig_strbuf *out, const struct ig_api_error *e)
{
	char text[sizeof e->message];

	/* What a client sent may have been cut in the middle of a character. */
	ig_utf8_copy(text, sizeof text, e->message);
	ig_strbuf_puts(out, "{\"message\":");
	ig_json_text(out, text);
	ig_strbuf_puts(out, ",\"type\":");
	ig_json_text(out, e->type);
	ig_strbuf_puts(out, ",\"param\":");
	ig_utf8_copy(text, sizeof text, e->param);
	ig_json_text(out, text[0] ? text : NULL);
	ig_strbuf_puts(out, ",\"code\":");
	ig_json_text(out, e->code);
	ig_strbuf_puts(out, "}");
}

void ig_error_object(struct ig_strbuf *out, const struct ig_api_error *e)
{
	ig_strbuf_puts(out, "{\"error\":");
	ig_error_members(out, e);
	ig_strbuf_puts(out, "}");
}

void ig_json_value(struct ig_strbuf *out, const json_t *v)
{
	char *text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);

	if (text)
		ig_strbuf_puts(out, text);
	else
		out->failed = true;
	free(text);
}

void ig_api_note_refused(struct ig_api *api, const char *id, const char *endpoint,
			 const char *client, const struct ig_principal *who, const char *model,
			 int64_t received_ns, int64_t received_wall_ns,
			 const struct ig_api_error *e)
{
	struct ig_ledger_row row = { .status = e->status,
				     .received_ns = received_wall_ns,
				     .queue_ms = -1,
				     .prefill_ms = -1,
				     .decode_ms = -1,
				     .ttft_ms = -1 };

	snprintf(row.id, sizeof row.id, "%s", id);
	ig_utf8_copy(row.model, sizeof row.model, model ? model : "");
	snprintf(row.endpoint, sizeof row.endpoint, "%s", endpoint);
	snprintf(row.client, sizeof row.client, "%s", client);
	snprintf(row.key, sizeof row.key, "%s", who->key);
	snprintf(row.finish, sizeof row.finish, "refused");
	ig_utf8_copy(row.error, sizeof row.error, e->message);
	row.total_ms = (float)((double)(ig_now_ns() - received_ns) / 1e6);
	ig_engine_note_refused(api->deps.engine, &row);
}

/* ---- wake slots ----------------------------------------------------------------- */

void ig_api_wake(struct ig_api *api)
{
	if (!atomic_exchange(&api->woken, true))
		api->deps.wake(api->deps.wake_ctx);
}

/* Any thread: a stream has something new. */
void ig_slot_wake(void *ctx)
{
	struct wake_slot *slot = ctx;

	atomic_store(&slot->dirty, true);
	ig_api_wake(slot->api);
}

struct wake_slot *ig_slot_get(struct ig_api *api, struct ig_call *call)
{
	if (!api->free_slots) {
		struct slot_chunk *k = calloc(1, sizeof *k);
		if (!k)
			return NULL;
		k->next = api->chunks;
		api->chunks = k;
		for (size_t i = 0; i < SLOTS_PER_CHUNK; i++) {
			struct wake_slot *s = &k->slots[i];
			s->api = api;
			atomic_init(&s->dirty, false);
			s->next = api->slots;
			api->slots = s;
			s->next_free = api->free_slots;
			api->free_slots = s;
		}
	}
	struct wake_slot *s = api->free_slots;
	api->free_slots = s->next_free;
	s->call = call;
	return s;
}

void ig_slot_put(struct wake_slot *s)
{
	s->call = NULL;
	s->next_free = s->api->free_slots;
	s->api->free_slots = s;
}

/* ---- life --------------------------------------------------------------------------- */

struct ig_api *ig_api_create(const struct ig_api_deps *deps)
{
	struct ig_api *api = calloc(1, sizeof *api);

	if (!api)
		return NULL;
	api->limits = ig_limits_create(&deps->options.limits);
	api->kept = ig_kept_store_create(deps->options.max_kept, deps->options.max_kept_bytes);
	if (!api->limits || !api->kept) {
		ig_limits_destroy(api->limits);
		ig_kept_store_destroy(api->kept);
		free(api);
		return NULL;
	}
	api->deps = *deps;
	ig_jobs_init(api);
	link_init(&api->replies);
	link_init(&api->sessions);
	pthread_mutex_init(&api->lock, NULL);
	atomic_init(&api->woken, false);
	return api;
}

void ig_api_stop(struct ig_api *api)
{
	ig_jobs_stop(api);
}

void ig_api_destroy(struct ig_api *api)
{
	if (!api)
		return;
	ig_jobs_finish(api);
	while (api->chunks) {
		struct slot_chunk *k = api->chunks;
		api->chunks = k->next;
		free(k);
	}
	ig_limits_destroy(api->limits);
	ig_kept_store_destroy(api->kept);
	pthread_mutex_destroy(&api->lock);
	free(api);
}

void ig_api_set_options(struct ig_api *api, const struct ig_api_options *o)
{
	api->deps.options = *o;
	ig_limits_set_defaults(api->limits, &o->limits);
	ig_kept_store_limit(api->kept, o->max_kept, o->max_kept_bytes);
}

void ig_api_drain(struct ig_api *api)
{
	api->draining = true;
	ig_jobs_drain(api);
	ig_sessions_drain(api);
}

void ig_api_poll(struct ig_api *api)
{
	/* Cleared first: a wake from here on is a new one. */
	atomic_store(&api->woken, false);
	ig_jobs_poll(api);
	for (struct wake_slot *s = api->slots; s; s = s->next)
		if (s->call && atomic_exchange(&s->dirty, false))
			s->call->reply->notify(s->call->reply->owner, s->call->reply);
}

int64_t ig_api_tick(struct ig_api *api, int64_t now_ns)
{
	int64_t interval = (int64_t)api->deps.options.keepalive_interval_ms * 1000000,
		next = ig_jobs_tick(api, now_ns);

	for (struct link *l = api->replies.next; l != &api->replies; l = l->next) {
		struct ig_reply *r = link_entry(l, struct ig_reply, all);
		if (!r->submitted || r->finished || !interval)
			continue;
		int64_t left = r->last_output_ns + interval - now_ns;
		if (left <= 0) {
			if (!r->keepalive) {
				r->keepalive = true;
				r->notify(r->owner, r);
			}
			left = interval;
		}
		if (next < 0 || left < next)
			next = left;
	}
	return next;
}
