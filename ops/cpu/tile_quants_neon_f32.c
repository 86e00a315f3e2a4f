/*
 * tile_quants_neon_f32.c: products of the tiles of tile_quants.h with float activations, for
 * NEON: a weight is dequantised when it is needed, (d s) v and then its minimum, each rounded, and
 * used in one fused multiply-add per row, k ascending.
 */
#include "ops/cpu/tile_quants_neon.h"

/* acc += w * x[lane] for eight outputs, one vector x per row. */
ALWAYS_INLINE void add_lane(float32x4_t (*acc)[2], const float32x4_t *w, const float32x4_t *x,
			    const int lane, const int n_rows)
{
	ROWS(r)
		QUADS(v) {
			switch (lane) { /* the lane is an immediate */
			case 0: acc[r][v] = vfmaq_laneq_f32(acc[r][v], w[v], x[r], 0); break;
			case 1: acc[r][v] = vfmaq_laneq_f32(acc[r][v], w[v], x[r], 1); break;
			case 2: acc[r][v] = vfmaq_laneq_f32(acc[r][v], w[v], x[r], 2); break;
			default: acc[r][v] = vfmaq_laneq_f32(acc[r][v], w[v], x[r], 3); break;
			}
		}
}

/* Step i of the four of a group: c are its codes; d and m are shared by the group. */
ALWAYS_INLINE void add_step(float32x4_t (*acc)[2], uint32_t dtype, const int8x16_t *c,
			    const float32x4_t *d, const float32x4_t *m, const float32x4_t *xs,
			    const int i, const int n_rows)
{
	const struct tile_format f = tile_format(dtype);
	float32x4_t w[2];

	QUADS(v) {
		int32x4_t n = vreinterpretq_s32_s8(c[v]);
		n = vshrq_n_s32(n << vdupq_n_s32(24 - i * 8), 24);
		w[v] = vmulq_f32(d[v], vcvtq_f32_s32(n));
		if (dtype == IG_Q5_1)
			w[v] = vaddq_f32(w[v], m[v]);
		else if (f.has_m)
			w[v] = vsubq_f32(w[v], m[v]);
	}
	add_lane(acc, w, xs, i, n_rows);
}

/* Half of a block, for eight outputs: its planes at the first of them, d and m of each. */
struct half {
	const uint8_t *q;
	uint8x16_t upper[2];
	float32x4_t d[2], m[2];
	int8x16_t table;
};

/* Group g of a half: x are the rows at its four activations. */
ALWAYS_INLINE void add_group(float32x4_t (*acc)[2], uint32_t dtype, const struct half *w,
			     const int half, const int g, const uint8_t *x, int64_t stride,
			     const int n_rows)
{
	float32x4_t xs[4];
	int8x16_t c[2];

	QUADS(v)
		c[v] = codes(dtype, w->q + v * QUAD_BYTES, w->upper[v], half, g, w->table);
	ROWS(r)
		xs[r] = vld1q_f32((const float *)(x + r * stride));
	add_step(acc, dtype, c, w->d, w->m, xs, 0, n_rows);
	add_step(acc, dtype, c, w->d, w->m, xs, 1, n_rows);
	add_step(acc, dtype, c, w->d, w->m, xs, 2, n_rows);
	add_step(acc, dtype, c, w->d, w->m, xs, 3, n_rows);
}

/* Half of a block: q and h are its planes, x the rows at its sixteen activations. */
ALWAYS_INLINE void add_half(float32x4_t (*acc)[2], uint32_t dtype, const uint8_t *q,
			    const uint8_t *h, const int half, const struct scales *t,
			    int8x16_t table, const uint8_t *x, int64_t stride, const int n_rows)
{
	const struct tile_format f = tile_format(dtype);
	struct half w = { .q = q, .table = table };

	QUADS(v) {
		w.upper[v] = upper_bits(dtype, h + v * QUAD_BYTES, half);
		w.d[v] = t->d[v];
		if (f.n_scales == 2)
			w.d[v] = vmulq_f32(w.d[v], vcvtq_f32_s32(t->s[half][v]));
		w.m[v] = f.has_m ? t->m[v] : vdupq_n_f32(0.0f);
		if (dtype == IG_Q2_K)
			w.m[v] = vmulq_f32(w.m[v], vcvtq_f32_s32(t->n[half][v]));
	}
	add_group(acc, dtype, &w, half, 0, x, stride, n_rows);
	add_group(acc, dtype, &w, half, 1, x + 16, stride, n_rows);
	add_group(acc, dtype, &w, half, 2, x + 32, stride, n_rows);
	add_group(acc, dtype, &w, half, 3, x + 48, stride, n_rows);
}

ALWAYS_INLINE void quants_f32(uint32_t dtype, const uint8_t *tile, int64_t k, const uint8_t *x,
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
			struct scales t;
			scales_of_block(dtype, tile, p, b, o, &t);
			add_half(acc, dtype, q, h, 0, &t, table, x + b * 128, stride, n_rows);
			add_half(acc, dtype, q, h, 1, &t, table, x + b * 128 + 64, stride, n_rows);
		}
		ROWS(r)
			QUADS(v)
				vst1q_f32(out + r * IG_TILE + o * 8 + v * 4, acc[r][v]);
	}
}

TILE_QUANTS(TILE_QUANT_KERNELS_F32, neon, 4)
