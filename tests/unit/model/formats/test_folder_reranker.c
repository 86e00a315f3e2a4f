/* test_folder_reranker.c: which folders of Qwen 3 are rerankers, and the rows that score. */
#include "folder_case.h"

#include "tests/archs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define QWEN3                                                                                         \
	"{\"model_type\":\"qwen3\",\"architectures\":[\"Qwen3ForCausalLM\"],\"num_hidden_layers\":1," \
	"\"hidden_size\":2,\"num_attention_heads\":1,\"tie_word_embeddings\":true}"
#define SCORED(labels)                                                                             \
	"{\"model_type\":\"qwen3\",\"architectures\":[\"Qwen3ForSequenceClassification\"],"        \
	"\"num_hidden_layers\":1,\"hidden_size\":2,\"num_attention_heads\":1,"                     \
	"\"tie_word_embeddings\":false,\"id2label\":" labels "}"
#define MODULES "[{\"idx\":1,\"path\":\"1_LogitScore\",\"type\":\"a.b.LogitScore\"}]"
#define VOCAB(yes)                                                                                 \
	"{\"added\":[],\"model\":{\"type\":\"BPE\",\"vocab\":{\"no\":0,\"a\":1," yes "}}}"

struct beside {
	const char *name, *text;
};

/* A folder of three tokens whose rows are 0 1, 2 3, 4 5, with two files more. */
static int open_with(const char *config, const struct beside more[2], struct opened *o,
		     struct ig_error *err)
{
	struct ig_checkpoint_file files[4] = { { "config.json", config, strlen(config) } };
	size_t len, n = 2;

	folder_fill_f32(8);
	o->file = folder_make_file(
		strstr(config, "SequenceClass") ?
			"{" T("model.embed_tokens.weight", "F32", "[3,2]", 0,
			      24) "," T("score.weight", "F32", "[1,2]", 24, 32) "}" :
			"{" T("model.embed_tokens.weight", "F32", "[3,2]", 0, 24) "}",
		strstr(config, "SequenceClass") ? 32 : 24, &len);
	files[1] = (struct ig_checkpoint_file){ "model.safetensors", o->file, len };
	for (int i = 0; i < 2 && more[i].name; i++)
		files[n++] = (struct ig_checkpoint_file){ more[i].name, more[i].text,
							  strlen(more[i].text) };
	*err = (struct ig_error){ 0 };
	return ig_checkpoint_open_files(files, n, "dir", test_archs, &o->g, err);
}

static void rerankers(void **state)
{
	static const struct {
		struct beside more[2];
		int64_t n_rows;
		float first, last;
	} good[] = {
		{ { { "README.md", "---\n# QWEN3-Reranker-9B" },
		    { "tokenizer.json", VOCAB("\"yes\":2") } },
		  2,
		  4,
		  1 },
		{ { { "modules.json", MODULES },
		    { "1_LogitScore/config.json", "{\"true_token_id\":1,\"false_token_id\":2}" } },
		  2,
		  2,
		  5 },
		{ { { "modules.json", MODULES },
		    { "1_LogitScore/config.json",
		      "{\"true_token_id\":1,\"false_token_id\":null}" } },
		  1,
		  2,
		  3 },
	};

	for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
		const struct ig_checkpoint_tensor *t;
		struct ig_error err;
		struct opened o;
		const char *s;
		size_t len;
		if (open_with(QWEN3, good[i].more, &o, &err))
			fail_msg("%s", err.text);
		assert_int_equal(folder_u32(o.g, "qwen3.pooling_type"), 4);
		t = folder_tensor(&o, "cls.output.weight", IG_F32, good[i].n_rows, 2);
		assert_true(folder_value(&o, t, 0, 0) == good[i].first);
		assert_true(folder_value(&o, t, good[i].n_rows - 1, 1) == good[i].last);
		assert_int_equal(
			ig_checkpoint_str(o.g, "tokenizer.chat_template.rerank", &s, &len, &err),
			0);
		assert_int_equal(len, 368);
		assert_memory_equal(s, "<|im_start|>system\n", 19);
		folder_closed(&o);
	}
}

/* The row of a conversion to a classifier, which has no output matrix, and its prompt if its name says which one. */
static void classifiers(void **state)
{
	static const struct beside more[][2] = { { { "README.md", "# Qwen3-Reranker-9B-seq-cls" } },
						 { { "README.md", "# another" } } };
	struct ig_error err;
	struct opened o;
	int rc;

	for (int i = 0; i < 2; i++) {
		const struct ig_checkpoint_tensor *t;
		const char *s;
		size_t len;
		if (open_with(SCORED("{\"0\":\"LABEL_0\"}"), more[i], &o, &err))
			fail_msg("%s", err.text);
		assert_int_equal(folder_u32(o.g, "qwen3.pooling_type"), 4);
		t = folder_tensor(&o, "cls.output.weight", IG_F32, 1, 2);
		assert_true(folder_value(&o, t, 0, 0) == 6 && folder_value(&o, t, 0, 1) == 7);
		assert_int_equal(
			ig_checkpoint_str(o.g, "tokenizer.chat_template.rerank", &s, &len, &err),
			i ? -ENOENT : 0);
		folder_closed(&o);
	}
	rc = open_with(SCORED("{\"0\":\"yes\",\"1\":\"no\"}"), more[0], &o, &err);
	folder_fails(rc, &o.g, &err, -ENOTSUP, "id2label has 2 labels");
	free(o.file);
}

static void others(void **state)
{
	static const struct beside none[2] = { 0 }, title[2] = { { "README.md", "# Qwen3-9B" } };
	const struct beside *const plain[] = { none, title };

	for (int i = 0; i < 2; i++) {
		struct ig_error err;
		struct opened o;
		if (open_with(QWEN3, plain[i], &o, &err))
			fail_msg("%s", err.text);
		assert_int_equal(
			ig_checkpoint_u32(o.g, "qwen3.pooling_type", &(uint32_t){ 0 }, NULL),
			-ENOENT);
		assert_null(ig_checkpoint_find_tensor(o.g, "cls.output.weight"));
		folder_closed(&o);
	}
}

static void is_refused(void **state)
{
	static const struct {
		struct beside more[2];
		const char *text;
	} bad[] = {
		{ { { "README.md", "# Qwen3-Reranker" } },
		  "a reranker of Qwen 3 without tokenizer" },
		{ { { "README.md", "# Qwen3-Reranker" }, { "tokenizer.json", VOCAB("\"b\":2") } },
		  "a reranker without the token \"yes\"" },
		{ { { "README.md", "# Qwen3-Reranker" }, { "tokenizer.json", "{\"model\":" } },
		  "tokenizer.json" },
		{ { { "README.md", "# Qwen3-Reranker" }, { "tokenizer.json", VOCAB("\"yes\":3") } },
		  "has no row of token 3" },
		{ { { "modules.json", MODULES } }, "1_LogitScore/config.json is missing" },
		{ { { "modules.json", MODULES },
		    { "1_LogitScore/config.json", "{\"true_token_id\":-1}" } },
		  "true_token_id is not the id" },
		{ { { "modules.json", MODULES },
		    { "1_LogitScore/config.json",
		      "{\"true_token_id\":1,\"false_token_id\":\"a\"}" } },
		  "false_token_id is not the id" },
		{ { { "modules.json", "{" } }, "modules.json" },
	};

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct ig_error err;
		struct opened o;
		int rc = open_with(QWEN3, bad[i].more, &o, &err);
		folder_fails(rc, &o.g, &err, -EINVAL, bad[i].text);
		free(o.file);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rerankers),
		cmocka_unit_test(classifiers),
		cmocka_unit_test(others),
		cmocka_unit_test(is_refused),
	};

	return cmocka_run_group_tests_name("folder_reranker", tests, NULL, NULL);
}
