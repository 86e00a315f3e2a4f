/*
 * attention_x86.h: what the AVX2 and AVX-512 kernels of attention share:
 * transposing 8 tokens at a time.  Included after attention_tile.h.
 */
#pragma once

/* x[d]: dimension d of 8 tokens in float16, for the first 8 dimensions. */
INLINE void f16_lanes_8(__m128i x[8], const char *src, uint64_t stride)
{
	__m128i r[8];

	UNROLL for (int i = 0; i < 8; i++) r[i] =
		_mm_loadu_si128((const __m128i *)(src + (uint64_t)i * stride));
	UNROLL for (int i = 0; i < 8; i += 2)
	{
		x[i] = _mm_unpacklo_epi16(r[i], r[i + 1]);
		x[i + 1] = _mm_unpackhi_epi16(r[i], r[i + 1]);
	}
	UNROLL for (int i = 0; i < 8; i += 4)
	{
		r[i] = _mm_unpacklo_epi32(x[i], x[i + 2]);
		r[i + 1] = _mm_unpackhi_epi32(x[i], x[i + 2]);
		r[i + 2] = _mm_unpacklo_epi32(x[i + 1], x[i + 3]);
		r[i + 3] = _mm_unpackhi_epi32(x[i + 1], x[i + 3]);
	}
	UNROLL for (int i = 0; i < 4; i++)
	{
		x[2 * i] = _mm_unpacklo_epi64(r[i], r[i + 4]);
		x[2 * i + 1] = _mm_unpackhi_epi64(r[i], r[i + 4]);
	}
}

/* dst[d * KT_STRIDE + t] = src[t][d] for 8 tokens and 8 dimensions. */
INLINE void f16_tile_8(float *dst, const char *src, uint64_t stride)
{
	__m128i x[8];
	f16_lanes_8(x, src, stride);
	UNROLL for (int i = 0; i < 8; i++)
		_mm256_storeu_ps(dst + i * KT_STRIDE, _mm256_cvtph_ps(x[i]));
}

/* dst[d * KT_STRIDE + t] = src[t][d] for 16 tokens of n floats. */
static void transpose_f32(float *dst, const char *src, uint64_t stride, int32_t n)
{
	for (int t = 0; t < IG_BLOCK_TOKENS; t += 8) {
		for (int32_t d = 0; d < n; d += 8) {
			__m256 r[8], x[8];
			UNROLL for (int i = 0; i < 8; i++) r[i] = _mm256_loadu_ps(
				(const float *)(src + (uint64_t)(t + i) * stride) + d);
			UNROLL for (int i = 0; i < 8; i += 2)
			{
				x[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
				x[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
			}
			UNROLL for (int i = 0; i < 8; i += 4)
			{
				r[i] = _mm256_shuffle_ps(x[i], x[i + 2], 0x44);
				r[i + 1] = _mm256_shuffle_ps(x[i], x[i + 2], 0xee);
				r[i + 2] = _mm256_shuffle_ps(x[i + 1], x[i + 3], 0x44);
				r[i + 3] = _mm256_shuffle_ps(x[i + 1], x[i + 3], 0xee);
			}
			UNROLL for (int i = 0; i < 4; i++)
			{
				float *y = dst + (d + i) * KT_STRIDE + t;
				_mm256_storeu_ps(y, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
				_mm256_storeu_ps(y + 4 * KT_STRIDE,
						 _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
			}
		}
	}
}
