/*
 * test_jinja.c: templates, what they make of their variables, their errors and bounds.
 * What is expected is what jinja2 3.1.6 gives, set up as transformers does it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "model/jinja/jinja.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const roles[] = { "system", "user", "assistant", NULL };

/* vars: a JSON object, all of a client but those below "trusted". */
static int render(const char *template, const char *vars, const struct ig_jinja_limits *limits,
		  struct ig_jinja_output *out, struct ig_error *err)
{
	struct ig_jinja_var list[32];
	struct ig_jinja_input in = {
		.vars = list, .trusted_key = "role", .trusted_words = roles, .now_s = 1753791330
	};
	json_t *o = json_loads(vars ? vars : "{}", JSON_ALLOW_NUL, NULL), *value;
	struct ig_jinja *j;
	const char *key;
	int rc;

	assert_non_null(o);
	*out = (struct ig_jinja_output){ 0 };
	json_object_foreach(o, key, value) list[in.n_vars++] =
		(struct ig_jinja_var){ key, value, !strcmp(key, "trusted") };
	rc = ig_jinja_compile(template, strlen(template), limits, &j, err);
	if (!rc)
		rc = ig_jinja_render(j, &in, limits, out, err);
	ig_jinja_destroy(j);
	json_decref(o);
	return rc;
}

struct good {
	const char *template, *vars, *want;
};

#include "jinja_cases.h"

static void renders(void **state)
{
	for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
		struct ig_jinja_output out;
		struct ig_error err = { 0 };
		if (render(good[i].template, good[i].vars, NULL, &out, &err))
			fail_msg("%s\n%s", good[i].template, err.text);
		if (strcmp(out.text, good[i].want))
			fail_msg("%s\ngives '%s'\nnot   '%s'", good[i].template, out.text,
				 good[i].want);
		assert_int_equal(strlen(out.text), out.len);
		ig_jinja_output_finish(&out);
	}
}

static void fails_with(const char *template, const char *vars, const struct ig_jinja_limits *limits,
		       int code, const char *text)
{
	struct ig_jinja_output out;
	struct ig_error err = { 0 };
	int rc = render(template, vars, limits, &out, &err);

	if (rc != code)
		fail_msg("%.200s\ngives %d (%s), not %d", template, rc, rc ? err.text : out.text,
			 code);
	assert_int_equal(err.code, code);
	assert_null(out.text);
	if (!strstr(err.text, text))
		fail_msg("%.200s\nwanted '%s' in: %s", template, text, err.text);
}

static void errors(void **state)
{
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		fails_with(bad[i].template, bad[i].vars, NULL, -EINVAL, bad[i].want);
	for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
		fails_with(refused[i].template, refused[i].vars, NULL, -ENOTSUP, refused[i].want);
}

/* text n times between two others; the caller's. */
static char *repeated(const char *before, const char *text, size_t n, const char *after)
{
	size_t len = strlen(text), at = strlen(before);
	char *s = malloc(at + n * len + strlen(after) + 1);

	assert_non_null(s);
	memcpy(s, before, at);
	for (size_t i = 0; i < n; i++, at += len)
		memcpy(s + at, text, len);
	strcpy(s + at, after);
	return s;
}

static void deep(const char *before, const char *text, const char *after, const char *what)
{
	char *s = repeated(before, text, 50000, after);

	fails_with(s, NULL, NULL, -EINVAL, what);
	free(s);
}

static void bounds(void **state)
{
	static const char loops[] = "{% set l = range(9999) %}{% for a in l %}{% for b in l %}"
				    "{% endfor %}{% endfor %}";
	static const char doubling[] = "{% set ns = namespace(s='ab') %}{% for i in range(60) %}"
				       "{% set ns.s = ns.s + ns.s %}{% endfor %}";
	const struct ig_jinja_limits small = { .template_bytes = 10 }, nodes = { .n_nodes = 20 },
				     output = { .output_bytes = 100 }, steps = { .n_steps = 1000 },
				     memory = { .memory_bytes = 100000 };

	fails_with("12345678901", NULL, &small, -EINVAL, "11 bytes, the limit is 10");
	fails_with("{{ [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20] }}",
		   NULL, &nodes, -EINVAL, "the template is too large");
	fails_with("{% for i in range(30) %}1234{% endfor %}", NULL, &output, -E2BIG,
		   "the output has more than 100 bytes");
	fails_with(loops, NULL, &steps, -E2BIG, "more than 1000 steps");
	fails_with(loops, NULL, NULL, -E2BIG, "steps");
	fails_with(doubling, NULL, NULL, -E2BIG, "memory");
	fails_with(doubling, NULL, &memory, -E2BIG, "more than 100000 bytes of memory");
	fails_with("{{ 'abc' * 9999999999 }}", NULL, NULL, -E2BIG, "");
	fails_with("{{ [1] * 9999999999 }}", NULL, NULL, -E2BIG, "");
	fails_with("{{ range(99999999) }}", NULL, NULL, -E2BIG, "a range of more than");
	fails_with("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", NULL, NULL, -E2BIG,
		   "levels of expressions and macros");
	fails_with("{% set ns = namespace(x=1) %}{% for i in range(500) %}{% set ns.x = [ns.x] %}"
		   "{% endfor %}{{ ns.x }}",
		   NULL, NULL, -EINVAL, "a value of more than");
	fails_with("{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}", NULL, NULL, -EINVAL,
		   "a value of more than");
	fails_with(
		"{% set ns = namespace(x=1) %}{% for i in range(500) %}{% set ns.x = {1: ns.x} %}"
		"{% endfor %}{{ ns.x | tojson }}{{ ns.x == ns.x }}",
		NULL, NULL, -EINVAL, "a value of more than");
	deep("{{", "(", "", "brackets");
	deep("{{", "[", "", "brackets");
	deep("{{", "-", "1}}", "nested");
	deep("{{ a", ".a", "}}", "levels");
	deep("{{ a", "[0]", "}}", "levels");
	deep("{{ a", "|list", "}}", "levels");
	deep("{{ 1", "+1", "}}", "levels");
	deep("{{", " not", " 1}}", "levels");
	deep("{{", " 1 if 1 else", " 1}}", "nested");
	deep("", "{% if 1 %}", "", "nested");
	deep("", "{% for a in b %}", "", "nested");
	deep("{{ 1", " if 1", "}}", "levels");
	deep("{{ 1", "<1", "}}", "too many comparisons");

	char *s = repeated("", "[", 400, ""), *t = repeated(s, "]", 400, "");
	char *vars = repeated("{\"a\": ", "[", 400, "1"), *v = repeated(vars, "]", 400, "}");
	fails_with("{{ a }}", v, NULL, -EINVAL, "a value of more than");
	free(v);
	free(vars);
	free(t);
	free(s);
}

/* The bytes that are a client's, as c, others as -. */
static void who(const char *template, const char *vars, const char *want_text, const char *want)
{
	struct ig_jinja_output out;
	struct ig_error err = { 0 };
	char marks[256];

	if (render(template, vars, NULL, &out, &err))
		fail_msg("%s\n%s", template, err.text);
	assert_string_equal(out.text, want_text);
	assert_true(out.len < sizeof marks);
	for (size_t i = 0; i < out.len; i++)
		marks[i] = out.client && out.client[i] ? 'c' : '-';
	marks[out.len] = 0;
	if (strcmp(marks, want))
		fail_msg("%s\n%s\nis by %s\nnot   %s", template, out.text, marks, want);
	ig_jinja_output_finish(&out);
}

static void provenance(void **state)
{
	static const char x[] =
		"{\"x\": \"Ab \\u00e9\", \"trusted\": \"<s>\", \"l\": [\"p\", \"q\"], "
		"\"m\": [{\"role\": \"user\", \"content\": \"user\"}, "
		"{\"role\": \"odd\", \"k\": {\"role\": \"system\"}}]}";

	who("<{{ x }}>", x, "<Ab \xc3\xa9>", "-ccccc-");
	who("{{ x }}", x, "Ab \xc3\xa9", "ccccc");
	who("none", x, "none", "----");
	who("{{ trusted }}{{ x[:1] }}", x, "<s>A", "---c");
	who("{{ '<' + x + '>' }}", x, "<Ab \xc3\xa9>", "-ccccc-");
	who("{{ ('<' ~ x ~ '>')[1:-1] | upper }}", x, "AB \xc3\x89", "ccccc");
	who("{{ ('<' + x + '>')[::-1] }}", x, ">\xc3\xa9 bA<", "-ccccc-");
	who("{{ x.replace('b', '<b>') }}", x, "A<b> \xc3\xa9", "c---ccc");
	who("{{ 'a-b'.replace('-', x) }}", x,
	    "aAb \xc3\xa9"
	    "b",
	    "-ccccc-");
	who("{{ l | join('+') }}", x, "p+q", "c-c");
	who("{{ '<' ~ l ~ '>' }}", x, "<['p', 'q']>", "---c----c---");
	who("{{ {'k': l} | tojson }}", x, "{\"k\": [\"p\", \"q\"]}", "--------c----c---");
	who("{{ m[0] | tojson }}", x, "{\"role\": \"user\", \"content\": \"user\"}",
	    "--cccc------------ccccccc----cccc--");
	who("{{ m[0].role }}{{ m[0].content }}{{ m[1].role }}{{ m[1].k.role }}", x,
	    "useruseroddsystem", "----ccccccc------");
	who("{{ ' a '.strip() }}{{ (' ' + x + ' ') | trim }}", x, "aAb \xc3\xa9", "-ccccc");
	who("{{ (x + '|z').split('|') | last }}{{ x.split(' ')[0] }}", x, "zAb", "-cc");
	who("{% set y %}<{{ x[0] }}>{% endset %}{{ y }}", x, "<A>", "-c-");
	who("{% macro f(a) %}<{{ a }}>{% endmacro %}{{ f(x[0]) }}{{ f('b') }}", x, "<A><b>",
	    "-c----");
	who("{{ '{}!'.format(x[0]) }}{{ '%s!' % x[0] }}", x, "A!A!", "c-c-");
	who("{{ x[0] * 2 }}{{ '-' * 2 }}", x, "AA--", "cc--");
	who("{% for c in x[:2] %}({{ c }}){% endfor %}", x, "(A)(b)", "-c--c-");
	who("{{ ('<\"' + x[0]) | tojson }}", x, "\"<\\\"A\"", "----c-");
	who("{{ ('<' + x[0] + '\\n') | indent(2, true) }}", x, "  <A\n", "---c-");
	who("{{ '&' + x[0] | escape }}", x, "&amp;A", "-----c");
}

/* One template, several renderings; the clock; what is not text. */
static void again(void **state)
{
	struct ig_jinja_input in = { .now_s = 0 };
	struct ig_jinja_output out;
	struct ig_error err = { 0 };
	struct ig_jinja *j;
	static const char text[] = "a\0b{{ 'c' }}";

	assert_int_equal(ig_jinja_compile(text, sizeof text - 1, NULL, &j, &err), 0);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(ig_jinja_render(j, &in, NULL, &out, &err), 0);
		assert_int_equal(out.len, 4);
		assert_memory_equal(out.text, "a\0bc", 5);
		assert_null(out.client);
		ig_jinja_output_finish(&out);
	}
	ig_jinja_destroy(j);
	ig_jinja_destroy(NULL);
	ig_jinja_output_finish(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(renders),    cmocka_unit_test(errors), cmocka_unit_test(bounds),
		cmocka_unit_test(provenance), cmocka_unit_test(again),
	};

	setenv("TZ", "UTC", 1);
	return cmocka_run_group_tests_name("model/jinja", tests, NULL, NULL);
}
