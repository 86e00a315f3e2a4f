/*
 * tile_quants_avx512.c: products of the tiles of tile_quants.h with AVX-512 (F, BW, VL, DQ,
 * VNNI): a block's codes become unsigned bytes, which are multiplied as in
 * tile_avx512.c.  The dtype is a constant in every kernel.
 */
#include "ops/cpu/tile_avx512.h"
#include "ops/cpu/tile_quants.h"

static const int8_t iq4_values[16] = IG_IQ4_VALUES, fp4_values[16] = IG_FP4_VALUES;

ALWAYS_INLINE __m512i shifted(__m512i v, int left)
{
	return left >= 0 ? _mm512_slli_epi16(v, (unsigned)left) :
			   _mm512_srli_epi16(v, (unsigned)-left);
}

ALWAYS_INLINE __m512i table_of(uint32_t dtype)
{
	const int8_t *t = dtype == IG_MXFP4 ? fp4_values : iq4_values;
	__m128i v = _mm_loadu_si128((const __m128i *)t);
	return _mm512_broadcast_i32x4(
		_mm_add_epi8(v, _mm_set1_epi8((char)tile_format(dtype).offset)));
}

/* u of the values 16 half + 4 g … + 3 of a block whose planes are q and h. */
ALWAYS_INLINE __m512i codes(uint32_t dtype, const uint8_t *q, const uint8_t *h, int half, int g,
			    __m512i table)
{
	const struct tile_format f = tile_format(dtype);
	__m512i c;

	if (f.low_bits == 4)
		c = _mm512_and_si512(shifted(_mm512_load_si512(q + g * 64), -4 * half),
				     _mm512_set1_epi8(15));
	else
		c = _mm512_and_si512(shifted(_mm512_load_si512(q + half * 64), -2 * g),
				     _mm512_set1_epi8(3));
	if (f.high_bits == 1)
		c = _mm512_or_si512(c, _mm512_and_si512(shifted(_mm512_load_si512(h),
								f.low_bits - (4 * half + g)),
							_mm512_set1_epi8((char)(1 << f.low_bits))));
	else if (f.high_bits == 2)
		c = _mm512_or_si512(
			c, _mm512_and_si512(shifted(_mm512_load_si512(h + half * 64), 4 - 2 * g),
					    _mm512_set1_epi8(0x30)));
	return f.offset >= 128 || dtype == IG_MXFP4 ? _mm512_shuffle_epi8(table, c) : c;
}

ALWAYS_INLINE __m512i unsigned_bytes(const uint8_t *p)
{
	return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
}

/* Block b without its codes: d, m, and scales and minima of both halves. */
struct scales {
	__m512 d, m, s[2], n[2];
};

ALWAYS_INLINE struct scales scales_of_block(uint32_t dtype, const uint8_t *tile, int64_t kb,
					    int64_t b)
{
	const struct tile_format f = tile_format(dtype);
	const struct tile_planes p = tile_planes(f, kb);
	const uint8_t *at = tile + p.scale + b * f.n_scales * IG_TILE;
	const __m512i low = _mm512_set1_epi32(15);
	struct scales t;

	t.d = t.m = t.s[0] = t.s[1] = t.n[0] = t.n[1] = _mm512_setzero_ps();
	if (dtype == IG_MXFP4) {
		__m512i e = unsigned_bytes(at);
		__m512i small = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
		__m512i large = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
		__mmask16 is_small = _mm512_cmplt_epu32_mask(e, _mm512_set1_epi32(2));
		t.d = _mm512_castsi512_ps(_mm512_mask_blend_epi32(is_small, large, small));
		return t;
	}
	t.d = halves(tile + p.d + b / f.d_blocks * 32);
	if (f.has_m)
		t.m = halves(tile + p.m + b / f.d_blocks * 32);
	for (int i = 0; i < f.n_scales; i++) {
		__m512i s = dtype == IG_Q2_K ?
				    _mm512_and_si512(unsigned_bytes(at + i * IG_TILE), low) :
				    _mm512_cvtepi8_epi32(
					    _mm_loadu_si128((const __m128i *)(at + i * IG_TILE)));
		t.s[i] = _mm512_cvtepi32_ps(s);
		if (dtype == IG_Q2_K)
			t.n[i] = _mm512_cvtepi32_ps(
				_mm512_srli_epi32(unsigned_bytes(at + i * IG_TILE), 4));
	}
	if (f.n_mins)
		t.n[0] = _mm512_cvtepi32_ps(unsigned_bytes(tile + p.min + b * IG_TILE));
	return t;
}

ALWAYS_INLINE void quants_q8(uint32_t dtype, const uint8_t *tile, int64_t k, const uint8_t *x,
			     int64_t stride, float *out, const int n_rows)
{
	const struct tile_format f = tile_format(dtype);
	const int64_t kb = k / 32;
	const struct tile_planes p = tile_planes(f, kb);
	const __m512i table = table_of(dtype);
	const bool by_half = f.n_scales == 2;
	__m512 acc[8], sum[8];
	__m512i dot[8];

	ROWS(r)
		acc[r] = _mm512_setzero_ps();
	for (int64_t b = 0; b < kb; b++) {
		const uint8_t *q = tile + b * f.low_bits * 64,
			      *h = tile + p.high + b * f.high_bits * 64;
		const struct scales t = scales_of_block(dtype, tile, kb, b);
		fetch_ahead(dtype, tile, k, b);
		for (int half = 0; half < 2; half++) {
			if (by_half)
				ROWS(r) {
					int32_t first = neg_half_of(x, stride, r, k, b);
					int32_t n =
						half ? neg_of(x, stride, r, k, b) - first : first;
					dot[r] = _mm512_set1_epi32(n * f.offset);
				}
			else if (half == 0)
				ROWS(r)
					dot[r] = _mm512_set1_epi32(neg_of(x, stride, r, k, b) *
								   f.offset);
			for (int g = 0; g < 4; g++) {
				__m512i u = codes(dtype, q, h, half, g, table);
				ROWS(r)
					dot[r] = _mm512_dpbusd_epi32(
						dot[r], u,
						four_of(x, stride, r, b * 32 + half * 16 + g * 4));
			}
			if (by_half)
				ROWS(r) {
					__m512 i = _mm512_cvtepi32_ps(dot[r]);
					sum[r] = half ? _mm512_fmadd_ps(i, t.s[1], sum[r]) :
							_mm512_mul_ps(i, t.s[0]);
				}
		}
		if (!by_half) {
			__m512 d = f.n_scales == 1 && dtype != IG_MXFP4 ?
					   _mm512_mul_ps(t.d, t.s[0]) :
					   t.d;
			ROWS(r) {
				__m512 s = _mm512_mul_ps(
					d, _mm512_set1_ps(scale_of(x, stride, r, k, b)));
				acc[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[r]), s, acc[r]);
			}
		} else {
			ROWS(r) {
				__m512 s = _mm512_mul_ps(
					t.d, _mm512_set1_ps(scale_of(x, stride, r, k, b)));
				acc[r] = _mm512_fmadd_ps(sum[r], s, acc[r]);
			}
		}
		if (f.has_m && by_half) {
			ROWS(r) {
				int32_t first = neg_half_of(x, stride, r, k, b);
				int32_t second = neg_of(x, stride, r, k, b) - first;
				__m512 n = _mm512_mul_ps(t.n[0], _mm512_set1_ps((float)first));
				n = _mm512_fmadd_ps(t.n[1], _mm512_set1_ps((float)second), n);
				__m512 s = _mm512_mul_ps(
					t.m, _mm512_set1_ps(scale_of(x, stride, r, k, b)));
				acc[r] = _mm512_fmadd_ps(n, s, acc[r]);
			}
		} else if (f.has_m) {
			__m512 m = dtype == IG_Q5_1 ? t.m : _mm512_mul_ps(t.m, t.n[0]);
			ROWS(r) {
				__m512 s = _mm512_set1_ps(sum_of(x, stride, r, k, b));
				acc[r] = dtype == IG_Q5_1 ? _mm512_fmadd_ps(m, s, acc[r]) :
							    _mm512_fnmadd_ps(m, s, acc[r]);
			}
		}
	}
	ROWS(r)
		_mm512_storeu_ps(out + r * IG_TILE, acc[r]);
}

ALWAYS_INLINE void quants_f32(uint32_t dtype, const uint8_t *tile, int64_t k, const uint8_t *x,
			      int64_t stride, float *out, const int n_rows)
{
	const struct tile_format f = tile_format(dtype);
	const int64_t kb = k / 32;
	const struct tile_planes p = tile_planes(f, kb);
	const __m512i table = table_of(dtype), byte = _mm512_set1_epi32(255);
	const __m512i offset = _mm512_set1_epi32(f.offset);
	__m512 acc[8];

	ROWS(r)
		acc[r] = _mm512_setzero_ps();
	for (int64_t b = 0; b < kb; b++) {
		const uint8_t *q = tile + b * f.low_bits * 64,
			      *h = tile + p.high + b * f.high_bits * 64;
		const struct scales t = scales_of_block(dtype, tile, kb, b);
		for (int half = 0; half < 2; half++) {
			const int j = f.n_scales == 2 ? half : 0;
			__m512 d =
				f.n_scales && dtype != IG_MXFP4 ? _mm512_mul_ps(t.d, t.s[j]) : t.d;
			__m512 m = dtype == IG_Q5_1 ? t.m : _mm512_mul_ps(t.m, t.n[j]);
			for (int g = 0; g < 4; g++) {
				__m512i u = codes(dtype, q, h, half, g, table);
				for (int i = 0; i < 4; i++) {
					__m512i v = _mm512_and_si512(
						_mm512_srli_epi32(u, (unsigned)(8 * i)), byte);
					__m512 w = _mm512_cvtepi32_ps(_mm512_sub_epi32(v, offset));
					w = _mm512_mul_ps(d, w);
					if (f.has_m)
						w = dtype == IG_Q5_1 ? _mm512_add_ps(w, m) :
								       _mm512_sub_ps(w, m);
					ROWS(r)
						acc[r] = _mm512_fmadd_ps(
							w,
							float_of(x, stride, r,
								 b * 32 + half * 16 + g * 4 + i),
							acc[r]);
				}
			}
		}
	}
	ROWS(r)
		_mm512_storeu_ps(out + r * IG_TILE, acc[r]);
}

TILE_QUANTS(TILE_QUANT_KERNELS_Q8, avx512, 8)
TILE_QUANTS(TILE_QUANT_KERNELS_F32, avx512, 4)
