/*
 * arch_qwen35.c: the text model of Qwen 3.5 and later (Qwen Team 2026).  Three of four layers have a gated
 * delta net (Yang, Kautz and Hatamizadeh 2024, arXiv:2412.06464) instead of attention: q | k | v pass a
 * short convolution and SiLU, the delta rule keeps a matrix for each head of values, and its output is
 * normalised by head and gated.  The others have grouped-query attention with QK norm, RoPE of a
 * part of each head, and an output gate.  RMS norms before both and before a gated feed-forward.
 * In GGUF head h of values has the head h % n_k_heads of keys.
 */
#include <ingot/arch_files.h>
#include <ingot/layers.h>

#define PART_BYTES (1u << 20) /* of a part of the state, at most, unless a head has more */

struct qwen35 {
	struct ig_hparams p;
	struct ig_rope rope;
	struct ig_gated_delta_params delta;
	uint32_t n_taps;
	uint32_t conv_state;		     /* the cache group of the convolutions */
	uint32_t recurrent[IG_MAX_LAYERS];   /* 1: a gated delta net */
	uint16_t group_layer[IG_MAX_LAYERS]; /* the layer's index among those of its kind */
};

/* A list, or every n-th layer has attention. */
static int read_kinds(const struct ig_hparam_source *s, struct qwen35 *m)
{
	const uint32_t fourth = 4;
	uint32_t period;
	int rc = ig_hparam_layers(s, "attention.recurrent_layers", m->p.n_layers, m->recurrent);

	if (rc != -ENOENT)
		return rc;
	rc = ig_hparam_u32(s, "full_attention_interval", 1, UINT32_MAX, &fourth, &period);
	for (uint32_t i = 0; !rc && i < m->p.n_layers; i++)
		m->recurrent[i] = (i + 1) % period != 0;
	return rc;
}

static int read_delta(const struct ig_hparam_source *s, struct qwen35 *m)
{
	struct ig_gated_delta_params *d = &m->delta;
	uint32_t inner;
	int rc;

	*d = (struct ig_gated_delta_params){ .struct_size = sizeof *d,
					     .tiled = 1,
					     .norm_eps = 1e-6f };
	if ((rc = ig_hparam_u32(s, "ssm.conv_kernel", 2, IG_CONV1D_MAX_TAPS, NULL, &m->n_taps)) ||
	    (rc = ig_hparam_u32(s, "ssm.state_size", 1, IG_GATED_DELTA_MAX_DIM, NULL, &d->k_dim)) ||
	    (rc = ig_hparam_u32(s, "ssm.group_count", 1, IG_GATED_DELTA_MAX_HEADS, NULL,
				&d->n_k_heads)) ||
	    (rc = ig_hparam_u32(s, "ssm.time_step_rank", 1, IG_GATED_DELTA_MAX_HEADS, NULL,
				&d->n_v_heads)) ||
	    (rc = ig_hparam_u32(s, "ssm.inner_size", 1, 1u << 20, NULL, &inner)))
		return rc;
	if (d->n_v_heads % d->n_k_heads || inner % d->n_v_heads)
		return ig_fail(s->err, -EINVAL,
			       "%s.ssm: %u heads of keys, %u of values, and %u values do not fit",
			       s->arch, d->n_k_heads, d->n_v_heads, inner);
	d->v_dim = inner / d->n_v_heads;
	/* as many heads in a part as fit well into slabs */
	d->part_heads = d->n_v_heads;
	while (d->part_heads > 1 && 4 * d->k_dim * d->v_dim * d->part_heads > PART_BYTES)
		do
			d->part_heads--;
		while (d->n_v_heads % d->part_heads);
	return 0;
}

static int set_groups(const struct ig_hparam_source *s, struct qwen35 *m,
		      struct ig_model_info *info)
{
	struct ig_gated_delta_params *d = &m->delta;
	uint16_t n[2] = { 0, 0 };

	for (uint32_t i = 0; i < m->p.n_layers; i++)
		m->group_layer[i] = n[m->recurrent[i]]++;
	if (!n[0] || !n[1])
		return ig_fail(s->err, -ENOTSUP,
			       "%s: %u layers with attention and %u without: both are needed",
			       s->arch, n[0], n[1]);
	ig_hparams_info(&m->p, 0, info);
	info->groups[0].n_layers = n[0];
	d->group = ig_hparams_state(info, n[1], d->n_v_heads / d->part_heads,
				    d->part_heads * d->k_dim * d->v_dim);
	m->conv_state = ig_hparams_state(
		info, n[1], 1,
		(m->n_taps - 1) * (2 * d->n_k_heads * d->k_dim + d->n_v_heads * d->v_dim));
	return 0;
}

static int read_params(const struct ig_host *host, const struct ig_meta *meta, void *params,
		       struct ig_model_info *info, struct ig_error *err)
{
	const struct ig_hparam_source s = { host, meta, "qwen35", err };
	struct qwen35 *m = params;
	int rc;

	if ((rc = ig_hparams_dense(&s, IG_RMS_NORM_EPS, &m->p)) ||
	    (rc = ig_hparams_rope(&s, &m->p, &m->rope)) || (rc = read_kinds(&s, m)) ||
	    (rc = read_delta(&s, m)))
		return rc;
	return set_groups(&s, m, info);
}

/* ---- the model ------------------------------------------------------------------------ */

/* Out(rms(delta(silu(conv(q | k | v)), beta, alpha)) * silu(z)) + residual */
static ig_value delta_net(struct ig_rec *r, const struct qwen35 *m, uint32_t layer, ig_value h,
			  ig_value residual)
{
	struct ig_gated_delta_params delta = m->delta;
	const int64_t n = m->p.width, heads = delta.n_v_heads, v = heads * delta.v_dim;
	const int64_t qkv = 2 * (int64_t)delta.n_k_heads * delta.k_dim + v;
	const struct ig_conv1d_params conv = {
		.struct_size = sizeof conv,
		.n_taps = m->n_taps,
		.act = IG_ACT_SILU,
		.group = m->conv_state,
		.layer = m->group_layer[layer],
	};
	const struct ig_norm_gated_params norm = { sizeof norm, delta.n_v_heads, m->p.norm_eps, 0 };
	ig_weight in = ig_rec_layer_weight(r, qkv, n, "blk.%u.attn_qkv.weight", layer);
	ig_weight gate = ig_rec_layer_weight(r, v, n, "blk.%u.attn_gate.weight", layer);
	ig_weight taps = ig_rec_layer_weight(r, qkv, m->n_taps, "blk.%u.ssm_conv1d.weight", layer);
	ig_weight w = ig_rec_layer_weight(r, 1, delta.v_dim, "blk.%u.ssm_norm.weight", layer);
	ig_weight out = ig_rec_layer_weight(r, n, v, "blk.%u.ssm_out.weight", layer);
	const ig_weight ba[2] = {
		ig_rec_layer_weight(r, heads, n, "blk.%u.ssm_beta.weight", layer),
		ig_rec_layer_weight(r, heads, n, "blk.%u.ssm_alpha.weight", layer),
	};
	const ig_weight steps[2] = {
		ig_rec_layer_weight(r, 1, heads, "blk.%u.ssm_dt.bias", layer),
		ig_rec_layer_weight(r, 1, heads, "blk.%u.ssm_a", layer),
	};
	ig_value y[2], z;

	delta.layer = m->group_layer[layer];
	y[0] = ig_rec_linear(r, h, &in, 1, IG_NONE);
	z = ig_rec_linear(r, h, &gate, 1, IG_NONE);
	y[1] = ig_rec_linear(r, h, ba, 2, IG_NONE);
	y[0] = ig_rec_conv1d(r, &conv, y[0], taps, IG_NONE);
	y[0] = ig_rec_op(r, "gated_delta", &delta, y, 2, steps, 2); /* [n_tokens, v] */
	y[1] = z;
	y[0] = ig_rec_op(r, "norm_gated", &norm, y, 2, &w, 1);
	return ig_rec_linear(r, y[0], &out, 1, residual);
}

static int record(const struct ig_host *host, struct ig_graph *g, const struct ig_meta *meta,
		  const void *params)
{
	const struct qwen35 *m = params;
	const struct ig_hparams *p = &m->p;
	struct ig_rec r = { host, g };
	const struct ig_gqa attention = {
		.p = p,
		.rope = &m->rope,
		.table = ig_layer_rope_table(&r, &m->rope),
		.mode = IG_ROPE_HALVES,
		.flags = IG_GQA_HEAD_NORMS | IG_GQA_GATE_IN_Q,
		.gate = IG_GATE_SIGMOID,
		.group_layers = m->group_layer,
	};
	ig_value x = ig_layer_embed(&r, p, 1), h;

	for (uint32_t layer = 0; layer < p->n_layers; layer++) {
		h = ig_layer_rms_norm(&r, p, "blk.%u.attn_norm.weight", layer, x);
		x = m->recurrent[layer] ? delta_net(&r, m, layer, h, x) :
					  ig_layer_gqa(&r, &attention, layer, h, x);
		h = ig_layer_rms_norm(&r, p, "blk.%u.post_attention_norm.weight", layer, x);
		x = ig_layer_glu(&r, p, IG_ACT_SILU, layer, h, x);
	}
	return ig_layer_norm_head(&r, p, x);
}

/* ---- folders of safetensors -------------------------------------------------------------- */

static const struct ig_config_key keys[] = {
	IG_CONFIG_DECODER(32, 4096, 12288, 16, 32768, 1e-6),
	IG_CONFIG_KV_HEADS(4),
	IG_CONFIG_SILU,
	IG_CONFIG_NUMBER("linear_conv_kernel_dim", "ssm.conv_kernel", 4),
	IG_CONFIG_NUMBER("linear_key_head_dim", "ssm.state_size", 128),
	IG_CONFIG_NUMBER("linear_num_key_heads", "ssm.group_count", 16),
	IG_CONFIG_NUMBER("linear_num_value_heads", "ssm.time_step_rank", 32),
	IG_CONFIG_NUMBER("full_attention_interval", "full_attention_interval", 4),
	{ "layer_types", "attention.recurrent_layers", IG_CONFIG_LAYERS, 0, 0,
	  "full_attention|linear_attention" },
	{ "attention_bias", NULL, IG_CONFIG_FALSE },
	{ "attn_output_gate", NULL, IG_CONFIG_TRUE, 0, 1 },
};

static void put_values(const struct ig_config *c)
{
	const uint32_t heads = c->get_u32(c, "ssm.time_step_rank");
	uint32_t dim = 128;

	c->u32(c, "linear_value_head_dim", &dim);
	if (!heads || heads > IG_GATED_DELTA_MAX_HEADS || dim > IG_GATED_DELTA_MAX_DIM)
		c->refuse(c, -ENOTSUP, "linear_value_head_dim", "is %u, of %u heads: not supported",
			  dim, heads);
	else
		c->put_u32(c, "ssm.inner_size", heads * dim);
}

/* Norms are stored as w, but for that of the delta net; GGUF has 1 + w. */
static const struct ig_tensor_name names[] = {
	{ "embed_tokens", "token_embd", 0 },
	{ "norm", "output_norm", IG_TENSOR_PLUS_ONE },
	{ "lm_head", "output", 0 },
	{ "layers.%u.input_layernorm", "blk.%u.attn_norm", IG_TENSOR_PLUS_ONE },
	{ "layers.%u.self_attn.q_proj", "blk.%u.attn_q", 0 },
	{ "layers.%u.self_attn.k_proj", "blk.%u.attn_k", 0 },
	{ "layers.%u.self_attn.v_proj", "blk.%u.attn_v", 0 },
	{ "layers.%u.self_attn.o_proj", "blk.%u.attn_output", 0 },
	IG_TENSORS_QK_NORM(IG_TENSOR_PLUS_ONE),
	{ "layers.%u.linear_attn.in_proj_qkv", "blk.%u.attn_qkv", IG_TENSOR_TILED },
	{ "layers.%u.linear_attn.in_proj_z", "blk.%u.attn_gate", IG_TENSOR_TILED },
	{ "layers.%u.linear_attn.in_proj_b", "blk.%u.ssm_beta", IG_TENSOR_TILED },
	{ "layers.%u.linear_attn.in_proj_a", "blk.%u.ssm_alpha", IG_TENSOR_TILED },
	{ "layers.%u.linear_attn.conv1d", "blk.%u.ssm_conv1d", IG_TENSOR_CONV | IG_TENSOR_TILED },
	{ "layers.%u.linear_attn.dt_bias", "blk.%u.ssm_dt.bias",
	  IG_TENSOR_NAMED | IG_TENSOR_TILED },
	{ "layers.%u.linear_attn.A_log", "blk.%u.ssm_a",
	  IG_TENSOR_NAMED | IG_TENSOR_TILED | IG_TENSOR_NEGATIVE_EXP },
	{ "layers.%u.linear_attn.norm", "blk.%u.ssm_norm", 0 },
	{ "layers.%u.linear_attn.out_proj", "blk.%u.ssm_out", IG_TENSOR_TILED_COLUMNS },
	{ "layers.%u.post_attention_layernorm", "blk.%u.post_attention_norm", IG_TENSOR_PLUS_ONE },
	IG_TENSORS_GLU,
};
static const struct ig_arch_files qwen35_files = {
	.struct_size = sizeof qwen35_files,
	.model_type = "qwen3_5_text",
	.outer_type = "qwen3_5",
	IG_CONFIG_KEYS(keys),
	IG_TENSOR_NAMES(names),
	.rope_theta = 1e7,
	.head_dim = 256,
	.rotary_percent = 25,
	.config = put_values,
};
static const struct ig_arch_files *const files[] = { &qwen35_files, NULL };

const struct ig_arch ig_arch_qwen35 = {
	.struct_size = sizeof(struct ig_arch),
	.params_size = sizeof(struct qwen35),
	.name = "qwen35",
	.read_params = read_params,
	.record = record,
	.files = files,
};
