/* tile_quants.c: packing rows into the tiles of tile_quants.h, and reading them back. */
#include "ops/cpu/tile_quants.h"
#include "model/formats/checkpoint.h"
#include "ops/float.h"

uint64_t ig_tile_quants_bytes(uint32_t dtype, int64_t k)
{
	struct tile_format f = tile_format(dtype);
	if (!f.low_bits || !ig_dtype_row_bytes(dtype, k))
		return 0;
	return ((uint64_t)tile_planes(f, k / 32).end + 63) & ~(uint64_t)63;
}

/* Bits shift … shift + n - 1 of each of four codes, moved to bit `to` of their bytes. */
static uint32_t bits_of(uint32_t codes, int shift, int n, int to)
{
	return (codes >> shift & 0x01010101u * ((1u << n) - 1)) << to;
}

/* Write one block's 32 codes to its planes, four at a time. */
static void pack_codes(const struct tile_format *f, const uint8_t *code, uint8_t *q, uint8_t *h)
{
	uint32_t c[8], low, high = 0;

	memcpy(c, code, sizeof c);
	for (int g = 0; g < 4 && f->low_bits == 4; g++) {
		low = bits_of(c[g], 0, 4, 0) | bits_of(c[4 + g], 0, 4, 4);
		memcpy(q + g * 64, &low, 4);
	}
	for (int half = 0; half < 2; half++) {
		low = 0;
		for (int g = 0; g < 4; g++) {
			uint32_t four = c[4 * half + g];
			if (f->low_bits == 2)
				low |= bits_of(four, 0, 2, 2 * g);
			if (f->high_bits == 1)
				high |= bits_of(four, f->low_bits, 1, 4 * half + g);
			else if (f->high_bits == 2)
				high |= bits_of(four, 4, 2, 2 * g);
		}
		if (f->low_bits == 2)
			memcpy(q + half * 64, &low, 4);
		if (f->high_bits == 2) {
			memcpy(h + half * 64, &high, 4);
			high = 0;
		}
	}
	if (f->high_bits == 1)
		memcpy(h, &high, 4);
}

static void pack_block(uint32_t dtype, const struct ig_quant_block *qb, int first, int n, int lane,
		       const struct tile_format *f, uint8_t *q, uint8_t *h, uint8_t *scale,
		       uint8_t *min)
{
	for (int b = 0; b < n; b++) {
		int at = first + b;
		pack_codes(f, qb->code + b * 32, q + (int64_t)at * f->low_bits * 64 + lane * 4,
			   h + (int64_t)at * f->high_bits * 64 + lane * 4);
		for (int i = 0; i < f->n_scales; i++) {
			int j = b * f->n_scales + i;
			uint8_t s = dtype == IG_MXFP4 ? (uint8_t)qb->d_bits :
				    dtype == IG_Q2_K  ? (uint8_t)(qb->scale[j] | qb->min[j] << 4) :
							(uint8_t)qb->scale[j];
			scale[((int64_t)at * f->n_scales + i) * IG_TILE + lane] = s;
		}
		if (f->n_mins)
			min[(int64_t)at * IG_TILE + lane] = qb->min[b];
	}
}

void ig_tile_quants_pack_row(uint32_t dtype, const uint8_t *src, uint8_t *tile, int64_t k, int lane)
{
	const struct ig_quant_type *t = ig_quant_type(dtype);
	const struct tile_format f = tile_format(dtype);
	const struct tile_planes p = tile_planes(f, k / 32);
	int n = (int)(t->values / 32);
	struct ig_quant_block qb;

	for (int64_t b = 0; b < k / 32; b += n, src += t->bytes) {
		ig_quant_split(dtype, src, &qb);
		pack_block(dtype, &qb, (int)b, n, lane, &f, tile, tile + p.high, tile + p.scale,
			   tile + p.min);
		uint16_t d = (uint16_t)qb.d_bits, m = (uint16_t)qb.m_bits;
		if (f.d_blocks)
			memcpy(tile + p.d + b / f.d_blocks * 32 + lane * 2, &d, 2);
		if (f.has_m)
			memcpy(tile + p.m + b / f.d_blocks * 32 + lane * 2, &m, 2);
	}
}

static float half_at(const uint8_t *p)
{
	uint16_t h;
	memcpy(&h, p, 2);
	return ig_f32_from_f16(h);
}

static const int8_t iq4_values[16] = IG_IQ4_VALUES, fp4_values[16] = IG_FP4_VALUES;

static void read_codes(uint32_t dtype, const struct tile_format *f, const uint8_t *q,
		       const uint8_t *h, uint8_t *u)
{
	for (int half = 0; half < 2; half++)
		for (int g = 0; g < 4; g++)
			for (int i = 0; i < 4; i++) {
				int c = f->low_bits == 4 ? q[g * 64 + i] >> (4 * half) & 15 :
							   q[half * 64 + i] >> (2 * g) & 3;
				if (f->high_bits == 1)
					c |= (h[i] >> (4 * half + g) & 1) << f->low_bits;
				else if (f->high_bits == 2)
					c |= (h[half * 64 + i] >> (2 * g) & 3) << 4;
				if (dtype == IG_MXFP4)
					c = fp4_values[c] + f->offset;
				else if (dtype == IG_IQ4_NL || dtype == IG_IQ4_XS)
					c = iq4_values[c] + f->offset;
				u[16 * half + 4 * g + i] = (uint8_t)c;
			}
}

/* Block b of one output as kernels read it. */
struct tile_block {
	uint8_t u[32];
	int s[2], n[2]; /* of the block's halves; equal if 32 values share them */
	float d, m;	/* m as in the file: Q5_1 adds it, K-quants subtract m n */
};

static void read_block(uint32_t dtype, const uint8_t *tile, int64_t kb, int64_t b, int lane,
		       struct tile_block *out)
{
	const struct tile_format f = tile_format(dtype);
	const struct tile_planes p = tile_planes(f, kb);

	read_codes(dtype, &f, tile + b * f.low_bits * 64 + lane * 4,
		   tile + p.high + b * f.high_bits * 64 + lane * 4, out->u);
	for (int half = 0; half < 2; half++) {
		int i = f.n_scales == 2 ? half : 0;
		uint8_t s = f.n_scales ? tile[p.scale + (b * f.n_scales + i) * IG_TILE + lane] : 1;
		out->s[half] = dtype == IG_Q2_K ? s & 15 : (int8_t)s;
		out->n[half] = dtype == IG_Q2_K ? s >> 4 :
			       f.n_mins		? tile[p.min + b * IG_TILE + lane] :
						  1;
		if (dtype == IG_MXFP4) {
			out->s[half] = 1;
			out->d = ig_f32_from_bits(s < 2 ? 0x00200000u << s :
							  (uint32_t)(s - 1) << 23);
		}
	}
	if (f.d_blocks)
		out->d = half_at(tile + p.d + b / f.d_blocks * 32 + lane * 2);
	out->m = f.has_m ? half_at(tile + p.m + b / f.d_blocks * 32 + lane * 2) : 0.0f;
}

void ig_tile_quants_row_to_f32(uint32_t dtype, const uint8_t *tile, int64_t k, int lane, float *dst)
{
	const struct tile_format f = tile_format(dtype);
	float sign = dtype == IG_Q5_1 ? 1.0f : -1.0f;
	struct tile_block t;

	for (int64_t b = 0; b < k / 32; b++) {
		read_block(dtype, tile, k / 32, b, lane, &t);
		for (int i = 0; i < 32; i++) {
			float v = t.d * (float)t.s[i / 16] * (float)(t.u[i] - f.offset);
			*dst++ = f.has_m ? v + sign * (t.m * (float)t.n[i / 16]) : v;
		}
	}
}
