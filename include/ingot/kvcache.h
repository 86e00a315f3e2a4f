/*
 * kvcache.h: the service that owns the paged KV cache.
 *
 * One arena for all loaded models, cut into slabs; a slab belongs to one cache
 * group while it is in use and is cut into that group's blocks of
 * IG_BLOCK_TOKENS tokens.  Blocks are counted: sequences that begin alike share
 * them (seq_match).  Every function is called by the engine's thread alone; none
 * allocates per token.
 */
#ifndef INGOT_KVCACHE_H
#define INGOT_KVCACHE_H

#include <ingot/op.h>

struct ig_kvcache; /* opaque */
struct ig_kv_seq;  /* one sequence's blocks in its model's groups */

/* Memory for slabs, from the driver that reads them.  map_slab returns the
 * address of slab_bytes, committed on use, or NULL; unmap_slab gives it back to the
 * system. */
struct ig_kv_arena {
	uint32_t struct_size;
	uint32_t reserved;
	uint64_t arena_bytes; /* the limit of all slabs together */
	uint64_t slab_bytes;  /* a power of two */
	void *ctx;
	void *(*map_slab)(void *ctx, uint64_t slab_bytes);
	void (*unmap_slab)(void *ctx, void *base, uint64_t slab_bytes);
	/* Copy n_bytes between mapped slabs: what steps that were waited for have
	 * written, in place before the next step that is submitted runs.  A slab's
	 * address need not be one that the host can follow: nobody but the driver
	 * touches what lies in it. */
	void (*copy)(void *ctx, void *dst, const void *src, uint64_t n_bytes);
};

struct ig_kv_stats {
	uint64_t arena_bytes;
	uint64_t committed_bytes; /* slabs in use */
	uint64_t used_bytes;	  /* blocks that sequences use, shared ones once */
	uint64_t free_bytes;	  /* what can still be taken, cached_bytes included */
	uint64_t n_blocks_used;
	uint64_t cached_bytes; /* blocks that are only kept for a prompt that begins so */
};

#define IG_KVCACHE_VERSION 1u

struct ig_kvcache_service {
	uint32_t struct_size;
	uint32_t version; /* IG_KVCACHE_VERSION: what the engine expects of it */
	const char *name;

	/* 0, or -EINVAL, -ENOMEM with text. */
	int (*create)(const struct ig_kv_arena *arena, struct ig_kvcache **out,
		      struct ig_error *err);
	void (*destroy)(struct ig_kvcache *c); /* NULL is fine */

	/* Fill in the strides and block_bytes from dtype, n_layers, n_kv_heads and
	 * head_dim.  -EINVAL when a block does not fit a slab. */
	int (*layout)(const struct ig_kvcache *c, struct ig_kv_layout *l, struct ig_error *err);
	/* A group gets a number; its layout is copied.  window 0: every position is kept;
	 * else a token reads the last `window` positions, its own included, and blocks that
	 * no later token reads are given back (seq_advance). */
	int (*add_group)(struct ig_kvcache *c, const struct ig_kv_layout *l, uint32_t window,
			 uint32_t *group, struct ig_error *err);
	/* All of the group's sequences must be gone. */
	void (*remove_group)(struct ig_kvcache *c, uint32_t group);

	/* A sequence of up to max_tokens in these groups; no block is taken yet.  seq_match
	 * gives it only what sequences with the same salt have committed. */
	int (*seq_create)(struct ig_kvcache *c, const uint32_t *groups, uint32_t n_groups,
			  uint32_t max_tokens, uint64_t salt, struct ig_kv_seq **out);
	/* Make room for n_tokens in all, in groups with a window for the first n_window of
	 * them: what the coming steps write.  All blocks or none, then -ENOSPC. */
	int (*seq_reserve)(struct ig_kv_seq *s, uint32_t n_tokens, uint32_t n_window);
	/* The first n_tokens are computed, and their steps were waited for: groups with a
	 * window let go of blocks that nothing reads which comes after the last whole block
	 * of these.  Their words become IG_BLOCK_NONE, which kernels never follow. */
	void (*seq_advance)(struct ig_kv_seq *s, uint32_t n_tokens);
	/* Every block whose last holder this was is free at once.  NULL is fine. */
	void (*seq_destroy)(struct ig_kv_seq *s);
	/* The block table of the sequence's i-th group: [*n_blocks] block words. */
	const uint32_t *(*seq_blocks)(const struct ig_kv_seq *s, uint32_t i, uint32_t *n_blocks);

	/* By slab number; the array is as long as the arena has slabs. */
	void *const *(*slab_bases)(const struct ig_kvcache *c, uint32_t *n_slabs);
	void (*stats)(const struct ig_kvcache *c, struct ig_kv_stats *out);

	/* Let a sequence without blocks begin with those that are computed already for
	 * the longest beginning of tokens[n_tokens] that is known, compared token by token:
	 * *n_cached of them, whole blocks.  Of groups with a window the last positions'
	 * blocks must be there. */
	void (*seq_match)(struct ig_kv_seq *s, const int32_t *tokens, uint32_t n_tokens,
			  uint32_t *n_cached);
	/* The first n_tokens of the sequence are computed: its full blocks may be found by
	 * seq_match from now on, and are kept when the sequence is gone until their room is
	 * wanted, the least recently used first; so are those that a window has left.
	 * Called again as n_tokens grows, before seq_advance. */
	void (*seq_commit)(struct ig_kv_seq *s, const int32_t *tokens, uint32_t n_tokens);

	/* After -ENOSPC, while no step is under way: empty a slab of a group whose blocks fit
	 * fewer, by moving them, so that any group can have it.  0: none can be emptied. */
	int (*compact)(struct ig_kvcache *c);

	/* Let go of up to n times 16 tokens that are only kept for prompts of the model whose
	 * first group this is, in all its groups: returns how many went, 0: there are none.
	 * What remove_group does at once, in portions. */
	uint32_t (*trim)(struct ig_kvcache *c, uint32_t group, uint32_t n);
};

#endif
