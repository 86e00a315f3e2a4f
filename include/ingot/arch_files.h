/*
 * arch_files.h: tables of the names that a Hugging Face or MLX folder gives an architecture's
 * hyper-parameters and tensors.  Tier 1 (module.h).  Keys of config.json become GGUF keys, which
 * read_params reads; tensors get GGUF names, which record declares.  The folder is then read like a
 * GGUF file.  The host handles what all models of transformers have in common: rope_scaling,
 * quantization, name prefixes, vision parts.  An unsupported key and a tensor that is in no table
 * are errors that name them.
 */
#ifndef INGOT_ARCH_FILES_H
#define INGOT_ARCH_FILES_H

#include <errno.h>

#include <ingot/arch.h>

/* ---- config.json ------------------------------------------------------------------------ */

enum ig_config_kind {
	IG_CONFIG_U32 = 0, /* an integer in 0 … 2^32 - 1 */
	IG_CONFIG_F32 = 1, /* a number in the range of float32 */
	/* A list with one word per layer.  text: the two words, "full|sliding".  It becomes a list
	 * of booleans, false for the first word. */
	IG_CONFIG_LAYERS = 2,
	IG_CONFIG_WORD = 3,    /* a string; only `text` is supported */
	IG_CONFIG_ONLY = 4,    /* an integer; only `fallback` is supported */
	IG_CONFIG_TRUE = 5,    /* a boolean; only true is supported.  fallback: 0 or 1 */
	IG_CONFIG_FALSE = 6,   /* a boolean; only false is supported */
	IG_CONFIG_REFUSED = 7, /* only false, null, 0 and an empty list are supported */
	IG_CONFIG_COUNT = 8,   /* the number of a list's items, or of a string's characters */
};

/* What a missing or null number means.  Without a flag: fallback. */
enum ig_config_flags {
	IG_CONFIG_REQUIRED = 1 << 0, /* it is an error */
	IG_CONFIG_OPTIONAL = 1 << 1, /* no GGUF key */
	IG_CONFIG_NULLABLE = 1 << 2, /* null: no GGUF key; missing: fallback */
	IG_CONFIG_TIMES = 1 << 3,    /* fallback times the number under the GGUF key `text` */
	IG_CONFIG_PLUS = 1 << 4,     /* the integer, or fallback, plus the one under that key */
};

/* A key of config.json and its GGUF key.  Keys are read in order.  If two entries have the same
 * GGUF key, the first one that the file has is used. */
struct ig_config_key {
	/* "a.b": b in object a; "a.2.b": b in item 2, from 0, of the list of objects a; "a|b": the first that the
	 * file has */
	const char *name;
	const char *gguf; /* without the architecture's prefix; NULL: only checked */
	uint32_t kind;	  /* enum ig_config_kind */
	uint32_t flags;	  /* enum ig_config_flags */
	double fallback;
	const char *text;
};

/* Numbers that nearly all models have, with the defaults of transformers. */
#define IG_CONFIG_NUMBER(name, gguf, fallback) { name, gguf, IG_CONFIG_U32, 0, fallback, NULL }
#define IG_CONFIG_DECODER(layers, width, ff, heads, context, eps)                                  \
	IG_CONFIG_NUMBER("num_hidden_layers", "block_count", layers),                              \
		IG_CONFIG_NUMBER("hidden_size", "embedding_length", width),                        \
		IG_CONFIG_NUMBER("intermediate_size", "feed_forward_length", ff),                  \
		IG_CONFIG_NUMBER("num_attention_heads", "attention.head_count", heads),            \
		IG_CONFIG_NUMBER("max_position_embeddings", "context_length", context),            \
	{                                                                                          \
		"rms_norm_eps", "attention.layer_norm_rms_epsilon", IG_CONFIG_F32, 0, eps, NULL    \
	}
#define IG_CONFIG_KV_HEADS(n) IG_CONFIG_NUMBER("num_key_value_heads", "attention.head_count_kv", n)
/* Older files have as many KV heads as heads and lack the key. */
#define IG_CONFIG_KV_HEADS_AS_HEADS                                                                \
	{ "num_key_value_heads", "attention.head_count_kv", IG_CONFIG_U32, IG_CONFIG_TIMES, 1,     \
	  "attention.head_count" }
#define IG_CONFIG_SILU { "hidden_act", NULL, IG_CONFIG_WORD, 0, 0, "silu" }

/* For what a table cannot express: functions over config.json.  After the first error all of
 * them do nothing. */
struct ig_config {
	uint32_t struct_size;
	uint32_t reserved;
	/* Read the value of that name (see struct ig_config_key) to *out.  Returns 1; 0 if it is
	 * missing or after an error; -1 if it is null. */
	int (*u32)(const struct ig_config *c, const char *name, uint32_t *out);
	int (*f32)(const struct ig_config *c, const char *name, float *out);
	int (*flag)(const struct ig_config *c, const char *name, uint32_t *out);
	/* The integer under a GGUF key, or 0; set a GGUF key, in place of what it had. */
	uint32_t (*get_u32)(const struct ig_config *c, const char *gguf);
	void (*put_u32)(const struct ig_config *c, const char *gguf, uint32_t value);
	/* Refuse the file.  The error is `"NAME" ` and the text. */
	void (*refuse)(const struct ig_config *c, int code, const char *name, const char *fmt, ...)
		__attribute__((format(printf, 4, 5)));
	/* The boolean of a layer in the list under a GGUF key (IG_CONFIG_LAYERS); -1: there is none. */
	int (*get_layer)(const struct ig_config *c, const char *gguf, uint32_t layer);
	/* Set one more GGUF key to a number for each of n layers. */
	void (*put_layers)(const struct ig_config *c, const char *gguf, const uint32_t *values,
			   uint32_t n);
	/* As f32: number i of a list; 0 beyond its end. */
	int (*f32_at)(const struct ig_config *c, const char *name, uint32_t i, float *out);
	/* A tensor that GGUF has and the folder has not: [1, n] of one value in each layer, %u in its
	 * name. */
	void (*put_vectors)(const struct ig_config *c, const char *name, uint32_t n, float value);
	/* Which of the words "a|b|c" item i of a list is, or character i of a string; -1: there is none, or
	 * after an error, which another word is. */
	int (*word_at)(const struct ig_config *c, const char *name, uint32_t i, const char *words);
	/* The same of a whole string; -1 also if it is null. */
	int (*word)(const struct ig_config *c, const char *name, const char *words);
};

/* Refuse the file if the number of that name is there and another one. */
static inline void ig_config_only_f32(const struct ig_config *c, const char *name, float value)
{
	float x;

	if (c->f32(c, name, &x) == 1 && x != value)
		c->refuse(c, -ENOTSUP, name, "is %g: not supported", (double)x);
}

/* Qwen: a sliding window, which most files do not use, and the first layer that has it. */
static inline void ig_config_put_used_window(const struct ig_config *c)
{
	uint32_t used = 0, first = 28, window = 4096;

	c->u32(c, "max_window_layers", &first);
	c->flag(c, "use_sliding_window", &used);
	if (used && first < c->get_u32(c, "block_count") &&
	    c->u32(c, "sliding_window", &window) >= 0)
		c->put_u32(c, "attention.sliding_window", window);
}

/* ---- tensors -------------------------------------------------------------------------------- */

enum ig_tensor_flags {
	IG_TENSOR_BIAS = 1 << 0,  /* may have a bias beside its weight */
	IG_TENSOR_F32 = 1 << 1,	  /* a matrix that is converted to float32 */
	IG_TENSOR_PAIRS = 1 << 2, /* rows of heads, reordered: RoPE's halves become pairs */
	/* [in, out] in the file, unless it has MXFP4's blocks; of experts [expert, in, out] */
	IG_TENSOR_TRANSPOSED = 1 << 3,
	IG_TENSOR_PLUS_ONE = 1 << 4, /* a norm's weight; 1 is added */
	/* [expert, rows, columns]; with "*" one tensor per expert.  The suffix may be missing. */
	IG_TENSOR_EXPERTS = 1 << 5,
	/* [expert, rows of two matrices, columns], or one matrix of both's rows; gguf: "first|second" */
	IG_TENSOR_TWO = 1 << 6,
	/* [width, 1, taps], or [width, taps, 1] as MLX has it: a matrix [width, taps] of float32 */
	IG_TENSOR_CONV = 1 << 7,
	IG_TENSOR_NAMED = 1 << 8, /* both names are whole, with their endings */
	/* With IG_TENSOR_TWO: rows of the two alternate, or of [expert, values] the values. */
	IG_TENSOR_INTERLEAVED = 1 << 9,
	/* Of heads of values that lie by their heads of keys, ssm.time_step_rank of ssm.group_count:
	 * reordered, so that head h has the head h % ssm.group_count of keys.  The last ssm.inner_size
	 * rows, or values of a vector, or one of each head; or as many columns. */
	IG_TENSOR_TILED = 1 << 10,
	IG_TENSOR_TILED_COLUMNS = 1 << 11,
	IG_TENSOR_NEGATIVE_EXP = 1 << 12, /* a vector x; it becomes -e^x */
	/* Of each head one matrix: [head, rows, columns].  With IG_TENSOR_TWO and gguf "keys|values" the rows
	 * of keys, then attention.value_length_mla rows of values, of each head after each other: keys are
	 * transposed, as the absorbed product with a query needs them. */
	IG_TENSOR_HEADS = 1 << 13,
	/* With IG_TENSOR_TWO: rows q | k | v | z of each of ssm.group_count heads of keys; the first
	 * matrix gets all q, all k and all v, the second one all z.  q and k have ssm.state_size rows. */
	IG_TENSOR_BY_KEY = 1 << 14,
	/* The entry is only of models with experts; the table may have another one for those without. */
	IG_TENSOR_IF_EXPERTS = 1 << 15,
	/* A matrix of positions, of which the last context_length rows are used: those in front of them are
	 * of padding. */
	IG_TENSOR_LAST_ROWS = 1 << 16,
	/* Of the head that guesses the token after the next one (record_mtp).  %u in gguf is the number of layers; in
	 * name it may be missing ("mtp.norm").  With such entries, one of them for nextn.eh_proj, the head's layer has the
	 * names of the other ones', as "layers.%u." or as "mtp.layers.0.".  Without them the head is left out. */
	IG_TENSOR_NEXT = 1 << 17,
	/* With IG_TENSOR_EXPERTS: [expert * rows, columns], the experts' matrices below each other in one; with
	 * IG_TENSOR_TRANSPOSED each by itself is [in, out]. */
	IG_TENSOR_STACKED = 1 << 18,
};

/* A tensor's name in the file and in GGUF, without prefixes ("model.") and suffixes (".weight",
 * ".bias", MLX's ".scales" and ".biases").  %u is the layer's number, * the expert's.
 * Vectors are converted to float32. */
struct ig_tensor_name {
	const char *name, *gguf;
	uint32_t flags; /* enum ig_tensor_flags */
};

#define IG_TENSORS_ENDS                                                                            \
	{ "embed_tokens", "token_embd", 0 }, { "norm", "output_norm", 0 },                         \
		{ "lm_head", "output", 0 }
/* Pre-norm blocks with separate Q, K and V matrices. */
#define IG_TENSORS_ATTENTION(qk, v, out)                                                           \
	{ "layers.%u.input_layernorm", "blk.%u.attn_norm", 0 },                                    \
		{ "layers.%u.self_attn.q_proj", "blk.%u.attn_q", qk },                             \
		{ "layers.%u.self_attn.k_proj", "blk.%u.attn_k", qk },                             \
		{ "layers.%u.self_attn.v_proj", "blk.%u.attn_v", v },                              \
		{ "layers.%u.self_attn.o_proj", "blk.%u.attn_output", out },                       \
		{ "layers.%u.post_attention_layernorm", "blk.%u.ffn_norm", 0 }
#define IG_TENSORS_QK_NORM(flags)                                                                  \
	{ "layers.%u.self_attn.q_norm", "blk.%u.attn_q_norm", flags },                             \
	{                                                                                          \
		"layers.%u.self_attn.k_norm", "blk.%u.attn_k_norm", flags                          \
	}
#define IG_TENSORS_GLU                                                                             \
	{ "layers.%u.mlp.gate_proj", "blk.%u.ffn_gate", 0 },                                       \
		{ "layers.%u.mlp.up_proj", "blk.%u.ffn_up", 0 },                                   \
		{ "layers.%u.mlp.down_proj", "blk.%u.ffn_down", 0 }
/* The router and the experts of `block` ("mlp"), as newer files of transformers, MLX and older
 * files of transformers (by the names of their matrices) have them. */
#define IG_TENSORS_EXPERTS(block, gate, up, down)                                                  \
	{ "layers.%u." block ".gate", "blk.%u.ffn_gate_inp", IG_TENSOR_F32 },                      \
		{ "layers.%u." block ".experts.gate_up_proj",                                      \
		  "blk.%u.ffn_gate_exps|blk.%u.ffn_up_exps", IG_TENSOR_EXPERTS | IG_TENSOR_TWO },  \
		IG_TENSORS_EXPERT(block ".experts.down_proj", "down"),                             \
		IG_TENSORS_EXPERT(block ".switch_mlp.gate_proj", "gate"),                          \
		IG_TENSORS_EXPERT(block ".switch_mlp.up_proj", "up"),                              \
		IG_TENSORS_EXPERT(block ".switch_mlp.down_proj", "down"),                          \
		IG_TENSORS_EXPERT(block ".experts.*." gate, "gate"),                               \
		IG_TENSORS_EXPERT(block ".experts.*." up, "up"),                                   \
		IG_TENSORS_EXPERT(block ".experts.*." down, "down")
/* A shared expert. */
#define IG_TENSORS_SHARED_EXPERT(block)                                                            \
	{ "layers.%u." block ".gate_proj", "blk.%u.ffn_gate_shexp", 0 },                           \
		{ "layers.%u." block ".up_proj", "blk.%u.ffn_up_shexp", 0 },                       \
		{ "layers.%u." block ".down_proj", "blk.%u.ffn_down_shexp", 0 }
/* The head that guesses, as DeepSeek V3's files have it: a layer behind the last one with more tensors. */
#define IG_TENSORS_NEXT                                                                            \
	{ "layers.%u.eh_proj", "blk.%u.nextn.eh_proj", IG_TENSOR_NEXT },                           \
		{ "layers.%u.enorm", "blk.%u.nextn.enorm", IG_TENSOR_NEXT },                       \
		{ "layers.%u.hnorm", "blk.%u.nextn.hnorm", IG_TENSOR_NEXT },                       \
		{ "layers.%u.embed_tokens", "blk.%u.nextn.embed_tokens", IG_TENSOR_NEXT },         \
		{ "layers.%u.shared_head.norm", "blk.%u.nextn.shared_head_norm", IG_TENSOR_NEXT }, \
	{                                                                                          \
		"layers.%u.shared_head.head", "blk.%u.nextn.shared_head_head", IG_TENSOR_NEXT      \
	}
#define IG_TENSORS_EXPERT(name, which)                                                             \
	{ "layers.%u." name, "blk.%u.ffn_" which "_exps", IG_TENSOR_EXPERTS }

/* ---- both ----------------------------------------------------------------------------------- */

/* Folders of one model_type.  The tables' entries have key_bytes and name_bytes bytes, so that
 * entries can grow; IG_CONFIG_KEYS and IG_TENSOR_NAMES set three members each. */
struct ig_arch_files {
	uint32_t struct_size;
	uint32_t tied; /* default of tie_word_embeddings: 1 if the embedding is the output matrix */
	const char *model_type; /* in config.json, or in its text_config */
	const char *outer_type; /* in config.json if text_config has no model_type; or NULL */
	const char *gguf;	/* general.architecture; NULL: the architecture's name */
	const struct ig_config_key *keys;
	uint32_t n_keys, key_bytes;
	const struct ig_tensor_name *names;
	uint32_t n_names, name_bytes;
	double rope_theta; /* the default; 0: no RoPE */
	uint32_t head_dim; /* the default; 0: hidden_size / number of heads */
	/* The default of partial_rotary_factor, in percent.  0: all of a head is rotated, and a
	 * file with another factor is refused. */
	uint32_t rotary_percent;
	void (*config)(const struct ig_config *c); /* called after the keys and RoPE; or NULL */
	/* Of multi-head latent attention: the number under rope.scaling.yarn_log_multiplier is so many times
	 * mscale_all_dim, and mscale must be the same.  0: it is another one's. */
	double yarn_log_scale;
	/* A key of config.json (see struct ig_config_key): these folders set it, to anything but false, null, 0 or
	 * an empty list.  Of the tables of a model_type one whose key is set comes before those without.  NULL: none. */
	const char *if_set;
};

#define IG_CONFIG_KEYS(table)                                                                      \
	.keys = (table), .n_keys = sizeof(table) / sizeof *(table), .key_bytes = sizeof *(table)
#define IG_TENSOR_NAMES(table)                                                                     \
	.names = (table), .n_names = sizeof(table) / sizeof *(table), .name_bytes = sizeof *(table)

#endif
