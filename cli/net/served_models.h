/* served_models.h: the models that the daemon serves (GET /v1/models). */
#pragma once

#include "base/json.h"
#include "cli/net/endpoint.h"

/* The list's entries, an array (json_decref); NULL on an error, with its code and text. */
json_t *ig_served_list(const struct ig_endpoint *e, struct ig_error *err);
/* The name of entry i; "?" when it has none. */
const char *ig_served_name(const json_t *list, size_t i);
bool ig_served_has(const json_t *list, const char *name);
/* Whether it generates text, as far as is known: models of embeddings and rerankers do not. */
bool ig_served_chats(const json_t *entry);
/* The entry of this name, borrowed; NULL: none. */
const json_t *ig_served_find(const json_t *list, const char *name);

/* Text for people; "-" where the entry lacks the member. */
const char *ig_served_state(const json_t *entry);
/* Whether the model uses memory, or is being loaded. */
bool ig_served_is_loaded(const json_t *entry);
const char *ig_served_size(const json_t *entry, char *buf, size_t size);
const char *ig_served_count(const json_t *entry, const char *key, char *buf, size_t size);
/* When it is unloaded: "4 m 12 s", "pinned", "never" */
const char *ig_served_expiry(const json_t *entry, char *buf, size_t size);

/* Whether text could be a model's name: 1 to 128 of A-Z a-z 0-9 . _ : / - */
bool ig_is_model_name(const char *text);
