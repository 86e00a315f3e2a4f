/*
 * step.c: steps: which rows they have, and what happens to the tokens that they sample.  A step is
 * of one model; models with work alternate.
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
 *
 * Where a device computes asynchronously (max_flights is 2), step n+2 is submitted before n+1 is
 * complete: its first rows are tokens that n+1 still has to sample; those of a sequence that ends
 * with n+1 are discarded, and a sequence keeps its blocks until its step is complete.  A step does
 * not run ahead where it would have to preempt, past a sequence's last token, or for rows whose
 * sampling depends on the tokens so far (penalties, a grammar's mask).  Logits are copied only for
 * rows with logprobs, once per step in flight.
 *
 * A sequence that decodes may have further rows for a draft (speculate.c), whose tokens are not
 * counted in n_tokens before they are sampled.
 *
 * Of a model with recurrent layers the cache says which state the rows of a sequence read, and which
 * ones they lead to (kvcache.h); a sequence that is in a step that is not submitted goes back to the
 * state before.
 */
#include "daemon/engine/step_private.h"

#include "daemon/engine/standstill_private.h"

#include "base/clock.h"
#include "base/log.h"
#include "daemon/engine/admission_private.h"
#include "daemon/engine/speculate_private.h"
#include "daemon/engine/texts_private.h"

#include <errno.h>
#include <string.h>

/* A prompt of which so many rows were computed is saved when it is read, and every one whose blocks leave a
 * window; others when they end. */
#define SAVED_ROWS 2048

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

/* The sampling parameters of the token at position, after n of its draft, from row i of the logits. */
static void add_sampling(struct ig_sched *sch, struct ig_flight *f, struct ig_seq *s, int32_t i,
			 int32_t position, int32_t n)
{
	struct ig_step_buffer *b = f->buffer;
	struct ig_step *step = &b->step;
	struct ig_sample_params *p = &b->sample[i];

	*p = s->sample;
	p->position = position;
	p->first_adjust = step->n_adjusts;
	p->n_adjusts = ig_seq_adjusts_then(s, n, b->adjusts + step->n_adjusts);
	step->n_adjusts += p->n_adjusts;
	if (s->matcher) {
		/* words beyond the tokenizer's tokens, if there are any, stay zero */
		uint32_t *mask = b->masks + (size_t)step->n_masks * f->model->mask_words;
		p->mask = (int32_t)step->n_masks++;
		if (n)
			ig_sched_draft_mask(sch, s, n, mask);
		else
			ig_grammar_matcher_mask(s->matcher, mask);
	}
	if (s->n_top >= 0)
		step->logits = sch->logits[sch->n_submitted % sch->b->max_flights];
}

/* Add a state to the step's tables; words: its parts. */
static int32_t add_state(const struct ig_model *m, struct ig_step_buffer *b, const uint32_t *words)
{
	int32_t state = b->step.n_states++;

	for (uint32_t g = 0; g < m->n_groups; g++) {
		size_t n = (size_t)b->kv[g].max_blocks;
		if (m->layouts[g].kind != IG_CACHE_STATE)
			continue;
		memcpy(b->block_tables[g] + (size_t)state * n, words, n * sizeof *words);
		words += n;
	}
	return state;
}

/* The states of n rows of s behind the `done` tokens that it has.  False: there is none for it. */
static bool add_segments(struct ig_sched *sch, struct ig_flight *f, struct ig_seq *s, int32_t done,
			 int32_t n)
{
	struct ig_step_buffer *b = f->buffer;
	struct ig_step *step = &b->step;
	struct ig_kv_segment parts[IG_KV_MAX_SEGMENTS];
	int n_parts = sch->b->kv->seq_step(s->kv, (uint32_t)done, (uint32_t)(done + n), parts);
	int32_t row = step->n_rows, at = done, from = -1;

	for (int i = 0; i < n_parts; i++) {
		struct ig_step_segment *segment = &b->segments[step->n_segments++];
		int32_t end = (int32_t)parts[i].n_tokens;

		if (!i && parts[i].from)
			from = add_state(f->model, b, parts[i].from);
		*segment = (struct ig_step_segment){ row, end - at, from, from };
		if (parts[i].to != parts[i].from)
			segment->to = add_state(f->model, b, parts[i].to);
		row += end - at;
		at = end;
		from = segment->to;
	}
	return n_parts > 0;
}

static void add_rows(struct ig_sched *sch, struct ig_flight *f, struct ig_seq *s, int32_t n)
{
	struct ig_model *m = f->model;
	struct ig_step_buffer *b = f->buffer;
	struct ig_step *step = &b->step;
	int32_t seq = step->n_seqs;
	int32_t first = step->n_rows, done = ig_seq_done_then(s), n_tokens = ig_seq_tokens_then(s);
	int32_t n_draft = s->n_draft;
	uint32_t n_blocks = ((uint32_t)(done + n) + IG_BLOCK_TOKENS - 1) / IG_BLOCK_TOKENS;
	bool decodes = n == 1 + n_draft && done + 1 == n_tokens && done >= s->n_prompt;

	if (m->has_state && !add_segments(sch, f, s, done, n)) {
		s->n_planned = 0; /* it is planned again, with blocks for it */
		sch->moved = true;
		return;
	}
	step->n_seqs++;
	for (uint32_t g = 0; g < m->n_groups; g++) {
		uint32_t n_have;
		if (m->layouts[g].kind == IG_CACHE_STATE)
			continue;
		const uint32_t *blocks = sch->b->kv->seq_blocks(s->kv, g, &n_have);
		memcpy(b->block_tables[g] + (size_t)seq * m->max_blocks, blocks,
		       n_blocks * sizeof *blocks);
	}
	for (int32_t i = 0; i < n; i++) {
		bool known = done + i < s->n_tokens + n_draft;
		b->token_ids[first + i] = known ? s->tokens[done + i] : 0;
		b->token_from[first + i] = known ? -1 : s->logit_index;
		if (!known) {
			step->token_from = b->token_from;
			step->prev_ids = sch->flights[sch->n_flights - 1].buffer->sampled_ids;
		}
		b->positions[first + i] = done + i;
		b->row_seq[first + i] = seq;
		b->row_adapter[first + i] = (int32_t)s->shown->adapter - 1;
	}
	if (s->shown->adapter)
		step->row_adapter = b->row_adapter;
	b->seq_lens[seq] = done + n;
	step->n_rows += n;
	s->n_rows = n;
	s->logit_index = -1;
	if (done + n == n_tokens + n_draft && !s->prefill_only) {
		s->logit_index = step->n_logit_rows;
		for (int32_t k = 0; k <= n_draft; k++) {
			int32_t i = step->n_logit_rows++;
			b->logit_rows[i] = first + n - 1 - n_draft + k;
			add_sampling(sch, f, s, i, n_tokens + k, k);
		}
	}
	f->n_drafts += (uint32_t)n_draft;
	if (s->draft_source == IG_DRAFT_MODEL)
		f->n_model_drafts += (uint32_t)n_draft;
	if (decodes)
		f->n_decode++;
	else
		f->n_prefill += (uint32_t)n;
	if (!decodes)
		ig_client_serve(s, n);
	if (!decodes && s->is_long)
		f->n_long += (uint32_t)n;
	f->seqs[f->n_seqs++] =
		(struct ig_flight_seq){ s, n, n_draft, s->draft_source, s->logit_index, 0 };
	s->n_planned -= n;
	s->n_draft = 0;
}

/* Plan n rows of s in the new round.  False: it has no blocks for them. */
static bool plan_seq(struct ig_sched *sch, struct ig_model *m, struct ig_seq *s, int32_t n)
{
	if (!ig_sched_ensure_capacity(sch, s, &n))
		return false;
	s->round = m->round;
	s->n_planned = n;
	s->n_draft = 0;
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
	return !s->held && (ig_seq_n_left(s) < 2 || !s->is_long) && s->max_output > 1 &&
	       !s->prefill_only && (s->n_flights || can_join(s->model, s));
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
		if (is_prompt && s->model == m && ig_seq_n_left(s) > plan.n_left)
			plan.n_left = ig_seq_n_left(s);
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
		if (!plan_seq(sch, m, s, min(n, left)))
			break;
		n_seqs++;
		left -= s->n_planned;
		if (s->is_long)
			sch->long_rows -= s->n_planned;
		s = due_prompt(sch, m, true);
	}
}

/* Choose the sequences and rows of the next round of m, and ensure their blocks.  False: a
 * sequence must be preempted, which waits until no step is in flight. */
static bool plan_round(struct ig_sched *sch, struct ig_model *m)
{
	int32_t left = (int32_t)sch->b->max_rows;
	uint32_t n_seqs = 0;
	struct ig_seq *s, *next;

	m->round++;
	ig_clients_choose(&sch->running, m);
	for (s = TAILQ_FIRST(&sch->running); s && n_seqs < sch->b->max_seqs; s = next) {
		if (!can_join(m, s) || ig_seq_n_left(s) != 1) {
			next = TAILQ_NEXT(s, link);
			continue;
		}
		/* Victims are younger, so they come later in the list; s itself is preempted only
		 * when no younger one is left. */
		if (!plan_seq(sch, m, s, 1))
			break;
		n_seqs++;
		left--;
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

/* Rows of the step f from m's round. */
static void take_rows(struct ig_sched *sch, struct ig_model *m, struct ig_flight *f)
{
	const struct ig_step *step = &f->buffer->step;
	int32_t enough = enough_rows(sch, m);
	struct ig_seq *s;

	/* those that decode first */
	TAILQ_FOREACH(s, &sch->running, link)
		if (is_due(m, s) && ig_seq_n_left(s) == 1)
			add_rows(sch, f, s, 1 + s->n_draft);
	while (step->n_rows < enough && (s = next_prompt(sch, m))) {
		int32_t n = s->n_planned;
		/* Short ones do not wait for a long one, which fills up their step. */
		if (f->n_prefill && n > enough)
			n = enough - step->n_rows;
		add_rows(sch, f, s, n);
	}
}

/* Whether s, whose next token is being sampled, goes on, but in no step before that token is known. */
static bool sits_out(const struct ig_model *m, const struct ig_seq *s)
{
	return s->n_flights && s->logit_index >= 0 && !s->held && !ig_seq_is_paused(s) &&
	       s->n_tokens + 1 - s->n_prompt < s->max_output && !can_join(m, s);
}

/* Whether a step of m that runs ahead would have rows of long prompts, and not one of a stream that sits out: its
 * time would come on top of that of the stream's own next step, which has such rows, too. */
static bool would_widen_gap(const struct ig_sched *sch, const struct ig_model *m)
{
	bool sits = false, has_prompt = false;
	const struct ig_seq *s;

	if (!sch->n_flights)
		return false;
	TAILQ_FOREACH(s, &sch->running, link) {
		if (s->model != m)
			continue;
		sits = sits || sits_out(m, s);
		has_prompt = has_prompt || (s->is_long && ig_seq_n_left(s) > 1);
	}
	return sits && has_prompt;
}

/* Fill in f for m.  Of a sequence only its blocks, n_rows and logit_index change. */
static bool build_step(struct ig_sched *sch, struct ig_model *m, struct ig_flight *f)
{
	struct ig_step *step = &m->steps[m->next_step].step;
	uint32_t n_slabs;

	if (ig_sched_awaits_draft(sch, m) || would_widen_gap(sch, m))
		return false;
	f->model = m;
	f->buffer = &m->steps[m->next_step];
	f->n_seqs = f->n_prefill = f->n_decode = f->n_long = 0;
	f->n_drafts = f->n_model_drafts = 0;
	f->disturbed = false;
	step->n_rows = step->n_seqs = step->n_logit_rows = 0;
	step->n_segments = step->n_states = 0;
	step->n_adjusts = step->n_masks = 0;
	step->logits = NULL;
	step->token_from = step->prev_ids = NULL;
	step->row_adapter = NULL;
	f->limited = false;
	if (m->whole_texts) {
		step->logits = f->buffer->results;
		return ig_sched_build_texts(sch, m, f);
	}
	take_rows(sch, m, f);
	if (!step->n_rows) { /* the round is over */
		if (!plan_round(sch, m))
			return false;
		take_rows(sch, m, f);
	}
	f->limited = m->limited;
	f->draft_ns = sch->draft_ns;
	sch->draft_ns = 0;
	step->slab_bases = sch->b->kv->slab_bases(sch->b->cache, &n_slabs);
	return step->n_rows > 0;
}

/* A step that included s is complete. */
static void land(struct ig_sched *sch, struct ig_seq *s)
{
	if (--s->n_flights)
		return;
	if (s->result.finish != IG_FINISH_NONE)
		ig_sched_drop_kv(sch, s); /* it ended while the step ran */
	if (s->completed)
		ig_seq_destroy(s);
}

/* All sequences of f end with the driver's error. */
static void fail_flight(struct ig_sched *sch, struct ig_flight *f, const char *what, int rc)
{
	const char *text = ig_program_error(f->model->program)->text;

	if (rc == -ENODEV && sch->device_lost) {
		ig_log_error("the device is lost: %s", text);
		sch->device_lost(sch->device_lost_ctx);
		sch->device_lost = NULL;
	}

	for (uint32_t i = 0; i < f->n_seqs; i++) {
		struct ig_seq *s = f->seqs[i].seq;
		bool over = s->result.finish != IG_FINISH_NONE;
		land(sch, s);
		if (!over)
			ig_sched_fail(sch, s, rc, "the driver failed to %s a step: %s", what,
				      *text ? text : strerror(-rc));
	}
	f->n_seqs = 0;
}

/* The device has no memory for the copy of f's logits: sequences with logprobs fail, the others
 * are in the next step instead of this one. */
static void fail_probabilities(struct ig_sched *sch, struct ig_flight *f)
{
	for (uint32_t i = 0; i < f->n_seqs; i++) {
		struct ig_seq *s = f->seqs[i].seq;
		bool fails = s->n_top >= 0 && s->result.finish == IG_FINISH_NONE;
		if (f->model->has_state && s->kv)
			sch->b->kv->seq_undo(
				s->kv, (uint32_t)(f->buffer->step.seq_lens[i] - f->seqs[i].n_rows));
		land(sch, s);
		if (fails)
			ig_sched_fail(sch, s, -ENOMEM,
				      "the device has no memory for log probabilities");
	}
	f->n_seqs = 0; /* a step before it that is in flight completes before another is built */
}

/* Remove flight i; its arrays are used again. */
static void remove_flight(struct ig_sched *sch, uint32_t i)
{
	struct ig_flight f = sch->flights[i];

	sch->n_flights--;
	for (; i < sch->n_flights; i++)
		sch->flights[i] = sch->flights[i + 1];
	sch->flights[sch->n_flights] = f;
}

static bool submit_next(struct ig_sched *sch)
{
	struct ig_flight *f = &sch->flights[sch->n_flights];
	struct ig_model *m, *next;

	if (!sch->n_flights)
		sch->must_preempt = false;
	for (m = TAILQ_FIRST(&sch->rotation); m && !sch->must_preempt && !sch->holds_back;
	     m = next) {
		int rc;
		next = TAILQ_NEXT(m, rotation);
		if (!build_step(sch, m, f))
			continue;
		TAILQ_REMOVE(&sch->rotation, m, rotation);
		TAILQ_INSERT_TAIL(&sch->rotation, m, rotation);
		for (uint32_t k = 0; k < f->n_seqs; k++)
			f->seqs[k].seq->n_flights++;
		rc = ig_program_submit(m->program, &f->buffer->step);
		if (rc == -ENOMEM && f->buffer->step.logits && !m->whole_texts) {
			fail_probabilities(sch, f);
			return false;
		}
		if (rc < 0) {
			fail_flight(sch, f, "begin", rc);
			return false;
		}
		m->next_step = (m->next_step + 1) % IG_STEPS_IN_FLIGHT;
		sch->n_flights++;
		sch->n_submitted++;
		ig_sched_note_move(sch);
		return true;
	}
	return false;
}

bool ig_sched_submit_step(struct ig_sched *sch)
{
	sch->held_back = false;
	if (submit_next(sch))
		return true;
	if (sch->n_flights || sch->must_preempt || sch->holds_back || !sch->held_back)
		return false;
	/* Streams that prompts were held back for have no step, since each waits for a block, say, which a
	 * prompt has: nothing would ever happen. */
	ig_pace_forgive(&sch->pace);
	return submit_next(sch);
}

/* A token was sampled for s: time it, check it against the grammar and for an end, append it.
 * logits: its row; NULL: not copied. */
static void take_token(struct ig_sched *sch, struct ig_seq *s, int32_t id, const float *logits,
		       int64_t now)
{
	const struct ig_tokenizer *t = s->model->tokenizer;
	bool whole;

	if (id < 0 || id >= ig_tokenizer_n_vocab(t)) {
		ig_sched_fail(sch, s, -EIO,
			      "the model sampled token %d at position %d; it has %d tokens", id,
			      s->n_tokens, ig_tokenizer_n_vocab(t));
		return;
	}
	if (s->matcher && ig_grammar_matcher_accept(s->matcher, id) < 0) {
		ig_sched_fail(sch, s, -EIO,
			      "the model sampled token %d at position %d, which the grammar does "
			      "not allow",
			      id, s->n_tokens);
		return;
	}
	if (!s->first_ns)
		s->first_ns = now;
	else {
		double seconds = (double)(now - s->last_ns) * 1e-9;
		s->itl[ig_itl_bucket(seconds * 1e3)]++;
		ig_metrics_inter_token(sch->b->metrics, seconds);
	}
	s->last_ns = now;
	if (ig_tokenizer_is_end(t, id) && !s->ignore_end) {
		ig_sched_end(sch, s, IG_FINISH_STOP);
		return;
	}
	if (s->n_top >= 0 && (!logits || ig_seq_add_logprob(s, id, logits) < 0)) {
		ig_sched_fail(sch, s, -EIO,
			      "the log probability of token %d at position %d is missing", id,
			      s->n_tokens);
		return;
	}
	s->tokens[s->n_tokens++] = id;
	ig_seq_count(s, id);
	if (s->lookup.newest)
		ig_lookup_take(&s->lookup, s->history);
	whole = s->matcher && ig_grammar_matcher_is_done(s->matcher);
	if (whole || s->n_tokens - s->n_prompt >= s->max_output)
		ig_sched_end(sch, s, whole ? IG_FINISH_STOP : IG_FINISH_LENGTH);
}

/* The tokens that a step has sampled for s: one, and those of its draft that were right. */
static void take_tokens(struct ig_sched *sch, struct ig_seq *s, const struct ig_flight *f,
			const struct ig_flight_seq *row, int32_t n, int64_t now)
{
	const struct ig_step *step = &f->buffer->step;
	size_t n_logits = f->model->n_logits;

	for (int32_t i = row->logit_index;
	     i < row->logit_index + n && s->result.finish == IG_FINISH_NONE; i++)
		take_token(sch, s, step->sampled_ids[i],
			   step->logits ? step->logits + (size_t)i * n_logits : NULL, now);
	s->awaits_draft = sch->b->max_flights > 1 && ig_sched_would_draft(sch, s);
}

void ig_sched_wait_step(struct ig_sched *sch)
{
	struct ig_flight *f = &sch->flights[0];
	const struct ig_step *step = &f->buffer->step;
	struct ig_model *m = f->model;
	int rc = ig_program_wait(m->program);
	int64_t now = ig_now_ns();
	double ns;

	ig_sched_note_move(sch);
	if (rc < 0) {
		/* no step of this program that was under way has results */
		for (uint32_t i = 0; i < sch->n_flights;) {
			if (sch->flights[i].model != m) {
				i++;
				continue;
			}
			fail_flight(sch, &sch->flights[i], "finish", rc);
			remove_flight(sch, i);
		}
		return;
	}
	ns = (double)ig_driver_step_ns(sch->b->driver);
	ig_metrics_step(sch->b->metrics, f->n_prefill, f->n_decode, ns * 1e-9);
	ig_sched_price_drafts(f, ns);
	if (!f->disturbed)
		ig_pace_learn(&sch->pace, &m->pace,
			      &(struct ig_pace_step){ .n_decode = f->n_decode,
						      .n_prefill = f->n_prefill,
						      .n_long = f->n_long,
						      .n_drafts = f->n_drafts,
						      .limited = f->limited,
						      .ns = ns,
						      .draft_ns = f->draft_ns });
	if (!f->n_decode && !f->disturbed && !m->whole_texts)
		ig_kv_disk_learn(sch, m, f->n_prefill, ns);
	for (uint32_t i = 0; i < f->n_seqs; i++) {
		struct ig_flight_seq *row = &f->seqs[i];
		struct ig_seq *s = row->seq;
		int32_t n_right = 0;
		if (s->result.finish != IG_FINISH_NONE) {
			land(sch, s);
			continue;
		}
		s->n_flights--;
		if (m->whole_texts) {
			ig_sched_take_texts(sch, s, f, row, now);
			ig_sched_publish_state(sch, s);
			ig_sched_show_later(sch, s);
			continue;
		}
		if (row->n_draft)
			n_right = ig_sched_verify_draft(sch, f, row,
							step->sampled_ids + row->logit_index);
		/* the tokens of the draft that were right are behind its own already */
		s->n_done += row->n_rows - row->n_draft + n_right;
		if (sch->b->prefix_cache)
			sch->b->kv->seq_commit(s->kv, s->tokens, (uint32_t)s->n_done);
		if (m->window || m->has_state)
			sch->b->kv->seq_advance(s->kv, (uint32_t)s->n_done);
		if (s->n_done >= s->n_prompt && !s->read_ns) {
			s->read_ns = now;
			if (s->n_prompt - s->result.n_cached >= SAVED_ROWS || m->window)
				ig_kv_disk_save(sch, s);
		}
		if (row->logit_index >= 0)
			take_tokens(sch, s, f, row, 1 + n_right, now);
		else if (s->prefill_only && s->n_done == s->n_prompt)
			ig_sched_end(sch, s, IG_FINISH_STOP);
		ig_sched_publish_state(sch, s);
		ig_sched_show_later(sch, s);
	}
	remove_flight(sch, 0);
}
