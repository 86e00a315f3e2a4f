/*
 * arch_qwen3.c: the dense models of Qwen 3 (Yang et al. 2025, arXiv:2505.09388): Llama's blocks
 * with QK norm, RoPE of halves, and a head_dim that is independent of the width.  Unsupported
 * features of a file (experts, sliding windows) are errors that name the key.  As a model of embeddings (pooling_type)
 * it has no cache and makes a vector of the last token; as a reranker it makes that token's logits of "yes" and "no",
 * whose rows of the output matrix are cls.output, or one logit of a row of its own.
 */
#include <ingot/arch_files.h>
#include <ingot/layers.h>

struct qwen3 {
	struct ig_hparams p;
	struct ig_rope rope;
	struct ig_pooling pooling; /* of Qwen3-Embedding and Qwen3-Reranker */
};

static int read_params(const struct ig_host *host, const struct ig_meta *meta, void *params,
		       struct ig_model_info *info, struct ig_error *err)
{
	const struct ig_hparam_source s = { host, meta, "qwen3", err };
	struct qwen3 *m = params;
	int rc;

	if ((rc = ig_hparams_dense(&s, IG_RMS_NORM_EPS, &m->p)) ||
	    (rc = ig_hparam_refuse_u32(&s, "attention.sliding_window", "a sliding window")) ||
	    (rc = ig_hparams_rope(&s, &m->p, &m->rope)) ||
	    (rc = ig_hparams_pooling(&s, 0, &m->pooling)))
		return rc;
	if (m->pooling.kind)
		ig_hparams_info_pooled(&m->p, &m->pooling, info);
	else
		ig_hparams_info(&m->p, 0, info);
	return 0;
}

static int record(const struct ig_host *host, struct ig_graph *g, const struct ig_meta *meta,
		  const void *params)
{
	const struct qwen3 *m = params;
	struct ig_rec r = { host, g };
	const struct ig_gqa attention = {
		.p = &m->p,
		.rope = &m->rope,
		.table = ig_layer_rope_table(&r, &m->rope),
		.mode = IG_ROPE_HALVES,
		.flags = IG_GQA_HEAD_NORMS | (m->pooling.kind ? IG_GQA_ROWS : 0),
		.back = IG_ATTENTION_ALL,
	};
	ig_value x = ig_layer_embed(&r, &m->p, 1), h;
	ig_weight norm;

	for (uint32_t layer = 0; layer < m->p.n_layers; layer++) {
		h = ig_layer_rms_norm(&r, &m->p, "blk.%u.attn_norm.weight", layer, x);
		x = ig_layer_gqa(&r, &attention, layer, h, x);
		h = ig_layer_rms_norm(&r, &m->p, "blk.%u.ffn_norm.weight", layer, x);
		x = ig_layer_glu(&r, &m->p, IG_ACT_SILU, layer, h, x);
	}
	if (!m->pooling.kind)
		return ig_layer_norm_head(&r, &m->p, x);
	norm = ig_rec_weight(&r, 1, m->p.width, "output_norm.weight");
	x = ig_rec_rms_norm(&r, x, norm, m->p.norm_eps);
	return ig_layer_pool(&r, &m->p, &m->pooling, IG_POOL_LAST, x);
}

static const struct ig_config_key keys[] = {
	IG_CONFIG_DECODER(32, 4096, 22016, 32, 32768, 1e-6),
	IG_CONFIG_KV_HEADS(32),
	IG_CONFIG_SILU,
};
static const struct ig_tensor_name names[] = {
	IG_TENSORS_ENDS, IG_TENSORS_ATTENTION(0, 0, 0), IG_TENSORS_QK_NORM(0),
	IG_TENSORS_GLU,	 { "score", "cls.output" },
};
static const struct ig_arch_files qwen3_files = {
	.struct_size = sizeof qwen3_files,
	.model_type = "qwen3",
	IG_CONFIG_KEYS(keys),
	IG_TENSOR_NAMES(names),
	.rope_theta = 1e4,
	.head_dim = 128,
	.config = ig_config_put_used_window,
};
static const struct ig_arch_files *const files[] = { &qwen3_files, NULL };

const struct ig_arch ig_arch_qwen3 = {
	.struct_size = sizeof(struct ig_arch),
	.params_size = sizeof(struct qwen3),
	.name = "qwen3",
	.read_params = read_params,
	.record = record,
	.files = files,
};
