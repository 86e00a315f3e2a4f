/*
 * prefix_report.c: why no more of a prompt was cached.  When a request is admitted, its prompt is
 * compared with those of recent requests (prompts.c).  What the most similar one has in common with
 * it should be cached; the reason follows from what was.
 *
 * What a client is told depends only on requests that it shares blocks with.  That another key's
 * prompt begins alike is kept apart (n_other_key), and texts and ids are of its own requests only.
 */
#include "daemon/engine/prefix_report_private.h"

#include "daemon/engine/prompts_private.h"

#include <stdlib.h>

#define TEXT_TOKENS 20 /* on each side of the place */

/* ---- similar requests -------------------------------------------------------------------- */

enum relation { SHARES, OTHER_MODEL, OTHER_KEY, STRANGER, N_RELATIONS = STRANGER };

/* An earlier request, and with how many of its tokens this one begins. */
struct similar {
	struct ig_prompt_known *of; /* NULL: none */
	int32_t n_same;
};

static enum relation relation_of(const struct ig_sched *sch, const struct ig_prompt_known *a,
				 const struct ig_prompt_known *b)
{
	bool same_key = a->identity == b->identity;

	if (a->version != b->version || strcmp(a->model, b->model))
		return same_key ? OTHER_MODEL : STRANGER;
	return same_key || sch->b->share_all ? SHARES : OTHER_KEY;
}

/* Whether a client may know what is in both: without a key it must have the same address. */
static bool is_own(const struct ig_prompt_known *a, const struct ig_prompt_known *b)
{
	return ig_same_client(a->identity, a->client, b->identity, b->client);
}

/* The most similar request of each relation, the latest of those; sets n_same of all. */
static void find_similar(const struct ig_sched *sch, const struct ig_prompt_known *k,
			 struct similar out[N_RELATIONS])
{
	struct ig_prompt_known *v;

	TAILQ_FOREACH(v, &sch->prompts.list, link) {
		enum relation r = v == k ? STRANGER : relation_of(sch, k, v);
		int32_t n = v->n_same = r == STRANGER ? 0 : ig_prompts_n_same(k, v);
		if (n > (r == STRANGER ? 0 : out[r].n_same))
			out[r] = (struct similar){ v, n };
	}
}

/* The request that the client names, if it is its own; *other_model: it had another one. */
static struct similar find_named(const struct ig_sched *sch, const struct ig_prompt_known *k,
				 const char *id, bool *other_model)
{
	struct ig_prompt_known *v;

	TAILQ_FOREACH(v, &sch->prompts.list, link) {
		if (v == k || strcmp(v->id, id) || !is_own(k, v))
			continue;
		*other_model = relation_of(sch, k, v) == OTHER_MODEL;
		return (struct similar){ v, ig_prompts_n_same(k, v) };
	}
	return (struct similar){ 0 };
}

/* ---- the reason ---------------------------------------------------------------------------- */

static int32_t n_blocks(int32_t n_tokens) { return n_tokens / IG_BLOCK_TOKENS; }

/* The blocks that seq_match should find when `computed` tokens of a request that has n_same tokens
 * in common were, of `limit`. */
static int32_t blocks_due(int32_t n_same, int32_t computed, int32_t limit)
{
	if (n_same > limit)
		n_same = limit;
	return n_blocks(n_same < computed ? n_same : computed);
}

static enum ig_prefix_reason reason_of(const struct ig_seq *s, const struct similar *own,
				       const struct similar *other_model, int32_t n_known)
{
	int32_t limit = s->n_prompt - 1, cached = n_blocks(s->result.n_cached);
	int32_t computed = own->of ? ig_prompt_n_computed(own->of) : 0;
	int32_t due = blocks_due(own->n_same, computed, limit);

	if (limit < IG_BLOCK_TOKENS)
		return IG_PREFIX_SHORT;
	if (cached == n_blocks(limit) && (own->n_same >= limit || !own->of))
		return IG_PREFIX_FULL;
	if (due > cached && n_blocks(n_known) >= due)
		return s->model->has_state ? IG_PREFIX_STATE :
		       s->model->window	   ? IG_PREFIX_WINDOW :
					     IG_PREFIX_EVICTED;
	if (due > cached)
		return IG_PREFIX_EVICTED;
	if (blocks_due(own->n_same, INT32_MAX, limit) > cached)
		return IG_PREFIX_NOT_COMPUTED;
	if (n_blocks(other_model->n_same) > n_blocks(own->n_same))
		return IG_PREFIX_OTHER_MODEL;
	if (!own->of)
		return s->result.n_cached ? IG_PREFIX_DIVERGED : IG_PREFIX_FIRST_SEEN;
	return own->n_same == own->of->n_tokens ? IG_PREFIX_EXTENDED : IG_PREFIX_DIVERGED;
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* The text of tokens from … to - 1, or as many as fit. */
static void put_text(const struct ig_seq *s, const int32_t *tokens, int32_t from, int32_t to,
		     char out[IG_PREFIX_TEXT_CAP])
{
	size_t n = 0, len, max = ig_detokenizer_max(s->model->tokenizer);
	struct ig_detokenizer d;
	char *piece = malloc(max > 16 ? max : 16);

	ig_detokenizer_init(&d, s->model->tokenizer);
	ig_detokenizer_show(&d, tokens + from, (unsigned)(to - from));
	for (int32_t i = from; piece && i < to; i++) {
		len = ig_detokenizer_put(&d, tokens[i], piece);
		if (n + len + 16 > IG_PREFIX_TEXT_CAP)
			break;
		memcpy(out + n, piece, len);
		n += len;
	}
	len = piece ? ig_detokenizer_flush(&d, out + n) : 0;
	out[n + len] = 0;
	free(piece);
}

/* The first of up to TEXT_TOKENS tokens before `to` whose text fits. */
static int32_t text_start(const struct ig_seq *s, const int32_t *tokens, int32_t to)
{
	size_t n = 0, len;
	bool special;
	int32_t from = to;

	while (from > 0 && from > to - TEXT_TOKENS) {
		if (!ig_tokenizer_token(s->model->tokenizer, tokens[from - 1], &len, &special))
			break;
		n += len;
		if (n + 32 > IG_PREFIX_TEXT_CAP)
			break;
		from--;
	}
	return from;
}

static void put_texts(struct ig_seq *s, const struct ig_prompt_known *earlier, int32_t at)
{
	struct ig_prefix_report *r = &s->result.report;
	int32_t end = at + TEXT_TOKENS;

	put_text(s, s->tokens, text_start(s, s->tokens, at), at, r->same);
	put_text(s, s->tokens, at, end < s->n_prompt ? end : s->n_prompt, r->now);
	put_text(s, earlier->tokens, at, end < earlier->n_tokens ? end : earlier->n_tokens,
		 r->earlier);
}

/* ---- the engine's thread ------------------------------------------------------------------- */

/* Its own most similar request, or the one that the client names. */
static void compare(struct ig_sched *sch, struct ig_seq *s, const struct ig_prompt_known *k,
		    int32_t n_known)
{
	struct ig_prefix_report *r = &s->result.report;
	struct similar found[N_RELATIONS] = { 0 }, named = { 0 }, *best = &found[SHARES];
	bool other_model = false;

	find_similar(sch, k, found);
	if (s->compare_with[0])
		named = find_named(sch, k, s->compare_with, &other_model);
	r->not_found = s->compare_with[0] && !named.of;
	if (named.of && !other_model)
		found[SHARES] = named;
	r->reason = named.of && other_model ?
			    IG_PREFIX_OTHER_MODEL :
			    reason_of(s, &found[SHARES], &found[OTHER_MODEL], n_known);
	if (r->reason == IG_PREFIX_OTHER_MODEL)
		best = named.of && other_model ? &named : &found[OTHER_MODEL];
	else if (n_blocks(found[OTHER_KEY].n_same) > n_blocks(found[SHARES].n_same) && !named.of)
		r->n_other_key = found[OTHER_KEY].n_same;
	r->n_same = best->of ? best->n_same : s->result.n_cached ? s->result.n_cached : -1;
	if (!best->of || !is_own(k, best->of))
		return;
	snprintf(r->compared, sizeof r->compared, "%s", best->of->id);
	/* another model may have other tokens */
	if (s->wants_report && r->reason != IG_PREFIX_OTHER_MODEL)
		put_texts(s, best->of, best->n_same);
}

/* Forget an earlier request of the same client that s begins with all of. */
static void forget_continued(struct ig_sched *sch, const struct ig_prompt_known *k)
{
	struct ig_prompt_known *v, *next;

	for (v = TAILQ_FIRST(&sch->prompts.list); v; v = next) {
		next = TAILQ_NEXT(v, link);
		if (!v->live && v->n_same == v->n_tokens && is_own(k, v) &&
		    relation_of(sch, k, v) == SHARES)
			ig_prompts_forget(&sch->prompts, v);
	}
}

void ig_prefix_report(struct ig_sched *sch, struct ig_seq *s, uint32_t n_known)
{
	struct ig_prefix_report *r = &s->result.report;

	r->n_same = -1;
	r->reason = IG_PREFIX_DISABLED;
	if (!sch->b->prefix_cache)
		return;
	r->reason = IG_PREFIX_UNKNOWN;
	s->known = ig_prompts_add(&sch->prompts, s);
	if (!s->known)
		return;
	compare(sch, s, s->known, (int32_t)n_known);
	forget_continued(sch, s->known);
}

void ig_prefix_report_end(struct ig_sched *sch, struct ig_seq *s)
{
	if (s->known)
		ig_prompts_end(&sch->prompts, s->known, s->n_prompt + s->result.n_output,
			       s->n_done);
	s->known = NULL;
}
