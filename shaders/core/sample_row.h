// sample_row.h: the arithmetic of sampling, bit-exact as in ops/sampling.h: weights are computed
// with subtractions and multiplications, everything after them in integers.
//
// A logit becomes an ordered key: larger floats have larger keys, both zeros the same one, NaN that
// of -infinity.  Key 0 is a token that the mask forbids.  Candidates are ordered by key,
// then by id, lower ids first; as one number: order_of().
#pragma once

#include <metal_stdlib>
#include "portable.h"
#include "args.h"
#include "step.h"
#include "row.h"
using namespace metal;

#define KEY_MINUS_INFINITY 0x007fffffu
#define KEY_INFINITY 0xff800000u
#define ORDER_BITS 56 // of a key and 24 bits of id
#define KEEP_ALL 0ul

METAL_FUNC uint key_of(float x)
{
	const uint bits = as_type<uint>(x);
	if ((bits & 0x7fffffffu) > 0x7f800000u)
		return KEY_MINUS_INFINITY;
	if (bits == 0x80000000u)
		return bits;
	return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

METAL_FUNC float value_of(uint key)
{
	return as_type<float>((key >> 31) != 0 ? key & 0x7fffffffu : ~key);
}

METAL_FUNC ulong order_of(uint key, uint id) { return ulong(key) << 24 | ulong(0xffffffu - id); }

METAL_FUNC bool is_finite_key(uint key) { return key > KEY_MINUS_INFINITY && key < KEY_INFINITY; }

// Temperatures below 2^-100 are 0.
METAL_FUNC bool is_random(device const step_sample *p)
{
	return p->temperature >= 7.88860905e-31f && p->top_k != 1;
}

METAL_FUNC bool is_cut(device const step_sample *p, uint n_vocab)
{
	return (p->top_k > 0 && uint(p->top_k) < n_vocab) || p->top_p < 1.0f;
}

METAL_FUNC float adjusted(float x, device const step_adjust *e, device const step_sample *p)
{
	if (e->seen != 0)
		x = x > 0.0f ? precise::divide(x, p->repetition_penalty) :
			       x * p->repetition_penalty;
	x = fma(-float(e->n_sampled), p->frequency_penalty, x);
	if (e->n_sampled != 0)
		x -= p->presence_penalty;
	return x + e->bias;
}

// The parameters of a row's weights.
struct weigher {
	float top, scale;
};

METAL_FUNC weigher weigher_of(device const step_sample *p, uint top_key)
{
	weigher s;
	s.top = value_of(top_key);
	s.scale = precise::divide(1.0f, p->temperature) * (1.44269504f * 67108864.0f);
	return s;
}

// The distance below the largest logit, in units of 2^-26 of a halving of the weight; below 32.
METAL_FUNC uint distance_of(weigher s, uint key)
{
	if (key <= KEY_MINUS_INFINITY)
		return 2147483520u;
	const float u = (s.top - value_of(key)) * s.scale;
	return uint(int(u < 2147483648.0f ? u : 2147483520.0f));
}

// 2^30 * 2^-u.
METAL_FUNC uint weight_at(uint u)
{
	const uint f = u << 6;
	uint p = 0x0003c405u;
	p = 0x002a5309u - mulhi(f, p);
	p = 0x013a79c4u - mulhi(f, p);
	p = 0x071a9948u - mulhi(f, p);
	p = 0x1ebfba83u - mulhi(f, p);
	p = 0x58b90bf0u - mulhi(f, p);
	p = 0x80000000u - mulhi(f, p);
	return ((p >> (u >> 26)) + 1) >> 1;
}

METAL_FUNC uint weight_of(weigher s, uint key) { return weight_at(distance_of(s, key)); }

// Buckets by distance; weights in the last one are 0.
METAL_FUNC uint bucket_of(weigher s, uint key) { return distance_of(s, key) >> 23; }

METAL_FUNC uint least_weight(device const step_sample *p)
{
	const float least = p->min_p > 0.0f ? p->min_p : 0.0f;
	return uint(int((least < 1.0f ? least : 1.0f) * 1073741824.0f));
}

METAL_FUNC ulong needed(ulong total, float top_p)
{
	const ulong share = top_p > 0.0f ? uint(top_p * 4294967296.0f) : 0u;
	const ulong need = (total >> 32) * share + ((total & 0xffffffffu) * share >> 32);
	return need != 0 ? need : 1ul;
}

// The upper half of the product.
METAL_FUNC ulong place_of(ulong total, ulong bits)
{
	const ulong th = total >> 32, tl = total & 0xffffffffu;
	const ulong bh = bits >> 32, bl = bits & 0xffffffffu;
	const ulong a = tl * bh + (tl * bl >> 32);
	const ulong b = th * bl + (a & 0xffffffffu);
	return th * bh + (a >> 32) + (b >> 32);
}

// Philox 4x32-10 of (seed, position).
METAL_FUNC ulong bits_of(device const step_sample *p, uint position)
{
	uint4 c = uint4(position, uint(int(position) >> 31), 0u, 0u);
	uint k0 = p->seed_low, k1 = p->seed_high;
	for (uint round = 0; round < 10; round++) {
		const uint a = mulhi(0xd2511f53u, c.x), b = mulhi(0xcd9e8d57u, c.z);
		c = uint4(b ^ c.y ^ k0, 0xcd9e8d57u * c.z, a ^ c.w ^ k1, 0xd2511f53u * c.x);
		k0 += 0x9e3779b9u;
		k1 += 0xbb67ae85u;
	}
	return ulong(c.x) << 32 | c.y;
}

// -- over a threadgroup of SAMPLE_THREADS -------------------------------------------------

#define SAMPLE_SIMDGROUPS (SAMPLE_THREADS / 32u)

struct place {
	uint tid, lane, simdgroup;
};

// 64-bit sums as three 32-bit sums, because simdgroups have no wider ones: x < 2^58.
struct prefix {
	ulong upto, total; // of the threads up to this one, and of all
};

METAL_FUNC prefix prefix_sum(ulong x, threadgroup ulong *room, place at)
{
	const uint a = simd_prefix_inclusive_sum(uint(x) & 0xfffffu);
	const uint b = simd_prefix_inclusive_sum(uint(x >> 20) & 0xfffffu);
	const uint c = simd_prefix_inclusive_sum(uint(x >> 40));
	prefix s;
	s.upto = ulong(a) + (ulong(b) << 20) + (ulong(c) << 40);
	threadgroup_barrier(mem_flags::mem_threadgroup);
	if (at.lane == 31)
		room[at.simdgroup] = s.upto;
	threadgroup_barrier(mem_flags::mem_threadgroup);
	s.total = 0;
	for (uint i = 0; i < SAMPLE_SIMDGROUPS; i++) {
		s.upto += i < at.simdgroup ? room[i] : 0ul;
		s.total += room[i];
	}
	return s;
}

// The first thread at which the prefix sum reaches target (> 0), and the sum before it.
// slot is SAMPLE_THREADS if no sum reaches it.  room: SAMPLE_SIMDGROUPS + 2.
struct reached {
	uint slot;
	ulong before, total;
};

METAL_FUNC reached find(ulong x, ulong target, threadgroup ulong *room, place at)
{
	threadgroup ulong *found = room + SAMPLE_SIMDGROUPS;
	const prefix s = prefix_sum(x, room, at);
	if (s.upto >= target && s.upto - x < target) {
		found[0] = at.tid;
		found[1] = s.upto - x;
	}
	threadgroup_barrier(mem_flags::mem_threadgroup);
	reached r;
	r.total = s.total;
	r.slot = s.total >= target ? uint(found[0]) : SAMPLE_THREADS;
	r.before = s.total >= target ? found[1] : 0ul;
	return r;
}

// A row's largest key, from those of its parts; every thread of a simdgroup gets it.
METAL_FUNC uint top_of(device const uint2 *tops, uint n_parts, uint lane)
{
	uint top = 0;
	for (uint i = lane; i < n_parts; i += 32)
		top = max(top, tops[i].x);
	return simd_max(top);
}
