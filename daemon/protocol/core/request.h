/*
 * request.h: bytes of a client to a request that is checked.
 *
 * Whatever the protocol, a request becomes the same things: messages in the form that
 * chat templates read (OpenAI's chat completions), tools in that form, how to draw, what
 * form the answer must have.  Every parameter works, or is accepted at values that change
 * nothing, or is refused by name.  Pure functions of their input: any thread, no globals.
 */
#pragma once

#include "daemon/engine/sampling.h"
#include "daemon/protocol/core/errors.h"

#include "base/json.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IG_MAX_STREAM_ID 256
#define IG_MAX_CHOICES 128 /* of one request: prompts times n */

/* A prompt that is not a conversation: text, or tokens. */
struct ig_prompt {
	char *text; /* NULL: ids */
	size_t len;
	int32_t *ids;
	size_t n_ids;
};

enum ig_output_format { /* what the text of an answer must be */
			IG_OUTPUT_FREE,
			IG_OUTPUT_OBJECT, /* any JSON object */
			IG_OUTPUT_SCHEMA,
			IG_OUTPUT_REGEX,
};

enum ig_tool_choice {
	IG_TOOLS_AUTO,
	IG_TOOLS_NONE,	   /* the model is not told of them */
	IG_TOOLS_REQUIRED, /* at least one call */
	IG_TOOLS_NAMED,	   /* a call of tool_name */
};

struct ig_request {
	int notice;  /* not 0: about other requests, as its protocol says; nothing is prepared */
	char *model; /* NULL: the default one */

	/* ---- what the model reads: a conversation … ---- */
	char *instructions;    /* a system message before all others; NULL: none */
	json_t *history;       /* messages of what this continues, between them; NULL: none */
	json_t *messages;      /* a list of {"role", "content", "tool_calls" …}; NULL: prompts */
	json_t *tools;	       /* a list of {"type": "function", "function": …}; NULL: none */
	json_t *template_vars; /* an object, chat_template_kwargs; NULL: none */
	/* … or prompts */
	struct ig_prompt *prompts; /* [n_prompts] */
	size_t n_prompts;

	/* ---- how the answer is drawn ---- */
	struct ig_sampling sampling;
	bool has_seed;
	int32_t n; /* choices of a prompt; at least 1 */
	bool logprobs;
	int32_t n_top; /* alternatives of each token, with logprobs */

	/* ---- its form ---- */
	enum ig_output_format form;
	json_t *schema; /* of IG_OUTPUT_SCHEMA */
	char *regex;	/* of IG_OUTPUT_REGEX */
	enum ig_tool_choice tool_choice;
	char *tool_name; /* of IG_TOOLS_NAMED */
	bool parallel_tool_calls;

	/* ---- how it is given ---- */
	bool stream, include_usage, store;
	bool echo;	  /* completions: the prompt's text comes first */
	bool plain;	  /* tokenize: no BOS, no assistant's turn; control tokens are text */
	bool token_texts; /* tokenize: the tokens' texts, too */
	bool wait;	  /* load: the answer comes when it is loaded */
	char *metadata;	  /* a JSON object; NULL: none */
	json_t *said;	  /* an object: parameters that come back as they were sent; NULL: none */

	/* ---- Responses ---- */
	json_t *items; /* of the input, as they are listed but for their ids */
	char stream_id[IG_MAX_STREAM_ID + 1]; /* "": the default lane; set before any error */
	char *previous_id;		      /* previous_response_id; NULL: none */
	bool warm_up;			      /* generate: false */
	char *response_id;		      /* of a cancel; NULL: none */
	char *steer; /* of a steer: what came, as a JSON object to send back */
};

/* 0, or -1 with *e filled in.  r is to be finished in either case. */
typedef int ig_request_parse(const char *text, size_t len, struct ig_request *r,
			     struct ig_api_error *e);
void ig_request_finish(struct ig_request *r);
