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
#include "../early.h"
#include "../args.h"
#include "../step.h"
#include "heads.h"

using namespace metal;

#define AHEAD 16 // values that a lane loads at a time, so that none waits for the one before

// Every 32nd of n values from `first` + lane on, zeros behind them.
METAL_FUNC void load_ahead(thread float *v, device const float *from, uint first, uint n, uint lane)
{
	UNROLL
	for (uint j = 0; j < AHEAD; j++) {
		const uint i = first + j * 32 + lane;
		v[j] = i < n ? from[i] : 0.0f;
	}
}

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

// The normalised latent x, then the rotated columns behind it.  w: a lane's first values of its weight.
METAL_FUNC void put_key(constant rope_latent_args &args, head_target to, device const float *x,
			device const float *table, device const float *weight, thread float *w,
			uint lane)
{
	constexpr uint step = AHEAD * 32;
	const uint n = args.n_latent;
	float v[AHEAD], squares = 0.0f;
	for (uint first = 0; first < n; first += step) {
		load_ahead(v, x, first, n, lane);
		UNROLL
		for (uint j = 0; j < AHEAD; j++)
			squares = fma(v[j], v[j], squares);
	}
	const float inverse = 1.0f / precise::sqrt(simd_sum(squares) / float(n) + args.norm_eps);
	bool lost = false;
	for (uint first = 0; first < n; first += step) {
		if (n > step) {
			load_ahead(v, x, first, n, lane);
			load_ahead(w, weight, first, n, lane);
		}
		UNROLL
		for (uint j = 0; j < AHEAD; j++) {
			const uint i = first + j * 32 + lane;
			if (i >= n)
				continue;
			const float y = v[j] * (inverse * w[j]);
			lost = lost || is_nan(y);
			put(to, i, is_nan(y) ? 0.0f : clamp(y, -FLT_MAX, FLT_MAX));
		}
	}
	if (simd_any(lost))
		for (uint i = lane; i < 2 * args.n_pairs; i += 32)
			put(to, n + i, NAN);
	else
		put_rotated(args, to, n, x + n, table, lane);
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
	const bool is_key = head == args.n_heads,
		   there = row < step->n_rows && head <= args.n_heads;
	device const float *cs = table + ulong(row) * args.table_stride;
	head_target to;
	float v[AHEAD];
	if (there && is_key) {
		to = cache_target(step, args.group, args.layer, row, 0, false, args.n_latent + n,
				  args.k_type, room);
		load_ahead(v, w, 0, args.n_latent, lane);
	}
	wait_for_previous();
	begin_next();
	if (!there)
		return;
	if (is_key) {
		put_key(args, to, kv + ulong(row) * args.kv_stride, cs, w, v, lane);
		if (to.type == ELEMENT_Q8_0)
			put_codes(to, args.n_latent + n, lane);
		return;
	}
	const uint plain = args.head_dim - n;
	device const float *from = x + ulong(row) * args.x_stride + head * args.head_dim;
	to.p = y + (ulong(row) * args.y_stride + head * args.head_dim) * element_bytes(args.y_type);
	to.type = args.y_type;
	for (uint first = 0; first < plain; first += AHEAD * 32) {
		load_ahead(v, from, first, plain, lane);
		UNROLL
		for (uint j = 0; j < AHEAD; j++)
			if (first + j * 32 + lane < plain)
				put(to, first + j * 32 + lane, v[j]);
	}
	put_rotated(args, to, plain, from + plain, cs, lane);
}
begins_early(rope_latent);
