/*
 * row_options.h: launches of norm with each of its options, of multiply, soft_cap, sum and concat, for tests
 * of the cpu kernels and of the GPU kernels.
 */
#pragma once

#include "ops/ops.h"
#include "tests/ops/cases.h"

#include <stdio.h>

enum { OPTION_ROWS = 3, OPTION_COLS = 4128 };

/* The case's launch; each is called once for every case. */
static inline void each_row_option(void (*each)(const struct ig_op *op, struct ig_op_launch *launch,
						const char *what))
{
	static float x[OPTION_ROWS * OPTION_COLS], b[OPTION_ROWS * OPTION_COLS],
		y[OPTION_ROWS * OPTION_COLS], w[OPTION_COLS], s = 0.75f;
	static const int32_t logit_rows[] = { 2, 0 };
	static const struct {
		struct ig_norm_params p;
		int w, s, rows;
	} norms[] = {
		{ { .eps = 1e-6f }, 0, 0, 3 },
		{ { .eps = 1e-6f, .after = 1 }, 1, 0, 3 },
		{ { .eps = 1e-6f, .after = 1, .scale = 0.5f }, 1, 1, 3 },
		{ { .eps = 1e-6f, .after = 1, .gather = 1 }, 0, 1, 2 },
		{ { .eps = 1e-2f, .group = 32 }, 1, 0, 3 },
		{ { .eps = 1e-6f, .group = 1376, .after = 1, .scale = 0.25f }, 1, 0, 3 },
	};
	static const struct ig_soft_cap_params caps[] = { { sizeof caps[0], 1, 3 },
							  { sizeof caps[0], 0.25f, 30 },
							  { sizeof caps[0], 7, 0 } };
	struct ig_step step = { .struct_size = sizeof step,
				.n_rows = OPTION_ROWS,
				.n_logit_rows = 2,
				.logit_rows = logit_rows };
	const int64_t stride = OPTION_COLS * 4;
	uint64_t seed = 8;
	char what[64];

	for (int i = 0; i < OPTION_ROWS * OPTION_COLS; i++) {
		x[i] = ig_random_normalish(&seed) * 5;
		b[i] = ig_random_normalish(&seed);
		w[i % OPTION_COLS] = 1 + ig_random_normalish(&seed) / 2;
	}
	x[5] = 500; /* far beyond a cap */
	for (size_t i = 0; i < sizeof norms / sizeof *norms; i++) {
		struct ig_norm_params p = norms[i].p;
		const int64_t n = p.group ? p.group : OPTION_COLS;
		struct ig_op_launch launch = {
			.struct_size = sizeof launch,
			.params = &p,
			.n_in = p.after ? 2 : 1,
			.n_weights = norms[i].s ? 3 : 1,
			.n_out = 1,
			.step = &step,
			.in = { { x, OPTION_ROWS, OPTION_COLS, stride, IG_F32, IG_LAYOUT_ROWS } },
			.out = { { y, norms[i].rows, OPTION_COLS, stride, IG_F32,
				   IG_LAYOUT_ROWS } },
		};
		p.struct_size = sizeof p;
		if (p.after)
			launch.in[1] = (struct ig_tensor){ b,	   OPTION_ROWS, OPTION_COLS,
							   stride, IG_F32,	IG_LAYOUT_ROWS };
		if (norms[i].w)
			launch.weight[0] =
				(struct ig_tensor){ w, 1, n, n * 4, IG_F32, IG_LAYOUT_ROWS };
		if (norms[i].s)
			launch.weight[2] =
				(struct ig_tensor){ &s, 1, 1, 4, IG_F32, IG_LAYOUT_ROWS };
		snprintf(what, sizeof what, "norm %zu", i);
		each(&ig_op_norm, &launch, what);
	}
	for (size_t i = 0; i < sizeof caps / sizeof *caps; i++) {
		struct ig_op_launch launch = {
			.struct_size = sizeof launch,
			.params = &caps[i],
			.n_in = 1,
			.n_out = 1,
			.step = &step,
			.in = { { x, OPTION_ROWS, OPTION_COLS, stride, IG_F32, IG_LAYOUT_ROWS } },
			.out = { { y, OPTION_ROWS, OPTION_COLS, stride, IG_F32, IG_LAYOUT_ROWS } },
		};
		snprintf(what, sizeof what, "soft_cap %zu", i);
		each(&ig_op_soft_cap, &launch, what);
	}
	{
		const struct ig_multiply_params p = { sizeof p, 77 };
		struct ig_op_launch launch = {
			.struct_size = sizeof launch,
			.params = &p,
			.n_in = 2,
			.n_out = 1,
			.step = &step,
			.in = { { x, OPTION_ROWS, 1000, stride, IG_F32, IG_LAYOUT_ROWS },
				{ b, OPTION_ROWS, OPTION_COLS, stride, IG_F32, IG_LAYOUT_ROWS } },
			.out = { { y, OPTION_ROWS, 1000, stride, IG_F32, IG_LAYOUT_ROWS } },
		};
		each(&ig_op_multiply, &launch, "multiply");
	}
	for (uint32_t n = 2; n <= IG_MAX_IN; n++) {
		const struct ig_sum_params p = { .struct_size = sizeof p };
		struct ig_op_launch launch = {
			.struct_size = sizeof launch,
			.params = &p,
			.n_in = n,
			.n_out = 1,
			.step = &step,
			.in = { { x, OPTION_ROWS, 1000, stride, IG_F32, IG_LAYOUT_ROWS },
				{ b, OPTION_ROWS, 1000, stride, IG_F32, IG_LAYOUT_ROWS },
				{ x + 1000, OPTION_ROWS, 1000, stride, IG_F32, IG_LAYOUT_ROWS },
				{ b + 1000, OPTION_ROWS, 1000, stride, IG_F32, IG_LAYOUT_ROWS } },
			.out = { { y, OPTION_ROWS, 1000, stride, IG_F32, IG_LAYOUT_ROWS } },
		};
		snprintf(what, sizeof what, "sum of %u", n);
		each(&ig_op_sum, &launch, what);
		launch.out[0].n_cols = 0;
		for (uint32_t i = 0; i < n; i++)
			launch.out[0].n_cols += launch.in[i].n_cols = 1000 - 32 * i;
		snprintf(what, sizeof what, "concat of %u", n);
		each(&ig_op_concat, &launch, what);
	}
}
