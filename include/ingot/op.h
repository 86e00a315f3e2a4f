/*
 * op.h: what an operation is, and what a kernel is handed when it runs.
 *
 * The contract is the op, not the kernel: a name, a parameter struct, a shape
 * check and a plain C reference in float32.  Drivers bring kernels for it.
 * cpu kernels are listed in the op itself, by instruction set and weight
 * format; each is a pure function over a range of units, so neither the number
 * of threads nor the number of rows beside a row changes a bit of its result.
 *
 * Tier 2 of the ABI (module.h), as gpu.h and kvcache.h are: a change here
 * changes the build id, docs/architecture.md and tests/unit/runtime/test_abi.c.
 */
#ifndef INGOT_OP_H
#define INGOT_OP_H

#include <ingot/dtype.h>
#include <ingot/error.h>
#include <ingot/params.h>

/* Counts changes of what no declaration shows, so that the build id shows it: the layouts
 * of IG_LAYOUT_TILE16 and IG_LAYOUT_Q8, the step buffer in shaders/step.h. */
enum { IG_LAYOUT_REVISION = 1 };

/* ---- forms ---------------------------------------------------------------- */

/* How a tensor's bytes are arranged. */
enum ig_layout {
	IG_LAYOUT_ROWS = 0, /* row after row, as files have it */
	/* Weights only: 16 rows (outputs) interleaved, so that one vector lane is
	 * one output and k ascends in every lane.  The layout by element type is
	 * described in ops/cpu/tile16.h; the last tile is padded with zeros. */
	IG_LAYOUT_TILE16 = 1,
	/* Activations only: a row in blocks of 32, k a multiple of 32, as arrays
	 * int8 q[k], float d[k/32], float s[k/32], int32 n[k/32], int32 h[k/32],
	 * float x[k/32], int32 t[k/32]: value = d q, n = -sum(q of the block), s = -d n,
	 * h = -sum(its first 16 q).  A value more than four times as large as any other
	 * of its block lies apart: its q is 0, itself in x.  t / 32 is how many blocks on
	 * the next such block is (0: it is this one), or beyond the row where there is
	 * none, t % 32 that value's place in this one. */
	IG_LAYOUT_Q8 = 2,
	IG_LAYOUT_BF16 = 3, /* activations: a row as bf16[k rounded up to 2] */
};

/* ---- shapes --------------------------------------------------------------- */

#define IG_MAX_IN 4
#define IG_MAX_OUT 2
#define IG_MAX_WEIGHTS 8

/* Which rows a value has: one per token of the step, or only one per row whose
 * logits are wanted. */
enum ig_row_class {
	IG_ROWS_TOKENS = 0,
	IG_ROWS_LOGITS = 1,
};

struct ig_shape {
	int64_t n_rows;	    /* weights: outputs; values: 0, the number is live */
	int64_t n_cols;	    /* weights: k, the inner length */
	uint32_t dtype;	    /* enum ig_dtype */
	uint32_t row_class; /* values only */
};

/* What a shape check reads and fills in. */
struct ig_op_shape {
	uint32_t struct_size;
	uint32_t n_in, n_weights, n_out;
	const void *params; /* the op's parameter struct */
	struct ig_shape in[IG_MAX_IN];
	struct ig_shape weight[IG_MAX_WEIGHTS]; /* n_rows == 0: optional one left out */
	struct ig_shape out[IG_MAX_OUT];	/* filled in by the check */
};

/* ---- the step buffer ------------------------------------------------------- */

#define IG_BLOCK_TOKENS 16 /* tokens in one block of the paged cache */

/* An entry of a block table: the slab's number above, the block in it below. */
#define IG_BLOCK_BITS 12
#define IG_BLOCK_WORD(slab, block) (((uint32_t)(slab) << IG_BLOCK_BITS) | (uint32_t)(block))
#define IG_BLOCK_SLAB(word) ((word) >> IG_BLOCK_BITS)
#define IG_BLOCK_INDEX(word) ((word) & ((1u << IG_BLOCK_BITS) - 1))
#define IG_BLOCK_NONE 0xffffffffu

/* Absolute positions that one partial of attention covers. */
#define IG_ATTENTION_RANGE 256

/* How one cache group lies inside a block.  All in bytes.
 * K of (layer, head, token) is at
 *   block + layer * layer_stride + head * head_stride + token * token_stride
 * and V at v_offset beyond it. */
struct ig_kv_layout {
	uint32_t dtype; /* IG_F16 or IG_F32 */
	uint32_t n_layers, n_kv_heads, head_dim;
	uint64_t block_bytes;
	uint64_t layer_stride;
	uint64_t v_offset;
	uint64_t head_stride;
	uint64_t token_stride;
};

struct ig_step_kv {
	const struct ig_kv_layout *layout;
	const uint32_t *block_tables; /* [n_seqs, max_blocks] block words */
	int64_t max_blocks;	      /* the tables' row length */
};

/* What changes one logit before the draw.  With x the logit of token id:
 *   if seen: x = x > 0 ? x / repetition_penalty : x * repetition_penalty
 *   x = x - n_sampled * frequency_penalty - (n_sampled > 0) * presence_penalty + bias */
struct ig_logit_adjust {
	int32_t id;	    /* each id once a row */
	uint32_t n_sampled; /* times that the answer has it so far */
	uint32_t seen;	    /* 1: in the prompt or the answer */
	float bias;
};

/* Edits of one step, of all its rows together, at most. */
#define IG_MAX_STEP_ADJUSTS (1u << 18)

/* How one row's token is drawn: edits, then the mask, then temperature, top_k,
 * top_p of what is left, min_p of the largest probability (the order of
 * candidates is by logit, then id), then a draw in the order of ids. */
struct ig_sample_params {
	float temperature;			   /* 0: the largest logit */
	float top_p;				   /* 1: off */
	float min_p;				   /* 0: off */
	int32_t top_k;				   /* 0: off */
	float repetition_penalty;		   /* 1: off */
	float frequency_penalty, presence_penalty; /* 0: off */
	int32_t mask;			  /* row of step->masks, or -1: all tokens are allowed */
	uint32_t first_adjust, n_adjusts; /* in step->edits */
	int32_t position;		  /* of the token being drawn; with seed, the draw */
	uint32_t reserved;
	uint64_t seed;
};

/* Steps that may be under way at once: one is read while the next one runs. */
#define IG_STEPS_IN_FLIGHT 2

/* All that changes from step to step.  Owned by the engine, unchanged between
 * submit and wait.  Rows of one sequence are neighbours with ascending positions,
 * in the order of the sequences; a sequence may have none. */
struct ig_step {
	uint32_t struct_size;
	int32_t n_rows; /* tokens in this step */
	int32_t n_seqs;
	int32_t n_logit_rows;
	const int32_t *token_ids;	       /* [n_rows] */
	const int32_t *positions;	       /* [n_rows] */
	const int32_t *row_seq;		       /* [n_rows] index of the row's sequence */
	const int32_t *seq_lens;	       /* [n_seqs] cached + new tokens: the full length */
	const int32_t *logit_rows;	       /* [n_logit_rows] ascending row numbers */
	const struct ig_sample_params *sample; /* [n_logit_rows] */
	int32_t *sampled_ids;		       /* [n_logit_rows] written by the op `sample` */
	float *logits;		     /* NULL, or [n_logit_rows, n_vocab]: a copy is wanted */
	void *const *slab_bases;     /* by slab number */
	const struct ig_step_kv *kv; /* [n_groups] */
	uint32_t n_groups;
	uint32_t n_adjusts;
	const struct ig_logit_adjust *adjusts; /* [n_adjusts] */
	const uint32_t *masks; /* [n_masks, (n_vocab + 31) / 32]: bit set, token allowed */
	uint32_t n_masks;
	uint32_t reserved;
	/* A step that starts before the one before it was waited for does not know its
	 * last tokens: where token_from[r] >= 0, row r's token is prev_ids[token_from[r]],
	 * and prev_ids is the sampled_ids of the step submitted just before (a GPU
	 * reads its own copy of it).  token_from NULL: token_ids holds all. */
	const int32_t *token_from; /* NULL, or [n_rows] */
	const int32_t *prev_ids;
};

/* Row r's token, for kernels that run where prev_ids can be read. */
static inline int32_t ig_step_token(const struct ig_step *s, int64_t r)
{
	return s->token_from && s->token_from[r] >= 0 ? s->prev_ids[s->token_from[r]] :
							s->token_ids[r];
}

/* ---- a call ---------------------------------------------------------------- */

struct ig_tensor {
	void *data;
	int64_t n_rows, n_cols;
	int64_t row_stride; /* bytes from a row to the next; 0 for tiled weights */
	uint32_t dtype;
	uint32_t layout; /* enum ig_layout */
};

struct ig_cpu_kernel;

struct ig_op_launch {
	uint32_t struct_size;
	uint32_t n_in, n_weights, n_out;
	const void *params;
	struct ig_tensor in[IG_MAX_IN]; /* data NULL: optional one left out */
	struct ig_tensor weight[IG_MAX_WEIGHTS];
	struct ig_tensor out[IG_MAX_OUT];
	const struct ig_step *step;
	const struct ig_cpu_kernel *kernel; /* the one that runs; references don't look */
};

/* ---- cpu kernels ------------------------------------------------------------ */

enum ig_isa {
	IG_ISA_GENERIC = 0,	 /* plain C */
	IG_ISA_AVX2 = 1,	 /* AVX2, FMA, F16C */
	IG_ISA_AVX512 = 2,	 /* AVX-512 F, BW, VL, DQ, VNNI */
	IG_ISA_AVX512_BF16 = 3,	 /* and BF16 */
	IG_ISA_NEON = 8,	 /* what every aarch64 has */
	IG_ISA_NEON_DOTPROD = 9, /* and sdot */
	IG_ISA_NEON_I8MM = 10,	 /* and smmla */
};

/* What a cpu kernel's units are; units of rows on both sides of an edge need no
 * barrier between them. */
enum ig_unit_kind {
	IG_UNITS_ROWS = 0, /* unit i reads and writes row i only */
	IG_UNITS_OTHER = 1,
};

struct ig_cpu_kernel {
	uint32_t struct_size;
	uint32_t isa;		/* enum ig_isa */
	uint32_t weight_dtype;	/* of weight[0]; IG_DTYPE_NONE: any or none */
	uint32_t weight_layout; /* the form wanted for the 2-D weights */
	uint32_t in_layout;	/* the form wanted for in[0] */
	uint32_t unit_kind;	/* enum ig_unit_kind */
	/* How many units this call has; a function of shapes, the step, and what earlier calls
	 * wrote, which is complete when a driver asks. */
	int64_t (*n_units)(const struct ig_op_launch *launch);
	/* Bytes of scratch that one worker needs, at most; NULL: none. */
	uint64_t (*scratch_bytes)(const struct ig_op_launch *launch);
	/* Compute units first … last - 1.  Called by several workers at once. */
	void (*run)(const struct ig_op_launch *launch, int64_t first, int64_t last, void *scratch);
	/* A kernel of another op, which run calls on operands of its own making, so that an
	 * op made of products has every weight format that they have; NULL: none. */
	const struct ig_cpu_kernel *inner;
};

/* In a table: one without 2-D weights, from rows of float. */
#define IG_CPU_KERNEL(isa_, unit_kind_, n_units_, scratch_bytes_, run_)                            \
	{ sizeof(struct ig_cpu_kernel),                                                            \
	  isa_,                                                                                    \
	  IG_DTYPE_NONE,                                                                           \
	  IG_LAYOUT_ROWS,                                                                          \
	  IG_LAYOUT_ROWS,                                                                          \
	  unit_kind_,                                                                              \
	  n_units_,                                                                                \
	  scratch_bytes_,                                                                          \
	  run_,                                                                                    \
	  NULL }

/* ---- the op ------------------------------------------------------------------ */

struct ig_gpu_op;

struct ig_op {
	uint32_t struct_size;
	uint32_t params_size; /* of its parameter struct: check and kernels see it whole */
	const char *name;
	/* Check shapes and parameters and fill in s->out.  0 or a negative errno with
	 * text in err. */
	int (*check)(struct ig_op_shape *s, struct ig_error *err);
	/* Plain C, float32, every row of the call, weights IG_LAYOUT_ROWS of any dtype,
	 * in[] IG_LAYOUT_ROWS of float.  Slow and right. */
	void (*reference)(const struct ig_op_launch *launch);
	const struct ig_cpu_kernel *cpu_kernels;
	uint32_t n_cpu_kernels;
	uint32_t flags;		     /* enum ig_op_flags */
	const struct ig_gpu_op *gpu; /* gpu.h; NULL: no GPU runs it */
	uint32_t version;	     /* from 1 on; see struct ig_op_version */
	uint32_t reserved;
};

enum ig_op_flags {
	IG_OP_WRITES_KV = 1u << 0, /* writes cache pages of params' layer */
	IG_OP_READS_KV = 1u << 1,
	/* weights may be lowered one by one: outputs lie side by side in out[0] */
	IG_OP_SPLIT_WEIGHTS = 1u << 2,
	/* matrices are experts', of which a step reads a part: kernels that want them in
	 * IG_LAYOUT_ROWS can read them where the file is mapped */
	IG_OP_EXPERTS = 1u << 3,
};

/* ---- what the host offers to ops (struct ig_host, kernels) --------------------- */

struct ig_kernel_host {
	uint32_t struct_size;
	uint32_t reserved;
	/* For ops that are made of others (struct ig_cpu_kernel, inner).  Any thread. */
	const struct ig_op *(*core_op)(const char *name); /* NULL: there is none */
	/* IG_LAYOUT_TILE16: bytes of 16 rows of k values, a multiple of 64 (0: no such layout);
	 * and to lay out 16 rows, as files have them, at a multiple of 64. */
	uint64_t (*tile_bytes)(uint32_t dtype, int64_t k);
	void (*tile_pack)(uint32_t dtype, const void *rows, int64_t k, void *tile);
};

#endif
