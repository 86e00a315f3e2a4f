/*
 * test_tokenizer_memory.c: each allocation of opening a tokenizer and encoding a text
 * fails once; the result is an error, never a crash or (under AddressSanitizer) a
 * leak.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>

#include "model/chat/chat_template.h"
#include "model/tokenizer/config_private.h"
#include "tiny_files.h"
#include "tests/unit/no_memory.h"

#include <errno.h>
#include <stdlib.h>

/* The ids of texts that take every way through the code. */
static int encode_all(const struct ig_tokenizer *t, struct ig_ids *l)
{
	static const char text[] = "<s>hello lo a\xff<tool>  hellohellohellohello\n";
	char big[300];
	int rc = ig_tokenizer_encode(t, text, sizeof text - 1, true, SIZE_MAX, l);

	memset(big, 'l', sizeof big);
	return rc ? rc : ig_tokenizer_encode(t, big, sizeof big, false, SIZE_MAX, l);
}

/* Of a GGUF file, or of a folder. */
static void each_fails_in(const struct ig_checkpoint *g, struct tiny_folder *f)
{
	struct ig_model_files files = tiny_model_files(f);
	struct ig_ids want = { 0 };
	bool done = false;
	long i;

	for (i = 0; !done; i++) {
		struct ig_error err = { 0 };
		struct ig_ids l = { 0 };
		struct ig_tokenizer *t;
		no_memory_at(i);
		int rc = g ? ig_tokenizer_open(g, &t, &err) :
			     ig_tokenizer_open_files(&files, true, &t, &err);
		if (rc) {
			no_memory_at(-1);
			assert_int_equal(rc, -ENOMEM);
			assert_int_equal(g ? err.code : -ENOMEM, -ENOMEM);
			assert_null(t);
			continue;
		}
		rc = encode_all(t, &l);
		done = !no_memory_failed();
		if (!rc && !want.n)
			want = l;
		else
			ig_ids_finish(&l);
		if (done)
			assert_int_equal(rc, 0);
		else if (rc)
			assert_int_equal(rc, -ENOMEM);
		/* It works afterwards. */
		l = (struct ig_ids){ 0 };
		assert_int_equal(encode_all(t, &l), 0);
		if (want.n) {
			assert_int_equal(l.n, want.n);
			assert_memory_equal(l.ids, want.ids, l.n * sizeof *l.ids);
		}
		ig_ids_finish(&l);
		ig_tokenizer_close(t);
	}
	assert_true(i > 8);
	ig_ids_finish(&want);
}

static void each_fails(const struct gw *w)
{
	struct ig_checkpoint *g;

	assert_int_equal(ig_checkpoint_open_memory(w->data, w->len, "tiny", &g, NULL), 0);
	each_fails_in(g, NULL);
	ig_checkpoint_close(g);
}

static void bytes(void **state)
{
	static const char *const pres[] = { "llama-bpe", "default" };

	for (size_t i = 0; i < 2; i++) {
		struct gw w;
		tiny_file(&w, &(struct tiny_options){ .model = "gpt2", .pre = pres[i] });
		each_fails(&w);
		gw_finish(&w);
	}
}

static void pieces(void **state)
{
	static const char *const models[] = { "llama", "t5" };

	for (size_t i = 0; i < 2; i++) {
		struct gw w;
		tiny_spm_file(&w, &(struct tiny_spm){ .model = models[i] });
		each_fails(&w);
		gw_finish(&w);
	}
}

#define S(text) text, sizeof text - 1

static void files(void **state)
{
	static const char config[] =
		"{\"bos_token\": \"<s>\", \"added_tokens_decoder\": {\"279\": {\"content\": "
		"\"<x>\"}}}";
	static const struct tiny_json kinds[] = {
		{ .kind = TINY_BYTES,
		  .normalizer =
			  "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"},"
			  "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"q\"}, \"content\": "
			  "\"\"}]}",
		  .pre_tokenizer = "{\"type\": \"ByteLevel\", \"add_prefix_space\": true}" },
		{ .kind = TINY_PAIRS },
		{ .kind = TINY_UNIGRAM },
		{ .kind = TINY_PAIRS,
		  .added = "[{\"id\": 1, \"content\": \"\\u003cs>\", \"special\": true},"
			   "{\"id\": 3, \"content\": \"<tool>\", \"normalized\": true}]" },
	};
	char map[TINY_MAP_MAX];

	for (int i = 0; i < 7; i++) {
		struct tiny_folder f = { 0 };
		struct ig_strbuf b;
		if (i < 4)
			tiny_json(&b, &kinds[i]);
		else if (i < 6)
			tiny_spm_model(&b, &(struct tiny_model){
						   .type = (uint64_t)i - 3,
						   .charsmap = map,
						   .n_charsmap = tiny_charsmap(map),
					   });
		else
			tiny_tekken(&b, NULL, NULL);
		tiny_put(&f,
			 i < 4 ? "tokenizer.json" :
			 i < 6 ? "tokenizer.model" :
				 "tekken.json",
			 b.data, b.len);
		tiny_put(&f, "tokenizer_config.json", S(config));
		each_fails_in(NULL, &f);
		ig_strbuf_finish(&b);
	}
}

static void chat(void **state)
{
	struct tiny_folder f = { 0 };
	struct ig_model_files of = tiny_model_files(&f);
	struct ig_chat_template *c = NULL;
	struct ig_tokenizer *t;
	struct ig_strbuf b;
	int rc = -ENOMEM;
	long i;

	tiny_json(&b, &(struct tiny_json){ 0 });
	tiny_put(&f, "tokenizer.json", b.data, b.len);
	tiny_put(&f, "tokenizer_config.json",
		 S("{\"eos_token\": \"</s>\", \"chat_template\": \"x\"}"));
	assert_int_equal(ig_tokenizer_open_files(&of, true, &t, NULL), 0);
	for (i = 0; rc; i++) {
		struct ig_error err = { 0 };
		no_memory_at(i);
		rc = ig_chat_template_open_files(&of, t, &c, &err);
		no_memory_at(-1);
		if (rc)
			assert_true(rc == -ENOMEM && !c);
	}
	assert_true(i > 3);
	ig_chat_template_close(c);
	ig_tokenizer_close(t);
	ig_strbuf_finish(&b);
}

int main(void)
{
	json_set_alloc_funcs(malloc, free); /* as the linker has them */
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes),
		cmocka_unit_test(pieces),
		cmocka_unit_test(files),
		cmocka_unit_test(chat),
	};

	return cmocka_run_group_tests_name("model/tokenizer_memory", tests, NULL, NULL);
}
