/* rope_neon.c: rope_kv and rope_latent for NEON; the code is rope_row.h and
 * latent_row.h. */
#include <arm_neon.h>
#include <stdint.h>

static inline void store_f16(uint16_t *dst, const float *src, uint32_t n)
{
	for (uint32_t i = 0; i < n; i += 4)
		vst1_u16(dst + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(src + i))));
}

#include "latent_row.h"

void ig_rope_kv_neon(const struct ig_op_launch *launch, int64_t first, int64_t last, void *scratch)
{
	(void)scratch;
	rope_kv_rows(launch, first, last);
}

void ig_rope_latent_neon(const struct ig_op_launch *launch, int64_t first, int64_t last,
			 void *scratch)
{
	(void)scratch;
	rope_latent_rows(launch, first, last);
}
