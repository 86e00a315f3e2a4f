/* served.c: see served.h. */
#include "cli/served.h"

#include <errno.h>
#include <string.h>

#include "cli/http_client.h"

#define TIMEOUT_MS 3000

json_t *ig_served_list(const struct ig_endpoint *e, struct ig_error *err)
{
	json_t *root = NULL, *list;
	long http;

	if (ig_http_get_json(e, "/v1/models", TIMEOUT_MS, &root, &http, err))
		return NULL;
	list = json_object_get(root, "data");
	if (json_is_array(list))
		json_incref(list);
	else
		list = NULL;
	json_decref(root);
	if (!list)
		ig_fail(err, -EPROTO, "%s/v1/models: not the list that was expected", e->url);
	return list;
}

const char *ig_served_name(const json_t *list, size_t i)
{
	const char *s = json_string_value(json_object_get(json_array_get(list, i), "id"));

	return s ? s : "?";
}

bool ig_served_has(const json_t *list, const char *name)
{
	for (size_t i = 0; i < json_array_size(list); i++)
		if (!strcmp(ig_served_name(list, i), name))
			return true;
	return false;
}

bool ig_served_is_name(const char *text)
{
	size_t n = strlen(text);

	return n >= 1 && n <= 128 && strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
					    "abcdefghijklmnopqrstuvwxyz0123456789._:/-") == n;
}
