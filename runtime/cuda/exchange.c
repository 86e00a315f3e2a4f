/*
 * exchange.c: devices as the ranks of a group, which exchange values.
 */
#include "runtime/cuda/exchange.h"

#include "base/log.h"

#include <errno.h>
#include <stdlib.h>

int ig_cuda_connect(struct ig_gpu_device **devices, uint32_t n, struct ig_error *err)
{
	struct ig_cuda_group *g = calloc(1, sizeof *g);

	if (!g)
		return ig_fail(err, -ENOMEM, "cuda: no memory");
	g->n = n;
	for (uint32_t r = 0; r < n; r++) {
		g->device[r] = ig_cuda_of(devices[r]);
		g->device[r]->group = g;
		g->device[r]->rank = r;
		g->n_open++;
	}
	g->reaches = ig_cuda_peers_reach(g->device, n);
	if (g->reaches) {
		bool arrive;
		int rc = ig_cuda_peers_connect(g, &arrive, err);
		if (rc)
			return rc;
		if (!arrive) {
			ig_log_warn("cuda: the driver says that the devices reach one another's "
				    "memory, but what they write there does not arrive (an IOMMU, "
				    "or a virtual machine's isolation?)");
			ig_cuda_peers_disconnect(g);
			g->reaches = false;
		}
	}
	ig_log_info("cuda: %u devices exchange values %s", n,
		    g->reaches ? "in one another's memory" : "by NCCL");
	return g->reaches ? 0 : ig_cuda_collectives_connect(g, err);
}

void ig_cuda_disconnect(struct ig_cuda *d)
{
	struct ig_cuda_group *g = d->group;

	if (!g)
		return;
	if (d->capture)
		d->cu.stream_destroy(d->capture);
	d->capture = NULL;
	/* While the others' contexts are there, too. */
	if (g->n_open == g->n) {
		g->reaches ? ig_cuda_peers_disconnect(g) : ig_cuda_collectives_disconnect(g);
		g->closed = true;
	}
	d->group = NULL;
	if (--g->n_open)
		return;
	ig_nccl_close(&g->nccl);
	free(g);
}

bool ig_cuda_is_left(const struct ig_cuda *d) { return d->group && d->group->closed; }

void ig_cuda_abort(struct ig_gpu_device *base)
{
	struct ig_cuda_group *g = ig_cuda_of(base)->group;

	if (!g || g->closed)
		return;
	g->closed = true;
	if (g->reaches)
		__atomic_store_n(g->stop, 1, __ATOMIC_RELEASE);
	for (uint32_t r = 0; r < g->n && !g->reaches; r++)
		g->nccl.abort(g->comms[r]);
}
