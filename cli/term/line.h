/*
 * line.h: lines from a person or a pipe.  On a terminal with editing and history
 * (libedit, when built with it), else as they come.
 *
 * Waiting ends when ig_interrupted is set (files.h); what else goes on meanwhile, a
 * connection that wants an answer to its pings, is served by a hook.
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
	const struct ig_history *history; /* what the arrow keys go through; may be NULL */
	/* The socket to watch while a person types (-1: none), and what to do when it has
	 * something.  NULL: none. */
	int (*idle_socket)(void *ctx);
	void (*idle)(void *ctx);
	/* Words that Tab completes a line that begins so to, after a slash; NULL ends the
	 * calls.  May be NULL. */
	const char *(*word)(void *ctx, size_t i);
	void *ctx;
};

struct ig_line;

/* -ENOMEM, or -ENOTTY when there is no editing on this terminal. */
int ig_line_open(const struct ig_line_options *o, struct ig_line **out, struct ig_error *err);
/* The next line, without its newline, replaces what is in text.  *pasted: the terminal
 * says that more of the same paste follows.  1: a line, 0: the end of input, -EINTR:
 * ig_interrupted was set (what was typed is dropped), or another error with text. */
int ig_line_read(struct ig_line *l, const char *prompt, struct ig_strbuf *text, bool *pasted,
		 struct ig_error *err);
/* For the arrow keys, from now on. */
void ig_line_remember(struct ig_line *l, const char *text);
void ig_line_close(struct ig_line *l); /* NULL is fine; the terminal is as before */
/* Whether this build can edit lines. */
bool ig_line_can_edit(void);
