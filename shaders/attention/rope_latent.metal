// rope_latent.metal: the keys of multi-head latent attention, and RoPE of its queries.
//
// The first n_latent columns of a key are values too: a weight of 0 times one must be 0 for every masked
// token, so they are always finite.  If a token's have a NaN, its rotated columns, which are no values, become
// NaN instead.
//
// Grid: four heads of q | the key, row.  A simdgroup has one head of one row; a lane has every 32nd rotated
// pair, and every 32nd of the other columns.  A key that is stored in Q8_0 is first put together in
// threadgroup memory.
// Order of sums: a lane's squares ascending, then the simdgroup's sum.
#include <metal_stdlib>
#include "../portable.h"
#include "../args.h"
#include "../step.h"
#include "heads.h"

using namespace metal;

// RoPE of 2 * n_pairs columns of `from`, which become columns first, first + 1, … of the head.
METAL_FUNC void put_rotated(constant rope_latent_args &args, head_target to, uint first,
			    device const float *from, device const float *table, uint lane)
{
	for (uint i = lane; i < args.n_pairs; i += 32) {
		const uint a = args.mode == PAIRS ? 2 * i : i;
		const uint b = args.mode == PAIRS ? 2 * i + 1 : i + args.n_pairs;
		const float x_a = from[a], x_b = from[b];
		const float cosine = table[i], sine = table[args.n_pairs + i];
		put(to, first + a, fma(x_a, cosine, -(x_b * sine)));
		put(to, first + b, fma(x_b, cosine, x_a * sine));
	}
}

// The normalised latent x, then the rotated columns behind it.
METAL_FUNC void put_key(constant rope_latent_args &args, head_target to, device const float *x,
			device const float *table, device const float *w, uint lane)
{
	const float inverse = inverse_norm(x, args.n_latent, args.norm_eps, lane);
	bool lost = false;
	for (uint i = lane; i < args.n_latent; i += 32) {
		const float v = x[i] * (inverse * w[i]);
		lost = lost || is_nan(v);
		put(to, i, is_nan(v) ? 0.0f : clamp(v, -FLT_MAX, FLT_MAX));
	}
	if (simd_any(lost))
		for (uint i = lane; i < 2 * args.n_pairs; i += 32)
			put(to, args.n_latent + i, NAN);
	else
		put_rotated(args, to, args.n_latent, x + args.n_latent, table, lane);
}

//   x        [row][head][head_dim]
//   kv       [row][n_latent + 2 * n_pairs]
//   table    [row][cosines | sines][n_pairs]
//   w        [n_latent]
//   y        as x
//   room     [n_latent + 2 * n_pairs], for ELEMENT_Q8_0
kernel void rope_latent(constant rope_latent_args &args [[buffer(0)]],
			device const step_head *step [[buffer(1)]],
			device const float *x [[buffer(2)]], device const float *kv [[buffer(3)]],
			device const float *table [[buffer(4)]],
			device const float *w [[buffer(5)]], device uchar *y [[buffer(6)]],
			threadgroup float *room [[threadgroup(0)]],
			uint3 group [[threadgroup_position_in_grid]],
			uint lane [[thread_index_in_simdgroup]],
			uint sg [[simdgroup_index_in_threadgroup]])
{
	const uint row = group.y, head = group.x * 4 + sg, n = 2 * args.n_pairs;
	if (row >= step->n_rows || head > args.n_heads)
		return;
	device const float *cs = table + ulong(row) * args.table_stride;
	if (head == args.n_heads) {
		const head_target to = cache_target(step, args.group, args.layer, row, 0, false,
						    args.n_latent + n, args.k_type, room);
		put_key(args, to, kv + ulong(row) * args.kv_stride, cs, w, lane);
		if (to.type == ELEMENT_Q8_0)
			put_codes(to, args.n_latent + n, lane);
		return;
	}
	device const float *from = x + ulong(row) * args.x_stride + head * args.head_dim;
	head_target to;
	to.p = y + (ulong(row) * args.y_stride + head * args.head_dim) * element_bytes(args.y_type);
	to.type = args.y_type;
	for (uint i = lane; i < args.head_dim - n; i += 32)
		put(to, i, from[i]);
	put_rotated(args, to, args.head_dim - n, from + args.head_dim - n, cs, lane);
}
