// gated_delta.metal: linear attention by the gated delta rule, row after row.
//
// Grid: tiles of STATE_COLUMNS columns of the heads of values, sequence.  A tile's columns stay in registers
// from a sequence's first row to its last one, and are written where segments end.  Of STATE_ROWS rows a
// time, the threadgroup first puts the normalised keys and queries into its memory.
// Order of sums: of squares, a lane's ascending, then the simdgroup's; over k as columns.h has it.
#include <metal_stdlib>
#include "../portable.h"
#include "../early.h"
#include "columns.h"

using namespace metal;

#define SIMDGROUPS (STATE_THREADS / 32)

// STATE_ROWS rows in threadgroup memory.
struct delta_rows {
	threadgroup float *k, *q; // [row][dim]
	threadgroup float *v;	  // [row][STATE_COLUMNS]
	threadgroup float *decay, *beta;
	uint dim; // of k and q with the zeros behind them
};

METAL_FUNC delta_rows delta_rows_in(threadgroup float *room, uint dim)
{
	delta_rows r;
	r.k = room;
	r.q = r.k + STATE_ROWS * dim;
	r.v = r.q + STATE_ROWS * dim;
	r.decay = r.v + STATE_ROWS * STATE_COLUMNS;
	r.beta = r.decay + STATE_ROWS;
	r.dim = dim;
	return r;
}

// x / |x| * scale, by a simdgroup.
METAL_FUNC void put_unit(threadgroup float *to, device const float *x, uint n, uint dim, float eps,
			 float scale, uint lane)
{
	float squares = 0.0f;
	for (uint i = lane; i < n; i += 32)
		squares = fma(x[i], x[i], squares);
	const float by = precise::divide(1.0f, precise::sqrt(simd_sum(squares) + eps));
	for (uint i = lane; i < dim; i += 32)
		to[i] = i < n ? x[i] * by * scale : 0.0f;
}

// Where a head of values finds the rest: its head of keys, and its columns of the gates.
struct delta_head {
	uint key, beta, alpha;
};

METAL_FUNC delta_head head_of(constant gated_delta_args &args, uint head)
{
	const uint shared = args.n_v_heads / args.n_k_heads;
	delta_head h;
	h.key = args.tiled != 0 ? head % args.n_k_heads : head / shared;
	h.beta = args.by_key != 0 ? head / shared * 2 * shared + head % shared : head;
	h.alpha = h.beta + (args.by_key != 0 ? shared : args.n_v_heads);
	return h;
}

//   x        [row][q heads | k heads | v heads]
//   gates    [row][beta | alpha]
//   dt, a    [v head]
//   y        [row][v head][v_dim]
//   room     STATE_ROOM(FOURS)
template <uint FOURS>
[[max_total_threads_per_threadgroup(STATE_THREADS)]]
kernel void
gated_delta(constant gated_delta_args &args [[buffer(0)]],
	    device const step_head *step [[buffer(1)]], device const float *x [[buffer(2)]],
	    device const float *gates [[buffer(3)]], device const float *dt [[buffer(4)]],
	    device const float *a [[buffer(5)]], device float *y [[buffer(6)]],
	    threadgroup float *room [[threadgroup(0)]],
	    uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
	    uint lane [[thread_index_in_simdgroup]], uint sg [[simdgroup_index_in_threadgroup]])
{
	const uint head = group.x / args.tiles, sequence = group.y;
	if (sequence >= step->n_seqs || head >= args.n_v_heads) {
		wait_for_previous();
		return;
	}
	run r = run_of(step, sequence);
	if (r.segment == r.end) {
		wait_for_previous();
		return;
	}
	const delta_rows rows = delta_rows_in(room, STATE_DIM(FOURS));
	const delta_head h = head_of(args, head);
	const uint keys = args.n_k_heads * args.k_dim, part = tid % STATE_LANES;
	const uint first_column = group.x % args.tiles * STATE_COLUMNS, own = tid / STATE_LANES;
	const bool there = first_column + own < args.v_dim;
	const ulong at =
		ulong(head % args.part_heads) * args.k_dim * args.v_dim + first_column + own;
	const uint n_columns = min(STATE_COLUMNS, args.v_dim - first_column);

	float4 s[FOURS];
	UNROLL
	for (uint i = 0; i < FOURS; i++)
		s[i] = float4(0.0f);
	if (there && begins_with_state(step, args.group, sequence))
		load_column<FOURS>(
			s,
			state_part(step, args.group, args.layer, head / args.part_heads, sequence) +
				at,
			args.k_dim, args.v_dim, part);
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
				device const float *from =
					x + ulong(row + i) * args.x_stride + h.key * args.k_dim;
				put_unit(rows.q + i * rows.dim, from, args.k_dim, rows.dim,
					 args.norm_eps, args.q_scale, lane);
				put_unit(rows.k + i * rows.dim, from + keys, args.k_dim, rows.dim,
					 args.norm_eps, 1.0f, lane);
			}
			for (uint i = sg; i < n; i += SIMDGROUPS)
				if (lane < n_columns)
					rows.v[i * STATE_COLUMNS + lane] =
						x[ulong(row + i) * args.x_stride + 2 * keys +
						  head * args.v_dim + first_column + lane];
			if (tid < n) {
				device const float *gate =
					gates + ulong(row + tid) * args.gates_stride;
				rows.beta[tid] = logistic(gate[h.beta]);
				rows.decay[tid] =
					precise::exp(a[head] * softplus(gate[h.alpha] + dt[head]));
			}
			threadgroup_barrier(mem_flags::mem_threadgroup);
			for (uint i = 0; i < n; i++) {
				threadgroup const float4 *k =
					(threadgroup const float4 *)(rows.k + i * rows.dim) + part;
				threadgroup const float4 *q =
					(threadgroup const float4 *)(rows.q + i * rows.dim) + part;
				const float decay = rows.decay[i];
				float4 sums = float4(0.0f);
				UNROLL
				for (uint j = 0; j < FOURS; j++) {
					s[j] *= decay;
					sums = fma(s[j], k[j * STATE_LANES], sums);
				}
				const float v = there ? rows.v[i * STATE_COLUMNS + own] : 0.0f;
				const float4 delta = float4((v - column_sum(sums)) * rows.beta[i]);
				sums = float4(0.0f);
				UNROLL
				for (uint j = 0; j < FOURS; j++) {
					s[j] = fma(k[j * STATE_LANES], delta, s[j]);
					sums = fma(s[j], q[j * STATE_LANES], sums);
				}
				const float out = column_sum(sums);
				if (there && part == 0)
					y[ulong(row + i) * args.y_stride + head * args.v_dim +
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
					    args.k_dim, args.v_dim, part);
	}
}

begins_early(gated_delta);

instantiate_kernel("gated_delta_2", gated_delta, 2)
instantiate_kernel("gated_delta_4", gated_delta, 4)
instantiate_kernel("gated_delta_8", gated_delta, 8)
instantiate_kernel("gated_delta_16", gated_delta, 16)
