/*
 * route.c: the op moe_route: each row's experts and their weights from the router's logits, and the
 * step's assignments sorted by expert.  Routing is cheap (1 µs for a row of 128 logits, where the
 * row's experts take about 100 µs), so the kernel is one unit in plain C.
 */
#include "moe_private.h"

#include <errno.h>
#include <math.h>

/* The weights' places; -1: there is none. */
static int bias_at(const struct ig_moe_route_params *p) { return p->select_bias ? 0 : -1; }

static int scale_at(const struct ig_moe_route_params *p)
{
	return p->expert_scale ? (int)p->select_bias : -1;
}

static int check_options(const struct ig_moe_route_params *p, struct ig_error *err)
{
	const uint32_t in_group = p->n_groups ? p->n_experts / p->n_groups : p->n_experts;

	if (p->normalise > 1 || !isfinite(p->scale) || !(p->sum_epsilon >= 0) ||
	    !isfinite(p->sum_epsilon))
		return ig_fail(err, -EINVAL, "moe_route: normalise is %u, scale %g, sum_epsilon %g",
			       p->normalise, (double)p->scale, (double)p->sum_epsilon);
	if (p->gating > IG_GATING_SIGMOID || p->select_bias > 1 || p->expert_scale > 1 ||
	    p->shared > 1)
		return ig_fail(err, -EINVAL,
			       "moe_route: gating is %u, select_bias %u, expert_scale %u, shared "
			       "%u",
			       p->gating, p->select_bias, p->expert_scale, p->shared);
	if (p->gating != IG_GATING_SIGMOID && (p->select_bias || p->n_groups))
		return ig_fail(err, -ENOTSUP,
			       "moe_route: a selection bias and groups need sigmoid gating");
	if (p->n_groups > IG_MOE_MAX_GROUPS ||
	    (p->n_groups && (p->n_experts % p->n_groups || in_group < 2)))
		return ig_fail(err, -EINVAL,
			       "moe_route: %u groups of %u experts; up to %d of equal size, of at "
			       "least two, are supported",
			       p->n_groups, p->n_experts, IG_MOE_MAX_GROUPS);
	if (p->n_groups && (p->n_groups_used < 1 || p->n_groups_used > p->n_groups ||
			    p->top_k > p->n_groups_used * in_group))
		return ig_fail(err, -EINVAL, "moe_route: %u experts from %u of %u groups of %u",
			       p->top_k, p->n_groups_used, p->n_groups, in_group);
	return 0;
}

static int check(struct ig_op_shape *s, struct ig_error *err)
{
	const struct ig_moe_route_params *p = s->params;
	int rc;

	if (s->n_in != 1 || s->n_weights > 2 || s->n_out != 1)
		return ig_fail(err, -EINVAL,
			       "moe_route: %u inputs, %u weights, %u outputs; takes "
			       "one, up to two and one",
			       s->n_in, s->n_weights, s->n_out);
	if (p->n_experts < 1 || p->n_experts > IG_MOE_MAX_EXPERTS)
		return ig_fail(err, -EINVAL, "moe_route: %u experts, not in 1 … %d", p->n_experts,
			       IG_MOE_MAX_EXPERTS);
	if (p->top_k < 1 || p->top_k > p->n_experts || p->top_k > IG_MOE_MAX_TOP_K)
		return ig_fail(err, -EINVAL, "moe_route: top_k is %u, not in 1 … %u", p->top_k,
			       p->n_experts < IG_MOE_MAX_TOP_K ? p->n_experts : IG_MOE_MAX_TOP_K);
	if ((rc = check_options(p, err)))
		return rc;
	if (s->n_weights != p->select_bias + p->expert_scale)
		return ig_fail(err, -EINVAL, "moe_route: %u weights, expected %u", s->n_weights,
			       p->select_bias + p->expert_scale);
	for (uint32_t i = 0; i < s->n_weights; i++)
		if (s->weight[i].n_rows != 1 || s->weight[i].n_cols != p->n_experts ||
		    s->weight[i].dtype != IG_F32)
			return ig_fail(err, -EINVAL, "moe_route: weight %u must be [1, %u] of F32",
				       i, p->n_experts);
	if (s->in[0].n_cols != p->n_experts + p->shared || s->in[0].dtype != IG_F32)
		return ig_fail(err, -EINVAL,
			       "moe_route: logits have %lld columns of type %u, expected %u of F32",
			       (long long)s->in[0].n_cols, s->in[0].dtype,
			       p->n_experts + p->shared);
	s->out[0] = (struct ig_shape){ .n_cols = 4 * (int64_t)p->top_k + p->shared,
				       .dtype = IG_I32,
				       .row_class = s->in[0].row_class };
	return 0;
}

/* NaN is smaller than any number, and equal to minus infinity. */
static float key_of(float x) { return x != x ? -INFINITY : x; }

static float sigmoid(float x) { return 1 / (1 + expf(-x)); }

/* The groups that experts are selected from, one bit each. */
static uint32_t best_groups(const struct ig_moe_route_params *p, const float *key)
{
	const uint32_t size = p->n_groups ? p->n_experts / p->n_groups : 0;
	float sum[IG_MOE_MAX_GROUPS];
	uint32_t used = 0;

	for (uint32_t g = 0; g < p->n_groups; g++) {
		float first = -INFINITY, second = -INFINITY;
		for (uint32_t i = g * size; i < (g + 1) * size; i++) {
			const float v = key_of(key[i]);
			second = v > first ? first : v > second ? v : second;
			first = v > first ? v : first;
		}
		sum[g] = first + second;
	}
	for (uint32_t g = 0; g < p->n_groups; g++) {
		uint32_t n_better = 0;
		for (uint32_t i = 0; i < p->n_groups; i++)
			n_better += sum[i] > sum[g] || (sum[i] == sum[g] && i < g) ? 1 : 0;
		used |= n_better < p->n_groups_used ? 1u << g : 0;
	}
	return p->n_groups ? used : 1;
}

/* The top_k experts with the largest keys of the groups `used`, ties to the lower id, in ascending
 * order of id; returns the largest key. */
static float choose(const struct ig_moe_route_params *p, const float *key, uint32_t used,
		    uint32_t *ids)
{
	const uint32_t size = p->n_groups ? p->n_experts / p->n_groups : p->n_experts;
	float best[IG_MOE_MAX_TOP_K] = { 0 }; /* descending */
	const uint32_t k = p->top_k;
	uint32_t n_kept = 0, at;

	for (uint32_t i = 0; i < p->n_experts; i++) {
		const float v = key_of(key[i]);
		if (!(used >> i / size & 1) || (n_kept == k && !(v > best[k - 1])))
			continue;
		for (at = n_kept < k ? n_kept++ : k - 1; at > 0 && v > best[at - 1]; at--) {
			best[at] = best[at - 1];
			ids[at] = ids[at - 1];
		}
		best[at] = v;
		ids[at] = i;
	}
	for (uint32_t i = 1; i < k; i++) {
		const uint32_t id = ids[i];
		for (at = i; at > 0 && ids[at - 1] > id; at--)
			ids[at] = ids[at - 1];
		ids[at] = id;
	}
	return best[0];
}

/* Each selected expert's score; returns the sum by which they are divided. */
static float softmax_row(const struct ig_moe_route_params *p, const float *x, uint32_t *ids,
			 float *weights)
{
	const float max = choose(p, x, 1, ids);
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
	return sum;
}

static float sigmoid_row(const struct ig_moe_route_params *p, const float *x, const float *bias,
			 uint32_t *ids, float *weights)
{
	float key[IG_MOE_MAX_EXPERTS], sum = 0;

	for (uint32_t i = 0; i < p->n_experts; i++)
		key[i] = sigmoid(x[i]) + (bias ? bias[i] : 0);
	choose(p, key, best_groups(p, key), ids);
	for (uint32_t j = 0; j < p->top_k; j++) {
		weights[j] = sigmoid(x[ids[j]]);
		sum += weights[j];
	}
	return p->normalise ? sum : 1;
}

static void route_row(const struct ig_op_launch *launch, const float *x, uint32_t *ids,
		      float *weights)
{
	const struct ig_moe_route_params *p = launch->params;
	const float *bias = bias_at(p) < 0 ? NULL : launch->weight[bias_at(p)].data;
	const float *scale = scale_at(p) < 0 ? NULL : launch->weight[scale_at(p)].data;
	float sum = p->gating == IG_GATING_SIGMOID ? sigmoid_row(p, x, bias, ids, weights) :
						     softmax_row(p, x, ids, weights);

	if (p->normalise)
		sum += p->sum_epsilon;
	for (uint32_t j = 0; j < p->top_k; j++) {
		weights[j] = p->scale * weights[j] / sum;
		if (scale)
			weights[j] *= scale[ids[j]];
	}
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
	for (uint32_t row = 0; row < in->n_rows; row++) {
		const float *x = (const float *)((const char *)in->data + row * in->row_stride);
		route_row(launch, x, route_word(&r, IG_ROUTE_IDS, row * p->top_k),
			  route_weight(&r, row * p->top_k));
		if (p->shared)
			*route_shared(&r, row) = sigmoid(x[p->n_experts]);
	}
	sort_assignments(&r, p->n_experts);
}

/* ---- the reference: as params.h and moe_private.h define it ----------------------------- */

/* How many of keys x[0 … n - 1] have precedence over key e. */
static uint32_t count_before(const float *x, uint32_t n, uint32_t e)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < n; i++)
		count += key_of(x[i]) != key_of(x[e]) ? key_of(x[i]) > key_of(x[e]) : i < e;
	return count;
}

static double logistic(float x) { return 1 / (1 + exp(-(double)x)); }

/* The keys of a row's selection, in float32, and whether each expert is in a used group. */
static void reference_keys(const struct ig_op_launch *launch, const float *x, float *key,
			   uint8_t *allowed)
{
	const struct ig_moe_route_params *p = launch->params;
	const uint32_t size = p->n_groups ? p->n_experts / p->n_groups : 0;
	float group[IG_MOE_MAX_GROUPS];

	for (uint32_t e = 0; e < p->n_experts; e++) {
		allowed[e] = 1;
		key[e] = p->gating == IG_GATING_SIGMOID ? (float)logistic(x[e]) : x[e];
		if (bias_at(p) >= 0)
			key[e] += ((const float *)launch->weight[bias_at(p)].data)[e];
	}
	for (uint32_t g = 0; g < p->n_groups; g++) {
		group[g] = 0;
		for (uint32_t i = 0; i < size; i++)
			if (count_before(key + g * size, size, i) < 2)
				group[g] += key_of(key[g * size + i]);
	}
	for (uint32_t e = 0; e < p->n_experts && size; e++)
		allowed[e] = count_before(group, p->n_groups, e / size) < p->n_groups_used;
}

static void reference_row(const struct ig_op_launch *launch, const struct route *r, uint32_t row)
{
	const struct ig_moe_route_params *p = launch->params;
	const float *x =
		(const float *)((const char *)launch->in[0].data + row * launch->in[0].row_stride);
	float key[IG_MOE_MAX_EXPERTS], max = -INFINITY;
	uint8_t allowed[IG_MOE_MAX_EXPERTS];
	double all = 0, own = 0, by = 1;
	uint32_t slot = row * p->top_k;

	reference_keys(launch, x, key, allowed);
	for (uint32_t e = 0; e < p->n_experts; e++)
		max = x[e] > max ? x[e] : max;
	for (uint32_t e = 0; e < p->n_experts; e++) {
		const double v = p->gating == IG_GATING_SIGMOID ? logistic(x[e]) :
								  exp((double)x[e] - (double)max);
		uint32_t n_better = 0;
		all += v;
		for (uint32_t i = 0; i < p->n_experts; i++)
			n_better += allowed[i] && (key_of(key[i]) != key_of(key[e]) ?
							   key_of(key[i]) > key_of(key[e]) :
							   i < e) ?
					    1 :
					    0;
		if (!allowed[e] || n_better >= p->top_k)
			continue;
		own += v;
		*route_word(r, IG_ROUTE_IDS, slot) = e;
		*route_weight(r, slot++) = (float)v;
	}
	if (p->normalise)
		by = own + (double)p->sum_epsilon;
	else if (p->gating == IG_GATING_SOFTMAX)
		by = all;
	for (slot = row * p->top_k; slot < (row + 1) * p->top_k; slot++) {
		float *w = route_weight(r, slot);
		*w = (float)((double)p->scale * (double)*w / by);
		if (scale_at(p) >= 0)
			*w *= ((const float *)launch->weight[scale_at(p)]
				       .data)[*route_word(r, IG_ROUTE_IDS, slot)];
	}
	if (p->shared)
		*route_shared(r, row) = (float)logistic(x[p->n_experts]);
}

static void reference(const struct ig_op_launch *launch)
{
	const struct ig_moe_route_params *p = launch->params;
	const struct route r = route_of(&launch->out[0], p->top_k);
	uint32_t n_placed = 0, n_runs = 0;

	for (uint32_t row = 0; row < launch->in[0].n_rows; row++)
		reference_row(launch, &r, row);
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
	.split = IG_SPLIT_COPY,
	.gpu = &ig_gpu_moe_route,
};
