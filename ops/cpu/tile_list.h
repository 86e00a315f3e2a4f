/*
 * tile_list.h: the list of tile kernels: (name, instruction set, weight dtype, layout of
 * activations).  The ops' tables and the declarations below come from it.
 */
#pragma once

#include <ingot/op.h>

/* The formats of tile_quants.h: Y(its name, its dtype, …). */
#define TILE_QUANTS(Y, ...)                                                                        \
	Y(q5_0, IG_Q5_0, __VA_ARGS__)                                                              \
	Y(q5_1, IG_Q5_1, __VA_ARGS__)                                                              \
	Y(q2_k, IG_Q2_K, __VA_ARGS__)                                                              \
	Y(q3_k, IG_Q3_K, __VA_ARGS__)                                                              \
	Y(q4_k, IG_Q4_K, __VA_ARGS__)                                                              \
	Y(q5_k, IG_Q5_K, __VA_ARGS__)                                                              \
	Y(q6_k, IG_Q6_K, __VA_ARGS__)                                                              \
	Y(iq4_nl, IG_IQ4_NL, __VA_ARGS__)                                                          \
	Y(iq4_xs, IG_IQ4_XS, __VA_ARGS__)                                                          \
	Y(mxfp4, IG_MXFP4, __VA_ARGS__)

/* All formats of blocks. */
#define TILE_BLOCKS(Y, ...)                                                                        \
	Y(q8_0, IG_Q8_0, __VA_ARGS__)                                                              \
	Y(q4_0, IG_Q4_0, __VA_ARGS__)                                                              \
	Y(q4_1, IG_Q4_1, __VA_ARGS__)                                                              \
	Y(q8_m, IG_Q8_M, __VA_ARGS__)                                                              \
	TILE_QUANTS(Y, __VA_ARGS__)

/* Kernels with 8-bit activations, and with float ones; bf16 has its own names. */
#define TILE_ONE_Q8(format, dtype, X, name, isa) X(name##_##format, isa, dtype, IG_LAYOUT_Q8)
#define TILE_ONE_F32(format, dtype, X, name, isa)                                                  \
	X(name##_##format##_f32, isa, dtype, IG_LAYOUT_ROWS)
#define TILE_LIST_Q8(X, name, isa) TILE_BLOCKS(TILE_ONE_Q8, X, name, isa)
#define TILE_LIST_F32(X, name, isa)                                                                \
	X(name##_f32, isa, IG_F32, IG_LAYOUT_ROWS)                                                 \
	X(name##_f16, isa, IG_F16, IG_LAYOUT_ROWS)                                                 \
	TILE_BLOCKS(TILE_ONE_F32, X, name, isa)
#define TILE_LIST_ISA(X, name, isa) TILE_LIST_Q8(X, name, isa) TILE_LIST_F32(X, name, isa)

#define TILE_LIST_GENERIC(X)                                                                       \
	TILE_LIST_ISA(X, generic, IG_ISA_GENERIC)                                                  \
	X(generic_bf16, IG_ISA_GENERIC, IG_BF16, IG_LAYOUT_ROWS)

#if defined(__x86_64__)
#define TILE_LIST_X86(X)                                                                           \
	TILE_LIST_ISA(X, avx2, IG_ISA_AVX2)                                                        \
	X(avx2_bf16, IG_ISA_AVX2, IG_BF16, IG_LAYOUT_ROWS)                                         \
	TILE_LIST_ISA(X, avx512, IG_ISA_AVX512)                                                    \
	X(avx512_bf16_wide, IG_ISA_AVX512, IG_BF16, IG_LAYOUT_ROWS)                                \
	X(avx512_bf16_pairs, IG_ISA_AVX512_BF16, IG_BF16, IG_LAYOUT_BF16)
#else
#define TILE_LIST_X86(X)
#endif

#if defined(__aarch64__)
#define TILE_LIST_NEON(X)                                                                          \
	TILE_LIST_ISA(X, neon, IG_ISA_NEON)                                                        \
	X(neon_bf16, IG_ISA_NEON, IG_BF16, IG_LAYOUT_ROWS)                                         \
	TILE_LIST_Q8(X, neon_dotprod, IG_ISA_NEON_DOTPROD)                                         \
	TILE_LIST_Q8(X, neon_i8mm, IG_ISA_NEON_I8MM)
#else
#define TILE_LIST_NEON(X)
#endif

#define TILE_LIST(X) TILE_LIST_GENERIC(X) TILE_LIST_X86(X) TILE_LIST_NEON(X)

#define TILE_DECLARE(name, isa, dtype, layout)                                                     \
	void ig_linear_##name(const struct ig_op_launch *c, int64_t first, int64_t last, void *s); \
	void ig_glu_##name(const struct ig_op_launch *c, int64_t first, int64_t last, void *s);    \
	void ig_logits_##name(const struct ig_op_launch *c, int64_t first, int64_t last, void *s);
TILE_LIST(TILE_DECLARE)
#undef TILE_DECLARE
