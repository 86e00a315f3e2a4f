// product_stream.h: product.h for NVIDIA GPUs with a copy engine (sm_90): streams of tiles by
// persistent threadgroups, and products of few rows whose weights are copied ahead.
#pragma once

#include "../tile_stream.h"
#include "../early.h"
#include "product.h"

#ifdef NV_WGMMA
// -- a stream of tiles --------------------------------------------------------------------

// The epilogue of a warpgroup's tile in registers: 64 rows of a chunk of columns at a time.
template <typename S, int CHUNK, bool PAIR, typename P>
METAL_FUNC void product_stream_finish(constant linear_args &args, product_place place,
				      product_target to, thread P &p, threadgroup float *at,
				      uint tid, uint lane, uint sg)
{
	typedef product_sums<product_shape<64, CHUNK, 64, 4, 1, 1, true>, PAIR> sums;
	constexpr uint width = PAIR ? CHUNK / 2 : CHUNK;
	constexpr int fragments = CHUNK / 8, chunks = S::BN / CHUNK, blocks = P::blocks;
	const product_place all = place;
	for (uint c = 0; c < uint(chunks * blocks); c++) {
		const uint column = c / blocks * width, row = P::row(sg) + c % blocks * 64;
		P::sync(sg);
		UNROLL
		for (int i = 0; i < chunks * blocks; i++)
			if (c == uint(i)) {
				UNROLL
				for (int j = 0; j < fragments; j++)
					UNROLL
				for (int h = 0; h < 2; h++) {
					const int from =
						!PAIR ? i / blocks * fragments + j :
						j < fragments / 2 ?
							i / blocks * (fragments / 2) + j :
							S::BN / 16 + i / blocks * (fragments / 2) +
								j - fragments / 2;
					*(threadgroup float2 *)(at +
								sums::at_place(
									sg % 4 * 16 + lane / 4 +
										h * 8,
									j * 8 + lane % 4 * 2)) =
						p.pair(i % blocks, from, h);
				}
			}
		P::sync(sg);
		if (column >= all.columns || row >= all.rows)
			continue;
		place.m0 = all.m0 + row;
		place.rows = min(all.rows - row, 64u);
		place.n0 = all.n0 + column;
		place.columns = min(all.columns - column, width);
		sums::template finish_rows<128>(args, place, to, at, tid % 128);
	}
}

// Two tiles computed together: of the same columns, or, in the last row of an odd number of rows
// of tiles, two neighbours of that row.
struct product_pair {
	product_place place;   // of the rank-th threadgroup; 0 columns: it has no tile
	bool any;	       // whether there is a pair with this index
	bool rows;	       // whether both have the same columns
	uint x, first, second; // rows of the matrices: of x, of the weight's two halves
};

METAL_FUNC product_pair product_find_pair(constant linear_args &args, uint n_weights, uint rows,
					  uint pair, uint rank, uint height, uint width)
{
	product_pair p;
	const uint across = product_across(args, n_weights, width),
		   down = (rows + height - 1) / height;
	const uint high = down / 2;
	p.rows = pair < across * high;
	p.any = true;
	uint column;
	if (p.rows) {
		const uint band = pair / (PRODUCT_BAND * across) * PRODUCT_BAND;
		const uint in_band = pair % (PRODUCT_BAND * across),
			   of_band = min(high - band, PRODUCT_BAND);
		p.place.m0 = ((band + in_band % of_band) * 2 + rank) * height;
		column = in_band / of_band;
	} else {
		column = (pair - across * high) * 2 + rank;
		p.place.m0 = high * 2 * height;
		p.any = down % 2 != 0 && column - rank < across;
	}
	p.place.rows = rows > p.place.m0 ? min(rows - p.place.m0, height) : 0;
	product_columns(args, n_weights, min(column, across - 1), width, p.place);
	if (column >= across)
		p.place.columns = 0;
	p.x = p.place.m0;
	p.first = p.second = p.place.n0;
	return p;
}

// Computes all pairs, by clusters of two threadgroups.  Operands have x; pair(args, i, rank, height,
// width), the i-th pair; of a place's weight the maps first(w) and second(w), and target(w); and
// aim(target, pair, row, at, tid), which looks up where rows from `row` on go, if `at` is for that.
// SHARES: k may have several shares.
template <typename F, typename S, bool PAIR, bool SHARES, typename O>
METAL_FUNC void product_stream(constant linear_args &args, thread const O &operands,
			       threadgroup uchar *shared, uint group, uint groups, uint tid,
			       uint lane, uint sg)
{
	typedef tile_stream<typename F::element, S::BM, S::BN, S::STAGES, PAIR, SHARES> stream;
	constexpr int chunk = PRODUCT_STREAM_CHUNK(S::BN);
	constexpr uint width = PAIR ? S::BN / 2 : S::BN;
	constexpr uint part = 64 * chunk * 4; // bytes of a warpgroup's chunk
	const uint steps = (args.k + stream::BK - 1) / stream::BK;
	const uint rank = stream::rank(), first = group / 2, by = groups / 2;
	stream s;

	sg = simd_broadcast_first(sg);
	s.start(shared, stream::warpgroups * part, tid);
	if (sg >= stream::warpgroups * 4) {
		stream::copies();
		if (sg == stream::warpgroups * 4 && lane == 0) {
			operands.prefetch();
			for (uint i = first;; i += by) {
				const product_pair p = operands.pair(args, i, rank, S::BM, width);
				if (!p.any)
					break;
				s.copy(operands.x, p.x, operands.first(p.place.weight), p.first,
				       operands.second(p.place.weight),
				       PAIR ? p.second : p.first + S::BN / 2, steps, p.rows);
			}
		}
	} else {
		stream::multiplies();
		threadgroup float *at =
			(threadgroup float *)(shared + S::STAGES * stream::bytes + sg / 4 * part);
		for (uint i = first + (SHARES ? 0 : sg / 4 * by);; i += stream::turns * by) {
			const product_pair p = operands.pair(args, i, rank, S::BM, width);
			if (!p.any)
				break;
			if (!SHARES)
				s.multiply(steps, sg, lane);
			for (uint share = 0, at = 0; SHARES && share < args.shares; share++) {
				const uint end = (product_share(args, share + 1) + stream::BK - 1) /
						 stream::BK;
				s.add(end - at, share == 0, sg, lane);
				at = end;
			}
			product_target to = operands.target(p.place.weight);
			operands.aim(to, p, stream::row(sg), sg / 4, tid % 128);
			product_stream_finish<S, chunk, PAIR>(args, p.place, to, s, at, tid, lane,
							      sg);
		}
	}
	simdgroup_barrier(mem_flags::mem_none);
	stream::finish();
}

// -- at most 16 rows of a few columns, as fast as they arrive --------------------------------

// operands as above.
template <typename F, typename S, bool PAIR, typename O>
METAL_FUNC void product_rush(constant linear_args &args, device const step_head *step,
			     thread const O &operands, threadgroup uchar *shared, uint group,
			     uint tid, uint lane, uint sg)
{
	typedef tile_rush<typename F::element, S::BN, S::BK, S::SN - 1, S::STAGES, PAIR> rush;
	constexpr uint width = PAIR ? S::BN / 2 : S::BN;
	const uint across = product_across(args, args.n_weights, width);
	product_place place;
	place.m0 = group / across * rush::BM;
	product_columns(args, args.n_weights, group % across, width, place);
	if (place.m0 != 0 && place.m0 >= step_rows(step, args.rows_live))
		return;

	const uint steps = (args.k + S::BK - 1) / S::BK, started = min(steps, uint(S::STAGES));
	rush r;
	sg = simd_broadcast_first(sg);
	r.start(shared);
	const bool copies = sg == uint(S::SN - 1);
	const tile_map wa = operands.first(place.weight), wb = operands.second(place.weight);
	uint rows = 0;
	if (copies) {
		rows = step_rows(step, args.rows_live) -
		       place.m0; // loaded while the copies of w start
		if (lane == 0)
			tile_prefetch(operands.x);
		r.begin(lane);
		for (uint s = 0; s < started; s++)
			r.copy_w(wa, wb, place.n0, s, lane);
	}
	wait_for_previous(); // weights do not depend on what ran before
	threadgroup_barrier(mem_flags::mem_threadgroup);
	if (copies) {
		for (uint s = 0; s < started; s++)
			r.copy_x(operands.x, place.m0, rows, s, lane);
		for (uint s = started; s < steps; s++) {
			r.wait(s);
			r.copy_w(wa, wb, place.n0, s, lane);
			r.copy_x(operands.x, place.m0, rows, s, lane);
		}
		return;
	}
	begin_next();
	typename rush::product p;
	rows = step_rows(step, args.rows_live);
	const product_target to = operands.target(place.weight);
	place.rows = min(rows - place.m0, uint(rush::BM));
	r.multiply(p, steps, sg, lane);
	constexpr int tn = rush::product::tn;
	UNROLL
	for (int j = 0; j < (PAIR ? tn / 2 : tn); j++)
		UNROLL
	for (int h = 0; h < 2; h++) {
		const uint row = rush::product::row(0, h, sg, lane),
			   column = rush::product::column(j, sg, lane);
		if (row >= place.rows || column >= place.columns)
			continue;
		if (PAIR)
			product_finish_pair(args, place, to, row, column, p.pair(0, j, h),
					    p.pair(0, j + tn / 2, h));
		else
			product_finish(args, place, to, row, column, p.pair(0, j, h));
	}
}
#endif
