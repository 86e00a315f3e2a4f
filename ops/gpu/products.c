/*
 * products.c: GPU lowerings of linear, linear_heads, glu and logits: the element type of each
 * product, its shader, and which weights share dispatches.
 */
#include "ops/gpu/product_private.h"

extern const struct ig_shader ig_shader_linear, ig_shader_linear_bf16, ig_shader_linear_q,
	ig_shader_linear_q5, ig_shader_linear_k, ig_shader_linear_k23, ig_shader_linear_table,
	ig_shader_linear_f32;
extern const struct ig_shader ig_shader_tiles_q, ig_shader_tiles_q5, ig_shader_tiles_k,
	ig_shader_tiles_k23, ig_shader_tiles_table;
extern const struct ig_shader ig_shader_elementwise;
extern const struct ig_shader ig_shader_glu, ig_shader_glu_bf16, ig_shader_glu_q, ig_shader_glu_q5,
	ig_shader_glu_k, ig_shader_glu_k23, ig_shader_glu_table, ig_shader_glu_f32;

_Static_assert(PRODUCT_ACT_NONE == IG_ACT_NONE && PRODUCT_ACT_SILU == IG_ACT_SILU &&
		       PRODUCT_ACT_GELU == IG_ACT_GELU && PRODUCT_ACT_RELU2 == IG_ACT_RELU2 &&
		       PRODUCT_ACT_CLAMPED == IG_ACT_CLAMPED &&
		       PRODUCT_ACT_GELU_ERF == IG_ACT_GELU_ERF && PRODUCT_ACT_TANH == IG_ACT_TANH,
	       "the shaders' activations are the ops'");

/* ---- element types ------------------------------------------------------------------- */

/* Weights that require different types are multiplied in float32. */
static uint32_t wanted(const struct ig_gpu_launch *c, uint32_t n_weights)
{
	uint32_t type = ig_gpu_element_of(c->weight[0].dtype);
	for (uint32_t i = 1; i < n_weights; i++)
		if (ig_gpu_element_of(c->weight[i].dtype) != type)
			return IG_F32;
	return c->f32 || type == IG_DTYPE_NONE ? IG_F32 : type;
}

static uint32_t linear_in(const struct ig_gpu_launch *c, uint32_t i)
{
	return i ? IG_F32 : wanted(c, ((const struct ig_linear_params *)c->params)->n_weights);
}

static uint32_t glu_in(const struct ig_gpu_launch *c, uint32_t i)
{
	return i ? IG_F32 : wanted(c, 2);
}

/* What is passed on is not rounded to bfloat16. */
static uint32_t heads_in(const struct ig_gpu_launch *c, uint32_t i)
{
	const uint32_t type = wanted(c, 1);
	return i && type == IG_BF16 ? IG_F32 : type;
}

static uint32_t logits_in(const struct ig_gpu_launch *c, uint32_t i)
{
	return i ? IG_F32 : wanted(c, 1);
}

/* ---- shaders --------------------------------------------------------------------------- */

static const struct ig_shader *shader_of(const struct ig_product *p)
{
	const bool pair = p->pair, tiled = ig_product_is_tiled(p);

	if (p->element == IG_F32)
		return pair ? &ig_shader_glu_f32 : &ig_shader_linear_f32;
	switch (p->dtype) {
	case IG_F16: return pair ? &ig_shader_glu : &ig_shader_linear;
	case IG_BF16: return pair ? &ig_shader_glu_bf16 : &ig_shader_linear_bf16;
	case IG_Q5_0:
	case IG_Q5_1:
		return tiled ? &ig_shader_tiles_q5 :
		       pair  ? &ig_shader_glu_q5 :
			       &ig_shader_linear_q5;
	case IG_Q2_K:
	case IG_Q3_K:
		return tiled ? &ig_shader_tiles_k23 :
		       pair  ? &ig_shader_glu_k23 :
			       &ig_shader_linear_k23;
	case IG_Q4_K:
	case IG_Q5_K:
	case IG_Q6_K:
		return tiled ? &ig_shader_tiles_k : pair ? &ig_shader_glu_k : &ig_shader_linear_k;
	case IG_IQ4_NL:
	case IG_IQ4_XS:
	case IG_MXFP4:
		return tiled ? &ig_shader_tiles_table :
		       pair  ? &ig_shader_glu_table :
			       &ig_shader_linear_table;
	default: return tiled ? &ig_shader_tiles_q : pair ? &ig_shader_glu_q : &ig_shader_linear_q;
	}
}

/* ---- the ops --------------------------------------------------------------------------- */

/* The product of consecutive weights of one format from the first-th on, which share dispatches; *column is
 * advanced.  Returns the number of the weight after them. */
static uint32_t linear_product(const struct ig_gpu_launch *c, uint32_t first, int64_t *column,
			       struct ig_product *p)
{
	const struct ig_linear_params *params = c->params;
	uint32_t next = first;

	*p = (struct ig_product){ .launch = c,
				  .op = "linear",
				  .dtype = c->weight[first].dtype,
				  .element = c->in[0].dtype,
				  .act = params->act,
				  .column = *column,
				  .k = c->in[0].n_cols };
	for (; next < params->n_weights && c->weight[next].dtype == p->dtype &&
	       c->weight[next].layout == c->weight[first].layout;
	     next++) {
		p->weight[p->n] = &c->weight[next];
		p->bias[p->n++] = params->bias ? &c->weight[params->n_weights + next] : NULL;
		*column += c->weight[next].n_rows;
	}
	p->shader = shader_of(p);
	return next;
}

static int lower_linear(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
			struct ig_gpu_tape *t, struct ig_error *err)
{
	const uint32_t n = ((const struct ig_linear_params *)c->params)->n_weights;
	struct ig_product p;
	int64_t column = 0;
	int rc = 0;

	for (uint32_t i = 0; i < n && !rc;) {
		i = linear_product(c, i, &column, &p);
		rc = ig_product_lower(&p, h, t, err);
	}
	return rc;
}

/* Each of its dispatches computes the norm. */
static uint32_t linear_norm_rows(const struct ig_gpu_launch *c)
{
	const uint32_t n = ((const struct ig_linear_params *)c->params)->n_weights;
	uint32_t least = UINT32_MAX;
	struct ig_product p;
	int64_t column = 0;

	for (uint32_t i = 0; i < n;) {
		i = linear_product(c, i, &column, &p);
		const uint32_t rows = ig_product_norm_rows(&p);
		least = rows < least ? rows : least;
	}
	return least;
}

static struct ig_product glu_product(const struct ig_gpu_launch *c)
{
	const struct ig_glu_params *params = c->params;
	struct ig_product p = { .launch = c,
				.op = "glu",
				.dtype = c->weight[0].dtype,
				.element = c->in[0].dtype,
				.act = params->act,
				.limit = params->limit,
				.pair = 1,
				.k = c->in[0].n_cols,
				.n = 2,
				.weight = { &c->weight[0], &c->weight[1] } };

	p.shader = shader_of(&p);
	return p;
}

static int lower_glu(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
		     struct ig_gpu_tape *t, struct ig_error *err)
{
	const struct ig_product p = glu_product(c);

	if (((const struct ig_glu_params *)c->params)->bias)
		return ig_fail(err, -ENOTSUP, "glu: no GPU kernel adds biases");
	return ig_product_lower(&p, h, t, err);
}

static uint32_t glu_norm_rows(const struct ig_gpu_launch *c)
{
	const struct ig_product p = glu_product(c);

	return ig_product_norm_rows(&p);
}

static int lower_logits(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
			struct ig_gpu_tape *t, struct ig_error *err)
{
	struct ig_product p = { .launch = c,
				.op = "logits",
				.dtype = c->weight[0].dtype,
				.element = c->in[0].dtype,
				.k = c->in[0].n_cols,
				.n = 1,
				.weight = { &c->weight[0] } };

	p.shader = shader_of(&p);
	return ig_product_lower(&p, h, t, err);
}

/* The last columns of each head of in[1], as they are. */
static int pass_on(const struct ig_product *p, const struct ig_gpu_host *h, struct ig_gpu_tape *t,
		   struct ig_error *err)
{
	const struct ig_gpu_launch *c = p->launch;
	const struct ig_gpu_tensor *x = &c->in[1], *y = &c->out[0];
	const struct heads_args args = {
		.n = p->n_rest,
		.x_stride = ig_gpu_stride(x),
		.y_stride = ig_gpu_stride(y),
		.x_head = (uint32_t)(x->n_cols / p->n_heads),
		.y_head = (uint32_t)(y->n_cols / p->n_heads),
		.rows_live = y->row_class,
	};
	char name[64];
	const struct ig_gpu_dispatch d = {
		.struct_size = sizeof d,
		.n_binds = 2,
		.shader = &ig_shader_elementwise,
		.kernel = name,
		.args = &args,
		.n_arg_bytes = sizeof args,
		.threads = HEADS_THREADS,
		.when_live = IG_LIVE_ONE,
		.when_max = UINT32_MAX,
		.grid = { { IG_LIVE_ONE, 1, 1, p->n_heads },
			  { ig_gpu_live_of(y), 1, 1, 1 },
			  IG_GPU_ONE },
		.bind = { ig_gpu_bind_value(x, IG_GPU_READ), ig_gpu_bind_value(y, IG_GPU_WRITE) },
	};

	snprintf(name, sizeof name, "heads_rest_%s_%s", ig_gpu_format_name(x->dtype),
		 ig_gpu_format_name(y->dtype));
	int rc = h->dispatch(t, &d);
	return rc ? ig_fail(err, rc, "linear_heads: %s could not be recorded", name) : 0;
}

static int lower_linear_heads(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
			      struct ig_gpu_tape *t, struct ig_error *err)
{
	const struct ig_linear_heads_params *params = c->params;
	struct ig_product p = { .launch = c,
				.op = "linear_heads",
				.dtype = c->weight[0].dtype,
				.element = c->in[0].dtype,
				.k = c->weight[0].n_cols,
				.n_heads = params->n_heads,
				.n_rest = params->n_rest,
				.n = 1,
				.weight = { &c->weight[0] } };
	int rc;

	p.shader = shader_of(&p);
	rc = ig_product_lower(&p, h, t, err);
	return rc || !p.n_rest ? rc : pass_on(&p, h, t, err);
}

/* Blocks that are multiplied in float16 may be in tiles. */
static bool may_tile(const struct ig_gpu_launch *c, uint32_t i, uint32_t n_weights)
{
	return i < n_weights && wanted(c, n_weights) == IG_F16 &&
	       ig_gpu_is_blocks(c->weight[i].dtype);
}

static bool linear_tiles(const struct ig_gpu_launch *c, uint32_t i)
{
	return may_tile(c, i, ((const struct ig_linear_params *)c->params)->n_weights);
}

static bool glu_tiles(const struct ig_gpu_launch *c, uint32_t i) { return may_tile(c, i, 2); }

static bool logits_tiles(const struct ig_gpu_launch *c, uint32_t i) { return may_tile(c, i, 1); }

const struct ig_gpu_op ig_gpu_linear = { sizeof(struct ig_gpu_op),
					 IG_GPU_OUT_ANY,
					 linear_in,
					 lower_linear,
					 linear_tiles,
					 linear_norm_rows },
		       ig_gpu_linear_heads = { sizeof(struct ig_gpu_op), IG_GPU_OUT_ANY, heads_in,
					       lower_linear_heads, NULL },
		       ig_gpu_glu = { sizeof(struct ig_gpu_op),
				      IG_GPU_OUT_ANY,
				      glu_in,
				      lower_glu,
				      glu_tiles,
				      glu_norm_rows },
		       ig_gpu_logits = { sizeof(struct ig_gpu_op), 0, logits_in, lower_logits,
					 logits_tiles };
