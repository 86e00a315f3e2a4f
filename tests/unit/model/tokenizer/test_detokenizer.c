/* test_detokenizer.c: whole characters only, whatever the ids. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "model/tokenizer/detokenizer.h"
#include "base/utf8.h"
#include "tiny_gguf.h"

#include <stdlib.h>
#include <string.h>

static struct gw w;
static struct ig_checkpoint *g;
static struct ig_tokenizer *t;

static int open_tiny(void **state)
{
	tiny_file(&w, &(struct tiny_options){ .model = "gpt2", .pre = "smollm" });
	return ig_checkpoint_open_memory(w.data, w.len, "tiny", &g, NULL) ||
			       ig_tokenizer_open(g, &t, NULL) ?
		       -1 :
		       0;
}

static int close_tiny(void **state)
{
	ig_tokenizer_close(t);
	ig_checkpoint_close(g);
	gw_finish(&w);
	return 0;
}

/* Bytes as tokens; the text after each put, a '|' between. */
static void streams(const char *bytes, size_t n, const char *want)
{
	struct ig_detokenizer d;
	char got[512];
	size_t len = 0;

	ig_detokenizer_init(&d, t);
	for (size_t i = 0; i < n; i++) {
		len += ig_detokenizer_put(&d, TINY_BYTE + (unsigned char)bytes[i], got + len);
		got[len++] = '|';
	}
	len += ig_detokenizer_flush(&d, got + len);
	got[len] = 0;
	assert_string_equal(got, want);
	assert_int_equal(ig_detokenizer_flush(&d, got), 0);
}

#define FFFD "\xef\xbf\xbd"

static void characters(void **state)
{
	streams("ab", 2, "a|b|");
	streams("\xc3\xa9", 2, "|\xc3\xa9|");
	streams("\xf0\x9f\x98\x80!", 5, "|||\xf0\x9f\x98\x80|!|");
	/* Broken ones: one U+FFFD for each maximal subpart. */
	streams("\xc3x", 2, "|" FFFD "x|");
	streams("\xe2\x82x", 3, "||" FFFD "x|");
	streams("\xf0\x9f\x98\xf0\x9f\x98\x80", 7, "|||" FFFD "|||\xf0\x9f\x98\x80|");
	streams("\x80\xff", 2, FFFD "|" FFFD "|");
	streams("\xc0\x80", 2, FFFD "|" FFFD "|");
	streams("\xed\xa0\x80", 3, "|" FFFD FFFD "|" FFFD "|");
	streams("\xf4\x90", 2, "|" FFFD FFFD "|");
	streams("\xe2\x82", 2, "||" FFFD);
	streams("\xf0\x9f\x98", 3, "|||" FFFD);
	/* The Unicode standard's example of maximal subparts (table 3-11). */
	streams("\x61\xf1\x80\x80\xe1\x80\xc2\x62\x80\x63\x80\xbf\x64", 13,
		"a||||" FFFD "||" FFFD "|" FFFD "b|" FFFD "|c|" FFFD "|" FFFD "|d|");
}

static void tokens(void **state)
{
	struct ig_detokenizer d;
	char *buf = malloc(ig_detokenizer_max(t));

	assert_non_null(buf);
	ig_detokenizer_init(&d, t);
	assert_int_equal(ig_detokenizer_put(&d, TINY_HELLO, buf), 5);
	assert_memory_equal(buf, "hello", 5);
	assert_int_equal(ig_detokenizer_put(&d, TINY_SPACE_W, buf), 2);
	assert_memory_equal(buf, " w", 2);
	assert_int_equal(ig_detokenizer_put(&d, TINY_TOOL, buf), 6);
	assert_int_equal(ig_detokenizer_put(&d, TINY_END, buf), 0); /* control */
	assert_int_equal(ig_detokenizer_put(&d, -1, buf), 0);
	assert_int_equal(ig_detokenizer_put(&d, N_TINY, buf), 0);
	assert_int_equal(ig_detokenizer_put(&d, TINY_SMILE, buf), 0);
	assert_int_equal(ig_detokenizer_put(&d, TINY_END, buf), 0);
	assert_int_equal(ig_detokenizer_put(&d, TINY_BYTE + 0x80, buf), 4);
	assert_memory_equal(buf, "\xf0\x9f\x98\x80", 4);
	free(buf);
}

/* Control tokens that are shown are text like any other; the rest stay silent. */
static void shown(void **state)
{
	const int32_t ids[] = { TINY_START, TINY_END };
	struct ig_detokenizer d;
	char *buf = malloc(ig_detokenizer_max(t));
	const char *name;
	size_t len;
	bool special;

	assert_non_null(buf);
	ig_detokenizer_init(&d, t);
	ig_detokenizer_show(&d, ids + 1, 1);
	name = ig_tokenizer_token(t, TINY_END, &len, &special);
	assert_true(special && len > 0);
	assert_int_equal(ig_detokenizer_put(&d, TINY_START, buf), 0);
	assert_int_equal(ig_detokenizer_put(&d, TINY_END, buf), len);
	assert_memory_equal(buf, name, len);
	assert_int_equal(ig_detokenizer_put(&d, TINY_HELLO, buf), 5);
	/* after half a character, which it ends */
	assert_int_equal(ig_detokenizer_put(&d, TINY_BYTE + 0xc3, buf), 0);
	assert_int_equal(ig_detokenizer_put(&d, TINY_END, buf), 3 + len);
	assert_memory_equal(buf, FFFD, 3);
	assert_memory_equal(buf + 3, name, len);
	ig_detokenizer_show(&d, ids, 2);
	assert_true(ig_detokenizer_put(&d, TINY_START, buf) > 0);
	ig_detokenizer_show(&d, NULL, 0);
	assert_int_equal(ig_detokenizer_put(&d, TINY_END, buf), 0);
	free(buf);
}

/* Any ids: each put stays in its bound and is UTF-8. */
static void random_ids(void **state)
{
	size_t max = ig_detokenizer_max(t);
	struct ig_detokenizer d;
	uint32_t seed = 7;
	char *buf = malloc(max);

	assert_non_null(buf);
	ig_detokenizer_init(&d, t);
	for (int i = 0; i < 200000; i++) {
		seed = seed * 1664525 + 1013904223;
		size_t n = ig_detokenizer_put(&d, (int32_t)((seed >> 8) % N_TINY), buf);
		assert_true(n <= max);
		for (size_t k = 0; k < n;) {
			int c = ig_utf8_check((unsigned char *)buf + k, n - k);
			assert_true(c > 0);
			k += (size_t)c;
		}
	}
	free(buf);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(characters),
		cmocka_unit_test(tokens),
		cmocka_unit_test(shown),
		cmocka_unit_test(random_ids),
	};

	return cmocka_run_group_tests_name("model/detokenizer", tests, open_tiny, close_tiny);
}
