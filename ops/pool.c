/*
 * pool.c: one row of a sequence's rows, for embeddings: their mean, the first one or the last one.
 * The result's rows are those of the step's logit_rows, each the last of a sequence that begins at
 * position 0 in this step (runtime/driver.c checks it).  The mean adds rows in ascending order.
 */
#include "ops/op_private.h"

static int check(struct ig_op_shape *s, struct ig_error *err)
{
	const struct ig_pool_params *p = s->params;

	if (s->n_in != 1 || s->n_weights != 0)
		return ig_fail(err, -EINVAL, "pool: takes one input and no weight");
	if (s->in[0].row_class != IG_ROWS_TOKENS)
		return ig_fail(err, -EINVAL, "pool: the input's rows are not those of tokens");
	if (p->kind < IG_POOL_MEAN || p->kind > IG_POOL_LAST)
		return ig_fail(err, -EINVAL, "pool: unknown kind %u", p->kind);
	s->n_out = 1;
	s->out[0] = s->in[0];
	s->out[0].row_class = IG_ROWS_LOGITS;
	return 0;
}

/* The rows of result i. */
static void rows_of(const struct ig_op_launch *c, int64_t i, int64_t *first, int64_t *last)
{
	const struct ig_pool_params *p = c->params;

	*last = c->step->logit_rows[i];
	*first = *last - (p->kind == IG_POOL_LAST ? 0 : c->step->positions[*last]);
	if (p->kind == IG_POOL_CLS)
		*last = *first;
}

static void reference(const struct ig_op_launch *c)
{
	for (int64_t i = 0; i < c->out[0].n_rows; i++) {
		int64_t first, last;
		rows_of(c, i, &first, &last);
		for (int64_t k = 0; k < c->out[0].n_cols; k++) {
			double sum = 0.0;
			for (int64_t r = first; r <= last; r++)
				sum += (double)ig_row(&c->in[0], r)[k];
			ig_row(&c->out[0], i)[k] = (float)(sum / (double)(last - first + 1));
		}
	}
}

static void run(const struct ig_op_launch *c, int64_t first_unit, int64_t end, void *scratch)
{
	const int64_t n = c->out[0].n_cols;

	for (int64_t i = first_unit; i < end; i++) {
		float *restrict y = ig_row(&c->out[0], i);
		int64_t first, last;
		rows_of(c, i, &first, &last);
		memcpy(y, ig_row(&c->in[0], first), (size_t)n * sizeof *y);
		for (int64_t r = first + 1; r <= last; r++) {
			const float *x = ig_row(&c->in[0], r);
			for (int64_t k = 0; k < n; k++)
				y[k] += x[k];
		}
		if (last > first) {
			const float count = (float)(last - first + 1);
			for (int64_t k = 0; k < n; k++)
				y[k] /= count;
		}
	}
}

static const struct ig_cpu_kernel kernels[] = {
	IG_CPU_KERNEL(IG_ISA_GENERIC, IG_UNITS_ROWS, ig_units_rows, NULL, run),
};

CORE_OP(pool, struct ig_pool_params, 0, IG_SPLIT_NONE);
