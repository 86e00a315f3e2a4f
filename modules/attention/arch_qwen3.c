/*
 * arch_qwen3.c: Qwen 3 (Yang et al. 2025, arXiv:2505.09388), the dense ones: Llama's
 * blocks with RMS norms of each head's query and key, rotation of halves, and heads
 * whose width is a number of its own.
 *
 * Hyper-parameters and tensor names are GGUF's.  What a file asks for and this
 * file does not do (experts, windows) is refused by name.
 */
#include "hyper.h"

#include <math.h>
#include <string.h>

struct qwen3 {
	struct dense d;
	struct rope rope;
	float norm_eps;
};

static int read_params(const struct ig_host *host, const struct ig_meta *meta, void *params,
		       struct ig_model_info *info, struct ig_error *err)
{
	const struct hyper h = { host, meta, "qwen3", err };
	struct qwen3 *p = params;
	int rc;

	memset(p, 0, sizeof *p);
	if ((rc = ig_hyper_dense(&h, &p->d)) ||
	    (rc = ig_hyper_f32(&h, "attention.layer_norm_rms_epsilon", 0, 1, NULL, &p->norm_eps)) ||
	    (rc = ig_hyper_refuse_u32(&h, "attention.sliding_window", "a sliding window")) ||
	    (rc = ig_hyper_rope(&h, &p->d, &p->rope)))
		return rc;
	ig_hyper_info(&p->d, info);
	return 0;
}

/* ---- the model ------------------------------------------------------------------------ */

/* x + Attention(RMSNorm(x)); each head of q and k is normalised before it turns. */
static ig_value record_attention(struct ig_rec *r, const struct qwen3 *p, uint32_t layer,
				 ig_value x, ig_value table)
{
	const struct dense *d = &p->d;
	const int64_t q_width = (int64_t)d->n_heads * d->head_dim;
	const int64_t kv_width = (int64_t)d->n_kv_heads * d->head_dim;
	const struct ig_rope_kv_params rope = {
		.struct_size = sizeof rope,
		.n_heads = d->n_heads,
		.n_kv_heads = d->n_kv_heads,
		.head_dim = d->head_dim,
		.mode = IG_ROPE_HALVES,
		.n_pairs = p->rope.table.n_pairs,
		.group = 0,
		.layer = layer,
		.norm_eps = p->norm_eps,
	};
	const struct ig_attention_params attention = {
		.struct_size = sizeof attention,
		.n_heads = d->n_heads,
		.n_kv_heads = d->n_kv_heads,
		.head_dim = d->head_dim,
		.group = 0,
		.layer = layer,
		.scale = p->rope.attention / sqrtf((float)d->head_dim),
	};
	ig_weight norm, qkv[3], head_norms[2], out;
	ig_value h;

	norm = ig_rec_layer_weight(r, 1, d->width, "blk.%u.attn_norm.weight", layer);
	qkv[0] = ig_rec_layer_weight(r, q_width, d->width, "blk.%u.attn_q.weight", layer);
	qkv[1] = ig_rec_layer_weight(r, kv_width, d->width, "blk.%u.attn_k.weight", layer);
	qkv[2] = ig_rec_layer_weight(r, kv_width, d->width, "blk.%u.attn_v.weight", layer);
	head_norms[0] = ig_rec_layer_weight(r, 1, d->head_dim, "blk.%u.attn_q_norm.weight", layer);
	head_norms[1] = ig_rec_layer_weight(r, 1, d->head_dim, "blk.%u.attn_k_norm.weight", layer);
	out = ig_rec_layer_weight(r, d->width, q_width, "blk.%u.attn_output.weight", layer);

	h = ig_rec_rms_norm(r, x, norm, p->norm_eps);		 /* [n, width] */
	h = ig_rec_linear(r, h, qkv, 3, IG_NONE);		 /* [n, q | k | v] */
	h = ig_rec_rope_kv_norm(r, &rope, h, table, head_norms); /* [n, n_heads * head_dim] */
	h = ig_rec_attention(r, &attention, h);			 /* the same */
	return ig_rec_linear(r, h, &out, 1, x);			 /* [n, width] */
}

/* x + Down(SiLU(Gate(h)) * Up(h)), h = RMSNorm(x) */
static ig_value record_feed_forward(struct ig_rec *r, const struct qwen3 *p, uint32_t layer,
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
	const struct qwen3 *p = params;
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

const struct ig_arch ig_arch_qwen3 = {
	.struct_size = sizeof(struct ig_arch),
	.params_size = sizeof(struct qwen3),
	.name = "qwen3",
	.read_params = read_params,
	.record = record,
};
