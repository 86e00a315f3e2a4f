/* tile_avx2.h: what the products with AVX2 share: operands as vectors. */
#pragma once

#include "ops/cpu/tile_kernels.h"

#include <immintrin.h>

#define ROWS(r) for (int r = 0; r < n_rows; r++)
#define HALVES(h) for (int h = 0; h < 2; h++)

/* Eight scales of a block, of outputs 8h … */
ALWAYS_INLINE __m256 halves(const uint8_t *p, int h)
{
	return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + h * 16)));
}

ALWAYS_INLINE __m256i bytes(const uint8_t *p, int h)
{
	return _mm256_load_si256((const __m256i *)(p + h * 32));
}

ALWAYS_INLINE __m256i four_of(const uint8_t *x, int64_t stride, int r, int64_t at)
{
	int32_t v;
	memcpy(&v, x + r * stride + at, 4);
	return _mm256_set1_epi32(v);
}

ALWAYS_INLINE __m256 scale_of(const uint8_t *x, int64_t stride, int r, int64_t k, int64_t b)
{
	return _mm256_set1_ps(((const float *)(x + r * stride + k))[b]);
}

ALWAYS_INLINE __m256 sum_of(const uint8_t *x, int64_t stride, int r, int64_t k, int64_t b)
{
	return _mm256_set1_ps(((const float *)(x + r * stride + k))[k / 32 + b]);
}

ALWAYS_INLINE __m256i neg_of(const uint8_t *x, int64_t stride, int r, int64_t k, int64_t b)
{
	return _mm256_set1_epi32(((const int32_t *)(x + r * stride + k))[k / 32 * 2 + b]);
}

ALWAYS_INLINE __m256i dot4(__m256i acc, __m256i u, __m256i s)
{
	__m256i pairs = _mm256_maddubs_epi16(u, s);
	return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

/* Keeps a sum in its register: gcc makes a tree of a chain of additions, and spills its leaves. */
ALWAYS_INLINE __m256i pinned(__m256i v)
{
	__asm__("" : "+x"(v));
	return v;
}

/* Sums of pairs of u s in 16 bits; first: the sum begins.  As many may be added as 16 bits can hold. */
ALWAYS_INLINE __m256i pairs_of(bool first, __m256i pairs, __m256i u, __m256i s)
{
	__m256i p = _mm256_maddubs_epi16(u, s);
	return pinned(first ? p : _mm256_add_epi16(pairs, p));
}

ALWAYS_INLINE __m256i add_pairs(__m256i acc, __m256i pairs)
{
	return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

/* Minus the sum of the first 16 of block b. */
ALWAYS_INLINE __m256i neg_half_of(const uint8_t *x, int64_t stride, int r, int64_t k, int64_t b)
{
	return _mm256_set1_epi32(((const int32_t *)(x + r * stride + k))[k / 32 * 3 + b]);
}

ALWAYS_INLINE __m256 float_of(const uint8_t *x, int64_t stride, int r, int64_t i)
{
	return _mm256_set1_ps(((const float *)(x + r * stride))[i]);
}

ALWAYS_INLINE void store_two(float *out, int n_rows, __m256 (*acc)[2])
{
	ROWS(r)
		HALVES(h)
			_mm256_storeu_ps(out + r * IG_TILE + h * 8, acc[r][h]);
}

ALWAYS_INLINE void zero_two(int n_rows, __m256 (*acc)[2])
{
	ROWS(r)
		HALVES(h)
			acc[r][h] = _mm256_setzero_ps();
}

/* acc += w * x[i] for both halves. */
ALWAYS_INLINE void add_two(__m256 (*acc)[2], const __m256 *w, const uint8_t *x, int64_t stride,
			   int64_t i, const int n_rows)
{
	ROWS(r) {
		__m256 v = float_of(x, stride, r, i);
		HALVES(h)
			acc[r][h] = _mm256_fmadd_ps(w[h], v, acc[r][h]);
	}
}
