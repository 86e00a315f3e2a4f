/*
 * messages_request.c: the bodies of Anthropic's POST /v1/messages and count_tokens.  Their blocks
 * become messages as in chat completions: a tool_use is a tool call of the assistant's message, a
 * tool_result a message of role tool, thinking its reasoning.  Consecutive messages of one role are
 * one turn; one of role system stays where it is.
 */
#include "daemon/protocol/core/params.h"
#include "daemon/protocol/messages/messages.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a turn ------------------------------------------------------------------------- */

enum { USER = 1, ASSISTANT = 2, SYSTEM = 4 };

static const char *const role_names[] = {
	[USER] = "user", [ASSISTANT] = "assistant", [SYSTEM] = "system"
};

/* One turn while its messages are read. */
struct turn {
	int role;			  /* 0: none */
	struct ig_strbuf text, reasoning; /* of the blocks so far, joined by newlines */
	bool has_text, has_reasoning;
	json_t *calls; /* NULL: none */
};

static void turn_finish(struct turn *t)
{
	ig_strbuf_finish(&t->text);
	ig_strbuf_finish(&t->reasoning);
	json_decref(t->calls);
	*t = (struct turn){ 0 };
}

static void join(struct ig_strbuf *to, const char *text, size_t len)
{
	if (to->len)
		ig_strbuf_puts(to, "\n");
	ig_strbuf_add(to, text, len);
}

static bool is_blank(const struct turn *t)
{
	const char *s = ig_strbuf_text(&t->text);

	return strspn(s, " \t\r\n") == t->text.len;
}

/* NULL without memory. */
static json_t *text_of(const struct ig_strbuf *b)
{
	return ig_strbuf_ok(b) ? json_stringn_nocheck(ig_strbuf_text(b), b->len) : NULL;
}

/* The turn is complete: append its message, if it has anything. */
static int close_turn(struct ig_request *r, struct turn *t, struct ig_api_error *e)
{
	json_t *reasoning = NULL, *m;
	int rc = 0;

	if (t->has_reasoning)
		reasoning = text_of(&t->reasoning);
	if (!ig_strbuf_ok(&t->text) || (t->has_reasoning && !reasoning)) {
		rc = ig_fail_memory(e);
	} else if (t->has_text || t->has_reasoning || t->calls) {
		m = json_pack("{s:s, s:s%, s:O*, s:O*}", "role", role_names[t->role], "content",
			      ig_strbuf_text(&t->text), t->text.len, "tool_calls", t->calls,
			      "reasoning_content", reasoning);
		rc = ig_request_add(r, m, e);
	}
	json_decref(reasoning);
	turn_finish(t);
	return rc;
}

/* ---- blocks -------------------------------------------------------------------------- */

struct block {
	const char *at;
	json_t *text, *id, *name, *input, *content, *is_error, *signature;
};
#define AT(member) offsetof(struct block, member)

/* Of every block: prefixes are cached without cache_control. */
static const struct ig_param block_params[] = {
	{ "type", IG_PARAM_SKIP },
	{ "cache_control", IG_PARAM_OBJECT },
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
	{ "signature", IG_PARAM_TEXT, AT(signature) },
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
	join(&t->text, json_string_value(b->text), json_string_length(b->text));
	t->has_text = true;
	return 0;
}

/* Thinking that the client did not want to see is in the signature. */
static int add_thinking(struct ig_request *r, struct turn *t, const struct block *b,
			struct ig_api_error *e)
{
	const char *signature = json_string_value(b->signature);
	size_t n = strlen(IG_OMITTED_THINKING);

	if (!json_string_length(b->text) && signature &&
	    !strncmp(signature, IG_OMITTED_THINKING, n))
		join(&t->reasoning, signature + n, json_string_length(b->signature) - n);
	else
		join(&t->reasoning, json_string_value(b->text), json_string_length(b->text));
	t->has_reasoning = true;
	return 0;
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
		struct ig_strbuf marked = { 0 };
		ig_strbuf_puts(&marked, "Error: ");
		ig_strbuf_add(&marked, json_string_value(text), json_string_length(text));
		json_decref(text);
		text = text_of(&marked);
		ig_strbuf_finish(&marked);
	}
	ig_member_name(at, sizeof at, b->at, "tool_use_id");
	return ig_request_add_result(r, b->id, text, at, "tool_use", e);
}

static int read_block(struct ig_request *r, struct turn *t, json_t *v, const char *at,
		      struct ig_api_error *e)
{
	static const struct {
		const char *type;
		int roles;
		const struct ig_param *params;
		int (*add)(struct ig_request *r, struct turn *t, const struct block *b,
			   struct ig_api_error *e);
	} kinds[] = {
		{ "text", USER | ASSISTANT | SYSTEM, text_params, add_text },
		{ "thinking", ASSISTANT, thinking_params, add_thinking },
		{ "redacted_thinking", ASSISTANT, redacted_params, add_nothing },
		{ "tool_use", ASSISTANT, tool_use_params, add_tool_use },
		{ "tool_result", USER, tool_result_params, add_tool_result },
	};
	static const char *const known[] = {
		[USER] = "text and tool_result of the user",
		[ASSISTANT] = "text, thinking and tool_use of the assistant",
		[SYSTEM] = "text of the system",
	};
	struct block b = { .at = at, .content = json_object_get(v, "content") };
	char sub[160];
	const char *type;

	if (ig_read_type(&type, at, v, e) < 0)
		return -1;
	for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
		if (!strcmp(kinds[i].type, type) && (kinds[i].roles & t->role))
			return ig_params_read(r, &b, kinds[i].params, at, v, e) < 0 ?
				       -1 :
				       kinds[i].add(r, t, &b, e);
	ig_member_name(sub, sizeof sub, at, "type");
	return ig_request_ignore(r, sub, type, known[t->role], e);
}

/* A string or a list of blocks. */
static int read_content(struct ig_request *r, struct turn *t, json_t *v, const char *at,
			struct ig_api_error *e)
{
	char sub[128];

	if (!json_is_string(v) && !json_is_array(v))
		return ig_fail_type(e, at, "a string or a list of blocks", v);
	if (json_is_string(v)) {
		join(&t->text, json_string_value(v), json_string_length(v));
		t->has_text = true;
	}
	for (size_t k = 0; k < json_array_size(v); k++) {
		snprintf(sub, sizeof sub, "%s[%zu]", at, k);
		if (read_block(r, t, json_array_get(v, k), sub, e) < 0)
			return -1;
	}
	return 0;
}

/* ---- messages ------------------------------------------------------------------------ */

static const struct ig_param message_params[] = {
	{ "role", IG_PARAM_TEXT, .required = true },
	{ "content", IG_PARAM_SKIP },
	{ .more = block_params },
	{ NULL },
};

static bool has_block(const json_t *content, const char *type)
{
	for (size_t i = 0; i < json_array_size(content); i++) {
		const char *have = ig_json_text(json_array_get(content, i), "type");
		if (have && !strcmp(have, type))
			return true;
	}
	return false;
}

static int read_role(json_t *m, const char *at, struct ig_api_error *e)
{
	const char *role = ig_json_text(m, "role");

	for (int i = USER; i <= SYSTEM; i *= 2)
		if (!strcmp(role, role_names[i]))
			return i;
	return ig_fail_value(e, at, "expected user, assistant or system");
}

/* *any: something of a message was not left out. */
static int read_message(struct ig_request *r, struct turn *t, size_t i, json_t *m, bool *any,
			struct ig_api_error *e)
{
	json_t *content = json_object_get(m, "content");
	char at[96];

	snprintf(at, sizeof at, "messages[%zu]", i);
	if (ig_params_read(r, t, message_params, at, m, e) < 0)
		return -1;
	snprintf(at, sizeof at, "messages[%zu].role", i);
	int role = read_role(m, at, e);
	if (role < 0)
		return -1;
	snprintf(at, sizeof at, "messages[%zu].content", i);
	if (!content || json_is_null(content))
		return ig_fail_missing(e, at);
	bool results = role == USER && has_block(content, "tool_result");
	/* Results come before a text of the same message; thinking begins a message. */
	if ((t->role != role || results || (role == ASSISTANT && has_block(content, "thinking"))) &&
	    close_turn(r, t, e) < 0)
		return -1;
	t->role = role;
	if (read_content(r, t, content, at, e) < 0)
		return -1;
	*any |= results || t->has_text || t->has_reasoning || t->calls;
	/* Results alone do not make a turn of the user; blocks that were left out do. */
	t->has_text |= role == USER && !results;
	return 0;
}

/* The last turn is the assistant's: the output continues its text. */
static int close_prefill(struct ig_request *r, struct turn *t, const char *name,
			 struct ig_api_error *e)
{
	if (t->calls)
		return ig_fail_value(e, name, "the last message has a tool_use without a result");
	if (is_blank(t)) /* nothing to continue */
		return 0;
	r->continues = true;
	return close_turn(r, t, e);
}

static int param_messages(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	struct turn t = { 0 };
	bool any = false;
	int rc = 0;

	if (!json_is_array(v))
		return ig_fail_type(e, name, "a list", v);
	if (!json_array_size(v))
		return ig_fail_value(e, name, "expected at least one message");
	for (size_t i = 0; !rc && i < json_array_size(v); i++)
		rc = read_message(r, &t, i, json_array_get(v, i), &any, e);
	if (!rc)
		rc = t.role == ASSISTANT ? close_prefill(r, &t, name, e) : close_turn(r, &t, e);
	turn_finish(&t);
	if (!rc && (!any || !r->messages))
		rc = ig_fail_value(e, name, "no message has a content that is known here");
	return rc;
}

/* ---- parameters ---------------------------------------------------------------------- */

static int param_system(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	struct turn t = { .role = SYSTEM };
	int rc = read_content(r, &t, v, name, e);

	json_t *text = rc ? NULL : text_of(&t.text);
	if (!rc && !text)
		rc = ig_fail_memory(e);
	if (json_string_length(text)) {
		json_decref(r->instructions);
		r->instructions = json_incref(text);
	}
	json_decref(text);
	turn_finish(&t);
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

/* A variable of the chat template; takes value over.  The template of a model that lacks it
 * ignores it. */
static int set_variable(struct ig_request *r, const char *name, json_t *value,
			struct ig_api_error *e)
{
	if (!r->template_vars)
		r->template_vars = json_object();
	return json_object_set_new(r->template_vars, name, value) < 0 ? ig_fail_memory(e) : 0;
}

/* When the model thinks, it decides itself. */
static int param_thinking_type(struct ig_request *r, const char *name, json_t *v,
			       struct ig_api_error *e)
{
	static const char *const types[] = { "enabled", "disabled", "adaptive", "between_tools",
					     NULL };
	const char *type = json_string_value(v);

	if (!type)
		return ig_fail_type(e, name, "a string", v);
	if (!ig_is_one_of(type, types))
		return ig_request_ignore(r, name, type,
					 "enabled, adaptive, between_tools or disabled", e);
	return set_variable(r, "enable_thinking", json_boolean(strcmp(type, "disabled") != 0), e);
}

/* Thinking is never summarized: it is sent as the model wrote it, or not at all. */
static int param_display(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	static const char *const displays[] = { "summarized", "updates", "omitted", NULL };
	const char *display = json_string_value(v);

	if (!display)
		return ig_fail_type(e, name, "a string", v);
	if (!ig_is_one_of(display, displays))
		return ig_request_ignore(r, name, display, "summarized, updates or omitted", e);
	r->omits_reasoning = !strcmp(display, "omitted");
	return 0;
}

static int param_thinking(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	static const struct ig_param params[] = {
		{ "type", .read = param_thinking_type, .required = true },
		{ "budget_tokens", IG_PARAM_INT, 0, 0, INT32_MAX }, /* max_tokens is the limit */
		{ "display", .read = param_display },
		{ NULL },
	};

	return ig_params_read(r, r, params, name, v, e);
}

static int param_metadata(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	static const struct ig_param params[] = { { "user_id", IG_PARAM_TEXT }, { NULL } };

	return ig_params_read(r, r, params, name, v, e);
}

static int param_effort(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	static const char *const efforts[] = { "low", "medium", "high", "xhigh", "max", NULL };
	const char *effort = json_string_value(v);

	if (!effort)
		return ig_fail_type(e, name, "a string", v);
	if (!ig_is_one_of(effort, efforts))
		return ig_request_ignore(r, name, effort, "low, medium, high, xhigh or max", e);
	return set_variable(r, "reasoning_effort", json_string(effort), e);
}

static int param_output(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	static const struct ig_param params[] = {
		{ "format", .read = ig_param_format_flat },
		{ "effort", .read = param_effort },
		{ "task_budget", IG_PARAM_NOTED, .values = "{}" },
		{ NULL },
	};

	return ig_params_read(r, r, params, name, v, e);
}

/* Nothing is cleared here, which is what Claude Code asks for. */
static int read_edit(struct ig_request *r, json_t *v, const char *at, struct ig_api_error *e)
{
	static const struct ig_param params[] = {
		{ "type", IG_PARAM_SKIP },
		{ "keep", IG_PARAM_SKIP },
		{ NULL },
	};
	const char *type, *keep = ig_json_text(v, "keep");
	char sub[160];

	if (ig_read_type(&type, at, v, e) < 0)
		return -1;
	if (!strncmp(type, "clear_thinking_", 15) && keep && !strcmp(keep, "all"))
		return ig_params_read(r, r, params, at, v, e);
	ig_member_name(sub, sizeof sub, at, "type");
	return ig_request_ignore(r, sub, type, "clear_thinking with keep \"all\"", e);
}

static int param_edits(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	char at[96];

	if (!json_is_array(v))
		return ig_fail_type(e, name, "a list", v);
	for (size_t i = 0; i < json_array_size(v); i++) {
		snprintf(at, sizeof at, "%s[%zu]", name, i);
		if (read_edit(r, json_array_get(v, i), at, e) < 0)
			return -1;
	}
	return 0;
}

static int param_context(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e)
{
	static const struct ig_param params[] = { { "edits", .read = param_edits }, { NULL } };

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
	{ "context_management", .read = param_context },
	{ "diagnostics", IG_PARAM_NOTED, .values = "{}" },
	{ "mcp_servers", IG_PARAM_NOTED, .values = "[]" },
	{ "speed", IG_PARAM_NOTED, .values = "\"standard\"" },
	{ .more = ig_normalize_params },
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
	{ .more = ig_order_params },
	{ .more = count_table },
	{ NULL },
};

static int check_count(struct ig_request *r, json_t *root, struct ig_api_error *e)
{
	if (r->continues && r->form != IG_OUTPUT_FREE)
		return ig_fail_value(e, "output_config.format",
				     "not with a last message of the assistant, whose text the "
				     "format would have to continue");
	return ig_check_tool_choice(r, "tool_choice", e);
}

static int check(struct ig_request *r, json_t *root, struct ig_api_error *e)
{
	return r->sampling.max_tokens ? check_count(r, root, e) : ig_fail_missing(e, "max_tokens");
}

const struct ig_request_format ig_messages_request = { table, check };
const struct ig_request_format ig_count_request = { count_table, check_count };
