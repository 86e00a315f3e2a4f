/*
 * pack_x86.h: a block of 32 activations in vectors of AVX-512, or of AVX2: what rows.c has as plain loops, with
 * the same bits.  Compilers make six reductions across lanes of these loops, or scalars; here there are one and a
 * half.
 */
#pragma once

#include <immintrin.h>

/* The largest of eight. */
static inline uint32_t largest_of(__m256i a)
{
	__m128i b = _mm_max_epu32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));

	b = _mm_max_epu32(b, _mm_shuffle_epi32(b, 0x4e));
	b = _mm_max_epu32(b, _mm_shuffle_epi32(b, 0xb1));
	return (uint32_t)_mm_cvtsi128_si32(b);
}

/* Write the codes of a block; sum: of either half. */
static inline void store_codes(__m256i c, int8_t *q, int32_t sum[2])
{
	/* sums of eight bytes, each 128 more than the code */
	__m256i s = _mm256_sad_epu8(_mm256_xor_si256(c, _mm256_set1_epi8((char)0x80)),
				    _mm256_setzero_si256());

	_mm256_storeu_si256((__m256i *)(void *)q, c);
	s = _mm256_add_epi64(s, _mm256_shuffle_epi32(s, 0x4e));
	sum[0] = _mm_cvtsi128_si32(_mm256_castsi256_si128(s)) - 16 * 128;
	sum[1] = _mm_cvtsi128_si32(_mm256_extracti128_si256(s, 1)) - 16 * 128;
}

#if defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)

static inline __m512i magnitudes(const float *x)
{
	return _mm512_and_si512(_mm512_loadu_si512(x), _mm512_set1_epi32(0x7fffffff));
}

/* Bits of the largest magnitude of a block. */
static inline uint32_t largest(const float *x)
{
	const __m512i m = _mm512_max_epu32(magnitudes(x), magnitudes(x + 16));

	return largest_of(
		_mm256_max_epu32(_mm512_castsi512_si256(m), _mm512_extracti64x4_epi64(m, 1)));
}

/* Which of 16 values are so large that a value with these bits is no outlier beside them. */
static inline uint32_t near_to_16(const float *x, float top)
{
	const __m512 m = _mm512_castsi512_ps(magnitudes(x));

	return _mm512_cmp_ps_mask(_mm512_mul_ps(m, _mm512_set1_ps(OUTLIER)), _mm512_set1_ps(top),
				  _CMP_GE_OQ);
}

/* The same of a block. */
static inline uint32_t near_to(const float *x, float top)
{
	return near_to_16(x, top) | near_to_16(x + 16, top) << 16;
}

/* Codes of 16 values; adding and taking off ROUNDER rounds. */
static inline __m128i codes_16(const float *x, __m512 inv)
{
	const __m512 v =
		_mm512_add_ps(_mm512_mul_ps(_mm512_loadu_ps(x), inv), _mm512_set1_ps(ROUNDER));

	return _mm512_cvtepi32_epi8(
		_mm512_sub_epi32(_mm512_castps_si512(v), _mm512_set1_epi32(0x4b400000)));
}

/* The codes of a finite block.  They are at most 127, so their bytes are all of them. */
static inline __m256i codes_32(const float *x, float inv)
{
	const __m512 by = _mm512_set1_ps(inv);

	return _mm256_inserti128_si256(_mm256_castsi128_si256(codes_16(x, by)),
				       codes_16(x + 16, by), 1);
}

#else

static inline __m256i magnitudes(const float *x)
{
	return _mm256_and_si256(_mm256_loadu_si256((const __m256i *)(const void *)x),
				_mm256_set1_epi32(0x7fffffff));
}

/* Bits of the largest magnitude of a block. */
static inline uint32_t largest(const float *x)
{
	return largest_of(
		_mm256_max_epu32(_mm256_max_epu32(magnitudes(x), magnitudes(x + 8)),
				 _mm256_max_epu32(magnitudes(x + 16), magnitudes(x + 24))));
}

/* Which values of a block are so large that a value with these bits is no outlier beside them. */
static inline uint32_t near_to(const float *x, float top)
{
	uint32_t near = 0;

	for (int i = 0; i < 32; i += 8) {
		const __m256 m = _mm256_mul_ps(_mm256_castsi256_ps(magnitudes(x + i)),
					       _mm256_set1_ps(OUTLIER));
		near |= (uint32_t)_mm256_movemask_ps(
				_mm256_cmp_ps(m, _mm256_set1_ps(top), _CMP_GE_OQ))
			<< i;
	}
	return near;
}

/* Codes of eight values; adding and taking off ROUNDER rounds. */
static inline __m256i codes_8(const float *x, __m256 inv)
{
	const __m256 v =
		_mm256_add_ps(_mm256_mul_ps(_mm256_loadu_ps(x), inv), _mm256_set1_ps(ROUNDER));

	return _mm256_sub_epi32(_mm256_castps_si256(v), _mm256_set1_epi32(0x4b400000));
}

/* The codes of a finite block.  They are at most 127, which packing does not change; it takes turns with lanes. */
static inline __m256i codes_32(const float *x, float inv)
{
	const __m256 by = _mm256_set1_ps(inv);
	const __m256i turns = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
	const __m256i c =
		_mm256_packs_epi16(_mm256_packs_epi32(codes_8(x, by), codes_8(x + 8, by)),
				   _mm256_packs_epi32(codes_8(x + 16, by), codes_8(x + 24, by)));

	return _mm256_permutevar8x32_epi32(c, turns);
}

#endif

/* Whether the largest value of a block, with these bits, is an outlier: no other one is near. */
static inline bool has_outlier(const float *x, uint32_t top)
{
	const uint32_t near = near_to(x, ig_f32_from_bits(top));

	return top < 0x7f800000u && near && !(near & (near - 1));
}

/* The codes of a finite block; sum: of either half. */
static inline void codes(const float *x, float inv, int8_t *q, int32_t sum[2])
{
	store_codes(codes_32(x, inv), q, sum);
}
