// attention_loop.h: all ranges of a tile of queries, one after the other.
#pragma once

#include <metal_stdlib>
#include "../portable.h"
#include "attention.h"
#include "outputs.h"

using namespace metal;

// Grid: tile and KV head, sequence.
template <typename T, int D, bool Q8, bool ROWS, int M>
[[max_total_threads_per_threadgroup(ATTENTION_THREADS)]] kernel void attention_loop(
	constant attention_args &args [[buffer(0)]], device const step_head *step [[buffer(1)]],
	device const T *q [[buffer(2)]], device uchar *y [[buffer(3)]],
	device const float *sinks [[buffer(4)]], device const float *gates [[buffer(5)]],
	threadgroup uchar *shared [[threadgroup(0)]], uint3 group [[threadgroup_position_in_grid]],
	uint tid [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
	uint sg [[simdgroup_index_in_threadgroup]])
{
	typedef attention_tile<T, D, M, Q8, ROWS> tile_type;
	const uint sequence = group.y;
	if (!attention_has(step, sequence, false))
		return;
	tile_type t;
	if (!t.begin(args, step, q, shared, sequence, group.x, true, tid, sg, lane))
		return;
	const uint first = t.lowest / tile_type::tokens * tile_type::tokens, last = t.highest;

	// The merged ranges.
	fragment_sum all[tile_type::chunks][M][tile_type::columns];
	float all_top = nothing_seen, all_sum = 0.0f;
	UNROLL
	for (int c = 0; c < tile_type::chunks; c++)
		UNROLL
	for (int m = 0; m < M; m++)
		UNROLL
	for (int n = 0; n < tile_type::columns; n++)
		fragment_clear(all[c][m][n]);

	const uint mine = tid / tile_type::parts;
	t.fetch_q(q, args.q_stride);
	if (tile_type::async)
		t.fetch_ahead(first, 0);
	uint stage = 0;
	for (uint at = first; at <= last; at += tile_type::tokens) {
		const bool ahead = at + tile_type::tokens <= last;
		t.sub_step(at, stage, ahead);
		if (!ahead || (at + tile_type::tokens) % STEP_RANGE == 0) {
			const float2 by = merge_range(all_top, all_sum, float2(t.top, t.sum));
			t.top = nothing_seen;
			t.sum = 0.0f;
			if (tid % tile_type::parts == 0) {
				t.notes[tile_type::queries + mine] = by.x;
				t.notes[2 * tile_type::queries + mine] = by.y;
			}
			threadgroup_barrier(mem_flags::mem_threadgroup);
			UNROLL
			for (int m = 0; m < M; m++)
				UNROLL
			for (int i = 0; i < 4; i++) {
				const uint query = m * 16 + fragment_row(i, lane);
				const float2 old_share =
					float2(t.notes[tile_type::queries + query]);
				const float new_share = t.notes[2 * tile_type::queries + query];
				UNROLL
				for (int c = 0; c < tile_type::chunks; c++)
					UNROLL
				for (int n = 0; n < tile_type::columns; n++)
					fragment_set(
						all[c][m][n], i,
						fma(fragment_pair(all[c][m][n], i), old_share,
						    fragment_pair(t.acc[c][m][n], i) * new_share));
			}
			t.clear();
		}
		threadgroup_barrier(mem_flags::mem_threadgroup);
		stage ^= 1;
	}

	if (tid % tile_type::parts == 0)
		t.notes[mine] = final_share(all_top, all_sum, sinks,
					    t.there(mine) ? t.head_of(mine) : 0, args.flags);
	threadgroup_barrier(mem_flags::mem_threadgroup);
	UNROLL
	for (int m = 0; m < M; m++)
		UNROLL
	for (int i = 0; i < 4; i++) {
		const uint query = m * 16 + fragment_row(i, lane);
		const bool there = t.there(query);
		const float share = t.notes[query];
		device uchar *to = y + (ulong(t.row_of(query)) * args.y_stride +
					t.head_of(query) * args.v_dim) *
					       element_bytes(args.y_type);
		UNROLL
		for (int c = 0; c < tile_type::chunks; c++)
			UNROLL
		for (int n = 0; n < tile_type::columns; n++) {
			const uint in_chunk = t.column_in_chunk(n, i);
			const uint column = c * tile_type::chunk + in_chunk;
			const float2 v = t.pair_in_order(all[c][m][n], i) * share;
			if (there && in_chunk < uint(tile_type::chunk) && column < args.v_dim)
				store_pair(to, column,
					   v * gate_pair(args, gates, t.row_of(query),
							 t.head_of(query), column),
					   args.y_type);
		}
	}
}
