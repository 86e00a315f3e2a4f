/*
 * arch_lfm2.c: LFM2 (Liquid AI 2025, arXiv:2511.23404), dense and with experts.  Most layers have a short convolution of gated
 * columns instead of attention: y = Out(g * conv(b * x)), b | g | x = In(h).  The others have
 * grouped-query attention with QK norm and RoPE.  RMS norms before both and before a gated
 * feed-forward with SiLU; with experts in all layers but the first ones, which a sigmoid router selects with
 * a bias that is only for the selection.  The embedding is also the output matrix, and its file's name of the last norm is
 * token_embd_norm.
 */
#include <ingot/arch_files.h>
#include <ingot/layers.h>

struct lfm2 {
	struct ig_hparams p;
	struct ig_experts experts; /* moe.n_experts 0: none */
	struct ig_rope rope;
	uint32_t n_taps;
	uint32_t state;			     /* the cache group of the convolutions */
	uint32_t attends[IG_MAX_LAYERS];     /* KV heads; 0: a convolution */
	uint16_t group_layer[IG_MAX_LAYERS]; /* the layer's index among those of its kind */
};

/* Folders have one number of KV heads and a list of the layers with convolutions. */
static int read_kinds(const struct ig_hparam_source *s, struct lfm2 *m)
{
	uint32_t conv[IG_MAX_LAYERS];
	int rc = ig_hparam_layers(s, "attention.recurrent_layers", m->p.n_layers, conv);

	for (uint32_t i = 0; !rc && i < m->p.n_layers; i++)
		if (conv[i])
			m->attends[i] = 0;
	return rc == -ENOENT ? 0 : rc;
}

static int set_groups(const struct ig_hparam_source *s, struct lfm2 *m, struct ig_model_info *info)
{
	uint16_t n[2] = { 0, 0 };

	for (uint32_t i = 0; i < m->p.n_layers; i++)
		m->group_layer[i] = n[m->attends[i] != 0]++;
	if (!n[0] || !n[1])
		return ig_fail(
			s->err, -ENOTSUP,
			"%s: %u layers with attention and %u with convolutions: both are needed",
			s->arch, n[1], n[0]);
	ig_hparams_info(&m->p, 0, info);
	info->groups[0].n_layers = n[1];
	m->state = ig_hparams_state(info, n[0], 1, (m->n_taps - 1) * m->p.width);
	return 0;
}

static int read_model(const struct ig_hparam_source *s, uint32_t experts, struct lfm2 *m,
		      struct ig_model_info *info)
{
	const uint32_t sigmoid = 2;
	int rc;

	if ((rc = ig_hparams_read_hybrid(s, IG_RMS_NORM_EPS, &m->p, m->attends)) ||
	    (experts && (rc = ig_hparams_experts_shared(s, &m->p, sigmoid, &m->experts))) ||
	    (rc = ig_hparam_u32(s, "shortconv.l_cache", 2, IG_CONV1D_MAX_TAPS, NULL, &m->n_taps)) ||
	    (rc = ig_hparams_rope(s, &m->p, &m->rope)) || (rc = read_kinds(s, m)))
		return rc;
	m->experts.moe.normalise = 1;
	m->experts.moe.sum_epsilon = 1e-6f;
	return set_groups(s, m, info);
}

static int read_dense(const struct ig_host *host, const struct ig_meta *meta, void *params,
		      struct ig_model_info *info, struct ig_error *err)
{
	const struct ig_hparam_source s = { host, meta, "lfm2", err };
	int rc = ig_hparam_refuse_u32(&s, "expert_count", "experts");

	return rc ? rc : read_model(&s, 0, params, info);
}

static int read_moe(const struct ig_host *host, const struct ig_meta *meta, void *params,
		    struct ig_model_info *info, struct ig_error *err)
{
	const struct ig_hparam_source s = { host, meta, "lfm2moe", err };

	return read_model(&s, 1, params, info);
}

/* ---- the model ------------------------------------------------------------------------ */

/* Out(g * conv(b * x)) + residual */
static ig_value short_conv(struct ig_rec *r, const struct lfm2 *m, uint32_t layer, ig_value h,
			   ig_value residual)
{
	const int64_t width = m->p.width;
	const struct ig_conv1d_params conv = {
		.struct_size = sizeof conv,
		.n_taps = m->n_taps,
		.act = IG_ACT_NONE,
		.gated = 1,
		.group = m->state,
		.layer = m->group_layer[layer],
	};
	ig_weight in, taps, out;

	in = ig_rec_layer_weight(r, 3 * width, width, "blk.%u.shortconv.in_proj.weight", layer);
	taps = ig_rec_layer_weight(r, width, m->n_taps, "blk.%u.shortconv.conv.weight", layer);
	out = ig_rec_layer_weight(r, width, width, "blk.%u.shortconv.out_proj.weight", layer);
	h = ig_rec_linear(r, h, &in, 1, IG_NONE); /* [n_tokens, 3 * width] */
	h = ig_rec_conv1d(r, &conv, h, taps, IG_NONE);
	return ig_rec_linear(r, h, &out, 1, residual);
}

static int record(const struct ig_host *host, struct ig_graph *g, const struct ig_meta *meta,
		  const void *params)
{
	const struct lfm2 *m = params;
	const struct ig_hparams *p = &m->p;
	struct ig_rec r = { host, g };
	const struct ig_gqa attention = {
		.p = p,
		.rope = &m->rope,
		.table = ig_layer_rope_table(&r, &m->rope),
		.mode = IG_ROPE_HALVES,
		.flags = IG_GQA_HEAD_NORMS,
		.group_layers = m->group_layer,
	};
	ig_value x = ig_layer_embed(&r, p, 1), h;
	ig_weight norm;

	for (uint32_t layer = 0; layer < p->n_layers; layer++) {
		h = ig_layer_rms_norm(&r, p, "blk.%u.attn_norm.weight", layer, x);
		x = m->attends[layer] ? ig_layer_gqa(&r, &attention, layer, h, x) :
					short_conv(&r, m, layer, h, x);
		h = ig_layer_rms_norm(&r, p, "blk.%u.ffn_norm.weight", layer, x);
		x = m->experts.moe.n_experts ? ig_layer_experts(&r, p, &m->experts, layer, h, x) :
					       ig_layer_glu(&r, p, IG_ACT_SILU, layer, h, x);
	}
	norm = ig_rec_weight(&r, 1, p->width, "token_embd_norm.weight");
	return ig_layer_head(&r, p, ig_rec_rms_norm_last(&r, x, norm, p->norm_eps));
}

/* ---- folders of safetensors -------------------------------------------------------------- */

/* Keys that both have, with these defaults. */
#define LFM2_KEYS(width)                                                                           \
	IG_CONFIG_NUMBER("num_hidden_layers", "block_count", 32),                                  \
		IG_CONFIG_NUMBER("hidden_size", "embedding_length", width),                        \
		IG_CONFIG_NUMBER("num_attention_heads", "attention.head_count", 32),               \
		IG_CONFIG_NUMBER("max_position_embeddings", "context_length", 128000),             \
		{ "norm_eps", "attention.layer_norm_rms_epsilon", IG_CONFIG_F32, 0, 1e-5, NULL },  \
		IG_CONFIG_KV_HEADS(8), IG_CONFIG_NUMBER("conv_L_cache", "shortconv.l_cache", 3),   \
		{ "layer_types",	"attention.recurrent_layers", IG_CONFIG_LAYERS, 0, 0,      \
		  "full_attention|conv" },                                                         \
	{                                                                                          \
		"conv_bias", NULL, IG_CONFIG_FALSE                                                 \
	}
static const struct ig_config_key dense_keys[] = { LFM2_KEYS(2560) };
static const struct ig_config_key moe_keys[] = {
	LFM2_KEYS(2048),
	IG_CONFIG_NUMBER("intermediate_size", "feed_forward_length", 7168),
	IG_CONFIG_NUMBER("num_experts", "expert_count", 32),
	IG_CONFIG_NUMBER("num_experts_per_tok", "expert_used_count", 4),
	IG_CONFIG_NUMBER("moe_intermediate_size", "expert_feed_forward_length", 1792),
	IG_CONFIG_NUMBER("num_dense_layers", "leading_dense_block_count", 2),
	{ "routed_scaling_factor", "expert_weights_scale", IG_CONFIG_F32, 0, 1 },
	{ "norm_topk_prob", NULL, IG_CONFIG_TRUE, 0, 1 },
};

/* The feed-forward's width is rounded, unless the file says that it is not. */
static void put_width(const struct ig_config *c)
{
	uint32_t width = 12288, adjusts = 1, multiple = 256;
	float factor = 1;

	if (!c->u32(c, "intermediate_size", &width))
		c->u32(c, "block_ff_dim", &width);
	c->flag(c, "block_auto_adjust_ff_dim", &adjusts);
	c->u32(c, "block_multiple_of", &multiple);
	c->f32(c, "block_ffn_dim_multiplier", &factor);
	if (adjusts && multiple && multiple <= 65536 && width <= 1u << 24 && factor > 0 &&
	    factor < 64) {
		width = (uint32_t)((double)factor * (2 * width / 3));
		width = (width + multiple - 1) / multiple * multiple;
	}
	c->put_u32(c, "feed_forward_length", width);
}

#define LFM2_TENSORS                                                                               \
	{ "embed_tokens", "token_embd", 0 }, { "embedding_norm", "token_embd_norm", 0 },           \
		{ "lm_head", "output", 0 }, { "layers.%u.operator_norm", "blk.%u.attn_norm", 0 },  \
		{ "layers.%u.self_attn.q_proj", "blk.%u.attn_q", 0 },                              \
		{ "layers.%u.self_attn.k_proj", "blk.%u.attn_k", 0 },                              \
		{ "layers.%u.self_attn.v_proj", "blk.%u.attn_v", 0 },                              \
		{ "layers.%u.self_attn.out_proj", "blk.%u.attn_output", 0 },                       \
		{ "layers.%u.self_attn.q_layernorm", "blk.%u.attn_q_norm", 0 },                    \
		{ "layers.%u.self_attn.k_layernorm", "blk.%u.attn_k_norm", 0 },                    \
		{ "layers.%u.conv.in_proj", "blk.%u.shortconv.in_proj", 0 },                       \
		{ "layers.%u.conv.conv", "blk.%u.shortconv.conv", IG_TENSOR_CONV },                \
		{ "layers.%u.conv.out_proj", "blk.%u.shortconv.out_proj", 0 },                     \
		{ "layers.%u.ffn_norm", "blk.%u.ffn_norm", 0 },                                    \
		{ "layers.%u.feed_forward.w1", "blk.%u.ffn_gate", 0 },                             \
		{ "layers.%u.feed_forward.w3", "blk.%u.ffn_up", 0 },                               \
		{ "layers.%u.feed_forward.w2", "blk.%u.ffn_down", 0 }
static const struct ig_tensor_name dense_names[] = { LFM2_TENSORS };
static const struct ig_tensor_name moe_names[] = {
	LFM2_TENSORS,
	/* as MLX has the dense layers */
	{ "layers.%u.feed_forward.gate_proj", "blk.%u.ffn_gate", 0 },
	{ "layers.%u.feed_forward.up_proj", "blk.%u.ffn_up", 0 },
	{ "layers.%u.feed_forward.down_proj", "blk.%u.ffn_down", 0 },
	IG_TENSORS_EXPERTS("feed_forward", "w1", "w3", "w2"),
	{ "layers.%u.feed_forward.expert_bias", "blk.%u.exp_probs_b.bias", IG_TENSOR_NAMED },
};
static const struct ig_arch_files dense_files = {
	.struct_size = sizeof dense_files,
	.model_type = "lfm2",
	.tied = 1,
	IG_CONFIG_KEYS(dense_keys),
	IG_TENSOR_NAMES(dense_names),
	.rope_theta = 1e6,
	.config = put_width,
};
static const struct ig_arch_files moe_files = {
	.struct_size = sizeof moe_files,
	.model_type = "lfm2_moe",
	.tied = 1,
	IG_CONFIG_KEYS(moe_keys),
	IG_TENSOR_NAMES(moe_names),
	.rope_theta = 1e6,
};
static const struct ig_arch_files *const dense_folders[] = { &dense_files, NULL };
static const struct ig_arch_files *const moe_folders[] = { &moe_files, NULL };

const struct ig_arch ig_arch_lfm2 = {
	.struct_size = sizeof(struct ig_arch),
	.params_size = sizeof(struct lfm2),
	.name = "lfm2",
	.read_params = read_dense,
	.record = record,
	.files = dense_folders,
};
const struct ig_arch ig_arch_lfm2moe = {
	.struct_size = sizeof(struct ig_arch),
	.params_size = sizeof(struct lfm2),
	.name = "lfm2moe",
	.read_params = read_moe,
	.record = record,
	.files = moe_folders,
};
