/*
 * prompts_private.h: the tokens of recent requests, to say what a later prompt has in common with
 * them (prefix_report.c).  The oldest are forgotten first, so that they are at most IG_PROMPTS_MAX
 * and take at most a given memory.  The engine's thread.
 */
#pragma once

#include "base/hash.h"
#include "daemon/engine/sequence_private.h"

/* One request: its prompt and, once it has ended, its output. */
struct ig_prompt_known {
	TAILQ_ENTRY(ig_prompt_known) link;
	char id[64], model[IG_MAX_MODEL_NAME + 1], client[64];
	uint64_t version, identity; /* of the model's file; of the key */
	const struct ig_seq *live;  /* it runs, and tokens are its own; NULL: it has ended */
	int32_t *tokens;	    /* [n_tokens] */
	int32_t n_tokens, n_computed;
	int32_t n_same; /* tokens with which the prompt that was added last begins, too */
	uint64_t
		*chain; /* [n_tokens / IG_BLOCK_TOKENS]: a hash of all tokens up to a block's end */
	uint64_t bytes;
};
TAILQ_HEAD(ig_prompt_list, ig_prompt_known);

/* All of them are compared with each new prompt. */
#define IG_PROMPTS_MAX 1024

struct ig_prompts {
	struct ig_hash_key key;
	struct ig_prompt_list list; /* the latest first */
	uint64_t bytes, max_bytes;
	uint32_t n;
};

void ig_prompts_init(struct ig_prompts *p, uint64_t max_bytes);
void ig_prompts_finish(struct ig_prompts *p);
/* Remember a sequence that was admitted.  NULL: no memory. */
struct ig_prompt_known *ig_prompts_add(struct ig_prompts *p, const struct ig_seq *s);
/* It has ended, with n_tokens in all, the first n_computed of which were computed.  Its tokens are
 * copied, or it is forgotten. */
void ig_prompts_end(struct ig_prompts *p, struct ig_prompt_known *k, int32_t n_tokens,
		    int32_t n_computed);
void ig_prompts_forget(struct ig_prompts *p, struct ig_prompt_known *k);
/* So many of its tokens are in the cache, or were. */
static inline int32_t ig_prompt_n_computed(const struct ig_prompt_known *k)
{
	return k->live ? k->live->n_done : k->n_computed;
}
/* With how many tokens both begin. */
int32_t ig_prompts_n_same(const struct ig_prompt_known *a, const struct ig_prompt_known *b);
