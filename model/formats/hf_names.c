/*
 * hf_names.c: what a tensor of Hugging Face or MLX is called in GGUF.
 *
 * A name is a way through modules, "model.layers.3.self_attn.q_proj.weight"; what stands
 * before "layers" differs with the class that wrote the file, so it is taken off.  What no
 * text model needs is left out by rule; any other name that no table has is an error, for
 * a part that is silently left out makes another model.
 */
#include "model/formats/folder.h"

#include <errno.h>
#include <string.h>

const struct ig_hf_name ig_hf_names_llama[] = {
	{ "input_layernorm", "attn_norm", IG_HF_NORM },
	{ "self_attn.q_proj", "attn_q", IG_HF_Q | IG_HF_BIAS },
	{ "self_attn.k_proj", "attn_k", IG_HF_K | IG_HF_BIAS },
	{ "self_attn.v_proj", "attn_v", IG_HF_BIAS },
	{ "self_attn.o_proj", "attn_output", IG_HF_OUT_BIAS },
	{ "self_attn.q_norm", "attn_q_norm", IG_HF_NORM | IG_HF_HEAD_NORM },
	{ "self_attn.k_norm", "attn_k_norm", IG_HF_NORM | IG_HF_HEAD_NORM },
	{ "post_attention_layernorm", "ffn_norm", IG_HF_NORM },
	{ "mlp.gate_proj", "ffn_gate", 0 },
	{ "mlp.up_proj", "ffn_up", 0 },
	{ "mlp.down_proj", "ffn_down", 0 },
	/* experts: the router, then those of transformers' older files, its newer ones, and
	 * MLX's */
	{ "mlp.gate", "ffn_gate_inp", IG_HF_ROUTER | IG_HF_F32 },
	{ "block_sparse_moe.gate", "ffn_gate_inp", IG_HF_ROUTER | IG_HF_F32 },
	{ "mlp.experts.*.gate_proj", "ffn_gate_exps", IG_HF_EXPERTS },
	{ "mlp.experts.*.up_proj", "ffn_up_exps", IG_HF_EXPERTS },
	{ "mlp.experts.*.down_proj", "ffn_down_exps", IG_HF_EXPERTS },
	{ "block_sparse_moe.experts.*.w1", "ffn_gate_exps", IG_HF_EXPERTS },
	{ "block_sparse_moe.experts.*.w3", "ffn_up_exps", IG_HF_EXPERTS },
	{ "block_sparse_moe.experts.*.w2", "ffn_down_exps", IG_HF_EXPERTS },
	{ "mlp.experts.gate_up_proj", "ffn_gate_exps", IG_HF_EXPERTS | IG_HF_TWO },
	{ "mlp.experts.down_proj", "ffn_down_exps", IG_HF_EXPERTS },
	{ "mlp.switch_mlp.gate_proj", "ffn_gate_exps", IG_HF_EXPERTS },
	{ "mlp.switch_mlp.up_proj", "ffn_up_exps", IG_HF_EXPERTS },
	{ "mlp.switch_mlp.down_proj", "ffn_down_exps", IG_HF_EXPERTS },
	{ "block_sparse_moe.switch_mlp.gate_proj", "ffn_gate_exps", IG_HF_EXPERTS },
	{ "block_sparse_moe.switch_mlp.up_proj", "ffn_up_exps", IG_HF_EXPERTS },
	{ "block_sparse_moe.switch_mlp.down_proj", "ffn_down_exps", IG_HF_EXPERTS },
	{ NULL, NULL, 0 },
};

const struct ig_hf_name ig_hf_names_gemma3[] = {
	{ "input_layernorm", "attn_norm", IG_HF_NORM },
	{ "self_attn.q_proj", "attn_q", IG_HF_Q | IG_HF_BIAS },
	{ "self_attn.k_proj", "attn_k", IG_HF_K | IG_HF_BIAS },
	{ "self_attn.v_proj", "attn_v", IG_HF_BIAS },
	{ "self_attn.o_proj", "attn_output", 0 },
	{ "self_attn.q_norm", "attn_q_norm", IG_HF_NORM | IG_HF_HEAD_NORM },
	{ "self_attn.k_norm", "attn_k_norm", IG_HF_NORM | IG_HF_HEAD_NORM },
	{ "post_attention_layernorm", "post_attention_norm", IG_HF_NORM },
	{ "pre_feedforward_layernorm", "ffn_norm", IG_HF_NORM },
	{ "post_feedforward_layernorm", "post_ffw_norm", IG_HF_NORM },
	{ "mlp.gate_proj", "ffn_gate", 0 },
	{ "mlp.up_proj", "ffn_up", 0 },
	{ "mlp.down_proj", "ffn_down", 0 },
	{ NULL, NULL, 0 },
};

const struct ig_hf_name ig_hf_names_gpt2[] = {
	{ "ln_1", "attn_norm", IG_HF_NORM | IG_HF_BIAS },
	{ "attn.c_attn", "attn_qkv", IG_HF_CONV1D | IG_HF_BIAS },
	{ "attn.c_proj", "attn_output", IG_HF_CONV1D | IG_HF_BIAS },
	{ "ln_2", "ffn_norm", IG_HF_NORM | IG_HF_BIAS },
	{ "mlp.c_fc", "ffn_up", IG_HF_CONV1D | IG_HF_BIAS },
	{ "mlp.c_proj", "ffn_down", IG_HF_CONV1D | IG_HF_BIAS },
	{ NULL, NULL, 0 },
};

/* Outside of layers, the same for all. */
static const struct ig_hf_name ends[] = {
	{ "embed_tokens", "token_embd", 0 },
	{ "norm", "output_norm", IG_HF_NORM },
	{ "lm_head", "output", 0 },
	{ "wte", "token_embd", 0 },
	{ "wpe", "position_embd", IG_HF_F32 },
	{ "ln_f", "output_norm", IG_HF_NORM | IG_HF_BIAS },
	{ NULL, NULL, 0 },
};

/* Ways to a text model that is a part of another one. */
static const char *const prefixes[] = { "model.", "language_model.", "text_model.",
					"transformer." };

/* Other parts of models that see or hear. */
static const char *const other_parts[] = {
	"vision_tower.",   "vision_model.",	     "visual.",
	"vision_encoder.", "multi_modal_projector.", "vision_language_adapter.",
	"patch_merger.",   "embed_vision.",	     "audio_tower.",
	"embed_audio.",
};

static bool take(const char **s, const char *word)
{
	size_t n = strlen(word);

	if (strncmp(*s, word, n))
		return false;
	*s += n;
	return true;
}

/* A number without leading zeros below max. */
static bool take_number(const char **s, uint32_t max, uint32_t *out)
{
	const char *p = *s;
	uint32_t v = 0;

	if (*p < '0' || *p > '9' || (*p == '0' && p[1] >= '0' && p[1] <= '9'))
		return false;
	for (; *p >= '0' && *p <= '9'; p++) {
		v = v * 10 + (uint32_t)(*p - '0');
		if (v >= max)
			return false;
	}
	*s = p;
	*out = v;
	return true;
}

/* What stands behind the module: GGUF's ending, and which of MLX's parts it is. */
static const struct {
	const char *hf, *gguf;
	enum ig_hf_kind kind;
} endings[] = {
	{ ".weight", ".weight", IG_HF_MAIN },	{ ".bias", ".bias", IG_HF_MAIN },
	{ ".scales", ".weight", IG_HF_SCALES }, { ".biases", ".weight", IG_HF_BIASES },
	{ "", ".weight", IG_HF_MAIN }, /* transformers' merged experts */
};

static bool take_ending(const char *s, struct ig_hf_place *out, const char **gguf)
{
	for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
		if (!strcmp(s, endings[i].hf)) {
			out->kind = endings[i].kind;
			*gguf = endings[i].gguf;
			return true;
		}
	return false;
}

/* Does the architecture have such a part?  Else the file is of another model. */
static bool has_part(const struct ig_hf_config *c, const struct ig_hf_name *n,
		     const char *hf_ending)
{
	if (n->flags & (IG_HF_EXPERTS | IG_HF_ROUTER) && !c->n_experts)
		return false;
	if (n->flags & IG_HF_HEAD_NORM && !(c->flags & IG_HF_HAS_HEAD_NORMS))
		return false;
	return strcmp(hf_ending, ".bias") || (n->flags & IG_HF_BIAS && c->flags & IG_HF_HAS_BIAS) ||
	       (n->flags & IG_HF_OUT_BIAS && c->flags & IG_HF_HAS_OUT_BIAS);
}

/* s is a name of the table with an ending; "*" stands for an expert's number. */
static bool matches(const struct ig_hf_config *c, const struct ig_hf_name *n, const char *s,
		    struct ig_hf_place *out, const char **ending)
{
	const char *star = strchr(n->hf, '*');
	uint32_t expert;

	out->expert = -1;
	if (star) {
		size_t head = (size_t)(star - n->hf);
		if (strncmp(s, n->hf, head))
			return false;
		s += head;
		if (!take_number(&s, c->n_experts, &expert) || !take(&s, star + 1))
			return false;
		out->expert = (int32_t)expert;
	} else if (!take(&s, n->hf)) {
		return false;
	}
	if (!has_part(c, n, s) || !take_ending(s, out, ending))
		return false;
	/* Only parameters of their own have no ending. */
	if (!*s && ((n->flags & IG_HF_EXPERTS) == 0 || star))
		return false;
	out->flags = n->flags;
	return true;
}

/* Nobody needs these: constants that older files kept, and a head that is the embedding. */
static bool is_left_out(const struct ig_hf_config *c, const char *s)
{
	size_t len = strlen(s);
	static const char *const constants[] = { ".rotary_emb.inv_freq", ".attn.bias",
						 ".attn.masked_bias" };

	for (size_t i = 0; i < sizeof constants / sizeof *constants; i++) {
		size_t n = strlen(constants[i]);
		if (len > n && !strcmp(s + len - n, constants[i]))
			return true;
	}
	if (!strcmp(s, "rotary_emb.inv_freq"))
		return true;
	for (size_t i = 0; i < sizeof other_parts / sizeof *other_parts; i++)
		if (!strncmp(s, other_parts[i], strlen(other_parts[i])))
			return true;
	return c->tied && !strncmp(s, "lm_head.", 8);
}

int ig_hf_name(const struct ig_hf_config *c, const char *hf, const char *label,
	       struct ig_hf_place *out, struct ig_error *err)
{
	const char *s = hf, *ending;
	uint32_t layer;
	bool more;

	memset(out, 0, sizeof *out);
	do {
		more = false;
		if (is_left_out(c, s))
			return 0;
		for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
			more |= take(&s, prefixes[i]);
	} while (more);
	if (take(&s, "layers.") || take(&s, "h.")) {
		if (take_number(&s, c->n_layers, &layer) && take(&s, "."))
			for (const struct ig_hf_name *n = c->names; n->hf; n++)
				if (matches(c, n, s, out, &ending)) {
					snprintf(out->name, sizeof out->name, "blk.%u.%s%s", layer,
						 n->gguf, ending);
					return 0;
				}
	} else {
		for (const struct ig_hf_name *n = ends; n->hf; n++)
			if (matches(c, n, s, out, &ending)) {
				snprintf(out->name, sizeof out->name, "%s%s", n->gguf, ending);
				return 0;
			}
	}
	return ig_fail(err, -ENOTSUP,
		       "%s: tensor \"%s\" is no part of this architecture that Ingot "
		       "knows (%u layers, %u experts)",
		       label, ig_show(hf, strlen(hf)).text, c->n_layers, c->n_experts);
}
