/*
 * messages_writer.c: the answers of Anthropic's /v1/messages: a message of blocks, whole or as
 * events, and its errors; count_tokens.
 */
#include "daemon/protocol/core/reply.h"
#include "daemon/protocol/core/sse.h"
#include "daemon/protocol/messages/messages.h"

#include <errno.h>
#include <string.h>

#define MAX_DELTA 4096

enum { STAGE_START, STAGE_BLOCKS, STAGE_END };

/* ---- pieces ---------------------------------------------------------------------------- */

static const char *error_type(int status)
{
	switch (status) {
	case 401: return "authentication_error";
	case 403: return "permission_error";
	case 404: return "not_found_error";
	case 413: return "request_too_large";
	case 429: return "rate_limit_error";
	case 503: return "overloaded_error";
	default: return status >= 500 ? "api_error" : "invalid_request_error";
	}
}

static void error(struct ig_strbuf *out, const struct ig_api_error *e)
{
	struct ig_json_writer w = { .out = out };

	ig_json_open_object(&w, NULL);
	ig_json_put_text(&w, "type", "error");
	ig_json_open_object(&w, "error");
	ig_json_put_text(&w, "type", error_type(e->status));
	ig_error_message(&w, e);
	ig_json_close_object(&w);
	ig_json_close_object(&w);
}

/* Tokens that were found again are counted apart from input_tokens. */
static void usage(const struct ig_reply *r, struct ig_json_writer *w)
{
	struct ig_usage u;

	ig_reply_usage(r, &u);
	if (!r->finished) /* how much of it will be found is not known yet */
		u = (struct ig_usage){ .prompt = (int64_t)r->prepared.prompts[0].n };
	ig_json_open_object(w, "usage");
	ig_json_put_int(w, "input_tokens", u.prompt - u.cached);
	ig_json_put_int(w, "cache_creation_input_tokens", 0);
	ig_json_put_int(w, "cache_read_input_tokens", u.cached);
	ig_json_put_int(w, "output_tokens", u.output);
	ig_json_close_object(w);
}

static void stop(const struct ig_reply *r, struct ig_json_writer *w)
{
	const struct ig_choice *c = &r->choices[0];
	const char *reason = c->result.finish == IG_FINISH_LENGTH ? "max_tokens" :
			     c->result.stop_index >= 0		  ? "stop_sequence" :
								    "end_turn";

	for (size_t i = 0; i < c->n_parts && c->result.finish == IG_FINISH_STOP; i++)
		if (c->parts[i].kind == IG_PART_TOOL_CALL)
			reason = "tool_use";
	ig_json_put_text(w, "stop_reason", reason);
	ig_json_put_text(w, "stop_sequence",
			 !strcmp(reason, "stop_sequence") ?
				 r->request.sampling.stops[c->result.stop_index] :
				 NULL);
}

/* A call's arguments, which must be an object here.  What the model wrote and is none
 * stands in a member of its own. */
static void input(const struct ig_part *p, struct ig_json_writer *w)
{
	const char *text = p->text.len ? p->text.data : "{}";
	json_t *v;

	if (ig_json_read(text, strlen(text), NULL, &v, NULL) == -ENOMEM)
		w->out->failed = true;
	if (json_is_object(v)) {
		ig_json_put_value(w, "input", v);
	} else {
		ig_json_open_object(w, "input");
		ig_json_put_text(w, "invalid_json", text);
		ig_json_close_object(w);
	}
	json_decref(v);
}

/* whole: with what it holds; else as a block begins. */
static void block(const struct ig_part *p, const char *key, bool whole, struct ig_json_writer *w)
{
	size_t len = whole ? p->text.len : 0;

	ig_json_open_object(w, key);
	switch (p->kind) {
	case IG_PART_TEXT:
		ig_json_put_text(w, "type", "text");
		ig_json_put_string(w, "text", len ? p->text.data : "", len);
		ig_json_put_raw(w, "citations", NULL);
		break;
	case IG_PART_REASONING:
		ig_json_put_text(w, "type", "thinking");
		ig_json_put_string(w, "thinking", len ? p->text.data : "", len);
		ig_json_put_text(w, "signature", "");
		break;
	case IG_PART_TOOL_CALL:
		ig_json_put_text(w, "type", "tool_use");
		ig_json_put_text(w, "id", p->call_id);
		ig_json_put_text(w, "name", p->name);
		if (whole)
			input(p, w);
		else
			ig_json_put_raw(w, "input", "{}");
		break;
	}
	ig_json_close_object(w);
}

/* Up to its content; the caller closes it. */
static void message_begin(struct ig_reply *r, const char *key, struct ig_json_writer *w)
{
	ig_json_open_object(w, key);
	ig_json_put_text(w, "id", r->id);
	ig_json_put_text(w, "type", "message");
	ig_json_put_text(w, "role", "assistant");
	ig_json_put_text(w, "model", ig_reply_model_name(r));
}

/* ---- a stream --------------------------------------------------------------------------- */

static void event(struct ig_json_writer *w, const char *type)
{
	ig_sse_begin(w->out, type);
	ig_json_open_object(w, NULL);
	ig_json_put_text(w, "type", type);
}

static void event_end(struct ig_json_writer *w)
{
	ig_json_close_object(w);
	ig_sse_end(w->out);
	w->comma = false;
}

static void delta(struct ig_choice *c, const struct ig_part *p, struct ig_json_writer *w)
{
	static const char *const names[][2] = {
		[IG_PART_TEXT] = { "text_delta", "text" },
		[IG_PART_REASONING] = { "thinking_delta", "thinking" },
		[IG_PART_TOOL_CALL] = { "input_json_delta", "partial_json" },
	};

	event(w, "content_block_delta");
	ig_json_put_uint(w, "index", c->part);
	ig_json_open_object(w, "delta");
	ig_json_put_text(w, "type", names[p->kind][0]);
	ig_json_put_string(w, names[p->kind][1], p->text.data + c->n_sent, p->text.len - c->n_sent);
	ig_json_close_object(w);
	event_end(w);
	c->n_sent = p->text.len;
}

/* What is new; c->stage counts the blocks that were begun. */
static void blocks(struct ig_choice *c, struct ig_json_writer *w)
{
	while (c->part < c->n_parts) {
		const struct ig_part *p = &c->parts[c->part];
		if ((size_t)c->stage <= c->part) {
			event(w, "content_block_start");
			ig_json_put_uint(w, "index", c->part);
			block(p, "content_block", false, w);
			event_end(w);
			c->stage = (int)c->part + 1;
		}
		if (p->text.len > c->n_sent)
			delta(c, p, w);
		if (!p->done)
			return;
		event(w, "content_block_stop");
		ig_json_put_uint(w, "index", c->part);
		event_end(w);
		c->part++;
		c->n_sent = 0;
	}
}

static void end(struct ig_reply *r, struct ig_json_writer *w)
{
	r->stage = STAGE_END;
	if (r->error.status) {
		ig_sse_begin(w->out, "error");
		error(w->out, &r->error);
		ig_sse_end(w->out);
		return;
	}
	event(w, "message_delta");
	ig_json_open_object(w, "delta");
	stop(r, w);
	ig_json_close_object(w);
	usage(r, w);
	event_end(w);
	event(w, "message_stop");
	event_end(w);
}

static void ping(struct ig_json_writer *w)
{
	event(w, "ping");
	event_end(w);
}

static bool write_wait(struct ig_reply *r, struct ig_strbuf *out)
{
	ping(&(struct ig_json_writer){ .out = out });
	return false;
}

static void start_message(struct ig_reply *r, struct ig_json_writer *w)
{
	event(w, "message_start");
	message_begin(r, "message", w);
	ig_json_put_raw(w, "content", "[]");
	ig_json_put_raw(w, "stop_reason", NULL);
	ig_json_put_raw(w, "stop_sequence", NULL);
	usage(r, w);
	ig_json_close_object(w);
	event_end(w);
	r->stage = STAGE_BLOCKS;
}

static bool next(struct ig_reply *r, struct ig_strbuf *out, bool *last)
{
	struct ig_json_writer w = { .out = out };
	size_t start = out->len;

	if (r->stage == STAGE_START && !r->n_choices) {
		end(r, &w); /* it has failed before anything could be said */
	} else if (r->stage == STAGE_START) {
		start_message(r, &w);
	} else if (r->stage == STAGE_BLOCKS) {
		ig_reply_take(r, MAX_DELTA);
		blocks(&r->choices[0], &w);
		if (r->finished)
			end(r, &w);
		else if (out->len == start && r->keepalive)
			ping(&w);
	}
	*last = r->stage == STAGE_END;
	if (out->len > start)
		ig_reply_wrote(r);
	return out->len > start;
}

/* ---- whole ------------------------------------------------------------------------------- */

static void whole(struct ig_reply *r, struct ig_strbuf *out)
{
	const struct ig_choice *c = &r->choices[0];
	struct ig_json_writer w = { .out = out };

	message_begin(r, NULL, &w);
	ig_json_open_array(&w, "content");
	for (size_t i = 0; i < c->n_parts; i++)
		block(&c->parts[i], NULL, true, &w);
	ig_json_close_array(&w);
	stop(r, &w);
	usage(r, &w);
	ig_json_close_object(&w);
}

static void count(struct ig_reply *r, struct ig_strbuf *out)
{
	struct ig_json_writer w = { .out = out };

	ig_json_open_object(&w, NULL);
	ig_json_put_uint(&w, "input_tokens", r->prepared.prompts[0].n);
	ig_json_close_object(&w);
}

const struct ig_protocol ig_messages_protocol = {
	.id_prefix = "msg_",
	.prompt_param = "messages",
	.form_param = "output_config.format",
	.parse = ig_request_parse_messages,
	.next = next,
	.whole = whole,
	.wait = write_wait,
	.error = error,
};

const struct ig_protocol ig_count_protocol = {
	.id_prefix = "count_",
	.prompt_param = "messages",
	.parse = ig_request_parse_count,
	.whole = count,
	.error = error,
	.immediate = true,
};
