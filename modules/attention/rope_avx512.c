/* rope_avx512.c: rope_kv and rope_latent for AVX-512; the code is rope_row.h and
 * latent_row.h. */
#include <immintrin.h>
#include <stdint.h>

static inline void store_f16(uint16_t *dst, const float *src, uint32_t n)
{
	uint32_t i = 0;

	for (; i + 16 <= n; i += 16)
		_mm256_storeu_si256(
			(__m256i *)(dst + i),
			_mm512_cvtps_ph(_mm512_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT));
	if (i < n) /* n is a multiple of 8 */
		_mm_storeu_si128((__m128i *)(dst + i), _mm256_cvtps_ph(_mm256_loadu_ps(src + i),
								       _MM_FROUND_TO_NEAREST_INT));
}

#include "latent_row.h"

void ig_rope_kv_avx512(const struct ig_op_launch *launch, int64_t first, int64_t last,
		       void *scratch)
{
	(void)scratch;
	rope_kv_rows(launch, first, last);
}

void ig_rope_latent_avx512(const struct ig_op_launch *launch, int64_t first, int64_t last,
			   void *scratch)
{
	(void)scratch;
	rope_latent_rows(launch, first, last);
}
