/*
 * wire.h: what the ranks of one model say to each other about a step.  Rank 0 cuts a step by rows into parts,
 * which are steps of their own (a row's bits do not depend on the rows beside it), and sends each part to
 * all other ranks as one message; rows of float32 go from each rank to the next, and the last one answers
 * with the tokens.  What is read is checked before it is used: counts against the program's limits, sizes against
 * the message's, ids against the vocabulary; what a driver checks of each step (runtime/driver.c), and
 * blocks (part.c), are checked there.
 */
#pragma once

#include "runtime/driver.h"
#include "runtime/machines/link.h"

/* Kinds of messages. */
enum ig_wire {
	/* IG_CHANNEL_COMMANDS */
	IG_WIRE_LOWER = 1, /* struct ig_wire_lower */
	IG_WIRE_LOAD,	   /* uint32_t program, also in the next one */
	IG_WIRE_DESTROY,
	IG_WIRE_MAP,   /* struct ig_wire_slab_bytes */
	IG_WIRE_UNMAP, /* the same */
	IG_WIRE_COPY,  /* struct ig_wire_copy */
	IG_WIRE_STEP,
	IG_WIRE_END,
	/* IG_CHANNEL_REPLIES */
	IG_WIRE_REPLY, /* struct ig_wire_reply */
	/* IG_CHANNEL_ROWS, IG_CHANNEL_RESULTS: struct ig_wire_part, then rows of float32, or ids (int32_t, an
	 * even number of them, the last one meaningless) and logits of float32 */
	IG_WIRE_ROWS,
	IG_WIRE_IDS,
	IG_WIRE_FAILED, /* struct ig_wire_reply, of a step */
};

#define IG_WIRE_MAX_PROGRAMS 64u

struct ig_wire_lower {
	uint32_t program, reserved;
	uint64_t model; /* ig_wire_model */
	struct ig_program_limits limits;
	char name[256]; /* the last part of the model's path, with its NUL */
};

struct ig_wire_reply {
	uint32_t program;
	int32_t code;
	struct ig_program_memory memory;
	char text[400]; /* with its NUL */
};

struct ig_wire_slab_bytes {
	uint32_t slab, reserved;
	uint64_t n_bytes;
};

struct ig_wire_copy {
	uint32_t to, from; /* slabs */
	uint64_t to_offset, from_offset, n_bytes;
};

struct ig_wire_part {
	uint32_t program, number;
	uint32_t n_rows, n_cols;
};

/* Ids that lie in a message of results before its logits, for so many rows. */
static inline size_t ig_wire_n_ids(uint32_t n_rows) { return ((size_t)n_rows + 1) & ~(size_t)1; }

struct ig_wire_slab {
	uint32_t number; /* in block words */
	uint32_t slab;	 /* of IG_WIRE_MAP */
};

/* What both sides know of a program. */
struct ig_wire_program {
	uint32_t number;
	uint32_t n_vocab;
	uint32_t n_groups;
	uint32_t n_parts[IG_MAX_CACHE_GROUPS]; /* of groups of state; 0: of another kind */
	struct ig_program_limits limits;
};

/* A part of a step, whose arrays lie in its message. */
struct ig_wire_step {
	uint32_t number;
	bool wants_logits;
	struct ig_step step;
	struct ig_step_kv kv[IG_MAX_CACHE_GROUPS];
	const struct ig_kv_layout *layouts; /* [n_groups] as rank 0 has them */
	const struct ig_wire_slab *slabs;   /* [n_slabs] */
	uint32_t n_slabs;
};

/* Of the file: its tensors' names, types, shapes and first bytes; equal files have equal numbers. */
uint64_t ig_wire_model(const struct ig_checkpoint *file);

/* Where a part that begins at this row ends: after about n_rows, and where the model has states at the end
 * of a sequence. */
uint32_t ig_wire_part_end(const struct ig_wire_program *p, const struct ig_step *s, uint32_t first,
			  uint32_t n_rows);
/* -ENOTSUP with text for what no message has: tokens of another step, adapters, types, guesses, embeddings
 * from outside. */
int ig_wire_check(const struct ig_step *s, struct ig_error *err);
/* Rows first … end - 1 of a step as a message.  slab_of(ctx, base) is the number of the slab at this address.
 * NULL: no memory, or it would be too large. */
struct ig_message *ig_wire_write_step(const struct ig_wire_program *p, uint32_t number,
				      const struct ig_step *s, uint32_t first, uint32_t end,
				      uint32_t (*slab_of)(void *ctx, const void *base), void *ctx);
/* The first number of a step's message, its program; UINT32_MAX: it is too short. */
uint32_t ig_wire_program_of(const struct ig_message *m);
/* The message must outlive *out. -EPROTO with text for one that is not whole, or not of this program. */
int ig_wire_read_step(const struct ig_wire_program *p, const struct ig_message *m,
		      struct ig_wire_step *out, struct ig_error *err);
