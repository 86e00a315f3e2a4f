/*
 * tape.h: the dispatches of a plan, in order, with their barriers.
 *
 * Ops record into it while a plan is lowered (struct ig_gpu_host); ig_gpu_tape_close
 * places scratch and finds out where a barrier must stand.  After that it does not
 * change.  Buffers are numbers; a device learns where they lie when its program is
 * made.
 */
#pragma once

#include <ingot/gpu.h>
#include <stdbool.h>

/* What a buffer number stands for. */
enum ig_gpu_buffer_kind {
	IG_GPU_BUFFER_WEIGHTS = 0, /* a view of the model's file, or a copy of it */
	IG_GPU_BUFFER_SCRATCH,	   /* values and the ops' scratch: one piece of memory */
	IG_GPU_BUFFER_CONSTANT,	   /* all constants: one piece */
	IG_GPU_BUFFER_IDS,
	IG_GPU_BUFFER_LOGITS,
	IG_GPU_BUFFER_KV, /* a hazard only, never bound */
};

struct ig_gpu_tape_buffer {
	uint32_t kind;	    /* enum ig_gpu_buffer_kind */
	uint32_t row_class; /* scratch that is a value: rows are live */
	uint64_t row_bytes; /* of a value; 0: not a value */
	uint64_t n_bytes;
	uint64_t offset;       /* in the scratch or the constants, after close */
	uint32_t first, last;  /* dispatches that use it; first > last: none does */
	uint32_t group, layer; /* of a KV hazard */
};

/* A dispatch as recorded: kernel, args and binds are the tape's own. */
struct ig_gpu_tape_dispatch {
	struct ig_gpu_dispatch d;
	/* After close: everything before must be done first.  Where such a dispatch does
	 * not run in a step, its barrier stands before the next one that does
	 * (ig_gpu_tape_next). */
	bool barrier;
	uint32_t node; /* of the plan; UINT32_MAX: the runtime's own */
};

struct ig_gpu_tape {
	struct ig_gpu_tape_dispatch *dispatches;
	uint32_t n_dispatches, cap_dispatches;
	struct ig_gpu_tape_buffer *buffers;
	uint32_t n_buffers, cap_buffers;
	uint8_t *constants; /* initial contents */
	uint64_t n_constant_bytes, cap_constant_bytes;
	uint64_t scratch_bytes; /* after close */
	uint32_t max_logit_rows;
	int64_t n_vocab;			     /* of the logits buffer; 0: none */
	uint32_t node;				     /* being lowered */
	int32_t ids, logits;			     /* buffer numbers, or -1 */
	int status;				     /* first error */
	struct ig_error error;			     /* its text */
	uint32_t max_threads, max_threadgroup_bytes; /* the device's */
	bool closed;
};

/* 0 or -ENOMEM.  Dispatches beyond what the facts allow are refused. */
int ig_gpu_tape_create(const struct ig_gpu_facts *facts, uint32_t max_logit_rows,
		       struct ig_gpu_tape **out);
void ig_gpu_tape_destroy(struct ig_gpu_tape *t); /* NULL is fine */
/* A value's buffer: rows of n_cols elements of dtype, at most max_rows; its
 * row_stride in bytes comes back.  Or a weight's. */
int ig_gpu_tape_value(struct ig_gpu_tape *t, uint32_t dtype, int64_t n_cols, uint32_t row_class,
		      uint32_t max_rows, struct ig_gpu_tensor *out);
int ig_gpu_tape_weight(struct ig_gpu_tape *t, uint64_t n_bytes, struct ig_gpu_ref *out);
/* Functions that ops are handed.  A bind whose ref is -1 is an operand left out: the
 * kernel's place stays empty. */
extern const struct ig_gpu_host ig_gpu_tape_host;
/* Place scratch, find barriers.  The tape's status, with text. */
int ig_gpu_tape_close(struct ig_gpu_tape *t, struct ig_error *err);

/* The grid of a dispatch for these live counts; false: it does not run. */
bool ig_gpu_dispatch_grid(const struct ig_gpu_dispatch *d, const uint32_t live[IG_N_LIVE],
			  uint32_t grid[3]);
/* The next dispatch of a step, from number *at (0 at first) on: its number, its grid and
 * whether a barrier stands before it; *at is then behind it.  UINT32_MAX: that was all. */
uint32_t ig_gpu_tape_next(const struct ig_gpu_tape *t, const uint32_t live[IG_N_LIVE], uint32_t *at,
			  uint32_t grid[3], bool *barrier);
