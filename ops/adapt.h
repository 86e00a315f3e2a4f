/*
 * adapt.h: the parameters of the ops of adapters (model/formats/adapter.h).  Only plan.c records them:
 * behind a `linear` the two ops adapt_down, h = scale A x, and adapt_up, y = y + B h, for the rows of
 * the step that have an adapter (struct ig_step, row_adapter); no other row is read or written.  The
 * matrices of all adapters of a weight lie behind each other: adapter a has rows first[i][a] to
 * first[i][a + 1] of A_i and of B_i, which is transposed.
 *
 * h: columns from column[i] on are those of weight i, as many as its largest rank.  h[c] is scale times
 * sixteen sums over every sixteenth product, and a fixed tree.  y takes the ranks in ascending order.
 * Products are rounded before they are added.
 */
#pragma once

#include <ingot/params.h>

#define IG_MAX_ADAPTERS 32 /* of one model */
#define IG_ADAPT_WEIGHTS 4 /* of one product */

struct ig_adapt_params {
	uint32_t struct_size;
	uint32_t n_weights; /* of the product */
	uint32_t n_adapters;
	uint32_t gathered; /* 1: rows are those whose logits are computed */
	int32_t first[IG_ADAPT_WEIGHTS][IG_MAX_ADAPTERS + 1];
	int32_t column[IG_ADAPT_WEIGHTS + 1]; /* of h */
	int32_t n_rows[IG_ADAPT_WEIGHTS];     /* columns of y */
	float scale[IG_ADAPT_WEIGHTS][IG_MAX_ADAPTERS];
};

/* glu_join: y = act(g) * u of x = g | u, side by side. */
struct ig_glu_join_params {
	uint32_t struct_size;
	uint32_t act;
};
