// tiles_norm.h: RMS norm of the rows of x on their way to a product's threadgroup memory (product_tiles.h), with the
// bits of norm.metal: its 256 threads are eight parts of a row here, which the simdgroups there are take in turn.
// x is read twice, the second time from the first-level cache.
#pragma once

#include "row.h"

#ifdef MSL_NV

struct tiles_norm {
	device const float *x, *w;

	// Rows of args.k halves, `stride` apart.  parts: [rows][ROW_SIMDGROUPS], of the threadgroup; a barrier
	// must follow.
	METAL_FUNC void fetch(constant linear_args &args, threadgroup half *to, uint stride,
			      uint rows, threadgroup float *parts, uint simdgroups, uint sg,
			      uint lane) const thread
	{
		const uint n = args.k, tasks = rows * ROW_SIMDGROUPS;
		for (uint i = sg; i < tasks; i += simdgroups) {
			device const float *from = x + ulong(i / ROW_SIMDGROUPS) * args.x_stride;
			float4 squares = float4(0.0f);
			for (uint at = first(i, lane); at < n; at += ahead * step) {
				float4 v[ahead];
				UNROLL
				for (uint j = 0; j < ahead; j++)
					v[j] = at + j * step < n ?
						       load_four(from, at + j * step, n) :
						       float4(0.0f);
				UNROLL
				for (uint j = 0; j < ahead; j++)
					squares = fma(v[j], v[j], squares);
			}
			const float sum = lane_sum(sum_of_four(squares));
			if (lane == 0)
				parts[i] = sum;
		}
		threadgroup_barrier(mem_flags::mem_threadgroup);
		for (uint i = sg; i < tasks; i += simdgroups) {
			const uint row = i / ROW_SIMDGROUPS;
			device const float *from = x + ulong(row) * args.x_stride;
			const float square = precise::divide(
				simdgroup_sum(parts + row * ROW_SIMDGROUPS), float(n));
			const float scale =
				precise::divide(1.0f, precise::sqrt(square + args.norm_eps));
			for (uint at = first(i, lane); at < n; at += step) {
				const float4 v =
					load_four(from, at, n) * scale * load_four(w, at, n);
				*(threadgroup half4 *)(to + row * stride + at) =
					half4(rounded<half>(v.x), rounded<half>(v.y),
					      rounded<half>(v.z), rounded<half>(v.w));
			}
		}
	}

      private:
	static constexpr constant uint ahead = 4, step = ROW_SIMDGROUPS * 128;
	static METAL_FUNC uint first(uint task, uint lane)
	{
		return (task % ROW_SIMDGROUPS * 32 + lane) * 4;
	}
};

#endif
