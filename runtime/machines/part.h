/*
 * part.h: a rank's part of a model: a stage of its plan (runtime/stages.h), lowered for the rank's own driver, and the
 * rank's slabs of the cache.  Both sides have it: rank 0 its first stage, the workers theirs.  A part runs messages of
 * steps (wire.h).  One thread calls these functions for a part while it computes.
 */
#pragma once

#include "runtime/machines/wire.h"

struct ig_part;

/* The slabs of a rank, by the numbers that rank 0 gave them. */
struct ig_part_slabs {
	struct ig_driver *driver;
	struct ig_part_slab {
		void *base; /* NULL: there is none */
		uint64_t n_bytes;
	} *at; /* [cap] */
	uint32_t cap;
};
#define IG_PART_MAX_SLABS (1u << 20)

/* 0; -ENOMEM; -EPROTO for a number that is in use, or is not. */
int ig_part_map(struct ig_part_slabs *s, uint32_t slab, uint64_t n_bytes, struct ig_error *err);
int ig_part_unmap(struct ig_part_slabs *s, uint32_t slab, struct ig_error *err);
int ig_part_copy(struct ig_part_slabs *s, const struct ig_wire_copy *c, struct ig_error *err);
void ig_part_unmap_all(struct ig_part_slabs *s);

/* How a rank computes the strides of a layout, with its own cache service (struct ig_kvcache_service). */
typedef int ig_part_layout(void *ctx, struct ig_kv_layout *l, struct ig_error *err);

/* `whole` must outlive the part.  n_stages at least 2.  layout NULL: steps' messages have the rank's own layouts. */
int ig_part_lower(struct ig_driver *driver, const struct ig_plan *whole, uint32_t n_stages,
		  uint32_t stage, uint32_t number, const struct ig_program_limits *limits,
		  ig_part_layout *layout, void *layout_ctx, struct ig_part **out,
		  struct ig_program_memory *memory, struct ig_error *err);
int ig_part_load(struct ig_part *p, struct ig_error *err);
void ig_part_destroy(struct ig_part *p); /* NULL is fine */
const struct ig_wire_program *ig_part_program(const struct ig_part *p);

/* Compute a part of a step.  rows: the message from the stage before; NULL: this is the first stage.  *out: a
 * message for the next stage (IG_WIRE_ROWS), or of the last one's results (IG_WIRE_IDS).  -EPROTO with text if a
 * message is wrong, else as ig_program_submit and ig_program_wait. */
int ig_part_run(struct ig_part *p, const struct ig_part_slabs *slabs, const struct ig_message *step,
		const struct ig_message *rows, struct ig_message **out, struct ig_error *err);
