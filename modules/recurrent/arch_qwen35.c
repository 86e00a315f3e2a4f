/*
 * arch_qwen35.c: the text models of Qwen3-Next (Qwen Team 2025) and of Qwen 3.5 and later (Qwen Team 2026),
 * dense and with experts.  Three of four layers have a gated
 * delta net (Yang, Kautz and Hatamizadeh 2024, arXiv:2412.06464) instead of attention: q | k | v pass a
 * short convolution and SiLU, the delta rule keeps a matrix for each head of values, and its output is
 * normalised by head and gated.  The others have grouped-query attention with QK norm, RoPE of a
 * part of each head, and an output gate.  RMS norms before both and before a gated feed-forward, or
 * experts, of which a softmax router selects some, beside a shared one with a gate.
 * In GGUF head h of values has the head h % n_k_heads of keys; of Qwen3-Next h / (n_v_heads / n_k_heads),
 * whose betas and alphas are one matrix, by heads of keys.  The block behind the last layer is a head that
 * guesses the token after the next one (multi-token prediction, DeepSeek-AI 2024, arXiv:2412.19437): a layer with attention.
 */
#include <ingot/arch_files.h>
#include <ingot/layers.h>

#include <stdbool.h>

struct qwen35 {
	struct ig_hparams p;
	struct ig_experts experts; /* moe.n_experts 0: none */
	struct ig_rope rope;
	struct ig_gated_delta_params delta;
	uint32_t n_taps;
	const char *dt_name;		   /* of the biases of steps; Ollama's files have another */
	uint32_t conv_state;		   /* the cache group of the convolutions */
	uint32_t recurrent[IG_MAX_LAYERS]; /* 1: a gated delta net */
	uint16_t group_layer[IG_MAX_LAYERS + 1]; /* the layer's index among those of its kind */
};

/* A list, or no KV heads, as Ollama's files have it, or every n-th layer has attention. */
static int read_kinds(const struct ig_hparam_source *s, struct qwen35 *m, const uint32_t *kv)
{
	bool by_heads = false;
	const uint32_t fourth = 4;
	uint32_t period;
	int rc = ig_hparam_layers(s, "attention.recurrent_layers", m->p.n_layers, m->recurrent);

	if (rc != -ENOENT)
		return rc;
	rc = ig_hparam_u32(s, "full_attention_interval", 1, UINT32_MAX, &fourth, &period);
	for (uint32_t i = 0; i < m->p.n_layers; i++)
		by_heads |= !kv[i];
	for (uint32_t i = 0; !rc && i < m->p.n_layers; i++)
		m->recurrent[i] = by_heads ? !kv[i] : (i + 1) % period != 0;
	return rc;
}

static int read_delta(const struct ig_hparam_source *s, struct qwen35 *m, uint32_t by_key)
{
	struct ig_gated_delta_params *d = &m->delta;
	uint32_t inner;
	int rc;

	*d = (struct ig_gated_delta_params){
		.struct_size = sizeof *d, .tiled = !by_key, .norm_eps = 1e-6f, .by_key = by_key
	};
	if ((rc = ig_hparam_u32(s, "ssm.conv_kernel", 2, IG_CONV1D_MAX_TAPS, NULL, &m->n_taps)) ||
	    (rc = ig_hparam_u32(s, "ssm.state_size", 1, IG_GATED_DELTA_MAX_DIM, NULL, &d->k_dim)) ||
	    (rc = ig_hparam_u32(s, "ssm.group_count", 1, IG_GATED_DELTA_MAX_HEADS, NULL,
				&d->n_k_heads)) ||
	    (rc = ig_hparam_u32(s, "ssm.time_step_rank", 1, IG_GATED_DELTA_MAX_HEADS, NULL,
				&d->n_v_heads)) ||
	    (rc = ig_hparam_u32(s, "ssm.inner_size", 1, 1u << 20, NULL, &inner)))
		return rc;
	if (d->n_v_heads % d->n_k_heads || inner % d->n_v_heads)
		return ig_fail(s->err, -EINVAL,
			       "%s.ssm: %u heads of keys, %u of values, and %u values do not fit",
			       s->arch, d->n_k_heads, d->n_v_heads, inner);
	d->v_dim = inner / d->n_v_heads;
	d->part_heads = ig_hparams_part_heads(d->n_v_heads, d->k_dim * d->v_dim);
	return 0;
}

static int set_groups(const struct ig_hparam_source *s, struct qwen35 *m,
		      struct ig_model_info *info)
{
	struct ig_gated_delta_params *d = &m->delta;
	uint16_t n[2] = { 0, 0 };

	for (uint32_t i = 0; i < m->p.n_layers; i++)
		m->group_layer[i] = n[m->recurrent[i]]++;
	m->group_layer[m->p.n_layers] = n[0]; /* of the head */
	if (!n[0] || !n[1])
		return ig_fail(s->err, -ENOTSUP,
			       "%s: %u layers with attention and %u without: both are needed",
			       s->arch, n[0], n[1]);
	ig_hparams_info(&m->p, 0, info);
	info->groups[0].n_layers = n[0];
	info->n_mtp_layers = ig_hparams_has_mtp(s, m->p.n_layers);
	d->group = ig_hparams_state(info, n[1], d->n_v_heads / d->part_heads,
				    d->part_heads * d->k_dim * d->v_dim);
	m->conv_state = ig_hparams_state(
		info, n[1], 1,
		(m->n_taps - 1) * (2 * d->n_k_heads * d->k_dim + d->n_v_heads * d->v_dim));
	return 0;
}

/* by_key: of Qwen3-Next, heads of values lie by their heads of keys. */
static int read_model(const struct ig_hparam_source *s, uint32_t experts, uint32_t by_key,
		      struct qwen35 *m, struct ig_model_info *info)
{
	const uint32_t softmax = 1;
	uint32_t kv[IG_MAX_LAYERS];
	int rc = experts ? 0 : ig_hparam_refuse_u32(s, "expert_count", "experts");

	if (!rc)
		rc = ig_hparams_read_hybrid(s, IG_RMS_NORM_EPS, &m->p, kv);
	if (!rc && experts)
		rc = ig_hparams_experts_shared(s, &m->p, softmax, &m->experts);
	m->experts.moe.normalise = 1;
	m->dt_name = s->host->meta_has_tensor(s->meta, "blk.0.ssm_dt") ? "blk.%u.ssm_dt" :
									 "blk.%u.ssm_dt.bias";
	if (rc || (rc = ig_hparams_rope(s, &m->p, &m->rope)) ||
	    (rc = ig_hparams_rope_sections(s, 1, &m->rope)) || (rc = read_kinds(s, m, kv)) ||
	    (rc = read_delta(s, m, by_key)))
		return rc;
	return set_groups(s, m, info);
}

static int read_dense(const struct ig_host *host, const struct ig_meta *meta, void *params,
		      struct ig_model_info *info, struct ig_error *err)
{
	const struct ig_hparam_source s = { host, meta, "qwen35", err };

	return read_model(&s, 0, 0, params, info);
}

static int read_moe(const struct ig_host *host, const struct ig_meta *meta, void *params,
		    struct ig_model_info *info, struct ig_error *err)
{
	const struct ig_hparam_source s = { host, meta, "qwen35moe", err };

	return read_model(&s, 1, 0, params, info);
}

static int read_next(const struct ig_host *host, const struct ig_meta *meta, void *params,
		     struct ig_model_info *info, struct ig_error *err)
{
	const struct ig_hparam_source s = { host, meta, "qwen3next", err };
	int rc = ig_hparam_refuse_tensor(&s, "blk.0.ssm_in.weight",
					 "q, k, v and z in one matrix (convert the model anew)");

	return rc ? rc : read_model(&s, 1, 1, params, info);
}

/* ---- the model ------------------------------------------------------------------------ */

/* Out(rms(delta(silu(conv(q | k | v)), beta, alpha)) * silu(z)) + residual */
static ig_value delta_net(struct ig_rec *r, const struct qwen35 *m, uint32_t layer, ig_value h,
			  ig_value residual)
{
	struct ig_gated_delta_params delta = m->delta;
	const int64_t n = m->p.width, heads = delta.n_v_heads, v = heads * delta.v_dim;
	const int64_t qkv = 2 * (int64_t)delta.n_k_heads * delta.k_dim + v;
	const struct ig_conv1d_params conv = {
		.struct_size = sizeof conv,
		.n_taps = m->n_taps,
		.act = IG_ACT_SILU,
		.group = m->conv_state,
		.layer = m->group_layer[layer],
	};
	const struct ig_norm_gated_params norm = { sizeof norm, delta.n_v_heads, m->p.norm_eps, 0 };
	ig_weight in = ig_rec_layer_weight(r, qkv, n, "blk.%u.attn_qkv.weight", layer);
	ig_weight gate = ig_rec_layer_weight(r, v, n, "blk.%u.attn_gate.weight", layer);
	ig_weight taps = ig_rec_layer_weight(r, qkv, m->n_taps, "blk.%u.ssm_conv1d.weight", layer);
	ig_weight w = ig_rec_layer_weight(r, 1, delta.v_dim, "blk.%u.ssm_norm.weight", layer);
	ig_weight out = ig_rec_layer_weight(r, n, v, "blk.%u.ssm_out.weight", layer);
	const ig_weight steps[2] = {
		ig_rec_layer_weight(r, 1, heads, m->dt_name, layer),
		ig_rec_layer_weight(r, 1, heads, "blk.%u.ssm_a", layer),
	};
	ig_weight ba[2];
	ig_value y[2], z;

	if (delta.by_key) {
		ba[0] = ig_rec_layer_weight(r, 2 * heads, n, "blk.%u.ssm_ba.weight", layer);
	} else {
		ba[0] = ig_rec_layer_weight(r, heads, n, "blk.%u.ssm_beta.weight", layer);
		ba[1] = ig_rec_layer_weight(r, heads, n, "blk.%u.ssm_alpha.weight", layer);
	}
	delta.layer = m->group_layer[layer];
	y[0] = ig_rec_linear(r, h, &in, 1, IG_NONE);
	z = ig_rec_linear(r, h, &gate, 1, IG_NONE);
	y[1] = ig_rec_linear(r, h, ba, delta.by_key ? 1 : 2, IG_NONE);
	y[0] = ig_rec_conv1d(r, &conv, y[0], taps, IG_NONE);
	y[0] = ig_rec_op(r, "gated_delta", &delta, y, 2, steps, 2); /* [n_tokens, v] */
	y[1] = z;
	y[0] = ig_rec_op(r, "norm_gated", &norm, y, 2, &w, 1);
	return ig_rec_linear(r, y[0], &out, 1, residual);
}

static struct ig_gqa attention_of(struct ig_rec *r, const struct qwen35 *m)
{
	return (struct ig_gqa){
		.p = &m->p,
		.rope = &m->rope,
		.table = ig_layer_rope_table(r, &m->rope),
		.mode = IG_ROPE_HALVES,
		.flags = IG_GQA_HEAD_NORMS | IG_GQA_GATE_IN_Q,
		.gate = IG_GATE_SIGMOID,
		.group_layers = m->group_layer,
	};
}

/* A layer's output of its input x. */
static ig_value record_layer(struct ig_rec *r, const struct qwen35 *m,
			     const struct ig_gqa *attention, uint32_t layer, ig_value x)
{
	const bool recurrent = layer < m->p.n_layers && m->recurrent[layer];
	ig_value h = ig_layer_rms_norm(r, &m->p, "blk.%u.attn_norm.weight", layer, x);

	x = recurrent ? delta_net(r, m, layer, h, x) : ig_layer_gqa(r, attention, layer, h, x);
	h = ig_layer_rms_norm(r, &m->p, "blk.%u.post_attention_norm.weight", layer, x);
	return m->experts.moe.n_experts ? ig_layer_experts(r, &m->p, &m->experts, layer, h, x) :
					  ig_layer_glu(r, &m->p, IG_ACT_SILU, layer, h, x);
}

static int record(const struct ig_host *host, struct ig_graph *g, const struct ig_meta *meta,
		  const void *params)
{
	const struct qwen35 *m = params;
	struct ig_rec r = { host, g };
	const struct ig_gqa attention = attention_of(&r, m);
	ig_value x = ig_layer_embed(&r, &m->p, 1);

	for (uint32_t layer = 0; layer < m->p.n_layers; layer++)
		x = record_layer(&r, m, &attention, layer, x);
	return ig_layer_norm_head(&r, &m->p, x);
}

static int record_mtp(const struct ig_host *host, struct ig_graph *g, const struct ig_meta *meta,
		      const void *params, ig_value x)
{
	const struct qwen35 *m = params;
	struct ig_rec r = { host, g };
	const struct ig_gqa attention = attention_of(&r, m);

	x = ig_layer_mtp_input(&r, &m->p, meta, x);
	return ig_layer_mtp_head(&r, &m->p, meta,
				 record_layer(&r, m, &attention, m->p.n_layers, x));
}

/* ---- folders of safetensors -------------------------------------------------------------- */

/* Keys and tensors that all have; eps is that of all norms. */
#define DELTA_KEYS                                                                                 \
	IG_CONFIG_SILU, IG_CONFIG_NUMBER("linear_conv_kernel_dim", "ssm.conv_kernel", 4),          \
		IG_CONFIG_NUMBER("linear_key_head_dim", "ssm.state_size", 128),                    \
		IG_CONFIG_NUMBER("linear_num_key_heads", "ssm.group_count", 16),                   \
		IG_CONFIG_NUMBER("linear_num_value_heads", "ssm.time_step_rank", 32),              \
		IG_CONFIG_NUMBER("full_attention_interval", "full_attention_interval", 4),         \
		{ "layer_types",                                                                   \
		  "attention.recurrent_layers",                                                    \
		  IG_CONFIG_LAYERS,                                                                \
		  0,                                                                               \
		  0,                                                                               \
		  "full_attention|linear_attention" },                                             \
		{ "attention_bias", NULL, IG_CONFIG_FALSE },                                       \
		{ "attn_output_gate", NULL, IG_CONFIG_TRUE, 0, 1 }
#define EXPERT_KEYS(n, used)                                                                       \
	IG_CONFIG_NUMBER("num_experts", "expert_count", n),                                        \
		IG_CONFIG_NUMBER("num_experts_per_tok", "expert_used_count", used),                \
		IG_CONFIG_NUMBER("moe_intermediate_size", "expert_feed_forward_length", 512),      \
		IG_CONFIG_NUMBER("shared_expert_intermediate_size",                                \
				 "expert_shared_feed_forward_length", 512),                        \
		{ "norm_topk_prob", NULL, IG_CONFIG_TRUE, 0, 1 },                                  \
		{ "mlp_only_layers", NULL, IG_CONFIG_REFUSED },                                    \
		{ "decoder_sparse_step", NULL, IG_CONFIG_ONLY, 0, 1 }

static const struct ig_config_key dense_keys[] = {
	IG_CONFIG_DECODER(32, 4096, 12288, 16, 32768, 1e-6),
	IG_CONFIG_KV_HEADS(4),
	DELTA_KEYS,
};
/* All layers have experts: there is no other feed-forward, whose width some files tell. */
static const struct ig_config_key moe_keys[] = {
	IG_CONFIG_NUMBER("num_hidden_layers", "block_count", 40),
	IG_CONFIG_NUMBER("hidden_size", "embedding_length", 2048),
	IG_CONFIG_NUMBER("num_attention_heads", "attention.head_count", 16),
	IG_CONFIG_NUMBER("max_position_embeddings", "context_length", 32768),
	{ "rms_norm_eps", "attention.layer_norm_rms_epsilon", IG_CONFIG_F32, 0, 1e-6, NULL },
	IG_CONFIG_KV_HEADS(2),
	DELTA_KEYS,
	EXPERT_KEYS(256, 8),
};
static const struct ig_config_key next_keys[] = {
	IG_CONFIG_DECODER(48, 2048, 5632, 16, 32768, 1e-6),
	IG_CONFIG_KV_HEADS(2),
	DELTA_KEYS,
	EXPERT_KEYS(512, 10),
};

static void put_values(const struct ig_config *c)
{
	const uint32_t heads = c->get_u32(c, "ssm.time_step_rank");
	uint32_t dim = 128;

	c->u32(c, "linear_value_head_dim", &dim);
	if (!heads || heads > IG_GATED_DELTA_MAX_HEADS || dim > IG_GATED_DELTA_MAX_DIM)
		c->refuse(c, -ENOTSUP, "linear_value_head_dim", "is %u, of %u heads: not supported",
			  dim, heads);
	else
		c->put_u32(c, "ssm.inner_size", heads * dim);
}

/* Norms are stored as w, but for that of the delta net; GGUF has 1 + w. */
#define COMMON_TENSORS                                                                             \
	{ "embed_tokens", "token_embd", 0 }, { "norm", "output_norm", IG_TENSOR_PLUS_ONE },        \
		{ "lm_head", "output", 0 },                                                        \
		{ "layers.%u.input_layernorm", "blk.%u.attn_norm", IG_TENSOR_PLUS_ONE },           \
		{ "layers.%u.self_attn.q_proj", "blk.%u.attn_q", 0 },                              \
		{ "layers.%u.self_attn.k_proj", "blk.%u.attn_k", 0 },                              \
		{ "layers.%u.self_attn.v_proj", "blk.%u.attn_v", 0 },                              \
		{ "layers.%u.self_attn.o_proj", "blk.%u.attn_output", 0 },                         \
		IG_TENSORS_QK_NORM(IG_TENSOR_PLUS_ONE),                                            \
		{ "layers.%u.linear_attn.norm", "blk.%u.ssm_norm", 0 },                            \
		{ "mtp.fc", "blk.%u.nextn.eh_proj", IG_TENSOR_NEXT },                              \
		{ "mtp.pre_fc_norm_embedding", "blk.%u.nextn.enorm",                               \
		  IG_TENSOR_NEXT | IG_TENSOR_PLUS_ONE },                                           \
		{ "mtp.pre_fc_norm_hidden", "blk.%u.nextn.hnorm",                                  \
		  IG_TENSOR_NEXT | IG_TENSOR_PLUS_ONE },                                           \
		{ "mtp.norm", "blk.%u.nextn.shared_head_norm",                                     \
		  IG_TENSOR_NEXT | IG_TENSOR_PLUS_ONE },                                           \
		{ "mtp.embed_tokens", "blk.%u.nextn.embed_tokens", IG_TENSOR_NEXT },               \
	{                                                                                          \
		"layers.%u.post_attention_layernorm", "blk.%u.post_attention_norm",                \
			IG_TENSOR_PLUS_ONE                                                         \
	}
/* Of Qwen 3.5: heads of values are reordered; of Qwen3-Next they lie by heads of keys in both. */
#define TILED_TENSORS                                                                              \
	{ "layers.%u.linear_attn.in_proj_qkv", "blk.%u.attn_qkv", IG_TENSOR_TILED },               \
		{ "layers.%u.linear_attn.in_proj_z", "blk.%u.attn_gate", IG_TENSOR_TILED },        \
		{ "layers.%u.linear_attn.in_proj_b", "blk.%u.ssm_beta", IG_TENSOR_TILED },         \
		{ "layers.%u.linear_attn.in_proj_a", "blk.%u.ssm_alpha", IG_TENSOR_TILED },        \
		{ "layers.%u.linear_attn.conv1d", "blk.%u.ssm_conv1d",                             \
		  IG_TENSOR_CONV | IG_TENSOR_TILED },                                              \
		{ "layers.%u.linear_attn.dt_bias", "blk.%u.ssm_dt.bias",                           \
		  IG_TENSOR_NAMED | IG_TENSOR_TILED },                                             \
		{ "layers.%u.linear_attn.A_log", "blk.%u.ssm_a",                                   \
		  IG_TENSOR_NAMED | IG_TENSOR_TILED | IG_TENSOR_NEGATIVE_EXP },                    \
	{                                                                                          \
		"layers.%u.linear_attn.out_proj", "blk.%u.ssm_out", IG_TENSOR_TILED_COLUMNS        \
	}
#define EXPERT_TENSORS                                                                             \
	IG_TENSORS_EXPERTS("mlp", "gate_proj", "up_proj", "down_proj"),                            \
		IG_TENSORS_SHARED_EXPERT("mlp.shared_expert"),                                     \
	{                                                                                          \
		"layers.%u.mlp.shared_expert_gate", "blk.%u.ffn_gate_inp_shexp", IG_TENSOR_F32     \
	}

static const struct ig_tensor_name dense_names[] = { COMMON_TENSORS, TILED_TENSORS,
						     IG_TENSORS_GLU };
static const struct ig_tensor_name moe_names[] = { COMMON_TENSORS, TILED_TENSORS, EXPERT_TENSORS };
static const struct ig_tensor_name next_names[] = {
	COMMON_TENSORS,
	EXPERT_TENSORS,
	{ "layers.%u.linear_attn.in_proj_qkvz", "blk.%u.attn_qkv|blk.%u.attn_gate",
	  IG_TENSOR_TWO | IG_TENSOR_BY_KEY },
	{ "layers.%u.linear_attn.in_proj_ba", "blk.%u.ssm_ba", 0 },
	{ "layers.%u.linear_attn.conv1d", "blk.%u.ssm_conv1d", IG_TENSOR_CONV },
	{ "layers.%u.linear_attn.dt_bias", "blk.%u.ssm_dt.bias", IG_TENSOR_NAMED },
	{ "layers.%u.linear_attn.A_log", "blk.%u.ssm_a", IG_TENSOR_NAMED | IG_TENSOR_NEGATIVE_EXP },
	{ "layers.%u.linear_attn.out_proj", "blk.%u.ssm_out", 0 },
};

/* What the folders of all have in common. */
#define QWEN_FOLDER                                                                                \
	.struct_size = sizeof(struct ig_arch_files), .rope_theta = 1e7, .head_dim = 256,           \
	.rotary_percent = 25, .config = put_values
static const struct ig_arch_files dense_files = {
	QWEN_FOLDER,
	.model_type = "qwen3_5_text",
	.outer_type = "qwen3_5",
	IG_CONFIG_KEYS(dense_keys),
	IG_TENSOR_NAMES(dense_names),
};
static const struct ig_arch_files moe_files = {
	QWEN_FOLDER,
	.model_type = "qwen3_5_moe_text",
	.outer_type = "qwen3_5_moe",
	IG_CONFIG_KEYS(moe_keys),
	IG_TENSOR_NAMES(moe_names),
};
static const struct ig_arch_files next_files = {
	QWEN_FOLDER,
	.model_type = "qwen3_next",
	IG_CONFIG_KEYS(next_keys),
	IG_TENSOR_NAMES(next_names),
};
static const struct ig_arch_files *const dense_folders[] = { &dense_files, NULL };
static const struct ig_arch_files *const moe_folders[] = { &moe_files, NULL };
static const struct ig_arch_files *const next_folders[] = { &next_files, NULL };

const struct ig_arch ig_arch_qwen35 = {
	.struct_size = sizeof(struct ig_arch),
	.params_size = sizeof(struct qwen35),
	.name = "qwen35",
	.read_params = read_dense,
	.record = record,
	.files = dense_folders,
	.record_mtp = record_mtp,
};
const struct ig_arch ig_arch_qwen35moe = {
	.struct_size = sizeof(struct ig_arch),
	.params_size = sizeof(struct qwen35),
	.name = "qwen35moe",
	.read_params = read_moe,
	.record = record,
	.files = moe_folders,
	.record_mtp = record_mtp,
};
const struct ig_arch ig_arch_qwen3next = {
	.struct_size = sizeof(struct ig_arch),
	.params_size = sizeof(struct qwen35),
	.name = "qwen3next",
	.read_params = read_next,
	.record = record,
	.files = next_folders,
	.record_mtp = record_mtp,
};
