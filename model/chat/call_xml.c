/*
 * call_xml.c: calls whose parameters stand between tags, each with its raw value: Qwen 3 Coder, GLM,
 * MiniMax, DeepSeek from V3.2 on.  A value that is a string is streamed.  Its closing tag ends it
 * only if a tag follows that may follow it, since a string may contain the closing tag.
 */
#include "model/chat/completion_private.h"

#include <string.h>

/* A character of a call that is known, or of what may be one. */
static bool next(struct ig_completion_parser *p, char c, enum state s)
{
	ig_completion_hold(p, c);
	p->state = s;
	return true;
}

void ig_xml_open(struct ig_completion_parser *p, int marker)
{
	const struct ig_xml_layout *x = p->format->xml;

	p->in_list = x->list_end != NULL;
	p->list_state = XML_LIST;
	if (p->in_list)
		p->state = XML_LIST;
	else
		p->state = x->call && marker == 0 ? XML_CALL : XML_NAME;
	/* Without the first tag only the name shows that it is a call. */
	p->bare = marker > 0;
}

static bool step_list(struct ig_completion_parser *p, char c)
{
	const struct ig_xml_layout *x = p->format->xml;
	const char *const texts[] = { x->call, x->list_end, NULL };
	int m;

	if (ig_completion_match(p, c, texts, &m)) {
		if (m == 0) {
			ig_call_begin(p);
			p->state = XML_NAME;
		} else if (m == 1 && p->place == AFTER_CALL) {
			ig_completion_drop_held(p);
			p->in_list = false;
			p->state = OUTSIDE;
		} else if (m == 1) { /* a list without calls is text */
			ig_completion_give_up(p, x->call);
		}
		return true;
	}
	if (!p->n_marker && ig_completion_is_space(c))
		return next(p, c, p->state);
	return ig_completion_give_up(p, x->call);
}

static bool step_call(struct ig_completion_parser *p, char c)
{
	const char *const texts[] = { p->format->xml->call, NULL };
	int m;

	if (ig_completion_match(p, c, texts, &m)) {
		if (m != PARTIAL)
			p->state = XML_NAME;
		return true;
	}
	if (!p->n_marker && ig_completion_is_space(c))
		return next(p, c, XML_CALL);
	return ig_completion_give_up(p, texts[0]);
}

static bool announce(struct ig_completion_parser *p)
{
	if (!p->name.len || (p->bare && !ig_call_is_known(p, p->name.data, p->name.len))) {
		ig_completion_give_up(p, "a name");
		return false;
	}
	ig_call_open(p);
	p->state = XML_BODY;
	return true;
}

/* GLM: the name ends with the tag of a key or of the end. */
static bool step_glm_name(struct ig_completion_parser *p, char c, bool *done)
{
	const struct ig_xml_layout *x = p->format->xml;
	const char *const texts[] = { x->key, x->call_end[0], NULL };
	int m;

	*done = ig_completion_match(p, c, texts, &m);
	if (!*done || m == PARTIAL)
		return true;
	if (!announce(p))
		return true;
	if (m == 0)
		p->state = XML_KEY;
	else
		ig_call_end(p);
	return true;
}

static bool step_name(struct ig_completion_parser *p, char c)
{
	const char *const texts[] = { p->format->xml->name_end, NULL };
	bool done = false;
	int m;

	if (!texts[0])
		step_glm_name(p, c, &done);
	else if ((done = ig_completion_match(p, c, texts, &m)) && m != PARTIAL)
		announce(p);
	if (done)
		return true;
	if (p->n_marker)
		return ig_completion_give_up(p, "the end of a name");
	if (!texts[0] && ig_completion_is_space(c)) {
		p->name_ended = p->name.len > 0;
		return next(p, c, XML_NAME);
	}
	if (p->name_ended || c == '<' || c == '>' || !ig_completion_is_name(c) ||
	    p->name.len == IG_COMPLETION_MAX_NAME)
		return ig_completion_give_up(p, "a name");
	ig_strbuf_add(&p->name, &c, 1);
	return next(p, c, XML_NAME);
}

/* A tag that may follow a value was read: its index among key, call_end. */
static void on_tag(struct ig_completion_parser *p, int m)
{
	if (m == 0) {
		ig_completion_clear(p, &p->param);
		p->state = XML_KEY;
		return;
	}
	if (m > 1) /* what should have come before */
		ig_completion_note(p, p->format->xml->call_end[0]);
	ig_call_end(p);
	if (m > 1)
		p->in_tag = false;
}

static void follow_tags(const struct ig_completion_parser *p, const char **texts)
{
	const struct ig_xml_layout *x = p->format->xml;
	unsigned n = 0;

	texts[n++] = x->key;
	for (unsigned i = 0; i < 3 && x->call_end[i]; i++)
		texts[n++] = x->call_end[i];
	texts[n] = NULL;
}

static bool step_body(struct ig_completion_parser *p, char c)
{
	const char *texts[6];
	int m;

	follow_tags(p, texts);
	if (ig_completion_match(p, c, texts, &m)) {
		if (m != PARTIAL)
			on_tag(p, m);
		return true;
	}
	if (!p->n_marker && ig_completion_is_space(c))
		return next(p, c, XML_BODY);
	return ig_completion_give_up(p, "a parameter or the end of the call");
}

static void begin_value(struct ig_completion_parser *p)
{
	p->state = XML_VALUE;
	p->value_begins = p->format->xml->trims;
	p->newline = false;
	ig_call_put_key(p);
	if (p->is_string)
		ig_call_arguments(p, "\"", 1);
}

static bool step_key(struct ig_completion_parser *p, char c)
{
	const struct ig_xml_layout *x = p->format->xml;
	int m;

	if (ig_completion_match(p, c, x->key_end, &m)) {
		if (m == PARTIAL)
			return true;
		ig_call_find_types(p);
		if (x->key_end[1] && m < 2) { /* string="true", string="false" */
			p->is_string = m == 0;
			p->types &= m == 1 ? ~(unsigned)IG_TYPES_STRING : ~0u;
		}
		if (x->value)
			p->state = XML_VALUE_BEGINS;
		else
			begin_value(p);
		return true;
	}
	if (p->param.len >= IG_COMPLETION_MAX_NAME)
		return ig_completion_give_up(p, "the end of a parameter's name");
	if (p->n_marker) { /* of what ends a name, but here it is a part of one */
		ig_strbuf_add(&p->param, p->held.data, p->held.len);
		ig_completion_drop_held(p);
		p->n_marker = 0;
		return false;
	}
	ig_strbuf_add(&p->param, &c, 1);
	return next(p, c, XML_KEY);
}

static bool step_value_begins(struct ig_completion_parser *p, char c)
{
	const char *const texts[] = { p->format->xml->value, NULL };
	int m;

	if (ig_completion_match(p, c, texts, &m)) {
		if (m != PARTIAL)
			begin_value(p);
		return true;
	}
	if (!p->n_marker && ig_completion_is_space(c))
		return next(p, c, XML_VALUE_BEGINS);
	return ig_completion_give_up(p, texts[0]);
}

/* ---- values -------------------------------------------------------------------------------- */

static void put(struct ig_completion_parser *p, const char *s, size_t len)
{
	if (p->is_string)
		ig_call_put_escaped(p, s, len);
	else
		ig_strbuf_add(&p->value, s, len);
}

/* A newline may be the one before the closing tag. */
static void put_newline(struct ig_completion_parser *p)
{
	if (p->newline)
		put(p, "\n", 1);
	p->newline = false;
}

static void end_value(struct ig_completion_parser *p)
{
	p->newline = false;
	if (p->is_string)
		ig_call_arguments(p, "\"", 1);
	else
		ig_call_put_value(p);
	p->state = XML_BODY;
}

static bool step_value(struct ig_completion_parser *p, char c)
{
	const struct ig_xml_layout *x = p->format->xml;
	const char *const texts[] = { x->value_end, NULL };
	int m;

	if (ig_completion_match(p, c, texts, &m)) {
		if (m == PARTIAL)
			return true;
		if (!p->is_string) {
			end_value(p);
			return true;
		}
		ig_completion_clear(p, &p->tail);
		ig_strbuf_puts(&p->tail, x->value_end);
		p->state = XML_VALUE_ENDED;
		return true;
	}
	if (p->n_marker) {
		put_newline(p);
		put(p, p->held.data, p->held.len);
		p->value_begins = false;
		ig_completion_drop_held(p);
		p->n_marker = 0;
		return false;
	}
	ig_completion_swallow(p, &c, 1);
	if (x->trims && c == '\n') {
		if (!p->value_begins) {
			put_newline(p);
			p->newline = true;
		}
	} else {
		put_newline(p);
		put(p, &c, 1);
	}
	p->value_begins = false;
	return true;
}

/* The closing tag was a part of the string. */
static void reopen(struct ig_completion_parser *p)
{
	size_t n = strlen(p->format->xml->value_end);

	/* tail: the tag, white space; held: a part of another tag.  All was swallowed but held. */
	put_newline(p);
	put(p, p->tail.data, n);
	for (size_t i = n; i < p->tail.len; i++) {
		if (p->format->xml->trims && p->tail.data[i] == '\n') {
			put_newline(p);
			p->newline = true;
		} else {
			put_newline(p);
			put(p, p->tail.data + i, 1);
		}
	}
	ig_completion_clear(p, &p->tail);
	p->value_begins = false;
	p->state = XML_VALUE;
}

static bool step_value_ended(struct ig_completion_parser *p, char c)
{
	const char *texts[6];
	int m;

	follow_tags(p, texts);
	if (ig_completion_match(p, c, texts, &m)) {
		if (m == PARTIAL)
			return true;
		end_value(p);
		on_tag(p, m);
		return true;
	}
	if (!p->n_marker && ig_completion_is_space(c)) {
		ig_completion_swallow(p, &c, 1);
		ig_strbuf_add(&p->tail, &c, 1);
		return true;
	}
	reopen(p);
	if (p->n_marker && strncmp(p->held.data, p->format->xml->value_end, p->held.len)) {
		put_newline(p);
		put(p, p->held.data, p->held.len);
		ig_completion_drop_held(p);
		p->n_marker = 0;
	}
	return false; /* what is held may be a prefix of the closing tag, too */
}

void ig_xml_finish(struct ig_completion_parser *p)
{
	if (p->state == XML_VALUE_ENDED) {
		end_value(p);
	} else if (p->state == XML_VALUE) {
		put_newline(p);
		put(p, p->held.data, p->held.len);
		if (!p->is_string)
			ig_call_arguments(p, p->value.data, p->value.len);
		p->n_stack = 0; /* it stays open */
	} else if (p->state == XML_KEY || p->state == XML_VALUE_BEGINS) {
		p->n_stack = 0;
	}
}

bool ig_xml_step(struct ig_completion_parser *p, char c)
{
	switch (p->state) {
	case XML_LIST: return step_list(p, c);
	case XML_CALL: return step_call(p, c);
	case XML_NAME: return step_name(p, c);
	case XML_BODY: return step_body(p, c);
	case XML_KEY: return step_key(p, c);
	case XML_VALUE_BEGINS: return step_value_begins(p, c);
	case XML_VALUE: return step_value(p, c);
	default: return step_value_ended(p, c);
	}
}
