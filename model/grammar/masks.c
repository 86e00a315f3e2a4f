/*
 * masks.c: the tokens that may come next from one configuration, and cached masks.  For a state
 * from which many tokens can be read (the inside of a string) the mask is cached: all tokens that
 * end before the state's rule does, and the nodes of the trie at which the rule ends, where the
 * states below on the stack continue.  For other states a walk is as fast.  Common states get their
 * masks when the grammar is compiled, others by the first thread that needs one.
 */
#include "model/grammar/grammar_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NARROW 800u	      /* visited nodes of the trie: about 20 us */
#define MAX_BYTES (24u << 20) /* of masks in one grammar */
#define MAX_LOOKED 30000000u  /* visited nodes in one compilation: about 0.3 s */
#define SPARE 48u	      /* slots for masks that are computed later */
#define SPARE_PAIRS 112u      /* more slots where rules call each other */
#define MANY_ROOTS 32u
#define CAP_ROOTS 4096u

/* Where a mask's walk begins: the stack below a rule's state is unknown, but it is empty for the
 * first rule, which is never called. */
static struct ig_conf base_of(const struct ig_grammar *g, uint32_t state)
{
	bool is_first = g->n_rules == 1 || state < g->starts[1];

	return (struct ig_conf){ state, is_first ? IG_STACK_EMPTY : IG_STACK_BASE };
}

/* A reserved slot; -1: none is left. */
static int64_t take_slot(struct ig_grammar *g)
{
	uint32_t n = atomic_load_explicit(&g->n_slots, memory_order_relaxed);

	while (n < g->cap_entries)
		if (atomic_compare_exchange_weak_explicit(
			    &g->n_slots, &n, n + 1, memory_order_relaxed, memory_order_relaxed))
			return n;
	return -1;
}

/* Add the tokens below a slot's roots, from conf, which its rule has returned to. */
static void add_roots(struct ig_walk *w, const struct ig_grammar *g,
		      const struct ig_mask_entry *slot, struct ig_conf conf, bool closing,
		      uint32_t *mask, struct ig_mask_entry *out, bool *full)
{
	for (uint32_t i = 0; i < slot->n_roots; i++)
		ig_walk_tokens(w, g, slot->roots[i], conf, closing, mask, out, full);
}

/* Fill a slot with another's mask and the tokens below its roots from state back. */
static uint32_t make_pair(struct ig_walk *w, struct ig_grammar *g, const struct ig_mask_entry *slot,
			  uint32_t back, bool closing)
{
	int64_t n = take_slot(g);
	bool full = false;

	if (n < 0)
		return IG_MASK_FULL;
	memcpy(g->slots[n].bits, slot->bits, ig_mask_words(g->vocab) * sizeof *slot->bits);
	add_roots(w, g, slot, base_of(g, back), closing, g->slots[n].bits, &g->slots[n], &full);
	return full ? IG_MASK_FULL : IG_MASK_ENTRY + (uint32_t)n;
}

/* The slot for a mask and the returned-to state, or NULL. */
static const struct ig_mask_entry *find_pair(struct ig_walk *w, struct ig_grammar *g,
					     const struct ig_mask_entry *slot, uint32_t back,
					     bool closing)
{
	uint64_t key = (uint64_t)(slot - g->slots + 1) << 32 | g->classes[back] << 1 | closing;
	uint32_t at = (uint32_t)((key * 0x9e3779b97f4a7c15u) >> 40), what;

	for (uint32_t i = 0; i < 8; i++) {
		struct ig_mask_pair *p = &g->pairs[(at + i) % IG_PAIRS];
		uint64_t had = atomic_load_explicit(&p->key, memory_order_relaxed);
		if (!had && atomic_compare_exchange_strong_explicit(&p->key, &had, key,
								    memory_order_relaxed,
								    memory_order_relaxed)) {
			what = make_pair(w, g, slot, back, closing);
			atomic_store_explicit(&p->entry, what, memory_order_release);
			had = key;
		}
		if (had == key) {
			what = atomic_load_explicit(&p->entry, memory_order_acquire);
			return what >= IG_MASK_ENTRY ? &g->slots[what - IG_MASK_ENTRY] : NULL;
		}
	}
	return NULL;
}

static void add_slot(struct ig_walk *w, struct ig_grammar *g, const struct ig_mask_entry *slot,
		     struct ig_conf conf, bool closing, uint32_t *mask)
{
	uint32_t n_words = ig_mask_words(g->vocab);
	const struct ig_mask_entry *pair;
	bool full;

	while (conf.node >= IG_STACK_FIRST && slot->n_roots > MANY_ROOTS &&
	       (pair = find_pair(w, g, slot, w->nodes[conf.node].back, closing))) {
		slot = pair;
		conf.node = w->nodes[conf.node].parent;
	}
	for (uint32_t i = 0; i < n_words; i++)
		mask[i] |= slot->bits[i];
	if (conf.node < IG_STACK_FIRST)
		return;
	conf = (struct ig_conf){ w->nodes[conf.node].back, w->nodes[conf.node].parent };
	add_roots(w, g, slot, conf, closing, mask, NULL, &full);
}

/* Compute the mask of a state for the first time; this thread has set the entry to BUSY. */
static void make(struct ig_walk *w, struct ig_grammar *g, struct ig_conf conf, bool closing,
		 _Atomic uint32_t *entry, uint32_t *mask)
{
	const struct ig_conf base = base_of(g, conf.state);
	struct ig_mask_entry *slot;
	uint32_t what = IG_MASK_FULL;
	bool full = false;
	int64_t n;

	if (ig_walk_tokens(w, g, 0, conf, closing, mask, NULL, &full) < NARROW) {
		what = IG_MASK_NARROW;
	} else if (!full && (n = take_slot(g)) >= 0) {
		slot = &g->slots[n];
		ig_walk_tokens(w, g, 0, base, closing, slot->bits, slot, &full);
		if (!full)
			what = IG_MASK_ENTRY + (uint32_t)n;
	}
	atomic_store_explicit(entry, what, memory_order_release);
}

void ig_masks_add(struct ig_walk *w, struct ig_grammar *g, struct ig_conf conf, bool closing,
		  uint32_t *mask)
{
	_Atomic uint32_t *entry = &g->entries[2 * g->classes[conf.state] + closing];
	uint32_t what = atomic_load_explicit(entry, memory_order_acquire);
	bool full;

	if (what == IG_MASK_UNKNOWN &&
	    atomic_compare_exchange_strong_explicit(entry, &what, IG_MASK_BUSY,
						    memory_order_acquire, memory_order_acquire))
		make(w, g, conf, closing, entry, mask);
	else if (what >= IG_MASK_ENTRY)
		add_slot(w, g, &g->slots[what - IG_MASK_ENTRY], conf, closing, mask);
	else
		ig_walk_tokens(w, g, 0, conf, closing, mask, NULL, &full);
}

/* ---- at compile time ------------------------------------------------------------- */

static int new_slot(struct ig_grammar *g, uint32_t n, uint32_t cap_roots)
{
	struct ig_mask_entry *s = &g->slots[n];
	uint32_t n_words = ig_mask_words(g->vocab);

	s->bits = calloc(n_words, sizeof *s->bits);
	s->roots = malloc((cap_roots + 1) * sizeof *s->roots);
	s->cap_roots = cap_roots;
	g->bytes += n_words * sizeof *s->bits + (cap_roots + 1) * sizeof *s->roots;
	return s->bits && s->roots ? 0 : -ENOMEM;
}

/* Masks of classes, in the order in which a text reaches them. */
static int make_common(struct ig_grammar *g, struct ig_walk *w, struct ig_mask_entry *scratch,
		       uint32_t max_entries)
{
	uint32_t n_words = ig_mask_words(g->vocab), n = 0, next = 0;
	uint64_t n_looked = 0;

	for (uint32_t s = 0; s < g->a.n_states && n_looked < MAX_LOOKED; s++) {
		const struct ig_conf base = base_of(g, s);
		uint32_t what = IG_MASK_NARROW, looked;
		bool full = false;
		if (g->classes[s] != next) /* classes are numbered in the order of states */
			continue;
		next++;
		scratch->n_roots = 0;
		w->work = 0;
		looked = ig_walk_tokens(w, g, 0, base, false, scratch->bits, scratch, &full);
		n_looked += looked + 64 + w->work / 8;
		if (looked >= NARROW && (full || n == max_entries)) {
			what = full ? IG_MASK_FULL : IG_MASK_UNKNOWN;
		} else if (looked >= NARROW) {
			if (new_slot(g, n, scratch->n_roots))
				return -ENOMEM;
			memcpy(g->slots[n].bits, scratch->bits, n_words * sizeof *scratch->bits);
			memcpy(g->slots[n].roots, scratch->roots,
			       scratch->n_roots * sizeof *scratch->roots);
			g->slots[n].n_roots = scratch->n_roots;
			what = IG_MASK_ENTRY + n++;
		}
		memset(scratch->bits, 0, n_words * sizeof *scratch->bits);
		atomic_init(&g->entries[2 * g->classes[s]], what);
		if (n == max_entries)
			break;
	}
	atomic_init(&g->n_slots, n);
	return 0;
}

int ig_masks_create(struct ig_grammar *g)
{
	uint32_t n_words = ig_mask_words(g->vocab), max_entries = MAX_BYTES / (n_words * 4 + 64), n;
	uint32_t n_spare = SPARE + (g->n_rules > 1 ? SPARE_PAIRS : 0);
	struct ig_mask_entry scratch = { .cap_roots = CAP_ROOTS };
	struct ig_walk w = { 0 };
	int rc = -ENOMEM;

	if (max_entries > g->n_classes)
		max_entries = g->n_classes;
	g->entries = malloc(2 * (size_t)g->n_classes * sizeof *g->entries);
	g->slots = calloc((size_t)max_entries + n_spare, sizeof *g->slots);
	g->pairs = malloc(IG_PAIRS * sizeof *g->pairs);
	scratch.bits = calloc(n_words, sizeof *scratch.bits);
	scratch.roots = malloc(CAP_ROOTS * sizeof *scratch.roots);
	if (!g->entries || !g->slots || !g->pairs || !scratch.bits || !scratch.roots)
		goto out;
	for (size_t i = 0; i < 2 * (size_t)g->n_classes; i++)
		atomic_init(&g->entries[i], IG_MASK_UNKNOWN);
	for (uint32_t i = 0; i < IG_PAIRS; i++) {
		atomic_init(&g->pairs[i].key, 0);
		atomic_init(&g->pairs[i].entry, IG_MASK_UNKNOWN);
	}
	g->cap_entries = max_entries + n_spare; /* for destroy, should a part fail */
	g->bytes += 2 * (size_t)g->n_classes * sizeof *g->entries;
	if ((rc = ig_walk_init(&w)) || (rc = make_common(g, &w, &scratch, max_entries)))
		goto out;
	n = atomic_load(&g->n_slots);
	for (uint32_t i = 0; i < n_spare && !rc; i++)
		rc = new_slot(g, n + i, CAP_ROOTS / 4);
	g->cap_entries = n + n_spare;
out:
	ig_walk_finish(&w);
	free(scratch.bits);
	free(scratch.roots);
	return rc;
}

void ig_masks_destroy(struct ig_grammar *g)
{
	for (uint32_t i = 0; g->slots && i < g->cap_entries; i++) {
		free(g->slots[i].bits);
		free(g->slots[i].roots);
	}
	free(g->slots);
	free(g->entries);
	free(g->pairs);
}
