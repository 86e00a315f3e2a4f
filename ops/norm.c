/* norm.c: RMS and layer normalisation (Zhang and Sennrich 2019; Ba et al. 2016), with an optional
 * residual added before, and optional gathering of the rows whose logits are computed. */
#include "ops/op_private.h"

static int check(struct ig_op_shape *s, struct ig_error *err)
{
	const struct ig_norm_params *p = s->params;

	if (p->kind > IG_NORM_LAYER)
		return ig_fail(err, -EINVAL, "norm: unknown kind %u", p->kind);
	if (!(p->eps >= 0.0f && p->eps < 1.0f))
		return ig_fail(err, -EINVAL, "norm: eps %g is not in [0, 1)", (double)p->eps);
	if (s->n_in < 1 || s->n_in > 2 || s->n_weights < 1 || s->n_weights > 2)
		return ig_fail(err, -EINVAL, "norm: takes one or two inputs and weights");
	if (s->n_weights == 2 && p->kind != IG_NORM_LAYER)
		return ig_fail(err, -EINVAL, "norm: only layer normalisation has a bias");
	for (uint32_t i = 0; i < s->n_weights; i++)
		if (s->weight[i].n_rows != 1 || s->weight[i].n_cols != s->in[0].n_cols ||
		    s->weight[i].dtype != IG_F32)
			return ig_fail(err, -EINVAL, "norm: weight %u must be [1, %lld] of F32", i,
				       (long long)s->in[0].n_cols);
	if (s->n_in == 2 &&
	    (s->in[1].n_cols != s->in[0].n_cols || s->in[1].row_class != s->in[0].row_class))
		return ig_fail(err, -EINVAL, "norm: the residual has another shape");
	if (p->gather && s->in[0].row_class != IG_ROWS_TOKENS)
		return ig_fail(err, -EINVAL, "norm: the rows are gathered already");
	s->n_out = s->n_in;
	s->out[0] = s->in[0];
	s->out[0].row_class = p->gather ? IG_ROWS_LOGITS : s->in[0].row_class;
	s->out[1] = s->out[0];
	return 0;
}

static void reference(const struct ig_op_launch *c)
{
	const struct ig_norm_params *p = c->params;
	int64_t n = c->out[0].n_cols;
	const float *w = c->weight[0].data;
	const float *bias = c->n_weights > 1 ? c->weight[1].data : NULL;

	for (int64_t r = 0; r < c->out[0].n_rows; r++) {
		int64_t from = p->gather ? c->step->logit_rows[r] : r;
		const float *x = ig_row(&c->in[0], from);
		float *y = ig_row(&c->out[0], r);
		if (c->in[1].data) {
			float *sum = ig_row(&c->out[1], r);
			for (int64_t i = 0; i < n; i++)
				sum[i] = x[i] + ig_row(&c->in[1], from)[i];
			x = sum;
		}
		double mean = 0.0, var = 0.0;
		if (p->kind == IG_NORM_LAYER) {
			for (int64_t i = 0; i < n; i++)
				mean += x[i];
			mean /= (double)n;
		}
		for (int64_t i = 0; i < n; i++)
			var += (x[i] - mean) * (x[i] - mean);
		double scale = 1.0 / sqrt(var / (double)n + (double)p->eps);
		for (int64_t i = 0; i < n; i++)
			y[i] = (float)((x[i] - mean) * scale * (double)w[i] +
				       (bias ? (double)bias[i] : 0.0));
	}
}

#define ENTRY(name, isa) IG_CPU_KERNEL(isa, IG_UNITS_ROWS, ig_units_rows, NULL, ig_norm_##name),
static const struct ig_cpu_kernel kernels[] = { ROWS_LIST(ENTRY) };

CORE_OP(norm, struct ig_norm_params, 0);
