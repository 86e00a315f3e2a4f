/*
 * completion_parser.c: turns pieces of a model's completion into events.  A state machine processes
 * one byte at a time, so that no event depends on where the completion was cut.  Undecided bytes
 * are in held, as they were written: white space that a marker may follow, a prefix of a marker, an
 * object that may become a tool call.  They become text, or are dropped once the tool call is
 * announced.
 */
#include "model/chat/completion_private.h"

#include "base/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_HELD (64 << 10) /* bytes held back; above, they are text */
#define MAX_MARKER 16	    /* longer than each marker */

/* No marker contains its first character twice: after a mismatch, matching restarts at the
 * mismatching character. */
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

struct ig_completion_parser *ig_completion_parser_create(const struct ig_completion_style *s,
							 bool with_calls)
{
	struct ig_completion_parser *p = calloc(1, sizeof *p);

	if (!p)
		return NULL;
	p->format = with_calls ? s->calls : IG_TOOL_CALLS_NONE;
	p->may_think = s->reasoning || s->opens_reasoning;
	p->state = s->opens_reasoning ? REASONING_BEGINS : OUTSIDE;
	return p;
}

void ig_completion_parser_destroy(struct ig_completion_parser *p)
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

static bool is_well(const struct ig_completion_parser *p)
{
	return !p->no_memory && ig_strbuf_ok(&p->held) && ig_strbuf_ok(&p->name) &&
	       ig_strbuf_ok(&p->args) && ig_strbuf_ok(&p->out);
}

static void call_event(struct ig_completion_parser *p, enum ig_completion_event_kind kind,
		       const char *s, size_t len)
{
	if (is_well(p))
		p->event(p->ctx, &(struct ig_completion_event){ kind, s, len });
}

static void flush(struct ig_completion_parser *p)
{
	if (p->out.len)
		call_event(p, p->out_kind, p->out.data, p->out.len);
	ig_completion_clear(p, &p->out);
}

void ig_completion_append(struct ig_completion_parser *p, enum ig_completion_event_kind kind,
			  const char *s, size_t len)
{
	if (p->out_kind != kind)
		flush(p);
	p->out_kind = kind;
	ig_strbuf_add(&p->out, s, len);
}

void ig_completion_send(struct ig_completion_parser *p, enum ig_completion_event_kind kind,
			const char *s, size_t len)
{
	flush(p);
	call_event(p, kind, s, len);
}

/* ---- what is held back ---------------------------------------------------------------- */

/* White space next to reasoning or a tool call is dropped. */
void ig_completion_become_text(struct ig_completion_parser *p, bool whole)
{
	const char *s = p->held.data;
	size_t len = p->held.len, from = 0;

	for (size_t i = 0; i < len && ig_completion_is_space(s[i]); i++) {
		if (p->place == AFTER_REASONING && s[i] == '\n')
			from = i + 1; /* keeps the indentation of the first line */
		if (p->place == AFTER_CALL && !p->had_text)
			from = i + 1;
	}
	while (!whole && len > from && ig_completion_is_space(s[len - 1]))
		len--;
	if (from < len)
		ig_completion_append(p, IG_COMPLETION_TEXT, s + from, len - from);
	if (len < p->held.len)
		memmove(p->held.data, s + len, p->held.len - len);
	p->held.len -= len;
	p->n_marker = 0;
	p->state = OUTSIDE;
	p->place = IN_TEXT;
	p->had_text = true;
	p->in_list = p->in_tag = false;
}

void ig_completion_hold(struct ig_completion_parser *p, char c)
{
	if (!p->announced)
		ig_strbuf_add(&p->held, &c, 1);
}

static unsigned find_markers(const struct ig_completion_parser *p, enum marker *m)
{
	unsigned n = 0;

	switch (p->state) {
	case REASONING_BEGINS:
		if (p->may_think)
			m[n++] = THINK;
		m[n++] = THINK_END;
		break;
	case REASONING: m[n++] = THINK_END; break;
	case NAME:
	case NAME_ENDED:
		m[n++] = CALL_ID;
		m[n++] = ARGS;
		break;
	case ID: m[n++] = ARGS; break;
	case OUTSIDE:
		if (p->may_think && p->place == AT_START)
			m[n++] = THINK;
		if (p->in_tag)
			m[n++] = CALL_TAG_END;
		if (p->format == IG_TOOL_CALLS_HERMES)
			m[n++] = CALL_TAG;
		else if (p->format == IG_TOOL_CALLS_LLAMA3)
			m[n++] = PYTHON_TAG;
		else if (p->format == IG_TOOL_CALLS_MISTRAL)
			m[n++] = CALLS;
		break;
	default: break;
	}
	return n;
}

/* The marker that c completes here, PARTIAL if it continues one, or NO_MATCH. */
static int match(const struct ig_completion_parser *p, char c)
{
	enum marker m[N_MARKERS];
	unsigned n = find_markers(p, m);
	int found = NO_MATCH;

	for (unsigned i = 0; i < n; i++) {
		const char *text = marker_texts[m[i]];
		size_t len = p->n_marker;

		if (len && strncmp(p->held.data + p->held.len - len, text, len))
			continue;
		if (text[len] != c)
			continue;
		if (!text[len + 1])
			return (int)m[i];
		found = PARTIAL;
	}
	return found;
}

bool ig_completion_match_marker(struct ig_completion_parser *p, char c, int *m)
{
	*m = match(p, c);
	if (*m == NO_MATCH)
		return false;
	ig_completion_hold(p, c);
	p->n_marker = *m == PARTIAL ? p->n_marker + 1 : 0;
	return true;
}

/* ---- outside of tool calls ------------------------------------------------------------------- */

static void on_marker(struct ig_completion_parser *p, int m)
{
	switch (m) {
	case THINK:
		p->may_think = false;
		p->state = REASONING_BEGINS;
		ig_completion_clear(p, &p->held);
		break;
	case THINK_END:
		p->state = OUTSIDE;
		p->place = AFTER_REASONING;
		ig_completion_clear(p, &p->held);
		break;
	case CALL_TAG_END:
		p->in_tag = false;
		ig_completion_clear(p, &p->held);
		break;
	default:
		p->marked = true;
		p->state = OPENED;
		break;
	}
}

static bool step_reasoning(struct ig_completion_parser *p, char c)
{
	int m;

	if (ig_completion_match_marker(p, c, &m)) {
		if (m != PARTIAL)
			on_marker(p, m);
		return true;
	}
	if (!p->n_marker && ig_completion_is_space(c)) {
		if (p->state == REASONING)
			ig_completion_hold(p, c);
		return true;
	}
	if (p->held.len)
		ig_completion_append(p, IG_COMPLETION_REASONING, p->held.data, p->held.len);
	ig_completion_clear(p, &p->held);
	p->state = REASONING;
	if (p->n_marker) {
		p->n_marker = 0;
		return false;
	}
	ig_completion_append(p, IG_COMPLETION_REASONING, &c, 1);
	return true;
}

/* Between tool calls; dropped if another one follows. */
static bool is_separator(const struct ig_completion_parser *p, char c)
{
	if (p->place != AFTER_CALL)
		return false;
	if (p->format == IG_TOOL_CALLS_LLAMA3)
		return c == ';';
	return p->in_tag && c == '}'; /* a surplus brace before the closing tag */
}

static bool keep(struct ig_completion_parser *p, char c)
{
	ig_completion_hold(p, c);
	return true;
}

static bool step_outside(struct ig_completion_parser *p, char c)
{
	int m;

	if (ig_completion_match_marker(p, c, &m)) {
		if (m != PARTIAL)
			on_marker(p, m);
		return true;
	}
	if (p->n_marker) {
		ig_completion_become_text(p, true);
		return false;
	}
	if (ig_completion_is_space(c) && (p->format != IG_TOOL_CALLS_NONE || p->place != IN_TEXT))
		return keep(p, c);
	if (c == '{' && p->format == IG_TOOL_CALLS_LLAMA3 && p->place != IN_TEXT) {
		p->marked = false;
		return ig_completion_tool_call_begin(p, c);
	}
	if (is_separator(p, c))
		return keep(p, c);
	if (p->held.len || p->place != IN_TEXT)
		ig_completion_become_text(p, true);
	ig_completion_append(p, IG_COMPLETION_TEXT, &c, 1);
	return true;
}

static bool step(struct ig_completion_parser *p, char c)
{
	switch (p->state) {
	case REASONING_BEGINS:
	case REASONING: return step_reasoning(p, c);
	case OUTSIDE: return step_outside(p, c);
	default: return ig_completion_tool_call_step(p, c);
	}
}

/* ---- feeding ------------------------------------------------------------------------------ */

/* Too many bytes are held: emit them, except a prefix of a marker at their end. */
static void overflow(struct ig_completion_parser *p)
{
	bool reasons = p->state == REASONING || p->state == REASONING_BEGINS;
	size_t n = reasons || p->state == OUTSIDE ? p->n_marker : 0;
	char marker[MAX_MARKER];

	memcpy(marker, p->held.data + p->held.len - n, n);
	p->held.len -= n;
	if (reasons) {
		ig_completion_append(p, IG_COMPLETION_REASONING, p->held.data, p->held.len);
		ig_completion_clear(p, &p->held);
	} else {
		ig_completion_become_text(p, true);
	}
	ig_strbuf_add(&p->held, marker, n);
	p->n_marker = n;
}

static void put(struct ig_completion_parser *p, const unsigned char *s, size_t len)
{
	for (size_t i = 0; i < len && is_well(p); i++) {
		while (!step(p, (char)s[i]))
			;
		if (p->held.len > MAX_HELD)
			overflow(p);
	}
}

static void put_broken(struct ig_completion_parser *p)
{
	put(p, (const unsigned char *)"\xef\xbf\xbd", 3);
}

/* Pass on whole characters only. */
static void put_byte(struct ig_completion_parser *p, unsigned char c)
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

/* At the end: whether the held bytes only separate tool calls, or are a truncated closing tag. */
static bool is_left_over(const struct ig_completion_parser *p)
{
	bool in_list = p->state == LIST || p->state == LIST_BEGINS;
	size_t n = p->held.len - p->n_marker;

	if (p->place == IN_TEXT || p->place == AT_START || (p->state != OUTSIDE && !in_list))
		return false;
	for (size_t i = 0; i < n; i++) {
		char c = p->held.data[i];
		if (!ig_completion_is_space(c) && !is_separator(p, c) && !(in_list && c == ','))
			return false;
	}
	return !p->n_marker ||
	       (p->in_tag && !strncmp(p->held.data + n, marker_texts[CALL_TAG_END], p->n_marker));
}

/* The end of the completion. */
static void finish(struct ig_completion_parser *p)
{
	if (p->n_rest)
		put_broken(p);
	p->n_rest = 0;
	if (!is_well(p))
		return;
	if (p->announced) {
		ig_completion_tool_call_end(p);
	} else if (p->state == REASONING || p->state == REASONING_BEGINS) {
		if (p->held.len)
			ig_completion_append(p, IG_COMPLETION_REASONING, p->held.data, p->held.len);
	} else if (!is_left_over(p)) {
		ig_completion_become_text(p, true);
	}
	ig_completion_clear(p, &p->held);
}

int ig_completion_parser_feed(struct ig_completion_parser *p, const char *text, size_t len,
			      bool last,
			      void (*event)(void *ctx, const struct ig_completion_event *e),
			      void *ctx)
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
