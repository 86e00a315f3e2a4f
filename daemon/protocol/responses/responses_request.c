/*
 * responses_request.c: POST /v1/responses, and the messages of the Responses WebSocket:
 * response.create, response.cancel (an extension), response.steer and response.processed.
 *
 * stream_id and previous_response_id are read first, so that an error about anything else
 * can name its lane and let go what it would have continued.  The input itself is
 * items.c's.
 */
#include "daemon/protocol/responses/items.h"
#include "daemon/protocol/responses/responses.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOGPROBS "message.output_text.logprobs"

static bool is_text(const json_t *v, const char *s)
{
	return json_is_string(v) && !strcmp(json_string_value(v), s);
}

/* Whether a string is one of list (NULL-terminated). */
static bool is_one_of(const json_t *v, const char *const *list)
{
	while (*list && !is_text(v, *list))
		list++;
	return *list;
}

static int param_nothing(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	return 0; /* read before or after the table */
}

static int param_stream_true(struct ig_request *r, const char *name, json_t *v,
			     struct ig_api_error *e)
{
	return json_is_true(v) ? 0 :
				 ig_fail_unsupported(e, name, "true: a WebSocket always streams");
}

static int param_said_string(struct ig_request *r, const char *name, json_t *v,
			     struct ig_api_error *e)
{
	return json_is_string(v) ? ig_request_say(r, name, v, e) :
				   ig_fail_type(e, name, "a string", v);
}

static int param_client_metadata(struct ig_request *r, const char *name, json_t *v,
				 struct ig_api_error *e)
{
	const char *key;
	json_t *value;

	if (!json_is_object(v))
		return ig_fail_type(e, name, "an object of strings", v);
	json_object_foreach(v, key, value) if (!json_is_string(value)) return ig_fail_type(
		e, name, "an object of strings", value);
	return 0;
}

/* Whatever the tier, there is one. */
static int param_service_tier(struct ig_request *r, const char *name, json_t *v,
			      struct ig_api_error *e)
{
	static const char *const tiers[] = { "auto", "default", "flex", "priority",
					     "fast", "scale",	NULL };

	return is_one_of(v, tiers) ? 0 :
				     ig_fail_unsupported(e, name,
							 "\"auto\", \"default\", "
							 "\"flex\", \"priority\", \"fast\" or "
							 "\"scale\"");
}

static int param_include(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	json_t *x;
	size_t i;

	if (!json_is_array(v))
		return ig_fail_type(e, name, "a list", v);
	json_array_foreach(v, i, x)
	{
		char param[48];
		snprintf(param, sizeof param, "%s[%zu]", name, i);
		if (is_text(x, LOGPROBS))
			r->logprobs = true;
		/* Reasoning is given as it is: there is nothing to encrypt. */
		else if (!is_text(x, "reasoning.encrypted_content"))
			return ig_fail_unsupported(e, param,
						   "\"" LOGPROBS "\" or "
						   "\"reasoning.encrypted_content\"");
	}
	return 0;
}

static int param_top_logprobs(struct ig_request *r, const char *name, json_t *v,
			      struct ig_api_error *e)
{
	if (ig_read_int(&r->n_top, 0, 20, name, v, e) < 0)
		return -1;
	return ig_request_say(r, name, v, e);
}

/* It bounds the calls of built-in tools, of which there are none. */
static int param_max_tool_calls(struct ig_request *r, const char *name, json_t *v,
				struct ig_api_error *e)
{
	int32_t n;

	if (ig_read_int(&n, 1, INT32_MAX, name, v, e) < 0)
		return -1;
	return ig_request_say(r, name, v, e);
}

static int param_text(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	static const char *const levels[] = { "low", "medium", "high", NULL };
	const char *key;
	json_t *value;

	if (!json_is_object(v))
		return ig_fail_type(e, name, "an object", v);
	json_object_foreach(v, key, value)
	{
		char param[96], shown[64];
		ig_printable(shown, sizeof shown, key);
		ig_member_name(param, sizeof param, name, shown);
		if (json_is_null(value))
			continue;
		if (!strcmp(key, "format")) {
			if (ig_read_format(r, param, value, false, e) < 0)
				return -1;
		} else if (strcmp(key, "verbosity")) {
			return ig_fail_unsupported(e, param, NULL);
		} else if (!is_one_of(value, levels)) {
			return ig_fail_value(e, param, "expected \"low\", \"medium\" or \"high\"");
		}
	}
	return ig_request_say(r, name, v, e);
}

/* A template that knows of it is told the effort; what is thought is given whole, so that
 * a summary would say less. */
static int param_reasoning(struct ig_request *r, const char *name, json_t *v,
			   struct ig_api_error *e)
{
	static const char *const efforts[] = { "none", "minimal", "low", "medium",
					       "high", "xhigh",	  "max", NULL };
	static const char *const summaries[] = { "auto", "concise", "detailed", NULL };
	static const char *const contexts[] = { "auto", NULL };
	static const char *const modes[] = { "standard", NULL };
	static const struct {
		const char *key;
		const char *const *values;
	} members[] = {
		{ "effort", efforts },
		{ "summary", summaries },
		{ "generate_summary", summaries },
		{ "context", contexts },
		{ "mode", modes },
	};
	const char *key;
	json_t *value;

	if (!json_is_object(v))
		return ig_fail_type(e, name, "an object", v);
	json_object_foreach(v, key, value)
	{
		char param[96], shown[64];
		size_t i = 0;
		ig_printable(shown, sizeof shown, key);
		ig_member_name(param, sizeof param, name, shown);
		if (json_is_null(value))
			continue;
		while (i < sizeof members / sizeof members[0] && strcmp(members[i].key, key))
			i++;
		if (i == sizeof members / sizeof members[0])
			return ig_fail_unsupported(e, param, NULL);
		if (!json_is_string(value))
			return ig_fail_type(e, param, "a string", value);
		if (!is_one_of(value, members[i].values)) {
			char what[48];
			ig_printable(what, sizeof what, json_string_value(value));
			return ig_fail_value(e, param, "\"%s\" is none of its values here", what);
		}
	}
	return ig_request_say(r, name, v, e);
}

static int param_truncation(struct ig_request *r, const char *name, json_t *v,
			    struct ig_api_error *e)
{
	return is_text(v, "disabled") ? 0 : ig_fail_unsupported(e, name, "\"disabled\"");
}

static int param_prompt_cache_retention(struct ig_request *r, const char *name, json_t *v,
					struct ig_api_error *e)
{
	return is_text(v, "in_memory") ? 0 : ig_fail_unsupported(e, name, "\"in_memory\"");
}

static int param_stream_options(struct ig_request *r, const char *name, json_t *v,
				struct ig_api_error *e)
{
	const char *key;
	json_t *value;

	if (!json_is_object(v))
		return ig_fail_type(e, name, "an object", v);
	json_object_foreach(v, key, value)
	{
		char param[96], shown[64];
		ig_printable(shown, sizeof shown, key);
		ig_member_name(param, sizeof param, name, shown);
		if (strcmp(key, "include_obfuscation"))
			return ig_fail_unsupported(e, param, NULL);
		if (!json_is_null(value) && !json_is_false(value))
			return ig_fail_unsupported(e, param, "false");
	}
	return 0;
}

static int param_generate(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	bool generate;

	if (ig_read_bool(&generate, name, v, e) < 0)
		return -1;
	r->warm_up = !generate;
	return 0;
}

/* ---- tools ------------------------------------------------------------------------------ */

/* Free text goes through a function of one string, which comes back as what it holds. */
static json_t *custom_as_function(const char *param, json_t *v, struct ig_api_error *e)
{
	const char *key, *description = "", *between = "", *definition = "", *syntax = NULL;
	json_t *value, *format = NULL;
	char sub[160];

	json_object_foreach(v, key, value)
	{
		char shown[64];
		ig_printable(shown, sizeof shown, key);
		ig_member_name(sub, sizeof sub, param, shown);
		if (json_is_null(value) || !strcmp(key, "type") || !strcmp(key, "name") ||
		    !strcmp(key, "defer_loading"))
			continue;
		if (!strcmp(key, "format")) {
			format = value;
		} else if (strcmp(key, "description")) {
			ig_fail_unsupported(e, sub, NULL);
			return NULL;
		} else if (json_is_string(value)) {
			description = json_string_value(value);
		} else {
			ig_fail_type(e, sub, "a string", value);
			return NULL;
		}
	}
	if (format && !is_text(json_object_get(format, "type"), "text")) {
		json_t *text = json_object_get(format, "definition");
		syntax = json_string_value(json_object_get(format, "syntax"));
		ig_member_name(sub, sizeof sub, param, "format");
		if (!is_text(json_object_get(format, "type"), "grammar") || !json_is_string(text) ||
		    !syntax || (strcmp(syntax, "lark") && strcmp(syntax, "regex"))) {
			ig_fail_value(e, sub,
				      "expected type \"text\", or \"grammar\" with syntax "
				      "\"lark\" or \"regex\" and a definition");
			return NULL;
		}
		definition = json_string_value(text);
		between = !strcmp(syntax, "lark") ?
				  "\n\nThe input is text of this Lark grammar:\n" :
				  "\n\nThe input is text that this expression matches:\n";
	}
	json_t *f = json_pack("{s:s, s:O*, s:s++, s:{s:s, s:{s:{s:s}}, s:[s], s:b}}", "type",
			      "function", "name", json_object_get(v, "name"), "description",
			      description, between, definition, "parameters", "type", "object",
			      "properties", "input", "type", "string", "required", "input",
			      "additionalProperties", 0);
	if (!f)
		ig_fail_memory(e);
	return f;
}

/* What OpenAI runs on its own side.  Codex lists such tools whoever serves it; a model that
 * is not told of them does not call them. */
static bool is_hosted(json_t *v)
{
	static const char *const types[] = { "web_search", "web_search_preview", "image_generation",
					     NULL };

	return is_one_of(json_object_get(v, "type"), types);
}

static int read_tools(struct ig_request *r, json_t *root, struct ig_api_error *e)
{
	json_t *tools = json_object_get(root, "tools"), *list, *v;
	const json_t *codex = json_object_get(root, "client_metadata");
	int rc = 0;
	size_t i;

	if (!tools || json_is_null(tools))
		return 0;
	if (!json_is_array(tools))
		return ig_fail_type(e, "tools", "a list", tools);
	list = json_array();
	if (!list)
		return ig_fail_memory(e);
	json_array_foreach(tools, i, v)
	{
		const char *type = json_string_value(json_object_get(v, "type"));
		char param[48], shown[48];
		snprintf(param, sizeof param, "tools[%zu]", i);
		if (type && !strcmp(type, "custom")) {
			json_t *f = custom_as_function(param, v, e);
			rc = !f ? -1 : json_array_append_new(list, f) < 0 ? ig_fail_memory(e) : 0;
		} else if (is_hosted(v) && json_is_object(codex)) {
			continue;
		} else if (type && strcmp(type, "function")) {
			ig_printable(shown, sizeof shown, type);
			snprintf(param, sizeof param, "tools[%zu].type", i);
			rc = ig_api_fail(
				e, 400, "unsupported_parameter", param,
				"Unsupported tool: '%s' is '%s'; this server has function and "
				"custom tools.",
				param, shown);
		} else if (json_array_append(list, v) < 0) {
			rc = ig_fail_memory(e);
		}
		if (rc < 0)
			break;
	}
	if (!rc)
		rc = ig_read_tools(r, "tools", list, IG_TOOLS_FLAT, e);
	json_decref(list);
	return rc < 0 ? -1 : ig_request_say(r, "tools", tools, e);
}

static const char *name_of(const json_t *tool)
{
	return json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
}

/* {"type": "allowed_tools", "mode", "tools"}: the model is told of these only. */
static int read_allowed_tools(struct ig_request *r, json_t *v, struct ig_api_error *e)
{
	json_t *allowed = json_object_get(v, "tools"), *mode = json_object_get(v, "mode"), *x,
	       *tool;
	json_t *list = json_array();
	size_t i, k;

	if (!list)
		return ig_fail_memory(e);
	if (json_object_size(v) != 3) {
		ig_fail_value(e, "tool_choice", "expected type, mode and tools only");
		goto fail;
	}
	if (!json_array_size(allowed)) {
		ig_fail_value(e, "tool_choice.tools", "expected a list of tools");
		goto fail;
	}
	if (!is_text(mode, "auto") && !is_text(mode, "required")) {
		ig_fail_value(e, "tool_choice.mode", "expected \"auto\" or \"required\"");
		goto fail;
	}
	json_array_foreach(allowed, i, x)
	{
		json_t *name = json_object_get(x, "name");
		char param[48];
		json_array_foreach(r->tools, k, tool) if (is_text(name, name_of(tool))) break;
		if (k == json_array_size(r->tools)) {
			snprintf(param, sizeof param, "tool_choice.tools[%zu]", i);
			ig_fail_value(e, param, "expected the type and name of one of 'tools'");
			goto fail;
		}
		if (json_array_append(list, json_array_get(r->tools, k)) < 0) {
			ig_fail_memory(e);
			goto fail;
		}
	}
	json_decref(r->tools);
	r->tools = list;
	r->tool_choice = is_text(mode, "auto") ? IG_TOOLS_AUTO : IG_TOOLS_REQUIRED;
	return ig_request_say(r, "tool_choice", v, e);
fail:
	json_decref(list);
	return -1;
}

static int read_tool_choice(struct ig_request *r, json_t *root, struct ig_api_error *e)
{
	json_t *v = json_object_get(root, "tool_choice"), *as = NULL;

	if (!v || json_is_null(v))
		return 0;
	if (is_text(json_object_get(v, "type"), "allowed_tools"))
		return read_allowed_tools(r, v, e);
	if (is_text(json_object_get(v, "type"), "custom")) {
		as = json_pack("{s:s, s:O*}", "type", "function", "name",
			       json_object_get(v, "name"));
		if (!as)
			return ig_fail_memory(e);
	}
	int rc = ig_read_tool_choice(r, "tool_choice", as ? as : v, IG_TOOLS_FLAT, e);
	json_decref(as);
	if (rc < 0)
		return -1;
	return ig_request_say(r, "tool_choice", v, e);
}

/* ---- tables ----------------------------------------------------------------------------- */

#define CREATE_PARAMS                                                                              \
	{ "instructions", param_nothing }, { "previous_response_id", param_nothing },              \
		{ "tools", param_nothing }, { "tool_choice", param_nothing },                      \
		{ "model", ig_param_model }, { "input", ig_items_read },                           \
		{ "temperature", ig_param_temperature }, { "top_p", ig_param_top_p },              \
		{ "top_k", ig_param_top_k }, { "min_p", ig_param_min_p },                          \
		{ "frequency_penalty", ig_param_frequency_penalty },                               \
		{ "presence_penalty", ig_param_presence_penalty },                                 \
		{ "repetition_penalty", ig_param_repetition_penalty },                             \
		{ "logit_bias", ig_param_logit_bias }, { "seed", ig_param_seed },                  \
		{ "max_output_tokens", ig_param_max_tokens },                                      \
		{ "max_tool_calls", param_max_tool_calls }, { "stop", ig_param_stop },             \
		{ "ignore_eos", ig_param_ignore_end },                                             \
		{ "chat_template_kwargs", ig_param_template_vars },                                \
		{ "generate", param_generate }, { "metadata", ig_param_metadata },                 \
		{ "store", ig_param_store }, { "client_metadata", param_client_metadata },         \
		{ "prompt_cache_key", param_said_string },                                         \
		{ "prompt_cache_retention", param_prompt_cache_retention },                        \
		{ "user", param_said_string }, { "safety_identifier", param_said_string },         \
		{ "service_tier", param_service_tier }, { "include", param_include },              \
		{ "top_logprobs", param_top_logprobs },                                            \
		{ "parallel_tool_calls", ig_param_parallel_tool_calls }, { "text", param_text },   \
		{ "reasoning", param_reasoning }, { "truncation", param_truncation },              \
		{ "background", ig_param_false }, { "stream_options", param_stream_options },      \
	{                                                                                          \
		NULL, NULL                                                                         \
	}

static const struct ig_param create_table[] = {
	{ "stream", ig_param_stream },
	CREATE_PARAMS,
};

static const struct ig_param ws_create_table[] = {
	{ "type", param_nothing },
	{ "stream_id", param_nothing },
	{ "stream", param_stream_true },
	CREATE_PARAMS,
};

/* Of what is only counted: all that a prompt is made of. */
static const struct ig_param count_table[] = {
	{ "instructions", param_nothing },
	{ "previous_response_id", param_nothing },
	{ "tools", param_nothing },
	{ "tool_choice", param_nothing },
	{ "model", ig_param_model },
	{ "input", ig_items_read },
	{ "chat_template_kwargs", ig_param_template_vars },
	{ "parallel_tool_calls", ig_param_parallel_tool_calls },
	{ "text", param_text },
	{ "reasoning", param_reasoning },
	{ "truncation", param_truncation },
	{ NULL, NULL },
};

static int param_response_id(struct ig_request *r, const char *name, json_t *v,
			     struct ig_api_error *e)
{
	return ig_read_string(&r->response_id, name, v, e);
}

static const struct ig_param cancel_table[] = {
	{ "type", param_nothing },
	{ "stream_id", param_nothing },
	{ "response_id", param_response_id },
	{ NULL, NULL },
};

/* ---- create ------------------------------------------------------------------------------ */

static int read_stream_id(struct ig_request *r, json_t *root, struct ig_api_error *e)
{
	json_t *v = json_object_get(root, "stream_id");

	if (!v || json_is_null(v))
		return 0;
	const char *s = json_string_value(v);
	size_t n = json_string_length(v);
	if (!s || n < 1 || n > IG_MAX_STREAM_ID ||
	    strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") != n)
		return ig_api_fail(
			e, 400, "invalid_stream_id", "stream_id",
			"Invalid 'stream_id': expected 1 to %d characters of A-Z a-z 0-9 "
			"_ . -",
			IG_MAX_STREAM_ID);
	memcpy(r->stream_id, s, n + 1);
	return 0;
}

static int read_text_member(char **out, const char *name, json_t *root, struct ig_api_error *e)
{
	json_t *v = json_object_get(root, name);

	return v && !json_is_null(v) ? ig_read_string(out, name, v, e) : 0;
}

/* Templates call it reasoning_effort; those that can do without thinking, enable_thinking. */
static int tell_effort(struct ig_request *r, struct ig_api_error *e)
{
	json_t *effort = json_object_get(json_object_get(r->said, "reasoning"), "effort");

	if (!json_is_string(effort))
		return 0;
	if (!r->template_vars)
		r->template_vars = json_object();
	if (json_object_get(r->template_vars, "reasoning_effort"))
		return 0;
	if (!r->template_vars || json_object_set(r->template_vars, "reasoning_effort", effort) < 0)
		return ig_fail_memory(e);
	if (is_text(effort, "none") && !json_object_get(r->template_vars, "enable_thinking") &&
	    json_object_set_new(r->template_vars, "enable_thinking", json_false()) < 0)
		return ig_fail_memory(e);
	return 0;
}

/* What a prompt is made of. */
static int read_prompt(struct ig_request *r, const struct ig_param *table, json_t *root,
		       struct ig_api_error *e)
{
	if (read_text_member(&r->previous_id, "previous_response_id", root, e) < 0 ||
	    read_text_member(&r->instructions, "instructions", root, e) < 0 ||
	    ig_params_read(r, table, root, e) < 0 || read_tools(r, root, e) < 0 ||
	    read_tool_choice(r, root, e) < 0)
		return -1;
	return tell_effort(r, e);
}

static int read_create(struct ig_request *r, const struct ig_param *table, json_t *root,
		       struct ig_api_error *e)
{
	json_t *input = json_object_get(root, "input");

	r->store = true;
	if (read_prompt(r, table, root, e) < 0)
		return -1;
	if (!input || json_is_null(input))
		return ig_fail_missing(e, "input");
	if (!json_array_size(r->items) && !r->previous_id && !r->warm_up)
		return ig_fail_value(e, "input", "expected at least one item");
	if (r->n_top && !r->logprobs)
		return ig_fail_value(e, "top_logprobs", "only with \"" LOGPROBS "\" in 'include'");
	if (ig_check_stream_options(r, root, e) < 0 || ig_check_ignore_end(r, e) < 0)
		return -1;
	return ig_check_tool_choice(r, "tool_choice", e);
}

static int read_http_create(struct ig_request *r, json_t *root, struct ig_api_error *e)
{
	if (json_object_get(root, "stream_id"))
		return ig_fail_unsupported(e, "stream_id", "part of a WebSocket's messages");
	return read_create(r, create_table, root, e);
}

int ig_request_parse_create(const char *text, size_t len, struct ig_request *r,
			    struct ig_api_error *e)
{
	return ig_request_read(text, len, NULL, read_http_create, r, e);
}

static int read_input_tokens(struct ig_request *r, json_t *root, struct ig_api_error *e)
{
	if (read_prompt(r, count_table, root, e) < 0)
		return -1;
	if (!r->messages && !(r->messages = json_array()))
		return ig_fail_memory(e);
	if (!json_array_size(r->messages) && !r->instructions && !r->previous_id)
		return ig_fail_missing(e, "input");
	return ig_check_tool_choice(r, "tool_choice", e);
}

int ig_request_parse_input_tokens(const char *text, size_t len, struct ig_request *r,
				  struct ig_api_error *e)
{
	return ig_request_read(text, len, NULL, read_input_tokens, r, e);
}

/* ---- the WebSocket ----------------------------------------------------------------------- */

static int read_steer(struct ig_request *r, json_t *root, struct ig_api_error *e)
{
	json_t *id = json_object_get(root, "previous_response_id"),
	       *input = json_object_get(root, "input");
	json_t *back = json_pack("{s:O?, s:O?}", "previous_response_id", id, "input", input);

	r->notice = IG_WS_STEER;
	r->steer = back ? ig_json_to_text(back) : NULL;
	json_decref(back);
	return r->steer ? 0 : ig_fail_memory(e);
}

static int read_message(struct ig_request *r, json_t *root, struct ig_api_error *e)
{
	json_t *v = json_object_get(root, "type");
	const char *type = json_string_value(v);

	r->stream = true;
	if (read_stream_id(r, root, e) < 0)
		return -1;
	if (!v)
		return ig_fail_missing(e, "type");
	if (!type)
		return ig_fail_type(e, "type", "a string", v);
	if (!strcmp(type, "response.create"))
		return read_create(r, ws_create_table, root, e);
	if (!strcmp(type, "response.steer"))
		return read_steer(r, root, e);
	if (!strcmp(type, "response.cancel")) {
		r->notice = IG_WS_CANCEL;
		return ig_params_read(r, cancel_table, root, e);
	}
	if (strcmp(type, "response.processed"))
		return ig_fail_value(e, "type",
				     "expected response.create, response.cancel or "
				     "response.steer");
	r->notice = IG_WS_PROCESSED;
	return 0;
}

int ig_request_parse_ws(const char *text, size_t len, struct ig_request *r, struct ig_api_error *e)
{
	return ig_request_read(text, len, NULL, read_message, r, e);
}
