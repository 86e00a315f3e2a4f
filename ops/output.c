/* output.c: the last op of a model whose results are vectors or scores: step->logits gets its rows. */
#include "ops/op_private.h"

static int check(struct ig_op_shape *s, struct ig_error *err)
{
	if (s->n_in != 1 || s->n_weights != 0)
		return ig_fail(err, -EINVAL, "output: takes one input and no weight");
	if (s->in[0].row_class != IG_ROWS_LOGITS || s->in[0].dtype != IG_F32)
		return ig_fail(err, -EINVAL, "output: the input is not a row of each sequence");
	s->n_out = 0;
	return 0;
}

static void run(const struct ig_op_launch *c, int64_t first, int64_t last, void *scratch)
{
	const size_t n = (size_t)c->in[0].n_cols;

	for (int64_t i = first; c->step->logits && i < last; i++)
		memcpy(c->step->logits + (size_t)i * n, ig_row(&c->in[0], i), n * sizeof(float));
}

static void reference(const struct ig_op_launch *c) { run(c, 0, c->in[0].n_rows, NULL); }

static int64_t units(const struct ig_op_launch *c) { return c->in[0].n_rows; }

static const struct ig_cpu_kernel kernels[] = {
	IG_CPU_KERNEL(IG_ISA_GENERIC, IG_UNITS_ROWS, units, NULL, run),
};

CORE_OP(output, struct ig_output_params, 0, IG_SPLIT_NONE);
