/* attention_avx2.c: attention for AVX2 with FMA and F16C; the kernel is attention_tile.h. */
#include "exp_coefficients.h"

#include <immintrin.h>
#include <stdint.h>

#define VL 8
#define TILE_Q 6 /* 12 sums, 2 vectors of K or V, 1 broadcast: 15 of 16 registers */
#define TILE_V 2

typedef __m256 vec;

static inline vec vec_zero(void) { return _mm256_setzero_ps(); }
static inline vec vec_set1(float x) { return _mm256_set1_ps(x); }
static inline vec vec_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void vec_store(float *p, vec v) { _mm256_storeu_ps(p, v); }
static inline vec vec_add(vec a, vec b) { return _mm256_add_ps(a, b); }
static inline vec vec_mul(vec a, vec b) { return _mm256_mul_ps(a, b); }
static inline vec vec_max(vec a, vec b) { return _mm256_max_ps(a, b); }
static inline vec vec_fma(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }

static inline vec vec_load_f16(const uint16_t *p)
{
	return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

static inline vec vec_load_i8(const int8_t *p)
{
	return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

static inline vec vec_keep(vec v, int from, int to, vec other)
{
	const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
	__m256i below_from = _mm256_cmpgt_epi32(_mm256_set1_epi32(from), lane);
	__m256i below_to = _mm256_cmpgt_epi32(_mm256_set1_epi32(to), lane);
	return _mm256_blendv_ps(other, v,
				_mm256_castsi256_ps(_mm256_andnot_si256(below_from, below_to)));
}

static inline vec vec_exp(vec x)
{
	/* "not less than", so that NaN is kept */
	vec some = _mm256_cmp_ps(x, _mm256_set1_ps(EXP_LEAST), _CMP_NLT_UQ);
	__m256i i = _mm256_cvtps_epi32(_mm256_mul_ps(x, _mm256_set1_ps(EXP_LOG2E)));
	vec n = _mm256_cvtepi32_ps(i);
	vec r = _mm256_fnmadd_ps(n, _mm256_set1_ps(EXP_LN2_HI), x);
	vec p = _mm256_set1_ps(EXP_C4);

	r = _mm256_fnmadd_ps(n, _mm256_set1_ps(EXP_LN2_LO), r);
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_C3));
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_C2));
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_C1));
	p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(EXP_C0));
	p = _mm256_fmadd_ps(p, _mm256_mul_ps(r, r), r);
	p = _mm256_add_ps(p, _mm256_set1_ps(1));
	/* n is at least -126 where it is used, so 2^n is an exponent field */
	i = _mm256_slli_epi32(_mm256_add_epi32(i, _mm256_set1_epi32(127)), 23);
	return _mm256_and_ps(some, _mm256_mul_ps(p, _mm256_castsi256_ps(i)));
}

static inline float vec_hsum(vec v)
{
	__m128 y = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
	y = _mm_add_ps(y, _mm_movehl_ps(y, y));
	return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}

static inline float vec_hmax(vec v)
{
	__m128 y = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
	y = _mm_max_ps(y, _mm_movehl_ps(y, y));
	return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
}

static inline void widen_8(float *y, const uint16_t *h)
{
	_mm256_storeu_ps(y, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)h)));
}

#include "attention_tile.h"
#include "attention_x86.h"

static void transpose_f16(float *dst, const char *src, uint64_t stride, int32_t n)
{
	for (int32_t d = 0; d < n; d += 8)
		for (int t = 0; t < IG_BLOCK_TOKENS; t += 8)
			f16_tile_8(dst + d * KT_STRIDE + t, src + (uint64_t)t * stride + d * 2,
				   stride);
}

/* 8 tokens of the block. */
INLINE void scores_half(const int nq, const struct unit *u, const char *src, float *s)
{
	vec acc[TILE_Q];

	UNROLL for (int i = 0; i < nq; i++) acc[i] = vec_zero();
	for (int32_t d = 0; d < u->dim; d += 8) {
		__m128i x[8];
		f16_lanes_8(x, src + d * 2, u->layout->k_token_stride);
		UNROLL for (int j = 0; j < 8; j++)
		{
			vec k = _mm256_cvtph_ps(x[j]);

			UNROLL for (int i = 0; i < nq; i++) acc[i] =
				vec_fma(vec_set1(u->q[i][d + j]), k, acc[i]);
		}
	}
	UNROLL for (int i = 0; i < nq; i++) vec_store(s + i * S_STRIDE, acc[i]);
}

#include "attention_eights.h"

uint64_t ig_attention_scratch_avx2(const struct ig_op_launch *launch)
{
	return unit_scratch_bytes(launch);
}

void ig_attention_avx2(const struct ig_op_launch *launch, int64_t first, int64_t last,
		       void *scratch)
{
	run_units(launch, first, last, scratch);
}

void ig_attention_merge_avx2(const struct ig_op_launch *launch, int64_t first, int64_t last,
			     void *scratch)
{
	merge_rows(launch, first, last, scratch);
}
