/*
 * completion_grammar.c: the grammar for required tool calls.  Each tool is one choice: the text
 * before the arguments in the model's format, the schema of the tool's parameters, the text after
 * them.  If a schema is refused, this file finds out which tool it belongs to.
 */
#include "model/chat/completion.h"

#include "base/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CALLS 16 /* required tool calls in one completion */
#define MAX_TOOLS 1024
#define MAX_PARTS 5

struct tool {
	const char *name;
	size_t name_len;
	size_t index; /* in the list */
	json_t *schema;
	char *head; /* the text before its arguments */
	struct ig_grammar_part parts[MAX_PARTS];
};

struct source {
	struct tool *tools;
	struct ig_grammar_choice *choices;
	size_t n;
};

static int no_memory(struct ig_error *err)
{
	return ig_fail(err, -ENOMEM, "out of memory for the tools' grammar");
}

/* ---- the tools ---------------------------------------------------------------------------- */

/* Parameters are an object, even if their schema has no type. */
static int take_schema(const json_t *function, struct tool *t, struct ig_error *err)
{
	json_t *given = json_object_get(function, "parameters"), *type;

	if (!given || json_is_null(given)) {
		t->schema = json_pack("{s:s, s:{}}", "type", "object", "properties");
		return t->schema ? 0 : no_memory(err);
	}
	if (!json_is_object(given))
		return ig_fail(err, -EINVAL, "tools[%zu].function.parameters: not an object",
			       t->index);
	type = json_object_get(given, "type");
	if (json_is_string(type) && !strcmp(json_string_value(type), "object")) {
		t->schema = json_incref(given);
		return 0;
	}
	if (json_is_string(type))
		return ig_fail(err, -EINVAL,
			       "tools[%zu].function.parameters: the type is '%.40s', and "
			       "parameters are an object",
			       t->index, json_string_value(type));
	t->schema = ig_json_copy(given);
	if (!t->schema || json_object_set_new(t->schema, "type", json_string("object")))
		return no_memory(err);
	return 0;
}

/* In Mistral's newer format a name is unquoted between two control tokens. */
static bool is_bare_name(const char *s, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!((s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z') ||
		      (s[i] >= '0' && s[i] <= '9') || strchr("_-.:/", s[i])) ||
		    !s[i])
			return false;
	return true;
}

static int take_tool(const struct ig_completion_style *s, const json_t *tool, struct tool *t,
		     struct ig_error *err)
{
	const json_t *function = json_object_get(tool, "function");
	const json_t *name = json_object_get(function, "name");

	t->name = json_string_value(name);
	t->name_len = json_string_length(name);
	if (!t->name_len || memchr(t->name, 0, t->name_len))
		return ig_fail(err, -EINVAL, "tools[%zu].function.name: not a name", t->index);
	if (s->calls == IG_TOOL_CALLS_MISTRAL && s->name_args &&
	    !is_bare_name(t->name, t->name_len))
		return ig_fail(err, -EINVAL,
			       "tools[%zu].function.name: '%.40s' has characters that this model "
			       "can't write in a name",
			       t->index, t->name);
	return take_schema(function, t, err);
}

/* ---- texts ---------------------------------------------------------------------------------- */

static void add_text(struct tool *t, struct ig_grammar_choice *c, const char *text)
{
	t->parts[c->n_parts++] = (struct ig_grammar_part){ .kind = IG_GRAMMAR_TEXT,
							   .text = text,
							   .len = strlen(text) };
}

/* {"name": "…", "<key>": as tojson in templates writes it. */
static int write_head(struct tool *t, const char *before, const char *key, struct ig_error *err)
{
	struct ig_strbuf b = { 0 };
	struct ig_json_writer w = { .out = &b, .spaced = true };

	ig_strbuf_puts(&b, before);
	ig_json_open_object(&w, NULL);
	ig_json_put_string(&w, "name", t->name, t->name_len);
	ig_json_put_key(&w, key, strlen(key));
	t->head = ig_strbuf_steal(&b);
	ig_strbuf_finish(&b);
	return t->head ? 0 : no_memory(err);
}

static int write_choice(const struct ig_completion_style *s, struct tool *t,
			struct ig_grammar_choice *c, struct ig_error *err)
{
	struct ig_grammar_part schema = { .kind = IG_GRAMMAR_SCHEMA, .schema = t->schema };
	bool hermes = s->calls == IG_TOOL_CALLS_HERMES;
	int rc;

	c->parts = t->parts;
	if (s->calls == IG_TOOL_CALLS_MISTRAL && s->name_args) {
		add_text(t, c, "[TOOL_CALLS]");
		add_text(t, c, t->name);
		add_text(t, c, "[ARGS]");
		t->parts[c->n_parts++] = schema;
		return 0;
	}
	rc = write_head(t, hermes ? "\n" : "",
			s->calls == IG_TOOL_CALLS_LLAMA3 ? "parameters" : "arguments", err);
	if (rc)
		return rc;
	if (hermes)
		add_text(t, c, "<tool_call>");
	add_text(t, c, t->head);
	t->parts[c->n_parts++] = schema;
	add_text(t, c, hermes ? "}\n" : "}");
	if (hermes)
		add_text(t, c, "</tool_call>");
	return 0;
}

static void set_frame(const struct ig_completion_style *s, struct ig_grammar_source *g)
{
	g->before = ig_completion_prefix(s);
	if (s->calls == IG_TOOL_CALLS_HERMES) {
		g->between = "\n";
	} else if (s->calls == IG_TOOL_CALLS_LLAMA3) {
		g->between = "; ";
	} else if (!s->name_args) {
		g->before = s->opens_reasoning ? "</think>\n\n[TOOL_CALLS][" : "[TOOL_CALLS][";
		g->between = ", ";
		g->after = "]";
	}
}

const char *ig_completion_prefix(const struct ig_completion_style *s)
{
	return s->opens_reasoning ? "</think>\n\n" : NULL;
}

/* ---- the grammar ---------------------------------------------------------------------------- */

static void finish_source(struct source *x)
{
	for (size_t i = 0; i < x->n; i++) {
		json_decref(x->tools[i].schema);
		free(x->tools[i].head);
	}
	free(x->tools);
	free(x->choices);
}

static int fill_source(const struct ig_completion_style *s, const json_t *tools, const char *name,
		       struct source *x, struct ig_error *err)
{
	size_t n = json_array_size(tools);

	if (!n)
		return ig_fail(err, -EINVAL, "tools: there is no tool to call");
	if (n > MAX_TOOLS)
		return ig_fail(err, -EINVAL, "tools: %zu are more than %d", n, MAX_TOOLS);
	x->tools = calloc(n, sizeof *x->tools);
	x->choices = calloc(n, sizeof *x->choices);
	if (!x->tools || !x->choices)
		return no_memory(err);
	for (size_t i = 0; i < n; i++) {
		const json_t *tool = json_array_get(tools, i);
		const json_t *f = json_object_get(json_object_get(tool, "function"), "name");
		struct tool *t = &x->tools[x->n];
		int rc;

		if (name && (!json_is_string(f) || strcmp(json_string_value(f), name)))
			continue;
		x->n++;
		t->index = i;
		if ((rc = take_tool(s, tool, t, err)) ||
		    (rc = write_choice(s, t, &x->choices[x->n - 1], err)))
			return rc;
		if (name)
			break;
	}
	return x->n ? 0 : ig_fail(err, -EINVAL, "tools: there is none named '%.60s'", name);
}

/* Find the tool whose schema alone is refused too, and name it in err. */
static int blame(const struct ig_tokenizer *t, const struct source *x, int rc, struct ig_error *err)
{
	for (size_t i = 0; i < x->n; i++) {
		struct ig_grammar_part part = { .kind = IG_GRAMMAR_SCHEMA,
						.schema = x->tools[i].schema };
		struct ig_grammar_choice choice = { &part, 1 };
		struct ig_grammar_source source = { .choices = &choice,
						    .n_choices = 1,
						    .max_repeats = 1 };
		struct ig_grammar *g;
		struct ig_error why = { 0 };
		int one = ig_grammar_compile(t, &source, &g, &why);

		if (!one) {
			ig_grammar_unref(g);
			continue;
		}
		if (one == -ENOMEM)
			return no_memory(err);
		return ig_fail(err, one, "tools[%zu].function.parameters: %.440s",
			       x->tools[i].index, why.text);
	}
	return rc;
}

int ig_completion_tool_grammar(const struct ig_completion_style *s, const struct ig_tokenizer *t,
			       struct ig_grammar_cache *cache, const struct json_t *tools,
			       const char *name, bool parallel, struct ig_grammar **out,
			       struct ig_error *err)
{
	struct ig_grammar_source source = { .max_repeats = parallel ? MAX_CALLS : 1 };
	struct source x = { 0 };
	int rc;

	*out = NULL;
	if (s->calls == IG_TOOL_CALLS_NONE)
		return ig_fail(err, -ENOTSUP, "the model's chat template does not support tools");
	rc = fill_source(s, tools, name, &x, err);
	if (!rc) {
		source.choices = x.choices;
		source.n_choices = x.n;
		set_frame(s, &source);
		rc = ig_grammar_cache_get(cache, t, &source, out, err);
		if (rc == -EINVAL || rc == -E2BIG)
			rc = blame(t, &x, rc, err);
	}
	finish_source(&x);
	return rc;
}
