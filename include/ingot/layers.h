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
	return ig_rec_embed_scaled(r, ig_rec_weight(r, p->n_vocab, p->width, "token_embd.weight"),
				   scale);
}

/* The model's last ops: the logits of h, which is normalised and of row class logits, and the
 * tokens sampled from them.  Returns the graph's status. */
static inline int ig_layer_head(struct ig_rec *r, const struct ig_hparams *p, ig_value h)
{
	ig_weight head = ig_rec_weight(r, p->n_vocab, p->width,
				       p->tied ? "token_embd.weight" : "output.weight");

	ig_rec_sample(r, ig_rec_logits(r, h, head));
	return r->host->graph_status(r->g);
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
};

/* q | k | v of h, side by side: [n_tokens, (n_heads + 2 n_kv_heads) * head_dim]. */
static inline ig_value ig_gqa_project(struct ig_rec *r, const struct ig_gqa *a, uint32_t layer,
				      ig_value h)
{
	const struct ig_hparams *p = a->p;
	const int64_t q = (int64_t)p->n_heads * p->head_dim;
	const int64_t kv = (int64_t)p->n_kv_heads * p->head_dim, all = q + 2 * kv;
	const int bias = (a->flags & IG_GQA_QKV_BIAS) != 0;
	uint32_t n = 1;
	ig_weight w[6];

	if (a->flags & IG_GQA_FUSED) {
		w[0] = ig_rec_layer_weight(r, all, p->width, "blk.%u.attn_qkv.weight", layer);
		if (bias)
			w[1] = ig_rec_layer_weight(r, 1, all, "blk.%u.attn_qkv.bias", layer);
	} else {
		n = 3;
		w[0] = ig_rec_layer_weight(r, q, p->width, "blk.%u.attn_q.weight", layer);
		w[1] = ig_rec_layer_weight(r, kv, p->width, "blk.%u.attn_k.weight", layer);
		w[2] = ig_rec_layer_weight(r, kv, p->width, "blk.%u.attn_v.weight", layer);
		if (bias) {
			w[3] = ig_rec_layer_weight(r, 1, q, "blk.%u.attn_q.bias", layer);
			w[4] = ig_rec_layer_weight(r, 1, kv, "blk.%u.attn_k.bias", layer);
			w[5] = ig_rec_layer_weight(r, 1, kv, "blk.%u.attn_v.bias", layer);
		}
	}
	return bias ? ig_rec_linear_bias(r, h, w, n, IG_ACT_NONE, IG_NONE) :
		      ig_rec_linear(r, h, w, n, IG_NONE);
}

/* QK norm and RoPE of q | k | v; writes k and v to the cache.  Returns q. */
static inline ig_value ig_gqa_rope(struct ig_rec *r, const struct ig_gqa *a, uint32_t layer,
				   ig_value qkv)
{
	const struct ig_hparams *p = a->p;
	const int whole = (a->flags & IG_GQA_WHOLE_NORMS) != 0;
	const int normed = whole || a->flags & IG_GQA_HEAD_NORMS;
	const struct ig_rope_kv_params rope = {
		.struct_size = sizeof rope,
		.n_heads = p->n_heads,
		.n_kv_heads = p->n_kv_heads,
		.head_dim = p->head_dim,
		.mode = a->mode,
		.n_pairs = a->rope ? a->rope->table.n_pairs : 0,
		.group = a->group,
		.layer = a->group_layers ? a->group_layers[layer] : layer,
		.norm_eps = normed ? p->norm_eps : 0,
		.q_scale = a->q_scale,
		.q_scale_length = a->q_scale_length,
	};
	const ig_value table = a->rope ? a->table : IG_NONE;
	ig_weight norms[2];

	if (!normed)
		return ig_rec_rope_kv(r, &rope, qkv, table);
	norms[0] = ig_rec_layer_weight(r, 1, (int64_t)p->head_dim * (whole ? p->n_heads : 1),
				       "blk.%u.attn_q_norm.weight", layer);
	norms[1] = ig_rec_layer_weight(r, 1, (int64_t)p->head_dim * (whole ? p->n_kv_heads : 1),
				       "blk.%u.attn_k_norm.weight", layer);
	return ig_rec_rope_kv_norm(r, &rope, qkv, table, norms);
}

/* Out(Attention(h)) + residual. */
static inline ig_value ig_layer_gqa(struct ig_rec *r, const struct ig_gqa *a, uint32_t layer,
				    ig_value h, ig_value residual)
{
	const struct ig_hparams *p = a->p;
	const int64_t q_width = (int64_t)p->n_heads * p->head_dim;
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
	};
	ig_weight out[2];

	h = ig_gqa_project(r, a, layer, h);
	h = ig_gqa_rope(r, a, layer, h);
	h = ig_rec_attention(r, &attention, h); /* [n_tokens, q_width] */
	out[0] = ig_rec_layer_weight(r, p->width, q_width, "blk.%u.attn_output.weight", layer);
	if (!(a->flags & IG_GQA_OUT_BIAS))
		return ig_rec_linear(r, h, out, 1, residual);
	out[1] = ig_rec_layer_weight(r, 1, p->width, "blk.%u.attn_output.bias", layer);
	return ig_rec_linear_bias(r, h, out, 1, IG_ACT_NONE, residual);
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

/* Sum over the selected experts of w_e Down_e(act(Gate_e(h)) * Up_e(h)), + residual. */
static inline ig_value ig_layer_experts(struct ig_rec *r, const struct ig_hparams *p,
					const struct ig_experts *e, uint32_t layer, ig_value h,
					ig_value residual)
{
	const int64_t n = e->moe.n_experts, f = n * e->n_ff;
	ig_weight router, gate, up, down;
	ig_value route;

	router = ig_rec_layer_weight(r, n, p->width, "blk.%u.ffn_gate_inp.weight", layer);
	gate = ig_rec_layer_weight(r, f, p->width, "blk.%u.ffn_gate_exps.weight", layer);
	up = ig_rec_layer_weight(r, f, p->width, "blk.%u.ffn_up_exps.weight", layer);
	down = ig_rec_layer_weight(r, n * p->width, e->n_ff, "blk.%u.ffn_down_exps.weight", layer);
	route = ig_rec_moe_route(r, &e->moe, h, router);
	h = ig_rec_moe_glu(r, &e->moe, h, route, gate, up); /* [n_tokens, top_k * n_ff] */
	return ig_rec_moe_combine(r, &e->moe, h, route, down, residual);
}

#endif
