// functions.metal: every function of our part of Metal's library, for test_functions.c
// and the tools' own tests.  Each kernel writes what it computes; the C side knows what
// it should be.
#include <metal_stdlib>
#include "portable.h"
#include "bugs_args.h"

using namespace metal;

#define PLACES uint i [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]

// out[12][n]: of x[i], plain functions and precise ones
kernel void math_float(constant bug_args &args [[buffer(0)]], device const float *x [[buffer(1)]],
		       device float *out [[buffer(2)]], PLACES)
{
	const float v = x[i], a = fabs(v) + 0.5f;
	const uint n = args.n;
	out[i] = exp(v);
	out[n + i] = log(a);
	out[2 * n + i] = sqrt(a);
	out[3 * n + i] = rsqrt(a);
	out[4 * n + i] = precise::exp(v);
	out[5 * n + i] = precise::log(a);
	out[6 * n + i] = precise::sin(v * 1000.0f);
	out[7 * n + i] = precise::cos(v * 1000.0f);
	out[8 * n + i] = precise::tanh(v);
	out[9 * n + i] = precise::divide(1.0f, a);
	out[10 * n + i] = rint(v) + floor(v) * 10.0f + ceil(v) * 100.0f + trunc(v) * 1000.0f;
	out[11 * n + i] = precise::rsqrt(a);
}

// out[10][n]
kernel void integers(constant bug_args &args [[buffer(0)]], device const uint *x [[buffer(1)]],
		     device uint *out [[buffer(2)]], PLACES)
{
	const uint v = x[i], n = args.n;
	out[i] = popcount(v);
	out[n + i] = clz(v);
	out[2 * n + i] = ctz(v);
	out[3 * n + i] = mulhi(v, 0x9e3779b9u);
	out[4 * n + i] = rotate(v, 7u);
	const ulong wide = ulong(v) * 0x100000001b3ul + 12345ul;
	out[5 * n + i] = uint(wide >> 32);
	out[6 * n + i] = uint(wide % 1000003ul);
	out[7 * n + i] = extract_bits(v, 4u, 8u);
	out[8 * n + i] = min(v, 77u) + max(v & 255u, 9u) + clamp(v, 3u, 5u);
	out[9 * n + i] = as_type<uint>(select(1.0f, 2.0f, v > 1000u));
}

// Conversions there and back; out[6][n]
template <typename T>
kernel void convert(constant bug_args &args [[buffer(0)]], device const float *x [[buffer(1)]],
		    device float *out [[buffer(2)]], device T *kept [[buffer(3)]], PLACES)
{
	typedef vec<T, 2> T2;
	typedef vec<T, 4> T4;
	const uint n = args.n;
	const float v = x[i];
	kept[i] = T(v);
	out[i] = float(kept[i]);
	const T4 four = to<T4>(float4(v, -v, v * 2.0f, 1.0f));
	const float4 back = float4(four);
	out[n + i] = back.x;
	out[2 * n + i] = back.y + back.z + back.w;
	const T2 two = to<T2>(float2(v, 3.0f));
	out[3 * n + i] = float2(two).x + float2(two).y;
	out[4 * n + i] = float(four.z) + float(two[1]);
	out[5 * n + i] = float4(*(device const T4 *)(kept + i / 4 * 4))[0] * 0.0f +
			 float2(as_type<T2>(as_type<uint>(two))).y;
}
instantiate_kernel("convert_f16", convert, half)
instantiate_kernel("convert_bf16", convert, bfloat)

// out[16][n]
kernel void simd_functions(constant bug_args &args [[buffer(0)]],
			   device const float *x [[buffer(1)]], device float *out [[buffer(2)]],
			   PLACES)
{
	const uint n = args.n;
	const float v = x[i];
	const uint u = uint(i * 7u % 32u);
	out[i] = simd_sum(v);
	out[n + i] = simd_max(v);
	out[2 * n + i] = simd_min(v);
	out[3 * n + i] = simd_prefix_inclusive_sum(v);
	out[4 * n + i] = simd_prefix_exclusive_sum(v);
	out[5 * n + i] = float(simd_prefix_inclusive_sum(u));
	out[6 * n + i] = float(simd_prefix_exclusive_sum(u));
	out[7 * n + i] = float(simd_sum(u)) * 2.0f + float(simd_sum(-int(u)));
	out[8 * n + i] = float(simd_max(int(u) - 16)) + float(simd_min(int(u) - 16)) * 100.0f;
	out[9 * n + i] = simd_shuffle_xor(v, 5);
	out[10 * n + i] = simd_shuffle_down(v, 3);
	out[11 * n + i] = simd_shuffle_up(v, 3);
	out[12 * n + i] = simd_broadcast(v, 9) + simd_broadcast_first(v);
	const float2 pair = simd_shuffle(float2(v, float(u)), ushort(31 - lane));
	const uint4 four = simd_shuffle_xor(uint4(u, u + 1, u + 2, u + 3), 1);
	out[13 * n + i] = pair.x + pair.y * 1000.0f + float(four.w);
	out[14 * n + i] = float(uint(simd_vote::vote_t(simd_ballot(u < 10u)))) +
			  (simd_any(u == 3u) ? 0.5f : 0.0f) + (simd_all(u < 32u) ? 0.25f : 0.0f);
	out[15 * n + i] = float(simd_or(u) + simd_and(u | 64u) + simd_xor(u)) +
			  float(simd_shuffle(half(u), ushort(lane ^ 2)));
}

// Counters in device memory, and a list that threads of all groups append to.
kernel void atomics(constant bug_args &args [[buffer(0)]],
		    device atomic_uint *counters [[buffer(1)]], device uint *list [[buffer(2)]],
		    device atomic_float *sum [[buffer(3)]],
		    threadgroup atomic_uint *shared [[threadgroup(0)]],
		    uint i [[thread_position_in_grid]], uint tid [[thread_index_in_threadgroup]])
{
	if (tid < 4)
		atomic_store_explicit(&shared[tid], tid == 2 ? 0xffffffffu : 0u,
				      memory_order_relaxed);
	threadgroup_barrier(mem_flags::mem_threadgroup);
	atomic_fetch_add_explicit(&shared[0], 1u, memory_order_relaxed);
	atomic_fetch_max_explicit(&shared[1], i, memory_order_relaxed);
	atomic_fetch_min_explicit(&shared[2], i, memory_order_relaxed);
	atomic_fetch_or_explicit(&shared[3], 1u << (tid & 31), memory_order_relaxed);
	threadgroup_barrier(mem_flags::mem_threadgroup);
	if (tid == 0) {
		atomic_fetch_add_explicit(&counters[0],
					  atomic_load_explicit(&shared[0], memory_order_relaxed),
					  memory_order_relaxed);
		atomic_fetch_max_explicit(&counters[1],
					  atomic_load_explicit(&shared[1], memory_order_relaxed),
					  memory_order_relaxed);
		atomic_fetch_min_explicit(&counters[2],
					  atomic_load_explicit(&shared[2], memory_order_relaxed),
					  memory_order_relaxed);
		atomic_fetch_or_explicit(&counters[3],
					 atomic_load_explicit(&shared[3], memory_order_relaxed),
					 memory_order_relaxed);
	}
	list[atomic_fetch_add_explicit(&counters[4], 1u, memory_order_relaxed)] = i;
	atomic_fetch_add_explicit(sum, 1.0f, memory_order_relaxed);
	uint seen = atomic_load_explicit(&counters[5], memory_order_relaxed);
	while (!atomic_compare_exchange_weak_explicit(&counters[5], &seen, seen + 2,
						      memory_order_relaxed, memory_order_relaxed))
		;
}

// Positions in three dimensions.  out[6]: numbers of each thread, added up by weight
kernel void positions(device uint *out [[buffer(0)]], uint3 at [[thread_position_in_grid]],
		      uint3 group [[threadgroup_position_in_grid]],
		      uint3 local_at [[thread_position_in_threadgroup]],
		      uint3 size [[threads_per_threadgroup]],
		      uint3 groups [[threadgroups_per_grid]], uint3 grid [[threads_per_grid]],
		      uint index [[thread_index_in_threadgroup]],
		      uint sg [[simdgroup_index_in_threadgroup]],
		      uint sgs [[simdgroups_per_threadgroup]],
		      uint lane [[thread_index_in_simdgroup]], uint width [[threads_per_simdgroup]])
{
	device uint *o = out + ((at.z * grid.y + at.y) * grid.x + at.x) * 4;
	o[0] = group.x + 10 * group.y + 100 * group.z + 1000 * local_at.x + 10000 * local_at.y +
	       100000 * local_at.z;
	o[1] = index == (local_at.z * size.y + local_at.y) * size.x + local_at.x ? 1 : 0;
	o[2] = sg * 32 + lane == index && sgs == (size.x * size.y * size.z + 31) / 32 &&
			       width == 32 ?
		       1 :
		       0;
	o[3] = groups.x + 10 * groups.y + 100 * groups.z;
}
