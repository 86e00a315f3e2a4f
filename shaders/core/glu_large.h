// glu_large.h: gated linear units of float16 and bfloat16 weights in rows that can be
// copied unchanged; as linear_large.h.  GLU_LARGE(name, format) has all their kernels.
#pragma once

#include "glu.h"
#include "product_stream.h"

#ifdef NV_WGMMA
struct glu_map_operands {
	uint rows; // of x; a stream's
	tile_map x, gate, up;
	device uchar *y;

	METAL_FUNC tile_map first(uint) const thread { return gate; }
	METAL_FUNC tile_map second(uint) const thread { return up; }
	METAL_FUNC product_target target(uint) const thread { return product_to(y); }
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
		tile_prefetch(gate);
		tile_prefetch(up);
	}
};

#define GLU_MAP_OPERANDS                                                                           \
	constant linear_args &args [[buffer(0)]], device const step_head *step [[buffer(1)]],      \
		tile_map x [[buffer(2)]], tile_map gate [[buffer(3)]], tile_map up [[buffer(4)]],  \
		device uchar *y [[buffer(5)]], threadgroup uchar *shared [[threadgroup(0)]],       \
		uint3 group [[threadgroup_position_in_grid]],                                      \
		uint tid [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]], \
		uint sg [[simdgroup_index_in_threadgroup]]

template <typename F, typename S, bool SHARES>
[[max_total_threads_per_threadgroup(S::SM * 32)]] kernel void
glu_stream(GLU_MAP_OPERANDS, uint3 groups [[threadgroups_per_grid]])
{
	const glu_map_operands operands = { simd_broadcast_first(step_rows(step, args.rows_live)),
					    x, gate, up, y };
	product_stream<F, S, true, SHARES>(args, operands, shared, group.x, groups.x, tid, lane,
					   sg);
}

template <typename F, typename S> kernel void glu_rush(GLU_MAP_OPERANDS)
{
	const glu_map_operands operands = { 0, x, gate, up, y };
	product_rush<F, S, true>(args, step, operands, shared, group.x, tid, lane, sg);
}
begins_early(glu_rush);

#define GLU_LARGE(name, format)                                                                    \
	instantiate_kernel("glu_" name "_rush_48", glu_rush, format, shape_rush_48_pair)           \
	instantiate_kernel("glu_" name "_rush_64", glu_rush, format, shape_rush_64)                \
	instantiate_kernel("glu_" name "_rush_96", glu_rush, format, shape_rush_96)                \
	instantiate_kernel("glu_" name "_wide_64", glu_tile, format, shape_wide_64)                \
	instantiate_kernel("glu_" name "_stream_128", glu_stream, format, shape_stream_128, false)
#define GLU_SHARES(name, format)                                                                   \
	instantiate_kernel("glu_" name "_shares_128", glu_stream, format, shape_stream_128, true)
#elif defined(MSL_NV)
#define GLU_LARGE(name, format)                                                                    \
	instantiate_kernel("glu_" name "_few", glu_few, format, shape_few_pair)                    \
	instantiate_kernel("glu_" name "_few_48", glu_few, format, shape_few_48_pair)              \
	instantiate_kernel("glu_" name "_few_64", glu_few, format, shape_few_64)                   \
	instantiate_kernel("glu_" name "_few_96", glu_few, format, shape_few_96)                   \
	instantiate_kernel("glu_" name "_tile", glu_tile, format, shape_tile)
#define GLU_SHARES(name, format)
#else
#define GLU_LARGE(name, format) GLU(name, format)
#define GLU_SHARES(name, format)
#endif
