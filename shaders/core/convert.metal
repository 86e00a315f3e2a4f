// convert.metal: converts rows of float to 16-bit elements, one threadgroup per row.
#include <metal_stdlib>
#include "portable.h"
#include "row.h"

using namespace metal;

template <typename T>
kernel void convert(constant convert_args &args [[buffer(0)]],
		    device const step_head *step [[buffer(1)]], device const float *x [[buffer(2)]],
		    device T *y [[buffer(3)]], uint row [[threadgroup_position_in_grid]],
		    uint tid [[thread_position_in_threadgroup]],
		    uint threads [[threads_per_threadgroup]])
{
	if (row >= step_rows(step, args.rows_live))
		return;
	device const float *from = x + ulong(row) * args.x_stride;
	device T *to = y + ulong(row) * args.y_stride;
	for (uint i = tid * 4; i < args.n_cols; i += threads * 4)
		store_four(to, i, args.n_cols, load_four(from, i, args.n_cols));
}

instantiate_kernel("convert_f16", convert, half)
instantiate_kernel("convert_bf16", convert, bfloat)
