// msl_nv_bulk.h: for tile.h: sm_90's copy engine for blocks of matrices, the barriers at which
// its copies arrive, and clusters of threadgroups, which share copied data.

// The address of a tensor map, which describes a matrix in device memory to the copy engine.
// The map is a kernel parameter, passed by value (entry.py).
struct nv_map {
	device const void *at;
};
struct alignas(64) nv_map_bytes {
	uchar bytes[128];
};

METAL_FUNC void nv_map_prefetch(nv_map m) { __asm__ volatile("prefetch.tensormap [%0];" ::"l"(m.at) : "memory"); }

// -- barriers: eight bytes of threadgroup memory, aligned to that ------------------------------------

METAL_FUNC void nv_barrier_init(threadgroup ulong *b, uint arrivals)
{
	__asm__ volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"((uint)(ulong)b), "r"(arrivals) : "memory");
}
// After every init(), before any other thread uses a barrier.
METAL_FUNC void nv_barrier_fence_init() { __asm__ volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
// Arrives, and makes the phase wait for so many copied bytes.
METAL_FUNC void nv_barrier_expect(threadgroup ulong *b, uint bytes)
{
	__asm__ volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"((uint)(ulong)b), "r"(bytes)
			 : "memory");
}
// Arrives at the same barrier in the rank-th threadgroup of the cluster.
METAL_FUNC void nv_barrier_arrive(threadgroup ulong *b, uint rank)
{
	__asm__ volatile(
		"{ .reg .b32 a; mapa.shared::cluster.u32 a, %0, %1; mbarrier.arrive.shared::cluster.b64 _, [a]; }" ::
			"r"((uint)(ulong)b),
		"r"(rank)
		: "memory");
}
// Makes the phase wait for so many copied bytes; this thread must still arrive.
METAL_FUNC void nv_barrier_allow(threadgroup ulong *b, uint bytes)
{
	__asm__ volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"((uint)(ulong)b), "r"(bytes)
			 : "memory");
}
METAL_FUNC void nv_barrier_arrive(threadgroup ulong *b)
{
	__asm__ volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"((uint)(ulong)b) : "memory");
}
// Waits until the phase of this parity has ended.
METAL_FUNC void nv_barrier_wait(threadgroup ulong *b, uint parity)
{
	__asm__ volatile(
		"{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra again; }" ::"r"(
			(uint)(ulong)b),
		"r"(parity)
		: "memory");
}

// -- copies of a box of a matrix from (column, row) on, which arrive at a barrier -------------------------

METAL_FUNC void nv_copy_box(threadgroup void *to, nv_map m, uint column, uint row, threadgroup ulong *b)
{
	__asm__ volatile(
		"cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::
			"r"((uint)(ulong)to),
		"l"(m.at), "r"(column), "r"(row), "r"((uint)(ulong)b)
		: "memory");
}
// To the same address in all CLUSTER threadgroups of the cluster.
template <int CLUSTER>
METAL_FUNC void nv_copy_box_to(threadgroup void *to, nv_map m, uint column, uint row, threadgroup ulong *b)
{
	if (CLUSTER == 1)
		nv_copy_box(to, m, column, row, b);
	else
		__asm__ volatile(
			"cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::
				"r"((uint)(ulong)to),
			"l"(m.at), "r"(column), "r"(row), "r"((uint)(ulong)b), "h"((ushort)((1 << CLUSTER) - 1))
			: "memory");
}

// So many bytes, a multiple of 16 as both addresses.
METAL_FUNC void nv_copy_bytes(threadgroup void *to, device const void *from, uint bytes, threadgroup ulong *b)
{
	__asm__ volatile(
		"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
			(uint)(ulong)to),
		"l"(from), "r"(bytes), "r"((uint)(ulong)b)
		: "memory");
}

// -- clusters ---------------------------------------------------------------------------------------

METAL_FUNC uint nv_cluster_rank()
{
	uint r;
	__asm__("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
	return r;
}
METAL_FUNC void nv_cluster_barrier()
{
	__asm__ volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// To the same address in the rank-th threadgroup of the cluster.
METAL_FUNC void nv_cluster_store(threadgroup float4 *p, float4 v, uint rank)
{
	__asm__ volatile(
		"{ .reg .b32 a; mapa.shared::cluster.u32 a, %0, %1; st.shared::cluster.v4.f32 [a], {%2,%3,%4,%5}; }" ::
			"r"((uint)(ulong)p),
		"r"(rank), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3])
		: "memory");
}

// From the same address in the rank-th threadgroup of the cluster.
METAL_FUNC float2 nv_cluster_load_2(threadgroup const float *p, uint rank)
{
	float a, b;
	__asm__ volatile("{ .reg .b32 a; mapa.shared::cluster.u32 a, %2, %3; ld.shared::cluster.v2.f32 {%0,%1}, [a]; }"
			 : "=f"(a), "=f"(b)
			 : "r"((uint)(ulong)p), "r"(rank)
			 : "memory");
	return float2(a, b);
}
METAL_FUNC float4 nv_cluster_load_4(threadgroup const float *p, uint rank)
{
	float a, b, c, d;
	__asm__ volatile(
		"{ .reg .b32 a; mapa.shared::cluster.u32 a, %4, %5; ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [a]; }"
		: "=f"(a), "=f"(b), "=f"(c), "=f"(d)
		: "r"((uint)(ulong)p), "r"(rank)
		: "memory");
	return float4(a, b, c, d);
}

// A barrier of some of a threadgroup's simdgroups; ids from 1 on.
METAL_FUNC void nv_barrier_some(uint id, uint threads)
{
	__asm__ volatile("barrier.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Sets the registers per thread of a warpgroup: some warpgroups release registers, others get them.
template <int N> METAL_FUNC void nv_registers_fewer()
{
	__asm__ volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N) : "memory");
}
template <int N> METAL_FUNC void nv_registers_more()
{
	__asm__ volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N) : "memory");
}
