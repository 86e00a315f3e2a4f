/*
 * device.h: what a GPU is to the driver above it: memory, pipelines, a queue.
 *
 * runtime/gpu/ lowers plans to tapes, lays out memory and packs steps, the same for
 * every GPU; a device (runtime/metal, runtime/cuda) allocates, compiles kernels and
 * runs tapes.  A device is used by the engine's thread; alloc, wrap, write, free,
 * program_create and program_destroy also by the loader's, at the same time.
 */
#pragma once

#include "runtime/driver.h"
#include "runtime/gpu/tape.h"

struct ig_gpu_device;
struct ig_gpu_buffer;  /* the device's memory, as the device knows it */
struct ig_gpu_program; /* a tape made ready by a device: pipelines, recordings */

enum ig_gpu_memory {
	IG_GPU_MEMORY_PRIVATE = 0, /* the GPU's alone; write and read work, slowly */
	IG_GPU_MEMORY_SLAB = 1,	   /* as private, reachable through addresses in the step */
};

/* Where a tape's buffer number lies. */
struct ig_gpu_place {
	struct ig_gpu_buffer *buffer;
	uint64_t offset;
};

/* One step's worth of what changes, resolved. */
struct ig_gpu_submission {
	uint32_t slot; /* 0 … IG_STEPS_IN_FLIGHT - 1: which staging area was filled */
	uint32_t live[IG_N_LIVE];
	uint64_t step_bytes; /* of the staging area */
};

struct ig_gpu_device_class {
	const char *name; /* "metal", "cuda" */
	/* 0; -ENOTSUP with text where there is no such device: `auto` goes on to the next. */
	int (*open)(const struct ig_driver_options *o, struct ig_gpu_device **out,
		    struct ig_error *err);
	void (*close)(struct ig_gpu_device *d);
	const struct ig_gpu_facts *(*facts)(const struct ig_gpu_device *d);

	/* ---- memory ---- */
	int (*alloc)(struct ig_gpu_device *d, uint64_t n_bytes, uint32_t memory,
		     struct ig_gpu_buffer **out, struct ig_error *err);
	/* A view of host memory without a copy, read-only for the GPU: base and n_bytes are
	 * multiples of the page size and stay mapped until free.  NULL: the device has no
	 * such views, weights are copied. */
	int (*wrap)(struct ig_gpu_device *d, const void *base, uint64_t n_bytes,
		    struct ig_gpu_buffer **out, struct ig_error *err);
	void (*free)(struct ig_gpu_device *d, struct ig_gpu_buffer *b); /* NULL is fine */
	uint64_t (*address)(const struct ig_gpu_buffer *b);		/* the GPU's own */
	/* Blocking; for loading and for tests.  No step that uses the bytes is under way. */
	int (*write)(struct ig_gpu_device *d, struct ig_gpu_buffer *b, uint64_t offset,
		     const void *src, uint64_t n_bytes, struct ig_error *err);
	int (*read)(struct ig_gpu_device *d, struct ig_gpu_buffer *b, uint64_t offset, void *dst,
		    uint64_t n_bytes, struct ig_error *err);

	/* ---- programs ---- */
	/* Compile every kernel of the tape and make staging areas of step_bytes and room for
	 * results; places[] (by buffer number) outlive the program.  The tape too.  Errors
	 * name the kernel. */
	int (*program_create)(struct ig_gpu_device *d, const struct ig_gpu_tape *tape,
			      const struct ig_gpu_place *places, uint64_t step_bytes,
			      struct ig_gpu_program **out, struct ig_error *err);
	void (*program_destroy)(struct ig_gpu_program *p); /* waits; NULL is fine */
	/* The staging area of a slot, where the host writes the step before submit. */
	void *(*staging)(struct ig_gpu_program *p, uint32_t slot);
	/* Start the tape behind everything that was submitted before.  Does not wait. */
	int (*submit)(struct ig_gpu_program *p, const struct ig_gpu_submission *s,
		      struct ig_error *err);
	/* Until the slot's step is done: 0, -EIO, -ENOMEM, -ENODEV (gone for good), or
	 * -ETIMEDOUT when nothing of the step got done for timeout_ms; it is then still
	 * under way and may be waited for again.  After 0 *ids [n_logit_rows] and *logits
	 * (NULL if they were not wanted) are the host's to read until the slot is
	 * submitted again. */
	int (*wait)(struct ig_gpu_program *p, uint32_t slot, uint32_t timeout_ms,
		    const int32_t **ids, const float **logits, struct ig_error *err);
	/* Called at step boundaries: react to memory pressure since the last call.  Returns
	 * the bytes that should be given back, 0: all is well.  May be NULL. */
	uint64_t (*pressure)(struct ig_gpu_device *d);
};

/* The first member of every device and of every device's program. */
struct ig_gpu_device {
	const struct ig_gpu_device_class *class;
};

struct ig_gpu_program {
	const struct ig_gpu_device_class *class;
};

extern const struct ig_gpu_device_class ig_gpu_metal, ig_gpu_cuda;
