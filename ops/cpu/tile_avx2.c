/*
 * tile_avx2.c: products of tiles with AVX2, FMA and F16C.
 *
 * A tile is computed in two halves of eight outputs, so that the sums of four rows stay in
 * registers.  8-bit products use vpmaddubsw, whose 16-bit pair sums cannot
 * saturate here: nibbles are at most 15, and signed weights enter as magnitudes
 * (at most 128) with their signs moved to the activations (at most 127):
 * 2 * 128 * 127 < 32768.  Eight pairs of nibbles are added in 16 bits: 8 * 2 * 15 * 127 < 32768.
 * More than four rows: tile_wide_avx2.h.
 */
#include "ops/cpu/tile_wide_avx2.h"

ALWAYS_INLINE void avx2_q8_0_rows(const uint8_t *tile, int64_t k, const uint8_t *x, int64_t stride,
				  float *out, const int n_rows)
{
	const int64_t kb = k / 32;

	HALVES(h) {
		__m256 acc[4];
		__m256i dot[4];
		ROWS(r)
			acc[r] = _mm256_setzero_ps();
		for (int64_t b = 0; b < kb; b++) {
			__m256 d = halves(tile + kb * 512 + b * 32, h);
			if (h == 0)
				fetch_ahead(IG_Q8_0, tile, k, b);
			ROWS(r)
				dot[r] = _mm256_setzero_si256();
			for (int g = 0; g < 8; g++) {
				__m256i q = bytes(tile + b * 512 + g * 64, h);
				__m256i mag = _mm256_abs_epi8(q);
				ROWS(r) {
					__m256i v = four_of(x, stride, r, b * 32 + g * 4);
					dot[r] = dot4(dot[r], mag, _mm256_sign_epi8(v, q));
				}
			}
			ROWS(r)
				acc[r] = _mm256_fmadd_ps(
					_mm256_cvtepi32_ps(dot[r]),
					_mm256_mul_ps(d, scale_of(x, stride, r, k, b)), acc[r]);
		}
		ROWS(r)
			_mm256_storeu_ps(out + r * IG_TILE + h * 8, acc[r]);
	}
}
WIDE(avx2_q8_0, IG_Q8_0)

ALWAYS_INLINE void nibbles(const uint8_t *tile, int64_t k, const uint8_t *x, int64_t stride,
			   float *out, const int n_rows, const bool has_min)
{
	const int64_t kb = k / 32;
	const uint8_t *scales = tile + kb * 256, *mins = scales + kb * 32;
	const __m256i low = _mm256_set1_epi8(15);

	HALVES(h) {
		__m256 acc[4];
		__m256i pairs[4];
		ROWS(r)
			acc[r] = _mm256_setzero_ps();
		for (int64_t b = 0; b < kb; b++) {
			__m256 d = halves(scales + b * 32, h);
			if (h == 0)
				fetch_ahead(has_min ? IG_Q4_1 : IG_Q4_0, tile, k, b);
			for (int g = 0; g < 4; g++) {
				__m256i q = bytes(tile + b * 256 + g * 64, h);
				__m256i lo = _mm256_and_si256(q, low);
				__m256i hi = _mm256_and_si256(_mm256_srli_epi16(q, 4), low);
				int64_t at = b * 32 + g * 4;
				ROWS(r)
					pairs[r] = pairs_of(g == 0, pairs[r], lo,
							    four_of(x, stride, r, at));
				ROWS(r)
					pairs[r] = pairs_of(false, pairs[r], hi,
							    four_of(x, stride, r, at + 16));
			}
			ROWS(r) {
				__m256i dot = _mm256_madd_epi16(pairs[r], _mm256_set1_epi16(1));
				if (!has_min)
					dot = _mm256_add_epi32(
						dot,
						_mm256_slli_epi32(neg_of(x, stride, r, k, b), 3));
				acc[r] = _mm256_fmadd_ps(
					_mm256_cvtepi32_ps(dot),
					_mm256_mul_ps(d, scale_of(x, stride, r, k, b)), acc[r]);
			}
			if (has_min) {
				__m256 m = halves(mins + b * 32, h);
				ROWS(r)
					acc[r] = _mm256_fmadd_ps(m, sum_of(x, stride, r, k, b),
								 acc[r]);
			}
		}
		ROWS(r)
			_mm256_storeu_ps(out + r * IG_TILE + h * 8, acc[r]);
	}
}

ALWAYS_INLINE void avx2_q4_0_rows(const uint8_t *tile, int64_t k, const uint8_t *x, int64_t stride,
				  float *out, const int n_rows)
{
	nibbles(tile, k, x, stride, out, n_rows, false);
}
WIDE(avx2_q4_0, IG_Q4_0)

ALWAYS_INLINE void avx2_q4_1_rows(const uint8_t *tile, int64_t k, const uint8_t *x, int64_t stride,
				  float *out, const int n_rows)
{
	nibbles(tile, k, x, stride, out, n_rows, true);
}
WIDE(avx2_q4_1, IG_Q4_1)

/* 128 is subtracted from codes of 0 to 255 to make them signed; the row's n = -sum(q) corrects
 * this exactly. */
ALWAYS_INLINE void avx2_q8_m_rows(const uint8_t *tile, int64_t k, const uint8_t *x, int64_t stride,
				  float *out, const int n_rows)
{
	const int64_t kb = k / 32;
	const uint8_t *scales = tile + kb * 512, *mins = scales + kb * 32;
	const __m256i flip = _mm256_set1_epi8((char)0x80);

	HALVES(h) {
		__m256 acc[4];
		__m256i dot[4];
		ROWS(r)
			acc[r] = _mm256_setzero_ps();
		for (int64_t b = 0; b < kb; b++) {
			__m256 d = halves(scales + b * 32, h), m = halves(mins + b * 32, h);
			if (h == 0)
				fetch_ahead(IG_Q8_M, tile, k, b);
			ROWS(r)
				dot[r] = _mm256_sub_epi32(
					_mm256_setzero_si256(),
					_mm256_slli_epi32(neg_of(x, stride, r, k, b), 7));
			for (int g = 0; g < 8; g++) {
				__m256i q =
					_mm256_xor_si256(bytes(tile + b * 512 + g * 64, h), flip);
				__m256i mag = _mm256_abs_epi8(q);
				ROWS(r) {
					__m256i v = four_of(x, stride, r, b * 32 + g * 4);
					dot[r] = dot4(dot[r], mag, _mm256_sign_epi8(v, q));
				}
			}
			ROWS(r) {
				__m256 s = _mm256_mul_ps(d, scale_of(x, stride, r, k, b));
				acc[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[r]), s, acc[r]);
				acc[r] = _mm256_fmadd_ps(m, sum_of(x, stride, r, k, b), acc[r]);
			}
		}
		ROWS(r)
			_mm256_storeu_ps(out + r * IG_TILE + h * 8, acc[r]);
	}
}
WIDE(avx2_q8_m, IG_Q8_M)

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
