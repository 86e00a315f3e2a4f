/*
 * chat.c: the answers of /v1/chat/completions: chunks as SSE frames, or one object.
 *
 * Role goes out once and at once; the usage chunk, if asked for, comes last before
 * [DONE]; an error in mid-stream is a frame with an error object, and nothing
 * follows it.
 */
#include "daemon/protocol/api-private.h"

#include "base/clock.h"

#include <string.h>

#define MAX_DELTA 4096

enum stage { STAGE_ROLE, STAGE_TEXT, STAGE_FINISH, STAGE_END };

static void head(struct ig_call *c, struct ig_strbuf *out, const char *object)
{
	ig_strbuf_printf(out, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", c->id,
			 object, (long long)c->created_s);
	ig_json_text(out, c->model->name);
}

/* The client's own labels, once in an answer. */
static void metadata(struct ig_call *c, struct ig_strbuf *out)
{
	if (!c->request.metadata)
		return;
	ig_strbuf_puts(out, ",\"metadata\":");
	ig_strbuf_puts(out, c->request.metadata);
}

static void usage(struct ig_call *c, struct ig_strbuf *out)
{
	ig_strbuf_printf(out, ",\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,"
			 "\"total_tokens\":%lld,\"prompt_tokens_details\":{\"cached_tokens\":%d},"
			 "\"completion_tokens_details\":{\"reasoning_tokens\":0}}",
			 c->result.n_prompt, c->result.n_output,
			 (long long)c->result.n_prompt + c->result.n_output, c->result.n_cached);
}

static const char *finish_reason(const struct ig_call *c)
{
	return c->result.finish == IG_FINISH_LENGTH ? "length" : "stop";
}

static void chunk_begin(struct ig_call *c, struct ig_strbuf *out)
{
	ig_strbuf_puts(out, "data: ");
	head(c, out, "chat.completion.chunk");
	if (c->stage == STAGE_ROLE)
		metadata(c, out);
	ig_strbuf_puts(out, ",\"choices\":[");
}

static void chunk_end(struct ig_call *c, struct ig_strbuf *out)
{
	ig_strbuf_puts(out, c->request.include_usage ? "],\"usage\":null}\n\n" : "]}\n\n");
}

static bool text_frame(struct ig_call *c, struct ig_strbuf *out)
{
	struct ig_api_error e;

	ig_call_take(c, MAX_DELTA);
	if (c->text.len > c->n_sent) {
		chunk_begin(c, out);
		ig_strbuf_puts(out, "{\"index\":0,\"delta\":{\"content\":");
		ig_strbuf_json(out, c->text.data + c->n_sent, c->text.len - c->n_sent);
		ig_strbuf_puts(out, "},\"logprobs\":null,\"finish_reason\":null}");
		chunk_end(c, out);
		c->n_sent = c->text.len;
		return true;
	}
	if (c->finished) {
		ig_result_error(&c->result, &e);
		if (!e.status) {
			c->stage = STAGE_FINISH;
			return false;
		}
		ig_strbuf_puts(out, "data: ");
		ig_error_object(out, &e);
		ig_strbuf_puts(out, "\n\n");
		c->stage = STAGE_END;
		return true;
	}
	if (!c->keepalive)
		return false;
	ig_strbuf_puts(out, ": keep-alive\n\n");
	return true;
}

bool ig_chat_frames(struct ig_call *c, struct ig_strbuf *out, bool *last)
{
	bool some = false;

	if (c->stage == STAGE_ROLE) {
		chunk_begin(c, out);
		ig_strbuf_puts(out, "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
			       "\"logprobs\":null,\"finish_reason\":null}");
		chunk_end(c, out);
		c->stage = STAGE_TEXT;
		some = true;
	} else if (c->stage == STAGE_TEXT) {
		some = text_frame(c, out);
	}
	if (c->stage == STAGE_FINISH) {
		chunk_begin(c, out);
		ig_strbuf_printf(out, "{\"index\":0,\"delta\":{},\"logprobs\":null,"
				 "\"finish_reason\":\"%s\"}", finish_reason(c));
		chunk_end(c, out);
		if (c->request.include_usage) {
			chunk_begin(c, out);
			ig_strbuf_puts(out, "]");
			usage(c, out);
			ig_strbuf_puts(out, "}\n\n");
		}
		ig_strbuf_puts(out, "data: [DONE]\n\n");
		c->stage = STAGE_END;
		some = true;
	}
	if (some) {
		c->keepalive = false;
		c->last_output_ns = ig_now_ns();
	}
	*last = c->stage == STAGE_END;
	return some;
}

void ig_chat_whole(struct ig_call *c, struct ig_strbuf *out)
{
	head(c, out, "chat.completion");
	metadata(c, out);
	ig_strbuf_puts(out, ",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\","
		       "\"content\":");
	ig_strbuf_json(out, c->text.len ? c->text.data : "", c->text.len);
	ig_strbuf_printf(out, ",\"refusal\":null,\"annotations\":[]},\"logprobs\":null,"
			 "\"finish_reason\":\"%s\"}]", finish_reason(c));
	usage(c, out);
	ig_strbuf_puts(out, "}");
}
