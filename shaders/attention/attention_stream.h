// attention_stream.h: what attention_loop does, with the same bits, in warpgroup products, for heads of up to 128 columns.
// NVIDIA's, compute capability 9.0.
//
// Of a threadgroup's warpgroups the last one loads K and V (stream_stages.h).  The two or three others have 64 queries each.
// A simdgroup has 16 of them, a lane the same two as in a fragment (fragments.h): their scores, the weights that become of
// them, and their sums stay in its registers.  This arrangement is that of FlashAttention-3 (Shah et al., 2024).
//
// A lane has scores of four columns of each sixteen, two and two.  stream_row lets them be four neighbouring tokens, a term
// of the sum of weights.  V's rows are in the same order, so that the weights are an operand as they are: a product of 16 k
// does not depend on their order.
#pragma once

#include <metal_stdlib>
#include "../portable.h"
#include "outputs.h"
#include "stream_stages.h"

using namespace metal;

#ifdef NV_WGMMA

// A lane's two queries, eight apart, and their sums.
template <int D, bool Q8> struct stream_queries {
	typedef stream_stages<D, Q8> stages_type;
	typedef typename stages_type::tile_type tile_type;
	static constexpr constant uint tokens = stages_type::tokens;

	float x[tokens / 8][4];
	float acc[D / 8][4], all[D / 8][4]; // of a range, and of those before
	float top[2], sum[2], all_top[2], all_sum[2];
	uint low[2], beyond[2]; // the first position that is seen, and how many after it
	// Of the blocks of two sub-steps, as operands: one is read while the other is made.
	uint weights[2][2][4];
	float shrink[2];
	// Of the warpgroup's queries, for each 64 columns [query][column].
	threadgroup const uchar *q;

	METAL_FUNC void begin(constant attention_args &args, thread tile_type &o, uint sg,
			      uint lane) thread
	{
		UNROLL
		for (uint r = 0; r < 2; r++) {
			const uint mine = sg * 16 + lane / 4 + r * 8;
			low[r] = 0xffffffff; // no position is as high
			beyond[r] = 0;
			if (o.there(mine)) {
				const uint row = o.row_of(mine);
				low[r] = first_seen(uint(o.positions[row]), args.window);
				beyond[r] = o.last_seen(row) - low[r];
			}
			all_top[r] = nothing_seen;
			all_sum[r] = 0.0f;
		}
		clear();
		UNROLL
		for (int j = 0; j < D / 8; j++)
			UNROLL
		for (int e = 0; e < 4; e++)
			all[j][e] = 0.0f;
	}
	METAL_FUNC void clear() thread
	{
		UNROLL
		for (uint r = 0; r < 2; r++) {
			top[r] = nothing_seen;
			sum[r] = 0.0f;
		}
		UNROLL
		for (int j = 0; j < D / 8; j++)
			UNROLL
		for (int e = 0; e < 4; e++)
			acc[j][e] = 0.0f;
	}

	// The warpgroup's queries, by its threads.
	METAL_FUNC void load(thread tile_type &o, device const half *from, uint stride,
			     threadgroup uchar *shared, uint group, uint tid) thread
	{
		constexpr uint in_row = D / 8;
		threadgroup uchar *to = shared + group * (STREAM_GROUP_QUERIES * D * 2);
		q = to;
		for (uint i = tid; i < STREAM_GROUP_QUERIES * in_row; i += STREAM_GROUP) {
			const uint nth = i % in_row, mine = i / in_row,
				   query = group * STREAM_GROUP_QUERIES + mine;
			const bool have = o.there(query) && nth * 8 < o.head_dim;
			device const half *p = from;
			if (have)
				p += ulong(o.row_of(query)) * stride +
				     o.head_of(query) * o.head_dim + nth * 8;
			copy_16(to + nth / 8 * (STREAM_GROUP_QUERIES * 128) +
					stream_place(mine, nth % 8),
				(device const uchar *)p, have);
		}
		copy_commit();
		copy_await<0>();
		nv_fence_async();
		nv_barrier_some(1 + group, STREAM_GROUP);
	}

	// Scores of a stage's tokens.
	METAL_FUNC void dot(threadgroup const uchar *k, bool coded) thread
	{
		UNROLL
		for (uint j = 0; j < tokens / 8; j++)
			UNROLL
		for (int e = 0; e < 4; e++)
			x[j][e] = 0.0f;
		nv_wgmma_fence();
		if (coded) {
			UNROLL
			for (uint i = 0; i < D / 16; i++)
				nv_wgmma_columns<half, tokens>::run(
					x[0], query_part(i),
					nv_descriptor_columns(k + i * 16 * 128, 0));
		} else {
			UNROLL
			for (uint i = 0; i < D / 16; i++)
				nv_wgmma<half, tokens>::run(
					x[0], query_part(i),
					nv_descriptor(k + i / 4 * stages_type::piece + i % 4 * 32));
		}
		nv_wgmma_commit();
		nv_wgmma_wait<0>();
	}
	METAL_FUNC ulong query_part(uint i) thread
	{
		return nv_descriptor(q + i / 4 * (STREAM_GROUP_QUERIES * 128) + i % 4 * 32);
	}

	// Whether the simdgroup's queries see all tokens of the stage at t.
	METAL_FUNC bool sees_all(uint t) thread
	{
		bool all_of = true;
		UNROLL
		for (uint r = 0; r < 2; r++)
			all_of = all_of && t >= low[r] && t + tokens - 1 - low[r] <= beyond[r];
		return simd_all(all_of);
	}

	// Weights of the nth sub-step of the stage at t, as attention_tile's weigh makes them.
	template <bool MASKED>
	METAL_FUNC void weigh(uint nth, uint t, float scale, uint lane) thread
	{
		UNROLL
		for (uint r = 0; r < 2; r++) {
			float largest = nothing_seen, total[2];
			UNROLL
			for (uint i = 0; i < 8; i++) {
				thread float &score = x[nth * 4 + i / 2][r * 2 + i % 2];
				if (MASKED && !sees(r, nth, t, i, lane))
					score = nothing_seen;
				largest = max(largest, score);
			}
			UNROLL
			for (int by = 1; by < 4; by *= 2)
				largest = max(largest, simd_shuffle_xor(largest, ushort(by)));
			const float new_top =
				largest == nothing_seen ? top[r] : max(top[r], largest * scale);
			shrink[r] = merge_share(top[r], new_top);
			UNROLL
			for (uint b = 0; b < 2; b++) {
				total[b] = 0.0f;
				UNROLL
				for (uint h = 0; h < 2; h++) {
					float pair[2];
					UNROLL
					for (uint e = 0; e < 2; e++) {
						const uint i = b * 4 + h * 2 + e;
						pair[e] = weight_of<half>(
							fma(x[nth * 4 + i / 2][r * 2 + e], scale,
							    -new_top));
						if (MASKED && !sees(r, nth, t, i, lane))
							pair[e] = 0.0f;
					}
					const half2 rounded = half2(float2(pair[0], pair[1]));
					weights[nth % 2][b][h * 2 + r] = as_type<uint>(rounded);
					total[b] += float(rounded.x);
					total[b] += float(rounded.y);
				}
				UNROLL
				for (int by = 1; by < 4; by *= 2)
					total[b] += simd_shuffle_xor(total[b], ushort(by));
			}
			sum[r] = fma(sum[r], shrink[r], total[0] + total[1]);
			top[r] = new_top;
		}
	}
	// Of the lane's scores of a sub-step: the i-th.
	METAL_FUNC bool sees(uint r, uint nth, uint t, uint i, uint lane) thread
	{
		return t + nth * ATTENTION_TOKENS(2) + i / 4 * 16 + lane % 4 * 4 + i % 4 - low[r] <=
		       beyond[r];
	}

	// Begins to add the nth sub-step's p V.
	METAL_FUNC void add(uint nth, threadgroup const uchar *v) thread
	{
		UNROLL
		for (int j = 0; j < D / 8; j++)
			UNROLL
		for (int e = 0; e < 4; e++)
			acc[j][e] *= shrink[e / 2];
		nv_wgmma_fence();
		UNROLL
		for (uint b = 0; b < 2; b++)
			nv_wgmma_from_columns<half, D>::run(
				acc[0], weights[nth % 2][b],
				nv_descriptor_columns(v + (nth * 2 + b) * 16 * 128,
						      stages_type::piece));
		nv_wgmma_commit();
	}

	METAL_FUNC void step(uint t, threadgroup const uchar *v, float scale, uint lane) thread
	{
		const bool all_of = sees_all(t);
		UNROLL
		for (uint nth = 0; nth < tokens / ATTENTION_TOKENS(2); nth++) {
			if (all_of)
				weigh<false>(nth, t, scale, lane);
			else
				weigh<true>(nth, t, scale, lane);
			nv_wgmma_wait<0>();
			add(nth, v);
		}
	}

	METAL_FUNC void merge() thread
	{
		UNROLL
		for (uint r = 0; r < 2; r++) {
			const float2 by =
				merge_range(all_top[r], all_sum[r], float2(top[r], sum[r]));
			UNROLL
			for (int j = 0; j < D / 8; j++)
				UNROLL
			for (int e = 0; e < 2; e++)
				all[j][r * 2 + e] =
					fma(all[j][r * 2 + e], by.x, acc[j][r * 2 + e] * by.y);
		}
		clear();
	}

	// The warpgroup's results, by way of `sums`, [query][D + 8]: so a row's are written together.
	METAL_FUNC void store(constant attention_args &args, thread tile_type &o, device uchar *y,
			      device const float *sinks, device const float *gates,
			      threadgroup float *sums, uint group, uint tid, uint sg,
			      uint lane) thread
	{
		constexpr uint stride = D + 8, in_row = D / 4;
		UNROLL
		for (uint r = 0; r < 2; r++) {
			const uint query = sg * 16 + lane / 4 + r * 8;
			const float share = o.there(query) ?
						    final_share(all_top[r], all_sum[r], sinks,
								o.head_of(query), args.flags) :
						    0.0f;
			UNROLL
			for (uint j = 0; j < D / 8; j++)
				*(threadgroup float2 *)(sums + query * stride + j * 8 +
							lane % 4 * 2) =
					float2(all[j][r * 2], all[j][r * 2 + 1]) * share;
		}
		nv_barrier_some(1 + group, STREAM_GROUP);
		_Pragma("clang loop unroll(disable)") for (uint i = tid;
							   i < STREAM_GROUP_QUERIES * in_row;
							   i += STREAM_GROUP)
		{
			const uint query = group * STREAM_GROUP_QUERIES + i / in_row,
				   column = i % in_row * 4;
			if (!o.there(query) || column >= args.v_dim)
				continue;
			const uint row = o.row_of(query), head = o.head_of(query);
			const float4 v =
				*(threadgroup const float4 *)(sums + query * stride + column);
			device uchar *to = y + (ulong(row) * args.y_stride + head * args.v_dim) *
						       element_bytes(args.y_type);
			UNROLL
			for (uint e = 0; e < 4; e += 2)
				if (column + e < args.v_dim)
					store_pair(to, column + e,
						   float2(v[e], v[e + 1]) * gate_pair(args, gates,
										      row, head,
										      column + e),
						   args.y_type);
		}
	}
};

// Grid: tile and KV head, sequence.
template <int D, bool Q8>
[[max_total_threads_per_threadgroup(STREAM_THREADS(D))]] kernel void attention_stream(
	constant attention_args &args [[buffer(0)]], device const step_head *step [[buffer(1)]],
	device const half *q [[buffer(2)]], device uchar *y [[buffer(3)]],
	device const float *sinks [[buffer(4)]], device const float *gates [[buffer(5)]],
	threadgroup uchar *shared [[threadgroup(0)]], uint3 group [[threadgroup_position_in_grid]],
	uint tid [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
	uint sg [[simdgroup_index_in_threadgroup]])
{
	typedef stream_stages<D, Q8> stages_type;
	typename stages_type::tile_type t;
	const uint sequence = group.y;
	if (!attention_has(step, sequence, false))
		return;
	sg = simd_broadcast_first(sg);
	if (!t.begin(args, step, q, shared, sequence, group.x, true, tid % STREAM_GROUP, sg, lane))
		return;
	stages_type stages;
	stages.start(shared, tid);
	const uint first = t.lowest / stages.tokens * stages.tokens;
	if (sg >= STREAM_TILES(D)) {
		nv_registers_fewer<stages_type::producer_registers>();
		if (Q8)
			stages.produce_codes(t, first, tid % STREAM_GROUP, lane);
		else
			stages.produce(t, first, tid % STREAM_GROUP, lane);
		return;
	}
	nv_registers_more<stages_type::consumer_registers>();

	stream_queries<D, Q8> mine;
	const uint warpgroup = sg / 4, first_query = warpgroup * STREAM_GROUP_QUERIES;
	uint last = 0;
	bool any = t.there(first_query);
	if (any) {
		const uint last_query =
			min(t.first_query + first_query + STREAM_GROUP_QUERIES, t.n_queries) - 1;
		last = t.last_seen_by(t.row_of(first_query), t.first_row + last_query / t.per_kv);
	}
	mine.begin(args, t, sg, lane);
	mine.load(t, q, args.q_stride, shared, warpgroup, tid % STREAM_GROUP);
	uint at = first, before = stages.n;
	for (; any && at <= last; at += stages.tokens) {
		stages.wait();
		mine.dot(stages.of(stages.slot, false), t.coded(false));
		if (before != stages.n) // no product reads it any more
			stages.release(before, lane);
		mine.step(at, stages.of(stages.slot, true), args.scale, lane);
		before = stages.slot;
		stages.next();
		if ((at + stages.tokens) % STEP_RANGE == 0 || at + stages.tokens > last) {
			nv_wgmma_wait<0>();
			mine.merge();
		}
	}
	if (before != stages.n)
		stages.release(before, lane);
	for (; at <= t.highest; at += stages.tokens) { // what the other warpgroups see
		stages.wait();
		stages.release(stages.slot, lane);
		stages.next();
	}
	// nobody reads queries or stages any more: sums take their place
	static_assert(STREAM_QUERIES(D) * (D + 8) * 4 <= STREAM_BYTES(D), "sums");
	nv_barrier_some(1 + STREAM_GROUPS(D), STREAM_GROUPS(D) * STREAM_GROUP);
	mine.store(args, t, y, sinks, gates, (threadgroup float *)shared, warpgroup,
		   tid % STREAM_GROUP, sg, lane);
}

#define ATTENTION_STREAM(name, D, Q8)                                                              \
	instantiate_kernel("attention_stream_" name, attention_stream, D, Q8)
#else
#define ATTENTION_STREAM(name, D, Q8)
#endif
