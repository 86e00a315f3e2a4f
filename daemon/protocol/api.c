/*
 * api.c: the shared state of the protocol: ids, jobs on the prep thread, and how the
 * engine's news get back to the loop.
 *
 * The engine wakes a stream's slot (any thread): a flag in the slot, one in the
 * api, one wake of the loop.  Slots are recycled but never freed while the engine
 * lives, so that a late wake hits a slot and at worst costs a look.  Everything
 * else here is the loop thread's, but for the list of finished jobs.
 */
#include "daemon/protocol/api-private.h"

#include "base/clock.h"
#include "base/log.h"
#include "daemon/protocol/kept.h"
#include "daemon/protocol/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sys/random.h>
#endif

#define SLOTS_PER_CHUNK 64

struct wake_slot {
	struct ig_api *api;
	atomic_bool dirty;
	struct ig_call *call; /* loop; NULL: free */
	struct wake_slot *next; /* loop: all of them */
	struct wake_slot *next_free; /* loop */
};

struct slot_chunk {
	struct slot_chunk *next;
	struct wake_slot slots[SLOTS_PER_CHUNK];
};

/* ---- ids ---------------------------------------------------------------------- */

static void random_bytes(unsigned char *out, size_t n)
{
#ifdef __linux__
	size_t have = 0;
	while (have < n) {
		ssize_t r = getrandom(out + have, n - have, 0);
		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0) {
			ig_log_error("getrandom: %s", strerror(errno));
			abort(); /* ids that repeat would mix up clients */
		}
		have += (size_t)r;
	}
#else
	arc4random_buf(out, n);
#endif
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

	random_bytes((unsigned char *)&v, sizeof v);
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
	struct ig_ledger_row row = { .status = e->status, .received_ns = received_wall_ns,
				     .queue_ms = -1, .prefill_ms = -1, .decode_ms = -1,
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

/* Any thread. */
static void wake_loop(struct ig_api *api)
{
	if (!atomic_exchange(&api->woken, true))
		api->deps.wake(api->deps.wake_ctx);
}

/* Any thread: a stream has something new. */
void ig_slot_wake(void *ctx)
{
	struct wake_slot *slot = ctx;

	atomic_store(&slot->dirty, true);
	wake_loop(slot->api);
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

/* ---- jobs ----------------------------------------------------------------------- */

void ig_prepared_finish(struct ig_prepared *p)
{
	for (size_t i = 0; i < p->n_prompts; i++)
		ig_ids_finish(&p->prompts[i]);
	free(p->prompts);
	ig_grammar_unref(p->grammar);
	ig_engine_release_model(p->model);
	*p = (struct ig_prepared){ 0 };
}

static void job_free(struct ig_job *j)
{
	free(j->text);
	ig_request_finish(&j->request);
	ig_prepared_finish(&j->prepared);
	free(j);
}

/* Whether there is a prompt to prepare, and all that it is made of. */
static bool is_ready(const struct ig_request *r)
{
	switch (r->kind) {
	case IG_REQUEST_CANCEL:
	case IG_REQUEST_STEER:
	case IG_REQUEST_IGNORED:
		return false;
	default:
		return !r->previous_id || r->history;
	}
}

/* The prep thread. */
static void job_run(void *ctx)
{
	struct ig_job *j = ctx;
	struct ig_api *api = j->api;
	int rc = j->parse ? j->parse(j->text, j->len, &j->request, &j->error) : 0;

	free(j->text);
	j->text = NULL;
	if (!rc && is_ready(&j->request))
		ig_prepare(j);
	pthread_mutex_lock(&api->lock);
	j->next_done = NULL;
	*api->done_tail = j;
	api->done_tail = &j->next_done;
	pthread_mutex_unlock(&api->lock);
	wake_loop(api);
}

static int job_send(struct ig_job *j, struct link *owner_jobs)
{
	struct ig_api *api = j->api;

	link_append(&api->jobs, &j->all);
	link_append(owner_jobs, &j->of_owner);
	int rc = ig_engine_prep(api->deps.engine, job_run, j);
	if (rc < 0) {
		link_remove(&j->all);
		link_remove(&j->of_owner);
		job_free(j);
	}
	return rc;
}

int ig_job_start(struct ig_api *api, const struct ig_protocol *p, ig_request_parse *parse,
		 char *text, size_t len, void *owner,
		 void (*deliver)(void *owner, struct ig_job *job), struct link *owner_jobs)
{
	struct ig_job *j = calloc(1, sizeof *j);

	if (!j) {
		free(text);
		return -ENOMEM;
	}
	j->api = api;
	j->protocol = p;
	j->parse = parse;
	j->text = text;
	j->len = len;
	j->owner = owner;
	j->deliver = deliver;
	j->received_ns = ig_now_ns();
	j->received_wall_ns = ig_wall_ns();
	return job_send(j, owner_jobs);
}

int ig_job_prepare(struct ig_api *api, const struct ig_protocol *p, struct ig_request *r,
		   int64_t received_ns, int64_t received_wall_ns, void *owner,
		   void (*deliver)(void *owner, struct ig_job *job), struct link *owner_jobs)
{
	struct ig_job *j = calloc(1, sizeof *j);

	if (!j) {
		ig_request_finish(r);
		return -ENOMEM;
	}
	j->api = api;
	j->protocol = p;
	j->request = *r;
	*r = (struct ig_request){ 0 };
	j->owner = owner;
	j->deliver = deliver;
	j->received_ns = received_ns;
	j->received_wall_ns = received_wall_ns;
	return job_send(j, owner_jobs);
}

void ig_jobs_abandon(struct link *owner_jobs, const char *endpoint, const char *client,
		     const struct ig_principal *who, bool prepared)
{
	while (!link_empty(owner_jobs)) {
		struct ig_job *j = link_entry(owner_jobs->next, struct ig_job, of_owner);
		j->owner = NULL;
		if (j->parse || prepared) {
			snprintf(j->endpoint, sizeof j->endpoint, "%s", endpoint);
			snprintf(j->client, sizeof j->client, "%s", client);
			j->who = *who;
		}
		link_remove(&j->of_owner);
	}
}

/* A request whose client left while prep had it. */
static void note_abandoned(struct ig_job *j)
{
	struct ig_api_error e = j->error;

	if (j->request.kind == IG_REQUEST_CANCEL || j->request.kind == IG_REQUEST_STEER ||
	    j->request.kind == IG_REQUEST_IGNORED)
		return;
	if (!e.status)
		ig_api_fail(&e, 499, "invalid_request_error", NULL, NULL,
			    "cancelled before it ran (client_gone)");
	ig_api_note_refused(j->api, "", j->endpoint, j->client, &j->who, j->request.model,
			    j->received_ns, j->received_wall_ns, &e);
}

static void deliver_jobs(struct ig_api *api)
{
	pthread_mutex_lock(&api->lock);
	struct ig_job *j = api->done;
	api->done = NULL;
	api->done_tail = &api->done;
	pthread_mutex_unlock(&api->lock);
	while (j) {
		struct ig_job *next = j->next_done;
		link_remove(&j->all);
		link_remove(&j->of_owner);
		if (j->owner)
			j->deliver(j->owner, j);
		else if (j->endpoint[0])
			note_abandoned(j);
		job_free(j);
		j = next;
	}
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
	link_init(&api->jobs);
	link_init(&api->replies);
	link_init(&api->sessions);
	api->done_tail = &api->done;
	pthread_mutex_init(&api->lock, NULL);
	atomic_init(&api->woken, false);
	return api;
}

void ig_api_destroy(struct ig_api *api)
{
	if (!api)
		return;
	/* The prep thread is gone: what it never ran is freed here. */
	while (!link_empty(&api->jobs)) {
		struct ig_job *j = link_entry(api->jobs.next, struct ig_job, all);
		link_remove(&j->all);
		job_free(j);
	}
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
	ig_sessions_drain(api);
}

void ig_api_poll(struct ig_api *api)
{
	/* Cleared first: a wake from here on is a new one. */
	atomic_store(&api->woken, false);
	deliver_jobs(api);
	for (struct wake_slot *s = api->slots; s; s = s->next)
		if (s->call && atomic_exchange(&s->dirty, false))
			s->call->reply->notify(s->call->reply->owner, s->call->reply);
}

int64_t ig_api_tick(struct ig_api *api, int64_t now_ns)
{
	int64_t interval = (int64_t)api->deps.options.keepalive_interval_ms * 1000000, next = -1;

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
