/*
 * pages.h: the addresses of a token's K and V.  All arithmetic of this module on slabs, blocks and
 * strides of struct ig_kv_layout.  Nothing is checked here: the engine has reserved the blocks of
 * every position that a step uses.
 */
#pragma once

#include <ingot/op.h>

/* One layer of one sequence in one cache group. */
struct pages {
	void *const *slab_bases;
	const uint32_t *blocks; /* the sequence's block table */
	const struct ig_kv_layout *layout;
	uint64_t offset; /* of the layer and the KV head inside a block */
};

static inline struct pages pages_of(const struct ig_step *step, uint32_t group, uint32_t layer,
				    int32_t seq, uint32_t kv_head)
{
	const struct ig_step_kv *kv = &step->kv[group];
	struct pages p = {
		.slab_bases = step->slab_bases,
		.blocks = kv->block_tables + seq * kv->max_blocks,
		.layout = kv->layout,
		.offset = layer * kv->layout->layer_stride + kv_head * kv->layout->head_stride,
	};

	return p;
}

/* K of the 16 positions from 16 * i on; V is v_offset bytes after it. */
static inline char *pages_block(const struct pages *p, int64_t i)
{
	uint32_t word = p->blocks[i];
	return (char *)p->slab_bases[IG_BLOCK_SLAB(word)] +
	       IG_BLOCK_INDEX(word) * p->layout->block_bytes + p->offset;
}
