// embed.metal: rows of a table by token id, dequantised and scaled.  A threadgroup has a
// row of the result.  Ids come from the step, or from what the step before has drawn.
#include <metal_stdlib>
#include "portable.h"
#include "row.h"

using namespace metal;

// A format gives element i of a row as float.  Blocks of 32 elements are 18, 20 or 34 bytes
// long and aligned to 2.
struct table_f32 {
	static METAL_FUNC float value(device const uchar *row, uint i) { return ((device const float *)row)[i]; }
};
struct table_f16 {
	static METAL_FUNC float value(device const uchar *row, uint i) { return float(((device const half *)row)[i]); }
};
struct table_bf16 {
	static METAL_FUNC float value(device const uchar *row, uint i) { return float(((device const bfloat *)row)[i]); }
};

METAL_FUNC float nibble(device const uchar *quants, uint i)
{
	return float(i < 16 ? quants[i] & 15 : quants[i - 16] >> 4);
}

struct table_q8_0 {
	static METAL_FUNC float value(device const uchar *row, uint i)
	{
		device const uchar *block = row + ulong(i / 32) * 34;
		return float(*(device const half *)block) * float(((device const char *)block)[2 + i % 32]);
	}
};
struct table_q4_0 {
	static METAL_FUNC float value(device const uchar *row, uint i)
	{
		device const uchar *block = row + ulong(i / 32) * 18;
		return float(*(device const half *)block) * (nibble(block + 2, i % 32) - 8.0f);
	}
};
struct table_q4_1 {
	static METAL_FUNC float value(device const uchar *row, uint i)
	{
		device const uchar *block = row + ulong(i / 32) * 20;
		device const half *scales = (device const half *)block;
		return fma(float(scales[0]), nibble(block + 4, i % 32), float(scales[1]));
	}
};

//   table  [n_vocab] rows of w_row_bytes
//   ids    [halves][max_logit_rows] what steps have drawn
//   y      [row][n_cols]
template <typename F>
kernel void embed(
	constant embed_args &args    [[buffer(0)]],
	device const step_head *step [[buffer(1)]],
	device const uchar *table    [[buffer(2)]],
	device const int *ids        [[buffer(3)]],
	device float *y              [[buffer(4)]],
	uint row     [[threadgroup_position_in_grid]],
	uint tid     [[thread_position_in_threadgroup]],
	uint threads [[threads_per_threadgroup]])
{
	if (row >= step->n_rows)
		return;
	const int from = step_at<int>(step, step->token_from)[row];
	const int id = from >= 0 ? ids[step->prev_ids * args.max_logit_rows + uint(from)] : step_at<int>(step, step->token_ids)[row];
	// As on the cpu, an id out of range reads the first row.
	const uint token = uint(id) < args.n_vocab ? uint(id) : 0;
	device const uchar *w = table + ulong(token) * args.w_row_bytes;
	device float *to = y + ulong(row) * args.y_stride;
	for (uint i = tid; i < args.n_cols; i += threads)
		to[i] = F::value(w, i) * args.scale;
}

instantiate_kernel("embed_f32", embed, table_f32)
instantiate_kernel("embed_f16", embed, table_f16)
instantiate_kernel("embed_bf16", embed, table_bf16)
instantiate_kernel("embed_q8_0", embed, table_q8_0)
instantiate_kernel("embed_q4_0", embed, table_q4_0)
instantiate_kernel("embed_q4_1", embed, table_q4_1)
