/*
 * chat_turns.c: which turns a chat template has a place for.  Templates say it in code only: some
 * raise an error for a system message that is not the first or for two turns of the user in a row,
 * some leave out such a message or move it to the front.  So short conversations are rendered; a
 * template has a place for their turns if all texts are in the output in the same order.
 */
#include "model/chat/chat_turns_private.h"

#include "base/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TURNS 9
#define CALL_ID "call00000" /* nine characters, as Mistral's templates take it */

/* A conversation: 's' system, 'u' user, 'a' assistant, 'c' a call by the assistant, 't' its
 * result.  The text of turn i is TEXTS[i]. */
static const char *const texts[MAX_TURNS] = {
	"aleph-one", "beth-two",    "gimel-three", "daleth-four", "he-five",
	"waw-six",   "zayin-seven", "heth-eight",  "teth-nine",
};

static json_t *message(char kind, const char *text)
{
	switch (kind) {
	case 's': return json_pack("{s:s, s:s}", "role", "system", "content", text);
	case 'u': return json_pack("{s:s, s:s}", "role", "user", "content", text);
	case 'a': return json_pack("{s:s, s:s}", "role", "assistant", "content", text);
	case 'c':
		return json_pack("{s:s, s:s, s:[{s:s, s:s, s:{s:s, s:{s:s}}}]}", "role",
				 "assistant", "content", "", "tool_calls", "id", CALL_ID, "type",
				 "function", "function", "name", "look", "arguments", "at", text);
	default:
		return json_pack("{s:s, s:s, s:s, s:s}", "role", "tool", "tool_call_id", CALL_ID,
				 "name", "look", "content", text);
	}
}

static json_t *conversation(const char *turns)
{
	json_t *list = json_array();

	for (size_t i = 0; list && turns[i]; i++)
		if (json_array_append_new(list, message(turns[i], texts[i])) < 0) {
			json_decref(list);
			return NULL;
		}
	return list;
}

static bool in_order(const char *out, const char *turns)
{
	for (size_t i = 0; turns[i] && out; i++) {
		out = strstr(out, texts[i]);
		out = out ? out + strlen(texts[i]) : NULL;
	}
	return out;
}

struct probe {
	const struct ig_chat_template *c;
	const char *variant;
	json_t *tools;
	bool always_tools; /* a template for tools may expect some */
	bool no_memory;
};

/* Whether the template renders these turns in order. */
static bool takes(struct probe *p, const char *turns)
{
	struct ig_chat_input in = { .messages = conversation(turns),
				    .variant = p->variant,
				    .tools =
					    p->always_tools || strchr(turns, 'c') ? p->tools : NULL,
				    .add_generation_prompt = true };
	struct ig_error err;
	char *out = NULL;
	int rc = in.messages ? ig_chat_template_render_json(p->c, &in, &out, &err) : -ENOMEM;
	bool ok = !rc && in_order(out, turns);

	p->no_memory |= rc == -ENOMEM;
	free(out);
	json_decref((json_t *)(uintptr_t)in.messages);
	return ok;
}

int chat_turns_probe(const struct ig_chat_template *c, const char *variant,
		     struct ig_chat_turns *out)
{
	struct probe p = { .c = c,
			   .variant = variant,
			   .always_tools = !strcmp(variant, "tool_use") };

	p.tools = json_pack("[{s:s, s:{s:s, s:s, s:{s:s, s:{s:{s:s}}}}}]", "type", "function",
			    "function", "name", "look", "description", "Looks.", "parameters",
			    "type", "object", "properties", "at", "type", "string");
	if (!p.tools)
		return -ENOMEM;
	*out = (struct ig_chat_turns){ true, true, true, true };
	/* A template that has no place even for the plainest conversation says nothing about
	 * others. */
	if (takes(&p, "uau")) {
		out->system = takes(&p, "su");
		out->later_system = takes(&p, out->system ? "ssuausasu" : "uausasu");
		out->user_runs = takes(&p, "uuauu");
	}
	if (takes(&p, "uctau"))
		out->user_after_tool = takes(&p, "uctuau");
	json_decref(p.tools);
	return p.no_memory ? -ENOMEM : 0;
}
