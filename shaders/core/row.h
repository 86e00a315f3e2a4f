// row.h: shared by kernels that work row by row: the step's arrays, rounding, sums over a
// threadgroup of ROW_THREADS threads in a fixed order.
#pragma once

#include <metal_stdlib>
#include "portable.h"
#include "args.h"
#include "step.h"
using namespace metal;

#define ROW_SIMDGROUPS 8u

template <typename T> METAL_FUNC device const T *step_at(device const step_head *step, uint place)
{
	return (device const T *)((device const uchar *)step + place);
}

// x as it is stored.  A half never becomes infinite (its products with zeros would be NaN); NaN
// stays NaN.
template <typename T> METAL_FUNC T rounded(float x);
template <> METAL_FUNC float rounded<float>(float x) { return x; }
template <> METAL_FUNC half rounded<half>(float x)
{
	return half(x > 65504.0f ? 65504.0f : x < -65504.0f ? -65504.0f : x);
}
template <> METAL_FUNC bfloat rounded<bfloat>(float x) { return bfloat(x); }

// Elements i … i + 3 of a row of n that begins at a multiple of 16 bytes; i is a multiple
// of 4.  Beyond the end there are zeros.
METAL_FUNC float4 load_four(device const float *row, uint i, uint n)
{
	if (i + 4 <= n)
		return *(device const float4 *)(row + i);
	float4 v = float4(0.0f);
	UNROLL
	for (uint j = 0; j < 3; j++)
		if (i + j < n)
			v[j] = row[i + j];
	return v;
}

template <typename T> METAL_FUNC void store_four(device T *row, uint i, uint n, float4 v)
{
	UNROLL
	for (uint j = 0; j < 4; j++)
		if (i + j < n)
			row[i + j] = rounded<T>(v[j]);
}

METAL_FUNC float sum_of_four(float4 v) { return (v.x + v.y) + (v.z + v.w); }

// The sum over all threads: a tree within each simdgroup, then the simdgroups in
// ascending order.  Every thread gets the same bits.  `room` has ROW_SIMDGROUPS floats,
// unused since the last barrier.
METAL_FUNC float lane_sum(float x)
{
	UNROLL
	for (uint by = 16; by > 0; by /= 2)
		x += simd_shuffle_xor(x, ushort(by));
	return x;
}
METAL_FUNC float simdgroup_sum(threadgroup const float *room)
{
	float sum = room[0];
	UNROLL
	for (uint i = 1; i < ROW_SIMDGROUPS; i++)
		sum += room[i];
	return sum;
}
METAL_FUNC float group_sum(float x, threadgroup float *room, uint lane, uint simdgroup)
{
	x = lane_sum(x);
	if (lane == 0)
		room[simdgroup] = x;
	threadgroup_barrier(mem_flags::mem_threadgroup);
	return simdgroup_sum(room);
}
