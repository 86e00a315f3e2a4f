/*
 * json.c: a tokenizer from Hugging Face's tokenizer.json: BPE over bytes, BPE over characters,
 * Unigram, and WordPiece.  The vocabulary (json_tokens.c) and the merges are read in place (json_scan.c); the
 * rest is small and read with jansson (steps.c).  Truncation and padding are ignored.  Where Hugging Face's library
 * and SentencePiece differ, the tokenizer of the model's training is followed: special tokens are
 * found in the original text, also those that the file calls "normalized"; a Precompiled normalizer
 * replaces as SentencePiece does.
 */
#include "model/tokenizer/json_private.h"
#include "model/tokenizer/steps_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- the file ------------------------------------------------------------------------- */

static bool is(const char *key, size_t len, const char *name)
{
	return strlen(name) == len && !memcmp(key, name, len);
}

static int duplicate(struct ig_json_scan *s) { return ig_json_scan_bad(s, "a duplicate key"); }

static int take_long(struct ig_json_scan *s, bool *has, struct ig_json_scan *out)
{
	if (*has)
		return duplicate(s);
	*has = true;
	return ig_json_scan_skip(s, out);
}

static int set_option(struct ig_json_scan *s, struct reading *r, const char *key, size_t len)
{
	char name[64];
	json_t *v;
	int rc;

	if (len >= sizeof name || memchr(key, 0, len))
		return ig_fail(r->err, -ENOTSUP, "%s: the model's setting '%.60s' is not supported",
			       r->name, key);
	memcpy(name, key, len);
	name[len] = 0;
	if (json_object_get(r->options, name))
		return duplicate(s);
	rc = ig_json_scan_json(s, &v);
	if (!rc && json_object_set_new(r->options, name, v))
		rc = -ENOMEM;
	return rc;
}

static int take_model_key(void *ctx, struct ig_json_scan *s, const char *key, size_t len)
{
	struct reading *r = ctx;

	if (is(key, len, "vocab"))
		return take_long(s, &r->has_vocab, &r->vocab);
	if (is(key, len, "merges"))
		return take_long(s, &r->has_merges, &r->merges);
	return set_option(s, r, key, len);
}

static int take_key(void *ctx, struct ig_json_scan *s, const char *key, size_t len)
{
	struct reading *r = ctx;

	const struct {
		const char *name;
		json_t **value;
	} parts[] = {
		{ "added_tokens", &r->added_json },
		{ "normalizer", &r->normalizer },
		{ "pre_tokenizer", &r->pre_tokenizer },
		{ "post_processor", &r->post_processor },
		{ "decoder", &r->decoder },
	};

	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
		if (is(key, len, parts[i].name))
			return *parts[i].value ? duplicate(s) :
						 ig_json_scan_json(s, parts[i].value);
	if (!is(key, len, "model"))
		return ig_json_scan_skip(s, NULL); /* version, truncation, padding */
	if (r->has_model)
		return duplicate(s);
	r->has_model = true;
	return ig_json_scan_object(s, take_model_key, r);
}

/* ---- the model's settings ------------------------------------------------------------ */

/* Settings that change ids and are not supported must have the value that changes nothing. */
static int check_options(struct reading *r, bool unigram)
{
	static const struct {
		const char *name;
		char kind; /* n: null, e: null or empty, b: a boolean, s: null or a string,
			    * i: null or a whole number, t: anything */
		bool unigram, bpe;
	} known[] = {
		{ "type", 't', true, true },
		{ "dropout", 'n', false, true },
		{ "unk_token", 's', false, true },
		{ "continuing_subword_prefix", 'e', false, true },
		{ "end_of_word_suffix", 'e', false, true },
		{ "fuse_unk", 'b', false, true },
		{ "byte_fallback", 'b', true, true },
		{ "ignore_merges", 'b', false, true },
		{ "unk_id", 'i', true, false },
	};
	static const char *const of_words[] = { "type", "unk_token", "continuing_subword_prefix",
						"max_input_chars_per_word" };
	const char *name;
	json_t *v;

	json_object_foreach(r->options, name, v)
	{
		bool good = false;
		for (size_t i = 0; r->words && i < sizeof of_words / sizeof of_words[0]; i++)
			good = good || !strcmp(name, of_words[i]);
		for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
			char k = known[i].kind;
			if (strcmp(known[i].name, name) || r->words ||
			    !(unigram ? known[i].unigram : known[i].bpe))
				continue;
			good = k == 't' || (json_is_null(v) && k != 'b') ||
			       (k == 'n' && json_is_real(v) && json_real_value(v) == 0) ||
			       (k == 'e' && json_is_string(v) && !json_string_length(v)) ||
			       (k == 'b' && json_is_boolean(v)) ||
			       (k == 's' && json_is_string(v)) || (k == 'i' && json_is_integer(v));
		}
		if (!good)
			return ig_fail(r->err, -ENOTSUP,
				       "%s: the model's setting '%.60s' or its value is "
				       "not supported",
				       r->name, name);
	}
	return 0;
}

static int read_type(struct reading *r, bool *unigram)
{
	const json_t *v = json_object_get(r->options, "type");
	const char *type = json_string_value(v);

	*unigram = false;
	if (!r->has_model || !r->has_vocab)
		return fail(r, -EINVAL, r->has_model ? "the model has no vocab" : "no model");
	if (type && !strcmp(type, "Unigram"))
		*unigram = true;
	else if (type && !strcmp(type, "WordPiece"))
		r->words = true;
	else if (type ? strcmp(type, "BPE") : !r->has_merges || v)
		/* Old files of BPE have no type. */
		return ig_fail(r->err, -ENOTSUP,
			       "%s: the model is of type '%.60s'; Ingot supports 'BPE', "
			       "'Unigram' and 'WordPiece'",
			       r->name, type ? type : "");
	if ((*unigram || r->words) == r->has_merges)
		return fail(r, -EINVAL,
			    *unigram	  ? "a Unigram model with merges" :
			    r->has_merges ? "a WordPiece model with merges" :
					    "the model has no merges");
	return 0;
}

/* ---- merges ------------------------------------------------------------------------------- */

static int count_merge(void *ctx, struct ig_json_scan *s, uint64_t i)
{
	struct reading *r = ctx;

	r->n_merges = i + 1;
	return ig_json_scan_skip(s, NULL);
}

static int take_side(void *ctx, struct ig_json_scan *s, uint64_t i)
{
	struct pair *p = ctx;

	p->n = i + 1;
	return i < 2 ? ig_json_scan_string(s, &p->text[i], &p->len[i]) :
		       ig_json_scan_bad(s, "more than two tokens");
}

/* ["a", "b"], or "a b" in older files. */
static int take_merge(void *ctx, struct ig_json_scan *s, uint64_t i)
{
	struct pair p = { .r = ctx };
	const char *space;
	int rc;

	if (ig_json_scan_peek(s) == '[') {
		rc = ig_json_scan_array(s, take_side, &p);
		if (!rc && p.n != 2)
			rc = ig_json_scan_bad(s, "not a pair of tokens");
	} else {
		rc = ig_json_scan_string(s, &p.text[0], &p.len[0]);
		space = rc ? NULL : memchr(p.text[0], ' ', p.len[0]);
		if (!rc && (!space || space == p.text[0] || space == p.text[0] + p.len[0] - 1 ||
			    memchr(space + 1, ' ', (size_t)(p.text[0] + p.len[0] - space - 1))))
			rc = ig_json_scan_bad(s, "not two tokens with a space between");
		if (!rc) {
			p.text[1] = space + 1;
			p.len[1] = (size_t)(p.text[0] + p.len[0] - p.text[1]);
			p.len[0] = (size_t)(space - p.text[0]);
		}
	}
	return rc ? rc : ig_builder_merge(p.r->b, i, p.text[0], p.len[0], p.text[1], p.len[1]);
}

static int build_merges(struct reading *r)
{
	struct ig_json_scan count = r->merges;
	int rc = ig_json_scan_array(&count, count_merge, r);

	if (!rc)
		rc = ig_builder_begin_merges(r->b, r->n_merges);
	return rc ? rc : ig_json_scan_array(&r->merges, take_merge, r);
}

/* ---- the kinds of models ----------------------------------------------- */

/* All 256 byte tokens must exist: else some characters would become bytes and others unknown. */
static int check_fallback(struct reading *r)
{
	const struct ig_merges *m = &r->b->t->merges;

	for (unsigned i = 0; flag(r, "byte_fallback") && i < 256; i++)
		if (m->byte_ids[i] < 0)
			return ig_fail(r->err, -ENOTSUP,
				       "%s: byte_fallback without a token <0x%02X>", r->name, i);
	return 0;
}

static int finish_bytes(struct reading *r)
{
	struct ig_tokenizer *t = r->b->t;
	const char *name = json_string_value(json_object_get(r->options, "unk_token"));
	int32_t unknown = -1;
	bool lacks = false;

	t->ignore_merges = flag(r, "ignore_merges");
	if (flag(r, "byte_fallback"))
		return fail(r, -ENOTSUP, "byte_fallback with the pre_tokenizer 'ByteLevel'");
	for (unsigned i = 0; i < 256; i++)
		lacks = lacks || t->merges.byte_ids[i] < 0;
	if (!name || !lacks)
		return 0;
	if (flag(r, "fuse_unk"))
		return fail(r, -ENOTSUP, "fuse_unk, and bytes without tokens");
	for (size_t i = 0; i < r->n_ids && unknown < 0; i++)
		if (r->texts[i].s && r->texts[i].len == strlen(name) &&
		    !memcmp(r->texts[i].s, name, r->texts[i].len))
			unknown = (int32_t)i;
	for (unsigned i = 0; i < 256; i++)
		if (t->merges.byte_ids[i] < 0)
			t->merges.byte_ids[i] = unknown;
	return 0;
}

static int finish_pairs(struct reading *r)
{
	struct ig_tokenizer *t = r->b->t;

	if (flag(r, "ignore_merges"))
		return fail(r, -ENOTSUP, "ignore_merges without the pre_tokenizer 'ByteLevel'");
	t->pairs.unknown = r->b->unknown;
	t->pairs.fuse_unknown = flag(r, "fuse_unk");
	return check_fallback(r);
}

static int finish_unigram(struct reading *r)
{
	struct ig_tokenizer *t = r->b->t;
	struct ig_spm_options options = { .unigram = true, .wide = true, .unknown = -1 };
	double *scores;
	int rc = check_fallback(r);

	if (rc)
		return rc;
	if (r->unknown_id >= (int64_t)r->n_entries)
		return fail(r, -EINVAL, "unk_id is not the id of a token");
	options.unknown = (int32_t)r->unknown_id;
	scores = malloc(t->n_vocab * sizeof *scores);
	if (!scores)
		return -ENOMEM;
	/* An id without a score gets one that is not the lowest. */
	for (size_t i = 0; i < t->n_vocab; i++)
		scores[i] = r->n_entries ? r->entries[0].score : 0;
	for (size_t i = 0; i < r->n_entries; i++)
		scores[r->entries[i].id] = r->entries[i].score;
	return ig_spm_create(t, &options, scores, &t->spm);
}

static int finish_words(struct reading *r)
{
	struct ig_tokenizer *t = r->b->t;
	const char *name = json_string_value(json_object_get(r->options, "unk_token"));
	const json_t *max = json_object_get(r->options, "max_input_chars_per_word");

	t->wordpiece.unknown = -1;
	for (size_t i = 0; name && i < r->n_ids && t->wordpiece.unknown < 0; i++)
		if (r->texts[i].s && r->texts[i].len == strlen(name) &&
		    !memcmp(r->texts[i].s, name, r->texts[i].len))
			t->wordpiece.unknown = (int32_t)i;
	t->wordpiece.max_chars = 100;
	if (max && (!json_is_integer(max) || json_integer_value(max) < 1 ||
		    json_integer_value(max) > 1 << 20))
		return fail(r, -EINVAL, "max_input_chars_per_word is not a number of characters");
	if (max)
		t->wordpiece.max_chars = (uint32_t)json_integer_value(max);
	return 0;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static int read_steps(struct reading *r, struct ig_tokenizer *into, struct ig_steps *steps)
{
	struct ig_steps_json parts = { r->normalizer, r->pre_tokenizer, r->post_processor,
				       r->decoder };
	struct ig_error why = { 0 };
	int rc = ig_steps_read(&parts, into, r->jit, steps, &why);

	if (rc && why.code)
		ig_fail(r->err, rc, "%s: %s", r->name, why.text);
	return rc;
}

/* Move to the builder's tokenizer from one that was filled before it existed. */
static void move_steps(struct ig_tokenizer *to, struct ig_tokenizer *from)
{
	to->normalizer = from->normalizer;
	to->splitter = from->splitter;
	to->metaspace = from->metaspace;
	to->split_words = from->split_words;
	to->prefix = from->prefix;
	to->adds_space = from->adds_space;
	to->wordpiece = from->wordpiece;
	from->normalizer = NULL;
	from->splitter = NULL;
}

static int build(struct reading *r)
{
	struct ig_tokenizer before = { 0 };
	enum ig_token_model model;
	struct ig_steps steps;
	struct ig_tokenizer *t;
	bool unigram;
	int rc;

	if ((rc = read_type(r, &unigram)) || (rc = check_options(r, unigram)) ||
	    (rc = ig_json_tokens_read_added(r)))
		return rc;
	if (unigram && json_is_integer(json_object_get(r->options, "unk_id")))
		r->unknown_id = json_integer_value(json_object_get(r->options, "unk_id"));
	rc = read_steps(r, &before, &steps);
	model = unigram		 ? IG_MODEL_UNIGRAM :
		r->words	 ? IG_MODEL_WORDPIECE :
		steps.byte_level ? IG_MODEL_BYTES :
				   IG_MODEL_PAIRS;
	if (!rc && (r->words ? !steps.words || before.splitter || before.metaspace ||
				       before.normalizer || steps.byte_level :
			       steps.words || steps.normalizes_words))
		rc = fail(r, -ENOTSUP,
			  "a WordPiece model and the pre_tokenizer 'BertPreTokenizer' belong "
			  "together, without others");
	if (!rc && !r->words && model != IG_MODEL_BYTES && !steps.marks_spaces)
		rc = fail(r, -ENOTSUP,
			  "neither a pre_tokenizer 'ByteLevel' nor one that makes U+2581 of "
			  "spaces");
	if (!rc && unigram && steps.byte_level)
		rc = fail(r, -ENOTSUP, "a Unigram model with the pre_tokenizer 'ByteLevel'");
	if (!rc)
		rc = unigram ? ig_json_scan_array(&r->vocab, ig_json_tokens_take_piece, r) :
			       ig_json_scan_object(&r->vocab, ig_json_tokens_take, r);
	if (!rc)
		rc = ig_json_tokens_place(r, model != IG_MODEL_BYTES);
	if (!rc)
		rc = ig_json_tokens_build(r, model);
	if (rc) {
		ig_normalizer_destroy(before.normalizer);
		ig_splitter_close(before.splitter);
		return rc;
	}
	t = r->b->t;
	move_steps(t, &before);
	t->cuts_user = true;
	if ((rc = ig_json_tokens_set_specials(r)) || (r->has_merges && (rc = build_merges(r))))
		return rc;
	if (steps.bos >= (int64_t)r->n_ids || steps.suffix >= (int64_t)r->n_ids ||
	    steps.separators[0] >= (int64_t)r->n_ids || steps.separators[1] >= (int64_t)r->n_ids)
		return fail(r, -EINVAL, "the post_processor refers to a token that does not exist");
	t->bos = (int32_t)steps.bos;
	t->add_bos = steps.bos >= 0;
	t->suffix = (int32_t)steps.suffix;
	t->n_separators = steps.n_separators;
	for (unsigned i = 0; i < steps.n_separators; i++)
		t->separators[i] = (int32_t)steps.separators[i];
	return unigram		       ? finish_unigram(r) :
	       r->words		       ? finish_words(r) :
	       model == IG_MODEL_BYTES ? finish_bytes(r) :
					 finish_pairs(r);
}

int ig_tokenizer_read_json(struct ig_builder *b, const char *data, size_t len, bool jit)
{
	struct reading r = {
		.b = b, .name = "tokenizer.json", .err = b->err, .jit = jit, .unknown_id = -1
	};
	struct ig_json_scan s;
	int rc = -ENOMEM;

	b->tokens = "tokenizer.json: vocab";
	b->merges = "tokenizer.json: merges";
	ig_json_scan_init(&s, r.name, data, len, b->err);
	r.options = json_object();
	if (r.options)
		rc = ig_json_scan_object(&s, take_key, &r);
	if (!rc)
		rc = ig_json_scan_end(&s);
	if (!rc)
		rc = build(&r);
	free(r.texts);
	free(r.added);
	free(r.entries);
	ig_json_scan_finish(&r.vocab);
	ig_json_scan_finish(&r.merges);
	ig_json_scan_finish(&s);
	json_decref(r.added_json);
	json_decref(r.normalizer);
	json_decref(r.pre_tokenizer);
	json_decref(r.post_processor);
	json_decref(r.decoder);
	json_decref(r.options);
	return rc;
}
