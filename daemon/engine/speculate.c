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
 * The state of a recurrent layer can't go back to the last token that was right: a step leaves the one
 * before the draft, and from there the tokens that were right are computed again, beside the next one.
 * The rows that are to be expected of that are part of what a row of the draft costs.
 *
 * A draft begins with a token that is known, so its sequence is not in a step that runs ahead.
 * A sequence waits for that only if a draft then brings much more than the step that it misses.
 *
 * Guesses have sources: what followed the same tokens earlier in the text (lookup.c), which cost nothing,
 * the model's draft model (draft_model.c), which takes a step of its own for each token, and a head of the
 * model itself (mtp.c), which has guessed one token in the step before.  Each draft
 * is of the source that is worth most; whether any is worth it is decided for all of a step together.
 */
#include "daemon/engine/speculate_private.h"

#include "daemon/engine/draft_model_private.h"
#include "daemon/engine/mtp_private.h"

#include <math.h>
#include <string.h>

/* What drafts must bring, as the logarithm of a speed, or there is none. */
#define LEAST_GAIN 0.05
/* A chance that is too small for any device. */
#define LEAST_CHANCE 0.02
/* Rounds with drafts, then one without, which measures what streams alone take. */
#define DRAFT_ROUNDS 64
/* A guess so likely that it is not worth its row makes what rows cost doubtful. */
#define LIKELY 0.7
/* Tokens in a step's time that a draft must bring where its sequence misses a step for it; and where all
 * sequences of the model wait with it, so that only the host's time is missed. */
#define AHEAD_GAIN 1.5
#define AHEAD_MODEL_GAIN 0.2
/* Where the draft model is not worth it: after so many tokens one draft of so many tries it again, then
 * after twice as many, up to a limit. */
#define PROBE 4
#define FIRST_PROBE 64
#define LAST_PROBE 4096

/* What a step of n_streams takes, and what drafts add to it. */
struct costs {
	uint32_t n_streams;
	double quiet;		 /* the streams alone */
	double own, row;	 /* once, and each row of a draft */
	double guess, guess_row; /* each step of the draft model, and each of its rows */
	uint32_t n_sharing;	 /* sequences that share its steps */
	double head, head_row;	 /* guesses of the model's head: once, and each */
	uint32_t n_heads;	 /* sequences that have some */
};

static int32_t min(int32_t a, int32_t b) { return a < b ? a : b; }

/* False: what the streams alone take is not known. */
static bool find_costs(const struct ig_model *m, uint32_t n_streams, struct costs *c)
{
	*c = (struct costs){ .n_streams = n_streams,
			     .quiet = ig_pace_quiet_ns(&m->pace, n_streams),
			     .n_sharing = 1,
			     .n_heads = 1 };
	if (!ig_pace_draft_cost(&m->pace, n_streams, &c->own, &c->row))
		return false;
	if (m->draft)
		ig_draft_cost(m, c->quiet, &c->guess, &c->guess_row);
	if (m->has_mtp)
		ig_pace_head_cost(&m->pace, c->quiet, &c->head, &c->head_row);
	return true;
}

static bool looks_up(const struct ig_sched *sch, const struct ig_seq *s)
{
	return sch->now.looks_up && ig_lookup_expects(&s->lookup);
}

/* Whether a step may verify what the model's head guessed. */
static bool has_guess(const struct ig_sched *sch, const struct ig_seq *s)
{
	return ig_mtp_may(sch, s) && ig_mtp_has_guess(s);
}

static double chance_of(const struct ig_seq *s, enum ig_draft_source source, int32_t i)
{
	switch (source) {
	case IG_DRAFT_MODEL: return ig_draft_chance(s);
	case IG_DRAFT_MTP: return ig_mtp_chance(s);
	default: return ig_lookup_chance(&s->lookup, (uint32_t)i);
	}
}

static double row_cost(const struct costs *c, enum ig_draft_source source)
{
	return source == IG_DRAFT_MODEL ? c->row + c->guess_row + c->guess / c->n_sharing : c->row;
}

/* ---- how many rows ---------------------------------------------------------------------- */

/* Tokens of a draft that can be used: not the last token of its output, which needs no row. */
static int32_t longest_draft(const struct ig_seq *s)
{
	return min(s->max_output - (s->n_tokens - s->n_prompt) - 1, IG_MAX_DRAFT);
}

static int32_t longest_of(const struct ig_seq *s, enum ig_draft_source source)
{
	return source == IG_DRAFT_MTP ? min(longest_draft(s), 1) : longest_draft(s);
}

static bool decodes(const struct ig_model *m, const struct ig_seq *s)
{
	return s->model == m && s->round == m->round && s->n_planned == ig_seq_own_rows(s) &&
	       ig_seq_n_left(s) == ig_seq_own_rows(s) && ig_seq_tokens_then(s) > s->n_prompt;
}

/* What one more row brings its sequence, in parts of what that has already. */
static double gain_of(const struct ig_seq *s) { return s->draft_chance / s->draft_tokens; }

/* Rows that are to be expected again where a draft of n tokens has one more: with all n right, and that one not,
 * n that nobody would have computed again.  kept, chance: of all n, and of one more. */
static double again_of(const struct ig_seq *s, int32_t n, double kept, double chance)
{
	return s->model->has_state ? n * (kept - chance) : 0;
}

/* Add guesses to a draft of s, from its first-th on, while each brings more than all lose by its row: to the tokens
 * that come with it, and to what the step takes.  chance: of all guesses before them. */
static void lengthen(const struct costs *c, const struct ig_seq *s, enum ig_draft_source source,
		     int32_t first, double chance, double *tokens, double *ns)
{
	for (int32_t i = first; i < longest_of(s, source); i++) {
		double kept = chance, cost;
		chance *= chance_of(s, source, i);
		cost = row_cost(c, source) + again_of(s, i - first, kept, chance) * c->row;
		if (chance * (*ns + cost) <= *tokens * c->n_streams * cost)
			break;
		*tokens += chance;
		*ns += cost;
	}
}

/* What a draft of this source is worth to all, as the logarithm of a speed, at its best length. */
static double worth(const struct costs *c, const struct ig_seq *s, enum ig_draft_source source)
{
	uint32_t n_sharing = source == IG_DRAFT_MTP ? c->n_heads : c->n_sharing;
	double ns = c->quiet + c->own / n_sharing, tokens = 1;

	lengthen(c, s, source, 0, 1, &tokens, &ns);
	return tokens > 1 ? log(tokens) - c->n_streams * log(ns / c->quiet) : -1;
}

/* Whether a guess behind s's next token is worth its row there and the one that verifies it. */
static bool guess_pays(const struct costs *c, const struct ig_seq *s)
{
	double ns = (c->own + c->head) / c->n_heads + c->row + c->head_row;

	return log1p(ig_mtp_chance(s)) > c->n_streams * log1p(ns / c->quiet);
}

/* The round is the streams' alone: what it takes is to be measured. */
static void ask_for_none(const struct ig_sched *sch, const struct ig_model *m)
{
	struct ig_seq *s;

	TAILQ_FOREACH(s, &sch->running, link)
		if (s->model == m)
			s->mtp.asks = false;
}

/* Of the round's sequences those that ask for a guess; may_ask: it may have some. */
static void ask_for_guesses(const struct ig_sched *sch, const struct ig_model *m,
			    const struct costs *c, bool may_ask)
{
	struct ig_seq *s;

	TAILQ_FOREACH(s, &sch->running, link)
		/* its last but one token is sampled with the guess at its last one */
		if (m->has_mtp && decodes(m, s))
			ig_mtp_plan(s, guess_pays(c, s), may_ask && longest_draft(s) > 0);
}

/* The source of s's draft, and the chance of its first token; 0: it can have none. */
static void choose_source(const struct ig_sched *sch, const struct costs *c, struct ig_seq *s,
			  bool with_model)
{
	double look = -HUGE_VAL, model = -HUGE_VAL, mtp = -HUGE_VAL;

	s->draft_chance = s->draft_again = 0;
	s->draft_tokens = s->draft_kept = 1;
	s->n_draft = 0;
	s->draft_source = IG_DRAFT_LOOKUP;
	if (longest_draft(s) < 1)
		return;
	if (looks_up(sch, s))
		look = worth(c, s, IG_DRAFT_LOOKUP);
	if (with_model && ig_draft_may(sch, s))
		model = worth(c, s, IG_DRAFT_MODEL);
	if (has_guess(sch, s))
		mtp = worth(c, s, IG_DRAFT_MTP);
	if (model > 0 && model > fmax(look, mtp) && ig_draft_lag(s) > IG_DRAFT_LAG)
		s->draft_wanted = true;
	else if (model > fmax(look, mtp) && !sch->n_flights)
		s->draft_source = IG_DRAFT_MODEL;
	else if (mtp > look)
		s->draft_source = IG_DRAFT_MTP;
	if (s->n_flights)
		return;
	if (s->draft_source != IG_DRAFT_LOOKUP || look > -HUGE_VAL)
		s->draft_chance = chance_of(s, s->draft_source, 0);
}

/* What one more row of its draft costs. */
static double next_cost(const struct costs *c, const struct ig_seq *s)
{
	return row_cost(c, s->draft_source) +
	       again_of(s, s->n_draft, s->draft_kept, s->draft_chance) * c->row;
}

/* The sequence to which one more row brings most for its cost; NULL: no chance is worth anything. */
static struct ig_seq *best_seq(const struct ig_sched *sch, const struct ig_model *m,
			       const struct costs *c)
{
	struct ig_seq *s, *best = NULL;
	double most = 0;

	TAILQ_FOREACH(s, &sch->running, link) {
		if (!decodes(m, s) || s->draft_chance <= LEAST_CHANCE)
			continue;
		double value = gain_of(s) / next_cost(c, s);
		if (value > most) {
			best = s;
			most = value;
		}
	}
	return best;
}

/* What the rows that were given cost. */
static double cost_of_rows(const struct ig_sched *sch, const struct ig_model *m,
			   const struct costs *c)
{
	const struct ig_seq *s;
	int32_t n_steps = 0;
	double ns = c->own;

	TAILQ_FOREACH(s, &sch->running, link) {
		if (!decodes(m, s) || !s->n_draft)
			continue;
		ns += (s->n_draft + s->draft_again) * c->row;
		if (s->draft_source != IG_DRAFT_MODEL)
			continue;
		ns += s->n_draft * c->guess_row;
		n_steps = s->n_draft > n_steps ? s->n_draft : n_steps;
	}
	return ns + n_steps * c->guess;
}

/* Give rows while what one brings its sequence is more than what all lose by a longer step.  False:
 * together they bring hardly more. */
static bool give_rows(struct ig_sched *sch, const struct ig_model *m, struct costs *c, int32_t rows,
		      bool with_model)
{
	double ns = c->quiet + c->own, gain = 0;
	uint32_t n_sharing = 0;
	struct ig_seq *s;

	TAILQ_FOREACH(s, &sch->running, link) {
		if (!decodes(m, s))
			continue;
		choose_source(sch, c, s, with_model);
		n_sharing += s->draft_source == IG_DRAFT_MODEL;
	}
	c->n_sharing = n_sharing ? n_sharing : 1;
	for (; rows > 0 && (s = best_seq(sch, m, c)); rows--) {
		double cost = next_cost(c, s);
		if (gain_of(s) * (ns + cost) <= c->n_streams * cost)
			break;
		ns += cost;
		gain += log1p(gain_of(s));
		s->draft_tokens += s->draft_chance;
		s->draft_again += again_of(s, s->n_draft, s->draft_kept, s->draft_chance);
		s->draft_kept = s->draft_chance;
		s->draft_chance *= chance_of(s, s->draft_source, ++s->n_draft);
		if (s->n_draft >= longest_of(s, s->draft_source))
			s->draft_chance = 0;
	}
	ns = c->quiet + cost_of_rows(sch, m, c);
	return gain > LEAST_GAIN + c->n_streams * log(ns / c->quiet);
}

/* ---- trying the draft model again ------------------------------------------------------- */

/* Count the tokens that come without it; when they are many, the sequence that had none for longest gets a
 * draft of it, whatever that is worth.  space: there is some for it in this round. */
static void probe(struct ig_sched *sch, struct ig_model *m, bool space)
{
	struct ig_draft_record *r = &m->record;
	struct ig_seq *s, *best = NULL, *near = NULL;

	if (!r->probe_after)
		r->probe_after = FIRST_PROBE;
	TAILQ_FOREACH(s, &sch->running, link) {
		if (!decodes(m, s) || !ig_draft_may(sch, s))
			continue;
		if (s->n_draft && s->draft_source == IG_DRAFT_MODEL) {
			s->draft.n_idle = 0;
			continue;
		}
		s->draft.n_idle++;
		r->n_idle++;
		if (longest_draft(s) < PROBE)
			continue;
		if (!near || ig_draft_lag(s) < ig_draft_lag(near))
			near = s;
		if (ig_draft_lag(s) <= IG_DRAFT_LAG && !s->n_flights && space &&
		    (!best || s->draft.n_idle > best->draft.n_idle))
			best = s;
	}
	if (r->n_idle < r->probe_after || !near)
		return;
	if (!best) {
		near->draft_wanted |= ig_draft_lag(near) > IG_DRAFT_LAG;
		return;
	}
	best->n_draft = PROBE;
	best->draft_source = IG_DRAFT_MODEL;
	best->draft.n_idle = r->n_idle = 0;
	if (r->probe_after < LAST_PROBE)
		r->probe_after *= 2;
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
		if (id < 0 || (ig_tokenizer_is_end(t, id) && !s->ignore_end))
			break; /* of an image (spans_private.h), or an end */
		if (s->matcher && (ig_grammar_matcher_accept(sch->ahead, id) < 0 ||
				   ig_grammar_matcher_is_done(sch->ahead)))
			break;
	}
	return n;
}

/* Not more than there is space for: entries of penalties (*spare), and blocks; nobody is preempted for a
 * draft. */
static void limit_draft(struct ig_sched *sch, struct ig_seq *s, uint32_t *spare)
{
	if (s->max_adjusts && (uint32_t)s->n_draft > *spare / s->max_adjusts)
		s->n_draft = (int32_t)(*spare / s->max_adjusts);
	if (s->n_draft && s->model->has_state &&
	    sch->b->kv->seq_checkpoint(s->kv, (uint32_t)s->n_tokens) < 0)
		s->n_draft = 0;
	if (s->n_draft && sch->b->kv->seq_reserve(s->kv, (uint32_t)(s->n_tokens + s->n_draft),
						  (uint32_t)(s->n_tokens + s->n_draft)) < 0)
		s->n_draft = 0;
	*spare -= s->max_adjusts * (uint32_t)s->n_draft;
}

/* Write the drafts of all that are to have one behind their tokens; returns of how many tokens. */
static int32_t make_drafts(struct ig_sched *sch, struct ig_model *m)
{
	uint32_t spare = IG_MAX_STEP_ADJUSTS - sch->n_adjusts;
	struct ig_seq *s;
	int32_t n = 0;

	TAILQ_FOREACH(s, &sch->running, link)
		if (decodes(m, s) && s->n_draft)
			limit_draft(sch, s, &spare);
	if (m->draft)
		ig_draft_make(sch, m);
	TAILQ_FOREACH(s, &sch->running, link) {
		if (!decodes(m, s) || !s->n_draft)
			continue;
		if (s->draft_source == IG_DRAFT_LOOKUP)
			ig_lookup_guess(&s->lookup, s->history, (uint32_t)s->n_draft);
		else if (s->draft_source == IG_DRAFT_MTP)
			s->tokens[s->n_tokens] = s->mtp.id;
		s->n_draft = n_allowed(sch, s);
		s->n_planned = ig_seq_own_rows(s) + s->n_draft;
		n += s->n_draft;
	}
	return n;
}

/* Of all sequences of the round that decode: forget what was planned for them. */
static void clear_drafts(struct ig_sched *sch, const struct ig_model *m)
{
	struct ig_seq *s;

	TAILQ_FOREACH(s, &sch->running, link)
		if (decodes(m, s))
			s->n_draft = 0;
}

/* Rows of drafts that are planned so far. */
static int32_t n_given(const struct ig_sched *sch, const struct ig_model *m)
{
	const struct ig_seq *s;
	int32_t n = 0;

	TAILQ_FOREACH(s, &sch->running, link)
		n += decodes(m, s) ? s->n_draft : 0;
	return n;
}

/* A round begins; returns the best chance of a first token that any sequence has. */
static double begin_round(struct ig_sched *sch, struct ig_model *m, struct costs *c)
{
	double chance = 0;
	struct ig_seq *s;

	c->n_heads = 0;
	m->record.n_ready = 0;
	TAILQ_FOREACH(s, &sch->running, link) {
		double look = 0, model = 0, mtp = 0;
		if (!decodes(m, s))
			continue;
		s->draft_wanted = false;
		if (m->draft)
			ig_draft_earn(s, c->quiet, c->n_streams);
		if (longest_draft(s) < 1)
			continue;
		if (looks_up(sch, s) && !s->n_flights)
			look = ig_lookup_chance(&s->lookup, 0);
		if (ig_draft_may(sch, s)) {
			model = ig_draft_chance(s);
			m->record.n_ready += ig_draft_lag(s) <= IG_DRAFT_LAG;
		}
		if (has_guess(sch, s)) {
			mtp = ig_mtp_chance(s);
			c->n_heads++;
		}
		chance = fmax(chance, fmax(look, fmax(model, mtp)));
	}
	c->n_heads += !c->n_heads;
	return chance;
}

int32_t ig_sched_draft(struct ig_sched *sch, struct ig_model *m, int32_t rows, int32_t rows_beside)
{
	uint32_t n_streams = 0, n_seqs = 0;
	struct costs c;
	double chance;
	struct ig_seq *s;

	TAILQ_FOREACH(s, &sch->running, link) {
		n_seqs += s->model == m;
		n_streams += decodes(m, s);
	}
	if (!n_streams || !find_costs(m, n_streams, &c)) {
		ask_for_none(sch, m);
		return 0;
	}
	chance = begin_round(sch, m, &c);
	if (chance <= LEAST_CHANCE && !m->draft && !m->has_mtp)
		return 0;
	bool quiet = ++m->n_draft_rounds % DRAFT_ROUNDS == 0;
	ask_for_guesses(sch, m, &c, !quiet);
	if (quiet || (chance <= LEAST_CHANCE && !m->draft))
		return 0;
	/* every sequence of the step may have one row with logits anyway */
	int32_t space = min((int32_t)m->limits.max_logit_rows - (int32_t)n_seqs,
			    ig_pace_draft_rows(&m->pace));
	space = min(rows, space);
	int32_t most = min(space, rows_beside);
	bool pays = give_rows(sch, m, &c, most, m->draft);
	if (!pays && m->draft)
		pays = give_rows(sch, m, &c, most, false);
	if (!pays) {
		clear_drafts(sch, m);
		/* beside prompts they would not be measured again */
		if (chance >= LIKELY && rows_beside == IG_PACE_NO_LIMIT)
			ig_pace_forget_drafts(&m->pace);
	}
	if (m->draft)
		probe(sch, m, !sch->n_flights && space - n_given(sch, m) >= PROBE);
	if (m->draft) /* also beside a step in flight */
		ig_draft_read(sch, m, c.quiet);
	return make_drafts(sch, m);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static bool would_draft_model(const struct ig_sched *sch, const struct ig_seq *s,
			      const struct costs *c)
{
	double ns = c->quiet + c->own / c->n_sharing, tokens = 1;

	if (!ig_draft_may(sch, s) || ig_draft_lag(s) > IG_DRAFT_LAG)
		return false;
	if (s->model->record.n_idle >= s->model->record.probe_after)
		return true; /* to be tried */
	lengthen(c, s, IG_DRAFT_MODEL, 0, 1, &tokens, &ns);
	return tokens * c->quiet >= (1 + AHEAD_MODEL_GAIN) * ns;
}

static bool would_verify_guess(const struct ig_sched *sch, const struct ig_seq *s,
			       const struct costs *c)
{
	double ns = c->quiet + c->own + c->row + c->head + c->head_row;

	return has_guess(sch, s) && longest_draft(s) > 0 &&
	       (1 + ig_mtp_chance(s)) * c->quiet >= (1 + AHEAD_MODEL_GAIN) * ns;
}

bool ig_sched_would_draft(const struct ig_sched *sch, const struct ig_seq *s)
{
	const struct ig_model *m = s->model;
	double ns, tokens = 1;
	struct costs c;

	if ((!looks_up(sch, s) && !m->draft && !m->has_mtp) ||
	    !find_costs(m, m->n_streams ? m->n_streams : 1, &c))
		return false;
	if (m->record.n_ready)
		c.n_sharing = m->record.n_ready;
	if (m->draft && would_draft_model(sch, s, &c))
		return true;
	if (would_verify_guess(sch, s, &c))
		return true;
	if (!looks_up(sch, s))
		return false;
	/* what the token that is being sampled must be */
	ns = c.quiet + c.own;
	lengthen(&c, s, IG_DRAFT_LOOKUP, 1, ig_lookup_chance(&s->lookup, 0), &tokens, &ns);
	return tokens * c.quiet >= (1 + AHEAD_GAIN) * ns;
}

bool ig_sched_awaits_draft(const struct ig_sched *sch, const struct ig_model *m)
{
	const struct ig_seq *s;
	bool flies = false;

	for (uint32_t i = 0; i < sch->n_flights; i++)
		flies |= sch->flights[i].model == m;
	if (!flies || (!m->draft && !m->has_mtp))
		return false;
	TAILQ_FOREACH(s, &sch->running, link)
		if (s->model == m && s->awaits_draft)
			return true;
	return false;
}

void ig_sched_draft_mask(struct ig_sched *sch, const struct ig_seq *s, int32_t n, uint32_t *mask)
{
	if (n == 1)
		ig_grammar_matcher_copy(sch->ahead, s->matcher);
	ig_grammar_matcher_accept(sch->ahead, s->tokens[s->n_tokens + n - 1]);
	ig_grammar_matcher_mask(sch->ahead, mask);
}

void ig_sched_price_drafts(struct ig_flight *f, double ns)
{
	double own, row, all = 0;

	f->quiet_ns = ig_pace_quiet_ns(&f->model->pace, f->n_decode);
	memset(f->draft_row_ns, 0, sizeof f->draft_row_ns);
	if (!f->n_drafts)
		return;
	if (!f->n_prefill && !f->disturbed && ns > f->quiet_ns)
		all = ns - f->quiet_ns;
	else if (ig_pace_draft_cost(&f->model->pace, f->n_decode, &own, &row))
		all = own + row * f->n_drafts;
	for (int i = 0; i < IG_DRAFT_SOURCES; i++)
		f->draft_row_ns[i] = all / f->n_drafts;
	if (f->n_model_drafts)
		f->draft_row_ns[IG_DRAFT_MODEL] += f->draft_ns / f->n_model_drafts;
	if (f->model->has_mtp) {
		ig_pace_head_cost(&f->model->pace, f->quiet_ns, &own, &row);
		f->draft_row_ns[IG_DRAFT_MTP] += row + own / (f->n_guesses ? f->n_guesses : 1);
	}
}

int32_t ig_sched_verify_draft(struct ig_sched *sch, const struct ig_flight *f,
			      const struct ig_flight_seq *row, const int32_t *sampled)
{
	struct ig_seq *s = row->seq;
	int32_t n = row->n_draft, n_right = 0;
	struct ig_metrics *metrics = sch->b->metrics;
	enum ig_draft_source from = row->draft_source;

	while (n_right < n && sampled[n_right] == s->tokens[s->n_tokens + n_right])
		n_right++;
	if (s->model->has_state) {
		int32_t done = s->n_done + row->n_rows - n + n_right;
		s->n_again = done - (int32_t)sch->b->kv->seq_rewind(s->kv, (uint32_t)done);
	}
	double saved = n_right * f->quiet_ns;
	double spent = n * f->draft_row_ns[from] + s->n_again * f->draft_row_ns[IG_DRAFT_LOOKUP];
	s->result.n_drafted += n;
	s->result.n_accepted += n_right;
	s->result.draft_gain_ns += (int64_t)(saved - spent);
	ig_metrics_add(metrics, IG_COUNTER_DRAFTS + from, 1);
	ig_metrics_add(metrics, IG_COUNTER_DRAFT_TOKENS + from, (uint64_t)n);
	ig_metrics_add(metrics, IG_COUNTER_ACCEPTED_TOKENS + from, (uint64_t)n_right);
	ig_metrics_add(metrics, IG_COUNTER_DRAFT_SAVED_NS + from, (uint64_t)saved);
	ig_metrics_add(metrics, IG_COUNTER_DRAFT_SPENT_NS + from, (uint64_t)spent);
	if (from == IG_DRAFT_MTP) {
		s->result.n_mtp_drafted += n;
		s->result.n_mtp_accepted += n_right;
	}
	if (from != IG_DRAFT_MODEL)
		return n_right;
	s->result.n_model_drafted += n;
	s->result.n_model_accepted += n_right;
	ig_draft_learn(sch, s, n, n_right);
	return n_right;
}
