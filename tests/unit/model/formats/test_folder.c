/* test_folder.c: models as folders of safetensors: which files there are, their headers, how rows are
 * made, and every refusal. */
#include "folder_case.h"

#include "tests/archs.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
		folder_refused(CONFIG, bad[i].header, bad[i].n, -EINVAL, bad[i].text);
	/* cut anywhere, and lengths that lie */
	file = folder_make_file(E("F32", "[1,2]", "0", "8"), 8, &len);
	for (size_t n = 0; n < len; n++) {
		uint8_t *copy = malloc(n + 1);
		assert_non_null(copy);
		memcpy(copy, file, n);
		assert_int_equal(folder_open_bytes(CONFIG, copy, n, &g, &err), -EINVAL);
		assert_null(g);
		assert_non_null(strstr(err.text, "dir/model.safetensors: "));
		free(copy);
	}
	for (size_t i = 0; i < 4; i++) {
		memcpy(file, &huge[i], 8);
		assert_int_equal(folder_open_bytes(CONFIG, file, len, &g, &err), -EINVAL);
	}
	free(file);
}

/* ---- tensors ---- */

static void rows_are_put_in_order(void **state)
{
	struct opened o;
	const struct ig_checkpoint_tensor *t;

	folder_fill_f32(64);
	o = folder_opened(
		CONFIG,
		"{\"__metadata__\":{\"format\":\"pt\"}," T("model.layers.0.self_attn.q_proj.weight",
							   "F32", "[8,8]", 0, 256) "}",
		256);
	t = folder_tensor(&o, "blk.0.attn_q.weight", IG_F32, 8, 8);
	assert_null(t->data);
	assert_int_equal(t->dims[0], 8);
	assert_int_equal(t->dims[1], 8);
	/* heads of 4: rows 0 1 2 3 are 0 2 1 3 of the file */
	assert_true(folder_value(&o, t, 0, 0) == 0 && folder_value(&o, t, 1, 0) == 16 &&
		    folder_value(&o, t, 2, 0) == 8 && folder_value(&o, t, 3, 7) == 31 &&
		    folder_value(&o, t, 5, 1) == 49);
	ig_checkpoint_drop_tensor(o.g, t); /* memory of ours stays as it is */
	assert_true(folder_value(&o, t, 1, 0) == 16);
	assert_int_equal(ig_checkpoint_file_bytes(o.g) > 256, 1);
	assert_false(ig_checkpoint_map(o.g, &(const void *){ NULL }, &(uint64_t){ 0 }));
	folder_closed(&o);
	/* biases too */
	o = folder_opened(
		CONFIG, "{" T("model.layers.0.self_attn.q_proj.bias", "F32", "[8]", 0, 32) "}", 32);
	t = folder_tensor(&o, "blk.0.attn_q.bias", IG_F32, 1, 8);
	assert_true(folder_value(&o, t, 0, 1) == 2 && folder_value(&o, t, 0, 2) == 1 &&
		    folder_value(&o, t, 0, 6) == 5);
	folder_closed(&o);
	/* Conv1D's columns are rows; vectors become float32 */
	o = folder_opened("{\"model_type\":\"gpt2\",\"n_embd\":4,\"n_head\":2,\"n_layer\":1}",
			  "{" T("h.0.attn.c_attn.weight", "F32", "[4,12]", 0, 192) "," T(
				  "h.0.attn.c_attn.bias", "F16", "[12]", 192,
				  216) "," T("h.0.attn.bias", "BOOL", "[1,1,2,2]", 216, 220) "}",
			  220);
	t = folder_tensor(&o, "blk.0.attn_qkv.weight", IG_F32, 12, 4);
	assert_true(folder_value(&o, t, 0, 1) == 12 && folder_value(&o, t, 11, 3) == 47 &&
		    folder_value(&o, t, 5, 2) == 29);
	folder_tensor(&o, "blk.0.attn_qkv.bias", IG_F32, 1, 12);
	assert_int_equal(ig_checkpoint_n_tensors(o.g), 2);
	folder_closed(&o);
	/* data that needs no conversion is used in place */
	o = folder_opened(CONFIG,
			  "{" T("model.embed_tokens.weight", "F32", "[4,8]", 0, 128) "," T(
				  "rotary_emb.inv_freq", "U8", "[1]", 128,
				  129) "," T("model.norm.weight", "F32", "[2]", 129, 137) "}",
			  137);
	t = folder_tensor(&o, "token_embd.weight", IG_F32, 4, 8);
	assert_non_null(t->data);
	assert_true(folder_value(&o, t, 3, 7) == 31);
	/* but not at an odd address */
	assert_null(folder_tensor(&o, "output_norm.weight", IG_F32, 1, 2)->data);
	folder_closed(&o);
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
		folder_refused(CONFIG, bad[i].header, bad[i].n, bad[i].code, bad[i].text);
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
		folder_data[i] = (uint8_t)(i % 8 * 0x22 + 0x10);
	for (int r = 0; r < 4; r++) {
		memcpy(folder_data + 64 + 2 * r, r % 2 ? &half : &one, 2);
		memcpy(folder_data + 72 + 2 * r, &(uint16_t){ 0xc000 }, 2);
	}
	o = folder_opened(GROUPS("", 32, 4),
			  "{" T(Q ".weight", "U32", "[4,4]", 0,
				64) "," T(Q ".scales", "BF16", "[4,1]", 64,
					  72) "," T(Q ".biases", "BF16", "[4,1]", 72, 80) "}",
			  80);
	t = folder_tensor(&o, "blk.0.attn_q.weight", IG_Q4_1, 4, 32);
	assert_string_equal(ig_checkpoint_format(o.g), "safetensors, MLX");
	for (int r = 0; r < 4; r++)
		for (int c = 0; c < 32; c++) /* row 1 is the file's 2, and so on */
			assert_true(folder_value(&o, t, r, c) ==
				    (float)(c % 16) * (r < 2 ? 1.0f : 0.5f) - 2.0f);
	folder_closed(&o);

	/* codes of 8 bits, a group of 64, an object of the module's own */
	for (int i = 0; i < 64; i++)
		folder_data[i] = (uint8_t)(4 * i + 3);
	memcpy(folder_data + 64, &(float){ 0.25f }, 4);
	memcpy(folder_data + 68, &(float){ -32.0f }, 4);
	o = folder_opened(
		GROUPS(",\"model.embed_tokens\":{\"group_size\":64,\"bits\":8}", 32, 4),
		"{" T("model.embed_tokens.weight", "U32", "[1,16]", 0,
		      64) "," T("model.embed_tokens.scales", "F32", "[1,1]", 64,
				68) "," T("model.embed_tokens.biases", "F32", "[1,1]", 68, 72) "}",
		72);
	t = folder_tensor(&o, "token_embd.weight", IG_Q8_M, 1, 64);
	for (int c = 0; c < 64; c++)
		assert_true(folder_value(&o, t, 0, c) == (float)(4 * c + 3) * 0.25f - 32.0f);
	folder_closed(&o);

	/* what float16 can't hold is rounded: to a subnormal, to the largest */
	memcpy(folder_data + 64, &small, 4);
	memcpy(folder_data + 68, &(float){ -1e6f }, 4);
	o = folder_opened(
		GROUPS("", 64, 8),
		"{" T("model.embed_tokens.weight", "U32", "[1,16]", 0,
		      64) "," T("model.embed_tokens.scales", "F32", "[1,1]", 64,
				68) "," T("model.embed_tokens.biases", "F32", "[1,1]", 68, 72) "}",
		72);
	t = folder_tensor(&o, "token_embd.weight", IG_Q8_M, 1, 64);
	assert_true(folder_value(&o, t, 0, 5) == -65504.0f);
	folder_closed(&o);
}

/* Codes of every other width, which lie across bytes: as many values as one row of 32, 0, 1, 2 … */
static void groups_of_other_widths(void **state)
{
	static const struct {
		uint32_t bits, words, dtype;
	} widths[] = { { 2, 2, IG_Q4_1 }, { 3, 3, IG_Q4_1 }, { 5, 5, IG_Q8_M }, { 6, 6, IG_Q8_M } };

	for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
		const uint32_t bits = widths[i].bits, n = 4 * widths[i].words;
		char config[400], header[400];
		memset(folder_data, 0, n);
		for (uint32_t c = 0; c < 32; c++)
			for (uint32_t j = 0; j < bits; j++)
				if ((c * 7 + 1) >> j & 1)
					folder_data[(c * bits + j) / 8] |=
						(uint8_t)(1u << (c * bits + j) % 8);
		memcpy(folder_data + n, &(float){ 0.5f }, 4);
		memcpy(folder_data + n + 4, &(float){ -1.0f }, 4);
		snprintf(config, sizeof config,
			 CONFIG_WITH(",\"quantization\":{\"group_size\":32,\"bits\":%u}"), bits);
		snprintf(
			header, sizeof header,
			"{\"model.embed_tokens.weight\":{\"dtype\":\"U32\",\"shape\":[1,%u],"
			"\"data_offsets\":[0,%u]},\"model.embed_tokens.scales\":{\"dtype\":\"F32\","
			"\"shape\":[1,1],\"data_offsets\":[%u,%u]},\"model.embed_tokens.biases\":"
			"{\"dtype\":\"F32\",\"shape\":[1,1],\"data_offsets\":[%u,%u]}}",
			widths[i].words, n, n, n + 4, n + 4, n + 8);
		struct opened o = folder_opened(config, header, n + 8);
		const struct ig_checkpoint_tensor *t =
			folder_tensor(&o, "token_embd.weight", widths[i].dtype, 1, 32);
		for (uint32_t c = 0; c < 32; c++)
			assert_true(folder_value(&o, t, 0, (int)c) ==
				    (float)((c * 7 + 1) & ((1u << bits) - 1)) * 0.5f - 1.0f);
		folder_closed(&o);
	}
}

/* MXFP4 as MLX has it: words of codes, bytes as scales. */
static void mxfp4_of_mlx(void **state)
{
	static const float values[] = { 0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,	 6.0f,
					-0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f };
	for (int i = 0; i < 16; i++) /* codes 0 … 15, twice */
		folder_data[i] = (uint8_t)(i % 8 * 0x22 + 0x10);
	folder_data[16] = 128; /* 2 */
	struct opened o =
		folder_opened(GROUPS(",\"mode\":\"mxfp4\"", 32, 4),
			      "{" T("model.embed_tokens.weight", "U32", "[1,4]", 0, 16) "," T(
				      "model.embed_tokens.scales", "U8", "[1,1]", 16, 17) "}",
			      17);
	const struct ig_checkpoint_tensor *t =
		folder_tensor(&o, "token_embd.weight", IG_MXFP4, 1, 32);
	for (int c = 0; c < 32; c++)
		assert_true(folder_value(&o, t, 0, c) == 2.0f * values[c % 16]);
	folder_closed(&o);
}

static void groups_are_refused(void **state)
{
#define W                                                                                          \
	"{" T(Q ".weight", "U32", "[4,4]", 0, 64) "," T(Q ".scales", "F16", "[4,1]", 64,           \
							72) "," T(Q ".biases", "F16", "[4,1]", 72, \
								  80) "}"
	folder_refused(GROUPS("", 16, 4), W, 80, -ENOTSUP,
		       "group_size 16; Ingot reads 32, 64 and 128");
	folder_refused(GROUPS("", 32, 7), W, 80, -ENOTSUP,
		       "with 7 bits; Ingot reads 2 to 6, and 8");
	folder_refused(GROUPS("", 32, 1), W, 80, -ENOTSUP,
		       "with 1 bits; Ingot reads 2 to 6, and 8");
	folder_refused(GROUPS("", 32, 3), W, 80, -EINVAL,
		       "rows of 4 words and 1 scales: not 3 bits in groups of 32");
	folder_refused(GROUPS("", 64, 4), W, 80, -EINVAL,
		       "rows of 4 words and 1 scales: not 4 bits in groups of 64");
	folder_refused(GROUPS("", 32, 8), W, 80, -EINVAL, "not 8 bits in groups of 32");
	folder_refused(GROUPS(",\"mode\":\"nvfp4\"", 32, 4), W, 80, -ENOTSUP,
		       "mode \"nvfp4\"; Ingot reads affine and mxfp4");
	folder_refused(GROUPS(",\"mode\":\"mxfp4\"", 32, 4), W, 80, -EINVAL,
		       "in mode \"mxfp4\", but has no scales of bytes, or has biases");
#define BYTES                                                                                      \
	"{" T(Q ".weight", "U32", "[4,4]", 0, 64) "," T(Q ".scales", "U8", "[4,1]", 64, 68) "}"
	folder_refused(GROUPS("", 32, 4), BYTES, 68, -EINVAL, "is not quantised in mode \"mxfp4\"");
	folder_refused(GROUPS(",\"mode\":\"mxfp4\"", 64, 4), BYTES, 68, -ENOTSUP,
		       "with 4 bits in groups of 64, which has 4 in groups of 32");
	folder_refused(GROUPS(",\"mode\":\"mxfp4\"", 32, 8), BYTES, 68, -ENOTSUP,
		       "with 8 bits in groups of 32, which has 4 in groups of 32");
	folder_refused(GROUPS("", 32, 4),
		       "{" T(Q ".weight", "U32", "[4,4]", 0,
			     64) "," T(Q ".scales", "U8", "[4,1]", 64,
				       68) "," T(Q ".biases", "U8", "[4,1]", 68, 72) "}",
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

	folder_fill_f32(64);
	o = folder_opened(MOE,
			  "{" T("model.layers.0.block_sparse_moe.experts.1.w1.weight", "F32",
				"[3,2]", 0,
				24) "," T("model.layers.0.block_sparse_moe.experts.0.w1.weight",
					  "F32", "[3,2]", 24,
					  48) "," T("model.layers.0.block_sparse_moe.gate.weight",
						    "F32", "[2,2]", 48, 64) "}",
			  64);
	t = folder_tensor(&o, "blk.0.ffn_gate_exps.weight", IG_F32, 6, 2);
	assert_int_equal(t->n_dims, 3);
	assert_true(t->dims[0] == 2 && t->dims[1] == 3 && t->dims[2] == 2 && t->dims[3] == 1);
	assert_true(folder_value(&o, t, 0, 0) == 6 && folder_value(&o, t, 2, 1) == 11 &&
		    folder_value(&o, t, 3, 0) == 0 && folder_value(&o, t, 5, 1) == 5);
	folder_tensor(&o, "blk.0.ffn_gate_inp.weight", IG_F32, 2, 2);
	folder_closed(&o);
	/* one tensor of all: gate's and up's rows of an expert, one below the other */
	o = folder_opened(MOE,
			  "{" T("model.layers.0.mlp.experts.gate_up_proj", "F32", "[2,4,2]", 0,
				64) "," T("model.layers.0.mlp.experts.down_proj", "F32", "[2,2,2]",
					  64, 96) "}",
			  96);
	t = folder_tensor(&o, "blk.0.ffn_gate_exps.weight", IG_F32, 4, 2);
	assert_true(folder_value(&o, t, 1, 1) == 3 && folder_value(&o, t, 2, 0) == 8 &&
		    folder_value(&o, t, 3, 1) == 11);
	t = folder_tensor(&o, "blk.0.ffn_up_exps.weight", IG_F32, 4, 2);
	assert_true(folder_value(&o, t, 0, 0) == 4 && folder_value(&o, t, 1, 1) == 7 &&
		    folder_value(&o, t, 2, 0) == 12);
	t = folder_tensor(&o, "blk.0.ffn_down_exps.weight", IG_F32, 4, 2);
	assert_true(folder_value(&o, t, 3, 1) == 23);
	folder_closed(&o);
}

static void experts_are_refused(void **state)
{
#define M "model.layers.0.block_sparse_moe.experts."
	folder_refused(MOE, "{" T(M "2.w1.weight", "F32", "[1,2]", 0, 8) "}", 8, -ENOTSUP,
		       "is not a part of this");
	folder_refused(MOE, "{" T(M "1.w1.weight", "F32", "[1,2]", 0, 8) "}", 8, -EINVAL,
		       "where expert 0 is missing");
	folder_refused(MOE, "{" T(M "0.w1.weight", "F32", "[1,2]", 0, 8) "}", 8, -EINVAL,
		       "is the last of 1 experts, config.json has 2");
	folder_refused(MOE,
		       "{" T(M "0.w1.weight", "F32", "[1,2]", 0, 8) "," T(M "1.w1.weight", "F32",
									  "[2,1]", 8, 16) "}",
		       16, -EINVAL, "has another shape or type than the first");
	folder_refused(MOE,
		       "{" T("model.layers.0.mlp.experts.down_proj", "F32", "[3,1,1]", 0, 12) "}",
		       12, -EINVAL, "has 3 experts, config.json 2");
	folder_refused(
		MOE, "{" T("model.layers.0.mlp.experts.gate_up_proj", "F32", "[2,3,1]", 0, 24) "}",
		24, -EINVAL, "has no two halves");
	folder_refused(MOE,
		       "{" T(M "0.w1.weight", "F32", "[1,2]", 0,
			     8) "," T("model.layers.0.mlp.switch_mlp.gate_proj.weight", "F32",
				      "[2,1,1]", 8, 16) "}",
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

	folder_fill_f32(24);
	o = folder_opened(LATENT(""), "{" T(KV_B, "F32", "[6,4]", 0, 96) "}", 96);
	t = folder_tensor(&o, "blk.0.attn_k_b.weight", IG_F32, 8, 2);
	assert_true(t->n_dims == 3 && t->dims[0] == 2 && t->dims[1] == 4 && t->dims[2] == 2);
	for (int64_t r = 0; r < 8; r++) /* row r % 4 of head r / 4: a column of its rows of keys */
		for (int64_t c = 0; c < 2; c++)
			assert_true(folder_value(&o, t, r, c) ==
				    (float)(12 * (r / 4) + 4 * c + r % 4));
	t = folder_tensor(&o, "blk.0.attn_v_b.weight", IG_F32, 2, 4);
	assert_true(t->n_dims == 3 && t->dims[0] == 4 && t->dims[1] == 1 && t->dims[2] == 2);
	for (int64_t c = 0; c < 4; c++)
		assert_true(folder_value(&o, t, 0, c) == (float)(8 + c) &&
			    folder_value(&o, t, 1, c) == (float)(20 + c));
	folder_closed(&o);
	/* MLX has both, transposed already */
	o = folder_opened(LATENT(""),
			  "{" T("model.layers.0.self_attn.embed_q.weight", "F32", "[2,4,2]", 0,
				64) "," T("model.layers.0.self_attn.unembed_out.weight", "F32",
					  "[2,1,4]", 64, 96) "}",
			  96);
	t = folder_tensor(&o, "blk.0.attn_k_b.weight", IG_F32, 8, 2);
	assert_true(t->dims[1] == 4 && folder_value(&o, t, 4, 1) == 9);
	t = folder_tensor(&o, "blk.0.attn_v_b.weight", IG_F32, 2, 4);
	assert_true(folder_value(&o, t, 1, 2) == 22);
	folder_closed(&o);
}

static void heads_are_refused(void **state)
{
	folder_refused(LATENT(""), "{" T(KV_B, "F32", "[5,4]", 0, 80) "}", 80, -EINVAL,
		       "is not of 2 heads");
	folder_refused(LATENT(""), "{" T(KV_B, "F32", "[2,4]", 0, 32) "}", 32, -EINVAL,
		       "has 1 rows a head, of which 1 are of values");
	folder_refused(LATENT(""), "{" T(KV_B, "F32", "[6]", 0, 24) "}", 24, -EINVAL,
		       "is not of 2 heads");
	folder_refused(
		LATENT(""),
		"{" T("model.layers.0.self_attn.embed_q.weight", "F32", "[3,3,2]", 0, 72) "}", 72,
		-EINVAL, "is not of 2 heads");
	folder_refused(LATENT(",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,\"mscale\":1,"
			      "\"mscale_all_dim\":0.5}"),
		       "{}", 0, -ENOTSUP, "\"mscale_all_dim\" is 0.5, and mscale 1");
	folder_refused(LATENT(",\"topk_method\":\"group_limited_greedy\""), "{}", 0, -ENOTSUP,
		       "only greedy is supported");
	folder_refused(LATENT(",\"attention_bias\":true"), "{}", 0, -ENOTSUP, "\"attention_bias\"");
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
	uint8_t *a =
		folder_make_file("{" T("model.norm.weight", "F32", "[2]", 0, 8) "}", 8, &len[0]);
	uint8_t *b = folder_make_file("{" T("model.embed_tokens.weight", "F32", "[4,2]", 0, 32) "}",
				      32, &len[1]);

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
			folder_fails(rc, &g, &err, cases[i].code, cases[i].text);
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
	uint8_t *file =
		folder_make_file("{" T("model.norm.weight", "F32", "[2]", 0, 8) "}", 8, &len);

	assert_non_null(mkdtemp(dir));
	folder_fails(open_at(dir, "", &g, &err), &g, &err, -EINVAL,
		     "no model: there is no config.json");
	put_file(dir, "config.json", CONFIG, sizeof CONFIG - 1);
	folder_fails(open_at(dir, "", &g, &err), &g, &err, -EINVAL,
		     "no safetensors file in this folder");
	folder_fails(open_at(dir, "/one.safetensors", &g, &err), &g, &err, -ENOENT, "can't open");
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
	folder_fails(open_at(dir, "", &g, &err), &g, &err, -EINVAL,
		     "several safetensors files and no");
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
		cmocka_unit_test(headers_are_refused),	  cmocka_unit_test(rows_are_put_in_order),
		cmocka_unit_test(tensors_are_refused),	  cmocka_unit_test(groups_are_read),
		cmocka_unit_test(groups_of_other_widths), cmocka_unit_test(mxfp4_of_mlx),
		cmocka_unit_test(groups_are_refused),	  cmocka_unit_test(groups_of_other_widths),
		cmocka_unit_test(mxfp4_of_mlx),		  cmocka_unit_test(experts_are_joined),
		cmocka_unit_test(experts_are_refused),	  cmocka_unit_test(heads_are_split),
		cmocka_unit_test(heads_are_refused),	  cmocka_unit_test(index_is_checked),
		cmocka_unit_test(paths_name_folders),
	};

	return cmocka_run_group_tests_name("model/folder", tests, NULL, NULL);
}
