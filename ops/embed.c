/* embed.c: rows of a table by token id.  The table may be any weight format and
 * is shared with the logits' product where a model ties them. */
#include "ops/gpu/rows.h"
#include "ops/op-private.h"

static int check(struct ig_op_shape *s, struct ig_error *err)
{
	int rc = ig_op_check_size(s, "embed", sizeof(struct ig_embed_params), err);
	if (rc)
		return rc;
	if (s->n_in != 0 || s->n_weights != 1)
		return ig_fail(err, -EINVAL, "embed: takes no input and one weight");
	s->n_out = 1;
	s->out[0] = (struct ig_shape){ 0, s->weight[0].n_cols, IG_F32, IG_ROWS_TOKENS };
	return 0;
}

/* An id out of range reads the first row; the engine lets none through. */
static int64_t id_of(const struct ig_op_call *c, int64_t r)
{
	int32_t id = ig_step_token(c->step, r);
	return id >= 0 && id < c->weight[0].n_rows ? id : 0;
}

static void scale_row(const struct ig_op_call *c, float *y)
{
	const struct ig_embed_params *p = c->params;
	if (p->scale != 1.0f)
		for (int64_t i = 0; i < c->out[0].n_cols; i++)
			y[i] *= p->scale;
}

static void reference(const struct ig_op_call *c)
{
	for (int64_t r = 0; r < c->out[0].n_rows; r++) {
		ig_weight_row(&c->weight[0], id_of(c, r), ig_row(&c->out[0], r));
		scale_row(c, ig_row(&c->out[0], r));
	}
}

static void run(const struct ig_op_call *c, int64_t first, int64_t last, void *scratch)
{
	const struct ig_tensor *w = &c->weight[0];
	for (int64_t r = first; r < last; r++) {
		ig_tile16_row_to_f32(w->dtype, w->data, w->n_cols, id_of(c, r), ig_row(&c->out[0], r));
		scale_row(c, ig_row(&c->out[0], r));
	}
}

static const struct ig_cpu_kernel kernels[] = {
	{ sizeof(struct ig_cpu_kernel), IG_ISA_GENERIC, IG_DTYPE_NONE, IG_FORM_TILE16, IG_FORM_ROWS,
	  IG_UNITS_ROWS, ig_units_rows, NULL, run },
};

const struct ig_op ig_op_embed = {
	sizeof(struct ig_op), sizeof(struct ig_embed_params), "embed", check, reference,
	kernels, 1, 0, &ig_gpu_embed,
};
