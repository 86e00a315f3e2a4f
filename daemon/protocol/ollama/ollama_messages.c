/*
 * ollama_messages.c: the messages of /api/chat.  Arguments of calls are objects, and calls may have no id:
 * those without one get one here, so that results without one find them, by the tool's name or in
 * order.
 */
#include "daemon/protocol/ollama/ollama_private.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

struct message {
	const char *at;
	json_t *role, *content, *thinking, *images, *tool_calls, *tool_name, *tool_call_id;
};
#define AT(member) offsetof(struct message, member)

static const struct ig_param message_params[] = {
	{ "role", IG_PARAM_TEXT, AT(role), .required = true },
	{ "content", IG_PARAM_TEXT, AT(content) },
	{ "thinking", IG_PARAM_TEXT, AT(thinking) },
	{ "images", IG_PARAM_LIST, AT(images) },
	{ "tool_calls", IG_PARAM_LIST, AT(tool_calls) },
	{ "tool_name", IG_PARAM_TEXT, AT(tool_name) },
	{ "tool_call_id", IG_PARAM_TEXT, AT(tool_call_id) },
	{ NULL },
};

#define MAX_CALLS 512 /* of one message */

/* The calls of the latest message that has some, for the results after it. */
struct turn {
	json_t *calls; /* borrowed; NULL: none */
	bool made_ids; /* some had no id */
	size_t n_open;
	bool answered[MAX_CALLS];
};

/* ---- calls ------------------------------------------------------------------------------- */

struct call {
	const char *at;
	json_t *id, *function, *name, *arguments;
};

static const struct ig_param call_params[] = {
	{ "id", IG_PARAM_TEXT, offsetof(struct call, id) },
	{ "type", IG_PARAM_TEXT },
	{ "function", IG_PARAM_OBJECT, offsetof(struct call, function), .required = true },
	{ NULL },
};

static const struct ig_param function_params[] = {
	{ "index", IG_PARAM_INT, .min = 0, .max = INT32_MAX },
	{ "name", IG_PARAM_TEXT, offsetof(struct call, name), .required = true },
	{ "arguments", IG_PARAM_OBJECT, offsetof(struct call, arguments) },
	{ NULL },
};

static int read_call(struct ig_request *r, struct turn *t, json_t *v, const char *at,
		     struct ig_api_error *e)
{
	struct call c = { .at = at };
	char in[120], id[16];

	ig_member_name(in, sizeof in, at, "function");
	if (ig_params_read(r, &c, call_params, at, v, e) < 0 ||
	    ig_params_read(r, &c, function_params, in, c.function, e) < 0)
		return -1;
	/* nine characters: Mistral's templates take no others */
	snprintf(id, sizeof id, "call%05zu",
		 (json_array_size(r->messages) * MAX_CALLS + t->n_open) % 100000);
	json_t *call = ig_tool_call_object(c.id ? json_string_value(c.id) : id,
					   json_string_value(c.name), "", 0);
	if (call && c.arguments &&
	    json_object_set(json_object_get(call, "function"), "arguments", c.arguments)) {
		json_decref(call);
		call = NULL;
	}
	if (!call || json_array_append_new(t->calls, call))
		return ig_fail_memory(e);
	t->made_ids |= !c.id;
	t->answered[t->n_open++] = false;
	return 0;
}

/* *calls: a new reference; NULL: none. */
static int read_calls(struct ig_request *r, struct turn *t, json_t **calls, const struct message *m,
		      struct ig_api_error *e)
{
	size_t n = json_array_size(m->tool_calls);
	char at[96];

	if (!n)
		return 0;
	ig_member_name(at, sizeof at, m->at, "tool_calls");
	if (n > MAX_CALLS)
		return ig_fail_value(e, at, "at most %d calls, got %zu", MAX_CALLS, n);
	t->calls = *calls = json_array();
	t->n_open = 0;
	t->made_ids = false;
	if (!*calls)
		return ig_fail_memory(e);
	for (size_t k = 0; k < n; k++) {
		snprintf(at, sizeof at, "%s.tool_calls[%zu]", m->at, k);
		if (read_call(r, t, json_array_get(m->tool_calls, k), at, e) < 0)
			return -1;
	}
	return 0;
}

/* ---- results ------------------------------------------------------------------------------ */

/* The first call without a result that has this id and this name (NULL: any), which has one from
 * now on: its id, borrowed; NULL: there is none. */
static json_t *take_call(struct turn *t, const char *id, const char *name)
{
	for (size_t k = 0; t->n_open && k < json_array_size(t->calls); k++) {
		json_t *call = json_array_get(t->calls, k), *have = json_object_get(call, "id");
		if (t->answered[k] || (id && strcmp(id, json_string_value(have))) ||
		    (name && strcmp(name, ig_tool_name(call))))
			continue;
		t->answered[k] = true;
		t->n_open--;
		return have;
	}
	return NULL;
}

static int read_result(struct ig_request *r, struct turn *t, const struct message *m,
		       struct ig_api_error *e)
{
	json_t *text = m->content ? json_incref(m->content) : json_string("");
	const char *id = json_string_value(m->tool_call_id),
		   *name = json_string_value(m->tool_name);
	json_t *of = id ? take_call(t, id, NULL) : NULL;
	char at[96];

	/* some clients drop the ids of calls, but not those of their results */
	if (!of && (!id || t->made_ids))
		of = take_call(t, NULL, name);
	if (!of)
		of = m->tool_call_id;
	ig_member_name(at, sizeof at, m->at, "tool_call_id");
	if (of)
		return ig_request_add_result(r, of, text, at, "call", e);
	/* a history without its calls */
	return ig_request_add(r,
			      json_pack("{s:s, s:o, s:O*}", "role", "tool", "content", text, "name",
					m->tool_name),
			      e);
}

/* ---- messages ------------------------------------------------------------------------------ */

static int read_message(struct ig_request *r, struct turn *t, const char *at, json_t *v,
			struct ig_api_error *e)
{
	struct message m = { .at = at };
	json_t *calls = NULL;
	char sub[96];

	if (ig_params_read(r, &m, message_params, at, v, e) < 0)
		return -1;
	ig_member_name(sub, sizeof sub, at, "images");
	if (m.images && ig_ollama_images(r, sub, m.images, e) < 0)
		return -1;
	if (!strcmp(json_string_value(m.role), "tool"))
		return read_result(r, t, &m, e);
	const char *role = ig_message_role(json_string_value(m.role));
	ig_member_name(sub, sizeof sub, at, "role");
	if (!role)
		return ig_fail_value(e, sub, "expected system, user, assistant or tool");
	int rc = read_calls(r, t, &calls, &m, e);
	if (!rc)
		rc = ig_request_add(r,
				    json_pack("{s:s, s:o, s:O*, s:O*}", "role", role, "content",
					      m.content ? json_incref(m.content) : json_string(""),
					      "tool_calls", calls, "reasoning_content", m.thinking),
				    e);
	json_decref(calls);
	return rc;
}

int ig_ollama_messages(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	struct turn t = { .calls = NULL };
	char at[64];

	if (!json_is_array(v))
		return ig_fail_type(e, name, "a list", v);
	for (size_t i = 0; i < json_array_size(v); i++) {
		snprintf(at, sizeof at, "%s[%zu]", name, i);
		if (read_message(r, &t, at, json_array_get(v, i), e) < 0)
			return -1;
	}
	return 0;
}
