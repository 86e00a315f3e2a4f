/* join.c: the ops sum and concat, which join what several devices have computed. */
#include "ops/op_private.h"

#include <string.h>

static int check_inputs(const struct ig_op_shape *s, const char *op, struct ig_error *err)
{
	if (s->n_in < 2 || s->n_in > IG_MAX_IN || s->n_weights)
		return ig_fail(err, -EINVAL, "%s: takes two to %d inputs and no weight", op,
			       IG_MAX_IN);
	for (uint32_t i = 1; i < s->n_in; i++)
		if (s->in[i].row_class != s->in[0].row_class)
			return ig_fail(err, -EINVAL, "%s: input %u has other rows", op, i);
	return 0;
}

static int check_sum(struct ig_op_shape *s, struct ig_error *err)
{
	int rc = check_inputs(s, "sum", err);

	if (rc)
		return rc;
	for (uint32_t i = 1; i < s->n_in; i++)
		if (s->in[i].n_cols != s->in[0].n_cols)
			return ig_fail(err, -EINVAL,
				       "sum: input %u has %lld columns, the first %lld", i,
				       (long long)s->in[i].n_cols, (long long)s->in[0].n_cols);
	s->n_out = 1;
	s->out[0] = s->in[0];
	return 0;
}

static int check_concat(struct ig_op_shape *s, struct ig_error *err)
{
	int rc = check_inputs(s, "concat", err);

	if (rc)
		return rc;
	s->n_out = 1;
	s->out[0] = s->in[0];
	for (uint32_t i = 1; i < s->n_in; i++)
		s->out[0].n_cols += s->in[i].n_cols;
	return 0;
}

/* The order of additions is part of the op, so that this is the reference and the kernel. */
static void sum_rows(const struct ig_op_launch *c, int64_t first, int64_t last, void *scratch)
{
	for (int64_t r = first; r < last; r++) {
		float *y = ig_row(&c->out[0], r);
		for (int64_t k = 0; k < c->out[0].n_cols; k++) {
			float v = ig_row(&c->in[0], r)[k];
			for (uint32_t i = 1; i < c->n_in; i++)
				v += ig_row(&c->in[i], r)[k];
			y[k] = v;
		}
	}
}

static void concat_rows(const struct ig_op_launch *c, int64_t first, int64_t last, void *scratch)
{
	for (int64_t r = first; r < last; r++) {
		float *y = ig_row(&c->out[0], r);
		for (uint32_t i = 0; i < c->n_in; i++) {
			memcpy(y, ig_row(&c->in[i], r), (size_t)c->in[i].n_cols * sizeof *y);
			y += c->in[i].n_cols;
		}
	}
}

static void reference_sum(const struct ig_op_launch *c) { sum_rows(c, 0, c->out[0].n_rows, NULL); }

static void reference_concat(const struct ig_op_launch *c)
{
	concat_rows(c, 0, c->out[0].n_rows, NULL);
}

static const struct ig_cpu_kernel sum_kernels[] = {
	IG_CPU_KERNEL(IG_ISA_GENERIC, IG_UNITS_ROWS, ig_units_rows, NULL, sum_rows),
};
static const struct ig_cpu_kernel concat_kernels[] = {
	IG_CPU_KERNEL(IG_ISA_GENERIC, IG_UNITS_ROWS, ig_units_rows, NULL, concat_rows),
};

NAMED_OP(sum);
NAMED_OP(concat);
