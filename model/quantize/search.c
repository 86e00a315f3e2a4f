/*
 * search.c: finds the scale (and the minimum) of up to 32 weighted values.  For given codes the best scale
 * is a quotient of sums.  The codes are found by trying scales that put the largest value near the
 * end of the grid, then by alternating.  Twice as many trials lower the mean error of Q4_0 on
 * SmolLM2-135M by less than 0.1 %.  Vectors of four floats are a GNU C extension that gcc and clang
 * map to SSE and NEON.
 */
#include "model/quantize/quantize_private.h"

#include "base/dtype.h"

#include <math.h>
#include <string.h>

typedef float f4 __attribute__((vector_size(16)));
typedef int32_t i4 __attribute__((vector_size(16)));

static inline f4 splat(float f) { return (f4){ f, f, f, f }; }

static inline f4 load(const float *p)
{
	f4 v;

	memcpy(&v, p, sizeof v);
	return v;
}

static inline void store(float *p, f4 v) { memcpy(p, &v, sizeof v); }

static inline f4 clamp(f4 v, f4 lo, f4 hi)
{
	i4 over = v > hi, under = v < lo;

	v = (f4)(((i4)hi & over) | ((i4)v & ~over));
	return (f4)(((i4)lo & under) | ((i4)v & ~under));
}

/* To the nearest integer, for |v| < 2^22: above 2^23 floats have no fractions. */
static inline f4 nearest(f4 v)
{
	const f4 magic = splat(0x1.8p23f);

	return (v + magic) - magic;
}

static inline float sum(f4 v) { return (v[0] + v[1]) + (v[2] + v[3]); }

static float largest(const float *x, int n)
{
	float most = 0, at = 0;

	for (int i = 0; i < n; i++)
		if (fabsf(x[i]) > most) {
			most = fabsf(x[i]);
			at = x[i];
		}
	return at;
}

/* Where weights differ the best grid may leave out large values that count for little. */
static bool are_alike(const float *w, int n)
{
	for (int i = 1; i < n; i++)
		if (w[i] != w[0])
			return false;
	return true;
}

/* ---- one scale --------------------------------------------------------------------- */

/* The values on the grid that are nearest to inverse * x. */
static inline void to_grid(const struct ig_grid *g, const float *x, int n, float inverse, float *q)
{
	const f4 lo = splat(g->lo), hi = splat(g->hi), by = splat(inverse);

	if (!g->table) {
		for (int i = 0; i < n; i += 4)
			store(q + i, nearest(clamp(load(x + i) * by, lo, hi)));
		return;
	}
	/* floor(2 v), as an integer in the low bits of a float */
	const f4 half = splat(0.5f), magic = splat(0x1.8p23f);
	for (int i = 0; i < n; i += 4) {
		f4 v = clamp(load(x + i) * by, lo, hi);
		i4 at = (i4)(v + v - half + magic) & 0x3fffff;
		for (int j = 0; j < 4; j++)
			q[i + j] = g->table[g->cell[(at[j] + 256) & 511]];
	}
}

/* The decrease of the sum of squares by the best scale for these codes. */
static inline float gain(const float *x, const float *w, const float *q, int n, float *d)
{
	f4 xq = splat(0), qq = splat(0);

	for (int i = 0; i < n; i += 4) {
		f4 v = load(q + i);
		f4 wv = load(w + i) * v;
		xq += load(x + i) * wv;
		qq += wv * v;
	}
	float a = sum(xq), b = sum(qq);
	*d = b > 0 ? a / b : 0;
	return b > 0 ? a * *d : 0;
}

struct best_scale {
	float gain, d;
};

static void try_scale(struct ig_quant_group *p, const struct ig_grid *g, float inverse,
		      struct best_scale *best)
{
	float d;

	to_grid(g, p->x, p->n, inverse, p->q);
	float won = gain(p->x, p->w, p->q, p->n, &d);
	if (won > best->gain)
		*best = (struct best_scale){ won, d };
}

float ig_quant_group_scale(struct ig_quant_group *p, const struct ig_grid *g)
{
	/* Positions tried for the largest value, in gaps beyond the end; then, with weights, in ends. */
	static const float first = -1.3f, last = 0.65f, step = 0.13f;
	static const float first_far = 1.1f, last_far = 3.0f, step_far = 1.05f;
	const bool alike = are_alike(p->w, p->n);
	float most = largest(p->x, p->n);
	struct best_scale b = { 0, 0 };

	if (fabsf(most) <= IG_HALF_NOTHING)
		return 0;
	for (int side = 0; side < 2; side++) {
		float end = side ? g->hi : g->lo, gap = side ? g->gap_hi : -g->gap_lo;
		for (float u = first; u < last; u += step)
			try_scale(p, g, (end + u * gap) / most, &b);
		for (float u = first_far; !alike && u < last_far; u *= step_far)
			try_scale(p, g, end * u / most, &b);
	}
	for (int round = 0; round < 4 && b.d != 0; round++) {
		const float before = b.gain;
		try_scale(p, g, 1 / b.d, &b);
		if (b.gain <= before)
			break;
	}
	return b.d;
}

float ig_quant_group_error(struct ig_quant_group *p, const struct ig_grid *g, float d)
{
	f4 total = splat(0), by = splat(d);

	to_grid(g, p->x, p->n, d != 0 ? 1 / d : 0, p->q);
	for (int i = 0; i < p->n; i += 4) {
		f4 e = load(p->x + i) - by * load(p->q + i);
		total += load(p->w + i) * (e * e);
	}
	return sum(total);
}

/* ---- a scale and a minimum ------------------------------------------------------------ */

static inline void to_codes(const float *x, int n, float inverse, float m, float top, float *q)
{
	const f4 lo = splat(0), hi = splat(top), by = splat(inverse), add = splat(m);

	for (int i = 0; i < n; i += 4)
		store(q + i, nearest(clamp((load(x + i) + add) * by, lo, hi)));
}

/* The weighted squared error with the best scale and minimum for these codes. */
static float fit(const float *x, const float *w, const float *q, int n, bool free_min, float *d,
		 float *m)
{
	f4 vw = splat(0), vx = splat(0), vq = splat(0), vxx = splat(0), vxq = splat(0),
	   vqq = splat(0);

	for (int i = 0; i < n; i += 4) {
		f4 a = load(x + i), b = load(q + i), c = load(w + i), ca = c * a, cb = c * b;
		vw += c;
		vx += ca;
		vq += cb;
		vxx += ca * a;
		vxq += ca * b;
		vqq += cb * b;
	}
	float sw = sum(vw), sx = sum(vx), sq = sum(vq), sxx = sum(vxx), sxq = sum(vxq),
	      sqq = sum(vqq);
	float det = sw * sqq - sq * sq;

	*d = 0;
	*m = -sx / sw; /* if all codes are equal */
	if (det > 0) {
		*d = (sw * sxq - sx * sq) / det;
		*m = (sq * sxq - sqq * sx) / det;
	}
	if (!free_min && *m < 0) {
		*m = 0;
		*d = sqq > 0 ? sxq / sqq : 0;
	}
	return sxx - *d * sxq + *m * sx;
}

struct best_affine {
	float left, d, m;
};

/* A grid whose ends are about at -m and -m + top / inverse. */
static void try_affine(struct ig_quant_group *p, float top, bool free_min, float inverse, float m,
		       struct best_affine *best)
{
	float d;

	to_codes(p->x, p->n, inverse, m, top, p->q);
	float left = fit(p->x, p->w, p->q, p->n, free_min, &d, &m);
	if (left < best->left && d > 0)
		*best = (struct best_affine){ left, d, m };
}

void ig_affine_scale(struct ig_quant_group *p, float top, bool free_min, float *d, float *m)
{
	/* With weights, by how much of the range the grid may begin later and end earlier. */
	static const float clip = 0.45f, clip_step = 0.075f;
	const bool alike = are_alike(p->w, p->n);
	float low = p->x[0], high = p->x[0];

	for (int i = 1; i < p->n; i++) {
		low = p->x[i] < low ? p->x[i] : low;
		high = p->x[i] > high ? p->x[i] : high;
	}
	if (!free_min && low > 0)
		low = 0;
	*d = 0;
	*m = -low;
	if (high - low <= IG_HALF_NOTHING)
		return;
	struct best_affine b = { INFINITY, *d, *m };
	/* Try ends inside and outside of the grid, together and separately. */
	for (float u = -0.6f; u <= 1.21f; u += 0.15f)
		for (float shift = -0.3f; shift <= 0.31f; shift += 0.3f) {
			float inverse = (top + u) / (high - low);
			try_affine(p, top, free_min, inverse, shift / inverse - low, &b);
		}
	for (float from = 0; !alike && from < clip; from += clip_step)
		for (float to = 0; to < clip; to += clip_step) {
			float range = (1 - from - to) * (high - low);
			float begin = low + from * (high - low);
			try_affine(p, top, free_min, top / range,
				   free_min || begin < 0 ? -begin : 0, &b);
		}
	for (int round = 0; round < 4 && b.d > 0; round++) {
		const float before = b.left;
		try_affine(p, top, free_min, 1 / b.d, b.m, &b);
		if (b.left >= before)
			break;
	}
	*d = b.d;
	*m = b.m;
}

float ig_affine_error(struct ig_quant_group *p, float top, float d, float m)
{
	f4 total = splat(0), by = splat(d), off = splat(m);

	to_codes(p->x, p->n, d != 0 ? 1 / d : 0, m, top, p->q);
	for (int i = 0; i < p->n; i += 4) {
		f4 e = load(p->x + i) - by * load(p->q + i) + off;
		total += load(p->w + i) * (e * e);
	}
	return sum(total);
}

/* ---- grids ----------------------------------------------------------------------------- */

static const int8_t iq4_values[16] = IG_IQ4_VALUES;
static const int8_t fp4_values[16] = IG_FP4_VALUES;

void ig_grid_init_signed(struct ig_grid *g, int n)
{
	g->lo = (float)-n;
	g->hi = (float)(n - 1);
	g->gap_lo = g->gap_hi = 1;
	g->table = NULL;
}

/* Midpoints of the tables' values are multiples of one half, so none is within a cell.  codes: in
 * ascending order of their values. */
static void init_table(struct ig_grid *g, const int8_t *table, const uint8_t *codes, int n)
{
	int at = 0;

	g->lo = table[codes[0]];
	g->hi = table[codes[n - 1]];
	g->gap_lo = (float)table[codes[1]] - g->lo;
	g->gap_hi = g->hi - (float)table[codes[n - 2]];
	g->table = table;
	for (int i = 0; i < 512; i++) {
		/* the cell's middle is (2 i - 511) / 4 */
		while (at + 1 < n && 2 * i - 511 > 2 * (table[codes[at]] + table[codes[at + 1]]))
			at++;
		g->cell[i] = codes[at];
	}
}

void ig_grid_init_iq4(struct ig_grid *g)
{
	static const uint8_t codes[16] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };

	init_table(g, iq4_values, codes, 16);
}

/* Without code 8, which is zero too. */
void ig_grid_init_fp4(struct ig_grid *g)
{
	static const uint8_t codes[15] = { 15, 14, 13, 12, 11, 10, 9, 0, 1, 2, 3, 4, 5, 6, 7 };

	init_table(g, fp4_values, codes, 15);
}
