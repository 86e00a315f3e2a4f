/*
 * cache_row.h: a token's K or V of one head in a block of the cache, in plain C, for every element
 * type.  What it is made of is in struct ig_kv_layout (ingot/op.h).
 *
 * Q8_0 is rounded by token and group of IG_KV_GROUP dimensions: the scale is max|x| / 127 as the
 * nearest float16, a code is x / scale to the nearest integer, ties to even.  The product of code and
 * scale is exact in float32, so every reader sees the same value.  A group with a value that is not
 * finite, or too large for a float16 scale, is all NaN.
 */
#pragma once

#include "f16.h"
#include "kernels_private.h"
#include "pages.h"

/* One of the two halves of a head. */
struct cache_side {
	uint32_t dtype;
	uint32_t code_stride; /* of Q8_0: from one dimension's code to the next one's */
	uint64_t offset;      /* from K's first byte */
	uint64_t token_stride;
};

static inline struct cache_side k_side(const struct ig_kv_layout *l)
{
	return (struct cache_side){ l->k_dtype, IG_BLOCK_TOKENS, 0, l->k_token_stride };
}

static inline struct cache_side v_side(const struct ig_kv_layout *l)
{
	return (struct cache_side){ l->v_dtype, 1, l->v_offset, l->v_token_stride };
}

/* The side that attention reads values from. */
static inline struct cache_side value_side(const struct ig_attention_params *p,
					   const struct ig_kv_layout *l)
{
	return p->v_dim ? k_side(l) : v_side(l);
}

/* The codes of token t, and its scales, IG_BLOCK_TOKENS apart. */
static inline int8_t *q8_codes(char *half, struct cache_side side, uint32_t t, uint32_t dim)
{
	return (int8_t *)half + (side.code_stride == 1 ? t * dim : t);
}

static inline uint16_t *q8_scales(char *half, uint32_t t, uint32_t dim)
{
	return (uint16_t *)(void *)(half + (size_t)IG_BLOCK_TOKENS * dim) + t;
}

/* y[dim]: token t of the head at block. */
static inline void load_row(float *y, char *block, struct cache_side side, uint32_t t, uint32_t dim)
{
	char *half = block + side.offset;

	if (side.dtype == IG_Q8_0) {
		const int8_t *code = q8_codes(half, side, t, dim);
		const uint16_t *scale = q8_scales(half, t, dim);
		for (uint32_t d = 0; d < dim; d++)
			y[d] = (float)code[d * side.code_stride] *
			       f16_to_f32(scale[d / IG_KV_GROUP * IG_BLOCK_TOKENS]);
		return;
	}
	half += t * side.token_stride;
	if (side.dtype != IG_F16) {
		memcpy(y, half, dim * sizeof *y);
		return;
	}
	for (uint32_t d = 0; d < dim; d++)
		y[d] = f16_to_f32(((const uint16_t *)(const void *)half)[d]);
}

/* Quantise a group to codes; returns its scale. */
static inline uint16_t quantize_group(int8_t *code, const float *x)
{
	uint32_t bits[IG_KV_GROUP], top = 0;
	uint16_t scale;
	float largest, by;

	memcpy(bits, x, sizeof bits);
	for (int i = 0; i < IG_KV_GROUP; i++) { /* as integers: a NaN is larger than all */
		uint32_t a = bits[i] & 0x7fffffff;
		top = a > top ? a : top;
	}
	memcpy(&largest, &top, sizeof largest);
	scale = f32_to_f16(largest / 127);
	if (scale >= 0x7c00) {
		memset(code, 0, IG_KV_GROUP);
		return 0x7e00;
	}
	by = scale ? 1 / f16_to_f32(scale) : 0;
	for (int i = 0; i < IG_KV_GROUP; i++) {
		float v = x[i] * by;
		v = v > 127 ? 127 : v < -127 ? -127 : v;
		/* 1.5 * 2^23: the sum is rounded to an integer */
		code[i] = (int8_t)(int32_t)((v + 0x1.8p23f) - 0x1.8p23f);
	}
	return scale;
}

static inline void store_row_q8(char *block, struct cache_side side, uint32_t t, const float *x,
				uint32_t dim)
{
	char *half = block + side.offset;
	int8_t *to = q8_codes(half, side, t, dim), code[IG_KV_GROUP];
	uint16_t *scale = q8_scales(half, t, dim);

	for (uint32_t d = 0; d < dim; d += IG_KV_GROUP, scale += IG_BLOCK_TOKENS) {
		*scale = quantize_group(code, x + d);
		for (uint32_t i = 0; i < IG_KV_GROUP; i++)
			to[(d + i) * side.code_stride] = code[i];
	}
}
