/*
 * arch_laguna.c: Laguna (Poolside 2026; transformers' modeling_laguna.py).  Full layers, whose RoPE covers a
 * part of each head and has YaRN, and layers with a sliding window, which have more heads.  QK norm; the
 * attention's output has a softplus gate, a number of each head, or of each value.  The first layers are dense,
 * the others have experts that a sigmoid router selects with a bias that is only for the selection, and a shared
 * expert.
 */
#include <ingot/arch_files.h>
#include <ingot/layers.h>

enum { FULL = 0, LOCAL = 1 }; /* kinds of layers; LOCAL: sliding window */

struct laguna {
	struct ig_hparams p; /* n_heads: of the first layer */
	struct ig_experts experts;
	struct ig_rope rope[2]; /* by kind */
	uint32_t window;
	uint32_t group[2]; /* of the cache */
	uint8_t kind[IG_MAX_LAYERS];
	uint16_t group_layer[IG_MAX_LAYERS];
	uint32_t n_heads[IG_MAX_LAYERS];
};

/* Which layers have the window: a list, or a number n: all but each n-th, from the first on; 0: all. */
static int read_kinds(const struct ig_hparam_source *s, struct laguna *m)
{
	const uint32_t no_window = 0, every = 4, n = m->p.n_layers;
	uint32_t local[IG_MAX_LAYERS], period = 0;
	int rc = ig_hparam_u32(s, "attention.sliding_window", 0, 1u << 24, &no_window, &m->window);

	memset(m->kind, FULL, sizeof m->kind);
	if (rc || !m->window)
		return rc;
	rc = ig_hparam_u32(s, "attention.sliding_window_pattern", 0, UINT32_MAX, &every, &period);
	for (uint32_t i = 0; !rc && i < n; i++)
		local[i] = !period || i % period;
	if (rc == -EINVAL)
		rc = ig_hparam_layers(s, "attention.sliding_window_pattern", n, local);
	for (uint32_t i = 0; !rc && i < n; i++)
		m->kind[i] = local[i] ? LOCAL : FULL;
	return rc;
}

static int read_heads(const struct ig_hparam_source *s, struct laguna *m)
{
	struct ig_hparams *p = &m->p;
	uint32_t kv[IG_MAX_LAYERS], n_values;
	int rc;

	if ((rc = ig_hparam_each_layer(s, "attention.head_count", 1, IG_ATTENTION_MAX_HEADS,
				       p->n_layers, m->n_heads)) ||
	    (rc = ig_hparam_each_layer(s, "attention.head_count_kv", 1, IG_ATTENTION_MAX_HEADS,
				       p->n_layers, kv)) ||
	    (rc = ig_hparam_u32(s, "attention.key_length", 8, IG_ATTENTION_MAX_HEAD_DIM, NULL,
				&p->head_dim)) ||
	    (rc = ig_hparam_u32(s, "attention.value_length", 0, UINT32_MAX, &p->head_dim,
				&n_values)))
		return rc;
	p->n_heads = m->n_heads[0];
	p->n_kv_heads = kv[0];
	if (p->head_dim % 8 || n_values != p->head_dim)
		return ig_fail(
			s->err, -ENOTSUP,
			"%s.attention.key_length %u with values of %u is not supported: equal "
			"multiples of 8 are",
			s->arch, p->head_dim, n_values);
	for (uint32_t i = 0; i < p->n_layers; i++)
		if (kv[i] != kv[0] || m->n_heads[i] % kv[0])
			return ig_fail(
				s->err, -EINVAL,
				"%s.attention.head_count is %u for layer %u with %u KV heads",
				s->arch, m->n_heads[i], i, kv[i]);
	return 0;
}

static int read_ropes(const struct ig_hparam_source *s, struct laguna *m)
{
	struct ig_rope_table_params *local = &m->rope[LOCAL].table;
	uint32_t n_rotated;
	int rc = ig_hparams_rope(s, &m->p, &m->rope[FULL]);

	m->rope[LOCAL] =
		(struct ig_rope){ .table = { .struct_size = sizeof *local, .freq_scale = 1 },
				  .attention = 1 };
	if (rc ||
	    (rc = ig_hparam_f32(s, "rope.freq_base_swa", 1, 1e12f, &m->rope[FULL].table.freq_base,
				&local->freq_base)) ||
	    (rc = ig_hparam_u32(s, "rope.dimension_count_swa", 2, m->p.head_dim, &m->p.head_dim,
				&n_rotated)))
		return rc;
	local->n_pairs = n_rotated / 2;
	return n_rotated % 2 ? ig_fail(s->err, -EINVAL, "%s.rope.dimension_count_swa %u is odd",
				       s->arch, n_rotated) :
			       0;
}

static int read_params(const struct ig_host *host, const struct ig_meta *meta, void *params,
		       struct ig_model_info *info, struct ig_error *err)
{
	const struct ig_hparam_source s = { host, meta, "laguna", err };
	const uint32_t sigmoid = 2;
	struct laguna *m = params;
	struct ig_hparams *p = &m->p;
	int rc;

	if ((rc = ig_hparams_read_sizes(&s, p)) ||
	    (rc = ig_hparam_u32(&s, "feed_forward_length", 8, 1u << 20, NULL, &p->n_ff)) ||
	    (rc = ig_hparam_f32(&s, IG_RMS_NORM_EPS, 0, 1, NULL, &p->norm_eps)) ||
	    (rc = read_kinds(&s, m)) || (rc = read_heads(&s, m)) || (rc = read_ropes(&s, m)) ||
	    (rc = ig_hparams_experts_shared(&s, p, sigmoid, &m->experts)))
		return rc;
	ig_hparams_info_kinds(p, m->kind, m->window, m->group, m->group_layer, info);
	return 0;
}

/* ---- the model ------------------------------------------------------------------------ */

/* The gate's values of a head: what the rows of its matrix say. */
static uint32_t gate_dim(const struct ig_host *host, const struct ig_meta *meta,
			 const struct laguna *m, uint32_t layer)
{
	int64_t n_rows = 0, n_cols;
	char name[48];

	snprintf(name, sizeof name, "blk.%u.attn_gate.weight", layer);
	if (host->meta_tensor(meta, name, &n_rows, &n_cols))
		return 1;
	return n_rows == m->n_heads[layer] ? 1 : m->p.head_dim;
}

static int record(const struct ig_host *host, struct ig_graph *g, const struct ig_meta *meta,
		  const void *params)
{
	const struct laguna *m = params;
	struct ig_rec r = { host, g };
	ig_value tables[2] = { IG_NONE, IG_NONE }, x, h;

	for (uint32_t kind = FULL; kind <= LOCAL; kind++)
		if (memchr(m->kind, (int)kind, m->p.n_layers))
			tables[kind] = ig_layer_rope_table(&r, &m->rope[kind]);
	x = ig_layer_embed(&r, &m->p, 1);
	for (uint32_t layer = 0; layer < m->p.n_layers; layer++) {
		const uint32_t kind = m->kind[layer];
		struct ig_hparams p = m->p;
		const struct ig_gqa attention = {
			.p = &p,
			.rope = &m->rope[kind],
			.table = tables[kind],
			.mode = IG_ROPE_HALVES,
			.flags = IG_GQA_HEAD_NORMS,
			.window = kind == LOCAL ? m->window : 0,
			.group = m->group[kind],
			.group_layers = m->group_layer,
			.gate = IG_GATE_SOFTPLUS,
			.gate_dim = gate_dim(host, meta, m, layer),
		};

		p.n_heads = m->n_heads[layer];
		h = ig_layer_rms_norm(&r, &p, "blk.%u.attn_norm.weight", layer, x);
		x = ig_layer_gqa(&r, &attention, layer, h, x);
		h = ig_layer_rms_norm(&r, &p, "blk.%u.ffn_norm.weight", layer, x);
		x = ig_layer_experts(&r, &p, &m->experts, layer, h, x);
	}
	return ig_layer_norm_head(&r, &m->p, x);
}

/* ---- folders of safetensors -------------------------------------------------------------- */

static const struct ig_config_key keys[] = {
	IG_CONFIG_DECODER(40, 2048, 8192, 48, 131072, 1e-6),
	IG_CONFIG_KV_HEADS(8),
	IG_CONFIG_SILU,
	{ "sliding_window", "attention.sliding_window", IG_CONFIG_U32, IG_CONFIG_NULLABLE, 512 },
	{ "layer_types", "attention.sliding_window_pattern", IG_CONFIG_LAYERS, 0, 0,
	  "full_attention|sliding_attention" },
	{ "rope_parameters.sliding_attention.rope_theta", "rope.freq_base_swa", IG_CONFIG_F32, 0,
	  10000 },
	{ "rope_parameters.sliding_attention.rope_type", NULL, IG_CONFIG_WORD, 0, 0, "default" },
	{ "num_experts", "expert_count", IG_CONFIG_U32, 0, 256 },
	{ "num_experts_per_tok", "expert_used_count", IG_CONFIG_U32, 0, 8 },
	{ "moe_intermediate_size", "expert_feed_forward_length", IG_CONFIG_U32, 0, 512 },
	{ "shared_expert_intermediate_size", "expert_shared_feed_forward_length", IG_CONFIG_U32, 0,
	  512 },
	{ "moe_routed_scaling_factor", "expert_weights_scale", IG_CONFIG_F32, 0, 1 },
	{ "moe_router_logit_softcapping", NULL, IG_CONFIG_REFUSED },
	{ "moe_apply_router_weight_on_input", NULL, IG_CONFIG_FALSE },
	{ "attention_bias", NULL, IG_CONFIG_FALSE },
};
static const struct ig_tensor_name names[] = {
	IG_TENSORS_ENDS,
	IG_TENSORS_ATTENTION(0, 0, 0),
	IG_TENSORS_QK_NORM(0),
	{ "layers.%u.self_attn.g_proj", "blk.%u.attn_gate", 0 },
	IG_TENSORS_GLU,
	IG_TENSORS_EXPERTS("mlp", "gate_proj", "up_proj", "down_proj"),
	{ "layers.%u.mlp.gate.proj", "blk.%u.ffn_gate_inp", IG_TENSOR_F32 }, /* MLX's */
	{ "layers.%u.mlp.gate.e_score_correction_bias", "blk.%u.exp_probs_b.bias",
	  IG_TENSOR_NAMED },
	{ "layers.%u.mlp.experts.e_score_correction_bias", "blk.%u.exp_probs_b.bias",
	  IG_TENSOR_NAMED },
	IG_TENSORS_SHARED_EXPERT("mlp.shared_experts"),
	IG_TENSORS_SHARED_EXPERT("mlp.shared_expert"),
};

static void put_heads(const struct ig_config *c, uint32_t n)
{
	uint32_t heads[IG_MAX_LAYERS];
	float f;

	if (c->f32_at(c, "num_attention_heads_per_layer", 0, &f) <= 0)
		return;
	for (uint32_t i = 0; i < n; i++) {
		if (c->f32_at(c, "num_attention_heads_per_layer", i, &f) <= 0 || f < 1 ||
		    f > IG_ATTENTION_MAX_HEADS || f != floorf(f)) {
			c->refuse(c, -EINVAL, "num_attention_heads_per_layer",
				  "has no number of heads for layer %u", i);
			return;
		}
		heads[i] = (uint32_t)f;
	}
	c->put_layers(c, "attention.head_count", heads, n);
}

static void config(const struct ig_config *c)
{
	static const char kinds[] = "dense|sparse";
	const uint32_t n = c->get_u32(c, "block_count"),
		       dim = c->get_u32(c, "attention.key_length");
	uint32_t n_dense = 1;
	float theta, part = 1;

	if (n > IG_MAX_LAYERS)
		return; /* and refused */
	if (c->f32(c, "rope_parameters.full_attention.rope_theta", &theta) <= 0)
		c->refuse(c, -ENOTSUP, "rope_parameters", "has no full_attention with rope_theta");
	c->f32(c, "rope_parameters.sliding_attention.partial_rotary_factor", &part);
	if (!(part > 0 && part <= 1))
		c->refuse(c, -EINVAL, "partial_rotary_factor", "is %g", (double)part);
	else
		c->put_u32(c, "rope.dimension_count_swa", (uint32_t)(part * (float)dim));
	put_heads(c, n);
	if (c->word_at(c, "mlp_layer_types", 0, kinds) >= 0)
		for (n_dense = 0;
		     n_dense < n && c->word_at(c, "mlp_layer_types", n_dense, kinds) == 0;)
			n_dense++;
	for (uint32_t i = n_dense; i < n && c->word_at(c, "mlp_layer_types", 0, kinds) >= 0; i++)
		if (c->word_at(c, "mlp_layer_types", i, kinds) != 1)
			c->refuse(c, -ENOTSUP, "mlp_layer_types",
				  "is not of dense layers, then sparse ones");
	c->put_u32(c, "leading_dense_block_count", n_dense);
	c->put_u32(c, "expert_weights_norm", 1);
	c->put_u32(c, "expert_gating_func", 2);
}

static const struct ig_arch_files laguna_files = {
	.struct_size = sizeof laguna_files,
	.model_type = "laguna",
	IG_CONFIG_KEYS(keys),
	IG_TENSOR_NAMES(names),
	.rope_theta = 5e5,
	.head_dim = 128,
	.rotary_percent = 100,
	.config = config,
};
static const struct ig_arch_files *const files[] = { &laguna_files, NULL };

const struct ig_arch ig_arch_laguna = {
	.struct_size = sizeof(struct ig_arch),
	.params_size = sizeof(struct laguna),
	.name = "laguna",
	.read_params = read_params,
	.record = record,
	.files = files,
};
