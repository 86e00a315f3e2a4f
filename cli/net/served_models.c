/* served_models.c: see served_models.h. */
#include "cli/net/served_models.h"

#include <errno.h>
#include <string.h>

#include "cli/net/http_client.h"
#include "cli/term/text.h"

#define TIMEOUT_MS 3000

/* Without the second ids of models (server.model_id_prefix). */
static void drop_aliases(json_t *list)
{
	for (size_t i = json_array_size(list); i--;)
		if (json_object_get(json_array_get(list, i), "alias_of"))
			json_array_remove(list, i);
}

json_t *ig_served_list(const struct ig_endpoint *e, struct ig_error *err)
{
	json_t *root = NULL, *list;
	long http;

	if (ig_http_get_json(e, "/v1/models", TIMEOUT_MS, &root, &http, err))
		return NULL;
	list = json_object_get(root, "data");
	list = json_is_array(list) ? json_incref(list) : NULL;
	json_decref(root);
	drop_aliases(list);
	if (!list)
		ig_fail(err, -EPROTO, "%s/v1/models: the response has no list \"data\"", e->url);
	return list;
}

const char *ig_served_name(const json_t *list, size_t i)
{
	const char *s = ig_json_text(json_array_get(list, i), "id");

	return s ? s : "?";
}

const json_t *ig_served_find(const json_t *list, const char *name)
{
	for (size_t i = 0; i < json_array_size(list); i++)
		if (!strcmp(ig_served_name(list, i), name))
			return json_array_get(list, i);
	return NULL;
}

bool ig_served_has(const json_t *list, const char *name)
{
	return ig_served_find(list, name) != NULL;
}

bool ig_served_chats(const json_t *entry)
{
	const char *task = ig_json_text(entry, "task");

	return !task || !strcmp(task, "generate");
}

const char *ig_served_state(const json_t *entry)
{
	const char *s = ig_json_text(entry, "state");

	return s && *s ? s : "-";
}

bool ig_served_is_loaded(const json_t *entry)
{
	const char *s = ig_served_state(entry);

	return !strcmp(s, "ready") || !strcmp(s, "loading") || !strcmp(s, "unloading");
}

const char *ig_served_size(const json_t *entry, char *buf, size_t size)
{
	json_int_t n = json_integer_value(json_object_get(entry, "weight_bytes"));

	return n > 0 ? ig_text_bytes(buf, size, (uint64_t)n) : "-";
}

const char *ig_served_count(const json_t *entry, const char *key, char *buf, size_t size)
{
	const json_t *v = json_object_get(entry, key);

	if (!json_is_integer(v))
		return "-";
	snprintf(buf, size, "%lld", (long long)json_integer_value(v));
	return buf;
}

const char *ig_served_expiry(const json_t *entry, char *buf, size_t size)
{
	const json_t *v = json_object_get(entry, "expires_s");

	if (!v || !ig_served_is_loaded(entry))
		return "-";
	if (json_is_number(v))
		return ig_text_seconds(buf, size, json_number_value(v));
	return json_is_true(json_object_get(entry, "pinned")) ? "pinned" : "never";
}

bool ig_is_model_name(const char *text)
{
	size_t n = strlen(text);

	return n >= 1 && n <= 128 &&
	       strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
			    "abcdefghijklmnopqrstuvwxyz0123456789._:/-") == n;
}
