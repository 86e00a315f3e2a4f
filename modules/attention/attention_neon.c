/* attention_neon.c: attention for NEON; the kernel is attention_tile.h. */
#include "exp_coefficients.h"

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#define VL 4
#define TILE_Q 6 /* 24 sums, 4 vectors of K or V, 1 broadcast: 29 of 32 registers */
#define TILE_V 4

typedef float32x4_t vec;

static inline vec vec_zero(void) { return vdupq_n_f32(0); }
static inline vec vec_set1(float x) { return vdupq_n_f32(x); }
static inline vec vec_load(const float *p) { return vld1q_f32(p); }
static inline void vec_store(float *p, vec v) { vst1q_f32(p, v); }
static inline vec vec_add(vec a, vec b) { return vaddq_f32(a, b); }
static inline vec vec_mul(vec a, vec b) { return vmulq_f32(a, b); }
static inline vec vec_max(vec a, vec b) { return vmaxq_f32(a, b); }
static inline vec vec_fma(vec a, vec b, vec c) { return vfmaq_f32(c, a, b); }

static inline vec vec_load_f16(const uint16_t *p)
{
	return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

static inline vec vec_load_i8(const int8_t *p)
{
	int32_t four;

	memcpy(&four, p, sizeof four);
	return vcvtq_f32_s32(
		vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(four))))));
}

static inline vec vec_keep(vec v, int from, int to, vec other)
{
	static const int32_t lanes[VL] = { 0, 1, 2, 3 };
	int32x4_t lane = vld1q_s32(lanes);
	uint32x4_t keep =
		vandq_u32(vcgeq_s32(lane, vdupq_n_s32(from)), vcltq_s32(lane, vdupq_n_s32(to)));
	return vbslq_f32(keep, v, other);
}

static inline vec vec_exp(vec x)
{
	uint32x4_t none = vcltq_f32(x, vdupq_n_f32(EXP_LEAST)); /* false for NaN, which is kept */
	vec n = vrndnq_f32(vmulq_n_f32(x, EXP_LOG2E));
	vec r = vfmsq_f32(x, n, vdupq_n_f32(EXP_LN2_HI));
	vec p = vdupq_n_f32(EXP_C4);
	int32x4_t i;

	r = vfmsq_f32(r, n, vdupq_n_f32(EXP_LN2_LO));
	p = vfmaq_f32(vdupq_n_f32(EXP_C3), p, r);
	p = vfmaq_f32(vdupq_n_f32(EXP_C2), p, r);
	p = vfmaq_f32(vdupq_n_f32(EXP_C1), p, r);
	p = vfmaq_f32(vdupq_n_f32(EXP_C0), p, r);
	p = vfmaq_f32(r, p, vmulq_f32(r, r));
	p = vaddq_f32(p, vdupq_n_f32(1));
	/* n is at least -126 where it is used, so 2^n is an exponent field */
	i = vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127)), 23);
	p = vmulq_f32(p, vreinterpretq_f32_s32(i));
	return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(p), none));
}

/* (0 + 2) + (1 + 3) */
static inline float vec_hsum(vec v)
{
	float32x2_t x = vadd_f32(vget_low_f32(v), vget_high_f32(v));
	return vget_lane_f32(x, 0) + vget_lane_f32(x, 1);
}

static inline float vec_hmax(vec v) { return vmaxvq_f32(v); }

static inline void widen_8(float *y, const uint16_t *h)
{
	vec_store(y, vec_load_f16(h));
	vec_store(y + 4, vec_load_f16(h + 4));
}

#include "attention_tile.h"

/* Four vectors of four: rows become columns. */
INLINE void transpose_4(vec y[4], const vec x[4])
{
	float64x2_t a = vreinterpretq_f64_f32(vtrn1q_f32(x[0], x[1]));
	float64x2_t b = vreinterpretq_f64_f32(vtrn2q_f32(x[0], x[1]));
	float64x2_t c = vreinterpretq_f64_f32(vtrn1q_f32(x[2], x[3]));
	float64x2_t d = vreinterpretq_f64_f32(vtrn2q_f32(x[2], x[3]));

	y[0] = vreinterpretq_f32_f64(vtrn1q_f64(a, c));
	y[1] = vreinterpretq_f32_f64(vtrn1q_f64(b, d));
	y[2] = vreinterpretq_f32_f64(vtrn2q_f64(a, c));
	y[3] = vreinterpretq_f32_f64(vtrn2q_f64(b, d));
}

/* y[j] = 4 tokens of dimension j, of four dimensions, from halves. */
INLINE void f16_lanes_4(vec y[4], const char *src, uint64_t stride)
{
	vec x[4];
	UNROLL for (int i = 0; i < 4; i++) x[i] =
		vec_load_f16((const uint16_t *)(src + (uint64_t)i * stride));
	transpose_4(y, x);
}

static void transpose_f16(float *dst, const char *src, uint64_t stride, int32_t n)
{
	for (int32_t d = 0; d < n; d += 4)
		for (int t = 0; t < IG_BLOCK_TOKENS; t += 4) {
			vec y[4];

			f16_lanes_4(y, src + (uint64_t)t * stride + d * 2, stride);
			UNROLL for (int i = 0; i < 4; i++)
				vec_store(dst + (d + i) * KT_STRIDE + t, y[i]);
		}
}

static void transpose_f32(float *dst, const char *src, uint64_t stride, int32_t n)
{
	for (int32_t d = 0; d < n; d += 4)
		for (int t = 0; t < IG_BLOCK_TOKENS; t += 4) {
			vec x[4], y[4];

			UNROLL for (int i = 0; i < 4; i++) x[i] =
				vec_load((const float *)(src + (uint64_t)(t + i) * stride) + d);
			transpose_4(y, x);
			UNROLL for (int i = 0; i < 4; i++)
				vec_store(dst + (d + i) * KT_STRIDE + t, y[i]);
		}
}

/* 8 tokens of a block: two vectors of scores per query. */
INLINE void scores_half(const int nq, const struct unit *u, const char *src, float *s)
{
	const uint64_t stride = u->layout->k_token_stride;
	vec acc[TILE_Q][2];

	UNROLL for (int i = 0; i < nq; i++) acc[i][0] = acc[i][1] = vec_zero();
	for (int32_t d = 0; d < u->dim; d += 4) {
		vec k[2][4];

		f16_lanes_4(k[0], src + d * 2, stride);
		f16_lanes_4(k[1], src + 4 * stride + d * 2, stride);
		UNROLL for (int j = 0; j < 4; j++) UNROLL for (int i = 0; i < nq; i++)
		{
			vec x = vec_set1(u->q[i][d + j]);

			acc[i][0] = vec_fma(x, k[0][j], acc[i][0]);
			acc[i][1] = vec_fma(x, k[1][j], acc[i][1]);
		}
	}
	UNROLL for (int i = 0; i < nq; i++)
	{
		vec_store(s + i * S_STRIDE, acc[i][0]);
		vec_store(s + i * S_STRIDE + 4, acc[i][1]);
	}
}

#include "attention_eights.h"

uint64_t ig_attention_scratch_neon(const struct ig_op_launch *launch)
{
	return unit_scratch_bytes(launch);
}

void ig_attention_neon(const struct ig_op_launch *launch, int64_t first, int64_t last,
		       void *scratch)
{
	run_units(launch, first, last, scratch);
}

void ig_attention_merge_neon(const struct ig_op_launch *launch, int64_t first, int64_t last,
			     void *scratch)
{
	merge_rows(launch, first, last, scratch);
}
