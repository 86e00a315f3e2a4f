/* tile_neon.h: what the products with NEON share. */
#pragma once

#include "ops/cpu/tile_kernels.h"

#include <arm_neon.h>

#define ROWS(r) for (int r = 0; r < n_rows; r++)
/* A tile's two halves of eight outputs, and a half's two vectors of four. */
#define HALVES(h) for (int h = 0; h < 2; h++)
#define QUADS(v) for (int v = 0; v < 2; v++)

/* Bytes of a group of four k: of a quad's four outputs, and of all sixteen. */
#define QUAD_BYTES 16
#define GROUP_BYTES 64

/* Four scales of a block. */
ALWAYS_INLINE float32x4_t halves(const uint8_t *p)
{
	return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
}
