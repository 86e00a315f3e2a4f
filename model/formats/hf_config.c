/*
 * hf_config.c: converts config.json to GGUF's keys.  Names and defaults of an architecture's
 * numbers are in its table (include/ingot/arch_files.h); what all transformers share, mainly RoPE
 * scaling, is here.  An unsupported setting is an error with its name in the file.
 */
#include "model/formats/hf_config_private.h"

#include "base/json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- RoPE ------------------------------------------------------------------------ */

/*
 * rope_type llama3 (Llama Team 2024, arXiv:2407.21783, as in transformers): the frequency of pairs
 * whose wavelength is above original context / low_freq_factor is divided by the factor; below
 * original context / high_freq_factor it does not change; between them it is interpolated.
 */
static void llama3_factors(struct ig_hf_reading *r, const json_t *s, double theta)
{
	uint32_t n_pairs = r->out->head_dim / 2, original;
	double factor, low, high;

	if (!ig_hf_number(r, s, "factor", &factor) ||
	    !ig_hf_number(r, s, "low_freq_factor", &low) ||
	    !ig_hf_number(r, s, "high_freq_factor", &high) ||
	    !ig_hf_whole(r, s, "original_max_position_embeddings", &original)) {
		ig_hf_fail(r, -EINVAL, "rope_scaling",
			   "of type llama3 needs factor, low_freq_factor, "
			   "high_freq_factor and original_max_position_embeddings");
		return;
	}
	if (!(factor >= 1 && factor <= 1024) || !(low > 0) || !(high > low) || !original) {
		ig_hf_fail(
			r, -EINVAL, "rope_scaling",
			"has invalid numbers: factor %g, "
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

/* rope_type proportional (Gemma 4): the first part of the pairs has the frequencies of a head that is
 * rotated as a whole, the others have none: a factor so large that no position rotates them. */
static void proportional_factors(struct ig_hf_reading *r, const json_t *s, double part)
{
	const uint32_t n_pairs = r->out->head_dim / 2;
	double factor = 1;
	float *out;

	if ((ig_hf_number(r, s, "factor", &factor) && factor != 1) || !(part > 0 && part <= 1)) {
		ig_hf_fail(
			r, -ENOTSUP, "rope_parameters",
			"of type proportional with a factor of %g and a partial_rotary_factor of "
			"%g: not supported",
			factor, part);
		return;
	}
	out = malloc((n_pairs ? n_pairs : 1) * sizeof *out);
	if (!out) {
		r->rc = ig_checkpoint_no_memory(r->g, n_pairs * sizeof *out, r->err);
		return;
	}
	for (uint32_t i = 0; i < n_pairs; i++)
		out[i] = i < (uint32_t)floor(part * r->out->head_dim / 2) ? 1 : 1e30f;
	r->out->rope_factors = out;
	ig_hf_put_u32(r, "rope.dimension_count", r->out->head_dim);
}

/* transformers' attention_factor over 0.1 ln(factor) + 1, which the architectures apply. */
static void put_yarn_attention(struct ig_hf_reading *r, const json_t *s, double factor)
{
	const double log_scale = r->out->files.yarn_log_scale;
	double base = 0.1 * log(factor) + 1, attention, mscale = 0, all = 0;

	if (log_scale != 0 && ig_hf_number(r, s, "mscale_all_dim", &all) && all != 0) {
		if (!ig_hf_number(r, s, "mscale", &mscale) || mscale != all)
			ig_hf_fail(r, -ENOTSUP, "mscale_all_dim",
				   "is %g, and mscale %g: only equal ones are supported", all,
				   mscale);
		ig_hf_put_f32(r, "rope.scaling.yarn_log_multiplier", log_scale * all);
	} else if (ig_hf_number(r, s, "attention_factor", &attention)) {
		ig_hf_put_f32(r, "rope.scaling.attn_factor", attention / base);
	} else if (ig_hf_number(r, s, "mscale", &mscale) &&
		   ig_hf_number(r, s, "mscale_all_dim", &all) && mscale == 1 && all != 0) {
		ig_hf_put_f32(r, "rope.scaling.yarn_log_multiplier", all);
	} else if (!r->rc && mscale != 0 && all != 0) {
		attention = (0.1 * mscale * log(factor) + 1) / (0.1 * all * log(factor) + 1);
		ig_hf_put_f32(r, "rope.scaling.attn_factor", attention / base);
	}
}

static void put_yarn(struct ig_hf_reading *r, const json_t *s, double factor)
{
	uint32_t original = ig_hf_was_put(r, "context_length");
	double beta;

	ig_hf_whole(r, s, "original_max_position_embeddings", &original);
	ig_hf_put_u32(r, "rope.scaling.original_context_length", original);
	if (ig_hf_number(r, s, "beta_fast", &beta))
		ig_hf_put_f32(r, "rope.scaling.yarn_beta_fast", beta);
	if (ig_hf_number(r, s, "beta_slow", &beta))
		ig_hf_put_f32(r, "rope.scaling.yarn_beta_slow", beta);
	if (!ig_hf_flag(r, s, "truncate", true))
		ig_hf_put_u32(r, "rope.scaling.yarn_truncate", 0);
	put_yarn_attention(r, s, factor);
}

static void put_scaling(struct ig_hf_reading *r, const json_t *s, double theta)
{
	const char *type = ig_hf_string(r, s, "rope_type");
	double factor;

	if (!type)
		type = ig_hf_string(r, s, "type");
	if (r->rc || !type || !strcmp(type, "default"))
		return;
	if (!strcmp(type, "llama3")) {
		llama3_factors(r, s, theta);
		return;
	}
	if (strcmp(type, "linear") && strcmp(type, "yarn")) {
		ig_hf_fail(r, -ENOTSUP, "rope_type",
			   "is \"%s\": not supported; default, linear, llama3 and yarn are",
			   ig_show(type, strlen(type)).text);
		return;
	}
	if (!ig_hf_number(r, s, "factor", &factor) || !(factor >= 1 && factor <= 1024)) {
		ig_hf_fail(r, -EINVAL, "rope_scaling", "of type %s needs a factor of 1 to 1024",
			   type);
		return;
	}
	ig_hf_put_str(r, "rope.scaling.type", type);
	ig_hf_put_f32(r, "rope.scaling.factor", factor);
	if (!strcmp(type, "yarn"))
		put_yarn(r, s, factor);
}

static bool is_proportional(struct ig_hf_reading *r, const json_t *s)
{
	const char *type = json_is_object(s) ? ig_hf_string(r, s, "rope_type") : NULL;

	return type && !strcmp(type, "proportional");
}

/* mrope_section of M-RoPE: pairs that turn by time, height and width. */
static void put_sections(struct ig_hf_reading *r, const json_t *s)
{
	const json_t *list = ig_hf_get(s, "mrope_section");
	uint32_t n[3];

	for (size_t i = 0; list && i < 3; i++) {
		const json_t *x = json_array_get(list, i);
		if (json_array_size(list) != 3 || !json_is_integer(x) ||
		    json_integer_value(x) < 0 || json_integer_value(x) > UINT16_MAX) {
			ig_hf_fail(r, -EINVAL, "mrope_section", "is not three numbers of pairs");
			return;
		}
		n[i] = (uint32_t)json_integer_value(x);
	}
	if (list)
		ig_hf_put_u32s(r, "rope.dimension_sections", n, 3);
}

/* rope_theta and rope_scaling, or rope_parameters, which has both, or both for each kind of
 * layer. */
static void put_rope(struct ig_hf_reading *r)
{
	const json_t *p = ig_hf_get(r->text, "rope_parameters"),
		     *full = ig_hf_get(p, "full_attention"), *s;
	const uint32_t percent = r->out->files.rotary_percent;
	double theta = r->out->files.rope_theta, part = percent ? percent / 100.0 : 1, n_rot;

	if (full)
		p = full;
	s = p ? p : ig_hf_get(r->text, "rope_scaling");
	if (s && !json_is_object(s))
		ig_hf_fail(r, -EINVAL, p ? "rope_parameters" : "rope_scaling", "is not an object");
	if (!ig_hf_number(r, p, "rope_theta", &theta))
		(void)(ig_hf_number(r, r->text, "rope_theta", &theta) ||
		       ig_hf_number(r, r->text, "rotary_emb_base", &theta)); /* Nomic's files */
	if (!ig_hf_number(r, p, "partial_rotary_factor", &part))
		ig_hf_number(r, r->text, "partial_rotary_factor", &part);
	if (is_proportional(r, s)) {
		proportional_factors(r, s, part);
		ig_hf_put_f32(r, "rope.freq_base", theta);
		return;
	}
	n_rot = floor(part * r->out->head_dim);
	if (percent)
		(void)(ig_hf_number(r, r->text, "rotary_dim", &n_rot) || /* MiniMax M2's files */
		       ig_hf_number(r, r->text, "qk_rope_head_dim", &n_rot));
	part = n_rot / r->out->head_dim;
	if (!(part > 0 && part <= 1 && n_rot >= 2) || (part != 1 && !percent)) {
		ig_hf_fail(r, -ENOTSUP, "partial_rotary_factor", "is %g: not supported", part);
		return;
	}
	ig_hf_put_u32(r, "rope.dimension_count", (uint32_t)n_rot);
	ig_hf_put_f32(r, "rope.freq_base", theta);
	put_scaling(r, s, theta);
	put_sections(r, s);
}

/* ---- which architecture ------------------------------------------------------------------------ */

/* Table n of all architectures, also of older modules, in *out; false: there are no more. */
static bool files_at(const struct ig_hf_reading *r, size_t n, const struct ig_arch **arch,
		     struct ig_arch_files *out)
{
	for (const struct ig_arch *const *a = r->archs; a && *a; a++)
		for (const struct ig_arch_files *const *f = (*a)->files; f && *f; f++)
			if (!n--) {
				*arch = *a;
				ig_hf_entry(out, sizeof *out, *f, 0, (*f)->struct_size);
				return true;
			}
	return false;
}

/* The type of the text model within a multimodal model, if its object has none. */
static const char *inner_type(const struct ig_hf_reading *r, const char *outer)
{
	const struct ig_arch *arch;
	struct ig_arch_files f;

	for (size_t i = 0; files_at(r, i, &arch, &f); i++)
		if (f.outer_type && !strcmp(f.outer_type, outer))
			return f.model_type;
	return outer;
}

/* The first table of the type whose key is set, or else the first without one. */
static void find_arch(struct ig_hf_reading *r)
{
	const json_t *inner = ig_hf_get(r->out->root, "text_config");
	const char *type = ig_hf_string(r, r->out->root, "model_type");
	const struct ig_arch *arch;
	struct ig_arch_files f;
	char known[200] = "";

	if (inner && !json_is_object(inner))
		ig_hf_fail(r, -EINVAL, "text_config", "is not an object");
	if (inner) {
		const char *own = ig_hf_string(r, inner, "model_type");
		r->text = inner;
		type = own ? own : type ? inner_type(r, type) : NULL;
	}
	if (!type)
		ig_hf_fail(r, -EINVAL, "model_type", "is missing");
	for (size_t i = 0; !r->rc && files_at(r, i, &arch, &f); i++) {
		if (!strcmp(f.model_type, type) &&
		    (f.if_set ? ig_hf_is_set(r, f.if_set) : !r->out->gguf)) {
			r->out->files = f;
			r->out->gguf = f.gguf ? f.gguf : arch->name;
			if (f.if_set)
				return;
		}
		if (!f.if_set)
			snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s",
				 known[0] ? ", " : "", f.model_type);
	}
	if (type && !r->out->gguf)
		ig_hf_fail(r, -ENOTSUP, "model_type", "is \"%s\": not supported; known: %s",
			   ig_show(type, strlen(type)).text, known[0] ? known : "none");
}

static void put_heads(struct ig_hf_reading *r)
{
	struct ig_hf_config *c = r->out;
	uint32_t width = ig_hf_was_put(r, "embedding_length");

	c->n_layers = ig_hf_was_put(r, "block_count");
	c->n_heads = ig_hf_was_put(r, "attention.head_count");
	c->n_experts = ig_hf_was_put(r, "expert_count");
	c->value_dim = ig_hf_was_put(r, "attention.value_length_mla");
	(void)(ig_hf_whole(r, r->text, "num_nextn_predict_layers", &c->n_next) ||
	       ig_hf_whole(r, r->text, "num_mtp_layers", &c->n_next) ||
	       ig_hf_whole(r, r->text, "mtp_num_hidden_layers", &c->n_next));
	if (c->n_next > IG_HF_MAX_LAYERS)
		ig_hf_fail(r, -EINVAL, "num_nextn_predict_layers", "is %u", c->n_next);
	if (!c->n_layers || c->n_layers > IG_HF_MAX_LAYERS || !c->n_heads || c->n_heads > width ||
	    c->n_experts > IG_HF_MAX_EXPERTS)
		ig_hf_fail(r, -EINVAL, "model_type",
			   "%s with %u layers, %u heads, %u experts and a width of %u is invalid",
			   c->files.model_type, c->n_layers, c->n_heads, c->n_experts, width);
	if (r->rc)
		return;
	c->n_kv_heads = ig_hf_find_put(r, "attention.head_count_kv") ?
				ig_hf_was_put(r, "attention.head_count_kv") :
				c->n_heads;
	c->head_dim = c->files.head_dim ? c->files.head_dim : width / c->n_heads;
	if (ig_hf_find_put(r, "attention.key_length")) { /* by the architecture's own key */
		c->head_dim = ig_hf_was_put(r, "attention.key_length");
	} else if (ig_hf_whole(r, r->text, "head_dim", &c->head_dim) || c->files.head_dim) {
		ig_hf_put_u32(r, "attention.key_length", c->head_dim);
		ig_hf_put_u32(r, "attention.value_length", c->head_dim);
	}
	if (!c->n_kv_heads || c->head_dim < 2 || c->head_dim % 2 || c->head_dim > 65536)
		ig_hf_fail(r, -EINVAL, "head_dim", "of %u with %u KV heads is invalid", c->head_dim,
			   c->n_kv_heads);
}

/* Quantisation by another program than MLX is an error with its name. */
static void read_quantization(struct ig_hf_reading *r)
{
	const json_t *q = ig_hf_get(r->out->root, "quantization");
	const char *by;

	if (!q)
		q = ig_hf_get(r->out->root, "quantization_config");
	if (!q)
		return;
	if (!json_is_object(q)) {
		ig_hf_fail(r, -EINVAL, "quantization", "is not an object");
		return;
	}
	by = ig_hf_string(r, q, "quant_method");
	if (by && !strcmp(by, "mxfp4")) /* the tensors' types say which have it */
		return;
	if (by)
		ig_hf_fail(r, -ENOTSUP, "quant_method",
			   "is \"%s\": not supported; mxfp4 and MLX's affine groups are",
			   ig_show(by, strlen(by)).text);
	r->out->quantization = (json_t *)(uintptr_t)q;
	r->out->quantised = true;
}

/* ---- models of embeddings ----------------------------------------------------------------------- */

/* The modes of sentence-transformers, and pooling_type's numbers; -1: not supported. */
static int pooling_of(const char *mode)
{
	static const char *const modes[] = { "mean", "cls", "lasttoken" };

	for (int i = 0; i < 3; i++)
		if (!strcmp(mode, modes[i]))
			return i + 1;
	return -1;
}

/* {"pooling_mode": "mean"}, or one of {"pooling_mode_mean_tokens": true}. */
static void put_mode(struct ig_hf_reading *r, const char *label, const json_t *pooling)
{
	static const char *const flags[] = { "pooling_mode_mean_tokens", "pooling_mode_cls_token",
					     "pooling_mode_lasttoken" };
	const char *mode = json_string_value(json_object_get(pooling, "pooling_mode")), *key;
	int type = mode ? pooling_of(mode) : 0, n = type != 0;
	json_t *v;

	json_object_foreach((json_t *)(uintptr_t)pooling, key, v)
	{
		if (strncmp(key, "pooling_mode_", 13) || !json_is_true(v) || mode)
			continue;
		type = -1;
		n++;
		for (int i = 0; i < 3; i++)
			if (!strcmp(key, flags[i]))
				type = i + 1;
	}
	if (n != 1 || type < 0)
		r->rc = ig_fail(r->err, -ENOTSUP,
				"%s: only one of the modes mean, cls and lasttoken is supported",
				label);
	else
		ig_hf_put_u32(r, "pooling_type", (uint32_t)type);
}

/* pooling_type, from sentence-transformers' file, or of a reranker from its class. */
static void read_pooling(struct ig_hf_reading *r)
{
	static const char name[] = "1_Pooling/config.json";
	const json_t *class = json_array_get(ig_hf_get(r->out->root, "architectures"), 0);
	const char *text, *label = json_string_value(class);
	struct ig_error none = { 0 };
	json_t *pooling = NULL;
	const char *dense;
	size_t len, n_dense;
	int rc;

	if (r->rc || ig_hf_find_put(r, "pooling_type"))
		return;
	if (ig_hf_read_reranker(r, label) || r->rc)
		return;
	if (label && ig_ends_with(label, "ForSequenceClassification")) {
		ig_hf_put_u32(r, "pooling_type", 4);
		return;
	}
	rc = ig_folder_sibling(r->g, name, &text, &len, &none);
	if (rc == -ENOENT)
		return;
	if (rc) {
		r->rc = ig_fail(r->err, rc, "%s", none.text);
		return;
	}
	if (!ig_folder_sibling(r->g, "2_Dense/config.json", &dense, &n_dense, &none)) {
		r->rc = ig_fail(r->err, -ENOTSUP,
				"2_Dense: dense layers behind the pooling are not supported in a "
				"folder; a GGUF file may have them");
		return;
	}
	r->rc = ig_json_read_file(name, text, len, &pooling, r->err);
	if (!r->rc)
		put_mode(r, name, pooling);
	json_decref(pooling);
}

int ig_hf_config_read(struct ig_checkpoint *g, const struct ig_arch *const *archs, const char *text,
		      size_t len, const char *label, struct ig_hf_config *out, struct ig_error *err)
{
	struct ig_hf_reading r = { .g = g, .archs = archs, .out = out, .label = label, .err = err };
	int rc;

	memset(out, 0, sizeof *out);
	if ((rc = ig_json_read_file(label, text, len, &out->root, err)))
		return rc;
	if (!json_is_object(out->root))
		return ig_fail(err, -EINVAL, "%s: not an object", label);
	g->kvs = calloc(IG_HF_MAX_KEYS, sizeof *g->kvs);
	g->folder->owned = calloc(IG_HF_MAX_KEYS, sizeof *g->folder->owned);
	if (!g->kvs || !g->folder->owned)
		return ig_checkpoint_no_memory(g, IG_HF_MAX_KEYS * sizeof *g->kvs, err);
	r.text = out->root;
	find_arch(&r);
	if (r.rc)
		return r.rc;
	ig_hf_put_str(&r, "general.architecture", out->gguf);
	ig_hf_put_keys(&r);
	put_heads(&r);
	if (r.rc)
		return r.rc;
	if (out->files.rope_theta != 0)
		put_rope(&r);
	ig_hf_run_hook(&r);
	out->n_experts = ig_hf_was_put(&r, "expert_count");
	if (out->n_experts > IG_HF_MAX_EXPERTS)
		ig_hf_fail(&r, -EINVAL, "model_type", "%s with %u experts is invalid",
			   out->files.model_type, out->n_experts);
	out->n_positions = ig_hf_was_put(&r, "context_length");
	out->n_value_heads = ig_hf_was_put(&r, "ssm.time_step_rank");
	out->n_value_groups = ig_hf_was_put(&r, "ssm.group_count");
	out->n_values = ig_hf_was_put(&r, "ssm.inner_size");
	out->key_dim = ig_hf_was_put(&r, "ssm.state_size");
	read_pooling(&r);
	out->tied = out->no_output ||
		    ig_hf_flag(&r, out->root, "tie_word_embeddings",
			       ig_hf_flag(&r, r.text, "tie_word_embeddings", out->files.tied));
	read_quantization(&r);
	return r.rc;
}

/* Booleans by layer, with one more for the head, whose layer has attention as those with the first word. */
static void lengthen_lists(struct ig_hf_reading *r)
{
	const struct ig_checkpoint *g = r->g;
	const size_t skip = strlen(r->out->gguf) + 1;

	for (uint32_t i = 0; i < g->n_kvs && !r->rc; i++) {
		const struct ig_kv *kv = &g->kvs[i];
		uint8_t values[IG_HF_MAX_LAYERS + 1] = { 0 };
		char key[96];
		if (kv->type != IG_KV_ARRAY || kv->elem != IG_KV_BOOL ||
		    kv->n != r->out->n_layers || kv->key_len <= skip ||
		    kv->key_len - skip >= sizeof key)
			continue;
		memcpy(values, kv->value, kv->n);
		snprintf(key, sizeof key, "%.*s", (int)(kv->key_len - skip), kv->key + skip);
		ig_hf_put_bools(r, key, values, kv->n + 1);
	}
}

int ig_hf_put_head(struct ig_checkpoint *g, struct ig_hf_config *c, const char *label,
		   struct ig_error *err)
{
	struct ig_hf_reading r = { .g = g, .out = c, .label = label, .err = err };

	lengthen_lists(&r);
	ig_hf_put_u32(&r, "block_count", c->n_layers + 1);
	ig_hf_put_u32(&r, "nextn_predict_layers", 1);
	return r.rc;
}

void ig_hf_config_finish(struct ig_hf_config *c)
{
	json_decref(c->root);
	free(c->rope_factors);
	for (uint32_t i = 0; i < c->n_vectors; i++)
		free(c->vectors[i].values);
	memset(c, 0, sizeof *c);
}
