/* test_chunked.c: the chunked coding: every cut of a body gives the same bytes, and what
 * two readers could read in two ways is refused. */
#include "daemon/net/chunked.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Feed text in pieces of `piece` bytes; the body in out, what was not used in *rest. */
static enum ig_chunked_rc decode(const char *text, size_t n, size_t piece, char *out, size_t *n_out,
				 size_t *rest)
{
	struct ig_chunked c = { 0 };
	enum ig_chunked_rc rc = IG_CHUNKED_MORE;

	*n_out = 0;
	while (n && rc == IG_CHUNKED_MORE) {
		const char *in = text, *data;
		size_t len, now = n < piece ? n : piece, left = now;
		while ((rc = ig_chunked_feed(&c, &in, &left, &data, &len)) == IG_CHUNKED_DATA) {
			assert_in_range(len, 1, now);
			memcpy(out + *n_out, data, len);
			*n_out += len;
		}
		assert_ptr_equal(in, text + (now - left));
		if (rc == IG_CHUNKED_MORE)
			assert_int_equal(left, 0);
		text += now - left;
		n -= now - left;
	}
	*rest = n;
	return rc;
}

static void test_bodies(void **state)
{
	static const struct {
		const char *text, *body;
		size_t rest;
	} rows[] = {
		{ "0\r\n\r\n", "", 0 },
		{ "5\r\nhello\r\n0\r\n\r\n", "hello", 0 },
		{ "5\r\nhello\r\n6\r\n world\r\n000\r\n\r\nGET /", "hello world", 5 },
		{ "a\r\n0123456789\r\nA\r\nabcdefghij\r\n0\r\n\r\n", "0123456789abcdefghij", 0 },
		{ "00000000000001\r\nx\r\n0\r\n\r\n", "x", 0 },
		{ "1;name=value;\t\"quoted\"\r\nx\r\n0;last\r\n\r\n", "x", 0 },
		{ "2\r\n\r\n\r\n0\r\n\r\n", "\r\n", 0 },
		{ "1\r\nx\r\n0\r\nTrailer: a\r\nAnother: b\r\n\r\n.", "x", 1 },
	};
	char out[64];

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		for (size_t piece = 1; piece <= strlen(rows[i].text); piece++) {
			size_t n, rest;
			assert_int_equal(
				decode(rows[i].text, strlen(rows[i].text), piece, out, &n, &rest),
				IG_CHUNKED_END);
			assert_int_equal(n, strlen(rows[i].body));
			assert_memory_equal(out, rows[i].body, n);
			assert_int_equal(rest, rows[i].rest);
		}
}

#define BYTES(s) { s, sizeof s - 1 }

static void test_refused(void **state)
{
	static const struct {
		const char *text;
		size_t n;
	} rows[] = {
		BYTES("\r\n"),
		BYTES("x\r\n"),
		BYTES("-1\r\n"),
		BYTES("+1\r\n"),
		BYTES("0x1\r\nx"),
		BYTES(" 1\r\n"),
		BYTES("1 \r\nx"),
		BYTES("1\nx"),
		BYTES("1\rx"),
		BYTES(";a\r\n"),
		BYTES("1\r\nxy"),
		BYTES("1\r\nx\ny"),
		BYTES("1\r\nx\r\r"),
		BYTES("1\r\nx\r\n\r\n"),
		BYTES("0\r\nx\n"),
		BYTES("0\r\n\ra"),
		BYTES("0\r\n folded\r\n"),
		BYTES("0\r\nA: b\rc"),
		BYTES("1;a\0b\r\n"),
		BYTES("1;a\x7f\r\n"),
		BYTES("0\r\nA: \0\r\n\r\n"),
		BYTES("0\n\n"),
		/* the sixteenth digit */
		BYTES("1000000000000000\r\n"),
		BYTES("0000000000000000\r\n"),
	};
	char out[64];

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		for (size_t piece = 1; piece <= rows[i].n; piece++) {
			size_t n, rest;
			if (decode(rows[i].text, rows[i].n, piece, out, &n, &rest) !=
			    IG_CHUNKED_BAD)
				fail_msg("row %zu, in pieces of %zu", i, piece);
		}
}

static void test_never_ends(void **state)
{
	static char text[20000], out[20000];
	size_t n, rest;

	/* an extension without an end, then a trailer without one */
	memset(text, 'a', sizeof text);
	memcpy(text, "1;", 2);
	assert_int_equal(decode(text, sizeof text, 100, out, &n, &rest), IG_CHUNKED_BAD);
	assert_in_range(rest, 10000, 13000);
	memcpy(text, "0\r\n", 3);
	assert_int_equal(decode(text, sizeof text, 100, out, &n, &rest), IG_CHUNKED_BAD);
	assert_in_range(rest, 10000, 13000);
	/* many short trailers are as long */
	for (size_t i = 3; i + 4 <= sizeof text; i += 4)
		memcpy(text + i, "a:\r\n", 4);
	assert_int_equal(decode(text, sizeof text, 100, out, &n, &rest), IG_CHUNKED_BAD);
	/* a chunk of nearly 2^60 bytes is one that has not ended yet */
	assert_int_equal(decode("fffffffffffffff\r\nabc", 20, 20, out, &n, &rest), IG_CHUNKED_MORE);
	assert_int_equal(n, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bodies),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_never_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
