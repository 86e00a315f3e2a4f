/*
 * test_grammar_lark.c: grammars in lark's notation: which texts they allow, as they are and inside
 * a JSON string; what is refused, and where; grammars that are made to be costly.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "apply_patch.h"
#include "test_grammar.h"
#include "base/strbuf.h"

static struct ig_tokenizer *tokenizer;

static json_t *format_of(const char *syntax, const char *definition)
{
	json_t *format = json_pack("{s:s, s:s}", "syntax", syntax, "definition", definition);

	assert_non_null(format);
	return format;
}

/* in_json: a string that is held to it. */
static int compile(const char *syntax, const char *definition, bool in_json,
		   struct ig_grammar **out, struct ig_error *err)
{
	json_t *format = format_of(syntax, definition);
	json_t *schema = json_pack("{s:s, s:O}", "type", "string", "x-ingot-grammar", format);
	struct ig_grammar_part part = { .kind = in_json ? IG_GRAMMAR_SCHEMA : IG_GRAMMAR_FORMAT,
					.schema = in_json ? schema : format };
	int rc;

	*err = (struct ig_error){ 0 };
	rc = compile_part(tokenizer, part, out, err);
	assert_int_equal(rc == 0, *out != NULL);
	assert_int_equal(err->code, rc);
	json_decref(schema);
	json_decref(format);
	return rc;
}

static void check(const char *syntax, const char *definition, const char *const *texts, bool want)
{
	struct ig_grammar *g;
	struct ig_error err;

	if (compile(syntax, definition, false, &g, &err))
		fail_msg("%s\n%s", definition, err.text);
	for (; *texts; texts++)
		if (takes(tokenizer, g, *texts) != want)
			fail_msg("%s\nshould %stake '%s'", definition, want ? "" : "not ", *texts);
	ig_grammar_unref(g);
}

/* The same texts as JSON. */
static void check_json(const char *syntax, const char *definition, const char *const *texts,
		       bool want)
{
	struct ig_grammar *g;
	struct ig_error err;

	if (compile(syntax, definition, true, &g, &err))
		fail_msg("%s\n%s", definition, err.text);
	for (; *texts; texts++) {
		json_t *s = json_string(*texts);
		char *dump = json_dumps(s, JSON_ENCODE_ANY);
		if (takes(tokenizer, g, dump) != want)
			fail_msg("%s\nshould %stake %s", definition, want ? "" : "not ", dump);
		free(dump);
		json_decref(s);
	}
	ig_grammar_unref(g);
}

/* Texts end with NULL. */
#define LIST(...) ((const char *const[]){ __VA_ARGS__, NULL })

static void both(const char *syntax, const char *definition, const char *const *good,
		 const char *const *bad)
{
	check(syntax, definition, good, true);
	check(syntax, definition, bad, false);
	check_json(syntax, definition, good, true);
	check_json(syntax, definition, bad, false);
}

static void apply_patch(void **state)
{
	both("lark", APPLY_PATCH,
	     LIST("*** Begin Patch\n*** Delete File: a b.c\n*** End Patch",
		  "*** Begin Patch\n*** Add File: a\n+\n+int \"x\\n\";\t\xc3\xa9\n*** End Patch\n",
		  "*** Begin Patch\n*** Update File: a\n*** Move to: b\n@@ f(\n-x\n+y\n z\n"
		  "*** End of File\n*** Delete File: c\n*** End Patch",
		  "*** Begin Patch\n*** Update File: a\n*** End Patch",
		  "*** Begin Patch\n*** Update File: a\n@@\n \r\n*** End Patch"),
	     LIST("", "*** Begin Patch\n*** End Patch",
		  "*** Begin Patch\n*** Add File: a\n*** End Patch",
		  "*** Begin Patch\n*** Delete File: \n*** End Patch",
		  "*** Begin Patch\n*** Delete File: a\n*** End Patch\n\n",
		  "*** Begin Patch\n*** Update File: a\nx\n*** End Patch",
		  "*** Begin Patch\n*** Update File: a\n*** Move to: b\n*** Move to: c\n*** End Patch",
		  "*** Begin Patch\n*** Update File: a\n*** End of File\n*** End Patch"));
}

static void notation(void **state)
{
	both("lark", "start: \"a\" | \"b\"+ // c\n # d\n | (\"c\" [\"d\"])* \"e\"~2..3 -> x\n",
	     LIST("a", "b", "bb", "ee", "eee", "cee", "cdcee"), LIST("", "ab", "e", "eeee", "dee"));
	both("lark", "!start.2: _x ?\n?_x: Y~2\nY.-1: \"y\"i | \"0\"..\"3\"\n",
	     LIST("", "yY", "03", "Y1"), LIST("y", "4y", "yyy"));
	both("lark", "start: \"\\n\\t\\x41\\u00e9\\U0001F600\\\\\\\"\\d\" /\\//\n",
	     LIST("\n\tA\xc3\xa9\xf0\x9f\x98\x80\\\"\\d/"), LIST("\n\tA\xc3\xa9/", "n"));
	both("lark", "start: /a.b/s /[b-d]/i /\\d+/u \"\xc3\xa4\"i",
	     LIST("a\nbB1\xc3\x84", "axbc22\xc3\xa4"),
	     LIST("abB1\xc3\xa4", "axbE1\xc3\xa4", "axbb1a"));
	both("lark", "start: A\nA: B | \"(\" B \")\"\nB: /[0-9]/ ~ 2\n", LIST("12", "(34)"),
	     LIST("1", "(3)", "((12))"));
	/* the line may end before a bar, and anywhere in a group */
	both("lark", "start: \"a\"\n\n     | (\"b\"\n  \"c\" |\n\"d\")\n\r\n", LIST("a", "bc", "d"),
	     LIST("b", "abc"));
	both("lark", "start: a b\na: \nb: \"x\" |\n", LIST("", "x"), LIST("xx"));
	both("lark", "start: \"s\" a \"e\"\na: b*\nb: c?\nc: \"x\" | ()", LIST("se", "sxe", "sxxe"),
	     LIST("s"));
	both("lark", "start: \"\" \"a\"", LIST("a"), LIST("", "aa"));
}

static void imports(void **state)
{
	both("lark",
	     "%import common.INT\n%import common (WS_INLINE, CNAME)\n%import common.LF -> NL\n"
	     "start: CNAME WS_INLINE INT NL",
	     LIST("a_1 \t 22\n"), LIST("1a 2\n", "a2\n", "a 2"));
	both("lark", "%import common.ESCAPED_STRING\nstart: ESCAPED_STRING",
	     LIST("\"\"", "\"a\\\"b\"", "\"\\\\\""), LIST("\"", "\"a\"b\"", "\"\\\"", "\"\n\""));
	both("lark",
	     "%import common (SIGNED_NUMBER, C_COMMENT, NEWLINE)\n"
	     "start: SIGNED_NUMBER C_COMMENT NEWLINE",
	     LIST("-1.5e3/* a * / **/\r\n\n", "+.5/**/\n", "7/***/\n"),
	     LIST("1/* */ */\n", "./**/\n", "1e/**/\n", "1/*/\n"));
	/* white space between terminals, not within */
	both("lark",
	     "%ignore \" \"\n%ignore /#[a-z]*;/\nstart: NAME (\"=\" NAME)?\nNAME: (\"a\" | \"b\")+\n",
	     LIST("ab=a", " ab  = a ", "#x;a #;= #;b#;", "a  "), LIST("= a", "#x a", " "));
}

static void recursion(void **state)
{
	both("lark", "start: value\nvalue: \"(\" value* \")\" | /[a-z]/\n",
	     LIST("a", "()", "(a(b)())"), LIST("", "(", "())", "ab"));
	both("lark",
	     "start: sum\nsum: product | sum (\"+\" | \"-\") product\nproduct: atom | product \"*\" atom\n"
	     "atom: NUMBER | \"-\" atom | \"(\" sum \")\"\n%import common.NUMBER\n",
	     LIST("1", "1+2*3-4", "(1+2)*-3.5", "((1))--1"), LIST("", "1+", "*1", "(1", "1 + 1"));
	both("lark", "start: start \"a\" | start \"b\" |\n", LIST("", "a", "abba"),
	     LIST("c", "ac"));
	/* ambiguous, and rules that may be empty */
	both("lark", "start: e\ne: e \"+\" e | \"x\"\n", LIST("x", "x+x+x+x+x"),
	     LIST("+", "x+", "xx"));
	both("lark", "start: s\ns: \"a\" s \"b\" s |\n", LIST("", "ab", "aabb", "abab", "aabbab"),
	     LIST("a", "b", "aab", "ba"));
	both("lark", "start: a\na: \"x\" b | \"z\"\nb: \"y\" a | a | \n",
	     LIST("x", "z", "xyz", "xxyxz"), LIST("y", "xy", "zz"));
}

static void regexes(void **state)
{
	both("regex", "^[a-z]+\n(.*)$", LIST("ab\nx\"\\\t", "a\n"), LIST("a", "A\n", "a\nb\nc"));
	both("regex", "\\d{4}|x?", LIST("2024", "x", ""), LIST("202", "xx"));
}

/* ---- refusals ------------------------------------------------------------------------ */

static void refused(void **state)
{
	static const struct {
		const char *definition, *error;
	} list[] = {
		{ "", "the grammar has no rule 'start'" },
		{ "Start: \"a\"", "line 1, column 1: the name 'Start' mixes lower and upper case" },
		{ "START: \"a\"", "the grammar has no rule 'start'" },
		{ "start: a", "line 1, column 8: 'a' is not defined" },
		{ "start: \"x\"\n\nstart: \"y\"", "line 3, column 1: 'start' is defined twice" },
		{ "start \"x\"", "line 1, column 7: '\"' where ':' is expected" },
		{ "start: \"x", "line 1, column 8: a string without its closing quote" },
		{ "start: \xc3\xa4",
		  "line 1, column 8: '\xc3\xa4' where a name, a string, an expression or a "
		  "group is expected" },
		{ "start: \"\xc3\xa4\" /x",
		  "line 1, column 12: an expression without its closing slash" },
		{ "start: (\"x\"", "line 1, column 12: the grammar ends where ')' is expected" },
		{ "start: [\"x\")", "line 1, column 12: ')' where ']' is expected" },
		{ "start: \"x\")", "line 1, column 11: ')' where the end of the line is expected" },
		{ "start: \"x\"**", "line 1, column 12: only one repetition can follow" },
		{ "start: *",
		  "line 1, column 8: '*' where a name, a string, an expression or a group is "
		  "expected" },
		{ "start: \"x\" ~ 3..2",
		  "line 1, column 18: a repetition whose end is below its beginning" },
		{ "start: \"x\"~",
		  "line 1, column 12: the grammar ends where a number is expected" },
		{ "start: \"x\"~200000", "line 1, column 18: a repetition of more than 100000" },
		{ "start: \"b\"..\"a\"",
		  "line 1, column 8: a range whose end is before its beginning" },
		{ "start: \"ab\"..\"c\"",
		  "line 1, column 8: the ends of a range are single characters" },
		{ "start: \"a\"..b",
		  "line 1, column 13: 'b' where the end of the range is expected" },
		{ "start: \"a\"x", "line 1, column 11: a string has no flag 'x'" },
		{ "start: /a/m",
		  "line 1, column 11: the flag 'm' of an expression is not supported" },
		{ "start: \"\\x1\"", "line 1, column 10: \\x needs 2 hexadecimal digits" },
		{ "start: \"\\ud800\"", "line 1, column 10: \\u names no character" },
		{ "start: f{\"x\"}", "line 1, column 9: templates are not supported" },
		{ "f{x}: x\nstart: \"a\"", "line 1, column 2: templates are not supported" },
		{ "start: A\nA: b\nb: \"x\"",
		  "line 2, column 4: a terminal can't contain the rule 'b'" },
		{ "start: A\nA: \"x\" -> y", "line 2, column 8: a terminal has no alias" },
		{ "start: A\nA: \"x\" B\nB: A",
		  "line 2, column 1: the terminal 'A' contains itself" },
		{ "start: \"a\" -> x \"b\"",
		  "line 1, column 17: '\"' where the end of the alternative is "
		  "expected" },
		{ "%declare A\nstart: A",
		  "line 1, column 1: only %import and %ignore are supported" },
		{ "%import python.NAME\nstart: NAME",
		  "line 1, column 9: only terminals of \"common\" can be "
		  "imported" },
		{ "%import common.NOPE\nstart: NOPE",
		  "line 1, column 16: \"common\" has no terminal 'NOPE'" },
		{ "%import common (A B)\nstart: A",
		  "line 1, column 17: \"common\" has no terminal 'A'" },
		{ "%import common.LF -> lf\nstart: lf",
		  "line 1, column 22: a terminal can't be imported as "
		  "the rule 'lf'" },
		{ "%ignore a\nstart: \"x\"\na: \"y\"",
		  "line 1, column 9: a terminal can't contain the rule "
		  "'a'" },
		{ "start: /(?=a)/",
		  "line 1, column 8: looking ahead is not supported, at byte 2 of the "
		  "expression" },
		{ "start: /a*?/",
		  "line 1, column 8: lazy quantifiers are not supported here, at byte 2 of the "
		  "expression" },
		{ "start: /^a/",
		  "line 1, column 8: ^ and $ are not supported here, at byte 0 of the "
		  "expression" },
		{ "start: a\na: \"x\" a",
		  "line 1, column 1: no text of the rule 'start' ever ends" },
		{ "start: a\na: b | \"x\"\nb: a \"y\"",
		  "line 2, column 1: the rule 'a' may begin with itself "
		  "other than as the first item of its own "
		  "alternatives" },
		{ "start: \"x\"? start \"y\" | \"z\"",
		  "line 1, column 1: the rule 'start' may begin with "
		  "itself other than as the first item of its own "
		  "alternatives" },
		{ "start: | start start \"x\"",
		  "line 1, column 1: the rule 'start' may begin with itself "
		  "other than as the first item of its own alternatives" },
	};

	for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
		struct ig_grammar *g;
		struct ig_error err;
		assert_int_equal(compile("lark", list[i].definition, false, &g, &err), -EINVAL);
		if (strcmp(err.text, list[i].error))
			fail_msg("%s\n  %s\n  %s", list[i].definition, err.text, list[i].error);
	}
}

static void other_refusals(void **state)
{
	static const struct {
		const char *schema, *error;
	} list[] = {
		{ "{'type':'string','x-ingot-grammar':{'syntax':'ebnf','definition':'x'}}",
		  "$.x-ingot-grammar: a grammar has a syntax (\"lark\" or \"regex\") and a definition" },
		{ "{'type':'string','x-ingot-grammar':{'syntax':'lark'}}",
		  "$.x-ingot-grammar: a grammar has a syntax (\"lark\" or \"regex\") and a definition" },
		{ "{'type':'string','x-ingot-grammar':true}",
		  "$.x-ingot-grammar: a grammar has a syntax (\"lark\" or \"regex\") and a definition" },
		{ "{'type':'string','maxLength':3,'x-ingot-grammar':{'syntax':'regex','definition':'x'}}",
		  "$.x-ingot-grammar: \"maxLength\" beside a grammar is not supported" },
		{ "{'enum':['x'],'x-ingot-grammar':{'syntax':'regex','definition':'x'}}",
		  "$: \"enum\" beside \"pattern\", \"format\" or a grammar is not supported" },
		{ "{'type':'object','properties':{'a':{'x-ingot-grammar':{'syntax':'lark','definition':"
		  "'start: x'}}}}",
		  "$.properties.a.x-ingot-grammar: line 1, column 8: 'x' is not defined" },
		{ "{'x-ingot-grammar':{'syntax':'regex','definition':'a('}}",
		  "$.x-ingot-grammar: a group without its ), at byte 2 of the expression" },
		{ "{'x-ingot-grammar':{'syntax':'lark','definition':'start: \\u0000'}}",
		  "$.x-ingot-grammar: line 1, column 8: a zero byte can't be asked for" },
	};

	for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
		struct ig_grammar *g;
		struct ig_error err = { 0 };
		json_t *schema;
		char *copy = strdup(list[i].schema);
		for (char *p = copy; *p; p++)
			*p = *p == '\'' ? '"' : *p;
		schema = json_loads(copy, JSON_ALLOW_NUL, NULL);
		free(copy);
		assert_non_null(schema);
		assert_int_equal(compile_part(tokenizer,
					      (struct ig_grammar_part){ .kind = IG_GRAMMAR_SCHEMA,
									.schema = schema },
					      &g, &err),
				 -EINVAL);
		if (strcmp(err.text, list[i].error))
			fail_msg("%s\n  %s\n  %s", list[i].schema, err.text, list[i].error);
		json_decref(schema);
	}
}

/* ---- costly grammars ---------------------------------------------------------------------- */

static int costs(const char *definition)
{
	struct ig_grammar *g;
	struct ig_error err;
	int rc = compile("lark", definition, true, &g, &err);

	if (!rc)
		ig_grammar_unref(g);
	else if (!strstr(err.text, "too large") && !strstr(err.text, "nested") &&
		 !strstr(err.text, "more than"))
		fail_msg("%d: %s", rc, err.text);
	return rc;
}

static void costly(void **state)
{
	struct ig_strbuf b = { 0 };

	/* each rule twice in the one before: 2^200 texts, 200 rules */
	ig_strbuf_puts(&b, "start: r0\n");
	for (int i = 0; i < 200; i++)
		ig_strbuf_printf(&b, "r%d: r%d r%d\n", i, i + 1, i + 1);
	ig_strbuf_puts(&b, "r200: \"x\" | \"y\"\n");
	assert_int_equal(costs(b.data), -E2BIG); /* the shortest text is nested too deep */
	ig_strbuf_clear(&b);
	/* the same, of empty rules */
	ig_strbuf_puts(&b, "start: r0 \"x\"\n");
	for (int i = 0; i < 1000; i++)
		ig_strbuf_printf(&b, "r%d: r%d r%d\n", i, i + 1, i + 1);
	ig_strbuf_puts(&b, "r1000: \n");
	costs(b.data);
	ig_strbuf_clear(&b);
	/* a chain in the order that is worst for a fixpoint */
	ig_strbuf_puts(&b, "start: r1998\nr0: \"x\"\n");
	for (int i = 1; i < 1999; i++)
		ig_strbuf_printf(&b, "r%d: r%d | \"y\" r%d\n", i, i - 1, i - 1);
	costs(b.data);
	ig_strbuf_clear(&b);
	for (int i = 0; i < 2001; i++)
		ig_strbuf_printf(&b, "r%d: \"x\"\n", i);
	assert_int_equal(costs(b.data), -E2BIG);
	ig_strbuf_clear(&b);
	ig_strbuf_puts(&b, "start: ");
	for (int i = 0; i < 100; i++)
		ig_strbuf_puts(&b, "(");
	assert_int_equal(costs(b.data), -EINVAL);
	ig_strbuf_clear(&b);
	ig_strbuf_puts(&b, "start: \"");
	for (int i = 0; i < 70000; i++)
		ig_strbuf_puts(&b, "x");
	ig_strbuf_puts(&b, "\"");
	assert_int_equal(costs(b.data), -E2BIG);
	ig_strbuf_finish(&b);

	assert_int_equal(costs("start: ((\"x\"~1000)~1000)~1000"), -E2BIG);
	assert_int_equal(costs("start: ((\"x\"?)~100000)~100000"), -E2BIG);
	assert_int_equal(costs("start: (()~100000)~100000 \"x\""), -E2BIG);
	assert_int_equal(costs("start: /(a|b)*a(a|b){20}/"), -E2BIG);
	assert_int_equal(costs("start: (\"a\"|\"b\")* \"a\" (\"a\"|\"b\")~20"), -E2BIG);
	costs("start: (A A A A)~50\nA: /\\p{L}{1,50}/");
	assert_int_equal(costs("start: s\ns: s s | \"x\""), 0);
	assert_int_equal(costs("start: s+\ns: \"x\" s s s s | \"x\" |"), 0);
}

/* Ambiguity costs configurations, of which there is a limit: what is dropped makes the grammar
 * narrower, and no mask is ever empty. */
static void ambiguous(void **state)
{
	struct ig_grammar *g;
	struct ig_error err;
	struct ig_grammar_matcher *m;
	uint32_t *mask = calloc((size_t)ig_tokenizer_n_vocab(tokenizer) / 32 + 1, sizeof *mask);

	assert_int_equal(
		compile("lark", "start: s\ns: s s | \"x\" s \"y\" | \"x\"", false, &g, &err), 0);
	m = ig_grammar_matcher_create(g);
	for (int i = 0; i < 500; i++) {
		ig_grammar_matcher_mask(m, mask);
		assert_true(has_bit(mask, MADE_BYTE + 'x') || has_bit(mask, MADE_BYTE + 'y') ||
			    has_bit(mask, MADE_END));
		if (!has_bit(mask, MADE_BYTE + 'x'))
			break;
		assert_int_equal(ig_grammar_matcher_accept(m, MADE_BYTE + 'x'), 0);
	}
	ig_grammar_matcher_destroy(m);
	ig_grammar_unref(g);
	free(mask);
}

static int setup(void **state)
{
	tokenizer = made_vocabulary(1500, NULL, 0);
	return 0;
}

static int teardown(void **state)
{
	ig_tokenizer_close(tokenizer);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(apply_patch),	  cmocka_unit_test(notation),
		cmocka_unit_test(imports),	  cmocka_unit_test(recursion),
		cmocka_unit_test(regexes),	  cmocka_unit_test(refused),
		cmocka_unit_test(other_refusals), cmocka_unit_test(costly),
		cmocka_unit_test(ambiguous),
	};

	return cmocka_run_group_tests_name("model/grammar/lark", tests, setup, teardown);
}
