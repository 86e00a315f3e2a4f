/*
 * steps.c: reads the parts of tokenizer.json for the steps before and after the model: normalizer,
 * pre_tokenizer, post_processor, decoder.  A part with an unsupported type, or a setting that would
 * change ids or texts, is an error with its name.
 */
#include "model/tokenizer/steps_private.h"

#include "base/json.h"
#include "base/strbuf.h"

#include <errno.h>
#include <stdlib.h>

#define MAX_DEPTH 8	    /* nested sequences */
#define MARK "\xe2\x96\x81" /* U+2581 */

struct reading {
	struct ig_tokenizer *t;
	struct ig_steps *steps;
	const char *part; /* for errors */
	bool jit;
	struct ig_error *err;
};

static const char *type_of(const json_t *j)
{
	const char *type = json_string_value(json_object_get(j, "type"));

	return type ? type : "";
}

static int unknown_type(const struct reading *r, const json_t *j)
{
	return ig_fail(r->err, -ENOTSUP, "the %s '%.60s' is not supported", r->part, type_of(j));
}

static int bad_setting(const struct reading *r, const json_t *j, const char *name)
{
	return ig_fail(r->err, -EINVAL, "the %s '%.60s' has no valid '%s'", r->part, type_of(j),
		       name);
}

/* A missing value is `otherwise`. */
static int read_bool(const struct reading *r, const json_t *j, const char *name, bool otherwise,
		     bool *out)
{
	const json_t *v = json_object_get(j, name);

	*out = otherwise;
	if (!v || json_is_null(v))
		return 0;
	if (!json_is_boolean(v))
		return bad_setting(r, j, name);
	*out = json_is_true(v);
	return 0;
}

static int read_text(const struct reading *r, const json_t *j, const char *name, const char **s,
		     size_t *len)
{
	const json_t *v = json_object_get(j, name);

	*s = json_string_value(v);
	*len = json_string_length(v);
	return *s ? 0 : bad_setting(r, j, name);
}

/* Call each for the parts of nested sequences, or for the part itself. */
static int walk(const struct reading *r, const json_t *j, const char *list_name,
		int (*each)(const struct reading *r, const json_t *j), unsigned depth)
{
	const json_t *list, *one;
	size_t i;
	int rc = 0;

	if (!j || json_is_null(j))
		return 0;
	if (!json_is_object(j))
		return ig_fail(r->err, -EINVAL, "the %s is not an object", r->part);
	if (strcmp(type_of(j), "Sequence"))
		return each(r, j);
	if (depth == MAX_DEPTH)
		return ig_fail(r->err, -ENOTSUP, "%ss in more than %d nested sequences", r->part,
			       MAX_DEPTH);
	list = json_object_get(j, list_name);
	if (!json_is_array(list))
		return bad_setting(r, j, list_name);
	json_array_foreach(list, i, one)
	{
		rc = json_is_object(one) ?
			     walk(r, one, list_name, each, depth + 1) :
			     ig_fail(r->err, -EINVAL, "a %s is not an object", r->part);
		if (rc)
			break;
	}
	return rc;
}

/* {"String": …} or {"Regex": …} in PCRE2's syntax. */
static int read_pattern(const struct reading *r, const json_t *j, struct ig_strbuf *out)
{
	const json_t *pattern = json_object_get(j, "pattern");
	const json_t *text = json_object_get(pattern, "String");
	const json_t *regex = json_object_get(pattern, "Regex");

	if (json_is_string(text) && json_string_length(text)) {
		ig_regex_literal(json_string_value(text), json_string_length(text), out);
		return ig_strbuf_ok(out) ? 0 : -ENOMEM;
	}
	if (!json_is_string(regex))
		return bad_setting(r, j, "pattern");
	return ig_regex_translate(json_string_value(regex), json_string_length(regex), out, r->err);
}

/* ---- normalizers ---------------------------------------------------------------------- */

static int base64_value(char c)
{
	return c >= 'A' && c <= 'Z' ? c - 'A' :
	       c >= 'a' && c <= 'z' ? c - 'a' + 26 :
	       c >= '0' && c <= '9' ? c - '0' + 52 :
	       c == '+'		    ? 62 :
	       c == '/'		    ? 63 :
				      -1;
}

int64_t ig_base64_decode(const char *s, size_t len, unsigned char *out)
{
	unsigned char *at = out;
	uint32_t bits = 0;
	size_t n = 0;

	if (len % 4)
		return -1;
	while (len && s[len - 1] == '=' && n < 2) {
		len--;
		n++;
	}
	n = 0;
	for (size_t i = 0; i < len; i++) {
		int v = base64_value(s[i]);
		if (v < 0)
			return -1;
		bits = bits << 6 | (uint32_t)v;
		if (++n == 4) {
			*at++ = (unsigned char)(bits >> 16);
			*at++ = (unsigned char)(bits >> 8);
			*at++ = (unsigned char)bits;
			bits = 0;
			n = 0;
		}
	}
	if (n == 1)
		return -1;
	if (n >= 2)
		*at++ = (unsigned char)(bits >> (n == 2 ? 4 : 10));
	if (n == 3)
		*at++ = (unsigned char)(bits >> 2);
	return at - out;
}

static int add_charsmap(const struct reading *r, const json_t *j)
{
	unsigned char *map;
	const char *s;
	size_t len;
	int64_t n;
	int rc;

	if (json_is_null(json_object_get(j, "precompiled_charsmap")))
		return 0;
	rc = read_text(r, j, "precompiled_charsmap", &s, &len);
	if (rc || len == 0)
		return rc;
	map = malloc(len);
	if (!map)
		return -ENOMEM;
	n = ig_base64_decode(s, len, map);
	rc = n < 0 ? bad_setting(r, j, "precompiled_charsmap") :
		     ig_normalizer_add_charsmap(r->t->normalizer, map, (size_t)n, r->err);
	free(map);
	return rc;
}

static int add_replace(const struct reading *r, const json_t *j)
{
	const json_t *literal = json_object_get(json_object_get(j, "pattern"), "String");
	const char *from = json_string_value(literal), *to;
	size_t n_from = json_string_length(literal), len;
	struct ig_strbuf regex = { 0 };
	int rc = read_text(r, j, "content", &to, &len);

	if (rc)
		return rc;
	if (from && n_from) {
		if (n_from == 1 && *from == ' ' && len == 3 && !memcmp(to, MARK, 3))
			r->steps->marks_spaces = true;
		return ig_normalizer_add_replace_text(r->t->normalizer, from, n_from, to, len,
						      r->err);
	}
	rc = read_pattern(r, j, &regex);
	if (!rc)
		rc = regex.len ? ig_normalizer_add_replace(r->t->normalizer, regex.data, to, len,
							   r->jit, r->err) :
				 bad_setting(r, j, "pattern");
	ig_strbuf_finish(&regex);
	return rc;
}

/* strip_accents null: as lowercase. */
static int read_bert_normalizer(const struct reading *r, const json_t *j)
{
	struct ig_wordpiece *w = &r->t->wordpiece;
	int rc;

	r->steps->normalizes_words = true;
	if ((rc = read_bool(r, j, "clean_text", true, &w->clean)) ||
	    (rc = read_bool(r, j, "handle_chinese_chars", true, &w->chinese)) ||
	    (rc = read_bool(r, j, "lowercase", true, &w->lowercase)))
		return rc;
	return read_bool(r, j, "strip_accents", w->lowercase, &w->strip_accents);
}

static int add_normalizer(const struct reading *r, const json_t *j)
{
	static const char *const forms[] = { "NFC", "NFD", "NFKC",
					     "NFKD" }; /* enum ig_normal_form */
	struct ig_normalizer *n;
	const char *type = type_of(j), *s;
	bool left, right;
	size_t len;
	int rc;

	if (!strcmp(type, "BertNormalizer"))
		return read_bert_normalizer(r, j);
	if (!r->t->normalizer && ig_normalizer_create(&r->t->normalizer))
		return -ENOMEM;
	n = r->t->normalizer;
	for (unsigned i = 0; i < 4; i++)
		if (!strcmp(type, forms[i]))
			return ig_normalizer_add_form(n, (enum ig_normal_form)i, r->err);
	if (!strcmp(type, "Precompiled"))
		return add_charsmap(r, j);
	if (!strcmp(type, "Replace"))
		return add_replace(r, j);
	if (!strcmp(type, "Prepend"))
		return (rc = read_text(r, j, "prepend", &s, &len)) ?
			       rc :
			       ig_normalizer_add_prepend(n, s, len, r->err);
	if (!strcmp(type, "Strip"))
		return (rc = read_bool(r, j, "strip_left", false, &left)) ||
				       (rc = read_bool(r, j, "strip_right", false, &right)) ?
			       rc :
			       ig_normalizer_add_strip(n, left, right, r->err);
	return unknown_type(r, j);
}

/* ---- pre-tokenizers --------------------------------------------------------------------- */

static int add_stage(const struct reading *r, const char *pattern, enum ig_split_behavior behavior,
		     bool invert)
{
	if (!r->t->splitter && ig_splitter_create(&r->t->splitter))
		return -ENOMEM;
	return ig_splitter_add(r->t->splitter, pattern, behavior, invert, r->jit, r->err);
}

static int read_behavior(const struct reading *r, const json_t *j, enum ig_split_behavior *out)
{
	static const char *const names[] = {
		/* enum ig_split_behavior */
		"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous",
	};
	const char *s = json_string_value(json_object_get(j, "behavior"));

	for (unsigned i = 0; s && i < sizeof names / sizeof names[0]; i++)
		if (!strcmp(s, names[i])) {
			*out = (enum ig_split_behavior)i;
			return 0;
		}
	return bad_setting(r, j, "behavior");
}

static int add_split(const struct reading *r, const json_t *j)
{
	enum ig_split_behavior behavior = IG_SPLIT_ISOLATED;
	struct ig_strbuf pattern = { 0 };
	bool invert;
	int rc;

	if (!(rc = read_behavior(r, j, &behavior)) &&
	    !(rc = read_bool(r, j, "invert", false, &invert)) &&
	    !(rc = read_pattern(r, j, &pattern)))
		rc = pattern.len ? add_stage(r, pattern.data, behavior, invert) :
				   bad_setting(r, j, "pattern");
	ig_strbuf_finish(&pattern);
	return rc;
}

static int add_byte_level(const struct reading *r, const json_t *j)
{
	bool space, regex;
	int rc;

	if ((rc = read_bool(r, j, "add_prefix_space", true, &space)) ||
	    (rc = read_bool(r, j, "use_regex", true, &regex)))
		return rc;
	/* The space would be added before every piece. */
	if (space && r->t->splitter)
		return ig_fail(r->err, -ENOTSUP,
			       "the pre_tokenizer 'ByteLevel' has add_prefix_space after others");
	if (space)
		r->t->prefix = IG_PREFIX_ALWAYS;
	r->steps->byte_level = true;
	return regex ? add_stage(r, ig_splitter_gpt2, IG_SPLIT_ISOLATED, false) : 0;
}

/* When texts get a space before them; older files only have add_prefix_space. */
static int read_prefix(const struct reading *r, const json_t *j, enum ig_prefix *out)
{
	static const char *const names[] = { "never", "always", "first" }; /* enum ig_prefix */
	const json_t *v = json_object_get(j, "prepend_scheme");
	bool space;
	int rc = read_bool(r, j, "add_prefix_space", true, &space);

	if (rc)
		return rc;
	*out = space ? IG_PREFIX_ALWAYS : IG_PREFIX_NEVER;
	if (!v)
		return 0;
	for (unsigned i = 0; json_is_string(v) && i < 3; i++)
		if (!strcmp(json_string_value(v), names[i])) {
			*out = (enum ig_prefix)i;
			return 0;
		}
	return bad_setting(r, j, "prepend_scheme");
}

static int check_mark(const struct reading *r, const json_t *j)
{
	const char *s = json_string_value(json_object_get(j, "replacement"));

	return s && strcmp(s, MARK) ? ig_fail(r->err, -ENOTSUP,
					      "the %s 'Metaspace' replaces spaces by "
					      "'%.12s', not by U+2581",
					      r->part, s) :
				      0;
}

static int add_metaspace(const struct reading *r, const json_t *j)
{
	struct ig_tokenizer *t = r->t;
	int rc;

	if ((rc = check_mark(r, j)) || (rc = read_prefix(r, j, &t->prefix)) ||
	    (rc = read_bool(r, j, "split", true, &t->split_words)))
		return rc;
	if (t->prefix == IG_PREFIX_FIRST && t->normalizer &&
	    ig_normalizer_strips_left(t->normalizer))
		return ig_fail(r->err, -ENOTSUP,
			       "the pre_tokenizer 'Metaspace' with scheme 'first' after "
			       "a 'Strip' of the left side");
	t->metaspace = true;
	r->steps->marks_spaces = true;
	return 0;
}

static int add_pre_tokenizer(const struct reading *r, const json_t *j)
{
	const char *type = type_of(j);
	enum ig_split_behavior behavior;
	bool each;
	int rc;

	/* A later splitter would see the changed text. */
	if (r->t->metaspace)
		return ig_fail(r->err, -ENOTSUP, "the pre_tokenizer '%.60s' after 'Metaspace'",
			       type);
	if (r->steps->byte_level)
		return ig_fail(r->err, -ENOTSUP, "the pre_tokenizer '%.60s' after 'ByteLevel'",
			       type);
	if (!strcmp(type, "BertPreTokenizer")) {
		r->steps->words = true;
		return 0;
	}
	if (!strcmp(type, "Split"))
		return add_split(r, j);
	if (!strcmp(type, "ByteLevel"))
		return add_byte_level(r, j);
	if (!strcmp(type, "Metaspace"))
		return add_metaspace(r, j);
	if (!strcmp(type, "Digits"))
		return (rc = read_bool(r, j, "individual_digits", false, &each)) ?
			       rc :
			       add_stage(r, each ? "\\p{N}" : "\\p{N}+", IG_SPLIT_ISOLATED, false);
	if (!strcmp(type, "Punctuation")) {
		behavior = IG_SPLIT_ISOLATED;
		rc = json_object_get(j, "behavior") ? read_behavior(r, j, &behavior) : 0;
		return rc ? rc : add_stage(r, "[!-/:-@\\[-`{-~\\p{P}]", behavior, false);
	}
	if (!strcmp(type, "WhitespaceSplit"))
		return add_stage(r, "[" IG_REGEX_SPACE "]", IG_SPLIT_REMOVED, false);
	return unknown_type(r, j);
}

/* ---- after the model ------------------------------------------------------------------- */

/* The id of a template's special token, or an error. */
static int template_id(const struct reading *r, const json_t *j, const json_t *token, int64_t *id)
{
	const char *name = json_string_value(json_object_get(token, "id"));
	const json_t *ids;

	if (!name)
		return bad_setting(r, j, "single");
	ids = json_object_get(json_object_get(json_object_get(j, "special_tokens"), name), "ids");
	if (json_array_size(ids) != 1 || !json_is_integer(json_array_get(ids, 0)) ||
	    json_integer_value(json_array_get(ids, 0)) < 0)
		return bad_setting(r, j, "special_tokens");
	*id = json_integer_value(json_array_get(ids, 0));
	return 0;
}

/* Tokens between the two texts of a pair, up to two; more, or other texts, count as none. */
static int read_pair(const struct reading *r, const json_t *j)
{
	const json_t *part;
	size_t i, n_texts = 0;
	unsigned n = 0;
	int rc;

	json_array_foreach(json_object_get(j, "pair"), i, part)
	{
		const json_t *token = json_object_get(part, "SpecialToken");
		n_texts += !token;
		if (!token || n_texts != 1)
			continue;
		if (n == 2)
			return 0;
		if ((rc = template_id(r, j, token, &r->steps->separators[n++])))
			return rc;
	}
	r->steps->n_separators = n_texts == 2 ? n : 0;
	return 0;
}

/* The one token that a template puts before a text, and the one after it, which only models of
 * embeddings get: a prompt has no end. */
static int read_template(const struct reading *r, const json_t *j)
{
	const json_t *single = json_object_get(j, "single"), *part;
	bool text = false;
	unsigned n_after = 0;
	size_t i;
	int rc;

	if (!json_is_array(single))
		return bad_setting(r, j, "single");
	json_array_foreach(single, i, part)
	{
		const json_t *token = json_object_get(part, "SpecialToken");
		if (!token) {
			text = true;
			continue;
		}
		if (!text && r->steps->bos >= 0)
			return ig_fail(r->err, -ENOTSUP,
				       "the post_processor 'TemplateProcessing' puts "
				       "more than one token before a text");
		n_after += text;
		if ((rc = template_id(r, j, token, text ? &r->steps->suffix : &r->steps->bos)))
			return rc;
	}
	if (n_after > 1)
		r->steps->suffix = -1;
	return read_pair(r, j);
}

/* BERT's and RoBERTa's own forms of the same: {"sep": ["[SEP]", 102], "cls": ["[CLS]", 101]}. */
static int read_sep_cls(const struct reading *r, const json_t *j, unsigned n_between)
{
	const json_t *sep = json_array_get(json_object_get(j, "sep"), 1);
	const json_t *cls = json_array_get(json_object_get(j, "cls"), 1);

	if (!json_is_integer(sep) || json_integer_value(sep) < 0)
		return bad_setting(r, j, "sep");
	if (!json_is_integer(cls) || json_integer_value(cls) < 0)
		return bad_setting(r, j, "cls");
	r->steps->bos = json_integer_value(cls);
	r->steps->suffix = json_integer_value(sep);
	for (unsigned i = 0; i < n_between; i++)
		r->steps->separators[i] = r->steps->suffix;
	r->steps->n_separators = n_between;
	return 0;
}

static int take_post_processor(const struct reading *r, const json_t *j)
{
	const char *type = type_of(j);

	if (!strcmp(type, "TemplateProcessing"))
		return read_template(r, j);
	if (!strcmp(type, "BertProcessing"))
		return read_sep_cls(r, j, 1);
	if (!strcmp(type, "RobertaProcessing"))
		return read_sep_cls(r, j, 2);
	/* ByteLevel only changes offsets. */
	return strcmp(type, "ByteLevel") ? unknown_type(r, j) : 0;
}

/* ---- ids to text ------------------------------------------------------------------------ */

static int take_decoder(const struct reading *r, const json_t *j)
{
	const char *type = type_of(j), *content = json_string_value(json_object_get(j, "content"));
	bool bytes = r->steps->byte_level;
	struct ig_strbuf from = { 0 };
	enum ig_prefix prefix;
	int rc = 0;

	if (bytes)
		return strcmp(type, "ByteLevel") ? unknown_type(r, j) : 0;
	if (!strcmp(type, "ByteFallback") || !strcmp(type, "Fuse"))
		return 0;
	if (!strcmp(type, "WordPiece") && r->steps->words) {
		r->t->adds_space = true;
		return 0;
	}
	if (!strcmp(type, "Metaspace")) {
		if ((rc = check_mark(r, j)) || (rc = read_prefix(r, j, &prefix)))
			return rc;
		r->t->adds_space = prefix != IG_PREFIX_NEVER;
		return 0;
	}
	if (!strcmp(type, "Strip")) {
		json_int_t start = json_integer_value(json_object_get(j, "start"));
		json_int_t stop = json_integer_value(json_object_get(j, "stop"));
		if (!content || strcmp(content, " ") || start < 0 || start > 1 || stop)
			return ig_fail(r->err, -ENOTSUP,
				       "the decoder 'Strip' of anything but one leading space");
		r->t->adds_space = start == 1;
		return 0;
	}
	if (strcmp(type, "Replace"))
		return unknown_type(r, j);
	rc = read_pattern(r, j, &from);
	if (!rc &&
	    (!content || strcmp(content, " ") || from.len != 3 || memcmp(from.data, MARK, 3)))
		rc = ig_fail(r->err, -ENOTSUP,
			     "the decoder 'Replace' of anything but U+2581 by a space");
	ig_strbuf_finish(&from);
	return rc;
}

int ig_steps_read(const struct ig_steps_json *parts, struct ig_tokenizer *t, bool jit,
		  struct ig_steps *out, struct ig_error *err)
{
	struct reading r = { .t = t, .steps = out, .jit = jit, .err = err };
	int rc;

	*out = (struct ig_steps){ .bos = -1, .suffix = -1 };
	r.part = "normalizer";
	rc = walk(&r, parts->normalizer, "normalizers", add_normalizer, 0);
	r.part = "pre_tokenizer";
	if (!rc)
		rc = walk(&r, parts->pre_tokenizer, "pretokenizers", add_pre_tokenizer, 0);
	r.part = "post_processor";
	if (!rc)
		rc = walk(&r, parts->post_processor, "processors", take_post_processor, 0);
	r.part = "decoder";
	if (!rc)
		rc = walk(&r, parts->decoder, "decoders", take_decoder, 0);
	return rc;
}
