// attention_split.h: one range of a tile of queries, and the kernels over a cache of one type and head size.
#pragma once

#include <metal_stdlib>
#include "../portable.h"
#include "attention.h"
#include "attention_loop.h"

using namespace metal;

// The sums of range number `range` of the index-th tile and KV head of a sequence, in t.  False: the tile has no
// query that sees the range, or there is no such tile.
template <typename tile_type, typename T>
METAL_FUNC bool attention_range(thread tile_type &t, constant attention_args &args,
				device const step_head *step, device const T *q,
				threadgroup uchar *shared, uint sequence, uint index, uint range,
				uint tid, uint sg, uint lane)
{
	const uint start = range * STEP_RANGE, end = start + STEP_RANGE - 1;
	bool there = attention_has(step, sequence, true) &&
		     t.begin(args, step, q, shared, sequence, index, false, tid, sg, lane);
	there = there && t.lowest <= end && t.highest >= start;
	uint first = 0, last = 0;
	if (there) {
		first = max(t.lowest / tile_type::tokens * tile_type::tokens, start);
		last = min(t.highest, end);
		if (tile_type::async)
			t.find(first);
	}
	wait_for_previous();
	begin_next();
	if (!there)
		return false;

	t.fetch_q(q, args.q_stride);
	if (tile_type::async)
		t.fetch_found(first, 0);
	uint stage = 0;
	for (uint at = first; at <= last; at += tile_type::tokens) {
		t.sub_step(at, stage, at + tile_type::tokens <= last);
		threadgroup_barrier(mem_flags::mem_threadgroup);
		stage ^= 1;
	}
	return true;
}

// Grid: tile and KV head, range, sequence.
//   outs   [partial][head][head_dim]: sums of p V
//   tops   [partial][head]: the score that they are relative to, the sum of p
template <typename T, int D, bool Q8>
[[max_total_threads_per_threadgroup(ATTENTION_THREADS)]] kernel void attention_split(
	constant attention_args &args [[buffer(0)]], device const step_head *step [[buffer(1)]],
	device const T *q [[buffer(2)]], device float *outs [[buffer(3)]],
	device float2 *tops [[buffer(4)]], threadgroup uchar *shared [[threadgroup(0)]],
	uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
	uint lane [[thread_index_in_simdgroup]], uint sg [[simdgroup_index_in_threadgroup]])
{
	typedef attention_tile<T, D, 1, Q8, false> tile_type;
	const uint start = group.y * STEP_RANGE, end = start + STEP_RANGE - 1;
	device const uint *partials = step_array<uint>(step, step->partials);
	tile_type t;
	if (!attention_range(t, args, step, q, shared, group.z, group.x, group.y, tid, sg, lane))
		return;

	const uint mine = tid / tile_type::parts;
	if (tid % tile_type::parts == 0 && t.there(mine) && t.lo <= end && t.hi >= start)
		tops[ulong(partials[t.row_of(mine)] + group.y) * args.n_heads + t.head_of(mine)] =
			float2(t.top, t.sum);
	UNROLL
	for (int i = 0; i < 4; i++) {
		const uint query = fragment_row(i, lane);
		const uint row = t.row_of(t.there(query) ? query : 0);
		const bool seen = t.there(query) &&
				  first_seen(uint(t.positions[row]), args.window) <= end &&
				  t.last_seen(row) >= start;
		device float *to =
			outs + (ulong(partials[row] + group.y) * args.n_heads + t.head_of(query)) *
				       args.v_dim;
		UNROLL
		for (int c = 0; c < tile_type::chunks; c++)
			UNROLL
		for (int n = 0; n < tile_type::columns; n++) {
			const uint in_chunk = t.column_in_chunk(n, i);
			const uint column = c * tile_type::chunk + in_chunk;
			const float2 v = t.pair_in_order(t.acc[c][0][n], i);
			if (seen && in_chunk < uint(tile_type::chunk) && column < args.v_dim)
				*(device float2 *)(to + column) = v;
		}
	}
}

begins_early(attention_split);

// ATTENTION_WHOLE is that of attention_whole.h.
#define ATTENTION_LOOP(name, T, D, Q8)                                                             \
	instantiate_kernel("attention_loop_" name, attention_loop, T, D, Q8, false,                \
			   ATTENTION_LOOP_TILES(sizeof(T), D, COPIES_ASYNC))
#define ATTENTION_INSTANCES(name, T, D, Q8)                                                        \
	ATTENTION_WHOLE(name, T, D, Q8)                                                            \
	instantiate_kernel("attention_split_" name, attention_split, T, D, Q8)                     \
	ATTENTION_LOOP(name, T, D, Q8)
