/* vectors.h: the results of a request for embeddings or scores: a row of each of its texts.  The engine
 * writes them, and whoever made the request reads them once its stream has finished. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

struct ig_vectors {
	atomic_uint n_refs;
	uint32_t n_rows, n_columns;
	float rows[]; /* [n_rows, n_columns], not normalised */
};

/* One reference; NULL without memory, or past 1 GiB. */
struct ig_vectors *ig_vectors_create(uint32_t n_rows, uint32_t n_columns);
struct ig_vectors *ig_vectors_ref(struct ig_vectors *v);
void ig_vectors_unref(struct ig_vectors *v); /* NULL is fine */
