/* hf_config_private.h: what hf_config.c, hf_keys.c and hf_reranker.c share: reading config.json. */
#pragma once

#include "model/formats/folder.h"

#define IG_HF_MAX_KEYS 64

struct ig_hf_reading {
	struct ig_checkpoint *g;
	const struct ig_arch *const *archs;
	struct ig_hf_config *out;
	const json_t *text; /* the language model's object: root, or within it */
	const char *label;
	struct ig_error *err;
	int rc; /* the first error; later calls do nothing */
	char path[96];
};

/* `LABEL: "KEY" ` and the text, if it is the first error. */
void ig_hf_fail(struct ig_hf_reading *r, int code, const char *key, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* ---- values: false or NULL where one is missing or null, or after an error ---- */

const json_t *ig_hf_get(const json_t *object, const char *key);
bool ig_hf_whole(struct ig_hf_reading *r, const json_t *object, const char *key, uint32_t *out);
bool ig_hf_number(struct ig_hf_reading *r, const json_t *object, const char *key, double *out);
bool ig_hf_flag(struct ig_hf_reading *r, const json_t *object, const char *key, bool fallback);
const char *ig_hf_string(struct ig_hf_reading *r, const json_t *object, const char *key);

/* ---- GGUF's keys, without the architecture's name ---- */

void ig_hf_put_u32(struct ig_hf_reading *r, const char *key, uint32_t v);
void ig_hf_put_u32s(struct ig_hf_reading *r, const char *key, const uint32_t *v, uint64_t n);
void ig_hf_put_bools(struct ig_hf_reading *r, const char *key, const uint8_t *v, uint64_t n);
void ig_hf_put_f32(struct ig_hf_reading *r, const char *key, double v);
void ig_hf_put_str(struct ig_hf_reading *r, const char *key, const char *v);
/* The value that was put under this key, or NULL. */
const struct ig_kv *ig_hf_find_put(const struct ig_hf_reading *r, const char *key);
/* The whole number under this key, or 0. */
uint32_t ig_hf_was_put(const struct ig_hf_reading *r, const char *key);

/* Whether the folder is one of Qwen3-Reranker, by its class; puts its keys, and its rows of the output matrix. */
bool ig_hf_read_reranker(struct ig_hf_reading *r, const char *class);

/* Whether the key of this name (see struct ig_config_key) has a value that IG_CONFIG_REFUSED refuses. */
bool ig_hf_is_set(struct ig_hf_reading *r, const char *name);

/* Put the keys of the architecture's table, and call its own function. */
void ig_hf_put_keys(struct ig_hf_reading *r);
void ig_hf_run_hook(struct ig_hf_reading *r);
