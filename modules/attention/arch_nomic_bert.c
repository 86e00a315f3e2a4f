/*
 * arch_nomic_bert.c: Nomic Embed (Nussbaum et al. 2024, arXiv:2402.01613): BERT's post-norm blocks with
 * RoPE in place of learned positions, a gated feed-forward (SwiGLU), and no biases but the norms'.
 * Texts begin with what they are for ("search_query: "), which the client writes.  With experts: arch_nomic_bert_moe.c.
 */
#include <ingot/arch_files.h>
#include <ingot/layers.h>

#include <errno.h>

struct nomic_bert {
	struct ig_hparams p;
	struct ig_rope rope;
	struct ig_pooling pooling;
	uint32_t n_types; /* 0: texts have none */
	uint32_t fused;	  /* 1: q, k and v are one matrix */
};

static int read_params(const struct ig_host *host, const struct ig_meta *meta, void *params,
		       struct ig_model_info *info, struct ig_error *err)
{
	const struct ig_hparam_source s = { host, meta, "nomic-bert", err };
	struct nomic_bert *m = params;
	struct ig_hparams *p = &m->p;
	int rc;

	if ((rc = ig_hparams_dense(&s, IG_LAYER_NORM_EPS, p)) ||
	    (rc = ig_hparams_rope(&s, p, &m->rope)) ||
	    (rc = ig_hparams_pooling(&s, IG_POOL_MEAN, &m->pooling)))
		return rc;
	if ((rc = ig_hparam_refuse_tensor(&s, "blk.0.attn_qkv.bias", "biases")) ||
	    (rc = ig_hparam_refuse_tensor(&s, "blk.0.ffn_up.bias", "biases")))
		return rc;
	m->n_types = ig_hparam_text_types(&s);
	m->fused = host->meta_has_tensor(meta, "blk.0.attn_qkv.weight") != 0;
	ig_hparams_info_pooled(p, &m->pooling, info);
	return 0;
}

static int record(const struct ig_host *host, struct ig_graph *g, const struct ig_meta *meta,
		  const void *params)
{
	const struct nomic_bert *m = params;
	const struct ig_hparams *p = &m->p;
	struct ig_rec r = { host, g };
	const struct ig_gqa attention = {
		.p = p,
		.rope = &m->rope,
		.table = ig_layer_rope_table(&r, &m->rope),
		.mode = IG_ROPE_HALVES,
		.flags = IG_GQA_ROWS | (m->fused ? IG_GQA_FUSED : 0),
		.back = IG_ATTENTION_ALL,
		.ahead = IG_ATTENTION_ALL,
	};
	ig_value x = ig_layer_embed_texts(&r, p, IG_NONE, m->n_types), h;

	for (uint32_t layer = 0; layer < p->n_layers; layer++) {
		h = ig_layer_gqa(&r, &attention, layer, x, x);
		h = ig_layer_layer_norm(&r, p, "blk.%u.attn_output_norm.weight",
					"blk.%u.attn_output_norm.bias", layer, h);
		x = ig_layer_glu(&r, p, IG_ACT_SILU, layer, h, h);
		x = ig_layer_layer_norm(&r, p, "blk.%u.layer_output_norm.weight",
					"blk.%u.layer_output_norm.bias", layer, x);
	}
	return ig_layer_pool(&r, p, &m->pooling, IG_POOL_CLS, x);
}

/* ---- folders of safetensors -------------------------------------------------------------------- */

/* Before "|" the keys that transformers writes (since 5.3), behind it those of the authors' folders on the Hub.  The
 * authors' n_positions counts on a stretched RoPE, which is not done here; it is not read. */
static const struct ig_config_key keys[] = {
	IG_CONFIG_NUMBER("num_hidden_layers|n_layer", "block_count", 12),
	IG_CONFIG_NUMBER("hidden_size|n_embd", "embedding_length", 768),
	{ "intermediate_size|n_inner", "feed_forward_length", IG_CONFIG_U32, IG_CONFIG_TIMES, 4,
	  "embedding_length" },
	IG_CONFIG_NUMBER("num_attention_heads|n_head", "attention.head_count", 12),
	IG_CONFIG_NUMBER("max_position_embeddings|max_trained_positions", "context_length", 2048),
	{ "layer_norm_eps|layer_norm_epsilon", "attention.layer_norm_epsilon", IG_CONFIG_F32, 0,
	  1e-12, NULL },
	IG_CONFIG_SILU,
	{ "activation_function", NULL, IG_CONFIG_WORD, 0, 0, "swiglu" },
	{ "moe_every_n_layers", NULL, IG_CONFIG_REFUSED, 0, 0, NULL },
	{ "qkv_proj_bias", NULL, IG_CONFIG_FALSE, 0, 0, NULL },
	{ "mlp_fc1_bias", NULL, IG_CONFIG_FALSE, 0, 0, NULL },
	{ "mlp_fc2_bias", NULL, IG_CONFIG_FALSE, 0, 0, NULL },
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
	{ "embeddings.LayerNorm", "token_embd_norm", IG_TENSOR_BIAS },
	{ "layers.%u.self_attn.q_proj", "blk.%u.attn_q" },
	{ "layers.%u.self_attn.k_proj", "blk.%u.attn_k" },
	{ "layers.%u.self_attn.v_proj", "blk.%u.attn_v" },
	{ "layers.%u.self_attn.o_proj", "blk.%u.attn_output" },
	{ "layers.%u.post_attention_layernorm", "blk.%u.attn_output_norm", IG_TENSOR_BIAS },
	IG_TENSORS_GLU,
	{ "layers.%u.post_mlp_layernorm", "blk.%u.layer_output_norm", IG_TENSOR_BIAS },
	/* the authors' */
	{ "emb_ln", "token_embd_norm", IG_TENSOR_BIAS },
	{ "encoder.layers.%u.attn.Wqkv", "blk.%u.attn_qkv" },
	{ "encoder.layers.%u.attn.out_proj", "blk.%u.attn_output" },
	{ "encoder.layers.%u.norm1", "blk.%u.attn_output_norm", IG_TENSOR_BIAS },
	{ "encoder.layers.%u.mlp.fc11", "blk.%u.ffn_up" },
	{ "encoder.layers.%u.mlp.fc12", "blk.%u.ffn_gate" },
	{ "encoder.layers.%u.mlp.fc2", "blk.%u.ffn_down" },
	{ "encoder.layers.%u.norm2", "blk.%u.layer_output_norm", IG_TENSOR_BIAS },
};

/* Of each head all values turn. */
static void check_fraction(const struct ig_config *c)
{
	ig_config_only_f32(c, "rotary_emb_fraction", 1);
}

static const struct ig_arch_files nomic_bert_files = {
	.struct_size = sizeof nomic_bert_files,
	.model_type = "nomic_bert",
	.tied = 1,
	IG_CONFIG_KEYS(keys),
	IG_TENSOR_NAMES(names),
	.rope_theta = 1000,
	.config = check_fraction,
};
static const struct ig_arch_files *const files[] = { &nomic_bert_files, NULL };

const struct ig_arch ig_arch_nomic_bert = {
	.struct_size = sizeof(struct ig_arch),
	.params_size = sizeof(struct nomic_bert),
	.name = "nomic-bert",
	.read_params = read_params,
	.record = record,
	.files = files,
};
