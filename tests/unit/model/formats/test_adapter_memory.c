/*
 * test_adapter_memory.c: each allocation of opening an adapter, of a GGUF file and of PEFT's two, fails
 * once; what comes of it is -ENOMEM with a text, never a crash or (under AddressSanitizer) a leak.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>

#include "model/formats/adapter.h"
#include "tests/unit/no_memory.h"
#include "tiny_base.h"
#include "tiny_gguf.h"

#include <errno.h>

static void each_fails(const struct ig_checkpoint_file *files, size_t n, long at_least)
{
	struct ig_checkpoint *base = tiny_base();
	struct ig_adapter *a = NULL;
	struct ig_error err;
	long i;
	int rc = -1;

	for (i = 0; rc; i++) {
		err = (struct ig_error){ 0 };
		no_memory_at(i);
		rc = ig_adapter_open_files(files, n, base, test_archs, &a, &err);
		bool failed = no_memory_failed();
		no_memory_at(-1);
		if (!rc) {
			assert_false(failed);
			break;
		}
		if (rc != -ENOMEM || err.code != -ENOMEM || !strstr(err.text, "memory"))
			fail_msg("allocation %ld: %d: %s", i, rc, err.text);
		assert_null(a);
	}
	assert_true(i >= at_least);
	assert_int_equal(a->n_parts, 1);
	assert_string_equal(a->parts[0].weight, "blk.0.attn_q.weight");
	assert_int_equal(a->parts[0].rank, 2);
	assert_true(a->parts[0].scale == 2.0f);
	ig_adapter_close(a);
	ig_checkpoint_close(base);
}

static void test_peft(void **state)
{
	static const char config[] = "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":4}";
	static const char header[] =
		"{\"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight\":{\"dtype\":\"F32\","
		"\"shape\":[2,8],\"data_offsets\":[0,64]},"
		"\"base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight\":{\"dtype\":\"F32\","
		"\"shape\":[8,2],\"data_offsets\":[64,128]}}";
	static uint8_t file[8 + sizeof header - 1 + 128];
	const struct ig_checkpoint_file files[] = {
		{ "adapter_config.json", config, sizeof config - 1 },
		{ "adapter_model.safetensors", file, sizeof file },
	};
	uint64_t n = sizeof header - 1;

	memcpy(file, &n, 8);
	memcpy(file + 8, header, n);
	each_fails(files, 2, 20);
}

static void test_gguf(void **state)
{
	struct gw w;

	gw_init(&w);
	gw_str(&w, "general.type", "adapter");
	gw_str(&w, "adapter.type", "lora");
	gw_str(&w, "general.architecture", "llama");
	gw_f32(&w, "adapter.lora.alpha", 4);
	gw_tensor(&w, "blk.0.attn_q.weight.lora_a", (uint64_t[]){ 8, 2 }, 2, IG_F32, 0);
	gw_tensor(&w, "blk.0.attn_q.weight.lora_b", (uint64_t[]){ 2, 8 }, 2, IG_F32, 64);
	gw_data(&w, 32, 128);
	const struct ig_checkpoint_file file = { "adapter.gguf", w.data, w.len };
	each_fails(&file, 1, 5);
	gw_finish(&w);
}

int main(void)
{
	json_set_alloc_funcs(malloc, free); /* as the linker has them */
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_peft),
		cmocka_unit_test(test_gguf),
	};

	return cmocka_run_group_tests_name("model/adapter memory", tests, NULL, NULL);
}
