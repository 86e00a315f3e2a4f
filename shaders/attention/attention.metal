// attention.metal: attention over a float16 cache, and merging of partial results.
#include <metal_stdlib>
#include "../portable.h"
#include "attention_split.h"
#include "attention_stream.h"
#include "attention_whole.h"
#include "group_kernels.h"
#include "outputs.h"

using namespace metal;

#define MERGED 5      /* values of a lane: of the largest head */
#define MERGE_AHEAD 8 /* ranges that are loaded together, as each takes as long as all of them */

// Grid: head, row of the sequence, sequence; a simdgroup merges every fourth 32 columns.
[[max_total_threads_per_threadgroup(ATTENTION_THREADS)]] kernel void
attention_merge(constant attention_args &args [[buffer(0)]],
		device const step_head *step [[buffer(1)]], device const float *outs [[buffer(2)]],
		device const float2 *tops [[buffer(3)]], device uchar *y [[buffer(4)]],
		device const float *sinks [[buffer(5)]], device const float *gates [[buffer(6)]],
		uint3 group [[threadgroup_position_in_grid]],
		uint lane [[thread_index_in_simdgroup]], uint sg [[simdgroup_index_in_threadgroup]])
{
	const uint sequence = group.z, head = group.x, first = sg * 32 + lane;
	uint row = 0, partial = STEP_NONE, position = 0, sees_to = 0;
	if (sequence < step->n_seqs) {
		device const int *rows = step_array<int>(step, step->seq_rows) + sequence;
		row = uint(rows[0]) + group.y;
		if (row < uint(rows[1])) {
			partial = step_array<uint>(step, step->partials)[row];
			position = uint(step_array<int>(step, step->positions)[row]);
			sees_to = (args.flags & ATTENTION_SPANS) != 0 ?
					  uint(step_array<int>(step, step->sees_to)[row]) :
					  position;
		}
	}
	wait_for_previous();
	begin_next();
	if (partial == STEP_NONE)
		return;
	float top = nothing_seen, sum = 0.0f;
	float all[MERGED];
	UNROLL
	for (int j = 0; j < MERGED; j++)
		all[j] = 0.0f;
	const uint last = sees_to / STEP_RANGE;
	for (uint range = first_seen(position, args.window) / STEP_RANGE; range <= last;
	     range += MERGE_AHEAD) {
		float2 parts[MERGE_AHEAD];
		float values[MERGE_AHEAD][MERGED];
		UNROLL
		for (uint i = 0; i < MERGE_AHEAD; i++) {
			const ulong at =
				ulong(partial + min(range + i, last)) * args.n_heads + head;
			device const float *from = outs + at * args.v_dim;
			parts[i] = tops[at];
			UNROLL
			for (int j = 0; j < MERGED; j++)
				if (first + j * ATTENTION_THREADS < args.v_dim)
					values[i][j] = from[first + j * ATTENTION_THREADS];
		}
		UNROLL
		for (uint i = 0; i < MERGE_AHEAD; i++) {
			if (range + i > last)
				continue;
			const float2 by = merge_range(top, sum, parts[i]);
			UNROLL
			for (int j = 0; j < MERGED; j++)
				if (first + j * ATTENTION_THREADS < args.v_dim)
					all[j] = fma(all[j], by.x, values[i][j] * by.y);
		}
	}
	const float share = final_share(top, sum, sinks, head, args.flags);
	device uchar *to =
		y + (ulong(row) * args.y_stride + head * args.v_dim) * element_bytes(args.y_type);
	UNROLL
	for (int j = 0; j < MERGED; j++) {
		const uint column = first + j * ATTENTION_THREADS;
		if (column < args.v_dim)
			store_element(to, column,
				      one_zero(all[j] * share *
					       gate_value(args, gates, row, head, column)),
				      args.y_type);
	}
}

begins_early(attention_merge);

ATTENTION_SMALL("f16_d32", 32, false)
ATTENTION_SMALL("f16_d64", 64, false)
ATTENTION_SMALL("f16_d80", 80, false)
ATTENTION_SMALL("f16_d96", 96, false)
ATTENTION_SMALL("f16_d128", 128, false)
ATTENTION_INSTANCES("f16_d256", half, 256, false)
ATTENTION_INSTANCES("f16_d512", half, 512, false)
ATTENTION_INSTANCES("f16_d576", half, 576, false)
ATTENTION_STREAM("f16_d64", 64, false)
ATTENTION_STREAM("f16_d128", 128, false)
