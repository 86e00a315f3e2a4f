// norm.metal: RMS and layer normalisation of x (+ delta), one threadgroup of 256 threads a
// row; thread t has elements 4t … 4t + 3 of every 1024.
//
// Sums are float: each thread adds in ascending order, four at a time, then a tree over the
// threads (row.h), so that a sum depends on its row alone.  For 16,384 elements the mean of
// squares is within 2e-6 of its value, usually 2e-7.
#include <metal_stdlib>
#include "portable.h"
#include "row.h"

using namespace metal;

METAL_FUNC float sum_of_four(float4 v) { return (v.x + v.y) + (v.z + v.w); }

//   x, delta  [row][group][n]; with NORM_GATHER only rows that need logits
//   w, bias   [n]
//   y, sum    [row][group][n]
//   factor    [1], with NORM_FACTOR
// Where the flags say that delta, sum or bias is absent, its binding is unused.
template <typename T>
kernel void
norm(constant norm_args &args [[buffer(0)]], device const step_head *step [[buffer(1)]],
     device const float *x [[buffer(2)]], device const float *delta [[buffer(3)]],
     device const float *w [[buffer(4)]], device const float *bias [[buffer(5)]],
     device T *y [[buffer(6)]], device float *sum [[buffer(7)]],
     device const float *factor [[buffer(8)]], threadgroup float *room [[threadgroup(0)]],
     uint unit [[threadgroup_position_in_grid]], uint tid [[thread_position_in_threadgroup]],
     uint threads [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
     uint simdgroup [[simdgroup_index_in_threadgroup]])
{
	const uint row = unit / args.n_groups, part = unit % args.n_groups * args.n;
	if (row >= live_rows(step, args.rows_live))
		return;
	const uint n = args.n;
	const bool after = (args.flags & NORM_AFTER) != 0;
	const bool with_delta = !after && (args.flags & NORM_DELTA) != 0, layer = args.kind != 0;
	const bool with_bias = (args.flags & NORM_BIAS) != 0;
	const uint source = (args.flags & NORM_GATHER) != 0 ?
				    uint(step_at<int>(step, step->logit_rows)[row]) :
				    row;
	device const float *from = x + ulong(source) * args.x_stride + part;
	device const float *more = delta + ulong(source) * args.delta_stride + part;
	device float *both = sum + ulong(row) * args.sum_stride + part;
	device T *to = y + ulong(row) * args.y_stride + part;
	const bool plain = (args.flags & NORM_PLAIN) != 0;
	const float by = args.scale * ((args.flags & NORM_FACTOR) != 0 ? factor[0] : 1.0f);

	float4 values = float4(0.0f), squares = float4(0.0f);
	for (uint i = tid * 4; i < n; i += threads * 4) {
		float4 v = load_four(from, i, n);
		if (with_delta) {
			v += load_four(more, i, n);
			store_four(both, i, n, v);
		}
		values += v;
		squares = fma(v, v, squares);
	}
	// Each thread reads back what it wrote itself.
	if (with_delta)
		from = both;
	float mean = 0.0f;
	if (layer) {
		mean = precise::divide(
			group_sum(sum_of_four(values), room + ROW_SIMDGROUPS, lane, simdgroup),
			float(n));
		squares = float4(0.0f);
		for (uint i = tid * 4; i < n; i += threads * 4) {
			float4 v = load_four(from, i, n) - mean;
			UNROLL
			for (uint j = 1; j < 4; j++)
				if (i + j >= n)
					v[j] = 0.0f;
			squares = fma(v, v, squares);
		}
	}
	const float square =
		precise::divide(group_sum(sum_of_four(squares), room, lane, simdgroup), float(n));
	const float scale = precise::divide(1.0f, precise::sqrt(square + args.eps));
	for (uint i = tid * 4; i < n; i += threads * 4) {
		float4 v = (load_four(from, i, n) - mean) * scale;
		if (!plain)
			v *= load_four(w, i, n);
		if (with_bias)
			v += load_four(bias, i, n);
		if (after)
			v = (v + load_four(more, i, n)) * by;
		store_four(to, i, n, v);
	}
}

instantiate_kernel("norm_f32", norm, float)
instantiate_kernel("norm_f16", norm, half)
instantiate_kernel("norm_bf16", norm, bfloat)
