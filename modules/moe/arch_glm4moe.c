/*
 * arch_glm4moe.c: GLM 4.5, 4.6 and 4.5 Air (GLM-4.5 Team 2025, arXiv:2508.06471).  Grouped-query
 * attention with biases of q, k and v and RoPE over half of each head, in the large ones with QK
 * norm; the first layers are dense, the others have experts that a sigmoid router selects with a
 * bias that is only for the selection (Wang et al. 2024, arXiv:2408.15664), and a shared expert.
 * The block behind the last layer is a head that guesses the token after the next one (multi-token
 * prediction, DeepSeek-AI 2024, arXiv:2412.19437): a layer over the hidden row behind the model's last norm and the
 * embedding of the token that follows.
 */
#include <ingot/arch_files.h>
#include <ingot/layers.h>

struct glm4moe {
	struct ig_hparams p;
	struct ig_experts experts;
	struct ig_rope rope;
	uint32_t attention; /* enum ig_gqa_flags */
};

/* A layer's output of its input x. */
static ig_value record_layer(struct ig_rec *r, const struct glm4moe *m,
			     const struct ig_gqa *attention, uint32_t layer, ig_value x)
{
	ig_value h = ig_layer_rms_norm(r, &m->p, "blk.%u.attn_norm.weight", layer, x);

	x = ig_layer_gqa(r, attention, layer, h, x);
	h = ig_layer_rms_norm(r, &m->p, "blk.%u.post_attention_norm.weight", layer, x);
	return ig_layer_experts(r, &m->p, &m->experts, layer, h, x);
}

static struct ig_gqa attention_of(struct ig_rec *r, const struct glm4moe *m)
{
	return (struct ig_gqa){
		.p = &m->p,
		.rope = &m->rope,
		.table = ig_layer_rope_table(r, &m->rope),
		.mode = IG_ROPE_HALVES,
		.flags = m->attention,
	};
}

static int read_params(const struct ig_host *host, const struct ig_meta *meta, void *params,
		       struct ig_model_info *info, struct ig_error *err)
{
	const struct ig_hparam_source s = { host, meta, "glm4moe", err };
	const uint32_t sigmoid = 2;
	struct glm4moe *m = params;
	int rc;

	if ((rc = ig_hparams_read(&s, IG_RMS_NORM_EPS, &m->p)) ||
	    (rc = ig_hparams_experts_shared(&s, &m->p, sigmoid, &m->experts)) ||
	    (rc = ig_hparams_rope(&s, &m->p, &m->rope)))
		return rc;
	m->experts.moe.sum_epsilon = 1e-20f;
	m->attention =
		(host->meta_has_tensor(meta, "blk.0.attn_q.bias") ? IG_GQA_QKV_BIAS : 0) |
		(host->meta_has_tensor(meta, "blk.0.attn_q_norm.weight") ? IG_GQA_HEAD_NORMS : 0);
	ig_hparams_info(&m->p, 0, info);
	info->n_mtp_layers = ig_hparams_has_mtp(&s, m->p.n_layers);
	return 0;
}

static int record(const struct ig_host *host, struct ig_graph *g, const struct ig_meta *meta,
		  const void *params)
{
	const struct glm4moe *m = params;
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
	const struct glm4moe *m = params;
	struct ig_rec r = { host, g };
	const struct ig_gqa attention = attention_of(&r, m);

	x = ig_layer_mtp_input(&r, &m->p, meta, x);
	return ig_layer_mtp_head(&r, &m->p, meta,
				 record_layer(&r, m, &attention, m->p.n_layers, x));
}

static const struct ig_config_key keys[] = {
	IG_CONFIG_DECODER(46, 4096, 10944, 96, 131072, 1e-5),
	IG_CONFIG_KV_HEADS(8),
	IG_CONFIG_SILU,
	{ "n_routed_experts|num_local_experts", "expert_count", IG_CONFIG_U32, 0, 128 },
	{ "num_experts_per_tok", "expert_used_count", IG_CONFIG_U32, 0, 8 },
	{ "n_shared_experts", "expert_shared_count", IG_CONFIG_U32, 0, 1 },
	{ "moe_intermediate_size", "expert_feed_forward_length", IG_CONFIG_U32, 0, 1408 },
	{ "first_k_dense_replace", "leading_dense_block_count", IG_CONFIG_U32, 0, 1 },
	{ "n_group", "expert_group_count", IG_CONFIG_U32, 0, 1 },
	{ "topk_group", "expert_group_used_count", IG_CONFIG_U32, 0, 1 },
	{ "routed_scaling_factor", "expert_weights_scale", IG_CONFIG_F32, 0, 1 },
	{ "norm_topk_prob", NULL, IG_CONFIG_TRUE, 0, 1 },
};
static const struct ig_tensor_name names[] = {
	IG_TENSORS_ENDS,
	{ "layers.%u.input_layernorm", "blk.%u.attn_norm", 0 },
	{ "layers.%u.self_attn.q_proj", "blk.%u.attn_q", IG_TENSOR_BIAS },
	{ "layers.%u.self_attn.k_proj", "blk.%u.attn_k", IG_TENSOR_BIAS },
	{ "layers.%u.self_attn.v_proj", "blk.%u.attn_v", IG_TENSOR_BIAS },
	{ "layers.%u.self_attn.o_proj", "blk.%u.attn_output", 0 },
	IG_TENSORS_QK_NORM(0),
	{ "layers.%u.post_attention_layernorm", "blk.%u.post_attention_norm", 0 },
	IG_TENSORS_GLU,
	IG_TENSORS_EXPERTS("mlp", "gate_proj", "up_proj", "down_proj"),
	{ "layers.%u.mlp.gate.e_score_correction_bias", "blk.%u.exp_probs_b.bias",
	  IG_TENSOR_NAMED },
	IG_TENSORS_SHARED_EXPERT("mlp.shared_experts"),
	IG_TENSORS_NEXT,
};

/* The files' router is normalised; GGUF's key says so. */
static void config(const struct ig_config *c) { c->put_u32(c, "expert_weights_norm", 1); }

static const struct ig_arch_files glm4moe_files = {
	.struct_size = sizeof glm4moe_files,
	.model_type = "glm4_moe",
	IG_CONFIG_KEYS(keys),
	IG_TENSOR_NAMES(names),
	.rope_theta = 1e4,
	.rotary_percent = 50,
	.config = config,
};
static const struct ig_arch_files *const files[] = { &glm4moe_files, NULL };

const struct ig_arch ig_arch_glm4moe = {
	.struct_size = sizeof(struct ig_arch),
	.params_size = sizeof(struct glm4moe),
	.name = "glm4moe",
	.read_params = read_params,
	.record = record,
	.files = files,
	.record_mtp = record_mtp,
};
