/*
 * parts.h: into how many parts a step is cut, so that several ranks compute at once.  With n ranks and P parts a step takes
 * P + n - 1 times what a rank takes for a part: few rows a part are worth it where a row costs much beside reading the
 * weights, and not where a device reads them all for a single row.  So what parts take is measured, and of
 * what is known the best is chosen; now and then twice or half as many parts are tried.  One thread for each
 * struct, which is plain memory: zeros are one that knows nothing.
 */
#pragma once

#include <stdint.h>

#define IG_PARTS_SIZES 18u /* of parts, by powers of two; the last has all larger ones */

struct ig_parts {
	uint64_t n_steps;
	struct ig_part_time {
		double rows, ns; /* means; ns 0: not known */
		uint64_t step;	 /* of the last measurement */
		uint64_t n;	 /* measurements */
	} sizes[IG_PARTS_SIZES];
};

/* Rows of a part of a step of n_rows (at least 1) on n_ranks (at least 2): 1 … n_rows. */
uint32_t ig_parts_choose(struct ig_parts *p, uint32_t n_rows, uint32_t n_ranks);
/* A part of n_rows took a rank so long. */
void ig_parts_measure(struct ig_parts *p, uint32_t n_rows, double ns);
