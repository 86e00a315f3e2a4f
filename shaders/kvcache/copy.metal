// copy.metal: copies between cache blocks, before a step uses the cache.
//
// Grid: threads of a copy, copies.  A thread copies every args.n_threads-th unit of 16 bytes.
#include <metal_stdlib>
#include "../portable.h"
#include "../args.h"
#include "../step.h"

using namespace metal;

// A step_copy whose addresses are pointers.
struct copy_pointers {
	device uint4 *dst;
	device const uint4 *src;
	uint n_bytes, reserved;
};
SHARED_SIZE(copy_pointers, 24);

kernel void kv_copy(constant copy_args &args [[buffer(0)]],
		    device const step_head *step [[buffer(1)]],
		    uint3 at [[thread_position_in_grid]])
{
	if (at.y >= step->n_copies)
		return;
	device const copy_pointers *c =
		(device const copy_pointers *)((device const uchar *)step + step->copies) + at.y;
	const uint n = c->n_bytes / 16;
	for (uint i = at.x; i < n; i += args.n_threads)
		c->dst[i] = c->src[i];
}
