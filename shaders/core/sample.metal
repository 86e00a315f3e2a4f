// sample.metal: samples token ids from rows of logits.
//
// A row is divided into parts of SAMPLE_PART logits, one threadgroup per part:
//   sample_top    applies penalties, biases and mask, finds each part's largest logit; random rows
//                 store their keys (sample_row.h)
//   sample_weigh  each part's sum of weights; with top_k or top_p also counts and sums by bucket
//   sample_cut    one threadgroup per row: the bucket of the cut, and in it the last remaining
//                 candidate, found digit by digit of its order
//   sample_sum    each part's sum of the remaining weights
//   sample_pick   one threadgroup per row: the part, then the sampled token, or the largest; stores
//                 its id for the next step
// A guess has no mask: that of the row is of the token before it.  Steps without random rows run only the first
// and the last.  Sums are of integers, so they do not
// depend on the order of threads.
#include <metal_stdlib>
#include "portable.h"
#include "sample_row.h"

using namespace metal;

#define EACH (SAMPLE_PART / SAMPLE_THREADS) // logits that a thread has

METAL_FUNC uint sample_rows(constant sample_args &args, device const step_head *step)
{
	return args.guess != 0 ? step->n_guess_rows : step->n_logit_rows;
}

// The parameters of a row; of a guess those of the token before it.
METAL_FUNC device const step_sample *sample_of(constant sample_args &args,
					       device const step_head *step, uint row)
{
	if (args.guess != 0)
		row = uint(step_at<int>(step, step->guess_rows)[row]);
	return step_at<step_sample>(step, step->sample) + row;
}

// -- sample_top -----------------------------------------------------------------------

//   x     [row][n_vocab]
//   keys  [row][n_vocab], of random rows
//   tops  [row][n_parts]: largest key, its lowest id
//   room  SAMPLE_PART floats, then 2 * SAMPLE_SIMDGROUPS uints
kernel void sample_top(constant sample_args &args [[buffer(0)]],
		       device const step_head *step [[buffer(1)]],
		       device const float *x [[buffer(2)]], device uint *keys [[buffer(3)]],
		       device uint2 *tops [[buffer(4)]], threadgroup float *room [[threadgroup(0)]],
		       uint2 group [[threadgroup_position_in_grid]],
		       uint2 at [[thread_position_in_threadgroup]],
		       uint lane [[thread_index_in_simdgroup]],
		       uint simdgroup [[simdgroup_index_in_threadgroup]])
{
	const uint row = group.y, first = group.x * SAMPLE_PART, tid = at.x, n = args.n_vocab;
	if (row >= sample_rows(args, step))
		return;
	device const step_sample *p = sample_of(args, step, row);
	device const float *from = x + ulong(row) * args.x_stride;
	float v[EACH];
	UNROLL
	for (uint j = 0; j < EACH; j++) {
		const uint i = first + j * SAMPLE_THREADS + tid;
		v[j] = i < n ? from[i] : 0.0f;
	}
	if (p->n_adjusts != 0) {
		UNROLL
		for (uint j = 0; j < EACH; j++)
			room[j * SAMPLE_THREADS + tid] = v[j];
		threadgroup_barrier(mem_flags::mem_threadgroup);
		device const step_adjust *adjusts =
			step_at<step_adjust>(step, step->adjusts) + p->first_adjust;
		for (uint i = tid; i < p->n_adjusts; i += SAMPLE_THREADS) {
			const uint nth = uint(adjusts[i].id) - first;
			if (nth < SAMPLE_PART) // ids are unique: no two threads write one element
				room[nth] = adjusted(room[nth], adjusts + i, p);
		}
		threadgroup_barrier(mem_flags::mem_threadgroup);
		UNROLL
		for (uint j = 0; j < EACH; j++)
			v[j] = room[j * SAMPLE_THREADS + tid];
	}
	const bool masked = args.guess == 0 && p->mask >= 0, sampled = is_random(p);
	device const uint *mask =
		step_at<uint>(step, step->masks) + ulong(masked ? p->mask : 0) * step->mask_words;
	device uint *to = keys + ulong(row) * n;
	uint best = 0, id = first + tid;
	UNROLL
	for (uint j = 0; j < EACH; j++) {
		const uint i = first + j * SAMPLE_THREADS + tid;
		uint key = 0;
		if (i < n) {
			if (!masked || (mask[i / 32] >> (i % 32) & 1) != 0)
				key = key_of(v[j]);
			if (sampled)
				to[i] = key;
		}
		id = key > best ? i : id;
		best = max(best, key);
	}
	const uint top = simd_max(best);
	const uint lowest = simd_min(best == top ? id : 0xffffffffu);
	threadgroup uint *results = (threadgroup uint *)(room + SAMPLE_PART);
	if (lane == 0) {
		results[simdgroup] = top;
		results[SAMPLE_SIMDGROUPS + simdgroup] = lowest;
	}
	threadgroup_barrier(mem_flags::mem_threadgroup);
	if (tid == 0) {
		uint2 r = uint2(results[0], results[SAMPLE_SIMDGROUPS]);
		for (uint i = 1; i < SAMPLE_SIMDGROUPS; i++) {
			const uint2 other = uint2(results[i], results[SAMPLE_SIMDGROUPS + i]);
			if (other.x > r.x || (other.x == r.x && other.y < r.y))
				r = other;
		}
		tops[ulong(row) * args.n_parts + group.x] = r;
	}
}

// The copy for the host: the model's unchanged logits.
kernel void sample_copy(constant sample_args &args [[buffer(0)]],
			device const step_head *step [[buffer(1)]],
			device const float *x [[buffer(2)]], device float *logits [[buffer(3)]],
			uint2 group [[threadgroup_position_in_grid]],
			uint2 at [[thread_position_in_threadgroup]])
{
	const uint row = group.y, first = group.x * SAMPLE_PART;
	if (row >= sample_rows(args, step))
		return;
	device const float *from = x + ulong(row) * args.x_stride;
	device float *to = logits + ulong(row) * args.n_vocab;
	for (uint j = 0; j < EACH; j++) {
		const uint i = first + j * SAMPLE_THREADS + at.x;
		if (i < args.n_vocab)
			to[i] = from[i];
	}
}

// -- sample_weigh ---------------------------------------------------------------------

//   sums     [row][n_parts] of the weights that min_p keeps; of rows without other cuts
//   counts   [row][n_parts][SAMPLE_BUCKETS] members
//   weights  [row][n_parts][SAMPLE_BUCKETS] sums of theirs
//   room     3 * SAMPLE_BUCKETS uints, then SAMPLE_SIMDGROUPS ulongs
kernel void
sample_weigh(constant sample_args &args [[buffer(0)]], device const step_head *step [[buffer(1)]],
	     device const uint *keys [[buffer(2)]], device const uint2 *tops [[buffer(3)]],
	     device ulong *sums [[buffer(4)]], device uint *counts [[buffer(5)]],
	     device ulong *weights [[buffer(6)]], threadgroup uint *room [[threadgroup(0)]],
	     uint2 group [[threadgroup_position_in_grid]],
	     uint2 at [[thread_position_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
	     uint simdgroup [[simdgroup_index_in_threadgroup]])
{
	const uint row = group.y, first = group.x * SAMPLE_PART, tid = at.x, n = args.n_vocab;
	if (row >= sample_rows(args, step))
		return;
	device const step_sample *p = sample_of(args, step, row);
	if (!is_random(p))
		return;
	const uint top = top_of(tops + ulong(row) * args.n_parts, args.n_parts, lane);
	if (!is_finite_key(top))
		return;
	const weigher scale = weigher_of(p, top);
	device const uint *from = keys + ulong(row) * n;
	const ulong part = ulong(row) * args.n_parts + group.x;
	if (!is_cut(p, n)) {
		const uint least = least_weight(p);
		ulong kept = 0;
		UNROLL
		for (uint j = 0; j < EACH; j++) {
			const uint i = first + j * SAMPLE_THREADS + tid;
			const uint w = i < n ? weight_of(scale, from[i]) : 0u;
			kept += w >= least ? w : 0u;
		}
		place me;
		me.tid = tid;
		me.lane = lane;
		me.simdgroup = simdgroup;
		const prefix s =
			prefix_sum(kept, (threadgroup ulong *)(room + 3 * SAMPLE_BUCKETS), me);
		if (tid == 0)
			sums[part] = s.total;
		return;
	}
	// Weights are split into two parts of 15 bits: a sum of 4,096 of them fits into 32 bits.
	threadgroup atomic_uint *bins = (threadgroup atomic_uint *)room;
	for (uint i = tid; i < 3 * SAMPLE_BUCKETS; i += SAMPLE_THREADS)
		room[i] = 0;
	threadgroup_barrier(mem_flags::mem_threadgroup);
	UNROLL
	for (uint j = 0; j < EACH; j++) {
		const uint i = first + j * SAMPLE_THREADS + tid;
		const uint bucket = i < n ? bucket_of(scale, from[i]) : SAMPLE_BUCKETS - 1;
		if (bucket < SAMPLE_BUCKETS - 1) {
			const uint w = weight_of(scale, from[i]);
			atomic_fetch_add_explicit(bins + bucket, 1u, memory_order_relaxed);
			atomic_fetch_add_explicit(bins + SAMPLE_BUCKETS + bucket, w & 0x7fffu,
						  memory_order_relaxed);
			atomic_fetch_add_explicit(bins + 2 * SAMPLE_BUCKETS + bucket, w >> 15,
						  memory_order_relaxed);
		}
	}
	threadgroup_barrier(mem_flags::mem_threadgroup);
	for (uint i = tid; i < SAMPLE_BUCKETS; i += SAMPLE_THREADS) {
		counts[part * SAMPLE_BUCKETS + i] = room[i];
		weights[part * SAMPLE_BUCKETS + i] = ulong(room[SAMPLE_BUCKETS + i]) +
						     (ulong(room[2 * SAMPLE_BUCKETS + i]) << 15);
	}
}

// -- sample_cut -----------------------------------------------------------------------

// A row's keys and the members of one of its buckets: a list of them if they are few.
struct members {
	device const uint *keys;
	threadgroup uint *list; // keys, then ids: SAMPLE_LIST of each
	weigher scale;
	uint n; // in the row
	uint bucket;
	uint n_listed; // more than SAMPLE_LIST: the row itself is searched
};

METAL_FUNC uint n_candidates(thread const members &m)
{
	return m.n_listed > SAMPLE_LIST ? m.n : m.n_listed;
}

METAL_FUNC bool candidate(thread const members &m, uint i, thread uint &key, thread uint &id)
{
	if (m.n_listed > SAMPLE_LIST) {
		key = m.keys[i];
		id = i;
		return bucket_of(m.scale, key) == m.bucket;
	}
	key = m.list[i];
	id = m.list[SAMPLE_LIST + i];
	return true;
}

// Fill the list.  counter: one word.
METAL_FUNC void gather(thread members &m, uint bucket, uint count, threadgroup uint *counter,
		       uint tid)
{
	m.bucket = bucket;
	m.n_listed = count;
	if (count > SAMPLE_LIST)
		return;
	threadgroup_barrier(mem_flags::mem_threadgroup);
	if (tid == 0)
		*counter = 0;
	threadgroup_barrier(mem_flags::mem_threadgroup);
	for (uint i = tid; i < m.n; i += SAMPLE_THREADS) {
		const uint key = m.keys[i];
		if (bucket_of(m.scale, key) == bucket) {
			const uint to = atomic_fetch_add_explicit(
				(threadgroup atomic_uint *)counter, 1u, memory_order_relaxed);
			m.list[to] = key;
			m.list[SAMPLE_LIST + to] = i;
		}
	}
	threadgroup_barrier(mem_flags::mem_threadgroup);
}

// The order of the last candidate of the shortest run whose sum of weights (by_count: whose
// length) reaches target; all members together reach it.  Computed in digits of 8 bits, largest
// first; the digits of bins descend, so that a run of bins is a run of candidates.  bins: 4 * 256.
METAL_FUNC ulong last_of_run(thread const members &m, bool by_count, ulong target,
			     threadgroup uint *bins, threadgroup ulong *room, place at)
{
	threadgroup atomic_uint *counters = (threadgroup atomic_uint *)bins;
	ulong upper = 0; // the digits computed so far
	const uint n = n_candidates(m);
	for (uint shift = ORDER_BITS - 8;; shift -= 8) {
		threadgroup_barrier(mem_flags::mem_threadgroup);
		for (uint i = at.tid; i < 4 * 256; i += SAMPLE_THREADS)
			bins[i] = 0;
		threadgroup_barrier(mem_flags::mem_threadgroup);
		for (uint i = at.tid; i < n; i += SAMPLE_THREADS) {
			uint key = 0, id = 0;
			if (!candidate(m, i, key, id))
				continue;
			const ulong order = order_of(key, id);
			if ((order ^ upper) >> (shift + 8) != 0)
				continue;
			// Weights are split into three parts of 11 bits: a sum of 2^20 of them fits into 32 bits.
			const uint bin = 255 - (uint(order >> shift) & 255),
				   w = weight_of(m.scale, key);
			atomic_fetch_add_explicit(counters + bin, 1u, memory_order_relaxed);
			atomic_fetch_add_explicit(counters + 256 + bin, w & 0x7ffu,
						  memory_order_relaxed);
			atomic_fetch_add_explicit(counters + 512 + bin, w >> 11 & 0x7ffu,
						  memory_order_relaxed);
			atomic_fetch_add_explicit(counters + 768 + bin, w >> 22,
						  memory_order_relaxed);
		}
		threadgroup_barrier(mem_flags::mem_threadgroup);
		const uint t = at.tid;
		const ulong weight = ulong(bins[256 + t]) + (ulong(bins[512 + t]) << 11) +
				     (ulong(bins[768 + t]) << 22);
		const reached r = find(by_count ? ulong(bins[t]) : weight, target, room, at);
		target -= r.before;
		upper |= ulong(255 - r.slot) << shift;
		if (shift == 0)
			return upper;
		if (bins[r.slot] != 1)
			continue;
		// One candidate remains: its thread stores its order.
		for (uint i = at.tid; i < n; i += SAMPLE_THREADS) {
			uint key = 0, id = 0;
			if (candidate(m, i, key, id) && (order_of(key, id) ^ upper) >> shift == 0)
				room[0] = order_of(key, id);
		}
		threadgroup_barrier(mem_flags::mem_threadgroup);
		return room[0];
	}
}

//   cuts  [row] order of the last remaining candidate
//   room  2 * SAMPLE_LIST uints, 4 * 256 uints, a counter (4 uints), SAMPLE_SIMDGROUPS + 2 ulongs
kernel void
sample_cut(constant sample_args &args [[buffer(0)]], device const step_head *step [[buffer(1)]],
	   device const uint *keys [[buffer(2)]], device const uint2 *tops [[buffer(3)]],
	   device const uint *counts [[buffer(4)]], device const ulong *weights [[buffer(5)]],
	   device ulong *cuts [[buffer(6)]], threadgroup uint *room [[threadgroup(0)]],
	   uint row [[threadgroup_position_in_grid]], uint tid [[thread_position_in_threadgroup]],
	   uint lane [[thread_index_in_simdgroup]],
	   uint simdgroup [[simdgroup_index_in_threadgroup]])
{
	if (row >= sample_rows(args, step))
		return;
	device const step_sample *p = sample_of(args, step, row);
	if (!is_random(p) || !is_cut(p, args.n_vocab))
		return;
	const ulong first_part = ulong(row) * args.n_parts;
	const uint top = top_of(tops + first_part, args.n_parts, lane);
	if (!is_finite_key(top))
		return;
	threadgroup uint *bins = room + 2 * SAMPLE_LIST, *counter = bins + 4 * 256;
	threadgroup ulong *sums = (threadgroup ulong *)(counter + 4);
	place at;
	at.tid = tid;
	at.lane = lane;
	at.simdgroup = simdgroup;
	members m;
	m.keys = keys + ulong(row) * args.n_vocab;
	m.list = room;
	m.scale = weigher_of(p, top);
	m.n = args.n_vocab;
	m.bucket = SAMPLE_BUCKETS;
	m.n_listed = 0;

	// Thread t has bucket t.
	uint count = 0;
	ulong weight = 0;
	for (uint i = 0; i < args.n_parts; i++) {
		count += counts[(first_part + i) * SAMPLE_BUCKETS + tid];
		weight += weights[(first_part + i) * SAMPLE_BUCKETS + tid];
	}
	ulong total = prefix_sum(weight, sums, at).total, cut = KEEP_ALL;
	if (p->top_k > 0 && uint(p->top_k) < args.n_vocab) {
		const ulong k = uint(p->top_k);
		const reached r = find(ulong(count), k, sums, at);
		// Weights beyond the buckets are 0: no candidate is cut.
		if (r.slot < SAMPLE_THREADS) {
			const uint n = uint(
				prefix_sum(tid == r.slot ? ulong(count) : 0ul, sums, at).total);
			gather(m, r.slot, n, counter, tid);
			cut = last_of_run(m, true, k - r.before, bins, sums, at);
			ulong kept = tid < r.slot ? weight : 0ul;
			const uint n_look = n_candidates(m);
			for (uint i = tid; i < n_look; i += SAMPLE_THREADS) {
				uint key = 0, id = 0;
				if (candidate(m, i, key, id) && order_of(key, id) >= cut)
					kept += weight_of(m.scale, key);
			}
			total = prefix_sum(kept, sums, at).total;
		}
	}
	if (p->top_p < 1.0f) {
		const ulong need = needed(total, p->top_p);
		const reached r = find(weight, need, sums, at);
		const uint n = uint(prefix_sum(tid == r.slot ? ulong(count) : 0ul, sums, at).total);
		if (r.slot != m.bucket)
			gather(m, r.slot, n, counter, tid);
		cut = last_of_run(m, false, need - r.before, bins, sums, at);
	}
	if (tid == 0)
		cuts[row] = cut;
}

// -- sample_sum, sample_pick ------------------------------------------------------------

// The sum of the remaining weights.
METAL_FUNC uint kept_weight(weigher scale, uint key, uint id, ulong cut, uint least)
{
	const uint w = weight_of(scale, key);
	return order_of(key, id) >= cut && w >= least ? w : 0u;
}

//   sums  [row][n_parts], of rows that are cut
//   room  SAMPLE_SIMDGROUPS ulongs
kernel void
sample_sum(constant sample_args &args [[buffer(0)]], device const step_head *step [[buffer(1)]],
	   device const uint *keys [[buffer(2)]], device const uint2 *tops [[buffer(3)]],
	   device const ulong *cuts [[buffer(4)]], device ulong *sums [[buffer(5)]],
	   threadgroup ulong *room [[threadgroup(0)]], uint2 group [[threadgroup_position_in_grid]],
	   uint2 at [[thread_position_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
	   uint simdgroup [[simdgroup_index_in_threadgroup]])
{
	const uint row = group.y, first = group.x * SAMPLE_PART, n = args.n_vocab;
	if (row >= sample_rows(args, step))
		return;
	device const step_sample *p = sample_of(args, step, row);
	if (!is_random(p) || !is_cut(p, n))
		return;
	const uint top = top_of(tops + ulong(row) * args.n_parts, args.n_parts, lane);
	if (!is_finite_key(top))
		return;
	const weigher scale = weigher_of(p, top);
	const uint least = least_weight(p);
	const ulong cut = cuts[row];
	device const uint *from = keys + ulong(row) * n;
	ulong kept = 0;
	UNROLL
	for (uint j = 0; j < EACH; j++) {
		const uint i = first + j * SAMPLE_THREADS + at.x;
		if (i < n)
			kept += kept_weight(scale, from[i], i, cut, least);
	}
	place me;
	me.tid = at.x;
	me.lane = lane;
	me.simdgroup = simdgroup;
	const prefix s = prefix_sum(kept, room, me);
	if (at.x == 0)
		sums[ulong(row) * args.n_parts + group.x] = s.total;
}

//   ids   [slot][half][max_logit_rows]
//   room  SAMPLE_SIMDGROUPS + 2 ulongs
kernel void
sample_pick(constant sample_args &args [[buffer(0)]], device const step_head *step [[buffer(1)]],
	    device const uint *keys [[buffer(2)]], device const uint2 *tops [[buffer(3)]],
	    device const ulong *cuts [[buffer(4)]], device const ulong *sums [[buffer(5)]],
	    device int *ids [[buffer(6)]], threadgroup ulong *room [[threadgroup(0)]],
	    uint row [[threadgroup_position_in_grid]], uint tid [[thread_position_in_threadgroup]],
	    uint lane [[thread_index_in_simdgroup]],
	    uint simdgroup [[simdgroup_index_in_threadgroup]])
{
	if (row >= sample_rows(args, step))
		return;
	device const step_sample *p = sample_of(args, step, row);
	device int *id =
		ids + ulong(step->ids * STEP_ID_HALVES + args.guess) * args.max_logit_rows + row;
	device const uint2 *row_tops = tops + ulong(row) * args.n_parts;
	const uint n = args.n_vocab, top = top_of(row_tops, args.n_parts, lane);
	if (!is_random(p) || !is_finite_key(top)) {
		// Parts ascend and so do their ids: the first with the key has the lowest.
		uint lowest = 0xffffffffu;
		for (uint i = lane; i < args.n_parts; i += 32)
			if (row_tops[i].x == top)
				lowest = min(lowest, row_tops[i].y);
		lowest = simd_min(lowest);
		if (tid == 0)
			*id = int(lowest);
		return;
	}
	place at;
	at.tid = tid;
	at.lane = lane;
	at.simdgroup = simdgroup;
	const weigher scale = weigher_of(p, top);
	const uint least = least_weight(p);
	const ulong cut = is_cut(p, n) ? cuts[row] : KEEP_ALL;
	const ulong of_part = tid < args.n_parts ? sums[ulong(row) * args.n_parts + tid] : 0ul;
	ulong want = place_of(prefix_sum(of_part, room, at).total,
			      bits_of(p, uint(p->position) + args.guess));
	const reached part = find(of_part, want + 1, room, at);
	want -= part.before;

	// Each thread has EACH neighbours of the part.
	device const uint *from = keys + ulong(row) * n;
	const uint first = part.slot * SAMPLE_PART + tid * EACH;
	ulong mine = 0;
	for (uint j = 0; j < EACH; j++)
		if (first + j < n)
			mine += kept_weight(scale, from[first + j], first + j, cut, least);
	const reached r = find(mine, want + 1, room, at);
	if (tid != r.slot)
		return;
	want -= r.before;
	for (uint j = 0; j < EACH && first + j < n; j++) {
		const uint w = kept_weight(scale, from[first + j], first + j, cut, least);
		if (want < w) {
			*id = int(first + j);
			return;
		}
		want -= w;
	}
}
