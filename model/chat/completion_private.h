/* completion_private.h: the parser of completions: completion_parser.c (text, reasoning, markers)
 * and the parsers of tool calls: call_json.c (objects after markers), call_marked.c (names and
 * arguments between markers), call_xml.c, call_literal.c (Python, Gemma), call_harmony.c.  What
 * formats have in common is in call_value.c. */
#pragma once

#include "base/strbuf.h"
#include "model/chat/completion.h"

#define IG_COMPLETION_MAX_KEY 16    /* longer than each known key */
#define IG_COMPLETION_MAX_NAME 1024 /* of a tool */
#define IG_COMPLETION_MAX_DEPTH 64  /* of values that are not JSON */

enum { NO_MATCH = -1, PARTIAL = -2 };

enum state {
	REASONING_BEGINS, /* white space is dropped */
	REASONING,
	OUTSIDE, /* of tool calls; see enum place */

	/* ---- call_json.c */
	OPENED,	    /* after a marker of a tool call */
	NAME,	    /* Mistral's name[ARGS]{…}: in the name */
	NAME_ENDED, /* white space after it */
	ID,	    /* after [CALL_ID] */
	ARGS_OPENED,
	LIST_BEGINS,   /* a list of objects: after [ or , */
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

	/* ---- call_marked.c */
	MARKED_LIST,   /* before a call, or the end of the list */
	MARKED_NAME,   /* after a call's marker */
	MARKED_SECOND, /* after the separator: arguments, or (DeepSeek V3) the name */
	MARKED_FENCE,  /* before the arguments */
	MARKED_END,    /* after them */

	/* ---- call_xml.c */
	XML_LIST, /* before a call, or the end of the list */
	XML_CALL, /* before the tag with the name */
	XML_NAME,
	XML_BODY, /* before a parameter, or the end of the call */
	XML_KEY,
	XML_VALUE_BEGINS, /* GLM: before the tag of the value */
	XML_VALUE,
	XML_VALUE_ENDED, /* a string, if a tag follows that may follow it */

	/* ---- call_literal.c */
	PYTHON_LIST, /* before a name */
	PYTHON_NAME,
	PYTHON_CALL_ENDED,
	GEMMA_HEAD, /* before call: */
	GEMMA_NAME,
	LITERAL_VALUE, /* before a value */
	LITERAL_STRING,
	LITERAL_WORD,
	LITERAL_ENDED, /* after a value */
	LITERAL_KEY_BEGINS,
	LITERAL_KEY,
	LITERAL_COLON,

	/* ---- call_harmony.c */
	HARMONY_START, /* of the completion, or after a message */
	HARMONY_HEADER,
	HARMONY_BODY,
	HARMONY_CALL, /* before the arguments */
	HARMONY_END,  /* after them */
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
	bool python;	/* \x41 and \U0001f600, too */
	unsigned n_hex; /* digits still missing */
	uint32_t hex;
	uint32_t high; /* the first half of a pair; 0: none */
};

/* How the text of a tool call differs in the XML formats. */
struct ig_xml_layout {
	const char *list_end; /* NULL: calls have no common tag */
	const char *call;     /* before the name; NULL: the name follows the first marker */
	const char *name_end; /* NULL: a tag or white space */
	const char *key, *key_end[4];
	const char *value; /* between key and value; NULL: nothing */
	const char *value_end;
	const char *call_end[3]; /* the first ends a call, others are tolerated */
	bool trims;		 /* a newline at each end of a value */
};

struct ig_marked_layout {
	const char *call, *separator, *call_end, *list_end;
};

struct ig_completion_parser;

/* A format: one entry in tool_format.c. */
struct ig_tool_format {
	const char *name;
	/* The source of a template shows it: it has all these texts, and is_shown. */
	const char *needs[3];
	bool (*is_shown)(const char *s, size_t len);
	const char *begins[4]; /* markers of a call or a list of calls */
	const char *shown[10]; /* further control tokens whose text the parser needs */
	const char *closing;   /* a marker after a call that has nothing to say */
	const struct ig_xml_layout *xml;
	const struct ig_marked_layout *marked;
	/* begins[marker] was read. */
	void (*opened)(struct ig_completion_parser *p, int marker);
	/* Where a call may begin without a marker: whether c begins one (it is held). */
	bool (*open_bare)(struct ig_completion_parser *p, char c);

	/* ---- its grammar: open, then head name tail … with between in between, then close */
	const char *open, *between, *close;
	const char *head, *neck, *tail;
	const char *key; /* {"name": …, key: after head; NULL: the bare name, then neck */
	/* How arguments are written; NULL: as JSON. */
	const struct ig_grammar_members *members;
	const char *free, *free_head; /* what other text does not contain; NULL: begins[0], head */
	const char *other;	      /* an expression for other text, where no marker ends it */
	bool numbered;		      /* Kimi: a number between name and neck */
	bool single;		      /* one call ends the completion */
};
extern const struct ig_tool_format ig_tool_formats[IG_N_TOOL_CALLS];

/* The format that the source of a template shows. */
enum ig_tool_call_format ig_tool_format_find(const char *s, size_t len);
/* The grammar's texts for a style. */
struct ig_tool_format ig_tool_format_of(const struct ig_completion_style *s);

extern const struct ig_think_texts { /* by ig_think_format */
	const char *begin, *end;
} ig_think_texts[];

struct ig_completion_parser {
	enum ig_tool_call_format calls; /* NONE: tool calls are not recognised */
	const struct ig_tool_format *format;
	bool with_calls;
	const struct json_t *tools; /* NULL: not known */
	const char *think, *think_end;
	bool may_think; /* <think> may still come */
	enum state state;
	enum place place;
	bool had_text;
	bool no_memory; /* no further events */
	size_t n_read;	/* bytes of the completion */
	char problem[160];

	struct ig_strbuf held;
	size_t n_marker; /* bytes at held's end that are a prefix of a marker */

	/* The current tool call. */
	bool marked;		    /* it follows a marker */
	bool in_list, in_tag, bare; /* bare: name and arguments are not in one object */
	enum state list_state;	    /* in_list: after a call */
	bool announced, has_arguments, args_ended, is_null;
	struct ig_strbuf name;
	bool has_name, name_ended;
	struct ig_strbuf args; /* that came before the name */
	char key[IG_COMPLETION_MAX_KEY];
	size_t n_key;
	enum key which;
	struct unescape unescape;
	bool in_string, escaped; /* within arguments or another value */
	uint64_t depth;
	char word[IG_COMPLETION_MAX_KEY];
	size_t n_word;

	/* Arguments that are not written as JSON. */
	struct ig_strbuf param;	   /* a key */
	struct ig_strbuf value;	   /* that is not known to be a string */
	struct ig_strbuf tail;	   /* what may end a string */
	const struct json_t *tool; /* its parameters; NULL: not known */
	unsigned types;		   /* that the parameter may have */
	bool is_string;		   /* it is streamed as one */
	bool has_members;	   /* of the innermost object or list */
	bool value_begins, newline;
	char quote; /* of a string: ' " or < for Gemma's */
	unsigned char stack[IG_COMPLETION_MAX_DEPTH];
	unsigned n_stack;
	enum ig_completion_event_kind body; /* Harmony: of a message that is not a call */
	size_t n_header;		    /* bytes of held, before a call's arguments */

	unsigned char rest[4]; /* the first bytes of an incomplete character */
	size_t n_rest;

	/* Adjacent events of one kind are merged. */
	enum ig_completion_event_kind out_kind;
	struct ig_strbuf out, raw;
	void (*event)(void *ctx, const struct ig_completion_event *e);
	void *ctx;
};

static inline bool ig_completion_is_space(char c)
{
	return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}
/* A character of an unquoted name. */
static inline bool ig_completion_is_name(char c)
{
	return (unsigned char)c > ' ' && c != '[' && c != ']' && c != '{' && c != '}' && c != '"' &&
	       c != '\x7f';
}

/* Empty b, but remember a failed allocation. */
static inline void ig_completion_clear(struct ig_completion_parser *p, struct ig_strbuf *b)
{
	p->no_memory = p->no_memory || !ig_strbuf_ok(b);
	ig_strbuf_clear(b);
}

/* ---- completion_parser.c */

/* Text, reasoning or arguments. */
void ig_completion_append(struct ig_completion_parser *p, enum ig_completion_event_kind kind,
			  const char *s, size_t len);
/* An event that is not merged. */
void ig_completion_send(struct ig_completion_parser *p, enum ig_completion_event_kind kind,
			const char *s, size_t len);
/* These bytes of the completion are not shown: a part of the next event's raw. */
void ig_completion_swallow(struct ig_completion_parser *p, const char *s, size_t len);
/* Swallow what is held. */
void ig_completion_drop_held(struct ig_completion_parser *p);
/* Hold c back until its meaning is known. */
void ig_completion_hold(struct ig_completion_parser *p, char c);
/* Emit the held bytes as text; unless whole, white space at their end stays held, since a tool
 * call may follow. */
void ig_completion_become_text(struct ig_completion_parser *p, bool whole);
/* If c continues one of the texts (NULL-ended), hold it and return true; *m: the index of the text
 * that it completes, or PARTIAL.  A completed marker of an announced call is swallowed. */
bool ig_completion_match(struct ig_completion_parser *p, char c, const char *const *texts, int *m);
/* Here a call was expected to go on differently. */
void ig_completion_note(struct ig_completion_parser *p, const char *expected);
/* A tool call can't continue with the next character, which must be processed again: false. */
bool ig_completion_give_up(struct ig_completion_parser *p, const char *expected);

/* ---- call_value.c */

enum { /* bits for the types of a value */
       IG_TYPES_STRING = 1,
       IG_TYPES_BOOLEAN = 2,
       IG_TYPES_NULL = 4,
       IG_TYPES_NUMBER = 8,
       IG_TYPES_OBJECT = 16,
       IG_TYPES_ARRAY = 32,
       IG_TYPES_ANY = 63,
};

/* Unescape one byte inside a string that ends with quote: *n bytes, at most 8, to out.  -1: c ended
 * the string, else 0.  An unknown escape is copied. */
int ig_unescape(struct unescape *u, char c, char quote, char *out, size_t *n);
/* A new tool call: forget the last one. */
void ig_call_begin(struct ig_completion_parser *p);
/* From now on this is a tool call, whatever follows. */
void ig_call_announce(struct ig_completion_parser *p);
void ig_call_arguments(struct ig_completion_parser *p, const char *s, size_t len);
/* The arguments are complete. */
void ig_call_arguments_end(struct ig_completion_parser *p);
/* End the tool call. */
void ig_call_end(struct ig_completion_parser *p);
/* Whether the request has a tool of this name, or its tools are not known. */
bool ig_call_is_known(const struct ig_completion_parser *p, const char *name, size_t len);
/* Arguments that are not JSON: announce the call, and find its tool. */
void ig_call_open(struct ig_completion_parser *p);
/* The key of a member of the innermost object, from param; *types: what its value may be. */
void ig_call_put_key(struct ig_completion_parser *p);
void ig_call_put_comma(struct ig_completion_parser *p);
/* The types of the argument in param, and whether it is streamed as a string. */
void ig_call_find_types(struct ig_completion_parser *p);
/* Bytes within a JSON string. */
void ig_call_put_escaped(struct ig_completion_parser *p, const char *s, size_t len);
/* What value contains, as JSON. */
void ig_call_put_value(struct ig_completion_parser *p);

/* ---- the formats' parsers: process a character in one of their states; false: the state has
 * changed, and c must be processed again */
bool ig_json_step(struct ig_completion_parser *p, char c);
bool ig_marked_step(struct ig_completion_parser *p, char c);
bool ig_xml_step(struct ig_completion_parser *p, char c);
bool ig_literal_step(struct ig_completion_parser *p, char c);
bool ig_harmony_step(struct ig_completion_parser *p, char c);
/* The completion ends within a value: what is held back of it. */
void ig_xml_finish(struct ig_completion_parser *p);
void ig_literal_finish(struct ig_completion_parser *p);
void ig_harmony_finish(struct ig_completion_parser *p);

void ig_json_open(struct ig_completion_parser *p, int marker);
void ig_marked_open(struct ig_completion_parser *p, int marker);
void ig_xml_open(struct ig_completion_parser *p, int marker);
void ig_python_open(struct ig_completion_parser *p, int marker);
void ig_gemma_open(struct ig_completion_parser *p, int marker);
bool ig_json_open_bare(struct ig_completion_parser *p, char c);
bool ig_python_open_bare(struct ig_completion_parser *p, char c);
/* c opens the arguments of a call whose name is known, as JSON. */
bool ig_json_arguments(struct ig_completion_parser *p, char c);
