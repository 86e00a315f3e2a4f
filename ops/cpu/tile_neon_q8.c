/*
 * tile_neon_q8.c: products of tiles with 8-bit activations, for each level of NEON
 * (tile_neon_q8.h).  The sums inside a block are integers and exact; then one fused
 * multiply-add per block with both scales, k ascending.
 */
#include "ops/cpu/tile_neon_q8.h"

/* Both types with one byte per code.  128 is subtracted from codes of 0 to 255 to make them
 * signed; the row's n = -sum(q) corrects this exactly. */
ALWAYS_INLINE void byte_rows(const uint8_t *tile, int64_t k, const uint8_t *x, int64_t stride,
			     float *out, const int n_rows, const bool has_min)
{
	const int64_t kb = k / 32;
	const uint8_t *scales = tile + kb * 512, *mins = scales + kb * 32;
	const uint8x16_t flip = vdupq_n_u8(has_min ? 0x80 : 0);

	HALVES(h) {
		float32x4_t acc[4][2], d[2], m[2];
		int32x4_t sum[4][2];
		ROWS(r)
			QUADS(v)
				acc[r][v] = vdupq_n_f32(0.0f);
		for (int64_t b = 0; b < kb; b++) {
			const uint8_t *q = tile + b * 512 + h * 2 * QUAD_BYTES;
			struct block_sums s;
			QUADS(v)
				d[v] = halves(scales + b * 32 + h * 16 + v * 8);
			block_zero(&s, n_rows);
			for (int j = 0; j < 2; j++, q += 4 * GROUP_BYTES) {
				int8x16_t w[4][2];
				for (int g = 0; g < 4; g++)
					QUADS(v) {
						uint8x16_t u = vld1q_u8(q + g * GROUP_BYTES +
									v * QUAD_BYTES);
						w[g][v] = vreinterpretq_s8_u8(veorq_u8(u, flip));
					}
				block_add(&s, w, x, stride, b * 32 + j * 16, n_rows, false);
			}
			block_sums_of(&s, sum, n_rows);
			if (has_min)
				ROWS(r) {
					int32x4_t off =
						vdupq_n_s32(neg_of(x, stride, r, k, b) * 128);
					QUADS(v)
						sum[r][v] = vsubq_s32(sum[r][v], off);
				}
			block_scale(acc, sum, d, x, stride, k, b, n_rows);
			if (has_min) {
				QUADS(v)
					m[v] = halves(mins + b * 32 + h * 16 + v * 8);
				block_add_min(acc, m, x, stride, k, b, n_rows);
			}
		}
		ROWS(r)
			QUADS(v)
				vst1q_f32(out + r * IG_TILE + h * 8 + v * 4, acc[r][v]);
	}
}

/* Add the lower (k 0 … 15) or the upper halves of the bytes of a block. */
ALWAYS_INLINE void add_nibbles(struct block_sums *s, const uint8_t *q, const int high,
			       const uint8_t *x, int64_t stride, int64_t at, const int n_rows)
{
	int8x16_t w[4][2];

	for (int g = 0; g < 4; g++)
		QUADS(v) {
			uint8x16_t u = vld1q_u8(q + g * GROUP_BYTES + v * QUAD_BYTES);
			u = high ? vshrq_n_u8(u, 4) : vandq_u8(u, vdupq_n_u8(15));
			w[g][v] = vreinterpretq_s8_u8(u);
		}
	block_add(s, w, x, stride, at + high * 16, n_rows, true);
}

/* Codes of Q4_0 are 8 too large, so the sums begin with -8 sum(q). */
ALWAYS_INLINE void nibble_rows(const uint8_t *tile, int64_t k, const uint8_t *x, int64_t stride,
			       float *out, const int n_rows, const bool has_min)
{
	const int64_t kb = k / 32;
	const uint8_t *scales = tile + kb * 256, *mins = scales + kb * 32;

	HALVES(h) {
		float32x4_t acc[4][2], d[2], m[2];
		int32x4_t sum[4][2];
		ROWS(r)
			QUADS(v)
				acc[r][v] = vdupq_n_f32(0.0f);
		for (int64_t b = 0; b < kb; b++) {
			const uint8_t *q = tile + b * 256 + h * 2 * QUAD_BYTES;
			int32_t first[4] = { 0 };
			struct block_sums s;
			QUADS(v)
				d[v] = halves(scales + b * 32 + h * 16 + v * 8);
			if (!has_min)
				ROWS(r)
					first[r] = neg_of(x, stride, r, k, b) * 8;
			block_begin(&s, first, n_rows);
			add_nibbles(&s, q, 0, x, stride, b * 32, n_rows);
			add_nibbles(&s, q, 1, x, stride, b * 32, n_rows);
			block_sums_of(&s, sum, n_rows);
			block_scale(acc, sum, d, x, stride, k, b, n_rows);
			if (has_min) {
				QUADS(v)
					m[v] = halves(mins + b * 32 + h * 16 + v * 8);
				block_add_min(acc, m, x, stride, k, b, n_rows);
			}
		}
		ROWS(r)
			QUADS(v)
				vst1q_f32(out + r * IG_TILE + h * 8 + v * 4, acc[r][v]);
	}
}

ALWAYS_INLINE void ROWS_OF(q8_0)(const uint8_t *tile, int64_t k, const uint8_t *x, int64_t stride,
				 float *out, const int n_rows)
{
	byte_rows(tile, k, x, stride, out, n_rows, false);
}
NAMED(CAT(NEON_ISA, q8_0), 4, IG_Q8_0)

ALWAYS_INLINE void ROWS_OF(q8_m)(const uint8_t *tile, int64_t k, const uint8_t *x, int64_t stride,
				 float *out, const int n_rows)
{
	byte_rows(tile, k, x, stride, out, n_rows, true);
}
NAMED(CAT(NEON_ISA, q8_m), 4, IG_Q8_M)

ALWAYS_INLINE void ROWS_OF(q4_0)(const uint8_t *tile, int64_t k, const uint8_t *x, int64_t stride,
				 float *out, const int n_rows)
{
	nibble_rows(tile, k, x, stride, out, n_rows, false);
}
NAMED(CAT(NEON_ISA, q4_0), 4, IG_Q4_0)

ALWAYS_INLINE void ROWS_OF(q4_1)(const uint8_t *tile, int64_t k, const uint8_t *x, int64_t stride,
				 float *out, const int n_rows)
{
	nibble_rows(tile, k, x, stride, out, n_rows, true);
}
NAMED(CAT(NEON_ISA, q4_1), 4, IG_Q4_1)
