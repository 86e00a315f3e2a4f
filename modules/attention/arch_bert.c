/*
 * arch_bert.c: BERT (Devlin et al. 2018, arXiv:1810.04805) as a model of embeddings (Reimers and
 * Gurevych 2019, arXiv:1908.10084) or a reranker: learned positions, types of texts, attention in
 * both directions, post-norm blocks with LayerNorm, a feed-forward with GELU (by erf), biases
 * everywhere.  A text's rows become one by pooling; the vector is not normalised here.  XLM-RoBERTa
 * (Conneau et al. 2020, arXiv:1911.02116) is the same model with another tokenizer, one type of texts, and
 * positions that begin behind those of padding, which GGUF files leave out.
 */
#include <ingot/arch_files.h>
#include <ingot/layers.h>

struct bert {
	struct ig_hparams p;
	struct ig_pooling pooling;
	uint32_t n_types; /* 0: texts have none */
	uint32_t fused;	  /* 1: q, k and v are one matrix */
};

static int read_params(const struct ig_host *host, const struct ig_meta *meta, void *params,
		       struct ig_model_info *info, struct ig_error *err)
{
	const struct ig_hparam_source s = { host, meta, "bert", err };
	struct bert *m = params;
	struct ig_hparams *p = &m->p;
	int rc;

	if ((rc = ig_hparams_dense(&s, IG_LAYER_NORM_EPS, p)) ||
	    (rc = ig_hparams_pooling(&s, IG_POOL_MEAN, &m->pooling)))
		return rc;
	if (p->n_kv_heads != p->n_heads || (uint64_t)p->n_heads * p->head_dim != p->width)
		return ig_fail(err, -ENOTSUP,
			       "bert with %u heads of %u dimensions, %u KV heads and a width of %u "
			       "is not supported",
			       p->n_heads, p->head_dim, p->n_kv_heads, p->width);
	m->n_types = ig_hparam_text_types(&s);
	m->fused = host->meta_has_tensor(meta, "blk.0.attn_qkv.weight") != 0;
	ig_hparams_info_pooled(p, &m->pooling, info);
	return 0;
}

static int record(const struct ig_host *host, struct ig_graph *g, const struct ig_meta *meta,
		  const void *params)
{
	const struct bert *m = params;
	const struct ig_hparams *p = &m->p;
	struct ig_rec r = { host, g };
	const struct ig_gqa attention = {
		.p = p,
		.flags = IG_GQA_ROWS | IG_GQA_QKV_BIAS | IG_GQA_OUT_BIAS |
			 (m->fused ? IG_GQA_FUSED : 0),
		.back = IG_ATTENTION_ALL,
		.ahead = IG_ATTENTION_ALL,
	};
	ig_weight positions = ig_rec_weight(&r, p->n_context, p->width, "position_embd.weight");
	ig_value x = ig_layer_embed_texts(&r, p, positions, m->n_types), h;

	for (uint32_t layer = 0; layer < p->n_layers; layer++) {
		h = ig_layer_gqa(&r, &attention, layer, x, x);
		h = ig_layer_layer_norm(&r, p, "blk.%u.attn_output_norm.weight",
					"blk.%u.attn_output_norm.bias", layer, h);
		x = ig_layer_mlp(&r, p, IG_ACT_GELU_ERF, layer, h, h);
		x = ig_layer_layer_norm(&r, p, "blk.%u.layer_output_norm.weight",
					"blk.%u.layer_output_norm.bias", layer, x);
	}
	return ig_layer_pool(&r, p, &m->pooling, IG_POOL_CLS, x);
}

/* ---- folders of safetensors -------------------------------------------------------------- */

static const struct ig_config_key keys[] = {
	IG_CONFIG_NUMBER("num_hidden_layers", "block_count", 12),
	IG_CONFIG_NUMBER("hidden_size", "embedding_length", 768),
	IG_CONFIG_NUMBER("intermediate_size", "feed_forward_length", 3072),
	IG_CONFIG_NUMBER("num_attention_heads", "attention.head_count", 12),
	IG_CONFIG_NUMBER("max_position_embeddings", "context_length", 512),
	{ "layer_norm_eps", "attention.layer_norm_epsilon", IG_CONFIG_F32, 0, 1e-12, NULL },
	{ "hidden_act", NULL, IG_CONFIG_WORD, 0, 0, "gelu" },
	{ "is_decoder", NULL, IG_CONFIG_REFUSED },
	{ "add_cross_attention", NULL, IG_CONFIG_REFUSED },
};

/* But for words, positions and classes.  The pooler's matrix is a reranker's; other models do not use it. */
#define BERT_TENSORS                                                                               \
	{ "embeddings.token_type_embeddings", "token_types", IG_TENSOR_F32 },                      \
		{ "embeddings.LayerNorm", "token_embd_norm", IG_TENSOR_BIAS },                     \
		{ "encoder.layer.%u.attention.self.query", "blk.%u.attn_q", IG_TENSOR_BIAS },      \
		{ "encoder.layer.%u.attention.self.key", "blk.%u.attn_k", IG_TENSOR_BIAS },        \
		{ "encoder.layer.%u.attention.self.value", "blk.%u.attn_v", IG_TENSOR_BIAS },      \
		{ "encoder.layer.%u.attention.output.dense", "blk.%u.attn_output",                 \
		  IG_TENSOR_BIAS },                                                                \
		{ "encoder.layer.%u.attention.output.LayerNorm", "blk.%u.attn_output_norm",        \
		  IG_TENSOR_BIAS },                                                                \
		{ "encoder.layer.%u.intermediate.dense", "blk.%u.ffn_up", IG_TENSOR_BIAS },        \
		{ "encoder.layer.%u.output.dense", "blk.%u.ffn_down", IG_TENSOR_BIAS },            \
		{ "encoder.layer.%u.output.LayerNorm", "blk.%u.layer_output_norm",                 \
		  IG_TENSOR_BIAS },                                                                \
	{                                                                                          \
		"pooler.dense", "cls", IG_TENSOR_BIAS                                              \
	}

static const struct ig_tensor_name names[] = {
	{ "embeddings.word_embeddings", "token_embd" },
	{ "embeddings.position_embeddings", "position_embd", IG_TENSOR_F32 },
	BERT_TENSORS,
	{ "classifier", "cls.output", IG_TENSOR_BIAS },
};
static const struct ig_arch_files bert_files = {
	.struct_size = sizeof bert_files,
	.model_type = "bert",
	.tied = 1,
	IG_CONFIG_KEYS(keys),
	IG_TENSOR_NAMES(names),
};

/* Rows 0 … pad_token_id of the positions are of padding. */
static void xlm_config(const struct ig_config *c)
{
	uint32_t n = c->get_u32(c, "context_length"), pad = 1;

	c->u32(c, "pad_token_id", &pad);
	if (pad >= n || n - pad < 2)
		c->refuse(c, -EINVAL, "pad_token_id", "is %u, and there are %u positions", pad, n);
	else
		c->put_u32(c, "context_length", n - pad - 1);
}

static const struct ig_tensor_name xlm_names[] = {
	{ "embeddings.word_embeddings", "token_embd" },
	{ "embeddings.position_embeddings", "position_embd", IG_TENSOR_F32 | IG_TENSOR_LAST_ROWS },
	BERT_TENSORS,
	{ "classifier.dense", "cls", IG_TENSOR_BIAS },
	{ "classifier.out_proj", "cls.output", IG_TENSOR_BIAS },
};
static const struct ig_arch_files xlm_files = {
	.struct_size = sizeof xlm_files,
	.model_type = "xlm-roberta",
	.tied = 1,
	IG_CONFIG_KEYS(keys),
	IG_TENSOR_NAMES(xlm_names),
	.config = xlm_config,
};
static const struct ig_arch_files *const files[] = { &bert_files, &xlm_files, NULL };

const struct ig_arch ig_arch_bert = {
	.struct_size = sizeof(struct ig_arch),
	.params_size = sizeof(struct bert),
	.name = "bert",
	.read_params = read_params,
	.record = record,
	.files = files,
};
