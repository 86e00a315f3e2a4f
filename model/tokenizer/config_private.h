/*
 * config_private.h: the small files beside a model's weights that say what its
 * vocabulary doesn't: tokenizer_config.json, special_tokens_map.json,
 * generation_config.json, config.json, added_tokens.json, chat_template.jinja.
 */
#pragma once

#include "model/tokenizer/tokenizer_private.h"

struct json_t;

struct ig_model_config { /* of files that are not there: NULL */
	struct json_t *tokenizer, *special, *generation, *config, *added, *chat;
	const char *chat_jinja; /* the whole file */
	size_t n_chat_jinja;
};

/* 0, or what one of the files has wrong. */
int ig_model_config_read(const struct ig_model_files *files, struct ig_model_config *out,
			 struct ig_error *err);
void ig_model_config_finish(struct ig_model_config *c);

/* The text of "bos_token" and so on, or NULL. */
const char *ig_model_config_token(const struct ig_model_config *c, const char *name, size_t *len);

/* Who begins a text and who ends a turn, put into the builder's tokenizer. */
int ig_model_config_apply(const struct ig_model_config *c, struct ig_builder *b);

/* Tokens beside those of tokenizer.model, by ascending ids. */
struct ig_added_token {
	int64_t id;
	const char *text;
	size_t len;
	bool special;
};
/* *out [*n] is the caller's, its texts are the configuration's. */
int ig_model_config_added(const struct ig_model_config *c, struct ig_added_token **out, size_t *n,
			  struct ig_error *err);

/* The chat templates, "default" first; what each returns ends the walk unless it is 0.
 * -ENOENT when there is none. */
int ig_model_config_templates(const struct ig_model_config *c,
			      int (*each)(void *ctx, const char *name, const char *text,
					  size_t len),
			      void *ctx, struct ig_error *err);

struct ig_chat_template;

/* As ig_chat_template_open, from these files. */
int ig_chat_template_open_files(const struct ig_model_files *files, const struct ig_tokenizer *t,
				struct ig_chat_template **out, struct ig_error *err);
