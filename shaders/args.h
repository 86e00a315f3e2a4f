/*
 * args.h: what the host tells a kernel once, when the plan is lowered: buffer 0.
 * One declaration for C and for Metal; the asserts hold on both sides.  Strides
 * and offsets are in elements unless the name says bytes.  What changes from step
 * to step is in step.h.
 */
#pragma once

#include "shared_types.h"

/* Types of results, and of the cache, that a kernel knows when it runs: as enum ig_dtype. */
#define ELEMENT_F32 0u
#define ELEMENT_F16 1u
#define ELEMENT_Q8_0 8u /* of the cache only */
#define ELEMENT_BF16 30u

/* linear: up to four weights of one format side by side; glu: gate and up. */
struct linear_args {
	uint k;	   /* inner length */
	uint n[4]; /* outputs of each weight; 0: not there */
	uint n_weights;
	uint x_stride, y_stride, residual_stride;
	uint act;	/* IG_ACT_… */
	uint rows_live; /* as enum ig_row_class: the step's rows, its logit rows, its guesses */
	uint shares;	/* that k is cut into; of the weight's shape alone */
	uint w_row_bytes;
	uint flags;	 /* LINEAR_… */
	uint column;	 /* of y and the residual as bound, where the first weight's begin */
	uint format;	 /* of the weights, as enum ig_dtype */
	uint share_step; /* shares begin at multiples of it */
	/* product_tiles.h: teams of a threadgroup, threadgroups of a cluster */
	uint width, cluster;
	float limit;	     /* of PRODUCT_ACT_CLAMPED */
	uint x_head, y_head; /* from a head's columns to the next one's; 0: there are no heads */
	float norm_eps;	     /* of kernels that compute the norm of x */
};
SHARED_SIZE(linear_args, 92);
#define LINEAR_BIAS 1u
#define LINEAR_RESIDUAL 2u
#define LINEAR_OUT_F16 4u /* else, without LINEAR_OUT_BF16, float */
#define LINEAR_OUT_BF16 8u
#define LINEAR_PAIRS 16u    /* columns 2 i and 2 i + 1 are aligned as a vector of two */
#define PRODUCT_ACT_NONE 0u /* as IG_ACT_… */
#define PRODUCT_ACT_SILU 1u
#define PRODUCT_ACT_GELU 2u
#define PRODUCT_ACT_RELU2 3u
#define PRODUCT_ACT_CLAMPED 4u
#define PRODUCT_ACT_GELU_ERF 16u
#define PRODUCT_ACT_TANH 17u

/* adapt_down, adapt_up, glu_join (ops/adapt.h). */
#define ADAPT_THREADS 256u
#define ADAPT_WEIGHTS 4
#define ADAPT_MAX_ADAPTERS 32
struct adapt_args {
	uint n; /* columns of x; of y */
	uint n_weights;
	uint n_rows[ADAPT_WEIGHTS];	/* columns of y of each weight */
	uint column[ADAPT_WEIGHTS + 1]; /* of h, where each weight's begin, and their end */
	uint x_stride, h_stride, y_stride;
	uint rows_live;
	uint act; /* IG_ACT_… */
};
SHARED_SIZE(adapt_args, 64);

/* A constant of each launch: rows of the weights' matrices by adapter, and their scales. */
struct adapt_table {
	uint first[ADAPT_WEIGHTS][ADAPT_MAX_ADAPTERS + 1];
	float scale[ADAPT_WEIGHTS][ADAPT_MAX_ADAPTERS];
};
SHARED_SIZE(adapt_table, 1040);

/* moe_route and what follows it. */
struct moe_route_args {
	uint n_experts, top_k;
	uint x_stride, route_stride;
	uint normalise;
	float scale;
	uint rows_live;
	uint sigmoid;		      /* 1: scores are sigmoids; 0: a softmax */
	uint n_groups, n_groups_used; /* 0: no groups */
	float sum_epsilon;
	uint select_bias, expert_scale, shared; /* 1: there is one */
};
SHARED_SIZE(moe_route_args, 56);
#define MOE_FEW_THREADS 512u /* of the kernel for few rows: 16 rows of at most 32 experts */
#define MOE_THREADS 256u

/* moe_glu, moe_combine: products of assignments with their experts' weights. */
struct moe_args {
	SHARED_STRUCT(linear_args) product; /* n[0]: outputs of one expert */
	uint n_experts, top_k;
	uint route_stride;
	uint x_slot, y_slot; /* stride between the experts of a row; 0: all have the same */
	uint index_at;	     /* bytes of threadgroup memory before the tile's index */
	uint rows;	     /* of the weight, between experts */
	uint up_row;	     /* of the first row of up in `up`, from the expert's first on */
	/* moe_tiles_stream.metal: the experts whose weights are in a piece */
	uint first_expert, end_expert;
	uint has_route; /* 1: a kernel before this one waited for the route, this one waits for x alone */
};
SHARED_SIZE(moe_args, 136);

/* moe_tiles_stream.metal: rows of a tile; threads of the one threadgroup of moe_list, one for each
 * expert; bytes of a row that a simdgroup of moe_gather copies are a multiple of 16. */
#define MOE_STREAM_ROWS 128u
#define MOE_LIST_THREADS 1024u
#define MOE_GATHER_THREADS 256u

struct moe_combine_args {
	uint n_cols, top_k;
	uint route_stride, residual_stride, y_stride;
	uint rows_live;
	uint residual; /* 1: there is one */
	uint shared_stride, shared;
	uint bias; /* 1: of the sum */
};
SHARED_SIZE(moe_combine_args, 40);

struct norm_args {
	uint n;
	float eps;
	uint x_stride, delta_stride, y_stride, sum_stride;
	uint kind;  /* IG_NORM_… */
	uint flags; /* NORM_… */
	uint rows_live;
	uint n_groups; /* of n columns each, in a row */
	float scale;   /* of the result, with NORM_AFTER */
	uint also_stride;
};
SHARED_SIZE(norm_args, 48);
#define NORM_BIAS 1u
#define NORM_DELTA 2u
#define NORM_GATHER 4u
#define NORM_PLAIN 8u	  /* no weights */
#define NORM_AFTER 16u	  /* delta is added to the result */
#define NORM_FACTOR 32u	  /* the result is multiplied by a weight of one value */
#define NORM_ALSO_F16 64u /* the result is stored in a second type, too */
#define NORM_ALSO_BF16 128u
#define NORM_GUESSES 256u /* with NORM_GATHER: the step's guesses alone */

/* heads_rest: the last n columns of each head. */
struct heads_args {
	uint n;
	uint x_stride, y_stride, x_head, y_head;
	uint rows_live;
};
SHARED_SIZE(heads_args, 24);
#define HEADS_THREADS 128u

struct elementwise_args {
	uint n; /* columns */
	uint x_stride, y_stride, by_stride;
	uint first; /* of the other input's columns */
	uint rows_live;
	float scale, cap; /* y = cap * tanh(scale * x), or scale * x if cap is 0 */
};
SHARED_SIZE(elementwise_args, 32);
#define ELEMENTWISE_COLUMNS 2048u /* of a threadgroup */

/* exchange: what one device sends to the others, and where what they send comes.  Addresses are as this device
 * reaches them. */
#define EXCHANGE_MOST 8 /* ranks */
struct exchange_args {
	/* float, by rank; of a sum this rank's alone */
	ulong part[EXCHANGE_MOST];
	/* by rank: its memory for what comes (shaders/cuda/exchange.metal) */
	ulong inbox[EXCHANGE_MOST];
	ulong sum;   /* float; 0: parts are kept as they are */
	ulong turns; /* uint, of this device: how far its exchanges are */
	ulong stop;  /* uint, of the host: not 0: nobody sends any more */
	/* floats / 2 of a row of each rank's part, a multiple of 2 */
	uint row_pairs[EXCHANGE_MOST];
	uint rank, n_ranks;
	uint rows_live; /* as enum ig_row_class */
	uint turn;	/* of this step's exchanges in pairs, from 1; 0: in chunks */
	uint n_turns;	/* of the last of them, their number, else 0 */
	uint reserved;
};
SHARED_SIZE(exchange_args, 208);
#define EXCHANGE_THREADS 256u
#define EXCHANGE_GROUPS 512u	     /* at most; all of them run at the same time */
#define EXCHANGE_SMALL_PAIRS 131072u /* the most of one part that is not sent in chunks */
#define EXCHANGE_CHUNK 512u	     /* quads (4 floats) */
/* Bytes of an inbox: pairs, chunks, and how many chunks there were. */
#define EXCHANGE_PAIRS_BYTES(n_ranks) (2ul * (n_ranks) * EXCHANGE_SMALL_PAIRS * 16)
#define EXCHANGE_CHUNKS_BYTES(n_ranks) (2ul * (n_ranks) * EXCHANGE_GROUPS * EXCHANGE_CHUNK * 16)
#define EXCHANGE_INBOX_BYTES(n_ranks)                                                              \
	(EXCHANGE_PAIRS_BYTES(n_ranks) + EXCHANGE_CHUNKS_BYTES(n_ranks) +                          \
	 EXCHANGE_GROUPS * (n_ranks) * 4ul)
#define EXCHANGE_TURNS_BYTES ((2 + EXCHANGE_GROUPS) * 4ul)

#define JOIN_MAX_IN 4
struct join_args {
	uint n;	   /* columns of the widest input */
	uint n_in; /* 2 … JOIN_MAX_IN */
	uint y_stride;
	uint rows_live;
	uint x_stride[JOIN_MAX_IN], x_n[JOIN_MAX_IN];
};
SHARED_SIZE(join_args, 48);
#define JOIN_COLUMNS 2048u /* of a threadgroup */
#define JOIN_THREADS 256u

struct embed_args {
	uint n_cols, n_vocab;
	uint y_stride;
	uint w_row_bytes;
	float scale;
	uint max_logit_rows; /* half of a slot of the sampled ids (shaders/step.h) */
	uint format;	     /* of the table, as enum ig_dtype */
	uint n_positions;    /* rows of learned positions; 0: none */
	uint learned_row_bytes, learned_format;
	uint tiles;   /* 1: the table is in tiles (core/tiles.h) */
	uint n_types; /* rows of types of texts; 0: none */
	uint types_row_bytes, types_format;
	uint outside; /* 1: the step's rows from outside stand in place of the table's */
	uint next;    /* 1: of the token after each row */
};
SHARED_SIZE(embed_args, 64);

/* pool: of each column of a result a thread. */
struct pool_args {
	uint n;	   /* columns */
	uint kind; /* IG_POOL_… */
	uint x_stride, y_stride;
};
SHARED_SIZE(pool_args, 16);
#define POOL_THREADS 128u
#define POOL_MEAN 1u
#define POOL_CLS 2u
#define POOL_LAST 3u

/* repack: blocks of a file to tiles. */
struct repack_args {
	uint n_rows, k; /* of the blocks that are there */
	uint row_bytes;
	uint n_tiles; /* of a row of tiles */
	uint format;  /* as enum ig_dtype */
	uint n_words; /* of all tiles */
	uint n_threads;
};
SHARED_SIZE(repack_args, 28);

/* tiles_unpack: n_tiles in all, `across` in a row of tiles. */
#define UNPACK_THREADS 256u
struct unpack_args {
	uint k, across, n_tiles;
	uint n_simdgroups; /* of the grid */
};
SHARED_SIZE(unpack_args, 16);

struct convert_args {
	uint n_cols;
	uint x_stride, y_stride;
	uint rows_live;
};
SHARED_SIZE(convert_args, 16);

struct rope_table_args {
	uint n_pairs;
	uint y_stride;
	float freq_scale;
	uint flags; /* ROPE_FACTORS, ROPE_AXES */
	float magnitude;
};
SHARED_SIZE(rope_table_args, 20);
#define ROPE_FACTORS 1u
#define ROPE_AXES 2u /* each pair has an axis, else all have the first one */

struct rope_kv_args {
	uint n_heads, n_kv_heads, head_dim, n_pairs;
	uint mode; /* IG_ROPE_… */
	uint group, layer;
	uint x_stride, table_stride, y_stride;
	float norm_eps;
	uint flags;	     /* ROPE_NORM, ROPE_TABLE */
	uint y_type;	     /* ELEMENT_… */
	uint q_scale_length; /* positions that share one of q_scales; 0: q is not scaled */
	uint k_type, v_type; /* ELEMENT_…, of the cache */
	uint q_stride;	     /* columns from one head of q to the next one */
};
SHARED_SIZE(rope_kv_args, 68);

struct rope_latent_args {
	uint n_heads, head_dim; /* of q */
	uint n_latent, n_pairs;
	uint mode; /* IG_ROPE_… */
	uint group, layer;
	uint x_stride, kv_stride, table_stride, y_stride;
	float norm_eps;
	uint y_type, k_type; /* ELEMENT_… */
};
SHARED_SIZE(rope_latent_args, 56);
#define ROPE_NORM 2u
#define ROPE_TABLE 4u
#define ROPE_NORM_ALL_Q 8u /* all heads of q together */
#define ROPE_NORM_ALL_K 16u
#define ROPE_Q_ONLY 32u /* x has neither k nor v */
#define ROPE_NO_V 64u	/* v is k as it is in x */
#define ROPE_NORM_V 128u
#define ROPE_ROWS 256u /* y has q | k | v; nothing is written to a cache */

struct attention_args {
	uint n_heads, n_kv_heads, head_dim;
	uint group, layer;
	uint q_stride, y_stride;
	float scale;	     /* of scores, times log2(e) */
	uint window;	     /* 0: all positions */
	uint y_type;	     /* ELEMENT_… */
	uint k_type, v_type; /* of the cache, for kernels that read ELEMENT_Q8_0 */
	uint flags;	     /* ATTENTION_… */
	uint gate_row;	     /* stride of the gate's input */
	uint gate_first, gate_stride, gate_dim;
	uint v_dim;  /* columns of V; with ATTENTION_V_IN_K the first ones of K */
	uint ahead;  /* of attention_rows: positions behind a row's own that it sees */
	uint ranges; /* of attention_whole: threadgroups of a cluster */
};
SHARED_SIZE(attention_args, 80);
#define ATTENTION_SINKS 1u
#define ATTENTION_SIGMOID 2u /* the output is multiplied by that of the gate */
#define ATTENTION_SOFTPLUS 4u
#define ATTENTION_V_IN_K 8u
#define ATTENTION_SPANS 16u /* rows see up to the step's sees_to */

/* conv1d: of each column a thread.  The state's part is the layer's only one. */
struct conv1d_args {
	uint width;
	uint x_stride, y_stride;
	uint y_type; /* ELEMENT_… */
	uint group, layer;
	uint first; /* of the columns of x that are u */
	uint flags; /* CONV1D_… */
};
SHARED_SIZE(conv1d_args, 32);
#define CONV1D_THREADS 128u
#define CONV1D_GATED 1u
#define CONV1D_BIAS 2u
#define CONV1D_SILU 4u

/* gated_delta and selective_scan: columns of a state. */
#define STATE_COLUMNS 32u /* of a threadgroup */
#define STATE_LANES 4u	  /* that share a column */
#define STATE_THREADS (STATE_COLUMNS * STATE_LANES)
#define STATE_ROWS 8u /* of the step, that are in threadgroup memory together */
/* Of a column of `fours` groups of four values a lane. */
#define STATE_DIM(fours) ((fours) * 4u * STATE_LANES)
/* Floats of threadgroup memory: two vectors of a row, what goes into the columns, two factors. */
#define STATE_ROOM(fours) (STATE_ROWS * (2u * STATE_DIM(fours) + STATE_COLUMNS + 2u))

struct gated_delta_args {
	uint n_k_heads, n_v_heads, k_dim, v_dim;
	uint x_stride, gates_stride, y_stride;
	uint tiled, by_key; /* as struct ig_gated_delta_params */
	uint part_heads;
	float norm_eps;
	float q_scale;
	uint group, layer;
	uint tiles; /* threadgroups of a head */
};
SHARED_SIZE(gated_delta_args, 60);

struct selective_scan_args {
	uint n_heads, head_dim, n_groups, state_dim;
	uint x_stride, dt_stride, y_stride;
	uint part_heads;
	uint dt_first;
	uint group, layer;
	uint tiles; /* threadgroups of a head */
};
SHARED_SIZE(selective_scan_args, 48);

/* norm_gated: of a group of columns a simdgroup, or of a wide one a threadgroup. */
struct norm_gated_args {
	uint n; /* columns of a group */
	uint n_groups;
	uint x_stride, z_stride, y_stride;
	float eps;
	uint gate_first;
	uint w_step; /* columns between the groups' weights; 0: all have the same */
	uint y_type; /* ELEMENT_… */
};
SHARED_SIZE(norm_gated_args, 36);
#define NORM_GATED_THREADS 256u
#define NORM_GATED_WIDE 512u /* columns of a group, from which on it is a wide one */

/* tensor_probe: the inner length, a multiple of 64. */
struct tensor_probe_args {
	uint k;
};
SHARED_SIZE(tensor_probe_args, 4);
#define TENSOR_PROBE_ROWS 64u

/* kv_copy: threads of the grid's first dimension, which share a copy. */
struct copy_args {
	uint n_threads;
};
SHARED_SIZE(copy_args, 4);

struct sample_args {
	uint n_vocab;
	uint x_stride;
	uint max_logit_rows;
	uint n_parts; /* that a row is cut into where several threadgroups share it */
	uint guess; /* 1: rows are the step's guesses, each of the token after that of a logit row */
};
SHARED_SIZE(sample_args, 20);
#define SAMPLE_THREADS 256u
#define SAMPLE_PART 4096u     /* logits of one part */
#define SAMPLE_BUCKETS 256u   /* one a thread */
#define SAMPLE_MAX_PARTS 256u /* one a thread */
#define SAMPLE_LIST 2048u     /* members of a bucket in threadgroup memory */
