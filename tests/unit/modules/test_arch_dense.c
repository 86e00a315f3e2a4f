/*
 * test_arch_dense.c: what the dense architectures beside Llama make of metadata, good and
 * bad.  What they record is judged by tests/golden/arch.
 */
#include "arch_meta.h"
#include "attention_world.h"

#include <math.h>
#include <stdlib.h>

static const struct ig_host host = {
	.struct_size = sizeof host,
	.meta_u32 = meta_u32,
	.meta_f32 = meta_f32,
	.meta_str = meta_str,
	.meta_has_tensor = meta_has_tensor,
	.meta_tensor = meta_tensor,
	.meta_array_u32 = meta_array_u32,
};

/* A sound model of the architecture; `name` goes before the keys. */
static void meta_reset(struct ig_meta *m, const char *name)
{
	static char keys[16][64];
	static const struct entry all[] = {
		{ "block_count", U32, 12 },
		{ "context_length", U32, 1024 },
		{ "embedding_length", U32, 576 },
		{ "feed_forward_length", U32, 1536 },
		{ "attention.head_count", U32, 9 },
		{ "attention.layer_norm_epsilon", F32, 1e-5 },
		{ "attention.layer_norm_rms_epsilon", F32, 1e-5 },
	};
	int n = sizeof all / sizeof *all;

	memset(m, 0, sizeof *m);
	for (int i = 0; i < n; i++) {
		m->entries[m->n] = all[i];
		snprintf(keys[i], sizeof keys[i], "%s.%s", name, all[i].key);
		m->entries[m->n++].key = keys[i];
	}
	meta_set(m, (struct entry){ "token_embd.weight", TENSOR, 300 });
	if (!strcmp(name, "gemma3"))
		meta_set(m, (struct entry){ "gemma3.attention.sliding_window", U32, 512 });
	if (strcmp(name, "gemma4"))
		return;
	meta_set(m, (struct entry){ "gemma4.attention.sliding_window", U32, 512 });
	meta_set(m, (struct entry){ "gemma4.attention.head_count_kv", U32, 3 });
	meta_set(m, (struct entry){ "gemma4.attention.key_length", U32, 512 });
	meta_set(m, (struct entry){ "gemma4.attention.key_length_swa", U32, 256 });
}

static int read_params(const char *name, const struct ig_meta *m, struct ig_model_info *info,
		       struct ig_error *err)
{
	for (const struct ig_arch *const *a = world_module()->archs; *a; a++)
		if (!strcmp((*a)->name, name)) {
			void *params = calloc(1, (*a)->params_size);
			int rc;

			assert_non_null(params);
			*info = (struct ig_model_info){ .struct_size = sizeof *info };
			rc = (*a)->read_params(&host, m, params, info, err);
			free(params);
			return rc;
		}
	fail_msg("the module has no architecture %s", name);
	return -1;
}

static void test_info(void **state)
{
	static const char *const names[] = { "qwen2", "qwen3", "gpt2", "muse-glimmer", "gemma3" };
	struct ig_model_info info;
	struct ig_error err = { 0 };
	struct ig_meta m;

	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		meta_reset(&m, names[i]);
		if (read_params(names[i], &m, &info, &err))
			fail_msg("%s", err.text);
		assert_int_equal(info.n_vocab, 300);
		assert_int_equal(info.n_context, 1024);
		assert_int_equal(info.groups[0].n_kv_heads, 9);
		assert_int_equal(info.groups[0].head_dim, 64);
		if (strcmp(names[i], "gemma3")) {
			assert_int_equal(info.n_groups, 1);
			assert_int_equal(info.groups[0].n_layers, 12);
			assert_int_equal(info.groups[0].window, 0);
		}
	}
	/* the last: every sixth layer is global */
	assert_int_equal(info.n_groups, 2);
	assert_int_equal(info.groups[0].n_layers, 2);
	assert_int_equal(info.groups[0].window, 0);
	assert_int_equal(info.groups[1].struct_size, sizeof info.groups[1]);
	assert_int_equal(info.groups[1].n_layers, 10);
	assert_int_equal(info.groups[1].n_kv_heads, 9);
	assert_int_equal(info.groups[1].head_dim, 64);
	assert_int_equal(info.groups[1].window, 512);
	meta_set(&m, (struct entry){ "gemma3.attention.sliding_window_pattern", U32, 5 });
	assert_int_equal(read_params("gemma3", &m, &info, &err), 0);
	assert_int_equal(info.groups[0].n_layers, 2);
	assert_int_equal(info.groups[1].n_layers, 10);
	meta_set(&m, (struct entry){ "gemma3.attention.sliding_window_pattern", U32, 2 });
	assert_int_equal(read_params("gemma3", &m, &info, &err), 0);
	assert_int_equal(info.groups[0].n_layers, 6);
	assert_int_equal(info.groups[1].n_layers, 6);
	/* a list of the local layers */
	static const uint32_t some[12] = { 1, 0, 0, 1, 1 },
			      all[12] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };
	meta_set(&m,
		 (struct entry){ "gemma3.attention.sliding_window_pattern", LIST, 12, NULL, some });
	assert_int_equal(read_params("gemma3", &m, &info, &err), 0);
	assert_int_equal(info.n_groups, 2);
	assert_int_equal(info.groups[0].n_layers, 9);
	assert_int_equal(info.groups[0].window, 0);
	assert_int_equal(info.groups[1].n_layers, 3);
	assert_int_equal(info.groups[1].window, 512);
	/* one kind of layers: one group */
	meta_set(&m,
		 (struct entry){ "gemma3.attention.sliding_window_pattern", LIST, 12, NULL, all });
	for (int i = 0; i < 3; i++) {
		assert_int_equal(read_params("gemma3", &m, &info, &err), 0);
		assert_int_equal(info.n_groups, 1);
		assert_int_equal(info.groups[0].n_layers, 12);
		assert_int_equal(info.groups[0].window, 512);
		meta_set(&m, (struct entry){ "gemma3.attention.sliding_window_pattern", U32,
					     i ? 13 : 0 });
	}
	meta_set(&m, (struct entry){ "gemma3.attention.sliding_window_pattern", U32, 1 });
	for (int i = 0; i < 3; i++) {
		assert_int_equal(read_params("gemma3", &m, &info, &err), 0);
		assert_int_equal(info.n_groups, 1);
		assert_int_equal(info.groups[0].n_layers, 12);
		assert_int_equal(info.groups[0].window, 0);
		meta_drop(&m, "gemma3.attention.sliding_window_pattern");
		meta_drop(&m, "gemma3.attention.sliding_window");
		if (!i)
			meta_set(&m, (struct entry){ "gemma3.attention.sliding_window", U32, 0 });
	}
}

/* Gemma 4: KV heads by kind of layer, and layers without keys and values; Muse Glimmer. */
static void test_kinds(void **state)
{
	static const uint32_t kv[12] = { 3, 3, 3, 3, 3, 1, 3, 3, 3, 3, 3, 1 };
	struct ig_model_info info;
	struct ig_error err = { 0 };
	struct ig_meta m;

	meta_reset(&m, "gemma4");
	meta_set(&m, (struct entry){ "gemma4.attention.head_count_kv", LIST, 12, NULL, kv });
	if (read_params("gemma4", &m, &info, &err))
		fail_msg("%s", err.text);
	assert_int_equal(info.n_vocab, 300);
	assert_int_equal(info.n_groups, 2);
	assert_int_equal(info.groups[0].n_layers, 2);
	assert_int_equal(info.groups[0].n_kv_heads, 1);
	assert_int_equal(info.groups[0].head_dim, 512);
	assert_int_equal(info.groups[0].window, 0);
	assert_int_equal(info.groups[1].n_layers, 10);
	assert_int_equal(info.groups[1].n_kv_heads, 3);
	assert_int_equal(info.groups[1].head_dim, 256);
	assert_int_equal(info.groups[1].window, 512);
	/* the last five layers have no cache of their own */
	meta_set(&m, (struct entry){ "gemma4.attention.shared_kv_layers", U32, 5 });
	meta_set(&m, (struct entry){ "gemma4.embedding_length_per_layer_input", U32, 256 });
	meta_set(&m, (struct entry){ "per_layer_token_embd.weight", TENSOR, 300 });
	if (read_params("gemma4", &m, &info, &err))
		fail_msg("%s", err.text);
	assert_int_equal(info.groups[0].n_layers, 1);
	assert_int_equal(info.groups[1].n_layers, 6);
	/* Muse Glimmer: every fourth layer sees all positions */
	meta_reset(&m, "muse-glimmer");
	meta_set(&m, (struct entry){ "muse-glimmer.attention.sliding_window", U32, 64 });
	if (read_params("muse-glimmer", &m, &info, &err))
		fail_msg("%s", err.text);
	assert_int_equal(info.n_groups, 2);
	assert_int_equal(info.groups[0].n_layers, 3);
	assert_int_equal(info.groups[1].n_layers, 9);
	assert_int_equal(info.groups[1].window, 64);
	/* 12B: 40 local layers of 8 heads of 256 would be a block of 5 MiB, which no slab holds */
	meta_reset(&m, "gemma4");
	meta_set(&m, (struct entry){ "gemma4.block_count", U32, 48 });
	meta_set(&m, (struct entry){ "gemma4.attention.head_count", U32, 16 });
	meta_set(&m, (struct entry){ "gemma4.attention.head_count_kv", U32, 8 });
	if (read_params("gemma4", &m, &info, &err))
		fail_msg("%s", err.text);
	assert_int_equal(info.n_groups, 3);
	assert_int_equal(info.groups[0].n_layers, 8);
	for (int i = 1; i <= 2; i++) {
		assert_int_equal(info.groups[i].n_layers, 20);
		assert_int_equal(info.groups[i].window, 512);
	}
}

static void test_refusals(void **state)
{
	static const uint32_t five[] = { 1, 1, 0, 1, 1 };
	static const uint32_t mixed[12] = { 3, 3, 1, 3, 3, 3, 3, 3, 3, 3, 3, 3 };
	static const uint32_t ff[12] = { 64, 64, 4 };
	static const struct {
		const char *arch;
		struct entry e; /* kind TENSOR: the key is dropped */
		int code;
		const char *text;
	} bad[] = {
		{ "qwen2", { "qwen2.expert_count", U32, 4 }, -ENOTSUP, "qwen2 with experts" },
		{ "qwen2",
		  { "qwen2.attention.sliding_window", U32, 64 },
		  -ENOTSUP,
		  "window is 64" },
		{ "qwen2",
		  { "qwen2.attention.layer_norm_rms_epsilon", TENSOR, 0 },
		  -ENOENT,
		  "rms_eps" },
		{ "qwen2", { "qwen2.rope.scaling.type", STR, 0, "su" }, -ENOTSUP, "\"su\"" },
		{ "qwen2", { "token_embd.weight", TENSOR, 0 }, -ENOENT, "qwen2.vocab_size" },
		{ "qwen3",
		  { "qwen3.attention.sliding_window", U32, 64 },
		  -ENOTSUP,
		  "window is 64" },
		{ "qwen3", { "qwen3.attention.key_length", U32, 12 }, -EINVAL, "a head of 12" },
		{ "qwen3", { "qwen3.block_count", TENSOR, 0 }, -ENOENT, "qwen3.block_count" },
		{ "gpt2",
		  { "gpt2.attention.layer_norm_epsilon", TENSOR, 0 },
		  -ENOENT,
		  "norm_epsilon" },
		{ "gpt2",
		  { "gpt2.attention.layer_norm_epsilon", F32, NAN },
		  -EINVAL,
		  "norm_epsilon" },
		{ "gpt2",
		  { "gpt2.attention.head_count_kv", U32, 3 },
		  -ENOTSUP,
		  "head_count_kv is 3" },
		{ "gpt2", { "gpt2.attention.key_length", U32, 32 }, -ENOTSUP, "key_length is 32" },
		{ "gemma3",
		  { "gemma3.attention.sliding_window", F32, 40 },
		  -EINVAL,
		  "sliding_window" },
		{ "gemma3",
		  { "gemma3.attention.sliding_window_pattern", STR, 0, "x" },
		  -EINVAL,
		  "sliding_window_pattern" },
		{ "gemma3",
		  { "gemma3.attention.sliding_window_pattern", LIST, 5, NULL, five },
		  -EINVAL,
		  "has 5 elements, the model 12 layers" },
		{ "gemma4", { "gemma4.expert_count", U32, 8 }, -ENOENT, "expert_used_count" },
		{ "gemma4",
		  { "gemma4.attention.head_count_kv", LIST, 12, NULL, mixed },
		  -EINVAL,
		  "head_count_kv is 1 for layer 2" },
		{ "gemma4", { "gemma4.attention.head_count_kv", U32, 2 }, -EINVAL, "divisor" },
		{ "gemma4", { "gemma4.attention.key_length", U32, 584 }, -EINVAL, "key_length" },
		{ "gemma4", { "gemma4.attention.key_length_swa", U32, 60 }, -ENOTSUP, "_swa 60" },
		{ "gemma4", { "gemma4.attention.value_length", U32, 128 }, -ENOTSUP, "length 128" },
		{ "gemma4", { "gemma4.attention.shared_kv_layers", U32, 12 }, -EINVAL, "is 12" },
		{ "gemma4", { "gemma4.attention.shared_kv_layers", U32, 9 }, -EINVAL, "layer 5" },
		{ "gemma4",
		  { "gemma4.embedding_length_per_layer_input", U32, 256 },
		  -EINVAL,
		  "per_layer_token_embd.weight is missing" },
		{ "gemma4",
		  { "gemma4.feed_forward_length", LIST, 12, NULL, ff },
		  -EINVAL,
		  "is 4 for layer 2" },
		{ "gemma4", { "gemma4.final_logit_softcapping", F32, -1 }, -EINVAL, "softcapping" },
		{ "muse-glimmer", { "muse-glimmer.expert_count", U32, 8 }, -ENOTSUP, "experts" },
		{ "muse-glimmer", { "muse-glimmer.logit_scale", F32, 0 }, -EINVAL, "logit_scale" },
		{ "muse-glimmer",
		  { "muse-glimmer.rope.freq_base_swa", F32, 0 },
		  -EINVAL,
		  "freq_base_swa" },
		{ "gemma3", { "gemma3.final_logit_softcapping", F32, 30 }, -ENOTSUP, "soft cap" },
		{ "gemma3", { "gemma3.attn_logit_softcapping", F32, 50 }, -ENOTSUP, "soft cap" },
		{ "gemma3",
		  { "gemma3.rope.freq_base_swa", F32, 0 },
		  -EINVAL,
		  "freq_base_swa is 0" },
	};

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct ig_meta m;
		struct ig_model_info info;
		struct ig_error err = { 0 };
		int rc;

		meta_reset(&m, bad[i].arch);
		if (bad[i].e.kind == TENSOR)
			meta_drop(&m, bad[i].e.key);
		else
			meta_set(&m, bad[i].e);
		rc = read_params(bad[i].arch, &m, &info, &err);
		if (rc != bad[i].code || !strstr(err.text, bad[i].text))
			fail_msg("%s: %d \"%s\", expected %d with \"%s\"", bad[i].e.key, rc,
				 err.text, bad[i].code, bad[i].text);
	}
}

/* YaRN of a file: what it can't be is told by name. */
static void test_yarn_refusals(void **state)
{
	static const struct {
		struct entry e;
		int code;
		const char *text;
	} bad[] = {
		{ { "qwen3.rope.scaling.yarn_ext_factor", F32, 0.5 }, -EINVAL, "yarn_ext_factor" },
		{ { "qwen3.rope.scaling.yarn_log_multiplier", F32, -1 },
		  -EINVAL,
		  "log_multiplier" },
		{ { "qwen3.rope.scaling.yarn_beta_fast", F32, 0 }, -EINVAL, "beta_fast" },
		{ { "qwen3.rope.scaling.yarn_beta_slow", F32, NAN }, -EINVAL, "beta_slow" },
		{ { "qwen3.rope.scaling.yarn_attn_factor", F32, -1 }, -EINVAL, "attn_factor" },
		{ { "qwen3.rope.scaling.original_context_length", U32, 0 },
		  -EINVAL,
		  "original_context" },
		{ { "qwen3.rope.scaling.factor", F32, 0.5 }, -EINVAL, "scaling.factor" },
		{ { "qwen3.rope.freq_base", F32, 1 }, -EINVAL, "YaRN needs more" },
		{ { "qwen3.rope.scaling.yarn_truncate", U32, 2 }, -EINVAL, "yarn_truncate is 2" },
	};
	struct ig_model_info info;
	struct ig_error err = { 0 };
	struct ig_meta m;

	for (size_t i = 0; i <= sizeof bad / sizeof *bad; i++) {
		meta_reset(&m, "qwen3");
		meta_set(&m, (struct entry){ "qwen3.rope.scaling.type", STR, 0, "yarn" });
		meta_set(&m, (struct entry){ "qwen3.rope.scaling.factor", F32, 4 });
		if (i == sizeof bad / sizeof *bad) {
			assert_int_equal(read_params("qwen3", &m, &info, &err), 0);
			break;
		}
		meta_set(&m, bad[i].e);
		int rc = read_params("qwen3", &m, &info, &err);

		if (rc != bad[i].code || !strstr(err.text, bad[i].text))
			fail_msg("%s: %d \"%s\", expected %d with \"%s\"", bad[i].e.key, rc,
				 err.text, bad[i].code, bad[i].text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_info),
		cmocka_unit_test(test_kinds),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_yarn_refusals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
