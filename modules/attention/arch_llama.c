/*
 * arch_llama.c: Llama (Touvron et al. 2023, arXiv:2302.13971) and what kept its
 * shape: Llama 2 and 3, SmolLM, Mistral: pre-norm blocks, rotary positions,
 * grouped-query attention, a gated SiLU feed-forward.
 *
 * Hyper-parameters and tensor names are GGUF's.  What a file asks for and this
 * file does not do (experts, biases, windows, other rope scalings) is refused
 * by name.
 */
#include "kernels-private.h"

#include <errno.h>
#include <math.h>
#include <string.h>

struct llama {
	uint32_t n_layers, width, n_ff, n_vocab, n_context;
	uint32_t n_heads, n_kv_heads, head_dim;
	uint32_t n_pairs; /* of dimensions that rotate */
	uint32_t rope_factors; /* the file has rope_freqs.weight */
	uint32_t tied; /* no output.weight: the embedding serves */
	float norm_eps, freq_base, freq_scale;
};

/* ---- hyper-parameters ------------------------------------------------------------ */

struct reader {
	const struct ig_host *host;
	const struct ig_meta *meta;
	struct ig_error *err;
};

/* A number in [min, max].  With fallback, the key may be missing. */
static int read_u32(const struct reader *r, const char *key, uint32_t min, uint32_t max,
		    const uint32_t *fallback, uint32_t *out)
{
	int rc = r->host->meta_u32(r->meta, key, out, r->err);

	if (rc == -ENOENT && fallback) {
		*out = *fallback;
		rc = 0;
	}
	if (rc)
		return rc;
	if (*out < min || *out > max)
		return ig_fail(r->err, -EINVAL, "%s is %u, not in %u … %u", key, *out, min, max);
	return 0;
}

static int read_f32(const struct reader *r, const char *key, float min, float max,
		    const float *fallback, float *out)
{
	int rc = r->host->meta_f32(r->meta, key, out, r->err);

	if (rc == -ENOENT && fallback) {
		*out = *fallback;
		rc = 0;
	}
	if (rc)
		return rc;
	if (!(*out >= min && *out <= max)) /* NaN too */
		return ig_fail(r->err, -EINVAL, "%s is %g, not in %g … %g", key, (double)*out,
			       (double)min, (double)max);
	return 0;
}

/* A number that must be zero or missing: what it asks for is not done here. */
static int refuse_u32(const struct reader *r, const char *key, const char *what)
{
	uint32_t n;
	int rc = r->host->meta_u32(r->meta, key, &n, r->err);

	if (rc == -ENOENT)
		return 0;
	if (rc)
		return rc;
	return n ? ig_fail(r->err, -ENOTSUP, "%s is %u: llama with %s is not supported", key, n,
			   what) : 0;
}

static int read_rope_scaling(const struct reader *r, struct llama *p)
{
	const char *type;
	size_t len;
	float factor;
	int rc;

	p->freq_scale = 1;
	rc = r->host->meta_f32(r->meta, "llama.rope.scale_linear", &factor, r->err);
	if (rc == 0)
		return ig_fail(r->err, -ENOTSUP, "llama.rope.scale_linear is not supported: "
			       "convert the model anew (llama.rope.scaling.type)");
	if (rc != -ENOENT)
		return rc;
	rc = r->host->meta_str(r->meta, "llama.rope.scaling.type", &type, &len, r->err);
	if (rc == -ENOENT || (rc == 0 && len == 4 && !memcmp(type, "none", 4)))
		return 0;
	if (rc)
		return rc;
	if (len != 6 || memcmp(type, "linear", 6))
		return ig_fail(r->err, -ENOTSUP, "llama.rope.scaling.type \"%.*s\" is not supported; "
			       "none and linear are", (int)(len < 32 ? len : 32), type);
	rc = read_f32(r, "llama.rope.scaling.factor", 1, 1024, NULL, &factor);
	if (rc)
		return rc;
	p->freq_scale = 1 / factor;
	return 0;
}

static int read_heads(const struct reader *r, struct llama *p)
{
	uint32_t even, n_rot, v_dim;
	int rc;

	rc = read_u32(r, "llama.attention.head_count", 1, MAX_HEADS, NULL, &p->n_heads);
	if (!rc)
		rc = read_u32(r, "llama.attention.head_count_kv", 1, MAX_HEADS, &p->n_heads,
			      &p->n_kv_heads);
	if (rc)
		return rc;
	if (p->n_heads % p->n_kv_heads)
		return ig_fail(r->err, -EINVAL, "llama.attention.head_count %u is not a multiple of "
			       "llama.attention.head_count_kv %u", p->n_heads, p->n_kv_heads);
	even = p->width % p->n_heads ? 0 : p->width / p->n_heads;
	rc = read_u32(r, "llama.attention.key_length", 0, UINT32_MAX, &even, &p->head_dim);
	if (rc)
		return rc;
	if (!even && !p->head_dim)
		return ig_fail(r->err, -EINVAL, "llama.embedding_length %u is not a multiple of "
			       "llama.attention.head_count %u", p->width, p->n_heads);
	if (!p->head_dim || p->head_dim > MAX_HEAD_DIM || p->head_dim % 8)
		return ig_fail(r->err, -EINVAL, "a head of %u dimensions is not supported "
			       "(llama.attention.key_length; multiples of 8 up to %u are)",
			       p->head_dim, MAX_HEAD_DIM);
	rc = read_u32(r, "llama.attention.value_length", 0, UINT32_MAX, &p->head_dim, &v_dim);
	if (rc)
		return rc;
	if (v_dim != p->head_dim)
		return ig_fail(r->err, -ENOTSUP, "llama.attention.value_length %u is not the key's "
			       "%u: not supported", v_dim, p->head_dim);
	rc = read_u32(r, "llama.rope.dimension_count", 2, p->head_dim, &p->head_dim, &n_rot);
	if (rc)
		return rc;
	if (n_rot % 2)
		return ig_fail(r->err, -EINVAL, "llama.rope.dimension_count %u is odd", n_rot);
	p->n_pairs = n_rot / 2;
	return 0;
}

static int read_params(const struct ig_host *host, const struct ig_meta *meta, void *params,
		       struct ig_model_info *info, struct ig_error *err)
{
	const struct reader r = { host, meta, err };
	const float default_base = 10000;
	struct llama *p = params;
	int rc;

	memset(p, 0, sizeof *p);
	/* Positions are floats when they are rotated: 2^24 is the last exact one. */
	if ((rc = refuse_u32(&r, "llama.expert_count", "experts")) ||
	    (rc = refuse_u32(&r, "llama.attention.sliding_window", "a sliding window")) ||
	    (rc = read_u32(&r, "llama.block_count", 1, 1024, NULL, &p->n_layers)) ||
	    (rc = read_u32(&r, "llama.embedding_length", 8, 1u << 17, NULL, &p->width)) ||
	    (rc = read_u32(&r, "llama.feed_forward_length", 8, 1u << 20, NULL, &p->n_ff)) ||
	    (rc = read_u32(&r, "llama.vocab_size", 1, 1u << 24, NULL, &p->n_vocab)) ||
	    (rc = read_u32(&r, "llama.context_length", 1, 1u << 24, NULL, &p->n_context)) ||
	    (rc = read_heads(&r, p)) ||
	    (rc = read_f32(&r, "llama.attention.layer_norm_rms_epsilon", 0, 1, NULL,
			   &p->norm_eps)) ||
	    (rc = read_f32(&r, "llama.rope.freq_base", 1, 1e12f, &default_base, &p->freq_base)) ||
	    (rc = read_rope_scaling(&r, p)))
		return rc;
	if (host->meta_has_tensor(meta, "blk.0.attn_q.bias"))
		return ig_fail(err, -ENOTSUP, "tensor blk.0.attn_q.bias: llama with biases is not "
			       "supported");
	p->rope_factors = host->meta_has_tensor(meta, "rope_freqs.weight") != 0;
	p->tied = !host->meta_has_tensor(meta, "output.weight");

	memset(info, 0, sizeof *info);
	info->struct_size = sizeof *info;
	info->n_vocab = p->n_vocab;
	info->n_context = p->n_context;
	info->n_groups = 1;
	info->groups[0] = (struct ig_cache_group){
		.struct_size = sizeof info->groups[0],
		.n_layers = p->n_layers,
		.n_kv_heads = p->n_kv_heads,
		.head_dim = p->head_dim,
	};
	return 0;
}

/* ---- the model ------------------------------------------------------------------------ */

/* x + Attention(RMSNorm(x)) */
static ig_value record_attention(struct ig_rec *r, const struct llama *p, uint32_t layer,
				 ig_value x, ig_value table)
{
	const int64_t q_width = (int64_t)p->n_heads * p->head_dim;
	const int64_t kv_width = (int64_t)p->n_kv_heads * p->head_dim;
	/* The converter orders the rows of Q and K so that pairs are neighbours. */
	const struct ig_rope_kv_params rope = {
		.struct_size = sizeof rope, .n_heads = p->n_heads, .n_kv_heads = p->n_kv_heads,
		.head_dim = p->head_dim, .mode = IG_ROPE_PAIRS, .n_pairs = p->n_pairs,
		.group = 0, .layer = layer,
	};
	const struct ig_attention_params attention = {
		.struct_size = sizeof attention, .n_heads = p->n_heads,
		.n_kv_heads = p->n_kv_heads, .head_dim = p->head_dim, .group = 0, .layer = layer,
		.scale = 1 / sqrtf((float)p->head_dim),
	};
	ig_weight norm, qkv[3], out;
	ig_value h;

	norm = ig_rec_layer_weight(r, 1, p->width, "blk.%u.attn_norm.weight", layer);
	qkv[0] = ig_rec_layer_weight(r, q_width, p->width, "blk.%u.attn_q.weight", layer);
	qkv[1] = ig_rec_layer_weight(r, kv_width, p->width, "blk.%u.attn_k.weight", layer);
	qkv[2] = ig_rec_layer_weight(r, kv_width, p->width, "blk.%u.attn_v.weight", layer);
	out = ig_rec_layer_weight(r, p->width, q_width, "blk.%u.attn_output.weight", layer);

	h = ig_rec_rms_norm(r, x, norm, p->norm_eps); /* [n, width] */
	h = ig_rec_linear(r, h, qkv, 3, IG_NONE); /* [n, q | k | v] */
	h = ig_rec_rope_kv(r, &rope, h, table); /* [n, n_heads * head_dim] */
	h = ig_rec_attention(r, &attention, h); /* the same */
	return ig_rec_linear(r, h, &out, 1, x); /* [n, width] */
}

/* x + Down(SiLU(Gate(h)) * Up(h)), h = RMSNorm(x) */
static ig_value record_feed_forward(struct ig_rec *r, const struct llama *p, uint32_t layer,
				    ig_value x)
{
	ig_weight norm, gate, up, down;
	ig_value h;

	norm = ig_rec_layer_weight(r, 1, p->width, "blk.%u.ffn_norm.weight", layer);
	gate = ig_rec_layer_weight(r, p->n_ff, p->width, "blk.%u.ffn_gate.weight", layer);
	up = ig_rec_layer_weight(r, p->n_ff, p->width, "blk.%u.ffn_up.weight", layer);
	down = ig_rec_layer_weight(r, p->width, p->n_ff, "blk.%u.ffn_down.weight", layer);

	h = ig_rec_rms_norm(r, x, norm, p->norm_eps); /* [n, width] */
	h = ig_rec_glu(r, h, gate, up, IG_ACT_SILU); /* [n, n_ff] */
	return ig_rec_linear(r, h, &down, 1, x); /* [n, width] */
}

static int record(const struct ig_host *host, struct ig_graph *g, const struct ig_meta *meta,
		  const void *params)
{
	const struct llama *p = params;
	struct ig_rec r = { host, g };
	ig_weight embedding, factors = IG_NONE, norm, head;
	ig_value x, table, logits;

	embedding = ig_rec_weight(&r, p->n_vocab, p->width, "token_embd.weight");
	if (p->rope_factors)
		factors = ig_rec_weight(&r, 1, p->n_pairs, "rope_freqs.weight");
	norm = ig_rec_weight(&r, 1, p->width, "output_norm.weight");
	head = p->tied ? embedding : ig_rec_weight(&r, p->n_vocab, p->width, "output.weight");

	table = ig_rec_rope_table(&r, p->n_pairs, p->freq_base, p->freq_scale, factors);
	x = ig_rec_embed(&r, embedding);
	for (uint32_t layer = 0; layer < p->n_layers; layer++) {
		x = record_attention(&r, p, layer, x, table);
		x = record_feed_forward(&r, p, layer, x);
	}
	x = ig_rec_rms_norm_last(&r, x, norm, p->norm_eps);
	logits = ig_rec_logits(&r, x, head);
	ig_rec_sample(&r, logits);
	return host->graph_status(g);
}

const struct ig_arch ig_arch_llama = {
	.struct_size = sizeof(struct ig_arch),
	.params_size = sizeof(struct llama),
	.name = "llama",
	.read_params = read_params,
	.record = record,
};
