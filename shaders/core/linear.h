// linear.h: y = act(x * transpose(w) + bias) + residual, up to four weights of one format
// side by side; logits too, and linear_heads: a head's matrix is a part of the weight, and the grid's second
// dimension its number.  Kernels for linear.metal and linear_*.metal.
//
// few: a threadgroup computes at most 16 rows of some columns of one weight; its simdgroups form
// `shares` groups, one for each share of k.  tile: a threadgroup computes a tile, one share after
// another.  Tiles are numbered in bands of rows (product.h).
#pragma once

#include <metal_stdlib>
#include "../args.h"
#include "../portable.h"
#include "../step.h"
#include "product.h"

using namespace metal;

METAL_FUNC device const uchar *linear_weight(uint i, device const uchar *w0, device const uchar *w1,
					     device const uchar *w2, device const uchar *w3)
{
	return i == 0 ? w0 : i == 1 ? w1 : i == 2 ? w2 : w3;
}

METAL_FUNC device const float *linear_bias(uint i, device const float *b0, device const float *b1,
					   device const float *b2, device const float *b3)
{
	return i == 0 ? b0 : i == 1 ? b1 : i == 2 ? b2 : b3;
}

// Of linear_heads: the columns of x of a head, and where the tile's weights begin.
template <typename F>
METAL_FUNC device const uchar *linear_x(constant linear_args &args, uint head,
					device const uchar *x)
{
	return x + ulong(head) * args.x_head * sizeof(typename F::element);
}

METAL_FUNC ulong linear_first(constant linear_args &args, uint head, product_place place)
{
	return (ulong(head) * args.n[0] + place.n0) * args.w_row_bytes;
}

#define LINEAR_OPERANDS                                                                            \
	constant linear_args &args [[buffer(0)]], device const step_head *step [[buffer(1)]],      \
		device const uchar *x [[buffer(2)]], device const uchar *w0 [[buffer(3)]],         \
		device const uchar *w1 [[buffer(4)]], device const uchar *w2 [[buffer(5)]],        \
		device const uchar *w3 [[buffer(6)]], device const float *bias0 [[buffer(7)]],     \
		device const float *bias1 [[buffer(8)]], device const float *bias2 [[buffer(9)]],  \
		device const float *bias3 [[buffer(10)]],                                          \
		device const float *residual [[buffer(11)]], device uchar *y [[buffer(12)]],       \
		threadgroup uchar *shared [[threadgroup(0)]],                                      \
		uint3 group [[threadgroup_position_in_grid]],                                      \
		uint tid [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]], \
		uint sg [[simdgroup_index_in_threadgroup]]

template <typename F, typename S> kernel void linear_few(LINEAR_OPERANDS)
{
	product_place place = product_find(args, args.n_weights, step_rows(step, args.rows_live),
					   group.x, S::BM, S::BN);
	if (place.rows == 0)
		return;
	place.y0 += group.y * args.y_head;
	const ulong at = linear_first(args, group.y, place);
	const tile_rows rows = product_x<F>(args, place, linear_x<F>(args, group.y, x));
	const tile_rows weights =
		product_w(args, place, linear_weight(place.weight, w0, w1, w2, w3) + at, nullptr);
	product_target to = product_to(y);
	to.bias = linear_bias(place.weight, bias0, bias1, bias2, bias3);
	to.residual = residual;
	product_few<F, S, false>(args, place, rows, weights, to, shared, tid, lane, sg);
}

template <typename F, typename S> kernel void linear_tile(LINEAR_OPERANDS)
{
	product_place place = product_find(args, args.n_weights, step_rows(step, args.rows_live),
					   group.x, S::BM, S::BN);
	if (place.rows == 0)
		return;
	place.y0 += group.y * args.y_head;
	const ulong at = linear_first(args, group.y, place);
	const tile_rows rows = product_x<F>(args, place, linear_x<F>(args, group.y, x));
	const tile_rows weights =
		product_w(args, place, linear_weight(place.weight, w0, w1, w2, w3) + at, nullptr);
	product_target to = product_to(y);
	to.bias = linear_bias(place.weight, bias0, bias1, bias2, bias3);
	to.residual = residual;
	product_tile<F, S, false>(args, place, rows, weights, to, shared, tid, lane, sg);
}

// LINEAR(name, format): elements of two bytes.  LINEAR_WIDE: also with tiles for wgmma, where
// the GPU has it.
#ifdef MSL_NV
#define LINEAR(name, format)                                                                       \
	instantiate_kernel("linear_" name "_few_shares", linear_few, format, shape_few_shares)     \
	instantiate_kernel("linear_" name "_few", linear_few, format, shape_few)                   \
	instantiate_kernel("linear_" name "_tile", linear_tile, format, shape_tile)
#define LINEAR_F32(name, format)                                                                   \
	instantiate_kernel("linear_" name "_few", linear_few, format, shape_few_f32)               \
	instantiate_kernel("linear_" name "_few_8", linear_few, format, shape_few_f32_8)           \
	instantiate_kernel("linear_" name "_tile", linear_tile, format, shape_tile_f32)
#else
#ifdef TILE_TENSOR
#define LINEAR(name, format)                                                                       \
	instantiate_kernel("linear_" name "_tensor_few", linear_few, format, shape_tensor_few)     \
	instantiate_kernel("linear_" name "_tensor_tile", linear_tile, format, shape_tensor_tile)
#else
#define LINEAR(name, format)                                                                       \
	instantiate_kernel("linear_" name "_few8", linear_few, format, shape_few8)                 \
	instantiate_kernel("linear_" name "_few16", linear_few, format, shape_few16)               \
	instantiate_kernel("linear_" name "_tile", linear_tile, format, shape_tile)
#endif
#define LINEAR_F32(name, format)                                                                   \
	instantiate_kernel("linear_" name "_few8", linear_few, format, shape_few8_f32)             \
	instantiate_kernel("linear_" name "_few16", linear_few, format, shape_few16_f32)           \
	instantiate_kernel("linear_" name "_tile", linear_tile, format, shape_tile_f32)
#endif

#ifdef NV_WGMMA
#define LINEAR_WIDE(name, format)                                                                  \
	instantiate_kernel("linear_" name "_few_shares", linear_few, format, shape_few_shares)     \
	instantiate_kernel("linear_" name "_few", linear_few, format, shape_few)                   \
	instantiate_kernel("linear_" name "_wide_64", linear_tile, format, shape_wide_64)          \
	instantiate_kernel("linear_" name "_wide_128", linear_tile, format, shape_wide_128)
#else
#define LINEAR_WIDE(name, format) LINEAR(name, format)
#endif
