/* split_private.h: what the files of split.h's pass share. */
#pragma once

#include "runtime/split.h"

struct ig_checkpoint_tensor;

struct ig_split_range {
	int64_t first, n;
};

/* The columns that a rank has of a divided value. */
#define IG_MAX_RANGES 4
struct ig_split_share {
	uint32_t n;
	struct ig_split_range range[IG_MAX_RANGES];
};

/* How the ranks have a value of the whole plan. */
enum ig_split_kind {
	IG_SPLIT_WHOLE,	  /* value[0], on all */
	IG_SPLIT_DIVIDED, /* each has its share of the columns */
	IG_SPLIT_SUMMED,  /* each has one of the values that are added */
};
struct ig_split_value {
	enum ig_split_kind kind;
	ig_value value[IG_MAX_RANKS];
	struct ig_split_share share[IG_MAX_RANKS];
};

struct ig_split {
	const struct ig_plan *whole;
	struct ig_plan *to;
	uint32_t n, rank;
	uint32_t cap_nodes, cap_values, cap_weights, cap_mem;
	struct ig_split_value *values; /* [whole->n_values] */
	ig_weight *weights; /* [whole->n_weights] those that are whole in `to`, or IG_NONE */
	struct ig_error *err;
};

/* split_build.c: what is added to the new plan.  0 or -errno with text. */
int ig_split_no_memory(struct ig_split *s);
/* Weight w of the whole plan as it is. */
int ig_split_weight(struct ig_split *s, ig_weight w, ig_weight *out);
/* Part of it for a rank: n_repeats times `rows` of every `period` rows (0: once), and columns. */
int ig_split_slice(struct ig_split *s, ig_weight w, uint32_t rank, struct ig_split_range rows,
		   int64_t period, struct ig_split_range cols, ig_weight *out);
/* A node of this rank, or of all (IG_ALL_RANKS).  Weights may be IG_NONE.  It is not added to the plan of
 * another rank; its values are.  out: as many as the op has, at most IG_MAX_OUT. */
int ig_split_node(struct ig_split *s, uint32_t rank, const struct ig_op *op, const void *params,
		  const ig_value *in, uint32_t n_in, const ig_weight *weights, uint32_t n_weights,
		  ig_value out[IG_MAX_OUT]);
