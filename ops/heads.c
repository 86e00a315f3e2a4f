/*
 * heads.c: the op linear_heads: a product of each head's columns with the head's own matrix, as multi-head latent
 * attention has two of them.  Each kernel of linear for tiles is the inner kernel of one here, run on the head's
 * columns as its input and output: so every weight format is supported, and a head's result has the bits that linear
 * would give.  The row of 8-bit values has arrays over all columns; a head's parts of them are gathered, GROUP rows at
 * a time.  A unit is a tile of outputs of one head.
 */
#include "model/formats/checkpoint.h"
#include "ops/op_private.h"

#include <string.h>

#define TILE 16
#define GROUP 64 /* rows gathered at a time */

/* Of a head: columns of x, and of y. */
static int64_t x_cols(const struct ig_op_launch *c)
{
	const struct ig_linear_heads_params *p = c->params;
	return c->in[0].n_cols / p->n_heads;
}

static int64_t y_cols(const struct ig_op_launch *c)
{
	const struct ig_linear_heads_params *p = c->params;
	return c->out[0].n_cols / p->n_heads;
}

static int check(struct ig_op_shape *s, struct ig_error *err)
{
	const struct ig_linear_heads_params *p = s->params;
	const struct ig_shape *x = &s->in[0], *w = &s->weight[0];
	const int64_t n = p->n_heads;

	if (s->n_in != 1 + (p->n_rest > 0) || s->n_weights != 1 || s->n_out != 1 || n < 1 ||
	    n > IG_ATTENTION_MAX_HEADS || x->dtype != IG_F32)
		return ig_fail(
			err, -EINVAL,
			"linear_heads: %u inputs, %u weights, %u outputs, %u heads; takes one of "
			"each, with other columns two inputs, and 1 … %d heads",
			s->n_in, s->n_weights, s->n_out, p->n_heads, IG_ATTENTION_MAX_HEADS);
	if (x->n_cols % n || w->n_cols < 1 || x->n_cols / n - (int64_t)p->n_rest != w->n_cols)
		return ig_fail(err, -EINVAL,
			       "linear_heads: %u heads of %lld columns and %u others do not fit "
			       "%lld",
			       p->n_heads, (long long)w->n_cols, p->n_rest, (long long)x->n_cols);
	if (p->n_rest && (s->in[1].n_cols != x->n_cols || s->in[1].dtype != IG_F32 ||
			  s->in[1].row_class != x->row_class))
		return ig_fail(err, -EINVAL, "linear_heads: the other columns are not of x");
	if (w->n_cols % 8 || p->n_rest % 8)
		return ig_fail(err, -ENOTSUP,
			       "linear_heads: heads of %lld columns and %u others; both must be "
			       "multiples of 8",
			       (long long)w->n_cols, p->n_rest);
	if (w->n_rows < 1 || w->n_rows % (n * TILE))
		return ig_fail(err, -ENOTSUP,
			       "linear_heads: %lld rows of weights for %u heads; each must have a "
			       "multiple of %d",
			       (long long)w->n_rows, p->n_heads, TILE);
	/* blocks of values are of one head */
	if (ig_dtype_row_bytes(w->dtype, 8) == 0 && x->n_cols / n % 32)
		return ig_fail(err, -ENOTSUP,
			       "linear_heads: heads of %lld columns; with weights of %s it must be "
			       "a multiple of 32",
			       (long long)(x->n_cols / n), ig_dtype_name(w->dtype));
	s->out[0] = (struct ig_shape){ .n_cols = w->n_rows + n * p->n_rest,
				       .dtype = IG_F32,
				       .row_class = x->row_class };
	return 0;
}

static void reference(const struct ig_op_launch *c)
{
	const struct ig_linear_heads_params *p = c->params;
	const int64_t x_n = x_cols(c), y_n = y_cols(c), k = c->weight[0].n_cols;
	float *w_row = malloc((size_t)k * sizeof *w_row);

	if (!w_row)
		abort(); /* a reference runs in tests */
	for (int64_t r = 0; r < c->out[0].n_rows; r++)
		for (int64_t h = 0; h < p->n_heads; h++) {
			const float *x = ig_row(&c->in[0], r) + h * x_n;
			float *y = ig_row(&c->out[0], r) + h * y_n;
			struct ig_tensor w = c->weight[0];

			w.n_rows = y_n - p->n_rest;
			w.data = (char *)w.data + h * w.n_rows * w.row_stride;
			ig_reference_product(x, &w, w_row, y);
			if (p->n_rest)
				memcpy(y + w.n_rows, ig_row(&c->in[1], r) + h * x_n + k,
				       p->n_rest * sizeof *y);
		}
	free(w_row);
}

/* ---- kernels ------------------------------------------------------------------------------ */

static int64_t tiles_of_head(const struct ig_op_launch *c)
{
	const struct ig_linear_heads_params *p = c->params;
	return c->weight[0].n_rows / p->n_heads / TILE;
}

static int64_t n_units(const struct ig_op_launch *c)
{
	return ((const struct ig_linear_heads_params *)c->params)->n_heads * tiles_of_head(c);
}

static uint64_t gathered_bytes(const struct ig_op_launch *c)
{
	return ig_layout_row_bytes(IG_LAYOUT_Q8, c->weight[0].n_cols);
}

static uint64_t scratch(const struct ig_op_launch *c)
{
	return c->in[0].layout == IG_LAYOUT_Q8 ? GROUP * gathered_bytes(c) : 0;
}

/* A head's columns of n rows in IG_LAYOUT_Q8: a part of each array. */
static void gather(const struct ig_op_launch *c, int64_t row, int64_t n, int64_t head, uint8_t *to)
{
	const size_t k = (size_t)c->weight[0].n_cols, all = (size_t)c->in[0].n_cols;
	const size_t first = (size_t)(head * x_cols(c));

	for (int64_t i = 0; i < n; i++, to += gathered_bytes(c)) {
		const uint8_t *from =
			(const uint8_t *)c->in[0].data + (row + i) * c->in[0].row_stride;
		memcpy(to, from + first, k);
		for (size_t a = 0; a < 6; a++) /* a word for 32 values */
			memcpy(to + k + a * (k / 8), from + all + a * (all / 8) + first / 8, k / 8);
	}
}

/* The columns of a head that are passed on: from in[1], as x may have another layout here. */
static void pass_on(const struct ig_op_launch *c, int64_t head)
{
	const struct ig_linear_heads_params *p = c->params;
	const int64_t x_n = x_cols(c), y_n = y_cols(c), n = p->n_rest;

	for (int64_t r = 0; r < c->out[0].n_rows && n; r++)
		memcpy(ig_row(&c->out[0], r) + (head + 1) * y_n - n,
		       ig_row(&c->in[1], r) + (head + 1) * x_n - n, (size_t)n * sizeof(float));
}

/* Tiles first … last - 1 of a head, for n rows from `row` on, whose columns of the head are x's. */
static void run_tiles(const struct ig_op_launch *c, int64_t head, int64_t first, int64_t last,
		      int64_t row, const struct ig_tensor *x)
{
	static const struct ig_linear_params linear = { sizeof linear, 1, IG_ACT_NONE, 0 };
	const struct ig_tensor *w = &c->weight[0], *y = &c->out[0];
	const uint64_t tile = ig_tile16_tile_bytes(w->dtype, w->n_cols);
	const int64_t n_cols = (last - first) * TILE;
	struct ig_op_launch inner = { .struct_size = sizeof inner,
				      .n_in = 1,
				      .n_weights = 1,
				      .n_out = 1,
				      .params = &linear,
				      .step = c->step,
				      .kernel = c->kernel->inner };

	inner.in[0] = *x;
	inner.weight[0] = *w;
	inner.weight[0].n_rows = n_cols;
	inner.weight[0].data =
		(uint8_t *)w->data + (uint64_t)(head * tiles_of_head(c) + first) * tile;
	inner.out[0] = *y;
	inner.out[0].data = ig_row(y, row) + head * y_cols(c) + first * TILE;
	inner.out[0].n_cols = n_cols;
	inner.out[0].n_rows = x->n_rows;
	inner.kernel->run(&inner, 0, last - first, NULL);
}

static void run_head(const struct ig_op_launch *c, int64_t head, int64_t first, int64_t last,
		     void *memory)
{
	const int64_t n_rows = c->out[0].n_rows;
	struct ig_tensor x = c->in[0];

	x.n_cols = c->weight[0].n_cols;
	if (x.layout != IG_LAYOUT_Q8) {
		x.data =
			(uint8_t *)x.data + head * x_cols(c) * (x.layout == IG_LAYOUT_BF16 ? 2 : 4);
		run_tiles(c, head, first, last, 0, &x);
		return;
	}
	x.data = memory;
	x.row_stride = (int64_t)gathered_bytes(c);
	for (int64_t row = 0; row < n_rows; row += GROUP) {
		x.n_rows = n_rows - row < GROUP ? n_rows - row : GROUP;
		gather(c, row, x.n_rows, head, memory);
		run_tiles(c, head, first, last, row, &x);
	}
}

static void run(const struct ig_op_launch *c, int64_t first, int64_t last, void *memory)
{
	const int64_t n = tiles_of_head(c);

	while (first < last) {
		const int64_t head = first / n, tile = first % n;
		const int64_t end = n - tile < last - first ? n : tile + last - first;
		if (tile == 0)
			pass_on(c, head);
		run_head(c, head, tile, end, memory);
		first += end - tile;
	}
}

#define INNER(fn, isa, dtype, layout)                                                              \
	{ sizeof(struct ig_cpu_kernel),                                                            \
	  isa,                                                                                     \
	  dtype,                                                                                   \
	  IG_LAYOUT_TILE16,                                                                        \
	  layout,                                                                                  \
	  IG_UNITS_OTHER,                                                                          \
	  n_units,                                                                                 \
	  scratch,                                                                                 \
	  run,                                                                                     \
	  &(const struct ig_cpu_kernel)TILE_ENTRY_OF(fn, isa, dtype, layout) },
#define ENTRY(name, isa, dtype, layout) INNER(ig_linear_##name, isa, dtype, layout)
static const struct ig_cpu_kernel kernels[] = { TILE_LIST(ENTRY) };

CORE_OP(linear_heads, struct ig_linear_heads_params, 0, IG_SPLIT_NONE);
