/* tool_events.h: what a parser of completions makes of a text, for the tests of the formats of tool
 * calls. */
#pragma once

#include "base/json.h"
#include "base/utf8.h"
#include "model/chat/completion.h"

#include <stdlib.h>
#include <string.h>

static const char tools_text[] =
	"[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": "
	"\"object\", \"$defs\": {\"t\": {\"type\": \"string\"}}, \"properties\": {\"s\": {\"type\": "
	"\"string\"}, \"r\": {\"$ref\": \"#/$defs/t\"}, \"n\": {\"type\": \"integer\"}, \"u\": "
	"{\"anyOf\": [{\"type\": \"string\"}, {\"type\": \"null\"}]}, \"b\": {\"type\": "
	"[\"boolean\", \"null\"]}, \"e\": {\"enum\": [\"1\", \"2\"]}, \"o\": {\"type\": \"object\"}}}}},"
	" {\"type\": \"function\", \"function\": {\"name\": \"g\"}}]";
static json_t *tools;

#define KB "<|tool_calls_section_begin|>"
#define KC(id, args)                                                                               \
	"<|tool_call_begin|>" id "<|tool_call_argument_begin|>" args "<|tool_call_end|>"
#define KE "<|tool_calls_section_end|>"
#define DB "<｜tool▁calls▁begin｜>"
#define DC "<｜tool▁call▁begin｜>"
#define DSEP "<｜tool▁sep｜>"
#define DCE "<｜tool▁call▁end｜>"
#define DE "<｜tool▁calls▁end｜>"

/* ---- events ------------------------------------------------------------------------------------ */

struct seen {
	struct ig_strbuf text, whole;
	int kind;
	bool in_call;
	json_t *calls; /* [name, arguments] */
};

static void on_event(void *ctx, const struct ig_completion_event *e)
{
	struct seen *s = ctx;
	bool of_call = e->kind == IG_COMPLETION_ARGUMENTS || e->kind == IG_COMPLETION_TOOL_CALL_END;

	ig_strbuf_add(&s->whole, e->raw, e->raw_len);
	if (e->kind == IG_COMPLETION_TEXT || e->kind == IG_COMPLETION_REASONING)
		ig_strbuf_add(&s->whole, e->data, e->len);
	if (e->kind == IG_COMPLETION_MARKUP)
		return;
	assert_int_equal(of_call, s->in_call);
	assert_true(ig_utf8_valid(e->data, e->len));
	s->in_call = e->kind == IG_COMPLETION_TOOL_CALL || e->kind == IG_COMPLETION_ARGUMENTS;
	if (s->kind != (int)e->kind || e->kind == IG_COMPLETION_TOOL_CALL) {
		if (s->kind >= 0 && s->kind != IG_COMPLETION_TOOL_CALL_END)
			ig_strbuf_puts(&s->text, "}");
		ig_strbuf_printf(&s->text, "%c", "TRCAE"[e->kind]);
		if (e->kind != IG_COMPLETION_TOOL_CALL_END)
			ig_strbuf_puts(&s->text, "{");
	}
	ig_strbuf_add(&s->text, e->data, e->len);
	s->kind = (int)e->kind;
	json_t *last = json_array_get(s->calls, json_array_size(s->calls) - 1);
	if (e->kind == IG_COMPLETION_TOOL_CALL)
		json_array_append_new(s->calls, json_pack("[s%, s]", e->data, e->len, ""));
	if (e->kind == IG_COMPLETION_ARGUMENTS) {
		struct ig_strbuf b = { 0 };
		ig_strbuf_puts(&b, json_string_value(json_array_get(last, 1)));
		ig_strbuf_add(&b, e->data, e->len);
		json_array_set_new(last, 1, json_string(b.data));
		ig_strbuf_finish(&b);
	}
}

static void finish(struct seen *s)
{
	ig_strbuf_finish(&s->text);
	ig_strbuf_finish(&s->whole);
	json_decref(s->calls);
}

/* step: bytes of a piece; 0: cut once, at cut. */
static void parse(const struct ig_completion_style *style, const char *text, size_t len,
		  size_t step, size_t cut, struct seen *s, char problem[160])
{
	struct ig_completion_parser *p = ig_completion_parser_create(style, true, tools);

	*s = (struct seen){ .kind = -1, .calls = json_array() };
	assert_non_null(p);
	for (size_t at = 0, n; at < len; at += n) {
		n = step ? step : at < cut ? cut - at : len - at;
		n = n < len - at ? n : len - at;
		char *piece = malloc(n ? n : 1);
		memcpy(piece, text + at, n);
		assert_int_equal(ig_completion_parser_feed(p, piece, n, false, on_event, s), 0);
		free(piece);
	}
	assert_int_equal(ig_completion_parser_feed(p, NULL, 0, true, on_event, s), 0);
	assert_false(s->in_call);
	if (s->kind >= 0 && s->kind != IG_COMPLETION_TOOL_CALL_END)
		ig_strbuf_puts(&s->text, "}");
	snprintf(problem, 160, "%s",
		 ig_completion_parser_problem(p) ? ig_completion_parser_problem(p) : "");
	ig_completion_parser_destroy(p);
}

static int set_up(void **state)
{
	tools = json_loads(tools_text, 0, NULL);
	return tools ? 0 : -1;
}

static int tear_down(void **state)
{
	json_decref(tools);
	return 0;
}

/* ---- random numbers -------------------------------------------------------------------------- */

static uint64_t seed = 88172645463325252u;

static size_t draw(size_t n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (size_t)(seed % n);
}
