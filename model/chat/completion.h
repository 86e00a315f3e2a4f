/*
 * completion.h: what a model wrote, taken apart: text, reasoning, calls of tools.
 *
 * Each family of models has its own way to write a call; which one a model was
 * trained in is told by its chat template.  The parser is fed pieces of the text as
 * they come and gives events; nothing is given that might still turn out to be the
 * beginning of a marker.  What only looks like a call and is none comes as text.
 */
#pragma once

#include "model/chat/chat_template.h"
#include "model/grammar/grammar.h"

/* ---- forms ------------------------------------------------------------------------ */

enum ig_tool_call_format {
	IG_TOOL_CALLS_NONE,   /* the template knows no tools */
	IG_TOOL_CALLS_HERMES, /* <tool_call>{"name": …, "arguments": {…}}</tool_call> (Qwen too) */
	IG_TOOL_CALLS_LLAMA3, /* {"name": …, "parameters": {…}}, after <|python_tag|> or alone */
	/* [TOOL_CALLS][{"name": …, "arguments": {…}}, …] or [TOOL_CALLS]name[ARGS]{…} */
	IG_TOOL_CALLS_MISTRAL,
};

/* What the template's own text says about how its model answers. */
struct ig_completion_style {
	enum ig_tool_call_format calls;
	bool name_args;	      /* Mistral's newer form, with [ARGS] */
	bool reasoning;	      /* it may begin with <think>…</think> */
	bool opens_reasoning; /* the template itself ends its prompt with <think> */
};
/* opens_reasoning as for a prompt without further variables (enable_thinking …). */
void ig_completion_style_of(const struct ig_chat_template *c, struct ig_completion_style *out);
/* Set opens_reasoning as the end of this very prompt says. */
void ig_completion_style_prompted(struct ig_completion_style *s, const struct ig_tokenizer *t,
				  const int32_t *ids, size_t n);

/* Control tokens whose text belongs to the answer in this style ([TOOL_CALLS] …): their
 * ids, at most cap; how many there are. */
size_t ig_completion_shown_tokens(const struct ig_completion_style *s, const struct ig_tokenizer *t,
				  int32_t *ids, size_t cap);

/* ---- the parser ---------------------------------------------------------------------- */

enum ig_completion_event_kind {
	IG_COMPLETION_TEXT,	 /* data: more text */
	IG_COMPLETION_REASONING, /* data: more of it */
	IG_COMPLETION_TOOL_CALL, /* a call begins; data: the tool's name */
	IG_COMPLETION_ARGUMENTS, /* data: more of the call's arguments, JSON as the model wrote it */
	IG_COMPLETION_TOOL_CALL_END,
};

struct ig_completion_event {
	enum ig_completion_event_kind kind;
	const char *data; /* valid during the call; whole UTF-8 characters */
	size_t len;
};

struct ig_completion_parser;

/* White space round reasoning and round calls is given with neither of them nor as text;
 * text that follows text and a call keeps what stands before it.  Arguments that the
 * model wrote as a JSON string are given unescaped.  At most 64 KiB are held back: what
 * is not known to be a call by then is text. */

/* with_calls: tools were given (else markers of calls are plain text). */
struct ig_completion_parser *ig_completion_parser_create(const struct ig_completion_style *s,
							 bool with_calls);
void ig_completion_parser_destroy(struct ig_completion_parser *p); /* NULL is fine */
/* Feed a piece of the answer (any cut of its bytes); last: nothing follows, what is held
 * back comes out.  event is called in order.  0 or -ENOMEM. */
int ig_completion_parser_feed(struct ig_completion_parser *p, const char *text, size_t len,
			      bool last,
			      void (*event)(void *ctx, const struct ig_completion_event *e),
			      void *ctx);

/* ---- calls that must be made (tool_choice) ----------------------------------------------- */

/* What an answer that has to keep to a grammar begins with, so that it is not taken for
 * reasoning: the source's before; NULL: nothing. */
const char *ig_completion_prefix(const struct ig_completion_style *s);

/* The source of a grammar for one or more calls of these tools (a list in the form of chat
 * completions; name: only this one; NULL: any), in the model's form; strict or not, their
 * parameters' schemas are held.  Compiled through the cache.  -ENOTSUP for
 * IG_TOOL_CALLS_NONE; -EINVAL with the schema's place ("tools[1].function.parameters: …"). */
int ig_completion_tool_grammar(const struct ig_completion_style *s, const struct ig_tokenizer *t,
			       struct ig_grammar_cache *cache, const struct json_t *tools,
			       const char *name, bool parallel, struct ig_grammar **out,
			       struct ig_error *err);
