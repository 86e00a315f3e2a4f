/*
 * split.h: a plan divided over several devices (tensor parallelism): each, by its number its rank, computes
 * some of the heads, of the feed-forward's columns and of the logits (enum ig_op_split).  What each has part
 * of is joined by the ops sum, in the order of ranks, and concat; norms, routers and sampling are computed
 * by all.  So the bits of a result depend on the number of ranks, and on nothing else of how they run.
 */
#pragma once

#include "runtime/plan.h"

#define IG_MAX_RANKS 8
#define IG_ALL_RANKS UINT32_MAX

/* The plan of one rank of n_ranks (1 … IG_MAX_RANKS).  The parts of other ranks are values that no node
 * writes (struct ig_plan_value, part): whoever runs the plan fetches them before the node that reads them.
 * Values have the same numbers in all ranks' plans.  Cache groups have a rank's heads.
 *
 * rank IG_ALL_RANKS: one plan with the nodes of all ranks, for one device, which gives the same bits: the
 * reference of the others.  Layer l of rank r is layer l * n_ranks + r of its cache groups.
 *
 * -ENOTSUP with text for a plan that can't be divided so.  `whole` must outlive the result. */
int ig_plan_split(const struct ig_plan *whole, uint32_t n_ranks, uint32_t rank,
		  struct ig_plan **out, struct ig_error *err);
/* The model's description with a rank's part of each cache group, or of all ranks; of one rank it is the
 * model's own. */
int ig_split_info(const struct ig_model_info *whole, uint32_t n_ranks, uint32_t rank,
		  struct ig_model_info *out, struct ig_error *err);
