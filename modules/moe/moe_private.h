/* moe_private.h: shared by the files of this module: its ops, and the layout of a route. */
#pragma once

#include <ingot/arch.h>
#include <ingot/gpu.h>

/* ig_moe_init sets the kernels of the latter two. */
extern const struct ig_op ig_op_moe_route;
extern struct ig_op ig_op_moe_glu, ig_op_moe_combine;
extern const struct ig_gpu_op ig_gpu_moe_route, ig_gpu_moe_glu, ig_gpu_moe_combine;

/* Create the kernels of moe_glu and moe_combine from those of glu and linear. */
int ig_moe_init(const struct ig_host *host);

/* ---- a route: what moe_route writes and the other two read ----
 *
 * [n, 4 * top_k + shared] words of 32 bits in four parts of top_k:
 *   ids      the experts of the row's largest keys, on equal ones the lower id (NaN is
 *            smaller than any number), in ascending order of id.  A key is the logit; with
 *            sigmoid gating the score plus the selection bias, in float32
 *   weights  float, of slot j: scale * score / sum * expert_scale[id_j].  Scores are
 *            exp(x[id_j] - max x), or sigmoids; the sum is of all experts, in ascending
 *            order (of sigmoids: 1), or with normalise of the row's own, in the order of
 *            slots, plus sum_epsilon
 *   order    the step's n * top_k assignments by expert, those of one expert by row
 *   runs     a run is the assignments of one active expert: where in `order` each begins,
 *            in ascending order of experts; behind the last run, n * top_k
 *   shared   float, if the route has it: the weight of the shared expert, one word
 * ids and weights belong to their row.  order and runs are lists of n * top_k entries for the
 * whole step: entry i is in row i / top_k, at index i % top_k of that part. */
enum { IG_ROUTE_IDS = 0, IG_ROUTE_WEIGHTS = 1, IG_ROUTE_ORDER = 2, IG_ROUTE_RUNS = 3 };

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

static inline float *route_shared(const struct route *r, uint32_t row)
{
	return (float *)(r->data + row * r->stride) + 4 * r->top_k;
}

static inline float *route_weight(const struct route *r, uint32_t assignment)
{
	return (float *)route_word(r, IG_ROUTE_WEIGHTS, assignment);
}
