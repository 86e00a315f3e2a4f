/* test_lookup.c: what followed the same tokens earlier in a text, and how sure that is. */
#include "daemon/engine/lookup_private.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CAP 4096

static struct ig_lookup l;
static int32_t text[CAP];

static int teardown(void **state)
{
	ig_lookup_finish(&l);
	return 0;
}

/* A text that begins with these tokens, up to -1. */
static void begin(const int32_t *tokens)
{
	uint32_t n = 0;

	while (tokens[n] >= 0)
		n++;
	memcpy(text, tokens, n * sizeof *text);
	assert_int_equal(ig_lookup_init(&l, CAP), 0);
	ig_lookup_read(&l, text, n);
}

static void take(int32_t id)
{
	text[l.n] = id;
	ig_lookup_take(&l, text);
}

static void assert_guess(const int32_t *expected)
{
	uint32_t n = 0;

	while (expected[n] >= 0)
		n++;
	assert_true(ig_lookup_expects(&l));
	ig_lookup_guess(&l, text, n);
	assert_memory_equal(text + l.n, expected, n * sizeof *text);
}

#define TOKENS(...) ((const int32_t[]){ __VA_ARGS__, -1 })

static void test_what_followed_a_pair(void **state)
{
	begin(TOKENS(1, 2, 3, 4, 5, 6, 1, 2));
	assert_guess(TOKENS(3, 4, 5, 6, 1, 2));
	assert_int_equal(l.n_match, 2);
}

static void test_nothing_is_known(void **state)
{
	begin(TOKENS(1, 2, 3, 4, 5, 2));
	assert_false(ig_lookup_expects(&l));
	assert_true(ig_lookup_chance(&l, 0) == 0);
	take(3); /* the pair 2, 3 */
	assert_guess(TOKENS(4, 5));
}

static void test_short_texts(void **state)
{
	begin(TOKENS(7));
	assert_false(ig_lookup_expects(&l));
	take(7);
	assert_false(ig_lookup_expects(&l));
	take(7);
	assert_guess(TOKENS(7, 7, 7));
}

static void test_off(void **state)
{
	struct ig_lookup none = { 0 };

	assert_false(ig_lookup_expects(&none));
	assert_true(ig_lookup_chance(&none, 0) == 0);
}

static void test_longest_before_newest(void **state)
{
	begin(TOKENS(9, 1, 2, 3, 50, 8, 1, 2, 3, 60, 9, 1, 2, 3));
	assert_guess(TOKENS(50, 8)); /* 9, 1, 2, 3 */
	assert_int_equal(l.n_match, 4);
}

static void test_newest_of_equal_ones(void **state)
{
	begin(TOKENS(5, 1, 2, 50, 6, 1, 2, 60, 7, 1, 2));
	assert_guess(TOKENS(60, 7));
}

static void test_the_end_is_repeated(void **state)
{
	begin(TOKENS(1, 2, 3, 1, 2, 3, 1, 2));
	assert_guess(TOKENS(3, 1, 2, 3, 1, 2, 3, 1, 2, 3));
}

static void test_a_guess_moves_on(void **state)
{
	begin(TOKENS(1, 2, 3, 4, 5, 6, 7, 8, 1, 2));
	for (int32_t id = 3; id <= 8; id++) {
		assert_int_equal(l.n_match, id - 1);
		take(id);
	}
	assert_guess(TOKENS(1, 2));
	take(40);
	assert_false(ig_lookup_expects(&l));
}

/* A copy in which one token is another goes on behind it, although pairs occur later, too. */
static void test_copies_with_changes_go_on(void **state)
{
	begin(TOKENS(10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 15, 30, 15, 31, 10, 11, 12, 13));
	assert_guess(TOKENS(14, 15));
	take(99); /* instead of 14 */
	assert_false(ig_lookup_expects(&l));
	take(15);
	assert_guess(TOKENS(16, 17, 18, 19));
	assert_int_equal(l.n_match, 1);
}

static void test_expected_from_a_place(void **state)
{
	begin(TOKENS(40, 41, 42, 43, 1, 2, 3));
	ig_lookup_expect(&l, 0, 8);
	assert_guess(TOKENS(40, 41, 42, 43));
	take(40);
	take(41);
	assert_guess(TOKENS(42, 43));
}

/* The chance becomes what it was of late, for each length of a match alone. */
static void test_chances(void **state)
{
	int32_t next = 100;

	begin(TOKENS(1, 2, 3, 9, 9));
	double first = ig_lookup_chance(&l, 0);
	assert_true(first == 0);
	for (int i = 0; i < 60; i++) { /* what follows 1, 2 is never what it was */
		take(1);
		take(2);
		take(next++);
		take(next++);
	}
	take(1);
	take(2);
	assert_int_equal(l.n_match, 2);
	assert_true(ig_lookup_chance(&l, 0) < 0.1);
	assert_true(ig_lookup_chance(&l, 10) > 0.5); /* of longer ones nothing is known */
	for (int i = 0; i < 400; i++)
		take(i % 10 + 10000); /* the same again and again */
	assert_true(ig_lookup_chance(&l, 0) > 0.97);
	assert_true(ig_lookup_chance(&l, 0) < 1);
}

/* At any time as many tokens before both places are the same as it says, and no pair is missed. */
static void test_random_texts(void **state)
{
	unsigned seed = 1;

	for (int round = 0; round < 20; round++) {
		int32_t n_ids = 2 + round % 10;
		ig_lookup_finish(&l);
		assert_int_equal(ig_lookup_init(&l, CAP), 0);
		ig_lookup_read(&l, text, 0);
		while (l.n < CAP) {
			seed = seed * 1664525u + 1013904223u;
			take((int32_t)(seed >> 16) % n_ids);
			if (!ig_lookup_expects(&l))
				continue;
			assert_true((uint32_t)l.at < l.n && l.n_match >= 1);
			assert_true(l.n_match <= (uint32_t)l.at);
			assert_memory_equal(text + l.at - l.n_match, text + l.n - l.n_match,
					    l.n_match * sizeof *text);
			for (uint32_t i = 0; i < 40; i++) {
				double p = ig_lookup_chance(&l, i);
				assert_true(p > 0 && p < 1);
			}
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_what_followed_a_pair, teardown),
		cmocka_unit_test_teardown(test_nothing_is_known, teardown),
		cmocka_unit_test_teardown(test_short_texts, teardown),
		cmocka_unit_test_teardown(test_off, teardown),
		cmocka_unit_test_teardown(test_longest_before_newest, teardown),
		cmocka_unit_test_teardown(test_newest_of_equal_ones, teardown),
		cmocka_unit_test_teardown(test_the_end_is_repeated, teardown),
		cmocka_unit_test_teardown(test_a_guess_moves_on, teardown),
		cmocka_unit_test_teardown(test_copies_with_changes_go_on, teardown),
		cmocka_unit_test_teardown(test_expected_from_a_place, teardown),
		cmocka_unit_test_teardown(test_chances, teardown),
		cmocka_unit_test_teardown(test_random_texts, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
