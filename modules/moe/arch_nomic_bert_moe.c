/*
 * arch_nomic_bert_moe.c: Nomic Embed v2 (Nussbaum and Duderstadt 2025, arXiv:2502.07972): BERT's post-norm blocks with
 * RoPE in place of learned positions and biases in attention and feed-forward, of which every moe_every_n_layers-th
 * layer has experts instead: a softmax over all of them, the best of which are added with the weights they have there,
 * Down(GELU(Up(x))) each, by erf and without biases, and one bias behind their sum.  llama.cpp's converter leaves that
 * bias out: it is zero in files without ffn_exps.bias.  Texts begin with what they are for ("search_query: "), which
 * the client writes.
 */
#include <ingot/arch_files.h>
#include <ingot/layers.h>

#include <errno.h>

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
	/* if one of the layers with experts has it, all must */
	for (uint32_t layer = 1; layer < p->n_layers; layer += m->period)
		m->experts.moe.sum_bias |=
			ig_meta_layer_has(host, meta, "blk.%u.ffn_exps.bias", layer);
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

/* ---- folders of safetensors -------------------------------------------------------------------- */

/* The authors' folder on the Hub, whose model_type is also that of the dense models (arch_nomic_bert.c). */
static const struct ig_config_key keys[] = {
	IG_CONFIG_NUMBER("n_layer", "block_count", 12),
	IG_CONFIG_NUMBER("n_embd", "embedding_length", 768),
	{ "n_inner", "feed_forward_length", IG_CONFIG_U32, IG_CONFIG_TIMES, 4, "embedding_length" },
	IG_CONFIG_NUMBER("n_head", "attention.head_count", 12),
	IG_CONFIG_NUMBER("max_trained_positions", "context_length", 2048),
	{ "layer_norm_epsilon", "attention.layer_norm_epsilon", IG_CONFIG_F32, 0, 1e-5, NULL },
	{ "moe_every_n_layers", "moe_every_n_layers", IG_CONFIG_U32, IG_CONFIG_REQUIRED, 0, NULL },
	{ "num_experts", "expert_count", IG_CONFIG_U32, IG_CONFIG_REQUIRED, 0, NULL },
	{ "moe_top_k", "expert_used_count", IG_CONFIG_U32, IG_CONFIG_REQUIRED, 0, NULL },
	{ "activation_function", NULL, IG_CONFIG_WORD, 0, 0, "gelu" },
	{ "num_shared_experts", NULL, IG_CONFIG_REFUSED, 0, 0, NULL },
	{ "expert_choice_router", NULL, IG_CONFIG_FALSE, 0, 0, NULL },
	{ "moe_normalize_expert_weights", NULL, IG_CONFIG_REFUSED, 0, 0, NULL },
	{ "qkv_proj_bias", NULL, IG_CONFIG_TRUE, 0, 1, NULL },
	{ "mlp_fc1_bias", NULL, IG_CONFIG_TRUE, 0, 1, NULL },
	{ "mlp_fc2_bias", NULL, IG_CONFIG_TRUE, 0, 1, NULL },
	{ "causal", NULL, IG_CONFIG_FALSE, 0, 0, NULL },
	{ "prenorm", NULL, IG_CONFIG_FALSE, 0, 0, NULL },
	{ "parallel_block", NULL, IG_CONFIG_FALSE, 0, 0, NULL },
	{ "use_rms_norm", NULL, IG_CONFIG_FALSE, 0, 0, NULL },
	{ "rotary_emb_interleaved", NULL, IG_CONFIG_FALSE, 0, 0, NULL },
	{ "rotary_emb_scale_base", NULL, IG_CONFIG_REFUSED, 0, 0, NULL },
};
static const struct ig_tensor_name names[] = {
	{ "embeddings.word_embeddings", "token_embd" },
	{ "embeddings.token_type_embeddings", "token_types", IG_TENSOR_F32 },
	{ "emb_ln", "token_embd_norm", IG_TENSOR_BIAS },
	{ "encoder.layers.%u.attn.Wqkv", "blk.%u.attn_qkv", IG_TENSOR_BIAS },
	{ "encoder.layers.%u.attn.out_proj", "blk.%u.attn_output", IG_TENSOR_BIAS },
	{ "encoder.layers.%u.norm1", "blk.%u.attn_output_norm", IG_TENSOR_BIAS },
	{ "encoder.layers.%u.mlp.fc1", "blk.%u.ffn_up", IG_TENSOR_BIAS },
	{ "encoder.layers.%u.mlp.fc2", "blk.%u.ffn_down", IG_TENSOR_BIAS },
	{ "encoder.layers.%u.mlp.router.layer", "blk.%u.ffn_gate_inp", IG_TENSOR_F32 },
	{ "encoder.layers.%u.mlp.experts.mlp.w1", "blk.%u.ffn_up_exps",
	  IG_TENSOR_EXPERTS | IG_TENSOR_STACKED },
	{ "encoder.layers.%u.mlp.experts.mlp.w2", "blk.%u.ffn_down_exps",
	  IG_TENSOR_EXPERTS | IG_TENSOR_STACKED | IG_TENSOR_TRANSPOSED },
	{ "encoder.layers.%u.mlp.experts.bias", "blk.%u.ffn_exps.bias", IG_TENSOR_NAMED },
	{ "encoder.layers.%u.norm2", "blk.%u.layer_output_norm", IG_TENSOR_BIAS },
};

static void check_numbers(const struct ig_config *c)
{
	const uint32_t period = c->get_u32(c, "moe_every_n_layers"),
		       n_experts = c->get_u32(c, "expert_count"),
		       top_k = c->get_u32(c, "expert_used_count");

	if (period < 2)
		c->refuse(c, -ENOTSUP, "moe_every_n_layers",
			  "is %u, and num_experts %u: only 2 and more is supported", period,
			  n_experts);
	if (top_k < 1 || top_k > n_experts)
		c->refuse(c, -EINVAL, "moe_top_k", "is %u of %u experts", top_k, n_experts);
	ig_config_only_f32(c, "rotary_emb_fraction", 1);
	ig_config_only_f32(c, "ffn_div", 1);
}

static const struct ig_arch_files nomic_bert_moe_files = {
	.struct_size = sizeof nomic_bert_moe_files,
	.model_type = "nomic_bert",
	.if_set = "num_experts",
	.tied = 1,
	IG_CONFIG_KEYS(keys),
	IG_TENSOR_NAMES(names),
	.rope_theta = 10000,
	.config = check_numbers,
};
static const struct ig_arch_files *const files[] = { &nomic_bert_moe_files, NULL };

const struct ig_arch ig_arch_nomic_bert_moe = {
	.struct_size = sizeof(struct ig_arch),
	.params_size = sizeof(struct nomic_bert_moe),
	.name = "nomic-bert-moe",
	.read_params = read_params,
	.record = record,
	.files = files,
};
