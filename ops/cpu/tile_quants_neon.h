/*
 * tile_quants_neon.h: the tiles of tile_quants.h as vectors: a block's codes as signed
 * bytes (v, or u for types without an offset), and its scales.  The dtype is a constant, so
 * a kernel has only the steps of its type.
 *
 * The sign of negative codes costs nothing: a clear upper bit becomes the ones of a negative
 * byte (cmtst), and the lower bits are inserted (sli, sri).
 */
#pragma once

#include "ops/cpu/tile_neon.h"
#include "ops/cpu/tile_quants.h"

#define IS_TABLE(dtype) ((dtype) == IG_IQ4_NL || (dtype) == IG_IQ4_XS || (dtype) == IG_MXFP4)

static const int8_t iq4_values[16] = IG_IQ4_VALUES, fp4_values[16] = IG_FP4_VALUES;

ALWAYS_INLINE int8x16_t table_of(uint32_t dtype)
{
	return vld1q_s8(dtype == IG_MXFP4 ? fp4_values : iq4_values);
}

ALWAYS_INLINE uint8x16_t right(uint8x16_t v, const int by) { return v >> vdupq_n_u8((uint8_t)by); }

ALWAYS_INLINE uint8x16_t left(uint8x16_t v, const int by) { return v << vdupq_n_u8((uint8_t)by); }

/* The upper bits of half of a block, for codes().  A single upper bit of a code with an offset
 * is 1 for a negative code; two upper bits are in two's complement. */
ALWAYS_INLINE uint8x16_t upper_bits(uint32_t dtype, const uint8_t *h, const int half)
{
	const struct tile_format f = tile_format(dtype);

	if (f.high_bits == 2)
		return veorq_u8(vld1q_u8(h + half * GROUP_BYTES), vdupq_n_u8(0xaa));
	if (f.high_bits == 0)
		return vdupq_n_u8(0);
	uint8x16_t u = vld1q_u8(h);
	if (f.offset) {
		u = vmvnq_u8(u);
		__asm__("" : "+w"(u)); /* otherwise gcc makes bic and cmtst of it */
	}
	return u;
}

/* The values 16 half + 4 g … + 3 of a block, of four outputs: q is their plane of lower bits,
 * upper from upper_bits. */
ALWAYS_INLINE int8x16_t codes(uint32_t dtype, const uint8_t *q, uint8x16_t upper, const int half,
			      const int g, int8x16_t table)
{
	const int bit = 4 * half + g; /* of a byte of single upper bits */
	const uint8x16_t fifteen = vdupq_n_u8(15), three = vdupq_n_u8(3);
	uint8x16_t c = vld1q_u8(q + (tile_format(dtype).low_bits == 4 ? g : half) * GROUP_BYTES), t;

	switch (dtype) {
	case IG_Q2_K: c = vandq_u8(right(c, 2 * g), three); break;
	case IG_Q3_K:
		t = vtstq_u8(upper, vdupq_n_u8((uint8_t)(1 << bit)));
		c = g == 3 ? vsriq_n_u8(t, c, 6) : vbslq_u8(three, right(c, 2 * g), t);
		break;
	case IG_Q5_0:
		t = vtstq_u8(upper, vdupq_n_u8((uint8_t)(1 << bit)));
		c = half ? vsriq_n_u8(t, c, 4) : vsliq_n_u8(c, t, 4);
		break;
	case IG_Q6_K:
		t = left(upper, 6 - 2 * g);
		t = vreinterpretq_u8_s8(vshrq_n_s8(vreinterpretq_s8_u8(t), 2));
		c = half ? vsriq_n_u8(t, c, 4) : vbslq_u8(fifteen, c, t);
		break;
	case IG_Q5_1:
	case IG_Q5_K:
		t = bit < 4 ? left(upper, 4 - bit) : right(upper, bit - 4);
		c = half ? vshrq_n_u8(c, 4) : vandq_u8(c, fifteen);
		c = vbslq_u8(vdupq_n_u8(16), t, c);
		break;
	default: c = half ? vshrq_n_u8(c, 4) : vandq_u8(c, fifteen);
	}
	return IS_TABLE(dtype) ? vqtbl1q_s8(table, c) : vreinterpretq_s8_u8(c);
}

/* A block without its codes, for eight outputs: d and m, multiplied by the scale and the
 * minimum of 32 values, or with those of its halves as integers. */
struct scales {
	float32x4_t d[2], m[2];
	int32x4_t s[2][2], n[2][2]; /* [half][quad] */
};

ALWAYS_INLINE void widen_signed(int8x8_t v, int32x4_t *to)
{
	int16x8_t w = vmovl_s8(v);
	to[0] = vmovl_s16(vget_low_s16(w));
	to[1] = vmovl_high_s16(w);
}

ALWAYS_INLINE void widen_unsigned(uint8x8_t v, int32x4_t *to)
{
	uint16x8_t w = vmovl_u8(v);
	to[0] = vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(w)));
	to[1] = vreinterpretq_s32_u32(vmovl_high_u16(w));
}

/* 2^(e - 128): a power of two, or a subnormal one. */
ALWAYS_INLINE float32x4_t power_of(int32x4_t e)
{
	int32x4_t small = vshlq_s32(vdupq_n_s32(0x00200000), e);
	int32x4_t large = vshlq_n_s32(vsubq_s32(e, vdupq_n_s32(1)), 23);
	return vreinterpretq_f32_s32(vbslq_s32(vcltq_s32(e, vdupq_n_s32(2)), small, large));
}

/* The scales of block b of outputs 8 o …; p are the tile's planes. */
ALWAYS_INLINE void scales_of_block(uint32_t dtype, const uint8_t *tile, struct tile_planes p,
				   int64_t b, const int o, struct scales *t)
{
	const struct tile_format f = tile_format(dtype);
	const uint8_t *at = tile + p.scale + b * f.n_scales * IG_TILE + o * 8;
	int32x4_t v[2];

	if (dtype == IG_MXFP4) {
		widen_unsigned(vld1_u8(at), v);
		QUADS(i)
			t->d[i] = power_of(v[i]);
		return;
	}
	const uint8_t *d = tile + p.d + b / f.d_blocks * 32 + o * 16;
	QUADS(i) {
		t->d[i] = halves(d + i * 8);
		if (f.has_m)
			t->m[i] = halves(d + (p.m - p.d) + i * 8);
	}
	if (dtype == IG_Q2_K) {
		for (int half = 0; half < 2; half++) {
			uint8x8_t both = vld1_u8(at + half * IG_TILE);
			widen_unsigned(vand_u8(both, vdup_n_u8(15)), t->s[half]);
			widen_unsigned(vshr_n_u8(both, 4), t->n[half]);
		}
	} else if (f.n_scales == 2) {
		for (int half = 0; half < 2; half++)
			widen_signed(vld1_s8((const int8_t *)at + half * IG_TILE), t->s[half]);
	} else if (f.n_scales == 1) {
		widen_signed(vld1_s8((const int8_t *)at), v);
		QUADS(i)
			t->d[i] = vmulq_f32(t->d[i], vcvtq_f32_s32(v[i]));
	}
	if (f.n_mins) {
		widen_unsigned(vld1_u8(tile + p.min + b * IG_TILE + o * 8), v);
		QUADS(i)
			t->m[i] = vmulq_f32(t->m[i], vcvtq_f32_s32(v[i]));
	}
}
