/*
 * gpu_private.h: the parts of the driver for GPUs: the packed step, slabs, weights and
 * the program that holds them together.
 */
#pragma once

#include "runtime/driver_private.h"
#include "runtime/gpu/device.h"

#include <stdbool.h>

/* ---- slabs of the cache (slabs.c) ------------------------------------------------- */

/* The engine's address of a slab is the device's: nobody but kernels follows it. */
struct ig_gpu_slab {
	uint64_t address, n_bytes;
	struct ig_gpu_buffer *buffer;
	uint64_t retired; /* number of the last submission when it was given back */
};

/* Engine's thread. */
struct ig_gpu_slabs {
	struct ig_gpu_device *device;
	struct ig_gpu_slab *mapped; /* [n_mapped], by address */
	uint32_t n_mapped;
	struct ig_gpu_slab *idle; /* [n_idle] given back by the engine, kept for the next */
	uint32_t n_idle;
	uint32_t cap; /* of each array */
};

/* The slab that holds these bytes, or NULL. */
const struct ig_gpu_slab *ig_gpu_slabs_find(const struct ig_gpu_slabs *s, uint64_t address,
					    uint64_t n_bytes);
/* An idle slab of that size or a new one; 0 when there is no memory. */
uint64_t ig_gpu_slabs_map(struct ig_gpu_slabs *s, uint64_t n_bytes, uint64_t done);
void ig_gpu_slabs_unmap(struct ig_gpu_slabs *s, uint64_t address, uint64_t submitted);
/* Free idle slabs that no submission after number `done` can touch, up to n_bytes. */
void ig_gpu_slabs_release(struct ig_gpu_slabs *s, uint64_t n_bytes, uint64_t done);
void ig_gpu_slabs_finish(struct ig_gpu_slabs *s);

/* ---- the step (step.c) ------------------------------------------------------------ */

/* Copies between blocks that wait for the next step. */
#define IG_GPU_MAX_COPIES 256

struct ig_gpu_copy {
	uint64_t dst, src, n_bytes;
};

/* What packing has to know of a program. */
struct ig_gpu_step_shape {
	struct ig_program_limits limits; /* kv_dtype and max_slabs filled in */
	struct ig_model_info info;
	uint32_t max_partials, max_edits;
	uint64_t area_bytes;  /* the largest step */
	uint64_t *slab_bytes; /* [max_slabs] of the slabs seen in this step; else 0 */
	uint32_t *slabs_seen; /* [max_slabs] their numbers */
	uint32_t n_slabs_seen;
};

/* 0, -ENOMEM, or -ENOTSUP when the limits make a step too large. */
int ig_gpu_step_init(struct ig_gpu_step_shape *s, const struct ig_model_info *info,
		     const struct ig_program_limits *limits, uint32_t max_partials,
		     struct ig_error *err);
void ig_gpu_step_finish(struct ig_gpu_step_shape *s);
/* Write the step to area [area_bytes] and fill in out, for slot out->slot and the ids
 * of the step in slot `prev`.  -EINVAL with text for what no kernel may see. */
int ig_gpu_step_pack(struct ig_gpu_step_shape *s, const struct ig_step *step, uint32_t prev,
		     const struct ig_gpu_slabs *slabs, void *area, struct ig_gpu_submission *out,
		     struct ig_error *err);
/* A step of nothing but copies; n is at most IG_GPU_MAX_COPIES. */
#define IG_GPU_COPY_AREA_BYTES (224u + IG_GPU_MAX_COPIES * 24u)
void ig_gpu_step_pack_copies(const struct ig_gpu_copy *copies, uint32_t n, void *area,
			     struct ig_gpu_submission *out);

/* ---- weights (weights.c) ---------------------------------------------------------- */

/* One piece of device memory: a view of the file, or memory that weights are copied to. */
struct ig_gpu_view {
	const uint8_t *base; /* of the file's bytes; NULL: a copy */
	uint64_t n_bytes;
	struct ig_gpu_buffer *buffer; /* after load */
};

struct ig_gpu_weight {
	int32_t buffer; /* of the tape; -1: the plan's weight is not used */
	uint32_t view;
	uint64_t offset; /* in the view */
};

struct ig_gpu_weights {
	const struct ig_plan *plan;
	struct ig_gpu_weight *weights; /* [plan->n_weights] */
	struct ig_gpu_view *views;
	uint32_t n_views;
	uint64_t n_bytes; /* of all views */
};

int ig_gpu_weights_init(struct ig_gpu_weights *w, const struct ig_plan *plan, struct ig_error *err);
/* Decide where each used weight lies. */
int ig_gpu_weights_place(struct ig_gpu_weights *w, struct ig_gpu_device *d, struct ig_error *err);
int ig_gpu_weights_load(struct ig_gpu_weights *w, struct ig_gpu_device *d, struct ig_error *err);
void ig_gpu_weights_finish(struct ig_gpu_weights *w, struct ig_gpu_device *d);

/* ---- the driver ------------------------------------------------------------------- */

/* A slot of a device's program. */
struct ig_gpu_flight {
	bool busy;	 /* submitted, and the device has not been seen to finish it */
	uint64_t number; /* of the submission */
};

struct ig_gpu_driver {
	struct ig_driver base;
	struct ig_gpu_device *device;
	bool f32; /* activations stay float32 */
	uint32_t strict;
	char text[160];
	/* Engine's thread: */
	bool lost; /* the device is gone for good; error says how */
	struct ig_error error;
	struct ig_gpu_slabs slabs;
	uint64_t submitted, done; /* numbers of submissions of all programs, in order */
	struct ig_gpu_copy copies[IG_GPU_MAX_COPIES]; /* that wait for the next step */
	uint32_t n_copies;
	struct ig_error copy_error; /* of copies that could not be queued */
	struct ig_gpu_tape *copy_tape;
	struct ig_gpu_program *copy_program;
	struct ig_gpu_flight copy_flights[IG_STEPS_IN_FLIGHT];
	uint32_t copy_slot; /* the next one */
};

/* A plan lowered for a GPU. */
struct ig_gpu_lowered {
	struct ig_program base;
	struct ig_gpu_driver *driver;
	struct ig_gpu_tape *tape;
	struct ig_gpu_weights weights;
	struct ig_gpu_step_shape shape;
	/* After load: */
	struct ig_gpu_place *places; /* [tape->n_buffers] */
	struct ig_gpu_buffer *scratch, *constants, *ids, *logits;
	struct ig_gpu_program *program;
	/* Engine's thread: */
	struct ig_gpu_flight flights[IG_STEPS_IN_FLIGHT];
	uint32_t next_slot, oldest_slot;
	uint32_t prev_slot; /* whose ids the next step may take */
};

/* Lower the plan into p->tape, place weights, size the step (lower.c). */
int ig_gpu_lower_plan(struct ig_gpu_lowered *p, const struct ig_plan *plan, struct ig_error *err);

/* The runtime's own kernels (kernels.c): from float32 to another element type, and
 * copies between cache blocks. */
int ig_gpu_emit_convert(struct ig_gpu_tape *t, const struct ig_gpu_tensor *from,
			const struct ig_gpu_tensor *to);
int ig_gpu_emit_copies(struct ig_gpu_tape *t);

/* How a driver over a device opens; the class is the driver's own. */
int ig_gpu_driver_open(const struct ig_gpu_device_class *device,
		       const struct ig_driver_class *class, const struct ig_driver_options *o,
		       struct ig_driver **out, struct ig_error *err);
void ig_gpu_driver_close(struct ig_driver *d);
const char *ig_gpu_driver_describe(const struct ig_driver *d);
int ig_gpu_driver_lower(struct ig_driver *d, const struct ig_plan *plan,
			const struct ig_program_limits *limits, struct ig_program **out,
			struct ig_program_memory *memory, struct ig_error *err);
int ig_gpu_program_load(struct ig_program *p, struct ig_error *err);
void ig_gpu_program_destroy(struct ig_program *p);
int ig_gpu_program_submit(struct ig_program *p, const struct ig_step *step);
int ig_gpu_program_wait(struct ig_program *p);
void *ig_gpu_map_slab(struct ig_driver *d, uint64_t slab_bytes);
void ig_gpu_unmap_slab(struct ig_driver *d, void *base, uint64_t slab_bytes);
void ig_gpu_copy(struct ig_driver *d, void *dst, const void *src, uint64_t n_bytes);
uint64_t ig_gpu_memory(const struct ig_driver *d);
