// stream_stages.h: K and V on their way to attention_stream.h: a producer warpgroup loads them, STREAM_TOKENS at a time and as
// far ahead as there are stages; codes it multiplies by their scales.
#pragma once

#include <metal_stdlib>
#include "../portable.h"
#include "attention.h"

using namespace metal;

#ifdef NV_WGMMA

// The row of a tile that a token is in.
METAL_FUNC uint stream_row(uint token)
{
	return token / 16 * 16 + token % 4 / 2 * 8 + token % 16 / 4 * 2 + token % 2;
}

// Where in a tile the nth 16 bytes of a row are.  Rows have 128 bytes; their chunks are permuted as products of
// warpgroups expect.
METAL_FUNC uint stream_place(uint row, uint nth) { return row * 128 + (nth ^ row % 8) * 16; }

// The blocks of a stage's tokens.
struct stream_blocks {
	device const uchar *at[STREAM_TOKENS / 16];

	METAL_FUNC device const uchar *of(uint i) thread
	{
		device const uchar *p = at[0];
		UNROLL
		for (uint j = 1; j < STREAM_TOKENS / 16; j++)
			p = i == j ? at[j] : p;
		return p;
	}
};

// K and V on their way, in stages:
//   K of halves   for each 64 columns [token][column]
//   K of codes    [column][token]
//   V             for each 64 columns [token][column]
template <int D, bool Q8> struct stream_stages {
	static constexpr constant uint n = STREAM_STAGES, tokens = STREAM_TOKENS,
				       blocks = tokens / 16;
	static constexpr constant uint piece = tokens * 128, operand = D / 64 * piece; // bytes
	static constexpr constant uint threads = STREAM_GROUP;
	// Of a thread, multiples of 8: together what a processor has.
	static constexpr constant uint producer_registers = D <= 64 ? (Q8 ? 80 : 56) :
							    Q8	    ? 104 :
								      72;
	static constexpr constant uint consumer_registers =
		(65536 / threads - producer_registers) / STREAM_GROUPS(D) / 8 * 8;
	typedef attention_tile<half, D, STREAM_TILES(D), Q8, false> tile_type;

	threadgroup uchar *at;
	threadgroup ulong *full, *empty;
	uint slot, parity; // of the next stage

	METAL_FUNC void start(threadgroup uchar *shared, uint tid) thread
	{
		at = shared + STREAM_QUERIES(D) * D * 2;
		full = (threadgroup ulong *)(at + n * 2 * operand);
		empty = full + n;
		slot = parity = 0;
		if (tid < n) {
			nv_barrier_init(full + tid, threads / 32);
			nv_barrier_init(empty + tid, STREAM_TILES(D));
		}
		nv_barrier_fence_init();
		threadgroup_barrier(mem_flags::mem_threadgroup);
	}
	METAL_FUNC void next() thread
	{
		slot = slot + 1 == n ? 0 : slot + 1;
		parity ^= slot == 0 ? 1 : 0;
	}
	METAL_FUNC threadgroup uchar *of(uint stage, bool v) thread
	{
		return at + (2 * stage + (v ? 1 : 0)) * operand;
	}

	// -- the producer warpgroup; tid: from its first thread on -----------------------------

	// What this thread wrote to a stage may be read.
	METAL_FUNC void arrive(uint stage, uint lane) thread
	{
		nv_fence_async();
		simdgroup_barrier(mem_flags::mem_threadgroup);
		if (lane == 0)
			nv_barrier_arrive(full + stage);
	}

	// The blocks of the tokens from t on; of those that no query attends to nothing is read.
	METAL_FUNC void find(thread tile_type &o, thread stream_blocks &block, uint t) thread
	{
		UNROLL
		for (uint i = 0; i < blocks; i++)
			block.at[i] =
				o.seen(t + i * 16) ? pages_block(o.cache, t / 16 + i) : o.anywhere;
	}

	// Copies K, or V, of halves; zeros for tokens that no query attends to.
	METAL_FUNC void copy(thread tile_type &o, thread stream_blocks &block, bool v, uint t,
			     uint tid) thread
	{
		constexpr uint in_row = D / 8, rows = threads / in_row; // at a time
		const uint nth = tid % in_row;
		threadgroup uchar *to = of(slot, v) + nth / 8 * piece;
		UNROLL
		for (uint i = 0; i < tokens / rows; i++) {
			const uint token = i * rows + tid / in_row;
			const bool have = t + token >= o.lowest && t + token <= o.highest &&
					  nth * 8 < o.head_dim;
			device const uchar *from = block.at[i * rows / 16] +
						   token % 16 * o.cache.token_stride + nth * 16 +
						   (v ? o.cache.v_offset : 0);
			copy_16(to + stream_place(stream_row(token), nth % 8),
				have ? from : o.anywhere, have);
		}
	}

	static constexpr constant uint pieces = D * tokens / 16 / threads;
	// The codes of a thread: of K 16 tokens of a column, of V 16 columns of a token, and their scale.
	struct codes_type {
		uint4 at[pieces];
		half scales[pieces]; // of V
		uint pairs; // of K: of two tokens, by lane; a simdgroup's columns share them
	};
	static METAL_FUNC uint column(uint i, uint tid) { return (i * threads + tid) % D; }
	static METAL_FUNC uint block_of(uint i, uint tid) { return (i * threads + tid) / D; }
	static METAL_FUNC uint token(uint i, uint tid) { return (i * threads + tid) / (D / 16); }

	METAL_FUNC void load_k(thread tile_type &o, thread stream_blocks &block,
			       thread codes_type &codes, uint t, uint tid, uint lane) thread
	{
		UNROLL
		for (uint i = 0; i < pieces; i++) {
			const uint b = block_of(i, tid);
			const bool have = o.seen(t + b * 16) && column(i, tid) < o.head_dim;
			codes.at[i] =
				have ? *(device const uint4 *)(block.of(b) + column(i, tid) * 16) :
				       uint4(0);
		}
		const uint b = block_of(lane / 8 % pieces, tid), first = tid % D / PAGES_GROUP;
		codes.pairs = 0;
		if (o.seen(t + b * 16) && first * PAGES_GROUP < o.head_dim)
			codes.pairs =
				((device const uint *)(block.of(b) +
						       pages_scales(
							       o.head_dim)))[first * 8 + lane % 8];
	}
	METAL_FUNC void load_v(thread tile_type &o, thread stream_blocks &block,
			       thread codes_type &codes, uint t, uint tid) thread
	{
		UNROLL
		for (uint i = 0; i < pieces; i++) {
			const uint at = token(i, tid), first = tid % (D / 16) * 16;
			const bool have =
				t + at >= o.lowest && t + at <= o.highest && first < o.head_dim;
			device const uchar *from = block.of(at / 16) + o.cache.v_offset;
			codes.at[i] = have ? *(device const uint4 *)(from + at % 16 * o.head_dim +
								     first) :
					     uint4(0);
			codes.scales[i] =
				have ? ((device const half *)(from + pages_scales(o.head_dim)))
						[first / PAGES_GROUP * 16 + at % 16] :
				       half(0.0f);
		}
	}
	METAL_FUNC void put_k(thread codes_type &codes, uint tid) thread
	{
		threadgroup uchar *to = of(slot, false);
		UNROLL
		for (uint i = 0; i < pieces; i++) {
			const uint row = column(i, tid), b = block_of(i, tid);
			// pairs of tokens, the even ones in the first chunk
			uint4 low, high;
			UNROLL
			for (uint j = 0; j < 4; j++) {
				const uint four = codes.at[i][j];
				const uint even = simd_shuffle(codes.pairs, ushort(i * 8 + j * 2)),
					   odd = simd_shuffle(codes.pairs,
							      ushort(i * 8 + j * 2 + 1));
				low[j] = scaled_pair(four, 0x4140u, as_type<half2>(even));
				high[j] = scaled_pair(four, 0x4342u, as_type<half2>(odd));
			}
			*(threadgroup uint4 *)(to + stream_place(row, b * 2)) = low;
			*(threadgroup uint4 *)(to + stream_place(row, b * 2 + 1)) = high;
		}
	}
	METAL_FUNC void put_v(thread codes_type &codes, uint tid) thread
	{
		const uint nth = tid % (D / 16) * 2;
		threadgroup uchar *to = of(slot, true) + nth / 8 * piece;
		UNROLL
		for (uint i = 0; i < pieces; i++) {
			const uint row = stream_row(token(i, tid));
			const half2 by = half2(codes.scales[i]);
			uint4 x[2];
			UNROLL
			for (uint j = 0; j < 4; j++) {
				const uint four = codes.at[i][j];
				x[j / 2][j % 2 * 2] = scaled_pair(four, 0x4140u, by);
				x[j / 2][j % 2 * 2 + 1] = scaled_pair(four, 0x4342u, by);
			}
			*(threadgroup uint4 *)(to + stream_place(row, nth % 8)) = x[0];
			*(threadgroup uint4 *)(to + stream_place(row, nth % 8 + 1)) = x[1];
		}
	}
	// Halves.
	METAL_FUNC void produce(thread tile_type &o, uint first, uint tid, uint lane) thread
	{
		uint before = n;
		parity = 1;
		for (uint t = first; t <= o.highest; t += tokens) {
			stream_blocks block;
			find(o, block, t);
			nv_barrier_wait(empty + slot, parity);
			copy(o, block, false, t, tid);
			copy(o, block, true, t, tid);
			copy_commit();
			if (before != n) {
				copy_await<1>();
				arrive(before, lane);
			}
			before = slot;
			next();
		}
		copy_await<0>();
		arrive(before, lane);
	}

	// K, V or both are codes.
	METAL_FUNC void produce_codes(thread tile_type &o, uint first, uint tid, uint lane) thread
	{
		const bool k_coded = o.coded(false), v_coded = o.coded(true);
		codes_type k, v;
		stream_blocks block;
		parity = 1;
		find(o, block, first);
		if (k_coded)
			load_k(o, block, k, first, tid, lane);
		if (v_coded)
			load_v(o, block, v, first, tid);
		for (uint t = first; t <= o.highest; t += tokens) {
			const bool more = t + tokens <= o.highest;
			stream_blocks ahead;
			find(o, ahead, more ? t + tokens : t);
			nv_barrier_wait(empty + slot, parity);
			if (!k_coded)
				copy(o, block, false, t, tid);
			if (!v_coded)
				copy(o, block, true, t, tid);
			copy_commit();
			if (k_coded) {
				put_k(k, tid);
				if (more)
					load_k(o, ahead, k, t + tokens, tid, lane);
			}
			if (v_coded) {
				put_v(v, tid);
				if (more)
					load_v(o, ahead, v, t + tokens, tid);
			}
			copy_await<0>();
			arrive(slot, lane);
			block = ahead;
			next();
		}
	}

	// -- the others ----------------------------------------------------------------------------

	METAL_FUNC void wait() thread { nv_barrier_wait(full + slot, parity); }
	METAL_FUNC void release(uint stage, uint lane) thread
	{
		if (lane == 0)
			nv_barrier_arrive(empty + stage);
	}
};

#endif
