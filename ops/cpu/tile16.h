/*
 * tile16.h: the layout of weights that all cpu kernels of matrix products read.
 *
 * Sixteen rows (outputs) of a matrix [n, k] make a tile; n is padded with zero
 * rows.  Inside a tile one 32-bit or 16-bit lane is one output, so a kernel reads
 * k once, in ascending order, and never sums across lanes.  In a tile of inner
 * length k, with kb = k / 32:
 *
 *   F32   float w[k][16]
 *   F16   half  w[k][16]
 *   BF16  bf16  w[ceil(k/2)][16][2]
 *   Q8_0  int8  q[kb][8][16][4]       then half d[kb][16]
 *   Q4_0  uint8 q[kb][4][16][4]       then half d[kb][16]
 *   Q4_1  uint8 q[kb][4][16][4]       then half d[kb][16], then half m[kb][16]
 *   Q8_M  uint8 q[kb][8][16][4]       the same
 *
 *   Q5_0  uint8 q[kb][4][16][4]       uint32 h[kb][16]     half d[kb][16]
 *   Q5_1  uint8 q[kb][4][16][4]       uint32 h[kb][16]     half d[kb][16], m[kb][16]
 *   Q2_K  uint32 q[kb][2][16]         uint8 s[kb][2][16]   half d[ks][16], m[ks][16]
 *   Q3_K  uint32 q[kb][2][16]  uint32 h[kb][16]     int8 s[kb][2][16]  half d[ks][16]
 *   Q4_K  uint8 q[kb][4][16][4]       uint8 s[kb][16], n[kb][16]
 *                                     half d[ks][16], m[ks][16]
 *   Q5_K  as Q4_K, with uint32 h[kb][16] after q
 *   Q6_K  uint8 q[kb][4][16][4]  uint32 h[kb][2][16]  int8 s[kb][2][16]  half d[ks][16]
 *   IQ4_NL as Q4_0; IQ4_XS with int8 s[kb][16] and half d[ks][16] after q
 *   MXFP4 uint8 q[kb][4][16][4]       uint8 e[kb][16]
 *
 * ks = k / 256; the parts follow each other in the order of a line (tile_quants.h).
 * q[b][g][o][i] of Q8_0 and Q8_M is value 32b + 4g + i of output o; a byte of the 4-bit
 * types has value 32b + 4g + i in its low half and value 32b + 4g + i + 16 in its high
 * half, as in files.  If h has one upper bit per code, byte i of a word has the bit of
 * value 32b + 4g + i as bit g and that of the value 16 later as bit 4 + g.  Two upper
 * bits, or the q of Q2_K and Q3_K, are bits 2g and 2g + 1 of byte i: for value
 * 32b + 4g + i in the first word, for the value 16 later in the second.  Q2_K's s has the scale in
 * its low half and the minimum in its high half.  A tile's size is rounded up to 64 bytes.
 */
#pragma once

#include <ingot/op.h>

#define IG_TILE 16

/* Bytes of one tile; 0 if the dtype has no such layout or k is no multiple of its blocks. */
uint64_t ig_tile16_tile_bytes(uint32_t dtype, int64_t k);
static inline int64_t ig_tile16_n_tiles(int64_t n) { return (n + IG_TILE - 1) / IG_TILE; }

/* Pack tiles first … last - 1 of a matrix [n, k] in IG_LAYOUT_ROWS.  dst is the whole
 * packed matrix, 64-byte aligned.  Threads may pack different tiles at once. */
void ig_tile16_pack(uint32_t dtype, const void *src, int64_t n, int64_t k, void *dst, int64_t first,
		    int64_t last);
/* One row back as float [k]. */
void ig_tile16_row_to_f32(uint32_t dtype, const void *packed, int64_t k, int64_t row, float *dst);
