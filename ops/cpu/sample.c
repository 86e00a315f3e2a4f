/*
 * sample.c: the cpu kernels of `sample`, one row at a time; ROWS_ISA names the copy (see rows.h).
 * Passes over the row are vectorised; nothing is sorted.  For top_k and top_p, logits are put into
 * 2048 buckets by their distance from the largest; the bucket of the cut is found from counts and
 * sums, and only its members are compared one by one.  The cut is a pair (value, id): candidates up
 * to it remain.
 */
#include "ops/cpu/rows.h"
#include "ops/sampling.h"

#define CAT_(a, b) a##_##b
#define CAT(a, b) CAT_(a, b)
#define KERNEL(op) CAT(op, ROWS_ISA)

#define LANES 16
#define BLOCK 1024 /* tokens per sum of weights: sampling has two steps */
#define BUCKETS 2048
#define BUCKET_SHIFT 20 /* from u to a bucket; weights in the last one are 0 */
#define LAST_BUCKET (BUCKETS - 1)

/* A worker's scratch memory. */
struct workspace {
	uint64_t *sums;	   /* [BUCKETS] */
	uint64_t *blocks;  /* [n / BLOCK + 1] sums of the remaining weights */
	uint32_t *counts;  /* [BUCKETS] */
	uint32_t *weights; /* [n] */
	float *x;	   /* [n] logits after penalties, biases and mask */
	int32_t *members;  /* [n] ids of one bucket, ascending */
	uint16_t *bucket;  /* [n] */
};

/* The last remaining candidate. */
struct cut {
	float x;
	int32_t id;
};

uint64_t KERNEL(ig_sample_scratch)(const struct ig_op_launch *c)
{
	uint64_t n = (uint64_t)c->in[0].n_cols;
	return BUCKETS * 12 + (n / BLOCK + 1) * 8 + n * 14;
}

static struct workspace workspace_in(void *scratch, int64_t n)
{
	struct workspace r;

	r.sums = scratch;
	r.blocks = r.sums + BUCKETS;
	r.counts = (uint32_t *)(r.blocks + n / BLOCK + 1);
	r.weights = r.counts + BUCKETS;
	r.x = (float *)(r.weights + n);
	r.members = (int32_t *)(r.x + n);
	r.bucket = (uint16_t *)(r.members + n);
	return r;
}

/* ---- the largest ---- */

static float largest(const float *x, int64_t n)
{
	float best[LANES];
	int64_t i = 0;

	for (int l = 0; l < LANES; l++)
		best[l] = -INFINITY;
	for (; i + LANES <= n; i += LANES)
		for (int l = 0; l < LANES; l++)
			best[l] = x[i + l] > best[l] ? x[i + l] : best[l];
	for (; i < n; i++)
		best[0] = x[i] > best[0] ? x[i] : best[0];
	for (int l = 1; l < LANES; l++)
		best[0] = best[l] > best[0] ? best[l] : best[0];
	return best[0];
}

/* The first id with the largest logit, the first that is allowed if all are -infinity
 * or NaN, 0 if none is allowed. */
static int32_t id_of_largest(const float *x, int64_t n, float top, const uint32_t *mask)
{
	if (top > -INFINITY) {
		for (int64_t i = 0; i < n; i++)
			if (x[i] == top)
				return (int32_t)i;
	}
	for (int64_t i = 0; i < n; i++)
		if (ig_sample_is_allowed(mask, i))
			return (int32_t)i;
	return 0;
}

/* ---- penalties and biases ---- */

static void adjust(const struct ig_step *s, const struct ig_sample_params *p, const uint32_t *mask,
		   const float *x, float *y, int64_t n)
{
	const struct ig_logit_adjust *e = s->adjusts + p->first_adjust;

	memcpy(y, x, (size_t)n * sizeof *y);
	for (uint32_t i = 0; i < p->n_adjusts; i++)
		if (e[i].id >= 0 && e[i].id < n)
			y[e[i].id] = ig_sample_adjusted(x[e[i].id], &e[i], p);
	for (int64_t i = 0; mask && i < n; i += 32) {
		uint32_t word = mask[i / 32];
		int64_t m = n - i < 32 ? n - i : 32;
		if (word == 0xffffffffu)
			continue;
		for (int64_t j = 0; j < m; j++)
			y[i + j] = word >> j & 1 ? y[i + j] : -INFINITY;
	}
}

/* ---- weights ---- */

/* All weights, their total, and the blocks' sums of those from least on. */
static uint64_t weigh(const float *x, int64_t n, float top, float scale, uint32_t least,
		      struct workspace *r)
{
	uint32_t *w = r->weights;
	uint64_t total = 0;

	for (int64_t b = 0; b <= n / BLOCK; b++) {
		int64_t first = b * BLOCK, end = first + BLOCK < n ? first + BLOCK : n;
		uint64_t all = 0, kept = 0;
		/* in two loops: in one, gcc makes branches of the bound and no vectors */
		for (int64_t i = first; i < end; i++)
			w[i] = ig_sample_distance(x[i], top, scale);
		for (int64_t i = first; i < end; i++)
			w[i] = ig_sample_weight(w[i]);
		for (int64_t i = first; i < end; i++) {
			all += w[i];
			kept += w[i] >= least ? w[i] : 0;
		}
		total += all;
		r->blocks[b] = kept;
	}
	return total;
}

static uint32_t weight_kept(uint32_t w, float x, int32_t id, struct cut cut, uint32_t least)
{
	bool kept = (x > cut.x) | ((x == cut.x) & (id <= cut.id));
	return (kept & (w >= least)) ? w : 0;
}

static void sum_kept(const struct workspace *r, const float *x, int64_t n, struct cut cut,
		     uint32_t least)
{
	for (int64_t b = 0; b <= n / BLOCK; b++) {
		int64_t end = (b + 1) * BLOCK < n ? (b + 1) * BLOCK : n;
		uint64_t kept = 0;
		for (int32_t i = (int32_t)b * BLOCK; i < (int32_t)end; i++)
			kept += weight_kept(r->weights[i], x[i], i, cut, least);
		r->blocks[b] = kept;
	}
}

/* ---- finding a cut ---- */

static void fill_buckets(const float *x, int64_t n, float top, float scale, struct workspace *r)
{
	for (int64_t i = 0; i < n; i++)
		r->bucket[i] = (uint16_t)(ig_sample_distance(x[i], top, scale) >> BUCKET_SHIFT);
	memset(r->sums, 0, BUCKETS * sizeof *r->sums);
	memset(r->counts, 0, BUCKETS * sizeof *r->counts);
	for (int64_t i = 0; i < n; i++) {
		r->counts[r->bucket[i]]++;
		r->sums[r->bucket[i]] += r->weights[i];
	}
}

/* Ordered as the floats are; both zeros are one. */
static int32_t order_of(float x)
{
	int32_t bits = (int32_t)ig_bits_from_f32(x);
	return x == 0.0f ? 0 : bits ^ (int32_t)((uint32_t)(bits >> 31) >> 1);
}

/* The shortest run of a bucket's candidates, in their order, whose weights (by_count:
 * whose number) reach target, which all of them do.  Its weights are added to *sum. */
static struct cut cut_bucket(const float *x, int64_t n, uint32_t bucket, bool by_count,
			     uint64_t target, const struct workspace *r, uint64_t *sum)
{
	int64_t m = 0, low = INT32_MAX, high = INT32_MIN;
	uint64_t above = 0;
	struct cut cut = { 0 };

	for (int64_t i = 0; i < n; i++) {
		int32_t order;
		if (r->bucket[i] != bucket)
			continue;
		r->members[m++] = (int32_t)i;
		order = order_of(x[i]);
		low = order < low ? order : low;
		high = order > high ? order : high;
	}
	/* Halve until one value is left: those from low on reach the target, those above
	 * high do not. */
	while (low < high) {
		int64_t middle = low + (high - low + 1) / 2;
		uint64_t have = 0;
		for (int64_t i = 0; i < m; i++)
			if (order_of(x[r->members[i]]) >= middle)
				have += by_count ? 1 : r->weights[r->members[i]];
		if (have >= target)
			low = middle;
		else
			high = middle - 1;
	}
	for (int64_t i = 0; i < m; i++)
		if (order_of(x[r->members[i]]) > low) {
			above += by_count ? 1 : r->weights[r->members[i]];
			*sum += r->weights[r->members[i]];
		}
	for (int64_t i = 0; i < m && above < target; i++)
		if (order_of(x[r->members[i]]) == low) {
			cut = (struct cut){ x[r->members[i]], r->members[i] };
			above += by_count ? 1 : r->weights[r->members[i]];
			*sum += r->weights[r->members[i]];
		}
	return cut;
}

/* What top_k and top_p keep. */
static struct cut find_cut(const float *x, int64_t n, const struct ig_sample_params *p,
			   uint64_t total, const struct workspace *r)
{
	struct cut cut = { -INFINITY, INT32_MAX };

	if (p->top_k > 0 && p->top_k < n) {
		uint64_t count = 0, sum = 0, k = (uint64_t)p->top_k;
		uint32_t b = 0;
		for (; b < LAST_BUCKET && count + r->counts[b] < k; b++) {
			count += r->counts[b];
			sum += r->sums[b];
		}
		/* Weights in the last bucket are 0: nothing is cut. */
		if (b < LAST_BUCKET) {
			cut = cut_bucket(x, n, b, true, k - count, r, &sum);
			total = sum;
		}
	}
	if (p->top_p < 1.0f) {
		uint64_t sum = 0, need = ig_sample_need(total, p);
		uint32_t b = 0;
		for (; sum + r->sums[b] < need; b++)
			sum += r->sums[b];
		cut = cut_bucket(x, n, b, false, need - sum, r, &sum);
	}
	return cut;
}

/* ---- sampling ---- */

static int32_t draw(const float *x, int64_t n, float top, const struct ig_sample_params *p,
		    struct workspace *r)
{
	float scale = ig_sample_scale(p);
	uint32_t least = ig_sample_min_weight(p);
	struct cut cut = { -INFINITY, INT32_MAX };
	uint64_t total = weigh(x, n, top, scale, least, r), want;
	int64_t b = 0, i;

	if ((p->top_k > 0 && p->top_k < n) || p->top_p < 1.0f) {
		fill_buckets(x, n, top, scale, r);
		cut = find_cut(x, n, p, total, r);
		sum_kept(r, x, n, cut, least);
	}
	total = 0;
	for (int64_t j = 0; j <= n / BLOCK; j++)
		total += r->blocks[j];
	want = ig_sample_place(total, ig_sample_bits(p->seed, (uint64_t)p->position));
	while (want >= r->blocks[b])
		want -= r->blocks[b++];
	for (i = b * BLOCK;; i++) {
		uint32_t w = weight_kept(r->weights[i], x[i], (int32_t)i, cut, least);
		if (want < w)
			return (int32_t)i;
		want -= w;
	}
}

void KERNEL(ig_sample)(const struct ig_op_launch *c, int64_t first, int64_t last, void *scratch)
{
	int64_t n = c->in[0].n_cols;
	struct workspace r = workspace_in(scratch, n);

	for (int64_t i = first; i < last; i++) {
		const float *x = (const float *)((char *)c->in[0].data + i * c->in[0].row_stride);
		const struct ig_sample_row row = ig_sample_row_of(c, i);
		const struct ig_sample_params *p = &row.params;
		const uint32_t *mask = ig_sample_mask(c->step, p, n);
		float top;
		if (row.logits)
			memcpy(row.logits, x, (size_t)n * sizeof *x);
		if (mask || p->n_adjusts) {
			adjust(c->step, p, mask, x, r.x, n);
			x = r.x;
		}
		top = largest(x, n);
		*row.id = ig_sample_is_random(p) && fabsf(top) < INFINITY ?
				  draw(x, n, top, p, &r) :
				  id_of_largest(x, n, top, mask);
	}
}
