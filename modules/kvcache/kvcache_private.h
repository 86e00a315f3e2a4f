/*
 * kvcache_private.h: what the files of the service "paged" share: the arena's slabs and
 * blocks (blocks.c), sequences and the service itself (kvcache.c).
 */
#pragma once

#include "prefix.h"

#include <ingot/kvcache.h>
#include <stdbool.h>
#include <stdint.h>

#define NO_SLAB 0xffffffffu
#define MAX_BLOCKS_PER_SLAB (1u << IG_BLOCK_BITS)
#define MAX_GROUPS_PER_SEQ PREFIX_MAX_GROUPS

/* A block of a group with a window, as the index has it. */
struct kept {
	uint32_t node;	       /* of the index; PREFIX_NONE: it does not hold the block */
	uint32_t older, newer; /* block words: in the list of loose blocks */
	uint64_t stamp;	       /* when it became loose */
};

struct slab {
	uint32_t group;	       /* NO_SLAB: no memory, in nobody's use */
	uint32_t n_used;       /* blocks with a holder */
	uint32_t n_free;       /* of the stack */
	uint32_t prev, next;   /* in the group's list of partly used slabs, or the free list */
	uint32_t *n_holders;   /* [blocks_per_slab] */
	uint16_t *free_blocks; /* [blocks_per_slab], the top at n_free - 1 */
	struct kept *kept;     /* [blocks_per_slab] of a group with a window, else NULL */
};

struct group {
	bool used;
	uint32_t window; /* 0: all positions are kept */
	struct ig_kv_layout layout;
	uint32_t blocks_per_slab;
	uint32_t partial; /* first of the slabs with used and free blocks */
	uint32_t spare;	  /* the one empty slab that is kept */
	uint64_t n_blocks_used;
	uint64_t n_loose; /* of these, blocks that only the index holds, with a window */
	uint64_t n_slabs;
	uint32_t root; /* the first group of its model: whose prefixes its blocks hold */
};

struct ig_kvcache {
	struct ig_kv_arena arena;
	uint32_t n_slabs;
	uint32_t free_slabs; /* first of the numbers without memory, by slab.next */
	uint32_t n_free_slabs;
	void **bases;	    /* [n_slabs] */
	struct slab *slabs; /* [n_slabs] */
	struct group *groups;
	uint32_t n_groups;
	struct prefix *prefix;
	uint32_t oldest, newest; /* loose blocks */
	struct ig_kv_seq *seqs;	 /* all of them, by next */
};

struct ig_kv_seq {
	struct ig_kvcache *cache;
	struct ig_kv_seq *prev, *next;
	uint64_t salt; /* of its prefixes */
	uint32_t n_groups;
	uint32_t group[MAX_GROUPS_PER_SEQ];
	uint32_t first[MAX_GROUPS_PER_SEQ];    /* block of each table; before it is IG_BLOCK_NONE */
	uint32_t n_blocks[MAX_GROUPS_PER_SEQ]; /* in each table */
	uint32_t max_blocks, max_tokens;
	uint32_t n_tokens, n_window; /* reserved: of groups without and with a window */
	uint32_t n_indexed;	     /* blocks that the prefix index was told of */
	uint32_t node;	   /* the last of their nodes, in use by this sequence; or PREFIX_NONE */
	uint32_t tables[]; /* [n_groups, max_blocks] */
};

static inline uint32_t *table(struct ig_kv_seq *s, uint32_t i)
{
	return s->tables + (size_t)i * s->max_blocks;
}

/* ---- blocks.c ---- */

/* A free block of group gi, held once: 0, or -ENOSPC. */
int blocks_take(struct ig_kvcache *c, uint32_t gi, uint32_t *word);
/* One more sequence holds a block; one fewer does. */
void blocks_hold(struct ig_kvcache *c, uint32_t word);
void blocks_drop(struct ig_kvcache *c, uint32_t word);
void *blocks_base(struct ig_kvcache *c, const struct group *g, uint32_t word);
/* The index's node holds a block that a sequence has; no node does any more. */
void blocks_index_hold(struct ig_kvcache *c, uint32_t node, uint32_t word);
void blocks_index_drop(struct ig_kvcache *c, uint32_t word);
/* Make room: what was not used for the longest time goes, or the node that was not.
 * False: all that there is is in use. */
bool blocks_evict(struct ig_kvcache *c);
bool blocks_evict_node(struct ig_kvcache *c);
/* As the service's compact. */
int blocks_compact(struct ig_kvcache *c);
/* Give an empty slab's memory back; it is in no list. */
void blocks_release_slab(struct ig_kvcache *c, uint32_t n);
void blocks_free_tables(struct slab *s);
