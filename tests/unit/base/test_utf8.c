/* test_utf8.c: validity of whole texts and of consecutive parts; characters written, read, cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/utf8.h"

#include <string.h>

static bool is_whole(const char *s, size_t n, size_t cut)
{
	struct ig_utf8 u = { 0 };

	return ig_utf8_feed(&u, s, cut) && ig_utf8_feed(&u, s + cut, n - cut) && ig_utf8_whole(&u);
}

static void test_utf8(void **state)
{
	static const char *const good[] = { "plain ascii, long enough for a word",
					    "é",
					    "€",
					    "\xf0\x9f\x98\x80",
					    "\xed\x9f\xbf",
					    "\xee\x80\x80",
					    "\xf4\x8f\xbf\xbf",
					    "abcdefgh\xc3\xa9ijklmnop",
					    NULL };
	static const char *const bad[] = { "\x80",
					   "\xc3",
					   "\xc0\x80",
					   "\xc1\xbf",
					   "\xe0\x9f\xbf",
					   "\xed\xa0\x80",
					   "\xf0\x8f\xbf\xbf",
					   "\xf4\x90\x80\x80",
					   "\xf5\x80\x80\x80",
					   "\xff",
					   "\xe2\x82",
					   "\xe2\x28\xa1",
					   "abcdefgh\xff",
					   "\xc3\xc3\xa9",
					   NULL };
	char out[8];

	for (const char *const *s = good; *s; s++)
		for (size_t cut = 0; cut <= strlen(*s); cut++)
			if (!is_whole(*s, strlen(*s), cut))
				fail_msg("%s cut at %zu", *s, cut);
	for (const char *const *s = bad; *s; s++)
		for (size_t cut = 0; cut <= strlen(*s); cut++)
			if (is_whole(*s, strlen(*s), cut))
				fail_msg("%s cut at %zu", *s, cut);
	ig_utf8_copy(out, sizeof out, "abc€def");
	assert_string_equal(out, "abc€d");
	ig_utf8_copy(out, sizeof out, "abcde€");
	assert_string_equal(out, "abcde");
	ig_utf8_copy(out, sizeof out, "a\xffz\xe2\x82");
	assert_string_equal(out, "a?z??");
}

static void utf8_ends(void **state)
{
	static const struct {
		const char *s;
		size_t n;
		int want;
	} cases[] = {
		{ "a", 1, 1 },
		{ "\xc3\xa9", 2, 2 },
		{ "\xc3", 1, 0 },
		{ "\xc3x", 2, -1 },
		{ "\x80", 1, -1 },
		{ "\xc0\x80", 2, -1 },
		{ "\xc1", 1, -1 },
		{ "\xf5\x80", 2, -1 },
		{ "\xe0\x80", 2, -1 },
		{ "\xe0\xa0", 2, 0 },
		{ "\xe0\xa0\x80", 3, 3 },
		{ "\xed\x9f\xbf", 3, 3 },
		{ "\xed\xa0\x80", 3, -1 },
		{ "\xe2\x82", 2, 0 },
		{ "\xe2\x82x", 3, -2 },
		{ "\xf0\x8f\xbf\xbf", 4, -1 },
		{ "\xf0\x90\x80\x80", 4, 4 },
		{ "\xf4\x8f\xbf\xbf", 4, 4 },
		{ "\xf4\x90\x80\x80", 4, -1 },
		{ "\xf0\x9f\x98", 3, 0 },
		{ "\xf0\x9f\x98x", 4, -3 },
		{ "\xff", 1, -1 },
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		assert_int_equal(ig_utf8_check((const unsigned char *)cases[i].s, cases[i].n),
				 cases[i].want);
}

/* All characters, and the surrogates, which are invalid. */
static void test_characters(void **state)
{
	for (uint32_t c = 0; c <= 0x10ffff; c++) {
		unsigned char s[5] = { 0 };
		size_t n = ig_utf8_put((char *)s, c);
		bool surrogate = c >= 0xd800 && c < 0xe000;
		assert_int_equal(n, c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4);
		assert_int_equal(ig_utf8_check(s, n), surrogate ? -1 : (int)n);
		assert_int_equal(ig_utf8_char(s, (int)n), c);
		assert_int_equal(ig_utf8_valid(s, n), !surrogate);
		assert_int_equal(ig_utf8_count((char *)s, n), 1);
		for (size_t k = 1; k < n && !surrogate; k++) {
			assert_int_equal(ig_utf8_check(s, k), 0);
			assert_int_equal(ig_utf8_cut((char *)s, n, k), 0);
		}
	}
}

static void test_cut(void **state)
{
	static const char s[] = "a\xc3\xa9\xe2\x82\xac";
	static const size_t want[] = { 0, 1, 1, 3, 3, 3, 6, 6, 6 };

	assert_int_equal(ig_utf8_count(s, 6), 3);
	for (size_t n = 0; n < 9; n++)
		assert_int_equal(ig_utf8_cut(s, 6, n), want[n]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_utf8),
		cmocka_unit_test(utf8_ends),
		cmocka_unit_test(test_characters),
		cmocka_unit_test(test_cut),
	};
	return cmocka_run_group_tests_name("utf8", tests, NULL, NULL);
}
