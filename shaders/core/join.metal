// join.metal: what several devices have computed, added or side by side.
#include <metal_stdlib>
#include "portable.h"
#include "row.h"

using namespace metal;

// Grid: parts of a row of JOIN_COLUMNS, row.  Thread t has columns t, t + JOIN_THREADS, …
//   x0 … x3  [row][n]; inputs from n_in on are not read
//   y        [row][n]
kernel void join_sum(constant join_args &args [[buffer(0)]],
		     device const step_head *step [[buffer(1)]],
		     device const float *x0 [[buffer(2)]], device const float *x1 [[buffer(3)]],
		     device const float *x2 [[buffer(4)]], device const float *x3 [[buffer(5)]],
		     device float *y [[buffer(6)]], uint3 group [[threadgroup_position_in_grid]],
		     uint tid [[thread_index_in_threadgroup]])
{
	const uint row = group.y, first = group.x * JOIN_COLUMNS;
	if (row >= step_rows(step, args.rows_live))
		return;
	device float *to = y + ulong(row) * args.y_stride;
	for (uint i = first + tid; i < min(first + JOIN_COLUMNS, args.n); i += JOIN_THREADS) {
		float v = x0[ulong(row) * args.x_stride[0] + i] +
			  x1[ulong(row) * args.x_stride[1] + i];
		if (args.n_in > 2)
			v += x2[ulong(row) * args.x_stride[2] + i];
		if (args.n_in > 3)
			v += x3[ulong(row) * args.x_stride[3] + i];
		to[i] = v;
	}
}

// The same grid over the columns of the widest input.
//   x0 … x3  [row][x_n]
//   y        [row][sum of x_n]
kernel void join_concat(constant join_args &args [[buffer(0)]],
			device const step_head *step [[buffer(1)]],
			device const float *x0 [[buffer(2)]], device const float *x1 [[buffer(3)]],
			device const float *x2 [[buffer(4)]], device const float *x3 [[buffer(5)]],
			device float *y [[buffer(6)]], uint3 group [[threadgroup_position_in_grid]],
			uint tid [[thread_index_in_threadgroup]])
{
	const uint row = group.y, first = group.x * JOIN_COLUMNS;
	if (row >= step_rows(step, args.rows_live))
		return;
	device float *to = y + ulong(row) * args.y_stride;
	for (uint k = 0; k < args.n_in; k++) {
		device const float *x = (k == 0 ? x0 :
					 k == 1 ? x1 :
					 k == 2 ? x2 :
						  x3) +
					ulong(row) * args.x_stride[k];
		const uint n = args.x_n[k];
		for (uint i = first + tid; i < min(first + JOIN_COLUMNS, n); i += JOIN_THREADS)
			to[i] = x[i];
		to += n;
	}
}
