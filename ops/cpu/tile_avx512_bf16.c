/* tile_avx512_bf16.c: products of bfloat16 tiles with vdpbf16ps: two k per lane and
 * step, k ascending. */
#include "ops/cpu/tile_kernels.h"

#include <immintrin.h>

ALWAYS_INLINE void avx512_bf16_pairs_rows(const uint8_t *tile, int64_t k, const uint8_t *x,
					  int64_t stride, float *out, const int n_rows)
{
	__m512 acc[8];

	for (int r = 0; r < n_rows; r++)
		acc[r] = _mm512_setzero_ps();
	for (int64_t i = 0; i < (k + 1) / 2; i++) {
		__m512bh w = (__m512bh)_mm512_load_si512(tile + i * 64);
		for (int r = 0; r < n_rows; r++) {
			int32_t pair;
			memcpy(&pair, x + r * stride + i * 4, 4);
			acc[r] = _mm512_dpbf16_ps(acc[r], w, (__m512bh)_mm512_set1_epi32(pair));
		}
	}
	for (int r = 0; r < n_rows; r++)
		_mm512_storeu_ps(out + r * IG_TILE, acc[r]);
}
TILE_KERNELS(avx512_bf16_pairs, 8)
