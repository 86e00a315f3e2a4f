// pool.metal: one row of a sequence's rows: their mean, the first or the last one.  The result's rows are
// those of the step's logit_rows, each the last of a sequence that the step has whole.
//
// Grid: parts of a row of POOL_THREADS columns, row of the result.  Of a column a thread adds the rows, ascending.
#include <metal_stdlib>
#include "portable.h"
#include "row.h"

using namespace metal;

//   x    [row][n]
//   y    [result][n]
template <typename T>
kernel void pool(constant pool_args &args [[buffer(0)]], device const step_head *step [[buffer(1)]],
		 device const float *x [[buffer(2)]], device T *y [[buffer(3)]],
		 uint3 group [[threadgroup_position_in_grid]],
		 uint tid [[thread_index_in_threadgroup]])
{
	const uint i = group.x * POOL_THREADS + tid;
	if (group.y >= step->n_logit_rows || i >= args.n)
		return;
	uint last = uint(step_at<int>(step, step->logit_rows)[group.y]);
	const uint first = args.kind == POOL_LAST ?
				   last :
				   last - uint(step_at<int>(step, step->positions)[last]);
	if (args.kind == POOL_CLS)
		last = first;
	float sum = x[ulong(first) * args.x_stride + i];
	for (uint row = first + 1; row <= last; row++)
		sum += x[ulong(row) * args.x_stride + i];
	if (last > first)
		sum = precise::divide(sum, float(last - first + 1));
	y[ulong(group.y) * args.y_stride + i] = rounded<T>(sum);
}

instantiate_kernel("pool_f32", pool, float)
instantiate_kernel("pool_f16", pool, half)
instantiate_kernel("pool_bf16", pool, bfloat)
