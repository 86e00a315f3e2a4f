/*
 * kvcache.h: the service that owns the paged KV cache.  One arena for all loaded models is divided
 * into slabs.  A slab in use belongs to one cache group and is divided into blocks of
 * IG_BLOCK_TOKENS tokens of that group.  Blocks have reference counts: sequences with the same
 * prefix share them (seq_match).  Only the engine's thread calls these functions; none of them
 * allocates per token.
 *
 * A group may be of state (struct ig_cache_group) instead: then a block is a part of a state, and a
 * sequence has a few whole states of its model's groups: the one that its next step reads, and those
 * at the end of earlier blocks.  States have reference counts like blocks.  One that only one holder
 * has is changed in place; any other is read, and the next one is written elsewhere.  So a first
 * step, a hit, a fork and a snapshot copy nothing.
 */
#ifndef INGOT_KVCACHE_H
#define INGOT_KVCACHE_H

#include <ingot/op.h>

struct ig_kvcache; /* opaque */
struct ig_kv_seq;  /* opaque; the blocks of one sequence in its model's groups */

/* Memory for slabs, provided by a driver.  map_slab returns the address of slab_bytes bytes,
 * which are committed on first use, or NULL; unmap_slab returns them to the system. */
struct ig_kv_arena {
	uint32_t struct_size;
	uint32_t reserved;
	uint64_t arena_bytes; /* limit of the sum of all slabs */
	uint64_t slab_bytes;  /* a power of two */
	void *ctx;
	void *(*map_slab)(void *ctx, uint64_t slab_bytes);
	void (*unmap_slab)(void *ctx, void *base, uint64_t slab_bytes);
	/* Copy n_bytes between mapped slabs, after all steps that were waited for and before the
	 * next submitted step.  The host must not dereference a slab's address: it may be an
	 * address of the device. */
	void (*copy)(void *ctx, void *dst, const void *src, uint64_t n_bytes);
};

struct ig_kv_stats {
	uint64_t arena_bytes;
	uint64_t committed_bytes; /* slabs in use */
	uint64_t used_bytes;	  /* blocks that sequences use; a shared block counts once */
	uint64_t free_bytes;	  /* available for new blocks, including cached_bytes */
	uint64_t n_blocks_used;
	uint64_t cached_bytes; /* blocks that only the prefix cache holds */
};

/* The first block that the token at this position, or a later one, reads in a group with this window;
 * 0: all of them. */
static inline uint32_t ig_kv_first_read(uint32_t window, uint32_t position)
{
	return window && position >= window ? (position + 1 - window) / IG_BLOCK_TOKENS : 0;
}

/* Tokens of a step of one sequence, from one of its states to the next.  Words are of all parts of the
 * model's groups of state, by group; valid until the service is called again. */
struct ig_kv_segment {
	uint32_t n_tokens;    /* of the sequence at its end */
	const uint32_t *from; /* NULL: zeros */
	const uint32_t *to;
};
#define IG_KV_MAX_SEGMENTS 8 /* of one sequence in a step */

#define IG_KVCACHE_VERSION 1u

struct ig_kvcache_service {
	uint32_t struct_size;
	uint32_t version; /* must be IG_KVCACHE_VERSION */
	const char *name;

	/* Returns 0, or -EINVAL or -ENOMEM with text. */
	int (*create)(const struct ig_kv_arena *arena, struct ig_kvcache **out,
		      struct ig_error *err);
	void (*destroy)(struct ig_kvcache *c); /* NULL is fine */

	/* Compute the strides and block_bytes from dtype, n_layers, n_kv_heads and head_dim.
	 * -EINVAL if a block does not fit into a slab. */
	int (*layout)(const struct ig_kvcache *c, struct ig_kv_layout *l, struct ig_error *err);
	/* Add a group: its number goes to *group, its layout is copied.  window 0: all positions
	 * are cached.  Otherwise a token attends to the last `window` positions, its own included,
	 * and blocks that no later token reads are freed (seq_advance). */
	int (*add_group)(struct ig_kvcache *c, const struct ig_kv_layout *l, uint32_t window,
			 uint32_t *group, struct ig_error *err);
	/* All sequences of the group must have been destroyed. */
	void (*remove_group)(struct ig_kvcache *c, uint32_t group);

	/* Create a sequence of up to max_tokens in these groups, without blocks.  seq_match finds
	 * only blocks that sequences with the same salt have committed. */
	int (*seq_create)(struct ig_kvcache *c, const uint32_t *groups, uint32_t n_groups,
			  uint32_t max_tokens, uint64_t salt, struct ig_kv_seq **out);
	/* Ensure capacity for n_tokens tokens in total; in groups with a window, for the first
	 * n_window of them, which the next steps write.  All-or-nothing: -ENOSPC. */
	int (*seq_reserve)(struct ig_kv_seq *s, uint32_t n_tokens, uint32_t n_window);
	/* The first n_tokens tokens are computed and their steps were waited for.  In groups with a
	 * window: free the blocks that no token after the last full block of these reads.  Their
	 * words become IG_BLOCK_NONE, which kernels never dereference. */
	void (*seq_advance)(struct ig_kv_seq *s, uint32_t n_tokens);
	/* Blocks without another reference become free.  NULL is fine. */
	void (*seq_destroy)(struct ig_kv_seq *s);
	/* The block table of the sequence's i-th group: [*n_blocks] block words. */
	const uint32_t *(*seq_blocks)(const struct ig_kv_seq *s, uint32_t i, uint32_t *n_blocks);

	/* Addresses by slab number: [*n_slabs], all slabs of the arena. */
	void *const *(*slab_bases)(const struct ig_kvcache *c, uint32_t *n_slabs);
	void (*stats)(const struct ig_kvcache *c, struct ig_kv_stats *out);

	/* Start a sequence without blocks with the cached blocks of the longest known prefix of
	 * tokens[n_tokens], compared token by token.  *n_cached: tokens of that prefix.  Full
	 * blocks are shared; if it ends inside a block that is not the first, the sequence gets a
	 * copy of that one.  In groups with a window the blocks of its last positions must be
	 * cached. */
	void (*seq_match)(struct ig_kv_seq *s, const int32_t *tokens, uint32_t n_tokens,
			  uint32_t *n_cached);
	/* The first n_tokens tokens of the sequence are computed.  From now on seq_match finds its
	 * full blocks, also those outside a window.  After the sequence is destroyed they stay
	 * cached until memory is needed; the least recently used block is evicted first.  Called
	 * again as n_tokens grows, before seq_advance. */
	void (*seq_commit)(struct ig_kv_seq *s, const int32_t *tokens, uint32_t n_tokens);

	/* After -ENOSPC, while no step is in flight: move the blocks of one slab to other slabs of
	 * its group, so that any group can use the slab.  Returns 0 if no slab can be emptied. */
	int (*compact)(struct ig_kvcache *c);

	/* Evict up to n * IG_BLOCK_TOKENS tokens that only the prefix cache holds, in all groups of
	 * the model whose first group this is.  Returns how many blocks of one group were evicted;
	 * 0: none is left.  remove_group evicts all of them at once. */
	uint32_t (*trim)(struct ig_kvcache *c, uint32_t group, uint32_t n);

	/* How many of tokens[n_tokens] are in whole blocks that seq_commit was told of and that are
	 * not evicted.  In groups with a window the blocks that seq_match needs there may be. */
	uint32_t (*seq_known)(const struct ig_kv_seq *s, const int32_t *tokens, uint32_t n_tokens);

	/* Start a sequence without blocks with those that another one of the same groups and salt
	 * has committed, but without a state.  Returns for how many tokens. */
	uint32_t (*seq_share)(struct ig_kv_seq *s, const struct ig_kv_seq *from);
	/* Add a block after those that the sequence has committed (a copied one after them is dropped),
	 * whose K and V the caller has: of the i-th group if bit i of groups is set, which a group
	 * without a window must have.  address [n_groups]: where the caller writes them before seq_commit
	 * makes them known.  0, -EINVAL, or -ENOSPC: nothing has changed. */
	int (*seq_append)(struct ig_kv_seq *s, uint32_t groups, void **address);

	/* ---- sequences of models with groups of state ---- */

	/* The next step leads the sequence from n_from tokens, where it is, to n_to, which are
	 * reserved.  Returns the number of segments in out [IG_KV_MAX_SEGMENTS], at least 1, or
	 * -EINVAL or -ENOSPC. */
	int (*seq_step)(struct ig_kv_seq *s, uint32_t n_from, uint32_t n_to,
			struct ig_kv_segment *out);
	/* The step of the last seq_step, which began at n_from tokens, was not submitted. */
	void (*seq_undo)(struct ig_kv_seq *s, uint32_t n_from);
	/* Keep the state after n_tokens tokens, whole blocks, if there is memory for it when the
	 * sequence comes there: seq_commit gives it to the index, and seq_match then ends there. */
	void (*seq_keep)(struct ig_kv_seq *s, uint32_t n_tokens);
	/* The words of the parts, as in a segment, of the state after n_tokens tokens that the sequence or
	 * one of its committed blocks has.  NULL: there is none. */
	const uint32_t *(*seq_state)(const struct ig_kv_seq *s, uint32_t n_tokens);
	/* Have a state, which the caller writes, after the tokens that the sequence has committed.  Told by
	 * seq_advance that it is written, the sequence leaves it to the index when it is destroyed.
	 * 0, -EINVAL, or -ENOSPC: nothing has changed. */
	int (*seq_add_state)(struct ig_kv_seq *s);
	/* The tokens of the next steps behind the first n_tokens, at least as many as the sequence has, are
	 * guesses: they leave the state before them, so that seq_rewind can go back to it.  0, -EINVAL, or
	 * -ENOSPC: nothing has changed. */
	int (*seq_checkpoint)(struct ig_kv_seq *s, uint32_t n_tokens);
	/* The last steps were waited for, and only the first n_tokens tokens are right: go back to a state of
	 * at most so many.  Returns of how many; not less than the last checkpoint. */
	uint32_t (*seq_rewind)(struct ig_kv_seq *s, uint32_t n_tokens);
};

#endif
