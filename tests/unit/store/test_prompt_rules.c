/* test_prompt_rules.c: rules for prompts: what the built-in ones match and what not, where rules hold,
 * and the bounds of what they see, replace and search. */
#include "store/prompt_rules.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define N_OF(a) (sizeof(a) / sizeof((a)[0]))
#define HEADER "x-anthropic-billing-header: cc_version=2.1.36.5f1; cc_entrypoint=cli; cch=0a1b2;"

static char **list(const char *only)
{
	char **l = calloc(2, sizeof *l);

	assert_non_null(l);
	l[0] = strdup(only);
	return l;
}

static void add(struct ig_prompt_rules *rules, const char *name, const char *pattern,
		const char *replacement)
{
	struct ig_prompt_rule r = { .name = strdup(name),
				    .pattern = strdup(pattern),
				    .replacement = strdup(replacement),
				    .enabled = true };
	struct ig_error err = { 0 };

	if (ig_prompt_rules_add(rules, &r, &err))
		fail_msg("%s", err.text);
}

/* What becomes of one text; NULL: it does not change.  The caller's. */
static char *apply(struct ig_prompt_pass *p, const char *text, size_t len)
{
	struct ig_strbuf out = { 0 };
	int rc = ig_prompt_pass_text(p, text, len, &out);

	assert_true(rc >= 0);
	char *got = rc ? ig_copy_text(ig_strbuf_text(&out), out.len) : NULL;
	ig_strbuf_finish(&out);
	return got;
}

static void check(struct ig_prompt_rules *rules, const char *text, const char *want)
{
	struct ig_prompt_pass p = { .rules = rules, .model = "m", .client = "c" };
	char *got = apply(&p, text, strlen(text));

	if (strcmp(got ? got : "(same)", want ? want : "(same)"))
		fail_msg("%s\nbecame %s\nnot    %s", text, got ? got : "(same)",
			 want ? want : "(same)");
	assert_int_equal(p.applied != 0, want != NULL);
	assert_int_equal(p.abandoned, 0);
	free(got);
}

static void test_builtin(void **state)
{
	static const struct {
		const char *text, *want;
	} cases[] = {
		{ HEADER, "" },
		{ HEADER "\nYou are", "You are" },
		{ HEADER "You are a=b; c", "You are a=b; c" },
		{ "a\n" HEADER "\n" HEADER "\nb", "a\nb" },
		{ "x-anthropic-billing-header: cc_version=2; cc_entrypoint=cli\nb", "b" },
		{ "x-anthropic-billing-header: cc_version=2 (native build); cch=1;\nb", "b" },
		{ "x-anthropic-billing-header: a=b; c=d; and so on", "and so on" },
		{ "The x-anthropic-billing-header: cch=12345;", NULL },
		{ "x-anthropic-billing-header: tells who pays", NULL },
		/* the day stays; the line must say that it is about now */
		{ "Current time: 2026-11-23 17:11", "Current time: 2026-11-23" },
		{ "Current date and time: 2026-11-23T17:11:04.123Z.",
		  "Current date and time: 2026-11-23." },
		{ "<current_time>2026-11-23T17:11:04+01:00</current_time>",
		  "<current_time>2026-11-23</current_time>" },
		{ "Today is Monday, November 23, 2026 at 5:11 PM UTC.",
		  "Today is Monday, November 23, 2026." },
		{ "a\nIt is now 23. November 2026, 17:11 GMT+1, a Monday.\nb",
		  "a\nIt is now 23. November 2026, a Monday.\nb" },
		{ "Now: Mon Nov 23 2026 17:11:04 GMT+0000 (Coordinated Universal Time)",
		  "Now: Mon Nov 23 2026 (Coordinated Universal Time)" },
		{ "The current date is 11/23/2026, 5:11:04 p.m. here",
		  "The current date is 11/23/2026 here" },
		{ "now 2026-11-23 17:11 zebra", "now 2026-11-23 zebra" },
		{ "Today's date: 2026-11-23", NULL },
		{ "It was released on 2026-11-23 17:11", NULL },
		{ "knowing 2026-11-23 17:11", NULL },
		{ "Times look so: 2026-11-23T17:11:04Z", NULL },
		{ "now\n2026-11-23 17:11", NULL },
		{ "the current ratio is 16:9", NULL },
		{ "today we use port 10.0.0.1:8080", NULL },
		{ "", NULL },
	};
	struct ig_prompt_rules *rules = ig_prompt_rules_create();

	for (size_t i = 0; i < N_OF(cases); i++)
		check(rules, cases[i].text, cases[i].want);
	ig_prompt_rules_unref(rules);
	check(NULL, HEADER, NULL);
}

static void test_replacement(void **state)
{
	struct ig_prompt_rules *rules = ig_prompt_rules_create();

	add(rules, "groups", "<(\\w+)(?:=(\\w+))?>", "[$1$2$$$0]");
	add(rules, "after", "\\[x", "(");
	add(rules, "many", "(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)(k)(l)", "$9$1");
	check(rules, "<p=\xc3\xa4> <q> <r=s>", "<p=\xc3\xa4> [q$<q>] [rs$<r=s>]");
	check(rules, "<x>", "($<x>]");
	check(rules, "abcdefghijkl", "ia");
	ig_prompt_rules_unref(rules);
}

static void test_where(void **state)
{
	static const struct {
		const char *model, *client;
		bool holds;
	} cases[] = {
		{ "m-1", "key", true },	   { "m-2", "key", false }, { "n", "key", false },
		{ "m-1", "other", false }, { "m-", "key", true },
	};
	struct ig_prompt_rules *rules = ig_prompt_rules_create();
	struct ig_prompt_rule r = { .name = strdup("mine"),
				    .pattern = strdup("a"),
				    .replacement = strdup("b"),
				    .enabled = true,
				    .models = list("m-*"),
				    .except_models = list("*2"),
				    .clients = list("key") };
	struct ig_error err = { 0 };

	assert_int_equal(ig_prompt_rules_add(rules, &r, &err), 0);
	for (size_t i = 0; i < N_OF(cases); i++) {
		struct ig_prompt_pass p = { .rules = rules,
					    .model = cases[i].model,
					    .client = cases[i].client };
		char *got = apply(&p, "a", 1);
		assert_int_equal(got != NULL, cases[i].holds);
		free(got);
	}
	ig_prompt_rules_unref(rules);
}

/* Of a prompt only so many texts, and bytes, are seen; of a text only so many matches are replaced. */
static void test_bounds(void **state)
{
	struct ig_prompt_rules *rules = ig_prompt_rules_create();
	struct ig_prompt_pass p = { .rules = rules, .model = "m", .client = "c" };
	char *got, *text = malloc(IG_PROMPT_RULE_BYTES + 8);

	add(rules, "mine", "a", "");
	for (size_t i = 0; i < IG_PROMPT_RULE_TEXTS + 2; i++) {
		got = apply(&p, "a", 1);
		assert_int_equal(got != NULL, i < IG_PROMPT_RULE_TEXTS);
		free(got);
	}
	p = (struct ig_prompt_pass){ .rules = rules, .model = "m", .client = "c" };
	memset(text, 'a', IG_PROMPT_RULE_MATCHES + 5);
	got = apply(&p, text, IG_PROMPT_RULE_MATCHES + 5);
	assert_string_equal(got, "aaaaa");
	free(got);
	/* the last byte that is seen is the first of a character, which is seen as a whole or not */
	for (size_t at = IG_PROMPT_RULE_BYTES - 2; at < IG_PROMPT_RULE_BYTES + 2; at++) {
		p = (struct ig_prompt_pass){ .rules = rules, .model = "m", .client = "c" };
		memset(text, '.', IG_PROMPT_RULE_BYTES + 8);
		text[0] = 'a';
		memcpy(text + at, "\xc3\xa4", 2);
		text[IG_PROMPT_RULE_BYTES + 4] = 'a';
		got = apply(&p, text, IG_PROMPT_RULE_BYTES + 8);
		assert_non_null(got);
		assert_int_equal(strlen(got), IG_PROMPT_RULE_BYTES + 7);
		free(got);
		assert_null(apply(&p, "a", 1));
	}
	free(text);
	ig_prompt_rules_unref(rules);
}

static double cpu_s(void) { return (double)clock() / CLOCKS_PER_SEC; }

/* A rule that searches too long is left out, without a trace; unbounded it would search for years. */
static void test_hostile(void **state)
{
	static const char *const lines[] = { "now ",
					     "current current 1 ",
					     "now 2026-11-23 ",
					     "today 1",
					     "\n",
					     "now \n",
					     "x-anthropic-billing-header: a=b;",
					     "x-anthropic-billing-header:" };
	struct ig_prompt_rules *rules = ig_prompt_rules_create();
	struct ig_prompt_pass p = { .rules = rules, .model = "m", .client = "c" };
	char *text = malloc(IG_PROMPT_RULE_BYTES + 1), *got;
	double begin = cpu_s();

	add(rules, "slow", "(a+)+$", "");
	add(rules, "fast", "b", "c");
	memset(text, 'a', 60);
	strcpy(text + 60, "b");
	got = apply(&p, text, 61);
	assert_int_equal(got[60], 'c');
	free(got);
	size_t slow = ig_prompt_rules_n(rules) - 2;
	assert_int_equal(p.abandoned, 1u << slow);
	assert_int_equal(p.applied, 2u << slow);
	ig_prompt_rules_unref(rules);
	/* the built-in ones need not be left out */
	rules = ig_prompt_rules_create();
	for (size_t i = 0; i < N_OF(lines); i++) {
		size_t n = strlen(lines[i]);
		for (size_t at = 0; at < IG_PROMPT_RULE_BYTES; at++)
			text[at] = lines[i][at % n];
		p = (struct ig_prompt_pass){ .rules = rules, .model = "m", .client = "c" };
		free(apply(&p, text, IG_PROMPT_RULE_BYTES));
		assert_int_equal(p.abandoned, 0);
	}
	assert_true(cpu_s() - begin < 60);
	print_message("# %.3f s\n", cpu_s() - begin);
	ig_prompt_rules_unref(rules);
	free(text);
}

static void test_too_many(void **state)
{
	struct ig_prompt_rules *rules = ig_prompt_rules_create();
	struct ig_error err = { 0 };
	char name[16];
	int rc = 0;
	size_t n;

	for (n = ig_prompt_rules_n(rules); !rc; n++) {
		snprintf(name, sizeof name, "r%zu", n);
		struct ig_prompt_rule r = { .name = strdup(name),
					    .pattern = strdup("a"),
					    .replacement = strdup("") };
		rc = ig_prompt_rules_add(rules, &r, &err);
	}
	assert_int_equal(rc, -EINVAL);
	assert_int_equal(n, IG_PROMPT_MAX_RULES + 1);
	assert_non_null(strstr(err.text, "more than 64 rules"));
	ig_prompt_rules_unref(rules);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_builtin), cmocka_unit_test(test_replacement),
		cmocka_unit_test(test_where),	cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_hostile), cmocka_unit_test(test_too_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
