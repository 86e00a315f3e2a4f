// glu.h: y = act(x * transpose(gate)) * (x * transpose(up)), both products in one kernel.
// Kernels for glu.metal and glu_*.metal; few and tile as in linear.h, but a tile of BN
// columns has BN / 2 columns of gate and BN / 2 of up.
#pragma once

#include <metal_stdlib>
#include "../args.h"
#include "../portable.h"
#include "../step.h"
#include "product.h"

using namespace metal;

#define GLU_OPERANDS                                                                               \
	constant linear_args &args [[buffer(0)]], device const step_head *step [[buffer(1)]],      \
		device const uchar *x [[buffer(2)]], device const uchar *gate [[buffer(3)]],       \
		device const uchar *up [[buffer(4)]], device uchar *y [[buffer(5)]],               \
		threadgroup uchar *shared [[threadgroup(0)]],                                      \
		uint3 group [[threadgroup_position_in_grid]],                                      \
		uint tid [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]], \
		uint sg [[simdgroup_index_in_threadgroup]]

template <typename F, typename S> kernel void glu_few(GLU_OPERANDS)
{
	const product_place place =
		product_find(args, 1, step_rows(step, args.rows_live), group.x, S::BM, S::BN / 2);
	if (place.rows == 0)
		return;
	const ulong at = ulong(place.n0) * args.w_row_bytes;
	const tile_rows rows = product_x<F>(args, place, x);
	const tile_rows weights = product_w(args, place, gate + at, up + at);
	const product_target to = product_to(y);
	product_few<F, S, true>(args, place, rows, weights, to, shared, tid, lane, sg);
}

template <typename F, typename S> kernel void glu_tile(GLU_OPERANDS)
{
	const product_place place =
		product_find(args, 1, step_rows(step, args.rows_live), group.x, S::BM, S::BN / 2);
	if (place.rows == 0)
		return;
	const ulong at = ulong(place.n0) * args.w_row_bytes;
	const tile_rows rows = product_x<F>(args, place, x);
	const tile_rows weights = product_w(args, place, gate + at, up + at);
	const product_target to = product_to(y);
	product_tile<F, S, true>(args, place, rows, weights, to, shared, tid, lane, sg);
}

// GLU(name, format): elements of two bytes.  GLU_WIDE: also with tiles for wgmma, where
// the GPU has it.
#ifdef MSL_NV
#define GLU(name, format)                                                                          \
	instantiate_kernel("glu_" name "_few_shares", glu_few, format, shape_few_shares)           \
	instantiate_kernel("glu_" name "_few", glu_few, format, shape_few_pair)                    \
	instantiate_kernel("glu_" name "_tile", glu_tile, format, shape_tile)
#define GLU_F32(name, format)                                                                      \
	instantiate_kernel("glu_" name "_few", glu_few, format, shape_few_f32)                     \
	instantiate_kernel("glu_" name "_tile", glu_tile, format, shape_tile_f32)
#else
#ifdef TILE_TENSOR
#define GLU(name, format)                                                                          \
	instantiate_kernel("glu_" name "_tensor_few", glu_few, format, shape_tensor_few)           \
	instantiate_kernel("glu_" name "_tensor_tile", glu_tile, format, shape_tensor_tile)
#else
#define GLU(name, format)                                                                          \
	instantiate_kernel("glu_" name "_few8", glu_few, format, shape_few8)                       \
	instantiate_kernel("glu_" name "_few16", glu_few, format, shape_few16)                     \
	instantiate_kernel("glu_" name "_tile", glu_tile, format, shape_tile)
#endif
#define GLU_F32(name, format)                                                                      \
	instantiate_kernel("glu_" name "_few8", glu_few, format, shape_few8_f32)                   \
	instantiate_kernel("glu_" name "_few16", glu_few, format, shape_few16_f32)                 \
	instantiate_kernel("glu_" name "_tile", glu_tile, format, shape_tile_f32)
#endif

#ifdef NV_WGMMA
#define GLU_WIDE(name, format)                                                                     \
	instantiate_kernel("glu_" name "_few_shares", glu_few, format, shape_few_shares)           \
	instantiate_kernel("glu_" name "_few", glu_few, format, shape_few_pair)                    \
	instantiate_kernel("glu_" name "_wide_64", glu_tile, format, shape_wide_64)                \
	instantiate_kernel("glu_" name "_wide_128", glu_tile, format, shape_wide_128)
#else
#define GLU_WIDE(name, format) GLU(name, format)
#endif
