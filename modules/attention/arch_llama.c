/*
 * arch_llama.c: Llama (Touvron et al. 2023, arXiv:2302.13971) and models of the same architecture:
 * Llama 2 and 3, TinyLlama, SmolLM, Mistral (Jiang et al. 2023, arXiv:2310.06825), Devstral.
 * Pre-norm blocks, RoPE, grouped-query attention with an optional sliding window and optional
 * biases, a gated feed-forward with SiLU.  Ministral 3 and Devstral 2 (mistral3) also scale q by
 * position, as Llama 4 does.  Unsupported features of a file (experts, biases of the feed-forward)
 * are errors that name it.
 */
#include <ingot/arch_files.h>
#include <ingot/layers.h>

struct llama {
	struct ig_hparams p;
	struct ig_rope rope;
	uint32_t window;	 /* 0: no sliding window */
	float q_scale;		 /* see struct ig_rope_kv_params */
	uint32_t q_scale_length; /* 0: off */
	uint32_t biases;	 /* enum ig_gqa_flags */
};

static int read_q_scale(const struct ig_hparam_source *s, struct llama *m)
{
	const float none = 0;
	int rc = ig_hparam_f32(s, "attention.temperature_scale", 0, 1e3f, &none, &m->q_scale);
	if (rc || m->q_scale == 0)
		return rc;
	return ig_hparam_u32(s, "rope.scaling.original_context_length", 16, 1u << 24,
			     &m->p.n_context, &m->q_scale_length);
}

static int read_keys(const struct ig_hparam_source *s, struct llama *m, struct ig_model_info *info)
{
	int rc;

	if ((rc = ig_hparams_dense(s, IG_RMS_NORM_EPS, &m->p)) ||
	    (rc = ig_hparams_window(s, &m->p, &m->window)) ||
	    (rc = ig_hparams_rope(s, &m->p, &m->rope)) || (rc = read_q_scale(s, m)) ||
	    (rc = ig_hparam_refuse_tensor(s, "blk.0.ffn_gate.bias",
					  "biases of the feed-forward")) ||
	    (rc = ig_hparam_refuse_tensor(s, "blk.0.ffn_down.bias", "biases of the feed-forward")))
		return rc;
	if (s->host->meta_has_tensor(s->meta, "blk.0.attn_q.bias"))
		m->biases |= IG_GQA_QKV_BIAS;
	if (s->host->meta_has_tensor(s->meta, "blk.0.attn_output.bias"))
		m->biases |= IG_GQA_OUT_BIAS;
	ig_hparams_info(&m->p, m->window, info);
	return 0;
}

static int read_llama(const struct ig_host *host, const struct ig_meta *meta, void *params,
		      struct ig_model_info *info, struct ig_error *err)
{
	const struct ig_hparam_source s = { host, meta, "llama", err };
	return read_keys(&s, params, info);
}

static int read_mistral3(const struct ig_host *host, const struct ig_meta *meta, void *params,
			 struct ig_model_info *info, struct ig_error *err)
{
	const struct ig_hparam_source s = { host, meta, "mistral3", err };
	return read_keys(&s, params, info);
}

static int record(const struct ig_host *host, struct ig_graph *g, const struct ig_meta *meta,
		  const void *params)
{
	const struct llama *m = params;
	struct ig_rec r = { host, g };
	const struct ig_gqa attention = {
		.p = &m->p,
		.rope = &m->rope,
		.table = ig_layer_rope_table(&r, &m->rope),
		.mode = IG_ROPE_PAIRS, /* converters reorder the rows of Q and K */
		.flags = m->biases,
		.window = m->window,
		.q_scale = m->q_scale,
		.q_scale_length = m->q_scale_length,
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

/* ---- folders of safetensors -------------------------------------------------------------- */

static const struct ig_config_key llama_keys[] = {
	IG_CONFIG_DECODER(32, 4096, 11008, 32, 2048, 1e-6),
	IG_CONFIG_KV_HEADS_AS_HEADS,
	IG_CONFIG_SILU,
};
static const struct ig_tensor_name llama_names[] = {
	IG_TENSORS_ENDS,
	IG_TENSORS_ATTENTION(IG_TENSOR_PAIRS | IG_TENSOR_BIAS, IG_TENSOR_BIAS, IG_TENSOR_BIAS),
	IG_TENSORS_GLU,
};
static const struct ig_arch_files llama_files = {
	.struct_size = sizeof llama_files,
	.model_type = "llama",
	IG_CONFIG_KEYS(llama_keys),
	IG_TENSOR_NAMES(llama_names),
	.rope_theta = 1e4,
};

#define MISTRAL_KEYS                                                                               \
	IG_CONFIG_DECODER(32, 4096, 14336, 32, 131072, 1e-6), IG_CONFIG_KV_HEADS(8), IG_CONFIG_SILU
static const struct ig_config_key mistral_keys[] = {
	MISTRAL_KEYS,
	{ "sliding_window", "attention.sliding_window", IG_CONFIG_U32, IG_CONFIG_NULLABLE, 4096 },
};
static const struct ig_tensor_name mistral_names[] = {
	IG_TENSORS_ENDS,
	IG_TENSORS_ATTENTION(IG_TENSOR_PAIRS, 0, 0),
	IG_TENSORS_GLU,
};
static const struct ig_arch_files mistral_files = {
	.struct_size = sizeof mistral_files,
	.model_type = "mistral",
	.outer_type = "mistral3",
	IG_CONFIG_KEYS(mistral_keys),
	IG_TENSOR_NAMES(mistral_names),
	.rope_theta = 1e4,
};
static const struct ig_arch_files *const files[] = { &llama_files, &mistral_files, NULL };

/* Ministral 3 and Devstral 2. */
static const struct ig_config_key ministral3_keys[] = {
	MISTRAL_KEYS,
	{ "sliding_window", "attention.sliding_window", IG_CONFIG_U32, IG_CONFIG_OPTIONAL },
	{ "rope_parameters.llama_4_scaling_beta|rope_scaling.llama_4_scaling_beta",
	  "attention.temperature_scale", IG_CONFIG_F32, IG_CONFIG_OPTIONAL },
};
static const struct ig_arch_files ministral3_files = {
	.struct_size = sizeof ministral3_files,
	.model_type = "ministral3",
	IG_CONFIG_KEYS(ministral3_keys),
	IG_TENSOR_NAMES(mistral_names),
	.rope_theta = 1e6,
};
static const struct ig_arch_files *const mistral3_files[] = { &ministral3_files, NULL };

const struct ig_arch ig_arch_llama = {
	.struct_size = sizeof(struct ig_arch),
	.params_size = sizeof(struct llama),
	.name = "llama",
	.read_params = read_llama,
	.record = record,
	.files = files,
};

const struct ig_arch ig_arch_mistral3 = {
	.struct_size = sizeof(struct ig_arch),
	.params_size = sizeof(struct llama),
	.name = "mistral3",
	.read_params = read_mistral3,
	.record = record,
	.files = mistral3_files,
};
