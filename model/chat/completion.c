/*
 * completion.c: finds out from a model's chat template how the model writes tool calls and
 * reasoning.  The source is searched for the markers of each format, and for what follows them:
 * several model families use <tool_call> with different contents.  A template with tools in an
 * unknown format counts as one without tools.
 */
#include "model/chat/completion.h"

#include "base/json.h"

#include <stdlib.h>
#include <string.h>

#define THINK "<think>"
#define TAIL 64 /* bytes at a prompt's end that are examined */

/* ---- the template's source -------------------------------------------------------------- */

static const char *find(const char *s, size_t len, const char *what)
{
	return memmem(s, len, what, strlen(what));
}

/* What a template may have between two pieces of its output: white space (also escaped), ends of
 * strings and tags, operators. */
static size_t skip_glue(const char *s, size_t len)
{
	size_t i = 0;

	while (i < len) {
		if (s[i] == '\\' && i + 1 < len && (s[i + 1] == 'n' || s[i + 1] == 't'))
			i += 2;
		else if (strchr(" \t\r\n'\"}{+~-%", s[i]) && s[i])
			i++;
		else
			break;
	}
	return i;
}

/* <tool_call> followed by an object with a name, not by another tag. */
static bool is_hermes(const char *s, size_t len)
{
	static const char tag[] = "<tool_call>";
	const char *end = s + len;

	while ((s = find(s, (size_t)(end - s), tag))) {
		size_t n;
		s += sizeof tag - 1;
		n = skip_glue(s, (size_t)(end - s));
		if (!memchr(s, '{', n))
			continue;
		s += n;
		if (s < end && *s == '\\') /* \"name\" */
			s++;
		if (s < end && *s == '"')
			s++;
		if (end - s > 4 && !memcmp(s, "name", 4) && (s[4] == '"' || s[4] == '\\'))
			return true;
	}
	return false;
}

/* An object with name and parameters, and Llama 3's headers. */
static bool is_llama3(const char *s, size_t len)
{
	return find(s, len, "<|start_header_id|>") && find(s, len, "{\"name\": ") &&
	       find(s, len, "\"parameters\": ") && !find(s, len, "<function=");
}

static void look(const char *s, size_t len, struct ig_completion_style *out)
{
	if (find(s, len, "</think>"))
		out->reasoning = true;
	if (out->calls != IG_TOOL_CALLS_NONE)
		return;
	if (find(s, len, "[TOOL_CALLS]")) {
		out->calls = IG_TOOL_CALLS_MISTRAL;
		out->name_args = find(s, len, "[ARGS]") != NULL;
	} else if (is_hermes(s, len)) {
		out->calls = IG_TOOL_CALLS_HERMES;
	} else if (is_llama3(s, len)) {
		out->calls = IG_TOOL_CALLS_LLAMA3;
	}
}

/* Whether a prompt of these bytes leaves the model in its reasoning. */
static bool ends_in_think(const char *s, size_t len)
{
	while (len && strchr(" \t\r\n", s[len - 1]) && s[len - 1])
		len--;
	return len >= strlen(THINK) && !memcmp(s + len - strlen(THINK), THINK, strlen(THINK));
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
		out->opens_reasoning = ends_in_think(prompt, strlen(prompt));
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
	s->opens_reasoning = ends_in_think(tail + at, TAIL - at);
}

/* ---- tokens ------------------------------------------------------------------------------- */

size_t ig_completion_shown_tokens(const struct ig_completion_style *s, const struct ig_tokenizer *t,
				  int32_t *ids, size_t cap)
{
	static const struct {
		const char *text;
		enum ig_tool_call_format format; /* NONE: of reasoning */
	} tokens[] = {
		{ "<think>", IG_TOOL_CALLS_NONE },
		{ "</think>", IG_TOOL_CALLS_NONE },
		{ "<tool_call>", IG_TOOL_CALLS_HERMES },
		{ "</tool_call>", IG_TOOL_CALLS_HERMES },
		{ "<|python_tag|>", IG_TOOL_CALLS_LLAMA3 },
		{ "[TOOL_CALLS]", IG_TOOL_CALLS_MISTRAL },
		{ "[ARGS]", IG_TOOL_CALLS_MISTRAL },
		{ "[CALL_ID]", IG_TOOL_CALLS_MISTRAL },
	};
	size_t n = 0;

	for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++) {
		bool wanted = tokens[i].format == IG_TOOL_CALLS_NONE ? s->reasoning :
								       tokens[i].format == s->calls;
		int32_t id = wanted ? ig_tokenizer_find_special(t, tokens[i].text) : -1;

		if (id < 0)
			continue;
		if (n < cap)
			ids[n] = id;
		n++;
	}
	return n < cap ? n : cap;
}
