/*
 * tile_quants_avx2.c: products of the tiles of tile_quants.h with AVX2, FMA and F16C, with the bits of
 * tile_quants_avx512.c.  With 8-bit activations: tile_q8_avx2.h.
 */
#include "ops/cpu/tile_q8_avx2.h"

ALWAYS_INLINE void quants_f32(uint32_t dtype, const uint8_t *tile, int64_t k, const uint8_t *x,
			      int64_t stride, float *out, const int n_rows)
{
	const struct tile_format f = tile_format(dtype);
	const int64_t kb = k / 32;
	const struct tile_planes p = tile_planes(f, kb);
	const __m256i table = table_of(dtype);
	const bool by_half = f.n_scales == 2;
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
				const int j = i / 16;
				__m256 d = by_half ? _mm256_mul_ps(t.d, t.s[j]) : t.d;
				__m256 m = by_half ? _mm256_mul_ps(t.m, t.n[j]) : t.m;
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

#define FEW_AND_WIDE_OF(format, dtype, x) FEW_AND_WIDE(avx2_##format, dtype)
TILE_QUANTS(FEW_AND_WIDE_OF, )
TILE_QUANTS(TILE_QUANT_KERNELS_F32, avx2, 4)
