/* gpu_private.h: the parts of the GPU driver: packed steps, slabs, weights and the program. */
#pragma once

#include "runtime/driver_private.h"
#include "runtime/gpu/device.h"

#include <stdbool.h>

/* ---- slabs of the cache (slabs.c) ------------------------------------------------- */

/* Slabs are known by their device address, which only kernels dereference. */
struct ig_gpu_slab {
	uint64_t address, n_bytes;
	struct ig_gpu_buffer *buffer;
	uint64_t retired; /* number of the last submission when it was unmapped */
};

/* For the engine's thread. */
struct ig_gpu_slabs {
	struct ig_gpu_device *device;
	struct ig_gpu_slab *mapped; /* [n_mapped], sorted by address */
	uint32_t n_mapped;
	struct ig_gpu_slab *idle; /* [n_idle] unmapped by the engine, for reuse */
	uint32_t n_idle;
	uint32_t cap; /* capacity of each array */
};

/* The mapped slab that contains these bytes, or NULL. */
const struct ig_gpu_slab *ig_gpu_slabs_find(const struct ig_gpu_slabs *s, uint64_t address,
					    uint64_t n_bytes);
/* The address of an idle slab of that size or of a new one; 0: no memory. */
uint64_t ig_gpu_slabs_map(struct ig_gpu_slabs *s, uint64_t n_bytes, uint64_t done);
void ig_gpu_slabs_unmap(struct ig_gpu_slabs *s, uint64_t address, uint64_t submitted);
/* Free idle slabs that no submission after number `done` uses, up to n_bytes. */
uint64_t ig_gpu_slabs_release(struct ig_gpu_slabs *s, uint64_t n_bytes, uint64_t done);
void ig_gpu_slabs_finish(struct ig_gpu_slabs *s);

/* ---- the step (step.c) ------------------------------------------------------------ */

/* The most copies between blocks that wait for the next step. */
#define IG_GPU_MAX_COPIES 256

struct ig_gpu_copy {
	uint64_t dst, src, n_bytes;
};

/* What packing needs to know about a program. */
struct ig_gpu_step_shape {
	struct ig_program_limits limits; /* max_slabs filled in */
	struct ig_model_info info;
	uint32_t max_partials, max_adjusts, max_masks;
	uint32_t max_segments; /* of a step of a plan with groups of state */
	uint64_t area_bytes;   /* the largest step */
	uint64_t *slab_bytes;  /* [max_slabs] sizes of the slabs of this step; others 0 */
	uint32_t *slabs_seen;  /* [max_slabs] numbers of the slabs of this step */
	uint32_t n_slabs_seen;
	const uint64_t
		*outside; /* [n_rows] of the next step: see struct ig_gpu_outside; NULL: none */
};

/* 0, -ENOMEM, or -ENOTSUP if the limits make a step too large. */
int ig_gpu_step_init(struct ig_gpu_step_shape *s, const struct ig_model_info *info,
		     const struct ig_program_limits *limits, uint32_t max_partials,
		     struct ig_error *err);
void ig_gpu_step_finish(struct ig_gpu_step_shape *s);
/* Write the step to area [area_bytes] and set out, for slot out->slot; `prev` is the slot of the
 * previous step's ids.  -EINVAL with text for a step that kernels must not get. */
int ig_gpu_step_pack(struct ig_gpu_step_shape *s, const struct ig_step *step, uint32_t prev,
		     const struct ig_gpu_slabs *slabs, void *area, struct ig_gpu_submission *out,
		     struct ig_error *err);
/* The counts of the i-th kind of step that programs of models usually run; false: there are no more. */
bool ig_gpu_step_usual(const struct ig_gpu_step_shape *s, bool has_head, uint32_t i,
		       uint32_t live[IG_N_LIVE]);
/* A step that only has copies; n is at most IG_GPU_MAX_COPIES. */
#define IG_GPU_COPY_AREA_BYTES (256u + IG_GPU_MAX_COPIES * 24u)
void ig_gpu_step_pack_copies(const struct ig_gpu_copy *copies, uint32_t n, void *area,
			     struct ig_gpu_submission *out);

/* ---- rows that are no token's (outside.c) ------------------------------------------ */

/* For the engine's thread. */
struct ig_gpu_outside {
	struct ig_gpu_device *device;
	uint32_t width;	     /* floats of a row; 0: the plan takes none */
	uint64_t *addresses; /* [max_rows] of the rows in device memory; 0: it is a token's */
	struct ig_gpu_buffer *buffers[IG_STEPS_IN_FLIGHT]; /* by slot; NULL: not needed yet */
	uint64_t n_bytes[IG_STEPS_IN_FLIGHT];
};

int ig_gpu_outside_init(struct ig_gpu_outside *o, struct ig_gpu_device *d, uint32_t width,
			uint32_t max_rows, struct ig_error *err);
/* No step may be in flight. */
void ig_gpu_outside_finish(struct ig_gpu_outside *o);
/* Copy the step's rows to the memory of a slot that is not in flight; *addresses [n_rows] is valid until the
 * next call, NULL if the step has none. */
int ig_gpu_outside_write(struct ig_gpu_outside *o, const struct ig_step *s, uint32_t slot,
			 const uint64_t **addresses, struct ig_error *err);

/* ---- weights (weights.c) ---------------------------------------------------------- */

/* Device memory for weights: a view of the file, or memory for copies. */
struct ig_gpu_view {
	const uint8_t *base; /* in the mapped file; NULL: copies */
	uint64_t n_bytes;
	struct ig_gpu_buffer *buffer; /* after load */
};

struct ig_gpu_weight {
	int32_t buffer; /* of the tape; -1: no op uses the weight */
	uint32_t view;
	uint64_t offset;  /* in the view */
	uint64_t n_bytes; /* in its layout */
	uint32_t layout;  /* enum ig_gpu_layout */
};

struct ig_gpu_weights {
	const struct ig_plan *plan;
	struct ig_gpu_weight *weights; /* [plan->n_weights] */
	struct ig_gpu_view *views;
	uint32_t n_views;
	uint64_t n_bytes; /* sum of all views */
};

int ig_gpu_weights_init(struct ig_gpu_weights *w, const struct ig_plan *plan, struct ig_error *err);
/* Assign each used weight to a view. */
int ig_gpu_weights_place(struct ig_gpu_weights *w, struct ig_gpu_device *d, struct ig_error *err);
int ig_gpu_weights_load(struct ig_gpu_weights *w, struct ig_gpu_device *d, struct ig_error *err);
void ig_gpu_weights_finish(struct ig_gpu_weights *w, struct ig_gpu_device *d);

/* ---- tiles (repack.c) ------------------------------------------------------------- */

/* Rows of blocks in a buffer to tiles in another one; both begin at multiples of 32 bytes.
 * Blocking. */
int ig_gpu_repack(struct ig_gpu_device *d, uint32_t dtype, int64_t n_rows, int64_t k,
		  struct ig_gpu_place from, struct ig_gpu_place to, struct ig_error *err);

/* ---- the driver ------------------------------------------------------------------- */

/* A slot of a device's program. */
struct ig_gpu_flight {
	bool busy;	 /* submitted, and not known to be finished */
	uint64_t number; /* of the submission */
};

struct ig_gpu_driver {
	struct ig_driver base;
	struct ig_gpu_device *device;
	bool f32; /* activations stay float32 */
	uint32_t strict;
	char text[160];
	/* Engine's thread: */
	bool lost; /* the device is lost; see error */
	struct ig_error error;
	struct ig_gpu_slabs slabs;
	uint64_t submitted, done; /* last submission, and last finished one, of all programs */
	struct ig_gpu_copy copies[IG_GPU_MAX_COPIES]; /* pending until the next step */
	uint32_t n_copies;
	struct ig_error copy_error; /* of a copy that could not be queued */
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
	struct ig_gpu_outside outside;
	/* After load: */
	struct ig_gpu_place *places; /* [tape->n_buffers] */
	struct ig_gpu_buffer *scratch, *constants, *ids, *logits;
	struct ig_gpu_program *program;
	/* Engine's thread: */
	struct ig_gpu_flight flights[IG_STEPS_IN_FLIGHT];
	uint32_t next_slot, oldest_slot;
	uint32_t prev_slot; /* slot of the ids that the next step may read */
};

/* Lower the plan to p->tape, place the weights, compute the step's size (lower.c). */
int ig_gpu_lower_plan(struct ig_gpu_lowered *p, const struct ig_plan *plan, struct ig_error *err);

/* What ranks exchange (ranks.c).  value: the tensors of the plan's values, by number. */
static inline uint32_t ig_gpu_rows_of(const struct ig_program_limits *limits, uint32_t row_class)
{
	return row_class == IG_ROWS_TOKENS ? limits->max_rows : limits->max_logit_rows;
}
/* Before the node: memory for the parts of other ranks that it reads, and their exchange. */
int ig_gpu_fetch_parts(struct ig_gpu_tape *t, const struct ig_plan *plan,
		       const struct ig_plan_node *n, const struct ig_program_limits *limits,
		       struct ig_gpu_tensor *value);
/* Whether the node adds the parts of two ranks, for which no part is fetched: the exchange adds them,
 * and a sum of two has one order. */
bool ig_gpu_adds_ranks(const struct ig_plan *plan, const struct ig_plan_node *n);
int ig_gpu_emit_sum_of_ranks(struct ig_gpu_tape *t, const struct ig_plan *plan,
			     const struct ig_plan_node *n, const struct ig_program_limits *limits,
			     struct ig_gpu_tensor *value);

/* The runtime's own kernels (kernels.c): conversions from float32 to another element type, and
 * copies between cache blocks. */
int ig_gpu_emit_convert(struct ig_gpu_tape *t, const struct ig_gpu_tensor *from,
			const struct ig_gpu_tensor *to);
int ig_gpu_emit_copies(struct ig_gpu_tape *t);

/* The functions of a driver for a device class. */
int ig_gpu_driver_open(const struct ig_gpu_device_class *device,
		       const struct ig_driver_class *class, const struct ig_driver_options *o,
		       struct ig_driver **out, struct ig_error *err);
/* The same for o->devices, over several of which plans are divided (together.c). */
int ig_gpu_driver_open_all(const struct ig_gpu_device_class *device,
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
int ig_gpu_read_slab(struct ig_driver *d, void *dst, const void *src, uint64_t n_bytes,
		     struct ig_error *err);
int ig_gpu_write_slab(struct ig_driver *d, void *dst, const void *src, uint64_t n_bytes,
		      struct ig_error *err);
uint64_t ig_gpu_memory(const struct ig_driver *d);
bool ig_gpu_is_unified(const struct ig_driver *d);
void ig_gpu_watch_memory(struct ig_driver *d, void (*fn)(void *ctx, uint64_t n_bytes), void *ctx);
uint64_t ig_gpu_release(struct ig_driver *d, uint64_t n_bytes);
