/*
 * chat_tokens.c: conversations to ids, and ids of completions to events, for harmony.py and mistral.py.
 *
 *   chat_tokens VOCABULARY
 *
 * VOCABULARY is a GGUF file or a folder.  Each line of standard input is a case, and gets a line:
 *   {"text", "special"}                                     {"ids"}
 *   {"template", "messages", "tools", "vars", "prompt",
 *    "bos", "now"}                                          {"ids"} or {"error"}
 *   {"template", "tools", "completion": ids}                {"style", "events": [[kind, data] …], "problem"}
 * "template" may be left out where it is that of the case before.
 */
#include "base/json.h"
#include "base/strbuf.h"
#include "model/chat/completion.h"
#include "model/tokenizer/detokenizer.h"
#include "tests/golden/tokenizer/vocabulary.h"
#include "tiny_gguf.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_IDS (1u << 20)
#define MAX_SHOWN 32

static struct vocabulary vocabulary;
static struct ig_chat_template *chat; /* of the last case with a template */

static void die(const char *why)
{
	fprintf(stderr, "chat_tokens: %s\n", why);
	exit(2);
}

/* ---- templates -------------------------------------------------------------------------- */

static void string_key(struct gw *w, const char *key, const json_t *value)
{
	gw_key(w, key, GW_STRING);
	gw_string(w, json_string_value(value), json_string_length(value));
}

static void token_key(struct gw *w, const char *key, int32_t id)
{
	if (id >= 0)
		gw_u32(w, key, (uint32_t)id);
}

static void open_template(const json_t *source)
{
	struct ig_checkpoint *g;
	struct ig_error err = { 0 };
	struct gw w;

	ig_chat_template_close(chat);
	gw_init(&w);
	string_key(&w, "tokenizer.chat_template", source);
	token_key(&w, "tokenizer.ggml.bos_token_id", ig_tokenizer_bos(vocabulary.tokenizer));
	token_key(&w, "tokenizer.ggml.eos_token_id",
		  ig_tokenizer_find_special(vocabulary.tokenizer, "</s>"));
	if (ig_checkpoint_open_memory(w.data, w.len, "case", &g, &err) ||
	    ig_chat_template_open(g, vocabulary.tokenizer, &chat, &err))
		die(err.text);
	ig_checkpoint_close(g);
	gw_finish(&w);
}

/* ---- to ids ----------------------------------------------------------------------------- */

static json_t *id_list(struct ig_ids *l)
{
	json_t *list = json_array();

	for (size_t i = 0; i < l->n; i++)
		if (json_array_append_new(list, json_integer(l->ids[i])))
			die("no memory");
	ig_ids_finish(l);
	return json_pack("{s:o}", "ids", list);
}

static json_t *text_case(const json_t *one)
{
	const json_t *text = json_object_get(one, "text");
	struct ig_ids l = { 0 };

	if (ig_tokenizer_encode(vocabulary.tokenizer, json_string_value(text),
				json_string_length(text),
				json_is_true(json_object_get(one, "special")), MAX_IDS, &l))
		die("a text can't be encoded");
	return id_list(&l);
}

/* As the daemon: with the ids that the format's model expects. */
static json_t *conversation_case(const json_t *one)
{
	struct ig_completion_style style;
	struct ig_error err = { 0 };
	struct ig_ids l = { 0 };
	json_t *messages = json_copy(json_object_get(one, "messages"));
	const json_t *tools = json_object_get(one, "tools");
	struct ig_chat_input in = {
		.messages = messages,
		.tools = json_is_array(tools) ? tools : NULL,
		.extra = json_object_get(one, "vars"),
		.add_generation_prompt = json_is_true(json_object_get(one, "prompt")),
		.now_s = json_integer_value(json_object_get(one, "now")),
	};
	int rc;

	ig_completion_style_of(chat, &style);
	if (!messages || ig_tool_ids(style.calls, messages))
		die("no memory");
	rc = ig_chat_template_encode_json(chat, &in, MAX_IDS, &l, &err);
	json_decref(messages);
	return rc ? json_pack("{s:s}", "error", err.text) : id_list(&l);
}

/* ---- from ids --------------------------------------------------------------------------- */

/* Neighbours of one kind are joined. */
static void add_event(void *ctx, const struct ig_completion_event *e)
{
	static const char *const kinds[] = { "text", "reasoning", "call", "arguments", "end" };
	json_t *list = ctx, *last = json_array_get(list, json_array_size(list) - 1);
	struct ig_strbuf b = { 0 };

	if (e->kind == IG_COMPLETION_MARKUP)
		return;
	if (last && e->kind != IG_COMPLETION_TOOL_CALL &&
	    !strcmp(json_string_value(json_array_get(last, 0)), kinds[e->kind])) {
		json_t *data = json_array_get(last, 1);
		ig_strbuf_add(&b, json_string_value(data), json_string_length(data));
		json_array_remove(list, json_array_size(list) - 1);
	}
	ig_strbuf_add(&b, e->data, e->len);
	if (!ig_strbuf_ok(&b) ||
	    json_array_append_new(
		    list, json_pack("[s, s%]", kinds[e->kind], b.data ? b.data : "", b.len)))
		die("no memory");
	ig_strbuf_finish(&b);
}

static void feed(struct ig_completion_parser *p, const char *text, size_t len, bool last,
		 json_t *list)
{
	if (ig_completion_parser_feed(p, text, len, last, add_event, list))
		die("no memory");
}

static json_t *completion_case(const json_t *one)
{
	const struct ig_tokenizer *t = vocabulary.tokenizer;
	const json_t *tools = json_object_get(one, "tools"), *id;
	struct ig_completion_style style;
	struct ig_completion_parser *p;
	struct ig_detokenizer d;
	int32_t shown[MAX_SHOWN];
	json_t *list = json_array(), *result;
	char *piece = malloc(ig_detokenizer_max(t)), rest[16];
	size_t i;

	ig_completion_style_of(chat, &style);
	p = ig_completion_parser_create(&style, json_is_array(tools),
					json_is_array(tools) ? tools : NULL);
	if (!piece || !list || !p)
		die("no memory");
	ig_detokenizer_init(&d, t);
	ig_detokenizer_show(&d, shown,
			    (unsigned)ig_completion_shown_tokens(&style, t, shown, MAX_SHOWN));
	json_array_foreach(json_object_get(one, "completion"), i, id)
		feed(p, piece, ig_detokenizer_put(&d, (int32_t)json_integer_value(id), piece),
		     false, list);
	feed(p, rest, ig_detokenizer_flush(&d, rest), true, list);
	result = json_pack("{s:s, s:o, s:s?}", "style", ig_tool_format_name(style.calls), "events",
			   list, "problem", ig_completion_parser_problem(p));
	ig_completion_parser_destroy(p);
	free(piece);
	return result;
}

static json_t *answer(const json_t *one)
{
	const json_t *template = json_object_get(one, "template");

	if (json_is_string(json_object_get(one, "text")))
		return text_case(one);
	if (template)
		open_template(template);
	if (!chat)
		die("a case without a template");
	return json_object_get(one, "completion") ? completion_case(one) : conversation_case(one);
}

int main(int argc, char **argv)
{
	char *line = NULL;
	size_t cap = 0;
	json_error_t err;

	if (argc != 2)
		die("a GGUF file or a folder is needed");
	if (vocabulary_open(&vocabulary, argv[1]))
		return 1;
	while (getline(&line, &cap, stdin) > 0) {
		json_t *one = json_loads(line, JSON_ALLOW_NUL, &err);
		json_t *result = one ? answer(one) : NULL;
		if (!one)
			die(err.text);
		if (!result || json_dumpf(result, stdout, JSON_COMPACT))
			die("no memory");
		putchar('\n');
		fflush(stdout);
		json_decref(result);
		json_decref(one);
	}
	free(line);
	ig_chat_template_close(chat);
	vocabulary_close(&vocabulary);
	return 0;
}
