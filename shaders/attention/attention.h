// attention.h: causal attention over the cached blocks of a row's sequence.
//
// A query is one row and one head.  The heads that share a KV head are consecutive, so
// query i of a sequence and KV head is row i / n, head i % n of the n that share it, and
// a threadgroup's 16 * M queries read K and V once.
//
// Order of sums of a query, the same in every kernel and independent of other queries:
//   positions in ranges of STEP_RANGE, divided into sub-steps of ATTENTION_TOKENS, both at
//   absolute multiples;
//   a score: columns ascending, as fragment_mma takes them;
//   a sub-step: the largest score so far becomes the new reference, earlier sums are scaled;
//   weights, rounded as V is stored, are summed in eight parts and a tree; p V ascends;
//   ranges start from zero and are merged in ascending order (merge_share).
// A sub-step or range that a query does not attend to leaves its sums unchanged.
//
//   attention_split   one range of one tile of queries: partial results to memory
//   attention_merge   the partial results of a query (attention.metal)
//   attention_loop    all ranges of one tile of queries, one after the other
#pragma once

#include <metal_stdlib>
#include "../portable.h"
#include "../args.h"
#include "../step.h"
#include "pages.h"
#include "element.h"
#include "fragments.h"
#include "sizes.h"

using namespace metal;

// Less than every score; finite, so that a difference of two is not NaN.
constant constexpr float nothing_seen = -1e30f;

METAL_FUNC uint first_seen(uint position, uint window)
{
	return window != 0 && position >= window ? position + 1 - window : 0;
}

// The factor of sums relative to `from` when they are relative to `to` >= from.
METAL_FUNC float merge_share(float from, float to) { return from == to ? 1.0f : exp2(from - to); }

// -0 becomes 0, so that zeros added by masked tokens change no bits.
METAL_FUNC float one_zero(float x) { return x == 0.0f ? 0.0f : x; }

METAL_FUNC void store_pair(device uchar *row, uint i, float2 v, uint type)
{
	v = float2(one_zero(v.x), one_zero(v.y));
	if (type == ELEMENT_F32) {
		*(device float2 *)(row + i * 4) = v;
	} else {
		store_element(row, i, v.x, type);
		store_element(row, i + 1, v.y, type);
	}
}

// A threadgroup of four simdgroups that computes 16 * M queries.  T: the cache's type and
// that of q; D: columns, head_dim rounded up.
//
//   scores    a simdgroup has `blocks` consecutive ones of the M x tokens / 16 fragments
//   weigh  thread i has part i % parts of the scores of query i / parts
//   p V       a simdgroup has `columns` neighbouring fragments of columns of each chunk
template <typename T, int D, int M> struct attention_tile {
	static constexpr constant bool async = COPIES_ASYNC;
	static constexpr constant int tokens = ATTENTION_TOKENS(sizeof(T));
	static constexpr constant int q_stride = ATTENTION_STRIDE(sizeof(T), D);
	static constexpr constant int chunk = ATTENTION_CHUNK(D, COPIES_ASYNC);
	static constexpr constant int chunks = D / chunk;
	static constexpr constant int kv_stride = ATTENTION_STRIDE(sizeof(T), chunk);
	static constexpr constant int buffer =
		ATTENTION_BUFFER_ELEMENTS(sizeof(T), D, COPIES_ASYNC);
	static constexpr constant int buffers = ATTENTION_BUFFERS(COPIES_ASYNC);
	static constexpr constant int s_stride = ATTENTION_SCORE_STRIDE(sizeof(T));
	static constexpr constant int p_stride =
		s_stride * 4 / sizeof(T); // weights overwrite their scores
	static constexpr constant int queries = 16 * M;
	static constexpr constant int token_blocks = tokens / 16;
	static constexpr constant int blocks =
		(M * token_blocks + ATTENTION_SGS - 1) / ATTENTION_SGS;
	static constexpr constant int columns = (chunk / 16 + ATTENTION_SGS - 1) / ATTENTION_SGS;
	static constexpr constant int parts = ATTENTION_THREADS / queries;
	static constexpr constant int each = tokens / parts; // scores of a thread
	static constexpr constant int eighth = tokens / 8;
	static constexpr constant int in_16 = 16 / sizeof(T); // elements in a copy

	threadgroup T *q;	  // [queries][q_stride]
	threadgroup T *kv;	  // [buffers][tokens][kv_stride]
	threadgroup float *s;	  // [queries][s_stride]
	threadgroup float *notes; // [ATTENTION_NOTES][queries]

	pages cache;
	device const uchar *anywhere;		 // a readable address
	device const uchar *block[token_blocks]; // of the sub-step that is fetched
	device const int *positions;
	uint first_row, first_query, n_queries, per_kv, kv_head, head_dim;
	uint lowest, highest; // positions that any query attends to
	uint tid, sg, lane;
	// of this thread's query in weigh: its first and last position, and its state
	uint lo, hi;
	float scale, top, sum;

	fragment_sum acc[chunks][M][columns];

	// Query i of the tile.
	METAL_FUNC bool there(uint i) thread { return first_query + i < n_queries; }
	METAL_FUNC uint row_of(uint i) thread { return first_row + (first_query + i) / per_kv; }
	METAL_FUNC uint head_of(uint i) thread
	{
		return kv_head * per_kv + (first_query + i) % per_kv;
	}

	// index: of tile and KV head in the grid.  False: there is no such tile.
	METAL_FUNC bool begin(constant attention_args &args, device const step_head *step,
			      threadgroup uchar *shared, uint sequence, uint index, bool from_last,
			      uint tid_of, uint sg_of, uint lane_of) thread
	{
		const uint tile = index / args.n_kv_heads;
		device const int *rows = step_array<int>(step, step->seq_rows) + sequence;
		first_row = uint(rows[0]);
		per_kv = args.n_heads / args.n_kv_heads;
		n_queries = (uint(rows[1]) - first_row) * per_kv;
		const uint tiles = (n_queries + queries - 1) / queries;
		if (tile >= tiles)
			return false;
		// the tiles with the most positions start first
		first_query = (from_last ? tiles - 1 - tile : tile) * queries;
		kv_head = index % args.n_kv_heads;
		head_dim = args.head_dim;
		scale = args.scale;
		tid = tid_of;
		sg = sg_of;
		lane = lane_of;
		cache = pages_of(step, args.group, args.layer, sequence, kv_head);
		anywhere = (device const uchar *)step;
		positions = step_array<int>(step, step->positions);
		q = (threadgroup T *)shared;
		kv = q + queries * q_stride;
		s = (threadgroup float *)(kv + buffers * buffer);
		notes = s + queries * s_stride;

		const uint last_query = min(first_query + queries, n_queries) - 1;
		lowest = first_seen(uint(positions[row_of(0)]), args.window);
		highest = uint(positions[first_row + last_query / per_kv]);
		const uint mine = tid / parts;
		const bool have = there(mine);
		hi = have ? uint(positions[row_of(mine)]) : 0;
		lo = have ? first_seen(hi, args.window) : 1;
		top = nothing_seen;
		sum = 0.0f;
		clear();
		return true;
	}

	METAL_FUNC void clear() thread
	{
		UNROLL
		for (int c = 0; c < chunks; c++)
			UNROLL
		for (int m = 0; m < M; m++)
			UNROLL
		for (int n = 0; n < columns; n++)
			fragment_clear(acc[c][m][n]);
	}

	METAL_FUNC void fetch_q(device const T *from, uint stride) thread
	{
		constexpr int per_row = D / in_16;
		for (uint i = tid; i < uint(queries * per_row); i += ATTENTION_THREADS) {
			const uint query = i / per_row, column = i % per_row * in_16;
			const bool have = there(query) && column < head_dim;
			device const T *p = from;
			if (have)
				p += ulong(row_of(query)) * stride + head_of(query) * head_dim +
				     column;
			copy_16((threadgroup uchar *)(q + query * q_stride + column),
				(device const uchar *)p, have);
		}
	}

	// The blocks of the sub-step at t that any query attends to.
	METAL_FUNC void find(uint t) thread
	{
		UNROLL
		for (int i = 0; i < token_blocks; i++) {
			const uint from = t + i * 16;
			const bool seen = from <= highest && from + 15 >= lowest;
			block[i] = seen ? pages_block(cache, from / 16) : anywhere;
		}
	}

	// A chunk of K, or of V at v_offset, of the sub-step at t; zeros for tokens that no query
	// attends to, whose memory may have any contents.
	METAL_FUNC void fetch(threadgroup T *to, uint offset, uint t, uint column0) thread
	{
		constexpr int per_row = chunk / in_16;
		constexpr int units = tokens * per_row;
		UNROLL
		for (int n = 0; n < (units + ATTENTION_THREADS - 1) / ATTENTION_THREADS; n++) {
			const uint i = tid + n * ATTENTION_THREADS;
			if (units % ATTENTION_THREADS != 0 && i >= uint(units))
				continue;
			const uint token = i / per_row, at = i % per_row * in_16,
				   column = column0 + at;
			const bool have =
				t + token >= lowest && t + token <= highest && column < head_dim;
			device const uchar *p = token < 16 ? block[0] : block[token_blocks - 1];
			p = have ? p + token % 16 * cache.token_stride + offset +
					    column * sizeof(T) :
				   anywhere;
			copy_16((threadgroup uchar *)(to + token * kv_stride + at), p, have);
		}
	}

	METAL_FUNC void fetch_ahead(uint t, uint stage) thread
	{
		find(t);
		fetch(kv + 2 * stage * buffer, 0, t, 0);
		copy_commit();
		fetch(kv + (2 * stage + 1) * buffer, cache.v_offset, t, 0);
		copy_commit();
	}

	// Scores of chunk c of the columns.
	METAL_FUNC void dot_k(thread fragment_sum (&x)[blocks], threadgroup const T *k,
			      int c) thread
	{
		fragment<T> a, b;
		const uint first = sg * blocks;
		if (first >= uint(M * token_blocks))
			return;
		UNROLL
		for (int i = 0; i < chunk / 16; i++) {
			fragment_load(a,
				      q + first / token_blocks * 16 * q_stride + c * chunk + i * 16,
				      q_stride, lane);
			UNROLL
			for (int n = 0; n < blocks; n++) {
				fragment_load_columns(
					b, k + (first + n) % token_blocks * 16 * kv_stride + i * 16,
					kv_stride, lane);
				fragment_mma(x[n], a, b, lane);
			}
		}
	}

	METAL_FUNC void put_scores(thread fragment_sum (&x)[blocks]) thread
	{
		const uint first = sg * blocks;
		if (first >= uint(M * token_blocks))
			return;
		UNROLL
		for (int n = 0; n < blocks; n++) {
			threadgroup float *to = s + first / token_blocks * 16 * s_stride +
						(first + n) % token_blocks * 16;
			UNROLL
			for (int i = 0; i < 4; i++)
				*(threadgroup float2 *)(to + fragment_row(i, lane) * s_stride +
							fragment_column(i, lane)) =
					fragment_pair(x[n], i);
		}
	}

	// Convert the scores of the sub-step at t to weights.
	METAL_FUNC void weigh(uint t) thread
	{
		const uint mine = tid / parts, first = tid % parts * each;
		threadgroup const float *from = s + mine * s_stride + first;
		float x[each];
		float largest = nothing_seen;
		UNROLL
		for (int j = 0; j < each; j++) {
			const uint position = t + first + j;
			x[j] = position >= lo && position <= hi ? from[j] : nothing_seen;
			largest = max(largest, x[j]);
		}
		UNROLL
		for (int by = 1; by < parts; by *= 2)
			largest = max(largest, simd_shuffle_xor(largest, ushort(by)));
		const float new_top = largest == nothing_seen ? top : max(top, largest * scale);
		const float shrink = merge_share(top, new_top);
		T w[each];
		float total[M];
		UNROLL
		for (int m = 0; m < M; m++) {
			total[m] = 0.0f;
			UNROLL
			for (int j = m * eighth; j < (m + 1) * eighth; j++) {
				const uint position = t + first + j;
				const float weight = exp2(fma(x[j], scale, -new_top));
				w[j] = T(position >= lo && position <= hi ? weight : 0.0f);
				total[m] += float(w[j]);
			}
		}
		UNROLL
		for (int by = 1; by < M; by *= 2)
			UNROLL
		for (int m = 0; m + by < M; m += 2 * by)
			total[m] += total[m + by];
		UNROLL
		for (int by = 1; by < parts; by *= 2)
			total[0] += simd_shuffle_xor(total[0], ushort(by));
		sum = fma(sum, shrink, total[0]);
		top = new_top;
		simdgroup_barrier(mem_flags::mem_threadgroup); // scores were read
		threadgroup T *to = (threadgroup T *)s + mine * p_stride + first;
		UNROLL
		for (int j = 0; j < each; j++)
			to[j] = w[j];
		if (tid % parts == 0)
			notes[mine] = shrink;
	}

	METAL_FUNC void shrink_sums() thread
	{
		UNROLL
		for (int m = 0; m < M; m++)
			UNROLL
		for (int i = 0; i < 4; i++) {
			const float by = notes[m * 16 + fragment_row(i, lane)];
			UNROLL
			for (int c = 0; c < chunks; c++)
				UNROLL
			for (int n = 0; n < columns; n++)
				fragment_set(acc[c][m][n], i, fragment_pair(acc[c][m][n], i) * by);
		}
	}

	METAL_FUNC void add_v(threadgroup const T *v, int c) thread
	{
		fragment<T> a[M], b;
		threadgroup const T *p = (threadgroup const T *)s;
		UNROLL
		for (int k = 0; k < token_blocks; k++) {
			UNROLL
			for (int m = 0; m < M; m++)
				fragment_load(a[m], p + m * 16 * p_stride + k * 16, p_stride, lane);
			UNROLL
			for (int n = 0; n < columns; n++) {
				const uint column = (sg * columns + n) * 16;
				if (column >= uint(chunk))
					continue;
				fragment_load_inner(b, v + k * 16 * kv_stride + column, kv_stride,
						    lane);
				UNROLL
				for (int m = 0; m < M; m++)
					fragment_mma(acc[c][m][n], a[m], b, lane);
			}
		}
	}

	// The sub-step at t.  `ahead`: another one follows.
	METAL_FUNC void sub_step(uint t, uint stage, bool ahead) thread
	{
		threadgroup T *k = async ? kv + 2 * stage * buffer : kv;
		threadgroup T *v = async ? k + buffer : kv;
		fragment_sum x[blocks];

		if (!async) {
			find(t);
		} else if (ahead) {
			fetch_ahead(t + tokens, stage ^ 1);
			copy_await<3>();
		} else {
			copy_await<1>();
		}
		UNROLL
		for (int n = 0; n < blocks; n++)
			fragment_clear(x[n]);
		UNROLL
		for (int c = 0; c < chunks; c++) {
			if (!async)
				fetch(k, 0, t, c * chunk);
			threadgroup_barrier(mem_flags::mem_threadgroup);
			dot_k(x, k, c);
			if (!async)
				threadgroup_barrier(mem_flags::mem_threadgroup);
		}
		put_scores(x);
		if (!async)
			fetch(v, cache.v_offset, t, 0);
		threadgroup_barrier(mem_flags::mem_threadgroup);
		weigh(t);
		if (async && ahead)
			copy_await<2>();
		else if (async)
			copy_await<0>();
		threadgroup_barrier(mem_flags::mem_threadgroup);
		shrink_sums();
		UNROLL
		for (int c = 0; c < chunks; c++) {
			if (c > 0) {
				threadgroup_barrier(mem_flags::mem_threadgroup);
				fetch(v, cache.v_offset, t, c * chunk);
				threadgroup_barrier(mem_flags::mem_threadgroup);
			}
			add_v(v, c);
		}
	}
};

// Grid: tile and KV head, range, sequence.
//   outs   [partial][head][head_dim]: sums of p V
//   tops   [partial][head]: the score that they are relative to, the sum of p
template <typename T, int D>
[[max_total_threads_per_threadgroup(ATTENTION_THREADS)]] kernel void attention_split(
	constant attention_args &args [[buffer(0)]], device const step_head *step [[buffer(1)]],
	device const T *q [[buffer(2)]], device float *outs [[buffer(3)]],
	device float2 *tops [[buffer(4)]], threadgroup uchar *shared [[threadgroup(0)]],
	uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
	uint lane [[thread_index_in_simdgroup]], uint sg [[simdgroup_index_in_threadgroup]])
{
	typedef attention_tile<T, D, 1> tile_type;
	const uint sequence = group.z, start = group.y * STEP_RANGE;
	if (sequence >= step->n_seqs)
		return;
	device const uint *partials = step_array<uint>(step, step->partials);
	const uint first_row = uint(step_array<int>(step, step->seq_rows)[sequence]);
	if (first_row >= step->n_rows || partials[first_row] == STEP_NONE)
		return;
	tile_type t;
	if (!t.begin(args, step, shared, sequence, group.x, false, tid, sg, lane))
		return;
	const uint end = start + STEP_RANGE - 1;
	if (t.lowest > end || t.highest < start)
		return;
	const uint first = max(t.lowest / tile_type::tokens * tile_type::tokens, start);
	const uint last = min(t.highest, end);

	t.fetch_q(q, args.q_stride);
	if (tile_type::async)
		t.fetch_ahead(first, 0);
	uint stage = 0;
	for (uint at = first; at <= last; at += tile_type::tokens) {
		t.sub_step(at, stage, at + tile_type::tokens <= last);
		threadgroup_barrier(mem_flags::mem_threadgroup);
		stage ^= 1;
	}

	const uint mine = tid / tile_type::parts;
	if (tid % tile_type::parts == 0 && t.there(mine) && t.lo <= end && t.hi >= start)
		tops[ulong(partials[t.row_of(mine)] + group.y) * args.n_heads + t.head_of(mine)] =
			float2(t.top, t.sum);
	UNROLL
	for (int i = 0; i < 4; i++) {
		const uint query = fragment_row(i, lane);
		const uint row = t.row_of(t.there(query) ? query : 0), hi = uint(t.positions[row]);
		const bool seen =
			t.there(query) && first_seen(hi, args.window) <= end && hi >= start;
		device float *to =
			outs + (ulong(partials[row] + group.y) * args.n_heads + t.head_of(query)) *
				       args.head_dim;
		UNROLL
		for (int c = 0; c < tile_type::chunks; c++)
			UNROLL
		for (int n = 0; n < tile_type::columns; n++) {
			const uint in_chunk =
				(sg * tile_type::columns + n) * 16 + fragment_column(i, lane);
			const uint column = c * tile_type::chunk + in_chunk;
			const float2 v = fragment_pair(t.acc[c][0][n], i);
			if (seen && in_chunk < uint(tile_type::chunk) && column < args.head_dim)
				*(device float2 *)(to + column) = v;
		}
	}
}

// Grid: tile and KV head, sequence.
template <typename T, int D, int M>
[[max_total_threads_per_threadgroup(ATTENTION_THREADS)]] kernel void
attention_loop(constant attention_args &args [[buffer(0)]],
	       device const step_head *step [[buffer(1)]], device const T *q [[buffer(2)]],
	       device uchar *y [[buffer(3)]], threadgroup uchar *shared [[threadgroup(0)]],
	       uint3 group [[threadgroup_position_in_grid]],
	       uint tid [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
	       uint sg [[simdgroup_index_in_threadgroup]])
{
	typedef attention_tile<T, D, M> tile_type;
	const uint sequence = group.y;
	if (sequence >= step->n_seqs)
		return;
	const uint first_row = uint(step_array<int>(step, step->seq_rows)[sequence]);
	if (first_row >= step->n_rows ||
	    step_array<uint>(step, step->partials)[first_row] != STEP_NONE)
		return;
	tile_type t;
	if (!t.begin(args, step, shared, sequence, group.x, true, tid, sg, lane))
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
			const float new_top = max(all_top, t.top);
			const float a = merge_share(all_top, new_top),
				    b = merge_share(t.top, new_top);
			all_top = new_top;
			all_sum = fma(all_sum, a, t.sum * b);
			t.top = nothing_seen;
			t.sum = 0.0f;
			if (tid % tile_type::parts == 0) {
				t.notes[tile_type::queries + mine] = a;
				t.notes[2 * tile_type::queries + mine] = b;
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
		t.notes[mine] = 1.0f / all_sum;
	threadgroup_barrier(mem_flags::mem_threadgroup);
	UNROLL
	for (int m = 0; m < M; m++)
		UNROLL
	for (int i = 0; i < 4; i++) {
		const uint query = m * 16 + fragment_row(i, lane);
		const bool there = t.there(query);
		const float share = t.notes[query];
		device uchar *to = y + (ulong(t.row_of(query)) * args.y_stride +
					t.head_of(query) * args.head_dim) *
					       element_bytes(args.y_type);
		UNROLL
		for (int c = 0; c < tile_type::chunks; c++)
			UNROLL
		for (int n = 0; n < tile_type::columns; n++) {
			const uint in_chunk =
				(sg * tile_type::columns + n) * 16 + fragment_column(i, lane);
			const uint column = c * tile_type::chunk + in_chunk;
			const float2 v = fragment_pair(all[c][m][n], i) * share;
			if (there && in_chunk < uint(tile_type::chunk) && column < args.head_dim)
				store_pair(to, column, v, args.y_type);
		}
	}
}

#define ATTENTION_INSTANCES(name, T, D)                                                            \
	instantiate_kernel("attention_split_" name, attention_split, T, D)                         \
	instantiate_kernel("attention_loop_" name, attention_loop, T, D,                           \
			   ATTENTION_LOOP_TILES(sizeof(T), D, COPIES_ASYNC))
