/*
 * super_blocks.c: blocks of 256 values in groups of 16 or 32, each with a small integer as its
 * scale (and another as its minimum) in units of two halves of the block.  The halves are chosen so
 * that the largest of the groups' best scales is representable.  Then two steps alternate: each
 * group takes the integers near its best scale with the least error, and the halves are fitted
 * again.
 */
#include "model/quantize/quantize_private.h"

#include "base/dtype.h"

#include <ingot/error.h>

#include <math.h>
#include <string.h>

#define MAX_PIECES 16

struct super {
	struct ig_quant_group p[MAX_PIECES];
	int n_pieces;
	float wish[MAX_PIECES], wish_min[MAX_PIECES];
	float d, m; /* halves */
	int scale[MAX_PIECES], min[MAX_PIECES];
	float error;
};

static void init(struct super *s, const float *x, const float *w, int piece)
{
	s->n_pieces = 256 / piece;
	for (int i = 0; i < s->n_pieces; i++) {
		s->p[i].x = x + i * piece;
		s->p[i].w = w + i * piece;
		s->p[i].n = piece;
	}
}

/* The half nearest to f; where halves are coarse one that is not smaller, so that the largest scale
 * is representable. */
static float reaching_half(float f)
{
	float h = ig_half_clamped(f);

	if (fabsf(h) < fabsf(f) && fabsf(f) < 0x1p-14f)
		h += copysignf(0x1p-24f, f);
	return h;
}

/* ---- scales alone ------------------------------------------------------------------------ */

/* Scales from -top to top - 1 for the half d; returns the error. */
static float choose_scales(struct super *s, const struct ig_grid *g, int top, float d)
{
	float total = 0;

	s->d = d;
	for (int i = 0; i < s->n_pieces; i++) {
		float like = d != 0 ? s->wish[i] / d : 0, best = INFINITY;
		int near = (int)lrintf(fminf(fmaxf(like, (float)-top), (float)(top - 1)));
		for (int c = near - 1; c <= near + 1; c++) {
			if (c < -top || c > top - 1)
				continue;
			float e = ig_quant_group_error(&s->p[i], g, d * (float)c);
			if (e < best) {
				best = e;
				s->scale[i] = c;
			}
		}
		ig_quant_group_error(&s->p[i], g, d * (float)s->scale[i]);
		total += best;
	}
	return total;
}

/* The best half for the current codes and scales. */
static float fit_scale(const struct super *s)
{
	double xv = 0, vv = 0;

	for (int i = 0; i < s->n_pieces; i++)
		for (int j = 0; j < s->p[i].n; j++) {
			double v = (double)s->scale[i] * s->p[i].q[j], wv = s->p[i].w[j] * v;
			xv += s->p[i].x[j] * wv;
			vv += wv * v;
		}
	return vv > 0 ? (float)(xv / vv) : 0;
}

static void scales_only(struct super *s, const struct ig_grid *g, int top)
{
	struct super best;
	float most = 0;

	for (int i = 0; i < s->n_pieces; i++) {
		s->wish[i] = ig_quant_group_scale(&s->p[i], g);
		if (fabsf(s->wish[i]) > fabsf(most))
			most = s->wish[i];
	}
	best.error = INFINITY;
	/* The negative end is larger; with few scales the next value may be better. */
	for (int end = -top; end <= -top + 1; end++) {
		float d = reaching_half(most / (float)end);
		for (int round = 0; round < 3; round++) {
			s->error = choose_scales(s, g, top, d);
			if (s->error < best.error)
				best = *s;
			else
				break;
			d = ig_half_clamped(fit_scale(s));
		}
	}
	*s = best;
}

/* ---- scales and minima --------------------------------------------------------------------- */

static float choose_both(struct super *s, float top, int n_scales, float d, float m)
{
	float total = 0;

	s->d = d;
	s->m = m;
	for (int i = 0; i < s->n_pieces; i++) {
		float like = d > 0 ? s->wish[i] / d : 0, like_min = m > 0 ? s->wish_min[i] / m : 0;
		int near = (int)lrintf(fminf(like, (float)(n_scales - 1)));
		int near_min = (int)lrintf(fminf(like_min, (float)(n_scales - 1)));
		float best = INFINITY;
		for (int c = near - 1; c <= near + 1; c++)
			for (int k = near_min - 1; k <= near_min + 1; k++) {
				if (c < 0 || c >= n_scales || k < 0 || k >= n_scales)
					continue;
				float e =
					ig_affine_error(&s->p[i], top, d * (float)c, m * (float)k);
				if (e < best) {
					best = e;
					s->scale[i] = c;
					s->min[i] = k;
				}
			}
		ig_affine_error(&s->p[i], top, d * (float)s->scale[i], m * (float)s->min[i]);
		total += best;
	}
	return total;
}

/* Fit x = d v - m k over all groups; false where the codes don't determine both. */
static bool fit_both(const struct super *s, float *d, float *m)
{
	double vv = 0, vk = 0, kk = 0, xv = 0, xk = 0;

	for (int i = 0; i < s->n_pieces; i++)
		for (int j = 0; j < s->p[i].n; j++) {
			double x = s->p[i].x[j], v = (double)s->scale[i] * s->p[i].q[j];
			double k = s->min[i], w = s->p[i].w[j];
			vv += w * v * v;
			vk += w * v * k;
			kk += w * k * k;
			xv += w * x * v;
			xk += w * x * k;
		}
	double det = vv * kk - vk * vk;
	if (det <= 1e-9 * vv * kk) {
		if (vv <= 0 || kk > 0)
			return false;
		*d = (float)(xv / vv);
		return *d > 0;
	}
	*d = (float)((xv * kk - xk * vk) / det);
	*m = (float)((xv * vk - xk * vv) / det);
	return *d > 0 && *m >= 0;
}

static void scales_and_mins(struct super *s, float top, int n_scales)
{
	float most = 0, most_min = 0, d, m;
	struct super best;

	for (int i = 0; i < s->n_pieces; i++) {
		ig_affine_scale(&s->p[i], top, false, &s->wish[i], &s->wish_min[i]);
		most = fmaxf(most, s->wish[i]);
		most_min = fmaxf(most_min, s->wish_min[i]);
	}
	best.error = INFINITY;
	d = reaching_half(most / (float)(n_scales - 1));
	m = reaching_half(most_min / (float)(n_scales - 1));
	for (int round = 0; round < 4; round++) {
		s->error = choose_both(s, top, n_scales, d, m);
		if (s->error >= best.error)
			break;
		best = *s;
		if (!fit_both(s, &d, &m))
			break;
		d = ig_half_clamped(d);
		m = ig_half_clamped(m);
	}
	*s = best;
}

/* ---- the formats ----------------------------------------------------------------------------- */

/* Two bits of each code from shift on, 32 bytes for 128 codes. */
static void pack_pairs(uint8_t *dst, const uint8_t *code, int shift)
{
	memset(dst, 0, 64);
	for (int i = 0; i < 256; i++)
		dst[i / 128 * 32 + i % 32] |=
			(uint8_t)((code[i] >> shift & 3) << (i % 128 / 32 * 2));
}

/* One bit of each code, bit i / 32 of byte i % 32. */
static void pack_planes(uint8_t *dst, const uint8_t *code, int shift)
{
	memset(dst, 0, 32);
	for (int i = 0; i < 256; i++)
		dst[i % 32] |= (uint8_t)((code[i] >> shift & 1) << (i / 32));
}

static void low_nibbles(uint8_t *dst, const uint8_t *code, int n)
{
	uint8_t low[256];

	for (int i = 0; i < 256; i++)
		low[i] = code[i] & 15;
	ig_pack_nibbles(dst, low, 256, n);
}

static void pack_scales_6(uint8_t *p, const struct super *s)
{
	for (int j = 0; j < 4; j++) {
		int scale = s->scale[4 + j], min = s->min[4 + j];
		p[j] = (uint8_t)(s->scale[j] | scale >> 4 << 6);
		p[4 + j] = (uint8_t)(s->min[j] | min >> 4 << 6);
		p[8 + j] = (uint8_t)((scale & 15) | (min & 15) << 4);
	}
}

static void codes_of(const struct super *s, const struct ig_grid *g, uint8_t *code)
{
	for (int i = 0; i < s->n_pieces; i++)
		for (int j = 0; j < s->p[i].n; j++)
			*code++ = g ? ig_grid_code(g, s->p[i].q[j]) : (uint8_t)s->p[i].q[j];
}

static void q2_k(struct super *s, uint8_t *dst)
{
	uint8_t code[256];

	scales_and_mins(s, 3, 16);
	codes_of(s, NULL, code);
	for (int j = 0; j < 16; j++)
		dst[j] = (uint8_t)(s->scale[j] | s->min[j] << 4);
	pack_pairs(dst + 16, code, 0);
	ig_put_half(dst + 80, s->d);
	ig_put_half(dst + 82, s->m);
}

static void q3_k(struct super *s, uint8_t *dst)
{
	struct ig_grid g;
	uint8_t code[256];

	ig_grid_init_signed(&g, 4);
	scales_only(s, &g, 32);
	codes_of(s, &g, code);
	pack_planes(dst, code, 2);
	pack_pairs(dst + 32, code, 0);
	memset(dst + 96, 0, 12);
	for (int j = 0; j < 16; j++) {
		int scale = s->scale[j] + 32;
		dst[96 + j % 8] |= (uint8_t)((scale & 15) << (j / 8 * 4));
		dst[104 + j % 4] |= (uint8_t)(scale >> 4 << (j / 4 * 2));
	}
	ig_put_half(dst + 108, s->d);
}

static void q4_k(struct super *s, uint8_t *dst)
{
	uint8_t code[256];

	scales_and_mins(s, 15, 64);
	codes_of(s, NULL, code);
	ig_put_half(dst, s->d);
	ig_put_half(dst + 2, s->m);
	pack_scales_6(dst + 4, s);
	ig_pack_nibbles(dst + 16, code, 256, 32);
}

static void q5_k(struct super *s, uint8_t *dst)
{
	uint8_t code[256];

	scales_and_mins(s, 31, 64);
	codes_of(s, NULL, code);
	ig_put_half(dst, s->d);
	ig_put_half(dst + 2, s->m);
	pack_scales_6(dst + 4, s);
	pack_planes(dst + 16, code, 4);
	low_nibbles(dst + 48, code, 32);
}

static void q6_k(struct super *s, uint8_t *dst)
{
	struct ig_grid g;
	uint8_t code[256];

	ig_grid_init_signed(&g, 32);
	scales_only(s, &g, 128);
	codes_of(s, &g, code);
	low_nibbles(dst, code, 64);
	pack_pairs(dst + 128, code, 4);
	for (int j = 0; j < 16; j++)
		dst[192 + j] = (uint8_t)(int8_t)s->scale[j];
	ig_put_half(dst + 208, s->d);
}

static void iq4_xs(struct super *s, uint8_t *dst)
{
	struct ig_grid g;
	uint8_t code[256];
	unsigned high = 0;

	ig_grid_init_iq4(&g);
	scales_only(s, &g, 32);
	codes_of(s, &g, code);
	ig_put_half(dst, s->d);
	memset(dst + 4, 0, 4);
	for (int j = 0; j < 8; j++) {
		int scale = s->scale[j] + 32;
		dst[4 + j / 2] |= (uint8_t)((scale & 15) << (j % 2 * 4));
		high |= (unsigned)(scale >> 4) << (2 * j);
	}
	dst[2] = (uint8_t)high;
	dst[3] = (uint8_t)(high >> 8);
	ig_pack_nibbles(dst + 8, code, 256, 16);
}

void ig_quantize_super(uint32_t dtype, const float *x, const float *w, uint8_t *dst)
{
	struct super s;

	init(&s, x, w, (int)ig_quant_type(dtype)->sub);
	switch (dtype) {
	case IG_Q2_K: q2_k(&s, dst); break;
	case IG_Q3_K: q3_k(&s, dst); break;
	case IG_Q4_K: q4_k(&s, dst); break;
	case IG_Q5_K: q5_k(&s, dst); break;
	case IG_Q6_K: q6_k(&s, dst); break;
	default: iq4_xs(&s, dst); break;
	}
}
