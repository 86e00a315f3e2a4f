/*
 * call_marked.c: calls whose name and arguments stand between markers, in a list of them.  Kimi's
 * name is an id, functions.NAME:NUMBER; DeepSeek V3 has a word before the name and its arguments in
 * a fence.
 */
#include "model/chat/completion_private.h"

#include <string.h>

static bool next(struct ig_completion_parser *p, char c, enum state s)
{
	ig_completion_hold(p, c);
	p->state = s;
	return true;
}

void ig_marked_open(struct ig_completion_parser *p, int marker)
{
	p->in_list = true;
	p->list_state = MARKED_END;
	/* A call may come without its list. */
	p->state = marker == 0 ? MARKED_LIST : MARKED_NAME;
}

static bool end_list(struct ig_completion_parser *p)
{
	ig_completion_drop_held(p);
	p->in_list = false;
	p->state = OUTSIDE;
	return true;
}

/* Between calls. */
static bool step_list(struct ig_completion_parser *p, char c)
{
	const struct ig_marked_layout *x = p->format->marked;
	const char *const texts[] = { x->call, x->list_end, x->call_end, NULL };
	int m;

	if (ig_completion_match(p, c, texts, &m)) {
		if (m == 0) {
			ig_call_begin(p);
			p->state = MARKED_NAME;
		} else if (m == 1) {
			if (p->place == AFTER_CALL)
				return end_list(p);
			/* A list without calls is text. */
			ig_completion_give_up(p, x->call);
			return true;
		} else if (m == 2) {
			ig_completion_drop_held(p);
			p->state = MARKED_LIST;
		}
		return true;
	}
	if (!p->n_marker && (ig_completion_is_space(c) || (p->state == MARKED_END && c == '`')))
		return next(p, c, p->state);
	return ig_completion_give_up(p, p->state == MARKED_END ? x->call_end : x->call);
}

/* functions.NAME:0 to NAME */
static void strip_id(struct ig_strbuf *name)
{
	static const char prefix[] = "functions.";
	size_t n = sizeof prefix - 1, digits = name->len;

	while (digits && name->data[digits - 1] >= '0' && name->data[digits - 1] <= '9')
		digits--;
	if (digits > 1 && digits < name->len && name->data[digits - 1] == ':')
		name->len = digits - 1;
	if (name->len > n && !memcmp(name->data, prefix, n)) {
		name->len -= n;
		memmove(name->data, name->data + n, name->len);
	}
	name->data[name->len] = 0;
}

static bool step_name(struct ig_completion_parser *p, char c)
{
	const char *const texts[] = { p->format->marked->separator, NULL };
	int m;

	if (ig_completion_match(p, c, texts, &m)) {
		if (m == PARTIAL)
			return true;
		if (!p->name.len) {
			ig_completion_give_up(p, "a name");
			return true;
		}
		if (p->calls == IG_TOOL_CALLS_KIMI)
			strip_id(&p->name);
		p->name_ended = false;
		p->state = MARKED_SECOND;
		return true;
	}
	if (p->n_marker)
		return ig_completion_give_up(p, texts[0]);
	if (ig_completion_is_space(c)) {
		p->name_ended = p->name.len > 0;
		return next(p, c, MARKED_NAME);
	}
	if (p->name_ended || !ig_completion_is_name(c) || p->name.len == IG_COMPLETION_MAX_NAME)
		return ig_completion_give_up(p, texts[0]);
	ig_strbuf_add(&p->name, &c, 1);
	return next(p, c, MARKED_NAME);
}

/* The end of a call without arguments. */
static bool match_end(struct ig_completion_parser *p, char c, bool *matched)
{
	const char *const texts[] = { p->format->marked->call_end, NULL };
	int m;

	*matched = ig_completion_match(p, c, texts, &m);
	if (!*matched && p->n_marker)
		return ig_completion_give_up(p, "arguments");
	if (!*matched || m == PARTIAL)
		return true;
	p->has_name = true;
	ig_strbuf_puts(&p->args, "{}");
	ig_call_arguments_end(p);
	ig_call_end(p);
	p->state = MARKED_LIST;
	return true;
}

static bool step_second(struct ig_completion_parser *p, char c)
{
	bool matched, ok = match_end(p, c, &matched);

	if (matched || !ok)
		return ok;
	if (c == '{')
		return ig_json_arguments(p, c);
	if (ig_completion_is_space(c)) {
		if (c == '\n' && p->name_ended) /* the second name has ended */
			p->state = MARKED_FENCE;
		return next(p, c, p->state);
	}
	if (c == '`')
		return next(p, c, MARKED_FENCE);
	if (p->calls != IG_TOOL_CALLS_DEEPSEEK || !ig_completion_is_name(c) ||
	    p->name.len >= IG_COMPLETION_MAX_NAME)
		return ig_completion_give_up(p, "arguments");
	if (!p->has_members) /* the word before the separator was not the name */
		ig_completion_clear(p, &p->name);
	p->has_members = p->name_ended = true;
	ig_strbuf_add(&p->name, &c, 1);
	return next(p, c, MARKED_SECOND);
}

/* ```json */
static bool step_fence(struct ig_completion_parser *p, char c)
{
	bool matched, ok = match_end(p, c, &matched);

	if (matched || !ok)
		return ok;
	if (c == '{')
		return ig_json_arguments(p, c);
	if (ig_completion_is_space(c) || (c && strchr("`json", c)))
		return next(p, c, MARKED_FENCE);
	return ig_completion_give_up(p, "arguments");
}

bool ig_marked_step(struct ig_completion_parser *p, char c)
{
	switch (p->state) {
	case MARKED_NAME: return step_name(p, c);
	case MARKED_SECOND: return step_second(p, c);
	case MARKED_FENCE: return step_fence(p, c);
	default: return step_list(p, c);
	}
}
