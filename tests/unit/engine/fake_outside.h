/*
 * fake_outside.h: rows from outside of the fake models: what stands for a token in one, and what a step must say
 * of it.  A row has FAKE_OUTSIDE_WIDTH numbers: what the fake model reads in place of a token, its place in
 * its span, the span's length, and by what it is to be turned along height.
 */
#pragma once

#include "fake_states.h"

#include <stdbool.h>

#define FAKE_OUTSIDE_WIDTH 4
#define FAKE_OUTSIDE_ID 7 /* of these rows in prompts */

/* Whether the rows of this one's span see each other both ways: those of images with odd numbers. */
static inline bool fake_sees_ahead(const float *row) { return (int)row[0] / 1000 % 2 == 0; }

/* What the fake model reads of row r. */
int32_t fake_row_token(const struct ig_step *s, int32_t r);
/* Report spans that the step cuts, rows that see too little or too much, and wrong positions. */
void fake_check_outside(const struct ig_step *s, fake_breach *breach);
