/* test_frames.c: frames of a WebSocket's client: every cut gives the same messages. */
#include "daemon/net/frames.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* What came of some bytes, as text: "B5" a frame of 5, its bytes, "E" the end of a message, "C9:x" a
 * control frame, "!" a violation. */
static void feed(const char *bytes, size_t n, size_t piece, char *out, size_t cap)
{
	struct ig_frames f = { 0 };
	enum ig_frames_rc rc = IG_FRAMES_MORE;
	size_t len = 0;

	out[0] = 0;
	for (size_t at = 0; at < n && rc != IG_FRAMES_BAD; at += piece) {
		char copy[512], *in = copy, *data;
		size_t left = n - at < piece ? n - at : piece, k;
		memcpy(copy, bytes + at, left);
		while ((rc = ig_frames_feed(&f, &in, &left, &data, &k)) != IG_FRAMES_MORE) {
			if (rc == IG_FRAMES_BEGIN)
				len += (size_t)snprintf(out + len, cap - len, "%c%d ",
							f.binary ? 'b' : 'B', (int)f.left);
			else if (rc == IG_FRAMES_DATA)
				len += (size_t)snprintf(out + len, cap - len, "%.*s", (int)k, data);
			else if (rc == IG_FRAMES_END)
				len += (size_t)snprintf(out + len, cap - len, "E ");
			else if (rc == IG_FRAMES_CONTROL)
				len += (size_t)snprintf(out + len, cap - len, "C%d:%.*s ", f.opcode,
							(int)f.n_control, f.control);
			else
				len += (size_t)snprintf(out + len, cap - len, "!");
			if (rc == IG_FRAMES_BAD)
				break;
		}
		assert_true(rc == IG_FRAMES_BAD || !left);
	}
}

/* The masking key is 1 2 3 4. */
#define K "\1\2\3\4"

static void test_rows(void **state)
{
#define ROW(bytes, want) { bytes, sizeof bytes - 1, want }
	static const struct {
		const char *bytes;
		size_t n;
		const char *want;
	} rows[] = {
		ROW("\x81\x80" K, "B0 E "),
		ROW("\x81\x85" K "\x69\x67\x6f\x68\x6e", "B5 helloE "),
		ROW("\x82\x81" K "\x60", "b1 aE "),
		ROW("\x01\x81" K "\x60\x89\x81" K "\x71\x00\x80" K "\x80\x82" K "\x63\x61",
		    "B1 aC9:p B0 B2 bcE "),
		ROW("\x02\x80" K "\x80\x80" K, "b0 b0 E "),
		ROW("\x88\x82" K "\x02\xea", "C8:\x03\xe8 "),
		ROW("\x8a\x80" K "\x81\x80" K, "C10: B0 E "),
		ROW("\x81\x00", "!"),	/* not masked */
		ROW("\x91\x80" K, "!"), /* a reserved bit */
		ROW("\x83\x80" K, "!"), /* opcodes */
		ROW("\x8b\x80" K, "!"),
		ROW("\x80\x80" K, "!"),		      /* a continuation of nothing */
		ROW("\x01\x80" K "\x81\x80", "B0 !"), /* a message within a message */
		ROW("\x09\x80" K, "!"),		      /* control frames: whole … */
		ROW("\x89\xfe\x00\x7e" K, "!"),	      /* … and short */
		ROW("\x81\xfe\x00\x7d" K, "!"),	      /* longer lengths than needed */
		ROW("\x81\xff\0\0\0\0\0\0\xff\xff" K, "!"),
		ROW("\x81\xff\x80\0\0\0\0\0\0\0" K, "!"), /* a length with a sign */
		ROW("\x81\xfe\x00\x7e" K, "B126 "),
	};
	char out[400];

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		for (size_t piece = 1; piece <= rows[i].n; piece++) {
			feed(rows[i].bytes, rows[i].n, piece, out, sizeof out);
			if (strcmp(out, rows[i].want))
				fail_msg("row %zu in pieces of %zu: %s", i, piece, out);
		}
}

/* Eight bytes at a time, wherever the key begins. */
static void test_unmask(void **state)
{
	char bytes[6 + 100] = "\x81\xe4" K, out[200], want[200];

	for (int i = 0; i < 100; i++)
		bytes[6 + i] = (char)(('a' + i % 26) ^ (i % 4 + 1));
	snprintf(want, sizeof want, "B100 ");
	for (int i = 0; i < 100; i++)
		snprintf(want + strlen(want), 2, "%c", 'a' + i % 26);
	strcat(want, "E ");
	for (size_t piece = 1; piece <= sizeof bytes; piece++) {
		feed(bytes, sizeof bytes, piece, out, sizeof out);
		assert_string_equal(out, want);
	}
}

static void test_heads(void **state)
{
	unsigned char out[IG_WS_MAX_HEAD];

	assert_int_equal(ig_frame_head(out, IG_WS_TEXT, 125), 2);
	assert_memory_equal(out, "\x81\x7d", 2);
	assert_int_equal(ig_frame_head(out, IG_WS_PONG, 126), 4);
	assert_memory_equal(out, "\x8a\x7e\x00\x7e", 4);
	assert_int_equal(ig_frame_head(out, IG_WS_TEXT, 65535), 4);
	assert_memory_equal(out, "\x81\x7e\xff\xff", 4);
	assert_int_equal(ig_frame_head(out, IG_WS_TEXT, 65536), 10);
	assert_memory_equal(out, "\x81\x7f\0\0\0\0\0\1\0\0", 10);
}

static void test_close_codes(void **state)
{
	static const unsigned good[] = { 1000, 1003, 1007, 1011, 1014, 3000, 4999 },
			      bad[] = { 0, 999, 1004, 1005, 1006, 1015, 2999, 5000, 65535 };

	for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
		assert_true(ig_ws_close_code(good[i]));
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		assert_false(ig_ws_close_code(bad[i]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_unmask),
		cmocka_unit_test(test_heads),
		cmocka_unit_test(test_close_codes),
	};
	return cmocka_run_group_tests_name("frames", tests, NULL, NULL);
}
