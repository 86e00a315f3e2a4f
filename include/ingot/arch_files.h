/*
 * arch_files.h: what a folder of Hugging Face or MLX calls an architecture's
 * hyper-parameters and tensors, as tables.  Tier 1 (module.h).
 *
 * config.json becomes GGUF's keys, which read_params reads, and tensors get GGUF's names,
 * which record declares; the folder is then read like a GGUF file.  What all models of
 * transformers say alike (rope_scaling, quantization, prefixes of names, parts that see) is
 * the host's.  A key that asks for what is not done is refused by its name, and so is a
 * tensor that no table has.
 */
#ifndef INGOT_ARCH_FILES_H
#define INGOT_ARCH_FILES_H

#include <ingot/arch.h>

/* ---- config.json ------------------------------------------------------------------------ */

enum ig_config_kind {
	IG_CONFIG_U32 = 0,     /* a whole number of 0 to 2^32 - 1 */
	IG_CONFIG_F32 = 1,     /* a number that float32 can hold */
	IG_CONFIG_LAYERS = 2,  /* text: "full|sliding", a list of these words, one a layer: a list
				* of booleans, false for the first word */
	IG_CONFIG_WORD = 3,    /* text is the only string that is done */
	IG_CONFIG_ONLY = 4,    /* fallback is the only whole number that is done */
	IG_CONFIG_TRUE = 5,    /* true is the only value that is done; fallback: 0 or 1 */
	IG_CONFIG_FALSE = 6,   /* false is */
	IG_CONFIG_REFUSED = 7, /* nothing is done but false, null, 0 or an empty list */
};

/* What becomes of a number that is missing or null; without a flag it is fallback. */
enum ig_config_flags {
	IG_CONFIG_REQUIRED = 1 << 0, /* an error */
	IG_CONFIG_OPTIONAL = 1 << 1, /* no key */
	IG_CONFIG_NULLABLE = 1 << 2, /* no key where it is null, fallback where it is missing */
	IG_CONFIG_TIMES = 1 << 3,    /* fallback times the number under GGUF's key `text` */
};

/* A key of config.json and GGUF's.  Keys are read in order; where two entries have one key
 * of GGUF's, the first that is in the file counts. */
struct ig_config_key {
	const char *name; /* "a.b": b in object a; "a|b": the first that is there */
	const char *gguf; /* without the architecture's name; NULL: it is only checked */
	uint32_t kind;	  /* enum ig_config_kind */
	uint32_t flags;	  /* enum ig_config_flags */
	double fallback;
	const char *text;
};

/* The numbers that nearly all have, with what transformers takes where they are missing. */
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
/* Older files have as many heads of keys as of queries, and do not say so. */
#define IG_CONFIG_KV_HEADS_AS_HEADS                                                                \
	{ "num_key_value_heads", "attention.head_count_kv", IG_CONFIG_U32, IG_CONFIG_TIMES, 1,     \
	  "attention.head_count" }
#define IG_CONFIG_SILU { "hidden_act", NULL, IG_CONFIG_WORD, 0, 0, "silu" }

/* What a table can't say is said by a function over the file.  The first error counts, and
 * what follows does nothing. */
struct ig_config {
	uint32_t struct_size;
	uint32_t reserved;
	/* A value by its name, as in struct ig_config_key, to *out: 1; 0: it is missing, or
	 * there was an error; -1: it is null. */
	int (*u32)(const struct ig_config *c, const char *name, uint32_t *out);
	int (*f32)(const struct ig_config *c, const char *name, float *out);
	int (*flag)(const struct ig_config *c, const char *name, uint32_t *out);
	/* The whole number under GGUF's key, or 0; and one more key. */
	uint32_t (*get_u32)(const struct ig_config *c, const char *gguf);
	void (*put_u32)(const struct ig_config *c, const char *gguf, uint32_t value);
	/* Refuse the file: `"NAME" ` and the text. */
	void (*refuse)(const struct ig_config *c, int code, const char *name, const char *fmt, ...)
		__attribute__((format(printf, 4, 5)));
};

/* Qwen's files name a window, which most do not use, and the layer that it begins at. */
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
	IG_TENSOR_BIAS = 1 << 0,       /* it may have a bias beside its weight */
	IG_TENSOR_F32 = 1 << 1,	       /* a matrix of float32, whatever the file has */
	IG_TENSOR_PAIRS = 1 << 2,      /* rows of heads; RoPE's halves become pairs */
	IG_TENSOR_TRANSPOSED = 1 << 3, /* [in, out] in the file */
	IG_TENSOR_PLUS_ONE = 1 << 4,   /* a norm's weight of 1 + w */
	/* [expert, rows, columns]; with "*" a tensor for each expert.  May have no ending. */
	IG_TENSOR_EXPERTS = 1 << 5,
	/* [expert, rows of one and rows of the other, columns]; gguf: "one|the other" */
	IG_TENSOR_TWO = 1 << 6,
};

/* A tensor's name in the file and GGUF's, without prefixes ("model.") and endings (".weight",
 * ".bias", MLX's ".scales" and ".biases"); %u is the layer's number, * the expert's.
 * Vectors become float32. */
struct ig_tensor_name {
	const char *name, *gguf;
	uint32_t flags; /* enum ig_tensor_flags */
};

#define IG_TENSORS_ENDS                                                                            \
	{ "embed_tokens", "token_embd", 0 }, { "norm", "output_norm", 0 },                         \
		{ "lm_head", "output", 0 }
/* Blocks with a norm before each half, attention of three matrices. */
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
/* The router and the experts of `block`, "mlp": as transformers has them in newer files, as
 * MLX has them, and as transformers had them, by the names of their matrices. */
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
#define IG_TENSORS_EXPERT(name, which)                                                             \
	{ "layers.%u." name, "blk.%u.ffn_" which "_exps", IG_TENSOR_EXPERTS }

/* ---- both -------------------------------------------------------------------------------------- */

/* Files of one model_type.  Tables are of entries of key_bytes and name_bytes, so that
 * entries can grow; IG_CONFIG_KEYS and IG_TENSOR_NAMES fill in three members each. */
struct ig_arch_files {
	uint32_t struct_size;
	uint32_t tied; /* 1: the head is the embedding, where tie_word_embeddings is missing */
	const char *model_type; /* of config.json, or of its text_config */
	const char *outer_type; /* of config.json, where its text_config has none; or NULL */
	const char *gguf;	/* general.architecture; NULL: the architecture's name */
	const struct ig_config_key *keys;
	uint32_t n_keys, key_bytes;
	const struct ig_tensor_name *names;
	uint32_t n_names, name_bytes;
	double rope_theta; /* where it is missing; 0: no RoPE */
	uint32_t head_dim; /* where it is missing; 0: hidden_size over heads */
	uint32_t reserved;
	void (*config)(const struct ig_config *c); /* after the keys and RoPE; or NULL */
};

#define IG_CONFIG_KEYS(table)                                                                      \
	.keys = (table), .n_keys = sizeof(table) / sizeof *(table), .key_bytes = sizeof *(table)
#define IG_TENSOR_NAMES(table)                                                                     \
	.names = (table), .n_names = sizeof(table) / sizeof *(table), .name_bytes = sizeof *(table)

#endif
