/*
 * convert_mix.c: selects a tensor's element type.  The mixes are the usual ones, by their usual
 * names: low precision costs the most in the output head, in the projections of values, and in the
 * first and last layers, so these get a type with more bits.
 */
#include "model/quantize/convert.h"

#include "model/quantize/quantize.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct ig_mix mixes[] = {
	{ "F32", 0, IG_F32 },	   { "F16", 1, IG_F16 },	{ "BF16", 32, IG_BF16 },
	{ "Q8_0", 7, IG_Q8_0 },	   { "Q6_K", 18, IG_Q6_K },	{ "Q5_K_M", 17, IG_Q5_K },
	{ "Q5_K_S", 16, IG_Q5_K }, { "Q5_1", 9, IG_Q5_1 },	{ "Q5_0", 8, IG_Q5_0 },
	{ "Q4_K_M", 15, IG_Q4_K }, { "Q4_K_S", 14, IG_Q4_K },	{ "Q4_1", 3, IG_Q4_1 },
	{ "Q4_0", 2, IG_Q4_0 },	   { "IQ4_NL", 25, IG_IQ4_NL }, { "IQ4_XS", 30, IG_IQ4_XS },
	{ "MXFP4", 38, IG_MXFP4 }, { "Q3_K_L", 13, IG_Q3_K },	{ "Q3_K_M", 12, IG_Q3_K },
	{ "Q3_K_S", 11, IG_Q3_K }, { "Q2_K", 10, IG_Q2_K },	{ 0 },
};

const struct ig_mix *ig_mixes(void) { return mixes; }

const struct ig_mix *ig_mix_find(const char *name)
{
	for (const struct ig_mix *m = mixes; m->name; m++)
		if (!strcasecmp(m->name, name))
			return m;
	return NULL;
}

/* ---- the model ------------------------------------------------------------------------- */

/* The layer of "blk.N.…", or -1; *rest: the part after it. */
static long layer_of(const char *name, const char **rest)
{
	char *end;

	*rest = name;
	if (strncmp(name, "blk.", 4) || name[4] < '0' || name[4] > '9')
		return -1;
	long n = strtol(name + 4, &end, 10);
	if (*end != '.' || n < 0 || n > 1 << 20)
		return -1;
	*rest = end + 1;
	return n;
}

static uint32_t number(const struct ig_checkpoint *in, const char *arch, size_t arch_len,
		       const char *what)
{
	char key[160];
	uint32_t v = 0;

	snprintf(key, sizeof key, "%.*s.%s", (int)(arch_len < 80 ? arch_len : 80), arch, what);
	return ig_checkpoint_u32(in, key, &v, NULL) ? 0 : v;
}

void ig_mix_model_init(struct ig_mix_model *m, const struct ig_checkpoint *in)
{
	const char *arch = "", *rest;
	size_t len = 0;

	*m = (struct ig_mix_model){ .heads_per_kv = 1 };
	if (ig_checkpoint_str(in, "general.architecture", &arch, &len, NULL) == 0) {
		uint32_t n_heads = number(in, arch, len, "attention.head_count");
		uint32_t n_kv = number(in, arch, len, "attention.head_count_kv");
		m->n_layers = number(in, arch, len, "block_count");
		m->n_experts = number(in, arch, len, "expert_count");
		if (n_kv && n_heads > n_kv)
			m->heads_per_kv = n_heads / n_kv;
	}
	if (m->n_layers > 1 << 20)
		m->n_layers = 1 << 20;
	for (uint64_t i = 0; i < ig_checkpoint_n_tensors(in); i++) {
		const char *name = ig_checkpoint_tensor(in, i)->name;
		long layer = layer_of(name, &rest);
		if (layer >= (long)m->n_layers)
			m->n_layers = (uint32_t)layer + 1;
		m->has_output = m->has_output || !strcmp(name, "output.weight");
	}
}

/* ---- the choice ------------------------------------------------------------------------ */

/* Not norms, biases, routers, taps of convolutions and learned positions, which are small or sensitive. */
static bool is_matrix(const struct ig_checkpoint_tensor *t)
{
	size_t len = strlen(t->name);

	return t->n_dims >= 2 && len >= 6 && !strcmp(t->name + len - 6, "weight") &&
	       !strstr(t->name, "_norm.weight") && !strstr(t->name, "ffn_gate_inp") &&
	       !strstr(t->name, "ssm_conv1d.") && !strstr(t->name, "shortconv.conv.") &&
	       strcmp(t->name, "position_embd.weight") && strcmp(t->name, "token_types.weight");
}

static bool fits(uint32_t dtype, int64_t n_cols) { return ig_dtype_row_bytes(dtype, n_cols) != 0; }

/* The type, or the nearest one with smaller blocks if its blocks do not fit. */
static uint32_t fitting(uint32_t dtype, int64_t n_cols)
{
	if (!fits(dtype, n_cols))
		switch (dtype) {
		case IG_Q2_K:
		case IG_Q3_K:
		case IG_IQ4_XS: dtype = IG_IQ4_NL; break;
		case IG_Q4_K: dtype = IG_Q5_0; break;
		case IG_Q5_K: dtype = IG_Q5_1; break;
		case IG_Q6_K: dtype = IG_Q8_0; break;
		default: break;
		}
	return fits(dtype, n_cols) ? dtype : IG_F16;
}

static bool begins(const char *s, const char *with) { return !strncmp(s, with, strlen(with)); }

/* The first and last eighth of the layers, and every third one between. */
static bool costly_layer(long layer, uint32_t n)
{
	long eighth = n / 8;

	return layer < eighth || layer >= 7 * (long)n / 8 || (layer - eighth) % 3 == 2;
}

/* The type in a mix by the tensor's role in its layer. */
static uint32_t in_layer(const struct ig_mix *mix, const struct ig_mix_model *m, const char *what,
			 long layer)
{
	const char *s = strrchr(mix->name, '_');
	bool k = s && s > mix->name && s[-1] == 'K'; /* Qn_K_S, _M, _L */
	bool medium = k && s[1] == 'M', large = k && s[1] == 'L', small = k && s[1] == 'S';
	bool early = layer < (long)m->n_layers / 8, costly = costly_layer(layer, m->n_layers);
	bool few_experts = m->n_experts == 8; /* the attention is small beside them */
	uint32_t d = mix->dtype;

	if (begins(what, "attn_v.")) {
		if (few_experts)
			return IG_Q8_0;
		if (d == IG_Q2_K)
			return m->heads_per_kv >= 4 ? IG_Q4_K : IG_Q3_K;
		if (d == IG_Q3_K && !small)
			return large || layer < 2 ? IG_Q5_K : IG_Q4_K;
		if (d == IG_Q4_K && small && layer < 4)
			return IG_Q5_K;
		if ((d == IG_IQ4_NL || d == IG_IQ4_XS) && m->heads_per_kv >= 4)
			return IG_Q5_K;
		if (medium && costly)
			return IG_Q6_K;
	} else if (begins(what, "attn_k.")) {
		if (few_experts)
			return IG_Q8_0;
	} else if (begins(what, "ffn_down")) {
		if (d == IG_Q2_K)
			return IG_Q3_K;
		if (d == IG_Q3_K && !small)
			return large || layer < (long)m->n_layers / 16 ? IG_Q5_K : IG_Q4_K;
		if (medium && costly)
			return IG_Q6_K;
		if (early && ((d == IG_Q4_K && small) || d == IG_IQ4_NL || d == IG_IQ4_XS))
			return IG_Q5_K;
	} else if (begins(what, "attn_output.")) {
		if (few_experts && (d == IG_Q2_K || d == IG_Q3_K || d == IG_Q4_K ||
				    d == IG_IQ4_NL || d == IG_IQ4_XS))
			return IG_Q5_K;
		if (d == IG_Q2_K)
			return IG_Q3_K;
		if (d == IG_Q3_K && !small)
			return large ? IG_Q5_K : IG_Q4_K;
	} else if (begins(what, "attn_qkv.")) {
		if (d == IG_Q3_K && !small)
			return IG_Q4_K;
		if (medium)
			return d == IG_Q4_K ? IG_Q5_K : IG_Q6_K;
	}
	return d;
}

static bool is_plain(uint32_t dtype)
{
	return dtype == IG_F32 || dtype == IG_F16 || dtype == IG_BF16;
}

uint32_t ig_mix_choose(const struct ig_mix *mix, const struct ig_mix_model *m,
		       const struct ig_checkpoint_tensor *t)
{
	const char *what;
	long layer = layer_of(t->name, &what);

	if (!is_matrix(t)) /* a quantised one keeps its type, if a GGUF file may have it */
		return is_plain(t->dtype) || is_plain(mix->dtype) || !ig_quantize_knows(t->dtype) ?
			       IG_F32 :
			       t->dtype;
	if (is_plain(mix->dtype))
		return mix->dtype;
	if (t->dtype == IG_MXFP4) /* models are trained in it: other types lose, and none is smaller
				   * but for Q2_K and Q3_K */
		return IG_MXFP4;
	if (!strcmp(t->name, m->has_output ? "output.weight" : "token_embd.weight"))
		return fitting(mix->dtype == IG_Q8_0 ? IG_Q8_0 : IG_Q6_K, t->n_cols);
	return fitting(layer < 0 ? mix->dtype : in_layer(mix, m, what, layer), t->n_cols);
}
