/* loader_private.h: the models' life; see loader.c. */
#pragma once

#include "daemon/engine/registry_private.h"

/* Open all models of the configuration, load those that load at start, make the cache;
 * change(ctx, …) is asked for what is the engine's thread's.  *out is set from the first
 * moment on, also on an error. */
int ig_models_create(struct ig_backend *b, const struct ig_config *config,
		     void (*change)(void *ctx, struct ig_change *c), void *ctx,
		     struct ig_models **out, struct ig_error *err);
/* Start the loader's thread. */
int ig_models_start(struct ig_models *ms, struct ig_error *err);
/* Nobody is given one any more; who waits for one is told. */
void ig_models_drain(struct ig_models *ms);
/* And the loader's thread ends; the engine's thread still runs. */
void ig_models_stop(struct ig_models *ms);
/* Free all but what somebody still holds. */
void ig_models_destroy(struct ig_models *ms);
