// columns.h: columns of a state [n][stride], for gated_delta.metal and selective_scan.metal.
//
// STATE_LANES neighbouring lanes share a column and keep it in registers while the step's rows pass: lane l has
// the values 16 i + 4 l … 16 i + 4 l + 3 of it, FOURS times four.  Values from n on are zeros.
// Order of sums over a column: four a lane, each ascending, then (0 + 1) + (2 + 3), then the lanes' as a tree.
#pragma once

#include "state.h"

template <uint FOURS>
METAL_FUNC void load_column(thread float4 *s, device const float *from, uint n, uint stride,
			    uint lane)
{
	UNROLL
	for (uint i = 0; i < FOURS; i++) {
		UNROLL
		for (uint j = 0; j < 4; j++) {
			const uint k = 4 * STATE_LANES * i + 4 * lane + j;
			s[i][j] = k < n ? from[k * stride] : 0.0f;
		}
	}
}

template <uint FOURS>
METAL_FUNC void store_column(thread const float4 *s, device float *to, uint n, uint stride,
			     uint lane)
{
	UNROLL
	for (uint i = 0; i < FOURS; i++) {
		UNROLL
		for (uint j = 0; j < 4; j++) {
			const uint k = 4 * STATE_LANES * i + 4 * lane + j;
			if (k < n)
				to[k * stride] = s[i][j];
		}
	}
}

METAL_FUNC float column_sum(float4 v)
{
	float x = (v.x + v.y) + (v.z + v.w);
	x += simd_shuffle_xor(x, ushort(1));
	x += simd_shuffle_xor(x, ushort(2));
	return x;
}
