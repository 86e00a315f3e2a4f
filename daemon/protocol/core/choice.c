/* choice.c: a choice's generation: submits it to the engine and takes its output.  The loop
 * thread's. */
#include "daemon/protocol/core/choice.h"

#include "base/array.h"
#include "daemon/protocol/core/cache_report.h"
#include "daemon/protocol/core/ids.h"
#include "daemon/protocol/core/reply.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Logprobs that a stream holds; a full ring pauses its sequence. */
#define RING_LOGPROBS 256

static void woken(void *ctx)
{
	struct ig_reply *r = ((struct ig_choice *)ctx)->reply;

	r->owner->news(r->owner_ctx, r);
}

int ig_choice_init(struct ig_choice *c, struct ig_reply *r, uint32_t index)
{
	const struct ig_request *q = &r->request;

	*c = (struct ig_choice){ .reply = r, .index = index };
	c->wake = ig_wake_get(&r->api->wakes, woken, c);
	if (!c->wake)
		return -1;
	if (!q->messages)
		return 0;
	c->parser = ig_completion_parser_create(
		&r->prepared.style, q->tools && q->tool_choice != IG_TOOLS_NONE, q->tools);
	return c->parser ? 0 : -1;
}

void ig_choice_finish(struct ig_choice *c)
{
	if (c->stream && !c->finished)
		ig_engine_cancel(c->reply->api->deps.engine, c->gen, "client_gone");
	if (c->wake)
		ig_wake_put(c->wake);
	ig_stream_unref(c->stream);
	ig_vectors_unref(c->vectors);
	ig_completion_parser_destroy(c->parser);
	ig_parts_finish(c);
	free(c->logprobs);
}

/* ---- to the engine ------------------------------------------------------------------------ */

static int submit_failed(const struct ig_reply *r, int rc, const struct ig_error *err,
			 struct ig_api_error *e)
{
	uint32_t retry_after_s = r->api->deps.options.retry_after_s;

	switch (rc) {
	case -EAGAIN:
		return ig_fail_overloaded(e, retry_after_s,
					  err->text[0] ? err->text :
							 "Too many requests are waiting.");
	case -ESHUTDOWN: return ig_fail_shutting_down(e, retry_after_s);
	case -E2BIG:
		return ig_api_fail(e, 400, "context_length_exceeded", r->protocol->prompt_param,
				   "This model's maximum context length is exceeded: %s.",
				   err->text);
	case -ENOMEM: return ig_fail_memory(e);
	case -ETIME: return ig_fail_deadline(e, err->text);
	default:
		return ig_api_fail(e, 500, "server_error", NULL, "%s",
				   err->text[0] ? err->text : "The request could not be started.");
	}
}

int ig_choice_submit(struct ig_choice *c, struct ig_api_error *e)
{
	struct ig_reply *r = c->reply;
	const struct ig_request *q = &r->request;
	const struct ig_ids *ids = &r->prepared.prompts[c->index / (uint32_t)q->n];
	struct ig_error err = { 0 };
	struct ig_gen_spec spec = {
		.origin = r->origin,
		.model = r->prepared.model,
		.prompt = ids->ids,
		.n_prompt = (int32_t)ids->n,
		.sampling = q->sampling,
		.grammar = r->prepared.grammar,
		.n_top = q->logprobs ? q->n_top : -1,
		.n_shown = r->prepared.n_shown,
		.priority = ig_reply_priority(r),
		.deadline_ns = ig_reply_deadline_ns(r),
		.prefill_only = q->warm_up,
		.wants_report = ig_wants_cache_report(q),
		.stream = ig_stream_create(r->api->deps.options.client_buffer, ig_wake_signal,
					   c->wake),
	};
	int rc = -ENOMEM;

	if (r->prepared.texts) {
		c->vectors = ig_vectors_create((uint32_t)r->prepared.n_texts,
					       r->prepared.model->n_results);
		spec.texts = r->prepared.texts;
		spec.n_texts = (int32_t)r->prepared.n_texts;
		spec.vectors = c->vectors;
	}
	if (r->prepared.prediction) {
		spec.predicted = r->prepared.prediction->ids;
		spec.n_predicted = (int32_t)r->prepared.prediction->n;
	}
	if (q->compare_id)
		snprintf(spec.compare_with, sizeof spec.compare_with, "%s", q->compare_id);
	if (!q->has_seed)
		spec.sampling.seed = ig_random_seed();
	/* choices differ, and each can be reproduced alone */
	spec.sampling.seed += c->index % (uint32_t)q->n;
	memcpy(spec.shown, r->prepared.shown, sizeof spec.shown);
	if (r->n_choices > 1)
		snprintf(spec.id, sizeof spec.id, "%.52s-%u", r->id, c->index);
	else
		snprintf(spec.id, sizeof spec.id, "%s", r->id);
	if (spec.stream && !(r->prepared.texts && !c->vectors) &&
	    !(q->logprobs && ig_stream_enable_logprobs(spec.stream, RING_LOGPROBS) < 0))
		rc = ig_engine_submit(r->api->deps.engine, &spec, &c->gen, &err);
	if (!rc) {
		c->stream = spec.stream;
		memcpy(c->id, spec.id, sizeof c->id);
		return 0;
	}
	/* The engine did not take the writer's reference. */
	ig_stream_unref(spec.stream);
	ig_stream_unref(spec.stream);
	return submit_failed(r, rc, &err, e);
}

/* ---- output ------------------------------------------------------------------------ */

static bool take_logprobs(struct ig_choice *c)
{
	for (;;) {
		if (!ig_array_grow(c->logprobs, &c->cap_logprobs, c->n_logprobs))
			return false;
		size_t n = ig_stream_take_logprobs(c->stream, c->logprobs + c->n_logprobs,
						   c->cap_logprobs - c->n_logprobs);
		if (!n)
			return true;
		c->n_logprobs += n;
	}
}

static void ended(struct ig_choice *c)
{
	c->finished = true;
	if (c->n_parts)
		c->parts[c->n_parts - 1].done = true;
	c->reply->n_finished++;
}

/* A call that could not be read is text, and no error of the request. */
static void note_problem(const struct ig_choice *c)
{
	const char *problem = c->parser ? ig_completion_parser_problem(c->parser) : NULL;
	char text[200];

	if (!problem)
		return;
	snprintf(text, sizeof text, "a tool call could not be read: %s", problem);
	ig_engine_record_note(c->reply->api->deps.engine, c->id, text);
}

void ig_choice_take(struct ig_choice *c, size_t cap)
{
	struct ig_reply *r = c->reply;
	char piece[4096];
	size_t taken = 0, n_logprobs = c->n_logprobs, n;
	bool ok = true;

	if (c->finished || !c->stream)
		return;
	while (ok && taken < cap) {
		n = ig_stream_take(c->stream, piece,
				   cap - taken < sizeof piece ? cap - taken : sizeof piece);
		if (!n)
			break;
		taken += n;
		ok = (!r->request.logprobs || take_logprobs(c)) &&
		     ig_choice_feed(c, piece, n, false);
	}
	c->n_bytes += taken;
	if (ok && r->request.logprobs)
		ok = take_logprobs(c);
	bool end = ok && ig_stream_finished(c->stream, &c->result);
	if (end)
		ok = ig_choice_feed(c, "", 0, true);
	if (!ok) {
		ig_engine_cancel(r->api->deps.engine, c->gen, "server_error");
		c->result = (struct ig_gen_result){ .finish = IG_FINISH_ERROR, .stop_index = -1 };
		ig_fail(&c->result.error, -ENOMEM, IG_OUT_OF_MEMORY);
		end = true;
	}
	if (end) {
		note_problem(c);
		ended(c);
	} else if (taken || c->n_logprobs > n_logprobs)
		ig_engine_resume(r->api->deps.engine, c->gen);
}

void ig_choice_cancel(struct ig_choice *c, const char *reason)
{
	if (c->finished)
		return;
	if (c->stream) {
		ig_engine_cancel(c->reply->api->deps.engine, c->gen, reason);
		return;
	}
	c->result = (struct ig_gen_result){ .finish = IG_FINISH_CANCELLED, .stop_index = -1 };
	snprintf(c->result.cancel_reason, sizeof c->result.cancel_reason, "%s", reason);
	ended(c);
}
