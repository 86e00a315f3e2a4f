/*
 * tiny_gguf.h: GGUF files built in memory, right ones and wrong ones, and a small
 * vocabulary for them.  For tests and fuzz targets only.  Out of memory aborts.
 */
#pragma once

#include "model/formats/checkpoint.h"

enum {
	GW_U8,
	GW_I8,
	GW_U16,
	GW_I16,
	GW_U32,
	GW_I32,
	GW_F32,
	GW_BOOL,
	GW_STRING,
	GW_ARRAY,
	GW_U64,
	GW_I64,
	GW_F64
};

struct gw {		     /* a writer; the header's counts are filled in as things are added */
	unsigned char *data; /* aligned as malloc does */
	size_t len, cap;
};

void gw_init(struct gw *w);
void gw_finish(struct gw *w);

/* Raw bytes and numbers, little-endian. */
void gw_put(struct gw *w, const void *data, size_t len);
void gw_number(struct gw *w, uint64_t v, unsigned n_bytes);
void gw_string(struct gw *w, const char *s, size_t len);
/* Overwrite a number. */
void gw_patch(struct gw *w, size_t at, uint64_t v, unsigned n_bytes);

/* Keys; each adds one to the header's count. */
void gw_key(struct gw *w, const char *key, uint32_t type); /* then put the value */
void gw_u32(struct gw *w, const char *key, uint32_t v);
void gw_f32(struct gw *w, const char *key, float v);
void gw_bool(struct gw *w, const char *key, bool v);
void gw_str(struct gw *w, const char *key, const char *s);
void gw_strs(struct gw *w, const char *key, const char *const *s, size_t n);
void gw_i32s(struct gw *w, const char *key, const int32_t *v, size_t n);

/* A tensor's entry; after all keys. */
void gw_tensor(struct gw *w, const char *name, const uint64_t *ne, uint32_t n_dims, uint32_t dtype,
	       uint64_t offset);
/* Pad to alignment, then n zero bytes of data. */
void gw_data(struct gw *w, uint32_t alignment, size_t n);

/* A file with a tokenizer of 256 bytes, some merges (the last one makes TINY_HELLO,
 * "hello"), three control tokens and one user-defined one.  NULL leaves a key out. */
struct tiny_options {
	const char *model; /* gpt2 */
	const char *pre;   /* smollm */
	const char *chat_template;
	bool no_bos_key; /* tokenizer.ggml.add_bos_token is left out, else false */
};
void tiny_file(struct gw *w, const struct tiny_options *o);
/* The keys of a vocabulary, so that a test can change one thing. */
void tiny_vocabulary(const char *const **tokens, const int32_t **types, size_t *n_tokens,
		     const char *const **merges, size_t *n_merges);

enum {
	TINY_END_OF_TEXT = 0,
	TINY_START = 1,
	TINY_END = 2,
	TINY_BYTE = 3, /* the byte b is token TINY_BYTE + b */
	TINY_HE = TINY_BYTE + 256,
	TINY_LL,
	TINY_HELL,
	TINY_HELLO,
	TINY_SPACE_W,
	TINY_SMILE2,
	TINY_SMILE,
	TINY_IM,
	TINY_TOOL,
	N_TINY,
};
