/* kv_index.c: which blocks are in files: a table by name, and a heap by last use. */
#include "store/kv_files_private.h"

#include "base/array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define N_HEADS (1u << 16)
#define MAX_ENTRIES (1u << 20)

int kv_index_init(struct kv_index *x)
{
	*x = (struct kv_index){ .heads = calloc(N_HEADS, sizeof *x->heads) };
	return x->heads ? 0 : -ENOMEM;
}

void kv_index_finish(struct kv_index *x)
{
	for (uint32_t i = 0; i < x->n; i++)
		free(x->heap[i]);
	free(x->heap);
	free(x->heads);
	*x = (struct kv_index){ 0 };
}

/* Names are hashes already. */
static struct kv_entry **head_of(const struct kv_index *x, const struct ig_kv_name *name)
{
	return &x->heads[(name->bytes[0] | name->bytes[1] << 8) & (N_HEADS - 1)];
}

struct kv_entry *kv_index_find(const struct kv_index *x, const struct ig_kv_name *name)
{
	struct kv_entry *e = *head_of(x, name);

	while (e && memcmp(&e->name, name, sizeof *name))
		e = e->chain;
	return e;
}

/* ---- the heap -------------------------------------------------------------------------- */

static void put(struct kv_index *x, uint32_t at, struct kv_entry *e)
{
	x->heap[at] = e;
	e->at = at;
}

static void move_up(struct kv_index *x, struct kv_entry *e)
{
	uint32_t at = e->at;

	for (; at && x->heap[(at - 1) / 2]->stamp > e->stamp; at = (at - 1) / 2)
		put(x, at, x->heap[(at - 1) / 2]);
	put(x, at, e);
}

static void move_down(struct kv_index *x, struct kv_entry *e)
{
	uint32_t at = e->at;

	for (;;) {
		uint32_t child = 2 * at + 1;
		if (child + 1 < x->n && x->heap[child + 1]->stamp < x->heap[child]->stamp)
			child++;
		if (child >= x->n || x->heap[child]->stamp >= e->stamp)
			break;
		put(x, at, x->heap[child]);
		at = child;
	}
	put(x, at, e);
}

void kv_index_touch(struct kv_index *x, struct kv_entry *e, int64_t stamp)
{
	e->stamp = stamp;
	move_up(x, e);
	move_down(x, e);
}

/* ---- entries ---------------------------------------------------------------------------- */

bool kv_index_add(struct kv_index *x, const struct kv_entry *e)
{
	struct kv_entry *own, **head = head_of(x, &e->name);

	if (x->n == MAX_ENTRIES || !ig_array_grow(x->heap, &x->cap, x->n))
		return false;
	own = malloc(sizeof *own);
	if (!own)
		return false;
	*own = *e;
	own->chain = *head;
	*head = own;
	put(x, x->n++, own);
	move_up(x, own);
	x->n_bytes += own->n_bytes;
	return true;
}

void kv_index_remove(struct kv_index *x, struct kv_entry *e)
{
	struct kv_entry **at = head_of(x, &e->name), *last = x->heap[--x->n];

	while (*at != e)
		at = &(*at)->chain;
	*at = e->chain;
	if (last != e) {
		put(x, e->at, last);
		kv_index_touch(x, last, last->stamp);
	}
	x->n_bytes -= e->n_bytes;
	free(e);
}
