/*
 * answer.h: the events of one response (Responses over WebSocket) as an answer:
 * its text, how it ended, its counts and its speed.  No sockets here.
 */
#ifndef INGOT_CLI_ANSWER_H
#define INGOT_CLI_ANSWER_H

#include <ingot/op.h>
#include <stdbool.h>

#include "base/strbuf.h"

struct ig_ask {
	const char *prompt;
	size_t prompt_len; /* UTF-8 */
	const char *model, *system; /* NULL: not said */
	bool has_max_tokens, has_temperature, has_top_p, has_top_k, has_seed;
	int64_t max_tokens, top_k;
	uint64_t seed;
	double temperature, top_p;
};

/* Append the response.create event.  False when memory ran out. */
bool ig_ask_write(const struct ig_ask *q, struct ig_strbuf *out);

enum ig_answer_state {
	IG_ANSWER_WAITING, /* no response yet */
	IG_ANSWER_STREAMING,
	IG_ANSWER_COMPLETED,
	IG_ANSWER_INCOMPLETE, /* reason says why: max_output_tokens … */
	IG_ANSWER_CANCELLED,
	IG_ANSWER_FAILED, /* error says why */
};

struct ig_answer {
	/* Called for every piece of text; non-zero ends the reading with that code. */
	int (*text)(void *ctx, const char *s, size_t len);
	void *ctx;
	enum ig_answer_state state;
	char id[128]; /* the response's; "" before it is known */
	char reason[64];
	char error[1024], code[64];
	int64_t sent_ns, first_ns, last_ns; /* ig_now_ns; 0: not yet */
	int64_t n_input, n_cached, n_output; /* -1: the server did not say */
};

void ig_answer_init(struct ig_answer *a, int (*text)(void *ctx, const char *s, size_t len), void *ctx);
/* Take one event.  0, or -EBADMSG with text when it is no event, or what text
 * returned.  Unknown types are skipped. */
int ig_answer_event(struct ig_answer *a, const char *json, size_t len, int64_t now_ns,
		    struct ig_error *err);
static inline bool ig_answer_ended(const struct ig_answer *a)
{
	return a->state > IG_ANSWER_STREAMING;
}
/* "42 tokens, 103.4 tok/s, first token after 38 ms, prompt 31 tokens (16 cached)" */
void ig_answer_summary(const struct ig_answer *a, char *buf, size_t size);

#endif
