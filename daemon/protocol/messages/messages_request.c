/*
 * messages_request.c: the bodies of Anthropic's POST /v1/messages and count_tokens.
 *
 * Their blocks become messages in the form of chat completions: a tool_use is a call of
 * the assistant's message, a tool_result a message of role tool, thinking its reasoning.
 * Neighbours of one role are one turn.
 */
#include "daemon/protocol/core/params.h"
#include "daemon/protocol/messages/messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const text_types[] = { "text", NULL };

/* One message while its blocks are read. */
struct turn {
	json_t *text; /* texts of the blocks so far, joined by newlines; NULL: none */
	json_t *reasoning, *calls;
};

static void turn_finish(struct turn *t)
{
	json_decref(t->text);
	json_decref(t->reasoning);
	json_decref(t->calls);
	*t = (struct turn){ 0 };
}

/* *to and more, with a newline between; more is taken over. */
static int join(json_t **to, json_t *more, struct ig_api_error *e)
{
	if (!*to || !json_string_length(*to)) {
		json_decref(*to);
		*to = more;
		return more ? 0 : ig_fail_memory(e);
	}
	json_t *both = json_sprintf("%s\n%s", json_string_value(*to), json_string_value(more));
	json_decref(more);
	json_decref(*to);
	*to = both;
	return both ? 0 : ig_fail_memory(e);
}

/* A block's members: type, those named, and cache_control, which prefixes do not need. */
static int check_members(json_t *block, const char *param, const char *const *known,
			 struct ig_api_error *e)
{
	const char *key;
	json_t *v;

	json_object_foreach(block, key, v)
	{
		char sub[160], shown[64];
		const char *const *k = known;
		if (json_is_null(v) || !strcmp(key, "type") || !strcmp(key, "cache_control"))
			continue;
		while (*k && strcmp(*k, key))
			k++;
		if (*k)
			continue;
		ig_printable(shown, sizeof shown, key);
		ig_member_name(sub, sizeof sub, param, shown);
		return ig_fail_unsupported(e, sub, NULL);
	}
	return 0;
}

static int need_string(json_t *block, const char *param, const char *name, json_t **out,
		       struct ig_api_error *e)
{
	char sub[160];

	ig_member_name(sub, sizeof sub, param, name);
	*out = json_object_get(block, name);
	if (!*out)
		return ig_fail_missing(e, sub);
	return json_is_string(*out) ? 0 : ig_fail_type(e, sub, "a string", *out);
}

static int read_tool_use(struct turn *t, json_t *block, const char *param, struct ig_api_error *e)
{
	static const char *const known[] = { "id", "name", "input", "caller", NULL };
	json_t *id, *name, *input = json_object_get(block, "input");
	char sub[160];

	if (check_members(block, param, known, e) < 0 ||
	    need_string(block, param, "id", &id, e) < 0 ||
	    need_string(block, param, "name", &name, e) < 0)
		return -1;
	ig_member_name(sub, sizeof sub, param, "input");
	if (!input)
		return ig_fail_missing(e, sub);
	if (!json_is_object(input))
		return ig_fail_type(e, sub, "an object", input);
	if (!t->calls)
		t->calls = json_array();
	json_t *call = json_pack("{s:O, s:s, s:{s:O, s:O}}", "id", id, "type", "function",
				 "function", "name", name, "arguments", input);
	if (t->calls && call)
		return json_array_append_new(t->calls, call) < 0 ? ig_fail_memory(e) : 0;
	json_decref(call);
	return ig_fail_memory(e);
}

static int read_tool_result(struct ig_request *r, json_t *block, const char *param,
			    struct ig_api_error *e)
{
	static const char *const known[] = { "tool_use_id", "content", "is_error", NULL };
	json_t *id, *content = json_object_get(block, "content"), *text = NULL,
		    *is_error = json_object_get(block, "is_error");
	char sub[160];

	if (check_members(block, param, known, e) < 0 ||
	    need_string(block, param, "tool_use_id", &id, e) < 0)
		return -1;
	ig_member_name(sub, sizeof sub, param, "tool_use_id");
	json_t *name = ig_request_called(r, json_string_value(id));
	if (!name)
		return ig_fail_value(e, sub, "no tool_use before it has this id");
	ig_member_name(sub, sizeof sub, param, "is_error");
	if (is_error && !json_is_null(is_error) && !json_is_boolean(is_error))
		return ig_fail_type(e, sub, "a boolean", is_error);
	ig_member_name(sub, sizeof sub, param, "content");
	if (content && !json_is_null(content)) {
		if (ig_read_content(&text, sub, content, text_types, e) < 0)
			return -1;
	} else {
		text = json_string("");
	}
	/* Templates have no place for a failure: it is said in the result itself. */
	if (json_is_true(is_error)) {
		json_t *marked = json_sprintf("Error: %s", json_string_value(text));
		json_decref(text);
		text = marked;
	}
	return ig_request_add(r,
			      json_pack("{s:s, s:O, s:O, s:o}", "role", "tool", "tool_call_id", id,
					"name", name, "content", text),
			      e);
}

static int read_block(struct ig_request *r, struct turn *t, bool assistant, json_t *block,
		      const char *param, struct ig_api_error *e)
{
	static const char *const text_known[] = { "text", "citations", NULL };
	static const char *const thinking_known[] = { "thinking", "signature", NULL };
	static const char *const redacted_known[] = { "data", NULL };
	char sub[160];
	json_t *v;

	if (!json_is_object(block))
		return ig_fail_type(e, param, "an object", block);
	const char *type = json_string_value(json_object_get(block, "type"));
	ig_member_name(sub, sizeof sub, param, "type");
	if (!type)
		return ig_fail_missing(e, sub);
	if (!strcmp(type, "text")) {
		if (check_members(block, param, text_known, e) < 0 ||
		    need_string(block, param, "text", &v, e) < 0)
			return -1;
		return join(&t->text, json_incref(v), e);
	}
	if (assistant && !strcmp(type, "thinking")) {
		if (check_members(block, param, thinking_known, e) < 0 ||
		    need_string(block, param, "thinking", &v, e) < 0)
			return -1;
		return join(&t->reasoning, json_incref(v), e);
	}
	if (assistant && !strcmp(type, "redacted_thinking")) /* nothing in it can be read */
		return check_members(block, param, redacted_known, e);
	if (assistant && !strcmp(type, "tool_use"))
		return read_tool_use(t, block, param, e);
	if (!assistant && !strcmp(type, "tool_result"))
		return read_tool_result(r, block, param, e);
	char shown[48];
	ig_printable(shown, sizeof shown, type);
	return ig_api_fail(e, 400, "unsupported_parameter", sub,
			   "Unsupported content: '%s' is '%s'; of %s, %s are supported.", sub,
			   shown, assistant ? "the assistant" : "the user",
			   assistant ? "text, thinking and tool_use" : "text and tool_result");
}

/* Append a turn, or add to the one before it if that is of the same role. */
static int add_turn(struct ig_request *r, const char *role, struct turn *t, struct ig_api_error *e)
{
	size_t n = json_array_size(r->messages);
	json_t *last = n ? json_array_get(r->messages, n - 1) : NULL;

	if (last && !strcmp(json_string_value(json_object_get(last, "role")), role) &&
	    !t->reasoning) {
		json_t *text = json_incref(json_object_get(last, "content")),
		       *calls = json_object_get(last, "tool_calls");
		if (t->text && join(&text, json_incref(t->text), e) < 0)
			return -1;
		if (json_object_set_new(last, "content", text) < 0)
			return ig_fail_memory(e);
		if (t->calls && calls)
			return json_array_extend(calls, t->calls) < 0 ? ig_fail_memory(e) : 0;
		return t->calls && json_object_set(last, "tool_calls", t->calls) < 0 ?
			       ig_fail_memory(e) :
			       0;
	}
	json_t *m = json_pack("{s:s, s:o}", "role", role, "content",
			      t->text ? json_incref(t->text) : json_string(""));
	if (!m || (t->calls && json_object_set(m, "tool_calls", t->calls) < 0) ||
	    (t->reasoning && json_object_set(m, "reasoning_content", t->reasoning) < 0)) {
		json_decref(m);
		return ig_fail_memory(e);
	}
	return ig_request_add(r, m, e);
}

static int read_message(struct ig_request *r, size_t i, json_t *m, struct ig_api_error *e)
{
	static const char *const known[] = { "role", "content", NULL };
	struct turn t = { 0 };
	char param[96];
	json_t *content = json_object_get(m, "content");
	int rc = 0;

	snprintf(param, sizeof param, "messages[%zu]", i);
	if (!json_is_object(m))
		return ig_fail_type(e, param, "an object", m);
	if (check_members(m, param, known, e) < 0)
		return -1;
	const char *role = json_string_value(json_object_get(m, "role"));
	snprintf(param, sizeof param, "messages[%zu].role", i);
	if (!role)
		return ig_fail_missing(e, param);
	if (strcmp(role, "user") && strcmp(role, "assistant"))
		return ig_fail_value(e, param, "expected user or assistant");
	snprintf(param, sizeof param, "messages[%zu].content", i);
	if (!content)
		return ig_fail_missing(e, param);
	if (json_is_string(content)) {
		t.text = json_incref(content);
		rc = add_turn(r, role, &t, e);
	} else if (json_is_array(content)) {
		for (size_t k = 0; !rc && k < json_array_size(content); k++) {
			snprintf(param, sizeof param, "messages[%zu].content[%zu]", i, k);
			rc = read_block(r, &t, !strcmp(role, "assistant"),
					json_array_get(content, k), param, e);
		}
		/* Results alone are no turn of the user's. */
		if (!rc && (t.text || t.calls || t.reasoning))
			rc = add_turn(r, role, &t, e);
	} else {
		rc = ig_fail_type(e, param, "a string or a list of blocks", content);
	}
	turn_finish(&t);
	return rc;
}

static int param_messages(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	size_t n = json_array_size(v);

	if (!json_is_array(v))
		return ig_fail_type(e, name, "a list", v);
	if (!n)
		return ig_fail_value(e, name, "expected at least one message");
	for (size_t i = 0; i < n; i++)
		if (read_message(r, i, json_array_get(v, i), e) < 0)
			return -1;
	const char *last = json_string_value(json_object_get(json_array_get(v, n - 1), "role"));
	if (!strcmp(last, "assistant"))
		return ig_fail_value(e, name,
				     "the last message must be the user's: an answer that has "
				     "begun can't be continued");
	return 0;
}

/* ---- parameters ---------------------------------------------------------------------- */

static int param_system(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	json_t *text;

	if (ig_read_content(&text, name, v, text_types, e) < 0)
		return -1;
	int rc = json_string_length(text) ? ig_read_string(&r->instructions, name, text, e) : 0;
	json_decref(text);
	return rc;
}

static int param_tools(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	return ig_read_tools(r, name, v, IG_TOOLS_INPUT_SCHEMA, e);
}

static int param_tool_choice(struct ig_request *r, const char *name, json_t *v,
			     struct ig_api_error *e)
{
	return ig_read_tool_choice(r, name, v, IG_TOOLS_INPUT_SCHEMA, e);
}

/* What templates call it: models that always think, or never, read nothing of it. */
static int param_thinking(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	const char *type = json_string_value(json_object_get(v, "type"));

	if (!json_is_object(v))
		return ig_fail_type(e, name, "an object", v);
	if (!type ||
	    (strcmp(type, "enabled") && strcmp(type, "disabled") && strcmp(type, "adaptive")))
		return ig_fail_value(e, "thinking.type", "expected enabled, adaptive or disabled");
	r->template_vars = json_pack("{s:b}", "enable_thinking", strcmp(type, "disabled") != 0);
	return r->template_vars ? 0 : ig_fail_memory(e);
}

/* {"user_id"}: whom it is about; Ingot keeps nothing of it. */
static int param_metadata(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	const char *key;
	json_t *value;

	if (!json_is_object(v))
		return ig_fail_type(e, name, "an object", v);
	json_object_foreach(v, key, value)
	{
		char param[96], shown[48];
		ig_printable(shown, sizeof shown, key);
		snprintf(param, sizeof param, "%s.%s", name, shown);
		if (strcmp(key, "user_id"))
			return ig_fail_unsupported(e, param, NULL);
		if (!json_is_string(value) && !json_is_null(value))
			return ig_fail_type(e, param, "a string", value);
	}
	return 0;
}

static int param_output(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	const char *key;
	json_t *value;

	if (!json_is_object(v))
		return ig_fail_type(e, name, "an object", v);
	json_object_foreach(v, key, value)
	{
		char param[96], shown[48];
		ig_printable(shown, sizeof shown, key);
		snprintf(param, sizeof param, "%s.%s", name, shown);
		if (json_is_null(value))
			continue;
		if (strcmp(key, "format"))
			return ig_fail_unsupported(e, param, NULL);
		if (ig_read_format(r, param, value, false, e) < 0)
			return -1;
	}
	return 0;
}

static int param_tier(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	const char *s = json_string_value(v);

	return s && (!strcmp(s, "auto") || !strcmp(s, "standard_only")) ?
		       0 :
		       ig_fail_unsupported(e, name, "\"auto\" or \"standard_only\"");
}

static int param_nothing(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	return json_is_object(v) ? 0 : ig_fail_type(e, name, "an object", v);
}

static const struct ig_param table[] = {
	{ "model", ig_param_model },
	{ "max_tokens", ig_param_max_tokens },
	{ "messages", param_messages },
	{ "system", param_system },
	{ "stop_sequences", ig_param_stop },
	{ "stream", ig_param_stream },
	{ "temperature", ig_param_temperature },
	{ "top_p", ig_param_top_p },
	{ "top_k", ig_param_top_k },
	{ "tools", param_tools },
	{ "tool_choice", param_tool_choice },
	{ "thinking", param_thinking },
	{ "output_config", param_output },
	{ "metadata", param_metadata },
	{ "service_tier", param_tier },
	{ "cache_control", param_nothing }, /* prefixes are found again without being told */
	{ NULL, NULL },
};

static const struct ig_param count_table[] = {
	{ "model", ig_param_model },
	{ "messages", param_messages },
	{ "system", param_system },
	{ "tools", param_tools },
	{ "tool_choice", param_tool_choice },
	{ "thinking", param_thinking },
	{ "output_config", param_output },
	{ "cache_control", param_nothing },
	{ NULL, NULL },
};

static int check_count(struct ig_request *r, json_t *root, struct ig_api_error *e)
{
	return r->messages ? ig_check_tool_choice(r, "tool_choice", e) :
			     ig_fail_missing(e, "messages");
}

static int check(struct ig_request *r, json_t *root, struct ig_api_error *e)
{
	if (r->messages && !r->sampling.max_tokens)
		return ig_fail_missing(e, "max_tokens");
	return check_count(r, root, e);
}

int ig_request_parse_messages(const char *text, size_t len, struct ig_request *r,
			      struct ig_api_error *e)
{
	return ig_request_read(text, len, table, check, r, e);
}

int ig_request_parse_count(const char *text, size_t len, struct ig_request *r,
			   struct ig_api_error *e)
{
	return ig_request_read(text, len, count_table, check_count, r, e);
}
