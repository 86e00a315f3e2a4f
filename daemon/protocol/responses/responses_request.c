/*
 * responses_request.c: POST /v1/responses, and the messages of the Responses WebSocket:
 * response.create, response.cancel (an extension), response.steer and response.processed.
 * stream_id and previous_response_id are read first, so that an error about anything else names its
 * lane and drops the response that it would have continued.
 */
#include "daemon/protocol/responses/items.h"
#include "daemon/protocol/responses/namespaces.h"
#include "daemon/protocol/responses/responses.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOGPROBS "message.output_text.logprobs"

static bool is_text(const json_t *v, const char *s)
{
	return json_is_string(v) && !strcmp(json_string_value(v), s);
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
		else if (!json_is_string(x))
			return ig_fail_type(e, param, "a string", x);
		else if (!is_text(x, "reasoning.encrypted_content") &&
			 ig_request_ignore(r, param, json_string_value(x),
					   LOGPROBS " and reasoning.encrypted_content", e) < 0)
			return -1;
	}
	return 0;
}

static int param_text(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	static const struct ig_param params[] = {
		{ "format", .read = ig_param_format_flat },
		{ "verbosity", IG_PARAM_WORD, .values = "\"low\", \"medium\" or \"high\"" },
		{ NULL },
	};

	return ig_params_read(r, r, params, name, v, e);
}

/* The effort goes to the template.  Reasoning is returned whole; where a summary is asked for, it is
 * the summary, too. */
static int param_reasoning(struct ig_request *r, const char *name, json_t *v,
			   struct ig_api_error *e)
{
	static const struct ig_param params[] = {
		{ "effort", IG_PARAM_TEXT }, /* the template's words */
		{ "summary", IG_PARAM_WORD,
		  .values = "\"auto\", \"concise\", \"detailed\" or \"none\"" },
		{ "generate_summary", IG_PARAM_WORD,
		  .values = "\"auto\", \"concise\" or \"detailed\"" },
		{ "context", IG_PARAM_NOTED, .values = "\"auto\"" },
		{ "mode", IG_PARAM_NOTED, .values = "\"standard\"" },
		{ NULL },
	};

	return ig_params_read(r, r, params, name, v, e);
}

static int param_stream_options(struct ig_request *r, const char *name, json_t *v,
				struct ig_api_error *e)
{
	static const struct ig_param params[] = {
		{ "include_obfuscation", IG_PARAM_NOTED, .values = "false" },
		{ NULL },
	};

	return ig_params_read(r, r, params, name, v, e);
}

/* ---- tools ------------------------------------------------------------------------------ */

/* A custom tool, whose input is free text, is a function of one string to the model; the
 * response shows that string as the input. */
static json_t *custom_as_function(struct ig_request *r, const char *at, json_t *v,
				  struct ig_api_error *e)
{
	static const struct ig_param params[] = {
		{ "type", IG_PARAM_SKIP },
		{ "name", IG_PARAM_SKIP }, /* checked as that of the function */
		{ "description", IG_PARAM_TEXT },
		{ "format", IG_PARAM_SKIP },
		{ "defer_loading", IG_PARAM_SKIP },
		{ NULL },
	};
	const char *between = "", *definition = "", *syntax = NULL;
	json_t *format = json_object_get(v, "format");
	const char *description = ig_json_text(v, "description");
	char sub[160];

	if (ig_params_read(r, NULL, params, at, v, e) < 0)
		return NULL;
	if (format && !json_is_null(format) && !is_text(json_object_get(format, "type"), "text")) {
		json_t *text = json_object_get(format, "definition");
		syntax = ig_json_text(format, "syntax");
		ig_member_name(sub, sizeof sub, at, "format");
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
			      description ? description : "", between, definition, "parameters",
			      "type", "object", "properties", "input", "type", "string", "required",
			      "input", "additionalProperties", 0);
	if (!f)
		ig_fail_memory(e);
	return f;
}

/* Keep the grammar of a custom tool that has one: the tool's calls are held to it. */
static int keep_format(struct ig_request *r, const char *at, json_t *v, struct ig_api_error *e)
{
	json_t *format = json_object_get(v, "format"), *kept;
	const char *name = ig_json_text(v, "name");
	char sub[160];

	if (!name || !is_text(json_object_get(format, "type"), "grammar"))
		return 0;
	ig_member_name(sub, sizeof sub, at, "format.definition");
	kept = json_pack("{s:O, s:O, s:s}", "syntax", json_object_get(format, "syntax"),
			 "definition", json_object_get(format, "definition"), "at", sub);
	if (!r->formats)
		r->formats = json_object();
	return json_object_set_new(r->formats, name, kept) < 0 ? ig_fail_memory(e) : 0;
}

/* Tools that OpenAI runs on its servers, which Codex sends to every server. */
static const char *const hosted_types[] = { "web_search", "web_search_preview", "image_generation",
					    NULL };

/* One tool of a request, by its type. */
static int read_tool(struct ig_request *r, const char *at, json_t *v, bool codex,
		     struct ig_api_error *e)
{
	const char *type;
	char sub[96];

	if (ig_read_type(&type, at, v, e) < 0)
		return -1;
	if (!strcmp(type, "function"))
		return ig_add_tool(r, at, v, IG_TOOLS_FLAT, e);
	if (!strcmp(type, "custom")) {
		json_t *f = custom_as_function(r, at, v, e);
		int rc = f ? ig_add_tool(r, at, f, IG_TOOLS_FLAT, e) : -1;
		json_decref(f);
		return rc < 0 ? rc : keep_format(r, at, v, e);
	}
	if (codex && r->refuse_unknown && ig_is_one_of(type, hosted_types))
		return 0;
	ig_member_name(sub, sizeof sub, at, "type");
	return ig_request_ignore(r, sub, type, "function, custom and namespace tools", e);
}

/* Those in namespaces come last: their names are made so that they differ from the others. */
static int read_tools(struct ig_request *r, json_t *root, struct ig_api_error *e)
{
	bool codex = json_is_object(json_object_get(root, "client_metadata"));
	json_t *tools = json_object_get(root, "tools"), *v;
	size_t i;

	if (!tools || json_is_null(tools))
		return 0;
	if (!json_is_array(tools))
		return ig_fail_type(e, "tools", "a list", tools);
	if (json_array_size(tools) > IG_MAX_TOOLS)
		return ig_fail_value(e, "tools", "at most %d tools, got %zu", IG_MAX_TOOLS,
				     json_array_size(tools));
	for (int spaces = 0; spaces < 2; spaces++)
		json_array_foreach(tools, i, v)
		{
			char at[48];
			snprintf(at, sizeof at, "tools[%zu]", i);
			bool is_space = is_text(json_object_get(v, "type"), "namespace");
			if (is_space == spaces && (is_space ? ig_namespace_read(r, at, v, e) :
							      read_tool(r, at, v, codex, e)) < 0)
				return -1;
		}
	return ig_request_repeat(r, "tools", tools, e);
}

/* The name by which the model knows a tool that a choice names; NULL: none. */
static const char *chosen_name(const struct ig_request *r, const json_t *v)
{
	const char *name = ig_json_text(v, "name"), *space = ig_json_text(v, "namespace");

	return name && space ? ig_namespace_flat(r, space, name) : name;
}

/* {"type": "allowed_tools", "mode", "tools"}: only these are in the prompt. */
static int read_allowed_tools(struct ig_request *r, json_t *v, struct ig_api_error *e)
{
	json_t *allowed = json_object_get(v, "tools"), *mode = json_object_get(v, "mode"), *x,
	       *tool;
	size_t i, k;

	if (json_object_size(v) != 3)
		return ig_fail_value(e, "tool_choice", "expected type, mode and tools only");
	if (!json_array_size(allowed))
		return ig_fail_value(e, "tool_choice.tools", "expected a list of tools");
	if (!is_text(mode, "auto") && !is_text(mode, "required"))
		return ig_fail_value(e, "tool_choice.mode", "expected \"auto\" or \"required\"");
	json_t *list = json_array();
	json_array_foreach(allowed, i, x)
	{
		const char *name = chosen_name(r, x);
		char param[48];
		snprintf(param, sizeof param, "tool_choice.tools[%zu]", i);
		json_array_foreach(r->tools, k,
				   tool) if (name && !strcmp(name, ig_tool_name(tool))) break;
		bool found = k < json_array_size(r->tools);
		if (found && !json_array_append(list, json_array_get(r->tools, k)))
			continue;
		json_decref(list);
		return found ? ig_fail_memory(e) :
			       ig_fail_value(e, param,
					     "expected the type and name of one of 'tools'");
	}
	json_decref(r->tools);
	r->tools = list;
	r->tool_choice = is_text(mode, "auto") ? IG_TOOLS_AUTO : IG_TOOLS_REQUIRED;
	return ig_request_repeat(r, "tool_choice", v, e);
}

static int read_tool_choice(struct ig_request *r, json_t *root, struct ig_api_error *e)
{
	json_t *v = json_object_get(root, "tool_choice"), *as = NULL;

	if (!v || json_is_null(v))
		return 0;
	if (is_text(json_object_get(v, "type"), "allowed_tools"))
		return read_allowed_tools(r, v, e);
	if (is_text(json_object_get(v, "type"), "custom") || json_object_get(v, "namespace")) {
		as = json_pack("{s:s, s:s*}", "type", "function", "name", chosen_name(r, v));
		if (!as)
			return ig_fail_memory(e);
	}
	int rc = ig_read_tool_choice(r, "tool_choice", as ? as : v, IG_TOOLS_FLAT, e);
	json_decref(as);
	if (rc < 0)
		return -1;
	return ig_request_repeat(r, "tool_choice", v, e);
}

static int param_instructions(struct ig_request *r, const char *name, json_t *v,
			      struct ig_api_error *e)
{
	return ig_read_text(&r->instructions, name, v, e);
}

/* ---- tables ----------------------------------------------------------------------------- */

/* What a prompt is made of: all that counting tokens takes.  See read_prompt for those that are
 * skipped. */
static const struct ig_param prompt_params[] = {
	{ "model", IG_PARAM_STRING, IG_AT(model) },
	{ "instructions", .read = param_instructions },
	{ "previous_response_id", IG_PARAM_SKIP },
	{ "tools", IG_PARAM_SKIP },
	{ "tool_choice", IG_PARAM_SKIP },
	{ "input", .read = ig_items_read },
	{ "chat_template_kwargs", .read = ig_param_template_vars },
	{ "parallel_tool_calls", IG_PARAM_BOOL, IG_AT(parallel_tool_calls) },
	{ "text", .read = param_text, .repeated = true },
	{ "reasoning", .read = param_reasoning, .repeated = true },
	{ "truncation", IG_PARAM_NOTED, .values = "\"disabled\"" },
	{ .more = ig_normalize_params },
	{ NULL },
};

static const struct ig_param create_params[] = {
	{ .more = prompt_params },
	{ .more = ig_sampling_params },
	{ .more = ig_order_params },
	{ "max_output_tokens", .read = ig_param_max_tokens },
	/* a limit to calls of built-in tools, of which there are none */
	{ "max_tool_calls", IG_PARAM_INT, .min = 1, .max = INT32_MAX, .repeated = true },
	{ "generate", IG_PARAM_NOT, IG_AT(warm_up) },
	{ "metadata", .read = ig_param_metadata },
	{ "store", IG_PARAM_BOOL, IG_AT(store) },
	{ "client_metadata", .read = param_client_metadata },
	{ "prompt_cache_key", IG_PARAM_TEXT, .repeated = true },
	{ .more = ig_cache_params },
	{ "prompt_cache_retention", IG_PARAM_NOTED, .values = "\"in_memory\"" },
	{ "user", IG_PARAM_TEXT, .repeated = true },
	{ "safety_identifier", IG_PARAM_TEXT, .repeated = true },
	{ "service_tier", IG_PARAM_NOTED, /* all are served alike */
	  .values = "\"auto\", \"default\", \"flex\", \"priority\", \"fast\" or \"scale\"" },
	{ "include", .read = param_include },
	{ "top_logprobs", IG_PARAM_INT, IG_AT(n_top), 0, IG_MAX_TOP, .repeated = true },
	{ "background", IG_PARAM_ONLY, .values = "false" },
	/* text that this server does not have */
	{ "conversation", IG_PARAM_ONLY, .values = "null" },
	{ "prompt", IG_PARAM_ONLY, .values = "null" },
	{ "stream_options", .read = param_stream_options },
	{ NULL },
};

static const struct ig_param http_create_params[] = {
	{ "stream", IG_PARAM_BOOL, IG_AT(stream) },
	{ .more = create_params },
	{ NULL },
};

static const struct ig_param ws_create_params[] = {
	{ "type", IG_PARAM_SKIP },
	{ "stream_id", IG_PARAM_SKIP },
	{ "stream", IG_PARAM_ONLY, .values = "true: a WebSocket always streams" },
	{ .more = create_params },
	{ NULL },
};

static const struct ig_param cancel_params[] = {
	{ "type", IG_PARAM_SKIP },
	{ "stream_id", IG_PARAM_SKIP },
	{ "response_id", IG_PARAM_STRING, IG_AT(response_id) },
	{ NULL },
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
			"Invalid 'stream_id': expected 1 to %d characters of A-Z a-z 0-9 _ . -",
			IG_MAX_STREAM_ID);
	memcpy(r->stream_id, s, n + 1);
	return 0;
}

/* What a prompt is made of. */
static int read_prompt(struct ig_request *r, const struct ig_param *table, json_t *root,
		       struct ig_api_error *e)
{
	json_t *previous = json_object_get(root, "previous_response_id");

	if ((previous && !json_is_null(previous) &&
	     ig_read_string(&r->previous_id, "previous_response_id", previous, e) < 0) ||
	    ig_params_read(r, r, table, NULL, root, e) < 0 || read_tools(r, root, e) < 0 ||
	    read_tool_choice(r, root, e) < 0)
		return -1;
	return ig_request_set_effort(
		r, json_object_get(json_object_get(r->repeated, "reasoning"), "effort"), e);
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
	if (json_is_array(input) && !json_array_size(input) && !r->previous_id && !r->warm_up)
		return ig_fail_value(e, "input", "expected at least one item");
	if (r->n_top && !r->logprobs)
		return ig_fail_value(e, "top_logprobs", "only with \"" LOGPROBS "\" in 'include'");
	if (ig_check_stream_options(r, root, e) < 0 || ig_check_ignore_end(r, e) < 0)
		return -1;
	return ig_check_tool_choice(r, "tool_choice", e);
}

static int read_http_create(struct ig_request *r, json_t *root, struct ig_api_error *e)
{
	return read_create(r, http_create_params, root, e);
}

const struct ig_request_format ig_create_request = { NULL, read_http_create };

static int read_input_tokens(struct ig_request *r, json_t *root, struct ig_api_error *e)
{
	if (read_prompt(r, prompt_params, root, e) < 0)
		return -1;
	if (!r->messages && !(r->messages = json_array()))
		return ig_fail_memory(e);
	if (!json_array_size(r->messages) && !r->instructions && !r->previous_id)
		return ig_fail_missing(e, "input");
	return ig_check_tool_choice(r, "tool_choice", e);
}

const struct ig_request_format ig_input_tokens_request = { NULL, read_input_tokens };

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
		return read_create(r, ws_create_params, root, e);
	if (!strcmp(type, "response.steer"))
		return read_steer(r, root, e);
	if (!strcmp(type, "response.cancel")) {
		r->notice = IG_WS_CANCEL;
		return ig_params_read(r, r, cancel_params, NULL, root, e);
	}
	if (strcmp(type, "response.processed"))
		return ig_fail_value(e, "type",
				     "expected response.create, response.cancel or response.steer");
	r->notice = IG_WS_PROCESSED;
	return 0;
}

const struct ig_request_format ig_ws_request = { NULL, read_message };
