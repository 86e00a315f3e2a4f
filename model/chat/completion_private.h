/*
 * completion_private.h: the parser of answers, as completion_parser.c (text, reasoning, markers)
 * and completion_tool_call.c (what is behind a marker) share it.
 */
#pragma once

#include "base/strbuf.h"
#include "model/chat/completion.h"

#define IG_COMPLETION_MAX_KEY 16 /* longer than each key that is looked for */

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
	OUTSIDE, /* of calls; place says where */
	OPENED,	 /* behind a marker that announces a call; from here on completion_tool_call.c's */
	NAME,	 /* Mistral's name[ARGS]{…}: in the name */
	NAME_ENDED, /* white space behind it */
	ID,	    /* behind [CALL_ID] */
	ARGS_OPENED,
	LIST_BEGINS,   /* Mistral's list: behind [ or , */
	LIST,	       /* behind a call */
	OBJECT_BEGINS, /* behind { */
	KEY_BEGINS,    /* behind , */
	KEY,
	COLON,
	VALUE_BEGINS,
	NAME_STRING,
	ARGUMENTS,
	ARGUMENTS_STRING,
	WORD, /* a number, true … */
	OTHER_STRING,
	OTHER_VALUE, /* an object or a list that nobody asked for */
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
	unsigned n_hex; /* digits that are still to come */
	uint32_t hex;
	uint32_t high; /* the first half of a pair; 0: none */
};

struct ig_completion_parser {
	enum ig_tool_call_format format; /* NONE: calls are not looked for */
	bool may_think;			 /* <think> is still looked for */
	enum state state;
	enum place place;
	bool had_text;
	bool no_memory; /* nothing more is said then */

	struct ig_strbuf held;
	size_t n_marker; /* so many bytes at held's end begin a marker */

	/* The call that is read. */
	bool marked;		    /* a marker announced it */
	bool in_list, in_tag, bare; /* bare: the arguments are in no object with the name */
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

	unsigned char rest[4]; /* the start of a character that is not whole yet */
	size_t n_rest;

	/* Events of one kind are given as one. */
	enum ig_completion_event_kind out_kind;
	struct ig_strbuf out;
	void (*event)(void *ctx, const struct ig_completion_event *e);
	void *ctx;
};

static inline bool ig_completion_is_space(char c)
{
	return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* Forget what b holds, but not that memory was short. */
static inline void ig_completion_clear(struct ig_completion_parser *p, struct ig_strbuf *b)
{
	p->no_memory = p->no_memory || !ig_strbuf_ok(b);
	ig_strbuf_clear(b);
}

/* ---- completion_parser.c ---------------------------------------------------------------- */

/* Text, reasoning or arguments. */
void ig_completion_append(struct ig_completion_parser *p, enum ig_completion_event_kind kind,
			  const char *s, size_t len);
/* An event that stands alone. */
void ig_completion_send(struct ig_completion_parser *p, enum ig_completion_event_kind kind,
			const char *s, size_t len);
/* Keep c until it is known what it is. */
void ig_completion_hold(struct ig_completion_parser *p, char c);
/* What is held is no call: it is text; if not the whole, white space at its end stays held,
 * since a call may follow. */
void ig_completion_become_text(struct ig_completion_parser *p, bool whole);
/* Takes c when it belongs to a marker that may be here: true; *m is the marker that it
 * completes, or PARTIAL. */
bool ig_completion_match_marker(struct ig_completion_parser *p, char c, int *m);

/* ---- completion_tool_call.c ------------------------------------------------------------------ */

/* A character in one of the states from OPENED on; false: the state is another now, and c
 * is to be looked at again. */
bool ig_completion_tool_call_step(struct ig_completion_parser *p, char c);
/* c opens an object that may be a call. */
void ig_completion_tool_call_begin(struct ig_completion_parser *p, char c);
/* The call is over; what follows it is not known yet. */
void ig_completion_tool_call_end(struct ig_completion_parser *p);
