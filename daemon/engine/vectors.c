/* vectors.c: see vectors.h. */
#include "daemon/engine/vectors.h"

#include <stdlib.h>

#define MAX_BYTES ((uint64_t)1 << 30)

struct ig_vectors *ig_vectors_create(uint32_t n_rows, uint32_t n_columns)
{
	struct ig_vectors *v;
	uint64_t n = (uint64_t)n_rows * n_columns;

	if (n > MAX_BYTES / sizeof *v->rows)
		return NULL;
	v = calloc(1, sizeof *v + (size_t)n * sizeof *v->rows);
	if (!v)
		return NULL;
	atomic_init(&v->n_refs, 1);
	v->n_rows = n_rows;
	v->n_columns = n_columns;
	return v;
}

struct ig_vectors *ig_vectors_ref(struct ig_vectors *v)
{
	atomic_fetch_add(&v->n_refs, 1);
	return v;
}

void ig_vectors_unref(struct ig_vectors *v)
{
	if (v && atomic_fetch_sub(&v->n_refs, 1) == 1)
		free(v);
}
