/* op_private.h: shared by the files of the core ops. */
#pragma once

#include "ops/cpu/rows.h"
#include "ops/cpu/tile16.h"
#include "ops/cpu/tile_list.h"
#include "ops/float.h"
#include "ops/ops.h"

#include <errno.h>
#include <ingot/gpu.h>
#include <stdlib.h>

static inline float *ig_row(const struct ig_tensor *t, int64_t r)
{
	return (float *)((char *)t->data + r * t->row_stride);
}

/* An activation of a gate. */
static inline bool ig_is_gate_act(uint32_t act, float limit)
{
	return act == IG_ACT_CLAMPED ? limit > 0 && isfinite(limit) : act <= IG_ACT_GELU;
}

/* Units of a kernel: tiles of the first weight, or rows of the first output. */
int64_t ig_units_tiles(const struct ig_op_launch *c);
int64_t ig_units_rows(const struct ig_op_launch *c);

/* Row r of a weight in IG_LAYOUT_ROWS as float [n_cols]. */
void ig_weight_row(const struct ig_tensor *w, int64_t r, float *dst);
/* The plain product x W^T of one row, sums in double: y [n_rows of w].
 * w_row is memory for one row of w. */
void ig_reference_product(const float *x, const struct ig_tensor *w, float *w_row, float *y);

/* GPU lowerings: ops/gpu/products.c, then ops/gpu/rows.c. */
extern const struct ig_gpu_op ig_gpu_linear, ig_gpu_linear_heads, ig_gpu_glu, ig_gpu_logits;
extern const struct ig_gpu_op ig_gpu_embed, ig_gpu_norm, ig_gpu_sample, ig_gpu_pool, ig_gpu_output;
extern const struct ig_gpu_op ig_gpu_adapt_down, ig_gpu_adapt_up, ig_gpu_glu_join;
extern const struct ig_gpu_op ig_gpu_multiply, ig_gpu_soft_cap, ig_gpu_sum, ig_gpu_concat;
/* The name of the op's kernel that writes values of this type, as "norm_f16"; -ENOTSUP: there is none (ops/gpu/rows.c). */
int ig_gpu_kernel_for(const char *op, uint32_t dtype, char kernel[32], struct ig_error *err);

/* The op of a file, with its static check, reference and kernels. */
#define CORE_OP(op, params, op_flags, op_split)                                                    \
	const struct ig_op ig_op_##op = {                                                          \
		.struct_size = sizeof(struct ig_op),                                               \
		.params_size = sizeof(params),                                                     \
		.name = #op,                                                                       \
		.version = 1,                                                                      \
		.check = check,                                                                    \
		.reference = reference,                                                            \
		.cpu_kernels = kernels,                                                            \
		.n_cpu_kernels = sizeof kernels / sizeof *kernels,                                 \
		.flags = op_flags,                                                                 \
		.split = op_split,                                                                 \
		.gpu = &ig_gpu_##op,                                                               \
	}

/* The same for a file of several ops: check_OP, reference_OP, OP_kernels; how it is divided, and its lowering for
 * GPUs (NULL: none). */
#define NAMED_OP_FOR(op, op_split, op_gpu)                                                         \
	const struct ig_op ig_op_##op = {                                                          \
		.struct_size = sizeof(struct ig_op),                                               \
		.params_size = sizeof(struct ig_##op##_params),                                    \
		.name = #op,                                                                       \
		.version = 1,                                                                      \
		.split = op_split,                                                                 \
		.check = check_##op,                                                               \
		.reference = reference_##op,                                                       \
		.cpu_kernels = op##_kernels,                                                       \
		.n_cpu_kernels = sizeof op##_kernels / sizeof *op##_kernels,                       \
		.gpu = op_gpu,                                                                     \
	}
/* Each device computes all of it. */
#define NAMED_OP(op) NAMED_OP_FOR(op, IG_SPLIT_COPY, &ig_gpu_##op)

/* The kernels of linear, glu and logits, made from the list of tile products. */
#define TILE_ENTRY(fn, isa, dtype, layout) TILE_ENTRY_OF(fn, isa, dtype, layout),
#define TILE_ENTRY_OF(fn, isa, dtype, layout)                                                      \
	{ sizeof(struct ig_cpu_kernel),                                                            \
	  isa,                                                                                     \
	  dtype,                                                                                   \
	  IG_LAYOUT_TILE16,                                                                        \
	  layout,                                                                                  \
	  IG_UNITS_OTHER,                                                                          \
	  ig_units_tiles,                                                                          \
	  NULL,                                                                                    \
	  fn }
