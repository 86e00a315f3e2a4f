/*
 * test_tokenizer_files.c: tokenizers from tokenizer.json, tokenizer.model and tekken.json,
 * with what the files beside them say; and what is refused of them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "model/chat/chat_template.h"
#include "model/tokenizer/detokenizer.h"
#include "model/tokenizer/config_private.h"
#include "tests/archs.h"
#include "tiny_files.h"

#include <unistd.h>

#define S(text) text, sizeof text - 1
#define B(c) (TJ_BYTE + (unsigned char)(c))

static void becomes(const struct ig_tokenizer *t, const char *text, size_t len, int special, ...)
{
	struct ig_ids got = { 0 };
	va_list ap;
	size_t i;

	assert_int_equal(ig_tokenizer_encode(t, text, len, special != 0, SIZE_MAX, &got), 0);
	va_start(ap, special);
	for (i = 0;; i++) {
		int32_t want = va_arg(ap, int);
		if (want < 0)
			break;
		if (i >= got.n || got.ids[i] != want)
			fail_msg("'%s': id %zu is %d, not %d", text, i, i < got.n ? got.ids[i] : -1,
				 want);
	}
	va_end(ap);
	if (got.n != i)
		fail_msg("'%s': %zu ids, not %zu", text, got.n, i);
	ig_ids_finish(&got);
}

static struct ig_tokenizer *opened(struct tiny_folder *f)
{
	struct ig_model_files files = tiny_model_files(f);
	struct ig_error err = { 0 };
	struct ig_tokenizer *t;

	if (ig_tokenizer_open_files(&files, true, &t, &err))
		fail_msg("%s", err.text);
	return t;
}

static void refused(struct tiny_folder *f, int code, const char *text)
{
	struct ig_model_files files = tiny_model_files(f);
	struct ig_error err = { 0 };
	struct ig_tokenizer *t;
	int rc = ig_tokenizer_open_files(&files, true, &t, &err);

	if (rc != code || !strstr(err.text, text))
		fail_msg("wanted %d and '%s', got %d: %s", code, text, rc, err.text);
	assert_null(t);
}

static struct ig_tokenizer *json_opened(const struct tiny_json *o)
{
	struct tiny_folder f = { 0 };
	struct ig_strbuf b;

	tiny_json(&b, o);
	tiny_put(&f, "tokenizer.json", b.data, b.len);
	struct ig_tokenizer *t = opened(&f);
	ig_strbuf_finish(&b);
	return t;
}

/* ---- tokenizer.json ---------------------------------------------------------------------- */

static void bytes(void **state)
{
	struct ig_tokenizer *t = json_opened(&(struct tiny_json){ 0 });
	size_t len;
	bool special;

	becomes(t, S(""), 0, -1);
	becomes(t, S("hello hello"), 0, TJ_HELLO, TJ_SPACE_HELLO, -1);
	becomes(t, S("hell\xff\n"), 0, TJ_HELL, B(0xff), B('\n'), -1);
	/* Control tokens where the caller allows them; the others anywhere. */
	becomes(t, S("<s>"), 0, B('<'), B('s'), B('>'), -1);
	becomes(t, S("<s><tool>he"), 1, TJ_START, TJ_USER, TJ_HE, -1);
	becomes(t, S("he<tool>he"), 0, TJ_HE, TJ_USER, TJ_HE, -1);
	assert_int_equal(ig_tokenizer_bos(t), TJ_START);
	assert_true(ig_tokenizer_add_bos(t));
	assert_int_equal(ig_tokenizer_n_vocab(t), N_TJ);
	assert_false(ig_tokenizer_adds_space(t));
	assert_memory_equal(ig_tokenizer_token(t, TJ_SPACE_HELLO, &len, &special), " hello", 6);
	/* An id that no token has. */
	assert_non_null(ig_tokenizer_token(t, TJ_SPACE, &len, &special));
	assert_int_equal(len, 0);
	ig_tokenizer_close(t);
	/* A piece that is a token is taken whole; characters are composed; a space before. */
	t = json_opened(&(struct tiny_json){
		.settings = "\"ignore_merges\": true, \"dropout\": null,",
		.normalizer = "{\"type\": \"NFC\"}",
		.pre_tokenizer = "{\"type\": \"ByteLevel\", \"add_prefix_space\": true}",
		.more_vocab = ", \"\\u0120heo\": 270",
	});
	becomes(t, S("heo"), 0, 270, -1);
	becomes(t, S("hello"), 0, TJ_SPACE_HELLO, -1);
	becomes(t, S("e\xcc\x81\xff\xcc\x81"), 0, B(' '), B(0xc3), B(0xa9), B(0xff), B(0xcc),
		B(0x81), -1);
	ig_tokenizer_close(t);
}

static void pairs(void **state)
{
	struct ig_tokenizer *t = json_opened(&(struct tiny_json){ .kind = TINY_PAIRS });

	becomes(t, S("hello hello"), 0, TJ_SPACE_HELLO, TJ_SPACE_HELLO, -1);
	becomes(t, S("h\xe2\x96\x81"), 0, TJ_SPACE, TJ_H, TJ_SPACE, -1);
	becomes(t, S("a\xe4\xb8\xad\xff"), 0, TJ_SPACE, B('a'), B(0xe4), B(0xb8), B(0xad), B(0xff),
		-1);
	/* Each text between special tokens gets its space. */
	becomes(t, S("<s>hello<tool>hello"), 1, TJ_START, TJ_SPACE_HELLO, TJ_USER, TJ_SPACE_HELLO,
		-1);
	assert_true(ig_tokenizer_adds_space(t));
	ig_tokenizer_close(t);
	/* Metaspace: the first text only, and no second space. */
	t = json_opened(&(struct tiny_json){
		.kind = TINY_PAIRS,
		.normalizer = "null",
		.pre_tokenizer = "{\"type\": \"Metaspace\", \"replacement\": \"\\u2581\","
				 "\"prepend_scheme\": \"first\", \"split\": false}",
	});
	becomes(t, S("hello<tool>hello"), 0, TJ_SPACE_HELLO, TJ_USER, TJ_HELLO, -1);
	becomes(t, S(" hello"), 0, TJ_SPACE_HELLO, -1);
	becomes(t, S("<s>hello"), 1, TJ_START, TJ_HELLO, -1);
	ig_tokenizer_close(t);
	/* What is unknown, once and several times; spaces that go with a token. */
	t = json_opened(&(struct tiny_json){
		.kind = TINY_PAIRS,
		.settings = "\"unk_token\": \"<unk>\", \"fuse_unk\": true,",
		.added = "[{\"id\": 0, \"content\": \"<unk>\", \"special\": true},"
			 "{\"id\": 3, \"content\": \"<tool>\", \"lstrip\": true, \"rstrip\": true},"
			 "{\"id\": 300, \"content\": \"l o\", \"normalized\": true}]",
	});
	becomes(t, S("xyhz"), 0, TJ_SPACE, TJ_UNKNOWN, TJ_H, TJ_UNKNOWN, -1);
	becomes(t, S("h\n <tool> \t he"), 0, TJ_SPACE, TJ_H, TJ_USER, TJ_SPACE, TJ_HE, -1);
	/* Found in the normalized text by its own, normalized: with a space before. */
	becomes(t, S("l o"), 0, 300, -1);
	becomes(t, S("hl o"), 0, TJ_SPACE, TJ_H, TJ_L, TJ_SPACE, TJ_O, -1);
	assert_int_equal(ig_tokenizer_n_vocab(t), 301);
	ig_tokenizer_close(t);
	t = json_opened(
		&(struct tiny_json){ .kind = TINY_PAIRS, .settings = "\"unk_token\": \"<unk>\"," });
	becomes(t, S("xy"), 0, TJ_SPACE, TJ_UNKNOWN, TJ_UNKNOWN, -1);
	ig_tokenizer_close(t);
}

static void unigram(void **state)
{
	struct ig_tokenizer *t = json_opened(&(struct tiny_json){ .kind = TINY_UNIGRAM });

	becomes(t, S("hello  hello"), 0, TJ_SPACE_HELLO, TJ_SPACE, TJ_SPACE_HELLO, -1);
	becomes(t, S("hea"), 0, TJ_SPACE, TJ_HE, B('a'), -1);
	becomes(t, S("h\xff"), 0, TJ_SPACE, TJ_H, B(0xff), -1);
	ig_tokenizer_close(t);
	/* White space is left out, and each word gets its own. */
	t = json_opened(&(struct tiny_json){
		.kind = TINY_UNIGRAM,
		.settings = "\"unk_id\": 0,",
		.pre_tokenizer =
			"{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\":"
			"\"WhitespaceSplit\"}, {\"type\": \"Metaspace\", \"add_prefix_space\": "
			"true}]}",
	});
	becomes(t, S(" \nhello\thexx\n"), 0, TJ_SPACE_HELLO, TJ_SPACE, TJ_HE, TJ_UNKNOWN, -1);
	ig_tokenizer_close(t);
}

/* Parts that are not known, or that are wrong, are named. */
static void json_refusals(void **state)
{
	static const struct {
		struct tiny_json o;
		int code;
		const char *text;
	} cases[] = {
		{ { .normalizer = "{\"type\": \"Lowercase\"}" },
		  -ENOTSUP,
		  "the normalizer 'Lowercase' is not supported" },
		{ { .normalizer = "[]" }, -EINVAL, "the normalizer is not an object" },
		{ { .normalizer = "{\"type\": \"Sequence\"}" }, -EINVAL, "no valid 'normalizers'" },
		{ { .normalizer = "{\"type\": \"Prepend\"}" }, -EINVAL, "no valid 'prepend'" },
		{ { .normalizer = "{\"type\": \"Replace\", \"content\": \"\"}" },
		  -EINVAL,
		  "no valid 'pattern'" },
		{ { .normalizer = "{\"type\": \"Replace\", \"content\": \"\","
				  "\"pattern\": {\"Regex\": \"a*\"}}" },
		  -ENOTSUP,
		  "can match the empty text" },
		{ { .normalizer =
			    "{\"type\": \"Precompiled\", \"precompiled_charsmap\": \"AAAA\"}" },
		  -EINVAL,
		  "a precompiled_charsmap of 3 bytes" },
		{ { .normalizer = "{\"type\": \"Precompiled\", \"precompiled_charsmap\": \"A\"}" },
		  -EINVAL,
		  "no valid 'precompiled_charsmap'" },
		{ { .pre_tokenizer = "{\"type\": \"BertPreTokenizer\"}", .decoder = "null" },
		  -ENOTSUP,
		  "a WordPiece model and the pre_tokenizer 'BertPreTokenizer' belong together" },
		{ { .pre_tokenizer = "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"\\\\w+\"},"
				     "\"behavior\": \"Isolated\"}" },
		  -ENOTSUP,
		  "an unknown escape at '\\w+'" },
		{ { .pre_tokenizer = "{\"type\": \"Split\", \"pattern\": {\"String\": \"a\"},"
				     "\"behavior\": \"Gone\"}" },
		  -EINVAL,
		  "no valid 'behavior'" },
		{ { .pre_tokenizer = "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": "
				     "\"ByteLevel\"},"
				     "{\"type\": \"Digits\"}]}" },
		  -ENOTSUP,
		  "'Digits' after 'ByteLevel'" },
		{ { .pre_tokenizer =
			    "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\"},"
			    "{\"type\": \"ByteLevel\"}]}" },
		  -ENOTSUP,
		  "add_prefix_space after" },
		{ { .pre_tokenizer = "null", .decoder = "null" },
		  -ENOTSUP,
		  "neither a pre_tokenizer 'ByteLevel' nor" },
		{ { .pre_tokenizer = "{\"type\": \"Metaspace\", \"replacement\": \"_\"}" },
		  -ENOTSUP,
		  "by '_', not by U+2581" },
		{ { .post_processor = "{\"type\": \"RobertaProcessing\"}" },
		  -EINVAL,
		  "the post_processor 'RobertaProcessing' has no valid 'sep'" },
		{ { .post_processor =
			    "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\":"
			    "{\"id\": \"a\"}}, {\"SpecialToken\": {\"id\": \"a\"}}],"
			    "\"special_tokens\": {\"a\": {\"ids\": [1]}}}" },
		  -ENOTSUP,
		  "more than one token before a text" },
		{ { .post_processor =
			    "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\":"
			    "{\"id\": \"a\"}}], \"special_tokens\": {\"a\": {\"ids\": [999]}}}" },
		  -EINVAL,
		  "refers to a token that does not exist" },
		{ { .decoder = "{\"type\": \"WordPiece\"}" }, -ENOTSUP, "the decoder 'WordPiece'" },
		{ { .kind = TINY_PAIRS, .decoder = "{\"type\": \"Strip\", \"content\": \"x\"}" },
		  -ENOTSUP,
		  "the decoder 'Strip' of anything but" },
		{ { .settings = "\"dropout\": 0.1," },
		  -ENOTSUP,
		  "setting 'dropout' or its value is" },
		{ { .settings = "\"continuing_subword_prefix\": \"##\"," },
		  -ENOTSUP,
		  "continuing_subword_prefix" },
		{ { .settings = "\"invented\": null," }, -ENOTSUP, "'invented'" },
		{ { .settings = "\"byte_fallback\": true," }, -ENOTSUP, "byte_fallback with" },
		{ { .settings = "\"type\": \"WordLevel\"," }, -EINVAL, "a duplicate key" },
		{ { .kind = TINY_PAIRS, .settings = "\"ignore_merges\": true," },
		  -ENOTSUP,
		  "ignore_merges" },
		{ { .kind = TINY_UNIGRAM, .settings = "\"unk_id\": 10000," },
		  -EINVAL,
		  "unk_id is not the id of a token" },
		{ { .added = "[{\"id\": 0, \"content\": \"x\"}]" },
		  -EINVAL,
		  "two tokens have the id 0" },
		{ { .added = "[{\"id\": -1, \"content\": \"x\"}]" },
		  -EINVAL,
		  "added token 0 has no valid" },
		{ { .added = "[{\"id\": 16777000, \"content\": \"x\"}]" },
		  -EINVAL,
		  "ids up to 16777001" },
		{ { .added = "[{\"id\": 900, \"content\": \"x\", \"single_word\": true}]" },
		  -ENOTSUP,
		  "the added token 'x' is a single_word" },
		{ { .added = "{}" }, -EINVAL, "added_tokens is not a list" },
		{ { .more_vocab = ", \"x\": 3" }, -EINVAL, "two tokens have the id 3" },
		{ { .more_vocab = ", \"h\": 400" }, -EINVAL, "the token 'h' is a duplicate" },
		{ { .more_vocab = ", \"x\": 1.5" }, -EINVAL, "no whole number" },
		{ { .more_vocab = ", \"x\": 99999999999" },
		  -EINVAL,
		  "the token 'x' has the id 99999999999" },
		{ { .merges = "[\"h\"]" }, -EINVAL, "not two tokens with a space between" },
		{ { .merges = "[[\"h\", \"e\", \"l\"]]" }, -EINVAL, "more than two tokens" },
		{ { .merges = "[[\"h\"]]" }, -EINVAL, "not a pair of tokens" },
		{ { .merges = "[[\"h\", \"zz\"]]" },
		  -EINVAL,
		  "merge 0 'h zz' contains or makes a token" },
		{ { .merges = "[[\"h\", \"\\u4e00\"]]" }, -EINVAL, "is not in the byte alphabet" },
		{ { .merges = "{}" }, -EINVAL, "no list" },
		{ { .kind = TINY_UNIGRAM, .merges = "[]" },
		  -EINVAL,
		  "a Unigram model with merges" },
		{ { .kind = TINY_UNIGRAM, .more_vocab = ", [\"x\"]" },
		  -EINVAL,
		  "not a piece and its score" },
		{ { .kind = TINY_UNIGRAM, .more_vocab = ", [\"x\", 1e999]" },
		  -EINVAL,
		  "out of range" },
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct tiny_folder f = { 0 };
		struct ig_strbuf b;
		tiny_json(&b, &cases[i].o);
		tiny_put(&f, "tokenizer.json", b.data, b.len);
		refused(&f, cases[i].code, cases[i].text);
		ig_strbuf_finish(&b);
	}
	static const char *const wrong[] = {
		"",
		"[]",
		"{}",
		"{\"model\": {}}",
		"{\"model\": {\"vocab\": {}}}",
		"{\"a\": \"\\ud800\"}",
		"{\"model\": {\"vocab\": {\"a\\x\": 1}, \"merges\": []}}",
		"{\"model\": null}",
		"{\"model\": {\"type\": \"BPE\", \"vocab\": {}, \"merges\": []}, \"model\": {}}",
		"{\"a\": tr ue}",
	};
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		struct tiny_folder f = { 0 };
		tiny_put(&f, "tokenizer.json", wrong[i], strlen(wrong[i]));
		struct ig_model_files files = tiny_model_files(&f);
		struct ig_tokenizer *t;
		struct ig_error err;
		assert_true(ig_tokenizer_open_files(&files, true, &t, &err) < 0);
		assert_null(t);
	}
}

/* A file that ends anywhere, or has one wrong byte, is an error or a tokenizer. */
static void cut(const char *name, const char *data, size_t len, size_t step)
{
	struct ig_tokenizer *t;
	struct ig_error err;
	char *copy = malloc(len);

	assert_non_null(copy);
	for (size_t i = 0; i < len; i += step) {
		struct tiny_folder f = { 0 };
		struct ig_model_files files = tiny_model_files(&f);
		memcpy(copy, data, len); /* so that a read after its end is detected */
		char *part = malloc(i + !i);
		assert_non_null(part);
		memcpy(part, data, i);
		tiny_put(&f, name, part, i);
		assert_true(ig_tokenizer_open_files(&files, false, &t, &err) < 0 || t);
		ig_tokenizer_close(t);
		copy[i] ^= (char)(1 + i % 255);
		f.files[0].data = copy;
		f.files[0].len = len;
		if (!ig_tokenizer_open_files(&files, false, &t, &err)) {
			struct ig_ids l = { 0 };
			assert_int_equal(
				ig_tokenizer_encode(t, S("hello A\xff <s>"), true, 100, &l), 0);
			ig_ids_finish(&l);
		}
		ig_tokenizer_close(t);
		free(part);
	}
	free(copy);
}

static void cut_anywhere(void **state)
{
	struct ig_strbuf b;
	char map[TINY_MAP_MAX];

	for (int kind = 0; kind < 3; kind++) {
		tiny_json(&b, &(struct tiny_json){ .kind = (enum tiny_kind)kind });
		cut("tokenizer.json", b.data, b.len, 13);
		ig_strbuf_finish(&b);
	}
	tiny_spm_model(&b, &(struct tiny_model){
				   .type = 1, .charsmap = map, .n_charsmap = tiny_charsmap(map) });
	cut("tokenizer.model", b.data, b.len, 11);
	ig_strbuf_finish(&b);
	tiny_tekken(&b, NULL, NULL);
	cut("tekken.json", b.data, b.len, 29);
	ig_strbuf_finish(&b);
}

/* ---- tokenizer.model ------------------------------------------------------------------------ */

#undef B
#define B(c) (SPM_BYTE + (unsigned char)(c))

static struct ig_tokenizer *model_opened(const struct tiny_model *o, struct tiny_folder *f)
{
	struct ig_strbuf b;

	tiny_spm_model(&b, o);
	tiny_put(f, "tokenizer.model", b.data, b.len);
	struct ig_tokenizer *t = opened(f);
	ig_strbuf_finish(&b);
	return t;
}

static void sentencepiece(void **state)
{
	struct tiny_folder f = { 0 };
	char map[TINY_MAP_MAX];
	size_t n_map = tiny_charsmap(map);
	struct ig_tokenizer *t = model_opened(&(struct tiny_model){ .type = 2 }, &f);

	becomes(t, S("xhello lo"), 0, SPM_SPACE, SPM_X, SPM_HELLO, SPM_SPACE, SPM_L, SPM_O, -1);
	becomes(t, S("<s>a"), 1, SPM_START, SPM_SPACE, B('a'), -1);
	assert_int_equal(ig_tokenizer_bos(t), SPM_START);
	assert_true(ig_tokenizer_add_bos(t) && ig_tokenizer_is_end(t, SPM_END));
	assert_true(ig_tokenizer_adds_space(t) && !ig_tokenizer_trims(t));
	ig_tokenizer_close(t);
	f.n = 0;
	t = model_opened(&(struct tiny_model){ .type = 1, .no_space = true }, &f);
	becomes(t, S("xhello"), 0, SPM_X, SPM_HELLO, -1);
	assert_false(ig_tokenizer_add_bos(t) || ig_tokenizer_adds_space(t));
	ig_tokenizer_close(t);
	/* The longest replacement; one by nothing, which keeps the space before. */
	for (uint64_t type = 1; type <= 2; type++) {
		f.n = 0;
		t = model_opened(
			&(struct tiny_model){ .type = type, .charsmap = map, .n_charsmap = n_map },
			&f);
		becomes(t,
			S("ABA\xff"
			  "AC"),
			0, SPM_SPACE, SPM_X, B('a'), B(0xff), B('a'), B('C'), -1);
		becomes(t, S("\1"), 0, SPM_SPACE, -1);
		becomes(t, S(""), 0, -1);
		becomes(t, S("<tool>"), 0, SPM_SPACE, SPM_TOOL, -1);
		ig_tokenizer_close(t);
		f.n = 0;
		t = model_opened(
			&(struct tiny_model){
				.type = type, .charsmap = map, .trim = true, .n_charsmap = n_map },
			&f);
		becomes(t, S(" \1 "), 0, -1);
		ig_tokenizer_close(t);
	}
	/* Tokens of the files beside it. */
	static const char config[] =
		"{\"added_tokens_decoder\": {\"279\": {\"content\": \"<|im_end|>\", \"special\": "
		"true},"
		"\"278\": {\"content\": \"<new>\", \"special\": false}}, \"add_bos_token\": false}";
	static const char added[] = "{\"<other>\": 281, \"<new>\": 278}";
	f.n = 0;
	tiny_put(&f, "config.json", S("{\"vocab_size\": 290}"));
	tiny_put(&f, "tokenizer_config.json", S(config));
	tiny_put(&f, "added_tokens.json", S(added));
	t = model_opened(&(struct tiny_model){ .type = 2 }, &f);
	assert_int_equal(N_SPM, 278);
	assert_int_equal(ig_tokenizer_n_vocab(t), 290);
	becomes(t, S("x<new>x"), 0, SPM_SPACE, SPM_X, 278, SPM_X, -1);
	becomes(t, S("x<|im_end|><other>"), 1, SPM_SPACE, SPM_X, 279, 281, -1);
	assert_true(ig_tokenizer_is_end(t, 279) && !ig_tokenizer_add_bos(t));
	ig_tokenizer_close(t);
}

static void model_refusals(void **state)
{
	static const struct {
		struct tiny_model o;
		int code;
		const char *text;
	} cases[] = {
		{ { .type = 3 }, -ENOTSUP, "model_type 3" },
		{ { .type = 2, .field = 24, .value = 1 }, -ENOTSUP, "treat_whitespace_as_suffix" },
		{ { .type = 2, .field = 105 }, -ENOTSUP, "escape_whitespaces is false" },
		{ { .type = 2, .no_fallback = true }, -ENOTSUP, "without byte_fallback" },
		{ { .type = 2, .denormal = true }, -ENOTSUP, "a denormalizer_spec" },
		{ { .type = 2, .charsmap = "\4\0\0\0zzzz", .n_charsmap = 7 },
		  -EINVAL,
		  "precompiled_charsmap" },
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct tiny_folder f = { 0 };
		struct ig_strbuf b;
		tiny_spm_model(&b, &cases[i].o);
		tiny_put(&f, "tokenizer.model", b.data, b.len);
		refused(&f, cases[i].code, cases[i].text);
		ig_strbuf_finish(&b);
	}
	static const struct {
		const char *data;
		size_t len;
		const char *text;
	} wrong[] = {
		{ S(""), "tokenizer.model has 0 tokens" },
		{ S("\x0a\x05"), "byte 0: not a field" },
		{ S("\x08\x01"), "a message is of a wrong type" },
		{ S("\x0a\x02\x08\x01"), "a piece is of a wrong type" },
		{ S("\x0a\x05\x15\0\0\x80\x7f"), "a piece's score is of a wrong type" },
		{ S("\x0a\x02\x18\x07"), "a piece's type is of a wrong type" },
		{ S("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), "byte 0: not a field" },
	};
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		struct tiny_folder f = { 0 };
		tiny_put(&f, "tokenizer.model", wrong[i].data, wrong[i].len);
		refused(&f, -EINVAL, wrong[i].text);
	}
}

/* ---- tekken.json --------------------------------------------------------------------------------
 */

static void tekken(void **state)
{
	static const char special[] =
		"\"special_tokens\": [{\"rank\": 4, \"token_str\": \"[END]\"}],";
	struct tiny_folder f = { 0 };
	struct ig_tokenizer *t;
	struct ig_strbuf b;

	assert_int_equal(N_TK, 265); /* as below */
	tiny_tekken(&b, NULL, NULL);
	tiny_put(&f, "tekken.json", b.data, b.len);
	t = opened(&f);
	becomes(t, S("hello \xff"), 0, TK_HELLO, TK_BYTE + ' ', TK_BYTE + 0xff, -1);
	becomes(t, S("<s>[INST]hell[/INST]</s>"), 1, 1, 3, TK_HELL, 4, 2, -1);
	assert_true(ig_tokenizer_bos(t) == 1 && ig_tokenizer_add_bos(t) &&
		    ig_tokenizer_is_end(t, 2));
	ig_tokenizer_close(t);
	ig_strbuf_finish(&b);
	tiny_tekken(&b, ", {\"rank\": \"more than the model has\"}", special);
	f.n = 0;
	tiny_put(&f, "tekken.json", b.data, b.len);
	t = opened(&f);
	becomes(t, S("<SPECIAL_3>[END]"), 1, 3, 4, -1);
	ig_tokenizer_close(t);
	ig_strbuf_finish(&b);
	static const struct {
		const char *from, *to, *text;
		int code;
	} wrong[] = {
		{ "265", "999", "fewer tokens than default_vocab_size says", -EINVAL },
		{ "\"rank\": 7,", "\"rank\": 8,", "rank is not its index", -EINVAL },
		{ "aGVsbA==", "eHl6eA==", "is not merged from two of lower rank", -ENOTSUP },
		{ "aGVsbA==", "aGVsb###", "not base64", -EINVAL },
		{ "AQ==", "AA==", "of another token", -EINVAL },
		{ "pattern", "Pattern", "no pattern", -EINVAL },
		{ "\\\\p{L}+", "\\\\w{L}+", "an unknown escape", -ENOTSUP },
	};
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		tiny_tekken(&b, NULL, NULL);
		size_t size = strlen(b.data) + 16;
		char *text = calloc(size, 1), *at = strstr(b.data, wrong[i].from);
		assert_true(text && at);
		snprintf(text, size, "%.*s%s%s", (int)(at - b.data), b.data, wrong[i].to,
			 at + strlen(wrong[i].from));
		f.n = 0;
		tiny_put(&f, "tekken.json", text, strlen(text));
		refused(&f, wrong[i].code, wrong[i].text);
		free(text);
		ig_strbuf_finish(&b);
	}
}

/* ---- the files beside --------------------------------------------------------------------------
 */

static void beside(void **state)
{
	static const char config[] = "{\"bos_token\": null, \"eos_token\": {\"content\": \"</s>\"},"
				     "\"add_bos_token\": false}";
	static const char generation[] = "{\"eos_token_id\": [3, 2, 99999], \"bos_token_id\": 1}";
	struct tiny_folder f = { 0 };
	struct ig_tokenizer *t;
	struct ig_strbuf b;

	tiny_json(&b, &(struct tiny_json){ .post_processor = "null" });
	refused(&f, -ENOENT, "");
	tiny_put(&f, "tokenizer.json", b.data, b.len);
	t = opened(&f);
	assert_int_equal(ig_tokenizer_bos(t), -1);
	assert_false(ig_tokenizer_add_bos(t));
	assert_true(ig_tokenizer_is_end(t, TJ_END)); /* by its name */
	ig_tokenizer_close(t);
	tiny_put(&f, "special_tokens_map.json",
		 S("{\"bos_token\": \"<s>\", \"eos_token\": \"<tool>\"}"));
	t = opened(&f);
	assert_int_equal(ig_tokenizer_bos(t), 1);
	ig_tokenizer_close(t);
	tiny_put(&f, "tokenizer_config.json", S(config));
	t = opened(&f);
	assert_int_equal(ig_tokenizer_bos(t), -1); /* which counts before the map */
	assert_true(ig_tokenizer_is_end(t, 2));
	ig_tokenizer_close(t);
	tiny_put(&f, "generation_config.json", S(generation));
	tiny_put(&f, "config.json",
		 S("{\"text_config\": {\"eos_token_id\": 0, \"vocab_size\": 300}}"));
	t = opened(&f);
	assert_int_equal(ig_tokenizer_bos(t), 1);
	assert_false(ig_tokenizer_add_bos(t));
	assert_true(ig_tokenizer_is_end(t, 3) && ig_tokenizer_is_end(t, 2) &&
		    ig_tokenizer_is_end(t, 0));
	assert_false(ig_tokenizer_is_end(t, 1));
	assert_int_equal(ig_tokenizer_n_vocab(t), 300); /* the model's rows */
	ig_tokenizer_close(t);
	f.files[f.n - 1].data = "{\"eos_token_id\": \"x\"}";
	f.files[f.n - 1].len = strlen(f.files[f.n - 1].data);
	refused(&f, -EINVAL, "config.json: eos_token_id is not a number");
	f.files[f.n - 1].data = "[1]";
	f.files[f.n - 1].len = 3;
	refused(&f, -EINVAL, "config.json is not an object");
	f.files[f.n - 1].data = "{\"a\": }";
	f.files[f.n - 1].len = 7;
	refused(&f, -EINVAL, "config.json: byte ");
	ig_strbuf_finish(&b);
}

static void chat(void **state)
{
	static const char list[] =
		"{\"bos_token\": \"<s>\", \"chat_template\": [{\"name\": \"tool_use\","
		" \"template\": \"tools\"},"
		"{\"name\": \"default\", \"template\": "
		"\"{{ bos_token }}{{ messages[0].content }}</s>\"}]}";
	struct tiny_message m = { "user", "hello</s>", 9 };
	struct tiny_folder f = { 0 };
	struct ig_model_files files = tiny_model_files(&f);
	struct ig_chat_template *c;
	struct ig_error err = { 0 };
	struct ig_tokenizer *t;
	struct ig_ids l = { 0 };
	struct ig_strbuf b;
	const char *s;
	size_t len;

	tiny_json(&b, &(struct tiny_json){ 0 });
	tiny_put(&f, "tokenizer.json", b.data, b.len);
	t = opened(&f);
	assert_int_equal(ig_chat_template_open_files(&files, t, &c, &err), -ENOENT);
	tiny_put(&f, "tokenizer_config.json", S(list));
	assert_int_equal(ig_chat_template_open_files(&files, t, &c, &err), 0);
	/* The template's tokens are tokens, a client's text is text; one BOS. */
	assert_int_equal(tiny_encode(c, &m, 1, false, 100, &l, &err), 0);
	const int32_t want[] = { TJ_START,	TJ_HELLO,      TJ_BYTE + '<', TJ_BYTE + '/',
				 TJ_BYTE + 's', TJ_BYTE + '>', TJ_END };
	assert_int_equal(l.n, 7);
	assert_memory_equal(l.ids, want, sizeof want);
	s = ig_chat_template_source(c, 1, &len);
	assert_true(len == 5 && !memcmp(s, "tools", 5));
	assert_null(ig_chat_template_source(c, 2, &len));
	ig_ids_finish(&l);
	ig_chat_template_close(c);
	/* A file of its own counts before it. */
	tiny_put(&f, "chat_template.jinja", S("jinja"));
	assert_int_equal(ig_chat_template_open_files(&files, t, &c, &err), 0);
	s = ig_chat_template_source(c, 0, &len);
	assert_true(len == 5 && !memcmp(s, "jinja", 5));
	assert_non_null(ig_chat_template_source(c, 1, &len));
	ig_chat_template_close(c);
	f.n = 1;
	tiny_put(&f, "tokenizer_config.json", S("{\"chat_template\": \"{{\"}"));
	assert_int_equal(ig_chat_template_open_files(&files, t, &c, &err), -ENOTSUP);
	f.n = 1;
	tiny_put(&f, "tokenizer_config.json", S("{\"chat_template\": \"<|im_start|>\"}"));
	assert_int_equal(ig_chat_template_open_files(&files, t, &c, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "ChatML"));
	f.n = 1;
	tiny_put(&f, "tokenizer_config.json", S("{\"chat_template\": [{\"name\": \"x\"}]}"));
	assert_int_equal(ig_chat_template_open_files(&files, t, &c, &err), -ENOTSUP);
	ig_tokenizer_close(t);
	ig_strbuf_finish(&b);
}

/* ---- a folder
 * ------------------------------------------------------------------------------------ */

static void put_file(const char *folder, const char *name, const void *data, size_t len)
{
	char path[512];

	snprintf(path, sizeof path, "%s/%s", folder, name);
	FILE *f = fopen(path, "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, len, f), len);
	assert_int_equal(fclose(f), 0);
}

/* Weights, a tokenizer and a chat template, opened as the daemon does. */
static void folder(void **state)
{
	static const char *const names[] = {
		"config.json",
		"model.safetensors",
		"tokenizer.json",
		"tokenizer_config.json",
	};
	static const char config[] =
		"{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\","
		"\"hidden_size\": 4, \"intermediate_size\": 4, \"num_hidden_layers\": 1,"
		"\"num_attention_heads\": 1, \"num_key_value_heads\": 1, \"vocab_size\": 270,"
		"\"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 64, \"eos_token_id\": 3,"
		"\"tie_word_embeddings\": true}";
	static const char header[] = "{\"model.embed_tokens.weight\": {\"dtype\": \"F32\","
				     "\"shape\": [2, 4], \"data_offsets\": [0, 32]}}";
	static const char chat_config[] =
		"{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\","
		"\"chat_template\": \"{{ bos_token }}{{ messages[0].content }}\"}";
	const char *tmp = getenv("TMPDIR");
	struct tiny_message m = { "user", "hello", 5 };
	struct ig_chat_template *c = NULL;
	unsigned char weights[8 + sizeof header - 1 + 32] = { sizeof header - 1 };
	struct ig_error err = { 0 };
	struct ig_checkpoint *g;
	struct ig_tokenizer *t;
	struct ig_ids l = { 0 };
	struct ig_strbuf b;
	char dir[256];

	snprintf(dir, sizeof dir, "%s/ingot-XXXXXX", tmp ? tmp : "/tmp");
	assert_non_null(mkdtemp(dir));
	memcpy(weights + 8, header, sizeof header - 1);
	put_file(dir, names[0], config, sizeof config - 1);
	put_file(dir, names[1], weights, sizeof weights);
	if (ig_checkpoint_open(dir, test_archs, &g, &err))
		fail_msg("%s", err.text);
	assert_int_equal(ig_tokenizer_open(g, &t, &err), -ENOENT);
	assert_non_null(strstr(err.text, dir));
	assert_non_null(strstr(err.text, "no tokenizer.json, tokenizer.model or tekken.json"));
	ig_checkpoint_close(g);
	tiny_json(&b, &(struct tiny_json){ .kind = TINY_PAIRS });
	put_file(dir, names[2], b.data, b.len);
	put_file(dir, names[3], chat_config, sizeof chat_config - 1);
	assert_int_equal(ig_checkpoint_open(dir, test_archs, &g, &err), 0);
	if (ig_tokenizer_open(g, &t, &err) || ig_chat_template_open(g, t, &c, &err))
		fail_msg("%s", err.text);
	assert_int_equal(tiny_encode(c, &m, 1, false, 100, &l, &err), 0);
	assert_true(l.n == 2 && l.ids[0] == TJ_START && l.ids[1] == TJ_SPACE_HELLO);
	assert_true(ig_tokenizer_is_end(t, TJ_END) && ig_tokenizer_is_end(t, TJ_USER));
	ig_ids_finish(&l);
	ig_chat_template_close(c);
	ig_tokenizer_close(t);
	ig_checkpoint_close(g);
	put_file(dir, names[2], "{", 1);
	assert_int_equal(ig_checkpoint_open(dir, test_archs, &g, &err), 0);
	assert_int_equal(ig_tokenizer_open(g, &t, &err), -EINVAL);
	assert_non_null(strstr(err.text, "tokenizer.json: byte 1: no string"));
	ig_checkpoint_close(g);
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		char path[512];
		snprintf(path, sizeof path, "%s/%s", dir, names[i]);
		assert_int_equal(unlink(path), 0);
	}
	assert_int_equal(rmdir(dir), 0);
	ig_strbuf_finish(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes),	 cmocka_unit_test(pairs),
		cmocka_unit_test(unigram),	 cmocka_unit_test(json_refusals),
		cmocka_unit_test(sentencepiece), cmocka_unit_test(model_refusals),
		cmocka_unit_test(tekken),	 cmocka_unit_test(beside),
		cmocka_unit_test(chat),		 cmocka_unit_test(cut_anywhere),
		cmocka_unit_test(folder),
	};

	return cmocka_run_group_tests_name("model/tokenizer_files", tests, NULL, NULL);
}
