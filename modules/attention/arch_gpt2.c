/*
 * arch_gpt2.c: GPT-2 (Radford et al. 2019): positions are learned and added to the
 * embedding; LayerNorm before each half of a block; q, k and v from one matrix; a
 * feed-forward of two matrices with GELU (tanh form) between; biases everywhere.
 *
 * Hyper-parameters and tensor names are GGUF's.
 */
#include "hyper.h"

#include <errno.h>
#include <math.h>
#include <string.h>

struct gpt2 {
	struct dense d;
	float norm_eps;
};

static int read_params(const struct ig_host *host, const struct ig_meta *meta, void *params,
		       struct ig_model_info *info, struct ig_error *err)
{
	const struct hyper h = { host, meta, "gpt2", err };
	struct gpt2 *p = params;
	int rc;

	memset(p, 0, sizeof *p);
	if ((rc = ig_hyper_dense(&h, &p->d)) ||
	    (rc = ig_hyper_f32(&h, "attention.layer_norm_epsilon", 0, 0.5f, NULL, &p->norm_eps)))
		return rc;
	if (p->d.n_kv_heads != p->d.n_heads)
		return ig_fail(err, -ENOTSUP,
			       "gpt2.attention.head_count_kv is %u: gpt2 with fewer "
			       "KV heads than heads (%u) is not supported",
			       p->d.n_kv_heads, p->d.n_heads);
	if ((uint64_t)p->d.n_heads * p->d.head_dim != p->d.width)
		return ig_fail(err, -ENOTSUP,
			       "gpt2.attention.key_length is %u: gpt2 with heads that "
			       "are not gpt2.embedding_length %u together is not supported",
			       p->d.head_dim, p->d.width);
	ig_hyper_info(&p->d, info);
	return 0;
}

/* ---- the model ------------------------------------------------------------------------ */

/* x + Attention(LayerNorm(x)) */
static ig_value record_attention(struct ig_rec *r, const struct gpt2 *p, uint32_t layer, ig_value x)
{
	const struct dense *d = &p->d;
	const int64_t width = d->width;
	const struct ig_rope_kv_params write = {
		/* nothing turns: k and v go to the cache */
		.struct_size = sizeof write,
		.n_heads = d->n_heads,
		.n_kv_heads = d->n_heads,
		.head_dim = d->head_dim,
		.group = 0,
		.layer = layer,
	};
	const struct ig_attention_params attention = {
		.struct_size = sizeof attention,
		.n_heads = d->n_heads,
		.n_kv_heads = d->n_heads,
		.head_dim = d->head_dim,
		.group = 0,
		.layer = layer,
		.scale = 1 / sqrtf((float)d->head_dim),
	};
	ig_weight norm, norm_bias, qkv[2], out[2];
	ig_value h;

	norm = ig_rec_layer_weight(r, 1, width, "blk.%u.attn_norm.weight", layer);
	norm_bias = ig_rec_layer_weight(r, 1, width, "blk.%u.attn_norm.bias", layer);
	qkv[0] = ig_rec_layer_weight(r, 3 * width, width, "blk.%u.attn_qkv.weight", layer);
	qkv[1] = ig_rec_layer_weight(r, 1, 3 * width, "blk.%u.attn_qkv.bias", layer);
	out[0] = ig_rec_layer_weight(r, width, width, "blk.%u.attn_output.weight", layer);
	out[1] = ig_rec_layer_weight(r, 1, width, "blk.%u.attn_output.bias", layer);

	h = ig_rec_layer_norm(r, x, norm, norm_bias, p->norm_eps, 0); /* [n, width] */
	h = ig_rec_linear_bias(r, h, qkv, 1, IG_ACT_NONE, IG_NONE);   /* [n, q | k | v] */
	h = ig_rec_rope_kv(r, &write, h, IG_NONE);		      /* [n, width] */
	h = ig_rec_attention(r, &attention, h);			      /* the same */
	return ig_rec_linear_bias(r, h, out, 1, IG_ACT_NONE, x);      /* [n, width] */
}

/* x + Down(GELU(Up(LayerNorm(x)))) */
static ig_value record_feed_forward(struct ig_rec *r, const struct gpt2 *p, uint32_t layer,
				    ig_value x)
{
	const struct dense *d = &p->d;
	ig_weight norm, norm_bias, up[2], down[2];
	ig_value h;

	norm = ig_rec_layer_weight(r, 1, d->width, "blk.%u.ffn_norm.weight", layer);
	norm_bias = ig_rec_layer_weight(r, 1, d->width, "blk.%u.ffn_norm.bias", layer);
	up[0] = ig_rec_layer_weight(r, d->n_ff, d->width, "blk.%u.ffn_up.weight", layer);
	up[1] = ig_rec_layer_weight(r, 1, d->n_ff, "blk.%u.ffn_up.bias", layer);
	down[0] = ig_rec_layer_weight(r, d->width, d->n_ff, "blk.%u.ffn_down.weight", layer);
	down[1] = ig_rec_layer_weight(r, 1, d->width, "blk.%u.ffn_down.bias", layer);

	h = ig_rec_layer_norm(r, x, norm, norm_bias, p->norm_eps, 0); /* [n, width] */
	h = ig_rec_linear_bias(r, h, up, 1, IG_ACT_GELU, IG_NONE);    /* [n, n_ff] */
	return ig_rec_linear_bias(r, h, down, 1, IG_ACT_NONE, x);     /* [n, width] */
}

static int record(const struct ig_host *host, struct ig_graph *g, const struct ig_meta *meta,
		  const void *params)
{
	const struct gpt2 *p = params;
	const struct dense *d = &p->d;
	struct ig_rec r = { host, g };
	ig_weight embedding, positions, norm, norm_bias, head;
	ig_value x, logits;

	embedding = ig_rec_weight(&r, d->n_vocab, d->width, "token_embd.weight");
	positions = ig_rec_weight(&r, d->n_context, d->width, "position_embd.weight");
	norm = ig_rec_weight(&r, 1, d->width, "output_norm.weight");
	norm_bias = ig_rec_weight(&r, 1, d->width, "output_norm.bias");
	head = d->tied ? embedding : ig_rec_weight(&r, d->n_vocab, d->width, "output.weight");

	x = ig_rec_embed_learned(&r, embedding, positions);
	for (uint32_t layer = 0; layer < d->n_layers; layer++) {
		x = record_attention(&r, p, layer, x);
		x = record_feed_forward(&r, p, layer, x);
	}
	x = ig_rec_layer_norm(&r, x, norm, norm_bias, p->norm_eps, 1);
	logits = ig_rec_logits(&r, x, head);
	ig_rec_sample(&r, logits);
	return host->graph_status(g);
}

const struct ig_arch ig_arch_gpt2 = {
	.struct_size = sizeof(struct ig_arch),
	.params_size = sizeof(struct gpt2),
	.name = "gpt2",
	.read_params = read_params,
	.record = record,
};
