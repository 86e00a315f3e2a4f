/*
 * products.c: how linear, glu and logits run on a GPU.
 *
 * Each becomes dispatches of the kernels in shaders/core/linear.h and glu.h: one for few
 * rows, one for many, of which a step runs the one that its rows call for.  Chosen here:
 * the elements that are multiplied, tiles, and how many shares k is cut into, which
 * depends on the weights' shape and the device alone.  The kernels' tiles are in
 * shaders/core/shapes.h.
 */
#include "ops/gpu/products.h"

#include "shaders/args.h"
#include "shaders/core/shapes.h"

#include <errno.h>
#include <ingot/arch.h>
#include <stdbool.h>
#include <stdio.h>

extern const struct ig_shader ig_shader_linear, ig_shader_linear_f32, ig_shader_glu,
	ig_shader_glu_f32;

_Static_assert(PRODUCT_ACT_NONE == IG_ACT_NONE && PRODUCT_ACT_SILU == IG_ACT_SILU &&
	       PRODUCT_ACT_GELU == IG_ACT_GELU, "the shaders' activations are the ops'");

#define SHARE_STEP 64 /* PRODUCT_STEP of product.h */
#define MAX_SHARES 4

struct shape {
	uint32_t bm, bn, bk, sm, sn, stages, wide;
};

/* A kernel, and the rows for which it is taken. */
struct variant {
	const char *suffix;
	struct shape shape;
	uint32_t min_rows, max_rows;
	uint32_t few;
};

#define ALL UINT32_MAX
static const struct variant metal[] = {
	{ "few8", { SHAPE_METAL_FEW8 }, 1, 8, 1 },
	{ "few16", { SHAPE_METAL_FEW16 }, 9, IG_GPU_FEW_ROWS, 1 },
	{ "tile", { SHAPE_METAL_TILE }, IG_GPU_FEW_ROWS + 1, ALL, 0 },
	{ 0 },
}, metal_f32[] = {
	{ "few8", { SHAPE_METAL_FEW8_F32 }, 1, 8, 1 },
	{ "few16", { SHAPE_METAL_FEW16_F32 }, 9, IG_GPU_FEW_ROWS, 1 },
	{ "tile", { SHAPE_METAL_TILE_F32 }, IG_GPU_FEW_ROWS + 1, ALL, 0 },
	{ 0 },
}, nv[] = {
	{ "few", { SHAPE_NV_FEW }, 1, IG_GPU_FEW_ROWS, 1 },
	{ "tile", { SHAPE_NV_TILE }, IG_GPU_FEW_ROWS + 1, ALL, 0 },
	{ 0 },
}, nv_f32[] = {
	{ "few", { SHAPE_NV_FEW_F32 }, 1, IG_GPU_FEW_ROWS, 1 },
	{ "tile", { SHAPE_NV_TILE_F32 }, IG_GPU_FEW_ROWS + 1, ALL, 0 },
	{ 0 },
};

/* Weights that go into the same dispatches. */
struct product {
	const struct ig_gpu_call *call;
	const char *op; /* and beginning of the kernels' names */
	const struct ig_shader *shader;
	const struct ig_gpu_tensor *weight[4], *bias[4];
	uint32_t n;
	uint32_t dtype; /* of the weights */
	uint32_t element; /* what is multiplied: IG_F16, IG_BF16, IG_F32 */
	uint32_t pair; /* glu */
	uint32_t act;
	int64_t column; /* of the output, where the first weight's begin */
};

static uint64_t element_bytes(uint32_t dtype)
{
	return dtype == IG_F32 ? 4 : 2;
}

/* ---- element types ------------------------------------------------------------------- */

/* What a weight is multiplied in, unless everything is float; IG_DTYPE_NONE: not at all. */
static uint32_t element_of(uint32_t dtype)
{
	switch (dtype) {
	case IG_F32: return IG_F32;
	case IG_BF16: return IG_BF16;
	case IG_F16: case IG_Q8_0: case IG_Q4_0: case IG_Q4_1: return IG_F16;
	default: return IG_DTYPE_NONE;
	}
}

/* Weights that want different types meet in float. */
static uint32_t wanted(const struct ig_gpu_call *c, uint32_t n_weights)
{
	uint32_t type = element_of(c->weight[0].dtype);

	for (uint32_t i = 1; i < n_weights; i++)
		if (element_of(c->weight[i].dtype) != type)
			return IG_F32;
	return c->f32 || type == IG_DTYPE_NONE ? IG_F32 : type;
}

static uint32_t linear_in(const struct ig_gpu_call *c, uint32_t i)
{
	return i ? IG_F32 : wanted(c, ((const struct ig_linear_params *)c->params)->n_weights);
}

static uint32_t glu_in(const struct ig_gpu_call *c, uint32_t i)
{
	return i ? IG_F32 : wanted(c, 2);
}

static uint32_t logits_in(const struct ig_gpu_call *c, uint32_t i)
{
	return i ? IG_F32 : wanted(c, 1);
}

static const char *dtype_name(uint32_t dtype)
{
	switch (dtype) {
	case IG_F32: return "f32";
	case IG_F16: return "f16";
	case IG_BF16: return "bf16";
	case IG_Q8_0: return "q8_0";
	case IG_Q4_0: return "q4_0";
	case IG_Q4_1: return "q4_1";
	default: return NULL;
	}
}

/* Rows that are no multiples of 16 bytes, of the weight or of x, are copied element by
 * element.  Blocks of 32 never are such rows. */
static bool is_odd(uint32_t dtype, int64_t k)
{
	return dtype == IG_F32 ? k % 4 != 0 : (dtype == IG_F16 || dtype == IG_BF16) && k % 8 != 0;
}

/* ---- shares and sizes ---------------------------------------------------------------- */

static uint64_t share_bytes(const struct shape *s, uint32_t element)
{
	uint64_t size = element_bytes(element);
	uint64_t stride = s->bk + (s->wide ? 0 : 16 / size);

	return s->stages * (s->bm + s->bn) * stride * size;
}

/* Stages while k is walked, then sums, of each share where each has a group. */
static uint64_t threadgroup_bytes(const struct variant *v, uint32_t element, uint32_t shares)
{
	uint64_t walk = share_bytes(&v->shape, element), sums = v->shape.bm * (v->shape.bn + 8) * 4;

	return (walk > sums ? walk : sums) * (v->few ? shares : 1);
}

/* Shares of at least four steps, as many as every few-row kernel has room for. */
static uint32_t shares_of(const struct ig_gpu_facts *facts, const struct variant *variants,
			  uint32_t element, int64_t k)
{
	int64_t steps = (k + SHARE_STEP - 1) / SHARE_STEP;
	uint32_t shares = facts->kind == IG_GPU_METAL ? MAX_SHARES : 2;

	if (steps / 4 < shares)
		shares = steps < 8 ? 1 : (uint32_t)(steps / 4);
	for (const struct variant *v = variants; v->suffix; v++)
		while (shares > 1 && threadgroup_bytes(v, element, shares) > facts->max_threadgroup_bytes)
			shares--;
	return shares;
}

/* ---- dispatches ------------------------------------------------------------------------ */

static struct ig_gpu_bind bind(struct ig_gpu_ref ref, uint64_t offset, uint64_t n_bytes,
			       uint32_t access)
{
	ref.offset += offset;
	return (struct ig_gpu_bind){ .ref = ref, .n_bytes = n_bytes, .access = access };
}

static struct ig_gpu_bind bind_weight(const struct ig_gpu_tensor *w)
{
	return bind(w->ref, 0, w->row_stride * (uint64_t)w->n_rows, IG_GPU_READ);
}

static void bind_operands(const struct product *p, const struct linear_args *args,
			  struct ig_gpu_dispatch *d)
{
	const struct ig_gpu_call *c = p->call;
	const struct ig_gpu_tensor *y = &c->out[0];
	uint64_t columns = 0;

	for (uint32_t i = 0; i < (p->pair ? 1 : p->n); i++)
		columns += args->n[i];
	d->bind[d->n_binds++] = bind(c->in[0].ref, 0, args->k * element_bytes(p->element), IG_GPU_READ);
	/* What is not there is never read, but a kernel has all its operands. */
	for (uint32_t i = 0; i < (p->pair ? 2 : 4); i++)
		d->bind[d->n_binds++] = bind_weight(p->weight[i < p->n ? i : 0]);
	if (!p->pair) {
		for (uint32_t i = 0; i < 4; i++)
			d->bind[d->n_binds++] = i < p->n && p->bias[i] ?
				bind(p->bias[i]->ref, 0, (uint64_t)args->n[i] * 4, IG_GPU_READ) :
				bind_weight(p->weight[0]);
		d->bind[d->n_binds++] = args->flags & LINEAR_RESIDUAL ?
			bind(c->in[1].ref, (uint64_t)p->column * 4, columns * 4, IG_GPU_READ) :
			bind_weight(p->weight[0]);
	}
	d->bind[d->n_binds++] = bind(y->ref, (uint64_t)p->column * element_bytes(y->dtype),
				     columns * element_bytes(y->dtype), IG_GPU_WRITE);
}

static int emit(const struct product *p, const struct variant *v, const struct linear_args *args,
		uint64_t max_rows, const struct ig_gpu_host *h, struct ig_gpu_tape *t)
{
	const struct shape *s = &v->shape;
	uint32_t width = p->pair ? s->bn / 2 : s->bn;
	uint32_t groups = s->sm * s->sn * (v->few ? args->shares : 1);
	struct ig_gpu_dispatch d = { .struct_size = sizeof d };
	uint64_t tiles = 0;
	char name[64];

	if (v->min_rows > max_rows)
		return 0;
	for (uint32_t i = 0; i < args->n_weights; i++)
		tiles += ((uint64_t)args->n[i] + width - 1) / width;
	snprintf(name, sizeof name, "%s_%s_%s%s_%s", p->pair ? "glu" : "linear",
		 dtype_name(p->dtype), dtype_name(p->element), is_odd(p->dtype, args->k) ? "_odd" : "",
		 v->suffix);
	d.shader = p->shader;
	d.kernel = name;
	d.args = args;
	d.n_arg_bytes = sizeof *args;
	d.threads = groups * 32;
	d.threadgroup_bytes = (uint32_t)threadgroup_bytes(v, p->element, args->shares);
	d.when_live = args->rows_live ? IG_LIVE_LOGIT_ROWS : IG_LIVE_ROWS;
	d.when_min = v->min_rows;
	d.when_max = v->max_rows;
	d.grid[0] = (struct ig_gpu_extent){ v->few ? IG_LIVE_ONE : d.when_live, 1, v->few ? 1 : s->bm,
					    (uint32_t)tiles };
	d.grid[1] = d.grid[2] = (struct ig_gpu_extent){ IG_LIVE_ONE, 1, 1, 1 };
	bind_operands(p, args, &d);
	return h->dispatch(t, &d);
}

static int lower(const struct product *p, const struct ig_gpu_host *h, struct ig_gpu_tape *t,
		 struct ig_error *err)
{
	const struct ig_gpu_call *c = p->call;
	const struct ig_gpu_tensor *x = &c->in[0], *y = &c->out[0];
	bool f32 = p->element == IG_F32, is_nv = c->facts->kind == IG_GPU_CUDA;
	const struct variant *variants = is_nv ? (f32 ? nv_f32 : nv) : (f32 ? metal_f32 : metal);
	uint64_t limit = INT32_MAX, size = element_bytes(p->element);
	struct linear_args args = { 0 };
	bool residual = !p->pair && c->n_in > 1 && c->in[1].ref.buffer >= 0;

	if (!f32 && element_of(p->dtype) != p->element)
		return ig_fail(err, -ENOTSUP, "%s: no kernel multiplies dtype %u in dtype %u", p->op,
			       p->dtype, p->element);
	if (element_of(p->dtype) == IG_DTYPE_NONE)
		return ig_fail(err, -ENOTSUP, "%s: no kernel for weights of dtype %u", p->op, p->dtype);
	if (y->dtype != IG_F32 && y->dtype != IG_F16 && y->dtype != IG_BF16)
		return ig_fail(err, -ENOTSUP, "%s: no kernel writes dtype %u", p->op, y->dtype);
	if (x->n_cols < 1 || (uint64_t)x->n_cols > limit || p->weight[0]->row_stride > limit ||
	    x->row_stride > limit || y->row_stride > limit)
		return ig_fail(err, -ENOTSUP, "%s: rows of %lld values are too long", p->op,
			       (long long)x->n_cols);
	for (uint32_t i = 0; i < p->n; i++) {
		if (p->weight[i]->n_rows < 1 || (uint64_t)p->weight[i]->n_rows > limit)
			return ig_fail(err, -ENOTSUP, "%s: a weight of %lld rows", p->op,
				       (long long)p->weight[i]->n_rows);
		if (p->weight[i]->row_stride != p->weight[0]->row_stride)
			return ig_fail(err, -EINVAL, "%s: rows of one format differ in length", p->op);
		if (!p->pair || i == 0)
			args.n[i] = (uint32_t)p->weight[i]->n_rows;
	}
	args.k = (uint32_t)x->n_cols;
	args.n_weights = p->pair ? 1 : p->n;
	args.x_stride = (uint32_t)(x->row_stride / size);
	args.y_stride = (uint32_t)(y->row_stride / element_bytes(y->dtype));
	args.residual_stride = residual ? (uint32_t)(c->in[1].row_stride / 4) : 0;
	args.act = p->act;
	args.rows_live = y->row_class == IG_ROWS_LOGITS;
	args.w_row_bytes = (uint32_t)p->weight[0]->row_stride;
	args.shares = shares_of(c->facts, variants, p->element, x->n_cols);
	args.flags = (p->bias[0] ? LINEAR_BIAS : 0) | (residual ? LINEAR_RESIDUAL : 0) |
		(y->dtype == IG_F16 ? LINEAR_OUT_F16 : 0) | (y->dtype == IG_BF16 ? LINEAR_OUT_BF16 : 0);
	/* Columns in pairs: every weight's columns begin at an even one, and so do rows. */
	bool even = p->column % 2 == 0 && args.y_stride % 2 == 0 && args.residual_stride % 2 == 0;
	for (uint32_t i = 0; i + 1 < args.n_weights; i++)
		even = even && args.n[i] % 2 == 0;
	if (even)
		args.flags |= LINEAR_PAIRS;
	for (const struct variant *v = variants; v->suffix; v++) {
		int rc = emit(p, v, &args, args.rows_live ? c->max_logit_rows : c->max_rows, h, t);
		if (rc)
			return ig_fail(err, rc, "%s: a kernel for %lld columns of %u values could not be "
				       "recorded", p->op, (long long)y->n_cols, args.k);
	}
	return 0;
}

/* ---- the ops --------------------------------------------------------------------------- */

/* Neighbours of one format go together; the rest are dispatches of their own. */
static int lower_linear(const struct ig_gpu_call *c, const struct ig_gpu_host *h,
			struct ig_gpu_tape *t, struct ig_error *err)
{
	const struct ig_linear_params *params = c->params;
	int64_t column = 0;

	for (uint32_t first = 0, next; first < params->n_weights; first = next) {
		struct product p = { .call = c, .op = "linear", .dtype = c->weight[first].dtype,
				     .element = c->in[0].dtype, .act = params->act, .column = column };
		p.shader = p.element == IG_F32 ? &ig_shader_linear_f32 : &ig_shader_linear;
		for (next = first; next < params->n_weights && c->weight[next].dtype == p.dtype; next++) {
			p.weight[p.n] = &c->weight[next];
			p.bias[p.n++] = params->bias ? &c->weight[params->n_weights + next] : NULL;
			column += c->weight[next].n_rows;
		}
		int rc = lower(&p, h, t, err);
		if (rc)
			return rc;
	}
	return 0;
}

static int lower_glu(const struct ig_gpu_call *c, const struct ig_gpu_host *h,
		     struct ig_gpu_tape *t, struct ig_error *err)
{
	const struct ig_glu_params *params = c->params;
	struct product p = { .call = c, .op = "glu", .dtype = c->weight[0].dtype,
			     .element = c->in[0].dtype, .act = params->act, .pair = 1, .n = 2,
			     .weight = { &c->weight[0], &c->weight[1] } };

	p.shader = p.element == IG_F32 ? &ig_shader_glu_f32 : &ig_shader_glu;
	return lower(&p, h, t, err);
}

static int lower_logits(const struct ig_gpu_call *c, const struct ig_gpu_host *h,
			struct ig_gpu_tape *t, struct ig_error *err)
{
	struct product p = { .call = c, .op = "logits", .dtype = c->weight[0].dtype,
			     .element = c->in[0].dtype, .n = 1, .weight = { &c->weight[0] } };

	p.shader = p.element == IG_F32 ? &ig_shader_linear_f32 : &ig_shader_linear;
	return lower(&p, h, t, err);
}

const struct ig_gpu_op ig_gpu_linear = {
	sizeof(struct ig_gpu_op), IG_GPU_OUT_ANY, linear_in, lower_linear,
};
const struct ig_gpu_op ig_gpu_glu = {
	sizeof(struct ig_gpu_op), IG_GPU_OUT_ANY, glu_in, lower_glu,
};
const struct ig_gpu_op ig_gpu_logits = {
	sizeof(struct ig_gpu_op), 0, logits_in, lower_logits,
};
