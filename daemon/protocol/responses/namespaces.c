/* namespaces.c: see namespaces.h. */
#include "daemon/protocol/responses/namespaces.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

struct space {
	const char *at; /* offset 0 means that nothing is stored */
	json_t *name, *tools;
};

static const struct ig_param params[] = {
	{ "type", IG_PARAM_SKIP },
	{ "name", IG_PARAM_TEXT, offsetof(struct space, name), .required = true },
	{ "description", IG_PARAM_TEXT },
	{ "tools", IG_PARAM_LIST, offsetof(struct space, tools), .required = true },
	{ NULL },
};

void ig_namespace_join(char *out, size_t cap, const char *space, const char *name)
{
	size_t n = strlen(space);
	bool apart = n >= 2 && !strcmp(space + n - 2, "__");

	if (snprintf(out, cap, "%s%s%s", space, apart ? "" : "__", name) >= (int)cap)
		out[cap - 1] = 0;
}

static bool is_used(const struct ig_request *r, const char *name)
{
	size_t i;
	json_t *tool;

	json_array_foreach(r->tools, i, tool) if (!strcmp(ig_tool_name(tool), name)) return true;
	return false;
}

/* A name of at most IG_MAX_TOOL_NAME characters that no other tool has. */
static void make_name(const struct ig_request *r, char *out, const char *space, const char *name)
{
	char full[IG_MAX_TOOL_NAME * 2 + 3];

	ig_namespace_join(full, sizeof full, space, name);
	snprintf(out, IG_MAX_TOOL_NAME + 1, "%.*s", IG_MAX_TOOL_NAME, full);
	for (unsigned k = 2; strlen(full) > IG_MAX_TOOL_NAME || is_used(r, out); k++) {
		snprintf(out, IG_MAX_TOOL_NAME + 1, "%.*s_%u", IG_MAX_TOOL_NAME - 8, full, k);
		if (!is_used(r, out))
			return;
	}
}

static int read_tool(struct ig_request *r, const char *at, json_t *space, json_t *v,
		     struct ig_api_error *e)
{
	const char *type, *name = ig_json_text(v, "name");
	char sub[160], flat[IG_MAX_TOOL_NAME + 1];

	if (ig_read_type(&type, at, v, e) < 0)
		return -1;
	if (strcmp(type, "function")) {
		ig_member_name(sub, sizeof sub, at, "type");
		return ig_request_ignore(r, sub, type, "functions in namespaces", e);
	}
	if (!name || !name[0] || strlen(name) > IG_MAX_TOOL_NAME) /* an error names it */
		return ig_add_tool(r, at, v, IG_TOOLS_FLAT, e);
	make_name(r, flat, json_string_value(space), name);
	json_t *f = ig_json_copy(v);
	int rc = !f || json_object_set_new(f, "name", json_string(flat)) < 0 ?
			 ig_fail_memory(e) :
			 ig_add_tool(r, at, f, IG_TOOLS_FLAT, e);
	json_decref(f);
	if (rc < 0)
		return -1;
	if (!r->namespaces)
		r->namespaces = json_object();
	json_t *names = json_pack("{s:O, s:s}", "namespace", space, "name", name);
	return json_object_set_new(r->namespaces, flat, names) < 0 ? ig_fail_memory(e) : 0;
}

int ig_namespace_read(struct ig_request *r, const char *at, json_t *v, struct ig_api_error *e)
{
	struct space s = { .at = at };
	char sub[96];
	size_t i;
	json_t *tool;

	if (ig_params_read(r, &s, params, at, v, e) < 0)
		return -1;
	size_t n = json_string_length(s.name);
	if (n < 1 || n > IG_MAX_TOOL_NAME) {
		ig_member_name(sub, sizeof sub, at, "name");
		return ig_fail_value(e, sub, "expected 1 to %d characters", IG_MAX_TOOL_NAME);
	}
	json_array_foreach(s.tools, i, tool)
	{
		snprintf(sub, sizeof sub, "%s.tools[%zu]", at, i);
		if (json_array_size(r->tools) >= IG_MAX_TOOLS)
			return ig_fail_value(e, sub, "at most %d tools", IG_MAX_TOOLS);
		if (read_tool(r, sub, s.name, tool, e) < 0)
			return -1;
	}
	return 0;
}

const json_t *ig_namespace_of(const struct ig_request *r, const char *flat)
{
	return flat ? json_object_get(r->namespaces, flat) : NULL;
}

const char *ig_namespace_flat(const struct ig_request *r, const char *space, const char *name)
{
	const char *flat;
	json_t *names;

	json_object_foreach(r->namespaces, flat, names)
	{
		if (!strcmp(ig_json_text(names, "namespace"), space) &&
		    !strcmp(ig_json_text(names, "name"), name))
			return flat;
	}
	return NULL;
}
