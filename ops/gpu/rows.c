/* rows.c: GPU lowerings of embed, norm, pool, output and sample: a threadgroup per row, or per part of a row of
 * logits.  The kernels are in shaders/core/{embed,norm,pool,sample}.metal. */
#include "ops/op_private.h"
#include "shaders/args.h"
#include "shaders/core/norm.h"
#include "shaders/step.h"

#include <ingot/gpu_lower.h>

#include <stdio.h>
#include <string.h>

extern const struct ig_shader ig_shader_embed, ig_shader_norm, ig_shader_sample;
extern const struct ig_shader ig_shader_elementwise, ig_shader_pool;

#define ROW_THREADS 256u
#define ROW_BYTES 64u /* two sums over eight simdgroups */

static bool fits(const struct ig_gpu_tensor *t)
{
	return t->n_cols >= 1 && t->n_cols <= INT32_MAX && t->row_stride <= INT32_MAX;
}

int ig_gpu_kernel_for(const char *op, uint32_t dtype, char kernel[32], struct ig_error *err)
{
	if (!ig_gpu_is_value(dtype))
		return ig_fail(err, -ENOTSUP, "%s: no kernel writes dtype %u", op, dtype);
	snprintf(kernel, 32, "%s_%s", op, ig_gpu_format_name(dtype));
	return 0;
}

/* The sampled ids of all steps in flight. */
static uint64_t ids_bytes(const struct ig_gpu_launch *c)
{
	return (uint64_t)c->max_logit_rows * STEP_ID_HALVES * IG_STEPS_IN_FLIGHT * 4;
}

/* ---- embed ---------------------------------------------------------------------------- */

/* Table i, or NULL. */
static const struct ig_gpu_tensor *table_at(const struct ig_gpu_launch *c, uint32_t i)
{
	return i < c->n_weights && c->weight[i].ref.buffer >= 0 ? &c->weight[i] : NULL;
}

static int lower_embed(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
		       struct ig_gpu_tape *t, struct ig_error *err)
{
	const struct ig_embed_params *p = c->params;
	const struct ig_gpu_tensor *y = &c->out[0];
	struct ig_gpu_ref ids;
	int rc;

	for (uint32_t i = 0; i < c->n_weights; i++) {
		const struct ig_gpu_tensor *w = &c->weight[i];
		if (i && !table_at(c, i))
			continue;
		if (!ig_gpu_format_name(w->dtype))
			return ig_fail(err, -ENOTSUP, "embed: no kernel for a table of dtype %u",
				       w->dtype);
		if (!fits(w) || !fits(y) || w->n_rows < 1 || w->n_rows > INT32_MAX)
			return ig_fail(err, -ENOTSUP,
				       "embed: a table of %lld rows of %lld is too large",
				       (long long)w->n_rows, (long long)w->n_cols);
	}
	const struct ig_gpu_tensor *w = &c->weight[0], *learned = table_at(c, 1),
				   *types = table_at(c, 2);
	const struct embed_args args = {
		.n_cols = (uint32_t)w->n_cols,
		.n_vocab = (uint32_t)w->n_rows,
		.y_stride = ig_gpu_stride(y),
		.w_row_bytes = (uint32_t)w->row_stride,
		.scale = p->scale,
		.max_logit_rows = c->max_logit_rows,
		.format = w->dtype,
		.n_positions = learned ? (uint32_t)learned->n_rows : 0,
		.learned_row_bytes = learned ? (uint32_t)learned->row_stride : 0,
		.learned_format = learned ? learned->dtype : IG_F32,
		.tiles = w->layout == IG_GPU_TILES,
		.n_types = types ? (uint32_t)types->n_rows : 0,
		.types_row_bytes = types ? (uint32_t)types->row_stride : 0,
		.types_format = types ? types->dtype : IG_F32,
		.outside = p->outside,
		.next = p->next,
	};
	rc = h->ids(t, &ids);
	if (rc)
		return ig_fail(err, rc, "embed: no memory for ids");
	const struct ig_gpu_bind none = IG_GPU_NONE;
	const struct ig_gpu_dispatch d = {
		.struct_size = sizeof d,
		.shader = &ig_shader_embed,
		.kernel = "embed",
		.args = &args,
		.n_arg_bytes = sizeof args,
		.threads = ROW_THREADS,
		.when_live = IG_LIVE_ONE,
		.when_max = UINT32_MAX,
		.grid = { { IG_LIVE_ROWS, 1, 1, 1 }, IG_GPU_ONE, IG_GPU_ONE },
		.n_binds = 5,
		.bind = { ig_gpu_bind_weight(w), ig_gpu_bind_ref(ids, ids_bytes(c), IG_GPU_READ),
			  learned ? ig_gpu_bind_weight(learned) : none,
			  types ? ig_gpu_bind_weight(types) : none,
			  ig_gpu_bind_value(y, IG_GPU_WRITE) },
	};
	rc = h->dispatch(t, &d);
	return rc ? ig_fail(err, rc, "embed: its kernel could not be recorded") : 0;
}

static bool embed_tiles(const struct ig_gpu_launch *c, uint32_t i)
{
	return i == 0 && ig_gpu_is_blocks(c->weight[0].dtype);
}

const struct ig_gpu_op ig_gpu_embed = { sizeof(struct ig_gpu_op), 0, NULL, lower_embed,
					embed_tiles };

/* ---- norm ------------------------------------------------------------------------------- */

static int lower_norm(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
		      struct ig_gpu_tape *t, struct ig_error *err)
{
	const struct ig_norm_params *p = c->params;
	const struct ig_gpu_tensor *x = &c->in[0], *delta = &c->in[1], *y = &c->out[0],
				   *sum = &c->out[1], *also = &c->also;
	const bool twice = also->ref.buffer >= 0;
	const bool after = p->after != 0;
	bool with_delta = !after && c->n_in > 1 && delta->ref.buffer >= 0;
	const bool plain = c->weight[0].ref.buffer < 0;
	const bool with_factor = c->n_weights > 2 && c->weight[2].ref.buffer >= 0;
	bool with_bias = c->n_weights > 1 && c->weight[1].ref.buffer >= 0;
	char kernel[32];
	int rc = ig_gpu_kernel_for("norm", y->dtype, kernel, err);

	if (rc)
		return rc;
	if (!fits(x) || !fits(y) || (after && !fits(delta)) ||
	    (with_delta && (!fits(delta) || !fits(sum))))
		return ig_fail(err, -ENOTSUP, "norm: rows of %lld values are too long",
			       (long long)x->n_cols);
	const uint64_t n = p->group ? p->group : (uint64_t)x->n_cols;
	const uint32_t n_groups = (uint32_t)((uint64_t)x->n_cols / n);
	if (n <= NORM_SHORT)
		strcat(kernel, "_short");
	const struct norm_args args = {
		.n = (uint32_t)n,
		.eps = p->eps,
		.kind = p->kind,
		.x_stride = ig_gpu_stride(x),
		.delta_stride = with_delta || after ? ig_gpu_stride(delta) : 0,
		.y_stride = ig_gpu_stride(y),
		.sum_stride = with_delta ? ig_gpu_stride(sum) : 0,
		.flags = (with_bias ? NORM_BIAS : 0) | (with_delta ? NORM_DELTA : 0) |
			 (p->gather ? NORM_GATHER : 0) | (p->gather == 2 ? NORM_GUESSES : 0) |
			 (plain ? NORM_PLAIN : 0) | (after ? NORM_AFTER : 0) |
			 (with_factor ? NORM_FACTOR : 0) |
			 (!twice		? 0 :
			  also->dtype == IG_F16 ? NORM_ALSO_F16 :
						  NORM_ALSO_BF16),
		.rows_live = y->row_class,
		.n_groups = n_groups,
		.scale = p->scale != 0 ? p->scale : 1,
		.also_stride = twice ? ig_gpu_stride(also) : 0,
	};
	const struct ig_gpu_bind none =
		plain ? ig_gpu_bind_value(x, IG_GPU_READ) :
			ig_gpu_bind_ref(c->weight[0].ref, n * 4, IG_GPU_READ);
	const struct ig_gpu_bind out = ig_gpu_bind_value(y, IG_GPU_WRITE);
	const struct ig_gpu_dispatch d = {
		.struct_size = sizeof d,
		.shader = &ig_shader_norm,
		.kernel = kernel,
		.args = &args,
		.n_arg_bytes = sizeof args,
		.threads = ROW_THREADS,
		.threadgroup_bytes = ROW_BYTES,
		.when_live = c->unread_rows ? ig_gpu_live_of(y) : IG_LIVE_ONE,
		.when_min = c->unread_rows ? c->unread_rows + 1 : 0,
		.when_max = UINT32_MAX,
		.grid = { { ig_gpu_live_of(y), n_groups, 1, 1 }, IG_GPU_ONE, IG_GPU_ONE },
		.n_binds = 8,
		.bind = { ig_gpu_bind_value(x, IG_GPU_READ),
			  with_delta || after ? ig_gpu_bind_value(delta, IG_GPU_READ) : none, none,
			  with_bias ? ig_gpu_bind_ref(c->weight[1].ref, n * 4, IG_GPU_READ) : none,
			  out, with_delta ? ig_gpu_bind_value(sum, IG_GPU_WRITE) : out,
			  with_factor ? ig_gpu_bind_ref(c->weight[2].ref, 4, IG_GPU_READ) : none,
			  twice ? ig_gpu_bind_value(also, IG_GPU_WRITE) : out },
	};
	rc = h->dispatch(t, &d);
	return rc ? ig_fail(err, rc, "norm: its kernel could not be recorded") : 0;
}

const struct ig_gpu_op ig_gpu_norm = { .struct_size = sizeof(struct ig_gpu_op),
				       .flags = IG_GPU_OUT_ANY | IG_GPU_OUT_TWICE,
				       .lower = lower_norm };

/* ---- multiply and soft_cap -------------------------------------------------------------- */

static int emit_elementwise(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
			    struct ig_gpu_tape *t, struct elementwise_args *args,
			    struct ig_gpu_dispatch *d, struct ig_error *err)
{
	const struct ig_gpu_tensor *x = &c->in[0], *y = &c->out[0];

	if (!fits(x) || !fits(y) || (c->n_in > 1 && !fits(&c->in[1])))
		return ig_fail(err, -ENOTSUP, "%s: rows of %lld values are too long", d->kernel,
			       (long long)x->n_cols);
	args->n = (uint32_t)x->n_cols;
	args->x_stride = ig_gpu_stride(x);
	args->y_stride = ig_gpu_stride(y);
	args->rows_live = y->row_class;
	d->struct_size = sizeof *d;
	d->shader = &ig_shader_elementwise;
	d->args = args;
	d->n_arg_bytes = sizeof *args;
	d->threads = ROW_THREADS;
	d->when_live = IG_LIVE_ONE;
	d->when_max = UINT32_MAX;
	d->grid[0] =
		(struct ig_gpu_extent){ IG_LIVE_ONE, 1, 1,
					(args->n + ELEMENTWISE_COLUMNS - 1) / ELEMENTWISE_COLUMNS };
	d->grid[1] = (struct ig_gpu_extent){ ig_gpu_live_of(y), 1, 1, 1 };
	d->grid[2] = (struct ig_gpu_extent)IG_GPU_ONE;
	d->bind[d->n_binds++] = ig_gpu_bind_value(x, IG_GPU_READ);
	if (c->n_in > 1)
		d->bind[d->n_binds++] = ig_gpu_bind_value(&c->in[1], IG_GPU_READ);
	d->bind[d->n_binds++] = ig_gpu_bind_value(y, IG_GPU_WRITE);
	int rc = h->dispatch(t, d);
	return rc ? ig_fail(err, rc, "%s: its kernel could not be recorded", d->kernel) : 0;
}

static int lower_multiply(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
			  struct ig_gpu_tape *t, struct ig_error *err)
{
	const struct ig_multiply_params *p = c->params;
	struct elementwise_args args = { .first = p->first, .by_stride = ig_gpu_stride(&c->in[1]) };
	char kernel[32];
	struct ig_gpu_dispatch d = { .kernel = kernel };
	int rc = ig_gpu_kernel_for("multiply", c->out[0].dtype, kernel, err);

	return rc ? rc : emit_elementwise(c, h, t, &args, &d, err);
}

static int lower_soft_cap(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
			  struct ig_gpu_tape *t, struct ig_error *err)
{
	const struct ig_soft_cap_params *p = c->params;
	struct elementwise_args args = { .scale = p->cap > 0 ? p->scale / p->cap : p->scale,
					 .cap = p->cap };
	struct ig_gpu_dispatch d = { .kernel = "soft_cap" };

	return emit_elementwise(c, h, t, &args, &d, err);
}

const struct ig_gpu_op ig_gpu_multiply = { sizeof(struct ig_gpu_op), IG_GPU_OUT_ANY, NULL,
					   lower_multiply },
		       ig_gpu_soft_cap = { sizeof(struct ig_gpu_op), 0, NULL, lower_soft_cap };

/* ---- pool and output -------------------------------------------------------------------- */

_Static_assert(POOL_MEAN == IG_POOL_MEAN && POOL_CLS == IG_POOL_CLS && POOL_LAST == IG_POOL_LAST,
	       "kinds of the kernel are those of struct ig_pool_params");

static int lower_pool(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
		      struct ig_gpu_tape *t, struct ig_error *err)
{
	const struct ig_pool_params *p = c->params;
	const struct ig_gpu_tensor *x = &c->in[0], *y = &c->out[0];
	char kernel[32];
	int rc = ig_gpu_kernel_for("pool", y->dtype, kernel, err);

	if (rc)
		return rc;
	if (!fits(x) || !fits(y))
		return ig_fail(err, -ENOTSUP, "pool: rows of %lld values are too long",
			       (long long)x->n_cols);
	const struct pool_args args = { .n = (uint32_t)x->n_cols,
					.kind = p->kind,
					.x_stride = ig_gpu_stride(x),
					.y_stride = ig_gpu_stride(y) };
	const struct ig_gpu_dispatch d = {
		.struct_size = sizeof d,
		.shader = &ig_shader_pool,
		.kernel = kernel,
		.args = &args,
		.n_arg_bytes = sizeof args,
		.threads = POOL_THREADS,
		.when_live = IG_LIVE_LOGIT_ROWS,
		.when_min = 1,
		.when_max = UINT32_MAX,
		.grid = { { IG_LIVE_ONE, 1, 1, (args.n + POOL_THREADS - 1) / POOL_THREADS },
			  { IG_LIVE_LOGIT_ROWS, 1, 1, 1 },
			  IG_GPU_ONE },
		.n_binds = 2,
		.bind = { ig_gpu_bind_value(x, IG_GPU_READ), ig_gpu_bind_value(y, IG_GPU_WRITE) },
	};
	rc = h->dispatch(t, &d);
	return rc ? ig_fail(err, rc, "pool: its kernel could not be recorded") : 0;
}

const struct ig_gpu_op ig_gpu_pool = { sizeof(struct ig_gpu_op), IG_GPU_OUT_ANY, NULL, lower_pool,
				       NULL };

/* A copy of rows of logits, or of results, for the host. */
static void copy_dispatch(const struct ig_gpu_launch *c, const struct sample_args *a,
			  struct ig_gpu_ref logits, struct ig_gpu_dispatch *d)
{
	*d = (struct ig_gpu_dispatch){
		.struct_size = sizeof *d,
		.shader = &ig_shader_sample,
		.kernel = "sample_copy",
		.args = a,
		.n_arg_bytes = sizeof *a,
		.threads = SAMPLE_THREADS,
		.when_live = IG_LIVE_WANT_LOGITS,
		.when_min = 1,
		.when_max = UINT32_MAX,
		.grid = { { IG_LIVE_ONE, 1, 1, a->n_parts },
			  { ig_gpu_live_of(&c->in[0]), 1, 1, 1 },
			  IG_GPU_ONE },
		.n_binds = 2,
		.bind = { ig_gpu_bind_value(&c->in[0], IG_GPU_READ),
			  ig_gpu_bind_ref(logits, (uint64_t)c->max_logit_rows * a->n_vocab * 4,
					  IG_GPU_WRITE) },
	};
}

static int lower_output(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
			struct ig_gpu_tape *t, struct ig_error *err)
{
	const struct ig_gpu_tensor *x = &c->in[0];
	struct ig_gpu_dispatch d;
	struct ig_gpu_ref results;
	int rc;

	if (!fits(x))
		return ig_fail(err, -ENOTSUP, "output: rows of %lld values are too long",
			       (long long)x->n_cols);
	const struct sample_args args = {
		.n_vocab = (uint32_t)x->n_cols,
		.x_stride = ig_gpu_stride(x),
		.max_logit_rows = c->max_logit_rows,
		.n_parts = ((uint32_t)x->n_cols + SAMPLE_PART - 1) / SAMPLE_PART,
	};
	if (!(rc = h->logits(t, x->n_cols, &results))) {
		copy_dispatch(c, &args, results, &d);
		rc = h->dispatch(t, &d);
	}
	return rc ? ig_fail(err, rc, "output: its kernel could not be recorded") : 0;
}

const struct ig_gpu_op ig_gpu_output = { sizeof(struct ig_gpu_op), 0, NULL, lower_output, NULL };

/* ---- sample ------------------------------------------------------------------------------- */

/* Scratch memory between the kernels: [max_logit_rows] each. */
struct sample_scratch {
	struct ig_gpu_bind keys, tops, sums, counts, weights, cuts;
};

static int add_scratch(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
		       struct ig_gpu_tape *t, const struct sample_args *a, struct sample_scratch *r)
{
	uint64_t rows = c->max_logit_rows, parts = rows * a->n_parts;
	struct {
		struct ig_gpu_bind *to;
		uint64_t n_bytes;
	} of[] = {
		{ &r->keys, rows * a->n_vocab * 4 },
		{ &r->tops, parts * 8 },
		{ &r->sums, parts * 8 },
		{ &r->counts, parts * SAMPLE_BUCKETS * 4 },
		{ &r->weights, parts * SAMPLE_BUCKETS * 8 },
		{ &r->cuts, rows * 8 },
	};

	for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
		int rc = h->scratch(t, of[i].n_bytes, &of[i].to->ref);
		if (rc)
			return rc;
		of[i].to->n_bytes = of[i].n_bytes;
	}
	return 0;
}

static struct ig_gpu_bind reads(struct ig_gpu_bind b)
{
	b.access = IG_GPU_READ;
	return b;
}

static struct ig_gpu_bind writes(struct ig_gpu_bind b)
{
	b.access = IG_GPU_WRITE;
	return b;
}

/* The last operand, or the last three of sample_weigh, are results. */
static int emit_sample(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
		       struct ig_gpu_tape *t, const struct sample_args *a,
		       const struct sample_scratch *r, struct ig_gpu_ref ids,
		       struct ig_gpu_ref logits)
{
	const struct ig_gpu_bind x = ig_gpu_bind_value(&c->in[0], IG_GPU_READ);
	const struct ig_gpu_bind sampled = ig_gpu_bind_ref(ids, ids_bytes(c), IG_GPU_WRITE);
	const uint32_t live = ig_gpu_live_of(&c->in[0]);
	const uint32_t word = 8 * SAMPLE_THREADS / 32; /* 64 bits per simdgroup */
	const struct {
		const char *kernel;
		uint32_t when, parts, bytes, n_binds;
		struct ig_gpu_bind bind[5];
	} of[] = {
		{ "sample_top",
		  live,
		  a->n_parts,
		  SAMPLE_PART * 4 + word,
		  3,
		  { x, writes(r->keys), writes(r->tops) } },
		{ "sample_weigh",
		  IG_LIVE_RANDOM_ROWS,
		  a->n_parts,
		  3 * SAMPLE_BUCKETS * 4 + word,
		  5,
		  { reads(r->keys), reads(r->tops), writes(r->sums), writes(r->counts),
		    writes(r->weights) } },
		{ "sample_cut",
		  IG_LIVE_RANDOM_ROWS,
		  0,
		  SAMPLE_LIST * 8 + 4 * 256 * 4 + 16 + word + 16,
		  5,
		  { reads(r->keys), reads(r->tops), reads(r->counts), reads(r->weights),
		    writes(r->cuts) } },
		{ "sample_sum",
		  IG_LIVE_RANDOM_ROWS,
		  a->n_parts,
		  word,
		  4,
		  { reads(r->keys), reads(r->tops), reads(r->cuts), writes(r->sums) } },
		{ "sample_pick",
		  live,
		  0,
		  word + 16,
		  5,
		  { reads(r->keys), reads(r->tops), reads(r->cuts), reads(r->sums), sampled } },
	};

	struct ig_gpu_dispatch copy;
	copy_dispatch(c, a, logits, &copy);
	int status = h->dispatch(t, &copy);
	if (status)
		return status;
	for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
		const struct ig_gpu_extent rows = { live, 1, 1, 1 };
		const struct ig_gpu_extent one = IG_GPU_ONE;
		struct ig_gpu_dispatch d = {
			.struct_size = sizeof d,
			.shader = &ig_shader_sample,
			.kernel = of[i].kernel,
			.args = a,
			.n_arg_bytes = sizeof *a,
			.threads = SAMPLE_THREADS,
			.threadgroup_bytes = of[i].bytes,
			.n_binds = of[i].n_binds,
			.when_live = of[i].when,
			.when_min = 1,
			.when_max = UINT32_MAX,
			.grid = { rows, one, one },
		};
		if (of[i].parts) {
			d.grid[0] = (struct ig_gpu_extent){ IG_LIVE_ONE, 1, 1, of[i].parts };
			d.grid[1] = rows;
		}
		for (uint32_t j = 0; j < of[i].n_binds; j++)
			d.bind[j] = of[i].bind[j];
		int rc = h->dispatch(t, &d);
		if (rc)
			return rc;
	}
	return 0;
}

static int lower_sample(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
			struct ig_gpu_tape *t, struct ig_error *err)
{
	const struct ig_sample_op_params *p = c->params;
	const struct ig_gpu_tensor *x = &c->in[0];
	struct ig_gpu_ref ids, logits;
	struct sample_scratch scratch = { 0 };
	int rc;

	if (!fits(x) || x->n_cols > (int64_t)SAMPLE_PART * SAMPLE_MAX_PARTS)
		return ig_fail(err, -ENOTSUP,
			       "sample: a vocabulary of %lld, at most %u is possible",
			       (long long)x->n_cols, SAMPLE_PART * SAMPLE_MAX_PARTS);
	const struct sample_args args = {
		.n_vocab = (uint32_t)x->n_cols,
		.x_stride = ig_gpu_stride(x),
		.max_logit_rows = c->max_logit_rows,
		.n_parts = ((uint32_t)x->n_cols + SAMPLE_PART - 1) / SAMPLE_PART,
		.guess = p->guess,
	};
	rc = h->ids(t, &ids);
	rc = rc ? rc : h->logits(t, x->n_cols, &logits);
	if (p->guess) /* behind the rows of the model itself */
		logits.offset += (uint64_t)c->max_logit_rows * args.n_vocab * 4;
	rc = rc ? rc : add_scratch(c, h, t, &args, &scratch);
	rc = rc ? rc : emit_sample(c, h, t, &args, &scratch, ids, logits);
	return rc ? ig_fail(err, rc, "sample: its kernels could not be recorded") : 0;
}

const struct ig_gpu_op ig_gpu_sample = { sizeof(struct ig_gpu_op), 0, NULL, lower_sample, NULL };
