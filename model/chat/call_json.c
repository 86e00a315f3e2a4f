/*
 * call_json.c: parses what follows the marker of a tool call that is an object, or an object that
 * may be one.  A tool call is announced when its name is known and its arguments begin; from then on
 * they are passed through as they were written.  Before that it may prove not to be a tool call: then
 * everything since the marker is text (completion_parser.c holds it).
 */
#include "model/chat/completion_private.h"

#include <string.h>

/* Hold c; the next character is processed in state s. */
static bool next(struct ig_completion_parser *p, char c, enum state s)
{
	ig_completion_hold(p, c);
	p->state = s;
	return true;
}

static bool begin_object(struct ig_completion_parser *p, char c)
{
	ig_call_begin(p);
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
			return ig_completion_give_up(p, "a name");
		ig_strbuf_puts(&p->args, "{}");
		ig_call_arguments_end(p);
	}
	ig_call_end(p);
	ig_completion_swallow(p, "}", 1);
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
	int rc = ig_unescape(&p->unescape, c, '\"', out, &n);

	for (size_t i = 0; i < n; i++)
		if (p->n_key < IG_COMPLETION_MAX_KEY)
			p->key[p->n_key++] = out[i];
	if (rc == 0)
		return next(p, c, KEY);
	p->which = classify(p);
	/* A completion may be any JSON object: do not hold that back. */
	if (p->which == KEY_OTHER && !p->marked && !p->announced)
		return ig_completion_give_up(p, "\"name\" or \"arguments\"");
	return next(p, c, COLON);
}

static bool begin_value(struct ig_completion_parser *p, char c)
{
	if (ig_completion_is_space(c))
		return next(p, c, VALUE_BEGINS);
	if (p->which == KEY_NAME && !p->has_name)
		return c == '"' ? begin_string(p, c, NAME_STRING) :
				  ig_completion_give_up(p, "a string as the name");
	if (p->which == KEY_ARGUMENTS && !p->has_arguments) {
		p->has_arguments = true;
		p->in_string = p->escaped = false;
		p->depth = 0;
		if (c == '{') {
			if (p->has_name)
				ig_call_announce(p);
			p->depth = 1;
			ig_call_arguments(p, &c, 1);
			return next(p, c, ARGUMENTS);
		}
		if (c == '"')
			return begin_string(p, c, ARGUMENTS_STRING);
		if (c != 'n')
			return ig_completion_give_up(p, "an object as the arguments");
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
		return ig_completion_give_up(p, "a value");
	if (p->is_null) {
		if (p->n_word != 4 || memcmp(p->word, "null", 4))
			return ig_completion_give_up(p, "null");
		p->is_null = false;
		ig_strbuf_puts(&p->args, "{}");
		ig_call_arguments_end(p);
	}
	p->state = VALUE_ENDED;
	return false;
}

static bool step_name(struct ig_completion_parser *p, char c)
{
	char out[8];
	size_t n;
	int rc = ig_unescape(&p->unescape, c, '\"', out, &n);

	ig_strbuf_add(&p->name, out, n);
	if (p->name.len > IG_COMPLETION_MAX_NAME || memchr(out, 0, n))
		return ig_completion_give_up(p, "a name of at most 1024 bytes");
	if (rc == 0)
		return next(p, c, NAME_STRING);
	if (!p->name.len)
		return ig_completion_give_up(p, "a name");
	p->has_name = true;
	ig_completion_hold(p, c);
	if (p->args_ended)
		ig_call_announce(p);
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
	if (c == '<' && !p->in_string)
		return ig_completion_give_up(p, "the end of the arguments");
	ig_call_arguments(p, &c, 1);
	ig_completion_hold(p, c);
	if (follow_value(p, c))
		return true;
	ig_call_arguments_end(p);
	if (p->bare)
		ig_call_end(p);
	else
		p->state = VALUE_ENDED;
	return true;
}

/* Arguments in a string, which must contain an object. */
static bool step_arguments_string(struct ig_completion_parser *p, char c)
{
	char out[8];
	size_t n;
	int rc = ig_unescape(&p->unescape, c, '\"', out, &n);

	for (size_t i = 0; i < n; i++) {
		if (p->depth == 0 && !ig_completion_is_space(out[i])) {
			if (out[i] != '{')
				return ig_completion_give_up(p,
							     "an object in the arguments' string");
			p->depth = 1;
			if (p->has_name)
				ig_call_announce(p);
		}
		ig_call_arguments(p, &out[i], 1);
	}
	ig_completion_hold(p, c);
	if (rc == 0)
		return true;
	if (p->depth == 0) {
		ig_completion_clear(p, &p->args);
		ig_strbuf_puts(&p->args, "{}");
	}
	ig_call_arguments_end(p);
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
		return c == '"' ? begin_string(p, c, KEY) : ig_completion_give_up(p, "a key");
	case KEY: return step_key(p, c);
	case COLON:
		if (ig_completion_is_space(c))
			return next(p, c, COLON);
		return c == ':' ? next(p, c, VALUE_BEGINS) : ig_completion_give_up(p, "a colon");
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
		return c == '}' ? end_object(p) : ig_completion_give_up(p, "a comma or }");
	}
}

/* ---- after a marker ------------------------------------------------------------------- */

static bool step_opened(struct ig_completion_parser *p, char c)
{
	if (ig_completion_is_space(c))
		return next(p, c, OPENED);
	if (c == '{')
		return begin_object(p, c);
	if (p->calls != IG_TOOL_CALLS_MISTRAL && p->calls != IG_TOOL_CALLS_MISTRAL_ARGS &&
	    p->calls != IG_TOOL_CALLS_GRANITE)
		return ig_completion_give_up(p, "an object");
	if (c == '[') {
		p->in_list = true;
		p->list_state = LIST;
		return next(p, c, LIST_BEGINS);
	}
	if (p->calls == IG_TOOL_CALLS_GRANITE)
		return ig_completion_give_up(p, "a list");
	ig_call_begin(p);
	p->state = NAME;
	return false;
}

bool ig_json_arguments(struct ig_completion_parser *p, char c)
{
	if (c != '{' || !p->name.len || p->name.len > IG_COMPLETION_MAX_NAME)
		return ig_completion_give_up(p, "arguments");
	p->bare = p->has_arguments = true;
	p->in_string = p->escaped = false;
	p->depth = 1;
	ig_completion_hold(p, c);
	ig_call_announce(p);
	ig_call_arguments(p, &c, 1);
	p->state = ARGUMENTS;
	return true;
}

static bool step_bare_name(struct ig_completion_parser *p, char c)
{
	static const char *const markers[] = { "[ARGS]", "[CALL_ID]", NULL };
	int m;

	if (ig_completion_match(p, c, markers + 0, &m)) {
		if (m != PARTIAL)
			p->state = m == 0 ? ARGS_OPENED : ID;
		return true;
	}
	if (p->n_marker)
		return ig_completion_give_up(p, "[ARGS]");
	if (p->state == ID)
		return ig_completion_is_name(c) || ig_completion_is_space(c) ?
			       next(p, c, ID) :
			       ig_completion_give_up(p, "[ARGS]");
	if (ig_completion_is_space(c) && p->name.len)
		return next(p, c, NAME_ENDED);
	if (c == '{')
		return ig_json_arguments(p, c);
	if (p->state == NAME_ENDED || !ig_completion_is_name(c) ||
	    p->name.len == IG_COMPLETION_MAX_NAME)
		return ig_completion_give_up(p, "a name");
	ig_strbuf_add(&p->name, &c, 1);
	return next(p, c, NAME);
}

static bool step_list(struct ig_completion_parser *p, char c)
{
	if (ig_completion_is_space(c))
		return next(p, c, p->state);
	if (p->state == LIST_BEGINS)
		return c == '{' ? begin_object(p, c) : ig_completion_give_up(p, "an object");
	if (c == ',')
		return next(p, c, LIST_BEGINS);
	if (c != ']')
		return ig_completion_give_up(p, "a comma or ]");
	ig_completion_hold(p, c);
	ig_completion_drop_held(p);
	p->in_list = false;
	p->state = OUTSIDE;
	return true;
}

void ig_json_open(struct ig_completion_parser *p, int marker) { p->state = OPENED; }

bool ig_json_open_bare(struct ig_completion_parser *p, char c)
{
	return c == '{' && begin_object(p, c);
}

/* ---- one character ------------------------------------------------------------------------ */

bool ig_json_step(struct ig_completion_parser *p, char c)
{
	switch (p->state) {
	case OPENED: return step_opened(p, c);
	case NAME:
	case NAME_ENDED:
	case ID: return step_bare_name(p, c);
	case ARGS_OPENED:
		return ig_completion_is_space(c) ? next(p, c, ARGS_OPENED) :
						   ig_json_arguments(p, c);
	case LIST_BEGINS:
	case LIST: return step_list(p, c);
	default: return step_object(p, c);
	}
}
