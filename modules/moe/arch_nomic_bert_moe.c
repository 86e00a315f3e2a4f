/*
 * arch_nomic_bert_moe.c: Nomic Embed v2 (Nussbaum and Duderstadt 2025, arXiv:2502.07972): BERT's post-norm blocks with
 * RoPE in place of learned positions and biases in attention and feed-forward, of which every moe_every_n_layers-th
 * layer has experts instead: a softmax over all of them, the best of which are added with the weights they have there,
 * Down(GELU(Up(x))) each, by erf and without biases.  Texts begin with what they are for ("search_query: "), which
 * the client writes.  A bias behind the sum of the experts, which the authors' class has and GGUF has not, is zero.
 */
#include <ingot/layers.h>

struct nomic_bert_moe {
	struct ig_hparams p;
	struct ig_experts experts;
	struct ig_rope rope;
	struct ig_pooling pooling;
	uint32_t n_types; /* 0: texts have none */
	uint32_t period;  /* layers 1, 1 + period, … have experts */
};

static int read_params(const struct ig_host *host, const struct ig_meta *meta, void *params,
		       struct ig_model_info *info, struct ig_error *err)
{
	const struct ig_hparam_source s = { host, meta, "nomic-bert-moe", err };
	struct nomic_bert_moe *m = params;
	struct ig_hparams *p = &m->p;
	int64_t n_rows, n_cols;
	int rc;

	if ((rc = ig_hparams_read(&s, IG_LAYER_NORM_EPS, p)) ||
	    (rc = ig_hparams_experts(&s, p, &m->experts)) ||
	    (rc = ig_hparam_u32(&s, "moe_every_n_layers", 2, IG_MAX_LAYERS, NULL, &m->period)) ||
	    (rc = ig_hparams_rope(&s, p, &m->rope)) ||
	    (rc = ig_hparams_pooling(&s, IG_POOL_MEAN, &m->pooling)))
		return rc;
	m->experts.moe.act = IG_ACT_GELU_ERF;
	m->experts.moe.form = IG_MOE_UP;
	m->experts.moe.normalise = 0;
	if (!host->meta_tensor(meta, "token_types.weight", &n_rows, &n_cols))
		m->n_types = n_rows > 0 && n_rows < 1024 ? (uint32_t)n_rows : 1;
	ig_hparams_info_pooled(p, &m->pooling, info);
	return 0;
}

static ig_value record_norm(struct ig_rec *r, const struct ig_hparams *p, const char *weight,
			    const char *bias, uint32_t layer, ig_value x)
{
	ig_weight w = ig_rec_layer_weight(r, 1, p->width, weight, layer);
	ig_weight b = ig_rec_layer_weight(r, 1, p->width, bias, layer);
	return ig_rec_layer_norm(r, x, w, b, p->norm_eps, 0);
}

/* h + Down(GELU(Up(h))), of the experts or plain. */
static ig_value record_feed_forward(struct ig_rec *r, const struct nomic_bert_moe *m,
				    uint32_t layer, ig_value h)
{
	const struct ig_hparams *p = &m->p;
	ig_weight up[2], down[2];
	ig_value f;

	if (layer % m->period == 1)
		return ig_layer_experts(r, p, &m->experts, layer, h, h);
	up[0] = ig_rec_layer_weight(r, p->n_ff, p->width, "blk.%u.ffn_up.weight", layer);
	up[1] = ig_rec_layer_weight(r, 1, p->n_ff, "blk.%u.ffn_up.bias", layer);
	down[0] = ig_rec_layer_weight(r, p->width, p->n_ff, "blk.%u.ffn_down.weight", layer);
	down[1] = ig_rec_layer_weight(r, 1, p->width, "blk.%u.ffn_down.bias", layer);
	f = ig_rec_linear_bias(r, h, up, 1, IG_ACT_GELU_ERF, IG_NONE); /* [n, n_ff] */
	return ig_rec_linear_bias(r, f, down, 1, IG_ACT_NONE, h);      /* [n, width] */
}

static int record(const struct ig_host *host, struct ig_graph *g, const struct ig_meta *meta,
		  const void *params)
{
	const struct nomic_bert_moe *m = params;
	const struct ig_hparams *p = &m->p;
	struct ig_rec r = { host, g };
	const struct ig_gqa attention = {
		.p = p,
		.rope = &m->rope,
		.table = ig_layer_rope_table(&r, &m->rope),
		.mode = IG_ROPE_HALVES,
		.flags = IG_GQA_ROWS | IG_GQA_FUSED | IG_GQA_QKV_BIAS | IG_GQA_OUT_BIAS,
		.back = IG_ATTENTION_ALL,
		.ahead = IG_ATTENTION_ALL,
	};
	ig_weight tokens = ig_rec_weight(&r, p->n_vocab, p->width, "token_embd.weight"), types;
	ig_value x, h;

	if (m->n_types) {
		types = ig_rec_weight(&r, m->n_types, p->width, "token_types.weight");
		x = ig_rec_embed_types(&r, tokens, IG_NONE, types);
	} else {
		x = ig_rec_embed(&r, tokens);
	}
	x = record_norm(&r, p, "token_embd_norm.weight", "token_embd_norm.bias", 0, x);
	for (uint32_t layer = 0; layer < p->n_layers; layer++) {
		h = ig_layer_gqa(&r, &attention, layer, x, x);
		h = record_norm(&r, p, "blk.%u.attn_output_norm.weight",
				"blk.%u.attn_output_norm.bias", layer, h);
		x = record_feed_forward(&r, m, layer, h);
		x = record_norm(&r, p, "blk.%u.layer_output_norm.weight",
				"blk.%u.layer_output_norm.bias", layer, x);
	}
	return ig_layer_pool(&r, p, &m->pooling, IG_POOL_CLS, x);
}

const struct ig_arch ig_arch_nomic_bert_moe = {
	.struct_size = sizeof(struct ig_arch),
	.params_size = sizeof(struct nomic_bert_moe),
	.name = "nomic-bert-moe",
	.read_params = read_params,
	.record = record,
};
