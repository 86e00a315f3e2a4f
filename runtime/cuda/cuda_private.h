/* cuda_private.h: shared by the files of the cuda device. */
#pragma once

#include "runtime/cuda/libcuda.h"
#include "runtime/gpu/device.h"
#include "runtime/split.h"

#include <pthread.h>
#include <stdatomic.h>

/* A kernel's PTX, compiled once for all programs. */
struct ig_cuda_module {
	const struct ig_ptx *ptx;
	CUmodule module;
	bool waits; /* for what ran before, itself: it may begin earlier */
	struct ig_cuda_module *next;
};

struct ig_cuda {
	struct ig_gpu_device base; /* first */
	struct ig_libcuda cu;
	CUdevice dev;
	CUcontext ctx;
	struct ig_gpu_facts facts;
	int driver_version; /* 12040: CUDA 12.4 */
	CUstream steps;	    /* the steps of all programs, in the order of submission */

	/* For loading and tests: one transfer at a time, from any thread. */
	pthread_mutex_t transfer_lock;
	CUstream transfers;
	void *pinned[2];	/* TRANSFER_BYTES each */
	CUevent pinned_free[2]; /* recorded when its buffer may be overwritten */

	pthread_mutex_t module_lock;
	struct ig_cuda_module *modules;
	uint32_t n_modules;
	int64_t untold_ns; /* of compiling them, since the log said so */

	/* The NVIDIA driver refused a graph whose kernels overlap: no further one has any. */
	atomic_bool plain_edges;

	/* One of several ranks (exchange.c); NULL: none.  The stream is for recording. */
	struct ig_cuda_group *group;
	uint32_t rank;
	CUstream capture;

	/* The context is lost: every later function returns the first error. */
	atomic_bool lost;
	pthread_mutex_t lost_lock;
	struct ig_error why;
};

struct ig_gpu_buffer {
	CUdeviceptr at;
	uint64_t n_bytes;
};

static inline struct ig_cuda *ig_cuda_of(struct ig_gpu_device *d) { return (struct ig_cuda *)d; }

/* Make the device's context the thread's; -ENODEV if it is lost. */
int ig_cuda_enter(struct ig_cuda *d, struct ig_error *err);
/* Convert a result to an errno with text; remembers whether the context is lost. */
int ig_cuda_check(struct ig_cuda *d, CUresult r, const char *what, struct ig_error *err);
/* The same for a call of the library: CUDA(d, init(0), "starting the NVIDIA driver", err) */
#define CUDA(d, call, what, err) ig_cuda_check(d, (d)->cu.call, what, err)
/* modules.c */
void ig_cuda_modules_unload(struct ig_cuda *d);
/* The dispatch's kernel, compiled if no program has used it before, and prepared for its threadgroup
 * memory.  *waits: it waits itself for the kernels before it.  Errors name it. */
int ig_cuda_function(struct ig_cuda *d, const struct ig_gpu_dispatch *dispatch, CUfunction *out,
		     bool *waits, struct ig_error *err);
/* The box of a dispatch's operand; NULL: none. */
static inline const struct ig_gpu_box *ig_cuda_box(const struct ig_gpu_dispatch *d, uint32_t bind)
{
	for (uint32_t i = 0; i < d->n_boxes; i++)
		if (d->box[i].bind == bind)
			return &d->box[i];
	return NULL;
}

/* Pinned host memory, for asynchronous copies. */
int ig_cuda_pin(struct ig_cuda *d, uint64_t n_bytes, void **out, struct ig_error *err);

/* program.c */
int ig_cuda_program_create(struct ig_gpu_device *d, const struct ig_gpu_tape *tape,
			   const struct ig_gpu_place *places, uint64_t step_bytes,
			   struct ig_gpu_program **out, struct ig_error *err);
void ig_cuda_program_destroy(struct ig_gpu_program *p);
void *ig_cuda_staging(struct ig_gpu_program *p, uint32_t slot);
int ig_cuda_prepare(struct ig_gpu_program *p, const uint32_t live[IG_N_LIVE], struct ig_error *err);
int ig_cuda_submit(struct ig_gpu_program *p, const struct ig_gpu_submission *s,
		   struct ig_error *err);
int ig_cuda_wait(struct ig_gpu_program *p, uint32_t slot, uint32_t timeout_ms, const int32_t **ids,
		 const float **logits, struct ig_error *err);

/* exchange.c: as struct ig_gpu_device_class has them; and one device leaves its group. */
int ig_cuda_connect(struct ig_gpu_device **devices, uint32_t n, struct ig_error *err);
void ig_cuda_abort(struct ig_gpu_device *d);
void ig_cuda_disconnect(struct ig_cuda *d);
bool ig_cuda_is_left(
	const struct ig_cuda *d); /* one of several ranks, of which another one has failed */
/* Whether the device exchanges values by a kernel (peers.c); else an exchange is recorded (collectives.c). */
bool ig_cuda_by_kernel(const struct ig_cuda *d);
struct exchange_args;
/* What an exchange of a tape says to the kernel, but its turn. */
int ig_cuda_exchange_args(struct ig_cuda *d, const struct ig_gpu_tape_dispatch *x,
			  const struct ig_gpu_place *places, struct exchange_args *args,
			  struct ig_error *err);
/* Its grid for so many rows; whether they go in chunks, and so have no turn. */
bool ig_cuda_exchange_grid(const struct exchange_args *args, uint32_t rows, uint32_t grid[3]);
int ig_cuda_exchange_function(struct ig_cuda *d, CUfunction *out, bool *waits,
			      struct ig_error *err);
/* Record an exchange of so many rows as a node behind others. */
int ig_cuda_record_exchange(struct ig_cuda *d, const struct ig_gpu_tape_dispatch *x,
			    const struct ig_gpu_place *places, uint32_t rows, CUgraph graph,
			    const CUgraphNode *before, uint32_t n_before, CUgraphNode *node,
			    struct ig_error *err);

/* graphs.c: recordings of a tape, one for each bucket of live counts. */
struct ig_cuda_graphs;
int ig_cuda_graphs_create(struct ig_cuda *d, const struct ig_gpu_tape *tape,
			  const struct ig_gpu_place *places, CUdeviceptr step,
			  struct ig_cuda_graphs **out, struct ig_error *err);
void ig_cuda_graphs_destroy(struct ig_cuda_graphs *g); /* NULL is fine; no step in flight */
/* Have a recording of this kind of step ready, as far as there is room: before the first step. */
int ig_cuda_graphs_prepare(struct ig_cuda_graphs *g, const uint32_t live[IG_N_LIVE],
			   struct ig_error *err);
/* The recording for these counts, created if necessary; *exec NULL: nothing runs. */
int ig_cuda_graphs_get(struct ig_cuda_graphs *g, const uint32_t live[IG_N_LIVE], CUgraphExec *exec,
		       struct ig_error *err);
