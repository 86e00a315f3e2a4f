/*
 * events.c: one response's events on the Responses WebSocket, in their order.
 *
 * Written as text straight into the connection's buffer.  ig_response_event is a
 * small machine: c->stage says which event comes next, and the stage of deltas
 * lasts until the engine has finished.
 */
#include "daemon/protocol/api-private.h"

#include "base/clock.h"
#include "daemon/protocol/utf8.h"

#include <string.h>

/* Text of one delta at most: a client that reads slowly gets fewer, larger ones. */
#define MAX_DELTA 4096

enum stage {
	STAGE_CREATED,
	STAGE_IN_PROGRESS,
	STAGE_ITEM,
	STAGE_PART,
	STAGE_TEXT,
	STAGE_TEXT_DONE,
	STAGE_PART_DONE,
	STAGE_ITEM_DONE,
	STAGE_FINAL,
	STAGE_END,
};

static void begin(struct ig_call *c, struct ig_strbuf *out, const char *type)
{
	ig_strbuf_printf(out, "{\"type\":\"%s\",\"sequence_number\":%d", type, c->sequence++);
	if (c->request.stream_id[0]) {
		ig_strbuf_puts(out, ",\"stream_id\":");
		ig_json_text(out, c->request.stream_id);
	}
}

static void text_part(struct ig_call *c, struct ig_strbuf *out, bool whole)
{
	ig_strbuf_puts(out, "{\"type\":\"output_text\",\"text\":");
	ig_strbuf_json(out, whole && c->text.len ? c->text.data : "", whole ? c->text.len : 0);
	ig_strbuf_puts(out, ",\"annotations\":[],\"logprobs\":[]}");
}

static const char *item_status(const struct ig_call *c)
{
	return c->result.finish == IG_FINISH_STOP ? "completed" : "incomplete";
}

static void item(struct ig_call *c, struct ig_strbuf *out, bool done)
{
	ig_strbuf_printf(out, "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\","
			 "\"status\":\"%s\",\"content\":[", c->item_id,
			 done ? item_status(c) : "in_progress");
	if (done)
		text_part(c, out, true);
	ig_strbuf_puts(out, "]}");
}

/* Whether the answer got as far as an item. */
static bool has_item(const struct ig_call *c)
{
	return c->text.len || c->result.finish == IG_FINISH_STOP ||
	       c->result.finish == IG_FINISH_LENGTH;
}

static void response(struct ig_call *c, struct ig_strbuf *out, const char *status,
		     const struct ig_api_error *error)
{
	const struct ig_request *r = &c->request;
	bool done = c->stage >= STAGE_FINAL;

	ig_strbuf_printf(out, ",\"response\":{\"id\":\"%s\",\"object\":\"response\","
			 "\"created_at\":%lld,\"status\":\"%s\",\"background\":false,\"error\":",
			 c->id, (long long)c->created_s, status);
	if (error) {
		char text[sizeof error->message];
		ig_strbuf_puts(out, "{\"code\":");
		ig_json_text(out, error->code);
		ig_strbuf_puts(out, ",\"message\":");
		ig_utf8_copy(text, sizeof text, error->message);
		ig_json_text(out, text);
		ig_strbuf_puts(out, "}");
	} else {
		ig_strbuf_puts(out, "null");
	}
	ig_strbuf_puts(out, ",\"incomplete_details\":");
	ig_strbuf_puts(out, done && c->result.finish == IG_FINISH_LENGTH ?
		       "{\"reason\":\"max_output_tokens\"}" : "null");
	ig_strbuf_puts(out, ",\"instructions\":");
	ig_json_text(out, r->instructions);
	if (r->max_tokens)
		ig_strbuf_printf(out, ",\"max_output_tokens\":%d", r->max_tokens);
	else
		ig_strbuf_puts(out, ",\"max_output_tokens\":null");
	ig_strbuf_puts(out, ",\"model\":");
	ig_json_text(out, c->model->name);
	ig_strbuf_puts(out, ",\"output\":[");
	if (done && has_item(c))
		item(c, out, true);
	ig_strbuf_printf(out, "],\"parallel_tool_calls\":%s,\"previous_response_id\":null,"
			 "\"reasoning\":null,\"store\":%s,\"temperature\":%.7g,"
			 "\"text\":{\"format\":{\"type\":\"text\"}},\"tool_choice\":\"%s\","
			 "\"tools\":[],\"top_p\":%.7g,\"truncation\":\"disabled\",\"usage\":",
			 r->parallel_tool_calls ? "true" : "false", r->store ? "true" : "false",
			 r->temperature, r->tool_choice_none ? "none" : "auto", r->top_p);
	if (done)
		ig_strbuf_printf(out, "{\"input_tokens\":%d,\"input_tokens_details\":"
				 "{\"cached_tokens\":%d,\"cache_write_tokens\":0},"
				 "\"output_tokens\":%d,\"output_tokens_details\":"
				 "{\"reasoning_tokens\":0},\"total_tokens\":%lld}",
				 c->result.n_prompt, c->result.n_cached, c->result.n_output,
				 (long long)c->result.n_prompt + c->result.n_output);
	else
		ig_strbuf_puts(out, "null");
	ig_strbuf_printf(out, ",\"metadata\":%s}", r->metadata ? r->metadata : "{}");
}

static void response_event(struct ig_call *c, struct ig_strbuf *out, const char *type,
			   const char *status, const struct ig_api_error *error)
{
	begin(c, out, type);
	response(c, out, status, error);
	ig_strbuf_puts(out, "}");
}

static void place(struct ig_call *c, struct ig_strbuf *out)
{
	ig_strbuf_printf(out, ",\"item_id\":\"%s\",\"output_index\":0,\"content_index\":0",
			 c->item_id);
}

static void final_event(struct ig_call *c, struct ig_strbuf *out)
{
	struct ig_api_error e;

	switch (c->result.finish) {
	case IG_FINISH_STOP:
		response_event(c, out, "response.completed", "completed", NULL);
		return;
	case IG_FINISH_LENGTH:
		response_event(c, out, "response.incomplete", "incomplete", NULL);
		return;
	case IG_FINISH_CANCELLED:
		if (!strcmp(c->result.cancel_reason, "client_cancel")) {
			response_event(c, out, "response.incomplete", "cancelled", NULL);
			return;
		}
		break;
	default:
		break;
	}
	ig_result_error(&c->result, &e);
	response_event(c, out, "response.failed", "failed", &e);
}

/* Something to do in the stages that wait for the engine. */
static bool have_news(struct ig_call *c)
{
	if (c->text.len == c->n_sent)
		ig_call_take(c, MAX_DELTA);
	return c->text.len > c->n_sent || c->finished;
}

static bool keepalive(struct ig_call *c, struct ig_strbuf *out)
{
	if (!c->keepalive)
		return false;
	response_event(c, out, "response.in_progress", "in_progress", NULL);
	return true;
}

static void delta(struct ig_call *c, struct ig_strbuf *out)
{
	begin(c, out, "response.output_text.delta");
	place(c, out);
	ig_strbuf_puts(out, ",\"delta\":");
	ig_strbuf_json(out, c->text.data + c->n_sent, c->text.len - c->n_sent);
	ig_strbuf_puts(out, ",\"logprobs\":[]}");
	c->n_sent = c->text.len;
}

static bool next_event(struct ig_call *c, struct ig_strbuf *out)
{
	switch (c->stage) {
	case STAGE_CREATED:
		response_event(c, out, "response.created", "in_progress", NULL);
		break;
	case STAGE_IN_PROGRESS:
		response_event(c, out, "response.in_progress", "in_progress", NULL);
		break;
	case STAGE_ITEM:
		if (!have_news(c))
			return keepalive(c, out);
		if (!has_item(c)) {
			c->stage = STAGE_FINAL;
			return next_event(c, out);
		}
		begin(c, out, "response.output_item.added");
		ig_strbuf_puts(out, ",\"output_index\":0,\"item\":");
		item(c, out, false);
		ig_strbuf_puts(out, "}");
		break;
	case STAGE_PART:
		begin(c, out, "response.content_part.added");
		place(c, out);
		ig_strbuf_puts(out, ",\"part\":");
		text_part(c, out, false);
		ig_strbuf_puts(out, "}");
		break;
	case STAGE_TEXT:
		if (!have_news(c))
			return keepalive(c, out);
		if (c->text.len > c->n_sent) {
			delta(c, out);
			return true;
		}
		c->stage = STAGE_TEXT_DONE;
		/* fall through */
	case STAGE_TEXT_DONE:
		begin(c, out, "response.output_text.done");
		place(c, out);
		ig_strbuf_puts(out, ",\"text\":");
		ig_strbuf_json(out, c->text.len ? c->text.data : "", c->text.len);
		ig_strbuf_puts(out, ",\"logprobs\":[]}");
		break;
	case STAGE_PART_DONE:
		begin(c, out, "response.content_part.done");
		place(c, out);
		ig_strbuf_puts(out, ",\"part\":");
		text_part(c, out, true);
		ig_strbuf_puts(out, "}");
		break;
	case STAGE_ITEM_DONE:
		begin(c, out, "response.output_item.done");
		ig_strbuf_puts(out, ",\"output_index\":0,\"item\":");
		item(c, out, true);
		ig_strbuf_puts(out, "}");
		break;
	case STAGE_FINAL:
		final_event(c, out);
		break;
	default:
		return false;
	}
	c->stage++;
	return true;
}

bool ig_response_event(struct ig_call *c, struct ig_strbuf *out, bool *last)
{
	bool some = next_event(c, out);

	if (some) {
		c->keepalive = false;
		c->last_output_ns = ig_now_ns();
	}
	*last = c->stage == STAGE_END;
	return some;
}

void ig_ws_error_event(struct ig_strbuf *out, const struct ig_api_error *e, const char *stream_id)
{
	ig_strbuf_printf(out, "{\"type\":\"error\",\"status\":%d,\"error\":", e->status);
	ig_error_members(out, e);
	if (e->retry_after_s)
		ig_strbuf_printf(out, ",\"retry_after\":%u", e->retry_after_s);
	if (stream_id && stream_id[0]) {
		ig_strbuf_puts(out, ",\"stream_id\":");
		ig_json_text(out, stream_id);
	}
	ig_strbuf_puts(out, "}");
}

void ig_ws_steer_failed(struct ig_strbuf *out, const char *steer, const char *stream_id)
{
	ig_strbuf_printf(out, "{\"type\":\"response.steer.failed\",\"sequence_number\":0,"
			 "\"steer\":%s,\"error\":{\"type\":\"invalid_request_error\","
			 "\"code\":\"steering_not_supported\","
			 "\"message\":\"This server can't steer a response.\"}", steer);
	if (stream_id && stream_id[0]) {
		ig_strbuf_puts(out, ",\"stream_id\":");
		ig_json_text(out, stream_id);
	}
	ig_strbuf_puts(out, "}");
}
