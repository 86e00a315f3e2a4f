/* hyper.c: see hyper.h. */
#include "hyper.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define MAX_KEY 96

static const char *full_key(const struct hyper *h, const char *key, char buf[MAX_KEY])
{
	snprintf(buf, MAX_KEY, "%s.%s", h->arch, key);
	return buf;
}

int ig_hyper_u32(const struct hyper *h, const char *key, uint32_t min, uint32_t max,
		 const uint32_t *fallback, uint32_t *out)
{
	char name[MAX_KEY];
	int rc = h->host->meta_u32(h->meta, full_key(h, key, name), out, h->err);

	if (rc == -ENOENT && fallback) {
		*out = *fallback;
		rc = 0;
	}
	if (rc)
		return rc;
	if (*out < min || *out > max)
		return ig_fail(h->err, -EINVAL, "%s is %u, not in %u … %u", name, *out, min, max);
	return 0;
}

int ig_hyper_f32(const struct hyper *h, const char *key, float min, float max,
		 const float *fallback, float *out)
{
	char name[MAX_KEY];
	int rc = h->host->meta_f32(h->meta, full_key(h, key, name), out, h->err);

	if (rc == -ENOENT && fallback) {
		*out = *fallback;
		rc = 0;
	}
	if (rc)
		return rc;
	if (!(*out >= min && *out <= max)) /* NaN too */
		return ig_fail(h->err, -EINVAL, "%s is %g, not in %g … %g", name, (double)*out,
			       (double)min, (double)max);
	return 0;
}

int ig_hyper_refuse_u32(const struct hyper *h, const char *key, const char *what)
{
	char name[MAX_KEY];
	uint32_t n;
	int rc = h->host->meta_u32(h->meta, full_key(h, key, name), &n, h->err);

	if (rc == -ENOENT)
		return 0;
	if (rc)
		return rc;
	return n ? ig_fail(h->err, -ENOTSUP, "%s is %u: %s with %s is not supported", name, n,
			   h->arch, what) :
		   0;
}

int ig_hyper_refuse_f32(const struct hyper *h, const char *key, const char *what)
{
	char name[MAX_KEY];
	float x;
	int rc = h->host->meta_f32(h->meta, full_key(h, key, name), &x, h->err);

	if (rc == -ENOENT)
		return 0;
	if (rc)
		return rc;
	return x != 0 ? ig_fail(h->err, -ENOTSUP, "%s is %g: %s with %s is not supported", name,
				(double)x, h->arch, what) :
			0;
}

int ig_hyper_layers(const struct hyper *h, const char *key, uint32_t n_layers, uint32_t *out)
{
	char name[MAX_KEY];
	uint64_t n;
	int rc =
		h->host->meta_array_u32(h->meta, full_key(h, key, name), out, n_layers, &n, h->err);

	if (!rc && n != n_layers)
		return ig_fail(h->err, -EINVAL, "%s has %llu elements, the model %u layers", name,
			       (unsigned long long)n, n_layers);
	return rc;
}

/* ---- what every model has -------------------------------------------------------------- */

static int read_heads(const struct hyper *h, struct dense *d)
{
	uint32_t even, v_dim;
	int rc;

	rc = ig_hyper_u32(h, "attention.head_count", 1, MAX_HEADS, NULL, &d->n_heads);
	if (!rc)
		rc = ig_hyper_u32(h, "attention.head_count_kv", 1, MAX_HEADS, &d->n_heads,
				  &d->n_kv_heads);
	if (rc)
		return rc;
	if (d->n_heads % d->n_kv_heads)
		return ig_fail(h->err, -EINVAL,
			       "%s.attention.head_count %u is not a multiple of "
			       "%s.attention.head_count_kv %u",
			       h->arch, d->n_heads, h->arch, d->n_kv_heads);
	even = d->width % d->n_heads ? 0 : d->width / d->n_heads;
	rc = ig_hyper_u32(h, "attention.key_length", 0, UINT32_MAX, &even, &d->head_dim);
	if (rc)
		return rc;
	if (!even && !d->head_dim)
		return ig_fail(h->err, -EINVAL,
			       "%s.embedding_length %u is not a multiple of "
			       "%s.attention.head_count %u",
			       h->arch, d->width, h->arch, d->n_heads);
	if (!d->head_dim || d->head_dim > MAX_HEAD_DIM || d->head_dim % 8)
		return ig_fail(h->err, -EINVAL,
			       "a head of %u dimensions is not supported "
			       "(%s.attention.key_length; multiples of 8 up to %u are)",
			       d->head_dim, h->arch, MAX_HEAD_DIM);
	rc = ig_hyper_u32(h, "attention.value_length", 0, UINT32_MAX, &d->head_dim, &v_dim);
	if (rc)
		return rc;
	if (v_dim != d->head_dim)
		return ig_fail(h->err, -ENOTSUP,
			       "%s.attention.value_length %u is not the key's "
			       "%u: not supported",
			       h->arch, v_dim, d->head_dim);
	return 0;
}

/* Few converters write the number of tokens; the embedding has it as its rows. */
static int read_vocab(const struct hyper *h, uint32_t *n_vocab)
{
	int64_t n_rows, n_cols;
	uint32_t rows;

	if (h->host->meta_tensor(h->meta, "token_embd.weight", &n_rows, &n_cols) ||
	    n_rows > UINT32_MAX)
		return ig_hyper_u32(h, "vocab_size", 1, 1u << 24, NULL, n_vocab);
	rows = (uint32_t)n_rows;
	return ig_hyper_u32(h, "vocab_size", 1, 1u << 24, &rows, n_vocab);
}

static int read_common(const struct hyper *h, struct dense *d)
{
	int rc;

	/* Positions are floats when they are rotated: 2^24 is the last exact one. */
	if ((rc = ig_hyper_u32(h, "block_count", 1, 1024, NULL, &d->n_layers)) ||
	    (rc = ig_hyper_u32(h, "embedding_length", 8, 1u << 17, NULL, &d->width)) ||
	    (rc = ig_hyper_u32(h, "feed_forward_length", 8, 1u << 20, NULL, &d->n_ff)) ||
	    (rc = read_vocab(h, &d->n_vocab)) ||
	    (rc = ig_hyper_u32(h, "context_length", 1, 1u << 24, NULL, &d->n_context)) ||
	    (rc = read_heads(h, d)))
		return rc;
	d->tied = !h->host->meta_has_tensor(h->meta, "output.weight");
	return 0;
}

int ig_hyper_dense(const struct hyper *h, struct dense *d)
{
	int rc = ig_hyper_refuse_u32(h, "expert_count", "experts");

	return rc ? rc : read_common(h, d);
}

int ig_hyper_experts(const struct hyper *h, struct dense *d, struct experts *e)
{
	const uint32_t softmax = 1;
	uint32_t gating;
	int rc;

	*e = (struct experts){ .moe = { .act = IG_ACT_SILU, .scale = 1 } };
	if ((rc = read_common(h, d)) ||
	    (rc = ig_hyper_u32(h, "expert_count", 1, IG_MOE_MAX_EXPERTS, NULL,
			       &e->moe.n_experts)) ||
	    (rc = ig_hyper_u32(h, "expert_used_count", 1,
			       e->moe.n_experts < IG_MOE_MAX_TOP_K ? e->moe.n_experts :
								     IG_MOE_MAX_TOP_K,
			       NULL, &e->moe.top_k)) ||
	    (rc = ig_hyper_u32(h, "expert_feed_forward_length", 16, 1u << 20, &d->n_ff,
			       &e->n_ff)) ||
	    (rc = ig_hyper_refuse_u32(h, "expert_shared_count", "shared experts")) ||
	    (rc = ig_hyper_refuse_u32(h, "expert_shared_feed_forward_length", "shared experts")) ||
	    (rc = ig_hyper_refuse_u32(h, "leading_dense_block_count", "dense layers")) ||
	    (rc = ig_hyper_refuse_u32(h, "expert_group_count", "groups of experts")) ||
	    (rc = ig_hyper_refuse_f32(h, "expert_weights_scale", "scaled experts")) ||
	    (rc = ig_hyper_u32(h, "expert_gating_func", 0, UINT32_MAX, &softmax, &gating)))
		return rc;
	if (gating > 1)
		return ig_fail(h->err, -ENOTSUP,
			       "%s.expert_gating_func is %u: only a softmax (1) is "
			       "supported",
			       h->arch, gating);
	if (e->n_ff % 16 || d->width % 16)
		return ig_fail(h->err, -ENOTSUP,
			       "%s: experts of %u x %u are not supported; "
			       "multiples of 16 are",
			       h->arch, e->n_ff, d->width);
	if (h->host->meta_has_tensor(h->meta, "blk.0.ffn_gate.0.weight"))
		return ig_fail(h->err, -ENOTSUP,
			       "tensor blk.0.ffn_gate.0.weight: experts in tensors "
			       "of their own are not supported: convert the model anew");
	return 0;
}

void ig_hyper_info(const struct dense *d, struct ig_model_info *info)
{
	memset(info, 0, sizeof *info);
	info->struct_size = sizeof *info;
	info->n_vocab = d->n_vocab;
	info->n_context = d->n_context;
	info->n_groups = 1;
	info->groups[0] = (struct ig_cache_group){
		.struct_size = sizeof info->groups[0],
		.n_layers = d->n_layers,
		.n_kv_heads = d->n_kv_heads,
		.head_dim = d->head_dim,
	};
}

/* ---- rotary positions ------------------------------------------------------------------ */

/* The pair that turns n times over a context of n_context positions. */
static double pair_of_turns(const struct rope *rope, uint32_t n_context, float n)
{
	return rope->table.n_pairs * log(n_context / (2 * 3.14159265358979323846 * (double)n)) /
	       log((double)rope->table.freq_base);
}

/*
 * YaRN (Peng et al. 2023, arXiv:2309.00071): pairs that turn more than beta_fast times over
 * the context of training keep their frequency, those that turn less than beta_slow times
 * are slowed down by the factor, between them in proportion; and q . k is sharpened by
 * (0.1 ln(factor) + 1)^2, or, where the file has a multiplier of the logarithm, by what is
 * left of that after (0.1 multiplier ln(factor) + 1)^2.
 */
static int read_yarn(const struct hyper *h, const struct dense *d, float factor, struct rope *rope)
{
	const float zero = 0, one = 1, default_fast = 32, default_slow = 1;
	float fast, slow, attn, ext, log_mul;
	uint32_t n_context;
	double first, last, m;
	int rc;

	if ((rc = ig_hyper_f32(h, "rope.scaling.yarn_log_multiplier", 0, 1e3f, &zero, &log_mul)) ||
	    (rc = ig_hyper_u32(h, "rope.scaling.original_context_length", 1, 1u << 24,
			       &d->n_context, &n_context)) ||
	    (rc = ig_hyper_f32(h, "rope.scaling.yarn_beta_fast", 1e-3f, 1e6f, &default_fast,
			       &fast)) ||
	    (rc = ig_hyper_f32(h, "rope.scaling.yarn_beta_slow", 1e-3f, 1e6f, &default_slow,
			       &slow)) ||
	    (rc = ig_hyper_f32(h, "rope.scaling.yarn_ext_factor", 1, 1, &one, &ext)) ||
	    (rc = ig_hyper_f32(h, "rope.scaling.yarn_attn_factor", 1e-3f, 1e3f, &one, &attn)) ||
	    (rc = ig_hyper_f32(h, "rope.scaling.attn_factor", 1e-3f, 1e3f, &attn, &attn)))
		return rc;
	if (!(rope->table.freq_base > 1))
		return ig_fail(h->err, -EINVAL, "%s.rope.freq_base is %g: YaRN needs more than 1",
			       h->arch, (double)rope->table.freq_base);
	if (2 * rope->table.n_pairs != d->head_dim)
		return ig_fail(h->err, -ENOTSUP,
			       "%s.rope.scaling.type \"yarn\" with %u of %u "
			       "dimensions rotated is not supported",
			       h->arch, 2 * rope->table.n_pairs, d->head_dim);
	first = fmax(floor(pair_of_turns(rope, n_context, fast)), 0);
	last = fmin(ceil(pair_of_turns(rope, n_context, slow)), 2 * rope->table.n_pairs - 1);
	if (last - first < 0.001)
		last = first + 0.001;
	rope->table.freq_scale = 1 / factor;
	rope->table.ramp_first = (float)first;
	rope->table.ramp_last = (float)last;
	m = (double)attn * (0.1 * log((double)factor) + 1) /
	    (0.1 * (double)log_mul * log((double)factor) + 1);
	rope->attention = (float)(m * m);
	return 0;
}

static int is(const char *s, size_t len, const char *word)
{
	return len == strlen(word) && !memcmp(s, word, len);
}

static int read_scaling(const struct hyper *h, const struct dense *d, struct rope *rope)
{
	char name[MAX_KEY];
	const char *type;
	size_t len;
	float factor;
	int rc;

	rc = h->host->meta_f32(h->meta, full_key(h, "rope.scale_linear", name), &factor, h->err);
	if (rc == 0)
		return ig_fail(h->err, -ENOTSUP,
			       "%s is not supported: convert the model anew "
			       "(%s.rope.scaling.type)",
			       name, h->arch);
	if (rc != -ENOENT)
		return rc;
	rc = h->host->meta_str(h->meta, full_key(h, "rope.scaling.type", name), &type, &len,
			       h->err);
	if (rc == -ENOENT || (rc == 0 && is(type, len, "none")))
		return 0;
	if (rc)
		return rc;
	if (!is(type, len, "linear") && !is(type, len, "yarn"))
		return ig_fail(h->err, -ENOTSUP,
			       "%s \"%.*s\" is not supported; none, linear and "
			       "yarn are",
			       name, (int)(len < 32 ? len : 32), type);
	rc = ig_hyper_f32(h, "rope.scaling.factor", 1, 1024, NULL, &factor);
	if (rc)
		return rc;
	if (is(type, len, "yarn"))
		return read_yarn(h, d, factor, rope);
	rope->table.freq_scale = 1 / factor;
	return 0;
}

int ig_hyper_rope(const struct hyper *h, const struct dense *d, struct rope *rope)
{
	const float default_base = 10000;
	uint32_t n_rot;
	int rc;

	*rope = (struct rope){ .table = { .struct_size = sizeof rope->table, .freq_scale = 1 },
			       .attention = 1 };
	rc = ig_hyper_u32(h, "rope.dimension_count", 2, d->head_dim, &d->head_dim, &n_rot);
	if (rc)
		return rc;
	if (n_rot % 2)
		return ig_fail(h->err, -EINVAL, "%s.rope.dimension_count %u is odd", h->arch,
			       n_rot);
	rope->table.n_pairs = n_rot / 2;
	rc = ig_hyper_f32(h, "rope.freq_base", 1, 1e12f, &default_base, &rope->table.freq_base);
	if (!rc)
		rc = read_scaling(h, d, rope);
	rope->has_factors = h->host->meta_has_tensor(h->meta, "rope_freqs.weight") != 0;
	return rc;
}

ig_value ig_hyper_rope_table(struct ig_rec *r, const struct rope *rope)
{
	ig_weight factors;

	if (!rope->has_factors)
		return ig_rec_op(r, "rope_table", &rope->table, NULL, 0, NULL, 0);
	factors = ig_rec_weight(r, 1, rope->table.n_pairs, "rope_freqs.weight");
	return ig_rec_op(r, "rope_table", &rope->table, NULL, 0, &factors, 1);
}

ig_value ig_hyper_record_experts(struct ig_rec *r, const struct dense *d, const struct experts *e,
				 float norm_eps, uint32_t layer, ig_value x)
{
	const struct ig_moe *moe = &e->moe;
	const int64_t f = e->n_ff, n = moe->n_experts;
	ig_weight norm, router, gate, up, down;
	ig_value h, route;

	norm = ig_rec_layer_weight(r, 1, d->width, "blk.%u.ffn_norm.weight", layer);
	router = ig_rec_layer_weight(r, n, d->width, "blk.%u.ffn_gate_inp.weight", layer);
	gate = ig_rec_layer_weight(r, n * f, d->width, "blk.%u.ffn_gate_exps.weight", layer);
	up = ig_rec_layer_weight(r, n * f, d->width, "blk.%u.ffn_up_exps.weight", layer);
	down = ig_rec_layer_weight(r, n * d->width, f, "blk.%u.ffn_down_exps.weight", layer);

	h = ig_rec_rms_norm(r, x, norm, norm_eps); /* [n, width] */
	route = ig_rec_moe_route(r, moe, h, router);
	h = ig_rec_moe_glu(r, moe, h, route, gate, up);	      /* [n, top_k * f] */
	return ig_rec_moe_combine(r, moe, h, route, down, x); /* [n, width] */
}
