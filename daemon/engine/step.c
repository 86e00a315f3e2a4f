/*
 * step.c: steps: how they are built, submitted and completed, and what happens to the tokens that they sample.  A step
 * is of one model; models with work alternate.  Which rows it has says rounds.c.
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
 */
#include "daemon/engine/step_private.h"

#include "base/clock.h"
#include "base/log.h"
#include "daemon/engine/admission_private.h"
#include "daemon/engine/mtp_private.h"
#include "daemon/engine/rounds_private.h"
#include "daemon/engine/speculate_private.h"
#include "daemon/engine/standstill_private.h"
#include "daemon/engine/texts_private.h"

#include <errno.h>
#include <string.h>

/* A prompt of which so many rows were computed is saved when it is read, and every one whose blocks leave a
 * window; others when they end. */
#define SAVED_ROWS 2048
/* What a submit takes for a recording, if it is more, makes the time of steps in flight worthless. */
#define MOST_PREPARE_NS 200000

/* Fill in f for m.  Of a sequence only its blocks, n_rows and logit_index change. */
static bool build_step(struct ig_sched *sch, struct ig_model *m, struct ig_flight *f)
{
	struct ig_step *step = &m->steps[m->next_step].step;
	uint32_t n_slabs;

	if (ig_sched_awaits_draft(sch, m) || ig_sched_would_widen_gap(sch, m))
		return false;
	f->model = m;
	f->buffer = &m->steps[m->next_step];
	f->n_seqs = f->n_prefill = f->n_decode = f->n_long = 0;
	f->n_drafts = f->n_model_drafts = f->n_guesses = 0;
	f->disturbed = false;
	step->n_rows = step->n_seqs = step->n_logit_rows = 0;
	step->n_segments = step->n_states = 0;
	step->n_adjusts = step->n_masks = 0;
	step->n_guesses = 0;
	step->next_ids = NULL;
	step->logits = NULL;
	step->token_from = step->prev_ids = NULL;
	step->row_adapter = NULL;
	step->outside = NULL;
	step->rope_positions = step->sees_to = NULL;
	f->limited = false;
	if (m->whole_texts) {
		step->logits = f->buffer->results;
		return ig_sched_build_texts(sch, m, f);
	}
	ig_sched_take_rows(sch, m, f);
	if (!step->n_rows) { /* the round is over */
		if (!ig_sched_plan_round(sch, m))
			return false;
		ig_sched_take_rows(sch, m, f);
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
		if (ig_program_prepare_ns(m->program) > MOST_PREPARE_NS)
			for (uint32_t k = 0; k < sch->n_flights; k++)
				sch->flights[k].disturbed = true;
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
	ig_mtp_take(s, id);
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
	if (row->guess_index >= 0)
		ig_mtp_guess(s, step->guessed_ids[row->guess_index + n - 1]);
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
						      .n_guesses = f->n_guesses,
						      .limited = f->limited,
						      .ns = ns,
						      .draft_ns = f->draft_ns });
	if (!f->n_decode && !f->disturbed && !m->whole_texts)
		ig_kv_disk_learn(sch, m, f->n_prefill, ns);
	for (uint32_t i = 0; i < f->n_seqs; i++) {
		struct ig_flight_seq *row = &f->seqs[i];
		struct ig_seq *s = row->seq;
		int32_t n_right = 0, before = s->n_done;
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
		s->n_done += row->n_rows - row->n_draft + n_right - s->n_again;
		if (sch->b->prefix_cache)
			sch->b->kv->seq_commit(s->kv, s->tokens, (uint32_t)s->n_done);
		ig_sched_advance_kv(sch, m, s->kv, before, s->n_done);
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
