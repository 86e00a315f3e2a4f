/*
 * gpu_case_step.c: the step of a case as kernels read it, from the call's own.
 */
#include "tests/ops/gpu_case_private.h"

#include "shaders/step.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Space for n_bytes in the step, filled with zeros or src; its place. */
static int put(struct run *r, const void *src, uint64_t n_bytes, uint32_t *place,
	       struct ig_error *err)
{
	uint64_t at = (r->step_bytes + 15) / 16 * 16, need = at + n_bytes + 16;

	if (need > r->cap_step) {
		uint8_t *p = realloc(r->step, 2 * need);

		if (!p)
			return ig_fail(err, -ENOMEM, "no memory for a step");
		memset(p + r->cap_step, 0, 2 * need - r->cap_step);
		r->step = p;
		r->cap_step = 2 * need;
	}
	if (src && n_bytes)
		memcpy(r->step + at, src, n_bytes);
	*place = (uint32_t)at;
	r->step_bytes = at + n_bytes;
	return 0;
}

static uint32_t ranges_of(const struct ig_step *s, int32_t row)
{
	return (uint32_t)ig_step_sees_to(s, 1, row) / STEP_RANGE + 1;
}

/* First rows of the sequences, and which rows have partials. */
static int put_sequences(struct run *r, struct step_head *head, struct ig_error *err)
{
	const struct ig_step *s = r->c->launch->step;
	uint32_t n_partials = 0, *partials;
	int32_t *first, row = 0;
	int rc;

	rc = put(r, NULL, (uint64_t)(s->n_seqs + 1) * 4, &head->seq_rows, err);
	if (!rc)
		rc = put(r, NULL, (uint64_t)s->n_rows * 4, &head->partials, err);
	if (rc)
		return rc;
	first = (int32_t *)(void *)(r->step + head->seq_rows);
	partials = (uint32_t *)(void *)(r->step + head->partials);
	for (int32_t q = 0; s->row_seq && q < s->n_seqs; q++) {
		uint32_t need = 0, ranges = 0, n;

		first[q] = row;
		while (row < s->n_rows && s->row_seq[row] == q) {
			const uint32_t of_row = ranges_of(s, row);
			ranges = of_row > ranges ? of_row : ranges;
			need += of_row;
			row++;
		}
		n = (uint32_t)(row - first[q]);
		if (!STEP_SPLITS(n, ranges) || need > r->c->max_partials - n_partials) {
			for (int32_t i = first[q]; i < row; i++)
				partials[i] = STEP_NONE;
			r->live[IG_LIVE_LOOP_ROWS] =
				n > r->live[IG_LIVE_LOOP_ROWS] ? n : r->live[IG_LIVE_LOOP_ROWS];
			continue;
		}
		for (int32_t i = first[q]; i < row; i++) {
			partials[i] = n_partials;
			n_partials += ranges_of(s, i);
		}
		r->live[IG_LIVE_SPLIT_ROWS] =
			n > r->live[IG_LIVE_SPLIT_ROWS] ? n : r->live[IG_LIVE_SPLIT_ROWS];
		r->live[IG_LIVE_SPLIT_RANGES] = ranges > r->live[IG_LIVE_SPLIT_RANGES] ?
							ranges :
							r->live[IG_LIVE_SPLIT_RANGES];
	}
	first[s->n_seqs] = row;
	return 0;
}

static int put_samples(struct run *r, struct step_head *head, struct ig_error *err)
{
	const struct ig_step *s = r->c->launch->step;
	struct step_sample *to;
	int rc = put(r, NULL, (uint64_t)s->n_logit_rows * sizeof *to, &head->sample, err);

	if (rc || !s->sample)
		return rc;
	to = (struct step_sample *)(void *)(r->step + head->sample);
	for (int32_t i = 0; i < s->n_logit_rows; i++) {
		const struct ig_sample_params *p = &s->sample[i];

		to[i] = (struct step_sample){
			p->temperature,
			p->top_p,
			p->min_p,
			p->top_k,
			p->repetition_penalty,
			p->frequency_penalty,
			p->presence_penalty,
			p->mask,
			p->first_adjust,
			p->n_adjusts,
			p->position,
			0,
			(uint32_t)p->seed,
			(uint32_t)(p->seed >> 32),
		};
		if (p->temperature > 0.0f)
			r->live[IG_LIVE_RANDOM_ROWS] = (uint32_t)s->n_logit_rows;
	}
	return 0;
}

/* The states that sequences begin with, then those that segments lead to. */
static int put_states(struct run *r, const struct ig_step_kv *from, struct step_kv *to,
		      struct ig_error *err)
{
	const struct ig_step *s = r->c->launch->step;
	const uint64_t n = (uint64_t)from->max_blocks;
	int rc = put(r, NULL, (uint64_t)(s->n_seqs + s->n_segments) * n * 4, &to->tables, err);

	for (int32_t i = 0; !rc && i < s->n_segments; i++) {
		const struct ig_step_segment *g = &s->segments[i];
		const int32_t q = s->row_seq[g->first_row];
		uint32_t *table = (uint32_t *)(void *)(r->step + to->tables);
		uint32_t *begin = table + (uint64_t)q * n;

		memcpy(table + (uint64_t)(s->n_seqs + i) * n,
		       from->block_tables + (uint64_t)g->to * n, n * 4);
		if (g->first_row && s->row_seq[g->first_row - 1] == q)
			continue;
		if (g->from >= 0)
			memcpy(begin, from->block_tables + (uint64_t)g->from * n, n * 4);
		else
			memset(begin, 0xff, n * 4); /* STEP_NONE */
	}
	to->layer_stride = from->layout->n_kv_heads;
	return rc;
}

static int put_segments(struct run *r, struct step_head *head, struct ig_error *err)
{
	const struct ig_step *s = r->c->launch->step;
	uint32_t *first, *ends;
	int rc = put(r, NULL, (uint64_t)(s->n_seqs + 1) * 4, &head->seq_segments, err);

	rc = rc ? rc : put(r, NULL, (uint64_t)s->n_segments * 4, &head->segment_ends, err);
	if (rc)
		return rc;
	first = (uint32_t *)(void *)(r->step + head->seq_segments);
	ends = (uint32_t *)(void *)(r->step + head->segment_ends);
	for (int32_t i = 0; i < s->n_segments; i++) {
		ends[i] = (uint32_t)(s->segments[i].first_row + s->segments[i].n_rows);
		first[s->row_seq[s->segments[i].first_row] + 1] = (uint32_t)i + 1;
	}
	return 0;
}

static int put_cache(struct run *r, struct step_head *head, struct ig_error *err)
{
	const struct ig_gpu_case *c = r->c;
	const struct ig_step *s = c->launch->step;
	struct step_copy *copies;
	uint64_t *slabs;
	int rc;

	for (uint32_t g = 0; g < s->n_groups && g < STEP_MAX_GROUPS; g++) {
		const struct ig_kv_layout *l = s->kv[g].layout;

		head->kv[g] = (struct step_kv){
			.block_bytes = l->block_bytes,
			.max_blocks = (uint32_t)s->kv[g].max_blocks,
			.layer_stride = (uint32_t)l->layer_stride,
			.v_offset = (uint32_t)l->v_offset,
			.head_stride = (uint32_t)l->head_stride,
			.token_stride = (uint32_t)(l->k_token_stride ? l->k_token_stride :
								       l->v_token_stride),
		};
		rc = l->kind == IG_CACHE_STATE ?
			     put_states(r, &s->kv[g], &head->kv[g], err) :
			     put(r, s->kv[g].block_tables,
				 (uint64_t)s->n_seqs * (uint64_t)s->kv[g].max_blocks * 4,
				 &head->kv[g].tables, err);
		if (rc)
			return rc;
	}
	rc = put(r, NULL, c->n_slabs * sizeof *slabs, &head->slabs, err);
	if (!rc)
		rc = put(r, NULL, c->n_copies * sizeof *copies, &head->copies, err);
	if (rc)
		return rc;
	slabs = (uint64_t *)(void *)(r->step + head->slabs);
	for (uint32_t i = 0; i < c->n_slabs; i++)
		slabs[i] = r->lab->class->address(r->slabs[i]) + GUARD;
	copies = (struct step_copy *)(void *)(r->step + head->copies);
	for (uint32_t i = 0; i < c->n_copies; i++)
		copies[i] = (struct step_copy){
			.dst = slabs[c->copies[i].dst_slab] + c->copies[i].dst_offset,
			.src = slabs[c->copies[i].src_slab] + c->copies[i].src_offset,
			.n_bytes = c->copies[i].n_bytes,
		};
	return 0;
}

static int put_outside(struct run *r, struct step_head *head, struct ig_error *err)
{
	const struct ig_step *s = r->c->launch->step;
	const uint64_t rows = (uint64_t)s->n_rows;
	const uint64_t row_bytes = (uint64_t)r->c->launch->out[0].n_cols * sizeof(float);
	int rc = 0;

	head->sees_to = head->positions;
	if (s->sees_to)
		rc = put(r, s->sees_to, rows * 4, &head->sees_to, err);
	if (!rc && s->rope_positions)
		rc = put(r, s->rope_positions, rows * IG_ROPE_AXES * 4, &head->rope_positions, err);
	if (!rc && s->outside)
		rc = put(r, NULL, rows * 8, &head->outside, err);
	if (rc || !s->outside)
		return rc;
	uint64_t *to = (uint64_t *)(void *)(r->step + head->outside);
	for (uint64_t i = 0; i < rows; i++)
		to[i] = s->outside[i] ? r->lab->class->address(r->outside) + GUARD +
						(rows - 1 - i) * row_bytes :
					0;
	return 0;
}

static int put_guesses(struct run *r, struct step_head *head, struct ig_error *err)
{
	const struct ig_step *s = r->c->launch->step;
	int rc = 0;

	if (s->next_ids)
		rc = put(r, s->next_ids, (uint64_t)s->n_rows * 4, &head->next_ids, err);
	if (!rc && s->n_guesses)
		rc = put(r, s->guess_rows, (uint64_t)s->n_guesses * 4, &head->guess_rows, err);
	head->n_guess_rows = r->live[IG_LIVE_GUESS_ROWS] = (uint32_t)s->n_guesses;
	r->live[IG_LIVE_HEAD] = s->next_ids != NULL;
	return rc;
}

int ig_gpu_case_pack(struct run *r, struct ig_error *err)
{
	const struct ig_step *s = r->c->launch->step;
	struct step_head head = {
		.n_rows = (uint32_t)s->n_rows,
		.n_seqs = (uint32_t)s->n_seqs,
		.n_logit_rows = (uint32_t)s->n_logit_rows,
		.n_copies = r->c->n_copies,
		.ids = SLOT,
		.prev_ids = 1 - SLOT,
		.want_logits = s->logits || s->guess_logits,
	};
	const struct ig_tensor *x = &r->c->launch->in[0];
	uint64_t rows = (uint64_t)s->n_rows * 4, logit_rows = (uint64_t)s->n_logit_rows * 4;
	uint32_t head_place;
	int rc;

	head.mask_words = s->n_masks ? (uint32_t)(x->n_cols + 31) / 32 : 0;
	rc = put(r, NULL, sizeof head, &head_place, err);
	rc = rc ? rc : put(r, s->token_ids, rows, &head.token_ids, err);
	rc = rc ? rc : put(r, s->token_from, rows, &head.token_from, err);
	if (!rc && !s->token_from)
		memset(r->step + head.token_from, 0xff, rows);
	rc = rc ? rc : put(r, s->positions, rows, &head.positions, err);
	rc = rc ? rc : put(r, s->row_seq, rows, &head.row_seq, err);
	rc = rc ? rc : put(r, s->seq_lens, (uint64_t)s->n_seqs * 4, &head.seq_lens, err);
	rc = rc ? rc : put(r, s->logit_rows, logit_rows, &head.logit_rows, err);
	rc = rc ? rc : put_outside(r, &head, err);
	rc = rc ? rc : put_guesses(r, &head, err);
	if (!rc && s->row_types)
		rc = put(r, s->row_types, rows, &head.row_types, err);
	if (!rc && s->row_adapter) {
		rc = put(r, s->row_adapter, rows, &head.row_adapter, err);
		r->live[IG_LIVE_ADAPTED_ROWS] = head.n_rows;
	}
	rc = rc ? rc :
		  put(r, s->adjusts, (uint64_t)s->n_adjusts * sizeof(struct step_adjust),
		      &head.adjusts, err);
	rc = rc ? rc :
		  put(r, s->masks, (uint64_t)s->n_masks * head.mask_words * 4, &head.masks, err);
	r->live[IG_LIVE_ONE] = 1;
	r->live[IG_LIVE_ROWS] = head.n_rows;
	r->live[IG_LIVE_LOGIT_ROWS] = head.n_logit_rows;
	r->live[IG_LIVE_SEQS] = head.n_seqs;
	r->live[IG_LIVE_COPIES] = head.n_copies;
	r->live[IG_LIVE_WANT_LOGITS] = head.want_logits;
	rc = rc ? rc : put_sequences(r, &head, err);
	rc = rc ? rc : put_samples(r, &head, err);
	if (!rc && s->n_segments)
		rc = put_segments(r, &head, err);
	rc = rc ? rc : put_cache(r, &head, err);
	if (!rc)
		memcpy(r->step, &head, sizeof head);
	return rc;
}
