/* content.c: messages and their contents, as all protocols have them: a role, and text as a
 * string or a list of parts.  They become the objects that chat templates read. */
#include "daemon/protocol/core/params.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const ig_text_types[] = { "text", NULL };

bool ig_is_one_of(const char *s, const char *const *list)
{
	while (*list && strcmp(*list, s))
		list++;
	return *list;
}

struct part {
	const char *at;
	json_t *text;
};

/* Only what clients send back of a response, and what changes nothing: prefixes are cached
 * without cache_control, and there are no citations. */
static const struct ig_param part_params[] = {
	{ "text", IG_PARAM_TEXT, offsetof(struct part, text), .required = true },
	{ "type", IG_PARAM_SKIP },
	{ "annotations", IG_PARAM_LIST },
	{ "logprobs", IG_PARAM_LIST },
	{ "cache_control", IG_PARAM_SKIP },
	{ "citations", IG_PARAM_SKIP },
	{ NULL },
};

/* *text: borrowed; NULL: the part is ignored. */
static int read_part(struct ig_request *r, json_t *v, const char *at, const char *const *types,
		     json_t **text, struct ig_api_error *e)
{
	struct part part = { at, NULL };
	char sub[256];
	const char *type;

	*text = NULL;
	if (ig_read_type(&type, at, v, e) < 0)
		return -1;
	if (!ig_is_one_of(type, types)) {
		ig_member_name(sub, sizeof sub, at, "type");
		return ig_request_ignore(r, sub, type, "only text", e);
	}
	if (ig_params_read(r, &part, part_params, at, v, e) < 0)
		return -1;
	*text = part.text;
	return 0;
}

/* A new string of b's bytes; b is empty then.  NULL without memory. */
static json_t *take_text(struct ig_strbuf *b)
{
	json_t *v = ig_strbuf_ok(b) ? json_stringn_nocheck(b->len ? b->data : "", b->len) : NULL;

	ig_strbuf_finish(b);
	return v;
}

json_t *ig_join_texts(const json_t *parts)
{
	static const char *const keys[] = { "text", "refusal" };
	struct ig_strbuf b = { 0 };
	size_t i;
	json_t *part;

	json_array_foreach((json_t *)parts, i, part) for (size_t k = 0; k < 2; k++)
	{
		const json_t *text = json_object_get(part, keys[k]);
		ig_strbuf_add(&b, json_string_value(text), json_string_length(text));
	}
	return take_text(&b);
}

int ig_read_content(struct ig_request *r, json_t **out, const char *at, json_t *v,
		    const char *const *types, struct ig_api_error *e)
{
	struct ig_strbuf b = { 0 };

	*out = NULL;
	if (json_is_string(v)) {
		*out = json_incref(v);
		return 0;
	}
	if (!json_is_array(v))
		return ig_fail_type(e, at, "a string or a list of parts", v);
	for (size_t i = 0; i < json_array_size(v); i++) {
		char sub[256];
		json_t *text;
		snprintf(sub, sizeof sub, "%s[%zu]", at, i);
		if (read_part(r, json_array_get(v, i), sub, types, &text, e) < 0) {
			ig_strbuf_finish(&b);
			return -1;
		}
		ig_strbuf_add(&b, json_string_value(text), json_string_length(text));
	}
	*out = take_text(&b);
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

/* Templates expect an object; text that is not an object stays a string. */
static json_t *call_arguments(const char *text, size_t len)
{
	const struct ig_json_limits limits = { .allow_nul = true };
	json_t *v;

	if (!len)
		return json_object();
	if (ig_json_read(text, len, &limits, &v, NULL) == -ENOMEM || json_is_object(v))
		return v;
	json_decref(v);
	return json_stringn_nocheck(text, len);
}

json_t *ig_tool_call_object(const char *id, const char *name, const char *arguments, size_t len)
{
	json_t *id_value = id ? json_string(id) : NULL;

	if (id && !id_value)
		return NULL;
	return json_pack("{s:o*, s:s, s:{s:s, s:o}}", "id", id_value, "type", "function",
			 "function", "name", name, "arguments", call_arguments(arguments, len));
}

/* The name of the latest call with this id; borrowed; NULL: none. */
static json_t *name_of_call(const struct ig_request *r, const char *id)
{
	for (size_t i = json_array_size(r->messages); i--;) {
		json_t *calls = json_object_get(json_array_get(r->messages, i), "tool_calls"),
		       *call;
		size_t k;
		json_array_foreach(calls, k, call)
		{
			const char *have = ig_json_text(call, "id");
			if (have && !strcmp(have, id))
				return json_object_get(json_object_get(call, "function"), "name");
		}
	}
	return NULL;
}

int ig_request_add_result(struct ig_request *r, json_t *id, json_t *text, const char *at,
			  const char *what, struct ig_api_error *e)
{
	json_t *name = name_of_call(r, json_string_value(id));

	if (!name) {
		json_decref(text);
		return ig_fail_value(e, at, "no %s before it has this id", what);
	}
	return ig_request_add(r,
			      json_pack("{s:s, s:O, s:O, s:o}", "role", "tool", "tool_call_id", id,
					"name", name, "content", text),
			      e);
}
