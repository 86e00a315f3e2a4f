/*
 * route.c: the op moe_route: each row's experts and their weights from the router's logits, and the
 * step's assignments sorted by expert.  Routing is cheap (1 µs for a row of 128 logits, where the
 * row's experts take about 100 µs), so the kernel is one unit in plain C.
 */
#include "moe_private.h"

#include <errno.h>
#include <math.h>

static int check(struct ig_op_shape *s, struct ig_error *err)
{
	const struct ig_moe_route_params *p = s->params;

	if (s->n_in != 1 || s->n_weights != 0 || s->n_out != 1)
		return ig_fail(err, -EINVAL,
			       "moe_route: %u inputs, %u weights, %u outputs; takes "
			       "one, none and one",
			       s->n_in, s->n_weights, s->n_out);
	if (p->n_experts < 1 || p->n_experts > IG_MOE_MAX_EXPERTS)
		return ig_fail(err, -EINVAL, "moe_route: %u experts, not in 1 … %d", p->n_experts,
			       IG_MOE_MAX_EXPERTS);
	if (p->top_k < 1 || p->top_k > p->n_experts || p->top_k > IG_MOE_MAX_TOP_K)
		return ig_fail(err, -EINVAL, "moe_route: top_k is %u, not in 1 … %u", p->top_k,
			       p->n_experts < IG_MOE_MAX_TOP_K ? p->n_experts : IG_MOE_MAX_TOP_K);
	if (p->normalise > 1 || !isfinite(p->scale))
		return ig_fail(err, -EINVAL, "moe_route: normalise is %u, scale %g", p->normalise,
			       (double)p->scale);
	if (s->in[0].n_cols != p->n_experts || s->in[0].dtype != IG_F32)
		return ig_fail(err, -EINVAL,
			       "moe_route: logits have %lld columns of type %u, expected %u of F32",
			       (long long)s->in[0].n_cols, s->in[0].dtype, p->n_experts);
	s->out[0] = (struct ig_shape){ .n_cols = 4 * (int64_t)p->top_k,
				       .dtype = IG_I32,
				       .row_class = s->in[0].row_class };
	return 0;
}

/* NaN is smaller than any number, and equal to minus infinity. */
static float key_of(float x) { return x != x ? -INFINITY : x; }

/* The k largest of x[n], ties to the lower id, in ascending order of id; the largest key. */
static float choose(const float *x, uint32_t n, uint32_t k, uint32_t *ids)
{
	float key[IG_MOE_MAX_TOP_K] = { 0 }; /* descending */
	uint32_t n_kept = 0, at;

	for (uint32_t i = 0; i < n; i++) {
		const float v = key_of(x[i]);
		if (n_kept == k && !(v > key[k - 1]))
			continue;
		for (at = n_kept < k ? n_kept++ : k - 1; at > 0 && v > key[at - 1]; at--) {
			key[at] = key[at - 1];
			ids[at] = ids[at - 1];
		}
		key[at] = v;
		ids[at] = i;
	}
	for (uint32_t i = 1; i < k; i++) {
		const uint32_t id = ids[i];
		for (at = i; at > 0 && ids[at - 1] > id; at--)
			ids[at] = ids[at - 1];
		ids[at] = id;
	}
	return key[0];
}

static void route_row(const struct ig_moe_route_params *p, const float *x, uint32_t *ids,
		      float *weights)
{
	const float max = choose(x, p->n_experts, p->top_k, ids);
	float sum = 0;

	for (uint32_t j = 0; j < p->top_k; j++) {
		weights[j] = expf(x[ids[j]] - max);
		sum += weights[j];
	}
	if (!p->normalise) {
		sum = 0;
		for (uint32_t i = 0; i < p->n_experts; i++)
			sum += expf(x[i] - max);
	}
	for (uint32_t j = 0; j < p->top_k; j++)
		weights[j] = p->scale * weights[j] / sum;
}

/* order and runs, from ids: a counting sort. */
static void sort_assignments(const struct route *r, uint32_t n_experts)
{
	uint32_t next[IG_MOE_MAX_EXPERTS] = { 0 }; /* first counts, then indices in order */
	uint32_t n_runs = 0, place = 0;

	for (uint32_t a = 0; a < r->n; a++)
		next[*route_word(r, IG_ROUTE_IDS, a)]++;
	for (uint32_t e = 0; e < n_experts; e++) {
		const uint32_t count = next[e];
		if (count)
			*route_word(r, IG_ROUTE_RUNS, n_runs++) = place;
		next[e] = place;
		place += count;
	}
	while (n_runs < r->n)
		*route_word(r, IG_ROUTE_RUNS, n_runs++) = r->n;
	for (uint32_t a = 0; a < r->n; a++)
		*route_word(r, IG_ROUTE_ORDER, next[*route_word(r, IG_ROUTE_IDS, a)]++) = a;
}

static int64_t one_unit(const struct ig_op_launch *launch) { return 1; }

static void run(const struct ig_op_launch *launch, int64_t first, int64_t last, void *scratch)
{
	const struct ig_moe_route_params *p = launch->params;
	const struct ig_tensor *in = &launch->in[0];
	const struct route r = route_of(&launch->out[0], p->top_k);

	if (first >= last)
		return;
	for (uint32_t row = 0; row < in->n_rows; row++)
		route_row(p, (const float *)((const char *)in->data + row * in->row_stride),
			  route_word(&r, IG_ROUTE_IDS, row * p->top_k),
			  route_weight(&r, row * p->top_k));
	sort_assignments(&r, p->n_experts);
}

/* ---- the reference: as params.h and moe_private.h define it ----------------------------- */

/* Whether expert a has precedence over expert b. */
static int before(const float *x, uint32_t a, uint32_t b)
{
	return key_of(x[a]) != key_of(x[b]) ? key_of(x[a]) > key_of(x[b]) : a < b;
}

static void reference(const struct ig_op_launch *launch)
{
	const struct ig_moe_route_params *p = launch->params;
	const struct ig_tensor *in = &launch->in[0];
	const struct route r = route_of(&launch->out[0], p->top_k);
	uint32_t n_placed = 0, n_runs = 0;

	for (uint32_t row = 0; row < in->n_rows; row++) {
		const float *x = (const float *)((const char *)in->data + row * in->row_stride);
		double max = -INFINITY, all = 0, own = 0;
		uint32_t slot = row * p->top_k;
		for (uint32_t e = 0; e < p->n_experts; e++)
			max = (double)x[e] > max ? (double)x[e] : max;
		for (uint32_t e = 0; e < p->n_experts; e++) {
			const double v = exp((double)x[e] - max);
			uint32_t n_better = 0;
			all += v;
			for (uint32_t i = 0; i < p->n_experts; i++)
				n_better += before(x, i, e) ? 1 : 0;
			if (n_better >= p->top_k)
				continue;
			own += v;
			*route_word(&r, IG_ROUTE_IDS, slot) = e;
			*route_weight(&r, slot++) = (float)v;
		}
		for (slot = row * p->top_k; slot < (row + 1) * p->top_k; slot++) {
			float *w = route_weight(&r, slot);
			*w = (float)((double)p->scale * (double)*w / (p->normalise ? own : all));
		}
	}
	for (uint32_t e = 0; e < p->n_experts; e++) {
		const uint32_t begin = n_placed;
		for (uint32_t a = 0; a < r.n; a++)
			if (*route_word(&r, IG_ROUTE_IDS, a) == e)
				*route_word(&r, IG_ROUTE_ORDER, n_placed++) = a;
		if (n_placed > begin)
			*route_word(&r, IG_ROUTE_RUNS, n_runs++) = begin;
	}
	while (n_runs < r.n)
		*route_word(&r, IG_ROUTE_RUNS, n_runs++) = r.n;
}

static const struct ig_cpu_kernel kernels[] = {
	IG_CPU_KERNEL(IG_ISA_GENERIC, IG_UNITS_OTHER, one_unit, NULL, run),
};

const struct ig_op ig_op_moe_route = {
	.struct_size = sizeof(struct ig_op),
	.params_size = sizeof(struct ig_moe_route_params),
	.name = "moe_route",
	.version = 1,
	.check = check,
	.reference = reference,
	.cpu_kernels = kernels,
	.n_cpu_kernels = sizeof kernels / sizeof kernels[0],
	.gpu = &ig_gpu_moe_route,
};
