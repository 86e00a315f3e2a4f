/*
 * adapt_case.h: a case for the ops of adapters, on the CPU and on GPUs: three weights side by side, of which the
 * middle one has no adapter, and three adapters of other ranks, of which one has only the last weight.
 */
#pragma once

#include "ops/adapt.h"

#include <ingot/op.h>
#include <stdbool.h>

#define N_WEIGHTS 3
#define N_ADAPTERS 3
#define N_ROWS 9	     /* of the step */
#define K 99		     /* columns of x: not a whole number of sixteen */
#define N_H (7 + 0 + 19)     /* each weight's largest rank */
#define N_RANKS (1 + 19 + 5) /* of all adapters of a weight, at most */
#define N_Y (40 + 3 + 700)
#define UNTOUCHED 12345.0f

extern struct ig_adapt_params adapt_params;
extern const int32_t adapt_columns[N_WEIGHTS];
extern float adapt_x[N_ROWS * K], adapt_h[N_ROWS * N_H], adapt_y[N_ROWS * N_Y];

/* Numbers in all of them. */
int adapt_setup(void **state);
struct ig_tensor adapt_rows_of(float *data, int64_t n_rows, int64_t n_cols);
struct ig_step adapt_make_step(bool gathered);
int64_t adapt_n_rows(const struct ig_step *s);
/* x and out, or h and out in place of y. */
struct ig_op_launch adapt_launch(const struct ig_step *step, bool up, float *out);
/* Whether a row's column takes part. */
bool adapt_is_used(bool up, int64_t r, int64_t column);
/* What out has before the op runs. */
void adapt_begin_with(float *out, bool up);
