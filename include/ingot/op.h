/*
 * op.h: what an operation is, and what its kernels get.
 *
 * The contract is the op, not the kernel: a name, a parameter struct, a shape check and a
 * reference in plain C.  cpu kernels are listed in the op by instruction set and weight format;
 * each is a pure function over a range of units.  The bits of a row's result must depend neither
 * on the number of threads nor on the other rows of the step.
 *
 * Tier 2 of the ABI (module.h): a change of a declaration changes the build id; it needs
 * docs/architecture.md and tests/unit/runtime/test_abi.c in the same commit.
 */
#ifndef INGOT_OP_H
#define INGOT_OP_H

#include <ingot/dtype.h>
#include <ingot/error.h>
#include <ingot/params.h>

/* Incremented when a layout changes that no declaration shows, so that the build id changes:
 * IG_LAYOUT_TILE16, IG_LAYOUT_Q8, the step buffer in shaders/step.h. */
enum { IG_LAYOUT_REVISION = 3 };

/* ---- layouts -------------------------------------------------------------- */

/* The memory layout of a tensor. */
enum ig_layout {
	IG_LAYOUT_ROWS = 0, /* row after row, as in files */
	/* Weights only: tiles of 16 interleaved rows (outputs).  One vector lane is one output; k
	 * ascends in every lane.  ops/cpu/tile16.h has the layout of each element type; the last
	 * tile is padded with zeros. */
	IG_LAYOUT_TILE16 = 1,
	/* Activations only: a row in blocks of 32 values, k a multiple of 32, as arrays
	 * int8 q[k], float d[k/32], float s[k/32], int32 n[k/32], int32 h[k/32],
	 * float x[k/32], int32 t[k/32].  Of a block: value = d q, n = -sum(q), s = -d n,
	 * h = -sum(first 16 q).  An outlier is a value more than four times as large as any other
	 * of its block; it is stored separately: its q is 0 and x is the value.  t / 32 is the
	 * distance in blocks to the next block with an outlier (0: this one; past the end of the
	 * row: none), t % 32 the index of this block's outlier. */
	IG_LAYOUT_Q8 = 2,
	IG_LAYOUT_BF16 = 3, /* activations only: bf16[k rounded up to 2] per row */
};

/* ---- shapes --------------------------------------------------------------- */

#define IG_MAX_IN 4
#define IG_MAX_OUT 2
#define IG_MAX_WEIGHTS 8

/* Which rows a value has: all tokens of the step, only those whose logits are computed, or of these only
 * those behind which the token after the next one is guessed. */
enum ig_row_class {
	IG_ROWS_TOKENS = 0,
	IG_ROWS_LOGITS = 1,
	IG_ROWS_GUESSES = 2,
};

struct ig_shape {
	int64_t n_rows;	    /* weights: outputs; values: 0, as the step decides it */
	int64_t n_cols;	    /* weights: k, the inner length */
	uint32_t dtype;	    /* enum ig_dtype */
	uint32_t row_class; /* values only */
};

/* Input and output of a shape check. */
struct ig_op_shape {
	uint32_t struct_size;
	uint32_t n_in, n_weights, n_out;
	const void *params; /* the op's parameter struct */
	struct ig_shape in[IG_MAX_IN];
	struct ig_shape weight[IG_MAX_WEIGHTS]; /* n_rows 0: an omitted optional weight */
	struct ig_shape out[IG_MAX_OUT];	/* set by the check */
};

/* ---- the step buffer ------------------------------------------------------- */

#define IG_BLOCK_TOKENS 16 /* tokens of one block of the paged KV cache */

/* An entry of a block table: the slab's number in the upper bits, the block's in the lower. */
#define IG_BLOCK_BITS 12
#define IG_BLOCK_WORD(slab, block) (((uint32_t)(slab) << IG_BLOCK_BITS) | (uint32_t)(block))
#define IG_BLOCK_SLAB(word) ((word) >> IG_BLOCK_BITS)
#define IG_BLOCK_INDEX(word) ((word) & ((1u << IG_BLOCK_BITS) - 1))
#define IG_BLOCK_NONE 0xffffffffu

/* Positions per range of attention; ranges start at multiples of it. */
#define IG_ATTENTION_RANGE 256

/* The layout of a block of one cache group.  Strides and offsets are in bytes.  K of (layer, head) is
 * at
 *   block + layer * layer_stride + head * head_stride
 * and V is v_offset bytes after it.  Of F16 and F32 a token's values are token * k_token_stride (or
 * v_token_stride) bytes further on.  Q8_0 has codes of 8 bits, of K [head_dim][IG_BLOCK_TOKENS], of V
 * [IG_BLOCK_TOKENS][head_dim], then scales, float16 [head_dim / 32][IG_BLOCK_TOKENS]: a value is its
 * code times the scale of its token and its 32 dimensions.  In a group of K alone (IG_CACHE_K) V is K:
 * v_offset is 0, the rest is K's.
 *
 * In a group of state (kind IG_CACHE_STATE) a block is a part of a state: head_dim values of float32,
 * whose order is up to the ops that use it.  A state has n_layers * n_kv_heads parts, a layer's after
 * each other. */
struct ig_kv_layout {
	uint32_t k_dtype, v_dtype; /* IG_F16, IG_F32 or IG_Q8_0 */
	uint32_t n_layers, n_kv_heads, head_dim;
	uint32_t kind; /* of struct ig_cache_group */
	uint64_t block_bytes;
	uint64_t layer_stride;
	uint64_t v_offset;
	uint64_t head_stride;
	uint64_t k_token_stride, v_token_stride; /* Q8_0: 0 */
};

#define IG_KV_GROUP 32 /* dimensions that share a scale of Q8_0 */

struct ig_step_kv {
	const struct ig_kv_layout *layout;
	/* [n_seqs, max_blocks] block words; of state: [n_states, max_blocks], a state's parts */
	const uint32_t *block_tables;
	int64_t max_blocks; /* row length of block_tables */
};

/* Rows of one sequence between two of its states: they lead from the one to the other.  If both are
 * the same, the state changes in place. */
struct ig_step_segment {
	int32_t first_row, n_rows;
	int32_t from,
		to; /* rows of the tables of groups of state; from -1: zeros, the state of no tokens */
};

/* Penalties and bias of one token's logit x:
 *   if seen: x = x > 0 ? x / repetition_penalty : x * repetition_penalty
 *   x = x - n_sampled * frequency_penalty - (n_sampled > 0) * presence_penalty + bias */
struct ig_logit_adjust {
	int32_t id;	    /* token; at most once per row */
	uint32_t n_sampled; /* occurrences in the completion so far */
	uint32_t seen;	    /* 1: occurs in the prompt or the completion */
	float bias;
};

/* The most entries of `adjusts` in one step, over all rows. */
#define IG_MAX_STEP_ADJUSTS (1u << 18)

/* Sampling parameters of one row.  Order: penalties and biases, mask, temperature, top_k, top_p
 * of the remaining tokens, min_p relative to the largest probability, sampling in the order of
 * ids.  Candidates are ordered by logit, then by id. */
struct ig_sample_params {
	float temperature;			   /* 0: the largest logit */
	float top_p;				   /* 1: off */
	float min_p;				   /* 0: off */
	int32_t top_k;				   /* 0: off */
	float repetition_penalty;		   /* 1: off */
	float frequency_penalty, presence_penalty; /* 0: off */
	int32_t mask;			  /* row of step->masks; -1: all tokens are allowed */
	uint32_t first_adjust, n_adjusts; /* in step->adjusts */
	int32_t position;		  /* of the sampled token; with seed: its random bits */
	uint32_t reserved;
	uint64_t seed;
};

/* Steps in flight at most: the host reads one while the device computes the next. */
#define IG_STEPS_IN_FLIGHT 2

/* Everything that differs between steps.  The engine owns it and must not change it between
 * submit and wait.  Rows of one sequence are consecutive, with consecutive positions, in the
 * order of the sequences; a sequence may have no rows. */
struct ig_step {
	uint32_t struct_size;
	int32_t n_rows; /* tokens of this step */
	int32_t n_seqs;
	int32_t n_logit_rows;
	const int32_t *token_ids;	       /* [n_rows] */
	const int32_t *positions;	       /* [n_rows] */
	const int32_t *row_seq;		       /* [n_rows] sequence of the row */
	const int32_t *seq_lens;	       /* [n_seqs] tokens, cached and new */
	const int32_t *logit_rows;	       /* [n_logit_rows] ascending row numbers */
	const struct ig_sample_params *sample; /* [n_logit_rows] */
	int32_t *sampled_ids;		       /* [n_logit_rows] written by the op `sample` */
	float *logits;		     /* NULL, or [n_logit_rows, n_vocab]: receives a copy */
	void *const *slab_bases;     /* by slab number */
	const struct ig_step_kv *kv; /* [n_groups] */
	uint32_t n_groups;
	uint32_t n_adjusts;
	const struct ig_logit_adjust *adjusts; /* [n_adjusts] */
	const uint32_t *masks; /* [n_masks, (n_vocab + 31) / 32]; a set bit allows the token */
	uint32_t n_masks;
	uint32_t reserved;
	/* For a step that is submitted before the previous one was waited for: if
	 * token_from[r] >= 0, row r's token is prev_ids[token_from[r]].  prev_ids must be the
	 * sampled_ids of the previously submitted step; a GPU reads its own copy of it.
	 * token_from NULL: all tokens are in token_ids. */
	const int32_t *token_from; /* NULL, or [n_rows] */
	const int32_t *prev_ids;
	/* NULL: no row has an adapter; or [n_rows]: its number, as the plan has them; -1: none. */
	const int32_t *row_adapter;
	/* Of a model with groups of state, else NULL: all rows, in their order.  The segments of a
	 * sequence follow each other, each from the state to which the one before leads; no other
	 * sequence's segment writes a state that one of them reads. */
	const struct ig_step_segment *segments;
	int32_t n_segments, n_states;
	/* NULL: all are 0; or [n_rows]: the row of embed's table of types. */
	const int32_t *row_types;
	/* Of a plan with a head that guesses (struct ig_arch, record_mtp).  next_ids [n_rows]: the token
	 * after each row; -1 - i: the one that row i of the logits samples.  NULL: the step does without
	 * the head, whose layers are not written. */
	const int32_t *next_ids;
	const int32_t *guess_rows; /* [n_guesses] ascending indexes of logit_rows */
	int32_t *guessed_ids;	   /* [n_guesses] written by the op `sample` with guess 1 */
	float *guess_logits;	   /* NULL, or [n_guesses, n_vocab]: receives a copy */
	int32_t n_guesses;
	uint32_t reserved_too;
	/* Of a plan that is cut between layers: [n_rows, width], the rows from the stage before, and memory for
	 * those of the next one, which the op stage_out writes; else NULL. */
	const float *stage_in;
	float *stage_out;
	/* Of rows that are no token's (an image's), which the sequence has in spans that no step cuts.
	 * rope_positions: what rope_table turns a row by, along each axis (time, height, width; all equal for
	 * a text), 0 … 2^24; NULL: its position, which stays its place in the cache and among other rows.
	 * outside: the row's embedding, as many values as embed's rows have; NULL: its token's.
	 * sees_to: the last position that attention with `spans` lets the row see, its own or a later
	 * one of its sequence in this step; NULL: its own. */
	const int32_t *rope_positions; /* NULL, or [n_rows, IG_ROPE_AXES] */
	const float *const *outside;   /* NULL, or [n_rows] */
	const int32_t *sees_to;	       /* NULL, or [n_rows] */
};

/* Row r's token, for kernels that can read prev_ids. */
static inline int32_t ig_step_token(const struct ig_step *s, int64_t r)
{
	return s->token_from && s->token_from[r] >= 0 ? s->prev_ids[s->token_from[r]] :
							s->token_ids[r];
}

/* What row r is turned by along an axis. */
static inline int32_t ig_step_rope_position(const struct ig_step *s, int64_t r, uint32_t axis)
{
	return s->rope_positions ? s->rope_positions[r * IG_ROPE_AXES + axis] : s->positions[r];
}

/* The embedding of row r from outside; NULL: it is its token's. */
static inline const float *ig_step_outside(const struct ig_step *s, int64_t r)
{
	return s->outside ? s->outside[r] : NULL;
}

/* The last position that row r sees; spans: of struct ig_attention_params. */
static inline int32_t ig_step_sees_to(const struct ig_step *s, uint32_t spans, int64_t r)
{
	return spans && s->sees_to ? s->sees_to[r] : s->positions[r];
}

/* The token after row r; read once the step's tokens are sampled. */
static inline int32_t ig_step_next(const struct ig_step *s, int64_t r)
{
	return s->next_ids[r] >= 0 ? s->next_ids[r] : s->sampled_ids[-1 - s->next_ids[r]];
}

/* The row that row r of a value with gathered rows comes from; gather: as the op norm has it. */
static inline int32_t ig_step_gathered(const struct ig_step *s, uint32_t gather, int64_t r)
{
	return s->logit_rows[gather == 2 ? s->guess_rows[r] : r];
}

/* ---- one execution of an op -------------------------------------------------- */

struct ig_tensor {
	void *data;
	int64_t n_rows, n_cols;
	int64_t row_stride; /* bytes; 0 for tiled weights */
	uint32_t dtype;
	uint32_t layout; /* enum ig_layout */
};

struct ig_cpu_kernel;

struct ig_op_launch {
	uint32_t struct_size;
	uint32_t n_in, n_weights, n_out;
	const void *params;
	struct ig_tensor in[IG_MAX_IN]; /* data NULL: an omitted optional input */
	struct ig_tensor weight[IG_MAX_WEIGHTS];
	struct ig_tensor out[IG_MAX_OUT];
	const struct ig_step *step;
	const struct ig_cpu_kernel *kernel; /* the running kernel; references ignore it */
	/* Memory for all workers of a cpu kernel that asks for it (shared_bytes); NULL, 0: none. */
	void *shared;
	uint64_t shared_bytes;
};

/* ---- cpu kernels ------------------------------------------------------------ */

enum ig_isa {
	IG_ISA_GENERIC = 0,	 /* plain C */
	IG_ISA_AVX2 = 1,	 /* AVX2, FMA, F16C */
	IG_ISA_AVX512 = 2,	 /* AVX-512 F, BW, VL, DQ, VNNI */
	IG_ISA_AVX512_BF16 = 3,	 /* AVX512 and BF16 */
	IG_ISA_NEON = 8,	 /* the base of aarch64 */
	IG_ISA_NEON_DOTPROD = 9, /* NEON and sdot */
	IG_ISA_NEON_I8MM = 10,	 /* NEON_DOTPROD and smmla */
};

/* What the units of a cpu kernel are.  Between two kernels whose units are rows no barrier is
 * needed. */
enum ig_unit_kind {
	IG_UNITS_ROWS = 0, /* unit i reads and writes only row i */
	IG_UNITS_OTHER = 1,
};

struct ig_cpu_kernel {
	uint32_t struct_size;
	uint32_t isa;		/* enum ig_isa */
	uint32_t weight_dtype;	/* of weight[0]; IG_DTYPE_NONE: any or none */
	uint32_t weight_layout; /* required layout of the 2-D weights */
	uint32_t in_layout;	/* required layout of in[0] */
	uint32_t unit_kind;	/* enum ig_unit_kind */
	/* The number of units: a function of shapes, the step, and the results of earlier ops,
	 * which are complete when the driver calls it. */
	int64_t (*n_units)(const struct ig_op_launch *launch);
	/* The most bytes of scratch memory that one worker needs; NULL: none. */
	uint64_t (*scratch_bytes)(const struct ig_op_launch *launch);
	/* Compute units first … last - 1.  Called by several workers concurrently. */
	void (*run)(const struct ig_op_launch *launch, int64_t first, int64_t last, void *scratch);
	/* A kernel of another op, which run calls on operands that it prepares: an op made of
	 * products then supports every weight format of those products.  NULL: none. */
	const struct ig_cpu_kernel *inner;
	/* The bytes of memory that all workers of a launch share, and that `then` finds as they left it.
	 * Of the launch's step only the largest numbers of rows and sequences are known, and the longest
	 * sequence, as seq_lens[0].  NULL: none. */
	uint64_t (*shared_bytes)(const struct ig_op_launch *launch);
	/* A kernel whose units are rows, for the same launch, when all units of this one are complete.
	 * If it has nothing to do in a step, it has no units.  NULL: none. */
	const struct ig_cpu_kernel *then;
};

/* Table entry of a kernel without 2-D weights, with in[0] in rows of float. */
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
	  NULL,                                                                                    \
	  NULL,                                                                                    \
	  NULL }

/* ---- the op ------------------------------------------------------------------ */

struct ig_gpu_op;

struct ig_op {
	uint32_t struct_size;
	uint32_t params_size; /* of its parameter struct; check and kernels get all of it */
	const char *name;
	/* Check shapes and parameters; set s->out.  Returns 0 or a negative errno with text. */
	int (*check)(struct ig_op_shape *s, struct ig_error *err);
	/* The reference in plain C: computes all rows.  Weights are IG_LAYOUT_ROWS of any dtype,
	 * in[] and out[] IG_LAYOUT_ROWS of float32. */
	void (*reference)(const struct ig_op_launch *launch);
	const struct ig_cpu_kernel *cpu_kernels;
	uint32_t n_cpu_kernels;
	uint32_t flags;		     /* enum ig_op_flags */
	const struct ig_gpu_op *gpu; /* gpu.h; NULL: not supported on GPUs */
	uint32_t version;	     /* at least 1; see struct ig_op_version */
	uint32_t split;		     /* enum ig_op_split */
	/* How many of the weights are matrices, which kernels on the cpu take in their own layout;
	 * those behind them stay rows of float32.  NULL: all with more than one row are matrices,
	 * and the first. */
	uint32_t (*n_matrices)(const void *params);
};

enum ig_op_flags {
	IG_OP_WRITES_KV = 1u << 0, /* writes the KV cache of its group and layer */
	IG_OP_READS_KV = 1u << 1,
	/* Weights may be lowered one by one: their outputs are adjacent columns of out[0]. */
	IG_OP_SPLIT_WEIGHTS = 1u << 2,
	/* The matrices are experts', of which a step reads only some.  Kernels that take them in
	 * IG_LAYOUT_ROWS may read them from the mapped file. */
	IG_OP_EXPERTS = 1u << 3,
	/* out[0] is in[1], changed: they have the same memory.  Nothing reads in[1] later. */
	IG_OP_IN_PLACE = 1u << 4,
};

/* How several devices compute the op together.  A divided value has some of its columns on each
 * device; a sum has a value of its full width on each, which are added in the devices' order. */
enum ig_op_split {
	IG_SPLIT_NONE = 0, /* they can't */
	IG_SPLIT_COPY,	   /* each computes all of it, from whole inputs */
	/* The parameters and operands are those of linear: a divided input divides the weights' k, and
	 * the result is a sum; of a whole one the outputs are divided, if the op that reads them is
	 * divided, or it is computed by each. */
	IG_SPLIT_PRODUCT,
	IG_SPLIT_PAIRS,	  /* those of glu: by outputs */
	IG_SPLIT_OUTPUTS, /* those of logits: by outputs */
	IG_SPLIT_ROPE,	/* those of rope_kv: by heads of keys and values, which are copied if there
			   * are fewer of them than devices */
	IG_SPLIT_HEADS, /* those of attention: by the same heads */
	IG_SPLIT_EXPERTS,     /* those of moe_glu: by the outputs of each expert */
	IG_SPLIT_EXPERTS_SUM, /* those of moe_combine: by the k of each expert, with a sum */
};

/* ---- what the host provides to ops (struct ig_host, kernels) ------------------- */

struct ig_kernel_host {
	uint32_t struct_size;
	uint32_t reserved;
	/* A core op, for ops that are made of others (struct ig_cpu_kernel, inner); NULL: unknown
	 * name.  Any thread. */
	const struct ig_op *(*core_op)(const char *name);
	/* IG_LAYOUT_TILE16: the bytes of a tile of 16 rows of k values, a multiple of 64 (0: not
	 * supported); and packing 16 rows in file layout into a tile, whose address must be a
	 * multiple of 64. */
	uint64_t (*tile_bytes)(uint32_t dtype, int64_t k);
	void (*tile_pack)(uint32_t dtype, const void *rows, int64_t k, void *tile);
};

#endif
