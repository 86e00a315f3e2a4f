// group_kernels.h: the kernels over a cache of 16 bits or codes for heads of up to GROUP_MOST_DIM columns: on NVIDIA those of
// attention_group.h in place of attention_split and attention_whole.
#pragma once

#include <metal_stdlib>
#include "../portable.h"
#include "attention_group.h"
#include "attention_split.h"
#include "attention_whole.h"

using namespace metal;

#if COPIES_ASYNC

// Partial results of a range, as attention_split writes them.
struct group_partials {
	device const uint *first; // [row]
	device float *outs;
	device float2 *tops;
	uint range, n_heads, v_dim;

	template <typename TILE, typename QUERIES>
	METAL_FUNC void finish(thread TILE &t, thread QUERIES &mine) thread
	{
		const uint start = range * STEP_RANGE, end = start + STEP_RANGE - 1;
		UNROLL
		for (int n = 0; n < QUERIES::eights; n++)
			UNROLL
		for (int e = 0; e < 2; e++) {
			const uint query = mine.query(n, e);
			if (!t.there(query) || mine.low[n][e] > end ||
			    mine.low[n][e] + mine.beyond[n][e] < start)
				continue;
			const ulong at =
				ulong(first[t.row_of(query)] + range) * n_heads + t.head_of(query);
			if (mine.sg == 0 && mine.lane < 4)
				tops[at] = float2(mine.top[n][e], mine.sum[n][e]);
			mine.put(outs + at * v_dim, n, e, t.coded(true), v_dim);
		}
	}
};

// Grid and results as attention_split's.
template <int D, bool Q8>
[[max_total_threads_per_threadgroup(ATTENTION_THREADS)]] kernel void attention_group_split(
	constant attention_args &args [[buffer(0)]], device const step_head *step [[buffer(1)]],
	device const half *q [[buffer(2)]], device float *outs [[buffer(3)]],
	device float2 *tops [[buffer(4)]], threadgroup uchar *shared [[threadgroup(0)]],
	uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
	uint lane [[thread_index_in_simdgroup]], uint sg [[simdgroup_index_in_threadgroup]])
{
	group_partials of = { step_array<uint>(step, step->partials),
			      outs,
			      tops,
			      group.y,
			      args.n_heads,
			      args.v_dim };
	group_range<D, Q8>(args, step, q, shared, group.z, group.x, group.y, tid,
			   simd_broadcast_first(sg), lane, of);
}

begins_early(attention_group_split);

#ifdef NV_WGMMA

// A range's sums on their way to the others of the cluster.
template <int D> struct group_sums {
	constant attention_args &args;
	threadgroup float *sums; // where K and V were
	device uchar *y;
	device const float *sinks, *gates;
	uint rank, tid;

	template <typename TILE, typename QUERIES>
	METAL_FUNC void finish(thread TILE &t, thread QUERIES &mine) thread
	{
		constexpr uint stride = D + 8;
		static_assert((16 * (stride + 2) + WHOLE_OWN) * 4 <= GROUP_BYTES(D, 0),
			      "sums and notes");
		threadgroup float *notes = sums + 16 * stride;
		UNROLL
		for (int n = 0; n < QUERIES::eights; n++)
			UNROLL
		for (int e = 0; e < 2; e++) {
			const uint query = mine.query(n, e);
			if (mine.sg == 0 && mine.lane < 4)
				*(threadgroup float2 *)(notes + 2 * query) =
					float2(mine.top[n][e], mine.sum[n][e]);
			mine.put(sums + query * stride, n, e, t.coded(true), D);
		}
		merge_whole<D>(args, t, sums, notes, notes + 2 * 16, y, sinks, gates,
			       min(t.n_queries - t.first_query, 16u), rank, tid);
	}
};

// Grid as attention_whole's.
template <int D, bool Q8>
[[max_total_threads_per_threadgroup(ATTENTION_THREADS)]] kernel void attention_group_whole(
	constant attention_args &args [[buffer(0)]], device const step_head *step [[buffer(1)]],
	device const half *q [[buffer(2)]], device uchar *y [[buffer(3)]],
	device const float *sinks [[buffer(4)]], device const float *gates [[buffer(5)]],
	threadgroup uchar *shared [[threadgroup(0)]], uint3 group [[threadgroup_position_in_grid]],
	uint tid [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
	uint sg [[simdgroup_index_in_threadgroup]])
{
	const uint rank = group.x % args.ranges;
	group_sums<D> of = { args, (threadgroup float *)shared, y, sinks, gates, rank, tid };
	// Nobody reads in a threadgroup that ends early, and a cluster's barrier does not wait for it.
	group_range<D, Q8>(args, step, q, shared, group.y, group.x / args.ranges, rank, tid,
			   simd_broadcast_first(sg), lane, of);
}

begins_early(attention_group_whole);

#define ATTENTION_GROUP_WHOLE(name, D, Q8)                                                         \
	instantiate_kernel("attention_group_whole_" name, attention_group_whole, D, Q8)
#else
#define ATTENTION_GROUP_WHOLE(name, D, Q8)
#endif

#define ATTENTION_SMALL(name, D, Q8)                                                               \
	ATTENTION_GROUP_WHOLE(name, D, Q8)                                                         \
	instantiate_kernel("attention_group_split_" name, attention_group_split, D, Q8)            \
	ATTENTION_LOOP(name, half, D, Q8)
#else
#define ATTENTION_SMALL(name, D, Q8) ATTENTION_INSTANCES(name, half, D, Q8)
#endif
