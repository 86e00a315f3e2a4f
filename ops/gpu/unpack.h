/*
 * unpack.h: for lowerings of many rows of weights in tiles: the dispatch that converts them to rows of float16
 * (shaders/core/tiles_unpack.h), and the threadgroup memory of the streams that multiply those
 * (shaders/core/product_stream.h).
 */
#pragma once

#include "shaders/args.h"
#include "shaders/core/shapes.h"

#include <ingot/gpu_lower.h>
#include <stdio.h>

#define UNPACK_GROUPS_PER_CORE 4

/* Bytes of n outputs of k values in such rows, which have no padding; a row of tiles fills sixteen. */
static inline uint64_t ig_gpu_unpacked_bytes(int64_t n, int64_t k)
{
	return ((uint64_t)n + 15) / 16 * 16 * (uint64_t)k * 2;
}

/* Stages of both operands, in elements of `size` bytes, sums of two warpgroups, barriers. */
static inline uint32_t ig_gpu_stream_bytes(uint32_t bm, uint32_t bn, uint32_t bk, uint32_t stages,
					   uint32_t size)
{
	return stages * (bm + bn) * bk * size + 2 * 64 * PRODUCT_STREAM_CHUNK(bn) * 4 +
	       stages * 16 + 16;
}

/* Record the conversion of the weight w, to `to`, in steps of min_rows rows of c's output and more.  prefix: of the kernels'
 * names. */
static inline int ig_gpu_unpack(const struct ig_gpu_launch *c, const struct ig_gpu_tensor *w,
				uint32_t min_rows, struct ig_gpu_ref to,
				const struct ig_shader *shader, const char *prefix,
				const struct ig_gpu_host *h, struct ig_gpu_tape *t)
{
	const int64_t tile_k = ig_gpu_tile_k(w->dtype), across = (w->n_cols + tile_k - 1) / tile_k;
	const uint32_t each = UNPACK_THREADS / 32,
		       most = ig_gpu_cores(c->facts) * UNPACK_GROUPS_PER_CORE;
	struct unpack_args args = {
		.k = (uint32_t)w->n_cols,
		.across = (uint32_t)across,
		.n_tiles = (uint32_t)((w->n_rows + 15) / 16 * across),
	};
	struct ig_gpu_dispatch d = {
		.struct_size = sizeof d,
		.n_binds = 2,
		.shader = shader,
		.args = &args,
		.n_arg_bytes = sizeof args,
		.threads = UNPACK_THREADS,
		.when_live = ig_gpu_live_of(&c->out[0]),
		.when_min = min_rows,
		.when_max = UINT32_MAX,
		.grid = { IG_GPU_ONE, IG_GPU_ONE, IG_GPU_ONE },
		.bind = { ig_gpu_bind_weight(w),
			  ig_gpu_bind_ref(to, ig_gpu_unpacked_bytes(w->n_rows, w->n_cols),
					  IG_GPU_WRITE) },
	};
	const uint32_t needed = (args.n_tiles + each - 1) / each;
	char kernel[64];

	d.grid[0].times = needed < most ? needed : most;
	args.n_simdgroups = d.grid[0].times * each;
	snprintf(kernel, sizeof kernel, "%s_%s", prefix, ig_gpu_format_name(w->dtype));
	d.kernel = kernel;
	return h->dispatch(t, &d);
}
