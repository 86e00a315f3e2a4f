/*
 * hf_config.c: config.json as GGUF's keys.
 *
 * Each architecture has one table: its numbers' names in config.json and in GGUF, with what
 * transformers takes where the file is silent.  What a file asks for and nobody here does
 * is refused by the name that it has in the file.
 */
#include "model/formats/folder.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_KEYS 64
#define REQUIRED NAN

struct reading {
	struct ig_checkpoint *g;
	struct ig_hf_config *out;
	const json_t *text; /* the language model's object: root, or within it */
	const char *label;
	struct ig_error *err;
	int rc; /* the first error; what follows does nothing */
};

struct key {
	const char *hf, *gguf;
	bool is_float;
	double fallback; /* REQUIRED: there is none */
};

struct ig_hf_arch {
	const char *type;	/* model_type */
	const char *gguf;	/* general.architecture */
	const struct key *keys; /* ends with hf NULL */
	const struct ig_hf_name *names;
	uint32_t flags;		   /* enum ig_hf_flags */
	const char *act_key, *act; /* the only activation that is done */
	bool tied;
	float theta;	   /* 0: no rotary positions */
	uint32_t head_dim; /* 0: width over heads */
	void (*more)(struct reading *r);
};

/* ---- errors ----------------------------------------------------------------------------- */

__attribute__((format(printf, 4, 5))) static void fail(struct reading *r, int code, const char *key,
						       const char *fmt, ...)
{
	char what[320];
	va_list ap;

	if (r->rc)
		return;
	va_start(ap, fmt);
	vsnprintf(what, sizeof what, fmt, ap);
	va_end(ap);
	r->rc = ig_fail(r->err, code, "%s: \"%s\" %s", r->label, key, what);
}

/* ---- what the file says -------------------------------------------------------------------- */

/* NULL where it is missing, or null. */
static const json_t *get(const json_t *object, const char *key)
{
	const json_t *v = json_object_get(object, key);

	return json_is_null(v) ? NULL : v;
}

/* A whole number; false where it is missing. */
static bool whole(struct reading *r, const json_t *object, const char *key, uint32_t *out)
{
	const json_t *v = get(object, key);

	if (!v || r->rc)
		return false;
	if (!json_is_integer(v) || json_integer_value(v) < 0 ||
	    json_integer_value(v) > UINT32_MAX) {
		fail(r, -EINVAL, key, "is not a whole number of 0 to 4294967295");
		return false;
	}
	*out = (uint32_t)json_integer_value(v);
	return true;
}

static bool number(struct reading *r, const json_t *object, const char *key, double *out)
{
	const json_t *v = get(object, key);

	if (!v || r->rc)
		return false;
	if (!json_is_number(v) || !isfinite((float)json_number_value(v))) {
		fail(r, -EINVAL, key, "is not a number that float32 can hold");
		return false;
	}
	*out = json_number_value(v);
	return true;
}

static bool flag(struct reading *r, const json_t *object, const char *key, bool fallback)
{
	const json_t *v = get(object, key);

	if (v && !json_is_boolean(v))
		fail(r, -EINVAL, key, "is neither true nor false");
	return v ? json_is_true(v) : fallback;
}

/* A string that is to be printed or compared; NULL where it is missing. */
static const char *string(struct reading *r, const json_t *object, const char *key)
{
	const json_t *v = get(object, key);

	if (v && !json_is_string(v))
		fail(r, -EINVAL, key, "is no string");
	return json_string_value(v);
}

/* What is asked for when this is anything but missing, false, 0 or empty is not done. */
static void refuse(struct reading *r, const char *key)
{
	const json_t *v = get(r->text, key);

	if (!v || json_is_false(v) || (json_is_number(v) && json_number_value(v) == 0) ||
	    (json_is_array(v) && !json_array_size(v)))
		return;
	fail(r, -ENOTSUP, key, "is set: what it asks for is not supported");
}

/* ---- keys -------------------------------------------------------------------------------- */

/* A key with its value, n elements of size bytes; all but general keys get the
 * architecture's name before them.  elem: of an array. */
static void put_all(struct reading *r, const char *key, enum ig_kv_type type, uint32_t elem,
		    const void *value, uint64_t n, size_t size)
{
	struct ig_checkpoint *g = r->g;
	struct ig_folder *f = g->folder;
	char name[96];
	bool general = !strncmp(key, "general.", 8);
	size_t len = (size_t)snprintf(name, sizeof name, "%s%s%s",
				      general ? "" : r->out->arch->gguf, general ? "" : ".", key);

	if (r->rc)
		return;
	if (len >= sizeof name || g->n_kvs == MAX_KEYS) {
		fail(r, -EINVAL, key, "is one key too many"); /* the tables are longer than that */
		return;
	}
	/* GGUF has an array's type and length before it, a string's length. */
	uint8_t *p = malloc(16 + n * size + len), *at;
	if (!p) {
		r->rc = ig_checkpoint_no_memory(g, 16 + n * size + len, r->err);
		return;
	}
	f->owned[f->n_owned++] = p;
	at = p + 16;
	memcpy(at - 12, &elem, 4);
	memcpy(at - 8, &n, 8);
	memcpy(at, value, n * size);
	memcpy(at + n * size, name, len);
	g->kvs[g->n_kvs++] = (struct ig_kv){ .key = (char *)at + n * size,
					     .key_len = (uint32_t)len,
					     .value = at,
					     .n = n,
					     .type = (uint8_t)type,
					     .elem = (uint8_t)elem };
}

static void put(struct reading *r, const char *key, enum ig_kv_type type, const void *value,
		uint64_t n, size_t size)
{
	put_all(r, key, type, 0, value, n, size);
}

static void put_list(struct reading *r, const char *key, enum ig_kv_type elem, const void *values,
		     uint64_t n, size_t size)
{
	put_all(r, key, IG_KV_ARRAY, elem, values, n, size);
}

static void put_u32(struct reading *r, const char *key, uint32_t v)
{
	put(r, key, IG_KV_U32, &v, 1, sizeof v);
}

static void put_f32(struct reading *r, const char *key, double v)
{
	float f = (float)v;
	put(r, key, IG_KV_F32, &f, 1, sizeof f);
}

static void put_str(struct reading *r, const char *key, const char *v)
{
	put(r, key, IG_KV_STRING, v, strlen(v), 1);
}

/* What was put under this key, or 0. */
static uint32_t was_put(const struct reading *r, const char *key)
{
	const struct ig_checkpoint *g = r->g;
	size_t arch = strlen(r->out->arch->gguf) + 1, len = strlen(key);
	uint32_t v = 0;

	for (uint32_t i = 0; i < g->n_kvs; i++)
		if (g->kvs[i].key_len == arch + len && !memcmp(g->kvs[i].key + arch, key, len) &&
		    g->kvs[i].type == IG_KV_U32)
			memcpy(&v, g->kvs[i].value, sizeof v);
	return v;
}

static void put_keys(struct reading *r)
{
	for (const struct key *k = r->out->arch->keys; k->hf && !r->rc; k++) {
		double f = k->fallback;
		uint32_t u = isnan(f) || k->is_float ? 0 : (uint32_t)f;
		bool given =
			k->is_float ? number(r, r->text, k->hf, &f) : whole(r, r->text, k->hf, &u);
		if (r->rc)
			return;
		if (!given && isnan(k->fallback))
			fail(r, -EINVAL, k->hf, "is missing");
		else if (k->is_float)
			put_f32(r, k->gguf, f);
		else
			put_u32(r, k->gguf, u);
	}
}

/* ---- rotary positions ------------------------------------------------------------------------ */

/*
 * rope_type llama3 (Llama Team 2024, arXiv:2407.21783, as transformers computes it): pairs
 * whose wave is longer than the old context over low_freq_factor are slowed down by the
 * factor, those shorter than over high_freq_factor not at all, between them in proportion.
 */
static void llama3_factors(struct reading *r, const json_t *s, double theta)
{
	uint32_t n_pairs = r->out->head_dim / 2, original;
	double factor, low, high;

	if (!number(r, s, "factor", &factor) || !number(r, s, "low_freq_factor", &low) ||
	    !number(r, s, "high_freq_factor", &high) ||
	    !whole(r, s, "original_max_position_embeddings", &original)) {
		fail(r, -EINVAL, "rope_scaling",
		     "of type llama3 needs factor, low_freq_factor, "
		     "high_freq_factor and original_max_position_embeddings");
		return;
	}
	if (!(factor >= 1 && factor <= 1024) || !(low > 0) || !(high > low) || !original) {
		fail(r, -EINVAL, "rope_scaling",
		     "has numbers that can't be: factor %g, "
		     "low_freq_factor %g, high_freq_factor %g, original_max_position_embeddings %u",
		     factor, low, high, original);
		return;
	}
	float *out = malloc((n_pairs ? n_pairs : 1) * sizeof *out);
	if (!out) {
		r->rc = ig_checkpoint_no_memory(r->g, n_pairs * sizeof *out, r->err);
		return;
	}
	for (uint32_t i = 0; i < n_pairs; i++) {
		double wave =
			2 * 3.14159265358979323846 * pow(theta, 2.0 * i / (double)r->out->head_dim);
		double smooth = (original / wave - low) / (high - low);
		out[i] = wave < original / high ? 1 :
			 wave > original / low	? (float)factor :
						  (float)(1 / ((1 - smooth) / factor + smooth));
	}
	r->out->rope_factors = out;
}

/* transformers' attention_factor over 0.1 ln(factor) + 1, which the architectures apply. */
static void put_yarn_attention(struct reading *r, const json_t *s, double factor)
{
	double base = 0.1 * log(factor) + 1, attention, mscale = 0, all = 0;

	if (number(r, s, "attention_factor", &attention)) {
		put_f32(r, "rope.scaling.attn_factor", attention / base);
	} else if (number(r, s, "mscale", &mscale) && number(r, s, "mscale_all_dim", &all) &&
		   mscale == 1 && all != 0) {
		put_f32(r, "rope.scaling.yarn_log_multiplier", all);
	} else if (!r->rc && mscale != 0 && all != 0) {
		attention = (0.1 * mscale * log(factor) + 1) / (0.1 * all * log(factor) + 1);
		put_f32(r, "rope.scaling.attn_factor", attention / base);
	}
}

static void put_yarn(struct reading *r, const json_t *s, double factor)
{
	uint32_t original = was_put(r, "context_length");
	double beta;

	whole(r, s, "original_max_position_embeddings", &original);
	put_u32(r, "rope.scaling.original_context_length", original);
	if (number(r, s, "beta_fast", &beta))
		put_f32(r, "rope.scaling.yarn_beta_fast", beta);
	if (number(r, s, "beta_slow", &beta))
		put_f32(r, "rope.scaling.yarn_beta_slow", beta);
	if (!flag(r, s, "truncate", true))
		fail(r, -ENOTSUP, "rope_scaling.truncate", "is false: not supported");
	put_yarn_attention(r, s, factor);
}

static void put_scaling(struct reading *r, const json_t *s, double theta)
{
	const char *type = string(r, s, "rope_type");
	double factor;

	if (!type)
		type = string(r, s, "type");
	if (r->rc || !type || !strcmp(type, "default"))
		return;
	if (!strcmp(type, "llama3")) {
		llama3_factors(r, s, theta);
		return;
	}
	if (strcmp(type, "linear") && strcmp(type, "yarn")) {
		fail(r, -ENOTSUP, "rope_type",
		     "is \"%s\": not supported; default, linear, llama3 and "
		     "yarn are",
		     ig_show(type, strlen(type)).text);
		return;
	}
	if (!number(r, s, "factor", &factor) || !(factor >= 1 && factor <= 1024)) {
		fail(r, -EINVAL, "rope_scaling", "of type %s needs a factor of 1 to 1024", type);
		return;
	}
	put_str(r, "rope.scaling.type", type);
	put_f32(r, "rope.scaling.factor", factor);
	if (!strcmp(type, "yarn"))
		put_yarn(r, s, factor);
}

/* rope_theta and rope_scaling, or rope_parameters, which has both; gemma3's has them once for
 * each kind of layer. */
static void put_rope(struct reading *r)
{
	const json_t *p = get(r->text, "rope_parameters"), *local = get(p, "sliding_attention");
	const json_t *full = get(p, "full_attention"), *s;
	double theta = (double)r->out->arch->theta, part = 1;

	if (full)
		p = full;
	s = p ? p : get(r->text, "rope_scaling");
	if (s && !json_is_object(s))
		fail(r, -EINVAL, p ? "rope_parameters" : "rope_scaling", "is no object");
	if (!number(r, p, "rope_theta", &theta))
		number(r, r->text, "rope_theta", &theta);
	if ((number(r, r->text, "partial_rotary_factor", &part) ||
	     number(r, p, "partial_rotary_factor", &part)) &&
	    part != 1)
		fail(r, -ENOTSUP, "partial_rotary_factor", "is %g: not supported", part);
	put_u32(r, "rope.dimension_count", r->out->head_dim);
	put_f32(r, "rope.freq_base", theta);
	if (!strcmp(r->out->arch->gguf, "gemma3")) {
		double base = 10000;
		if (!number(r, local, "rope_theta", &base))
			number(r, r->text, "rope_local_base_freq", &base);
		put_f32(r, "rope.freq_base_swa", base);
	}
	put_scaling(r, s, theta);
}

/* ---- what only one architecture has ---------------------------------------------------------- */

static void put_window(struct reading *r, uint32_t fallback)
{
	bool missing = !json_object_get(r->text, "sliding_window");
	uint32_t n = fallback;

	if (whole(r, r->text, "sliding_window", &n) || (missing && fallback))
		put_u32(r, "attention.sliding_window", n);
}

static void more_mistral(struct reading *r)
{
	put_window(r, 4096);
}

/* Ministral 3 and Devstral 2. */
static void more_ministral3(struct reading *r)
{
	const json_t *rope = get(r->text, "rope_parameters");
	double beta;

	put_window(r, 0);
	if (!rope)
		rope = get(r->text, "rope_scaling");
	if (number(r, rope, "llama_4_scaling_beta", &beta))
		put_f32(r, "attention.temperature_scale", beta);
}

/* Qwen's files name a window that most do not use. */
static void more_qwen(struct reading *r)
{
	uint32_t first = 28;

	whole(r, r->text, "max_window_layers", &first);
	if (flag(r, r->text, "use_sliding_window", false) && first < r->out->n_layers)
		put_window(r, 4096);
}

static void more_gpt2(struct reading *r)
{
	uint32_t width = was_put(r, "embedding_length"), n_ff = 0;

	refuse(r, "scale_attn_by_inverse_layer_idx");
	refuse(r, "add_cross_attention");
	if (!flag(r, r->text, "scale_attn_weights", true))
		fail(r, -ENOTSUP, "scale_attn_weights", "is false: not supported");
	if (!whole(r, r->text, "n_inner", &n_ff) && width <= UINT32_MAX / 4)
		n_ff = 4 * width;
	put_u32(r, "feed_forward_length", n_ff);
}

/* Which layers have a window: GGUF's list, true for local ones. */
static void put_layer_types(struct reading *r, const json_t *types)
{
	uint8_t local[IG_HF_MAX_LAYERS];
	size_t n = r->out->n_layers;

	if (!json_is_array(types) || json_array_size(types) != n) {
		fail(r, -EINVAL, "layer_types", "is no list of %zu layers", n);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		const char *t = json_string_value(json_array_get(types, i));
		local[i] = t && !strcmp(t, "sliding_attention");
		if (!local[i] && (!t || strcmp(t, "full_attention")))
			fail(r, -ENOTSUP, "layer_types",
			     "has \"%s\": not supported; full_attention and "
			     "sliding_attention are",
			     ig_show(t ? t : "", t ? strlen(t) : 0).text);
	}
	put_list(r, "attention.sliding_window_pattern", IG_KV_BOOL, local, n, 1);
}

static void more_gemma3(struct reading *r)
{
	const json_t *types = get(r->text, "layer_types");
	uint32_t period = 6, width = was_put(r, "embedding_length");
	double cap, scalar = 256;
	/* The scale of queries that the architecture takes. */
	double scale = r->out->n_layers == 62 && r->out->n_heads ?
			       (double)(width / r->out->n_heads) :
			       (double)r->out->head_dim;

	put_window(r, 4096);
	if (types) {
		put_layer_types(r, types);
	} else {
		if (!whole(r, r->text, "sliding_window_pattern", &period))
			whole(r, r->text, "_sliding_window_pattern", &period);
		put_u32(r, "attention.sliding_window_pattern", period);
	}
	number(r, r->text, "query_pre_attn_scalar", &scalar);
	if (scalar != scale)
		fail(r, -ENOTSUP, "query_pre_attn_scalar", "is %g: only %g is supported here",
		     scalar, scale);
	if (number(r, r->text, "final_logit_softcapping", &cap))
		put_f32(r, "final_logit_softcapping", cap);
	if (number(r, r->text, "attn_logit_softcapping", &cap))
		put_f32(r, "attn_logit_softcapping", cap);
	refuse(r, "use_bidirectional_attention");
}

static void need_norm_topk(struct reading *r, bool fallback, bool want)
{
	if (flag(r, r->text, "norm_topk_prob", fallback) != want)
		fail(r, -ENOTSUP, "norm_topk_prob", "is %s: not supported with %s",
		     want ? "false" : "true", r->out->arch->type);
}

static void more_qwen3_moe(struct reading *r)
{
	uint32_t step = 1;

	more_qwen(r);
	need_norm_topk(r, false, true);
	refuse(r, "mlp_only_layers");
	whole(r, r->text, "decoder_sparse_step", &step);
	if (step != 1)
		fail(r, -ENOTSUP, "decoder_sparse_step", "is %u: only 1 is supported", step);
}

static void more_mixtral(struct reading *r)
{
	put_window(r, 0);
}

static void more_olmoe(struct reading *r)
{
	need_norm_topk(r, false, false);
	refuse(r, "clip_qkv");
}

/* ---- the architectures -------------------------------------------------------------------------- */

#define WIDTHS(layers, width, ff, heads, context, eps)                                             \
	{ "num_hidden_layers", "block_count", false, layers },                                     \
		{ "hidden_size", "embedding_length", false, width },                               \
		{ "intermediate_size", "feed_forward_length", false, ff },                         \
		{ "num_attention_heads", "attention.head_count", false, heads },                   \
		{ "max_position_embeddings", "context_length", false, context },                   \
	{                                                                                          \
		"rms_norm_eps", "attention.layer_norm_rms_epsilon", true, eps                      \
	}
#define END { NULL, NULL, false, 0 }

static const struct key llama_keys[] = { WIDTHS(32, 4096, 11008, 32, 2048, 1e-6), END };
static const struct key mistral_keys[] = {
	WIDTHS(32, 4096, 14336, 32, 131072, 1e-6),
	{ "num_key_value_heads", "attention.head_count_kv", false, 8 },
	END,
};
static const struct key qwen2_keys[] = {
	WIDTHS(32, 4096, 22016, 32, 32768, 1e-6),
	{ "num_key_value_heads", "attention.head_count_kv", false, 32 },
	END,
};
static const struct key gemma3_keys[] = {
	WIDTHS(26, 2304, 9216, 8, 131072, 1e-6),
	{ "num_key_value_heads", "attention.head_count_kv", false, 4 },
	END,
};
static const struct key gpt2_keys[] = {
	{ "n_layer", "block_count", false, 12 },
	{ "n_embd", "embedding_length", false, 768 },
	{ "n_head", "attention.head_count", false, 12 },
	{ "n_positions", "context_length", false, 1024 },
	{ "layer_norm_epsilon", "attention.layer_norm_epsilon", true, 1e-5 },
	END,
};
static const struct key qwen3_moe_keys[] = {
	WIDTHS(24, 2048, 6144, 32, 32768, 1e-6),
	{ "num_key_value_heads", "attention.head_count_kv", false, 4 },
	{ "num_experts", "expert_count", false, 128 },
	{ "num_experts_per_tok", "expert_used_count", false, 8 },
	{ "moe_intermediate_size", "expert_feed_forward_length", false, 768 },
	END,
};
static const struct key mixtral_keys[] = {
	WIDTHS(32, 4096, 14336, 32, 131072, 1e-5),
	{ "num_key_value_heads", "attention.head_count_kv", false, 8 },
	{ "num_local_experts", "expert_count", false, 8 },
	{ "num_experts_per_tok", "expert_used_count", false, 2 },
	END,
};
static const struct key olmoe_keys[] = {
	WIDTHS(16, 2048, 2048, 16, 4096, 1e-5),
	{ "num_experts", "expert_count", false, 64 },
	{ "num_experts_per_tok", "expert_used_count", false, 8 },
	END,
};

#define SILU "hidden_act", "silu"

static const struct ig_hf_arch archs[] = {
	{ "llama", "llama", llama_keys, ig_hf_names_llama,
	  IG_HF_PAIRS | IG_HF_HAS_BIAS | IG_HF_HAS_OUT_BIAS, SILU, false, 1e4f, 0, NULL },
	{ "mistral", "llama", mistral_keys, ig_hf_names_llama, IG_HF_PAIRS, SILU, false, 1e4f, 0,
	  more_mistral },
	{ "ministral3", "mistral3", mistral_keys, ig_hf_names_llama, IG_HF_PAIRS, SILU, false, 1e6f,
	  0, more_ministral3 },
	{ "gpt2", "gpt2", gpt2_keys, ig_hf_names_gpt2, IG_HF_HAS_BIAS, "activation_function",
	  "gelu_new", true, 0, 0, more_gpt2 },
	{ "qwen2", "qwen2", qwen2_keys, ig_hf_names_llama, IG_HF_HAS_BIAS, SILU, false, 1e4f, 0,
	  more_qwen },
	{ "qwen3", "qwen3", qwen2_keys, ig_hf_names_llama, IG_HF_HAS_HEAD_NORMS, SILU, false, 1e4f,
	  128, more_qwen },
	{ "gemma3_text", "gemma3", gemma3_keys, ig_hf_names_gemma3,
	  IG_HF_NORMS_PLUS_ONE | IG_HF_HAS_HEAD_NORMS, "hidden_activation", "gelu_pytorch_tanh",
	  true, 1e6f, 256, more_gemma3 },
	{ "qwen3_moe", "qwen3moe", qwen3_moe_keys, ig_hf_names_llama, IG_HF_HAS_HEAD_NORMS, SILU,
	  false, 1e4f, 0, more_qwen3_moe },
	{ "mixtral", "llama", mixtral_keys, ig_hf_names_llama, IG_HF_PAIRS, SILU, false, 1e6f, 0,
	  more_mixtral },
	{ "olmoe", "olmoe", olmoe_keys, ig_hf_names_llama, IG_HF_HAS_HEAD_NORMS, SILU, false, 1e4f,
	  0, more_olmoe },
};

/* The text model within a model that sees, where its object does not say. */
static const struct {
	const char *whole, *text;
} parts[] = { { "gemma3", "gemma3_text" }, { "mistral3", "mistral" } };

static void find_arch(struct reading *r)
{
	const json_t *inner = get(r->out->root, "text_config");
	const char *type = string(r, r->out->root, "model_type");
	char known[200] = "";

	if (inner && !json_is_object(inner))
		fail(r, -EINVAL, "text_config", "is no object");
	if (inner) {
		const char *inner_type = string(r, inner, "model_type");
		r->text = inner;
		for (size_t i = 0; !inner_type && type && i < sizeof parts / sizeof *parts; i++)
			if (!strcmp(type, parts[i].whole))
				inner_type = parts[i].text;
		if (inner_type)
			type = inner_type;
	}
	if (!type)
		fail(r, -EINVAL, "model_type", "is missing");
	for (size_t i = 0; !r->rc && i < sizeof archs / sizeof *archs; i++) {
		if (!strcmp(archs[i].type, type)) {
			r->out->arch = &archs[i];
			return;
		}
		snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "",
			 archs[i].type);
	}
	if (type)
		fail(r, -ENOTSUP, "model_type", "is \"%s\": not supported; known: %s",
		     ig_show(type, strlen(type)).text, known);
}

static void check_activation(struct reading *r)
{
	const struct ig_hf_arch *a = r->out->arch;
	const char *act = string(r, r->text, a->act_key);

	if (act && strcmp(act, a->act))
		fail(r, -ENOTSUP, a->act_key, "is \"%s\": only %s is supported with %s",
		     ig_show(act, strlen(act)).text, a->act, a->type);
}

static void put_heads(struct reading *r)
{
	struct ig_hf_config *c = r->out;
	uint32_t width = was_put(r, "embedding_length");

	c->n_layers = was_put(r, "block_count");
	c->n_heads = was_put(r, "attention.head_count");
	c->n_experts = was_put(r, "expert_count");
	if (!c->n_layers || c->n_layers > IG_HF_MAX_LAYERS || !c->n_heads || c->n_heads > width ||
	    c->n_experts > IG_HF_MAX_EXPERTS)
		fail(r, -EINVAL, "model_type",
		     "%s with %u layers, %u heads, %u experts and a width of "
		     "%u can't be",
		     c->arch->type, c->n_layers, c->n_heads, c->n_experts, width);
	if (r->rc)
		return;
	/* Older files have as many heads of keys as of queries, and do not say so. */
	c->n_kv_heads = was_put(r, "attention.head_count_kv");
	if (!c->n_kv_heads) {
		c->n_kv_heads = c->n_heads;
		if (c->arch->theta != 0) {
			whole(r, r->text, "num_key_value_heads", &c->n_kv_heads);
			put_u32(r, "attention.head_count_kv", c->n_kv_heads);
		}
	}
	c->head_dim = c->arch->head_dim ? c->arch->head_dim : width / c->n_heads;
	if (whole(r, r->text, "head_dim", &c->head_dim) || c->arch->head_dim) {
		put_u32(r, "attention.key_length", c->head_dim);
		put_u32(r, "attention.value_length", c->head_dim);
	}
	if (!c->n_kv_heads || c->head_dim < 2 || c->head_dim % 2 || c->head_dim > 65536)
		fail(r, -EINVAL, "head_dim", "of %u and %u heads of keys can't be", c->head_dim,
		     c->n_kv_heads);
}

/* Codes of another program than MLX are refused by its name. */
static void read_quantization(struct reading *r)
{
	const json_t *q = get(r->out->root, "quantization");
	const char *by;

	if (!q)
		q = get(r->out->root, "quantization_config");
	if (!q)
		return;
	if (!json_is_object(q)) {
		fail(r, -EINVAL, "quantization", "is no object");
		return;
	}
	by = string(r, q, "quant_method");
	if (by)
		fail(r, -ENOTSUP, "quant_method",
		     "is \"%s\": not supported; MLX's affine groups are",
		     ig_show(by, strlen(by)).text);
	r->out->quantization = (json_t *)(uintptr_t)q;
	r->out->quantised = true;
}

int ig_hf_config_read(struct ig_checkpoint *g, const char *text, size_t len, const char *label,
		      struct ig_hf_config *out, struct ig_error *err)
{
	struct reading r = { .g = g, .out = out, .label = label, .err = err };
	json_error_t why;

	memset(out, 0, sizeof *out);
	out->root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
	if (!out->root)
		return ig_st_no_json(label, &why, err);
	if (!json_is_object(out->root))
		return ig_fail(err, -EINVAL, "%s: no object", label);
	g->kvs = calloc(MAX_KEYS, sizeof *g->kvs);
	g->folder->owned = calloc(MAX_KEYS, sizeof *g->folder->owned);
	if (!g->kvs || !g->folder->owned)
		return ig_checkpoint_no_memory(g, MAX_KEYS * sizeof *g->kvs, err);
	r.text = out->root;
	find_arch(&r);
	if (r.rc)
		return r.rc;
	out->names = out->arch->names;
	out->flags = out->arch->flags;
	put_str(&r, "general.architecture", out->arch->gguf);
	check_activation(&r);
	put_keys(&r);
	put_heads(&r);
	if (r.rc)
		return r.rc;
	if (out->arch->theta != 0)
		put_rope(&r);
	if (out->arch->more)
		out->arch->more(&r);
	out->tied = flag(&r, out->root, "tie_word_embeddings",
			 flag(&r, r.text, "tie_word_embeddings", out->arch->tied));
	read_quantization(&r);
	return r.rc;
}

void ig_hf_config_finish(struct ig_hf_config *c)
{
	json_decref(c->root);
	free(c->rope_factors);
	memset(c, 0, sizeof *c);
}
