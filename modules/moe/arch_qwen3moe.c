/*
 * arch_qwen3moe.c: Qwen 3 with experts (Yang et al. 2025, arXiv:2505.09388): 30B-A3B, 235B-A22B,
 * Coder.  Qwen 3's attention with QK norm; in every layer 128 experts, of which a softmax router
 * selects eight per token, whose weights sum to 1.  Unsupported features of a file (shared experts,
 * dense layers, sliding windows) are errors that name the key.
 */
#include <ingot/arch_files.h>
#include <ingot/layers.h>

struct qwen3moe {
	struct ig_hparams p;
	struct ig_experts experts;
	struct ig_rope rope;
};

static int read_params(const struct ig_host *host, const struct ig_meta *meta, void *params,
		       struct ig_model_info *info, struct ig_error *err)
{
	const struct ig_hparam_source s = { host, meta, "qwen3moe", err };
	struct qwen3moe *m = params;
	int rc;

	if ((rc = ig_hparams_read(&s, IG_RMS_NORM_EPS, &m->p)) ||
	    (rc = ig_hparams_experts(&s, &m->p, &m->experts)) ||
	    (rc = ig_hparam_refuse_u32(&s, "attention.sliding_window", "a sliding window")) ||
	    (rc = ig_hparams_rope(&s, &m->p, &m->rope)))
		return rc;
	m->experts.moe.normalise = 1;
	ig_hparams_info(&m->p, 0, info);
	return 0;
}

static int record(const struct ig_host *host, struct ig_graph *g, const struct ig_meta *meta,
		  const void *params)
{
	const struct qwen3moe *m = params;
	struct ig_rec r = { host, g };
	const struct ig_gqa attention = {
		.p = &m->p,
		.rope = &m->rope,
		.table = ig_layer_rope_table(&r, &m->rope),
		.mode = IG_ROPE_HALVES,
		.flags = IG_GQA_HEAD_NORMS,
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
	IG_CONFIG_DECODER(24, 2048, 6144, 32, 32768, 1e-6),
	IG_CONFIG_KV_HEADS(4),
	IG_CONFIG_SILU,
	{ "num_experts", "expert_count", IG_CONFIG_U32, 0, 128 },
	{ "num_experts_per_tok", "expert_used_count", IG_CONFIG_U32, 0, 8 },
	{ "moe_intermediate_size", "expert_feed_forward_length", IG_CONFIG_U32, 0, 768 },
	{ "norm_topk_prob", NULL, IG_CONFIG_TRUE },
	{ "mlp_only_layers", NULL, IG_CONFIG_REFUSED },
	{ "decoder_sparse_step", NULL, IG_CONFIG_ONLY, 0, 1 },
};
static const struct ig_tensor_name names[] = {
	IG_TENSORS_ENDS,
	IG_TENSORS_ATTENTION(0, 0, 0),
	IG_TENSORS_QK_NORM(0),
	IG_TENSORS_EXPERTS("mlp", "gate_proj", "up_proj", "down_proj"),
};
static const struct ig_arch_files qwen3moe_files = {
	.struct_size = sizeof qwen3moe_files,
	.model_type = "qwen3_moe",
	IG_CONFIG_KEYS(keys),
	IG_TENSOR_NAMES(names),
	.rope_theta = 1e4,
	.config = ig_config_put_used_window,
};
static const struct ig_arch_files *const files[] = { &qwen3moe_files, NULL };

const struct ig_arch ig_arch_qwen3moe = {
	.struct_size = sizeof(struct ig_arch),
	.params_size = sizeof(struct qwen3moe),
	.name = "qwen3moe",
	.read_params = read_params,
	.record = record,
	.files = files,
};
