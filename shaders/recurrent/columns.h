// columns.h: columns of a state [n][stride], for gated_delta.metal and selective_scan.metal.
//
// STATE_LANES neighbouring lanes share a column and keep it in registers while the step's rows pass: lane l has
// the values 16 i + 4 l … 16 i + 4 l + 3 of it, FOURS times four.  Values from n on are zeros.
// Order of sums over a column: four a lane, each ascending, then (0 + 1) + (2 + 3), then the lanes' as a tree.
#pragma once

#include "state.h"

// WHOLE: there are as many values as lanes keep.
template <uint FOURS, bool WHOLE>
METAL_FUNC void load_values(thread float4 *s, device const float *from, uint n, uint stride,
			    uint first)
{
	UNROLL
	for (uint i = 0; i < FOURS; i++)
		UNROLL
	for (uint j = 0; j < 4; j++) {
		const uint k = 4 * STATE_LANES * i + j;
		s[i][j] = WHOLE || first + k < n ? from[k * stride] : 0.0f;
	}
}
template <uint FOURS>
METAL_FUNC void load_column(thread float4 *s, device const float *from, uint n, uint stride,
			    uint lane)
{
	const uint first = 4 * lane;
	from += first * stride;
	if (n == 4 * STATE_LANES * FOURS)
		load_values<FOURS, true>(s, from, n, stride, first);
	else
		load_values<FOURS, false>(s, from, n, stride, first);
}

template <uint FOURS, bool WHOLE>
METAL_FUNC void store_values(thread const float4 *s, device float *to, uint n, uint stride,
			     uint first)
{
	UNROLL
	for (uint i = 0; i < FOURS; i++)
		UNROLL
	for (uint j = 0; j < 4; j++) {
		const uint k = 4 * STATE_LANES * i + j;
		if (WHOLE || first + k < n)
			to[k * stride] = s[i][j];
	}
}
template <uint FOURS>
METAL_FUNC void store_column(thread const float4 *s, device float *to, uint n, uint stride,
			     uint lane)
{
	const uint first = 4 * lane;
	to += first * stride;
	if (n == 4 * STATE_LANES * FOURS)
		store_values<FOURS, true>(s, to, n, stride, first);
	else
		store_values<FOURS, false>(s, to, n, stride, first);
}

METAL_FUNC float column_sum(float4 v)
{
	float x = (v.x + v.y) + (v.z + v.w);
	x += simd_shuffle_xor(x, ushort(1));
	x += simd_shuffle_xor(x, ushort(2));
	return x;
}
