/* experts_private.h: what the references and the kernels of moe_glu and moe_combine share. */
#pragma once

#include "moe_private.h"

#define TILE 16

extern const struct ig_kernel_host *ig_moe_host; /* ig_moe_init */

/* experts_reference.c */
int ig_moe_check_glu(struct ig_op_shape *s, struct ig_error *err);
int ig_moe_check_combine(struct ig_op_shape *s, struct ig_error *err);
void ig_moe_reference_glu(const struct ig_op_launch *launch);
void ig_moe_reference_combine(const struct ig_op_launch *launch);
/* The matrices of an expert, by the form of moe_glu. */
uint32_t ig_moe_glu_matrices(const void *params);

static inline float *ig_moe_row(const struct ig_tensor *t, int64_t row)
{
	return (float *)((char *)t->data + row * t->row_stride);
}

/* Of a weight of vectors, the expert's; or no tensor. */
static inline struct ig_tensor ig_moe_bias(const struct ig_op_launch *launch, uint32_t i,
					   uint32_t expert)
{
	struct ig_tensor b = launch->weight[i];

	b.data = (char *)b.data + expert * b.row_stride;
	b.n_rows = 1;
	return b;
}
