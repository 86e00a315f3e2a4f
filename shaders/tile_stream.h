// tile_stream.h: tile.h's products for NVIDIA GPUs with a copy engine (sm_90):
//
//   tile_stream    tiles of many rows
//   tile_rush      tiles of few rows
#pragma once

#include "tile.h"

#ifdef NV_WGMMA
typedef nv_map tile_map; // a matrix, as the driver describes it to the engine

// Prefetches a tensor map.
METAL_FUNC void tile_prefetch(tile_map m) { nv_map_prefetch(m); }

// Both variants below have blocks in the engine's layout: boxes of 64 elements of k, whose rows are
// 128 bytes with permuted chunks of 16 bytes (chunk ^ row % 8).  Barriers follow the stages (and
// `extra` bytes of the caller): full ones, at which copies arrive, and empty ones, at which the
// readers of a stage arrive.  The order of k is that of tile_pipe, so the bits are the same.

// A stream of tiles, computed by persistent threadgroups.  The last warpgroup only starts copies, as
// far ahead as there are stages.  Two others multiply alternately, each its own tile, so that one
// runs its epilogue while the other uses the tensor cores.  SHARES: k is in shares, whose sums are added
// in registers, of which two tiles would take too many: both multiply the same tile, each half of its
// rows.  Threadgroups form clusters of two and compute tiles of the same columns or of the same rows:
// each copies half of the shared operand, to both.
template <typename T, int BM, int BN, int STAGES, bool PAIR, bool SHARES> struct tile_stream {
	static constexpr constant int BK = 64, blocks = BM / (SHARES ? 128 : 64), cluster = 2;
	static constexpr constant uint warpgroups = 2, turns = SHARES ? 1 : warpgroups;
	static constexpr constant int stage = (BM + BN) * BK; // elements
	static constexpr constant uint bytes = stage * sizeof(T);
	static_assert(BM % (SHARES ? 128 : 64) == 0 && BN % 16 == 0, "tile");

	// Of a lane, of the i-th block of 64 rows: columns 8 j + lane % 4 * 2 and the next, rows
	// sg % 4 * 16 + lane / 4 and eight further.
	float acc[blocks][BN / 8][4];
	float total[blocks][SHARES ? BN / 8 : 1][4]; // of the shares before
	threadgroup T *stages;
	threadgroup ulong *full, *empty, *turn;
	uint slot, parity; // of the next stage
	uint tiles;	   // that a multiplying warpgroup has made

	// By all threads.  Copies and products count stages alike.
	METAL_FUNC void start(threadgroup uchar *shared, uint extra, uint tid) thread
	{
		stages = (threadgroup T *)shared;
		full = (threadgroup ulong *)(shared + STAGES * bytes + extra);
		empty = full + STAGES;
		turn = empty + STAGES;
		slot = parity = tiles = 0;
		if (tid < uint(STAGES)) {
			nv_barrier_init(full + tid, 1);
			nv_barrier_init(empty + tid, cluster * (warpgroups / turns));
		}
		if (tid < warpgroups)
			nv_barrier_init(turn + tid, 1);
		nv_barrier_fence_init();
		nv_cluster_barrier();
	}
	// By all threads, at the end: the other threadgroup may still write here.
	static METAL_FUNC void finish() { nv_cluster_barrier(); }
	// What a warpgroup does from here on; its registers follow.
	static METAL_FUNC void copies() { nv_registers_fewer<40>(); }
	static METAL_FUNC void multiplies() { nv_registers_more<232>(); }
	static METAL_FUNC uint rank() { return nv_cluster_rank(); }

	METAL_FUNC void next() thread
	{
		if (++slot == uint(STAGES)) {
			slot = 0;
			parity ^= 1;
		}
	}
	// Leaves out the stages of another's tile.
	METAL_FUNC void skip(uint steps) thread
	{
		const uint to = slot + steps;
		parity ^= to / STAGES & 1;
		slot = to % STAGES;
	}

	// One thread: starts copying a tile, rows m0 … of x, rows na … of wa and nb … of wb, its
	// halves (boxes have BM and BN / 2 rows).  `rows`: the other's has the same columns, and each
	// copies half of w; else the same rows, and they copy x in turns.  Few and large boxes: with x in
	// halves, tiles of 128 x 128 took 4 to 8 % longer.
	METAL_FUNC void copy(tile_map x, uint m0, tile_map wa, uint na, tile_map wb, uint nb,
			     uint steps, bool rows) thread
	{
		const uint mine = rank();
		const tile_map w = mine == 0 ? wa : wb;
		const uint n = mine == 0 ? na : nb;
		for (uint s = 0; s < steps; s++) {
			threadgroup T *to = stages + slot * stage, *to_w = to + BM * BK;
			nv_barrier_wait(empty + slot, parity ^ 1);
			nv_barrier_expect(full + slot, bytes);
			if (rows) {
				nv_copy_box(to, x, s * BK, m0, full + slot);
				nv_copy_box_to<cluster>(to_w + mine * (BN / 2 * BK), w, s * BK, n,
							full + slot);
			} else {
				if (s % cluster == mine)
					nv_copy_box_to<cluster>(to, x, s * BK, m0, full + slot);
				nv_copy_box(to_w, wa, s * BK, na, full + slot);
				nv_copy_box(to_w + BN / 2 * BK, wb, s * BK, nb, full + slot);
			}
			next();
		}
	}

	// A stage may be filled again, here and in the other threadgroup.
	METAL_FUNC void release(uint at, uint sg, uint lane) thread
	{
		if (sg % 4 == 0 && lane < uint(cluster))
			nv_barrier_arrive(empty + at, lane);
	}

	// The product of so many steps, except that the last one may still run: its stage.
	METAL_FUNC uint run(uint steps, uint sg, uint lane) thread
	{
		const uint first = SHARES ? sg / 4 * (blocks * 64 * BK) : 0;
		uint before = 0;
		UNROLL
		for (int i = 0; i < blocks; i++)
			UNROLL
		for (int j = 0; j < BN / 8; j++)
			UNROLL
		for (int e = 0; e < 4; e++)
			acc[i][j][e] = 0.0f;
		for (uint s = 0; s < steps; s++) {
			threadgroup const T *a = stages + slot * stage;
			nv_barrier_wait(full + slot, parity);
			nv_wgmma_fence();
			UNROLL
			for (int k = 0; k < BK; k += 16)
				UNROLL
			for (int i = 0; i < blocks; i++)
				nv_wgmma<T, BN>::run(acc[i][0],
						     nv_descriptor(a + first + i * 64 * BK + k),
						     nv_descriptor(a + BM * BK + k));
			nv_wgmma_commit();
			nv_wgmma_wait<1>();
			if (s > 0)
				release(before, sg, lane);
			before = slot;
			next();
		}
		return before;
	}

	// A warpgroup: its tile's product.  The one before, the other warpgroup's, has all its stages
	// then: a barrier tells a phase only from the next one, not from the one after.
	METAL_FUNC void multiply(uint steps, uint sg, uint lane) thread
	{
		const uint me = sg / 4;
		if (me != 0 && tiles == 0)
			skip(steps);
		nv_barrier_wait(turn + me, (tiles + me + 1) & 1);
		const uint before = run(steps, sg, lane);
		if (sg % 4 == 0 && lane == 0)
			nv_barrier_arrive(turn + (me ^ 1));
		nv_wgmma_wait<0>();
		release(before, sg, lane);
		skip(steps);
		tiles++;
	}

	// SHARES: a warpgroup adds a share, the tile's first or another, to its half of the tile.
	METAL_FUNC void add(uint steps, bool is_first, uint sg, uint lane) thread
	{
		const uint before = run(steps, sg, lane);
		nv_wgmma_wait<0>();
		release(before, sg, lane);
		UNROLL
		for (int i = 0; i < blocks; i++)
			UNROLL
		for (int j = 0; j < BN / 8; j++)
			UNROLL
		for (int e = 0; e < 4; e++)
			total[i][j][e] = is_first ? acc[i][j][e] : total[i][j][e] + acc[i][j][e];
	}

	METAL_FUNC float2 pair(int i, int j, int h) thread
	{
		return SHARES ? float2(total[i][j][2 * h], total[i][j][2 * h + 1]) :
				float2(acc[i][j][2 * h], acc[i][j][2 * h + 1]);
	}
	// The first of the warpgroup's rows of the tile.
	static METAL_FUNC uint row(uint sg) { return SHARES ? sg / 4 * (blocks * 64) : 0; }
	// Waits for the others of the warpgroup.
	static METAL_FUNC void sync(uint sg) { nv_barrier_some(1 + sg / 4, 128); }
};

// A tile of few rows, for which waiting is all that counts: the last simdgroup starts as many
// copies at once as there is memory for, w's before it is even known how many rows x has.
// Each of the others makes some columns of all rows.  A box of x has 8 rows.
template <typename T, int BN, int BK, int SN, int STAGES, bool PAIR> struct tile_rush {
	static constexpr constant int BM = 16, boxes = BK / 64;
	typedef tile_product<T, BM, BN, BK, 1, SN, PAIR, false> product;
	static constexpr constant int stage = (BM + BN) * BK; // elements

	threadgroup T *stages;
	threadgroup ulong *full, *empty;

	// By all threads.
	METAL_FUNC void start(threadgroup uchar *shared) thread
	{
		stages = (threadgroup T *)shared;
		full = (threadgroup ulong *)(stages + STAGES * stage);
		empty = full + STAGES;
	}
	// By the simdgroup that copies, before it does and before the others look.
	METAL_FUNC void begin(uint lane) thread
	{
		if (lane < uint(STAGES)) {
			nv_barrier_init(full + lane, 1);
			nv_barrier_init(empty + lane, SN);
		}
		nv_barrier_fence_init();
		simdgroup_barrier(mem_flags::mem_threadgroup);
	}

	METAL_FUNC void copy_w(tile_map wa, tile_map wb, uint n0, uint s, uint lane) thread
	{
		const uint slot = s % STAGES, box = lane % boxes;
		threadgroup T *to = stages + slot * stage + (boxes * BM + box * BN) * 64;
		if (lane == 0)
			nv_barrier_allow(full + slot, BN * BK * sizeof(T));
		simdgroup_barrier(mem_flags::mem_none);
		if (lane < uint(boxes))
			nv_copy_box(to, wa, s * BK + box * 64, n0, full + slot);
		else if (PAIR && lane < uint(2 * boxes))
			nv_copy_box(to + BN / 2 * 64, wb, s * BK + box * 64, n0, full + slot);
	}
	METAL_FUNC void copy_x(tile_map x, uint m0, uint rows, uint s, uint lane) thread
	{
		const uint slot = s % STAGES, box = lane % boxes, half_of = lane / boxes,
			   n = rows > 8 ? 2 : 1;
		threadgroup T *to = stages + slot * stage + (box * BM + half_of * 8) * 64;
		if (lane == 0)
			nv_barrier_expect(full + slot, n * 8 * BK * sizeof(T));
		simdgroup_barrier(mem_flags::mem_none);
		if (half_of < n)
			nv_copy_box(to, x, s * BK + box * 64, m0 + half_of * 8, full + slot);
	}
	METAL_FUNC void wait(uint s) thread
	{
		nv_barrier_wait(empty + s % STAGES, (s / STAGES + 1) & 1);
	}

	// The sg-th simdgroup's columns.
	METAL_FUNC void multiply(thread product &p, uint steps, uint sg, uint lane) thread
	{
		p.clear();
		for (uint s = 0; s < steps; s++) {
			const uint slot = s % STAGES;
			threadgroup const T *a = stages + slot * stage;
			nv_barrier_wait(full + slot, s / STAGES & 1);
			UNROLL
			for (int part = 0; part < BK / 32; part++)
				p.mma_boxes(a + part / 2 * BM * 64,
					    a + (boxes * BM + part / 2 * BN) * 64, part % 2, sg,
					    lane);
			simdgroup_barrier(mem_flags::mem_none);
			if (lane == 0)
				nv_barrier_arrive(empty + slot);
		}
	}
};
#endif
