/*
 * recurrent_case.h: one table of cases of the ops of the module recurrent, for its kernels on the CPU and on
 * GPUs: rows of sequences that go on or begin, divided into steps and segments in many ways.  States lie in
 * shuffled blocks of two slabs, with guards between them.
 */
#pragma once

#include <ingot/arch.h>
#include <ingot/op.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define N_SEQS 4
#define N_SLABS 2

struct matrix {
	int64_t n_rows, n_cols;
	float *data;
};

struct recurrent_case {
	const struct ig_op *op;
	const void *params;
	double tolerance;
	uint32_t n_in, n_weights, n_parts, part_floats;
	struct matrix in[IG_MAX_IN], weight[IG_MAX_WEIGHTS], out;
	float *states; /* [N_SEQS, n_parts, part_floats] of the tested layer */
};

extern const size_t n_recurrent_cases;
void recurrent_open(struct recurrent_case *t, size_t number);
void recurrent_close(struct recurrent_case *t);

/* The op of the module as it is shipped; the test fails when it is not there. */
const struct ig_op *recurrent_op(const char *name);

/* How the work is divided. */
struct division {
	bool by_units;	   /* on the CPU: each unit by itself, the last one first */
	bool alone;	   /* each sequence in steps of its own */
	int rows, segment; /* rows of one sequence in a step, and of a segment, at most */
	bool moves;	   /* each segment from one state to another one */
};

extern const struct division recurrent_whole, recurrent_others[];
extern const size_t n_recurrent_others;

/* Runs one step; slabs: of slab_bytes each, those of launch->step. */
struct runner {
	void (*run)(const struct runner *r, const struct recurrent_case *t,
		    const struct division *d, const struct ig_op_launch *launch,
		    void *const slabs[N_SLABS], uint64_t slab_bytes);
	const void *context;
};

extern const struct runner recurrent_reference;

struct result {
	float *out, *states; /* of all rows; as in the case, after them */
};

struct result recurrent_run(const struct recurrent_case *t, const struct runner *r,
			    struct division d);
void recurrent_free(struct result *r);
/* The largest error, by the size of what is expected. */
double recurrent_error(const struct recurrent_case *t, const struct result *a,
		       const struct result *b);
bool recurrent_equal(const struct recurrent_case *t, const struct result *a,
		     const struct result *b);
