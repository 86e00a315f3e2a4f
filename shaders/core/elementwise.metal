// elementwise.metal: products of values, soft caps and copies of columns: one value a time.
#include <metal_stdlib>
#include "portable.h"
#include "row.h"

using namespace metal;

// Grid: parts of a row of ELEMENTWISE_COLUMNS, row.  Thread t has columns t, t + 256, …
//   x    [row][n]
//   by   [row][first + n or more]
//   y    [row][n]
template <typename T>
kernel void multiply(constant elementwise_args &args [[buffer(0)]],
		     device const step_head *step [[buffer(1)]],
		     device const float *x [[buffer(2)]], device const float *by [[buffer(3)]],
		     device T *y [[buffer(4)]], uint3 group [[threadgroup_position_in_grid]],
		     uint tid [[thread_index_in_threadgroup]])
{
	const uint row = group.y, first = group.x * ELEMENTWISE_COLUMNS;
	if (row >= step_rows(step, args.rows_live))
		return;
	device const float *a = x + ulong(row) * args.x_stride;
	device const float *b = by + ulong(row) * args.by_stride + args.first;
	device T *to = y + ulong(row) * args.y_stride;
	for (uint i = first + tid; i < min(first + ELEMENTWISE_COLUMNS, args.n); i += 256)
		to[i] = rounded<T>(a[i] * b[i]);
}

instantiate_kernel("multiply_f32", multiply, float)
instantiate_kernel("multiply_f16", multiply, half)
instantiate_kernel("multiply_bf16", multiply, bfloat)

kernel void soft_cap(constant elementwise_args &args [[buffer(0)]],
		     device const step_head *step [[buffer(1)]],
		     device const float *x [[buffer(2)]], device float *y [[buffer(3)]],
		     uint3 group [[threadgroup_position_in_grid]],
		     uint tid [[thread_index_in_threadgroup]])
{
	const uint row = group.y, first = group.x * ELEMENTWISE_COLUMNS;
	if (row >= step_rows(step, args.rows_live))
		return;
	device const float *a = x + ulong(row) * args.x_stride;
	device float *to = y + ulong(row) * args.y_stride;
	for (uint i = first + tid; i < min(first + ELEMENTWISE_COLUMNS, args.n); i += 256) {
		const float v = a[i] * args.scale;
		to[i] = args.cap > 0.0f ? args.cap * precise::tanh(v) : v;
	}
}

// Grid: heads, row.  Thread t has the columns t, t + HEADS_THREADS, … of the last n of a head.
//   x, y   [row][head][.. n]
template <typename X, typename Y>
kernel void heads_rest(constant heads_args &args [[buffer(0)]],
		       device const step_head *step [[buffer(1)]], device const X *x [[buffer(2)]],
		       device Y *y [[buffer(3)]], uint3 group [[threadgroup_position_in_grid]],
		       uint tid [[thread_index_in_threadgroup]])
{
	const uint row = group.y, head = group.x;
	if (row >= step_rows(step, args.rows_live))
		return;
	device const X *from = x + ulong(row) * args.x_stride + (head + 1) * args.x_head - args.n;
	device Y *to = y + ulong(row) * args.y_stride + (head + 1) * args.y_head - args.n;
	for (uint i = tid; i < args.n; i += HEADS_THREADS)
		to[i] = rounded<Y>(float(from[i]));
}

instantiate_kernel("heads_rest_f32_f32", heads_rest, float, float)
instantiate_kernel("heads_rest_f32_f16", heads_rest, float, half)
instantiate_kernel("heads_rest_f32_bf16", heads_rest, float, bfloat)
instantiate_kernel("heads_rest_f16_f32", heads_rest, half, float)
instantiate_kernel("heads_rest_f16_f16", heads_rest, half, half)
instantiate_kernel("heads_rest_f16_bf16", heads_rest, half, bfloat)
