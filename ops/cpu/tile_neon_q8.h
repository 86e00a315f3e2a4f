/*
 * tile_neon_q8.h: sums of 8-bit products for NEON, and the names of the files that are
 * compiled once for each of its levels, with NEON_ISA naming the level:
 *
 *   neon          smull and smlal into 16 bits, then pairwise into 32
 *   neon_dotprod  sdot by lane: four k of four outputs per instruction
 *   neon_i8mm     smmla for pairs of rows: eight k of two outputs and two rows;
 *                 an unpaired row uses sdot
 *
 * Weights are signed bytes, processed by half tiles (eight outputs), so that the sums of
 * four rows, as integers and as floats, stay in registers.  The sums are exact, so
 * all three levels give the same bits.
 */
#pragma once

#include "ops/cpu/q8_row.h"
#include "ops/cpu/tile_neon.h"

#define CAT_(a, b) a##_##b
#define CAT(a, b) CAT_(a, b)
#define NAMED_(name, max_rows, dtype) TILE_KERNELS_Q8(name, max_rows, dtype)
#define NAMED(name, max_rows, dtype) NAMED_(name, max_rows, dtype)
#define ROWS_OF(format) CAT(CAT(NEON_ISA, format), rows)

#if !defined(__ARM_FEATURE_DOTPROD) && defined(__ARM_FEATURE_MATMUL_INT8)
#error "smmla is used together with sdot"
#endif

/* Activations of a row in IG_LAYOUT_Q8. */
ALWAYS_INLINE const int8_t *quants_of(const uint8_t *x, int64_t stride, int r, int64_t at)
{
	return (const int8_t *)(x + r * stride + at);
}

/* ---- sixteen k: w[g][v] weights of group g, x sixteen activations per row ----------
 *
 * `small`: no magnitude of a weight exceeds 32, so eight products fit 16 bits (8 * 32 * 127 <
 * 32768); of larger weights two do (2 * 128 * 127). */

#if defined(__ARM_FEATURE_DOTPROD)

ALWAYS_INLINE void dot_row(int32x4_t *dot, int8x16_t (*w)[2], int8x16_t x, const bool small)
{
	QUADS(v) {
		dot[v] = vdotq_laneq_s32(dot[v], w[0][v], x, 0);
		dot[v] = vdotq_laneq_s32(dot[v], w[1][v], x, 1);
		dot[v] = vdotq_laneq_s32(dot[v], w[2][v], x, 2);
		dot[v] = vdotq_laneq_s32(dot[v], w[3][v], x, 3);
	}
}

#else

/* The four activations of lane g, repeated. */
ALWAYS_INLINE int8x16_t spread(int8x16_t x, const int g)
{
	int32x4_t n = vreinterpretq_s32_s8(x);

	switch (g) {
	case 0: return vreinterpretq_s8_s32(vdupq_laneq_s32(n, 0));
	case 1: return vreinterpretq_s8_s32(vdupq_laneq_s32(n, 1));
	case 2: return vreinterpretq_s8_s32(vdupq_laneq_s32(n, 2));
	default: return vreinterpretq_s8_s32(vdupq_laneq_s32(n, 3));
	}
}

ALWAYS_INLINE void dot_row(int32x4_t *dot, int8x16_t (*w)[2], int8x16_t x, const bool small)
{
	const int8x16_t a = spread(x, 0), b = spread(x, 1), c = spread(x, 2), d = spread(x, 3);

	QUADS(v) {
		/* Two outputs each: k 0 … 3 of the first, then of the second. */
		int16x8_t low = vmull_s8(vget_low_s8(w[0][v]), vget_low_s8(a));
		int16x8_t high = vmull_high_s8(w[0][v], a);
		low = vmlal_s8(low, vget_low_s8(w[1][v]), vget_low_s8(b));
		high = vmlal_high_s8(high, w[1][v], b);
		if (!small) {
			dot[v] = vaddq_s32(dot[v], vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
			low = vmull_s8(vget_low_s8(w[2][v]), vget_low_s8(c));
			high = vmull_high_s8(w[2][v], c);
		} else {
			low = vmlal_s8(low, vget_low_s8(w[2][v]), vget_low_s8(c));
			high = vmlal_high_s8(high, w[2][v], c);
		}
		low = vmlal_s8(low, vget_low_s8(w[3][v]), vget_low_s8(d));
		high = vmlal_high_s8(high, w[3][v], d);
		if (small)
			dot[v] = vpadalq_s16(dot[v], vpaddq_s16(low, high));
		else
			dot[v] = vaddq_s32(dot[v], vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
	}
}

#endif

#if defined(__ARM_FEATURE_MATMUL_INT8)

/* The sums of a block for pairs of rows: pair[2v + j] has outputs 4v + 2j and 4v + 2j + 1, each
 * for row r, then for row r + 1. */
struct block_sums {
	int32x4_t pair[2][4];
	int32x4_t last[2]; /* of an unpaired row */
};

/* The sums of row r begin with first[r]. */
ALWAYS_INLINE void block_begin(struct block_sums *s, const int32_t *first, const int n_rows)
{
	for (int p = 0; p < n_rows / 2; p++) {
		int32x2_t two = vset_lane_s32(first[2 * p + 1], vdup_n_s32(first[2 * p]), 1);
		for (int i = 0; i < 4; i++)
			s->pair[p][i] = vcombine_s32(two, two);
	}
	if (n_rows % 2)
		QUADS(v)
			s->last[v] = vdupq_n_s32(first[n_rows - 1]);
}

/* Groups g and g + 1 of two outputs side by side: what smmla reads as a row of eight k. */
ALWAYS_INLINE int8x16_t side_by_side(int8x16_t a, int8x16_t b, const int high)
{
	int32x4_t p = vreinterpretq_s32_s8(a), q = vreinterpretq_s32_s8(b);
	return vreinterpretq_s8_s32(high ? vzip2q_s32(p, q) : vzip1q_s32(p, q));
}

/* Eight k of two rows, as smmla reads them. */
ALWAYS_INLINE int8x16_t two_rows(int8x16_t a, int8x16_t b, const int high)
{
	int64x2_t p = vreinterpretq_s64_s8(a), q = vreinterpretq_s64_s8(b);
	return vreinterpretq_s8_s64(high ? vzip2q_s64(p, q) : vzip1q_s64(p, q));
}

ALWAYS_INLINE void block_add(struct block_sums *s, int8x16_t (*w)[2], const uint8_t *x,
			     int64_t stride, int64_t at, const int n_rows, const bool small)
{
	int8x16_t row[4];

	ROWS(r)
		row[r] = vld1q_s8(quants_of(x, stride, r, at));
	if (n_rows > 1)
		for (int high = 0; high < 2; high++) {
			int8x16_t eight[4];
			for (int i = 0; i < 4; i++)
				eight[i] = side_by_side(w[2 * high][i / 2], w[2 * high + 1][i / 2],
							i % 2);
			for (int p = 0; p < n_rows / 2; p++) {
				int8x16_t two = two_rows(row[2 * p], row[2 * p + 1], high);
				for (int i = 0; i < 4; i++)
					s->pair[p][i] = vmmlaq_s32(s->pair[p][i], eight[i], two);
			}
		}
	if (n_rows % 2)
		dot_row(s->last, w, row[n_rows - 1], small);
}

/* Row by row. */
ALWAYS_INLINE void block_sums_of(const struct block_sums *s, int32x4_t (*sum)[2], const int n_rows)
{
	for (int p = 0; p < n_rows / 2; p++)
		QUADS(v) {
			sum[2 * p][v] = vuzp1q_s32(s->pair[p][2 * v], s->pair[p][2 * v + 1]);
			sum[2 * p + 1][v] = vuzp2q_s32(s->pair[p][2 * v], s->pair[p][2 * v + 1]);
		}
	if (n_rows % 2)
		QUADS(v)
			sum[n_rows - 1][v] = s->last[v];
}

#else

struct block_sums {
	int32x4_t row[4][2];
};

/* The sums of row r begin with first[r]. */
ALWAYS_INLINE void block_begin(struct block_sums *s, const int32_t *first, const int n_rows)
{
	ROWS(r)
		QUADS(v)
			s->row[r][v] = vdupq_n_s32(first[r]);
}

ALWAYS_INLINE void block_add(struct block_sums *s, int8x16_t (*w)[2], const uint8_t *x,
			     int64_t stride, int64_t at, const int n_rows, const bool small)
{
	ROWS(r)
		dot_row(s->row[r], w, vld1q_s8(quants_of(x, stride, r, at)), small);
}

ALWAYS_INLINE void block_sums_of(const struct block_sums *s, int32x4_t (*sum)[2], const int n_rows)
{
	ROWS(r)
		QUADS(v)
			sum[r][v] = s->row[r][v];
}

#endif

ALWAYS_INLINE void block_zero(struct block_sums *s, const int n_rows)
{
	block_begin(s, (const int32_t[4]){ 0 }, n_rows);
}

/* acc += sum * (d of the weights * d of the row) for block b. */
ALWAYS_INLINE void block_scale(float32x4_t (*acc)[2], int32x4_t (*sum)[2], const float32x4_t *d,
			       const uint8_t *x, int64_t stride, int64_t k, int64_t b,
			       const int n_rows)
{
	ROWS(r)
		QUADS(v) {
			float32x4_t by = vmulq_n_f32(d[v], scale_of(x, stride, r, k, b));
			acc[r][v] = vfmaq_f32(acc[r][v], vcvtq_f32_s32(sum[r][v]), by);
		}
}

/* acc += m of the weights * (d of the row * the sum of its block). */
ALWAYS_INLINE void block_add_min(float32x4_t (*acc)[2], const float32x4_t *m, const uint8_t *x,
				 int64_t stride, int64_t k, int64_t b, const int n_rows)
{
	ROWS(r)
		QUADS(v)
			acc[r][v] = vfmaq_n_f32(acc[r][v], m[v], sum_of(x, stride, r, k, b));
}
