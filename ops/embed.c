/* embed.c: rows of a table by token id, plus rows of a second one by position if positions are
 * learned, plus rows of a third one by the type of the token's text.  A row of the first one may come from
 * outside instead.  A table may have any weight format; if weights are tied, the first table is also the
 * output matrix. */
#include "ops/op_private.h"

static int check(struct ig_op_shape *s, struct ig_error *err)
{
	static const char *const what[] = { "tokens", "positions", "types" };

	if (s->n_in != 0 || s->n_weights < 1 || s->n_weights > 3)
		return ig_fail(err, -EINVAL, "embed: takes no input and one to three weights");
	for (uint32_t i = 1; i < s->n_weights; i++) {
		const struct ig_shape *w = &s->weight[i];
		bool none = i == 1 && s->n_weights == 3 && w->n_rows == 0;
		if (!none && (w->n_rows < 1 || w->n_cols != s->weight[0].n_cols))
			return ig_fail(err, -EINVAL,
				       "embed: %s of [%lld, %lld] do not fit rows of %lld values",
				       what[i], (long long)w->n_rows, (long long)w->n_cols,
				       (long long)s->weight[0].n_cols);
	}
	const struct ig_embed_params *p = s->params;
	if (p->next > 1)
		return ig_fail(err, -EINVAL, "embed: next is not 0 or 1");
	if (p->outside > 1 || (p->outside && p->next))
		return ig_fail(err, -EINVAL, "embed: outside is not 0 or 1, or beside next");
	s->n_out = 1;
	s->out[0] = (struct ig_shape){ 0, s->weight[0].n_cols, IG_F32, IG_ROWS_TOKENS };
	return 0;
}

/* An id out of range would read row 0; the engine rejects it before. */
static int64_t id_of(const struct ig_op_launch *c, int64_t r)
{
	const struct ig_embed_params *p = c->params;
	int32_t id = p->next ? ig_step_next(c->step, r) : ig_step_token(c->step, r);
	return id >= 0 && id < c->weight[0].n_rows ? id : 0;
}

/* The same for a position; the context is not longer than the table. */
static int64_t position_of(const struct ig_op_launch *c, int64_t r)
{
	int32_t position = c->step->positions[r];
	return position >= 0 && position < c->weight[1].n_rows ? position : 0;
}

static int64_t type_of(const struct ig_op_launch *c, int64_t r)
{
	int32_t type = c->step->row_types ? c->step->row_types[r] : 0;
	return type >= 0 && type < c->weight[2].n_rows ? type : 0;
}

static bool has(const struct ig_op_launch *c, uint32_t weight)
{
	return c->n_weights > weight && c->weight[weight].data;
}

/* Row r if it comes from outside. */
static bool take_outside(const struct ig_op_launch *c, int64_t r)
{
	const struct ig_embed_params *p = c->params;
	const float *x = p->outside ? ig_step_outside(c->step, r) : NULL;

	if (x)
		memcpy(ig_row(&c->out[0], r), x, (size_t)c->out[0].n_cols * sizeof *x);
	return x;
}

static void scale_row(const struct ig_op_launch *c, float *y)
{
	const struct ig_embed_params *p = c->params;
	if (p->scale != 1.0f)
		for (int64_t i = 0; i < c->out[0].n_cols; i++)
			y[i] *= p->scale;
}

static void add_row(float *y, const float *x, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		y[i] += x[i];
}

static void reference(const struct ig_op_launch *c)
{
	int64_t n = c->out[0].n_cols;
	float *learned = malloc((size_t)n * sizeof *learned);

	if (!learned)
		abort(); /* a reference runs in tests */
	for (int64_t r = 0; r < c->out[0].n_rows; r++) {
		if (!take_outside(c, r)) {
			ig_weight_row(&c->weight[0], id_of(c, r), ig_row(&c->out[0], r));
			scale_row(c, ig_row(&c->out[0], r));
		}
		if (has(c, 1)) {
			ig_weight_row(&c->weight[1], position_of(c, r), learned);
			add_row(ig_row(&c->out[0], r), learned, n);
		}
		if (has(c, 2)) {
			ig_weight_row(&c->weight[2], type_of(c, r), learned);
			add_row(ig_row(&c->out[0], r), learned, n);
		}
	}
	free(learned);
}

/* A table of one row is not tiled. */
static void table_row(const struct ig_tensor *w, int64_t r, float *dst)
{
	if (w->layout == IG_LAYOUT_ROWS)
		ig_weight_row(w, r, dst);
	else
		ig_tile16_row_to_f32(w->dtype, w->data, w->n_cols, r, dst);
}

static uint64_t scratch_bytes(const struct ig_op_launch *c)
{
	return c->n_weights > 1 ? (uint64_t)c->out[0].n_cols * sizeof(float) : 0;
}

static void run(const struct ig_op_launch *c, int64_t first, int64_t last, void *scratch)
{
	for (int64_t r = first; r < last; r++) {
		if (!take_outside(c, r)) {
			table_row(&c->weight[0], id_of(c, r), ig_row(&c->out[0], r));
			scale_row(c, ig_row(&c->out[0], r));
		}
		if (has(c, 1)) {
			table_row(&c->weight[1], position_of(c, r), scratch);
			add_row(ig_row(&c->out[0], r), scratch, c->out[0].n_cols);
		}
		if (has(c, 2)) {
			table_row(&c->weight[2], type_of(c, r), scratch);
			add_row(ig_row(&c->out[0], r), scratch, c->out[0].n_cols);
		}
	}
}

static const struct ig_cpu_kernel kernels[] = {
	{ sizeof(struct ig_cpu_kernel), IG_ISA_GENERIC, IG_DTYPE_NONE, IG_LAYOUT_TILE16,
	  IG_LAYOUT_ROWS, IG_UNITS_ROWS, ig_units_rows, scratch_bytes, run },
};

CORE_OP(embed, struct ig_embed_params, 0, IG_SPLIT_COPY);
