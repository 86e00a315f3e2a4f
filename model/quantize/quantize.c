/* quantize.c: see quantize.h.  Floats, halves, and blocks of 32 values; those of 256 are in
 * super_blocks.c, the search for scales in search.c. */
#include "model/quantize/quantize.h"

#include "model/formats/checkpoint.h"
#include "base/dtype.h"
#include "model/quantize/quantize_private.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <string.h>

/* ---- short floats --------------------------------------------------------------------- */

static uint32_t to_bits(float f)
{
	uint32_t bits;

	memcpy(&bits, &f, sizeof bits);
	return bits;
}

static float from_bits(uint32_t bits)
{
	float f;

	memcpy(&f, &bits, sizeof f);
	return f;
}

uint16_t ig_half_from(float f)
{
	uint32_t bits = to_bits(f), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;

	if (size >= 0x7f800000) /* infinity, NaN */
		return (uint16_t)(sign | 0x7c00 | (size > 0x7f800000 ? 0x200 : 0));
	if (size >= 0x477ff000) /* 65520 and above */
		return (uint16_t)(sign | 0x7c00);
	if (size < 0x38800000) /* below 2^-14: a multiple of 2^-24, which the sum rounds to */
		return (uint16_t)(sign | (to_bits(from_bits(size) + 0.5f) - to_bits(0.5f)));
	return (uint16_t)(sign | ((size + 0xfff + (size >> 13 & 1) - 0x38000000) >> 13));
}

float ig_half_to(uint16_t h)
{
	float f;

	ig_dtype_to_f32(IG_F16, &h, &f, 1);
	return f;
}

float ig_half_clamped(float f)
{
	return ig_half_to(ig_half_from(f > IG_HALF_MAX	? IG_HALF_MAX :
				       f < -IG_HALF_MAX ? -IG_HALF_MAX :
							  f));
}

void ig_put_half(uint8_t *p, float f)
{
	uint16_t h = ig_half_from(f);

	p[0] = (uint8_t)h;
	p[1] = (uint8_t)(h >> 8);
}

static uint16_t bf16_from(float f)
{
	uint32_t bits = to_bits(f);

	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* ---- blocks of 32 ------------------------------------------------------------------------ */

void ig_pack_nibbles(uint8_t *dst, const uint8_t *code, int n_values, int n)
{
	for (int at = 0; at < n_values; at += 2 * n, dst += n)
		for (int j = 0; j < n; j++)
			dst[j] = (uint8_t)(code[at + j] | code[at + n + j] << 4);
}

/* Bit 4 of 32 codes as a word; the codes keep their lower four. */
static void pack_word(uint8_t *dst, uint8_t *code)
{
	memset(dst, 0, 4);
	for (int i = 0; i < 32; i++) {
		dst[i / 8] |= (uint8_t)((code[i] >> 4) << (i % 8));
		code[i] &= 15;
	}
}

/* The half near d with the least error: where halves are coarse compared with the grid, this may
 * not be the nearest one. */
static float best_half(struct ig_quant_group *p, const struct ig_grid *g, float d)
{
	uint16_t h = ig_half_from(d);
	float best = INFINITY, best_d = 0;

	for (int by = -1; by <= 1; by++) {
		uint16_t near = (uint16_t)(h + by);
		if ((near & 0x7c00) == 0x7c00 || (near ^ h) & 0x8000)
			continue;
		float e = ig_quant_group_error(p, g, ig_half_to(near));
		if (e < best) {
			best = e;
			best_d = ig_half_to(near);
		}
	}
	ig_quant_group_error(p, g, best_d);
	return best_d;
}

static void one_scale(uint32_t dtype, const struct ig_grid *g, const float *x, const float *w,
		      uint8_t *dst)
{
	struct ig_quant_group p = { .x = x, .w = w, .n = 32 };
	uint8_t code[32];

	ig_put_half(dst, best_half(&p, g, ig_quant_group_scale(&p, g)));
	for (int i = 0; i < 32; i++)
		code[i] = ig_grid_code(g, p.q[i]);
	if (dtype == IG_Q5_0) {
		pack_word(dst + 2, code);
		ig_pack_nibbles(dst + 6, code, 32, 16);
	} else {
		ig_pack_nibbles(dst + 2, code, 32, 16);
	}
}

/* 255 levels need no search: the largest value maps to 127, and the scale is fitted once. */
static void q8_0(const struct ig_grid *g, const float *x, const float *w, uint8_t *dst)
{
	struct ig_quant_group p = { .x = x, .w = w, .n = 32 };
	float most = 0, xq = 0, qq = 0;

	for (int i = 0; i < 32; i++)
		most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
	ig_quant_group_error(&p, g, most / 127);
	for (int i = 0; i < 32; i++) {
		xq += w[i] * x[i] * p.q[i];
		qq += w[i] * p.q[i] * p.q[i];
	}
	float a = best_half(&p, g, most / 127), left = ig_quant_group_error(&p, g, a);
	float b = qq > 0 ? best_half(&p, g, xq / qq) : 0;
	float d = ig_quant_group_error(&p, g, b) < left ? b : a;
	ig_quant_group_error(&p, g, d);
	ig_put_half(dst, d);
	for (int i = 0; i < 32; i++)
		dst[2 + i] = (uint8_t)(int8_t)p.q[i];
}

static void scale_and_min(uint32_t dtype, const float *x, const float *w, uint8_t *dst)
{
	struct ig_quant_group p = { .x = x, .w = w, .n = 32 };
	float top = dtype == IG_Q5_1 ? 31 : 15, d, m;
	uint8_t code[32];

	ig_affine_scale(&p, top, true, &d, &m);
	/* Fit the minimum again to the codes of the rounded scale. */
	d = ig_half_clamped(d);
	m = ig_half_clamped(m);
	float left = ig_affine_error(&p, top, d, m), off = 0, all = 0;
	for (int i = 0; i < 32; i++) {
		off += w[i] * (d * p.q[i] - x[i]);
		all += w[i];
	}
	off = ig_half_clamped(off / all);
	if (ig_affine_error(&p, top, d, off) < left)
		m = off;
	ig_affine_error(&p, top, d, m);
	ig_put_half(dst, d);
	ig_put_half(dst + 2, -m);
	for (int i = 0; i < 32; i++)
		code[i] = (uint8_t)p.q[i];
	if (dtype == IG_Q5_1) {
		pack_word(dst + 4, code);
		ig_pack_nibbles(dst + 8, code, 32, 16);
	} else {
		ig_pack_nibbles(dst + 4, code, 32, 16);
	}
}

/* The scale is a power of two: try the few candidates. */
static void mxfp4(const struct ig_grid *g, const float *x, const float *w, uint8_t *dst)
{
	struct ig_quant_group p = { .w = w, .n = 32 };
	float most = 0, best = INFINITY, y[32];
	int exponent, best_e = 0;
	uint8_t code[32] = { 0 };

	for (int i = 0; i < 32; i++)
		most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
	p.x = y;
	if (most > 0) {
		frexpf(most, &exponent); /* most is from 2^(exponent - 1) up to 2^exponent */
		for (int e = exponent - 5; e <= exponent - 2; e++) {
			/* The byte b says 2^(b - 128) times the table's integers. */
			int b = e + 128 < 0 ? 0 : e + 128 > 254 ? 254 : e + 128;
			for (int i = 0; i < 32; i++)
				y[i] = ldexpf(x[i], 128 - b);
			float left =
				ldexpf(ig_quant_group_error(&p, g, 1), 2 * (b - 128 - exponent));
			if (left < best) {
				best = left;
				best_e = b;
				for (int i = 0; i < 32; i++)
					code[i] = ig_grid_code(g, p.q[i]);
			}
		}
	}
	dst[0] = (uint8_t)best_e;
	ig_pack_nibbles(dst + 1, code, 32, 16);
}

/* ---- rows ---------------------------------------------------------------------------------- */

bool ig_quantize_knows(uint32_t dtype)
{
	return dtype == IG_F32 || dtype == IG_F16 || dtype == IG_BF16 ||
	       (dtype != IG_Q8_M && ig_quant_type(dtype));
}

/* The largest magnitude of the type; slightly less where it depends on the rounding of a scale. */
static float limit(uint32_t dtype)
{
	switch (dtype) {
	case IG_F32: return FLT_MAX;
	case IG_F16: return 65519.99f; /* rounds to 65504 */
	case IG_BF16: return 0x1.fefffep127f;
	case IG_Q4_0: return 7 * 65000.0f;
	case IG_Q5_0: return 15 * 65000.0f;
	case IG_Q8_0: return 127 * 65000.0f;
	case IG_Q4_1:
	case IG_Q5_1: return 65000.0f; /* the minimum's */
	case IG_IQ4_NL: return 113 * 65000.0f;
	case IG_Q2_K: return 3 * 15 * 65000.0f;
	case IG_Q3_K: return 3 * 31 * 65000.0f;
	case IG_Q4_K: return 15 * 63 * 65000.0f;
	case IG_Q5_K: return 31 * 63 * 65000.0f;
	case IG_Q6_K: return 31 * 127 * 65000.0f;
	case IG_IQ4_XS: return 113 * 31 * 65000.0f;
	default: return 0x1.7fffp127f; /* MXFP4: 6 * 2^126 */
	}
}

static void put_block(uint32_t dtype, const struct ig_grid *g, const float *x, const float *w,
		      uint8_t *dst)
{
	switch (dtype) {
	case IG_Q4_0:
	case IG_Q5_0:
	case IG_IQ4_NL: one_scale(dtype, g, x, w, dst); break;
	case IG_Q8_0: q8_0(g, x, w, dst); break;
	case IG_Q4_1:
	case IG_Q5_1: scale_and_min(dtype, x, w, dst); break;
	case IG_MXFP4: mxfp4(g, x, w, dst); break;
	default: ig_quantize_super(dtype, x, w, dst); break;
	}
}

static double weighted_error(uint32_t dtype, const uint8_t *block, const float *x, const float *w,
			     int64_t n)
{
	float back[IG_MAX_BLOCK];
	double sum = 0;

	ig_dtype_to_f32(dtype, block, back, n);
	for (int64_t i = 0; i < n; i++)
		sum += w[i] * ((double)x[i] - back[i]) * ((double)x[i] - back[i]);
	return sum;
}

static void init_grid(uint32_t dtype, struct ig_grid *g)
{
	switch (dtype) {
	case IG_Q4_0: ig_grid_init_signed(g, 8); break;
	case IG_Q5_0: ig_grid_init_signed(g, 16); break;
	case IG_IQ4_NL: ig_grid_init_iq4(g); break;
	case IG_MXFP4: ig_grid_init_fp4(g); break;
	case IG_Q8_0: /* without -128: integer dot products rely on that */
		ig_grid_init_signed(g, 128);
		g->lo = -127;
		break;
	default: break;
	}
}

int ig_quantize_weighted(uint32_t dtype, const float *src, const float *weights, int64_t n,
			 void *dst, int64_t *at)
{
	const struct ig_quant_type *t = ig_quant_type(dtype);
	const float most = limit(dtype);
	uint8_t *p = dst, other[IG_MAX_BLOCK];
	float ones[IG_MAX_BLOCK];
	struct ig_grid grid;

	if (!ig_quantize_knows(dtype) || !ig_dtype_row_bytes(dtype, n))
		return -EINVAL;
	for (int64_t i = 0; i < n; i++)
		if (!(fabsf(src[i]) <= most)) { /* NaN too */
			if (at)
				*at = i;
			return -ERANGE;
		}
	if (dtype == IG_F32) {
		memcpy(dst, src, (size_t)n * sizeof *src);
		return 0;
	}
	if (dtype == IG_F16 || dtype == IG_BF16) {
		for (int64_t i = 0; i < n; i++) {
			uint16_t h = dtype == IG_F16 ? ig_half_from(src[i]) : bf16_from(src[i]);
			memcpy(p + 2 * i, &h, sizeof h);
		}
		return 0;
	}
	init_grid(dtype, &grid);
	for (int i = 0; i < IG_MAX_BLOCK; i++)
		ones[i] = 1;
	for (int64_t i = 0; i < n; i += t->values, p += t->bytes) {
		put_block(dtype, &grid, src + i, ones, p);
		if (!weights)
			continue;
		/* Unequal weights make the fits' sums ill-conditioned: compare. */
		put_block(dtype, &grid, src + i, weights + i, other);
		if (weighted_error(dtype, other, src + i, weights + i, t->values) <
		    weighted_error(dtype, p, src + i, weights + i, t->values))
			memcpy(p, other, t->bytes);
	}
	return 0;
}

int ig_quantize_row(uint32_t dtype, const float *src, int64_t n, void *dst, int64_t *at)
{
	return ig_quantize_weighted(dtype, src, NULL, n, dst, at);
}
