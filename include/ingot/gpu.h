/*
 * gpu.h: how an op runs on a GPU (the drivers metal and cuda).
 *
 * Kernels are written once, in the Metal Shading Language (shaders/); a driver gets them as a
 * struct ig_shader.  When a plan is lowered, each node's op gets its operands and emits
 * dispatches.  The tape of all dispatches is then executed for every step.  A dispatch contains
 * nothing of a particular step: variable data is in the device's copy of the step buffer
 * (shaders/step.h), and grids depend on the step's live counts.
 *
 * Every kernel takes its argument struct as buffer 0, the step buffer as buffer 1, operands
 * from buffer 2 on, and threadgroup memory, if any, as threadgroup 0.
 */
#ifndef INGOT_GPU_H
#define INGOT_GPU_H

#include <ingot/op.h>
#include <stdbool.h>

/* A kernel's PTX, which compiles alone: a program compiles what it uses.  Compressed (RFC 1950): as
 * text it is ten to twenty times as large. */
struct ig_ptx {
	const char *kernel;
	const uint8_t *zlib;
	uint32_t n_bytes, n_text;
};

/* One .metal file, compiled by the build.  A variant that was not built is NULL. */
struct ig_shader {
	uint32_t struct_size;
	/* 1: with TILE_TENSOR defined the source has kernels for the tensor units of Apple's GPUs, in Metal 4's
	 * language, in place of those for simdgroup matrices */
	uint32_t tensor;
	const char *name;   /* "core/linear" */
	const char *source; /* Metal source with Ingot's includes inlined */
	const uint8_t *metallib;
	uint64_t metallib_size;
	const struct ig_ptx *ptx_sm80;	/* compute capability 8.0 or later */
	const struct ig_ptx *ptx_sm90a; /* compute capability 9.0 only: wgmma */
	uint32_t n_sm80, n_sm90a;	/* kernels */
};

enum ig_gpu_kind {
	IG_GPU_METAL = 1,
	IG_GPU_CUDA = 2,
};

/* What a lowering may know about the device.  Constant for one device. */
struct ig_gpu_facts {
	uint32_t struct_size;
	uint32_t kind;	  /* enum ig_gpu_kind */
	uint32_t arch;	  /* cuda: compute capability * 10 (80, 90, …); metal: 7 = Apple7 */
	uint32_t n_cores; /* streaming multiprocessors or GPU cores; 0: unknown */
	uint32_t max_threadgroup_bytes;
	uint32_t max_threads; /* of a threadgroup */
	uint64_t max_buffer_bytes;
	uint64_t working_set_bytes; /* the most that the system recommends for one process */
	char name[64];
	uint32_t tiles; /* 1: there are kernels for weights in tiles (IG_GPU_TILES) */
	/* cuda: clusters of 2, 4 and 8 threadgroups that run at once, if each threadgroup needs all of a
	 * multiprocessor's memory; 0: unknown.  Fewer than n_cores / 8 of eight: a cluster lies in one
	 * group of multiprocessors, and those are not all of one size. */
	uint32_t n_clusters[3];
	uint32_t
		tensor_units; /* metal: 1: shaders that have kernels for tensor units are compiled with them */
};

/* ---- operands ------------------------------------------------------------------ */

/* A place in device memory.  Buffers are numbers until the program is loaded. */
struct ig_gpu_ref {
	int32_t buffer; /* -1: none */
	uint32_t reserved;
	uint64_t offset; /* bytes */
};

/* The layouts of a weight. */
enum ig_gpu_layout {
	IG_GPU_ROWS = 0,  /* the file's: rows without padding */
	IG_GPU_TILES = 1, /* shaders/core/tiles.h; only for ops whose tiles() agrees */
};

struct ig_gpu_tensor {
	struct ig_gpu_ref ref; /* buffer -1: an omitted optional operand */
	int64_t n_rows;	       /* weights; 0 for values */
	int64_t n_cols;
	/* Bytes; rows of values start at multiples of 64.  In tiles: a sixteenth of what sixteen
	 * rows have. */
	uint64_t row_stride;
	uint32_t dtype;	    /* values: IG_F32, IG_F16 or IG_BF16 */
	uint32_t row_class; /* values: enum ig_row_class */
	uint32_t layout;    /* weights: enum ig_gpu_layout */
	uint32_t reserved;
};

/* An RMS norm whose result only nodes read that can compute it themselves, for steps of few rows: a dispatch less,
 * and no wait for it. */
struct ig_gpu_norm {
	struct ig_gpu_tensor x, w; /* the norm's input, in float32, and its weights, [1, n] */
	float eps;
	uint32_t max_rows; /* steps of up to so many rows */
};

/* The node that is lowered.  Weights start at multiples of 32 bytes. */
struct ig_gpu_launch {
	uint32_t struct_size;
	uint32_t n_in, n_weights, n_out;
	const void *params;
	struct ig_gpu_tensor in[IG_MAX_IN];
	struct ig_gpu_tensor weight[IG_MAX_WEIGHTS];
	struct ig_gpu_tensor out[IG_MAX_OUT];
	const struct ig_gpu_facts *facts;
	uint32_t max_rows, max_seqs, max_logit_rows, max_context;
	uint32_t k_dtype, v_dtype; /* of the cache: IG_F16, IG_F32 or IG_Q8_0 */
	uint32_t f32;		   /* 1: products must be computed in float32 */
	/* The most (row, range) pairs whose partial results attention may store in one step.  A
	 * sequence beyond it, or with more rows than the step splits (shaders/step.h), loops over its
	 * ranges. */
	uint32_t max_partials;
	/* If not NULL: in[0] is this norm's result, which is not computed for steps of up to norm->max_rows rows
	 * (at most what the op's norm_rows() allowed); then the op does that, with the same bits. */
	const struct ig_gpu_norm *norm;
	/* Of a norm: steps of up to so many rows need no out[0]. */
	uint32_t unread_rows;
	uint32_t reserved;
	/* With IG_GPU_OUT_TWICE: out[0], which is in float32, once more in a second type, with one rounding; an
	 * omitted operand where nobody wants it. */
	struct ig_gpu_tensor also;
};

/* The largest number of rows for which products use their few-row kernels. */
#define IG_GPU_FEW_ROWS 16

/* ---- dispatches ------------------------------------------------------------------ */

/* Counts of a step that determine grids and conditions. */
enum ig_gpu_live {
	IG_LIVE_ONE = 0, /* always 1 */
	IG_LIVE_ROWS,	 /* tokens */
	IG_LIVE_LOGIT_ROWS,
	IG_LIVE_SEQS,
	IG_LIVE_SPLIT_ROWS,   /* the most rows of a sequence whose attention is split; 0: none */
	IG_LIVE_SPLIT_RANGES, /* the most ranges of such a sequence */
	IG_LIVE_LOOP_ROWS,    /* the most rows of a sequence that loops; 0: none */
	IG_LIVE_COPIES,	      /* copies between cache blocks */
	IG_LIVE_WANT_LOGITS,  /* 1: the logits are copied to the host */
	IG_LIVE_RANDOM_ROWS,  /* LOGIT_ROWS if any row samples at random, else 0 */
	IG_LIVE_ADAPTED_ROWS, /* ROWS if any row has an adapter, else 0 */
	IG_LIVE_GUESS_ROWS,   /* rows for which the plan's head guesses a token */
	IG_LIVE_HEAD, /* 1: the step has that head; 0: what its nodes recorded does not run */
	IG_N_LIVE,
};

/* A grid's extent in threadgroups: times * ceil(live * mul / div).  A device that reuses one
 * recording for a range of steps may launch more: a kernel must compare its index with the
 * counts in the step buffer and exit. */
struct ig_gpu_extent {
	uint32_t live;	   /* enum ig_gpu_live */
	uint32_t mul, div; /* at least 1 */
	uint32_t times;	   /* at least 1 */
};

enum ig_gpu_access {
	IG_GPU_READ = 1,
	IG_GPU_WRITE = 2,
	/* Not passed to the kernel: a hazard on memory that it reaches through addresses. */
	IG_GPU_TOUCH = 4,
};

/* An operand of a dispatch.  n_bytes starts at the ref's offset: for a value it counts the bytes
 * of each row, for anything else all bytes.  Dispatches whose operands do not conflict run
 * concurrently. */
struct ig_gpu_bind {
	struct ig_gpu_ref ref;
	uint64_t n_bytes;
	uint32_t access; /* enum ig_gpu_access, or-ed */
	uint32_t reserved;
};

#define IG_GPU_MAX_BINDS 16
#define IG_GPU_MAX_ARGS 256 /* bytes of an argument struct */

/* cuda, compute capability 9.0: an operand that the kernel copies in boxes.  Instead of an
 * address the kernel gets a tensor map, by value: n_rows rows of n_cols elements of 2 bytes,
 * row_bytes apart, in boxes of 64 columns and box_rows rows.  row_bytes and the operand's
 * address must be multiples of 16.  Elements outside the matrix read as zero.  The tensor map of
 * an omitted operand is all zeros. */
struct ig_gpu_box {
	uint32_t bind;	   /* index of the operand */
	uint32_t box_rows; /* 1 … 256 */
	uint32_t n_rows, n_cols;
	uint64_t row_bytes;
};

#define IG_GPU_MAX_BOXES 5

struct ig_gpu_dispatch {
	uint32_t struct_size;
	uint32_t n_binds;
	const struct ig_shader *shader;
	const char *kernel; /* name of the instance; copied */
	const void *args;   /* copied; its size is a multiple of 4 */
	uint32_t n_arg_bytes;
	uint32_t threads;	    /* per threadgroup, one-dimensional; a multiple of 32 */
	uint32_t threadgroup_bytes; /* a multiple of 16 */
	/* Runs only in steps in which when_min <= count when_live <= when_max. */
	uint32_t when_live, when_min, when_max;
	struct ig_gpu_extent grid[3];
	struct ig_gpu_bind bind[IG_GPU_MAX_BINDS];
	/* cuda, compute capability 9.0: threadgroups of a cluster, which share memory.  grid[0] is
	 * a multiple of it.  0: no clusters. */
	uint32_t cluster;
	uint32_t n_boxes;
	struct ig_gpu_box box[IG_GPU_MAX_BOXES];
};

struct ig_gpu_tape;

/* Functions for lowerings.  They return 0 or a negative errno; the tape stores the first error
 * and every later function returns it. */
struct ig_gpu_host {
	uint32_t struct_size;
	uint32_t reserved;
	int (*dispatch)(struct ig_gpu_tape *t, const struct ig_gpu_dispatch *d);
	/* Scratch memory, valid until this node is finished.  ref->offset is 0. */
	int (*scratch)(struct ig_gpu_tape *t, uint64_t n_bytes, struct ig_gpu_ref *ref);
	/* Constants: copied now, uploaded when the program is loaded. */
	int (*constant)(struct ig_gpu_tape *t, const void *data, uint64_t n_bytes,
			struct ig_gpu_ref *ref);
	/* The sampled token ids, int32 [IG_STEPS_IN_FLIGHT, max_logit_rows]; and the logits that
	 * are copied to the host, float [max_logit_rows, n_vocab] (one per program). */
	int (*ids)(struct ig_gpu_tape *t, struct ig_gpu_ref *ref);
	int (*logits)(struct ig_gpu_tape *t, int64_t n_vocab, struct ig_gpu_ref *ref);
	/* The KV cache of a group and layer, as a hazard (IG_GPU_TOUCH). */
	int (*kv)(struct ig_gpu_tape *t, uint32_t group, uint32_t layer, struct ig_gpu_ref *ref);
};

struct ig_gpu_op {
	uint32_t struct_size;
	uint32_t flags; /* enum ig_gpu_op_flags */
	/* The element type that in[i] must have, chosen by weights and options: IG_F32, IG_F16 or
	 * IG_BF16.  in[] has no dtype yet.  NULL: IG_F32. */
	uint32_t (*in_dtype)(const struct ig_gpu_launch *c, uint32_t i);
	/* Emit the node's dispatches.  -ENOTSUP with text if no kernel fits. */
	int (*lower)(const struct ig_gpu_launch *c, const struct ig_gpu_host *h,
		     struct ig_gpu_tape *t, struct ig_error *err);
	/* Whether weight[i] may be in tiles.  No operand has a buffer yet.  NULL: none may. */
	bool (*tiles)(const struct ig_gpu_launch *c, uint32_t i);
	/* The most rows of a step for which it computes the RMS norm that made in[0] itself.  in[0] has its
	 * dtype, weights their layouts; no operand has a buffer yet.  NULL: 0. */
	uint32_t (*norm_rows)(const struct ig_gpu_launch *c);
};

enum ig_gpu_op_flags {
	IG_GPU_OUT_ANY = 1u << 0,   /* out[0] may have any type of a value */
	IG_GPU_OUT_TWICE = 1u << 1, /* it writes `also` */
};

#endif
