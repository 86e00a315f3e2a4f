/* kvcache_private.h: shared by the files of the service "paged": slabs and blocks (blocks.c),
 * states of recurrent layers (states.c), sequences (sequences.c) and the service (kvcache.c). */
#pragma once

#include "prefix.h"

#include <ingot/arch.h>
#include <ingot/kvcache.h>
#include <stdbool.h>
#include <stdint.h>

#define NO_SLAB 0xffffffffu
#define MAX_BLOCKS_PER_SLAB (1u << IG_BLOCK_BITS)
#define MAX_GROUPS_PER_SEQ PREFIX_MAX_GROUPS
#define MAX_SEQ_STATES 12 /* of one sequence */
#define MAX_SPARE 4
#define MAX_WANTS 8
#define NO_TOKENS UINT32_MAX

/* The index's data of a block of a group with a window. */
struct kept {
	uint32_t node;	       /* PREFIX_NONE: the index does not hold the block */
	uint32_t older, newer; /* block words: in the list of loose blocks */
	uint64_t stamp;	       /* when it became loose */
};

struct slab {
	uint32_t group;	       /* NO_SLAB: unused, without memory */
	uint32_t n_used;       /* blocks with references */
	uint32_t n_free;       /* blocks on the stack */
	uint32_t prev, next;   /* in the group's list of partial slabs, or the free list */
	uint32_t *n_holders;   /* [blocks_per_slab] */
	uint16_t *free_blocks; /* [blocks_per_slab], the top at n_free - 1 */
	struct kept *kept;     /* [blocks_per_slab] of a group with a window, else NULL */
};

struct group {
	bool used;
	uint32_t window; /* 0: all positions are cached */
	struct ig_kv_layout layout;
	uint32_t blocks_per_slab;
	uint32_t partial; /* first of the slabs with used and free blocks */
	uint32_t spare;	  /* the one empty slab of the group */
	uint64_t n_blocks_used;
	uint64_t n_loose; /* loose blocks among them (blocks.c) */
	uint64_t n_slabs;
	uint32_t root; /* the first group of its model */
};

/* A state of a model's recurrent layers: one part, a block, for each part of each group (states.c). */
struct state {
	struct state *prev, *next; /* of all, or of those that are free */
	uint32_t n_holders;	   /* of sequences, and the index */
	uint32_t node;		   /* that has it as its snapshot; or PREFIX_NONE */
	struct state *older, *newer;
	uint64_t stamp; /* when it became loose */
	uint32_t n_groups, group[IG_MAX_CACHE_GROUPS];
	uint32_t n_parts;
	uint32_t words[]; /* [n_parts], by group */
};

/* One of a sequence's states. */
struct held {
	struct state *state;
	uint32_t n_tokens; /* that it stands for */
	uint32_t n_before; /* before the last step changed it in place; NO_TOKENS: none did */
};

struct ig_kvcache {
	struct ig_kv_arena arena;
	uint32_t n_slabs;
	uint32_t free_slabs; /* first unused slab number; list by slab.next */
	uint32_t n_free_slabs;
	void **bases;	    /* [n_slabs] */
	struct slab *slabs; /* [n_slabs] */
	struct group *groups;
	uint32_t n_groups;
	struct prefix *prefix;
	uint32_t oldest, newest;		   /* loose blocks */
	struct ig_kv_seq *seqs;			   /* all of them, by next */
	struct state *states, *free_states;	   /* by next */
	struct state *oldest_state, *newest_state; /* loose ones */
	uint64_t snapshot_bytes, max_snapshot_bytes;
};

struct ig_kv_seq {
	struct ig_kvcache *cache;
	struct ig_kv_seq *prev, *next;
	uint64_t salt; /* of its prefixes */
	uint32_t n_groups, n_state_groups;
	uint32_t group[MAX_GROUPS_PER_SEQ];    /* [n_groups], then those of state */
	uint32_t first[MAX_GROUPS_PER_SEQ];    /* block of each table; before it is IG_BLOCK_NONE */
	uint32_t n_blocks[MAX_GROUPS_PER_SEQ]; /* in each table */
	uint32_t max_blocks, max_tokens;
	uint32_t n_tokens, n_window; /* reserved: of groups without and with a window */
	uint32_t n_indexed;	     /* blocks in the prefix index */
	uint32_t node; /* the last of their nodes, used by this sequence; or PREFIX_NONE */
	/* Of a model with groups of state (states.c). */
	uint32_t n_parts; /* of a state */
	uint32_t n_states, n_spare, n_wants;
	struct held states[MAX_SEQ_STATES]; /* by n_tokens, the live one last */
	struct state *spare[MAX_SPARE];	    /* reserved for the next steps */
	uint32_t wants[MAX_WANTS];	    /* numbers of tokens after which the state is kept */
	uint32_t n_confirmed;		    /* tokens whose steps were waited for */
	uint32_t checkpoint; /* the next step leaves the state after so many; NO_TOKENS: nowhere */
	uint32_t tables[];   /* [n_groups, max_blocks] */
};

static inline uint32_t *table(struct ig_kv_seq *s, uint32_t i)
{
	return s->tables + (size_t)i * s->max_blocks;
}

static inline bool group_is_state(const struct group *g)
{
	return g->layout.kind == IG_CACHE_STATE;
}

/* ---- kvcache.c ---- */

/* Evict cached blocks beyond the option's limit. */
void kv_keep_within(struct ig_kvcache *c);

/* ---- blocks.c ---- */

/* A free block of group gi, with one reference: 0, or -ENOSPC. */
int blocks_take(struct ig_kvcache *c, uint32_t gi, uint32_t *word);
/* Add or drop a reference of a sequence. */
void blocks_hold(struct ig_kvcache *c, uint32_t word);
void blocks_drop(struct ig_kvcache *c, uint32_t word);
void *blocks_base(struct ig_kvcache *c, const struct group *g, uint32_t word);
/* Add a node's reference to a block that a sequence holds; drop it. */
void blocks_index_hold(struct ig_kvcache *c, uint32_t node, uint32_t word);
void blocks_index_drop(struct ig_kvcache *c, uint32_t word);
/* Drop what a node that was removed had. */
void blocks_node_gone(struct ig_kvcache *c, const struct prefix_gone *gone);
/* Evict the least recently used loose block, loose state or node; only a node.  False: all are in
 * use. */
bool blocks_evict(struct ig_kvcache *c);
bool blocks_evict_node(struct ig_kvcache *c);
/* As the service's compact. */
int blocks_compact(struct ig_kvcache *c);
/* Return the memory of an empty slab, which is in no list, to the system. */
void blocks_release_slab(struct ig_kvcache *c, uint32_t n);
void blocks_free_tables(struct slab *s);

/* ---- states.c ---- */

/* Free what is left, without its blocks. */
void states_finish(struct ig_kvcache *c);
/* The node that has this state as its snapshot is gone; NULL is fine. */
void states_node_gone(struct ig_kvcache *c, struct state *st);
/* When the oldest loose state became loose; UINT64_MAX: there is none.  Evict it. */
uint64_t states_oldest(const struct ig_kvcache *c);
bool states_evict(struct ig_kvcache *c);
/* Blocks of a slab were moved: their new words, by index in the slab. */
void states_move_blocks(struct ig_kvcache *c, uint32_t slab, const uint32_t *words);
/* The sequence, without states, begins with this one. */
void states_start(struct ig_kv_seq *s, struct state *st, uint32_t n_tokens);
/* Have the states that steps up to n_tokens need; 0 or -ENOSPC. */
int states_reserve(struct ig_kv_seq *s, uint32_t n_tokens);
/* Its blocks were committed: make snapshots of the states that are to be kept. */
void states_commit(struct ig_kv_seq *s);
/* The steps of its first n_tokens tokens were waited for. */
void states_advance(struct ig_kv_seq *s, uint32_t n_tokens);
/* It ends: its newest state becomes a snapshot.  Drop all of them. */
void states_end(struct ig_kv_seq *s);
void states_drop(struct ig_kv_seq *s);
/* As the service's. */
int kv_seq_step(struct ig_kv_seq *s, uint32_t n_from, uint32_t n_to, struct ig_kv_segment *out);
void kv_seq_undo(struct ig_kv_seq *s, uint32_t n_from);
void kv_seq_keep(struct ig_kv_seq *s, uint32_t n_tokens);
const uint32_t *kv_seq_state(const struct ig_kv_seq *s, uint32_t n_tokens);
int kv_seq_add_state(struct ig_kv_seq *s);
int kv_seq_checkpoint(struct ig_kv_seq *s, uint32_t n_tokens);
uint32_t kv_seq_rewind(struct ig_kv_seq *s, uint32_t n_tokens);

/* ---- sequences.c: as the service's ---- */

int kv_seq_create(struct ig_kvcache *c, const uint32_t *groups, uint32_t n_groups,
		  uint32_t max_tokens, uint64_t salt, struct ig_kv_seq **out);
int kv_seq_reserve(struct ig_kv_seq *s, uint32_t n_tokens, uint32_t n_window);
void kv_seq_advance(struct ig_kv_seq *s, uint32_t n_tokens);
void kv_seq_destroy(struct ig_kv_seq *s);
void kv_seq_match(struct ig_kv_seq *s, const int32_t *tokens, uint32_t n_tokens,
		  uint32_t *n_cached);
uint32_t kv_seq_share(struct ig_kv_seq *s, const struct ig_kv_seq *from);
int kv_seq_append(struct ig_kv_seq *s, uint32_t groups, void **address);
uint32_t kv_seq_known(const struct ig_kv_seq *s, const int32_t *tokens, uint32_t n_tokens);
void kv_seq_commit(struct ig_kv_seq *s, const int32_t *tokens, uint32_t n_tokens);
const uint32_t *kv_seq_blocks(const struct ig_kv_seq *s, uint32_t i, uint32_t *n_blocks);
