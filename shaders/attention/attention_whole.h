// attention_whole.h: all ranges of a tile of queries, of which each threadgroup of a cluster has one, merged where they
// are: what attention_split and attention_merge do by way of device memory, with the same bits, for sequences of up
// to eight ranges.  NVIDIA's, compute capability 9.0.
#pragma once

#include <metal_stdlib>
#include "../portable.h"
#include "attention_split.h"
#include "outputs.h"

using namespace metal;

#ifdef NV_WGMMA

// What a threadgroup of a cluster notes of each query, in floats of its own memory: by which its sums so far and a
// range's are multiplied, then 1 / the sum of its weights, then its first and its last range.
#define WHOLE_OWN (16 * (2 * ATTENTION_WHOLE_RANGES + 2))

// Merges the ranges of query i, which reads the notes of all threadgroups.
template <typename TILE>
METAL_FUNC void whole_factors(constant attention_args &args, thread TILE &t,
			      threadgroup float *notes, threadgroup float *own,
			      device const float *sinks, uint i)
{
	const uint row = t.row_of(i);
	const uint from = first_seen(uint(t.positions[row]), args.window) / STEP_RANGE;
	const uint to = t.last_seen(row) / STEP_RANGE;
	float2 parts[ATTENTION_WHOLE_RANGES];
	UNROLL
	for (uint r = 0; r < ATTENTION_WHOLE_RANGES; r++)
		if (r >= from && r <= to)
			parts[r] = nv_cluster_load_2(notes + 2 * i, r);
	float top = nothing_seen, sum = 0.0f;
	UNROLL
	for (uint r = 0; r < ATTENTION_WHOLE_RANGES; r++)
		if (r >= from && r <= to)
			*(threadgroup float2 *)(own + (i * ATTENTION_WHOLE_RANGES + r) * 2) =
				merge_range(top, sum, parts[r]);
	threadgroup float *shares = own + 16 * 2 * ATTENTION_WHOLE_RANGES;
	shares[i] = final_share(top, sum, sinks, t.head_of(i), args.flags);
	((threadgroup uint *)shares)[16 + i] = from | to << 16;
}

// What the threadgroups of a cluster make of their sums, [query][D + 8], and of notes, [query] of the score that they are
// relative to and the sum of weights: they divide the columns of all queries.
template <int D, typename TILE>
METAL_FUNC void merge_whole(constant attention_args &args, thread TILE &t, threadgroup float *sums,
			    threadgroup float *notes, threadgroup float *own, device uchar *y,
			    device const float *sinks, device const float *gates, uint n_queries,
			    uint rank, uint tid)
{
	constexpr int in_row = D / 4, stride = D + 8;
	threadgroup const float *shares = own + 16 * 2 * ATTENTION_WHOLE_RANGES;
	nv_cluster_barrier();
	if (tid < n_queries && t.there(tid))
		whole_factors(args, t, notes, own, sinks, tid);
	threadgroup_barrier(mem_flags::mem_threadgroup);
	const uint lowest = t.lowest / STEP_RANGE, members = t.highest / STEP_RANGE - lowest + 1;
	const bool gated = (args.flags & (ATTENTION_SIGMOID | ATTENTION_SOFTPLUS)) != 0;
	for (uint i = (rank - lowest) * ATTENTION_THREADS + tid; i < n_queries * in_row;
	     i += members * ATTENTION_THREADS) {
		const uint query = i / in_row, column = i % in_row * 4;
		if (!t.there(query) || column >= args.v_dim)
			continue;
		const uint row = t.row_of(query), head = t.head_of(query);
		const uint seen = ((threadgroup const uint *)shares)[16 + query],
			   from = seen & 0xffff, to_range = seen >> 16;
		float4 values[ATTENTION_WHOLE_RANGES];
		UNROLL
		for (uint r = 0; r < ATTENTION_WHOLE_RANGES; r++)
			if (r >= from && r <= to_range)
				values[r] = nv_cluster_load_4(sums + query * stride + column, r);
		float4 all = float4(0.0f);
		UNROLL
		for (uint r = 0; r < ATTENTION_WHOLE_RANGES; r++) {
			if (r < from || r > to_range)
				continue;
			const float2 by = *(
				threadgroup const float2 *)(own + (query * ATTENTION_WHOLE_RANGES +
								   r) * 2);
			all = fma(all, float4(by.x), values[r] * by.y);
		}
		all *= shares[query];
		if (gated)
			UNROLL
		for (uint e = 0; e < 4; e++)
			if (column + e < args.v_dim)
				all[e] *= gate_value(args, gates, row, head, column + e);
		device uchar *to = y + (ulong(row) * args.y_stride + head * args.v_dim) *
					       element_bytes(args.y_type);
		UNROLL
		for (uint e = 0; e < 4; e++)
			if (column + e < args.v_dim)
				store_element(to, column + e, one_zero(all[e]), args.y_type);
	}
	nv_cluster_barrier(); // until then others read here
}

// Grid: range of a cluster's, tile and KV head; sequence.
template <typename T, int D, bool Q8>
[[max_total_threads_per_threadgroup(ATTENTION_THREADS)]] kernel void attention_whole(
	constant attention_args &args [[buffer(0)]], device const step_head *step [[buffer(1)]],
	device const T *q [[buffer(2)]], device uchar *y [[buffer(3)]],
	device const float *sinks [[buffer(4)]], device const float *gates [[buffer(5)]],
	threadgroup uchar *shared [[threadgroup(0)]], uint3 group [[threadgroup_position_in_grid]],
	uint tid [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
	uint sg [[simdgroup_index_in_threadgroup]])
{
	typedef attention_tile<T, D, 1, Q8, false> tile_type;
	constexpr int queries = tile_type::queries, stride = D + 8;
	static_assert(queries * stride * 4 <=
			      ATTENTION_KV_ELEMENTS(sizeof(T), D, true, Q8) * int(sizeof(T)),
		      "sums lie where K and V were");
	const uint rank = group.x % args.ranges;
	tile_type t;
	// Nobody reads in a threadgroup that ends here, and a cluster's barrier does not wait for it.
	if (!attention_range(t, args, step, q, shared, group.y, group.x / args.ranges, rank, tid,
			     sg, lane))
		return;

	threadgroup float *sums = (threadgroup float *)t.kv; // [queries][stride]
	const uint mine = tid / tile_type::parts;
	if (tid % tile_type::parts == 0)
		*(threadgroup float2 *)(t.notes + 2 * mine) = float2(t.top, t.sum);
	UNROLL
	for (int i = 0; i < 4; i++)
		UNROLL
	for (int c = 0; c < tile_type::chunks; c++)
		UNROLL
	for (int n = 0; n < tile_type::columns; n++) {
		const uint in_chunk = t.column_in_chunk(n, i);
		if (in_chunk < uint(tile_type::chunk))
			*(threadgroup float2 *)(sums + fragment_row(i, lane) * stride +
						c * tile_type::chunk + in_chunk) =
				t.pair_in_order(t.acc[c][0][n], i);
	}
	static_assert(WHOLE_OWN <= queries * tile_type::s_stride, "scores have been");
	merge_whole<D>(args, t, sums, t.notes, t.s, y, sinks, gates, queries, rank, tid);
}

begins_early(attention_whole);

#define ATTENTION_WHOLE(name, T, D, Q8)                                                            \
	instantiate_kernel("attention_whole_" name, attention_whole, T, D, Q8)
#else
#define ATTENTION_WHOLE(name, T, D, Q8)
#endif
