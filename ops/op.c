/* op.c: shared functions of the core ops, and their list. */
#include "ops/op_private.h"
#include "model/formats/checkpoint.h"

const struct ig_op *const ig_core_ops[] = {
	&ig_op_embed,
	&ig_op_norm,
	&ig_op_linear,
	&ig_op_glu,
	&ig_op_logits,
	&ig_op_sample,
	&ig_op_adapt_down,
	&ig_op_adapt_up,
	&ig_op_glu_join,
	&ig_op_multiply,
	&ig_op_soft_cap,
	&ig_op_pool,
	&ig_op_output,
	&ig_op_linear_heads,
	&ig_op_sum,
	&ig_op_concat,
	&ig_op_stage_in,
	&ig_op_stage_out,
	NULL,
};

int64_t ig_units_tiles(const struct ig_op_launch *c)
{
	return ig_tile16_n_tiles(c->weight[0].n_rows);
}

int64_t ig_units_rows(const struct ig_op_launch *c) { return c->out[0].n_rows; }

void ig_weight_row(const struct ig_tensor *w, int64_t r, float *dst)
{
	ig_dtype_to_f32(w->dtype, (const char *)w->data + r * w->row_stride, dst, w->n_cols);
}

void ig_reference_product(const float *x, const struct ig_tensor *w, float *w_row, float *y)
{
	for (int64_t o = 0; o < w->n_rows; o++) {
		double sum = 0.0;
		ig_weight_row(w, o, w_row);
		for (int64_t i = 0; i < w->n_cols; i++)
			sum += (double)w_row[i] * (double)x[i];
		y[o] = (float)sum;
	}
}
