// adapt.metal: the ops of adapters (ops/adapt.h), for the rows of a step that have one.
//
// adapt_down: a simdgroup has one value of h: lane l takes every 32nd product, ascending, then a tree
// over the lanes.  adapt_up: a thread has one value of y and adds the ranks in ascending order.
// glu_join: a thread has one value, by the formula with which glu ends.  All sums are float; none
// depends on other rows.
#include <metal_stdlib>
#include "../args.h"
#include "../portable.h"
#include "../step.h"
#include "product.h"
#include "row.h"

using namespace metal;

// The adapter of the launch's row; negative: none.
METAL_FUNC int adapter_of(constant adapt_args &args, device const step_head *step, uint row)
{
	const uint of_step =
		args.rows_live == 0 ? row : uint(step_at<int>(step, step->logit_rows)[row]);
	return step_at<int>(step, step->row_adapter)[of_step];
}

//   x  [row][n]
//   a  of each weight [rank of all adapters][n]; unused where it has no adapter
//   h  [row][ranks]: columns that no rank of the row's adapter has are not written
kernel void adapt_down(constant adapt_args &args [[buffer(0)]],
		       device const step_head *step [[buffer(1)]],
		       device const float *x [[buffer(2)]],
		       device const adapt_table *table [[buffer(3)]],
		       device const float *a0 [[buffer(4)]], device const float *a1 [[buffer(5)]],
		       device const float *a2 [[buffer(6)]], device const float *a3 [[buffer(7)]],
		       device float *h [[buffer(8)]], uint2 group [[threadgroup_position_in_grid]],
		       uint lane [[thread_index_in_simdgroup]],
		       uint simdgroup [[simdgroup_index_in_threadgroup]])
{
	const uint row = group.y, column = group.x * ROW_SIMDGROUPS + simdgroup;
	if (row >= step_rows(step, args.rows_live) || column >= args.column[args.n_weights])
		return;
	const int adapter = adapter_of(args, step, row);
	if (adapter < 0)
		return;
	uint i = 0;
	while (column >= args.column[i + 1])
		i++;
	const uint k = table->first[i][adapter] + column - args.column[i];
	if (k >= table->first[i][adapter + 1])
		return;
	device const float *a = i == 0 ? a0 : i == 1 ? a1 : i == 2 ? a2 : a3;
	device const float *from = x + ulong(row) * args.x_stride;
	a += ulong(k) * args.n;
	float sum = 0.0f;
	for (uint j = lane; j < args.n; j += 32)
		sum = fma(a[j], from[j], sum);
	UNROLL
	for (uint by = 16; by > 0; by /= 2)
		sum += simd_shuffle_xor(sum, ushort(by));
	if (lane == 0)
		h[ulong(row) * args.h_stride + column] = table->scale[i][adapter] * sum;
}

//   h  as adapt_down writes it
//   b  of each weight [rank of all adapters][n_rows]
//   y  [row][columns of all weights]: only rows with an adapter are touched
kernel void adapt_up(constant adapt_args &args [[buffer(0)]],
		     device const step_head *step [[buffer(1)]],
		     device const float *h [[buffer(2)]],
		     device const adapt_table *table [[buffer(3)]],
		     device const float *b0 [[buffer(4)]], device const float *b1 [[buffer(5)]],
		     device const float *b2 [[buffer(6)]], device const float *b3 [[buffer(7)]],
		     device float *y [[buffer(8)]], uint2 group [[threadgroup_position_in_grid]],
		     uint tid [[thread_index_in_threadgroup]])
{
	const uint row = group.y;
	uint at = group.x * ADAPT_THREADS + tid, i = 0;
	if (row >= step_rows(step, args.rows_live) || at >= args.n)
		return;
	const int adapter = adapter_of(args, step, row);
	if (adapter < 0)
		return;
	device float *to = y + ulong(row) * args.y_stride + at;
	while (at >= args.n_rows[i])
		at -= args.n_rows[i++];
	const uint first = table->first[i][adapter], last = table->first[i][adapter + 1];
	if (first == last)
		return;
	const ulong n = args.n_rows[i];
	device const float *b = i == 0 ? b0 : i == 1 ? b1 : i == 2 ? b2 : b3;
	device const float *from = h + ulong(row) * args.h_stride + args.column[i];
	b += ulong(first) * n + at;
	float sum = *to;
	for (uint k = 0; k < last - first; k++)
		sum = fma(from[k], b[k * n], sum);
	*to = sum;
}

//   x  [row][2 n]: gate and up
//   y  [row][n]
template <typename TO>
kernel void
glu_join(constant adapt_args &args [[buffer(0)]], device const step_head *step [[buffer(1)]],
	 device const float *x [[buffer(2)]], device typename TO::element *y [[buffer(3)]],
	 uint2 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]])
{
	const uint row = group.y, at = group.x * ADAPT_THREADS + tid;
	if (row >= step_rows(step, args.rows_live) || at >= args.n)
		return;
	device const float *from = x + ulong(row) * args.x_stride + at;
	const float v = product_act(args.act, from[0]) * from[args.n];
	y[ulong(row) * args.y_stride + at] = TO::of(float2(v, 0.0f)).x;
}

instantiate_kernel("glu_join_f32", glu_join, product_f32)
instantiate_kernel("glu_join_f16", glu_join, product_f16)
instantiate_kernel("glu_join_bf16", glu_join, product_bf16)
