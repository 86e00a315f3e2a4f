/* models_private.h: models by name: for the loader, and for the engine. */
#pragma once

#include "base/json.h"
#include "daemon/engine/entries_private.h"

/* ---- the loader's, and a reload's -------------------------------------------------- */

/* The following are called under the lock. */

/* Queue a load of s, or of its figures alone (look_only); not a second one beside a load
 * that runs. */
void ig_entry_queue(struct ig_models *ms, struct ig_model_entry *s, bool look_only);
/* Drop a queued load; a running one will be discarded. */
void ig_entry_drop_load(struct ig_models *ms, struct ig_model_entry *s);
/* Release its instance, which is unloaded as soon as nobody holds it. */
void ig_entry_release(struct ig_models *ms, struct ig_model_entry *s);
/* Bytes of instances that nobody uses and that may be unloaded for s; bytes of instances of s
 * itself. */
uint64_t ig_models_idle_bytes(const struct ig_models *ms, const struct ig_model_entry *s);
uint64_t ig_models_own_bytes(const struct ig_models *ms, const struct ig_model_entry *s);

/* Without it, by the last holder. */
void ig_models_free(struct ig_models *ms);

/* ---- the engine's: see engine.h --------------------------------------------------- */

int ig_models_take(struct ig_models *ms, const char *name, void (*ready)(void *ctx), void *ctx,
		   const struct ig_engine_model **out, struct ig_error *err);
int ig_models_unload(struct ig_models *ms, const char *name, struct ig_error *err);
int ig_models_pin(struct ig_models *ms, const char *name, bool pin, struct ig_error *err);
bool ig_models_name(struct ig_models *ms, const char *name, char out[IG_MAX_MODEL_NAME + 1]);
size_t ig_models_status(struct ig_models *ms, struct ig_model_status *out, size_t cap);
/* Main's thread. */
void ig_models_reload(struct ig_models *ms, const struct ig_config *config);
void ig_models_describe(struct ig_models *ms, struct ig_json_writer *w);
/* Bytes of budget, weights, scratch, arena. */
void ig_models_sums(struct ig_models *ms, uint64_t out[4]);
