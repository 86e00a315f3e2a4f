// moe_run.h: products of a step's rows with the weights of their experts: y = act(x G^T) * (x U^T)
// of an assignment (a pair of products), x D^T, or act(x U^T), with biases.  What moe.h and
// moe_tiles.h share.
//
// A route lists the active experts as runs of assignments.  A threadgroup computes some columns of
// one run's expert.  few: 8 or 16 rows, the group.z-th ones of the run.  tile: one tile of rows after
// another, so that weights are read from the cache again.  The offsets of the tile's rows of x and y are looked
// up first, into the end of threadgroup memory.  core/product.h has the products and their order of k.
#pragma once

#include <metal_stdlib>
#include "portable.h"
#include "args.h"
#include "step.h"
#include "route.h"
#include "../core/product.h"

using namespace metal;

#define MOE_OPERANDS                                                                               \
	constant moe_args &args [[buffer(0)]], device const step_head *step [[buffer(1)]],         \
		device const uchar *x [[buffer(2)]], device const uint *route [[buffer(3)]],       \
		device const uchar *gate [[buffer(4)]], device const uchar *up [[buffer(5)]],      \
		device uchar *y [[buffer(6)]], device const float *bias [[buffer(7)]],             \
		device const float *up_bias [[buffer(8)]],                                         \
		threadgroup uchar *shared [[threadgroup(0)]],                                      \
		uint3 group [[threadgroup_position_in_grid]],                                      \
		uint tid [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]], \
		uint sg [[simdgroup_index_in_threadgroup]]

// The group's run: its assignments, from `begin` to `end` of the route's order, and its expert.
struct moe_run {
	uint begin, end; // equal: the group has no run
	uint expert;
};

METAL_FUNC moe_run moe_find(constant moe_args &args, device const step_head *step,
			    device const uint *route, uint run)
{
	const uint stride = args.route_stride, top_k = args.top_k,
		   n = step_rows(step, args.product.rows_live) * top_k;
	moe_run r;
	r.begin = r.end = r.expert = 0;
	if (run >= n)
		return r;
	r.begin = min(route[route_word(stride, top_k, ROUTE_RUNS, run)], n);
	r.end = run + 1 < n ? min(route[route_word(stride, top_k, ROUTE_RUNS, run + 1)], n) : n;
	if (r.begin < r.end) {
		const uint first = route[route_word(stride, top_k, ROUTE_ORDER, r.begin)];
		r.expert = min(route[route_word(stride, top_k, ROUTE_IDS, min(first, n - 1))],
			       args.n_experts - 1);
	}
	return r;
}

template <typename S, bool PAIR>
METAL_FUNC product_place moe_place(constant moe_args &args, uint tile, uint rows)
{
	constexpr uint width = PAIR ? S::BN / 2 : S::BN;
	product_place p;
	p.m0 = p.weight = p.y0 = 0;
	p.rows = rows;
	p.n0 = tile * width;
	p.columns = min(args.product.n[0] - p.n0, width);
	return p;
}

// Looks up `rows` assignments from `begin` on: the offsets of their rows of x (see tile_rows), and
// BM entries further the index of their first element of y.
template <typename E>
METAL_FUNC void moe_index(constant moe_args &args, device const uint *route, uint begin, uint rows,
			  threadgroup uint *index, uint height, uint tid, uint threads)
{
	for (uint i = tid; i < rows; i += threads) {
		const uint a =
			route[route_word(args.route_stride, args.top_k, ROUTE_ORDER, begin + i)];
		const uint row = a / args.top_k, slot = a % args.top_k;
		index[i] = (row * args.product.x_stride + slot * args.x_slot) /
			   uint(TILE_ROW_UNIT / sizeof(E));
		index[height + i] = row * args.product.y_stride + slot * args.y_slot;
	}
}

// The destination, with the expert's biases.
METAL_FUNC product_target moe_to(constant moe_args &args, uint expert, device uchar *y,
				 device const float *bias, device const float *up_bias,
				 threadgroup const uint *at)
{
	product_target to = product_to(y);
	to.at = at;
	if ((args.product.flags & LINEAR_BIAS) != 0) {
		to.bias = bias + ulong(expert) * args.product.n[0];
		to.up_bias = up_bias + ulong(expert) * args.product.n[0];
	}
	return to;
}

// The bytes before the place's first row of gate, and of up.
METAL_FUNC ulong moe_gate_at(constant moe_args &args, uint expert, uint n0)
{
	return (ulong(expert) * args.rows + n0) * args.product.w_row_bytes;
}
METAL_FUNC ulong moe_up_at(constant moe_args &args, uint expert, uint n0)
{
	return (ulong(expert) * args.rows + args.up_row + n0) * args.product.w_row_bytes;
}

// One tile of the run's rows after another.
template <typename F, typename S, bool PAIR>
METAL_FUNC void moe_rows(constant moe_args &args, device const step_head *step,
			 device const uchar *x, device const uint *route, device const uchar *gate,
			 device const uchar *up, device uchar *y, device const float *bias,
			 device const float *up_bias, threadgroup uchar *shared, uint3 group,
			 uint tid, uint lane, uint sg)
{
	const moe_run run = moe_find(args, step, route, group.y);
	threadgroup uint *index = (threadgroup uint *)(shared + args.index_at);
	for (uint begin = run.begin; begin < run.end; begin += S::BM) {
		const product_place place =
			moe_place<S, PAIR>(args, group.x, min(run.end - begin, uint(S::BM)));
		threadgroup_barrier(mem_flags::mem_threadgroup);
		moe_index<typename F::element>(args, route, begin, place.rows, index, S::BM, tid,
					       S::SM * S::SN * 32);
		threadgroup_barrier(mem_flags::mem_threadgroup);

		tile_rows rows = product_x<F>(args.product, place, x);
		rows.at = index;
		const product_target to = moe_to(args, run.expert, y, bias, up_bias, index + S::BM);
		product_tile<F, S, PAIR>(args.product, place, rows,
					 product_w(args.product, place,
						   gate + moe_gate_at(args, run.expert, place.n0),
						   up + moe_up_at(args, run.expert, place.n0)),
					 to, shared, tid, lane, sg);
	}
}
