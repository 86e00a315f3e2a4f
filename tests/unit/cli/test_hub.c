/* The Hub: names of repositories, its list of files, and what can be pulled of it. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/strbuf.h"
#include "cli/download/hub_repo.h"

static struct ig_error err;

static void test_names(void **state)
{
	static const char *const good[][3] = {
		{ "a/b", "a/b", "" },
		{ "hf:a/b:Q4_K_M", "a/b", "Q4_K_M" },
		{ "HF.co/a/b.c-d_e:x/y.gguf", "a/b.c-d_e", "x/y.gguf" },
		{ "https://huggingface.co/a/b", "a/b", "" },
		{ "a/b:c:d", "a/b", "c:d" },
	};
	static const char *const bad[] = { "hf:",  "hf:a",  "a/",    "/b",	  "a/b/c",
					   "../b", "a/..",  "-a/b",  "a/-b",	  "a b/c",
					   "a/b:", "a/b?c", "a/b#c", "a/\xc3\xa9" };
	struct ig_hub_ref ref;

	for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
		assert_true(ig_hub_is_ref(good[i][0]));
		assert_int_equal(ig_hub_ref_parse(good[i][0], &ref, &err), 0);
		assert_string_equal(ref.repo, good[i][1]);
		assert_string_equal(ref.pick, good[i][2]);
	}
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		if (ig_hub_ref_parse(bad[i], &ref, &err) != -EINVAL)
			fail_msg("accepted: %s", bad[i]);
	assert_false(ig_hub_is_ref("smollm2-135m"));
	assert_false(ig_hub_is_ref("qwen3-4b:Q8_0"));
}

/* A repository whose files have these paths, each of 100 bytes and one more than the last. */
static void make(struct ig_hub_repo *r, struct ig_hub_choices *c, const char *const *paths)
{
	struct ig_strbuf b = { 0 };

	*r = (struct ig_hub_repo){ .id = "them/model" };
	ig_strbuf_puts(&b, "[");
	for (size_t i = 0; paths[i]; i++)
		ig_strbuf_printf(&b,
				 "%s{\"type\": \"file\", \"path\": \"%s\", \"size\": %zu, \"oid\": "
				 "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}",
				 i ? "," : "", paths[i], 100 + i);
	ig_strbuf_puts(&b, "]");
	assert_int_equal(ig_hub_repo_parse_tree(b.data, b.len, r, &err), 0);
	assert_int_equal(ig_hub_choices_of(r, c, &err), 0);
	ig_strbuf_finish(&b);
}

static const struct ig_hub_choice *labelled(const struct ig_hub_choices *c, const char *label)
{
	for (size_t i = 0; i < c->n; i++)
		if (!strcmp(c->list[i].label, label))
			return &c->list[i];
	fail_msg("no choice %s", label);
	return NULL;
}

static void finish(struct ig_hub_repo *r, struct ig_hub_choices *c)
{
	ig_hub_choices_finish(c);
	ig_hub_repo_finish(r);
}

static void test_labels(void **state)
{
	static const char *const cases[][2] = {
		{ "Qwen3-4B-Q4_K_M.gguf", "Q4_K_M" },
		{ "SmolLM2-135M-Instruct.Q4_1.gguf", "Q4_1" },
		{ "a-UD-Q4_K_XL.gguf", "UD-Q4_K_XL" },
		{ "a-it-qat-Q4_0.GGUF", "Q4_0" },
		{ "gpt-oss-20b-mxfp4.gguf", "mxfp4" },
		{ "a-IQ2_XXS.gguf", "IQ2_XXS" },
		{ "a.BF16.gguf", "BF16" },
		{ "Q6_K/weights.gguf", "Q6_K" },
		{ "x/Q5_K/weights.gguf", "Q5_K" },
		{ "model.gguf", "model.gguf" },
		{ "Q9_K.gguf", "Q9_K.gguf" },
		{ "a-Q4x.gguf", "a-Q4x.gguf" },
		{ "AUD-Q4_0.gguf", "Q4_0" },
		{ ".gguf.gguf", "" },
		{ "mmproj-F16.gguf", "" },
		{ "a-imatrix.gguf", "" },
		{ "x-Q4_0.bin", "" },
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		const char *paths[] = { cases[i][0], NULL };
		struct ig_hub_repo r;
		struct ig_hub_choices c;
		make(&r, &c, paths);
		assert_int_equal(c.n, cases[i][1][0] ? 1 : 0);
		if (c.n)
			assert_string_equal(c.list[0].label, cases[i][1]);
		finish(&r, &c);
	}
}

static void test_parts(void **state)
{
	static const char *const paths[] = { "b-Q8_0-00001-of-00002.gguf",
					     "d-00003-of-00002.gguf",
					     "b-Q4_0-00002-of-00002.gguf",
					     "b-Q4_0-00001-of-00002.gguf",
					     "b-Q4_0.gguf",
					     "c-00001-of-00000.gguf",
					     NULL };
	const struct ig_hub_choice *one;
	struct ig_hub_choices c;
	struct ig_hub_repo r;

	make(&r, &c, paths);
	one = labelled(&c, "Q8_0");
	assert_false(one->is_complete);
	assert_int_equal(ig_hub_pick(&r, &c, "Q8_0", &one, &err), -EBADMSG);
	/* whole beside its parts: the whole one */
	assert_int_equal(ig_hub_pick(&r, &c, "q4_0", &one, &err), 0);
	assert_string_equal(one->local, "b-Q4_0.gguf");
	assert_int_equal(ig_hub_pick(&r, &c, "b-Q4_0-00001-of-00002.gguf", &one, &err), 0);
	assert_int_equal(one->n_files, 2);
	assert_true(one->is_folder);
	assert_string_equal(r.files[one->files[0]].path, "b-Q4_0-00001-of-00002.gguf");
	assert_string_equal(one->name, "b-Q4_0");
	assert_int_equal(one->n_bytes, 102 + 103);
	finish(&r, &c);
}

static void test_picks(void **state)
{
	static const char *const paths[] = { "a-UD-Q4_K_M.gguf",     "a-Q4_K_S.gguf",
					     "x/b-Q2_K.gguf",	     "y/b-Q2_K.gguf",
					     "a \xc3\xa9-Q3_K.gguf", NULL };
	const struct ig_hub_choice *one;
	struct ig_hub_choices c;
	struct ig_hub_repo r;

	make(&r, &c, paths);
	assert_int_equal(ig_hub_pick(&r, &c, "Q4_K_M", &one, &err), 0);
	assert_string_equal(one->label, "UD-Q4_K_M");
	assert_int_equal(ig_hub_pick(&r, &c, "Q4_K", &one, &err), -ENOENT);
	assert_int_equal(ig_hub_pick(&r, &c, "Q2_K", &one, &err), -E2BIG);
	assert_non_null(strstr(err.text, "x/b-Q2_K.gguf or y/b-Q2_K.gguf"));
	assert_int_equal(ig_hub_pick(&r, &c, "y/b-Q2_K.gguf", &one, &err), 0);
	assert_string_equal(r.files[one->files[0]].path, "y/b-Q2_K.gguf");
	/* a name for clients has few kinds of characters */
	assert_int_equal(ig_hub_pick(&r, &c, "Q3_K", &one, &err), 0);
	assert_string_equal(one->local, "a----Q3_K.gguf");
	finish(&r, &c);
}

static void test_folder(void **state)
{
	static const char *const paths[] = { "config.json",
					     "a.safetensors",
					     "sub/b.safetensors",
					     "consolidated.safetensors",
					     "-c.safetensors",
					     "tokenizer.json",
					     "sub/vocab.json",
					     "run.py",
					     NULL };
	static const char *const none[] = { "a.safetensors", NULL };
	struct ig_hub_choices c;
	struct ig_hub_repo r;

	make(&r, &c, paths);
	assert_int_equal(c.n, 1);
	assert_string_equal(c.list[0].label, "safetensors");
	assert_string_equal(c.list[0].local, "model");
	assert_int_equal(c.list[0].n_files, 3);
	finish(&r, &c);
	make(&r, &c, none); /* without config.json */
	assert_int_equal(c.n, 0);
	finish(&r, &c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),  cmocka_unit_test(test_labels),
		cmocka_unit_test(test_parts),  cmocka_unit_test(test_picks),
		cmocka_unit_test(test_folder),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
