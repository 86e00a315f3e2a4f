// exchange.metal: what the ranks of a divided plan send one another (runtime/cuda/peers.c).  Each device runs this kernel
// with the same grid, writes its part into the memory of all others, and waits for what they write into its own.
//
// A part of few rows goes in pairs of floats, each with the number of the exchange (its turn) beside it, which NCCL calls
// its protocol LL: 16 bytes of which each 8 come together, so that whoever reads a pair knows by the turn that it is
// there.  Turn t has the places t % 2, of two: who sends in turn t + 2 has seen that all others had begun turn t + 1, for
// which their kernels of turn t must have ended.  A turn's number comes again after 2^32 exchanges; then a place
// last written by exactly the exchange of that number would be read too early.
//
// A part of many rows goes in chunks, of which a threadgroup sends every n-th: without turns beside them, half as many
// bytes, and behind each the number of the chunk.  Places are two again: who sends chunk c + 1 has read chunk c of
// the others, who had read chunk c - 1 before they sent it.
//
// Sums are from rank 0 up, whatever a part's rows and how it goes.
//
// A turn is the number of exchanges in steps before, which the last one of a step counts, and the exchange's place among
// those of its step.  So only the last one has to know when all of its threadgroups have ended.
//
// Grid: threadgroups, at most EXCHANGE_GROUPS; in pairs one thread for each.
#include <metal_stdlib>
#include "../portable.h"
#include "../args.h"
#include "../step.h"
#include "../early.h"
#include "system_memory.h"

using namespace metal;

// struct exchange_args, whose addresses are pointers.
struct exchange_places {
	device float *part[EXCHANGE_MOST];
	device uint4 *inbox[EXCHANGE_MOST];
	device float *sum;
	// exchanges in pairs before this step; threadgroups that have ended its last one; each one's last chunk
	device uint *turns;
	device const uint *stop;
	uint row_pairs[EXCHANGE_MOST];
	uint rank, n_ranks, rows_live, turn, n_turns, reserved;
};
SHARED_SIZE(exchange_places, sizeof(exchange_args));

#define STOP_EVERY 4096u // looks for what comes, between two at args.stop

// ---- few rows --------------------------------------------------------------------------------

// Where the pairs are that come from a rank in a turn.
METAL_FUNC device uint4 *pairs_of(constant exchange_places &args, uint inbox, uint from, uint turn)
{
	return args.inbox[inbox] + ((turn & 1) * args.n_ranks + from) * EXCHANGE_SMALL_PAIRS;
}

METAL_FUNC float2 receive(constant exchange_places &args, device const uint4 *at, uint turn)
{
	uint4 got = load_system_4(at);
	for (uint n = 1; got[1] != turn || got[3] != turn; n++) {
		if (n % STOP_EVERY == 0 && load_system(args.stop))
			break;
		got = load_system_4(at);
	}
	return float2(as_type<float>(got[0]), as_type<float>(got[2]));
}

// A thread has one pair of each part.
METAL_FUNC void exchange_pairs(constant exchange_places &args, uint rows, uint turn, uint i)
{
	const bool has_own = i < rows * args.row_pairs[args.rank];
	float2 own = float2(0.0f), sum = own;
	if (has_own) {
		own = ((device const float2 *)args.part[args.rank])[i];
		const uint4 sent = uint4(as_type<uint>(own[0]), turn, as_type<uint>(own[1]), turn);
		for (uint to = 0; to < args.n_ranks; to++)
			if (to != args.rank)
				store_system_4(pairs_of(args, to, args.rank, turn) + i, sent);
	}
	begin_next();
	for (uint from = 0; from < args.n_ranks; from++) {
		float2 v = own;
		if (from != args.rank) {
			if (i >= rows * args.row_pairs[from])
				continue;
			v = receive(args, pairs_of(args, args.rank, from, turn) + i, turn);
			if (!args.sum)
				((device float2 *)args.part[from])[i] = v;
		}
		sum = from ? sum + v : v;
	}
	if (args.sum && has_own)
		((device float2 *)args.sum)[i] = sum;
}

// ---- many rows -------------------------------------------------------------------------------

// Where a threadgroup's chunk is that comes from a rank, and the number of the last one that came.
METAL_FUNC device float4 *chunk_of(constant exchange_places &args, uint inbox, uint from,
				   uint group, uint number)
{
	const uint place = ((group * 2 + (number & 1)) * args.n_ranks + from) * EXCHANGE_CHUNK;
	return (device float4 *)(args.inbox[inbox] + 2 * args.n_ranks * EXCHANGE_SMALL_PAIRS) +
	       place;
}

METAL_FUNC device uint *number_of(constant exchange_places &args, uint inbox, uint from, uint group)
{
	return (device uint *)(args.inbox[inbox] +
			       2 * args.n_ranks *
				       (EXCHANGE_SMALL_PAIRS + EXCHANGE_GROUPS * EXCHANGE_CHUNK)) +
	       group * args.n_ranks + from;
}

// Quads of a rank's part that are in a chunk.
METAL_FUNC uint quads_in(constant exchange_places &args, uint rows, uint rank, uint first,
			 uint size)
{
	const uint n = rows * args.row_pairs[rank] / 2;
	return first >= n ? 0 : min(n - first, size);
}

METAL_FUNC void exchange_chunks(constant exchange_places &args, uint rows, uint group,
				uint n_groups, uint tid)
{
	uint most = 0, number = load_system(args.turns + 2 + group);
	for (uint r = 0; r < args.n_ranks; r++)
		most = max(most, rows * args.row_pairs[r] / 2);
	const uint size =
		min(max((most + n_groups - 1) / n_groups, EXCHANGE_THREADS), EXCHANGE_CHUNK);

	for (uint first = group * size; first < most; first += n_groups * size) {
		number++;
		device const float4 *own = (device const float4 *)args.part[args.rank] + first;
		const uint n_own = quads_in(args, rows, args.rank, first, size);
		for (uint i = tid; i < n_own; i += EXCHANGE_THREADS)
			for (uint to = 0; to < args.n_ranks; to++)
				if (to != args.rank)
					chunk_of(args, to, args.rank, group, number)[i] = own[i];
		threadgroup_barrier(mem_flags::mem_device);
		if (tid < args.n_ranks && tid != args.rank) {
			release_system(number_of(args, tid, args.rank, group), number);
			device const uint *came = number_of(args, args.rank, tid, group);
			for (uint n = 1; acquire_system(came) - number > 1; n++)
				if (n % STOP_EVERY == 0 && load_system(args.stop))
					break;
		}
		threadgroup_barrier(mem_flags::mem_device);
		if (args.sum) {
			for (uint i = tid; i < n_own; i += EXCHANGE_THREADS) {
				float4 sum = float4(0.0f);
				for (uint from = 0; from < args.n_ranks; from++) {
					const float4 v = from == args.rank ?
								 own[i] :
								 chunk_of(args, args.rank, from,
									  group, number)[i];
					sum = from ? sum + v : v;
				}
				((device float4 *)args.sum)[first + i] = sum;
			}
			continue;
		}
		for (uint from = 0; from < args.n_ranks; from++) {
			const uint n =
				from == args.rank ? 0 : quads_in(args, rows, from, first, size);
			for (uint i = tid; i < n; i += EXCHANGE_THREADS)
				((device float4 *)args.part[from])[first + i] =
					chunk_of(args, args.rank, from, group, number)[i];
		}
	}
	if (tid == 0)
		args.turns[2 + group] = number;
}

[[max_total_threads_per_threadgroup(EXCHANGE_THREADS)]] kernel void
exchange(constant exchange_places &args [[buffer(0)]], device const step_head *step [[buffer(1)]],
	 uint3 group [[threadgroup_position_in_grid]], uint3 n_groups [[threadgroups_per_grid]],
	 uint tid [[thread_index_in_threadgroup]])
{
	const uint rows = step_rows(step, args.rows_live), turn = args.turns[0] + args.turn;
	wait_for_previous();
	if (!args.turn) {
		exchange_chunks(args, rows, group.x, n_groups.x, tid);
		return;
	}
	exchange_pairs(args, rows, turn, group.x * EXCHANGE_THREADS + tid);
	if (!args.n_turns)
		return;
	threadgroup_barrier(mem_flags::mem_device);
	if (tid == 0) {
		device atomic_uint *ended = (device atomic_uint *)(args.turns + 1);
		if (atomic_fetch_add_explicit(ended, 1u, memory_order_relaxed) == n_groups.x - 1) {
			args.turns[1] = 0;
			args.turns[0] += args.n_turns;
		}
	}
}
begins_early(exchange);
