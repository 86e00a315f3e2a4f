/*
 * arch_mixtral.c: Mixtral (Jiang et al. 2024, arXiv:2401.04088): Mistral's attention; in
 * every layer eight experts, of which a softmax router gives each token two, whose weights
 * sum to 1.
 *
 * Mixtral's files say that they are of the architecture "llama", and have its keys; what
 * tells them from Llama's is that they have experts.  Hyper-parameters and tensor names
 * are GGUF's.
 */
#include "modules/attention/hyper.h"
#include "moe_private.h"

#include <errno.h>
#include <math.h>
#include <string.h>

struct mixtral {
	struct dense d;
	struct experts experts;
	struct rope rope;
	uint32_t window; /* 0: all positions are seen */
	float norm_eps;
};

static int claims(const struct ig_host *host, const struct ig_meta *meta)
{
	const char *arch;
	size_t len;
	uint32_t n;

	return !host->meta_str(meta, "general.architecture", &arch, &len, NULL) && len == 5 &&
	       !memcmp(arch, "llama", 5) && !host->meta_u32(meta, "llama.expert_count", &n, NULL) &&
	       n > 0;
}

static int read_params(const struct ig_host *host, const struct ig_meta *meta, void *params,
		       struct ig_model_info *info, struct ig_error *err)
{
	const struct hyper h = { host, meta, "llama", err };
	const uint32_t no_window = 0;
	struct mixtral *p = params;
	int rc;

	memset(p, 0, sizeof *p);
	if ((rc = ig_hyper_experts(&h, &p->d, &p->experts)) ||
	    (rc = ig_hyper_f32(&h, "attention.layer_norm_rms_epsilon", 0, 1, NULL, &p->norm_eps)) ||
	    (rc = ig_hyper_u32(&h, "attention.sliding_window", 0, UINT32_MAX, &no_window,
			       &p->window)) ||
	    (rc = ig_hyper_rope(&h, &p->d, &p->rope)))
		return rc;
	if (p->window >= p->d.n_context)
		p->window = 0;
	p->experts.moe.normalise = 1;
	ig_hyper_info(&p->d, info);
	info->groups[0].window = p->window;
	return 0;
}

/* ---- the model ------------------------------------------------------------------------- */

/* x + Attention(RMSNorm(x)) */
static ig_value record_attention(struct ig_rec *r, const struct mixtral *p, uint32_t layer,
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
	ig_weight norm, qkv[3], out;
	ig_value h;

	norm = ig_rec_layer_weight(r, 1, d->width, "blk.%u.attn_norm.weight", layer);
	qkv[0] = ig_rec_layer_weight(r, q_width, d->width, "blk.%u.attn_q.weight", layer);
	qkv[1] = ig_rec_layer_weight(r, kv_width, d->width, "blk.%u.attn_k.weight", layer);
	qkv[2] = ig_rec_layer_weight(r, kv_width, d->width, "blk.%u.attn_v.weight", layer);
	out = ig_rec_layer_weight(r, d->width, q_width, "blk.%u.attn_output.weight", layer);

	h = ig_rec_rms_norm(r, x, norm, p->norm_eps); /* [n, width] */
	h = ig_rec_linear(r, h, qkv, 3, IG_NONE);     /* [n, q | k | v] */
	h = ig_rec_rope_kv(r, &rope, h, table);	      /* [n, n_heads * head_dim] */
	h = ig_rec_attention(r, &attention, h);	      /* the same */
	return ig_rec_linear(r, h, &out, 1, x);	      /* [n, width] */
}

static int record(const struct ig_host *host, struct ig_graph *g, const struct ig_meta *meta,
		  const void *params)
{
	const struct mixtral *p = params;
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
		x = ig_hyper_record_experts(&r, d, &p->experts, p->norm_eps, layer, x);
	}
	x = ig_rec_rms_norm_last(&r, x, norm, p->norm_eps);
	logits = ig_rec_logits(&r, x, head);
	ig_rec_sample(&r, logits);
	return host->graph_status(g);
}

const struct ig_arch ig_arch_mixtral = {
	.struct_size = sizeof(struct ig_arch),
	.params_size = sizeof(struct mixtral),
	.name = "mixtral",
	.read_params = read_params,
	.record = record,
	.claims = claims,
};
