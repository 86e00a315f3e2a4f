/*
 * tile_neon_q8.c: products of tiles with 8-bit activations, for NEON; compiled
 * once for each of its levels, with NEON_ISA naming it:
 *
 *   neon          smull and smlal into 16 bits (two products of at most
 *                 128 * 127 fit), then pairwise into 32
 *   neon_dotprod  sdot by lane: four k of four outputs an instruction
 *   neon_i8mm     smmla for pairs of rows: eight k of two outputs and two rows;
 *                 a row without a partner goes through sdot
 *
 * The sums inside a block are integers and exact, so all three give the same
 * bits; then one fused multiply-add a block with both scales, k ascending.  A
 * tile is done in two halves of eight outputs, so that the sums of four rows, as
 * integers and as floats, stay in registers.
 */
#include "ops/cpu/tile_kernels.h"

#include <arm_neon.h>

#define CAT_(a, b) a##_##b
#define CAT(a, b) CAT_(a, b)
#define NAMED_(name, max_rows) TILE_KERNELS(name, max_rows)
#define NAMED(name, max_rows) NAMED_(name, max_rows)

#if !defined(__ARM_FEATURE_DOTPROD) && defined(__ARM_FEATURE_MATMUL_INT8)
#error "smmla is used together with sdot"
#endif

#define ROWS(r) for (int r = 0; r < n_rows; r++)
#define HALVES(h) for (int h = 0; h < 2; h++)
#define QUADS(v) for (int v = 0; v < 2; v++) /* of a half's outputs */

/* Bytes of a group of four k: of the half's outputs 4v … 4v + 3. */
#define QUAD_BYTES 16
#define GROUP_BYTES 64

ALWAYS_INLINE float32x4_t halves(const uint8_t *p)
{
	return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
}

/* The arrays of a row in IG_FORM_Q8. */
ALWAYS_INLINE const int8_t *quants_of(const uint8_t *x, int64_t stride, int r, int64_t at)
{
	return (const int8_t *)(x + r * stride + at);
}

ALWAYS_INLINE float scale_of(const uint8_t *x, int64_t stride, int r, int64_t k, int64_t b)
{
	return ((const float *)(x + r * stride + k))[b];
}

ALWAYS_INLINE float sum_of(const uint8_t *x, int64_t stride, int r, int64_t k, int64_t b)
{
	return ((const float *)(x + r * stride + k))[k / 32 + b];
}

/* ---- sixteen k: w[g][v] weights of group g, x sixteen activations a row ------------ */

#if defined(__ARM_FEATURE_DOTPROD)

ALWAYS_INLINE void dot_row(int32x4_t *dot, int8x16_t (*w)[2], int8x16_t x)
{
	QUADS(v) {
		dot[v] = vdotq_laneq_s32(dot[v], w[0][v], x, 0);
		dot[v] = vdotq_laneq_s32(dot[v], w[1][v], x, 1);
		dot[v] = vdotq_laneq_s32(dot[v], w[2][v], x, 2);
		dot[v] = vdotq_laneq_s32(dot[v], w[3][v], x, 3);
	}
}

#else

/* Four activations of lane g beside each other, again and again. */
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

ALWAYS_INLINE void dot_row(int32x4_t *dot, int8x16_t (*w)[2], int8x16_t x)
{
	for (int g = 0; g < 4; g += 2) {
		int8x16_t a = spread(x, g), b = spread(x, g + 1);
		QUADS(v) {
			/* Two outputs in each: k 0 … 3 of the first, then of the second. */
			int16x8_t low = vmull_s8(vget_low_s8(w[g][v]), vget_low_s8(a));
			int16x8_t high = vmull_high_s8(w[g][v], a);
			low = vmlal_s8(low, vget_low_s8(w[g + 1][v]), vget_low_s8(b));
			high = vmlal_high_s8(high, w[g + 1][v], b);
			dot[v] = vaddq_s32(dot[v], vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
		}
	}
}

#endif

#if defined(__ARM_FEATURE_MATMUL_INT8)

/* The sums of two rows while a block is walked: pair[2v + j] holds outputs 4v + 2j
 * and the next, each for row r, then for row r + 1. */
struct block_sums {
	int32x4_t pair[2][4];
	int32x4_t last[2]; /* of a row without a partner */
};

ALWAYS_INLINE void block_zero(struct block_sums *s, const int n_rows)
{
	for (int p = 0; p < n_rows / 2; p++)
		for (int i = 0; i < 4; i++)
			s->pair[p][i] = vdupq_n_s32(0);
	if (n_rows % 2)
		QUADS(v) s->last[v] = vdupq_n_s32(0);
}

/* Groups g and g + 1 of two outputs side by side: what smmla reads as a row of eight k. */
ALWAYS_INLINE int8x16_t side_by_side(int8x16_t a, int8x16_t b, const int high)
{
	int32x4_t p = vreinterpretq_s32_s8(a), q = vreinterpretq_s32_s8(b);
	return vreinterpretq_s8_s32(high ? vzip2q_s32(p, q) : vzip1q_s32(p, q));
}

ALWAYS_INLINE void block_add(struct block_sums *s, int8x16_t (*w)[2], const uint8_t *x,
			     int64_t stride, int64_t at, const int n_rows)
{
	if (n_rows > 1)
		for (int g = 0; g < 4; g += 2) {
			int8x16_t eight[4];
			for (int i = 0; i < 4; i++)
				eight[i] = side_by_side(w[g][i / 2], w[g + 1][i / 2], i % 2);
			for (int p = 0; p < n_rows / 2; p++) {
				int8x16_t two = vcombine_s8(
					vld1_s8(quants_of(x, stride, 2 * p, at + g * 4)),
					vld1_s8(quants_of(x, stride, 2 * p + 1, at + g * 4)));
				for (int i = 0; i < 4; i++)
					s->pair[p][i] = vmmlaq_s32(s->pair[p][i], eight[i], two);
			}
		}
	if (n_rows % 2)
		dot_row(s->last, w, vld1q_s8(quants_of(x, stride, n_rows - 1, at)));
}

ALWAYS_INLINE int32x4_t block_sum(const struct block_sums *s, int r, int v, const int n_rows)
{
	if (r == n_rows - 1 && n_rows % 2)
		return s->last[v];
	const int32x4_t *pair = s->pair[r / 2] + 2 * v;
	return r % 2 ? vuzp2q_s32(pair[0], pair[1]) : vuzp1q_s32(pair[0], pair[1]);
}

#else

struct block_sums {
	int32x4_t row[4][2];
};

ALWAYS_INLINE void block_zero(struct block_sums *s, const int n_rows)
{
	ROWS(r) QUADS(v) s->row[r][v] = vdupq_n_s32(0);
}

ALWAYS_INLINE void block_add(struct block_sums *s, int8x16_t (*w)[2], const uint8_t *x,
			     int64_t stride, int64_t at, const int n_rows)
{
	ROWS(r) dot_row(s->row[r], w, vld1q_s8(quants_of(x, stride, r, at)));
}

ALWAYS_INLINE int32x4_t block_sum(const struct block_sums *s, int r, int v, const int n_rows)
{
	return s->row[r][v];
}

#endif

/* acc += sums * (d of the weights * d of the row) for block b. */
ALWAYS_INLINE void block_scale(float32x4_t (*acc)[2], const struct block_sums *s,
			       const float32x4_t *d, const uint8_t *x, int64_t stride, int64_t k,
			       int64_t b, const int n_rows)
{
	ROWS(r) QUADS(v) {
		float32x4_t by = vmulq_n_f32(d[v], scale_of(x, stride, r, k, b));
		acc[r][v] = vfmaq_f32(acc[r][v], vcvtq_f32_s32(block_sum(s, r, v, n_rows)), by);
	}
}

/* ---- the formats -------------------------------------------------------------------- */

ALWAYS_INLINE void q8_0_rows(const uint8_t *tile, int64_t k, const uint8_t *x, int64_t stride,
			     float *out, const int n_rows)
{
	const int64_t kb = k / 32;

	HALVES(h) {
		float32x4_t acc[4][2], d[2];
		ROWS(r) QUADS(v) acc[r][v] = vdupq_n_f32(0.0f);
		for (int64_t b = 0; b < kb; b++) {
			const int8_t *q = (const int8_t *)tile + b * 512 + h * 2 * QUAD_BYTES;
			struct block_sums s;
			QUADS(v) d[v] = halves(tile + kb * 512 + b * 32 + h * 16 + v * 8);
			block_zero(&s, n_rows);
			for (int j = 0; j < 2; j++, q += 4 * GROUP_BYTES) {
				int8x16_t w[4][2];
				for (int g = 0; g < 4; g++)
					QUADS(v) w[g][v] = vld1q_s8(q + g * GROUP_BYTES + v * QUAD_BYTES);
				block_add(&s, w, x, stride, b * 32 + j * 16, n_rows);
			}
			block_scale(acc, &s, d, x, stride, k, b, n_rows);
		}
		ROWS(r) QUADS(v) vst1q_f32(out + r * IG_TILE + h * 8 + v * 4, acc[r][v]);
	}
}

ALWAYS_INLINE void nibble_rows(const uint8_t *tile, int64_t k, const uint8_t *x, int64_t stride,
			       float *out, const int n_rows, const bool has_min)
{
	const int64_t kb = k / 32;
	const uint8_t *scales = tile + kb * 256, *mins = scales + kb * 32;
	const int8x16_t bias = vdupq_n_s8(has_min ? 0 : 8);

	HALVES(h) {
		float32x4_t acc[4][2], d[2];
		ROWS(r) QUADS(v) acc[r][v] = vdupq_n_f32(0.0f);
		for (int64_t b = 0; b < kb; b++) {
			const uint8_t *q = tile + b * 256 + h * 2 * QUAD_BYTES;
			struct block_sums s;
			QUADS(v) d[v] = halves(scales + b * 32 + h * 16 + v * 8);
			block_zero(&s, n_rows);
			for (int high = 0; high < 2; high++) { /* halves of bytes: k 0 … 15, 16 … 31 */
				int8x16_t w[4][2];
				for (int g = 0; g < 4; g++)
					QUADS(v) {
						uint8x16_t u = vld1q_u8(q + g * GROUP_BYTES + v * QUAD_BYTES);
						u = high ? vshrq_n_u8(u, 4) : vandq_u8(u, vdupq_n_u8(15));
						w[g][v] = vsubq_s8(vreinterpretq_s8_u8(u), bias);
					}
				block_add(&s, w, x, stride, b * 32 + high * 16, n_rows);
			}
			block_scale(acc, &s, d, x, stride, k, b, n_rows);
			if (has_min)
				QUADS(v) {
					float32x4_t m = halves(mins + b * 32 + h * 16 + v * 8);
					ROWS(r)
						acc[r][v] = vfmaq_n_f32(acc[r][v], m,
									sum_of(x, stride, r, k, b));
				}
		}
		ROWS(r) QUADS(v) vst1q_f32(out + r * IG_TILE + h * 8 + v * 4, acc[r][v]);
	}
}

#define ROWS_OF(format) CAT(CAT(NEON_ISA, format), rows)

ALWAYS_INLINE void ROWS_OF(q8_0)(const uint8_t *tile, int64_t k, const uint8_t *x, int64_t stride,
				 float *out, const int n_rows)
{
	q8_0_rows(tile, k, x, stride, out, n_rows);
}
NAMED(CAT(NEON_ISA, q8_0), 4)

ALWAYS_INLINE void ROWS_OF(q4_0)(const uint8_t *tile, int64_t k, const uint8_t *x, int64_t stride,
				 float *out, const int n_rows)
{
	nibble_rows(tile, k, x, stride, out, n_rows, false);
}
NAMED(CAT(NEON_ISA, q4_0), 4)

ALWAYS_INLINE void ROWS_OF(q4_1)(const uint8_t *tile, int64_t k, const uint8_t *x, int64_t stride,
				 float *out, const int n_rows)
{
	nibble_rows(tile, k, x, stride, out, n_rows, true);
}
NAMED(CAT(NEON_ISA, q4_1), 4)
