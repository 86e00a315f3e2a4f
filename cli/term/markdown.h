/*
 * markdown.h: Markdown on a terminal while it arrives.  The text stays as the model wrote it, marks
 * included: it is styled, marks are dimmed, and lines are broken at words (wrap.h) with lists and
 * quotes indented; code is not broken.  It reads what page/markdown.js reads.
 *
 * Text waits for the end of its emphasis, inline code or link (IG_MARKDOWN_HOLD characters at most),
 * and where a line's start does not say what the line is, for more of the line:
 * a rule, a fence, a row of a table.  What is never closed is written as it is.
 */
#pragma once

#include "cli/term/wrap.h"

#define IG_MARKDOWN_HOLD 1000  /* characters */
#define IG_MARKDOWN_DEEPEST 12 /* lists in each other */

struct ig_held {
	uint32_t c;
	uint8_t style;
	bool inert; /* at the start of a line: never a mark of emphasis */
};

/* Emphasis, code and links in a paragraph; markdown_inline.c. */
struct ig_inline {
	struct ig_held *held; /* from the first mark whose end has not come */
	size_t n, cap;
	uint32_t before;   /* the last character that is not held */
	uint64_t hopeless; /* bit i: nothing closes i backticks in this paragraph */
	uint8_t base;	   /* the paragraph's style */
};

enum ig_line_kind {
	IG_LINE_OPEN, /* not known yet */
	IG_LINE_TEXT,
	IG_LINE_CODE,
};

struct ig_markdown {
	struct ig_wrap wrap;
	unsigned char carry[4]; /* of a character whose end has not come */
	unsigned n_carry;

	struct ig_strbuf line; /* of a line whose kind is not known */
	struct ig_strbuf head; /* a line that may be a table's first one */
	enum ig_line_kind kind;
	unsigned quotes; /* around the last line */
	unsigned n_lists;
	unsigned lists[IG_MARKDOWN_DEEPEST]; /* the column of each list's text */
	bool paragraph;			     /* the last line may go on */
	char fence;			     /* in code: the mark that closes it; 0: not in code */
	unsigned n_fence, fence_quotes;
	bool table;
	unsigned cells; /* of the last line, if it may be a table's first one; 0: it is not */
	struct {
		unsigned n;
		bool code, escaped, pipe, began, bar;
	} count; /* the cells of the current line of text */
	struct ig_inline text;
};

void ig_markdown_init(struct ig_markdown *m, struct ig_strbuf *out, unsigned columns, bool colours);
void ig_markdown_finish(struct ig_markdown *m);
/* Append to out what can be shown of the text so far; bytes that are not UTF-8 become U+FFFD, control
 * characters except newline and tab a space. */
void ig_markdown_add(struct ig_markdown *m, const char *s, size_t len);
/* The text has ended: append the rest.  m is as after init then, but for the cursor's column. */
void ig_markdown_end(struct ig_markdown *m);

/* ---- of markdown_inline.c ----------------------------------------------------------- */

void ig_inline_add(struct ig_inline *t, struct ig_wrap *w, uint32_t c, unsigned style, bool inert);
/* The following text is indented to here where lines are broken. */
void ig_inline_hang(struct ig_inline *t, struct ig_wrap *w);
/* The paragraph, or its cell, has ended. */
void ig_inline_end(struct ig_inline *t, struct ig_wrap *w);
