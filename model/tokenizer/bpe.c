/*
 * bpe.c: byte-pair merges of one piece: the pair with the lowest rank first, the leftmost of
 * equals, until no adjacent symbols form a pair.  Up to SHORT symbols a linear search finds the
 * lowest rank.  Longer pieces use a linked list and a heap, so that a megabyte without a space
 * costs n log n.
 */
#include "model/tokenizer/heap_private.h"
#include "model/tokenizer/tokenizer_private.h"

#include <errno.h>
#include <stdlib.h>

#define SHORT 48 /* symbols for which search and heap cost about the same */
#define NO_RANK UINT32_MAX

/* ---- the table ------------------------------------------------------------------ */

int ig_merges_init(struct ig_merges *m, uint32_t n)
{
	uint32_t size = 8;

	if (n > UINT32_MAX / 4)
		return -ENOMEM;
	while (size < 2 * n)
		size *= 2;
	*m = (struct ig_merges){ .mask = size - 1 };
	ig_hash_key_init(&m->hash_key);
	for (unsigned i = 0; i < 256; i++)
		m->byte_ids[i] = -1;
	m->list = malloc((n ? n : 1) * sizeof *m->list);
	m->slots = calloc(size, sizeof *m->slots);
	if (m->list && m->slots)
		return 0;
	ig_merges_finish(m);
	return -ENOMEM;
}

void ig_merges_finish(struct ig_merges *m)
{
	free(m->list);
	free(m->slots);
	m->list = NULL;
	m->slots = NULL;
}

static uint32_t *slot_of(const struct ig_merges *m, int32_t left, int32_t right)
{
	uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
	uint64_t i = ig_hash_u64(&m->hash_key, pair);

	for (;; i++) {
		uint32_t *slot = &m->slots[i & m->mask];
		if (*slot == 0)
			return slot;
		const struct ig_merge *e = &m->list[*slot - 1];
		if (e->left == left && e->right == right)
			return slot;
	}
}

void ig_merges_add(struct ig_merges *m, int32_t left, int32_t right, int32_t result)
{
	uint32_t *slot = slot_of(m, left, right);

	m->list[m->n] = (struct ig_merge){ left, right, result };
	m->n++;
	if (*slot == 0)
		*slot = m->n;
}

static inline uint32_t rank_of(const struct ig_merges *m, int32_t left, int32_t right)
{
	return *slot_of(m, left, right) - 1; /* free: NO_RANK */
}

/* ---- a piece -------------------------------------------------------------------- */

void ig_merge_work_finish(struct ig_merge_work *w)
{
	free(w->ids);
	free(w->prev);
	free(w->next);
	free(w->heap);
	*w = (struct ig_merge_work){ 0 };
}

int ig_merges_reserve(struct ig_merge_work *w, size_t n)
{
	if (n <= w->cap)
		return 0;
	if (n > INT32_MAX / 2)
		return -ENOMEM;
	n = n < SHORT ? 2 * SHORT : n + n / 4; /* so that it rarely grows */
	ig_merge_work_finish(w);
	w->ids = malloc(n * sizeof *w->ids);
	w->prev = malloc(n * sizeof *w->prev);
	w->next = malloc(n * sizeof *w->next);
	/* n - 1 pairs at first; each merge removes one and adds at most two. */
	w->heap = malloc(2 * n * sizeof *w->heap);
	if (!w->ids || !w->prev || !w->next || !w->heap) {
		ig_merge_work_finish(w);
		return -ENOMEM;
	}
	w->cap = n;
	return 0;
}

/* Few symbols: an array of ranks, searched for the lowest at each merge. */
static size_t merge_short(const struct ig_merges *m, int32_t *ids, size_t n)
{
	uint32_t ranks[SHORT]; /* [i]: of ids[i] and ids[i + 1] */

	for (size_t i = 0; i + 1 < n; i++)
		ranks[i] = rank_of(m, ids[i], ids[i + 1]);
	while (n > 1) {
		size_t best = 0;
		for (size_t i = 1; i + 1 < n; i++)
			if (ranks[i] < ranks[best])
				best = i;
		if (ranks[best] == NO_RANK)
			break;
		ids[best] = m->list[ranks[best]].result;
		n--;
		memmove(ids + best + 1, ids + best + 2, (n - best - 1) * sizeof *ids);
		if (best + 1 < n) {
			memmove(ranks + best + 1, ranks + best + 2, (n - best - 2) * sizeof *ranks);
			ranks[best] = rank_of(m, ids[best], ids[best + 1]);
		}
		if (best > 0)
			ranks[best - 1] = rank_of(m, ids[best - 1], ids[best]);
	}
	return n;
}

/* The heap holds rank << 32 | position: the smallest is the lowest rank and, of equals, the
 * leftmost. */
static void push_pair(const struct ig_merges *m, struct ig_merge_work *w, size_t *n_heap,
		      int32_t left)
{
	int32_t right = left < 0 ? -1 : w->next[left];
	uint32_t rank;

	if (right < 0)
		return;
	rank = rank_of(m, w->ids[left], w->ids[right]);
	if (rank != NO_RANK)
		heap_push(w->heap, n_heap, (uint64_t)rank << 32 | (uint32_t)left);
}

static size_t merge_long(const struct ig_merges *m, struct ig_merge_work *w, size_t n)
{
	size_t n_heap = 0, n_left = 0;

	for (size_t i = 0; i < n; i++) {
		w->prev[i] = (int32_t)i - 1;
		w->next[i] = i + 1 < n ? (int32_t)i + 1 : -1;
	}
	for (size_t i = 0; i + 1 < n; i++)
		push_pair(m, w, &n_heap, (int32_t)i);
	while (n_heap) {
		uint64_t top = heap_pop(w->heap, &n_heap);
		const struct ig_merge *e = &m->list[top >> 32];
		int32_t left = (int32_t)(uint32_t)top, right = w->next[left];

		/* Either symbol may have been merged since the pair was pushed. */
		if (w->ids[left] != e->left || right < 0 || w->ids[right] != e->right)
			continue;
		w->ids[left] = e->result;
		w->ids[right] = -1;
		w->next[left] = w->next[right];
		if (w->next[left] >= 0)
			w->prev[w->next[left]] = left;
		push_pair(m, w, &n_heap, w->prev[left]);
		push_pair(m, w, &n_heap, left);
	}
	for (size_t i = 0; i < n; i++)
		if (w->ids[i] >= 0)
			w->ids[n_left++] = w->ids[i];
	return n_left;
}

size_t ig_merges_run(const struct ig_merges *m, struct ig_merge_work *w, size_t n)
{
	return n <= SHORT ? merge_short(m, w->ids, n) : merge_long(m, w, n);
}

int ig_merges_apply(const struct ig_merges *m, struct ig_merge_work *w, const char *piece,
		    size_t len, const int32_t **ids, size_t *n)
{
	size_t n_ids = 0;
	int rc = ig_merges_reserve(w, len);

	if (rc)
		return rc;
	for (size_t i = 0; i < len; i++) {
		int32_t id = m->byte_ids[(unsigned char)piece[i]];
		if (id >= 0)
			w->ids[n_ids++] = id;
	}
	*ids = w->ids;
	*n = ig_merges_run(m, w, n_ids);
	return 0;
}
