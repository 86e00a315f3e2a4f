/* adapt.c: GPU lowerings of the ops of adapters.  The kernels are in shaders/core/adapt.metal; they run
 * only in steps in which a row has an adapter. */
#include "ops/adapt.h"
#include "ops/op_private.h"
#include "shaders/args.h"

#include <ingot/gpu_lower.h>

extern const struct ig_shader ig_shader_adapt;

#define DOWN_COLUMNS (ADAPT_THREADS / 32) /* of a threadgroup: one for each simdgroup */

_Static_assert(ADAPT_MAX_ADAPTERS == IG_MAX_ADAPTERS && ADAPT_WEIGHTS == IG_ADAPT_WEIGHTS,
	       "the table has space for all");

static bool fits(const struct ig_gpu_tensor *t)
{
	return t->n_cols >= 1 && t->n_cols <= INT32_MAX && t->row_stride <= INT32_MAX;
}

static int too_long(const char *op, const struct ig_gpu_tensor *t, struct ig_error *err)
{
	return ig_fail(err, -ENOTSUP, "%s: rows of %lld values are too long", op,
		       (long long)t->n_cols);
}

/* What both kernels are told, and the table that does not fit in arguments. */
static int describe(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
		    struct ig_gpu_tape *t, struct adapt_args *args, struct ig_gpu_bind *table)
{
	const struct ig_adapt_params *p = c->params;
	struct adapt_table of = { 0 };

	*args = (struct adapt_args){ .n_weights = p->n_weights, .rows_live = c->out[0].row_class };
	for (uint32_t i = 0; i < p->n_weights; i++) {
		args->n_rows[i] = (uint32_t)p->n_rows[i];
		args->column[i + 1] = (uint32_t)p->column[i + 1];
		for (uint32_t a = 0; a < p->n_adapters; a++) {
			of.first[i][a + 1] = (uint32_t)p->first[i][a + 1];
			of.scale[i][a] = p->scale[i][a];
		}
	}
	*table = ig_gpu_bind_ref((struct ig_gpu_ref){ 0 }, sizeof of, IG_GPU_READ);
	return h->constant(t, &of, sizeof of, &table->ref);
}

static int emit(const struct ig_gpu_launch *c, const struct ig_gpu_host *h, struct ig_gpu_tape *t,
		const char *kernel, const struct adapt_args *args, struct ig_gpu_bind table,
		uint32_t groups)
{
	const struct ig_gpu_bind none = IG_GPU_NONE;
	bool up = c->n_in > 1;
	struct ig_gpu_dispatch d = {
		.struct_size = sizeof d,
		.shader = &ig_shader_adapt,
		.kernel = kernel,
		.args = args,
		.n_arg_bytes = sizeof *args,
		.threads = ADAPT_THREADS,
		.when_live = IG_LIVE_ADAPTED_ROWS,
		.when_min = 1,
		.when_max = UINT32_MAX,
		.grid = { { IG_LIVE_ONE, 1, 1, groups },
			  { ig_gpu_live_of(&c->out[0]), 1, 1, 1 },
			  IG_GPU_ONE },
		.n_binds = 3 + IG_ADAPT_WEIGHTS,
		.bind = { ig_gpu_bind_value(&c->in[0], IG_GPU_READ), table },
	};
	for (uint32_t i = 0; i < IG_ADAPT_WEIGHTS; i++) {
		bool there = i < c->n_weights && c->weight[i].ref.buffer >= 0;
		d.bind[2 + i] = there ? ig_gpu_bind_weight(&c->weight[i]) : none;
	}
	d.bind[2 + IG_ADAPT_WEIGHTS] =
		ig_gpu_bind_value(&c->out[0], up ? IG_GPU_READ | IG_GPU_WRITE : IG_GPU_WRITE);
	return h->dispatch(t, &d);
}

static int lower_down(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
		      struct ig_gpu_tape *t, struct ig_error *err)
{
	const struct ig_gpu_tensor *x = &c->in[0], *out = &c->out[0];
	struct ig_gpu_bind table;
	struct adapt_args args;
	int rc;

	if (!fits(x) || !fits(out))
		return too_long("adapt_down", x, err);
	rc = describe(c, h, t, &args, &table);
	args.n = (uint32_t)x->n_cols;
	args.x_stride = ig_gpu_stride(x);
	args.h_stride = ig_gpu_stride(out);
	rc = rc ? rc :
		  emit(c, h, t, "adapt_down", &args, table,
		       ((uint32_t)out->n_cols + DOWN_COLUMNS - 1) / DOWN_COLUMNS);
	return rc ? ig_fail(err, rc, "adapt_down: its kernel could not be recorded") : 0;
}

static int lower_up(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
		    struct ig_gpu_tape *t, struct ig_error *err)
{
	const struct ig_gpu_tensor *y = &c->out[0];
	struct ig_gpu_bind table;
	struct adapt_args args;
	int rc;

	if (!fits(&c->in[0]) || !fits(y))
		return too_long("adapt_up", y, err);
	if (y->ref.buffer != c->in[1].ref.buffer)
		return ig_fail(err, -EINVAL, "adapt_up: its result is not in place of its input");
	rc = describe(c, h, t, &args, &table);
	args.n = (uint32_t)y->n_cols;
	args.h_stride = ig_gpu_stride(&c->in[0]);
	args.y_stride = ig_gpu_stride(y);
	rc = rc ? rc :
		  emit(c, h, t, "adapt_up", &args, table,
		       ((uint32_t)y->n_cols + ADAPT_THREADS - 1) / ADAPT_THREADS);
	return rc ? ig_fail(err, rc, "adapt_up: its kernel could not be recorded") : 0;
}

static int lower_join(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
		      struct ig_gpu_tape *t, struct ig_error *err)
{
	const struct ig_glu_join_params *p = c->params;
	const struct ig_gpu_tensor *x = &c->in[0], *y = &c->out[0];
	char kernel[32];
	int rc = ig_gpu_kernel_for("glu_join", y->dtype, kernel, err);

	if (rc)
		return rc;
	if (!fits(x) || !fits(y))
		return too_long("glu_join", x, err);
	const struct adapt_args args = {
		.n = (uint32_t)y->n_cols,
		.x_stride = ig_gpu_stride(x),
		.y_stride = ig_gpu_stride(y),
		.act = p->act,
		.rows_live = y->row_class,
	};
	const struct ig_gpu_dispatch d = {
		.struct_size = sizeof d,
		.shader = &ig_shader_adapt,
		.kernel = kernel,
		.args = &args,
		.n_arg_bytes = sizeof args,
		.threads = ADAPT_THREADS,
		.when_live = IG_LIVE_ONE,
		.when_max = UINT32_MAX,
		.grid = { { IG_LIVE_ONE, 1, 1, (args.n + ADAPT_THREADS - 1) / ADAPT_THREADS },
			  { ig_gpu_live_of(y), 1, 1, 1 },
			  IG_GPU_ONE },
		.n_binds = 2,
		.bind = { ig_gpu_bind_value(x, IG_GPU_READ), ig_gpu_bind_value(y, IG_GPU_WRITE) },
	};
	rc = h->dispatch(t, &d);
	return rc ? ig_fail(err, rc, "glu_join: its kernel could not be recorded") : 0;
}

const struct ig_gpu_op ig_gpu_adapt_down = { sizeof(struct ig_gpu_op), 0, NULL, lower_down },
		       ig_gpu_adapt_up = { sizeof(struct ig_gpu_op), 0, NULL, lower_up },
		       ig_gpu_glu_join = { sizeof(struct ig_gpu_op), IG_GPU_OUT_ANY, NULL,
					   lower_join };
