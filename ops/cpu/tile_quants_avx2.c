/*
 * tile_quants_avx2.c: products of the tiles of tile_quants.h with AVX2, FMA and F16C, in
 * two halves of eight outputs as in tile_avx2.c, with the bits of tile_quants_avx512.c.
 * vpmaddubsw cannot saturate: u is at most 63; IQ4's values are used as magnitudes (at most
 * 127), with their signs moved to the activations.
 */
#include "ops/cpu/tile_avx2.h"
#include "ops/cpu/tile_quants.h"

static const int8_t iq4_values[16] = IG_IQ4_VALUES, fp4_values[16] = IG_FP4_VALUES;

#define IS_IQ4(dtype) ((dtype) == IG_IQ4_NL || (dtype) == IG_IQ4_XS)

ALWAYS_INLINE __m256i shifted(__m256i v, int left)
{
	return left >= 0 ? _mm256_slli_epi16(v, left) : _mm256_srli_epi16(v, -left);
}

/* The values of IQ4; those of MXFP4 plus their offset. */
ALWAYS_INLINE __m256i table_of(uint32_t dtype)
{
	const int8_t *t = dtype == IG_MXFP4 ? fp4_values : iq4_values;
	__m256i v = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)t));
	int offset = IS_IQ4(dtype) ? 0 : tile_format(dtype).offset;
	return _mm256_add_epi8(v, _mm256_set1_epi8((char)offset));
}

/* u (IQ4: v) of the values 16 half + 4 g … + 3 of a block, of outputs 8 o …; its planes
 * are q and h. */
ALWAYS_INLINE __m256i codes(uint32_t dtype, const uint8_t *q, const uint8_t *h, int o, int half,
			    int g, __m256i table)
{
	const struct tile_format f = tile_format(dtype);
	__m256i c;

	if (f.low_bits == 4)
		c = _mm256_and_si256(shifted(bytes(q + g * 64, o), -4 * half),
				     _mm256_set1_epi8(15));
	else
		c = _mm256_and_si256(shifted(bytes(q + half * 64, o), -2 * g), _mm256_set1_epi8(3));
	if (f.high_bits == 1)
		c = _mm256_or_si256(
			c, _mm256_and_si256(shifted(bytes(h, o), f.low_bits - (4 * half + g)),
					    _mm256_set1_epi8((char)(1 << f.low_bits))));
	else if (f.high_bits == 2)
		c = _mm256_or_si256(c, _mm256_and_si256(shifted(bytes(h + half * 64, o), 4 - 2 * g),
							_mm256_set1_epi8(0x30)));
	return IS_IQ4(dtype) || dtype == IG_MXFP4 ? _mm256_shuffle_epi8(table, c) : c;
}

ALWAYS_INLINE __m256i unsigned_bytes(const uint8_t *p, int o)
{
	return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(p + o * 8)));
}

ALWAYS_INLINE __m256i signed_bytes(const uint8_t *p, int o)
{
	return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(p + o * 8)));
}

/* Block b without its codes: d, m, and scales and minima of both halves. */
struct scales {
	__m256 d, m, s[2], n[2];
};

ALWAYS_INLINE struct scales scales_of_block(uint32_t dtype, const uint8_t *tile, int64_t kb,
					    int64_t b, int o)
{
	const struct tile_format f = tile_format(dtype);
	const struct tile_planes p = tile_planes(f, kb);
	const uint8_t *at = tile + p.scale + b * f.n_scales * IG_TILE;
	struct scales t;

	t.d = t.m = t.s[0] = t.s[1] = t.n[0] = t.n[1] = _mm256_setzero_ps();
	if (dtype == IG_MXFP4) {
		__m256i e = unsigned_bytes(at, o);
		__m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
		__m256i large = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
		__m256i is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);
		t.d = _mm256_castsi256_ps(_mm256_blendv_epi8(large, small, is_small));
		return t;
	}
	t.d = halves(tile + p.d + b / f.d_blocks * 32, o);
	if (f.has_m)
		t.m = halves(tile + p.m + b / f.d_blocks * 32, o);
	for (int i = 0; i < f.n_scales; i++) {
		__m256i s = dtype == IG_Q2_K ? _mm256_and_si256(unsigned_bytes(at + i * IG_TILE, o),
								_mm256_set1_epi32(15)) :
					       signed_bytes(at + i * IG_TILE, o);
		t.s[i] = _mm256_cvtepi32_ps(s);
		if (dtype == IG_Q2_K)
			t.n[i] = _mm256_cvtepi32_ps(
				_mm256_srli_epi32(unsigned_bytes(at + i * IG_TILE, o), 4));
	}
	if (f.n_mins)
		t.n[0] = _mm256_cvtepi32_ps(unsigned_bytes(tile + p.min + b * IG_TILE, o));
	return t;
}

/* n * offset: every offset of this file's unsigned codes is 0, 4, 12, 16 or 32. */
ALWAYS_INLINE __m256i taken_off(uint32_t dtype, __m256i n)
{
	return IS_IQ4(dtype) ? _mm256_setzero_si256() :
			       _mm256_mullo_epi32(n, _mm256_set1_epi32(tile_format(dtype).offset));
}

ALWAYS_INLINE void quants_q8(uint32_t dtype, const uint8_t *tile, int64_t k, const uint8_t *x,
			     int64_t stride, float *out, const int n_rows)
{
	const struct tile_format f = tile_format(dtype);
	const int64_t kb = k / 32;
	const struct tile_planes p = tile_planes(f, kb);
	const __m256i table = table_of(dtype);
	const bool by_half = f.n_scales == 2;

	HALVES(o) {
		__m256 acc[4], sum[4];
		__m256i dot[4];
		ROWS(r)
			acc[r] = _mm256_setzero_ps();
		for (int64_t b = 0; b < kb; b++) {
			const uint8_t *q = tile + b * f.low_bits * 64;
			const uint8_t *h = tile + p.high + b * f.high_bits * 64;
			const struct scales t = scales_of_block(dtype, tile, kb, b, o);
			if (o == 0)
				fetch_ahead(dtype, tile, k, b);
			for (int half = 0; half < 2; half++) {
				ROWS(r) {
					__m256i n = neg_of(x, stride, r, k, b);
					__m256i first = neg_half_of(x, stride, r, k, b);
					if (by_half)
						n = half ? _mm256_sub_epi32(n, first) : first;
					if (by_half || half == 0)
						dot[r] = taken_off(dtype, n);
				}
				for (int g = 0; g < 4; g++) {
					__m256i u = codes(dtype, q, h, o, half, g, table);
					ROWS(r) {
						__m256i v = four_of(x, stride, r,
								    b * 32 + half * 16 + g * 4);
						dot[r] = IS_IQ4(dtype) ?
								 dot4(dot[r], _mm256_abs_epi8(u),
								      _mm256_sign_epi8(v, u)) :
								 dot4(dot[r], u, v);
					}
				}
				if (by_half)
					ROWS(r) {
						__m256 i = _mm256_cvtepi32_ps(dot[r]);
						sum[r] = half ? _mm256_fmadd_ps(i, t.s[1], sum[r]) :
								_mm256_mul_ps(i, t.s[0]);
					}
			}
			__m256 d = f.n_scales == 1 && dtype != IG_MXFP4 ?
					   _mm256_mul_ps(t.d, t.s[0]) :
					   t.d;
			ROWS(r) {
				__m256 s = _mm256_mul_ps(d, scale_of(x, stride, r, k, b));
				__m256 i = by_half ? sum[r] : _mm256_cvtepi32_ps(dot[r]);
				acc[r] = _mm256_fmadd_ps(i, s, acc[r]);
			}
			if (f.has_m && by_half) {
				ROWS(r) {
					__m256i first = neg_half_of(x, stride, r, k, b);
					__m256i second =
						_mm256_sub_epi32(neg_of(x, stride, r, k, b), first);
					__m256 n = _mm256_mul_ps(t.n[0], _mm256_cvtepi32_ps(first));
					n = _mm256_fmadd_ps(t.n[1], _mm256_cvtepi32_ps(second), n);
					__m256 s = _mm256_mul_ps(t.m, scale_of(x, stride, r, k, b));
					acc[r] = _mm256_fmadd_ps(n, s, acc[r]);
				}
			} else if (f.has_m) {
				__m256 m = dtype == IG_Q5_1 ? t.m : _mm256_mul_ps(t.m, t.n[0]);
				ROWS(r) {
					__m256 s = sum_of(x, stride, r, k, b);
					acc[r] = dtype == IG_Q5_1 ? _mm256_fmadd_ps(m, s, acc[r]) :
								    _mm256_fnmadd_ps(m, s, acc[r]);
				}
			}
		}
		ROWS(r)
			_mm256_storeu_ps(out + r * IG_TILE + o * 8, acc[r]);
	}
}

ALWAYS_INLINE void quants_f32(uint32_t dtype, const uint8_t *tile, int64_t k, const uint8_t *x,
			      int64_t stride, float *out, const int n_rows)
{
	const struct tile_format f = tile_format(dtype);
	const int64_t kb = k / 32;
	const struct tile_planes p = tile_planes(f, kb);
	const __m256i table = table_of(dtype);
	const __m256i offset = _mm256_set1_epi32(IS_IQ4(dtype) ? 0 : f.offset);

	HALVES(o) {
		__m256 acc[4];
		ROWS(r)
			acc[r] = _mm256_setzero_ps();
		for (int64_t b = 0; b < kb; b++) {
			const uint8_t *q = tile + b * f.low_bits * 64;
			const uint8_t *h = tile + p.high + b * f.high_bits * 64;
			const struct scales t = scales_of_block(dtype, tile, kb, b, o);
			for (int i = 0; i < 32; i++) {
				const int j = f.n_scales == 2 ? i / 16 : 0;
				__m256 d = f.n_scales && dtype != IG_MXFP4 ?
						   _mm256_mul_ps(t.d, t.s[j]) :
						   t.d;
				__m256 m = dtype == IG_Q5_1 ? t.m : _mm256_mul_ps(t.m, t.n[j]);
				__m256i v = codes(dtype, q, h, o, i / 16, i / 4 % 4, table);
				v = _mm256_srai_epi32(_mm256_slli_epi32(v, 24 - i % 4 * 8), 24);
				__m256 w = _mm256_cvtepi32_ps(_mm256_sub_epi32(v, offset));
				w = _mm256_mul_ps(d, w);
				if (f.has_m)
					w = dtype == IG_Q5_1 ? _mm256_add_ps(w, m) :
							       _mm256_sub_ps(w, m);
				ROWS(r)
					acc[r] = _mm256_fmadd_ps(
						w, float_of(x, stride, r, b * 32 + i), acc[r]);
			}
		}
		ROWS(r)
			_mm256_storeu_ps(out + r * IG_TILE + o * 8, acc[r]);
	}
}

TILE_QUANTS(TILE_QUANT_KERNELS_Q8, avx2, 4)
TILE_QUANTS(TILE_QUANT_KERNELS_F32, avx2, 4)
