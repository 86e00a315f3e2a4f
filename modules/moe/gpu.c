/*
 * gpu.c: GPU lowerings of moe_route, moe_glu and moe_combine; the kernels are in shaders/moe/.  The
 * grid of products is (columns, runs): at most as many runs as assignments, or as experts;
 * threadgroups with no assigned expert exit immediately.  moe_combine is two dispatches: each
 * assignment's product, then the weighted sum of a row's experts from left to right, so that sums
 * do not depend on the order of threads.
 */
#include "gpu_private.h"
#include "shaders/core/shapes.h"

extern const struct ig_shader ig_shader_moe_route, ig_shader_moe, ig_shader_moe_q, ig_shader_moe_q5,
	ig_shader_moe_k, ig_shader_moe_k23, ig_shader_moe_table, ig_shader_moe_f32,
	ig_shader_moe_tiles_q, ig_shader_moe_tiles_q5, ig_shader_moe_tiles_k,
	ig_shader_moe_tiles_k23, ig_shader_moe_tiles_table;

_Static_assert(PRODUCT_ACT_NONE == IG_ACT_NONE && PRODUCT_ACT_SILU == IG_ACT_SILU &&
		       PRODUCT_ACT_GELU == IG_ACT_GELU && PRODUCT_ACT_RELU2 == IG_ACT_RELU2 &&
		       PRODUCT_ACT_CLAMPED == IG_ACT_CLAMPED,
	       "the shaders' activations are the ops'");
_Static_assert(MOE_FEW_THREADS / 32 == IG_GPU_FEW_ROWS &&
		       MOE_FEW_THREADS / IG_GPU_FEW_ROWS == IG_MOE_MAX_TOP_K,
	       "few rows: one simdgroup per row, one thread per assignment");

#define SHARE_STEP 64 /* PRODUCT_STEP of product.h */
#define MAX_SHARES 4
#define MAX_VARIANTS 3
#define SCRATCH_WORDS 64u /* MOE_ROOM of moe_route.metal */
#define FEW IG_GPU_FEW_ROWS
#define MANY (FEW + 1)

/* Kernels count in 32 bits: elements of x, of results and of the route. */
static int check_size(const struct ig_gpu_launch *c, const char *op, uint64_t elements,
		      struct ig_error *err)
{
	if (elements > UINT32_MAX / ig_gpu_max_rows(c))
		return ig_fail(err, -ENOTSUP, "%s: %u rows of %llu values are too many for a GPU",
			       op, ig_gpu_max_rows(c), (unsigned long long)elements);
	return 0;
}

/* ---- moe_route --------------------------------------------------------------------------- */

static int lower_route(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
		       struct ig_gpu_tape *t, struct ig_error *err)
{
	static const char *const few[] = { "moe_route_few_128", "moe_route_few_256",
					   "moe_route_few_512", "moe_route_few_1024" };
	static const char *const many[] = { "moe_route_rows_128", "moe_route_rows_256",
					    "moe_route_rows_512", "moe_route_rows_1024" };
	const struct ig_moe_route_params *p = c->params;
	const struct ig_gpu_tensor *x = &c->in[0], *y = &c->out[0];
	const int size = p->n_experts <= 128 ? 0 :
			 p->n_experts <= 256 ? 1 :
			 p->n_experts <= 512 ? 2 :
					       3;
	const struct moe_route_args args = {
		.n_experts = p->n_experts,
		.top_k = p->top_k,
		.x_stride = ig_gpu_stride(x),
		.route_stride = ig_gpu_stride(y),
		.normalise = p->normalise,
		.scale = p->scale,
		.rows_live = y->row_class,
		.sigmoid = p->gating == IG_GATING_SIGMOID,
		.n_groups = p->n_groups,
		.n_groups_used = p->n_groups_used,
		.sum_epsilon = p->sum_epsilon,
		.select_bias = p->select_bias,
		.expert_scale = p->expert_scale,
		.shared = p->shared,
	};
	const struct ig_gpu_bind none = IG_GPU_NONE;
	struct ig_gpu_dispatch d = {
		.struct_size = sizeof d,
		.n_binds = 4,
		.shader = &ig_shader_moe_route,
		.kernel = few[size],
		.args = &args,
		.n_arg_bytes = sizeof args,
		.threads = MOE_FEW_THREADS,
		.threadgroup_bytes = (FEW * SCRATCH_WORDS + 2 * MOE_FEW_THREADS) * 4,
		.when_live = ig_gpu_live_of(y),
		.when_min = 1,
		.when_max = FEW,
		.grid = { IG_GPU_ONE, IG_GPU_ONE, IG_GPU_ONE },
		.bind = { ig_gpu_bind_value(x, IG_GPU_READ), ig_gpu_bind_value(y, IG_GPU_WRITE),
			  p->select_bias ? ig_gpu_bind_weight(&c->weight[0]) : none,
			  p->expert_scale ? ig_gpu_bind_weight(&c->weight[p->select_bias]) : none },
	};
	int rc = check_size(c, "moe_route", y->row_stride, err);

	if (!rc)
		rc = h->dispatch(t, &d);
	if (rc || ig_gpu_max_rows(c) <= FEW)
		return rc;
	d.kernel = many[size];
	d.threads = MOE_THREADS;
	d.threadgroup_bytes = MOE_THREADS / 32 * SCRATCH_WORDS * 4;
	d.when_min = MANY;
	d.when_max = UINT32_MAX;
	d.grid[0] = (struct ig_gpu_extent){ d.when_live, 1, MOE_THREADS / 32, 1 };
	if ((rc = h->dispatch(t, &d)))
		return rc;
	d.kernel = "moe_sort";
	d.threadgroup_bytes = 256;
	d.grid[0] = (struct ig_gpu_extent){ IG_LIVE_ONE, 1, 1, p->n_experts };
	d.n_binds = 1;
	d.bind[0] = ig_gpu_bind_value(y, IG_GPU_READ | IG_GPU_WRITE);
	return h->dispatch(t, &d);
}

const struct ig_gpu_op ig_gpu_moe_route = {
	.struct_size = sizeof(struct ig_gpu_op),
	.lower = lower_route,
};

/* ---- products ---------------------------------------------------------------------------- */

/* A kernel, and the number of rows for which it is used. */
struct variant {
	const char *suffix;
	struct shape shape;
	uint32_t min_rows, max_rows;
	bool tile;
	bool direct; /* few rows of weights in tiles (core/product_tiles.h) */
};

/* For moe_glu and for moe_combine. */
static const struct variant metal[] = {
	{ "few8", { SHAPE_METAL_FEW8 }, 1, 8, false },
	{ "few16", { SHAPE_METAL_FEW16 }, 9, FEW, false },
	{ "tile", { SHAPE_METAL_TILE }, MANY, UINT32_MAX, true },
}, metal_tensor[] = {
	{ "tensor_few", { SHAPE_METAL_TENSOR_FEW }, 1, FEW, false },
	{ "tensor_tile", { SHAPE_METAL_TENSOR_TILE }, MANY, UINT32_MAX, true },
}, metal_f32[] = {
	{ "few8", { SHAPE_METAL_FEW8_F32 }, 1, 8, false },
	{ "few16", { SHAPE_METAL_FEW16_F32 }, 9, FEW, false },
	{ "tile", { SHAPE_METAL_TILE_F32 }, MANY, UINT32_MAX, true },
}, nv_glu[] = {
	{ "few", { SHAPE_NV_FEW_MOE_PAIR }, 1, FEW, false },
	{ "tile", { SHAPE_NV_TILE }, MANY, UINT32_MAX, true },
}, nv_down[] = {
	{ "few", { SHAPE_NV_FEW_MOE }, 1, FEW, false },
	{ "tile", { SHAPE_NV_TILE }, MANY, UINT32_MAX, true },
}, nv90_glu[] = {
	{ "few", { SHAPE_NV_FEW_MOE_PAIR }, 1, FEW, false },
	{ "wide_64", { SHAPE_NV_WIDE_64 }, MANY, UINT32_MAX, true },
}, nv90_down[] = {
	{ "few", { SHAPE_NV_FEW_MOE }, 1, FEW, false },
	{ "wide_64", { SHAPE_NV_WIDE_64 }, MANY, UINT32_MAX, true },
}, nv_f32[] = {
	{ "few", { SHAPE_NV_FEW_F32 }, 1, FEW, false },
	{ "tile", { SHAPE_NV_TILE_F32 }, MANY, UINT32_MAX, true },
}, metal_tiles[] = {
	{ "8", { .bm = 8 }, 1, 8, false, true },
	{ "16", { .bm = 16 }, 9, FEW, false, true },
	{ "many", { SHAPE_METAL_TILES }, MANY, UINT32_MAX, true, false },
}, nv_tiles[] = {
	{ "8", { .bm = 8 }, 1, 8, false, true },
	{ "16", { .bm = 16 }, 9, FEW, false, true },
	{ "64", { SHAPE_NV_WIDE_64 }, MANY, UINT32_MAX, true, false },
};

/* The route and the residual are not converted. */
static uint32_t in_dtype(const struct ig_gpu_launch *c, uint32_t i)
{
	const uint32_t type = ig_gpu_element_of(c->weight[0].dtype);
	return i || c->f32 || type == IG_DTYPE_NONE ? IG_F32 : type;
}

static bool is_tiled(const struct product *p)
{
	return p->launch->weight[0].layout == IG_GPU_TILES;
}

static const struct variant *variants_of(const struct product *p, uint32_t *n)
{
	const struct ig_gpu_facts *f = p->launch->facts;

	*n = 3;
	if (is_tiled(p))
		return f->kind == IG_GPU_CUDA ? nv_tiles : metal_tiles;
	*n = f->kind == IG_GPU_CUDA ? 2 : 3;
	if (p->element == IG_F32)
		return f->kind == IG_GPU_CUDA ? nv_f32 : metal_f32;
	if (f->kind != IG_GPU_CUDA) {
		*n = f->tensor_units ? 2 : 3;
		return f->tensor_units ? metal_tensor : metal;
	}
	if (f->arch == 90)
		return p->pair ? nv90_glu : nv90_down;
	return p->pair ? nv_glu : nv_down;
}

/* ---- weights in tiles: as in ops/gpu/product_kernels.c ------------------------------------- */

static uint32_t k_tiles(uint32_t dtype, uint64_t k)
{
	const uint64_t tile = ig_gpu_tile_k(dtype);
	return (uint32_t)((k + tile - 1) / tile);
}

/* One row activates top_k experts: their outputs count. */
static uint32_t tile_shares(uint32_t dtype, uint64_t outputs, uint64_t k)
{
	const uint32_t tiles = k_tiles(dtype, k);
	uint32_t shares = outputs <= 4096 || k > 8192 ? TILES_MAX_SHARES :
			  outputs <= 8192	      ? 4 :
			  outputs <= 16384	      ? 2 :
							1;
	return shares < tiles ? shares : tiles;
}

/* Sums (on NVIDIA twice), and there the rows of x. */
static uint64_t tiles_bytes(const struct ig_gpu_facts *f, uint32_t dtype, uint64_t k,
			    uint32_t simdgroups, uint32_t rows)
{
	const uint64_t sums = (uint64_t)simdgroups * 64 * rows;

	if (f->kind != IG_GPU_CUDA)
		return sums;
	return TILES_BARRIERS +
	       rows * ((uint64_t)k_tiles(dtype, k) * ig_gpu_tile_k(dtype) + 8) * 2 + 2 * sums;
}

/* Whether weights of n outputs by k of each expert may be in tiles: with 16 rows of x in
 * threadgroup memory, beside the index. */
static bool fits_tiles(const struct ig_gpu_launch *c, bool pair, uint64_t n, uint64_t k,
		       uint32_t top_k)
{
	const uint32_t dtype = c->weight[0].dtype;
	const uint32_t team = (pair ? 2 : 1) * tile_shares(dtype, n * (pair ? 2 : 1) * top_k, k);

	return !c->f32 && ig_gpu_is_blocks(dtype) && n % 16 == 0 && k % 32 == 0 &&
	       tiles_bytes(c->facts, dtype, k, team, FEW) + 2 * FEW * 4 <=
		       c->facts->max_threadgroup_bytes;
}

static uint32_t team_of(const struct product *p)
{
	return p->args.product.shares * (p->pair ? 2 : 1);
}

/* Experts that some rows activate, on average. */
static double active_experts(const struct product *p, uint32_t rows)
{
	double idle = 1.0;

	for (uint32_t i = 0; i < rows; i++)
		idle *= 1.0 - (double)p->top_k / p->n_experts;
	return p->n_experts * (1.0 - idle);
}

/* Threadgroups that a multiprocessor has at once, if their threads and their rows of x allow it. */
static uint32_t at_once(const struct product *p, const struct variant *v)
{
	const uint64_t n =
		p->launch->facts->max_threadgroup_bytes /
		tiles_bytes(p->launch->facts, p->dtype, p->args.product.k, team_of(p), v->shape.bm);
	return n < 1 ? 1 : n < 4 ? (uint32_t)n : 4;
}

/* Teams of a threadgroup.  Of up to eight rows the experts of one row shall occupy the GPU.  More rows have
 * so many experts that threadgroups come in turns, each of which looks up its expert and fetches x
 * first: several small ones share a multiprocessor, so that one computes while another waits (16
 * streams of Qwen3-30B-A3B's shape, Q4_K: 5,780 tokens/s with 384 threads, 7,560 with 128). */
static uint32_t tiles_width(const struct product *p, const struct variant *v)
{
	const struct ig_gpu_facts *f = p->launch->facts;
	const struct linear_args *a = &p->args.product;
	const uint32_t cores = ig_gpu_cores(f), across = (a->n[0] + 15) / 16, team = team_of(p);
	uint32_t most = TILES_THREADS / 32 / team, best = 1;
	uint64_t least = UINT64_MAX;

	if (f->kind != IG_GPU_CUDA)
		return 1;
	if (v->shape.bm > 8)
		most /= at_once(p, v);
	most = most < across ? most : across;
	while (most > 1 && tiles_bytes(f, p->dtype, a->k, most * team, v->shape.bm) + 2 * FEW * 4 >
				   f->max_threadgroup_bytes)
		most--;
	if (v->shape.bm > 8)
		return most > 1 ? most : 1;
	for (uint32_t w = 1; w <= most; w++) {
		const uint64_t groups = (uint64_t)((across + w - 1) / w) * p->top_k;
		const uint64_t tiles = (groups + cores - 1) / cores * w;
		if (tiles <= least) {
			least = tiles;
			best = w;
		}
	}
	return best;
}

/* Threadgroups of an expert: all columns at once, or, of more than eight rows, so few that those of all
 * experts come in two or three turns and walk through their columns. */
static uint32_t tiles_groups(const struct product *p, const struct variant *v)
{
	const uint32_t width = 16 * p->args.product.width,
		       across = (p->args.product.n[0] + width - 1) / width;
	const double each = 2.5 * ig_gpu_cores(p->launch->facts) * at_once(p, v) /
			    active_experts(p, v->shape.bm);

	if (p->launch->facts->kind != IG_GPU_CUDA || v->shape.bm <= 8 || each >= across)
		return across;
	return each > 1.0 ? (uint32_t)each : 1;
}

/* Threadgroup bytes before the index: the stages of the loop over k, later the sums; for each
 * share if shares run in parallel. */
static uint32_t index_at(const struct product *p, const struct variant *v, uint32_t shares)
{
	const struct shape *s = &v->shape;
	if (v->direct)
		return (uint32_t)tiles_bytes(p->launch->facts, p->dtype, p->args.product.k,
					     p->args.product.width * team_of(p), s->bm);
	const uint32_t size = ig_gpu_element_bytes(p->element),
		       stride = s->bk + (s->wide ? 0 : 16 / size);
	const uint32_t walk = s->stages * (s->bm + s->bn) * stride * size;
	const uint32_t sums = s->bm * (s->bn + 8) * 4;
	return (walk > sums ? walk : sums) * (v->tile ? 1 : shares);
}

static uint32_t threadgroup_bytes(const struct product *p, const struct variant *v, uint32_t shares)
{
	return index_at(p, v, shares) + 2 * v->shape.bm * 4;
}

/* The number of shares of k (split-K); depends only on the weight's shape and the device. */
static uint32_t shares_of(const struct product *p, const struct variant *v, uint32_t n)
{
	const struct ig_gpu_facts *f = p->launch->facts;
	const uint32_t steps = (p->args.product.k + SHARE_STEP - 1) / SHARE_STEP;
	uint32_t shares = steps < 8 ? 1 : steps / 4 < MAX_SHARES ? steps / 4 : MAX_SHARES;

	if (is_tiled(p))
		return tile_shares(p->dtype,
				   (uint64_t)p->args.product.n[0] * (p->pair ? 2 : 1) * p->top_k,
				   p->args.product.k);
	if (f->kind == IG_GPU_CUDA)
		return 1;
	for (uint32_t i = 0; i < n; i++)
		while (shares > 1 && threadgroup_bytes(p, &v[i], shares) > f->max_threadgroup_bytes)
			shares--;
	return shares;
}

/* As in ops/gpu/products.c. */
static const struct ig_shader *shader_of(const struct product *p)
{
	const bool tiled = is_tiled(p);

	if (p->element == IG_F32)
		return &ig_shader_moe_f32;
	switch (p->dtype) {
	case IG_F16:
	case IG_BF16: return &ig_shader_moe;
	case IG_Q5_0:
	case IG_Q5_1: return tiled ? &ig_shader_moe_tiles_q5 : &ig_shader_moe_q5;
	case IG_Q2_K:
	case IG_Q3_K: return tiled ? &ig_shader_moe_tiles_k23 : &ig_shader_moe_k23;
	case IG_Q4_K:
	case IG_Q5_K:
	case IG_Q6_K: return tiled ? &ig_shader_moe_tiles_k : &ig_shader_moe_k;
	case IG_IQ4_NL:
	case IG_IQ4_XS:
	case IG_MXFP4: return tiled ? &ig_shader_moe_tiles_table : &ig_shader_moe_table;
	default: return tiled ? &ig_shader_moe_tiles_q : &ig_shader_moe_q;
	}
}

static int emit(struct product *p, const struct variant *v, const struct ig_gpu_host *h,
		struct ig_gpu_tape *t, struct ig_error *err)
{
	const struct ig_gpu_launch *c = p->launch;
	const struct shape *s = &v->shape;
	const uint32_t shares = p->args.product.shares, live = ig_gpu_live_of(&c->out[0]);
	if (v->direct)
		p->args.product.width = tiles_width(p, v);
	const uint32_t width = p->pair ? s->bn / 2 : s->bn;
	struct ig_gpu_dispatch d = {
		.struct_size = sizeof d,
		.n_binds = 7,
		.args = &p->args,
		.n_arg_bytes = sizeof p->args,
		.threads = v->direct ? p->args.product.width * team_of(p) * 32 :
				       s->sm * s->sn * 32 * (v->tile ? 1 : shares),
		.threadgroup_bytes = threadgroup_bytes(p, v, shares),
		.when_live = live,
		.when_min = v->min_rows,
		.when_max = v->max_rows,
		.grid = { { IG_LIVE_ONE, 1, 1,
			    v->direct ? tiles_groups(p, v) :
					(p->args.product.n[0] + width - 1) / width },
			  { IG_LIVE_ONE, 1, 1, p->n_experts },
			  IG_GPU_ONE },
		.bind = { ig_gpu_bind_value(&c->in[0], IG_GPU_READ),
			  ig_gpu_bind_value(&c->in[1], IG_GPU_READ),
			  ig_gpu_bind_weight(&c->weight[0]),
			  ig_moe_bind_optional(c, p->pair, p->up), p->y,
			  ig_moe_bind_optional(c, p->bias, p->bias),
			  ig_moe_bind_optional(c, p->bias && p->pair, p->bias + 1) },
	};
	char kernel[64];

	if (v->min_rows > v->max_rows || v->min_rows > ig_gpu_max_rows(c))
		return 0;
	if (d.threadgroup_bytes > c->facts->max_threadgroup_bytes)
		return ig_fail(err, -ENOTSUP,
			       "%s: its kernel needs %u bytes of threadgroup memory, the "
			       "device has %u",
			       p->op, d.threadgroup_bytes, c->facts->max_threadgroup_bytes);
	if (!v->tile && v->max_rows > s->bm) /* a run may have all rows */
		d.grid[2] = (struct ig_gpu_extent){ live, 1, s->bm, 1 };
	/* A threadgroup without a run costs time, too: for one row and 128 experts 2,048 of them took
	 * half of a product's 15 us. */
	if (!v->tile && p->top_k * v->max_rows <= p->n_experts)
		d.grid[1] = (struct ig_gpu_extent){ live, p->top_k, 1, 1 };
	if (is_tiled(p))
		snprintf(kernel, sizeof kernel, "moe_%s_tiles_%s_%s", p->pair ? "glu" : "down",
			 ig_gpu_format_name(p->dtype), v->suffix);
	else
		snprintf(kernel, sizeof kernel, "moe_%s_%s_%s_%s", p->pair ? "glu" : "down",
			 ig_gpu_product_format(p->dtype, p->element),
			 ig_gpu_format_name(p->element), v->suffix);
	d.kernel = kernel;
	d.shader = shader_of(p);
	p->args.index_at = index_at(p, v, shares);
	return h->dispatch(t, &d);
}

/* Up to so many rows the experts have at most eight each, on average: kernels of few rows go over an expert's weights
 * once for each 16 of its rows.  A tile would compute 32 or 64 for these, most of which are not there. */
static uint32_t spread_rows(const struct product *p)
{
	const uint32_t rows = 8 * p->n_experts / p->top_k;

	return rows > FEW ? rows : FEW;
}

/* n columns of each expert's matrix, of k values. */
static int lower_product(struct product *p, uint64_t n, uint64_t k, uint32_t y_type,
			 const struct ig_gpu_host *h, struct ig_gpu_tape *t, struct ig_error *err)
{
	const struct ig_gpu_launch *c = p->launch;
	const struct ig_gpu_tensor *w = &c->weight[0];
	struct linear_args *a = &p->args.product;
	const struct variant *v;
	uint32_t n_variants;
	int rc = ig_gpu_check_product(p->op, p->dtype, p->element, y_type, err);

	if (rc)
		return rc;
	if (k % 16 || n % 16)
		return ig_fail(err, -ENOTSUP,
			       "%s: %llu outputs of %llu values, on a GPU both are multiples of 16",
			       p->op, (unsigned long long)n, (unsigned long long)k);
	if (k > INT32_MAX || n > INT32_MAX / 2 || w->row_stride > INT32_MAX)
		return ig_fail(err, -ENOTSUP, "%s: rows of %llu values are too long", p->op,
			       (unsigned long long)k);
	a->k = (uint32_t)k;
	a->n[0] = (uint32_t)n;
	a->n_weights = 1;
	a->x_stride = ig_gpu_stride(&c->in[0]);
	a->rows_live = c->out[0].row_class;
	a->w_row_bytes = (uint32_t)w->row_stride;
	if (p->args.rows == 0)
		p->args.rows = (uint32_t)n;
	a->flags = LINEAR_PAIRS | (p->bias ? LINEAR_BIAS : 0) |
		   (y_type == IG_F16 ? LINEAR_OUT_F16 : 0) |
		   (y_type == IG_BF16 ? LINEAR_OUT_BF16 : 0);
	a->format = p->dtype;
	a->share_step = is_tiled(p) ? ig_gpu_tile_k(p->dtype) : SHARE_STEP;
	p->args.n_experts = p->n_experts;
	p->args.top_k = p->top_k;
	p->args.route_stride = ig_gpu_stride(&c->in[1]);
	v = variants_of(p, &n_variants);
	a->shares = shares_of(p, v, n_variants);
	const uint32_t unpacks = ig_moe_unpacks_from(p);
	const uint32_t spread = spread_rows(p);
	for (uint32_t i = 0; i < n_variants && !rc; i++) {
		struct variant of = v[i];
		if (of.tile) {
			of.min_rows = spread + 1;
			of.max_rows = unpacks ? unpacks - 1 : UINT32_MAX;
		}
		rc = emit(p, &of, h, t, err);
		if (!rc && of.max_rows == FEW) { /* the same in passes */
			of.min_rows = MANY;
			of.max_rows = spread;
			rc = emit(p, &of, h, t, err);
		}
	}
	if (!rc && unpacks)
		rc = ig_moe_lower_unpacked(p, h, t, err);
	return rc;
}

static int lower_glu(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
		     struct ig_gpu_tape *t, struct ig_error *err)
{
	const struct ig_moe_glu_params *params = c->params;
	const bool fused = params->form == IG_MOE_FUSED, pair = params->form == IG_MOE_PAIR;
	const uint64_t rows = (uint64_t)c->weight[0].n_rows / params->n_experts;
	const uint64_t f = fused ? rows / 2 : rows;
	struct product p = {
		.launch = c,
		.op = "moe_glu",
		.pair = fused || pair,
		.up = pair,
		.bias = params->bias ? 1 + pair : 0,
		.dtype = c->weight[0].dtype,
		.element = c->in[0].dtype,
		.n_experts = params->n_experts,
		.top_k = params->top_k,
		.y = ig_gpu_bind_value(&c->out[0], IG_GPU_WRITE),
		.args = { .product = { .act = params->act,
				       .y_stride = ig_gpu_stride(&c->out[0]),
				       .limit = params->limit },
			  .y_slot = (uint32_t)f,
			  .rows = (uint32_t)rows,
			  .up_row = fused ? (uint32_t)f : 0 },
	};
	int rc = check_size(c, "moe_glu", c->in[0].row_stride, err);

	if (!rc)
		rc = check_size(c, "moe_glu", c->out[0].row_stride, err);
	return rc ? rc :
		    lower_product(&p, f, (uint64_t)c->in[0].n_cols, c->out[0].dtype, h, t, err);
}

static bool glu_tiles(const struct ig_gpu_launch *c, uint32_t i)
{
	const struct ig_moe_glu_params *params = c->params;
	const uint64_t rows = (uint64_t)c->weight[0].n_rows / params->n_experts;
	const bool fused = params->form == IG_MOE_FUSED, pair = params->form == IG_MOE_PAIR;

	return i <= pair && fits_tiles(c, fused || pair, fused ? rows / 2 : rows,
				       (uint64_t)c->weight[0].n_cols, params->top_k);
}

const struct ig_gpu_op ig_gpu_moe_glu = {
	.struct_size = sizeof(struct ig_gpu_op),
	.flags = IG_GPU_OUT_ANY,
	.in_dtype = in_dtype,
	.lower = lower_glu,
	.tiles = glu_tiles,
};

/* ---- moe_combine ------------------------------------------------------------------------- */

static int lower_combine(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
			 struct ig_gpu_tape *t, struct ig_error *err)
{
	const struct ig_moe_combine_params *params = c->params;
	const uint64_t width = (uint64_t)c->out[0].n_cols, k = (uint64_t)c->weight[0].n_cols;
	const uint64_t n_parts = width * params->top_k; /* of a row */
	const bool residual = c->n_in > 2 && c->in[2].ref.buffer >= 0;
	const struct moe_combine_args args = {
		.n_cols = (uint32_t)width,
		.top_k = params->top_k,
		.route_stride = ig_gpu_stride(&c->in[1]),
		.residual_stride = residual ? ig_gpu_stride(&c->in[2]) : 0,
		.y_stride = ig_gpu_stride(&c->out[0]),
		.rows_live = c->out[0].row_class,
		.residual = residual,
		.shared_stride = params->shared ? ig_gpu_stride(&c->in[3]) : 0,
		.shared = params->shared,
		.bias = params->bias == IG_MOE_BIAS_SUM,
	};
	const uint32_t live = ig_gpu_live_of(&c->out[0]);
	struct ig_gpu_bind parts = { .n_bytes = ig_gpu_max_rows(c) * n_parts * 4,
				     .access = IG_GPU_WRITE };
	const struct ig_gpu_bind none = IG_GPU_NONE;
	int rc = check_size(c, "moe_combine", c->in[0].row_stride, err);

	if (rc || (rc = check_size(c, "moe_combine", n_parts, err)))
		return rc;
	rc = h->scratch(t, parts.n_bytes, &parts.ref);
	if (rc)
		return ig_fail(err, rc, "moe_combine: no %llu bytes for the experts' results",
			       (unsigned long long)parts.n_bytes);
	struct product p = {
		.launch = c,
		.op = "moe_combine",
		.bias = params->bias == IG_MOE_BIAS_EACH,
		.dtype = c->weight[0].dtype,
		.element = c->in[0].dtype,
		.n_experts = params->n_experts,
		.top_k = params->top_k,
		.y = parts,
		.args = { .product = { .act = IG_ACT_NONE, .y_stride = (uint32_t)n_parts },
			  .x_slot = (uint32_t)k,
			  .y_slot = (uint32_t)width,
			  .has_route = 1 }, /* moe_glu waited for it (shaders/early.h) */
	};
	if ((rc = lower_product(&p, width, k, IG_F32, h, t, err)))
		return rc;
	parts.access = IG_GPU_READ;
	const struct ig_gpu_dispatch d = {
		.struct_size = sizeof d,
		.n_binds = 6,
		.shader = &ig_shader_moe_route,
		.kernel = "moe_combine",
		.args = &args,
		.n_arg_bytes = sizeof args,
		.threads = MOE_THREADS,
		.when_live = live,
		.when_min = 1,
		.when_max = UINT32_MAX,
		.grid = { { IG_LIVE_ONE, 1, 1,
			    (uint32_t)((width + 4 * MOE_THREADS - 1) / (4 * MOE_THREADS)) },
			  { live, 1, 1, 1 },
			  IG_GPU_ONE },
		.bind = { parts, ig_gpu_bind_value(&c->in[1], IG_GPU_READ),
			  residual ? ig_gpu_bind_value(&c->in[2], IG_GPU_READ) : none,
			  params->shared ? ig_gpu_bind_value(&c->in[3], IG_GPU_READ) : none,
			  ig_moe_bind_optional(c, args.bias, 1),
			  ig_gpu_bind_value(&c->out[0], IG_GPU_WRITE) },
	};
	return h->dispatch(t, &d);
}

static bool combine_tiles(const struct ig_gpu_launch *c, uint32_t i)
{
	const struct ig_moe_combine_params *params = c->params;

	return i == 0 && fits_tiles(c, false, (uint64_t)c->weight[0].n_rows / params->n_experts,
				    (uint64_t)c->weight[0].n_cols, params->top_k);
}

const struct ig_gpu_op ig_gpu_moe_combine = {
	.struct_size = sizeof(struct ig_gpu_op),
	.in_dtype = in_dtype,
	.lower = lower_combine,
	.tiles = combine_tiles,
};
