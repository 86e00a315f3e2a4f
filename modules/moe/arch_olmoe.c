/*
 * arch_olmoe.c: OLMoE (Muennighoff et al. 2024, arXiv:2409.02060): Llama's attention with QK norm
 * over all heads together; in every layer 64 experts, of which a softmax router selects eight per
 * token.  The weights are those of the softmax over all experts.  Unsupported features of a file
 * (clamped projections, shared experts) are errors that name the key.
 */
#include <ingot/arch_files.h>
#include <ingot/layers.h>

struct olmoe {
	struct ig_hparams p;
	struct ig_experts experts;
	struct ig_rope rope;
};

static int read_params(const struct ig_host *host, const struct ig_meta *meta, void *params,
		       struct ig_model_info *info, struct ig_error *err)
{
	const struct ig_hparam_source s = { host, meta, "olmoe", err };
	struct olmoe *m = params;
	int rc;

	if ((rc = ig_hparams_read(&s, IG_RMS_NORM_EPS, &m->p)) ||
	    (rc = ig_hparams_experts(&s, &m->p, &m->experts)) ||
	    (rc = ig_hparam_refuse_f32(&s, "attention.clamp_kqv", "clamped projections")) ||
	    (rc = ig_hparams_rope(&s, &m->p, &m->rope)))
		return rc;
	ig_hparams_info(&m->p, 0, info);
	return 0;
}

static int record(const struct ig_host *host, struct ig_graph *g, const struct ig_meta *meta,
		  const void *params)
{
	const struct olmoe *m = params;
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
	IG_CONFIG_DECODER(16, 2048, 2048, 16, 4096, 1e-5),
	IG_CONFIG_KV_HEADS_AS_HEADS,
	IG_CONFIG_SILU,
	{ "num_experts", "expert_count", IG_CONFIG_U32, 0, 64 },
	{ "num_experts_per_tok", "expert_used_count", IG_CONFIG_U32, 0, 8 },
	{ "norm_topk_prob", NULL, IG_CONFIG_FALSE },
	{ "clip_qkv", NULL, IG_CONFIG_REFUSED },
};
static const struct ig_tensor_name names[] = {
	IG_TENSORS_ENDS,
	IG_TENSORS_ATTENTION(0, 0, 0),
	IG_TENSORS_QK_NORM(0),
	IG_TENSORS_EXPERTS("mlp", "gate_proj", "up_proj", "down_proj"),
};
static const struct ig_arch_files olmoe_files = {
	.struct_size = sizeof olmoe_files,
	.model_type = "olmoe",
	IG_CONFIG_KEYS(keys),
	IG_TENSOR_NAMES(names),
	.rope_theta = 1e4,
};
static const struct ig_arch_files *const files[] = { &olmoe_files, NULL };

const struct ig_arch ig_arch_olmoe = {
	.struct_size = sizeof(struct ig_arch),
	.params_size = sizeof(struct olmoe),
	.name = "olmoe",
	.read_params = read_params,
	.record = record,
	.files = files,
};
