/*
 * chat_request.c: the body of POST /v1/chat/completions.
 *
 * One table of parameters; the messages become the template's, developer is
 * taken for system.
 */
#include "daemon/engine/stream.h"
#include "daemon/protocol/chat/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const text_types[] = { "text", NULL };

/* ---- messages ------------------------------------------------------------------------ */

/* Members of a message by its role; what the SDKs' own objects carry back is fine. */
static int check_message_key(const char *role, const char *key, const char *param, json_t *v,
			     struct ig_api_error *e)
{
	bool assistant = !strcmp(role, "assistant"), tool = !strcmp(role, "tool");

	if (json_is_null(v) || !strcmp(key, "role") || !strcmp(key, "content"))
		return 0;
	if (assistant && (!strcmp(key, "tool_calls") || !strcmp(key, "annotations")))
		return json_is_array(v) ? 0 : ig_fail_type(e, param, "a list", v);
	if ((tool && !strcmp(key, "tool_call_id")) || !strcmp(key, "name") ||
	    (assistant && (!strcmp(key, "reasoning_content") || !strcmp(key, "reasoning"))))
		return json_is_string(v) ? 0 : ig_fail_type(e, param, "a string", v);
	return ig_fail_unsupported(e, param, NULL);
}

static int read_call(json_t *calls, json_t *v, const char *param, struct ig_api_error *e)
{
	char sub[160];
	json_t *f = json_object_get(v, "function"), *name = json_object_get(f, "name"),
	       *arguments = json_object_get(f, "arguments");

	if (!json_is_object(v))
		return ig_fail_type(e, param, "an object", v);
	const char *type = json_string_value(json_object_get(v, "type"));
	if (type && strcmp(type, "function")) {
		snprintf(sub, sizeof sub, "%s.type", param);
		return ig_fail_unsupported(e, sub, "\"function\"");
	}
	snprintf(sub, sizeof sub, "%s.function.name", param);
	if (!name)
		return ig_fail_missing(e, sub);
	if (!json_is_string(name))
		return ig_fail_type(e, sub, "a string", name);
	snprintf(sub, sizeof sub, "%s.function.arguments", param);
	if (arguments && !json_is_string(arguments) && !json_is_object(arguments))
		return ig_fail_type(e, sub, "a string of JSON", arguments);
	json_t *call = ig_tool_call_object(
		ig_json_text(v, "id"), json_string_value(name),
		arguments && json_is_string(arguments) ? json_string_value(arguments) : "");
	if (call && json_is_object(arguments) &&
	    json_object_set(json_object_get(call, "function"), "arguments", arguments)) {
		json_decref(call);
		call = NULL;
	}
	return call && !json_array_append_new(calls, call) ? 0 : ig_fail_memory(e);
}

/* An assistant's message: content may be null beside calls. */
static int read_assistant(struct ig_request *r, size_t i, json_t *m, struct ig_api_error *e)
{
	json_t *content = json_object_get(m, "content"), *list = json_object_get(m, "tool_calls"),
	       *reasoning = json_object_get(m, "reasoning_content"), *text = NULL, *calls = NULL;
	char param[96];

	if (!json_is_string(reasoning))
		reasoning = json_object_get(m, "reasoning");
	snprintf(param, sizeof param, "messages[%zu].content", i);
	if (content && !json_is_null(content)) {
		if (ig_read_content(&text, param, content, text_types, e) < 0)
			return -1;
	} else if (!json_array_size(list)) {
		return content ? ig_fail_type(e, param, "a string or a list of parts", content) :
				 ig_fail_missing(e, param);
	}
	if (json_array_size(list)) {
		calls = json_array();
		for (size_t k = 0; calls && k < json_array_size(list); k++) {
			snprintf(param, sizeof param, "messages[%zu].tool_calls[%zu]", i, k);
			if (!read_call(calls, json_array_get(list, k), param, e))
				continue;
			json_decref(text);
			json_decref(calls);
			return -1;
		}
	}
	json_t *message = json_pack("{s:s, s:o}", "role", "assistant", "content",
				    text ? text : json_string(""));
	if (message && json_array_size(list) && json_object_set(message, "tool_calls", calls)) {
		json_decref(message);
		message = NULL;
	}
	json_decref(calls);
	if (message && json_is_string(reasoning) &&
	    json_object_set(message, "reasoning_content", reasoning)) {
		json_decref(message);
		message = NULL;
	}
	return ig_request_add(r, message, e);
}

static int read_result(struct ig_request *r, size_t i, json_t *m, struct ig_api_error *e)
{
	json_t *id = json_object_get(m, "tool_call_id"), *content = json_object_get(m, "content"),
	       *text;
	char param[96];

	snprintf(param, sizeof param, "messages[%zu].tool_call_id", i);
	if (!json_is_string(id))
		return id ? ig_fail_type(e, param, "a string", id) : ig_fail_missing(e, param);
	json_t *name = ig_request_called(r, json_string_value(id));
	if (!name)
		return ig_fail_value(e, param, "no call before it has this id");
	snprintf(param, sizeof param, "messages[%zu].content", i);
	if (!content)
		return ig_fail_missing(e, param);
	if (ig_read_content(&text, param, content, text_types, e) < 0)
		return -1;
	return ig_request_add(r,
			      json_pack("{s:s, s:O, s:O, s:o}", "role", "tool", "tool_call_id", id,
					"name", name, "content", text),
			      e);
}

static int read_message(struct ig_request *r, size_t i, json_t *m, struct ig_api_error *e)
{
	char param[160], shown[64];
	const char *key, *role = json_string_value(json_object_get(m, "role"));
	json_t *v;

	snprintf(param, sizeof param, "messages[%zu]", i);
	if (!json_is_object(m))
		return ig_fail_type(e, param, "an object", m);
	json_object_foreach(m, key, v)
	{
		ig_printable(shown, sizeof shown, key);
		snprintf(param, sizeof param, "messages[%zu].%s", i, shown);
		if (check_message_key(role ? role : "", key, param, v, e) < 0)
			return -1;
	}
	if (role && !strcmp(role, "tool"))
		return read_result(r, i, m, e);
	int rc = role && !strcmp(role, "assistant") ?
			 read_assistant(r, i, m, e) :
			 ig_request_read_message(r, "messages", i, m, text_types, text_types, e);
	json_t *name = json_object_get(m, "name");
	if (!rc && json_is_string(name) &&
	    json_object_set(json_array_get(r->messages, i), "name", name) < 0)
		rc = ig_fail_memory(e);
	return rc;
}

int ig_param_messages(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	if (!json_is_array(v))
		return ig_fail_type(e, name, "a list", v);
	for (size_t i = 0; i < json_array_size(v); i++)
		if (read_message(r, i, json_array_get(v, i), e) < 0)
			return -1;
	return json_array_size(v) ? 0 : ig_fail_value(e, name, "expected at least one message");
}

/* ---- parameters ---------------------------------------------------------------------- */

int ig_param_stream_options(struct ig_request *r, const char *name, json_t *v,
			    struct ig_api_error *e)
{
	const char *key;
	json_t *value;

	if (!json_is_object(v))
		return ig_fail_type(e, name, "an object", v);
	json_object_foreach(v, key, value)
	{
		char param[96];
		snprintf(param, sizeof param, "stream_options.%s", strlen(key) > 40 ? "…" : key);
		if (json_is_null(value))
			continue;
		if (!strcmp(key, "include_usage")) {
			if (ig_read_bool(&r->include_usage, param, value, e) < 0)
				return -1;
		} else if (!strcmp(key, "include_obfuscation")) {
			if (!json_is_false(value))
				return ig_fail_unsupported(e, param, "false");
		} else {
			return ig_fail_unsupported(e, param, NULL);
		}
	}
	return 0;
}

int ig_param_n(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	return ig_read_int(&r->n, 1, IG_MAX_CHOICES, name, v, e);
}

int ig_param_tools(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	return ig_read_tools(r, name, v, IG_TOOLS_NESTED, e);
}

static int param_logprobs(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	return ig_read_bool(&r->logprobs, name, v, e);
}

static int param_top_logprobs(struct ig_request *r, const char *name, json_t *v,
			      struct ig_api_error *e)
{
	return ig_read_int(&r->n_top, 0, IG_MAX_TOP, name, v, e);
}

static int param_response_format(struct ig_request *r, const char *name, json_t *v,
				 struct ig_api_error *e)
{
	return ig_read_format(r, name, v, true, e);
}

static int param_tool_choice(struct ig_request *r, const char *name, json_t *v,
			     struct ig_api_error *e)
{
	return ig_read_tool_choice(r, name, v, IG_TOOLS_NESTED, e);
}

static int param_modalities(struct ig_request *r, const char *name, json_t *v,
			    struct ig_api_error *e)
{
	const char *first = json_string_value(json_array_get(v, 0));

	if (!first || json_array_size(v) != 1 || strcmp(first, "text"))
		return ig_fail_unsupported(e, name, "[\"text\"]");
	return 0;
}

static const struct ig_param table[] = {
	{ "model", ig_param_model },
	{ "messages", ig_param_messages },
	{ "temperature", ig_param_temperature },
	{ "top_p", ig_param_top_p },
	{ "top_k", ig_param_top_k },
	{ "min_p", ig_param_min_p },
	{ "frequency_penalty", ig_param_frequency_penalty },
	{ "presence_penalty", ig_param_presence_penalty },
	{ "repetition_penalty", ig_param_repetition_penalty },
	{ "logit_bias", ig_param_logit_bias },
	{ "seed", ig_param_seed },
	{ "max_tokens", ig_param_max_tokens },
	{ "max_completion_tokens", ig_param_max_tokens },
	{ "stop", ig_param_stop },
	{ "ignore_eos", ig_param_ignore_end },
	{ "n", ig_param_n },
	{ "logprobs", param_logprobs },
	{ "top_logprobs", param_top_logprobs },
	{ "response_format", param_response_format },
	{ "tools", ig_param_tools },
	{ "tool_choice", param_tool_choice },
	{ "parallel_tool_calls", ig_param_parallel_tool_calls },
	{ "chat_template_kwargs", ig_param_template_vars },
	{ "stream", ig_param_stream },
	{ "stream_options", ig_param_stream_options },
	{ "metadata", ig_param_metadata },
	{ "store", ig_param_false }, /* there is nothing to fetch it from */
	{ "user", ig_param_any_string },
	{ "safety_identifier", ig_param_any_string },
	{ "prompt_cache_key", ig_param_any_string },
	{ "service_tier", ig_param_auto },
	{ "modalities", param_modalities },
	{ "functions", ig_param_empty_list },
	{ NULL, NULL },
};

static int check(struct ig_request *r, json_t *root, struct ig_api_error *e)
{
	if (!r->messages)
		return ig_fail_missing(e, "messages");
	if (ig_check_stream_options(r, root, e) < 0)
		return -1;
	if (r->n_top && !r->logprobs)
		return ig_fail_value(e, "top_logprobs", "only allowed when 'logprobs' is true");
	return ig_check_tool_choice(r, "tool_choice", e) < 0 ? -1 : ig_check_ignore_end(r, e);
}

int ig_request_parse_chat(const char *text, size_t len, struct ig_request *r,
			  struct ig_api_error *e)
{
	return ig_request_read(text, len, table, check, r, e);
}
