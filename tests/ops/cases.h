/*
 * cases.h: one table of cases for the core ops, for their tests and their bench.
 *
 * A case names an op, its parameters and the sizes; ig_case_open makes random
 * operands for it (the same for the same case, everywhere), and ig_case_run runs
 * a kernel or the reference on them with guard bytes round every result.
 */
#pragma once

#include <ingot/arch.h>
#include <ingot/op.h>
#include <stdbool.h>

struct ig_case {
	const char *op;
	uint32_t dtype; /* of the weights */
	int64_t n, k;	/* outputs of each weight, inner length */
	int32_t rows;
	uint32_t act;	     /* of linear and glu */
	bool bias, residual; /* of linear; residual of norm too */
	bool gather;	     /* of norm: every other row */
	uint32_t kind;	     /* of norm */
	bool bench;	     /* large: the bench's, tests leave it out */
	bool extreme; /* of quantised linear: the largest sums that its codes and 8-bit rows give */
};

extern const struct ig_case ig_cases[];
extern const size_t ig_n_cases;

struct ig_case_data;

struct ig_case_data *ig_case_open(const struct ig_case *c);
void ig_case_close(struct ig_case_data *d);
const struct ig_op *ig_case_op(const struct ig_case_data *d);

/* Value i of a row of n in IG_LAYOUT_Q8, as the products take it. */
float ig_case_q8_value(const void *row, int64_t n, int64_t i);

/* Whether the case is one of those that are nearly all of the work. */
bool ig_case_is_large(const struct ig_case *c);

/* Whether the case is a large one that differs from another of the same format and sizes by what is done to the sums
 * alone, which smaller ones do too. */
bool ig_case_repeats(const struct ig_case *c);

/* Whether this machine runs the kernel and it fits the case's weights. */
bool ig_case_fits(const struct ig_case *c, const struct ig_cpu_kernel *k);

/* The reference's result: out[rows of the result * n] of float.  With form, the
 * input is first taken through that form and back, as the kernels of that form
 * see it. */
void ig_case_reference(struct ig_case_data *d, uint32_t layout, float *out);

/* How the units and rows of a run are cut up. */
enum ig_case_cut {
	IG_CUT_NONE,  /* all units, all rows in one call */
	IG_CUT_UNITS, /* unit by unit, last one first */
	IG_CUT_ROWS,  /* row by row, each a step of its own */
};
/* The kernel's result; false when it wrote outside its rows. */
bool ig_case_kernel(struct ig_case_data *d, const struct ig_cpu_kernel *k, enum ig_case_cut cut,
		    float *out);
/* Values in the result. */
int64_t ig_case_out_len(const struct ig_case_data *d);
/* A name for messages (static buffer). */
const char *ig_case_name(const struct ig_case *c, const struct ig_cpu_kernel *k);

/* The operands of a call on rows first … first + n - 1 of the result, as the reference
 * takes them; they lie in d, the results in out[], one after the other.  With gather the
 * step has all of the input's rows. */
void ig_case_call(struct ig_case_data *d, int32_t first, int32_t n, float *const out[IG_MAX_OUT],
		  struct ig_op_launch *launch, struct ig_step *step);
int32_t ig_case_out_rows(const struct ig_case_data *d);
int64_t ig_case_out_cols(const struct ig_case_data *d);

/* For the bench: run all units once on operands that were packed before. */
void ig_case_time(struct ig_case_data *d, const struct ig_cpu_kernel *k, int n_times);
/* Bytes of weights that one run reads, and its multiply-adds. */
uint64_t ig_case_weight_bytes(const struct ig_case *c);
uint64_t ig_case_macs(const struct ig_case *c);

/* xorshift64*, seeded by the case: random operands are the same everywhere. */
uint64_t ig_random_u64(uint64_t *state);
float ig_random_normalish(uint64_t *state); /* in (-2, 2), mean 0, deviation about 0.6 */
/* A row of k weights as files have it: values near 0.25, or random blocks of such scales. */
void ig_case_weight_row(uint32_t dtype, uint8_t *dst, int64_t k, uint64_t *state);
