/*
 * chat_writer.c: the responses of /v1/chat/completions: chunks as SSE frames, or one object.  The
 * role of each choice is sent at once; then text, reasoning and tool calls as they arrive, then the
 * finish reason.  The usage chunk, if requested, is the last before [DONE]; an error in mid-stream
 * is a last frame with an error object.
 */
#include "daemon/protocol/chat/chat.h"
#include "daemon/protocol/core/cache_report.h"
#include "daemon/protocol/core/logprobs.h"
#include "daemon/protocol/core/reply.h"
#include "daemon/protocol/core/sse.h"

#define MAX_DELTA 4096

/* Of a reply. */
enum { STAGE_ROLES, STAGE_PARTS, STAGE_END };
/* Of a choice, besides the number of announced parts. */
#define CHOICE_ENDED (-1)

void ig_chat_head(struct ig_reply *r, struct ig_json_writer *w, const char *object)
{
	ig_json_putf(w, "{'id': %s, 'object': %s, 'created': %lld, 'model': %s", r->id, object,
		     ig_reply_created_s(r), ig_reply_model_name(r));
}

/* The client's metadata, once in a response. */
static void metadata(struct ig_reply *r, struct ig_json_writer *w)
{
	if (r->request.metadata)
		ig_json_put_raw(w, "metadata", r->request.metadata);
}

void ig_chat_usage(struct ig_json_writer *w, const struct ig_reply *r)
{
	struct ig_usage u;

	ig_reply_usage(r, &u);
	ig_json_putf(w,
		     "'usage': {'prompt_tokens': %lld, 'completion_tokens': %lld, "
		     "'total_tokens': %lld, 'prompt_tokens_details': {'cached_tokens': %lld}, "
		     "'completion_tokens_details': {'reasoning_tokens': 0",
		     u.prompt, u.output, u.prompt + u.output, u.cached);
	if (r->request.prediction)
		ig_json_putf(w,
			     "'accepted_prediction_tokens': %lld, "
			     "'rejected_prediction_tokens': %lld",
			     u.accepted, u.drafted - u.accepted);
	ig_json_putf(w, "}}");
}

static bool has_part(const struct ig_choice *c, enum ig_part_kind kind)
{
	for (size_t i = 0; i < c->n_parts; i++)
		if (c->parts[i].kind == kind)
			return true;
	return false;
}

static const char *finish_reason(const struct ig_choice *c)
{
	if (c->result.finish == IG_FINISH_LENGTH)
		return "length";
	return has_part(c, IG_PART_TOOL_CALL) ? "tool_calls" : "stop";
}

/* ---- log probabilities ------------------------------------------------------------------ */

/* Logprobs first … last - 1 of a choice. */
static void logprobs(struct ig_choice *c, size_t first, size_t last, struct ig_json_writer *w)
{
	if (!c->reply->request.logprobs) {
		ig_json_putf(w, "'logprobs': null");
		return;
	}
	ig_json_open_object(w, "logprobs");
	ig_json_put_logprobs(w, "content", c->reply->prepared.model, c->logprobs, first, last,
			     true);
	ig_json_putf(w, "'refusal': null}");
}

/* ---- a stream --------------------------------------------------------------------------- */

/* Up to the first member of the delta. */
static void chunk_begin(struct ig_choice *c, struct ig_json_writer *w)
{
	ig_sse_begin(w->out, NULL);
	ig_chat_head(c->reply, w, "chat.completion.chunk");
	if (c->reply->stage == STAGE_ROLES && !c->index)
		metadata(c->reply, w);
	ig_json_putf(w, "'choices': [{'index': %u, 'delta': {", c->index);
}

/* with_logprobs: with the logprobs of the tokens so far. */
static void chunk_end(struct ig_choice *c, struct ig_json_writer *w, bool with_logprobs,
		      const char *finish)
{
	ig_json_close_object(w);
	if (with_logprobs) {
		logprobs(c, c->n_logprobs_sent, c->n_logprobs, w);
		c->n_logprobs_sent = c->n_logprobs;
	} else {
		ig_json_putf(w, "'logprobs': null");
	}
	ig_json_putf(w, "'finish_reason': %s}]", finish);
	if (c->reply->request.include_usage)
		ig_json_putf(w, "'usage': null");
	ig_json_close_object(w);
	ig_sse_end(w->out);
	w->comma = false;
}

/* The index of a part among the choice's tool calls. */
static size_t call_number(const struct ig_choice *c, size_t part)
{
	size_t n = 0;

	for (size_t i = 0; i < part; i++)
		n += c->parts[i].kind == IG_PART_TOOL_CALL;
	return n;
}

static void announce(struct ig_choice *c, const struct ig_part *p, struct ig_json_writer *w)
{
	chunk_begin(c, w);
	ig_json_putf(w,
		     "'tool_calls': [{'index': %zu, 'id': %s, 'type': 'function', "
		     "'function': {'name': %s, 'arguments': ''}}]",
		     call_number(c, c->part), p->call_id, p->name);
	chunk_end(c, w, true, NULL);
}

static void delta(struct ig_choice *c, const struct ig_part *p, struct ig_json_writer *w)
{
	chunk_begin(c, w);
	if (p->kind == IG_PART_TOOL_CALL)
		ig_json_putf(w, "'tool_calls': [{'index': %zu, 'function': {'arguments':",
			     call_number(c, c->part));
	else
		ig_json_putf(w, p->kind == IG_PART_TEXT ? "'content':" : "'reasoning_content':");
	ig_json_put_string(w, NULL, p->text.data + c->n_sent, p->text.len - c->n_sent);
	if (p->kind == IG_PART_TOOL_CALL)
		ig_json_putf(w, "}}]");
	chunk_end(c, w, true, NULL);
	c->n_sent = p->text.len;
}

/* The new parts of one choice. */
static bool choice_frames(struct ig_choice *c, struct ig_strbuf *out)
{
	struct ig_json_writer w = { .out = out };
	size_t start = out->len;

	while (c->part < c->n_parts) {
		struct ig_part *p = &c->parts[c->part];
		if (p->kind == IG_PART_TOOL_CALL && (size_t)c->stage <= c->part) {
			announce(c, p, &w);
			c->stage = (int)c->part + 1;
		}
		if (p->text.len > c->n_sent)
			delta(c, p, &w);
		if (!p->done)
			break;
		c->part++;
		c->n_sent = 0;
	}
	if (c->finished && c->part == c->n_parts && c->stage != CHOICE_ENDED) {
		struct ig_api_error e;
		ig_result_error(&c->result, &e);
		if (!e.status) {
			chunk_begin(c, &w);
			chunk_end(c, &w, c->n_logprobs_sent < c->n_logprobs, finish_reason(c));
		}
		c->stage = CHOICE_ENDED;
	}
	return out->len > start;
}

static bool all_ended(const struct ig_reply *r)
{
	for (uint32_t i = 0; i < r->n_choices; i++)
		if (r->choices[i].stage != CHOICE_ENDED)
			return false;
	return r->finished;
}

void ig_chat_end(struct ig_reply *r, struct ig_strbuf *out, const char *object)
{
	struct ig_json_writer w = { .out = out };

	if ((r->request.include_usage || ig_wants_cache_report(&r->request)) && !r->error.status) {
		ig_sse_begin(out, NULL);
		ig_chat_head(r, &w, object);
		ig_json_putf(&w, "'choices': []");
		if (r->request.include_usage)
			ig_chat_usage(&w, r);
		ig_put_cache_report(r, &w);
		ig_json_close_object(&w);
		ig_sse_end(out);
	}
	ig_sse_begin(out, NULL);
	if (r->error.status)
		ig_error_object(out, &r->error);
	else
		ig_strbuf_puts(out, "[DONE]");
	ig_sse_end(out);
}

static bool next(struct ig_reply *r, struct ig_strbuf *out, bool *last)
{
	struct ig_json_writer w = { .out = out };
	size_t start = out->len;

	if (r->stage == STAGE_ROLES) {
		for (uint32_t i = 0; i < r->n_choices; i++) {
			chunk_begin(&r->choices[i], &w);
			ig_json_putf(&w, "'role': 'assistant', 'content': ''");
			chunk_end(&r->choices[i], &w, false, NULL);
		}
		r->stage = STAGE_PARTS;
	}
	if (r->stage == STAGE_PARTS && out->len == start) {
		ig_reply_take(r, MAX_DELTA);
		for (uint32_t i = 0; i < r->n_choices; i++)
			choice_frames(&r->choices[i], out);
		if (all_ended(r)) {
			ig_chat_end(r, out, "chat.completion.chunk");
			r->stage = STAGE_END;
		} else if (out->len == start && r->keepalive) {
			ig_sse_keep_alive(out);
		}
	}
	*last = r->stage == STAGE_END;
	if (out->len > start)
		ig_reply_wrote(r);
	return out->len > start;
}

bool ig_chat_wait(struct ig_reply *r, struct ig_strbuf *out)
{
	ig_sse_keep_alive(out);
	return false;
}

/* ---- whole ------------------------------------------------------------------------------- */

/* All parts of a kind as one string; none: the value without parts, NULL: null. */
static void put_parts(const struct ig_choice *c, enum ig_part_kind kind, const char *name,
		      const char *none, struct ig_json_writer *w)
{
	struct ig_strbuf text = { 0 };
	bool any = false;

	for (size_t i = 0; i < c->n_parts; i++) {
		if (c->parts[i].kind != kind)
			continue;
		any = true;
		ig_strbuf_add(&text, c->parts[i].text.data, c->parts[i].text.len);
		text.failed |= c->parts[i].text.failed;
	}
	if (any)
		ig_json_put_string(w, name, text.len ? text.data : "", text.len);
	else
		ig_json_put_text(w, name, none);
	w->out->failed |= text.failed;
	ig_strbuf_finish(&text);
}

static void put_calls(const struct ig_choice *c, struct ig_json_writer *w)
{
	ig_json_open_array(w, "tool_calls");
	for (size_t i = 0; i < c->n_parts; i++) {
		const struct ig_part *p = &c->parts[i];
		if (p->kind != IG_PART_TOOL_CALL)
			continue;
		ig_json_putf(w,
			     "{'id': %s, 'type': 'function', 'function': {'name': %s, 'arguments':",
			     p->call_id, p->name);
		ig_json_put_string(w, NULL, p->text.len ? p->text.data : "", p->text.len);
		ig_json_putf(w, "}}");
	}
	ig_json_close_array(w);
}

static void choice(struct ig_choice *c, struct ig_json_writer *w)
{
	bool calls = has_part(c, IG_PART_TOOL_CALL);

	ig_json_putf(w, "{'index': %u, 'message': {'role': 'assistant'", c->index);
	put_parts(c, IG_PART_TEXT, "content", calls ? NULL : "", w);
	if (has_part(c, IG_PART_REASONING))
		put_parts(c, IG_PART_REASONING, "reasoning_content", NULL, w);
	if (calls)
		put_calls(c, w);
	ig_json_putf(w, "'refusal': null, 'annotations': []}");
	logprobs(c, 0, c->n_logprobs, w);
	ig_json_putf(w, "'finish_reason': %s}", finish_reason(c));
}

static void whole(struct ig_reply *r, struct ig_strbuf *out)
{
	struct ig_json_writer w = { .out = out };

	ig_chat_head(r, &w, "chat.completion");
	metadata(r, &w);
	ig_json_open_array(&w, "choices");
	for (uint32_t i = 0; i < r->n_choices; i++)
		choice(&r->choices[i], &w);
	ig_json_close_array(&w);
	ig_chat_usage(&w, r);
	ig_put_cache_report(r, &w);
	ig_json_close_object(&w);
}

const struct ig_protocol ig_chat_protocol = {
	.id_prefix = "chatcmpl-",
	.prompt_param = "messages",
	.format_param = "response_format",
	.request = &ig_chat_request,
	.next = next,
	.whole = whole,
	.wait = ig_chat_wait,
	.error = ig_error_object,
};
