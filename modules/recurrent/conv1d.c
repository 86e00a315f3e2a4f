/* conv1d.c: the op conv1d, a short causal convolution of each column by itself, as LFM2, Mamba and gated
 * delta nets have it: parameters, shapes, the reference, and the kernel in plain C. */
#include "recurrent_private.h"
#include "conv1d_row.h"

#include <errno.h>

static int check(struct ig_op_shape *s, struct ig_error *err)
{
	const struct ig_conv1d_params *p = s->params;
	int64_t width;

	if (s->n_in != 1 || s->n_weights < 1 || s->n_weights > 2 || s->n_out != 1)
		return ig_fail(err, -EINVAL,
			       "conv1d: %u inputs, %u weights, %u outputs; takes one, one or two, "
			       "and one",
			       s->n_in, s->n_weights, s->n_out);
	if (p->n_taps < 2 || p->n_taps > IG_CONV1D_MAX_TAPS)
		return ig_fail(err, -EINVAL, "conv1d: %u taps, not 2 … %d", p->n_taps,
			       IG_CONV1D_MAX_TAPS);
	if (p->gated > 1 || (p->gated && (p->first || p->rest)) ||
	    (p->act != IG_ACT_NONE && p->act != IG_ACT_SILU) || p->group >= IG_MAX_CACHE_GROUPS)
		return ig_fail(err, -EINVAL,
			       "conv1d: gated %u, act %u, group %u, columns from %u on", p->gated,
			       p->act, p->group, p->first);
	width = s->weight[0].n_rows;
	if (s->weight[0].n_cols != p->n_taps || s->weight[0].dtype != IG_F32)
		return ig_fail(err, -EINVAL,
			       "conv1d: taps of [%lld, %lld] of type %u, expected %u of F32",
			       (long long)width, (long long)s->weight[0].n_cols, s->weight[0].dtype,
			       p->n_taps);
	if (s->n_weights > 1 && s->weight[1].n_rows &&
	    (s->weight[1].n_rows != 1 || s->weight[1].n_cols != width ||
	     s->weight[1].dtype != IG_F32))
		return ig_fail(err, -EINVAL, "conv1d: the bias must be [1, %lld] of F32",
			       (long long)width);
	if (s->in[0].n_cols != (p->gated ? 3 : 1) * width + p->first + p->rest ||
	    s->in[0].dtype != IG_F32 || s->in[0].row_class != IG_ROWS_TOKENS)
		return ig_fail(
			err, -EINVAL,
			"conv1d: the input has %lld columns of type %u, expected %lld of F32, "
			"one row a token",
			(long long)s->in[0].n_cols, s->in[0].dtype,
			(long long)((p->gated ? 3 : 1) * width + p->first + p->rest));
	s->out[0] = (struct ig_shape){ 0, width, IG_F32, IG_ROWS_TOKENS };
	return 0;
}

/* u of a row of the run, or of one before it: `before` has the last n_taps - 1 of those. */
static double u_of(const struct ig_op_launch *c, struct run run, const float *before, int64_t row,
		   int64_t col)
{
	const struct ig_conv1d_params *p = c->params;
	const float *x;

	if (row < run.first->first_row)
		return (double)before[(int64_t)p->n_taps - 1 + row - run.first->first_row];
	x = tensor_row(&c->in[0], row) + p->first + col;
	return (double)(p->gated ? x[0] * x[2 * c->out[0].n_cols] : x[0]);
}

static float reference_value(const struct ig_op_launch *c, struct run run, const float *before,
			     int64_t row, int64_t col)
{
	const struct ig_conv1d_params *p = c->params;
	const int64_t n_taps = p->n_taps;
	const float *w = (const float *)c->weight[0].data + col * n_taps;
	double sum = c->n_weights > 1 && c->weight[1].data ?
			     (double)((const float *)c->weight[1].data)[col] :
			     0;

	for (int64_t k = 0; k < n_taps; k++)
		sum += (double)w[k] * u_of(c, run, before, row - n_taps + 1 + k, col);
	if (p->act == IG_ACT_SILU)
		sum /= 1 + exp(-sum);
	if (p->gated)
		sum *= (double)tensor_row(&c->in[0], row)[c->out[0].n_cols + col];
	return (float)sum;
}

static void reference_run(const struct ig_op_launch *c, struct run run, int64_t col)
{
	const struct ig_conv1d_params *p = c->params;
	const int64_t width = c->out[0].n_cols, n_taps = p->n_taps;
	const float *from = state_part(c->step, p->group, p->layer, 0, run.first->from);
	float before[IG_CONV1D_MAX_TAPS] = { 0 };

	for (int64_t k = 0; from && k < n_taps - 1; k++)
		before[k] = from[k * width + col];
	for (const struct ig_step_segment *s = run.first; s < run.end; s++) {
		float *to = state_part(c->step, p->group, p->layer, 0, s->to);
		const int64_t end = s->first_row + s->n_rows;
		for (int64_t row = s->first_row; row < end; row++)
			tensor_row(&c->out[0], row)[col] =
				reference_value(c, run, before, row, col);
		for (int64_t k = 0; k < n_taps - 1; k++)
			to[k * width + col] =
				(float)u_of(c, run, before, end - n_taps + 1 + k, col);
	}
}

static void reference(const struct ig_op_launch *c)
{
	for (int64_t i = 0; i < n_runs(c->step); i++)
		for (int64_t col = 0; col < c->out[0].n_cols; col++)
			reference_run(c, run_at(c->step, i), col);
}

static int64_t n_units(const struct ig_op_launch *c) { return n_runs(c->step) * conv1d_blocks(c); }

static void generic(const struct ig_op_launch *c, int64_t first, int64_t last, void *scratch)
{
	(void)scratch;
	conv1d_units(c, first, last);
}

static const struct ig_cpu_kernel kernels[] = { RECURRENT_KERNELS(IG_UNITS_OTHER, n_units, generic,
								  ig_conv1d) };

const struct ig_op ig_op_conv1d = {
	.struct_size = sizeof(struct ig_op),
	.params_size = sizeof(struct ig_conv1d_params),
	.name = "conv1d",
	.version = 1,
	.check = check,
	.reference = reference,
	.cpu_kernels = kernels,
	.n_cpu_kernels = sizeof kernels / sizeof kernels[0],
	.gpu = &ig_gpu_conv1d,
};
