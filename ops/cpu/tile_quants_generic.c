/*
 * tile_quants_generic.c: products of the tiles of tile_quants.h in plain C, for any
 * processor: a block of sixteen outputs is unpacked once and multiplied with up to four
 * rows.  Loops over the sixteen lanes, or the 64 codes of a vector, become vectors.
 */
#include "ops/cpu/tile_kernels.h"
#include "ops/cpu/tile_quants.h"

#define FOR_LANES(o) for (int o = 0; o < IG_TILE; o++)

static const int8_t iq4_values[16] = IG_IQ4_VALUES, fp4_values[16] = IG_FP4_VALUES;

/* Block b of a tile: codes as u[half * 4 + g][output * 4 + i], scales by half and output. */
struct block {
	uint8_t u[8][64];
	float d[IG_TILE], m[IG_TILE];
	float s[2][IG_TILE], n[2][IG_TILE];
};

ALWAYS_INLINE void read_codes(uint32_t dtype, const uint8_t *q, const uint8_t *h, uint8_t (*u)[64])
{
	const struct tile_format f = tile_format(dtype);

	for (int half = 0; half < 2; half++)
		for (int g = 0; g < 4; g++) {
			uint8_t *to = u[half * 4 + g];
			for (int j = 0; j < 64; j++) {
				int c = f.low_bits == 4 ? q[g * 64 + j] >> (4 * half) & 15 :
							  q[half * 64 + j] >> (2 * g) & 3;
				if (f.high_bits == 1)
					c |= (h[j] >> (4 * half + g) & 1) << f.low_bits;
				else if (f.high_bits == 2)
					c |= (h[half * 64 + j] >> (2 * g) & 3) << 4;
				if (dtype == IG_MXFP4)
					c = fp4_values[c] + f.offset;
				else if (dtype == IG_IQ4_NL || dtype == IG_IQ4_XS)
					c = iq4_values[c] + f.offset;
				to[j] = (uint8_t)c;
			}
		}
}

ALWAYS_INLINE void read_halves(const uint8_t *p, float *to)
{
	uint16_t h[IG_TILE];
	memcpy(h, p, sizeof h);
	FOR_LANES(o)
		to[o] = ig_f32_from_f16(h[o]);
}

ALWAYS_INLINE void read_block(uint32_t dtype, const uint8_t *tile, int64_t kb, int64_t b,
			      struct block *to)
{
	const struct tile_format f = tile_format(dtype);
	const struct tile_planes p = tile_planes(f, kb);

	read_codes(dtype, tile + b * f.low_bits * 64, tile + p.high + b * f.high_bits * 64, to->u);
	for (int half = 0; half < 2; half++) {
		const uint8_t *s =
			tile + p.scale + (b * f.n_scales + (f.n_scales == 2 ? half : 0)) * IG_TILE;
		FOR_LANES(o) {
			to->s[half][o] = f.n_scales == 0 || dtype == IG_MXFP4 ? 1.0f :
					 dtype == IG_Q2_K		      ? (float)(s[o] & 15) :
										(float)(int8_t)s[o];
			to->n[half][o] = dtype == IG_Q2_K ? (float)(s[o] >> 4) :
					 f.n_mins	  ? (float)tile[p.min + b * IG_TILE + o] :
							    1.0f;
		}
	}
	if (dtype == IG_MXFP4) {
		const uint8_t *e = tile + p.scale + b * IG_TILE;
		FOR_LANES(o)
			to->d[o] = ig_f32_from_bits(e[o] < 2 ? 0x00200000u << e[o] :
							       (uint32_t)(e[o] - 1) << 23);
	} else {
		read_halves(tile + p.d + b / f.d_blocks * 32, to->d);
	}
	if (f.has_m)
		read_halves(tile + p.m + b / f.d_blocks * 32, to->m);
}

ALWAYS_INLINE void quants_q8(uint32_t dtype, const uint8_t *tile, int64_t k, const uint8_t *x,
			     int64_t stride, float *out, int n_rows)
{
	const struct tile_format f = tile_format(dtype);
	const int64_t kb = k / 32;
	struct block w;

	memset(out, 0, (size_t)n_rows * IG_TILE * sizeof *out);
	for (int64_t b = 0; b < kb; b++) {
		read_block(dtype, tile, kb, b, &w);
		for (int r = 0; r < n_rows; r++) {
			const uint8_t *row = x + r * stride;
			const int8_t *xq = (const int8_t *)row + b * 32;
			const float *xd = (const float *)(row + k), dx = xd[b], sx = xd[kb + b];
			const int32_t *neg = (const int32_t *)(xd + 2 * kb);
			const float neg_half[2] = { (float)neg[kb + b],
						    (float)(neg[b] - neg[kb + b]) };
			float *acc = out + r * IG_TILE;
			int32_t dot[2][IG_TILE] = { { 0 } };
			for (int v = 0; v < 8; v++)
				FOR_LANES(o)
					for (int i = 0; i < 4; i++)
						dot[v / 4][o] += (w.u[v][o * 4 + i] - f.offset) *
								 xq[v * 4 + i];
			if (f.n_scales == 2)
				FOR_LANES(o)
					acc[o] += (w.s[0][o] * (float)dot[0][o] +
						   w.s[1][o] * (float)dot[1][o]) *
						  (w.d[o] * dx);
			else
				FOR_LANES(o)
					acc[o] += (float)(dot[0][o] + dot[1][o]) *
						  (w.d[o] * w.s[0][o] * dx);
			if (f.has_m && f.n_scales == 2)
				FOR_LANES(o)
					acc[o] += (w.n[0][o] * neg_half[0] +
						   w.n[1][o] * neg_half[1]) *
						  (w.m[o] * dx);
			else if (f.has_m)
				FOR_LANES(o)
					acc[o] += (dtype == IG_Q5_1 ? w.m[o] :
								      -(w.m[o] * w.n[0][o])) *
						  sx;
		}
	}
}

ALWAYS_INLINE void quants_f32(uint32_t dtype, const uint8_t *tile, int64_t k, const uint8_t *x,
			      int64_t stride, float *out, int n_rows)
{
	const struct tile_format f = tile_format(dtype);
	const int64_t kb = k / 32;
	struct block w;

	memset(out, 0, (size_t)n_rows * IG_TILE * sizeof *out);
	for (int64_t b = 0; b < kb; b++) {
		read_block(dtype, tile, kb, b, &w);
		for (int i = 0; i < 32; i++) {
			float v[IG_TILE];
			FOR_LANES(o) {
				v[o] = w.d[o] * w.s[i / 16][o] *
				       (float)(w.u[i / 4][o * 4 + i % 4] - f.offset);
				if (f.has_m)
					v[o] += dtype == IG_Q5_1 ? w.m[o] :
								   -(w.m[o] * w.n[i / 16][o]);
			}
			for (int r = 0; r < n_rows; r++) {
				float xi = ((const float *)(x + r * stride))[b * 32 + i];
				FOR_LANES(o)
					out[r * IG_TILE + o] += v[o] * xi;
			}
		}
	}
}

TILE_QUANTS(TILE_QUANT_KERNELS_Q8, generic, ANY)
TILE_QUANTS(TILE_QUANT_KERNELS_F32, generic, ANY)
