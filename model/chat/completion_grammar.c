/*
 * completion_grammar.c: the grammar for tool calls.  Each tool is one choice: the text before the
 * arguments in the model's format (tool_format.c), the schema of the tool's parameters, the text after
 * them.  If a schema is refused, this file finds out which tool it belongs to.
 */
#include "model/chat/completion_private.h"

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

/* In most formats a name is unquoted between two markers. */
static bool is_bare_name(const char *s, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!((s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z') ||
		      (s[i] >= '0' && s[i] <= '9') || strchr("_-.:/", s[i])) ||
		    !s[i])
			return false;
	return true;
}

static int take_tool(const struct ig_tool_format *f, const json_t *tool, bool free, struct tool *t,
		     struct ig_error *err)
{
	const json_t *function = json_object_get(tool, "function");
	const json_t *name = json_object_get(function, "name");

	t->name = json_string_value(name);
	t->name_len = json_string_length(name);
	if (!t->name_len || memchr(t->name, 0, t->name_len))
		return ig_fail(err, -EINVAL, "tools[%zu].function.name: not a name", t->index);
	if (!f->key && !is_bare_name(t->name, t->name_len))
		return ig_fail(err, -EINVAL,
			       "tools[%zu].function.name: '%.40s' has characters that this model "
			       "can't write in a name",
			       t->index, t->name);
	if (free && !json_is_true(json_object_get(function, "strict"))) {
		t->schema = json_pack("{s:s}", "type", "object");
		return t->schema ? 0 : no_memory(err);
	}
	return take_schema(function, t, err);
}

/* ---- texts ---------------------------------------------------------------------------------- */

static void add_text(struct tool *t, struct ig_grammar_choice *c, const char *text)
{
	if (text && *text)
		t->parts[c->n_parts++] = (struct ig_grammar_part){ .kind = IG_GRAMMAR_TEXT,
								   .text = text,
								   .len = strlen(text) };
}

/* The text before the arguments: {"name": "…", "<key>": as tojson in templates writes it, or the
 * bare name. */
static int write_head(const struct ig_tool_format *f, struct tool *t, struct ig_error *err)
{
	struct ig_strbuf b = { 0 };
	struct ig_json_writer w = { .out = &b, .spaced = true };

	ig_strbuf_puts(&b, f->head);
	if (f->key) {
		ig_json_open_object(&w, NULL);
		ig_json_put_string(&w, "name", t->name, t->name_len);
		ig_json_put_key(&w, f->key, strlen(f->key));
	} else {
		ig_strbuf_puts(&b, t->name);
		ig_strbuf_puts(&b, f->numbered ? ":" : f->neck);
	}
	t->head = ig_strbuf_steal(&b);
	ig_strbuf_finish(&b);
	return t->head ? 0 : no_memory(err);
}

static int write_choice(const struct ig_tool_format *f, struct tool *t, struct ig_grammar_choice *c,
			struct ig_error *err)
{
	int rc = write_head(f, t, err);

	if (rc)
		return rc;
	c->parts = t->parts;
	add_text(t, c, t->head);
	if (f->numbered) {
		t->parts[c->n_parts++] = (struct ig_grammar_part){ .kind = IG_GRAMMAR_REGEX,
								   .text = "[0-9]{1,4}",
								   .len = 10 };
		add_text(t, c, f->neck);
	}
	t->parts[c->n_parts++] = (struct ig_grammar_part){
		.kind = f->members ? IG_GRAMMAR_MEMBERS : IG_GRAMMAR_SCHEMA,
		.schema = t->schema,
		.members = f->members,
	};
	add_text(t, c, f->tail);
	return 0;
}

const char *ig_completion_prefix(const struct ig_completion_style *s)
{
	static const char *const closing[] = {
		[IG_THINK_TAG] = "</think>\n\n",
		[IG_THINK_BRACKET] = "[/THINK]",
		[IG_THINK_CHANNEL] = "<channel|>",
	};

	if (s->calls == IG_TOOL_CALLS_HARMONY)
		return "<|channel|>final<|message|>";
	return s->opens_reasoning ? closing[s->think] : NULL;
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

static int fill_source(const struct ig_tool_format *fmt, const json_t *tools,
		       const struct ig_tool_grammar *g, struct source *x, struct ig_error *err)
{
	const char *name = g->name;
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
		if ((rc = take_tool(fmt, tool, g->free || g->answer, t, err)) ||
		    (rc = write_choice(fmt, t, &x->choices[x->n - 1], err)))
			return rc;
		if (name)
			break;
	}
	return x->n ? 0 : ig_fail(err, -EINVAL, "tools: there is none named '%.60s'", name);
}

/* Name a tool in err, and what is wrong with its schema, or with the grammar of its input. */
static int blame_tool(const struct tool *t, int rc, const char *why, struct ig_error *err)
{
	const json_t *input = json_object_get(json_object_get(t->schema, "properties"), "input");
	const json_t *format = json_object_get(input, "x-ingot-grammar");
	const char *at = json_string_value(json_object_get(format, "at"));
	const char *what = at ? strstr(why, "x-ingot-grammar: ") : NULL;

	if (what)
		return ig_fail(err, rc, "%.60s: %.440s", at, strchr(what, ' ') + 1);
	return ig_fail(err, rc, "tools[%zu].function.parameters: %.440s", t->index, why);
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
		return blame_tool(&x->tools[i], one, why.text, err);
	}
	return rc;
}

/* What may come instead of calls, or around them. */
struct others {
	struct ig_grammar_part parts[2];
	struct ig_grammar_choice choice;
	struct ig_grammar_free free;
};

static void add_part(struct others *o, enum ig_grammar_part_kind kind, const char *text)
{
	o->parts[o->choice.n_parts++] =
		(struct ig_grammar_part){ .kind = kind, .text = text, .len = strlen(text) };
}

static void set_others(const struct ig_completion_style *s, const struct ig_tool_grammar *g,
		       struct ig_tool_format *f, struct ig_grammar_source *source, struct others *o)
{
	bool harmony = s->calls == IG_TOOL_CALLS_HARMONY;

	if (!g->answer && !g->free)
		return;
	o->choice = (struct ig_grammar_choice){ o->parts, 0 };
	source->free = &o->free;
	source->before = NULL;
	if (!harmony && (s->reasoning || s->opens_reasoning)) {
		o->free.think = ig_think_texts[s->think].begin;
		o->free.think_end = ig_think_texts[s->think].end;
		o->free.in_thought = s->opens_reasoning;
	}
	if (g->answer) {
		if (harmony)
			add_part(o, IG_GRAMMAR_TEXT, ig_completion_prefix(s));
		o->parts[o->choice.n_parts++] = *g->answer;
		o->free.alone = &o->choice;
		return;
	}
	if (f->other) {
		add_part(o, IG_GRAMMAR_REGEX, f->other);
		o->free.alone = &o->choice;
		return;
	}
	o->free.markers = f->free ? &f->free : f->begins;
	o->free.n_markers = 1;
	while (!f->free && o->free.n_markers < sizeof f->begins / sizeof *f->begins &&
	       f->begins[o->free.n_markers])
		o->free.n_markers++;
	if (f->free_head)
		f->head = f->free_head;
}

int ig_completion_tool_grammar(const struct ig_completion_style *s, const struct ig_tokenizer *t,
			       struct ig_grammar_cache *cache, const struct json_t *tools,
			       const struct ig_tool_grammar *g, struct ig_grammar **out,
			       struct ig_error *err)
{
	struct ig_tool_format f = ig_tool_format_of(s);
	struct ig_grammar_source source = {
		.max_repeats = g->parallel && !f.single ? MAX_CALLS : 1,
		.before = s->calls == IG_TOOL_CALLS_HARMONY ? NULL : ig_completion_prefix(s),
		.open = f.open,
		.between = f.between,
		.after = f.close,
	};
	struct source x = { 0 };
	struct others others = { 0 };
	int rc;

	*out = NULL;
	if (s->calls == IG_TOOL_CALLS_NONE)
		return ig_fail(err, -ENOTSUP, "the model's chat template does not support tools");
	set_others(s, g, &f, &source, &others);
	rc = fill_source(&f, tools, g, &x, err);
	if (!rc) {
		source.choices = x.choices;
		source.n_choices = x.n;
		rc = ig_grammar_cache_get(cache, t, &source, out, err);
		if (rc == -EINVAL || rc == -E2BIG)
			rc = blame(t, &x, rc, err);
	}
	finish_source(&x);
	return rc;
}
