/*
 * tile_neon.c: products of tiles with float activations, for NEON.
 *
 * Four vectors are the tile's sixteen outputs; the sums of four rows take 16 of the
 * 32 registers.  k ascends, with one fused multiply-add per weight; its activation is a lane
 * of a vector of four.
 */
#include "ops/cpu/tile_neon.h"

#define QUARTERS(v) for (int v = 0; v < 4; v++)

/* Activations i … i + 3 of a row. */
ALWAYS_INLINE float32x4_t floats_of(const uint8_t *x, int64_t stride, int r, int64_t i)
{
	return vld1q_f32((const float *)(x + r * stride) + i);
}

ALWAYS_INLINE void zero_all(int n_rows, float32x4_t (*acc)[4])
{
	ROWS(r)
		QUARTERS(v)
			acc[r][v] = vdupq_n_f32(0.0f);
}

ALWAYS_INLINE void store_all(float *out, int n_rows, float32x4_t (*acc)[4])
{
	ROWS(r)
		QUARTERS(v)
			vst1q_f32(out + r * IG_TILE + v * 4, acc[r][v]);
}

/* acc += w * x[lane], one vector x per row. */
ALWAYS_INLINE void add_lane(float32x4_t (*acc)[4], const float32x4_t *w, const float32x4_t *x,
			    const int lane, const int n_rows)
{
	ROWS(r)
		QUARTERS(v) {
			switch (lane) { /* the lane is an immediate */
			case 0: acc[r][v] = vfmaq_laneq_f32(acc[r][v], w[v], x[r], 0); break;
			case 1: acc[r][v] = vfmaq_laneq_f32(acc[r][v], w[v], x[r], 1); break;
			case 2: acc[r][v] = vfmaq_laneq_f32(acc[r][v], w[v], x[r], 2); break;
			default: acc[r][v] = vfmaq_laneq_f32(acc[r][v], w[v], x[r], 3); break;
			}
		}
}

/* The loop over k for weights without blocks: LOAD(w, i) loads those of step i. */
#define WALK_K(LOAD)                                                                               \
	do {                                                                                       \
		float32x4_t acc[4][4], w[4], xs[4];                                                \
		int64_t i = 0;                                                                     \
		zero_all(n_rows, acc);                                                             \
		for (; i + 4 <= k; i += 4) {                                                       \
			ROWS(r)                                                                    \
				xs[r] = floats_of(x, stride, r, i);                                \
			for (int j = 0; j < 4; j++) {                                              \
				LOAD(w, i + j);                                                    \
				add_lane(acc, w, xs, j, n_rows);                                   \
			}                                                                          \
		}                                                                                  \
		for (; i < k; i++) {                                                               \
			LOAD(w, i);                                                                \
			ROWS(r)                                                                    \
				xs[r] = vdupq_n_f32(((const float *)(x + r * stride))[i]);         \
			add_lane(acc, w, xs, 0, n_rows);                                           \
		}                                                                                  \
		store_all(out, n_rows, acc);                                                       \
	} while (0)

ALWAYS_INLINE void neon_f32_rows(const uint8_t *tile, int64_t k, const uint8_t *x, int64_t stride,
				 float *out, const int n_rows)
{
#define LOAD_F32(w, i)                                                                             \
	QUARTERS(v)                                                                                \
	w[v] = vld1q_f32((const float *)tile + (i) * IG_TILE + v * 4)
	WALK_K(LOAD_F32);
}
TILE_KERNELS(neon_f32, 4)

ALWAYS_INLINE void neon_f16_rows(const uint8_t *tile, int64_t k, const uint8_t *x, int64_t stride,
				 float *out, const int n_rows)
{
#define LOAD_F16(w, i)                                                                             \
	QUARTERS(v)                                                                                \
	w[v] = halves(tile + (i) * 32 + v * 8)
	WALK_K(LOAD_F16);
}
TILE_KERNELS(neon_f16, 4)

/* A 32-bit lane has two steps of k, the first one in its low half. */
ALWAYS_INLINE float32x4_t half_lane(const uint8_t *pair, int64_t i)
{
	uint32x4_t u = vld1q_u32((const uint32_t *)pair);
	u = i % 2 ? vandq_u32(u, vdupq_n_u32(0xffff0000u)) : vshlq_n_u32(u, 16);
	return vreinterpretq_f32_u32(u);
}

ALWAYS_INLINE void neon_bf16_rows(const uint8_t *tile, int64_t k, const uint8_t *x, int64_t stride,
				  float *out, const int n_rows)
{
#define LOAD_BF16(w, i)                                                                            \
	QUARTERS(v)                                                                                \
	w[v] = half_lane(tile + (i) / 2 * 64 + v * 16, i)
	WALK_K(LOAD_BF16);
}
TILE_KERNELS(neon_bf16, 4)

ALWAYS_INLINE void neon_q8_0_f32_rows(const uint8_t *tile, int64_t k, const uint8_t *x,
				      int64_t stride, float *out, const int n_rows)
{
	const int64_t kb = k / 32;
	float32x4_t acc[4][4], w[4], d[4], xs[4];

	zero_all(n_rows, acc);
	for (int64_t b = 0; b < kb; b++) {
		QUARTERS(v)
			d[v] = halves(tile + kb * 512 + b * 32 + v * 8);
		for (int g = 0; g < 8; g++) {
			ROWS(r)
				xs[r] = floats_of(x, stride, r, b * 32 + g * 4);
			for (int i = 0; i < 4; i++) {
				QUARTERS(v) {
					const int8_t *q = (const int8_t *)tile + b * 512 + g * 64;
					int32x4_t n = vreinterpretq_s32_s8(vld1q_s8(q + v * 16));
					n = vshlq_s32(n, vdupq_n_s32(24 - i * 8));
					w[v] = vcvtq_f32_s32(vshrq_n_s32(n, 24));
					w[v] = vmulq_f32(d[v], w[v]);
				}
				add_lane(acc, w, xs, i, n_rows);
			}
		}
	}
	store_all(out, n_rows, acc);
}
TILE_KERNELS(neon_q8_0_f32, 4)

ALWAYS_INLINE void nibbles_f32(const uint8_t *tile, int64_t k, const uint8_t *x, int64_t stride,
			       float *out, const int n_rows, const bool has_min)
{
	const int64_t kb = k / 32;
	const uint8_t *scales = tile + kb * 256, *mins = scales + kb * 32;
	const int32x4_t low = vdupq_n_s32(15), eight = vdupq_n_s32(8);
	float32x4_t acc[4][4], w[4], d[4], m[4], xs[4];

	zero_all(n_rows, acc);
	for (int64_t b = 0; b < kb; b++) {
		QUARTERS(v) {
			d[v] = halves(scales + b * 32 + v * 8);
			m[v] = has_min ? halves(mins + b * 32 + v * 8) : vdupq_n_f32(0.0f);
		}
		for (int g = 0; g < 8; g++) { /* the low halves of four words, then the high ones */
			ROWS(r)
				xs[r] = floats_of(x, stride, r, b * 32 + g * 4);
			for (int i = 0; i < 4; i++) {
				QUARTERS(v) {
					const uint8_t *q = tile + b * 256 + g % 4 * 64 + v * 16;
					int32x4_t n = vreinterpretq_s32_u8(vld1q_u8(q));
					n = vshlq_s32(n, vdupq_n_s32(-(i * 8 + g / 4 * 4)));
					n = vandq_s32(n, low);
					if (!has_min)
						n = vsubq_s32(n, eight);
					w[v] = vmulq_f32(d[v], vcvtq_f32_s32(n));
					if (has_min)
						w[v] = vaddq_f32(w[v], m[v]);
				}
				add_lane(acc, w, xs, i, n_rows);
			}
		}
	}
	store_all(out, n_rows, acc);
}

ALWAYS_INLINE void neon_q4_0_f32_rows(const uint8_t *tile, int64_t k, const uint8_t *x,
				      int64_t stride, float *out, const int n_rows)
{
	nibbles_f32(tile, k, x, stride, out, n_rows, false);
}
TILE_KERNELS(neon_q4_0_f32, 4)

ALWAYS_INLINE void neon_q4_1_f32_rows(const uint8_t *tile, int64_t k, const uint8_t *x,
				      int64_t stride, float *out, const int n_rows)
{
	nibbles_f32(tile, k, x, stride, out, n_rows, true);
}
TILE_KERNELS(neon_q4_1_f32, 4)

ALWAYS_INLINE void neon_q8_m_f32_rows(const uint8_t *tile, int64_t k, const uint8_t *x,
				      int64_t stride, float *out, const int n_rows)
{
	const int64_t kb = k / 32;
	const uint8_t *scales = tile + kb * 512, *mins = scales + kb * 32;
	float32x4_t acc[4][4], w[4], d[4], m[4], xs[4];

	zero_all(n_rows, acc);
	for (int64_t b = 0; b < kb; b++) {
		QUARTERS(v) {
			d[v] = halves(scales + b * 32 + v * 8);
			m[v] = halves(mins + b * 32 + v * 8);
		}
		for (int g = 0; g < 8; g++) {
			ROWS(r)
				xs[r] = floats_of(x, stride, r, b * 32 + g * 4);
			for (int i = 0; i < 4; i++) {
				QUARTERS(v) {
					const uint8_t *q = tile + b * 512 + g * 64 + v * 16;
					uint32x4_t n = vreinterpretq_u32_u8(vld1q_u8(q));
					n = vshlq_u32(n, vdupq_n_s32(24 - i * 8));
					w[v] = vcvtq_f32_u32(vshrq_n_u32(n, 24));
					w[v] = vaddq_f32(vmulq_f32(d[v], w[v]), m[v]);
				}
				add_lane(acc, w, xs, i, n_rows);
			}
		}
	}
	store_all(out, n_rows, acc);
}
TILE_KERNELS(neon_q8_m_f32, 4)
