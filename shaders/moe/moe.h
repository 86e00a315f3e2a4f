// moe.h: experts' products with weights in rows (moe_run.h).  Kernels for moe.metal and moe_*.metal.
#pragma once

#include <metal_stdlib>
#include "moe_run.h"

template <typename F, typename S, bool PAIR> kernel void moe_few(MOE_OPERANDS)
{
	const moe_run run = moe_find(args, step, route, group.y);
	const uint begin = run.begin + group.z * S::BM;
	if (begin >= run.end)
		return;
	const product_place place =
		moe_place<S, PAIR>(args, group.x, min(run.end - begin, uint(S::BM)));
	threadgroup uint *index = (threadgroup uint *)(shared + args.index_at);
	moe_index<typename F::element>(args, route, begin, place.rows, index, S::BM, tid,
				       S::SM * S::SN * 32 * args.product.shares);
	threadgroup_barrier(mem_flags::mem_threadgroup);

	tile_rows rows = product_x<F>(args.product, place, x);
	rows.at = index;
	const product_target to = moe_to(args, run.expert, y, bias, up_bias, index + S::BM);
	product_few<F, S, PAIR>(args.product, place, rows,
				product_w(args.product, place,
					  gate + moe_gate_at(args, run.expert, place.n0),
					  up + moe_up_at(args, run.expert, place.n0)),
				to, shared, tid, lane, sg);
}

template <typename F, typename S, bool PAIR> kernel void moe_tile(MOE_OPERANDS)
{
	moe_rows<F, S, PAIR>(args, step, x, route, gate, up, y, bias, up_bias, shared, group, tid,
			     lane, sg);
}

// MOE(name, format): elements of two bytes.
#ifdef MSL_NV
#ifdef NV_WGMMA
#define MOE_TILE(op, name, format, pair)                                                           \
	instantiate_kernel("moe_" op "_" name "_wide_64", moe_tile, format, shape_wide_64, pair)
#else
#define MOE_TILE(op, name, format, pair)                                                           \
	instantiate_kernel("moe_" op "_" name "_tile", moe_tile, format, shape_tile, pair)
#endif
#define MOE(name, format)                                                                          \
	instantiate_kernel("moe_glu_" name "_few", moe_few, format, shape_few_moe_pair, true)      \
	instantiate_kernel("moe_down_" name "_few", moe_few, format, shape_few_moe, false)         \
	MOE_TILE("glu", name, format, true) MOE_TILE("down", name, format, false)
#define MOE_F32(name, format)                                                                      \
	instantiate_kernel("moe_glu_" name "_few", moe_few, format, shape_few_f32, true)           \
	instantiate_kernel("moe_down_" name "_few", moe_few, format, shape_few_f32, false)         \
	instantiate_kernel("moe_glu_" name "_tile", moe_tile, format, shape_tile_f32, true)        \
	instantiate_kernel("moe_down_" name "_tile", moe_tile, format, shape_tile_f32, false)
#else
#define MOE_OF(op, name, format, few8, few16, tile, pair)                                          \
	instantiate_kernel("moe_" op "_" name "_few8", moe_few, format, few8, pair)                \
	instantiate_kernel("moe_" op "_" name "_few16", moe_few, format, few16, pair)              \
	instantiate_kernel("moe_" op "_" name "_tile", moe_tile, format, tile, pair)
#ifdef TILE_TENSOR
#define MOE_TENSOR(op, name, format, pair)                                                         \
	instantiate_kernel("moe_" op "_" name "_tensor_few", moe_few, format, shape_tensor_few,    \
			   pair)                                                                   \
	instantiate_kernel("moe_" op "_" name "_tensor_tile", moe_tile, format, shape_tensor_tile, \
			   pair)
#define MOE(name, format)                                                                          \
	MOE_TENSOR("glu", name, format, true) MOE_TENSOR("down", name, format, false)
#else
#define MOE(name, format)                                                                          \
	MOE_OF("glu", name, format, shape_few8, shape_few16, shape_tile, true)                     \
	MOE_OF("down", name, format, shape_few8, shape_few16, shape_tile, false)
#endif
#define MOE_F32(name, format)                                                                      \
	MOE_OF("glu", name, format, shape_few8_f32, shape_few16_f32, shape_tile_f32, true)         \
	MOE_OF("down", name, format, shape_few8_f32, shape_few16_f32, shape_tile_f32, false)
#endif
