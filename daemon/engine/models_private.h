/* models_private.h: models by name: for the loader, and for the engine. */
#pragma once

#include "base/json.h"
#include "daemon/engine/registry_private.h"

/* ---- the loader's ---------------------------------------------------------------- */

/* The following are called under the lock. */

/* Have s loaded, or looked at; what runs for it already is not begun twice. */
void ig_entry_queue(struct ig_models *ms, struct ig_model_entry *s, bool look_only);
/* Give up its instance: it goes as soon as nobody holds it. */
void ig_entry_release(struct ig_models *ms, struct ig_model_entry *s);
struct ig_waiter *ig_entry_take_waiters(struct ig_model_entry *s);
/* The figures of the file that was opened. */
void ig_entry_set_figures(struct ig_model_entry *s, const struct ig_model *m);
/* Bytes that would be free if all that nobody uses were unloaded, and what is of s itself. */
uint64_t ig_models_idle_bytes(const struct ig_models *ms, const struct ig_model_entry *s);
uint64_t ig_models_own_bytes(const struct ig_models *ms, const struct ig_model_entry *s);

/* And these without it. */

/* The entries of a configuration, before there are threads. */
int ig_models_set_entries(struct ig_models *ms, const struct ig_config *config,
			  struct ig_error *err);
/* Under the lock, once there are threads. */
int ig_models_set_default(struct ig_models *ms, const char *name, struct ig_error *err);
void ig_waiters_notify(struct ig_waiter *w);
void ig_entry_free(struct ig_model_entry *s); /* NULL is fine */
void ig_models_free(struct ig_models *ms);

/* ---- the engine's: see engine.h --------------------------------------------------- */

int ig_models_take(struct ig_models *ms, const char *name, void (*ready)(void *ctx), void *ctx,
		   const struct ig_engine_model **out, struct ig_error *err);
int ig_models_unload(struct ig_models *ms, const char *name, struct ig_error *err);
size_t ig_models_status(struct ig_models *ms, struct ig_model_status *out, size_t cap);
/* Main's thread. */
void ig_models_reload(struct ig_models *ms, const struct ig_config *config);
void ig_models_describe(struct ig_models *ms, struct ig_json_writer *w);
/* Of describe: budget, weights, scratch, arena. */
void ig_models_sums(struct ig_models *ms, uint64_t out[4]);
