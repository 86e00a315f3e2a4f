/* chat_request.c: the body of POST /v1/chat/completions.  The role developer is read as system. */
#include "daemon/engine/stream.h"
#include "daemon/protocol/chat/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- messages ------------------------------------------------------------------------ */

struct message {
	const char *at;
	json_t *role, *content, *name, *tool_calls, *reasoning_content, *reasoning, *tool_call_id;
};
#define AT(member) offsetof(struct message, member)

static const struct ig_param message_params[] = {
	{ "role", IG_PARAM_TEXT, AT(role), .required = true },
	{ "content", IG_PARAM_SKIP },
	{ "name", IG_PARAM_TEXT, AT(name) },
	{ NULL },
};

/* With what the SDKs' own objects carry back. */
static const struct ig_param assistant_params[] = {
	{ "tool_calls", IG_PARAM_LIST, AT(tool_calls) },
	{ "annotations", IG_PARAM_LIST },
	{ "reasoning_content", IG_PARAM_TEXT, AT(reasoning_content) },
	{ "reasoning", IG_PARAM_TEXT, AT(reasoning) },
	{ .more = message_params },
	{ NULL },
};

static const struct ig_param tool_params[] = {
	{ "tool_call_id", IG_PARAM_TEXT, AT(tool_call_id), .required = true },
	{ .more = message_params },
	{ NULL },
};

static int read_call(json_t *calls, json_t *v, const char *at, struct ig_api_error *e)
{
	char sub[160];
	json_t *f = json_object_get(v, "function"), *name = json_object_get(f, "name"),
	       *arguments = json_object_get(f, "arguments");

	if (!json_is_object(v))
		return ig_fail_type(e, at, "an object", v);
	const char *type = ig_json_text(v, "type");
	if (type && strcmp(type, "function")) {
		ig_member_name(sub, sizeof sub, at, "type");
		return ig_fail_unsupported(e, sub, "\"function\"");
	}
	ig_member_name(sub, sizeof sub, at, "function.name");
	if (!name)
		return ig_fail_missing(e, sub);
	if (!json_is_string(name))
		return ig_fail_type(e, sub, "a string", name);
	ig_member_name(sub, sizeof sub, at, "function.arguments");
	if (arguments && !json_is_string(arguments) && !json_is_object(arguments))
		return ig_fail_type(e, sub, "a string of JSON", arguments);
	json_t *call =
		ig_tool_call_object(ig_json_text(v, "id"), json_string_value(name),
				    json_string_value(arguments), json_string_length(arguments));
	if (call && json_is_object(arguments) &&
	    json_object_set(json_object_get(call, "function"), "arguments", arguments)) {
		json_decref(call);
		call = NULL;
	}
	return call && !json_array_append_new(calls, call) ? 0 : ig_fail_memory(e);
}

static int read_calls(json_t **calls, const struct message *m, struct ig_api_error *e)
{
	size_t k, n = json_array_size(m->tool_calls);
	char at[96];

	*calls = n ? json_array() : NULL;
	if (n && !*calls)
		return ig_fail_memory(e);
	for (k = 0; k < n; k++) {
		snprintf(at, sizeof at, "%s.tool_calls[%zu]", m->at, k);
		if (read_call(*calls, json_array_get(m->tool_calls, k), at, e) < 0)
			return -1;
	}
	return 0;
}

/* content: that of m; null beside the calls of an assistant. */
static int read_texts(struct ig_request *r, const struct message *m, const char *role,
		      struct ig_api_error *e)
{
	json_t *reasoning = m->reasoning_content ? m->reasoning_content : m->reasoning,
	       *text = NULL, *calls = NULL;
	bool null = !m->content || json_is_null(m->content);
	char at[96];
	int rc;

	ig_member_name(at, sizeof at, m->at, "content");
	if (!m->content && !json_array_size(m->tool_calls))
		return ig_fail_missing(e, at);
	rc = null && json_array_size(m->tool_calls) ?
		     0 :
		     ig_read_content(r, &text, at, m->content, ig_text_types, e);
	if (!rc)
		rc = read_calls(&calls, m, e);
	if (!rc) {
		json_t *message = json_pack("{s:s, s:o, s:O*, s:O*, s:O*}", "role", role, "content",
					    text ? text : json_string(""), "tool_calls", calls,
					    "reasoning_content", reasoning, "name", m->name);
		text = NULL;
		rc = ig_request_add(r, message, e);
	}
	json_decref(text);
	json_decref(calls);
	return rc;
}

static int read_result(struct ig_request *r, const struct message *m, struct ig_api_error *e)
{
	json_t *text;
	char at[96];

	ig_member_name(at, sizeof at, m->at, "content");
	if (!m->content)
		return ig_fail_missing(e, at);
	if (ig_read_content(r, &text, at, m->content, ig_text_types, e) < 0)
		return -1;
	ig_member_name(at, sizeof at, m->at, "tool_call_id");
	return ig_request_add_result(r, m->tool_call_id, text, at, "call", e);
}

static int read_message(struct ig_request *r, const char *at, json_t *v, struct ig_api_error *e)
{
	struct message m = { .at = at, .content = json_object_get(v, "content") };
	const char *role = ig_json_text(v, "role");
	bool is_tool = role && !strcmp(role, "tool"),
	     is_assistant = role && !strcmp(role, "assistant");
	char sub[96];

	if (ig_params_read(r, &m,
			   is_tool	? tool_params :
			   is_assistant ? assistant_params :
					  message_params,
			   at, v, e) < 0)
		return -1;
	if (is_tool)
		return read_result(r, &m, e);
	role = ig_message_role(role);
	if (role)
		return read_texts(r, &m, role, e);
	ig_member_name(sub, sizeof sub, at, "role");
	return ig_fail_value(e, sub, "expected system, developer, user or assistant");
}

int ig_param_messages(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	char at[64];

	if (!json_is_array(v))
		return ig_fail_type(e, name, "a list", v);
	for (size_t i = 0; i < json_array_size(v); i++) {
		snprintf(at, sizeof at, "%s[%zu]", name, i);
		if (read_message(r, at, json_array_get(v, i), e) < 0)
			return -1;
	}
	return json_array_size(v) ? 0 : ig_fail_value(e, name, "expected at least one message");
}

/* ---- parameters ---------------------------------------------------------------------- */

int ig_param_stream_options(struct ig_request *r, const char *name, json_t *v,
			    struct ig_api_error *e)
{
	static const struct ig_param params[] = {
		{ "include_usage", IG_PARAM_BOOL, IG_AT(include_usage) },
		{ "include_obfuscation", IG_PARAM_NOTED, .values = "false" },
		{ NULL },
	};

	return ig_params_read(r, r, params, name, v, e);
}

int ig_param_tools(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	return ig_read_tools(r, name, v, IG_TOOLS_NESTED, e);
}

static int param_tool_choice(struct ig_request *r, const char *name, json_t *v,
			     struct ig_api_error *e)
{
	return ig_read_tool_choice(r, name, v, IG_TOOLS_NESTED, e);
}

/* As OpenRouter spells it, whose clients send it elsewhere, too. */
static int param_reasoning(struct ig_request *r, const char *name, json_t *v,
			   struct ig_api_error *e)
{
	static const struct ig_param params[] = {
		{ "effort", .read = ig_param_effort },
		{ "enabled", IG_PARAM_BOOLEAN },
		{ "exclude", IG_PARAM_NOTED, .values = "false" },
		{ NULL },
	};

	return ig_params_read(r, r, params, name, v, e);
}

/* By either name; none: no reasoning. */
static int set_effort(struct ig_request *r, json_t *root, struct ig_api_error *e)
{
	json_t *effort = json_object_get(root, "reasoning_effort"),
	       *reasoning = json_object_get(root, "reasoning");

	if (!json_is_string(effort))
		effort = json_object_get(reasoning, "effort");
	if (json_is_string(effort) || !json_is_false(json_object_get(reasoning, "enabled")))
		return ig_request_set_effort(r, effort, e);
	effort = json_string("none");
	int rc = effort ? ig_request_set_effort(r, effort, e) : ig_fail_memory(e);
	json_decref(effort);
	return rc;
}

/* What the output may be: {"type": "content", "content": a text, as a message has it}. */
static int param_prediction(struct ig_request *r, const char *name, json_t *v,
			    struct ig_api_error *e)
{
	static const struct ig_param params[] = {
		{ "type", IG_PARAM_ONLY, .values = "\"content\"", .required = true },
		{ "content", IG_PARAM_SKIP, .required = true },
		{ NULL },
	};

	if (ig_params_read(r, r, params, name, v, e) < 0)
		return -1;
	return ig_read_content(r, &r->prediction, "prediction.content",
			       json_object_get(v, "content"), ig_text_types, e);
}

static const struct ig_param table[] = {
	{ "messages", .read = ig_param_messages, .required = true },
	{ "max_tokens", .read = ig_param_max_tokens },
	{ "max_completion_tokens", .read = ig_param_max_tokens },
	{ "n", IG_PARAM_INT, IG_AT(n), 1, IG_MAX_CHOICES },
	{ "logprobs", IG_PARAM_BOOL, IG_AT(logprobs) },
	{ "top_logprobs", IG_PARAM_INT, IG_AT(n_top), 0, IG_MAX_TOP },
	{ "response_format", .read = ig_param_format_nested },
	{ "tools", .read = ig_param_tools },
	{ "tool_choice", .read = param_tool_choice },
	{ "parallel_tool_calls", IG_PARAM_BOOL, IG_AT(parallel_tool_calls) },
	{ "chat_template_kwargs", .read = ig_param_template_vars },
	{ "reasoning_effort", .read = ig_param_effort },
	{ "reasoning", .read = param_reasoning },
	{ "verbosity", IG_PARAM_NOTED, .values = "\"medium\"" },
	{ "prediction", .read = param_prediction },
	{ "stream", IG_PARAM_BOOL, IG_AT(stream) },
	{ "stream_options", .read = ig_param_stream_options },
	{ "metadata", .read = ig_param_metadata },
	{ "store", IG_PARAM_NOTED, .values = "false" }, /* completions can't be fetched later */
	{ "user", IG_PARAM_TEXT },
	{ "safety_identifier", IG_PARAM_TEXT },
	{ "prompt_cache_key", IG_PARAM_TEXT },
	{ .more = ig_cache_params },
	{ .more = ig_normalize_params },
	{ "service_tier", IG_PARAM_NOTED, .values = "\"auto\" or \"default\"" },
	{ "modalities", IG_PARAM_ONLY, .values = "[\"text\"]" },
	/* before there were tools */
	{ "functions", IG_PARAM_ONLY, .values = "[]" },
	{ "function_call", IG_PARAM_ONLY, .values = "\"auto\" or \"none\"" },
	{ .more = ig_sampling_params },
	{ .more = ig_order_params },
	{ NULL },
};

static int check(struct ig_request *r, json_t *root, struct ig_api_error *e)
{
	if (ig_check_stream_options(r, root, e) < 0)
		return -1;
	if (r->n_top && !r->logprobs)
		return ig_fail_value(e, "top_logprobs", "only allowed when 'logprobs' is true");
	if (ig_check_tool_choice(r, "tool_choice", e) < 0 || ig_check_ignore_end(r, e) < 0)
		return -1;
	return set_effort(r, root, e);
}

const struct ig_request_format ig_chat_request = { table, check };
