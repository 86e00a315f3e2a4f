/*
 * items.c: the items of Responses: what a client may send in input, in one
 * spelling, and how they become the messages that chat templates read.
 *
 * Input, and the output of answers that are continued, take the same way: so a client
 * that sends a conversation whole gets the same prompt as one that continues it by id.
 */
#include "daemon/protocol/responses/items.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const input_types[] = { "input_text", "text", NULL };
static const char *const output_types[] = { "output_text", "text", NULL };
static const char *const result_types[] = { "input_text", "output_text", "text", NULL };

/* ---- items to messages --------------------------------------------------------------- */

static json_t *last_assistant(json_t *messages)
{
	size_t n = json_array_size(messages);
	json_t *m = n ? json_array_get(messages, n - 1) : NULL;
	const char *role = json_string_value(json_object_get(m, "role"));

	return role && !strcmp(role, "assistant") ? m : NULL;
}

/* Only thoughts so far: what is said after them is of the same turn. */
static bool only_reasons(json_t *m)
{
	return m && json_object_get(m, "reasoning_content") && !json_object_get(m, "tool_calls") &&
	       !json_string_length(json_object_get(m, "content"));
}

/* The texts of a list of parts, one after the other; key: where a part has its text. */
static json_t *texts_of(const json_t *parts)
{
	static const char *const keys[] = { "text", "refusal" };
	size_t total = 0, len = 0, i;
	json_t *part;

	json_array_foreach((json_t *)parts, i, part) for (size_t k = 0; k < 2; k++) total +=
		json_string_length(json_object_get(part, keys[k]));
	char *s = malloc(total + 1);
	if (!s)
		return NULL;
	json_array_foreach((json_t *)parts, i, part) for (size_t k = 0; k < 2; k++)
	{
		json_t *text = json_object_get(part, keys[k]);
		if (!text)
			continue;
		memcpy(s + len, json_string_value(text), json_string_length(text));
		len += json_string_length(text);
	}
	json_t *v = json_stringn_nocheck(s, len);
	free(s);
	return v;
}

static int fold_message(json_t *messages, const json_t *item)
{
	const char *role = ig_message_role(json_string_value(json_object_get(item, "role")));
	json_t *text = texts_of(json_object_get(item, "content")), *last = last_assistant(messages);

	if (!strcmp(role, "assistant") && only_reasons(last))
		return json_object_set_new(last, "content", text);
	return json_array_append_new(messages,
				     json_pack("{s:s, s:o}", "role", role, "content", text));
}

/* Thoughts that are only summed up are nothing that the model could read again. */
static int fold_reasoning(json_t *messages, const json_t *item)
{
	json_t *text = texts_of(json_object_get(item, "content")), *last = last_assistant(messages);
	int rc = -1;

	if (!text)
		return -1;
	if (!json_string_length(text)) {
		rc = 0;
	} else if (only_reasons(last)) {
		json_t *parts = json_pack("[{s:O}, {s:O}]", "text",
					  json_object_get(last, "reasoning_content"), "text", text);
		rc = json_object_set_new(last, "reasoning_content", parts ? texts_of(parts) : NULL);
		json_decref(parts);
	} else {
		rc = json_array_append_new(messages,
					   json_pack("{s:s, s:s, s:O}", "role", "assistant",
						     "content", "", "reasoning_content", text));
	}
	json_decref(text);
	return rc;
}

static int fold_call(json_t *messages, const json_t *item, bool custom)
{
	const char *id = json_string_value(json_object_get(item, "call_id")),
		   *name = json_string_value(json_object_get(item, "name"));
	json_t *last = last_assistant(messages), *calls, *call;

	if (custom)
		call = json_pack("{s:s, s:s, s:{s:s, s:{s:O}}}", "id", id, "type", "function",
				 "function", "name", name, "arguments", "input",
				 json_object_get(item, "input"));
	else
		call = ig_tool_call_object(id, name,
					   json_string_value(json_object_get(item, "arguments")));
	if (!call)
		return -1;
	if (!last) {
		last = json_pack("{s:s, s:s}", "role", "assistant", "content", "");
		if (json_array_append_new(messages, last) < 0) {
			json_decref(call);
			return -1;
		}
	}
	calls = json_object_get(last, "tool_calls");
	if (!calls) {
		calls = json_array();
		if (json_object_set_new(last, "tool_calls", calls) < 0) {
			json_decref(call);
			return -1;
		}
	}
	return json_array_append_new(calls, call);
}

static int fold_result(json_t *messages, const json_t *item)
{
	json_t *output = json_object_get(item, "output");
	json_t *text = json_is_string(output) ? json_incref(output) : texts_of(output);

	return json_array_append_new(messages,
				     json_pack("{s:s, s:O, s:o}", "role", "tool", "tool_call_id",
					       json_object_get(item, "call_id"), "content", text));
}

int ig_items_fold(json_t *messages, const json_t *item)
{
	const char *type = json_string_value(json_object_get(item, "type"));

	if (!strcmp(type, "message"))
		return fold_message(messages, item);
	if (!strcmp(type, "reasoning"))
		return fold_reasoning(messages, item);
	if (!strcmp(type, "function_call") || !strcmp(type, "custom_tool_call"))
		return fold_call(messages, item, type[0] == 'c');
	return fold_result(messages, item);
}

/* ---- a client's items, checked, in one spelling ---------------------------------------- */

struct item {
	const char *at; /* "input[3]" */
	json_t *v;
	struct ig_api_error *e;
};

static int fail_key(const struct item *it, const char *key, const char *accepted)
{
	char shown[64], param[160];

	ig_printable(shown, sizeof shown, key);
	ig_member_name(param, sizeof param, it->at, shown);
	return ig_fail_unsupported(it->e, param, accepted);
}

/* Whether every member that is not null is among keys (a space round each). */
static int check_keys(const struct item *it, const char *keys)
{
	const char *key;
	json_t *x;

	json_object_foreach(it->v, key, x)
	{
		char padded[32];
		if (json_is_null(x))
			continue;
		snprintf(padded, sizeof padded, " %s ",
			 strlen(key) < 24 && !strchr(key, ' ') ? key : "?");
		if (!strstr(keys, padded))
			return fail_key(it, key, NULL);
	}
	return 0;
}

/* A member that is a string; NULL: absent, and *failed says whether that or its type is
 * an error. */
static json_t *string_of(const struct item *it, const char *key, bool required, bool *failed)
{
	json_t *x = json_object_get(it->v, key);
	char param[160];

	ig_member_name(param, sizeof param, it->at, key);
	if (!x || json_is_null(x)) {
		if (required) {
			ig_fail_missing(it->e, param);
			*failed = true;
		}
		return NULL;
	}
	if (json_is_string(x))
		return x;
	ig_fail_type(it->e, param, "a string", x);
	*failed = true;
	return NULL;
}

/* {"type", …}: those that are there of the strings with these names (each required that
 * has a "!"); a new object; NULL on failure. */
static json_t *strings_of(const struct item *it, const char *type, const char *const *keys)
{
	json_t *out = json_pack("{s:s}", "type", type);
	bool failed = false;

	for (; out && *keys && !failed; keys++) {
		bool required = **keys == '!';
		const char *key = *keys + required;
		json_t *x = string_of(it, key, required, &failed);
		if (x && json_object_set(out, key, x) < 0) {
			json_decref(out);
			out = NULL;
		}
	}
	if (!out)
		ig_fail_memory(it->e);
	if (!failed)
		return out;
	json_decref(out);
	return NULL;
}

/* Parts in their one spelling: type and text. */
static json_t *parts_of(json_t *content, const char *type)
{
	json_t *list = json_array(), *part = NULL;
	size_t i;

	if (json_is_string(content))
		part = json_pack("{s:s, s:O}", "type", type, "text", content);
	if (json_is_string(content) && json_array_append_new(list, part) < 0)
		goto fail;
	json_array_foreach(content, i, part)
	{
		json_t *refusal = json_object_get(part, "refusal");
		if (json_array_append_new(list,
					  refusal ? json_pack("{s:s, s:O}", "type", "refusal",
							      "refusal", refusal) :
						    json_pack("{s:s, s:O}", "type", type, "text",
							      json_object_get(part, "text"))) < 0)
			goto fail;
	}
	json_array_foreach(list, i, part) if (!strcmp(type, "output_text") &&
					      json_object_get(part, "text") &&
					      json_object_set_new(part, "annotations",
								  json_array()) < 0) goto fail;
	return list;
fail:
	json_decref(list);
	return NULL;
}

/* What a model refused to say is text that it said; the rest is content.c's to judge. */
static int check_content(const struct item *it, json_t *content, bool assistant)
{
	char at[64], param[160];
	json_t *text, *rest = NULL, *part;
	size_t i;

	ig_member_name(at, sizeof at, it->at, "content");
	if (!content || json_is_null(content))
		return ig_fail_missing(it->e, at);
	json_array_foreach(content, i, part)
	{
		const char *type = json_string_value(json_object_get(part, "type"));
		if (!assistant || !type || strcmp(type, "refusal"))
			continue;
		snprintf(param, sizeof param, "%s[%zu].refusal", at, i);
		if (!json_is_string(json_object_get(part, "refusal")) ||
		    json_object_size(part) != 2)
			return ig_fail_value(it->e, param, "expected type and refusal, a string");
		if (!rest && !(rest = ig_json_copy(content)))
			return ig_fail_memory(it->e);
		if (json_array_set_new(rest, i,
				       json_pack("{s:s, s:s}", "type", "output_text", "text", "")) <
		    0) {
			json_decref(rest);
			return ig_fail_memory(it->e);
		}
	}
	int rc = ig_read_content(&text, at, rest ? rest : content,
				 assistant ? output_types : input_types, it->e);
	json_decref(rest);
	if (!rc)
		json_decref(text);
	return rc;
}

static json_t *read_message(const struct item *it)
{
	static const char *const keys[] = { "!role", "id", "status", "phase", NULL };
	json_t *out, *content = json_object_get(it->v, "content");
	char param[160];

	if (check_keys(it, " type role content id status phase ") < 0)
		return NULL;
	out = strings_of(it, "message", keys);
	if (!out)
		return NULL;
	const char *role = ig_message_role(json_string_value(json_object_get(out, "role")));
	if (!role) {
		ig_member_name(param, sizeof param, it->at, "role");
		ig_fail_value(it->e, param, "expected system, developer, user or assistant");
		goto fail;
	}
	bool assistant = !strcmp(role, "assistant");
	if (check_content(it, content, assistant) < 0)
		goto fail;
	if (json_object_set_new(out, "content",
				parts_of(content, assistant ? "output_text" : "input_text")) < 0 ||
	    (!json_object_get(out, "status") &&
	     json_object_set_new(out, "status", json_string("completed")) < 0)) {
		ig_fail_memory(it->e);
		goto fail;
	}
	return out;
fail:
	json_decref(out);
	return NULL;
}

static int check_texts(const struct item *it, const char *key, const char *const *types,
		       json_t **list)
{
	char at[64], param[160];
	size_t i;
	json_t *part;

	*list = json_object_get(it->v, key);
	if (json_is_null(*list))
		*list = NULL;
	ig_member_name(at, sizeof at, it->at, key);
	if (*list && !json_is_array(*list))
		return ig_fail_type(it->e, at, "a list", *list);
	json_array_foreach(*list, i, part)
	{
		const char *type = json_string_value(json_object_get(part, "type"));
		const char *const *t = types;
		while (type && *t && strcmp(*t, type))
			t++;
		if (type && *t && json_object_size(part) == 2 &&
		    json_is_string(json_object_get(part, "text")))
			continue;
		snprintf(param, sizeof param, "%s[%zu]", at, i);
		return ig_fail_value(it->e, param, "expected {\"type\": \"%s\", \"text\": …}",
				     *types);
	}
	return 0;
}

static json_t *read_reasoning(const struct item *it)
{
	static const char *const keys[] = { "id", "status", NULL };
	static const char *const content_types[] = { "reasoning_text", "text", NULL };
	static const char *const summary_types[] = { "summary_text", NULL };
	json_t *content, *summary, *out, *part, *list;
	size_t i;

	if (check_keys(it, " type id status content summary ") < 0 ||
	    check_texts(it, "content", content_types, &content) < 0 ||
	    check_texts(it, "summary", summary_types, &summary) < 0)
		return NULL;
	out = strings_of(it, "reasoning", keys);
	if (!out)
		return NULL;
	list = json_array();
	json_array_foreach(
		content, i,
		part) if (json_array_append_new(list, json_pack("{s:s, s:O}", "type",
								"reasoning_text", "text",
								json_object_get(part, "text"))) < 0)
	{
		json_decref(list);
		list = NULL;
		break;
	}
	if (!json_object_set_new(out, "content", list) &&
	    !json_object_set_new(out, "summary", summary ? json_incref(summary) : json_array()))
		return out;
	json_decref(out);
	ig_fail_memory(it->e);
	return NULL;
}

static json_t *read_call(const struct item *it, bool custom)
{
	static const char *const keys[] = {
		"!call_id", "!name", "!arguments", "id", "status", NULL
	};
	static const char *const custom_keys[] = { "!call_id", "!name",	 "!input",
						   "id",       "status", NULL };

	if (check_keys(it, custom ? " type call_id name input id status " :
				    " type call_id name arguments id status ") < 0)
		return NULL;
	json_t *out = strings_of(it, custom ? "custom_tool_call" : "function_call",
				 custom ? custom_keys : keys);
	if (!out || json_object_get(out, "status") ||
	    !json_object_set_new(out, "status", json_string("completed")))
		return out;
	json_decref(out);
	ig_fail_memory(it->e);
	return NULL;
}

static json_t *read_result(const struct item *it, bool custom)
{
	static const char *const keys[] = { "!call_id", "id", "status", NULL };
	json_t *output = json_object_get(it->v, "output"), *text;
	char at[64];

	if (check_keys(it, " type call_id output id status ") < 0)
		return NULL;
	ig_member_name(at, sizeof at, it->at, "output");
	if (!output || json_is_null(output)) {
		ig_fail_missing(it->e, at);
		return NULL;
	}
	if (ig_read_content(&text, at, output, result_types, it->e) < 0)
		return NULL;
	json_decref(text);
	json_t *out =
		strings_of(it, custom ? "custom_tool_call_output" : "function_call_output", keys);
	if (!out)
		return NULL;
	if (!json_object_set_new(out, "output",
				 json_is_string(output) ? json_incref(output) :
							  parts_of(output, "input_text")) &&
	    (json_object_get(out, "status") ||
	     !json_object_set_new(out, "status", json_string("completed"))))
		return out;
	json_decref(out);
	ig_fail_memory(it->e);
	return NULL;
}

static json_t *read_item(const struct item *it)
{
	json_t *type = json_object_get(it->v, "type");
	const char *s = type && !json_is_null(type) ? json_string_value(type) : "message";
	char param[96], shown[48];

	if (!json_is_object(it->v)) {
		ig_fail_type(it->e, it->at, "an object", it->v);
		return NULL;
	}
	ig_member_name(param, sizeof param, it->at, "type");
	if (!s) {
		ig_fail_type(it->e, param, "a string", type);
		return NULL;
	}
	if (!strcmp(s, "message"))
		return read_message(it);
	if (!strcmp(s, "reasoning"))
		return read_reasoning(it);
	if (!strcmp(s, "function_call"))
		return read_call(it, false);
	if (!strcmp(s, "custom_tool_call"))
		return read_call(it, true);
	if (!strcmp(s, "function_call_output"))
		return read_result(it, false);
	if (!strcmp(s, "custom_tool_call_output"))
		return read_result(it, true);
	ig_printable(shown, sizeof shown, s);
	ig_api_fail(
		it->e, 400, "unsupported_parameter", param,
		"Unsupported item: '%s' is '%s'; this server has message, reasoning, function_call, "
		"function_call_output, custom_tool_call and custom_tool_call_output.",
		param, shown);
	return NULL;
}

static int add_item(struct ig_request *r, json_t *item, struct ig_api_error *e)
{
	if (!item)
		return -1;
	int rc = ig_items_fold(r->messages, item);
	if (json_array_append_new(r->items, item) < 0)
		rc = -1;
	return rc < 0 ? ig_fail_memory(e) : 0;
}

int ig_items_read(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	size_t i;
	json_t *x;

	if (!json_is_string(v) && !json_is_array(v))
		return ig_fail_type(e, name, "a string or a list of items", v);
	r->messages = json_array();
	r->items = json_array();
	if (!r->messages || !r->items)
		return ig_fail_memory(e);
	if (json_is_string(v)) {
		x = json_pack("{s:s, s:s, s:s, s:[{s:s, s:O}]}", "type", "message", "role", "user",
			      "status", "completed", "content", "type", "input_text", "text", v);
		return x ? add_item(r, x, e) : ig_fail_memory(e);
	}
	json_array_foreach(v, i, x)
	{
		char at[48];
		struct item it = { at, x, e };
		snprintf(at, sizeof at, "%s[%zu]", name, i);
		if (add_item(r, read_item(&it), e) < 0)
			return -1;
	}
	return 0;
}

/* ---- results and their calls ----------------------------------------------------------- */

static int note_calls(json_t *names, const json_t *messages)
{
	size_t i, k;
	json_t *m, *call;

	json_array_foreach((json_t *)messages, i, m)
		json_array_foreach(json_object_get(m, "tool_calls"), k, call)
	{
		const char *id = json_string_value(json_object_get(call, "id"));
		if (id &&
		    json_object_set(names, id,
				    json_object_get(json_object_get(call, "function"), "name")) < 0)
			return -1;
	}
	return 0;
}

int ig_items_link(struct ig_request *r, struct ig_api_error *e)
{
	json_t *names = NULL, *m;
	int rc = 0;
	size_t i;

	json_array_foreach(r->messages, i, m)
	{
		json_t *id = json_object_get(m, "tool_call_id"), *name;
		if (!id)
			continue;
		if (!names) {
			names = json_object();
			if (!names || note_calls(names, r->history) < 0 ||
			    note_calls(names, r->messages) < 0) {
				rc = ig_fail_memory(e);
				break;
			}
		}
		name = json_object_get(names, json_string_value(id));
		if (!name) {
			char shown[80];
			ig_printable(shown, sizeof shown, json_string_value(id));
			rc = ig_api_fail(e, 400, "invalid_value", "input",
					 "No tool call is found for the output with call_id '%s'.",
					 shown);
			break;
		}
		if (json_object_set(m, "name", name) < 0) {
			rc = ig_fail_memory(e);
			break;
		}
	}
	json_decref(names);
	return rc;
}
