/* logits.c: the product with the output matrix, for the rows whose logits are computed. */
#include "ops/op_private.h"

static int check(struct ig_op_shape *s, struct ig_error *err)
{
	if (s->n_in != 1 || s->n_weights != 1)
		return ig_fail(err, -EINVAL, "logits: takes one input and one weight");
	if (s->in[0].row_class == IG_ROWS_TOKENS)
		return ig_fail(err, -EINVAL, "logits: the input's rows are not gathered");
	if (s->weight[0].n_cols != s->in[0].n_cols)
		return ig_fail(err, -EINVAL,
			       "logits: the weight has rows of %lld values, the input %lld",
			       (long long)s->weight[0].n_cols, (long long)s->in[0].n_cols);
	s->n_out = 1;
	s->out[0] = (struct ig_shape){ 0, s->weight[0].n_rows, IG_F32, s->in[0].row_class };
	return 0;
}

static void reference(const struct ig_op_launch *c)
{
	float *w_row = malloc((size_t)c->in[0].n_cols * sizeof *w_row);

	if (!w_row)
		abort(); /* a reference runs in tests */
	for (int64_t r = 0; r < c->out[0].n_rows; r++)
		ig_reference_product(ig_row(&c->in[0], r), &c->weight[0], w_row,
				     ig_row(&c->out[0], r));
	free(w_row);
}

#define ENTRY(name, isa, dtype, layout) TILE_ENTRY(ig_logits_##name, isa, dtype, layout)
static const struct ig_cpu_kernel kernels[] = { TILE_LIST(ENTRY) };

CORE_OP(logits, struct ig_logits_params, 0, IG_SPLIT_OUTPUTS);
