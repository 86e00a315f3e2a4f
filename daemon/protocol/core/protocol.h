/* protocol.h: the table by which the core drives a protocol. */
#pragma once

#include "daemon/protocol/core/request.h"

struct ig_api;
struct ig_principal;
struct ig_reply;

/* What a request wants of its model. */
enum ig_task { IG_TASK_GENERATE, IG_TASK_EMBED, IG_TASK_RANK };

struct ig_protocol {
	const char *id_prefix;
	/* The names of the prompt and of the response format in errors: messages, prompt, input;
	 * response_format, text.format … */
	const char *prompt_param, *format_param;
	const struct ig_request_format *request;
	/* Write the next SSE frames, or one event, of a stream; false: none now.  *last is set with
	 * the final one.  NULL: it never streams. */
	bool (*next)(struct ig_reply *r, struct ig_strbuf *out, bool *last);
	/* The content type of its streams; NULL: server-sent events. */
	const char *stream_type;
	/* Write the whole response, when the reply is finished. */
	void (*whole)(struct ig_reply *r, struct ig_strbuf *out);
	/* Write the body of an error. */
	void (*error)(struct ig_strbuf *out, const struct ig_api_error *e);
	/* Write a keep-alive of a stream that is being prepared (prep may have it: read nothing of
	 * prepared) or whose model is being loaded.  True: another follows at once.  NULL: it never
	 * streams. */
	bool (*wait)(struct ig_reply *r, struct ig_strbuf *out);
	/* The HTTP status of whole; NULL: 200. */
	int (*status)(const struct ig_reply *r);

	/* ---- optional; NULL: nothing ---- */

	/* The loop: set the history of a request with a previous_id.  connection NULL: none.
	 * -1 with *e: this key and connection have no such response. */
	int (*recall)(struct ig_api *api, struct ig_request *q, const struct ig_principal *who,
		      const void *connection, struct ig_api_error *e);
	/* Prep: complete a request's messages, once it has its history. */
	int (*complete)(struct ig_request *q, struct ig_api_error *e);
	/* Prep: instead of preparing a prompt (ig_prepare_prompt). */
	void (*act)(struct ig_reply *r);
	/* The loop, at its submission: start what is no generation of the engine (r->child).  -1 with
	 * *e: it could not be started. */
	int (*start)(struct ig_reply *r, struct ig_api_error *e);

	/* Prep: the error of a prompt of n tokens (or more) where max are possible; NULL:
	 * context_length_exceeded. */
	int (*fail_length)(struct ig_api_error *e, size_t n, size_t max);
	/* Prep: whether a prompt of n tokens, which fits, leaves enough of the context for the
	 * output. */
	int (*check_room)(const struct ig_request *q, size_t n, size_t context,
			  struct ig_api_error *e);

	/* A prompt that is too long for the context fails as a stream, with events, not as a 400:
	 * that is what agents compact their history at. */
	bool streams_overflow;
	enum ig_task task;
	bool immediate;	     /* nothing is generated: complete after prep */
	bool administrative; /* not in the ledger */
};
