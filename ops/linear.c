/* linear.c: products with one to four weight matrices side by side, with bias,
 * activation and residual. */
#include "ops/op_private.h"

static int check(struct ig_op_shape *s, struct ig_error *err)
{
	const struct ig_linear_params *p = s->params;

	if (p->n_weights < 1 || p->n_weights > 4 || p->bias > 1 ||
	    (p->act > IG_ACT_RELU2 && p->act != IG_ACT_GELU_ERF && p->act != IG_ACT_TANH))
		return ig_fail(err, -EINVAL, "linear: parameters out of range");
	if (s->n_in < 1 || s->n_in > 2 || s->n_weights != p->n_weights * (1 + p->bias))
		return ig_fail(err, -EINVAL, "linear: %u inputs and %u weights do not fit", s->n_in,
			       s->n_weights);
	int64_t cols = 0;
	for (uint32_t i = 0; i < p->n_weights; i++) {
		const struct ig_shape *w = &s->weight[i], *b = &s->weight[p->n_weights + i];
		if (w->n_cols != s->in[0].n_cols)
			return ig_fail(err, -EINVAL,
				       "linear: weight %u has rows of %lld values, the input %lld",
				       i, (long long)w->n_cols, (long long)s->in[0].n_cols);
		if (p->bias && (b->n_rows != 1 || b->n_cols != w->n_rows || b->dtype != IG_F32))
			return ig_fail(err, -EINVAL, "linear: bias %u must be [1, %lld] of F32", i,
				       (long long)w->n_rows);
		cols += w->n_rows;
	}
	if (s->n_in == 2 && (s->in[1].n_cols != cols || s->in[1].row_class != s->in[0].row_class))
		return ig_fail(err, -EINVAL,
			       "linear: the residual has %lld columns, the result %lld",
			       (long long)s->in[1].n_cols, (long long)cols);
	s->n_out = 1;
	s->out[0] = (struct ig_shape){ 0, cols, IG_F32, s->in[0].row_class };
	return 0;
}

static void reference(const struct ig_op_launch *c)
{
	const struct ig_linear_params *p = c->params;
	float *w_row = malloc((size_t)c->in[0].n_cols * sizeof *w_row);

	if (!w_row)
		abort(); /* a reference runs in tests */
	for (int64_t r = 0; r < c->out[0].n_rows; r++) {
		float *y = ig_row(&c->out[0], r);
		const float *res = c->in[1].data ? ig_row(&c->in[1], r) : NULL;
		for (uint32_t i = 0; i < p->n_weights; i++) {
			const struct ig_tensor *w = &c->weight[i];
			ig_reference_product(ig_row(&c->in[0], r), w, w_row, y);
			for (int64_t o = 0; o < w->n_rows; o++) {
				if (p->bias)
					y[o] += ((const float *)c->weight[p->n_weights + i]
							 .data)[o];
				y[o] = ig_act(p->act, y[o]);
				if (res)
					y[o] += res[o];
			}
			y += w->n_rows;
			res = res ? res + w->n_rows : NULL;
		}
	}
	free(w_row);
}

#define ENTRY(name, isa, dtype, layout) TILE_ENTRY(ig_linear_##name, isa, dtype, layout)
static const struct ig_cpu_kernel kernels[] = { TILE_LIST(ENTRY) };

CORE_OP(linear, struct ig_linear_params, IG_OP_SPLIT_WEIGHTS, IG_SPLIT_PRODUCT);
