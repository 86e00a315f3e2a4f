/* pool_case.h: texts whose rows are pooled, for the kernels on the CPU and on GPUs. */
#pragma once

#include "ops/ops.h"

#include <math.h>

#define POOL_ROWS 12
#define POOL_COLS 137
#define POOL_RESULTS 2

/* Of the first text no result is wanted. */
static const int32_t pool_positions[POOL_ROWS] = { 0, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2 };
static const int32_t pool_last[POOL_RESULTS] = { 8, 11 };

struct pool_case {
	float x[POOL_ROWS][POOL_COLS], y[POOL_RESULTS][POOL_COLS];
	struct ig_pool_params p;
	struct ig_step step;
	struct ig_op_launch launch;
};

static inline void pool_case_make(struct pool_case *c, uint32_t kind)
{
	c->p = (struct ig_pool_params){ sizeof c->p, kind };
	c->step = (struct ig_step){ .struct_size = sizeof c->step,
				    .n_rows = POOL_ROWS,
				    .n_logit_rows = POOL_RESULTS,
				    .positions = pool_positions,
				    .logit_rows = pool_last };
	for (int r = 0; r < POOL_ROWS; r++)
		for (int i = 0; i < POOL_COLS; i++)
			c->x[r][i] = sinf((float)(r * POOL_COLS + i)) * 3;
	c->launch = (struct ig_op_launch){
		.struct_size = sizeof c->launch,
		.n_in = 1,
		.n_out = 1,
		.params = &c->p,
		.step = &c->step,
		.in = { { c->x, POOL_ROWS, POOL_COLS, sizeof c->x[0], IG_F32, IG_LAYOUT_ROWS } },
		.out = { { c->y, POOL_RESULTS, POOL_COLS, sizeof c->y[0], IG_F32,
			   IG_LAYOUT_ROWS } },
	};
}

/* Column k of result i. */
static inline double pool_case_want(const struct pool_case *c, int i, int k)
{
	const int last = pool_last[i], first = last - pool_positions[last];
	double sum = 0;

	if (c->p.kind != IG_POOL_MEAN)
		return (double)c->x[c->p.kind == IG_POOL_CLS ? first : last][k];
	for (int r = first; r <= last; r++)
		sum += (double)c->x[r][k];
	return sum / (last - first + 1);
}
