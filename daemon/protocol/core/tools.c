/* tools.c: tools, the choice among them, and response formats, in the spellings of the three
 * protocols.  All become the spelling of chat completions, which chat templates read. */
#include "daemon/protocol/core/params.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* OpenAI's rule, with dots and slashes as MCP servers have them. */
static int check_name(struct ig_request *r, const char *param, json_t *v, struct ig_api_error *e)
{
	if (!v || json_is_null(v))
		return ig_fail_missing(e, param);
	if (!json_is_string(v))
		return ig_fail_type(e, param, "a string", v);
	size_t n = json_string_length(v);
	if (n < 1 || n > IG_MAX_TOOL_NAME ||
	    strspn(json_string_value(v), "abcdefghijklmnopqrstuvwxyz"
					 "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:") != n)
		return ig_fail_value(
			e, param,
			"expected 1 to %d characters of A-Z a-z 0-9 _ - . / :", IG_MAX_TOOL_NAME);
	return 0;
}

/* A tool in any spelling. */
struct tool {
	const char *at;
	json_t *function, *description, *parameters, *strict;
};
#define AT(member) offsetof(struct tool, member)

static const struct ig_param common_params[] = {
	{ "type", IG_PARAM_SKIP },
	{ "name", IG_PARAM_SKIP }, /* see check_name */
	{ "description", IG_PARAM_TEXT, AT(description) },
	{ "parameters", IG_PARAM_OBJECT, AT(parameters) },
	{ "strict", IG_PARAM_BOOLEAN, AT(strict) },
	{ "cache_control", IG_PARAM_OBJECT },
	{ "defer_loading", IG_PARAM_BOOLEAN }, /* it is in the prompt from the start */
	{ NULL },
};

static const struct ig_param nested_params[] = {
	{ "type", IG_PARAM_ONLY, .values = "\"function\"", .required = true },
	{ "function", IG_PARAM_OBJECT, AT(function), .required = true },
	{ NULL },
};

static const struct ig_param flat_params[] = {
	{ "type", IG_PARAM_ONLY, .values = "\"function\"", .required = true },
	{ .more = common_params },
	{ NULL },
};

static const struct ig_param input_schema_params[] = {
	{ "type", IG_PARAM_ONLY, .values = "\"custom\"" },
	{ "input_schema", IG_PARAM_OBJECT, AT(parameters) },
	{ .more = common_params },
	{ NULL },
};

static int read_tool(struct ig_request *r, json_t **out, json_t *v, const char *at,
		     enum ig_tool_spelling how, struct ig_api_error *e)
{
	static const struct ig_param *const tables[] = {
		[IG_TOOLS_NESTED] = nested_params,
		[IG_TOOLS_FLAT] = flat_params,
		[IG_TOOLS_INPUT_SCHEMA] = input_schema_params,
	};
	struct tool t = { .at = at, .function = v };
	char in[160], sub[160];

	if (ig_params_read(r, &t, tables[how], at, v, e) < 0)
		return -1;
	snprintf(in, sizeof in, "%s%s", at, how == IG_TOOLS_NESTED ? ".function" : "");
	if (how == IG_TOOLS_NESTED && ig_params_read(r, &t, common_params, in, t.function, e) < 0)
		return -1;
	json_t *name = json_object_get(t.function, "name");
	ig_member_name(sub, sizeof sub, in, "name");
	if (check_name(r, sub, name, e) < 0)
		return -1;
	/* in the order that templates' authors expect, for the tools that are dumped whole */
	*out = json_pack("{s:s, s:{s:O, s:O*, s:O*, s:O*}}", "type", "function", "function", "name",
			 name, "description", t.description, "parameters", t.parameters, "strict",
			 t.strict);
	return *out ? 0 : ig_fail_memory(e);
}

/* A tool that Anthropic's servers would run: an error, or left out. */
static int ignore_server_tool(struct ig_request *r, json_t *v, const char *at,
			      struct ig_api_error *e)
{
	char sub[160];

	ig_member_name(sub, sizeof sub, at, "type");
	return ig_request_ignore(r, sub, ig_json_text(v, "type"), "\"custom\"", e);
}

static bool is_server_tool(const json_t *v, enum ig_tool_spelling how)
{
	const char *type = ig_json_text(v, "type");

	return how == IG_TOOLS_INPUT_SCHEMA && type && strcmp(type, "custom") != 0;
}

const char *ig_tool_name(const json_t *tool)
{
	return ig_json_text(json_object_get(tool, "function"), "name");
}

int ig_add_tool(struct ig_request *r, const char *at, json_t *v, enum ig_tool_spelling how,
		struct ig_api_error *e)
{
	json_t *tool;

	if (read_tool(r, &tool, v, at, how, e) < 0)
		return -1;
	const char *name = ig_tool_name(tool);
	for (size_t k = 0; k < json_array_size(r->tools); k++)
		if (!strcmp(ig_tool_name(json_array_get(r->tools, k)), name)) {
			ig_fail_value(e, at, "another tool has the same name '%.64s'", name);
			json_decref(tool);
			return -1;
		}
	if (!r->tools)
		r->tools = json_array();
	return json_array_append_new(r->tools, tool) < 0 ? ig_fail_memory(e) : 0;
}

int ig_read_tools(struct ig_request *r, const char *name, json_t *v, enum ig_tool_spelling how,
		  struct ig_api_error *e)
{
	if (!json_is_array(v))
		return ig_fail_type(e, name, "a list", v);
	if (json_array_size(v) > IG_MAX_TOOLS)
		return ig_fail_value(e, name, "at most %d tools, got %zu", IG_MAX_TOOLS,
				     json_array_size(v));
	json_decref(r->tools);
	r->tools = NULL;
	for (size_t i = 0; i < json_array_size(v); i++) {
		char param[96];
		snprintf(param, sizeof param, "%s[%zu]", name, i);
		json_t *tool = json_array_get(v, i);
		if ((is_server_tool(tool, how) ? ignore_server_tool(r, tool, param, e) :
						 ig_add_tool(r, param, tool, how, e)) < 0)
			return -1;
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
	const char *type;
	char sub[160];

	if (json_is_string(v) && !anthropic)
		return choose(r, name, json_string_value(v), false, e);
	if (!json_is_object(v))
		return ig_fail_type(e, name, anthropic ? "an object" : "a string or an object", v);
	if (ig_read_type(&type, name, v, e) < 0)
		return -1;
	json_t *single = json_object_get(v, "disable_parallel_tool_use");
	if (anthropic && single && !json_is_null(single)) {
		ig_member_name(sub, sizeof sub, name, "disable_parallel_tool_use");
		if (!json_is_boolean(single))
			return ig_fail_type(e, sub, "a boolean", single);
		r->parallel_tool_calls = !json_is_true(single);
	}
	ig_member_name(sub, sizeof sub, name, "type");
	if (anthropic && strcmp(type, "tool"))
		return choose(r, sub, type, true, e);
	if (!anthropic && strcmp(type, "function"))
		return ig_fail_unsupported(e, sub, "\"function\"");
	json_t *body = how == IG_TOOLS_NESTED ? json_object_get(v, "function") : v;
	json_t *named = json_object_get(body, "name");
	ig_member_name(sub, sizeof sub, name, how == IG_TOOLS_NESTED ? "function.name" : "name");
	if (check_name(r, sub, named, e) < 0)
		return -1;
	r->tool_choice = IG_TOOLS_NAMED;
	return ig_read_string(&r->tool_name, sub, named, e);
}

int ig_check_tool_choice(struct ig_request *r, const char *name, struct ig_api_error *e)
{
	if (r->tool_choice != IG_TOOLS_REQUIRED && r->tool_choice != IG_TOOLS_NAMED)
		return 0;
	if (!r->tools)
		return ig_fail_value(e, name, "a tool call is required, but there are no tools");
	if (r->form != IG_OUTPUT_FREE)
		return ig_fail_value(e, name,
				     "a tool call is required, and so is a response format");
	for (size_t i = 0; r->tool_choice == IG_TOOLS_NAMED && i < json_array_size(r->tools); i++)
		if (!strcmp(ig_tool_name(json_array_get(r->tools, i)), r->tool_name))
			return 0;
	if (r->tool_choice == IG_TOOLS_REQUIRED)
		return 0;
	return ig_fail_value(e, name, "there is no tool '%.64s'", r->tool_name);
}

/* ---- response formats ----------------------------------------------------------------- */

static int param_schema(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	if (!json_is_object(v) && !json_is_boolean(v))
		return ig_fail_type(e, name, "a JSON schema", v);
	json_decref(r->schema);
	r->schema = json_incref(v);
	return 0;
}

static const struct ig_param schema_params[] = {
	{ "type", IG_PARAM_SKIP },
	{ "name", .read = check_name },
	{ "description", IG_PARAM_TEXT },
	{ "strict", IG_PARAM_BOOLEAN }, /* the schema is enforced either way */
	{ "schema", .read = param_schema, .required = true },
	{ NULL },
};

static int read_format(struct ig_request *r, const char *name, json_t *v, bool nested,
		       struct ig_api_error *e)
{
	static const struct {
		const char *type, *member;
	} formats[] = {
		[IG_OUTPUT_FREE] = { "text" },
		[IG_OUTPUT_OBJECT] = { "json_object" },
		[IG_OUTPUT_SCHEMA] = { "json_schema", "json_schema" },
		[IG_OUTPUT_REGEX] = { "regex", "regex" },
	};
	const char *type;
	char sub[160];
	size_t i = 0;

	if (ig_read_type(&type, name, v, e) < 0)
		return -1;
	while (i < sizeof formats / sizeof formats[0] && strcmp(formats[i].type, type))
		i++;
	ig_member_name(sub, sizeof sub, name, "type");
	if (i == sizeof formats / sizeof formats[0])
		return ig_fail_value(e, sub,
				     "expected \"text\", \"json_object\", \"json_schema\" or "
				     "\"regex\"");
	r->form = (enum ig_output_format)i;
	if (r->form == IG_OUTPUT_SCHEMA && !nested)
		return ig_params_read(r, r, schema_params, name, v, e);
	const char *member = formats[i].member;
	json_t *body = member ? json_object_get(v, member) : NULL;
	ig_member_name(sub, sizeof sub, name, member ? member : "");
	if (member && (!body || json_is_null(body)))
		return ig_fail_missing(e, sub);
	if (json_object_size(v) != (member ? 2 : 1))
		return ig_fail_value(e, name, "expected type%s%s only", member ? " and " : "",
				     member ? member : "");
	return r->form == IG_OUTPUT_SCHEMA ? ig_params_read(r, r, schema_params, sub, body, e) :
	       r->form == IG_OUTPUT_REGEX  ? ig_read_string(&r->regex, sub, body, e) :
					     0;
}

int ig_param_format_nested(struct ig_request *r, const char *name, json_t *v,
			   struct ig_api_error *e)
{
	return read_format(r, name, v, true, e);
}

int ig_param_format_flat(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	return read_format(r, name, v, false, e);
}

bool ig_has_strict_tool(const struct ig_request *r)
{
	const json_t *tool;
	size_t i;

	json_array_foreach(r->tools, i, tool)
	{
		const json_t *f = json_object_get(tool, "function");
		if (json_is_true(json_object_get(f, "strict")) ||
		    json_object_get(r->formats, ig_tool_name(tool)))
			return r->tool_choice != IG_TOOLS_NONE;
	}
	return false;
}

int ig_check_ignore_end(const struct ig_request *r, struct ig_api_error *e)
{
	if (!r->sampling.ignore_end ||
	    (r->form == IG_OUTPUT_FREE && r->tool_choice < IG_TOOLS_REQUIRED &&
	     !ig_has_strict_tool(r)))
		return 0;
	return ig_fail_value(e, "ignore_eos",
			     "not with a response format, which ends when it is complete, nor with "
			     "strict tools");
}
