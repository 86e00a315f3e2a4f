/* gguf.c: a tokenizer from a GGUF file's tokenizer.ggml.* keys: byte-level BPE
 * ("gpt2"), BPE of characters ("gemma4"), SentencePiece's BPE ("llama") and unigram ("t5"),
 * WordPiece ("bert"). */
#include "model/tokenizer/tokenizer_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CHARSMAP (16u << 20)

struct reading {
	struct ig_builder *b;
	const struct ig_checkpoint *g;
	struct ig_error *err;
	int32_t *types; /* [n_vocab] of the file; NULL: all normal */
	size_t longest;
	uint64_t n_bytes;	/* of all tokens' texts in the file */
	struct ig_error inside; /* of a callback */
};

/* ---- tokens and merges -------------------------------------------------------------- */

static int count_token(void *ctx, uint64_t i, const char *s, size_t len)
{
	struct reading *r = ctx;

	r->n_bytes += len; /* at most the file's size */
	if (len > r->longest)
		r->longest = len;
	return 0;
}

static int take_token(void *ctx, uint64_t i, const char *s, size_t len)
{
	struct reading *r = ctx;
	int32_t type = r->types ? r->types[i] : IG_TYPE_NORMAL;

	if (!r->types && ig_byte_of_name(s, len) >= 0 && r->b->t->model != IG_MODEL_BYTES)
		type = IG_TYPE_BYTE;
	return ig_builder_token(r->b, i, type, s, len);
}

static int read_types(struct reading *r, uint64_t n)
{
	static const char key[] = "tokenizer.ggml.token_type";
	uint64_t n_types;
	int rc = ig_checkpoint_array_len(r->g, key, &n_types, r->err);

	if (rc)
		return rc == -ENOENT ? 0 : rc;
	if (n_types != n)
		return ig_fail(r->err, -EINVAL,
			       "%s has %" PRIu64 " elements for %" PRIu64 " tokens", key, n_types,
			       n);
	r->types = malloc((n + !n) * sizeof *r->types);
	if (!r->types)
		return -ENOMEM;
	rc = ig_checkpoint_array_i32(r->g, key, r->types, n, r->err);
	for (uint64_t i = 0; i < n && !rc; i++)
		if (r->types[i] < 0 || r->types[i] > IG_TYPE_MAX)
			rc = ig_fail(r->err, -EINVAL, "%s: token %" PRIu64 " has unknown type %d",
				     key, i, (int)r->types[i]);
	return rc;
}

/* The error of a callback in this file, or of the file's reader. */
static int of_callback(struct reading *r, int rc)
{
	if (rc == -EINVAL && r->inside.code)
		*r->err = r->inside;
	r->b->err = r->err;
	return rc;
}

static int read_tokens(struct reading *r, enum ig_token_model model)
{
	static const char key[] = "tokenizer.ggml.tokens";
	uint64_t n;
	int rc;

	if ((rc = ig_checkpoint_array_len(r->g, key, &n, r->err)) ||
	    (rc = ig_checkpoint_array_strs(r->g, key, count_token, r, r->err)))
		return rc;
	r->b->tokens = key;
	if ((rc = ig_builder_begin(r->b, model, n, r->n_bytes, r->longest)) ||
	    (rc = read_types(r, n)))
		return rc;
	r->b->err = &r->inside;
	if ((rc = of_callback(r, ig_checkpoint_array_strs(r->g, key, take_token, r, r->err))))
		return rc;
	ig_builder_tokens_end(r->b);
	return ig_tokenizer_collect_specials(r->b->t);
}

static int take_merge(void *ctx, uint64_t i, const char *s, size_t len)
{
	struct reading *r = ctx;
	const char *space = memchr(s, ' ', len);

	if (!space || space == s || space == s + len - 1) {
		char text[64];
		size_t n = len < sizeof text ? len : sizeof text;
		for (size_t k = 0; k < n; k++)
			text[k] = (unsigned char)s[k] < 0x20 || s[k] == 0x7f ? '?' : s[k];
		return ig_fail(r->b->err, -EINVAL,
			       "%s: merge %" PRIu64 " '%.*s' is not two tokens "
			       "with a space between",
			       r->b->merges, i, (int)n, text);
	}
	return ig_builder_merge(r->b, i, s, (size_t)(space - s), space + 1,
				(size_t)(s + len - space - 1));
}

static int read_merges(struct reading *r)
{
	static const char key[] = "tokenizer.ggml.merges";
	uint64_t n;
	int rc = ig_checkpoint_array_len(r->g, key, &n, r->err);

	r->b->merges = key;
	if (rc || (rc = ig_builder_begin_merges(r->b, n)))
		return rc;
	r->b->err = &r->inside;
	return of_callback(r, ig_checkpoint_array_strs(r->g, key, take_merge, r, r->err));
}

/* ---- options -------------------------------------------------------------------------- */

/* An id from the file; *id is -1 if there is none. */
static int read_id(struct reading *r, const char *key, int32_t *id)
{
	uint32_t v;
	int rc = ig_checkpoint_u32(r->g, key, &v, r->err);

	*id = -1;
	if (rc == -ENOENT)
		return 0;
	if (rc)
		return rc;
	if (v >= r->b->t->n_vocab)
		return ig_fail(r->err, -EINVAL,
			       "%s is %" PRIu32 ", the vocabulary has %" PRIu32 " tokens", key, v,
			       r->b->t->n_vocab);
	*id = (int32_t)v;
	return 0;
}

static int read_ends(struct reading *r)
{
	struct ig_tokenizer *t = r->b->t;
	int32_t eos, eot;
	int rc;

	if ((rc = read_id(r, "tokenizer.ggml.bos_token_id", &t->bos)) ||
	    (rc = read_id(r, "tokenizer.ggml.eos_token_id", &eos)) ||
	    (rc = read_id(r, "tokenizer.ggml.eot_token_id", &eot)))
		return rc;
	if (t->spm && t->bos < 0)
		t->bos = ig_tokenizer_find_special(t, "<s>");
	if (t->spm && eos < 0)
		eos = ig_tokenizer_find_special(t, "</s>");
	ig_builder_end(r->b, eos);
	ig_builder_end(r->b, eot);
	return 0;
}

/* *flag does not change if the file has none. */
static int read_flag(struct reading *r, const char *key, bool *flag)
{
	int rc = ig_checkpoint_bool(r->g, key, flag, r->err);

	return rc == -ENOENT ? 0 : rc;
}

/* Finite numbers, one for each token; the caller's. */
static int read_scores(struct reading *r, double **out)
{
	static const char key[] = "tokenizer.ggml.scores";
	float *narrow;
	double *scores;
	uint64_t n;
	int rc = ig_checkpoint_array_len(r->g, key, &n, r->err);

	*out = NULL;
	if (rc)
		return rc;
	if (n != r->b->t->n_vocab)
		return ig_fail(r->err, -EINVAL,
			       "%s has %" PRIu64 " elements for %" PRIu32 " tokens", key, n,
			       r->b->t->n_vocab);
	narrow = malloc(n * sizeof *narrow);
	scores = malloc(n * sizeof *scores);
	rc = narrow && scores ? ig_checkpoint_array_f32(r->g, key, narrow, n, r->err) : -ENOMEM;
	if (rc) {
		free(scores);
	} else {
		for (uint64_t i = 0; i < n; i++)
			scores[i] = (double)narrow[i];
		*out = scores;
	}
	free(narrow);
	return rc;
}

static int read_charsmap(struct reading *r)
{
	static const char key[] = "tokenizer.ggml.precompiled_charsmap";
	unsigned char *bytes;
	int32_t *wide;
	uint64_t n;
	int rc = ig_checkpoint_array_len(r->g, key, &n, r->err);

	if (rc || n == 0)
		return rc == -ENOENT ? 0 : rc;
	if (n > MAX_CHARSMAP)
		return ig_fail(r->err, -EINVAL, "%s has %" PRIu64 " bytes, at most %u are possible",
			       key, n, MAX_CHARSMAP);
	wide = malloc(n * sizeof *wide);
	bytes = malloc(n);
	rc = wide && bytes ? ig_checkpoint_array_i32(r->g, key, wide, n, r->err) : -ENOMEM;
	for (uint64_t i = 0; i < n && !rc; i++)
		bytes[i] = (unsigned char)wide[i]; /* signed bytes in some files */
	if (!rc)
		rc = ig_normalizer_create(&r->b->t->normalizer);
	if (!rc)
		rc = ig_normalizer_add_charsmap(r->b->t->normalizer, bytes, n, r->err);
	free(bytes);
	free(wide);
	return rc;
}

static int read_pieces(struct reading *r)
{
	struct ig_tokenizer *t = r->b->t;
	struct ig_spm_options options = {
		.unigram = t->model == IG_MODEL_UNIGRAM,
		.add_space = t->model == IG_MODEL_SCORES,
	};
	double *scores;
	int rc;

	if ((rc = read_flag(r, "tokenizer.ggml.add_space_prefix", &options.add_space)) ||
	    (rc = read_flag(r, "tokenizer.ggml.remove_extra_whitespaces", &options.trim)) ||
	    (rc = read_charsmap(r)) ||
	    (rc = read_id(r, "tokenizer.ggml.unknown_token_id", &options.unknown)))
		return rc;
	if (options.unknown < 0)
		options.unknown = r->b->unknown;
	t->adds_space = options.add_space;
	t->trims = options.trim;
	rc = read_scores(r, &scores);
	return rc ? rc : ig_spm_create(t, &options, scores, &t->spm);
}

/* BERT's: files do not say whether it is cased, and the ones that are used are not. */
static int read_words(struct reading *r)
{
	struct ig_tokenizer *t = r->b->t;

	t->wordpiece = (struct ig_wordpiece){ .clean = true,
					      .chinese = true,
					      .strip_accents = true,
					      .lowercase = true,
					      .max_chars = 100 };
	t->add_bos = true;
	return read_id(r, "tokenizer.ggml.unknown_token_id", &t->wordpiece.unknown);
}

/* What comes after a text that is embedded, and between a query and a text. */
static int read_suffix(struct reading *r)
{
	struct ig_tokenizer *t = r->b->t;
	bool words = t->model == IG_MODEL_WORDPIECE, add_sep = false;
	bool add = words || t->model == IG_MODEL_UNIGRAM;
	int32_t eos, sep, cls;
	int rc;

	if ((rc = read_id(r, "tokenizer.ggml.eos_token_id", &eos)) ||
	    (rc = read_id(r, "tokenizer.ggml.seperator_token_id", &sep)) ||
	    (rc = read_id(r, "tokenizer.ggml.cls_token_id", &cls)) ||
	    (rc = read_flag(r, "tokenizer.ggml.add_eos_token", &add)) ||
	    (rc = read_flag(r, "tokenizer.ggml.add_sep_token", &add_sep)))
		return rc;
	if (words && t->bos < 0)
		t->bos = cls >= 0 ? cls : ig_tokenizer_find_special(t, "[CLS]");
	if (words && sep < 0)
		sep = ig_tokenizer_find_special(t, "[SEP]");
	if (eos < 0)
		eos = t->spm ? ig_tokenizer_find_special(t, "</s>") : -1;
	if (words || add)
		t->suffix = words && sep >= 0 ? sep : eos;
	/* of XLM-RoBERTa's kind: the end of the query, then the beginning of the text */
	if (t->suffix >= 0)
		t->separators[t->n_separators++] = t->suffix;
	if (t->suffix >= 0 && !words && (add_sep || t->model == IG_MODEL_UNIGRAM))
		t->separators[t->n_separators++] = sep >= 0 ? sep : t->suffix;
	return 0;
}

/* ---- the whole -------------------------------------------------------------------------- */

static int read_model(struct reading *r, enum ig_token_model *model)
{
	const char *s;
	size_t len;
	int rc = ig_checkpoint_str(r->g, "tokenizer.ggml.model", &s, &len, r->err);

	if (rc)
		return rc;
	if (len == 4 && !memcmp(s, "gpt2", 4))
		*model = IG_MODEL_BYTES;
	else if (len == 6 && !memcmp(s, "gemma4", 6))
		*model = IG_MODEL_PAIRS;
	else if (len == 5 && !memcmp(s, "llama", 5))
		*model = IG_MODEL_SCORES;
	else if (len == 2 && !memcmp(s, "t5", 2))
		*model = IG_MODEL_UNIGRAM;
	else if (len == 4 && !memcmp(s, "bert", 4))
		*model = IG_MODEL_WORDPIECE;
	else
		return ig_fail(
			r->err, -ENOTSUP,
			"tokenizer.ggml.model is '%.*s'; Ingot supports 'gpt2' (byte-level BPE), "
			"'gemma4' (BPE of characters), 'llama' (SentencePiece BPE), 't5' "
			"(SentencePiece unigram) and 'bert' (WordPiece)",
			len < 64 ? (int)len : 64, s);
	return 0;
}

/* Merges between characters: a text is cut only at line breaks. */
static int read_pairs(struct reading *r, bool jit)
{
	struct ig_tokenizer *t = r->b->t;
	int rc = ig_splitter_create(&t->splitter);

	if (!rc)
		rc = ig_splitter_add(t->splitter, "\\n+", IG_SPLIT_ISOLATED, false, jit, r->err);
	if (rc || (rc = read_id(r, "tokenizer.ggml.unknown_token_id", &t->pairs.unknown)))
		return rc;
	if (t->pairs.unknown < 0)
		t->pairs.unknown = r->b->unknown;
	t->pairs.fuse_unknown = true;
	return read_merges(r);
}

static int read_splitter(struct reading *r, bool jit, struct ig_splitter **out,
			 struct ig_pre_traits *traits)
{
	const char *s;
	size_t len;
	int rc = ig_checkpoint_str(r->g, "tokenizer.ggml.pre", &s, &len, r->err);

	if (rc == -ENOENT) {
		s = "default";
		len = strlen(s);
	} else if (rc) {
		return rc;
	}
	return ig_splitter_open(s, len, jit, out, traits, r->err);
}

int ig_tokenizer_read_gguf(struct ig_builder *b, const struct ig_checkpoint *g, bool jit)
{
	struct reading r = { .b = b, .g = g, .err = b->err };
	struct ig_splitter *splitter = NULL;
	struct ig_pre_traits traits = { 0 };
	enum ig_token_model model = IG_MODEL_BYTES;
	struct ig_tokenizer *t;
	int rc = read_model(&r, &model);

	if (!rc && model == IG_MODEL_BYTES)
		rc = read_splitter(&r, jit, &splitter, &traits);
	if (!rc)
		rc = read_tokens(&r, model);
	if (rc) {
		ig_splitter_close(splitter);
		goto out;
	}
	t = b->t;
	t->splitter = splitter;
	t->ignore_merges = traits.ignore_merges;
	t->cuts_user = model == IG_MODEL_BYTES || model == IG_MODEL_PAIRS;
	t->add_bos = model == IG_MODEL_SCORES || model == IG_MODEL_PAIRS || traits.add_bos;
	if (traits.nfc) {
		rc = ig_normalizer_create(&t->normalizer);
		if (!rc)
			rc = ig_normalizer_add_form(t->normalizer, IG_NFC, b->err);
	}
	if (rc || (rc = read_flag(&r, "tokenizer.ggml.add_bos_token", &t->add_bos)) ||
	    (rc = model == IG_MODEL_BYTES     ? read_merges(&r) :
		  model == IG_MODEL_PAIRS     ? read_pairs(&r, jit) :
		  model == IG_MODEL_WORDPIECE ? read_words(&r) :
						read_pieces(&r)))
		goto out;
	rc = read_ends(&r);
	if (!rc)
		rc = read_suffix(&r);
out:
	free(r.types);
	return rc;
}
