/*
 * completion.c: finds out from a model's chat template how the model writes tool calls and
 * reasoning.  The source is searched for the markers of each format (tool_format.c).  A template
 * with tools in an unknown format counts as one without tools.
 */
#include "model/chat/completion_private.h"

#include "base/json.h"

#include <stdlib.h>
#include <string.h>

#define TAIL 64 /* bytes at a prompt's end that are examined */

/* ---- the template's source -------------------------------------------------------------- */

static const char *find(const char *s, size_t len, const char *what)
{
	return memmem(s, len, what, strlen(what));
}

static void look(const char *s, size_t len, struct ig_completion_style *out)
{
	for (unsigned i = 0; i < IG_N_THINK && !out->reasoning; i++)
		if (find(s, len, ig_think_texts[i].end)) {
			out->reasoning = true;
			out->think = (enum ig_think_format)i;
		}
	if (find(s, len, ".thinking") || find(s, len, "['thinking']"))
		out->takes_thinking = true;
	if (out->calls != IG_TOOL_CALLS_NONE)
		return;
	out->calls = ig_tool_format_find(s, len);
	out->compact = out->calls == IG_TOOL_CALLS_GLM && !find(s, len, "</arg_key>\n") &&
		       !find(s, len, "</arg_key>\\n");
}

/* Whether a prompt of these bytes leaves the model in its reasoning. */
static bool ends_in_think(const struct ig_completion_style *style, const char *s, size_t len)
{
	const char *think = ig_think_texts[style->think].begin;

	while (len && strchr(" \t\r\n", s[len - 1]) && s[len - 1])
		len--;
	return len >= strlen(think) && !memcmp(s + len - strlen(think), think, strlen(think));
}

void ig_completion_style_of(const struct ig_chat_template *c, struct ig_completion_style *out)
{
	struct ig_chat_input in = { .add_generation_prompt = true };
	const char *s;
	char *prompt;
	size_t len;

	*out = (struct ig_completion_style){ .calls = IG_TOOL_CALLS_NONE };
	for (size_t i = 0; (s = ig_chat_template_source(c, i, &len)); i++)
		look(s, len, out);
	if (!out->reasoning)
		return;
	/* The end of a prompt depends on the template's variables: render one. */
	json_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "x");
	in.messages = messages;
	if (messages && !ig_chat_template_render_json(c, &in, &prompt, NULL)) {
		out->opens_reasoning = ends_in_think(out, prompt, strlen(prompt));
		free(prompt);
	}
	json_decref(messages);
}

void ig_completion_style_prompted(struct ig_completion_style *s, const struct ig_tokenizer *t,
				  const int32_t *ids, size_t n)
{
	char tail[TAIL];
	size_t at = TAIL;

	if (!s->reasoning)
		return;
	while (n && at) {
		bool special;
		size_t len, part;
		const char *text = ig_tokenizer_token(t, ids[--n], &len, &special);
		if (!text)
			break;
		part = len < at ? len : at;
		at -= part;
		memcpy(tail + at, text + len - part, part);
	}
	s->opens_reasoning = ends_in_think(s, tail + at, TAIL - at);
}

/* ---- tokens ------------------------------------------------------------------------------- */

static void add_shown(const struct ig_tokenizer *t, const char *text, int32_t *ids, size_t cap,
		      size_t *n)
{
	int32_t id = text ? ig_tokenizer_find_special(t, text) : -1;

	if (id < 0)
		return;
	if (*n < cap)
		ids[*n] = id;
	++*n;
}

size_t ig_completion_shown_tokens(const struct ig_completion_style *s, const struct ig_tokenizer *t,
				  int32_t *ids, size_t cap)
{
	const struct ig_tool_format *f = &ig_tool_formats[s->calls];
	size_t n = 0;

	if (s->reasoning) {
		const char *begin = ig_think_texts[s->think].begin;
		/* Gemma's is a token and a word. */
		add_shown(t, s->think == IG_THINK_CHANNEL ? "<|channel>" : begin, ids, cap, &n);
		add_shown(t, ig_think_texts[s->think].end, ids, cap, &n);
	}
	for (size_t i = 0; f->begins[i]; i++)
		add_shown(t, f->begins[i], ids, cap, &n);
	add_shown(t, f->closing, ids, cap, &n);
	for (size_t i = 0; f->shown[i]; i++)
		if (!f->closing || strcmp(f->shown[i], f->closing))
			add_shown(t, f->shown[i], ids, cap, &n);
	return n < cap ? n : cap;
}
