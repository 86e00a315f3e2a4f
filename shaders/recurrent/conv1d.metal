// conv1d.metal: a short convolution of each column by itself, with a state.
//
// Grid: CONV1D_THREADS columns, sequence.  A thread has a column, from the sequence's first row to its last one;
// it loads some rows' values at once, so that it waits for memory once for all of them.
// Order of sums: the bias, then the products from the oldest token to the newest.
#include <metal_stdlib>
#include "../portable.h"
#include "../attention/element.h"
#include "state.h"

using namespace metal;

#define AT_ONCE 8u // rows

//   x        [row][first + width ..], or with CONV1D_GATED p | q | r of width columns each: u = p r, y times q
//   w        [width][TAPS]
//   bias     [width], with CONV1D_BIAS
//   y        [row][width]
// The state is [TAPS - 1][width], the last values of u.
template <uint TAPS>
[[max_total_threads_per_threadgroup(CONV1D_THREADS)]]
kernel void conv1d(constant conv1d_args &args [[buffer(0)]],
		   device const step_head *step [[buffer(1)]], device const float *x [[buffer(2)]],
		   device const float *w [[buffer(3)]], device const float *bias [[buffer(4)]],
		   device uchar *y [[buffer(5)]], uint3 group [[threadgroup_position_in_grid]],
		   uint tid [[thread_index_in_threadgroup]])
{
	const uint column = group.x * CONV1D_THREADS + tid, sequence = group.y, width = args.width;
	if (sequence >= step->n_seqs || column >= width)
		return;
	run r = run_of(step, sequence);
	if (r.segment == r.end)
		return;
	const bool gated = (args.flags & CONV1D_GATED) != 0;
	const bool with_silu = (args.flags & CONV1D_SILU) != 0;
	const float first = (args.flags & CONV1D_BIAS) != 0 ? bias[column] : 0.0f;
	const bool continued = begins_with_state(step, args.group, sequence);
	float taps[TAPS], last[TAPS]; // the newest of `last` is the row's own
	UNROLL
	for (uint k = 0; k < TAPS; k++) {
		taps[k] = w[column * TAPS + k];
		last[k] = 0.0f;
	}
	if (continued) {
		device const float *from = state_part(step, args.group, args.layer, 0, sequence);
		UNROLL
		for (uint k = 0; k + 1 < TAPS; k++)
			last[k] = from[k * width + column];
	}
	for (uint row = r.first; r.segment < r.end; r.segment++) {
		const uint end = r.ends[r.segment];
		for (; row < end; row += min(AT_ONCE, end - row)) {
			float u[AT_ONCE], gate[AT_ONCE];
			UNROLL
			for (uint i = 0; i < AT_ONCE; i++) {
				u[i] = gate[i] = 0.0f;
				if (row + i < end) {
					device const float *from = x +
								   ulong(row + i) * args.x_stride +
								   args.first + column;
					u[i] = gated ? from[0] * from[2 * width] : from[0];
					gate[i] = gated ? from[width] : 1.0f;
				}
			}
			UNROLL
			for (uint i = 0; i < AT_ONCE; i++) {
				if (row + i < end) {
					float sum = first;
					last[TAPS - 1] = u[i];
					UNROLL
					for (uint k = 0; k < TAPS; k++)
						sum = fma(taps[k], last[k], sum);
					sum = with_silu ? silu(sum) : sum;
					store_element(y, (row + i) * args.y_stride + column,
						      gated ? sum * gate[i] : sum, args.y_type);
					UNROLL
					for (uint k = 0; k + 1 < TAPS; k++)
						last[k] = last[k + 1];
				}
			}
		}
		device float *to = state_part(step, args.group, args.layer, 0, r.table + r.segment);
		UNROLL
		for (uint k = 0; k + 1 < TAPS; k++)
			to[k * width + column] = last[k];
	}
}

instantiate_kernel("conv1d_2", conv1d, 2)
instantiate_kernel("conv1d_3", conv1d, 3)
instantiate_kernel("conv1d_4", conv1d, 4)
instantiate_kernel("conv1d_5", conv1d, 5)
instantiate_kernel("conv1d_6", conv1d, 6)
instantiate_kernel("conv1d_7", conv1d, 7)
instantiate_kernel("conv1d_8", conv1d, 8)
