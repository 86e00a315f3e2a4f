/*
 * test_arch_moe.c: what the architectures of the module moe make of metadata, good and bad,
 * and which files Mixtral claims.  What they record is judged by tests/golden/arch.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* Not every kind of key is read here. */
#pragma GCC diagnostic ignored "-Wunused-function"
#include "arch_meta.h"

#include <ingot/build_id.h>

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>

static const struct ig_host host = {
	.struct_size = sizeof host,
	.meta_u32 = meta_u32,
	.meta_f32 = meta_f32,
	.meta_str = meta_str,
	.meta_array_u32 = meta_array_u32,
	.meta_has_tensor = meta_has_tensor,
	.meta_tensor = meta_tensor,
};

static const struct ig_module *module;

static const struct ig_arch *arch_of(const char *name)
{
	for (const struct ig_arch *const *a = module->archs; *a; a++)
		if (!strcmp((*a)->name, name))
			return *a;
	fail_msg("the module has no architecture %s", name);
	return NULL;
}

/* A sound model of the architecture, as its files have it. */
static void meta_reset(struct ig_meta *m, const char *arch)
{
	static char keys[16][64];
	static const struct entry all[] = {
		{ "block_count", U32, 12 },
		{ "context_length", U32, 1024 },
		{ "embedding_length", U32, 576 },
		{ "feed_forward_length", U32, 1536 },
		{ "attention.head_count", U32, 9 },
		{ "attention.head_count_kv", U32, 3 },
		{ "attention.layer_norm_rms_epsilon", F32, 1e-5 },
		{ "expert_count", U32, 8 },
		{ "expert_used_count", U32, 2 },
	};
	const char *name = strcmp(arch, "mixtral") ? arch : "llama";
	int n = sizeof all / sizeof *all;

	memset(m, 0, sizeof *m);
	for (int i = 0; i < n; i++) {
		m->entries[m->n] = all[i];
		snprintf(keys[i], sizeof keys[i], "%s.%s", name, all[i].key);
		m->entries[m->n++].key = keys[i];
	}
	meta_set(m, (struct entry){ "token_embd.weight", TENSOR, 300 });
	meta_set(m, (struct entry){ "general.architecture", STR, 0, name });
}

static int read_params(const char *name, const struct ig_meta *m, struct ig_model_info *info,
		       struct ig_error *err)
{
	const struct ig_arch *a = arch_of(name);
	void *params = calloc(1, a->params_size);
	int rc;

	assert_non_null(params);
	*info = (struct ig_model_info){ .struct_size = sizeof *info };
	rc = a->read_params(&host, m, params, info, err);
	free(params);
	return rc;
}

static void test_info(void **state)
{
	static const char *const names[] = { "qwen3moe", "mixtral", "olmoe",
					     "glm4moe",	 "gpt-oss", "minimax-m2" };
	struct ig_model_info info;
	struct ig_error err = { 0 };
	struct ig_meta m;

	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		meta_reset(&m, names[i]);
		if (read_params(names[i], &m, &info, &err))
			fail_msg("%s", err.text);
		assert_int_equal(info.n_vocab, 300);
		assert_int_equal(info.n_context, 1024);
		assert_int_equal(info.n_groups, 1);
		assert_int_equal(info.groups[0].n_layers, 12);
		assert_int_equal(info.groups[0].n_kv_heads, 3);
		assert_int_equal(info.groups[0].head_dim, 64);
		assert_int_equal(info.groups[0].window, 0);
	}
	meta_reset(&m, "mixtral");
	meta_set(&m, (struct entry){ "llama.attention.sliding_window", U32, 256 });
	assert_int_equal(read_params("mixtral", &m, &info, &err), 0);
	assert_int_equal(info.groups[0].window, 256);
}

static void test_claims(void **state)
{
	const struct ig_arch *mixtral = arch_of("mixtral");
	struct ig_meta m;

	assert_null(arch_of("qwen3moe")->claims);
	assert_null(arch_of("olmoe")->claims);
	meta_reset(&m, "mixtral");
	assert_int_equal(mixtral->claims(&host, &m), 1);
	meta_set(&m, (struct entry){ "llama.expert_count", U32, 0 });
	assert_int_equal(mixtral->claims(&host, &m), 0);
	meta_drop(&m, "llama.expert_count");
	assert_int_equal(mixtral->claims(&host, &m), 0);
	meta_reset(&m, "olmoe");
	assert_int_equal(mixtral->claims(&host, &m), 0);
	meta_set(&m, (struct entry){ "llama.expert_count", U32, 8 });
	assert_int_equal(mixtral->claims(&host, &m), 0);
	meta_drop(&m, "general.architecture");
	assert_int_equal(mixtral->claims(&host, &m), 0);
}

/* Every other layer has the window, or those that the file names. */
static void test_windows(void **state)
{
	static const uint32_t pattern[12] = { 0, 0, 1 };
	struct ig_model_info info;
	struct ig_error err = { 0 };
	struct ig_meta m;

	meta_reset(&m, "gpt-oss");
	meta_set(&m, (struct entry){ "gpt-oss.attention.sliding_window", U32, 128 });
	assert_int_equal(read_params("gpt-oss", &m, &info, &err), 0);
	assert_int_equal(info.n_groups, 2);
	assert_int_equal(info.groups[0].n_layers, 6);
	assert_int_equal(info.groups[0].window, 0);
	assert_int_equal(info.groups[1].window, 128);
	meta_set(&m, (struct entry){ "gpt-oss.attention.sliding_window_pattern", LIST, 12, NULL,
				     pattern });
	assert_int_equal(read_params("gpt-oss", &m, &info, &err), 0);
	assert_int_equal(info.groups[0].n_layers, 11);
	assert_int_equal(info.groups[1].n_layers, 1);
}

static void test_refusals(void **state)
{
	static const uint32_t pattern[3] = { 1, 0, 1 };
	const struct {
		const char *arch;
		struct entry e; /* kind TENSOR without a number: the key is dropped */
		int code;
		const char *text;
	} bad[] = {
		{ "qwen3moe",
		  { "qwen3moe.expert_count", TENSOR, 0 },
		  -ENOENT,
		  "qwen3moe.expert_count" },
		{ "qwen3moe",
		  { "qwen3moe.expert_count", U32, 1025 },
		  -EINVAL,
		  "is 1025, not in 1 … 1024" },
		{ "qwen3moe", { "qwen3moe.expert_count", U32, 0 }, -EINVAL, "is 0, not in 1" },
		{ "qwen3moe",
		  { "qwen3moe.expert_used_count", U32, 9 },
		  -EINVAL,
		  "is 9, not in 1 … 8" },
		{ "qwen3moe", { "qwen3moe.expert_used_count", TENSOR, 0 }, -ENOENT, "used_count" },
		{ "qwen3moe",
		  { "qwen3moe.expert_feed_forward_length", U32, 40 },
		  -ENOTSUP,
		  "of 40 x 576" },
		{ "qwen3moe",
		  { "qwen3moe.expert_shared_count", U32, 1 },
		  -ENOTSUP,
		  "shared experts" },
		{ "qwen3moe",
		  { "qwen3moe.expert_shared_feed_forward_length", U32, 512 },
		  -ENOTSUP,
		  "shared experts" },
		{ "qwen3moe",
		  { "qwen3moe.leading_dense_block_count", U32, 1 },
		  -ENOTSUP,
		  "dense layers" },
		{ "qwen3moe",
		  { "qwen3moe.expert_group_count", U32, 4 },
		  -ENOTSUP,
		  "groups of experts" },
		{ "qwen3moe",
		  { "qwen3moe.expert_weights_scale", F32, 2.5 },
		  -ENOTSUP,
		  "scaled experts" },
		{ "qwen3moe",
		  { "qwen3moe.expert_gating_func", U32, 2 },
		  -ENOTSUP,
		  "only a softmax" },
		{ "qwen3moe",
		  { "qwen3moe.attention.sliding_window", U32, 64 },
		  -ENOTSUP,
		  "window is 64" },
		{ "qwen3moe",
		  { "qwen3moe.attention.layer_norm_rms_epsilon", TENSOR, 0 },
		  -ENOENT,
		  "rms_eps" },
		{ "mixtral",
		  { "blk.0.ffn_gate.0.weight", TENSOR, 1 },
		  -ENOTSUP,
		  "tensor blk.0.ffn_gate.0.weight" },
		{ "mixtral",
		  { "llama.attention.layer_norm_rms_epsilon", F32, NAN },
		  -EINVAL,
		  "rms_eps" },
		{ "mixtral",
		  { "llama.attention.head_count_kv", U32, 4 },
		  -EINVAL,
		  "head_count_kv 4" },
		{ "olmoe",
		  { "olmoe.attention.clamp_kqv", F32, 8 },
		  -ENOTSUP,
		  "clamped projections" },
		{ "olmoe", { "olmoe.rope.scaling.type", STR, 0, "su" }, -ENOTSUP, "\"su\"" },
		{ "olmoe", { "olmoe.block_count", TENSOR, 0 }, -ENOENT, "olmoe.block_count" },
		{ "gpt-oss",
		  { "gpt-oss.attention.sliding_window_pattern", LIST, 3, NULL, pattern },
		  -EINVAL,
		  "has 3 elements, the model 12 layers" },
		{ "minimax-m2",
		  { "minimax-m2.expert_gating_func", U32, 0 },
		  -EINVAL,
		  "is 0, not in 1 … 3" },
		{ "minimax-m2", { "minimax-m2.expert_count", TENSOR, 0 }, -ENOENT, "expert_count" },
		{ "gpt-oss", { "gpt-oss.swiglu_limit", F32, 0 }, -EINVAL, "swiglu_limit is 0" },
		{ "gpt-oss",
		  { "gpt-oss.expert_shared_count", U32, 1 },
		  -ENOTSUP,
		  "shared experts is not supported" },
		{ "glm4moe",
		  { "glm4moe.nextn_predict_layers", U32, 12 },
		  -EINVAL,
		  "nextn_predict_layers is 12, not in 0 … 11" },
		{ "glm4moe",
		  { "glm4moe.leading_dense_block_count", U32, 13 },
		  -EINVAL,
		  "is 13, not in 0 … 12" },
		{ "glm4moe",
		  { "glm4moe.expert_group_count", U32, 33 },
		  -EINVAL,
		  "is 33, not in 0 … 32" },
		{ "glm4moe",
		  { "glm4moe.expert_group_used_count", U32, 1 },
		  -EINVAL,
		  "is 1, not in 0 … 0" },
		{ "glm4moe",
		  { "glm4moe.expert_gating_func", U32, 4 },
		  -EINVAL,
		  "is 4, not in 1 … 3" },
		{ "glm4moe",
		  { "glm4moe.expert_weights_scale", F32, -1 },
		  -EINVAL,
		  "expert_weights_scale is -1" },
		{ "glm4moe",
		  { "glm4moe.expert_shared_count", U32, 65 },
		  -EINVAL,
		  "is 65, not in 0 … 64" },
		{ "glm4moe",
		  { "glm4moe.rope.dimension_count", U32, 33 },
		  -EINVAL,
		  "dimension_count 33 is odd" },
	};

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct ig_meta m;
		struct ig_model_info info;
		struct ig_error err = { 0 };
		int rc;

		meta_reset(&m, bad[i].arch);
		if (bad[i].e.kind == TENSOR && bad[i].e.number == 0)
			meta_drop(&m, bad[i].e.key);
		else
			meta_set(&m, bad[i].e);
		rc = read_params(bad[i].arch, &m, &info, &err);
		if (rc != bad[i].code || !strstr(err.text, bad[i].text))
			fail_msg("%s: %d \"%s\", expected %d with \"%s\"", bad[i].e.key, rc,
				 err.text, bad[i].code, bad[i].text);
	}
}

/* GLM-4.7-Flash's sizes. */
static void latent_reset(struct ig_meta *m)
{
	meta_reset(m, "deepseek2");
	meta_set(m, (struct entry){ "deepseek2.attention.head_count_kv", U32, 1 });
	meta_set(m, (struct entry){ "deepseek2.attention.kv_lora_rank", U32, 512 });
	meta_set(m, (struct entry){ "deepseek2.attention.q_lora_rank", U32, 768 });
	meta_set(m, (struct entry){ "deepseek2.attention.key_length", U32, 576 });
	meta_set(m, (struct entry){ "deepseek2.attention.value_length", U32, 512 });
	meta_set(m, (struct entry){ "deepseek2.attention.key_length_mla", U32, 256 });
	meta_set(m, (struct entry){ "deepseek2.attention.value_length_mla", U32, 256 });
	meta_set(m, (struct entry){ "deepseek2.rope.dimension_count", U32, 64 });
}

static void latent_refused(struct entry e, int code, const char *text)
{
	struct ig_model_info info;
	struct ig_error err = { 0 };
	struct ig_meta m;

	latent_reset(&m);
	meta_set(&m, e);
	assert_int_equal(read_params("deepseek2", &m, &info, &err), code);
	if (!strstr(err.text, text))
		fail_msg("\"%s\" does not say \"%s\"", err.text, text);
}

/* Latent attention: the cache has one head of K. */
static void test_latent(void **state)
{
	struct ig_model_info info;
	struct ig_error err = { 0 };
	struct ig_meta m;

	latent_reset(&m);
	assert_int_equal(read_params("deepseek2", &m, &info, &err), 0);
	assert_int_equal(info.n_groups, 1);
	assert_int_equal(info.groups[0].n_layers, 12);
	assert_int_equal(info.groups[0].n_kv_heads, 1);
	assert_int_equal(info.groups[0].head_dim, 576);
	assert_int_equal(info.groups[0].kind, IG_CACHE_K);
	meta_set(&m, (struct entry){ "deepseek2.nextn_predict_layers", U32, 1 });
	assert_int_equal(read_params("deepseek2", &m, &info, &err), 0);
	assert_int_equal(info.groups[0].n_layers, 11);
	meta_set(&m, (struct entry){ "blk.0.attn_kv_b.weight", TENSOR, 1 });
	assert_int_equal(read_params("deepseek2", &m, &info, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "blk.0.attn_kv_b.weight: the file has attn_k_b and"));
	meta_set(&m, (struct entry){ "blk.0.attn_k_b.weight", TENSOR, 1 });
	assert_int_equal(read_params("deepseek2", &m, &info, &err), 0);
	meta_drop(&m, "deepseek2.attention.kv_lora_rank");
	assert_int_equal(read_params("deepseek2", &m, &info, &err), -ENOENT);
	latent_refused((struct entry){ "deepseek2.attention.kv_lora_rank", U32, 500 }, -ENOTSUP,
		       "a latent of 500 are not supported");
	latent_refused((struct entry){ "deepseek2.attention.value_length_mla", U32, 100 }, -ENOTSUP,
		       "with values of 100");
	latent_refused((struct entry){ "deepseek2.attention.key_length_mla", U32, 64 }, -ENOTSUP,
		       "heads of 64 dimensions, of which 64 rotate");
	latent_refused((struct entry){ "deepseek2.attention.key_length", U32, 192 }, -EINVAL,
		       "key_length 192");
	latent_refused((struct entry){ "deepseek2.attention.value_length", U32, 128 }, -EINVAL,
		       "value_length 128");
	latent_refused((struct entry){ "deepseek2.attention.kv_lora_rank", U32, 528 }, -ENOTSUP,
		       "a latent of 528");
	latent_refused((struct entry){ "deepseek2.attention.temperature_scale", F32, 0.1 },
		       -ENOTSUP,
		       "temperature_scale is 0.1: deepseek2 with queries that are scaled");
	latent_refused((struct entry){ "deepseek2.expert_group_count", U32, 33 }, -EINVAL,
		       "expert_group_count is 33");
}

/* A file that does not say how its router scores: GLM-4.7-Flash has sigmoids, which may have groups; V2 has a softmax. */
static void test_gating_without_key(void **state)
{
	static const struct {
		uint32_t n_layers, n_vocab;
		int code;
	} rows[] = { { 47, 154880, 0 }, { 46, 154880, -ENOTSUP }, { 47, 154881, -ENOTSUP } };
	struct ig_model_info info;
	struct ig_error err = { 0 };
	struct ig_meta m;

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		latent_reset(&m);
		meta_drop(&m, "deepseek2.expert_gating_func");
		meta_set(&m, (struct entry){ "deepseek2.block_count", U32, rows[i].n_layers });
		meta_set(&m, (struct entry){ "deepseek2.vocab_size", U32, rows[i].n_vocab });
		meta_set(&m, (struct entry){ "deepseek2.expert_group_count", U32, 4 });
		meta_set(&m, (struct entry){ "deepseek2.expert_group_used_count", U32, 2 });
		if (read_params("deepseek2", &m, &info, &err) != rows[i].code)
			fail_msg("%u layers, %u tokens: %s", rows[i].n_layers, rows[i].n_vocab,
				 err.text);
	}
}

static void laguna_refused(struct entry e, int code, const char *text)
{
	struct ig_model_info info;
	struct ig_error err = { 0 };
	struct ig_meta m;

	meta_reset(&m, "laguna");
	meta_set(&m, (struct entry){ "laguna.attention.key_length", U32, 64 });
	meta_set(&m, (struct entry){ "laguna.attention.sliding_window", U32, 256 });
	meta_set(&m, e);
	assert_int_equal(read_params("laguna", &m, &info, &err), code);
	if (!strstr(err.text, text))
		fail_msg("\"%s\" does not say \"%s\"", err.text, text);
}

/* Kinds of layers by a number, by a list, or none; heads by layer. */
static void test_laguna(void **state)
{
	static const uint32_t heads[12] = { 9, 12, 12, 12, 9, 12, 12, 12, 9, 12, 12, 12 },
			      odd[12] = { 9, 10 }, short_list[3] = { 9, 9, 9 },
			      kinds[12] = { [3] = 1 };
	struct ig_model_info info;
	struct ig_error err = { 0 };
	struct ig_meta m;

	meta_reset(&m, "laguna");
	meta_set(&m, (struct entry){ "laguna.attention.key_length", U32, 64 });
	assert_int_equal(read_params("laguna", &m, &info, &err), 0);
	assert_int_equal(info.n_groups, 1);
	assert_int_equal(info.groups[0].window, 0);
	meta_set(&m, (struct entry){ "laguna.attention.sliding_window", U32, 256 });
	meta_set(&m, (struct entry){ "laguna.attention.head_count", LIST, 12, NULL, heads });
	assert_int_equal(read_params("laguna", &m, &info, &err), 0);
	assert_int_equal(info.n_groups, 2); /* every fourth layer sees all, from the first on */
	assert_int_equal(info.groups[0].n_layers, 3);
	assert_int_equal(info.groups[1].n_layers, 9);
	assert_int_equal(info.groups[1].window, 256);
	meta_set(&m, (struct entry){ "laguna.attention.sliding_window_pattern", U32, 6 });
	assert_int_equal(read_params("laguna", &m, &info, &err), 0);
	assert_int_equal(info.groups[0].n_layers, 2);
	meta_set(&m, (struct entry){ "laguna.attention.sliding_window_pattern", LIST, 12, NULL,
				     kinds });
	assert_int_equal(read_params("laguna", &m, &info, &err), 0);
	assert_int_equal(info.groups[0].n_layers, 11);
	meta_set(&m, (struct entry){ "laguna.attention.sliding_window_pattern", U32, 0 });
	assert_int_equal(read_params("laguna", &m, &info, &err), 0);
	assert_int_equal(info.n_groups, 1);
	assert_int_equal(info.groups[0].window, 256);
	laguna_refused((struct entry){ "laguna.attention.head_count", LIST, 12, NULL, odd },
		       -EINVAL, "head_count is 0 for layer 2");
	laguna_refused((struct entry){ "laguna.attention.head_count", LIST, 3, NULL, short_list },
		       -EINVAL, "has 3 elements");
	laguna_refused((struct entry){ "laguna.attention.head_count", U32, 10 }, -EINVAL,
		       "head_count is 10 for layer 0 with 3 KV heads");
	laguna_refused((struct entry){ "laguna.attention.key_length", U32, 60 }, -ENOTSUP,
		       "key_length 60");
	laguna_refused((struct entry){ "laguna.attention.value_length", U32, 32 }, -ENOTSUP,
		       "with values of 32");
	laguna_refused((struct entry){ "laguna.rope.dimension_count_swa", U32, 33 }, -EINVAL,
		       "dimension_count_swa 33 is odd");
}

/* Routers that no op has are refused by name. */
static void test_softmax_with_bias(void **state)
{
	struct ig_model_info info;
	struct ig_error err = { 0 };
	struct ig_meta m;

	meta_reset(&m, "glm4moe");
	meta_set(&m, (struct entry){ "glm4moe.expert_gating_func", U32, 1 });
	assert_int_equal(read_params("glm4moe", &m, &info, &err), 0);
	meta_set(&m, (struct entry){ "blk.0.exp_probs_b.bias", TENSOR, 1 });
	assert_int_equal(read_params("glm4moe", &m, &info, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "blk.0.exp_probs_b.bias: a selection bias"));
	meta_drop(&m, "blk.0.exp_probs_b.bias");
	meta_set(&m, (struct entry){ "glm4moe.expert_group_count", U32, 4 });
	meta_set(&m, (struct entry){ "glm4moe.expert_group_used_count", U32, 2 });
	assert_int_equal(read_params("glm4moe", &m, &info, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "expert_group_count is 4: groups are supported only"));
	meta_set(&m, (struct entry){ "glm4moe.expert_gating_func", U32, 2 });
	assert_int_equal(read_params("glm4moe", &m, &info, &err), 0);
	/* blocks that predict further tokens have no cache */
	meta_set(&m, (struct entry){ "glm4moe.nextn_predict_layers", U32, 2 });
	assert_int_equal(read_params("glm4moe", &m, &info, &err), 0);
	assert_int_equal(info.groups[0].n_layers, 10);
}

static const struct ig_kernel_host *no_kernels(const char *build_id)
{
	assert_string_equal(build_id, IG_BUILD_ID);
	return NULL;
}

/* A host of another build id is refused, not followed into nothing. */
static void test_init(void **state)
{
	struct ig_host h = host;

	h.kernels = no_kernels;
	assert_int_equal(module->init(&h), -ENOTSUP);
}

/* Nomic Embed v2: no cache, and keys that it must have. */
static void test_embeddings(void **state)
{
	static const char arch[] = "nomic-bert-moe";
	static const struct {
		struct entry e;
		int code;
		const char *text;
	} bad[] = {
		{ { "nomic-bert-moe.moe_every_n_layers", U32, 1 },
		  -EINVAL,
		  "moe_every_n_layers is 1" },
		{ { "nomic-bert-moe.expert_shared_count", U32, 1 }, -ENOTSUP, "shared experts" },
		{ { "nomic-bert-moe.pooling_type", U32, 4 },
		  -ENOTSUP,
		  "cls.output.weight is missing" },
	};
	struct ig_model_info info;
	struct ig_error err = { 0 };
	struct ig_meta m;

	for (size_t i = 0; i <= sizeof bad / sizeof *bad; i++) {
		meta_reset(&m, arch);
		meta_set(&m, (struct entry){ "nomic-bert-moe.attention.layer_norm_epsilon", F32,
					     1e-5 });
		if (!i)
			assert_int_equal(read_params(arch, &m, &info, &err), -ENOENT);
		meta_set(&m, (struct entry){ "nomic-bert-moe.moe_every_n_layers", U32, 2 });
		if (i) {
			meta_set(&m, bad[i - 1].e);
			assert_int_equal(read_params(arch, &m, &info, &err), bad[i - 1].code);
			if (!strstr(err.text, bad[i - 1].text))
				fail_msg("wanted '%s': %s", bad[i - 1].text, err.text);
		} else {
			assert_int_equal(read_params(arch, &m, &info, &err), 0);
			assert_int_equal(info.n_groups, 0);
			assert_int_equal(info.result, IG_RESULT_EMBEDDING);
			/* a bias of the experts' sum, in any of their layers */
			meta_set(&m, (struct entry){ "blk.11.ffn_exps.bias", TENSOR, 1 });
			assert_int_equal(read_params(arch, &m, &info, &err), 0);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_embeddings),
		cmocka_unit_test(test_info),
		cmocka_unit_test(test_claims),
		cmocka_unit_test(test_windows),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_softmax_with_bias),
		cmocka_unit_test(test_gating_without_key),
		cmocka_unit_test(test_latent),
		cmocka_unit_test(test_laguna),
		cmocka_unit_test(test_init),
	};
	void *so = dlopen(MOE_MODULE, RTLD_NOW | RTLD_LOCAL);

	module = so ? dlsym(so, "ingot_module") : NULL;
	if (!module) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
