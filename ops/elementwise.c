/* elementwise.c: the ops multiply and soft_cap, value by value. */
#include "ops/op_private.h"

static int check_multiply(struct ig_op_shape *s, struct ig_error *err)
{
	const struct ig_multiply_params *p = s->params;

	if (s->n_in != 2 || s->n_weights != 0)
		return ig_fail(err, -EINVAL, "multiply: takes two inputs and no weight");
	if (s->in[1].n_cols < p->first + s->in[0].n_cols ||
	    s->in[1].row_class != s->in[0].row_class)
		return ig_fail(err, -EINVAL,
			       "multiply: columns %u to %lld of an input of %lld, or other rows",
			       p->first, (long long)(p->first + s->in[0].n_cols),
			       (long long)s->in[1].n_cols);
	s->n_out = 1;
	s->out[0] = s->in[0];
	return 0;
}

static void reference_multiply(const struct ig_op_launch *c)
{
	const struct ig_multiply_params *p = c->params;

	for (int64_t r = 0; r < c->out[0].n_rows; r++)
		for (int64_t i = 0; i < c->out[0].n_cols; i++)
			ig_row(&c->out[0], r)[i] =
				ig_row(&c->in[0], r)[i] * ig_row(&c->in[1], r)[p->first + i];
}

static int check_soft_cap(struct ig_op_shape *s, struct ig_error *err)
{
	const struct ig_soft_cap_params *p = s->params;

	if (s->n_in != 1 || s->n_weights != 0)
		return ig_fail(err, -EINVAL, "soft_cap: takes one input and no weight");
	if (!(p->scale > 0 && isfinite(p->scale) && p->cap >= 0 && isfinite(p->cap)))
		return ig_fail(err, -EINVAL, "soft_cap: a scale of %g, a cap of %g",
			       (double)p->scale, (double)p->cap);
	s->n_out = 1;
	s->out[0] = s->in[0];
	return 0;
}

static void reference_soft_cap(const struct ig_op_launch *c)
{
	const struct ig_soft_cap_params *p = c->params;
	const double scale = (double)p->scale, cap = (double)p->cap;

	for (int64_t r = 0; r < c->out[0].n_rows; r++)
		for (int64_t i = 0; i < c->out[0].n_cols; i++) {
			double x = (double)ig_row(&c->in[0], r)[i] * scale;
			ig_row(&c->out[0], r)[i] = (float)(cap > 0 ? cap * tanh(x / cap) : x);
		}
}

static int64_t units_soft_cap(const struct ig_op_launch *c)
{
	return c->out[0].n_rows *
	       ((c->out[0].n_cols + IG_SOFT_CAP_COLUMNS - 1) / IG_SOFT_CAP_COLUMNS);
}

#define MULTIPLY(name, isa)                                                                        \
	IG_CPU_KERNEL(isa, IG_UNITS_ROWS, ig_units_rows, NULL, ig_multiply_##name),
#define SOFT_CAP(name, isa)                                                                        \
	IG_CPU_KERNEL(isa, IG_UNITS_OTHER, units_soft_cap, NULL, ig_soft_cap_##name),
static const struct ig_cpu_kernel multiply_kernels[] = { ROWS_LIST(MULTIPLY) };
static const struct ig_cpu_kernel soft_cap_kernels[] = { ROWS_LIST(SOFT_CAP) };

NAMED_OP(multiply);
NAMED_OP(soft_cap);
