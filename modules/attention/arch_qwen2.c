/*
 * arch_qwen2.c: Qwen 2 (Yang et al. 2024, arXiv:2407.10671) and Qwen 2.5: Llama's blocks with
 * biases on q, k and v, RoPE of halves.  Unsupported features of a file (experts, windows) are
 * errors that name the key.
 */
#include <ingot/arch_files.h>
#include <ingot/layers.h>

struct qwen2 {
	struct ig_hparams p;
	struct ig_rope rope;
};

static int read_params(const struct ig_host *host, const struct ig_meta *meta, void *params,
		       struct ig_model_info *info, struct ig_error *err)
{
	const struct ig_hparam_source s = { host, meta, "qwen2", err };
	struct qwen2 *m = params;
	int rc;

	if ((rc = ig_hparams_dense(&s, IG_RMS_NORM_EPS, &m->p)) ||
	    (rc = ig_hparam_refuse_u32(&s, "attention.sliding_window", "a sliding window")) ||
	    (rc = ig_hparams_rope(&s, &m->p, &m->rope)))
		return rc;
	ig_hparams_info(&m->p, 0, info);
	return 0;
}

static int record(const struct ig_host *host, struct ig_graph *g, const struct ig_meta *meta,
		  const void *params)
{
	const struct qwen2 *m = params;
	struct ig_rec r = { host, g };
	const struct ig_gqa attention = {
		.p = &m->p,
		.rope = &m->rope,
		.table = ig_layer_rope_table(&r, &m->rope),
		.mode = IG_ROPE_HALVES,
		.flags = IG_GQA_QKV_BIAS,
	};
	ig_value x = ig_layer_embed(&r, &m->p, 1), h;

	for (uint32_t layer = 0; layer < m->p.n_layers; layer++) {
		h = ig_layer_rms_norm(&r, &m->p, "blk.%u.attn_norm.weight", layer, x);
		x = ig_layer_gqa(&r, &attention, layer, h, x);
		h = ig_layer_rms_norm(&r, &m->p, "blk.%u.ffn_norm.weight", layer, x);
		x = ig_layer_glu(&r, &m->p, IG_ACT_SILU, layer, h, x);
	}
	return ig_layer_norm_head(&r, &m->p, x);
}

static const struct ig_config_key keys[] = {
	IG_CONFIG_DECODER(32, 4096, 22016, 32, 32768, 1e-6),
	IG_CONFIG_KV_HEADS(32),
	IG_CONFIG_SILU,
};
static const struct ig_tensor_name names[] = {
	IG_TENSORS_ENDS,
	IG_TENSORS_ATTENTION(IG_TENSOR_BIAS, IG_TENSOR_BIAS, 0),
	IG_TENSORS_GLU,
};
static const struct ig_arch_files qwen2_files = {
	.struct_size = sizeof qwen2_files,
	.model_type = "qwen2",
	IG_CONFIG_KEYS(keys),
	IG_TENSOR_NAMES(names),
	.rope_theta = 1e4,
	.config = ig_config_put_used_window,
};
static const struct ig_arch_files *const files[] = { &qwen2_files, NULL };

const struct ig_arch ig_arch_qwen2 = {
	.struct_size = sizeof(struct ig_arch),
	.params_size = sizeof(struct qwen2),
	.name = "qwen2",
	.read_params = read_params,
	.record = record,
	.files = files,
};
