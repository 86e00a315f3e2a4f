/*
 * scheduler_case.h: an engine's configuration of one model or several, and the answers that a request
 * must get whatever runs beside it, for the tests of the scheduler.
 */
#pragma once

#include "harness.h"

extern struct ig_config scheduler_config;
/* Models for scheduler_use.  Grouped: its cache has two groups; windowed: the second has a window. */
extern const char *const scheduler_one[1];
extern const char *const scheduler_two[2];
extern const char *const scheduler_grouped[1];
extern const char *const scheduler_windowed[1];

/* A configuration of the model "good". */
int scheduler_setup(void **state);
int scheduler_teardown(void **state);
/* The same of these models. */
void scheduler_use(const char *const *models, size_t n);
/* It got all that this request must get, and ended for its length. */
void scheduler_assert_answer(const struct client *c, const struct ask *a);
