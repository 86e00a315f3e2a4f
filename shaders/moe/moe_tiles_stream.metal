// moe_tiles_stream.metal: experts' products of many rows.  Weights in tiles are unpacked to float16
// before (core/tiles_unpack.h), and x is copied so that the rows of an expert are neighbours; then the
// products are streams of tiles (core/product_stream.h).
//
//   moe_list     the tiles of rows, by expert
//   moe_gather   x by assignment, in the route's order, and where the results go
//   moe_…_stream the products with the experts of a piece
//
// The list, in words: for each expert, and for one more, the number of tiles of the experts before it;
// from the next multiple of four on, for each tile its first row, its rows, its expert, and zero.
#include "moe_run.h"
#include "../core/product_stream.h"

METAL_FUNC uint moe_list_at(uint n_experts) { return (n_experts + 4) / 4 * 4; }

//   room   2 x MOE_LIST_THREADS sums; then first rows and rows of the experts
[[max_total_threads_per_threadgroup(MOE_LIST_THREADS)]] kernel void
moe_list(constant moe_args &args [[buffer(0)]], device const step_head *step [[buffer(1)]],
	 device const uint *route [[buffer(2)]], device uint *list [[buffer(3)]],
	 threadgroup uint *room [[threadgroup(0)]], uint tid [[thread_index_in_threadgroup]])
{
	threadgroup uint *sums = room, *begins = room + 2 * MOE_LIST_THREADS,
			 *sizes = begins + MOE_LIST_THREADS;
	sizes[tid] = 0;
	threadgroup_barrier(mem_flags::mem_threadgroup);
	const moe_run run = moe_find(args, step, route, tid); // as many runs as experts at most
	if (run.begin < run.end) {
		begins[run.expert] = run.begin;
		sizes[run.expert] = run.end - run.begin;
	}
	threadgroup_barrier(mem_flags::mem_threadgroup);
	const uint mine = (sizes[tid] + MOE_STREAM_ROWS - 1) / MOE_STREAM_ROWS;
	uint sum = mine;
	for (uint by = 1, at = 0; by < MOE_LIST_THREADS; by *= 2, at ^= MOE_LIST_THREADS) {
		sums[at + tid] = sum;
		threadgroup_barrier(mem_flags::mem_threadgroup);
		sum += tid >= by ? sums[at + tid - by] : 0;
	}
	const uint before = sum - mine;
	if (tid < args.n_experts)
		list[tid] = before;
	if (tid + 1 == args.n_experts)
		list[tid + 1] = sum;
	device uint4 *tiles = (device uint4 *)(list + moe_list_at(args.n_experts)) + before;
	for (uint i = 0; i < mine; i++) {
		const uint done = i * MOE_STREAM_ROWS;
		tiles[i] =
			uint4(begins[tid] + done, min(sizes[tid] - done, MOE_STREAM_ROWS), tid, 0u);
	}
}

// A simdgroup copies a row.
//   rows    [n][k] of float16
//   places  [n]: the first element of y
[[max_total_threads_per_threadgroup(MOE_GATHER_THREADS)]] kernel void
moe_gather(constant moe_args &args [[buffer(0)]], device const step_head *step [[buffer(1)]],
	   device const uchar *x [[buffer(2)]], device const uint *route [[buffer(3)]],
	   device uchar *rows [[buffer(4)]], device uint *places [[buffer(5)]],
	   uint thread_at [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]])
{
	const uint at = thread_at / 32, n = step_rows(step, args.product.rows_live) * args.top_k;
	if (at >= n)
		return;
	const uint a = route[route_word(args.route_stride, args.top_k, ROUTE_ORDER, at)];
	const uint row = a / args.top_k, slot = a % args.top_k, chunks = args.product.k / 8;
	device const uint4 *from = (device const uint4 *)(x + (ulong(row) * args.product.x_stride +
							       ulong(slot) * args.x_slot) *
								      2);
	device uint4 *to = (device uint4 *)(rows + ulong(at) * args.product.k * 2);
	for (uint i = lane; i < chunks; i += 32)
		to[i] = from[i];
	if (lane == 0)
		places[at] = row * args.product.y_stride + slot * args.y_slot;
}

#ifdef NV_WGMMA
struct moe_stream_operands {
	constant moe_args &all;
	tile_map x, gate, up;
	device const uint *list, *places;
	device uchar *y;
	device const float *bias, *up_bias;
	threadgroup uint *index; // 64 for each warpgroup

	// Two neighbouring columns of tiles, of the same rows.
	METAL_FUNC product_pair pair(constant linear_args &args, uint i, uint rank, uint,
				     uint width) const thread
	{
		const uint across = (args.n[0] + width - 1) / width, pairs = (across + 1) / 2;
		const uint first = list[all.first_expert], end = list[all.end_expert];
		const uint tile = first + i / pairs, column = i % pairs * 2 + rank;
		product_pair p;
		p.any = tile < end;
		p.rows = false;
		p.place.m0 = p.place.y0 = 0;
		const uint4 t =
			p.any ? *((device const uint4 *)(list + moe_list_at(all.n_experts)) +
				  tile) :
				uint4(0);
		p.place.rows = t.y;
		p.place.weight = t.z;
		p.place.n0 = min(column, across - 1) * width;
		p.place.columns = column < across ? min(args.n[0] - p.place.n0, width) : 0;
		p.x = t.x;
		p.first = (t.z - all.first_expert) * all.rows + p.place.n0;
		p.second = p.first + all.up_row;
		return p;
	}
	METAL_FUNC tile_map first(uint) const thread { return gate; }
	METAL_FUNC tile_map second(uint) const thread { return up; }
	METAL_FUNC product_target target(uint expert) const thread
	{
		return moe_to(all, expert, y, bias, up_bias, nullptr);
	}
	METAL_FUNC void aim(thread product_target &to, thread const product_pair &p, uint row,
			    uint warpgroup, uint tid) const thread
	{
		threadgroup uint *at = index + warpgroup * 64;
		nv_barrier_some(1 + warpgroup, 128); // the tile before is written
		if (tid < 64 && row + tid < p.place.rows)
			at[tid] = places[p.x + row + tid];
		to.at = at;
	}
	METAL_FUNC void prefetch() const thread
	{
		tile_prefetch(x);
		tile_prefetch(gate);
		tile_prefetch(up);
	}
};

template <typename F, typename S, bool PAIR>
[[max_total_threads_per_threadgroup(S::SM * 32)]] kernel void
moe_stream(constant moe_args &args [[buffer(0)]], device const step_head *step [[buffer(1)]],
	   tile_map x [[buffer(2)]], tile_map gate [[buffer(3)]], tile_map up [[buffer(4)]],
	   device const uint *list [[buffer(5)]], device const uint *places [[buffer(6)]],
	   device uchar *y [[buffer(7)]], device const float *bias [[buffer(8)]],
	   device const float *up_bias [[buffer(9)]], threadgroup uchar *shared [[threadgroup(0)]],
	   uint3 group [[threadgroup_position_in_grid]], uint3 groups [[threadgroups_per_grid]],
	   uint tid [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
	   uint sg [[simdgroup_index_in_threadgroup]])
{
	const moe_stream_operands operands = {
		args,	x, gate, up,	  list,
		places, y, bias, up_bias, (threadgroup uint *)(shared + args.index_at)
	};
	product_stream<F, S, PAIR, true>(args.product, operands, shared, group.x, groups.x, tid,
					 lane, sg);
}

instantiate_kernel("moe_glu_stream", moe_stream, f16_f16, shape_stream_128, true)
instantiate_kernel("moe_down_stream", moe_stream, f16_f16, shape_stream_128, false)
#endif
