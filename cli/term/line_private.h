/* line_private.h: what the reader of plain lines and the editor share. */
#pragma once

#include "cli/term/line.h"

struct line_editor;

struct ig_line {
	struct ig_line_options o;
	struct line_editor *editor; /* NULL: plain lines */
	char buf[4096];		    /* read from standard input, not used yet */
	size_t at, len;
	bool ended;			  /* standard input is at its end */
	void (*woken)(struct ig_line *l); /* called while waiting, after signals too; or NULL */
};

/* The next byte of standard input: 0 … 255, -1 at the end, -EINTR - 1 when
 * ig_interrupted is set, else another -errno - 1. */
int line_next_byte(struct ig_line *l);

#ifdef IG_LINE_EDITING
int line_editor_open(struct ig_line *l, struct ig_error *err);
int line_editor_read(struct ig_line *l, const char *prompt, struct ig_strbuf *text, bool *pasted,
		     struct ig_error *err);
void line_editor_remember(struct ig_line *l, const char *text);
void line_editor_close(struct ig_line *l);
#endif
