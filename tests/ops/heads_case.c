/* heads_case.c: see heads_case.h. */
#include "tests/ops/heads_case.h"

#include "model/formats/checkpoint.h"
#include "tests/ops/cases.h"

#include <stdlib.h>

const struct heads_shape heads_shapes[] = {
	{ IG_F32, 3, 8, 16, 32, 70 },	 { IG_F16, 4, 8, 16, 32, 70 },
	{ IG_F16, 2, 64, 192, 64, 21 },	 { IG_BF16, 5, 0, 40, 16, 20 },
	{ IG_BF16, 3, 16, 48, 32, 70 },	 { IG_Q8_0, 3, 64, 192, 48, 70 },
	{ IG_Q8_0, 4, 32, 32, 16, 9 },	 { IG_Q4_0, 2, 64, 128, 32, 20 },
	{ IG_Q5_0, 3, 64, 192, 16, 5 },	 { IG_Q4_1, 2, 0, 512, 32, 3 },
	{ IG_Q4_K, 2, 0, 512, 64, 70 },	 { IG_Q6_K, 3, 0, 256, 16, 17 },
	{ IG_IQ4_XS, 2, 0, 256, 32, 6 }, { IG_MXFP4, 2, 32, 64, 16, 6 },
	{ IG_Q8_M, 2, 0, 64, 16, 66 },
};
const size_t n_heads_shapes = sizeof heads_shapes / sizeof *heads_shapes;

static void *must(void *p)
{
	if (!p)
		abort();
	return p;
}

void heads_open(struct heads_case *c, const struct heads_shape *s)
{
	const uint64_t row = ig_dtype_row_bytes(s->dtype, s->k);
	const int64_t n_rows = s->n_heads * s->m;
	uint64_t seed = 0x452821e638d01377u ^ (uint64_t)(s->k * 131 + s->dtype);

	*c = (struct heads_case){ .s = s, .params = { sizeof c->params, s->n_heads, s->n_rest } };
	c->x_cols = s->n_heads * (s->k + s->n_rest);
	c->y_cols = s->n_heads * (s->m + s->n_rest);
	c->x = must(malloc((size_t)(s->rows * c->x_cols) * sizeof *c->x));
	for (int64_t i = 0; i < s->rows * c->x_cols; i++) /* some are outliers */
		c->x[i] = ig_random_normalish(&seed) * (i % 53 == 17 ? 40.0f : 1.0f);
	c->w = must(aligned_alloc(64, ((size_t)(row * (uint64_t)n_rows) + 63) & ~(size_t)63));
	for (int64_t r = 0; r < n_rows; r++)
		ig_case_weight_row(s->dtype, (uint8_t *)c->w + row * (uint64_t)r, s->k, &seed);
}

void heads_close(struct heads_case *c)
{
	free(c->x);
	free(c->w);
}

void heads_launch(const struct heads_case *c, int32_t first, int32_t n, float *y,
		  struct ig_step *step, struct ig_op_launch *launch)
{
	const struct heads_shape *s = c->s;

	*step = (struct ig_step){ .struct_size = sizeof *step, .n_rows = n };
	*launch = (struct ig_op_launch){
		.struct_size = sizeof *launch,
		.n_in = s->n_rest ? 2 : 1,
		.n_weights = 1,
		.n_out = 1,
		.params = &c->params,
		.step = step,
		.in = { { c->x + first * c->x_cols, n, c->x_cols, c->x_cols * 4, IG_F32,
			  IG_LAYOUT_ROWS } },
		.weight = { { c->w, s->n_heads * s->m, s->k,
			      (int64_t)ig_dtype_row_bytes(s->dtype, s->k), s->dtype,
			      IG_LAYOUT_ROWS } },
		.out = { { y, n, c->y_cols, c->y_cols * 4, IG_F32, IG_LAYOUT_ROWS } },
	};
	if (s->n_rest)
		launch->in[1] = launch->in[0];
}
