/* stage.c: the ops stage_in and stage_out, where a plan that is cut between layers begins and ends: rows of
 * float32 come from the stage before and go to the next one (runtime/stages.h). */
#include "ops/op_private.h"

#include <string.h>

static int check_columns(const char *op, uint32_t first, uint32_t n, uint32_t width,
			 struct ig_error *err)
{
	if (!n || n > width || first > width - n)
		return ig_fail(err, -EINVAL, "%s: columns %u to %llu of %u", op, first,
			       (unsigned long long)first + n, width);
	return 0;
}

static int check_stage_in(struct ig_op_shape *s, struct ig_error *err)
{
	const struct ig_stage_in_params *p = s->params;

	if (s->n_in || s->n_weights)
		return ig_fail(err, -EINVAL, "stage_in: takes no input and no weight");
	s->n_out = 1;
	s->out[0] = (struct ig_shape){ .n_cols = p->n, .dtype = IG_F32 };
	return check_columns("stage_in", p->first, p->n, p->width, err);
}

static int check_stage_out(struct ig_op_shape *s, struct ig_error *err)
{
	const struct ig_stage_out_params *p = s->params;

	if (s->n_in != 1 || s->n_weights)
		return ig_fail(err, -EINVAL, "stage_out: takes one input and no weight");
	if (s->in[0].row_class != IG_ROWS_TOKENS || s->in[0].dtype != IG_F32 ||
	    s->in[0].n_cols > UINT32_MAX)
		return ig_fail(err, -EINVAL, "stage_out: the input has no row for each token");
	s->n_out = 0;
	return check_columns("stage_out", p->first, (uint32_t)s->in[0].n_cols, p->width, err);
}

static void take_rows(const struct ig_op_launch *c, int64_t first, int64_t last, void *scratch)
{
	const struct ig_stage_in_params *p = c->params;

	for (int64_t r = first; r < last; r++)
		memcpy(ig_row(&c->out[0], r), c->step->stage_in + r * p->width + p->first,
		       p->n * sizeof(float));
}

static void give_rows(const struct ig_op_launch *c, int64_t first, int64_t last, void *scratch)
{
	const struct ig_stage_out_params *p = c->params;

	for (int64_t r = first; r < last; r++)
		memcpy(c->step->stage_out + r * p->width + p->first, ig_row(&c->in[0], r),
		       (size_t)c->in[0].n_cols * sizeof(float));
}

static int64_t units_of_input(const struct ig_op_launch *c) { return c->in[0].n_rows; }

static void reference_stage_in(const struct ig_op_launch *c)
{
	take_rows(c, 0, c->out[0].n_rows, NULL);
}

static void reference_stage_out(const struct ig_op_launch *c)
{
	give_rows(c, 0, c->in[0].n_rows, NULL);
}

static const struct ig_cpu_kernel stage_in_kernels[] = {
	IG_CPU_KERNEL(IG_ISA_GENERIC, IG_UNITS_ROWS, ig_units_rows, NULL, take_rows),
};
static const struct ig_cpu_kernel stage_out_kernels[] = {
	IG_CPU_KERNEL(IG_ISA_GENERIC, IG_UNITS_ROWS, units_of_input, NULL, give_rows),
};

/* Not on GPUs yet. */
NAMED_OP_FOR(stage_in, IG_SPLIT_NONE, NULL);
NAMED_OP_FOR(stage_out, IG_SPLIT_NONE, NULL);
