// embed.metal: rows of a table by token id, dequantised and scaled, plus rows of learned positions
// and of types of texts.  A row of the step that is no token's stands in place of the table's, unscaled.
// A threadgroup computes a row of the result, each thread eight consecutive elements at a time.
// Token ids come from the step, or from those that the previous step sampled; of the token after a row
// from the step, or from those that it has sampled itself.
#include <metal_stdlib>
#include "portable.h"
#include "blocks.h"
#include "row.h"
#include "tiles.h"

using namespace metal;

// An element of the array of addresses.
struct outside_row {
	device const uchar *p;
};

// Element i of a row of n, 0 beyond its end.
METAL_FUNC float embed_one(uint format, device const uchar *row, uint i, uint n)
{
	if (i >= n)
		return 0.0f;
	if (format == ELEMENT_F32)
		return ((device const float *)row)[i];
	if (format == ELEMENT_F16)
		return float(((device const half *)row)[i]);
	return float(((device const bfloat *)row)[i]);
}

// Elements i … i + 7; i is a multiple of 8, and so is the length of rows in blocks.
METAL_FUNC void embed_eight(uint format, device const uchar *row, uint i, uint n, thread float4 &a,
			    thread float4 &b)
{
	if (format == ELEMENT_F32 || format == ELEMENT_F16 || format == ELEMENT_BF16) {
		UNROLL
		for (uint j = 0; j < 4; j++) {
			a[j] = embed_one(format, row, i + j, n);
			b[j] = embed_one(format, row, i + 4 + j, n);
		}
		return;
	}
	block_raw raw;
	block_load(raw, format, row, i / 16 * 16, n);
	block_eight(format, raw, int(i / 8 % 2), a, b);
}

//   table    [n_vocab] rows of w_row_bytes, or tiles of 16 rows
//   ids      [slot][half][max_logit_rows] sampled ids
//   learned  [n_positions] rows of learned_row_bytes
//   types    [n_types] rows of types_row_bytes
//   y        [row][n_cols]
kernel void
embed(constant embed_args &args [[buffer(0)]], device const step_head *step [[buffer(1)]],
      device const uchar *table [[buffer(2)]], device const int *ids [[buffer(3)]],
      device const uchar *learned [[buffer(4)]], device const uchar *types [[buffer(5)]],
      device float *y [[buffer(6)]], uint row [[threadgroup_position_in_grid]],
      uint tid [[thread_position_in_threadgroup]], uint threads [[threads_per_threadgroup]])
{
	if (row >= step->n_rows)
		return;
	int from = step_at<int>(step, step->token_from)[row];
	int id = step_at<int>(step, step->token_ids)[row];
	uint slot = step->prev_ids;
	if (args.next != 0) {
		id = step_at<int>(step, step->next_ids)[row];
		from = -1 - id;
		slot = step->ids;
	}
	if (from >= 0)
		id = ids[slot * STEP_ID_HALVES * args.max_logit_rows + uint(from)];
	// An id or a position out of range reads the first row, as on the CPU.
	const uint token = uint(id) < args.n_vocab ? uint(id) : 0;
	device const uchar *w =
		table +
		ulong(args.tiles != 0 ? token / TILE_ROWS * TILE_ROWS : token) * args.w_row_bytes;
	device const uchar *l = learned;
	if (args.n_positions != 0) {
		const uint position = uint(step_at<int>(step, step->positions)[row]);
		l += ulong(position < args.n_positions ? position : 0) * args.learned_row_bytes;
	}
	device const uchar *s = types;
	if (args.n_types != 0 && step->row_types != 0) {
		const uint type = uint(step_at<int>(step, step->row_types)[row]);
		s += ulong(type < args.n_types ? type : 0) * args.types_row_bytes;
	}
	device const uchar *from_outside = nullptr;
	if (args.outside != 0 && step->outside != 0)
		from_outside = step_at<outside_row>(step, step->outside)[row].p;
	device float *to = y + ulong(row) * args.y_stride;
	for (uint i = tid * 8; i < args.n_cols; i += threads * 8) {
		float4 a, b;
		if (from_outside != nullptr)
			embed_eight(ELEMENT_F32, from_outside, i, args.n_cols, a, b);
		else if (args.tiles != 0)
			tile_eight(args.format, w, token % TILE_ROWS, i, a, b);
		else
			embed_eight(args.format, w, i, args.n_cols, a, b);
		if (from_outside == nullptr) {
			a = a * args.scale;
			b = b * args.scale;
		}
		if (args.n_positions != 0) {
			float4 c, d;
			embed_eight(args.learned_format, l, i, args.n_cols, c, d);
			a += c;
			b += d;
		}
		if (args.n_types != 0) {
			float4 c, d;
			embed_eight(args.types_format, s, i, args.n_cols, c, d);
			a += c;
			b += d;
		}
		store_four(to, i, args.n_cols, a);
		store_four(to, i + 4, args.n_cols, b);
	}
}
