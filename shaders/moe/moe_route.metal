// moe_route.metal: each row's experts and weights from the router's logits, the step's assignments
// sorted by expert, and the weighted sum of the experts' results of a row.
//
// A simdgroup computes a row: lane l has experts l, l + 32, …  For few rows one threadgroup
// computes the whole route; for many, simdgroups compute the rows first, then each expert has a
// threadgroup.  The result is the same: everything is in integers except a row's weights, which
// one simdgroup computes.
#include <metal_stdlib>
#include "portable.h"
#include "args.h"
#include "step.h"
#include "route.h"
#include "../core/row.h"

using namespace metal;

#define MOE_ROOM 64u // words per simdgroup: ids and weights of its row

// Integers in the order of floats; NaN counts as minus infinity, 0 is less than every float.
METAL_FUNC uint moe_key(float x)
{
	const uint bits = x != x ? 0xff800000u : x == 0.0f ? 0u : as_type<uint>(x);
	return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

METAL_FUNC float moe_number(uint key)
{
	return as_type<float>((key & 0x80000000u) != 0 ? key ^ 0x80000000u : ~key);
}

METAL_FUNC float moe_sum(float x)
{
	UNROLL
	for (uint by = 16; by > 0; by /= 2)
		x += simd_shuffle_xor(x, ushort(by));
	return x;
}

METAL_FUNC float moe_sigmoid(float x) { return 1.0f / (1.0f + precise::exp(-x)); }

// The groups that experts are selected from, one bit each: those with the largest sums of their
// two best keys.  Lane g computes the sum of group g.
template <int EACH>
METAL_FUNC uint moe_groups(constant moe_route_args &args, thread const uint *key, uint lane)
{
	const uint size = args.n_experts / args.n_groups;
	float sum = 0.0f;
	for (uint g = 0; g < args.n_groups; g++) {
		uint first = 0, second = 0; // of the lane
		UNROLL
		for (int j = 0; j < EACH; j++) {
			const uint id = uint(j) * 32 + lane;
			const uint k = id / size == g ? key[j] : 0;
			second = k > first ? first : max(second, k);
			first = max(first, k);
		}
		const uint best = simd_max(first);
		const uint owners = uint(simd_vote::vote_t(simd_ballot(first == best)));
		const uint next = simd_max(first == best && popcount(owners) == 1 ? second : first);
		const float both =
			moe_number(best) + moe_number(popcount(owners) > 1 ? best : next);
		sum = lane == g ? both : sum;
	}
	uint better = 0;
	for (uint g = 0; g < args.n_groups; g++) {
		const float other = simd_shuffle(sum, ushort(g));
		better += other > sum || (other == sum && g < lane) ? 1 : 0;
	}
	return uint(simd_vote::vote_t(
		simd_ballot(lane < args.n_groups && better < args.n_groups_used)));
}

// One row.  EACH: maximum number of experts per lane.  y is the row of the route; ids and weights
// are also written to room.
template <int EACH>
METAL_FUNC void moe_route_row(constant moe_route_args &args, device const float *x,
			      device const float *bias, device const float *scale, device uint *y,
			      threadgroup uint *room, uint lane)
{
	const uint n = args.n_experts, top_k = args.top_k;
	uint key[EACH], taken = 0, top = 0;
	UNROLL
	for (int j = 0; j < EACH; j++) {
		const uint id = uint(j) * 32 + lane;
		float v = id < n ? x[id] : 0.0f;
		if (args.sigmoid != 0)
			v = moe_sigmoid(v) + (args.select_bias != 0 && id < n ? bias[id] : 0.0f);
		key[j] = id < n ? moe_key(v) : 0;
	}
	if (args.n_groups != 0) {
		const uint used = moe_groups<EACH>(args, key, lane);
		UNROLL
		for (int j = 0; j < EACH; j++) {
			const uint g = (uint(j) * 32 + lane) / (n / args.n_groups);
			key[j] = (used >> min(g, 31u) & 1) != 0 ? key[j] : 0;
		}
	}
	for (uint i = 0; i < top_k; i++) {
		uint best = 0, at = n;
		UNROLL
		for (int j = 0; j < EACH; j++)
			best = max(best, key[j]);
		best = simd_max(best);
		UNROLL
		for (int j = EACH - 1; j >= 0; j--)
			at = key[j] == best && best != 0 ? uint(j) * 32 + lane : at;
		at = simd_min(at);
		UNROLL
		for (int j = 0; j < EACH; j++)
			if (at == uint(j) * 32 + lane) {
				key[j] = 0;
				taken |= 1u << j;
			}
		top = i == 0 ? best : top;
	}

	// The selected experts in ascending order of id.
	const float most = moe_number(top);
	float sum = 0.0f;
	uint slot = 0;
	UNROLL
	for (int j = 0; j < EACH; j++) {
		if (uint(j) * 32 >= n)
			break;
		const uint id = uint(j) * 32 + lane;
		const bool mine = (taken >> j & 1) != 0;
		const uint votes = uint(simd_vote::vote_t(simd_ballot(mine)));
		float v = 0.0f;
		if (args.sigmoid != 0)
			v = mine ? moe_sigmoid(x[id]) : 0.0f;
		else if (id < n && (mine || args.normalise == 0))
			v = precise::exp(x[id] - most);
		sum += v;
		const uint to = slot + popcount(votes & ((1u << lane) - 1));
		if (mine) {
			room[to] = id;
			room[32 + to] = as_type<uint>(v);
		}
		slot += popcount(votes);
	}
	simdgroup_barrier(mem_flags::mem_threadgroup);
	sum = args.sigmoid != 0 ? 1.0f : moe_sum(sum);
	if (args.normalise != 0) {
		sum = 0.0f;
		for (uint i = 0; i < top_k; i++)
			sum += as_type<float>(room[32 + i]);
		sum += args.sum_epsilon;
	}
	if (lane < top_k) {
		const uint id = room[lane];
		float w = args.scale * as_type<float>(room[32 + lane]) / sum;
		w = args.expert_scale != 0 ? w * scale[id] : w;
		y[lane] = id;
		y[top_k + lane] = as_type<uint>(w);
	}
	if (args.shared != 0 && lane == 0)
		y[4 * top_k] = as_type<uint>(moe_sigmoid(x[n]));
}

//   x      [row] n_experts logits, the shared expert's behind them
//   route  [row] words
//   bias   of the selection, [n_experts]; scale: of the weights, [n_experts]
//   room   MOE_ROOM words per simdgroup; then ids and sorted ids, MOE_FEW_THREADS each
template <int EACH>
[[max_total_threads_per_threadgroup(MOE_FEW_THREADS)]] kernel void
moe_route_few(constant moe_route_args &args [[buffer(0)]],
	      device const step_head *step [[buffer(1)]], device const float *x [[buffer(2)]],
	      device uint *route [[buffer(3)]], device const float *bias [[buffer(4)]],
	      device const float *scale [[buffer(5)]], threadgroup uint *room [[threadgroup(0)]],
	      uint tid [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
	      uint sg [[simdgroup_index_in_threadgroup]])
{
	const uint top_k = args.top_k, stride = args.route_stride;
	const uint n = min(step_rows(step, args.rows_live), MOE_FEW_THREADS / 32) * top_k;
	threadgroup uint *mine = room + sg * MOE_ROOM;
	threadgroup uint *ids = room + MOE_FEW_THREADS / 32 * MOE_ROOM,
			 *sorted = ids + MOE_FEW_THREADS;

	if (sg * top_k < n) {
		moe_route_row<EACH>(args, x + ulong(sg) * args.x_stride, bias, scale,
				    route + ulong(sg) * stride, mine, lane);
		if (lane < top_k)
			ids[sg * top_k + lane] = mine[lane];
	}
	threadgroup_barrier(mem_flags::mem_threadgroup);
	uint at = 0;
	if (tid < n) {
		const uint id = ids[tid];
		for (uint i = 0; i < n; i++)
			at += ids[i] < id || (ids[i] == id && i < tid) ? 1 : 0;
		sorted[at] = id;
		route[route_word(stride, top_k, ROUTE_ORDER, at)] = tid;
	}
	threadgroup_barrier(mem_flags::mem_threadgroup);
	if (tid >= n)
		return;
	// A run starts where the id changes.
	uint before = 0, all = 0;
	for (uint i = 0; i < n; i++) {
		const uint begins = i == 0 || sorted[i] != sorted[i - 1] ? 1 : 0;
		before += i < tid ? begins : 0;
		all += begins;
	}
	if (tid == 0 || sorted[tid] != sorted[tid - 1])
		route[route_word(stride, top_k, ROUTE_RUNS, before)] = tid;
	if (tid >= all)
		route[route_word(stride, top_k, ROUTE_RUNS, tid)] = n;
}

template <int EACH>
[[max_total_threads_per_threadgroup(MOE_THREADS)]] kernel void
moe_route_rows(constant moe_route_args &args [[buffer(0)]],
	       device const step_head *step [[buffer(1)]], device const float *x [[buffer(2)]],
	       device uint *route [[buffer(3)]], device const float *bias [[buffer(4)]],
	       device const float *scale [[buffer(5)]], threadgroup uint *room [[threadgroup(0)]],
	       uint3 group [[threadgroup_position_in_grid]],
	       uint lane [[thread_index_in_simdgroup]], uint sg [[simdgroup_index_in_threadgroup]])
{
	const uint row = group.x * (MOE_THREADS / 32) + sg;
	if (row < step_rows(step, args.rows_live))
		moe_route_row<EACH>(args, x + ulong(row) * args.x_stride, bias, scale,
				    route + ulong(row) * args.route_stride, room + sg * MOE_ROOM,
				    lane);
}

// A threadgroup has an expert: it counts the assignments and the active experts before it, then
// writes its own assignments.
//   room  32 words with one bit per expert; 2 x 8 sums; 2 x 8 counts
[[max_total_threads_per_threadgroup(MOE_THREADS)]] kernel void
moe_sort(constant moe_route_args &args [[buffer(0)]], device const step_head *step [[buffer(1)]],
	 device uint *route [[buffer(2)]], threadgroup uint *room [[threadgroup(0)]],
	 uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
	 uint lane [[thread_index_in_simdgroup]], uint sg [[simdgroup_index_in_threadgroup]])
{
	const uint top_k = args.top_k, stride = args.route_stride, expert = group.x;
	const uint n = step_rows(step, args.rows_live) * top_k;
	threadgroup atomic_uint *bits = (threadgroup atomic_uint *)room;
	threadgroup uint *sums = room + 32, *counts = room + 48;

	if (tid < 32)
		atomic_store_explicit(bits + tid, 0u, memory_order_relaxed);
	threadgroup_barrier(mem_flags::mem_threadgroup);
	uint less = 0, equal = 0;
	for (uint i = tid; i < n; i += MOE_THREADS) {
		const uint id = route[route_word(stride, top_k, ROUTE_IDS, i)], bit = 1u << id % 32;
		less += id < expert ? 1 : 0;
		equal += id == expert ? 1 : 0;
		if ((atomic_load_explicit(bits + id / 32 % 32, memory_order_relaxed) & bit) == 0)
			atomic_fetch_or_explicit(bits + id / 32 % 32, bit, memory_order_relaxed);
	}
	less = simd_sum(less);
	equal = simd_sum(equal);
	if (lane == 0) {
		sums[sg] = less;
		sums[8 + sg] = equal;
	}
	threadgroup_barrier(mem_flags::mem_threadgroup);
	less = equal = 0;
	UNROLL
	for (uint i = 0; i < MOE_THREADS / 32; i++) {
		less += sums[i];
		equal += sums[8 + i];
	}

	const uint word = atomic_load_explicit(bits + lane, memory_order_relaxed);
	const uint below = lane < expert / 32  ? word :
			   lane == expert / 32 ? word & ((1u << expert % 32) - 1) :
						 0;
	const uint run = simd_sum(popcount(below)), all = simd_sum(popcount(word));
	if (expert == 0)
		for (uint i = all + tid; i < n; i += MOE_THREADS)
			route[route_word(stride, top_k, ROUTE_RUNS, i)] = n;
	if (equal == 0)
		return;
	if (tid == 0)
		route[route_word(stride, top_k, ROUTE_RUNS, run)] = less;

	uint placed = 0;
	for (uint from = 0, turn = 0; placed < equal; from += MOE_THREADS, turn ^= 8) {
		const uint i = from + tid;
		const bool mine = i < n && route[route_word(stride, top_k, ROUTE_IDS, i)] == expert;
		const uint votes = uint(simd_vote::vote_t(simd_ballot(mine)));
		if (lane == 0)
			counts[turn + sg] = popcount(votes);
		threadgroup_barrier(mem_flags::mem_threadgroup);
		uint at = less + placed + popcount(votes & ((1u << lane) - 1));
		UNROLL
		for (uint s = 0; s < MOE_THREADS / 32; s++) {
			at += s < sg ? counts[turn + s] : 0;
			placed += counts[turn + s];
		}
		if (mine)
			route[route_word(stride, top_k, ROUTE_ORDER, at)] = i;
	}
}

// y = the weighted sum of the experts' results from left to right, then the shared expert's, a bias, the
// residual last.  A thread has four columns.
//   parts  [row][slot][n_cols]
[[max_total_threads_per_threadgroup(MOE_THREADS)]] kernel void
moe_combine(constant moe_combine_args &args [[buffer(0)]],
	    device const step_head *step [[buffer(1)]], device const float *parts [[buffer(2)]],
	    device const uint *route [[buffer(3)]], device const float *residual [[buffer(4)]],
	    device const float *shared [[buffer(5)]], device const float *bias [[buffer(6)]],
	    device float *y [[buffer(7)]], uint3 group [[threadgroup_position_in_grid]],
	    uint tid [[thread_index_in_threadgroup]])
{
	const uint row = group.y, i = (group.x * MOE_THREADS + tid) * 4, top_k = args.top_k;
	if (row >= step_rows(step, args.rows_live) || i >= args.n_cols)
		return;
	device const uint *weights = route + ulong(row) * args.route_stride + ROUTE_WEIGHTS * top_k;
	device const float *from = parts + ulong(row) * top_k * args.n_cols + i;
	float4 sum = as_type<float>(weights[0]) * *(device const float4 *)from;
	for (uint j = 1; j < top_k; j++)
		sum = fma(float4(as_type<float>(weights[j])),
			  *(device const float4 *)(from + ulong(j) * args.n_cols), sum);
	if (args.shared != 0)
		sum = fma(float4(as_type<float>(route[ulong(row) * args.route_stride + 4 * top_k])),
			  *(device const float4 *)(shared + ulong(row) * args.shared_stride + i),
			  sum);
	if (args.bias != 0)
		sum += *(device const float4 *)(bias + i);
	if (args.residual != 0)
		sum += *(device const float4 *)(residual + ulong(row) * args.residual_stride + i);
	*(device float4 *)(y + ulong(row) * args.y_stride + i) = sum;
}

// ROUTE(number of experts at most, for each lane)
#define ROUTE(n, each)                                                                             \
	instantiate_kernel("moe_route_few_" #n, moe_route_few, each)                               \
	instantiate_kernel("moe_route_rows_" #n, moe_route_rows, each)

ROUTE(128, 4)
ROUTE(256, 8)
ROUTE(512, 16)
ROUTE(1024, 32)
