// product_wide.h: products of some dozens of rows with weights in tiles (tiles.h), for NVIDIA GPUs with warpgroup products
// (sm_90).  As in product_tiles.h weights go from device memory to registers and are dequantised there.  The instruction
// takes them from there as its first operand, 64 outputs at a time, and x from threadgroup memory, where it is read once
// for these 64 outputs; the copy engine brings it in stages of 128 of k.
//
// A threadgroup has two warpgroups, each with 64 outputs (PAIR: the same outputs, one of gate, one of up) and one share
// of k.  The threadgroups of a cluster have a share each: of each eight rows all shares are sent to one of them, which
// adds them.  A share is summed over ascending k from zero, shares are added in ascending order: the bits are those of
// product_tiles.h.
#pragma once

#include "../early.h"
#include "../tile_stream.h"
#include "product_tiles.h"

#ifdef NV_WGMMA

// The stages of x, which all simdgroups read, and whose copies the first thread starts.  A stage has two pieces.
template <int ROWS> struct wide_stages {
	static constexpr constant uint n = WIDE_STAGES, piece = ROWS * TILE_PIECE, // elements
		bytes = 2 * piece * 2;
	threadgroup half *at;
	threadgroup ulong *full, *empty;
	uint slot, parity;  // of the stage that is read
	uint to, to_parity; // of the one that is copied next
	uint left;	    // stages to copy
	uint column, row;   // where in x the next one is
	bool behind; // the next copy would be to the stage before this one, which others may still read

	METAL_FUNC void begin(threadgroup uchar *shared, uint pieces, uint k0, uint row0) thread
	{
		at = (threadgroup half *)shared;
		full = (threadgroup ulong *)(shared + n * bytes);
		empty = full + n;
		slot = parity = to = 0;
		to_parity = 1;
		left = pieces / 2;
		column = k0;
		row = row0;
		behind = true;
	}
	static METAL_FUNC uint next(uint s, thread uint &parity)
	{
		parity ^= s + 1 == n ? 1 : 0;
		return s + 1 == n ? 0 : s + 1;
	}
	METAL_FUNC void copy(tile_map x) thread
	{
		if (left == 0)
			return;
		nv_barrier_wait(empty + to, to_parity);
		nv_barrier_expect(full + to, bytes);
		UNROLL
		for (uint i = 0; i < 2; i++)
			nv_copy_box(at + (to * 2 + i) * piece, x, column + i * TILE_PIECE, row,
				    full + to);
		to = next(to, to_parity);
		column += 2 * TILE_PIECE;
		left--;
	}
	// By the first thread of a warpgroup: the stage before this one has been read.
	METAL_FUNC void release(tile_map x, uint sg) thread
	{
		nv_barrier_arrive(empty + (slot == 0 ? n : slot) - 1);
		if (sg == 0 && !behind)
			copy(x);
		behind = false;
	}
};

// A warpgroup's walk through the tiles of its share.
template <typename F, int ROWS> struct wide_walk {
	static constexpr constant int blocks = ROWS / 8;
	typename F::codes codes[F::pieces];
	typename F::heads heads;
	device const uchar *next; // the tile that is fetched next
	uint left;		  // tiles that are not fetched yet
	// Of a lane, of the j-th eight rows: outputs g and g + 8 of the simdgroup's sixteen, rows 2 t and 2 t + 1.
	float acc[blocks][4];
	uint a[2][4][4]; // a piece that is multiplied, and one that is dequantised meanwhile

	METAL_FUNC void begin(device const uchar *first, uint length, uint lane) thread
	{
		next = first;
		left = length;
		UNROLL
		for (int j = 0; j < blocks; j++)
			UNROLL
		for (int i = 0; i < 4; i++)
			acc[j][i] = 0.0f;
		F::template load_heads<tile_load>(heads, next, lane);
		UNROLL
		for (uint p = 0; p < F::pieces; p++)
			F::template load_codes<tile_load>(codes[p], next, p, lane);
		next += F::bytes;
		left--;
	}

	// Multiplies the fetched tile, and fetches the next one into its registers piece by piece.
	METAL_FUNC void multiply(thread wide_stages<ROWS> &x, tile_map map, bool is_first, uint sg,
				 uint lane) thread
	{
		const typename F::heads now = heads;
		const bool more = left > 0;
		if (more)
			F::template load_heads<tile_load>(heads, next, lane);
		UNROLL
		for (uint p = 0; p < F::pieces; p++) {
			UNROLL
			for (uint e = 0; e < 4; e++)
				F::fragment(codes[p], now, p, e, a[p % 2][e]);
			if (more)
				F::template load_codes<tile_load>(codes[p], next, p, lane);
			if (p % 2 == 0)
				nv_barrier_wait(x.full + x.slot, x.parity);
			nv_wgmma_fence();
			UNROLL
			for (uint e = 0; e < 4; e++)
				nv_wgmma_from<half, ROWS>::run(
					acc[0], a[p % 2][e],
					nv_descriptor(x.at + (x.slot * 2 + p % 2) * x.piece +
						      e * 16));
			nv_wgmma_commit();
			nv_wgmma_wait<1>(); // the piece before is multiplied
			if (p % 2 == 1) {
				x.slot = x.next(x.slot, x.parity);
				continue;
			}
			if (sg % 4 == 0 && lane == 0 && !(is_first && p == 0))
				x.release(map, sg);
			simdgroup_barrier(mem_flags::mem_none);
		}
		next += F::bytes;
		left--;
	}
};

// The pass-th ROWS of all rows of y; operands as in product_tiles.h, but for their x.
template <typename F, int ROWS, bool PAIR, typename O>
METAL_FUNC void product_wide(constant linear_args &args, uint all_rows, uint pass,
			     thread const O &operands, tile_map x, threadgroup uchar *shared,
			     uint group, uint tid, uint lane, uint sg)
{
	constexpr uint blocks = ROWS / 8;
	const uint tiles = (args.k + F::k - 1) / F::k, shares = args.shares, share = group % shares;
	const uint first = tiles * share / shares, length = tiles * (share + 1) / shares - first;
	const uint across = product_across(args, args.n_weights, TILE_ROWS), row0 = pass * ROWS;
	// The simdgroup's sixteen outputs; one that has none computes others' again.
	sg = simd_broadcast_first(sg);
	const uint mine = group / shares * (PAIR ? 4 : 8) + (PAIR ? sg % 4 : sg),
		   which = min(mine, across - 1);
	if (row0 >= all_rows) {
		wait_for_previous();
		return;
	}
	const uint rows = min(all_rows - row0, uint(ROWS));
	const product_place place = tiles_place(args, row0, rows, which);

	wide_stages<ROWS> stages;
	stages.begin(shared, length * F::pieces, first * F::k, row0);
	if (tid < stages.n) {
		nv_barrier_init(stages.full + tid, 1);
		nv_barrier_init(stages.empty + tid, 2);
	}
	nv_barrier_fence_init();
	simdgroup_barrier(mem_flags::mem_threadgroup); // the first thread uses them all
	if (tid == 0)
		tile_prefetch(x);
	wide_walk<F, ROWS> walk;
	// Weights first: they do not depend on what ran before.
	walk.begin(operands.weight(place.weight, PAIR && sg >= 4) +
			   ulong(place.n0) * args.w_row_bytes + first * F::bytes,
		   length, lane);
	wait_for_previous();
	if (tid == 0)
		for (uint s = 0; s < stages.n; s++)
			stages.copy(x);
	if (shares > 1)
		nv_cluster_barrier(); // others may write here only when all have begun
	else
		threadgroup_barrier(mem_flags::mem_threadgroup);
	walk.multiply(stages, x, true, sg, lane);
	for (uint n = 1; n < length; n++)
		walk.multiply(stages, x, false, sg, lane);
	nv_wgmma_wait<0>();
	begin_next();

	// Of the j-th eight rows: [j / shares][simdgroup][share][lane], in threadgroup j % shares.
	threadgroup float4 *sums =
		(threadgroup float4 *)(shared + stages.n * (stages.bytes + 16)) + lane;
	UNROLL
	for (uint j = 0; j < blocks; j++) {
		const float4 v =
			float4(walk.acc[j][0], walk.acc[j][1], walk.acc[j][2], walk.acc[j][3]);
		threadgroup float4 *to = sums + ((j / shares * 8 + sg) * shares + share) * 32;
		if (shares > 1)
			nv_cluster_store(to, v, j % shares);
		else
			*to = v;
	}
	if (shares > 1)
		nv_cluster_barrier();
	else
		threadgroup_barrier(mem_flags::mem_threadgroup);
	// Of a pair each warpgroup adds every second eight rows.
	const product_target target = operands.target(place.weight);
	for (uint n = 0; n * shares + share < blocks; n++) {
		const uint j = n * shares + share;
		if (mine >= across || j * 8 >= rows || (PAIR && n % 2 != sg / 4))
			continue;
		threadgroup const float4 *at = sums + (n * 8 + sg % (PAIR ? 4 : 8)) * shares * 32;
		float4 sum = at[0], up = float4(0.0f);
		for (uint s = 1; s < shares; s++)
			sum += at[s * 32];
		if (PAIR) {
			at += 4 * shares * 32;
			up = at[0];
			for (uint s = 1; s < shares; s++)
				up += at[s * 32];
		}
		tiles_finish<PAIR>(args, place, target, j * 8, sum, up, lane);
	}
}

#endif
