/*
 * response.h: the events of one response (Responses over WebSocket) as an answer:
 * its text, how it ended, its counts and its speed.  No sockets here.
 */
#pragma once

#include <ingot/error.h>
#include <stdbool.h>

#include "base/strbuf.h"
#include "cli/chat/conversation.h"

struct ig_ask {
	const char *prompt;
	size_t prompt_len;		       /* UTF-8 */
	const struct ig_conversation *history; /* its turns come before the prompt; may be NULL */
	const char *model, *system;	       /* NULL: not said */
	bool has_max_tokens, has_temperature, has_top_p, has_top_k, has_seed;
	int64_t max_tokens, top_k;
	uint64_t seed;
	double temperature, top_p;
};

/* What a command takes to draw tokens by; q is a struct ig_ask *. */
#define IG_ASK_OPTIONS(q)                                                                          \
	{ "system",                                                                                \
	  's',                                                                                     \
	  IG_OPT_STRING,                                                                           \
	  &(q)->system,                                                                            \
	  NULL,                                                                                    \
	  "TEXT",                                                                                  \
	  "the system message (instructions)" },                                                   \
		{ "max-tokens",                                                                    \
		  'n',                                                                             \
		  IG_OPT_INT,                                                                      \
		  &(q)->max_tokens,                                                                \
		  &(q)->has_max_tokens,                                                            \
		  "N",                                                                             \
		  "end an answer after so many tokens",                                            \
		  1,                                                                               \
		  100000000 },                                                                     \
		{ "temperature",                                                                   \
		  't',                                                                             \
		  IG_OPT_NUMBER,                                                                   \
		  &(q)->temperature,                                                               \
		  &(q)->has_temperature,                                                           \
		  "T",                                                                             \
		  "0 … 2; 0 takes the likeliest token each time",                                  \
		  0,                                                                               \
		  2 },                                                                             \
		{ "top-p",                                                                         \
		  0,                                                                               \
		  IG_OPT_NUMBER,                                                                   \
		  &(q)->top_p,                                                                     \
		  &(q)->has_top_p,                                                                 \
		  "P",                                                                             \
		  "draw from the likeliest tokens that make up P",                                 \
		  0.000001,                                                                        \
		  1 },                                                                             \
		{ "top-k",                                                                         \
		  0,                                                                               \
		  IG_OPT_INT,                                                                      \
		  &(q)->top_k,                                                                     \
		  &(q)->has_top_k,                                                                 \
		  "K",                                                                             \
		  "draw from the K likeliest tokens; 0: from all",                                 \
		  0,                                                                               \
		  10000000 },                                                                      \
		{ "seed",                                                                          \
		  0,                                                                               \
		  IG_OPT_U64,                                                                      \
		  &(q)->seed,                                                                      \
		  &(q)->has_seed,                                                                  \
		  "S",                                                                             \
		  "the same seed, the same draws" }
/* Whether what the options brought can be sent; -EINVAL with text when not. */
int ig_ask_check(const struct ig_ask *q, struct ig_error *err);

/* Append the response.create event.  False when memory ran out. */
bool ig_ask_write(const struct ig_ask *q, struct ig_strbuf *out);
/* Append the response.cancel event; id "": not known yet, the only one is meant. */
bool ig_ask_cancel(const char *id, struct ig_strbuf *out);

enum ig_response_state {
	IG_RESPONSE_WAITING, /* no response yet */
	IG_RESPONSE_STREAMING,
	IG_RESPONSE_COMPLETED,
	IG_RESPONSE_INCOMPLETE, /* reason says why: max_output_tokens … */
	IG_RESPONSE_CANCELLED,
	IG_RESPONSE_FAILED, /* error says why */
};

struct ig_response {
	/* Called for every piece of text; non-zero ends the reading with that code. */
	int (*text)(void *ctx, const char *s, size_t len);
	/* The same for what the model thinks before it answers; NULL: skipped. */
	int (*thought)(void *ctx, const char *s, size_t len);
	void *ctx;
	enum ig_response_state state;
	char id[128];	 /* the response's; "" before it is known */
	char model[160]; /* that answers; "" before it is known */
	char reason[64];
	char error[1024], code[64];
	int64_t sent_ns, first_ns, last_ns, ended_ns; /* ig_now_ns; 0: not yet */
	int64_t n_input, n_cached, n_output;	      /* -1: the server did not say */
};

void ig_response_init(struct ig_response *a, int (*text)(void *ctx, const char *s, size_t len),
		      void *ctx);
/* Take one event.  0, or -EBADMSG with text when it is no event, or what text
 * returned.  Unknown types are skipped. */
int ig_response_event(struct ig_response *a, const char *json, size_t len, int64_t now_ns,
		      struct ig_error *err);
static inline bool ig_response_ended(const struct ig_response *a)
{
	return a->state > IG_RESPONSE_STREAMING;
}
/* How it ended, as chat completions would say it: stop, length, cancelled, error, or the
 * server's own word. */
const char *ig_response_finish_reason(const struct ig_response *a);
/* Append one JSON object (ingot(1), run --json); text is the whole answer. */
bool ig_response_json(const struct ig_response *a, const char *text, size_t len,
		      struct ig_strbuf *out);
/* "42 tokens, 103.4 tok/s, first token after 38 ms, prompt 31 tokens (16 cached)" */
void ig_response_summary(const struct ig_response *a, char *buf, size_t size);
