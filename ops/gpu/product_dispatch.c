/* product_dispatch.c: records the dispatches of the kernels in shaders/core/linear.h and glu.h, with
 * variants for different numbers of rows, of which a step runs one. */
#include "ops/gpu/product_private.h"

static struct ig_gpu_bind bind_columns(const struct ig_gpu_tensor *v, uint64_t first, uint64_t n,
				       uint32_t access)
{
	struct ig_gpu_bind b = ig_gpu_bind_ref(v->ref, n * ig_gpu_element_bytes(v->dtype), access);
	b.ref.offset += first * ig_gpu_element_bytes(v->dtype);
	return b;
}

/* Boxes for x and weights: n_rows of x; boxes of box_x rows of x and box_w rows of a weight. */
static void box_operands(const struct ig_product *p, const struct linear_args *args,
			 uint32_t n_rows, uint32_t box_x, uint32_t box_w, struct ig_gpu_dispatch *d)
{
	d->box[d->n_boxes++] =
		(struct ig_gpu_box){ 0, box_x, n_rows, args->k, p->launch->in[0].row_stride };
	for (uint32_t i = 0; i < (p->pair ? 2 : 4); i++) {
		const struct ig_gpu_tensor *w = p->weight[i < p->n ? i : 0];
		d->box[d->n_boxes++] = (struct ig_gpu_box){ 1 + i, box_w, (uint32_t)w->n_rows,
							    args->k, w->row_stride };
	}
}

static void bind_operands(const struct ig_product *p, const struct linear_args *args, bool norm,
			  struct ig_gpu_dispatch *d)
{
	const struct ig_gpu_bind left_out = IG_GPU_NONE;
	const struct ig_gpu_launch *c = p->launch;
	/* Offsets of buffers are multiples of 4 bytes. */
	uint64_t first = (uint64_t)p->column - args->column, columns = args->column;

	for (uint32_t i = 0; i < args->n_weights; i++)
		columns += args->n[i];
	if (p->n_heads)
		columns = (uint64_t)c->out[0].n_cols;
	d->bind[d->n_binds++] = ig_gpu_bind_value(norm ? &c->norm->x : &c->in[0], IG_GPU_READ);
	for (uint32_t i = 0; i < (p->pair ? 2 : 4); i++)
		d->bind[d->n_binds++] = i < p->n ? ig_gpu_bind_weight(p->weight[i]) : left_out;
	if (!p->pair) {
		for (uint32_t i = 0; i < 4; i++)
			d->bind[d->n_binds++] =
				i < p->n && p->bias[i] ?
					ig_gpu_bind_ref(p->bias[i]->ref, (uint64_t)args->n[i] * 4,
							IG_GPU_READ) :
					left_out;
		d->bind[d->n_binds++] =
			args->flags & LINEAR_RESIDUAL ?
				bind_columns(&c->in[1], first, columns, IG_GPU_READ) :
				left_out;
	}
	d->bind[d->n_binds++] = bind_columns(&c->out[0], first, columns, IG_GPU_WRITE);
	if (norm)
		d->bind[d->n_binds++] =
			ig_gpu_bind_ref(c->norm->w.ref, (uint64_t)args->k * 4, IG_GPU_READ);
}

/* The grid and the threads of a kernel for few rows of weights in tiles. */
static void size_tiles(const struct ig_product *p, const struct ig_product_variant *v,
		       struct linear_args *args, struct ig_gpu_dispatch *d)
{
	const struct ig_gpu_facts *f = p->launch->facts;
	int64_t groups;

	args->width = ig_product_tiles_width(p, v, args->shares);
	args->cluster = v->cluster ? v->cluster : 1;
	groups = (ig_product_tiles_across(p, 16) + args->width - 1) / args->width;
	if (f->kind == IG_GPU_CUDA && groups > ig_gpu_clusters(f, args->cluster))
		groups = ig_gpu_clusters(f, args->cluster);
	groups *= args->cluster;
	d->cluster = v->cluster;
	d->threads = args->width * ig_product_team(p, v, args->shares) * 32;
	d->threadgroup_bytes = (uint32_t)ig_product_tiles_bytes(p, v, args->width, args->shares);
	d->grid[0] = (struct ig_gpu_extent){ IG_LIVE_ONE, 1, 1, (uint32_t)groups };
}

/* The same of dot products in float. */
static void size_dots(const struct ig_product *p, struct linear_args *args, uint64_t groups,
		      struct ig_gpu_dispatch *d)
{
	args->width = ig_product_dots_rows(p, args->shares);
	d->threadgroup_bytes = (uint32_t)ig_product_dots_bytes(p, args->width, args->shares);
	d->grid[0] = (struct ig_gpu_extent){ IG_LIVE_ONE, 1, 1, (uint32_t)groups };
	d->grid[1] = (struct ig_gpu_extent){ d->when_live, 1, args->width, 1 };
}

/* The same of a kernel for some dozens of rows, and the box of x. */
static void size_wide(const struct ig_product *p, const struct ig_product_variant *v,
		      const struct linear_args *args, struct ig_gpu_dispatch *d)
{
	const int64_t outputs = p->pair ? WIDE_OUTPUTS / 2 : WIDE_OUTPUTS;
	const int64_t groups = (ig_product_tiles_across(p, 16) * 16 + outputs - 1) / outputs;

	d->cluster = v->cluster;
	d->threads = WIDE_THREADS;
	d->threadgroup_bytes = (uint32_t)ig_product_wide_bytes(v->shape.bm, args->shares);
	d->grid[0] = (struct ig_gpu_extent){ IG_LIVE_ONE, 1, 1, (uint32_t)groups * args->shares };
	if (v->max_rows > v->shape.bm) /* passes */
		d->grid[1] = (struct ig_gpu_extent){ d->when_live, 1, v->shape.bm, 1 };
}

int ig_product_emit(const struct ig_product *p, const struct ig_product_variant *v,
		    const struct linear_args *common, const struct ig_gpu_host *h,
		    struct ig_gpu_tape *t)
{
	struct linear_args own = *common, *args = &own;
	const uint32_t max_rows = ig_gpu_max_rows(p->launch);
	const struct ig_product_tile *s = &v->shape;
	uint32_t width = v->kind == TILES || v->kind == WIDE ? 16 : p->pair ? s->bn / 2 : s->bn;
	uint32_t groups = s->sm * s->sn * (v->kind == SHARES ? args->shares : 1);
	struct ig_gpu_dispatch d = { .struct_size = sizeof d };
	uint64_t tiles = 0;
	char name[64];

	if (v->min_rows > max_rows)
		return 0;
	for (uint32_t i = 0; i < args->n_weights; i++)
		tiles += ((uint64_t)args->n[i] + width - 1) / width;
	if (ig_product_is_tiled(p))
		snprintf(name, sizeof name, "%s_tiles_%s_%s%s", p->pair ? "glu" : "linear",
			 ig_gpu_format_name(p->dtype), v->suffix, v->norm ? "_norm" : "");
	else
		snprintf(name, sizeof name, "%s_%s_%s%s_%s", p->pair ? "glu" : "linear",
			 ig_gpu_product_format(p->dtype, p->element),
			 ig_gpu_format_name(p->element),
			 ig_product_is_odd(p->dtype, args->k) ? "_odd" : "", v->suffix);
	d.shader = p->shader;
	d.kernel = name;
	d.args = args;
	d.n_arg_bytes = sizeof *args;
	d.threads = groups * 32;
	d.threadgroup_bytes = (uint32_t)ig_product_threadgroup_bytes(v, p->element, args->shares);
	d.when_live = ig_gpu_live_of(&p->launch->out[0]);
	d.when_min = v->min_rows;
	d.when_max = v->max_rows;
	d.grid[1] = d.grid[2] = (struct ig_gpu_extent)IG_GPU_ONE;
	if (v->kind == DOTS)
		size_dots(p, args, tiles, &d);
	else if (v->kind == TILES)
		size_tiles(p, v, args, &d);
	else if (v->kind == WIDE)
		size_wide(p, v, args, &d);
	else if (v->kind == STREAM) {
		d.cluster = PRODUCT_STREAM_CLUSTER;
		d.grid[0] = (struct ig_gpu_extent){
			IG_LIVE_ONE, 1, 1, ig_gpu_cores(p->launch->facts) / d.cluster * d.cluster
		};
	} else if (v->max_rows <= s->bm)
		d.grid[0] = (struct ig_gpu_extent){ IG_LIVE_ONE, 1, 1, (uint32_t)tiles };
	else
		d.grid[0] = (struct ig_gpu_extent){ d.when_live, 1, s->bm, (uint32_t)tiles };
	if (p->n_heads)
		d.grid[1].times = p->n_heads;
	if (v->norm) {
		args->x_stride = ig_gpu_stride(&p->launch->norm->x);
		args->norm_eps = p->launch->norm->eps;
	}
	bind_operands(p, args, v->norm, &d);
	if (v->kind == WIDE)
		d.box[d.n_boxes++] = (struct ig_gpu_box){ 0, v->shape.bm, max_rows, args->k,
							  p->launch->in[0].row_stride };
	else if (v->kind == RUSH)
		box_operands(p, args, max_rows, 8, width, &d);
	else if (v->kind == STREAM)
		box_operands(p, args, max_rows, s->bm, s->bn / 2, &d);
	return h->dispatch(t, &d);
}

/* The same; of the rows whose norm is the product's, and of the others. */
static int emit_normed(const struct ig_product *p, const struct ig_product_variant *v,
		       const struct linear_args *args, const struct ig_gpu_host *h,
		       struct ig_gpu_tape *t)
{
	struct ig_product_variant of = *v;
	int rc;

	if (!p->launch->norm || v->min_rows > p->launch->norm->max_rows)
		return ig_product_emit(p, v, args, h, t);
	of.norm = true;
	if (of.max_rows > p->launch->norm->max_rows)
		of.max_rows = p->launch->norm->max_rows;
	rc = ig_product_emit(p, &of, args, h, t);
	of = *v;
	of.min_rows = p->launch->norm->max_rows + 1;
	return rc || of.min_rows > of.max_rows ? rc : ig_product_emit(p, &of, args, h, t);
}

int ig_product_lower(const struct ig_product *p, const struct ig_gpu_host *h, struct ig_gpu_tape *t,
		     struct ig_error *err)
{
	const struct ig_gpu_launch *c = p->launch;
	const struct ig_gpu_tensor *x = &c->in[0], *y = &c->out[0];
	struct ig_product_variants variants;
	uint64_t limit = INT32_MAX;
	struct linear_args args = { 0 };
	bool residual = !p->pair && !p->n_heads && c->n_in > 1 && c->in[1].ref.buffer >= 0;
	int rc = ig_gpu_check_product(p->op, p->dtype, p->element, y->dtype, err);

	if (rc)
		return rc;
	if (p->k < 1 || (uint64_t)x->n_cols > limit || p->weight[0]->row_stride > limit ||
	    x->row_stride > limit || y->row_stride > limit)
		return ig_fail(err, -ENOTSUP, "%s: rows of %lld values are too long", p->op,
			       (long long)x->n_cols);
	for (uint32_t i = 0; i < p->n; i++) {
		if (p->weight[i]->n_rows < 1 || (uint64_t)p->weight[i]->n_rows > limit)
			return ig_fail(err, -ENOTSUP, "%s: a weight of %lld rows", p->op,
				       (long long)p->weight[i]->n_rows);
		if (p->weight[i]->row_stride != p->weight[0]->row_stride ||
		    p->weight[i]->layout != p->weight[0]->layout)
			return ig_fail(err, -EINVAL, "%s: rows of one format differ in length",
				       p->op);
		if (!p->pair || i == 0)
			args.n[i] = (uint32_t)p->weight[i]->n_rows;
	}
	if (p->n_heads) {
		args.n[0] /= p->n_heads;
		args.x_head = (uint32_t)p->k + p->n_rest;
		args.y_head = args.n[0] + p->n_rest;
	}
	args.k = (uint32_t)p->k;
	args.n_weights = p->pair ? 1 : p->n;
	args.x_stride = ig_gpu_stride(x);
	args.y_stride = ig_gpu_stride(y);
	args.residual_stride = residual ? ig_gpu_stride(&c->in[1]) : 0;
	args.act = p->act;
	args.limit = p->limit;
	args.rows_live = y->row_class;
	args.w_row_bytes = (uint32_t)p->weight[0]->row_stride;
	args.shares = ig_product_choose(p, &variants);
	args.share_step = ig_product_is_tiled(p) ? ig_gpu_tile_k(p->dtype) : SHARE_STEP;
	args.column = (uint32_t)(p->column % 2);
	args.format = p->dtype;
	args.flags = (p->bias[0] ? LINEAR_BIAS : 0) | (residual ? LINEAR_RESIDUAL : 0) |
		     (y->dtype == IG_F16 ? LINEAR_OUT_F16 : 0) |
		     (y->dtype == IG_BF16 ? LINEAR_OUT_BF16 : 0);
	/* Columns in pairs: every weight starts at an even column, and so does every row. */
	bool even = args.column == 0 && args.y_stride % 2 == 0 && args.residual_stride % 2 == 0;
	for (uint32_t i = 0; i + 1 < args.n_weights; i++)
		even = even && args.n[i] % 2 == 0;
	if (even)
		args.flags |= LINEAR_PAIRS;
	for (uint32_t i = 0; i < variants.n && !rc; i++)
		rc = emit_normed(p, &variants.v[i], &args, h, t);
	const uint32_t unpacks = ig_product_unpacks_from(p);
	if (!rc && unpacks && unpacks <= ig_gpu_max_rows(c))
		rc = ig_product_lower_unpacked(p, unpacks, &args, h, t);
	if (rc)
		return ig_fail(err, rc,
			       "%s: a kernel for %lld columns of %u values could not be recorded",
			       p->op, (long long)y->n_cols, args.k);
	return 0;
}
