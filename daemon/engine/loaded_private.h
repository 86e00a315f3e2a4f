/* loaded_private.h: what the loaded models take together; see loaded.c.  For the loader. */
#pragma once

#include "daemon/engine/registry_private.h"

/* Have the engine's thread make a change, at a step's boundary.  Not under the lock. */
int ig_loaded_ask_engine(struct ig_models *ms, struct ig_change *c, struct ig_error *err);

/* Under the lock: m counts from now on, or no longer. */
void ig_loaded_add(struct ig_models *ms, struct ig_model *m);
void ig_loaded_remove(struct ig_models *ms, struct ig_model *m);
/* Under the lock: the sums as metrics. */
void ig_loaded_show(const struct ig_models *ms);

/* Make the copies of logits `all` bytes large, together; where there is no memory for larger
 * ones, they stay as they are.  add: a model for the engine's thread to add in the same
 * change; NULL: none.  Not under the lock. */
int ig_loaded_change_logits(struct ig_models *ms, uint64_t all, struct ig_model *add,
			    struct ig_error *err);
/* After a model was freed: the size that the largest remaining one needs.  Not under the lock. */
void ig_loaded_shrink_logits(struct ig_models *ms);
