// nv.metal: every instruction that tile.h may use on NVIDIA (msl_nv.h), so that a build
// with PTX compiles them all.  On Metal the kernel is empty.
#include <metal_stdlib>
#include "portable.h"
#include "bugs_args.h"

using namespace metal;

#ifdef MSL_NV
template <typename T>
METAL_FUNC void nv_products(thread float *c, threadgroup const T *p, uint lane)
{
	uint a[4], b[4];
	nv_ldmatrix4(a, p + lane * 8);
	nv_ldmatrix4_transposed(b, p + 256 + lane * 8);
	nv_mma_16x8x16<T>(c, a, b);
#ifdef NV_WGMMA
	nv_fence_async();
	nv_wgmma_fence();
	nv_wgmma<T, 64>::run(c, nv_descriptor(p), nv_descriptor(p + 4096));
	nv_wgmma<T, 128>::run(c, nv_descriptor(p), nv_descriptor(p + 4096));
	nv_wgmma<T, 160>::run(c, nv_descriptor(p), nv_descriptor(p + 4096));
	nv_wgmma<T, 192>::run(c, nv_descriptor(p), nv_descriptor(p + 4096));
	nv_wgmma<T, 256>::run(c, nv_descriptor(p), nv_descriptor(p + 4096));
	nv_wgmma_commit();
	nv_wgmma_wait<0>();
#endif
}
#endif

kernel void nv_everything(constant bug_args &args [[buffer(0)]],
			  device const uchar *from [[buffer(1)]], device float *y [[buffer(2)]],
			  threadgroup uchar *shared [[threadgroup(0)]],
			  uint i [[thread_index_in_threadgroup]],
			  uint lane [[thread_index_in_simdgroup]])
{
#ifdef MSL_NV
	float c[128];
	UNROLL
	for (int j = 0; j < 128; j++)
		c[j] = 0.0f;
	nv_cp_async_16(shared + i * 16, from + i * 16);
	nv_cp_async_16(shared + i * 16, from + i * 16, min(args.n, 16u));
	nv_cp_async_16_cached(shared + i * 16, from + i * 16, min(args.n, 16u));
	nv_cp_async_8(shared + i * 8, from + i * 8);
	nv_cp_async_4(shared + i * 4, from + i * 4);
	nv_cp_async_commit();
	nv_cp_async_wait<0>();
	threadgroup_barrier(mem_flags::mem_threadgroup);
	nv_products(c, (threadgroup const half *)shared, lane);
	nv_products(c, (threadgroup const bfloat *)shared, lane);
	uint a[4], b[2];
	UNROLL
	for (int j = 0; j < 4; j++)
		a[j] = nv_tf32(c[j]);
	b[0] = a[1];
	b[1] = a[2];
	nv_mma_16x8x8_tf32(c, a, b);
	nv_fence_gpu();
#ifdef NV_WGMMA
	threadgroup ulong *barrier = (threadgroup ulong *)shared;
	const nv_map map = { from };
	if (i == 0)
		nv_barrier_init(barrier, 2);
	nv_barrier_fence_init();
	nv_cluster_barrier();
	nv_map_prefetch(map);
	if (i == 0) {
		nv_barrier_allow(barrier, 1024);
		nv_barrier_expect(barrier, 1024);
		nv_copy_box(shared + 1024, map, 0, 0, barrier);
		nv_copy_box_to<2>(shared + 2048, map, 0, 8, barrier);
		nv_barrier_arrive(barrier, nv_cluster_rank());
	}
	nv_barrier_wait(barrier, 0);
	nv_cluster_store((threadgroup float4 *)(shared + 4096), float4(c[0]), nv_cluster_rank());
	nv_cluster_barrier();
	threadgroup float *of = (threadgroup float *)(shared + 4096);
	c[1] = nv_cluster_load_4(of, nv_cluster_rank()).y +
	       nv_cluster_load_2(of, nv_cluster_rank()).x;
	nv_barrier_some(1, 32);
#endif
	UNROLL
	for (int j = 0; j < 128; j++)
		y[i * 128 + j] = c[j];
#endif
}
