/*
 * arch_muse_glimmer.c: the text model of Muse Glimmer (Meta 2026; transformers'
 * modeling_muse_glimmer.py).  Every fourth layer, or those that the file lists, sees all positions and
 * has no RoPE; the others have a sliding window and RoPE.  The embedding is normalised; RMS norms before
 * and after attention and feed-forward; QK norm; the output of attention has a gate; a gated
 * feed-forward with SiLU.  Logits are scaled and capped.  Norms in GGUF are stored as 1 + w, and the
 * scale of q is in the weights of its norm.
 */
#include <ingot/arch_files.h>
#include <ingot/layers.h>

enum { GLOBAL = 0, LOCAL = 1 }; /* kinds of layers; LOCAL: sliding window, RoPE */

#define MAX_LAYERS 1024
#define ROPE_THETA 10000    /* of a folder that has none */
#define POST_NORM_EPS 1e-8f /* post_norm_eps of transformers, of the norms after; no key of GGUF */

struct muse_glimmer {
	struct ig_hparams p;
	struct ig_rope rope;
	uint32_t window;   /* of local layers */
	uint32_t group[2]; /* by kind: its cache group */
	float logit_scale, cap;
	uint8_t kind[MAX_LAYERS];
	uint16_t group_layer[MAX_LAYERS]; /* the layer's index in its group */
};

static int read_params(const struct ig_host *host, const struct ig_meta *meta, void *params,
		       struct ig_model_info *info, struct ig_error *err)
{
	const struct ig_hparam_source s = { host, meta, "muse-glimmer", err };
	struct muse_glimmer *m = params;
	const float no_scale = 1, no_cap = 0;
	uint32_t local[MAX_LAYERS];
	int rc;

	if ((rc = ig_hparams_dense(&s, IG_RMS_NORM_EPS, &m->p)) ||
	    (rc = ig_hparam_sliding(&s, m->p.n_layers, 4, &m->window, local)) ||
	    (rc = ig_hparams_rope(&s, &m->p, &m->rope)) ||
	    (rc = ig_hparam_f32(&s, "rope.freq_base_swa", 1, 1e12f, &m->rope.table.freq_base,
				&m->rope.table.freq_base)) ||
	    (rc = ig_hparam_f32(&s, "logit_scale", 1e-6f, 1e6f, &no_scale, &m->logit_scale)) ||
	    (rc = ig_hparam_f32(&s, "final_logit_softcapping", 0, 1e6f, &no_cap, &m->cap)))
		return rc;
	for (uint32_t i = 0; i < m->p.n_layers; i++)
		m->kind[i] = local[i] ? LOCAL : GLOBAL;
	ig_hparams_info_kinds(&m->p, m->kind, m->window, m->group, m->group_layer, info);
	return 0;
}

/* ---- the model ------------------------------------------------------------------------ */

/* x + RMSNorm(y) */
__attribute__((format(printf, 3, 0))) static ig_value add_normed(struct ig_rec *r,
								 const struct ig_hparams *p,
								 const char *name, uint32_t layer,
								 ig_value y, ig_value x)
{
	return ig_rec_rms_norm_after(r, y, ig_rec_layer_weight(r, 1, p->width, name, layer),
				     POST_NORM_EPS, x, IG_NONE);
}

static int record(const struct ig_host *host, struct ig_graph *g, const struct ig_meta *meta,
		  const void *params)
{
	const struct muse_glimmer *m = params;
	const struct ig_hparams *p = &m->p;
	struct ig_rec r = { host, g };
	struct ig_gqa attention[2]; /* by kind */
	ig_value x, h;

	for (uint32_t kind = GLOBAL; kind <= LOCAL; kind++)
		attention[kind] = (struct ig_gqa){
			.p = p,
			.mode = IG_ROPE_PAIRS, /* converters reorder the rows of Q and K */
			.flags = IG_GQA_HEAD_NORMS,
			.gate = IG_GATE_SIGMOID,
			.window = kind == LOCAL ? m->window : 0,
			.group = m->group[kind],
			.group_layers = m->group_layer,
		};
	if (memchr(m->kind, LOCAL, p->n_layers)) {
		attention[LOCAL].rope = &m->rope;
		attention[LOCAL].table = ig_layer_rope_table(&r, &m->rope);
	}
	x = ig_rec_rms_norm(&r, ig_layer_embed(&r, p, 1), IG_NONE, p->norm_eps);
	for (uint32_t layer = 0; layer < p->n_layers; layer++) {
		h = ig_layer_rms_norm(&r, p, "blk.%u.attn_norm.weight", layer, x);
		h = ig_layer_gqa(&r, &attention[m->kind[layer]], layer, h, IG_NONE);
		x = add_normed(&r, p, "blk.%u.post_attention_norm.weight", layer, h, x);
		h = ig_layer_rms_norm(&r, p, "blk.%u.ffn_norm.weight", layer, x);
		h = ig_layer_glu(&r, p, IG_ACT_SILU, layer, h, IG_NONE);
		x = add_normed(&r, p, "blk.%u.post_ffw_norm.weight", layer, h, x);
	}
	h = ig_rec_rms_norm_last(&r, x, ig_rec_weight(&r, 1, p->width, "output_norm.weight"),
				 p->norm_eps);
	return ig_layer_head_capped(&r, p, h, m->logit_scale, m->cap);
}

/* ---- folders of safetensors -------------------------------------------------------------- */

static const struct ig_config_key keys[] = {
	IG_CONFIG_DECODER(52, 6656, 19968, 32, 131072, 1e-5),
	IG_CONFIG_KV_HEADS(2),
	{ "hidden_activation", NULL, IG_CONFIG_WORD, 0, 0, "silu" },
	{ "sliding_window", "attention.sliding_window", IG_CONFIG_U32, IG_CONFIG_NULLABLE, 2048 },
	{ "layer_types", "attention.sliding_window_pattern", IG_CONFIG_LAYERS, 0, 0,
	  "full_attention|sliding_attention" },
	{ "final_logit_softcapping", "final_logit_softcapping", IG_CONFIG_F32, 0, 20 },
	{ "output_multiplier", "logit_scale", IG_CONFIG_F32, 0, 0.19611613513818404 },
	{ "attention_bias", NULL, IG_CONFIG_FALSE },
};
/* Norms are stored as w, but for the last; GGUF has 1 + w. */
static const struct ig_tensor_name names[] = {
	IG_TENSORS_ENDS,
	{ "layers.%u.input_layernorm", "blk.%u.attn_norm", IG_TENSOR_PLUS_ONE },
	{ "layers.%u.self_attn.q_proj", "blk.%u.attn_q", IG_TENSOR_PAIRS },
	{ "layers.%u.self_attn.k_proj", "blk.%u.attn_k", IG_TENSOR_PAIRS },
	{ "layers.%u.self_attn.v_proj", "blk.%u.attn_v" },
	{ "layers.%u.self_attn.gate_proj", "blk.%u.attn_gate" },
	{ "layers.%u.self_attn.o_proj", "blk.%u.attn_output" },
	{ "layers.%u.post_attention_layernorm", "blk.%u.post_attention_norm", IG_TENSOR_PLUS_ONE },
	{ "layers.%u.pre_feedforward_layernorm", "blk.%u.ffn_norm", IG_TENSOR_PLUS_ONE },
	{ "layers.%u.post_feedforward_layernorm", "blk.%u.post_ffw_norm", IG_TENSOR_PLUS_ONE },
	IG_TENSORS_GLU,
};

/* QK norms have no weights here: those of GGUF are the scale of q, and 1.  Only what read_params
 * knows may be in the lists of layers and in post_norm_eps. */
static void put_norms(const struct ig_config *c)
{
	const uint32_t n = c->get_u32(c, "block_count"),
		       dim = c->get_u32(c, "attention.key_length");
	float scale = 3.87f, eps = POST_NORM_EPS, theta = ROPE_THETA, base;

	c->f32(c, "qk_scale_factor", &scale);
	c->f32(c, "rope_parameters.rope_theta", &theta);
	c->f32(c, "post_norm_eps", &eps);
	if (eps != POST_NORM_EPS)
		c->refuse(c, -ENOTSUP, "post_norm_eps", "is %g: only %g is supported", (double)eps,
			  (double)POST_NORM_EPS);
	for (uint32_t i = 0; i < n; i++) {
		const int local = c->get_layer(c, "attention.sliding_window_pattern", i);

		if (local < 0) {
			c->refuse(c, -ENOTSUP, "layer_types", "is missing");
			return;
		}
		if (c->f32_at(c, "layer_rope_theta", i, &base) != 1)
			continue;
		if (base != (local ? theta : 0)) {
			c->refuse(
				c, -ENOTSUP, "layer_rope_theta",
				"is %g for layer %u: only %g for layers with a sliding window and "
				"0 for the others are supported",
				(double)base, i, (double)theta);
			return;
		}
	}
	c->put_vectors(c, "blk.%u.attn_q_norm.weight", dim, scale);
	c->put_vectors(c, "blk.%u.attn_k_norm.weight", dim, 1);
}

static const struct ig_arch_files muse_glimmer_files = {
	.struct_size = sizeof muse_glimmer_files,
	.model_type = "muse_glimmer_text",
	.outer_type = "muse_glimmer",
	IG_CONFIG_KEYS(keys),
	IG_TENSOR_NAMES(names),
	.rope_theta = ROPE_THETA,
	.head_dim = 128,
	.config = put_norms,
};
static const struct ig_arch_files *const files[] = { &muse_glimmer_files, NULL };

const struct ig_arch ig_arch_muse_glimmer = {
	.struct_size = sizeof(struct ig_arch),
	.params_size = sizeof(struct muse_glimmer),
	.name = "muse-glimmer",
	.read_params = read_params,
	.record = record,
	.files = files,
};
