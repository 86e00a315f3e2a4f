// norm_gated.metal: RMS norms of groups of columns, with a gate behind or before them.
//
// Grid: groups of columns, row.  A simdgroup has a group; of norm_gated_wide a threadgroup.
// Order of sums: a thread's squares ascending, then a tree over the simdgroup, then the simdgroups ascending.
#include <metal_stdlib>
#include "../portable.h"
#include "../attention/element.h"
#include "../core/row.h"
#include "state.h"

using namespace metal;

//   x   [row][group][n]
//   z   [row][group][n ..]
//   w   [n], or [group][n]
//   y   as x
struct gated_group {
	device const float *x, *z, *w;
	ulong y; // index of its first element
};

METAL_FUNC gated_group group_at(constant norm_gated_args &args, device const float *x,
				device const float *z, device const float *w, uint row, uint group)
{
	gated_group g;
	g.x = x + ulong(row) * args.x_stride + group * args.n;
	g.z = z + ulong(row) * args.z_stride + group * args.n;
	g.w = w + group * args.w_step;
	g.y = ulong(row) * args.y_stride + group * args.n;
	return g;
}

// The squares of thread `tid` of `threads`.
METAL_FUNC float squares_of(constant norm_gated_args &args, gated_group g, uint tid, uint threads)
{
	float squares = 0.0f;
	for (uint i = tid; i < args.n; i += threads) {
		const float v = args.gate_first != 0 ? g.x[i] * silu(g.z[i]) : g.x[i];
		squares = fma(v, v, squares);
	}
	return squares;
}

METAL_FUNC void put_group(constant norm_gated_args &args, gated_group g, device uchar *y,
			  float squares, uint tid, uint threads)
{
	const float by = precise::divide(
		1.0f, precise::sqrt(precise::divide(squares, float(args.n)) + args.eps));
	for (uint i = tid; i < args.n; i += threads)
		store_element(y + g.y * element_bytes(args.y_type), i,
			      g.x[i] * by * g.w[i] * silu(g.z[i]), args.y_type);
}

[[max_total_threads_per_threadgroup(NORM_GATED_THREADS)]]
kernel void
norm_gated(constant norm_gated_args &args [[buffer(0)]], device const step_head *step [[buffer(1)]],
	   device const float *x [[buffer(2)]], device const float *z [[buffer(3)]],
	   device const float *w [[buffer(4)]], device uchar *y [[buffer(5)]],
	   uint3 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
	   uint sg [[simdgroup_index_in_threadgroup]])
{
	const uint row = group.y, nth = group.x * (NORM_GATED_THREADS / 32) + sg;
	if (row >= step->n_rows || nth >= args.n_groups)
		return;
	const gated_group g = group_at(args, x, z, w, row, nth);
	float squares = squares_of(args, g, lane, 32);
	UNROLL
	for (uint by = 16; by > 0; by /= 2)
		squares += simd_shuffle_xor(squares, ushort(by));
	put_group(args, g, y, squares, lane, 32);
}

//   room   ROW_SIMDGROUPS
[[max_total_threads_per_threadgroup(NORM_GATED_THREADS)]]
kernel void
norm_gated_wide(constant norm_gated_args &args [[buffer(0)]],
		device const step_head *step [[buffer(1)]], device const float *x [[buffer(2)]],
		device const float *z [[buffer(3)]], device const float *w [[buffer(4)]],
		device uchar *y [[buffer(5)]], threadgroup float *room [[threadgroup(0)]],
		uint3 group [[threadgroup_position_in_grid]],
		uint tid [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
		uint sg [[simdgroup_index_in_threadgroup]])
{
	const uint row = group.y, nth = group.x;
	if (row >= step->n_rows || nth >= args.n_groups)
		return;
	const gated_group g = group_at(args, x, z, w, row, nth);
	const float squares =
		group_sum(squares_of(args, g, tid, NORM_GATED_THREADS), room, lane, sg);
	put_group(args, g, y, squares, tid, NORM_GATED_THREADS);
}
