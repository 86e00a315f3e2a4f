// linear_large.h: products of float16 and bfloat16 weights in rows that can be copied unchanged;
// on NVIDIA GPUs k is never split.  LINEAR_LARGE(name, format) has all their kernels.
//
// A GPU with wgmma also has a copy engine.  There weights and x are bound as tensor maps, and the
// kernels are rush (few rows of some columns) and stream (persistent threadgroups, which compute
// one tile after another), both of product_stream.h.  LINEAR_SHARES(name, format): streams of
// weights whose k has shares.
#pragma once

#include "linear.h"
#include "product_stream.h"

#ifdef NV_WGMMA
struct linear_map_operands {
	uint rows; // of x; a stream's
	tile_map x, w[4];
	device const float *bias[4];
	device const float *residual;
	device uchar *y;

	METAL_FUNC tile_map first(uint i) const thread
	{
		return i == 0 ? w[0] : i == 1 ? w[1] : i == 2 ? w[2] : w[3];
	}
	METAL_FUNC tile_map second(uint i) const thread { return first(i); }
	METAL_FUNC product_target target(uint i) const thread
	{
		product_target t = product_to(y);
		t.bias = linear_bias(i, bias[0], bias[1], bias[2], bias[3]);
		t.residual = residual;
		return t;
	}
	METAL_FUNC product_pair pair(constant linear_args &args, uint i, uint rank, uint height,
				     uint width) const thread
	{
		return product_find_pair(args, args.n_weights, rows, i, rank, height, width);
	}
	METAL_FUNC void aim(thread product_target &, thread const product_pair &, uint, uint,
			    uint) const thread
	{
	}
	METAL_FUNC void prefetch() const thread
	{
		tile_prefetch(x);
		tile_prefetch(w[0]);
	}
};

#define LINEAR_MAP_OPERANDS                                                                        \
	constant linear_args &args [[buffer(0)]], device const step_head *step [[buffer(1)]],      \
		tile_map x [[buffer(2)]], tile_map w0 [[buffer(3)]], tile_map w1 [[buffer(4)]],    \
		tile_map w2 [[buffer(5)]], tile_map w3 [[buffer(6)]],                              \
		device const float *bias0 [[buffer(7)]], device const float *bias1 [[buffer(8)]],  \
		device const float *bias2 [[buffer(9)]], device const float *bias3 [[buffer(10)]], \
		device const float *residual [[buffer(11)]], device uchar *y [[buffer(12)]],       \
		threadgroup uchar *shared [[threadgroup(0)]],                                      \
		uint3 group [[threadgroup_position_in_grid]],                                      \
		uint tid [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]], \
		uint sg [[simdgroup_index_in_threadgroup]]

template <typename F, typename S, bool SHARES>
[[max_total_threads_per_threadgroup(S::SM * 32)]] kernel void
linear_stream(LINEAR_MAP_OPERANDS, uint3 groups [[threadgroups_per_grid]])
{
	const linear_map_operands operands = { simd_broadcast_first(
						       step_rows(step, args.rows_live)),
					       x,
					       { w0, w1, w2, w3 },
					       { bias0, bias1, bias2, bias3 },
					       residual,
					       y };
	product_stream<F, S, false, SHARES>(args, operands, shared, group.x, groups.x, tid, lane,
					    sg);
}

template <typename F, typename S> kernel void linear_rush(LINEAR_MAP_OPERANDS)
{
	const linear_map_operands operands = {
		0, x, { w0, w1, w2, w3 }, { bias0, bias1, bias2, bias3 }, residual, y
	};
	product_rush<F, S, false>(args, step, operands, shared, group.x, tid, lane, sg);
}
begins_early(linear_rush);

#define LINEAR_LARGE(name, format)                                                                 \
	instantiate_kernel("linear_" name "_rush_24", linear_rush, format, shape_rush_24)          \
	instantiate_kernel("linear_" name "_rush_64", linear_rush, format, shape_rush_64)          \
	instantiate_kernel("linear_" name "_rush_96", linear_rush, format, shape_rush_96)          \
	instantiate_kernel("linear_" name "_wide_64", linear_tile, format, shape_wide_64)          \
	instantiate_kernel("linear_" name "_stream_128", linear_stream, format, shape_stream_128,  \
			   false)                                                                  \
	instantiate_kernel("linear_" name "_stream_160", linear_stream, format, shape_stream_160,  \
			   false)
// Of weights that unpack.metal made of tiles, whose k has shares.
#define LINEAR_SHARES(name, format)                                                                \
	instantiate_kernel("linear_" name "_shares_128", linear_stream, format, shape_stream_128,  \
			   true)
#elif defined(MSL_NV)
#define LINEAR_LARGE(name, format)                                                                 \
	instantiate_kernel("linear_" name "_few", linear_few, format, shape_few)                   \
	instantiate_kernel("linear_" name "_few_16", linear_few, format, shape_few_16)             \
	instantiate_kernel("linear_" name "_few_24", linear_few, format, shape_few_24)             \
	instantiate_kernel("linear_" name "_few_32", linear_few, format, shape_few_32)             \
	instantiate_kernel("linear_" name "_few_48", linear_few, format, shape_few_48)             \
	instantiate_kernel("linear_" name "_few_64", linear_few, format, shape_few_64)             \
	instantiate_kernel("linear_" name "_few_96", linear_few, format, shape_few_96)             \
	instantiate_kernel("linear_" name "_tile", linear_tile, format, shape_tile)
#define LINEAR_SHARES(name, format)
#else
#define LINEAR_LARGE(name, format) LINEAR(name, format)
#define LINEAR_SHARES(name, format)
#endif
