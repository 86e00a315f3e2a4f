/* choice.h: one generation of a reply, and the parts that its text is parsed into. */
#pragma once

#include "base/strbuf.h"
#include "daemon/engine/engine.h"
#include "daemon/protocol/core/errors.h"
#include "model/chat/completion.h"

struct ig_reply;
struct ig_wake;

enum ig_part_kind { IG_PART_TEXT, IG_PART_REASONING, IG_PART_TOOL_CALL };

/* A part of the output: text, reasoning or a tool call. */
struct ig_part {
	enum ig_part_kind kind;
	bool done;			   /* complete */
	bool whole;			   /* of a tool call: the model has completed it */
	size_t first_logprob, end_logprob; /* of text: its logprobs, where requested */
	struct ig_strbuf text;		   /* of a tool call: its arguments */
	char *name;			   /* of a tool call */
	char id[48];			   /* random, with the prefix msg_, rs_ or fc_ */
	char call_id[48];		   /* of a tool call: call_ and random */
};

struct ig_choice {
	struct ig_reply *reply;
	uint32_t index;
	struct ig_wake *wake;
	struct ig_stream *stream; /* NULL until submitted */
	uint64_t gen;
	char id[64];   /* in the ledger */
	bool finished; /* result is valid, all text was taken */
	struct ig_gen_result result;
	struct ig_vectors *vectors;	     /* of a request of texts, once it is submitted */
	struct ig_completion_parser *parser; /* NULL: everything is one part of text */
	struct ig_part *parts;		     /* [n_parts]; none before the first text */
	size_t n_parts, cap_parts;
	size_t n_bytes;			   /* of the model's text so far */
	struct ig_token_logprob *logprobs; /* logprobs so far, [n_logprobs] */
	size_t n_logprobs, cap_logprobs;
	/* Bytes that the parser got; the number of logprobs of them; the first logprob that belongs
	 * to no part yet. */
	size_t n_fed, n_placed, first_unplaced;
	/* The writer's position: the current part, and what was sent of it and of the logprobs. */
	int stage;
	size_t part, n_sent, n_summary_sent, n_logprobs_sent;
};

/* 0 or -1, out of memory. */
int ig_choice_init(struct ig_choice *c, struct ig_reply *r, uint32_t index);
void ig_choice_finish(struct ig_choice *c); /* cancels it (client_gone) if it still runs */
/* 0, or -1 with *e (its row is in the ledger). */
int ig_choice_submit(struct ig_choice *c, struct ig_api_error *e);
/* Take at most cap bytes of text from the engine. */
void ig_choice_take(struct ig_choice *c, size_t cap);
/* A running one ends at the next step, another at once. */
void ig_choice_cancel(struct ig_choice *c, const char *reason);

/* Parse text of the model, token by token where there are logprobs; last: it is complete.
 * False without memory. */
bool ig_choice_feed(struct ig_choice *c, const char *text, size_t len, bool last);
/* A call's arguments as the member key, an object; text that is not one becomes its member
 * invalid_json. */
void ig_part_put_arguments(const struct ig_part *p, const char *key, struct ig_json_writer *w);
void ig_parts_finish(struct ig_choice *c);
