/*
 * call_harmony.c: gpt-oss' format.  A completion is a list of messages; the header of each has a
 * channel (analysis is reasoning, final and commentary are text) and may have a recipient, which
 * makes it a call:
 *
 *     <|channel|>commentary to=functions.f <|constrain|>json<|message|>{…}<|call|>
 *
 * The prompt ends within the first header, after <|start|>assistant.
 */
#include "model/chat/completion_private.h"

#include <string.h>

#define MAX_HEADER 2048
#define CHANNEL "<|channel|>"
#define FUNCTIONS "functions."

static const char *const ends[] = { "<|end|>", "<|call|>", "<|return|>", "<|start|>", NULL };
#define START_FOUND 3

/* What is held belongs to a message without a header. */
static bool become_text(struct ig_completion_parser *p)
{
	if (p->held.len)
		ig_completion_append(p, IG_COMPLETION_TEXT, p->held.data, p->held.len);
	ig_completion_clear(p, &p->held);
	p->n_marker = 0;
	p->body = IG_COMPLETION_TEXT;
	p->state = HARMONY_BODY;
	return false;
}

static bool step_start(struct ig_completion_parser *p, char c)
{
	static const char *const texts[] = { CHANNEL, "<|message|>", "<|start|>", "<|constrain|>",
					     " to=",  "to=",	     NULL };
	static const char *const later[] = { "<|start|>", CHANNEL, NULL };
	int m;

	if (ig_completion_match(p, c, p->place == AT_START ? texts : later, &m)) {
		if (m == PARTIAL)
			return true;
		p->marked = true;
		if (p->place == AT_START && m == 1) { /* without a header */
			ig_completion_drop_held(p);
			return become_text(p), true;
		}
		p->state = HARMONY_HEADER;
		return true;
	}
	if (!p->n_marker && p->place != AT_START && ig_completion_is_space(c)) {
		ig_completion_hold(p, c);
		return true;
	}
	return become_text(p);
}

/* The end of a word of the header. */
static size_t word_end(const char *s, size_t len, size_t at)
{
	while (at < len && !ig_completion_is_space(s[at]) && s[at] != '<')
		at++;
	return at;
}

static const char *find(const char *s, size_t len, const char *what, size_t *n)
{
	const char *at = memmem(s, len, what, strlen(what));

	if (!at)
		return NULL;
	at += strlen(what);
	*n = word_end(s, len, (size_t)(at - s)) - (size_t)(at - s);
	return at;
}

static void begin_call(struct ig_completion_parser *p, const char *name, size_t n)
{
	size_t prefix = strlen(FUNCTIONS);

	ig_call_begin(p);
	if (n > prefix && !memcmp(name, FUNCTIONS, prefix)) {
		name += prefix;
		n -= prefix;
	}
	ig_strbuf_add(&p->name, name, n);
	p->has_name = p->in_list = true;
	p->list_state = HARMONY_END;
	p->n_header = p->held.len;
	p->state = HARMONY_CALL;
}

/* A recipient that is not a tool: the user, or the model itself. */
static bool is_anyone(const char *to, size_t n)
{
	return !n || (n == 3 && !memcmp(to, "all", n)) || (n == 9 && !memcmp(to, "assistant", n));
}

/* <|message|> was read: held is the whole header. */
static void on_message(struct ig_completion_parser *p)
{
	size_t n_to = 0, n_channel = 0;
	const char *to = find(p->held.data, p->held.len, "to=", &n_to);
	const char *channel = find(p->held.data, p->held.len, CHANNEL, &n_channel);

	if (to && is_anyone(to, n_to))
		to = NULL;
	if (to && p->with_calls && n_to <= IG_COMPLETION_MAX_NAME) {
		begin_call(p, to, n_to);
		return;
	}
	if (to) { /* there are no tools */
		become_text(p);
		return;
	}
	p->body = channel && n_channel == 8 && !memcmp(channel, "analysis", 8) ?
			  IG_COMPLETION_REASONING :
			  IG_COMPLETION_TEXT;
	p->state = HARMONY_BODY;
	ig_completion_drop_held(p);
}

static bool step_header(struct ig_completion_parser *p, char c)
{
	static const char *const texts[] = { "<|message|>", NULL };
	int m;

	if (ig_completion_match(p, c, texts, &m)) {
		if (m != PARTIAL)
			on_message(p);
		return true;
	}
	if (p->n_marker) { /* of another marker: it stays held */
		p->n_marker = 0;
		return false;
	}
	/* A line may end a header, but not go on. */
	bool next_line =
		p->held.len && p->held.data[p->held.len - 1] == '\n' && !ig_completion_is_space(c);
	if (next_line || p->held.len > MAX_HEADER) {
		ig_completion_note(p, texts[0]);
		return become_text(p);
	}
	ig_completion_hold(p, c);
	return true;
}

/* A message has ended. */
static void on_end(struct ig_completion_parser *p, int m)
{
	p->in_list = false;
	if (p->place == AT_START)
		p->place = AFTER_REASONING;
	p->state = m == START_FOUND ? HARMONY_HEADER : HARMONY_START;
	if (m != START_FOUND)
		ig_completion_drop_held(p);
}

static bool step_body(struct ig_completion_parser *p, char c)
{
	int m;

	if (ig_completion_match(p, c, ends, &m)) {
		if (m != PARTIAL) {
			if (p->announced)
				ig_call_end(p);
			on_end(p, m);
		}
		return true;
	}
	if (p->n_marker) {
		ig_completion_append(p, p->body, p->held.data, p->held.len);
		if (p->announced)
			ig_completion_drop_held(p);
		else
			ig_completion_clear(p, &p->held);
		p->n_marker = 0;
		return false;
	}
	if (p->announced)
		ig_completion_swallow(p, &c, 1);
	ig_completion_append(p, p->body, &c, 1);
	return true;
}

/* A call whose arguments are no object: what is held after the header belongs to them. */
static void announce_text(struct ig_completion_parser *p)
{
	ig_strbuf_add(&p->args, p->held.data + p->n_header, p->held.len - p->n_header);
	ig_call_announce(p);
}

/* Before the arguments: JSON, or any text for a tool that takes that. */
static bool step_call(struct ig_completion_parser *p, char c)
{
	int m;

	if (ig_completion_match(p, c, ends, &m)) {
		if (m == PARTIAL)
			return true;
		ig_strbuf_puts(&p->args, "{}");
		ig_call_arguments_end(p);
		ig_call_end(p);
		on_end(p, m);
		return true;
	}
	if (!p->n_marker && ig_completion_is_space(c)) {
		ig_completion_hold(p, c);
		return true;
	}
	if (!p->n_marker && c == '{')
		return ig_json_arguments(p, c);
	announce_text(p);
	p->body = IG_COMPLETION_ARGUMENTS;
	p->state = HARMONY_BODY;
	return false;
}

/* After the arguments. */
static bool step_end(struct ig_completion_parser *p, char c)
{
	int m;

	if (ig_completion_match(p, c, ends, &m)) {
		if (m != PARTIAL)
			on_end(p, m);
		return true;
	}
	if (!p->n_marker && ig_completion_is_space(c)) {
		ig_completion_hold(p, c);
		return true;
	}
	p->in_list = false;
	return become_text(p);
}

void ig_harmony_finish(struct ig_completion_parser *p)
{
	switch (p->state) {
	case HARMONY_BODY:
		ig_completion_append(p, p->body, p->held.data, p->held.len);
		if (!p->announced)
			ig_completion_clear(p, &p->held);
		break;
	case HARMONY_END: ig_completion_drop_held(p); break;
	case HARMONY_CALL: /* it has a name, and nothing else */
		ig_completion_note(p, "arguments");
		announce_text(p);
		ig_call_end(p);
		break;
	case HARMONY_HEADER:
		ig_completion_note(p, "<|message|>");
		if (memmem(p->held.data, p->held.len, "<|", 2))
			ig_completion_drop_held(p); /* no text was begun */
		else
			become_text(p);
		break;
	default:
		if (p->place == AT_START)
			become_text(p);
		else
			ig_completion_drop_held(p);
	}
}

bool ig_harmony_step(struct ig_completion_parser *p, char c)
{
	switch (p->state) {
	case HARMONY_START: return step_start(p, c);
	case HARMONY_HEADER: return step_header(p, c);
	case HARMONY_BODY: return step_body(p, c);
	case HARMONY_CALL: return step_call(p, c);
	default: return step_end(p, c);
	}
}
