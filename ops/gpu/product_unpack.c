/*
 * product_unpack.c: products of many rows with weights in tiles: a piece of the weights is converted
 * to rows of float16 in scratch memory (shaders/core/tiles_unpack.metal), then multiplied by a stream
 * (shaders/core/product_stream.h), which keeps the shares of k.  A weight is dequantised once for all
 * rows, and the products have the speed of float16's.
 */
#include "ops/gpu/product_private.h"

#include <string.h>

extern const struct ig_shader ig_shader_tiles_unpack, ig_shader_linear, ig_shader_glu;

/* Scratch for a piece: with less, few rows of a large weight have too few tiles for the GPU (512 rows of
 * Devstral's shape: 28,900 tokens/s with 64 MiB, 39,200 with 256). */
#define MAX_PIECE_BYTES ((uint64_t)256 << 20)
#define PIECE_COLUMNS 256 /* pieces start at multiples of it: whole tiles, and clusters of them */
#define THREADGROUPS_PER_CORE 4

/* Bytes of n outputs in rows of float16; tiles fill sixteen. */
static uint64_t rows_bytes(const struct ig_product *p, int64_t n)
{
	return ((uint64_t)n + 15) / 16 * 16 * (uint64_t)p->k * 2;
}

int ig_product_unpack(const struct ig_product *p, const struct ig_gpu_tensor *w, uint32_t min_rows,
		      struct ig_gpu_ref to, const struct ig_gpu_host *h, struct ig_gpu_tape *t)
{
	const uint32_t tile_k = ig_gpu_tile_k(p->dtype);
	const uint32_t across = ((uint32_t)p->k + tile_k - 1) / tile_k;
	struct unpack_args args = {
		.k = (uint32_t)p->k,
		.across = across,
		.n_tiles = (uint32_t)((w->n_rows + 15) / 16) * across,
	};
	struct ig_gpu_dispatch d = {
		.struct_size = sizeof d,
		.n_binds = 2,
		.shader = &ig_shader_tiles_unpack,
		.args = &args,
		.n_arg_bytes = sizeof args,
		.threads = UNPACK_THREADS,
		.when_live = ig_gpu_live_of(&p->launch->out[0]),
		.when_min = min_rows,
		.when_max = UINT32_MAX,
		.grid = { IG_GPU_ONE, IG_GPU_ONE, IG_GPU_ONE },
		.bind = { ig_gpu_bind_weight(w),
			  ig_gpu_bind_ref(to, rows_bytes(p, w->n_rows), IG_GPU_WRITE) },
	};
	const uint32_t each = UNPACK_THREADS / 32, needed = (args.n_tiles + each - 1) / each,
		       most = (uint32_t)ig_product_cores(p->launch->facts) * THREADGROUPS_PER_CORE;
	char name[64];

	d.grid[0].times = needed < most ? needed : most;
	args.n_simdgroups = d.grid[0].times * each;
	snprintf(name, sizeof name, "tiles_unpack_%s", ig_gpu_format_name(p->dtype));
	d.kernel = name;
	return h->dispatch(t, &d);
}

/* The product of p's weights, which fit into a piece. */
static int lower_piece(const struct ig_product *p, uint32_t min_rows, struct ig_gpu_ref scratch,
		       const struct linear_args *common, const struct ig_gpu_host *h,
		       struct ig_gpu_tape *t)
{
	struct ig_gpu_tensor rows[4];
	struct ig_product of = *p;
	struct ig_product_variants variants = { .n = 0 };
	struct linear_args args = *common;
	int rc = 0;

	of.dtype = IG_F16;
	of.shader = p->pair ? &ig_shader_glu : &ig_shader_linear;
	memset(args.n, 0, sizeof args.n);
	for (uint32_t i = 0; i < p->n && !rc; i++) {
		rc = ig_product_unpack(p, p->weight[i], min_rows, scratch, h, t);
		rows[i] = *p->weight[i];
		rows[i].ref = scratch;
		rows[i].row_stride = (uint64_t)p->k * 2;
		rows[i].dtype = IG_F16;
		rows[i].layout = IG_GPU_ROWS;
		of.weight[i] = &rows[i];
		scratch.offset += rows_bytes(p, rows[i].n_rows);
		if (!p->pair || i == 0)
			args.n[i] = (uint32_t)rows[i].n_rows;
	}
	args.n_weights = p->pair ? 1 : p->n;
	args.w_row_bytes = (uint32_t)p->k * 2;
	args.column = (uint32_t)(p->column % 2);
	args.format = IG_F16;
	ig_product_streams(&of, min_rows, args.shares, &variants);
	for (uint32_t i = 0; i < variants.n && !rc; i++)
		rc = ig_product_emit(&of, &variants.v[i], &args, h, t);
	return rc;
}

/* Columns of p's weights from `first` on, `n` of each. */
static void cut(const struct ig_product *p, int64_t first, int64_t n, struct ig_product *to,
		struct ig_gpu_tensor *weight, struct ig_gpu_tensor *bias)
{
	*to = *p;
	to->column += first;
	for (uint32_t i = 0; i < p->n; i++) {
		weight[i] = *p->weight[i];
		weight[i].ref.offset += (uint64_t)first * weight[i].row_stride;
		weight[i].n_rows = n;
		to->weight[i] = &weight[i];
		if (!p->bias[i])
			continue;
		bias[i] = *p->bias[i];
		bias[i].ref.offset += (uint64_t)first * 4;
		to->bias[i] = &bias[i];
	}
}

/* One weight, or a pair, in pieces of equal size. */
static int lower_pieces(const struct ig_product *p, uint32_t min_rows, uint64_t piece_bytes,
			struct ig_gpu_ref scratch, const struct linear_args *args,
			const struct ig_gpu_host *h, struct ig_gpu_tape *t)
{
	const int64_t n = p->weight[0]->n_rows,
		      unit = (int64_t)rows_bytes(p, PIECE_COLUMNS) * (p->pair ? 2 : 1),
		      most = (int64_t)piece_bytes / unit * PIECE_COLUMNS;
	const int64_t pieces = (n + most - 1) / most;
	int64_t each = (n + pieces - 1) / pieces;
	int rc = 0;

	each = (each + PIECE_COLUMNS - 1) / PIECE_COLUMNS * PIECE_COLUMNS;
	for (int64_t first = 0; first < n && !rc; first += each) {
		struct ig_gpu_tensor weight[4], bias[4];
		struct ig_product of;
		cut(p, first, n - first < each ? n - first : each, &of, weight, bias);
		rc = lower_piece(&of, min_rows, scratch, args, h, t);
	}
	return rc;
}

int ig_product_lower_unpacked(const struct ig_product *p, uint32_t min_rows,
			      const struct linear_args *args, const struct ig_gpu_host *h,
			      struct ig_gpu_tape *t)
{
	struct ig_gpu_ref scratch;
	uint64_t all = 0, piece, least = rows_bytes(p, PIECE_COLUMNS) * (p->pair ? 2 : 1);
	struct ig_product of = *p;
	int rc;

	for (uint32_t i = 0; i < p->n; i++)
		all += rows_bytes(p, p->weight[i]->n_rows);
	piece = all < MAX_PIECE_BYTES ? all : MAX_PIECE_BYTES > least ? MAX_PIECE_BYTES : least;
	if ((rc = h->scratch(t, piece, &scratch)))
		return rc;
	if (all <= piece)
		return lower_piece(p, min_rows, scratch, args, h, t);
	if (p->pair)
		return lower_pieces(p, min_rows, piece, scratch, args, h, t);
	of.n = 1;
	for (uint32_t i = 0; i < p->n && !rc; i++) {
		of.weight[0] = p->weight[i];
		of.bias[0] = p->bias[i];
		rc = lower_pieces(&of, min_rows, piece, scratch, args, h, t);
		of.column += p->weight[i]->n_rows;
	}
	return rc;
}
