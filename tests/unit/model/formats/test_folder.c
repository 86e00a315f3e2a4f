/* test_folder.c: models as folders of safetensors: what is read of them, how rows are made,
 * and every refusal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <ingot/arch_files.h>

#include "model/formats/checkpoint.h"
#include "tests/archs.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A model of one layer, two heads of 4, one of keys; lm_head is the embedding. */
#define CONFIG_WITH(more)                                                                          \
	"{\"model_type\":\"llama\",\"hidden_size\":8,\"num_hidden_layers\":1,"                     \
	"\"num_attention_heads\":2,\"num_key_value_heads\":1,\"intermediate_size\":16,"            \
	"\"max_position_embeddings\":64,\"tie_word_embeddings\":true" more "}"
#define CONFIG CONFIG_WITH("")
#define EMBED "\"model.embed_tokens.weight\""

static uint8_t data[1 << 16];

/* The file: the header, filled up with spaces, n bytes of data; malloced. */
static uint8_t *make_file(const char *header, size_t n, size_t *len)
{
	uint64_t text = strlen(header), n_header = (text + 7) / 8 * 8;
	uint8_t *p = malloc(8 + n_header + n + 1);

	assert_non_null(p);
	memcpy(p, &n_header, 8);
	memset(p + 8, ' ', n_header);
	memcpy(p + 8, header, text);
	memcpy(p + 8 + n_header, data, n);
	*len = 8 + n_header + n;
	return p;
}

static int open_bytes(const char *config, const uint8_t *file, size_t len, struct ig_checkpoint **g,
		      struct ig_error *err)
{
	const struct ig_checkpoint_file files[] = {
		{ "config.json", config, strlen(config) },
		{ "model.safetensors", file, len },
	};

	*err = (struct ig_error){ 0 };
	return ig_checkpoint_open_files(files, 2, "dir", test_archs, g, err);
}

static void fails(int rc, struct ig_checkpoint **g, const struct ig_error *err, int code,
		  const char *text)
{
	if (rc != code || !strstr(err->text, text))
		fail_msg("wanted %d and '%s', got %d: %s", code, text, rc, err->text);
	assert_null(*g);
	assert_int_equal(err->code, code);
}

static void refused(const char *config, const char *header, size_t n, int code, const char *text)
{
	struct ig_checkpoint *g;
	struct ig_error err;
	size_t len;
	uint8_t *file = make_file(header, n, &len);

	fails(open_bytes(config, file, len, &g, &err), &g, &err, code, text);
	free(file);
}

struct opened {
	struct ig_checkpoint *g;
	uint8_t *file;
};

static struct opened opened(const char *config, const char *header, size_t n)
{
	struct opened o;
	struct ig_error err;
	size_t len;

	o.file = make_file(header, n, &len);
	if (open_bytes(config, o.file, len, &o.g, &err))
		fail_msg("%s", err.text);
	return o;
}

static void closed(struct opened *o)
{
	ig_checkpoint_close(o->g);
	free(o->file);
}

static const struct ig_checkpoint_tensor *tensor(const struct opened *o, const char *name,
						 uint32_t dtype, int64_t n_rows, int64_t n_cols)
{
	const struct ig_checkpoint_tensor *t = ig_checkpoint_find_tensor(o->g, name);

	if (!t)
		fail_msg("%s is missing", name);
	assert_int_equal(t->dtype, dtype);
	assert_int_equal(t->n_rows, n_rows);
	assert_int_equal(t->n_cols, n_cols);
	assert_int_equal(t->n_bytes, (uint64_t)n_rows * ig_dtype_row_bytes(dtype, n_cols));
	return t;
}

/* Value [row, col], from a row made alone and among its neighbours. */
static float value(const struct opened *o, const struct ig_checkpoint_tensor *t, int64_t row,
		   int64_t col)
{
	uint64_t row_bytes = ig_dtype_row_bytes(t->dtype, t->n_cols);
	uint8_t *all = malloc(t->n_bytes), *one = malloc(row_bytes);
	float *v = malloc((size_t)t->n_cols * sizeof *v);
	const uint8_t *a = ig_checkpoint_rows(o->g, t, 0, t->n_rows, all);
	const uint8_t *b = ig_checkpoint_rows(o->g, t, row, 1, one);

	assert_true(t->data ? a == t->data : a == all && b == one);
	assert_memory_equal(a + (uint64_t)row * row_bytes, b, row_bytes);
	ig_dtype_to_f32(t->dtype, b, v, t->n_cols);
	float out = v[col];
	free(all);
	free(one);
	free(v);
	return out;
}

static uint32_t u32_key(const struct ig_checkpoint *g, const char *key)
{
	struct ig_error err = { 0 };
	uint32_t v;

	if (ig_checkpoint_u32(g, key, &v, &err))
		fail_msg("%s", err.text);
	return v;
}

static float f32_key(const struct ig_checkpoint *g, const char *key)
{
	struct ig_error err = { 0 };
	float v;

	if (ig_checkpoint_f32(g, key, &v, &err))
		fail_msg("%s", err.text);
	return v;
}

/* ---- keys ---- */

static void keys_are_ggufs(void **state)
{
	struct ig_checkpoint_key k;
	uint64_t len;
	const char *s;
	size_t n;
	struct opened o = opened(
		CONFIG_WITH(",\"rms_norm_eps\":1e-5,\"rope_theta\":500000,\"hidden_act\":\"silu\","
			    "\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}"),
		"{}", 0);

	assert_int_equal(ig_checkpoint_str(o.g, "general.architecture", &s, &n, NULL), 0);
	assert_int_equal(n, 5);
	assert_memory_equal(s, "llama", 5);
	assert_int_equal(u32_key(o.g, "llama.block_count"), 1);
	assert_int_equal(u32_key(o.g, "llama.embedding_length"), 8);
	assert_int_equal(u32_key(o.g, "llama.context_length"), 64);
	assert_int_equal(u32_key(o.g, "llama.attention.head_count"), 2);
	assert_int_equal(u32_key(o.g, "llama.attention.head_count_kv"), 1);
	assert_int_equal(u32_key(o.g, "llama.rope.dimension_count"), 4);
	assert_true(f32_key(o.g, "llama.attention.layer_norm_rms_epsilon") == 1e-5f);
	assert_true(f32_key(o.g, "llama.rope.freq_base") == 500000.0f);
	assert_true(f32_key(o.g, "llama.rope.scaling.factor") == 4.0f);
	assert_int_equal(ig_checkpoint_str(o.g, "llama.rope.scaling.type", &s, &n, NULL), 0);
	assert_int_equal(n, 6);
	/* as a file would have a string: its length before it */
	for (uint64_t i = 0; i < ig_checkpoint_n_keys(o.g); i++) {
		ig_checkpoint_key(o.g, i, &k);
		if (k.name_len == 23 && !memcmp(k.name, "llama.rope.scaling.type", 23)) {
			memcpy(&len, k.value, 8);
			assert_int_equal(len, 6);
			assert_int_equal(k.n_bytes, 14);
		}
	}
	assert_int_equal(ig_checkpoint_n_tensors(o.g), 0);
	assert_string_equal(ig_checkpoint_label(o.g), "dir");
	assert_string_equal(ig_checkpoint_format(o.g), "safetensors");
	closed(&o);
	/* what transformers takes where the file is silent */
	o = opened(
		"{\"model_type\":\"qwen3\",\"num_hidden_layers\":3,\"tie_word_embeddings\":true}",
		"{}", 0);
	assert_int_equal(u32_key(o.g, "qwen3.attention.key_length"), 128);
	assert_int_equal(u32_key(o.g, "qwen3.context_length"), 32768);
	assert_int_equal(u32_key(o.g, "qwen3.block_count"), 3);
	closed(&o);
	o = opened("{\"model_type\":\"mistral\",\"sliding_window\":null,"
		   "\"tie_word_embeddings\":true}",
		   "{}", 0);
	assert_int_equal(
		ig_checkpoint_u32(o.g, "llama.attention.sliding_window", &(uint32_t){ 0 }, NULL),
		-ENOENT);
	closed(&o);
	o = opened("{\"model_type\":\"mistral\",\"tie_word_embeddings\":true}", "{}", 0);
	assert_int_equal(u32_key(o.g, "llama.attention.sliding_window"), 4096);
	closed(&o);
}

static void rope_is_scaled(void **state)
{
	struct opened o = opened(
		CONFIG_WITH(",\"rope_parameters\":{\"rope_type\":\"llama3\",\"rope_theta\":10000,"
			    "\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4,"
			    "\"original_max_position_embeddings\":128}"),
		"{}", 0);
	const struct ig_checkpoint_tensor *t = tensor(&o, "rope_freqs.weight", IG_F32, 1, 2);

	/* the first pair turns fast, the second (a wave of 628) too slowly for 128 positions */
	assert_true(value(&o, t, 0, 0) == 1.0f && value(&o, t, 0, 1) == 8.0f);
	closed(&o);
	o = opened(CONFIG_WITH(",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,"
			       "\"attention_factor\":1,\"beta_fast\":16,\"truncate\":false,"
			       "\"original_max_position_embeddings\":16}"),
		   "{}", 0);
	assert_int_equal(u32_key(o.g, "llama.rope.scaling.original_context_length"), 16);
	assert_true(f32_key(o.g, "llama.rope.scaling.yarn_beta_fast") == 16.0f);
	assert_true(f32_key(o.g, "llama.rope.scaling.attn_factor") < 0.88f);
	assert_int_equal(u32_key(o.g, "llama.rope.scaling.yarn_truncate"), 0);
	closed(&o);
}

static void gemma_has_a_list(void **state)
{
	int32_t local[3];
	uint64_t n;
	struct opened o = opened(
		"{\"model_type\":\"gemma3\",\"text_config\":{\"num_hidden_layers\":3,"
		"\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\"]}}",
		"{\"vision_tower.x\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]},"
		"\"language_model.model.norm.weight\":{\"dtype\":\"BF16\",\"shape\":[2],"
		"\"data_offsets\":[8,12]}}",
		12);
	const char *key = "gemma3.attention.sliding_window_pattern";

	assert_int_equal(ig_checkpoint_array_len(o.g, key, &n, NULL), 0);
	assert_int_equal(n, 3);
	assert_int_equal(ig_checkpoint_array_i32(o.g, key, local, 3, NULL), 0);
	assert_true(local[0] == 1 && local[1] == 0 && local[2] == 1);
	assert_int_equal(ig_checkpoint_n_tensors(o.g), 1); /* what sees is left out */
	assert_true(value(&o, tensor(&o, "output_norm.weight", IG_F32, 1, 2), 0, 1) == 1.0f);
	closed(&o);
}

#define GEMMA4(more)                                                                               \
	"{\"model_type\":\"gemma4_text\",\"num_hidden_layers\":3,\"hidden_size\":16,"              \
	"\"num_attention_heads\":2,\"intermediate_size\":8,\"num_key_value_heads\":2" more "}"
#define GEMMA4_LAYERS                                                                              \
	",\"layer_types\":[\"sliding_attention\",\"full_attention\",\"full_attention\"]"

/* Numbers that config.json has for kinds of layers are lists in GGUF. */
static void gemma4_has_lists(void **state)
{
	int32_t n[3];
	struct opened o =
		opened(GEMMA4(GEMMA4_LAYERS
			      ",\"head_dim\":8,\"global_head_dim\":16,"
			      "\"num_global_key_value_heads\":1,\"attention_k_eq_v\":true,"
			      "\"num_kv_shared_layers\":1,\"use_double_wide_mlp\":true,"
			      "\"rope_parameters\":{\"full_attention\":{\"rope_theta\":1e6,"
			      "\"rope_type\":\"proportional\",\"partial_rotary_factor\":0.25}}"),
		       "{}", 0);
	const struct ig_checkpoint_tensor *t = tensor(&o, "rope_freqs.weight", IG_F32, 1, 8);

	for (int64_t i = 0; i < 8; i++)
		assert_true(value(&o, t, 0, i) == (i < 2 ? 1.0f : 1e30f));
	assert_int_equal(u32_key(o.g, "gemma4.attention.key_length"), 16);
	assert_int_equal(u32_key(o.g, "gemma4.attention.key_length_swa"), 8);
	assert_int_equal(u32_key(o.g, "gemma4.rope.dimension_count"), 16);
	assert_int_equal(ig_checkpoint_array_i32(o.g, "gemma4.attention.head_count_kv", n, 3, NULL),
			 0);
	assert_true(n[0] == 2 && n[1] == 1 && n[2] == 1);
	assert_int_equal(ig_checkpoint_array_i32(o.g, "gemma4.feed_forward_length", n, 3, NULL), 0);
	assert_true(n[0] == 8 && n[1] == 8 && n[2] == 16);
	closed(&o);
	refused(GEMMA4(""), "{}", 0, -ENOTSUP, "\"layer_types\" is missing");
	refused(GEMMA4(GEMMA4_LAYERS ",\"num_experts\":4"), "{}", 0, -ENOTSUP,
		"\"num_experts\" without enable_moe_block");
	refused(GEMMA4(GEMMA4_LAYERS ",\"per_layer_config\":{\"1\":{}}"), "{}", 0, -ENOTSUP,
		"per_layer_config");
	refused(GEMMA4(GEMMA4_LAYERS ",\"use_bidirectional_attention\":\"all\""), "{}", 0, -ENOTSUP,
		"only vision is supported");
	refused(GEMMA4(GEMMA4_LAYERS ",\"rope_parameters\":{\"full_attention\":{"
				     "\"rope_type\":\"proportional\",\"factor\":2}}"),
		"{}", 0, -ENOTSUP, "of type proportional with a factor of 2");
}

#define MUSE(more)                                                                                 \
	"{\"model_type\":\"muse_glimmer\",\"text_config\":{\"model_type\":\"muse_glimmer_text\","  \
	"\"num_hidden_layers\":2,\"hidden_size\":16,\"num_attention_heads\":2,\"head_dim\":8,"     \
	"\"tie_word_embeddings\":true" more "}}"
#define MUSE_LAYERS ",\"layer_types\":[\"sliding_attention\",\"full_attention\"]"

/* Muse Glimmer's QK norms are in no folder: their weights are made. */
static void muse_has_made_norms(void **state)
{
	struct opened o = opened(MUSE(MUSE_LAYERS ",\"qk_scale_factor\":2.5,"
						  "\"rope_parameters\":{\"rope_theta\":500},"
						  "\"layer_rope_theta\":[500,0]"),
				 "{}", 0);
	const struct ig_checkpoint_tensor *t;

	assert_int_equal(ig_checkpoint_n_tensors(o.g), 4);
	t = tensor(&o, "blk.1.attn_q_norm.weight", IG_F32, 1, 8);
	assert_true(value(&o, t, 0, 0) == 2.5f && value(&o, t, 0, 7) == 2.5f);
	t = tensor(&o, "blk.0.attn_k_norm.weight", IG_F32, 1, 8);
	assert_true(value(&o, t, 0, 0) == 1 && value(&o, t, 0, 7) == 1);
	closed(&o);
	refused(MUSE(""), "{}", 0, -ENOTSUP, "\"layer_types\" is missing");
	refused(MUSE(MUSE_LAYERS ",\"post_norm_eps\":1e-6"), "{}", 0, -ENOTSUP,
		"\"post_norm_eps\" is 1e-06");
	refused(MUSE(MUSE_LAYERS ",\"layer_rope_theta\":[10000,10000]"), "{}", 0, -ENOTSUP,
		"\"layer_rope_theta\" is 10000 for layer 1");
	refused(MUSE(MUSE_LAYERS ",\"layer_rope_theta\":[500,0]"), "{}", 0, -ENOTSUP,
		"is 500 for layer 0: only 10000");
	refused(MUSE(MUSE_LAYERS ",\"layer_rope_theta\":[\"x\",0]"), "{}", 0, -EINVAL,
		"is not a list of numbers");
	refused(MUSE(MUSE_LAYERS ",\"layer_rope_theta\":7"), "{}", 0, -EINVAL,
		"is not a list of numbers");
}

static void configs_are_refused(void **state)
{
	static const struct {
		const char *config, *text;
		int code;
	} bad[] = {
		{ "", "config.json: line 1, column 0: no JSON", -EINVAL },
		{ "[]", "config.json: not an object", -EINVAL },
		{ "{\"model_type\":\"llama\",\"model_type\":\"gpt2\"}", "duplicate", -EINVAL },
		{ "{}", "\"model_type\" is missing", -EINVAL },
		{ "{\"model_type\":7}", "\"model_type\" is not a string", -EINVAL },
		{ "{\"model_type\":\"phi\\u00e9\"}", "\"phi??\": not supported; known: llama",
		  -ENOTSUP },
		{ "{\"model_type\":\"gemma3\",\"text_config\":4}",
		  "\"text_config\" is not an object", -EINVAL },
		{ CONFIG_WITH(",\"hidden_act\":\"gelu\""), "\"hidden_act\" is \"gelu\"", -ENOTSUP },
		{ CONFIG_WITH(",\"rms_norm_eps\":\"x\""), "\"rms_norm_eps\" is not a number",
		  -EINVAL },
		{ CONFIG_WITH(",\"rms_norm_eps\":1e300"), "that float32 can hold", -EINVAL },
		{ CONFIG_WITH(",\"head_dim\":5"), "\"head_dim\" of 5", -EINVAL },
		{ CONFIG_WITH(",\"head_dim\":-4"), "\"head_dim\" is not a whole number", -EINVAL },
		{ CONFIG_WITH(",\"partial_rotary_factor\":0.5"), "\"partial_rotary_factor\" is 0.5",
		  -ENOTSUP },
		{ CONFIG_WITH(",\"rope_scaling\":7"), "\"rope_scaling\" is not an object",
		  -EINVAL },
		{ CONFIG_WITH(",\"rope_scaling\":{\"type\":\"longrope\"}"),
		  "\"longrope\": not supported", -ENOTSUP },
		{ CONFIG_WITH(",\"rope_scaling\":{\"type\":\"linear\"}"), "needs a factor",
		  -EINVAL },
		{ CONFIG_WITH(",\"rope_scaling\":{\"type\":\"llama3\",\"factor\":8}"),
		  "of type llama3 needs", -EINVAL },
		{ CONFIG_WITH(
			  ",\"rope_scaling\":{\"type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,"
			  "\"high_freq_factor\":1,\"original_max_position_embeddings\":8}"),
		  "invalid numbers", -EINVAL },
		{ CONFIG_WITH(",\"quantization_config\":{\"quant_method\":\"gptq\"}"),
		  "\"gptq\": not supported", -ENOTSUP },
		{ CONFIG_WITH(",\"quantization\":[]"), "\"quantization\" is not an object",
		  -EINVAL },
		{ "{\"model_type\":\"llama\",\"num_hidden_layers\":0}", "0 layers", -EINVAL },
		{ "{\"model_type\":\"llama\",\"num_hidden_layers\":5000}", "5000 layers", -EINVAL },
		{ "{\"model_type\":\"llama\",\"num_hidden_layers\":1.5}",
		  "\"num_hidden_layers\" is not a whole", -EINVAL },
		{ "{\"model_type\":\"llama\",\"num_attention_heads\":0}", "0 heads", -EINVAL },
		{ "{\"model_type\":\"llama\"}", "lm_head.weight is missing", -EINVAL },
		{ "{\"model_type\":\"gemma3_text\",\"layer_types\":[\"full_attention\"]}",
		  "not a list of 26", -EINVAL },
		{ "{\"model_type\":\"gemma3_text\",\"num_hidden_layers\":1,\"layer_types\":[\"x\"]}",
		  "\"layer_types\" has \"x\"", -ENOTSUP },
		{ "{\"model_type\":\"gemma3_text\",\"query_pre_attn_scalar\":168}",
		  "\"query_pre_attn_scalar\" is 168: only 256", -ENOTSUP },
		{ "{\"model_type\":\"qwen3_moe\"}", "\"norm_topk_prob\" is false", -ENOTSUP },
		{ "{\"model_type\":\"qwen3_moe\",\"norm_topk_prob\":true,\"mlp_only_layers\":[1]}",
		  "\"mlp_only_layers\" is set", -ENOTSUP },
		{ "{\"model_type\":\"gpt2\",\"scale_attn_weights\":0}", "neither true nor false",
		  -EINVAL },
		{ "{\"model_type\":\"glm4_moe\",\"partial_rotary_factor\":1.5}",
		  "\"partial_rotary_factor\" is 1.5", -ENOTSUP },
		{ "{\"model_type\":\"glm4_moe\",\"norm_topk_prob\":false}",
		  "\"norm_topk_prob\" is false", -ENOTSUP },
		{ "{\"model_type\":\"glm4_moe\",\"num_nextn_predict_layers\":2000}",
		  "\"num_nextn_predict_layers\" is 2000", -EINVAL },
		{ "{\"model_type\":\"nemotron_h\"}", "\"hybrid_override_pattern\" is missing",
		  -EINVAL },
		{ "{\"model_type\":\"nemotron_h\",\"hybrid_override_pattern\":\"MX*\"}",
		  "\"hybrid_override_pattern\" has \"X\": not supported", -ENOTSUP },
		{ "{\"model_type\":\"nemotron_h\",\"layers_block_type\":[\"mamba\",3]}",
		  "has no layer 1", -EINVAL },
		{ "{\"model_type\":\"nemotron_h\",\"hybrid_override_pattern\":\"M*E\","
		  "\"n_routed_experts\":2000}",
		  "with 2000 experts is invalid", -EINVAL },
		{ "{\"model_type\":\"nemotron_h\",\"hybrid_override_pattern\":\"M*\","
		  "\"mlp_hidden_act\":\"silu\"}",
		  "only relu2 is supported", -ENOTSUP },
		{ "{\"model_type\":\"nemotron_h\",\"hybrid_override_pattern\":\"M*\","
		  "\"mamba_head_dim\":1024}",
		  "\"mamba_head_dim\" is 1024, of 128 heads", -ENOTSUP },
		{ "{\"model_type\":\"granitemoehybrid\",\"num_hidden_layers\":1}",
		  "\"layer_types\" has no layer 0", -EINVAL },
		{ "{\"model_type\":\"granitemoehybrid\",\"num_hidden_layers\":2,"
		  "\"layer_types\":[\"mamba\",\"moe\"]}",
		  "\"layer_types\" has \"moe\": not supported", -ENOTSUP },
		{ "{\"model_type\":\"granitemoehybrid\",\"num_hidden_layers\":1,"
		  "\"layer_types\":[\"mamba\"],\"mamba_expand\":65}",
		  "\"mamba_expand\" is 65", -ENOTSUP },
		{ "{\"model_type\":\"granitemoehybrid\",\"num_hidden_layers\":1,"
		  "\"layer_types\":[\"attention\"],\"position_embedding_type\":\"alibi\"}",
		  "\"position_embedding_type\" has \"alibi\": not supported", -ENOTSUP },
		{ "{\"model_type\":\"granitemoehybrid\",\"num_hidden_layers\":1,"
		  "\"layer_types\":[\"attention\"],\"position_embedding_type\":1}",
		  "\"position_embedding_type\" is not a string", -EINVAL },
		{ "{\"model_type\":\"minimax_m2\",\"rotary_dim\":129}",
		  "\"partial_rotary_factor\" is 1.00781", -ENOTSUP },
		{ "{\"model_type\":\"minimax_m2\",\"scoring_func\":\"softmax\"}",
		  "\"scoring_func\" is \"softmax\"", -ENOTSUP },
		{ "{\"model_type\":\"gpt_oss\",\"swiglu_alpha\":2}", "\"swiglu_alpha\" is 2",
		  -ENOTSUP },
	};

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		refused(bad[i].config, "{}", 0, bad[i].code, bad[i].text);
}

/* Blocks of MXFP4 that do not fit their scales, and experts' matrices that have no two halves. */
static void mxfp4_is_refused(void **state)
{
#define DOWN(type, shape, end, more)                                                               \
	"{\"model.layers.0.mlp.experts.down_proj_blocks\":{\"dtype\":\"" type                      \
	"\",\"shape\":" shape ",\"data_offsets\":[0," end "]}" more "}"
#define SCALES(shape, from, to)                                                                    \
	",\"model.layers.0.mlp.experts.down_proj_scales\":{\"dtype\":\"U8\",\"shape\":" shape      \
	",\"data_offsets\":[" from "," to "]}"
	static const struct {
		const char *header, *text;
		size_t n;
		int code;
	} bad[] = {
		{ DOWN("U8", "[2,1,1,16]", "32", ""), "has 4 dimensions", 32, -EINVAL },
		{ DOWN("U8", "[2,1,16]", "32", SCALES("[2,1]", "32", "34")),
		  "not of MXFP4's blocks of experts", 34, -EINVAL },
		{ DOWN("U8", "[2,1,1,16]", "32", SCALES("[2,1,2]", "32", "36")),
		  "another type or shape than its blocks", 36, -EINVAL },
		{ DOWN("U8", "[3,1,1,16]", "48", SCALES("[3,1,1]", "48", "51")), "has 3 experts",
		  51, -EINVAL },
		{ "{\"model.layers.0.mlp.experts.gate_up_proj\":{\"dtype\":\"F16\",\"shape\":[2,1,3],"
		  "\"data_offsets\":[0,12]}}",
		  "has no two halves", 12, -EINVAL },
		{ "{\"model.layers.0.mlp.experts.gate_up_proj_bias\":{\"dtype\":\"F16\",\"shape\":[2,3],"
		  "\"data_offsets\":[0,12]}}",
		  "has no two halves", 12, -EINVAL },
		{ "{\"model.layers.1.mlp.router.weight\":{\"dtype\":\"F16\",\"shape\":[1,1],"
		  "\"data_offsets\":[0,2]}}",
		  "is not a part of this architecture", 2, -ENOTSUP },
	};

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		refused("{\"model_type\":\"gpt_oss\",\"num_hidden_layers\":1,\"hidden_size\":64,"
			"\"num_attention_heads\":2,\"num_local_experts\":2,"
			"\"quantization_config\":{\"quant_method\":\"mxfp4\"}}",
			bad[i].header, bad[i].n, bad[i].code, bad[i].text);
#undef DOWN
#undef SCALES
}

/* ---- the header ---- */

static void headers_are_refused(void **state)
{
#define E(type, shape, from, to)                                                                   \
	"{" EMBED ":{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":[" from "," to    \
	"]}}"
	static const struct {
		const char *header, *text;
		size_t n;
	} bad[] = {
		{ "{", "no JSON", 2 },
		{ " {}", "begins with byte 20", 0 },
		{ "{\"a\":1,\"a\":1}", "duplicate", 0 },
		{ "{\"\":1}", "its name has 0 bytes", 0 },
		{ "{\"x\":1}", "\"x\": its entry in the header is not an object", 0 },
		{ "{\"x\":{}}", "\"x\": dtype is missing", 0 },
		{ E("F99", "[2]", "0", "8"), "dtype \"F99\" is unknown", 8 },
		{ "{\"x\":{\"dtype\":\"F32\"}}", "shape is missing", 0 },
		{ "{\"x\":{\"dtype\":\"F32\",\"shape\":[2]}}", "data_offsets is missing", 0 },
		{ E("F32", "[-2]", "0", "8"), "shape[0] is not a whole number", 8 },
		{ E("F32", "[2.0]", "0", "8"), "shape[0] is not a whole number", 8 },
		{ E("F32", "[1,1,1,1,1,1,1,1,1]", "0", "4"), "9 dimensions", 4 },
		{ E("F32", "[4294967296,4294967296,4]", "0", "8"), "more values than a number", 8 },
		{ E("F32", "[4611686018427387904]", "0", "8"), "do not fill", 8 },
		{ E("F32", "[2]", "0", "4"), "2 values of F32 do not fill data_offsets 0 to 4", 4 },
		{ E("F32", "[2]", "8", "0"), "not within", 8 },
		{ E("F32", "[2]", "0", "8"), "not within the data's 4 bytes", 4 },
		{ E("F32", "[2]", "-8", "0"), "data_offsets[0] is not a whole", 8 },
		{ E("F32", "[2]", "4", "12"),
		  "the 4 bytes before its data at 4 belong to no tensor", 12 },
		{ E("F32", "[2]", "0", "8"), "data ends at 8, the file has 9", 9 },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
		  "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}",
		  "\"b\": its data at 4 overlaps that of \"a\"", 12 },
	};
	struct ig_checkpoint *g;
	struct ig_error err;
	size_t len;
	uint8_t *file;
	uint64_t huge[] = { 1000, UINT64_MAX, 17u << 20, 0 };

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		refused(CONFIG, bad[i].header, bad[i].n, -EINVAL, bad[i].text);
	/* cut anywhere, and lengths that lie */
	file = make_file(E("F32", "[1,2]", "0", "8"), 8, &len);
	for (size_t n = 0; n < len; n++) {
		uint8_t *copy = malloc(n + 1);
		assert_non_null(copy);
		memcpy(copy, file, n);
		assert_int_equal(open_bytes(CONFIG, copy, n, &g, &err), -EINVAL);
		assert_null(g);
		assert_non_null(strstr(err.text, "dir/model.safetensors: "));
		free(copy);
	}
	for (size_t i = 0; i < 4; i++) {
		memcpy(file, &huge[i], 8);
		assert_int_equal(open_bytes(CONFIG, file, len, &g, &err), -EINVAL);
	}
	free(file);
}

/* ---- tensors ---- */

#define T(name, type, shape, from, to)                                                             \
	"\"" name "\":{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":[" #from        \
	"," #to "]}"

static void fill_f32(size_t n)
{
	for (size_t i = 0; i < n; i++)
		memcpy(data + 4 * i, &(float){ (float)i }, 4);
}

static void rows_are_put_in_order(void **state)
{
	struct opened o;
	const struct ig_checkpoint_tensor *t;

	fill_f32(64);
	o = opened(CONFIG,
		   "{\"__metadata__\":{\"format\":\"pt\"}," T(
			   "model.layers.0.self_attn.q_proj.weight", "F32", "[8,8]", 0, 256) "}",
		   256);
	t = tensor(&o, "blk.0.attn_q.weight", IG_F32, 8, 8);
	assert_null(t->data);
	assert_int_equal(t->dims[0], 8);
	assert_int_equal(t->dims[1], 8);
	/* heads of 4: rows 0 1 2 3 are 0 2 1 3 of the file */
	assert_true(value(&o, t, 0, 0) == 0 && value(&o, t, 1, 0) == 16 &&
		    value(&o, t, 2, 0) == 8 && value(&o, t, 3, 7) == 31 &&
		    value(&o, t, 5, 1) == 49);
	ig_checkpoint_drop_tensor(o.g, t); /* memory of ours stays as it is */
	assert_true(value(&o, t, 1, 0) == 16);
	assert_int_equal(ig_checkpoint_file_bytes(o.g) > 256, 1);
	assert_false(ig_checkpoint_map(o.g, &(const void *){ NULL }, &(uint64_t){ 0 }));
	closed(&o);
	/* biases too */
	o = opened(CONFIG, "{" T("model.layers.0.self_attn.q_proj.bias", "F32", "[8]", 0, 32) "}",
		   32);
	t = tensor(&o, "blk.0.attn_q.bias", IG_F32, 1, 8);
	assert_true(value(&o, t, 0, 1) == 2 && value(&o, t, 0, 2) == 1 && value(&o, t, 0, 6) == 5);
	closed(&o);
	/* Conv1D's columns are rows; vectors become float32 */
	o = opened("{\"model_type\":\"gpt2\",\"n_embd\":4,\"n_head\":2,\"n_layer\":1}",
		   "{" T("h.0.attn.c_attn.weight", "F32", "[4,12]", 0,
			 192) "," T("h.0.attn.c_attn.bias", "F16", "[12]", 192,
				    216) "," T("h.0.attn.bias", "BOOL", "[1,1,2,2]", 216, 220) "}",
		   220);
	t = tensor(&o, "blk.0.attn_qkv.weight", IG_F32, 12, 4);
	assert_true(value(&o, t, 0, 1) == 12 && value(&o, t, 11, 3) == 47 &&
		    value(&o, t, 5, 2) == 29);
	tensor(&o, "blk.0.attn_qkv.bias", IG_F32, 1, 12);
	assert_int_equal(ig_checkpoint_n_tensors(o.g), 2);
	closed(&o);
	/* data that needs no conversion is used in place */
	o = opened(CONFIG,
		   "{" T("model.embed_tokens.weight", "F32", "[4,8]", 0,
			 128) "," T("rotary_emb.inv_freq", "U8", "[1]", 128,
				    129) "," T("model.norm.weight", "F32", "[2]", 129, 137) "}",
		   137);
	t = tensor(&o, "token_embd.weight", IG_F32, 4, 8);
	assert_non_null(t->data);
	assert_true(value(&o, t, 3, 7) == 31);
	/* but not at an odd address */
	assert_null(tensor(&o, "output_norm.weight", IG_F32, 1, 2)->data);
	closed(&o);
}

static void tensors_are_refused(void **state)
{
#define Q "model.layers.0.self_attn.q_proj"
	static const struct {
		const char *header, *text;
		size_t n;
		int code;
	} bad[] = {
		{ "{" T("model.layers.1.input_layernorm.weight", "F32", "[2]", 0, 8) "}",
		  "is not a part of this", 8, -ENOTSUP },
		{ "{" T("model.layers.00.input_layernorm.weight", "F32", "[2]", 0, 8) "}",
		  "is not a part of this", 8, -ENOTSUP },
		{ "{" T("model.layers.0.mlp.gate_proj.bias", "F32", "[2]", 0, 8) "}",
		  "is not a part of this", 8, -ENOTSUP },
		{ "{" T("model.layers.0.self_attn.q_norm.weight", "F32", "[2]", 0, 8) "}",
		  "is not a part of this", 8, -ENOTSUP },
		{ "{" T("model.layers.0.mlp.experts.0.up_proj.weight", "F32", "[2]", 0, 8) "}",
		  "is not a part", 8, -ENOTSUP },
		{ "{" T("h.0.ln_1.weight", "F32", "[2]", 0, 8) "}",
		  "\"h.0.ln_1.weight\" is not a part", 8, -ENOTSUP },
		{ "{" T("model.norm.weight", "F32", "[2]", 0, 8) "," T("norm.weight", "F32", "[2]",
								       8, 16) "}",
		  "are the same part of the model", 16, -EINVAL },
		{ "{" T("model.norm.weight", "I32", "[2]", 0, 8) "}", "is of type I32; Ingot reads",
		  8, -ENOTSUP },
		{ "{" T("model.norm.weight", "F32", "[]", 0, 4) "}", "has 0 dimensions", 4,
		  -EINVAL },
		{ "{" T("model.norm.weight", "F32", "[0]", 0, 0) "}", "has no values", 0, -EINVAL },
		{ "{" T("model.embed_tokens.weight", "F32", "[1,1,2]", 0, 8) "}",
		  "has 3 dimensions", 8, -EINVAL },
		{ "{" T(Q ".weight", "F32", "[3,2]", 0, 24) "}", "is not of heads of 4", 24,
		  -EINVAL },
		{ "{" T(Q ".weight", "U32", "[4,2]", 0, 32) "}", "U32 without scales", 32,
		  -EINVAL },
		{ "{" T(Q ".scales", "F32", "[4,2]", 0, 32) "}", "has no weight", 32, -EINVAL },
		{ "{" T(Q ".weight", "F32", "[4,1]", 0, 16) "," T(Q ".scales", "F32", "[4,1]", 16,
								  32) "}",
		  "has 1 scales and 0 biases", 32, -EINVAL },
		{ "{" T(Q ".weight", "F32", "[4,1]", 0, 16) "," T(Q ".scales", "F32", "[4,1]", 16,
								  32) "," T(Q ".biases", "F32",
									    "[4,1]", 32, 48) "}",
		  "of type F32, but has scales", 48, -EINVAL },
		{ "{" T(Q ".weight", "U32", "[4,1]", 0, 16) "," T(Q ".scales", "F32", "[4,1]", 16,
								  32) "," T(Q ".biases", "F32",
									    "[4,1]", 32, 48) "}",
		  "no \"quantization\"", 48, -ENOTSUP },
		{ "{" T(Q ".weight", "U32", "[4,1]", 0, 16) "," T(Q ".scales", "F32", "[4,1]", 16,
								  32) "," T(Q ".biases", "F32",
									    "[2,2]", 32, 48) "}",
		  "has another shape than its weight", 48, -EINVAL },
	};

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		refused(CONFIG, bad[i].header, bad[i].n, bad[i].code, bad[i].text);
}

/* ---- MLX's groups ---- */

#define GROUPS(n, size, bits)                                                                      \
	CONFIG_WITH(",\"quantization\":{\"group_size\":" #size ",\"bits\":" #bits n "}")

static void groups_are_read(void **state)
{
	const struct ig_checkpoint_tensor *t;
	struct opened o;
	uint16_t one = 0x3f80, half = 0x3f00; /* bfloat16 */
	float small = 0x1p-26f;

	/* codes 0 … 15, twice, in each of 4 rows; scales 1, 0.5, 1, 0.5; biases -2 */
	for (int i = 0; i < 64; i++)
		data[i] = (uint8_t)(i % 8 * 0x22 + 0x10);
	for (int r = 0; r < 4; r++) {
		memcpy(data + 64 + 2 * r, r % 2 ? &half : &one, 2);
		memcpy(data + 72 + 2 * r, &(uint16_t){ 0xc000 }, 2);
	}
	o = opened(GROUPS("", 32, 4),
		   "{" T(Q ".weight", "U32", "[4,4]", 0, 64) "," T(Q ".scales", "BF16", "[4,1]", 64,
								   72) "," T(Q ".biases", "BF16",
									     "[4,1]", 72, 80) "}",
		   80);
	t = tensor(&o, "blk.0.attn_q.weight", IG_Q4_1, 4, 32);
	assert_string_equal(ig_checkpoint_format(o.g), "safetensors, MLX");
	for (int r = 0; r < 4; r++)
		for (int c = 0; c < 32; c++) /* row 1 is the file's 2, and so on */
			assert_true(value(&o, t, r, c) ==
				    (float)(c % 16) * (r < 2 ? 1.0f : 0.5f) - 2.0f);
	closed(&o);

	/* codes of 8 bits, a group of 64, an object of the module's own */
	for (int i = 0; i < 64; i++)
		data[i] = (uint8_t)(4 * i + 3);
	memcpy(data + 64, &(float){ 0.25f }, 4);
	memcpy(data + 68, &(float){ -32.0f }, 4);
	o = opened(GROUPS(",\"model.embed_tokens\":{\"group_size\":64,\"bits\":8}", 32, 4),
		   "{" T("model.embed_tokens.weight", "U32", "[1,16]", 0, 64) "," T(
			   "model.embed_tokens.scales", "F32", "[1,1]", 64,
			   68) "," T("model.embed_tokens.biases", "F32", "[1,1]", 68, 72) "}",
		   72);
	t = tensor(&o, "token_embd.weight", IG_Q8_M, 1, 64);
	for (int c = 0; c < 64; c++)
		assert_true(value(&o, t, 0, c) == (float)(4 * c + 3) * 0.25f - 32.0f);
	closed(&o);

	/* what float16 can't hold is rounded: to a subnormal, to the largest */
	memcpy(data + 64, &small, 4);
	memcpy(data + 68, &(float){ -1e6f }, 4);
	o = opened(GROUPS("", 64, 8),
		   "{" T("model.embed_tokens.weight", "U32", "[1,16]", 0, 64) "," T(
			   "model.embed_tokens.scales", "F32", "[1,1]", 64,
			   68) "," T("model.embed_tokens.biases", "F32", "[1,1]", 68, 72) "}",
		   72);
	t = tensor(&o, "token_embd.weight", IG_Q8_M, 1, 64);
	assert_true(value(&o, t, 0, 5) == -65504.0f);
	closed(&o);
}

static void groups_are_refused(void **state)
{
#define W                                                                                          \
	"{" T(Q ".weight", "U32", "[4,4]", 0, 64) "," T(Q ".scales", "F16", "[4,1]", 64,           \
							72) "," T(Q ".biases", "F16", "[4,1]", 72, \
								  80) "}"
	refused(GROUPS("", 16, 4), W, 80, -ENOTSUP, "group_size 16; Ingot reads 32, 64 and 128");
	refused(GROUPS("", 32, 3), W, 80, -ENOTSUP, "with 3 bits; Ingot reads 4 and 8");
	refused(GROUPS("", 64, 4), W, 80, -EINVAL,
		"rows of 4 words and 1 scales: not 4 bits in groups of 64");
	refused(GROUPS("", 32, 8), W, 80, -EINVAL, "not 8 bits in groups of 32");
	refused(GROUPS(",\"mode\":\"mxfp4\"", 32, 4), W, 80, -ENOTSUP,
		"mode \"mxfp4\"; Ingot reads affine");
	refused(GROUPS("", 32, 4),
		"{" T(Q ".weight", "U32", "[4,4]", 0, 64) "," T(Q ".scales", "U8", "[4,1]", 64,
								68) "," T(Q ".biases", "U8",
									  "[4,1]", 68, 72) "}",
		72, -ENOTSUP, "of type U8; Ingot reads scales");
}

/* ---- experts ---- */

#define MOE                                                                                        \
	"{\"model_type\":\"mixtral\",\"num_hidden_layers\":1,\"num_local_experts\":2,"             \
	"\"tie_word_embeddings\":true}"
#define X(e, part) "model.layers.0.block_sparse_moe.experts." #e "." part ".weight"

static void experts_are_joined(void **state)
{
	const struct ig_checkpoint_tensor *t;
	struct opened o;

	fill_f32(64);
	o = opened(MOE,
		   "{" T("model.layers.0.block_sparse_moe.experts.1.w1.weight", "F32", "[3,2]", 0,
			 24) "," T("model.layers.0.block_sparse_moe.experts.0.w1.weight", "F32",
				   "[3,2]", 24,
				   48) "," T("model.layers.0.block_sparse_moe.gate.weight", "F32",
					     "[2,2]", 48, 64) "}",
		   64);
	t = tensor(&o, "blk.0.ffn_gate_exps.weight", IG_F32, 6, 2);
	assert_int_equal(t->n_dims, 3);
	assert_true(t->dims[0] == 2 && t->dims[1] == 3 && t->dims[2] == 2 && t->dims[3] == 1);
	assert_true(value(&o, t, 0, 0) == 6 && value(&o, t, 2, 1) == 11 &&
		    value(&o, t, 3, 0) == 0 && value(&o, t, 5, 1) == 5);
	tensor(&o, "blk.0.ffn_gate_inp.weight", IG_F32, 2, 2);
	closed(&o);
	/* one tensor of all: gate's and up's rows of an expert, one below the other */
	o = opened(MOE,
		   "{" T("model.layers.0.mlp.experts.gate_up_proj", "F32", "[2,4,2]", 0, 64) "," T(
			   "model.layers.0.mlp.experts.down_proj", "F32", "[2,2,2]", 64, 96) "}",
		   96);
	t = tensor(&o, "blk.0.ffn_gate_exps.weight", IG_F32, 4, 2);
	assert_true(value(&o, t, 1, 1) == 3 && value(&o, t, 2, 0) == 8 && value(&o, t, 3, 1) == 11);
	t = tensor(&o, "blk.0.ffn_up_exps.weight", IG_F32, 4, 2);
	assert_true(value(&o, t, 0, 0) == 4 && value(&o, t, 1, 1) == 7 && value(&o, t, 2, 0) == 12);
	t = tensor(&o, "blk.0.ffn_down_exps.weight", IG_F32, 4, 2);
	assert_true(value(&o, t, 3, 1) == 23);
	closed(&o);
}

static void experts_are_refused(void **state)
{
#define M "model.layers.0.block_sparse_moe.experts."
	refused(MOE, "{" T(M "2.w1.weight", "F32", "[1,2]", 0, 8) "}", 8, -ENOTSUP,
		"is not a part of this");
	refused(MOE, "{" T(M "1.w1.weight", "F32", "[1,2]", 0, 8) "}", 8, -EINVAL,
		"where expert 0 is missing");
	refused(MOE, "{" T(M "0.w1.weight", "F32", "[1,2]", 0, 8) "}", 8, -EINVAL,
		"is the last of 1 experts, config.json has 2");
	refused(MOE,
		"{" T(M "0.w1.weight", "F32", "[1,2]", 0, 8) "," T(M "1.w1.weight", "F32", "[2,1]",
								   8, 16) "}",
		16, -EINVAL, "has another shape or type than the first");
	refused(MOE, "{" T("model.layers.0.mlp.experts.down_proj", "F32", "[3,1,1]", 0, 12) "}", 12,
		-EINVAL, "has 3 experts, config.json 2");
	refused(MOE, "{" T("model.layers.0.mlp.experts.gate_up_proj", "F32", "[2,3,1]", 0, 24) "}",
		24, -EINVAL, "has no two halves");
	refused(MOE,
		"{" T(M "0.w1.weight", "F32", "[1,2]", 0,
		      8) "," T("model.layers.0.mlp.switch_mlp.gate_proj.weight", "F32", "[2,1,1]",
			       8, 16) "}",
		16, -EINVAL, "are the same part");
}

/* ---- heads of latent attention ---- */

/* Two heads of two rows of keys and one of values, of a latent of four. */
#define LATENT(more)                                                                               \
	"{\"model_type\":\"deepseek_v2\",\"num_hidden_layers\":1,\"hidden_size\":8,"               \
	"\"num_attention_heads\":2,\"kv_lora_rank\":4,\"qk_nope_head_dim\":2,"                     \
	"\"qk_rope_head_dim\":2,\"v_head_dim\":1,\"tie_word_embeddings\":true" more "}"
#define KV_B "model.layers.0.self_attn.kv_b_proj.weight"

static void heads_are_split(void **state)
{
	const struct ig_checkpoint_tensor *t;
	struct opened o;

	fill_f32(24);
	o = opened(LATENT(""), "{" T(KV_B, "F32", "[6,4]", 0, 96) "}", 96);
	t = tensor(&o, "blk.0.attn_k_b.weight", IG_F32, 8, 2);
	assert_true(t->n_dims == 3 && t->dims[0] == 2 && t->dims[1] == 4 && t->dims[2] == 2);
	for (int64_t r = 0; r < 8; r++) /* row r % 4 of head r / 4: a column of its rows of keys */
		for (int64_t c = 0; c < 2; c++)
			assert_true(value(&o, t, r, c) == (float)(12 * (r / 4) + 4 * c + r % 4));
	t = tensor(&o, "blk.0.attn_v_b.weight", IG_F32, 2, 4);
	assert_true(t->n_dims == 3 && t->dims[0] == 4 && t->dims[1] == 1 && t->dims[2] == 2);
	for (int64_t c = 0; c < 4; c++)
		assert_true(value(&o, t, 0, c) == (float)(8 + c) &&
			    value(&o, t, 1, c) == (float)(20 + c));
	closed(&o);
	/* MLX has both, transposed already */
	o = opened(LATENT(""),
		   "{" T("model.layers.0.self_attn.embed_q.weight", "F32", "[2,4,2]", 0,
			 64) "," T("model.layers.0.self_attn.unembed_out.weight", "F32", "[2,1,4]",
				   64, 96) "}",
		   96);
	t = tensor(&o, "blk.0.attn_k_b.weight", IG_F32, 8, 2);
	assert_true(t->dims[1] == 4 && value(&o, t, 4, 1) == 9);
	t = tensor(&o, "blk.0.attn_v_b.weight", IG_F32, 2, 4);
	assert_true(value(&o, t, 1, 2) == 22);
	closed(&o);
}

static void heads_are_refused(void **state)
{
	refused(LATENT(""), "{" T(KV_B, "F32", "[5,4]", 0, 80) "}", 80, -EINVAL,
		"is not of 2 heads");
	refused(LATENT(""), "{" T(KV_B, "F32", "[2,4]", 0, 32) "}", 32, -EINVAL,
		"has 1 rows a head, of which 1 are of values");
	refused(LATENT(""), "{" T(KV_B, "F32", "[6]", 0, 24) "}", 24, -EINVAL, "is not of 2 heads");
	refused(LATENT(""),
		"{" T("model.layers.0.self_attn.embed_q.weight", "F32", "[3,3,2]", 0, 72) "}", 72,
		-EINVAL, "is not of 2 heads");
	refused(LATENT(",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"mscale\":1,"
		       "\"mscale_all_dim\":0.5}"),
		"{}", 0, -ENOTSUP, "\"mscale_all_dim\" is 0.5, and mscale 1");
	refused(LATENT(",\"topk_method\":\"group_limited_greedy\""), "{}", 0, -ENOTSUP,
		"only greedy is supported");
	refused(LATENT(",\"attention_bias\":true"), "{}", 0, -ENOTSUP, "\"attention_bias\"");
}

/* ---- tables of a module from elsewhere ---- */

/* Entries of a newer module's tables: unknown fields at their end are ignored. */
struct newer_key {
	struct ig_config_key k;
	uint64_t more;
};
struct newer_name {
	struct ig_tensor_name n;
	uint64_t more[3];
};

#define KEY(...) { { __VA_ARGS__ }, UINT64_MAX }
static const struct newer_key own_keys[] = {
	KEY("depth", "block_count", IG_CONFIG_U32, IG_CONFIG_REQUIRED),
	KEY("old_width|size.width|width", "embedding_length", IG_CONFIG_U32, 0, 64),
	KEY("n_heads", "attention.head_count", IG_CONFIG_U32, 0, 2),
	KEY("ff", "feed_forward_length", IG_CONFIG_U32, IG_CONFIG_TIMES, 3, "embedding_length"),
	KEY("window", "attention.sliding_window", IG_CONFIG_U32, IG_CONFIG_NULLABLE, 7),
	KEY("kinds", "pattern", IG_CONFIG_LAYERS, 0, 0, "a|b"),
	KEY("period", "pattern", IG_CONFIG_U32, 0, 9),
	KEY("letters", "count", IG_CONFIG_COUNT),
	KEY("eps", "eps", IG_CONFIG_F32, IG_CONFIG_OPTIONAL),
	KEY("act", NULL, IG_CONFIG_WORD, 0, 0, "relu"),
	KEY("step", NULL, IG_CONFIG_ONLY, 0, 1),
	KEY("on", NULL, IG_CONFIG_TRUE, 0, 1),
	KEY("off", NULL, IG_CONFIG_FALSE),
	KEY("extra", NULL, IG_CONFIG_REFUSED),
	KEY("value_heads", "ssm.time_step_rank", IG_CONFIG_U32, IG_CONFIG_OPTIONAL),
	KEY("value_groups", "ssm.group_count", IG_CONFIG_U32, IG_CONFIG_OPTIONAL),
	KEY("values", "ssm.inner_size", IG_CONFIG_U32, IG_CONFIG_OPTIONAL),
	KEY("experts", "expert_count", IG_CONFIG_U32, IG_CONFIG_OPTIONAL),
	KEY("key_dim", "ssm.state_size", IG_CONFIG_U32, IG_CONFIG_OPTIONAL),
};
static const struct newer_name own_names[] = {
	{ { "emb", "token_embd" } },
	{ { "b.%u.norm", "blk.%u.attn_norm", IG_TENSOR_BIAS | IG_TENSOR_PLUS_ONE } },
	{ { "b.%u.taps", "blk.%u.taps", IG_TENSOR_CONV } },
	{ { "b.%u.qkv", "blk.%u.qkv", IG_TENSOR_TILED } },
	{ { "b.%u.out", "blk.%u.out", IG_TENSOR_TILED_COLUMNS } },
	{ { "b.%u.qkvz", "blk.%u.abc|blk.%u.d", IG_TENSOR_TWO | IG_TENSOR_BY_KEY } },
	{ { "b.%u.in", "blk.%u.gate_shexp|blk.%u.up_shexp",
	    IG_TENSOR_TWO | IG_TENSOR_IF_EXPERTS } },
	{ { "b.%u.in", "blk.%u.gate|blk.%u.up", IG_TENSOR_TWO } },
	{ { "b.%u.log", "blk.%u.a", IG_TENSOR_NAMED | IG_TENSOR_TILED | IG_TENSOR_NEGATIVE_EXP } },
};

static void reads_words(const struct ig_config *c)
{
	assert_int_equal(c->word_at(c, "letters", 1, "E|MM|M"), 0);
	assert_int_equal(c->word_at(c, "letters", 2, "E|MM|M"), 2);
	assert_int_equal(c->word_at(c, "letters", 4, "E|M"), -1);
	assert_int_equal(c->word_at(c, "kinds", 1, "bb|a|b"), 2);
	assert_int_equal(c->word_at(c, "kinds", 2, "a|b"), -1);
	assert_int_equal(c->word_at(c, "none", 0, "a|b"), -1);
	assert_int_equal(c->word_at(c, "own.five", 0, "a|b"), -1);
	assert_int_equal(c->word(c, "letters", "M|ME|MEM*"), 2);
	assert_int_equal(c->word(c, "own.null", "a|b"), -1);
	assert_int_equal(c->word(c, "none", "a|b"), -1);
}

static void own_config(const struct ig_config *c)
{
	uint32_t n = 1, on = 0;
	float f = 0;

	if (c->flag(c, "own.on", &on) != 1 || !on)
		return;
	assert_int_equal(c->get_u32(c, "block_count"), 2);
	assert_int_equal(c->get_u32(c, "nothing"), 0);
	assert_int_equal(c->u32(c, "own.nothing", &n), 0);
	assert_int_equal(c->u32(c, "own.null", &n), -1);
	assert_int_equal(c->u32(c, "own.none|own.five", &n), 1);
	assert_int_equal(c->f32(c, "own.five", &f), 1);
	assert_true(n == 5 && f == 5);
	c->put_u32(c, "five", n);
	if (c->get_u32(c, "count"))
		reads_words(c);
	if (c->u32(c, "own.six", &n))
		c->refuse(c, -ENOTSUP, "six", "is %u: not done", n);
}

static const struct ig_arch_files own_files = {
	.struct_size = sizeof own_files,
	.tied = 1,
	.model_type = "own",
	.outer_type = "own_that_sees",
	.keys = &own_keys[0].k,
	.n_keys = sizeof own_keys / sizeof *own_keys,
	.key_bytes = sizeof *own_keys,
	.names = &own_names[0].n,
	.n_names = sizeof own_names / sizeof *own_names,
	.name_bytes = sizeof *own_names,
	.config = own_config,
};
static const struct ig_arch_files *const own_table[] = { &own_files, NULL };
static const struct ig_arch own_arch = { .struct_size = sizeof own_arch,
					 .name = "own",
					 .files = own_table };
/* One that no folder has. */
static const struct ig_arch old_arch = { .struct_size = sizeof old_arch, .name = "old" };
static const struct ig_arch *const own_archs[] = { &old_arch, &own_arch, NULL };

static int open_own(const char *config, const char *header, size_t n, struct opened *o,
		    struct ig_error *err)
{
	size_t len;

	o->file = make_file(header, n, &len);
	const struct ig_checkpoint_file files[] = {
		{ "config.json", config, strlen(config) },
		{ "model.safetensors", o->file, len },
	};
	*err = (struct ig_error){ 0 };
	return ig_checkpoint_open_files(files, 2, "dir", own_archs, &o->g, err);
}

static void tables_are_followed(void **state)
{
	const struct ig_checkpoint_tensor *t;
	struct ig_error err;
	struct opened o;
	uint64_t n;

	fill_f32(4);
	if (open_own("{\"model_type\":\"own_that_sees\",\"text_config\":{\"depth\":2,"
		     "\"size\":{\"width\":8},\"width\":9,\"kinds\":[\"a\",\"b\"],\"window\":null,"
		     "\"letters\":\"MEM*\",\"own\":{\"on\":true,\"null\":null,\"five\":5}}}",
		     "{" T("b.1.norm.weight", "F32", "[2]", 0, 8) "," T("b.1.norm.bias", "F32",
									"[2]", 8, 16) "}",
		     16, &o, &err))
		fail_msg("%s", err.text);
	assert_int_equal(u32_key(o.g, "own.block_count"), 2);
	assert_int_equal(u32_key(o.g, "own.embedding_length"), 8);
	assert_int_equal(u32_key(o.g, "own.feed_forward_length"), 24);
	assert_int_equal(u32_key(o.g, "own.five"), 5);
	assert_int_equal(u32_key(o.g, "own.count"), 4);
	assert_int_equal(ig_checkpoint_array_len(o.g, "own.pattern", &n, NULL), 0);
	assert_int_equal(n, 2);
	assert_int_equal(
		ig_checkpoint_u32(o.g, "own.attention.sliding_window", &(uint32_t){ 0 }, NULL),
		-ENOENT);
	assert_int_equal(ig_checkpoint_f32(o.g, "own.eps", &(float){ 0 }, NULL), -ENOENT);
	/* no RoPE, so no key of it */
	assert_int_equal(ig_checkpoint_f32(o.g, "own.rope.freq_base", &(float){ 0 }, NULL),
			 -ENOENT);
	t = tensor(&o, "blk.1.attn_norm.weight", IG_F32, 1, 2);
	assert_true(value(&o, t, 0, 1) == 2.0f); /* 1 + w */
	t = tensor(&o, "blk.1.attn_norm.bias", IG_F32, 1, 2);
	assert_true(value(&o, t, 0, 1) == 3.0f);
	closed(&o);
	if (open_own("{\"model_type\":\"own\",\"depth\":1,\"old_width\":16,\"ff\":5}", "{}", 0, &o,
		     &err))
		fail_msg("%s", err.text);
	assert_int_equal(u32_key(o.g, "own.embedding_length"), 16);
	assert_int_equal(u32_key(o.g, "own.feed_forward_length"), 5);
	assert_int_equal(u32_key(o.g, "own.attention.sliding_window"), 7);
	assert_int_equal(u32_key(o.g, "own.pattern"), 9);
	closed(&o);
}

#define HEADS                                                                                      \
	"{\"model_type\":\"own\",\"depth\":1,\"value_heads\":4,\"value_groups\":2,\"values\":8,"   \
	"\"key_dim\":1}"

/* q | k | v | z by heads of keys: one matrix of q, k and v, one of z. */
static void rows_by_heads_of_keys(void **state)
{
	static const float first[] = { 0, 10, 1, 11, 2, 3, 4, 5, 12, 13, 14, 15 },
			   second[] = { 6, 7, 8, 9, 16, 17, 18, 19 };
	const struct ig_checkpoint_tensor *t;
	struct ig_error err;
	struct opened o;

	fill_f32(20);
	if (open_own(HEADS, "{" T("b.0.qkvz.weight", "F32", "[20,1]", 0, 80) "}", 80, &o, &err))
		fail_msg("%s", err.text);
	t = tensor(&o, "blk.0.abc.weight", IG_F32, 12, 1);
	for (int i = 0; i < 12; i++)
		assert_true(value(&o, t, i, 0) == first[i]);
	t = tensor(&o, "blk.0.d.weight", IG_F32, 8, 1);
	for (int i = 0; i < 8; i++)
		assert_true(value(&o, t, i, 0) == second[i]);
	closed(&o);
}

/* One matrix of two's rows; which two it is of depends on whether there are experts. */
static void rows_of_two_matrices(void **state)
{
	static const struct {
		const char *config, *first, *second;
	} cases[] = {
		{ "{\"model_type\":\"own\",\"depth\":1}", "blk.0.gate.weight", "blk.0.up.weight" },
		{ "{\"model_type\":\"own\",\"depth\":1,\"experts\":2}", "blk.0.gate_shexp.weight",
		  "blk.0.up_shexp.weight" },
	};
	const struct ig_checkpoint_tensor *t;
	struct ig_error err;
	struct opened o;

	fill_f32(12);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		if (open_own(cases[i].config, "{" T("b.0.in.weight", "F32", "[6,2]", 0, 48) "}", 48,
			     &o, &err))
			fail_msg("%s", err.text);
		t = tensor(&o, cases[i].first, IG_F32, 3, 2);
		assert_true(value(&o, t, 0, 0) == 0.0f);
		assert_true(value(&o, t, 2, 1) == 5.0f);
		t = tensor(&o, cases[i].second, IG_F32, 3, 2);
		assert_true(value(&o, t, 0, 0) == 6.0f);
		assert_true(value(&o, t, 2, 1) == 11.0f);
		closed(&o);
	}
	for (int vector = 0; vector < 2; vector++) {
		int rc = open_own(cases[0].config,
				  vector ? "{" T("b.0.in.weight", "F32", "[10]", 0, 40) "}" :
					   "{" T("b.0.in.weight", "F32", "[5,2]", 0, 40) "}",
				  40, &o, &err);
		fails(rc, &o.g, &err, -EINVAL, "has no two halves");
		free(o.file);
	}
}

/* Taps of convolutions, and heads of values, which lie by their heads of keys. */
static void recurrent_layers(void **state)
{
	static const float rows[] = { 0, 1, 2, 3, 6, 7, 4, 5, 8, 9 }, heads[] = { 0, 2, 1, 3 };
	const struct ig_checkpoint_tensor *t;
	struct ig_error err;
	struct opened o;

	fill_f32(41);
	if (open_own(HEADS,
		     "{" T("b.0.qkv.weight", "F32", "[10,1]", 0,
			   40) "," T("b.0.out.weight", "F32", "[1,10]", 40,
				     80) "," T("b.0.log", "F32", "[4]", 80,
					       96) "," T("b.0.norm.weight", "F32", "[2]", 96,
							 104) "," T("b.0.taps.weight", "F32",
								    "[5,1,3]", 104, 164) "}",
		     164, &o, &err))
		fail_msg("%s", err.text);
	t = tensor(&o, "blk.0.qkv.weight", IG_F32, 10, 1);
	for (int i = 0; i < 10; i++)
		assert_true(value(&o, t, i, 0) == rows[i]);
	t = tensor(&o, "blk.0.out.weight", IG_F32, 1, 10);
	for (int i = 0; i < 10; i++)
		assert_true(value(&o, t, 0, i) == 10 + rows[i]);
	t = tensor(&o, "blk.0.a", IG_F32, 1, 4);
	for (int i = 0; i < 4; i++)
		assert_true(value(&o, t, 0, i) == (float)-exp(20 + (double)heads[i]));
	t = tensor(&o, "blk.0.taps.weight", IG_F32, 5, 3);
	assert_true(value(&o, t, 4, 2) == 40.0f);
	t = tensor(&o, "blk.0.attn_norm.weight", IG_F32, 1, 2);
	assert_true(value(&o, t, 0, 1) == 26.0f); /* 1 + w */
	closed(&o);
	/* MLX's taps: its norms have their 1 */
	if (open_own(HEADS,
		     "{" T("b.0.norm.weight", "F32", "[2]", 0, 8) "," T("b.0.taps.weight", "F32",
									"[5,3,1]", 8, 68) "}",
		     68, &o, &err))
		fail_msg("%s", err.text);
	t = tensor(&o, "blk.0.attn_norm.weight", IG_F32, 1, 2);
	assert_true(value(&o, t, 0, 1) == 1.0f);
	t = tensor(&o, "blk.0.taps.weight", IG_F32, 5, 3);
	assert_true(value(&o, t, 4, 2) == 16.0f);
	closed(&o);
#define BAD(config, name, shape, n, text)                                                          \
	do {                                                                                       \
		int rc = open_own(config, "{" T(name, "F32", shape, 0, n) "}", n, &o, &err);       \
		fails(rc, &o.g, &err, -EINVAL, text);                                              \
		free(o.file);                                                                      \
	} while (0)
	BAD(HEADS, "b.0.taps.weight", "[5,3]", 60, "has not the shape");
	BAD(HEADS, "b.0.taps.weight", "[1,5,3]", 60, "has not the shape");
	BAD(HEADS, "b.0.qkv.weight", "[5,3]", 60, "is not of 4 heads of values in 2");
	BAD(HEADS, "b.0.out.weight", "[3,5]", 60, "is not of 4 heads of values in 2");
	BAD(HEADS, "b.0.log", "[4,3]", 48, "is not a vector");
	BAD(HEADS, "b.0.qkvz.weight", "[19,1]", 76, "is not of 2 heads of keys of 1 and 8 values");
	BAD(HEADS, "b.0.qkvz.weight", "[20]", 80, "is not of 2 heads of keys");
	BAD("{\"model_type\":\"own\",\"depth\":1}", "b.0.qkvz.weight", "[20,1]", 80,
	    "is not of 0 heads of keys");
	BAD("{\"model_type\":\"own\",\"depth\":1}", "b.0.qkv.weight", "[10,1]", 40,
	    "is not of 0 heads");
	BAD("{\"model_type\":\"own\",\"depth\":1,\"value_heads\":4,\"value_groups\":3,\"values\":8}",
	    "b.0.qkv.weight", "[10,1]", 40, "is not of 4 heads of values in 3");
#undef BAD
}

static void tables_refuse(void **state)
{
#define OWN(more) "{\"model_type\":\"own\",\"depth\":1" more "}"
	static const struct {
		const char *config, *text;
		int code;
	} bad[] = {
		{ "{\"model_type\":\"own\"}", "\"depth\" is missing", -EINVAL },
		{ "{\"model_type\":\"own\",\"depth\":null}", "\"depth\" is missing", -EINVAL },
		{ "{\"model_type\":\"old\"}", "\"old\": not supported; known: own", -ENOTSUP },
		{ OWN(",\"size\":{\"width\":-1}"), "\"width\" is not a whole number", -EINVAL },
		{ OWN(",\"kinds\":[\"b\",\"a\"]"), "\"kinds\" is not a list of 1 layers", -EINVAL },
		{ OWN(",\"kinds\":[\"ab\"]"), "has \"ab\": not supported; a and b are", -ENOTSUP },
		{ OWN(",\"act\":\"silu\""), "\"act\" is \"silu\": only relu is supported with own",
		  -ENOTSUP },
		{ OWN(",\"step\":2"), "\"step\" is 2: only 1 is supported", -ENOTSUP },
		{ OWN(",\"on\":false"), "\"on\" is false: not supported with own", -ENOTSUP },
		{ OWN(",\"off\":true"), "\"off\" is true: not supported with own", -ENOTSUP },
		{ OWN(",\"extra\":\"x\""), "\"extra\" is set", -ENOTSUP },
		{ OWN(",\"width\":4294967295"), "\"ff\" is missing", -EINVAL },
		{ "{\"model_type\":\"own\",\"depth\":2,\"own\":{\"on\":true,\"null\":null,"
		  "\"five\":5,\"six\":6}}",
		  "\"six\" is 6: not done", -ENOTSUP },
		{ OWN(",\"own\":{\"on\":3}"), "\"on\" is neither true nor false", -EINVAL },
	};
	struct ig_error err;
	struct opened o;

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		int rc = open_own(bad[i].config, "{}", 0, &o, &err);
		fails(rc, &o.g, &err, bad[i].code, bad[i].text);
		free(o.file);
	}
	/* a kind that a newer module knows */
	struct ig_config_key kind = { "depth", NULL, 99 };
	struct ig_arch_files files = { .struct_size = sizeof files,
				       .model_type = "own",
				       .keys = &kind,
				       .n_keys = 1,
				       .key_bytes = sizeof kind };
	const struct ig_arch_files *const table[] = { &files, NULL };
	const struct ig_arch arch = { .struct_size = sizeof arch, .name = "own", .files = table };
	const struct ig_arch *const archs[] = { &arch, NULL };
	const struct ig_checkpoint_file file = { "config.json", OWN(""), sizeof OWN("") - 1 };
	err = (struct ig_error){ 0 };
	fails(ig_checkpoint_open_files(&file, 1, "dir", archs, &o.g, &err), &o.g, &err, -ENOTSUP,
	      "of kind 99, which is not supported");
	/* without architectures no folder is known */
	err = (struct ig_error){ 0 };
	fails(ig_checkpoint_open_files(&file, 1, "dir", NULL, &o.g, &err), &o.g, &err, -ENOTSUP,
	      "\"own\": not supported; known: none");
}

/* The check of a module before it is used. */
static void tables_are_whole(void **state)
{
	static const struct {
		struct ig_config_key k;
		bool whole;
	} keys[] = {
		{ { "a", "b", IG_CONFIG_U32 }, true },
		{ { NULL, "b", IG_CONFIG_U32 }, false },
		{ { "a", NULL, IG_CONFIG_F32 }, false },
		{ { "a", NULL, IG_CONFIG_REFUSED }, true },
		{ { "a", NULL, IG_CONFIG_WORD }, false },
		{ { "a", NULL, IG_CONFIG_WORD, 0, 0, "x" }, true },
		{ { "a", "b", IG_CONFIG_LAYERS, 0, 0, "x" }, false },
		{ { "a", "b", IG_CONFIG_LAYERS, 0, 0, "x|y" }, true },
		{ { "a", "b", IG_CONFIG_U32, IG_CONFIG_TIMES, 1 }, false },
		{ { "a", "b", IG_CONFIG_U32, IG_CONFIG_TIMES, 1, "c" }, true },
	};
	struct ig_arch_files files = own_files;
	const struct ig_arch_files *const table[] = { &own_files, &files, NULL };
	const struct ig_arch arch = { .struct_size = sizeof arch, .files = table };
	const struct ig_tensor_name nameless[] = { { "a", "b" }, { NULL, "b" }, { "a", NULL } };

	for (const struct ig_arch *const *a = test_archs; *a; a++)
		assert_true(ig_checkpoint_arch_is_whole(*a));
	assert_true(ig_checkpoint_arch_is_whole(&old_arch));
	assert_true(ig_checkpoint_arch_is_whole(&arch));
	for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
		files.keys = &keys[i].k;
		files.n_keys = 1;
		assert_int_equal(ig_checkpoint_arch_is_whole(&arch), keys[i].whole);
	}
	files = own_files;
	for (uint32_t i = 1; i <= 3; i++) {
		files.names = nameless + (i == 3);
		files.n_names = i == 3 ? 2 : i;
		files.name_bytes = sizeof *nameless;
		assert_int_equal(ig_checkpoint_arch_is_whole(&arch), i == 1);
	}
	files = own_files;
	files.key_bytes = sizeof(struct ig_config_key) - 8;
	assert_false(ig_checkpoint_arch_is_whole(&arch));
	files = own_files;
	files.struct_size -= 8;
	assert_false(ig_checkpoint_arch_is_whole(&arch));
	files = own_files;
	files.model_type = NULL;
	assert_false(ig_checkpoint_arch_is_whole(&arch));
}

/* ---- several files, siblings, paths ---- */

static void index_is_checked(void **state)
{
	static const struct {
		const char *index, *text;
		int code;
	} cases[] = {
		{ "{\"weight_map\":{\"model.norm.weight\":\"a.safetensors\","
		  "\"model.embed_tokens.weight\":\"b.safetensors\"}}",
		  NULL, 0 },
		{ "{", "index.json: line 1, column 1: no JSON", -EINVAL },
		{ "{}", "\"weight_map\" is missing", -EINVAL },
		{ "{\"weight_map\":{\"x\":3}}", "there is no file name for tensor x", -EINVAL },
		{ "{\"weight_map\":{\"x\":\"../a.safetensors\"}}",
		  "not the name of a safetensors file", -EINVAL },
		{ "{\"weight_map\":{\"x\":\"a.txt\"}}", "not the name of a safetensors file",
		  -EINVAL },
		{ "{\"weight_map\":{\"x\":\"c.safetensors\"}}",
		  "dir/c.safetensors: there is no such", -ENOENT },
		{ "{\"weight_map\":{\"x\":\"a.safetensors\"}}", "\"x\" is not in a.safetensors",
		  -EINVAL },
		{ "{\"weight_map\":{\"model.norm.weight\":\"b.safetensors\",\"a\":\"a.safetensors\"}}",
		  "\"model.norm.weight\" is not in b.safetensors", -EINVAL },
		{ "{\"weight_map\":{\"model.norm.weight\":\"a.safetensors\",\"x\":\"d.safetensors\"}}",
		  "is in a.safetensors and in d.safetensors", -EINVAL },
	};
	size_t len[2];
	uint8_t *a = make_file("{" T("model.norm.weight", "F32", "[2]", 0, 8) "}", 8, &len[0]);
	uint8_t *b = make_file("{" T("model.embed_tokens.weight", "F32", "[4,2]", 0, 32) "}", 32,
			       &len[1]);

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const struct ig_checkpoint_file files[] = {
			{ "config.json", CONFIG, sizeof CONFIG - 1 },
			{ "model.safetensors.index.json", cases[i].index, strlen(cases[i].index) },
			{ "a.safetensors", a, len[0] },
			{ "b.safetensors", b, len[1] },
			{ "d.safetensors", a, len[0] },
		};
		struct ig_checkpoint *g;
		struct ig_error err = { 0 };
		int rc = ig_checkpoint_open_files(files, 5, "dir", test_archs, &g, &err);
		if (cases[i].code) {
			fails(rc, &g, &err, cases[i].code, cases[i].text);
			continue;
		}
		assert_int_equal(rc, 0);
		assert_int_equal(ig_checkpoint_n_tensors(g), 2);
		assert_int_equal(ig_checkpoint_file_bytes(g), len[0] + len[1]);
		ig_checkpoint_close(g);
	}
	free(a);
	free(b);
}

static void put_file(const char *dir, const char *name, const void *p, size_t len)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof path, "%s/%s", dir, name);
	f = fopen(path, "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(p, 1, len, f), len);
	fclose(f);
}

static int open_at(const char *dir, const char *name, struct ig_checkpoint **g,
		   struct ig_error *err)
{
	char path[256];

	snprintf(path, sizeof path, "%s%s", dir, name);
	*err = (struct ig_error){ 0 };
	return ig_checkpoint_open(path, test_archs, g, err);
}

static void paths_name_folders(void **state)
{
	char dir[] = "/tmp/test_folder.XXXXXX", path[256];
	static const char *const ways[] = { "", "/", "/one.safetensors" };
	static const char *const made[] = { "config.json", "one.safetensors", "two.safetensors",
					    "tokenizer.json", "empty.json" };
	struct ig_checkpoint *g;
	struct ig_error err;
	const char *s, *again;
	size_t len, n;
	uint8_t *file = make_file("{" T("model.norm.weight", "F32", "[2]", 0, 8) "}", 8, &len);

	assert_non_null(mkdtemp(dir));
	fails(open_at(dir, "", &g, &err), &g, &err, -EINVAL, "no model: there is no config.json");
	put_file(dir, "config.json", CONFIG, sizeof CONFIG - 1);
	fails(open_at(dir, "", &g, &err), &g, &err, -EINVAL, "no safetensors file in this folder");
	fails(open_at(dir, "/one.safetensors", &g, &err), &g, &err, -ENOENT, "can't open");
	put_file(dir, "one.safetensors", file, len);
	put_file(dir, "tokenizer.json", "{}", 2);
	put_file(dir, "empty.json", "", 0);
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
		const struct ig_checkpoint_tensor *t;
		assert_int_equal(open_at(dir, ways[i], &g, &err), 0);
		t = ig_checkpoint_find_tensor(g, "output_norm.weight");
		assert_non_null(t);
		ig_checkpoint_drop_tensor(g, t);
		ig_checkpoint_drop_pages(g, &err, sizeof err); /* not the folder's: left alone */
		assert_int_equal(ig_checkpoint_sibling(g, "tokenizer.json", &s, &n, &err), 0);
		assert_int_equal(n, 2);
		assert_memory_equal(s, "{}", 2);
		assert_int_equal(ig_checkpoint_sibling(g, "tokenizer.json", &again, &n, &err), 0);
		assert_ptr_equal(s, again);
		assert_int_equal(ig_checkpoint_sibling(g, "x.json", &s, &n, &err), -ENOENT);
		assert_int_equal(ig_checkpoint_sibling(g, "empty.json", &s, &n, &err), -EINVAL);
		assert_int_equal(ig_checkpoint_sibling(g, "../config.json", &s, &n, &err), -EINVAL);
		assert_int_equal(ig_checkpoint_sibling(g, ".", &s, &n, &err), -EINVAL);
		ig_checkpoint_close(g);
	}
	put_file(dir, "two.safetensors", file, len);
	fails(open_at(dir, "", &g, &err), &g, &err, -EINVAL, "several safetensors files and no");
	assert_int_equal(open_at(dir, "/two.safetensors", &g, &err), 0);
	ig_checkpoint_close(g);
	for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
		snprintf(path, sizeof path, "%s/%s", dir, made[i]);
		unlink(path);
	}
	assert_int_equal(rmdir(dir), 0);
	free(file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keys_are_ggufs),	 cmocka_unit_test(rope_is_scaled),
		cmocka_unit_test(gemma_has_a_list),	 cmocka_unit_test(gemma4_has_lists),
		cmocka_unit_test(muse_has_made_norms),	 cmocka_unit_test(configs_are_refused),
		cmocka_unit_test(mxfp4_is_refused),	 cmocka_unit_test(headers_are_refused),
		cmocka_unit_test(rows_are_put_in_order), cmocka_unit_test(tensors_are_refused),
		cmocka_unit_test(groups_are_read),	 cmocka_unit_test(groups_are_refused),
		cmocka_unit_test(heads_are_split),	 cmocka_unit_test(heads_are_refused),
		cmocka_unit_test(experts_are_joined),	 cmocka_unit_test(experts_are_refused),
		cmocka_unit_test(tables_are_followed),	 cmocka_unit_test(tables_refuse),
		cmocka_unit_test(recurrent_layers),	 cmocka_unit_test(rows_by_heads_of_keys),
		cmocka_unit_test(rows_of_two_matrices),	 cmocka_unit_test(tables_are_whole),
		cmocka_unit_test(index_is_checked),	 cmocka_unit_test(paths_name_folders),
	};

	return cmocka_run_group_tests_name("model/folder", tests, NULL, NULL);
}
