/*
 * responses.c: one response's events on the Responses WebSocket, in their order.
 *
 * Written as text straight into the connection's buffer.  next is a
 * small machine: r->stage says which event comes next, and the stage of deltas
 * lasts until the engine has finished.
 */
#include "daemon/protocol/api-private.h"

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

static void begin(struct ig_reply *r, struct ig_strbuf *out, const char *type)
{
	ig_strbuf_printf(out, "{\"type\":\"%s\",\"sequence_number\":%d", type, r->sequence++);
	if (r->request.stream_id[0]) {
		ig_strbuf_puts(out, ",\"stream_id\":");
		ig_json_text(out, r->request.stream_id);
	}
}

/* The text of the answer so far, and its item's id. */
static const struct ig_strbuf *text_of(const struct ig_reply *r)
{
	static const struct ig_strbuf none;

	return r->calls[0].n_parts ? &r->calls[0].parts[0].text : &none;
}

static const char *item_id(const struct ig_reply *r)
{
	return r->calls[0].n_parts ? r->calls[0].parts[0].id : r->id;
}

static void text_part(struct ig_reply *r, struct ig_strbuf *out, bool whole)
{
	ig_strbuf_puts(out, "{\"type\":\"output_text\",\"text\":");
	ig_strbuf_json(out, whole && text_of(r)->len ? text_of(r)->data : "",
		       whole ? text_of(r)->len : 0);
	ig_strbuf_puts(out, ",\"annotations\":[],\"logprobs\":[]}");
}

static const char *item_status(const struct ig_reply *r)
{
	return r->calls[0].result.finish == IG_FINISH_STOP ? "completed" : "incomplete";
}

static void item(struct ig_reply *r, struct ig_strbuf *out, bool done)
{
	ig_strbuf_printf(out, "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\","
			 "\"status\":\"%s\",\"content\":[", item_id(r),
			 done ? item_status(r) : "in_progress");
	if (done)
		text_part(r, out, true);
	ig_strbuf_puts(out, "]}");
}

/* Whether the answer got as far as an item. */
static bool has_item(const struct ig_reply *r)
{
	return text_of(r)->len || r->calls[0].result.finish == IG_FINISH_STOP ||
	       r->calls[0].result.finish == IG_FINISH_LENGTH;
}

static void response(struct ig_reply *r, struct ig_strbuf *out, const char *status,
		     const struct ig_api_error *error)
{
	const struct ig_request *q = &r->request;
	bool done = r->stage >= STAGE_FINAL;

	ig_strbuf_printf(out, ",\"response\":{\"id\":\"%s\",\"object\":\"response\","
			 "\"created_at\":%lld,\"status\":\"%s\",\"background\":false,\"error\":",
			 r->id, (long long)r->created_s, status);
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
	ig_strbuf_puts(out, done && r->calls[0].result.finish == IG_FINISH_LENGTH ?
		       "{\"reason\":\"max_output_tokens\"}" : "null");
	ig_strbuf_puts(out, ",\"instructions\":");
	ig_json_text(out, q->instructions);
	if (q->max_tokens)
		ig_strbuf_printf(out, ",\"max_output_tokens\":%d", q->max_tokens);
	else
		ig_strbuf_puts(out, ",\"max_output_tokens\":null");
	ig_strbuf_puts(out, ",\"model\":");
	ig_json_text(out, r->model->name);
	ig_strbuf_puts(out, ",\"output\":[");
	if (done && has_item(r))
		item(r, out, true);
	ig_strbuf_printf(out, "],\"parallel_tool_calls\":%s,\"previous_response_id\":null,"
			 "\"reasoning\":null,\"store\":%s,\"temperature\":%.7g,"
			 "\"text\":{\"format\":{\"type\":\"text\"}},\"tool_choice\":\"%s\","
			 "\"tools\":[],\"top_p\":%.7g,\"truncation\":\"disabled\",\"usage\":",
			 q->parallel_tool_calls ? "true" : "false", q->store ? "true" : "false",
			 q->temperature, q->tool_choice == IG_TOOLS_NONE ? "none" : "auto", q->top_p);
	if (done)
		ig_strbuf_printf(out, "{\"input_tokens\":%d,\"input_tokens_details\":"
				 "{\"cached_tokens\":%d,\"cache_write_tokens\":0},"
				 "\"output_tokens\":%d,\"output_tokens_details\":"
				 "{\"reasoning_tokens\":0},\"total_tokens\":%lld}",
				 r->calls[0].result.n_prompt, r->calls[0].result.n_cached, r->calls[0].result.n_output,
				 (long long)r->calls[0].result.n_prompt + r->calls[0].result.n_output);
	else
		ig_strbuf_puts(out, "null");
	ig_strbuf_printf(out, ",\"metadata\":%s}", q->metadata ? q->metadata : "{}");
}

static void response_event(struct ig_reply *r, struct ig_strbuf *out, const char *type,
			   const char *status, const struct ig_api_error *error)
{
	begin(r, out, type);
	response(r, out, status, error);
	ig_strbuf_puts(out, "}");
}

static void place(struct ig_reply *r, struct ig_strbuf *out)
{
	ig_strbuf_printf(out, ",\"item_id\":\"%s\",\"output_index\":0,\"content_index\":0",
			 item_id(r));
}

static void final_event(struct ig_reply *r, struct ig_strbuf *out)
{
	switch (r->calls[0].result.finish) {
	case IG_FINISH_STOP:
		response_event(r, out, "response.completed", "completed", NULL);
		return;
	case IG_FINISH_LENGTH:
		response_event(r, out, "response.incomplete", "incomplete", NULL);
		return;
	case IG_FINISH_CANCELLED:
		if (!strcmp(r->calls[0].result.cancel_reason, "client_cancel")) {
			response_event(r, out, "response.incomplete", "cancelled", NULL);
			return;
		}
		break;
	default:
		break;
	}
	response_event(r, out, "response.failed", "failed", &r->error);
}

/* Something to do in the stages that wait for the engine. */
static bool have_news(struct ig_reply *r)
{
	if (text_of(r)->len == r->calls[0].n_sent)
		ig_reply_take(r, MAX_DELTA);
	return text_of(r)->len > r->calls[0].n_sent || r->finished;
}

static bool keepalive(struct ig_reply *r, struct ig_strbuf *out)
{
	if (!r->keepalive)
		return false;
	response_event(r, out, "response.in_progress", "in_progress", NULL);
	return true;
}

static void delta(struct ig_reply *r, struct ig_strbuf *out)
{
	begin(r, out, "response.output_text.delta");
	place(r, out);
	ig_strbuf_puts(out, ",\"delta\":");
	ig_strbuf_json(out, text_of(r)->data + r->calls[0].n_sent, text_of(r)->len - r->calls[0].n_sent);
	ig_strbuf_puts(out, ",\"logprobs\":[]}");
	r->calls[0].n_sent = text_of(r)->len;
}

static bool next_event(struct ig_reply *r, struct ig_strbuf *out)
{
	switch (r->stage) {
	case STAGE_CREATED:
		response_event(r, out, "response.created", "in_progress", NULL);
		break;
	case STAGE_IN_PROGRESS:
		response_event(r, out, "response.in_progress", "in_progress", NULL);
		break;
	case STAGE_ITEM:
		if (!have_news(r))
			return keepalive(r, out);
		if (!has_item(r)) {
			r->stage = STAGE_FINAL;
			return next_event(r, out);
		}
		begin(r, out, "response.output_item.added");
		ig_strbuf_puts(out, ",\"output_index\":0,\"item\":");
		item(r, out, false);
		ig_strbuf_puts(out, "}");
		break;
	case STAGE_PART:
		begin(r, out, "response.content_part.added");
		place(r, out);
		ig_strbuf_puts(out, ",\"part\":");
		text_part(r, out, false);
		ig_strbuf_puts(out, "}");
		break;
	case STAGE_TEXT:
		if (!have_news(r))
			return keepalive(r, out);
		if (text_of(r)->len > r->calls[0].n_sent) {
			delta(r, out);
			return true;
		}
		r->stage = STAGE_TEXT_DONE;
		/* fall through */
	case STAGE_TEXT_DONE:
		begin(r, out, "response.output_text.done");
		place(r, out);
		ig_strbuf_puts(out, ",\"text\":");
		ig_strbuf_json(out, text_of(r)->len ? text_of(r)->data : "", text_of(r)->len);
		ig_strbuf_puts(out, ",\"logprobs\":[]}");
		break;
	case STAGE_PART_DONE:
		begin(r, out, "response.content_part.done");
		place(r, out);
		ig_strbuf_puts(out, ",\"part\":");
		text_part(r, out, true);
		ig_strbuf_puts(out, "}");
		break;
	case STAGE_ITEM_DONE:
		begin(r, out, "response.output_item.done");
		ig_strbuf_puts(out, ",\"output_index\":0,\"item\":");
		item(r, out, true);
		ig_strbuf_puts(out, "}");
		break;
	case STAGE_FINAL:
		final_event(r, out);
		break;
	default:
		return false;
	}
	r->stage++;
	return true;
}

static bool next(struct ig_reply *r, struct ig_strbuf *out, bool *last)
{
	bool some = next_event(r, out);

	if (some)
		ig_reply_wrote(r);
	*last = r->stage == STAGE_END;
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

const struct ig_protocol ig_responses_protocol = {
	.path = "/v1/responses",
	.id_prefix = "resp_",
	.prompt_param = "input",
	.form_param = "text.format",
	.parse = ig_request_parse_ws,
	.next = next,
	.error = ig_error_object,
};
