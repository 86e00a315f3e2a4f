/*
 * api.c: the shared state of the protocol: ids, jobs on the prep thread, calls to
 * the engine and how their news get back to the loop.
 *
 * The engine wakes a stream's slot (any thread): a flag in the slot, one in the
 * api, one wake of the loop.  Slots are recycled but never freed while the engine
 * lives, so that a late wake hits a slot and at worst costs a look.  Everything
 * else here is the loop thread's, but for the list of finished jobs.
 */
#include "daemon/protocol/api-private.h"

#include "base/clock.h"
#include "base/log.h"
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

static uint64_t random_seed(void)
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

void ig_api_note_refused(struct ig_api *api, const char *id, const char *endpoint,
			 const char *client, const char *model, int64_t received_ns,
			 int64_t received_wall_ns, const struct ig_api_error *e)
{
	struct ig_ledger_row row = { .status = e->status, .received_ns = received_wall_ns,
				     .queue_ms = -1, .prefill_ms = -1, .decode_ms = -1,
				     .ttft_ms = -1 };

	snprintf(row.id, sizeof row.id, "%s", id);
	ig_utf8_copy(row.model, sizeof row.model, model ? model : "");
	snprintf(row.endpoint, sizeof row.endpoint, "%s", endpoint);
	snprintf(row.client, sizeof row.client, "%s", client);
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
static void slot_wake(void *ctx)
{
	struct wake_slot *slot = ctx;

	atomic_store(&slot->dirty, true);
	wake_loop(slot->api);
}

static struct wake_slot *slot_get(struct ig_api *api, struct ig_call *call)
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

static void slot_put(struct wake_slot *s)
{
	s->call = NULL;
	s->next_free = s->api->free_slots;
	s->api->free_slots = s;
}

/* ---- jobs ----------------------------------------------------------------------- */

static void job_free(struct ig_job *j)
{
	free(j->text);
	ig_request_finish(&j->request);
	ig_ids_finish(&j->ids);
	free(j);
}

static void model_error(struct ig_job *j, int rc, const struct ig_error *err)
{
	if (rc == -ENOENT)
		ig_api_fail(&j->error, 404, "invalid_request_error", "model_not_found", "model", "%s",
			    err->text);
	else
		ig_api_fail(&j->error, 500, "server_error", "server_error", NULL, "%s", err->text);
}

static void prepare_prompt(struct ig_job *j)
{
	struct ig_request *r = &j->request;
	const char *param = r->kind == IG_REQUEST_CHAT ? "messages" : "input";
	struct ig_error err = { 0 };
	int rc = ig_engine_find_model(j->api->deps.engine, r->model, &j->model, &err);

	if (rc < 0) {
		model_error(j, rc, &err);
		return;
	}
	if (!j->model->chat) {
		ig_api_fail(&j->error, 400, "invalid_request_error", "unsupported_model", "model",
			    "The model '%s' has no chat template.", j->model->name);
		return;
	}
	/* Beyond four contexts nobody needs the exact number. */
	size_t max_ids = (size_t)j->model->n_context * 4;
	rc = ig_chat_template_encode(j->model->chat, r->messages, r->n_messages, true, max_ids,
				     &j->ids, &err);
	if (!rc && j->ids.n < j->model->n_context)
		return;
	if (!rc)
		ig_api_fail(&j->error, 400, "invalid_request_error", "context_length_exceeded", param,
			    "The prompt has %zu tokens; the model '%s' has a context of %u tokens, "
			    "answer included.", j->ids.n, j->model->name, j->model->n_context);
	else if (rc == -E2BIG)
		ig_api_fail(&j->error, 400, "invalid_request_error", "context_length_exceeded", param,
			    "The prompt has more than %zu tokens; the model '%s' has a context of %u "
			    "tokens, answer included.", max_ids, j->model->name, j->model->n_context);
	else if (rc == -ENOMEM)
		ig_api_fail(&j->error, 500, "server_error", "server_error", NULL,
			    "The server is out of memory.");
	else
		ig_api_fail(&j->error, 400, "invalid_request_error", "invalid_value", param, "%s",
			    err.text[0] ? err.text : "The prompt can't be rendered.");
}

/* The prep thread. */
static void job_run(void *ctx)
{
	struct ig_job *j = ctx;
	struct ig_api *api = j->api;
	int rc = j->kind == IG_JOB_CHAT ?
		 ig_request_parse_chat(j->text, j->len, &j->request, &j->error) :
		 ig_request_parse_ws(j->text, j->len, &j->request, &j->error);

	free(j->text);
	j->text = NULL;
	if (!rc && (j->request.kind == IG_REQUEST_CHAT || j->request.kind == IG_REQUEST_CREATE))
		prepare_prompt(j);
	pthread_mutex_lock(&api->lock);
	j->next_done = NULL;
	*api->done_tail = j;
	api->done_tail = &j->next_done;
	pthread_mutex_unlock(&api->lock);
	wake_loop(api);
}

int ig_job_start(struct ig_api *api, enum ig_job_kind kind, char *text, size_t len, void *owner,
		 void (*deliver)(void *owner, struct ig_job *job), struct link *owner_jobs)
{
	struct ig_job *j = calloc(1, sizeof *j);

	if (!j) {
		free(text);
		return -ENOMEM;
	}
	j->api = api;
	j->kind = kind;
	j->text = text;
	j->len = len;
	j->owner = owner;
	j->deliver = deliver;
	j->received_ns = ig_now_ns();
	j->received_wall_ns = ig_wall_ns();
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

void ig_jobs_abandon(struct link *owner_jobs)
{
	while (!link_empty(owner_jobs)) {
		struct ig_job *j = link_entry(owner_jobs->next, struct ig_job, of_owner);
		j->owner = NULL;
		link_remove(&j->of_owner);
	}
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
		job_free(j);
		j = next;
	}
}

/* ---- calls ------------------------------------------------------------------------ */

struct ig_call *ig_call_create(struct ig_job *job, const char *id_prefix, const char *endpoint,
			       const char *client, void *owner,
			       void (*notify)(void *owner, struct ig_call *call))
{
	struct ig_api *api = job->api;
	struct ig_call *c = calloc(1, sizeof *c);

	if (!c)
		return NULL;
	c->slot = slot_get(api, c);
	if (!c->slot) {
		free(c);
		return NULL;
	}
	c->api = api;
	c->owner = owner;
	c->notify = notify;
	c->request = job->request;
	job->request = (struct ig_request){ 0 };
	c->ids = job->ids;
	job->ids = (struct ig_ids){ 0 };
	c->model = job->model;
	ig_random_id(c->id, sizeof c->id, id_prefix);
	ig_random_id(c->item_id, sizeof c->item_id, "msg_");
	snprintf(c->endpoint, sizeof c->endpoint, "%s", endpoint);
	snprintf(c->client, sizeof c->client, "%s", client);
	c->received_ns = job->received_ns;
	c->received_wall_ns = job->received_wall_ns;
	c->created_s = job->received_wall_ns / 1000000000;
	c->last_output_ns = ig_now_ns();
	link_append(&api->calls, &c->all);
	link_init(&c->of_owner);
	return c;
}

static int submit_failed(struct ig_call *c, int rc, const struct ig_error *err,
			 struct ig_api_error *e)
{
	const char *param = c->request.kind == IG_REQUEST_CHAT ? "messages" : "input";

	switch (rc) {
	case -EAGAIN:
		ig_api_fail(e, 503, "server_error", "server_is_overloaded", NULL, "%s", err->text[0] ?
			    err->text : "Too many requests are waiting.");
		e->retry_after_s = c->api->deps.options.retry_after_s;
		break;
	case -ESHUTDOWN:
		ig_api_fail(e, 503, "server_error", "server_shutting_down", NULL,
			    "The server is shutting down.");
		e->retry_after_s = c->api->deps.options.retry_after_s;
		break;
	case -E2BIG:
		ig_api_fail(e, 400, "invalid_request_error", "context_length_exceeded", param, "%s",
			    err->text);
		break;
	case -ENOMEM:
		ig_api_fail(e, 500, "server_error", "server_error", NULL,
			    "The server is out of memory.");
		break;
	default:
		ig_api_fail(e, 500, "server_error", "server_error", NULL, "%s",
			    err->text[0] ? err->text : "The request could not be started.");
	}
	return -1;
}

int ig_call_submit(struct ig_call *c, struct ig_api_error *e)
{
	struct ig_error err = { 0 };
	struct ig_gen_spec spec = {
		.model = c->model,
		.prompt = c->ids.ids,
		.n_prompt = (int32_t)c->ids.n,
		.max_tokens = c->request.max_tokens,
		.temperature = (float)c->request.temperature,
		.top_p = (float)c->request.top_p,
		.top_k = c->request.top_k,
		.min_p = (float)c->request.min_p,
		.repetition_penalty = (float)c->request.repetition_penalty,
		.frequency_penalty = (float)c->request.frequency_penalty,
		.presence_penalty = (float)c->request.presence_penalty,
		.biases = c->request.biases,
		.n_biases = c->request.n_biases,
		.seed = c->request.has_seed ? c->request.seed : random_seed(),
		.stops = c->request.stops,
		.n_top = -1, /* no log probabilities */
		.received_ns = c->received_ns,
		.received_wall_ns = c->received_wall_ns,
	};

	/* A top_p that is above 0 as a double may be 0 as a float. */
	if (!(spec.top_p > 0))
		spec.top_p = 1e-30f;
	snprintf(spec.id, sizeof spec.id, "%s", c->id);
	snprintf(spec.endpoint, sizeof spec.endpoint, "%s", c->endpoint);
	snprintf(spec.client, sizeof spec.client, "%s", c->client);
	struct ig_stream *stream =
		ig_stream_create(c->api->deps.options.client_buffer, slot_wake, c->slot);
	if (!stream)
		return submit_failed(c, -ENOMEM, &err, e);
	spec.stream = stream; /* the engine may clear what it has taken over */
	int rc = ig_engine_submit(c->api->deps.engine, &spec, &c->gen, &err);
	if (rc < 0) {
		/* The writer's reference is ours again. */
		ig_stream_unref(stream);
		ig_stream_unref(stream);
		return submit_failed(c, rc, &err, e);
	}
	c->stream = stream;
	c->ids = (struct ig_ids){ 0 };
	c->request.stops = NULL;
	c->last_output_ns = ig_now_ns();
	return 0;
}

void ig_call_take(struct ig_call *c, size_t cap)
{
	size_t taken = 0;

	if (c->finished || !c->stream)
		return;
	while (taken < cap) {
		size_t want = cap - taken < 4096 ? cap - taken : 4096;
		if (!ig_strbuf_reserve(&c->text, want))
			break;
		size_t n = ig_stream_take(c->stream, c->text.data + c->text.len, want);
		if (!n)
			break;
		c->text.len += n;
		c->text.data[c->text.len] = 0;
		taken += n;
	}
	if (!ig_strbuf_ok(&c->text)) {
		ig_engine_cancel(c->api->deps.engine, c->gen, "server_error");
		c->finished = true;
		c->result = (struct ig_gen_result){ .finish = IG_FINISH_ERROR };
		ig_fail(&c->result.error, -ENOMEM, "The server is out of memory.");
		return;
	}
	c->finished = ig_stream_finished(c->stream, &c->result);
	if (taken && !c->finished)
		ig_engine_resume(c->api->deps.engine, c->gen);
}

void ig_call_cancel(struct ig_call *c, const char *reason)
{
	if (c->finished)
		return;
	if (c->stream) {
		ig_engine_cancel(c->api->deps.engine, c->gen, reason);
		return;
	}
	struct ig_api_error e;
	ig_api_fail(&e, 499, "invalid_request_error", NULL, NULL, "cancelled before it ran (%s)",
		    reason);
	ig_api_note_refused(c->api, c->id, c->endpoint, c->client, c->model->name, c->received_ns,
			    c->received_wall_ns, &e);
	c->finished = true;
	c->result = (struct ig_gen_result){ .finish = IG_FINISH_CANCELLED };
	snprintf(c->result.cancel_reason, sizeof c->result.cancel_reason, "%s", reason);
}

void ig_call_destroy(struct ig_call *c)
{
	if (!c)
		return;
	if (c->stream && !c->finished)
		ig_engine_cancel(c->api->deps.engine, c->gen, "client_gone");
	link_remove(&c->all);
	link_remove(&c->of_owner);
	slot_put(c->slot);
	ig_stream_unref(c->stream);
	ig_request_finish(&c->request);
	ig_ids_finish(&c->ids);
	ig_strbuf_finish(&c->text);
	free(c);
}

void ig_result_error(const struct ig_gen_result *r, struct ig_api_error *e)
{
	*e = (struct ig_api_error){ 0 };
	if (r->finish == IG_FINISH_ERROR)
		ig_api_fail(e, 500, "server_error", "server_error", NULL, "%s",
			    r->error.text[0] ? r->error.text : "The model failed.");
	else if (r->finish == IG_FINISH_CANCELLED && !strcmp(r->cancel_reason, "shutdown"))
		ig_api_fail(e, 503, "server_error", "server_shutting_down", NULL,
			    "The server is shutting down.");
	else if (r->finish == IG_FINISH_CANCELLED)
		ig_api_fail(e, 500, "server_error", "request_cancelled", NULL,
			    "The request was cancelled (%s).", r->cancel_reason);
}

/* ---- life --------------------------------------------------------------------------- */

struct ig_api *ig_api_create(const struct ig_api_deps *deps)
{
	struct ig_api *api = calloc(1, sizeof *api);

	if (!api)
		return NULL;
	api->deps = *deps;
	link_init(&api->jobs);
	link_init(&api->calls);
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
	pthread_mutex_destroy(&api->lock);
	free(api);
}

void ig_api_set_options(struct ig_api *api, const struct ig_api_options *o)
{
	api->deps.options = *o;
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
			s->call->notify(s->call->owner, s->call);
}

int64_t ig_api_tick(struct ig_api *api, int64_t now_ns)
{
	int64_t interval = (int64_t)api->deps.options.keepalive_interval_ms * 1000000, next = -1;

	for (struct link *l = api->calls.next; l != &api->calls; l = l->next) {
		struct ig_call *c = link_entry(l, struct ig_call, all);
		if (!c->stream || c->finished || !interval)
			continue;
		int64_t left = c->last_output_ns + interval - now_ns;
		if (left <= 0) {
			if (!c->keepalive) {
				c->keepalive = true;
				c->notify(c->owner, c);
			}
			left = interval;
		}
		if (next < 0 || left < next)
			next = left;
	}
	return next;
}
