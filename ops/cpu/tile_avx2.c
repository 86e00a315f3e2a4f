/*
 * tile_avx2.c: products of tiles with AVX2, FMA and F16C.
 *
 * A tile is two halves of eight outputs, so that the sums of four rows stay in registers.  Products with 8-bit
 * activations: tile_q8_avx2.h.
 */
#include "ops/cpu/tile_q8_avx2.h"

FEW_AND_WIDE(avx2_q8_0, IG_Q8_0)
FEW_AND_WIDE(avx2_q4_0, IG_Q4_0)
FEW_AND_WIDE(avx2_q4_1, IG_Q4_1)
FEW_AND_WIDE(avx2_q8_m, IG_Q8_M)

/* ---- float activations ------------------------------------------------------------ */

ALWAYS_INLINE void avx2_f32_rows(const uint8_t *tile, int64_t k, const uint8_t *x, int64_t stride,
				 float *out, const int n_rows)
{
	__m256 acc[4][2], w[2];

	zero_two(n_rows, acc);
	for (int64_t i = 0; i < k; i++) {
		HALVES(h)
			w[h] = _mm256_load_ps((const float *)tile + i * IG_TILE + h * 8);
		add_two(acc, w, x, stride, i, n_rows);
	}
	store_two(out, n_rows, acc);
}
TILE_KERNELS(avx2_f32, 4)

ALWAYS_INLINE void avx2_f16_rows(const uint8_t *tile, int64_t k, const uint8_t *x, int64_t stride,
				 float *out, const int n_rows)
{
	__m256 acc[4][2], w[2];

	zero_two(n_rows, acc);
	for (int64_t i = 0; i < k; i++) {
		HALVES(h)
			w[h] = halves(tile + i * 32, h);
		add_two(acc, w, x, stride, i, n_rows);
	}
	store_two(out, n_rows, acc);
}
TILE_KERNELS(avx2_f16, 4)

ALWAYS_INLINE void avx2_bf16_rows(const uint8_t *tile, int64_t k, const uint8_t *x, int64_t stride,
				  float *out, const int n_rows)
{
	const __m256i high = _mm256_set1_epi32((int)0xffff0000u);
	__m256 acc[4][2], w[2];

	zero_two(n_rows, acc);
	for (int64_t i = 0; i < k; i += 2) {
		HALVES(h)
			w[h] = _mm256_castsi256_ps(
				_mm256_slli_epi32(bytes(tile + i / 2 * 64, h), 16));
		add_two(acc, w, x, stride, i, n_rows);
		if (i + 1 == k)
			break;
		HALVES(h)
			w[h] = _mm256_castsi256_ps(
				_mm256_and_si256(bytes(tile + i / 2 * 64, h), high));
		add_two(acc, w, x, stride, i + 1, n_rows);
	}
	store_two(out, n_rows, acc);
}
TILE_KERNELS(avx2_bf16, 4)

ALWAYS_INLINE void avx2_q8_0_f32_rows(const uint8_t *tile, int64_t k, const uint8_t *x,
				      int64_t stride, float *out, const int n_rows)
{
	const int64_t kb = k / 32;
	__m256 acc[4][2], w[2], d[2];

	zero_two(n_rows, acc);
	for (int64_t b = 0; b < kb; b++) {
		HALVES(h)
			d[h] = halves(tile + kb * 512 + b * 32, h);
		for (int i = 0; i < 32; i++) {
			HALVES(h) {
				__m256i q = bytes(tile + b * 512 + i / 4 * 64, h);
				q = _mm256_sll_epi32(q, _mm_cvtsi32_si128(24 - i % 4 * 8));
				w[h] = _mm256_cvtepi32_ps(_mm256_srai_epi32(q, 24));
				w[h] = _mm256_mul_ps(d[h], w[h]);
			}
			add_two(acc, w, x, stride, b * 32 + i, n_rows);
		}
	}
	store_two(out, n_rows, acc);
}
TILE_KERNELS(avx2_q8_0_f32, 4)

ALWAYS_INLINE void nibbles_f32(const uint8_t *tile, int64_t k, const uint8_t *x, int64_t stride,
			       float *out, const int n_rows, const bool has_min)
{
	const int64_t kb = k / 32;
	const uint8_t *scales = tile + kb * 256, *mins = scales + kb * 32;
	const __m256i low = _mm256_set1_epi32(15), eight = _mm256_set1_epi32(8);
	__m256 acc[4][2], w[2], d[2], m[2];

	zero_two(n_rows, acc);
	for (int64_t b = 0; b < kb; b++) {
		HALVES(h) {
			d[h] = halves(scales + b * 32, h);
			m[h] = has_min ? halves(mins + b * 32, h) : _mm256_setzero_ps();
		}
		for (int i = 0; i < 32; i++) {
			HALVES(h) {
				__m256i q = bytes(tile + b * 256 + i % 16 / 4 * 64, h);
				q = _mm256_srl_epi32(q, _mm_cvtsi32_si128(i % 4 * 8 + i / 16 * 4));
				q = _mm256_and_si256(q, low);
				if (!has_min)
					q = _mm256_sub_epi32(q, eight);
				w[h] = _mm256_mul_ps(d[h], _mm256_cvtepi32_ps(q));
				if (has_min)
					w[h] = _mm256_add_ps(w[h], m[h]);
			}
			add_two(acc, w, x, stride, b * 32 + i, n_rows);
		}
	}
	store_two(out, n_rows, acc);
}

ALWAYS_INLINE void avx2_q4_0_f32_rows(const uint8_t *tile, int64_t k, const uint8_t *x,
				      int64_t stride, float *out, const int n_rows)
{
	nibbles_f32(tile, k, x, stride, out, n_rows, false);
}
TILE_KERNELS(avx2_q4_0_f32, 4)

ALWAYS_INLINE void avx2_q4_1_f32_rows(const uint8_t *tile, int64_t k, const uint8_t *x,
				      int64_t stride, float *out, const int n_rows)
{
	nibbles_f32(tile, k, x, stride, out, n_rows, true);
}
TILE_KERNELS(avx2_q4_1_f32, 4)

ALWAYS_INLINE void avx2_q8_m_f32_rows(const uint8_t *tile, int64_t k, const uint8_t *x,
				      int64_t stride, float *out, const int n_rows)
{
	const int64_t kb = k / 32;
	const uint8_t *scales = tile + kb * 512, *mins = scales + kb * 32;
	const __m256i byte = _mm256_set1_epi32(255);
	__m256 acc[4][2], w[2], d[2], m[2];

	zero_two(n_rows, acc);
	for (int64_t b = 0; b < kb; b++) {
		HALVES(h) {
			d[h] = halves(scales + b * 32, h);
			m[h] = halves(mins + b * 32, h);
		}
		for (int i = 0; i < 32; i++) {
			HALVES(h) {
				__m256i q = bytes(tile + b * 512 + i / 4 * 64, h);
				q = _mm256_srl_epi32(q, _mm_cvtsi32_si128(i % 4 * 8));
				w[h] = _mm256_cvtepi32_ps(_mm256_and_si256(q, byte));
				w[h] = _mm256_add_ps(_mm256_mul_ps(d[h], w[h]), m[h]);
			}
			add_two(acc, w, x, stride, b * 32 + i, n_rows);
		}
	}
	store_two(out, n_rows, acc);
}
TILE_KERNELS(avx2_q8_m_f32, 4)
