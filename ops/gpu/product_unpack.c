/*
 * product_unpack.c: products of many rows with weights in tiles: a piece of the weights is converted
 * to rows of float16 in scratch memory (shaders/core/tiles_unpack.metal), then multiplied by a stream
 * (shaders/core/product_stream.h), which keeps the shares of k.  A weight is dequantised once for all
 * rows, and the products have the speed of float16's.
 */
#include "ops/gpu/product_private.h"
#include "ops/gpu/unpack.h"

#include <string.h>

extern const struct ig_shader ig_shader_tiles_unpack, ig_shader_linear, ig_shader_glu;

/* Scratch for a piece: with less, few rows of a large weight have too few tiles for the GPU (512 rows of
 * Devstral's shape: 28,900 tokens/s with 64 MiB, 39,200 with 256). */
#define MAX_PIECE_BYTES ((uint64_t)256 << 20)
#define PIECE_COLUMNS 256 /* pieces start at multiples of it: whole tiles, and clusters of them */

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
		rc = ig_gpu_unpack(p->launch, p->weight[i], min_rows, scratch,
				   &ig_shader_tiles_unpack, "tiles_unpack", h, t);
		rows[i] = *p->weight[i];
		rows[i].ref = scratch;
		rows[i].row_stride = (uint64_t)p->k * 2;
		rows[i].dtype = IG_F16;
		rows[i].layout = IG_GPU_ROWS;
		of.weight[i] = &rows[i];
		scratch.offset += ig_gpu_unpacked_bytes(rows[i].n_rows, p->k);
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
		      unit = (int64_t)ig_gpu_unpacked_bytes(PIECE_COLUMNS, p->k) *
			     (p->pair ? 2 : 1),
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
	uint64_t all = 0, piece,
		 least = ig_gpu_unpacked_bytes(PIECE_COLUMNS, p->k) * (p->pair ? 2 : 1);
	struct ig_product of = *p;
	int rc;

	for (uint32_t i = 0; i < p->n; i++)
		all += ig_gpu_unpacked_bytes(p->weight[i]->n_rows, p->k);
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
