/* The daemon's address: valid and invalid URLs. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/net/endpoint.h"

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

static void test_tls(void **state)
{
	struct ig_endpoint e;

	assert_int_equal(ig_endpoint_parse("https://h", &e, NULL), 0);
	assert_true(e.tls);
	assert_int_equal(e.port, 443);
	assert_string_equal(e.url, "https://h:443");
	assert_int_equal(ig_endpoint_parse("wss://[::1]:8443/v1", &e, NULL), 0);
	assert_true(e.tls);
	assert_string_equal(e.url, "https://[::1]:8443");
	assert_int_equal(ig_endpoint_parse("http://h", &e, NULL), 0);
	assert_false(e.tls);
}

static void test_unix_sockets(void **state)
{
	static const char *const bad[] = { "unix:", "unix:x", "unix://host/x", "unix:./x" };
	struct ig_endpoint e;
	struct ig_error err = { 0 };
	char url[300] = "unix:/";

	assert_int_equal(ig_endpoint_parse("unix:/run/ingot.sock", &e, &err), 0);
	assert_string_equal(e.socket, "/run/ingot.sock");
	assert_string_equal(e.authority, "localhost");
	assert_string_equal(e.url, "unix:/run/ingot.sock");
	assert_int_equal(ig_endpoint_parse("unix:///run/x y", &e, &err), 0);
	assert_string_equal(e.socket, "/run/x y");
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		if (ig_endpoint_parse(bad[i], &e, &err) != -EINVAL)
			fail_msg("'%s' was taken", bad[i]);
	memset(url + 6, 'a', 102);
	assert_int_equal(ig_endpoint_parse(url, &e, &err), 0); /* 103 bytes */
	url[108] = 'a';
	assert_int_equal(ig_endpoint_parse(url, &e, &err), -EINVAL);
	assert_non_null(strstr(err.text, "at most 103 bytes"));
}

static int open_with(const char *key, const char *file, struct ig_endpoint *e, struct ig_error *err)
{
	static char arg[700];
	struct ig_where w = { .url = "http://h", .api_key_file = file };

	if (key) {
		snprintf(arg, sizeof arg, "%s", key);
		w.api_key = arg;
	}
	int rc = ig_endpoint_open(&w, e, err);
	if (key) /* others see the arguments of a process */
		assert_int_equal(strspn(arg, "x"), strlen(key));
	return rc;
}

static void put(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void test_keys(void **state)
{
	char path[] = "/tmp/ingot-key-XXXXXX", key[600];
	struct ig_endpoint e;
	struct ig_error err = { 0 };
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	close(fd);
	unsetenv("INGOT_API_KEY");
	assert_int_equal(open_with(NULL, NULL, &e, &err), 0);
	assert_string_equal(e.api_key, "");
	setenv("INGOT_API_KEY", "from-env", 1);
	assert_int_equal(open_with(NULL, NULL, &e, &err), 0);
	assert_string_equal(e.api_key, "from-env");
	assert_int_equal(open_with("from-arg", NULL, &e, &err), 0);
	assert_string_equal(e.api_key, "from-arg");
	put(path, "from-file\r\nsecond line\n");
	assert_int_equal(open_with(NULL, path, &e, &err), 0);
	assert_string_equal(e.api_key, "from-file");
	put(path, "no-newline");
	assert_int_equal(open_with(NULL, path, &e, &err), 0);
	assert_string_equal(e.api_key, "no-newline");
	assert_int_equal(open_with("a", path, &e, &err), -EINVAL);
	assert_non_null(strstr(err.text, "exclude"));
	put(path, "");
	assert_int_equal(open_with(NULL, path, &e, &err), -EINVAL);
	put(path, "two words\n");
	assert_int_equal(open_with(NULL, path, &e, &err), -EINVAL);
	assert_null(strstr(err.text, "two")); /* a key is not shown */
	assert_int_equal(open_with(NULL, "/nonexistent", &e, &err), -ENOENT);
	/* no character may end the header */
	assert_int_equal(open_with("a\r\nX: y", NULL, &e, &err), -EINVAL);
	assert_int_equal(open_with("schl\xc3\xbcssel", NULL, &e, &err), -EINVAL);
	memset(key, 'k', sizeof key);
	key[519] = 0;
	assert_int_equal(open_with(key, NULL, &e, &err), 0);
	assert_int_equal(strlen(e.api_key), 519);
	key[519] = 'k';
	key[520] = 0;
	assert_int_equal(open_with(key, NULL, &e, &err), -EINVAL);
	put(path, key);
	assert_int_equal(open_with(NULL, path, &e, &err), -EINVAL);
	unsetenv("INGOT_API_KEY");
	unlink(path);
}

static void test_certificates(void **state)
{
	struct ig_where w = { .url = "https://h", .cacert = "/nonexistent.pem" };
	struct ig_endpoint e;
	struct ig_error err = { 0 };

	assert_int_equal(ig_endpoint_open(&w, &e, &err), -ENOENT);
	assert_non_null(strstr(err.text, "--cacert /nonexistent.pem"));
	w.cacert = "/dev/null";
	assert_int_equal(ig_endpoint_open(&w, &e, &err), 0);
	assert_string_equal(e.cacert, "/dev/null");
}

static void test_refused(void **state)
{
	static const char *const bad[] = {
		"",
		"h",
		"127.0.0.1:6468",
		"http://",
		"http://:80",
		"http:///v1",
		"http://h:",
		"http://h:0",
		"http://h:65536",
		"http://h:999999999999",
		"http://h:8x",
		"http://h:-1",
		"http://h/x",
		"http://h:80/v1/responses",
		"http://u@h",
		"http://[::1",
		"http://[]",
		"http://[::1]x",
		"http://h h",
		"http://h\r\nX: y",
		"http://h?x",
		"http://h#x",
		"ftp://h",
		"http://\xff",
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
		cmocka_unit_test(test_taken), cmocka_unit_test(test_refused),
		cmocka_unit_test(test_tls),   cmocka_unit_test(test_unix_sockets),
		cmocka_unit_test(test_keys),  cmocka_unit_test(test_certificates),
		cmocka_unit_test(test_order),
	};

	return cmocka_run_group_tests_name("cli endpoint", tests, NULL, NULL);
}
