/*
 * tile_column.h: one column of a tile, the weights of its sixteen outputs for one activation,
 * and the terms that outliers (IG_LAYOUT_Q8) add to a product.  Every instruction set uses
 * compiler vectors as wide as its own, for a part of the outputs; nothing is fused, so all give
 * the same bits.
 */
#pragma once

#include "ops/cpu/tile_quants.h"
#include "ops/float.h"

#include <string.h>

#ifdef __F16C__
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define COLUMN static inline __attribute__((always_inline))

/* Of wider vectors than the instruction set's gcc moves the parts through memory. */
#ifdef __AVX512F__
#define COLUMN_LANES 16
#elif defined(__AVX2__)
#define COLUMN_LANES 8
#else
#define COLUMN_LANES 4
#endif
#define COLUMN_PARTS (IG_TILE / COLUMN_LANES)

typedef float column_f32 __attribute__((vector_size(COLUMN_LANES * 4)));
/* In memory: gcc copies an array of vectors in smaller ones, which later loads of whole ones wait for. */
typedef column_f32 column_stored __attribute__((aligned(4), may_alias));
typedef int32_t column_i32 __attribute__((vector_size(COLUMN_LANES * 4)));
typedef uint32_t column_u32 __attribute__((vector_size(COLUMN_LANES * 4)));
typedef uint8_t column_u8 __attribute__((vector_size(COLUMN_LANES)));
typedef int8_t column_i8 __attribute__((vector_size(COLUMN_LANES)));

/* The other formats with 8-bit activations, in the layout of tile_quants.h. */
COLUMN struct tile_format column_format(uint32_t dtype)
{
	if (dtype == IG_Q8_0 || dtype == IG_Q8_M)
		return (struct tile_format){ 8, 0, 0, 0, 1, dtype == IG_Q8_M, 0 };
	if (dtype == IG_Q4_0)
		return (struct tile_format){ 4, 0, 0, 0, 1, false, 8 };
	if (dtype == IG_Q4_1)
		return (struct tile_format){ 4, 0, 0, 0, 1, true, 0 };
	return tile_format(dtype);
}

COLUMN void column_halves(const uint8_t *p, column_f32 *to)
{
	float v[COLUMN_LANES];

#ifdef __F16C__
	for (int o = 0; o < COLUMN_LANES; o += 8)
		_mm256_storeu_ps(v + o,
				 _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + o * 2))));
#elif defined(__aarch64__)
	for (int o = 0; o < COLUMN_LANES; o += 4)
		vst1q_f32(v + o, vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p + o * 2))));
#else
	uint16_t h[COLUMN_LANES];

	memcpy(h, p, sizeof h);
	for (int o = 0; o < COLUMN_LANES; o++)
		v[o] = ig_f32_from_f16(h[o]);
#endif
	memcpy(to, v, sizeof v);
}

/* Bits of one word per output. */
COLUMN void column_bits(const uint8_t *p, int shift, uint32_t mask, column_i32 *to)
{
	column_u32 word;
	memcpy(&word, p, sizeof word);
	*to = (column_i32)(word >> (uint32_t)shift & mask);
}

/* One byte per output, or some of its bits, as floats. */
COLUMN void column_bytes(const uint8_t *p, int shift, uint8_t mask, column_f32 *to)
{
	column_u8 b;
	memcpy(&b, p, sizeof b);
	*to = __builtin_convertvector(b >> (uint8_t)shift & mask, column_f32);
}

COLUMN void column_signed_bytes(const uint8_t *p, column_f32 *to)
{
	column_i8 b;
	memcpy(&b, p, sizeof b);
	*to = __builtin_convertvector(b, column_f32);
}

/* Value i of Q8_0 or Q8_M, of outputs o …. */
COLUMN void column_of_bytes(uint32_t dtype, const uint8_t *tile, int64_t kb, int64_t i, int o,
			    column_f32 *w)
{
	const int64_t b = i / 32;
	column_f32 d, m;
	column_i32 q;

	column_bits(tile + b * 512 + i % 32 / 4 * 64 + o * 4, (int)(i % 4) * 8, 255, &q);
	column_halves(tile + kb * 512 + b * 32 + o * 2, &d);
	if (dtype == IG_Q8_0) {
		*w = d * __builtin_convertvector((q ^ 128) - 128, column_f32);
		return;
	}
	column_halves(tile + kb * 544 + b * 32 + o * 2, &m);
	*w = d * __builtin_convertvector(q, column_f32) + m;
}

/* The exponents' bytes of MXFP4 as scales; the two smallest are subnormal. */
COLUMN void column_exponents(const uint8_t *e, column_f32 *d)
{
	uint32_t bits[COLUMN_LANES];
	for (int o = 0; o < COLUMN_LANES; o++)
		bits[o] = e[o] < 2 ? 0x00200000u << e[o] : (uint32_t)(e[o] - 1) << 23;
	memcpy(d, bits, sizeof bits);
}

COLUMN void column_table(const int8_t *table, column_i32 *c)
{
	int32_t v[COLUMN_LANES];
	memcpy(v, c, sizeof v);
	for (int o = 0; o < COLUMN_LANES; o++)
		v[o] = table[v[o]];
	memcpy(c, v, sizeof v);
}

/* The weights of value i for outputs o …, of one of the formats with 8-bit activations. */
COLUMN void tile_column(uint32_t dtype, const uint8_t *tile, int64_t k, int64_t i, int o,
			column_f32 *w)
{
	static const int8_t iq4[16] = IG_IQ4_VALUES, fp4[16] = IG_FP4_VALUES;
	const struct tile_format f = column_format(dtype);
	const struct tile_planes p = tile_planes(f, k / 32);
	const int64_t b = i / 32;
	const int half = (int)(i % 32 / 16), g = (int)(i % 16 / 4), byte = (int)(i % 4) * 8;
	const uint8_t *s =
		tile + p.scale + (b * f.n_scales + (f.n_scales == 2 ? half : 0)) * IG_TILE + o;
	column_f32 d, m, n;
	column_i32 c, high;

	if (dtype == IG_Q8_0 || dtype == IG_Q8_M) {
		column_of_bytes(dtype, tile, k / 32, i, o, w);
		return;
	}
	if (f.low_bits == 4)
		column_bits(tile + b * 256 + g * 64 + o * 4, byte + 4 * half, 15, &c);
	else
		column_bits(tile + b * 128 + half * 64 + o * 4, byte + 2 * g, 3, &c);
	if (f.high_bits == 1) {
		column_bits(tile + p.high + b * 64 + o * 4, byte + 4 * half + g, 1, &high);
		c |= high << f.low_bits;
	} else if (f.high_bits == 2) {
		column_bits(tile + p.high + b * 128 + half * 64 + o * 4, byte + 2 * g, 3, &high);
		c |= high << 4;
	}
	if (dtype == IG_MXFP4)
		column_table(fp4, &c);
	else if (dtype == IG_IQ4_NL || dtype == IG_IQ4_XS)
		column_table(iq4, &c);
	else
		c -= f.offset;
	if (dtype == IG_MXFP4)
		column_exponents(tile + p.scale + b * IG_TILE + o, &d);
	else
		column_halves(tile + p.d + b / f.d_blocks * 32 + o * 2, &d);
	if (dtype == IG_Q2_K) {
		column_bytes(s, 0, 15, &n);
		d *= n;
	} else if (f.n_scales && dtype != IG_MXFP4) {
		column_signed_bytes(s, &n);
		d *= n;
	}
	*w = d * __builtin_convertvector(c, column_f32);
	if (!f.has_m)
		return;
	column_halves(tile + p.m + b / f.d_blocks * 32 + o * 2, &m);
	if (dtype == IG_Q2_K || f.n_mins) {
		column_bytes(dtype == IG_Q2_K ? s : tile + p.min + b * IG_TILE + o,
			     dtype == IG_Q2_K ? 4 : 0, 255, &n);
		*w -= m * n;
	} else {
		*w += m;
	}
}

/* Add the outliers of rows in IG_LAYOUT_Q8 to their products [n_rows][16], blocks ascending. */
COLUMN void add_outliers(uint32_t dtype, const uint8_t *tile, int64_t k, const uint8_t *x,
			 int64_t stride, float *out, int n_rows)
{
	const int64_t kb = k / 32;

	for (int r = 0; r < n_rows; r++, x += stride, out += IG_TILE) {
		const float *outlier = (const float *)(x + k) + 4 * kb;
		const int32_t *next = (const int32_t *)(outlier + kb);
		int64_t b = next[0] >> 5;
		column_f32 sum[COLUMN_PARTS], w;
		if (b >= kb)
			continue;
		for (int p = 0; p < COLUMN_PARTS; p++)
			sum[p] = *(const column_stored *)(out + p * COLUMN_LANES);
		do {
			for (int p = 0; p < COLUMN_PARTS; p++) {
				tile_column(dtype, tile, k, b * 32 + (next[b] & 31),
					    p * COLUMN_LANES, &w);
				sum[p] += w * outlier[b];
			}
			b++;
			b += b < kb ? next[b] >> 5 : 0;
		} while (b < kb);
		for (int p = 0; p < COLUMN_PARTS; p++)
			*(column_stored *)(out + p * COLUMN_LANES) = sum[p];
	}
}
