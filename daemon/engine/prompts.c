/*
 * prompts.c: see prompts_private.h.  Each request has a chain of hashes, one for each block's end, of
 * all tokens up to there.  Two requests are compared by a binary search in their chains and then
 * token by token in one block, so that a prompt of any length is compared with many.
 */
#include "daemon/engine/prompts_private.h"

#include <stdlib.h>

void ig_prompts_init(struct ig_prompts *p, uint64_t max_bytes)
{
	ig_hash_key_init(&p->key);
	TAILQ_INIT(&p->list);
	p->bytes = 0;
	p->n = 0;
	p->max_bytes = max_bytes;
}

void ig_prompts_forget(struct ig_prompts *p, struct ig_prompt_known *k)
{
	TAILQ_REMOVE(&p->list, k, link);
	p->bytes -= k->bytes;
	p->n--;
	if (!k->live)
		free(k->tokens);
	free(k->chain);
	free(k);
}

void ig_prompts_finish(struct ig_prompts *p)
{
	while (!TAILQ_EMPTY(&p->list))
		ig_prompts_forget(p, TAILQ_FIRST(&p->list));
}

/* Requests that run are few, and are not forgotten. */
static void keep_within(struct ig_prompts *p)
{
	struct ig_prompt_known *k = TAILQ_LAST(&p->list, ig_prompt_list), *newer;

	for (; k && (p->bytes > p->max_bytes || p->n > IG_PROMPTS_MAX); k = newer) {
		newer = TAILQ_PREV(k, ig_prompt_list, link);
		if (!k->live)
			ig_prompts_forget(p, k);
	}
}

static void count(struct ig_prompts *p, struct ig_prompt_known *k)
{
	p->bytes -= k->bytes;
	k->bytes = sizeof *k + (uint64_t)k->n_tokens * sizeof *k->tokens +
		   (uint64_t)k->n_tokens / IG_BLOCK_TOKENS * sizeof *k->chain;
	p->bytes += k->bytes;
	keep_within(p);
}

/* The chain of n tokens, of which k has the first n_known. */
static bool extend_chain(const struct ig_prompts *p, struct ig_prompt_known *k,
			 const int32_t *tokens, int32_t n_known, int32_t n)
{
	int32_t from = n_known / IG_BLOCK_TOKENS, to = n / IG_BLOCK_TOKENS;
	uint64_t *chain = realloc(k->chain, ((size_t)to + 1) * sizeof *chain);

	if (!chain)
		return false;
	k->chain = chain;
	for (int32_t i = from; i < to; i++) {
		uint64_t h = ig_hash_bytes(&p->key, tokens + (size_t)i * IG_BLOCK_TOKENS,
					   IG_BLOCK_TOKENS * sizeof *tokens);
		chain[i] = ig_hash_u64(&p->key, h + (i ? chain[i - 1] * 3 : 1));
	}
	return true;
}

struct ig_prompt_known *ig_prompts_add(struct ig_prompts *p, const struct ig_seq *s)
{
	struct ig_prompt_known *k = calloc(1, sizeof *k);

	if (!k || !extend_chain(p, k, s->tokens, 0, s->n_prompt)) {
		free(k);
		return NULL;
	}
	snprintf(k->id, sizeof k->id, "%s", s->id);
	snprintf(k->model, sizeof k->model, "%s", s->shown->name);
	snprintf(k->client, sizeof k->client, "%s", s->origin->client);
	k->version = s->model->shown.traits.version;
	k->identity = s->origin->who.identity;
	k->live = s;
	k->tokens = s->tokens;
	k->n_tokens = s->n_prompt;
	TAILQ_INSERT_HEAD(&p->list, k, link);
	p->n++;
	count(p, k);
	return k;
}

void ig_prompts_end(struct ig_prompts *p, struct ig_prompt_known *k, int32_t n_tokens,
		    int32_t n_computed)
{
	size_t size = (size_t)n_tokens * sizeof *k->tokens;
	int32_t *tokens = malloc(size);

	if (!tokens || !extend_chain(p, k, k->tokens, k->n_tokens, n_tokens)) {
		free(tokens);
		ig_prompts_forget(p, k);
		return;
	}
	k->tokens = memcpy(tokens, k->tokens, size);
	k->n_tokens = n_tokens;
	k->n_computed = n_computed < n_tokens ? n_computed : n_tokens;
	k->live = NULL;
	count(p, k);
}

int32_t ig_prompts_n_same(const struct ig_prompt_known *a, const struct ig_prompt_known *b)
{
	int32_t most = a->n_tokens < b->n_tokens ? a->n_tokens : b->n_tokens, n;
	int32_t low = 0, high = most / IG_BLOCK_TOKENS; /* in blocks: the same; may be the same */

	while (low < high) {
		int32_t middle = (low + high + 1) / 2;
		if (a->chain[middle - 1] == b->chain[middle - 1])
			low = middle;
		else
			high = middle - 1;
	}
	n = low * IG_BLOCK_TOKENS;
	while (n < most && a->tokens[n] == b->tokens[n])
		n++;
	return n;
}
