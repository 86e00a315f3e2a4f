/*
 * selective_scan_row.h: the kernel of selective_scan, compiled for each instruction set.  A unit is a run and
 * a head.  Its rows pass a tile of the state's columns a few at a time, so that the tile stays in the
 * cache; a column is a lane, and what is summed over the rows of the state ascends.
 */
#pragma once

#include "state.h"

#include "ops/float.h"

#define SCAN_LANES 16
#define SCAN_TILE 4  /* vectors of lanes */
#define SCAN_ROWS 16 /* at a time */

typedef float scan_lanes __attribute__((vector_size(4 * SCAN_LANES), aligned(4)));

/* What some rows of a head have in common for all columns. */
struct scan_rows {
	int n;
	float decay[SCAN_ROWS], dt[SCAN_ROWS], d;
	const float *x[SCAN_ROWS], *b[SCAN_ROWS], *c[SCAN_ROWS];
	float *y[SCAN_ROWS];
};

/* N vectors of columns of the state, row by row: S = decay S + b (dt x), y = S^T c + d x. */
__attribute__((always_inline)) static inline void
scan_columns(const struct ig_selective_scan_params *p, const struct scan_rows *r, float *s,
	     uint32_t column, const int n_vectors)
{
	for (int row = 0; row < r->n; row++) {
		const float *b = r->b[row], *c = r->c[row];
		scan_lanes x[SCAN_TILE], step[SCAN_TILE], out[SCAN_TILE];
		for (int j = 0; j < n_vectors; j++) {
			x[j] = ((const scan_lanes *)(r->x[row] + column))[j];
			step[j] = x[j] * r->dt[row];
			out[j] = (scan_lanes){ 0 };
		}
		for (uint32_t i = 0; i < p->state_dim; i++)
			for (int j = 0; j < n_vectors; j++) {
				scan_lanes *at = (scan_lanes *)(s + i * p->head_dim) + j;
				scan_lanes v = *at * r->decay[row] + step[j] * b[i];
				*at = v;
				out[j] += v * c[i];
			}
		for (int j = 0; j < n_vectors; j++)
			((scan_lanes *)(r->y[row] + column))[j] = out[j] + x[j] * r->d;
	}
}

/* The state [state_dim, head_dim] of a head passes these rows. */
static inline void scan_pass(const struct ig_selective_scan_params *p, const struct scan_rows *r,
			     float *s)
{
	uint32_t column = 0;

	for (; column + SCAN_TILE * SCAN_LANES <= p->head_dim; column += SCAN_TILE * SCAN_LANES)
		scan_columns(p, r, s + column, column, SCAN_TILE);
	for (; column < p->head_dim; column += SCAN_LANES)
		scan_columns(p, r, s + column, column, 1);
}

/* Rows `row` … of a head. */
static inline void scan_load(const struct ig_op_launch *l, uint32_t head, int64_t row, int n,
			     struct scan_rows *r)
{
	const struct ig_selective_scan_params *p = l->params;
	const uint32_t inner = p->n_heads * p->head_dim;
	const uint32_t group = head / (p->n_heads / p->n_groups) * p->state_dim;
	const float *bias = l->weight[0].data, *a = l->weight[1].data, *d = l->weight[2].data;

	r->n = n;
	r->d = d[head];
	for (int i = 0; i < n; i++) {
		const float *x = tensor_row(&l->in[0], row + i);
		const float *dt = (const float *)tensor_row(&l->in[1], row + i) + p->dt_first;
		r->x[i] = x + head * p->head_dim;
		r->b[i] = x + inner + group;
		r->c[i] = r->b[i] + p->n_groups * p->state_dim;
		r->y[i] = tensor_row(&l->out[0], row + i) + head * p->head_dim;
		r->dt[i] = softplus(dt[head] + bias[head]);
		r->decay[i] = expf(r->dt[i] * a[head]);
	}
}

static inline float *scan_state(const struct ig_op_launch *l, uint32_t head, int32_t state)
{
	const struct ig_selective_scan_params *p = l->params;
	float *part = state_part(l->step, p->group, p->layer, head / p->part_heads, state);

	return part ? part + (size_t)(head % p->part_heads) * p->state_dim * p->head_dim : NULL;
}

static inline void scan_unit(const struct ig_op_launch *l, struct run run, uint32_t head)
{
	const struct ig_selective_scan_params *p = l->params;
	const size_t bytes = (size_t)p->state_dim * p->head_dim * sizeof(float);
	struct scan_rows r;

	for (const struct ig_step_segment *s = run.first; s < run.end; s++) {
		const float *from = scan_state(l, head, s->from);
		float *to = scan_state(l, head, s->to);
		if (!from)
			memset(to, 0, bytes);
		else if (from != to)
			memcpy(to, from, bytes);
		for (int i = 0; i < s->n_rows; i += SCAN_ROWS) {
			int n = s->n_rows - i < SCAN_ROWS ? s->n_rows - i : SCAN_ROWS;
			scan_load(l, head, s->first_row + i, n, &r);
			scan_pass(p, &r, to);
		}
	}
}

static inline void scan_units(const struct ig_op_launch *l, int64_t first, int64_t last)
{
	const uint32_t n_heads = ((const struct ig_selective_scan_params *)l->params)->n_heads;

	for (int64_t i = first; i < last; i++)
		scan_unit(l, run_at(l->step, i / n_heads), (uint32_t)(i % n_heads));
}
