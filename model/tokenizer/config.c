/*
 * config.c: see config_private.h; also opens a tokenizer from files beside the weights.  Priority:
 * tokenizer_config.json, special_tokens_map.json, then the ids in generation_config.json and
 * config.json; the end-of-turn tokens of all files count.
 */
#include "model/tokenizer/config_private.h"

#include "base/json.h"
#include "base/json_scan.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILE_BYTES (8u << 20)
#define MAX_ADDED 65536

/* ---- the files ----------------------------------------------------------------------- */

static int read_file(const struct ig_model_files *files, const char *name, json_t **out,
		     struct ig_error *err)
{
	struct ig_json_scan s;
	const char *data;
	size_t len;
	int rc = files->find(files->ctx, name, &data, &len, err);

	*out = NULL;
	if (rc)
		return rc == -ENOENT ? 0 : rc;
	if (len > MAX_FILE_BYTES)
		return ig_fail(err, -EINVAL, "%s has %zu bytes, at most %u are possible", name, len,
			       MAX_FILE_BYTES);
	ig_json_scan_init(&s, name, data, len, err);
	rc = ig_json_scan_json(&s, out);
	if (!rc)
		rc = ig_json_scan_end(&s);
	if (!rc && !json_is_object(*out))
		rc = ig_fail(err, -EINVAL, "%s is not an object", name);
	ig_json_scan_finish(&s);
	return rc;
}

int ig_model_config_read(const struct ig_model_files *files, struct ig_model_config *c,
			 struct ig_error *err)
{
	const struct {
		const char *name;
		json_t **root;
	} all[] = {
		{ "tokenizer_config.json", &c->tokenizer },
		{ "special_tokens_map.json", &c->special },
		{ "generation_config.json", &c->generation },
		{ "config.json", &c->config },
		{ "added_tokens.json", &c->added },
		{ "chat_template.json", &c->chat },
	};
	int rc = 0;

	*c = (struct ig_model_config){ 0 };
	for (size_t i = 0; i < sizeof all / sizeof all[0] && !rc; i++)
		rc = read_file(files, all[i].name, all[i].root, err);
	if (!rc)
		rc = files->find(files->ctx, "chat_template.jinja", &c->chat_jinja,
				 &c->n_chat_jinja, err);
	if (rc == -ENOENT) {
		c->chat_jinja = NULL;
		rc = 0;
	}
	if (rc)
		ig_model_config_finish(c);
	return rc;
}

void ig_model_config_finish(struct ig_model_config *c)
{
	json_decref(c->tokenizer);
	json_decref(c->special);
	json_decref(c->generation);
	json_decref(c->config);
	json_decref(c->added);
	json_decref(c->chat);
	*c = (struct ig_model_config){ 0 };
}

/* ---- tokens ---------------------------------------------------------------------------- */

/* "<s>", or {"content": "<s>", …}. */
static const json_t *token_text(const json_t *file, const char *name)
{
	const json_t *v = json_object_get(file, name);

	if (json_is_object(v))
		v = json_object_get(v, "content");
	return json_is_string(v) ? v : NULL;
}

const char *ig_model_config_token(const struct ig_model_config *c, const char *name, size_t *len)
{
	const json_t *v = token_text(c->tokenizer, name);

	/* A null there means that there is no such token. */
	if (!v && !json_object_get(c->tokenizer, name))
		v = token_text(c->special, name);
	*len = json_string_length(v);
	return json_string_value(v);
}

static int32_t token_id(const struct ig_model_config *c, const struct ig_tokenizer *t,
			const char *name)
{
	size_t len;
	const char *text = ig_model_config_token(c, name, &len);

	return text && strlen(text) == len ? ig_tokenizer_find_special(t, text) : -1;
}

/* A file's ids under name: a number or a list of them. */
static int take_ids(const char *file, const json_t *j, const char *name, struct ig_builder *b,
		    int (*take)(struct ig_builder *b, int32_t id))
{
	const json_t *v = json_object_get(j, name);
	size_t n = json_is_array(v) ? json_array_size(v) : v && !json_is_null(v);

	for (size_t i = 0; i < n; i++) {
		const json_t *one = json_is_array(v) ? json_array_get(v, i) : v;
		json_int_t id = json_integer_value(one);
		if (!json_is_integer(one))
			return ig_fail(b->err, -EINVAL, "%s: %s is not a number", file, name);
		/* A vocabulary may be padded, and -1 means none. */
		if (id >= 0 && id < (json_int_t)b->t->n_vocab)
			take(b, (int32_t)id);
	}
	return 0;
}

static int take_end(struct ig_builder *b, int32_t id)
{
	ig_builder_end(b, id);
	return 0;
}

static int take_bos(struct ig_builder *b, int32_t id)
{
	if (b->t->bos < 0)
		b->t->bos = id;
	return 0;
}

int ig_model_config_apply(const struct ig_model_config *c, struct ig_builder *b)
{
	const json_t *text = json_object_get(c->config, "text_config");
	const json_t *add = json_object_get(c->tokenizer, "add_bos_token");
	const struct {
		const char *file;
		const json_t *j;
	} files[] = {
		{ "generation_config.json", c->generation },
		{ "config.json", c->config },
		{ "config.json", text },
	};
	int rc;

	if (b->t->bos < 0)
		b->t->bos = token_id(c, b->t, "bos_token");
	ig_builder_end(b, token_id(c, b->t, "eos_token"));
	for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
		if ((rc = take_ids(files[i].file, files[i].j, "bos_token_id", b, take_bos)) ||
		    (rc = take_ids(files[i].file, files[i].j, "eos_token_id", b, take_end)))
			return rc;
	if (!b->t->n_ends) /* no file names one */
		ig_builder_end(b, ig_tokenizer_find_special(b->t, "</s>"));
	if (json_is_boolean(add))
		b->t->add_bos = json_is_true(add);
	return 0;
}

static int compare_added(const void *a, const void *b)
{
	const struct ig_added_token *x = a, *y = b;

	return x->id < y->id ? -1 : x->id > y->id;
}

/* "32000" */
static bool read_id(const char *s, int64_t *id)
{
	*id = 0;
	if (!*s || strlen(s) > 9)
		return false;
	for (; *s; s++) {
		if (*s < '0' || *s > '9')
			return false;
		*id = *id * 10 + (*s - '0');
	}
	return true;
}

int ig_model_config_added(const struct ig_model_config *c, struct ig_added_token **out,
			  size_t *n_out, struct ig_error *err)
{
	const json_t *decoder = json_object_get(c->tokenizer, "added_tokens_decoder");
	size_t n = 0, max = json_object_size(decoder) + json_object_size(c->added), n_unique = 0;
	struct ig_added_token *list;
	const char *key;
	json_t *v;

	*out = NULL;
	*n_out = 0;
	if (max > MAX_ADDED)
		return ig_fail(err, -EINVAL, "%zu added tokens, at most %d are possible", max,
			       MAX_ADDED);
	list = calloc(max + 1, sizeof *list);
	if (!list)
		return -ENOMEM;
	json_object_foreach((json_t *)(uintptr_t)decoder, key, v)
	{
		const json_t *text = json_object_get(v, "content");
		struct ig_added_token *a = &list[n++];
		if (!read_id(key, &a->id) || !json_is_string(text)) {
			free(list);
			return ig_fail(err, -EINVAL,
				       "tokenizer_config.json: added_tokens_decoder: '%.40s' "
				       "is not the id of a token",
				       key);
		}
		a->text = json_string_value(text);
		a->len = json_string_length(text);
		a->special = json_is_true(json_object_get(v, "special"));
	}
	json_object_foreach(c->added, key, v)
	{
		struct ig_added_token *a = &list[n++];
		if (!json_is_integer(v) || json_integer_value(v) < 0) {
			free(list);
			return ig_fail(err, -EINVAL, "added_tokens.json: '%.40s' has no id", key);
		}
		/* This file has no flag; control tokens, which a client can't write, are safe. */
		*a = (struct ig_added_token){ json_integer_value(v), key, strlen(key), true };
	}
	/* Drop duplicates. */
	for (size_t i = 0; i < n; i++) {
		char name[24];
		snprintf(name, sizeof name, "%" PRId64, list[i].id);
		if (i < json_object_size(decoder) || !json_object_get(decoder, name))
			list[n_unique++] = list[i];
	}
	qsort(list, n_unique, sizeof *list, compare_added);
	*out = list;
	*n_out = n_unique;
	return 0;
}

/* ---- chat templates ------------------------------------------------------------------------ */

int ig_model_config_templates(const struct ig_model_config *c,
			      int (*each)(void *ctx, const char *name, const char *text,
					  size_t len),
			      void *ctx, struct ig_error *err)
{
	const json_t *v = json_object_get(c->tokenizer, "chat_template"), *one;
	bool has_default = c->chat_jinja != NULL;
	size_t i;
	int rc = 0;

	if (c->chat_jinja)
		rc = each(ctx, "default", c->chat_jinja, c->n_chat_jinja);
	if (!v || json_is_null(v))
		v = json_object_get(c->chat, "chat_template");
	if (json_is_string(v))
		return rc || has_default ?
			       rc :
			       each(ctx, "default", json_string_value(v), json_string_length(v));
	if (!v || json_is_null(v))
		return rc || has_default ? rc : -ENOENT;
	if (!json_is_array(v))
		return ig_fail(err, -ENOTSUP,
			       "tokenizer_config.json: chat_template is neither a text nor a list");
	/* The default one first, wherever it is in the list. */
	for (int others = 0; others < 2 && !rc; others++) {
		for (i = 0; i < json_array_size(v) && !rc; i++) {
			one = json_array_get(v, i);
			const char *name = json_string_value(json_object_get(one, "name"));
			const json_t *text = json_object_get(one, "template");
			if (!name || !json_is_string(text))
				return ig_fail(err, -ENOTSUP,
					       "tokenizer_config.json: chat_template %zu has "
					       "no name or no template",
					       i);
			if (strcmp(name, "default") ? !others : others || has_default)
				continue;
			has_default = true;
			rc = each(ctx, name, json_string_value(text), json_string_length(text));
		}
		if (!has_default)
			return -ENOENT;
	}
	return rc;
}

/* The rows of the model's embedding, which may be more than its tokens; 0: unknown. */
static uint64_t vocab_size(const struct ig_model_config *c)
{
	const json_t *v = json_object_get(c->config, "vocab_size");
	json_int_t n;

	if (!v)
		v = json_object_get(json_object_get(c->config, "text_config"), "vocab_size");
	n = json_integer_value(v);
	return n > 0 && n <= IG_MAX_VOCAB ? (uint64_t)n : 0;
}

/* ---- a tokenizer from files ---------------------------------------------------------------- */

int ig_tokenizer_open_files(const struct ig_model_files *files, bool jit, struct ig_tokenizer **out,
			    struct ig_error *err)
{
	static const char *const names[] = { "tokenizer.json", "tokenizer.model", "tekken.json" };
	struct ig_builder b = { .err = err };
	struct ig_model_config c;
	const char *data;
	size_t len;
	unsigned i;
	int rc = -ENOENT;

	*out = NULL;
	for (i = 0; i < 3 && rc == -ENOENT; i++)
		rc = files->find(files->ctx, names[i], &data, &len, err);
	if (rc)
		return rc;
	if ((rc = ig_model_config_read(files, &c, err)))
		return rc;
	b.pad_to = vocab_size(&c);
	rc = i == 1 ? ig_tokenizer_read_json(&b, data, len, jit) :
	     i == 2 ? ig_tokenizer_read_spm(&b, data, len, &c) :
		      ig_tokenizer_read_tekken(&b, data, len, jit);
	if (!rc)
		rc = ig_model_config_apply(&c, &b);
	if (!rc)
		ig_builder_finish(&b, out);
	ig_builder_cancel(&b);
	ig_model_config_finish(&c);
	return rc;
}
