/*
 * tape.h: the dispatches of a plan, in order, with their barriers.  Ops record dispatches while a
 * plan is lowered (struct ig_gpu_host).  ig_gpu_tape_close places scratch memory and sets the
 * barriers; after that the tape does not change.  Buffers are numbers; a device gets their memory
 * when it creates a program.
 */
#pragma once

#include <ingot/gpu.h>
#include <stdbool.h>

/* What a buffer is. */
enum ig_gpu_buffer_kind {
	IG_GPU_BUFFER_WEIGHTS = 0, /* a view of the model's file, or a copy of it */
	IG_GPU_BUFFER_SCRATCH,	   /* values and ops' scratch, in one allocation */
	IG_GPU_BUFFER_CONSTANT,	   /* constants, in one allocation */
	IG_GPU_BUFFER_IDS,
	IG_GPU_BUFFER_LOGITS,
	IG_GPU_BUFFER_KV, /* only a hazard, never bound */
};

struct ig_gpu_tape_buffer {
	uint32_t kind;	    /* enum ig_gpu_buffer_kind */
	uint32_t row_class; /* of a value */
	uint64_t row_bytes; /* of a value; 0: not a value */
	uint64_t n_bytes;
	uint64_t offset;       /* in its allocation; set by close */
	uint32_t first, last;  /* dispatches that use it; first > last: none does */
	uint32_t group, layer; /* of a KV hazard */
};

/* Values that ranks of a divided plan exchange instead of running a kernel (struct ig_gpu_exchange). */
enum ig_gpu_exchange_kind {
	IG_GPU_NO_EXCHANGE = 0,
	/* bind[i] is the value that rank first_rank + i has written; afterwards all have it. */
	IG_GPU_FETCH,
	/* bind[0] is this rank's part of a sum of all ranks' parts, which goes to bind[1]. */
	IG_GPU_ADD,
};

/* A recorded dispatch; the tape owns kernel and args. */
struct ig_gpu_tape_dispatch {
	struct ig_gpu_dispatch d;
	/* Set by close: everything before must finish first.  If a step does not run this
	 * dispatch, the barrier applies to the next one that it runs (ig_gpu_tape_next). */
	bool barrier;
	uint32_t node;	     /* of the plan; UINT32_MAX: the runtime's own */
	uint32_t exchange;   /* enum ig_gpu_exchange_kind; all but that one: d has no shader */
	uint32_t first_rank; /* of IG_GPU_FETCH */
};

struct ig_gpu_tape {
	struct ig_gpu_tape_dispatch *dispatches;
	uint32_t n_dispatches, cap_dispatches;
	struct ig_gpu_tape_buffer *buffers;
	uint32_t n_buffers, cap_buffers;
	uint8_t *constants; /* initial contents */
	size_t n_constant_bytes, cap_constant_bytes;
	uint64_t scratch_bytes; /* set by close */
	uint32_t max_logit_rows;
	uint32_t
		first_head_node; /* of the plan's head, with which there are guesses, too; 0: it has none */
	int64_t n_vocab;	 /* of the logits buffer; 0: none */
	uint32_t node;		 /* that is being lowered */
	int32_t ids, logits;			     /* buffer numbers, or -1 */
	int status;				     /* first error */
	struct ig_error error;			     /* its text */
	uint32_t max_threads, max_threadgroup_bytes; /* the device's */
	bool closed;
};

/* Bytes of the logits: of max_logit_rows rows, and of as many guesses if there are any. */
static inline uint64_t ig_gpu_tape_logits_bytes(const struct ig_gpu_tape *t)
{
	return (uint64_t)t->max_logit_rows * (t->first_head_node ? 2 : 1) * (uint64_t)t->n_vocab *
	       4;
}
/* Of the ids that are sampled in one slot: a half of rows, a half of guesses (shaders/step.h). */
static inline uint64_t ig_gpu_tape_slot_ids(const struct ig_gpu_tape *t)
{
	return (uint64_t)t->max_logit_rows * 2;
}

/* Whether only steps with the head that guesses run it (IG_LIVE_HEAD). */
static inline bool ig_gpu_tape_of_head(const struct ig_gpu_tape *t,
				       const struct ig_gpu_tape_dispatch *d)
{
	return t->first_head_node && d->node >= t->first_head_node && d->node != UINT32_MAX;
}

/* 0 or -ENOMEM.  Dispatches that exceed the facts are errors. */
int ig_gpu_tape_create(const struct ig_gpu_facts *facts, uint32_t max_logit_rows,
		       struct ig_gpu_tape **out);
void ig_gpu_tape_destroy(struct ig_gpu_tape *t); /* NULL is fine */
/* Add a buffer: of a value with up to max_rows rows of n_cols elements of dtype, whose tensor is
 * returned; or of a weight. */
int ig_gpu_tape_value(struct ig_gpu_tape *t, uint32_t dtype, int64_t n_cols, uint32_t row_class,
		      uint32_t max_rows, struct ig_gpu_tensor *out);
int ig_gpu_tape_weight(struct ig_gpu_tape *t, uint64_t n_bytes, struct ig_gpu_ref *out);
/* Add an exchange of values, which have the same rows and float32; one at a time runs, in the order of the
 * tape. */
int ig_gpu_tape_exchange(struct ig_gpu_tape *t, uint32_t kind, uint32_t first_rank,
			 const struct ig_gpu_bind *binds, uint32_t n_binds, uint32_t row_class);
/* The functions for ops.  A bind with buffer -1 is an omitted operand: the kernel's parameter is
 * unset. */
extern const struct ig_gpu_host ig_gpu_tape_host;
/* Place scratch memory and set barriers.  Returns the tape's status, with text. */
int ig_gpu_tape_close(struct ig_gpu_tape *t, struct ig_error *err);

/* Compute the grid of a dispatch for these live counts; false: it does not run.  That it may be of the head is for
 * the caller. */
bool ig_gpu_dispatch_grid(const struct ig_gpu_dispatch *d, const uint32_t live[IG_N_LIVE],
			  uint32_t grid[3]);
/* The next dispatch that a step runs, starting at number *at (0 at first), which is advanced:
 * its number, its grid and whether a barrier precedes it.  UINT32_MAX: there are no more. */
uint32_t ig_gpu_tape_next(const struct ig_gpu_tape *t, const uint32_t live[IG_N_LIVE], uint32_t *at,
			  uint32_t grid[3], bool *barrier);
