/*
 * messages_request.c: the bodies of Anthropic's POST /v1/messages and count_tokens.  Their blocks
 * become messages as in chat completions: a tool_use is a tool call of the assistant's message, a
 * tool_result a message of role tool, thinking its reasoning.  Consecutive messages of one role are
 * one turn.
 */
#include "daemon/protocol/core/params.h"
#include "daemon/protocol/messages/messages.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* ---- blocks -------------------------------------------------------------------------- */

struct block {
	const char *at;
	json_t *text, *id, *name, *input, *content, *is_error;
};
#define AT(member) offsetof(struct block, member)

/* Of every block: prefixes are cached without cache_control. */
static const struct ig_param block_params[] = {
	{ "type", IG_PARAM_SKIP },
	{ "cache_control", IG_PARAM_SKIP },
	{ NULL },
};

static const struct ig_param text_params[] = {
	{ "text", IG_PARAM_TEXT, AT(text), .required = true },
	{ "citations", IG_PARAM_SKIP },
	{ .more = block_params },
	{ NULL },
};

static const struct ig_param thinking_params[] = {
	{ "thinking", IG_PARAM_TEXT, AT(text), .required = true },
	{ "signature", IG_PARAM_SKIP },
	{ .more = block_params },
	{ NULL },
};

static const struct ig_param redacted_params[] = {
	{ "data", IG_PARAM_SKIP }, /* encrypted: nobody can read it here */
	{ .more = block_params },
	{ NULL },
};

static const struct ig_param tool_use_params[] = {
	{ "id", IG_PARAM_TEXT, AT(id), .required = true },
	{ "name", IG_PARAM_TEXT, AT(name), .required = true },
	{ "input", IG_PARAM_OBJECT, AT(input), .required = true },
	{ "caller", IG_PARAM_SKIP },
	{ .more = block_params },
	{ NULL },
};

static const struct ig_param tool_result_params[] = {
	{ "tool_use_id", IG_PARAM_TEXT, AT(id), .required = true },
	{ "content", IG_PARAM_SKIP },
	{ "is_error", IG_PARAM_BOOLEAN, AT(is_error) },
	{ .more = block_params },
	{ NULL },
};

static int add_text(struct ig_request *r, struct turn *t, const struct block *b,
		    struct ig_api_error *e)
{
	return join(&t->text, json_incref(b->text), e);
}

static int add_thinking(struct ig_request *r, struct turn *t, const struct block *b,
			struct ig_api_error *e)
{
	return join(&t->reasoning, json_incref(b->text), e);
}

static int add_nothing(struct ig_request *r, struct turn *t, const struct block *b,
		       struct ig_api_error *e)
{
	return 0;
}

static int add_tool_use(struct ig_request *r, struct turn *t, const struct block *b,
			struct ig_api_error *e)
{
	if (!t->calls)
		t->calls = json_array();
	json_t *call = json_pack("{s:O, s:s, s:{s:O, s:O}}", "id", b->id, "type", "function",
				 "function", "name", b->name, "arguments", b->input);
	return json_array_append_new(t->calls, call) < 0 ? ig_fail_memory(e) : 0;
}

static int add_tool_result(struct ig_request *r, struct turn *t, const struct block *b,
			   struct ig_api_error *e)
{
	json_t *text = NULL;
	char at[160];

	ig_member_name(at, sizeof at, b->at, "content");
	if (!b->content || json_is_null(b->content))
		text = json_string("");
	else if (ig_read_content(r, &text, at, b->content, ig_text_types, e) < 0)
		return -1;
	/* Templates have no place for a failure, so the text says it. */
	if (json_is_true(b->is_error)) {
		json_t *marked = json_sprintf("Error: %s", json_string_value(text));
		json_decref(text);
		text = marked;
	}
	ig_member_name(at, sizeof at, b->at, "tool_use_id");
	return ig_request_add_result(r, b->id, text, at, "tool_use", e);
}

static int read_block(struct ig_request *r, struct turn *t, bool assistant, json_t *v,
		      const char *at, struct ig_api_error *e)
{
	static const struct {
		const char *type;
		bool user, assistant;
		const struct ig_param *params;
		int (*add)(struct ig_request *r, struct turn *t, const struct block *b,
			   struct ig_api_error *e);
	} kinds[] = {
		{ "text", true, true, text_params, add_text },
		{ "thinking", false, true, thinking_params, add_thinking },
		{ "redacted_thinking", false, true, redacted_params, add_nothing },
		{ "tool_use", false, true, tool_use_params, add_tool_use },
		{ "tool_result", true, false, tool_result_params, add_tool_result },
	};
	struct block b = { .at = at, .content = json_object_get(v, "content") };
	char sub[160];
	const char *type;

	if (ig_read_type(&type, at, v, e) < 0)
		return -1;
	for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
		if (strcmp(kinds[i].type, type) ||
		    !(assistant ? kinds[i].assistant : kinds[i].user))
			continue;
		return ig_params_read(r, &b, kinds[i].params, at, v, e) < 0 ?
			       -1 :
			       kinds[i].add(r, t, &b, e);
	}
	ig_member_name(sub, sizeof sub, at, "type");
	return ig_request_ignore(r, sub, type,
				 assistant ? "text, thinking and tool_use of the assistant" :
					     "text and tool_result of the user",
				 e);
}

/* ---- messages ------------------------------------------------------------------------ */

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
	return ig_request_add(r,
			      json_pack("{s:s, s:o, s:O*, s:O*}", "role", role, "content",
					t->text ? json_incref(t->text) : json_string(""),
					"tool_calls", t->calls, "reasoning_content", t->reasoning),
			      e);
}

static const struct ig_param message_params[] = {
	{ "role", IG_PARAM_TEXT, .required = true },
	{ "content", IG_PARAM_SKIP },
	{ .more = block_params },
	{ NULL },
};

static int read_message(struct ig_request *r, size_t i, json_t *m, struct ig_api_error *e)
{
	struct turn t = { 0 };
	char at[96];
	json_t *content = json_object_get(m, "content");
	int rc = 0;

	snprintf(at, sizeof at, "messages[%zu]", i);
	if (ig_params_read(r, &t, message_params, at, m, e) < 0)
		return -1;
	const char *role = ig_json_text(m, "role");
	bool assistant = !strcmp(role, "assistant");
	snprintf(at, sizeof at, "messages[%zu].role", i);
	if (strcmp(role, "user") && !assistant)
		return ig_fail_value(e, at, "expected user or assistant");
	snprintf(at, sizeof at, "messages[%zu].content", i);
	if (!content)
		return ig_fail_missing(e, at);
	if (!json_is_string(content) && !json_is_array(content))
		return ig_fail_type(e, at, "a string or a list of blocks", content);
	if (json_is_string(content))
		t.text = json_incref(content);
	for (size_t k = 0; !rc && k < json_array_size(content); k++) {
		snprintf(at, sizeof at, "messages[%zu].content[%zu]", i, k);
		rc = read_block(r, &t, assistant, json_array_get(content, k), at, e);
	}
	/* Results alone do not make a turn of the user. */
	if (!rc && (t.text || t.calls || t.reasoning))
		rc = add_turn(r, role, &t, e);
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
		return ig_fail_value(
			e, name,
			"the last message must be the user's: an assistant's message can't "
			"be continued");
	return 0;
}

/* ---- parameters ---------------------------------------------------------------------- */

static int param_system(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	json_t *text;

	if (ig_read_content(r, &text, name, v, ig_text_types, e) < 0)
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

/* By the name that templates have for it; the template of a model that always thinks, or never
 * does, ignores it. */
static int param_thinking(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	static const char *const types[] = { "enabled", "disabled", "adaptive", NULL };
	const char *type = ig_json_text(v, "type");

	if (!json_is_object(v))
		return ig_fail_type(e, name, "an object", v);
	if (!type || !ig_is_one_of(type, types))
		return ig_fail_value(e, "thinking.type", "expected enabled, adaptive or disabled");
	r->template_vars = json_pack("{s:b}", "enable_thinking", strcmp(type, "disabled") != 0);
	return r->template_vars ? 0 : ig_fail_memory(e);
}

static int param_metadata(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	static const struct ig_param params[] = { { "user_id", IG_PARAM_TEXT }, { NULL } };

	return ig_params_read(r, r, params, name, v, e);
}

static int param_output(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	static const struct ig_param params[] = { { "format", .read = ig_param_format_flat },
						  { NULL } };

	return ig_params_read(r, r, params, name, v, e);
}

static const struct ig_param count_table[] = {
	{ "model", IG_PARAM_STRING, IG_AT(model) },
	{ "messages", .read = param_messages, .required = true },
	{ "system", .read = param_system },
	{ "tools", .read = param_tools },
	{ "tool_choice", .read = param_tool_choice },
	{ "thinking", .read = param_thinking },
	{ "output_config", .read = param_output },
	{ "cache_control", IG_PARAM_OBJECT },
	{ NULL },
};

static const struct ig_param table[] = {
	{ "max_tokens", .read = ig_param_max_tokens },
	{ "stop_sequences", .read = ig_param_stop },
	{ "stream", IG_PARAM_BOOL, IG_AT(stream) },
	{ "temperature", IG_PARAM_NUMBER, IG_AT(sampling.temperature), 0, 2 },
	{ "top_p", IG_PARAM_ABOVE, IG_AT(sampling.top_p), 0, 1 },
	{ "top_k", IG_PARAM_INT, IG_AT(sampling.top_k), 0, INT32_MAX },
	{ "metadata", .read = param_metadata },
	{ "service_tier", IG_PARAM_NOTED, .values = "\"auto\" or \"standard_only\"" },
	{ .more = count_table },
	{ NULL },
};

static int check(struct ig_request *r, json_t *root, struct ig_api_error *e)
{
	return r->sampling.max_tokens ? ig_check_tool_choice(r, "tool_choice", e) :
					ig_fail_missing(e, "max_tokens");
}

static int check_count(struct ig_request *r, json_t *root, struct ig_api_error *e)
{
	return ig_check_tool_choice(r, "tool_choice", e);
}

const struct ig_request_format ig_messages_request = { table, check };
const struct ig_request_format ig_count_request = { count_table, check_count };
