/*
 * arch_mixtral.c: Mixtral (Jiang et al. 2024, arXiv:2401.04088): Mistral's attention; in every
 * layer eight experts, of which a softmax router selects two per token, whose weights sum to 1.
 * general.architecture of its files is "llama", and their keys are Llama's; they differ by having
 * experts.
 */
#include <ingot/arch_files.h>
#include <ingot/layers.h>

struct mixtral {
	struct ig_hparams p;
	struct ig_experts experts;
	struct ig_rope rope;
	uint32_t window; /* 0: no sliding window */
};

static int claims(const struct ig_host *host, const struct ig_meta *meta)
{
	const char *arch;
	size_t len;
	uint32_t n;
	return !host->meta_str(meta, "general.architecture", &arch, &len, NULL) && len == 5 &&
	       !memcmp(arch, "llama", 5) && !host->meta_u32(meta, "llama.expert_count", &n, NULL) &&
	       n > 0;
}

static int read_params(const struct ig_host *host, const struct ig_meta *meta, void *params,
		       struct ig_model_info *info, struct ig_error *err)
{
	const struct ig_hparam_source s = { host, meta, "llama", err };
	struct mixtral *m = params;
	int rc;

	if ((rc = ig_hparams_read(&s, IG_RMS_NORM_EPS, &m->p)) ||
	    (rc = ig_hparams_experts(&s, &m->p, &m->experts)) ||
	    (rc = ig_hparams_window(&s, &m->p, &m->window)) ||
	    (rc = ig_hparams_rope(&s, &m->p, &m->rope)))
		return rc;
	m->experts.moe.normalise = 1;
	ig_hparams_info(&m->p, m->window, info);
	return 0;
}

static int record(const struct ig_host *host, struct ig_graph *g, const struct ig_meta *meta,
		  const void *params)
{
	const struct mixtral *m = params;
	struct ig_rec r = { host, g };
	const struct ig_gqa attention = {
		.p = &m->p,
		.rope = &m->rope,
		.table = ig_layer_rope_table(&r, &m->rope),
		.mode = IG_ROPE_PAIRS, /* converters reorder the rows of Q and K */
		.window = m->window,
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
	IG_CONFIG_DECODER(32, 4096, 14336, 32, 131072, 1e-5),
	IG_CONFIG_KV_HEADS(8),
	IG_CONFIG_SILU,
	{ "num_local_experts", "expert_count", IG_CONFIG_U32, 0, 8 },
	{ "num_experts_per_tok", "expert_used_count", IG_CONFIG_U32, 0, 2 },
	{ "sliding_window", "attention.sliding_window", IG_CONFIG_U32, IG_CONFIG_OPTIONAL },
};
static const struct ig_tensor_name names[] = {
	IG_TENSORS_ENDS,
	IG_TENSORS_ATTENTION(IG_TENSOR_PAIRS, 0, 0),
	IG_TENSORS_EXPERTS("block_sparse_moe", "w1", "w3", "w2"),
	IG_TENSORS_EXPERTS("mlp", "gate_proj", "up_proj", "down_proj"),
};
static const struct ig_arch_files mixtral_files = {
	.struct_size = sizeof mixtral_files,
	.model_type = "mixtral",
	.gguf = "llama",
	IG_CONFIG_KEYS(keys),
	IG_TENSOR_NAMES(names),
	.rope_theta = 1e6,
};
static const struct ig_arch_files *const files[] = { &mixtral_files, NULL };

const struct ig_arch ig_arch_mixtral = {
	.struct_size = sizeof(struct ig_arch),
	.params_size = sizeof(struct mixtral),
	.name = "mixtral",
	.read_params = read_params,
	.record = record,
	.files = files,
	.claims = claims,
};
