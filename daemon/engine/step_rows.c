/*
 * step_rows.c: rows of a step: a sequence's tokens, blocks and sampling parameters in the step's arrays.
 *
 * Of a model with recurrent layers the cache says which state the rows of a sequence read, and which
 * ones they lead to (kvcache.h); a sequence that is in a step that is not submitted goes back to the
 * state before.
 */
#include "daemon/engine/step_rows_private.h"

#include "daemon/engine/mtp_private.h"
#include "daemon/engine/spans_private.h"
#include "daemon/engine/speculate_private.h"

#include <string.h>

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

/* The states of n rows behind the `done` tokens that kv has.  False: there is none for them. */
static bool add_segments(struct ig_sched *sch, const struct ig_model *m, struct ig_step_buffer *b,
			 struct ig_kv_seq *kv, int32_t done, int32_t n)
{
	struct ig_step *step = &b->step;
	struct ig_kv_segment parts[IG_KV_MAX_SEGMENTS];
	int n_parts = sch->b->kv->seq_step(kv, (uint32_t)done, (uint32_t)(done + n), parts);
	int32_t row = step->n_rows, at = done, from = -1;

	for (int i = 0; i < n_parts; i++) {
		struct ig_step_segment *segment = &b->segments[step->n_segments++];
		int32_t end = (int32_t)parts[i].n_tokens;

		if (!i && parts[i].from)
			from = add_state(m, b, parts[i].from);
		*segment = (struct ig_step_segment){ row, end - at, from, from };
		if (parts[i].to != parts[i].from)
			segment->to = add_state(m, b, parts[i].to);
		row += end - at;
		at = end;
		from = segment->to;
	}
	return n_parts > 0;
}

bool ig_sched_add_cache(struct ig_sched *sch, const struct ig_model *m, struct ig_step_buffer *b,
			struct ig_kv_seq *kv, int32_t done, int32_t n)
{
	size_t n_blocks = ((size_t)(done + n) + IG_BLOCK_TOKENS - 1) / IG_BLOCK_TOKENS;

	if (m->has_state && !add_segments(sch, m, b, kv, done, n))
		return false;
	for (uint32_t g = 0; g < m->n_groups; g++) {
		uint32_t n_have;
		if (m->layouts[g].kind == IG_CACHE_STATE)
			continue;
		const uint32_t *blocks = sch->b->kv->seq_blocks(kv, g, &n_have);
		memcpy(b->block_tables[g] + (size_t)b->step.n_seqs * m->max_blocks, blocks,
		       n_blocks * sizeof *blocks);
	}
	return true;
}

/* For the model's head: the tokens behind s's last n rows of the step, and for which of those with logits it
 * guesses one more; returns the first guess's index, -1: none. */
static int32_t add_guesses(struct ig_sched *sch, struct ig_flight *f, struct ig_seq *s, int32_t n,
			   bool decodes)
{
	struct ig_step_buffer *b = f->buffer;
	struct ig_step *step = &b->step;
	const int32_t first = step->n_rows - n, done = b->positions[first];
	const int32_t n_known = s->n_tokens + s->n_draft;
	/* of a longer draft most would be for nothing */
	const bool asks = ig_mtp_asks(sch, s, decodes) && s->logit_index >= 0 && s->n_draft < 2;
	const int32_t index = asks ? step->n_guesses : -1;

	for (int32_t i = 0; i < n; i++)
		b->next_ids[first + i] = done + i + 1 < n_known ? ig_spans_id(s, done + i + 1) : 0;
	for (int32_t i = s->logit_index; i >= 0 && i < step->n_logit_rows; i++) {
		b->next_ids[b->logit_rows[i]] = -1 - i;
		if (asks)
			b->guess_rows[step->n_guesses++] = i;
	}
	if (asks && decodes)
		f->n_guesses += (uint32_t)(step->n_guesses - index);
	if (ig_mtp_may(sch, s))
		step->next_ids = b->next_ids;
	return index;
}

void ig_sched_add_rows(struct ig_sched *sch, struct ig_flight *f, struct ig_seq *s, int32_t n)
{
	struct ig_model *m = f->model;
	struct ig_step_buffer *b = f->buffer;
	struct ig_step *step = &b->step;
	int32_t seq = step->n_seqs;
	int32_t first = step->n_rows, done = ig_seq_done_then(s), n_tokens = ig_seq_tokens_then(s);
	int32_t n_draft = s->n_draft;
	const int32_t own = ig_seq_own_rows(s);
	bool decodes = n == own + n_draft && done + own == n_tokens && done >= s->n_prompt;

	if (!ig_sched_add_cache(sch, m, b, s->kv, done, n)) {
		s->n_planned = 0; /* it is planned again, with blocks for it */
		sch->moved = true;
		return;
	}
	step->n_seqs++;
	for (int32_t i = 0; i < n; i++) {
		bool known = done + i < s->n_tokens + n_draft;
		b->token_ids[first + i] = known ? ig_spans_id(s, done + i) : 0;
		b->token_from[first + i] = known ? -1 : s->logit_index;
		if (!known) {
			step->token_from = b->token_from;
			step->prev_ids = sch->flights[sch->n_flights - 1].buffer->sampled_ids;
		}
		b->positions[first + i] = done + i;
		b->row_seq[first + i] = seq;
		b->row_adapter[first + i] = (int32_t)s->shown->adapter - 1;
	}
	ig_spans_add_rows(b, s, first, n);
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
	int32_t guess = m->has_mtp ? add_guesses(sch, f, s, n, decodes) : -1;
	f->n_drafts += (uint32_t)(n_draft + (decodes ? s->n_again : 0));
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
		(struct ig_flight_seq){ s, n, n_draft, s->draft_source, s->logit_index, guess, 0 };
	s->n_planned -= n;
	s->n_draft = s->n_again = 0;
}
