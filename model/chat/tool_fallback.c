/*
 * tool_fallback.c: tools for a model whose template knows none.  A conversation with tools becomes one
 * without: the tools are described in the system message, earlier calls are texts in assistant turns,
 * and results are texts in user turns, all in Hermes' format, which is the most common one.
 */
#include "model/chat/completion.h"

#include "base/json.h"

#include <errno.h>
#include <string.h>

static const char intro[] =
	"# Tools\n\nYou may call one or more functions to help with the user's request. The "
	"signatures of the functions are within <tools></tools> tags:\n<tools>\n";
static const char outro[] =
	"</tools>\n\nTo call a function, write a JSON object with its name and arguments within "
	"<tool_call></tool_call> tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": "
	"<arguments-object>}\n</tool_call>\nThe results come within <tool_response></tool_response> "
	"tags. Call a function only if it is needed; otherwise answer the user.";

struct fallback {
	json_t *out;
	struct ig_strbuf text; /* of the message that is being made */
	bool failed;
};

static void add_content(struct fallback *f, const json_t *message)
{
	const json_t *content = json_object_get(message, "content");

	ig_strbuf_add(&f->text, json_string_value(content), json_string_length(content));
}

/* A message of this role with the text so far, and what else the message had. */
static void put_message(struct fallback *f, const json_t *message, const char *role)
{
	json_t *m = message ? ig_json_copy(message) : json_object();
	json_t *text = json_stringn(ig_strbuf_text(&f->text), f->text.len);

	json_object_del(m, "tool_calls");
	json_object_del(m, "tool_call_id");
	json_object_del(m, "name");
	if (!m || !ig_strbuf_ok(&f->text) || json_object_set_new(m, "role", json_string(role)) ||
	    json_object_set(m, "content", text) || json_array_append(f->out, m))
		f->failed = true;
	json_decref(text);
	json_decref(m);
	ig_strbuf_clear(&f->text);
}

static void describe(struct fallback *f, const json_t *tools)
{
	struct ig_json_writer w = { .out = &f->text, .spaced = true };
	const json_t *tool;
	size_t i;

	ig_strbuf_puts(&f->text, intro);
	json_array_foreach(tools, i, tool)
	{
		w.comma = false;
		ig_json_put_value(&w, NULL, tool);
		ig_strbuf_puts(&f->text, "\n");
	}
	ig_strbuf_puts(&f->text, outro);
}

/* Arguments that are a text: JSON, or what a model made of it. */
static void put_raw(struct ig_json_writer *w, const char *key, const json_t *text)
{
	ig_json_put_key(w, key, strlen(key));
	ig_strbuf_add(w->out, json_string_value(text), json_string_length(text));
	w->comma = true;
}

static void add_calls(struct fallback *f, const json_t *calls)
{
	const json_t *call;
	size_t i;

	json_array_foreach(calls, i, call)
	{
		const json_t *function = json_object_get(call, "function");
		const json_t *name = json_object_get(function, "name");
		const json_t *arguments = json_object_get(function, "arguments");
		struct ig_json_writer w = { .out = &f->text, .spaced = true };

		if (f->text.len)
			ig_strbuf_puts(&f->text, "\n");
		ig_strbuf_puts(&f->text, "<tool_call>\n");
		ig_json_open_object(&w, NULL);
		ig_json_put_string(&w, "name", json_string_value(name), json_string_length(name));
		if (json_is_string(arguments))
			put_raw(&w, "arguments", arguments);
		else
			ig_json_put_value(&w, "arguments", arguments);
		ig_json_close_object(&w);
		ig_strbuf_puts(&f->text, "\n</tool_call>");
	}
}

static bool has_role(const json_t *message, const char *role)
{
	const char *s = ig_json_text(message, "role");

	return s && !strcmp(s, role);
}

/* Results and neighbouring user messages are one turn: many templates want turns to alternate. */
static size_t put_user_turn(struct fallback *f, const json_t *messages, size_t i)
{
	const json_t *m;

	for (; (m = json_array_get(messages, i)) && (has_role(m, "user") || has_role(m, "tool"));
	     i++) {
		bool result = has_role(m, "tool");
		if (f->text.len)
			ig_strbuf_puts(&f->text, result ? "\n" : "\n\n");
		if (result)
			ig_strbuf_puts(&f->text, "<tool_response>\n");
		add_content(f, m);
		if (result)
			ig_strbuf_puts(&f->text, "\n</tool_response>");
	}
	put_message(f, NULL, "user");
	return i;
}

int ig_tool_fallback(const json_t *messages, const json_t *tools, json_t **out)
{
	struct fallback f = { .out = json_array() };
	size_t i = 0, n = json_array_size(messages);
	const json_t *m = json_array_get(messages, 0);

	f.failed = !f.out;
	if (json_array_size(tools)) {
		bool system = has_role(m, "system");
		if (system)
			add_content(&f, m);
		if (f.text.len)
			ig_strbuf_puts(&f.text, "\n\n");
		describe(&f, tools);
		put_message(&f, system ? m : NULL, "system");
		i = system;
	}
	while (i < n && !f.failed) {
		m = json_array_get(messages, i);
		if (has_role(m, "user") || has_role(m, "tool")) {
			i = put_user_turn(&f, messages, i);
			continue;
		}
		add_content(&f, m);
		if (has_role(m, "assistant"))
			add_calls(&f, json_object_get(m, "tool_calls"));
		put_message(&f, m, ig_json_text(m, "role"));
		i++;
	}
	ig_strbuf_finish(&f.text);
	if (f.failed) {
		json_decref(f.out);
		f.out = NULL;
	}
	*out = f.out;
	return f.failed ? -ENOMEM : 0;
}
