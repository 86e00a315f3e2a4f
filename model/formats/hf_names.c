/*
 * hf_names.c: GGUF's names for tensors of Hugging Face or MLX, by the architecture's table
 * (include/ingot/arch_files.h).  In "model.layers.3.self_attn.q_proj.weight" the part before
 * "layers" depends on the class that wrote the file, so it is stripped.  Tensors that no text model
 * needs are skipped by rule; any other unknown name is an error, since a missing part makes another
 * model.
 */
#include "model/formats/folder.h"

#include <errno.h>
#include <string.h>

/* Paths to a text model within another model. */
static const char *const prefixes[] = { "model.", "language_model.", "text_model.", "transformer.",
					"bert.",  "roberta.",	     "backbone." };

/* Other parts of multimodal models. */
static const struct {
	const char *name;
	int32_t part; /* enum ig_left_out */
} other_parts[] = {
	{ "vision_tower.", IG_LEFT_OUT_VISION },
	{ "vision_model.", IG_LEFT_OUT_VISION },
	{ "visual.", IG_LEFT_OUT_VISION },
	{ "vision_encoder.", IG_LEFT_OUT_VISION },
	{ "multi_modal_projector.", IG_LEFT_OUT_VISION },
	{ "vision_language_adapter.", IG_LEFT_OUT_VISION },
	{ "patch_merger.", IG_LEFT_OUT_VISION },
	{ "embed_vision.", IG_LEFT_OUT_VISION },
	{ "audio_tower.", IG_LEFT_OUT_AUDIO },
	{ "embed_audio.", IG_LEFT_OUT_AUDIO },
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

/* Endings after the module: GGUF's ending, and which of MLX's parts it is. */
static const struct {
	const char *hf, *gguf;
	enum ig_hf_kind kind;
} endings[] = {
	{ ".weight", ".weight", IG_HF_MAIN },	{ ".bias", ".bias", IG_HF_MAIN },
	{ ".scales", ".weight", IG_HF_SCALES }, { ".biases", ".weight", IG_HF_BIASES },
	{ "_blocks", ".weight", IG_HF_MAIN },	{ "_scales", ".weight", IG_HF_SCALES }, /* MXFP4 */
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

/* Layers whose tensors are read. */
static uint32_t n_read(const struct ig_hf_config *c) { return c->n_layers + c->head; }

/* Whether s is this name of the table with an ending; *layer: the number in it. */
static bool matches(const struct ig_hf_config *c, const struct ig_tensor_name *n, const char *s,
		    struct ig_hf_place *out, uint32_t *layer, const char **ending)
{
	const bool next = n->flags & IG_TENSOR_NEXT;
	uint32_t expert;

	out->expert = -1;
	*layer = next ? c->n_layers : 0;
	for (const char *p = n->name; *p; p++) {
		if (*p == '%' && p[1] == 'u') {
			p++;
			if (!take_number(&s, n_read(c), layer))
				return false;
		} else if (*p == '*') {
			if (!take_number(&s, c->n_experts, &expert))
				return false;
			out->expert = (int32_t)expert;
		} else if (*s++ != *p) {
			return false;
		}
	}
	if (next && (!c->head || *layer < c->n_layers))
		return false;
	/* Only merged experts have no ending. */
	if ((!strcmp(s, ".bias") && !(n->flags & IG_TENSOR_BIAS)) ||
	    (!*s && !(n->flags & IG_TENSOR_NAMED) &&
	     (!(n->flags & IG_TENSOR_EXPERTS) || out->expert >= 0)) ||
	    (n->flags & (IG_TENSOR_EXPERTS | IG_TENSOR_IF_EXPERTS) && !c->n_experts))
		return false;
	out->flags = n->flags;
	if (n->flags & IG_TENSOR_NAMED) {
		*ending = "";
		return !*s;
	}
	return take_ending(s, out, ending);
}

/* GGUF's name from the table, "blk.%u.attn_q", or the first or second of two names. */
static bool write_name(char out[IG_HF_NAME_BYTES], const char *gguf, bool second, uint32_t layer,
		       const char *ending)
{
	const char *bar = strchr(gguf, '|'), *from = second && bar ? bar + 1 : gguf;
	size_t len = bar && !second ? (size_t)(bar - gguf) : strlen(from), n;
	const char *number = memchr(from, '%', len);
	int head = (int)(number ? (size_t)(number - from) : len);
	int tail = (int)len - head - 2;

	n = number ? (size_t)snprintf(out, IG_HF_NAME_BYTES, "%.*s%u%.*s%s", head, from, layer,
				      tail, number + 2, ending) :
		     (size_t)snprintf(out, IG_HF_NAME_BYTES, "%.*s%s", head, from, ending);
	return n < IG_HF_NAME_BYTES;
}

/* Whether s is of a layer that predicts further tokens, and *of_head if it is of the first one. */
static bool is_next_part(const struct ig_hf_config *c, const char *s, bool *of_head)
{
	uint32_t layer = c->n_layers;

	if (take(&s, "mtp.")) {
		if (take(&s, "layers."))
			*of_head = take_number(&s, IG_HF_MAX_LAYERS, &layer) && !layer && *s == '.';
		else
			*of_head = true;
		return true;
	}
	if (!take(&s, "layers.") || !take_number(&s, c->n_layers + c->n_next, &layer) ||
	    layer < c->n_layers || *s != '.')
		return false;
	*of_head = layer == c->n_layers;
	return true;
}

bool ig_hf_is_next(const struct ig_hf_config *c, const char *hf)
{
	bool more, of_head;

	do {
		more = false;
		if (is_next_part(c, hf, &of_head))
			return true;
		for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
			more |= take(&hf, prefixes[i]);
	} while (more);
	return false;
}

/* Tensors that are not needed: constants in older files, a head equal to the embedding, and other
 * parts.  *part: enum ig_left_out, or -1. */
static bool is_left_out(const struct ig_hf_config *c, const char *s, int32_t *part)
{
	size_t len = strlen(s);
	bool of_head;

	*part = -1;
	static const char *const constants[] = { ".rotary_emb.inv_freq", ".attn.bias",
						 ".attn.masked_bias" };

	for (size_t i = 0; i < sizeof constants / sizeof *constants; i++) {
		size_t n = strlen(constants[i]);
		if (len > n && !strcmp(s + len - n, constants[i]))
			return true;
	}
	if (!strcmp(s, "rotary_emb.inv_freq") || !strcmp(s, "embeddings.position_ids"))
		return true;
	for (size_t i = 0; i < sizeof other_parts / sizeof *other_parts; i++)
		if (!strncmp(s, other_parts[i].name, strlen(other_parts[i].name))) {
			*part = other_parts[i].part;
			return true;
		}
	if (is_next_part(c, s, &of_head) && !(of_head && c->head)) {
		*part = IG_LEFT_OUT_NEXT;
		return true;
	}
	return c->tied && !strncmp(s, "lm_head.", 8);
}

/* "mtp.layers.0.REST" as "layers.N.REST", the layer behind the last one; else s. */
static const char *as_layer(const struct ig_hf_config *c, const char *s,
			    char buf[IG_ST_MAX_NAME + 16])
{
	const char *rest = s;

	if (!take(&rest, "mtp.layers.0."))
		return s;
	snprintf(buf, IG_ST_MAX_NAME + 16, "layers.%u.%s", c->n_layers, rest);
	return buf;
}

int ig_hf_name(const struct ig_hf_config *c, const char *hf, bool second, const char *label,
	       struct ig_hf_place *out, struct ig_error *err)
{
	char as_other[IG_ST_MAX_NAME + 16];
	const char *s = hf, *ending;
	struct ig_tensor_name n;
	uint32_t layer = 0;
	bool more;

	memset(out, 0, sizeof *out);
	do {
		more = false;
		if (is_left_out(c, s, &out->part))
			return 0;
		for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
			more |= take(&s, prefixes[i]);
	} while (more);
	s = as_layer(c, s, as_other);
	for (uint32_t i = 0; i < c->files.n_names; i++) {
		ig_hf_entry(&n, sizeof n, c->files.names, i, c->files.name_bytes);
		if (matches(c, &n, s, out, &layer, &ending) &&
		    write_name(out->name, n.gguf, second, layer, ending))
			return 0;
	}
	return ig_fail(err, -ENOTSUP,
		       "%s: tensor \"%s\" is not a part of this architecture that Ingot "
		       "knows (%u layers, %u experts)",
		       label, ig_show(hf, strlen(hf)).text, c->n_layers, c->n_experts);
}
