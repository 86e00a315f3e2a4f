/*
 * exchange.h: the two ways by which devices exchange values.  Where every device reaches the memory of all others
 * (NVLink, or PCIe without something in between that forbids it), by a kernel of ours (peers.c), else by NCCL
 * (collectives.c).
 */
#pragma once

#include "runtime/cuda/cuda_private.h"
#include "runtime/cuda/nccl.h"
#include "shaders/args.h"

/* What the devices of a group share. */
struct ig_cuda_group {
	uint32_t n, n_open;
	bool closed;
	bool reaches; /* each device the memory of all others */
	/* reaches: as shaders/cuda/exchange.metal has them */
	struct ig_cuda *device[IG_MAX_RANKS];
	CUdeviceptr inbox[IG_MAX_RANKS], turns[IG_MAX_RANKS];
	uint32_t *stop; /* pinned */
	/* else */
	bool connected;
	struct ig_nccl nccl;
	ncclComm comms[IG_MAX_RANKS];
};

/* The exchange kernel; tests set their own. */
extern const struct ig_shader *ig_cuda_exchange_shader;
extern const char *ig_cuda_exchange_kernel;

/* The address of an operand of an exchange. */
static inline CUdeviceptr ig_cuda_operand(const struct ig_gpu_place *places,
					  const struct ig_gpu_bind *b)
{
	return places[b->ref.buffer].buffer->at + places[b->ref.buffer].offset + b->ref.offset;
}

/* peers.c: whether the driver says that the devices reach one another, and their memory for that.  *arrive: what each
 * writes into the others' is found there, which an IOMMU or a virtual machine's isolation can prevent. */
bool ig_cuda_peers_reach(struct ig_cuda *const *d, uint32_t n);
int ig_cuda_peers_connect(struct ig_cuda_group *g, bool *arrive, struct ig_error *err);
void ig_cuda_peers_disconnect(struct ig_cuda_group *g); /* while all contexts are there */

/* collectives.c: connects NCCL, g->device[r] as rank r, and makes each device's stream for recording. */
int ig_cuda_collectives_connect(struct ig_cuda_group *g, struct ig_error *err);
void ig_cuda_collectives_disconnect(struct ig_cuda_group *g);
