/*
 * peers.c: exchanges by a kernel that writes into the memory of the other devices (shaders/cuda/exchange.metal).  As a
 * kernel among others it overlaps with those before and behind it: on H200s with NVLink a sum of one row costs a step 5
 * to 6 us less than by NCCL (docs/scaling.md).
 */
#include "runtime/cuda/exchange.h"

#include <errno.h>

#define MAX_PEERS                                                                                  \
	IG_MAX_IN /* with more, a sum takes several exchanges, in which not all have a part */
_Static_assert(MAX_PEERS <= EXCHANGE_MOST, "");

#define TRIED_BYTES 256 /* that each device writes into each inbox, to see whether they arrive */

extern const struct ig_shader ig_shader_exchange;
const struct ig_shader *ig_cuda_exchange_shader = &ig_shader_exchange;
const char *ig_cuda_exchange_kernel = "exchange";

/* ---- the group ----------------------------------------------------------------------------- */

bool ig_cuda_peers_reach(struct ig_cuda *const *d, uint32_t n)
{
	for (uint32_t r = 0; r < n; r++)
		for (uint32_t of = 0; of < n; of++) {
			int can = 0;
			if (r == of)
				continue;
			if (!d[r]->cu.can_access || !d[r]->cu.enable_access || !d[r]->cu.fill ||
			    d[r]->cu.can_access(&can, d[r]->dev, d[of]->dev) || !can)
				return false;
		}
	return n <= MAX_PEERS;
}

static int connect_one(struct ig_cuda_group *g, uint32_t r, struct ig_error *err)
{
	const uint64_t n_bytes = EXCHANGE_INBOX_BYTES(g->n);
	struct ig_cuda *d = g->device[r];
	int rc = ig_cuda_enter(d, err);

	for (uint32_t of = 0; of < g->n && !rc; of++) {
		CUresult got = of == r ? CUDA_SUCCESS : d->cu.enable_access(g->device[of]->ctx, 0);
		if (got != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
			rc = ig_cuda_check(d, got, "reaching another device's memory", err);
	}
	if (!rc)
		rc = CUDA(d, mem_alloc(&g->inbox[r], n_bytes), "allocating for exchanges", err);
	if (!rc)
		rc = CUDA(d, mem_alloc(&g->turns[r], EXCHANGE_TURNS_BYTES),
			  "allocating for exchanges", err);
	if (!rc)
		rc = CUDA(d, fill(g->inbox[r], 0, n_bytes, d->steps), "clearing what comes", err);
	if (!rc)
		rc = CUDA(d, fill(g->turns[r], 0, EXCHANGE_TURNS_BYTES, d->steps),
			  "clearing what comes", err);
	return rc ? rc : CUDA(d, stream_sync(d->steps), "clearing what comes", err);
}

/* Each device fills a piece of every inbox, its owner reads them and clears them again. */
static int try_writes(struct ig_cuda_group *g, uint8_t *seen, bool *arrive, struct ig_error *err)
{
	int rc = 0;

	for (uint32_t r = 0; r < g->n && !rc; r++) {
		struct ig_cuda *d = g->device[r];
		rc = ig_cuda_enter(d, err);
		for (uint32_t of = 0; of < g->n && !rc; of++)
			rc = CUDA(d,
				  fill(g->inbox[of] + r * TRIED_BYTES, (uint8_t)(r + 1),
				       TRIED_BYTES, d->steps),
				  "trying to write into another device's memory", err);
		if (!rc)
			rc = CUDA(d, stream_sync(d->steps),
				  "trying to write into another device's memory", err);
	}
	*arrive = true;
	for (uint32_t of = 0; of < g->n && !rc; of++) {
		const uint32_t n_bytes = g->n * TRIED_BYTES;
		struct ig_cuda *d = g->device[of];
		rc = ig_cuda_enter(d, err);
		if (!rc)
			rc = CUDA(d, to_host(seen, g->inbox[of], n_bytes, d->steps),
				  "reading what other devices wrote", err);
		if (!rc)
			rc = CUDA(d, fill(g->inbox[of], 0, n_bytes, d->steps),
				  "clearing what comes", err);
		if (!rc)
			rc = CUDA(d, stream_sync(d->steps), "reading what other devices wrote",
				  err);
		for (uint32_t i = 0; i < n_bytes && !rc; i++)
			*arrive &= seen[i] == i / TRIED_BYTES + 1;
	}
	return rc;
}

int ig_cuda_peers_connect(struct ig_cuda_group *g, bool *arrive, struct ig_error *err)
{
	/* behind the word, and as long there: a copy may be under way when a call fails */
	const size_t n_bytes = sizeof *g->stop + g->n * TRIED_BYTES;
	int rc = ig_cuda_enter(g->device[0], err);

	if (!rc)
		rc = CUDA(g->device[0], host_alloc((void **)&g->stop, n_bytes, CU_HOST_PORTABLE),
			  "pinning memory of the host", err);
	if (rc)
		return rc;
	*g->stop = 0;
	for (uint32_t r = 0; r < g->n && !rc; r++)
		rc = connect_one(g, r, err);
	return rc ? rc : try_writes(g, (uint8_t *)(g->stop + 1), arrive, err);
}

void ig_cuda_peers_disconnect(struct ig_cuda_group *g)
{
	for (uint32_t r = 0; r < g->n; r++) {
		struct ig_cuda *d = g->device[r];
		if (ig_cuda_enter(d, NULL))
			continue;
		d->cu.stream_sync(d->steps);
		if (g->inbox[r])
			d->cu.mem_free(g->inbox[r]);
		if (g->turns[r])
			d->cu.mem_free(g->turns[r]);
		g->inbox[r] = g->turns[r] = 0;
	}
	if (g->stop)
		g->device[0]->cu.host_free(g->stop);
	g->stop = NULL;
}

/* ---- an exchange --------------------------------------------------------------------------- */

bool ig_cuda_by_kernel(const struct ig_cuda *d) { return d->group && d->group->reaches; }

int ig_cuda_exchange_args(struct ig_cuda *d, const struct ig_gpu_tape_dispatch *x,
			  const struct ig_gpu_place *places, struct exchange_args *args,
			  struct ig_error *err)
{
	const struct ig_cuda_group *g = d->group;
	const struct ig_gpu_bind *b = x->d.bind;
	bool add = x->exchange == IG_GPU_ADD;

	*args = (struct exchange_args){
		.turns = g->turns[d->rank],
		.stop = (uintptr_t)g->stop,
		.rank = d->rank,
		.n_ranks = g->n,
		.rows_live =
			x->d.grid[0].live == IG_LIVE_LOGIT_ROWS ? IG_ROWS_LOGITS : IG_ROWS_TOKENS,
	};
	for (uint32_t r = 0; r < g->n; r++)
		args->inbox[r] = g->inbox[r];
	if (!add && (x->first_rank || x->d.n_binds != g->n))
		return ig_fail(err, -EINVAL, "cuda: an exchange of %u parts between %u devices",
			       x->d.n_binds, g->n);
	for (uint32_t r = 0; r < g->n; r++) {
		const struct ig_gpu_bind *part = &b[add ? 0 : r];
		if (part->n_bytes % 16)
			return ig_fail(err, -EINVAL, "cuda: an exchange of rows of %llu bytes",
				       (unsigned long long)part->n_bytes);
		args->row_pairs[r] = (uint32_t)(part->n_bytes / 8);
		if (!add || r == d->rank)
			args->part[r] = ig_cuda_operand(places, part);
	}
	if (add)
		args->sum = ig_cuda_operand(places, &b[1]);
	return 0;
}

bool ig_cuda_exchange_grid(const struct exchange_args *args, uint32_t rows, uint32_t grid[3])
{
	uint64_t pairs = 0, groups;
	bool large;

	for (uint32_t r = 0; r < args->n_ranks; r++)
		if ((uint64_t)rows * args->row_pairs[r] > pairs)
			pairs = (uint64_t)rows * args->row_pairs[r];
	large = pairs > EXCHANGE_SMALL_PAIRS;
	groups = (pairs / (large ? 2 : 1) + EXCHANGE_THREADS - 1) / EXCHANGE_THREADS;
	grid[0] = groups > EXCHANGE_GROUPS ? EXCHANGE_GROUPS : (uint32_t)groups;
	grid[1] = grid[2] = 1;
	return large;
}

int ig_cuda_exchange_function(struct ig_cuda *d, CUfunction *out, bool *waits, struct ig_error *err)
{
	const struct ig_gpu_dispatch x = {
		.struct_size = sizeof x,
		.shader = ig_cuda_exchange_shader,
		.kernel = ig_cuda_exchange_kernel,
		.n_arg_bytes = sizeof(struct exchange_args),
		.threads = EXCHANGE_THREADS,
	};

	return ig_cuda_function(d, &x, out, waits, err);
}
