/* loader_private.h: loading and unloading models; see loader.c. */
#pragma once

#include "daemon/engine/registry_private.h"

/* Open all models of the configuration, load those that load at start, make the cache;
 * change(ctx, …) has the engine's thread make a change.  *out is set before anything can call
 * back, also on an error. */
int ig_models_create(struct ig_backend *b, const struct ig_config *config,
		     void (*change)(void *ctx, struct ig_change *c), void *ctx,
		     struct ig_models **out, struct ig_error *err);
/* Start the loader's thread. */
int ig_models_start(struct ig_models *ms, struct ig_error *err);
/* The system is short of memory, of n_bytes; 0: it no longer is.  ms is a struct ig_models. */
void ig_models_reclaim(void *ms, uint64_t n_bytes);
/* Models are no longer given out; waiters are called. */
void ig_models_drain(struct ig_models *ms);
/* The same, and end the loader's thread; the engine's thread still runs. */
void ig_models_stop(struct ig_models *ms);
/* Free all but the models that somebody still holds. */
void ig_models_destroy(struct ig_models *ms);
