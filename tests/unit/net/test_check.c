/* test_check.c: Host, Origin, Content-Length and Authorization values, roles, loopback
 * addresses. */
#include "daemon/net/check.h"
#include "store/ledger.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void test_host(void **state)
{
	static char *const allowed[] = { "box.lan", NULL };
	static const struct {
		const char *host;
		bool ok;
	} rows[] = {
		{ "localhost", true },
		{ "LOCALHOST:80", true },
		{ "127.0.0.1:6468", true },
		{ "[::1]", true },
		{ "[::1]:1", true },
		{ "box.lan:9", true },
		{ "10.0.0.5", true },
		{ "", false },
		{ "evil.com", false },
		{ "localhost.evil.com", false },
		{ "localhost:", false },
		{ "localhost:80x", false },
		{ "localhost:123456", false },
		{ "localhost,evil.com", false },
		{ "127.0.0.1.nip.io", false },
		{ "[::1", false },
		{ "[::1]x", false },
		{ "::1", false },
		{ "[]", false },
		{ "[localhost]", false },
		{ "127.0.0.2", false },
		{ "box.lan.", false },
	};

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		if (ig_check_host(rows[i].host, "10.0.0.5", allowed) != rows[i].ok)
			fail_msg("%s", rows[i].host);
	assert_false(ig_check_host("box.lan", NULL, NULL));
}

static void test_origin(void **state)
{
	static char *const allowed[] = { "http://box.lan:3000", NULL };

	assert_true(ig_check_origin("http://box.lan:3000", allowed));
	assert_false(ig_check_origin("http://box.lan", allowed));
	assert_false(ig_check_origin("http://localhost", allowed));
	assert_false(ig_check_origin("null", allowed));
	assert_false(ig_check_origin("http://box.lan:3000", NULL));
}

/* A page of this server. */
static void test_own_origin(void **state)
{
	static char *const allowed[] = { "box.lan", NULL };
	static const struct {
		const char *origin, *host;
		bool own;
	} rows[] = {
		{ "http://localhost:81", "localhost:81", true },
		{ "HTTP://LOCALHOST:81", "localhost:81", true },
		{ "https://box.lan", "box.lan", true }, /* behind a proxy */
		{ "http://127.0.0.1:99", "localhost:99", true },
		{ "http://[::1]:99", "10.0.0.5:99", true },
		{ "http://box.lan:99", "127.0.0.1:99", true },
		{ "http://10.0.0.5:99", "x", true },
		{ "http://localhost", "localhost:99", false },
		{ "http://localhost:98", "localhost:99", false },
		{ "http://evil.com:99", "localhost:99", false },
		{ "http://localhost:99.evil.com", "localhost:99", false },
		{ "http://localhost:99/", "localhost:99", false },
		{ "ftp://localhost:99", "localhost:99", false },
		{ "localhost:99", "localhost:99", false },
		{ "null", "localhost:99", false },
		{ "http://", "localhost:99", false },
	};

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		if (ig_check_own_origin(rows[i].origin, rows[i].host, "10.0.0.5", allowed, 99) !=
		    rows[i].own)
			fail_msg("%s", rows[i].origin);
	assert_true(ig_check_own_origin("http://localhost", "x", NULL, NULL, 80));
	assert_true(ig_check_own_origin("https://localhost", "x", NULL, NULL, 443));
}

static void test_length(void **state)
{
	static const char *const bad[] = {
		"", "-1", "+1", " 1", "1 ", "0x10", "1,1", "1e3", "1234567890123456789", NULL
	};
	uint64_t v;

	assert_true(ig_check_length("0", &v) && v == 0);
	assert_true(ig_check_length("0012", &v) && v == 12);
	assert_true(ig_check_length("999999999999999999", &v) && v == 999999999999999999);
	for (const char *const *b = bad; *b; b++)
		if (ig_check_length(*b, &v))
			fail_msg("%s", *b);
}

static void test_request_id(void **state)
{
	char longest[IG_REQUEST_ID_CAP + 1];

	memset(longest, 'x', sizeof longest);
	longest[IG_REQUEST_ID_CAP - 1] = 0;
	assert_true(ig_check_request_id(longest));
	longest[IG_REQUEST_ID_CAP - 1] = 'x';
	longest[IG_REQUEST_ID_CAP] = 0;
	assert_false(ig_check_request_id(longest));
	assert_true(ig_check_request_id("0"));
	assert_true(ig_check_request_id("3f2a-77:{!~\"'"));
	assert_false(ig_check_request_id(""));
	assert_false(ig_check_request_id("a b"));
	assert_false(ig_check_request_id("a\nb"));
	assert_false(ig_check_request_id("a\x7f"));
	assert_false(ig_check_request_id("\xc3\xa9"));
}

static void test_bearer(void **state)
{
	static const struct {
		const char *value, *key; /* NULL: none */
	} rows[] = {
		{ "Bearer abc", "abc" }, { "bearer abc", "abc" }, { "BEARER   abc  ", "abc" },
		{ "Bearer a b", "a b" }, { "Bearer", NULL },	  { "Bearer ", NULL },
		{ "Bearer    ", NULL },	 { "Bearerabc", NULL },	  { "", NULL },
		{ "abc", NULL },	 { " Bearer abc", NULL }, { "Basic abc", NULL },
		{ "Bear", NULL },	 { "Bearer\tabc", NULL },
	};
	size_t n;

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		const char *key = ig_check_bearer(rows[i].value, &n);
		if (!key != !rows[i].key)
			fail_msg("%s", rows[i].value);
		if (key && (n != strlen(rows[i].key) || memcmp(key, rows[i].key, n)))
			fail_msg("%s: %.*s", rows[i].value, (int)n, key);
	}
}

static void test_role(void **state)
{
	static const char *const users[] = {
		"/",	      "/healthz",	 "/v1",	      "/v1/",	   "/v1/models",
		"/v1/ingots", "/v1/responses/x", "/v1/Ingot", "/api/chat", "/api",
		NULL
	};
	static const char *const administrators[] = {
		"/metrics",    "/v1/ingot", "/v1/ingot/", "/v1/ingot/status", "/v1x",
		"/v10/models", "",	    "/x",	  "//v1/models",      "/V1/models",
		"/healthz/",   "/apix",	    NULL
	};

	for (const char *const *p = users; *p; p++)
		if (!ig_check_role(IG_ROLE_USER, *p) || !ig_check_role(IG_ROLE_ADMINISTRATOR, *p))
			fail_msg("%s", *p);
	for (const char *const *p = administrators; *p; p++)
		if (ig_check_role(IG_ROLE_USER, *p) || !ig_check_role(IG_ROLE_ADMINISTRATOR, *p))
			fail_msg("%s", *p);
	for (const char *const *p = users; *p; p++)
		if (ig_check_role(IG_ROLE_MONITOR, *p) != !strcmp(*p, "/healthz"))
			fail_msg("%s", *p);
	for (const char *const *p = administrators; *p; p++)
		if (ig_check_role(IG_ROLE_MONITOR, *p) != !strcmp(*p, "/metrics"))
			fail_msg("%s", *p);
}

static void test_loopback(void **state)
{
	static const char *const yes[] = { "127.0.0.1", "127.255.0.9",	    "::1",
					   "localhost", "::ffff:127.0.0.1", "0:0:0:0:0:0:0:1",
					   NULL };
	static const char *const no[] = { "0.0.0.0",
					  "::",
					  "10.0.0.1",
					  "128.0.0.1",
					  "1.127.0.0",
					  "::2",
					  "::ffff:10.0.0.1",
					  "::127.0.0.1",
					  "fe80::1",
					  "127.0.0.1.evil.com",
					  "localhost.evil.com",
					  "127.1",
					  "",
					  "unix:uid=0",
					  NULL };

	for (const char *const *a = yes; *a; a++)
		if (!ig_check_loopback(*a))
			fail_msg("%s", *a);
	for (const char *const *a = no; *a; a++)
		if (ig_check_loopback(*a))
			fail_msg("%s", *a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_host),	   cmocka_unit_test(test_origin),
		cmocka_unit_test(test_own_origin), cmocka_unit_test(test_length),
		cmocka_unit_test(test_bearer),	   cmocka_unit_test(test_request_id),
		cmocka_unit_test(test_role),	   cmocka_unit_test(test_loopback),
	};
	return cmocka_run_group_tests_name("checks", tests, NULL, NULL);
}
