/*
 * kvcache.c: the service "paged": see ingot/kvcache.h.  The arena with its groups, the service's table
 * and its options; sequences are in sequences.c.  Computed blocks are found through the prefix index
 * (prefix.c), which holds references like a sequence does.  If no block is free, the least recently
 * used of those that only the index holds is evicted.  The contents of blocks are not interpreted; only
 * compaction copies them.  One thread.
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
		uint64_t n_idle = g->window || group_is_state(g) ?
					  g->n_loose :
					  prefix_n_idle(c->prefix, g->root);
		out->n_blocks_used += g->n_blocks_used - n_idle;
		out->used_bytes += (g->n_blocks_used - n_idle) * g->layout.block_bytes;
		out->free_bytes += (n_blocks - g->n_blocks_used + n_idle) * g->layout.block_bytes;
		out->cached_bytes += n_idle * g->layout.block_bytes;
	}
}

void kv_keep_within(struct ig_kvcache *c)
{
	struct ig_kv_stats s;
	if (!max_cached)
		return;
	do
		kv_stats(c, &s);
	while (s.cached_bytes > max_cached && blocks_evict(c));
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
	.seq_checkpoint = kv_seq_checkpoint,
	.seq_rewind = kv_seq_rewind,
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
