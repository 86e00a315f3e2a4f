/*
 * prefix.h: the prefix index: which blocks have the K and V of which prefix.
 *
 * The index is a tree: a node is one full block of IG_BLOCK_TOKENS tokens after its parent and
 * represents all tokens up to its end.  Nodes are found by a hash of (parent, tokens), which is a
 * chained hash of the prefix, and are compared token by token.  The hash has a random key, so
 * that nobody can choose prompts that collide.  Each salt has its own trees; salts are compared
 * like tokens.
 *
 * A node holds one block of each cache group; for a group with a window it may have none
 * (IG_BLOCK_NONE).  It may have a state of the model's recurrent layers, which its owner interprets.
 * Sequences mark the last node that they use.  A node is idle if neither it nor
 * a descendant has a user; idle nodes are evicted, least recently used first, when their blocks
 * are needed.  One thread.
 */
#pragma once

#include <ingot/kvcache.h>
#include <stdbool.h>

#define PREFIX_NONE 0xffffffffu
#define PREFIX_MAX_GROUPS 8

struct prefix;

/* Capacity of max_nodes; memory is committed on first use.  NULL: no memory. */
struct prefix *prefix_create(uint32_t max_nodes);
void prefix_destroy(struct prefix *p); /* NULL is fine; does not drop blocks */

/* The child of parent (PREFIX_NONE: the first block, of model root) with this salt and these
 * IG_BLOCK_TOKENS tokens, or PREFIX_NONE. */
uint32_t prefix_find(const struct prefix *p, uint32_t root, uint64_t salt, uint32_t parent,
		     const int32_t *tokens);
/* The child of a node that has most of these n tokens at its beginning, of those that were added
 * last; PREFIX_NONE: none has the first one.  *n_same: how many. */
uint32_t prefix_nearest(const struct prefix *p, uint32_t node, const int32_t *tokens, uint32_t n,
			uint32_t *n_same);
/* Add that node, which must not exist.  PREFIX_NONE: the index is full.  The new node is idle and
 * the most recently used. */
uint32_t prefix_add(struct prefix *p, uint32_t root, uint64_t salt, uint32_t parent,
		    const int32_t *tokens, const uint32_t *blocks, uint32_t n_groups);

/* The node's block words, one per group. */
const uint32_t *prefix_blocks(const struct prefix *p, uint32_t node, uint32_t *n_groups);
/* The node before it; PREFIX_NONE: none. */
uint32_t prefix_parent(const struct prefix *p, uint32_t node);
/* Its state; NULL: none. */
struct state;
struct state *prefix_state(const struct prefix *p, uint32_t node);
void prefix_set_state(struct prefix *p, uint32_t node, struct state *state);
/* Set or clear (IG_BLOCK_NONE) its block of a group with a window. */
void prefix_set_block(struct prefix *p, uint32_t node, uint32_t i, uint32_t word);
/* Blocks of a slab were moved: their new words, by index in the slab. */
void prefix_move_blocks(struct prefix *p, uint32_t slab, const uint32_t *words);

/* A sequence starts or stops using the node and all before it. */
void prefix_use(struct prefix *p, uint32_t node);
void prefix_unuse(struct prefix *p, uint32_t node);

/* A new point in time, later than all before. */
uint64_t prefix_tick(struct prefix *p);
/* The time of last use of the next node to evict; UINT64_MAX: none is idle. */
uint64_t prefix_oldest(const struct prefix *p);
/* What a node that was removed had. */
struct prefix_gone {
	uint32_t n_groups;
	uint32_t blocks[PREFIX_MAX_GROUPS];
	struct state *state;
};
/* Remove the least recently used idle node; the caller must drop what it had.  False: none is
 * idle. */
bool prefix_evict(struct prefix *p, struct prefix_gone *gone);
/* The same for one model's nodes, all of which must be idle. */
bool prefix_evict_root(struct prefix *p, uint32_t root, struct prefix_gone *gone);

/* The number of a model's idle nodes. */
uint64_t prefix_n_idle(const struct prefix *p, uint32_t root);
