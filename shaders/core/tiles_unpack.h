// tiles_unpack.h: weights in tiles (tiles.h) to rows of float16, with the bits that the kernels of
// tiles multiply: for streams of many rows, which copy rows (linear_large.h).  A simdgroup has a tile at
// a time.  Kernels for *tiles_unpack.metal.
#pragma once

#include <metal_stdlib>
#include "../args.h"
#include "../portable.h"
#include "../step.h"
#include "../tile.h"
#include "tiles.h"

using namespace metal;

//   w     [n_tiles of 16 outputs][k / tile_k()] tiles
//   y     [16 n_tiles][k]
template <uint FORMAT>
[[max_total_threads_per_threadgroup(UNPACK_THREADS)]] kernel void
tiles_unpack(constant unpack_args &args [[buffer(0)]], device const step_head *step [[buffer(1)]],
	     device const uchar *w [[buffer(2)]], device half *y [[buffer(3)]],
	     uint thread_at [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]])
{
	typedef tile_format<FORMAT> F;
	const uint part = tile_part(lane), t = part % 4;
	for (uint at = thread_at / 32; at < args.n_tiles; at += args.n_simdgroups) {
		device const uchar *tile = w + ulong(at) * F::bytes;
		const uint band = at / args.across, first = at % args.across * F::k;
		typename F::codes codes[F::pieces];
		typename F::heads heads;
		F::template load_heads<tile_load>(heads, tile, part);
		UNROLL
		for (uint p = 0; p < F::pieces; p++)
			F::template load_codes<tile_load>(codes[p], tile, p, part);
		// The four parts of a row exchange words twice, so that each writes 16 bytes in a row.
		device half *to = y + ulong(band * TILE_ROWS + part / 4) * args.k + first +
				  t % 2 * 8 + t / 2 * 16;
		UNROLL
		for (uint p = 0; p < F::pieces; p++)
			UNROLL
		for (uint e = 0; e < 4; e += 2) {
			uint2 eight[2][2]; // of both fragments, of both rows
			UNROLL
			for (uint i = 0; i < 2; i++) {
				uint words[4];
				F::fragment(codes[p], heads, p, e + i, words);
				UNROLL
				for (uint h = 0; h < 2; h++) {
					const uint low = words[h], high = words[h + 2];
					const uint other =
						simd_shuffle_xor(t % 2 != 0 ? low : high, TILE_T_1);
					eight[i][h] =
						t % 2 != 0 ? uint2(other, high) : uint2(low, other);
				}
			}
			UNROLL
			for (uint h = 0; h < 2; h++) {
				const uint2 give = t / 2 != 0 ? eight[0][h] : eight[1][h];
				const uint2 keep = t / 2 != 0 ? eight[1][h] : eight[0][h];
				const uint2 get = uint2(simd_shuffle_xor(give.x, TILE_T_2),
							simd_shuffle_xor(give.y, TILE_T_2));
				if (first + p * TILE_PIECE + (e + t / 2) * 16 < args.k)
					*(device uint4 *)(to + ulong(h * 8) * args.k +
							  p * TILE_PIECE + e * 16) =
						t / 2 != 0 ? uint4(get, keep) : uint4(keep, get);
			}
		}
	}
}

// Kernels of all formats.
#define TILES_UNPACK(prefix)                                                                       \
	instantiate_kernel(prefix "tiles_unpack_q4_0", tiles_unpack, BLOCK_Q4_0)                   \
	instantiate_kernel(prefix "tiles_unpack_q4_1", tiles_unpack, BLOCK_Q4_1)                   \
	instantiate_kernel(prefix "tiles_unpack_q5_0", tiles_unpack, BLOCK_Q5_0)                   \
	instantiate_kernel(prefix "tiles_unpack_q5_1", tiles_unpack, BLOCK_Q5_1)                   \
	instantiate_kernel(prefix "tiles_unpack_q8_0", tiles_unpack, BLOCK_Q8_0)                   \
	instantiate_kernel(prefix "tiles_unpack_q8_m", tiles_unpack, BLOCK_Q8_M)                   \
	instantiate_kernel(prefix "tiles_unpack_q2_k", tiles_unpack, BLOCK_Q2_K)                   \
	instantiate_kernel(prefix "tiles_unpack_q3_k", tiles_unpack, BLOCK_Q3_K)                   \
	instantiate_kernel(prefix "tiles_unpack_q4_k", tiles_unpack, BLOCK_Q4_K)                   \
	instantiate_kernel(prefix "tiles_unpack_q5_k", tiles_unpack, BLOCK_Q5_K)                   \
	instantiate_kernel(prefix "tiles_unpack_q6_k", tiles_unpack, BLOCK_Q6_K)                   \
	instantiate_kernel(prefix "tiles_unpack_iq4_nl", tiles_unpack, BLOCK_IQ4_NL)               \
	instantiate_kernel(prefix "tiles_unpack_iq4_xs", tiles_unpack, BLOCK_IQ4_XS)               \
	instantiate_kernel(prefix "tiles_unpack_mxfp4", tiles_unpack, BLOCK_MXFP4)
