/*
 * arch_gemma3.c: the text model of Gemma 3 (Gemma Team 2025, arXiv:2503.19786).  Every sixth layer,
 * or those that the file lists, is global; the others are sliding-window layers with another RoPE
 * base.  RMS norms before and after attention and feed-forward; QK norm; a gated feed-forward with
 * GELU (tanh approximation).  The embedding is scaled by sqrt(width) and is also the output matrix.
 * EmbeddingGemma ("gemma-embedding", or a pooling_type) attends in both directions, has no cache, and
 * makes a vector of the mean.  Norms in GGUF are stored as 1 + w.  Unsupported features of a file (experts, soft caps) are
 * errors that name the key.
 */
#include <ingot/arch_files.h>
#include <ingot/layers.h>

enum { GLOBAL = 0, LOCAL = 1 }; /* kinds of layers; LOCAL: sliding window */

#define MAX_LAYERS 1024

struct gemma3 {
	struct ig_hparams p;
	struct ig_rope rope[2]; /* by kind */
	uint32_t window;	/* of local layers */
	uint32_t group[2];	/* by kind: its cache group */
	uint8_t kind[MAX_LAYERS];
	uint16_t group_layer[MAX_LAYERS]; /* the layer's index in its group */
	float scale;			  /* of q . k */
	struct ig_pooling pooling;	  /* of EmbeddingGemma */
	uint32_t dense[2][2];		  /* its dense layers, rows and columns; 0: none */
};

static int read_kinds(const struct ig_hparam_source *s, struct gemma3 *m)
{
	uint32_t local[MAX_LAYERS];
	int rc = ig_hparam_sliding(s, m->p.n_layers, 6, &m->window, local);

	for (uint32_t i = 0; !rc && i < m->p.n_layers; i++)
		m->kind[i] = local[i] ? LOCAL : GLOBAL;
	return rc;
}

/* EmbeddingGemma's two dense layers behind the pooling, of files that have them. */
static int read_dense(const struct ig_hparam_source *s, struct gemma3 *m)
{
	static const char *const names[2] = { "dense_2.weight", "dense_3.weight" };
	uint32_t width = m->p.width;

	for (int i = 0; i < 2; i++) {
		int64_t n_rows, n_cols;
		if (s->host->meta_tensor(s->meta, names[i], &n_rows, &n_cols))
			continue;
		if (n_cols != width || n_rows < 1 || n_rows > 1 << 17)
			return ig_fail(s->err, -EINVAL,
				       "tensor %s is [%lld, %lld], expected %u columns", names[i],
				       (long long)n_rows, (long long)n_cols, width);
		m->dense[i][0] = (uint32_t)n_rows;
		m->dense[i][1] = width;
		width = (uint32_t)n_rows;
	}
	return 0;
}

static int read_any(const struct ig_hparam_source *source, uint32_t pooling, void *params,
		    struct ig_model_info *info)
{
	const struct ig_hparam_source s = *source;
	const float local_base = 10000;
	struct gemma3 *m = params;
	struct ig_rope *local = &m->rope[LOCAL];
	int rc;

	if ((rc = ig_hparams_pooling(&s, pooling, &m->pooling)) ||
	    (rc = ig_hparam_refuse_f32(&s, "final_logit_softcapping", "a soft cap of logits")) ||
	    (rc = ig_hparam_refuse_f32(&s, "attn_logit_softcapping", "a soft cap of attention")) ||
	    (rc = ig_hparams_dense(&s, IG_RMS_NORM_EPS, &m->p)) || (rc = read_kinds(&s, m)) ||
	    (rc = ig_hparams_rope(&s, &m->p, &m->rope[GLOBAL])))
		return rc;
	/* RoPE scaling applies only to global layers. */
	*local = (struct ig_rope){ .table = { .struct_size = sizeof local->table,
					      .n_pairs = m->rope[GLOBAL].table.n_pairs,
					      .freq_scale = 1 },
				   .attention = 1 };
	if ((rc = ig_hparam_f32(&s, "rope.freq_base_swa", 1, 1e12f, &local_base,
				&local->table.freq_base)))
		return rc;
	/* q . k is scaled by 1 / sqrt(head_dim), but in the 27B model, which is recognised by its 62
	 * layers because there is no key, by 1 / sqrt(width / n_heads). */
	m->scale = 1 / sqrtf(m->p.n_layers == 62 ? (float)m->p.width / (float)m->p.n_heads :
						   (float)m->p.head_dim);
	ig_hparams_info_kinds(&m->p, m->kind, m->window, m->group, m->group_layer, info);
	if (m->pooling.kind)
		ig_hparams_info_pooled(&m->p, &m->pooling, info);
	return m->pooling.kind ? read_dense(&s, m) : 0;
}

static int read_params(const struct ig_host *host, const struct ig_meta *meta, void *params,
		       struct ig_model_info *info, struct ig_error *err)
{
	const struct ig_hparam_source s = { host, meta, "gemma3", err };

	return read_any(&s, 0, params, info);
}

static int read_embedding(const struct ig_host *host, const struct ig_meta *meta, void *params,
			  struct ig_model_info *info, struct ig_error *err)
{
	const struct ig_hparam_source s = { host, meta, "gemma-embedding", err };

	return read_any(&s, IG_POOL_MEAN, params, info);
}

/* ---- the model ------------------------------------------------------------------------ */

static int record(const struct ig_host *host, struct ig_graph *g, const struct ig_meta *meta,
		  const void *params)
{
	const struct gemma3 *m = params;
	const struct ig_hparams *p = &m->p;
	struct ig_rec r = { host, g };
	struct ig_gqa attention[2]; /* by kind */
	ig_value x, h, delta = IG_NONE;
	ig_weight norm;

	for (uint32_t kind = GLOBAL; kind <= LOCAL; kind++)
		attention[kind] = (struct ig_gqa){
			.p = p,
			.rope = &m->rope[kind],
			.table = memchr(m->kind, (int)kind, p->n_layers) ?
					 ig_layer_rope_table(&r, &m->rope[kind]) :
					 IG_NONE,
			.mode = IG_ROPE_HALVES,
			.flags = IG_GQA_HEAD_NORMS | (m->pooling.kind ? IG_GQA_ROWS : IG_GQA_SPANS),
			.window = kind == LOCAL ? m->window : 0,
			.scale = m->scale * m->rope[kind].attention,
			.group = m->group[kind],
			.group_layers = m->group_layer,
			/* as many to both sides as the window has in all */
			.back = kind == LOCAL ? m->window / 2 : IG_ATTENTION_ALL,
			.ahead = kind == LOCAL ? m->window / 2 : IG_ATTENTION_ALL,
		};
	x = ig_layer_embed(&r, p, sqrtf((float)p->width));
	for (uint32_t layer = 0; layer < p->n_layers; layer++) {
		/* x = x + delta; h = RMSNorm(x) */
		norm = ig_rec_layer_weight(&r, 1, p->width, "blk.%u.attn_norm.weight", layer);
		h = layer ? ig_rec_rms_norm_add(&r, &x, delta, norm, p->norm_eps, 0) :
			    ig_rec_rms_norm(&r, x, norm, p->norm_eps);
		h = ig_layer_gqa(&r, &attention[m->kind[layer]], layer, h, IG_NONE);
		delta = ig_layer_rms_norm(&r, p, "blk.%u.post_attention_norm.weight", layer, h);
		norm = ig_rec_layer_weight(&r, 1, p->width, "blk.%u.ffn_norm.weight", layer);
		h = ig_rec_rms_norm_add(&r, &x, delta, norm, p->norm_eps, 0);
		h = ig_layer_glu(&r, p, IG_ACT_GELU, layer, h, IG_NONE);
		delta = ig_layer_rms_norm(&r, p, "blk.%u.post_ffw_norm.weight", layer, h);
	}
	norm = ig_rec_weight(&r, 1, p->width, "output_norm.weight");
	if (!m->pooling.kind)
		return ig_layer_head(&r, p,
				     ig_rec_rms_norm_add(&r, &x, delta, norm, p->norm_eps, 1));
	x = ig_rec_rms_norm_add(&r, &x, delta, norm, p->norm_eps, 0);
	x = ig_rec_pool(&r, x, m->pooling.kind);
	for (int i = 0; i < 2; i++) {
		if (!m->dense[i][0])
			continue;
		norm = ig_rec_weight(&r, m->dense[i][0], m->dense[i][1],
				     i ? "dense_3.weight" : "dense_2.weight");
		x = ig_rec_linear(&r, x, &norm, 1, IG_NONE);
	}
	ig_rec_output(&r, x);
	return host->graph_status(g);
}

/* ---- folders of safetensors -------------------------------------------------------------- */

static const struct ig_config_key keys[] = {
	IG_CONFIG_DECODER(26, 2304, 9216, 8, 131072, 1e-6),
	IG_CONFIG_KV_HEADS(4),
	{ "hidden_activation", NULL, IG_CONFIG_WORD, 0, 0, "gelu_pytorch_tanh" },
	{ "sliding_window", "attention.sliding_window", IG_CONFIG_U32, IG_CONFIG_NULLABLE, 4096 },
	{ "layer_types", "attention.sliding_window_pattern", IG_CONFIG_LAYERS, 0, 0,
	  "full_attention|sliding_attention" },
	{ "sliding_window_pattern|_sliding_window_pattern", "attention.sliding_window_pattern",
	  IG_CONFIG_U32, 0, 6 },
	{ "rope_parameters.sliding_attention.rope_theta|rope_local_base_freq", "rope.freq_base_swa",
	  IG_CONFIG_F32, 0, 10000 },
	{ "final_logit_softcapping", "final_logit_softcapping", IG_CONFIG_F32, IG_CONFIG_OPTIONAL },
	{ "attn_logit_softcapping", "attn_logit_softcapping", IG_CONFIG_F32, IG_CONFIG_OPTIONAL },
};
/* Norms are stored as w; GGUF has 1 + w. */
static const struct ig_tensor_name names[] = {
	{ "embed_tokens", "token_embd" },
	{ "norm", "output_norm", IG_TENSOR_PLUS_ONE },
	{ "lm_head", "output" },
	{ "layers.%u.input_layernorm", "blk.%u.attn_norm", IG_TENSOR_PLUS_ONE },
	{ "layers.%u.self_attn.q_proj", "blk.%u.attn_q" },
	{ "layers.%u.self_attn.k_proj", "blk.%u.attn_k" },
	{ "layers.%u.self_attn.v_proj", "blk.%u.attn_v" },
	{ "layers.%u.self_attn.o_proj", "blk.%u.attn_output" },
	IG_TENSORS_QK_NORM(IG_TENSOR_PLUS_ONE),
	{ "layers.%u.post_attention_layernorm", "blk.%u.post_attention_norm", IG_TENSOR_PLUS_ONE },
	{ "layers.%u.pre_feedforward_layernorm", "blk.%u.ffn_norm", IG_TENSOR_PLUS_ONE },
	{ "layers.%u.post_feedforward_layernorm", "blk.%u.post_ffw_norm", IG_TENSOR_PLUS_ONE },
	IG_TENSORS_GLU,
};

/* The scale must be that of read_any. */
static void check_scale(const struct ig_config *c)
{
	const uint32_t n_heads = c->get_u32(c, "attention.head_count");
	uint32_t both = 0;
	float scalar = 256, scale = (float)c->get_u32(c, "attention.key_length");

	if (c->get_u32(c, "block_count") == 62 && n_heads)
		scale = (float)(c->get_u32(c, "embedding_length") / n_heads);
	/* EmbeddingGemma; read_pooling of the host says how its rows are pooled */
	c->flag(c, "use_bidirectional_attention", &both);
	if (both)
		c->put_u32(c, "pooling_type", IG_POOL_MEAN);
	c->f32(c, "query_pre_attn_scalar", &scalar);
	if (scalar != scale)
		c->refuse(c, -ENOTSUP, "query_pre_attn_scalar", "is %g: only %g is supported here",
			  (double)scalar, (double)scale);
}

static const struct ig_arch_files gemma3_files = {
	.struct_size = sizeof gemma3_files,
	.model_type = "gemma3_text",
	.outer_type = "gemma3",
	.tied = 1,
	IG_CONFIG_KEYS(keys),
	IG_TENSOR_NAMES(names),
	.rope_theta = 1e6,
	.head_dim = 256,
	.config = check_scale,
};
static const struct ig_arch_files *const files[] = { &gemma3_files, NULL };

const struct ig_arch ig_arch_gemma3 = {
	.struct_size = sizeof(struct ig_arch),
	.params_size = sizeof(struct gemma3),
	.name = "gemma3",
	.read_params = read_params,
	.record = record,
	.files = files,
};

const struct ig_arch ig_arch_gemma_embedding = {
	.struct_size = sizeof(struct ig_arch),
	.params_size = sizeof(struct gemma3),
	.name = "gemma-embedding",
	.read_params = read_embedding,
	.record = record,
};
