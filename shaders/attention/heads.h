// heads.h: a head of q, K or V that a simdgroup writes, for rope_kv.metal and rope_latent.metal: to a row of
// q, or to the cache in any of its types; norms.
#pragma once

#include <metal_stdlib>
#include "../portable.h"
#include "../args.h"
#include "../step.h"
#include "pages.h"
#include "element.h"

using namespace metal;

#define PAIRS 0u /* IG_ROPE_PAIRS */

// The largest value whose code times scale, 127 * 515.5, is finite as a half.
#define Q8_MOST 65468.0f

#define CODES_TOGETHER 4 /* groups whose codes are made together: each waits for its own maximum */

// The destination of a head: a row of q, or a token's slot in the cache.
struct head_target {
	device uchar *p;
	uint type;
	// of Q8_0 only
	threadgroup float *row; // [head_dim]
	device uchar *scales;	// p: codes
	uint code_stride;
};

METAL_FUNC void put(head_target to, uint i, float x)
{
	if (to.type == ELEMENT_Q8_0)
		to.row[i] = x;
	else
		store_element(to.p, i, x, to.type);
}

METAL_FUNC bool is_nan(float x) { return (as_type<uint>(x) & 0x7fffffff) > 0x7f800000; }

// Round a head's n values, a multiple of PAGES_GROUP, as quantize_group does on the host
// (modules/attention/cache_row.h): bit for bit the same of values up to Q8_MOST.
METAL_FUNC void put_codes(head_target to, uint n, uint lane)
{
	simdgroup_barrier(mem_flags::mem_threadgroup); // the row is complete
	for (uint first = lane; first < n; first += PAGES_GROUP * CODES_TOGETHER) {
		float x[CODES_TOGETHER], largest[CODES_TOGETHER];
		bool lost[CODES_TOGETHER];
		UNROLL
		for (uint j = 0; j < CODES_TOGETHER; j++) {
			const uint i = first + j * PAGES_GROUP;
			x[j] = i < n ? to.row[i] : 0.0f;
			// as integers: a NaN is larger than all
			const uint top = simd_max(as_type<uint>(x[j]) & 0x7fffffff);
			lost[j] = top > 0x7f800000;
			largest[j] = lost[j] ? 0.0f : min(as_type<float>(top), Q8_MOST);
			x[j] = lost[j] ? 0.0f : clamp(x[j], -Q8_MOST, Q8_MOST);
		}
		UNROLL
		for (uint j = 0; j < CODES_TOGETHER; j++) {
			const uint i = first + j * PAGES_GROUP;
			if (i >= n)
				continue;
			const half scale = half(precise::divide(largest[j], 127.0f));
			const float by =
				scale == half(0.0f) ? 0.0f : precise::divide(1.0f, float(scale));
			const int code = int(rint(clamp(x[j] * by, -127.0f, 127.0f)));
			to.p[i * to.code_stride] = uchar(code & 0xff);
			if (lane == 0)
				((device ushort *)to.scales)[i / PAGES_GROUP * STEP_BLOCK_TOKENS] =
					lost[j] ? ushort(0x7e00) : as_type<ushort>(scale);
		}
	}
}

// Head `nth` of K, or V, of a row of the step, of n values of this type.
METAL_FUNC head_target cache_target(device const step_head *step, uint group, uint layer, uint row,
				    uint nth, bool is_v, uint n, uint type, threadgroup float *room)
{
	const uint sequence = uint(step_array<int>(step, step->row_seq)[row]);
	const uint position = uint(step_array<int>(step, step->positions)[row]);
	const pages cache = pages_of(step, group, layer, sequence, nth);
	const uint token = position % STEP_BLOCK_TOKENS;
	device uchar *block =
		pages_block(cache, position / STEP_BLOCK_TOKENS) + (is_v ? cache.v_offset : 0);
	head_target to;
	to.type = type;
	to.row = room;
	to.code_stride = is_v ? 1 : STEP_BLOCK_TOKENS;
	to.scales = block + pages_scales(n) + token * sizeof(half);
	if (to.type == ELEMENT_Q8_0)
		to.p = block + token * (is_v ? n : 1);
	else
		to.p = block + ulong(token) * cache.token_stride;
	return to;
}

// 1 / the root of the mean square of a head's values, or of all heads' together.
METAL_FUNC float inverse_norm(device const float *x, uint n, float eps, uint lane)
{
	float squares = 0.0f;
	for (uint i = lane; i < n; i += 32)
		squares = fma(x[i], x[i], squares);
	return 1.0f / precise::sqrt(simd_sum(squares) / float(n) + eps);
}
