/*
 * arch_gpt2.c: GPT-2 (Radford et al. 2019): learned positions, added to the embedding; pre-norm
 * blocks with LayerNorm; q, k and v from one matrix; a feed-forward of two matrices with GELU
 * (tanh approximation) between them; biases everywhere.
 */
#include <ingot/arch_files.h>
#include <ingot/layers.h>

struct gpt2 {
	struct ig_hparams p;
};

static int read_params(const struct ig_host *host, const struct ig_meta *meta, void *params,
		       struct ig_model_info *info, struct ig_error *err)
{
	const struct ig_hparam_source s = { host, meta, "gpt2", err };
	struct ig_hparams *p = &((struct gpt2 *)params)->p;
	int rc;

	if ((rc = ig_hparams_dense(&s, IG_LAYER_NORM_EPS, p)))
		return rc;
	if (p->n_kv_heads != p->n_heads)
		return ig_fail(err, -ENOTSUP,
			       "gpt2.attention.head_count_kv is %u: gpt2 with fewer "
			       "KV heads than heads (%u) is not supported",
			       p->n_kv_heads, p->n_heads);
	if ((uint64_t)p->n_heads * p->head_dim != p->width)
		return ig_fail(err, -ENOTSUP,
			       "gpt2.attention.key_length is %u: gpt2 with heads that "
			       "are not gpt2.embedding_length %u together is not supported",
			       p->head_dim, p->width);
	ig_hparams_info(p, 0, info);
	return 0;
}

static int record(const struct ig_host *host, struct ig_graph *g, const struct ig_meta *meta,
		  const void *params)
{
	const struct ig_hparams *p = &((const struct gpt2 *)params)->p;
	struct ig_rec r = { host, g };
	const struct ig_gqa attention = {
		.p = p,
		.flags = IG_GQA_FUSED | IG_GQA_QKV_BIAS | IG_GQA_OUT_BIAS,
	};
	ig_weight embedding, positions, norm, norm_bias;
	ig_value x, h;

	embedding = ig_rec_weight(&r, p->n_vocab, p->width, "token_embd.weight");
	positions = ig_rec_weight(&r, p->n_context, p->width, "position_embd.weight");
	norm = ig_rec_weight(&r, 1, p->width, "output_norm.weight");
	norm_bias = ig_rec_weight(&r, 1, p->width, "output_norm.bias");

	x = ig_rec_embed_learned(&r, embedding, positions);
	for (uint32_t layer = 0; layer < p->n_layers; layer++) {
		h = ig_layer_layer_norm(&r, p, "blk.%u.attn_norm.weight", "blk.%u.attn_norm.bias",
					layer, x);
		x = ig_layer_gqa(&r, &attention, layer, h, x);
		h = ig_layer_layer_norm(&r, p, "blk.%u.ffn_norm.weight", "blk.%u.ffn_norm.bias",
					layer, x);
		x = ig_layer_mlp(&r, p, IG_ACT_GELU, layer, h, x);
	}
	return ig_layer_head(&r, p, ig_rec_layer_norm(&r, x, norm, norm_bias, p->norm_eps, 1));
}

static const struct ig_config_key keys[] = {
	{ "n_layer", "block_count", IG_CONFIG_U32, 0, 12 },
	{ "n_embd", "embedding_length", IG_CONFIG_U32, 0, 768 },
	{ "n_head", "attention.head_count", IG_CONFIG_U32, 0, 12 },
	{ "n_positions", "context_length", IG_CONFIG_U32, 0, 1024 },
	{ "n_inner", "feed_forward_length", IG_CONFIG_U32, IG_CONFIG_TIMES, 4, "embedding_length" },
	{ "layer_norm_epsilon", "attention.layer_norm_epsilon", IG_CONFIG_F32, 0, 1e-5 },
	{ "activation_function", NULL, IG_CONFIG_WORD, 0, 0, "gelu_new" },
	{ "scale_attn_weights", NULL, IG_CONFIG_TRUE, 0, 1 },
	{ "scale_attn_by_inverse_layer_idx", NULL, IG_CONFIG_REFUSED },
	{ "add_cross_attention", NULL, IG_CONFIG_REFUSED },
};
static const struct ig_tensor_name names[] = {
	{ "wte", "token_embd" },
	{ "wpe", "position_embd", IG_TENSOR_F32 },
	{ "ln_f", "output_norm", IG_TENSOR_BIAS },
	{ "lm_head", "output" },
	{ "h.%u.ln_1", "blk.%u.attn_norm", IG_TENSOR_BIAS },
	{ "h.%u.attn.c_attn", "blk.%u.attn_qkv", IG_TENSOR_TRANSPOSED | IG_TENSOR_BIAS },
	{ "h.%u.attn.c_proj", "blk.%u.attn_output", IG_TENSOR_TRANSPOSED | IG_TENSOR_BIAS },
	{ "h.%u.ln_2", "blk.%u.ffn_norm", IG_TENSOR_BIAS },
	{ "h.%u.mlp.c_fc", "blk.%u.ffn_up", IG_TENSOR_TRANSPOSED | IG_TENSOR_BIAS },
	{ "h.%u.mlp.c_proj", "blk.%u.ffn_down", IG_TENSOR_TRANSPOSED | IG_TENSOR_BIAS },
};
static const struct ig_arch_files gpt2_files = {
	.struct_size = sizeof gpt2_files,
	.model_type = "gpt2",
	.tied = 1,
	IG_CONFIG_KEYS(keys),
	IG_TENSOR_NAMES(names),
};
static const struct ig_arch_files *const files[] = { &gpt2_files, NULL };

const struct ig_arch ig_arch_gpt2 = {
	.struct_size = sizeof(struct ig_arch),
	.params_size = sizeof(struct gpt2),
	.name = "gpt2",
	.read_params = read_params,
	.record = record,
	.files = files,
};
