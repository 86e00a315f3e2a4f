/*
 * test_folder_memory.c: each allocation of opening a folder of safetensors fails once; what
 * comes of it is -ENOMEM with a text, never a crash or (under AddressSanitizer) a leak.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>

#include "model/formats/checkpoint.h"
#include "tests/archs.h"
#include "tests/unit/no_memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char config[] =
	"{\"model_type\":\"llama\",\"hidden_size\":8,\"num_hidden_layers\":1,"
	"\"num_attention_heads\":2,\"tie_word_embeddings\":true,\"rope_scaling\":{"
	"\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4,"
	"\"original_max_position_embeddings\":16}}";
static const char file_index[] = "{\"weight_map\":{\"model.norm.weight\":\"a.safetensors\"}}";
static const char header[] = "{\"model.norm.weight\":{\"dtype\":\"F32\",\"shape\":[2],"
			     "\"data_offsets\":[0,8]}}";

static void each_fails(bool with_index)
{
	static uint8_t file[8 + sizeof header - 1 + 8];
	uint64_t n_header = sizeof header - 1;
	const struct ig_checkpoint_file files[] = {
		{ "config.json", config, sizeof config - 1 },
		{ with_index ? "a.safetensors" : "model.safetensors", file, sizeof file },
		{ "tokenizer.json", "{}", 2 },
		{ "model.safetensors.index.json", file_index, sizeof file_index - 1 },
	};
	struct ig_checkpoint *g = NULL;
	struct ig_error err = { 0 };
	const char *s;
	size_t n;
	long i;
	int rc = -1;

	memcpy(file, &n_header, 8);
	memcpy(file + 8, header, n_header);
	for (i = 0; rc; i++) {
		err = (struct ig_error){ 0 };
		no_memory_at(i);
		rc = ig_checkpoint_open_files(files, with_index ? 4 : 3, "dir", test_archs, &g,
					      &err);
		no_memory_at(-1);
		if (!rc)
			break;
		if (rc != -ENOMEM || err.code != -ENOMEM || !strstr(err.text, "out of memory"))
			fail_msg("allocation %ld: %d: %s", i, rc, err.text);
		assert_null(g);
	}
	assert_true(i > 20);
	assert_int_equal(ig_checkpoint_n_tensors(g), 2);
	no_memory_at(0);
	assert_int_equal(ig_checkpoint_sibling(g, "tokenizer.json", &s, &n, &err), -ENOMEM);
	no_memory_at(-1);
	assert_int_equal(ig_checkpoint_sibling(g, "tokenizer.json", &s, &n, &err), 0);
	ig_checkpoint_close(g);
}

static void one_file(void **state) { each_fails(false); }
static void files_with_an_index(void **state) { each_fails(true); }

int main(void)
{
	json_set_alloc_funcs(malloc, free); /* as the linker has them */
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_file),
		cmocka_unit_test(files_with_an_index),
	};

	return cmocka_run_group_tests_name("model/folder memory", tests, NULL, NULL);
}
