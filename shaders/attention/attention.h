// attention.h: causal attention over the cached blocks of a row's sequence, and attention among the rows
// of one text in the step (attention_rows.metal).
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
//   weights, rounded as V's tile is, are summed in eight parts and a tree; p V ascends;
//   ranges start from zero and are merged in ascending order (merge_share), then the sink.
// A sub-step or range that a query does not attend to leaves its sums unchanged.
//
// Codes of Q8_0 are multiplied by their scales where tiles are filled, on NVIDIA where products load their
// operands, and rounded once, to half: the bits are those of a float16 cache with these values.
//
//   attention_split   one range of one tile of queries: partial results to memory (attention_split.h)
//   attention_merge   the partial results of a query (attention.metal)
//   attention_loop    all ranges of one tile of queries, one after the other (attention_loop.h)
//   attention_stream  the same on NVIDIA's sm_90, in warpgroup products (attention_stream.h)
//   attention_whole   all ranges of a tile at once, by a cluster (attention_whole.h)
//   attention_group_split, attention_group_whole   the same as split and whole on NVIDIA, for small heads
//                     (attention_group.h, group_kernels.h)
//
// This file has what they share: a tile of queries, and one sub-step of it.
#pragma once

#include <metal_stdlib>
#include "../portable.h"
#include "../early.h"
#include "../args.h"
#include "../step.h"
#include "pages.h"
#include "fragments.h"
#include "sizes.h"
#include "codes.h"

using namespace metal;

// Less than every score; finite, so that a difference of two is not NaN.
constant constexpr float nothing_seen = -1e30f;

METAL_FUNC uint first_seen(uint position, uint window)
{
	return window != 0 && position >= window ? position + 1 - window : 0;
}

// The factor of sums relative to `from` when they are relative to `to` >= from.
METAL_FUNC float merge_share(float from, float to) { return from == to ? 1.0f : exp2(from - to); }

// Merges a range, of which `part` has the score that its sums are relative to and the sum of its weights, into a
// query's; returns what its earlier sums and the range's are multiplied by.
METAL_FUNC float2 merge_range(thread float &top, thread float &sum, float2 part)
{
	const float new_top = max(top, part.x);
	const float2 by = float2(merge_share(top, new_top), merge_share(part.x, new_top));
	top = new_top;
	sum = fma(sum, by.x, part.y * by.y);
	return by;
}

// Whether the step has the sequence and splits it over its ranges, or, unless `split`, loops over them.
METAL_FUNC bool attention_has(device const step_head *step, uint sequence, bool split)
{
	if (sequence >= step->n_seqs)
		return false;
	const uint first_row = uint(step_array<int>(step, step->seq_rows)[sequence]);
	return first_row < step->n_rows &&
	       (step_array<uint>(step, step->partials)[first_row] != STEP_NONE) == split;
}

// A threadgroup of four simdgroups that computes 16 * M queries.  T: the type of q, and of the
// cache unless Q8: then K, V or both are Q8_0, and T is half; D: columns, head_dim rounded up.
// ROWS: there is no cache; K and V are columns of the rows that q is in, and rows see what is ahead.
//
//   scores    a simdgroup has `blocks` consecutive ones of the M x tokens / 16 fragments
//   weigh  thread i has part i % parts of the scores of query i / parts
//   p V       a simdgroup has `columns` neighbouring fragments of columns of each chunk
template <typename T, int D, int M, bool Q8, bool ROWS> struct attention_tile {
	static constexpr constant bool async = COPIES_ASYNC;
	static constexpr constant int tokens = ATTENTION_TOKENS(sizeof(T));
	static constexpr constant int width = D;
	static constexpr constant int q_stride = ATTENTION_STRIDE(sizeof(T), D);
	static constexpr constant int chunk = ATTENTION_CHUNK(D, COPIES_ASYNC);
	static constexpr constant int chunks = D / chunk;
	static constexpr constant int kv_stride = ATTENTION_STRIDE(sizeof(T), chunk);
	static constexpr constant int buffer =
		ATTENTION_BUFFER_ELEMENTS(sizeof(T), D, COPIES_ASYNC);
	static constexpr constant int k_stride =
		ATTENTION_STRIDE(2, tokens); // of a tile from codes
	static constexpr constant int s_stride = ATTENTION_SCORE_STRIDE(sizeof(T));
	static constexpr constant int p_stride =
		s_stride * 4 / sizeof(T); // weights overwrite their scores
	static constexpr constant int queries = 16 * M;
	static constexpr constant int token_blocks = tokens / 16;
	static constexpr constant int blocks =
		(M * token_blocks + ATTENTION_SGS - 1) / ATTENTION_SGS;
	static constexpr constant int columns = (chunk / 16 + ATTENTION_SGS - 1) / ATTENTION_SGS;
	static constexpr constant int parts =
		queries < ATTENTION_THREADS ? ATTENTION_THREADS / queries : 1;
	static constexpr constant int each = tokens / parts; // scores of a thread
	static constexpr constant int eighth = tokens / 8;
	static constexpr constant int in_16 = 16 / sizeof(T); // elements in a copy

	threadgroup T *q;	  // [queries][q_stride]
	threadgroup T *kv;	  // ATTENTION_KV_ELEMENTS: operand()
	threadgroup float *s;	  // [queries][s_stride]
	threadgroup float *notes; // [ATTENTION_NOTES][queries]

	pages cache;
	device const uchar *anywhere;		 // a readable address
	device const uchar *rows_k;		 // of ROWS: K of the text's first row
	device const uchar *block[token_blocks]; // of the sub-step that is fetched
	device const int *positions,
		*sees_to; // [row]; unless ROWS, the same without rows that see ahead
	uint k_type, v_type;
	uint first_row, first_query, n_queries, per_kv, kv_head, head_dim;
	uint last_position, rows_ahead; // of ROWS
	uint lowest, highest;		// positions that any query attends to
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

	// The last position that a row attends to.
	METAL_FUNC uint last_seen(uint row) thread
	{
		const uint position = uint(positions[row]);
		if (!ROWS)
			return uint(sees_to[row]);
		return rows_ahead < last_position - position ? position + rows_ahead :
							       last_position;
	}

	// The same of the rows first … last.
	METAL_FUNC uint last_seen_by(uint first, uint last) thread
	{
		uint most = last_seen(last);
		if (!ROWS && sees_to != positions)
			for (uint row = first; row < last; row++)
				most = max(most, last_seen(row));
		return most;
	}

	// Where K and V are.
	METAL_FUNC void locate(constant attention_args &args, device const step_head *step,
			       device const T *q_of, uint sequence) thread
	{
		if (ROWS) {
			const uint heads = args.n_heads + kv_head;
			cache.token_stride = args.q_stride * uint(sizeof(T));
			cache.v_offset = args.n_kv_heads * head_dim * uint(sizeof(T));
			rows_k = (device const uchar *)(q_of + ulong(first_row) * args.q_stride +
							heads * head_dim);
			return;
		}
		cache = pages_of(step, args.group, args.layer, sequence, kv_head);
		if ((args.flags & ATTENTION_V_IN_K) != 0)
			cache.v_offset = 0;
	}

	// index: of tile and KV head in the grid.  False: there is no such tile.  What weigh needs is found here, too, though some
	// kernels do not weigh: as a function of its own it made ptxas serialise attention_stream's products (C7518).
	METAL_FUNC bool begin(constant attention_args &args, device const step_head *step,
			      device const T *q_of, threadgroup uchar *shared, uint sequence,
			      uint index, bool from_last, uint tid_of, uint sg_of,
			      uint lane_of) thread
	{
		const uint tile = index / args.n_kv_heads;
		device const int *rows = step_array<int>(step, step->seq_rows) + sequence;
		first_row = uint(rows[0]);
		per_kv = args.n_heads / args.n_kv_heads;
		n_queries = (uint(rows[1]) - first_row) * per_kv;
		last_position = uint(rows[1]) - first_row - 1;
		rows_ahead = args.ahead;
		const uint tiles = (n_queries + queries - 1) / queries;
		if (tile >= tiles)
			return false;
		// the tiles with the most positions start first
		first_query = (from_last ? tiles - 1 - tile : tile) * queries;
		kv_head = index % args.n_kv_heads;
		head_dim = args.head_dim;
		k_type = args.k_type;
		v_type = args.v_type;
		scale = args.scale;
		tid = tid_of;
		sg = sg_of;
		lane = lane_of;
		locate(args, step, q_of, sequence);
		anywhere = (device const uchar *)step;
		positions = step_array<int>(step, step->positions);
		sees_to = (args.flags & ATTENTION_SPANS) != 0 ?
				  step_array<int>(step, step->sees_to) :
				  positions;
		q = (threadgroup T *)shared;
		kv = q + queries * q_stride;
		s = (threadgroup float *)(kv +
					  ATTENTION_KV_ELEMENTS(sizeof(T), D, COPIES_ASYNC, Q8));
		notes = s + queries * s_stride;

		const uint last_query = min(first_query + queries, n_queries) - 1;
		lowest = first_seen(uint(positions[row_of(0)]), args.window);
		highest = last_seen_by(row_of(0), first_row + last_query / per_kv);
		const uint mine = tid / parts;
		const bool have = there(mine);
		const uint position = have ? uint(positions[row_of(mine)]) : 0;
		hi = have ? last_seen(row_of(mine)) : 0;
		lo = have ? first_seen(position, args.window) : 1;
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

	// Whether any query attends to the block at t.
	METAL_FUNC bool seen(uint t) thread { return t <= highest && t + 15 >= lowest; }

	// The blocks of the sub-step at t that any query attends to.
	METAL_FUNC void find(uint t) thread
	{
		UNROLL
		for (int i = 0; i < token_blocks; i++) {
			const uint from = t + i * 16;
			if (!seen(from))
				block[i] = anywhere;
			else if (ROWS)
				block[i] = rows_k + ulong(from) * cache.token_stride;
			else
				block[i] = pages_block(cache, from / 16);
		}
	}

	METAL_FUNC device const uchar *block_of(uint i) thread
	{
		return i == 0 ? block[0] : block[token_blocks - 1];
	}

	// Whether K, or V, is Q8_0.
	METAL_FUNC bool coded(bool v) thread { return Q8 && (v ? v_type : k_type) == ELEMENT_Q8_0; }

	// Where K or V is: asynchronous copies have a buffer for each, of a stage.
	METAL_FUNC threadgroup T *operand(bool v, uint stage) thread
	{
		return async ? kv + (2 * stage + (v ? 1 : 0)) * buffer : kv;
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
			device const uchar *p = have ? block_of(token / 16) +
								token % 16 * cache.token_stride +
								offset + column * sizeof(T) :
						       anywhere;
			copy_16((threadgroup uchar *)(to + token * kv_stride + at), p, have);
		}
	}

#if COPIES_ASYNC
	// Codes and scales of the sub-step at t, as they are, V's codes at code_place; of a block
	// that no query attends to zeros.  Half of the threads have a block.
	METAL_FUNC void fetch_codes(threadgroup uchar *to, bool v, uint t) thread
	{
		constexpr int most = PAGES_Q8_BYTES(D) / 16, threads = ATTENTION_THREADS / 2;
		static_assert(token_blocks == 2 || !Q8, "a block for each half");
		const uint b = tid / threads, pieces = PAGES_Q8_BYTES(head_dim) / 16;
		const bool have = seen(t + b * 16);
		device const uchar *from = have ? block_of(b) + (v ? cache.v_offset : 0) : anywhere;
		to += b * PAGES_Q8_BYTES(D);
		UNROLL
		for (int n = 0; n < (most + threads - 1) / threads; n++) {
			const uint piece = tid % threads + n * threads;
			const uint at = v && piece < head_dim ? code_place(piece) : piece;
			if (piece < pieces)
				copy_16(to + at * 16, have ? from + piece * 16 : from, have);
		}
	}

#else
	METAL_FUNC void fetch_codes(threadgroup uchar *, bool, uint) thread {}
#endif

	METAL_FUNC void fetch_ahead(uint t, uint stage) thread
	{
		find(t);
		fetch_found(t, stage);
	}
	METAL_FUNC void fetch_found(uint t, uint stage) thread
	{
		UNROLL
		for (int v = 0; v < 2; v++) {
			threadgroup T *to = operand(v != 0, stage);
			if (coded(v != 0))
				fetch_codes((threadgroup uchar *)to, v != 0, t);
			else
				fetch(to, v != 0 ? cache.v_offset : 0, t, 0);
			copy_commit();
		}
	}

	// A chunk of K or V of the sub-step at t for the products, where copies are not asynchronous: from the
	// cache, or from codes.
	METAL_FUNC void fill(bool v, uint t, uint column0) thread
	{
#if !COPIES_ASYNC
		if (!coded(v))
			fetch(kv, v ? cache.v_offset : 0, t, column0);
		else if (v)
			decode_v(*this, t, column0);
		else
			decode_k(*this, t, column0);
#endif
	}

	// Scores of chunk c of the columns.
	METAL_FUNC void dot_k(thread fragment_sum (&x)[blocks], uint stage, int c) thread
	{
#if COPIES_ASYNC
		if (coded(false)) {
			dot_codes(*this, x, stage);
			return;
		}
#endif
		threadgroup const T *k = operand(false, stage);
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
				const uint token = (first + n) % token_blocks * 16;
				if (coded(false))
					fragment_load_inner(b, k + i * 16 * k_stride + token,
							    k_stride, lane);
				else
					fragment_load_columns(b, k + token * kv_stride + i * 16,
							      kv_stride, lane);
				fragment_mma(x[n], a, b, lane);
			}
		}
	}

	METAL_FUNC void put_scores(thread fragment_sum (&x)[blocks]) thread
	{
#if COPIES_ASYNC
		if (coded(false)) {
			put_code_scores(*this, x);
			return;
		}
#endif
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
				const float weight = weight_of<T>(fma(x[j], scale, -new_top));
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

	METAL_FUNC void add_v(uint t, uint stage, int c) thread
	{
#if COPIES_ASYNC
		if (coded(true)) {
			add_codes(*this, t, stage);
			return;
		}
#endif
		threadgroup const T *v = operand(true, stage);
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
				fill(false, t, c * chunk);
			threadgroup_barrier(mem_flags::mem_threadgroup);
			dot_k(x, stage, c);
			if (!async)
				threadgroup_barrier(mem_flags::mem_threadgroup);
		}
		put_scores(x);
		if (!async)
			fill(true, t, 0);
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
				fill(true, t, c * chunk);
				threadgroup_barrier(mem_flags::mem_threadgroup);
			}
			add_v(t, stage, c);
		}
	}

	// Pair i of fragment n of a chunk's sums, and its first column in the chunk.  With codes of V a lane
	// has sums of four neighbouring columns of a row.
	METAL_FUNC uint column_in_chunk(int n, int i) thread
	{
		const uint first = (sg * columns + n) * 16;
#if COPIES_ASYNC
		if (coded(true))
			return first + lane % 4 * 4 + i / 2 * 2;
#endif
		return first + fragment_column(i, lane);
	}
	METAL_FUNC float2 pair_in_order(thread fragment_sum &sums, int i) thread
	{
#if COPIES_ASYNC
		if (coded(true)) {
			const int at = i % 2 * 2 + i / 2;
			return float2(sums.r[at], sums.r[at + 4]);
		}
#endif
		return fragment_pair(sums, i);
	}
};
