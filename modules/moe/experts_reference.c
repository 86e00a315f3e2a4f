/*
 * experts_reference.c: what the ops moe_glu and moe_combine accept, and their references: each row's
 * experts one after the other, by the references of glu and linear.
 */
#include "experts_private.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

uint32_t ig_moe_glu_matrices(const void *params)
{
	const struct ig_moe_glu_params *p = params;
	return p->form == IG_MOE_PAIR ? 2 : 1;
}

/* ---- checks ---------------------------------------------------------------------------- */

/* Biases from weight `first` on: [n_rows, n]. */
static int check_biases(const struct ig_op_shape *s, const char *op, uint32_t first,
			uint32_t n_rows, int64_t n, struct ig_error *err)
{
	for (uint32_t i = first; i < s->n_weights; i++)
		if (s->weight[i].n_rows != n_rows || s->weight[i].n_cols != n ||
		    s->weight[i].dtype != IG_F32)
			return ig_fail(err, -EINVAL, "%s: bias %u must be [%u, %lld] of F32", op,
				       i - first, n_rows, (long long)n);
	return 0;
}

/* Check the route and the experts' matrices.  shared: the words of the route for a shared expert.
 * *n: rows of one expert's matrix. */
static int check_experts(const struct ig_op_shape *s, const char *op, uint32_t n_experts,
			 uint32_t top_k, int64_t shared, int64_t *n, struct ig_error *err)
{
	const struct ig_shape *route = &s->in[1], *w = &s->weight[0];

	if (n_experts < 1 || n_experts > IG_MOE_MAX_EXPERTS)
		return ig_fail(err, -EINVAL, "%s: %u experts, not in 1 … %d", op, n_experts,
			       IG_MOE_MAX_EXPERTS);
	if (top_k < 1 || top_k > n_experts || top_k > IG_MOE_MAX_TOP_K)
		return ig_fail(err, -EINVAL, "%s: top_k is %u, not in 1 … %u", op, top_k,
			       n_experts < IG_MOE_MAX_TOP_K ? n_experts : IG_MOE_MAX_TOP_K);
	if (route->dtype != IG_I32 || route->n_cols - 4 * (int64_t)top_k != shared ||
	    route->row_class != s->in[0].row_class)
		return ig_fail(err, -EINVAL,
			       "%s: the route has %lld columns of type %u, expected "
			       "%lld of moe_route",
			       op, (long long)route->n_cols, route->dtype,
			       (long long)(4 * top_k + shared));
	if (s->in[0].dtype != IG_F32)
		return ig_fail(err, -EINVAL, "%s: the input is of type %u, expected F32", op,
			       s->in[0].dtype);
	if (w->n_rows % n_experts || w->n_rows / n_experts % TILE || !w->n_rows)
		return ig_fail(err, -ENOTSUP,
			       "%s: %lld rows of weights for %u experts; each must "
			       "have a multiple of %d",
			       op, (long long)w->n_rows, n_experts, TILE);
	*n = w->n_rows / n_experts;
	return 0;
}

int ig_moe_check_glu(struct ig_op_shape *s, struct ig_error *err)
{
	const struct ig_moe_glu_params *p = s->params;
	const struct ig_shape *g = &s->weight[0], *u = &s->weight[p->form == IG_MOE_PAIR];
	const uint32_t n_matrices = ig_moe_glu_matrices(p);
	int64_t f;
	int rc;

	if (p->form > IG_MOE_UP || p->bias > 1 || (p->bias && p->form == IG_MOE_FUSED))
		return ig_fail(err, -EINVAL, "moe_glu: form is %u, bias %u", p->form, p->bias);
	if ((p->act > IG_ACT_CLAMPED && (p->act != IG_ACT_GELU_ERF || p->form != IG_MOE_UP)) ||
	    p->act == (p->form == IG_MOE_UP ? IG_ACT_CLAMPED : IG_ACT_RELU2) ||
	    (p->act == IG_ACT_CLAMPED && !(p->limit > 0 && isfinite(p->limit))))
		return ig_fail(err, -EINVAL, "moe_glu: activation %u with limit %g", p->act,
			       (double)p->limit);
	if (s->n_in != 2 || s->n_weights != n_matrices * (1 + p->bias) || s->n_out != 1)
		return ig_fail(err, -EINVAL,
			       "moe_glu: %u inputs, %u weights, %u outputs; takes two, %u and one",
			       s->n_in, s->n_weights, s->n_out, n_matrices * (1 + p->bias));
	/* moe_combine checks whether there is the weight of a shared expert. */
	if ((rc = check_experts(s, "moe_glu", p->n_experts, p->top_k,
				s->in[1].n_cols == 4 * (int64_t)p->top_k + 1, &f, err)))
		return rc;
	if (g->n_cols != s->in[0].n_cols || u->n_cols != g->n_cols || u->n_rows != g->n_rows)
		return ig_fail(err, -EINVAL,
			       "moe_glu: gate [%lld, %lld] and up [%lld, %lld] do not fit %lld",
			       (long long)g->n_rows, (long long)g->n_cols, (long long)u->n_rows,
			       (long long)u->n_cols, (long long)s->in[0].n_cols);
	if (g->dtype != u->dtype)
		return ig_fail(err, -ENOTSUP, "moe_glu: gate and up have different weight formats");
	if (p->form == IG_MOE_FUSED && f % (2 * TILE))
		return ig_fail(
			err, -ENOTSUP,
			"moe_glu: %lld rows of gate and up for each expert; a multiple of %d "
			"is needed",
			(long long)f, 2 * TILE);
	f = p->form == IG_MOE_FUSED ? f / 2 : f;
	if ((rc = check_biases(s, "moe_glu", n_matrices, p->n_experts, f, err)))
		return rc;
	s->out[0] = (struct ig_shape){ .n_cols = f * p->top_k,
				       .dtype = IG_F32,
				       .row_class = s->in[0].row_class };
	return 0;
}

int ig_moe_check_combine(struct ig_op_shape *s, struct ig_error *err)
{
	static const char *const names[] = { "residual", "shared expert's result" };
	const struct ig_moe_combine_params *p = s->params;
	const struct ig_shape *d = &s->weight[0];
	int64_t width;
	int rc;

	if (p->shared > 1)
		return ig_fail(err, -EINVAL, "moe_combine: shared is %u", p->shared);
	if (s->n_in < (p->shared ? 4 : 2) || s->n_in > 3 + p->shared || p->bias > IG_MOE_BIAS_SUM ||
	    s->n_weights != 1 + (p->bias != 0) || s->n_out != 1)
		return ig_fail(
			err, -EINVAL,
			"moe_combine: %u inputs, %u weights, %u outputs; takes "
			"two or three, with a shared expert four, one, with a bias two, and one",
			s->n_in, s->n_weights, s->n_out);
	if ((rc = check_experts(s, "moe_combine", p->n_experts, p->top_k, p->shared, &width, err)))
		return rc;
	if (d->n_cols % TILE || d->n_cols * p->top_k != s->in[0].n_cols)
		return ig_fail(err, d->n_cols % TILE ? -ENOTSUP : -EINVAL,
			       "moe_combine: down has rows of %lld values, a multiple of %d is "
			       "needed; the input has %u slots in %lld",
			       (long long)d->n_cols, TILE, p->top_k, (long long)s->in[0].n_cols);
	for (uint32_t i = 2; i < s->n_in; i++)
		if (s->in[i].n_cols != width || s->in[i].dtype != IG_F32 ||
		    s->in[i].row_class != s->in[0].row_class)
			return ig_fail(err, -EINVAL,
				       "moe_combine: the %s has %lld columns of type "
				       "%u, expected %lld of F32",
				       names[i - 2], (long long)s->in[i].n_cols, s->in[i].dtype,
				       (long long)width);
	if ((rc = check_biases(s, "moe_combine", 1, p->bias == IG_MOE_BIAS_SUM ? 1 : p->n_experts,
			       width, err)))
		return rc;
	s->out[0] = (struct ig_shape){ .n_cols = width,
				       .dtype = IG_F32,
				       .row_class = s->in[0].row_class };
	return 0;
}

/* ---- references ------------------------------------------------------------------------ */

/* Weight i's rows of one expert, in file layout. */
static struct ig_tensor expert_rows(const struct ig_op_launch *launch, uint32_t i, uint32_t expert,
				    int64_t n)
{
	struct ig_tensor w = launch->weight[i];
	w.data = (char *)w.data + expert * n * w.row_stride;
	w.n_rows = n;
	return w;
}

static struct ig_tensor one_row(float *data, int64_t n_cols)
{
	return (struct ig_tensor){ data,	  1, n_cols, n_cols * (int64_t)sizeof *data, IG_F32,
				   IG_LAYOUT_ROWS };
}

void ig_moe_reference_glu(const struct ig_op_launch *launch)
{
	const struct ig_moe_glu_params *p = launch->params;
	const struct ig_glu_params glu = { sizeof glu, p->act, p->limit, p->bias };
	const struct ig_linear_params up = { sizeof up, 1, p->act, p->bias };
	const struct route r = route_of(&launch->in[1], p->top_k);
	const int64_t f = launch->out[0].n_cols / p->top_k;
	const uint32_t n = ig_moe_glu_matrices(p);

	for (uint32_t a = 0; a < r.n; a++) {
		const uint32_t expert = *route_word(&r, IG_ROUTE_IDS, a);
		struct ig_op_launch c = { .struct_size = sizeof c,
					  .n_in = 1,
					  .n_weights = 2 * (1 + p->bias),
					  .n_out = 1,
					  .params = &glu };

		c.in[0] = one_row(ig_moe_row(&launch->in[0], a / p->top_k), launch->in[0].n_cols);
		if (p->form == IG_MOE_FUSED) {
			c.weight[0] = expert_rows(launch, 0, 2 * expert, f);
			c.weight[1] = expert_rows(launch, 0, 2 * expert + 1, f);
		}
		for (uint32_t i = 0; i < n && p->form != IG_MOE_FUSED; i++) {
			c.weight[i] = expert_rows(launch, i, expert, f);
			if (p->bias)
				c.weight[n + i] = ig_moe_bias(launch, n + i, expert);
		}
		c.out[0] = one_row(ig_moe_row(&launch->out[0], a / p->top_k) + a % p->top_k * f, f);
		if (p->form == IG_MOE_UP) {
			c.params = &up;
			c.n_weights = 1 + p->bias;
		}
		ig_moe_host->core_op(p->form == IG_MOE_UP ? "linear" : "glu")->reference(&c);
	}
}

void ig_moe_reference_combine(const struct ig_op_launch *launch)
{
	const struct ig_moe_combine_params *p = launch->params;
	const uint32_t each = p->bias == IG_MOE_BIAS_EACH;
	const struct ig_linear_params linear = { sizeof linear, 1, IG_ACT_NONE, each };
	const struct route r = route_of(&launch->in[1], p->top_k);
	const int64_t width = launch->out[0].n_cols, f = launch->weight[0].n_cols;
	float *y = malloc((size_t)width * sizeof *y);
	double *sum = malloc((size_t)width * sizeof *sum);

	if (!y || !sum)
		abort(); /* a reference runs in tests */
	for (int64_t row = 0; row < launch->out[0].n_rows; row++) {
		memset(sum, 0, (size_t)width * sizeof *sum);
		for (uint32_t j = 0; j < p->top_k; j++) {
			const uint32_t a = (uint32_t)row * p->top_k + j;
			struct ig_op_launch c = { .struct_size = sizeof c,
						  .n_in = 1,
						  .n_weights = 1 + each,
						  .n_out = 1,
						  .params = &linear };

			c.in[0] = one_row(ig_moe_row(&launch->in[0], row) + j * f, f);
			if (each)
				c.weight[1] =
					ig_moe_bias(launch, 1, *route_word(&r, IG_ROUTE_IDS, a));
			c.weight[0] =
				expert_rows(launch, 0, *route_word(&r, IG_ROUTE_IDS, a), width);
			c.out[0] = one_row(y, width);
			ig_moe_host->core_op("linear")->reference(&c);
			for (int64_t i = 0; i < width; i++)
				sum[i] += (double)*route_weight(&r, a) * (double)y[i];
		}
		for (int64_t i = 0; i < width && p->shared; i++)
			sum[i] += (double)*route_shared(&r, (uint32_t)row) *
				  (double)ig_moe_row(&launch->in[3], row)[i];
		for (int64_t i = 0; i < width && p->bias == IG_MOE_BIAS_SUM; i++)
			sum[i] += (double)ig_moe_row(&launch->weight[1], 0)[i];
		for (int64_t i = 0; i < width; i++)
			ig_moe_row(&launch->out[0], row)[i] =
				(float)(sum[i] +
					(launch->in[2].data ?
						 (double)ig_moe_row(&launch->in[2], row)[i] :
						 0));
	}
	free(y);
	free(sum);
}
