/*
 * record.h: functions that record ops, so that an architecture reads like the model's paper.  Tier
 * 1 (module.h).  Recording computes nothing.  A recorded value has one row per token of each later
 * step.
 */
#ifndef INGOT_RECORD_H
#define INGOT_RECORD_H

#include <ingot/module.h>
#include <ingot/params.h>

struct ig_rec {
	const struct ig_host *host;
	struct ig_graph *g;
};

static inline ig_weight ig_rec_weight(struct ig_rec *r, int64_t n_rows, int64_t n_cols,
				      const char *name)
{
	return r->host->weight(r->g, name, n_rows, n_cols);
}

/* The name of a layer's tensor; %u in it is the layer's number. */
struct ig_layer_name {
	char text[96];
};

__attribute__((format(printf, 1, 0))) static inline struct ig_layer_name
ig_layer_name(const char *name, uint32_t layer)
{
	struct ig_layer_name n;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	snprintf(n.text, sizeof n.text, name, layer);
#pragma GCC diagnostic pop
	return n;
}

/* A layer's weight, by a name of ig_layer_name. */
__attribute__((format(printf, 4, 0))) static inline ig_weight
ig_rec_layer_weight(struct ig_rec *r, int64_t n_rows, int64_t n_cols, const char *name,
		    uint32_t layer)
{
	return r->host->weight(r->g, ig_layer_name(name, layer).text, n_rows, n_cols);
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
	struct ig_embed_params p = { .struct_size = sizeof p, .scale = 1.0f };
	return ig_rec_op(r, "embed", &p, NULL, 0, &table, 1);
}

/* With learned positions: row `position` of `learned` is added. */
static inline ig_value ig_rec_embed_learned(struct ig_rec *r, ig_weight table, ig_weight learned)
{
	struct ig_embed_params p = { .struct_size = sizeof p, .scale = 1.0f };
	ig_weight w[2] = { table, learned };
	return ig_rec_op(r, "embed", &p, NULL, 0, w, 2);
}

/* With the types of texts, and learned positions unless that is IG_NONE. */
static inline ig_value ig_rec_embed_types(struct ig_rec *r, ig_weight table, ig_weight learned,
					  ig_weight types)
{
	struct ig_embed_params p = { .struct_size = sizeof p, .scale = 1.0f };
	ig_weight w[3] = { table, learned, types };
	return ig_rec_op(r, "embed", &p, NULL, 0, w, 3);
}

static inline ig_value ig_rec_embed_scaled(struct ig_rec *r, ig_weight table, float scale)
{
	struct ig_embed_params p = { .struct_size = sizeof p, .scale = scale };
	return ig_rec_op(r, "embed", &p, NULL, 0, &table, 1);
}

/* The model's input: rows may have embeddings from outside in place of table's. */
static inline ig_value ig_rec_embed_input(struct ig_rec *r, ig_weight table, float scale)
{
	struct ig_embed_params p = { .struct_size = sizeof p, .scale = scale, .outside = 1 };
	return ig_rec_op(r, "embed", &p, NULL, 0, &table, 1);
}

/* Of the token after each row. */
static inline ig_value ig_rec_embed_next(struct ig_rec *r, ig_weight table)
{
	struct ig_embed_params p = { .struct_size = sizeof p, .scale = 1.0f, .next = 1 };
	return ig_rec_op(r, "embed", &p, NULL, 0, &table, 1);
}

static inline ig_value ig_rec_concat(struct ig_rec *r, ig_value a, ig_value b)
{
	struct ig_concat_params p = { .struct_size = sizeof p };
	ig_value in[2] = { a, b };
	return ig_rec_op(r, "concat", &p, in, 2, NULL, 0);
}

static inline ig_value ig_rec_rms_norm(struct ig_rec *r, ig_value x, ig_weight w, float eps)
{
	struct ig_norm_params p = { .struct_size = sizeof p, .kind = IG_NORM_RMS, .eps = eps };
	return ig_rec_op(r, "norm", &p, &x, 1, &w, 1);
}

/* As ig_rec_rms_norm, but only of the rows whose logits are computed. */
static inline ig_value ig_rec_rms_norm_last(struct ig_rec *r, ig_value x, ig_weight w, float eps)
{
	struct ig_norm_params p = {
		.struct_size = sizeof p, .kind = IG_NORM_RMS, .eps = eps, .gather = 1
	};
	return ig_rec_op(r, "norm", &p, &x, 1, &w, 1);
}

/* The same, but only of those with a guess. */
static inline ig_value ig_rec_rms_norm_guesses(struct ig_rec *r, ig_value x, ig_weight w, float eps)
{
	struct ig_norm_params p = {
		.struct_size = sizeof p, .kind = IG_NORM_RMS, .eps = eps, .gather = 2
	};
	return ig_rec_op(r, "norm", &p, &x, 1, &w, 1);
}

/* *x becomes x + delta; returns its norm.  gather 1: both have only the rows whose logits are
 * computed. */
static inline ig_value ig_rec_rms_norm_add(struct ig_rec *r, ig_value *x, ig_value delta,
					   ig_weight w, float eps, uint32_t gather)
{
	struct ig_norm_params p = {
		.struct_size = sizeof p, .kind = IG_NORM_RMS, .eps = eps, .gather = gather
	};
	ig_value in[2] = { *x, delta }, out[2] = { IG_NONE, IG_NONE };

	r->host->record(r->g, "norm", &p, in, 2, &w, 1, out, 2);
	*x = out[1];
	return out[0];
}

/* (x / rms(x) * w + residual) * scale * s; w and s [1, 1] may be IG_NONE. */
static inline ig_value ig_rec_rms_norm_after(struct ig_rec *r, ig_value x, ig_weight w, float eps,
					     ig_value residual, ig_weight s)
{
	struct ig_norm_params p = {
		.struct_size = sizeof p, .kind = IG_NORM_RMS, .eps = eps, .after = 1
	};
	ig_value in[2] = { x, residual };
	ig_weight all[3] = { w, IG_NONE, s };
	return ig_rec_op(r, "norm", &p, in, 2, all, s == IG_NONE ? 1 : 3);
}

static inline ig_value ig_rec_multiply(struct ig_rec *r, ig_value a, ig_value b, uint32_t first)
{
	struct ig_multiply_params p = { .struct_size = sizeof p, .first = first };
	ig_value in[2] = { a, b };
	return ig_rec_op(r, "multiply", &p, in, 2, NULL, 0);
}

static inline ig_value ig_rec_soft_cap(struct ig_rec *r, ig_value x, float scale, float cap)
{
	struct ig_soft_cap_params p = { .struct_size = sizeof p, .scale = scale, .cap = cap };
	return ig_rec_op(r, "soft_cap", &p, &x, 1, NULL, 0);
}

static inline ig_value ig_rec_layer_norm(struct ig_rec *r, ig_value x, ig_weight w, ig_weight b,
					 float eps, uint32_t gather)
{
	struct ig_norm_params p = {
		.struct_size = sizeof p, .kind = IG_NORM_LAYER, .eps = eps, .gather = gather
	};
	ig_weight both[2] = { w, b };
	return ig_rec_op(r, "norm", &p, &x, 1, both, 2);
}

/* Products with n weights, as adjacent columns; residual may be IG_NONE. */
static inline ig_value ig_rec_linear(struct ig_rec *r, ig_value x, const ig_weight *w, uint32_t n,
				     ig_value residual)
{
	struct ig_linear_params p = { .struct_size = sizeof p, .n_weights = n };
	ig_value in[2] = { x, residual };
	return ig_rec_op(r, "linear", &p, in, residual == IG_NONE ? 1 : 2, w, n);
}

/* act(x W^T + b) + residual: w has the n weights, then their n biases. */
static inline ig_value ig_rec_linear_bias(struct ig_rec *r, ig_value x, const ig_weight *w,
					  uint32_t n, uint32_t act, ig_value residual)
{
	struct ig_linear_params p = {
		.struct_size = sizeof p, .n_weights = n, .act = act, .bias = 1
	};
	ig_value in[2] = { x, residual };
	return ig_rec_op(r, "linear", &p, in, residual == IG_NONE ? 1 : 2, w, 2 * n);
}

/* The product of each head's first columns with its matrix, w [n_heads * m, k]; the last n_rest columns
 * of each head stay as they are. */
static inline ig_value ig_rec_linear_heads(struct ig_rec *r, ig_value x, ig_weight w,
					   uint32_t n_heads, uint32_t n_rest)
{
	struct ig_linear_heads_params p = { sizeof p, n_heads, n_rest };
	ig_value in[2] = { x, x };
	return ig_rec_op(r, "linear_heads", &p, in, n_rest ? 2 : 1, &w, 1);
}

static inline ig_value ig_rec_glu(struct ig_rec *r, ig_value x, ig_weight gate, ig_weight up,
				  uint32_t act)
{
	struct ig_glu_params p = { .struct_size = sizeof p, .act = act };
	ig_weight w[2] = { gate, up };
	return ig_rec_op(r, "glu", &p, &x, 1, w, 2);
}

static inline ig_value ig_rec_logits(struct ig_rec *r, ig_value x, ig_weight w)
{
	struct ig_logits_params p = { .struct_size = sizeof p };
	return ig_rec_op(r, "logits", &p, &x, 1, &w, 1);
}

static inline void ig_rec_sample(struct ig_rec *r, ig_value logits)
{
	struct ig_sample_op_params p = { .struct_size = sizeof p };
	r->host->record(r->g, "sample", &p, &logits, 1, NULL, 0, NULL, 0);
}

static inline void ig_rec_sample_guess(struct ig_rec *r, ig_value logits)
{
	struct ig_sample_op_params p = { .struct_size = sizeof p, .guess = 1 };
	r->host->record(r->g, "sample", &p, &logits, 1, NULL, 0, NULL, 0);
}

/* kind: IG_POOL_MEAN … */
static inline ig_value ig_rec_pool(struct ig_rec *r, ig_value x, uint32_t kind)
{
	struct ig_pool_params p = { sizeof p, kind };
	return ig_rec_op(r, "pool", &p, &x, 1, NULL, 0);
}

static inline void ig_rec_output(struct ig_rec *r, ig_value x)
{
	struct ig_output_params p = { sizeof p, 0 };
	r->host->record(r->g, "output", &p, &x, 1, NULL, 0, NULL, 0);
}

/* Without a cache: q | k | v after QK norm (norms NULL: none) and RoPE (table IG_NONE: none). */
static inline ig_value ig_rec_rope_rows(struct ig_rec *r, const struct ig_rope_kv_params *p,
					ig_value qkv, ig_value table, const ig_weight *norms)
{
	ig_value in[2] = { qkv, table };
	return ig_rec_op(r, "rope_rows", p, in, table == IG_NONE ? 1 : 2, norms, norms ? 2 : 0);
}

static inline ig_value ig_rec_attention_rows(struct ig_rec *r,
					     const struct ig_attention_rows_params *p, ig_value qkv)
{
	return ig_rec_op(r, "attention_rows", p, &qkv, 1, NULL, 0);
}

static inline ig_value ig_rec_rope_kv(struct ig_rec *r, const struct ig_rope_kv_params *p,
				      ig_value qkv, ig_value table)
{
	ig_value in[2] = { qkv, table };
	return ig_rec_op(r, "rope_kv", p, in, table == IG_NONE ? 1 : 2, NULL, 0);
}

/* The same after QK norm: norms has q_norm, k_norm; with IG_ROPE_KV_Q_ONLY q_norm. */
static inline ig_value ig_rec_rope_kv_norm(struct ig_rec *r, const struct ig_rope_kv_params *p,
					   ig_value qkv, ig_value table, const ig_weight *norms)
{
	ig_value in[2] = { qkv, table };
	return ig_rec_op(r, "rope_kv", p, in, table == IG_NONE ? 1 : 2, norms,
			 p->flags & IG_ROPE_KV_Q_ONLY ? 1 : 2);
}

/* Writes kv's keys to the cache; returns q with RoPE. */
static inline ig_value ig_rec_rope_latent(struct ig_rec *r, const struct ig_rope_latent_params *p,
					  ig_value q, ig_value kv, ig_value table, ig_weight norm)
{
	ig_value in[3] = { q, kv, table };
	return ig_rec_op(r, "rope_latent", p, in, 3, &norm, 1);
}

static inline ig_value ig_rec_attention(struct ig_rec *r, const struct ig_attention_params *p,
					ig_value q)
{
	return ig_rec_op(r, "attention", p, &q, 1, NULL, 0);
}

/* The same with the input of its gate, or IG_NONE, and its sinks [1, n_heads], or IG_NONE. */
static inline ig_value ig_rec_attention_gated(struct ig_rec *r, const struct ig_attention_params *p,
					      ig_value q, ig_value gate, ig_weight sinks)
{
	ig_value in[2] = { q, gate };
	return ig_rec_op(r, "attention", p, in, gate == IG_NONE ? 1 : 2, &sinks,
			 sinks == IG_NONE ? 0 : 1);
}

/* Parameters of the three ops of a layer of experts. */
struct ig_moe {
	uint32_t n_experts, top_k;
	uint32_t act;
	uint32_t normalise; /* 1: the weights of a row's experts sum to 1 */
	float scale;
	/* See struct ig_moe_route_params. */
	uint32_t gating;
	uint32_t n_groups, n_groups_used;
	float sum_epsilon;
	uint32_t shared; /* 1: the route has the weight of a shared expert */
	/* See struct ig_moe_glu_params. */
	uint32_t form;
	float limit;
	uint32_t sum_bias; /* 1: moe_combine's bias is one, of the sum */
};

/* The route of a router's logits [n, n_experts + shared].  select_bias and expert_scale,
 * [1, n_experts], may be IG_NONE. */
static inline ig_value ig_rec_moe_route_by(struct ig_rec *r, const struct ig_moe *m,
					   ig_value logits, ig_weight select_bias,
					   ig_weight expert_scale)
{
	const struct ig_moe_route_params p = {
		.struct_size = sizeof p,
		.n_experts = m->n_experts,
		.top_k = m->top_k,
		.normalise = m->normalise,
		.scale = m->scale,
		.gating = m->gating,
		.select_bias = select_bias != IG_NONE,
		.n_groups = m->n_groups,
		.n_groups_used = m->n_groups_used,
		.sum_epsilon = m->sum_epsilon,
		.expert_scale = expert_scale != IG_NONE,
		.shared = m->shared,
	};
	ig_weight w[2] = { select_bias, expert_scale };

	if (select_bias == IG_NONE)
		w[0] = expert_scale;
	return ig_rec_op(r, "moe_route", &p, &logits, 1, w, p.select_bias + p.expert_scale);
}

/* router [n_experts, width] */
static inline ig_value ig_rec_moe_route(struct ig_rec *r, const struct ig_moe *m, ig_value h,
					ig_weight router)
{
	return ig_rec_moe_route_by(r, m, ig_rec_linear(r, h, &router, 1, IG_NONE), IG_NONE,
				   IG_NONE);
}

/* By m->form: gate and up, both in one matrix, or up alone. */
static inline ig_value ig_rec_moe_glu(struct ig_rec *r, const struct ig_moe *m, ig_value h,
				      ig_value route, ig_weight gate, ig_weight up)
{
	const struct ig_moe_glu_params p = {
		.struct_size = sizeof p,
		.act = m->act,
		.n_experts = m->n_experts,
		.top_k = m->top_k,
		.form = m->form,
		.limit = m->limit,
	};
	ig_value in[2] = { h, route };
	ig_weight w[2] = { m->form == IG_MOE_UP ? up : gate, up };

	return ig_rec_op(r, "moe_glu", &p, in, 2, w, m->form == IG_MOE_PAIR ? 2 : 1);
}

/* Gate, up and their biases [n_experts, f]; of IG_MOE_UP w has up and its bias. */
static inline ig_value ig_rec_moe_glu_bias(struct ig_rec *r, const struct ig_moe *m, ig_value h,
					   ig_value route, const ig_weight *w)
{
	const struct ig_moe_glu_params p = {
		.struct_size = sizeof p,
		.act = m->act,
		.n_experts = m->n_experts,
		.top_k = m->top_k,
		.form = m->form,
		.bias = 1,
		.limit = m->limit,
	};
	ig_value in[2] = { h, route };

	return ig_rec_op(r, "moe_glu", &p, in, 2, w, m->form == IG_MOE_PAIR ? 4 : 2);
}

/* The sum of a row's experts.  bias: of down [n_experts, width], with m->sum_bias [1, width], or IG_NONE.  shared,
 * the shared expert's result, if m->shared is set, and then there is a residual; residual may be
 * IG_NONE. */
static inline ig_value ig_rec_moe_combine_of(struct ig_rec *r, const struct ig_moe *m, ig_value h,
					     ig_value route, ig_weight down, ig_weight bias,
					     ig_value residual, ig_value shared)
{
	const struct ig_moe_combine_params p = {
		.struct_size = sizeof p,
		.n_experts = m->n_experts,
		.top_k = m->top_k,
		.shared = m->shared,
		.bias = bias == IG_NONE ? 0 :
			m->sum_bias	? IG_MOE_BIAS_SUM :
					  IG_MOE_BIAS_EACH,
	};
	ig_value in[4] = { h, route, residual, shared };
	ig_weight w[2] = { down, bias };

	return ig_rec_op(r, "moe_combine", &p, in,
			 m->shared	     ? 4 :
			 residual == IG_NONE ? 2 :
					       3,
			 w, 1 + (bias != IG_NONE));
}

/* residual may be IG_NONE. */
static inline ig_value ig_rec_moe_combine(struct ig_rec *r, const struct ig_moe *m, ig_value h,
					  ig_value route, ig_weight down, ig_value residual)
{
	return ig_rec_moe_combine_of(r, m, h, route, down, IG_NONE, residual, IG_NONE);
}

/* bias may be IG_NONE. */
static inline ig_value ig_rec_conv1d(struct ig_rec *r, const struct ig_conv1d_params *p, ig_value x,
				     ig_weight w, ig_weight bias)
{
	ig_weight both[2] = { w, bias };

	return ig_rec_op(r, "conv1d", p, &x, 1, both, bias == IG_NONE ? 1 : 2);
}

#endif
