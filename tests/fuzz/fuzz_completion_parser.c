/*
 * fuzz_completion_parser.c: any bytes as what a model wrote, in every form.
 *
 * The first byte chooses how the model reasons (and whether the rest is a template's source
 * instead), the second the format of calls and how the completion is cut.  Events are whole
 * characters in an order that makes sense, the same for the whole and for the pieces, and have
 * every byte of the input; where nothing is looked for, the text is the input.
 */
#include "base/strbuf.h"
#include "model/chat/completion.h"
#include "base/utf8.h"
#include "tiny_gguf.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { REASONING = 1, OPENS = 2, WITHOUT_CALLS = 4, TEMPLATE = 8 }; /* and how to think << 4 */

static const char tools_text[] =
	"[{\"function\": {\"name\": \"f\", \"parameters\": {\"properties\": {\"s\": {\"type\": "
	"\"string\"}, \"n\": {\"anyOf\": [{\"type\": \"integer\"}, {\"$ref\": \"#\"}]}}}}}]";

struct log {
	struct ig_strbuf text;	/* a letter, then data; runs of one kind are joined */
	struct ig_strbuf whole; /* what the events say the completion was */
	int kind;
	bool in_call;
};

static void check(bool right)
{
	if (!right)
		abort();
}

static void on_event(void *ctx, const struct ig_completion_event *e)
{
	struct log *l = ctx;
	bool of_call = e->kind == IG_COMPLETION_ARGUMENTS || e->kind == IG_COMPLETION_TOOL_CALL_END;

	ig_strbuf_add(&l->whole, e->raw, e->raw_len);
	if (e->kind == IG_COMPLETION_TEXT || e->kind == IG_COMPLETION_REASONING)
		ig_strbuf_add(&l->whole, e->data, e->len);
	if (e->kind == IG_COMPLETION_MARKUP)
		return;
	check(of_call == l->in_call);
	check((e->len == 0) == (e->kind == IG_COMPLETION_TOOL_CALL_END));
	for (size_t i = 0; i < e->len;) {
		int n = ig_utf8_check((const unsigned char *)e->data + i, e->len - i);
		check(n > 0);
		i += (size_t)n;
	}
	l->in_call = e->kind == IG_COMPLETION_TOOL_CALL || e->kind == IG_COMPLETION_ARGUMENTS;
	if (l->kind != (int)e->kind || e->kind == IG_COMPLETION_TOOL_CALL)
		ig_strbuf_printf(&l->text, "%c", "TRCAE"[e->kind]);
	ig_strbuf_add(&l->text, e->data, e->len);
	l->kind = (int)e->kind;
}

static void parse(const struct ig_completion_style *s, bool with_calls, const char *text,
		  size_t len, uint32_t cut, struct log *l)
{
	static json_t *tools;
	if (!tools)
		tools = json_loads(tools_text, 0, NULL);
	struct ig_completion_parser *p = ig_completion_parser_create(s, with_calls, tools);

	*l = (struct log){ .kind = -1 };
	check(p != NULL);
	for (size_t at = 0, n = 0; at < len; at += n) {
		n = len - at;
		if (cut) {
			cut = cut * 1664525 + 1013904223;
			n = (cut >> 16) % 9 < n ? (cut >> 16) % 9 : n;
		}
		check(!ig_completion_parser_feed(p, text + at, n, false, on_event, l));
	}
	check(!ig_completion_parser_feed(p, NULL, 0, true, on_event, l));
	check(!l->in_call && ig_strbuf_ok(&l->text));
	ig_completion_parser_destroy(p);
}

static bool is_utf8(const char *s, size_t len)
{
	int n;

	for (size_t i = 0; i < len; i += (size_t)n) {
		n = ig_utf8_check((const unsigned char *)s + i, len - i);
		if (n <= 0)
			return false;
	}
	return true;
}

static void look_at_template(const char *text, size_t len)
{
	static struct ig_tokenizer *tokenizer;
	struct ig_completion_style s;
	struct ig_chat_template *c;
	struct ig_checkpoint *g;
	struct gw w;
	int32_t ids[16];

	if (!tokenizer) {
		tiny_file(&w, &(struct tiny_options){ .model = "gpt2", .pre = "smollm" });
		check(!ig_checkpoint_open_memory(w.data, w.len, "tiny", &g, NULL) &&
		      !ig_tokenizer_open(g, &tokenizer, NULL));
		ig_checkpoint_close(g);
		gw_finish(&w);
	}
	gw_init(&w);
	gw_key(&w, "tokenizer.chat_template", GW_STRING);
	gw_string(&w, text, len);
	check(!ig_checkpoint_open_memory(w.data, w.len, "fuzz", &g, NULL));
	if (!ig_chat_template_open(g, tokenizer, &c, NULL)) {
		ig_completion_style_of(c, &s);
		check(!s.opens_reasoning || s.reasoning);
		check(ig_completion_shown_tokens(&s, tokenizer, ids, 16) == 0); /* it has none */
		ig_chat_template_close(c);
	}
	ig_checkpoint_close(g);
	gw_finish(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ig_completion_style s = { 0 };
	const char *text = (const char *)data + 2;
	struct log whole, cut;
	bool with_calls;
	size_t len;

	if (size < 2)
		return 0;
	len = size - 2;
	if (data[0] & TEMPLATE) {
		look_at_template(text, len);
		return 0;
	}
	s.calls = (enum ig_tool_call_format)(data[1] % IG_N_TOOL_CALLS);
	s.think = (enum ig_think_format)((data[0] >> 4) % IG_N_THINK);
	s.reasoning = data[0] & REASONING;
	s.opens_reasoning = data[0] & OPENS;
	with_calls = !(data[0] & WITHOUT_CALLS);
	parse(&s, with_calls, text, len, 0, &whole);
	parse(&s, with_calls, text, len, data[1] + 1u, &cut);
	check(whole.text.len == cut.text.len);
	check(!whole.text.len || !memcmp(whole.text.data, cut.text.data, cut.text.len));
	if ((s.calls == IG_TOOL_CALLS_NONE || (!with_calls && s.calls != IG_TOOL_CALLS_HARMONY)) &&
	    !s.reasoning && !s.opens_reasoning && len && is_utf8(text, len))
		check(whole.text.len == len + 1 && whole.text.data[0] == 'T' &&
		      !memcmp(whole.text.data + 1, text, len));
	/* Every byte is in an event. */
	check(!is_utf8(text, len) ||
	      (whole.whole.len == len && (!len || !memcmp(whole.whole.data, text, len))));
	check(cut.whole.len == whole.whole.len);
	ig_strbuf_finish(&whole.whole);
	ig_strbuf_finish(&cut.whole);
	ig_strbuf_finish(&whole.text);
	ig_strbuf_finish(&cut.text);
	return 0;
}
