/*
 * json.c: a tokenizer from Hugging Face's tokenizer.json: BPE over bytes, BPE over characters,
 * Unigram, and WordPiece.  The vocabulary and the merges are read in place (json_scan.c); the rest is small and
 * read with jansson (steps.c).  Truncation and padding are ignored.  Where Hugging Face's library
 * and SentencePiece differ, the tokenizer of the model's training is followed: special tokens are
 * found in the original text, also those that the file calls "normalized"; a Precompiled normalizer
 * replaces as SentencePiece does.
 */
#include "base/array.h"
#include "base/json.h"
#include "base/strbuf.h"
#include "base/json_scan.h"
#include "model/tokenizer/steps_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ADDED 65536

struct entry {
	const char *text;
	uint32_t len;
	int32_t id;
	double score;
};

struct text { /* of one id */
	const char *s;
	uint32_t len;
	uint8_t type; /* IG_TYPE_…; 0: no token with this id */
};

struct added {
	struct text text;
	int32_t id;
	uint8_t flags;
	bool special, normalized;
};

struct reading {
	struct ig_builder *b;
	const char *name; /* of the file */
	struct ig_error *err;
	bool jit;
	json_t *added_json, *normalizer, *pre_tokenizer, *post_processor, *decoder, *options;
	struct ig_json_scan vocab, merges; /* NULL begin: not there */
	bool has_model, has_vocab, has_merges;
	bool words; /* WordPiece */
	struct entry *entries;
	size_t n_entries, cap_entries;
	struct added *added;
	size_t n_added;
	struct text *texts; /* [n_ids] */
	size_t n_ids;
	int64_t unknown_id; /* Unigram's; -1: none */
	uint64_t n_merges;
};

static int fail(struct reading *r, int rc, const char *what)
{
	return ig_fail(r->err, rc, "%s: %s", r->name, what);
}

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

static bool flag(const struct reading *r, const char *name)
{
	return json_is_true(json_object_get(r->options, name));
}

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

/* ---- tokens ----------------------------------------------------------------------------- */

static int add_entry(struct reading *r, const char *text, size_t len, int64_t id, double score)
{
	if (id < 0 || id >= IG_MAX_VOCAB || len > UINT32_MAX)
		return ig_fail(r->err, -EINVAL, "%s: the token '%.*s' has the id %" PRId64, r->name,
			       len < 40 ? (int)len : 40, text, id);
	if (!ig_array_grow(r->entries, &r->cap_entries, r->n_entries))
		return -ENOMEM;
	r->entries[r->n_entries++] = (struct entry){ text, (uint32_t)len, (int32_t)id, score };
	return 0;
}

static int take_bpe_token(void *ctx, struct ig_json_scan *s, const char *key, size_t len)
{
	int64_t id;
	int rc = ig_json_scan_integer(s, &id);

	return rc ? rc : add_entry(ctx, key, len, id, 0);
}

struct pair {
	struct reading *r;
	const char *text[2];
	size_t len[2];
	double score;
	uint64_t n;
};

static int take_part_of_piece(void *ctx, struct ig_json_scan *s, uint64_t i)
{
	struct pair *p = ctx;

	p->n = i + 1;
	return i == 0 ? ig_json_scan_string(s, &p->text[0], &p->len[0]) :
	       i == 1 ? ig_json_scan_number(s, &p->score) :
			ig_json_scan_bad(s, "more than two values");
}

static int take_piece(void *ctx, struct ig_json_scan *s, uint64_t i)
{
	struct pair p = { .r = ctx };
	int rc = ig_json_scan_array(s, take_part_of_piece, &p);

	if (!rc && p.n != 2)
		rc = ig_json_scan_bad(s, "not a piece and its score");
	return rc ? rc : add_entry(ctx, p.text[0], p.len[0], (int64_t)i, p.score);
}

static int read_added(struct reading *r)
{
	static const struct {
		const char *name;
		uint8_t flag;
	} strips[] = { { "lstrip", IG_SPECIAL_LSTRIP }, { "rstrip", IG_SPECIAL_RSTRIP } };
	const json_t *one;
	size_t i;

	if (!r->added_json || json_is_null(r->added_json))
		return 0;
	if (!json_is_array(r->added_json) || json_array_size(r->added_json) > MAX_ADDED)
		return fail(r, -EINVAL, "added_tokens is not a list, or is too long");
	r->added = calloc(json_array_size(r->added_json) + 1, sizeof *r->added);
	if (!r->added)
		return -ENOMEM;
	json_array_foreach(r->added_json, i, one)
	{
		struct added *a = &r->added[r->n_added];
		const json_t *content = json_object_get(one, "content");
		const json_t *id = json_object_get(one, "id");
		json_int_t v = json_integer_value(id);

		if (!json_is_string(content) || !json_is_integer(id) || v < 0 ||
		    v >= IG_MAX_VOCAB || json_string_length(content) > UINT32_MAX)
			return ig_fail(r->err, -EINVAL,
				       "%s: added token %zu has no valid content or id", r->name,
				       i);
		if (json_is_true(json_object_get(one, "single_word")))
			return ig_fail(r->err, -ENOTSUP,
				       "%s: the added token '%.60s' is a single_word", r->name,
				       json_string_value(content));
		a->text.s = json_string_value(content);
		a->text.len = (uint32_t)json_string_length(content);
		a->id = (int32_t)v;
		a->special = json_is_true(json_object_get(one, "special")) ||
			     ig_is_turn_marker(a->text.s, a->text.len);
		a->normalized = json_is_true(json_object_get(one, "normalized"));
		for (size_t k = 0; k < 2; k++)
			if (json_is_true(json_object_get(one, strips[k].name)))
				a->flags |= strips[k].flag;
		r->n_added++;
	}
	return 0;
}

static int same_id_twice(struct reading *r, int32_t id)
{
	return ig_fail(r->err, -EINVAL, "%s: two tokens have the id %d", r->name, (int)id);
}

/* Texts by their ids, with their types. */
static int place_tokens(struct reading *r, bool pieces)
{
	bool fallback = flag(r, "byte_fallback");
	const char *unknown = json_string_value(json_object_get(r->options, "unk_token"));
	size_t n_unknown = unknown ? strlen(unknown) : 0, n = 0;

	for (size_t i = 0; i < r->n_entries; i++)
		n = (size_t)r->entries[i].id >= n ? (size_t)r->entries[i].id + 1 : n;
	for (size_t i = 0; i < r->n_added; i++)
		n = (size_t)r->added[i].id >= n ? (size_t)r->added[i].id + 1 : n;
	if (n == 0 || n - r->n_entries > IG_MAX_HOLES + r->n_added)
		return ig_fail(r->err, -EINVAL, "%s: %zu tokens with ids up to %zu", r->name,
			       r->n_entries, n);
	if (r->b->pad_to > n && r->b->pad_to - n <= IG_MAX_HOLES)
		n = (size_t)r->b->pad_to;
	r->texts = calloc(n, sizeof *r->texts);
	if (!r->texts)
		return -ENOMEM;
	r->n_ids = n;
	for (size_t i = 0; i < r->n_entries; i++) {
		const struct entry *e = &r->entries[i];
		struct text *x = &r->texts[e->id];
		if (x->type)
			return same_id_twice(r, e->id);
		*x = (struct text){ e->text, e->len, IG_TYPE_NORMAL };
		if (pieces && fallback && ig_byte_of_name(e->text, e->len) >= 0)
			x->type = IG_TYPE_BYTE;
		if (pieces &&
		    ((unknown && e->len == n_unknown && !memcmp(e->text, unknown, n_unknown)) ||
		     e->id == r->unknown_id))
			x->type = IG_TYPE_UNKNOWN;
	}
	for (size_t i = 0; i < r->n_added; i++) {
		struct added *a = &r->added[i];
		struct text *x = &r->texts[a->id];
		bool known = x->type && x->len == a->text.len && !memcmp(x->s, a->text.s, x->len);
		if (x->type && !known)
			return same_id_twice(r, a->id);
		if (known && x->type == IG_TYPE_UNKNOWN)
			continue;
		*x = a->text;
		x->type = a->special ? IG_TYPE_CONTROL : known ? IG_TYPE_USER_PIECE : IG_TYPE_ADDED;
	}
	return 0;
}

/* "##ing" continues a word; any other token begins one, which U+2581 marks. */
static int build_word(struct reading *r, size_t i)
{
	const struct text *x = &r->texts[i];
	const char *prefix =
		json_string_value(json_object_get(r->options, "continuing_subword_prefix"));
	size_t n = prefix ? strlen(prefix) : 0;
	char text[1024] = "\xe2\x96\x81";

	if (n && x->len >= n && !memcmp(x->s, prefix, n))
		return ig_builder_token(r->b, i, x->len > n ? IG_TYPE_NORMAL : IG_TYPE_UNUSED,
					x->s + n, x->len - n);
	if (x->len > sizeof text - 4)
		return ig_fail(r->err, -EINVAL, "%s: token %zu has %u bytes", r->name, i, x->len);
	memcpy(text + 3, x->s, x->len);
	return ig_builder_token(r->b, i, IG_TYPE_NORMAL, text, x->len + 3);
}

static int build_tokens(struct reading *r, enum ig_token_model model)
{
	uint64_t n_bytes = 0;
	size_t longest = 0;
	int rc;

	for (size_t i = 0; i < r->n_ids; i++) {
		n_bytes += r->texts[i].len + (r->words ? 3 : 0);
		longest = r->texts[i].len > longest ? r->texts[i].len : longest;
	}
	rc = ig_builder_begin(r->b, model, r->n_ids, n_bytes, longest);
	for (size_t i = 0; i < r->n_ids && !rc; i++) {
		const struct text *x = &r->texts[i];
		if (r->words && x->type == IG_TYPE_NORMAL)
			rc = build_word(r, i);
		else
			rc = ig_builder_token(r->b, i, x->type ? x->type : IG_TYPE_UNUSED,
					      x->s ? x->s : "", x->len);
	}
	if (rc)
		return rc;
	if (r->b->twice >= 0)
		return ig_fail(r->err, -EINVAL, "%s: the token '%.*s' is a duplicate", r->name,
			       r->texts[r->b->twice].len < 60 ? (int)r->texts[r->b->twice].len : 60,
			       r->texts[r->b->twice].s);
	ig_builder_tokens_end(r->b);
	return 0;
}

/* ---- special tokens ---------------------------------------------------------------------- */

/* The text that is searched for in a normalized text: the token's own text, normalized. */
static int pattern_of(struct reading *r, const struct added *a, struct ig_normal_work *w,
		      struct ig_strbuf *out)
{
	const struct ig_tokenizer *t = r->b->t;
	const char *s = a->text.s;
	size_t len = a->text.len;
	int rc = 0;

	if (a->normalized && !a->special && t->normalizer)
		rc = ig_normalizer_run(t->normalizer, t, s, len, w, &s, &len);
	if (!rc)
		ig_strbuf_add(out, s, len);
	return rc ? rc : ig_strbuf_ok(out) ? 0 : -ENOMEM;
}

static int set_specials(struct reading *r)
{
	struct ig_tokenizer *t = r->b->t;
	struct ig_normal_work w = { 0 };
	struct ig_strbuf patterns = { 0 };
	size_t *ends = calloc(r->n_added + 1, sizeof *ends);
	int rc = ends ? 0 : -ENOMEM;

	t->specials.list = calloc(r->n_added + 1, sizeof *t->specials.list);
	t->normal.list = calloc(r->n_added + 1, sizeof *t->normal.list);
	if (!t->specials.list || !t->normal.list)
		rc = -ENOMEM;
	for (size_t i = 0; i < r->n_added && !rc; i++) {
		rc = pattern_of(r, &r->added[i], &w, &patterns);
		ends[i] = patterns.len;
	}
	if (!rc && patterns.len) {
		t->patterns = ig_strbuf_steal(&patterns);
		rc = t->patterns ? 0 : -ENOMEM;
	}
	for (size_t i = 0; i < r->n_added && !rc; i++) {
		const struct added *a = &r->added[i];
		size_t from = i ? ends[i - 1] : 0;
		struct ig_special_set *set =
			a->normalized && !a->special ? &t->normal : &t->specials;
		if (ends[i] > from)
			set->list[set->n++] = (struct ig_special){
				t->patterns + from,
				(uint32_t)(ends[i] - from),
				a->id,
				a->flags,
			};
	}
	if (!rc) {
		ig_specials_sort(&t->specials, t->kinds);
		ig_specials_sort(&t->normal, t->kinds);
	}
	ig_normal_work_finish(&w);
	ig_strbuf_finish(&patterns);
	free(ends);
	return rc;
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
	    (rc = read_added(r)))
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
		rc = unigram ? ig_json_scan_array(&r->vocab, take_piece, r) :
			       ig_json_scan_object(&r->vocab, take_bpe_token, r);
	if (!rc)
		rc = place_tokens(r, model != IG_MODEL_BYTES);
	if (!rc)
		rc = build_tokens(r, model);
	if (rc) {
		ig_normalizer_destroy(before.normalizer);
		ig_splitter_close(before.splitter);
		return rc;
	}
	t = r->b->t;
	move_steps(t, &before);
	t->cuts_user = true;
	if ((rc = set_specials(r)) || (r->has_merges && (rc = build_merges(r))))
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
