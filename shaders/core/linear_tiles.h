// linear_tiles.h: linear, logits and glu of weights in tiles (tiles.h).  Kernels for tiles_*.metal: few
// rows by product_tiles.h, more of them by product_wide.h or, where that is not, by way of threadgroup memory (tile.h).
#pragma once

#include "product_tiles.h"
#include "product_wide.h"

#if !defined(MSL_NV) || defined(NV_WGMMA)

struct tiles_linear {
	device const uchar *x;
	device const uchar *w[4];
	device const float *bias[4];
	device const float *residual;
	device uchar *y;

	METAL_FUNC device const uchar *row(constant linear_args &args, uint i) const thread
	{
		return x + ulong(i) * args.x_stride * 2;
	}
	METAL_FUNC device const uchar *weight(uint i, bool) const thread
	{
		return i == 0 ? w[0] : i == 1 ? w[1] : i == 2 ? w[2] : w[3];
	}
	METAL_FUNC product_target target(uint i) const thread
	{
		product_target t = product_to(y);
		t.bias = i == 0 ? bias[0] : i == 1 ? bias[1] : i == 2 ? bias[2] : bias[3];
		t.residual = residual;
		return t;
	}
};

struct tiles_glu {
	device const uchar *x;
	device const uchar *gate, *up;
	device uchar *y;

	METAL_FUNC device const uchar *row(constant linear_args &args, uint i) const thread
	{
		return x + ulong(i) * args.x_stride * 2;
	}
	METAL_FUNC device const uchar *weight(uint, bool second) const thread
	{
		return second ? up : gate;
	}
	METAL_FUNC product_target target(uint) const thread { return product_to(y); }
};

// X: how the kernel has x.
#define TILES_OPERANDS(X)                                                                          \
	constant linear_args &args [[buffer(0)]], device const step_head *step [[buffer(1)]],      \
		X x [[buffer(2)]]

#define LINEAR_TILES_OPERANDS                                                                      \
	device const uchar *w0 [[buffer(3)]], device const uchar *w1 [[buffer(4)]],                \
		device const uchar *w2 [[buffer(5)]], device const uchar *w3 [[buffer(6)]],        \
		device const float *bias0 [[buffer(7)]], device const float *bias1 [[buffer(8)]],  \
		device const float *bias2 [[buffer(9)]], device const float *bias3 [[buffer(10)]], \
		device const float *residual [[buffer(11)]], device uchar *y [[buffer(12)]]

#define GLU_TILES_OPERANDS                                                                         \
	device const uchar *gate [[buffer(3)]], device const uchar *up [[buffer(4)]],              \
		device uchar *y [[buffer(5)]]

#define TILES_PLACES                                                                               \
	threadgroup uchar *shared [[threadgroup(0)]],                                              \
		uint3 group [[threadgroup_position_in_grid]],                                      \
		uint3 groups [[threadgroups_per_grid]], uint tid [[thread_index_in_threadgroup]],  \
		uint lane [[thread_index_in_simdgroup]],                                           \
		uint sg [[simdgroup_index_in_threadgroup]]

template <uint FORMAT, int BLOCKS, bool CLUSTER>
[[max_total_threads_per_threadgroup(TILES_THREADS)]] kernel void
linear_tiles(TILES_OPERANDS(device const uchar *), LINEAR_TILES_OPERANDS, TILES_PLACES)
{
	const tiles_linear operands = {
		x, { w0, w1, w2, w3 }, { bias0, bias1, bias2, bias3 }, residual, y
	};
	product_tiles<tile_format<FORMAT>, BLOCKS, false, CLUSTER>(
		args, step_rows(step, args.rows_live), operands, shared, group.x, groups.x, tid,
		lane, sg);
}

template <uint FORMAT, int BLOCKS, bool CLUSTER>
[[max_total_threads_per_threadgroup(TILES_THREADS)]] kernel void
glu_tiles(TILES_OPERANDS(device const uchar *), GLU_TILES_OPERANDS, TILES_PLACES)
{
	const tiles_glu operands = { x, gate, up, y };
	product_tiles<tile_format<FORMAT>, BLOCKS, true, CLUSTER>(
		args, step_rows(step, args.rows_live), operands, shared, group.x, groups.x, tid,
		lane, sg);
}

begins_early(linear_tiles);
begins_early(glu_tiles);

#ifdef MSL_NV
// The same of the RMS norm of x, which is in float here.
template <uint FORMAT>
[[max_total_threads_per_threadgroup(TILES_THREADS)]] kernel void
linear_tiles_norm(TILES_OPERANDS(device const uchar *), LINEAR_TILES_OPERANDS,
		  device const float *norm [[buffer(13)]], TILES_PLACES)
{
	const tiles_linear operands = {
		x, { w0, w1, w2, w3 }, { bias0, bias1, bias2, bias3 }, residual, y
	};
	const tiles_norm of = { (device const float *)x, norm };
	product_tiles_of<tile_format<FORMAT>, 1, false, false>(
		args, step_rows(step, args.rows_live), operands, &of, shared, group.x, groups.x,
		tid, lane, sg);
}

template <uint FORMAT>
[[max_total_threads_per_threadgroup(TILES_THREADS)]] kernel void
glu_tiles_norm(TILES_OPERANDS(device const uchar *), GLU_TILES_OPERANDS,
	       device const float *norm [[buffer(6)]], TILES_PLACES)
{
	const tiles_glu operands = { x, gate, up, y };
	const tiles_norm of = { (device const float *)x, norm };
	product_tiles_of<tile_format<FORMAT>, 1, true, false>(args, step_rows(step, args.rows_live),
							      operands, &of, shared, group.x,
							      groups.x, tid, lane, sg);
}

begins_early(linear_tiles_norm);
begins_early(glu_tiles_norm);
#endif

#ifdef NV_WGMMA
// THREADS: that a multiprocessor has registers for.
template <uint FORMAT, int ROWS, int THREADS>
[[max_total_threads_per_threadgroup(THREADS)]] kernel void
linear_tiles_wide(TILES_OPERANDS(tile_map), LINEAR_TILES_OPERANDS, TILES_PLACES)
{
	const tiles_linear operands = {
		nullptr, { w0, w1, w2, w3 }, { bias0, bias1, bias2, bias3 }, residual, y
	};
	product_wide<tile_format<FORMAT>, ROWS, false>(args, step_rows(step, args.rows_live),
						       group.y, operands, x, shared, group.x, tid,
						       lane, sg);
}

template <uint FORMAT, int ROWS, int THREADS>
[[max_total_threads_per_threadgroup(THREADS)]] kernel void
glu_tiles_wide(TILES_OPERANDS(tile_map), GLU_TILES_OPERANDS, TILES_PLACES)
{
	const tiles_glu operands = { nullptr, gate, up, y };
	product_wide<tile_format<FORMAT>, ROWS, true>(args, step_rows(step, args.rows_live),
						      group.y, operands, x, shared, group.x, tid,
						      lane, sg);
}

begins_early(linear_tiles_wide);
begins_early(glu_tiles_wide);

#else
// A tile of many rows, by way of threadgroup memory.
template <typename F, typename S, bool PAIR, typename O>
METAL_FUNC void product_tiles_many(constant linear_args &args, device const step_head *step,
				   thread const O &operands, threadgroup uchar *shared, uint group,
				   uint tid, uint lane, uint sg)
{
	const product_place place =
		product_find(args, args.n_weights, step_rows(step, args.rows_live), group, S::BM,
			     PAIR ? S::BN / 2 : S::BN);
	if (place.rows == 0)
		return;
	const ulong at = ulong(place.n0) * args.w_row_bytes;
	const tile_rows rows = product_x<F>(args, place, operands.x);
	const tile_rows weights = product_w(args, place, operands.weight(place.weight, false) + at,
					    operands.weight(place.weight, true) + at);
	product_tile<F, S, PAIR>(args, place, rows, weights, operands.target(place.weight), shared,
				 tid, lane, sg);
}

template <uint FORMAT, typename S>
[[max_total_threads_per_threadgroup(S::SM * S::SN * 32)]] kernel void
linear_tiles_many(TILES_OPERANDS(device const uchar *), LINEAR_TILES_OPERANDS, TILES_PLACES)
{
	const tiles_linear operands = {
		x, { w0, w1, w2, w3 }, { bias0, bias1, bias2, bias3 }, residual, y
	};
	product_tiles_many<tiles_f16<FORMAT>, S, false>(args, step, operands, shared, group.x, tid,
							lane, sg);
}

template <uint FORMAT, typename S>
[[max_total_threads_per_threadgroup(S::SM * S::SN * 32)]] kernel void
glu_tiles_many(TILES_OPERANDS(device const uchar *), GLU_TILES_OPERANDS, TILES_PLACES)
{
	const tiles_glu operands = { x, gate, up, y };
	product_tiles_many<tiles_f16<FORMAT>, S, true>(args, step, operands, shared, group.x, tid,
						       lane, sg);
}
#endif

// TILES(name, format): all kernels of weights in tiles, multiplied in float16.
#ifdef MSL_NV
#define TILES_MANY(op, name, format)                                                               \
	instantiate_kernel(#op "_" name "_8_norm", op##_norm, format)                              \
	instantiate_kernel(#op "_" name "_8_cluster", op, format, 1, true)                         \
	instantiate_kernel(#op "_" name "_16_cluster", op, format, 2, true)                        \
	instantiate_kernel(#op "_" name "_wide_32", op##_wide, format, 32, 2 * WIDE_THREADS)       \
	instantiate_kernel(#op "_" name "_wide_64", op##_wide, format, 64, 2 * WIDE_THREADS)       \
	instantiate_kernel(#op "_" name "_wide_128", op##_wide, format, 128, WIDE_THREADS)
#else
#define TILES_MANY(op, name, format)                                                               \
	instantiate_kernel(#op "_" name "_many", op##_many, format, shape_tiles)
#endif
#define TILES_OP(op, name, format)                                                                 \
	instantiate_kernel(#op "_" name "_8", op, format, 1, false)                                \
	instantiate_kernel(#op "_" name "_16", op, format, 2, false)                               \
	TILES_MANY(op, name, format)
#define TILES(name, format)                                                                        \
	TILES_OP(linear_tiles, name, format)                                                       \
	TILES_OP(glu_tiles, name, format)

#else
#define TILES(name, format)
#endif
