/*
 * chat_writer.c: the answers of /v1/chat/completions: chunks as SSE frames, or one object.
 *
 * Of each choice, in the order of their numbers, a role goes out first and at once; then
 * text, reasoning and calls as they come, then why it ended.  The usage chunk, if asked
 * for, comes last before [DONE]; an error in mid-stream is a frame with an error object,
 * and nothing follows it.
 */
#include "daemon/protocol/chat/chat.h"
#include "daemon/protocol/core/json_text.h"
#include "daemon/protocol/core/logprobs.h"
#include "daemon/protocol/core/reply.h"
#include "daemon/protocol/core/sse.h"

#include <string.h>

#define MAX_DELTA 4096

/* Of a reply. */
enum { STAGE_ROLES, STAGE_PARTS, STAGE_END };
/* Of a choice, besides the number of parts that were announced. */
#define CHOICE_ENDED (-1)

static void head(struct ig_reply *r, struct ig_strbuf *out, const char *object)
{
	ig_strbuf_printf(out, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", r->id,
			 object, ig_reply_created_s(r));
	ig_json_text(out, ig_reply_model_name(r));
}

/* The client's own labels, once in an answer. */
static void metadata(struct ig_reply *r, struct ig_strbuf *out)
{
	if (!r->request.metadata)
		return;
	ig_strbuf_puts(out, ",\"metadata\":");
	ig_strbuf_puts(out, r->request.metadata);
}

void ig_chat_usage(struct ig_strbuf *out, const struct ig_reply *r)
{
	struct ig_usage u;

	ig_reply_usage(r, &u);
	ig_strbuf_printf(out,
			 "{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,"
			 "\"total_tokens\":%lld,\"prompt_tokens_details\":{\"cached_tokens\":%lld},"
			 "\"completion_tokens_details\":{\"reasoning_tokens\":0}}",
			 (long long)u.prompt, (long long)u.output, (long long)(u.prompt + u.output),
			 (long long)u.cached);
}

static const char *finish_reason(const struct ig_choice *c)
{
	if (c->result.finish == IG_FINISH_LENGTH)
		return "length";
	for (size_t i = 0; i < c->n_parts; i++)
		if (c->parts[i].kind == IG_PART_CALL)
			return "tool_calls";
	return "stop";
}

/* ---- log probabilities ------------------------------------------------------------------ */

/* Notes first … last - 1 of a choice. */
static void logprobs(struct ig_choice *c, size_t first, size_t last, struct ig_strbuf *out)
{
	if (!c->reply->request.logprobs) {
		ig_strbuf_puts(out, "null");
		return;
	}
	ig_strbuf_puts(out, "{\"content\":");
	ig_json_logprobs(out, c->reply->prepared.model, c->notes, first, last, true);
	ig_strbuf_puts(out, ",\"refusal\":null}");
}

/* ---- a stream --------------------------------------------------------------------------- */

static void chunk_begin(struct ig_choice *c, struct ig_strbuf *out, const char *delta)
{
	ig_sse_begin(out, NULL);
	head(c->reply, out, "chat.completion.chunk");
	if (c->reply->stage == STAGE_ROLES && !c->index)
		metadata(c->reply, out);
	ig_strbuf_printf(out, ",\"choices\":[{\"index\":%u,\"delta\":{%s", c->index, delta);
}

/* with_notes: the chunk carries the log probabilities of the tokens so far. */
static void chunk_end(struct ig_choice *c, struct ig_strbuf *out, bool with_notes,
		      const char *finish)
{
	ig_strbuf_puts(out, "},\"logprobs\":");
	if (with_notes) {
		logprobs(c, c->n_notes_sent, c->n_notes, out);
		c->n_notes_sent = c->n_notes;
	} else {
		ig_strbuf_puts(out, "null");
	}
	if (finish)
		ig_strbuf_printf(out, ",\"finish_reason\":\"%s\"}]", finish);
	else
		ig_strbuf_puts(out, ",\"finish_reason\":null}]");
	ig_strbuf_puts(out, c->reply->request.include_usage ? ",\"usage\":null}" : "}");
	ig_sse_end(out);
}

/* Which of the choice's calls a part is. */
static size_t call_number(const struct ig_choice *c, size_t part)
{
	size_t n = 0;

	for (size_t i = 0; i < part; i++)
		n += c->parts[i].kind == IG_PART_CALL;
	return n;
}

static void announce(struct ig_choice *c, const struct ig_part *p, struct ig_strbuf *out)
{
	chunk_begin(c, out, "\"tool_calls\":[{\"index\":");
	ig_strbuf_printf(out, "%zu,\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":",
			 call_number(c, c->part), p->call_id);
	ig_json_text(out, p->name);
	ig_strbuf_puts(out, ",\"arguments\":\"\"}}]");
	chunk_end(c, out, true, NULL);
}

static void delta(struct ig_choice *c, const struct ig_part *p, struct ig_strbuf *out)
{
	bool call = p->kind == IG_PART_CALL;

	chunk_begin(c, out,
		    call		    ? "\"tool_calls\":[{\"index\":" :
		    p->kind == IG_PART_TEXT ? "\"content\":" :
					      "\"reasoning_content\":");
	if (call)
		ig_strbuf_printf(out, "%zu,\"function\":{\"arguments\":", call_number(c, c->part));
	ig_strbuf_json(out, p->text.data + c->n_sent, p->text.len - c->n_sent);
	if (call)
		ig_strbuf_puts(out, "}}]");
	chunk_end(c, out, true, NULL);
	c->n_sent = p->text.len;
}

/* What is new of one choice. */
static bool choice_frames(struct ig_choice *c, struct ig_strbuf *out)
{
	size_t start = out->len;

	while (c->part < c->n_parts) {
		struct ig_part *p = &c->parts[c->part];
		if (p->kind == IG_PART_CALL && (size_t)c->stage <= c->part) {
			announce(c, p, out);
			c->stage = (int)c->part + 1;
		}
		if (p->text.len > c->n_sent)
			delta(c, p, out);
		if (!p->done)
			break;
		c->part++;
		c->n_sent = 0;
	}
	if (c->finished && c->part == c->n_parts && c->stage != CHOICE_ENDED) {
		struct ig_api_error e;
		ig_result_error(&c->result, &e);
		if (!e.status) {
			chunk_begin(c, out, "");
			chunk_end(c, out, c->n_notes_sent < c->n_notes, finish_reason(c));
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

void ig_chat_end(struct ig_strbuf *out, const struct ig_reply *r)
{
	ig_sse_begin(out, NULL);
	if (r->error.status)
		ig_error_object(out, &r->error);
	else
		ig_strbuf_puts(out, "[DONE]");
	ig_sse_end(out);
}

static void end(struct ig_reply *r, struct ig_strbuf *out)
{
	r->stage = STAGE_END;
	if (r->request.include_usage && !r->error.status) {
		ig_sse_begin(out, NULL);
		head(r, out, "chat.completion.chunk");
		ig_strbuf_puts(out, ",\"choices\":[],\"usage\":");
		ig_chat_usage(out, r);
		ig_strbuf_puts(out, "}");
		ig_sse_end(out);
	}
	ig_chat_end(out, r);
}

static bool next(struct ig_reply *r, struct ig_strbuf *out, bool *last)
{
	size_t start = out->len;

	if (r->stage == STAGE_ROLES) {
		for (uint32_t i = 0; i < r->n_choices; i++) {
			chunk_begin(&r->choices[i], out, "\"role\":\"assistant\",\"content\":\"\"");
			chunk_end(&r->choices[i], out, false, NULL);
		}
		r->stage = STAGE_PARTS;
	}
	if (r->stage == STAGE_PARTS && out->len == start) {
		ig_reply_take(r, MAX_DELTA);
		for (uint32_t i = 0; i < r->n_choices; i++)
			choice_frames(&r->choices[i], out);
		if (all_ended(r))
			end(r, out);
		else if (out->len == start && r->keepalive)
			ig_sse_keep_alive(out);
	}
	*last = r->stage == STAGE_END;
	if (out->len > start)
		ig_reply_wrote(r);
	return out->len > start;
}

/* A comment: nothing is said yet, and roles come when there are choices. */
bool ig_chat_wait(struct ig_reply *r, struct ig_strbuf *out)
{
	ig_sse_keep_alive(out);
	return false;
}

/* ---- whole ------------------------------------------------------------------------------- */

/* All parts of a kind as one string; whether there are any. */
static bool joined(const struct ig_choice *c, enum ig_part_kind kind, struct ig_strbuf *out)
{
	bool any = false;

	for (size_t i = 0; i < c->n_parts; i++) {
		if (c->parts[i].kind != kind)
			continue;
		any = true;
		ig_strbuf_add(out, c->parts[i].text.data, c->parts[i].text.len);
		out->failed |= c->parts[i].text.failed;
	}
	return any;
}

static void string_of(const struct ig_choice *c, enum ig_part_kind kind, const char *name,
		      const char *none, struct ig_strbuf *out)
{
	struct ig_strbuf text = { 0 };
	bool any = joined(c, kind, &text);

	if (any || none) {
		ig_strbuf_printf(out, ",\"%s\":", name);
		if (any)
			ig_strbuf_json(out, text.len ? text.data : "", text.len);
		else
			ig_strbuf_puts(out, none);
	}
	out->failed |= text.failed;
	ig_strbuf_finish(&text);
}

static void choice(struct ig_choice *c, struct ig_strbuf *out)
{
	size_t n_calls = call_number(c, c->n_parts), n = 0;

	ig_strbuf_printf(out, "{\"index\":%u,\"message\":{\"role\":\"assistant\"", c->index);
	string_of(c, IG_PART_TEXT, "content", n_calls ? "null" : "\"\"", out);
	string_of(c, IG_PART_REASONING, "reasoning_content", NULL, out);
	if (n_calls)
		ig_strbuf_puts(out, ",\"tool_calls\":[");
	for (size_t i = 0; i < c->n_parts; i++) {
		const struct ig_part *p = &c->parts[i];
		if (p->kind != IG_PART_CALL)
			continue;
		ig_strbuf_printf(out,
				 "%s{\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":",
				 n++ ? "," : "", p->call_id);
		ig_json_text(out, p->name);
		ig_strbuf_puts(out, ",\"arguments\":");
		ig_strbuf_json(out, p->text.len ? p->text.data : "", p->text.len);
		ig_strbuf_puts(out, "}}");
	}
	if (n_calls)
		ig_strbuf_puts(out, "]");
	ig_strbuf_puts(out, ",\"refusal\":null,\"annotations\":[]},\"logprobs\":");
	logprobs(c, 0, c->n_notes, out);
	ig_strbuf_printf(out, ",\"finish_reason\":\"%s\"}", finish_reason(c));
}

static void whole(struct ig_reply *r, struct ig_strbuf *out)
{
	head(r, out, "chat.completion");
	metadata(r, out);
	ig_strbuf_puts(out, ",\"choices\":[");
	for (uint32_t i = 0; i < r->n_choices; i++) {
		if (i)
			ig_strbuf_puts(out, ",");
		choice(&r->choices[i], out);
	}
	ig_strbuf_puts(out, "],\"usage\":");
	ig_chat_usage(out, r);
	ig_strbuf_puts(out, "}");
}

const struct ig_protocol ig_chat_protocol = {
	.id_prefix = "chatcmpl-",
	.prompt_param = "messages",
	.form_param = "response_format",
	.parse = ig_request_parse_chat,
	.next = next,
	.whole = whole,
	.wait = ig_chat_wait,
	.error = ig_error_object,
};
