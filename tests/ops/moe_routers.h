/*
 * moe_routers.h: routers with the options of moe_route, for its kernels on the CPU and on GPUs: as
 * today's models have them (GLM 4.5, DeepSeek V3, MiniMax M2, Gemma 4), and options by themselves.
 */
#pragma once

#include <ingot/op.h>

static const struct ig_moe_route_params moe_routers[] = {
	{ .n_experts = 128, .top_k = 8, .gating = IG_GATING_SIGMOID },
	{ .n_experts = 128,
	  .top_k = 8,
	  .normalise = 1,
	  .gating = IG_GATING_SIGMOID,
	  .select_bias = 1,
	  .sum_epsilon = 1e-20f },
	{ .n_experts = 256,
	  .top_k = 8,
	  .normalise = 1,
	  .gating = IG_GATING_SIGMOID,
	  .select_bias = 1,
	  .n_groups = 8,
	  .n_groups_used = 4,
	  .sum_epsilon = 1e-20f },
	{ .n_experts = 10,
	  .top_k = 4,
	  .normalise = 1,
	  .gating = IG_GATING_SIGMOID,
	  .select_bias = 1,
	  .n_groups = 5,
	  .n_groups_used = 2,
	  .expert_scale = 1,
	  .shared = 1 },
	{ .n_experts = 64,
	  .top_k = 1,
	  .gating = IG_GATING_SIGMOID,
	  .n_groups = 32,
	  .n_groups_used = 1 },
	{ .n_experts = 16, .top_k = 2, .normalise = 1, .expert_scale = 1 },
	{ .n_experts = 12,
	  .top_k = 3,
	  .normalise = 1,
	  .gating = IG_GATING_SIGMOID,
	  .select_bias = 1,
	  .sum_epsilon = 0.5f,
	  .expert_scale = 1 },
	{ .n_experts = 7, .top_k = 7, .normalise = 0, .shared = 1 },
	{ .n_experts = 16, .top_k = 2, .normalise = 1, .expert_scale = 1, .shared = 1 },
};
#define N_MOE_ROUTERS (sizeof moe_routers / sizeof *moe_routers)

static inline struct ig_moe_route_params moe_router(size_t i)
{
	struct ig_moe_route_params p = moe_routers[i];

	p.struct_size = sizeof p;
	p.scale = 2.5f;
	return p;
}
