/* rows.c: see rows.h. */
#include "ops/adapt.h"
#include "ops/cpu/rows.h"
#include "ops/float.h"

#define CAT_(a, b) a##_##b
#define CAT(a, b) CAT_(a, b)
#define KERNEL(op) CAT(op, ROWS_ISA)

#define LANES 16

/* Sixteen sums over every sixteenth value, then a fixed tree. */
static float tree_sum(const float *v)
{
	float a[8], b[4];
	for (int i = 0; i < 8; i++)
		a[i] = v[i] + v[i + 8];
	for (int i = 0; i < 4; i++)
		b[i] = a[i] + a[i + 4];
	return (b[0] + b[2]) + (b[1] + b[3]);
}

static float sum_of(const float *x, int64_t n)
{
	float acc[LANES] = { 0 };
	int64_t i = 0;
	for (; i + LANES <= n; i += LANES)
		for (int l = 0; l < LANES; l++)
			acc[l] += x[i + l];
	for (; i < n; i++)
		acc[i % LANES] += x[i];
	return tree_sum(acc);
}

/* The sum of (x - mean)^2. */
static float squares_of(const float *x, float mean, int64_t n)
{
	float acc[LANES] = { 0 };
	int64_t i = 0;
	for (; i + LANES <= n; i += LANES)
		for (int l = 0; l < LANES; l++) {
			float v = x[i + l] - mean;
			acc[l] += v * v;
		}
	for (; i < n; i++) {
		float v = x[i] - mean;
		acc[i % LANES] += v * v;
	}
	return tree_sum(acc);
}

static void norm_row(const struct ig_norm_params *p, const float *x, const float *w,
		     const float *bias, float *y, int64_t n)
{
	float mean = p->kind == IG_NORM_LAYER ? sum_of(x, n) / (float)n : 0.0f;
	float scale = 1.0f / sqrtf(squares_of(x, mean, n) / (float)n + p->eps);

	if (bias)
		for (int64_t i = 0; i < n; i++)
			y[i] = (x[i] - mean) * scale * w[i] + bias[i];
	else if (!w)
		for (int64_t i = 0; i < n; i++)
			y[i] = x[i] * scale;
	else
		for (int64_t i = 0; i < n; i++)
			y[i] = (x[i] - mean) * scale * w[i];
}

static float *row_of(const struct ig_tensor *t, int64_t r)
{
	return (float *)((char *)t->data + r * t->row_stride);
}

void KERNEL(ig_norm)(const struct ig_op_launch *c, int64_t first, int64_t last, void *s)
{
	const struct ig_norm_params *p = c->params;
	const float *bias = c->n_weights > 1 ? c->weight[1].data : NULL;
	const float factor = ig_norm_factor(c);
	int64_t n = c->out[0].n_cols, group = p->group ? p->group : n;

	for (int64_t r = first; r < last; r++) {
		int64_t from = p->gather ? ig_step_gathered(c->step, p->gather, r) : r;
		const float *x = row_of(&c->in[0], from);
		const float *delta = c->in[1].data ? row_of(&c->in[1], from) : NULL;
		float *y = row_of(&c->out[0], r);
		if (delta && !p->after) {
			float *sum = row_of(&c->out[1], r);
			for (int64_t i = 0; i < n; i++)
				sum[i] = x[i] + delta[i];
			x = sum;
		}
		for (int64_t at = 0; at < n; at += group)
			norm_row(p, x + at, c->weight[0].data, bias, y + at, group);
		if (p->after)
			for (int64_t i = 0; i < n; i++)
				y[i] = (y[i] + delta[i]) * factor;
	}
}

void KERNEL(ig_multiply)(const struct ig_op_launch *c, int64_t first, int64_t last, void *s)
{
	const struct ig_multiply_params *p = c->params;
	int64_t n = c->out[0].n_cols;

	for (int64_t r = first; r < last; r++) {
		const float *a = row_of(&c->in[0], r), *b = row_of(&c->in[1], r) + p->first;
		float *y = row_of(&c->out[0], r);
		for (int64_t i = 0; i < n; i++)
			y[i] = a[i] * b[i];
	}
}

/* A unit is a part of a row. */
void KERNEL(ig_soft_cap)(const struct ig_op_launch *c, int64_t first, int64_t last, void *s)
{
	const struct ig_soft_cap_params *p = c->params;
	const float scale = p->scale, cap = p->cap, by = cap > 0 ? scale / cap : scale;
	int64_t n = c->out[0].n_cols;
	int64_t parts = (n + IG_SOFT_CAP_COLUMNS - 1) / IG_SOFT_CAP_COLUMNS;

	for (int64_t u = first; u < last; u++) {
		const float *x = row_of(&c->in[0], u / parts);
		float *y = row_of(&c->out[0], u / parts);
		int64_t from = u % parts * IG_SOFT_CAP_COLUMNS;
		int64_t to = from + IG_SOFT_CAP_COLUMNS < n ? from + IG_SOFT_CAP_COLUMNS : n;
		if (cap > 0)
			for (int64_t i = from; i < to; i++)
				y[i] = cap * ig_tanhf(x[i] * by);
		else
			for (int64_t i = from; i < to; i++)
				y[i] = x[i] * by;
	}
}

/* ---- layouts of activations ---- */

/* Adding and taking off 1.5 * 2^23 rounds to the nearest integer, ties to even. */
#define ROUNDER 12582912.0f

/* A value that is more than this many times as large as the others of its block is an outlier,
 * stored separately: otherwise the others would lose precision. */
#define OUTLIER 4.0f

static uint32_t magnitude(float x) { return ig_bits_from_f32(x) & 0x7fffffffu; }

#ifdef __AVX2__
#include "ops/cpu/pack_x86.h"
#else
/* Bits of the largest magnitude of a block. */
static uint32_t largest(const float *x)
{
	uint32_t top = 0;
	for (int i = 0; i < 32; i++) {
		uint32_t m = magnitude(x[i]);
		top = m > top ? m : top;
	}
	return top;
}

/* Whether the largest value of a block, with these bits, is an outlier. */
static bool has_outlier(const float *x, uint32_t top)
{
	const float amax = ig_f32_from_bits(top);
	int n_near = 0;
	for (int i = 0; i < 32; i++)
		n_near += OUTLIER * ig_f32_from_bits(magnitude(x[i])) >= amax;
	return top < 0x7f800000u && n_near == 1;
}

/* The codes of a finite block; sum: of either half. */
static void codes(const float *x, float inv, int8_t *q, int32_t sum[2])
{
	sum[0] = sum[1] = 0;
	for (int h = 0; h < 2; h++)
		for (int i = 16 * h; i < 16 * h + 16; i++) {
			float v = x[i] * inv + ROUNDER;
			int32_t n = (int32_t)(ig_bits_from_f32(v) - 0x4b400000u);
			q[i] = (int8_t)n;
			sum[h] += n;
		}
}
#endif

/* Split a block into its largest value, *outlier, and the rest; returns the value's index. */
static int split_outlier(const float *x, uint32_t top, float *rest, float *outlier)
{
	int at = 0;

	while (magnitude(x[at]) != top)
		at++;
	memcpy(rest, x, 32 * sizeof *rest);
	rest[at] = 0.0f;
	*outlier = x[at];
	return at;
}

void KERNEL(ig_pack_q8)(const struct ig_op_launch *c, int64_t first, int64_t last, void *s)
{
	int64_t k = c->in[0].n_cols, kb = k / 32;

	for (int64_t r = first; r < last; r++) {
		int8_t *q = (int8_t *)c->out[0].data + r * c->out[0].row_stride;
		float *d = (float *)(q + k), *sums = d + kb;
		int32_t *neg = (int32_t *)(sums + kb), *neg_half = neg + kb;
		float *outlier = (float *)(neg_half + kb), rest[32];
		int32_t *next = (int32_t *)(outlier + kb);
		for (int64_t b = 0; b < kb; b++, q += 32) {
			const float *x = row_of(&c->in[0], r) + b * 32;
			uint32_t top = largest(x);
			outlier[b] = 0.0f;
			next[b] = INT32_MAX; /* none */
			if (has_outlier(x, top)) {
				next[b] = split_outlier(x, top, rest, &outlier[b]);
				x = rest;
				top = largest(rest);
			}
			float amax = ig_f32_from_bits(top);
			float scale = amax / 127.0f;
			/* A block that is not finite cannot be quantized: its scale is infinity or
			 * NaN, its integers are 0 or 1. */
			float inv = amax > 0x1p-100f && amax < INFINITY ? 127.0f / amax : 0.0f;
			int32_t sum[2];
			if (inv != 0.0f) {
				codes(x, inv, q, sum);
			} else {
				memset(q, top >= 0x7f800000u, 32);
				sum[0] = sum[1] = top >= 0x7f800000u ? 16 : 0;
			}
			d[b] = scale;
			sums[b] = scale * (float)(sum[0] + sum[1]);
			neg[b] = -(sum[0] + sum[1]);
			neg_half[b] = -sum[0];
		}
		for (int64_t b = kb - 1, on = kb; b >= 0; b--) {
			on = next[b] == INT32_MAX ? on : b;
			next[b] = on == b ? next[b] : (int32_t)(on - b) * 32;
		}
	}
}

void KERNEL(ig_pack_bf16)(const struct ig_op_launch *c, int64_t first, int64_t last, void *s)
{
	int64_t k = c->in[0].n_cols;

	for (int64_t r = first; r < last; r++) {
		const float *x = row_of(&c->in[0], r);
		uint16_t *y = (uint16_t *)((char *)c->out[0].data + r * c->out[0].row_stride);
		for (int64_t i = 0; i < k; i++)
			y[i] = ig_bf16_from_f32(x[i]);
		if (k % 2)
			y[k] = 0;
	}
}

/* ---- adapters (ops/adapt.h) ------------------------------------------------------------- */

#define UP_COLUMNS 512 /* of a unit, as in ops/adapt.c */

static float dot(const float *a, const float *b, int64_t n)
{
	float acc[LANES] = { 0 };
	int64_t i = 0;

	for (; i + LANES <= n; i += LANES)
		for (int l = 0; l < LANES; l++)
			acc[l] += a[i + l] * b[i + l];
	for (; i < n; i++)
		acc[i % LANES] += a[i] * b[i];
	return tree_sum(acc);
}

static int32_t adapter_of(const struct ig_op_launch *c, int64_t r)
{
	const struct ig_adapt_params *p = c->params;

	return c->step->row_adapter[p->gathered ? c->step->logit_rows[r] : r];
}

/* A unit is one value of h. */
void KERNEL(ig_adapt_down)(const struct ig_op_launch *c, int64_t first, int64_t last, void *s)
{
	const struct ig_adapt_params *p = c->params;
	int64_t width = c->out[0].n_cols;

	for (int64_t u = first; u < last; u++) {
		int64_t r = u / width, column = u % width;
		int32_t a = adapter_of(c, r);
		uint32_t i = 0;
		if (a < 0)
			continue;
		while (column >= p->column[i + 1])
			i++;
		int64_t k = p->first[i][a] + column - p->column[i];
		if (k < p->first[i][a + 1])
			row_of(&c->out[0], r)[column] =
				p->scale[i][a] * dot(row_of(&c->weight[i], k), row_of(&c->in[0], r),
						     c->in[0].n_cols);
	}
}

/* Add to columns at … at + n - 1 of weight i's part of y. */
static void add_columns(const struct ig_op_launch *c, uint32_t i, int32_t a, const float *h,
			float *y, int64_t at, int64_t n)
{
	const struct ig_adapt_params *p = c->params;

	for (int32_t k = p->first[i][a]; k < p->first[i][a + 1]; k++) {
		const float *b = row_of(&c->weight[i], k) + at;
		float x = h[p->column[i] + k - p->first[i][a]];
		for (int64_t o = 0; o < n; o++)
			y[o] += x * b[o];
	}
}

/* A unit is a part of a row of y. */
void KERNEL(ig_adapt_up)(const struct ig_op_launch *c, int64_t first, int64_t last, void *s)
{
	const struct ig_adapt_params *p = c->params;
	int64_t width = c->out[0].n_cols, parts = (width + UP_COLUMNS - 1) / UP_COLUMNS;

	for (int64_t u = first; u < last; u++) {
		int64_t r = u / parts, from = u % parts * UP_COLUMNS, begin = 0;
		int64_t to = from + UP_COLUMNS < width ? from + UP_COLUMNS : width;
		int32_t a = adapter_of(c, r);
		for (uint32_t i = 0; a >= 0 && i < p->n_weights; begin += p->n_rows[i++]) {
			int64_t lo = from > begin ? from : begin, hi = begin + p->n_rows[i];
			hi = to < hi ? to : hi;
			if (lo < hi)
				add_columns(c, i, a, row_of(&c->in[0], r),
					    row_of(&c->out[0], r) + lo, lo - begin, hi - lo);
		}
	}
}

void KERNEL(ig_glu_join)(const struct ig_op_launch *c, int64_t first, int64_t last, void *s)
{
	const struct ig_glu_join_params *p = c->params;
	int64_t n = c->out[0].n_cols;

	for (int64_t r = first; r < last; r++) {
		const float *g = row_of(&c->in[0], r), *u = g + n;
		float *y = row_of(&c->out[0], r);
		if (p->act == IG_ACT_SILU)
			for (int64_t o = 0; o < n; o++)
				y[o] = ig_siluf(g[o]) * u[o];
		else if (p->act == IG_ACT_GELU)
			for (int64_t o = 0; o < n; o++)
				y[o] = ig_geluf(g[o]) * u[o];
		else
			for (int64_t o = 0; o < n; o++)
				y[o] = g[o] * u[o];
	}
}
