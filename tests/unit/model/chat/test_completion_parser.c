/*
 * test_completion_parser.c: completions in each format to events, whole and in pieces.
 *
 * Events are printed as text: T{…} text, R{…} reasoning, C{…} a tool call's name, A{…} its
 * arguments, E its end; adjacent events of one kind are merged, since their number depends on
 * where the completion was cut.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/strbuf.h"
#include "completion_samples.h"
#include "model/chat/completion.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

/* ---- writing events down -------------------------------------------------------------------- */

struct notes {
	struct ig_strbuf text;
	struct ig_strbuf whole; /* the completion, put together again */
	int kind;		/* of the last event; -1: none */
	bool in_call, wrong;
	char ended_with; /* T or R: their content is still open */
};

static void note(void *ctx, const struct ig_completion_event *e)
{
	static const char letters[] = "TRCAE";
	struct notes *n = ctx;
	bool of_call = e->kind == IG_COMPLETION_ARGUMENTS || e->kind == IG_COMPLETION_TOOL_CALL_END;

	ig_strbuf_add(&n->whole, e->raw, e->raw_len);
	if (e->kind == IG_COMPLETION_TEXT || e->kind == IG_COMPLETION_REASONING)
		ig_strbuf_add(&n->whole, e->data, e->len);
	if (e->kind == IG_COMPLETION_MARKUP)
		return;
	for (size_t i = 0; i < e->len;) {
		int len = ig_utf8_check((const unsigned char *)e->data + i, e->len - i);
		assert_true(len > 0);
		i += (size_t)len;
	}
	assert_int_equal(of_call, n->in_call);
	assert_int_equal(e->len == 0, e->kind == IG_COMPLETION_TOOL_CALL_END);
	n->in_call = e->kind == IG_COMPLETION_TOOL_CALL || e->kind == IG_COMPLETION_ARGUMENTS;
	if (n->kind == (int)e->kind && (e->kind != IG_COMPLETION_TOOL_CALL)) {
		assert_true(n->text.data[n->text.len - 1] == '}');
		n->text.len--;
	} else {
		ig_strbuf_printf(&n->text, "%c", letters[e->kind]);
		if (e->kind != IG_COMPLETION_TOOL_CALL_END)
			ig_strbuf_puts(&n->text, "{");
	}
	ig_strbuf_add(&n->text, e->data, e->len);
	if (e->kind != IG_COMPLETION_TOOL_CALL_END)
		ig_strbuf_puts(&n->text, "}");
	n->kind = (int)e->kind;
}

static void begin_notes(struct notes *n)
{
	*n = (struct notes){ .kind = -1 };
	n->text = (struct ig_strbuf){ 0 };
}

static void end_notes(struct notes *n)
{
	assert_true(ig_strbuf_ok(&n->text));
	assert_false(n->in_call);
	ig_strbuf_add(&n->text, "", 0); /* never NULL */
}

/* Every byte of the completion is in an event. */
static void is_whole(struct notes *n, const char *text, size_t len)
{
	struct ig_strbuf want = { 0 };

	for (size_t i = 0; i < len;) {
		int k = ig_utf8_check((const unsigned char *)text + i, len - i);
		if (k > 0)
			ig_strbuf_add(&want, text + i, (size_t)k);
		else
			ig_strbuf_puts(&want, "\xef\xbf\xbd");
		i += k > 0 ? (size_t)k : k ? (size_t)-k : len - i;
	}
	if (want.len != n->whole.len || (want.len && memcmp(want.data, n->whole.data, want.len)))
		fail_msg("lost: %.*s\n  came out as %s", (int)len, text, ig_strbuf_text(&n->whole));
	ig_strbuf_finish(&want);
	ig_strbuf_finish(&n->whole);
}

/* The cuts are ascending places in the text. */
static char *events(const struct ig_completion_style *s, bool with_calls, const char *text,
		    size_t len, const size_t *cuts, size_t n_cuts)
{
	struct ig_completion_parser *p = ig_completion_parser_create(s, with_calls, NULL);
	struct notes n;
	size_t at = 0;

	assert_non_null(p);
	begin_notes(&n);
	for (size_t i = 0; i <= n_cuts; i++) {
		size_t end = i < n_cuts ? cuts[i] : len;
		/* Of just its size, so that a read past its end is seen. */
		char *piece = malloc(end - at ? end - at : 1);
		assert_non_null(piece);
		memcpy(piece, text + at, end - at);
		assert_int_equal(
			ig_completion_parser_feed(p, piece, end - at, i == n_cuts, note, &n), 0);
		free(piece);
		at = end;
	}
	end_notes(&n);
	is_whole(&n, text, len);
	ig_completion_parser_destroy(p);
	return n.text.data;
}

static void same(const struct ig_completion_style *s, const char *text, size_t len,
		 const size_t *cuts, size_t n_cuts, const char *want)
{
	char *got = events(s, true, text, len, cuts, n_cuts);

	if (strcmp(got, want)) {
		for (size_t i = 0; i < n_cuts; i++)
			print_error("cut at %zu\n", cuts[i]);
		fail_msg("%.*s\n  wanted %s\n  got    %s", (int)len, text, want, got);
	}
	free(got);
}

/* ---- tests -------------------------------------------------------------------------- */

static void forms(void **state)
{
	for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++)
		same(&samples[i].style, samples[i].text, strlen(samples[i].text), NULL, 0,
		     samples[i].want);
}

static uint64_t seed = 88172645463325252u;

static size_t draw(size_t n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (size_t)(seed % n);
}

static size_t draw_cuts(size_t len, size_t *cuts, size_t cap)
{
	size_t n = 0, step = 1 + draw(12);

	for (size_t at = draw(step + 1); at <= len && n < cap; at += draw(step + 1))
		cuts[n++] = at; /* empty pieces too */
	return n;
}

/* Every sample, and every prefix of one, in all ways to cut it in two, byte by byte, and
 * in some others. */
static void pieces(void **state)
{
	size_t cuts[512];

	for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++) {
		const struct sample *x = &samples[i];
		size_t len = strlen(x->text);

		assert_in_range(len, 0, 500);
		for (size_t a = 0; a <= len; a++) {
			char *want;
			same(&x->style, x->text, len, &a, 1, x->want);
			want = events(&x->style, true, x->text, a, NULL, 0);
			for (size_t b = 0; b < a; b++)
				cuts[b] = b;
			same(&x->style, x->text, a, cuts, a, want);
			free(want);
		}
		for (int k = 0; k < 50; k++)
			same(&x->style, x->text, len, cuts,
			     draw_cuts(len, cuts, sizeof cuts / sizeof cuts[0]), x->want);
	}
}

static const char *const words[] = {
	"<tool_call>",
	"</tool_call>",
	"<think>",
	"</think>",
	"<|python_tag|>",
	"[TOOL_CALLS]",
	"[ARGS]",
	"[CALL_ID]",
	"{",
	"}",
	"[",
	"]",
	"\"",
	":",
	",",
	";",
	"\"name\"",
	"\"arguments\"",
	"\"parameters\"",
	"\"f\"",
	"{\"name\": \"f\", \"arguments\": {",
	"{\"name\": \"f\", \"parameters\": {",
	"<tool_call>\n{\"name\": \"f\", \"arguments\": ",
	"[TOOL_CALLS]f[ARGS]{",
	"[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {",
	"{\"arguments\": {}, ",
	"}}",
	"}]",
	"\\",
	"\\\"",
	"\\u00e9",
	"\\ud83d",
	"null",
	"1",
	" ",
	"\n",
	"\n\n",
	"<",
	"x",
	"\xc3\xa9",
	"\xf0\x9f\x98\x80",
	"\xff",
	"\"id\": 3",
	"f",
	"Hello",
};

static size_t compose(char *out, size_t cap)
{
	size_t len = 0, n = draw(24);

	for (size_t i = 0; i < n; i++) {
		const char *w = words[draw(sizeof words / sizeof words[0])];
		if (len + strlen(w) > cap)
			break;
		memcpy(out + len, w, strlen(w));
		len += strlen(w);
	}
	return len;
}

/* Any mixture of what is looked for: the events are those of the whole, however it is cut. */
static void mixtures(void **state)
{
	static const struct ig_completion_style styles[] = { H, HR, HO, L, LR, M, NR, NO };
	size_t cuts[1024];
	char text[1000];
	size_t n_calls = 0;

	for (int i = 0; i < 20000; i++) {
		const struct ig_completion_style *s =
			&styles[draw(sizeof styles / sizeof styles[0])];
		size_t len = compose(text, sizeof text);
		char *want = events(s, true, text, len, NULL, 0);

		n_calls += strstr(want, "C{") != NULL;
		for (int k = 0; k < 3; k++)
			same(s, text, len, cuts, draw_cuts(len, cuts, sizeof cuts / sizeof cuts[0]),
			     want);
		free(want);
	}
	assert_in_range(n_calls, 500, 20000); /* else little was tested */
}

/* Text without markers is not changed, in every format. */
static void nothing_lost(void **state)
{
	static const struct ig_completion_style styles[] = { H, HR, M, N, NR, L };
	char text[1000];

	for (int i = 0; i < 20000; i++) {
		bool with_calls = draw(2);
		const struct ig_completion_style *s =
			&styles[draw(sizeof styles / sizeof styles[0])];
		struct ig_completion_style plain = { .calls = s->calls };
		size_t cuts[1024], n_cuts, len = compose(text, sizeof text - 1);
		char *got, want[1100];

		text[len] = 0;
		for (char *x; (x = strchr(text, '\xff'));)
			*x = '?';
		if (with_calls && (strstr(text, "<tool_call>") || strstr(text, "[TOOL_CALLS]") ||
				   strstr(text, "<|python_tag|>") || strchr(text, '{')))
			continue;
		if (strstr(text, "<think>"))
			s = &plain;
		n_cuts = draw_cuts(len, cuts, sizeof cuts / sizeof cuts[0]);
		got = events(s, with_calls, text, len, cuts, n_cuts);
		snprintf(want, sizeof want, len ? "T{%s}" : "%s", text);
		assert_string_equal(got, want);
		free(got);
	}
}

/* A tool call is announced as early as possible, and its arguments as they come. */
static void streamed(void **state)
{
	static const struct ig_completion_style s = H;
	static const struct {
		const char *piece, *want; /* all events so far */
	} steps[] = {
		{ "Hi", "T{Hi}" },
		{ " ", "T{Hi}" },
		{ "you <", "T{Hi you}" },
		{ "b> ", "T{Hi you <b>}" },
		{ "<tool_call>\n{\"name\": \"f\", \"arg", "T{Hi you <b>}" },
		{ "uments\": ", "T{Hi you <b>}" },
		{ "{", "T{Hi you <b>}C{f}A{{}" },
		{ "\"a\": \"\xc3", "T{Hi you <b>}C{f}A{{\"a\": \"}" },
		{ "\xa9\"", "T{Hi you <b>}C{f}A{{\"a\": \"\xc3\xa9\"}" },
		{ "}", "T{Hi you <b>}C{f}A{{\"a\": \"\xc3\xa9\"}}E" },
		{ "}\n</tool_call>", "T{Hi you <b>}C{f}A{{\"a\": \"\xc3\xa9\"}}E" },
	};
	struct ig_completion_parser *p = ig_completion_parser_create(&s, true, NULL);
	struct notes n;

	begin_notes(&n);
	for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
		assert_int_equal(ig_completion_parser_feed(p, steps[i].piece,
							   strlen(steps[i].piece), false, note, &n),
				 0);
		assert_string_equal(n.text.data, steps[i].want);
	}
	assert_int_equal(ig_completion_parser_feed(p, NULL, 0, true, note, &n), 0);
	assert_string_equal(n.text.data, steps[sizeof steps / sizeof steps[0] - 1].want);
	end_notes(&n);
	ig_strbuf_finish(&n.text);
	ig_strbuf_finish(&n.whole);
	ig_completion_parser_destroy(p);
	ig_completion_parser_destroy(NULL);
}

/* An object of Llama's that can't be a call is not held back. */
static void soon(void **state)
{
	static const struct ig_completion_style s = L;
	struct ig_completion_parser *p = ig_completion_parser_create(&s, true, NULL);
	struct notes n;

	begin_notes(&n);
	assert_int_equal(ig_completion_parser_feed(p, " {\"city\"", 8, false, note, &n), 0);
	assert_string_equal(n.text.data, "T{ {\"city\"}");
	assert_int_equal(ig_completion_parser_feed(p, "", 0, true, note, &n), 0);
	end_notes(&n);
	ig_strbuf_finish(&n.text);
	ig_strbuf_finish(&n.whole);
	ig_completion_parser_destroy(p);
}

/* What is held back is bounded: a text of n bytes of fill between head and tail. */
static char *long_text(const char *head, char fill, size_t n, const char *tail)
{
	struct ig_strbuf b = { 0 };

	ig_strbuf_puts(&b, head);
	while (n--)
		ig_strbuf_add(&b, &fill, 1);
	ig_strbuf_puts(&b, tail);
	return ig_strbuf_steal(&b);
}

static void bound(struct ig_completion_style s, const char *head, char fill, const char *tail,
		  bool is_call)
{
	char *text = long_text(head, fill, 70 << 10, tail), *got;

	got = events(&s, true, text, strlen(text), NULL, 0);
	if (is_call) {
		assert_non_null(strstr(got, "C{f}A{{"));
	} else {
		assert_int_equal(strlen(got), strlen(text) + 3);
		assert_memory_equal(got, "T{", 2);
		assert_memory_equal(got + 2, text, strlen(text));
	}
	free(got);
	text[66 << 10] = 0; /* and it comes out at once, before the end */
	struct ig_completion_parser *p = ig_completion_parser_create(&s, true, NULL);
	struct notes n;
	begin_notes(&n);
	assert_int_equal(ig_completion_parser_feed(p, text, strlen(text), false, note, &n), 0);
	assert_true(n.text.len > 60 << 10);
	ig_strbuf_finish(&n.text);
	ig_strbuf_finish(&n.whole);
	ig_completion_parser_destroy(p);
	free(text);
}

static void bounded(void **state)
{
	struct ig_completion_style h = H, l = L, m = M;

	bound(h, "<tool_call>{\"arguments\": {\"a\": \"", 'x', "\"}, \"name\": \"f\"}</tool_call>",
	      false);
	bound(h, "<tool_call>{\"x\": \"", 'x', "\", \"name\": \"f\"}</tool_call>", false);
	bound(h, "<tool_call>{\"name\": \"", 'x', "\", \"arguments\": {}}</tool_call>", false);
	bound(h, "<tool_call>", ' ', "{\"name\": \"f\"}</tool_call>", false);
	bound(h, "x", ' ', "x", false);
	bound(l, "{\"type\": ", '1', ", \"name\": \"f\", \"parameters\": {}}", false);
	bound(m, "[TOOL_CALLS]", 'f', "[ARGS]{}", false);
	bound(m, "[TOOL_CALLS]f[CALL_ID]", '1', "[ARGS]{}", false);
	/* Arguments of a call that is known are not held. */
	bound(h, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"", 'x', "\"}}</tool_call>",
	      true);
	bound(h, "<tool_call>{\"name\": \"f\", \"arguments\": \"{", 'x', "}\"}</tool_call>", true);
	bound(m, "[TOOL_CALLS]f[ARGS]{\"a\": \"", 'x', "\"}", true);
}

/* White space, and what may be a marker, within reasoning. */
static void bounded_reasoning(void **state)
{
	static const struct ig_completion_style s = HR;
	char *text = long_text("<think>a", ' ', 70 << 10, "b</think>c"), *got;
	struct ig_completion_parser *p = ig_completion_parser_create(&s, true, NULL);
	struct notes n;

	got = events(&s, true, text, strlen(text), NULL, 0);
	assert_int_equal(strlen(got), (70 << 10) + strlen("R{ab}T{c}"));
	assert_string_equal(got + (70 << 10) + 3, "b}T{c}");
	free(got);
	begin_notes(&n);
	assert_int_equal(ig_completion_parser_feed(p, text, 69 << 10, false, note, &n), 0);
	assert_true(n.text.len > 60 << 10);
	ig_strbuf_finish(&n.text);
	ig_strbuf_finish(&n.whole);
	ig_completion_parser_destroy(p);
	free(text);
	/* The limit is within a marker. */
	for (size_t k = 0; k < 12; k++) {
		text = long_text("<think>a", ' ', (64 << 10) - k, "</think>c");
		got = events(&s, true, text, strlen(text), NULL, 0);
		assert_string_equal(got + strlen(got) - 5, "}T{c}");
		free(got);
		free(text);
	}
	text = long_text("a", ' ', 64 << 10, "<tool_call>{\"name\": \"f\"}</tool_call>");
	got = events(&s, true, text, strlen(text), NULL, 0);
	assert_string_equal(got + strlen(got) - 12, " }C{f}A{{}}E");
	free(got);
	free(text);
}

/* Braces by the million are only counted. */
static void deep(void **state)
{
	static const struct ig_completion_style s = H;
	char *text = long_text("<tool_call>{\"name\": \"f\", \"arguments\": ", '{', 2000000, "");
	char *got = events(&s, true, text, strlen(text), NULL, 0);

	assert_int_equal(strlen(got), strlen("C{f}A{}E") + 2000000);
	free(got);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(forms),    cmocka_unit_test(pieces),
		cmocka_unit_test(mixtures), cmocka_unit_test(nothing_lost),
		cmocka_unit_test(streamed), cmocka_unit_test(soon),
		cmocka_unit_test(bounded),  cmocka_unit_test(bounded_reasoning),
		cmocka_unit_test(deep),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
