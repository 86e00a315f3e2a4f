/*
 * blocks.c: slabs and blocks: allocation, references, eviction, compaction.  A slab gets memory
 * when a group needs it and is divided into that group's blocks, which have reference counts.
 * Slabs with used and free blocks are used up first.  A group keeps at most one empty slab, so that
 * a sequence that repeatedly needs one block more does not map and unmap a slab each time.  A loose
 * block is one of a group with a window that only the prefix index holds: it is evicted separately
 * from its node, in the same order of last use.
 */
#include "kvcache_private.h"

#include <errno.h>
#include <stdlib.h>

/* ---- slabs ------------------------------------------------------------------- */

static void partial_push(struct ig_kvcache *c, struct group *g, uint32_t n)
{
	struct slab *s = &c->slabs[n];
	s->prev = NO_SLAB;
	s->next = g->partial;
	if (g->partial != NO_SLAB)
		c->slabs[g->partial].prev = n;
	g->partial = n;
}

static void partial_remove(struct ig_kvcache *c, struct group *g, uint32_t n)
{
	struct slab *s = &c->slabs[n];

	if (s->prev != NO_SLAB)
		c->slabs[s->prev].next = s->next;
	else
		g->partial = s->next;
	if (s->next != NO_SLAB)
		c->slabs[s->next].prev = s->prev;
	s->prev = s->next = NO_SLAB;
}

void blocks_free_tables(struct slab *s)
{
	free(s->n_holders);
	free(s->free_blocks);
	free(s->kept);
	s->n_holders = NULL;
	s->free_blocks = NULL;
	s->kept = NULL;
}

void blocks_release_slab(struct ig_kvcache *c, uint32_t n)
{
	struct slab *s = &c->slabs[n];

	c->groups[s->group].n_slabs--;
	c->arena.unmap_slab(c->arena.ctx, c->bases[n], c->arena.slab_bytes);
	c->bases[n] = NULL;
	blocks_free_tables(s);
	s->group = NO_SLAB;
	s->prev = NO_SLAB;
	s->next = c->free_slabs;
	c->free_slabs = n;
	c->n_free_slabs++;
}

/* Ensure that there is a free slab number; may release another group's spare slab. */
static bool find_free_slab(struct ig_kvcache *c)
{
	for (uint32_t i = 0; c->free_slabs == NO_SLAB && i < c->n_groups; i++) {
		struct group *g = &c->groups[i];
		if (!g->used || g->spare == NO_SLAB)
			continue;
		blocks_release_slab(c, g->spare);
		g->spare = NO_SLAB;
	}
	return c->free_slabs != NO_SLAB;
}

/* Map one more slab for group gi, as its spare. */
static int slab_acquire(struct ig_kvcache *c, uint32_t gi)
{
	struct group *g = &c->groups[gi];
	struct slab *s;
	uint32_t n;

	if (!find_free_slab(c))
		return -ENOSPC;
	n = c->free_slabs;
	s = &c->slabs[n];
	s->n_holders = calloc(g->blocks_per_slab, sizeof *s->n_holders);
	s->free_blocks = malloc(g->blocks_per_slab * sizeof *s->free_blocks);
	s->kept = g->window ? malloc(g->blocks_per_slab * sizeof *s->kept) : NULL;
	if (!s->n_holders || !s->free_blocks || (g->window && !s->kept))
		goto fail;
	c->bases[n] = c->arena.map_slab(c->arena.ctx, c->arena.slab_bytes);
	if (!c->bases[n])
		goto fail;
	c->free_slabs = s->next;
	c->n_free_slabs--;
	s->prev = s->next = NO_SLAB;
	s->group = gi;
	s->n_used = 0;
	s->n_free = g->blocks_per_slab;
	/* the lowest blocks come off the stack first: fewer pages are touched */
	for (uint32_t i = 0; i < s->n_free; i++)
		s->free_blocks[i] = (uint16_t)(s->n_free - 1 - i);
	for (uint32_t i = 0; s->kept && i < s->n_free; i++)
		s->kept[i].node = PREFIX_NONE;
	g->n_slabs++;
	g->spare = n;
	return 0;
fail:
	blocks_free_tables(s);
	return -ENOSPC; /* as if all slabs were in use */
}

/* ---- blocks ------------------------------------------------------------------ */

int blocks_take(struct ig_kvcache *c, uint32_t gi, uint32_t *word)
{
	struct group *g = &c->groups[gi];
	uint32_t n = g->partial, block;
	struct slab *s;

	if (n == NO_SLAB) {
		if (g->spare == NO_SLAB) {
			int rc = slab_acquire(c, gi);
			if (rc < 0)
				return rc;
		}
		n = g->spare;
		g->spare = NO_SLAB;
		partial_push(c, g, n);
	}
	s = &c->slabs[n];
	block = s->free_blocks[--s->n_free];
	s->n_holders[block] = 1;
	s->n_used++;
	g->n_blocks_used++;
	if (!s->n_free)
		partial_remove(c, g, n);
	*word = IG_BLOCK_WORD(n, block);
	return 0;
}

/* The index's data of a block; NULL: its group has no window. */
static struct kept *kept_of(struct ig_kvcache *c, uint32_t word)
{
	struct slab *s = &c->slabs[IG_BLOCK_SLAB(word)];
	return s->kept ? &s->kept[IG_BLOCK_INDEX(word)] : NULL;
}

static void loose_add(struct ig_kvcache *c, uint32_t word)
{
	struct kept *k = kept_of(c, word);

	k->stamp = prefix_tick(c->prefix);
	k->older = c->newest;
	k->newer = IG_BLOCK_NONE;
	if (k->older != IG_BLOCK_NONE)
		kept_of(c, k->older)->newer = word;
	else
		c->oldest = word;
	c->newest = word;
	c->groups[c->slabs[IG_BLOCK_SLAB(word)].group].n_loose++;
}

static void loose_remove(struct ig_kvcache *c, uint32_t word)
{
	struct kept *k = kept_of(c, word);

	if (k->older != IG_BLOCK_NONE)
		kept_of(c, k->older)->newer = k->newer;
	else
		c->oldest = k->newer;
	if (k->newer != IG_BLOCK_NONE)
		kept_of(c, k->newer)->older = k->older;
	else
		c->newest = k->older;
	c->groups[c->slabs[IG_BLOCK_SLAB(word)].group].n_loose--;
}

void blocks_hold(struct ig_kvcache *c, uint32_t word)
{
	if (++c->slabs[IG_BLOCK_SLAB(word)].n_holders[IG_BLOCK_INDEX(word)] == 2) {
		const struct kept *k = kept_of(c, word);
		if (k && k->node != PREFIX_NONE)
			loose_remove(c, word);
	}
}

void blocks_drop(struct ig_kvcache *c, uint32_t word)
{
	uint32_t n = IG_BLOCK_SLAB(word);
	struct slab *s = &c->slabs[n];
	struct group *g = &c->groups[s->group];
	uint32_t n_left = --s->n_holders[IG_BLOCK_INDEX(word)];

	if (n_left == 1 && s->kept && s->kept[IG_BLOCK_INDEX(word)].node != PREFIX_NONE)
		loose_add(c, word);
	if (n_left)
		return;
	if (!s->n_free)
		partial_push(c, g, n);
	s->free_blocks[s->n_free++] = (uint16_t)IG_BLOCK_INDEX(word);
	s->n_used--;
	g->n_blocks_used--;
	if (s->n_used)
		return;
	partial_remove(c, g, n);
	if (g->spare == NO_SLAB)
		g->spare = n;
	else
		blocks_release_slab(c, n);
}

/* ---- blocks of the index ------------------------------------------------------ */

void blocks_index_hold(struct ig_kvcache *c, uint32_t node, uint32_t word)
{
	struct kept *k;

	if (word == IG_BLOCK_NONE)
		return;
	blocks_hold(c, word);
	k = kept_of(c, word);
	if (k)
		k->node = node;
}

void blocks_index_drop(struct ig_kvcache *c, uint32_t word)
{
	struct kept *k;

	if (word == IG_BLOCK_NONE)
		return;
	k = kept_of(c, word);
	if (k && c->slabs[IG_BLOCK_SLAB(word)].n_holders[IG_BLOCK_INDEX(word)] == 1)
		loose_remove(c, word);
	if (k)
		k->node = PREFIX_NONE;
	blocks_drop(c, word);
}

void blocks_node_gone(struct ig_kvcache *c, const struct prefix_gone *gone)
{
	for (uint32_t i = 0; i < gone->n_groups; i++)
		blocks_index_drop(c, gone->blocks[i]);
	states_node_gone(c, gone->state);
}

bool blocks_evict_node(struct ig_kvcache *c)
{
	struct prefix_gone gone;
	if (!prefix_evict(c->prefix, &gone))
		return false;
	blocks_node_gone(c, &gone);
	return true;
}

/* Evict the oldest loose block; its node stays. */
static void evict_loose(struct ig_kvcache *c)
{
	uint32_t word = c->oldest, node = kept_of(c, word)->node, n_groups;
	const uint32_t *blocks = prefix_blocks(c->prefix, node, &n_groups);
	for (uint32_t i = 0; i < n_groups; i++)
		if (blocks[i] == word)
			prefix_set_block(c->prefix, node, i, IG_BLOCK_NONE);
	blocks_index_drop(c, word);
}

bool blocks_evict(struct ig_kvcache *c)
{
	uint64_t loose = c->oldest == IG_BLOCK_NONE ? UINT64_MAX : kept_of(c, c->oldest)->stamp;
	uint64_t state = states_oldest(c), node = prefix_oldest(c->prefix);

	if (state < loose && state < node)
		return states_evict(c);
	if (loose > node || loose == UINT64_MAX)
		return blocks_evict_node(c);
	evict_loose(c);
	return true;
}

void *blocks_base(struct ig_kvcache *c, const struct group *g, uint32_t word)
{
	return (char *)c->bases[IG_BLOCK_SLAB(word)] + IG_BLOCK_INDEX(word) * g->layout.block_bytes;
}

/* ---- compaction -------------------------------------------------------------- */

/* In the list of loose blocks, replace `from` by the block to which it was moved. */
static void loose_move(struct ig_kvcache *c, uint32_t from, uint32_t to)
{
	const struct kept *k = kept_of(c, to);

	if (c->oldest == from)
		c->oldest = to;
	else
		kept_of(c, k->older)->newer = to;
	if (c->newest == from)
		c->newest = to;
	else
		kept_of(c, k->newer)->older = to;
}

/* Move a block with its references to another slab; returns its new word. */
static uint32_t move_block(struct ig_kvcache *c, uint32_t gi, uint32_t from)
{
	struct slab *s = &c->slabs[IG_BLOCK_SLAB(from)], *t;
	uint32_t n_holders = s->n_holders[IG_BLOCK_INDEX(from)], to = IG_BLOCK_NONE;

	blocks_take(c, gi, &to); /* cannot fail, and s is not in the list of partial slabs */
	t = &c->slabs[IG_BLOCK_SLAB(to)];
	c->arena.copy(c->arena.ctx, blocks_base(c, &c->groups[gi], to),
		      blocks_base(c, &c->groups[gi], from), c->groups[gi].layout.block_bytes);
	t->n_holders[IG_BLOCK_INDEX(to)] = n_holders;
	s->n_holders[IG_BLOCK_INDEX(from)] = 0;
	s->n_used--;
	c->groups[gi].n_blocks_used--;
	if (s->kept) {
		struct kept *k = &s->kept[IG_BLOCK_INDEX(from)];
		t->kept[IG_BLOCK_INDEX(to)] = *k;
		if (k->node != PREFIX_NONE && n_holders == 1)
			loose_move(c, from, to);
		k->node = PREFIX_NONE;
	}
	return to;
}

static void empty_slab(struct ig_kvcache *c, uint32_t gi, uint32_t slab)
{
	uint32_t words[MAX_BLOCKS_PER_SLAB];
	struct group *g = &c->groups[gi];

	partial_remove(c, g, slab); /* so that no block is moved to it */
	for (uint32_t i = 0; i < g->blocks_per_slab; i++)
		if (c->slabs[slab].n_holders[i])
			words[i] = move_block(c, gi, IG_BLOCK_WORD(slab, i));
	for (struct ig_kv_seq *s = c->seqs; s; s = s->next)
		for (uint32_t i = 0; i < s->n_groups; i++)
			for (uint32_t b = s->first[i]; s->group[i] == gi && b < s->n_blocks[i]; b++)
				if (IG_BLOCK_SLAB(table(s, i)[b]) == slab)
					table(s, i)[b] = words[IG_BLOCK_INDEX(table(s, i)[b])];
	prefix_move_blocks(c->prefix, slab, words);
	states_move_blocks(c, slab, words);
	blocks_release_slab(c, slab);
}

/* Whether the slabs of g that are in use are one more than its blocks need.  Its spare slab doesn't count: to
 * move blocks there frees nothing, and could be done for ever. */
static bool is_sparse(const struct group *g)
{
	uint64_t n_slabs = g->n_slabs - (g->spare != NO_SLAB);

	return n_slabs * g->blocks_per_slab - g->n_blocks_used >= g->blocks_per_slab;
}

int blocks_compact(struct ig_kvcache *c)
{
	uint32_t best = NO_SLAB;

	for (uint32_t i = 0; i < c->n_slabs; i++) {
		const struct slab *s = &c->slabs[i];
		const struct group *g = s->group == NO_SLAB ? NULL : &c->groups[s->group];
		if (!g || !s->n_used || !s->n_free || !is_sparse(g))
			continue;
		if (best == NO_SLAB || s->n_used < c->slabs[best].n_used)
			best = i;
	}
	if (best == NO_SLAB)
		return 0;
	empty_slab(c, c->slabs[best].group, best);
	return 1;
}
