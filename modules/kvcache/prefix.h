/*
 * prefix.h: the index of computed blocks: which blocks hold the K and V of which
 * beginning of text.
 *
 * A tree: a node is one full block of IG_BLOCK_TOKENS tokens behind its parent, so
 * a node stands for all tokens from the beginning on.  Nodes are found by a hash of
 * (parent, tokens), which is a chained hash since a parent stands for everything
 * before it, and compared token by token.  The hash has a random key: who chooses
 * prompts cannot choose collisions.  Each salt has trees of its own: a salt is compared
 * as tokens are.
 *
 * A node holds its blocks, one of each cache group; of a group with a window it may
 * have none (IG_BLOCK_NONE).  Sequences mark the last node that they use; a node
 * without a user at or below it is idle, and idle nodes go, least recently used first,
 * when their blocks are wanted.  One thread.
 */
#pragma once

#include <ingot/kvcache.h>
#include <stdbool.h>

#define PREFIX_NONE 0xffffffffu
#define PREFIX_MAX_GROUPS 8

struct prefix;

/* Room for max_nodes; memory is touched as they are used.  NULL: none. */
struct prefix *prefix_create(uint32_t max_nodes);
void prefix_destroy(struct prefix *p); /* NULL is fine; blocks stay held */

/* The node behind parent (PREFIX_NONE: the beginning, of the model that root names)
 * with this salt and these IG_BLOCK_TOKENS tokens, or PREFIX_NONE. */
uint32_t prefix_find(const struct prefix *p, uint32_t root, uint64_t salt, uint32_t parent,
		     const int32_t *tokens);
/* Add it; it must not be there.  PREFIX_NONE when there is no room.  The new node is
 * idle and the most recently used. */
uint32_t prefix_add(struct prefix *p, uint32_t root, uint64_t salt, uint32_t parent,
		    const int32_t *tokens, const uint32_t *blocks, uint32_t n_groups);

/* Its block words, one a group. */
const uint32_t *prefix_blocks(const struct prefix *p, uint32_t node, uint32_t *n_groups);
/* Its block of a group with a window came or went. */
void prefix_set_block(struct prefix *p, uint32_t node, uint32_t i, uint32_t word);
uint32_t prefix_parent(const struct prefix *p, uint32_t node);
/* Blocks of a slab were moved: their new words, by index in it. */
void prefix_move_blocks(struct prefix *p, uint32_t slab, const uint32_t *words);

/* A sequence uses the node and all before it. */
void prefix_use(struct prefix *p, uint32_t node);
void prefix_unuse(struct prefix *p, uint32_t node);

/* A new point in time, later than all before. */
uint64_t prefix_tick(struct prefix *p);
/* When the node that would be evicted was last used; UINT64_MAX: none is idle. */
uint64_t prefix_oldest(const struct prefix *p);
/* Take the least recently used idle node out; its blocks [*n_groups] are the caller's
 * to drop.  False: none is idle. */
bool prefix_evict(struct prefix *p, uint32_t *blocks, uint32_t *n_groups);
/* As prefix_evict, of one model's nodes.  All of them must be idle. */
bool prefix_evict_root(struct prefix *p, uint32_t root, uint32_t *blocks, uint32_t *n_groups);

/* Idle nodes of a model, each with one block of each of its groups without a window. */
uint64_t prefix_n_idle(const struct prefix *p, uint32_t root);
