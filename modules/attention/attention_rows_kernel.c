/*
 * attention_rows_kernel.c: the kernel of attention_rows, compiled once per instruction set, which
 * ROWS_ISA names.  Compiler vectors of sixteen lanes; nothing is fused, so all copies have the same
 * bits.  A unit is one KV head and up to ROWS_UNIT rows of a text; the query vectors of these rows
 * and of the heads that share the KV head are the rows of two small products.
 *
 * Order of sums for one row and one query head, independent of other texts:
 *   positions in ranges of IG_ATTENTION_RANGE of the text; those that the row does not see have
 *   weight 0;
 *   q . k: one sum, dimensions ascending;
 *   sum of p: lane = position modulo 16, ascending, then one tree;
 *   p v: one sum a dimension, positions ascending;
 *   ranges are merged in ascending order.
 */
#include "rows.h"
#include "units.h"

#include <math.h>
#include <string.h>

#define CAT_(a, b) a##_##b
#define CAT(a, b) CAT_(a, b)
#define KERNEL(name) CAT(name, ROWS_ISA)
#define INLINE static inline __attribute__((always_inline))

#define VL 16	  /* lanes */
#define AT_ONCE 4 /* query vectors whose sums are in registers together */
#define RANGE IG_ATTENTION_RANGE

typedef float vec __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t ivec __attribute__((vector_size(64), aligned(4), may_alias));

struct unit {
	const struct ig_attention_rows_params *p;
	const struct ig_tensor *in;
	int64_t text, n;   /* its first row and its rows */
	int64_t first;	   /* of the unit, in the text */
	int n_rows, n_q;   /* n_q: rows * heads that share the KV head, a multiple of AT_ONCE */
	int dim, dim16;	   /* of a head; rounded up to 16 */
	size_t k_at, v_at; /* columns of the KV head */
	float *kt;	   /* [dim, 16]: sixteen positions of K, transposed */
	float *v;	   /* [RANGE, dim16] */
	float *q;	   /* [n_q, dim] */
	float *s;	   /* [n_q, RANGE]: scores, then weights */
	float *o, *o_all;  /* [n_q, dim16]: of one range; merged */
	float *max, *sum, *max_all, *sum_all; /* [n_q] */
};

static int heads_of(const struct ig_attention_rows_params *p)
{
	return (int)(p->n_heads / p->n_kv_heads);
}

/* Place the unit's arrays from base on; with base 0, count their bytes. */
static uint64_t lay_out(struct unit *u, const struct ig_attention_rows_params *p, uintptr_t base)
{
	const size_t n_q =
		((size_t)ROWS_UNIT * (size_t)heads_of(p) + AT_ONCE - 1) / AT_ONCE * AT_ONCE;
	const size_t dim = p->head_dim, dim16 = (dim + VL - 1) / VL * VL;
	uintptr_t at = (base + 63) & ~(uintptr_t)63;

#define TAKE(member, count)                                                                        \
	do {                                                                                       \
		u->member = (float *)at;                                                           \
		at += ((count) * sizeof(float) + 63) & ~(uintptr_t)63;                             \
	} while (0)
	TAKE(kt, dim * VL);
	TAKE(v, RANGE * dim16);
	TAKE(q, n_q * dim);
	TAKE(s, n_q * RANGE);
	TAKE(o, n_q * dim16);
	TAKE(o_all, n_q * dim16);
	TAKE(max, n_q);
	TAKE(sum, n_q);
	TAKE(max_all, n_q);
	TAKE(sum_all, n_q);
#undef TAKE
	return at - base + 63;
}

uint64_t KERNEL(ig_attention_rows_scratch)(const struct ig_op_launch *launch)
{
	struct unit u;

	return lay_out(&u, launch->params, 0);
}

/* e^x for x <= 0, within 3e-7 of its value; 0 below -87; NaN stays. */
INLINE void exp_of(vec *v)
{
	const vec x = *v;
	vec n = x * 1.44269504088896341f + 12582912.0f, r, p;
	ivec bits;

	memcpy(&bits, &n, sizeof bits);
	n -= 12582912.0f;
	r = x - n * 0.693145751953125f;
	r -= n * 1.42860682030941723212e-6f;
	p = 1.3981999507e-3f * r + 8.3334519073e-3f;
	p = p * r + 4.1665795894e-2f;
	p = p * r + 1.6666665459e-1f;
	p = p * r + 5.0000001201e-1f;
	p = p * r * r + r + 1.0f;
	bits = (bits - 0x4b400000 + 127) << 23;
	memcpy(&n, &bits, sizeof n);
	p *= n;
	memcpy(&bits, &p, sizeof bits);
	bits &= ~(x < -87.0f); /* NaN is not less */
	memcpy(v, &bits, sizeof *v);
}

INLINE float tree_sum(const vec *v)
{
	float a[VL];

	memcpy(a, v, sizeof a);
	for (int n = VL / 2; n; n /= 2)
		for (int i = 0; i < n; i++)
			a[i] += a[i + n];
	return a[0];
}

/* K of n positions from t on, up to sixteen, transposed; the others are 0. */
static void load_k(const struct unit *u, int64_t t, int n)
{
	for (int i = 0; i < VL; i++) {
		const float *k = (const float *)((const char *)u->in->data +
						 (u->text + t + i) * u->in->row_stride) +
				 u->k_at;
		for (int d = 0; d < u->dim; d++)
			u->kt[d * VL + i] = i < n ? k[d] : 0;
	}
}

/* V of n positions from t on. */
static void load_v(const struct unit *u, int64_t t, int n)
{
	for (int i = 0; i < n; i++) {
		const float *v = (const float *)((const char *)u->in->data +
						 (u->text + t + i) * u->in->row_stride) +
				 u->v_at;
		memcpy(u->v + (size_t)i * (size_t)u->dim16, v, (size_t)u->dim * sizeof *v);
	}
}

/* The scores of AT_ONCE query vectors from q on with the sixteen positions in kt. */
static void scores(const struct unit *u, int q, int at)
{
	const float *x = u->q + (size_t)q * (size_t)u->dim;
	vec acc[AT_ONCE];

	memset(acc, 0, sizeof acc);
	for (int d = 0; d < u->dim; d++) {
		const vec k = *(const vec *)(u->kt + d * VL);
		for (int i = 0; i < AT_ONCE; i++)
			acc[i] += x[i * u->dim + d] * k;
	}
	for (int i = 0; i < AT_ONCE; i++)
		*(vec *)(u->s + (size_t)(q + i) * RANGE + at) = acc[i];
}

/* Scores of positions base … base + n - 1 become weights e^(s - max) of those that the row sees. */
static void soft_max(const struct unit *u, int q, int row, int64_t base, int n)
{
	float *s = u->s + (size_t)q * RANGE, max = -INFINITY;
	const int n16 = (n + VL - 1) / VL * VL;
	int64_t lo, hi;
	vec sum;

	rows_seen(u->p, u->first + row, u->n, &lo, &hi);
	for (int t = 0; t < n16; t++) {
		const int64_t at = base + t;
		s[t] = at >= lo && at < hi && t < n ? s[t] * u->p->scale : -INFINITY;
		max = s[t] > max ? s[t] : max;
	}
	u->max[q] = max;
	memset(&sum, 0, sizeof sum);
	for (int t = 0; t < n16; t += VL) {
		vec x = *(const vec *)(s + t) - (max == -INFINITY ? 0.0f : max);
		exp_of(&x);
		*(vec *)(s + t) = x;
		sum += x;
	}
	u->sum[q] = tree_sum(&sum);
}

/* o = p V of AT_ONCE query vectors over n positions. */
static void values(const struct unit *u, int q, int n)
{
	for (int d = 0; d < u->dim16; d += VL) {
		vec acc[AT_ONCE];
		memset(acc, 0, sizeof acc);
		for (int t = 0; t < n; t++) {
			const vec v = *(const vec *)(u->v + (size_t)t * (size_t)u->dim16 + d);
			for (int i = 0; i < AT_ONCE; i++)
				acc[i] += u->s[(size_t)(q + i) * RANGE + t] * v;
		}
		for (int i = 0; i < AT_ONCE; i++)
			*(vec *)(u->o + (size_t)(q + i) * (size_t)u->dim16 + d) = acc[i];
	}
}

/* Add the range's result to the merged one; both are scaled relative to the larger maximum. */
static void merge(const struct unit *u, int q)
{
	float top = u->max_all[q] > u->max[q] ? u->max_all[q] : u->max[q];
	float *to = u->o_all + (size_t)q * (size_t)u->dim16;
	const float *o = u->o + (size_t)q * (size_t)u->dim16;

	if (u->max[q] == -INFINITY && u->sum[q] == 0)
		return; /* the row sees nothing of it */
	float a = expf(u->max_all[q] - top), b = expf(u->max[q] - top);
	u->sum_all[q] = u->sum_all[q] * a + u->sum[q] * b;
	u->max_all[q] = top;
	for (int d = 0; d < u->dim; d++)
		to[d] = to[d] * a + o[d] * b;
}

static void run_unit(const struct ig_op_launch *launch, struct unit *u, uint32_t kv_head)
{
	const struct ig_attention_rows_params *p = u->p;
	const int heads = heads_of(p);
	const size_t dim = (size_t)u->dim, dim16 = (size_t)u->dim16;
	int64_t lo, hi, end;

	u->n_q = (u->n_rows * heads + AT_ONCE - 1) / AT_ONCE * AT_ONCE;
	u->k_at = ((size_t)p->n_heads + kv_head) * dim;
	u->v_at = u->k_at + (size_t)p->n_kv_heads * dim;
	memset(u->q, 0, (size_t)u->n_q * dim * sizeof *u->q);
	memset(u->o_all, 0, (size_t)u->n_q * dim16 * sizeof *u->o_all);
	for (int q = 0; q < u->n_q; q++) {
		u->max_all[q] = -INFINITY;
		u->sum_all[q] = 0;
	}
	for (int q = 0; q < u->n_rows * heads; q++) {
		const int64_t row = u->text + u->first + q / heads;
		const float *x =
			(const float *)((const char *)u->in->data + row * u->in->row_stride);
		memcpy(u->q + (size_t)q * dim,
		       x + ((size_t)kv_head * (size_t)heads + (size_t)(q % heads)) * dim,
		       dim * sizeof *x);
	}
	rows_seen(p, u->first, u->n, &lo, &end);
	rows_seen(p, u->first + u->n_rows - 1, u->n, &hi, &end);
	for (int64_t base = lo - lo % RANGE; base < end; base += RANGE) {
		const int n = u->n - base < RANGE ? (int)(u->n - base) : RANGE;
		for (int t = 0; t < n; t += VL) {
			load_k(u, base + t, n - t < VL ? n - t : VL);
			for (int q = 0; q < u->n_q; q += AT_ONCE)
				scores(u, q, t);
		}
		for (int q = 0; q < u->n_q; q++) {
			/* the vectors that fill up the last four see what the last row sees */
			const int row = q / heads < u->n_rows ? q / heads : u->n_rows - 1;
			soft_max(u, q, row, base, n);
		}
		load_v(u, base, n);
		for (int q = 0; q < u->n_q; q += AT_ONCE)
			values(u, q, n);
		for (int q = 0; q < u->n_rows * heads; q++)
			merge(u, q);
	}
	for (int q = 0; q < u->n_rows * heads; q++) {
		const int64_t row = u->text + u->first + q / heads;
		float *y =
			(float *)((char *)launch->out[0].data + row * launch->out[0].row_stride) +
			((size_t)kv_head * (size_t)heads + (size_t)(q % heads)) * dim;
		for (size_t d = 0; d < dim; d++)
			y[d] = u->o_all[(size_t)q * dim16 + d] / u->sum_all[q];
	}
}

void KERNEL(ig_attention_rows)(const struct ig_op_launch *launch, int64_t first, int64_t last,
			       void *scratch)
{
	const struct ig_attention_rows_params *p = launch->params;
	const struct ig_step *step = launch->step;
	struct unit u = { .p = p, .in = &launch->in[0], .dim = (int)p->head_dim };
	int64_t row = group_row(step, ROWS_UNIT, first / p->n_kv_heads);

	lay_out(&u, p, (uintptr_t)scratch);
	u.dim16 = (u.dim + VL - 1) / VL * VL;
	memset(u.v, 0, (size_t)RANGE * (size_t)u.dim16 * sizeof *u.v);
	for (int64_t unit = first; unit < last; unit++) {
		const uint32_t kv_head = (uint32_t)(unit % p->n_kv_heads);
		u.first = step->positions[row];
		u.text = row - u.first;
		u.n = step->seq_lens[step->row_seq[row]];
		u.n_rows = (int)row_group(step, ROWS_UNIT, row);
		run_unit(launch, &u, kv_head);
		if (kv_head + 1 == p->n_kv_heads)
			row += u.n_rows;
	}
}
