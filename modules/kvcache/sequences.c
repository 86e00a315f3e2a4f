/*
 * sequences.c: the sequences of the service "paged": block tables with counted references (blocks.c),
 * found and filled through the prefix index (prefix.c), and the states of their recurrent layers
 * (states.c).  n_groups counts the groups with block tables; those of state come after them.
 *
 * In a group with a window a sequence has the blocks that its next tokens read or write, and
 * IG_BLOCK_NONE before them.  A block that it drops is free, or, if the index holds it, *loose*.
 * So a prefix of many sequences can be continued as long as the memory of its last blocks is not
 * needed.
 */
#include "kvcache_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint32_t window_of(const struct ig_kv_seq *s, uint32_t i)
{
	return s->cache->groups[s->group[i]].window;
}

static uint32_t blocks_for(uint32_t n_tokens)
{
	return n_tokens / IG_BLOCK_TOKENS + (n_tokens % IG_BLOCK_TOKENS != 0);
}

int kv_seq_create(struct ig_kvcache *c, const uint32_t *groups, uint32_t n_groups,
		  uint32_t max_tokens, uint64_t salt, struct ig_kv_seq **out)
{
	struct ig_kv_seq *s;
	uint32_t max_blocks, n_all = n_groups, n_parts = 0;

	if (!n_groups || n_groups > MAX_GROUPS_PER_SEQ || !max_tokens || max_tokens > INT32_MAX)
		return -EINVAL;
	for (uint32_t i = 0; i < n_groups; i++)
		if (groups[i] >= c->n_groups || !c->groups[groups[i]].used)
			return -EINVAL;
	for (; n_groups && group_is_state(&c->groups[groups[n_groups - 1]]); n_groups--) {
		const struct ig_kv_layout *l = &c->groups[groups[n_groups - 1]].layout;
		n_parts += l->n_layers * l->n_kv_heads;
	}
	for (uint32_t i = 0; i < n_groups; i++)
		if (group_is_state(&c->groups[groups[i]]))
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
	s->checkpoint = NO_TOKENS;
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

int kv_seq_reserve(struct ig_kv_seq *s, uint32_t n_tokens, uint32_t n_window)
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

void kv_seq_advance(struct ig_kv_seq *s, uint32_t n_tokens)
{
	if (s->n_state_groups)
		states_advance(s, n_tokens);
	/* Keep what a continuation of the last full block reads: the index may give it to others. */
	n_tokens -= n_tokens % IG_BLOCK_TOKENS;
	for (uint32_t i = 0; i < s->n_groups; i++)
		if (window_of(s, i))
			drop_before(s, i, ig_kv_first_read(window_of(s, i), n_tokens));
	kv_keep_within(s->cache);
}

void kv_seq_destroy(struct ig_kv_seq *s)
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
	kv_keep_within(c);
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

void kv_seq_match(struct ig_kv_seq *s, const int32_t *tokens, uint32_t n_tokens, uint32_t *n_cached)
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

uint32_t kv_seq_share(struct ig_kv_seq *s, const struct ig_kv_seq *from)
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

int kv_seq_append(struct ig_kv_seq *s, uint32_t groups, void **address)
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

uint32_t kv_seq_known(const struct ig_kv_seq *s, const int32_t *tokens, uint32_t n_tokens)
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

void kv_seq_commit(struct ig_kv_seq *s, const int32_t *tokens, uint32_t n_tokens)
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

const uint32_t *kv_seq_blocks(const struct ig_kv_seq *s, uint32_t i, uint32_t *n_blocks)
{
	if (i >= s->n_groups) {
		*n_blocks = 0;
		return NULL;
	}
	*n_blocks = s->n_blocks[i];
	return s->tables + (size_t)i * s->max_blocks;
}
