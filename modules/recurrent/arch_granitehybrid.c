/*
 * arch_granitehybrid.c: Granite 4 (IBM 2025; transformers' modeling_granitemoehybrid.py), and Granite 3, which has
 * attention and RoPE in all layers, and no experts (modeling_granite.py) or no shared one but in few files
 * (modeling_granitemoe.py, modeling_granitemoeshared.py).  A layer is an
 * RMS norm and a mixer, Mamba-2 or grouped-query attention, then an RMS norm and a feed-forward: a gated one
 * with SiLU, or experts, weighted by a softmax over those selected, beside a shared one.  The embedding, what
 * each half of a layer adds, q . k and the logits have multipliers of their own.  Only some files have RoPE,
 * and some have attention in all layers.
 */
#include "mamba2.h"

#include <ingot/arch_files.h>

struct granite {
	struct ig_hparams p;
	struct ig_rope rope;
	uint32_t has_rope;
	struct ig_experts experts; /* moe.n_experts 0: none */
	struct mamba2 mamba;	   /* if a layer has it */
	float embedding_scale, residual_scale, attention_scale, logit_scale;
	uint8_t is_mamba[IG_MAX_LAYERS];
	uint16_t group_layer[IG_MAX_LAYERS]; /* the layer's index among those of its kind */
};

static int set_layers(const struct ig_hparam_source *s, struct granite *m, const uint32_t *kv,
		      struct ig_model_info *info)
{
	uint16_t n[2] = { 0 };
	uint32_t first = 0;
	int rc;

	for (uint32_t i = 0; i < m->p.n_layers; i++) {
		m->is_mamba[i] = !kv[i];
		if (!kv[i] && !n[1])
			first = i;
		m->group_layer[i] = n[!kv[i]]++;
	}
	ig_hparams_info(&m->p, 0, info);
	info->groups[0].n_layers = n[0];
	if (!n[1])
		return 0;
	if ((rc = mamba2_read(s, first, &m->mamba)))
		return rc;
	mamba2_groups(&m->mamba, n[1], info);
	return 0;
}

static int read_scales(const struct ig_hparam_source *s, struct granite *m)
{
	const float one = 1, by_head = 0;
	int rc;

	if ((rc = ig_hparam_f32(s, "embedding_scale", 1e-6f, 1e6f, &one, &m->embedding_scale)) ||
	    (rc = ig_hparam_f32(s, "residual_scale", 1e-6f, 1e6f, &one, &m->residual_scale)) ||
	    (rc = ig_hparam_f32(s, "attention.scale", 0, 1e6f, &by_head, &m->attention_scale)) ||
	    (rc = ig_hparam_f32(s, "logit_scale", 1e-6f, 1e6f, &one, &m->logit_scale)))
		return rc;
	return 0;
}

static int read_any(const struct ig_hparam_source *s, void *params, struct ig_model_info *info)
{
	const uint32_t none = 0, on = 1, of_selected = 3;
	struct granite *m = params;
	uint32_t kv[IG_MAX_LAYERS], experts;
	int rc;

	if ((rc = ig_hparams_read_hybrid(s, IG_RMS_NORM_EPS, &m->p, kv)) ||
	    (rc = read_scales(s, m)) ||
	    (rc = ig_hparam_u32(s, "rope.scaling.finetuned", 0, 1, &on, &m->has_rope)) ||
	    (m->has_rope && (rc = ig_hparams_rope(s, &m->p, &m->rope))) ||
	    (rc = ig_hparam_u32(s, "expert_count", 0, IG_MOE_MAX_EXPERTS, &none, &experts)) ||
	    (experts && (rc = ig_hparams_experts_shared(s, &m->p, of_selected, &m->experts))))
		return rc;
	m->experts.moe.normalise = 1; /* also where the file calls it a softmax over all */
	return set_layers(s, m, kv, info);
}

static int read_hybrid(const struct ig_host *host, const struct ig_meta *meta, void *params,
		       struct ig_model_info *info, struct ig_error *err)
{
	const struct ig_hparam_source s = { host, meta, "granitehybrid", err };

	return read_any(&s, params, info);
}

static int read_dense(const struct ig_host *host, const struct ig_meta *meta, void *params,
		      struct ig_model_info *info, struct ig_error *err)
{
	const struct ig_hparam_source s = { host, meta, "granite", err };
	int rc = ig_hparam_refuse_u32(&s, "expert_count", "experts");

	return rc ? rc : read_any(&s, params, info);
}

static int read_experts(const struct ig_host *host, const struct ig_meta *meta, void *params,
			struct ig_model_info *info, struct ig_error *err)
{
	const struct ig_hparam_source s = { host, meta, "granitemoe", err };

	return read_any(&s, params, info);
}

/* ---- the model ------------------------------------------------------------------------ */

/* What half of a layer adds. */
static ig_value scaled(struct ig_rec *r, const struct granite *m, ig_value y)
{
	return m->residual_scale == 1 ? y : ig_rec_soft_cap(r, y, m->residual_scale, 0);
}

/* RMSNorm(*x + y); *x becomes that sum. */
static ig_value add_norm(struct ig_rec *r, const struct granite *m, ig_value *x, ig_value y,
			 ig_weight norm, uint32_t gather)
{
	return ig_rec_rms_norm_add(r, x, scaled(r, m, y), norm, m->p.norm_eps, gather);
}

static int record(const struct ig_host *host, struct ig_graph *g, const struct ig_meta *meta,
		  const void *params)
{
	const struct granite *m = params;
	const struct ig_hparams *p = &m->p;
	struct ig_rec r = { host, g };
	struct ig_gqa attention = {
		.p = p,
		.mode = IG_ROPE_PAIRS, /* converters reorder the rows of Q and K */
		.scale = m->attention_scale,
		.group_layers = m->group_layer,
	};
	ig_value x = ig_layer_embed(&r, p, m->embedding_scale), h, y = IG_NONE;

	if (m->has_rope) {
		attention.rope = &m->rope;
		attention.table = ig_layer_rope_table(&r, &m->rope);
		attention.scale *= m->rope.attention;
	}
	for (uint32_t layer = 0; layer < p->n_layers; layer++) {
		ig_weight norm =
			ig_rec_layer_weight(&r, 1, p->width, "blk.%u.attn_norm.weight", layer);
		h = layer ? add_norm(&r, m, &x, y, norm, 0) :
			    ig_rec_rms_norm(&r, x, norm, p->norm_eps);
		y = m->is_mamba[layer] ? mamba2_mixer(&r, meta, p, &m->mamba, layer,
						      m->group_layer[layer], h, IG_NONE) :
					 ig_layer_gqa(&r, &attention, layer, h, IG_NONE);
		norm = ig_rec_layer_weight(&r, 1, p->width, "blk.%u.ffn_norm.weight", layer);
		h = add_norm(&r, m, &x, y, norm, 0);
		y = m->experts.moe.n_experts ?
			    ig_layer_experts(&r, p, &m->experts, layer, h, IG_NONE) :
			    ig_layer_glu(&r, p, IG_ACT_SILU, layer, h, IG_NONE);
	}
	h = add_norm(&r, m, &x, y, ig_rec_weight(&r, 1, p->width, "output_norm.weight"), 1);
	return ig_layer_head_capped(&r, p, h, 1 / m->logit_scale, 0);
}

/* ---- folders of safetensors -------------------------------------------------------------- */

#define GRANITE_KEYS                                                                               \
	IG_CONFIG_DECODER(32, 4096, 11008, 32, 2048, 1e-6), IG_CONFIG_SILU,                        \
		{ "embedding_multiplier", "embedding_scale", IG_CONFIG_F32, 0, 1 },                \
		{ "residual_multiplier", "residual_scale", IG_CONFIG_F32, 0, 1 },                  \
		{ "attention_multiplier", "attention.scale", IG_CONFIG_F32, 0, 1 },                \
		{ "logits_scaling", "logit_scale", IG_CONFIG_F32, 0, 1 },                          \
	{                                                                                          \
		"attention_bias", NULL, IG_CONFIG_FALSE                                            \
	}

#define EXPERTS_KEYS                                                                               \
	{ "num_local_experts", "expert_count", IG_CONFIG_U32, IG_CONFIG_NULLABLE, 8 },             \
		{ "num_experts_per_tok", "expert_used_count", IG_CONFIG_U32, IG_CONFIG_NULLABLE,   \
		  2 }

static const struct ig_config_key dense_keys[] = {
	GRANITE_KEYS,
	IG_CONFIG_KV_HEADS(32),
	{ "mlp_bias", NULL, IG_CONFIG_FALSE },
};
static const struct ig_config_key experts_keys[] = {
	GRANITE_KEYS,
	IG_CONFIG_KV_HEADS_AS_HEADS,
	EXPERTS_KEYS,
};
static const struct ig_config_key shared_keys[] = {
	GRANITE_KEYS,
	IG_CONFIG_KV_HEADS_AS_HEADS,
	EXPERTS_KEYS,
	IG_CONFIG_NUMBER("shared_intermediate_size", "expert_shared_feed_forward_length", 1024),
};
static const struct ig_config_key keys[] = {
	GRANITE_KEYS,
	EXPERTS_KEYS,
	IG_CONFIG_NUMBER("mamba_d_conv", "ssm.conv_kernel", 4),
	IG_CONFIG_NUMBER("mamba_d_state", "ssm.state_size", 256),
	IG_CONFIG_NUMBER("mamba_n_groups", "ssm.group_count", 1),
	IG_CONFIG_NUMBER("mamba_n_heads", "ssm.time_step_rank", 128),
	{ "mamba_proj_bias", NULL, IG_CONFIG_FALSE },
};

/* KV heads by layer, the width of the feed-forward that all layers have, and whether there is RoPE. */
static void config(const struct ig_config *c)
{
	const uint32_t n = c->get_u32(c, "block_count"), width = c->get_u32(c, "embedding_length");
	uint32_t kv[IG_MAX_LAYERS] = { 0 }, n_kv = c->get_u32(c, "attention.head_count");
	uint32_t n_ff = 1024, expand = 2;

	c->u32(c, "num_key_value_heads", &n_kv);
	for (uint32_t i = 0; i < n && i < IG_MAX_LAYERS; i++) {
		const int k = c->word_at(c, "layer_types|layers_block_type", i,
					 "mamba|attention|linear_attention|full_attention");
		if (k < 0) {
			c->refuse(c, -EINVAL, "layer_types", "has no layer %u", i);
			return;
		}
		kv[i] = k % 2 ? n_kv : 0;
	}
	c->put_layers(c, "attention.head_count_kv", kv, n);
	c->u32(c, "shared_intermediate_size", &n_ff);
	c->put_u32(c,
		   c->get_u32(c, "expert_count") ? "expert_shared_feed_forward_length" :
						   "feed_forward_length",
		   n_ff);
	c->u32(c, "mamba_expand", &expand);
	if (expand > 64 || width > 1u << 17)
		c->refuse(c, -ENOTSUP, "mamba_expand", "is %u: not supported", expand);
	else
		c->put_u32(c, "ssm.inner_size", expand * width);
	c->put_u32(c, "rope.scaling.finetuned",
		   c->word(c, "position_embedding_type", "rope|nope") == 0);
}

/* Of a feed-forward's two input matrices transformers makes one. */
static const struct ig_tensor_name names[] = {
	IG_TENSORS_ENDS,
	IG_TENSORS_ATTENTION(IG_TENSOR_PAIRS, 0, 0),
	MAMBA2_TENSORS("mamba"),
	{ "layers.%u.shared_mlp.input_linear", "blk.%u.ffn_gate_shexp|blk.%u.ffn_up_shexp",
	  IG_TENSOR_TWO | IG_TENSOR_IF_EXPERTS },
	{ "layers.%u.shared_mlp.output_linear", "blk.%u.ffn_down_shexp", IG_TENSOR_IF_EXPERTS },
	{ "layers.%u.shared_mlp.input_linear", "blk.%u.ffn_gate|blk.%u.ffn_up", IG_TENSOR_TWO },
	{ "layers.%u.shared_mlp.output_linear", "blk.%u.ffn_down", 0 },
	{ "layers.%u.block_sparse_moe.router.layer", "blk.%u.ffn_gate_inp", IG_TENSOR_F32 },
	{ "layers.%u.block_sparse_moe.input_linear", "blk.%u.ffn_gate_exps|blk.%u.ffn_up_exps",
	  IG_TENSOR_EXPERTS | IG_TENSOR_TWO },
	IG_TENSORS_EXPERT("block_sparse_moe.output_linear", "down"),
	IG_TENSORS_EXPERT("block_sparse_moe.switch_mlp.gate_proj", "gate"), /* MLX */
	IG_TENSORS_EXPERT("block_sparse_moe.switch_mlp.up_proj", "up"),
	IG_TENSORS_EXPERT("block_sparse_moe.switch_mlp.down_proj", "down"),
	IG_TENSORS_GLU, /* MLX, without experts */
};
static const struct ig_arch_files granite_files = {
	.struct_size = sizeof granite_files,
	.model_type = "granitemoehybrid",
	IG_CONFIG_KEYS(keys),
	IG_TENSOR_NAMES(names),
	.rope_theta = 10000,
	.config = config,
};
static const struct ig_arch_files *const files[] = { &granite_files, NULL };

static const struct ig_tensor_name dense_names[] = {
	IG_TENSORS_ENDS,
	IG_TENSORS_ATTENTION(IG_TENSOR_PAIRS, 0, 0),
	IG_TENSORS_GLU,
};
static const struct ig_arch_files dense_granite_files = {
	.struct_size = sizeof dense_granite_files,
	.model_type = "granite",
	IG_CONFIG_KEYS(dense_keys),
	IG_TENSOR_NAMES(dense_names),
	.rope_theta = 10000,
};
static const struct ig_arch_files *const dense_files[] = { &dense_granite_files, NULL };

static const struct ig_arch_files experts_granite_files = {
	.struct_size = sizeof experts_granite_files,
	.model_type = "granitemoe",
	IG_CONFIG_KEYS(experts_keys),
	IG_TENSOR_NAMES(names),
	.rope_theta = 10000,
};
static const struct ig_arch_files shared_granite_files = {
	.struct_size = sizeof shared_granite_files,
	.model_type = "granitemoeshared",
	IG_CONFIG_KEYS(shared_keys),
	IG_TENSOR_NAMES(names),
	.rope_theta = 10000,
};
static const struct ig_arch_files *const experts_files[] = { &experts_granite_files,
							     &shared_granite_files, NULL };

const struct ig_arch ig_arch_granitehybrid = {
	.struct_size = sizeof(struct ig_arch),
	.params_size = sizeof(struct granite),
	.name = "granitehybrid",
	.read_params = read_hybrid,
	.record = record,
	.files = files,
};

const struct ig_arch ig_arch_granite = {
	.struct_size = sizeof(struct ig_arch),
	.params_size = sizeof(struct granite),
	.name = "granite",
	.read_params = read_dense,
	.record = record,
	.files = dense_files,
};

const struct ig_arch ig_arch_granitemoe = {
	.struct_size = sizeof(struct ig_arch),
	.params_size = sizeof(struct granite),
	.name = "granitemoe",
	.read_params = read_experts,
	.record = record,
	.files = experts_files,
};
