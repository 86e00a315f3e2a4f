/* gated_delta.c: the op gated_delta, linear attention by the gated delta rule (Yang, Kautz and Hatamizadeh
 * 2024, arXiv:2412.06464): parameters, shapes, the reference, and the kernel in plain C. */
#include "recurrent_private.h"
#include "gated_delta_row.h"

#include <errno.h>
#include <stdlib.h>

static int check(struct ig_op_shape *s, struct ig_error *err)
{
	const struct ig_gated_delta_params *p = s->params;
	int64_t width;

	if (s->n_in != 2 || s->n_weights != 2 || s->n_out != 1)
		return ig_fail(
			err, -EINVAL,
			"gated_delta: %u inputs, %u weights, %u outputs; takes two, two, and "
			"one",
			s->n_in, s->n_weights, s->n_out);
	if (!p->n_k_heads || !p->n_v_heads || p->n_v_heads > IG_GATED_DELTA_MAX_HEADS ||
	    p->n_v_heads % p->n_k_heads)
		return ig_fail(err, -EINVAL, "gated_delta: %u heads of keys and %u of values",
			       p->n_k_heads, p->n_v_heads);
	if (!p->k_dim || p->k_dim > IG_GATED_DELTA_MAX_DIM || !p->v_dim || p->v_dim % 16 ||
	    p->v_dim > IG_GATED_DELTA_MAX_DIM)
		return ig_fail(err, -EINVAL,
			       "gated_delta: keys of %u dimensions and values of %u; up to %d are "
			       "supported, of values multiples of 16",
			       p->k_dim, p->v_dim, IG_GATED_DELTA_MAX_DIM);
	if (!p->part_heads || p->n_v_heads % p->part_heads || p->tiled > 1 || p->by_key > 1 ||
	    (p->by_key && p->tiled) || p->group >= IG_MAX_CACHE_GROUPS ||
	    !(p->norm_eps >= 0 && p->norm_eps < 1))
		return ig_fail(
			err, -EINVAL,
			"gated_delta: parts of %u heads of %u, tiled %u, by_key %u, group %u, "
			"eps %g",
			p->part_heads, p->n_v_heads, p->tiled, p->by_key, p->group,
			(double)p->norm_eps);
	width = 2 * (int64_t)p->n_k_heads * p->k_dim + (int64_t)p->n_v_heads * p->v_dim;
	if (s->in[0].n_cols != width || s->in[1].n_cols != 2 * (int64_t)p->n_v_heads)
		return ig_fail(err, -EINVAL,
			       "gated_delta: inputs of %lld and %lld columns, expected %lld and %u",
			       (long long)s->in[0].n_cols, (long long)s->in[1].n_cols,
			       (long long)width, 2 * p->n_v_heads);
	for (uint32_t i = 0; i < 2; i++)
		if (s->in[i].dtype != IG_F32 || s->in[i].row_class != IG_ROWS_TOKENS ||
		    s->weight[i].n_rows != 1 || s->weight[i].n_cols != p->n_v_heads ||
		    s->weight[i].dtype != IG_F32)
			return ig_fail(
				err, -EINVAL,
				"gated_delta: operands %u must be of F32, one row a token, and "
				"[1, %u]",
				i, p->n_v_heads);
	s->out[0] =
		(struct ig_shape){ 0, (int64_t)p->n_v_heads * p->v_dim, IG_F32, IG_ROWS_TOKENS };
	return 0;
}

/* ---- the reference, in double ---------------------------------------------------------------- */

static void unit_vector(const float *x, uint32_t n, double eps, double *y)
{
	double sum = eps;

	for (uint32_t i = 0; i < n; i++)
		sum += (double)x[i] * (double)x[i];
	for (uint32_t i = 0; i < n; i++)
		y[i] = (double)x[i] / sqrt(sum);
}

/* S = e^g S; S += k (b (v - S^T k))^T; o = S^T q.  s [k_dim, v_dim] */
static void reference_row(const struct ig_op_launch *c, uint32_t head, int64_t row, double *s)
{
	const struct ig_gated_delta_params *p = c->params;
	const uint32_t group = p->n_v_heads / p->n_k_heads, keys = p->n_k_heads * p->k_dim;
	const uint32_t key = p->tiled ? head % p->n_k_heads : head / group;
	const float *x = tensor_row(&c->in[0], row), *ba = tensor_row(&c->in[1], row);
	const float *v = x + 2 * keys + head * p->v_dim;
	float *o = tensor_row(&c->out[0], row) + head * p->v_dim;
	double q[IG_GATED_DELTA_MAX_DIM], k[IG_GATED_DELTA_MAX_DIM];
	const uint32_t beta_at = p->by_key ? key * 2 * group + head % group : head;
	double dt = (double)ba[beta_at + (p->by_key ? group : p->n_v_heads)] +
		    (double)((const float *)c->weight[0].data)[head];
	double g = (double)((const float *)c->weight[1].data)[head] * log1p(exp(dt));
	double beta = 1 / (1 + exp(-(double)ba[beta_at]));

	unit_vector(x + key * p->k_dim, p->k_dim, (double)p->norm_eps, q);
	unit_vector(x + keys + key * p->k_dim, p->k_dim, (double)p->norm_eps, k);
	for (uint32_t j = 0; j < p->v_dim; j++) {
		double read = 0, out = 0;
		for (uint32_t i = 0; i < p->k_dim; i++) {
			s[i * p->v_dim + j] *= exp(g);
			read += s[i * p->v_dim + j] * k[i];
		}
		for (uint32_t i = 0; i < p->k_dim; i++) {
			s[i * p->v_dim + j] += k[i] * beta * ((double)v[j] - read);
			out += s[i * p->v_dim + j] * q[i] / sqrt((double)p->k_dim);
		}
		o[j] = (float)out;
	}
}

static void reference_run(const struct ig_op_launch *c, struct run run, uint32_t head, double *s)
{
	const struct ig_gated_delta_params *p = c->params;
	const uint32_t n = p->k_dim * p->v_dim;
	const float *from = delta_state(c, head, run.first->from);

	for (uint32_t i = 0; i < n; i++)
		s[i] = from ? (double)from[i] : 0;
	for (const struct ig_step_segment *g = run.first; g < run.end; g++) {
		float *to = delta_state(c, head, g->to);
		for (int64_t row = g->first_row; row < g->first_row + g->n_rows; row++)
			reference_row(c, head, row, s);
		for (uint32_t i = 0; i < n; i++)
			to[i] = (float)s[i];
	}
}

static void reference(const struct ig_op_launch *c)
{
	const struct ig_gated_delta_params *p = c->params;
	double *s = malloc((size_t)p->k_dim * p->v_dim * sizeof *s);

	for (int64_t i = 0; s && i < n_runs(c->step); i++)
		for (uint32_t head = 0; head < p->n_v_heads; head++)
			reference_run(c, run_at(c->step, i), head, s);
	free(s);
}

static int64_t n_units(const struct ig_op_launch *c)
{
	return n_runs(c->step) * ((const struct ig_gated_delta_params *)c->params)->n_v_heads;
}

static void generic(const struct ig_op_launch *c, int64_t first, int64_t last, void *scratch)
{
	(void)scratch;
	delta_units(c, first, last);
}

static const struct ig_cpu_kernel kernels[] = { RECURRENT_KERNELS(IG_UNITS_OTHER, n_units, generic,
								  ig_gated_delta) };

const struct ig_op ig_op_gated_delta = {
	.struct_size = sizeof(struct ig_op),
	.params_size = sizeof(struct ig_gated_delta_params),
	.name = "gated_delta",
	.version = 1,
	.check = check,
	.reference = reference,
	.cpu_kernels = kernels,
	.n_cpu_kernels = sizeof kernels / sizeof kernels[0],
	.gpu = &ig_gpu_gated_delta,
};
