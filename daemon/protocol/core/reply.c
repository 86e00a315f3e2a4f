/*
 * reply.c: a request's calls to the engine and what comes back: text taken apart into
 * parts, notes of tokens, the end.  The loop's thread.
 */
#include "daemon/protocol/core/api_private.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Notes of tokens that wait in a call's ring; a full one pauses its sequence. */
#define RING_NOTES 256

/* ---- life ----------------------------------------------------------------------------- */

static uint32_t n_calls_of(const struct ig_job *job)
{
	if (job->protocol->immediate || job->error.status)
		return 0;
	/* What is unprepared has choices to be cancelled. */
	return (uint32_t)(job->prepared.model ? job->prepared.n_prompts : 1) *
	       (uint32_t)job->request.n;
}

/* Who it is, where its stream has got to: as was said while its model was being loaded. */
static void identify(struct ig_reply *r, const struct ig_job *job)
{
	const struct ig_begun *b = &job->begun;

	ig_random_id(r->id, sizeof r->id, r->protocol->id_prefix);
	r->created_s = job->received_wall_ns / 1000000000;
	r->model = r->prepared.model;
	if (b->id[0]) {
		memcpy(r->id, b->id, sizeof r->id);
		r->created_s = b->created_s;
		r->stage = b->stage;
		r->sequence = b->sequence;
	}
	if (r->model)
		return;
	snprintf(r->stand_in_name, sizeof r->stand_in_name, "%s",
		 b->id[0]	  ? b->model :
		 r->request.model ? r->request.model :
				    "");
	r->stand_in.name = r->stand_in_name;
	r->model = &r->stand_in;
}

struct ig_reply *ig_reply_create(struct ig_job *job, const char *endpoint, const char *client,
				 const struct ig_principal *who, void *owner,
				 void (*notify)(void *owner, struct ig_reply *r))
{
	struct ig_api *api = job->api;
	struct ig_reply *r = calloc(1, sizeof *r);

	if (!r)
		return NULL;
	link_init(&r->all);
	link_init(&r->of_owner);
	r->n_calls = n_calls_of(job);
	r->calls = calloc(r->n_calls ? r->n_calls : 1, sizeof *r->calls);
	if (!r->calls)
		goto fail;
	for (uint32_t i = 0; i < r->n_calls; i++) {
		struct ig_call *c = &r->calls[i];
		c->reply = r;
		c->index = i;
		c->slot = ig_slot_get(api, c);
		if (!c->slot)
			goto fail;
		if (!job->request.messages)
			continue;
		c->parser = ig_answer_parser_create(
			&job->prepared.style,
			job->request.tools && job->request.tool_choice != IG_TOOLS_NONE);
		if (!c->parser)
			goto fail;
	}
	r->api = api;
	r->protocol = job->protocol;
	r->owner = owner;
	r->notify = notify;
	r->request = job->request;
	job->request = (struct ig_request){ 0 };
	r->prepared = job->prepared;
	job->prepared = (struct ig_prepared){ 0 };
	identify(r, job);
	snprintf(r->endpoint, sizeof r->endpoint, "%s", endpoint);
	snprintf(r->client, sizeof r->client, "%s", client);
	r->who = *who;
	r->received_ns = job->received_ns;
	r->received_wall_ns = job->received_wall_ns;
	r->last_output_ns = ig_now_ns();
	r->error = job->error;
	r->finished = !r->n_calls;
	link_append(&api->replies, &r->all);
	return r;
fail:
	ig_reply_destroy(r);
	return NULL;
}

static void part_finish(struct ig_part *p)
{
	ig_strbuf_finish(&p->text);
	free(p->name);
}

static void call_finish(struct ig_call *c)
{
	if (c->stream && !c->finished)
		ig_engine_cancel(c->reply->api->deps.engine, c->gen, "client_gone");
	if (c->slot)
		ig_slot_put(c->slot);
	ig_stream_unref(c->stream);
	ig_answer_parser_destroy(c->parser);
	for (size_t i = 0; i < c->n_parts; i++)
		part_finish(&c->parts[i]);
	free(c->parts);
	free(c->notes);
}

/* It has ended, or its client is gone. */
static void leave(struct ig_reply *r)
{
	struct ig_usage u;

	if (!r->admitted)
		return;
	r->admitted = false;
	ig_reply_usage(r, &u);
	ig_limits_charge(r->api->limits, &r->who, u.output, ig_now_ns());
	ig_limits_release(r->api->limits, &r->who);
}

void ig_reply_destroy(struct ig_reply *r)
{
	if (!r)
		return;
	leave(r);
	for (uint32_t i = 0; r->calls && i < r->n_calls; i++)
		call_finish(&r->calls[i]);
	free(r->calls);
	link_remove(&r->all);
	link_remove(&r->of_owner);
	ig_request_finish(&r->request);
	ig_prepared_finish(&r->prepared);
	free(r);
}

/* ---- to the engine ------------------------------------------------------------------------ */

static int submit_failed(struct ig_reply *r, int rc, const struct ig_error *err,
			 struct ig_api_error *e)
{
	switch (rc) {
	case -EAGAIN:
		ig_api_fail(e, 503, "server_error", "server_is_overloaded", NULL, "%s",
			    err->text[0] ? err->text : "Too many requests are waiting.");
		e->retry_after_s = r->api->deps.options.retry_after_s;
		break;
	case -ESHUTDOWN:
		ig_api_fail(e, 503, "server_error", "server_shutting_down", NULL,
			    "The server is shutting down.");
		e->retry_after_s = r->api->deps.options.retry_after_s;
		break;
	case -E2BIG:
		ig_api_fail(e, 400, "invalid_request_error", "context_length_exceeded",
			    r->protocol->prompt_param, "%s", err->text);
		break;
	case -ENOMEM:
		ig_fail_memory(e);
		break;
	default:
		ig_api_fail(e, 500, "server_error", "server_error", NULL, "%s",
			    err->text[0] ? err->text : "The request could not be started.");
	}
	return -1;
}

/* The engine takes over prompt and stops; the request's own serve the other choices. */
static char **copy_stops(char *const *stops)
{
	size_t n = 0;

	while (stops[n])
		n++;
	char **copy = calloc(n + 1, sizeof *copy);
	for (size_t i = 0; copy && i < n; i++) {
		copy[i] = strdup(stops[i]);
		if (copy[i])
			continue;
		while (i--)
			free(copy[i]);
		free(copy);
		return NULL;
	}
	return copy;
}

static void free_stops(char **stops)
{
	for (char **s = stops; s && *s; s++)
		free(*s);
	free(stops);
}

static int submit_call(struct ig_call *c, struct ig_api_error *e)
{
	struct ig_reply *r = c->reply;
	const struct ig_request *q = &r->request;
	const struct ig_ids *ids = &r->prepared.prompts[c->index / (uint32_t)q->n];
	struct ig_error err = { 0 };
	struct ig_stream *stream = NULL;
	struct ig_gen_spec spec = {
		.model = r->model,
		.n_prompt = (int32_t)ids->n,
		.max_tokens = q->max_tokens,
		.temperature = (float)q->temperature,
		.top_p = (float)q->top_p,
		.top_k = q->top_k,
		.min_p = (float)q->min_p,
		.repetition_penalty = (float)q->repetition_penalty,
		.frequency_penalty = (float)q->frequency_penalty,
		.presence_penalty = (float)q->presence_penalty,
		.biases = q->biases,
		.n_biases = q->n_biases,
		/* choices differ, and each can be had again alone */
		.seed = (q->has_seed ? q->seed : ig_random_seed()) + c->index % (uint32_t)q->n,
		.n_top = q->logprobs ? q->n_top : -1,
		.n_shown = r->prepared.n_shown,
		.prefill_only = q->warm_up,
		.ignore_end = q->ignore_end,
		.received_ns = r->received_ns,
		.received_wall_ns = r->received_wall_ns,
	};
	int rc = -ENOMEM;

	/* A top_p that is above 0 as a double may be 0 as a float. */
	if (!(spec.top_p > 0))
		spec.top_p = 1e-30f;
	memcpy(spec.shown, r->prepared.shown, sizeof spec.shown);
	if (r->n_calls > 1)
		snprintf(spec.id, sizeof spec.id, "%.52s-%u", r->id, c->index);
	else
		snprintf(spec.id, sizeof spec.id, "%s", r->id);
	snprintf(spec.endpoint, sizeof spec.endpoint, "%s", r->endpoint);
	snprintf(spec.client, sizeof spec.client, "%s", r->client);
	snprintf(spec.key, sizeof spec.key, "%s", r->who.key);
	spec.salt = r->who.identity;
	spec.prompt = malloc(ids->n * sizeof *spec.prompt);
	spec.stops = q->stops ? copy_stops(q->stops) : NULL;
	if (!spec.prompt || (q->stops && !spec.stops))
		goto fail;
	memcpy(spec.prompt, ids->ids, ids->n * sizeof *spec.prompt);
	stream = ig_stream_create(r->api->deps.options.client_buffer, ig_slot_wake, c->slot);
	if (!stream || (q->logprobs && ig_stream_keep_notes(stream, RING_NOTES) < 0))
		goto fail;
	spec.stream = stream; /* the engine may clear what it has taken over */
	if (r->prepared.grammar)
		spec.grammar = ig_grammar_ref(r->prepared.grammar);
	rc = ig_engine_submit(r->api->deps.engine, &spec, &c->gen, &err);
	if (rc < 0)
		goto fail;
	c->stream = stream;
	return 0;
fail:
	free(spec.prompt);
	free_stops(spec.stops);
	ig_grammar_unref(spec.grammar);
	/* The writer's reference is ours again. */
	ig_stream_unref(stream);
	ig_stream_unref(stream);
	return submit_failed(r, rc, &err, e);
}

/* A call that could not even be started ends the reply. */
static void fail_reply(struct ig_reply *r, const struct ig_api_error *e)
{
	if (!r->error.status)
		r->error = *e;
	for (uint32_t i = 0; i < r->n_calls; i++) {
		struct ig_call *c = &r->calls[i];
		if (c->finished)
			continue;
		if (c->stream)
			ig_engine_cancel(r->api->deps.engine, c->gen, "server_error");
		c->finished = true;
		c->result =
			(struct ig_gen_result){ .finish = IG_FINISH_CANCELLED, .stop_index = -1 };
	}
	r->n_finished = r->n_calls;
	r->finished = true;
	leave(r);
}

/* What it is known to take: its prompts; what it draws is charged when it ends. */
static int admit(struct ig_reply *r, struct ig_api_error *e)
{
	for (size_t i = 0; i < r->prepared.n_prompts; i++)
		r->n_charged += (int64_t)r->prepared.prompts[i].n;
	if (ig_limits_admit(r->api->limits, &r->who, r->n_charged, ig_now_ns(), e) < 0) {
		ig_api_note_refused(r->api, r->id, r->endpoint, r->client, &r->who, r->model->name,
				    r->received_ns, r->received_wall_ns, e);
		return -1;
	}
	r->admitted = true;
	return 0;
}

int ig_reply_submit(struct ig_reply *r, struct ig_api_error *e)
{
	r->submitted = true;
	r->last_output_ns = ig_now_ns();
	if (r->n_calls && admit(r, e) < 0) {
		fail_reply(r, e);
		return -1;
	}
	for (uint32_t i = 0; i < r->n_calls; i += (uint32_t)r->request.n) {
		if (!submit_call(&r->calls[i], e))
			continue;
		fail_reply(r, e);
		return -1;
	}
	return 0;
}

/* The other choices of a prompt, once the first has read it. */
static void submit_others(struct ig_reply *r)
{
	uint32_t n = (uint32_t)r->request.n;
	struct ig_api_error e;

	for (uint32_t i = 0; n > 1 && i < r->n_calls && !r->finished; i += n) {
		const struct ig_call *first = &r->calls[i];
		/* Under way already, or cancelled while they waited. */
		if (r->calls[i + 1].stream || r->calls[i + 1].finished)
			continue;
		if (!first->n_bytes && !first->finished)
			continue;
		for (uint32_t k = 1; k < n; k++)
			if (submit_call(&r->calls[i + k], &e) < 0) {
				fail_reply(r, &e);
				return;
			}
	}
}

/* ---- what comes back ------------------------------------------------------------------------ */

static struct ig_part *part_new(struct ig_call *c, enum ig_part_kind kind)
{
	static const char *const prefixes[] = {
		[IG_PART_TEXT] = "msg_",
		[IG_PART_REASONING] = "rs_",
		[IG_PART_CALL] = "fc_",
	};

	if (c->n_parts == c->cap_parts) {
		size_t cap = c->cap_parts ? c->cap_parts * 2 : 4;
		struct ig_part *p = realloc(c->parts, cap * sizeof *p);
		if (!p)
			return NULL;
		c->parts = p;
		c->cap_parts = cap;
	}
	if (c->n_parts)
		c->parts[c->n_parts - 1].done = true;
	struct ig_part *p = &c->parts[c->n_parts];
	*p = (struct ig_part){ .kind = kind };
	ig_random_id(p->id, sizeof p->id, prefixes[kind]);
	/* Mistral's templates take ids of nine characters only. */
	if (kind == IG_PART_CALL && c->reply->prepared.style.calls == IG_CALLS_MISTRAL)
		ig_random_id(p->call_id, 10, "");
	else if (kind == IG_PART_CALL)
		ig_random_id(p->call_id, sizeof p->call_id, "call_");
	c->n_parts++;
	return p;
}

struct feed {
	struct ig_call *call;
	bool last;
	bool failed;
};

static void on_event(void *ctx, const struct ig_answer_event *e)
{
	struct feed *f = ctx;
	struct ig_call *c = f->call;
	struct ig_part *p = c->n_parts ? &c->parts[c->n_parts - 1] : NULL;
	enum ig_part_kind kind = e->kind == IG_ANSWER_TEXT	? IG_PART_TEXT :
				 e->kind == IG_ANSWER_REASONING ? IG_PART_REASONING :
								  IG_PART_CALL;

	if (f->failed)
		return;
	if (e->kind == IG_ANSWER_CALL_END) {
		/* The end of all that was said ends a call, too. */
		if (p) {
			p->done = true;
			p->whole = !f->last;
		}
		return;
	}
	if (!p || p->kind != kind || p->done || e->kind == IG_ANSWER_CALL)
		p = part_new(c, kind);
	if (!p) {
		f->failed = true;
		return;
	}
	if (e->kind == IG_ANSWER_CALL) {
		p->name = strndup(e->data, e->len);
		f->failed = !p->name;
		return;
	}
	ig_strbuf_add(&p->text, e->data, e->len);
	f->failed = !ig_strbuf_ok(&p->text);
}

/* Text of the model, any cut; last: there will be no more. */
static bool feed(struct ig_call *c, const char *text, size_t len, bool last)
{
	struct feed f = { .call = c, .last = last };

	if (c->parser)
		return !ig_answer_parser_feed(c->parser, text, len, last, on_event, &f) &&
		       !f.failed;
	if (len)
		on_event(&f, &(struct ig_answer_event){ IG_ANSWER_TEXT, text, len });
	return !f.failed;
}

/* The tokens that the last feed, or those before it, were about: of a part of text, or of
 * nothing that has notes (thoughts, calls, markers). */
static void place_notes(struct ig_call *c, size_t n_parts_before, size_t len_before)
{
	struct ig_part *p = c->n_parts ? &c->parts[c->n_parts - 1] : NULL;

	if (!p || (c->n_parts == n_parts_before && p->text.len == len_before))
		return; /* held back: whose they are is not known yet */
	if (p->kind == IG_PART_TEXT) {
		/* The last tokens that so much text is of: before it there may be a marker. */
		size_t first = c->n_placed;
		for (uint64_t n = 0; n < p->text.len && first > c->first_unplaced; first--)
			n += c->notes[first - 1].text_end -
			     (first > 1 ? c->notes[first - 2].text_end : 0);
		if (!p->end_note)
			p->first_note = first;
		p->end_note = c->n_placed;
	}
	c->first_unplaced = c->n_placed;
}

/* As feed, token by token where there are notes of them. */
static bool feed_tokens(struct ig_call *c, const char *text, size_t len, bool last)
{
	do {
		size_t n = len, n_parts = c->n_parts,
		       before = n_parts ? c->parts[n_parts - 1].text.len : 0;
		while (c->n_placed < c->n_notes && c->notes[c->n_placed].text_end <= c->n_fed)
			c->n_placed++;
		if (c->n_placed < c->n_notes && c->notes[c->n_placed].text_end - c->n_fed < n)
			n = (size_t)(c->notes[c->n_placed].text_end - c->n_fed);
		if (!feed(c, text, n, last && n == len))
			return false;
		c->n_fed += n;
		text += n;
		len -= n;
		while (c->n_placed < c->n_notes && c->notes[c->n_placed].text_end <= c->n_fed)
			c->n_placed++;
		place_notes(c, n_parts, before);
	} while (len);
	/* Tokens without a text of their own end what was said last. */
	struct ig_part *p = c->n_parts ? &c->parts[c->n_parts - 1] : NULL;
	if (last && p && p->kind == IG_PART_TEXT && p->end_note)
		p->end_note = c->n_placed;
	return true;
}

static bool take_notes(struct ig_call *c)
{
	for (;;) {
		if (c->n_notes == c->cap_notes) {
			size_t cap = c->cap_notes ? c->cap_notes * 2 : 64;
			struct ig_token_note *p = realloc(c->notes, cap * sizeof *p);
			if (!p)
				return false;
			c->notes = p;
			c->cap_notes = cap;
		}
		size_t n = ig_stream_take_notes(c->stream, c->notes + c->n_notes,
						c->cap_notes - c->n_notes);
		if (!n)
			return true;
		c->n_notes += n;
	}
}

static void call_ended(struct ig_call *c)
{
	c->finished = true;
	if (c->n_parts)
		c->parts[c->n_parts - 1].done = true;
	c->reply->n_finished++;
}

static void call_take(struct ig_call *c, size_t cap)
{
	struct ig_reply *r = c->reply;
	char piece[4096];
	size_t taken = 0, n_notes = c->n_notes, n;
	bool ok = true;

	if (c->finished || !c->stream)
		return;
	while (ok && taken < cap) {
		n = ig_stream_take(c->stream, piece,
				   cap - taken < sizeof piece ? cap - taken : sizeof piece);
		if (!n)
			break;
		taken += n;
		ok = (!r->request.logprobs || take_notes(c)) && feed_tokens(c, piece, n, false);
	}
	c->n_bytes += taken;
	if (ok && r->request.logprobs)
		ok = take_notes(c);
	bool end = ok && ig_stream_finished(c->stream, &c->result);
	if (end)
		ok = feed_tokens(c, "", 0, true);
	if (!ok) {
		ig_engine_cancel(r->api->deps.engine, c->gen, "server_error");
		c->result = (struct ig_gen_result){ .finish = IG_FINISH_ERROR, .stop_index = -1 };
		ig_fail(&c->result.error, -ENOMEM, "The server is out of memory.");
		end = true;
	}
	if (end)
		call_ended(c);
	else if (taken || c->n_notes > n_notes)
		ig_engine_resume(r->api->deps.engine, c->gen);
}

void ig_reply_take(struct ig_reply *r, size_t cap)
{
	if (r->finished)
		return;
	for (uint32_t i = 0; i < r->n_calls; i++)
		call_take(&r->calls[i], cap);
	submit_others(r);
	if (r->finished || r->n_finished < r->n_calls)
		return;
	r->finished = true;
	for (uint32_t i = 0; i < r->n_calls && !r->error.status; i++)
		ig_result_error(&r->calls[i].result, &r->error);
	leave(r);
}

void ig_reply_cancel(struct ig_reply *r, const char *reason)
{
	struct ig_api_error e;

	if (r->finished)
		return;
	for (uint32_t i = 0; i < r->n_calls; i++) {
		struct ig_call *c = &r->calls[i];
		if (c->finished)
			continue;
		if (c->stream) {
			ig_engine_cancel(r->api->deps.engine, c->gen, reason);
			continue;
		}
		/* a choice that waits for the first, or the whole before its turn */
		c->result =
			(struct ig_gen_result){ .finish = IG_FINISH_CANCELLED, .stop_index = -1 };
		snprintf(c->result.cancel_reason, sizeof c->result.cancel_reason, "%s", reason);
		call_ended(c);
	}
	if (r->submitted)
		return;
	ig_api_fail(&e, 499, "invalid_request_error", NULL, NULL, "cancelled before it ran (%s)",
		    reason);
	ig_api_note_refused(r->api, r->id, r->endpoint, r->client, &r->who, r->model->name,
			    r->received_ns, r->received_wall_ns, &e);
	r->finished = true;
	if (r->n_calls)
		ig_result_error(&r->calls[0].result, &r->error);
}

void ig_reply_usage(const struct ig_reply *r, struct ig_usage *u)
{
	*u = (struct ig_usage){ 0 };
	for (uint32_t i = 0; i < r->n_calls; i++) {
		const struct ig_gen_result *g = &r->calls[i].result;
		u->output += g->n_output;
		/* A prompt is one, however many answers it has. */
		if (i % (uint32_t)r->request.n)
			continue;
		u->prompt += g->n_prompt;
		u->cached += g->n_cached;
	}
}

void ig_reply_wrote(struct ig_reply *r)
{
	r->keepalive = false;
	r->last_output_ns = ig_now_ns();
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
