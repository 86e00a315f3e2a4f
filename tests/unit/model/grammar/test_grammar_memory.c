/*
 * test_grammar_memory.c: each allocation of a compilation, a matcher and the cache fails
 * once; the result is an error, never a crash or (under AddressSanitizer) a leak.  jansson
 * is told.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "test_grammar.h"
#include "tests/unit/no_memory.h"

static struct ig_tokenizer *tokenizer;

static const char *const schemas[] = {
	"{'$defs':{'n':{'anyOf':[{'type':'integer','minimum':3,'maximum':70},{'type':'array','items':"
	"{'$ref':'#/$defs/n'},'minItems':1,'maxItems':3}]}},'type':'object','properties':{'a':{'$ref':"
	"'#/$defs/n'},'b':{'enum':['x',{'y':[1]}]}},'patternProperties':{'^x':{'type':'null'}}}",
	"{'allOf':[{'type':'object','properties':{'a':{'type':'number','minimum':1}},'required':['a']},"
	"{'properties':{'a':{'maximum':2},'c':{'type':'string','pattern':'[^a]b','maxLength':5}}}],"
	"'oneOf':[{'properties':{'k':{'const':1}},'required':['k']},{'properties':{'k':{'const':2}},"
	"'required':['k']}]}",
	"{'type':'string','minLength':1,'maxLength':60}",
	"{'type':'string','x-ingot-grammar':{'syntax':'lark','definition':'%import common (INT, LF)\\n"
	"%ignore /#[^#]*#/\\nstart: (r | s)~1..2 LF?\\nr: r /[a-z]/i | \\' x\\'i s | \\'é\\'..\\'ö\\'\\n"
	"s: \\'(\\' [r | s] \\')\\' INT |\\n'}}",
};

static int once(struct ig_grammar_cache *c, const json_t *schema, bool with_free)
{
	const struct ig_grammar_part parts[] = {
		{ .kind = IG_GRAMMAR_TEXT, .text = "<tool_call>", .len = 11 },
		{ .kind = IG_GRAMMAR_SCHEMA, .schema = schema },
		{ .kind = IG_GRAMMAR_REGEX, .text = "[a-z]+\\p{Lu}", .len = 12 },
	};
	const struct ig_grammar_choice choice = { parts, with_free ? 2 : 3 };
	const char *const marker = "<tool_call>";
	const struct ig_grammar_free free_text = { .markers = &marker,
						   .n_markers = 1,
						   .think = "<t>",
						   .think_end = "</t>",
						   .alone = &choice };
	const struct ig_grammar_source source = { .free = with_free ? &free_text : NULL,
						  .choices = &choice,
						  .n_choices = 1,
						  .max_repeats = 2,
						  .between = "\n" };
	struct ig_grammar_matcher *m;
	struct ig_error err = { 0 };
	struct ig_grammar *g;
	int rc = ig_grammar_cache_get(c, tokenizer, &source, &g, &err);

	if (rc) {
		assert_int_equal(err.code, rc);
		if (!strstr(err.text, "out of memory"))
			fail_msg("%d: %s", rc, err.text);
		assert_null(g);
		return rc;
	}
	m = ig_grammar_matcher_create(g);
	if (m)
		assert_int_equal(ig_grammar_matcher_accept(m, MADE_CALL), 0);
	ig_grammar_matcher_destroy(m);
	ig_grammar_unref(g);
	return m ? 0 : -ENOMEM;
}

static void each_fails(void **state)
{
	for (size_t i = 0; i < sizeof schemas / sizeof schemas[0]; i++) {
		json_t *schema = schema_of(schemas[i]);
		int n_failed = 0;
		for (;; n_failed++) {
			struct ig_grammar_cache *c;
			int rc;
			assert_int_equal(ig_grammar_cache_create(1 << 30, &c), 0);
			no_memory_at(n_failed);
			rc = once(c, schema, i == 3);
			if (!no_memory_failed()) {
				assert_int_equal(rc, 0);
				ig_grammar_cache_destroy(c);
				break;
			}
			if (rc != -ENOMEM)
				fail_msg("allocation %d of %s: %d", n_failed, schemas[i], rc);
			/* The cache is none the worse for it. */
			if (n_failed % 64 == 0)
				assert_int_equal(once(c, schema, i == 3), 0);
			ig_grammar_cache_destroy(c);
		}
		assert_true(n_failed > 100);
		json_decref(schema);
	}
	no_memory_at(0);
	struct ig_grammar_cache *c;
	assert_int_equal(ig_grammar_cache_create(1, &c), -ENOMEM);
	no_memory_at(-1);
	assert_null(c);
}

static int setup(void **state)
{
	json_set_alloc_funcs(malloc, free);
	tokenizer = made_vocabulary(0, NULL, 0);
	return 0;
}

static int teardown(void **state)
{
	ig_tokenizer_close(tokenizer);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(each_fails) };

	return cmocka_run_group_tests_name("model/grammar without memory", tests, setup, teardown);
}
