/*
 * record.h: the ops that an architecture records, by their parameters, and
 * functions that record them so that it reads like the model's paper.  Tier 1
 * (module.h).
 *
 * A recorded value has one row per token of whatever step runs later; nothing is
 * computed while recording.
 */
#ifndef INGOT_RECORD_H
#define INGOT_RECORD_H

#include <ingot/module.h>

/* ---- parameters of the ops --------------------------------------------------- */

/* embed: out[r] = table[token_ids[r]] * scale (+ learned[positions[r]]).
 * weights: table [n_vocab, width] [, learned [n_positions, width]] */
struct ig_embed_params {
	uint32_t struct_size;
	float scale;
};

/* norm: x = in0 (+ in1);  y = x / rms(x) * w       (IG_NORM_RMS)
 *                         y = (x - mean) / std * w + b   (IG_NORM_LAYER)
 * in: x [, delta]; weights: w [1, width] [, b [1, width]]; out: y [, x + delta].
 * With gather, only the rows whose logits are wanted are kept. */
enum { IG_NORM_RMS = 0, IG_NORM_LAYER = 1 };
struct ig_norm_params {
	uint32_t struct_size;
	uint32_t kind;
	float eps;
	uint32_t gather;
};

/* linear: y = act(x W^T + b) + residual, for up to four W side by side.
 * in: x [n, k] [, residual]; weights: W_i [n_i, k] …, then, with bias, b_i [1, n_i] …
 * out: [n, sum n_i] */
enum { IG_ACT_NONE = 0, IG_ACT_SILU = 1, IG_ACT_GELU = 2 };
struct ig_linear_params {
	uint32_t struct_size;
	uint32_t n_weights;
	uint32_t act;
	uint32_t bias; /* 0 or 1 */
};

/* glu: y = act(x G^T) * (x U^T).  weights: gate G [f, k], up U [f, k], one dtype */
struct ig_glu_params {
	uint32_t struct_size;
	uint32_t act;
};

/* logits: y = x W^T.  in: x of row class logits; weights: W [n_vocab, k] */
struct ig_logits_params {
	uint32_t struct_size;
	uint32_t reserved;
};

/* sample: draws step->sampled_ids from in0 [n_logit_rows, n_vocab]. */
struct ig_sample_op_params {
	uint32_t struct_size;
	uint32_t reserved;
};

/* rope_table (module attention): out [n, 2 * n_pairs]: cos, then sin, of
 * position * freq_base^(-i / n_pairs) / factor[i].  weights: [factors [1, n_pairs]] */
struct ig_rope_table_params {
	uint32_t struct_size;
	uint32_t n_pairs;
	float freq_base;
	float freq_scale; /* multiplies the position; 1: off */
	/* With ramp_last > 0, freq_scale multiplies pair i by its share alone: not at all up
	 * to pair ramp_first, wholly from pair ramp_last on, in proportion between them. */
	float ramp_first, ramp_last;
};

/* rope_kv (module attention): from x = q | k | v side by side, normalise each
 * head of q and k (with weights q_norm, k_norm [1, head_dim]) or all heads of each
 * together ([1, n_heads * head_dim], [1, n_kv_heads * head_dim]), rotate, and write
 * k and v into the cache.  in: x, table (IG_NONE: no rotation); out: q. */
enum { IG_ROPE_PAIRS = 0 /* (2i, 2i+1) */, IG_ROPE_HALVES = 1 /* (i, i + n_pairs) */ };
struct ig_rope_kv_params {
	uint32_t struct_size;
	uint32_t n_heads, n_kv_heads, head_dim;
	uint32_t mode;
	uint32_t n_pairs;      /* dimensions beyond 2 * n_pairs are passed through */
	uint32_t group, layer; /* of the cache */
	float norm_eps;	       /* of q_norm and k_norm, if given */
	/* With q_scale_length > 0, q is multiplied by
	 * 1 + q_scale * log(1 + floor(position / q_scale_length)). */
	float q_scale;
	uint32_t q_scale_length;
};

/* attention (module attention): causal, over the pages of the row's sequence.
 * in: q [n, n_heads * head_dim]; out: the same shape.  window 0: all, else the
 * last `window` positions. */
struct ig_attention_params {
	uint32_t struct_size;
	uint32_t n_heads, n_kv_heads, head_dim;
	uint32_t group, layer;
	float scale;
	uint32_t window;
};

/* What these two do. */
#define IG_ATTENTION_MAX_HEADS 1024
#define IG_ATTENTION_MAX_HEAD_DIM 256 /* multiples of 8 */

/* ---- mixture of experts (module moe) ----
 *
 * The experts' matrices of one kind lie in one weight, one expert behind the other:
 * [n_experts * n, k].  An assignment is a row and one of its top_k experts; its number is
 * row * top_k + slot, slots being in ascending order of the row's experts.  A row's
 * results depend on that row alone, bit for bit.
 */
#define IG_MOE_MAX_EXPERTS 1024
#define IG_MOE_MAX_TOP_K 32

/* moe_route: which experts each row goes to.  in: logits [n, n_experts] of float.
 * out: the route, [n, 4 * top_k] words of 32 bits (IG_I32), in four parts of top_k:
 *   ids      the experts of the row's largest logits, on equal ones the lower id (NaN is
 *            smaller than any number), in ascending order of id
 *   weights  float, of slot j: scale * exp(x[id_j] - max x) / sum of exp(x - max x), the
 *            sum being of all experts, in ascending order, or with normalise of the row's
 *            own, in the order of slots
 *   order    the step's n * top_k assignments by expert, those of one expert by row
 *   runs     a run is the assignments of one active expert: where in `order` each begins,
 *            in ascending order of experts; behind the last run, n * top_k
 * ids and weights are of their row.  order and runs are lists of n * top_k entries of the
 * whole step: entry i lies in row i / top_k, at i % top_k of that part. */
struct ig_moe_route_params {
	uint32_t struct_size;
	uint32_t n_experts, top_k; /* top_k <= n_experts */
	uint32_t normalise;	   /* 0 or 1 */
	float scale;
};

enum { IG_ROUTE_IDS = 0, IG_ROUTE_WEIGHTS = 1, IG_ROUTE_ORDER = 2, IG_ROUTE_RUNS = 3 };

/* moe_glu: slot j of a row = act(x G^T) * (x U^T) by the matrices of its expert.
 * in: x [n, k], route; weights: gate G, up U [n_experts * f, k] of one dtype, f a multiple
 * of 16; out: [n, top_k * f]. */
struct ig_moe_glu_params {
	uint32_t struct_size;
	uint32_t act;
	uint32_t n_experts, top_k;
};

/* moe_combine: y = w_0 (h_0 D_0^T) + w_1 (h_1 D_1^T) + ... (+ residual), added from left to
 * right: slots in ascending order, the residual last.
 * in: h [n, top_k * f], route [, residual [n, width]]; weights: down D
 * [n_experts * width, f], f and width multiples of 16; out: [n, width]. */
struct ig_moe_combine_params {
	uint32_t struct_size;
	uint32_t n_experts, top_k;
	uint32_t reserved;
};

/* ---- recording, so that it reads like the paper ----------------------------------- */

struct ig_rec {
	const struct ig_host *host;
	struct ig_graph *g;
};

static inline ig_weight ig_rec_weight(struct ig_rec *r, int64_t n_rows, int64_t n_cols,
				      const char *name)
{
	return r->host->weight(r->g, name, n_rows, n_cols);
}

/* A layer's weight: name with the layer's number in place of %u. */
__attribute__((format(printf, 4, 0))) static inline ig_weight
ig_rec_layer_weight(struct ig_rec *r, int64_t n_rows, int64_t n_cols, const char *name,
		    uint32_t layer)
{
	char buf[96];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	snprintf(buf, sizeof buf, name, layer);
#pragma GCC diagnostic pop
	return r->host->weight(r->g, buf, n_rows, n_cols);
}

static inline ig_value ig_rec_op(struct ig_rec *r, const char *op, const void *params,
				 const ig_value *in, uint32_t n_in, const ig_weight *w,
				 uint32_t n_w)
{
	ig_value out = IG_NONE;
	r->host->record(r->g, op, params, in, n_in, w, n_w, &out, 1);
	return out;
}

static inline ig_value ig_rec_embed(struct ig_rec *r, ig_weight table)
{
	struct ig_embed_params p = { sizeof p, 1.0f };
	return ig_rec_op(r, "embed", &p, NULL, 0, &table, 1);
}

/* Positions that were learned: one row of `learned` added to each token's. */
static inline ig_value ig_rec_embed_learned(struct ig_rec *r, ig_weight table, ig_weight learned)
{
	struct ig_embed_params p = { sizeof p, 1.0f };
	ig_weight w[2] = { table, learned };
	return ig_rec_op(r, "embed", &p, NULL, 0, w, 2);
}

static inline ig_value ig_rec_embed_scaled(struct ig_rec *r, ig_weight table, float scale)
{
	struct ig_embed_params p = { sizeof p, scale };
	return ig_rec_op(r, "embed", &p, NULL, 0, &table, 1);
}

static inline ig_value ig_rec_rms_norm(struct ig_rec *r, ig_value x, ig_weight w, float eps)
{
	struct ig_norm_params p = { sizeof p, IG_NORM_RMS, eps, 0 };
	return ig_rec_op(r, "norm", &p, &x, 1, &w, 1);
}

/* As ig_rec_rms_norm, of the rows whose logits are wanted only. */
static inline ig_value ig_rec_rms_norm_last(struct ig_rec *r, ig_value x, ig_weight w, float eps)
{
	struct ig_norm_params p = { sizeof p, IG_NORM_RMS, eps, 1 };
	return ig_rec_op(r, "norm", &p, &x, 1, &w, 1);
}

/* *x becomes x + delta; returns its norm.  With gather, both are of the rows whose logits
 * are wanted. */
static inline ig_value ig_rec_rms_norm_add(struct ig_rec *r, ig_value *x, ig_value delta,
					   ig_weight w, float eps, uint32_t gather)
{
	struct ig_norm_params p = { sizeof p, IG_NORM_RMS, eps, gather };
	ig_value in[2] = { *x, delta }, out[2] = { IG_NONE, IG_NONE };

	r->host->record(r->g, "norm", &p, in, 2, &w, 1, out, 2);
	*x = out[1];
	return out[0];
}

static inline ig_value ig_rec_layer_norm(struct ig_rec *r, ig_value x, ig_weight w, ig_weight b,
					 float eps, uint32_t gather)
{
	struct ig_norm_params p = { sizeof p, IG_NORM_LAYER, eps, gather };
	ig_weight both[2] = { w, b };
	return ig_rec_op(r, "norm", &p, &x, 1, both, 2);
}

/* n weights side by side; residual may be IG_NONE. */
static inline ig_value ig_rec_linear(struct ig_rec *r, ig_value x, const ig_weight *w, uint32_t n,
				     ig_value residual)
{
	struct ig_linear_params p = { sizeof p, n, IG_ACT_NONE, 0 };
	ig_value in[2] = { x, residual };
	return ig_rec_op(r, "linear", &p, in, residual == IG_NONE ? 1 : 2, w, n);
}

/* The same with act(x W^T + b): w is the n weights, then their n biases. */
static inline ig_value ig_rec_linear_bias(struct ig_rec *r, ig_value x, const ig_weight *w,
					  uint32_t n, uint32_t act, ig_value residual)
{
	struct ig_linear_params p = { sizeof p, n, act, 1 };
	ig_value in[2] = { x, residual };
	return ig_rec_op(r, "linear", &p, in, residual == IG_NONE ? 1 : 2, w, 2 * n);
}

static inline ig_value ig_rec_glu(struct ig_rec *r, ig_value x, ig_weight gate, ig_weight up,
				  uint32_t act)
{
	struct ig_glu_params p = { sizeof p, act };
	ig_weight w[2] = { gate, up };
	return ig_rec_op(r, "glu", &p, &x, 1, w, 2);
}

static inline ig_value ig_rec_logits(struct ig_rec *r, ig_value x, ig_weight w)
{
	struct ig_logits_params p = { sizeof p, 0 };
	return ig_rec_op(r, "logits", &p, &x, 1, &w, 1);
}

static inline void ig_rec_sample(struct ig_rec *r, ig_value logits)
{
	struct ig_sample_op_params p = { sizeof p, 0 };
	r->host->record(r->g, "sample", &p, &logits, 1, NULL, 0, NULL, 0);
}

static inline ig_value ig_rec_rope_table(struct ig_rec *r, uint32_t n_pairs, float freq_base,
					 float freq_scale, ig_weight factors)
{
	struct ig_rope_table_params p = { sizeof p, n_pairs, freq_base, freq_scale, 0, 0 };
	return ig_rec_op(r, "rope_table", &p, NULL, 0, &factors, factors == IG_NONE ? 0 : 1);
}

static inline ig_value ig_rec_rope_kv(struct ig_rec *r, const struct ig_rope_kv_params *p,
				      ig_value qkv, ig_value table)
{
	ig_value in[2] = { qkv, table };
	return ig_rec_op(r, "rope_kv", p, in, table == IG_NONE ? 1 : 2, NULL, 0);
}

/* The same, each head of q and k normalised before: norms is q_norm, k_norm. */
static inline ig_value ig_rec_rope_kv_norm(struct ig_rec *r, const struct ig_rope_kv_params *p,
					   ig_value qkv, ig_value table, const ig_weight *norms)
{
	ig_value in[2] = { qkv, table };
	return ig_rec_op(r, "rope_kv", p, in, table == IG_NONE ? 1 : 2, norms, 2);
}

static inline ig_value ig_rec_attention(struct ig_rec *r, const struct ig_attention_params *p,
					ig_value q)
{
	return ig_rec_op(r, "attention", p, &q, 1, NULL, 0);
}

/* What the three ops of a layer of experts have in common. */
struct ig_moe {
	uint32_t n_experts, top_k;
	uint32_t act;
	uint32_t normalise; /* the chosen ones' weights sum to 1 */
	float scale;
};

/* router [n_experts, width] */
static inline ig_value ig_rec_moe_route(struct ig_rec *r, const struct ig_moe *m, ig_value h,
					ig_weight router)
{
	struct ig_moe_route_params p = { sizeof p, m->n_experts, m->top_k, m->normalise, m->scale };
	ig_value logits = ig_rec_linear(r, h, &router, 1, IG_NONE);

	return ig_rec_op(r, "moe_route", &p, &logits, 1, NULL, 0);
}

static inline ig_value ig_rec_moe_glu(struct ig_rec *r, const struct ig_moe *m, ig_value h,
				      ig_value route, ig_weight gate, ig_weight up)
{
	struct ig_moe_glu_params p = { sizeof p, m->act, m->n_experts, m->top_k };
	ig_value in[2] = { h, route };
	ig_weight w[2] = { gate, up };

	return ig_rec_op(r, "moe_glu", &p, in, 2, w, 2);
}

/* residual may be IG_NONE. */
static inline ig_value ig_rec_moe_combine(struct ig_rec *r, const struct ig_moe *m, ig_value h,
					  ig_value route, ig_weight down, ig_value residual)
{
	struct ig_moe_combine_params p = { sizeof p, m->n_experts, m->top_k, 0 };
	ig_value in[3] = { h, route, residual };

	return ig_rec_op(r, "moe_combine", &p, in, residual == IG_NONE ? 2 : 3, &down, 1);
}

#endif
