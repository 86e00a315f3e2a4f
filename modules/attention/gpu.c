/* gpu.c: GPU lowerings of rope_table, rope_kv, rope_latent and attention, and of rope_rows and attention_rows,
 * which share kernels with them: argument structs, grids and the choice of kernels, which are in
 * shaders/attention/. */
#include "kernels_private.h"
#include "shaders/args.h"
#include "shaders/attention/sizes.h"
#include "shaders/step.h"

#include <ingot/gpu_lower.h>
#include <stdlib.h>

extern const struct ig_shader ig_shader_rope_table, ig_shader_rope_kv, ig_shader_rope_latent;
extern const struct ig_shader ig_shader_attention, ig_shader_attention_f32, ig_shader_attention_q8;
extern const struct ig_shader ig_shader_attention_rows;

static_assert(ELEMENT_F32 == IG_F32 && ELEMENT_F16 == IG_F16 && ELEMENT_BF16 == IG_BF16 &&
		      ELEMENT_Q8_0 == IG_Q8_0,
	      "element types of kernels are enum ig_dtype");
static_assert(STEP_RANGE == IG_ATTENTION_RANGE && STEP_BLOCK_TOKENS == IG_BLOCK_TOKENS &&
		      STEP_BLOCK_BITS == IG_BLOCK_BITS && STEP_MAX_GROUPS == IG_MAX_CACHE_GROUPS,
	      "the step on the device");

#define ROPE_THREADS 128u
#define ROPE_HEADS (ROPE_THREADS / 32) /* one per simdgroup */
#define ALWAYS .when_live = IG_LIVE_ONE, .when_max = UINT32_MAX

/* A weight of one row of n float32 values. */
static struct ig_gpu_bind bind_weight(const struct ig_gpu_launch *c, uint32_t i, uint64_t n)
{
	const struct ig_gpu_ref none = { .buffer = -1 };
	return ig_gpu_bind_ref(i < c->n_weights ? c->weight[i].ref : none, n * sizeof(float),
			       IG_GPU_READ);
}

static int has_weight(const struct ig_gpu_launch *c, uint32_t i)
{
	return i < c->n_weights && c->weight[i].ref.buffer >= 0;
}

static int check_result(const struct ig_gpu_launch *c, const char *op, struct ig_error *err)
{
	const uint32_t t = c->out[0].dtype;
	if (!ig_gpu_is_value(t))
		return ig_fail(err, -ENOTSUP, "%s: no kernel writes elements of type %u", op, t);
	return 0;
}

static int check_cache(uint32_t k, uint32_t v, const struct ig_gpu_launch *c, uint32_t head_dim,
		       const char *op, struct ig_error *err)
{
	const char *driver = c->facts->kind == IG_GPU_CUDA ? "cuda" : "metal";

	if (!(k == IG_F32 && v == IG_F32) &&
	    ((k != IG_F16 && k != IG_Q8_0) || (v != IG_F16 && v != IG_Q8_0)))
		return ig_fail(
			err, -ENOTSUP,
			"%s: the driver %s has no kernels for keys of type %u beside values of "
			"type %u (kvcache.dtype, or the model's kv_dtype); it has them for f32, "
			"and for f16 and q8_0 in any combination",
			op, driver, k, v);
	if ((k == IG_Q8_0 || v == IG_Q8_0) && head_dim % IG_KV_GROUP)
		return ig_fail(
			err, -ENOTSUP,
			"%s: a cache in q8_0 (kvcache.dtype, or the model's kv_dtype) needs heads "
			"of a multiple of %d values, this model's have %u",
			op, IG_KV_GROUP, head_dim);
	return 0;
}

/* ---- rope_table ---------------------------------------------------------------- */

static int lower_rope_table(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
			    struct ig_gpu_tape *t, struct ig_error *err)
{
	const struct ig_rope_table_params *p = c->params;
	const struct rope_table_args args = {
		.n_pairs = p->n_pairs,
		.y_stride = ig_gpu_stride(&c->out[0]),
		.freq_scale = ig_rope_position_scale(p),
		.magnitude = ig_rope_magnitude(p),
		.flags = (has_weight(c, 0) ? ROPE_FACTORS : 0) |
			 (ig_rope_has_sections(p) ? ROPE_AXES : 0),
	};
	struct ig_gpu_dispatch d = {
		.struct_size = sizeof d,
		.n_binds = 4,
		.shader = &ig_shader_rope_table,
		.kernel = "rope_table",
		.args = &args,
		.n_arg_bytes = sizeof args,
		.threads = ROPE_THREADS,
		ALWAYS,
		.grid = { { IG_LIVE_ROWS, p->n_pairs, ROPE_THREADS, 1 }, IG_GPU_ONE, IG_GPU_ONE },
	};
	const struct ig_gpu_tensor none = IG_GPU_NONE;
	float inverse[MAX_HEAD_DIM / 2];
	uint32_t axes[MAX_HEAD_DIM / 2];
	struct ig_gpu_ref ref;
	int rc;

	ig_rope_inverse_frequencies(p, inverse);
	rc = h->constant(t, inverse, p->n_pairs * sizeof *inverse, &ref);
	if (rc)
		return ig_fail(err, rc, "rope_table: no constant of %u frequencies", p->n_pairs);
	d.bind[0] = (struct ig_gpu_bind){ ref, p->n_pairs * sizeof *inverse, IG_GPU_READ, 0 };
	d.bind[1] = bind_weight(c, 0, p->n_pairs);
	d.bind[2] = ig_gpu_bind_value(&none, IG_GPU_READ);
	d.bind[3] = ig_gpu_bind_value(&c->out[0], IG_GPU_WRITE);
	if (ig_rope_has_sections(p)) {
		for (uint32_t i = 0; i < p->n_pairs; i++)
			axes[i] = ig_rope_axis(p, i);
		rc = h->constant(t, axes, p->n_pairs * sizeof *axes, &ref);
		if (rc)
			return ig_fail(err, rc, "rope_table: no constant of %u axes", p->n_pairs);
		d.bind[2] = (struct ig_gpu_bind){ ref, p->n_pairs * sizeof *axes, IG_GPU_READ, 0 };
	}
	return h->dispatch(t, &d);
}

const struct ig_gpu_op ig_gpu_rope_table = {
	.struct_size = sizeof(struct ig_gpu_op),
	.lower = lower_rope_table,
};

/* ---- rope_kv ------------------------------------------------------------------- */

/* A constant with the scale of q for all possible positions. */
static int bind_q_scales(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
			 struct ig_gpu_tape *t, struct ig_gpu_bind *bind, struct ig_error *err)
{
	const struct ig_rope_kv_params *p = c->params;
	const uint32_t n = c->max_context / p->q_scale_length + 1;
	float *scales = malloc(n * sizeof *scales);
	struct ig_gpu_ref ref;
	int rc = -ENOMEM;

	for (uint32_t i = 0; scales && i < n; i++)
		scales[i] = ig_rope_q_scale(p, (int32_t)i);
	if (scales)
		rc = h->constant(t, scales, n * sizeof *scales, &ref);
	free(scales);
	if (rc)
		return ig_fail(err, rc, "rope_kv: no constant of %u scales", n);
	*bind = (struct ig_gpu_bind){ ref, n * sizeof *scales, IG_GPU_READ, 0 };
	return 0;
}

/* rows: of rope_rows, whose k and v stay in the row. */
static int lower_rope(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
		      struct ig_gpu_tape *t, int rows, struct ig_error *err)
{
	const struct ig_rope_kv_params *p = c->params;
	const char *op = rows ? "rope_rows" : "rope_kv";
	const int has_table = c->n_in > 1 && c->in[1].ref.buffer >= 0;
	const int q_only = (p->flags & IG_ROPE_KV_Q_ONLY) != 0;
	const uint32_t n_heads = p->n_heads + (q_only ? 0 : 2 * p->n_kv_heads);
	/* QK norm over all heads together */
	const int q_all = has_weight(c, 0) && c->weight[0].n_cols != p->head_dim;
	const int k_all = has_weight(c, 1) && c->weight[1].n_cols != p->head_dim;
	const struct rope_kv_args args = {
		.n_heads = p->n_heads,
		.n_kv_heads = p->n_kv_heads,
		.head_dim = p->head_dim,
		.n_pairs = p->n_pairs,
		.mode = p->mode,
		.group = p->group,
		.layer = p->layer,
		.x_stride = ig_gpu_stride(&c->in[0]),
		.table_stride = has_table ? ig_gpu_stride(&c->in[1]) : 0,
		.y_stride = ig_gpu_stride(&c->out[0]),
		.norm_eps = p->norm_eps,
		.flags = (has_weight(c, 0) ? ROPE_NORM : 0) | (has_table ? ROPE_TABLE : 0) |
			 (q_all ? ROPE_NORM_ALL_Q : 0) | (k_all ? ROPE_NORM_ALL_K : 0) |
			 (q_only ? ROPE_Q_ONLY : 0) | (p->flags & IG_ROPE_KV_NO_V ? ROPE_NO_V : 0) |
			 (p->flags & IG_ROPE_KV_V_NORM ? ROPE_NORM_V : 0) | (rows ? ROPE_ROWS : 0),
		.y_type = c->out[0].dtype,
		.q_scale_length = p->q_scale_length,
		.k_type = c->k_dtype,
		.v_type = c->v_dtype,
		.q_stride = ig_rope_q_stride(p),
	};
	struct ig_gpu_dispatch d = {
		.struct_size = sizeof d,
		.n_binds = 6,
		.shader = &ig_shader_rope_kv,
		.kernel = "rope_kv",
		.args = &args,
		.n_arg_bytes = sizeof args,
		.threads = ROPE_THREADS,
		.threadgroup_bytes = /* some, as the kernel names it */
		!rows && (c->k_dtype == IG_Q8_0 || c->v_dtype == IG_Q8_0) ?
			ROPE_HEADS * p->head_dim * (uint32_t)sizeof(float) :
			16,
		ALWAYS,
		.grid = { { IG_LIVE_ONE, 1, 1, (n_heads + ROPE_HEADS - 1) / ROPE_HEADS },
			  { IG_LIVE_ROWS, 1, 1, 1 },
			  IG_GPU_ONE },
	};
	const struct ig_gpu_tensor none = { .ref.buffer = -1 };
	struct ig_gpu_ref kv;
	int rc = check_result(c, op, err);

	if (rc || (!rows && (rc = check_cache(c->k_dtype, c->v_dtype, c, p->head_dim, op, err))))
		return rc;
	d.bind[0] = ig_gpu_bind_value(&c->in[0], IG_GPU_READ);
	d.bind[1] = ig_gpu_bind_value(has_table ? &c->in[1] : &none, IG_GPU_READ);
	d.bind[2] = bind_weight(c, 0, (uint64_t)p->head_dim * (q_all ? p->n_heads : 1));
	d.bind[3] = bind_weight(c, 1, (uint64_t)p->head_dim * (k_all ? p->n_kv_heads : 1));
	d.bind[4] = ig_gpu_bind_value(&c->out[0], IG_GPU_WRITE);
	d.bind[5] = ig_gpu_bind_value(&none, IG_GPU_READ);
	if (p->q_scale_length)
		rc = bind_q_scales(c, h, t, &d.bind[5], err);
	if (!rc && !rows) {
		rc = h->kv(t, p->group, p->layer, &kv);
		if (rc)
			return ig_fail(err, rc, "rope_kv: no cache of group %u, layer %u", p->group,
				       p->layer);
		d.bind[d.n_binds++] = (struct ig_gpu_bind){ kv, 1, IG_GPU_WRITE | IG_GPU_TOUCH, 0 };
	}
	return rc ? rc : h->dispatch(t, &d);
}

static int lower_rope_kv(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
			 struct ig_gpu_tape *t, struct ig_error *err)
{
	return lower_rope(c, h, t, 0, err);
}

static int lower_rope_rows(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
			   struct ig_gpu_tape *t, struct ig_error *err)
{
	return lower_rope(c, h, t, 1, err);
}

const struct ig_gpu_op ig_gpu_rope_kv = {
	.struct_size = sizeof(struct ig_gpu_op),
	.flags = IG_GPU_OUT_ANY,
	.lower = lower_rope_kv,
};

const struct ig_gpu_op ig_gpu_rope_rows = {
	.struct_size = sizeof(struct ig_gpu_op),
	.flags = IG_GPU_OUT_ANY,
	.lower = lower_rope_rows,
};

/* ---- rope_latent --------------------------------------------------------------- */

static int lower_rope_latent(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
			     struct ig_gpu_tape *t, struct ig_error *err)
{
	const struct ig_rope_latent_params *p = c->params;
	const uint32_t dim = p->n_latent + 2 * p->n_pairs;
	const struct rope_latent_args args = {
		.n_heads = p->n_heads,
		.head_dim = p->head_dim,
		.n_latent = p->n_latent,
		.n_pairs = p->n_pairs,
		.mode = p->mode,
		.group = p->group,
		.layer = p->layer,
		.x_stride = ig_gpu_stride(&c->in[0]),
		.kv_stride = ig_gpu_stride(&c->in[1]),
		.table_stride = ig_gpu_stride(&c->in[2]),
		.y_stride = ig_gpu_stride(&c->out[0]),
		.norm_eps = p->norm_eps,
		.y_type = c->out[0].dtype,
		.k_type = c->k_dtype,
	};
	struct ig_gpu_dispatch d = {
		.struct_size = sizeof d,
		.n_binds = 6,
		.shader = &ig_shader_rope_latent,
		.kernel = "rope_latent",
		.args = &args,
		.n_arg_bytes = sizeof args,
		.threads = ROPE_THREADS,
		.threadgroup_bytes = /* some, as the kernel names it */
		c->k_dtype == IG_Q8_0 ? dim * (uint32_t)sizeof(float) : 16,
		ALWAYS,
		/* the keys after the heads of q */
		.grid = { { IG_LIVE_ONE, 1, 1, (p->n_heads + 1 + ROPE_HEADS - 1) / ROPE_HEADS },
			  { IG_LIVE_ROWS, 1, 1, 1 },
			  IG_GPU_ONE },
		.bind = { ig_gpu_bind_value(&c->in[0], IG_GPU_READ),
			  ig_gpu_bind_value(&c->in[1], IG_GPU_READ),
			  ig_gpu_bind_value(&c->in[2], IG_GPU_READ), bind_weight(c, 0, p->n_latent),
			  ig_gpu_bind_value(&c->out[0], IG_GPU_WRITE) },
	};
	struct ig_gpu_ref kv;
	int rc = check_cache(c->k_dtype, c->k_dtype, c, dim, "rope_latent", err);

	if (!rc && c->k_dtype == IG_Q8_0 && p->n_latent % IG_KV_GROUP)
		rc = ig_fail(err, -ENOTSUP,
			     "rope_latent: a latent of %u values has no kernel for a cache in q8_0 "
			     "(kvcache.dtype, or the model's kv_dtype)",
			     p->n_latent);
	if (rc || (rc = check_result(c, "rope_latent", err)))
		return rc;
	rc = h->kv(t, p->group, p->layer, &kv);
	if (rc)
		return ig_fail(err, rc, "rope_latent: no cache of group %u, layer %u", p->group,
			       p->layer);
	d.bind[5] = (struct ig_gpu_bind){ kv, 1, IG_GPU_WRITE | IG_GPU_TOUCH, 0 };
	return h->dispatch(t, &d);
}

const struct ig_gpu_op ig_gpu_rope_latent = {
	.struct_size = sizeof(struct ig_gpu_op),
	.flags = IG_GPU_OUT_ANY,
	.lower = lower_rope_latent,
};

/* ---- attention ----------------------------------------------------------------- */

/* The head sizes of kernels; other sizes use the next larger one, padded with zeros.  80 is no
 * multiple of IG_KV_GROUP: kernels of codes do not have it. */
static const uint32_t head_dims[] = { 32, 64, 80, 96, 128, 256, 512, 576 };

static_assert(MAX_HEAD_DIM == 576, "the largest of the head sizes above");

static uint32_t built_dim(uint32_t head_dim)
{
	uint32_t i = 0;
	while (head_dims[i] < head_dim)
		i++;
	return head_dims[i];
}

/* The type of q is that in which the cache is multiplied; the gate's is float32. */
static uint32_t attention_in_dtype(const struct ig_gpu_launch *c, uint32_t i)
{
	return i > 0 || c->k_dtype == IG_F32 ? IG_F32 : IG_F16;
}

struct attention {
	const struct ig_gpu_launch *c;
	const struct ig_attention_params *p;
	struct attention_args args;
	struct ig_gpu_bind q, y, kv, sinks, gates;
	uint32_t element; /* bytes, of q and of K and V in products */
	uint32_t codes;	  /* 1: K, V or both are Q8_0 */
	uint32_t dim;	  /* head size of the kernel */
	uint32_t nv;	  /* 1: NVIDIA, as in sizes.h */
	uint32_t sm_90;	  /* 1: NVIDIA, with clusters and warpgroup products */
	const struct ig_shader *shader;
};

/* Tiles of 16 * n_tiles queries of a sequence's rows, for every KV head. */
static struct ig_gpu_extent tiles(const struct attention *a, uint32_t live, uint32_t n_tiles)
{
	return (struct ig_gpu_extent){ live, a->p->n_heads / a->p->n_kv_heads, 16 * n_tiles,
				       a->p->n_kv_heads };
}

/* Sequences of up to so many ranges are merged in clusters. */
static uint32_t most_whole(const struct attention *a)
{
	return a->sm_90 ? ATTENTION_WHOLE_RANGES : 0;
}

/* The kernel of this name and for heads of dim columns, with d->threads. */
static int dispatch_kernel(const struct attention *a, const struct ig_gpu_host *h,
			   struct ig_gpu_tape *t, struct ig_gpu_dispatch *d, const char *name,
			   uint32_t dim, uint32_t bytes, struct ig_error *err)
{
	char kernel[64];

	if (bytes > a->c->facts->max_threadgroup_bytes)
		return ig_fail(err, -ENOTSUP,
			       "attention: heads of %u need %u bytes of threadgroup "
			       "memory, the device has %u",
			       a->p->head_dim, bytes, a->c->facts->max_threadgroup_bytes);
	snprintf(kernel, sizeof kernel, "attention_%s_%s_d%u", name,
		 a->codes	 ? "q8" :
		 a->element == 2 ? "f16" :
				   "f32",
		 dim);
	d->struct_size = sizeof *d;
	d->shader = a->shader;
	d->kernel = kernel;
	d->args = &a->args;
	d->n_arg_bytes = sizeof a->args;
	d->threadgroup_bytes = bytes;
	if (!d->when_min) {
		d->when_min = 1;
		d->when_max = UINT32_MAX;
	}
	return h->dispatch(t, d);
}

static int dispatch_tiles(const struct attention *a, const struct ig_gpu_host *h,
			  struct ig_gpu_tape *t, struct ig_gpu_dispatch *d, const char *name,
			  uint32_t n_tiles, struct ig_error *err)
{
	d->threads = ATTENTION_THREADS;
	return dispatch_kernel(
		a, h, t, d, name, a->dim,
		(uint32_t)ATTENTION_BYTES(a->element, a->dim, n_tiles, a->nv, a->codes), err);
}

/* A range of a tile of 16 queries in each threadgroup, to partial results ("split") or in clusters ("whole"). */
static int dispatch_ranges(const struct attention *a, const struct ig_gpu_host *h,
			   struct ig_gpu_tape *t, struct ig_gpu_dispatch *d, int whole,
			   struct ig_error *err)
{
	if (!a->nv || a->element != 2 || a->dim > GROUP_MOST_DIM)
		return dispatch_tiles(a, h, t, d, whole ? "whole" : "split", 1, err);
	d->threads = ATTENTION_THREADS;
	return dispatch_kernel(
		a, h, t, d, whole ? "group_whole" : "group_split", a->dim,
		GROUP_BYTES(a->dim, a->c->k_dtype != IG_Q8_0 || a->c->v_dtype != IG_Q8_0), err);
}

static int lower_split(const struct attention *a, const struct ig_gpu_host *h,
		       struct ig_gpu_tape *t, const struct ig_gpu_bind *outs,
		       const struct ig_gpu_bind *tops, struct ig_error *err)
{
	struct ig_gpu_dispatch d = {
		.n_binds = 4,
		.when_live = IG_LIVE_SPLIT_RANGES,
		.when_min = most_whole(a) + 1,
		.when_max = UINT32_MAX,
		.grid = { tiles(a, IG_LIVE_SPLIT_ROWS, 1),
			  { IG_LIVE_SPLIT_RANGES, 1, 1, 1 },
			  { IG_LIVE_SEQS, 1, 1, 1 } },
		.bind = { a->q, *outs, *tops, a->kv },
	};

	return dispatch_ranges(a, h, t, &d, 0, err);
}

static int lower_loop(const struct attention *a, const struct ig_gpu_host *h, struct ig_gpu_tape *t,
		      struct ig_error *err)
{
	const uint32_t dim =
		a->p->head_dim <= STREAM_MOST_DIM / 2 ? STREAM_MOST_DIM / 2 : STREAM_MOST_DIM;
	const int streams = a->sm_90 && a->element == 2 && a->p->head_dim <= STREAM_MOST_DIM;
	const uint32_t n_tiles = streams ?
					 STREAM_TILES(dim) :
					 (uint32_t)ATTENTION_LOOP_TILES(a->element, a->dim, a->nv);
	struct ig_gpu_dispatch d = {
		.n_binds = 5,
		.when_live = IG_LIVE_LOOP_ROWS,
		.grid = { tiles(a, IG_LIVE_LOOP_ROWS, n_tiles),
			  { IG_LIVE_SEQS, 1, 1, 1 },
			  IG_GPU_ONE },
		.bind = { a->q, a->y, a->sinks, a->gates, a->kv },
	};

	if (streams) {
		d.threads = STREAM_THREADS(dim);
		return dispatch_kernel(a, h, t, &d, "stream", dim, STREAM_BYTES(dim), err);
	}
	return dispatch_tiles(a, h, t, &d, "loop", n_tiles, err);
}

static int lower_merge(const struct attention *a, const struct ig_gpu_host *h,
		       struct ig_gpu_tape *t, const struct ig_gpu_bind *outs,
		       const struct ig_gpu_bind *tops)
{
	const struct ig_gpu_dispatch d = {
		.struct_size = sizeof d,
		.n_binds = 5,
		.shader = &ig_shader_attention,
		.kernel = "attention_merge",
		.args = &a->args,
		.n_arg_bytes = sizeof a->args,
		.threads = ATTENTION_THREADS,
		.when_live = IG_LIVE_SPLIT_RANGES,
		.when_min = most_whole(a) + 1,
		.when_max = UINT32_MAX,
		.grid = { { IG_LIVE_ONE, 1, 1, a->p->n_heads },
			  { IG_LIVE_SPLIT_ROWS, 1, 1, 1 },
			  { IG_LIVE_SEQS, 1, 1, 1 } },
		.bind = { *outs, *tops, a->y, a->sinks, a->gates },
	};

	return h->dispatch(t, &d);
}

/* Sequences of few ranges, on GPUs whose threadgroups can share memory: those of a cluster have a range each, and
 * merge them. */
static int lower_whole(const struct attention *a, const struct ig_gpu_host *h,
		       struct ig_gpu_tape *t, struct ig_error *err)
{
	struct attention of = *a;
	int rc = 0;

	for (uint32_t n = 1; n <= ATTENTION_WHOLE_RANGES && !rc; n *= 2) {
		struct ig_gpu_dispatch d = {
			.n_binds = 5,
			.cluster = n > 1 ? n : 0,
			.when_live = IG_LIVE_SPLIT_RANGES,
			.when_min = n / 2 + 1,
			.when_max = n,
			.grid = { tiles(a, IG_LIVE_SPLIT_ROWS, 1),
				  { IG_LIVE_SEQS, 1, 1, 1 },
				  IG_GPU_ONE },
			.bind = { a->q, a->y, a->sinks, a->gates, a->kv },
		};
		d.grid[0].times *= n;
		of.args.ranges = n;
		rc = dispatch_ranges(&of, h, t, &d, 1, err);
	}
	return rc;
}

/* Scratch memory for partial results: bind[0] to write it, bind[1] to read it. */
static int partial_scratch(const struct ig_gpu_host *h, struct ig_gpu_tape *t, uint64_t n_bytes,
			   struct ig_gpu_bind bind[2], struct ig_error *err)
{
	struct ig_gpu_ref ref;
	int rc = h->scratch(t, n_bytes, &ref);

	if (rc)
		return ig_fail(err, rc, "attention: no %llu bytes for partial results",
			       (unsigned long long)n_bytes);
	bind[0] = (struct ig_gpu_bind){ ref, n_bytes, IG_GPU_WRITE, 0 };
	bind[1] = (struct ig_gpu_bind){ ref, n_bytes, IG_GPU_READ, 0 };
	return 0;
}

static int lower_attention(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
			   struct ig_gpu_tape *t, struct ig_error *err)
{
	const struct ig_attention_params *p = c->params;
	const struct ig_gpu_tensor none = IG_GPU_NONE;
	const uint32_t v_dtype = p->v_dim ? c->k_dtype : c->v_dtype;
	struct attention a = {
		.c = c,
		.p = p,
		.args = { .n_heads = p->n_heads,
			  .n_kv_heads = p->n_kv_heads,
			  .head_dim = p->head_dim,
			  .group = p->group,
			  .layer = p->layer,
			  .q_stride = ig_gpu_stride(&c->in[0]),
			  .y_stride = ig_gpu_stride(&c->out[0]),
			  .scale = (float)((double)p->scale * 1.4426950408889634), /* log2(e) */
			  .window = p->window,
			  .y_type = c->out[0].dtype,
			  .k_type = c->k_dtype,
			  .v_type = v_dtype,
			  .flags = (has_weight(c, 0) ? ATTENTION_SINKS : 0) |
				   (p->gate == IG_GATE_SIGMOID	? ATTENTION_SIGMOID :
				    p->gate == IG_GATE_SOFTPLUS ? ATTENTION_SOFTPLUS :
								  0) |
				   (p->v_dim ? ATTENTION_V_IN_K : 0) |
				   (p->spans ? ATTENTION_SPANS : 0),
			  .gate_row = p->gate ? ig_gpu_stride(&c->in[1]) : 0,
			  .gate_first = p->gate_first,
			  .gate_stride = p->gate_stride,
			  .gate_dim = p->gate_dim,
			  .v_dim = value_dim(p) },
		.sinks = bind_weight(c, 0, p->n_heads),
		.gates = ig_gpu_bind_value(p->gate ? &c->in[1] : &none, IG_GPU_READ),
		.q = ig_gpu_bind_value(&c->in[0], IG_GPU_READ),
		.y = ig_gpu_bind_value(&c->out[0], IG_GPU_WRITE),
		.element = ig_gpu_element_bytes(attention_in_dtype(c, 0)),
		.codes = c->k_dtype == IG_Q8_0 || v_dtype == IG_Q8_0,
		.dim = built_dim(p->head_dim),
		.nv = c->facts->kind == IG_GPU_CUDA,
		.sm_90 = c->facts->kind == IG_GPU_CUDA && c->facts->arch == 90,
	};
	const uint64_t n_partials = (uint64_t)c->max_partials * p->n_heads;
	struct ig_gpu_bind outs[2], tops[2];
	struct ig_gpu_ref kv;
	int rc = check_cache(c->k_dtype, v_dtype, c, p->head_dim, "attention", err);

	if (rc || (rc = check_result(c, "attention", err)))
		return rc;
	rc = h->kv(t, p->group, p->layer, &kv);
	if (rc)
		return ig_fail(err, rc, "attention: no cache of group %u, layer %u", p->group,
			       p->layer);
	a.kv = (struct ig_gpu_bind){ kv, 1, IG_GPU_READ | IG_GPU_TOUCH, 0 };
	if (a.codes && (p->v_dim || a.dim > 512))
		return ig_fail(
			err, -ENOTSUP,
			"attention: heads of %u with values of %u have no kernels for a cache "
			"in q8_0 (kvcache.dtype, or the model's kv_dtype)",
			p->head_dim, value_dim(p));
	a.shader = a.codes	  ? &ig_shader_attention_q8 :
		   a.element == 2 ? &ig_shader_attention :
				    &ig_shader_attention_f32;
	if (!n_partials)
		return lower_loop(&a, h, t, err);
	if ((rc = partial_scratch(h, t, n_partials * value_dim(p) * sizeof(float), outs, err)) ||
	    (rc = partial_scratch(h, t, n_partials * 2 * sizeof(float), tops, err)) ||
	    (a.sm_90 && (rc = lower_whole(&a, h, t, err))) ||
	    (rc = lower_split(&a, h, t, &outs[0], &tops[0], err)) ||
	    (rc = lower_loop(&a, h, t, err)))
		return rc;
	return lower_merge(&a, h, t, &outs[1], &tops[1]);
}

const struct ig_gpu_op ig_gpu_attention = {
	.struct_size = sizeof(struct ig_gpu_op),
	.flags = IG_GPU_OUT_ANY,
	.in_dtype = attention_in_dtype,
	.lower = lower_attention,
};

/* ---- attention_rows ------------------------------------------------------------ */

/* As the cache would have K and V: F16, unless products must be computed in float32. */
static uint32_t rows_in_dtype(const struct ig_gpu_launch *c, uint32_t i)
{
	return c->f32 ? IG_F32 : IG_F16;
}

/* The head sizes of its kernels: models of embeddings have no larger ones. */
static uint32_t rows_dim(uint32_t head_dim)
{
	const uint32_t dim = built_dim(head_dim);

	return dim == 80 ? 96 : dim <= 256 ? dim : 0;
}

static int lower_attention_rows(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
				struct ig_gpu_tape *t, struct ig_error *err)
{
	const struct ig_attention_rows_params *p = c->params;
	const struct ig_attention_params heads = { .n_heads = p->n_heads,
						   .n_kv_heads = p->n_kv_heads,
						   .head_dim = p->head_dim };
	const struct ig_gpu_bind none = IG_GPU_NONE;
	const struct attention a = {
		.c = c,
		.p = &heads,
		.args = { .n_heads = p->n_heads,
			  .n_kv_heads = p->n_kv_heads,
			  .head_dim = p->head_dim,
			  .q_stride = ig_gpu_stride(&c->in[0]),
			  .y_stride = ig_gpu_stride(&c->out[0]),
			  .scale = (float)((double)p->scale * 1.4426950408889634), /* log2(e) */
			  .window = p->back == IG_ATTENTION_ALL ? 0 : p->back + 1,
			  .ahead = p->ahead,
			  .y_type = c->out[0].dtype,
			  .v_dim = p->head_dim },
		.element = ig_gpu_element_bytes(rows_in_dtype(c, 0)),
		.dim = rows_dim(p->head_dim),
		.nv = c->facts->kind == IG_GPU_CUDA,
		.shader = &ig_shader_attention_rows,
	};
	const uint32_t n_tiles = (uint32_t)ATTENTION_LOOP_TILES(a.element, a.dim, a.nv);
	struct ig_gpu_dispatch d = {
		.n_binds = 4,
		.when_live = IG_LIVE_LOOP_ROWS,
		.grid = { tiles(&a, IG_LIVE_LOOP_ROWS, n_tiles),
			  { IG_LIVE_SEQS, 1, 1, 1 },
			  IG_GPU_ONE },
		.bind = { ig_gpu_bind_value(&c->in[0], IG_GPU_READ),
			  ig_gpu_bind_value(&c->out[0], IG_GPU_WRITE), none, none },
	};
	int rc = check_result(c, "attention_rows", err);

	if (!rc && !a.dim)
		rc = ig_fail(err, -ENOTSUP,
			     "attention_rows: no kernel for heads of %u, at most 256", p->head_dim);
	return rc ? rc : dispatch_tiles(&a, h, t, &d, "rows", n_tiles, err);
}

const struct ig_gpu_op ig_gpu_attention_rows = {
	.struct_size = sizeof(struct ig_gpu_op),
	.flags = IG_GPU_OUT_ANY,
	.in_dtype = rows_in_dtype,
	.lower = lower_attention_rows,
};
