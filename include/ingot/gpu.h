/*
 * gpu.h: how an op runs on a GPU (the drivers metal and cuda).
 *
 * Kernels are written once, in Metal's language (shaders/), and reach a driver as
 * a struct ig_shader.  When a plan is lowered, each node's op is handed its
 * operands and emits dispatches; the tape of all dispatches is then run for every
 * step.  Nothing of a step is baked into a dispatch: what changes lies in the
 * device's copy of the step buffer (shaders/step.h), and grids follow live counts.
 *
 * Every kernel takes its argument struct as buffer 0, the step as buffer 1, its
 * operands from buffer 2 on, and threadgroup memory, if any, as threadgroup 0.
 */
#ifndef INGOT_GPU_H
#define INGOT_GPU_H

#include <ingot/op.h>

/* One .metal file as drivers load it.  Made by the build; NULL where not built. */
struct ig_shader {
	uint32_t struct_size;
	uint32_t reserved;
	const char *name;   /* "core/linear" */
	const char *source; /* Metal source, our own includes inlined */
	const uint8_t *metallib;
	uint64_t metallib_size;
	const char *ptx_sm80;  /* compute capability 8.0 and up */
	const char *ptx_sm90a; /* 9.0 alone: wgmma */
};

enum ig_gpu_kind {
	IG_GPU_METAL = 1,
	IG_GPU_CUDA = 2,
};

/* What a lowering may ask about the device.  Of one device, always the same. */
struct ig_gpu_facts {
	uint32_t struct_size;
	uint32_t kind;	  /* enum ig_gpu_kind */
	uint32_t arch;	  /* cuda: compute capability * 10 (80, 90, …); metal: 7 = Apple7 */
	uint32_t n_cores; /* multiprocessors, GPU cores; 0: unknown */
	uint32_t max_threadgroup_bytes;
	uint32_t max_threads; /* of a threadgroup */
	uint64_t max_buffer_bytes;
	uint64_t working_set_bytes; /* what the system advises a process to use at most */
	char name[64];
};

/* ---- operands ------------------------------------------------------------------ */

/* A place in the device's memory, known by number until the program is loaded. */
struct ig_gpu_ref {
	int32_t buffer; /* -1: nothing */
	uint32_t reserved;
	uint64_t offset; /* bytes */
};

struct ig_gpu_tensor {
	struct ig_gpu_ref ref; /* buffer -1: optional one left out */
	int64_t n_rows;	       /* weights; 0 for values */
	int64_t n_cols;
	uint64_t row_stride; /* bytes; values' rows begin at multiples of 64 */
	uint32_t dtype;	     /* values: IG_F32, IG_F16 or IG_BF16 */
	uint32_t row_class;  /* values: enum ig_row_class */
};

/* A node as it is lowered.  Weights lie as their file has them (IG_LAYOUT_ROWS), row
 * after row without padding; a tensor begins at a multiple of 32 bytes. */
struct ig_gpu_launch {
	uint32_t struct_size;
	uint32_t n_in, n_weights, n_out;
	const void *params;
	struct ig_gpu_tensor in[IG_MAX_IN];
	struct ig_gpu_tensor weight[IG_MAX_WEIGHTS];
	struct ig_gpu_tensor out[IG_MAX_OUT];
	const struct ig_gpu_facts *facts;
	uint32_t max_rows, max_seqs, max_logit_rows, max_context;
	uint32_t kv_dtype; /* of the cache: IG_F16 or IG_F32 */
	uint32_t f32;	   /* 1: products in float32 were asked for */
	/* Most (row, range) pairs whose partial results attention may keep in a step:
	 * beyond it, and beyond IG_GPU_FEW_ROWS rows, a sequence loops over its ranges. */
	uint32_t max_partials;
	uint32_t reserved;
};

/* Rows of few: products take their few-row kernels up to here, and sequences with
 * at most so many rows in a step have their attention split over ranges. */
#define IG_GPU_FEW_ROWS 16

/* ---- dispatches ------------------------------------------------------------------ */

/* Counts of a step that grids follow and conditions look at. */
enum ig_gpu_live {
	IG_LIVE_ONE = 0, /* always 1 */
	IG_LIVE_ROWS,	 /* tokens */
	IG_LIVE_LOGIT_ROWS,
	IG_LIVE_SEQS,
	IG_LIVE_SPLIT_ROWS,   /* most rows of a sequence whose attention is split; 0: none */
	IG_LIVE_SPLIT_RANGES, /* most ranges of such a sequence */
	IG_LIVE_LOOP_ROWS,    /* most rows of a sequence that loops; 0: none */
	IG_LIVE_COPIES,	      /* copies between cache blocks */
	IG_LIVE_WANT_LOGITS,  /* 1: the host wants the logits too */
	IG_LIVE_DRAWS,	      /* rows that are drawn, not the largest logit: 0, or LOGIT_ROWS */
	IG_N_LIVE,
};

/* A grid's extent in threadgroups: times * ceil(live * mul / div).  On a device
 * that keeps one recording for a range of steps the extent may be larger than the
 * live counts say; kernels look at the step and leave early. */
struct ig_gpu_extent {
	uint32_t live;	   /* enum ig_gpu_live */
	uint32_t mul, div; /* from 1 on */
	uint32_t times;	   /* from 1 on */
};

enum ig_gpu_access {
	IG_GPU_READ = 1,
	IG_GPU_WRITE = 2,
	/* Not handed to the kernel: a hazard that it does not see as a buffer. */
	IG_GPU_TOUCH = 4,
};

/* An operand of a dispatch.  n_bytes: of a value, the bytes of each row from the
 * ref's offset on; of anything else, the bytes from there on.  Dispatches that do
 * not overlap run at the same time. */
struct ig_gpu_bind {
	struct ig_gpu_ref ref;
	uint64_t n_bytes;
	uint32_t access; /* enum ig_gpu_access, or-ed */
	uint32_t reserved;
};

#define IG_GPU_MAX_BINDS 16
#define IG_GPU_MAX_ARGS 256 /* bytes of an argument struct */

/* cuda, compute capability 9.0: an operand that the kernel has copied in boxes, and that it
 * takes as a description of the matrix (a tensor map, by value) instead of an address:
 * n_rows rows of n_cols elements of two bytes, row_bytes apart (a multiple of 16, as the
 * operand's address is), in boxes of 64 columns and box_rows rows.  What lies beyond the matrix is
 * zero.  Of an operand that was left out the description is all zeros. */
struct ig_gpu_box {
	uint32_t bind;	   /* which operand */
	uint32_t box_rows; /* 1 … 256 */
	uint32_t n_rows, n_cols;
	uint64_t row_bytes;
};

#define IG_GPU_MAX_BOXES 5

struct ig_gpu_dispatch {
	uint32_t struct_size;
	uint32_t n_binds;
	const struct ig_shader *shader;
	const char *kernel; /* the instance's name; copied */
	const void *args;   /* copied; a multiple of 4 bytes */
	uint32_t n_arg_bytes;
	uint32_t threads;	    /* of a threadgroup, in one dimension; a multiple of 32 */
	uint32_t threadgroup_bytes; /* a multiple of 16 */
	/* Runs only in steps with when_min <= count of when_live <= when_max. */
	uint32_t when_live, when_min, when_max;
	struct ig_gpu_extent grid[3];
	struct ig_gpu_bind bind[IG_GPU_MAX_BINDS];
	/* cuda, 9.0: threadgroups that run at the same time and see each other's memory; the
	 * grid's x is a multiple of it.  0: each goes alone. */
	uint32_t cluster;
	uint32_t n_boxes;
	struct ig_gpu_box box[IG_GPU_MAX_BOXES];
};

struct ig_gpu_tape;

/* What a lowering calls.  0 or a negative errno; errors stick to the tape. */
struct ig_gpu_host {
	uint32_t struct_size;
	uint32_t reserved;
	int (*dispatch)(struct ig_gpu_tape *t, const struct ig_gpu_dispatch *d);
	/* Scratch that lives until this node is done.  ref->offset is 0. */
	int (*scratch)(struct ig_gpu_tape *t, uint64_t n_bytes, struct ig_gpu_ref *ref);
	/* Constants, uploaded when the program is loaded; copied. */
	int (*constant)(struct ig_gpu_tape *t, const void *data, uint64_t n_bytes,
			struct ig_gpu_ref *ref);
	/* The ids that were drawn: int32 [IG_STEPS_IN_FLIGHT, max_logit_rows], and float
	 * [max_logit_rows, n_vocab], where logits go that the host wants (one a program). */
	int (*ids)(struct ig_gpu_tape *t, struct ig_gpu_ref *ref);
	int (*logits)(struct ig_gpu_tape *t, int64_t n_vocab, struct ig_gpu_ref *ref);
	/* The cache of a group and layer, as a hazard (IG_GPU_TOUCH). */
	int (*kv)(struct ig_gpu_tape *t, uint32_t group, uint32_t layer, struct ig_gpu_ref *ref);
};

struct ig_gpu_op {
	uint32_t struct_size;
	uint32_t flags; /* enum ig_gpu_op_flags */
	/* The element type that in[i] is wanted in, by weights and options: IG_F32,
	 * IG_F16 or IG_BF16.  in[] has no dtype yet.  NULL: IG_F32. */
	uint32_t (*in_dtype)(const struct ig_gpu_launch *c, uint32_t i);
	/* Emit the node's dispatches.  -ENOTSUP with text for what no kernel does. */
	int (*lower)(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
		     struct ig_gpu_tape *t, struct ig_error *err);
};

enum ig_gpu_op_flags {
	IG_GPU_OUT_ANY = 1u << 0, /* out[0] may be of any type that its readers want */
};

#endif
