/*
 * request.h: a client's body to a checked request.  All protocols produce the same struct: messages
 * and tools in the format of OpenAI's chat completions, which chat templates read; sampling; the
 * response format.  Every parameter works, or is accepted at values without effect, or is left out
 * and named, or is refused by name.  Pure functions of their input: any thread, no globals.
 */
#pragma once

#include "daemon/engine/sampling.h"
#include "daemon/protocol/core/errors.h"
#include "store/keys.h"
#include "store/ledger.h"

#include "base/json.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IG_MAX_STREAM_ID 256
#define IG_MAX_CHOICES 128 /* of one request: prompts times n */

/* A prompt of text or tokens. */
struct ig_prompt {
	char *text; /* NULL: ids */
	size_t len;
	int32_t *ids;
	size_t n_ids;
};

enum ig_output_format { /* the response format */
			IG_OUTPUT_FREE,
			IG_OUTPUT_OBJECT, /* any JSON object */
			IG_OUTPUT_SCHEMA,
			IG_OUTPUT_REGEX,
};

enum ig_tool_choice {
	IG_TOOLS_AUTO,
	IG_TOOLS_NONE,	   /* they are not in the prompt */
	IG_TOOLS_REQUIRED, /* at least one call */
	IG_TOOLS_NAMED,	   /* a call of tool_name */
};

enum ig_think { IG_THINK_UNSET, IG_THINK_ON, IG_THINK_OFF };

/* An API key that is added. */
struct ig_new_key {
	struct ig_key key;
	char token[IG_KEY_TOKEN_CAP]; /* once it is made */
};

struct ig_request {
	int notice;  /* not 0: its protocol's message about other requests; not prepared */
	char *model; /* NULL: the default one */

	/* ---- the input: a conversation … ---- */
	json_t *instructions; /* a text: a system message at the start; NULL: none */
	json_t *history;      /* messages of the response that it continues; NULL: none */
	json_t *messages;     /* a list of {"role", "content", "tool_calls" …}; NULL: prompts */
	bool continues;	      /* the last message is the assistant's: the output continues it */
	json_t *tools;	      /* a list of {"type": "function", "function": …}; NULL: none */
	/* An object, by the names of custom tools: the grammar of its input, {"syntax", "definition",
	 * "at"}; NULL: none has one. */
	json_t *formats;
	json_t *template_vars; /* an object, chat_template_kwargs; NULL: none */
	/* … or prompts */
	struct ig_prompt *prompts; /* [n_prompts] */
	size_t n_prompts;

	json_t *prediction; /* a string: what the output may be; NULL: none */

	/* ---- sampling ---- */
	struct ig_sampling sampling;
	bool has_seed;
	int32_t n; /* choices of a prompt; at least 1 */
	bool logprobs;
	int32_t n_top; /* alternatives of each token, with logprobs */

	/* ---- beside other requests ---- */
	bool has_priority;
	int32_t priority;  /* as asked for; see ig_reply_priority */
	double deadline_s; /* from its arrival; 0: none */

	bool verbatim;	   /* no rule changes its prompt */
	bool cache_report; /* the response says why the prompt was not cached */
	char *compare_id;  /* and compares it with this one; NULL: with the most similar */

	bool omits_reasoning; /* messages: the response has blocks of thinking without text */

	/* ---- the format of the output ---- */
	enum ig_output_format form;
	json_t *schema; /* of IG_OUTPUT_SCHEMA */
	char *regex;	/* of IG_OUTPUT_REGEX */
	enum ig_tool_choice tool_choice;
	char *tool_name; /* of IG_TOOLS_NAMED */
	bool parallel_tool_calls;

	/* ---- how it is returned ---- */
	bool stream, include_usage, store;
	bool echo;	  /* completions: the prompt's text comes first */
	bool plain;	  /* tokenize: no BOS, no generation prompt; control tokens are text */
	bool token_texts; /* tokenize: also the tokens' texts */
	bool pinned;	  /* pin: it is never unloaded to free memory */
	bool wait;	  /* load: reply when the model is loaded */
	bool no_output;	  /* the model is loaded or unloaded; nothing is generated */
	char *metadata;	  /* a JSON object; NULL: none */
	json_t *repeated; /* an object: parameters that the response repeats; NULL: none */

	/* ---- Ollama ---- */
	enum ig_think think;
	bool has_keep_alive;
	int64_t keep_alive_ns; /* as of ig_engine_set_keep_alive */

	/* ---- Responses ---- */
	json_t *items;			      /* of the input, as they are listed, without ids */
	char stream_id[IG_MAX_STREAM_ID + 1]; /* "": the default lane; set before any error */
	char *previous_id;		      /* previous_response_id; NULL: none */
	bool warm_up;			      /* generate: false */
	json_t *namespaces; /* an object: by the name of a tool its namespace and name in it */
	char *response_id;  /* of a cancel; NULL: none */
	char *steer;	    /* of a steer: a JSON object to return */

	/* ---- embeddings and scores: of each of the prompts ---- */
	int32_t dimensions; /* of a vector; 0: all */
	bool base64;
	bool raw_vectors;	/* not scaled to length 1 */
	bool truncate;		/* a text that is too long is cut */
	char *query;		/* of a reranker */
	int32_t top_n;		/* the best; 0: all */
	int32_t max_doc_tokens; /* 0: as many as the context takes */
	bool return_documents;

	/* ---- keys ---- */
	struct ig_new_key *new_key; /* to add; NULL: none */

	/* ---- what is not known here ---- */
	bool refuse_unknown;	      /* an error names it; false: ignored does */
	char ignored[IG_IGNORED_CAP]; /* "context_management, tools[4].type=x"; "": nothing */
};

struct ig_request_format; /* params.h */

/* A body to a request: 0, or -1 with *e filled in.  r must be finished in either case.
 * refuse_unknown: what is not known here is an error; else it is left out, and r->ignored names
 * it. */
int ig_request_read(const struct ig_request_format *format, const char *text, size_t len,
		    bool refuse_unknown, struct ig_request *r, struct ig_api_error *e);
void ig_request_finish(struct ig_request *r);
