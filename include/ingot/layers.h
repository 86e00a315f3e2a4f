/*
 * layers.h: the layers of a decoder that architectures have in common, one function each.  Tier 1
 * (module.h).  Static functions that declare a layer's weights under GGUF's names and record its
 * ops.  Options are structs for designated initialisers; 0 means off.  x, h and results are
 * [n_tokens, width] of float32 unless a comment gives another shape.  residual may be IG_NONE.
 * After an error of the graph (struct ig_host, graph_status) they return IG_NONE.
 */
#ifndef INGOT_LAYERS_H
#define INGOT_LAYERS_H

#include <ingot/hparams.h>

/* ---- embedding and output -------------------------------------------------------------- */

/* The tokens' embeddings, times scale. */
static inline ig_value ig_layer_embed(struct ig_rec *r, const struct ig_hparams *p, float scale)
{
	return ig_rec_embed_input(r, ig_rec_weight(r, p->n_vocab, p->width, "token_embd.weight"),
				  scale);
}

/* The model's last ops: the logits of h, which is normalised and of row class logits, times scale
 * and capped (see struct ig_soft_cap_params), and the tokens sampled from them.  Returns the graph's
 * status. */
static inline int ig_layer_head_capped(struct ig_rec *r, const struct ig_hparams *p, ig_value h,
				       float scale, float cap)
{
	ig_weight head = ig_rec_weight(r, p->n_vocab, p->width,
				       p->tied ? "token_embd.weight" : "output.weight");
	ig_value logits = ig_rec_logits(r, h, head);

	if (scale != 1 || cap != 0)
		logits = ig_rec_soft_cap(r, logits, scale, cap);
	ig_rec_sample(r, logits);
	return r->host->graph_status(r->g);
}

static inline int ig_layer_head(struct ig_rec *r, const struct ig_hparams *p, ig_value h)
{
	return ig_layer_head_capped(r, p, h, 1, 0);
}

/* The same for x, which is normalised by output_norm.weight (RMS). */
static inline int ig_layer_norm_head(struct ig_rec *r, const struct ig_hparams *p, ig_value x)
{
	ig_weight norm = ig_rec_weight(r, 1, p->width, "output_norm.weight");

	return ig_layer_head(r, p, ig_rec_rms_norm_last(r, x, norm, p->norm_eps));
}

/* RMSNorm(x) with the layer's weight of that name, e.g. "blk.%u.attn_norm.weight". */
__attribute__((format(printf, 3, 0))) static inline ig_value
ig_layer_rms_norm(struct ig_rec *r, const struct ig_hparams *p, const char *name, uint32_t layer,
		  ig_value x)
{
	return ig_rec_rms_norm(r, x, ig_rec_layer_weight(r, 1, p->width, name, layer), p->norm_eps);
}

/* LayerNorm(x) with the layer's weight and bias of those names. */
__attribute__((format(printf, 3, 0), format(printf, 4, 0))) static inline ig_value
ig_layer_layer_norm(struct ig_rec *r, const struct ig_hparams *p, const char *weight,
		    const char *bias, uint32_t layer, ig_value x)
{
	ig_weight w = ig_rec_layer_weight(r, 1, p->width, weight, layer);
	ig_weight b = ig_rec_layer_weight(r, 1, p->width, bias, layer);

	return ig_rec_layer_norm(r, x, w, b, p->norm_eps, 0);
}

/* ---- a head that guesses the token after the next one (multi-token prediction, DeepSeek-AI 2024,
 * arXiv:2412.19437): block n_layers of the file. ------------------------------------------------ */

/* A table or matrix of the head's own, blk.N.nextn.NAME [n_vocab, width], or the model's. */
static inline ig_weight ig_mtp_vocab_weight(struct ig_rec *r, const struct ig_hparams *p,
					    const struct ig_meta *meta, const char *name,
					    const char *shared)
{
	char own[64];

	snprintf(own, sizeof own, "blk.%u.nextn.%s.weight", p->n_layers, name);
	return ig_rec_weight(r, p->n_vocab, p->width,
			     r->host->meta_has_tensor(meta, own) ? own : shared);
}

/* The input of the head's layer: of x, which the model's last norm reads, and the token after each row. */
static inline ig_value ig_layer_mtp_input(struct ig_rec *r, const struct ig_hparams *p,
					  const struct ig_meta *meta, ig_value x)
{
	const uint32_t n = p->n_layers;
	ig_weight table = ig_mtp_vocab_weight(r, p, meta, "embed_tokens", "token_embd.weight");
	ig_weight project =
		ig_rec_layer_weight(r, p->width, 2 * p->width, "blk.%u.nextn.eh_proj.weight", n);
	ig_value e = ig_rec_embed_next(r, table);
	ig_value h = ig_rec_rms_norm(r, x, ig_rec_weight(r, 1, p->width, "output_norm.weight"),
				     p->norm_eps);

	e = ig_layer_rms_norm(r, p, "blk.%u.nextn.enorm.weight", n, e);
	h = ig_layer_rms_norm(r, p, "blk.%u.nextn.hnorm.weight", n, h);
	return ig_rec_linear(r, ig_rec_concat(r, e, h), &project, 1, IG_NONE);
}

/* The head's last ops.  Returns the graph's status. */
static inline int ig_layer_mtp_head(struct ig_rec *r, const struct ig_hparams *p,
				    const struct ig_meta *meta, ig_value x)
{
	ig_weight norm = ig_rec_layer_weight(r, 1, p->width, "blk.%u.nextn.shared_head_norm.weight",
					     p->n_layers);
	ig_weight head = ig_mtp_vocab_weight(r, p, meta, "shared_head_head",
					     p->tied ? "token_embd.weight" : "output.weight");

	ig_rec_sample_guess(
		r, ig_rec_logits(r, ig_rec_rms_norm_guesses(r, x, norm, p->norm_eps), head));
	return r->host->graph_status(r->g);
}

/* ---- grouped-query attention (Ainslie et al. 2023, arXiv:2305.13245) ---------------------- */

/* The table of cos and sin for the step, with the file's factors if there are any.  Record it
 * once for all layers. */
static inline ig_value ig_layer_rope_table(struct ig_rec *r, const struct ig_rope *rope)
{
	ig_weight factors;

	if (!rope->has_factors)
		return ig_rec_op(r, "rope_table", &rope->table, NULL, 0, NULL, 0);
	factors = ig_rec_weight(r, 1, rope->table.n_pairs, "rope_freqs.weight");
	return ig_rec_op(r, "rope_table", &rope->table, NULL, 0, &factors, 1);
}

enum ig_gqa_flags {
	IG_GQA_FUSED = 1 << 0,	     /* one attn_qkv instead of attn_q, attn_k, attn_v */
	IG_GQA_QKV_BIAS = 1 << 1,    /* q, k and v have biases */
	IG_GQA_OUT_BIAS = 1 << 2,    /* the output has a bias */
	IG_GQA_HEAD_NORMS = 1 << 3,  /* QK norm: attn_q_norm, attn_k_norm [1, head_dim] */
	IG_GQA_WHOLE_NORMS = 1 << 4, /* QK norm over all heads of q, and over all of k */
	IG_GQA_SINKS = 1 << 5,	     /* attn_sinks [1, n_heads], see struct ig_attention_params */
	IG_GQA_GATE_IN_Q = 1 << 6,   /* attn_q has of each head its query, then its gate */
	IG_GQA_V_NORM = 1 << 7,	     /* each head of v is divided by its root mean square */
	IG_GQA_NO_V = 1 << 8,	     /* no attn_v: v is k before its norm and RoPE */
	IG_GQA_Q_ONLY = 1 << 9,	     /* the layer reads another one's keys and values */
	IG_GQA_ROWS = 1 << 10,	     /* no cache: over the step's own rows of a text */
	IG_GQA_SPANS = 1 << 11,	     /* rows of an image may see each other both ways */
};

struct ig_gqa {
	const struct ig_hparams *p;
	const struct ig_rope *rope; /* NULL: no RoPE */
	ig_value table;		    /* from ig_layer_rope_table, if rope is set */
	uint32_t mode;		    /* IG_ROPE_PAIRS … */
	uint32_t flags;		    /* enum ig_gqa_flags */
	uint32_t window;	    /* in tokens; 0: all positions */
	float scale;		    /* of q . k; 0: 1 / sqrt(head_dim) * YaRN's temperature */
	float q_scale;		    /* see struct ig_rope_kv_params */
	uint32_t q_scale_length;
	uint32_t group; /* of the cache */
	/* [n_layers]: the layer's index in its group; NULL: one group has all layers */
	const uint16_t *group_layers;
	/* The output's gate: IG_GATE_…, from attn_gate unless IG_GQA_GATE_IN_Q is set, and its values
	 * per head: 0 for head_dim, or 1. */
	uint32_t gate, gate_dim;
	uint32_t back, ahead; /* IG_GQA_ROWS: see struct ig_attention_rows_params */
};

/* Columns of attn_q, of attn_k or attn_v, and of attn_gate. */
struct ig_gqa_widths {
	int64_t q, kv, gate;
	uint32_t gate_dim; /* values of a head's gate; 0: none */
};

static inline struct ig_gqa_widths ig_gqa_widths(const struct ig_gqa *a)
{
	const uint32_t dim = a->p->head_dim, in_q = a->flags & IG_GQA_GATE_IN_Q ? 2 : 1;
	struct ig_gqa_widths w = { .q = (int64_t)a->p->n_heads * dim * in_q,
				   .kv = (int64_t)a->p->n_kv_heads * dim };

	if (a->gate != IG_GATE_NONE)
		w.gate_dim = a->gate_dim ? a->gate_dim : dim;
	if (in_q == 1)
		w.gate = (int64_t)a->p->n_heads * w.gate_dim;
	return w;
}

/* q | k | v | gate of h, side by side; what a layer does not have is left out. */
static inline ig_value ig_gqa_project(struct ig_rec *r, const struct ig_gqa *a, uint32_t layer,
				      ig_value h)
{
	static const char *const names[4][2] = {
		{ "blk.%u.attn_q.weight", "blk.%u.attn_q.bias" },
		{ "blk.%u.attn_k.weight", "blk.%u.attn_k.bias" },
		{ "blk.%u.attn_v.weight", "blk.%u.attn_v.bias" },
		{ "blk.%u.attn_qkv.weight", "blk.%u.attn_qkv.bias" },
	};
	const struct ig_gqa_widths width = ig_gqa_widths(a);
	const int bias = (a->flags & IG_GQA_QKV_BIAS) != 0;
	const int fused = (a->flags & IG_GQA_FUSED) != 0;
	const uint32_t n = fused || a->flags & IG_GQA_Q_ONLY ? 1 : a->flags & IG_GQA_NO_V ? 2 : 3;
	ig_weight w[6];

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	for (uint32_t i = 0; i < (bias ? 2 * n : n); i++) {
		const uint32_t nth = i % n, is_bias = i >= n;
		const int64_t rows = fused ? width.q + 2 * width.kv : nth ? width.kv : width.q;
		w[i] = ig_rec_layer_weight(r, is_bias ? 1 : rows, is_bias ? rows : a->p->width,
					   names[fused ? 3 : nth][is_bias], layer);
	}
#pragma GCC diagnostic pop
	if (bias)
		return ig_rec_linear_bias(r, h, w, n, IG_ACT_NONE, IG_NONE);
	if (width.gate)
		w[n] = ig_rec_layer_weight(r, width.gate, a->p->width, "blk.%u.attn_gate.weight",
					   layer);
	return ig_rec_linear(r, h, w, n + (width.gate != 0), IG_NONE);
}

/* QK norm and RoPE of q | k | v; writes k and v to the cache and returns q.  IG_GQA_ROWS: returns
 * all of it. */
static inline ig_value ig_gqa_rope(struct ig_rec *r, const struct ig_gqa *a, uint32_t layer,
				   ig_value qkv)
{
	const struct ig_hparams *p = a->p;
	const int whole = (a->flags & IG_GQA_WHOLE_NORMS) != 0;
	const int normed = whole || a->flags & IG_GQA_HEAD_NORMS;
	const struct ig_gqa_widths width = ig_gqa_widths(a);
	const int rows = (a->flags & IG_GQA_ROWS) != 0;
	const struct ig_rope_kv_params rope = {
		.struct_size = sizeof rope,
		.n_heads = p->n_heads,
		.n_kv_heads = p->n_kv_heads,
		.head_dim = p->head_dim,
		.mode = a->mode,
		.n_pairs = a->rope ? a->rope->table.n_pairs : 0,
		.group = rows ? 0 : a->group,
		.layer = rows		 ? 0 :
			 a->group_layers ? a->group_layers[layer] :
					   layer,
		.norm_eps = normed || a->flags & IG_GQA_V_NORM ? p->norm_eps : 0,
		.q_scale = a->q_scale,
		.q_scale_length = a->q_scale_length,
		.flags = (a->flags & IG_GQA_Q_ONLY ? IG_ROPE_KV_Q_ONLY :
			  a->flags & IG_GQA_V_NORM ? IG_ROPE_KV_V_NORM :
						     0u) |
			 (a->flags & IG_GQA_NO_V && !(a->flags & IG_GQA_Q_ONLY) ? IG_ROPE_KV_NO_V :
										  0u),
		.q_stride = a->flags & IG_GQA_GATE_IN_Q ? 2 * p->head_dim : 0,
		.n_rest = a->flags & IG_GQA_QKV_BIAS ? 0 : (uint32_t)width.gate,
	};
	const ig_value table = a->rope ? a->table : IG_NONE;
	ig_weight norms[2];

	if (rows && !normed)
		return a->rope ? ig_rec_rope_rows(r, &rope, qkv, table, NULL) : qkv;
	if (!normed)
		return ig_rec_rope_kv(r, &rope, qkv, table);
	norms[0] = ig_rec_layer_weight(r, 1, (int64_t)p->head_dim * (whole ? p->n_heads : 1),
				       "blk.%u.attn_q_norm.weight", layer);
	if (!(a->flags & IG_GQA_Q_ONLY))
		norms[1] = ig_rec_layer_weight(r, 1,
					       (int64_t)p->head_dim * (whole ? p->n_kv_heads : 1),
					       "blk.%u.attn_k_norm.weight", layer);
	return rows ? ig_rec_rope_rows(r, &rope, qkv, table, norms) :
		      ig_rec_rope_kv_norm(r, &rope, qkv, table, norms);
}

/* Attention(h), before the output matrix: [n_tokens, n_heads * head_dim]. */
static inline ig_value ig_gqa_attend(struct ig_rec *r, const struct ig_gqa *a, uint32_t layer,
				     ig_value h)
{
	const struct ig_hparams *p = a->p;
	const struct ig_gqa_widths width = ig_gqa_widths(a);
	const uint32_t n_kv = a->flags & IG_GQA_Q_ONLY ? 0 : a->flags & IG_GQA_NO_V ? 1 : 2;
	const int in_q = (a->flags & IG_GQA_GATE_IN_Q) != 0;
	const int apart = width.gate && a->flags & IG_GQA_QKV_BIAS; /* attn_gate has no bias */
	const struct ig_attention_params attention = {
		.struct_size = sizeof attention,
		.n_heads = p->n_heads,
		.n_kv_heads = p->n_kv_heads,
		.head_dim = p->head_dim,
		.group = a->group,
		.layer = a->group_layers ? a->group_layers[layer] : layer,
		.scale = a->scale != 0 ?
				 a->scale :
				 (a->rope ? a->rope->attention : 1) / sqrtf((float)p->head_dim),
		.window = a->window,
		.gate = a->gate,
		.gate_first = in_q  ? p->head_dim :
			      apart ? 0 :
				      (uint32_t)(width.q + (int64_t)n_kv * width.kv),
		.gate_stride = in_q ? 2 * p->head_dim : width.gate_dim,
		.gate_dim = width.gate_dim,
		.spans = a->flags & IG_GQA_SPANS ? 1 : 0,
	};
	const struct ig_attention_rows_params rows = {
		.struct_size = sizeof rows,
		.n_heads = p->n_heads,
		.n_kv_heads = p->n_kv_heads,
		.head_dim = p->head_dim,
		.scale = attention.scale,
		.back = a->back,
		.ahead = a->ahead,
	};
	const ig_value qkv = ig_gqa_project(r, a, layer, h);
	ig_value gate = a->gate != IG_GATE_NONE ? qkv : IG_NONE;
	ig_weight w = IG_NONE;

	if (apart) {
		w = ig_rec_layer_weight(r, width.gate, p->width, "blk.%u.attn_gate.weight", layer);
		gate = ig_rec_linear(r, h, &w, 1, IG_NONE);
		w = IG_NONE;
	}
	if (a->flags & IG_GQA_SINKS)
		w = ig_rec_layer_weight(r, 1, p->n_heads, "blk.%u.attn_sinks.weight", layer);
	h = ig_gqa_rope(r, a, layer, qkv);
	if (a->flags & IG_GQA_ROWS) /* neither gates nor sinks */
		return ig_rec_attention_rows(r, &rows, h);
	return ig_rec_attention_gated(r, &attention, h, gate, w);
}

/* Out(Attention(h)) + residual. */
static inline ig_value ig_layer_gqa(struct ig_rec *r, const struct ig_gqa *a, uint32_t layer,
				    ig_value h, ig_value residual)
{
	const struct ig_hparams *p = a->p;
	const int64_t q_width = (int64_t)p->n_heads * p->head_dim;
	ig_weight out[2];

	h = ig_gqa_attend(r, a, layer, h);
	out[0] = ig_rec_layer_weight(r, p->width, q_width, "blk.%u.attn_output.weight", layer);
	if (!(a->flags & IG_GQA_OUT_BIAS))
		return ig_rec_linear(r, h, out, 1, residual);
	out[1] = ig_rec_layer_weight(r, 1, p->width, "blk.%u.attn_output.bias", layer);
	return ig_rec_linear_bias(r, h, out, 1, IG_ACT_NONE, residual);
}

/* ---- feed-forward without gates ----------------------------------------------------------- */

/* Down(act(Up(h))) + residual, both with biases. */
static inline ig_value ig_layer_mlp(struct ig_rec *r, const struct ig_hparams *p, uint32_t act,
				    uint32_t layer, ig_value h, ig_value residual)
{
	ig_weight up[2], down[2];

	up[0] = ig_rec_layer_weight(r, p->n_ff, p->width, "blk.%u.ffn_up.weight", layer);
	up[1] = ig_rec_layer_weight(r, 1, p->n_ff, "blk.%u.ffn_up.bias", layer);
	down[0] = ig_rec_layer_weight(r, p->width, p->n_ff, "blk.%u.ffn_down.weight", layer);
	down[1] = ig_rec_layer_weight(r, 1, p->width, "blk.%u.ffn_down.bias", layer);
	h = ig_rec_linear_bias(r, h, up, 1, act, IG_NONE); /* [n, n_ff] */
	return ig_rec_linear_bias(r, h, down, 1, IG_ACT_NONE, residual);
}

/* ---- models of embeddings ------------------------------------------------------------------- */

/* The input of BERT and its kin: the tokens' embeddings, plus learned positions (IG_NONE: none), plus the
 * row of a text's type (n_types 0: texts have none), normalised. */
static inline ig_value ig_layer_embed_texts(struct ig_rec *r, const struct ig_hparams *p,
					    ig_weight learned, uint32_t n_types)
{
	ig_weight tokens = ig_rec_weight(r, p->n_vocab, p->width, "token_embd.weight");
	ig_value x;

	if (n_types)
		x = ig_rec_embed_types(r, tokens, learned,
				       ig_rec_weight(r, n_types, p->width, "token_types.weight"));
	else if (learned != IG_NONE)
		x = ig_rec_embed_learned(r, tokens, learned);
	else
		x = ig_rec_embed(r, tokens);
	return ig_layer_layer_norm(r, p, "token_embd_norm.weight", "token_embd_norm.bias", 0, x);
}

/* The last ops: one vector of each text, or of a reranker its logits.  rank: how that one pools.
 * Returns the graph's status. */
static inline int ig_layer_pool(struct ig_rec *r, const struct ig_hparams *p,
				const struct ig_pooling *pooling, uint32_t rank, ig_value x)
{
	ig_weight w[2];

	x = ig_rec_pool(r, x, pooling->kind == IG_POOL_RANK ? rank : pooling->kind);
	if (pooling->dense) {
		w[0] = ig_rec_weight(r, p->width, p->width, "cls.weight");
		if (pooling->dense_bias)
			w[1] = ig_rec_weight(r, 1, p->width, "cls.bias");
		x = ig_rec_op(r, "linear",
			      &(struct ig_linear_params){ sizeof(struct ig_linear_params), 1,
							  IG_ACT_TANH, pooling->dense_bias },
			      &x, 1, w, 1 + pooling->dense_bias);
	}
	if (pooling->n_scores) {
		w[0] = ig_rec_weight(r, pooling->n_scores, p->width, "cls.output.weight");
		if (pooling->score_bias)
			w[1] = ig_rec_weight(r, 1, pooling->n_scores, "cls.output.bias");
		x = pooling->score_bias ? ig_rec_linear_bias(r, x, w, 1, IG_ACT_NONE, IG_NONE) :
					  ig_rec_linear(r, x, w, 1, IG_NONE);
	}
	ig_rec_output(r, x);
	return r->host->graph_status(r->g);
}

/* ---- feed-forward ------------------------------------------------------------------------- */

/* Down(act(Gate(h)) * Up(h)) + residual (Shazeer 2020, arXiv:2002.05202); act: IG_ACT_SILU … */
static inline ig_value ig_layer_glu(struct ig_rec *r, const struct ig_hparams *p, uint32_t act,
				    uint32_t layer, ig_value h, ig_value residual)
{
	ig_weight gate, up, down;

	gate = ig_rec_layer_weight(r, p->n_ff, p->width, "blk.%u.ffn_gate.weight", layer);
	up = ig_rec_layer_weight(r, p->n_ff, p->width, "blk.%u.ffn_up.weight", layer);
	down = ig_rec_layer_weight(r, p->width, p->n_ff, "blk.%u.ffn_down.weight", layer);
	h = ig_rec_glu(r, h, gate, up, act); /* [n_tokens, n_ff] */
	return ig_rec_linear(r, h, &down, 1, residual);
}

/* The route of h, by the layer's router. */
static inline ig_value ig_experts_route(struct ig_rec *r, const struct ig_hparams *p,
					const struct ig_experts *e, uint32_t layer, ig_value h)
{
	const int64_t n = e->moe.n_experts;
	ig_weight bias = IG_NONE, scale = IG_NONE, router[2];

	if (e->flags & IG_EXPERTS_SELECT_BIAS)
		bias = ig_rec_layer_weight(r, 1, n, "blk.%u.exp_probs_b.bias", layer);
	if (e->flags & IG_EXPERTS_SCALE)
		scale = ig_rec_layer_weight(r, 1, n, "blk.%u.ffn_down_exps.scale", layer);
	router[0] = ig_rec_layer_weight(r, n, p->width, "blk.%u.ffn_gate_inp.weight", layer);
	if (e->flags & IG_EXPERTS_ROUTER_BIAS) {
		router[1] = ig_rec_layer_weight(r, 1, n, "blk.%u.ffn_gate_inp.bias", layer);
		h = ig_rec_linear_bias(r, h, router, 1, IG_ACT_NONE, IG_NONE);
	} else {
		if (e->moe.shared)
			router[1] = ig_rec_layer_weight(r, 1, p->width,
							"blk.%u.ffn_gate_inp_shexp.weight", layer);
		h = ig_rec_linear(r, h, router, 1 + e->moe.shared, IG_NONE);
	}
	return ig_rec_moe_route_by(r, &e->moe, h, bias, scale);
}

/* The shared expert: Down(act(Gate(h)) * Up(h)) + residual, or without a gate (IG_MOE_UP)
 * Down(act(Up(h))) + residual. */
static inline ig_value ig_experts_shared(struct ig_rec *r, const struct ig_hparams *p,
					 const struct ig_experts *e, uint32_t layer, ig_value h,
					 ig_value residual)
{
	const int64_t f = e->n_ff_shared;
	const struct ig_linear_params plain = { .struct_size = sizeof plain,
						.n_weights = 1,
						.act = e->moe.act };
	ig_weight gate, up, down;

	up = ig_rec_layer_weight(r, f, p->width, "blk.%u.ffn_up_shexp.weight", layer);
	down = ig_rec_layer_weight(r, p->width, f, "blk.%u.ffn_down_shexp.weight", layer);
	if (e->moe.form == IG_MOE_UP) {
		h = ig_rec_op(r, "linear", &plain, &h, 1, &up, 1);
	} else {
		gate = ig_rec_layer_weight(r, f, p->width, "blk.%u.ffn_gate_shexp.weight", layer);
		h = ig_rec_glu(r, h, gate, up, e->moe.act);
	}
	return ig_rec_linear(r, h, &down, 1, residual);
}

/* The experts' gate and up projections: [n_tokens, top_k * n_ff]. */
static inline ig_value ig_experts_glu(struct ig_rec *r, const struct ig_hparams *p,
				      const struct ig_experts *e, uint32_t layer, ig_value h,
				      ig_value route)
{
	const int64_t n = e->moe.n_experts, f = n * e->n_ff;
	const uint32_t pair = e->moe.form == IG_MOE_PAIR;
	ig_weight w[4] = { IG_NONE, IG_NONE, IG_NONE, IG_NONE };

	if (e->moe.form == IG_MOE_FUSED) {
		w[0] = ig_rec_layer_weight(r, 2 * f, p->width, "blk.%u.ffn_gate_up_exps.weight",
					   layer);
		return ig_rec_moe_glu(r, &e->moe, h, route, w[0], IG_NONE);
	}
	if (pair)
		w[0] = ig_rec_layer_weight(r, f, p->width, "blk.%u.ffn_gate_exps.weight", layer);
	w[pair] = ig_rec_layer_weight(r, f, p->width, "blk.%u.ffn_up_exps.weight", layer);
	if (!(e->flags & IG_EXPERTS_BIAS))
		return ig_rec_moe_glu(r, &e->moe, h, route, w[0], w[pair]);
	if (pair)
		w[2] = ig_rec_layer_weight(r, n, e->n_ff, "blk.%u.ffn_gate_exps.bias", layer);
	w[pair ? 3 : 1] = ig_rec_layer_weight(r, n, e->n_ff, "blk.%u.ffn_up_exps.bias", layer);
	return ig_rec_moe_glu_bias(r, &e->moe, h, route, w);
}

/* Sum over the route's experts of w_e Down_e(act(Gate_e(h)) * Up_e(h)), + w_s shared if the route
 * has that weight (then there must be a residual), + residual. */
static inline ig_value ig_experts_sum(struct ig_rec *r, const struct ig_hparams *p,
				      const struct ig_experts *e, uint32_t layer, ig_value h,
				      ig_value route, ig_value shared, ig_value residual)
{
	const int64_t n = e->moe.n_experts;
	ig_weight down, bias = IG_NONE;

	h = ig_experts_glu(r, p, e, layer, h, route);
	down = ig_rec_layer_weight(r, n * p->width, e->n_ff, "blk.%u.ffn_down_exps.weight", layer);
	if (e->flags & IG_EXPERTS_BIAS)
		bias = ig_rec_layer_weight(r, n, p->width, "blk.%u.ffn_down_exps.bias", layer);
	else if (e->moe.sum_bias)
		bias = ig_rec_layer_weight(r, 1, p->width, "blk.%u.ffn_exps.bias", layer);
	return ig_rec_moe_combine_of(r, &e->moe, h, route, down, bias, residual, shared);
}

/* A layer's experts, the shared one too, + residual; of the first n_dense layers a plain
 * feed-forward. */
static inline ig_value ig_layer_experts(struct ig_rec *r, const struct ig_hparams *p,
					const struct ig_experts *e, uint32_t layer, ig_value h,
					ig_value residual)
{
	ig_value route, shared = IG_NONE;

	if (layer < e->n_dense)
		return ig_layer_glu(r, p, e->moe.act, layer, h, residual);
	route = ig_experts_route(r, p, e, layer, h);
	if (e->moe.shared)
		shared = ig_experts_shared(r, p, e, layer, h, IG_NONE);
	else if (e->n_ff_shared)
		residual = ig_experts_shared(r, p, e, layer, h, residual);
	return ig_experts_sum(r, p, e, layer, h, route, shared, residual);
}

#endif
