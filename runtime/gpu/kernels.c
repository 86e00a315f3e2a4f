/* kernels.c: the runtime's own dispatches: conversions between element types, and copies between
 * cache blocks. */
#include "runtime/gpu/gpu_private.h"
#include "shaders/args.h"

#include <ingot/gpu_lower.h>

extern const struct ig_shader ig_shader_convert, ig_shader_copy;

#define THREADS 256u
#define COPY_GROUPS 32u /* threadgroups per copy: a block has megabytes */

int ig_gpu_emit_convert(struct ig_gpu_tape *t, const struct ig_gpu_tensor *from,
			const struct ig_gpu_tensor *to)
{
	const struct convert_args args = {
		.n_cols = (uint32_t)from->n_cols,
		.x_stride = (uint32_t)(from->row_stride / 4),
		.y_stride = (uint32_t)(to->row_stride / 2),
		.rows_live = from->row_class,
	};
	const struct ig_gpu_dispatch d = {
		.struct_size = sizeof d,
		.n_binds = 2,
		.shader = &ig_shader_convert,
		.kernel = to->dtype == IG_F16 ? "convert_f16" : "convert_bf16",
		.args = &args,
		.n_arg_bytes = sizeof args,
		.threads = THREADS,
		.when_live = IG_LIVE_ONE,
		.when_max = UINT32_MAX,
		.grid = { { ig_gpu_live_of(from), 1, 1, 1 }, IG_GPU_ONE, IG_GPU_ONE },
		.bind = { { from->ref, (uint64_t)from->n_cols * 4, IG_GPU_READ, 0 },
			  { to->ref, (uint64_t)to->n_cols * 2, IG_GPU_WRITE, 0 } },
	};

	return ig_gpu_tape_host.dispatch(t, &d);
}

int ig_gpu_emit_copies(struct ig_gpu_tape *t)
{
	const struct copy_args args = { .n_threads = COPY_GROUPS * THREADS };
	const struct ig_gpu_dispatch d = {
		.struct_size = sizeof d,
		.shader = &ig_shader_copy,
		.kernel = "kv_copy",
		.args = &args,
		.n_arg_bytes = sizeof args,
		.threads = THREADS,
		.when_live = IG_LIVE_COPIES,
		.when_min = 1,
		.when_max = UINT32_MAX,
		.grid = { { IG_LIVE_ONE, 1, 1, COPY_GROUPS },
			  { IG_LIVE_COPIES, 1, 1, 1 },
			  { IG_LIVE_ONE, 1, 1, 1 } },
	};

	return ig_gpu_tape_host.dispatch(t, &d);
}
