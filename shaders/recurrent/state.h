// state.h: where the kernels of recurrent layers find states, like modules/recurrent/state.h on the host, and
// functions of one value that several of them have.
#pragma once

#include <metal_stdlib>
#include "../portable.h"
#include "../args.h"
#include "../step.h"
#include "../attention/pages.h"
using namespace metal;

// The rows of one sequence in the step, by segments; `first` is the first row.
struct run {
	device const uint *ends; // by segment
	uint segment, end, first;
	uint table; // row of the tables with the state behind segment 0
};

METAL_FUNC run run_of(device const step_head *step, uint sequence)
{
	device const uint *segments = step_array<uint>(step, step->seq_segments) + sequence;
	run r;
	r.ends = step_array<uint>(step, step->segment_ends);
	r.segment = segments[0];
	r.end = segments[1];
	r.first = uint(step_array<int>(step, step->seq_rows)[sequence]);
	r.table = step->n_seqs;
	return r;
}

// Part `part` of a layer of the state in a row of a group's tables: the state that sequence `row` begins with,
// or the one behind segment `row` - n_seqs.
METAL_FUNC device float *state_part(device const step_head *step, uint group, uint layer, uint part,
				    uint row)
{
	device const step_kv *kv = &step->kv[group];
	const uint word = step_array<uint>(
		step, kv->tables)[row * kv->max_blocks + layer * kv->layer_stride + part];
	device const page_address *slabs = step_array<page_address>(step, step->slabs);
	return (device float *)(slabs[word >> STEP_BLOCK_BITS].p +
				ulong(word & ((1u << STEP_BLOCK_BITS) - 1)) * kv->block_bytes);
}

// Whether the sequence has a state; else it begins with zeros.
METAL_FUNC bool begins_with_state(device const step_head *step, uint group, uint sequence)
{
	device const step_kv *kv = &step->kv[group];
	return step_array<uint>(step, kv->tables)[sequence * kv->max_blocks] != STEP_NONE;
}

METAL_FUNC float logistic(float x) { return precise::divide(1.0f, 1.0f + precise::exp(-x)); }
METAL_FUNC float silu(float x) { return precise::divide(x, 1.0f + precise::exp(-x)); }

// log(1 + e^x).  Where 1 + e^x was rounded, what its logarithm is off by is made good by the quotient.
METAL_FUNC float softplus(float x)
{
	const float e = precise::exp(x), u = 1.0f + e;
	if (x > 20.0f)
		return x;
	return u == 1.0f ? e : precise::log(u) * precise::divide(e, u - 1.0f);
}
