/*
 * reply.h: a model's reply on standard output.  On a terminal: lines broken at words, Markdown and
 * colours (markdown.h), reasoning dimmed below a heading.  With `plain`, TERM=dumb or no TERM: the
 * text as it is, without control characters.  In pipes and files: exactly the model's bytes.
 */
#pragma once

#include "cli/term/markdown.h"

struct ig_reply {
	bool screen; /* standard output is a terminal */
	bool rich;   /* and its text is broken and styled */
	bool colours;
	bool began;	/* something was shown */
	bool newline;	/* the output is at the start of a line */
	bool reasoning; /* the last text was reasoning */
	struct ig_strbuf out;
	struct ig_markdown text;
	struct ig_wrap thoughts;
};

/* The option of the commands that show replies. */
#define IG_PLAIN_OPTION(value)                                                                     \
	IG_FLAG("plain", 0, value,                                                                 \
		"on a terminal too: no Markdown, no colours, lines as the model writes them")

void ig_reply_init(struct ig_reply *r, bool plain);
void ig_reply_finish(struct ig_reply *r);
/* Show a piece of the text, or of the reasoning before it.  0 or -errno. */
int ig_reply_text(struct ig_reply *r, const char *s, size_t len);
int ig_reply_reasoning(struct ig_reply *r, const char *s, size_t len);
/* The reply has ended, or was stopped: write what waits, and end the line.  0 or -errno. */
int ig_reply_end(struct ig_reply *r);
