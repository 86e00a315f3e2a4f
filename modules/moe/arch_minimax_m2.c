/*
 * arch_minimax_m2.c: MiniMax M2 (MiniMax 2025).  Grouped-query attention with QK norm over all heads
 * together and RoPE over a part of each head; in every layer experts that a sigmoid router selects
 * with a bias that is only for the selection, and whose weights sum to 1.
 */
#include <ingot/arch_files.h>
#include <ingot/layers.h>

struct minimax_m2 {
	struct ig_hparams p;
	struct ig_experts experts;
	struct ig_rope rope;
};

static int read_params(const struct ig_host *host, const struct ig_meta *meta, void *params,
		       struct ig_model_info *info, struct ig_error *err)
{
	const struct ig_hparam_source s = { host, meta, "minimax-m2", err };
	const uint32_t sigmoid = 2;
	struct minimax_m2 *m = params;
	int rc;

	if ((rc = ig_hparams_read(&s, IG_RMS_NORM_EPS, &m->p)) ||
	    (rc = ig_hparams_experts_shared(&s, &m->p, sigmoid, &m->experts)) ||
	    (rc = ig_hparams_rope(&s, &m->p, &m->rope)))
		return rc;
	m->experts.moe.normalise = 1;
	ig_hparams_info(&m->p, 0, info);
	return 0;
}

static int record(const struct ig_host *host, struct ig_graph *g, const struct ig_meta *meta,
		  const void *params)
{
	const struct minimax_m2 *m = params;
	struct ig_rec r = { host, g };
	const struct ig_gqa attention = {
		.p = &m->p,
		.rope = &m->rope,
		.table = ig_layer_rope_table(&r, &m->rope),
		.mode = IG_ROPE_HALVES,
		.flags = IG_GQA_WHOLE_NORMS,
	};
	ig_value x = ig_layer_embed(&r, &m->p, 1), h;

	for (uint32_t layer = 0; layer < m->p.n_layers; layer++) {
		h = ig_layer_rms_norm(&r, &m->p, "blk.%u.attn_norm.weight", layer, x);
		x = ig_layer_gqa(&r, &attention, layer, h, x);
		h = ig_layer_rms_norm(&r, &m->p, "blk.%u.ffn_norm.weight", layer, x);
		x = ig_layer_experts(&r, &m->p, &m->experts, layer, h, x);
	}
	return ig_layer_norm_head(&r, &m->p, x);
}

static const struct ig_config_key keys[] = {
	IG_CONFIG_DECODER(62, 3072, 1536, 48, 196608, 1e-6),
	IG_CONFIG_KV_HEADS(8),
	IG_CONFIG_SILU,
	{ "num_local_experts|num_experts", "expert_count", IG_CONFIG_U32, 0, 256 },
	{ "num_experts_per_tok", "expert_used_count", IG_CONFIG_U32, 0, 8 },
	{ "intermediate_size", "expert_feed_forward_length", IG_CONFIG_U32, 0, 1536 },
	{ "shared_intermediate_size", NULL, IG_CONFIG_REFUSED },
	{ "scoring_func", NULL, IG_CONFIG_WORD, 0, 0, "sigmoid" },
	{ "use_qk_norm", NULL, IG_CONFIG_TRUE, 0, 1 },
};
static const struct ig_tensor_name names[] = {
	IG_TENSORS_ENDS,
	IG_TENSORS_ATTENTION(0, 0, 0),
	IG_TENSORS_QK_NORM(0),
	IG_TENSORS_EXPERTS("block_sparse_moe", "w1", "w3", "w2"),
	IG_TENSORS_EXPERTS("mlp", "gate_proj", "up_proj", "down_proj"),
	{ "layers.%u.block_sparse_moe.e_score_correction_bias", "blk.%u.exp_probs_b.bias",
	  IG_TENSOR_NAMED },
	{ "layers.%u.mlp.e_score_correction_bias", "blk.%u.exp_probs_b.bias", IG_TENSOR_NAMED },
};

/* GGUF's key of the router. */
static void config(const struct ig_config *c) { c->put_u32(c, "expert_gating_func", 2); }

static const struct ig_arch_files minimax_m2_files = {
	.struct_size = sizeof minimax_m2_files,
	.model_type = "minimax_m2",
	IG_CONFIG_KEYS(keys),
	IG_TENSOR_NAMES(names),
	.rope_theta = 5e6,
	.head_dim = 128,
	.rotary_percent = 100,
	.config = config,
};
static const struct ig_arch_files *const files[] = { &minimax_m2_files, NULL };

const struct ig_arch ig_arch_minimax_m2 = {
	.struct_size = sizeof(struct ig_arch),
	.params_size = sizeof(struct minimax_m2),
	.name = "minimax-m2",
	.read_params = read_params,
	.record = record,
	.files = files,
};
