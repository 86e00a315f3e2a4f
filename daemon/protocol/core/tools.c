/*
 * tools.c: tools, the choice among them, and the forms an answer may have, in the
 * spellings of the three protocols.  What comes out is one: chat completions' own, which
 * chat templates read.
 */
#include "daemon/protocol/core/params.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TOOLS 512
#define MAX_NAME 128 /* characters of a tool's or a schema's name */

/* OpenAI's rule, with dots and slashes as MCP servers have them. */
static int check_name(const char *param, json_t *v, struct ig_api_error *e)
{
	if (!v || json_is_null(v))
		return ig_fail_missing(e, param);
	if (!json_is_string(v))
		return ig_fail_type(e, param, "a string", v);
	size_t n = json_string_length(v);
	if (n < 1 || n > MAX_NAME ||
	    strspn(json_string_value(v), "abcdefghijklmnopqrstuvwxyz"
					 "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:") != n)
		return ig_fail_value(
			e, param, "expected 1 to %d characters of A-Z a-z 0-9 _ - . / :", MAX_NAME);
	return 0;
}

/* The members of a function, wherever they lie. */
struct function {
	json_t *name, *description, *parameters, *strict;
};

static int read_function(json_t *v, const char *param, const char *parameters_key,
			 struct function *f, struct ig_api_error *e)
{
	char sub[160];
	const char *key;
	json_t *x;

	*f = (struct function){ 0 };
	json_object_foreach(v, key, x)
	{
		char shown[64];
		ig_printable(shown, sizeof shown, key);
		ig_member_name(sub, sizeof sub, param, shown);
		if (!strcmp(key, "type") || json_is_null(x))
			continue;
		if (!strcmp(key, "name")) {
			f->name = x;
		} else if (!strcmp(key, "description")) {
			if (!json_is_string(x))
				return ig_fail_type(e, sub, "a string", x);
			f->description = x;
		} else if (!strcmp(key, parameters_key)) {
			if (!json_is_object(x))
				return ig_fail_type(e, sub, "a JSON schema (an object)", x);
			f->parameters = x;
		} else if (!strcmp(key, "strict")) {
			if (!json_is_boolean(x))
				return ig_fail_type(e, sub, "a boolean", x);
			f->strict = x;
		} else if (strcmp(key, "cache_control") && strcmp(key, "defer_loading")) {
			return ig_fail_unsupported(e, sub, NULL);
		}
	}
	ig_member_name(sub, sizeof sub, param, "name");
	return check_name(sub, f->name, e);
}

static int read_tool(json_t **out, json_t *v, const char *param, enum ig_tool_spelling how,
		     struct ig_api_error *e)
{
	char sub[160];
	struct function f;

	if (!json_is_object(v))
		return ig_fail_type(e, param, "an object", v);
	json_t *type = json_object_get(v, "type"), *body = v;
	const char *only = how == IG_TOOLS_INPUT_SCHEMA ? "custom" : "function";
	ig_member_name(sub, sizeof sub, param, "type");
	if (!type && how != IG_TOOLS_INPUT_SCHEMA)
		return ig_fail_missing(e, sub);
	if (type && !json_is_null(type) &&
	    (!json_is_string(type) || strcmp(json_string_value(type), only)))
		return ig_fail_unsupported(
			e, sub, how == IG_TOOLS_INPUT_SCHEMA ? "\"custom\"" : "\"function\"");
	snprintf(sub, sizeof sub, "%s", param);
	if (how == IG_TOOLS_NESTED) {
		const char *key;
		json_t *x;
		json_object_foreach(v, key, x)
		{
			char shown[64];
			if (!strcmp(key, "type") || !strcmp(key, "function") || json_is_null(x))
				continue;
			ig_printable(shown, sizeof shown, key);
			ig_member_name(sub, sizeof sub, param, shown);
			return ig_fail_unsupported(e, sub, NULL);
		}
		ig_member_name(sub, sizeof sub, param, "function");
		body = json_object_get(v, "function");
		if (!body || json_is_null(body))
			return ig_fail_missing(e, sub);
		if (!json_is_object(body))
			return ig_fail_type(e, sub, "an object", body);
	}
	if (read_function(body, sub, how == IG_TOOLS_INPUT_SCHEMA ? "input_schema" : "parameters",
			  &f, e) < 0)
		return -1;
	/* in the order that templates' authors expect, for the tools that are dumped whole */
	*out = json_pack("{s:s, s:{s:O, s:O*, s:O*, s:O*}}", "type", "function", "function", "name",
			 f.name, "description", f.description, "parameters", f.parameters, "strict",
			 f.strict);
	return *out ? 0 : ig_fail_memory(e);
}

static const char *name_of(json_t *tool)
{
	return json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
}

int ig_read_tools(struct ig_request *r, const char *name, json_t *v, enum ig_tool_spelling how,
		  struct ig_api_error *e)
{
	if (!json_is_array(v))
		return ig_fail_type(e, name, "a list", v);
	if (json_array_size(v) > MAX_TOOLS)
		return ig_fail_value(e, name, "at most %d tools, got %zu", MAX_TOOLS,
				     json_array_size(v));
	json_decref(r->tools);
	r->tools = NULL;
	if (!json_array_size(v))
		return 0;
	r->tools = json_array();
	if (!r->tools)
		return ig_fail_memory(e);
	for (size_t i = 0; i < json_array_size(v); i++) {
		char param[96];
		json_t *tool;
		snprintf(param, sizeof param, "%s[%zu]", name, i);
		if (read_tool(&tool, json_array_get(v, i), param, how, e) < 0)
			return -1;
		for (size_t k = 0; k < i; k++)
			if (!strcmp(name_of(json_array_get(r->tools, k)), name_of(tool))) {
				ig_fail_value(e, param, "the name '%.64s' is that of tool %zu, too",
					      name_of(tool), k);
				json_decref(tool);
				return -1;
			}
		if (json_array_append_new(r->tools, tool) < 0)
			return ig_fail_memory(e);
	}
	return 0;
}

static int choose(struct ig_request *r, const char *name, const char *s, bool anthropic,
		  struct ig_api_error *e)
{
	if (!strcmp(s, "auto"))
		r->tool_choice = IG_TOOLS_AUTO;
	else if (!strcmp(s, "none"))
		r->tool_choice = IG_TOOLS_NONE;
	else if (!strcmp(s, anthropic ? "any" : "required"))
		r->tool_choice = IG_TOOLS_REQUIRED;
	else
		return ig_fail_value(e, name, "expected \"auto\", \"none\", \"%s\" or a tool",
				     anthropic ? "any" : "required");
	return 0;
}

int ig_read_tool_choice(struct ig_request *r, const char *name, json_t *v,
			enum ig_tool_spelling how, struct ig_api_error *e)
{
	bool anthropic = how == IG_TOOLS_INPUT_SCHEMA;
	char sub[160];

	if (json_is_string(v) && !anthropic)
		return choose(r, name, json_string_value(v), false, e);
	if (!json_is_object(v))
		return ig_fail_type(e, name, anthropic ? "an object" : "a string or an object", v);
	const char *type = json_string_value(json_object_get(v, "type"));
	snprintf(sub, sizeof sub, "%s.type", name);
	if (!type)
		return ig_fail_missing(e, sub);
	if (anthropic) {
		json_t *off = json_object_get(v, "disable_parallel_tool_use");
		if (off && !json_is_null(off)) {
			bool single;
			char param[96];
			snprintf(param, sizeof param, "%s.disable_parallel_tool_use", name);
			if (ig_read_bool(&single, param, off, e) < 0)
				return -1;
			r->parallel_tool_calls = !single;
		}
	}
	if (anthropic && strcmp(type, "tool"))
		return choose(r, sub, type, true, e);
	if (!anthropic && strcmp(type, "function"))
		return ig_fail_unsupported(e, sub, "\"function\"");
	json_t *body = how == IG_TOOLS_NESTED ? json_object_get(v, "function") : v;
	snprintf(sub, sizeof sub, how == IG_TOOLS_NESTED ? "%s.function.name" : "%s.name", name);
	if (check_name(sub, json_object_get(body, "name"), e) < 0)
		return -1;
	r->tool_choice = IG_TOOLS_NAMED;
	free(r->tool_name);
	r->tool_name = strdup(json_string_value(json_object_get(body, "name")));
	return r->tool_name ? 0 : ig_fail_memory(e);
}

int ig_check_tool_choice(struct ig_request *r, const char *name, struct ig_api_error *e)
{
	if (r->tool_choice != IG_TOOLS_REQUIRED && r->tool_choice != IG_TOOLS_NAMED)
		return 0;
	if (!r->tools)
		return ig_fail_value(e, name, "a call is asked for, but there are no tools");
	if (r->form != IG_OUTPUT_FREE)
		return ig_fail_value(e, name, "a call is asked for, and a form of the text");
	for (size_t i = 0; r->tool_choice == IG_TOOLS_NAMED && i < json_array_size(r->tools); i++)
		if (!strcmp(name_of(json_array_get(r->tools, i)), r->tool_name))
			return 0;
	if (r->tool_choice == IG_TOOLS_REQUIRED)
		return 0;
	return ig_fail_value(e, name, "there is no tool '%.64s'", r->tool_name);
}

/* ---- forms of the text ---------------------------------------------------------------- */

static int read_schema(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	char sub[160];
	const char *key;
	json_t *x;

	json_object_foreach(v, key, x)
	{
		char shown[64];
		ig_printable(shown, sizeof shown, key);
		ig_member_name(sub, sizeof sub, name, shown);
		if (!strcmp(key, "type") || json_is_null(x))
			continue;
		if (!strcmp(key, "name")) {
			if (check_name(sub, x, e) < 0)
				return -1;
		} else if (!strcmp(key, "description")) {
			if (!json_is_string(x))
				return ig_fail_type(e, sub, "a string", x);
		} else if (!strcmp(key, "strict")) {
			/* The schema is held either way. */
			if (!json_is_boolean(x))
				return ig_fail_type(e, sub, "a boolean", x);
		} else if (!strcmp(key, "schema")) {
			if (!json_is_object(x) && !json_is_boolean(x))
				return ig_fail_type(e, sub, "a JSON schema", x);
			json_decref(r->schema);
			r->schema = json_incref(x);
		} else {
			return ig_fail_unsupported(e, sub, NULL);
		}
	}
	ig_member_name(sub, sizeof sub, name, "schema");
	return r->schema ? 0 : ig_fail_missing(e, sub);
}

int ig_read_format(struct ig_request *r, const char *name, json_t *v, bool nested,
		   struct ig_api_error *e)
{
	char sub[160];

	if (!json_is_object(v))
		return ig_fail_type(e, name, "an object", v);
	const char *type = json_string_value(json_object_get(v, "type"));
	snprintf(sub, sizeof sub, "%s.type", name);
	if (!type)
		return ig_fail_missing(e, sub);
	if (!strcmp(type, "json_schema")) {
		r->form = IG_OUTPUT_SCHEMA;
		if (!nested)
			return read_schema(r, name, v, e);
		json_t *body = json_object_get(v, "json_schema");
		snprintf(sub, sizeof sub, "%s.json_schema", name);
		if (!body || json_is_null(body))
			return ig_fail_missing(e, sub);
		if (!json_is_object(body))
			return ig_fail_type(e, sub, "an object", body);
		if (json_object_size(v) != 2)
			return ig_fail_value(e, name, "expected type and json_schema only");
		return read_schema(r, sub, body, e);
	}
	if (!strcmp(type, "regex")) {
		json_t *text = json_object_get(v, "regex");
		snprintf(sub, sizeof sub, "%s.regex", name);
		if (!text)
			return ig_fail_missing(e, sub);
		if (json_object_size(v) != 2)
			return ig_fail_value(e, name, "expected type and regex only");
		r->form = IG_OUTPUT_REGEX;
		return ig_read_string(&r->regex, sub, text, e);
	}
	if (json_object_size(v) != 1)
		return ig_fail_value(e, name, "expected type only");
	if (!strcmp(type, "text"))
		r->form = IG_OUTPUT_FREE;
	else if (!strcmp(type, "json_object"))
		r->form = IG_OUTPUT_OBJECT;
	else
		return ig_fail_value(e, sub,
				     "expected \"text\", \"json_object\", \"json_schema\" or "
				     "\"regex\"");
	return 0;
}

int ig_check_ignore_end(const struct ig_request *r, struct ig_api_error *e)
{
	if (!r->sampling.ignore_end ||
	    (r->form == IG_OUTPUT_FREE && r->tool_choice < IG_TOOLS_REQUIRED))
		return 0;
	return ig_fail_value(e, "ignore_eos", "an answer of a form must be able to end");
}

int ig_request_say(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	if (!r->said)
		r->said = json_object();
	return r->said && !json_object_set(r->said, name, v) ? 0 : ig_fail_memory(e);
}
