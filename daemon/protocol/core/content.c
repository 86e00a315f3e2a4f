/*
 * content.c: messages and their contents, as every protocol has them: a role, and text
 * as a string or as a list of parts.  They become the objects that chat templates read.
 */
#include "daemon/protocol/core/params.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ig_member_name(char *out, size_t cap, const char *param, const char *name)
{
	int n = snprintf(out, cap, "%s.%s", param, name);

	if (n < 0 || (size_t)n >= cap)
		memcpy(out + cap - 4, "...", 4);
}

/* Only what a finished answer carries back and what changes nothing. */
static int check_part(json_t *part, const char *param, const char *const *types, json_t **text,
		      struct ig_api_error *e)
{
	char sub[256];
	const char *key;
	json_t *v;

	if (!json_is_object(part))
		return ig_fail_type(e, param, "an object", part);
	json_t *type = json_object_get(part, "type");
	ig_member_name(sub, sizeof sub, param, "type");
	if (!type)
		return ig_fail_missing(e, sub);
	if (!json_is_string(type))
		return ig_fail_type(e, sub, "a string", type);
	const char *const *t = types;
	while (*t && strcmp(*t, json_string_value(type)))
		t++;
	if (!*t) {
		char shown[48];
		ig_printable(shown, sizeof shown, json_string_value(type));
		return ig_api_fail(e, 400, "unsupported_parameter", sub,
				   "Unsupported content: '%s' is '%s'; only text is supported.",
				   sub, shown);
	}
	*text = NULL;
	json_object_foreach(part, key, v)
	{
		char shown[64];
		ig_printable(shown, sizeof shown, key);
		ig_member_name(sub, sizeof sub, param, shown);
		if (json_is_null(v) || !strcmp(key, "type"))
			continue;
		if (!strcmp(key, "text")) {
			if (!json_is_string(v))
				return ig_fail_type(e, sub, "a string", v);
			*text = v;
		} else if (!strcmp(key, "annotations") || !strcmp(key, "logprobs")) {
			if (!json_is_array(v))
				return ig_fail_type(e, sub, "a list", v);
		} else if (!strcmp(key, "cache_control") || !strcmp(key, "citations")) {
			/* Prefixes are found again without being told; there are no citations. */
			continue;
		} else {
			return ig_fail_unsupported(e, sub, NULL);
		}
	}
	ig_member_name(sub, sizeof sub, param, "text");
	return *text ? 0 : ig_fail_missing(e, sub);
}

int ig_read_content(json_t **out, const char *param, json_t *v, const char *const *types,
		    struct ig_api_error *e)
{
	size_t total = 0, len = 0;

	*out = NULL;
	if (json_is_string(v)) {
		*out = json_incref(v);
		return 0;
	}
	if (!json_is_array(v))
		return ig_fail_type(e, param, "a string or a list of parts", v);
	for (size_t i = 0; i < json_array_size(v); i++) {
		char sub[256];
		json_t *text = NULL;
		snprintf(sub, sizeof sub, "%s[%zu]", param, i);
		if (check_part(json_array_get(v, i), sub, types, &text, e) < 0)
			return -1;
		total += json_string_length(text); /* no more than the body has */
	}
	char *s = malloc(total + 1);
	if (!s)
		return ig_fail_memory(e);
	for (size_t i = 0; i < json_array_size(v); i++) {
		json_t *text = json_object_get(json_array_get(v, i), "text");
		memcpy(s + len, json_string_value(text), json_string_length(text));
		len += json_string_length(text);
	}
	*out = json_stringn_nocheck(s, len);
	free(s);
	return *out ? 0 : ig_fail_memory(e);
}

int ig_request_add(struct ig_request *r, json_t *message, struct ig_api_error *e)
{
	if (!r->messages)
		r->messages = json_array();
	if (!message || !r->messages) {
		json_decref(message);
		return ig_fail_memory(e);
	}
	return json_array_append_new(r->messages, message) < 0 ? ig_fail_memory(e) : 0;
}

/* The template's name for a role; NULL for one that there is not. */
const char *ig_message_role(const char *role)
{
	if (!strcmp(role, "system") || !strcmp(role, "developer"))
		return "system";
	if (!strcmp(role, "user"))
		return "user";
	if (!strcmp(role, "assistant"))
		return "assistant";
	return NULL;
}

int ig_request_read_message(struct ig_request *r, const char *list, size_t i, json_t *m,
			    const char *const *types, const char *const *assistant_types,
			    struct ig_api_error *e)
{
	json_t *role = json_object_get(m, "role"), *content = json_object_get(m, "content"), *text;
	char param[64];

	snprintf(param, sizeof param, "%s[%zu].role", list, i);
	if (!role)
		return ig_fail_missing(e, param);
	if (!json_is_string(role))
		return ig_fail_type(e, param, "a string", role);
	const char *name = ig_message_role(json_string_value(role));
	if (!name)
		return ig_fail_value(e, param, "expected system, developer, user or assistant");
	snprintf(param, sizeof param, "%s[%zu].content", list, i);
	if (!content)
		return ig_fail_missing(e, param);
	if (ig_read_content(&text, param, content,
			    strcmp(name, "assistant") ? types : assistant_types, e) < 0)
		return -1;
	return ig_request_add(r, json_pack("{s:s, s:o}", "role", name, "content", text), e);
}

/* As templates want them: an object, where the text is one; else the text. */
static json_t *call_arguments(const char *text)
{
	json_t *v;

	if (!text[0])
		return json_object();
	if (ig_json_read(text, strlen(text), NULL, &v, NULL) == -ENOMEM || json_is_object(v))
		return v;
	json_decref(v);
	return json_string(text);
}

json_t *ig_tool_call_object(const char *id, const char *name, const char *arguments)
{
	json_t *id_value = id ? json_string(id) : NULL;

	if (id && !id_value)
		return NULL;
	return json_pack("{s:o*, s:s, s:{s:s, s:o}}", "id", id_value, "type", "function",
			 "function", "name", name, "arguments", call_arguments(arguments));
}

json_t *ig_request_called(const struct ig_request *r, const char *id)
{
	for (size_t i = json_array_size(r->messages); i--;) {
		json_t *calls = json_object_get(json_array_get(r->messages, i), "tool_calls"),
		       *call;
		size_t k;
		json_array_foreach(calls, k, call)
		{
			const char *have = json_string_value(json_object_get(call, "id"));
			if (have && !strcmp(have, id))
				return json_object_get(json_object_get(call, "function"), "name");
		}
	}
	return NULL;
}
