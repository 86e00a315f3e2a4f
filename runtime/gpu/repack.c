/* repack.c: repacks blocks of a file, in device memory, to tiles (shaders/core/repack.metal): a
 * program of one dispatch, which runs once. */
#include "base/dtype.h"
#include "runtime/gpu/gpu_private.h"
#include "shaders/args.h"
#include "shaders/step.h"

#include <errno.h>
#include <ingot/gpu_lower.h>
#include <string.h>

extern const struct ig_shader ig_shader_repack;

#define THREADS 256u
#define GROUPS 2048u
#define TIMEOUT_MS 60000u

static int emit(struct ig_gpu_tape *t, uint32_t dtype, int64_t n_rows, int64_t k, bool *fits)
{
	const int64_t tile_k = ig_gpu_tile_k(dtype), n_tiles = (k + tile_k - 1) / tile_k;
	const uint64_t row_bytes = ig_dtype_row_bytes(dtype, k);
	const uint64_t band = (uint64_t)n_tiles * ig_dtype_row_bytes(dtype, tile_k) * 16;
	const uint64_t words = (uint64_t)((n_rows + 15) / 16) * band / 4;
	struct repack_args args = {
		.n_rows = (uint32_t)n_rows,
		.k = (uint32_t)k,
		.row_bytes = (uint32_t)row_bytes,
		.n_tiles = (uint32_t)n_tiles,
		.format = dtype,
		.n_words = (uint32_t)words,
	};
	struct ig_gpu_dispatch d = {
		.struct_size = sizeof d,
		.n_binds = 2,
		.shader = &ig_shader_repack,
		.kernel = "repack",
		.args = &args,
		.n_arg_bytes = sizeof args,
		.threads = THREADS,
		.when_live = IG_LIVE_ONE,
		.when_max = UINT32_MAX,
		.grid = { { IG_LIVE_ONE, 1, 1, GROUPS }, IG_GPU_ONE, IG_GPU_ONE },
		.bind = { { .n_bytes = row_bytes * (uint64_t)n_rows, .access = IG_GPU_READ },
			  { .n_bytes = words * 4, .access = IG_GPU_WRITE } },
	};
	int rc;

	*fits = n_rows >= 1 && k >= 1 && n_rows <= INT32_MAX && k <= INT32_MAX &&
		row_bytes <= INT32_MAX && words <= INT32_MAX;
	if (!*fits)
		return -ENOTSUP;
	if (words < GROUPS * THREADS)
		d.grid[0].times = (uint32_t)(words + THREADS - 1) / THREADS;
	args.n_threads = d.grid[0].times * THREADS;
	if ((rc = ig_gpu_tape_weight(t, d.bind[0].n_bytes, &d.bind[0].ref)) ||
	    (rc = ig_gpu_tape_host.scratch(t, d.bind[1].n_bytes, &d.bind[1].ref)))
		return rc;
	return ig_gpu_tape_host.dispatch(t, &d);
}

int ig_gpu_repack(struct ig_gpu_device *d, uint32_t dtype, int64_t n_rows, int64_t k,
		  struct ig_gpu_place from, struct ig_gpu_place to, struct ig_error *err)
{
	const struct ig_gpu_device_class *class = d->class;
	struct ig_gpu_submission s = { .live[IG_LIVE_ONE] = 1,
				       .step_bytes = sizeof(struct step_head) };
	const struct ig_gpu_place places[] = { from, to };
	struct ig_gpu_program *program = NULL;
	struct ig_gpu_tape *tape = NULL;
	const int32_t *ids;
	const float *logits;
	bool fits = true;
	int rc = ig_gpu_tape_create(class->facts(d), 1, &tape);

	if (rc)
		return ig_fail(err, rc, "no memory to repack a weight");
	rc = emit(tape, dtype, n_rows, k, &fits);
	if (!fits)
		rc = ig_fail(err, rc, "%lld rows of %lld values are too many to repack",
			     (long long)n_rows, (long long)k);
	else
		rc = ig_gpu_tape_close(tape, err);
	if (!rc)
		rc = class->program_create(d, tape, places, sizeof(struct step_head), &program,
					   err);
	if (!rc) {
		memset(class->staging(program, 0), 0, sizeof(struct step_head));
		rc = class->submit(program, &s, err);
	}
	if (!rc)
		rc = class->wait(program, 0, TIMEOUT_MS, &ids, &logits, err);
	class->program_destroy(program);
	ig_gpu_tape_destroy(tape);
	return rc;
}
