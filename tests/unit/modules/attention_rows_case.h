/*
 * attention_rows_case.h: cases of the ops without a cache, rope_rows and attention_rows, for their kernels on
 * the CPU and on GPUs: rows of a few texts, whole, one after the other.
 */
#pragma once

#include "attention_world.h"

#define ROWS_MAX 1200
#define ROWS_TEXTS 5

/* A step of whole texts. */
struct rows_step {
	int32_t positions[ROWS_MAX], seqs[ROWS_MAX], lens[ROWS_TEXTS];
	struct ig_step step;
};

void rows_step_make(struct rows_step *r, const int32_t *lens, int32_t n);

struct rows_case {
	const struct ig_op *op;
	const void *params;
	const int32_t *lens; /* of texts */
	int32_t n_texts, n_rows;
	uint32_t n_in, n_weights;
	struct guarded in[2];
	float norms[2][4 * 64];
	int64_t norm_cols[2];
	int64_t n_cols; /* of the result */
};

extern const size_t n_rows_cases;

/* Case i with its inputs. */
void rows_case_open(struct rows_case *c, size_t i);
void rows_case_close(struct rows_case *c);
/* The call for texts first … first + n - 1, whose rows go to out from its first row on; step is filled. */
void rows_case_launch(const struct rows_case *c, int32_t first, int32_t n, struct guarded *out,
		      struct rows_step *step, struct ig_op_launch *launch);
/* The first row of text i. */
int32_t rows_case_first(const struct rows_case *c, int32_t i);
/* The largest difference of two matrices; not a number counts as infinite. */
double rows_difference(const struct guarded *a, const struct guarded *b);
/* n rows of a from row `from` on are bit for bit those of b. */
void rows_expect_same(const struct guarded *a, int64_t from, const struct guarded *b, int64_t n);
