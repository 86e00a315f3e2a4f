/*
 * device.h: the interface between the GPU driver and a device: memory, pipelines, a queue.
 * runtime/gpu/ is the same for every GPU: it lowers plans to tapes, places memory and packs steps.
 * A device (runtime/metal, runtime/cuda) allocates memory, compiles kernels and executes tapes.
 * The engine's thread uses a device; the loader's thread may call alloc, wrap, write, free,
 * program_create and program_destroy at the same time.
 */
#pragma once

#include "runtime/driver.h"
#include "runtime/gpu/tape.h"

struct ig_gpu_device;
struct ig_gpu_buffer;  /* device memory */
struct ig_gpu_program; /* a tape prepared for a device: pipelines, recordings */

enum ig_gpu_memory {
	IG_GPU_MEMORY_PRIVATE = 0, /* for the GPU; write and read work, slowly */
	IG_GPU_MEMORY_SLAB = 1,	   /* the same; kernels reach it through addresses in the step */
};

/* The memory of a tape's buffer. */
struct ig_gpu_place {
	struct ig_gpu_buffer *buffer;
	uint64_t offset;
};

/* One step, ready for a device. */
struct ig_gpu_submission {
	uint32_t slot; /* 0 … IG_STEPS_IN_FLIGHT - 1: the staging area with the step */
	uint32_t live[IG_N_LIVE];
	uint64_t step_bytes; /* used in the staging area */
};

struct ig_gpu_device_class {
	const char *name; /* "metal", "cuda" */
	/* 0; -ENOTSUP with text if there is no such device: `auto` tries the next driver. */
	int (*open)(const struct ig_driver_options *o, struct ig_gpu_device **out,
		    struct ig_error *err);
	void (*close)(struct ig_gpu_device *d);
	const struct ig_gpu_facts *(*facts)(const struct ig_gpu_device *d);

	/* ---- memory ---- */
	int (*alloc)(struct ig_gpu_device *d, uint64_t n_bytes, uint32_t memory,
		     struct ig_gpu_buffer **out, struct ig_error *err);
	/* A view of host memory without a copy, read-only for the GPU.  base and n_bytes must be
	 * multiples of the page size and stay mapped until free.  NULL: not supported, weights are
	 * copied. */
	int (*wrap)(struct ig_gpu_device *d, const void *base, uint64_t n_bytes,
		    struct ig_gpu_buffer **out, struct ig_error *err);
	void (*free)(struct ig_gpu_device *d, struct ig_gpu_buffer *b); /* NULL is fine */
	uint64_t (*address)(const struct ig_gpu_buffer *b);		/* for kernels */
	/* Blocking; for loading and tests.  No step in flight may use the bytes. */
	int (*write)(struct ig_gpu_device *d, struct ig_gpu_buffer *b, uint64_t offset,
		     const void *src, uint64_t n_bytes, struct ig_error *err);
	int (*read)(struct ig_gpu_device *d, struct ig_gpu_buffer *b, uint64_t offset, void *dst,
		    uint64_t n_bytes, struct ig_error *err);

	/* ---- programs ---- */
	/* Compile the tape's kernels; allocate staging areas of step_bytes and memory for results.
	 * The tape and places[] (by buffer number) must outlive the program.  Errors name the
	 * kernel. */
	int (*program_create)(struct ig_gpu_device *d, const struct ig_gpu_tape *tape,
			      const struct ig_gpu_place *places, uint64_t step_bytes,
			      struct ig_gpu_program **out, struct ig_error *err);
	void (*program_destroy)(struct ig_gpu_program *p); /* waits; NULL is fine */
	/* Have what a step with these counts needs ready, by the loader's thread after program_create; no step has
	 * been submitted yet.  NULL: steps need nothing. */
	int (*prepare)(struct ig_gpu_program *p, const uint32_t live[IG_N_LIVE],
		       struct ig_error *err);
	/* The staging area of a slot, where the host writes the step before submit. */
	void *(*staging)(struct ig_gpu_program *p, uint32_t slot);
	/* Execute the tape after everything submitted before.  Does not wait. */
	int (*submit)(struct ig_gpu_program *p, const struct ig_gpu_submission *s,
		      struct ig_error *err);
	/* Wait for the slot's step: 0, -EIO, -ENOMEM, -ENODEV (the device is lost), or -ETIMEDOUT
	 * if the step makes no progress for timeout_ms; it is then still in flight and may be
	 * waited for again.  After 0 the host may read *ids [n_logit_rows] and *logits (NULL if
	 * they were not requested) until the slot is submitted again; of guesses at ids + max_logit_rows
	 * and as many rows of logits further. */
	int (*wait)(struct ig_gpu_program *p, uint32_t slot, uint32_t timeout_ms,
		    const int32_t **ids, const float **logits, struct ig_error *err);
	/* Called between steps: returns the bytes that should be freed because of memory pressure
	 * since the last call, or 0.  May be NULL. */
	uint64_t (*pressure)(struct ig_gpu_device *d);
	/* ---- several devices; NULL: not supported ---- */
	/* How many there are, or -errno with text. */
	int (*count)(struct ig_error *err);
	/* Make open devices of different GPUs the ranks 0 … n - 1 of a group, which exchange values (struct
	 * ig_gpu_tape_dispatch).  After an error they can only be closed. */
	int (*connect)(struct ig_gpu_device **devices, uint32_t n, struct ig_error *err);
	/* One of the device's group has failed: have no other wait for it. */
	void (*abort)(struct ig_gpu_device *d);
	/* As ig_driver_watch_memory.  May be NULL. */
	void (*watch_memory)(struct ig_gpu_device *d, void (*fn)(void *ctx, uint64_t n_bytes),
			     void *ctx);
};

/* The first member of every device and of every device's program. */
struct ig_gpu_device {
	const struct ig_gpu_device_class *class;
	int64_t prepared_ns; /* that submits took for what later steps of the kind have ready, all together */
};

struct ig_gpu_program {
	const struct ig_gpu_device_class *class;
};

extern const struct ig_gpu_device_class ig_gpu_metal, ig_gpu_cuda;
