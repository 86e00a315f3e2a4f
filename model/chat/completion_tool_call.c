/*
 * completion_tool_call.c: parses what follows the marker of a tool call, or an object that may be
 * one.  A tool call is announced when its name is known and its arguments begin; from then on they
 * are passed through as they were written.  Before that it may prove not to be a tool call: then
 * everything since the marker is text (completion_parser.c holds it).
 */
#include "model/chat/completion_private.h"

#include "base/utf8.h"
#include "model/common.h"

#include <string.h>

#define MAX_NAME 1024 /* of a tool */

/* ---- strings ---------------------------------------------------------------------------- */

static size_t put_unit(struct unescape *u, uint32_t unit, char *out)
{
	size_t n = 0;

	if (u->high && unit >= 0xdc00 && unit < 0xe000) {
		unit = 0x10000 + ((u->high - 0xd800) << 10) + (unit - 0xdc00);
		u->high = 0;
		return ig_utf8_put(out, unit);
	}
	if (u->high) /* half a pair */
		n = ig_utf8_put(out, 0xfffd);
	u->high = 0;
	if (unit >= 0xd800 && unit < 0xdc00)
		u->high = unit;
	else if (unit >= 0xdc00 && unit < 0xe000)
		n += ig_utf8_put(out + n, 0xfffd);
	else
		n += ig_utf8_put(out + n, unit);
	return n;
}

/* Unescape one byte inside a string: *n bytes, at most 8, to out.  -1: c ended the string, else
 * 0.  An unknown escape is copied. */
static int unescape(struct unescape *u, char c, char *out, size_t *n)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *e;

	*n = 0;
	if (u->n_hex) {
		int digit = ig_hex_digit(c);
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
		*n += ig_utf8_put(out + *n, 0xfffd);
		u->high = 0;
	}
	if (c == '"')
		return -1;
	out[(*n)++] = c;
	return 0;
}

/* ---- a call ------------------------------------------------------------------------------- */

static void begin_launch(struct ig_completion_parser *p)
{
	p->announced = p->has_arguments = p->args_ended = p->has_name = false;
	p->bare = p->is_null = false;
	ig_completion_clear(p, &p->name);
	ig_completion_clear(p, &p->args);
}

/* From now on this is a tool call, whatever follows. */
static void announce(struct ig_completion_parser *p)
{
	ig_completion_send(p, IG_COMPLETION_TOOL_CALL, p->name.data, p->name.len);
	p->announced = true;
	ig_completion_clear(p, &p->held);
	if (p->args.len)
		ig_completion_append(p, IG_COMPLETION_ARGUMENTS, p->args.data, p->args.len);
	ig_completion_clear(p, &p->args);
	if (p->args_ended)
		ig_completion_send(p, IG_COMPLETION_TOOL_CALL_END, "", 0);
}

static void give_arguments(struct ig_completion_parser *p, const char *s, size_t len)
{
	if (p->announced)
		ig_completion_append(p, IG_COMPLETION_ARGUMENTS, s, len);
	else
		ig_strbuf_add(&p->args, s, len);
}

static void end_arguments(struct ig_completion_parser *p)
{
	p->args_ended = true;
	if (p->announced)
		ig_completion_send(p, IG_COMPLETION_TOOL_CALL_END, "", 0);
	else if (p->has_name)
		announce(p);
}

void ig_completion_tool_call_end(struct ig_completion_parser *p)
{
	if (p->announced && !p->args_ended)
		ig_completion_send(p, IG_COMPLETION_TOOL_CALL_END, "", 0);
	p->announced = false;
	p->place = AFTER_CALL;
	p->state = p->in_list ? LIST : OUTSIDE;
	p->in_tag = p->format == IG_TOOL_CALLS_HERMES;
}

/* A tool call can't continue with this character, which must be processed again. */
static bool give_up(struct ig_completion_parser *p)
{
	if (p->announced)
		ig_completion_tool_call_end(p);
	else
		ig_completion_become_text(p, false);
	return false;
}

/* Hold c; the next character is processed in state s. */
static bool next(struct ig_completion_parser *p, char c, enum state s)
{
	ig_completion_hold(p, c);
	p->state = s;
	return true;
}

bool ig_completion_tool_call_begin(struct ig_completion_parser *p, char c)
{
	begin_launch(p);
	return next(p, c, OBJECT_BEGINS);
}

static bool begin_string(struct ig_completion_parser *p, char c, enum state s)
{
	p->unescape = (struct unescape){ 0 };
	return next(p, c, s);
}

static bool end_object(struct ig_completion_parser *p)
{
	if (!p->announced) {
		/* Without arguments it is a tool call only after a marker. */
		if (!p->has_name || p->has_arguments || !p->marked)
			return give_up(p);
		ig_strbuf_puts(&p->args, "{}");
		end_arguments(p);
	}
	ig_completion_tool_call_end(p);
	return true;
}

static enum key classify(const struct ig_completion_parser *p)
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
		if (strlen(keys[i].text) == p->n_key && !memcmp(keys[i].text, p->key, p->n_key))
			return keys[i].key;
	return KEY_OTHER;
}

static bool step_key(struct ig_completion_parser *p, char c)
{
	char out[8];
	size_t n;
	int rc = unescape(&p->unescape, c, out, &n);

	for (size_t i = 0; i < n; i++)
		if (p->n_key < IG_COMPLETION_MAX_KEY)
			p->key[p->n_key++] = out[i];
	if (rc == 0)
		return next(p, c, KEY);
	p->which = classify(p);
	/* A completion may be any JSON object: do not hold that back. */
	if (p->which == KEY_OTHER && !p->marked && !p->announced)
		return give_up(p);
	return next(p, c, COLON);
}

static bool begin_value(struct ig_completion_parser *p, char c)
{
	if (ig_completion_is_space(c))
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

static bool step_word(struct ig_completion_parser *p, char c)
{
	if (is_word(c)) {
		if (p->n_word < IG_COMPLETION_MAX_KEY)
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

static bool step_name(struct ig_completion_parser *p, char c)
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
	ig_completion_hold(p, c);
	if (p->args_ended)
		announce(p);
	p->state = VALUE_ENDED;
	return true;
}

/* Track strings and brackets; false: the value ended with c. */
static bool follow_value(struct ig_completion_parser *p, char c)
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

static bool step_arguments(struct ig_completion_parser *p, char c)
{
	/* The closing tag comes before the closing braces. */
	if (c == '<' && !p->in_string && p->format == IG_TOOL_CALLS_HERMES)
		return give_up(p);
	give_arguments(p, &c, 1);
	ig_completion_hold(p, c);
	if (follow_value(p, c))
		return true;
	end_arguments(p);
	if (p->bare)
		ig_completion_tool_call_end(p);
	else
		p->state = VALUE_ENDED;
	return true;
}

/* Arguments in a string, which must contain an object. */
static bool step_arguments_string(struct ig_completion_parser *p, char c)
{
	char out[8];
	size_t n;
	int rc = unescape(&p->unescape, c, out, &n);

	for (size_t i = 0; i < n; i++) {
		if (p->depth == 0 && !ig_completion_is_space(out[i])) {
			if (out[i] != '{')
				return give_up(p);
			p->depth = 1;
			if (p->has_name)
				announce(p);
		}
		give_arguments(p, &out[i], 1);
	}
	ig_completion_hold(p, c);
	if (rc == 0)
		return true;
	if (p->depth == 0) {
		ig_completion_clear(p, &p->args);
		ig_strbuf_puts(&p->args, "{}");
	}
	end_arguments(p);
	p->state = VALUE_ENDED;
	return true;
}

static bool step_object(struct ig_completion_parser *p, char c)
{
	switch (p->state) {
	case OBJECT_BEGINS:
	case KEY_BEGINS:
		if (ig_completion_is_space(c))
			return next(p, c, p->state);
		if (c == '}' && p->state == OBJECT_BEGINS)
			return end_object(p);
		p->n_key = 0;
		return c == '"' ? begin_string(p, c, KEY) : give_up(p);
	case KEY: return step_key(p, c);
	case COLON:
		if (ig_completion_is_space(c))
			return next(p, c, COLON);
		return c == ':' ? next(p, c, VALUE_BEGINS) : give_up(p);
	case VALUE_BEGINS: return begin_value(p, c);
	case NAME_STRING: return step_name(p, c);
	case ARGUMENTS: return step_arguments(p, c);
	case ARGUMENTS_STRING: return step_arguments_string(p, c);
	case WORD: return step_word(p, c);
	case OTHER_STRING:
		if (!p->escaped && c == '"')
			return next(p, c, VALUE_ENDED);
		p->escaped = !p->escaped && c == '\\';
		return next(p, c, OTHER_STRING);
	case OTHER_VALUE: return next(p, c, follow_value(p, c) ? OTHER_VALUE : VALUE_ENDED);
	default: /* VALUE_ENDED */
		if (ig_completion_is_space(c))
			return next(p, c, VALUE_ENDED);
		if (c == ',')
			return next(p, c, KEY_BEGINS);
		return c == '}' ? end_object(p) : give_up(p);
	}
}

/* ---- after a marker ------------------------------------------------------------------- */

/* A character of an unquoted name, in Mistral's newer format. */
static bool is_name(char c)
{
	return (unsigned char)c > ' ' && c != '[' && c != ']' && c != '{' && c != '}' && c != '"' &&
	       c != '\x7f';
}

static bool step_opened(struct ig_completion_parser *p, char c)
{
	if (ig_completion_is_space(c))
		return next(p, c, OPENED);
	if (c == '{')
		return ig_completion_tool_call_begin(p, c);
	if (p->format != IG_TOOL_CALLS_MISTRAL)
		return give_up(p);
	if (c == '[') {
		p->in_list = true;
		return next(p, c, LIST_BEGINS);
	}
	begin_launch(p);
	p->state = NAME;
	return false;
}

static bool begin_bare_arguments(struct ig_completion_parser *p, char c)
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

static bool step_bare_name(struct ig_completion_parser *p, char c)
{
	int m;

	if (ig_completion_match_marker(p, c, &m)) {
		if (m != PARTIAL)
			p->state = m == ARGS ? ARGS_OPENED : ID;
		return true;
	}
	if (p->n_marker)
		return give_up(p);
	if (p->state == ID)
		return is_name(c) || ig_completion_is_space(c) ? next(p, c, ID) : give_up(p);
	if (ig_completion_is_space(c) && p->name.len)
		return next(p, c, NAME_ENDED);
	if (c == '{')
		return begin_bare_arguments(p, c);
	if (p->state == NAME_ENDED || !is_name(c) || p->name.len == MAX_NAME)
		return give_up(p);
	ig_strbuf_add(&p->name, &c, 1);
	return next(p, c, NAME);
}

static bool step_list(struct ig_completion_parser *p, char c)
{
	if (ig_completion_is_space(c))
		return next(p, c, p->state);
	if (p->state == LIST_BEGINS)
		return c == '{' ? ig_completion_tool_call_begin(p, c) : give_up(p);
	if (c == ',')
		return next(p, c, LIST_BEGINS);
	if (c != ']')
		return give_up(p);
	ig_completion_clear(p, &p->held);
	p->in_list = false;
	p->state = OUTSIDE;
	return true;
}

/* ---- one character ------------------------------------------------------------------------ */

bool ig_completion_tool_call_step(struct ig_completion_parser *p, char c)
{
	switch (p->state) {
	case OPENED: return step_opened(p, c);
	case NAME:
	case NAME_ENDED:
	case ID: return step_bare_name(p, c);
	case ARGS_OPENED:
		return ig_completion_is_space(c) ? next(p, c, ARGS_OPENED) :
						   begin_bare_arguments(p, c);
	case LIST_BEGINS:
	case LIST: return step_list(p, c);
	default: return step_object(p, c);
	}
}
