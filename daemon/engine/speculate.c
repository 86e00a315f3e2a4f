/*
 * speculate.c: drafts.  A sequence that decodes has one row in a step, for its last token.  A draft is
 * what lookup.c expects to follow: each of its tokens is one more row of the same step, which samples
 * the token after it.  The draft is accepted as far as the tokens that are sampled are its own, and
 * one more is sampled behind that (Leviathan, Kalman and Matias, "Fast inference from transformers
 * via speculative decoding", 2023).  Every row is sampled as it would be alone: by the seed and its
 * position, with the penalties and the mask of the tokens before it.  So a draft changes no token; it
 * changes when tokens come.  K and V of rows that were not accepted are overwritten by the rows that
 * come, before any row reads them.
 *
 * Rows are given one by one, to the sequence that gains most by one more, while that is more than
 * what all sequences of the step lose since it is longer: the product of their speeds grows
 * (proportional fairness).  What a step of the streams takes, and what rows of drafts add to it, is
 * measured (pace.c), and how often guesses are right is counted (lookup.c).  So a draft is long where
 * it is usually right, and there is none where rows cost more than they bring.
 *
 * A draft begins with a token that is known, so its sequence is not in a step that runs ahead.
 * A sequence waits for that only if a draft then brings much more than the step that it misses.
 */
#include "daemon/engine/speculate_private.h"

#include <math.h>

/* What drafts must bring, as the logarithm of a speed, or there is none. */
#define LEAST_GAIN 0.05
/* A chance that is too small for any device. */
#define LEAST_CHANCE 0.02
/* Rounds with drafts, then one without, which measures what streams alone take. */
#define DRAFT_ROUNDS 64
/* A guess so likely that it is not worth its row makes what rows cost doubtful. */
#define LIKELY 0.7
/* Tokens in a step's time that a draft must bring where its sequence misses a step for it. */
#define AHEAD_GAIN 1.5

static int32_t min(int32_t a, int32_t b) { return a < b ? a : b; }

static bool has_drafts(const struct ig_sched *sch, const struct ig_seq *s)
{
	return sch->now.speculates && ig_lookup_expects(&s->lookup);
}

/* ---- how many rows ---------------------------------------------------------------------- */

/* Tokens of a draft that can be used: not the last token of its output, which needs no row. */
static int32_t longest_draft(const struct ig_seq *s)
{
	return min(s->max_output - (s->n_tokens - s->n_prompt) - 1, IG_MAX_DRAFT);
}

static bool decodes(const struct ig_model *m, const struct ig_seq *s)
{
	return s->model == m && s->round == m->round && s->n_planned == 1 &&
	       ig_seq_n_left(s) == 1 && ig_seq_tokens_then(s) > s->n_prompt;
}

/* What one more row brings its sequence, in parts of what that has already. */
static double gain_of(const struct ig_seq *s) { return s->draft_chance / s->draft_tokens; }

/* The sequence to which one more row brings most; NULL: no chance is worth anything. */
static struct ig_seq *best_seq(const struct ig_sched *sch, const struct ig_model *m)
{
	struct ig_seq *s, *best = NULL;

	TAILQ_FOREACH(s, &sch->running, link)
		if (decodes(m, s) && s->draft_chance > LEAST_CHANCE &&
		    (!best || gain_of(s) > gain_of(best)))
			best = s;
	return best;
}

/* Give rows while what one brings its sequence is more than what all lose by a longer step.  False:
 * together they bring hardly more. */
static bool give_rows(struct ig_sched *sch, struct ig_model *m, uint32_t n_streams, int32_t rows)
{
	double quiet = ig_pace_quiet_ns(&m->pace, n_streams), ns, row, gain = 0;
	struct ig_seq *s;

	if (!ig_pace_draft_cost(&m->pace, n_streams, &ns, &row))
		return false;
	for (ns += quiet; rows > 0 && (s = best_seq(sch, m)); rows--) {
		if (gain_of(s) * (ns + row) <= n_streams * row)
			break;
		ns += row;
		gain += log1p(gain_of(s));
		s->draft_tokens += s->draft_chance;
		s->draft_chance *= ig_lookup_chance(&s->lookup, (uint32_t)++s->n_draft);
		if (s->n_draft >= longest_draft(s))
			s->draft_chance = 0;
	}
	return gain > LEAST_GAIN + n_streams * log(ns / quiet);
}

/* ---- the draft of one sequence --------------------------------------------------------------- */

/* Of the guesses those that may come before the sequence ends; the matcher reads them ahead. */
static int32_t n_allowed(struct ig_sched *sch, const struct ig_seq *s)
{
	const struct ig_tokenizer *t = s->model->tokenizer;
	int32_t n;

	if (s->matcher)
		ig_grammar_matcher_copy(sch->ahead, s->matcher);
	for (n = 0; n < s->n_draft; n++) {
		int32_t id = s->tokens[s->n_tokens + n];
		if (ig_tokenizer_is_end(t, id) && !s->ignore_end)
			break;
		if (s->matcher && (ig_grammar_matcher_accept(sch->ahead, id) < 0 ||
				   ig_grammar_matcher_is_done(sch->ahead)))
			break;
	}
	return n;
}

/* *spare: entries of penalties that the step has space for. */
static void make_draft(struct ig_sched *sch, struct ig_seq *s, uint32_t *spare)
{
	const struct ig_kvcache_service *kv = sch->b->kv;

	if (s->max_adjusts && (uint32_t)s->n_draft > *spare / s->max_adjusts)
		s->n_draft = (int32_t)(*spare / s->max_adjusts);
	ig_lookup_guess(&s->lookup, s->history, (uint32_t)s->n_draft);
	s->n_draft = n_allowed(sch, s);
	/* nobody is preempted for a draft */
	if (s->n_draft && kv->seq_reserve(s->kv, (uint32_t)(s->n_tokens + s->n_draft),
					  (uint32_t)(s->n_tokens + s->n_draft)) < 0)
		s->n_draft = 0;
	*spare -= s->max_adjusts * (uint32_t)s->n_draft;
	s->n_planned = 1 + s->n_draft;
}

int32_t ig_sched_draft(struct ig_sched *sch, struct ig_model *m, int32_t rows)
{
	uint32_t n_streams = 0, n_seqs = 0, spare = IG_MAX_STEP_ADJUSTS - sch->n_adjusts;
	double chance = 0;
	struct ig_seq *s;
	int32_t most, n = 0;

	TAILQ_FOREACH(s, &sch->running, link) {
		n_seqs += s->model == m;
		if (!decodes(m, s))
			continue;
		n_streams++;
		s->draft_chance = 0;
		s->draft_tokens = 1;
		if (has_drafts(sch, s) && !s->n_flights && longest_draft(s) > 0)
			s->draft_chance = ig_lookup_chance(&s->lookup, 0);
		if (s->draft_chance > chance)
			chance = s->draft_chance;
	}
	/* every sequence of the step may have one row with logits anyway */
	most = min((int32_t)m->limits.max_logit_rows - (int32_t)n_seqs,
		   ig_pace_draft_rows(&m->pace));
	if (chance <= LEAST_CHANCE || (m->n_draft_rounds + 1) % DRAFT_ROUNDS == 0)
		n_streams = 0;
	m->n_draft_rounds += chance > LEAST_CHANCE;
	if (!n_streams)
		return 0;
	bool pays = give_rows(sch, m, n_streams, min(rows, most));
	if (!pays && chance >= LIKELY)
		ig_pace_forget_drafts(&m->pace);
	TAILQ_FOREACH(s, &sch->running, link) {
		if (!decodes(m, s) || !s->n_draft)
			continue;
		if (pays)
			make_draft(sch, s, &spare);
		else
			s->n_draft = 0;
		n += s->n_draft;
	}
	return n;
}

/* ---- steps ----------------------------------------------------------------------------------- */

bool ig_sched_would_draft(const struct ig_sched *sch, const struct ig_seq *s)
{
	const struct ig_model *m = s->model;
	uint32_t n_streams = m->n_streams ? m->n_streams : 1;
	double quiet = ig_pace_quiet_ns(&m->pace, n_streams), ns, row, tokens = 1, chance;

	if (!has_drafts(sch, s) || !ig_pace_draft_cost(&m->pace, n_streams, &ns, &row))
		return false;
	/* what the token that is being sampled must be */
	chance = ig_lookup_chance(&s->lookup, 0);
	ns += quiet;
	for (int32_t i = 1; i < longest_draft(s); i++) {
		chance *= ig_lookup_chance(&s->lookup, (uint32_t)i);
		if (chance * (ns + row) <= tokens * n_streams * row)
			break;
		tokens += chance;
		ns += row;
	}
	return tokens * quiet >= (1 + AHEAD_GAIN) * ns;
}

void ig_sched_draft_mask(struct ig_sched *sch, const struct ig_seq *s, int32_t n, uint32_t *mask)
{
	if (n == 1)
		ig_grammar_matcher_copy(sch->ahead, s->matcher);
	ig_grammar_matcher_accept(sch->ahead, s->tokens[s->n_tokens + n - 1]);
	ig_grammar_matcher_mask(sch->ahead, mask);
}

int32_t ig_sched_verify_draft(struct ig_sched *sch, struct ig_seq *s, const int32_t *sampled,
			      int32_t n)
{
	int32_t n_right = 0;

	while (n_right < n && sampled[n_right] == s->tokens[s->n_tokens + n_right])
		n_right++;
	s->result.n_drafted += n;
	s->result.n_accepted += n_right;
	ig_metrics_add(sch->b->metrics, IG_COUNTER_DRAFTS, n > 0);
	ig_metrics_add(sch->b->metrics, IG_COUNTER_DRAFT_TOKENS, (uint64_t)n);
	ig_metrics_add(sch->b->metrics, IG_COUNTER_ACCEPTED_TOKENS, (uint64_t)n_right);
	return n_right;
}
