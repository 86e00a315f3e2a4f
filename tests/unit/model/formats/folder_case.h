/*
 * folder_case.h: models as folders of safetensors in memory, for the tests of what is read of them.
 */
#pragma once

#include "model/formats/checkpoint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* A model of one layer, two heads of 4, one of keys; lm_head is the embedding. */
#define CONFIG_WITH(more)                                                                          \
	"{\"model_type\":\"llama\",\"hidden_size\":8,\"num_hidden_layers\":1,"                     \
	"\"num_attention_heads\":2,\"num_key_value_heads\":1,\"intermediate_size\":16,"            \
	"\"max_position_embeddings\":64,\"tie_word_embeddings\":true" more "}"
#define CONFIG CONFIG_WITH("")
#define EMBED "\"model.embed_tokens.weight\""

/* An entry of a header. */
#define T(name, type, shape, from, to)                                                             \
	"\"" name "\":{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":[" #from        \
	"," #to "]}"

#define FOLDER_DATA_BYTES (1 << 16)

extern uint8_t folder_data[FOLDER_DATA_BYTES]; /* what files' tensors are made of */

struct opened {
	struct ig_checkpoint *g;
	uint8_t *file;
};

/* The file: the header, filled up with spaces, n bytes of folder_data; malloced. */
uint8_t *folder_make_file(const char *header, size_t n, size_t *len);
int folder_open_bytes(const char *config, const uint8_t *file, size_t len, struct ig_checkpoint **g,
		      struct ig_error *err);
void folder_fails(int rc, struct ig_checkpoint **g, const struct ig_error *err, int code,
		  const char *text);
void folder_refused(const char *config, const char *header, size_t n, int code, const char *text);
struct opened folder_opened(const char *config, const char *header, size_t n);
void folder_closed(struct opened *o);
const struct ig_checkpoint_tensor *folder_tensor(const struct opened *o, const char *name,
						 uint32_t dtype, int64_t n_rows, int64_t n_cols);
/* Value [row, col], from a row made alone and among its neighbours. */
float folder_value(const struct opened *o, const struct ig_checkpoint_tensor *t, int64_t row,
		   int64_t col);
uint32_t folder_u32(const struct ig_checkpoint *g, const char *key);
float folder_f32(const struct ig_checkpoint *g, const char *key);
void folder_fill_f32(size_t n);
