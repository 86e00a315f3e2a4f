// rope_kv.metal: QK norm and RoPE of the heads of q and k; writes k and v to the cache, or with ROPE_ROWS
// to the row, behind q.
//
// A weight of 0 times V must be 0 for every masked token, so V must be finite: too large values
// become the largest number.  If a token's v has a NaN, its k becomes NaN instead, which only
// affects tokens that attend to it.  In rows v stays as it is.
//
// Grid: four heads of q | k | v, row.  A simdgroup has one head of one row; a lane has every
// 32nd rotated pair, then every 32nd of the other columns.  A head that is stored in Q8_0 is
// first put together in threadgroup memory; of each group a lane has one value.
// Order of sums: a lane's squares ascending, then the simdgroup's sum.
#include <metal_stdlib>
#include "../portable.h"
#include "../early.h"
#include "../args.h"
#include "../step.h"
#include "heads.h"

using namespace metal;

METAL_FUNC void put_v(head_target to, device const float *from, float by, uint n, uint lane)
{
	for (uint i = lane; i < n; i += 32) {
		const float x = from[i] * by;
		put(to, i, is_nan(x) ? 0.0f : clamp(x, -FLT_MAX, FLT_MAX));
	}
}

// Whether v of the n values has a NaN.
METAL_FUNC bool is_lost(device const float *v, uint n, uint lane)
{
	bool lost = false;
	for (uint i = lane; i < n; i += 32)
		lost = lost || is_nan(v[i]);
	return simd_any(lost);
}

//   x        [row][q heads | k heads | v heads][head_dim]; heads of q are q_stride apart
//   table    [row][cosines | sines][n_pairs], with ROPE_TABLE
//   q_norm, k_norm   [head_dim], with ROPE_NORM; [heads][head_dim] where all of them
//                    are normalised together, which each head's simdgroup then sums up
//   q        [row][head][head_dim]; with ROPE_ROWS q | k | v, as x
//   q_scales [position / q_scale_length]: what q is multiplied by last
//   room     [simdgroup][head_dim], for ELEMENT_Q8_0
kernel void
rope_kv(constant rope_kv_args &args [[buffer(0)]], device const step_head *step [[buffer(1)]],
	device const float *x [[buffer(2)]], device const float *table [[buffer(3)]],
	device const float *q_norm [[buffer(4)]], device const float *k_norm [[buffer(5)]],
	device uchar *q [[buffer(6)]], device const float *q_scales [[buffer(7)]],
	threadgroup float *room [[threadgroup(0)]], uint3 group [[threadgroup_position_in_grid]],
	uint lane [[thread_index_in_simdgroup]], uint sg [[simdgroup_index_in_threadgroup]])
{
	const uint row = group.y, head = group.x * 4 + sg;
	const uint n = args.head_dim, first_v = args.n_heads + args.n_kv_heads;
	const bool is_q = head < args.n_heads, is_v = head >= first_v;
	const bool in_row = is_q || (args.flags & ROPE_ROWS) != 0;
	const bool there = row < step->n_rows && head < first_v + args.n_kv_heads &&
			   (is_q || (args.flags & ROPE_Q_ONLY) == 0);
	head_target to;
	if (in_row) {
		to.p = q + (ulong(row) * args.y_stride + head * n) * element_bytes(args.y_type);
		to.type = args.y_type;
	} else if (there) {
		to = cache_target(step, args.group, args.layer, row,
				  (head - args.n_heads) % args.n_kv_heads, is_v, n,
				  is_v ? args.v_type : args.k_type, room + sg * n);
	}
	wait_for_previous();
	begin_next();
	if (!there)
		return;
	const uint v_columns = (args.flags & ROPE_NO_V) != 0 ? 0 : args.n_kv_heads * n;
	device const float *from = x + ulong(row) * args.x_stride;
	if (is_q)
		from += head * args.q_stride;
	else
		from += args.n_heads * args.q_stride + (head - args.n_heads) % args.n_kv_heads * n +
			(is_v ? v_columns : 0);
	if (is_v && in_row) {
		for (uint i = lane; i < n; i += 32)
			put(to, i, from[i]);
		return;
	}
	const bool lost = !in_row && !is_v && is_lost(from + v_columns, n, lane);
	if (is_v || lost) {
		if (is_v)
			put_v(to, from,
			      (args.flags & ROPE_NORM_V) != 0 ?
				      inverse_norm(from, n, args.norm_eps, lane) :
				      1.0f,
			      n, lane);
		else
			for (uint i = lane; i < n; i += 32)
				put(to, i, NAN);
		if (to.type == ELEMENT_Q8_0)
			put_codes(to, n, lane);
		return;
	}

	const bool norm = (args.flags & ROPE_NORM) != 0;
	device const float *w = is_q ? q_norm : k_norm;
	float inverse = 1.0f;
	if (norm) {
		const bool together =
			(args.flags & (is_q ? ROPE_NORM_ALL_Q : ROPE_NORM_ALL_K)) != 0;
		const uint nth = is_q ? head : head - args.n_heads;
		const uint length = together ? n * (is_q ? args.n_heads : args.n_kv_heads) : n;
		inverse =
			inverse_norm(together ? from - nth * n : from, length, args.norm_eps, lane);
		w += together ? nth * n : 0;
	}
	float scale = 1.0f;
	if (is_q && args.q_scale_length != 0)
		scale = q_scales[uint(step_array<int>(step, step->positions)[row]) /
				 args.q_scale_length];
	uint rotated = 0;
	if ((args.flags & ROPE_TABLE) != 0) {
		device const float *c = table + ulong(row) * args.table_stride;
		rotated = 2 * args.n_pairs;
		for (uint i = lane; i < args.n_pairs; i += 32) {
			const uint a = args.mode == PAIRS ? 2 * i : i;
			const uint b = args.mode == PAIRS ? 2 * i + 1 : i + args.n_pairs;
			float x_a = from[a], x_b = from[b];
			if (norm) {
				x_a *= inverse * w[a];
				x_b *= inverse * w[b];
			}
			const float cosine = c[i], sine = c[args.n_pairs + i];
			put(to, a, fma(x_a, cosine, -(x_b * sine)) * scale);
			put(to, b, fma(x_b, cosine, x_a * sine) * scale);
		}
	}
	for (uint i = rotated + lane; i < n; i += 32)
		put(to, i, (norm ? from[i] * (inverse * w[i]) : from[i]) * scale);
	if (to.type == ELEMENT_Q8_0)
		put_codes(to, n, lane);
}
begins_early(rope_kv);
