/*
 * heads_case.h: cases of the op linear_heads for its kernels on the CPU and on GPUs.
 */
#pragma once

#include <ingot/op.h>
#include <stdbool.h>

struct heads_shape {
	uint32_t dtype;
	uint32_t n_heads, n_rest;
	int64_t k, m; /* columns of a head of x that are multiplied; of y that come of it */
	int32_t rows;
};

extern const struct heads_shape heads_shapes[];
extern const size_t n_heads_shapes;

struct heads_case {
	const struct heads_shape *s;
	struct ig_linear_heads_params params;
	int64_t x_cols, y_cols; /* of all heads */
	float *x;
	void *w; /* rows as files have them */
};

void heads_open(struct heads_case *c, const struct heads_shape *s);
void heads_close(struct heads_case *c);
/* The call for rows first … first + n - 1, as the reference takes it; y has rows of y_cols. */
void heads_launch(const struct heads_case *c, int32_t first, int32_t n, float *y,
		  struct ig_step *step, struct ig_op_launch *launch);
