/*
 * kvcache.c: the service "paged": see ingot/kvcache.h.  A sequence is a block table for each of its
 * groups, with counted references to blocks (blocks.c), and the states of its recurrent layers
 * (states.c).  In what follows n_groups counts the groups with block tables; those of state come
 * after them.  Computed blocks are found through the
 * prefix index (prefix.c), which holds references like a sequence does.  If no block is free, the
 * least recently used of those that only the index holds is evicted.
 *
 * In a group with a window a sequence has the blocks that its next tokens read or write, and
 * IG_BLOCK_NONE before them.  A block that it drops is free, or, if the index holds it, *loose*.
 * So a prefix of many sequences can be continued as long as the memory of its last blocks is not
 * needed.  The contents of blocks are not interpreted; only compaction copies them.  One thread.
 */
#include "kvcache_private.h"

#include <ingot/arch.h>
#include <ingot/build_id.h>

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SLABS ((1u << (32 - IG_BLOCK_BITS)) - 1) /* the last word is IG_BLOCK_NONE */
#define MAX_NODES (1u << 20)			     /* of the prefix index */
#define ALIGNMENT 64				     /* of each head's rows: a cache line */

/* The options, in bytes; 0: no limit, and half of the arena. */
static uint64_t max_cached, max_snapshots;

static bool is_state(const struct group *g) { return g->layout.kind == IG_CACHE_STATE; }

static uint32_t window_of(const struct ig_kv_seq *s, uint32_t i)
{
	return s->cache->groups[s->group[i]].window;
}

static uint32_t blocks_for(uint32_t n_tokens)
{
	return n_tokens / IG_BLOCK_TOKENS + (n_tokens % IG_BLOCK_TOKENS != 0);
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
		blocks_free_tables(&c->slabs[i]);
	}
	states_finish(c);
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
		return ig_fail(err, -EINVAL,
			       "kvcache: struct ig_kv_arena has %u bytes, expected %zu",
			       arena->struct_size, sizeof *arena);
	if (arena->slab_bytes < 4096 || (arena->slab_bytes & (arena->slab_bytes - 1)))
		return ig_fail(
			err, -EINVAL,
			"kvcache: a slab of %llu bytes; it must be a power of two, 4096 or more",
			(unsigned long long)arena->slab_bytes);
	n_slabs = arena->arena_bytes / arena->slab_bytes;
	if (!n_slabs)
		return ig_fail(err, -EINVAL,
			       "kvcache: an arena of %llu bytes holds no slab of %llu",
			       (unsigned long long)arena->arena_bytes,
			       (unsigned long long)arena->slab_bytes);
	if (n_slabs > MAX_SLABS)
		return ig_fail(err, -EINVAL,
			       "kvcache: %llu slabs are more than %u; make kvcache.slab larger",
			       (unsigned long long)n_slabs, MAX_SLABS);
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
	c->max_snapshot_bytes = max_snapshots ? max_snapshots : arena->arena_bytes / 2;
	/* no model has blocks below 1 KiB */
	c->prefix = prefix_create(arena->arena_bytes / 1024 < MAX_NODES ?
					  (uint32_t)(arena->arena_bytes / 1024) :
					  MAX_NODES);
	if (!c->prefix)
		goto no_memory;
	*out = c;
	return 0;
no_memory:
	kv_destroy(c);
	return ig_fail(err, -ENOMEM, "kvcache: out of memory for the tables of %llu slabs",
		       (unsigned long long)n_slabs);
}

static uint64_t align(uint64_t n) { return (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

/* K or V of one head: from a token to the next, and all of them. */
static int half_bytes(const struct ig_kv_layout *l, const char *which, uint32_t dtype,
		      uint64_t *token_stride, uint64_t *bytes, struct ig_error *err)
{
	*token_stride = (uint64_t)l->head_dim * (dtype == IG_F16 ? 2 : 4);
	*bytes = IG_BLOCK_TOKENS * *token_stride;
	if (dtype == IG_F16 || dtype == IG_F32)
		return 0;
	if (dtype != IG_Q8_0)
		return ig_fail(err, -EINVAL, "kvcache: %s of type %u; f16, f32 and q8_0 are known",
			       which, dtype);
	if (l->head_dim % IG_KV_GROUP)
		return ig_fail(
			err, -ENOTSUP,
			"%s in q8_0 (kvcache.dtype, or the model's kv_dtype) need heads of a "
			"multiple of %d values, this model's have %u",
			which, IG_KV_GROUP, l->head_dim);
	*token_stride = 0;
	*bytes = IG_BLOCK_TOKENS * (uint64_t)(l->head_dim / IG_KV_GROUP) * (IG_KV_GROUP + 2);
	return 0;
}

static int fail_block(const struct ig_kvcache *c, const char *what, double bytes,
		      struct ig_error *err)
{
	return ig_fail(err, -EINVAL,
		       "kvcache: %s needs %.0f bytes, more than a slab of %llu; make kvcache.slab "
		       "larger",
		       what, bytes, (unsigned long long)c->arena.slab_bytes);
}

#define MAX_PARTS 65536
#define MAX_PART_FLOATS (1u << 28)

static int state_layout(const struct ig_kvcache *c, struct ig_kv_layout *l, struct ig_error *err)
{
	if (!l->n_layers || l->n_layers > MAX_PARTS || !l->n_kv_heads ||
	    l->n_kv_heads > MAX_PARTS / l->n_layers || !l->head_dim ||
	    l->head_dim > MAX_PART_FLOATS)
		return ig_fail(err, -EINVAL,
			       "kvcache: a state of %u layers of %u parts of %u values is none",
			       l->n_layers, l->n_kv_heads, l->head_dim);
	l->k_dtype = l->v_dtype = IG_F32;
	l->block_bytes = align(4 * (uint64_t)l->head_dim);
	l->layer_stride = l->v_offset = l->head_stride = 0;
	l->k_token_stride = l->v_token_stride = 0;
	if (l->block_bytes > c->arena.slab_bytes)
		return fail_block(c, "a part of a state", (double)l->block_bytes, err);
	return 0;
}

static int kv_layout(const struct ig_kvcache *c, struct ig_kv_layout *l, struct ig_error *err)
{
	uint64_t k_bytes, v_bytes;
	int rc;

	if (l->kind == IG_CACHE_STATE)
		return state_layout(c, l, err);
	if (l->kind != IG_CACHE_KV && l->kind != IG_CACHE_K)
		return ig_fail(err, -EINVAL, "kvcache: a cache group of kind %u", l->kind);

	/* Bounds far beyond any model, so that the products below fit into 64 bits. */
	if (!l->n_layers || l->n_layers > 65536 || !l->n_kv_heads || l->n_kv_heads > 65536 ||
	    !l->head_dim || l->head_dim > 65536)
		return ig_fail(err, -EINVAL,
			       "kvcache: %u layers of %u heads of %u values is no cache group",
			       l->n_layers, l->n_kv_heads, l->head_dim);
	if (l->kind == IG_CACHE_K)
		l->v_dtype = l->k_dtype;
	if ((rc = half_bytes(l, "keys", l->k_dtype, &l->k_token_stride, &k_bytes, err)) ||
	    (rc = half_bytes(l, "values", l->v_dtype, &l->v_token_stride, &v_bytes, err)))
		return rc;
	l->v_offset = l->kind == IG_CACHE_K ? 0 : align(k_bytes);
	l->head_stride = l->v_offset + align(v_bytes);
	if (l->head_stride > c->arena.slab_bytes ||
	    l->n_kv_heads > c->arena.slab_bytes / l->head_stride)
		l->block_bytes = UINT64_MAX;
	else {
		l->layer_stride = l->n_kv_heads * l->head_stride;
		l->block_bytes = l->n_layers * l->layer_stride;
	}
	if (l->block_bytes > c->arena.slab_bytes) {
		/* as a double: the exact product may not fit 64 bits */
		double bytes = 1.0 * l->n_layers * l->n_kv_heads * (double)l->head_stride;
		return fail_block(c, "a block of 16 tokens", bytes, err);
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
	    check.k_token_stride != l->k_token_stride || check.v_token_stride != l->v_token_stride)
		return ig_fail(err, -EINVAL,
			       "kvcache: a group with strides that layout() did not give");
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
	struct prefix_gone gone;
	uint32_t n_gone = 0;

	if (group >= c->n_groups || !c->groups[group].used)
		return 0;
	while (n_gone < n && prefix_evict_root(c->prefix, c->groups[group].root, &gone)) {
		blocks_node_gone(c, &gone);
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
		abort(); /* a sequence still uses the group's blocks */
	if (g->spare != NO_SLAB)
		blocks_release_slab(c, g->spare);
	g->used = false;
}

/* ---- sequences --------------------------------------------------------------- */

static int kv_seq_create(struct ig_kvcache *c, const uint32_t *groups, uint32_t n_groups,
			 uint32_t max_tokens, uint64_t salt, struct ig_kv_seq **out)
{
	struct ig_kv_seq *s;
	uint32_t max_blocks, n_all = n_groups, n_parts = 0;

	if (!n_groups || n_groups > MAX_GROUPS_PER_SEQ || !max_tokens || max_tokens > INT32_MAX)
		return -EINVAL;
	for (uint32_t i = 0; i < n_groups; i++)
		if (groups[i] >= c->n_groups || !c->groups[groups[i]].used)
			return -EINVAL;
	for (; n_groups && is_state(&c->groups[groups[n_groups - 1]]); n_groups--) {
		const struct ig_kv_layout *l = &c->groups[groups[n_groups - 1]].layout;
		n_parts += l->n_layers * l->n_kv_heads;
	}
	for (uint32_t i = 0; i < n_groups; i++)
		if (is_state(&c->groups[groups[i]]))
			return -EINVAL;
	if (!n_groups || n_all - n_groups > IG_MAX_CACHE_GROUPS)
		return -EINVAL;
	max_blocks = (max_tokens + IG_BLOCK_TOKENS - 1) / IG_BLOCK_TOKENS;
	s = malloc(sizeof *s + (size_t)n_groups * max_blocks * sizeof s->tables[0]);
	if (!s)
		return -ENOMEM;
	memset(s, 0, sizeof *s);
	s->cache = c;
	s->salt = salt;
	s->n_groups = n_groups;
	s->n_state_groups = n_all - n_groups;
	s->n_parts = n_parts;
	memcpy(s->group, groups, n_all * sizeof *groups);
	s->max_blocks = max_blocks;
	s->max_tokens = max_tokens;
	s->node = PREFIX_NONE;
	for (uint32_t i = 0; i < n_all; i++)
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
		blocks_drop(s->cache, table(s, i)[--s->n_blocks[i]]);
}

/* Drop the i-th table's blocks before block first. */
static void drop_before(struct ig_kv_seq *s, uint32_t i, uint32_t first)
{
	if (first > s->n_blocks[i])
		first = s->n_blocks[i];
	for (; s->first[i] < first; s->first[i]++) {
		blocks_drop(s->cache, table(s, i)[s->first[i]]);
		table(s, i)[s->first[i]] = IG_BLOCK_NONE;
	}
}

/* One block more for the i-th table; cached ones make room.  0 or -ENOSPC. */
static int take_block(struct ig_kv_seq *s, uint32_t i)
{
	uint32_t *word = &table(s, i)[s->n_blocks[i]];
	int rc;

	while ((rc = blocks_take(s->cache, s->group[i], word)) && blocks_evict(s->cache))
		;
	s->n_blocks[i] += !rc;
	return rc;
}

static int kv_seq_reserve(struct ig_kv_seq *s, uint32_t n_tokens, uint32_t n_window)
{
	uint32_t before[MAX_GROUPS_PER_SEQ];
	int rc = 0;

	if (n_tokens > s->max_tokens || n_window > n_tokens)
		return -EINVAL;
	if (s->n_state_groups && (rc = states_reserve(s, n_window)))
		return rc; /* what it has more of then is for its next step */
	if (n_tokens <= s->n_tokens && n_window <= s->n_window)
		return 0;
	memcpy(before, s->n_blocks, sizeof before);
	for (uint32_t i = 0; i < s->n_groups; i++) {
		uint32_t n_blocks = blocks_for(window_of(s, i) ? n_window : n_tokens);
		while (s->n_blocks[i] < n_blocks)
			if ((rc = take_block(s, i)))
				goto undo;
	}
	s->n_tokens = n_tokens > s->n_tokens ? n_tokens : s->n_tokens;
	s->n_window = n_window > s->n_window ? n_window : s->n_window;
	return 0;
undo:
	for (uint32_t i = 0; i < s->n_groups; i++)
		shrink(s, i, before[i]);
	return rc;
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
		uint64_t n_idle =
			g->window || is_state(g) ? g->n_loose : prefix_n_idle(c->prefix, g->root);
		out->n_blocks_used += g->n_blocks_used - n_idle;
		out->used_bytes += (g->n_blocks_used - n_idle) * g->layout.block_bytes;
		out->free_bytes += (n_blocks - g->n_blocks_used + n_idle) * g->layout.block_bytes;
		out->cached_bytes += n_idle * g->layout.block_bytes;
	}
}

/* Evict cached blocks beyond the option's limit. */
static void keep_within(struct ig_kvcache *c)
{
	struct ig_kv_stats s;
	if (!max_cached)
		return;
	do
		kv_stats(c, &s);
	while (s.cached_bytes > max_cached && blocks_evict(c));
}

static void kv_seq_advance(struct ig_kv_seq *s, uint32_t n_tokens)
{
	if (s->n_state_groups)
		states_advance(s, n_tokens);
	/* Keep what a continuation of the last full block reads: the index may give it to others. */
	n_tokens -= n_tokens % IG_BLOCK_TOKENS;
	for (uint32_t i = 0; i < s->n_groups; i++)
		if (window_of(s, i))
			drop_before(s, i, ig_kv_first_read(window_of(s, i), n_tokens));
	keep_within(s->cache);
}

static void kv_seq_destroy(struct ig_kv_seq *s)
{
	struct ig_kvcache *c;

	if (!s)
		return;
	c = s->cache;
	states_end(s);
	if (s->node != PREFIX_NONE)
		prefix_unuse(s->cache->prefix, s->node);
	states_drop(s);
	for (uint32_t i = 0; i < s->n_groups; i++)
		shrink(s, i, s->first[i]);
	if (s->prev)
		s->prev->next = s->next;
	else
		s->cache->seqs = s->next;
	if (s->next)
		s->next->prev = s->prev;
	free(s);
	keep_within(c);
}

static void move_to_node(struct ig_kv_seq *s, uint32_t node)
{
	prefix_use(s->cache->prefix, node); /* first, because it also uses the node before it */
	if (s->node != PREFIX_NONE)
		prefix_unuse(s->cache->prefix, s->node);
	s->node = node;
}

/* Start with the blocks up to this node, whose words are in the tables. */
static void start_with(struct ig_kv_seq *s, uint32_t node, uint32_t n_blocks)
{
	move_to_node(s, node);
	s->n_indexed = n_blocks;
	s->n_tokens = s->n_window = n_blocks * IG_BLOCK_TOKENS;
	for (uint32_t i = 0; i < s->n_groups; i++) {
		s->first[i] = ig_kv_first_read(window_of(s, i), n_blocks * IG_BLOCK_TOKENS);
		s->n_blocks[i] = n_blocks;
		for (uint32_t b = 0; b < s->first[i]; b++)
			table(s, i)[b] = IG_BLOCK_NONE;
		for (uint32_t b = s->first[i]; b < n_blocks; b++)
			blocks_hold(s->cache, table(s, i)[b]);
	}
}

/* The sequence has the blocks of a prefix up to the node.  A cached block after it may begin with
 * some of these n tokens and then differ: the sequence gets a copy of it, which it will write the
 * rest of.  Returns how many of the tokens it has. */
static uint32_t copy_part(struct ig_kv_seq *s, const int32_t *tokens, uint32_t n)
{
	struct ig_kvcache *c = s->cache;
	uint32_t at = s->n_indexed, n_same, n_groups, from[MAX_GROUPS_PER_SEQ];
	uint32_t node = PREFIX_NONE;
	int rc = 0;
	const uint32_t *blocks;

	/* a state stands for whole blocks */
	if (s->node != PREFIX_NONE && !s->n_state_groups)
		node = prefix_nearest(c->prefix, s->node, tokens, n, &n_same);
	if (node == PREFIX_NONE)
		return 0;
	blocks = prefix_blocks(c->prefix, node, &n_groups);
	if (n_groups != s->n_groups)
		return 0;
	for (uint32_t i = 0; i < n_groups; i++)
		if (blocks[i] == IG_BLOCK_NONE)
			return 0;
	memcpy(from, blocks, n_groups * sizeof *from);
	for (uint32_t i = 0; i < n_groups; i++)
		blocks_hold(c, from[i]); /* they may be the next to be evicted */
	for (uint32_t i = 0; i < n_groups && !rc; i++) {
		const struct group *g = &c->groups[s->group[i]];
		if (!(rc = take_block(s, i)))
			c->arena.copy(c->arena.ctx, blocks_base(c, g, table(s, i)[at]),
				      blocks_base(c, g, from[i]), g->layout.block_bytes);
	}
	for (uint32_t i = 0; i < n_groups; i++) {
		blocks_drop(c, from[i]);
		if (rc)
			shrink(s, i, at);
	}
	if (rc)
		return 0;
	s->n_tokens = s->n_window = at * IG_BLOCK_TOKENS + n_same;
	return n_same;
}

static void kv_seq_match(struct ig_kv_seq *s, const int32_t *tokens, uint32_t n_tokens,
			 uint32_t *n_cached)
{
	const struct prefix *p = s->cache->prefix;
	uint32_t node = PREFIX_NONE, best_node = PREFIX_NONE, best = 0, without_state = 0;
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
		node = prefix_find(p, s->group[0], s->salt, node,
				   tokens + (n - 1) * IG_BLOCK_TOKENS);
		if (node == PREFIX_NONE)
			break;
		blocks = prefix_blocks(p, node, &n_groups);
		if (n_groups != s->n_groups)
			break;
		for (uint32_t i = 0; i < n_groups; i++) {
			table(s, i)[n - 1] = blocks[i];
			if (blocks[i] == IG_BLOCK_NONE)
				unbroken[i] = n;
			if (unbroken[i] > ig_kv_first_read(window_of(s, i), n * IG_BLOCK_TOKENS))
				whole = false;
		}
		if (whole && s->n_state_groups && !prefix_state(p, node)) {
			without_state = n;
		} else if (whole) {
			best = n;
			best_node = node;
		}
	}
	if (best) {
		start_with(s, best_node, best);
		if (s->n_state_groups)
			states_start(s, prefix_state(p, best_node), best * IG_BLOCK_TOKENS);
	}
	/* where this prompt leaves what others have said is where the next one may */
	if (without_state > best)
		kv_seq_keep(s, without_state * IG_BLOCK_TOKENS);
	best *= IG_BLOCK_TOKENS;
	*n_cached = best + copy_part(s, tokens + best, n_tokens - best);
}

static uint32_t kv_seq_share(struct ig_kv_seq *s, const struct ig_kv_seq *from)
{
	if (s->node != PREFIX_NONE || s->n_tokens || from->node == PREFIX_NONE ||
	    s->n_state_groups != from->n_state_groups || s->salt != from->salt ||
	    s->n_groups != from->n_groups || s->max_blocks < from->n_indexed ||
	    memcmp(s->group, from->group, (s->n_groups + s->n_state_groups) * sizeof *s->group))
		return 0;
	move_to_node(s, from->node);
	s->n_indexed = from->n_indexed;
	s->n_tokens = s->n_window = s->n_indexed * IG_BLOCK_TOKENS;
	for (uint32_t i = 0; i < s->n_groups; i++) {
		const uint32_t *words = from->tables + (size_t)i * from->max_blocks;
		s->first[i] = from->first[i] < s->n_indexed ? from->first[i] : s->n_indexed;
		s->n_blocks[i] = s->n_indexed;
		memcpy(table(s, i), words, s->n_indexed * sizeof *words);
		for (uint32_t b = s->first[i]; b < s->n_indexed; b++)
			blocks_hold(s->cache, words[b]);
	}
	return s->n_tokens;
}

static int kv_seq_append(struct ig_kv_seq *s, uint32_t groups, void **address)
{
	uint32_t n = s->n_indexed, before[MAX_GROUPS_PER_SEQ];
	int rc = 0;

	if (n == s->max_blocks)
		return -EINVAL;
	for (uint32_t i = 0; i < s->n_groups; i++) {
		if (!(groups >> i & 1) && !window_of(s, i))
			return -EINVAL;
		if (s->first[i] > n) /* a gap that was not committed */
			s->first[i] = s->n_blocks[i] = n;
		shrink(s, i, n);
		before[i] = s->n_blocks[i];
	}
	for (uint32_t i = 0; i < s->n_groups && !rc; i++)
		if (groups >> i & 1)
			rc = take_block(s, i);
	for (uint32_t i = 0; i < s->n_groups && rc; i++)
		shrink(s, i, before[i]);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < s->n_groups; i++) {
		address[i] = NULL;
		if (groups >> i & 1) {
			address[i] = blocks_base(s->cache, &s->cache->groups[s->group[i]],
						 table(s, i)[n]);
			continue;
		}
		/* a gap: what is before it can't be used any more */
		drop_before(s, i, n);
		table(s, i)[n] = IG_BLOCK_NONE;
		s->first[i] = s->n_blocks[i] = n + 1;
	}
	s->n_tokens = s->n_window = (n + 1) * IG_BLOCK_TOKENS;
	return 0;
}

static uint32_t kv_seq_known(const struct ig_kv_seq *s, const int32_t *tokens, uint32_t n_tokens)
{
	uint32_t node = PREFIX_NONE, n = 0;

	for (; n < n_tokens / IG_BLOCK_TOKENS; n++) {
		node = prefix_find(s->cache->prefix, s->group[0], s->salt, node,
				   tokens + n * IG_BLOCK_TOKENS);
		if (node == PREFIX_NONE)
			break;
	}
	return n * IG_BLOCK_TOKENS;
}

/* Add a node for the sequence's next full block. */
static uint32_t add_node(struct ig_kv_seq *s, const int32_t *tokens)
{
	struct ig_kvcache *c = s->cache;
	uint32_t blocks[MAX_GROUPS_PER_SEQ], node;

	for (uint32_t i = 0; i < s->n_groups; i++)
		blocks[i] = table(s, i)[s->n_indexed];
	node = prefix_add(c->prefix, s->group[0], s->salt, s->node, tokens, blocks, s->n_groups);
	if (node == PREFIX_NONE && blocks_evict_node(c))
		node = prefix_add(c->prefix, s->group[0], s->salt, s->node, tokens, blocks,
				  s->n_groups);
	for (uint32_t i = 0; node != PREFIX_NONE && i < s->n_groups; i++)
		blocks_index_hold(c, node, blocks[i]);
	return node;
}

/* Give the node the sequence's blocks in place of evicted ones. */
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
		blocks_index_hold(c, node, word);
	}
}

static void kv_seq_commit(struct ig_kv_seq *s, const int32_t *tokens, uint32_t n_tokens)
{
	uint32_t n_full = n_tokens / IG_BLOCK_TOKENS;

	for (uint32_t i = 0; i < s->n_groups; i++)
		n_full = s->n_blocks[i] < n_full ? s->n_blocks[i] : n_full;
	while (s->n_indexed < n_full) {
		const int32_t *t = tokens + s->n_indexed * IG_BLOCK_TOKENS;
		uint32_t node = prefix_find(s->cache->prefix, s->group[0], s->salt, s->node, t);
		if (node != PREFIX_NONE)
			fill_node(s, node);
		else
			node = add_node(s, t);
		if (node == PREFIX_NONE)
			break; /* the index is full and in use: retry with the next commit */
		move_to_node(s, node);
		s->n_indexed++;
	}
	if (s->n_state_groups)
		states_commit(s);
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

static const struct ig_kvcache_service paged = {
	.struct_size = sizeof paged,
	.version = IG_KVCACHE_VERSION,
	.name = "paged",
	.create = kv_create,
	.destroy = kv_destroy,
	.layout = kv_layout,
	.add_group = kv_add_group,
	.remove_group = kv_remove_group,
	.seq_create = kv_seq_create,
	.seq_reserve = kv_seq_reserve,
	.seq_advance = kv_seq_advance,
	.seq_destroy = kv_seq_destroy,
	.seq_blocks = kv_seq_blocks,
	.slab_bases = kv_slab_bases,
	.stats = kv_stats,
	.seq_match = kv_seq_match,
	.seq_commit = kv_seq_commit,
	.compact = blocks_compact,
	.trim = kv_trim,
	.seq_known = kv_seq_known,
	.seq_share = kv_seq_share,
	.seq_append = kv_seq_append,
	.seq_step = kv_seq_step,
	.seq_undo = kv_seq_undo,
	.seq_keep = kv_seq_keep,
	.seq_state = kv_seq_state,
	.seq_add_state = kv_seq_add_state,
};

static const struct ig_module_option options[] = {
	{ .key = "max_cached",
	  .type = IG_OPTION_SIZE,
	  .max = (uint64_t)1 << 50,
	  .help = "The most memory that is kept for prompts to come, once no request uses it; 0 means "
		  "as much as the arena has." },
	{ .key = "max_snapshots",
	  .type = IG_OPTION_SIZE,
	  .max = (uint64_t)1 << 50,
	  .help = "The most memory for states of recurrent layers that prompts to come may begin with; 0 "
		  "means half of the arena." },
	{ NULL },
};

static int init(const struct ig_host *host)
{
	int rc = host->option_number(host, "max_cached", &max_cached);

	return rc ? rc : host->option_number(host, "max_snapshots", &max_snapshots);
}

const struct ig_module ingot_module = {
	.head = IG_MODULE_HEAD,
	.build_id = IG_BUILD_ID,
	.name = "kvcache",
	.version = IG_VERSION,
	.kvcache = &paged,
	.options = options,
	.init = init,
};
