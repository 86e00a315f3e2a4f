// linear_dots.h: few rows by a weight of few outputs in float, as a router's of experts.  A tile of 16 rows and 8
// outputs would multiply rows that do not exist; here a thread has one row, one output and one share of k: one
// fused multiply-add after the other, k ascending, shares added in ascending order.  Those are the bits of
// the tiles of tile.h on NVIDIA, so there is no such kernel for Metal.
//
// Grid: columns, and args.width rows: several rows' x would take longer to arrive than their sums to add.
//
// Threadgroup memory: rows of w, which are fetched before the kernel before this one has ended, rows of x, and sums
// of shares.  Rows are four floats longer than k, so that eight of them are in different banks.
#pragma once

#include "../early.h"
#include "linear.h"

#ifdef MSL_NV

// A row of n floats, a multiple of four; of a row that is not there, zeros.
METAL_FUNC void dots_fetch(threadgroup float *to, device const float *from, uint n, bool there,
			   uint tid)
{
	for (uint i = tid * 4; i < n; i += DOTS_THREADS * 4)
		nv_cp_async_16(to + i, there ? from + i : from, there ? 16 : 0);
}

METAL_FUNC float dots_add(float sum, float4 x, float4 w)
{
	sum = fma(x.x, w.x, sum);
	sum = fma(x.y, w.y, sum);
	sum = fma(x.z, w.z, sum);
	return fma(x.w, w.w, sum);
}

// The dot product of elements from … end - 1, multiples of four.
METAL_FUNC float dots_of(threadgroup const float *x, threadgroup const float *w, uint from,
			 uint end)
{
	constexpr uint ahead = 8; // loads of four, which then do not wait for each other
	float sum = 0.0f;
	uint k = from;
	for (; k + ahead * 4 <= end; k += ahead * 4) {
		float4 a[ahead], b[ahead];
		UNROLL
		for (uint i = 0; i < ahead; i++) {
			a[i] = *(threadgroup const float4 *)(x + k + i * 4);
			b[i] = *(threadgroup const float4 *)(w + k + i * 4);
		}
		UNROLL
		for (uint i = 0; i < ahead; i++)
			sum = dots_add(sum, a[i], b[i]);
	}
	for (; k < end; k += 4)
		sum = dots_add(sum, *(threadgroup const float4 *)(x + k),
			       *(threadgroup const float4 *)(w + k));
	return sum;
}

[[max_total_threads_per_threadgroup(DOTS_THREADS)]] kernel void linear_f32_f32_dots(LINEAR_OPERANDS)
{
	const uint stride = args.k + 4, all = step_rows(step, args.rows_live);
	product_place place;
	place.m0 = group.y * args.width;
	place.rows = all > place.m0 ? min(all - place.m0, args.width) : 0;
	const uint rows = place.rows;
	product_columns(args, args.n_weights, group.x, DOTS_COLUMNS, place);
	threadgroup float *ws = (threadgroup float *)shared, *xs = ws + DOTS_COLUMNS * stride,
			  *sums = xs + rows * stride;
	device const uchar *w =
		linear_weight(place.weight, w0, w1, w2, w3) + ulong(place.n0) * args.w_row_bytes;
	for (uint i = 0; i < DOTS_COLUMNS; i++)
		dots_fetch(ws + i * stride,
			   (device const float *)(w + ulong(i < place.columns ? i : 0) *
							      args.w_row_bytes),
			   args.k, i < place.columns, tid);
	wait_for_previous();
	for (uint i = 0; i < rows; i++)
		dots_fetch(xs + i * stride,
			   (device const float *)x + ulong(place.m0 + i) * args.x_stride, args.k,
			   true, tid);
	nv_cp_async_commit();
	nv_cp_async_wait<0>();
	begin_next();
	threadgroup_barrier(mem_flags::mem_threadgroup);

	for (uint i = tid; i < rows * DOTS_COLUMNS * args.shares; i += DOTS_THREADS) {
		const uint column = i % DOTS_COLUMNS, row = i / DOTS_COLUMNS % rows,
			   share = i / DOTS_COLUMNS / rows;
		sums[i] = dots_of(xs + row * stride, ws + column * stride,
				  product_share(args, share), product_share(args, share + 1));
	}
	threadgroup_barrier(mem_flags::mem_threadgroup);

	product_target to = product_to(y);
	to.bias = linear_bias(place.weight, bias0, bias1, bias2, bias3);
	to.residual = residual;
	for (uint i = tid; i < rows * (DOTS_COLUMNS / 2); i += DOTS_THREADS) {
		const uint row = i / (DOTS_COLUMNS / 2), column = i % (DOTS_COLUMNS / 2) * 2;
		if (column >= place.columns)
			continue;
		threadgroup const float *from = sums + row * DOTS_COLUMNS + column;
		float2 sum = *(threadgroup const float2 *)from;
		for (uint share = 1; share < args.shares; share++)
			sum += *(threadgroup const float2 *)(from + share * rows * DOTS_COLUMNS);
		product_finish(args, place, to, row, column, sum);
	}
}
begins_early(linear_f32_f32_dots);

#endif
