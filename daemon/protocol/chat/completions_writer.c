/* completions_writer.c: the responses of /v1/completions: text after a prompt, as SSE frames or
 * one object.  Choices are numbered prompt by prompt. */
#include "daemon/protocol/chat/chat.h"
#include "daemon/protocol/core/cache_report.h"
#include "daemon/protocol/core/logprobs.h"
#include "daemon/protocol/core/reply.h"
#include "daemon/protocol/core/sse.h"

#define MAX_DELTA 4096

/* Of a reply. */
enum { STAGE_BEGIN, STAGE_TEXT, STAGE_END };
/* Of a choice. */
enum { CHOICE_BEGIN, CHOICE_TEXT, CHOICE_ENDED };

/* Of tokens first … last - 1: their texts, logprobs, and offsets in the output. */
static void logprobs(struct ig_choice *c, size_t first, size_t last, struct ig_json_writer *w)
{
	const struct ig_engine_model *m = c->reply->prepared.model;

	if (!c->reply->request.logprobs) {
		ig_json_putf(w, "'logprobs': null");
		return;
	}
	ig_json_putf(w, "'logprobs': {'tokens': [");
	for (size_t i = first; i < last; i++)
		ig_json_put_token(w, m, c->logprobs[i].id, false);
	ig_json_putf(w, "], 'token_logprobs': [");
	for (size_t i = first; i < last; i++)
		ig_json_putf(w, "%.8g", (double)c->logprobs[i].logprob);
	ig_json_putf(w, "], 'top_logprobs': [");
	for (size_t i = first; i < last; i++) {
		const struct ig_token_logprob *n = &c->logprobs[i];
		ig_json_open_object(w, NULL);
		for (int32_t k = 0; k < n->n_top; k++) {
			ig_json_put_token(w, m, n->top[k].id, true);
			ig_json_putf(w, "%.8g", (double)n->top[k].logprob);
		}
		ig_json_close_object(w);
	}
	ig_json_putf(w, "], 'text_offset': [");
	for (size_t i = first; i < last; i++)
		ig_json_put_uint(w, NULL, i ? c->logprobs[i - 1].text_end : 0);
	ig_json_putf(w, "]}");
}

/* With echo, the prompt: its text, or the text of its tokens. */
static void echo(struct ig_choice *c, struct ig_strbuf *out)
{
	struct ig_reply *r = c->reply;
	size_t at = c->index / (uint32_t)r->request.n;
	const struct ig_prompt *p = &r->request.prompts[at];

	if (!r->request.echo)
		return;
	if (p->text) {
		ig_strbuf_add(out, p->text, p->len);
		return;
	}
	for (size_t i = 0; i < p->n_ids; i++)
		ig_token_text(out, r->prepared.model, p->ids[i]);
}

static const struct ig_strbuf *text_of(const struct ig_choice *c)
{
	static const struct ig_strbuf none;

	return c->n_parts ? &c->parts[0].text : &none;
}

static const char *finish_reason(const struct ig_choice *c)
{
	return c->result.finish == IG_FINISH_LENGTH ? "length" : "stop";
}

static void choice(struct ig_choice *c, struct ig_json_writer *w, const char *text, size_t len,
		   size_t first_logprob, const char *finish)
{
	ig_json_putf(w, "{'index': %u", c->index);
	ig_json_put_string(w, "text", len ? text : "", len);
	logprobs(c, first_logprob, c->n_logprobs, w);
	ig_json_putf(w, "'finish_reason': %s}", finish);
}

static void chunk(struct ig_choice *c, struct ig_strbuf *out, const char *text, size_t len,
		  const char *finish)
{
	struct ig_json_writer w = { .out = out };

	ig_sse_begin(out, NULL);
	ig_chat_head(c->reply, &w, "text_completion");
	ig_json_open_array(&w, "choices");
	choice(c, &w, text, len, c->n_logprobs_sent, finish);
	ig_json_close_array(&w);
	c->n_logprobs_sent = c->n_logprobs;
	if (c->reply->request.include_usage)
		ig_json_putf(&w, "'usage': null");
	ig_json_close_object(&w);
	ig_sse_end(out);
}

static void choice_frames(struct ig_choice *c, struct ig_strbuf *out)
{
	const struct ig_strbuf *text = text_of(c);
	struct ig_api_error e;

	if (c->stage == CHOICE_BEGIN) {
		struct ig_strbuf prompt = { 0 };
		echo(c, &prompt);
		if (prompt.len)
			chunk(c, out, prompt.data, prompt.len, NULL);
		out->failed |= prompt.failed;
		ig_strbuf_finish(&prompt);
		c->stage = CHOICE_TEXT;
	}
	if (text->len > c->n_sent) {
		chunk(c, out, text->data + c->n_sent, text->len - c->n_sent, NULL);
		c->n_sent = text->len;
	}
	if (!c->finished || c->stage == CHOICE_ENDED)
		return;
	ig_result_error(&c->result, &e);
	if (!e.status)
		chunk(c, out, "", 0, finish_reason(c));
	c->stage = CHOICE_ENDED;
}

static bool next(struct ig_reply *r, struct ig_strbuf *out, bool *last)
{
	size_t start = out->len;

	if (r->stage != STAGE_END) {
		ig_reply_take(r, MAX_DELTA);
		for (uint32_t i = 0; i < r->n_choices; i++)
			choice_frames(&r->choices[i], out);
		if (r->finished) {
			ig_chat_end(r, out, "text_completion");
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

static void whole(struct ig_reply *r, struct ig_strbuf *out)
{
	struct ig_json_writer w = { .out = out };

	ig_chat_head(r, &w, "text_completion");
	ig_json_open_array(&w, "choices");
	for (uint32_t i = 0; i < r->n_choices; i++) {
		struct ig_choice *c = &r->choices[i];
		struct ig_strbuf text = { 0 };
		echo(c, &text);
		ig_strbuf_add(&text, text_of(c)->data, text_of(c)->len);
		choice(c, &w, text.data, text.len, 0, finish_reason(c));
		out->failed |= text.failed;
		ig_strbuf_finish(&text);
	}
	ig_json_close_array(&w);
	ig_chat_usage(&w, r);
	ig_put_cache_report(r, &w);
	ig_json_close_object(&w);
}

const struct ig_protocol ig_completions_protocol = {
	.id_prefix = "cmpl-",
	.prompt_param = "prompt",
	.format_param = "response_format",
	.request = &ig_completion_request,
	.next = next,
	.whole = whole,
	.wait = ig_chat_wait,
	.error = ig_error_object,
};
