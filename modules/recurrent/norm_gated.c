/* norm_gated.c: the op norm_gated, RMS norms of groups of columns with a gate, as gated delta nets (gate
 * after the norm) and Mamba-2 (before it) have them: parameters, shapes, the reference, and the kernel
 * in plain C. */
#include "recurrent_private.h"
#include "norm_gated_row.h"

#include <errno.h>

static int check(struct ig_op_shape *s, struct ig_error *err)
{
	const struct ig_norm_gated_params *p = s->params;
	const int64_t width = s->in[0].n_cols;

	if (s->n_in != 2 || s->n_weights != 1 || s->n_out != 1)
		return ig_fail(
			err, -EINVAL,
			"norm_gated: %u inputs, %u weights, %u outputs; takes two, one, and one",
			s->n_in, s->n_weights, s->n_out);
	if (!p->n_groups || width % p->n_groups || !(p->eps >= 0 && p->eps < 1) ||
	    p->gate_first > 1)
		return ig_fail(err, -EINVAL,
			       "norm_gated: %lld columns in %u groups, eps %g, gate_first %u",
			       (long long)width, p->n_groups, (double)p->eps, p->gate_first);
	for (uint32_t i = 0; i < 2; i++)
		if (s->in[i].n_cols != width + (i ? p->rest : 0) || s->in[i].dtype != IG_F32 ||
		    s->in[i].row_class != IG_ROWS_TOKENS)
			return ig_fail(err, -EINVAL, "norm_gated: inputs of %lld and %lld columns",
				       (long long)width, (long long)s->in[1].n_cols);
	if (s->weight[0].dtype != IG_F32 ||
	    (s->weight[0].n_rows == 1 ?
		     s->weight[0].n_cols != width && s->weight[0].n_cols != width / p->n_groups :
		     s->weight[0].n_rows != p->n_groups ||
			     s->weight[0].n_cols != width / p->n_groups))
		return ig_fail(err, -EINVAL,
			       "norm_gated: the weight must be [1, %lld] or [1, %lld] of F32",
			       (long long)(width / p->n_groups), (long long)width);
	s->out[0] = s->in[0];
	return 0;
}

static void reference(const struct ig_op_launch *c)
{
	const struct ig_norm_gated_params *p = c->params;
	const int64_t n = c->out[0].n_cols / p->n_groups;
	const float *w = c->weight[0].data;
	const bool each = norm_gated_each(c);

	for (int64_t row = 0; row < c->out[0].n_rows; row++) {
		const float *x = tensor_row(&c->in[0], row), *z = tensor_row(&c->in[1], row);
		for (int64_t i = 0; i < c->out[0].n_cols; i++) {
			int64_t first = i - i % n;
			double sum = 0, silu = (double)z[i] / (1 + exp(-(double)z[i]));
			for (int64_t k = first; k < first + n; k++) {
				double v = (double)x[k];
				if (p->gate_first)
					v *= (double)z[k] / (1 + exp(-(double)z[k]));
				sum += v * v;
			}
			tensor_row(&c->out[0], row)[i] =
				(float)((double)x[i] * silu * (double)w[each ? i : i % n] /
					sqrt(sum / (double)n + (double)p->eps));
		}
	}
}

static int64_t n_units(const struct ig_op_launch *c) { return c->out[0].n_rows; }

static void generic(const struct ig_op_launch *c, int64_t first, int64_t last, void *scratch)
{
	(void)scratch;
	norm_gated_rows(c, first, last);
}

static const struct ig_cpu_kernel kernels[] = { RECURRENT_KERNELS(IG_UNITS_ROWS, n_units, generic,
								  ig_norm_gated) };

const struct ig_op ig_op_norm_gated = {
	.struct_size = sizeof(struct ig_op),
	.params_size = sizeof(struct ig_norm_gated_params),
	.name = "norm_gated",
	.version = 1,
	.check = check,
	.reference = reference,
	.cpu_kernels = kernels,
	.n_cpu_kernels = sizeof kernels / sizeof kernels[0],
	.gpu = &ig_gpu_norm_gated,
};
