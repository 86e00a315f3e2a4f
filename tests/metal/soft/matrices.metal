// matrices.metal: simdgroup matrices, for test_functions.c.  Not for NVIDIA, where tile.h
// speaks to the tensor cores itself.
#include <metal_stdlib>
#include "portable.h"
#include "bugs_args.h"

using namespace metal;

// y = a * b + c, then row sums over each lane's own elements: 16x16 of four matrices, a in
// rows, b as columns (transposed).  One simdgroup.
template <typename T>
kernel void product(constant bug_args &args [[buffer(0)]], device const T *a [[buffer(1)]],
		    device const T *b [[buffer(2)]], device float *y [[buffer(3)]],
		    threadgroup float *shared [[threadgroup(0)]],
		    uint lane [[thread_index_in_simdgroup]])
{
	simdgroup_matrix<T, 8, 8> left, right;
	simdgroup_matrix<float, 8, 8> sum[2][2];
	threadgroup T *copy = (threadgroup T *)(shared + 256);
	for (uint i = lane; i < 256; i += 32)
		copy[i] = a[i];
	threadgroup_barrier(mem_flags::mem_threadgroup);
	UNROLL
	for (int r = 0; r < 2; r++) {
		UNROLL
		for (int c = 0; c < 2; c++) {
			sum[r][c] = make_filled_simdgroup_matrix<float, 8, 8>(float(r * 2 + c));
			UNROLL
			for (int k = 0; k < 2; k++) {
				simdgroup_load(left, copy + r * 128 + k * 8, 16);
				simdgroup_load(right, b, 16, ulong2(k * 8, c * 8), true);
				simdgroup_multiply_accumulate(sum[r][c], left, right, sum[r][c]);
			}
			// each lane scales its elements, and the matrix goes on as a whole
			sum[r][c].thread_elements()[0] *= 2.0f;
			sum[r][c].thread_elements()[1] *= 2.0f;
			simdgroup_load(left, copy + r * 128, 16);
			simdgroup_load(right, b, 16, ulong2(0, c * 8), true);
			simdgroup_multiply_accumulate(sum[r][c], left, right, sum[r][c]);
			simdgroup_store(sum[r][c], shared, 16, ulong2(c * 8, r * 8));
		}
	}
	threadgroup_barrier(mem_flags::mem_threadgroup);
	for (uint i = lane; i < 256; i += 32)
		y[i] = shared[i];
	// the places of a lane's elements are Apple's
	const uint row = (lane / 4 & 4) + lane / 2 % 4, column = (lane / 4 & 2) * 2 + lane % 2 * 2;
	y[256 + row * 8 + column] = sum[1][1].thread_elements()[0];
	y[256 + row * 8 + column + 1] = sum[1][1].thread_elements()[1];
}
#define PRODUCT(name, T) instantiate_kernel("product_" name, product, T)
PRODUCT("f32", float)
PRODUCT("f16", half)
PRODUCT("bf16", bfloat)
