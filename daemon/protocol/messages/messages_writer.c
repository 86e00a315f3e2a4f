/*
 * messages_writer.c: the answers of Anthropic's /v1/messages: a message of blocks, whole or as
 * events, and its errors; count_tokens.
 */
#include "daemon/protocol/core/json_text.h"
#include "daemon/protocol/core/reply.h"
#include "daemon/protocol/core/sse.h"
#include "daemon/protocol/messages/messages.h"

#include <string.h>

#define MAX_DELTA 4096

enum { STAGE_START, STAGE_BLOCKS, STAGE_END };

/* ---- pieces ---------------------------------------------------------------------------- */

static const char *error_type(int status)
{
	switch (status) {
	case 401:
		return "authentication_error";
	case 403:
		return "permission_error";
	case 404:
		return "not_found_error";
	case 413:
		return "request_too_large";
	case 429:
		return "rate_limit_error";
	case 503:
		return "overloaded_error";
	default:
		return status >= 500 ? "api_error" : "invalid_request_error";
	}
}

static void error(struct ig_strbuf *out, const struct ig_api_error *e)
{
	ig_strbuf_printf(out, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":",
			 error_type(e->status));
	ig_error_message(out, e);
	ig_strbuf_puts(out, "}}");
}

/* Tokens that were found again are counted apart from input_tokens. */
static void usage(const struct ig_reply *r, struct ig_strbuf *out)
{
	struct ig_usage u;

	ig_reply_usage(r, &u);
	if (!r->finished) /* how much of it will be found is not known yet */
		u = (struct ig_usage){ .prompt = (int64_t)r->prepared.prompts[0].n };
	ig_strbuf_printf(out,
			 "{\"input_tokens\":%lld,\"cache_creation_input_tokens\":0,"
			 "\"cache_read_input_tokens\":%lld,\"output_tokens\":%lld}",
			 (long long)(u.prompt - u.cached), (long long)u.cached,
			 (long long)u.output);
}

static void stop(const struct ig_reply *r, struct ig_strbuf *out)
{
	const struct ig_choice *c = &r->choices[0];
	const char *reason = c->result.finish == IG_FINISH_LENGTH ? "max_tokens" :
			     c->result.stop_index >= 0		  ? "stop_sequence" :
								    "end_turn";

	for (size_t i = 0; i < c->n_parts && c->result.finish == IG_FINISH_STOP; i++)
		if (c->parts[i].kind == IG_PART_CALL)
			reason = "tool_use";
	ig_strbuf_printf(out, "\"stop_reason\":\"%s\",\"stop_sequence\":", reason);
	ig_json_text(out, !strcmp(reason, "stop_sequence") ?
				  r->request.sampling.stops[c->result.stop_index] :
				  NULL);
}

/* A call's arguments, which must be an object here.  What the model wrote and is none
 * stands in a member of its own. */
static void input(const struct ig_part *p, struct ig_strbuf *out)
{
	const char *text = p->text.len ? p->text.data : "{}";
	json_t *v = json_loads(text, JSON_REJECT_DUPLICATES, NULL);

	if (json_is_object(v)) {
		ig_json_value(out, v);
	} else {
		ig_strbuf_puts(out, "{\"invalid_json\":");
		ig_json_text(out, text);
		ig_strbuf_puts(out, "}");
	}
	json_decref(v);
}

/* whole: with what it holds; else as a block begins. */
static void block(const struct ig_part *p, struct ig_strbuf *out, bool whole)
{
	size_t len = whole ? p->text.len : 0;

	switch (p->kind) {
	case IG_PART_TEXT:
		ig_strbuf_puts(out, "{\"type\":\"text\",\"text\":");
		ig_strbuf_json(out, len ? p->text.data : "", len);
		ig_strbuf_puts(out, ",\"citations\":null}");
		return;
	case IG_PART_REASONING:
		ig_strbuf_puts(out, "{\"type\":\"thinking\",\"thinking\":");
		ig_strbuf_json(out, len ? p->text.data : "", len);
		ig_strbuf_puts(out, ",\"signature\":\"\"}");
		return;
	case IG_PART_CALL:
		ig_strbuf_printf(out, "{\"type\":\"tool_use\",\"id\":\"%s\",\"name\":", p->call_id);
		ig_json_text(out, p->name);
		ig_strbuf_puts(out, ",\"input\":");
		if (whole)
			input(p, out);
		else
			ig_strbuf_puts(out, "{}");
		ig_strbuf_puts(out, "}");
		return;
	}
}

static void message_begin(struct ig_reply *r, struct ig_strbuf *out)
{
	ig_strbuf_printf(
		out,
		"{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":", r->id);
	ig_json_text(out, ig_reply_model_name(r));
	ig_strbuf_puts(out, ",\"content\":[");
}

/* ---- a stream --------------------------------------------------------------------------- */

static void event(struct ig_strbuf *out, const char *type)
{
	ig_sse_begin(out, type);
	ig_strbuf_printf(out, "{\"type\":\"%s\"", type);
}

static void event_end(struct ig_strbuf *out)
{
	ig_strbuf_puts(out, "}");
	ig_sse_end(out);
}

static void delta(struct ig_choice *c, const struct ig_part *p, struct ig_strbuf *out)
{
	static const char *const names[][2] = {
		[IG_PART_TEXT] = { "text_delta", "text" },
		[IG_PART_REASONING] = { "thinking_delta", "thinking" },
		[IG_PART_CALL] = { "input_json_delta", "partial_json" },
	};

	event(out, "content_block_delta");
	ig_strbuf_printf(out, ",\"index\":%zu,\"delta\":{\"type\":\"%s\",\"%s\":", c->part,
			 names[p->kind][0], names[p->kind][1]);
	ig_strbuf_json(out, p->text.data + c->n_sent, p->text.len - c->n_sent);
	ig_strbuf_puts(out, "}");
	event_end(out);
	c->n_sent = p->text.len;
}

/* What is new; c->stage counts the blocks that were begun. */
static void blocks(struct ig_choice *c, struct ig_strbuf *out)
{
	while (c->part < c->n_parts) {
		const struct ig_part *p = &c->parts[c->part];
		if ((size_t)c->stage <= c->part) {
			event(out, "content_block_start");
			ig_strbuf_printf(out, ",\"index\":%zu,\"content_block\":", c->part);
			block(p, out, false);
			event_end(out);
			c->stage = (int)c->part + 1;
		}
		if (p->text.len > c->n_sent)
			delta(c, p, out);
		if (!p->done)
			return;
		event(out, "content_block_stop");
		ig_strbuf_printf(out, ",\"index\":%zu", c->part);
		event_end(out);
		c->part++;
		c->n_sent = 0;
	}
}

static void end(struct ig_reply *r, struct ig_strbuf *out)
{
	r->stage = STAGE_END;
	if (r->error.status) {
		ig_sse_begin(out, "error");
		error(out, &r->error);
		ig_sse_end(out);
		return;
	}
	event(out, "message_delta");
	ig_strbuf_puts(out, ",\"delta\":{");
	stop(r, out);
	ig_strbuf_puts(out, "},\"usage\":");
	usage(r, out);
	event_end(out);
	event(out, "message_stop");
	event_end(out);
}

static bool write_wait(struct ig_reply *r, struct ig_strbuf *out)
{
	event(out, "ping");
	event_end(out);
	return false;
}

static bool next(struct ig_reply *r, struct ig_strbuf *out, bool *last)
{
	size_t start = out->len;

	if (r->stage == STAGE_START && !r->n_choices) {
		end(r, out); /* it has failed before anything could be said */
	} else if (r->stage == STAGE_START) {
		event(out, "message_start");
		ig_strbuf_puts(out, ",\"message\":");
		message_begin(r, out);
		ig_strbuf_puts(out, "],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":");
		usage(r, out);
		ig_strbuf_puts(out, "}");
		event_end(out);
		r->stage = STAGE_BLOCKS;
	} else if (r->stage == STAGE_BLOCKS) {
		ig_reply_take(r, MAX_DELTA);
		blocks(&r->choices[0], out);
		if (r->finished) {
			end(r, out);
		} else if (out->len == start && r->keepalive) {
			write_wait(r, out);
		}
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

	message_begin(r, out);
	for (size_t i = 0; i < c->n_parts; i++) {
		if (i)
			ig_strbuf_puts(out, ",");
		block(&c->parts[i], out, true);
	}
	ig_strbuf_puts(out, "],");
	stop(r, out);
	ig_strbuf_puts(out, ",\"usage\":");
	usage(r, out);
	ig_strbuf_puts(out, "}");
}

static void count(struct ig_reply *r, struct ig_strbuf *out)
{
	ig_strbuf_printf(out, "{\"input_tokens\":%zu}", r->prepared.prompts[0].n);
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
