// bugs.metal: one planted mistake a kernel; test_bugs.c expects each to be reported, in
// the words that it names, and the sound_… twins to pass.  x holds 1, 2, 3 …
#include <metal_stdlib>
#include "portable.h"
#include "bugs_args.h"

using namespace metal;

#define ARGUMENTS                                                                                  \
	constant bug_args &args [[buffer(0)]], device const float *x [[buffer(1)]],                \
		device float *y [[buffer(2)]], threadgroup float *shared [[threadgroup(0)]],       \
		uint tid [[thread_position_in_threadgroup]],                                       \
		uint lane [[thread_index_in_simdgroup]],                                           \
		uint sg [[simdgroup_index_in_threadgroup]]

// -- races on threadgroup memory -----------------------------------------------------------

kernel void sound_barrier(ARGUMENTS)
{
	shared[tid] = x[tid];
	threadgroup_barrier(mem_flags::mem_threadgroup);
	y[tid] = shared[(tid + 1) % args.n];
}

kernel void bug_no_barrier(ARGUMENTS)
{
	shared[tid] = x[tid];
	y[tid] = shared[(tid + 1) % args.n];
}

// The barrier orders device memory only.
kernel void bug_wrong_flags(ARGUMENTS)
{
	shared[tid] = x[tid];
	threadgroup_barrier(mem_flags::mem_device);
	y[tid] = shared[(tid + 1) % args.n];
}

kernel void bug_no_flags(ARGUMENTS)
{
	shared[tid] = x[tid];
	threadgroup_barrier(mem_flags::mem_none);
	y[tid] = shared[(tid + 1) % args.n];
}

// A simdgroup's barrier where the reader is in another simdgroup.
kernel void bug_simdgroup_barrier(ARGUMENTS)
{
	shared[tid] = x[tid];
	simdgroup_barrier(mem_flags::mem_threadgroup);
	y[tid] = shared[(tid + 32) % args.n];
}

kernel void sound_simdgroup_barrier(ARGUMENTS)
{
	shared[tid] = x[tid];
	simdgroup_barrier(mem_flags::mem_threadgroup);
	y[tid] = shared[tid ^ 5];
}

// simd_sum makes the lanes meet, but orders no memory.
kernel void bug_sum_as_barrier(ARGUMENTS)
{
	shared[tid] = x[tid];
	const float sum = simd_sum(x[tid]);
	y[tid] = shared[tid ^ 1] + sum;
}

// The second round overwrites what others still read.
kernel void bug_reuse(ARGUMENTS)
{
	float sum = 0.0f;
	for (uint i = 0; i < args.rounds; i++) {
		shared[tid] = x[tid] * float(i + 1);
		threadgroup_barrier(mem_flags::mem_threadgroup);
		sum += shared[(tid + 1) % args.n];
	}
	y[tid] = sum;
}

kernel void sound_reuse(ARGUMENTS)
{
	float sum = 0.0f;
	for (uint i = 0; i < args.rounds; i++) {
		shared[tid] = x[tid] * float(i + 1);
		threadgroup_barrier(mem_flags::mem_threadgroup);
		sum += shared[(tid + 1) % args.n];
		threadgroup_barrier(mem_flags::mem_threadgroup);
	}
	y[tid] = sum;
}

// Two halves in turn need only one barrier a round.
kernel void sound_two_halves(ARGUMENTS)
{
	float sum = 0.0f;
	for (uint i = 0; i < args.rounds; i++) {
		threadgroup float *half_of_it = shared + i % 2 * args.n;
		half_of_it[tid] = x[tid] * float(i + 1);
		threadgroup_barrier(mem_flags::mem_threadgroup);
		sum += half_of_it[(tid + 1) % args.n];
	}
	y[tid] = sum;
}

kernel void bug_two_writers(ARGUMENTS)
{
	shared[tid / 2] = x[tid];
	threadgroup_barrier(mem_flags::mem_threadgroup);
	y[tid] = shared[tid / 2];
}

kernel void sound_atomic(ARGUMENTS)
{
	threadgroup atomic_uint *count = (threadgroup atomic_uint *)shared;
	if (tid == 0)
		atomic_store_explicit(count, 0u, memory_order_relaxed);
	threadgroup_barrier(mem_flags::mem_threadgroup);
	atomic_fetch_add_explicit(count, 1u, memory_order_relaxed);
	threadgroup_barrier(mem_flags::mem_threadgroup);
	y[tid] = float(atomic_load_explicit(count, memory_order_relaxed)) + x[tid] * 0.0f;
}

// A plain read beside the others' atomic additions.
kernel void bug_atomic_mixed(ARGUMENTS)
{
	threadgroup atomic_uint *count = (threadgroup atomic_uint *)shared;
	if (tid == 0)
		atomic_store_explicit(count, 0u, memory_order_relaxed);
	threadgroup_barrier(mem_flags::mem_threadgroup);
	atomic_fetch_add_explicit(count, 1u, memory_order_relaxed);
	y[tid] = shared[0];
}

// Each thread has a byte: neighbours do not touch each other's.
kernel void sound_bytes(ARGUMENTS)
{
	threadgroup uchar *bytes = (threadgroup uchar *)shared;
	bytes[tid] = uchar(tid);
	threadgroup_barrier(mem_flags::mem_threadgroup);
	y[tid] = float(bytes[(tid + 1) % args.n]);
}

kernel void bug_bytes(ARGUMENTS)
{
	threadgroup uchar *bytes = (threadgroup uchar *)shared;
	bytes[tid] = uchar(tid);
	y[tid] = float(bytes[tid ^ 1]);
}

kernel void bug_byte_of_word(ARGUMENTS)
{
	threadgroup uchar *bytes = (threadgroup uchar *)shared;
	if (tid == 0)
		shared[0] = x[0];
	y[tid] = float(bytes[tid ? 3 : 8]);
}

kernel void bug_word_of_bytes(ARGUMENTS)
{
	threadgroup uchar *bytes = (threadgroup uchar *)shared;
	bytes[tid] = uchar(tid);
	y[tid] = shared[tid / 4];
}

// A matrix is read from what other lanes have just written.
kernel void bug_matrix_race(ARGUMENTS)
{
	simdgroup_float8x8 m;
	shared[tid] = x[tid];
	simdgroup_load(m, shared + sg * 32, 4);
	y[tid] = m.thread_elements()[0];
}

// -- divergence ---------------------------------------------------------------------------------

kernel void bug_divergent_barrier(ARGUMENTS)
{
	if (tid < 40)
		threadgroup_barrier(mem_flags::mem_threadgroup);
	y[tid] = x[tid];
}

kernel void bug_early_return(ARGUMENTS)
{
	if (tid >= 100)
		return;
	threadgroup_barrier(mem_flags::mem_threadgroup);
	y[tid] = x[tid];
}

kernel void bug_two_barriers(ARGUMENTS)
{
	if (sg == 0) {
		shared[tid] = x[tid];
		threadgroup_barrier(mem_flags::mem_threadgroup);
	} else {
		shared[tid] = -x[tid];
		threadgroup_barrier(mem_flags::mem_threadgroup);
	}
	y[tid] = shared[tid];
}

// One barrier more for the first simdgroup.
kernel void bug_loop_barrier(ARGUMENTS)
{
	const uint rounds = sg == 0 ? args.rounds + 1 : args.rounds;
	for (uint i = 0; i < rounds; i++)
		threadgroup_barrier(mem_flags::mem_threadgroup);
	y[tid] = x[tid];
}

kernel void bug_divergent_sum(ARGUMENTS)
{
	float s = 0.0f;
	if (lane < 16)
		s = simd_sum(x[tid]);
	y[tid] = s;
}

kernel void bug_sum_after_return(ARGUMENTS)
{
	if (lane == 31)
		return;
	y[tid] = simd_sum(x[tid]);
}

kernel void sound_sum(ARGUMENTS)
{
	const float s = simd_sum(lane < 16 ? x[tid] : 0.0f);
	y[tid] = s;
}

kernel void bug_shuffle_lane(ARGUMENTS) { y[tid] = simd_shuffle(x[tid], ushort(lane + 1)); }

// -- bounds ------------------------------------------------------------------------------------------

kernel void bug_read_past(ARGUMENTS) { y[tid] = x[tid + 1]; }

kernel void bug_write_past(ARGUMENTS) { y[tid + 4096] = x[tid]; }

kernel void bug_vector_past(ARGUMENTS)
{
	if (tid < args.n / 4 + 1)
		((device float4 *)y)[tid] = float4(1.0f);
}

kernel void bug_misaligned(ARGUMENTS)
{
	device const uchar *bytes = (device const uchar *)x;
	if (tid < 8)
		y[tid] = (*(device const float4 *)(bytes + tid * 18)).x;
}

kernel void sound_packed(ARGUMENTS)
{
	device const uchar *bytes = (device const uchar *)x;
	if (tid < 8)
		y[tid] = float(ushort4(*(device const packed_ushort4 *)(bytes + tid * 18)).x);
}

kernel void bug_threadgroup_past(ARGUMENTS)
{
	shared[tid + args.n + 1] = x[tid];
	threadgroup_barrier(mem_flags::mem_threadgroup);
	y[tid] = shared[tid + args.n + 1];
}

struct bug_block {
	ushort scale;
	uchar data[16];
};

// The last of the blocks that a whole-struct copy reads is not all there.
kernel void bug_struct_past(ARGUMENTS)
{
	device const bug_block *blocks = (device const bug_block *)x;
	bug_block b = blocks[tid];
	y[tid] = float(b.scale) + float(b.data[3]);
}

// Writes where only a const pointer was bound.
kernel void bug_write_const(ARGUMENTS)
{
	((device float *)x)[tid] = 1.0f;
	y[tid] = 1.0f;
}

kernel void bug_atomic_past(ARGUMENTS)
{
	device atomic_uint *counts = (device atomic_uint *)y;
	atomic_fetch_add_explicit(&counts[tid + 1], 1u, memory_order_relaxed);
}

kernel void bug_local_past(ARGUMENTS)
{
	float local_copy[4];
	for (uint i = 0; i < 4; i++)
		local_copy[i] = x[i];
	thread float *p = local_copy;
	y[tid] = p[args.n * 1000];
}

// Addresses that the kernel reads from a table: slab 1 was not registered.
struct bug_slab {
	device float *base;
};
kernel void bug_unregistered(constant bug_args &args [[buffer(0)]],
			     device const bug_slab *slabs [[buffer(1)]],
			     device float *y [[buffer(2)]],
			     threadgroup float *shared [[threadgroup(0)]],
			     uint tid [[thread_position_in_threadgroup]])
{
	y[tid] = slabs[1].base[tid];
}
kernel void sound_registered(constant bug_args &args [[buffer(0)]],
			     device const bug_slab *slabs [[buffer(1)]],
			     device float *y [[buffer(2)]],
			     threadgroup float *shared [[threadgroup(0)]],
			     uint tid [[thread_position_in_threadgroup]])
{
	slabs[0].base[tid] += 1.0f;
	y[tid] = slabs[0].base[tid];
}

// -- memory that nobody wrote: comes out as NaN ---------------------------------------------------------

kernel void bug_unwritten(ARGUMENTS)
{
	if (tid > 0)
		shared[tid] = x[tid];
	threadgroup_barrier(mem_flags::mem_threadgroup);
	y[tid] = shared[tid];
}

// -- dispatches --------------------------------------------------------------------------------------------

[[max_total_threads_per_threadgroup(64)]]
kernel void bug_too_many_threads(ARGUMENTS)
{
	y[tid] = x[tid];
}
