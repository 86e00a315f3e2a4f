// moe_tiles.h: moe.h for experts' weights in tiles (core/tiles.h).  Kernels for moe_tiles*.metal.
#pragma once

#include <metal_stdlib>
#include "../early.h"
#include "moe_run.h"
#include "../core/product_tiles.h"

#if !defined(MSL_NV) || defined(NV_WGMMA)

// The operands of product_tiles.h for one expert.
struct moe_tiles_operands {
	device const uchar *x, *gate, *up;
	product_target to;
	threadgroup const uint *x_at; // of the rows, as moe_index writes them

	METAL_FUNC device const uchar *row(constant linear_args &, uint i) const thread
	{
		return x + ulong(x_at[i]) * TILE_ROW_UNIT;
	}
	METAL_FUNC device const uchar *weight(uint, bool second) const thread
	{
		return second ? up : gate;
	}
	METAL_FUNC product_target target(uint) const thread { return to; }
};

template <uint FORMAT, int BLOCKS, bool PAIR>
[[max_total_threads_per_threadgroup(TILES_THREADS)]] kernel void
moe_tiles(MOE_OPERANDS, uint3 groups [[threadgroups_per_grid]],
	  uint3 size [[threads_per_threadgroup]])
{
	constexpr uint height = BLOCKS * 8;
	if (args.has_route == 0)
		wait_for_previous();
	const moe_run run = moe_find(args, step, route, group.y);
	const uint begin = run.begin + group.z * height;
	if (begin >= run.end) {
		wait_for_previous();
		return;
	}
	const uint rows = min(run.end - begin, height);
	threadgroup uint *index = (threadgroup uint *)(shared + args.index_at);
	moe_index<half>(args, route, begin, rows, index, height, tid, size.x);
	threadgroup_barrier(mem_flags::mem_threadgroup);
	const moe_tiles_operands operands = {
		x, gate + moe_gate_at(args, run.expert, 0), up + moe_up_at(args, run.expert, 0),
		moe_to(args, run.expert, y, bias, up_bias, index + height), index
	};
	if (BLOCKS == 2 && rows <= 8) // as most runs of a few streams
		product_tiles<tile_format<FORMAT>, 1, PAIR, false>(
			args.product, rows, operands, shared, group.x, groups.x, tid, lane, sg);
	else
		product_tiles<tile_format<FORMAT>, BLOCKS, PAIR, false>(
			args.product, rows, operands, shared, group.x, groups.x, tid, lane, sg);
}

begins_early(moe_tiles);

template <uint FORMAT, typename S, bool PAIR>
[[max_total_threads_per_threadgroup(S::SM * S::SN * 32)]] kernel void moe_tiles_many(MOE_OPERANDS)
{
	moe_rows<tiles_f16<FORMAT>, S, PAIR>(args, step, x, route, gate, up, y, bias, up_bias,
					     shared, group, tid, lane, sg);
}

// MOE_TILES(name, format): few rows, then tiles of many.
#ifdef MSL_NV
#define MOE_TILES_MANY(op, name, format, pair)                                                     \
	instantiate_kernel("moe_" op "_tiles_" name "_64", moe_tiles_many, format, shape_wide_64,  \
			   pair)
#else
#define MOE_TILES_MANY(op, name, format, pair)                                                     \
	instantiate_kernel("moe_" op "_tiles_" name "_many", moe_tiles_many, format, shape_tiles,  \
			   pair)
#endif
#define MOE_TILES_OF(op, name, format, pair)                                                       \
	instantiate_kernel("moe_" op "_tiles_" name "_8", moe_tiles, format, 1, pair)              \
	instantiate_kernel("moe_" op "_tiles_" name "_16", moe_tiles, format, 2, pair)             \
	MOE_TILES_MANY(op, name, format, pair)
#define MOE_TILES(name, format)                                                                    \
	MOE_TILES_OF("glu", name, format, true) MOE_TILES_OF("down", name, format, false)

#else
#define MOE_TILES(name, format)
#endif
