/*
 * on_terminal.h: what must hold for any text that markdown.h shows, checked from its output alone:
 * without styles and broken lines it has the bytes of the text, it has no other escape sequence or
 * control character, the splits of the text change nothing, lines fit, and no word that fits on a
 * line is broken.  Aborts where it does not hold.  For the fuzz target and the unit test.
 */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/utf8.h"
#include "cli/term/markdown.h"

static inline void refuse(const char *why, const char *out)
{
	fprintf(stderr, "%s in:\n%s\n", why, out);
	abort();
}

/* The text as a terminal may get it. */
static inline void as_shown(const char *text, size_t len, struct ig_strbuf *out)
{
	for (size_t i = 0; i < len;) {
		int n = ig_utf8_check((const unsigned char *)text + i, len - i);
		uint32_t c = n > 0 ? ig_utf8_char((const unsigned char *)text + i, n) : 0xfffd;
		char s[4];
		if ((c < 0x20 && c != '\n' && c != '\t') || (c >= 0x7f && c < 0xa0))
			c = ' ';
		ig_strbuf_add(out, s, ig_utf8_put(s, c));
		i += n > 0 ? (size_t)n : n < 0 ? (size_t)-n : len - i;
	}
}

/* ---- a terminal that only grows -------------------------------------------------------- */

#define BROKEN 0x200000 /* a line ends here that does not end in the text */
#define RIGHT 0x300000	/* and how many columns the next one is indented */

struct cell {
	uint32_t c, style; /* bit i: the code i */
};

struct cells {
	struct cell *at;
	size_t n, cap;
};

static inline void add_cell(struct cells *s, uint32_t c, uint32_t style)
{
	if (!ig_array_grow(s->at, &s->cap, s->n))
		abort();
	s->at[s->n++] = (struct cell){ c, style };
}

static inline uint32_t style_after(const char *s, const char *end)
{
	uint32_t style = 0;

	while (s < end) {
		unsigned long n = strtoul(s, NULL, 10);
		if (n > 36 || (n > 9 && n < 34))
			refuse("another style", s);
		style |= n ? 1u << (n > 9 ? n - 20 : n) : 0;
		s += strspn(s, "0123456789") + 1;
	}
	return style;
}

/* CSI n D, CSI K: the last n columns are empty again. */
static inline void take_back(struct cells *s, unsigned long n, const char *out)
{
	while (n) {
		uint32_t c = s->n ? s->at[--s->n].c : ' ';
		unsigned width = ig_char_width(c);
		if (c == ' ' || c == '\t' || c == '\n' || c >= BROKEN || width > n)
			refuse("more is taken back than a word", out);
		n -= width;
	}
}

/* What the screen shows after all of the output; no other escape sequence is in it. */
static inline void on_screen(const char *out, struct cells *s)
{
	uint32_t style = 0;

	while (*out) {
		int n = ig_utf8_check((const unsigned char *)out, strlen(out));
		uint32_t c = ig_utf8_char((const unsigned char *)out, n);
		size_t len = *out == '\033' ? 2 + strspn(out + 2, "0123456789;") : 0;
		unsigned long number = len ? strtoul(out + 2, NULL, 10) : 0;
		if (len && out[1] != '[')
			refuse("another escape sequence", out);
		if (!strncmp(out, "\r\n", 2)) {
			add_cell(s, BROKEN, 0);
			len = 1;
		} else if (!len) {
			if (n <= 0 || (c < 0x20 && c != '\n' && c != '\t') ||
			    (c >= 0x7f && c < 0xa0))
				refuse("a control character", out);
			add_cell(s, c, style);
			len = (size_t)n - 1;
		} else if (out[len] == 'm') {
			style = style_after(out + 2, out + len);
		} else if (out[len] == 'C' && number && s->n && s->at[s->n - 1].c == BROKEN) {
			add_cell(s, RIGHT + (uint32_t)number, 0);
		} else if (out[len] == 'D' && number && !strncmp(out + len + 1, "\033[K\r\n", 5)) {
			take_back(s, number, out);
			len += 3;
		} else {
			refuse("another escape sequence", out);
		}
		out += len + 1;
	}
	if (style)
		refuse("a style that goes on", "");
}

static inline bool is_gap(char c) { return !c || c == ' ' || c == '\t' || c == '\n'; }

/* Whether the word around s, of ASCII before it, has at most n columns. */
static inline bool is_short(const char *from, const char *s, unsigned n)
{
	const char *begin = s;
	unsigned width = 0;

	while (begin > from && !is_gap(begin[-1]) && s - begin <= 4 * (long)n)
		begin--;
	for (; !is_gap(*begin) && width <= n; begin++)
		width += (unsigned char)*begin < 0x80 ? 1 : ig_utf8_continues(*begin) ? 0 : 2;
	return width <= n;
}

/* A line was broken before the character at s of the text. */
static inline void check_break(const char *text, const char *s, unsigned columns)
{
	if (s == text || !*s)
		return;
	if ((unsigned char)s[-1] >= 0x80 || (unsigned char)*s >= 0x80)
		return; /* beside wide characters lines may be broken */
	if (s[-1] == ' ' || s[-1] == '\t' || *s == ' ' || *s == '\t')
		return;
	unsigned limit = columns > 4 ? columns - 1 : 4;
	/* half of a line may be indentation */
	if (is_short(text, s, limit / 2))
		refuse("a broken word", s);
}

static inline void check_screen(const char *text, const struct cells *s, unsigned columns,
				const char *out)
{
	const char *begin = text;
	bool code = strstr(text, "```") || strstr(text, "~~~") || !columns;
	unsigned col = 0;

	for (size_t i = 0; i < s->n; i++) {
		uint32_t c = s->at[i].c;
		if (c == BROKEN) {
			col = 0;
			check_break(begin, text, columns);
			continue;
		}
		if (c > RIGHT) {
			col = c - RIGHT;
			if (col > columns / 2 && columns >= 8)
				refuse("a wide indentation", out);
			continue;
		}
		int n = ig_utf8_check((const unsigned char *)text, strlen(text));
		if (n <= 0 || ig_utf8_char((const unsigned char *)text, n) != c)
			refuse("other text", out);
		text += n;
		col = c == '\n' ? 0 : c == '\t' ? col + 8 - col % 8 : col + ig_char_width(c);
		/* one character may be wider than a terminal of few columns */
		if (!code && col > columns && columns >= 16 && ig_char_width(c))
			refuse("a long line", out);
	}
	if (*text)
		refuse("text that is missing", text);
}

static inline void show(const char *text, size_t len, unsigned columns, const unsigned char *splits,
			size_t n_splits, struct ig_strbuf *out)
{
	struct ig_markdown m;
	size_t at = 0;

	ig_markdown_init(&m, out, columns, true);
	for (size_t k = 0; at < len; k++) {
		size_t n = n_splits ? splits[k % n_splits] : len;
		n = n < len - at ? n : len - at;
		/* an own copy: reading beyond its end is seen */
		char *piece = malloc(n ? n : 1);
		if (!piece)
			abort();
		memcpy(piece, text + at, n);
		ig_markdown_add(&m, piece, n);
		free(piece);
		at += n;
		if (n_splits && k > len)
			n_splits = 0; /* zeros only */
	}
	ig_markdown_end(&m);
	if (m.wrap.shown || m.line.len || m.head.len || m.text.n || m.wrap.n_word)
		refuse("a state that goes on", "");
	ig_markdown_finish(&m);
}

/* splits: sizes of the pieces, again and again. */
static inline void check_on_terminal(const char *text, size_t len, unsigned columns,
				     const unsigned char *splits, size_t n_splits)
{
	struct ig_strbuf whole = { 0 }, pieces = { 0 }, plain = { 0 };
	struct cells a = { 0 }, b = { 0 };

	as_shown(text, len, &plain);
	show(text, len, columns, NULL, 0, &whole);
	show(text, len, columns, splits, n_splits, &pieces);
	on_screen(ig_strbuf_text(&whole), &a);
	on_screen(ig_strbuf_text(&pieces), &b);
	if (a.n != b.n || (a.n && memcmp(a.at, b.at, a.n * sizeof *a.at)))
		refuse("other pieces, another screen", ig_strbuf_text(&pieces));
	check_screen(ig_strbuf_text(&plain), &a, columns, ig_strbuf_text(&whole));
	free(a.at);
	free(b.at);
	ig_strbuf_finish(&whole);
	ig_strbuf_finish(&pieces);
	ig_strbuf_finish(&plain);
}
