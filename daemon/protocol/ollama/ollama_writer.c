/*
 * ollama_writer.c: the responses of /api/chat and /api/generate: a JSON object in each line, the last
 * with done, why it ended and how long it took; or one object.  A tool call is sent when it is
 * complete, its arguments as an object.  While nothing else comes, a line without text keeps the
 * connection alive.
 */
#include "daemon/protocol/ollama/ollama_private.h"

#include "base/clock.h"
#include "base/utf8.h"
#include "daemon/protocol/core/logprobs.h"

#include <string.h>

#define MAX_DELTA 4096

/* Of a reply. */
enum { STAGE_PARTS, STAGE_END };

void ig_ollama_error(struct ig_strbuf *out, const struct ig_api_error *e)
{
	struct ig_json_writer w = { .out = out };
	char text[sizeof e->message];

	ig_utf8_copy(text, sizeof text, e->message);
	ig_json_putf(&w, "{'error': %s}", text);
}

const char *ig_ollama_time(char out[IG_OLLAMA_TIME_CAP], int64_t wall_ns)
{
	time_t s = (time_t)(wall_ns / 1000000000);
	struct tm tm = { 0 };
	size_t n;

	gmtime_r(&s, &tm);
	n = strftime(out, IG_OLLAMA_TIME_CAP, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(out + n, IG_OLLAMA_TIME_CAP - n, ".%06dZ", (int)(wall_ns % 1000000000 / 1000));
	return out;
}

static bool is_chat(const struct ig_reply *r) { return r->protocol == &ig_ollama_chat_protocol; }

static void begin(struct ig_reply *r, struct ig_json_writer *w)
{
	char now[IG_OLLAMA_TIME_CAP];

	ig_json_putf(w, "{'model': %s, 'created_at': %s", ig_reply_model_name(r),
		     ig_ollama_time(now, ig_wall_ns()));
}

/* Text and reasoning, len bytes of each (thinking_len 0: none), for more members of a message. */
static void open_message(struct ig_reply *r, struct ig_json_writer *w, const char *text, size_t len,
			 const char *thinking, size_t thinking_len)
{
	if (is_chat(r))
		ig_json_putf(w, "'message': {'role': 'assistant'");
	ig_json_put_string(w, is_chat(r) ? "content" : "response", len ? text : "", len);
	if (thinking_len)
		ig_json_put_string(w, "thinking", thinking, thinking_len);
}

static void close_message(struct ig_reply *r, struct ig_json_writer *w)
{
	if (is_chat(r))
		ig_json_close_object(w);
}

/* Of the parts that are complete calls, from first to last - 1; number: of the first. */
static void put_calls(const struct ig_choice *c, size_t first, size_t last, size_t number,
		      struct ig_json_writer *w)
{
	ig_json_open_array(w, "tool_calls");
	for (size_t i = first; i < last; i++) {
		const struct ig_part *p = &c->parts[i];
		if (p->kind != IG_PART_TOOL_CALL)
			continue;
		ig_json_putf(w, "{'id': %s, 'function': {'index': %zu, 'name': %s", p->call_id,
			     number++, p->name);
		ig_part_put_arguments(p, "arguments", w);
		ig_json_putf(w, "}}");
	}
	ig_json_close_array(w);
}

static size_t count_calls(const struct ig_choice *c, size_t n_parts)
{
	size_t n = 0;

	for (size_t i = 0; i < n_parts; i++)
		n += c->parts[i].kind == IG_PART_TOOL_CALL;
	return n;
}

/* Those that were not sent yet; without a choice there are none. */
static void put_logprobs(struct ig_choice *c, struct ig_json_writer *w)
{
	if (c->n_logprobs_sent == c->n_logprobs)
		return;
	ig_json_put_logprobs(w, "logprobs", c->reply->prepared.model, c->logprobs,
			     c->n_logprobs_sent, c->n_logprobs, true);
	c->n_logprobs_sent = c->n_logprobs;
}

/* Durations are in nanoseconds. */
static void put_end(struct ig_reply *r, struct ig_json_writer *w)
{
	const struct ig_gen_result *g = &r->choices[0].result;
	const char *reason = !r->request.no_output ? ig_finish_name(g->finish) :
			     r->prepared.model	   ? "load" :
						     "unload";
	struct ig_usage u;

	ig_reply_usage(r, &u);
	ig_json_putf(w,
		     "'done': true, 'done_reason': %s, 'total_duration': %lld, 'load_duration': "
		     "%lld",
		     reason, (long long)(ig_now_ns() - r->origin->received_ns),
		     (long long)r->waited_ns);
	if (!r->request.no_output)
		ig_json_putf(w,
			     "'prompt_eval_count': %lld, 'prompt_eval_duration': %lld, "
			     "'eval_count': %lld, 'eval_duration': %lld",
			     u.prompt, (long long)g->prefill_ns, u.output,
			     /* clients divide by it */
			     (long long)(g->decode_ns ? g->decode_ns : 1));
}

/* ---- a stream ----------------------------------------------------------------------------- */

/* The end of a line that is not the last. */
static void end_part(struct ig_reply *r, struct ig_json_writer *w)
{
	close_message(r, w);
	put_logprobs(&r->choices[0], w);
	ig_json_putf(w, "'done': false");
	ig_ollama_end_line(w);
}

static void text_line(struct ig_choice *c, const struct ig_part *p, struct ig_json_writer *w)
{
	const char *text = ig_strbuf_text(&p->text) + c->n_sent;
	size_t len = p->text.len - c->n_sent;
	bool thinks = p->kind == IG_PART_REASONING;

	begin(c->reply, w);
	open_message(c->reply, w, text, thinks ? 0 : len, text, thinks ? len : 0);
	end_part(c->reply, w);
	c->n_sent = p->text.len;
}

static void call_line(struct ig_choice *c, struct ig_json_writer *w)
{
	begin(c->reply, w);
	open_message(c->reply, w, "", 0, NULL, 0);
	put_calls(c, c->part, c->part + 1, count_calls(c, c->part), w);
	end_part(c->reply, w);
}

static void new_parts(struct ig_choice *c, struct ig_json_writer *w)
{
	while (c->part < c->n_parts) {
		const struct ig_part *p = &c->parts[c->part];
		if (p->kind != IG_PART_TOOL_CALL && p->text.len > c->n_sent)
			text_line(c, p, w);
		if (!p->done)
			return;
		if (p->kind == IG_PART_TOOL_CALL)
			call_line(c, w);
		c->part++;
		c->n_sent = 0;
	}
}

static void last_line(struct ig_reply *r, struct ig_json_writer *w)
{
	r->stage = STAGE_END;
	if (r->error.status) {
		ig_ollama_error(w->out, &r->error);
		ig_strbuf_puts(w->out, "\n");
		return;
	}
	begin(r, w);
	open_message(r, w, "", 0, NULL, 0);
	close_message(r, w);
	put_logprobs(&r->choices[0], w);
	put_end(r, w);
	ig_ollama_end_line(w);
}

static bool wait_line(struct ig_reply *r, struct ig_strbuf *out)
{
	struct ig_json_writer w = { .out = out };

	begin(r, &w);
	open_message(r, &w, "", 0, NULL, 0);
	close_message(r, &w);
	ig_json_putf(&w, "'done': false");
	ig_ollama_end_line(&w);
	return false;
}

static bool next(struct ig_reply *r, struct ig_strbuf *out, bool *last)
{
	struct ig_json_writer w = { .out = out };
	size_t start = out->len;

	if (r->stage != STAGE_END) {
		ig_reply_take(r, MAX_DELTA);
		new_parts(&r->choices[0], &w);
		if (r->finished)
			last_line(r, &w);
		else if (out->len == start && r->keepalive)
			wait_line(r, out);
	}
	*last = r->stage == STAGE_END;
	if (out->len > start)
		ig_reply_wrote(r);
	return out->len > start;
}

/* ---- whole --------------------------------------------------------------------------------- */

static void join(const struct ig_choice *c, enum ig_part_kind kind, struct ig_strbuf *out)
{
	for (size_t i = 0; i < c->n_parts; i++) {
		if (c->parts[i].kind == kind)
			ig_strbuf_add(out, c->parts[i].text.data, c->parts[i].text.len);
		out->failed |= c->parts[i].text.failed;
	}
}

static void whole(struct ig_reply *r, struct ig_strbuf *out)
{
	struct ig_json_writer w = { .out = out };
	struct ig_strbuf text = { 0 }, thinking = { 0 };
	struct ig_choice *c = &r->choices[0];

	join(c, IG_PART_TEXT, &text);
	join(c, IG_PART_REASONING, &thinking);
	begin(r, &w);
	open_message(r, &w, text.data, text.len, thinking.data, thinking.len);
	if (count_calls(c, c->n_parts))
		put_calls(c, 0, c->n_parts, 0, &w);
	close_message(r, &w);
	put_logprobs(c, &w);
	put_end(r, &w);
	ig_json_close_object(&w);
	out->failed |= text.failed || thinking.failed;
	ig_strbuf_finish(&text);
	ig_strbuf_finish(&thinking);
}

const struct ig_protocol ig_ollama_chat_protocol = {
	.id_prefix = "chat-",
	.prompt_param = "messages",
	.format_param = "format",
	.request = &ig_ollama_chat_request,
	.stream_type = IG_NDJSON,
	.act = ig_ollama_prepare,
	.next = next,
	.whole = whole,
	.wait = wait_line,
	.error = ig_ollama_error,
};

const struct ig_protocol ig_ollama_generate_protocol = {
	.id_prefix = "gen-",
	.prompt_param = "prompt",
	.format_param = "format",
	.request = &ig_ollama_generate_request,
	.stream_type = IG_NDJSON,
	.act = ig_ollama_prepare,
	.next = next,
	.whole = whole,
	.wait = wait_line,
	.error = ig_ollama_error,
};
