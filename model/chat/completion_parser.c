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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_HELD (64 << 10) /* bytes held back; above, they are text */
#define MAX_MARKER 48	    /* longer than each marker */

struct ig_completion_parser *ig_completion_parser_create(const struct ig_completion_style *s,
							 bool with_calls,
							 const struct json_t *tools)
{
	struct ig_completion_parser *p = calloc(1, sizeof *p);
	bool harmony = s->calls == IG_TOOL_CALLS_HARMONY;

	if (!p)
		return NULL;
	/* Harmony's markers are also those of text and reasoning. */
	p->calls = with_calls || harmony ? s->calls : IG_TOOL_CALLS_NONE;
	p->with_calls = with_calls;
	p->format = &ig_tool_formats[p->calls];
	p->tools = tools;
	p->think = ig_think_texts[s->think].begin;
	p->think_end = ig_think_texts[s->think].end;
	p->may_think = !harmony && (s->reasoning || s->opens_reasoning);
	p->state = harmony ? HARMONY_START : s->opens_reasoning ? REASONING_BEGINS : OUTSIDE;
	return p;
}

void ig_completion_parser_destroy(struct ig_completion_parser *p)
{
	if (!p)
		return;
	ig_strbuf_finish(&p->held);
	ig_strbuf_finish(&p->name);
	ig_strbuf_finish(&p->args);
	ig_strbuf_finish(&p->param);
	ig_strbuf_finish(&p->value);
	ig_strbuf_finish(&p->tail);
	ig_strbuf_finish(&p->out);
	ig_strbuf_finish(&p->raw);
	free(p);
}

/* ---- events ------------------------------------------------------------------------- */

static bool is_well(const struct ig_completion_parser *p)
{
	return !p->no_memory && ig_strbuf_ok(&p->held) && ig_strbuf_ok(&p->name) &&
	       ig_strbuf_ok(&p->args) && ig_strbuf_ok(&p->param) && ig_strbuf_ok(&p->value) &&
	       ig_strbuf_ok(&p->tail) && ig_strbuf_ok(&p->out) && ig_strbuf_ok(&p->raw);
}

static void call_event(struct ig_completion_parser *p, enum ig_completion_event_kind kind,
		       const char *s, size_t len)
{
	if (is_well(p))
		p->event(p->ctx, &(struct ig_completion_event){
					 kind, s, len, ig_strbuf_text(&p->raw), p->raw.len });
	ig_completion_clear(p, &p->raw);
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
	if (!len)
		return;
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

void ig_completion_swallow(struct ig_completion_parser *p, const char *s, size_t len)
{
	if (p->out_kind != IG_COMPLETION_ARGUMENTS && len)
		flush(p); /* raw comes before an event's data */
	ig_strbuf_add(&p->raw, s, len);
}

void ig_completion_drop_held(struct ig_completion_parser *p)
{
	ig_completion_swallow(p, p->held.data, p->held.len);
	ig_completion_clear(p, &p->held);
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
	ig_completion_swallow(p, s, from);
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
	if (p->announced)
		ig_completion_swallow(p, &c, 1);
	else
		ig_strbuf_add(&p->held, &c, 1);
}

void ig_completion_note(struct ig_completion_parser *p, const char *expected)
{
	if (!p->problem[0] && (p->marked || p->announced))
		snprintf(p->problem, sizeof p->problem, "%s: expected %s at byte %zu",
			 p->format->name, expected, p->n_read);
}

const char *ig_completion_parser_problem(const struct ig_completion_parser *p)
{
	return p->problem[0] ? p->problem : NULL;
}

bool ig_completion_give_up(struct ig_completion_parser *p, const char *expected)
{
	ig_completion_note(p, expected);
	if (p->announced)
		ig_call_end(p);
	else
		ig_completion_become_text(p, false);
	return false;
}

/* ---- markers -------------------------------------------------------------------------- */

/* No marker contains its first character twice where text may follow a part of it: after a
 * mismatch, matching restarts at the mismatching character. */
bool ig_completion_match(struct ig_completion_parser *p, char c, const char *const *texts, int *m)
{
	size_t len = p->n_marker;

	*m = NO_MATCH;
	for (int i = 0; texts[i]; i++) {
		const char *text = texts[i];
		if (len && strncmp(p->held.data + p->held.len - len, text, len))
			continue;
		if (text[len] != c)
			continue;
		*m = text[len + 1] ? PARTIAL : i;
		if (*m == i)
			break;
	}
	if (*m == NO_MATCH)
		return false;
	ig_strbuf_add(&p->held, &c, 1);
	p->n_marker = *m == PARTIAL ? len + 1 : 0;
	if (*m != PARTIAL && p->announced)
		ig_completion_drop_held(p);
	return true;
}

/* ---- outside of tool calls ------------------------------------------------------------------- */

#define THINK_FOUND 0
#define THINK_END_FOUND 1
#define CLOSING_FOUND 2
#define BEGINS_FOUND 3

/* The markers that may be here, and what each means. */
static void find_markers(const struct ig_completion_parser *p, const char **texts, int *meanings)
{
	bool reasons = p->state == REASONING || p->state == REASONING_BEGINS;
	unsigned n = 0;

	if (p->may_think &&
	    (p->state == REASONING_BEGINS || (p->state == OUTSIDE && p->place == AT_START))) {
		texts[n] = p->think;
		meanings[n++] = THINK_FOUND;
	}
	if (reasons) {
		texts[n] = p->think_end;
		meanings[n++] = THINK_END_FOUND;
	} else {
		if (p->in_tag) {
			texts[n] = p->format->closing;
			meanings[n++] = CLOSING_FOUND;
		}
		for (int i = 0; p->format->begins[i]; i++) {
			texts[n] = p->format->begins[i];
			meanings[n++] = BEGINS_FOUND + i;
		}
	}
	texts[n] = NULL;
}

static void on_marker(struct ig_completion_parser *p, int meaning)
{
	switch (meaning) {
	case THINK_FOUND:
		p->may_think = false;
		p->state = REASONING_BEGINS;
		ig_completion_drop_held(p);
		break;
	case THINK_END_FOUND:
		p->state = OUTSIDE;
		p->place = AFTER_REASONING;
		ig_completion_drop_held(p);
		break;
	case CLOSING_FOUND:
		p->in_tag = false;
		ig_completion_drop_held(p);
		break;
	default:
		p->marked = true;
		ig_call_begin(p);
		p->format->opened(p, meaning - BEGINS_FOUND);
		break;
	}
}

/* Whether c belongs to a marker, or to a prefix of one. */
static bool step_marker(struct ig_completion_parser *p, char c)
{
	const char *texts[8];
	int meanings[8], m;

	find_markers(p, texts, meanings);
	if (!ig_completion_match(p, c, texts, &m))
		return false;
	if (m != PARTIAL)
		on_marker(p, meanings[m]);
	return true;
}

static bool step_reasoning(struct ig_completion_parser *p, char c)
{
	if (step_marker(p, c))
		return true;
	if (!p->n_marker && ig_completion_is_space(c)) {
		if (p->state == REASONING)
			ig_completion_hold(p, c);
		else
			ig_completion_swallow(p, &c, 1);
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
	if (p->calls == IG_TOOL_CALLS_LLAMA3)
		return c == ';';
	return p->calls == IG_TOOL_CALLS_HERMES && p->in_tag &&
	       c == '}'; /* a surplus brace before the closing tag */
}

static bool keep(struct ig_completion_parser *p, char c)
{
	ig_completion_hold(p, c);
	return true;
}

static bool step_outside(struct ig_completion_parser *p, char c)
{
	if (step_marker(p, c))
		return true;
	if (p->n_marker) {
		ig_completion_become_text(p, true);
		return false;
	}
	if (ig_completion_is_space(c) && (p->calls != IG_TOOL_CALLS_NONE || p->place != IN_TEXT))
		return keep(p, c);
	if (p->format->open_bare && p->place != IN_TEXT) {
		p->marked = false;
		if (p->format->open_bare(p, c))
			return true;
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
	if (p->state <= REASONING)
		return step_reasoning(p, c);
	if (p->state == OUTSIDE)
		return step_outside(p, c);
	if (p->state < MARKED_LIST)
		return ig_json_step(p, c);
	if (p->state < XML_LIST)
		return ig_marked_step(p, c);
	if (p->state < PYTHON_LIST)
		return ig_xml_step(p, c);
	if (p->state < HARMONY_START)
		return ig_literal_step(p, c);
	return ig_harmony_step(p, c);
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
		ig_completion_note(p, "a call within 64 KiB");
		ig_completion_become_text(p, true);
		if (p->calls == IG_TOOL_CALLS_HARMONY)
			p->state = HARMONY_START;
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

/* At the end: whether the held bytes only separate tool calls, or are a truncated marker that
 * ends them. */
static bool is_left_over(const struct ig_completion_parser *p)
{
	bool in_list = p->in_list && (p->state == LIST || p->state == LIST_BEGINS);
	bool closes = p->state == MARKED_LIST || p->state == MARKED_END || p->state == XML_LIST ||
		      p->state == PYTHON_CALL_ENDED;
	size_t n = p->held.len - p->n_marker;

	if (p->place == IN_TEXT || p->place == AT_START ||
	    (p->state != OUTSIDE && !in_list && !closes))
		return false;
	for (size_t i = 0; i < n; i++) {
		char c = p->held.data[i];
		if (!ig_completion_is_space(c) && !is_separator(p, c) && !(in_list && c == ',') &&
		    !(closes && strchr("`,", c)))
			return false;
	}
	return !p->n_marker || closes ||
	       (p->in_tag && !strncmp(p->held.data + n, p->format->closing, p->n_marker));
}

/* The completion ends within a call. */
static void finish_call(struct ig_completion_parser *p)
{
	if (p->state >= HARMONY_START)
		ig_harmony_finish(p);
	else if (p->state >= PYTHON_LIST)
		ig_literal_finish(p);
	else if (p->state >= XML_LIST)
		ig_xml_finish(p);
	if (p->announced && !p->args_ended)
		ig_completion_note(p, "more of the call's arguments");
	ig_call_end(p);
	ig_completion_drop_held(p);
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
		finish_call(p);
	} else if (p->state == REASONING || p->state == REASONING_BEGINS) {
		if (p->held.len)
			ig_completion_append(p, IG_COMPLETION_REASONING, p->held.data, p->held.len);
	} else if (p->state >= HARMONY_START) {
		ig_harmony_finish(p);
	} else if (!is_left_over(p)) {
		if (p->state > OUTSIDE)
			ig_completion_note(p, "the rest of a call");
		ig_completion_become_text(p, true);
	} else {
		ig_completion_drop_held(p);
	}
	ig_completion_clear(p, &p->held);
	flush(p);
	if (p->raw.len)
		call_event(p, IG_COMPLETION_MARKUP, "", 0);
}

int ig_completion_parser_feed(struct ig_completion_parser *p, const char *text, size_t len,
			      bool last,
			      void (*event)(void *ctx, const struct ig_completion_event *e),
			      void *ctx)
{
	p->event = event;
	p->ctx = ctx;
	for (size_t i = 0; i < len; i++) {
		p->n_read++;
		put_byte(p, (unsigned char)text[i]);
	}
	if (last)
		finish(p);
	flush(p);
	return is_well(p) ? 0 : -ENOMEM;
}
