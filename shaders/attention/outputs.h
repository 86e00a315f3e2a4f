// outputs.h: what becomes of a query's merged sums: the sink, the gate, and the type that is stored.
#pragma once

#include <metal_stdlib>
#include "../portable.h"
#include "../args.h"
#include "attention.h"
#include "element.h"

using namespace metal;

// What the output of a row's head, from column `column` on, is multiplied by.
METAL_FUNC float gate_value(constant attention_args &args, device const float *gates, uint row,
			    uint head, uint column)
{
	if ((args.flags & (ATTENTION_SIGMOID | ATTENTION_SOFTPLUS)) == 0)
		return 1.0f;
	const float x = gates[ulong(row) * args.gate_row + args.gate_first +
			      head * args.gate_stride + (args.gate_dim == 1 ? 0 : column)];
	const float e = precise::exp(-fabs(x));
	if ((args.flags & ATTENTION_SOFTPLUS) != 0)
		return max(x, 0.0f) + precise::log(1.0f + e);
	return precise::divide(x > 0.0f ? 1.0f : e, 1.0f + e);
}

METAL_FUNC float2 gate_pair(constant attention_args &args, device const float *gates, uint row,
			    uint head, uint column)
{
	return float2(gate_value(args, gates, row, head, column),
		      gate_value(args, gates, row, head, column + 1));
}

// 1 / the sum of a query's weights, once its ranges are merged; a head's sink joins the sum like
// the score of a position without a value.
METAL_FUNC float final_share(float top, float sum, device const float *sinks, uint head, uint flags)
{
	if ((flags & ATTENTION_SINKS) == 0)
		return 1.0f / sum;
	const float sink = sinks[head] * 1.44269504f; // log2(e)
	const float with = max(top, sink);
	const float old_share = merge_share(top, with);
	return old_share / fma(sum, old_share, merge_share(sink, with));
}

// -0 becomes 0, so that zeros added by masked tokens change no bits.
METAL_FUNC float one_zero(float x) { return x == 0.0f ? 0.0f : x; }

METAL_FUNC void store_pair(device uchar *row, uint i, float2 v, uint type)
{
	v = float2(one_zero(v.x), one_zero(v.y));
	if (type == ELEMENT_F32) {
		*(device float2 *)(row + i * 4) = v;
	} else {
		store_element(row, i, v.x, type);
		store_element(row, i + 1, v.y, type);
	}
}
