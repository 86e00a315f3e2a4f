/*
 * driver.h: drivers, which execute plans.
 *
 *   open -> lower (choose kernels, count bytes, allocate nothing large)
 *        -> load (allocate, pack weights) -> submit -> wait -> submit …
 *
 * At most one wait per step.  Between submit and wait the driver owns the step buffer and the
 * cache.  Only the engine's thread calls submit, wait and the functions for slabs; the loader's
 * thread may call lower, load and destroy while steps of other programs are in flight.
 */
#pragma once

#include "runtime/plan.h"

#include <stdbool.h>

struct ig_driver;  /* an open device */
struct ig_program; /* a plan lowered for it */

struct ig_driver_options {
	const char
		*isa; /* auto, generic, avx2, avx512, avx512_bf16, neon, neon_dotprod, neon_i8mm */
	uint32_t n_threads;	 /* 0: one per processor */
	const char *activations; /* auto, f32 */
	const char *experts;	 /* packed (or NULL); mapped: read from the model's file */
	/* GPUs: whether quantised weights are copied to tiles (shaders/core/tiles.h): auto (or NULL), where that is
	 * known to be faster; always; never. */
	const char *repack;
	/* Metal: whether products run on the GPU's tensor units: auto (or NULL), where it has them and they pass a
	 * trial; never. */
	const char *tensor_units;
	uint32_t strict;	/* 1: violations of the contract are errors */
	uint32_t keep_wired_ms; /* metal: after the last step; 0: memory is never kept wired */
	/* cuda: the numbers of GPUs; over several plans are divided.  0: all of them if all_devices is 1, else
	 * the first that is supported. */
	const uint32_t *devices; /* [n_devices] */
	uint32_t n_devices;
	uint32_t all_devices;
};

struct ig_program_limits {
	uint32_t max_rows; /* tokens of one step */
	uint32_t max_seqs;
	uint32_t max_logit_rows;
	uint32_t max_context; /* tokens of one sequence */
	uint32_t k_dtype;     /* of the cache: IG_F16, IG_F32 (which is 0) or IG_Q8_0 */
	uint32_t v_dtype;
	uint32_t max_slabs; /* of the cache's arena; 0: as many as fit a block word */
};

/* Of a plan without a cache: texts of one step; tokens of a text, unless the context is configured. */
#define IG_STEP_TEXTS 256u
#define IG_DEFAULT_TEXT 8192u
/* Its limits, from those of other plans with its max_context: a step has texts whole. */
static inline void ig_program_limit_texts(struct ig_program_limits *l)
{
	if (l->max_rows < l->max_context)
		l->max_rows = l->max_context;
	l->max_seqs = l->max_logit_rows = IG_STEP_TEXTS;
}

struct ig_program_memory {
	uint64_t weight_bytes; /* packed */
	uint64_t scratch_bytes;
};

/* name "auto": the best driver for this machine.  -ENOTSUP with text for an unknown driver or
 * instruction set, or one that this machine does not support. */
int ig_driver_open(const char *name, const struct ig_driver_options *o, struct ig_driver **out,
		   struct ig_error *err);
void ig_driver_close(struct ig_driver *d);
/* "cpu, avx512_bf16, 2 threads" */
const char *ig_driver_describe(const struct ig_driver *d);

/* The plan must outlive the program. */
int ig_driver_lower(struct ig_driver *d, const struct ig_plan *plan,
		    const struct ig_program_limits *limits, struct ig_program **out,
		    struct ig_program_memory *memory, struct ig_error *err);
/* Allocate the memory that lower counted, and pack the weights; pages of the model's file are
 * dropped from memory after packing. */
int ig_program_load(struct ig_program *p, struct ig_error *err);
/* A file with a copy of the packed weights, for later loads (runtime/cpu/packed.h). */
enum ig_packed_result {
	IG_PACKED_NONE,	   /* there is no copy: it could not be written, or the driver makes none */
	IG_PACKED_MAPPED,  /* the weights are those of the file */
	IG_PACKED_WRITTEN, /* they were packed, and the file is new */
};
struct ig_packed_file {
	const char *path;
	/* Of all that the packed bytes depend on: the model's file, the programs, the instruction set, and
	 * ig_program_packed_layout.  A file with another name in it is not used. */
	uint8_t name[16];
	/* what the load did, and if there is no copy, or no usable one was there, why */
	enum ig_packed_result result;
	struct ig_error why;
};
/* A number of how the weights lie in their file, of which *file_bytes are the bytes; 0: the driver makes
 * none. */
uint64_t ig_program_packed_layout(const struct ig_program *p, uint64_t *file_bytes);
/* ig_program_load, but a whole file at f->path is mapped read-only instead of packing, and if there is none,
 * it is written.  f is used until this returns.  A copy that can't be used or written is no error. */
int ig_program_load_packed(struct ig_program *p, struct ig_packed_file *f, struct ig_error *err);
void ig_program_destroy(struct ig_program *p); /* NULL is fine */
/* A step with so many rows computes about as many of them per second as a larger one; 0: not
 * known. */
uint32_t ig_program_split_rows(const struct ig_program *p);
/* The devices or machines over which the program is divided, 0 for one, and *out [that many]: the memory of each,
 * until the program is destroyed.  Of a machine with several devices it is that of each device. */
uint32_t ig_program_ranks(const struct ig_program *p, const struct ig_program_memory **out);
/* The width of rows from outside that its steps may have (struct ig_step, outside); 0: none. */
uint32_t ig_program_outside_width(const struct ig_program *p);

/* Whether plans may have a head that guesses (ig_plan_record_mtp). */
bool ig_driver_takes_mtp(const struct ig_driver *d);
/* Over how many devices the driver divides plans; 1 for most.  What it says of memory, and slabs, are those of
 * each device. */
uint32_t ig_driver_n_ranks(const struct ig_driver *d);
/* A plan's cache groups as a device has them. */
int ig_driver_model_info(const struct ig_driver *d, const struct ig_plan *plan,
			 struct ig_model_info *out, struct ig_error *err);
/* Bytes of device memory that a process should use at most; 0: it uses the host's memory. */
uint64_t ig_driver_memory(const struct ig_driver *d);
/* Whether that memory is the host's, too. */
bool ig_driver_is_unified(const struct ig_driver *d);
/* Have fn(ctx, n_bytes) called, on any thread, when the system is short of memory and n_bytes should
 * be freed, and with 0 when it no longer is.  NULL: after this returns, fn is not called any more.
 * Only Metal's driver is told. */
void ig_driver_watch_memory(struct ig_driver *d, void (*fn)(void *ctx, uint64_t n_bytes),
			    void *ctx);
/* Free up to n_bytes, or a little more, of unmapped slabs that the driver keeps for reuse and that no
 * step in flight may use; returns how many bytes. */
uint64_t ig_driver_release(struct ig_driver *d, uint64_t n_bytes);
/* Any thread: a number that grows while a long step makes progress, if the driver computes on the
 * processors; where a device computes, its driver's own timeout finds a step that does not end. */
uint64_t ig_driver_pulse(const struct ig_driver *d);
/* How many steps should be in flight, 1 … IG_STEPS_IN_FLIGHT: 2 if the device computes one while
 * the host processes the one before. */
uint32_t ig_driver_steps_in_flight(const struct ig_driver *d);

/* 0; -EINVAL for a step beyond the limits; -EBUSY (strict) if IG_STEPS_IN_FLIGHT steps are in
 * flight; -EIO, -ENOMEM or -ETIMEDOUT if the device failed.  ig_program_error has the text.  A
 * step with token_from must directly follow the step whose sampled_ids are its prev_ids.  A
 * failed submit does not affect the steps before it. */
int ig_program_submit(struct ig_program *p, const struct ig_step *step);
/* Wait for the oldest step in flight.  0: its sampled_ids (and ->logits) are written.  After an
 * error no step is in flight and none of them has results.  -ENODEV: the device is lost. */
int ig_program_wait(struct ig_program *p);
/* Nanoseconds that the last submit took for what it has ready from now on (a recording of such steps): no part of the
 * step.  The end of steps that were in flight is seen that much later. */
int64_t ig_program_prepare_ns(const struct ig_program *p);
/* Nanoseconds that the last step took whose wait gave 0: from its submit, or from the end of the step
 * before it, of any program, if that was later. */
int64_t ig_driver_step_ns(const struct ig_driver *d);
/* Why the last submit or wait failed; the text is empty if it succeeded. */
const struct ig_error *ig_program_error(const struct ig_program *p);

/* Memory for the cache's slabs, as struct ig_kv_arena has it; ctx is the driver. */
void *ig_driver_map_slab(void *driver, uint64_t slab_bytes);
void ig_driver_unmap_slab(void *driver, void *base, uint64_t slab_bytes);
void ig_driver_copy(void *driver, void *dst, const void *src, uint64_t n_bytes);
/* Copy bytes of a mapped slab to the host, blocking: of blocks that steps have written which were waited
 * for.  Copy bytes to one: to blocks that no step in flight uses; copies by ig_driver_copy before it come
 * first, also those that wait for the next step.  0, or -errno with text. */
int ig_driver_read_slab(struct ig_driver *d, void *dst, const void *src, uint64_t n_bytes,
			struct ig_error *err);
int ig_driver_write_slab(struct ig_driver *d, void *dst, const void *src, uint64_t n_bytes,
			 struct ig_error *err);
