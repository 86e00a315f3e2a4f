/*
 * rows.h: kernels whose unit is one row: norm, conversions of activations, sample.  rows.c and
 * sample.c have plain loops and are compiled once per instruction set, named by ROWS_ISA.  Nothing
 * is fused or reassociated, so every copy gives the same bits.  NEON needs no copy: it is in the
 * plain build for aarch64.
 */
#pragma once

#include <ingot/op.h>

/* What a norm with `after` multiplies its results by. */
static inline float ig_norm_factor(const struct ig_op_launch *c)
{
	const struct ig_norm_params *p = c->params;
	const float *s = c->n_weights > 2 ? c->weight[2].data : NULL;

	return (p->scale != 0 ? p->scale : 1) * (s ? *s : 1);
}

#define IG_SOFT_CAP_COLUMNS 4096 /* of a unit of soft_cap */

#if defined(__x86_64__)
#define ROWS_LIST(X)                                                                               \
	X(generic, IG_ISA_GENERIC)                                                                 \
	X(avx2, IG_ISA_AVX2)                                                                       \
	X(avx512, IG_ISA_AVX512)
#else
#define ROWS_LIST(X) X(generic, IG_ISA_GENERIC)
#endif

#define ROWS_DECLARE(name, isa)                                                                    \
	void ig_norm_##name(const struct ig_op_launch *c, int64_t first, int64_t last, void *s);   \
	void ig_multiply_##name(const struct ig_op_launch *c, int64_t first, int64_t last,         \
				void *s);                                                          \
	void ig_soft_cap_##name(const struct ig_op_launch *c, int64_t first, int64_t last,         \
				void *s);                                                          \
	void ig_sample_##name(const struct ig_op_launch *c, int64_t first, int64_t last, void *s); \
	uint64_t ig_sample_scratch_##name(const struct ig_op_launch *c);                           \
	void ig_adapt_down_##name(const struct ig_op_launch *c, int64_t first, int64_t last,       \
				  void *s);                                                        \
	void ig_adapt_up_##name(const struct ig_op_launch *c, int64_t first, int64_t last,         \
				void *s);                                                          \
	void ig_glu_join_##name(const struct ig_op_launch *c, int64_t first, int64_t last,         \
				void *s);                                                          \
	void ig_pack_q8_##name(const struct ig_op_launch *c, int64_t first, int64_t last,          \
			       void *s);                                                           \
	void ig_pack_bf16_##name(const struct ig_op_launch *c, int64_t first, int64_t last,        \
				 void *s);
ROWS_LIST(ROWS_DECLARE)
#undef ROWS_DECLARE

/* Bytes of a row of n values in a layout of activations. */
uint64_t ig_layout_row_bytes(uint32_t layout, int64_t n);
