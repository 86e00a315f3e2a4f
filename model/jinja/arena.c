/* arena.c: memory that is freed all at once, up to a limit; see jinja_private.h. */
#include "model/jinja/jinja_private.h"

#include <stdlib.h>

#define CHUNK_BYTES ((size_t)32 * 1024)
#define ALIGNMENT 16

struct arena_chunk {
	struct arena_chunk *next;
	_Alignas(ALIGNMENT) unsigned char bytes[];
};

void arena_init(struct arena *a, size_t limit) { *a = (struct arena){ .limit = limit }; }

void arena_finish(struct arena *a)
{
	while (a->chunks) {
		struct arena_chunk *next = a->chunks->next;
		free(a->chunks);
		a->chunks = next;
	}
	arena_init(a, a->limit);
}

void *arena_alloc(struct arena *a, size_t size)
{
	if (size > a->limit) {
		a->over = true;
		return NULL;
	}
	size = (size + !size + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
	if (size > a->cap - a->used) {
		/* Chunks grow with what is there, so that large renderings need few. */
		size_t cap = a->total / 8 > CHUNK_BYTES ? a->total / 8 : CHUNK_BYTES;
		if (cap > a->limit - a->total)
			cap = a->limit - a->total;
		if (cap < size)
			cap = size;
		if (cap > a->limit - a->total) {
			a->over = true;
			return NULL;
		}
		struct arena_chunk *c = malloc(sizeof *c + cap);
		if (!c)
			return NULL;
		c->next = a->chunks;
		a->chunks = c;
		a->used = 0;
		a->cap = cap;
		a->total += cap;
	}
	void *p = a->chunks->bytes + a->used;
	a->used += size;
	memset(p, 0, size);
	return p;
}

void *arena_alloc_array(struct arena *a, size_t n, size_t size)
{
	if (size && n > a->limit / size) {
		a->over = true;
		return NULL;
	}
	return arena_alloc(a, n * size);
}
