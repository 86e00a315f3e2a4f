/* selective_scan.c: the op selective_scan, the state space of Mamba-2 (Dao and Gu 2024, arXiv:2405.21060):
 * parameters, shapes, the reference, and the kernel in plain C. */
#include "recurrent_private.h"
#include "selective_scan_row.h"

#include <errno.h>
#include <stdlib.h>

static int check_params(const struct ig_selective_scan_params *p, struct ig_error *err)
{
	if (!p->n_groups || !p->n_heads || p->n_heads > IG_SELECTIVE_SCAN_MAX_HEADS ||
	    p->n_heads % p->n_groups)
		return ig_fail(err, -EINVAL, "selective_scan: %u heads in %u groups", p->n_heads,
			       p->n_groups);
	if (!p->state_dim || p->state_dim > IG_SELECTIVE_SCAN_MAX_DIM || !p->head_dim ||
	    p->head_dim % 16 || p->head_dim > IG_SELECTIVE_SCAN_MAX_DIM)
		return ig_fail(err, -EINVAL,
			       "selective_scan: states of %u for heads of %u; up to %d are "
			       "supported, of heads multiples of 16",
			       p->state_dim, p->head_dim, IG_SELECTIVE_SCAN_MAX_DIM);
	if (!p->part_heads || p->n_heads % p->part_heads || p->group >= IG_MAX_CACHE_GROUPS)
		return ig_fail(err, -EINVAL, "selective_scan: parts of %u heads of %u, group %u",
			       p->part_heads, p->n_heads, p->group);
	return 0;
}

static int check(struct ig_op_shape *s, struct ig_error *err)
{
	const struct ig_selective_scan_params *p = s->params;
	int64_t inner, width[2];
	int rc;

	if (s->n_in != 2 || s->n_weights != 3 || s->n_out != 1)
		return ig_fail(err, -EINVAL,
			       "selective_scan: %u inputs, %u weights, %u outputs; takes two, "
			       "three, and one",
			       s->n_in, s->n_weights, s->n_out);
	if ((rc = check_params(p, err)))
		return rc;
	inner = (int64_t)p->n_heads * p->head_dim;
	width[0] = inner + 2 * (int64_t)p->n_groups * p->state_dim;
	width[1] = (int64_t)p->dt_first + p->n_heads;
	for (uint32_t i = 0; i < 2; i++)
		if (s->in[i].n_cols != width[i] || s->in[i].dtype != IG_F32 ||
		    s->in[i].row_class != IG_ROWS_TOKENS)
			return ig_fail(err, -EINVAL,
				       "selective_scan: input %u has %lld columns, expected %lld "
				       "of F32, one row a token",
				       i, (long long)s->in[i].n_cols, (long long)width[i]);
	for (uint32_t i = 0; i < 3; i++)
		if ((s->weight[i].n_rows != 1 && s->weight[i].n_cols != 1) ||
		    s->weight[i].n_rows * s->weight[i].n_cols != p->n_heads ||
		    s->weight[i].dtype != IG_F32)
			return ig_fail(err, -EINVAL,
				       "selective_scan: weight %u must be [1, %u] of F32", i,
				       p->n_heads);
	s->out[0] = (struct ig_shape){ 0, inner, IG_F32, IG_ROWS_TOKENS };
	return 0;
}

/* ---- the reference, in double ---------------------------------------------------------------- */

/* s [state_dim, head_dim] */
static void reference_row(const struct ig_op_launch *l, uint32_t head, int64_t row, double *s)
{
	const struct ig_selective_scan_params *p = l->params;
	const uint32_t inner = p->n_heads * p->head_dim, n = p->state_dim;
	const uint32_t group = head / (p->n_heads / p->n_groups);
	const float *in = tensor_row(&l->in[0], row), *x = in + head * p->head_dim;
	const float *b = in + inner + group * n, *c = b + p->n_groups * n;
	const double raw = (double)((const float *)tensor_row(&l->in[1], row))[p->dt_first + head] +
			   (double)((const float *)l->weight[0].data)[head];
	const double dt = raw > 30 ? raw : log1p(exp(raw));
	const double decay = exp(dt * (double)((const float *)l->weight[1].data)[head]);
	const double d = (double)((const float *)l->weight[2].data)[head];
	float *y = tensor_row(&l->out[0], row) + head * p->head_dim;

	for (uint32_t j = 0; j < p->head_dim; j++) {
		double out = d * (double)x[j];
		for (uint32_t i = 0; i < n; i++) {
			double *at = &s[i * p->head_dim + j];
			*at = *at * decay + dt * (double)x[j] * (double)b[i];
			out += *at * (double)c[i];
		}
		y[j] = (float)out;
	}
}

static void reference_run(const struct ig_op_launch *l, struct run run, uint32_t head, double *s)
{
	const struct ig_selective_scan_params *p = l->params;
	const uint32_t n = p->state_dim * p->head_dim;
	const float *from = scan_state(l, head, run.first->from);

	for (uint32_t i = 0; i < n; i++)
		s[i] = from ? (double)from[i] : 0;
	for (const struct ig_step_segment *g = run.first; g < run.end; g++) {
		float *to = scan_state(l, head, g->to);
		for (int64_t row = g->first_row; row < g->first_row + g->n_rows; row++)
			reference_row(l, head, row, s);
		for (uint32_t i = 0; i < n; i++)
			to[i] = (float)s[i];
	}
}

static void reference(const struct ig_op_launch *l)
{
	const struct ig_selective_scan_params *p = l->params;
	double *s = malloc((size_t)p->state_dim * p->head_dim * sizeof *s);

	for (int64_t i = 0; s && i < n_runs(l->step); i++)
		for (uint32_t head = 0; head < p->n_heads; head++)
			reference_run(l, run_at(l->step, i), head, s);
	free(s);
}

static int64_t n_units(const struct ig_op_launch *l)
{
	return n_runs(l->step) * ((const struct ig_selective_scan_params *)l->params)->n_heads;
}

static void generic(const struct ig_op_launch *l, int64_t first, int64_t last, void *scratch)
{
	(void)scratch;
	scan_units(l, first, last);
}

static const struct ig_cpu_kernel kernels[] = { RECURRENT_KERNELS(IG_UNITS_OTHER, n_units, generic,
								  ig_selective_scan) };

const struct ig_op ig_op_selective_scan = {
	.struct_size = sizeof(struct ig_op),
	.params_size = sizeof(struct ig_selective_scan_params),
	.name = "selective_scan",
	.version = 1,
	.check = check,
	.reference = reference,
	.cpu_kernels = kernels,
	.n_cpu_kernels = sizeof kernels / sizeof kernels[0],
	.gpu = &ig_gpu_selective_scan,
};
