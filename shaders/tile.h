// tile.h: matrix products of operands in threadgroup memory.  This file differs between
// machines: Metal's simdgroup matrices (the software device runs this very branch), or an
// NVIDIA GPU's tensor cores, by mma.sync or, where there is one, by wgmma.  tile_tensor.h has the
// product of Apple's tensor units.
//
//   tile_block     ROWS x K elements in threadgroup memory: layout and copying
//   tile_product   BM x BN float accumulators of a group of simdgroups
//   tile_pipe      the pipeline: both over a range of k
// tile_stream.h has the same for an NVIDIA GPU with a copy engine (sm_90).
//
// The pipeline is the same everywhere, only its depth (STAGES) differs:
//
//   fetch    starts copying: device to registers, or on NVIDIA cp.async where a format
//            needs no work on the way
//   commit   ends a group of fetches
//   await    until all but N groups have arrived; a barrier must follow
//   land     registers to threadgroup memory, dequantised; nothing after cp.async
//
// A row of a product depends only on its own elements of x and w, and on the order of k, which is
// ascending, 8 or 16 at a time, for every tile: kernels with different tiles give the same bits.
#pragma once

#include <metal_stdlib>
#include "portable.h"
using namespace metal;

// -- copying ------------------------------------------------------------------

template <int N> METAL_FUNC void tile_await()
{
#ifdef MSL_NV
	nv_cp_async_wait<N>();
#endif
}

METAL_FUNC void tile_commit()
{
#ifdef MSL_NV
	nv_cp_async_commit();
#endif
}

#define TILE_ROW_UNIT 16

// Rows of a matrix in device memory, from row 0 of a block on.  With PAIR a block has
// rows of two matrices: its first half from a, its second from b.
struct tile_rows {
	device const uchar *a;
	device const uchar *b;
	uint row_bytes;
	uint rows;   // existing rows of each; rows after them are zero
	uint format; // for kernels of several formats
	// nullptr: consecutive rows.  Else the offset of each of a's rows, in units of
	// TILE_ROW_UNIT bytes.
	threadgroup const uint *at;
};

// ROWS rows of K elements of T, copied by THREADS threads from rows in format F (see
// core/weights.h).  So that eight rows are in eight different banks, a row is padded by 16
// bytes; where the tensor core reads the block itself (WIDE) it is not, and on NVIDIA its chunks of
// 16 bytes are permuted.  cp.async goes through the first-level cache if CACHED.
template <typename F, typename T, int ROWS, int K, int THREADS, bool PAIR, bool WIDE, bool CACHED>
struct tile_block {
	static constexpr constant int chunk = 16 / sizeof(T);
	static constexpr constant int stride = WIDE ? K : K + chunk;
	static constexpr constant int size = ROWS * stride;
#ifdef MSL_NV
	static constexpr constant bool async = F::plain, permuted = WIDE;
#else
	static constexpr constant bool async = false, permuted = false;
#endif
	static constexpr constant int unit = async ? chunk : F::unit;
	static constexpr constant int per_row = K / unit;
	static constexpr constant int units = ROWS * per_row;
	static constexpr constant int each = (units + THREADS - 1) / THREADS;

	static constexpr constant bool early = false;

	typename F::raw r[async ? 1 : each];

	static METAL_FUNC device const uchar *row_at(tile_rows from, uint row, thread bool &there)
	{
		if (!PAIR) {
			there = row < from.rows;
			if (from.at != nullptr)
				return from.a + ulong(there ? from.at[row] : 0) * TILE_ROW_UNIT;
			return from.a + ulong(row) * from.row_bytes;
		}
		const bool second = row >= ROWS / 2;
		const uint i = second ? row - ROWS / 2 : row;
		there = i < from.rows;
		return (second ? from.b : from.a) + ulong(i) * from.row_bytes;
	}

	// Chunk c (of 16 bytes) of a row.
	static METAL_FUNC uint at(uint row, uint c)
	{
		return row * stride + (permuted ? c ^ row % 8 : c) * chunk;
	}

	// Elements k … k + K - 1, zeros from `limit` on: the part-th of `parts` shares of them.
	METAL_FUNC void fetch(threadgroup T *to, tile_rows from, uint k, uint limit, uint tid,
			      int part, int parts) thread
	{
		UNROLL
		for (int i = 0; i < each; i++) {
			const uint u = tid + i * THREADS;
			if (i % parts != part || (units % THREADS != 0 && u >= uint(units)))
				continue;
			const uint row = u / per_row, c = u % per_row;
			bool there;
			device const uchar *p = row_at(from, row, there);
#ifdef MSL_NV
			if (async) {
				const uint at_k = k + c * chunk;
				device const uchar *source =
					there ? p + ulong(at_k) * sizeof(T) : from.a;
				const uint bytes = there && at_k < limit ? 16 : 0;
				if (CACHED)
					nv_cp_async_16_cached(to + at(row, c), source, bytes);
				else
					nv_cp_async_16(to + at(row, c), source, bytes);
				continue;
			}
#endif
			F::load(r[async ? 0 : i], p, k, c, there ? limit : 0, from.format);
		}
	}

	METAL_FUNC void land(threadgroup T *to, uint tid) thread
	{
		if (async)
			return;
		UNROLL
		for (int i = 0; i < each; i++) {
			const uint u = tid + i * THREADS;
			if (units % THREADS != 0 && u >= uint(units))
				continue;
			const uint row = u / per_row, c = u % per_row;
			UNROLL
			for (int run = 0; run < F::unit / 8; run++) {
				const uint first = F::place(c, run) / chunk;
				F::put(r[async ? 0 : i], run, to + at(row, first),
				       to + at(row, first + (8 / chunk - 1)));
			}
		}
	}
};

// -- weights in tiles ------------------------------------------------------------

// How a machine reads bytes that a threadgroup needs once, aligned to their size.
struct tile_load {
#ifdef MSL_NV
	static METAL_FUNC uint4 four(device const uchar *p) { return nv_load_once_4(p); }
	static METAL_FUNC uint2 two(device const uchar *p) { return nv_load_once_2(p); }
#else
	static METAL_FUNC uint4 four(device const uchar *p) { return *(device const uint4 *)p; }
	static METAL_FUNC uint2 two(device const uchar *p) { return *(device const uint2 *)p; }
#endif
	static METAL_FUNC uint one(device const uchar *p) { return *(device const uint *)p; }
	static METAL_FUNC uint half_of_one(device const uchar *p)
	{
		return *(device const ushort *)p;
	}
};

// The part of a fragment (core/tiles.h) that is a lane's in this machine's matrix instruction, and
// the lanes whose parts are those of the neighbouring output, and of t ^ 1 and t ^ 2 of the same.
#define TILE_T_1 1
#ifdef MSL_NV
#define TILE_NEIGHBOUR 4
#define TILE_T_2 2
METAL_FUNC uint tile_part(uint lane) { return lane; }
#else
#define TILE_NEIGHBOUR 2
#define TILE_T_2 8
METAL_FUNC uint tile_part(uint lane)
{
	return ((lane / 4 & 4) + lane / 2 % 4) * 4 + (lane / 4 & 2) + lane % 2;
}
#endif

// The format of weights in tiles: F is a tile_format.
template <typename F> struct tiled {
};

// A block of such weights.  row_bytes is the sixteenth of what 16 rows have.  A simdgroup copies
// 16 rows of 64 elements at once.
template <typename F, typename T, int ROWS, int K, int THREADS, bool PAIR, bool PERMUTED,
	  bool CACHED>
struct tile_block<tiled<F>, T, ROWS, K, THREADS, PAIR, PERMUTED, CACHED> {
	static constexpr constant int chunk = 8;
	static constexpr constant int stride = PERMUTED ? K : K + chunk;
	static constexpr constant int size = ROWS * stride;
	static constexpr constant int bands = ROWS / 16, units = bands * (K / 64);
	static constexpr constant int each = (units + THREADS / 32 - 1) / (THREADS / 32);
	static_assert(sizeof(T) == 2 && K % 64 == 0 && ROWS % (PAIR ? 32 : 16) == 0, "tile");

	// a step's is fetched a step before it lands: dequantising would wait for memory
	static constexpr constant bool early = true;

	typename F::codes codes[each];
	typename F::heads heads[each];
	uint piece[each];

	METAL_FUNC void fetch(threadgroup T *, tile_rows from, uint k, uint limit, uint tid,
			      int part, int parts) thread
	{
		UNROLL
		for (int i = 0; i < each; i++) {
			const uint u = tid / 32 + i * (THREADS / 32);
			if (i % parts != part || (units % (THREADS / 32) != 0 && u >= uint(units)))
				continue;
			const uint band = u % bands, at = k + u / bands * 64;
			const bool second = PAIR && band >= uint(bands / 2);
			const uint row = (second ? band - bands / 2 : band) * 16;
			piece[i] = at % F::k / 64;
			if (row < from.rows && at < limit) {
				device const uchar *tile = (second ? from.b : from.a) +
							   ulong(row) * from.row_bytes +
							   ulong(at / F::k) * F::bytes;
				F::template load_codes<tile_load>(codes[i], tile, piece[i],
								  tile_part(tid % 32));
				F::template load_heads<tile_load>(heads[i], tile,
								  tile_part(tid % 32));
			} else {
				F::clear(codes[i], heads[i]);
			}
		}
	}

	METAL_FUNC void land(threadgroup T *to, uint tid) thread
	{
		const uint lane = tid % 32;
		UNROLL
		for (int i = 0; i < each; i++) {
			const uint u = tid / 32 + i * (THREADS / 32);
			if (units % (THREADS / 32) != 0 && u >= uint(units))
				continue;
			const uint row = u % bands * 16, c = u / bands * 8;
			UNROLL
			for (int e = 0; e < 4; e++) {
				uint v[4];
				F::fragment(codes[i], heads[i], piece[i], e, v);
#ifdef NV_WGMMA
				const uint r = row + lane % 16, at = c + e * 2 + lane / 16;
				nv_stmatrix4(to + r * stride + (PERMUTED ? at ^ r % 8 : at) * chunk,
					     v);
#else
				const uint p = tile_part(lane);
				UNROLL
				for (int j = 0; j < 4; j++) {
					const uint r = row + p / 4 + j % 2 * 8,
						   at = c + e * 2 + j / 2;
					*(threadgroup uint *)(to + r * stride +
							      (PERMUTED ? at ^ r % 8 : at) * chunk +
							      p % 4 * 2) = v[j];
				}
#endif
			}
		}
	}
};

// -- a group's product ----------------------------------------------------------

// Chooses among functions where the type does not.
template <int N> struct tile_kind {
};

// BM x BN, spread over SM x SN simdgroups.  With PAIR the columns are those of two
// products, BN / 2 each, and a lane holds the same columns of both.
//
// Lanes hold pairs of neighbours in a row: pair (i, j, h) is in row row(i, h), columns
// column(j) and the next.
template <typename T, int BM, int BN, int BK, int SM, int SN, bool PAIR, bool WIDE>
struct tile_product {
#ifdef MSL_NV
	static constexpr constant int rows_of = 16; // of a fragment
	static constexpr constant int halves = 2;   // pairs that a lane has of it
	static constexpr constant int slice = 32;   // of k, a call of mma
#else
	static constexpr constant int rows_of = 8;
	static constexpr constant int halves = 1;
	static constexpr constant int slice = 8;
#endif
	static constexpr constant int tm = BM / SM / rows_of;
	static constexpr constant int tn = BN / SN / 8;
	static constexpr constant int parts = BK / slice;
	static constexpr constant int lag = WIDE ? 1 : 0; // steps that may still read their block
	static constexpr constant int stride = WIDE ? BK : BK + 16 / sizeof(T);
	static constexpr constant int columns = PAIR ? BN / 2 : BN;
	static constexpr constant bool tensor_units = false;
	static_assert(tm * SM * rows_of == BM && tn * SN * 8 == BN && parts * slice == BK, "tile");
	static_assert(!PAIR || tn % 2 == 0, "a simdgroup has the same columns of both products");

	static METAL_FUNC uint row(int i, int h, uint sg, uint lane)
	{
#ifdef MSL_NV
		return (sg / SN * tm + i) * 16 + lane / 4 + h * 8;
#else
		return (sg / SN * tm + i) * 8 + (lane / 4 & 4) + lane / 2 % 4;
#endif
	}
	// First column of fragment j among the block's rows of w.
	static METAL_FUNC uint fragment(int j, uint sg)
	{
		if (!PAIR)
			return (sg % SN * tn + j) * 8;
		return (j < tn / 2 ? 0 : columns) + (sg % SN * (tn / 2) + j % (tn / 2)) * 8;
	}
	static METAL_FUNC uint column(int j, uint sg, uint lane)
	{
#ifdef MSL_NV
		return fragment(j, sg) + lane % 4 * 2;
#else
		return fragment(j, sg) + (lane / 4 & 2) * 2 + lane % 2 * 2;
#endif
	}

#ifdef MSL_NV
	float acc[tm][tn][4];
	uint fa[tm][2][4], fb[tn][4];

	METAL_FUNC void clear() thread
	{
		UNROLL
		for (int i = 0; i < tm; i++)
			UNROLL
		for (int j = 0; j < tn; j++)
			UNROLL
		for (int e = 0; e < 4; e++)
			acc[i][j][e] = 0.0f;
	}

	METAL_FUNC float2 pair(int i, int j, int h) thread
	{
		return float2(acc[i][j][2 * h], acc[i][j][2 * h + 1]);
	}

	METAL_FUNC void mma(threadgroup const T *a, threadgroup const T *b, int part, uint, uint sg,
			    uint lane) thread
	{
		run(a, b, part, sg, lane, tile_kind<sizeof(T) == 4 ? 2 : WIDE ? 1 : 0>());
	}

	// mma.sync: 32 of k; the four quarters of b's fragment are two steps of 16.
	METAL_FUNC void run(threadgroup const T *a, threadgroup const T *b, int part, uint sg,
			    uint lane, tile_kind<0>) thread
	{
		const uint k = part * slice;
		UNROLL
		for (int i = 0; i < tm; i++)
			UNROLL
		for (int s = 0; s < 2; s++)
			nv_ldmatrix4(fa[i][s], a + ((sg / SN * tm + i) * 16 + lane % 16) * stride +
						       k + s * 16 + lane / 16 * 8);
		UNROLL
		for (int j = 0; j < tn; j++)
			nv_ldmatrix4(fb[j],
				     b + (fragment(j, sg) + lane % 8) * stride + k + lane / 8 * 8);
		UNROLL
		for (int s = 0; s < 2; s++)
			UNROLL
		for (int i = 0; i < tm; i++)
			UNROLL
		for (int j = 0; j < tn; j++)
			nv_mma_16x8x16<T>(acc[i][j], fa[i][s], fb[j] + 2 * s);
	}

	// The same of boxes of 64 elements of k (tile_rush).
	METAL_FUNC void mma_boxes(threadgroup const T *a, threadgroup const T *b, int part, uint sg,
				  uint lane) thread
	{
		UNROLL
		for (int i = 0; i < tm; i++)
			UNROLL
		for (int s = 0; s < 2; s++) {
			const uint row = (sg / SN * tm + i) * 16 + lane % 16;
			nv_ldmatrix4(fa[i][s],
				     a + row * 64 + ((part * 4 + s * 2 + lane / 16) ^ row % 8) * 8);
		}
		UNROLL
		for (int j = 0; j < tn; j++)
			nv_ldmatrix4(fb[j], b + (fragment(j, sg) + lane % 8) * 64 +
						    ((part * 4 + lane / 8) ^ lane % 8) * 8);
		UNROLL
		for (int s = 0; s < 2; s++)
			UNROLL
		for (int i = 0; i < tm; i++)
			UNROLL
		for (int j = 0; j < tn; j++)
			nv_mma_16x8x16<T>(acc[i][j], fa[i][s], fb[j] + 2 * s);
	}

	METAL_FUNC void run(threadgroup const T *a, threadgroup const T *b, int part, uint sg, uint,
			    tile_kind<1>) thread
	{
#ifdef NV_WGMMA
		UNROLL
		for (int s = 0; s < 2; s++)
			nv_wgmma<T, BN>::run(
				acc[0][0], nv_descriptor(a + sg / 4 * 64 * BK + part * 32 + s * 16),
				nv_descriptor(b + part * 32 + s * 16));
#endif
	}

	// Four elements of k.
	static METAL_FUNC float4 four(threadgroup const T *p)
	{
		return *(threadgroup const float4 *)p;
	}

	// float: one fused multiply-add after the other, of operands that are read four at a time.
	METAL_FUNC void run(threadgroup const T *a, threadgroup const T *b, int part, uint sg,
			    uint lane, tile_kind<2>) thread
	{
		UNROLL
		for (uint k = part * slice; k < uint((part + 1) * slice); k += 4) {
			float4 x[tm][2];
			UNROLL
			for (int i = 0; i < tm; i++)
				UNROLL
			for (int h = 0; h < 2; h++)
				x[i][h] = four(a + row(i, h, sg, lane) * stride + k);
			UNROLL
			for (int j = 0; j < tn; j++) {
				const float4 w0 = four(b + column(j, sg, lane) * stride + k);
				const float4 w1 = four(b + (column(j, sg, lane) + 1) * stride + k);
				UNROLL
				for (int i = 0; i < tm; i++)
					UNROLL
				for (int h = 0; h < 2; h++)
					UNROLL
				for (int e = 0; e < 4; e++) {
					acc[i][j][2 * h] = fma(x[i][h][e], w0[e], acc[i][j][2 * h]);
					acc[i][j][2 * h + 1] =
						fma(x[i][h][e], w1[e], acc[i][j][2 * h + 1]);
				}
			}
		}
	}
#else
	simdgroup_matrix<float, 8, 8> acc[tm][tn];

	METAL_FUNC void clear() thread
	{
		UNROLL
		for (int i = 0; i < tm; i++)
			UNROLL
		for (int j = 0; j < tn; j++)
			acc[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
	}

	METAL_FUNC float2 pair(int i, int j, int) thread
	{
		return float2(acc[i][j].thread_elements()[0], acc[i][j].thread_elements()[1]);
	}

	// a: BM rows of BK, b: BN rows of BK; the part-th slice.  Fragments of rows from `rows`
	// on are left out.
	METAL_FUNC void mma(threadgroup const T *a, threadgroup const T *b, int part, uint rows,
			    uint sg, uint) thread
	{
		simdgroup_matrix<T, 8, 8> fa[tm], fb;
		const uint row0 = sg / SN * tm * 8, k = part * 8;
		UNROLL
		for (int i = 0; i < tm; i++)
			if (i == 0 || row0 + i * 8 < rows)
				simdgroup_load(fa[i], a + (row0 + i * 8) * stride + k, stride);
		UNROLL
		for (int j = 0; j < tn; j++) {
			simdgroup_load(fb, b + fragment(j, sg) * stride + k, stride, ulong2(0),
				       true);
			UNROLL
			for (int i = 0; i < tm; i++)
				if (i == 0 || row0 + i * 8 < rows)
					simdgroup_multiply_accumulate(acc[i][j], fa[i], fb,
								      acc[i][j]);
		}
	}
#endif

	// Round a step: before its barrier, before its first mma(), after its last, and until all but the
	// last LAG steps are multiplied.
	METAL_FUNC void arrive() thread
	{
#ifdef NV_WGMMA
		if (WIDE)
			nv_fence_async();
#endif
	}
	METAL_FUNC void begin() thread
	{
#ifdef NV_WGMMA
		if (WIDE)
			nv_wgmma_fence();
#endif
	}
	METAL_FUNC void commit() thread
	{
#ifdef NV_WGMMA
		if (WIDE)
			nv_wgmma_commit();
#endif
	}
	template <int LAG> METAL_FUNC void await() thread
	{
#ifdef NV_WGMMA
		if (WIDE)
			nv_wgmma_wait<LAG>();
#endif
	}
};

// -- the pipeline ------------------------------------------------------------------

// p = x[BM][from …] * transpose(w[BN][from …]), `steps` steps of BK, elements from `to` on
// being zero.  STAGES - 1 steps (less those that the tensor core may still be reading) are
// fetched ahead.  `shared` has space for STAGES stages of tile_stage_size elements, used by
// this group alone.  All simdgroups of the threadgroup come here together with the same
// number of steps, unless a group is one simdgroup and ALONE with its memory.
template <typename FX, typename FW, typename T, int BM, int BN, int BK, int SM, int SN, int STAGES,
	  bool PAIR, bool WIDE>
struct tile_pipe {
	static constexpr constant int threads = SM * SN * 32;
	static constexpr constant bool alone = SM * SN == 1;
	// Few rows, which every threadgroup reads: 16 rows of 5120 x 5120 take 17.6 us on an H200
	// through the first-level cache, 21.8 past it.  Large tiles are up to 15 % slower through it.
	static constexpr constant bool cached = BM <= 16;
	typedef tile_product<T, BM, BN, BK, SM, SN, PAIR, WIDE> product;
	typedef tile_block<FX, T, BM, BK, threads, false, WIDE, cached> block_x;
	typedef tile_block<FW, T, BN, BK, threads, PAIR, WIDE, cached> block_w;
	static constexpr constant int stage = block_x::size + block_w::size; // elements
	static constexpr constant int lead = STAGES - 1 - product::lag;
	static_assert(lead >= 1, "too few stages");

	static METAL_FUNC void sync()
	{
		if (alone)
			simdgroup_barrier(mem_flags::mem_threadgroup);
		else
			threadgroup_barrier(mem_flags::mem_threadgroup);
	}

	// Starts copying the first steps; b has the one after them if it is early.
	static METAL_FUNC void start(thread block_w &b, tile_rows x, tile_rows w, uint from,
				     uint to, uint steps, threadgroup T *shared, uint tid)
	{
		block_x a;

		for (uint s = 0; s < uint(lead); s++) {
			if (s < steps) {
				threadgroup T *next = shared + s * stage;
				a.fetch(next, x, from + s * BK, to, tid, 0, 1);
				b.fetch(next + block_x::size, w, from + s * BK, to, tid, 0, 1);
				a.land(next, tid);
				b.land(next + block_x::size, tid);
			}
			tile_commit();
		}
		if (block_w::early && uint(lead) < steps)
			b.fetch(shared, w, from + lead * BK, to, tid, 0, 1);
	}

	// Adds steps `first` to `last` - 1 of `steps` to p, which is complete then, while the steps
	// after `last` are already on their way.
	static METAL_FUNC void run(thread product &p, thread block_w &b, tile_rows x, tile_rows w,
				   uint from, uint to, uint first, uint last, uint steps,
				   threadgroup T *shared, uint tid, uint lane, uint sg)
	{
		block_x a;

		for (uint s = first; s < last; s++) {
			tile_await<lead - 1>();
			p.arrive();
			sync();

			const uint ahead = s + lead;
			threadgroup T *next = shared + ahead % STAGES * stage;
			threadgroup const T *now = shared + s % STAGES * stage;
			p.begin();
			UNROLL
			for (int part = 0; part < product::parts; part++) {
				if (ahead < steps) {
					a.fetch(next, x, from + ahead * BK, to, tid, part,
						product::parts);
					if (!block_w::early)
						b.fetch(next + block_x::size, w, from + ahead * BK,
							to, tid, part, product::parts);
				}
				p.mma(now, now + block_x::size, part, x.rows, sg, lane);
			}
			tile_commit();
			p.commit();
			if (block_w::early && ahead < steps) {
				b.land(next + block_x::size, tid);
				if (ahead + 1 < steps)
					b.fetch(next, w, from + (ahead + 1) * BK, to, tid, 0, 1);
			}
			p.template await<product::lag>();
			if (ahead < steps) {
				a.land(next, tid);
				if (!block_w::early)
					b.land(next + block_x::size, tid);
			}
		}
		p.template await<0>();
	}

	static METAL_FUNC void walk(thread product &p, tile_rows x, tile_rows w, uint from, uint to,
				    uint steps, threadgroup T *shared, uint tid, uint lane, uint sg)
	{
		block_w b;

		p.clear();
		start(b, x, w, from, to, steps, shared, tid);
		run(p, b, x, w, from, to, 0, steps, steps, shared, tid, lane, sg);
	}
};
