/*
 * answer_parser.c: pieces of a model's answer to events.
 *
 * One byte at a time through a small machine, so that no event depends on how the answer
 * was cut.  What is not decided yet lies in held, exactly as it was written: white space
 * that a marker may follow, the beginning of a marker, an object that may become a call.
 * It turns into text when it is none, or is forgotten once the call is announced.  A call
 * is announced when its name is known and its arguments begin; from there on they are
 * passed through.  Which form a model has is found out in answer.c.
 */
#include "model/answer.h"

#include "base/strbuf.h"
#include "model/utf8-private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_HELD (64 << 10) /* bytes that are held back; what has more is text */
#define MAX_NAME 1024 /* of a tool */
#define MAX_KEY 16 /* longer than each key that is looked for */

enum marker { THINK, THINK_END, CALL_TAG, CALL_TAG_END, PYTHON_TAG, CALLS, ARGS, CALL_ID,
	      N_MARKERS };

/* None has its first character a second time: a match that fails begins anew with the
 * character that broke it. */
static const char *const marker_texts[N_MARKERS] = {
	[THINK] = "<think>",
	[THINK_END] = "</think>",
	[CALL_TAG] = "<tool_call>",
	[CALL_TAG_END] = "</tool_call>",
	[PYTHON_TAG] = "<|python_tag|>",
	[CALLS] = "[TOOL_CALLS]",
	[ARGS] = "[ARGS]",
	[CALL_ID] = "[CALL_ID]",
};

enum { NO_MATCH = -1, PARTIAL = -2 };

enum state {
	REASONING_BEGINS, /* white space is dropped */
	REASONING,
	OUTSIDE, /* of calls; place says where */
	OPENED, /* behind a marker that announces a call */
	NAME, /* Mistral's name[ARGS]{…}: in the name */
	NAME_ENDED, /* white space behind it */
	ID, /* behind [CALL_ID] */
	ARGS_OPENED,
	LIST_BEGINS, /* Mistral's list: behind [ or , */
	LIST, /* behind a call */
	OBJECT_BEGINS, /* behind { */
	KEY_BEGINS, /* behind , */
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

struct ig_answer_parser {
	enum ig_call_form form; /* NONE: calls are not looked for */
	bool may_think; /* <think> is still looked for */
	enum state state;
	enum place place;
	bool had_text;

	struct ig_strbuf held;
	size_t n_marker; /* so many bytes at held's end begin a marker */

	/* The call that is read. */
	bool marked; /* a marker announced it */
	bool in_list, in_tag, bare; /* bare: the arguments are in no object with the name */
	bool announced, has_arguments, args_ended, is_null;
	struct ig_strbuf name;
	bool has_name;
	struct ig_strbuf args; /* that came before the name */
	char key[MAX_KEY];
	size_t n_key;
	enum key which;
	struct unescape unescape;
	bool in_string, escaped; /* within arguments or another value */
	uint64_t depth;
	char word[MAX_KEY];
	size_t n_word;

	unsigned char rest[4]; /* the start of a character that is not whole yet */
	size_t n_rest;

	/* Events of one kind are given as one. */
	enum ig_answer_event_kind out_kind;
	struct ig_strbuf out;
	void (*event)(void *ctx, const struct ig_answer_event *e);
	void *ctx;
};

struct ig_answer_parser *ig_answer_parser_create(const struct ig_answer_style *s, bool with_calls)
{
	struct ig_answer_parser *p = calloc(1, sizeof *p);

	if (!p)
		return NULL;
	p->form = with_calls ? s->calls : IG_CALLS_NONE;
	p->may_think = s->reasoning || s->opens_reasoning;
	p->state = s->opens_reasoning ? REASONING_BEGINS : OUTSIDE;
	return p;
}

void ig_answer_parser_destroy(struct ig_answer_parser *p)
{
	if (!p)
		return;
	ig_strbuf_finish(&p->held);
	ig_strbuf_finish(&p->name);
	ig_strbuf_finish(&p->args);
	ig_strbuf_finish(&p->out);
	free(p);
}

/* ---- events ------------------------------------------------------------------------- */

static bool is_well(const struct ig_answer_parser *p)
{
	return ig_strbuf_ok(&p->held) && ig_strbuf_ok(&p->name) && ig_strbuf_ok(&p->args) &&
	       ig_strbuf_ok(&p->out);
}

static void send_event(struct ig_answer_parser *p, enum ig_answer_event_kind kind,
		       const struct ig_strbuf *data)
{
	if (is_well(p))
		p->event(p->ctx, &(struct ig_answer_event){ kind, data->len ? data->data : "",
							    data->len });
}

static void flush(struct ig_answer_parser *p)
{
	if (p->out.len)
		send_event(p, p->out_kind, &p->out);
	ig_strbuf_clear(&p->out);
}

static void give(struct ig_answer_parser *p, enum ig_answer_event_kind kind, const char *s,
		 size_t len)
{
	if (p->out_kind != kind)
		flush(p);
	p->out_kind = kind;
	ig_strbuf_add(&p->out, s, len);
}

static void end_call(struct ig_answer_parser *p)
{
	static const struct ig_strbuf nothing;

	flush(p);
	send_event(p, IG_ANSWER_CALL_END, &nothing);
}

static bool is_space(char c)
{
	return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* ---- what is held back ---------------------------------------------------------------- */

/* held is no call: it is text.  White space next to reasoning or a call is none of it. */
static void become_text(struct ig_answer_parser *p)
{
	const char *s = p->held.data;
	size_t len = p->held.len, from = 0;

	for (size_t i = 0; i < len && is_space(s[i]); i++) {
		if (p->place == AFTER_REASONING && s[i] == '\n')
			from = i + 1; /* an indented first line stays so */
		if (p->place == AFTER_CALL && !p->had_text)
			from = i + 1;
	}
	if (from < len)
		give(p, IG_ANSWER_TEXT, s + from, len - from);
	ig_strbuf_clear(&p->held);
	p->n_marker = 0;
	p->state = OUTSIDE;
	p->place = IN_TEXT;
	p->had_text = true;
	p->in_list = p->in_tag = false;
}

static void hold(struct ig_answer_parser *p, char c)
{
	if (!p->announced)
		ig_strbuf_add(&p->held, &c, 1);
}

static unsigned find_markers(const struct ig_answer_parser *p, enum marker *m)
{
	unsigned n = 0;

	switch (p->state) {
	case REASONING_BEGINS:
		if (p->may_think)
			m[n++] = THINK;
		m[n++] = THINK_END;
		break;
	case REASONING:
		m[n++] = THINK_END;
		break;
	case NAME:
	case NAME_ENDED:
		m[n++] = CALL_ID;
		m[n++] = ARGS;
		break;
	case ID:
		m[n++] = ARGS;
		break;
	case OUTSIDE:
		if (p->may_think && p->place == AT_START)
			m[n++] = THINK;
		if (p->in_tag)
			m[n++] = CALL_TAG_END;
		if (p->form == IG_CALLS_HERMES)
			m[n++] = CALL_TAG;
		else if (p->form == IG_CALLS_LLAMA3)
			m[n++] = PYTHON_TAG;
		else if (p->form == IG_CALLS_MISTRAL)
			m[n++] = CALLS;
		break;
	default:
		break;
	}
	return n;
}

/* Whether c goes on with, or completes, a marker that may be here. */
static int match(const struct ig_answer_parser *p, char c)
{
	enum marker m[N_MARKERS];
	unsigned n = find_markers(p, m);
	int found = NO_MATCH;

	for (unsigned i = 0; i < n; i++) {
		const char *text = marker_texts[m[i]];
		size_t len = p->n_marker;

		if (len && memcmp(p->held.data + p->held.len - len, text, len))
			continue;
		if (text[len] != c)
			continue;
		if (!text[len + 1])
			return (int)m[i];
		found = PARTIAL;
	}
	return found;
}

/* Takes c when it belongs to a marker: true; *m is the marker that it completes, or
 * PARTIAL.  Else NO_MATCH. */
static bool take_marker(struct ig_answer_parser *p, char c, int *m)
{
	*m = match(p, c);
	if (*m == NO_MATCH)
		return false;
	hold(p, c);
	p->n_marker = *m == PARTIAL ? p->n_marker + 1 : 0;
	return true;
}

/* ---- strings ---------------------------------------------------------------------------- */

static size_t put_utf8(uint32_t u, char *out)
{
	if (u < 0x80) {
		out[0] = (char)u;
		return 1;
	}
	if (u < 0x800) {
		out[0] = (char)(0xc0 | u >> 6);
		out[1] = (char)(0x80 | (u & 0x3f));
		return 2;
	}
	if (u < 0x10000) {
		out[0] = (char)(0xe0 | u >> 12);
		out[1] = (char)(0x80 | (u >> 6 & 0x3f));
		out[2] = (char)(0x80 | (u & 0x3f));
		return 3;
	}
	out[0] = (char)(0xf0 | u >> 18);
	out[1] = (char)(0x80 | (u >> 12 & 0x3f));
	out[2] = (char)(0x80 | (u >> 6 & 0x3f));
	out[3] = (char)(0x80 | (u & 0x3f));
	return 4;
}

static size_t put_unit(struct unescape *u, uint32_t unit, char *out)
{
	size_t n = 0;

	if (u->high && unit >= 0xdc00 && unit < 0xe000) {
		unit = 0x10000 + ((u->high - 0xd800) << 10) + (unit - 0xdc00);
		u->high = 0;
		return put_utf8(unit, out);
	}
	if (u->high) /* half a pair */
		n = put_utf8(0xfffd, out);
	u->high = 0;
	if (unit >= 0xd800 && unit < 0xdc00)
		u->high = unit;
	else if (unit >= 0xdc00 && unit < 0xe000)
		n += put_utf8(0xfffd, out + n);
	else
		n += put_utf8(unit, out + n);
	return n;
}

/* One byte of a string's inside: how many bytes come out, at most 8; -1: c ended it, and
 * *n more came out.  What is no escape comes out as it is written. */
static int unescape(struct unescape *u, char c, char *out, size_t *n)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *e;

	*n = 0;
	if (u->n_hex) {
		int digit = c >= '0' && c <= '9' ? c - '0' :
			    c >= 'a' && c <= 'f' ? c - 'a' + 10 :
			    c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;

		if (digit >= 0) {
			u->hex = u->hex << 4 | (uint32_t)digit;
			if (--u->n_hex == 0)
				*n = put_unit(u, u->hex, out);
			return 0;
		}
		u->n_hex = 0;
		*n = put_unit(u, 0xfffd, out); /* and c is itself */
	}
	if (u->escaped) {
		u->escaped = false;
		if (c == 'u') {
			u->n_hex = 4;
			u->hex = 0;
			return 0;
		}
		e = c ? strchr(from, c) : NULL;
		if (e) {
			*n = put_unit(u, (unsigned char)to[e - from], out);
			return 0;
		}
		*n = put_unit(u, '\\', out);
		out[(*n)++] = c;
		return 0;
	}
	if (c == '\\') {
		u->escaped = true;
		return 0;
	}
	if (u->high) {
		*n += put_utf8(0xfffd, out + *n);
		u->high = 0;
	}
	if (c == '"')
		return -1;
	out[(*n)++] = c;
	return 0;
}

/* ---- a call ------------------------------------------------------------------------------- */

static void begin_call(struct ig_answer_parser *p)
{
	p->announced = p->has_arguments = p->args_ended = p->has_name = false;
	p->bare = p->is_null = false;
	ig_strbuf_clear(&p->name);
	ig_strbuf_clear(&p->args);
}

/* It is a call now, whatever follows. */
static void announce(struct ig_answer_parser *p)
{
	flush(p);
	send_event(p, IG_ANSWER_CALL, &p->name);
	p->announced = true;
	ig_strbuf_clear(&p->held);
	if (p->args.len)
		give(p, IG_ANSWER_ARGUMENTS, p->args.data, p->args.len);
	ig_strbuf_clear(&p->args);
	if (p->args_ended)
		end_call(p);
}

static void give_arguments(struct ig_answer_parser *p, const char *s, size_t len)
{
	if (p->announced)
		give(p, IG_ANSWER_ARGUMENTS, s, len);
	else
		ig_strbuf_add(&p->args, s, len);
}

static void end_arguments(struct ig_answer_parser *p)
{
	p->args_ended = true;
	if (p->announced)
		end_call(p);
	else if (p->has_name)
		announce(p);
}

/* What followed the call is not known yet. */
static void leave_call(struct ig_answer_parser *p)
{
	if (p->announced && !p->args_ended)
		end_call(p);
	p->announced = false;
	p->place = AFTER_CALL;
	p->state = p->in_list ? LIST : OUTSIDE;
	p->in_tag = p->form == IG_CALLS_HERMES;
}

/* This is not how a call goes on: the character that says so is looked at again. */
static bool give_up(struct ig_answer_parser *p)
{
	if (p->announced) {
		p->in_list = false;
		leave_call(p);
	} else {
		become_text(p);
	}
	return false;
}

/* A state that goes on with the next character. */
static bool next(struct ig_answer_parser *p, char c, enum state s)
{
	hold(p, c);
	p->state = s;
	return true;
}

static bool begin_object(struct ig_answer_parser *p, char c)
{
	begin_call(p);
	return next(p, c, OBJECT_BEGINS);
}

static bool begin_string(struct ig_answer_parser *p, char c, enum state s)
{
	p->unescape = (struct unescape){ 0 };
	return next(p, c, s);
}

static bool end_object(struct ig_answer_parser *p)
{
	if (!p->announced) {
		/* Without arguments only a marker makes it a call. */
		if (!p->has_name || p->has_arguments || !p->marked)
			return give_up(p);
		ig_strbuf_puts(&p->args, "{}");
		end_arguments(p);
	}
	leave_call(p);
	return true;
}

static enum key classify(const struct ig_answer_parser *p)
{
	static const struct {
		const char *text;
		enum key key;
	} keys[] = {
		{ "name", KEY_NAME },
		{ "arguments", KEY_ARGUMENTS },
		{ "parameters", KEY_ARGUMENTS },
		{ "type", KEY_EXPECTED },
		{ "id", KEY_EXPECTED },
	};

	for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
		if (strlen(keys[i].text) == p->n_key &&
		    !memcmp(keys[i].text, p->key, p->n_key))
			return keys[i].key;
	return KEY_OTHER;
}

static bool step_key(struct ig_answer_parser *p, char c)
{
	char out[8];
	size_t n;
	int rc = unescape(&p->unescape, c, out, &n);

	for (size_t i = 0; i < n; i++)
		if (p->n_key < MAX_KEY)
			p->key[p->n_key++] = out[i];
	if (rc == 0)
		return next(p, c, KEY);
	p->which = classify(p);
	/* An answer may be any object: then it is better not held back. */
	if (p->which == KEY_OTHER && !p->marked && !p->announced)
		return give_up(p);
	return next(p, c, COLON);
}

static bool begin_value(struct ig_answer_parser *p, char c)
{
	if (is_space(c))
		return next(p, c, VALUE_BEGINS);
	if (p->which == KEY_NAME && !p->has_name)
		return c == '"' ? begin_string(p, c, NAME_STRING) : give_up(p);
	if (p->which == KEY_ARGUMENTS && !p->has_arguments) {
		p->has_arguments = true;
		p->in_string = p->escaped = false;
		p->depth = 0;
		if (c == '{') {
			if (p->has_name)
				announce(p);
			p->depth = 1;
			give_arguments(p, &c, 1);
			return next(p, c, ARGUMENTS);
		}
		if (c == '"')
			return begin_string(p, c, ARGUMENTS_STRING);
		if (c != 'n')
			return give_up(p);
		p->is_null = true;
	}
	p->in_string = p->escaped = false;
	if (c == '"')
		return next(p, c, OTHER_STRING);
	if (c == '{' || c == '[') {
		p->depth = 1;
		return next(p, c, OTHER_VALUE);
	}
	p->n_word = 0;
	p->state = WORD;
	return false;
}

static bool is_word(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       c == '-' || c == '+' || c == '.';
}

static bool step_word(struct ig_answer_parser *p, char c)
{
	if (is_word(c)) {
		if (p->n_word < MAX_KEY)
			p->word[p->n_word++] = c;
		return next(p, c, WORD);
	}
	if (!p->n_word)
		return give_up(p);
	if (p->is_null) {
		if (p->n_word != 4 || memcmp(p->word, "null", 4))
			return give_up(p);
		p->is_null = false;
		ig_strbuf_puts(&p->args, "{}");
		end_arguments(p);
	}
	p->state = VALUE_ENDED;
	return false;
}

static bool step_name(struct ig_answer_parser *p, char c)
{
	char out[8];
	size_t n;
	int rc = unescape(&p->unescape, c, out, &n);

	ig_strbuf_add(&p->name, out, n);
	if (p->name.len > MAX_NAME || memchr(out, 0, n))
		return give_up(p);
	if (rc == 0)
		return next(p, c, NAME_STRING);
	if (!p->name.len)
		return give_up(p);
	p->has_name = true;
	hold(p, c);
	if (p->args_ended)
		announce(p);
	p->state = VALUE_ENDED;
	return true;
}

/* Where strings and brackets are; false: the value ended with c. */
static bool follow_value(struct ig_answer_parser *p, char c)
{
	if (p->in_string) {
		if (p->escaped)
			p->escaped = false;
		else if (c == '\\')
			p->escaped = true;
		else if (c == '"')
			p->in_string = false;
		return true;
	}
	if (c == '"')
		p->in_string = true;
	else if (c == '{' || c == '[')
		p->depth++;
	else if (c == '}' || c == ']')
		p->depth--;
	return p->depth > 0;
}

static bool step_arguments(struct ig_answer_parser *p, char c)
{
	/* The closing tag comes before the braces do. */
	if (c == '<' && !p->in_string && p->form == IG_CALLS_HERMES)
		return give_up(p);
	give_arguments(p, &c, 1);
	hold(p, c);
	if (follow_value(p, c))
		return true;
	end_arguments(p);
	if (p->bare)
		leave_call(p);
	else
		p->state = VALUE_ENDED;
	return true;
}

/* Arguments in a string.  Only what begins like an object is taken for them. */
static bool step_arguments_string(struct ig_answer_parser *p, char c)
{
	char out[8];
	size_t n;
	int rc = unescape(&p->unescape, c, out, &n);

	for (size_t i = 0; i < n; i++) {
		if (p->depth == 0 && !is_space(out[i])) {
			if (out[i] != '{')
				return give_up(p);
			p->depth = 1;
			if (p->has_name)
				announce(p);
		}
		give_arguments(p, &out[i], 1);
	}
	hold(p, c);
	if (rc == 0)
		return true;
	if (p->depth == 0) {
		ig_strbuf_clear(&p->args);
		ig_strbuf_puts(&p->args, "{}");
	}
	end_arguments(p);
	p->state = VALUE_ENDED;
	return true;
}

static bool step_object(struct ig_answer_parser *p, char c)
{
	switch (p->state) {
	case OBJECT_BEGINS:
	case KEY_BEGINS:
		if (is_space(c))
			return next(p, c, p->state);
		if (c == '}' && p->state == OBJECT_BEGINS)
			return end_object(p);
		p->n_key = 0;
		return c == '"' ? begin_string(p, c, KEY) : give_up(p);
	case KEY:
		return step_key(p, c);
	case COLON:
		if (is_space(c))
			return next(p, c, COLON);
		return c == ':' ? next(p, c, VALUE_BEGINS) : give_up(p);
	case VALUE_BEGINS:
		return begin_value(p, c);
	case NAME_STRING:
		return step_name(p, c);
	case ARGUMENTS:
		return step_arguments(p, c);
	case ARGUMENTS_STRING:
		return step_arguments_string(p, c);
	case WORD:
		return step_word(p, c);
	case OTHER_STRING:
		if (!p->escaped && c == '"')
			return next(p, c, VALUE_ENDED);
		p->escaped = !p->escaped && c == '\\';
		return next(p, c, OTHER_STRING);
	case OTHER_VALUE:
		return next(p, c, follow_value(p, c) ? OTHER_VALUE : VALUE_ENDED);
	default: /* VALUE_ENDED */
		if (is_space(c))
			return next(p, c, VALUE_ENDED);
		if (c == ',')
			return next(p, c, KEY_BEGINS);
		return c == '}' ? end_object(p) : give_up(p);
	}
}

/* ---- behind a marker ------------------------------------------------------------------- */

/* Of a name that stands bare, in Mistral's newer form. */
static bool is_name(char c)
{
	return (unsigned char)c > ' ' && c != '[' && c != ']' && c != '{' && c != '}' &&
	       c != '"' && c != '\x7f';
}

static bool step_opened(struct ig_answer_parser *p, char c)
{
	if (is_space(c))
		return next(p, c, OPENED);
	if (c == '{')
		return begin_object(p, c);
	if (p->form != IG_CALLS_MISTRAL)
		return give_up(p);
	if (c == '[') {
		p->in_list = true;
		return next(p, c, LIST_BEGINS);
	}
	begin_call(p);
	p->state = NAME;
	return false;
}

static bool begin_bare_arguments(struct ig_answer_parser *p, char c)
{
	if (c != '{' || !p->name.len || p->name.len > MAX_NAME)
		return give_up(p);
	p->bare = p->has_arguments = true;
	p->in_string = p->escaped = false;
	p->depth = 1;
	announce(p);
	give_arguments(p, &c, 1);
	p->state = ARGUMENTS;
	return true;
}

static bool step_bare_name(struct ig_answer_parser *p, char c)
{
	int m;

	if (take_marker(p, c, &m)) {
		if (m != PARTIAL)
			p->state = m == ARGS ? ARGS_OPENED : ID;
		return true;
	}
	if (p->n_marker)
		return give_up(p);
	if (p->state == ID)
		return is_name(c) || is_space(c) ? next(p, c, ID) : give_up(p);
	if (is_space(c) && p->name.len)
		return next(p, c, NAME_ENDED);
	if (c == '{')
		return begin_bare_arguments(p, c);
	if (p->state == NAME_ENDED || !is_name(c) || p->name.len == MAX_NAME)
		return give_up(p);
	ig_strbuf_add(&p->name, &c, 1);
	return next(p, c, NAME);
}

static bool step_list(struct ig_answer_parser *p, char c)
{
	if (is_space(c))
		return next(p, c, p->state);
	if (p->state == LIST_BEGINS)
		return c == '{' ? begin_object(p, c) : give_up(p);
	if (c == ',')
		return next(p, c, LIST_BEGINS);
	if (c != ']')
		return give_up(p);
	ig_strbuf_clear(&p->held);
	p->in_list = false;
	p->state = OUTSIDE;
	return true;
}

/* ---- outside of calls ------------------------------------------------------------------- */

static void on_marker(struct ig_answer_parser *p, int m)
{
	switch (m) {
	case THINK:
		p->may_think = false;
		p->state = REASONING_BEGINS;
		ig_strbuf_clear(&p->held);
		break;
	case THINK_END:
		p->may_think = false;
		p->state = OUTSIDE;
		p->place = AFTER_REASONING;
		ig_strbuf_clear(&p->held);
		break;
	case CALL_TAG_END:
		p->in_tag = false;
		ig_strbuf_clear(&p->held);
		break;
	default:
		p->marked = true;
		p->state = OPENED;
		break;
	}
}

static bool step_reasoning(struct ig_answer_parser *p, char c)
{
	int m;

	if (take_marker(p, c, &m)) {
		if (m != PARTIAL)
			on_marker(p, m);
		return true;
	}
	if (!p->n_marker && is_space(c)) {
		if (p->state == REASONING)
			hold(p, c);
		return true;
	}
	if (p->held.len)
		give(p, IG_ANSWER_REASONING, p->held.data, p->held.len);
	ig_strbuf_clear(&p->held);
	p->state = REASONING;
	if (p->n_marker) {
		p->n_marker = 0;
		return false;
	}
	give(p, IG_ANSWER_REASONING, &c, 1);
	return true;
}

/* Between calls; dropped when another follows. */
static bool is_separator(const struct ig_answer_parser *p, char c)
{
	if (p->place != AFTER_CALL)
		return false;
	if (p->form == IG_CALLS_LLAMA3)
		return c == ';';
	return p->in_tag && c == '}'; /* one too many, before the closing tag */
}

static bool step_outside(struct ig_answer_parser *p, char c)
{
	int m;

	if (take_marker(p, c, &m)) {
		if (m != PARTIAL)
			on_marker(p, m);
		return true;
	}
	if (p->n_marker) {
		become_text(p);
		return false;
	}
	if (is_space(c) && (p->form != IG_CALLS_NONE || p->place != IN_TEXT))
		return next(p, c, OUTSIDE);
	if (c == '{' && p->form == IG_CALLS_LLAMA3 && p->place != IN_TEXT) {
		p->marked = false;
		return begin_object(p, c);
	}
	if (is_separator(p, c))
		return next(p, c, OUTSIDE);
	if (p->held.len || p->place != IN_TEXT)
		become_text(p);
	give(p, IG_ANSWER_TEXT, &c, 1);
	return true;
}

static bool step(struct ig_answer_parser *p, char c)
{
	switch (p->state) {
	case REASONING_BEGINS:
	case REASONING:
		return step_reasoning(p, c);
	case OUTSIDE:
		return step_outside(p, c);
	case OPENED:
		return step_opened(p, c);
	case NAME:
	case NAME_ENDED:
	case ID:
		return step_bare_name(p, c);
	case ARGS_OPENED:
		return is_space(c) ? next(p, c, ARGS_OPENED) : begin_bare_arguments(p, c);
	case LIST_BEGINS:
	case LIST:
		return step_list(p, c);
	default:
		return step_object(p, c);
	}
}

/* ---- feeding ------------------------------------------------------------------------------ */

static void put(struct ig_answer_parser *p, const unsigned char *s, size_t len)
{
	for (size_t i = 0; i < len && is_well(p); i++) {
		while (!step(p, (char)s[i]))
			;
		if (p->held.len <= MAX_HELD)
			continue;
		if (p->state == REASONING || p->state == REASONING_BEGINS) {
			give(p, IG_ANSWER_REASONING, p->held.data, p->held.len);
			ig_strbuf_clear(&p->held);
			p->n_marker = 0;
		} else {
			become_text(p);
		}
	}
}

static void put_broken(struct ig_answer_parser *p)
{
	put(p, (const unsigned char *)"\xef\xbf\xbd", 3);
}

/* Whole characters only go further. */
static void put_byte(struct ig_answer_parser *p, unsigned char c)
{
	p->rest[p->n_rest++] = c;
	while (p->n_rest) {
		int rc = ig_utf8_check(p->rest, p->n_rest);
		size_t n = (size_t)(rc < 0 ? -rc : rc);

		if (rc == 0)
			return;
		if (rc < 0)
			put_broken(p);
		else
			put(p, p->rest, n);
		p->n_rest -= n;
		memmove(p->rest, p->rest + n, p->n_rest);
	}
}

/* At the end: what is held only parts calls, or is a closing tag that is cut off. */
static bool is_left_over(const struct ig_answer_parser *p)
{
	bool in_list = p->state == LIST || p->state == LIST_BEGINS;
	size_t n = p->held.len - p->n_marker;

	if (p->place == IN_TEXT || p->place == AT_START || (p->state != OUTSIDE && !in_list))
		return false;
	for (size_t i = 0; i < n; i++) {
		char c = p->held.data[i];
		if (!is_space(c) && !is_separator(p, c) && !(in_list && c == ','))
			return false;
	}
	return !p->n_marker ||
	       (p->in_tag && !strncmp(p->held.data + n, marker_texts[CALL_TAG_END], p->n_marker));
}

/* The answer ended here. */
static void finish(struct ig_answer_parser *p)
{
	if (p->n_rest)
		put_broken(p);
	p->n_rest = 0;
	if (!is_well(p))
		return;
	if (p->announced) {
		leave_call(p);
	} else if (p->state == REASONING || p->state == REASONING_BEGINS) {
		if (p->held.len)
			give(p, IG_ANSWER_REASONING, p->held.data, p->held.len);
	} else if (!is_left_over(p)) {
		become_text(p);
	}
	ig_strbuf_clear(&p->held);
}

int ig_answer_parser_feed(struct ig_answer_parser *p, const char *text, size_t len, bool last,
			  void (*event)(void *ctx, const struct ig_answer_event *e), void *ctx)
{
	p->event = event;
	p->ctx = ctx;
	for (size_t i = 0; i < len; i++)
		put_byte(p, (unsigned char)text[i]);
	if (last)
		finish(p);
	flush(p);
	return is_well(p) ? 0 : -ENOMEM;
}
