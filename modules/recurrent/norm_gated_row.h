/* norm_gated_row.h: the kernel of norm_gated, compiled for each instruction set.  A group's squares are
 * summed in sixteen sums, each over every sixteenth value, then a tree. */
#pragma once

#include "state.h"

#include "ops/float.h"

#include <stdbool.h>

static inline float norm_gated_scale(const float *x, const float *z, int64_t n, float eps)
{
	float sum[16] = { 0 };

	for (int64_t i = 0; i < n; i++) {
		float v = z ? x[i] * ig_siluf(z[i]) : x[i];
		sum[i % 16] += v * v;
	}
	for (int half = 8; half; half /= 2)
		for (int i = 0; i < half; i++)
			sum[i] += sum[i + half];
	return 1.0f / sqrtf(sum[0] / (float)n + eps);
}

/* Whether each group has weights of its own. */
static inline bool norm_gated_each(const struct ig_op_launch *c)
{
	return c->weight[0].n_rows * c->weight[0].n_cols == c->out[0].n_cols;
}

static inline void norm_gated_rows(const struct ig_op_launch *c, int64_t first, int64_t last)
{
	const struct ig_norm_gated_params *p = c->params;
	const int64_t n = c->out[0].n_cols / p->n_groups;
	const int64_t step = norm_gated_each(c) ? n : 0;

	for (int64_t row = first; row < last; row++) {
		const float *x = tensor_row(&c->in[0], row), *z = tensor_row(&c->in[1], row);
		const float *w = c->weight[0].data;
		float *y = tensor_row(&c->out[0], row);
		for (uint32_t g = 0; g < p->n_groups; g++, x += n, z += n, y += n, w += step) {
			float scale = norm_gated_scale(x, p->gate_first ? z : NULL, n, p->eps);
			for (int64_t i = 0; i < n; i++)
				y[i] = x[i] * scale * w[i] * ig_siluf(z[i]);
		}
	}
}
