/*
 * moe_private.h: what the files of this module share: its ops, and how
 * a route (include/ingot/record.h) is read.
 */
#ifndef MOE_PRIVATE_H
#define MOE_PRIVATE_H

#include <ingot/arch.h>
#include <ingot/gpu.h>

/* The latter two get their kernels from ig_moe_init. */
extern const struct ig_op ig_op_moe_route;
extern struct ig_op ig_op_moe_glu, ig_op_moe_combine;
extern const struct ig_gpu_op ig_gpu_moe_route, ig_gpu_moe_glu, ig_gpu_moe_combine;

/* Make the kernels of moe_glu and moe_combine from those of glu and linear. */
int ig_moe_init(const struct ig_host *host);

/* ---- a route ---- */

struct route {
	char *data;
	int64_t stride; /* of a row, in bytes */
	uint32_t top_k;
	uint32_t n; /* assignments of the step */
};

static inline struct route route_of(const struct ig_tensor *t, uint32_t top_k)
{
	return (struct route){ t->data, t->row_stride, top_k, (uint32_t)t->n_rows * top_k };
}

/* Entry i of one of its parts (IG_ROUTE_IDS …). */
static inline uint32_t *route_word(const struct route *r, uint32_t part, uint32_t i)
{
	return (uint32_t *)(r->data + i / r->top_k * r->stride) + part * r->top_k + i % r->top_k;
}

static inline float *route_weight(const struct route *r, uint32_t assignment)
{
	return (float *)route_word(r, IG_ROUTE_WEIGHTS, assignment);
}

#endif
