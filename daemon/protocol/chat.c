/*
 * chat.c: the answers of /v1/chat/completions: chunks as SSE frames, or one object.
 *
 * Role goes out once and at once; the usage chunk, if asked for, comes last before
 * [DONE]; an error in mid-stream is a frame with an error object, and nothing
 * follows it.
 */
#include "daemon/protocol/api-private.h"

#include <string.h>

#define MAX_DELTA 4096

enum stage { STAGE_ROLE, STAGE_TEXT, STAGE_FINISH, STAGE_END };

static void head(struct ig_reply *r, struct ig_strbuf *out, const char *object)
{
	ig_strbuf_printf(out, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", r->id,
			 object, (long long)r->created_s);
	ig_json_text(out, r->model->name);
}

/* The client's own labels, once in an answer. */
static void metadata(struct ig_reply *r, struct ig_strbuf *out)
{
	if (!r->request.metadata)
		return;
	ig_strbuf_puts(out, ",\"metadata\":");
	ig_strbuf_puts(out, r->request.metadata);
}

static void usage(struct ig_reply *r, struct ig_strbuf *out)
{
	struct ig_usage u;

	ig_reply_usage(r, &u);
	ig_strbuf_printf(out, ",\"usage\":{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,"
			 "\"total_tokens\":%lld,\"prompt_tokens_details\":{\"cached_tokens\":%lld},"
			 "\"completion_tokens_details\":{\"reasoning_tokens\":0}}",
			 (long long)u.prompt, (long long)u.output, (long long)(u.prompt + u.output),
			 (long long)u.cached);
}

static const char *finish_reason(const struct ig_reply *r)
{
	return r->calls[0].result.finish == IG_FINISH_LENGTH ? "length" : "stop";
}

/* The text of the answer so far. */
static const struct ig_strbuf *text_of(const struct ig_reply *r)
{
	static const struct ig_strbuf none;

	return r->calls[0].n_parts ? &r->calls[0].parts[0].text : &none;
}

static void chunk_begin(struct ig_reply *r, struct ig_strbuf *out)
{
	ig_strbuf_puts(out, "data: ");
	head(r, out, "chat.completion.chunk");
	if (r->stage == STAGE_ROLE)
		metadata(r, out);
	ig_strbuf_puts(out, ",\"choices\":[");
}

static void chunk_end(struct ig_reply *r, struct ig_strbuf *out)
{
	ig_strbuf_puts(out, r->request.include_usage ? "],\"usage\":null}\n\n" : "]}\n\n");
}

static bool text_frame(struct ig_reply *r, struct ig_strbuf *out)
{
	struct ig_call *c = &r->calls[0];

	ig_reply_take(r, MAX_DELTA);
	const struct ig_strbuf *text = text_of(r);
	if (text->len > c->n_sent) {
		chunk_begin(r, out);
		ig_strbuf_puts(out, "{\"index\":0,\"delta\":{\"content\":");
		ig_strbuf_json(out, text->data + c->n_sent, text->len - c->n_sent);
		ig_strbuf_puts(out, "},\"logprobs\":null,\"finish_reason\":null}");
		chunk_end(r, out);
		c->n_sent = text->len;
		return true;
	}
	if (r->finished) {
		if (!r->error.status) {
			r->stage = STAGE_FINISH;
			return false;
		}
		ig_strbuf_puts(out, "data: ");
		ig_error_object(out, &r->error);
		ig_strbuf_puts(out, "\n\n");
		r->stage = STAGE_END;
		return true;
	}
	if (!r->keepalive)
		return false;
	ig_strbuf_puts(out, ": keep-alive\n\n");
	return true;
}

static bool next(struct ig_reply *r, struct ig_strbuf *out, bool *last)
{
	bool some = false;

	if (r->stage == STAGE_ROLE) {
		chunk_begin(r, out);
		ig_strbuf_puts(out, "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
			       "\"logprobs\":null,\"finish_reason\":null}");
		chunk_end(r, out);
		r->stage = STAGE_TEXT;
		some = true;
	} else if (r->stage == STAGE_TEXT) {
		some = text_frame(r, out);
	}
	if (r->stage == STAGE_FINISH) {
		chunk_begin(r, out);
		ig_strbuf_printf(out, "{\"index\":0,\"delta\":{},\"logprobs\":null,"
				 "\"finish_reason\":\"%s\"}", finish_reason(r));
		chunk_end(r, out);
		if (r->request.include_usage) {
			chunk_begin(r, out);
			ig_strbuf_puts(out, "]");
			usage(r, out);
			ig_strbuf_puts(out, "}\n\n");
		}
		ig_strbuf_puts(out, "data: [DONE]\n\n");
		r->stage = STAGE_END;
		some = true;
	}
	if (some)
		ig_reply_wrote(r);
	*last = r->stage == STAGE_END;
	return some;
}

static void whole(struct ig_reply *r, struct ig_strbuf *out)
{
	head(r, out, "chat.completion");
	metadata(r, out);
	ig_strbuf_puts(out, ",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\","
		       "\"content\":");
	ig_strbuf_json(out, text_of(r)->len ? text_of(r)->data : "", text_of(r)->len);
	ig_strbuf_printf(out, ",\"refusal\":null,\"annotations\":[]},\"logprobs\":null,"
			 "\"finish_reason\":\"%s\"}]", finish_reason(r));
	usage(r, out);
	ig_strbuf_puts(out, "}");
}

const struct ig_protocol ig_chat_protocol = {
	.path = "/v1/chat/completions",
	.id_prefix = "chatcmpl-",
	.prompt_param = "messages",
	.parse = ig_request_parse_chat,
	.next = next,
	.whole = whole,
	.error = ig_error_object,
};
