/*
 * wrap.h: text for a terminal, broken at words and styled by escape sequences.
 *
 * A word whose end has not come is written as far as it came (ig_wrap_show), and when it does not fit
 * any more it is taken back (CSI n D, CSI K) and begins the next line.  A line that is broken here
 * ends with CR LF, and CSI n C (the cursor n columns to the right) indents the next one: without
 * these and the styles the output has the bytes of the text.  Uses no terminal.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"

enum ig_style {
	IG_STYLE_BOLD = 1,
	IG_STYLE_DIM = 2,
	IG_STYLE_ITALIC = 4,
	IG_STYLE_UNDERLINE = 8,
	IG_STYLE_STRIKE = 16,
	/* colours */
	IG_STYLE_CODE = 32,
	IG_STYLE_HEADING = 64,
	IG_STYLE_LINK = 128,
};

#define IG_STYLE_COLOURS (IG_STYLE_CODE | IG_STYLE_HEADING | IG_STYLE_LINK)

struct ig_wrap_char {
	uint32_t c;
	uint8_t style, width;
	bool starts; /* a character as a person counts: marks and joined emoji follow the first */
};

struct ig_wrap {
	struct ig_strbuf *out;
	unsigned columns; /* of the terminal, may change; 0: lines are not broken */
	bool colours;
	bool raw; /* everything is written at once, no line is broken: code */

	unsigned col;	/* where the cursor is */
	unsigned hang;	/* the columns by which broken lines are indented */
	uint8_t shown;	/* the style that the terminal has now */
	uint32_t prev;	/* the last character; 0: none on this line */
	int32_t breaks; /* utf8proc's state between characters */
	struct ig_wrap_char *word;
	size_t n_word, cap_word;
	unsigned word_width;
	size_t n_shown; /* of the word's characters: written, but not for good */
};

void ig_wrap_init(struct ig_wrap *w, struct ig_strbuf *out, unsigned columns, bool colours);
void ig_wrap_finish(struct ig_wrap *w);
/* Add a character; control characters other than newline and tab become a space. */
void ig_wrap_char(struct ig_wrap *w, uint32_t c, unsigned style);
/* Indent the following broken lines of this line to where it is now. */
void ig_wrap_hang(struct ig_wrap *w);
/* Write the word as far as it came. */
void ig_wrap_show(struct ig_wrap *w);
/* The window has another size.  What is on it stays as it is. */
void ig_wrap_resize(struct ig_wrap *w, unsigned columns);
/* The word is complete. */
void ig_wrap_flush(struct ig_wrap *w);
/* The same, and end the style. */
void ig_wrap_reset(struct ig_wrap *w);

/* How many columns a terminal uses for c: the most of what terminals do. */
unsigned ig_char_width(uint32_t c);
