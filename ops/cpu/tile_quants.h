/*
 * tile_quants.h: the tiles of Q5_0, Q5_1, the K-quants, IQ4 and MXFP4, whose codes are
 * planes of bits, followed by scales (tile16.h).
 *
 * Each instruction set has one product for all of these types, controlled by the description
 * below.  The type is a constant there, so the compiler removes the steps of other types.
 * A code becomes an unsigned byte u = v + offset; sums of u times an activation are integers,
 * and the activations' sums correct the offset exactly (NEON multiplies signed bytes, so v
 * itself, with the same sums).  i is the sum of a block of 32; in every kernel of 8-bit
 * activations (. rounds):
 *
 *   sub-blocks of 32:  acc = fma(i, (d s) . dx, acc)               d s is exact
 *   sub-blocks of 16:  acc = fma(s0 i0 + s1 i1, d . dx, acc)       the sum is exact
 *   minima, of 32:     acc = fma(-(m n), sx, acc), Q5_1 fma(m, sx, acc)
 *   minima, of 16:     acc = fma(-(n0 x0 + n1 x1), m . dx, acc)    x: sums of activations
 *
 * Exact, because |s0 i0 + s1 i1| is at most 2 * 128 * 16 * 32 * 127 < 2^24.
 */
#pragma once

#include "base/dtype.h"
#include "ops/cpu/tile16.h"

struct tile_format {
	int low_bits;  /* of a code in q: 4 or 2 */
	int high_bits; /* of a code in h: 0, 1 or 2 */
	int n_scales;  /* bytes of scales of an output in a block: 0, 1 or 2 */
	int n_mins;    /* bytes of minima; those of Q2_K are in its scales */
	int d_blocks;  /* blocks of 32 that share d: 1 or 8; 0: there is none */
	bool has_m;    /* halves m, as many as d */
	int offset;    /* u = v + offset */
};

static inline __attribute__((always_inline)) struct tile_format tile_format(uint32_t dtype)
{
	switch (dtype) {
	case IG_Q5_0: return (struct tile_format){ 4, 1, 0, 0, 1, false, 16 };
	case IG_Q5_1: return (struct tile_format){ 4, 1, 0, 0, 1, true, 0 };
	case IG_Q2_K: return (struct tile_format){ 2, 0, 2, 0, 8, true, 0 };
	case IG_Q3_K: return (struct tile_format){ 2, 1, 2, 0, 8, false, 4 };
	case IG_Q4_K: return (struct tile_format){ 4, 0, 1, 1, 8, true, 0 };
	case IG_Q5_K: return (struct tile_format){ 4, 1, 1, 1, 8, true, 0 };
	case IG_Q6_K: return (struct tile_format){ 4, 2, 2, 0, 8, false, 32 };
	case IG_IQ4_NL: return (struct tile_format){ 4, 0, 0, 0, 1, false, 128 };
	case IG_IQ4_XS: return (struct tile_format){ 4, 0, 1, 0, 8, false, 128 };
	case IG_MXFP4: return (struct tile_format){ 4, 0, 1, 0, 0, false, 12 };
	default: return (struct tile_format){ 0, 0, 0, 0, 0, false, 0 };
	}
}

/* The byte offsets of the parts of a tile of kb blocks. */
struct tile_planes {
	int64_t high, scale, min, d, m, end;
};

static inline __attribute__((always_inline)) struct tile_planes tile_planes(struct tile_format f,
									    int64_t kb)
{
	struct tile_planes p;
	int64_t halves = f.d_blocks ? kb / f.d_blocks * 32 : 0;

	p.high = kb * f.low_bits * 64;
	p.scale = p.high + kb * f.high_bits * 64;
	p.min = p.scale + kb * f.n_scales * IG_TILE;
	p.d = p.min + kb * f.n_mins * IG_TILE;
	p.m = p.d + halves;
	p.end = p.m + (f.has_m ? halves : 0);
	return p;
}

/* For tile16.c; 0 bytes for types of other layouts. */
uint64_t ig_tile_quants_bytes(uint32_t dtype, int64_t k);
void ig_tile_quants_pack_row(uint32_t dtype, const uint8_t *src, uint8_t *tile, int64_t k,
			     int lane);
void ig_tile_quants_row_to_f32(uint32_t dtype, const uint8_t *tile, int64_t k, int lane,
			       float *dst);
