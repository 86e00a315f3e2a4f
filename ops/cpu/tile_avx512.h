/* tile_avx512.h: what the products with AVX-512 share: operands as vectors. */
#pragma once

#include "ops/cpu/q8_row.h"
#include "ops/cpu/tile_kernels.h"

#include <immintrin.h>

#define ROWS(r) for (int r = 0; r < n_rows; r++)

ALWAYS_INLINE __m512 halves(const uint8_t *p)
{
	return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

ALWAYS_INLINE __m512i four_of(const uint8_t *x, int64_t stride, int r, int64_t at)
{
	int32_t v;
	memcpy(&v, x + r * stride + at, 4);
	return _mm512_set1_epi32(v);
}

ALWAYS_INLINE __m512 float_of(const uint8_t *x, int64_t stride, int r, int64_t i)
{
	return _mm512_set1_ps(((const float *)(x + r * stride))[i]);
}
