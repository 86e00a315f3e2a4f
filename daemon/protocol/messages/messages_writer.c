/* messages_writer.c: the responses of Anthropic's /v1/messages: a message of blocks, whole or as
 * events, and its errors; count_tokens. */
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
	case 504: return "timeout_error";
	default: return status >= 500 ? "api_error" : "invalid_request_error";
	}
}

static void error(struct ig_strbuf *out, const struct ig_api_error *e)
{
	struct ig_json_writer w = { .out = out };

	ig_json_putf(&w, "{'type': 'error', 'error': {'type': %s", error_type(e->status));
	ig_error_message(&w, e);
	ig_json_putf(&w, "}}");
}

/* Tokens of the prompt that the cache had; -1: the request was not admitted yet. */
static int32_t n_cached(const struct ig_reply *r)
{
	const struct ig_stream *s = r->choices[0].stream;

	return s ? ig_stream_n_cached(s) : -1;
}

/* Cached tokens are not included in input_tokens. */
static void usage(const struct ig_reply *r, struct ig_json_writer *w)
{
	struct ig_usage u;

	ig_reply_usage(r, &u);
	if (!r->finished)
		u = (struct ig_usage){ .prompt = (long long)r->prepared.prompts[0].n,
				       .cached = n_cached(r) };
	if (r->request.stream && r->stage == STAGE_START)
		u.output = 0;
	ig_json_putf(w,
		     "'usage': {'input_tokens': %lld, 'cache_creation_input_tokens': 0, "
		     "'cache_read_input_tokens': %lld, 'output_tokens': %lld}",
		     u.prompt - u.cached, u.cached, u.output);
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
	ig_json_putf(w, "'stop_reason': %s, 'stop_sequence': %s", reason,
		     !strcmp(reason, "stop_sequence") ?
			     r->request.sampling.stops[c->result.stop_index] :
			     NULL);
}

/* The client sends it back as it is.  It has the thinking that the client does not want to see. */
static void signature(const struct ig_reply *r, const struct ig_part *p, struct ig_json_writer *w)
{
	struct ig_strbuf b = { 0 };

	ig_strbuf_puts(&b, r->request.omits_reasoning ? IG_OMITTED_THINKING : p->id);
	if (r->request.omits_reasoning)
		ig_strbuf_add(&b, p->text.data, p->text.len);
	ig_json_put_string(w, "signature", ig_strbuf_text(&b), b.len);
	w->out->failed |= b.failed;
	ig_strbuf_finish(&b);
}

static bool is_omitted(const struct ig_reply *r, const struct ig_part *p)
{
	return p->kind == IG_PART_REASONING && r->request.omits_reasoning;
}

/* whole: with its content; else empty, as a block starts. */
static void block(const struct ig_reply *r, const struct ig_part *p, const char *key, bool whole,
		  struct ig_json_writer *w)
{
	size_t len = whole && !is_omitted(r, p) ? p->text.len : 0;

	ig_json_open_object(w, key);
	if (p->kind == IG_PART_TOOL_CALL) {
		ig_json_putf(w, "'type': 'tool_use', 'id': %s, 'name': %s", p->call_id, p->name);
		if (whole)
			ig_part_put_arguments(p, "input", w);
		else
			ig_json_putf(w, "'input': {}");
	} else {
		bool text = p->kind == IG_PART_TEXT;
		ig_json_putf(w,
			     text ? "'type': 'text', 'text':" : "'type': 'thinking', 'thinking':");
		ig_json_put_string(w, NULL, len ? p->text.data : "", len);
		if (!text && whole)
			signature(r, p, w);
		else
			ig_json_putf(w, text ? "'citations': null" : "'signature': ''");
	}
	ig_json_close_object(w);
}

/* The members before content; the caller closes it. */
static void message_begin(struct ig_reply *r, const char *key, struct ig_json_writer *w)
{
	ig_json_open_object(w, key);
	ig_json_putf(w, "'id': %s, 'type': 'message', 'role': 'assistant', 'model': %s", r->id,
		     ig_reply_model_name(r));
}

/* ---- a stream --------------------------------------------------------------------------- */

static void event(struct ig_json_writer *w, const char *type)
{
	ig_sse_begin(w->out, type);
	ig_json_putf(w, "{'type': %s", type);
}

static void event_end(struct ig_json_writer *w)
{
	ig_json_close_object(w);
	ig_sse_end(w->out);
	w->comma = false;
}

static void delta_begin(struct ig_json_writer *w, const struct ig_choice *c, const char *type)
{
	event(w, "content_block_delta");
	ig_json_putf(w, "'index': %zu, 'delta': {'type': %s", c->part, type);
}

static void delta_end(struct ig_json_writer *w)
{
	ig_json_close_object(w);
	event_end(w);
}

static void delta(struct ig_choice *c, const struct ig_part *p, struct ig_json_writer *w)
{
	static const char *const names[][2] = {
		[IG_PART_TEXT] = { "text_delta", "text" },
		[IG_PART_REASONING] = { "thinking_delta", "thinking" },
		[IG_PART_TOOL_CALL] = { "input_json_delta", "partial_json" },
	};

	delta_begin(w, c, names[p->kind][0]);
	ig_json_put_string(w, names[p->kind][1], p->text.data + c->n_sent, p->text.len - c->n_sent);
	delta_end(w);
	c->n_sent = p->text.len;
}

/* The new parts; c->stage is the number of blocks that were started. */
static void blocks(struct ig_choice *c, struct ig_json_writer *w)
{
	while (c->part < c->n_parts) {
		const struct ig_part *p = &c->parts[c->part];
		if ((size_t)c->stage <= c->part) {
			event(w, "content_block_start");
			ig_json_put_uint(w, "index", c->part);
			block(c->reply, p, "content_block", false, w);
			event_end(w);
			c->stage = (int)c->part + 1;
		}
		if (p->text.len > c->n_sent && !is_omitted(c->reply, p))
			delta(c, p, w);
		if (!p->done)
			return;
		if (p->kind == IG_PART_REASONING) {
			delta_begin(w, c, "signature_delta");
			signature(c->reply, p, w);
			delta_end(w);
		}
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
	ig_json_putf(w, "'content': [], 'stop_reason': null, 'stop_sequence': null");
	usage(r, w);
	ig_json_close_object(w);
	event_end(w);
	r->stage = STAGE_BLOCKS;
}

/* The first event has the usage: it waits until the cache was asked, and pings meanwhile. */
static void open_message(struct ig_reply *r, struct ig_json_writer *w)
{
	if (n_cached(r) < 0)
		ig_reply_take(r, MAX_DELTA); /* it may have ended */
	if (n_cached(r) >= 0 || (r->finished && !r->error.status))
		start_message(r, w);
	else if (r->finished)
		end(r, w); /* it failed before it started */
	else if (r->keepalive)
		ping(w);
}

static bool next(struct ig_reply *r, struct ig_strbuf *out, bool *last)
{
	struct ig_json_writer w = { .out = out };
	size_t start = out->len;

	if (r->stage == STAGE_START) {
		open_message(r, &w);
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
		block(r, &c->parts[i], NULL, true, &w);
	ig_json_close_array(&w);
	stop(r, &w);
	usage(r, &w);
	ig_json_close_object(&w);
}

static void count(struct ig_reply *r, struct ig_strbuf *out)
{
	struct ig_json_writer w = { .out = out };

	ig_json_putf(&w, "{'input_tokens': %zu}", r->prepared.prompts[0].n);
}

/* ---- errors of length ------------------------------------------------------------------- */

/* A smaller max_tokens is accepted as it is; a larger one if at least so much of the context is
 * left, or MAX_RESERVE tokens. */
#define RESERVE(context) ((context) / 16)
#define MAX_RESERVE 4096

/* Clients compact a conversation by these words. */
static int fail_length(struct ig_api_error *e, size_t n, size_t max)
{
	return ig_api_fail(e, 400, "context_length_exceeded", "messages",
			   "prompt is too long: %zu tokens > %zu maximum", n, max);
}

/* max_tokens is a limit, so the output may be shorter where the context ends.  An answer that could
 * be a few words only is refused: by these words clients reduce max_tokens, or compact. */
static int check_room(const struct ig_request *q, size_t n, size_t context, struct ig_api_error *e)
{
	size_t want = (size_t)q->sampling.max_tokens, left = context - n;
	size_t reserve = RESERVE(context) < MAX_RESERVE ? RESERVE(context) : MAX_RESERVE;

	if (want <= left || left >= reserve)
		return 0;
	return ig_api_fail(e, 400, "context_length_exceeded", "max_tokens",
			   "input length and `max_tokens` exceed context limit: %zu + %zu > %zu, "
			   "decrease input length or `max_tokens` and try again (prompt is too "
			   "long: %zu tokens > %zu maximum with this `max_tokens`)",
			   n, want, context, n, context - (want < reserve ? want : reserve));
}

const struct ig_protocol ig_messages_protocol = {
	.id_prefix = "msg_",
	.prompt_param = "messages",
	.format_param = "output_config.format",
	.request = &ig_messages_request,
	.next = next,
	.whole = whole,
	.wait = write_wait,
	.error = error,
	.fail_length = fail_length,
	.check_room = check_room,
};

const struct ig_protocol ig_count_protocol = {
	.id_prefix = "count_",
	.prompt_param = "messages",
	.request = &ig_count_request,
	.whole = count,
	.error = error,
	.fail_length = fail_length,
	.immediate = true,
};
