/* q8_row.h: the numbers after the int8 values of a row in IG_LAYOUT_Q8: of row r of x, of block b of
 * a row of k values. */
#pragma once

#include "ops/cpu/tile_kernels.h"

ALWAYS_INLINE float scale_of(const uint8_t *x, int64_t stride, int r, int64_t k, int64_t b)
{
	return ((const float *)(x + r * stride + k))[b];
}

ALWAYS_INLINE float sum_of(const uint8_t *x, int64_t stride, int r, int64_t k, int64_t b)
{
	return ((const float *)(x + r * stride + k))[k / 32 + b];
}

/* Minus the sum of block b, and of its first 16. */
ALWAYS_INLINE int32_t neg_of(const uint8_t *x, int64_t stride, int r, int64_t k, int64_t b)
{
	return ((const int32_t *)(x + r * stride + k))[k / 32 * 2 + b];
}

ALWAYS_INLINE int32_t neg_half_of(const uint8_t *x, int64_t stride, int r, int64_t k, int64_t b)
{
	return ((const int32_t *)(x + r * stride + k))[k / 32 * 3 + b];
}
