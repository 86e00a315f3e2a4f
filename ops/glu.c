/* glu.c: gated linear unit (Shazeer 2020): act(x G^T) times x U^T in one pass, with biases. */
#include "ops/op_private.h"

static int check(struct ig_op_shape *s, struct ig_error *err)
{
	const struct ig_glu_params *p = s->params;
	const struct ig_shape *g = &s->weight[0], *u = &s->weight[1];

	if (s->n_in != 1 || p->bias > 1 || s->n_weights != 2 + 2 * p->bias ||
	    !ig_is_gate_act(p->act, p->limit))
		return ig_fail(err, -EINVAL,
			       "glu: takes one input, two weights or, with biases, four, a known "
			       "activation");
	if (g->n_cols != s->in[0].n_cols || u->n_cols != g->n_cols || u->n_rows != g->n_rows)
		return ig_fail(err, -EINVAL,
			       "glu: gate [%lld, %lld] and up [%lld, %lld] do not fit %lld",
			       (long long)g->n_rows, (long long)g->n_cols, (long long)u->n_rows,
			       (long long)u->n_cols, (long long)s->in[0].n_cols);
	if (g->dtype != u->dtype)
		return ig_fail(err, -ENOTSUP, "glu: gate and up have different weight formats");
	for (uint32_t i = 2; i < s->n_weights; i++)
		if (s->weight[i].n_rows != 1 || s->weight[i].n_cols != g->n_rows ||
		    s->weight[i].dtype != IG_F32)
			return ig_fail(err, -EINVAL, "glu: bias %u must be [1, %lld] of F32", i - 2,
				       (long long)g->n_rows);
	s->n_out = 1;
	s->out[0] = (struct ig_shape){ 0, g->n_rows, IG_F32, s->in[0].row_class };
	return 0;
}

static void reference(const struct ig_op_launch *c)
{
	const struct ig_glu_params *p = c->params;
	int64_t n = c->out[0].n_cols;
	float *w_row = malloc((size_t)(c->in[0].n_cols + n) * sizeof *w_row);

	if (!w_row)
		abort(); /* a reference runs in tests */
	float *gate = w_row + c->in[0].n_cols;
	for (int64_t r = 0; r < c->out[0].n_rows; r++) {
		float *y = ig_row(&c->out[0], r);
		ig_reference_product(ig_row(&c->in[0], r), &c->weight[0], w_row, gate);
		ig_reference_product(ig_row(&c->in[0], r), &c->weight[1], w_row, y);
		for (int64_t o = 0; o < n; o++) {
			if (p->bias) {
				gate[o] += ((const float *)c->weight[2].data)[o];
				y[o] += ((const float *)c->weight[3].data)[o];
			}
			y[o] = p->act == IG_ACT_CLAMPED ? ig_clampedf(gate[o], y[o], p->limit) :
							  ig_act(p->act, gate[o]) * y[o];
		}
	}
	free(w_row);
}

#define ENTRY(name, isa, dtype, layout) TILE_ENTRY(ig_glu_##name, isa, dtype, layout)
static const struct ig_cpu_kernel kernels[] = { TILE_LIST(ENTRY) };

CORE_OP(glu, struct ig_glu_params, 0, IG_SPLIT_PAIRS);
