/* wrap.c: see wrap.h.
 *
 * The last column is for the blank behind a word: terminals differ in what they do after it. */
#include "cli/term/wrap.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/array.h"
#include "base/utf8.h"

#define MAX_WORD 4096 /* characters; more are written as they come */
#define TAB 8

unsigned ig_char_width(uint32_t c)
{
	if (c < 0x20 || (c >= 0x7f && c < 0xa0))
		return 0;
	if (c < 0x300)
		return 1;
	if (c >= 0x1f1e6 && c <= 0x1faff) /* emoji: newer ones are not known to older tables */
		return 2;
	int w = utf8proc_charwidth((utf8proc_int32_t)c);
	if (w <= 0 && utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_CN)
		return 1;
	return w < 0 ? 0 : w > 2 ? 2 : (unsigned)w;
}

void ig_wrap_init(struct ig_wrap *w, struct ig_strbuf *out, unsigned columns, bool colours)
{
	*w = (struct ig_wrap){ .out = out, .columns = columns, .colours = colours };
}

void ig_wrap_finish(struct ig_wrap *w)
{
	free(w->word);
	*w = (struct ig_wrap){ 0 };
}

/* ---- output ----------------------------------------------------------------------- */

static void show_style(struct ig_wrap *w, unsigned style)
{
	static const struct {
		unsigned style;
		const char *code;
	} codes[] = {
		{ IG_STYLE_BOLD, "1" },	     { IG_STYLE_DIM, "2" },    { IG_STYLE_ITALIC, "3" },
		{ IG_STYLE_UNDERLINE, "4" }, { IG_STYLE_STRIKE, "9" }, { IG_STYLE_CODE, "36" },
		{ IG_STYLE_HEADING, "35" },  { IG_STYLE_LINK, "34" },
	};
	const char *sep = "";

	if (!w->colours)
		style &= ~(unsigned)IG_STYLE_COLOURS;
	if (style == w->shown)
		return;
	ig_strbuf_puts(w->out, "\033[");
	if (w->shown) {
		ig_strbuf_puts(w->out, "0");
		sep = ";";
	}
	for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
		if (style & codes[i].style) {
			ig_strbuf_printf(w->out, "%s%s", sep, codes[i].code);
			sep = ";";
		}
	ig_strbuf_puts(w->out, "m");
	w->shown = (uint8_t)style;
}

static void put(struct ig_wrap *w, uint32_t c, unsigned style, unsigned width)
{
	char s[4];

	show_style(w, style);
	ig_strbuf_add(w->out, s, ig_utf8_put(s, c));
	w->col += width;
}

/* The columns for words. */
static unsigned limit(const struct ig_wrap *w) { return w->columns > 4 ? w->columns - 1 : 4; }

/* An indentation that leaves too little of a narrow terminal is not made. */
static unsigned indent(const struct ig_wrap *w) { return w->hang <= limit(w) / 2 ? w->hang : 0; }

/* The word, which may have been shown, begins the next line. */
static void break_line(struct ig_wrap *w)
{
	unsigned n = indent(w), width = 0;

	for (size_t i = 0; i < w->n_shown; i++)
		width += w->word[i].width;
	if (width)
		ig_strbuf_printf(w->out, "\033[%uD\033[K", width);
	w->n_shown = 0;
	ig_strbuf_puts(w->out, "\r\n");
	if (n)
		ig_strbuf_printf(w->out, "\033[%uC", n);
	w->col = n;
}

/* ---- words ------------------------------------------------------------------------ */

/* Write the first n characters of the word. */
static void put_word(struct ig_wrap *w, size_t n)
{
	if (!n)
		return;
	for (size_t i = 0; i < n; i++) {
		const struct ig_wrap_char *c = &w->word[i];
		if (i < w->n_shown)
			w->col += c->width;
		else
			put(w, c->c, c->style, c->width);
		w->word_width -= c->width;
	}
	w->n_shown -= w->n_shown < n ? w->n_shown : n;
	memmove(w->word, w->word + n, (w->n_word - n) * sizeof *w->word);
	w->n_word -= n;
}

/* Begin the next line if the word does not fit on this one. */
static void fit_word(struct ig_wrap *w)
{
	if (w->columns && w->col + w->word_width > limit(w) && w->col > indent(w) && w->n_word)
		break_line(w);
}

void ig_wrap_flush(struct ig_wrap *w)
{
	fit_word(w);
	put_word(w, w->n_word);
}

/* Whether all terminals use as many columns for c, so that it can be taken back: not for what joins
 * others, for symbols that some show wide, and for emoji. */
static bool is_certain(uint32_t c)
{
	return c < 0x300 || (c >= 0x370 && c < 0x1100 && ig_char_width(c) == 1) ||
	       (c >= 0x3040 && c < 0xa000 && ig_char_width(c) == 2) || (c >= 0xac00 && c < 0xd7a4);
}

void ig_wrap_show(struct ig_wrap *w)
{
	unsigned col;

	for (size_t i = w->n_shown; i < w->n_word; i++)
		if (!is_certain(w->word[i].c))
			return;
	fit_word(w);
	if (w->n_shown == w->n_word)
		return;
	col = w->col;
	for (size_t i = w->n_shown; i < w->n_word; i++)
		put(w, w->word[i].c, w->word[i].style, w->word[i].width);
	w->col = col;
	w->n_shown = w->n_word;
}

void ig_wrap_resize(struct ig_wrap *w, unsigned columns)
{
	if (columns != w->columns && w->n_shown)
		put_word(w, w->n_shown);
	w->columns = columns;
}

/* The word is longer than a line: write a line of it. */
static void split_word(struct ig_wrap *w)
{
	size_t n = 0, at = 0;
	unsigned width = 0;

	if (w->col > indent(w))
		break_line(w);
	for (; at < w->n_word; at++) {
		if (w->word[at].starts && at)
			n = at;
		if (w->col + width + w->word[at].width > limit(w) && n)
			break;
		width += w->word[at].width;
	}
	put_word(w, at == w->n_word ? w->n_word : n);
}

static bool one_of(uint32_t c, const uint32_t *list)
{
	while (*list && *list != c)
		list++;
	return *list;
}

/* Whether a line may be broken between two characters that are no blanks: beside wide ones, but
 * not before what ends a sentence or a quotation, and not after what begins one. */
static bool may_break(uint32_t a, uint32_t b)
{
	static const uint32_t closing[] = { '.',    ',',    '!',    '?',    ':',    ';',    ')',
					    ']',    '}',    '\'',   '"',    0x2019, 0x201d, 0x2026,
					    0x3001, 0x3002, 0x3005, 0x3009, 0x300b, 0x300d, 0x300f,
					    0x3011, 0x3015, 0x301f, 0x3041, 0x3043, 0x3045, 0x3047,
					    0x3049, 0x3063, 0x3083, 0x3085, 0x3087, 0x30a1, 0x30a3,
					    0x30a5, 0x30a7, 0x30a9, 0x30c3, 0x30e3, 0x30e5, 0x30e7,
					    0x30fb, 0x30fc, 0xff01, 0xff09, 0xff0c, 0xff0e, 0xff1a,
					    0xff1b, 0xff1f, 0xff3d, 0xff5d, 0 };
	static const uint32_t opening[] = { '(',    '[',    '{',    '\'',   '"',    0x2018,
					    0x201c, 0x3008, 0x300a, 0x300c, 0x300e, 0x3010,
					    0x3014, 0xff08, 0xff3b, 0xff5b, 0 };

	return (ig_char_width(a) == 2 || ig_char_width(b) == 2) && !one_of(b, closing) &&
	       !one_of(a, opening);
}

static void add_to_word(struct ig_wrap *w, uint32_t c, unsigned style)
{
	unsigned width = ig_char_width(c);
	bool starts = !w->prev || utf8proc_grapheme_break_stateful((utf8proc_int32_t)w->prev,
								   (utf8proc_int32_t)c, &w->breaks);

	if (c == 0xfe0f) /* the last character is an emoji, and may be wider than it was */
		width = 1;
	if (w->n_word && starts && may_break(w->prev, c))
		ig_wrap_flush(w);
	if (w->n_word == MAX_WORD)
		put_word(w, w->n_word);
	if (!ig_array_grow(w->word, &w->cap_word, w->n_word)) {
		w->out->failed = true;
		return;
	}
	w->word[w->n_word++] = (struct ig_wrap_char){ c, (uint8_t)style, (uint8_t)width, starts };
	w->word_width += width;
	w->prev = c;
	while (w->columns && w->word_width > limit(w) - indent(w) && w->n_word > 1) {
		size_t before = w->n_word;
		split_word(w);
		if (!w->n_word || w->n_word == before)
			break;
	}
}

static void add_blank(struct ig_wrap *w, uint32_t c, unsigned style)
{
	unsigned width = c == '\t' ? TAB - w->col % TAB : 1;

	ig_wrap_flush(w);
	if (c == '\t')
		width = TAB - w->col % TAB;
	if (w->columns && w->col + width > w->columns && w->col > indent(w)) {
		break_line(w);
		width = c == '\t' ? TAB - w->col % TAB : 1;
	}
	put(w, c, style, width);
	w->prev = c;
}

void ig_wrap_char(struct ig_wrap *w, uint32_t c, unsigned style)
{
	if ((c < 0x20 && c != '\n' && c != '\t') || (c >= 0x7f && c < 0xa0))
		c = ' ';
	if (c == '\n') {
		ig_wrap_flush(w);
		put(w, c, style, 0);
		w->col = w->hang = w->prev = 0;
		w->breaks = 0;
	} else if (w->raw) {
		ig_wrap_flush(w);
		put(w, c, style, c == '\t' ? TAB - w->col % TAB : ig_char_width(c));
	} else if (c == ' ' || c == '\t') {
		add_blank(w, c, style);
	} else {
		add_to_word(w, c, style);
	}
}

void ig_wrap_hang(struct ig_wrap *w)
{
	ig_wrap_flush(w);
	w->hang = w->col;
}

void ig_wrap_reset(struct ig_wrap *w)
{
	ig_wrap_flush(w);
	show_style(w, 0);
}
