// probe.metal: small kernels for the tests of the driver and of the double, 32 threads a
// threadgroup, an element a thread.
#include <metal_stdlib>
#include "portable.h"
#include "probe_args.h"

using namespace metal;

// y = x + a
kernel void probe_add(constant probe_args &args [[buffer(0)]],
		      device const probe_step *step [[buffer(1)]],
		      device const float *x [[buffer(2)]], device float *y [[buffer(3)]],
		      uint i [[thread_position_in_grid]])
{
	if (i < args.n)
		y[i] = x[args.flags & PROBE_OUTSIDE ? i + args.n : i] + args.a;
}

// y = x * the step's value
kernel void probe_scale(constant probe_args &args [[buffer(0)]],
			device const probe_step *step [[buffer(1)]],
			device const float *x [[buffer(2)]], device float *y [[buffer(3)]],
			uint i [[thread_position_in_grid]])
{
	if (i < args.n)
		y[i] = x[i] * float(step->value);
}

// y = x, reversed within a threadgroup
kernel void
probe_turn(constant probe_args &args [[buffer(0)]], device const probe_step *step [[buffer(1)]],
	   device const float *x [[buffer(2)]], device float *y [[buffer(3)]],
	   threadgroup float *room [[threadgroup(0)]], uint i [[thread_position_in_grid]],
	   uint tid [[thread_position_in_threadgroup]], uint n [[threads_per_threadgroup]])
{
	room[tid] = i < args.n ? x[i] : 0.0f;
	threadgroup_barrier(mem_flags::mem_threadgroup);
	const uint from = i - tid + (n - 1 - tid);
	if (from < args.n)
		y[from] = room[tid];
}

// Adds the step's value to every element of a slab, which only the step knows.
kernel void probe_far(constant probe_args &args [[buffer(0)]],
		      device const probe_step *step [[buffer(1)]],
		      uint i [[thread_position_in_grid]])
{
	if (i < args.n)
		((device float *)step->slab[args.slab])[i] += float(step->value);
}

// Draws ids: those of the slot get the other slot's plus the step's value.  Behind them is room for guesses.
kernel void probe_ids(constant probe_args &args [[buffer(0)]],
		      device const probe_step *step [[buffer(1)]], device int *ids [[buffer(2)]],
		      uint i [[thread_position_in_grid]])
{
	if (i < args.n)
		ids[step->slot * 2 * args.n + i] =
			ids[(1 - step->slot) * 2 * args.n + i] + int(step->value);
}

// y may be left out: it is bound, but not written
kernel void probe_optional(constant probe_args &args [[buffer(0)]],
			   device const probe_step *step [[buffer(1)]],
			   device const float *x [[buffer(2)]], device float *y [[buffer(3)]],
			   device float *z [[buffer(4)]], uint i [[thread_position_in_grid]])
{
	if (i < args.n)
		z[i] = x[i];
}
