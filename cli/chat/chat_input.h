/* chat_input.h: input lines as messages and commands: lines that belong together become one
 * message; a line that begins with / is a command.  Uses no terminal. */
#pragma once

#include <ingot/error.h>
#include <stdbool.h>

#include "base/strbuf.h"

/* A message whose lines are being collected: it continues after a line that ends in a backslash,
 * between """ and """, and during a paste.  Starts with zeros. */
struct ig_chat_input {
	struct ig_strbuf text; /* so far, without backslashes and """ */
	bool block;	       /* within """ */
	bool several;	       /* has more than one line, or a block */
	bool started;
};

void ig_chat_input_finish(struct ig_chat_input *in);
void ig_chat_input_clear(struct ig_chat_input *in);
/* Append a line, given without its newline; pasted: more of the same paste follows.  True: the
 * message is complete (check ig_strbuf_ok). */
bool ig_chat_input_line(struct ig_chat_input *in, const char *line, size_t len, bool pasted);

enum ig_chat_verb {
	IG_CHAT_MESSAGE, /* not a command: rest is the message */
	IG_CHAT_NOTHING, /* only spaces */
	IG_CHAT_UNKNOWN, /* an unknown command; see name */
	IG_CHAT_HELP,
	IG_CHAT_SYSTEM,
	IG_CHAT_MODEL,
	IG_CHAT_SAVE,
	IG_CHAT_LOAD,
	IG_CHAT_CLEAR,
	IG_CHAT_RETRY,
	IG_CHAT_UNDO,
	IG_CHAT_STATS,
	IG_CHAT_EXIT,
};

struct ig_chat_command_info {
	const char *name; /* "system"; NULL ends the table */
	enum ig_chat_verb verb;
	const char *arg; /* its name in the help; NULL: takes none */
	bool needs_arg;
	const char *help;
};

extern const struct ig_chat_command_info ig_chat_commands[];

struct ig_chat_command {
	enum ig_chat_verb verb;
	const char *rest; /* the message, or the argument without spaces around it */
	size_t len;
	char name[40]; /* of the command, as typed */
};

/* Parse a complete message; rest points into it.  -EINVAL with text: an argument is missing or
 * unexpected, or the command is unknown (verb IG_CHAT_UNKNOWN).  A message of several lines is
 * never a command; // at the start of a text stands for /. */
int ig_chat_parse(const struct ig_chat_input *in, struct ig_chat_command *out,
		  struct ig_error *err);
