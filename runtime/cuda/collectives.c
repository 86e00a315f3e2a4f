/*
 * collectives.c: exchanges by NCCL.  An exchange is captured from a stream of its own and becomes a part of the step's graph.
 * NCCL connects devices when a kind of message is first sent, which a capture does not allow; so messages of all
 * sizes are sent once when the group is made.
 */
#include "runtime/cuda/exchange.h"

#include <errno.h>
#include <stdlib.h>

#define LEAST_MESSAGE ((uint64_t)4 << 10)
#define LARGEST_MESSAGE ((uint64_t)64 << 20) /* larger ones are sent as that */

static int check(const struct ig_cuda_group *g, ncclResult r, const char *what,
		 struct ig_error *err)
{
	return r ? ig_fail(err, -EIO, "cuda: NCCL: %s: %s (%d): %s", what, g->nccl.error_string(r),
			   r, g->nccl.last_error(NULL)) :
		   0;
}

/* ---- the group ----------------------------------------------------------------------------- */

/* One message of each kind between all devices. */
static int send_all(const struct ig_cuda_group *g, const CUdeviceptr *at, uint64_t n_bytes,
		    struct ig_error *err)
{
	const struct ig_nccl *n = &g->nccl;
	struct ig_cuda *const *d = g->device;
	int rc = check(g, n->group_start(), "starting a group", err);

	for (uint32_t r = 0; r < g->n && !rc; r++) {
		void *to = (void *)(uintptr_t)at[r];
		if ((rc = ig_cuda_enter(d[r], err)))
			break;
		rc = check(g,
			   n->all_reduce(to, to, n_bytes / 4, NCCL_FLOAT32, NCCL_SUM, g->comms[r],
					 d[r]->steps),
			   "connecting devices", err);
		for (uint32_t root = 0; root < g->n && !rc; root++)
			rc = check(g,
				   n->broadcast(to, to, n_bytes / 4, NCCL_FLOAT32, (int)root,
						g->comms[r], d[r]->steps),
				   "connecting devices", err);
	}
	int end = check(g, n->group_end(), "connecting devices", rc ? NULL : err);
	return rc ? rc : end;
}

static int warm_up(const struct ig_cuda_group *g, struct ig_error *err)
{
	struct ig_cuda *const *d = g->device;
	CUdeviceptr at[IG_MAX_RANKS] = { 0 };
	int rc = 0;

	for (uint32_t r = 0; r < g->n && !rc; r++) {
		rc = ig_cuda_enter(d[r], err);
		if (!rc)
			rc = CUDA(d[r], mem_alloc(&at[r], LARGEST_MESSAGE),
				  "allocating for the first messages", err);
	}
	for (uint64_t n = LEAST_MESSAGE; n <= LARGEST_MESSAGE && !rc; n *= 4)
		rc = send_all(g, at, n, err);
	for (uint32_t r = 0; r < g->n; r++) {
		if (ig_cuda_enter(d[r], NULL))
			continue;
		int end =
			CUDA(d[r], stream_sync(d[r]->steps), "connecting devices", rc ? NULL : err);
		rc = rc ? rc : end;
		if (at[r])
			d[r]->cu.mem_free(at[r]);
	}
	return rc;
}

int ig_cuda_collectives_connect(struct ig_cuda_group *g, struct ig_error *err)
{
	int numbers[IG_MAX_RANKS], version = 0, rc;

	for (uint32_t r = 0; r < g->n; r++) {
		const struct ig_cuda *d = g->device[r];
		numbers[r] = d->dev;
		if (!d->cu.begin_capture || !d->cu.end_capture || !d->cu.graph_add_child)
			return ig_fail(err, -ENOTSUP,
				       "cuda: several devices need the NVIDIA driver of CUDA 12");
	}
	if ((rc = ig_nccl_open(&g->nccl, err)))
		return rc;
	/* Its graphs run one after the other, so it need not order them against other work. */
	setenv("NCCL_GRAPH_MIXING_SUPPORT", "0", 0);
	if ((rc = check(g, g->nccl.version(&version), "asking for the version", err)) ||
	    (rc = check(g, g->nccl.init_all(g->comms, (int)g->n, numbers), "connecting devices",
			err)))
		return rc;
	g->connected = true;
	for (uint32_t r = 0; r < g->n && !rc; r++) {
		struct ig_cuda *d = g->device[r];
		rc = ig_cuda_enter(d, err);
		if (!rc)
			rc = CUDA(d, stream_create(&d->capture, CU_STREAM_NON_BLOCKING),
				  "creating a stream", err);
	}
	return rc ? rc : warm_up(g, err);
}

void ig_cuda_collectives_disconnect(struct ig_cuda_group *g)
{
	for (uint32_t r = 0; r < g->n && g->connected && !g->closed; r++)
		g->nccl.destroy(g->comms[r]);
}

/* ---- an exchange --------------------------------------------------------------------------- */

static void *operand(const struct ig_gpu_place *places, const struct ig_gpu_bind *b)
{
	return (void *)(uintptr_t)ig_cuda_operand(places, b);
}

static int send(struct ig_cuda *d, const struct ig_gpu_tape_dispatch *x,
		const struct ig_gpu_place *places, uint32_t rows, struct ig_error *err)
{
	const struct ig_cuda_group *g = d->group;
	const struct ig_gpu_bind *b = x->d.bind;
	const ncclComm comm = g->comms[d->rank];
	int rc;

	if (x->exchange == IG_GPU_ADD)
		return check(g,
			     g->nccl.all_reduce(operand(places, &b[0]), operand(places, &b[1]),
						rows * b[0].n_bytes / 4, NCCL_FLOAT32, NCCL_SUM,
						comm, d->capture),
			     "recording a sum", err);
	rc = check(g, g->nccl.group_start(), "starting a group", err);
	for (uint32_t i = 0; i < x->d.n_binds && !rc; i++)
		rc = check(g,
			   g->nccl.broadcast(operand(places, &b[i]), operand(places, &b[i]),
					     rows * b[i].n_bytes / 4, NCCL_FLOAT32,
					     (int)(x->first_rank + i), comm, d->capture),
			   "recording parts", err);
	int end = check(g, g->nccl.group_end(), "recording parts", rc ? NULL : err);
	return rc ? rc : end;
}

int ig_cuda_record_exchange(struct ig_cuda *d, const struct ig_gpu_tape_dispatch *x,
			    const struct ig_gpu_place *places, uint32_t rows, CUgraph graph,
			    const CUgraphNode *before, uint32_t n_before, CUgraphNode *node,
			    struct ig_error *err)
{
	CUgraph child = NULL;
	int rc, end;

	if (!d->group || d->group->closed)
		return ig_fail(err, -EIO, "cuda: the other devices are not connected");
	rc = CUDA(d, begin_capture(d->capture, CU_CAPTURE_RELAXED), "recording an exchange", err);
	if (rc)
		return rc;
	rc = send(d, x, places, rows, err);
	end = CUDA(d, end_capture(d->capture, &child), "recording an exchange", rc ? NULL : err);
	rc = rc ? rc : end;
	if (!rc)
		rc = CUDA(d, graph_add_child(node, graph, before, n_before, child),
			  "recording an exchange", err);
	if (child)
		d->cu.graph_destroy(child);
	return rc;
}
