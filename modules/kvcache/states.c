/*
 * states.c: states of models with recurrent layers: sets of parts, which are blocks of the groups of
 * state, and the states that a sequence has.  A state belongs to its holders: entries of sequences, and
 * the index, where it is the snapshot of one node.  With one holder it is changed in place; with more it
 * is only read.  A state that only the index holds is loose: it is evicted in the order of last use
 * of blocks and nodes (blocks.c), or with its node.
 *
 * A sequence has its states by ascending number of tokens.  The last one is the live one, which the
 * next step reads.  Those before it are kept until the steps that read them were waited for, and the
 * newest of them at the end of a block longer: where the sequence ends, that one becomes a snapshot, so
 * that it, or whoever continues its text, can go on from there.  A kept state is a luxury: where no
 * memory is left the live one is changed in place instead.  A checkpoint is none: a step with guessed
 * tokens leaves the state before them, to which the sequence goes back if they were wrong.
 */
#include "kvcache_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- states ------------------------------------------------------------------ */

static uint32_t parts_of(const struct group *g)
{
	return g->layout.n_layers * g->layout.n_kv_heads;
}

static void list_add(struct ig_kvcache *c, struct state *st)
{
	st->prev = NULL;
	st->next = c->states;
	if (st->next)
		st->next->prev = st;
	c->states = st;
}

static void list_remove(struct ig_kvcache *c, struct state *st)
{
	if (st->prev)
		st->prev->next = st->next;
	else
		c->states = st->next;
	if (st->next)
		st->next->prev = st->prev;
}

/* One without blocks.  NULL: no memory. */
static struct state *make_state(struct ig_kvcache *c, uint32_t n_parts)
{
	struct state **at = &c->free_states, *st;

	while (*at && (*at)->n_parts != n_parts)
		at = &(*at)->next;
	st = *at;
	if (st)
		*at = st->next;
	else
		st = malloc(sizeof *st + n_parts * sizeof *st->words);
	if (!st)
		return NULL;
	*st = (struct state){ .n_parts = n_parts, .n_holders = 1, .node = PREFIX_NONE };
	return st;
}

/* Free the blocks of its first n_parts parts, and itself. */
static void free_state(struct ig_kvcache *c, struct state *st, uint32_t n_parts)
{
	while (n_parts)
		blocks_drop(c, st->words[--n_parts]);
	st->next = c->free_states;
	c->free_states = st;
}

void states_finish(struct ig_kvcache *c)
{
	struct state *st, **lists[] = { &c->states, &c->free_states };

	for (int i = 0; i < 2; i++)
		while ((st = *lists[i])) {
			*lists[i] = st->next;
			free(st);
		}
}

/* A state for s; cached blocks make room.  NULL: no memory. */
static struct state *take_state(struct ig_kv_seq *s)
{
	struct ig_kvcache *c = s->cache;
	struct state *st = make_state(c, s->n_parts);
	uint32_t n = 0;

	if (!st)
		return NULL;
	st->n_groups = s->n_state_groups;
	memcpy(st->group, s->group + s->n_groups, s->n_state_groups * sizeof *st->group);
	for (uint32_t g = 0; g < st->n_groups; g++) {
		uint32_t end = n + parts_of(&c->groups[st->group[g]]);
		while (n < end) {
			if (!blocks_take(c, st->group[g], &st->words[n])) {
				n++;
			} else if (!blocks_evict(c)) {
				free_state(c, st, n);
				return NULL;
			}
		}
	}
	list_add(c, st);
	return st;
}

static void count_loose(struct ig_kvcache *c, const struct state *st, bool more)
{
	for (uint32_t g = 0; g < st->n_groups; g++) {
		struct group *group = &c->groups[st->group[g]];
		group->n_loose += more ? parts_of(group) : -(uint64_t)parts_of(group);
	}
}

static void loose_add(struct ig_kvcache *c, struct state *st)
{
	st->stamp = prefix_tick(c->prefix);
	st->older = c->newest_state;
	st->newer = NULL;
	if (st->older)
		st->older->newer = st;
	else
		c->oldest_state = st;
	c->newest_state = st;
	count_loose(c, st, true);
}

static void loose_remove(struct ig_kvcache *c, struct state *st)
{
	if (st->older)
		st->older->newer = st->newer;
	else
		c->oldest_state = st->newer;
	if (st->newer)
		st->newer->older = st->older;
	else
		c->newest_state = st->older;
	count_loose(c, st, false);
}

static void hold(struct ig_kvcache *c, struct state *st)
{
	if (st->n_holders++ == 1 && st->node != PREFIX_NONE)
		loose_remove(c, st);
}

static void drop(struct ig_kvcache *c, struct state *st)
{
	if (--st->n_holders == 1 && st->node != PREFIX_NONE)
		loose_add(c, st);
	if (st->n_holders)
		return;
	list_remove(c, st);
	free_state(c, st, st->n_parts);
}

uint64_t states_oldest(const struct ig_kvcache *c)
{
	return c->oldest_state ? c->oldest_state->stamp : UINT64_MAX;
}

static uint64_t bytes_of(const struct ig_kvcache *c, const struct state *st)
{
	uint64_t n = 0;

	for (uint32_t g = 0; g < st->n_groups; g++)
		n += parts_of(&c->groups[st->group[g]]) *
		     c->groups[st->group[g]].layout.block_bytes;
	return n;
}

void states_node_gone(struct ig_kvcache *c, struct state *st)
{
	if (!st)
		return;
	if (st->n_holders == 1)
		loose_remove(c, st);
	st->node = PREFIX_NONE;
	c->snapshot_bytes -= bytes_of(c, st);
	drop(c, st);
}

bool states_evict(struct ig_kvcache *c)
{
	struct state *st = c->oldest_state;

	if (!st)
		return false;
	prefix_set_state(c->prefix, st->node, NULL);
	states_node_gone(c, st);
	return true;
}

void states_move_blocks(struct ig_kvcache *c, uint32_t slab, const uint32_t *words)
{
	for (struct state *st = c->states; st; st = st->next)
		for (uint32_t i = 0; i < st->n_parts; i++)
			if (IG_BLOCK_SLAB(st->words[i]) == slab)
				st->words[i] = words[IG_BLOCK_INDEX(st->words[i])];
}

/* ---- snapshots --------------------------------------------------------------- */

/* The node of the first n_tokens tokens, whole blocks that s has committed. */
static uint32_t node_at(const struct ig_kv_seq *s, uint32_t n_tokens)
{
	uint32_t node = s->node;

	for (uint32_t n = s->n_indexed; n > n_tokens / IG_BLOCK_TOKENS; n--)
		node = prefix_parent(s->cache->prefix, node);
	return node;
}

/* Give the state to the node of its tokens, which are whole blocks that s has committed. */
static void snapshot(struct ig_kv_seq *s, const struct held *h)
{
	struct ig_kvcache *c = s->cache;
	uint32_t node = node_at(s, h->n_tokens);
	uint64_t bytes = bytes_of(c, h->state);

	if (h->state->node != PREFIX_NONE || prefix_state(c->prefix, node))
		return;
	while (c->snapshot_bytes + bytes > c->max_snapshot_bytes && states_evict(c))
		;
	if (c->snapshot_bytes + bytes > c->max_snapshot_bytes)
		return;
	c->snapshot_bytes += bytes;
	h->state->node = node;
	prefix_set_state(c->prefix, node, h->state);
	h->state->n_holders++; /* a sequence holds it too, so it is not loose */
}

static bool may_be_snapshot(const struct ig_kv_seq *s, const struct held *h)
{
	return h->n_tokens && h->n_tokens % IG_BLOCK_TOKENS == 0 &&
	       h->n_tokens <= s->n_indexed * IG_BLOCK_TOKENS;
}

static bool is_wanted(const struct ig_kv_seq *s, uint32_t n_tokens)
{
	for (uint32_t i = 0; i < s->n_wants; i++)
		if (s->wants[i] == n_tokens)
			return true;
	return false;
}

void states_commit(struct ig_kv_seq *s)
{
	/* not the live one: the next step would find that it is shared */
	for (uint32_t i = 0; i + 1 < s->n_states; i++)
		if (may_be_snapshot(s, &s->states[i]) && is_wanted(s, s->states[i].n_tokens))
			snapshot(s, &s->states[i]);
}

void states_advance(struct ig_kv_seq *s, uint32_t n_tokens)
{
	uint32_t n = 0, newest = 0;

	s->n_confirmed = n_tokens;
	for (uint32_t i = 0; i < s->n_states; i++)
		if (s->states[i].n_tokens <= n_tokens &&
		    s->states[i].n_tokens % IG_BLOCK_TOKENS == 0)
			newest = i;
	for (uint32_t i = 0; i < s->n_states; i++) {
		const struct held *h = &s->states[i];
		if (i + 1 < s->n_states && h->n_tokens < n_tokens &&
		    (i < newest || h->n_tokens % IG_BLOCK_TOKENS))
			drop(s->cache, h->state);
		else
			s->states[n++] = *h;
	}
	s->n_states = n;
	n = 0;
	for (uint32_t i = 0; i < s->n_wants; i++)
		if (s->wants[i] >= n_tokens)
			s->wants[n++] = s->wants[i];
	s->n_wants = n;
}

void states_end(struct ig_kv_seq *s)
{
	const struct held *last = NULL;

	for (uint32_t i = 0; i < s->n_states; i++)
		if (may_be_snapshot(s, &s->states[i]) && s->states[i].n_tokens <= s->n_confirmed)
			last = &s->states[i];
	if (last)
		snapshot(s, last);
}

void states_drop(struct ig_kv_seq *s)
{
	while (s->n_states)
		drop(s->cache, s->states[--s->n_states].state);
	while (s->n_spare)
		drop(s->cache, s->spare[--s->n_spare]);
}

/* ---- a sequence's steps ------------------------------------------------------ */

void states_start(struct ig_kv_seq *s, struct state *st, uint32_t n_tokens)
{
	hold(s->cache, st);
	s->states[s->n_states++] = (struct held){ st, n_tokens, NO_TOKENS };
	s->n_confirmed = n_tokens;
}

static const struct held *live(const struct ig_kv_seq *s)
{
	return s->n_states ? &s->states[s->n_states - 1] : NULL;
}

static uint32_t at(const struct ig_kv_seq *s) { return s->n_states ? live(s)->n_tokens : 0; }

static bool must_copy(const struct ig_kv_seq *s)
{
	return !s->n_states || live(s)->state->n_holders > 1;
}

/* Whether the state after n_tokens tokens is worth to be kept when the sequence goes on. */
static bool is_boundary(uint32_t n_tokens) { return n_tokens && n_tokens % IG_BLOCK_TOKENS == 0; }

/* The first place behind `from` and before `to` where a state should be kept; none: to. */
static uint32_t next_cut(const struct ig_kv_seq *s, uint32_t from, uint32_t to)
{
	uint32_t cut = to - to % IG_BLOCK_TOKENS; /* the last whole block */

	if (cut <= from)
		cut = to;
	for (uint32_t i = 0; i < s->n_wants; i++)
		if (s->wants[i] > from && s->wants[i] < cut)
			cut = s->wants[i];
	return cut;
}

/* Have n states in reserve, if there is memory. */
static void take_spare(struct ig_kv_seq *s, uint32_t n)
{
	while (s->n_spare < n) {
		struct state *st = take_state(s);
		if (!st)
			break;
		s->spare[s->n_spare++] = st;
	}
}

/* States that a step from n_from tokens to n_to can't do without. */
static uint32_t n_needed(const struct ig_kv_seq *s, uint32_t n_from, uint32_t n_to)
{
	if (s->checkpoint == n_from)
		return 1;
	return must_copy(s) + (s->checkpoint > n_from && s->checkpoint < n_to);
}

int states_reserve(struct ig_kv_seq *s, uint32_t n_tokens)
{
	uint32_t n = n_needed(s, at(s), n_tokens), least = n;

	if (n_tokens <= at(s))
		return 0;
	n += !must_copy(s) && is_boundary(at(s));
	for (uint32_t i = next_cut(s, at(s), n_tokens); i < n_tokens && n < MAX_SPARE;
	     i = next_cut(s, i, n_tokens))
		n++;
	take_spare(s, n);
	return s->n_spare < least ? -ENOSPC : 0;
}

int kv_seq_checkpoint(struct ig_kv_seq *s, uint32_t n_tokens)
{
	uint32_t before = s->checkpoint, needed;

	if (!s->n_state_groups || n_tokens < at(s) || n_tokens >= s->max_tokens)
		return -EINVAL;
	s->checkpoint = n_tokens;
	needed = n_needed(s, at(s), s->max_tokens);
	take_spare(s, needed);
	if (s->n_spare >= needed)
		return 0;
	s->checkpoint = before;
	return -ENOSPC;
}

uint32_t kv_seq_rewind(struct ig_kv_seq *s, uint32_t n_tokens)
{
	while (s->n_states && at(s) > n_tokens)
		drop(s->cache, s->states[--s->n_states].state);
	return at(s);
}

int kv_seq_step(struct ig_kv_seq *s, uint32_t n_from, uint32_t n_to, struct ig_kv_segment *out)
{
	uint32_t checkpoint = s->checkpoint, needed = n_needed(s, n_from, n_to);
	int n = 0;

	if (!s->n_state_groups || n_from != at(s) || n_to <= n_from || n_to > s->max_tokens)
		return -EINVAL;
	if (s->n_spare < needed || s->n_states + needed > MAX_SEQ_STATES)
		return -ENOSPC;
	s->checkpoint = NO_TOKENS;
	for (uint32_t from = n_from, end; from < n_to; from = end) {
		/* what has to be left for the checkpoint */
		bool pending = checkpoint > from && checkpoint < n_to;
		bool room = s->n_spare > pending && s->n_states + pending < MAX_SEQ_STATES;
		bool moves = must_copy(s) || from == checkpoint || (is_boundary(from) && room);
		/* a state that is kept at the cut needs another one behind it */
		bool cuts = s->n_spare > (uint32_t)moves + pending &&
			    s->n_states + moves + pending < MAX_SEQ_STATES &&
			    n + 1 + pending < IG_KV_MAX_SEGMENTS;
		end = pending ? checkpoint : n_to;
		end = cuts ? next_cut(s, from, end) : end;
		out[n] = (struct ig_kv_segment){ .n_tokens = end,
						 .from = s->n_states ? live(s)->state->words :
								       NULL };
		if (moves) {
			s->states[s->n_states++] =
				(struct held){ s->spare[--s->n_spare], end, NO_TOKENS };
		} else {
			struct held *h = &s->states[s->n_states - 1];
			h->n_before = h->n_tokens;
			h->n_tokens = end;
		}
		out[n++].to = live(s)->state->words;
	}
	return n;
}

void kv_seq_undo(struct ig_kv_seq *s, uint32_t n_from)
{
	while (s->n_states && at(s) > n_from) {
		struct held *h = &s->states[s->n_states - 1];
		if (h->n_before != NO_TOKENS) {
			h->n_tokens = h->n_before;
			h->n_before = NO_TOKENS;
			return;
		}
		drop(s->cache, h->state);
		s->n_states--;
	}
}

void kv_seq_keep(struct ig_kv_seq *s, uint32_t n_tokens)
{
	if (s->n_state_groups && is_boundary(n_tokens) && n_tokens >= at(s) &&
	    s->n_wants < MAX_WANTS && !is_wanted(s, n_tokens))
		s->wants[s->n_wants++] = n_tokens;
}

/* ---- states from elsewhere ----------------------------------------------------- */

const uint32_t *kv_seq_state(const struct ig_kv_seq *s, uint32_t n_tokens)
{
	const struct state *st;

	for (uint32_t i = 0; i < s->n_states; i++)
		if (s->states[i].n_tokens == n_tokens)
			return s->states[i].state->words;
	if (!s->n_state_groups || !is_boundary(n_tokens) ||
	    n_tokens / IG_BLOCK_TOKENS > s->n_indexed)
		return NULL;
	st = prefix_state(s->cache->prefix, node_at(s, n_tokens));
	return st ? st->words : NULL;
}

int kv_seq_add_state(struct ig_kv_seq *s)
{
	uint32_t n_tokens = s->n_indexed * IG_BLOCK_TOKENS;
	struct state *st;

	if (!s->n_state_groups || n_tokens <= at(s) || s->n_states == MAX_SEQ_STATES)
		return -EINVAL;
	st = take_state(s);
	if (!st)
		return -ENOSPC;
	s->states[s->n_states++] = (struct held){ st, n_tokens, NO_TOKENS };
	return 0;
}
