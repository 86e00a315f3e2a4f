/*
 * test_arch_llama.c: hyper-parameters from metadata, good and bad, and what the
 * architecture records, against a host that only takes notes.
 */
#include "arch_meta.h"
#include "attention_world.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- a file's metadata ------------------------------------------------------------------ */

static const struct entry smollm[] = {
	{ "llama.block_count", U32, 2 },
	{ "llama.context_length", U32, 8192 },
	{ "llama.embedding_length", U32, 576 },
	{ "llama.feed_forward_length", U32, 1536 },
	{ "llama.attention.head_count", U32, 9 },
	{ "llama.attention.head_count_kv", U32, 3 },
	{ "llama.attention.layer_norm_rms_epsilon", F32, 1e-5 },
	{ "llama.rope.freq_base", F32, 100000 },
	{ "llama.rope.dimension_count", U32, 64 },
	{ "llama.vocab_size", U32, 49152 },
};

static void meta_reset(struct ig_meta *m)
{
	memset(m, 0, sizeof *m);
	m->n = sizeof smollm / sizeof smollm[0];
	memcpy(m->entries, smollm, sizeof smollm);
}

/* ---- a recorder that takes notes ----------------------------------------------------------- */

#define MAX_NOTES 64

struct note {
	const char *op;
	unsigned char params[64];
	ig_value in[IG_MAX_IN], out;
	ig_weight w[IG_MAX_WEIGHTS];
	uint32_t n_in, n_w;
};

struct ig_graph {
	struct note notes[MAX_NOTES];
	int n;
	char weights[MAX_NOTES][64];
	int n_weights, n_values, status;
};

static ig_weight note_weight(struct ig_graph *g, const char *name, int64_t n_rows, int64_t n_cols)
{
	assert_true(g->n_weights < MAX_NOTES);
	snprintf(g->weights[g->n_weights], sizeof g->weights[0], "%s [%lld, %lld]", name,
		 (long long)n_rows, (long long)n_cols);
	return g->n_weights++;
}

static int note_op(struct ig_graph *g, const char *op, const void *params, const ig_value *in,
		   uint32_t n_in, const ig_weight *w, uint32_t n_w, ig_value *out, uint32_t n_out)
{
	struct note *n = &g->notes[g->n++];
	uint32_t size;

	assert_true(g->n <= MAX_NOTES && n_in <= IG_MAX_IN && n_w <= IG_MAX_WEIGHTS);
	memcpy(&size, params, sizeof size);
	assert_true(size <= sizeof n->params);
	memcpy(n->params, params, size);
	n->op = op;
	n->n_in = n_in;
	n->n_w = n_w;
	for (uint32_t i = 0; i < n_in; i++)
		n->in[i] = in[i];
	for (uint32_t i = 0; i < n_w; i++)
		n->w[i] = w[i];
	n->out = IG_NONE;
	if (n_out)
		*out = n->out = g->n_values++;
	return 0;
}

static int note_status(const struct ig_graph *g) { return g->status; }

static const struct ig_host host = {
	.struct_size = sizeof host,
	.meta_u32 = meta_u32,
	.meta_f32 = meta_f32,
	.meta_str = meta_str,
	.meta_has_tensor = meta_has_tensor,
	.weight = note_weight,
	.record = note_op,
	.graph_status = note_status,
	.meta_tensor = meta_tensor,
	.meta_array_u32 = meta_array_u32,
};

static const struct ig_arch *llama(void)
{
	for (const struct ig_arch *const *a = world_module()->archs; *a; a++)
		if (!strcmp((*a)->name, "llama"))
			return *a;
	fail_msg("the module has no architecture llama");
	return NULL;
}

static int read_params(const struct ig_meta *m, void **params, struct ig_model_info *info,
		       struct ig_error *err)
{
	*info = (struct ig_model_info){ .struct_size = sizeof *info };
	*params = calloc(1, llama()->params_size);
	assert_non_null(*params);
	return llama()->read_params(&host, m, *params, info, err);
}

/* ---- the tests ---------------------------------------------------------------------------------- */

static void test_info(void **state)
{
	struct ig_meta m;
	struct ig_model_info info;
	struct ig_error err = { 0 };
	void *params;

	meta_reset(&m);
	assert_int_equal(read_params(&m, &params, &info, &err), 0);
	free(params);
	assert_int_equal(info.struct_size, sizeof info);
	assert_int_equal(info.n_vocab, 49152);
	assert_int_equal(info.n_context, 8192);
	assert_int_equal(info.n_groups, 1);
	assert_int_equal(info.groups[0].struct_size, sizeof info.groups[0]);
	assert_int_equal(info.groups[0].n_layers, 2);
	assert_int_equal(info.groups[0].n_kv_heads, 3);
	assert_int_equal(info.groups[0].head_dim, 64);
	assert_int_equal(info.groups[0].window, 0);
	/* what may be missing */
	meta_drop(&m, "llama.attention.head_count_kv");
	meta_drop(&m, "llama.rope.freq_base");
	meta_drop(&m, "llama.rope.dimension_count");
	meta_set(&m, (struct entry){ "llama.attention.key_length", U32, 80 });
	assert_int_equal(read_params(&m, &params, &info, &err), 0);
	free(params);
	assert_int_equal(info.groups[0].n_kv_heads, 9);
	/* the embedding's rows, where the file does not say how many tokens there are */
	meta_drop(&m, "llama.vocab_size");
	meta_set(&m, (struct entry){ "token_embd.weight", TENSOR, 777 });
	assert_int_equal(read_params(&m, &params, &info, &err), 0);
	free(params);
	assert_int_equal(info.n_vocab, 777);
	assert_int_equal(info.groups[0].head_dim, 80);
}

static void test_refusals(void **state)
{
	static const struct {
		struct entry e; /* kind TENSOR and no number: the key is dropped */
		int code;
		const char *text;
	} bad[] = {
		{ { "llama.block_count", U32, 0 }, -EINVAL, "llama.block_count is 0" },
		{ { "llama.block_count", U32, 1025 }, -EINVAL, "llama.block_count is 1025" },
		{ { "llama.block_count", F32, 2 }, -EINVAL, "llama.block_count" },
		{ { "llama.embedding_length", U32, 0 }, -EINVAL, "llama.embedding_length is 0" },
		{ { "llama.embedding_length", U32, 4294967295.0 }, -EINVAL, "embedding_length" },
		{ { "llama.embedding_length", U32, 580 }, -EINVAL, "580 is not a multiple" },
		{ { "llama.feed_forward_length", U32, 0 }, -EINVAL, "feed_forward_length is 0" },
		{ { "llama.attention.head_count", U32, 0 }, -EINVAL, "head_count is 0" },
		{ { "llama.attention.head_count", U32, 5000 }, -EINVAL, "head_count is 5000" },
		{ { "llama.attention.head_count_kv", U32, 0 }, -EINVAL, "head_count_kv is 0" },
		{ { "llama.attention.head_count_kv", U32, 4 }, -EINVAL, "head_count_kv 4" },
		{ { "llama.attention.head_count_kv", STR, 0, "3" }, -EINVAL, "head_count_kv" },
		{ { "llama.attention.key_length", U32, 60 }, -EINVAL, "a head of 60" },
		{ { "llama.attention.key_length", U32, 0 }, -EINVAL, "a head of 0" },
		{ { "llama.attention.key_length", U32, 584 }, -EINVAL, "a head of 584" },
		{ { "llama.attention.value_length", U32, 32 }, -ENOTSUP, "value_length 32" },
		{ { "llama.rope.dimension_count", U32, 63 }, -EINVAL, "dimension_count 63 is odd" },
		{ { "llama.rope.dimension_count", U32, 66 }, -EINVAL, "dimension_count is 66" },
		{ { "llama.rope.dimension_count", U32, 0 }, -EINVAL, "dimension_count is 0" },
		{ { "llama.attention.layer_norm_rms_epsilon", F32, -1 },
		  -EINVAL,
		  "rms_epsilon is -1" },
		{ { "llama.attention.layer_norm_rms_epsilon", F32, NAN },
		  -EINVAL,
		  "rms_epsilon is" },
		{ { "llama.rope.freq_base", F32, 0 }, -EINVAL, "freq_base is 0" },
		{ { "llama.rope.freq_base", F32, INFINITY }, -EINVAL, "freq_base is inf" },
		{ { "llama.vocab_size", U32, 0 }, -EINVAL, "vocab_size is 0" },
		{ { "llama.context_length", U32, 0 }, -EINVAL, "context_length is 0" },
		{ { "llama.context_length", U32, 16777217 },
		  -EINVAL,
		  "context_length is 16777217" },
		{ { "llama.expert_count", U32, 8 }, -ENOTSUP, "llama.expert_count is 8" },
		{ { "llama.attention.sliding_window", F32, 4096 }, -EINVAL, "sliding_window" },
		{ { "llama.rope.scaling.type", STR, 0, "longrope" }, -ENOTSUP, "\"longrope\"" },
		{ { "llama.rope.scaling.type", STR, 0, "yarn" }, -ENOENT, "scaling.factor" },
		{ { "llama.rope.scaling.type", STR, 0, "linear" }, -ENOENT, "scaling.factor" },
		{ { "llama.rope.scale_linear", F32, 2 }, -ENOTSUP, "rope.scale_linear" },
		{ { "blk.0.ffn_gate.bias", TENSOR, 1 }, -ENOTSUP, "blk.0.ffn_gate.bias" },
		{ { "blk.0.ffn_down.bias", TENSOR, 1 }, -ENOTSUP, "blk.0.ffn_down.bias" },
		{ { "llama.attention.temperature_scale", F32, -1 },
		  -EINVAL,
		  "temperature_scale is -1" },
		{ { "llama.block_count", TENSOR, 0 }, -ENOENT, "llama.block_count" },
		{ { "llama.vocab_size", TENSOR, 0 }, -ENOENT, "llama.vocab_size" },
		{ { "llama.context_length", TENSOR, 0 }, -ENOENT, "llama.context_length" },
		{ { "llama.embedding_length", TENSOR, 0 }, -ENOENT, "llama.embedding_length" },
		{ { "llama.feed_forward_length", TENSOR, 0 }, -ENOENT, "feed_forward_length" },
		{ { "llama.attention.head_count", TENSOR, 0 }, -ENOENT, "head_count" },
		{ { "llama.attention.layer_norm_rms_epsilon", TENSOR, 0 }, -ENOENT, "rms_epsilon" },
	};

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct ig_meta m;
		struct ig_model_info info;
		struct ig_error err = { 0 };
		void *params;
		int rc;

		meta_reset(&m);
		if (bad[i].e.kind == TENSOR && bad[i].e.number == 0)
			meta_drop(&m, bad[i].e.key);
		else
			meta_set(&m, bad[i].e);
		rc = read_params(&m, &params, &info, &err);
		free(params);
		if (rc != bad[i].code || !strstr(err.text, bad[i].text))
			fail_msg("%s: %d \"%s\", expected %d with \"%s\"", bad[i].e.key, rc,
				 err.text, bad[i].code, bad[i].text);
	}
}

static const struct note *record(const struct ig_meta *m, struct ig_graph *g)
{
	struct ig_model_info info;
	struct ig_error err;
	void *params;

	memset(g, 0, sizeof *g);
	assert_int_equal(read_params(m, &params, &info, &err), 0);
	assert_int_equal(llama()->record(&host, g, m, params), g->status);
	free(params);
	return g->notes;
}

static void expect_weight(const struct ig_graph *g, ig_weight w, const char *text)
{
	assert_in_range(w, 0, g->n_weights - 1);
	assert_string_equal(g->weights[w], text);
}

static void test_record(void **state)
{
	static const char *const ops[] = {
		"rope_table", "embed", "norm",	 "linear", "rope_kv", "attention", "linear",
		"norm",	      "glu",   "linear", "norm",   "linear",  "rope_kv",   "attention",
		"linear",     "norm",  "glu",	 "linear", "norm",    "logits",	   "sample",
	};
	struct ig_meta m;
	struct ig_graph g;
	const struct note *n;
	struct ig_rope_kv_params rope;
	struct ig_attention_params attention;
	struct ig_rope_table_params table;
	struct ig_norm_params norm;
	struct ig_glu_params glu;

	meta_reset(&m);
	n = record(&m, &g);
	assert_int_equal(g.n, sizeof ops / sizeof ops[0]);
	for (int i = 0; i < g.n; i++)
		assert_string_equal(n[i].op, ops[i]);

	memcpy(&table, n[0].params, sizeof table);
	assert_int_equal(table.n_pairs, 32);
	assert_true(table.freq_base == 100000 && table.freq_scale == 1);
	assert_int_equal(n[0].n_w, 0);
	expect_weight(&g, n[1].w[0], "token_embd.weight [49152, 576]");

	/* the second layer */
	n += 10;
	memcpy(&norm, n[0].params, sizeof norm);
	assert_true(norm.kind == IG_NORM_RMS && norm.eps == 1e-5f && !norm.gather);
	expect_weight(&g, n[0].w[0], "blk.1.attn_norm.weight [1, 576]");
	assert_int_equal(n[1].n_w, 3);
	expect_weight(&g, n[1].w[0], "blk.1.attn_q.weight [576, 576]");
	expect_weight(&g, n[1].w[1], "blk.1.attn_k.weight [192, 576]");
	expect_weight(&g, n[1].w[2], "blk.1.attn_v.weight [192, 576]");
	memcpy(&rope, n[2].params, sizeof rope);
	assert_true(rope.n_heads == 9 && rope.n_kv_heads == 3 && rope.head_dim == 64 &&
		    rope.mode == IG_ROPE_PAIRS && rope.n_pairs == 32 && rope.group == 0 &&
		    rope.layer == 1);
	assert_int_equal(n[2].in[0], n[1].out);
	assert_int_equal(n[2].in[1], n[-10].out);
	memcpy(&attention, n[3].params, sizeof attention);
	assert_true(attention.n_heads == 9 && attention.n_kv_heads == 3 &&
		    attention.head_dim == 64 && attention.layer == 1 && attention.window == 0 &&
		    attention.scale == 0.125f);
	assert_int_equal(n[3].in[0], n[2].out);
	expect_weight(&g, n[4].w[0], "blk.1.attn_output.weight [576, 576]");
	assert_int_equal(n[4].in[0], n[3].out);
	assert_int_equal(n[4].in[1], n[-1].out); /* the residual: the layer's input */
	assert_int_equal(n[0].in[0], n[-1].out);
	expect_weight(&g, n[5].w[0], "blk.1.ffn_norm.weight [1, 576]");
	assert_int_equal(n[5].in[0], n[4].out);
	memcpy(&glu, n[6].params, sizeof glu);
	assert_int_equal(glu.act, IG_ACT_SILU);
	expect_weight(&g, n[6].w[0], "blk.1.ffn_gate.weight [1536, 576]");
	expect_weight(&g, n[6].w[1], "blk.1.ffn_up.weight [1536, 576]");
	assert_int_equal(n[6].in[0], n[5].out);
	expect_weight(&g, n[7].w[0], "blk.1.ffn_down.weight [576, 1536]");
	assert_int_equal(n[7].in[0], n[6].out);
	assert_int_equal(n[7].in[1], n[4].out);

	n += 8;
	memcpy(&norm, n[0].params, sizeof norm);
	assert_int_equal(norm.gather, 1);
	expect_weight(&g, n[0].w[0], "output_norm.weight [1, 576]");
	expect_weight(&g, n[1].w[0], "token_embd.weight [49152, 576]"); /* tied */
	assert_int_equal(n[2].in[0], n[1].out);
}

static void test_record_variants(void **state)
{
	struct ig_meta m;
	struct ig_graph g;
	const struct note *n;
	struct ig_rope_table_params table;

	meta_reset(&m);
	meta_set(&m, (struct entry){ "output.weight", TENSOR, 1 });
	meta_set(&m, (struct entry){ "rope_freqs.weight", TENSOR, 1 });
	meta_set(&m, (struct entry){ "llama.rope.scaling.type", STR, 0, "linear" });
	meta_set(&m, (struct entry){ "llama.rope.scaling.factor", F32, 4 });
	n = record(&m, &g);
	memcpy(&table, n[0].params, sizeof table);
	assert_true(table.freq_scale == 0.25f);
	assert_int_equal(n[0].n_w, 1);
	expect_weight(&g, n[0].w[0], "rope_freqs.weight [1, 32]");
	expect_weight(&g, n[g.n - 2].w[0], "output.weight [49152, 576]");
	/* biases where the file has them */
	meta_set(&m, (struct entry){ "blk.0.attn_q.bias", TENSOR, 1 });
	meta_set(&m, (struct entry){ "blk.0.attn_output.bias", TENSOR, 1 });
	n = record(&m, &g);
	assert_int_equal(n[3].n_w, 6);
	expect_weight(&g, n[3].w[2], "blk.0.attn_v.weight [192, 576]");
	expect_weight(&g, n[3].w[3], "blk.0.attn_q.bias [1, 576]");
	expect_weight(&g, n[3].w[5], "blk.0.attn_v.bias [1, 192]");
	assert_int_equal(n[6].n_w, 2);
	expect_weight(&g, n[6].w[1], "blk.0.attn_output.bias [1, 576]");
	assert_int_equal(n[6].in[1], n[1].out); /* the residual */
	/* "none" is no scaling */
	meta_set(&m, (struct entry){ "llama.rope.scaling.type", STR, 0, "none" });
	n = record(&m, &g);
	memcpy(&table, n[0].params, sizeof table);
	assert_true(table.freq_scale == 1);
}

static void test_windows(void **state)
{
	struct ig_meta m;
	struct ig_graph g;
	struct ig_model_info info;
	struct ig_attention_params attention;
	void *params;

	meta_reset(&m);
	meta_set(&m, (struct entry){ "llama.attention.sliding_window", U32, 4096 });
	assert_int_equal(read_params(&m, &params, &info, NULL), 0);
	free(params);
	assert_int_equal(info.groups[0].window, 4096);
	memcpy(&attention, record(&m, &g)[5].params, sizeof attention);
	assert_int_equal(attention.window, 4096);
	/* as wide as the context: none */
	meta_set(&m, (struct entry){ "llama.attention.sliding_window", U32, 8192 });
	assert_int_equal(read_params(&m, &params, &info, NULL), 0);
	free(params);
	assert_int_equal(info.groups[0].window, 0);
}

/* The ramp of YaRN for 32 pairs, base 100000 and 4096 positions, computed apart. */
static void test_yarn(void **state)
{
	struct ig_meta m;
	struct ig_graph g;
	struct ig_rope_table_params table;
	struct ig_attention_params attention;
	const struct note *n;

	meta_reset(&m);
	meta_set(&m, (struct entry){ "llama.rope.scaling.type", STR, 0, "yarn" });
	meta_set(&m, (struct entry){ "llama.rope.scaling.factor", F32, 4 });
	meta_set(&m, (struct entry){ "llama.rope.scaling.original_context_length", U32, 4096 });
	n = record(&m, &g);
	memcpy(&table, n[0].params, sizeof table);
	/* 32 ln(4096 / (2 pi 32)) / ln 100000 = 8.38; with one turn instead of 32: 18.01 */
	assert_true(table.freq_scale == 0.25f && table.ramp_first == 8 && table.ramp_last == 19);
	memcpy(&attention, n[5].params, sizeof attention);
	/* 0.125 (0.1 ln 4 + 1)^2 */
	assert_true(fabsf(attention.scale - 0.162059f) < 1e-5f);
	/* what the multiplier of the logarithm leaves of it: all of it, where it is 1 */
	meta_set(&m, (struct entry){ "llama.rope.scaling.yarn_log_multiplier", F32, 1 });
	memcpy(&attention, record(&m, &g)[5].params, sizeof attention);
	assert_true(attention.scale == 0.125f);
	meta_set(&m, (struct entry){ "llama.rope.scaling.yarn_log_multiplier", F32, 0.5 });
	memcpy(&attention, record(&m, &g)[5].params, sizeof attention);
	/* 0.125 ((0.1 ln 4 + 1) / (0.05 ln 4 + 1))^2 */
	assert_true(fabsf(attention.scale - 0.141731f) < 1e-5f);
	/* a ramp between pairs */
	meta_set(&m, (struct entry){ "llama.rope.scaling.yarn_truncate", U32, 0 });
	memcpy(&table, record(&m, &g)[0].params, sizeof table);
	assert_true(fabsf(table.ramp_first - 8.378f) < 1e-3f &&
		    fabsf(table.ramp_last - 18.011f) < 1e-3f && table.magnitude == 0);
	meta_drop(&m, "llama.rope.scaling.yarn_truncate");
	/* where a part of a head is rotated, only that part is scaled: cosines and sines are */
	meta_drop(&m, "llama.rope.scaling.yarn_log_multiplier");
	meta_set(&m, (struct entry){ "llama.rope.dimension_count", U32, 32 });
	memcpy(&attention, record(&m, &g)[5].params, sizeof attention);
	memcpy(&table, g.notes[0].params, sizeof table);
	assert_true(attention.scale == 0.125f && fabsf(table.magnitude - 1.138629f) < 1e-6f);
	assert_true(table.ramp_first == 4 && table.ramp_last == 10);
	meta_set(&m, (struct entry){ "llama.rope.dimension_count", U32, 64 });
	/* queries of far positions are sharpened, each so many positions more */
	meta_set(&m, (struct entry){ "llama.attention.temperature_scale", F32, 0.1 });
	struct ig_rope_kv_params rope;
	memcpy(&rope, record(&m, &g)[4].params, sizeof rope);
	assert_true(rope.q_scale == 0.1f && rope.q_scale_length == 4096);
	/* as many turns for both: a ramp without a length is a step */
	meta_set(&m, (struct entry){ "llama.rope.scaling.yarn_beta_fast", F32, 1e6 });
	meta_set(&m, (struct entry){ "llama.rope.scaling.yarn_beta_slow", F32, 1e6 });
	memcpy(&table, record(&m, &g)[0].params, sizeof table);
	assert_true(table.ramp_first == 0 && table.ramp_last > 0 && table.ramp_last < 0.01f);
}

/* An error of the graph is what record returns. */
static void test_status(void **state)
{
	struct ig_meta m;
	struct ig_graph g = { .status = -ENOENT };
	struct ig_model_info info;
	void *params;

	meta_reset(&m);
	assert_int_equal(read_params(&m, &params, &info, NULL), 0);
	assert_int_equal(llama()->record(&host, &g, &m, params), -ENOENT);
	free(params);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_info),	cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_record),	cmocka_unit_test(test_record_variants),
		cmocka_unit_test(test_windows), cmocka_unit_test(test_yarn),
		cmocka_unit_test(test_status),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
