// selective_scan.metal: the state space of Mamba-2, row after row.
//
// Grid: tiles of STATE_COLUMNS columns of the heads, sequence.  A tile's columns stay in registers from a
// sequence's first row to its last one, and are written where segments end.  Of STATE_ROWS rows a time, the
// threadgroup first puts what its columns have in common into its memory.
// Order of sums: over the state as columns.h has it.
#include <metal_stdlib>
#include "../portable.h"
#include "../early.h"
#include "columns.h"

using namespace metal;

#define SIMDGROUPS (STATE_THREADS / 32)

//   x          [row][heads | b of the groups | c of the groups]
//   steps      [row][.. dt of the heads], from dt_first on
//   bias, a, d [head]
//   y          [row][head][head_dim]
//   room       STATE_ROOM(FOURS)
template <uint FOURS>
[[max_total_threads_per_threadgroup(STATE_THREADS)]]
kernel void
selective_scan(constant selective_scan_args &args [[buffer(0)]],
	       device const step_head *step [[buffer(1)]], device const float *x [[buffer(2)]],
	       device const float *steps [[buffer(3)]], device const float *bias [[buffer(4)]],
	       device const float *a [[buffer(5)]], device const float *d [[buffer(6)]],
	       device float *y [[buffer(7)]], threadgroup float *room [[threadgroup(0)]],
	       uint3 group [[threadgroup_position_in_grid]],
	       uint tid [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
	       uint sg [[simdgroup_index_in_threadgroup]])
{
	const uint head = group.x / args.tiles, sequence = group.y;
	if (sequence >= step->n_seqs || head >= args.n_heads) {
		wait_for_previous();
		return;
	}
	run r = run_of(step, sequence);
	if (r.segment == r.end) {
		wait_for_previous();
		return;
	}
	const uint dim = STATE_DIM(FOURS), n_state = args.state_dim, part = tid % STATE_LANES;
	threadgroup float *b = room, *c = b + STATE_ROWS * dim; // [row][dim]
	threadgroup float *u = c + STATE_ROWS * dim;		// [row][STATE_COLUMNS]
	threadgroup float *decay = u + STATE_ROWS * STATE_COLUMNS, *dt = decay + STATE_ROWS;
	const uint first_column = group.x % args.tiles * STATE_COLUMNS, own = tid / STATE_LANES;
	const uint n_columns = min(STATE_COLUMNS, args.head_dim - first_column);
	const uint first_b =
		args.n_heads * args.head_dim + head / (args.n_heads / args.n_groups) * n_state;
	const uint first_c = first_b + args.n_groups * n_state;
	const bool there = own < n_columns;
	const ulong at =
		ulong(head % args.part_heads) * n_state * args.head_dim + first_column + own;

	float4 s[FOURS];
	UNROLL
	for (uint i = 0; i < FOURS; i++)
		s[i] = float4(0.0f);
	if (there && begins_with_state(step, args.group, sequence))
		load_column<FOURS>(
			s,
			state_part(step, args.group, args.layer, head / args.part_heads, sequence) +
				at,
			n_state, args.head_dim, part);
	wait_for_previous(); // which writes no state that this step begins with
	begin_next();
	uint row = r.first;
	for (; r.segment < r.end; r.segment++) {
		const uint last = r.ends[r.segment];
		while (row < last) {
			const uint n = min(STATE_ROWS, last - row);
			threadgroup_barrier(
				mem_flags::mem_threadgroup); // the rows before were read
			for (uint i = sg; i < n; i += SIMDGROUPS) {
				device const float *from = x + ulong(row + i) * args.x_stride;
				for (uint j = lane; j < dim; j += 32) {
					b[i * dim + j] = j < n_state ? from[first_b + j] : 0.0f;
					c[i * dim + j] = j < n_state ? from[first_c + j] : 0.0f;
				}
				if (lane < n_columns)
					u[i * STATE_COLUMNS + lane] =
						from[head * args.head_dim + first_column + lane];
			}
			if (tid < n) {
				dt[tid] = softplus(steps[ulong(row + tid) * args.dt_stride +
							 args.dt_first + head] +
						   bias[head]);
				decay[tid] = precise::exp(dt[tid] * a[head]);
			}
			threadgroup_barrier(mem_flags::mem_threadgroup);
			for (uint i = 0; i < n; i++) {
				threadgroup const float4 *from_b =
					(threadgroup const float4 *)(b + i * dim) + part;
				threadgroup const float4 *from_c =
					(threadgroup const float4 *)(c + i * dim) + part;
				const float v = there ? u[i * STATE_COLUMNS + own] : 0.0f;
				const float4 in = float4(v * dt[i]);
				float4 sums = float4(0.0f);
				UNROLL
				for (uint j = 0; j < FOURS; j++) {
					s[j] = fma(in, from_b[j * STATE_LANES], s[j] * decay[i]);
					sums = fma(s[j], from_c[j * STATE_LANES], sums);
				}
				const float out = fma(v, d[head], column_sum(sums));
				if (there && part == 0)
					y[ulong(row + i) * args.y_stride + head * args.head_dim +
					  first_column + own] = out;
			}
			row += n;
		}
		if (there)
			store_column<FOURS>(s,
					    state_part(step, args.group, args.layer,
						       head / args.part_heads,
						       r.table + r.segment) +
						    at,
					    n_state, args.head_dim, part);
	}
}

begins_early(selective_scan);

instantiate_kernel("selective_scan_2", selective_scan, 2)
instantiate_kernel("selective_scan_4", selective_scan, 4)
instantiate_kernel("selective_scan_8", selective_scan, 8)
instantiate_kernel("selective_scan_16", selective_scan, 16)
