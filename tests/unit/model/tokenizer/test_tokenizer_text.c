/*
 * test_tokenizer_text.c: the steps before a text is split: regular
 * expressions from Oniguruma's syntax, normal forms beside utf8proc's own, replacements,
 * stages of a splitter.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/strbuf.h"
#include "model/tokenizer/tokenizer_private.h"

#include <errno.h>
#include <stdlib.h>
#include <utf8proc.h>

#define S(text) text, sizeof text - 1

/* ---- regular expressions -------------------------------------------------------------- */

/* The pieces of text, each followed by a bar. */
static int add_piece(void *ctx, const char *piece, size_t len)
{
	struct ig_strbuf *b = ctx;

	ig_strbuf_add(b, piece, len);
	ig_strbuf_puts(b, "|");
	return 0;
}

static void pieces_are(struct ig_splitter *s, const char *text, const char *want)
{
	struct ig_strbuf b = { 0 };

	assert_int_equal(ig_splitter_run(s, text, strlen(text), add_piece, &b), 0);
	assert_string_equal(b.len ? b.data : "", want);
	ig_strbuf_finish(&b);
}

static void translated(void **state)
{
	static const struct {
		const char *regex, *text, *pieces;
	} cases[] = {
		{ "\\s+",
		  "a \xe1\xa0\x8e\xe2\x80\xa8"
		  "b",
		  "a| |\xe1\xa0\x8e|\xe2\x80\xa8|b|" },
		{ "[^\\s\\p{L}]+",
		  "a \xe1\xa0\x8e"
		  "12b",
		  "a |\xe1\xa0\x8e"
		  "12|b|" },
		{ "\\S+", "a b", "a| |b|" },
		{ "\\d{2}",
		  "1234\xd9\xa1\xd9\xa2"
		  "5",
		  "12|34|\xd9\xa1\xd9\xa2|5|" },
		{ "\\D", "1a", "1|a|" },
		{ "\\v|\\x{e9}|\\u4e00|\\x41", "A\v\n\xc3\xa9\xe4\xb8\x80",
		  "A|\v|\n|\xc3\xa9|\xe4\xb8\x80|" },
		{ "\\p{Han}+|\\P{^Lu}", "\xe4\xb8\x80\xe3\x80\x85xY",
		  "\xe4\xb8\x80\xe3\x80\x85|x|Y|" },
		{ ".", "a\nb", "a|\n|b|" },
		{ "(?i:'S|'t)", "x's'T'\xc5\xbf", "x|'s|'T|'\xc5\xbf|" },
		{ "(a|b)+(?=c)", "abcab", "ab|cab|" },
		{ "[]", NULL, NULL },
		{ "[a-c\\-x-]", "d-xa", "d|-|x|a|" },
		{ "a{,2}b", "aaab", "a|aab|" },
		{ "x{2,}", "xxxx", "xxxx|" },
		{ "\\[\\^", "a[^b", "a|[^|b|" },
		{ "(?<!a)b", "abb", "ab|b|" },
		{ "[#&~]", "a&#", "a|&|#|" },
		{ "a++b", "aab", "aab|" },
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct ig_error err = { 0 };
		struct ig_splitter *s;
		struct ig_strbuf b = { 0 };
		int rc = ig_regex_translate(cases[i].regex, strlen(cases[i].regex), &b, &err);
		if (!cases[i].text) {
			assert_int_equal(rc, -ENOTSUP);
			ig_strbuf_finish(&b);
			continue;
		}
		if (rc)
			fail_msg("%s: %s", cases[i].regex, err.text);
		for (int jit = 0; jit < 2; jit++) {
			assert_int_equal(ig_splitter_create(&s), 0);
			if (ig_splitter_add(s, b.data, IG_SPLIT_ISOLATED, false, jit, &err))
				fail_msg("%s: %s", cases[i].regex, err.text);
			pieces_are(s, cases[i].text, cases[i].pieces);
			ig_splitter_close(s);
		}
		ig_strbuf_finish(&b);
	}
}

/* What could mean something else there is refused. */
static void refused(void **state)
{
	static const char *const all[] = {
		"\\w",
		"\\W",
		"\\b",
		"\\h",
		"\\R",
		"\\X",
		"\\K",
		"\\A",
		"\\z",
		"\\1",
		"\\k<a>",
		"\\e",
		"\\",
		"^a",
		"a$",
		"[a",
		"[a[b]]",
		"[a&&b]",
		"[[:alpha:]]",
		"[\\S]",
		"(a",
		"a)",
		"(?<x>a)",
		"(?#a)",
		"(?i)a",
		"(*ACCEPT)",
		"(?R)",
		"(?m:a)",
		"a{2}+",
		"a{2}?",
		"a**",
		"a+*",
		"a{3,2}",
		"a{1001}",
		"a{x}",
		"a{",
		"}",
		"]",
		"\\p{Letter1}",
		"\\p{Lx}",
		"\\p{x}",
		"\\pL",
		"\\p{L",
		"\\p{}",
		"\\x{110000}",
		"\\x{d800}",
		"\\xff",
		"\\u12",
		"\\x{}",
		"\xff",
		"(?i:ss)",
		"(?i:fi)",
		"(?i:\xc3\xa9)",
		"(?i:(?:a)st)",
		"\xc3",
	};

	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
		struct ig_error err = { 0 };
		struct ig_strbuf b = { 0 };
		int rc = ig_regex_translate(all[i], strlen(all[i]), &b, &err);
		if (rc != -ENOTSUP || !err.text[0])
			fail_msg("%s: %d", all[i], rc);
		ig_strbuf_finish(&b);
	}
	static const char *const compiled[] = { "a*", "(?:)", "a|", "\\p{sc:Nowhere}", "(?=a)" };
	for (size_t i = 0; i < sizeof compiled / sizeof compiled[0]; i++) {
		struct ig_error err = { 0 };
		struct ig_regex *x;
		assert_int_equal(ig_regex_compile(compiled[i], true, &x, &err), -ENOTSUP);
		assert_null(x);
	}
}

static void behaviors(void **state)
{
	static const struct {
		enum ig_split_behavior behavior;
		bool invert;
		const char *pieces; /* of "a-b--c-" cut at "-" */
	} cases[] = {
		{ IG_SPLIT_ISOLATED, false, "a|-|b|-|-|c|-|" },
		{ IG_SPLIT_ISOLATED, true, "a|-|b|-|-|c|-|" },
		{ IG_SPLIT_REMOVED, false, "a|b|c|" },
		{ IG_SPLIT_REMOVED, true, "-|-|-|-|" },
		{ IG_SPLIT_MERGED_WITH_PREVIOUS, false, "a-|b-|-|c-|" },
		{ IG_SPLIT_MERGED_WITH_PREVIOUS, true, "a|-b|-|-c|-|" },
		{ IG_SPLIT_MERGED_WITH_NEXT, false, "a|-b|-|-c|-|" },
		{ IG_SPLIT_MERGED_WITH_NEXT, true, "a-|b-|-|c-|" },
		{ IG_SPLIT_CONTIGUOUS, false, "a|-|b|--|c|-|" },
		{ IG_SPLIT_CONTIGUOUS, true, "a|-|b|--|c|-|" },
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct ig_splitter *s;
		assert_int_equal(ig_splitter_create(&s), 0);
		assert_int_equal(
			ig_splitter_add(s, "-", cases[i].behavior, cases[i].invert, true, NULL), 0);
		pieces_are(s, "a-b--c-", cases[i].pieces);
		pieces_are(s, "", "");
		/* What the next stage sees. */
		assert_int_equal(ig_splitter_add(s, "[ab-]+", IG_SPLIT_ISOLATED, false, true, NULL),
				 0);
		pieces_are(s, "a-b--c-",
			   cases[i].behavior == IG_SPLIT_MERGED_WITH_PREVIOUS && !cases[i].invert ?
				   "a-|b-|-|c|-|" :
			   cases[i].behavior == IG_SPLIT_MERGED_WITH_PREVIOUS ? "a|-b|-|-|c|-|" :
			   cases[i].behavior == IG_SPLIT_MERGED_WITH_NEXT && !cases[i].invert ?
										"a|-b|-|-|c|-|" :
			   cases[i].behavior == IG_SPLIT_MERGED_WITH_NEXT ? "a-|b-|-|c|-|" :
									    cases[i].pieces);
		ig_splitter_close(s);
	}
}

/* ---- normal forms ---------------------------------------------------------------------- */

static uint32_t seed = 7;

static uint32_t draw(uint32_t n)
{
	seed = seed * 1664525 + 1013904223;
	return (seed >> 8) % n;
}

static struct ig_normalizer *form(enum ig_normal_form f)
{
	struct ig_normalizer *n;

	assert_int_equal(ig_normalizer_create(&n), 0);
	assert_int_equal(ig_normalizer_add_form(n, f, NULL), 0);
	return n;
}

static void run_is(const struct ig_normalizer *n, const char *text, size_t len, const char *want,
		   size_t n_want)
{
	static const struct ig_tokenizer none;
	struct ig_normal_work w = { 0 };
	const char *out;
	size_t n_out;

	assert_int_equal(ig_normalizer_run(n, &none, text, len, &w, &out, &n_out), 0);
	assert_int_equal(n_out, n_want);
	assert_memory_equal(out, want, n_want);
	ig_normal_work_finish(&w);
}

static void forms(void **state)
{
	static const utf8proc_option_t options[] = {
		/* enum ig_normal_form */
		UTF8PROC_COMPOSE,
		UTF8PROC_DECOMPOSE,
		UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
		UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
	};
	/* Starters and what goes together with them, from all over. */
	static const uint32_t ranges[][2] = {
		{ 0x41, 0x5a },	      { 0xa0, 0x17f },	    { 0x300, 0x34f },
		{ 0x300, 0x34f },     { 0x370, 0x3ff },	    { 0x591, 0x5c7 },
		{ 0x930, 0x95f },     { 0x9be, 0x9d7 },	    { 0xb3e, 0xb57 },
		{ 0xf40, 0xfb9 },     { 0x1100, 0x11ff },   { 0x1e00, 0x1fff },
		{ 0x2000, 0x212f },   { 0x2460, 0x24ff },   { 0x3040, 0x30ff },
		{ 0xac00, 0xac40 },   { 0xf900, 0xfb4f },   { 0xfe20, 0xff9f },
		{ 0x11099, 0x110ba }, { 0x1d15e, 0x1d1c0 }, { 0x2f800, 0x2fa1d },
		{ 0x20, 0x2f },
	};

	for (int f = 0; f < 4; f++) {
		struct ig_normalizer *n = form((enum ig_normal_form)f);
		for (int i = 0; i < 20000; i++) {
			utf8proc_uint8_t text[128], *want = NULL;
			utf8proc_ssize_t len = 0, n_want;
			for (uint32_t k = draw(i % 50 ? 8 : 30) + 1; k > 0; k--) {
				const uint32_t *r = ranges[draw(sizeof ranges / sizeof ranges[0])];
				len += utf8proc_encode_char((int32_t)(r[0] + draw(r[1] - r[0] + 1)),
							    text + len);
			}
			n_want = utf8proc_map(text, len, &want, UTF8PROC_STABLE | options[f]);
			assert_true(n_want >= 0);
			run_is(n, (char *)text, (size_t)len, (char *)want, (size_t)n_want);
			free(want);
		}
		ig_normalizer_destroy(n);
	}
	/* Bytes that are not UTF-8 stay, and nothing composes over them. */
	struct ig_normalizer *n = form(IG_NFC);
	run_is(n,
	       S("e\xff\xcc\x81"
		 "e\xcc\x81\xcc"),
	       S("e\xff\xcc\x81\xc3\xa9\xcc"));
	run_is(n, S("\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8"), S("\xea\xb0\x81"));
	run_is(n, S(""), S(""));
	/* Hundreds of thousands of marks are put in order in good time. */
	size_t big = 400000;
	char *text = malloc(big + 1);
	assert_non_null(text);
	text[0] = 'x';
	for (size_t i = 0; i < big / 4; i++)
		memcpy(text + 1 + 4 * i, i < big / 8 ? "\xcc\x88\xcc\x88" : "\xcc\xa3\xcc\xa3", 4);
	struct ig_normal_work w = { 0 };
	const char *out;
	size_t n_out;
	assert_int_equal(ig_normalizer_run(n, NULL, text, big + 1, &w, &out, &n_out), 0);
	assert_int_equal(n_out, big + 1); /* x and the first mark above are one, of three bytes */
	assert_memory_equal(out, "\xe1\xba\x8d\xcc\xa3", 5);
	ig_normal_work_finish(&w);
	free(text);
	ig_normalizer_destroy(n);
}

static void steps(void **state)
{
	struct ig_error err = { 0 };
	struct ig_normalizer *n;

	assert_int_equal(ig_normalizer_create(&n), 0);
	assert_int_equal(ig_normalizer_add_strip(n, true, true, NULL), 0);
	assert_true(ig_normalizer_strips_left(n));
	assert_int_equal(ig_normalizer_add_replace(n, "[0-9]{2}", S("<>"), true, NULL), 0);
	assert_int_equal(ig_normalizer_add_form(n, IG_NFC, NULL), 0); /* mostly left out */
	assert_int_equal(ig_normalizer_add_replace_text(n, S(" "), S("__"), NULL), 0);
	assert_int_equal(ig_normalizer_add_prepend(n, S(">"), NULL), 0);
	run_is(n,
	       S(" \xe2\x80\xa8"
		 "a 12\xff"
		 "345 \n"),
	       S(">a__<>\xff<>5"));
	run_is(n, S("e\xcc\x81"), S(">\xc3\xa9"));
	run_is(n, S("  "), S(""));
	/* No text grows without an end. */
	for (int i = 0; i < 6; i++)
		assert_int_equal(ig_normalizer_add_replace_text(n, S("_"), S("________"), NULL), 0);
	struct ig_normal_work w = { 0 };
	const char *out;
	size_t n_out;
	assert_int_equal(ig_normalizer_run(n, NULL, S("a b"), &w, &out, &n_out), -E2BIG);
	ig_normal_work_finish(&w);
	while (!ig_normalizer_add_strip(n, false, true, &err))
		;
	assert_int_equal(err.code, -ENOTSUP);
	assert_int_equal(ig_normalizer_add_prepend(n, S("x"), &err), -ENOTSUP);
	assert_int_equal(ig_normalizer_add_form(n, IG_NFD, &err), -ENOTSUP);
	assert_int_equal(ig_normalizer_add_charsmap(n, "", 0, &err), -ENOTSUP);
	ig_normalizer_destroy(n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(translated), cmocka_unit_test(refused),
		cmocka_unit_test(behaviors),  cmocka_unit_test(forms),
		cmocka_unit_test(steps),
	};

	return cmocka_run_group_tests_name("model/tokenizer_text", tests, NULL, NULL);
}
