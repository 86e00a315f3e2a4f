/* protocol.h: what one protocol is to the core: a table. */
#pragma once

#include "daemon/protocol/core/request.h"

struct ig_api;
struct ig_principal;
struct ig_reply;

struct ig_protocol {
	const char *id_prefix;
	/* What a prompt, and the form of an answer, are called in errors: messages, prompt,
	 * input; response_format, text.format … */
	const char *prompt_param, *form_param;
	ig_request_parse *parse;
	/* The next pieces of a stream (SSE frames, or one event); false: none now.  *last is set
	 * with the final one.  NULL: it never streams. */
	bool (*next)(struct ig_reply *r, struct ig_strbuf *out, bool *last);
	/* All of it, when the reply is finished. */
	void (*whole)(struct ig_reply *r, struct ig_strbuf *out);
	/* The body of an error. */
	void (*error)(struct ig_strbuf *out, const struct ig_api_error *e);
	/* A keep-alive for a stream whose model is being loaded.  True: another follows at once.
	 * NULL: it never streams. */
	bool (*wait)(struct ig_reply *r, struct ig_strbuf *out);
	/* Of whole; NULL: 200. */
	int (*status)(const struct ig_reply *r);

	/* ---- what it does beside the others; each may be NULL ---- */

	/* The loop: the history of a request that has a previous_id.  connection NULL: none.
	 * -1 with *e: it continues nothing that this key, and connection, may see. */
	int (*recall)(struct ig_api *api, struct ig_request *q, const struct ig_principal *who,
		      const void *connection, struct ig_api_error *e);
	/* Prep: the last word on a request's messages, once its history is there. */
	int (*complete)(struct ig_request *q, struct ig_api_error *e);
	/* Prep: instead of preparing a prompt. */
	void (*act)(struct ig_reply *r);

	bool merges_system;  /* all leading system messages become one */
	bool immediate;	     /* nothing is generated: whole follows prep */
	bool administrative; /* about the daemon, no model's work: none of it is in the ledger */
};
