/* norm.c: RMS and layer normalisation (Zhang and Sennrich 2019; Ba et al. 2016), of rows or of groups
 * of columns, with an optional residual added before or after, and optional gathering of the rows whose
 * logits are computed. */
#include "ops/op_private.h"

static int check(struct ig_op_shape *s, struct ig_error *err)
{
	const struct ig_norm_params *p = s->params;

	if (p->kind > IG_NORM_LAYER)
		return ig_fail(err, -EINVAL, "norm: unknown kind %u", p->kind);
	if (!(p->eps >= 0.0f && p->eps < 1.0f))
		return ig_fail(err, -EINVAL, "norm: eps %g is not in [0, 1)", (double)p->eps);
	if (s->n_in < 1 || s->n_in > 2 || s->n_weights < 1 || s->n_weights > 3)
		return ig_fail(err, -EINVAL,
			       "norm: takes one or two inputs and one to three weights");
	if (s->n_weights > 1 && s->weight[1].n_rows && p->kind != IG_NORM_LAYER)
		return ig_fail(err, -EINVAL, "norm: only layer normalisation has a bias");
	if (p->after > 1 || (p->after && (s->n_in != 2 || p->kind != IG_NORM_RMS)) ||
	    (!p->after && (s->n_weights > 2 || p->scale != 0)))
		return ig_fail(err, -EINVAL,
			       "norm: only an RMS norm has a residual after it, or a scale");
	if (!(p->scale >= 0 && isfinite(p->scale)))
		return ig_fail(err, -EINVAL, "norm: scale is %g", (double)p->scale);
	if (p->group && (p->kind != IG_NORM_RMS || s->in[0].n_cols % p->group))
		return ig_fail(err, -EINVAL, "norm: %lld columns in groups of %u",
			       (long long)s->in[0].n_cols, p->group);
	if (!s->weight[0].n_rows && p->kind != IG_NORM_RMS)
		return ig_fail(err, -EINVAL, "norm: only an RMS norm can do without weights");
	for (uint32_t i = 0; i < s->n_weights; i++) {
		const int64_t n = i == 2 ? 1 : p->group ? p->group : s->in[0].n_cols;
		if (s->weight[i].n_rows && (s->weight[i].n_rows != 1 || s->weight[i].n_cols != n ||
					    s->weight[i].dtype != IG_F32))
			return ig_fail(err, -EINVAL, "norm: weight %u must be [1, %lld] of F32", i,
				       (long long)n);
	}
	if (s->n_in == 2 &&
	    (s->in[1].n_cols != s->in[0].n_cols || s->in[1].row_class != s->in[0].row_class))
		return ig_fail(err, -EINVAL, "norm: the residual has another shape");
	if (p->gather > 2)
		return ig_fail(err, -EINVAL, "norm: gather is %u", p->gather);
	if (p->gather && s->in[0].row_class != IG_ROWS_TOKENS)
		return ig_fail(err, -EINVAL, "norm: the rows are gathered already");
	s->n_out = p->after ? 1 : s->n_in;
	s->out[0] = s->in[0];
	if (p->gather)
		s->out[0].row_class = p->gather == 2 ? IG_ROWS_GUESSES : IG_ROWS_LOGITS;
	if (s->n_out > 1)
		s->out[1] = s->out[0];
	return 0;
}

/* y = x / rms(x) * w, and what follows with `after`, of one group of columns. */
static void reference_rms(const struct ig_norm_params *p, const float *x, const float *w,
			  const float *residual, double factor, float *y, int64_t n)
{
	double squares = 0.0;

	for (int64_t i = 0; i < n; i++)
		squares += (double)x[i] * (double)x[i];
	const double inverse = 1.0 / sqrt(squares / (double)n + (double)p->eps);
	for (int64_t i = 0; i < n; i++) {
		double v = (double)x[i] * inverse * (w ? (double)w[i] : 1.0);
		y[i] = (float)(residual ? (v + (double)residual[i]) * factor : v);
	}
}

static void reference(const struct ig_op_launch *c)
{
	const struct ig_norm_params *p = c->params;
	int64_t n = c->out[0].n_cols;
	const float *w = c->weight[0].data;
	const float *bias = c->n_weights > 1 ? c->weight[1].data : NULL;

	for (int64_t r = 0; r < c->out[0].n_rows; r++) {
		int64_t from = p->gather ? ig_step_gathered(c->step, p->gather, r) : r;
		const float *x = ig_row(&c->in[0], from);
		float *y = ig_row(&c->out[0], r);
		if (c->in[1].data && !p->after) {
			float *sum = ig_row(&c->out[1], r);
			for (int64_t i = 0; i < n; i++)
				sum[i] = x[i] + ig_row(&c->in[1], from)[i];
			x = sum;
		}
		if (p->kind == IG_NORM_RMS) {
			const int64_t group = p->group ? p->group : n;
			for (int64_t at = 0; at < n; at += group)
				reference_rms(p, x + at, w,
					      p->after ? ig_row(&c->in[1], from) + at : NULL,
					      (double)ig_norm_factor(c), y + at, group);
			continue;
		}
		double mean = 0.0, var = 0.0;
		for (int64_t i = 0; i < n; i++)
			mean += x[i];
		mean /= (double)n;
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

CORE_OP(norm, struct ig_norm_params, 0, IG_SPLIT_COPY);
