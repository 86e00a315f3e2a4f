/*
 * kvcache.c: the service "paged": see ingot/kvcache.h.
 *
 * The arena is a row of slab numbers.  A slab gets memory when a group first
 * needs one and is cut into that group's blocks; each block has a count of its
 * holders, and a slab's free blocks are a stack.  A group lists its slabs that
 * have both used and free blocks, so that blocks are taken where slabs are in use
 * already, and keeps at most one slab that is wholly empty, so that a sequence
 * which comes and goes at a slab's edge does not map and unmap it each time.
 * Everything else that is empty goes back to the system.
 *
 * Computed blocks are found again through prefix.c, which holds them like a
 * sequence does; when no block is free, the least recently used of those that only
 * it holds goes.
 *
 * In a group with a window a sequence has the blocks that its next tokens read or
 * write, and IG_BLOCK_NONE before them.  What it lets go of is free, or, if the index
 * holds it, *loose*: the index alone has it, and gives it up apart from its node, in the
 * same order of use.  So a beginning that was read by many still ends in blocks that
 * can be continued as long as nobody needs their room.
 *
 * What lies inside a block is the business of whoever wrote it; only a fork
 * copies bytes here.  One thread.
 */
#include "prefix.h"

#include <ingot/kvcache.h>
#include <ingot/module.h>

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define NO_SLAB 0xffffffffu
#define MAX_SLABS ((1u << (32 - IG_BLOCK_BITS)) - 1) /* the last word is IG_BLOCK_NONE */
#define MAX_BLOCKS_PER_SLAB (1u << IG_BLOCK_BITS)
#define MAX_GROUPS_PER_SEQ PREFIX_MAX_GROUPS
#define MAX_NODES (1u << 20) /* of the prefix index */
#define ALIGNMENT 64 /* of each head's rows: a cache line, a vector */

/* A block of a group with a window, as the index has it. */
struct kept {
	uint32_t node; /* of the index; PREFIX_NONE: it does not hold the block */
	uint32_t older, newer; /* block words: in the list of loose blocks */
	uint64_t stamp; /* when it became loose */
};

struct slab {
	uint32_t group; /* NO_SLAB: no memory, in nobody's use */
	uint32_t n_used; /* blocks with a holder */
	uint32_t n_free; /* of the stack */
	uint32_t prev, next; /* in the group's list of partly used slabs, or the free list */
	uint32_t *n_holders; /* [blocks_per_slab] */
	uint16_t *free_blocks; /* [blocks_per_slab], the top at n_free - 1 */
	struct kept *kept; /* [blocks_per_slab] of a group with a window, else NULL */
};

struct group {
	bool used;
	uint32_t window; /* 0: all positions are kept */
	struct ig_kv_layout layout;
	uint32_t blocks_per_slab;
	uint32_t partial; /* first of the slabs with used and free blocks */
	uint32_t spare; /* the one empty slab that is kept */
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
	void **bases; /* [n_slabs] */
	struct slab *slabs; /* [n_slabs] */
	struct group *groups;
	uint32_t n_groups;
	struct prefix *prefix;
	uint32_t oldest, newest; /* loose blocks */
	struct ig_kv_seq *seqs; /* all of them, by next */
};

struct ig_kv_seq {
	struct ig_kvcache *cache;
	struct ig_kv_seq *prev, *next;
	uint32_t n_groups;
	uint32_t group[MAX_GROUPS_PER_SEQ];
	uint32_t first[MAX_GROUPS_PER_SEQ]; /* block of each table; before it is IG_BLOCK_NONE */
	uint32_t n_blocks[MAX_GROUPS_PER_SEQ]; /* in each table */
	uint32_t max_blocks, max_tokens;
	uint32_t n_tokens, n_window; /* reserved: of groups without and with a window */
	uint32_t n_indexed; /* blocks that the prefix index was told of */
	uint32_t node; /* the last of their nodes, in use by this sequence; or PREFIX_NONE */
	uint32_t tables[]; /* [n_groups, max_blocks] */
};

static uint32_t *table(struct ig_kv_seq *s, uint32_t i)
{
	return s->tables + (size_t)i * s->max_blocks;
}

static uint32_t window_of(const struct ig_kv_seq *s, uint32_t i)
{
	return s->cache->groups[s->group[i]].window;
}

static uint32_t blocks_for(uint32_t n_tokens)
{
	return n_tokens / IG_BLOCK_TOKENS + (n_tokens % IG_BLOCK_TOKENS != 0);
}

/* The first block that the token at this position, or a later one, reads. */
static uint32_t first_read(uint32_t window, uint32_t position)
{
	return window && position >= window ? (position + 1 - window) / IG_BLOCK_TOKENS : 0;
}

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

static void slab_free_tables(struct slab *s)
{
	free(s->n_holders);
	free(s->free_blocks);
	free(s->kept);
	s->n_holders = NULL;
	s->free_blocks = NULL;
	s->kept = NULL;
}

/* Give an empty slab's memory back; it is in no list. */
static void slab_release(struct ig_kvcache *c, uint32_t n)
{
	struct slab *s = &c->slabs[n];

	c->groups[s->group].n_slabs--;
	c->arena.unmap_slab(c->arena.ctx, c->bases[n], c->arena.slab_bytes);
	c->bases[n] = NULL;
	slab_free_tables(s);
	s->group = NO_SLAB;
	s->prev = NO_SLAB;
	s->next = c->free_slabs;
	c->free_slabs = n;
	c->n_free_slabs++;
}

/* A slab number without memory; another group's spare is taken if need be. */
static bool find_free_slab(struct ig_kvcache *c)
{
	for (uint32_t i = 0; c->free_slabs == NO_SLAB && i < c->n_groups; i++) {
		struct group *g = &c->groups[i];

		if (!g->used || g->spare == NO_SLAB)
			continue;
		slab_release(c, g->spare);
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
	slab_free_tables(s);
	return -ENOSPC; /* for the caller it is the same: no block can be had now */
}

/* ---- blocks ------------------------------------------------------------------ */

static int block_take(struct ig_kvcache *c, uint32_t gi, uint32_t *word)
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

/* What is known of a block that the index may hold apart; NULL: its group has no window. */
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

/* A sequence holds a block that the index has. */
static void block_hold(struct ig_kvcache *c, uint32_t word)
{
	if (++c->slabs[IG_BLOCK_SLAB(word)].n_holders[IG_BLOCK_INDEX(word)] == 2) {
		const struct kept *k = kept_of(c, word);
		if (k && k->node != PREFIX_NONE)
			loose_remove(c, word);
	}
}

static void block_drop(struct ig_kvcache *c, uint32_t word)
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
		slab_release(c, n);
}

/* ---- blocks of the index ------------------------------------------------------ */

/* The node holds a block that a sequence has. */
static void index_hold(struct ig_kvcache *c, uint32_t node, uint32_t word)
{
	struct kept *k;

	if (word == IG_BLOCK_NONE)
		return;
	block_hold(c, word);
	k = kept_of(c, word);
	if (k)
		k->node = node;
}

static void index_drop(struct ig_kvcache *c, uint32_t word)
{
	struct kept *k;

	if (word == IG_BLOCK_NONE)
		return;
	k = kept_of(c, word);
	if (k && c->slabs[IG_BLOCK_SLAB(word)].n_holders[IG_BLOCK_INDEX(word)] == 1)
		loose_remove(c, word);
	if (k)
		k->node = PREFIX_NONE;
	block_drop(c, word);
}

/* The node that was not used for the longest time goes.  False: all are in use. */
static bool evict_node(struct ig_kvcache *c)
{
	uint32_t blocks[MAX_GROUPS_PER_SEQ], n_groups;

	if (!prefix_evict(c->prefix, blocks, &n_groups))
		return false;
	for (uint32_t i = 0; i < n_groups; i++)
		index_drop(c, blocks[i]);
	return true;
}

/* The oldest loose block goes; its node stays. */
static void evict_loose(struct ig_kvcache *c)
{
	uint32_t word = c->oldest, node = kept_of(c, word)->node, n_groups;
	const uint32_t *blocks = prefix_blocks(c->prefix, node, &n_groups);

	for (uint32_t i = 0; i < n_groups; i++)
		if (blocks[i] == word)
			prefix_set_block(c->prefix, node, i, IG_BLOCK_NONE);
	index_drop(c, word);
}

/* Make room: what was not used for the longest time goes.  False: all that there is is
 * in use. */
static bool evict(struct ig_kvcache *c)
{
	if (c->oldest == IG_BLOCK_NONE ||
	    kept_of(c, c->oldest)->stamp > prefix_oldest(c->prefix))
		return evict_node(c);
	evict_loose(c);
	return true;
}

static void *block_base(struct ig_kvcache *c, const struct group *g, uint32_t word)
{
	return (char *)c->bases[IG_BLOCK_SLAB(word)] + IG_BLOCK_INDEX(word) * g->layout.block_bytes;
}

/* ---- the arena --------------------------------------------------------------- */

static void kv_destroy(struct ig_kvcache *c)
{
	if (!c)
		return;
	for (uint32_t i = 0; c->slabs && c->bases && i < c->n_slabs; i++) {
		if (c->slabs[i].group == NO_SLAB)
			continue;
		c->arena.unmap_slab(c->arena.ctx, c->bases[i], c->arena.slab_bytes);
		slab_free_tables(&c->slabs[i]);
	}
	prefix_destroy(c->prefix);
	free(c->bases);
	free(c->slabs);
	free(c->groups);
	free(c);
}

static int kv_create(const struct ig_kv_arena *arena, struct ig_kvcache **out, struct ig_error *err)
{
	struct ig_kvcache *c;
	uint64_t n_slabs;

	if (arena->struct_size != sizeof *arena)
		return ig_fail(err, -EINVAL, "kvcache: struct ig_kv_arena has %u bytes, expected %zu",
			       arena->struct_size, sizeof *arena);
	if (arena->slab_bytes < 4096 || (arena->slab_bytes & (arena->slab_bytes - 1)))
		return ig_fail(err, -EINVAL,
			       "kvcache: a slab of %llu bytes; it must be a power of two, 4096 or more",
			       (unsigned long long)arena->slab_bytes);
	n_slabs = arena->arena_bytes / arena->slab_bytes;
	if (!n_slabs)
		return ig_fail(err, -EINVAL, "kvcache: an arena of %llu bytes holds no slab of %llu",
			       (unsigned long long)arena->arena_bytes,
			       (unsigned long long)arena->slab_bytes);
	if (n_slabs > MAX_SLABS)
		return ig_fail(err, -EINVAL, "kvcache: %llu slabs are more than %u; make kvcache.slab "
			       "larger", (unsigned long long)n_slabs, MAX_SLABS);
	c = calloc(1, sizeof *c);
	if (!c)
		goto no_memory;
	c->arena = *arena;
	c->n_slabs = (uint32_t)n_slabs;
	c->bases = calloc(n_slabs, sizeof *c->bases);
	c->slabs = calloc(n_slabs, sizeof *c->slabs);
	if (!c->bases || !c->slabs)
		goto no_memory;
	for (uint32_t i = 0; i < c->n_slabs; i++) {
		c->slabs[i].group = NO_SLAB;
		c->slabs[i].prev = NO_SLAB;
		c->slabs[i].next = i + 1 < c->n_slabs ? i + 1 : NO_SLAB;
	}
	c->free_slabs = 0;
	c->n_free_slabs = c->n_slabs;
	c->oldest = c->newest = IG_BLOCK_NONE;
	/* no block is so small that more nodes than this could be wanted */
	c->prefix = prefix_create(arena->arena_bytes / 1024 < MAX_NODES ?
				  (uint32_t)(arena->arena_bytes / 1024) : MAX_NODES);
	if (!c->prefix)
		goto no_memory;
	*out = c;
	return 0;
no_memory:
	kv_destroy(c);
	return ig_fail(err, -ENOMEM, "kvcache: out of memory for the tables of %llu slabs",
		       (unsigned long long)n_slabs);
}

static int kv_layout(const struct ig_kvcache *c, struct ig_kv_layout *l, struct ig_error *err)
{
	uint64_t element;

	switch (l->dtype) {
	case IG_F16: element = 2; break;
	case IG_F32: element = 4; break;
	default:
		return ig_fail(err, -EINVAL, "kvcache: element type %u; f16 and f32 are known",
			       l->dtype);
	}
	/* Bounds that no model comes near keep the products below in 64 bits. */
	if (!l->n_layers || l->n_layers > 65536 || !l->n_kv_heads || l->n_kv_heads > 65536 ||
	    !l->head_dim || l->head_dim > 65536)
		return ig_fail(err, -EINVAL,
			       "kvcache: %u layers of %u heads of %u values is no cache group",
			       l->n_layers, l->n_kv_heads, l->head_dim);
	l->token_stride = l->head_dim * element;
	l->head_stride = (IG_BLOCK_TOKENS * l->token_stride + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	if (l->head_stride > c->arena.slab_bytes ||
	    l->n_kv_heads > c->arena.slab_bytes / l->head_stride)
		l->block_bytes = UINT64_MAX;
	else {
		l->v_offset = l->n_kv_heads * l->head_stride;
		l->layer_stride = 2 * l->v_offset;
		l->block_bytes = l->n_layers * l->layer_stride;
	}
	if (l->block_bytes > c->arena.slab_bytes) {
		/* as a double: the exact product may not fit 64 bits */
		double bytes = 2.0 * l->n_layers * l->n_kv_heads * (double)l->head_stride;
		return ig_fail(err, -EINVAL, "kvcache: a block of %u tokens needs %.0f bytes, more than "
			       "a slab of %llu; make kvcache.slab larger", IG_BLOCK_TOKENS, bytes,
			       (unsigned long long)c->arena.slab_bytes);
	}
	return 0;
}

static int kv_add_group(struct ig_kvcache *c, const struct ig_kv_layout *l, uint32_t window,
			uint32_t *group, struct ig_error *err)
{
	struct ig_kv_layout check = *l;
	struct group *g = NULL;
	uint64_t n;
	int rc = kv_layout(c, &check, err);

	if (rc < 0)
		return rc;
	if (check.block_bytes != l->block_bytes || check.layer_stride != l->layer_stride ||
	    check.v_offset != l->v_offset || check.head_stride != l->head_stride ||
	    check.token_stride != l->token_stride)
		return ig_fail(err, -EINVAL, "kvcache: a group with strides that layout() did not give");
	for (uint32_t i = 0; !g && i < c->n_groups; i++)
		if (!c->groups[i].used)
			g = &c->groups[i];
	if (!g) {
		g = realloc(c->groups, (c->n_groups + 1) * sizeof *g);
		if (!g)
			return ig_fail(err, -ENOMEM, "kvcache: out of memory for a group");
		c->groups = g;
		g = &c->groups[c->n_groups++];
	}
	n = c->arena.slab_bytes / l->block_bytes;
	*g = (struct group){
		.used = true,
		.window = window,
		.layout = *l,
		.blocks_per_slab = n < MAX_BLOCKS_PER_SLAB ? (uint32_t)n : MAX_BLOCKS_PER_SLAB,
		.partial = NO_SLAB,
		.spare = NO_SLAB,
		.root = (uint32_t)(g - c->groups),
	};
	*group = (uint32_t)(g - c->groups);
	return 0;
}

static uint32_t kv_trim(struct ig_kvcache *c, uint32_t group, uint32_t n)
{
	uint32_t blocks[MAX_GROUPS_PER_SEQ], n_groups, n_gone = 0;

	if (group >= c->n_groups || !c->groups[group].used)
		return 0;
	while (n_gone < n && prefix_evict_root(c->prefix, c->groups[group].root, blocks, &n_groups)) {
		for (uint32_t i = 0; i < n_groups; i++)
			index_drop(c, blocks[i]);
		n_gone++;
	}
	return n_gone;
}

static void kv_remove_group(struct ig_kvcache *c, uint32_t group)
{
	struct group *g;

	if (group >= c->n_groups || !c->groups[group].used)
		return;
	g = &c->groups[group];
	kv_trim(c, group, UINT32_MAX);
	if (g->n_blocks_used)
		abort(); /* a sequence still points into memory that would go away */
	if (g->spare != NO_SLAB)
		slab_release(c, g->spare);
	g->used = false;
}

/* ---- sequences --------------------------------------------------------------- */

static int kv_seq_create(struct ig_kvcache *c, const uint32_t *groups, uint32_t n_groups,
			 uint32_t max_tokens, struct ig_kv_seq **out)
{
	struct ig_kv_seq *s;
	uint32_t max_blocks;

	if (!n_groups || n_groups > MAX_GROUPS_PER_SEQ || !max_tokens || max_tokens > INT32_MAX)
		return -EINVAL;
	for (uint32_t i = 0; i < n_groups; i++)
		if (groups[i] >= c->n_groups || !c->groups[groups[i]].used)
			return -EINVAL;
	max_blocks = (max_tokens + IG_BLOCK_TOKENS - 1) / IG_BLOCK_TOKENS;
	s = malloc(sizeof *s + (size_t)n_groups * max_blocks * sizeof s->tables[0]);
	if (!s)
		return -ENOMEM;
	memset(s, 0, sizeof *s);
	s->cache = c;
	s->n_groups = n_groups;
	memcpy(s->group, groups, n_groups * sizeof *groups);
	s->max_blocks = max_blocks;
	s->max_tokens = max_tokens;
	s->node = PREFIX_NONE;
	for (uint32_t i = 0; i < n_groups; i++)
		c->groups[groups[i]].root = groups[0];
	s->next = c->seqs;
	if (s->next)
		s->next->prev = s;
	c->seqs = s;
	*out = s;
	return 0;
}

/* Drop the i-th table's blocks from block n_blocks on. */
static void shrink(struct ig_kv_seq *s, uint32_t i, uint32_t n_blocks)
{
	while (s->n_blocks[i] > n_blocks)
		block_drop(s->cache, table(s, i)[--s->n_blocks[i]]);
}

/* Let go of the i-th table's blocks before block first. */
static void let_go(struct ig_kv_seq *s, uint32_t i, uint32_t first)
{
	if (first > s->n_blocks[i])
		first = s->n_blocks[i];
	for (; s->first[i] < first; s->first[i]++) {
		block_drop(s->cache, table(s, i)[s->first[i]]);
		table(s, i)[s->first[i]] = IG_BLOCK_NONE;
	}
}

static int kv_seq_reserve(struct ig_kv_seq *s, uint32_t n_tokens, uint32_t n_window)
{
	uint32_t before[MAX_GROUPS_PER_SEQ];
	int rc = 0;

	if (n_tokens > s->max_tokens || n_window > n_tokens)
		return -EINVAL;
	if (n_tokens <= s->n_tokens && n_window <= s->n_window)
		return 0;
	memcpy(before, s->n_blocks, sizeof before);
	for (uint32_t i = 0; i < s->n_groups; i++) {
		uint32_t n_blocks = blocks_for(window_of(s, i) ? n_window : n_tokens);

		while (s->n_blocks[i] < n_blocks) {
			rc = block_take(s->cache, s->group[i], &table(s, i)[s->n_blocks[i]]);
			if (rc == 0)
				s->n_blocks[i]++;
			else if (!evict(s->cache))
				goto undo;
		}
	}
	s->n_tokens = n_tokens > s->n_tokens ? n_tokens : s->n_tokens;
	s->n_window = n_window > s->n_window ? n_window : s->n_window;
	return 0;
undo:
	for (uint32_t i = 0; i < s->n_groups; i++)
		shrink(s, i, before[i]);
	return rc;
}

static void kv_seq_advance(struct ig_kv_seq *s, uint32_t n_tokens)
{
	/* What continues the last whole block is kept: the index begins others with it. */
	n_tokens -= n_tokens % IG_BLOCK_TOKENS;
	for (uint32_t i = 0; i < s->n_groups; i++)
		if (window_of(s, i))
			let_go(s, i, first_read(window_of(s, i), n_tokens));
}

static void kv_seq_destroy(struct ig_kv_seq *s)
{
	if (!s)
		return;
	if (s->node != PREFIX_NONE)
		prefix_unuse(s->cache->prefix, s->node);
	for (uint32_t i = 0; i < s->n_groups; i++)
		shrink(s, i, s->first[i]);
	if (s->prev)
		s->prev->next = s->next;
	else
		s->cache->seqs = s->next;
	if (s->next)
		s->next->prev = s->prev;
	free(s);
}

static void move_to_node(struct ig_kv_seq *s, uint32_t node)
{
	prefix_use(s->cache->prefix, node); /* first: it holds the one before it too */
	if (s->node != PREFIX_NONE)
		prefix_unuse(s->cache->prefix, s->node);
	s->node = node;
}

/* Begin with these nodes' blocks; the tables have their words. */
static void begin_with(struct ig_kv_seq *s, uint32_t node, uint32_t n_blocks)
{
	move_to_node(s, node);
	s->n_indexed = n_blocks;
	s->n_tokens = s->n_window = n_blocks * IG_BLOCK_TOKENS;
	for (uint32_t i = 0; i < s->n_groups; i++) {
		s->first[i] = first_read(window_of(s, i), n_blocks * IG_BLOCK_TOKENS);
		s->n_blocks[i] = n_blocks;
		for (uint32_t b = 0; b < s->first[i]; b++)
			table(s, i)[b] = IG_BLOCK_NONE;
		for (uint32_t b = s->first[i]; b < n_blocks; b++)
			block_hold(s->cache, table(s, i)[b]);
	}
}

static void kv_seq_match(struct ig_kv_seq *s, const int32_t *tokens, uint32_t n_tokens,
			 uint32_t *n_cached)
{
	const struct prefix *p = s->cache->prefix;
	uint32_t node = PREFIX_NONE, best_node = PREFIX_NONE, best = 0;
	uint32_t unbroken[MAX_GROUPS_PER_SEQ] = { 0 }; /* from this block on, each node has one */

	*n_cached = 0;
	for (uint32_t i = 0; i < s->n_groups; i++)
		if (s->n_blocks[i])
			return;
	if (n_tokens > s->max_tokens)
		n_tokens = s->max_tokens;
	for (uint32_t n = 1; n <= n_tokens / IG_BLOCK_TOKENS; n++) {
		const uint32_t *blocks;
		bool whole = true;
		uint32_t n_groups;

		node = prefix_find(p, s->group[0], node, tokens + (n - 1) * IG_BLOCK_TOKENS);
		if (node == PREFIX_NONE)
			break;
		blocks = prefix_blocks(p, node, &n_groups);
		if (n_groups != s->n_groups)
			break;
		for (uint32_t i = 0; i < n_groups; i++) {
			table(s, i)[n - 1] = blocks[i];
			if (blocks[i] == IG_BLOCK_NONE)
				unbroken[i] = n;
			whole = whole && unbroken[i] <= first_read(window_of(s, i), n * IG_BLOCK_TOKENS);
		}
		if (whole) {
			best = n;
			best_node = node;
		}
	}
	if (best)
		begin_with(s, best_node, best);
	*n_cached = best * IG_BLOCK_TOKENS;
}

/* A node for the sequence's next full block. */
static uint32_t add_node(struct ig_kv_seq *s, const int32_t *tokens)
{
	struct ig_kvcache *c = s->cache;
	uint32_t blocks[MAX_GROUPS_PER_SEQ], node;

	for (uint32_t i = 0; i < s->n_groups; i++)
		blocks[i] = table(s, i)[s->n_indexed];
	node = prefix_add(c->prefix, s->group[0], s->node, tokens, blocks, s->n_groups);
	if (node == PREFIX_NONE && evict_node(c))
		node = prefix_add(c->prefix, s->group[0], s->node, tokens, blocks, s->n_groups);
	for (uint32_t i = 0; node != PREFIX_NONE && i < s->n_groups; i++)
		index_hold(c, node, blocks[i]);
	return node;
}

/* Blocks that were evicted from a node that has the same text. */
static void fill_node(struct ig_kv_seq *s, uint32_t node)
{
	struct ig_kvcache *c = s->cache;
	uint32_t n_groups;
	const uint32_t *blocks = prefix_blocks(c->prefix, node, &n_groups);

	for (uint32_t i = 0; i < n_groups && i < s->n_groups; i++) {
		uint32_t word = table(s, i)[s->n_indexed];

		if (blocks[i] != IG_BLOCK_NONE || word == IG_BLOCK_NONE)
			continue;
		prefix_set_block(c->prefix, node, i, word);
		index_hold(c, node, word);
	}
}

static void kv_seq_commit(struct ig_kv_seq *s, const int32_t *tokens, uint32_t n_tokens)
{
	uint32_t n_full = n_tokens / IG_BLOCK_TOKENS;

	for (uint32_t i = 0; i < s->n_groups; i++)
		n_full = s->n_blocks[i] < n_full ? s->n_blocks[i] : n_full;
	while (s->n_indexed < n_full) {
		const int32_t *t = tokens + s->n_indexed * IG_BLOCK_TOKENS;
		uint32_t node = prefix_find(s->cache->prefix, s->group[0], s->node, t);

		if (node != PREFIX_NONE)
			fill_node(s, node);
		else
			node = add_node(s, t);
		if (node == PREFIX_NONE)
			return; /* the index is full of what is in use: another time */
		move_to_node(s, node);
		s->n_indexed++;
	}
}

/* The parent's blocks of n_tokens tokens, but for the last partial one. */
static void share_blocks(struct ig_kv_seq *s, struct ig_kv_seq *parent, uint32_t n_tokens)
{
	const uint32_t n_full = n_tokens / IG_BLOCK_TOKENS;

	for (uint32_t i = 0; i < s->n_groups; i++) {
		uint32_t first = first_read(window_of(s, i), n_full * IG_BLOCK_TOKENS);

		s->first[i] = first > parent->first[i] ? first : parent->first[i];
		s->n_blocks[i] = n_full;
		for (uint32_t b = 0; b < s->first[i]; b++)
			table(s, i)[b] = IG_BLOCK_NONE;
		for (uint32_t b = s->first[i]; b < n_full; b++) {
			table(s, i)[b] = table(parent, i)[b];
			block_hold(s->cache, table(s, i)[b]);
		}
	}
	s->n_tokens = s->n_window = n_full * IG_BLOCK_TOKENS;
	if (parent->node != PREFIX_NONE) {
		/* the part of the parent's path that it shares */
		uint32_t node = parent->node;

		for (s->n_indexed = parent->n_indexed; s->n_indexed > n_full; s->n_indexed--)
			node = prefix_parent(s->cache->prefix, node);
		if (node != PREFIX_NONE)
			prefix_use(s->cache->prefix, node);
		s->node = node;
	}
}

static int kv_seq_fork(struct ig_kv_seq *parent, uint32_t n_tokens, struct ig_kv_seq **out)
{
	struct ig_kvcache *c = parent->cache;
	uint32_t n_full = n_tokens / IG_BLOCK_TOKENS;
	struct ig_kv_seq *s;
	int rc;

	for (uint32_t i = 0; i < parent->n_groups; i++) {
		if (n_tokens > (window_of(parent, i) ? parent->n_window : parent->n_tokens))
			return -EINVAL;
		if (parent->first[i] > first_read(window_of(parent, i), n_tokens))
			return -ESTALE;
	}
	rc = kv_seq_create(c, parent->group, parent->n_groups, parent->max_tokens, &s);
	if (rc < 0)
		return rc;
	share_blocks(s, parent, n_tokens);
	rc = kv_seq_reserve(s, n_tokens, n_tokens);
	if (rc < 0) {
		kv_seq_destroy(s);
		return rc;
	}
	for (uint32_t i = 0; n_tokens % IG_BLOCK_TOKENS && i < s->n_groups; i++) {
		const struct group *g = &c->groups[s->group[i]];

		c->arena.copy(c->arena.ctx, block_base(c, g, table(s, i)[n_full]),
			      block_base(c, g, table(parent, i)[n_full]), g->layout.block_bytes);
	}
	*out = s;
	return 0;
}

/* ---- compaction -------------------------------------------------------------- */

/* Take the loose block's place in the list over for the one that it was moved to. */
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

/* Move a block, holders and all, to a free one of another slab; its new word. */
static uint32_t move_block(struct ig_kvcache *c, uint32_t gi, uint32_t from)
{
	struct slab *s = &c->slabs[IG_BLOCK_SLAB(from)], *t;
	uint32_t n_holders = s->n_holders[IG_BLOCK_INDEX(from)], to = IG_BLOCK_NONE;

	block_take(c, gi, &to); /* there is a free one, and s is not among the partial slabs */
	t = &c->slabs[IG_BLOCK_SLAB(to)];
	c->arena.copy(c->arena.ctx, block_base(c, &c->groups[gi], to),
		      block_base(c, &c->groups[gi], from), c->groups[gi].layout.block_bytes);
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
	slab_release(c, slab);
}

static int kv_compact(struct ig_kvcache *c)
{
	uint32_t best = NO_SLAB;

	for (uint32_t i = 0; i < c->n_slabs; i++) {
		const struct slab *s = &c->slabs[i];
		const struct group *g = s->group == NO_SLAB ? NULL : &c->groups[s->group];

		if (!g || !s->n_used || !s->n_free ||
		    g->n_slabs * g->blocks_per_slab - g->n_blocks_used < g->blocks_per_slab)
			continue;
		if (best == NO_SLAB || s->n_used < c->slabs[best].n_used)
			best = i;
	}
	if (best == NO_SLAB)
		return 0;
	empty_slab(c, c->slabs[best].group, best);
	return 1;
}

static const uint32_t *kv_seq_blocks(const struct ig_kv_seq *s, uint32_t i, uint32_t *n_blocks)
{
	if (i >= s->n_groups) {
		*n_blocks = 0;
		return NULL;
	}
	*n_blocks = s->n_blocks[i];
	return s->tables + (size_t)i * s->max_blocks;
}

static void *const *kv_slab_bases(const struct ig_kvcache *c, uint32_t *n_slabs)
{
	*n_slabs = c->n_slabs;
	return c->bases;
}

static void kv_stats(const struct ig_kvcache *c, struct ig_kv_stats *out)
{
	*out = (struct ig_kv_stats){ .arena_bytes = c->arena.arena_bytes };
	out->committed_bytes = (uint64_t)(c->n_slabs - c->n_free_slabs) * c->arena.slab_bytes;
	out->free_bytes = (uint64_t)c->n_free_slabs * c->arena.slab_bytes;
	for (uint32_t i = 0; i < c->n_groups; i++) {
		const struct group *g = &c->groups[i];
		uint64_t n_blocks;

		if (!g->used)
			continue;
		n_blocks = g->n_slabs * g->blocks_per_slab;
		uint64_t n_idle = g->window ? g->n_loose : prefix_n_idle(c->prefix, g->root);
		out->n_blocks_used += g->n_blocks_used - n_idle;
		out->used_bytes += (g->n_blocks_used - n_idle) * g->layout.block_bytes;
		out->free_bytes += (n_blocks - g->n_blocks_used + n_idle) * g->layout.block_bytes;
		out->cached_bytes += n_idle * g->layout.block_bytes;
	}
}

static const struct ig_kvcache_service paged = {
	.struct_size = sizeof paged,
	.name = "paged",
	.create = kv_create,
	.destroy = kv_destroy,
	.layout = kv_layout,
	.add_group = kv_add_group,
	.remove_group = kv_remove_group,
	.seq_create = kv_seq_create,
	.seq_reserve = kv_seq_reserve,
	.seq_advance = kv_seq_advance,
	.seq_fork = kv_seq_fork,
	.seq_destroy = kv_seq_destroy,
	.seq_blocks = kv_seq_blocks,
	.slab_bases = kv_slab_bases,
	.stats = kv_stats,
	.seq_match = kv_seq_match,
	.seq_commit = kv_seq_commit,
	.compact = kv_compact,
	.trim = kv_trim,
};

__attribute__((visibility("default")))
extern const struct ig_module ingot_module;

const struct ig_module ingot_module = {
	.magic = IG_MODULE_MAGIC,
	.abi_version = IG_MODULE_ABI,
	.struct_size = sizeof(struct ig_module),
	.build_id = IG_BUILD_ID,
	.name = "kvcache",
	.version = IG_VERSION,
	.kvcache = &paged,
};
