/* test_tokenizer_keys.c: a folder's vocabulary as keys: the same ids, or a refusal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "model/tokenizer/keys.h"

#include "tests/archs.h"
#include "tiny_files.h"

static const char config_json[] =
	"{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"vocab_size\": 279,"
	"\"hidden_size\": 32, \"intermediate_size\": 32, \"num_hidden_layers\": 1,"
	"\"num_attention_heads\": 1, \"num_key_value_heads\": 1, \"max_position_embeddings\": 64,"
	"\"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0, \"hidden_act\": \"silu\","
	"\"tie_word_embeddings\": true}";
static const char tokenizer_config_json[] =
	"{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"unk_token\": \"<unk>\","
	"\"chat_template\": [{\"name\": \"default\", \"template\": \"plain\"},"
	"{\"name\": \"tools\", \"template\": \"with tools\"}]}";

/* One norm of 32 floats. */
static void weights(struct ig_strbuf *b)
{
	static const char head[] = "{\"model.norm.weight\":{\"dtype\":\"F32\",\"shape\":[32],"
				   "\"data_offsets\":[0,128]}}   ";
	static const char zeros[128];
	uint64_t n = sizeof head - 1;

	*b = (struct ig_strbuf){ 0 };
	ig_strbuf_add(b, &n, sizeof n);
	ig_strbuf_add(b, head, n);
	ig_strbuf_add(b, zeros, sizeof zeros);
	assert_true(ig_strbuf_ok(b));
}

struct folder {
	const char *config; /* NULL: config_json */
	struct ig_strbuf weights, vocabulary, second;
	struct ig_checkpoint_file files[5];
	struct ig_checkpoint *g;
};

/* A folder with one vocabulary's file, or two of them. */
static void open_folder(struct folder *f, const char *name, const char *second)
{
	struct ig_error err = { 0 };

	weights(&f->weights);
	const struct ig_checkpoint_file files[] = {
		{ "config.json", f->config ? f->config : config_json,
		  strlen(f->config ? f->config : config_json) },
		{ "model.safetensors", f->weights.data, f->weights.len },
		{ "tokenizer_config.json", tokenizer_config_json,
		  sizeof tokenizer_config_json - 1 },
		{ name ? name : "other", f->vocabulary.data, f->vocabulary.len },
		{ second ? second : "another", f->second.data, f->second.len },
	};
	memcpy(f->files, files, sizeof files);
	if (ig_checkpoint_open_files(f->files, name ? second ? 5 : 4 : 3, "folder", test_archs,
				     &f->g, &err))
		fail_msg("%s", err.text);
}

static void finish(struct folder *f)
{
	ig_checkpoint_close(f->g);
	ig_strbuf_finish(&f->weights);
	ig_strbuf_finish(&f->vocabulary);
	ig_strbuf_finish(&f->second);
}

/* The keys give the folder's ids. */
static void says_the_same(struct folder *f, const char *model)
{
	static const char text[] = "hello  lo a\xff<tool> <s> \xe2\x96\x81 hellohell 123 \n";
	struct ig_tokenizer *a, *b;
	struct ig_tokenizer_keys k;
	struct ig_error err = { 0 };
	struct ig_ids x = { 0 }, y = { 0 };
	const char *s;
	size_t len;
	uint64_t n = 0;

	if (ig_tokenizer_keys_make(f->g, &k, &err))
		fail_msg("%s", err.text);
	assert_int_equal(ig_checkpoint_str(k.file, "tokenizer.ggml.model", &s, &len, &err), 0);
	assert_true(len == strlen(model) && !memcmp(s, model, len));
	assert_int_equal(ig_checkpoint_str(k.file, "tokenizer.chat_template", &s, &len, &err), 0);
	assert_true(len == 5 && !memcmp(s, "plain", 5));
	assert_int_equal(ig_checkpoint_str(k.file, "tokenizer.chat_template.tools", &s, &len, &err),
			 0);
	assert_true(len == 10 && !memcmp(s, "with tools", 10));
	assert_int_equal(ig_checkpoint_array_len(k.file, "tokenizer.chat_templates", &n, &err), 0);
	assert_int_equal(n, 1);
	assert_int_equal(ig_tokenizer_open(f->g, &a, &err), 0);
	assert_int_equal(ig_tokenizer_open(k.file, &b, &err), 0);
	for (int special = 0; special < 2; special++) {
		x.n = y.n = 0;
		assert_int_equal(ig_tokenizer_encode(a, text, sizeof text - 1, special, 1000, &x),
				 0);
		assert_int_equal(ig_tokenizer_encode(b, text, sizeof text - 1, special, 1000, &y),
				 0);
		assert_int_equal(x.n, y.n);
		assert_memory_equal(x.ids, y.ids, x.n * sizeof *x.ids);
	}
	assert_int_equal(ig_tokenizer_n_vocab(a), ig_tokenizer_n_vocab(b));
	assert_int_equal(ig_tokenizer_bos(a), ig_tokenizer_bos(b));
	for (int32_t id = 0; id < ig_tokenizer_n_vocab(a); id++) {
		bool control_a, control_b;
		size_t n_a, n_b;
		const char *t_a = ig_tokenizer_token(a, id, &n_a, &control_a);
		const char *t_b = ig_tokenizer_token(b, id, &n_b, &control_b);
		assert_true(n_a == n_b && !memcmp(t_a, t_b, n_a) && control_a == control_b);
		assert_int_equal(ig_tokenizer_is_end(a, id), ig_tokenizer_is_end(b, id));
	}
	ig_ids_finish(&x);
	ig_ids_finish(&y);
	ig_tokenizer_close(a);
	ig_tokenizer_close(b);
	ig_tokenizer_keys_finish(&k);
}

static void is_refused(struct folder *f, const char *why)
{
	struct ig_tokenizer_keys k;
	struct ig_error err = { 0 };

	assert_int_equal(ig_tokenizer_keys_make(f->g, &k, &err), -ENOTSUP);
	if (!strstr(err.text, why) || strncmp(err.text, "folder: ", 8))
		fail_msg("%s", err.text);
	assert_null(k.data);
	assert_null(k.file);
	ig_tokenizer_keys_finish(&k);
}

static void bytes(void **state)
{
	static const char *const cuts[] = {
		NULL,
		"{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\", "
		"\"individual_digits\": true}, {\"type\": \"ByteLevel\", \"add_prefix_space\": false}]}",
	};

	for (size_t i = 0; i < 2; i++) {
		struct folder f = { 0 };
		tiny_json(&f.vocabulary,
			  &(struct tiny_json){ .kind = TINY_BYTES, .pre_tokenizer = cuts[i] });
		open_folder(&f, "tokenizer.json", NULL);
		says_the_same(&f, "gpt2");
		finish(&f);
	}
}

/* Of a model of embeddings the token behind a text, which readers know as the end of a sequence; another model's
 * prompt has none. */
static void behind_a_text(void **state)
{
	static const char embeds[] =
		"{\"architectures\": [\"Qwen3ForCausalLM\"], \"model_type\": \"qwen3\", \"vocab_size\": 279,"
		"\"hidden_size\": 32, \"intermediate_size\": 32, \"num_hidden_layers\": 1,"
		"\"num_attention_heads\": 1, \"tie_word_embeddings\": true}";
	static const char pooling[] = "{\"pooling_mode_lasttoken\": true}";
	const struct tiny_json puts_tool = {
		.kind = TINY_BYTES,
		.post_processor =
			"{\"type\": \"Sequence\", \"processors\": [{\"type\": \"ByteLevel\"},"
			"{\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": {\"id\": "
			"\"A\"}}, {\"SpecialToken\": {\"id\": \"<tool>\"}}], \"special_tokens\": "
			"{\"<tool>\": {\"ids\": [3]}}}]}"
	};

	for (int pools = 0; pools < 2; pools++) {
		struct folder f = { .config = pools ? embeds : NULL };
		struct ig_tokenizer_keys k;
		struct ig_tokenizer *t;
		struct ig_error err = { 0 };
		bool add = false;
		tiny_json(&f.vocabulary, &puts_tool);
		ig_strbuf_puts(&f.second, pooling);
		open_folder(&f, "tokenizer.json", pools ? "1_Pooling/config.json" : NULL);
		if (ig_tokenizer_keys_make(f.g, &k, &err))
			fail_msg("%s", err.text);
		assert_int_equal(
			ig_checkpoint_bool(k.file, "tokenizer.ggml.add_eos_token", &add, &err),
			pools ? 0 : -ENOENT);
		assert_int_equal(add, pools);
		assert_int_equal(ig_tokenizer_open(k.file, &t, &err), 0);
		assert_int_equal(ig_tokenizer_suffix(t), pools ? TJ_USER : -1);
		assert_true(ig_tokenizer_is_end(t, TJ_END));
		ig_tokenizer_close(t);
		ig_tokenizer_keys_finish(&k);
		finish(&f);
	}
}

static void bytes_that_keys_cant_say(void **state)
{
	static const struct tiny_json odd[] = {
		{ .kind = TINY_BYTES,
		  .pre_tokenizer = "{\"type\": \"ByteLevel\", \"add_prefix_space\": true}" },
		{ .kind = TINY_BYTES,
		  .normalizer = "{\"type\": \"Replace\", \"pattern\": {\"String\": \"e\"}, "
				"\"content\": \"o\"}" },
	};

	for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
		struct folder f = { 0 };
		tiny_json(&f.vocabulary, &odd[i]);
		open_folder(&f, "tokenizer.json", NULL);
		is_refused(&f, "no name there");
		finish(&f);
	}
}

static void sentencepiece(void **state)
{
	struct folder f = { 0 };

	tiny_spm_model(&f.vocabulary, &(struct tiny_model){ .type = 2 });
	open_folder(&f, "tokenizer.model", NULL);
	says_the_same(&f, "llama");
	finish(&f);

	tiny_spm_model(&f.vocabulary, &(struct tiny_model){ .type = 2, .no_space = true });
	open_folder(&f, "tokenizer.model", NULL);
	says_the_same(&f, "llama");
	finish(&f);

	tiny_spm_model(&f.vocabulary, &(struct tiny_model){ .type = 1 });
	open_folder(&f, "tokenizer.model", NULL);
	says_the_same(&f, "t5");
	finish(&f);

	tiny_spm_model(&f.vocabulary, &(struct tiny_model){ .type = 1, .no_space = true });
	open_folder(&f, "tokenizer.model", NULL);
	says_the_same(&f, "t5");
	finish(&f);
}

/* tokenizer.json with merges between characters: its ranks as scores. */
static void pairs(void **state)
{
	static const struct tiny_json json = {
		.kind = TINY_PAIRS,
		.added = "[{\"id\": 0, \"content\": \"<unk>\", \"special\": true},"
			 "{\"id\": 1, \"content\": \"<s>\", \"special\": true},"
			 "{\"id\": 2, \"content\": \"</s>\", \"special\": true}]",
	};
	struct folder f = { 0 };

	tiny_json(&f.vocabulary, &json);
	open_folder(&f, "tokenizer.json", NULL);
	says_the_same(&f, "llama");
	finish(&f);

	/* A tokenizer.model beside it that differs is not used. */
	tiny_json(&f.vocabulary, &json);
	tiny_spm_model(&f.second, &(struct tiny_model){ .type = 2 });
	open_folder(&f, "tokenizer.json", "tokenizer.model");
	says_the_same(&f, "llama");
	finish(&f);

	/* A space before what follows a user's token: not what scores do. */
	tiny_json(&f.vocabulary, &(struct tiny_json){ .kind = TINY_PAIRS });
	open_folder(&f, "tokenizer.json", NULL);
	is_refused(&f, "don't follow from scores");
	finish(&f);
}

/* WordPiece with this normalizer and longest word. */
static void word_pieces(struct ig_strbuf *b, const char *normalizer, int longest)
{
	static const char *const names[] = { "[PAD]", "[UNK]", "[CLS]", "[SEP]" };

	*b = (struct ig_strbuf){ 0 };
	ig_strbuf_puts(b, "{\"added_tokens\": [");
	for (int i = 0; i < 4; i++)
		ig_strbuf_printf(b, "{\"id\": %d, \"content\": \"%s\", \"special\": true}%s", i,
				 names[i], i < 3 ? "," : "");
	ig_strbuf_printf(
		b,
		"], \"normalizer\": {\"type\": \"BertNormalizer\", \"clean_text\": true, "
		"\"handle_chinese_chars\": true, %s}, "
		"\"pre_tokenizer\": {\"type\": \"BertPreTokenizer\"}, \"post_processor\": "
		"{\"type\": \"TemplateProcessing\", \"single\": ["
		"{\"SpecialToken\": {\"id\": \"[CLS]\", \"type_id\": 0}}, "
		"{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, "
		"{\"SpecialToken\": {\"id\": \"[SEP]\", \"type_id\": 0}}], \"pair\": ["
		"{\"SpecialToken\": {\"id\": \"[CLS]\", \"type_id\": 0}}, "
		"{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, "
		"{\"SpecialToken\": {\"id\": \"[SEP]\", \"type_id\": 0}}, "
		"{\"Sequence\": {\"id\": \"B\", \"type_id\": 1}}, "
		"{\"SpecialToken\": {\"id\": \"[SEP]\", \"type_id\": 1}}], \"special_tokens\": "
		"{\"[CLS]\": {\"ids\": [2]}, \"[SEP]\": {\"ids\": [3]}}}, "
		"\"decoder\": {\"type\": \"WordPiece\", \"prefix\": \"##\"}, "
		"\"model\": {\"type\": \"WordPiece\", \"unk_token\": \"[UNK]\", "
		"\"continuing_subword_prefix\": \"##\", \"max_input_chars_per_word\": %d, "
		"\"vocab\": {\"[PAD]\": 0, \"[UNK]\": 1, \"[CLS]\": 2, \"[SEP]\": 3, "
		"\"hello\": 4, \"##hell\": 5, \"lo\": 6, \"a\": 7, \"1\": 8, \"##2\": 9, "
		"\"##3\": 10, \"<\": 11, \"tool\": 12, \"##tool\": 13}}}",
		normalizer, longest);
	assert_true(ig_strbuf_ok(b));
}

static void words(void **state)
{
	static const struct {
		const char *normalizer;
		int longest;
		const char *why; /* NULL: it can be said */
	} cases[] = {
		{ "\"strip_accents\": null, \"lowercase\": true", 100, NULL },
		{ "\"strip_accents\": true, \"lowercase\": true", 100, NULL },
		{ "\"strip_accents\": null, \"lowercase\": false", 100, "with case or accents" },
		{ "\"strip_accents\": false, \"lowercase\": true", 100, "with case or accents" },
		{ "\"strip_accents\": null, \"lowercase\": true", 50, "in another way" },
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct folder f = { 0 };
		word_pieces(&f.vocabulary, cases[i].normalizer, cases[i].longest);
		open_folder(&f, "tokenizer.json", NULL);
		if (cases[i].why)
			is_refused(&f, cases[i].why);
		else
			says_the_same(&f, "bert");
		finish(&f);
	}
}

static void no_vocabulary(void **state)
{
	struct ig_tokenizer_keys k;
	struct ig_error err = { 0 };
	struct folder f = { 0 };

	open_folder(&f, NULL, NULL);
	assert_int_equal(ig_tokenizer_keys_make(f.g, &k, &err), -ENOENT);
	finish(&f);
	f.vocabulary = (struct ig_strbuf){ 0 };
	ig_strbuf_puts(&f.vocabulary, "{\"model\": 7");
	open_folder(&f, "tokenizer.json", NULL);
	assert_int_equal(ig_tokenizer_keys_make(f.g, &k, &err), -EINVAL);
	finish(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes),	 cmocka_unit_test(bytes_that_keys_cant_say),
		cmocka_unit_test(behind_a_text), cmocka_unit_test(sentencepiece),
		cmocka_unit_test(pairs),	 cmocka_unit_test(words),
		cmocka_unit_test(no_vocabulary),
	};

	return cmocka_run_group_tests_name("model/tokenizer_keys", tests, NULL, NULL);
}
