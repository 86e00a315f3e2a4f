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
	m->n_types = ig_hparam_text_types(&s);
	ig_hparams_info_pooled(p, &m->pooling, info);
	return 0;
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
	ig_value x = ig_layer_embed_texts(&r, p, IG_NONE, m->n_types), h;

	for (uint32_t layer = 0; layer < p->n_layers; layer++) {
		h = ig_layer_gqa(&r, &attention, layer, x, x);
		h = ig_layer_layer_norm(&r, p, "blk.%u.attn_output_norm.weight",
					"blk.%u.attn_output_norm.bias", layer, h);
		x = layer % m->period == 1 ? ig_layer_experts(&r, p, &m->experts, layer, h, h) :
					     ig_layer_mlp(&r, p, IG_ACT_GELU_ERF, layer, h, h);
		x = ig_layer_layer_norm(&r, p, "blk.%u.layer_output_norm.weight",
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
