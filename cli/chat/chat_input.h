/*
 * chat_input.h: what a person types, as messages and commands: lines that belong
 * together become one message; a line that begins with / is a command.  No terminal.
 */
#pragma once

#include <ingot/error.h>
#include <stdbool.h>

#include "base/strbuf.h"

/* A message that is being put together: lines go on while one ends in a backslash,
 * between """ and """, and while a terminal pastes. */
struct ig_chat_input {
	struct ig_strbuf text; /* so far, without the marks */
	bool block;	       /* within """ */
	bool several;	       /* it came in more than one line, or in a block */
	bool started;
};

void ig_chat_input_init(struct ig_chat_input *in);
void ig_chat_input_finish(struct ig_chat_input *in);
void ig_chat_input_clear(struct ig_chat_input *in);
/* Take a line without its newline; pasted: more of the same paste follows.  True: the
 * message is whole (check ig_strbuf_ok). */
bool ig_chat_input_line(struct ig_chat_input *in, const char *line, size_t len, bool pasted);

enum ig_chat_verb {
	IG_CHAT_SAY,	 /* no command: rest is the message */
	IG_CHAT_NOTHING, /* only blanks */
	IG_CHAT_UNKNOWN, /* a command that there is not; name says which */
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
	const char *arg; /* what help calls it; NULL: none is taken */
	bool needs_arg;
	const char *help;
};

extern const struct ig_chat_command_info ig_chat_commands[];

struct ig_chat_command {
	enum ig_chat_verb verb;
	const char *rest; /* the message, or the argument without blanks round it */
	size_t len;
	char name[40]; /* of the command, as typed */
};

/* What a whole message asks for.  rest points into the message.  -EINVAL with text: an
 * argument is missing or too much, or the command is unknown (verb IG_CHAT_UNKNOWN).
 * What came in several lines is never a command; // stands for a / that begins a text. */
int ig_chat_parse(const struct ig_chat_input *in, struct ig_chat_command *out,
		  struct ig_error *err);
