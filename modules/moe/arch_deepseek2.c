/*
 * arch_deepseek2.c: DeepSeek V2 and V3 (DeepSeek-AI 2024, arXiv:2405.04434 and 2412.19437), Kimi K2 (Kimi Team
 * 2025, arXiv:2507.20534) and GLM-4.7-Flash.  Multi-head latent attention: keys and values of all heads are
 * products with one normalised latent of each token, which is what the cache has, and a rotated key that heads
 * share.  It is computed absorbed: a query is multiplied with its head's matrix of keys, attends to the latents,
 * and what it gets is multiplied with the head's matrix of values.  The first layers are dense, the others have
 * experts, in V3 and its kin selected by sigmoids with a bias that is only for the selection, in groups, and a
 * shared expert.  The block behind the last layer is a head that guesses the token after the next one (multi-token
 * prediction, section 2.2 of 2412.19437), with experts.
 */
#include <ingot/arch_files.h>
#include <ingot/layers.h>

/* Of the latents' norms, whatever the file says of others: in the authors' code the default of its class. */
#define LATENT_EPS 1e-6f

struct deepseek2 {
	struct ig_hparams p; /* head_dim: of a query; n_kv_heads is not used */
	struct ig_experts experts;
	struct ig_rope rope; /* of the last dimensions of a query */
	uint32_t n_q_latent; /* 0: queries are products of the row itself */
	uint32_t n_latent;   /* of keys and values */
	uint32_t n_values;   /* of a head */
	float scale;	     /* of q . k */
};

/* The sizes of heads.  Files from before April 2025 have the matrices of keys and values as one, which the
 * absorbed product can't use. */
static int read_heads(const struct ig_hparam_source *s, struct deepseek2 *m)
{
	const uint32_t none = 0;
	struct ig_hparams *p = &m->p;
	uint32_t n_key, n_value;
	int rc;

	if (s->host->meta_has_tensor(s->meta, "blk.0.attn_kv_b.weight") &&
	    !s->host->meta_has_tensor(s->meta, "blk.0.attn_k_b.weight"))
		return ig_fail(
			s->err, -ENOTSUP,
			"tensor blk.0.attn_kv_b.weight: the file has attn_k_b and attn_v_b as one "
			"tensor, as older converters wrote it: not supported; convert the model "
			"anew");
	if ((rc = ig_hparam_u32(s, "attention.head_count", 1, IG_ATTENTION_MAX_HEADS, NULL,
				&p->n_heads)) ||
	    (rc = ig_hparam_u32(s, "attention.kv_lora_rank", 16, IG_ATTENTION_MAX_HEAD_DIM, NULL,
				&m->n_latent)) ||
	    (rc = ig_hparam_u32(s, "attention.q_lora_rank", 0, 1u << 16, &none, &m->n_q_latent)) ||
	    (rc = ig_hparam_u32(s, "attention.key_length_mla", 16, IG_ATTENTION_MAX_HEAD_DIM, NULL,
				&p->head_dim)) ||
	    (rc = ig_hparam_u32(s, "attention.value_length_mla", 16, 1u << 14, NULL,
				&m->n_values)) ||
	    (rc = ig_hparam_u32(s, "attention.key_length", 0, UINT32_MAX, NULL, &n_key)) ||
	    (rc = ig_hparam_u32(s, "attention.value_length", 0, UINT32_MAX, NULL, &n_value)) ||
	    (rc = ig_hparams_rope(s, p, &m->rope)))
		return rc;
	if (m->n_latent % 16 || m->n_values % 16 || m->rope.table.n_pairs % 4 ||
	    2 * m->rope.table.n_pairs >= p->head_dim || p->head_dim % 8 ||
	    m->n_latent + 2 * m->rope.table.n_pairs > IG_ATTENTION_MAX_HEAD_DIM)
		return ig_fail(
			s->err, -ENOTSUP,
			"%s: heads of %u dimensions, of which %u rotate, with values of %u and a "
			"latent of %u are not supported",
			s->arch, p->head_dim, 2 * m->rope.table.n_pairs, m->n_values, m->n_latent);
	if (n_key != m->n_latent + 2 * m->rope.table.n_pairs || n_value != m->n_latent)
		return ig_fail(
			s->err, -EINVAL,
			"%s.attention.key_length %u and %s.attention.value_length %u are not "
			"those of a latent of %u and %u rotated dimensions",
			s->arch, n_key, s->arch, n_value, m->n_latent, 2 * m->rope.table.n_pairs);
	return 0;
}

/* YaRN in these models multiplies q . k by (yarn_log_multiplier ln(factor) + 1)^2, and cosines and sines by
 * nothing. */
static int read_scale(const struct ig_hparam_source *s, struct deepseek2 *m)
{
	const float none = 0;
	float log_mul = 0;
	double by;
	int rc = ig_hparam_refuse_f32(s, "attention.temperature_scale",
				      "queries that are scaled by position");

	if (!rc)
		rc = ig_hparam_f32(s, "rope.scaling.yarn_log_multiplier", 0, 1e3f, &none, &log_mul);
	m->scale = 1 / sqrtf((float)m->p.head_dim);
	if (rc || log_mul == 0 || m->rope.table.ramp_last == 0)
		return rc;
	by = (double)log_mul * log(1 / (double)m->rope.table.freq_scale) + 1;
	m->scale = (float)(by * by / sqrt((double)m->p.head_dim));
	m->rope.table.magnitude = 1;
	return ig_hparam_refuse_f32(s, "rope.scaling.attn_factor",
				    "a factor of cosines and sines besides yarn_log_multiplier");
}

/* Files without the keys: of V2 the router is a softmax, of GLM-4.7-Flash sigmoids; older ones of V3 have no
 * groups. */
static int read_experts(const struct ig_hparam_source *s, struct deepseek2 *m)
{
	const uint32_t softmax = 1, sigmoid = 2;
	struct ig_experts *e = &m->experts;
	const struct ig_hparam_key groups = ig_hparam_key(s, "expert_group_count");
	struct ig_error ignored;
	uint32_t n_groups;
	int rc = ig_hparams_experts_shared(
		s, &m->p, m->p.n_layers == 47 && m->p.n_vocab == 154880 ? sigmoid : softmax, e);

	if (rc)
		return rc;
	e->moe.sum_epsilon = 1e-20f;
	if (e->moe.gating == IG_GATING_SIGMOID && e->moe.n_experts == 256 &&
	    s->host->meta_u32(s->meta, groups.text, &n_groups, &ignored) == -ENOENT) {
		e->moe.n_groups = 8;
		e->moe.n_groups_used = 4;
	}
	return 0;
}

static int read_params(const struct ig_host *host, const struct ig_meta *meta, void *params,
		       struct ig_model_info *info, struct ig_error *err)
{
	const struct ig_hparam_source s = { host, meta, "deepseek2", err };
	struct deepseek2 *m = params;
	struct ig_hparams *p = &m->p;
	int rc;

	if ((rc = ig_hparams_read_sizes(&s, p)) ||
	    (rc = ig_hparam_u32(&s, "feed_forward_length", 8, 1u << 20, NULL, &p->n_ff)) ||
	    (rc = ig_hparam_f32(&s, IG_RMS_NORM_EPS, 0, 1, NULL, &p->norm_eps)) ||
	    (rc = read_heads(&s, m)) || (rc = read_scale(&s, m)) || (rc = read_experts(&s, m)))
		return rc;
	ig_hparams_info(p, 0, info);
	info->groups[0].n_kv_heads = 1;
	info->groups[0].head_dim = m->n_latent + 2 * m->rope.table.n_pairs;
	info->groups[0].kind = IG_CACHE_K;
	info->n_mtp_layers = ig_hparams_has_mtp(&s, p->n_layers);
	return 0;
}

/* ---- the model ------------------------------------------------------------------------ */

/* Queries of all heads: [n_tokens, n_heads * head_dim]. */
static ig_value record_queries(struct ig_rec *r, const struct deepseek2 *m, uint32_t layer,
			       ig_value h)
{
	const int64_t n = (int64_t)m->p.n_heads * m->p.head_dim;
	ig_weight w, norm;

	if (!m->n_q_latent) {
		w = ig_rec_layer_weight(r, n, m->p.width, "blk.%u.attn_q.weight", layer);
		return ig_rec_linear(r, h, &w, 1, IG_NONE);
	}
	w = ig_rec_layer_weight(r, m->n_q_latent, m->p.width, "blk.%u.attn_q_a.weight", layer);
	norm = ig_rec_layer_weight(r, 1, m->n_q_latent, "blk.%u.attn_q_a_norm.weight", layer);
	h = ig_rec_rms_norm(r, ig_rec_linear(r, h, &w, 1, IG_NONE), norm, LATENT_EPS);
	w = ig_rec_layer_weight(r, n, m->n_q_latent, "blk.%u.attn_q_b.weight", layer);
	return ig_rec_linear(r, h, &w, 1, IG_NONE);
}

/* Out(W_v attention(W_k q, latents)) + x. */
static ig_value record_attention(struct ig_rec *r, const struct deepseek2 *m, uint32_t layer,
				 ig_value table, ig_value h, ig_value x)
{
	const struct ig_hparams *p = &m->p;
	const uint32_t n_rotated = 2 * m->rope.table.n_pairs, n_key = m->n_latent + n_rotated;
	const struct ig_rope_latent_params rope = {
		.struct_size = sizeof rope,
		.n_heads = p->n_heads,
		.head_dim = p->head_dim,
		.n_latent = m->n_latent,
		.n_pairs = m->rope.table.n_pairs,
		.mode = IG_ROPE_PAIRS,
		.layer = layer,
		.norm_eps = LATENT_EPS,
	};
	const struct ig_attention_params attention = {
		.struct_size = sizeof attention,
		.n_heads = p->n_heads,
		.n_kv_heads = 1,
		.head_dim = n_key,
		.layer = layer,
		.scale = m->scale,
		.v_dim = m->n_latent,
	};
	ig_weight kv_a =
		ig_rec_layer_weight(r, n_key, p->width, "blk.%u.attn_kv_a_mqa.weight", layer);
	ig_weight norm =
		ig_rec_layer_weight(r, 1, m->n_latent, "blk.%u.attn_kv_a_norm.weight", layer);
	ig_weight k_b =
		ig_rec_layer_weight(r, (int64_t)p->n_heads * m->n_latent, p->head_dim - n_rotated,
				    "blk.%u.attn_k_b.weight", layer);
	ig_weight v_b = ig_rec_layer_weight(r, (int64_t)p->n_heads * m->n_values, m->n_latent,
					    "blk.%u.attn_v_b.weight", layer);
	ig_weight out = ig_rec_layer_weight(r, p->width, (int64_t)p->n_heads * m->n_values,
					    "blk.%u.attn_output.weight", layer);
	const ig_value kv = ig_rec_linear(r, h, &kv_a, 1, IG_NONE); /* [n_tokens, n_key] */
	ig_value q = record_queries(r, m, layer, h);

	q = ig_rec_rope_latent(r, &rope, q, kv, table, norm);
	q = ig_rec_linear_heads(r, q, k_b, p->n_heads, n_rotated); /* [n_tokens, n_heads * n_key] */
	h = ig_rec_attention(r, &attention, q);		   /* [n_tokens, n_heads * n_latent] */
	h = ig_rec_linear_heads(r, h, v_b, p->n_heads, 0); /* [n_tokens, n_heads * n_values] */
	return ig_rec_linear(r, h, &out, 1, x);
}

/* A layer's output of its input x. */
static ig_value record_layer(struct ig_rec *r, const struct deepseek2 *m, ig_value table,
			     uint32_t layer, ig_value x)
{
	ig_value h = ig_layer_rms_norm(r, &m->p, "blk.%u.attn_norm.weight", layer, x);

	x = record_attention(r, m, layer, table, h, x);
	h = ig_layer_rms_norm(r, &m->p, "blk.%u.ffn_norm.weight", layer, x);
	return ig_layer_experts(r, &m->p, &m->experts, layer, h, x);
}

static int record(const struct ig_host *host, struct ig_graph *g, const struct ig_meta *meta,
		  const void *params)
{
	const struct deepseek2 *m = params;
	struct ig_rec r = { host, g };
	const ig_value table = ig_layer_rope_table(&r, &m->rope);
	ig_value x = ig_layer_embed(&r, &m->p, 1);

	for (uint32_t layer = 0; layer < m->p.n_layers; layer++)
		x = record_layer(&r, m, table, layer, x);
	return ig_layer_norm_head(&r, &m->p, x);
}

static int record_mtp(const struct ig_host *host, struct ig_graph *g, const struct ig_meta *meta,
		      const void *params, ig_value x)
{
	const struct deepseek2 *m = params;
	struct ig_rec r = { host, g };
	const ig_value table = ig_layer_rope_table(&r, &m->rope);

	x = ig_layer_mtp_input(&r, &m->p, meta, x);
	return ig_layer_mtp_head(&r, &m->p, meta, record_layer(&r, m, table, m->p.n_layers, x));
}

/* ---- folders of safetensors -------------------------------------------------------------- */

#define LATENT_KEYS(q_latent, nope, values)                                                        \
	IG_CONFIG_SILU, IG_CONFIG_NUMBER("kv_lora_rank", "attention.kv_lora_rank", 512),           \
		{ "q_lora_rank", "attention.q_lora_rank", IG_CONFIG_U32, IG_CONFIG_NULLABLE,       \
		  q_latent },                                                                      \
		IG_CONFIG_NUMBER("kv_lora_rank", "attention.value_length", 512),                   \
		{ "qk_rope_head_dim",                                                              \
		  "attention.key_length",                                                          \
		  IG_CONFIG_U32,                                                                   \
		  IG_CONFIG_PLUS,                                                                  \
		  64,                                                                              \
		  "attention.kv_lora_rank" },                                                      \
		IG_CONFIG_NUMBER("v_head_dim", "attention.value_length_mla", values),              \
		{ "attention_bias", NULL, IG_CONFIG_FALSE },                                       \
		{ "mlp_bias", NULL, IG_CONFIG_FALSE },                                             \
		{ "moe_layer_freq", NULL, IG_CONFIG_ONLY, 0, 1 }

#define EXPERT_KEYS(experts, used, shared, width, dense, scale)                                    \
	{ "n_routed_experts|num_local_experts", "expert_count", IG_CONFIG_U32, 0, experts },       \
		{ "num_experts_per_tok", "expert_used_count", IG_CONFIG_U32, 0, used },            \
		{ "n_shared_experts", "expert_shared_count", IG_CONFIG_U32, 0, shared },           \
		{ "moe_intermediate_size", "expert_feed_forward_length", IG_CONFIG_U32, 0,         \
		  width },                                                                         \
		{ "first_k_dense_replace", "leading_dense_block_count", IG_CONFIG_U32, 0, dense }, \
	{                                                                                          \
		"routed_scaling_factor", "expert_weights_scale", IG_CONFIG_F32, 0, scale           \
	}

#define SIGMOID_KEYS(groups, used)                                                                 \
	{ "n_group", "expert_group_count", IG_CONFIG_U32, 0, groups },                             \
		{ "topk_group", "expert_group_used_count", IG_CONFIG_U32, 0, used },               \
		{ "norm_topk_prob", NULL, IG_CONFIG_TRUE, 0, 1 },                                  \
		{ "scoring_func", NULL, IG_CONFIG_WORD, 0, 0, "sigmoid" },                         \
		{ "topk_method", NULL, IG_CONFIG_WORD, 0, 0, "noaux_tc" },                         \
		{ "rope_interleave", NULL, IG_CONFIG_TRUE, 0, 1 }

static const struct ig_config_key v2_keys[] = {
	IG_CONFIG_DECODER(32, 4096, 11008, 32, 2048, 1e-6),
	LATENT_KEYS(1536, 128, 128),
	EXPERT_KEYS(64, 6, 2, 1407, 0, 1),
	{ "norm_topk_prob", NULL, IG_CONFIG_FALSE },
	{ "scoring_func", NULL, IG_CONFIG_WORD, 0, 0, "softmax" },
	{ "topk_method", NULL, IG_CONFIG_WORD, 0, 0, "greedy" },
}, v3_keys[] = {
	IG_CONFIG_DECODER(61, 7168, 18432, 128, 4096, 1e-6),
	LATENT_KEYS(1536, 128, 128),
	EXPERT_KEYS(256, 8, 1, 2048, 3, 2.5),
	SIGMOID_KEYS(8, 4),
}, glm_keys[] = {
	IG_CONFIG_DECODER(47, 2048, 10240, 20, 202752, 1e-5),
	LATENT_KEYS(768, 192, 256),
	EXPERT_KEYS(64, 4, 1, 1536, 1, 1.8),
	SIGMOID_KEYS(1, 1),
};

static const struct ig_tensor_name names[] = {
	IG_TENSORS_ENDS,
	{ "layers.%u.input_layernorm", "blk.%u.attn_norm", 0 },
	{ "layers.%u.self_attn.q_proj", "blk.%u.attn_q", 0 },
	{ "layers.%u.self_attn.q_a_proj", "blk.%u.attn_q_a", 0 },
	{ "layers.%u.self_attn.q_a_layernorm", "blk.%u.attn_q_a_norm", 0 },
	{ "layers.%u.self_attn.q_b_proj", "blk.%u.attn_q_b", 0 },
	{ "layers.%u.self_attn.kv_a_proj_with_mqa", "blk.%u.attn_kv_a_mqa", 0 },
	{ "layers.%u.self_attn.kv_a_layernorm", "blk.%u.attn_kv_a_norm", 0 },
	{ "layers.%u.self_attn.kv_b_proj", "blk.%u.attn_k_b|blk.%u.attn_v_b",
	  IG_TENSOR_HEADS | IG_TENSOR_TWO },
	/* MLX's folders */
	{ "layers.%u.self_attn.embed_q", "blk.%u.attn_k_b", IG_TENSOR_HEADS },
	{ "layers.%u.self_attn.unembed_out", "blk.%u.attn_v_b", IG_TENSOR_HEADS },
	{ "layers.%u.self_attn.o_proj", "blk.%u.attn_output", 0 },
	{ "layers.%u.post_attention_layernorm", "blk.%u.ffn_norm", 0 },
	IG_TENSORS_GLU,
	IG_TENSORS_EXPERTS("mlp", "gate_proj", "up_proj", "down_proj"),
	{ "layers.%u.mlp.gate.e_score_correction_bias", "blk.%u.exp_probs_b.bias",
	  IG_TENSOR_NAMED },
	IG_TENSORS_SHARED_EXPERT("mlp.shared_experts"),
	IG_TENSORS_NEXT,
};

static void put_heads(const struct ig_config *c, uint32_t nope)
{
	uint32_t rope = 64;

	c->u32(c, "qk_nope_head_dim", &nope);
	c->u32(c, "qk_rope_head_dim", &rope);
	if (nope > IG_ATTENTION_MAX_HEAD_DIM || rope > IG_ATTENTION_MAX_HEAD_DIM)
		c->refuse(c, -ENOTSUP, "qk_nope_head_dim", "is %u, qk_rope_head_dim %u", nope,
			  rope);
	c->put_u32(c, "attention.key_length_mla", nope + rope);
	c->put_u32(c, "attention.head_count_kv", 1);
}

static void v2_config(const struct ig_config *c)
{
	put_heads(c, 128);
	c->put_u32(c, "expert_gating_func", 1);
}

static void v3_config(const struct ig_config *c)
{
	put_heads(c, 128);
	c->put_u32(c, "expert_gating_func", 2);
	c->put_u32(c, "expert_weights_norm", 1);
}

static void glm_config(const struct ig_config *c)
{
	put_heads(c, 192);
	c->put_u32(c, "expert_gating_func", 2);
	c->put_u32(c, "expert_weights_norm", 1);
}

#define FILES(type, table, theta, hook)                                                            \
	{ .struct_size = sizeof(struct ig_arch_files),                                             \
	  .model_type = type,                                                                      \
	  IG_CONFIG_KEYS(table),                                                                   \
	  IG_TENSOR_NAMES(names),                                                                  \
	  .rope_theta = theta,                                                                     \
	  .rotary_percent = 100,                                                                   \
	  .config = hook,                                                                          \
	  .yarn_log_scale = 0.1 }

static const struct ig_arch_files v2_files = FILES("deepseek_v2", v2_keys, 1e4, v2_config),
				  v3_files = FILES("deepseek_v3", v3_keys, 1e4, v3_config),
				  kimi_files = FILES("kimi_k2", v3_keys, 1e4, v3_config),
				  glm_files = FILES("glm4_moe_lite", glm_keys, 1e4, glm_config);
static const struct ig_arch_files *const files[] = { &v3_files, &v2_files, &kimi_files, &glm_files,
						     NULL };

const struct ig_arch ig_arch_deepseek2 = {
	.struct_size = sizeof(struct ig_arch),
	.params_size = sizeof(struct deepseek2),
	.name = "deepseek2",
	.read_params = read_params,
	.record = record,
	.files = files,
	.record_mtp = record_mtp,
};
