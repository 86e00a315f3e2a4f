/*
 * stages.h: a plan cut between layers (pipeline parallelism): each stage has some consecutive layers, their
 * weights and their part of the cache.  The first begins with the tokens' embedding, the last ends with `sample`.
 * Between them pass the rows of float32 that later layers read: the ops stage_out and stage_in.  No sum
 * is divided, so the stages one after another give the bits of the whole plan.
 */
#pragma once

#include "runtime/plan.h"

#define IG_MAX_STAGES 64u
/* Values that pass from a stage to the next, at most. */
#define IG_MAX_STAGE_VALUES 4

/* The plan of one stage of n_stages (1 … IG_MAX_STAGES).  Cuts are where the bytes of weights before them are
 * nearest to equal parts, of those where nothing but rows passes: layers that read another one's cache stay
 * with it.  The cache groups of all stages have one layout, with as many layers as the stage with most
 * of them needs, so that block numbers and addresses in a slab are the same for all.
 *
 * -ENOTSUP with text for a plan that can't be cut so often.  `whole` must outlive the result. */
int ig_plan_cut(const struct ig_plan *whole, uint32_t n_stages, uint32_t stage,
		struct ig_plan **out, struct ig_error *err);
