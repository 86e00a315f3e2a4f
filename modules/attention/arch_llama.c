/*
 * arch_llama.c: Llama (Touvron et al. 2023, arXiv:2302.13971) and what kept its
 * shape: Llama 2 and 3, TinyLlama, SmolLM, Mistral (Jiang et al. 2023,
 * arXiv:2310.06825), Devstral: pre-norm blocks, rotary positions, grouped-query
 * attention, with a sliding window or biases where the file has them, a gated SiLU
 * feed-forward.  Ministral 3 and Devstral 2 (mistral3) also sharpen the attention of
 * far positions (as in Llama 4).
 *
 * Hyper-parameters and tensor names are GGUF's.  What a file asks for and this
 * file does not do (experts, biases of the feed-forward) is refused by name.
 */
#include "hyper.h"

#include <errno.h>
#include <math.h>
#include <string.h>

struct llama {
	struct dense d;
	struct rope rope;
	uint32_t window; /* 0: all positions are seen */
	float norm_eps;
	float q_scale;		     /* of far positions, as in struct ig_rope_kv_params */
	uint32_t q_scale_length;     /* 0: none */
	uint32_t qkv_bias, out_bias; /* 1: there are */
};

static int refuse_tensor(const struct hyper *h, const char *name, const char *what)
{
	return h->host->meta_has_tensor(h->meta, name) ?
		       ig_fail(h->err, -ENOTSUP, "tensor %s: %s with %s is not supported", name,
			       h->arch, what) :
		       0;
}

static int read_q_scale(const struct hyper *h, struct llama *p)
{
	const float none = 0;
	int rc = ig_hyper_f32(h, "attention.temperature_scale", 0, 1e3f, &none, &p->q_scale);

	if (rc || p->q_scale == 0)
		return rc;
	return ig_hyper_u32(h, "rope.scaling.original_context_length", 16, 1u << 24,
			    &p->d.n_context, &p->q_scale_length);
}

static int read_keys(const struct hyper *h, struct llama *p, struct ig_model_info *info)
{
	const uint32_t no_window = 0;
	int rc;

	memset(p, 0, sizeof *p);
	if ((rc = ig_hyper_dense(h, &p->d)) ||
	    (rc = ig_hyper_f32(h, "attention.layer_norm_rms_epsilon", 0, 1, NULL, &p->norm_eps)) ||
	    (rc = ig_hyper_u32(h, "attention.sliding_window", 0, UINT32_MAX, &no_window,
			       &p->window)) ||
	    (rc = ig_hyper_rope(h, &p->d, &p->rope)) || (rc = read_q_scale(h, p)) ||
	    (rc = refuse_tensor(h, "blk.0.ffn_gate.bias", "biases of the feed-forward")) ||
	    (rc = refuse_tensor(h, "blk.0.ffn_down.bias", "biases of the feed-forward")))
		return rc;
	if (p->window >= p->d.n_context)
		p->window = 0;
	p->qkv_bias = h->host->meta_has_tensor(h->meta, "blk.0.attn_q.bias") != 0;
	p->out_bias = h->host->meta_has_tensor(h->meta, "blk.0.attn_output.bias") != 0;
	ig_hyper_info(&p->d, info);
	info->groups[0].window = p->window;
	return 0;
}

static int read_llama(const struct ig_host *host, const struct ig_meta *meta, void *params,
		      struct ig_model_info *info, struct ig_error *err)
{
	const struct hyper h = { host, meta, "llama", err };

	return read_keys(&h, params, info);
}

static int read_mistral3(const struct ig_host *host, const struct ig_meta *meta, void *params,
			 struct ig_model_info *info, struct ig_error *err)
{
	const struct hyper h = { host, meta, "mistral3", err };

	return read_keys(&h, params, info);
}

/* ---- the model ------------------------------------------------------------------------ */

/* x + Attention(RMSNorm(x)) */
static ig_value record_attention(struct ig_rec *r, const struct llama *p, uint32_t layer,
				 ig_value x, ig_value table)
{
	const struct dense *d = &p->d;
	const int64_t q_width = (int64_t)d->n_heads * d->head_dim;
	const int64_t kv_width = (int64_t)d->n_kv_heads * d->head_dim;
	/* The converter orders the rows of Q and K so that pairs are neighbours. */
	const struct ig_rope_kv_params rope = {
		.struct_size = sizeof rope,
		.n_heads = d->n_heads,
		.n_kv_heads = d->n_kv_heads,
		.head_dim = d->head_dim,
		.mode = IG_ROPE_PAIRS,
		.n_pairs = p->rope.table.n_pairs,
		.group = 0,
		.layer = layer,
		.q_scale = p->q_scale,
		.q_scale_length = p->q_scale_length,
	};
	const struct ig_attention_params attention = {
		.struct_size = sizeof attention,
		.n_heads = d->n_heads,
		.n_kv_heads = d->n_kv_heads,
		.head_dim = d->head_dim,
		.group = 0,
		.layer = layer,
		.scale = p->rope.attention / sqrtf((float)d->head_dim),
		.window = p->window,
	};
	ig_weight norm, qkv[6], out[2];
	ig_value h;

	norm = ig_rec_layer_weight(r, 1, d->width, "blk.%u.attn_norm.weight", layer);
	qkv[0] = ig_rec_layer_weight(r, q_width, d->width, "blk.%u.attn_q.weight", layer);
	qkv[1] = ig_rec_layer_weight(r, kv_width, d->width, "blk.%u.attn_k.weight", layer);
	qkv[2] = ig_rec_layer_weight(r, kv_width, d->width, "blk.%u.attn_v.weight", layer);
	out[0] = ig_rec_layer_weight(r, d->width, q_width, "blk.%u.attn_output.weight", layer);
	if (p->qkv_bias) {
		qkv[3] = ig_rec_layer_weight(r, 1, q_width, "blk.%u.attn_q.bias", layer);
		qkv[4] = ig_rec_layer_weight(r, 1, kv_width, "blk.%u.attn_k.bias", layer);
		qkv[5] = ig_rec_layer_weight(r, 1, kv_width, "blk.%u.attn_v.bias", layer);
	}
	if (p->out_bias)
		out[1] = ig_rec_layer_weight(r, 1, d->width, "blk.%u.attn_output.bias", layer);

	h = ig_rec_rms_norm(r, x, norm, p->norm_eps); /* [n, width] */
	h = p->qkv_bias ? ig_rec_linear_bias(r, h, qkv, 3, IG_ACT_NONE, IG_NONE) :
			  ig_rec_linear(r, h, qkv, 3, IG_NONE); /* [n, q | k | v] */
	h = ig_rec_rope_kv(r, &rope, h, table);			/* [n, n_heads * head_dim] */
	h = ig_rec_attention(r, &attention, h);			/* the same */
	return p->out_bias ? ig_rec_linear_bias(r, h, out, 1, IG_ACT_NONE, x) :
			     ig_rec_linear(r, h, out, 1, x); /* [n, width] */
}

/* x + Down(SiLU(Gate(h)) * Up(h)), h = RMSNorm(x) */
static ig_value record_feed_forward(struct ig_rec *r, const struct llama *p, uint32_t layer,
				    ig_value x)
{
	const struct dense *d = &p->d;
	ig_weight norm, gate, up, down;
	ig_value h;

	norm = ig_rec_layer_weight(r, 1, d->width, "blk.%u.ffn_norm.weight", layer);
	gate = ig_rec_layer_weight(r, d->n_ff, d->width, "blk.%u.ffn_gate.weight", layer);
	up = ig_rec_layer_weight(r, d->n_ff, d->width, "blk.%u.ffn_up.weight", layer);
	down = ig_rec_layer_weight(r, d->width, d->n_ff, "blk.%u.ffn_down.weight", layer);

	h = ig_rec_rms_norm(r, x, norm, p->norm_eps); /* [n, width] */
	h = ig_rec_glu(r, h, gate, up, IG_ACT_SILU);  /* [n, n_ff] */
	return ig_rec_linear(r, h, &down, 1, x);      /* [n, width] */
}

static int record(const struct ig_host *host, struct ig_graph *g, const struct ig_meta *meta,
		  const void *params)
{
	const struct llama *p = params;
	const struct dense *d = &p->d;
	struct ig_rec r = { host, g };
	ig_weight embedding, norm, head;
	ig_value x, table, logits;

	embedding = ig_rec_weight(&r, d->n_vocab, d->width, "token_embd.weight");
	norm = ig_rec_weight(&r, 1, d->width, "output_norm.weight");
	head = d->tied ? embedding : ig_rec_weight(&r, d->n_vocab, d->width, "output.weight");

	table = ig_hyper_rope_table(&r, &p->rope);
	x = ig_rec_embed(&r, embedding);
	for (uint32_t layer = 0; layer < d->n_layers; layer++) {
		x = record_attention(&r, p, layer, x, table);
		x = record_feed_forward(&r, p, layer, x);
	}
	x = ig_rec_rms_norm_last(&r, x, norm, p->norm_eps);
	logits = ig_rec_logits(&r, x, head);
	ig_rec_sample(&r, logits);
	return host->graph_status(g);
}

const struct ig_arch ig_arch_llama = {
	.struct_size = sizeof(struct ig_arch),
	.params_size = sizeof(struct llama),
	.name = "llama",
	.read_params = read_llama,
	.record = record,
};

const struct ig_arch ig_arch_mistral3 = {
	.struct_size = sizeof(struct ig_arch),
	.params_size = sizeof(struct llama),
	.name = "mistral3",
	.read_params = read_mistral3,
	.record = record,
};
