/* completion_private.h: the parser of completions, which completion_parser.c (text, reasoning,
 * markers) and completion_tool_call.c (what follows a marker) share. */
#pragma once

#include "base/strbuf.h"
#include "model/chat/completion.h"

#define IG_COMPLETION_MAX_KEY 16 /* longer than each known key */

enum marker {
	THINK,
	THINK_END,
	CALL_TAG,
	CALL_TAG_END,
	PYTHON_TAG,
	CALLS,
	ARGS,
	CALL_ID,
	N_MARKERS,
};

enum { NO_MATCH = -1, PARTIAL = -2 };

enum state {
	REASONING_BEGINS, /* white space is dropped */
	REASONING,
	OUTSIDE, /* of tool calls; see enum place */
	OPENED,	 /* after a marker of a tool call; from here on completion_tool_call.c's states */
	NAME,	 /* Mistral's name[ARGS]{…}: in the name */
	NAME_ENDED, /* white space after it */
	ID,	    /* after [CALL_ID] */
	ARGS_OPENED,
	LIST_BEGINS,   /* Mistral's list: after [ or , */
	LIST,	       /* after a tool call */
	OBJECT_BEGINS, /* after { */
	KEY_BEGINS,    /* after , */
	KEY,
	COLON,
	VALUE_BEGINS,
	NAME_STRING,
	ARGUMENTS,
	ARGUMENTS_STRING,
	WORD, /* a number, true … */
	OTHER_STRING,
	OTHER_VALUE, /* an object or a list under another key */
	VALUE_ENDED,
};

enum place {
	AT_START,
	AFTER_REASONING,
	IN_TEXT,
	AFTER_CALL,
};

enum key { KEY_NAME, KEY_ARGUMENTS, KEY_EXPECTED, KEY_OTHER };

struct unescape { /* the inside of a JSON string */
	bool escaped;
	unsigned n_hex; /* digits still missing */
	uint32_t hex;
	uint32_t high; /* the first half of a pair; 0: none */
};

struct ig_completion_parser {
	enum ig_tool_call_format format; /* NONE: tool calls are not recognised */
	bool may_think;			 /* <think> may still come */
	enum state state;
	enum place place;
	bool had_text;
	bool no_memory; /* no further events */

	struct ig_strbuf held;
	size_t n_marker; /* bytes at held's end that are a prefix of a marker */

	/* The current tool call. */
	bool marked;		    /* it follows a marker */
	bool in_list, in_tag, bare; /* bare: name and arguments are not in one object */
	bool announced, has_arguments, args_ended, is_null;
	struct ig_strbuf name;
	bool has_name;
	struct ig_strbuf args; /* that came before the name */
	char key[IG_COMPLETION_MAX_KEY];
	size_t n_key;
	enum key which;
	struct unescape unescape;
	bool in_string, escaped; /* within arguments or another value */
	uint64_t depth;
	char word[IG_COMPLETION_MAX_KEY];
	size_t n_word;

	unsigned char rest[4]; /* the first bytes of an incomplete character */
	size_t n_rest;

	/* Adjacent events of one kind are merged. */
	enum ig_completion_event_kind out_kind;
	struct ig_strbuf out;
	void (*event)(void *ctx, const struct ig_completion_event *e);
	void *ctx;
};

static inline bool ig_completion_is_space(char c)
{
	return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* Empty b, but remember a failed allocation. */
static inline void ig_completion_clear(struct ig_completion_parser *p, struct ig_strbuf *b)
{
	p->no_memory = p->no_memory || !ig_strbuf_ok(b);
	ig_strbuf_clear(b);
}

/* Text, reasoning or arguments. */
void ig_completion_append(struct ig_completion_parser *p, enum ig_completion_event_kind kind,
			  const char *s, size_t len);
/* An event that is not merged. */
void ig_completion_send(struct ig_completion_parser *p, enum ig_completion_event_kind kind,
			const char *s, size_t len);
/* Hold c back until its meaning is known. */
void ig_completion_hold(struct ig_completion_parser *p, char c);
/* Emit the held bytes as text; unless whole, white space at their end stays held, since a tool
 * call may follow. */
void ig_completion_become_text(struct ig_completion_parser *p, bool whole);
/* If c continues a marker that may be here, hold it and return true; *m: the marker that it
 * completes, or PARTIAL. */
bool ig_completion_match_marker(struct ig_completion_parser *p, char c, int *m);

/* Process a character in a state from OPENED on; false: the state has changed, and c must be
 * processed again. */
bool ig_completion_tool_call_step(struct ig_completion_parser *p, char c);
/* c opens an object that may be a tool call; true. */
bool ig_completion_tool_call_begin(struct ig_completion_parser *p, char c);
/* End the tool call. */
void ig_completion_tool_call_end(struct ig_completion_parser *p);
