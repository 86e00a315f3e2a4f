/* ranks.c: what a rank of a divided plan gets from the others: parts of sums and of columns. */
#include "runtime/gpu/gpu_private.h"

#include <ingot/gpu_lower.h>

#include <errno.h>
#include <string.h>

bool ig_gpu_adds_ranks(const struct ig_plan *plan, const struct ig_plan_node *n)
{
	return plan->n_ranks == 2 && plan->rank < plan->n_ranks && !strcmp(n->op->name, "sum");
}

/* Memory for a value; what ranks exchange is float32. */
static int make(struct ig_gpu_tape *t, const struct ig_plan *plan, ig_value v,
		const struct ig_program_limits *limits, struct ig_gpu_tensor *value)
{
	const struct ig_shape *s = &plan->values[v].shape;

	return ig_gpu_tape_value(t, IG_F32, s->n_cols, s->row_class,
				 ig_gpu_rows_of(limits, s->row_class), &value[v]);
}

/* The whole stride of each row, so that all rows are one piece. */
static struct ig_gpu_bind bind_rows(const struct ig_gpu_tensor *v, uint32_t access)
{
	return ig_gpu_bind_ref(v->ref, v->row_stride, access);
}

int ig_gpu_fetch_parts(struct ig_gpu_tape *t, const struct ig_plan *plan,
		       const struct ig_plan_node *n, const struct ig_program_limits *limits,
		       struct ig_gpu_tensor *value)
{
	struct ig_gpu_bind binds[IG_MAX_IN];
	uint32_t n_binds = 0, first = 0, row_class = IG_ROWS_TOKENS;
	bool others = false;

	for (uint32_t i = 0; i < n->n_in; i++)
		others = others || (n->in[i] != IG_NONE && plan->values[n->in[i]].first_node < 0);
	for (uint32_t i = 0; i < n->n_in && others; i++) {
		const struct ig_plan_value *v = &plan->values[n->in[i]];
		if (!v->part)
			continue;
		if (v->first_node < 0 && make(t, plan, n->in[i], limits, value))
			return t->status;
		if (!n_binds)
			first = v->part - 1;
		row_class = v->shape.row_class;
		binds[n_binds++] =
			bind_rows(&value[n->in[i]], v->first_node < 0 ? IG_GPU_WRITE : IG_GPU_READ);
	}
	return n_binds ? ig_gpu_tape_exchange(t, IG_GPU_FETCH, first, binds, n_binds, row_class) :
			 0;
}

int ig_gpu_emit_sum_of_ranks(struct ig_gpu_tape *t, const struct ig_plan *plan,
			     const struct ig_plan_node *n, const struct ig_program_limits *limits,
			     struct ig_gpu_tensor *value)
{
	const ig_value own = n->in[plan->rank], out = n->out[0];

	if (make(t, plan, out, limits, value))
		return t->status;
	const struct ig_gpu_bind binds[] = { bind_rows(&value[own], IG_GPU_READ),
					     bind_rows(&value[out], IG_GPU_WRITE) };
	return ig_gpu_tape_exchange(t, IG_GPU_ADD, 0, binds, 2, plan->values[out].shape.row_class);
}
