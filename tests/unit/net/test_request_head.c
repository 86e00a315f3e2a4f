/* test_request_head.c: heads of requests: every cut of one gives the same, and what two readers
 * could read in two ways is refused. */
#include "daemon/net/request_head.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Find the end of text in pieces of `piece` bytes, and parse. */
static enum ig_head_rc read_head(char *text, size_t len, size_t piece, size_t max,
				 struct ig_head *h)
{
	enum ig_head_rc rc = IG_HEAD_MORE;
	size_t scanned = 0;

	*h = (struct ig_head){ 0 };
	for (size_t n = piece < len ? piece : len; rc == IG_HEAD_MORE; n += piece) {
		if (n > len)
			n = len;
		rc = ig_head_find(text, n, max, &scanned);
		if (n == len)
			break;
	}
	return rc == IG_HEAD_WHOLE ? ig_head_parse(text, scanned, h) : rc;
}

static void test_rows(void **state)
{
	static const struct {
		const char *text;
		enum ig_head_rc rc;
	} rows[] = {
		{ "GET / HTTP/1.1\r\n\r\n", IG_HEAD_WHOLE },
		{ "GET / HTTP/1.1\r\nA: b\r\n\r\nmore", IG_HEAD_WHOLE },
		{ "GET / HTTP/1.1\r\nA:\r\nB:\tc\t\r\n\r\n", IG_HEAD_WHOLE },
		{ "GET / HTTP/1.1\r\nA: \xc3\xa9\xff\r\n\r\n", IG_HEAD_WHOLE },
		{ "GET / HTTP/1.1\r\nA: b\r\n", IG_HEAD_MORE },
		{ "GET / HT", IG_HEAD_MORE },
		{ "GET /\r\n\r\n", IG_HEAD_BAD_LINE },
		{ "GET\r\n\r\n", IG_HEAD_BAD_LINE },
		{ "GET  / HTTP/1.1\r\n\r\n", IG_HEAD_BAD_LINE },
		{ "GET / FTP/1.1\r\n\r\n", IG_HEAD_BAD_LINE },
		{ "G\tT / HTTP/1.1\r\n\r\n", IG_HEAD_BAD_LINE },
		{ "GET /\x7f HTTP/1.1\r\n\r\n", IG_HEAD_BAD_LINE },
		{ "GET / HTTP/1.1\n\r\n", IG_HEAD_BAD_LINE },
		{ "\nGET / HTTP/1.1\r\n\r\n", IG_HEAD_BAD_LINE },
		{ "GET / HTTP/1.1\r\nA: b\n\r\n", IG_HEAD_BAD_FIELD },
		{ "GET / HTTP/1.1\r\nA: b\rc\r\n\r\n", IG_HEAD_BAD_FIELD },
		{ "GET / HTTP/1.1\r\n folded: x\r\n\r\n", IG_HEAD_BAD_FIELD },
		{ "GET / HTTP/1.1\r\nA : b\r\n\r\n", IG_HEAD_BAD_FIELD },
		{ "GET / HTTP/1.1\r\n: b\r\n\r\n", IG_HEAD_BAD_FIELD },
		{ "GET / HTTP/1.1\r\nA\r\n\r\n", IG_HEAD_BAD_FIELD },
		{ "GET / HTTP/1.1\r\nA: \x01\r\n\r\n", IG_HEAD_BAD_FIELD },
		{ "GET / HTTP/1.1\r\nA: 01234567890123456789012345678901234567890123456789\r\n\r\n",
		  IG_HEAD_TOO_LONG },
		{ "GET /01234567890123456789012345678901234567890123456789 HTTP/1.1\r\n\r\n",
		  IG_HEAD_LONG_LINE },
	};
	struct ig_head h;
	char text[200];

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		for (size_t piece = 1; piece < 100; piece++) {
			snprintf(text, sizeof text, "%s", rows[i].text);
			enum ig_head_rc rc = read_head(text, strlen(text), piece, 60, &h);
			if (rc != rows[i].rc)
				fail_msg("%s in pieces of %zu: %d", rows[i].text, piece, (int)rc);
		}
	/* NUL is a control character, too */
	memcpy(text, "GET / HTTP/1.1\r\nA: b\0c\r\n\r\n", 27);
	assert_int_equal(read_head(text, 26, 26, 60, &h), IG_HEAD_BAD_FIELD);
}

static void test_limits(void **state)
{
	size_t n = 20000, scanned;
	char *text = malloc(n);

	memset(text, 'a', n);
	memcpy(text, "GET /", 5);
	scanned = 0;
	assert_int_equal(ig_head_find(text, IG_MAX_REQUEST_LINE - 1, n, &scanned), IG_HEAD_MORE);
	assert_int_equal(ig_head_find(text, IG_MAX_REQUEST_LINE, n, &scanned), IG_HEAD_LONG_LINE);
	/* the longest line: its CR is the last byte that counts */
	memcpy(text + IG_MAX_REQUEST_LINE - 1, "\r\n", 2);
	scanned = 0;
	assert_int_equal(ig_head_find(text, n, n, &scanned), IG_HEAD_TOO_LONG);
	memcpy(text + IG_MAX_REQUEST_LINE, "\r\n", 2);
	scanned = 0;
	assert_int_equal(ig_head_find(text, n, n, &scanned), IG_HEAD_LONG_LINE);
	/* a head that ends at the limit, and one a byte later */
	memcpy(text, "GET / HTTP/1.1\r\nA: ", 19);
	memset(text + 19, 'a', n - 19);
	memcpy(text + 996, "\r\n\r\n", 4);
	scanned = 0;
	assert_int_equal(ig_head_find(text, n, 1000, &scanned), IG_HEAD_WHOLE);
	assert_int_equal(scanned, 1000);
	scanned = 0;
	assert_int_equal(ig_head_find(text, n, 999, &scanned), IG_HEAD_TOO_LONG);
	free(text);
}

static void test_fields(void **state)
{
	char text[] = "POST /v1/x?a=%20b HTTP/1.1\r\nHost:  box \r\nX-Key: 1\r\nx-KEY:2\r\n"
		      "Connection: keep-alive,\tUpgrade\r\nConnection: x\r\nEmpty:\r\n\r\n";
	struct ig_head h;
	size_t n;

	assert_int_equal(ig_head_parse(text, sizeof text - 1, &h), IG_HEAD_WHOLE);
	assert_string_equal(h.method, "POST");
	assert_string_equal(h.version, "HTTP/1.1");
	assert_string_equal(ig_head_field(&h, "host", &n), "box");
	assert_int_equal(n, 1);
	assert_string_equal(ig_head_field(&h, "x-key", &n), "1");
	assert_int_equal(n, 2);
	assert_string_equal(ig_head_field(&h, "empty", NULL), "");
	assert_null(ig_head_field(&h, "emp", &n));
	assert_int_equal(n, 0);
	assert_true(ig_head_has_token(&h, "connection", "upgrade"));
	assert_true(ig_head_has_token(&h, "connection", "X"));
	assert_false(ig_head_has_token(&h, "connection", "keep"));
	assert_false(ig_head_has_token(&h, "host", "upgrade"));
	assert_null(ig_head_field(&(struct ig_head){ 0 }, "host", &n));
}

static void parse_fields(const char *fields, char *text, size_t cap, struct ig_head *h)
{
	snprintf(text, cap, "GET / HTTP/1.1\r\n%s\r\n\r\n", fields);
	assert_int_equal(ig_head_parse(text, strlen(text), h), IG_HEAD_WHOLE);
}

static void test_wants_html(void **state)
{
	static const struct {
		const char *fields;
		bool wants;
	} rows[] = {
		{ "accept: text/html", true },
		{ "accept: text/html,*/*;q=0.8", true },
		{ "Accept: image/png , Text/HTML;q=0.1", true },
		{ "accept: application/xhtml+xml,text/html", true },
		{ "accept: */*", false },
		{ "accept: text/htmlx", false },
		{ "accept: xtext/html", false },
		{ "accept: text/plain;a=text/html", false },
		{ "accept:", false },
		{ "x-accept: text/html", false },
	};
	struct ig_head h;
	char text[120];

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		parse_fields(rows[i].fields, text, sizeof text, &h);
		assert_int_equal(ig_head_wants_html(&h), rows[i].wants);
	}
	assert_false(ig_head_wants_html(&(struct ig_head){ 0 }));
}

static void test_find_token(void **state)
{
	static const struct {
		const char *fields, *found; /* NULL: none */
	} rows[] = {
		{ "list: a, key.b", "b" },
		{ "list: key.b,a", "b" },
		{ "list: a\r\nlist: key.c", "c" },
		{ "list: key.a, key.b", "a" },
		{ "list: key.", NULL },
		{ "list: key., key.b", "b" },
		{ "list: xkey.b", NULL },
		{ "list: KEY.b", NULL },
		{ "list: , ,", NULL },
		{ "other: key.b", NULL },
	};
	struct ig_head h;
	char text[120];
	size_t n;

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		parse_fields(rows[i].fields, text, sizeof text, &h);
		const char *found = ig_head_find_token(&h, "list", "key.", &n);
		if (!rows[i].found) {
			assert_null(found);
			continue;
		}
		assert_non_null(found);
		assert_int_equal(n, strlen(rows[i].found));
		assert_memory_equal(found, rows[i].found, n);
	}
}

static void test_targets(void **state)
{
	static const struct {
		const char *target, *path, *query; /* path NULL: refused */
	} rows[] = {
		{ "/", "/", "" },
		{ "/a%2Fb?c=%41&d", "/a/b", "c=A&d" },
		{ "/a?b?c", "/a", "b?c" },
		{ "/?", "/", "" },
		{ "/%e2%82%ac", "/\xe2\x82\xac", "" },
		{ "a", NULL, NULL },
		{ "*", NULL, NULL },
		{ "http://a/", NULL, NULL },
		{ "/%", NULL, NULL },
		{ "/%4", NULL, NULL },
		{ "/%4g", NULL, NULL },
		{ "/%g4", NULL, NULL },
		{ "/%00", NULL, NULL },
		{ "/?%0", NULL, NULL },
	};
	char text[40], *path, *query;

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		snprintf(text, sizeof text, "%s", rows[i].target);
		bool ok = ig_head_target(text, &path, &query);
		if (ok != (rows[i].path != NULL))
			fail_msg("%s", rows[i].target);
		if (!ok)
			continue;
		assert_string_equal(path, rows[i].path);
		assert_string_equal(query, rows[i].query);
	}
}

static void test_peek(void **state)
{
	static const char text[] = "bro\0ken\nX-Request-Id2: no\nx-request-ID:\t a-1 \r\nother: b";
	char out[8];

	assert_true(ig_head_peek(text, sizeof text - 1, "x-request-id", out, sizeof out));
	assert_string_equal(out, "a-1");
	assert_false(ig_head_peek(text, sizeof text - 1, "x-request-id", out, 3));
	assert_false(ig_head_peek(text, sizeof text - 1, "x-other", out, sizeof out));
	/* the end of the value has not come */
	for (size_t n = 0; n < 44; n++)
		assert_false(ig_head_peek(text, n, "x-request-id", out, sizeof out));
	assert_false(ig_head_peek(text, sizeof text - 1, "other", out, sizeof out));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows),	   cmocka_unit_test(test_limits),
		cmocka_unit_test(test_fields),	   cmocka_unit_test(test_wants_html),
		cmocka_unit_test(test_find_token), cmocka_unit_test(test_targets),
		cmocka_unit_test(test_peek),
	};
	return cmocka_run_group_tests_name("request_head", tests, NULL, NULL);
}
