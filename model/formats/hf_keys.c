/* hf_keys.c: reads values of config.json, and converts them to keys by an architecture's table
 * (include/ingot/arch_files.h). */
#include "model/formats/hf_config_private.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- errors ----------------------------------------------------------------------------- */

void ig_hf_fail(struct ig_hf_reading *r, int code, const char *key, const char *fmt, ...)
{
	char what[320];
	va_list ap;

	if (r->rc)
		return;
	va_start(ap, fmt);
	vsnprintf(what, sizeof what, fmt, ap);
	va_end(ap);
	r->rc = ig_fail(r->err, code, "%s: \"%s\" %s", r->label, key, what);
}

/* ---- values -------------------------------------------------------------------- */

const json_t *ig_hf_get(const json_t *object, const char *key)
{
	const json_t *v = json_object_get(object, key);

	return json_is_null(v) ? NULL : v;
}

bool ig_hf_whole(struct ig_hf_reading *r, const json_t *object, const char *key, uint32_t *out)
{
	const json_t *v = ig_hf_get(object, key);

	if (!v || r->rc)
		return false;
	if (!json_is_integer(v) || json_integer_value(v) < 0 ||
	    json_integer_value(v) > UINT32_MAX) {
		ig_hf_fail(r, -EINVAL, key, "is not a whole number of 0 to 4294967295");
		return false;
	}
	*out = (uint32_t)json_integer_value(v);
	return true;
}

bool ig_hf_number(struct ig_hf_reading *r, const json_t *object, const char *key, double *out)
{
	const json_t *v = ig_hf_get(object, key);

	if (!v || r->rc)
		return false;
	if (!json_is_number(v) || !isfinite((float)json_number_value(v))) {
		ig_hf_fail(r, -EINVAL, key, "is not a number that float32 can hold");
		return false;
	}
	*out = json_number_value(v);
	return true;
}

bool ig_hf_flag(struct ig_hf_reading *r, const json_t *object, const char *key, bool fallback)
{
	const json_t *v = ig_hf_get(object, key);

	if (v && !json_is_boolean(v))
		ig_hf_fail(r, -EINVAL, key, "is neither true nor false");
	return v ? json_is_true(v) : fallback;
}

const char *ig_hf_string(struct ig_hf_reading *r, const json_t *object, const char *key)
{
	const json_t *v = ig_hf_get(object, key);

	if (v && !json_is_string(v))
		ig_hf_fail(r, -EINVAL, key, "is not a string");
	return json_string_value(v);
}

/* The item of a list with this number; NULL: there is none. */
static const json_t *item_of(const json_t *list, const char *number)
{
	char *end;
	const unsigned long i = strtoul(number, &end, 10);

	return *number >= '0' && *number <= '9' && !*end ? json_array_get(list, i) : NULL;
}

/* The object, within the language model's, with the value of this name (struct ig_config_key), and
 * the value's key there, which is in r->path. */
static const json_t *object_of(struct ig_hf_reading *r, const char *name, const char **key)
{
	const json_t *o;
	char *dot;

	do {
		size_t len = strcspn(name, "|");
		snprintf(r->path, sizeof r->path, "%.*s", (int)len, name);
		name += len + (name[len] == '|');
		o = r->text;
		for (*key = r->path; (dot = strchr(*key, '.')); *key = dot + 1) {
			*dot = 0;
			o = json_is_array(o) ? item_of(o, *key) : json_object_get(o, *key);
		}
	} while (*name && !ig_hf_get(o, *key));
	return o;
}

/* Any value other than missing, null, false, 0 or empty. */
static bool is_set(const json_t *object, const char *key)
{
	const json_t *v = ig_hf_get(object, key);

	return v && !json_is_false(v) && !(json_is_number(v) && json_number_value(v) == 0) &&
	       !(json_is_array(v) && !json_array_size(v));
}

static void refuse(struct ig_hf_reading *r, const json_t *object, const char *key)
{
	if (is_set(object, key))
		ig_hf_fail(r, -ENOTSUP, key, "is set: not supported");
}

bool ig_hf_is_set(struct ig_hf_reading *r, const char *name)
{
	const char *key;
	const json_t *object = object_of(r, name, &key);

	return is_set(object, key);
}

/* ---- keys -------------------------------------------------------------------------------- */

const struct ig_kv *ig_hf_find_put(const struct ig_hf_reading *r, const char *key)
{
	const struct ig_checkpoint *g = r->g;
	size_t arch = strlen(r->out->gguf) + 1, len = strlen(key);

	for (uint32_t i = 0; i < g->n_kvs; i++)
		if (g->kvs[i].key_len == arch + len && !memcmp(g->kvs[i].key + arch, key, len))
			return &g->kvs[i];
	return NULL;
}

/* A key with its value, n elements of size bytes, in place of the one that it had; all but general keys and the tokenizer's get the architecture's name
 * as a prefix.  elem: of an array. */
static void put_all(struct ig_hf_reading *r, const char *key, enum ig_kv_type type, uint32_t elem,
		    const void *value, uint64_t n, size_t size)
{
	struct ig_checkpoint *g = r->g;
	struct ig_folder *f = g->folder;
	struct ig_kv *kv = (struct ig_kv *)(uintptr_t)ig_hf_find_put(r, key);
	char name[96];
	bool general = !strncmp(key, "general.", 8) || !strncmp(key, "tokenizer.", 10);
	size_t len = (size_t)snprintf(name, sizeof name, "%s%s%s", general ? "" : r->out->gguf,
				      general ? "" : ".", key);

	if (r->rc)
		return;
	if (len >= sizeof name || f->n_owned == IG_HF_MAX_KEYS) {
		ig_hf_fail(r, -EINVAL, key, "is too long, or there are too many keys");
		return;
	}
	/* In GGUF, an array's type and length, or a string's length, precede it. */
	uint8_t *p = malloc(16 + n * size + len), *at;
	if (!p) {
		r->rc = ig_checkpoint_no_memory(g, 16 + n * size + len, r->err);
		return;
	}
	f->owned[f->n_owned++] = p;
	at = p + 16;
	memcpy(at - 12, &elem, 4);
	memcpy(at - 8, &n, 8);
	memcpy(at, value, n * size);
	memcpy(at + n * size, name, len);
	kv = kv ? kv : &g->kvs[g->n_kvs++];
	*kv = (struct ig_kv){ .key = (char *)at + n * size,
			      .key_len = (uint32_t)len,
			      .value = at,
			      .n = n,
			      .type = (uint8_t)type,
			      .elem = (uint8_t)elem };
}

static void put(struct ig_hf_reading *r, const char *key, enum ig_kv_type type, const void *value,
		uint64_t n, size_t size)
{
	put_all(r, key, type, 0, value, n, size);
}

static void put_list(struct ig_hf_reading *r, const char *key, enum ig_kv_type elem,
		     const void *values, uint64_t n, size_t size)
{
	put_all(r, key, IG_KV_ARRAY, elem, values, n, size);
}

void ig_hf_put_u32(struct ig_hf_reading *r, const char *key, uint32_t v)
{
	put(r, key, IG_KV_U32, &v, 1, sizeof v);
}

void ig_hf_put_u32s(struct ig_hf_reading *r, const char *key, const uint32_t *v, uint64_t n)
{
	put_list(r, key, IG_KV_U32, v, n, sizeof *v);
}

void ig_hf_put_bools(struct ig_hf_reading *r, const char *key, const uint8_t *v, uint64_t n)
{
	put_list(r, key, IG_KV_BOOL, v, n, sizeof *v);
}

void ig_hf_put_f32(struct ig_hf_reading *r, const char *key, double v)
{
	float f = (float)v;
	put(r, key, IG_KV_F32, &f, 1, sizeof f);
}

void ig_hf_put_str(struct ig_hf_reading *r, const char *key, const char *v)
{
	put(r, key, IG_KV_STRING, v, strlen(v), 1);
}

uint32_t ig_hf_was_put(const struct ig_hf_reading *r, const char *key)
{
	const struct ig_kv *kv = ig_hf_find_put(r, key);
	uint32_t v = 0;

	if (kv && kv->type == IG_KV_U32)
		memcpy(&v, kv->value, sizeof v);
	return v;
}

/* ---- the architecture's table ----------------------------------------------------------------- */

static void put_number(struct ig_hf_reading *r, const struct ig_config_key *k, const json_t *object,
		       const char *name)
{
	bool is_float = k->kind == IG_CONFIG_F32, is_null = json_object_get(object, name) != NULL;
	double f = k->fallback;
	uint32_t u = 0;
	bool given =
		is_float ? ig_hf_number(r, object, name, &f) : ig_hf_whole(r, object, name, &u);

	if (r->rc || (!given && (k->flags & IG_CONFIG_OPTIONAL ||
				 (k->flags & IG_CONFIG_NULLABLE && is_null))))
		return;
	if (!given && k->flags & IG_CONFIG_TIMES)
		f *= ig_hf_was_put(r, k->text);
	if (k->flags & IG_CONFIG_PLUS && !is_float) {
		f = (given ? (double)u : f) + ig_hf_was_put(r, k->text);
		given = false;
	}
	if (!given &&
	    (k->flags & IG_CONFIG_REQUIRED || (!is_float && !(f >= 0 && f <= UINT32_MAX))))
		ig_hf_fail(r, -EINVAL, name, "is missing");
	else if (is_float)
		ig_hf_put_f32(r, k->gguf, f);
	else
		ig_hf_put_u32(r, k->gguf, given ? u : (uint32_t)f);
}

/* A list with one of two words for each layer, as booleans. */
static void put_layers(struct ig_hf_reading *r, const struct ig_config_key *k, const json_t *list,
		       const char *name)
{
	uint8_t second[IG_HF_MAX_LAYERS];
	size_t n = ig_hf_was_put(r, "block_count"), len = strcspn(k->text, "|");

	if (!list || r->rc)
		return;
	if (!json_is_array(list) || json_array_size(list) != n || n > IG_HF_MAX_LAYERS) {
		ig_hf_fail(r, -EINVAL, name, "is not a list of %zu layers", n);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		const char *t = json_string_value(json_array_get(list, i));
		second[i] = t && !strcmp(t, k->text + len + 1);
		if (!second[i] && (!t || strlen(t) != len || memcmp(t, k->text, len) != 0))
			ig_hf_fail(r, -ENOTSUP, name, "has \"%s\": not supported; %.*s and %s are",
				   ig_show(t ? t : "", t ? strlen(t) : 0).text, (int)len, k->text,
				   k->text + len + 1);
	}
	ig_hf_put_bools(r, k->gguf, second, n);
}

static void check_word(struct ig_hf_reading *r, const struct ig_config_key *k, const json_t *object,
		       const char *name)
{
	const char *word = ig_hf_string(r, object, name);

	if (word && strcmp(word, k->text))
		ig_hf_fail(r, -ENOTSUP, name, "is \"%s\": only %s is supported with %s",
			   ig_show(word, strlen(word)).text, k->text, r->out->files.model_type);
}

static void check_flag(struct ig_hf_reading *r, const struct ig_config_key *k, const json_t *object,
		       const char *name)
{
	bool want = k->kind == IG_CONFIG_TRUE;

	if (ig_hf_flag(r, object, name, k->fallback != 0) != want)
		ig_hf_fail(r, -ENOTSUP, name, "is %s: not supported with %s",
			   want ? "false" : "true", r->out->files.model_type);
}

static void put_count(struct ig_hf_reading *r, const struct ig_config_key *k, const json_t *object,
		      const char *name)
{
	const json_t *v = ig_hf_get(object, name);

	if (json_is_array(v) || json_is_string(v))
		ig_hf_put_u32(
			r, k->gguf,
			(uint32_t)(json_is_array(v) ? json_array_size(v) : json_string_length(v)));
	else if (k->flags & IG_CONFIG_REQUIRED)
		ig_hf_fail(r, -EINVAL, name, "is missing");
}

static void put_key(struct ig_hf_reading *r, const struct ig_config_key *k)
{
	const char *name;
	const json_t *object = object_of(r, k->name, &name);
	uint32_t u = (uint32_t)k->fallback;

	if (r->rc || (k->gguf && ig_hf_find_put(r, k->gguf)))
		return;
	switch (k->kind) {
	case IG_CONFIG_U32:
	case IG_CONFIG_F32: put_number(r, k, object, name); break;
	case IG_CONFIG_LAYERS: put_layers(r, k, ig_hf_get(object, name), name); break;
	case IG_CONFIG_WORD: check_word(r, k, object, name); break;
	case IG_CONFIG_ONLY:
		if (ig_hf_whole(r, object, name, &u) && u != (uint32_t)k->fallback)
			ig_hf_fail(r, -ENOTSUP, name, "is %u: only %u is supported", u,
				   (uint32_t)k->fallback);
		break;
	case IG_CONFIG_TRUE:
	case IG_CONFIG_FALSE: check_flag(r, k, object, name); break;
	case IG_CONFIG_REFUSED: refuse(r, object, name); break;
	case IG_CONFIG_COUNT: put_count(r, k, object, name); break;
	default: ig_hf_fail(r, -ENOTSUP, name, "is of kind %u, which is not supported", k->kind);
	}
}

static bool is_whole_key(const struct ig_config_key *k)
{
	bool puts = k->kind <= IG_CONFIG_LAYERS || k->kind == IG_CONFIG_COUNT;
	bool needs_bar = k->kind == IG_CONFIG_LAYERS;
	bool needs_text = needs_bar || k->kind == IG_CONFIG_WORD ||
			  k->flags & (IG_CONFIG_TIMES | IG_CONFIG_PLUS);

	return k->name && (k->gguf || !puts) && (k->text || !needs_text) &&
	       (!needs_bar || strchr(k->text, '|'));
}

/* Modules may have been built before the members behind these. */
#define FILES_BYTES offsetof(struct ig_arch_files, if_set)

static bool is_whole(const struct ig_arch_files *f)
{
	struct ig_tensor_name t;
	struct ig_config_key k;

	if (f->struct_size < FILES_BYTES || !f->model_type || (f->n_keys && !f->keys) ||
	    (f->n_names && !f->names) || f->key_bytes < sizeof k || f->name_bytes < sizeof t)
		return false;
	for (uint32_t i = 0; i < f->n_keys; i++) {
		ig_hf_entry(&k, sizeof k, f->keys, i, f->key_bytes);
		if (!is_whole_key(&k))
			return false;
	}
	for (uint32_t i = 0; i < f->n_names; i++) {
		ig_hf_entry(&t, sizeof t, f->names, i, f->name_bytes);
		if (!t.name || !t.gguf)
			return false;
	}
	return true;
}

bool ig_checkpoint_arch_is_whole(const struct ig_arch *a)
{
	const struct ig_arch_files *const *f = a->files;

	while (f && *f && is_whole(*f))
		f++;
	return !f || !*f;
}

void ig_hf_put_keys(struct ig_hf_reading *r)
{
	const struct ig_arch_files *f = &r->out->files;
	struct ig_config_key k;

	for (uint32_t i = 0; i < f->n_keys && !r->rc; i++) {
		ig_hf_entry(&k, sizeof k, f->keys, i, f->key_bytes);
		put_key(r, &k);
	}
}

#define IG_HF_MAX_VECTOR 65536

/* What the architecture's own function gets. */
struct hook {
	struct ig_config c;
	struct ig_hf_reading *r;
};

static struct ig_hf_reading *reading_of(const struct ig_config *c)
{
	return ((const struct hook *)c)->r;
}

/* 1: there is a value; 0: there is none; -1: it is null. */
static int hook_value(struct ig_hf_reading *r, const char *name, const json_t **object,
		      const char **key)
{
	*object = object_of(r, name, key);
	return r->rc ? 0 : ig_hf_get(*object, *key) ? 1 : -(json_object_get(*object, *key) != NULL);
}

static int hook_u32(const struct ig_config *c, const char *name, uint32_t *out)
{
	const json_t *object;
	const char *key;
	int rc = hook_value(reading_of(c), name, &object, &key);

	return rc == 1 ? ig_hf_whole(reading_of(c), object, key, out) : rc;
}

static int hook_f32(const struct ig_config *c, const char *name, float *out)
{
	const json_t *object;
	const char *key;
	double f;
	int rc = hook_value(reading_of(c), name, &object, &key);

	if (rc != 1 || !ig_hf_number(reading_of(c), object, key, &f))
		return rc == 1 ? 0 : rc;
	*out = (float)f;
	return 1;
}

static int hook_flag(const struct ig_config *c, const char *name, uint32_t *out)
{
	const json_t *object;
	const char *key;
	int rc = hook_value(reading_of(c), name, &object, &key);

	if (rc == 1)
		*out = ig_hf_flag(reading_of(c), object, key, false);
	return reading_of(c)->rc ? 0 : rc;
}

static uint32_t hook_get_u32(const struct ig_config *c, const char *gguf)
{
	return ig_hf_was_put(reading_of(c), gguf);
}

static void hook_put_u32(const struct ig_config *c, const char *gguf, uint32_t value)
{
	ig_hf_put_u32(reading_of(c), gguf, value);
}

static int hook_get_layer(const struct ig_config *c, const char *gguf, uint32_t layer)
{
	const struct ig_kv *kv = ig_hf_find_put(reading_of(c), gguf);

	if (!kv || kv->type != IG_KV_ARRAY || kv->elem != IG_KV_BOOL || layer >= kv->n)
		return -1;
	return ((const uint8_t *)kv->value)[layer];
}

static void hook_put_layers(const struct ig_config *c, const char *gguf, const uint32_t *values,
			    uint32_t n)
{
	put_list(reading_of(c), gguf, IG_KV_U32, values, n, sizeof *values);
}

static int hook_f32_at(const struct ig_config *c, const char *name, uint32_t i, float *out)
{
	const json_t *object, *v;
	const char *key;
	int rc = hook_value(reading_of(c), name, &object, &key);

	if (rc != 1)
		return rc;
	v = json_array_get(ig_hf_get(object, key), i);
	if (!v && json_is_array(ig_hf_get(object, key)))
		return 0;
	if (!json_is_number(v) || !isfinite((float)json_number_value(v))) {
		ig_hf_fail(reading_of(c), -EINVAL, key, "is not a list of numbers");
		return 0;
	}
	*out = (float)json_number_value(v);
	return 1;
}

/* Which of the words a text is; another one is an error. */
static int find_word(struct ig_hf_reading *r, const char *key, const char *text, const char *words)
{
	for (int n = 0;; n++) {
		const size_t len = strcspn(words, "|");
		if (strlen(text) == len && !memcmp(text, words, len))
			return n;
		if (!words[len])
			break;
		words += len + 1;
	}
	ig_hf_fail(r, -ENOTSUP, key, "has \"%s\": not supported", ig_show(text, strlen(text)).text);
	return -1;
}

static int hook_word(const struct ig_config *c, const char *name, const char *words)
{
	const json_t *object;
	const char *key, *text;

	if (hook_value(reading_of(c), name, &object, &key) != 1)
		return -1;
	text = ig_hf_string(reading_of(c), object, key);
	return text ? find_word(reading_of(c), key, text, words) : -1;
}

static int hook_word_at(const struct ig_config *c, const char *name, uint32_t i, const char *words)
{
	const json_t *object, *v;
	const char *key, *text;
	char letter[2] = { 0 };

	if (hook_value(reading_of(c), name, &object, &key) != 1)
		return -1;
	v = ig_hf_get(object, key);
	text = json_string_value(json_is_array(v) ? json_array_get(v, i) : v);
	if (json_is_string(v)) {
		letter[0] = i < json_string_length(v) ? text[i] : 0;
		text = letter;
	}
	return text && *text ? find_word(reading_of(c), key, text, words) : -1;
}

static void hook_put_vectors(const struct ig_config *c, const char *name, uint32_t n, float value)
{
	struct ig_hf_reading *r = reading_of(c);
	struct ig_hf_vectors *v = &r->out->vectors[r->out->n_vectors];

	if (r->rc)
		return;
	if (r->out->n_vectors == IG_HF_MAX_VECTORS || !n || n > IG_HF_MAX_VECTOR ||
	    strlen(name) + 8 > sizeof v->name) {
		ig_hf_fail(r, -EINVAL, name, "of %u values is too much", n);
		return;
	}
	v->values = malloc(n * sizeof *v->values);
	if (!v->values) {
		r->rc = ig_checkpoint_no_memory(r->g, n * sizeof *v->values, r->err);
		return;
	}
	r->out->n_vectors++;
	strcpy(v->name, name);
	v->n = n;
	for (uint32_t i = 0; i < n; i++)
		v->values[i] = value;
}

__attribute__((format(printf, 4, 5))) static void
hook_refuse(const struct ig_config *c, int code, const char *name, const char *fmt, ...)
{
	char what[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof what, fmt, ap);
	va_end(ap);
	ig_hf_fail(reading_of(c), code, name, "%s", what);
}

void ig_hf_run_hook(struct ig_hf_reading *r)
{
	const struct hook h = { { .struct_size = sizeof h.c,
				  .u32 = hook_u32,
				  .f32 = hook_f32,
				  .flag = hook_flag,
				  .get_u32 = hook_get_u32,
				  .put_u32 = hook_put_u32,
				  .refuse = hook_refuse,
				  .get_layer = hook_get_layer,
				  .put_layers = hook_put_layers,
				  .f32_at = hook_f32_at,
				  .put_vectors = hook_put_vectors,
				  .word_at = hook_word_at,
				  .word = hook_word },
				r };

	if (r->out->files.config && !r->rc)
		r->out->files.config(&h.c);
}
