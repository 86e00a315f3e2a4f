/*
 * test_arch_recurrent.c: what the architectures of the module recurrent make of metadata, good and bad.
 * What they record is judged by tests/golden/arch.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "arch_meta.h"

#include <dlfcn.h>
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

static int read_params(const char *name, const struct ig_meta *m, struct ig_model_info *info,
		       struct ig_error *err)
{
	for (const struct ig_arch *const *a = module->archs; *a; a++) {
		void *params;
		int rc;
		if (strcmp((*a)->name, name))
			continue;
		params = calloc(1, (*a)->params_size);
		assert_non_null(params);
		*info = (struct ig_model_info){ .struct_size = sizeof *info };
		rc = (*a)->read_params(&host, m, params, info, err);
		free(params);
		return rc;
	}
	fail_msg("the module has no architecture %s", name);
	return -1;
}

struct bad {
	struct entry e; /* kind TENSOR without a number: the key is dropped */
	int code;
	const char *text;
};

/* Each change of a good file must be refused with this text. */
static void refused(const char *name, const struct ig_meta *good, const struct bad *bad, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct ig_meta m = *good;
		struct ig_model_info info;
		struct ig_error err = { 0 };
		if (bad[i].e.kind == TENSOR && bad[i].e.number == 0)
			meta_drop(&m, bad[i].e.key);
		else
			meta_set(&m, bad[i].e);
		assert_int_equal(read_params(name, &m, &info, &err), bad[i].code);
		if (!strstr(err.text, bad[i].text))
			fail_msg("\"%s\" instead of \"%s\"", err.text, bad[i].text);
	}
}

/* The keys of one architecture as another one's. */
static struct ig_meta renamed(struct ig_meta m, const char *arch)
{
	static char keys[64][64];
	static size_t n;

	for (int i = 0; i < m.n; i++) {
		const char *dot = strchr(m.entries[i].key, '.');
		if (m.entries[i].kind == TENSOR)
			continue;
		n = (n + 1) % (sizeof keys / sizeof *keys);
		snprintf(keys[n], sizeof keys[n], "%s%s", arch, dot);
		m.entries[i].key = keys[n];
	}
	return m;
}

/* ---- LFM2 ------------------------------------------------------------------------------- */

static const uint32_t lfm2_kv[6] = { 0, 0, 8, 0, 8, 0 };

static struct ig_meta lfm2(void)
{
	static const struct entry all[] = {
		{ "lfm2.block_count", U32, 6 },
		{ "lfm2.context_length", U32, 128000 },
		{ "lfm2.embedding_length", U32, 576 },
		{ "lfm2.feed_forward_length", U32, 1536 },
		{ "lfm2.attention.head_count", U32, 9 * 8 },
		{ "lfm2.attention.head_count_kv", LIST, 6, NULL, lfm2_kv },
		{ "lfm2.attention.layer_norm_rms_epsilon", F32, 1e-5 },
		{ "lfm2.rope.freq_base", F32, 1e6 },
		{ "lfm2.shortconv.l_cache", U32, 3 },
		{ "token_embd.weight", TENSOR, 300 },
	};
	struct ig_meta m = { .n = sizeof all / sizeof *all };

	memcpy(m.entries, all, sizeof all);
	return m;
}

static void test_lfm2(void **state)
{
	static const uint32_t no_attention[6] = { 0 }, all_attention[6] = { 8, 8, 8, 8, 8, 8 },
			      different[6] = { 0, 8, 4, 0, 8, 0 };
	static const struct bad bad[] = {
		{ { "lfm2.shortconv.l_cache", TENSOR }, -ENOENT, "lfm2.shortconv.l_cache" },
		{ { "lfm2.shortconv.l_cache", U32, 1 }, -EINVAL, "not in 2 … 8" },
		{ { "lfm2.shortconv.l_cache", U32, 9 }, -EINVAL, "not in 2 … 8" },
		{ { "lfm2.expert_count", U32, 8 }, -ENOTSUP, "experts" },
		{ { "lfm2.attention.head_count_kv", TENSOR }, -ENOENT, "head_count_kv" },
		{ { "lfm2.attention.head_count_kv", LIST, 5, NULL, lfm2_kv },
		  -EINVAL,
		  "has 5 elements, the model 6 layers" },
		{ { "lfm2.attention.head_count_kv", LIST, 6, NULL, no_attention },
		  -ENOTSUP,
		  "has only zeros" },
		{ { "lfm2.attention.head_count_kv", LIST, 6, NULL, all_attention },
		  -ENOTSUP,
		  "6 layers with attention and 0 with convolutions" },
		{ { "lfm2.attention.head_count_kv", LIST, 6, NULL, different },
		  -EINVAL,
		  "has 4 for layer 2" },
		{ { "lfm2.attention.head_count_kv", U32, 8 }, -ENOTSUP, "0 with convolutions" },
	};
	static const uint32_t recurrent[6] = { 1, 0, 1, 1, 1, 1 };
	struct ig_meta good = lfm2(), folder = lfm2();
	struct ig_model_info info;
	struct ig_error err = { 0 };

	if (read_params("lfm2", &good, &info, &err))
		fail_msg("%s", err.text);
	assert_int_equal(info.n_groups, 2);
	assert_int_equal(info.groups[0].kind, IG_CACHE_KV);
	assert_int_equal(info.groups[0].n_layers, 2);
	assert_int_equal(info.groups[0].n_kv_heads, 8);
	assert_int_equal(info.groups[0].head_dim, 8);
	assert_int_equal(info.groups[1].kind, IG_CACHE_STATE);
	assert_int_equal(info.groups[1].n_layers, 4);
	assert_int_equal(info.groups[1].n_kv_heads, 1);
	assert_int_equal(info.groups[1].head_dim, 2 * 576);
	refused("lfm2", &good, bad, sizeof bad / sizeof *bad);
	/* as a folder's config.json becomes keys */
	meta_set(&folder, (struct entry){ "lfm2.attention.head_count_kv", U32, 8 });
	meta_set(&folder,
		 (struct entry){ "lfm2.attention.recurrent_layers", LIST, 6, NULL, recurrent });
	assert_int_equal(read_params("lfm2", &folder, &info, &err), 0);
	assert_int_equal(info.groups[0].n_layers, 1);
	assert_int_equal(info.groups[1].n_layers, 5);
}

static void test_lfm2moe(void **state)
{
	static const struct entry more[] = {
		{ "lfm2moe.expert_count", U32, 32 },
		{ "lfm2moe.expert_used_count", U32, 4 },
		{ "lfm2moe.expert_feed_forward_length", U32, 1792 },
		{ "lfm2moe.leading_dense_block_count", U32, 2 },
	};
	static const struct bad bad[] = {
		{ { "lfm2moe.expert_count", TENSOR }, -ENOENT, "lfm2moe.expert_count" },
		{ { "lfm2moe.expert_used_count", U32, 33 }, -EINVAL, "not in 1 … 32" },
		{ { "lfm2moe.leading_dense_block_count", U32, 7 }, -EINVAL, "not in 0 … 6" },
		{ { "lfm2moe.expert_gating_func", U32, 4 }, -EINVAL, "not in 1 … 3" },
		{ { "lfm2moe.expert_feed_forward_length", U32, 24 },
		  -ENOTSUP,
		  "multiples of 16 are" },
		{ { "lfm2moe.shortconv.l_cache", TENSOR }, -ENOENT, "lfm2moe.shortconv.l_cache" },
	};
	struct ig_meta good = renamed(lfm2(), "lfm2moe");
	struct ig_model_info info;
	struct ig_error err = { 0 };

	for (size_t i = 0; i < sizeof more / sizeof *more; i++)
		meta_set(&good, more[i]);
	if (read_params("lfm2moe", &good, &info, &err))
		fail_msg("%s", err.text);
	assert_int_equal(info.n_groups, 2);
	assert_int_equal(info.groups[1].n_layers, 4);
	refused("lfm2moe", &good, bad, sizeof bad / sizeof *bad);
}

/* ---- Qwen 3.5 ----------------------------------------------------------------------------- */

/* The shape of 9B, with fewer layers. */
static struct ig_meta qwen35(void)
{
	static const struct entry all[] = {
		{ "qwen35.block_count", U32, 8 },
		{ "qwen35.context_length", U32, 262144 },
		{ "qwen35.embedding_length", U32, 576 },
		{ "qwen35.feed_forward_length", U32, 12288 },
		{ "qwen35.attention.head_count", U32, 16 },
		{ "qwen35.attention.head_count_kv", U32, 4 },
		{ "qwen35.attention.key_length", U32, 256 },
		{ "qwen35.attention.value_length", U32, 256 },
		{ "qwen35.attention.layer_norm_rms_epsilon", F32, 1e-6 },
		{ "qwen35.rope.freq_base", F32, 1e7 },
		{ "qwen35.rope.dimension_count", U32, 64 },
		{ "qwen35.ssm.conv_kernel", U32, 4 },
		{ "qwen35.ssm.state_size", U32, 128 },
		{ "qwen35.ssm.group_count", U32, 16 },
		{ "qwen35.ssm.time_step_rank", U32, 32 },
		{ "qwen35.ssm.inner_size", U32, 32 * 128 },
		{ "token_embd.weight", TENSOR, 300 },
	};
	struct ig_meta m = { .n = sizeof all / sizeof *all };

	memcpy(m.entries, all, sizeof all);
	return m;
}

static void test_qwen35(void **state)
{
	static const uint32_t kinds[8] = { 1, 1, 0, 1, 0, 1, 1, 1 },
			      kv[8] = { 0, 0, 4, 0, 4, 0, 0, 4 };
	static const uint32_t few[4] = { 11, 11, 9, 0 }, four[4] = { 11, 11, 9, 1 },
			      sections[4] = { 11, 11, 10, 0 };
	static const struct bad bad[] = {
		{ { "qwen35.rope.dimension_sections", LIST, 4, NULL, few },
		  -EINVAL,
		  "dimension_sections has 11, 11 and 9 pairs of the 32" },
		{ { "qwen35.rope.dimension_sections", LIST, 4, NULL, four }, -EINVAL, "of the 32" },
		{ { "qwen35.rope.dimension_sections", LIST, 2, NULL, sections },
		  -EINVAL,
		  "of the 32" },
		{ { "qwen35.ssm.conv_kernel", TENSOR }, -ENOENT, "qwen35.ssm.conv_kernel" },
		{ { "qwen35.ssm.conv_kernel", U32, 9 }, -EINVAL, "not in 2 … 8" },
		{ { "qwen35.ssm.state_size", U32, 257 }, -EINVAL, "not in 1 … 256" },
		{ { "qwen35.ssm.group_count", U32, 12 },
		  -EINVAL,
		  "12 heads of keys, 32 of values" },
		{ { "qwen35.ssm.inner_size", U32, 4095 }, -EINVAL, "4095 values do not fit" },
		{ { "qwen35.ssm.time_step_rank", U32, 0 }, -EINVAL, "time_step_rank" },
		{ { "qwen35.full_attention_interval", U32, 0 },
		  -EINVAL,
		  "full_attention_interval" },
		{ { "qwen35.full_attention_interval", U32, 1 },
		  -ENOTSUP,
		  "8 layers with attention and 0 without" },
		{ { "qwen35.full_attention_interval", U32, 9 },
		  -ENOTSUP,
		  "0 layers with attention" },
		{ { "qwen35.attention.recurrent_layers", LIST, 7, NULL, kinds },
		  -EINVAL,
		  "7 elements" },
		{ { "qwen35.expert_count", U32, 8 }, -ENOTSUP, "experts" },
	};
	struct ig_meta good = qwen35();
	struct ig_model_info info;
	struct ig_error err = { 0 };

	if (read_params("qwen35", &good, &info, &err))
		fail_msg("%s", err.text);
	assert_int_equal(info.n_groups, 3);
	assert_int_equal(info.groups[0].n_layers, 2);
	assert_int_equal(info.groups[0].head_dim, 256);
	/* parts of 1 MiB: sixteen heads */
	assert_int_equal(info.groups[1].kind, IG_CACHE_STATE);
	assert_int_equal(info.groups[1].n_layers, 6);
	assert_int_equal(info.groups[1].n_kv_heads, 2);
	assert_int_equal(info.groups[1].head_dim, 16 * 128 * 128);
	assert_int_equal(info.groups[2].n_layers, 6);
	assert_int_equal(info.groups[2].n_kv_heads, 1);
	assert_int_equal(info.groups[2].head_dim, 3 * (2 * 16 * 128 + 32 * 128));
	refused("qwen35", &good, bad, sizeof bad / sizeof *bad);
	for (int n = 3; n <= 4; n++) { /* some files have no fourth */
		meta_set(&good, (struct entry){ "qwen35.rope.dimension_sections", LIST, n, NULL,
						sections });
		assert_int_equal(read_params("qwen35", &good, &info, &err), 0);
	}
	meta_set(&good,
		 (struct entry){ "qwen35.attention.recurrent_layers", LIST, 8, NULL, kinds });
	assert_int_equal(read_params("qwen35", &good, &info, &err), 0);
	assert_int_equal(info.groups[1].n_layers, 6);
	/* as Ollama's files have it: no KV heads in recurrent layers */
	meta_drop(&good, "qwen35.attention.recurrent_layers");
	meta_set(&good, (struct entry){ "qwen35.attention.head_count_kv", LIST, 8, NULL, kv });
	if (read_params("qwen35", &good, &info, &err))
		fail_msg("%s", err.text);
	assert_int_equal(info.groups[0].n_layers, 3);
	assert_int_equal(info.groups[0].n_kv_heads, 4);
	assert_int_equal(info.groups[1].n_layers, 5);
	/* 48 heads: three parts; 4 heads of 32: one */
	meta_set(&good, (struct entry){ "qwen35.ssm.time_step_rank", U32, 48 });
	meta_set(&good, (struct entry){ "qwen35.ssm.inner_size", U32, 48 * 128 });
	assert_int_equal(read_params("qwen35", &good, &info, &err), 0);
	assert_int_equal(info.groups[1].n_kv_heads, 3);
}

/* With experts; the dense feed-forward's width may be missing, and lists have the blocks of the
 * prediction of further tokens too. */
static void test_qwen_moe(void **state)
{
	static const char *const names[] = { "qwen35moe", "qwen3next" };
	static const uint32_t kinds[9] = { 1, 1, 0, 1, 0, 1, 1, 1, 0 };

	for (size_t i = 0; i < 2; i++) {
		char keys[8][64];
		struct ig_meta good = renamed(qwen35(), names[i]);
		struct ig_model_info info;
		struct ig_error err = { 0 };
#define KEY(n, text) (snprintf(keys[n], sizeof keys[n], "%s." text, names[i]), keys[n])
		const struct bad bad[] = {
			{ { KEY(0, "expert_count"), TENSOR }, -ENOENT, "expert_count" },
			{ { KEY(1, "ssm.group_count"), U32, 12 }, -EINVAL, "12 heads of keys" },
			{ { KEY(2, "expert_feed_forward_length"), TENSOR },
			  -ENOENT,
			  "feed_forward_length" },
			{ { KEY(3, "attention.recurrent_layers"), LIST, 7, NULL, kinds },
			  -EINVAL,
			  "has 7 elements, the model 8 layers" },
		};
		meta_drop(&good, KEY(4, "feed_forward_length"));
		meta_set(&good, (struct entry){ keys[0], U32, 256 });
		meta_set(&good, (struct entry){ KEY(5, "expert_used_count"), U32, 8 });
		meta_set(&good, (struct entry){ keys[2], U32, 512 });
		if (read_params(names[i], &good, &info, &err))
			fail_msg("%s", err.text);
		assert_int_equal(info.n_groups, 3);
		refused(names[i], &good, bad, sizeof bad / sizeof *bad);
		meta_set(&good, (struct entry){ KEY(6, "block_count"), U32, 9 });
		meta_set(&good, (struct entry){ KEY(7, "nextn_predict_layers"), U32, 1 });
		meta_set(&good, (struct entry){ keys[3], LIST, 9, NULL, kinds });
		if (read_params(names[i], &good, &info, &err))
			fail_msg("%s", err.text);
		assert_int_equal(info.groups[1].n_layers, 6);
#undef KEY
	}
	struct ig_meta old = renamed(qwen35(), "qwen3next");
	struct ig_model_info info;
	struct ig_error err = { 0 };
	meta_set(&old, (struct entry){ "blk.0.ssm_in.weight", TENSOR, 8 });
	assert_int_equal(read_params("qwen3next", &old, &info, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "convert the model anew"));
}

/* ---- Nemotron-H ----------------------------------------------------------------------------- */

static const uint32_t nemotron_kv[6] = { 0, 0, 0, 2, 0, 0 },
		      nemotron_ff[6] = { 0, 1856, 0, 0, 1024, 1856 };

/* The shape of Nano, with fewer layers: M E M * - E. */
static struct ig_meta nemotron(void)
{
	static const struct entry all[] = {
		{ "nemotron_h_moe.block_count", U32, 6 },
		{ "nemotron_h_moe.context_length", U32, 262144 },
		{ "nemotron_h_moe.embedding_length", U32, 576 },
		{ "nemotron_h_moe.feed_forward_length", LIST, 6, NULL, nemotron_ff },
		{ "nemotron_h_moe.attention.head_count", U32, 32 },
		{ "nemotron_h_moe.attention.head_count_kv", LIST, 6, NULL, nemotron_kv },
		{ "nemotron_h_moe.attention.key_length", U32, 128 },
		{ "nemotron_h_moe.attention.value_length", U32, 128 },
		{ "nemotron_h_moe.attention.layer_norm_rms_epsilon", F32, 1e-5 },
		{ "nemotron_h_moe.ssm.conv_kernel", U32, 4 },
		{ "nemotron_h_moe.ssm.inner_size", U32, 64 * 64 },
		{ "nemotron_h_moe.ssm.state_size", U32, 128 },
		{ "nemotron_h_moe.ssm.time_step_rank", U32, 64 },
		{ "nemotron_h_moe.ssm.group_count", U32, 8 },
		{ "nemotron_h_moe.expert_count", U32, 128 },
		{ "nemotron_h_moe.expert_used_count", U32, 6 },
		{ "nemotron_h_moe.expert_feed_forward_length", U32, 1856 },
		{ "nemotron_h_moe.expert_shared_feed_forward_length", U32, 3712 },
		{ "token_embd.weight", TENSOR, 300 },
		{ "blk.1.ffn_gate_inp.weight", TENSOR, 128 },
		{ "blk.5.ffn_gate_inp.weight", TENSOR, 128 },
	};
	struct ig_meta m = { .n = sizeof all / sizeof *all };

	memcpy(m.entries, all, sizeof all);
	return m;
}

static void test_nemotron(void **state)
{
	static const uint32_t no_mamba[6] = { 1, 1856, 1, 0, 1024, 1856 }, no_attention[6] = { 0 };
	static const uint32_t used[6] = { 0, 0, 0, 0, 0, 6 }, many[6] = { 0, 6, 0, 0, 0, 33 };
	static const uint32_t widths[6] = { 0, 1856, 0, 0, 0, 24 }, three[6] = { 0, 3, 0, 0, 0, 8 };
	static const struct bad bad[] = {
		{ { "nemotron_h_moe.ssm.conv_kernel", TENSOR }, -ENOENT, "ssm.conv_kernel" },
		{ { "nemotron_h_moe.ssm.conv_kernel", U32, 9 }, -EINVAL, "not in 2 … 8" },
		{ { "nemotron_h_moe.ssm.state_size", U32, 257 }, -EINVAL, "not in 1 … 256" },
		{ { "nemotron_h_moe.ssm.group_count", U32, 7 },
		  -EINVAL,
		  "64 heads, 7 groups and 4096 values do not fit" },
		{ { "nemotron_h_moe.ssm.inner_size", U32, 4095 }, -EINVAL, "4095 values" },
		{ { "nemotron_h_moe.feed_forward_length", LIST, 5, NULL, nemotron_ff },
		  -EINVAL,
		  "has 5 elements, the model 6 layers" },
		{ { "nemotron_h_moe.feed_forward_length", LIST, 6, NULL, no_mamba },
		  -ENOTSUP,
		  "1 layers with attention and 0 with Mamba-2" },
		{ { "nemotron_h_moe.attention.head_count_kv", LIST, 6, NULL, no_attention },
		  -ENOTSUP,
		  "has only zeros" },
		{ { "nemotron_h_moe.expert_count", TENSOR }, -EINVAL, "2 layers have experts" },
		{ { "nemotron_h_moe.moe_latent_size", U32, 24 }, -ENOTSUP, "multiples of 16" },
		/* by layer, as in Puzzle's */
		{ { "nemotron_h_moe.expert_used_count", LIST, 6, NULL, used },
		  -EINVAL,
		  "layer 1 has experts, but nemotron_h_moe.expert_used_count or" },
		{ { "nemotron_h_moe.expert_used_count", LIST, 6, NULL, many },
		  -EINVAL,
		  "is 33 for layer 5, not in 0 … 32" },
		{ { "nemotron_h_moe.expert_used_count", LIST, 5, NULL, used },
		  -EINVAL,
		  "has 5 elements, the model 6 layers" },
		{ { "nemotron_h_moe.expert_feed_forward_length", LIST, 6, NULL, widths },
		  -ENOTSUP,
		  "experts of 24 columns in layer 5" },
	};
	struct ig_meta good = nemotron();
	struct ig_model_info info;
	struct ig_error err = { 0 };

	if (read_params("nemotron_h_moe", &good, &info, &err))
		fail_msg("%s", err.text);
	assert_int_equal(info.n_groups, 3);
	assert_int_equal(info.groups[0].n_layers, 1);
	assert_int_equal(info.groups[0].n_kv_heads, 2);
	/* parts of 1 MiB: 32 heads of 128 x 64 */
	assert_int_equal(info.groups[1].kind, IG_CACHE_STATE);
	assert_int_equal(info.groups[1].n_layers, 2);
	assert_int_equal(info.groups[1].n_kv_heads, 2);
	assert_int_equal(info.groups[1].head_dim, 32 * 128 * 64);
	assert_int_equal(info.groups[2].head_dim, 3 * (4096 + 2 * 8 * 128));
	refused("nemotron_h_moe", &good, bad, sizeof bad / sizeof *bad);
	meta_set(&good, (struct entry){ "nemotron_h_moe.expert_used_count", LIST, 6, NULL, three });
	assert_int_equal(read_params("nemotron_h_moe", &good, &info, &err), 0);
	/* the epsilon under the other norm's key; under none */
	meta_drop(&good, "nemotron_h_moe.attention.layer_norm_rms_epsilon");
	assert_int_equal(read_params("nemotron_h_moe", &good, &info, &err), -ENOENT);
	assert_non_null(strstr(err.text, "attention.layer_norm_epsilon"));
	meta_set(&good, (struct entry){ "nemotron_h_moe.attention.layer_norm_epsilon", F32, 1e-5 });
	assert_int_equal(read_params("nemotron_h_moe", &good, &info, &err), 0);
	good = renamed(good, "nemotron_h");
	assert_int_equal(read_params("nemotron_h", &good, &info, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "experts"));
}

/* ---- Granite 4 ------------------------------------------------------------------------------ */

static const uint32_t granite_kv[6] = { 0, 0, 0, 4, 0, 0 };

/* The shape of H-Tiny, with fewer layers. */
static struct ig_meta granite(void)
{
	static const struct entry all[] = {
		{ "granitehybrid.block_count", U32, 6 },
		{ "granitehybrid.context_length", U32, 1 << 20 },
		{ "granitehybrid.embedding_length", U32, 1536 },
		{ "granitehybrid.feed_forward_length", U32, 512 },
		{ "granitehybrid.attention.head_count", U32, 12 },
		{ "granitehybrid.attention.head_count_kv", LIST, 6, NULL, granite_kv },
		{ "granitehybrid.attention.layer_norm_rms_epsilon", F32, 1e-5 },
		{ "granitehybrid.rope.dimension_count", U32, 128 },
		{ "granitehybrid.rope.scaling.finetuned", U32, 0 },
		{ "granitehybrid.embedding_scale", F32, 12 },
		{ "granitehybrid.residual_scale", F32, 0.22 },
		{ "granitehybrid.attention.scale", F32, 0.0078125 },
		{ "granitehybrid.logit_scale", F32, 6 },
		{ "granitehybrid.ssm.conv_kernel", U32, 4 },
		{ "granitehybrid.ssm.inner_size", U32, 3072 },
		{ "granitehybrid.ssm.state_size", U32, 128 },
		{ "granitehybrid.ssm.time_step_rank", U32, 48 },
		{ "granitehybrid.ssm.group_count", U32, 1 },
		{ "granitehybrid.expert_count", U32, 64 },
		{ "granitehybrid.expert_used_count", U32, 6 },
		{ "granitehybrid.expert_shared_feed_forward_length", U32, 1024 },
		{ "token_embd.weight", TENSOR, 300 },
	};
	struct ig_meta m = { .n = sizeof all / sizeof *all };

	memcpy(m.entries, all, sizeof all);
	return m;
}

static void test_granite(void **state)
{
	static const uint32_t no_attention[6] = { 0 };
	static const struct bad bad[] = {
		{ { "granitehybrid.residual_scale", F32, 0 }, -EINVAL, "residual_scale is 0" },
		{ { "granitehybrid.logit_scale", F32, 0 }, -EINVAL, "logit_scale is 0" },
		{ { "granitehybrid.embedding_scale", F32, -1 }, -EINVAL, "embedding_scale is -1" },
		{ { "granitehybrid.attention.scale", F32, -1 }, -EINVAL, "attention.scale is -1" },
		{ { "granitehybrid.rope.scaling.finetuned", U32, 2 }, -EINVAL, "not in 0 … 1" },
		{ { "granitehybrid.ssm.inner_size", U32, 3071 }, -EINVAL, "3071 values" },
		{ { "granitehybrid.attention.head_count_kv", LIST, 6, NULL, no_attention },
		  -ENOTSUP,
		  "has only zeros" },
		{ { "granitehybrid.expert_used_count", U32, 65 },
		  -EINVAL,
		  "expert_used_count is 65" },
		{ { "granitehybrid.feed_forward_length", U32, 504 }, -ENOTSUP, "multiples of 16" },
	};
	struct ig_meta good = granite();
	struct ig_model_info info;
	struct ig_error err = { 0 };

	if (read_params("granitehybrid", &good, &info, &err))
		fail_msg("%s", err.text);
	assert_int_equal(info.n_groups, 3);
	assert_int_equal(info.groups[0].n_layers, 1);
	assert_int_equal(info.groups[0].head_dim, 128);
	assert_int_equal(info.groups[1].n_layers, 5);
	assert_int_equal(info.groups[1].n_kv_heads, 2); /* parts of 24 heads of 128 x 64 */
	assert_int_equal(info.groups[2].head_dim, 3 * (3072 + 2 * 128));
	refused("granitehybrid", &good, bad, sizeof bad / sizeof *bad);
	/* attention alone: nothing of Mamba-2 is read */
	meta_set(&good, (struct entry){ "granitehybrid.attention.head_count_kv", U32, 4 });
	meta_drop(&good, "granitehybrid.ssm.conv_kernel");
	assert_int_equal(read_params("granitehybrid", &good, &info, &err), 0);
	assert_int_equal(info.n_groups, 1);
	assert_int_equal(info.groups[0].n_layers, 6);
	/* Granite 3 is that without experts */
	struct ig_meta dense = renamed(good, "granite");
	assert_int_equal(read_params("granite", &dense, &info, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "experts"));
	struct ig_meta experts = renamed(good, "granitemoe");
	assert_int_equal(read_params("granitemoe", &experts, &info, &err), 0);
	assert_int_equal(info.n_groups, 1);
	assert_int_equal(info.groups[0].n_layers, 6);
	meta_drop(&dense, "granite.expert_count");
	assert_int_equal(read_params("granite", &dense, &info, &err), 0);
	assert_int_equal(info.n_groups, 1);
	assert_int_equal(info.groups[0].n_layers, 6);
	assert_int_equal(info.groups[0].n_kv_heads, 4);
}

static int load(void **state)
{
	void *so = dlopen(RECURRENT_MODULE, RTLD_NOW | RTLD_LOCAL);

	if (!so)
		fail_msg("%s", dlerror());
	module = dlsym(so, "ingot_module");
	assert_non_null(module);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lfm2),	 cmocka_unit_test(test_lfm2moe),
		cmocka_unit_test(test_qwen35),	 cmocka_unit_test(test_qwen_moe),
		cmocka_unit_test(test_nemotron), cmocka_unit_test(test_granite),
	};

	return cmocka_run_group_tests(tests, load, NULL);
}
