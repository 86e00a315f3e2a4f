/*
 * line.h: lines of standard input; on a terminal with editing and history (libedit, when built with
 * it).  Waiting ends when ig_interrupted is set (files.h).  A hook serves a connection meanwhile,
 * which needs replies to its pings.
 */
#pragma once

#include <ingot/error.h>
#include <stdbool.h>

#include "base/strbuf.h"
#include "cli/chat/history.h"

#define IG_LINE_MAX (16u << 20) /* bytes of one line */

struct ig_line_options {
	bool edit; /* standard input and output are a terminal that can move its cursor */
	bool colour;
	const struct ig_history *history; /* for the arrow keys; may be NULL */
	/* The socket to poll while waiting (-1: none), and the call when it is readable.  NULL:
	 * none. */
	int (*idle_socket)(void *ctx);
	void (*idle)(void *ctx);
	/* Word i that Tab completes after a slash; NULL after the last.  May be NULL. */
	const char *(*word)(void *ctx, size_t i);
	void *ctx;
};

struct ig_line;

/* -ENOMEM, or -ENOTTY when editing does not work on this terminal. */
int ig_line_open(const struct ig_line_options *o, struct ig_line **out, struct ig_error *err);
/* Replace text by the next line, without its newline.  *pasted: more of the same paste follows.
 * 1, 0: the end of input, -EINTR: ig_interrupted is set (the typed text is dropped), or another
 * error with text. */
int ig_line_read(struct ig_line *l, const char *prompt, struct ig_strbuf *text, bool *pasted,
		 struct ig_error *err);
/* Add an entry for the arrow keys. */
void ig_line_remember(struct ig_line *l, const char *text);
void ig_line_close(struct ig_line *l); /* NULL is fine; restores the terminal */
/* Whether this build can edit lines. */
bool ig_line_can_edit(void);
