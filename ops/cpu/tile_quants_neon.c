/*
 * tile_quants_neon.c: products of the tiles of tile_quants.h with 8-bit activations, for each
 * level of NEON (tile_neon_q8.h), with the bits of AVX2 and AVX-512.  Scales and minima
 * of sixteen values multiply their sums as integers, which is as exact as in floats.
 */
#include "ops/cpu/tile_neon_q8.h"
#include "ops/cpu/tile_quants_neon.h"

/* Add half of block b to the sums: q and h are the block's planes at the first of eight
 * outputs. */
ALWAYS_INLINE void add_half(struct block_sums *s, uint32_t dtype, const uint8_t *q,
			    const uint8_t *h, const int half, int8x16_t table, const uint8_t *x,
			    int64_t stride, int64_t b, const int n_rows)
{
	const bool small = dtype != IG_IQ4_NL && dtype != IG_IQ4_XS;
	int8x16_t w[4][2];

	QUADS(v) {
		const uint8_t *qv = q + v * QUAD_BYTES;
		uint8x16_t upper = upper_bits(dtype, h + v * QUAD_BYTES, half);
		w[0][v] = codes(dtype, qv, upper, half, 0, table);
		w[1][v] = codes(dtype, qv, upper, half, 1, table);
		w[2][v] = codes(dtype, qv, upper, half, 2, table);
		w[3][v] = codes(dtype, qv, upper, half, 3, table);
	}
	block_add(s, w, x, stride, b * 32 + half * 16, n_rows, small);
}

/* acc += -(n0 x0 + n1 x1) * (m * d of the row), x the activations' sums, which rows store
 * negated. */
ALWAYS_INLINE void add_two_mins(float32x4_t (*acc)[2], const struct scales *t, const uint8_t *x,
				int64_t stride, int64_t k, int64_t b, const int n_rows)
{
	int32x4_t sum[4][2];

	ROWS(r) {
		int32_t first = neg_half_of(x, stride, r, k, b);
		int32_t second = neg_of(x, stride, r, k, b) - first;
		QUADS(v) {
			sum[r][v] = vmulq_n_s32(t->n[0][v], first);
			sum[r][v] = vmlaq_n_s32(sum[r][v], t->n[1][v], second);
		}
	}
	block_scale(acc, sum, t->m, x, stride, k, b, n_rows);
}

ALWAYS_INLINE void quants_q8(uint32_t dtype, const uint8_t *tile, int64_t k, const uint8_t *x,
			     int64_t stride, float *out, const int n_rows)
{
	const struct tile_format f = tile_format(dtype);
	const int64_t kb = k / 32;
	const struct tile_planes p = tile_planes(f, kb);
	const int8x16_t table = table_of(dtype);

	HALVES(o) {
		float32x4_t acc[4][2];
		ROWS(r)
			QUADS(v)
				acc[r][v] = vdupq_n_f32(0.0f);
		for (int64_t b = 0; b < kb; b++) {
			const uint8_t *q = tile + b * f.low_bits * 64 + o * 2 * QUAD_BYTES;
			const uint8_t *h =
				tile + p.high + b * f.high_bits * 64 + o * 2 * QUAD_BYTES;
			struct block_sums s;
			struct scales t;
			int32x4_t sum[4][2], second[4][2];
			scales_of_block(dtype, tile, p, b, o, &t);
			block_zero(&s, n_rows);
			add_half(&s, dtype, q, h, 0, table, x, stride, b, n_rows);
			if (f.n_scales == 2) {
				block_sums_of(&s, sum, n_rows);
				ROWS(r)
					QUADS(v)
						sum[r][v] = vmulq_s32(sum[r][v], t.s[0][v]);
				block_zero(&s, n_rows);
				add_half(&s, dtype, q, h, 1, table, x, stride, b, n_rows);
				block_sums_of(&s, second, n_rows);
				ROWS(r)
					QUADS(v)
						sum[r][v] = vmlaq_s32(sum[r][v], second[r][v],
								      t.s[1][v]);
			} else {
				add_half(&s, dtype, q, h, 1, table, x, stride, b, n_rows);
				block_sums_of(&s, sum, n_rows);
			}
			block_scale(acc, sum, t.d, x, stride, k, b, n_rows);
			if (dtype == IG_Q2_K)
				add_two_mins(acc, &t, x, stride, k, b, n_rows);
			else if (dtype == IG_Q5_1)
				block_add_min(acc, t.m, x, stride, k, b, n_rows);
			else if (f.has_m)
				ROWS(r)
					QUADS(v)
						acc[r][v] = vfmsq_n_f32(acc[r][v], t.m[v],
									sum_of(x, stride, r, k, b));
		}
		ROWS(r)
			QUADS(v)
				vst1q_f32(out + r * IG_TILE + o * 8 + v * 4, acc[r][v]);
	}
}

#define QUANT(format, dtype, isa)                                                                  \
	ALWAYS_INLINE void ROWS_OF(format)(const uint8_t *tile, int64_t k, const uint8_t *x,       \
					   int64_t stride, float *out, const int n_rows)           \
	{                                                                                          \
		quants_q8(dtype, tile, k, x, stride, out, n_rows);                                 \
	}                                                                                          \
	NAMED(CAT(isa, format), 4, dtype)

TILE_QUANTS(QUANT, NEON_ISA)
