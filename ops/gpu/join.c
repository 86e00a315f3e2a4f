/* join.c: GPU lowerings of sum and concat.  The kernels are in shaders/core/join.metal. */
#include "ops/op_private.h"
#include "shaders/args.h"

#include <ingot/gpu_lower.h>

extern const struct ig_shader ig_shader_join;

_Static_assert(JOIN_MAX_IN == IG_MAX_IN, "inputs");

static int lower(const struct ig_gpu_launch *c, const struct ig_gpu_host *h, struct ig_gpu_tape *t,
		 const char *kernel, uint32_t n_cols, struct ig_error *err)
{
	const struct ig_gpu_tensor *y = &c->out[0];
	struct join_args args = { .n = n_cols,
				  .n_in = c->n_in,
				  .y_stride = ig_gpu_stride(y),
				  .rows_live = y->row_class };
	struct ig_gpu_dispatch d = {
		.struct_size = sizeof d,
		.shader = &ig_shader_join,
		.kernel = kernel,
		.args = &args,
		.n_arg_bytes = sizeof args,
		.threads = JOIN_THREADS,
		.when_live = IG_LIVE_ONE,
		.when_max = UINT32_MAX,
		.grid = { { IG_LIVE_ONE, 1, 1, (n_cols + JOIN_COLUMNS - 1) / JOIN_COLUMNS },
			  { ig_gpu_live_of(y), 1, 1, 1 },
			  IG_GPU_ONE },
		.n_binds = IG_MAX_IN + 1,
	};

	for (uint32_t i = 0; i < IG_MAX_IN; i++) {
		const struct ig_gpu_tensor *x = &c->in[i < c->n_in ? i : 0];
		if (x->n_cols < 1 || x->n_cols > INT32_MAX || x->row_stride > INT32_MAX)
			return ig_fail(err, -ENOTSUP, "%s: rows of %lld values are too long",
				       kernel, (long long)x->n_cols);
		args.x_stride[i] = ig_gpu_stride(x);
		args.x_n[i] = (uint32_t)x->n_cols;
		d.bind[i] = ig_gpu_bind_value(x, IG_GPU_READ);
	}
	d.bind[IG_MAX_IN] = ig_gpu_bind_value(y, IG_GPU_WRITE);
	int rc = h->dispatch(t, &d);
	return rc ? ig_fail(err, rc, "%s: its kernel could not be recorded", kernel) : 0;
}

static int lower_sum(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
		     struct ig_gpu_tape *t, struct ig_error *err)
{
	return lower(c, h, t, "join_sum", (uint32_t)c->in[0].n_cols, err);
}

static int lower_concat(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
			struct ig_gpu_tape *t, struct ig_error *err)
{
	int64_t most = 0;

	for (uint32_t i = 0; i < c->n_in; i++)
		most = c->in[i].n_cols > most ? c->in[i].n_cols : most;
	return lower(c, h, t, "join_concat", (uint32_t)most, err);
}

const struct ig_gpu_op ig_gpu_sum = { sizeof(struct ig_gpu_op), 0, NULL, lower_sum, NULL };
const struct ig_gpu_op ig_gpu_concat = { sizeof(struct ig_gpu_op), 0, NULL, lower_concat, NULL };
