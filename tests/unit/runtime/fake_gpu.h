/*
 * fake_gpu.h: a GPU device in C that remembers what it is asked and fails on demand.
 *
 * Its memory is the host's.  It runs no kernel: copies of cache blocks are done, and
 * row i of the logits gets token `base + i` of the step before it is read.  Every rule
 * of runtime/gpu/device.h that a driver can break is asserted.
 */
#pragma once

#include "runtime/gpu/gpu.h"

struct fake_gpu {
	/* set by tests */
	bool no_device;		    /* open says -ENOTSUP */
	uint64_t max_buffer_bytes;  /* 0: 1 GiB */
	uint64_t working_set_bytes; /* 0: 12345678 */
	uint64_t max_bytes;	    /* of all memory; 0: no limit */
	uint64_t pressure;	    /* bytes to give back, once */
	bool tiles;		    /* its facts have tiles */
	int fail_at;		/* this call from now on fails with -ENOMEM, 1 the next; 0: none */
	int wait_error;		/* what the next waits return */
	uint32_t n_wait_errors; /* so many of them */
	int submit_error;	/* what the next submit returns */
	int32_t base;		/* of the tokens that steps draw */
	int n_devices;		/* that are here */
	int connect_error;	/* what connecting them returns */
	int prepare_us;		/* that each submit takes for a recording */
	/* seen by tests */
	int n_open, n_buffers, n_programs; /* alive */
	int n_launches;			   /* that can fail */
	int n_allocs, n_wraps, n_writes, n_submits, n_waits, n_frees;
	uint64_t n_bytes; /* alive */
	uint64_t largest_write;
	uint32_t n_copies;	       /* done, of cache blocks */
	struct ig_gpu_submission last; /* of a model's program */
	uint8_t *last_step;	       /* the staging area as it was submitted */
	uint32_t last_timeout_ms;
	uint32_t n_connected; /* devices, by the last connect */
	int n_aborts;
	struct ig_gpu_program *submitted[4]; /* the last ones, of models; the newest first */
};

extern struct fake_gpu fake_gpu;
extern const struct ig_gpu_device_class ig_gpu_fake, ig_gpu_wrapping;

/* Everything as at first; asserts that nothing is alive. */
void fake_gpu_reset(void);
const uint8_t *fake_gpu_bytes(const struct ig_gpu_buffer *b);

/* ---- a small model whose ops emit toy dispatches ---- */

struct ig_plan;

#define TOY_LAYERS 3
#define TOY_WIDTH 96
#define TOY_FF 160
#define TOY_HEADS 3
#define TOY_KV_HEADS 1
#define TOY_HEAD 32
#define TOY_VOCAB 77
#define TOY_CONTEXT 1024

struct toy_model {
	struct ig_checkpoint *file;
	struct ig_modules *modules;
	struct ig_plan *plan;
	struct ig_op *ops; /* [plan->n_nodes] copies with a lowering of the test's */
	char path[64];	   /* of the file; removed by finish */
};

/* A llama of F16 weights in a file of its own. */
int toy_model_init(struct toy_model *m);
/* Another model of the same architecture; 0 or -1. */
int toy_model_open(struct toy_model *m, const char *path);
void toy_model_finish(struct toy_model *m);
