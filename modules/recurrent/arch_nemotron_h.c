/*
 * arch_nemotron_h.c: Nemotron-H and Nemotron 3 (NVIDIA 2025, arXiv:2504.03624).  A block is an RMS norm, one mixer
 * and a residual: Mamba-2, grouped-query attention without RoPE, a feed-forward with relu^2 and no gate, or
 * experts of that form, which a sigmoid router selects with a bias that is only for the selection, beside a shared
 * one; in the larger models they work on fewer columns, between two matrices, and in Puzzle's their number and width
 * differ by layer.  Blocks that predict further tokens are left out.
 */
#include "mamba2.h"

#include <ingot/arch_files.h>

#include <stdbool.h>
#include <stdio.h>

enum kind { MAMBA, ATTENTION, DENSE, EXPERTS };

struct nemotron_h {
	struct ig_hparams p;
	struct ig_experts experts; /* moe.n_experts 0: none */
	struct ig_experts_layers of_layers;
	struct mamba2 mamba;
	uint32_t latent; /* columns of the experts, if not the model's; or 0 */
	uint32_t n_ff[IG_MAX_LAYERS];
	uint8_t kind[IG_MAX_LAYERS];	     /* enum kind */
	uint16_t group_layer[IG_MAX_LAYERS]; /* the layer's index among those of its kind */
};

static int set_kinds(const struct ig_hparam_source *s, struct nemotron_h *m, const uint32_t *kv,
		     struct ig_model_info *info)
{
	uint16_t n[4] = { 0 };
	uint32_t first = 0;
	int rc;

	for (uint32_t i = 0; i < m->p.n_layers; i++) {
		m->kind[i] = kv[i]	 ? ATTENTION :
			     !m->n_ff[i] ? MAMBA :
			     ig_meta_layer_has(s->host, s->meta, "blk.%u.ffn_gate_inp.weight", i) ?
					   EXPERTS :
					   DENSE;
		if (m->kind[i] == MAMBA && !n[MAMBA])
			first = i;
		m->group_layer[i] = n[m->kind[i]]++;
	}
	if (!n[MAMBA] || !n[ATTENTION])
		return ig_fail(s->err, -ENOTSUP,
			       "%s: %u layers with attention and %u with Mamba-2: both are needed",
			       s->arch, n[ATTENTION], n[MAMBA]);
	if (n[EXPERTS] && !m->experts.moe.n_experts)
		return ig_fail(s->err, -EINVAL,
			       "%s.expert_count is missing: %u layers have experts", s->arch,
			       n[EXPERTS]);
	for (uint32_t i = 0; i < m->p.n_layers; i++)
		if (m->kind[i] == EXPERTS && !m->of_layers.top_k[i])
			return ig_fail(s->err, -EINVAL,
				       "layer %u has experts, but %s.expert_used_count or "
				       "expert_feed_forward_length is 0 there",
				       i, s->arch);
	if ((rc = mamba2_read(s, first, &m->mamba)))
		return rc;
	ig_hparams_info(&m->p, 0, info);
	info->groups[0].n_layers = n[ATTENTION];
	mamba2_groups(&m->mamba, n[MAMBA], info);
	return 0;
}

static int read_experts(const struct ig_hparam_source *s, struct nemotron_h *m)
{
	const uint32_t sigmoid = 2, none = 0;
	int rc = ig_hparams_experts_shared_by(s, &m->p, sigmoid, &m->experts, &m->of_layers);

	m->experts.moe.act = IG_ACT_RELU2;
	m->experts.moe.form = IG_MOE_UP;
	m->experts.moe.sum_epsilon = 1e-20f;
	if (rc || (rc = ig_hparam_u32(s, "moe_latent_size", 0, 1u << 17, &none, &m->latent)))
		return rc;
	if (m->latent % 16)
		return ig_fail(s->err, -ENOTSUP,
			       "%s.moe_latent_size is %u; multiples of 16 are supported", s->arch,
			       m->latent);
	for (uint32_t i = 0; i < m->p.n_layers; i++)
		if (ig_meta_layer_has(s->host, s->meta, "blk.%u.exp_probs_b.bias", i))
			m->experts.flags |= IG_EXPERTS_SELECT_BIAS;
	return 0;
}

static int read_model(const struct ig_hparam_source *s, struct nemotron_h *m,
		      struct ig_model_info *info)
{
	const uint32_t none = 0;
	const float no_eps = 1;
	uint32_t kv[IG_MAX_LAYERS], experts;
	float eps;
	int rc;

	/* llama.cpp's converter writes a config.json's layer_norm_epsilon under the key of another kind of
	 * norm, and this one only if there is a second name for it */
	if ((rc = ig_hparam_f32(s, IG_RMS_NORM_EPS, 0, 1, &no_eps, &eps)) ||
	    (rc = ig_hparams_read_mixed(s, eps < 1 ? IG_RMS_NORM_EPS : IG_LAYER_NORM_EPS, &m->p, kv,
					m->n_ff)))
		return rc;
	if ((rc = ig_hparam_u32(s, "expert_count", 0, IG_MOE_MAX_EXPERTS, &none, &experts)) ||
	    (experts && (rc = read_experts(s, m))))
		return rc;
	return set_kinds(s, m, kv, info);
}

static int read_dense(const struct ig_host *host, const struct ig_meta *meta, void *params,
		      struct ig_model_info *info, struct ig_error *err)
{
	const struct ig_hparam_source s = { host, meta, "nemotron_h", err };
	int rc = ig_hparam_refuse_u32(&s, "expert_count", "experts");

	return rc ? rc : read_model(&s, params, info);
}

static int read_moe(const struct ig_host *host, const struct ig_meta *meta, void *params,
		    struct ig_model_info *info, struct ig_error *err)
{
	const struct ig_hparam_source s = { host, meta, "nemotron_h_moe", err };

	return read_model(&s, params, info);
}

/* ---- the model ------------------------------------------------------------------------ */

/* Down(relu(Up(h))^2) + residual */
static ig_value feed_forward(struct ig_rec *r, const struct nemotron_h *m, uint32_t layer,
			     ig_value h, ig_value residual)
{
	const struct ig_linear_params plain = { .struct_size = sizeof plain,
						.n_weights = 1,
						.act = IG_ACT_RELU2 };
	ig_weight up, down;

	up = ig_rec_layer_weight(r, m->n_ff[layer], m->p.width, "blk.%u.ffn_up.weight", layer);
	down = ig_rec_layer_weight(r, m->p.width, m->n_ff[layer], "blk.%u.ffn_down.weight", layer);
	h = ig_rec_op(r, "linear", &plain, &h, 1, &up, 1);
	return ig_rec_linear(r, h, &down, 1, residual);
}

/* The experts' sum, by way of fewer columns, + the shared one + residual */
static ig_value latent_experts(struct ig_rec *r, const struct nemotron_h *m,
			       const struct ig_experts *e, uint32_t layer, ig_value h,
			       ig_value residual)
{
	struct ig_hparams narrow = m->p;
	const ig_value route = ig_experts_route(r, &m->p, e, layer, h);
	ig_weight down, up;
	ig_value x;

	narrow.width = m->latent;
	down = ig_rec_layer_weight(r, m->latent, m->p.width, "blk.%u.ffn_latent_down.weight",
				   layer);
	up = ig_rec_layer_weight(r, m->p.width, m->latent, "blk.%u.ffn_latent_up.weight", layer);
	if (e->n_ff_shared)
		residual = ig_experts_shared(r, &m->p, e, layer, h, residual);
	x = ig_rec_linear(r, h, &down, 1, IG_NONE);
	x = ig_experts_sum(r, &narrow, e, layer, x, route, IG_NONE, IG_NONE);
	return ig_rec_linear(r, x, &up, 1, residual);
}

static ig_value experts(struct ig_rec *r, const struct nemotron_h *m, uint32_t layer, ig_value h,
			ig_value residual)
{
	const struct ig_experts e = ig_experts_of_layer(&m->experts, &m->of_layers, layer);

	return m->latent ? latent_experts(r, m, &e, layer, h, residual) :
			   ig_layer_experts(r, &m->p, &e, layer, h, residual);
}

static int record(const struct ig_host *host, struct ig_graph *g, const struct ig_meta *meta,
		  const void *params)
{
	const struct nemotron_h *m = params;
	const struct ig_hparams *p = &m->p;
	struct ig_rec r = { host, g };
	const struct ig_gqa attention = { .p = p, .group_layers = m->group_layer };
	ig_value x = ig_layer_embed(&r, p, 1), h;

	for (uint32_t layer = 0; layer < p->n_layers; layer++) {
		h = ig_layer_rms_norm(&r, p, "blk.%u.attn_norm.weight", layer, x);
		switch (m->kind[layer]) {
		case MAMBA:
			x = mamba2_mixer(&r, meta, p, &m->mamba, layer, m->group_layer[layer], h,
					 x);
			break;
		case ATTENTION: x = ig_layer_gqa(&r, &attention, layer, h, x); break;
		case DENSE: x = feed_forward(&r, m, layer, h, x); break;
		default: x = experts(&r, m, layer, h, x);
		}
	}
	return ig_layer_norm_head(&r, p, x);
}

/* ---- folders of safetensors -------------------------------------------------------------- */

/* In Puzzle's files, what a block has is in its item of block_configs. */
static const struct ig_config_key keys[] = {
	{ "layers_block_type|block_configs|hybrid_override_pattern", "block_count", IG_CONFIG_COUNT,
	  IG_CONFIG_REQUIRED },
	IG_CONFIG_NUMBER("hidden_size", "embedding_length", 4096),
	IG_CONFIG_NUMBER("num_attention_heads", "attention.head_count", 32),
	IG_CONFIG_NUMBER("max_position_embeddings", "context_length", 4096),
	{ "layer_norm_epsilon|norm_eps", "attention.layer_norm_rms_epsilon", IG_CONFIG_F32, 0,
	  1e-5 },
	IG_CONFIG_NUMBER("conv_kernel", "ssm.conv_kernel", 4),
	IG_CONFIG_NUMBER("ssm_state_size", "ssm.state_size", 128),
	IG_CONFIG_NUMBER("n_groups|mamba_n_groups", "ssm.group_count", 8),
	IG_CONFIG_NUMBER("mamba_num_heads", "ssm.time_step_rank", 128),
	{ "routed_scaling_factor", "expert_weights_scale", IG_CONFIG_F32, 0, 1 },
	{ "mlp_hidden_act", NULL, IG_CONFIG_WORD, 0, 0, "relu2" },
	{ "mamba_hidden_act", NULL, IG_CONFIG_WORD, 0, 0, "silu" },
	{ "attention_bias", NULL, IG_CONFIG_FALSE },
	{ "mlp_bias", NULL, IG_CONFIG_FALSE },
	{ "use_bias", NULL, IG_CONFIG_FALSE },
	{ "mamba_proj_bias", NULL, IG_CONFIG_FALSE },
	{ "sliding_window", NULL, IG_CONFIG_REFUSED },
};

static const char words[] = "mamba|attention|mlp|moe|linear_attention|full_attention";

/* As c->u32, of a block: its own number, or the model's. */
static int of_block(const struct ig_config *c, uint32_t layer, const char *key, uint32_t *out)
{
	char name[128];

	snprintf(name, sizeof name, "block_configs.%u.%s|%s", layer, key, key);
	return c->u32(c, name, out);
}

/* What all layers with experts have alike.  kind, ff, used: by layer; used has the experts that one uses. */
static void put_experts(const struct ig_config *c, const uint8_t *kind, const uint32_t *ff,
			const uint32_t *used, uint32_t n)
{
	static const struct {
		const char *name, *gguf;
		uint32_t fallback;
	} keys_of[] = {
		{ "n_routed_experts", "expert_count", 8 },
		{ "n_shared_experts", "expert_shared_count", 1 },
		{ "moe_shared_expert_intermediate_size", "expert_shared_feed_forward_length",
		  7688 },
		{ "n_group", "expert_group_count", 1 },
		{ "topk_group", "expert_group_used_count", 1 },
		{ "moe_latent_size", "moe_latent_size", 0 },
	};
	uint32_t norm = 1, first = 0, width[IG_MAX_LAYERS];
	bool differ = false;

	while (kind[first] != EXPERTS)
		first++;
	for (size_t k = 0; k < sizeof keys_of / sizeof *keys_of; k++) {
		uint32_t value = keys_of[k].fallback;
		of_block(c, first, keys_of[k].name, &value);
		c->put_u32(c, keys_of[k].gguf, value);
		for (uint32_t i = first + 1; i < n; i++) {
			uint32_t other = keys_of[k].fallback;
			if (kind[i] != EXPERTS)
				continue;
			of_block(c, i, keys_of[k].name, &other);
			if (other != value)
				c->refuse(c, -ENOTSUP, keys_of[k].name,
					  "is %u in layer %u and %u in layer %u: not supported",
					  value, first, other, i);
		}
	}
	for (uint32_t i = 0; i < n; i++) {
		width[i] = kind[i] == EXPERTS ? ff[i] : 0;
		differ |= kind[i] == EXPERTS && (ff[i] != ff[first] || used[i] != used[first]);
	}
	if (differ) {
		c->put_layers(c, "expert_used_count", used, n);
		c->put_layers(c, "expert_feed_forward_length", width, n);
	} else {
		c->put_u32(c, "expert_used_count", used[first]);
		c->put_u32(c, "expert_feed_forward_length", ff[first]);
	}
	c->flag(c, "norm_topk_prob", &norm);
	c->put_u32(c, "expert_weights_norm", norm);
}

/* A block's kind by its item of block_configs; -1: there is none. */
static int kind_of_block(const struct ig_config *c, uint32_t i)
{
	char name[64];

	snprintf(name, sizeof name, "block_configs.%u.block_type", i);
	return c->word(c, name, words);
}

/* A layer's kind; -1: the file has none, or is refused. */
static int kind_at(const struct ig_config *c, uint32_t layer)
{
	static const int8_t kinds[] = { MAMBA, ATTENTION, DENSE, EXPERTS, MAMBA, ATTENTION };
	int k = c->word_at(c, "layers_block_type", layer, words), own = kind_of_block(c, layer);

	if (k < 0)
		k = c->word_at(c, "hybrid_override_pattern", layer, "M|*|-|E");
	if (own < 0 && kind_of_block(c, 0) >= 0)
		c->refuse(c, -EINVAL, "block_configs", "has no block for layer %u", layer);
	else if (own >= 0 && k >= 0 && kinds[own] != kinds[k])
		c->refuse(c, -EINVAL, "block_configs", "has another kind of block for layer %u",
			  layer);
	k = k < 0 ? own : k;
	return k < 0 ? -1 : kinds[k];
}

/* The numbers of one layer by its kind: KV heads of attention; columns of a feed-forward, or of an expert; the
 * experts that are used. */
static void read_layer(const struct ig_config *c, uint32_t i, uint8_t kind, uint32_t *kv,
		       uint32_t *ff, uint32_t *used)
{
	uint32_t window = 0;

	switch (kind) {
	case ATTENTION:
		*kv = 8;
		of_block(c, i, "num_key_value_heads", kv);
		break;
	case DENSE:
		*ff = 21504;
		of_block(c, i, "intermediate_size", ff);
		break;
	case EXPERTS:
		*ff = 7688;
		*used = 2;
		of_block(c, i, "moe_intermediate_size", ff);
		of_block(c, i, "num_experts_per_tok", used);
	}
	if (of_block(c, i, "sliding_window", &window) == 1 && window)
		c->refuse(c, -ENOTSUP, "sliding_window", "is %u in layer %u: not supported", window,
			  i);
}

/* What one kind of layers has; by their list, GGUF has heads and widths of each layer. */
static void put_layers(const struct ig_config *c)
{
	const uint32_t n = c->get_u32(c, "block_count");
	uint32_t kv[IG_MAX_LAYERS] = { 0 }, ff[IG_MAX_LAYERS] = { 0 }, used[IG_MAX_LAYERS] = { 0 };
	uint8_t kind[IG_MAX_LAYERS] = { 0 };
	uint32_t heads, head_dim = 64;
	bool experts = false;

	for (uint32_t i = 0; i < n && i < IG_MAX_LAYERS; i++) {
		int k = kind_at(c, i);
		if (k < 0) {
			c->refuse(c, -EINVAL, "layers_block_type", "has no layer %u", i);
			return;
		}
		kind[i] = (uint8_t)k;
		read_layer(c, i, kind[i], &kv[i], &ff[i], &used[i]);
		experts |= k == EXPERTS;
	}
	if (kind_of_block(c, n) >= 0)
		c->refuse(c, -EINVAL, "block_configs", "has a block for layer %u, of %u", n, n);
	c->put_layers(c, "attention.head_count_kv", kv, n);
	c->put_layers(c, "feed_forward_length", ff, n);
	if (experts)
		put_experts(c, kind, ff, used, n);
	c->u32(c, "mamba_head_dim", &head_dim);
	heads = c->get_u32(c, "ssm.time_step_rank");
	if (!heads || heads > IG_SELECTIVE_SCAN_MAX_HEADS || head_dim > IG_SELECTIVE_SCAN_MAX_DIM)
		c->refuse(c, -ENOTSUP, "mamba_head_dim", "is %u, of %u heads: not supported",
			  head_dim, heads);
	else
		c->put_u32(c, "ssm.inner_size", heads * head_dim);
}

static const struct ig_tensor_name names[] = {
	{ "embeddings", "token_embd", 0 },
	{ "embed_tokens", "token_embd", 0 },
	{ "norm_f", "output_norm", 0 },
	{ "lm_head", "output", 0 },
	{ "layers.%u.norm", "blk.%u.attn_norm", 0 },
	{ "layers.%u.mixer.q_proj", "blk.%u.attn_q", 0 },
	{ "layers.%u.mixer.k_proj", "blk.%u.attn_k", 0 },
	{ "layers.%u.mixer.v_proj", "blk.%u.attn_v", 0 },
	{ "layers.%u.mixer.o_proj", "blk.%u.attn_output", 0 },
	MAMBA2_TENSORS("mixer"),
	{ "layers.%u.mixer.up_proj", "blk.%u.ffn_up", 0 },
	{ "layers.%u.mixer.down_proj", "blk.%u.ffn_down", 0 },
	{ "layers.%u.mixer.gate", "blk.%u.ffn_gate_inp", IG_TENSOR_F32 },
	{ "layers.%u.mixer.gate.e_score_correction_bias", "blk.%u.exp_probs_b.bias",
	  IG_TENSOR_NAMED },
	IG_TENSORS_EXPERT("mixer.experts.up_proj", "up"),
	IG_TENSORS_EXPERT("mixer.experts.down_proj", "down"),
	IG_TENSORS_EXPERT("mixer.experts.*.up_proj", "up"),
	IG_TENSORS_EXPERT("mixer.experts.*.down_proj", "down"),
	IG_TENSORS_EXPERT("mixer.switch_mlp.fc1", "up"), /* MLX */
	IG_TENSORS_EXPERT("mixer.switch_mlp.fc2", "down"),
	{ "layers.%u.mixer.shared_experts.up_proj", "blk.%u.ffn_up_shexp", 0 },
	{ "layers.%u.mixer.shared_experts.down_proj", "blk.%u.ffn_down_shexp", 0 },
	{ "layers.%u.mixer.fc1_latent_proj", "blk.%u.ffn_latent_down", 0 },
	{ "layers.%u.mixer.fc2_latent_proj", "blk.%u.ffn_latent_up", 0 },
};
/* nemotron_h_moe reads those without experts, too. */
#define FILES(type)                                                                                \
	{ .struct_size = sizeof(struct ig_arch_files),                                             \
	  .model_type = (type),                                                                    \
	  .gguf = "nemotron_h_moe",                                                                \
	  IG_CONFIG_KEYS(keys),                                                                    \
	  IG_TENSOR_NAMES(names),                                                                  \
	  .head_dim = 128,                                                                         \
	  .config = put_layers }
static const struct ig_arch_files nemotron_h_files = FILES("nemotron_h"),
				  puzzle_files = FILES("nemotron_h_puzzle");
static const struct ig_arch_files *const files[] = { &nemotron_h_files, &puzzle_files, NULL };

const struct ig_arch ig_arch_nemotron_h = {
	.struct_size = sizeof(struct ig_arch),
	.params_size = sizeof(struct nemotron_h),
	.name = "nemotron_h",
	.read_params = read_dense,
	.record = record,
};
const struct ig_arch ig_arch_nemotron_h_moe = {
	.struct_size = sizeof(struct ig_arch),
	.params_size = sizeof(struct nemotron_h),
	.name = "nemotron_h_moe",
	.read_params = read_moe,
	.record = record,
	.files = files,
};
