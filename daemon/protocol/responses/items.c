/*
 * items.c: the items of Responses: what a client may send in input, and how they become the
 * messages that chat templates read.  The output of a response that is continued becomes messages
 * in the same way, so that sending a whole conversation and continuing it by id give the same
 * prompt.
 */
#include "daemon/protocol/responses/items.h"
#include "daemon/protocol/responses/namespaces.h"

#include <stddef.h>
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
	const char *role = ig_json_text(m, "role");

	return role && !strcmp(role, "assistant") ? m : NULL;
}

/* Reasoning alone so far: the text after it belongs to the same turn. */
static bool only_reasons(json_t *m)
{
	return m && json_object_get(m, "reasoning_content") && !json_object_get(m, "tool_calls") &&
	       !json_string_length(json_object_get(m, "content"));
}

static int fold_message(json_t *messages, const json_t *item)
{
	const char *role = ig_message_role(json_string_value(json_object_get(item, "role")));
	json_t *text = ig_join_texts(json_object_get(item, "content")),
	       *last = last_assistant(messages);

	if (!strcmp(role, "assistant") && only_reasons(last))
		return json_object_set_new(last, "content", text);
	return json_array_append_new(messages,
				     json_pack("{s:s, s:o}", "role", role, "content", text));
}

/* A summary alone is not put into the prompt. */
static int fold_reasoning(json_t *messages, const json_t *item)
{
	json_t *text = ig_join_texts(json_object_get(item, "content")),
	       *last = last_assistant(messages);
	int rc = -1;

	if (!text)
		return -1;
	if (!json_string_length(text)) {
		rc = 0;
	} else if (only_reasons(last)) {
		json_t *parts = json_pack("[{s:O}, {s:O}]", "text",
					  json_object_get(last, "reasoning_content"), "text", text);
		rc = json_object_set_new(last, "reasoning_content",
					 parts ? ig_join_texts(parts) : NULL);
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
	const char *id = ig_json_text(item, "call_id"), *name = ig_json_text(item, "name"),
		   *space = ig_json_text(item, "namespace");
	char joined[IG_MAX_TOOL_NAME * 2 + 3];
	const json_t *arguments = json_object_get(item, "arguments");
	json_t *last = last_assistant(messages), *calls, *call;

	if (space) {
		ig_namespace_join(joined, sizeof joined, space, name);
		name = joined;
	}
	if (!last) {
		last = json_pack("{s:s, s:s}", "role", "assistant", "content", "");
		if (json_array_append_new(messages, last) < 0)
			return -1;
	}
	calls = json_object_get(last, "tool_calls");
	if (!calls) {
		calls = json_array();
		if (json_object_set_new(last, "tool_calls", calls) < 0)
			return -1;
	}
	call = custom ? json_pack("{s:s, s:s, s:{s:s, s:{s:O}}}", "id", id, "type", "function",
				  "function", "name", name, "arguments", "input",
				  json_object_get(item, "input")) :
			ig_tool_call_object(id, name, json_string_value(arguments),
					    json_string_length(arguments));
	return json_array_append_new(calls, call);
}

static int fold_result(json_t *messages, const json_t *item)
{
	json_t *output = json_object_get(item, "output");
	json_t *text = json_is_string(output) ? json_incref(output) : ig_join_texts(output);

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

/* ---- items of a client, checked, in one spelling ---------------------------------------- */

struct item {
	const char *at; /* "input[3]" */
	json_t *v;
	json_t *id, *status, *role, *phase, *call_id, *space, *name, *text;
};
#define AT(member) offsetof(struct item, member)

static const struct ig_param item_params[] = {
	{ "type", IG_PARAM_SKIP },
	{ "id", IG_PARAM_TEXT, AT(id) },
	{ "status", IG_PARAM_TEXT, AT(status) },
	{ NULL },
};

static const struct ig_param message_params[] = {
	{ .more = item_params },
	{ "role", IG_PARAM_TEXT, AT(role), .required = true },
	{ "content", IG_PARAM_SKIP },
	{ "phase", IG_PARAM_TEXT, AT(phase) },
	{ NULL },
};

static const struct ig_param reasoning_params[] = {
	{ .more = item_params },
	{ "content", IG_PARAM_SKIP },
	{ "summary", IG_PARAM_SKIP },
	{ NULL },
};

static const struct ig_param named_params[] = {
	{ .more = item_params },
	{ "call_id", IG_PARAM_TEXT, AT(call_id), .required = true },
	{ "namespace", IG_PARAM_TEXT, AT(space) },
	{ "name", IG_PARAM_TEXT, AT(name), .required = true },
	{ NULL },
};

static const struct ig_param call_params[] = {
	{ .more = named_params },
	{ "arguments", IG_PARAM_TEXT, AT(text), .required = true },
	{ NULL },
};

static const struct ig_param custom_call_params[] = {
	{ .more = named_params },
	{ "input", IG_PARAM_TEXT, AT(text), .required = true },
	{ NULL },
};

static const struct ig_param result_params[] = {
	{ .more = item_params },
	{ "call_id", IG_PARAM_TEXT, AT(call_id), .required = true },
	{ "output", IG_PARAM_SKIP },
	{ NULL },
};

static const char *status_of(const struct item *it)
{
	return it->status ? json_string_value(it->status) : "completed";
}

/* Parts of one of these types in one spelling: type and text; and refusals. */
static json_t *parts_of(json_t *content, const char *type, const char *const *types)
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
		if (!refusal && !ig_is_one_of(ig_json_text(part, "type"), types))
			continue;
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

/* A refusal is text that the model has generated; ig_read_content checks the other parts. */
static int check_content(struct ig_request *r, const struct item *it, json_t *content,
			 bool assistant, struct ig_api_error *e)
{
	char at[64], sub[160];
	json_t *text = NULL, *rest = NULL, *part;
	size_t i;

	ig_member_name(at, sizeof at, it->at, "content");
	if (!content || json_is_null(content))
		return ig_fail_missing(e, at);
	json_array_foreach(content, i, part)
	{
		const char *type = ig_json_text(part, "type");
		if (!assistant || !type || strcmp(type, "refusal"))
			continue;
		snprintf(sub, sizeof sub, "%s[%zu].refusal", at, i);
		if (!ig_json_text(part, "refusal") || json_object_size(part) != 2) {
			json_decref(rest);
			return ig_fail_value(e, sub, "expected type and refusal, a string");
		}
		if (!rest)
			rest = ig_json_copy(content);
		part = json_pack("{s:s, s:s}", "type", "output_text", "text", "");
		if (json_array_set_new(rest, i, part) < 0) {
			json_decref(rest);
			return ig_fail_memory(e);
		}
	}
	int rc = ig_read_content(r, &text, at, rest ? rest : content,
				 assistant ? output_types : input_types, e);
	json_decref(rest);
	json_decref(text);
	return rc;
}

/* The makers of items: NULL with *e, or without an error: out of memory. */
static json_t *make_message(struct ig_request *r, const struct item *it, const char *type,
			    struct ig_api_error *e)
{
	json_t *content = json_object_get(it->v, "content");
	const char *role = ig_message_role(json_string_value(it->role));
	char at[160];

	if (!role) {
		ig_member_name(at, sizeof at, it->at, "role");
		ig_fail_value(e, at, "expected system, developer, user or assistant");
		return NULL;
	}
	bool assistant = !strcmp(role, "assistant");
	if (check_content(r, it, content, assistant, e) < 0)
		return NULL;
	return json_pack("{s:s, s:O, s:O*, s:s, s:O*, s:o}", "type", type, "role", it->role, "id",
			 it->id, "status", status_of(it), "phase", it->phase, "content",
			 assistant ? parts_of(content, "output_text", output_types) :
				     parts_of(content, "input_text", input_types));
}

static int check_texts(const struct item *it, const char *key, const char *const *types,
		       json_t **list, struct ig_api_error *e)
{
	char at[64], sub[160];
	size_t i;
	json_t *part;

	*list = json_object_get(it->v, key);
	if (json_is_null(*list))
		*list = NULL;
	ig_member_name(at, sizeof at, it->at, key);
	if (*list && !json_is_array(*list))
		return ig_fail_type(e, at, "a list", *list);
	json_array_foreach(*list, i, part)
	{
		const char *type = ig_json_text(part, "type");
		if (type && ig_is_one_of(type, types) && json_object_size(part) == 2 &&
		    ig_json_text(part, "text"))
			continue;
		snprintf(sub, sizeof sub, "%s[%zu]", at, i);
		return ig_fail_value(e, sub, "expected {\"type\": \"%s\", \"text\": …}", *types);
	}
	return 0;
}

static json_t *make_reasoning(struct ig_request *r, const struct item *it, const char *type,
			      struct ig_api_error *e)
{
	static const char *const content_types[] = { "reasoning_text", "text", NULL };
	static const char *const summary_types[] = { "summary_text", NULL };
	json_t *content, *summary;

	if (check_texts(it, "content", content_types, &content, e) < 0 ||
	    check_texts(it, "summary", summary_types, &summary, e) < 0)
		return NULL;
	return json_pack("{s:s, s:O*, s:O*, s:o, s:o}", "type", type, "id", it->id, "status",
			 it->status, "content", parts_of(content, "reasoning_text", content_types),
			 "summary", summary ? json_incref(summary) : json_array());
}

static json_t *make_call(struct ig_request *r, const struct item *it, const char *type,
			 struct ig_api_error *e)
{
	return json_pack("{s:s, s:O, s:O*, s:O, s:O, s:O*, s:s}", "type", type, "call_id",
			 it->call_id, "namespace", it->space, "name", it->name,
			 type[0] == 'c' ? "input" : "arguments", it->text, "id", it->id, "status",
			 status_of(it));
}

static json_t *make_result(struct ig_request *r, const struct item *it, const char *type,
			   struct ig_api_error *e)
{
	json_t *output = json_object_get(it->v, "output"), *text = NULL;
	char at[64];

	ig_member_name(at, sizeof at, it->at, "output");
	if (!output || json_is_null(output)) {
		ig_fail_missing(e, at);
		return NULL;
	}
	if (ig_read_content(r, &text, at, output, result_types, e) < 0)
		return NULL;
	json_decref(text);
	return json_pack("{s:s, s:O, s:O*, s:o, s:s}", "type", type, "call_id", it->call_id, "id",
			 it->id, "output",
			 json_is_string(output) ? json_incref(output) :
						  parts_of(output, "input_text", result_types),
			 "status", status_of(it));
}

/* *out: NULL where the item is ignored. */
static int read_item(struct ig_request *r, json_t **out, const char *at, json_t *v,
		     struct ig_api_error *e)
{
	static const struct {
		const char *type;
		const struct ig_param *params;
		json_t *(*make)(struct ig_request *r, const struct item *it, const char *type,
				struct ig_api_error *e);
	} kinds[] = {
		{ "message", message_params, make_message },
		{ "reasoning", reasoning_params, make_reasoning },
		{ "function_call", call_params, make_call },
		{ "custom_tool_call", custom_call_params, make_call },
		{ "function_call_output", result_params, make_result },
		{ "custom_tool_call_output", result_params, make_result },
	};
	struct item it = { .at = at, .v = v };
	const json_t *type_value = json_object_get(v, "type");
	const char *type = "message";
	char param[96];

	*out = NULL;
	if (!json_is_object(v))
		return ig_fail_type(e, at, "an object", v);
	if (type_value && !json_is_null(type_value) && ig_read_type(&type, at, v, e) < 0)
		return -1;
	for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
		if (strcmp(kinds[i].type, type))
			continue;
		if (ig_params_read(r, &it, kinds[i].params, at, v, e) < 0)
			return -1;
		*out = kinds[i].make(r, &it, kinds[i].type, e);
		return *out ? 0 : e->status ? -1 : ig_fail_memory(e);
	}
	ig_member_name(param, sizeof param, at, "type");
	/* It stands for an item that nobody has here. */
	if (!strcmp(type, "item_reference"))
		return ig_fail_unsupported(e, param, "the type of an item itself");
	return ig_request_ignore(r, param, type,
				 "message, reasoning, function_call, function_call_output, "
				 "custom_tool_call and custom_tool_call_output",
				 e);
}

static int add_item(struct ig_request *r, json_t *item, struct ig_api_error *e)
{
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
		json_t *item;
		snprintf(at, sizeof at, "%s[%zu]", name, i);
		if (read_item(r, &item, at, x, e) < 0 || (item && add_item(r, item, e) < 0))
			return -1;
	}
	return 0;
}

/* ---- results and their calls ----------------------------------------------------------- */

/* Add the names of all tool calls, by id. */
static int add_names(json_t *names, const json_t *messages)
{
	size_t i, k;
	json_t *m, *call;

	json_array_foreach((json_t *)messages, i, m)
		json_array_foreach(json_object_get(m, "tool_calls"), k, call)
	{
		const char *id = ig_json_text(call, "id");
		json_t *name = json_object_get(json_object_get(call, "function"), "name");
		if (id && json_object_set(names, id, name) < 0)
			return -1;
	}
	return 0;
}

static int link_result(json_t *names, json_t *m, struct ig_api_error *e)
{
	const char *id = ig_json_text(m, "tool_call_id");
	json_t *name = id ? json_object_get(names, id) : NULL;
	char shown[80];

	if (!id)
		return 0;
	if (name)
		return json_object_set(m, "name", name) < 0 ? ig_fail_memory(e) : 0;
	ig_printable(shown, sizeof shown, id);
	return ig_api_fail(e, 400, "invalid_value", "input",
			   "No tool call is found for the output with call_id '%s'.", shown);
}

int ig_items_link(struct ig_request *r, struct ig_api_error *e)
{
	json_t *names = json_object(), *m;
	int rc = 0;
	size_t i;

	if (add_names(names, r->history) < 0 || add_names(names, r->messages) < 0 || !names)
		rc = ig_fail_memory(e);
	for (i = 0; !rc && (m = json_array_get(r->messages, i)); i++)
		rc = link_result(names, m, e);
	json_decref(names);
	return rc;
}
