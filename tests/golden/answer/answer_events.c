/*
 * answer_events.c: completions to events for answers.py.  A JSON list of cases on standard
 * input, each {"template": text, "tools": […], "answers": [text …]}; on standard output a line for each,
 * {"style": "hermes reasoning …", "events": [[[kind, data] …] …]} or {"error": …}.
 */
#include "base/strbuf.h"
#include "model/chat/completion.h"
#include "tiny_gguf.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Neighbours of one kind are joined: the pieces are of 3 bytes. */
#define PIECE 3

static struct ig_tokenizer *tokenizer;

static void die(const char *why)
{
	fprintf(stderr, "answer_events: %s\n", why);
	exit(2);
}

static void open_tokenizer(void)
{
	struct ig_error err;
	struct ig_checkpoint *g;
	struct gw w;

	tiny_file(&w, &(struct tiny_options){ .model = "gpt2", .pre = "smollm" });
	if (ig_checkpoint_open_memory(w.data, w.len, "tiny", &g, &err) ||
	    ig_tokenizer_open(g, &tokenizer, &err))
		die(err.text);
	ig_checkpoint_close(g);
	gw_finish(&w);
}

static void add_event(void *ctx, const struct ig_completion_event *e)
{
	static const char *const kinds[] = { "text", "reasoning", "call", "arguments", "end" };
	json_t *list = ctx, *last = json_array_get(list, json_array_size(list) - 1);
	const char *kind;

	if (e->kind == IG_COMPLETION_MARKUP)
		return;
	kind = kinds[e->kind];

	if (last && e->kind != IG_COMPLETION_TOOL_CALL &&
	    !strcmp(json_string_value(json_array_get(last, 0)), kind)) {
		json_t *data = json_array_get(last, 1);
		struct ig_strbuf b = { 0 };
		ig_strbuf_add(&b, json_string_value(data), json_string_length(data));
		ig_strbuf_add(&b, e->data, e->len);
		if (!ig_strbuf_ok(&b) || json_string_setn(data, b.data, b.len))
			die("no memory");
		ig_strbuf_finish(&b);
	} else if (json_array_append_new(list, json_pack("[s, s%]", kind, e->data, e->len))) {
		die("no memory");
	}
}

static json_t *parse(const struct ig_completion_style *s, const json_t *tools, const json_t *answer)
{
	struct ig_completion_parser *p = ig_completion_parser_create(s, true, tools);
	const char *text = json_string_value(answer);
	size_t len = json_string_length(answer), n;
	json_t *list = json_array();

	if (!p || !list || !text)
		die("no memory, or an answer that is no text");
	for (size_t at = 0; at < len || !len; at += n) {
		n = len - at < PIECE ? len - at : PIECE;
		if (ig_completion_parser_feed(p, text + at, n, at + n == len, add_event, list))
			die("no memory");
		if (!len)
			break;
	}
	ig_completion_parser_destroy(p);
	return list;
}

static json_t *answer_case(const json_t *one)
{
	const json_t *template = json_object_get(one, "template"), *answer;
	json_t *lists = json_array(), *result;
	struct ig_completion_style s;
	struct ig_chat_template *c;
	struct ig_error err = { 0 };
	struct ig_checkpoint *g;
	char style[64];
	struct gw w;
	size_t i;

	gw_init(&w);
	gw_key(&w, "tokenizer.chat_template", GW_STRING);
	gw_string(&w, json_string_value(template), json_string_length(template));
	if (ig_checkpoint_open_memory(w.data, w.len, "case", &g, &err))
		die(err.text);
	if (ig_chat_template_open(g, tokenizer, &c, &err)) {
		json_decref(lists);
		result = json_pack("{s:s}", "error", err.text);
	} else {
		ig_completion_style_of(c, &s);
		snprintf(style, sizeof style, "%s%s%s%s%s", ig_tool_format_name(s.calls),
			 s.compact ? " compact" : "", s.think == IG_THINK_TAG ? "" : " think",
			 s.reasoning ? " reasoning" : "", s.opens_reasoning ? " opens" : "");
		json_array_foreach(json_object_get(one, "answers"), i, answer)
			json_array_append_new(lists,
					      parse(&s, json_object_get(one, "tools"), answer));
		result = json_pack("{s:s, s:o}", "style", style, "events", lists);
		ig_chat_template_close(c);
	}
	ig_checkpoint_close(g);
	gw_finish(&w);
	return result;
}

int main(void)
{
	json_error_t err;
	json_t *cases = json_loadf(stdin, JSON_ALLOW_NUL, &err), *one;
	size_t i;

	if (!cases)
		die(err.text);
	open_tokenizer();
	json_array_foreach(cases, i, one)
	{
		json_t *result = answer_case(one);
		if (!result || json_dumpf(result, stdout, JSON_COMPACT))
			die("no memory");
		putchar('\n');
		json_decref(result);
	}
	json_decref(cases);
	ig_tokenizer_close(tokenizer);
	return 0;
}
