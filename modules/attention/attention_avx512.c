/* attention_avx512.c: attention for AVX-512; the kernel is attention_tile.h. */
#include "exp_coefficients.h"

#include <immintrin.h>
#include <stdint.h>

#define VL 16
#define TILE_Q 6 /* 24 sums, 4 vectors of K or V, 1 broadcast: 29 of 32 registers */
#define TILE_V 4

typedef __m512 vec;

static inline vec vec_zero(void) { return _mm512_setzero_ps(); }
static inline vec vec_set1(float x) { return _mm512_set1_ps(x); }
static inline vec vec_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void vec_store(float *p, vec v) { _mm512_storeu_ps(p, v); }
static inline vec vec_add(vec a, vec b) { return _mm512_add_ps(a, b); }
static inline vec vec_mul(vec a, vec b) { return _mm512_mul_ps(a, b); }
static inline vec vec_max(vec a, vec b) { return _mm512_max_ps(a, b); }
static inline vec vec_fma(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }

static inline vec vec_load_f16(const uint16_t *p)
{
	return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

static inline vec vec_load_i8(const int8_t *p)
{
	return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}

static inline vec vec_keep(vec v, int from, int to, vec other)
{
	uint32_t below_to = to >= VL ? 0xffffu : (1u << to) - 1;
	uint32_t below_from = from <= 0 ? 0 : (1u << from) - 1;
	return _mm512_mask_mov_ps(other, (__mmask16)(below_to & ~below_from), v);
}

static inline vec vec_exp(vec x)
{
	/* "not less than", so that NaN is kept */
	__mmask16 some = _mm512_cmp_ps_mask(x, _mm512_set1_ps(EXP_LEAST), _CMP_NLT_UQ);
	vec n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(EXP_LOG2E)),
				     _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
	vec r = _mm512_fnmadd_ps(n, _mm512_set1_ps(EXP_LN2_HI), x);
	vec p = _mm512_set1_ps(EXP_C4);

	r = _mm512_fnmadd_ps(n, _mm512_set1_ps(EXP_LN2_LO), r);
	p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_C3));
	p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_C2));
	p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_C1));
	p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(EXP_C0));
	p = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r);
	p = _mm512_add_ps(p, _mm512_set1_ps(1));
	return _mm512_maskz_scalef_ps(some, p, n);
}

/* The trees of reductions are explicit: compilers may use different ones. */
static inline float vec_hsum(vec v)
{
	__m256 x = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
	__m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
	y = _mm_add_ps(y, _mm_movehl_ps(y, y));
	return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}

static inline float vec_hmax(vec v)
{
	__m256 x = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
	__m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
	y = _mm_max_ps(y, _mm_movehl_ps(y, y));
	return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
}

static inline void widen_8(float *y, const uint16_t *h)
{
	_mm256_storeu_ps(y, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)h)));
}

#include "attention_tile.h"
#include "attention_x86.h"

/* 16 tokens' first 32 dimensions, as halves: x[i] holds dimension i of all tokens
 * below and i + 8 above, x[8 + i] holds i + 16 and i + 24.  Each 128-bit lane holds 8
 * dimensions and is transposed separately, 8 tokens at a time; then the two halves of
 * a dimension's tokens are joined. */
INLINE void f16_lanes_32(__m512i x[16], const char *src, uint64_t stride)
{
	const __m512i low = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
	const __m512i high = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
	__m512i r[16];

	UNROLL for (int h = 0; h < 16; h += 8)
	{
		UNROLL for (int i = h; i < h + 8; i++) r[i] =
			_mm512_loadu_si512(src + (uint64_t)i * stride);
		UNROLL for (int i = h; i < h + 8; i += 2)
		{
			x[i] = _mm512_unpacklo_epi16(r[i], r[i + 1]);
			x[i + 1] = _mm512_unpackhi_epi16(r[i], r[i + 1]);
		}
		UNROLL for (int i = h; i < h + 8; i += 4)
		{
			r[i] = _mm512_unpacklo_epi32(x[i], x[i + 2]);
			r[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 2]);
			r[i + 2] = _mm512_unpacklo_epi32(x[i + 1], x[i + 3]);
			r[i + 3] = _mm512_unpackhi_epi32(x[i + 1], x[i + 3]);
		}
		UNROLL for (int i = 0; i < 4; i++)
		{
			x[h + 2 * i] = _mm512_unpacklo_epi64(r[h + i], r[h + i + 4]);
			x[h + 2 * i + 1] = _mm512_unpackhi_epi64(r[h + i], r[h + i + 4]);
		}
	}
	UNROLL for (int i = 0; i < 8; i++)
	{
		__m512i a = x[i], b = x[i + 8];
		x[i] = _mm512_permutex2var_epi64(a, low, b);
		x[i + 8] = _mm512_permutex2var_epi64(a, high, b);
	}
}

/* Dimension d of the result of f16_lanes_32, as floats. */
INLINE vec f16_dimension(const __m512i x[16], const int d)
{
	const __m512i v = x[d / 16 * 8 + d % 8];
	return _mm512_cvtph_ps(d & 8 ? _mm512_extracti64x4_epi64(v, 1) : _mm512_castsi512_si256(v));
}

static void transpose_f16(float *dst, const char *src, uint64_t stride, int32_t n)
{
	int32_t d = 0;

	for (; d + 32 <= n; d += 32) {
		__m512i x[16];
		f16_lanes_32(x, src + d * 2, stride);
		UNROLL_32 for (int i = 0; i < 32; i++)
			vec_store(dst + (d + i) * KT_STRIDE, f16_dimension(x, i));
	}
	for (; d < n; d += 8)
		for (int t = 0; t < IG_BLOCK_TOKENS; t += 8)
			f16_tile_8(dst + d * KT_STRIDE + t, src + (uint64_t)t * stride + d * 2,
				   stride);
}

INLINE void scores_block(const int nq, const struct unit *u, const char *block, float *s)
{
	vec acc[TILE_Q];

	UNROLL for (int i = 0; i < nq; i++) acc[i] = vec_zero();
	for (int32_t d = 0; d < u->dim; d += 32) {
		__m512i x[16];
		f16_lanes_32(x, block + d * 2, u->layout->k_token_stride);
		UNROLL_32 for (int j = 0; j < 32; j++)
		{
			vec k = f16_dimension(x, j);

			UNROLL for (int i = 0; i < nq; i++) acc[i] =
				vec_fma(vec_set1(u->q[i][d + j]), k, acc[i]);
		}
	}
	UNROLL for (int i = 0; i < nq; i++) vec_store(s + i * S_STRIDE, acc[i]);
}

static int scores_in_place(const struct unit *u, int nq, const char *block, float *s)
{
	if (u->dim % 32)
		return 0;
	switch (nq) {
	case 1: scores_block(1, u, block, s); break;
	case 2: scores_block(2, u, block, s); break;
	case 3: scores_block(3, u, block, s); break;
	case 4: scores_block(4, u, block, s); break;
	case 5: scores_block(5, u, block, s); break;
	case 6: scores_block(6, u, block, s); break;
	default: return 0;
	}
	return 1;
}

uint64_t ig_attention_scratch_avx512(const struct ig_op_launch *launch)
{
	return unit_scratch_bytes(launch);
}

void ig_attention_avx512(const struct ig_op_launch *launch, int64_t first, int64_t last,
			 void *scratch)
{
	run_units(launch, first, last, scratch);
}

void ig_attention_merge_avx512(const struct ig_op_launch *launch, int64_t first, int64_t last,
			       void *scratch)
{
	merge_rows(launch, first, last, scratch);
}
