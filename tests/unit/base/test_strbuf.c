/* test_strbuf.c: the growing string. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/strbuf.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void test_growing(void **state)
{
	struct ig_strbuf b = { 0 };

	assert_null(b.data);
	for (int i = 0; i < 1000; i++)
		ig_strbuf_printf(&b, "%d,", i);
	assert_true(ig_strbuf_ok(&b));
	assert_int_equal(b.len, 10 * 2 + 90 * 3 + 900 * 4);
	assert_int_equal(strlen(b.data), b.len);
	assert_memory_equal(b.data + b.len - 8, "998,999,", 8);
	ig_strbuf_clear(&b);
	assert_string_equal(b.data, "");
	ig_strbuf_add(&b, "a\0b", 3); /* bytes, not C strings */
	assert_int_equal(b.len, 3);
	assert_memory_equal(b.data, "a\0b", 4);
	char *s = ig_strbuf_steal(&b);
	assert_memory_equal(s, "a\0b", 4);
	assert_null(b.data);
	free(s);
	s = ig_strbuf_steal(&b); /* nothing in it: an empty string */
	assert_string_equal(s, "");
	free(s);
	ig_strbuf_finish(&b);
}

static void test_failure_sticks(void **state)
{
	struct ig_strbuf b = { 0 };

	ig_strbuf_puts(&b, "kept");
	assert_false(ig_strbuf_reserve(&b, SIZE_MAX - 2));
	assert_false(ig_strbuf_ok(&b));
	ig_strbuf_puts(&b, "lost");
	assert_string_equal(b.data, "kept");
	assert_null(ig_strbuf_steal(&b));
	ig_strbuf_clear(&b);
	assert_true(ig_strbuf_ok(&b));
	ig_strbuf_finish(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_growing),
		cmocka_unit_test(test_failure_sticks),
	};
	return cmocka_run_group_tests_name("strbuf", tests, NULL, NULL);
}
