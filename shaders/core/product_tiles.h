// product_tiles.h: products of few rows with weights in tiles (tiles.h), which go from device memory
// to registers and, dequantised there, into the matrix instruction: nothing lies in their way but the
// instruction itself.  The kernels are in linear_tiles.h and moe/moe_tiles.h.
//
// A simdgroup computes 16 outputs and one share of k at a time.  The simdgroups of a *team* compute
// all shares of the same outputs, with PAIR of both weights; a threadgroup has args.width teams.
// A share is summed over ascending k from zero, shares are added in ascending order: the bits are
// those of product_tile.
//
// On NVIDIA threadgroups keep x in their memory.  Where the rows of x are too long for one
// (CLUSTER), the threadgroups of a cluster divide the shares among them.
#pragma once

#include "../early.h"
#include "product.h"
#include "tiles.h"
#include "tiles_norm.h"

#if !defined(MSL_NV) || defined(NV_WGMMA)

// Operands have row(args, i), row i of x; weight(i, second), weight i, or with PAIR the second one; and
// target(i).

// Where a simdgroup works.
template <typename F> struct tiles_role {
	uint team, share, first; // index of the team; the share of k; its first tile
	uint length;		 // tiles of the share
	bool second;		 // the other weight of a pair

	METAL_FUNC void set(constant linear_args &args, bool pair, uint sg, uint first_share,
			    uint shares) thread
	{
		const uint members = pair ? 2 * shares : shares,
			   blocks = (args.k + F::k - 1) / F::k;
		const uint member = sg % members;
		team = sg / members;
		second = member >= shares;
		share = first_share + (second ? member - shares : member);
		first = blocks * share / args.shares;
		length = blocks * (share + 1) / args.shares - first;
	}
	// The first tile of the role's share of the at-th sixteen outputs.
	template <typename O>
	METAL_FUNC device const uchar *tile(constant linear_args &args, thread const O &operands,
					    uint at) const thread
	{
		product_place p;
		product_columns(args, args.n_weights, at, TILE_ROWS, p);
		return operands.weight(p.weight, second) + ulong(p.n0) * args.w_row_bytes +
		       first * F::bytes;
	}
};

// The epilogue of sixteen outputs of eight rows from row0 on: sums of the lane's part of outputs g
// and g + 8, rows 2 t and 2 t + 1.  Neighbours exchange them, so that each has two outputs of a row.
template <bool PAIR>
METAL_FUNC void tiles_finish(constant linear_args &args, product_place place, product_target to,
			     uint row0, float4 sum, float4 up, uint lane)
{
	const uint part = tile_part(lane), odd = part / 4 % 2;
	const uint row = row0 + part % 4 * 2 + odd;
	UNROLL
	for (uint h = 0; h < 2; h++) {
		const float2 v = h == 0 ? sum.xy : sum.zw, u = h == 0 ? up.xy : up.zw;
		const float other = simd_shuffle_xor(odd != 0 ? v.x : v.y, TILE_NEIGHBOUR);
		const float2 two = odd != 0 ? float2(other, v.y) : float2(v.x, other);
		float2 two_up = float2(0.0f);
		if (PAIR) {
			const float more = simd_shuffle_xor(odd != 0 ? u.x : u.y, TILE_NEIGHBOUR);
			two_up = odd != 0 ? float2(more, u.y) : float2(u.x, more);
		}
		const uint column = part / 8 * 2 + h * 8;
		if (row >= place.rows || column >= place.columns)
			continue;
		if (PAIR)
			product_finish_pair(args, place, to, row, column, two, two_up);
		else
			product_finish(args, place, to, row, column, two);
	}
}

// The sum of the shares of a team's outputs, and the epilogue.  `at`: sums of the team's first member
// for these eight rows; `next`: from a member's to the next one's.
template <bool PAIR>
METAL_FUNC void tiles_add(constant linear_args &args, product_place place, product_target to,
			  threadgroup const float4 *at, uint next, uint row0, uint lane)
{
	float4 sum = at[lane], up = float4(0.0f);
	for (uint s = 1; s < args.shares; s++)
		sum += at[s * next + lane];
	if (PAIR) {
		at += args.shares * next;
		up = at[lane];
		for (uint s = 1; s < args.shares; s++)
			up += at[s * next + lane];
	}
	tiles_finish<PAIR>(args, place, to, row0, sum, up, lane);
}

// The at-th sixteen outputs of rows from row0 on.
METAL_FUNC product_place tiles_place(constant linear_args &args, uint row0, uint rows, uint at)
{
	product_place place;
	place.m0 = row0;
	place.rows = rows;
	product_columns(args, args.n_weights, at, TILE_ROWS, place);
	return place;
}

#ifdef MSL_NV

// A simdgroup's way through its tiles, of which two are on their way to registers at any time.
// Threadgroup memory: barriers (of x; of each team two of complete sums and two of read ones), the
// rows of x, two buffers of sums of each team, of a cluster those of the teams whose shares this
// threadgroup adds.  Rows of x are padded by 16 bytes, so that eight rows
// are in different banks.
template <typename F, int BLOCKS, bool PAIR, bool CLUSTER, typename O> struct tiles_walk {
	typedef typename F::codes codes;
	typedef typename F::heads heads;
	tiles_role<F> role;
	uint rows, across, members, member, by;
	uint shares, rank; // shares that this threadgroup of the cluster has, and which one it is
	uint tile, at,
		turn;	  // the sixteen outputs; tiles of the share that are summed; outputs made
	uint ahead, done; // the same of the tile that is fetched next
	device const uchar *next;
	threadgroup const half *x[BLOCKS];
	threadgroup ulong *full, *empty;
	threadgroup float4 *sums;
	float acc[BLOCKS][4];

	METAL_FUNC void begin(constant linear_args &args, thread const O &operands,
			      uint first) thread
	{
		tile = ahead = first;
		at = turn = done = 0;
		next = nullptr;
		if (ahead < across)
			next = role.tile(args, operands, ahead);
		clear();
	}
	METAL_FUNC void clear() thread
	{
		UNROLL
		for (uint r = 0; r < BLOCKS; r++)
			UNROLL
		for (uint i = 0; i < 4; i++)
			acc[r][i] = 0.0f;
	}
	METAL_FUNC void advance(constant linear_args &args, thread const O &operands) thread
	{
		next += F::bytes;
		if (++done == role.length) {
			done = 0;
			ahead += by;
			if (ahead < across)
				next = role.tile(args, operands, ahead);
		}
	}
	METAL_FUNC void fetch(constant linear_args &args, thread const O &operands, thread codes *c,
			      thread heads &h, uint lane) thread
	{
		if (ahead >= across)
			return;
		F::template load_heads<tile_load>(h, next, lane);
		UNROLL
		for (uint p = 0; p < F::pieces; p++)
			F::template load_codes<tile_load>(c[p], next, p, lane);
		advance(args, operands);
	}

	// Multiplies a fetched tile, and fetches another into its registers piece by piece.
	METAL_FUNC void multiply(constant linear_args &args, thread const O &operands,
				 thread codes *c, thread heads &h, uint lane) thread
	{
		if (tile >= across)
			return;
		const bool more = ahead < across;
		const heads now = h;
		uint b[2][BLOCKS][4];
		if (more)
			F::template load_heads<tile_load>(h, next, lane);
		UNROLL
		for (uint r = 0; r < BLOCKS; r++)
			nv_ldmatrix4(b[0][r], x[r] + at * F::k);
		UNROLL
		for (uint p = 0; p < F::pieces; p++) {
			UNROLL
			for (uint e = 0; e < 4; e++) {
				const uint i = p * 2 + e / 2;
				if (e % 2 == 0 && i + 1 < F::pieces * 2) {
					UNROLL
					for (uint r = 0; r < BLOCKS; r++)
						nv_ldmatrix4(b[(i + 1) % 2][r],
							     x[r] + at * F::k + (i + 1) * 32);
				}
				uint a[4];
				F::fragment(c[p], now, p, e, a);
				UNROLL
				for (uint r = 0; r < BLOCKS; r++)
					nv_mma_16x8x16<half>(acc[r], a, b[i % 2][r] + e % 2 * 2);
			}
			if (more)
				F::template load_codes<tile_load>(c[p], next, p, lane);
		}
		if (more)
			advance(args, operands);
		if (++at == role.length)
			finish(args, operands, lane);
	}

	// The share is complete.  One simdgroup of the team, each in turn, adds up all of them while the
	// others go on.
	METAL_FUNC void finish(constant linear_args &args, thread const O &operands,
			       uint lane) thread
	{
		const uint buffer = turn % 2, phase = turn / 2 % 2;
		if (CLUSTER) {
			// A team's shares go to the threadgroup that adds them: reading them from
			// there took as long as a quarter of the product.
			const uint cluster = args.shares / shares,
				   each = args.shares * (PAIR ? 2 : 1) * (BLOCKS * 32);
			threadgroup float4 *at_adder =
				sums + (buffer * ((args.width + cluster - 1) / cluster) +
					role.team / cluster) *
					       each;
			const uint mine = role.share + (role.second ? args.shares : 0);
			UNROLL
			for (uint r = 0; r < BLOCKS; r++)
				nv_cluster_store(at_adder + (mine * BLOCKS + r) * 32 + lane,
						 float4(acc[r][0], acc[r][1], acc[r][2], acc[r][3]),
						 role.team % cluster);
			clear();
			nv_cluster_barrier();
			if (tile < across && member == 0 && role.team % cluster == rank)
				add(args, operands, at_adder, lane);
			at = 0;
			turn++;
			tile += by;
			return;
		}
		threadgroup float4 *to = sums + buffer * members * (BLOCKS * 32);
		nv_barrier_wait(empty + buffer, phase ^ 1);
		UNROLL
		for (uint r = 0; r < BLOCKS; r++)
			to[(member * BLOCKS + r) * 32 + lane] =
				float4(acc[r][0], acc[r][1], acc[r][2], acc[r][3]);
		clear();
		simdgroup_barrier(mem_flags::mem_threadgroup);
		if (lane == 0)
			nv_barrier_arrive(full + buffer);
		if (member == turn % members) {
			nv_barrier_wait(full + buffer, phase);
			add(args, operands, to, lane);
			simdgroup_barrier(mem_flags::mem_threadgroup);
			if (lane == 0)
				nv_barrier_arrive(empty + buffer);
		}
		at = 0;
		turn++;
		tile += by;
	}

	// The sum of all shares of the team's outputs, which are here.
	METAL_FUNC void add(constant linear_args &args, thread const O &operands,
			    threadgroup const float4 *from, uint lane) thread
	{
		const product_place place = tiles_place(args, 0, rows, tile);
		const product_target target = operands.target(place.weight);
		UNROLL
		for (uint r = 0; r < BLOCKS; r++)
			tiles_add<PAIR>(args, place, target, from + r * 32, BLOCKS * 32, r * 8,
					lane);
	}
};

// norm: nullptr, or what x is the norm of; not of a cluster.
template <typename F, int BLOCKS, bool PAIR, bool CLUSTER, typename O>
METAL_FUNC void product_tiles_of(constant linear_args &args, uint rows, thread const O &operands,
				 thread const tiles_norm *norm, threadgroup uchar *shared,
				 uint group, uint groups, uint tid, uint lane, uint sg)
{
	const uint blocks = (args.k + F::k - 1) / F::k, cluster = CLUSTER ? args.cluster : 1;
	tiles_walk<F, BLOCKS, PAIR, CLUSTER, O> walk;
	walk.rank = CLUSTER ? nv_cluster_rank() : 0;
	walk.shares = args.shares / cluster;
	walk.role.set(args, PAIR, sg, walk.rank * walk.shares, walk.shares);
	walk.rows = rows;
	walk.across = product_across(args, args.n_weights, TILE_ROWS);
	walk.members = PAIR ? 2 * walk.shares : walk.shares;
	walk.member = sg % walk.members;
	walk.by = groups / cluster * args.width;
	// The part of x that these shares need; rows of all threadgroups have the same stride.
	const uint from = blocks * (walk.rank * walk.shares) / args.shares * F::k;
	const uint length = blocks * ((walk.rank + 1) * walk.shares) / args.shares * F::k - from;
	const uint stride =
		(CLUSTER ? (blocks + args.shares - 1) / args.shares * walk.shares * F::k : length) +
		8;
	const uint there = min(args.k - from, length);
	group /= cluster;

	// Weights first: they do not depend on what ran before.
	typename F::codes codes0[F::pieces], codes1[F::pieces];
	typename F::heads heads0, heads1;
	walk.begin(args, operands, group * args.width + walk.role.team);
	walk.fetch(args, operands, codes0, heads0, lane);
	walk.fetch(args, operands, codes1, heads1, lane);

	wait_for_previous();

	threadgroup ulong *arrived = (threadgroup ulong *)shared;
	threadgroup half *xs = (threadgroup half *)(shared + TILES_BARRIERS);
	walk.full = arrived + 2 + walk.role.team * 4;
	walk.empty = walk.full + 2;
	walk.sums = (threadgroup float4 *)(xs + walk.rows * stride) +
		    (CLUSTER ? 0 : walk.role.team * 2 * walk.members * (BLOCKS * 32));
	if (walk.member == 0 && lane < 4)
		nv_barrier_init(walk.full + lane, lane < 2 ? walk.members : 1);
	if (norm != nullptr) {
		norm->fetch(args, xs, stride, walk.rows,
			    (threadgroup float *)(xs + walk.rows * stride),
			    walk.members * args.width, sg, lane);
	} else if (sg == 0) {
		if (lane == 0) {
			nv_barrier_init(arrived, 1);
			nv_barrier_fence_init();
			nv_barrier_expect(arrived, walk.rows * there * 2);
		}
		simdgroup_barrier(mem_flags::mem_threadgroup);
		if (lane < walk.rows)
			nv_copy_bytes(xs + lane * stride,
				      operands.row(args, lane) + ulong(from) * 2, there * 2,
				      arrived);
	}
	if (there < length) {
		const uint units = (length - there) / 8;
		for (uint i = tid; i < units * walk.rows; i += walk.members * args.width * 32)
			*(threadgroup uint4 *)(xs + i / units * stride + there + i % units * 8) =
				uint4(0);
	}
	if (CLUSTER)
		nv_cluster_barrier(); // others may write here only when all have begun
	else
		threadgroup_barrier(mem_flags::mem_threadgroup);
	if (norm == nullptr)
		nv_barrier_wait(arrived, 0);
	// Not before x is there: the next kernel's threadgroups would take room where weights are read.
	begin_next();

	// Rows that do not exist are another's: nobody reads what becomes of them.
	UNROLL
	for (uint r = 0; r < BLOCKS; r++)
		walk.x[r] = xs + min(r * 8 + lane % 8, walk.rows - 1) * stride +
			    walk.role.first * F::k - from + lane / 8 * 8;
	while (walk.tile < walk.across) {
		walk.multiply(args, operands, codes0, heads0, lane);
		walk.multiply(args, operands, codes1, heads1, lane);
	}
	if (CLUSTER) {
		// All simdgroups come to the same barriers; then others may still read here.
		while (walk.turn * walk.by + group * args.width < walk.across)
			walk.finish(args, operands, lane);
		nv_cluster_barrier();
	}
}

template <typename F, int BLOCKS, bool PAIR, bool CLUSTER, typename O>
METAL_FUNC void product_tiles(constant linear_args &args, uint rows, thread const O &operands,
			      threadgroup uchar *shared, uint group, uint groups, uint tid,
			      uint lane, uint sg)
{
	product_tiles_of<F, BLOCKS, PAIR, CLUSTER>(args, rows, operands, nullptr, shared, group,
						   groups, tid, lane, sg);
}

#else

// One team a threadgroup; x from device memory.
template <typename F, int BLOCKS, bool PAIR, bool CLUSTER, typename O>
METAL_FUNC void product_tiles(constant linear_args &args, uint rows, thread const O &operands,
			      threadgroup uchar *shared, uint group, uint groups, uint tid,
			      uint lane, uint sg)
{
	const uint members = PAIR ? 2 * args.shares : args.shares;
	const uint part = tile_part(lane), g = part / 4, t = part % 4;
	if (rows == 0 || group >= product_across(args, args.n_weights, TILE_ROWS))
		return;
	tiles_role<F> role;
	role.set(args, PAIR, sg, 0, args.shares);
	simdgroup_matrix<float, 8, 8> acc[2][BLOCKS];
	UNROLL
	for (uint i = 0; i < 2; i++)
		UNROLL
	for (uint r = 0; r < BLOCKS; r++)
		acc[i][r] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
	device const uchar *tile = role.tile(args, operands, group);
	device const half *x[BLOCKS][2];
	UNROLL
	for (uint r = 0; r < BLOCKS; r++)
		UNROLL
	for (uint i = 0; i < 2; i++)
		x[r][i] = (device const half *)operands.row(args, min(r * 8 + t * 2 + i, rows - 1));
	for (uint n = 0; n < role.length; n++, tile += F::bytes) {
		typename F::heads heads;
		F::template load_heads<tile_load>(heads, tile, part);
		for (uint p = 0; p < F::pieces; p++) {
			typename F::codes codes;
			F::template load_codes<tile_load>(codes, tile, p, part);
			UNROLL
			for (uint e = 0; e < 4; e++) {
				uint a[4];
				F::fragment(codes, heads, p, e, a);
				UNROLL
				for (uint h = 0; h < 2; h++) {
					const uint k = (role.first + n) * F::k + p * TILE_PIECE +
						       e * 16 + h * 8 + g;
					simdgroup_matrix<half, 8, 8> w[2], b;
					UNROLL
					for (uint i = 0; i < 2; i++)
						w[i].thread_elements() =
							as_type<half2>(a[h * 2 + i]);
					UNROLL
					for (uint r = 0; r < BLOCKS; r++) {
						half2 v = half2(half(0.0f));
						if (k < args.k)
							v = half2(x[r][0][k], x[r][1][k]);
						b.thread_elements() = v;
						UNROLL
						for (uint i = 0; i < 2; i++)
							simdgroup_multiply_accumulate(
								acc[i][r], w[i], b, acc[i][r]);
					}
				}
			}
		}
	}
	threadgroup float4 *sums = (threadgroup float4 *)shared;
	UNROLL
	for (uint r = 0; r < BLOCKS; r++) {
		const float2 low = acc[0][r].thread_elements(), high = acc[1][r].thread_elements();
		sums[(sg * BLOCKS + r) * 32 + lane] = float4(low, high);
	}
	threadgroup_barrier(mem_flags::mem_threadgroup);
	if (sg != 0)
		return;
	const product_place place = tiles_place(args, 0, rows, group);
	UNROLL
	for (uint r = 0; r < BLOCKS; r++)
		tiles_add<PAIR>(args, place, operands.target(place.weight), sums + r * 32,
				BLOCKS * 32, r * 8, lane);
}

#endif

template <uint FORMAT> struct tiles_f16 {
	typedef half element;
	typedef weights_f16<true, false> x;
	typedef tiled<tile_format<FORMAT>> w;
};

#endif
