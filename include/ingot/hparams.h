/*
 * hparams.h: reading and checking hyper-parameters under GGUF's keys, for all architectures.  Tier
 * 1 (module.h).  Static functions over struct ig_host: a module links nothing for them but libm.
 * Keys are given without the architecture's prefix.  Functions that return int return 0 or a
 * negative errno with a text that names the key: -ENOENT if it is missing, -EINVAL if it has
 * another type or an impossible value, -ENOTSUP if it asks for an unsupported feature.  A
 * hyper-parameter of only one architecture is read in that architecture's file.
 */
#ifndef INGOT_HPARAMS_H
#define INGOT_HPARAMS_H

#include <errno.h>
#include <math.h>
#include <string.h>

#include <ingot/arch.h>
#include <ingot/hparams_keys.h>

/* ---- hyper-parameters of every decoder ---------------------------------------------------- */

struct ig_hparams {
	uint32_t n_layers, width, n_ff, n_vocab, n_context;
	uint32_t n_heads, n_kv_heads, head_dim;
	uint32_t tied; /* 1: there is no output.weight; the embedding is the output matrix */
	float norm_eps;
};

/* The key of the norms' epsilon, by kind of norm. */
#define IG_RMS_NORM_EPS "attention.layer_norm_rms_epsilon"
#define IG_LAYER_NORM_EPS "attention.layer_norm_epsilon"

/* The KV heads of each layer: a list, 0 for layers without attention, or one number, which all have.
 * n_kv_heads: of those that have attention. */
static inline int ig_hparams_read_kv_layers(const struct ig_hparam_source *s, struct ig_hparams *p,
					    uint32_t *kv)
{
	int rc = ig_hparam_u32(s, "attention.head_count_kv", 1, IG_ATTENTION_MAX_HEADS, NULL,
			       &p->n_kv_heads);

	for (uint32_t i = 0; !rc && i < p->n_layers; i++)
		kv[i] = p->n_kv_heads;
	if (rc != -EINVAL)
		return rc;
	if ((rc = ig_hparam_layers(s, "attention.head_count_kv", p->n_layers, kv)))
		return rc;
	p->n_kv_heads = 0;
	for (uint32_t i = 0; i < p->n_layers; i++) {
		if (kv[i] > IG_ATTENTION_MAX_HEADS ||
		    (p->n_kv_heads && kv[i] && kv[i] != p->n_kv_heads))
			return ig_fail(s->err, -EINVAL,
				       "%s.attention.head_count_kv has %u for layer %u", s->arch,
				       kv[i], i);
		p->n_kv_heads = kv[i] ? kv[i] : p->n_kv_heads;
	}
	return p->n_kv_heads ? 0 :
			       ig_fail(s->err, -ENOTSUP,
				       "%s.attention.head_count_kv has only zeros: a model without "
				       "attention is not supported",
				       s->arch);
}

/* kv_layers: NULL, or [n_layers], see ig_hparams_read_kv_layers. */
static inline int ig_hparams_read_heads(const struct ig_hparam_source *s, struct ig_hparams *p,
					uint32_t *kv_layers)
{
	uint32_t even, v_dim;
	int rc;

	rc = ig_hparam_u32(s, "attention.head_count", 1, IG_ATTENTION_MAX_HEADS, NULL, &p->n_heads);
	if (!rc && kv_layers)
		rc = ig_hparams_read_kv_layers(s, p, kv_layers);
	else if (!rc)
		rc = ig_hparam_u32(s, "attention.head_count_kv", 1, IG_ATTENTION_MAX_HEADS,
				   &p->n_heads, &p->n_kv_heads);
	if (rc)
		return rc;
	if (p->n_heads % p->n_kv_heads)
		return ig_fail(s->err, -EINVAL,
			       "%s.attention.head_count %u is not a multiple of "
			       "%s.attention.head_count_kv %u",
			       s->arch, p->n_heads, s->arch, p->n_kv_heads);
	even = p->width % p->n_heads ? 0 : p->width / p->n_heads;
	rc = ig_hparam_u32(s, "attention.key_length", 0, UINT32_MAX, &even, &p->head_dim);
	if (rc)
		return rc;
	if (!even && !p->head_dim)
		return ig_fail(s->err, -EINVAL,
			       "%s.embedding_length %u is not a multiple of "
			       "%s.attention.head_count %u",
			       s->arch, p->width, s->arch, p->n_heads);
	if (!p->head_dim || p->head_dim > IG_ATTENTION_MAX_HEAD_DIM || p->head_dim % 8)
		return ig_fail(s->err, -EINVAL,
			       "a head of %u dimensions is not supported "
			       "(%s.attention.key_length; multiples of 8 up to %u are)",
			       p->head_dim, s->arch, IG_ATTENTION_MAX_HEAD_DIM);
	rc = ig_hparam_u32(s, "attention.value_length", 0, UINT32_MAX, &p->head_dim, &v_dim);
	if (rc)
		return rc;
	if (v_dim != p->head_dim)
		return ig_fail(s->err, -ENOTSUP,
			       "%s.attention.value_length %u is not the key's %u: not supported",
			       s->arch, v_dim, p->head_dim);
	return 0;
}

/* Few converters write vocab_size; the default is the embedding's number of rows. */
static inline int ig_hparams_read_vocab(const struct ig_hparam_source *s, uint32_t *n_vocab)
{
	int64_t n_rows, n_cols;
	uint32_t rows;

	if (s->host->meta_tensor(s->meta, "token_embd.weight", &n_rows, &n_cols) ||
	    n_rows > UINT32_MAX)
		return ig_hparam_u32(s, "vocab_size", 1, 1u << 24, NULL, n_vocab);
	rows = (uint32_t)n_rows;
	return ig_hparam_u32(s, "vocab_size", 1, 1u << 24, &rows, n_vocab);
}

#define IG_MAX_LAYERS 1024

/* The layers that compute a token's logits: the last nextn_predict_layers blocks of a file predict
 * tokens further on, and are left out. */
static inline int ig_hparams_read_layers(const struct ig_hparam_source *s, uint32_t *n_layers)
{
	const uint32_t none = 0;
	uint32_t n_blocks, n_next;
	int rc = ig_hparam_u32(s, "block_count", 1, IG_MAX_LAYERS, NULL, &n_blocks);

	if (!rc)
		rc = ig_hparam_u32(s, "nextn_predict_layers", 0, n_blocks - 1, &none, &n_next);
	if (!rc)
		*n_layers = n_blocks - n_next;
	return rc;
}

/* Whether the block behind the layers is a head that guesses the token after the next one: 1, or 0. */
static inline uint32_t ig_hparams_has_mtp(const struct ig_hparam_source *s, uint32_t n_layers)
{
	return ig_meta_layer_has(s->host, s->meta, "blk.%u.nextn.eh_proj.weight", n_layers);
}

/* The feed-forward's width; a model whose layers all have experts may tell theirs alone. */
static inline int ig_hparams_read_ff(const struct ig_hparam_source *s, uint32_t *n_ff)
{
	const uint32_t none = 0;
	uint32_t expert;
	int rc = ig_hparam_u32(s, "expert_feed_forward_length", 0, 1u << 20, &none, &expert);

	return rc ? rc :
		    ig_hparam_u32(s, "feed_forward_length", 8, 1u << 20, expert ? &expert : NULL,
				  n_ff);
}

/* The widths of each layer's feed-forward, 0 for layers without one; n_ff is the largest. */
static inline int ig_hparams_read_ff_layers(const struct ig_hparam_source *s, uint32_t n_layers,
					    uint32_t *ff, uint32_t *n_ff)
{
	int rc = ig_hparam_each_layer(s, "feed_forward_length", 0, 1u << 20, n_layers, ff);

	*n_ff = 0;
	for (uint32_t i = 0; !rc && i < n_layers; i++)
		*n_ff = ff[i] > *n_ff ? ff[i] : *n_ff;
	return rc;
}

/* What all kinds of layers have in common: their number, the width, the vocabulary and the context. */
static inline int ig_hparams_read_sizes(const struct ig_hparam_source *s, struct ig_hparams *p)
{
	int rc;

	/* RoPE converts positions to float, which is exact up to 2^24. */
	if ((rc = ig_hparams_read_layers(s, &p->n_layers)) ||
	    (rc = ig_hparam_u32(s, "embedding_length", 8, 1u << 17, NULL, &p->width)) ||
	    (rc = ig_hparams_read_vocab(s, &p->n_vocab)) ||
	    (rc = ig_hparam_u32(s, "context_length", 1, 1u << 24, NULL, &p->n_context)))
		return rc;
	p->tied = !s->host->meta_has_tensor(s->meta, "output.weight");
	return 0;
}

/* ig_hparams_read, below, for models some of whose layers have no attention, kv_layers
 * [IG_MAX_LAYERS] are the KV heads of each, and unless it is NULL no feed-forward, ff_layers
 * [IG_MAX_LAYERS] are the widths. */
static inline int ig_hparams_read_mixed(const struct ig_hparam_source *s, const char *norm_eps,
					struct ig_hparams *p, uint32_t *kv_layers,
					uint32_t *ff_layers)
{
	int rc;

	if ((rc = ig_hparams_read_sizes(s, p)) ||
	    (rc = ff_layers ? ig_hparams_read_ff_layers(s, p->n_layers, ff_layers, &p->n_ff) :
			      ig_hparams_read_ff(s, &p->n_ff)) ||
	    (rc = ig_hparams_read_heads(s, p, kv_layers)))
		return rc;
	return ig_hparam_f32(s, norm_eps, 0, 1, NULL, &p->norm_eps);
}

/* The same with a feed-forward in each layer. */
static inline int ig_hparams_read_hybrid(const struct ig_hparam_source *s, const char *norm_eps,
					 struct ig_hparams *p, uint32_t *kv_layers)
{
	return ig_hparams_read_mixed(s, norm_eps, p, kv_layers, NULL);
}

/* Read all of them, for dense models and models with experts.  norm_eps: IG_RMS_NORM_EPS or
 * IG_LAYER_NORM_EPS. */
static inline int ig_hparams_read(const struct ig_hparam_source *s, const char *norm_eps,
				  struct ig_hparams *p)
{
	return ig_hparams_read_hybrid(s, norm_eps, p, NULL);
}

/* The same for a dense model: experts are an error. */
static inline int ig_hparams_dense(const struct ig_hparam_source *s, const char *norm_eps,
				   struct ig_hparams *p)
{
	int rc = ig_hparam_refuse_u32(s, "expert_count", "experts");

	return rc ? rc : ig_hparams_read(s, norm_eps, p);
}

/* The sliding window in tokens; 0: none, or not smaller than the context. */
static inline int ig_hparams_window(const struct ig_hparam_source *s, const struct ig_hparams *p,
				    uint32_t *window)
{
	const uint32_t none = 0;
	int rc = ig_hparam_u32(s, "attention.sliding_window", 0, UINT32_MAX, &none, window);

	if (!rc && *window >= p->n_context)
		*window = 0;
	return rc;
}

/* Fill in info of a model whose layers are one cache group.  window in tokens; 0: none. */
static inline void ig_hparams_info(const struct ig_hparams *p, uint32_t window,
				   struct ig_model_info *info)
{
	info->n_vocab = p->n_vocab;
	info->n_context = p->n_context;
	info->n_groups = 1;
	info->groups[0] = (struct ig_cache_group){
		.struct_size = sizeof info->groups[0],
		.n_layers = p->n_layers,
		.n_kv_heads = p->n_kv_heads,
		.head_dim = p->head_dim,
		.window = window,
	};
}

/* Fill in info of a model with two kinds of layers: 0, without a window, and 1, with one.  Each kind in
 * use has a cache group, group[kind]; group_layer [n_layers]: a layer's index in its group. */
static inline void ig_hparams_info_kinds(const struct ig_hparams *p, const uint8_t *kind,
					 uint32_t window, uint32_t group[2], uint16_t *group_layer,
					 struct ig_model_info *info)
{
	uint16_t n[2] = { 0, 0 };

	ig_hparams_info(p, 0, info);
	info->groups[1] = info->groups[0];
	info->n_groups = 0;
	for (uint32_t i = 0; i < p->n_layers; i++)
		group_layer[i] = n[kind[i]]++;
	for (uint32_t k = 0; k < 2; k++) {
		if (!n[k])
			continue;
		group[k] = info->n_groups++;
		info->groups[group[k]].n_layers = n[k];
		info->groups[group[k]].window = k ? window : 0;
	}
}

/* Add a cache group of state: n_layers layers of n_parts parts of n_floats float32.  Returns its
 * number. */
static inline uint32_t ig_hparams_state(struct ig_model_info *info, uint32_t n_layers,
					uint32_t n_parts, uint32_t n_floats)
{
	const uint32_t group = info->n_groups;

	if (group < IG_MAX_CACHE_GROUPS)
		info->groups[info->n_groups++] = (struct ig_cache_group){
			.struct_size = sizeof info->groups[0],
			.n_layers = n_layers,
			.n_kv_heads = n_parts,
			.head_dim = n_floats,
			.kind = IG_CACHE_STATE,
		};
	return group;
}

#define IG_STATE_PART_BYTES (1u << 20) /* of a part of a state, at most, unless a head has more */

/* As many of n_heads heads of n_floats in a part of a state as fit well into slabs. */
static inline uint32_t ig_hparams_part_heads(uint32_t n_heads, uint32_t n_floats)
{
	uint32_t n = n_heads;

	while (n > 1 && 4ull * n_floats * n > IG_STATE_PART_BYTES)
		do
			n--;
		while (n_heads % n);
	return n;
}

/* ---- models of embeddings ------------------------------------------------------------------ */

/* How a text's rows become one, and the head of a reranker: a dense layer with tanh or none, then
 * n_scores logits. */
struct ig_pooling {
	uint32_t kind; /* IG_POOL_MEAN …, as pooling_type; 0: the model is none of embeddings */
	uint32_t dense, dense_bias; /* 1: there is cls.weight, cls.bias */
	uint32_t n_scores, score_bias;
};

/* Rows of the table of texts' types; 0: texts have none. */
static inline uint32_t ig_hparam_text_types(const struct ig_hparam_source *s)
{
	int64_t n_rows, n_cols;

	if (s->host->meta_tensor(s->meta, "token_types.weight", &n_rows, &n_cols))
		return 0;
	return n_rows > 0 && n_rows < 1024 ? (uint32_t)n_rows : 1;
}

/* fallback: where the file has no pooling_type; 0: it is then not read as a model of embeddings. */
static inline int ig_hparams_pooling(const struct ig_hparam_source *s, uint32_t fallback,
				     struct ig_pooling *pooling)
{
	int64_t n_rows, n_cols;
	int rc;

	memset(pooling, 0, sizeof *pooling);
	rc = ig_hparam_u32(s, "pooling_type", 0, IG_POOL_RANK, &fallback, &pooling->kind);
	if (!rc && !pooling->kind)
		pooling->kind = fallback;
	if (rc || pooling->kind != IG_POOL_RANK)
		return rc;
	if (s->host->meta_tensor(s->meta, "cls.output.weight", &n_rows, &n_cols) || n_rows < 1 ||
	    n_rows > 2)
		return ig_fail(s->err, -ENOTSUP,
			       "%s.pooling_type is 4 (rank), and cls.output.weight is missing or "
			       "has not one or two rows",
			       s->arch);
	pooling->n_scores = (uint32_t)n_rows;
	pooling->score_bias = s->host->meta_has_tensor(s->meta, "cls.output.bias") != 0;
	pooling->dense = s->host->meta_has_tensor(s->meta, "cls.weight") != 0;
	pooling->dense_bias = s->host->meta_has_tensor(s->meta, "cls.bias") != 0;
	return 0;
}

/* Fill in info of a model without a cache. */
static inline void ig_hparams_info_pooled(const struct ig_hparams *p,
					  const struct ig_pooling *pooling,
					  struct ig_model_info *info)
{
	info->n_vocab = p->n_vocab;
	info->n_context = p->n_context;
	info->n_groups = 0;
	info->result = pooling->kind == IG_POOL_RANK ? IG_RESULT_SCORE : IG_RESULT_EMBEDDING;
}

/* ---- experts -------------------------------------------------------------------------------- */

enum ig_experts_flags {
	IG_EXPERTS_SELECT_BIAS = 1 << 0, /* exp_probs_b.bias */
	IG_EXPERTS_SHARED_GATE = 1 << 1, /* ffn_gate_inp_shexp [1, width] weights the shared one */
	IG_EXPERTS_SCALE = 1 << 2,	 /* ffn_down_exps.scale, one number for each expert */
	IG_EXPERTS_ROUTER_BIAS = 1 << 3, /* ffn_gate_inp.bias */
	IG_EXPERTS_BIAS = 1 << 4,	 /* ffn_{gate,up,down}_exps.bias */
};

struct ig_experts {
	struct ig_moe moe;    /* act is SiLU, scale 1; the architecture sets normalise */
	uint32_t n_ff;	      /* width of one expert's feed-forward */
	uint32_t flags;	      /* enum ig_experts_flags */
	uint32_t n_ff_shared; /* of the shared expert; 0: there is none */
	uint32_t n_dense;     /* the first layers, which have no experts */
};

/* Of layers that differ: how many experts each uses, and their width; both 0 where the file has a 0. */
struct ig_experts_layers {
	uint32_t top_k[IG_MAX_LAYERS], n_ff[IG_MAX_LAYERS];
};

static inline int ig_hparams_read_experts_layers(const struct ig_hparam_source *s,
						 const struct ig_hparams *p, uint32_t most,
						 struct ig_experts *e, struct ig_experts_layers *l)
{
	int rc;

	if ((rc = ig_hparam_each_layer(s, "expert_used_count", 0, most, p->n_layers, l->top_k)))
		return rc;
	rc = ig_hparam_each_layer(s, "expert_feed_forward_length", 0, 1u << 20, p->n_layers,
				  l->n_ff);
	for (uint32_t i = 0; rc == -ENOENT && i < p->n_layers; i++)
		l->n_ff[i] = p->n_ff;
	if (rc && rc != -ENOENT)
		return rc;
	for (uint32_t i = 0; i < p->n_layers; i++) {
		if (!l->top_k[i] || !l->n_ff[i])
			l->top_k[i] = l->n_ff[i] = 0;
		if (l->n_ff[i] % 16)
			return ig_fail(s->err, -ENOTSUP,
				       "%s: experts of %u columns in layer %u are not supported; "
				       "multiples of 16 are",
				       s->arch, l->n_ff[i], i);
		e->moe.top_k = l->top_k[i] > e->moe.top_k ? l->top_k[i] : e->moe.top_k;
		e->n_ff = l->n_ff[i] > e->n_ff ? l->n_ff[i] : e->n_ff;
	}
	return 0;
}

/* Keys that all models with experts have; one tensor per expert is an error.  layers: NULL, or what differs, of which
 * e has the largest. */
static inline int ig_hparams_read_experts_by(const struct ig_hparam_source *s,
					     const struct ig_hparams *p, struct ig_experts *e,
					     struct ig_experts_layers *layers)
{
	uint32_t most;
	int rc;

	*e = (struct ig_experts){ .moe = { .act = IG_ACT_SILU, .scale = 1 } };
	if ((rc = ig_hparam_u32(s, "expert_count", 1, IG_MOE_MAX_EXPERTS, NULL, &e->moe.n_experts)))
		return rc;
	most = e->moe.n_experts < IG_MOE_MAX_TOP_K ? e->moe.n_experts : IG_MOE_MAX_TOP_K;
	if (layers)
		rc = ig_hparams_read_experts_layers(s, p, most, e, layers);
	else if (!(rc = ig_hparam_u32(s, "expert_used_count", 1, most, NULL, &e->moe.top_k)))
		rc = ig_hparam_u32(s, "expert_feed_forward_length", 16, 1u << 20, &p->n_ff,
				   &e->n_ff);
	if (rc)
		return rc;
	if (e->n_ff % 16 || p->width % 16)
		return ig_fail(s->err, -ENOTSUP,
			       "%s: experts of %u x %u are not supported; multiples of 16 are",
			       s->arch, e->n_ff, p->width);
	if (s->host->meta_has_tensor(s->meta, "blk.0.ffn_gate.0.weight"))
		return ig_fail(s->err, -ENOTSUP,
			       "tensor blk.0.ffn_gate.0.weight: experts in tensors "
			       "of their own are not supported: convert the model anew");
	return 0;
}

static inline int ig_hparams_read_experts(const struct ig_hparam_source *s,
					  const struct ig_hparams *p, struct ig_experts *e)
{
	return ig_hparams_read_experts_by(s, p, e, NULL);
}

/* Read the experts of a model that has them in every layer, with a softmax router.  Shared experts,
 * dense layers and one tensor per expert are errors. */
static inline int ig_hparams_experts(const struct ig_hparam_source *s, const struct ig_hparams *p,
				     struct ig_experts *e)
{
	const uint32_t softmax = 1;
	uint32_t gating;
	int rc;

	if ((rc = ig_hparams_read_experts(s, p, e)) ||
	    (rc = ig_hparam_refuse_u32(s, "expert_shared_count", "shared experts")) ||
	    (rc = ig_hparam_refuse_u32(s, "expert_shared_feed_forward_length", "shared experts")) ||
	    (rc = ig_hparam_refuse_u32(s, "leading_dense_block_count", "dense layers")) ||
	    (rc = ig_hparam_refuse_u32(s, "expert_group_count", "groups of experts")) ||
	    (rc = ig_hparam_refuse_f32(s, "expert_weights_scale", "scaled experts")) ||
	    (rc = ig_hparam_u32(s, "expert_gating_func", 0, UINT32_MAX, &softmax, &gating)))
		return rc;
	if (gating > 1)
		return ig_fail(s->err, -ENOTSUP,
			       "%s.expert_gating_func is %u: only a softmax (1) is supported",
			       s->arch, gating);
	return 0;
}

/* Scores by expert_gating_func (1: a softmax, 2: sigmoids, 3: a softmax over the selected experts),
 * a selection bias, groups, and the weights' sum and scale.  gating: for files without the key. */
static inline int ig_hparams_read_router(const struct ig_hparam_source *s, uint32_t gating,
					 struct ig_experts *e)
{
	const uint32_t none = 0;
	const float no_scale = 0;
	char name[48];
	float scale;
	int rc;

	if ((rc = ig_hparam_u32(s, "expert_gating_func", 1, 3, &gating, &gating)) ||
	    (rc = ig_hparam_u32(s, "expert_weights_norm", 0, 1, &none, &e->moe.normalise)) ||
	    (rc = ig_hparam_f32(s, "expert_weights_scale", 0, 1e6f, &no_scale, &scale)) ||
	    (rc = ig_hparam_u32(s, "expert_group_count", 0, IG_MOE_MAX_GROUPS, &none,
				&e->moe.n_groups)) ||
	    (rc = ig_hparam_u32(s, "expert_group_used_count", 0, e->moe.n_groups, &none,
				&e->moe.n_groups_used)))
		return rc;
	e->moe.gating = gating == 2 ? IG_GATING_SIGMOID : IG_GATING_SOFTMAX;
	e->moe.normalise = gating == 3 || e->moe.normalise;
	e->moe.scale = scale != 0 ? scale : 1;
	if (e->moe.n_groups_used == e->moe.n_groups)
		e->moe.n_groups = e->moe.n_groups_used = 0;
	snprintf(name, sizeof name, "blk.%u.exp_probs_b.bias", e->n_dense);
	if (s->host->meta_has_tensor(s->meta, name))
		e->flags |= IG_EXPERTS_SELECT_BIAS;
	if (gating == 2)
		return 0;
	if (e->moe.n_groups)
		return ig_fail(s->err, -ENOTSUP,
			       "%s.expert_group_count is %u: groups are supported only with "
			       "sigmoid gating",
			       s->arch, e->moe.n_groups);
	return e->flags & IG_EXPERTS_SELECT_BIAS ?
		       ig_fail(s->err, -ENOTSUP,
			       "tensor %s: a selection bias is supported only with sigmoid gating",
			       name) :
		       0;
}

/* Read the experts of a model that may have any of what ig_layer_experts records: dense layers
 * first, a shared expert, with a gate or without one, and the routers above. */
static inline int ig_hparams_experts_shared_by(const struct ig_hparam_source *s,
					       const struct ig_hparams *p, uint32_t gating,
					       struct ig_experts *e,
					       struct ig_experts_layers *layers)
{
	const uint32_t none = 0;
	uint32_t n_shared, n_ff_shared;
	int rc;

	if ((rc = ig_hparams_read_experts_by(s, p, e, layers)) ||
	    (rc = ig_hparam_u32(s, "leading_dense_block_count", 0, p->n_layers, &none,
				&e->n_dense)) ||
	    (rc = ig_hparam_u32(s, "expert_shared_count", 0, 64, &none, &n_shared)))
		return rc;
	n_ff_shared = n_shared * e->n_ff;
	if ((rc = ig_hparam_u32(s, "expert_shared_feed_forward_length", 0, 1u << 20, &n_ff_shared,
				&e->n_ff_shared)) ||
	    (rc = ig_hparams_read_router(s, gating, e)))
		return rc;
	if (e->n_ff_shared &&
	    ig_meta_layer_has(s->host, s->meta, "blk.%u.ffn_gate_inp_shexp.weight", e->n_dense)) {
		e->flags |= IG_EXPERTS_SHARED_GATE;
		e->moe.shared = 1;
	}
	if (ig_meta_layer_has(s->host, s->meta, "blk.%u.ffn_gate_up_exps.weight", e->n_dense))
		e->moe.form = IG_MOE_FUSED;
	return 0;
}

static inline int ig_hparams_experts_shared(const struct ig_hparam_source *s,
					    const struct ig_hparams *p, uint32_t gating,
					    struct ig_experts *e)
{
	return ig_hparams_experts_shared_by(s, p, gating, e, NULL);
}

/* The experts of a layer. */
static inline struct ig_experts
ig_experts_of_layer(const struct ig_experts *e, const struct ig_experts_layers *l, uint32_t layer)
{
	struct ig_experts of = *e;

	of.moe.top_k = l->top_k[layer];
	of.n_ff = l->n_ff[layer];
	return of;
}

/* ---- RoPE ------------------------------------------------------------------------------------ */

struct ig_rope {
	struct ig_rope_table_params table;
	uint32_t has_factors; /* 1: the file has rope_freqs.weight [1, n_pairs] */
	float attention;      /* YaRN's temperature: multiplies q . k besides 1 / sqrt(head_dim) */
	uint32_t unrounded;   /* 1: YaRN's ramp begins and ends between pairs */
};

/* The pair, as a real number, that makes n full rotations over n_context positions. */
static inline double ig_rope_pair_of_rotations(const struct ig_rope *rope, uint32_t n_context,
					       float n)
{
	return rope->table.n_pairs * log(n_context / (2 * 3.14159265358979323846 * (double)n)) /
	       log((double)rope->table.freq_base);
}

/*
 * YaRN (Peng et al. 2023, arXiv:2309.00071).  Pairs with more than beta_fast rotations over the
 * training context keep their frequency; pairs with fewer than beta_slow rotations have it
 * divided by the factor; between them the frequency is interpolated linearly, from a whole pair to
 * a whole pair unless yarn_truncate is 0.  q and k are multiplied by m = (0.1 ln(factor) + 1) /
 * (0.1 log_multiplier ln(factor) + 1): if all dimensions are rotated q . k is multiplied by m^2, if
 * not cosines and sines by m.
 */
static inline int ig_rope_read_yarn(const struct ig_hparam_source *s, const struct ig_hparams *p,
				    float factor, struct ig_rope *rope)
{
	const float zero = 0, one = 1, default_fast = 32, default_slow = 1;
	const uint32_t rounded = !rope->unrounded;
	float fast, slow, attn, ext, log_mul;
	uint32_t n_context, truncate;
	double first, last, m;
	int rc;

	if ((rc = ig_hparam_f32(s, "rope.scaling.yarn_log_multiplier", 0, 1e3f, &zero, &log_mul)) ||
	    (rc = ig_hparam_u32(s, "rope.scaling.original_context_length", 1, 1u << 24,
				&p->n_context, &n_context)) ||
	    (rc = ig_hparam_f32(s, "rope.scaling.yarn_beta_fast", 1e-3f, 1e6f, &default_fast,
				&fast)) ||
	    (rc = ig_hparam_f32(s, "rope.scaling.yarn_beta_slow", 1e-3f, 1e6f, &default_slow,
				&slow)) ||
	    (rc = ig_hparam_u32(s, "rope.scaling.yarn_truncate", 0, 1, &rounded, &truncate)) ||
	    (rc = ig_hparam_f32(s, "rope.scaling.yarn_ext_factor", 1, 1, &one, &ext)) ||
	    (rc = ig_hparam_f32(s, "rope.scaling.yarn_attn_factor", 1e-3f, 1e3f, &one, &attn)) ||
	    (rc = ig_hparam_f32(s, "rope.scaling.attn_factor", 1e-3f, 1e3f, &attn, &attn)))
		return rc;
	if (!(rope->table.freq_base > 1))
		return ig_fail(s->err, -EINVAL, "%s.rope.freq_base is %g: YaRN needs more than 1",
			       s->arch, (double)rope->table.freq_base);
	first = ig_rope_pair_of_rotations(rope, n_context, fast);
	last = ig_rope_pair_of_rotations(rope, n_context, slow);
	rope->unrounded = !truncate;
	first = fmax(truncate ? floor(first) : first, 0);
	last = fmin(truncate ? ceil(last) : last, 2 * rope->table.n_pairs - 1);
	if (last - first < 0.001)
		last = first + 0.001;
	rope->table.freq_scale = 1 / factor;
	rope->table.ramp_first = (float)first;
	rope->table.ramp_last = (float)last;
	m = (double)attn * (0.1 * log((double)factor) + 1) /
	    (0.1 * (double)log_mul * log((double)factor) + 1);
	if (2 * rope->table.n_pairs == p->head_dim)
		rope->attention = (float)(m * m);
	else
		rope->table.magnitude = (float)m;
	return 0;
}

static inline int ig_rope_is_type(const char *type, size_t len, const char *word)
{
	return len == strlen(word) && !memcmp(type, word, len);
}

static inline int ig_rope_read_scaling(const struct ig_hparam_source *s, const struct ig_hparams *p,
				       struct ig_rope *rope)
{
	struct ig_hparam_key k = ig_hparam_key(s, "rope.scale_linear");
	const char *type;
	size_t len;
	float factor;
	int rc = s->host->meta_f32(s->meta, k.text, &factor, s->err);

	if (rc == 0)
		return ig_fail(s->err, -ENOTSUP,
			       "%s is not supported: convert the model anew (%s.rope.scaling.type)",
			       k.text, s->arch);
	if (rc != -ENOENT)
		return rc;
	k = ig_hparam_key(s, "rope.scaling.type");
	rc = s->host->meta_str(s->meta, k.text, &type, &len, s->err);
	if (rc == -ENOENT || (rc == 0 && ig_rope_is_type(type, len, "none")))
		return 0;
	if (rc)
		return rc;
	if (!ig_rope_is_type(type, len, "linear") && !ig_rope_is_type(type, len, "yarn"))
		return ig_fail(s->err, -ENOTSUP,
			       "%s \"%.*s\" is not supported; none, linear and yarn are", k.text,
			       (int)(len < 32 ? len : 32), type);
	rc = ig_hparam_f32(s, "rope.scaling.factor", 1, 1024, NULL, &factor);
	if (rc)
		return rc;
	if (ig_rope_is_type(type, len, "yarn"))
		return ig_rope_read_yarn(s, p, factor, rope);
	rope->table.freq_scale = 1 / factor;
	return 0;
}

/* ig_hparams_rope, below, for a model whose ramp of YaRN is not rounded (1) unless its file says
 * so. */
static inline int ig_hparams_rope_unrounded(const struct ig_hparam_source *s,
					    const struct ig_hparams *p, uint32_t unrounded,
					    struct ig_rope *rope)
{
	const float default_base = 10000;
	uint32_t n_rot;
	int rc;

	*rope = (struct ig_rope){ .table = { .struct_size = sizeof rope->table, .freq_scale = 1 },
				  .attention = 1,
				  .unrounded = unrounded };
	rc = ig_hparam_u32(s, "rope.dimension_count", 2, p->head_dim, &p->head_dim, &n_rot);
	if (rc)
		return rc;
	if (n_rot % 2)
		return ig_fail(s->err, -EINVAL, "%s.rope.dimension_count %u is odd", s->arch,
			       n_rot);
	rope->table.n_pairs = n_rot / 2;
	rc = ig_hparam_f32(s, "rope.freq_base", 1, 1e12f, &default_base, &rope->table.freq_base);
	if (!rc)
		rc = ig_rope_read_scaling(s, p, rope);
	rope->has_factors = s->host->meta_has_tensor(s->meta, "rope_freqs.weight") != 0;
	return rc;
}

/* Read RoPE: the number of rotated dimensions of a head, the frequencies and their scaling. */
static inline int ig_hparams_rope(const struct ig_hparam_source *s, const struct ig_hparams *p,
				  struct ig_rope *rope)
{
	return ig_hparams_rope_unrounded(s, p, 0, rope);
}

/* Read the sections of M-RoPE behind ig_hparams_rope: three numbers of pairs, and in some files a
 * fourth, which is 0.  Without the key all pairs turn by one position. */
static inline int ig_hparams_rope_sections(const struct ig_hparam_source *s, uint32_t interleaved,
					   struct ig_rope *rope)
{
	const struct ig_hparam_key k = ig_hparam_key(s, "rope.dimension_sections");
	uint32_t n[IG_ROPE_AXES + 1] = { 0 };
	uint64_t n_axes = 0, sum = 0;
	int rc = s->host->meta_array_u32(s->meta, k.text, n, IG_ROPE_AXES + 1, &n_axes, s->err);

	if (rc)
		return rc == -ENOENT ? 0 : rc;
	for (uint32_t i = 0; i < IG_ROPE_AXES; i++)
		sum += rope->table.sections[i] = n[i];
	if (n_axes < IG_ROPE_AXES || n_axes > IG_ROPE_AXES + 1 || n[IG_ROPE_AXES] ||
	    sum != rope->table.n_pairs)
		return ig_fail(s->err, -EINVAL,
			       "%s has %u, %u and %u pairs of the %u that are rotated", k.text,
			       n[0], n[1], n[2], rope->table.n_pairs);
	rope->table.interleaved = interleaved;
	return 0;
}

#endif
