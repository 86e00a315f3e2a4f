// attention_group.h: what attention_split and attention_whole do, with the same bits, a group of four sub-steps at a time, for
// heads of up to 128 columns in 16 bits or codes.  NVIDIA's.
//
// Each of the four simdgroups has the scores of one sub-step, and makes its weights when all have said what their largest
// scores are.  Then each adds p V of the whole group to its columns of the sums.  So there are two barriers for 128 tokens.
//
// Tokens are the rows of the products and queries their columns, eight or sixteen: a tile of few queries has few sums.  A row
// of 16 tokens' product is one token of each pair and then the other one of each, as K's codes lie in memory.  Copies put
// rows of halves and V's codes into this order; a product of 16 k does not depend on theirs.
#pragma once

#include <metal_stdlib>
#include "../portable.h"
#include "attention.h"

using namespace metal;

#if COPIES_ASYNC

// Where a token of a block is.
METAL_FUNC uint group_row(uint token) { return token % 2 * 8 + token / 2; }

// K and V of one range on their way: of each group a simdgroup copies its own sub-step.
template <int D, bool Q8> struct group_copies {
	typedef attention_tile<half, D, 1, Q8, false> tile_type;
	static constexpr constant uint tokens = ATTENTION_TOKENS(2), v_groups = GROUP_VALUES(D);
	static constexpr constant uint row = GROUP_ROW(D);
	// Of halves: 16 bytes that a row has, or would have, and rows that are copied together.
	static constexpr constant uint in_row = D <= 32 ? 4 : D <= 64 ? 8 : 16, rows = 32 / in_row;

	threadgroup uchar *at;
	uint operand;		    // bytes of K, or V, of a sub-step
	device const uchar *block;  // lane i has the sub-step's blocks of group i / 2
	uint from, from_step, to;   // of this lane's halves, in a block and in an operand
	uint places[(D + 31) / 32]; // of its codes of V
	bool has, pads;		    // halves to copy; zeros for columns that heads do not have

	METAL_FUNC void begin(thread tile_type &o, threadgroup uchar *shared, uint first, uint sg,
			      uint lane) thread
	{
		const uint nth = lane % in_row, of_row = lane / in_row;
		const uint t = first + (lane / 2 * 4 + sg) * tokens + lane % 2 * 16;
		at = shared;
		operand = Q8 && o.coded(false) && o.coded(true) ? GROUP_CODES(D) : GROUP_HALVES(D);
		block = lane < 2 * (STEP_RANGE / GROUP_TOKENS) && o.seen(t) ?
				pages_block(o.cache, t / 16) :
				o.anywhere;
		has = nth * 8 < uint(D);
		pads = nth * 8 >= o.head_dim;
		from = of_row * o.cache.token_stride + nth * 16;
		from_step = rows * o.cache.token_stride;
		to = group_row(of_row) * row + nth * 16;
		if (Q8)
			UNROLL
		for (uint i = 0; i < D / 32; i++) {
			const uint piece = i * 32 + lane;
			places[i] = code_place(group_row(piece / (D / 16)) * (D / 16) +
					       piece % (D / 16));
		}
	}

	// Where K of a simdgroup's sub-step is, and V of one of a group.
	METAL_FUNC threadgroup uchar *k_of(uint sg) thread { return at + sg * operand; }
	METAL_FUNC threadgroup uchar *v_of(uint group, uint nth) thread
	{
		return at + (4 + group % v_groups * 4 + nth) * operand;
	}
	// Behind them.
	METAL_FUNC threadgroup uchar *end() thread { return at + (4 + 4 * v_groups) * operand; }

	// Of the block at t of halves; zeros for tokens that no query attends to.
	METAL_FUNC void copy_halves(thread tile_type &o, threadgroup uchar *into,
				    device const uchar *source, uint t, uint lane) thread
	{
		const bool all_of = t >= o.lowest && t + 15 <= o.highest && o.head_dim == uint(D);
		if (all_of) {
			UNROLL
			for (uint i = 0; i < 16 / rows; i++)
				if (has)
					nv_cp_async_16(into + to + i * (rows / 2 * row),
						       source + (from + i * from_step));
			return;
		}
		_Pragma("clang loop unroll(disable)") for (uint i = 0; i < 16 / rows; i++)
		{
			const uint token = t + i * rows + lane / in_row;
			const bool have = token >= o.lowest && token <= o.highest && !pads;
			if (has)
				copy_16(into + to + i * (rows / 2 * row),
					have ? source + (from + i * from_step) : o.anywhere, have);
		}
	}

	// Of a block of codes, which heads of D columns have, and their scales; zeros if no query attends to it.
	METAL_FUNC void copy_codes(thread tile_type &o, threadgroup uchar *into, bool v,
				   device const uchar *source, bool have, uint lane) thread
	{
		UNROLL
		for (uint i = 0; i < D / 32; i++)
			copy_16(into + (v ? places[i] : i * 32 + lane) * 16,
				have ? source + (i * 32 + lane) * 16 : o.anywhere, have);
		if (lane < D / 16)
			copy_16(into + (D + lane) * 16,
				have ? source + (D + lane) * 16 : o.anywhere, have);
	}

	// Begins to copy K, or V, of the simdgroup's sub-step of a group, which is at t.
	METAL_FUNC void fetch(thread tile_type &o, threadgroup uchar *into, bool v, uint group,
			      uint t, uint lane) thread
	{
		_Pragma("clang loop unroll(disable)") for (uint b = 0; b < tokens / 16; b++)
		{
			const ushort i = ushort(group * 2 + b);
			const uint2 half_of = as_type<uint2>(ulong(block));
			device const uchar *source =
				(device const uchar *)as_type<ulong>(uint2(
					simd_shuffle(half_of.x, i), simd_shuffle(half_of.y, i))) +
				(v ? o.cache.v_offset : 0);
			if (Q8 && o.coded(v))
				copy_codes(o, into + b * PAGES_Q8_BYTES(D), v, source,
					   o.seen(t + b * 16), lane);
			else
				copy_halves(o, into + b * 16 * row, source, t + b * 16, lane);
		}
	}
	// The same of the second group, if the range has it; ends a group of copies.
	METAL_FUNC void fetch_next(thread tile_type &o, threadgroup uchar *into, bool v, uint t,
				   uint last, uint lane) thread
	{
		if (t <= last)
			fetch(o, into, v, 1, t, lane);
		copy_commit();
	}
};

// Eight times N queries: a lane has two of each eight, and of every block's scores two neighbouring tokens.
template <int D, bool Q8, int N> struct group_queries {
	typedef group_copies<D, Q8> copies_type;
	typedef typename copies_type::tile_type tile_type;
	static constexpr constant uint tokens = copies_type::tokens, blocks = tokens / 16;
	static constexpr constant int eights = N, tiles = (D / 16 + 3) / 4; // of 16 columns

	float acc[tiles][N][4];
	uint q[D / 16][N][2];
	float x[blocks][N][4];
	float top[N][2], sum[N][2];
	uint low[N][2], beyond[N][2]; // the first position that is seen, and how many after it
	threadgroup half *weights;    // [N][token][8 queries]
	threadgroup float *most;      // [2][simdgroup][16 queries]: the largest scores
	threadgroup float *total;     // [simdgroup][16 queries]: the sums of weights
	uint sg, lane;
	bool here; // whether the range has the simdgroup's sub-step of a group

	METAL_FUNC uint query(int n, int e) thread { return n * 8 + lane % 4 * 2 + e; }

	METAL_FUNC void begin(constant attention_args &args, thread tile_type &o,
			      thread copies_type &copies, uint sg_of, uint lane_of) thread
	{
		sg = sg_of;
		lane = lane_of;
		weights = (threadgroup half *)copies.end();
		most = (threadgroup float *)(weights + GROUP_TOKENS * 16);
		total = most + 2 * 4 * 16;
		UNROLL
		for (int n = 0; n < N; n++)
			UNROLL
		for (int e = 0; e < 2; e++) {
			const uint mine = query(n, e);
			low[n][e] = 0; // of a query that is not there, whatever becomes of it
			beyond[n][e] = 0xffffffff;
			if (o.there(mine)) {
				const uint row = o.row_of(mine), last = o.last_seen(row);
				low[n][e] = first_seen(uint(o.positions[row]), args.window);
				beyond[n][e] = last - low[n][e];
			}
			top[n][e] = nothing_seen;
			sum[n][e] = 0.0f;
			UNROLL
			for (int j = 0; j < tiles; j++)
				acc[j][n][e] = acc[j][n][2 + e] = 0.0f;
		}
	}

	// The queries, as right operands.
	METAL_FUNC void load(thread tile_type &o, device const half *from, uint stride) thread
	{
		UNROLL
		for (int n = 0; n < N; n++) {
			const uint mine = n * 8 + lane / 4;
			const bool have = o.there(mine);
			device const half *p = from;
			if (have)
				p += ulong(o.row_of(mine)) * stride + o.head_of(mine) * o.head_dim;
			UNROLL
			for (int j = 0; j < D / 16; j++)
				UNROLL
			for (int i = 0; i < 2; i++) {
				const uint column = j * 16 + i * 8 + lane % 4 * 2;
				q[j][n][i] = have && column < o.head_dim ?
						     *(device const uint *)(p + column) :
						     0;
			}
		}
	}

	// Scores of the simdgroup's sub-step.
	METAL_FUNC void dot(threadgroup const uchar *k, bool coded) thread
	{
		UNROLL
		for (int j = 0; j < D / 16; j += 2)
			UNROLL
		for (uint b = 0; b < blocks; b++) {
			uint a[2][4];
			if (Q8 && coded)
				load_codes(a, k + b * PAGES_Q8_BYTES(D), j);
			else
				UNROLL
			for (int i = 0; i < 2 && j + i < D / 16; i++)
				nv_ldmatrix4(a[i], k + (b * 16 + lane % 16) * copies_type::row +
							   (j + i) * 32 + lane / 16 * 16);
			UNROLL
			for (int i = 0; i < 2 && j + i < D / 16; i++)
				UNROLL
			for (int n = 0; n < N; n++)
				nv_mma_16x8x16<half>(x[b][n], a[i], q[j + i][n]);
		}
	}

	// Of K's codes of a block: 32 columns from 16 * j on.
	METAL_FUNC void load_codes(thread uint (&a)[2][4], threadgroup const uchar *from,
				   int j) thread
	{
		const half2 by = as_type<half2>(
			((threadgroup const uint *)(from + pages_scales(D)))[j / 2 * 8 + lane / 4]);
		uint r[4];
		codes_load(r, from + (j * 16 + lane) * 16);
		UNROLL
		for (int i = 0; i < 4; i++)
			UNROLL
		for (uint odd = 0; odd < 2; odd++)
			a[i / 2][i % 2 * 2 + odd] =
				scaled_codes(r[i], odd, half2(odd ? by.y : by.x));
	}

	// What the simdgroups say of a group.
	METAL_FUNC threadgroup float *most_of(uint group, uint s) thread
	{
		return most + (group % 2 * 4 + s) * 16;
	}
	METAL_FUNC bool sees(int n, int e, uint t, uint b, uint i) thread
	{
		return here && t + b * 16 + lane / 4 * 2 + i - low[n][e] <= beyond[n][e];
	}

	// Says the largest scores of the simdgroup's sub-step, which is at t.
	METAL_FUNC void say_most(uint group, uint t) thread
	{
		UNROLL
		for (int n = 0; n < N; n++) {
			float2 largest = float2(nothing_seen);
			UNROLL
			for (int e = 0; e < 2; e++) {
				UNROLL
				for (uint b = 0; b < blocks; b++)
					UNROLL
				for (uint i = 0; i < 2; i++) {
					thread float &score = x[b][n][i * 2 + e];
					if (!sees(n, e, t, b, i))
						score = nothing_seen;
					largest[e] = max(largest[e], score);
				}
				UNROLL
				for (int by = 4; by < 32; by *= 2)
					largest[e] = max(largest[e],
							 simd_shuffle_xor(largest[e], ushort(by)));
			}
			if (lane < 4)
				*(threadgroup float2 *)(most_of(group, sg) + query(n, 0)) = largest;
		}
	}

	// The score that sums are relative to after the group's nth sub-step, if they are relative to `before`.
	METAL_FUNC float2 top_after(float2 before, uint group, uint nth, int n, float scale) thread
	{
		const float2 of = *(threadgroup const float2 *)(most_of(group, nth) + query(n, 0));
		float2 after = before;
		UNROLL
		for (int e = 0; e < 2; e++)
			if (of[e] != nothing_seen)
				after[e] = max(before[e], of[e] * scale);
		return after;
	}

	// Weights of the simdgroup's sub-step, as attention_tile's weigh makes them, and their sum.
	METAL_FUNC void weigh(uint group, uint t, float scale) thread
	{
		UNROLL
		for (int n = 0; n < N; n++) {
			float2 w[blocks][2]; // of both queries, of a pair's tokens
			float2 mine = float2(top[n][0], top[n][1]);
			UNROLL
			for (uint s = 0; s < 4; s++)
				if (s <= sg)
					mine = top_after(mine, group, s, n, scale);
			UNROLL
			for (uint b = 0; b < blocks; b++)
				UNROLL
			for (uint i = 0; i < 2; i++) {
				UNROLL
				for (int e = 0; e < 2; e++) {
					w[b][i][e] = weight_of<half>(
						fma(x[b][n][i * 2 + e], scale, -mine[e]));
					if (!sees(n, e, t, b, i))
						w[b][i][e] = 0.0f;
				}
			}
			uint packed[blocks][2];
			UNROLL
			for (uint b = 0; b < blocks; b++)
				UNROLL
			for (uint i = 0; i < 2; i++) {
				packed[b][i] = as_type<uint>(half2(w[b][i]));
				*(threadgroup uint *)(weights_of(n, sg) +
						      (b * 16 + i * 8 + lane / 4) * 8 +
						      lane % 4 * 2) = packed[b][i];
			}
			const float2 sums = total_of(packed);
			if (lane < 4)
				*(threadgroup float2 *)(total + sg * 16 + query(n, 0)) = sums;
		}
	}
	METAL_FUNC threadgroup half *weights_of(int n, uint s) thread
	{
		return weights + (n * GROUP_TOKENS + s * tokens) * 8;
	}

	// The sums of both queries' weights.  Four neighbouring tokens are two lanes': the first has all four of block 0
	// then, the second those of block 1.
	METAL_FUNC float2 total_of(thread uint (&packed)[blocks][2]) thread
	{
		const bool odd = lane / 4 % 2 != 0;
		float2 four[4];
		UNROLL
		for (uint i = 0; i < 2; i++) {
			const uint mine = odd ? packed[1][i] : packed[0][i];
			const uint other =
				simd_shuffle_xor(odd ? packed[0][i] : packed[1][i], ushort(4));
			four[i] = float2(as_type<half2>(odd ? other : mine));
			four[2 + i] = float2(as_type<half2>(odd ? mine : other));
		}
		float2 sums = four[0] + four[1];
		sums += four[2];
		sums += four[3];
		UNROLL
		for (int e = 0; e < 2; e++)
			UNROLL
		for (int i = 0; i < 3; i++) // within each block, then both
			sums[e] += simd_shuffle_xor(sums[e], ushort(i == 0 ? 8 : i == 1 ? 16 : 4));
		return sums;
	}

	// Adds p V of the group's nth sub-step to the simdgroup's columns.
	METAL_FUNC void add(bool coded, thread float (&shrink)[N][2], threadgroup const uchar *v,
			    uint nth) thread
	{
		uint w[N][4];
		UNROLL
		for (int n = 0; n < N; n++)
			nv_ldmatrix4_transposed(w[n], weights_of(n, nth) + lane * 8);
		UNROLL
		for (int j = 0; j < tiles; j++) {
			const uint tile = sg * tiles + j;
			if (D / 16 % 4 != 0 && tile >= uint(D / 16))
				continue;
			uint a[blocks][4];
			if (Q8 && coded)
				load_values(a, v, tile);
			else
				UNROLL
			for (uint b = 0; b < blocks; b++)
				nv_ldmatrix4_transposed(
					a[b],
					v + (b * 16 + lane / 16 * 8 + lane % 8) * copies_type::row +
						tile * 32 + lane / 8 % 2 * 16);
			UNROLL
			for (int n = 0; n < N; n++) {
				UNROLL
				for (int e = 0; e < 4; e++)
					acc[j][n][e] *= shrink[n][e % 2];
				UNROLL
				for (uint b = 0; b < blocks; b++)
					nv_mma_16x8x16<half>(acc[j][n], a[b], w[n] + 2 * b);
			}
		}
	}

	// Of V's codes of a sub-step: a tile of 16 columns.
	METAL_FUNC void load_values(thread uint (&a)[blocks][4], threadgroup const uchar *v,
				    uint tile) thread
	{
		uint r[4];
		codes_load(r, v + lane / 16 * PAGES_Q8_BYTES(D) +
				      code_place(lane % 16 * (D / 16) + tile) * 16);
		UNROLL
		for (uint b = 0; b < blocks; b++) {
			const uint2 four =
				*(threadgroup const uint2 *)(v + b * PAGES_Q8_BYTES(D) +
							     pages_scales(D) + tile / 2 * 32 +
							     lane % 4 * 8);
			const half2 by[2] = { as_type<half2>(nv_bytes(four.x, four.y, 0x5410)),
					      as_type<half2>(nv_bytes(four.x, four.y, 0x7632)) };
			UNROLL
			for (uint i = 0; i < 2; i++)
				UNROLL
			for (uint odd = 0; odd < 2; odd++)
				a[b][i * 2 + odd] = scaled_codes(r[b * 2 + i], odd, by[i]);
		}
	}

	// Of V's codes of the simdgroup's sub-step at t, which are there: no scales of tokens that no query attends to, as they
	// may have any contents.
	METAL_FUNC void clear_scales(thread tile_type &o, threadgroup uchar *v, uint t) thread
	{
		if (t >= o.lowest && t + tokens - 1 <= o.highest)
			return;
		simdgroup_barrier(mem_flags::mem_threadgroup);
		if (t + lane >= o.lowest && t + lane <= o.highest)
			return;
		threadgroup ushort *of = (threadgroup ushort *)(v + lane / 16 * PAGES_Q8_BYTES(D) +
								pages_scales(D)) +
					 lane % 16;
		UNROLL
		for (int i = 0; i < D / 32; i++)
			of[i * 16] = 0;
	}

	// Adds the group'th group, which is at `at`, of a range up to `last`.
	METAL_FUNC void turn(thread tile_type &o, thread copies_type &copies, uint group, uint at,
			     uint last) thread
	{
		constexpr uint v_groups = copies_type::v_groups;
		const uint t = at + sg * tokens;
		here = t <= last;
		UNROLL
		for (uint b = 0; b < blocks; b++)
			UNROLL
		for (int n = 0; n < N; n++)
			UNROLL
		for (int e = 0; e < 4; e++)
			x[b][n][e] = 0.0f;
		if (group == 0)
			copy_await<v_groups>();
		else
			copy_await<2 - v_groups>();
		simdgroup_barrier(mem_flags::mem_threadgroup);
		if (here)
			dot(copies.k_of(sg), o.coded(false));
		say_most(group, t);
		threadgroup_barrier(mem_flags::mem_threadgroup);
		if (group == 0) // only this simdgroup reads its K
			copies.fetch_next(o, copies.k_of(sg), false, t + GROUP_TOKENS, last, lane);
		weigh(group, t, o.scale);
		if (group == 0)
			copy_await<v_groups>();
		else
			copy_await<0>();
		if (Q8 && here && o.coded(true))
			clear_scales(o, copies.v_of(group, sg), t);
		threadgroup_barrier(mem_flags::mem_threadgroup);
		_Pragma("clang loop unroll(disable)") for (uint s = 0;
							   s < 4 && at + s * tokens <= last; s++)
		{
			float shrink[N][2];
			UNROLL
			for (int n = 0; n < N; n++) {
				const float2 before = float2(top[n][0], top[n][1]);
				const float2 after = top_after(before, group, s, n, o.scale);
				const float2 sums =
					*(threadgroup const float2 *)(total + s * 16 + query(n, 0));
				UNROLL
				for (int e = 0; e < 2; e++) {
					shrink[n][e] = merge_share(before[e], after[e]);
					sum[n][e] = fma(sum[n][e], shrink[n][e], sums[e]);
					top[n][e] = after[e];
				}
			}
			add(o.coded(true), shrink, copies.v_of(group, s), s);
		}
		if (group == 0 && v_groups == 1) {
			threadgroup_barrier(mem_flags::mem_threadgroup);
			copies.fetch_next(o, copies.v_of(1, sg), true, t + GROUP_TOKENS, last,
					  lane);
		}
	}

	// The sums of the range's tokens from `first` to `last`, of which copies have begun.
	METAL_FUNC void run(thread tile_type &o, thread copies_type &copies, uint first,
			    uint last) thread
	{
		uint group = 0;
		_Pragma("clang loop unroll(disable)") for (uint at = first; at <= last;
							   at += GROUP_TOKENS, group++)
			turn(o, copies, group, at, last);
		threadgroup_barrier(mem_flags::mem_threadgroup);
	}

	// Writes this simdgroup's sums of the e-th query of eight to a row: a lane has two columns of each sixteen.
	template <typename row>
	METAL_FUNC void put(row to, int n, int e, bool coded, uint n_columns) thread
	{
		UNROLL
		for (int j = 0; j < tiles; j++) {
			const uint tile = sg * tiles + j;
			const uint column = tile * 16 + lane / 4 * (Q8 && coded ? 2 : 1);
			const uint other = column + (Q8 && coded ? 1 : 8);
			if (D / 16 % 4 != 0 && tile >= uint(D / 16))
				continue;
			if (column < n_columns)
				to[column] = acc[j][n][e];
			if (other < n_columns)
				to[other] = acc[j][n][2 + e];
		}
	}
};

template <int N, int D, bool Q8, typename tile_type, typename part>
METAL_FUNC void group_part(constant attention_args &args, thread tile_type &t,
			   thread group_copies<D, Q8> &copies, device const half *q, uint first,
			   uint last, uint sg, uint lane, thread part &of)
{
	const uint at = first + sg * copies.tokens;
	group_queries<D, Q8, N> mine;
	mine.begin(args, t, copies, sg, lane);
	wait_for_previous();
	begin_next();
	if (at <= last)
		copies.fetch(t, copies.k_of(sg), false, 0, at, lane);
	copy_commit();
	UNROLL
	for (uint group = 0; group < copies.v_groups; group++) {
		if (at + group * GROUP_TOKENS <= last)
			copies.fetch(t, copies.v_of(group, sg), true, group,
				     at + group * GROUP_TOKENS, lane);
		copy_commit();
	}
	mine.load(t, q, args.q_stride);
	mine.run(t, copies, first, last);
	of.finish(t, mine);
}

// The sums of range number `range` of the index-th tile and KV head of a sequence; `part` does with them what the kernel is
// there for.
template <int D, bool Q8, typename part>
METAL_FUNC void group_range(constant attention_args &args, device const step_head *step,
			    device const half *q, threadgroup uchar *shared, uint sequence,
			    uint index, uint range, uint tid, uint sg, uint lane, thread part &of)
{
	typedef group_copies<D, Q8> copies_type;
	static_assert(STEP_RANGE == 2 * GROUP_TOKENS, "two groups, in turn()");
	const uint start = range * STEP_RANGE, end = start + STEP_RANGE - 1;
	typename copies_type::tile_type t;
	copies_type copies;
	if (!attention_has(step, sequence, true) ||
	    !t.begin(args, step, q, shared, sequence, index, false, tid, sg, lane) ||
	    t.lowest > end || t.highest < start) {
		wait_for_previous();
		begin_next();
		return;
	}
	const uint first = max(t.lowest / copies.tokens * copies.tokens, start);
	const uint last = min(t.highest, end);
	copies.begin(t, shared, first, sg, lane);
	if (t.n_queries - t.first_query <= 8)
		group_part<1>(args, t, copies, q, first, last, sg, lane, of);
	else
		group_part<2>(args, t, copies, q, first, last, sg, lane, of);
}
#endif
