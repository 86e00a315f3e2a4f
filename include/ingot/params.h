/*
 * params.h: the ops and their parameters.  Tier 1 (module.h).  The first member of a parameter
 * struct is its size.  New members are appended, and zero in them means the earlier behaviour, so a
 * module built against a shorter struct still works.
 */
#ifndef INGOT_PARAMS_H
#define INGOT_PARAMS_H

#include <stdint.h>

/* embed: out[r] = table[token_ids[r]] * scale (+ learned[positions[r]]) (+ types[row_types[r]]); with
 * next 1 of the token after each row (struct ig_step, next_ids).  outside 1: a row that has an embedding
 * from outside (struct ig_step) has that, unscaled, in place of table's.
 * weights: table [n_vocab, width] [, learned [n_positions, width] or none [, types [n_types, width]]] */
struct ig_embed_params {
	uint32_t struct_size;
	float scale;
	uint32_t next;	  /* 0 or 1 */
	uint32_t outside; /* 0 or 1; not with next */
};

/* norm: x = in0 (+ in1);  y = x / rms(x) * w       (IG_NORM_RMS)
 *                         y = (x - mean) / std * w + b   (IG_NORM_LAYER)
 * in: x [, delta]; weights: w [1, width] [, b [1, width]]; out: y [, x + delta].
 * gather 1: out has only the rows whose logits are computed; 2: of these only those with a guess.
 * after 1 (RMS): y = (in0 / rms(in0) * w + in1) * scale * s: in1 is added to the result; weights:
 * w [, none [, s [1, 1]]]; out: y.  Without w (RMS): y = x / rms(x). */
enum { IG_NORM_RMS = 0, IG_NORM_LAYER = 1 };
struct ig_norm_params {
	uint32_t struct_size;
	uint32_t kind;
	float eps;
	uint32_t gather;
	uint32_t after;
	/* Columns that are normalised by themselves, of which x has a whole multiple; w is [1, group].
	 * 0: all. */
	uint32_t group;
	float scale; /* 0: 1 */
};

/* multiply: y = in0 * columns first … of in1.  in: a [n, k], b [n, first + k or more]; out: [n, k] */
struct ig_multiply_params {
	uint32_t struct_size;
	uint32_t first;
};

/* sum: y = in0 + in1 + ..., from left to right.  in: two to four values of one shape; out: that shape */
struct ig_sum_params {
	uint32_t struct_size;
	uint32_t reserved;
};

/* concat: the columns of two to four values side by side.  in: [n, k_i] of one row class; out: [n, sum k_i] */
struct ig_concat_params {
	uint32_t struct_size;
	uint32_t reserved;
};

/* soft_cap: y = cap * tanh(scale * x / cap), or scale * x if cap is 0.  in: x; out: its shape */
struct ig_soft_cap_params {
	uint32_t struct_size;
	float scale; /* above 0 */
	float cap;
};

/* linear: y = act(x W^T + b) + residual, for up to four W, whose results are adjacent columns.
 * in: x [n, k] [, residual]; weights: W_i [n_i, k] …, then, with bias, b_i [1, n_i] …
 * out: [n, sum n_i] */
enum {
	IG_ACT_NONE = 0,
	IG_ACT_SILU = 1,
	IG_ACT_GELU = 2,      /* by tanh */
	IG_ACT_RELU2 = 3,     /* max(x, 0)^2; not of gates */
	IG_ACT_CLAMPED = 4,   /* only of gates: see glu */
	IG_ACT_GELU_ERF = 16, /* only of linear, and of moe_glu without gates */
	IG_ACT_TANH = 17,     /* only of linear */
};
struct ig_linear_params {
	uint32_t struct_size;
	uint32_t n_weights;
	uint32_t act;
	uint32_t bias; /* 0 or 1 */
};

/* glu: y = act(g) * u, g = x G^T (+ b_G), u = x U^T (+ b_U); with IG_ACT_CLAMPED
 * y = g' sigmoid(1.702 g') * (u' + 1), g' = min(g, limit), u' in -limit … limit.
 * weights: gate G [f, k], up U [f, k], one dtype [, with bias b_G, b_U [1, f] of float32] */
struct ig_glu_params {
	uint32_t struct_size;
	uint32_t act;
	float limit;   /* of IG_ACT_CLAMPED */
	uint32_t bias; /* 0 or 1 */
};

/* linear_heads: a matrix for each head: y_h = x_h W_h^T, of the first k columns of a head, then its
 * other columns as they are.  in: x [n, n_heads * (k + n_rest)] [, with n_rest > 0, x once more, whose
 * other columns are read]; weights: W [n_heads * m, k], head after head, m a multiple of 16, k and n_rest
 * of 8; out: [n, n_heads * (m + n_rest)]. */
struct ig_linear_heads_params {
	uint32_t struct_size;
	uint32_t n_heads;
	uint32_t n_rest;
};

/* logits: y = x W^T.  in: x of row class logits or guesses; weights: W [n_vocab, k] */
struct ig_logits_params {
	uint32_t struct_size;
	uint32_t reserved;
};

/* sample: step->sampled_ids from the logits in0 [n_logit_rows, n_vocab]; guess 1: step->guessed_ids
 * from in0 [n_guesses, n_vocab], each with the parameters of its row but for one position later and no mask. */
struct ig_sample_op_params {
	uint32_t struct_size;
	uint32_t guess; /* 0 or 1 */
};

/* pool: one row for each row of logits, which is the last of a sequence that the step has whole:
 * the mean of the sequence's rows, its first row, or its last.  in: x; out: row class logits. */
enum {
	IG_POOL_MEAN = 1,
	IG_POOL_CLS = 2,
	IG_POOL_LAST = 3,
	IG_POOL_RANK = 4 /* not of the op: of a reranker's file */
};
struct ig_pool_params {
	uint32_t struct_size;
	uint32_t kind;
};

/* output: step->logits from in0, of row class logits: the last op of a model that samples nothing. */
struct ig_output_params {
	uint32_t struct_size;
	uint32_t reserved;
};

/* stage_in: columns `first` to first + n of rows of step->stage_in, which have `width` of them.  out: [n_rows, n];
 * no input.  stage_out: x to these columns of step->stage_out, from `first` on.  in: x, of row class tokens. */
struct ig_stage_in_params {
	uint32_t struct_size;
	uint32_t first, n, width;
};
struct ig_stage_out_params {
	uint32_t struct_size;
	uint32_t first, width;
};

/* rope_table (module attention): out [n, 2 * n_pairs]: magnitude times cos, then sin, of
 * position * freq_base^(-i / n_pairs) / factor[i].  weights: [factors [1, n_pairs]].  The position is the
 * row's, or the step's rope_positions along time; with sections each pair has one axis (M-RoPE, Wang et
 * al. 2024, arXiv:2409.12191): the first sections[0] pairs time, then height, then width; interleaved: of
 * three pairs i, i + 1, i + 2 the second has height below 3 sections[1], the third width below
 * 3 sections[2], all others time. */
#define IG_ROPE_AXES 3 /* time, height, width */
struct ig_rope_table_params {
	uint32_t struct_size;
	uint32_t n_pairs;
	float freq_base;
	float freq_scale; /* multiplies the position; 1: off */
	/* YaRN, if ramp_last > 0: pairs up to ramp_first are not scaled by freq_scale, pairs from
	 * ramp_last on are, and between them the frequency is interpolated linearly. */
	float ramp_first, ramp_last;
	float magnitude; /* cos and sin are multiplied by it; 0: 1 */
	uint32_t sections
		[IG_ROPE_AXES]; /* pairs of each axis, n_pairs together; all 0: time alone */
	uint32_t interleaved;	/* 0 or 1; with sections */
};

/* rope_kv (module attention): QK norm and RoPE of x = q | k | v; writes k and v to the cache.  in:
 * x [, table of rope_table]; without a table there is no RoPE.  weights: none, or q_norm and
 * k_norm: [1, head_dim] normalises each head, [1, n_heads * head_dim] and [1, n_kv_heads *
 * head_dim] all heads together.  out: q [n, n_heads * head_dim] */
enum ig_rope_kv_flags {
	IG_ROPE_KV_Q_ONLY = 1 << 0, /* x is q: the layer reads another one's cache; no k_norm */
	IG_ROPE_KV_NO_V = 1 << 1,   /* x is q | k: v is k before its norm and RoPE */
	IG_ROPE_KV_V_NORM = 1 << 2, /* each head of v is divided by its root mean square */
};
enum { IG_ROPE_PAIRS = 0 /* (2i, 2i+1) */, IG_ROPE_HALVES = 1 /* (i, i + n_pairs) */ };
struct ig_rope_kv_params {
	uint32_t struct_size;
	uint32_t n_heads, n_kv_heads, head_dim;
	uint32_t mode;
	uint32_t n_pairs;      /* dimensions from 2 * n_pairs on are not rotated */
	uint32_t group, layer; /* of the cache */
	float norm_eps;	       /* of all norms */
	/* If q_scale_length > 0, q is multiplied by
	 * 1 + q_scale * log(1 + floor(position / q_scale_length)). */
	float q_scale;
	uint32_t q_scale_length;
	uint32_t flags;	   /* enum ig_rope_kv_flags */
	uint32_t q_stride; /* columns of x from one head of q to the next one; 0: head_dim */
	uint32_t n_rest;   /* columns of x after q | k | v, which others read */
};

/* rope_latent (module attention): the keys of multi-head latent attention (DeepSeek-AI 2024,
 * arXiv:2405.04434), absorbed: one head of n_latent + 2 * n_pairs, whose first n_latent dimensions are
 * the values too.  RMSNorm of those, RoPE of the others, and of the last 2 * n_pairs columns of each
 * head of q; writes the keys to the cache, whose group has the kind IG_CACHE_K.
 * in: q [n, n_heads * head_dim], kv [n, n_latent + 2 * n_pairs], table of rope_table; weights: the
 * norm's [1, n_latent]; out: the shape of q. */
struct ig_rope_latent_params {
	uint32_t struct_size;
	uint32_t n_heads, head_dim;
	uint32_t n_latent, n_pairs;
	uint32_t mode; /* IG_ROPE_PAIRS, IG_ROPE_HALVES */
	uint32_t group, layer;
	float norm_eps;
};

/* attention (module attention): causal, over the cached blocks of the row's sequence.
 * in: q [n, n_heads * head_dim] [, the gate's columns]; weights: [sinks [1, n_heads]]: a score that
 * joins each head's softmax and has no value (Xiao et al. 2024, arXiv:2309.17453); out: the shape of
 * q, or with v_dim [n, n_heads * v_dim]: values are the first v_dim dimensions of the keys
 * (multi-head latent attention, DeepSeek-AI 2024, arXiv:2405.04434), for which the cache has no
 * values.  window: the last `window` positions; 0: all of them.  Gate: the output of head h is multiplied by
 * sigmoid or softplus of the gate_dim (1 or all) columns of in1 from gate_first + h * gate_stride
 * on.  spans 1: a row sees what it does up to the step's sees_to. */
enum { IG_GATE_NONE = 0, IG_GATE_SIGMOID = 1, IG_GATE_SOFTPLUS = 2 };
struct ig_attention_params {
	uint32_t struct_size;
	uint32_t n_heads, n_kv_heads, head_dim;
	uint32_t group, layer;
	float scale;
	uint32_t window;
	uint32_t gate; /* IG_GATE_… */
	uint32_t gate_first, gate_stride, gate_dim;
	uint32_t v_dim; /* 0: values of their own, of head_dim */
	uint32_t spans; /* 0 or 1 */
};

/* rope_rows (module attention): as rope_kv, but nothing is written to a cache: out has q | k | v.
 * group, layer and all from q_scale on must be 0. */

/* attention_rows (module attention): over the step's own rows of the row's sequence, of which the step
 * has all.  A row at position i sees the positions from i - back to i + ahead.
 * in: q | k | v [n, (n_heads + 2 n_kv_heads) * head_dim]; out: [n, n_heads * head_dim]. */
#define IG_ATTENTION_ALL UINT32_MAX
struct ig_attention_rows_params {
	uint32_t struct_size;
	uint32_t n_heads, n_kv_heads, head_dim;
	float scale;
	uint32_t back, ahead; /* IG_ATTENTION_ALL: to the text's beginning or end */
};

/* Limits of the ops of module attention. */
#define IG_ATTENTION_MAX_HEADS 1024
#define IG_ATTENTION_MAX_HEAD_DIM 576 /* multiples of 8 */

/* ---- mixture of experts (module moe) ----
 *
 * The experts' matrices of one kind are one weight, expert after expert: [n_experts * n, k].
 * An assignment is a row and one of its top_k experts; its number is row * top_k + j, where j
 * counts the row's experts in ascending order of their ids.  The bits of a row's results depend
 * on that row alone.
 */
#define IG_MOE_MAX_EXPERTS 1024
#define IG_MOE_MAX_TOP_K 32
#define IG_MOE_MAX_GROUPS 32

/* moe_route: selects each row's experts by their scores, the lower id first if equal, and gives
 * them weights.  A score is a softmax over all experts, or with IG_GATING_SIGMOID each logit's
 * own.  Weights are the selected experts' scores, with normalise divided by sum_epsilon plus
 * their sum, times scale.
 *
 * select_bias 1 (sigmoid only): a weight [1, n_experts] is added to the scores for the selection,
 * not in the weights.  n_groups > 0 (sigmoid only): experts are divided into groups of equal
 * size, in order; experts are selected from the n_groups_used groups with the largest sum of their
 * two best, bias included.  expert_scale 1: a weight [1, n_experts] multiplies the weights last.
 * shared 1: the logits have one more column, and the route has its sigmoid, which weights the
 * shared expert in moe_combine.
 *
 * in: logits [n, n_experts + shared] of float32; weights: [select_bias,] [expert_scale,] of
 * float32; out: the route, [n, 4 * top_k + shared] of IG_I32, which moe_glu and moe_combine
 * read. */
enum { IG_GATING_SOFTMAX = 0, IG_GATING_SIGMOID = 1 };
struct ig_moe_route_params {
	uint32_t struct_size;
	uint32_t n_experts, top_k; /* top_k <= n_experts */
	uint32_t normalise;	   /* 0 or 1 */
	float scale;
	uint32_t gating; /* IG_GATING_… */
	uint32_t select_bias;
	uint32_t n_groups, n_groups_used; /* at least two experts in a group */
	float sum_epsilon;
	uint32_t expert_scale;
	uint32_t shared;
};

/* moe_glu: for each expert j of a row, the result of glu with that expert's matrices.
 * in: x [n, k], route; out: [n, top_k * f], f a multiple of 16.  weights:
 *   IG_MOE_PAIR   gate G, up U [n_experts * f, k] of one dtype
 *   IG_MOE_FUSED  one matrix [n_experts * 2 f, k]: of each expert G, then U
 *   IG_MOE_UP     U alone: act(x U_j^T)
 * then, with bias, one of each matrix, [n_experts, f] of float32. */
enum { IG_MOE_PAIR = 0, IG_MOE_FUSED = 1, IG_MOE_UP = 2 };
struct ig_moe_glu_params {
	uint32_t struct_size;
	uint32_t act;
	uint32_t n_experts, top_k;
	uint32_t form; /* IG_MOE_… */
	uint32_t bias; /* 0 or 1; not of IG_MOE_FUSED */
	float limit;   /* as glu's */
};

/* moe_combine: y = w_0 (h_0 D_0^T (+ b_0)) + w_1 (h_1 D_1^T (+ b_1)) + ... (+ w_s s) (+ b) (+ residual),
 * added from left to right.  in: h [n, top_k * f], route [, residual [n, width] [, s [n, width]]]; s is the result
 * of the shared expert if the route has its weight w_s.  weights: down D [n_experts * width, f], f
 * and width multiples of 16 [, b_j [n_experts, width], or b [1, width], of float32]; out: [n, width]. */
enum { IG_MOE_BIAS_EACH = 1, IG_MOE_BIAS_SUM = 2 };
struct ig_moe_combine_params {
	uint32_t struct_size;
	uint32_t n_experts, top_k;
	uint32_t shared; /* 0 or 1, as the route's */
	uint32_t bias;	 /* 0: none; IG_MOE_BIAS_…: of each expert, or one of their sum */
};

/* ---- recurrent layers (module recurrent) ----
 *
 * Their ops read the state of a sequence's tokens so far and write the one after the step's rows
 * (struct ig_step, segments).  A row's bits depend only on its sequence's rows up to it: the
 * recurrence is computed token after token, however the rows are divided into steps.
 */

/* conv1d: each column by itself over the last n_taps tokens, u before the first token being 0:
 * y_t = act(b + w_0 u_(t - n_taps + 1) + ... + w_(n_taps - 1) u_t), added from left to right.
 * in: x [n, first + width + rest], u = columns first … of x; or, gated 1, x = p | q | r [n, 3 * width]: u = p * r, and y is multiplied
 * by q.  weights: w [width, n_taps] of F32 [, b [1, width]]; out: y [n, width].  State: one part a
 * layer, [n_taps - 1, width], the last values of u. */
struct ig_conv1d_params {
	uint32_t struct_size;
	uint32_t n_taps; /* 2 … IG_CONV1D_MAX_TAPS */
	uint32_t act;
	uint32_t gated;	       /* 0 or 1 */
	uint32_t group, layer; /* of the cache */
	uint32_t first, rest;  /* columns of x before and behind; not with gated */
};
#define IG_CONV1D_MAX_TAPS 8

/* gated_delta: linear attention by the gated delta rule.  Of each head of values with its state
 * S [k_dim, v_dim]: S = exp(a * softplus(alpha + dt)) S; S += k (sigmoid(beta) (v - S^T k))^T;
 * y = S^T q, with q and k divided by sqrt(|x|^2 + norm_eps) and q by sqrt(k_dim).
 * in: q | k | v [n, 2 * n_k_heads * k_dim + n_v_heads * v_dim], beta | alpha [n, 2 * n_v_heads];
 * weights: dt [1, n_v_heads], a [1, n_v_heads] of F32; out: y [n, n_v_heads * v_dim].  A head h of
 * values has the head h / (n_v_heads / n_k_heads) of keys, or, tiled 1, h % n_k_heads.  State: parts of
 * part_heads heads, [part_heads, k_dim, v_dim].  by_key 1: in1 has, of each head of keys, its heads' betas, then
 * their alphas; not with tiled. */
struct ig_gated_delta_params {
	uint32_t struct_size;
	uint32_t n_k_heads, n_v_heads, k_dim, v_dim; /* v_dim: a multiple of 16 */
	uint32_t tiled;				     /* 0 or 1 */
	uint32_t part_heads;			     /* divides n_v_heads */
	float norm_eps;
	uint32_t group, layer; /* of the cache */
	uint32_t by_key;       /* 0 or 1 */
};
#define IG_GATED_DELTA_MAX_HEADS 1024
#define IG_GATED_DELTA_MAX_DIM 256

/* selective_scan: the state space of Mamba-2.  Of each head with its state S [state_dim, head_dim], and
 * b and c of its group: t = softplus(dt + bias); S = exp(a t) S + b (t x)^T; y = S^T c + d x.
 * in: x | b | c [n, n_heads * head_dim + 2 * n_groups * state_dim], and dt in the n_heads columns from
 * dt_first on, which are the last; weights: bias, a and d, [1, n_heads] or [n_heads, 1] of F32; out: y
 * [n, n_heads * head_dim].  Head h has the group h / (n_heads / n_groups).  State: parts of part_heads heads,
 * [part_heads, state_dim, head_dim]. */
struct ig_selective_scan_params {
	uint32_t struct_size;
	uint32_t n_heads, head_dim, n_groups, state_dim; /* head_dim: a multiple of 16 */
	uint32_t part_heads;				 /* divides n_heads */
	uint32_t dt_first;
	uint32_t group, layer; /* of the cache */
};
#define IG_SELECTIVE_SCAN_MAX_HEADS 1024
#define IG_SELECTIVE_SCAN_MAX_DIM 256

/* norm_gated: y = x / rms(x) * w * silu(z), the root mean square over each of n_groups groups of
 * columns; or, gate_first 1, u = x * silu(z), y = u / rms(u) * w.  in: x [n, width], z [n, width + rest]; weights: w
 * [1, width / n_groups] or [1, width], or [n_groups, width / n_groups], of F32; out: y [n, width]. */
struct ig_norm_gated_params {
	uint32_t struct_size;
	uint32_t n_groups;
	float eps;
	uint32_t gate_first; /* 0 or 1 */
	uint32_t rest;	     /* columns of the second input behind z */
};

#endif
