/*
 * rounds.c: which rows the steps of a model have.
 *
 * Rows are planned in rounds: one row for each sequence that decodes, then rows of prompts, up to
 * prefill_chunk each and max_batch_tokens in all, the shortest prompt first; but the oldest gets at
 * least half of these rows, so that short prompts don't starve a long one.  Which sequences of a
 * client with many take part, and whose prompts come first, says clients.c.  Beside streams long
 * prompts have only so many rows as pace.c says.  The prompts of one step have their first tokens
 * when all its rows are computed.  Therefore a round is not one step: as soon as a step has enough
 * rows to be efficient (split_rows; half of them when all prompts are short), the rest of the round
 * goes to the next one.  No sequence has a second row for decoding in a round, so the work is the
 * same and nobody waits longer for it.
 */
#include "daemon/engine/rounds_private.h"

#include "daemon/engine/admission_private.h"
#include "daemon/engine/spans_private.h"
#include "daemon/engine/speculate_private.h"
#include "daemon/engine/step_rows_private.h"

/* Whether s can be in the next step of m, beside the steps in flight. */
static bool can_join(const struct ig_model *m, const struct ig_seq *s)
{
	if (s->model != m || s->held || ig_seq_is_paused(s) || ig_seq_n_left(s) < 1)
		return false;
	if (!s->n_flights || s->logit_index < 0)
		return true;
	/* Its next token is being sampled: is there another, independent of its id? */
	return s->n_tokens + 1 - s->n_prompt < s->max_output && !s->penalties && !s->matcher &&
	       !s->awaits_draft;
}

/* Plan n rows of s in the new round.  False: it has no blocks for them. */
static bool plan_seq(struct ig_sched *sch, struct ig_model *m, struct ig_seq *s, int32_t n)
{
	if (!ig_sched_ensure_capacity(sch, s, &n))
		return false;
	s->round = m->round;
	s->n_planned = n;
	s->n_draft = 0;
	if (n < ig_seq_own_rows(s))
		s->n_again = 0; /* it goes on in parts, as a prompt does */
	return true;
}

static int32_t min(int32_t a, int32_t b) { return a < b ? a : b; }

/* The rows that s, a prompt, wants in a round. */
static int32_t wanted_rows(const struct ig_sched *sch, const struct ig_seq *s)
{
	int32_t n = min(ig_seq_n_left(s), (int32_t)sch->now.prefill_chunk);

	return s->is_long ? min(n, sch->long_rows) : n;
}

/* Whether s is a prompt that the new round of m has no rows of, and may have some. */
static bool is_unplanned(const struct ig_sched *sch, const struct ig_model *m,
			 const struct ig_seq *s)
{
	return s->round != m->round && (!s->is_long || sch->long_rows > 0) && can_join(m, s);
}

/* Of the clients whose turn it is the prompt with the fewest rows left, of several the oldest, or just
 * the oldest; NULL: all are planned. */
static struct ig_seq *due_prompt(const struct ig_sched *sch, const struct ig_model *m,
				 bool shortest)
{
	struct ig_seq *s, *best = NULL;

	TAILQ_FOREACH(s, &sch->running, link) {
		if (!is_unplanned(sch, m, s))
			continue;
		if (!best || ig_client_turn(s) < ig_client_turn(best) ||
		    (shortest && ig_client_turn(s) == ig_client_turn(best) &&
		     ig_seq_n_left(s) < ig_seq_n_left(best)))
			best = s;
	}
	return best;
}

/* Rows of the oldest prompt among `left` rows of prompts: all that shorter ones leave, but at least
 * half of them. */
static int32_t oldest_share(const struct ig_sched *sch, const struct ig_model *m,
			    const struct ig_seq *oldest, int32_t left)
{
	int32_t share = left, least = left - left / 2, wanted = wanted_rows(sch, oldest);
	const struct ig_seq *s;

	TAILQ_FOREACH(s, &sch->running, link) {
		if (share <= least)
			break;
		if (s != oldest && is_unplanned(sch, m, s) &&
		    ig_client_turn(s) <= ig_client_turn(oldest) &&
		    ig_seq_n_left(s) < ig_seq_n_left(oldest))
			share -= wanted_rows(sch, s);
	}
	return min(share < least ? least : share, wanted);
}

/* Whether it decodes, or will after the round that is being planned. */
static bool is_stream(const struct ig_seq *s)
{
	return !s->held && (ig_seq_is_read(s) || !s->is_long) && s->max_output > 1 &&
	       !s->prefill_only && (s->n_flights || can_join(s->model, s));
}

/* Rows of its prompt that were not in the cache, or are to be read again after it lost its blocks. */
static int32_t rows_to_read(const struct ig_seq *s)
{
	int32_t n = s->n_prompt - s->result.n_cached, left = ig_seq_n_left(s);

	return n > left ? n : left;
}

/* What pace.c must know to plan a new round of m. */
static struct ig_pace_plan count_plan(struct ig_sched *sch, struct ig_model *m)
{
	struct ig_pace_plan plan = { .share = sch->now.prompt_share,
				     .chunk = (int32_t)sch->now.prefill_chunk };
	const struct ig_seq *s;
	struct ig_model *other;
	bool known = true;

	TAILQ_FOREACH(other, &sch->rotation, rotation)
		other->n_streams = 0;
	TAILQ_FOREACH(s, &sch->running, link) {
		plan.n_all_streams += is_stream(s) && !s->is_extra;
		s->model->n_streams += is_stream(s);
		bool is_prompt = s->is_long && !s->held && !is_stream(s);
		plan.n_prompts += is_prompt;
		if (is_prompt && s->model == m) {
			int32_t n_rows = rows_to_read(s);
			plan.n_rows = n_rows > plan.n_rows ? n_rows : plan.n_rows;
		}
	}
	TAILQ_FOREACH(other, &sch->rotation, rotation) {
		double ns = ig_pace_quiet_ns(&other->pace, other->n_streams);
		known = known && (ns > 0 || !other->n_streams);
		plan.quiet_ns += ns;
	}
	if (!known)
		plan.quiet_ns = 0;
	plan.n_streams = m->n_streams;
	m->limited = plan.n_all_streams > 0;
	return plan;
}

/* Plan up to n rows of s, a prompt, of the `left` that the round has.  A span is not cut: if the first one is longer
 * than n, it is planned nonetheless, and if there is no room for it, the next round begins with it.
 * False: it has no blocks for them. */
static bool plan_prompt(struct ig_sched *sch, struct ig_model *m, struct ig_seq *s, int32_t n,
			int32_t left)
{
	n = ig_spans_whole_rows(s, min(n, left), left);
	s->wants_room = !n;
	if (n)
		return plan_seq(sch, m, s, n);
	s->round = m->round;
	s->n_planned = s->n_draft = 0;
	return true;
}

/* Plan the prompts' part of a round. */
static void plan_prompts(struct ig_sched *sch, struct ig_model *m, const struct ig_pace_plan *plan,
			 int32_t left, uint32_t n_seqs)
{
	struct ig_seq *s;

	sch->long_rows = ig_pace_rows(&sch->pace, &m->pace, plan);
	sch->held_back = sch->held_back || (plan->n_prompts && !sch->long_rows);
	/* The few rows beside streams are not divided: of two such rounds one is the oldest's. */
	bool shortest = m->limited && sch->long_rows > 0 && ++m->n_limited % 2;
	s = due_prompt(sch, m, shortest);
	for (bool first = !m->limited; s && left > 0 && n_seqs < sch->b->max_seqs; first = false) {
		int32_t n = first ? oldest_share(sch, m, s, left) : wanted_rows(sch, s);
		if (!plan_prompt(sch, m, s, n, left))
			break;
		n_seqs += s->n_planned > 0;
		left -= s->n_planned;
		if (s->is_long)
			sch->long_rows -= s->n_planned;
		s = due_prompt(sch, m, true);
	}
}

/* The oldest prompt for whose span the last round had no room. */
static struct ig_seq *next_span(const struct ig_sched *sch, const struct ig_model *m)
{
	struct ig_seq *s;

	TAILQ_FOREACH(s, &sch->running, link)
		if (s->wants_room && can_join(m, s))
			return s;
	return NULL;
}

bool ig_sched_plan_round(struct ig_sched *sch, struct ig_model *m)
{
	int32_t left = (int32_t)sch->b->max_rows;
	uint32_t n_seqs = 0;
	struct ig_seq *s, *next;

	m->round++;
	ig_clients_choose(&sch->running, m);
	s = next_span(sch, m);
	if (s && plan_prompt(sch, m, s, 1, left)) {
		n_seqs += s->n_planned > 0;
		left -= s->n_planned;
	}
	for (s = sch->must_preempt ? NULL : TAILQ_FIRST(&sch->running);
	     s && left > 0 && n_seqs < sch->b->max_seqs; s = next) {
		int32_t own = ig_seq_own_rows(s);
		if (s->round == m->round || !can_join(m, s) || ig_seq_n_left(s) != own ||
		    own > left) {
			next = TAILQ_NEXT(s, link);
			continue;
		}
		/* Victims are younger, so they come later in the list; s itself is preempted only
		 * when no younger one is left. */
		if (!plan_seq(sch, m, s, own))
			break;
		n_seqs++;
		left -= s->n_planned;
		next = TAILQ_NEXT(s, link);
	}
	/* A victim may have been planned: it is no longer in the list. */
	if (!sch->must_preempt) {
		struct ig_pace_plan plan = count_plan(sch, m);
		int32_t beside = ig_pace_most_drafts(&sch->pace, &m->pace, &plan);
		int32_t drafts =
			ig_sched_draft(sch, m, left / 2, beside); /* prompts have the rest */
		plan.n_drafts = (uint32_t)drafts;
		plan_prompts(sch, m, &plan, left - drafts, n_seqs);
	}
	if (sch->must_preempt)
		m->round++; /* what was planned is planned again then */
	return !sch->must_preempt;
}

/* Whether m's round has rows of s that no step has had. */
static bool is_due(const struct ig_model *m, const struct ig_seq *s)
{
	return s->round == m->round && s->n_planned && can_join(m, s);
}

/* Of the prompts that are due, the next one: first those that end in this round, the shortest
 * first.  NULL: none is. */
static struct ig_seq *next_prompt(const struct ig_sched *sch, const struct ig_model *m)
{
	struct ig_seq *s, *best = NULL;
	int32_t least = INT32_MAX;

	TAILQ_FOREACH(s, &sch->running, link) {
		int32_t n = ig_seq_n_left(s) == s->n_planned ? s->n_planned : INT32_MAX;
		if (!is_due(m, s) || (best && n >= least))
			continue;
		best = s;
		least = n;
	}
	return best;
}

/* Rows with which a step ends although its round goes on.  Half of those that are efficient when all
 * prompts that are due are short: then most rows bring a first token, and it comes earlier. */
static int32_t enough_rows(const struct ig_sched *sch, const struct ig_model *m)
{
	int32_t rows = (int32_t)m->split_rows;
	const struct ig_seq *s;

	if (m->split_rows == sch->b->max_rows)
		return rows;
	TAILQ_FOREACH(s, &sch->running, link)
		if (is_due(m, s) && ig_seq_n_left(s) > rows)
			return rows;
	return (rows + 1) / 2;
}

void ig_sched_take_rows(struct ig_sched *sch, struct ig_model *m, struct ig_flight *f)
{
	const struct ig_step *step = &f->buffer->step;
	int32_t enough = enough_rows(sch, m);
	struct ig_seq *s;

	/* those that decode first */
	TAILQ_FOREACH(s, &sch->running, link)
		if (is_due(m, s) && ig_seq_n_left(s) == ig_seq_own_rows(s))
			ig_sched_add_rows(sch, f, s, ig_seq_own_rows(s) + s->n_draft);
	while (step->n_rows < enough && (s = next_prompt(sch, m))) {
		int32_t n = s->n_planned;
		/* Short ones do not wait for a long one, which fills up their step. */
		if (f->n_prefill && n > enough)
			n = ig_spans_whole_rows(s, enough - step->n_rows, n);
		ig_sched_add_rows(sch, f, s, n);
		if (s->n_planned) /* of the others a span is the first, perhaps */
			break;
	}
}

/* Whether s, whose next token is being sampled, goes on, but in no step before that token is known. */
static bool sits_out(const struct ig_model *m, const struct ig_seq *s)
{
	return s->n_flights && s->logit_index >= 0 && !s->held && !ig_seq_is_paused(s) &&
	       s->n_tokens + 1 - s->n_prompt < s->max_output && !can_join(m, s);
}

bool ig_sched_would_widen_gap(const struct ig_sched *sch, const struct ig_model *m)
{
	bool sits = false, has_prompt = false;
	const struct ig_seq *s;

	if (!sch->n_flights)
		return false;
	TAILQ_FOREACH(s, &sch->running, link) {
		if (s->model != m)
			continue;
		sits = sits || sits_out(m, s);
		has_prompt = has_prompt || (s->is_long && !ig_seq_is_read(s));
	}
	return sits && has_prompt;
}
