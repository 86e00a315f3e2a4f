/*
 * models_case.h: an engine's configuration of several models, and asking for one of them as a request
 * does, for the tests of models that come and go.
 */
#pragma once

#include "harness.h"

#include "daemon/engine/engine.h"

#define MIB (1 << 20)

extern struct ig_config models_config;
extern atomic_int models_n_ready; /* how often models_take() was told that a model is ready */

#define USE(...)                                                                                   \
	do {                                                                                       \
		const char *const names_[] = { __VA_ARGS__ };                                      \
		models_use(names_, sizeof names_ / sizeof *names_);                                \
	} while (0)

void models_use(const char *const *models, size_t n);
void models_set(char **field, const char *value);
void models_first_use(size_t i);
int models_setup(void **state);
int models_teardown(void **state);
void models_on_ready(void *ctx);
struct ig_model_status models_status(struct ig_engine *e, const char *name);
enum ig_model_state models_state(struct ig_engine *e, const char *name);
int models_take(struct ig_engine *e, const char *name, const struct ig_engine_model **m,
		struct ig_error *err);
/* As a request does: wait while it is loaded.  The last word. */
int models_await(struct ig_engine *e, const char *name, const struct ig_engine_model **m,
		 struct ig_error *err);
/* Load and release it. */
void models_touch(struct ig_engine *e, const char *name);
void models_assert_answer(const struct client *c, const struct ask *a);
/* Its output is that of this kind of file. */
void models_assert_answers(struct ig_engine *e, const char *name, const char *kind);
