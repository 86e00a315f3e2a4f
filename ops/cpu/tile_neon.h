/* tile_neon.h: shared by the products with NEON. */
#pragma once

#include "ops/cpu/tile_kernels.h"

#include <arm_neon.h>

#define ROWS(r) for (int r = 0; r < n_rows; r++)
/* The two halves of a tile (eight outputs each), and the two vectors of a half. */
#define HALVES(h) for (int h = 0; h < 2; h++)
#define QUADS(v) for (int v = 0; v < 2; v++)

/* Bytes of a group of four k: for the four outputs of a quad, and for all sixteen. */
#define QUAD_BYTES 16
#define GROUP_BYTES 64

/* Four scales of a block. */
ALWAYS_INLINE float32x4_t halves(const uint8_t *p)
{
	return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
}
