/* conv1d_row.h: the kernel of conv1d, compiled for each instruction set.  A unit is a run and CONV_COLUMNS
 * columns; the last values of u stay in a small array while its rows pass. */
#pragma once

#include "state.h"

#include "ops/float.h"

#define CONV_COLUMNS 64

static inline int64_t conv1d_blocks(const struct ig_op_launch *c)
{
	return (c->out[0].n_cols + CONV_COLUMNS - 1) / CONV_COLUMNS;
}

/* One row of n columns: u to the newest of `last`, y. */
static inline void conv1d_row(const struct ig_conv1d_params *p, const float *x, int64_t width,
			      const float (*taps)[CONV_COLUMNS], const float *bias,
			      float (*last)[CONV_COLUMNS], float *y, int n)
{
	const int newest = (int)p->n_taps - 1;
	float sum[CONV_COLUMNS];

	for (int i = 0; i < n; i++)
		last[newest][i] = p->gated ? x[i] * x[2 * width + i] : x[i];
	for (int i = 0; i < n; i++)
		sum[i] = bias[i];
	for (int k = 0; k <= newest; k++)
		for (int i = 0; i < n; i++)
			sum[i] += taps[k][i] * last[k][i];
	if (p->act == IG_ACT_SILU)
		for (int i = 0; i < n; i++)
			sum[i] = ig_siluf(sum[i]);
	for (int i = 0; i < n; i++)
		y[i] = p->gated ? sum[i] * x[width + i] : sum[i];
	for (int k = 0; k < newest; k++)
		memcpy(last[k], last[k + 1], sizeof last[k]);
}

static inline void conv1d_unit(const struct ig_op_launch *c, struct run run, int64_t first)
{
	const struct ig_conv1d_params *p = c->params;
	const int64_t width = c->out[0].n_cols;
	const int n = (int)(width - first < CONV_COLUMNS ? width - first : CONV_COLUMNS);
	const float *w = c->weight[0].data; /* [width, n_taps] */
	float taps[IG_CONV1D_MAX_TAPS][CONV_COLUMNS], last[IG_CONV1D_MAX_TAPS][CONV_COLUMNS];
	float bias[CONV_COLUMNS] = { 0 };
	const float *state = state_part(c->step, p->group, p->layer, 0, run.first->from);

	memset(last, 0, sizeof last);
	for (uint32_t k = 0; k < p->n_taps; k++)
		for (int i = 0; i < n; i++)
			taps[k][i] = w[(first + i) * p->n_taps + k];
	if (c->n_weights > 1 && c->weight[1].data)
		memcpy(bias, (const float *)c->weight[1].data + first, (size_t)n * sizeof *bias);
	for (uint32_t k = 0; state && k + 1 < p->n_taps; k++)
		memcpy(last[k], state + k * width + first, (size_t)n * sizeof **last);
	for (const struct ig_step_segment *s = run.first; s < run.end; s++) {
		float *to = state_part(c->step, p->group, p->layer, 0, s->to);
		for (int64_t row = s->first_row; row < s->first_row + s->n_rows; row++)
			conv1d_row(p, tensor_row(&c->in[0], row) + p->first + first, width,
				   (const float(*)[CONV_COLUMNS])taps, bias, last,
				   tensor_row(&c->out[0], row) + first, n);
		for (uint32_t k = 0; k + 1 < p->n_taps; k++)
			memcpy(to + k * width + first, last[k], (size_t)n * sizeof **last);
	}
}

static inline void conv1d_units(const struct ig_op_launch *c, int64_t first, int64_t last)
{
	const int64_t n_blocks = conv1d_blocks(c);

	for (int64_t i = first; i < last; i++)
		conv1d_unit(c, run_at(c->step, i / n_blocks), i % n_blocks * CONV_COLUMNS);
}
