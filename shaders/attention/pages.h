// pages.h: the addresses of a token's K and V, like modules/attention/pages.h on the host.
#pragma once

#include <metal_stdlib>
#include "../portable.h"
#include "../step.h"
using namespace metal;

// An array of the step by its offset.
template <typename T>
METAL_FUNC device const T *step_array(device const step_head *step, uint place)
{
	return (device const T *)((device const uchar *)step + place);
}

// An element of the arrays of addresses.
struct page_address {
	device uchar *p;
};

// One layer and KV head of one sequence in one cache group.
struct pages {
	device const uint *blocks;
	device const page_address *slabs;
	ulong block_bytes, offset;
	uint v_offset, token_stride;
};

METAL_FUNC pages pages_of(device const step_head *step, uint group, uint layer, uint sequence,
			  uint kv_head)
{
	device const step_kv *kv = &step->kv[group];
	pages p;
	p.blocks = step_array<uint>(step, kv->tables) + ulong(sequence) * kv->max_blocks;
	p.slabs = step_array<page_address>(step, step->slabs);
	p.block_bytes = kv->block_bytes;
	p.offset = ulong(layer) * kv->layer_stride + ulong(kv_head) * kv->head_stride;
	p.v_offset = kv->v_offset;
	p.token_stride = kv->token_stride;
	return p;
}

// K of the 16 positions from 16 * i on; V is v_offset bytes after it.
METAL_FUNC device uchar *pages_block(thread const pages &p, uint i)
{
	const uint word = p.blocks[i];
	return p.slabs[word >> STEP_BLOCK_BITS].p +
	       ulong(word & ((1u << STEP_BLOCK_BITS) - 1)) * p.block_bytes + p.offset;
}

// Q8_0, as struct ig_kv_layout has it: codes of a block, then scales by group and token.
#define PAGES_GROUP 32		     /* values that share a scale */
#define PAGES_Q8_BYTES(n) (17 * (n)) /* of a block of n values a token */

METAL_FUNC uint pages_scales(uint n) { return STEP_BLOCK_TOKENS * n; }
