/*
 * test_grammar_free.c: free text with choices in it, each held from its marker on; reasoning before
 * it; a choice that may be the whole text.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "test_grammar.h"
#include "base/utf8.h"

#define N_VOCAB 3000

static struct ig_tokenizer *tokenizer;
static uint32_t mask[(N_VOCAB + 31) / 32];

#define TEXT(s) { .kind = IG_GRAMMAR_TEXT, .text = (s), .len = sizeof(s) - 1 }
#define DIGITS { .kind = IG_GRAMMAR_REGEX, .text = "[0-9]{2}", .len = 8 }

static const char *const markers[] = { "<tool_call>" };
static const struct ig_grammar_part tagged[] = { TEXT("<tool_call>"), DIGITS,
						 TEXT("</tool_call>") };
static const struct ig_grammar_part bare[] = { TEXT("{\"name\": "), DIGITS, TEXT("}") };
static const struct ig_grammar_choice tag = { tagged, 3 }, object = { bare, 3 };

static struct ig_grammar *make(const struct ig_grammar_free *f, const struct ig_grammar_choice *c,
			       uint32_t max_repeats)
{
	const struct ig_grammar_source source = {
		.free = f, .between = "\n", .choices = c, .n_choices = 1, .max_repeats = max_repeats
	};
	struct ig_grammar *g;
	struct ig_error err;

	if (ig_grammar_compile(tokenizer, &source, &g, &err))
		fail_msg("%s", err.text);
	return g;
}

/* As bytes, and with control tokens where their names are. */
static void check(struct ig_grammar *g, bool want, const char *const *texts)
{
	for (; *texts; texts++) {
		struct ig_grammar_matcher *m = ig_grammar_matcher_create(g);
		struct ig_ids ids = { 0 };
		size_t n = 0;
		if (takes(tokenizer, g, *texts) != want)
			fail_msg("should %stake '%s'", want ? "" : "not ", *texts);
		assert_int_equal(
			ig_tokenizer_encode(tokenizer, *texts, strlen(*texts), true, 10000, &ids),
			0);
		while (n < ids.n && !ig_grammar_matcher_accept(m, ids.ids[n]))
			n++;
		if ((n == ids.n && can_end(tokenizer, m, mask)) != want)
			fail_msg("should %stake '%s' with control tokens", want ? "" : "not ",
				 *texts);
		ig_ids_finish(&ids);
		ig_grammar_matcher_destroy(m);
	}
}

#define LIST(...) ((const char *const[]){ __VA_ARGS__, NULL })
#define CALL "<tool_call>12</tool_call>"

static void around_calls(void **state)
{
	struct ig_grammar_free f = { .markers = markers, .n_markers = 1 };
	struct ig_grammar *g = make(&f, &tag, 9);

	check(g, true,
	      LIST("", "Hello.", CALL, "Let me see.\n" CALL, CALL "\n" CALL " \xc3\xa9\n" CALL "!",
		   "a <tool_call without its end, <<tool_call", "<tool_" CALL, "</tool_call>",
		   "[TOOL_CALLS] is text here"));
	check(g, false,
	      LIST("<tool_call>", "x <tool_call>1</tool_call>", CALL "<tool_call>x",
		   "<tool_call>12</tool_call", "<<tool_call>>", "a " CALL " <tool_call>1"));
	ig_grammar_unref(g);
	/* one at most */
	g = make(&f, &tag, 1);
	check(g, true, LIST("", "text", "a " CALL, CALL));
	check(g, false, LIST(CALL CALL, CALL " ", "<tool_call>", CALL "<tool_call>"));
	ig_grammar_unref(g);
}

/* Two markers, of which the calls begin with the first. */
static void two_markers(void **state)
{
	static const char *const two[] = { "[TOOL_CALLS]", "[ARGS]" };
	const struct ig_grammar_free f = { .markers = two, .n_markers = 2 };
	const struct ig_grammar_source source = { .free = &f,
						  .open = "[TOOL_CALLS][",
						  .between = "; ",
						  .after = "]",
						  .choices = &object,
						  .n_choices = 1,
						  .max_repeats = 9 };
	struct ig_grammar *g;
	struct ig_error err;

	assert_int_equal(ig_grammar_compile(tokenizer, &source, &g, &err), 0);
#define OBJECT "{\"name\": 12}"
	check(g, true,
	      LIST("", "Hi {\"name\": 1}", "[TOOL_CALLS][" OBJECT "]",
		   "x[TOOL_CALLS][" OBJECT "; " OBJECT "] y [TOOL_CALLS][" OBJECT "]", "[ARGS",
		   "<tool_call>"));
	check(g, false,
	      LIST("[TOOL_CALLS]", "[ARGS]", "x [ARGS]", "[TOOL_CALLS][]",
		   "[TOOL_CALLS][" OBJECT "][ARGS]"));
	ig_grammar_unref(g);
}

static void reasoning(void **state)
{
	struct ig_grammar_free f = {
		.markers = markers, .n_markers = 1, .think = "<think>", .think_end = "</think>"
	};
	struct ig_grammar *g = make(&f, &tag, 9);

	/* what is thought is no call */
	check(g, true,
	      LIST("", "Hi", "<think>a <tool_call> b</think>Hi " CALL, "\n<think></think>\n\n" CALL,
		   "<think>it ends", "a <think> b"));
	check(g, false, LIST("<think></think><tool_call>", "a <think> <tool_call> </think>"));
	ig_grammar_unref(g);
	f.in_thought = true;
	g = make(&f, &tag, 9);
	check(g, true,
	      LIST("", "<tool_call> b", "<tool_call> b</think>Hi " CALL, "</think>\n" CALL));
	check(g, false, LIST("</think><tool_call>", "x</think>\n<tool_call>1</tool_call>"));
	ig_grammar_unref(g);
}

static void alone(void **state)
{
	static const struct ig_grammar_part letters = { .kind = IG_GRAMMAR_REGEX,
							.text = "[a-z]+",
							.len = 6 };
	const struct ig_grammar_choice answer = { &letters, 1 };
	struct ig_grammar_free f = { .alone = &answer };
	struct ig_grammar *g = make(&f, &tag, 9);

	check(g, true, LIST("abc", CALL, CALL "\n" CALL));
	check(g, false, LIST("", "abc" CALL, CALL "abc", CALL CALL, "A", "<tool_call>1"));
	ig_grammar_unref(g);
	g = make(&f, &tag, 1);
	check(g, true, LIST("abc", CALL));
	check(g, false, LIST(CALL "\n" CALL));
	ig_grammar_unref(g);
	f.think = "<think>";
	f.think_end = "</think>";
	g = make(&f, &tag, 9);
	check(g, true,
	      LIST("abc", CALL, "<think>X <tool_call></think>\n\nabc", "<think></think>" CALL));
	check(g, false, LIST("<think>X", "<think></think>", "X", "abc<think></think>"));
	ig_grammar_unref(g);
	f.in_thought = true;
	g = make(&f, &tag, 9);
	check(g, true, LIST("X</think>\n\nabc", "</think>" CALL));
	check(g, false, LIST("", "abc", CALL, "X</think>\n\n", "X</think>\n\n\n\n\nabc"));
	ig_grammar_unref(g);
}

/* Whether characters begin with these bytes. */
static bool is_text(const char *s, size_t len)
{
	int n = 1;

	for (; len && n > 0; s += n, len -= (size_t)n)
		n = ig_utf8_check((const unsigned char *)s, len);
	return n >= 0;
}

/* Free text allows every token but those that complete a marker wrongly, control tokens too. */
static void masks(void **state)
{
	const struct ig_grammar_free f = { .markers = markers, .n_markers = 1 };
	struct ig_grammar *g = make(&f, &tag, 9);
	struct ig_grammar_matcher *m = ig_grammar_matcher_create(g);
	unsigned n = 0;

	assert_int_equal(ig_grammar_matcher_accept(m, MADE_BYTE + 'x'), 0);
	ig_grammar_matcher_mask(m, mask);
	for (int32_t id = 0; id < N_VOCAB; id++) {
		size_t len;
		bool special;
		const char *s = ig_tokenizer_token(tokenizer, id, &len, &special);
		if (has_bit(mask, id) || len > 64)
			continue;
		if (special || (is_text(s, len) && !memchr(s, '<', len) && !memchr(s, 0, len)))
			n++;
	}
	assert_int_equal(n, 0);
	assert_true(has_bit(mask, MADE_CALL) && has_bit(mask, MADE_CALL_END));
	assert_int_equal(ig_grammar_matcher_accept(m, MADE_CALLS), 0);
	assert_int_equal(ig_grammar_matcher_accept(m, MADE_CALL), 0);
	ig_grammar_matcher_mask(m, mask);
	for (int32_t id = 0; id < MADE_BYTE + 256; id++)
		assert_int_equal(has_bit(mask, id), id >= MADE_BYTE + '0' && id <= MADE_BYTE + '9');
	assert_int_equal(ig_grammar_matcher_accept(m, MADE_CALLS), -EINVAL);
	ig_grammar_matcher_destroy(m);
	ig_grammar_unref(g);
}

/* Sources that differ in one thing are different grammars to the cache. */
static void cached(void **state)
{
	static const char *const other[] = { "[ARGS]" }, *const both[] = { "<tool_call>",
									   "[ARGS]" };
	static const struct ig_grammar_part letters = { .kind = IG_GRAMMAR_REGEX,
							.text = "[a-z]+",
							.len = 6 };
	const struct ig_grammar_choice answer = { &letters, 1 };
	const struct ig_grammar_free list[] = {
		{ .markers = markers, .n_markers = 1 },
		{ .markers = other, .n_markers = 1 },
		{ .markers = both, .n_markers = 2 },
		{ .markers = markers, .n_markers = 1, .think = "<t>", .think_end = "</t>" },
		{ .markers = markers, .n_markers = 1, .think = "<t>", .think_end = "</u>" },
		{ .markers = markers,
		  .n_markers = 1,
		  .think = "<t>",
		  .think_end = "</t>",
		  .in_thought = true },
		{ .markers = markers, .n_markers = 1, .alone = &answer },
		{ .alone = &answer },
	};
	struct ig_grammar_source source = { .choices = &tag, .n_choices = 1, .max_repeats = 2 };
	struct ig_grammar *got[8], *again;
	struct ig_grammar_cache *c;
	struct ig_error err;

	assert_int_equal(ig_grammar_cache_create(1 << 30, &c), 0);
	for (size_t i = 0; i < 8; i++) {
		source.free = &list[i];
		assert_int_equal(ig_grammar_cache_get(c, tokenizer, &source, &got[i], &err), 0);
		assert_int_equal(ig_grammar_cache_get(c, tokenizer, &source, &again, &err), 0);
		assert_ptr_equal(got[i], again);
		ig_grammar_unref(again);
		for (size_t k = 0; k < i; k++)
			assert_ptr_not_equal(got[i], got[k]);
	}
	for (size_t i = 0; i < 8; i++)
		ig_grammar_unref(got[i]);
	ig_grammar_cache_destroy(c);
}

static int setup(void **state)
{
	tokenizer = made_vocabulary(N_VOCAB, NULL, 0);
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
		cmocka_unit_test(around_calls), cmocka_unit_test(two_markers),
		cmocka_unit_test(reasoning),	cmocka_unit_test(alone),
		cmocka_unit_test(masks),	cmocka_unit_test(cached),
	};

	return cmocka_run_group_tests_name("model/grammar/free text", tests, setup, teardown);
}
