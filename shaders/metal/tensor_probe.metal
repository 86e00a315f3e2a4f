// tensor_probe.metal: what the metal driver runs before it uses the GPU's tensor units: the products of few rows and of
// many, of rows whose results it knows.  Without the tile that a model's kernels add: formats, shares, epilogues.
//
//   x, w   [TENSOR_PROBE_ROWS][k] in the type that is multiplied; k is a multiple of 64
//   y      [TENSOR_PROBE_ROWS][TENSOR_PROBE_ROWS] = x * transpose(w)
#include <metal_stdlib>
#include "../args.h"
#include "../portable.h"
#include "../core/product.h"

using namespace metal;

#ifdef TILE_TENSOR
METAL_FUNC tile_rows probe_rows(device const uchar *p, uint first, uint height, uint k)
{
	tile_rows r;
	r.row_bytes = k * 2;
	r.a = p + ulong(first) * r.row_bytes;
	r.b = nullptr;
	r.rows = height;
	r.format = 0;
	r.at = nullptr;
	return r;
}

// Grid: columns, rows.
template <typename F, typename S>
kernel void
tensor_probe(constant tensor_probe_args &args [[buffer(0)]], device const uchar *x [[buffer(1)]],
	     device const uchar *w [[buffer(2)]], device float *y [[buffer(3)]],
	     threadgroup uchar *shared [[threadgroup(0)]],
	     uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
	     uint lane [[thread_index_in_simdgroup]], uint sg [[simdgroup_index_in_threadgroup]])
{
	typedef typename product_pipe<F, S, false>::type pipeline;
	typedef typename F::element element;
	typedef product_sums<S, false, typename pipeline::product> sums;
	const uint row = group.y * S::BM, column = group.x * S::BN;
	typename pipeline::product p;
	pipeline::walk(p, probe_rows(x, row, S::BM, args.k), probe_rows(w, column, S::BN, args.k),
		       0, args.k, args.k / S::BK, (threadgroup element *)shared, tid, lane, sg);
	threadgroup_barrier(mem_flags::mem_threadgroup);
	threadgroup float *at = (threadgroup float *)shared;
	sums::keep(p, at, sg, lane);
	threadgroup_barrier(mem_flags::mem_threadgroup);
	for (uint i = tid; i < uint(S::BM * S::BN); i += S::SM * S::SN * 32) {
		const uint r = i / S::BN, c = i % S::BN;
		y[(row + r) * TENSOR_PROBE_ROWS + column + c] = at[sums::at_place(r, c)];
	}
}

instantiate_kernel("probe_tensor_few_f16", tensor_probe, f16_f16, shape_tensor_few)
instantiate_kernel("probe_tensor_tile_f16", tensor_probe, f16_f16, shape_tensor_tile)
instantiate_kernel("probe_tensor_few_bf16", tensor_probe, bf16_bf16, shape_tensor_few)
instantiate_kernel("probe_tensor_tile_bf16", tensor_probe, bf16_bf16, shape_tensor_tile)
#endif
