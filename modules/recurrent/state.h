/*
 * state.h: where the kernels of recurrent ops find states, and what their units are: the rows of one
 * sequence in a step, a *run*, and some of its columns or heads, which are independent of each other.
 * A unit computes its rows one after another; where a segment ends it has written the state that the
 * next one reads.
 */
#pragma once

#include <ingot/arch.h>
#include <ingot/op.h>

#include <math.h>

/* The segments of one sequence. */
struct run {
	const struct ig_step_segment *first, *end;
};

static inline int begins_run(const struct ig_step *step, int32_t i)
{
	const struct ig_step_segment *s = &step->segments[i];

	return !i || step->row_seq[s->first_row] != step->row_seq[s->first_row - 1];
}

static inline int64_t n_runs(const struct ig_step *step)
{
	int64_t n = 0;

	for (int32_t i = 0; i < step->n_segments; i++)
		n += begins_run(step, i);
	return n;
}

static inline struct run run_at(const struct ig_step *step, int64_t number)
{
	struct run r;
	int32_t i = 0;

	for (; number || !begins_run(step, i); i++)
		number -= i + 1 < step->n_segments && begins_run(step, i + 1);
	r.first = &step->segments[i];
	do
		i++;
	while (i < step->n_segments && !begins_run(step, i));
	r.end = &step->segments[i];
	return r;
}

/* Part `part` of a layer of a state; NULL: the state of no tokens, zeros. */
static inline float *state_part(const struct ig_step *step, uint32_t group, uint32_t layer,
				uint32_t part, int32_t state)
{
	const struct ig_step_kv *kv = &step->kv[group];
	const struct ig_kv_layout *l = kv->layout;
	uint32_t word;

	if (state < 0)
		return NULL;
	word = kv->block_tables[state * kv->max_blocks + (int64_t)layer * l->n_kv_heads + part];
	return (float *)((char *)step->slab_bases[IG_BLOCK_SLAB(word)] +
			 IG_BLOCK_INDEX(word) * l->block_bytes);
}

static inline float softplus(float x) { return x > 20 ? x : log1pf(expf(x)); }

static inline float *tensor_row(const struct ig_tensor *t, int64_t row)
{
	return (float *)((char *)t->data + row * t->row_stride);
}
