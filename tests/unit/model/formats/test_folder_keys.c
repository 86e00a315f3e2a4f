/* test_folder_keys.c: what config.json of a folder says, as keys of GGUF, and what of it is refused. */
#include "folder_case.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void keys_are_ggufs(void **state)
{
	struct ig_checkpoint_key k;
	uint64_t len;
	const char *s;
	size_t n;
	struct opened o = folder_opened(
		CONFIG_WITH(",\"rms_norm_eps\":1e-5,\"rope_theta\":500000,\"hidden_act\":\"silu\","
			    "\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}"),
		"{}", 0);

	assert_int_equal(ig_checkpoint_str(o.g, "general.architecture", &s, &n, NULL), 0);
	assert_int_equal(n, 5);
	assert_memory_equal(s, "llama", 5);
	assert_int_equal(folder_u32(o.g, "llama.block_count"), 1);
	assert_int_equal(folder_u32(o.g, "llama.embedding_length"), 8);
	assert_int_equal(folder_u32(o.g, "llama.context_length"), 64);
	assert_int_equal(folder_u32(o.g, "llama.attention.head_count"), 2);
	assert_int_equal(folder_u32(o.g, "llama.attention.head_count_kv"), 1);
	assert_int_equal(folder_u32(o.g, "llama.rope.dimension_count"), 4);
	assert_true(folder_f32(o.g, "llama.attention.layer_norm_rms_epsilon") == 1e-5f);
	assert_true(folder_f32(o.g, "llama.rope.freq_base") == 500000.0f);
	assert_true(folder_f32(o.g, "llama.rope.scaling.factor") == 4.0f);
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
	folder_closed(&o);
	/* what transformers takes where the file is silent */
	o = folder_opened(
		"{\"model_type\":\"qwen3\",\"num_hidden_layers\":3,\"tie_word_embeddings\":true}",
		"{}", 0);
	assert_int_equal(folder_u32(o.g, "qwen3.attention.key_length"), 128);
	assert_int_equal(folder_u32(o.g, "qwen3.context_length"), 32768);
	assert_int_equal(folder_u32(o.g, "qwen3.block_count"), 3);
	folder_closed(&o);
	/* sections of M-RoPE */
	o = folder_opened(CONFIG_WITH(",\"rope_parameters\":{\"rope_type\":\"default\","
				      "\"mrope_section\":[2,1,1]}"),
			  "{}", 0);
	int32_t sections[3];
	assert_int_equal(
		ig_checkpoint_array_i32(o.g, "llama.rope.dimension_sections", sections, 3, NULL),
		0);
	assert_true(sections[0] == 2 && sections[1] == 1 && sections[2] == 1);
	folder_closed(&o);
	o = folder_opened("{\"model_type\":\"mistral\",\"sliding_window\":null,"
			  "\"tie_word_embeddings\":true}",
			  "{}", 0);
	assert_int_equal(
		ig_checkpoint_u32(o.g, "llama.attention.sliding_window", &(uint32_t){ 0 }, NULL),
		-ENOENT);
	folder_closed(&o);
	o = folder_opened("{\"model_type\":\"mistral\",\"tie_word_embeddings\":true}", "{}", 0);
	assert_int_equal(folder_u32(o.g, "llama.attention.sliding_window"), 4096);
	folder_closed(&o);
}

/* Nomic Embed by its authors' keys. */
#define NOMIC                                                                                      \
	"{\"model_type\":\"nomic_bert\",\"n_layer\":3,\"n_embd\":32,\"n_head\":4,"                 \
	"\"n_positions\":8192,\"max_trained_positions\":256,\"layer_norm_epsilon\":1e-6,"          \
	"\"rotary_emb_base\":500,\"rotary_emb_fraction\":1.0,\"rotary_emb_scale_base\":null"

static void authors_names(void **state)
{
	struct opened o = folder_opened(NOMIC ",\"n_inner\":null}", "{}", 0);

	assert_int_equal(folder_u32(o.g, "nomic-bert.block_count"), 3);
	assert_int_equal(folder_u32(o.g, "nomic-bert.embedding_length"), 32);
	assert_int_equal(folder_u32(o.g, "nomic-bert.feed_forward_length"), 128);
	assert_int_equal(folder_u32(o.g, "nomic-bert.attention.head_count"), 4);
	assert_int_equal(folder_u32(o.g, "nomic-bert.context_length"), 256);
	assert_true(folder_f32(o.g, "nomic-bert.attention.layer_norm_epsilon") == 1e-6f);
	assert_true(folder_f32(o.g, "nomic-bert.rope.freq_base") == 500.0f);
	folder_closed(&o);
	o = folder_opened(NOMIC ",\"n_inner\":96}", "{}", 0);
	assert_int_equal(folder_u32(o.g, "nomic-bert.feed_forward_length"), 96);
	folder_closed(&o);
}

/* Nomic Embed v2, whose model_type is the same; one layer of two has two experts of 3 x 4. */
#define NOMIC_EXPERTS(more)                                                                        \
	"{\"model_type\":\"nomic_bert\",\"n_layer\":2,\"n_embd\":4,\"n_head\":2,\"n_inner\":3,"    \
	"\"max_trained_positions\":64,\"activation_function\":\"gelu\",\"num_experts\":2,"         \
	"\"moe_top_k\":1" more "}"
#define MLP "encoder.layers.1.mlp."

static void nomic_has_experts(void **state)
{
	static const char config[] = NOMIC_EXPERTS(",\"moe_every_n_layers\":2,\"ffn_div\":1.0");
	static const struct {
		const char *header, *text;
		int code;
	} bad[] = {
		{ "{" T(MLP "experts.mlp.w1", "F32", "[5,4]", 0, 80) "}",
		  "dir/model.safetensors: tensor \"encoder.layers.1.mlp.experts.mlp.w1\" has 5 rows, "
		  "which are not of 2 experts",
		  -EINVAL },
		{ "{" T(MLP "experts.mlp.w2", "F32", "[5,4]", 0, 80) "}",
		  "mlp.experts.mlp.w2\" has 5 rows", -EINVAL },
		{ "{" T(MLP "experts.mlp.w2", "F32", "[2,2,5]", 0, 80) "}",
		  "mlp.experts.mlp.w2\" has 3 dimensions", -EINVAL },
		{ "{" T(MLP "experts.mlp.v1", "F32", "[5,4]", 0, 80) "}",
		  "mlp.experts.mlp.v1\" is not a part of this architecture", -ENOTSUP },
		{ "{" T(MLP "router.layer.bias", "F32", "[20]", 0, 80) "}",
		  "mlp.router.layer.bias\" is not a part of this architecture", -ENOTSUP },
	};
	const struct ig_checkpoint_tensor *t;
	struct opened o;

	folder_fill_f32(52);
	o = folder_opened(config,
			  "{" T(MLP "experts.mlp.w1", "F32", "[6,4]", 0, 96) "," T(
				  MLP "experts.mlp.w2", "F32", "[6,4]", 96,
				  192) "," T(MLP "experts.bias", "F32", "[4]", 192, 208) "}",
			  208);
	assert_int_equal(folder_u32(o.g, "nomic-bert-moe.block_count"), 2);
	assert_int_equal(folder_u32(o.g, "nomic-bert-moe.feed_forward_length"), 3);
	assert_int_equal(folder_u32(o.g, "nomic-bert-moe.context_length"), 64);
	assert_int_equal(folder_u32(o.g, "nomic-bert-moe.expert_count"), 2);
	assert_int_equal(folder_u32(o.g, "nomic-bert-moe.expert_used_count"), 1);
	assert_int_equal(folder_u32(o.g, "nomic-bert-moe.moe_every_n_layers"), 2);
	assert_true(folder_f32(o.g, "nomic-bert-moe.attention.layer_norm_epsilon") == 1e-5f);
	assert_true(folder_f32(o.g, "nomic-bert-moe.rope.freq_base") == 10000.0f);
	t = folder_tensor(&o, "blk.1.ffn_up_exps.weight", IG_F32, 6, 4);
	assert_true(folder_value(&o, t, 5, 3) == 23.0f);
	t = folder_tensor(&o, "blk.1.ffn_down_exps.weight", IG_F32, 8, 3);
	assert_true(folder_value(&o, t, 1, 2) == 33.0f); /* row 2, column 1 of the first expert */
	assert_true(folder_value(&o, t, 7, 0) == 39.0f); /* row 0, column 3 of the second */
	t = folder_tensor(&o, "blk.1.ffn_exps.bias", IG_F32, 1, 4);
	assert_true(folder_value(&o, t, 0, 3) == 51.0f);
	folder_closed(&o);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		folder_refused(config, bad[i].header, 80, bad[i].code, bad[i].text);
}

static void rope_is_scaled(void **state)
{
	struct opened o = folder_opened(
		CONFIG_WITH(",\"rope_parameters\":{\"rope_type\":\"llama3\",\"rope_theta\":10000,"
			    "\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4,"
			    "\"original_max_position_embeddings\":128}"),
		"{}", 0);
	const struct ig_checkpoint_tensor *t = folder_tensor(&o, "rope_freqs.weight", IG_F32, 1, 2);

	/* the first pair turns fast, the second (a wave of 628) too slowly for 128 positions */
	assert_true(folder_value(&o, t, 0, 0) == 1.0f && folder_value(&o, t, 0, 1) == 8.0f);
	folder_closed(&o);
	o = folder_opened(CONFIG_WITH(",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,"
				      "\"attention_factor\":1,\"beta_fast\":16,\"truncate\":false,"
				      "\"original_max_position_embeddings\":16}"),
			  "{}", 0);
	assert_int_equal(folder_u32(o.g, "llama.rope.scaling.original_context_length"), 16);
	assert_true(folder_f32(o.g, "llama.rope.scaling.yarn_beta_fast") == 16.0f);
	assert_true(folder_f32(o.g, "llama.rope.scaling.attn_factor") < 0.88f);
	assert_int_equal(folder_u32(o.g, "llama.rope.scaling.yarn_truncate"), 0);
	folder_closed(&o);
}

static void gemma_has_a_list(void **state)
{
	int32_t local[3];
	uint64_t n;
	struct opened o = folder_opened(
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
	assert_true(folder_value(&o, folder_tensor(&o, "output_norm.weight", IG_F32, 1, 2), 0, 1) ==
		    1.0f);
	folder_closed(&o);
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
	struct opened o = folder_opened(
		GEMMA4(GEMMA4_LAYERS
		       ",\"head_dim\":8,\"global_head_dim\":16,"
		       "\"num_global_key_value_heads\":1,\"attention_k_eq_v\":true,"
		       "\"num_kv_shared_layers\":1,\"use_double_wide_mlp\":true,"
		       "\"rope_parameters\":{\"full_attention\":{\"rope_theta\":1e6,"
		       "\"rope_type\":\"proportional\",\"partial_rotary_factor\":0.25}}"),
		"{}", 0);
	const struct ig_checkpoint_tensor *t = folder_tensor(&o, "rope_freqs.weight", IG_F32, 1, 8);

	for (int64_t i = 0; i < 8; i++)
		assert_true(folder_value(&o, t, 0, i) == (i < 2 ? 1.0f : 1e30f));
	assert_int_equal(folder_u32(o.g, "gemma4.attention.key_length"), 16);
	assert_int_equal(folder_u32(o.g, "gemma4.attention.key_length_swa"), 8);
	assert_int_equal(folder_u32(o.g, "gemma4.rope.dimension_count"), 16);
	assert_int_equal(ig_checkpoint_array_i32(o.g, "gemma4.attention.head_count_kv", n, 3, NULL),
			 0);
	assert_true(n[0] == 2 && n[1] == 1 && n[2] == 1);
	assert_int_equal(ig_checkpoint_array_i32(o.g, "gemma4.feed_forward_length", n, 3, NULL), 0);
	assert_true(n[0] == 8 && n[1] == 8 && n[2] == 16);
	folder_closed(&o);
	folder_refused(GEMMA4(""), "{}", 0, -ENOTSUP, "\"layer_types\" is missing");
	folder_refused(GEMMA4(GEMMA4_LAYERS ",\"num_experts\":4"), "{}", 0, -ENOTSUP,
		       "\"num_experts\" without enable_moe_block");
	folder_refused(GEMMA4(GEMMA4_LAYERS ",\"per_layer_config\":{\"1\":{}}"), "{}", 0, -ENOTSUP,
		       "per_layer_config");
	folder_refused(GEMMA4(GEMMA4_LAYERS ",\"use_bidirectional_attention\":\"all\""), "{}", 0,
		       -ENOTSUP, "only vision is supported");
	folder_refused(GEMMA4(GEMMA4_LAYERS ",\"rope_parameters\":{\"full_attention\":{"
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
	struct opened o = folder_opened(MUSE(MUSE_LAYERS ",\"qk_scale_factor\":2.5,"
							 "\"rope_parameters\":{\"rope_theta\":500},"
							 "\"layer_rope_theta\":[500,0]"),
					"{}", 0);
	const struct ig_checkpoint_tensor *t;

	assert_int_equal(ig_checkpoint_n_tensors(o.g), 4);
	t = folder_tensor(&o, "blk.1.attn_q_norm.weight", IG_F32, 1, 8);
	assert_true(folder_value(&o, t, 0, 0) == 2.5f && folder_value(&o, t, 0, 7) == 2.5f);
	t = folder_tensor(&o, "blk.0.attn_k_norm.weight", IG_F32, 1, 8);
	assert_true(folder_value(&o, t, 0, 0) == 1 && folder_value(&o, t, 0, 7) == 1);
	folder_closed(&o);
	folder_refused(MUSE(""), "{}", 0, -ENOTSUP, "\"layer_types\" is missing");
	folder_refused(MUSE(MUSE_LAYERS ",\"post_norm_eps\":1e-6"), "{}", 0, -ENOTSUP,
		       "\"post_norm_eps\" is 1e-06");
	folder_refused(MUSE(MUSE_LAYERS ",\"layer_rope_theta\":[10000,10000]"), "{}", 0, -ENOTSUP,
		       "\"layer_rope_theta\" is 10000 for layer 1");
	folder_refused(MUSE(MUSE_LAYERS ",\"layer_rope_theta\":[500,0]"), "{}", 0, -ENOTSUP,
		       "is 500 for layer 0: only 10000");
	folder_refused(MUSE(MUSE_LAYERS ",\"layer_rope_theta\":[\"x\",0]"), "{}", 0, -EINVAL,
		       "is not a list of numbers");
	folder_refused(MUSE(MUSE_LAYERS ",\"layer_rope_theta\":7"), "{}", 0, -EINVAL,
		       "is not a list of numbers");
}

/* Two layers with experts; more: of the model, of the second one. */
#define PUZZLE(of_model, of_second)                                                                \
	"{\"model_type\":\"nemotron_h_puzzle\"" of_model                                           \
	",\"block_configs\":[{\"block_type\":\"moe\"},"                                            \
	"{\"block_type\":\"moe\"" of_second "}]}"

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
		{ CONFIG_WITH(",\"rope_parameters\":{\"mrope_section\":[1,1]}"),
		  "\"mrope_section\" is not three numbers", -EINVAL },
		{ CONFIG_WITH(",\"rope_parameters\":{\"mrope_section\":[1,-1,2]}"),
		  "\"mrope_section\" is not three numbers", -EINVAL },
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
		{ PUZZLE(",\"layers_block_type\":[\"mamba\",\"moe\",\"moe\"]", ""),
		  "\"block_configs\" has another kind of block for layer 0", -EINVAL },
		{ PUZZLE(",\"layers_block_type\":[\"moe\",\"moe\",\"attention\"]", ""),
		  "\"block_configs\" has no block for layer 2", -EINVAL },
		{ PUZZLE(",\"layers_block_type\":[\"moe\"]", ""),
		  "\"block_configs\" has a block for layer 1, of 1", -EINVAL },
		{ PUZZLE("", ",\"n_routed_experts\":4"),
		  "\"n_routed_experts\" is 8 in layer 0 and 4 in layer 1: not supported",
		  -ENOTSUP },
		{ PUZZLE("", ",\"moe_latent_size\":16"),
		  "\"moe_latent_size\" is 0 in layer 0 and 16 in layer 1: not supported",
		  -ENOTSUP },
		{ PUZZLE(",\"n_routed_experts\":16", ",\"n_routed_experts\":8"),
		  "\"n_routed_experts\" is 16 in layer 0 and 8 in layer 1: not supported",
		  -ENOTSUP },
		{ PUZZLE("", ",\"num_experts_per_tok\":\"x\""),
		  "\"num_experts_per_tok\" is not a whole number", -EINVAL },
		{ PUZZLE("", ",\"sliding_window\":128"),
		  "\"sliding_window\" is 128 in layer 1: not supported", -ENOTSUP },
		{ "{\"model_type\":\"nemotron_h_puzzle\",\"block_configs\":[7]}", "has no layer 0",
		  -EINVAL },
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
		{ NOMIC ",\"activation_function\":\"gelu\"}", "only swiglu", -ENOTSUP },
		{ NOMIC ",\"qkv_proj_bias\":true}", "\"qkv_proj_bias\" is true", -ENOTSUP },
		{ NOMIC ",\"mlp_fc1_bias\":true}", "\"mlp_fc1_bias\" is true", -ENOTSUP },
		{ NOMIC ",\"mlp_fc2_bias\":true}", "\"mlp_fc2_bias\" is true", -ENOTSUP },
		{ NOMIC ",\"prenorm\":true}", "\"prenorm\" is true", -ENOTSUP },
		{ NOMIC ",\"causal\":true}", "\"causal\" is true", -ENOTSUP },
		{ NOMIC ",\"parallel_block\":true}", "\"parallel_block\"", -ENOTSUP },
		{ NOMIC ",\"use_rms_norm\":true}", "\"use_rms_norm\"", -ENOTSUP },
		{ NOMIC ",\"rotary_emb_interleaved\":true}", "\"rotary_emb_interleaved\"",
		  -ENOTSUP },
		{ "{\"model_type\":\"nomic_bert\",\"rotary_emb_fraction\":0.5}",
		  "\"rotary_emb_fraction\" is 0.5", -ENOTSUP },
		{ "{\"model_type\":\"nomic_bert\",\"rotary_emb_scale_base\":512}",
		  "\"rotary_emb_scale_base\"", -ENOTSUP },
		{ NOMIC ",\"moe_every_n_layers\":2}", "\"moe_every_n_layers\"", -ENOTSUP },
		{ NOMIC_EXPERTS(""), "\"moe_every_n_layers\" is missing", -EINVAL },
		{ NOMIC_EXPERTS(",\"moe_every_n_layers\":0"),
		  "config.json: \"moe_every_n_layers\" is 0, and num_experts 2", -ENOTSUP },
		{ NOMIC_EXPERTS(",\"moe_every_n_layers\":1"), "\"moe_every_n_layers\" is 1",
		  -ENOTSUP },
		{ NOMIC ",\"activation_function\":\"gelu\",\"moe_every_n_layers\":2,"
			"\"num_experts\":2,\"moe_top_k\":3}",
		  "\"moe_top_k\" is 3 of 2 experts", -EINVAL },
		{ NOMIC ",\"moe_every_n_layers\":2,\"num_experts\":2}", "\"moe_top_k\" is missing",
		  -EINVAL },
		{ NOMIC_EXPERTS(",\"moe_every_n_layers\":2,\"num_shared_experts\":1"),
		  "\"num_shared_experts\" is set", -ENOTSUP },
		{ NOMIC_EXPERTS(",\"moe_every_n_layers\":2,\"expert_choice_router\":true"),
		  "\"expert_choice_router\" is true", -ENOTSUP },
		{ NOMIC_EXPERTS(",\"moe_every_n_layers\":2,\"moe_normalize_expert_weights\":1"),
		  "\"moe_normalize_expert_weights\" is set", -ENOTSUP },
		{ NOMIC_EXPERTS(",\"moe_every_n_layers\":2,\"qkv_proj_bias\":false"),
		  "\"qkv_proj_bias\" is false", -ENOTSUP },
		{ NOMIC_EXPERTS(",\"moe_every_n_layers\":2,\"mlp_fc1_bias\":false"),
		  "\"mlp_fc1_bias\" is false", -ENOTSUP },
		{ NOMIC_EXPERTS(",\"moe_every_n_layers\":2,\"mlp_fc2_bias\":false"),
		  "\"mlp_fc2_bias\" is false", -ENOTSUP },
		{ NOMIC_EXPERTS(",\"moe_every_n_layers\":2,\"ffn_div\":2"), "\"ffn_div\" is 2",
		  -ENOTSUP },
		{ NOMIC_EXPERTS(",\"moe_every_n_layers\":2,\"rotary_emb_fraction\":0.5"),
		  "\"rotary_emb_fraction\" is 0.5", -ENOTSUP },
		{ "{\"model_type\":\"xlm-roberta\",\"pad_token_id\":511}",
		  "\"pad_token_id\" is 511, and there are 512 positions", -EINVAL },
		{ "{\"model_type\":\"minimax_m2\",\"rotary_dim\":129}",
		  "\"partial_rotary_factor\" is 1.00781", -ENOTSUP },
		{ "{\"model_type\":\"minimax_m2\",\"scoring_func\":\"softmax\"}",
		  "\"scoring_func\" is \"softmax\"", -ENOTSUP },
		{ "{\"model_type\":\"gpt_oss\",\"swiglu_alpha\":2}", "\"swiglu_alpha\" is 2",
		  -ENOTSUP },
	};

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		folder_refused(bad[i].config, "{}", 0, bad[i].code, bad[i].text);
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
		folder_refused(
			"{\"model_type\":\"gpt_oss\",\"num_hidden_layers\":1,\"hidden_size\":64,"
			"\"num_attention_heads\":2,\"num_local_experts\":2,"
			"\"quantization_config\":{\"quant_method\":\"mxfp4\"}}",
			bad[i].header, bad[i].n, bad[i].code, bad[i].text);
#undef DOWN
#undef SCALES
}

/* A head that guesses is one more block, if the architecture knows all of it. */
static void heads_are_blocks(void **state)
{
	static const char glm[] =
		"{\"model_type\":\"glm4_moe\",\"hidden_size\":8,\"num_hidden_layers\":1,"
		"\"num_attention_heads\":2,\"tie_word_embeddings\":true,"
		"\"num_nextn_predict_layers\":2}";
	static const char qwen[] =
		"{\"model_type\":\"qwen3_5_text\",\"hidden_size\":8,\"num_hidden_layers\":2,"
		"\"num_attention_heads\":2,\"tie_word_embeddings\":true,"
		"\"layer_types\":[\"linear_attention\",\"full_attention\"]}";
#define TENSORS(more) "{" T(EMBED_NAME, "F16", "[2,8]", 0, 32) more "}"
#define EMBED_NAME "model.embed_tokens.weight"
#define MATRIX(name) "," T(name, "F16", "[8,16]", 32, 288)
#define VECTOR(name) "," T(name, "F16", "[2]", 288, 292)
	static const struct {
		const char *config, *arch, *header;
		uint32_t n_blocks, n_left_out;
	} cases[] = {
		{ glm, "glm4moe",
		  TENSORS(MATRIX("model.layers.1.eh_proj.weight")
				  VECTOR("model.layers.1.shared_head.norm.weight")),
		  2, 0 },
		{ glm, "glm4moe", TENSORS(MATRIX("model.layers.2.eh_proj.weight")), 0, 1 },
		{ glm, "glm4moe", TENSORS(MATRIX("model.layers.1.self_attn.o_proj.weight")), 0, 1 },
		{ glm, "glm4moe",
		  TENSORS(MATRIX("model.layers.1.eh_proj.weight")
				  VECTOR("model.layers.1.more.weight")),
		  0, 2 },
		{ qwen, "qwen35",
		  TENSORS(MATRIX("mtp.fc.weight") VECTOR("mtp.layers.0.input_layernorm.weight")), 3,
		  0 },
		{ qwen, "qwen35",
		  TENSORS(MATRIX("model.mtp.fc.weight") VECTOR("model.mtp.layers.1.x.weight")), 3,
		  1 },
		{ qwen, "qwen35", TENSORS(MATRIX("mtp.fc.weight") VECTOR("mtp.more.weight")), 0,
		  2 },
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct opened o = folder_opened(cases[i].config, cases[i].header,
						strstr(cases[i].header, "292") ? 292 : 288);
		const uint32_t *left_out = ig_checkpoint_left_out(o.g);
		const uint32_t n_layers = cases[i].config == glm ? 1 : 2;
		struct ig_error err = { 0 };
		char key[64];
		uint32_t n;

		snprintf(key, sizeof key, "%s.block_count", cases[i].arch);
		assert_int_equal(folder_u32(o.g, key),
				 cases[i].n_blocks ? cases[i].n_blocks : n_layers);
		snprintf(key, sizeof key, "%s.nextn_predict_layers", cases[i].arch);
		assert_int_equal(ig_checkpoint_u32(o.g, key, &n, &err),
				 cases[i].n_blocks ? 0 : -ENOENT);
		assert_int_equal(left_out[IG_LEFT_OUT_NEXT], cases[i].n_left_out);
		if (cases[i].n_blocks) {
			snprintf(key, sizeof key, "blk.%u.nextn.eh_proj.weight", n_layers);
			folder_tensor(&o, key, IG_F16, 8, 16);
		}
		if (cases[i].n_blocks == 3) { /* of the head false, attention */
			static const char list[] = "qwen35.attention.recurrent_layers";
			int32_t kinds[3] = { 7, 7, 7 };
			uint64_t n_kinds;
			assert_int_equal(ig_checkpoint_array_len(o.g, list, &n_kinds, &err), 0);
			assert_int_equal(n_kinds, 3);
			assert_int_equal(ig_checkpoint_array_i32(o.g, list, kinds, 3, &err), 0);
			assert_true(kinds[0] == 1 && kinds[1] == 0 && kinds[2] == 0);
		}
		folder_closed(&o);
	}
#undef TENSORS
#undef EMBED_NAME
#undef MATRIX
#undef VECTOR
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keys_are_ggufs),      cmocka_unit_test(authors_names),
		cmocka_unit_test(rope_is_scaled),      cmocka_unit_test(gemma_has_a_list),
		cmocka_unit_test(gemma4_has_lists),    cmocka_unit_test(muse_has_made_norms),
		cmocka_unit_test(configs_are_refused), cmocka_unit_test(mxfp4_is_refused),
		cmocka_unit_test(heads_are_blocks),    cmocka_unit_test(nomic_has_experts),
	};

	return cmocka_run_group_tests_name("model/folder keys", tests, NULL, NULL);
}
