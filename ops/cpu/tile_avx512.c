/*
 * tile_avx512.c: products of tiles with AVX-512 (F, BW, VL, DQ, VNNI).
 *
 * One vector is the tile's sixteen outputs.  8-bit products: vpdpbusd takes
 * weights as unsigned bytes from a register and four activations broadcast from
 * memory, eight k-steps of four per block; the sums inside a block are integers and
 * exact, then one fused multiply-add per block with both scales, k ascending.
 * An offset makes signed weights unsigned; the row's n = -sum(q) corrects this, also exactly.
 */
#include "ops/cpu/tile_avx512.h"

/* ---- 8-bit activations ---------------------------------------------------------- */

ALWAYS_INLINE void avx512_q8_0_rows(const uint8_t *tile, int64_t k, const uint8_t *x,
				    int64_t stride, float *out, const int n_rows)
{
	const int64_t kb = k / 32;
	const uint8_t *scales = tile + kb * 512;
	const __m512i flip = _mm512_set1_epi8((char)0x80);
	__m512 acc[8];
	__m512i dot[8];

	ROWS(r)
		acc[r] = _mm512_setzero_ps();
	for (int64_t b = 0; b < kb; b++) {
		__m512 d = halves(scales + b * 32);
		fetch_ahead(IG_Q8_0, tile, k, b);
		ROWS(r)
			dot[r] = _mm512_set1_epi32(neg_of(x, stride, r, k, b) * 128);
		for (int g = 0; g < 8; g++) {
			__m512i q = _mm512_load_si512(tile + b * 512 + g * 64);
			q = _mm512_xor_si512(q, flip);
			ROWS(r)
				dot[r] = _mm512_dpbusd_epi32(dot[r], q,
							     four_of(x, stride, r, b * 32 + g * 4));
		}
		ROWS(r) {
			__m512 s = _mm512_mul_ps(d, _mm512_set1_ps(scale_of(x, stride, r, k, b)));
			acc[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[r]), s, acc[r]);
		}
	}
	ROWS(r)
		_mm512_storeu_ps(out + r * IG_TILE, acc[r]);
}
TILE_KERNELS_Q8(avx512_q8_0, 8, IG_Q8_0)

ALWAYS_INLINE void nibbles(const uint8_t *tile, int64_t k, const uint8_t *x, int64_t stride,
			   float *out, const int n_rows, const bool has_min)
{
	const int64_t kb = k / 32;
	const uint8_t *scales = tile + kb * 256, *mins = scales + kb * 32;
	const __m512i low = _mm512_set1_epi8(15);
	__m512 acc[8];
	__m512i dot[8];

	ROWS(r)
		acc[r] = _mm512_setzero_ps();
	for (int64_t b = 0; b < kb; b++) {
		__m512 d = halves(scales + b * 32);
		fetch_ahead(has_min ? IG_Q4_1 : IG_Q4_0, tile, k, b);
		ROWS(r)
			dot[r] = has_min ? _mm512_setzero_si512() :
					   _mm512_set1_epi32(neg_of(x, stride, r, k, b) * 8);
		for (int g = 0; g < 4; g++) {
			__m512i q = _mm512_load_si512(tile + b * 256 + g * 64);
			__m512i lo = _mm512_and_si512(q, low);
			__m512i hi = _mm512_and_si512(_mm512_srli_epi16(q, 4), low);
			ROWS(r)
				dot[r] = _mm512_dpbusd_epi32(dot[r], lo,
							     four_of(x, stride, r, b * 32 + g * 4));
			ROWS(r)
				dot[r] = _mm512_dpbusd_epi32(
					dot[r], hi, four_of(x, stride, r, b * 32 + 16 + g * 4));
		}
		ROWS(r) {
			__m512 s = _mm512_mul_ps(d, _mm512_set1_ps(scale_of(x, stride, r, k, b)));
			acc[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[r]), s, acc[r]);
		}
		if (has_min) {
			__m512 m = halves(mins + b * 32);
			ROWS(r)
				acc[r] = _mm512_fmadd_ps(
					m, _mm512_set1_ps(sum_of(x, stride, r, k, b)), acc[r]);
		}
	}
	ROWS(r)
		_mm512_storeu_ps(out + r * IG_TILE, acc[r]);
}

ALWAYS_INLINE void avx512_q4_0_rows(const uint8_t *tile, int64_t k, const uint8_t *x,
				    int64_t stride, float *out, const int n_rows)
{
	nibbles(tile, k, x, stride, out, n_rows, false);
}
TILE_KERNELS_Q8(avx512_q4_0, 8, IG_Q4_0)

ALWAYS_INLINE void avx512_q4_1_rows(const uint8_t *tile, int64_t k, const uint8_t *x,
				    int64_t stride, float *out, const int n_rows)
{
	nibbles(tile, k, x, stride, out, n_rows, true);
}
TILE_KERNELS_Q8(avx512_q4_1, 8, IG_Q4_1)

ALWAYS_INLINE void avx512_q8_m_rows(const uint8_t *tile, int64_t k, const uint8_t *x,
				    int64_t stride, float *out, const int n_rows)
{
	const int64_t kb = k / 32;
	const uint8_t *scales = tile + kb * 512, *mins = scales + kb * 32;
	__m512 acc[8];
	__m512i dot[8];

	ROWS(r)
		acc[r] = _mm512_setzero_ps();
	for (int64_t b = 0; b < kb; b++) {
		__m512 d = halves(scales + b * 32), m = halves(mins + b * 32);
		fetch_ahead(IG_Q8_M, tile, k, b);
		ROWS(r)
			dot[r] = _mm512_setzero_si512();
		for (int g = 0; g < 8; g++) {
			__m512i q = _mm512_load_si512(tile + b * 512 + g * 64);
			ROWS(r)
				dot[r] = _mm512_dpbusd_epi32(dot[r], q,
							     four_of(x, stride, r, b * 32 + g * 4));
		}
		ROWS(r) {
			__m512 s = _mm512_mul_ps(d, _mm512_set1_ps(scale_of(x, stride, r, k, b)));
			acc[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[r]), s, acc[r]);
			acc[r] = _mm512_fmadd_ps(m, _mm512_set1_ps(sum_of(x, stride, r, k, b)),
						 acc[r]);
		}
	}
	ROWS(r)
		_mm512_storeu_ps(out + r * IG_TILE, acc[r]);
}
TILE_KERNELS_Q8(avx512_q8_m, 8, IG_Q8_M)

/* ---- float activations ------------------------------------------------------------ */

ALWAYS_INLINE void avx512_f32_rows(const uint8_t *tile, int64_t k, const uint8_t *x, int64_t stride,
				   float *out, const int n_rows)
{
	__m512 acc[8];

	ROWS(r)
		acc[r] = _mm512_setzero_ps();
	for (int64_t i = 0; i < k; i++) {
		__m512 w = _mm512_load_ps((const float *)tile + i * IG_TILE);
		ROWS(r)
			acc[r] = _mm512_fmadd_ps(w, float_of(x, stride, r, i), acc[r]);
	}
	ROWS(r)
		_mm512_storeu_ps(out + r * IG_TILE, acc[r]);
}
TILE_KERNELS(avx512_f32, 8)

ALWAYS_INLINE void avx512_f16_rows(const uint8_t *tile, int64_t k, const uint8_t *x, int64_t stride,
				   float *out, const int n_rows)
{
	__m512 acc[8];

	ROWS(r)
		acc[r] = _mm512_setzero_ps();
	for (int64_t i = 0; i < k; i++) {
		__m512 w = halves(tile + i * 32);
		ROWS(r)
			acc[r] = _mm512_fmadd_ps(w, float_of(x, stride, r, i), acc[r]);
	}
	ROWS(r)
		_mm512_storeu_ps(out + r * IG_TILE, acc[r]);
}
TILE_KERNELS(avx512_f16, 8)

ALWAYS_INLINE void avx512_bf16_wide_rows(const uint8_t *tile, int64_t k, const uint8_t *x,
					 int64_t stride, float *out, const int n_rows)
{
	const __m512i high = _mm512_set1_epi32((int)0xffff0000u);
	__m512 acc[8];

	ROWS(r)
		acc[r] = _mm512_setzero_ps();
	for (int64_t i = 0; i < k; i += 2) {
		__m512i pair = _mm512_load_si512(tile + i / 2 * 64);
		__m512 w0 = _mm512_castsi512_ps(_mm512_slli_epi32(pair, 16));
		__m512 w1 = _mm512_castsi512_ps(_mm512_and_si512(pair, high));
		ROWS(r)
			acc[r] = _mm512_fmadd_ps(w0, float_of(x, stride, r, i), acc[r]);
		if (i + 1 < k)
			ROWS(r)
				acc[r] = _mm512_fmadd_ps(w1, float_of(x, stride, r, i + 1), acc[r]);
	}
	ROWS(r)
		_mm512_storeu_ps(out + r * IG_TILE, acc[r]);
}
TILE_KERNELS(avx512_bf16_wide, 8)

ALWAYS_INLINE void avx512_q8_0_f32_rows(const uint8_t *tile, int64_t k, const uint8_t *x,
					int64_t stride, float *out, const int n_rows)
{
	const int64_t kb = k / 32;
	__m512 acc[8];

	ROWS(r)
		acc[r] = _mm512_setzero_ps();
	for (int64_t b = 0; b < kb; b++) {
		__m512 d = halves(tile + kb * 512 + b * 32);
		for (int g = 0; g < 8; g++) {
			__m512i q = _mm512_load_si512(tile + b * 512 + g * 64);
			for (int i = 0; i < 4; i++) {
				__m512i v = _mm512_srai_epi32(
					_mm512_sll_epi32(q, _mm_cvtsi32_si128(24 - 8 * i)), 24);
				__m512 w = _mm512_mul_ps(d, _mm512_cvtepi32_ps(v));
				ROWS(r)
					acc[r] = _mm512_fmadd_ps(
						w, float_of(x, stride, r, b * 32 + g * 4 + i),
						acc[r]);
			}
		}
	}
	ROWS(r)
		_mm512_storeu_ps(out + r * IG_TILE, acc[r]);
}
TILE_KERNELS(avx512_q8_0_f32, 8)

ALWAYS_INLINE void nibbles_f32(const uint8_t *tile, int64_t k, const uint8_t *x, int64_t stride,
			       float *out, const int n_rows, const bool has_min)
{
	const int64_t kb = k / 32;
	const uint8_t *scales = tile + kb * 256, *mins = scales + kb * 32;
	const __m512i low = _mm512_set1_epi32(15), eight = _mm512_set1_epi32(8);
	__m512 acc[8];

	ROWS(r)
		acc[r] = _mm512_setzero_ps();
	for (int64_t b = 0; b < kb; b++) {
		__m512 d = halves(scales + b * 32);
		__m512 m = has_min ? halves(mins + b * 32) : _mm512_setzero_ps();
		for (int half = 0; half < 2; half++)
			for (int i = 0; i < 16; i++) {
				__m512i q = _mm512_load_si512(tile + b * 256 + i / 4 * 64);
				q = _mm512_srl_epi32(q, _mm_cvtsi32_si128(i % 4 * 8 + half * 4));
				q = _mm512_and_si512(q, low);
				if (!has_min)
					q = _mm512_sub_epi32(q, eight);
				__m512 w = _mm512_mul_ps(d, _mm512_cvtepi32_ps(q));
				if (has_min)
					w = _mm512_add_ps(w, m);
				ROWS(r)
					acc[r] = _mm512_fmadd_ps(
						w, float_of(x, stride, r, b * 32 + half * 16 + i),
						acc[r]);
			}
	}
	ROWS(r)
		_mm512_storeu_ps(out + r * IG_TILE, acc[r]);
}

ALWAYS_INLINE void avx512_q4_0_f32_rows(const uint8_t *tile, int64_t k, const uint8_t *x,
					int64_t stride, float *out, const int n_rows)
{
	nibbles_f32(tile, k, x, stride, out, n_rows, false);
}
TILE_KERNELS(avx512_q4_0_f32, 8)

ALWAYS_INLINE void avx512_q4_1_f32_rows(const uint8_t *tile, int64_t k, const uint8_t *x,
					int64_t stride, float *out, const int n_rows)
{
	nibbles_f32(tile, k, x, stride, out, n_rows, true);
}
TILE_KERNELS(avx512_q4_1_f32, 8)

ALWAYS_INLINE void avx512_q8_m_f32_rows(const uint8_t *tile, int64_t k, const uint8_t *x,
					int64_t stride, float *out, const int n_rows)
{
	const int64_t kb = k / 32;
	const uint8_t *scales = tile + kb * 512, *mins = scales + kb * 32;
	const __m512i byte = _mm512_set1_epi32(255);
	__m512 acc[8];

	ROWS(r)
		acc[r] = _mm512_setzero_ps();
	for (int64_t b = 0; b < kb; b++) {
		__m512 d = halves(scales + b * 32), m = halves(mins + b * 32);
		for (int g = 0; g < 8; g++) {
			__m512i q = _mm512_load_si512(tile + b * 512 + g * 64);
			for (int i = 0; i < 4; i++) {
				__m512i v = _mm512_srl_epi32(q, _mm_cvtsi32_si128(8 * i));
				__m512 w = _mm512_cvtepi32_ps(_mm512_and_si512(v, byte));
				w = _mm512_add_ps(_mm512_mul_ps(d, w), m);
				ROWS(r)
					acc[r] = _mm512_fmadd_ps(
						w, float_of(x, stride, r, b * 32 + g * 4 + i),
						acc[r]);
			}
		}
	}
	ROWS(r)
		_mm512_storeu_ps(out + r * IG_TILE, acc[r]);
}
TILE_KERNELS(avx512_q8_m_f32, 8)
