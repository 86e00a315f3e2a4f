/*
 * arch_gpt_oss.c: gpt-oss (OpenAI 2025, arXiv:2508.10925).  Every other layer, or those that the file
 * lists, has a sliding window; each head has a sink, one more term of its softmax's sum; RoPE with
 * YaRN, whose ramp is not rounded to whole pairs (the authors' code, as transformers has it).
 * Matrices have biases, the experts' too.  The router's softmax is over the selected experts, whose
 * gates are clamped.
 */
#include <ingot/arch_files.h>
#include <ingot/layers.h>

enum { GLOBAL = 0, LOCAL = 1 }; /* kinds of layers; LOCAL: sliding window */

#define MAX_LAYERS 1024

struct gpt_oss {
	struct ig_hparams p;
	struct ig_experts experts;
	struct ig_rope rope;
	uint32_t window;   /* of local layers */
	uint32_t group[2]; /* by kind: its cache group */
	uint8_t kind[MAX_LAYERS];
	uint16_t group_layer[MAX_LAYERS]; /* the layer's index in its group */
};

/* Files of GGUF do not say which layers have the window: the even ones. */
static int read_kinds(const struct ig_hparam_source *s, struct gpt_oss *m)
{
	uint32_t local[MAX_LAYERS];
	int rc = ig_hparam_layers(s, "attention.sliding_window_pattern", m->p.n_layers, local);

	for (uint32_t i = 0; i < m->p.n_layers && (!rc || rc == -ENOENT); i++)
		m->kind[i] = (rc ? i % 2 == 0 : local[i] != 0) && m->window ? LOCAL : GLOBAL;
	return rc == -ENOENT ? 0 : rc;
}

/* One cache group per kind of layers in use. */
static void set_groups(struct gpt_oss *m, struct ig_model_info *info)
{
	uint16_t n[2] = { 0, 0 };

	ig_hparams_info(&m->p, 0, info);
	info->groups[1] = info->groups[0];
	info->n_groups = 0;
	for (uint32_t i = 0; i < m->p.n_layers; i++)
		m->group_layer[i] = n[m->kind[i]]++;
	for (uint32_t kind = GLOBAL; kind <= LOCAL; kind++) {
		if (!n[kind])
			continue;
		m->group[kind] = info->n_groups++;
		info->groups[m->group[kind]].n_layers = n[kind];
		info->groups[m->group[kind]].window = kind == LOCAL ? m->window : 0;
	}
}

static int read_params(const struct ig_host *host, const struct ig_meta *meta, void *params,
		       struct ig_model_info *info, struct ig_error *err)
{
	const struct ig_hparam_source s = { host, meta, "gpt-oss", err };
	const uint32_t softmax_of_selected = 3;
	const float limit = 7;
	struct gpt_oss *m = params;
	int rc;

	if ((rc = ig_hparams_read(&s, IG_RMS_NORM_EPS, &m->p)) ||
	    (rc = ig_hparams_experts_shared(&s, &m->p, softmax_of_selected, &m->experts)) ||
	    (rc = ig_hparam_f32(&s, "swiglu_limit", 1e-3f, 1e6f, &limit, &m->experts.moe.limit)) ||
	    (rc = ig_hparams_window(&s, &m->p, &m->window)) || (rc = read_kinds(&s, m)) ||
	    (rc = ig_hparams_rope_unrounded(&s, &m->p, 1, &m->rope)))
		return rc;
	m->experts.moe.act = IG_ACT_CLAMPED;
	m->experts.flags |= IG_EXPERTS_ROUTER_BIAS | IG_EXPERTS_BIAS;
	if (m->experts.n_dense || m->experts.n_ff_shared)
		return ig_fail(err, -ENOTSUP,
			       "gpt-oss with dense layers or shared experts is not supported");
	set_groups(m, info);
	return 0;
}

static int record(const struct ig_host *host, struct ig_graph *g, const struct ig_meta *meta,
		  const void *params)
{
	const struct gpt_oss *m = params;
	struct ig_rec r = { host, g };
	struct ig_gqa attention = {
		.p = &m->p,
		.rope = &m->rope,
		.table = ig_layer_rope_table(&r, &m->rope),
		.mode = IG_ROPE_HALVES,
		.flags = IG_GQA_QKV_BIAS | IG_GQA_OUT_BIAS | IG_GQA_SINKS,
		.group_layers = m->group_layer,
	};
	ig_value x = ig_layer_embed(&r, &m->p, 1), h;

	for (uint32_t layer = 0; layer < m->p.n_layers; layer++) {
		attention.window = m->kind[layer] == LOCAL ? m->window : 0;
		attention.group = m->group[m->kind[layer]];
		h = ig_layer_rms_norm(&r, &m->p, "blk.%u.attn_norm.weight", layer, x);
		x = ig_layer_gqa(&r, &attention, layer, h, x);
		h = ig_layer_rms_norm(&r, &m->p, "blk.%u.post_attention_norm.weight", layer, x);
		x = ig_layer_experts(&r, &m->p, &m->experts, layer, h, x);
	}
	return ig_layer_norm_head(&r, &m->p, x);
}

static const struct ig_config_key keys[] = {
	IG_CONFIG_DECODER(36, 2880, 2880, 64, 131072, 1e-5),
	IG_CONFIG_KV_HEADS(8),
	IG_CONFIG_SILU,
	{ "sliding_window", "attention.sliding_window", IG_CONFIG_U32, IG_CONFIG_NULLABLE, 128 },
	{ "layer_types", "attention.sliding_window_pattern", IG_CONFIG_LAYERS, IG_CONFIG_OPTIONAL,
	  0, "full_attention|sliding_attention" },
	{ "num_local_experts|num_experts", "expert_count", IG_CONFIG_U32, 0, 128 },
	{ "num_experts_per_tok|experts_per_token", "expert_used_count", IG_CONFIG_U32, 0, 4 },
	{ "intermediate_size", "expert_feed_forward_length", IG_CONFIG_U32, 0, 2880 },
	{ "swiglu_limit", "swiglu_limit", IG_CONFIG_F32, 0, 7 },
	{ "attention_bias", NULL, IG_CONFIG_TRUE, 0, 1 },
};

/* Weights of experts are a matrix [in, out] of each, or MXFP4's blocks [out, in]; as MLX has them, gate and up are
 * apart, and each is [out, in]. */
#define EXPERTS IG_TENSOR_EXPERTS | IG_TENSOR_TRANSPOSED
static const struct ig_tensor_name names[] = {
	IG_TENSORS_ENDS,
	{ "layers.%u.input_layernorm", "blk.%u.attn_norm", 0 },
	{ "layers.%u.self_attn.q_proj", "blk.%u.attn_q", IG_TENSOR_BIAS },
	{ "layers.%u.self_attn.k_proj", "blk.%u.attn_k", IG_TENSOR_BIAS },
	{ "layers.%u.self_attn.v_proj", "blk.%u.attn_v", IG_TENSOR_BIAS },
	{ "layers.%u.self_attn.o_proj", "blk.%u.attn_output", IG_TENSOR_BIAS },
	{ "layers.%u.self_attn.sinks", "blk.%u.attn_sinks.weight", IG_TENSOR_NAMED },
	{ "layers.%u.post_attention_layernorm", "blk.%u.post_attention_norm", 0 },
	{ "layers.%u.mlp.router", "blk.%u.ffn_gate_inp", IG_TENSOR_F32 | IG_TENSOR_BIAS },
	{ "layers.%u.mlp.experts.gate_up_proj", "blk.%u.ffn_gate_exps|blk.%u.ffn_up_exps",
	  EXPERTS | IG_TENSOR_TWO | IG_TENSOR_INTERLEAVED },
	{ "layers.%u.mlp.experts.gate_up_proj_bias",
	  "blk.%u.ffn_gate_exps.bias|blk.%u.ffn_up_exps.bias",
	  IG_TENSOR_NAMED | IG_TENSOR_F32 | IG_TENSOR_TWO | IG_TENSOR_INTERLEAVED },
	{ "layers.%u.mlp.experts.gate_proj", "blk.%u.ffn_gate_exps", IG_TENSOR_EXPERTS },
	{ "layers.%u.mlp.experts.up_proj", "blk.%u.ffn_up_exps", IG_TENSOR_EXPERTS },
	{ "layers.%u.mlp.experts.down_proj.weight", "blk.%u.ffn_down_exps.weight",
	  IG_TENSOR_NAMED | IG_TENSOR_EXPERTS },
	{ "layers.%u.mlp.experts.gate_proj.bias", "blk.%u.ffn_gate_exps.bias",
	  IG_TENSOR_NAMED | IG_TENSOR_F32 },
	{ "layers.%u.mlp.experts.up_proj.bias", "blk.%u.ffn_up_exps.bias",
	  IG_TENSOR_NAMED | IG_TENSOR_F32 },
	{ "layers.%u.mlp.experts.down_proj.bias", "blk.%u.ffn_down_exps.bias",
	  IG_TENSOR_NAMED | IG_TENSOR_F32 },
	{ "layers.%u.mlp.experts.down_proj", "blk.%u.ffn_down_exps", EXPERTS },
	{ "layers.%u.mlp.experts.down_proj_bias", "blk.%u.ffn_down_exps.bias",
	  IG_TENSOR_NAMED | IG_TENSOR_F32 },
};

static void config(const struct ig_config *c) { ig_config_only_f32(c, "swiglu_alpha", 1.702f); }

static const struct ig_arch_files gpt_oss_files = {
	.struct_size = sizeof gpt_oss_files,
	.model_type = "gpt_oss",
	IG_CONFIG_KEYS(keys),
	IG_TENSOR_NAMES(names),
	.rope_theta = 150000,
	.head_dim = 64,
	.config = config,
};
static const struct ig_arch_files *const files[] = { &gpt_oss_files, NULL };

const struct ig_arch ig_arch_gpt_oss = {
	.struct_size = sizeof(struct ig_arch),
	.params_size = sizeof(struct gpt_oss),
	.name = "gpt-oss",
	.read_params = read_params,
	.record = record,
	.files = files,
};
