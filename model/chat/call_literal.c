/*
 * call_literal.c: calls whose arguments are literals, but not JSON: Python's, as in
 * [get_weather(city="Paris", days=2)] (LFM2, Llama 3.2 and 4), and Gemma's, as in
 * call:get_weather{city:<|"|>Paris<|"|>,days:2}.  They become JSON while they are read.
 */
#include "model/chat/completion_private.h"

#include <string.h>

#define GEMMA_QUOTE "<|\"|>"
#define GEMMA_CALL "call:"

/* A character of a call that is known, or of what may be one. */
static bool next(struct ig_completion_parser *p, char c, enum state s)
{
	ig_completion_hold(p, c);
	p->state = s;
	return true;
}

static bool is_python(const struct ig_completion_parser *p)
{
	return p->calls != IG_TOOL_CALLS_GEMMA;
}

/* ---- before the arguments -------------------------------------------------------------------- */

void ig_python_open(struct ig_completion_parser *p, int marker)
{
	p->in_list = false;
	p->state = PYTHON_LIST;
}

bool ig_python_open_bare(struct ig_completion_parser *p, char c)
{
	if (c != '[')
		return false;
	ig_call_begin(p);
	p->in_list = true;
	p->list_state = PYTHON_CALL_ENDED;
	return next(p, c, PYTHON_LIST);
}

void ig_gemma_open(struct ig_completion_parser *p, int marker) { p->state = GEMMA_HEAD; }

/* Before a name: of the first call, or after a comma. */
static bool step_list(struct ig_completion_parser *p, char c)
{
	if (ig_completion_is_space(c))
		return next(p, c, PYTHON_LIST);
	if (c == '[' && !p->in_list) {
		p->in_list = true;
		p->list_state = PYTHON_CALL_ENDED;
		return next(p, c, PYTHON_LIST);
	}
	if (c == ']' && p->place == AFTER_CALL && p->in_list) {
		p->state = PYTHON_CALL_ENDED;
		return false;
	}
	ig_call_begin(p);
	p->state = PYTHON_NAME;
	return false;
}

static bool step_name(struct ig_completion_parser *p, char c)
{
	char end = is_python(p) ? '(' : '{';

	if (c == end && p->name.len &&
	    (p->marked || ig_call_is_known(p, p->name.data, p->name.len))) {
		ig_completion_hold(p, c);
		ig_call_open(p);
		p->stack[0] = '{';
		p->state = LITERAL_KEY_BEGINS;
		return true;
	}
	if (!ig_completion_is_name(c) || c == '(' || c == ')' || c == ',' || c == '=' || c == '<' ||
	    p->name.len == IG_COMPLETION_MAX_NAME)
		return ig_completion_give_up(p, "a name");
	ig_strbuf_add(&p->name, &c, 1);
	return next(p, c, p->state);
}

static bool step_call_ended(struct ig_completion_parser *p, char c)
{
	if (ig_completion_is_space(c))
		return next(p, c, PYTHON_CALL_ENDED);
	if (c == ',')
		return next(p, c, PYTHON_LIST);
	if (c != ']')
		return ig_completion_give_up(p, "a comma or ]");
	ig_completion_hold(p, c);
	ig_completion_drop_held(p);
	p->in_list = false;
	p->state = OUTSIDE;
	return true;
}

static bool step_head(struct ig_completion_parser *p, char c)
{
	static const char *const texts[] = { GEMMA_CALL, NULL };
	int m;

	if (ig_completion_match(p, c, texts, &m)) {
		if (m != PARTIAL)
			p->state = GEMMA_NAME;
		return true;
	}
	if (!p->n_marker && ig_completion_is_space(c))
		return next(p, c, GEMMA_HEAD);
	return ig_completion_give_up(p, GEMMA_CALL);
}

/* ---- containers ------------------------------------------------------------------------------ */

/* The innermost object or list; 0: none is open. */
static char innermost(const struct ig_completion_parser *p)
{
	return p->n_stack ? (char)p->stack[p->n_stack - 1] : 0;
}

static bool begin_container(struct ig_completion_parser *p, char c)
{
	bool object = c == '{';

	if (p->n_stack == IG_COMPLETION_MAX_DEPTH) {
		ig_call_arguments(p, "null", 4);
		return ig_completion_give_up(p, "values that are nested less deep");
	}
	ig_completion_swallow(p, &c, 1);
	ig_call_arguments(p, object ? "{" : "[", 1);
	p->stack[p->n_stack++] = object ? '{' : '[';
	p->has_members = false;
	p->state = object ? LITERAL_KEY_BEGINS : LITERAL_VALUE;
	return true;
}

static bool is_close(const struct ig_completion_parser *p, char c)
{
	if (p->n_stack == 1)
		return c == (is_python(p) ? ')' : '}');
	return innermost(p) == '{' ? c == '}' : c == ']' || (c == ')' && is_python(p));
}

static bool end_container(struct ig_completion_parser *p, char c)
{
	ig_call_arguments(p, innermost(p) == '{' ? "}" : "]", 1);
	ig_completion_swallow(p, &c, 1);
	p->n_stack--;
	p->has_members = true;
	p->state = LITERAL_ENDED;
	if (!p->n_stack) {
		ig_call_arguments_end(p);
		ig_call_end(p);
	}
	return true;
}

/* ---- strings --------------------------------------------------------------------------------- */

/* Whether c begins a string, or belongs to what may begin one. */
static bool begin_string(struct ig_completion_parser *p, char c)
{
	static const char *const texts[] = { GEMMA_QUOTE, NULL };
	int m = NO_MATCH;

	if (!is_python(p) && ig_completion_match(p, c, texts, &m)) {
		p->quote = '<';
	} else if (p->n_marker) {
		return false;
	} else if (c == '"' || (c == '\'' && is_python(p))) {
		ig_completion_swallow(p, &c, 1);
		p->quote = c;
		p->unescape = (struct unescape){ .python = is_python(p) };
	} else {
		return false;
	}
	if (m == PARTIAL)
		return true;
	p->is_string = p->state == LITERAL_VALUE; /* else it is a key */
	if (p->is_string)
		ig_call_arguments(p, "\"", 1);
	p->state = LITERAL_STRING;
	return true;
}

static void put(struct ig_completion_parser *p, const char *s, size_t len)
{
	if (p->is_string)
		ig_call_put_escaped(p, s, len);
	else
		ig_strbuf_add(&p->param, s, len);
}

static bool end_string(struct ig_completion_parser *p)
{
	if (p->is_string)
		ig_call_arguments(p, "\"", 1);
	p->state = p->is_string ? LITERAL_ENDED : LITERAL_COLON;
	return true;
}

static bool step_string(struct ig_completion_parser *p, char c)
{
	static const char *const texts[] = { GEMMA_QUOTE, NULL };
	char out[8];
	size_t n;
	int m;

	if (p->quote != '<') {
		int rc = ig_unescape(&p->unescape, c, p->quote, out, &n);
		ig_completion_swallow(p, &c, 1);
		put(p, out, n);
		return rc ? end_string(p) : true;
	}
	if (ig_completion_match(p, c, texts, &m))
		return m == PARTIAL ? true : end_string(p);
	if (p->n_marker) {
		put(p, p->held.data, p->held.len);
		ig_completion_drop_held(p);
		p->n_marker = 0;
		return false;
	}
	ig_completion_swallow(p, &c, 1);
	put(p, &c, 1);
	return true;
}

/* What looked like the begin of a string belongs to a word. */
static void begin_word(struct ig_completion_parser *p, struct ig_strbuf *word)
{
	ig_completion_clear(p, word);
	if (p->n_marker) {
		ig_strbuf_add(word, p->held.data, p->held.len);
		ig_completion_drop_held(p);
		p->n_marker = 0;
	}
}

/* ---- values ---------------------------------------------------------------------------------- */

static bool step_value(struct ig_completion_parser *p, char c)
{
	if (!p->n_marker && ig_completion_is_space(c))
		return next(p, c, LITERAL_VALUE);
	if (!p->n_marker && is_close(p, c))
		return end_container(p, c); /* an empty list, or a comma before its end */
	if (!p->n_marker && innermost(p) == '[')
		ig_call_put_comma(p);
	if (begin_string(p, c))
		return true;
	if (!p->n_marker && (c == '{' || c == '[' || (c == '(' && is_python(p))))
		return begin_container(p, c);
	begin_word(p, &p->value);
	p->types = IG_TYPES_ANY;
	p->state = LITERAL_WORD;
	return false;
}

/* A number, True, or what is none of these: up to what may follow a value. */
static bool step_word(struct ig_completion_parser *p, char c)
{
	if (c == ',' || c == '}' || c == ']' || (c == ')' && is_python(p))) {
		ig_call_put_value(p);
		p->state = LITERAL_ENDED;
		return false;
	}
	ig_completion_swallow(p, &c, 1);
	ig_strbuf_add(&p->value, &c, 1);
	return true;
}

static bool step_ended(struct ig_completion_parser *p, char c)
{
	if (ig_completion_is_space(c))
		return next(p, c, LITERAL_ENDED);
	if (is_close(p, c))
		return end_container(p, c);
	if (c != ',')
		return ig_completion_give_up(p, "a comma or the end of the arguments");
	return next(p, c, innermost(p) == '{' ? LITERAL_KEY_BEGINS : LITERAL_VALUE);
}

/* ---- keys ------------------------------------------------------------------------------------ */

static char colon(const struct ig_completion_parser *p)
{
	return p->n_stack == 1 && is_python(p) ? '=' : ':';
}

static bool step_key_begins(struct ig_completion_parser *p, char c)
{
	if (!p->n_marker && ig_completion_is_space(c))
		return next(p, c, LITERAL_KEY_BEGINS);
	if (!p->n_marker && is_close(p, c))
		return end_container(p, c);
	if (!p->n_marker)
		ig_completion_clear(p, &p->param);
	if (begin_string(p, c))
		return true;
	begin_word(p, &p->param);
	p->state = LITERAL_KEY;
	return false;
}

static bool begin_value(struct ig_completion_parser *p, char c)
{
	ig_completion_swallow(p, &c, 1);
	ig_call_put_key(p);
	p->state = LITERAL_VALUE;
	return true;
}

static bool step_key(struct ig_completion_parser *p, char c)
{
	if (c == colon(p) && p->param.len) {
		while (p->param.len && ig_completion_is_space(p->param.data[p->param.len - 1]))
			p->param.len--;
		return begin_value(p, c);
	}
	if (strchr(is_python(p) ? "{}[](),=" : "{}[],", c) ||
	    p->param.len == IG_COMPLETION_MAX_NAME)
		return ig_completion_give_up(p, "a key");
	ig_strbuf_add(&p->param, &c, 1);
	return next(p, c, LITERAL_KEY);
}

static bool step_colon(struct ig_completion_parser *p, char c)
{
	if (ig_completion_is_space(c))
		return next(p, c, LITERAL_COLON);
	if (c == colon(p))
		return begin_value(p, c);
	return ig_completion_give_up(p, "the value of a key");
}

void ig_literal_finish(struct ig_completion_parser *p)
{
	if (p->state == LITERAL_STRING && p->is_string)
		put(p, p->held.data, p->held.len);
	if (p->state == LITERAL_WORD)
		ig_call_arguments(p, p->value.data, p->value.len);
	p->n_stack = 0; /* what is open stays open */
}

bool ig_literal_step(struct ig_completion_parser *p, char c)
{
	switch (p->state) {
	case PYTHON_LIST: return step_list(p, c);
	case PYTHON_NAME:
	case GEMMA_NAME: return step_name(p, c);
	case PYTHON_CALL_ENDED: return step_call_ended(p, c);
	case GEMMA_HEAD: return step_head(p, c);
	case LITERAL_VALUE: return step_value(p, c);
	case LITERAL_STRING: return step_string(p, c);
	case LITERAL_WORD: return step_word(p, c);
	case LITERAL_ENDED: return step_ended(p, c);
	case LITERAL_KEY_BEGINS: return step_key_begins(p, c);
	case LITERAL_KEY: return step_key(p, c);
	default: return step_colon(p, c);
	}
}
