/* gpu_private.h: what the files of the GPU lowerings share: gpu.c, gpu_stream.c. */
#pragma once

#include "moe_private.h"
#include "shaders/args.h"

#include <ingot/gpu_lower.h>

struct shape {
	uint32_t bm, bn, bk, sm, sn, stages, wide; /* as in shaders/core/shapes.h */
};

/* A product of assignments with their experts' weights, as it is lowered. */
struct product {
	const struct ig_gpu_launch *launch;
	const char *op;
	bool pair;	  /* gate and up */
	uint32_t up;	  /* the weight that has up */
	uint32_t bias;	  /* the weight that has the first bias; 0: there is none */
	uint32_t dtype;	  /* of the weights */
	uint32_t element; /* type in which it is multiplied */
	uint32_t n_experts, top_k;
	struct ig_gpu_bind y;
	struct moe_args args;
};

static inline struct ig_gpu_bind ig_moe_bind_optional(const struct ig_gpu_launch *c, bool there,
						      uint32_t weight)
{
	const struct ig_gpu_bind none = IG_GPU_NONE;
	return there ? ig_gpu_bind_weight(&c->weight[weight]) : none;
}

/* The first number of rows for which experts' weights in tiles are unpacked; 0: none. */
uint32_t ig_moe_unpacks_from(const struct product *p);
/* The dispatches for ig_moe_unpacks_from() rows and more; args are complete. */
int ig_moe_lower_unpacked(const struct product *p, const struct ig_gpu_host *h,
			  struct ig_gpu_tape *t, struct ig_error *err);
