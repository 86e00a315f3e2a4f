/*
 * events.c: one response as its events in their order, for the WebSocket as they are and
 * over HTTP as SSE frames.
 *
 * Written as text straight into the connection's buffer.  next_event is a small machine:
 * r->stage says where the response is, its choice's part and stage where the item is that
 * is under way.
 */
#include "daemon/protocol/core/sse.h"
#include "daemon/protocol/responses/items.h"
#include "daemon/protocol/responses/responses_private.h"

#include <string.h>

/* Text of one delta at most: a client that reads slowly gets fewer, larger ones. */
#define MAX_DELTA 4096

/* Of the part under way. */
enum { PART_ITEM, PART_CONTENT, PART_DELTA, PART_TEXT_DONE, PART_CONTENT_DONE, PART_ITEM_DONE };

/* ---- frames ------------------------------------------------------------------------ */

/* NULL and "": the default lane. */
static void lane(struct ig_strbuf *out, const char *stream_id)
{
	if (!stream_id || !stream_id[0])
		return;
	ig_strbuf_puts(out, ",\"stream_id\":");
	ig_json_text(out, stream_id);
}

static void begin(struct ig_reply *r, struct ig_strbuf *out, const char *type)
{
	if (r->framed)
		ig_sse_begin(out, type);
	ig_strbuf_printf(out, "{\"type\":\"%s\",\"sequence_number\":%d", type, r->sequence++);
	lane(out, r->request.stream_id);
}

static void end(struct ig_reply *r, struct ig_strbuf *out)
{
	ig_strbuf_puts(out, "}");
	if (r->framed)
		ig_sse_end(out);
}

/* ---- events ------------------------------------------------------------------------ */

static void response_event(struct ig_reply *r, struct ig_strbuf *out, const char *type)
{
	begin(r, out, type);
	ig_strbuf_puts(out, ",\"response\":");
	if (r->stage >= STAGE_FINAL)
		ig_response_final(r, out);
	else
		ig_response_object(r, out);
	end(r, out);
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
	/* Over HTTP a failure is an error too, for readers who know no response.failed. */
	r->stage = o == IG_OUTCOME_FAILED && r->framed ? STAGE_ERROR : STAGE_END;
}

/* In both shapes at once: readers look for a flat message or for an error object. */
static void error_event(struct ig_reply *r, struct ig_strbuf *out)
{
	begin(r, out, "error");
	ig_strbuf_puts(out, ",\"code\":");
	ig_json_text(out, r->error.code);
	ig_strbuf_puts(out, ",\"message\":");
	ig_error_message(out, &r->error);
	ig_strbuf_puts(out, ",\"param\":null,\"error\":");
	ig_error_members(out, &r->error);
	end(r, out);
	r->stage = STAGE_END;
}

static void place(struct ig_reply *r, const struct ig_part *p, struct ig_strbuf *out)
{
	ig_strbuf_printf(out, ",\"item_id\":\"%s\",\"output_index\":%zu", p->id,
			 r->choices[0].part);
	if (p->kind != IG_PART_CALL)
		ig_strbuf_puts(out, ",\"content_index\":0");
}

/* What is new of a part. */
static void delta(struct ig_reply *r, const struct ig_part *p, struct ig_strbuf *out)
{
	struct ig_choice *c = &r->choices[0];
	bool custom = p->kind == IG_PART_CALL && ig_response_is_custom(r, p);

	begin(r, out,
	      p->kind == IG_PART_TEXT	   ? "response.output_text.delta" :
	      p->kind == IG_PART_REASONING ? "response.reasoning_text.delta" :
	      custom			   ? "response.custom_tool_call_input.delta" :
					     "response.function_call_arguments.delta");
	place(r, p, out);
	ig_strbuf_puts(out, ",\"delta\":");
	if (custom)
		ig_response_custom_input(p, out);
	else
		ig_strbuf_json(out, p->text.data + c->n_sent, p->text.len - c->n_sent);
	c->n_sent = p->text.len;
	if (p->kind == IG_PART_TEXT) {
		if (c->n_notes_sent < p->first_note)
			c->n_notes_sent = p->first_note;
		ig_response_logprobs(r, c->n_notes_sent, p->end_note, false, out);
		if (p->end_note > c->n_notes_sent)
			c->n_notes_sent = p->end_note;
	}
	end(r, out);
}

static void text_done(struct ig_reply *r, const struct ig_part *p, struct ig_strbuf *out)
{
	bool custom = p->kind == IG_PART_CALL && ig_response_is_custom(r, p);

	begin(r, out,
	      p->kind == IG_PART_TEXT	   ? "response.output_text.done" :
	      p->kind == IG_PART_REASONING ? "response.reasoning_text.done" :
	      custom			   ? "response.custom_tool_call_input.done" :
					     "response.function_call_arguments.done");
	place(r, p, out);
	if (p->kind == IG_PART_CALL && !custom) {
		ig_strbuf_puts(out, ",\"name\":");
		ig_json_text(out, p->name);
	}
	ig_strbuf_puts(out, p->kind != IG_PART_CALL ? ",\"text\":" :
			    custom		    ? ",\"input\":" :
						      ",\"arguments\":");
	if (custom)
		ig_response_custom_input(p, out);
	else
		ig_response_text(out, &p->text);
	if (p->kind == IG_PART_TEXT)
		ig_response_logprobs(r, p->first_note, p->end_note, false, out);
	end(r, out);
}

static void item_event(struct ig_reply *r, bool done, struct ig_strbuf *out)
{
	begin(r, out, done ? "response.output_item.done" : "response.output_item.added");
	ig_strbuf_printf(out, ",\"output_index\":%zu,\"item\":", r->choices[0].part);
	ig_response_item(r, r->choices[0].part, done, out);
	end(r, out);
}

static void content_event(struct ig_reply *r, const struct ig_part *p, bool done,
			  struct ig_strbuf *out)
{
	begin(r, out, done ? "response.content_part.done" : "response.content_part.added");
	place(r, p, out);
	ig_strbuf_puts(out, ",\"part\":");
	ig_response_content(r, p, done, out);
	end(r, out);
}

/* A custom tool's input is known when its arguments are whole. */
static bool has_delta(const struct ig_reply *r, const struct ig_part *p)
{
	return p->text.len > r->choices[0].n_sent &&
	       (p->done || p->kind != IG_PART_CALL || !ig_response_is_custom(r, p));
}

/* One event of the part under way; false: nothing is new. */
static bool part_event(struct ig_reply *r, struct ig_strbuf *out)
{
	struct ig_choice *c = &r->choices[0];
	const struct ig_part *p = &c->parts[c->part];
	bool has_content = p->kind != IG_PART_CALL;

	switch (c->stage) {
	case PART_ITEM:
		item_event(r, false, out);
		c->stage = has_content ? PART_CONTENT : PART_DELTA;
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
		if (!p->done)
			return false;
		text_done(r, p, out);
		c->stage = has_content ? PART_CONTENT_DONE : PART_ITEM_DONE;
		return true;
	case PART_CONTENT_DONE:
		content_event(r, p, true, out);
		c->stage = PART_ITEM_DONE;
		return true;
	default:
		item_event(r, true, out);
		c->stage = PART_ITEM;
		c->part++;
		c->n_sent = 0;
		return true;
	}
}

/* One event of the parts; false: the engine has nothing new, or there are no more. */
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
	case STAGE_ERROR:
		error_event(r, out);
		return true;
	default:
		return false;
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
	.form_param = "text.format",
	.recall = ig_responses_recall,
	.complete = ig_items_link,
	.merges_system = true,
	.parse = ig_request_parse_create,
	.next = next,
	.whole = whole,
	.wait = write_wait,
	.error = ig_error_object,
};

static void count(struct ig_reply *r, struct ig_strbuf *out)
{
	ig_strbuf_printf(out, "{\"object\":\"response.input_tokens\",\"input_tokens\":%zu}",
			 r->prepared.prompts[0].n);
}

const struct ig_protocol ig_input_tokens_protocol = {
	.id_prefix = "resp_",
	.prompt_param = "input",
	.form_param = "text.format",
	.recall = ig_responses_recall,
	.complete = ig_items_link,
	.merges_system = true,
	.parse = ig_request_parse_input_tokens,
	.whole = count,
	.error = ig_error_object,
	.immediate = true,
};

/* ---- the WebSocket's own events ---------------------------------------------------- */

void ig_ws_error_event(struct ig_strbuf *out, const struct ig_api_error *e, const char *stream_id)
{
	ig_strbuf_printf(out, "{\"type\":\"error\",\"status\":%d,\"error\":", e->status);
	ig_error_members(out, e);
	if (e->retry_after_s)
		ig_strbuf_printf(out, ",\"retry_after\":%u", e->retry_after_s);
	lane(out, stream_id);
	ig_strbuf_puts(out, "}");
}

void ig_ws_steer_failed(struct ig_strbuf *out, const char *steer, const char *stream_id)
{
	ig_strbuf_printf(out,
			 "{\"type\":\"response.steer.failed\",\"sequence_number\":0,"
			 "\"steer\":%s,\"error\":{\"type\":\"invalid_request_error\","
			 "\"code\":\"steering_not_supported\","
			 "\"message\":\"This server can't steer a response.\"}",
			 steer);
	lane(out, stream_id);
	ig_strbuf_puts(out, "}");
}
