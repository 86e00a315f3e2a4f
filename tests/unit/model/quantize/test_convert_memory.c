/*
 * test_convert_memory.c: each allocation of converting a folder fails once; what comes of it
 * is an error and no file, never a crash or (under AddressSanitizer) a leak.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "model/quantize/convert.h"
#include "tests/archs.h"

#include "tiny_files.h"
#include "tests/unit/no_memory.h"

#include <unistd.h>

static const char config[] =
	"{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"vocab_size\": 279,"
	"\"hidden_size\": 32, \"intermediate_size\": 32, \"num_hidden_layers\": 1,"
	"\"num_attention_heads\": 1, \"num_key_value_heads\": 1, \"max_position_embeddings\": 64,"
	"\"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0, \"hidden_act\": \"silu\","
	"\"tie_word_embeddings\": true}";
static const char names[] = "{\"bos_token\": \"<s>\", \"chat_template\": \"x\"}";

static void each_fails(void **state)
{
	static const char head[] =
		"{\"model.norm.weight\":{\"dtype\":\"F32\",\"shape\":[32],"
		"\"data_offsets\":[0,128]}, \"model.layers.0.mlp.up_proj.weight\":"
		"{\"dtype\":\"F32\",\"shape\":[2,32],\"data_offsets\":[128,384]}}   ";
	static const char zeros[384];
	/* an importance matrix in the older format, for the only matrix */
	static const char name[] = "blk.0.ffn_up.weight";
	char dir[] = "/tmp/ig-convert-XXXXXX", path[64], weights_path[64];
	const uint32_t numbers[] = { 1, sizeof name - 1 }, more[] = { 1, 32 };
	FILE *f;
	struct ig_strbuf weights = { 0 }, vocabulary;
	struct ig_checkpoint *g;
	struct ig_error err = { 0 };
	uint64_t n = sizeof head - 1;
	bool done = false;
	long i;

	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/out.gguf", dir);
	snprintf(weights_path, sizeof weights_path, "%s/imatrix.dat", dir);
	f = fopen(weights_path, "wb");
	assert_non_null(f);
	fwrite(numbers, sizeof numbers, 1, f);
	fwrite(name, sizeof name - 1, 1, f);
	fwrite(more, sizeof more, 1, f);
	fwrite(zeros, 128, 1, f);
	assert_int_equal(fclose(f), 0);
	ig_strbuf_add(&weights, &n, sizeof n);
	ig_strbuf_add(&weights, head, n);
	ig_strbuf_add(&weights, zeros, sizeof zeros);
	tiny_json(&vocabulary, &(struct tiny_json){ .kind = TINY_BYTES });
	const struct ig_checkpoint_file files[] = {
		{ "config.json", config, sizeof config - 1 },
		{ "model.safetensors", weights.data, weights.len },
		{ "tokenizer.json", vocabulary.data, vocabulary.len },
		{ "tokenizer_config.json", names, sizeof names - 1 },
	};
	if (ig_checkpoint_open_files(files, 4, "folder", test_archs, &g, &err))
		fail_msg("%s", err.text);
	for (i = 0; !done; i++) {
		/* One thread, so that it is always the same allocation. */
		struct ig_convert_options o = { .mix = ig_mix_find("Q8_0"), .n_threads = 1 };
		struct ig_imatrix *imatrix;
		struct ig_convert_report r = { 0 };

		err = (struct ig_error){ 0 };
		no_memory_at(i);
		int rc = ig_imatrix_open(weights_path, &imatrix, &err);
		o.imatrix = imatrix;
		if (!rc)
			rc = ig_convert(g, path, &o, &r, &err);
		done = !no_memory_failed();
		if (rc) {
			assert_int_equal(rc, -ENOMEM);
			assert_int_equal(err.code, -ENOMEM);
			assert_true(err.text[0]);
			assert_null(r.tensors);
		} else { /* what failed is done without, or nothing did */
			assert_int_equal(unlink(path), 0);
			assert_int_equal(r.n_tensors, 2);
			assert_true(r.tensors[0].weighted || r.tensors[1].weighted);
			ig_convert_report_finish(&r);
		}
		ig_imatrix_close(imatrix);
	}
	assert_true(i > 40);
	assert_int_equal(unlink(weights_path), 0);
	assert_int_equal(rmdir(dir), 0); /* nothing is left in it */
	ig_checkpoint_close(g);
	ig_strbuf_finish(&weights);
	ig_strbuf_finish(&vocabulary);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(each_fails) };

	return cmocka_run_group_tests_name("model/convert_memory", tests, NULL, NULL);
}
