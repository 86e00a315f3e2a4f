/* Where the daemon is: URLs that are taken and refused. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/endpoint.h"

static void assert_is(const char *url, const char *host, unsigned port, const char *authority)
{
	struct ig_endpoint e;
	struct ig_error err = { 0 };

	if (ig_endpoint_parse(url, &e, &err))
		fail_msg("%s: %s", url, err.text);
	assert_string_equal(e.host, host);
	assert_int_equal(e.port, port);
	assert_string_equal(e.authority, authority);
	assert_memory_equal(e.url, "http://", 7);
	assert_string_equal(e.url + 7, authority);
}

static void test_taken(void **state)
{
	assert_is("http://127.0.0.1:6468", "127.0.0.1", 6468, "127.0.0.1:6468");
	assert_is("http://localhost:1/", "localhost", 1, "localhost:1");
	assert_is("http://h:65535/v1", "h", 65535, "h:65535");
	assert_is("http://h:8080/v1/", "h", 8080, "h:8080");
	assert_is("http://h", "h", 80, "h:80");
	assert_is("ws://h:7", "h", 7, "h:7");
	assert_is("http://[::1]:6468", "::1", 6468, "[::1]:6468");
	assert_is("http://[fe80::1]", "fe80::1", 80, "[fe80::1]:80");
}

static void test_refused(void **state)
{
	static const char *const bad[] = {
		"", "h", "127.0.0.1:6468", "http://", "http://:80", "http:///v1", "http://h:", "http://h:0",
		"http://h:65536", "http://h:999999999999", "http://h:8x", "http://h:-1", "http://h/x",
		"http://h:80/v1/responses", "http://u@h", "http://[::1", "http://[]", "http://[::1]x",
		"http://h h", "http://h\r\nX: y", "http://h?x", "http://h#x", "ftp://h", "http://\xff",
	};
	struct ig_endpoint e;
	char longest[400];

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct ig_error err = { 0 };
		if (ig_endpoint_parse(bad[i], &e, &err) != -EINVAL)
			fail_msg("'%s' was taken", bad[i]);
		assert_int_not_equal(strlen(err.text), 0);
	}
	memset(longest, 'a', sizeof longest - 1);
	longest[sizeof longest - 1] = 0;
	memcpy(longest, "http://", 7);
	assert_int_equal(ig_endpoint_parse(longest, &e, NULL), -EINVAL);
}

static void test_tls_is_named(void **state)
{
	struct ig_endpoint e;
	struct ig_error err = { 0 };

	assert_int_equal(ig_endpoint_parse("https://h", &e, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "TLS is not supported"));
	assert_int_equal(ig_endpoint_parse("wss://h", &e, &err), -ENOTSUP);
}

static void test_order(void **state)
{
	struct ig_endpoint e;
	struct ig_error err = { 0 };

	assert_int_equal(setenv("INGOT_URL", "http://env:2", 1), 0);
	assert_int_equal(ig_endpoint_find("http://arg:1", NULL, &e, &err), 0);
	assert_string_equal(e.host, "arg");
	assert_int_equal(ig_endpoint_find(NULL, NULL, &e, &err), 0);
	assert_string_equal(e.host, "env");
	assert_int_equal(ig_endpoint_find(NULL, "/nonexistent/ingot.yaml", &e, &err), -ENOENT);
	assert_int_equal(setenv("INGOT_URL", "nonsense", 1), 0);
	assert_int_equal(ig_endpoint_find(NULL, NULL, &e, &err), -EINVAL);
	unsetenv("INGOT_URL");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_taken),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_tls_is_named),
		cmocka_unit_test(test_order),
	};

	return cmocka_run_group_tests_name("cli endpoint", tests, NULL, NULL);
}
