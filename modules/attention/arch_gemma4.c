/*
 * arch_gemma4.c: the text models of Gemma 4 (Google 2026; transformers' modeling_gemma4.py): dense
 * ones, E2B and E4B, and the mixture of experts.  Global layers have larger heads than sliding-window layers, of which a part
 * is rotated, and may have fewer KV heads and V = K.  The last layers have no keys and values: they
 * read those of the last layer of their kind that has.  RMS norms before and after attention and
 * feed-forward; QK norm, and a norm of V without weights; q . k is not scaled; GELU (tanh
 * approximation).  E2B and E4B have a second token table with a small vector for each layer, which is
 * multiplied into a gate after the feed-forward.  Each layer's output is scaled by a number; logits
 * are capped.  The embedding is scaled by sqrt(width) and is also the output matrix.  Norms are
 * stored as w, not as 1 + w as in Gemma 3.  The mixture has experts beside the feed-forward of every
 * layer, with norms of their own; their router reads a normalised row of its own.
 */
#include <ingot/arch_files.h>
#include <ingot/layers.h>

enum { GLOBAL = 0, LOCAL = 1 }; /* kinds of layers; LOCAL: sliding window */

#define MAX_LAYERS 1024

struct gemma4 {
	struct ig_hparams p[2]; /* by kind */
	struct ig_rope rope[2];
	uint32_t window;	   /* of local layers */
	uint32_t n_own;		   /* the first layers, which have keys and values */
	uint32_t n_input;	   /* width of a layer's own input; 0: there is none */
	uint32_t n_table;	   /* rows of its table */
	float cap;		   /* of logits; 0: none */
	struct ig_experts experts; /* moe.n_experts 0: none */
	uint8_t kind[MAX_LAYERS];
	uint8_t group[MAX_LAYERS];	  /* cache group of the layer whose cache it reads */
	uint16_t group_layer[MAX_LAYERS]; /* that layer in its group */
	uint32_t n_ff[MAX_LAYERS];
};

/* What both kinds have in common. */
static int read_sizes(const struct ig_hparam_source *s, struct ig_hparams *p)
{
	int rc;

	if ((rc = ig_hparam_u32(s, "block_count", 1, MAX_LAYERS, NULL, &p->n_layers)) ||
	    (rc = ig_hparam_u32(s, "embedding_length", 8, 1u << 17, NULL, &p->width)) ||
	    (rc = ig_hparams_read_vocab(s, &p->n_vocab)) ||
	    (rc = ig_hparam_u32(s, "context_length", 1, 1u << 24, NULL, &p->n_context)) ||
	    (rc = ig_hparam_u32(s, "attention.head_count", 1, IG_ATTENTION_MAX_HEADS, NULL,
				&p->n_heads)))
		return rc;
	p->tied = !s->host->meta_has_tensor(s->meta, "output.weight");
	return ig_hparam_f32(s, IG_RMS_NORM_EPS, 0, 1, NULL, &p->norm_eps);
}

/* The size of the heads of a kind, and its RoPE. */
static int read_heads(const struct ig_hparam_source *s, const char *key, const char *value,
		      const char *rotated, const char *base, float default_base,
		      struct ig_hparams *p, struct ig_rope *rope)
{
	uint32_t n_values, n_rotated;
	int rc;

	if ((rc = ig_hparam_u32(s, key, 8, IG_ATTENTION_MAX_HEAD_DIM, NULL, &p->head_dim)) ||
	    (rc = ig_hparam_u32(s, value, 0, UINT32_MAX, &p->head_dim, &n_values)) ||
	    (rc = ig_hparam_u32(s, rotated, 2, p->head_dim, &p->head_dim, &n_rotated)))
		return rc;
	if (p->head_dim % 8 || n_values != p->head_dim || n_rotated % 2)
		return ig_fail(
			s->err, -ENOTSUP,
			"%s.%s %u, %s %u and %s %u are not supported: keys and values of one "
			"multiple of 8 are",
			s->arch, key, p->head_dim, value, n_values, rotated, n_rotated);
	*rope = (struct ig_rope){ .table = { .struct_size = sizeof rope->table,
					     .n_pairs = n_rotated / 2,
					     .freq_scale = 1 },
				  .attention = 1 };
	return ig_hparam_f32(s, base, 1, 1e12f, &default_base, &rope->table.freq_base);
}

/* The KV heads of each kind: those of its layers, which must agree. */
static int read_kv_heads(const struct ig_hparam_source *s, struct gemma4 *m)
{
	const struct ig_hparams *p = &m->p[GLOBAL];
	uint32_t n[MAX_LAYERS];
	int rc = ig_hparam_each_layer(s, "attention.head_count_kv", 0, IG_ATTENTION_MAX_HEADS,
				      p->n_layers, n);

	for (uint32_t i = 0; !rc && i < m->n_own; i++) {
		uint32_t *of_kind = &m->p[m->kind[i]].n_kv_heads;
		if (!n[i] || p->n_heads % n[i] || (*of_kind && *of_kind != n[i]))
			return ig_fail(
				s->err, -EINVAL,
				"%s.attention.head_count_kv is %u for layer %u: not a divisor "
				"of %u heads that all layers of its kind share",
				s->arch, n[i], i, p->n_heads);
		*of_kind = n[i];
	}
	return rc;
}

static int read_inputs(const struct ig_hparam_source *s, struct gemma4 *m)
{
	const uint32_t none = 0;
	int64_t n_rows, n_cols;
	int rc = ig_hparam_u32(s, "embedding_length_per_layer_input", 0, 1u << 14, &none,
			       &m->n_input);

	if (rc || !m->n_input)
		return rc;
	if (s->host->meta_tensor(s->meta, "per_layer_token_embd.weight", &n_rows, &n_cols) ||
	    n_rows < m->p[GLOBAL].n_vocab || n_rows > UINT32_MAX)
		return ig_fail(s->err, -EINVAL,
			       "%s.embedding_length_per_layer_input is %u, but "
			       "per_layer_token_embd.weight is missing or has fewer rows than the "
			       "vocabulary",
			       s->arch, m->n_input);
	m->n_table = (uint32_t)n_rows;
	return 0;
}

static int read_experts(const struct ig_hparam_source *s, struct gemma4 *m)
{
	const uint32_t none = 0;
	struct ig_experts *e = &m->experts;
	int rc = ig_hparam_u32(s, "expert_count", 0, IG_MOE_MAX_EXPERTS, &none, &e->moe.n_experts);

	if (rc || !e->moe.n_experts)
		return rc;
	m->p[GLOBAL].n_ff = m->n_ff[0];
	if ((rc = ig_hparams_read_experts(s, &m->p[GLOBAL], e)))
		return rc;
	e->moe.act = IG_ACT_GELU;
	e->moe.normalise = 1;
	e->flags = IG_EXPERTS_SCALE;
	if (s->host->meta_has_tensor(s->meta, "blk.0.ffn_gate_up_exps.weight"))
		e->moe.form = IG_MOE_FUSED;
	return 0;
}

/* A block of a group, which has all of its layers, should fit a slab of the default size: as float16,
 * 16 tokens of so many layers do. */
static uint32_t layers_of_block(const struct ig_hparams *p)
{
	const uint64_t slab = 4u << 20, layer = 16ull * p->n_kv_heads * p->head_dim * 2 * 2;

	return layer < slab ? (uint32_t)(slab / layer) : 1;
}

/* Cache groups of the n layers of a kind that have keys and values, at most `most`.  Returns the
 * number of layers of each; the last may have fewer. */
static uint32_t add_groups(const struct gemma4 *m, uint32_t kind, uint32_t n, uint32_t most,
			   struct ig_model_info *info)
{
	const uint32_t fit = layers_of_block(&m->p[kind]);
	uint32_t n_groups = (n + fit - 1) / fit, size;

	n_groups = n_groups < most ? n_groups : most;
	size = (n + n_groups - 1) / n_groups;
	for (uint32_t first = 0; first < n; first += size)
		info->groups[info->n_groups++] = (struct ig_cache_group){
			.struct_size = sizeof info->groups[0],
			.n_layers = n - first < size ? n - first : size,
			.n_kv_heads = m->p[kind].n_kv_heads,
			.head_dim = m->p[kind].head_dim,
			.window = kind == LOCAL ? m->window : 0,
		};
	return size;
}

/* Cache groups of each kind.  A layer without keys and values reads the last one of its kind. */
static int set_groups(const struct ig_hparam_source *s, struct gemma4 *m,
		      struct ig_model_info *info)
{
	const uint32_t n_layers = m->p[GLOBAL].n_layers;
	uint32_t n[2] = { 0, 0 }, first[2] = { 0, 0 }, size[2] = { 1, 1 };

	for (uint32_t i = 0; i < m->n_own; i++)
		n[m->kind[i]]++;
	info->n_vocab = m->p[GLOBAL].n_vocab;
	info->n_context = m->p[GLOBAL].n_context;
	info->n_groups = 0;
	for (uint32_t kind = GLOBAL; kind <= LOCAL; kind++) {
		first[kind] = info->n_groups;
		if (n[kind])
			size[kind] = add_groups(m, kind, n[kind],
						kind == GLOBAL && n[LOCAL] ?
							1 :
							IG_MAX_CACHE_GROUPS - info->n_groups,
						info);
	}
	n[GLOBAL] = n[LOCAL] = 0;
	for (uint32_t i = 0; i < n_layers; i++) {
		const uint8_t kind = m->kind[i];
		if (i < m->n_own)
			n[kind]++;
		if (!n[kind])
			return ig_fail(
				s->err, -EINVAL,
				"%s.attention.shared_kv_layers: no layer before layer %u has "
				"keys and values for it",
				s->arch, i);
		m->group[i] = (uint8_t)(first[kind] + (n[kind] - 1) / size[kind]);
		m->group_layer[i] = (uint16_t)((n[kind] - 1) % size[kind]);
	}
	return 0;
}

static int read_params(const struct ig_host *host, const struct ig_meta *meta, void *params,
		       struct ig_model_info *info, struct ig_error *err)
{
	const struct ig_hparam_source s = { host, meta, "gemma4", err };
	struct gemma4 *m = params;
	struct ig_hparams *p = &m->p[GLOBAL];
	const float no_cap = 0;
	const uint32_t none = 0;
	uint32_t local[MAX_LAYERS], n_shared;
	int rc;

	if ((rc = read_sizes(&s, p)) ||
	    (rc = ig_hparam_sliding(&s, p->n_layers, 6, &m->window, local)) ||
	    (rc = ig_hparam_u32(&s, "attention.shared_kv_layers", 0, p->n_layers - 1, &none,
				&n_shared)) ||
	    (rc = ig_hparam_each_layer(&s, "feed_forward_length", 8, 1u << 20, p->n_layers,
				       m->n_ff)) ||
	    (rc = ig_hparam_f32(&s, "final_logit_softcapping", 0, 1e6f, &no_cap, &m->cap)))
		return rc;
	for (uint32_t i = 0; i < p->n_layers; i++)
		m->kind[i] = local[i] ? LOCAL : GLOBAL;
	m->n_own = p->n_layers - n_shared;
	m->p[LOCAL] = *p;
	if ((rc = read_heads(&s, "attention.key_length", "attention.value_length",
			     "rope.dimension_count", "rope.freq_base", 1e6f, p,
			     &m->rope[GLOBAL])) ||
	    (m->window &&
	     (rc = read_heads(&s, "attention.key_length_swa", "attention.value_length_swa",
			      "rope.dimension_count_swa", "rope.freq_base_swa", 1e4f, &m->p[LOCAL],
			      &m->rope[LOCAL]))) ||
	    (rc = read_kv_heads(&s, m)) || (rc = read_inputs(&s, m)) || (rc = read_experts(&s, m)))
		return rc;
	/* factors of the frequencies: 1 for the part that is rotated, then so large that nothing is */
	m->rope[GLOBAL].has_factors = host->meta_has_tensor(meta, "rope_freqs.weight") != 0;
	return set_groups(&s, m, info);
}

/* ---- the model ------------------------------------------------------------------------ */

/* (RMSNorm(W x / sqrt(width)) + sqrt(n_input) * table[id]) / sqrt(2): the inputs of all layers, side
 * by side.  The norm divides by its input's size, so that 1 / sqrt(width) is only seen in eps. */
static ig_value record_inputs(struct ig_rec *r, const struct gemma4 *m, ig_value x)
{
	const struct ig_hparams *p = &m->p[GLOBAL];
	const int64_t n = (int64_t)p->n_layers * m->n_input;
	const struct ig_norm_params norm = { .struct_size = sizeof norm,
					     .kind = IG_NORM_RMS,
					     .eps = p->norm_eps * (float)p->width,
					     .after = 1,
					     .group = m->n_input,
					     .scale = sqrtf(0.5f) };
	ig_weight table = ig_rec_weight(r, m->n_table, n, "per_layer_token_embd.weight");
	ig_weight proj = ig_rec_weight(r, n, p->width, "per_layer_model_proj.weight");
	ig_weight w = ig_rec_weight(r, 1, m->n_input, "per_layer_proj_norm.weight");
	const ig_value in[2] = { ig_rec_linear(r, x, &proj, 1, IG_NONE),
				 ig_rec_embed_scaled(r, table, sqrtf((float)m->n_input)) };

	return ig_rec_op(r, "norm", &norm, in, 2, &w, 1);
}

/* (x + RMSNorm(y)) * s; s may be IG_NONE. */
__attribute__((format(printf, 3, 0))) static ig_value
add_normed(struct ig_rec *r, const struct ig_hparams *p, const char *name, uint32_t layer,
	   ig_value y, ig_value x, ig_weight s)
{
	return ig_rec_rms_norm_after(r, y, ig_rec_layer_weight(r, 1, p->width, name, layer),
				     p->norm_eps, x, s);
}

/* The experts of x, which is the layer's row before the feed-forward: their normalised sum is added to
 * the feed-forward's.  The router's logits are W (RMSNorm(x) * scale) / sqrt(width). */
static ig_value add_experts(struct ig_rec *r, const struct gemma4 *m, uint32_t layer, ig_value x,
			    ig_value dense)
{
	const struct ig_hparams *p = &m->p[GLOBAL];
	const struct ig_experts *e = &m->experts;
	const uint32_t n = e->moe.n_experts;
	ig_weight router = ig_rec_layer_weight(r, n, p->width, "blk.%u.ffn_gate_inp.weight", layer);
	ig_weight scale = ig_rec_layer_weight(r, 1, n, "blk.%u.ffn_down_exps.scale", layer);
	ig_value h = ig_layer_rms_norm(r, p, "blk.%u.ffn_gate_inp.scale", layer, x), route;

	h = ig_rec_linear(r, h, &router, 1, IG_NONE);
	h = ig_rec_soft_cap(r, h, 1 / sqrtf((float)p->width), 0);
	route = ig_rec_moe_route_by(r, &e->moe, h, IG_NONE, scale);
	h = ig_layer_rms_norm(r, p, "blk.%u.pre_ffw_norm_2.weight", layer, x);
	h = ig_experts_sum(r, p, e, layer, h, route, IG_NONE, IG_NONE);
	dense = ig_layer_rms_norm(r, p, "blk.%u.post_ffw_norm_1.weight", layer, dense);
	return add_normed(r, p, "blk.%u.post_ffw_norm_2.weight", layer, h, dense, IG_NONE);
}

/* The layer's own input, through a gate. */
static ig_value record_input(struct ig_rec *r, const struct gemma4 *m, uint32_t layer, ig_value x,
			     ig_value inputs, ig_weight s)
{
	const struct ig_hparams *p = &m->p[GLOBAL];
	const struct ig_linear_params gelu = { sizeof gelu, 1, IG_ACT_GELU, 0 };
	ig_weight gate =
		ig_rec_layer_weight(r, m->n_input, p->width, "blk.%u.inp_gate.weight", layer);
	ig_weight proj = ig_rec_layer_weight(r, p->width, m->n_input, "blk.%u.proj.weight", layer);
	ig_value h = ig_rec_op(r, "linear", &gelu, &x, 1, &gate, 1);

	h = ig_rec_multiply(r, h, inputs, layer * m->n_input);
	h = ig_rec_linear(r, h, &proj, 1, IG_NONE);
	return add_normed(r, p, "blk.%u.post_norm.weight", layer, h, x, s);
}

static uint32_t layer_flags(const struct ig_host *host, const struct ig_meta *meta,
			    const struct gemma4 *m, uint32_t layer)
{
	if (layer >= m->n_own)
		return IG_GQA_HEAD_NORMS | IG_GQA_Q_ONLY;
	return IG_GQA_HEAD_NORMS | IG_GQA_V_NORM |
	       (ig_meta_layer_has(host, meta, "blk.%u.attn_v.weight", layer) ? 0u : IG_GQA_NO_V);
}

static int record(const struct ig_host *host, struct ig_graph *g, const struct ig_meta *meta,
		  const void *params)
{
	const struct gemma4 *m = params;
	const struct ig_hparams *p = &m->p[GLOBAL];
	struct ig_rec r = { host, g };
	struct ig_gqa attention[2]; /* by kind */
	struct ig_hparams of_layer;
	ig_value x, h, inputs = IG_NONE;
	ig_weight scale;

	for (uint32_t kind = GLOBAL; kind <= LOCAL; kind++)
		attention[kind] = (struct ig_gqa){
			.p = &m->p[kind],
			.rope = &m->rope[kind],
			.table = memchr(m->kind, (int)kind, p->n_layers) ?
					 ig_layer_rope_table(&r, &m->rope[kind]) :
					 IG_NONE,
			.mode = IG_ROPE_HALVES,
			.window = kind == LOCAL ? m->window : 0,
			.scale = 1,
			.group_layers = m->group_layer,
		};
	x = ig_layer_embed(&r, p, sqrtf((float)p->width));
	if (m->n_input)
		inputs = record_inputs(&r, m, x);
	for (uint32_t layer = 0; layer < p->n_layers; layer++) {
		struct ig_gqa *a = &attention[m->kind[layer]];

		of_layer = *p;
		of_layer.n_ff = m->n_ff[layer];
		/* tokens of an image see each other in layers with a window only (not those of E2B and E4B,
		 * whose images' spans look back) */
		a->flags = layer_flags(host, meta, m, layer) |
			   (m->kind[layer] == LOCAL ? IG_GQA_SPANS : 0);
		a->group = m->group[layer];
		scale = ig_rec_layer_weight(&r, 1, 1, "blk.%u.layer_output_scale.weight", layer);
		h = ig_layer_rms_norm(&r, p, "blk.%u.attn_norm.weight", layer, x);
		h = ig_layer_gqa(&r, a, layer, h, IG_NONE);
		x = add_normed(&r, p, "blk.%u.post_attention_norm.weight", layer, h, x, IG_NONE);
		h = ig_layer_rms_norm(&r, p, "blk.%u.ffn_norm.weight", layer, x);
		h = ig_layer_glu(&r, &of_layer, IG_ACT_GELU, layer, h, IG_NONE);
		if (m->experts.moe.n_experts)
			h = add_experts(&r, m, layer, x, h);
		x = add_normed(&r, p, "blk.%u.post_ffw_norm.weight", layer, h, x,
			       m->n_input ? IG_NONE : scale);
		if (m->n_input)
			x = record_input(&r, m, layer, x, inputs, scale);
	}
	h = ig_rec_rms_norm_last(&r, x, ig_rec_weight(&r, 1, p->width, "output_norm.weight"),
				 p->norm_eps);
	return ig_layer_head_capped(&r, p, h, 1, m->cap);
}

/* ---- folders of safetensors -------------------------------------------------------------- */

static const struct ig_config_key keys[] = {
	IG_CONFIG_NUMBER("num_hidden_layers", "block_count", 30),
	IG_CONFIG_NUMBER("hidden_size", "embedding_length", 2304),
	IG_CONFIG_NUMBER("num_attention_heads", "attention.head_count", 8),
	IG_CONFIG_NUMBER("max_position_embeddings", "context_length", 131072),
	{ "rms_norm_eps", IG_RMS_NORM_EPS, IG_CONFIG_F32, 0, 1e-6 },
	{ "hidden_activation", NULL, IG_CONFIG_WORD, 0, 0, "gelu_pytorch_tanh" },
	{ "sliding_window", "attention.sliding_window", IG_CONFIG_U32, IG_CONFIG_NULLABLE, 512 },
	{ "layer_types", "attention.sliding_window_pattern", IG_CONFIG_LAYERS, 0, 0,
	  "full_attention|sliding_attention" },
	IG_CONFIG_NUMBER("global_head_dim", "attention.key_length", 512),
	IG_CONFIG_NUMBER("global_head_dim", "attention.value_length", 512),
	IG_CONFIG_NUMBER("head_dim", "attention.key_length_swa", 256),
	IG_CONFIG_NUMBER("head_dim", "attention.value_length_swa", 256),
	IG_CONFIG_NUMBER("head_dim", "rope.dimension_count_swa", 256),
	{ "rope_parameters.sliding_attention.rope_theta", "rope.freq_base_swa", IG_CONFIG_F32, 0,
	  10000 },
	{ "final_logit_softcapping", "final_logit_softcapping", IG_CONFIG_F32, IG_CONFIG_OPTIONAL },
	IG_CONFIG_NUMBER("num_kv_shared_layers", "attention.shared_kv_layers", 0),
	IG_CONFIG_NUMBER("hidden_size_per_layer_input", "embedding_length_per_layer_input", 256),
	{ "num_experts", "expert_count", IG_CONFIG_U32, IG_CONFIG_OPTIONAL },
	{ "top_k_experts", "expert_used_count", IG_CONFIG_U32, IG_CONFIG_OPTIONAL },
	{ "moe_intermediate_size", "expert_feed_forward_length", IG_CONFIG_U32,
	  IG_CONFIG_OPTIONAL },
	{ "attention_bias", NULL, IG_CONFIG_FALSE },
	{ "use_bidirectional_attention", NULL, IG_CONFIG_WORD, 0, 0, "vision" },
	{ "per_layer_config", NULL, IG_CONFIG_REFUSED },
};
static const struct ig_tensor_name names[] = {
	IG_TENSORS_ENDS,
	{ "layers.%u.input_layernorm", "blk.%u.attn_norm" },
	{ "layers.%u.self_attn.q_proj", "blk.%u.attn_q" },
	{ "layers.%u.self_attn.k_proj", "blk.%u.attn_k" },
	{ "layers.%u.self_attn.v_proj", "blk.%u.attn_v" },
	{ "layers.%u.self_attn.o_proj", "blk.%u.attn_output" },
	IG_TENSORS_QK_NORM(0),
	{ "layers.%u.post_attention_layernorm", "blk.%u.post_attention_norm" },
	{ "layers.%u.pre_feedforward_layernorm", "blk.%u.ffn_norm" },
	{ "layers.%u.post_feedforward_layernorm", "blk.%u.post_ffw_norm" },
	{ "layers.%u.layer_scalar", "blk.%u.layer_output_scale.weight", IG_TENSOR_NAMED },
	IG_TENSORS_GLU,
	{ "embed_tokens_per_layer", "per_layer_token_embd" },
	{ "per_layer_model_projection", "per_layer_model_proj" },
	{ "per_layer_projection_norm", "per_layer_proj_norm" },
	{ "layers.%u.per_layer_input_gate", "blk.%u.inp_gate" },
	{ "layers.%u.per_layer_projection", "blk.%u.proj" },
	{ "layers.%u.post_per_layer_input_norm", "blk.%u.post_norm" },
	{ "layers.%u.router.proj", "blk.%u.ffn_gate_inp", IG_TENSOR_F32 },
	{ "layers.%u.router.scale", "blk.%u.ffn_gate_inp.scale", IG_TENSOR_NAMED },
	{ "layers.%u.router.per_expert_scale", "blk.%u.ffn_down_exps.scale", IG_TENSOR_NAMED },
	{ "layers.%u.experts.gate_up_proj", "blk.%u.ffn_gate_up_exps", IG_TENSOR_EXPERTS },
	{ "layers.%u.experts.down_proj", "blk.%u.ffn_down_exps", IG_TENSOR_EXPERTS },
	{ "layers.%u.pre_feedforward_layernorm_2", "blk.%u.pre_ffw_norm_2" },
	{ "layers.%u.post_feedforward_layernorm_1", "blk.%u.post_ffw_norm_1" },
	{ "layers.%u.post_feedforward_layernorm_2", "blk.%u.post_ffw_norm_2" },
};

/* What GGUF has for each layer: KV heads, of which global layers have other numbers where V = K, and
 * the width of the feed-forward, which layers without keys and values may have twice. */
static void put_by_layer(const struct ig_config *c)
{
	const uint32_t n = c->get_u32(c, "block_count"),
		       n_shared = c->get_u32(c, "attention.shared_kv_layers");
	uint32_t n_kv = 4, n_global, n_ff = 9216, wide = 0, v_is_k = 0, experts = 0;
	uint32_t kv[MAX_LAYERS], ff[MAX_LAYERS];

	c->u32(c, "num_key_value_heads", &n_kv);
	c->u32(c, "intermediate_size", &n_ff);
	c->flag(c, "use_double_wide_mlp", &wide);
	c->flag(c, "attention_k_eq_v", &v_is_k);
	c->flag(c, "enable_moe_block", &experts);
	if (!v_is_k || c->u32(c, "num_global_key_value_heads", &n_global) <= 0)
		n_global = n_kv;
	if (!experts && c->get_u32(c, "expert_count"))
		c->refuse(c, -ENOTSUP, "num_experts", "without enable_moe_block: not supported");
	for (uint32_t i = 0; i < n && i < MAX_LAYERS; i++) {
		const int local = c->get_layer(c, "attention.sliding_window_pattern", i);

		if (local < 0) {
			c->refuse(c, -ENOTSUP, "layer_types", "is missing");
			return;
		}
		kv[i] = local ? n_kv : n_global;
		ff[i] = wide && i + n_shared >= n && n_ff < UINT32_MAX / 2 ? 2 * n_ff : n_ff;
	}
	if (n <= MAX_LAYERS) {
		c->put_layers(c, "attention.head_count_kv", kv, n);
		c->put_layers(c, "feed_forward_length", ff, n);
	}
}

static const struct ig_arch_files gemma4_files = {
	.struct_size = sizeof gemma4_files,
	.model_type = "gemma4_text",
	.outer_type = "gemma4",
	.tied = 1,
	IG_CONFIG_KEYS(keys),
	IG_TENSOR_NAMES(names),
	.rope_theta = 1e6,
	.head_dim = 512,
	.config = put_by_layer,
};
static const struct ig_arch_files *const files[] = { &gemma4_files, NULL };

const struct ig_arch ig_arch_gemma4 = {
	.struct_size = sizeof(struct ig_arch),
	.params_size = sizeof(struct gemma4),
	.name = "gemma4",
	.read_params = read_params,
	.record = record,
	.files = files,
};
