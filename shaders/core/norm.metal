// norm.metal: RMS and layer normalisation of x (+ delta), one threadgroup of 256 threads a
// row; thread t has elements 4t … 4t + 3 of every 1024.
//
// Sums are float: each thread adds in ascending order, four at a time, then a tree over the
// threads (row.h), so that a sum depends on its row alone.  For 16,384 elements the mean of
// squares is within 2e-6 of its value, usually 2e-7.
#include <metal_stdlib>
#include "portable.h"
#include "early.h"
#include "norm.h"
#include "row.h"

using namespace metal;

// What a thread has of a row, or of KEPT times 1024 elements of a long one: all is read at once, and rows
// that are not long are read once.
template <uint KEPT> struct norm_part {
	float4 four[KEPT];

	METAL_FUNC void load(device const float *row, uint at, uint step_of, uint n) thread
	{
		UNROLL
		for (uint j = 0; j < KEPT; j++) {
			four[j] = float4(0.0f);
			if (at + j * step_of < n)
				four[j] = load_four(row, at + j * step_of, n);
		}
	}
};

//   x, delta  [row][group][n]; with NORM_GATHER only rows that need logits
//   w, bias   [n]
//   y, sum    [row][group][n]
//   factor    [1], with NORM_FACTOR
//   also      [row][group][n], half or bfloat, with NORM_ALSO_…
// Where the flags say that delta, sum or bias is absent, its binding is unused.
template <typename T, uint KEPT>
kernel void
norm(constant norm_args &args [[buffer(0)]], device const step_head *step [[buffer(1)]],
     device const float *x [[buffer(2)]], device const float *delta [[buffer(3)]],
     device const float *w [[buffer(4)]], device const float *bias [[buffer(5)]],
     device T *y [[buffer(6)]], device float *sum [[buffer(7)]],
     device const float *factor [[buffer(8)]], device uchar *also [[buffer(9)]],
     threadgroup float *room [[threadgroup(0)]], uint unit [[threadgroup_position_in_grid]],
     uint tid [[thread_position_in_threadgroup]], uint threads [[threads_per_threadgroup]],
     uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]])
{
	const uint row = unit / args.n_groups, part = unit % args.n_groups * args.n;
	const uint n = args.n, step_of = threads * 4, most = KEPT * step_of;
	const bool plain = (args.flags & NORM_PLAIN) != 0,
		   there = row < step_rows(step, args.rows_live);
	uint source = row;
	if ((args.flags & NORM_GUESSES) != 0 && there)
		source = uint(step_at<int>(step, step->guess_rows)[row]);
	if ((args.flags & NORM_GATHER) != 0 && there)
		source = uint(step_at<int>(step, step->logit_rows)[source]);
	norm_part<KEPT> v, weights;
	if (!plain)
		weights.load(w, tid * 4, step_of, n);
	wait_for_previous();
	begin_next();
	if (!there)
		return;
	const bool after = (args.flags & NORM_AFTER) != 0;
	const bool with_delta = !after && (args.flags & NORM_DELTA) != 0, layer = args.kind != 0;
	const bool with_bias = (args.flags & NORM_BIAS) != 0;
	device const float *from = x + ulong(source) * args.x_stride + part;
	device const float *more = delta + ulong(source) * args.delta_stride + part;
	device float *both = sum + ulong(row) * args.sum_stride + part;
	device T *to = y + ulong(row) * args.y_stride + part;
	device uchar *second = also + (ulong(row) * args.also_stride + part) * 2;
	const float by = args.scale * ((args.flags & NORM_FACTOR) != 0 ? factor[0] : 1.0f);

	float4 values = float4(0.0f), squares = float4(0.0f);
	for (uint at = tid * 4; at < n; at += most) {
		v.load(from, at, step_of, n);
		if (with_delta) {
			norm_part<KEPT> delta_of;
			delta_of.load(more, at, step_of, n);
			UNROLL
			for (uint j = 0; j < KEPT; j++) {
				v.four[j] += delta_of.four[j];
				if (at + j * step_of < n)
					store_four(both, at + j * step_of, n, v.four[j]);
			}
		}
		UNROLL
		for (uint j = 0; j < KEPT; j++)
			if (at + j * step_of < n) {
				values += v.four[j];
				squares = fma(v.four[j], v.four[j], squares);
			}
	}
	// Of long rows each thread reads back what it wrote itself.
	if (with_delta)
		from = both;
	float mean = 0.0f;
	if (layer) {
		mean = precise::divide(
			group_sum(sum_of_four(values), room + ROW_SIMDGROUPS, lane, simdgroup),
			float(n));
		squares = float4(0.0f);
		for (uint at = tid * 4; at < n; at += most) {
			if (n > most)
				v.load(from, at, step_of, n);
			UNROLL
			for (uint j = 0; j < KEPT; j++) {
				const uint i = at + j * step_of;
				float4 distance = v.four[j] - mean;
				UNROLL
				for (uint e = 1; e < 4; e++)
					if (i + e >= n)
						distance[e] = 0.0f;
				if (i < n)
					squares = fma(distance, distance, squares);
			}
		}
	}
	const float square =
		precise::divide(group_sum(sum_of_four(squares), room, lane, simdgroup), float(n));
	const float scale = precise::divide(1.0f, precise::sqrt(square + args.eps));
	for (uint at = tid * 4; at < n; at += most) {
		if (n > most) {
			v.load(from, at, step_of, n);
			if (!plain)
				weights.load(w, at, step_of, n);
		}
		UNROLL
		for (uint j = 0; j < KEPT; j++) {
			const uint i = at + j * step_of;
			if (i >= n)
				continue;
			float4 r = (v.four[j] - mean) * scale;
			if (!plain)
				r *= weights.four[j];
			if (with_bias)
				r += load_four(bias, i, n);
			if (after)
				r = (r + load_four(more, i, n)) * by;
			store_four(to, i, n, r);
			if ((args.flags & NORM_ALSO_F16) != 0)
				store_four((device half *)second, i, n, r);
			else if ((args.flags & NORM_ALSO_BF16) != 0)
				store_four((device bfloat *)second, i, n, r);
		}
	}
}
begins_early(norm);

// Kernels for all rows, and for those of at most NORM_SHORT elements.
#define NORM(name, T)                                                                              \
	instantiate_kernel("norm_" name, norm, T, 8)                                               \
	instantiate_kernel("norm_" name "_short", norm, T, NORM_SHORT / 1024)

NORM("f32", float)
NORM("f16", half)
NORM("bf16", bfloat)
