/* response.h: a request (response.create) and the events of its response, over a WebSocket: text,
 * finish reason, token counts and speed.  Uses no socket. */
#pragma once

#include <ingot/error.h>
#include <stdbool.h>

#include "base/strbuf.h"
#include "cli/chat/conversation.h"

struct ig_cli_request {
	const char *prompt;
	size_t prompt_len;		       /* UTF-8 */
	const struct ig_conversation *history; /* its turns come before the prompt; may be NULL */
	const char *model, *system;	       /* NULL: not given */
	bool has_max_tokens, has_temperature, has_top_p, has_top_k, has_seed;
	int64_t max_tokens, top_k;
	uint64_t seed;
	double temperature, top_p;
};

/* The options of a request; q is a struct ig_cli_request *. */
#define IG_CLI_REQUEST_OPTIONS(q)                                                                  \
	IG_TEXT("system", 's', &(q)->system, "TEXT", "the system message (instructions)"),         \
		IG_OPTION("max-tokens", 'n', IG_OPT_INT, &(q)->max_tokens, &(q)->has_max_tokens,   \
			  "N", "the most tokens of a response", 1, 100000000),                     \
		IG_OPTION("temperature", 't', IG_OPT_NUMBER, &(q)->temperature,                    \
			  &(q)->has_temperature, "T", "0 … 2; 0 takes the most probable token", 0, \
			  2),                                                                      \
		IG_OPTION("top-p", 0, IG_OPT_NUMBER, &(q)->top_p, &(q)->has_top_p, "P",            \
			  "sample from the most probable tokens whose sum is P", 0.000001, 1),     \
		IG_OPTION("top-k", 0, IG_OPT_INT, &(q)->top_k, &(q)->has_top_k, "K",               \
			  "sample from the K most probable tokens; 0: from all", 0, 10000000),     \
		IG_OPTION("seed", 0, IG_OPT_U64, &(q)->seed, &(q)->has_seed, "S",                  \
			  "seed of the sampling: the same seed gives the same response")

/* 0, or -EINVAL with text: the options' values cannot be sent. */
int ig_cli_request_check(const struct ig_cli_request *q, struct ig_error *err);

/* Append the response.create event.  False when memory ran out. */
bool ig_cli_request_write(const struct ig_cli_request *q, struct ig_strbuf *out);
/* Append the response.cancel event; id "": not known yet, cancel the only response. */
bool ig_cli_request_cancel(const char *id, struct ig_strbuf *out);

enum ig_response_state {
	IG_RESPONSE_WAITING, /* no response yet */
	IG_RESPONSE_STREAMING,
	IG_RESPONSE_COMPLETED,
	IG_RESPONSE_INCOMPLETE, /* the cause is in reason: max_output_tokens … */
	IG_RESPONSE_CANCELLED,
	IG_RESPONSE_FAILED, /* the cause is in error */
};

struct ig_response {
	/* Called for each delta of the text; a non-zero result ends the response with that code. */
	int (*text)(void *ctx, const char *s, size_t len);
	/* The same for reasoning text; NULL: skipped. */
	int (*thought)(void *ctx, const char *s, size_t len);
	void *ctx;
	enum ig_response_state state;
	char id[128];	 /* of the response; "": not known yet */
	char model[160]; /* the response's; "": not known yet */
	char reason[64];
	char error[1024], code[64];
	int status; /* of an event `error`, as HTTP's; 0: it had none */
	int64_t sent_ns, first_ns, last_ns, ended_ns; /* ig_now_ns; 0: not yet */
	int64_t n_input, n_cached, n_output;	      /* -1: unknown */
};

void ig_response_init(struct ig_response *a, int (*text)(void *ctx, const char *s, size_t len),
		      void *ctx);
/* Process one event; those of unknown types are skipped.  0, -EBADMSG with text: json is not an
 * event, or the result of text or thought. */
int ig_response_event(struct ig_response *a, const char *json, size_t len, int64_t now_ns,
		      struct ig_error *err);
static inline bool ig_response_ended(const struct ig_response *a)
{
	return a->state > IG_RESPONSE_STREAMING;
}
/* stop, length, cancelled, error, or the server's own reason. */
const char *ig_response_finish_reason(const struct ig_response *a);
/* Append one JSON object (ingot(1), run --json); text is the whole response. */
bool ig_response_json(const struct ig_response *a, const char *text, size_t len,
		      struct ig_strbuf *out);
/* "42 tokens, 103.4 tok/s, first token after 38 ms, prompt 31 tokens (16 cached)" */
void ig_response_summary(const struct ig_response *a, char *buf, size_t size);
