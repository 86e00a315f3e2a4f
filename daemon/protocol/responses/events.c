/*
 * events.c: the events of one response, for the WebSocket as they are and over HTTP as SSE frames,
 * written directly into the connection's buffer.  next_event is a state machine: r->stage is the
 * state of the response, part and stage of its choice that of the current item.
 */
#include "daemon/protocol/core/sse.h"
#include "daemon/protocol/responses/items.h"
#include "daemon/protocol/responses/responses_private.h"

#include <stdio.h>

/* Maximum text of one delta: a client that reads slowly gets fewer, larger ones. */
#define MAX_DELTA 4096

/* Of the current part. */
enum {
	PART_ITEM,
	PART_SUMMARY,
	PART_CONTENT,
	PART_DELTA,
	PART_CONTENT_DONE,
	PART_SUMMARY_TEXT_DONE,
	PART_SUMMARY_DONE,
	PART_ITEM_DONE,
};

/* ---- frames ------------------------------------------------------------------------ */

/* NULL and "": the default lane. */
static void lane(struct ig_json_writer *w, const char *stream_id)
{
	if (stream_id && stream_id[0])
		ig_json_put_text(w, "stream_id", stream_id);
}

static void begin(struct ig_reply *r, struct ig_json_writer *w, const char *type)
{
	if (r->framed)
		ig_sse_begin(w->out, type);
	ig_json_putf(w, "{'type': %s, 'sequence_number': %d", type, r->sequence++);
	lane(w, r->request.stream_id);
}

static void end(struct ig_reply *r, struct ig_json_writer *w)
{
	ig_json_close_object(w);
	if (r->framed)
		ig_sse_end(w->out);
}

/* ---- events ------------------------------------------------------------------------ */

/* What a reply over HTTP has as headers. */
static void put_headers(struct ig_json_writer *w, const struct ig_reply *r)
{
	const struct ig_origin *o = r->origin;

	if (!o->ignored[0] && !o->tool_format && !o->normalized[0])
		return;
	ig_json_open_object(w, "headers");
	if (o->ignored[0])
		ig_json_put_text(w, "x-ingot-ignored", o->ignored);
	if (o->tool_format)
		ig_json_put_text(w, "x-ingot-tool-format", o->tool_format);
	if (o->normalized[0])
		ig_json_put_text(w, "x-ingot-normalized", o->normalized);
	ig_json_close_object(w);
}

static void response_event(struct ig_reply *r, struct ig_strbuf *out, const char *type)
{
	struct ig_json_writer w = { .out = out };

	begin(r, &w, type);
	if (!r->framed && r->stage == STAGE_CREATED)
		put_headers(&w, r);
	ig_json_putf(&w, "'response':");
	if (r->stage >= STAGE_FINAL)
		ig_response_final(r, out);
	else
		ig_response_object(r, out);
	end(r, &w);
}

static void final_event(struct ig_reply *r, struct ig_strbuf *out)
{
	static const char *const types[] = {
		[IG_OUTCOME_COMPLETED] = "response.completed",
		[IG_OUTCOME_INCOMPLETE] = "response.incomplete",
		[IG_OUTCOME_CANCELLED] = "response.incomplete",
		[IG_OUTCOME_FAILED] = "response.failed",
	};
	enum ig_outcome o = ig_response_outcome(r);

	response_event(r, out, types[o]);
	/* Over HTTP an error event follows, for readers that do not know response.failed. */
	r->stage = o == IG_OUTCOME_FAILED && r->framed ? STAGE_ERROR : STAGE_END;
}

/* In both formats: readers expect a flat message or an error object. */
static void error_event(struct ig_reply *r, struct ig_strbuf *out)
{
	struct ig_json_writer w = { .out = out };

	begin(r, &w, "error");
	ig_json_putf(&w, "'code': %s", r->error.code);
	ig_error_message(&w, &r->error);
	ig_json_putf(&w, "'param': null");
	ig_error_member(&w, &r->error);
	end(r, &w);
	r->stage = STAGE_END;
}

static void place(struct ig_reply *r, const struct ig_part *p, struct ig_json_writer *w)
{
	ig_json_putf(w, "'item_id': %s, 'output_index': %zu", p->id, r->choices[0].part);
	if (p->kind != IG_PART_TOOL_CALL)
		ig_json_putf(w, "'content_index': 0");
}

/* Up to the members of an event about a part's text. */
static bool text_begin(struct ig_reply *r, const struct ig_part *p, bool done,
		       struct ig_json_writer *w)
{
	static const char *const types[][2] = {
		[IG_PART_TEXT] = { "response.output_text.delta", "response.output_text.done" },
		[IG_PART_REASONING] = { "response.reasoning_text.delta",
					"response.reasoning_text.done" },
		[IG_PART_TOOL_CALL] = { "response.function_call_arguments.delta",
					"response.function_call_arguments.done" },
	};
	static const char *const custom_types[] = { "response.custom_tool_call_input.delta",
						    "response.custom_tool_call_input.done" };
	bool custom = p->kind == IG_PART_TOOL_CALL && ig_response_is_custom(r, p);

	begin(r, w, custom ? custom_types[done] : types[p->kind][done]);
	place(r, p, w);
	return custom;
}

/* The new text of a part. */
static void delta(struct ig_reply *r, const struct ig_part *p, struct ig_strbuf *out)
{
	struct ig_choice *c = &r->choices[0];
	struct ig_json_writer w = { .out = out };

	if (text_begin(r, p, false, &w))
		ig_response_custom_input("delta", p, &w);
	else
		ig_json_put_string(&w, "delta", p->text.data + c->n_sent, p->text.len - c->n_sent);
	c->n_sent = p->text.len;
	if (p->kind == IG_PART_TEXT) {
		if (c->n_logprobs_sent < p->first_logprob)
			c->n_logprobs_sent = p->first_logprob;
		ig_response_logprobs(r, c->n_logprobs_sent, p->end_logprob, false, &w);
		if (p->end_logprob > c->n_logprobs_sent)
			c->n_logprobs_sent = p->end_logprob;
	}
	end(r, &w);
}

static void text_done(struct ig_reply *r, const struct ig_part *p, struct ig_strbuf *out)
{
	struct ig_json_writer w = { .out = out };
	bool custom = text_begin(r, p, true, &w);

	if (custom) {
		ig_response_custom_input("input", p, &w);
	} else if (p->kind == IG_PART_TOOL_CALL) {
		ig_response_tool_name(r, p, &w);
		ig_response_text("arguments", &p->text, &w);
	} else {
		ig_response_text("text", &p->text, &w);
	}
	if (p->kind == IG_PART_TEXT)
		ig_response_logprobs(r, p->first_logprob, p->end_logprob, false, &w);
	end(r, &w);
}

static void item_event(struct ig_reply *r, bool done, struct ig_strbuf *out)
{
	struct ig_json_writer w = { .out = out };

	begin(r, &w, done ? "response.output_item.done" : "response.output_item.added");
	ig_json_put_uint(&w, "output_index", r->choices[0].part);
	ig_response_item(r, "item", r->choices[0].part, done, &w);
	end(r, &w);
}

static void content_event(struct ig_reply *r, const struct ig_part *p, bool done,
			  struct ig_strbuf *out)
{
	struct ig_json_writer w = { .out = out };

	begin(r, &w, done ? "response.content_part.done" : "response.content_part.added");
	place(r, p, &w);
	ig_response_content(r, "part", p, done, &w);
	end(r, &w);
}

/* An event about reasoning as a summary: its part, or its text from first on. */
static void summary_event(struct ig_reply *r, const struct ig_part *p, const char *type,
			  const char *member, bool is_part, size_t first, struct ig_strbuf *out)
{
	struct ig_json_writer w = { .out = out };

	begin(r, &w, type);
	ig_json_putf(&w, "'item_id': %s, 'output_index': %zu, 'summary_index': 0", p->id,
		     r->choices[0].part);
	if (is_part)
		ig_json_putf(&w, "'part': {'type': 'summary_text'");
	ig_json_put_string(&w, member, p->text.len ? p->text.data + first : "",
			   p->text.len - first);
	if (is_part)
		ig_json_close_object(&w);
	end(r, &w);
}

/* The text that was sent as reasoning, and not yet as a summary; false: none. */
static bool summary_delta(struct ig_reply *r, const struct ig_part *p, struct ig_strbuf *out)
{
	struct ig_choice *c = &r->choices[0];

	if (!ig_response_has_summary(r, p) || c->n_summary_sent >= p->text.len)
		return false;
	summary_event(r, p, "response.reasoning_summary_text.delta", "delta", false,
		      c->n_summary_sent, out);
	c->n_summary_sent = p->text.len;
	return true;
}

/* A custom tool's input is known when its arguments are complete. */
static bool has_delta(const struct ig_reply *r, const struct ig_part *p)
{
	return p->text.len > r->choices[0].n_sent &&
	       (p->done || p->kind != IG_PART_TOOL_CALL || !ig_response_is_custom(r, p));
}

/* One event of the current part; false: there is none now. */
static bool part_event(struct ig_reply *r, struct ig_strbuf *out)
{
	struct ig_choice *c = &r->choices[0];
	const struct ig_part *p = &c->parts[c->part];
	bool has_content = p->kind != IG_PART_TOOL_CALL;

	switch (c->stage) {
	case PART_ITEM:
		item_event(r, false, out);
		c->stage = ig_response_has_summary(r, p) ? PART_SUMMARY :
			   has_content			 ? PART_CONTENT :
							   PART_DELTA;
		return true;
	case PART_SUMMARY:
		summary_event(r, p, "response.reasoning_summary_part.added", "text", true,
			      p->text.len, out);
		c->stage = PART_CONTENT;
		return true;
	case PART_CONTENT:
		content_event(r, p, false, out);
		c->stage = PART_DELTA;
		return true;
	case PART_DELTA:
		if (has_delta(r, p)) {
			delta(r, p, out);
			return true;
		}
		if (summary_delta(r, p, out))
			return true;
		if (!p->done)
			return false;
		text_done(r, p, out);
		c->stage = has_content ? PART_CONTENT_DONE : PART_ITEM_DONE;
		return true;
	case PART_CONTENT_DONE:
		content_event(r, p, true, out);
		c->stage = ig_response_has_summary(r, p) ? PART_SUMMARY_TEXT_DONE : PART_ITEM_DONE;
		return true;
	case PART_SUMMARY_TEXT_DONE:
		summary_event(r, p, "response.reasoning_summary_text.done", "text", false, 0, out);
		c->stage = PART_SUMMARY_DONE;
		return true;
	case PART_SUMMARY_DONE:
		summary_event(r, p, "response.reasoning_summary_part.done", "text", true, 0, out);
		c->stage = PART_ITEM_DONE;
		return true;
	default:
		item_event(r, true, out);
		c->stage = PART_ITEM;
		c->part++;
		c->n_sent = c->n_summary_sent = 0;
		return true;
	}
}

/* One event of the parts; false: there is none now, or no more. */
static bool parts_event(struct ig_reply *r, struct ig_strbuf *out)
{
	struct ig_choice *c = &r->choices[0];

	if (c->part < c->n_parts && part_event(r, out))
		return true;
	ig_reply_take(r, MAX_DELTA);
	if (c->part < c->n_parts || ig_response_add_nothing(r))
		return part_event(r, out);
	return false;
}

static bool next_event(struct ig_reply *r, struct ig_strbuf *out)
{
	switch (r->stage) {
	case STAGE_CREATED:
		response_event(r, out, "response.created");
		r->stage++;
		return true;
	case STAGE_IN_PROGRESS:
		response_event(r, out, "response.in_progress");
		r->stage++;
		return true;
	case STAGE_PARTS:
		if (parts_event(r, out))
			return true;
		if (r->finished) {
			r->stage = STAGE_FINAL;
			final_event(r, out);
			return true;
		}
		if (r->keepalive)
			response_event(r, out, "response.in_progress");
		return r->keepalive;
	case STAGE_ERROR: error_event(r, out); return true;
	default: return false;
	}
}

bool ig_responses_next_event(struct ig_reply *r, struct ig_strbuf *out, bool *last)
{
	bool some = next_event(r, out);

	if (some)
		ig_reply_wrote(r);
	*last = r->stage == STAGE_END;
	return some;
}

bool ig_responses_wait_event(struct ig_reply *r, struct ig_strbuf *out)
{
	bool first = r->stage == STAGE_CREATED;

	response_event(r, out, first ? "response.created" : "response.in_progress");
	r->stage = first ? STAGE_IN_PROGRESS : STAGE_PARTS;
	return first;
}

/* ---- over HTTP --------------------------------------------------------------------- */

static bool next(struct ig_reply *r, struct ig_strbuf *out, bool *last)
{
	r->framed = true;
	return ig_responses_next_event(r, out, last);
}

static bool write_wait(struct ig_reply *r, struct ig_strbuf *out)
{
	r->framed = true;
	return ig_responses_wait_event(r, out);
}

static void whole(struct ig_reply *r, struct ig_strbuf *out)
{
	ig_response_add_nothing(r);
	ig_response_final(r, out);
}

const struct ig_protocol ig_responses_protocol = {
	.id_prefix = "resp_",
	.prompt_param = "input",
	.format_param = "text.format",
	.recall = ig_responses_recall,
	.complete = ig_items_link,
	.request = &ig_create_request,
	.next = next,
	.whole = whole,
	.wait = write_wait,
	.error = ig_error_object,
	.streams_overflow = true,
};

static void count(struct ig_reply *r, struct ig_strbuf *out)
{
	struct ig_json_writer w = { .out = out };

	ig_json_putf(&w, "{'object': 'response.input_tokens', 'input_tokens': %zu}",
		     r->prepared.prompts[0].n);
}

const struct ig_protocol ig_input_tokens_protocol = {
	.id_prefix = "resp_",
	.prompt_param = "input",
	.format_param = "text.format",
	.recall = ig_responses_recall,
	.complete = ig_items_link,
	.request = &ig_input_tokens_request,
	.whole = count,
	.error = ig_error_object,
	.immediate = true,
};

/* ---- the WebSocket's own events ---------------------------------------------------- */

void ig_ws_error_event(struct ig_strbuf *out, const struct ig_api_error *e, const char *stream_id)
{
	struct ig_json_writer w = { .out = out };

	ig_json_putf(&w, "{'type': 'error', 'status': %d", e->status);
	ig_error_member(&w, e);
	/* Codex reads what would be a header; others the member. */
	if (e->retry_after_s) {
		char seconds[16];
		snprintf(seconds, sizeof seconds, "%u", e->retry_after_s);
		ig_json_putf(&w, "'retry_after': %u, 'headers': {'retry-after': %s}",
			     e->retry_after_s, seconds);
	}
	lane(&w, stream_id);
	ig_json_close_object(&w);
}

void ig_ws_steer_failed(struct ig_strbuf *out, const char *steer, const char *stream_id)
{
	struct ig_json_writer w = { .out = out };

	ig_json_putf(&w,
		     "{'type': 'response.steer.failed', 'sequence_number': 0, 'steer': %-s, "
		     "'error': {'type': 'invalid_request_error', 'code': 'steering_not_supported', "
		     "'message': %s}",
		     steer, "This server can't steer a response.");
	lane(&w, stream_id);
	ig_json_close_object(&w);
}
