/* test_file_name.c: endings, and the names of a split model's files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/file_name.h"

static void test_endings(void **state)
{
	assert_true(ig_has_ending("a.gguf", ".gguf"));
	assert_true(ig_has_ending("a.GGUF", ".gguf"));
	assert_false(ig_has_ending(".gguf", ".gguf")); /* nothing before it */
	assert_false(ig_has_ending("guf", ".gguf"));
	assert_false(ig_has_ending("", ".gguf"));
	assert_false(ig_has_ending("a.gguf.part", ".gguf"));
}

static void test_split_names(void **state)
{
	static const struct {
		const char *name;
		unsigned i, n;
		size_t len;
	} good[] = {
		{ "m-00001-of-00003.gguf", 1, 3, 1 },
		{ "a-b-00012-of-00345.GGUF", 12, 345, 3 },
		{ "m-00005-of-00003.gguf", 5, 3, 1 }, /* as it stands there */
		{ "m-00000-of-00000.gguf", 0, 0, 1 },
	};
	static const char *const bad[] = {
		"",
		"m.gguf",
		"-00001-of-00003.gguf", /* no name */
		"m-0001-of-00003.gguf",
		"m-00001-of-0003x.gguf",
		"m-00001_of-00003.gguf",
		"m-00001-of-00003.gguf.part",
		"m-00001-of-00003.bin",
		"m-000a1-of-00003.gguf",
		"m 00001-of-00003.gguf",
	};
	unsigned i, n;
	size_t len;

	for (size_t k = 0; k < sizeof good / sizeof good[0]; k++) {
		assert_true(ig_split_name(good[k].name, &i, &n, &len));
		assert_int_equal(i, good[k].i);
		assert_int_equal(n, good[k].n);
		assert_int_equal(len, good[k].len);
	}
	for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++)
		assert_false(ig_split_name(bad[k], &i, &n, &len));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_endings),
		cmocka_unit_test(test_split_names),
	};
	return cmocka_run_group_tests_name("names of files", tests, NULL, NULL);
}
