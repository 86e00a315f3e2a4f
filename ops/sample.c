/*
 * sample.c: samples token ids from logits, with each row's own parameters.  Penalties, biases and
 * the mask are applied to a row's logits.  Unless the row is greedy, its candidates get integer
 * weights, are cut by top_k, top_p and min_p, and one is sampled in the order of ids (arithmetic:
 * sampling.h).  NaN counts as -infinity.  If no logit is finite, or one is infinite, the lowest id
 * of the largest logit is taken; if the mask allows no token, id 0.  step->logits gets the model's
 * unchanged logits.
 */
#include "ops/op_private.h"
#include "ops/sampling.h"

static int check(struct ig_op_shape *s, struct ig_error *err)
{
	const struct ig_sample_op_params *p = s->params;

	if (s->n_in != 1 || s->n_weights != 0)
		return ig_fail(err, -EINVAL, "sample: takes one input and no weight");
	if (p->guess > 1)
		return ig_fail(err, -EINVAL, "sample: guess is not 0 or 1");
	if (s->in[0].row_class != (p->guess ? IG_ROWS_GUESSES : IG_ROWS_LOGITS) ||
	    s->in[0].dtype != IG_F32)
		return ig_fail(err, -EINVAL, "sample: the input is not logits");
	s->n_out = 0;
	return 0;
}

struct candidate {
	float x;
	int32_t id;
	uint32_t weight;
};

static int by_logit(const void *a, const void *b)
{
	const struct candidate *l = a, *r = b;
	return l->x != r->x ? (l->x < r->x) - (l->x > r->x) : (l->id > r->id) - (l->id < r->id);
}

static int by_id(const void *a, const void *b)
{
	const struct candidate *l = a, *r = b;
	return (l->id > r->id) - (l->id < r->id);
}

static uint64_t weight_of(const struct candidate *c, int64_t n)
{
	uint64_t sum = 0;
	for (int64_t i = 0; i < n; i++)
		sum += c[i].weight;
	return sum;
}

static int32_t sample(struct candidate *c, int64_t n, const struct ig_sample_params *p)
{
	float top = c[0].x, scale = ig_sample_scale(p);
	uint32_t least = ig_sample_min_weight(p);
	uint64_t want, sum = 0;
	int64_t i;

	for (i = 0; i < n; i++)
		c[i].weight = ig_sample_weight(ig_sample_distance(c[i].x, top, scale));
	if (p->top_k > 0 && p->top_k < n)
		n = p->top_k;
	if (p->top_p < 1.0f) {
		uint64_t need = ig_sample_need(weight_of(c, n), p);
		for (i = 0; sum < need; i++)
			sum += c[i].weight;
		n = i;
	}
	for (i = 0; i < n; i++)
		if (c[i].weight < least)
			c[i].weight = 0;
	qsort(c, (size_t)n, sizeof *c, by_id);
	want = ig_sample_place(weight_of(c, n), ig_sample_bits(p->seed, (uint64_t)p->position));
	for (i = 0; want >= c[i].weight; i++)
		want -= c[i].weight;
	return c[i].id;
}

static int32_t reference_row(const struct ig_step *s, const struct ig_sample_params *p,
			     const float *x, int64_t n, struct candidate *c)
{
	const uint32_t *mask = ig_sample_mask(s, p, n);
	int64_t m = 0;

	for (int64_t i = 0; i < n; i++) {
		float v = x[i];
		for (uint32_t e = p->first_adjust; e < p->first_adjust + p->n_adjusts; e++)
			if (s->adjusts[e].id == i)
				v = ig_sample_adjusted(v, &s->adjusts[e], p);
		if (ig_sample_is_allowed(mask, i))
			c[m++] = (struct candidate){ v != v ? -INFINITY : v, (int32_t)i, 0 };
	}
	if (m == 0)
		return 0;
	qsort(c, (size_t)m, sizeof *c, by_logit);
	return ig_sample_is_random(p) && fabsf(c[0].x) < INFINITY ? sample(c, m, p) : c[0].id;
}

static void reference(const struct ig_op_launch *c)
{
	int64_t n = c->in[0].n_cols;
	struct candidate *candidates = malloc((size_t)n * sizeof *candidates);

	if (!candidates)
		abort(); /* a reference runs in tests */
	for (int64_t r = 0; r < c->in[0].n_rows; r++) {
		const float *x = ig_row(&c->in[0], r);
		const struct ig_sample_row row = ig_sample_row_of(c, r);
		*row.id = reference_row(c->step, &row.params, x, n, candidates);
		if (row.logits)
			memcpy(row.logits, x, (size_t)n * sizeof(float));
	}
	free(candidates);
}

static int64_t units(const struct ig_op_launch *c) { return c->in[0].n_rows; }

#define ENTRY(name, isa)                                                                           \
	IG_CPU_KERNEL(isa, IG_UNITS_ROWS, units, ig_sample_scratch_##name, ig_sample_##name),
static const struct ig_cpu_kernel kernels[] = { ROWS_LIST(ENTRY) };

CORE_OP(sample, struct ig_sample_op_params, 0, IG_SPLIT_COPY);
