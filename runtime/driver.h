/*
 * driver.h: what runs a plan.
 *
 *   open -> lower (choose kernels, count bytes, allocate nothing large)
 *        -> load (allocate, pack weights) -> submit -> wait -> submit …
 *
 * At most one wait a step.  Between submit and wait the step buffer and the
 * cache belong to the driver.  submit and wait, and what is about slabs, are called by
 * the engine's thread alone; lower, load and destroy also by the loader's, while steps of
 * other programs are under way.
 */
#pragma once

#include "runtime/plan.h"

struct ig_driver;  /* a device that is open */
struct ig_program; /* a plan lowered for it */

struct ig_driver_options {
	const char
		*isa; /* auto, generic, avx2, avx512, avx512_bf16, neon, neon_dotprod, neon_i8mm */
	uint32_t n_threads;	 /* 0: as many as there are processors */
	const char *activations; /* auto, f32 */
	const char *experts;	 /* packed (or NULL); mapped: in the model's file, cpu only */
	uint32_t strict;	 /* breaches of the contract are errors */
};

struct ig_program_limits {
	uint32_t max_rows; /* tokens of one step */
	uint32_t max_seqs;
	uint32_t max_logit_rows;
	uint32_t max_context; /* tokens of one sequence */
	uint32_t kv_dtype;    /* of the cache: IG_F16 or IG_F32 (which is 0) */
	uint32_t max_slabs;   /* of the cache's arena; 0: as many as fit a block word */
};

struct ig_program_memory {
	uint64_t weight_bytes; /* packed */
	uint64_t scratch_bytes;
};

/* "auto" takes the best that this machine has.  -ENOTSUP names a driver or an
 * instruction set that is not there. */
int ig_driver_open(const char *name, const struct ig_driver_options *o, struct ig_driver **out,
		   struct ig_error *err);
void ig_driver_close(struct ig_driver *d);
/* "cpu, avx512_bf16, 2 threads" */
const char *ig_driver_describe(const struct ig_driver *d);

/* The plan must outlive the program. */
int ig_driver_lower(struct ig_driver *d, const struct ig_plan *plan,
		    const struct ig_program_limits *limits, struct ig_program **out,
		    struct ig_program_memory *memory, struct ig_error *err);
/* Allocate what lower counted and pack the weights; pages of the model's file are
 * dropped as they are packed. */
int ig_program_load(struct ig_program *p, struct ig_error *err);
void ig_program_destroy(struct ig_program *p); /* NULL is fine */

/* Bytes of the device that a process may well use; 0: the machine's memory is its. */
uint64_t ig_driver_memory(const struct ig_driver *d);
/* Steps that should be under way at once, 1 … IG_STEPS_IN_FLIGHT: 2 where a device
 * computes while the host looks at the step before. */
uint32_t ig_driver_steps_in_flight(const struct ig_driver *d);

/* 0, or -EINVAL for a step beyond the limits, -EBUSY (strict) when
 * IG_STEPS_IN_FLIGHT steps wait to be waited for, -EIO, -ENOMEM, -ETIMEDOUT when the
 * device failed: ig_program_error says how.  A step with token_from follows the one
 * whose sampled_ids are its prev_ids.  A step that could not be begun changes
 * nothing for those before it. */
int ig_program_submit(struct ig_program *p, const struct ig_step *step);
/* Wait for the oldest step under way.  When it returns 0, its sampled_ids (and
 * ->logits) are written.  Any other value ends all steps under way: none of them
 * has results.  -ENODEV: the device is gone for good. */
int ig_program_wait(struct ig_program *p);
/* Why the last submit or wait failed; its text is empty when it did not. */
const struct ig_error *ig_program_error(const struct ig_program *p);

/* Memory for the cache's slabs; ctx is the driver.  Fit struct ig_kv_arena. */
void *ig_driver_map_slab(void *driver, uint64_t slab_bytes);
void ig_driver_unmap_slab(void *driver, void *base, uint64_t slab_bytes);
void ig_driver_copy(void *driver, void *dst, const void *src, uint64_t n_bytes);
