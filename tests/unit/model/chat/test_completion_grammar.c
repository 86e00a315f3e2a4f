/*
 * test_completion_grammar.c: the source of the grammar for required tool calls, printed by a
 * fake of the grammar cache: texts as they are, a schema as <…>.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/strbuf.h"
#include "model/chat/completion.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* ---- the fake --------------------------------------------------------------------- */

static struct ig_strbuf written;
static int no_memory_for; /* so many schemas can be compiled alone before memory is short */

/* A schema with "bad" is refused. */
static int refuse(const json_t *schema, struct ig_error *err)
{
	if (json_object_get(schema, "bad"))
		return ig_fail(err, -EINVAL, "$: \"bad\" is not supported");
	return json_object_get(schema, "big") ? ig_fail(err, -E2BIG, "$: too large") : 0;
}

int ig_grammar_cache_get(struct ig_grammar_cache *c, const struct ig_tokenizer *t,
			 const struct ig_grammar_source *s, struct ig_grammar **out,
			 struct ig_error *err)
{
	int rc = 0;

	assert_true(s->n_choices >= 1);
	ig_strbuf_clear(&written);
	ig_strbuf_printf(&written, "%ux ^%s%s^ ", s->max_repeats, s->before ? s->before : "",
			 s->open ? s->open : "");
	for (size_t i = 0; i < s->n_choices; i++) {
		ig_strbuf_puts(&written, i ? "  OR  " : "");
		for (size_t k = 0; k < s->choices[i].n_parts; k++) {
			const struct ig_grammar_part *p = &s->choices[i].parts[k];
			char *dump;
			if (p->kind == IG_GRAMMAR_TEXT) {
				assert_int_equal(strlen(p->text), p->len);
				assert_true(p->len > 0);
				ig_strbuf_printf(&written, "%s|", p->text);
				continue;
			}
			assert_int_equal(p->kind, IG_GRAMMAR_SCHEMA);
			dump = json_dumps(p->schema, JSON_COMPACT | JSON_SORT_KEYS);
			ig_strbuf_printf(&written, "<%s>", dump);
			free(dump);
			if (!rc)
				rc = refuse(p->schema, err);
		}
	}
	ig_strbuf_printf(&written, " ^%s^%s^", s->between ? s->between : "",
			 s->after ? s->after : "");
	if (s->n_choices > 3 && !rc)
		rc = ig_fail(err, -E2BIG, "all too large");
	*out = rc ? NULL : (struct ig_grammar *)(void *)&written;
	return rc;
}

int ig_grammar_compile(const struct ig_tokenizer *t, const struct ig_grammar_source *s,
		       struct ig_grammar **out, struct ig_error *err)
{
	int rc = refuse(s->choices[0].parts[0].schema, err);

	assert_int_equal(s->n_choices, 1);
	assert_int_equal(s->choices[0].n_parts, 1);
	if (no_memory_for && !--no_memory_for)
		rc = ig_fail(err, -ENOMEM, "no memory");
	*out = rc ? NULL : (struct ig_grammar *)(void *)&written;
	return rc;
}

void ig_grammar_unref(struct ig_grammar *g) { assert_ptr_equal(g, &written); }

/* ---- tests ------------------------------------------------------------------------------ */

#define FORM(f) ((struct ig_completion_style){ .calls = IG_TOOL_CALLS_##f })
#define TOOL(name, parameters)                                                                     \
	"{\"type\": \"function\", \"function\": {\"name\": \"" name "\"" parameters "}}"
#define WITH(parameters) ", \"parameters\": " parameters
#define OBJECT "{\"type\": \"object\"}"
#define TWO "[" TOOL("f", WITH(OBJECT)) ", " TOOL("g", "") "]"
#define EMPTY "{\"properties\":{},\"type\":\"object\"}"
#define ANY "{\"type\":\"object\"}"

static int compile(struct ig_completion_style s, const char *tools, const char *name, bool parallel,
		   struct ig_error *err)
{
	json_t *list = json_loads(tools, 0, NULL);
	struct ig_grammar *g;
	int rc;

	assert_non_null(list);
	*err = (struct ig_error){ 0 };
	rc = ig_completion_tool_grammar(
		&s, NULL, NULL, list,
		&(struct ig_tool_grammar){ .name = name, .parallel = parallel }, &g, err);
	assert_int_equal(rc == 0, g != NULL);
	assert_int_equal(err->code, rc);
	json_decref(list);
	return rc;
}

static void makes(struct ig_completion_style s, const char *tools, const char *name, bool parallel,
		  const char *want)
{
	struct ig_error err;

	if (compile(s, tools, name, parallel, &err))
		fail_msg("%s", err.text);
	assert_string_equal(written.data, want);
}

static void forms(void **state)
{
	struct ig_completion_style s;

	makes(FORM(HERMES), TWO, NULL, true,
	      "16x ^^ <tool_call>\n{\"name\": \"f\", \"arguments\": |<" ANY ">}\n</tool_call>| "
	      " OR  "
	      "<tool_call>\n{\"name\": \"g\", \"arguments\": |<" EMPTY ">}\n</tool_call>| ^\n^^");
	makes(FORM(HERMES), TWO, "g", false,
	      "1x ^^ <tool_call>\n{\"name\": \"g\", \"arguments\": |<" EMPTY ">}\n</tool_call>|"
	      " ^\n^^");
	makes(FORM(LLAMA3), TWO, NULL, false,
	      "1x ^^ {\"name\": \"f\", \"parameters\": |<" ANY ">}|  OR  "
	      "{\"name\": \"g\", \"parameters\": |<" EMPTY ">}| ^; ^^");
	makes(FORM(MISTRAL), TWO, NULL, true,
	      "16x ^[TOOL_CALLS][^ {\"name\": \"f\", \"arguments\": |<" ANY ">}|  OR  "
	      "{\"name\": \"g\", \"arguments\": |<" EMPTY ">}| ^, ^]^");
	s = FORM(MISTRAL_ARGS);
	makes(s, TWO, NULL, true,
	      "16x ^^ [TOOL_CALLS]f[ARGS]|<" ANY ">  OR  [TOOL_CALLS]g[ARGS]|<" EMPTY "> ^^^");
	/* A prompt that opens reasoning: it is closed first. */
	s.opens_reasoning = true;
	makes(s, TWO, "f", true, "16x ^</think>\n\n^ [TOOL_CALLS]f[ARGS]|<" ANY "> ^^^");
	s.calls = IG_TOOL_CALLS_MISTRAL;
	makes(s, TWO, "f", true,
	      "16x ^</think>\n\n[TOOL_CALLS][^ {\"name\": \"f\", \"arguments\": |<" ANY ">}| ^, "
	      "^]^");
	s.calls = IG_TOOL_CALLS_LLAMA3;
	makes(s, TWO, "f", false,
	      "1x ^</think>\n\n^ {\"name\": \"f\", \"parameters\": |<" ANY ">"
	      "}| ^; ^^");
	assert_string_equal(ig_completion_prefix(&s), "</think>\n\n");
	s.opens_reasoning = false;
	assert_null(ig_completion_prefix(&s));
}

/* Parameters are an object, and names are JSON. */
static void schemas(void **state)
{
	struct ig_completion_style s = FORM(LLAMA3);

#define ONE(schema) "1x ^^ {\"name\": \"f\", \"parameters\": |<" schema ">}| ^; ^^"
	makes(s, "[" TOOL("f", WITH("null")) "]", NULL, false, ONE(EMPTY));
	makes(s, "[" TOOL("f", WITH("{}")) "]", NULL, false, ONE(ANY));
	makes(s, "[" TOOL("f", WITH("{\"type\": [\"object\", \"null\"], \"title\": 1}")) "]", NULL,
	      false, ONE("{\"title\":1,\"type\":\"object\"}"));
	makes(s, "[" TOOL("f", WITH("{\"properties\": {\"a\": {}}}")) "]", NULL, false,
	      ONE("{\"properties\":{\"a\":{}},\"type\":\"object\"}"));
	makes(s, "[" TOOL("a\\\"\xc3\xa9", "") "]", "a\"\xc3\xa9", false,
	      "1x ^^ {\"name\": \"a\\\"\xc3\xa9\", \"parameters\": |<" EMPTY ">}| ^; ^^");
}

static void is_refused(struct ig_completion_style s, const char *tools, const char *name, int code,
		       const char *why)
{
	struct ig_error err;

	assert_int_equal(compile(s, tools, name, true, &err), code);
	assert_string_equal(err.text, why);
}

static void refused(void **state)
{
	struct ig_completion_style m = FORM(MISTRAL_ARGS), l = FORM(LLAMA3);

	is_refused(FORM(NONE), TWO, NULL, -ENOTSUP,
		   "the model's chat template does not support tools");
	is_refused(l, "[]", NULL, -EINVAL, "tools: there is no tool to call");
	is_refused(l, "{}", NULL, -EINVAL, "tools: there is no tool to call");
	is_refused(l, TWO, "h", -EINVAL, "tools: there is none named 'h'");
	is_refused(l, "[1]", NULL, -EINVAL, "tools[0].function.name: not a name");
	is_refused(l, "[" TOOL("f", "") ", {\"function\": {\"name\": 3}}]", NULL, -EINVAL,
		   "tools[1].function.name: not a name");
	is_refused(l, "[" TOOL("", "") "]", NULL, -EINVAL, "tools[0].function.name: not a name");
	is_refused(l, "[" TOOL("f", WITH("[]")) "]", NULL, -EINVAL,
		   "tools[0].function.parameters: not an object");
	is_refused(l, "[" TOOL("f", WITH("{\"type\": \"array\"}")) "]", NULL, -EINVAL,
		   "tools[0].function.parameters: the type is 'array', and parameters are an "
		   "object");
	/* Bare names have no quotes to end them. */
	is_refused(m, "[" TOOL("f", "") "," TOOL("a[b", "") "]", NULL, -EINVAL,
		   "tools[1].function.name: 'a[b' has characters that this model can't write in "
		   "a name");
	is_refused(m, "[" TOOL("a b", "") "]", NULL, -EINVAL,
		   "tools[0].function.name: 'a b' has characters that this model can't write in "
		   "a name");
	/* Whose schema it is. */
	is_refused(l, "[" TOOL("f", "") "," TOOL("g", WITH("{\"bad\": 1}")) "]", NULL, -EINVAL,
		   "tools[1].function.parameters: $: \"bad\" is not supported");
	is_refused(m, "[" TOOL("f", WITH("{\"big\": 1}")) "," TOOL("g", WITH("{\"bad\": 1}")) "]",
		   NULL, -E2BIG, "tools[0].function.parameters: $: too large");
	is_refused(m, "[" TOOL("f", WITH("{\"big\": 1}")) "," TOOL("g", WITH("{\"bad\": 1}")) "]",
		   "g", -EINVAL, "tools[1].function.parameters: $: \"bad\" is not supported");
	/* Each alone would do. */
	is_refused(l, "[" TOOL("f", "") "," TOOL("g", "") "," TOOL("h", "") "," TOOL("i", "") "]",
		   NULL, -E2BIG, "all too large");
	no_memory_for = 1;
	is_refused(l, "[" TOOL("f", "") "," TOOL("g", WITH("{\"bad\": 1}")) "]", NULL, -ENOMEM,
		   "out of memory for the tools' grammar");
	assert_int_equal(no_memory_for, 0);
	/* A tool that is not selected may be invalid. */
	makes(l, "[1, " TOOL("g", WITH("[]")) "," TOOL("f", "") "]", "f", false, ONE(EMPTY));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(forms),
		cmocka_unit_test(schemas),
		cmocka_unit_test(refused),
	};
	int rc = cmocka_run_group_tests(tests, NULL, NULL);

	ig_strbuf_finish(&written);
	return rc;
}
