/*
 * completion.h: splits what a model wrote into text, reasoning and tool calls.  Each family of
 * models has its own format of tool calls; the chat template shows which one a model was trained
 * on.  The parser gets pieces of the text as they are generated and emits events; it holds back
 * what may be a prefix of a marker.  Text that only resembles a tool call stays text.
 */
#pragma once

#include "model/chat/chat_template.h"
#include "model/grammar/grammar.h"

enum ig_tool_call_format {
	IG_TOOL_CALLS_NONE,   /* the template does not support tools */
	IG_TOOL_CALLS_HERMES, /* <tool_call>{"name": …, "arguments": {…}}</tool_call> (Qwen too) */
	IG_TOOL_CALLS_LLAMA3, /* {"name": …, "parameters": {…}}, after <|python_tag|> or alone */
	/* [TOOL_CALLS][{"name": …, "arguments": {…}}, …] or [TOOL_CALLS]name[ARGS]{…} */
	IG_TOOL_CALLS_MISTRAL,
};

/* What the template's source shows about its model's completions. */
struct ig_completion_style {
	enum ig_tool_call_format calls;
	bool name_args;	      /* Mistral's newer format, with [ARGS] */
	bool reasoning;	      /* a completion may begin with <think>…</think> */
	bool opens_reasoning; /* the template itself ends its prompt with <think> */
};
/* opens_reasoning as for a prompt without further variables (enable_thinking …). */
void ig_completion_style_of(const struct ig_chat_template *c, struct ig_completion_style *out);
/* Set opens_reasoning by the end of this prompt. */
void ig_completion_style_prompted(struct ig_completion_style *s, const struct ig_tokenizer *t,
				  const int32_t *ids, size_t n);

/* Ids, at most cap, of control tokens whose text is a part of the completion in this style
 * ([TOOL_CALLS] …); returns their number. */
size_t ig_completion_shown_tokens(const struct ig_completion_style *s, const struct ig_tokenizer *t,
				  int32_t *ids, size_t cap);

enum ig_completion_event_kind {
	IG_COMPLETION_TEXT,	 /* data: more text */
	IG_COMPLETION_REASONING, /* data: more of it */
	IG_COMPLETION_TOOL_CALL, /* a tool call begins; data: the tool's name */
	IG_COMPLETION_ARGUMENTS, /* data: more of the call's arguments, JSON as the model wrote it */
	IG_COMPLETION_TOOL_CALL_END,
};

struct ig_completion_event {
	enum ig_completion_event_kind kind;
	const char *data; /* valid during the callback; whole UTF-8 characters */
	size_t len;
};

struct ig_completion_parser;

/* White space around reasoning and tool calls is dropped; text after a tool call that has text
 * before it keeps its white space.  Arguments that the model wrote as a JSON string are unescaped.
 * At most 64 KiB are held back: what is not known to be a tool call by then is text. */

/* with_calls: the request has tools (else markers of tool calls are plain text). */
struct ig_completion_parser *ig_completion_parser_create(const struct ig_completion_style *s,
							 bool with_calls);
void ig_completion_parser_destroy(struct ig_completion_parser *p); /* NULL is fine */
/* Feed a piece of the completion, cut at any byte; last: nothing follows, so what is held back is
 * emitted.  Calls event in order.  0 or -ENOMEM. */
int ig_completion_parser_feed(struct ig_completion_parser *p, const char *text, size_t len,
			      bool last,
			      void (*event)(void *ctx, const struct ig_completion_event *e),
			      void *ctx);

/* What a completion under a grammar must begin with so that it is not reasoning: the source's
 * before; NULL: nothing. */
const char *ig_completion_prefix(const struct ig_completion_style *s);

/* A grammar, compiled through the cache, for one or more calls of these tools (a list in the
 * format of chat completions; name: only this one; NULL: any) in the model's format.  Arguments
 * must match the tool's schema, strict or not.  -ENOTSUP for IG_TOOL_CALLS_NONE; -EINVAL with the
 * schema's place ("tools[1].function.parameters: …"). */
int ig_completion_tool_grammar(const struct ig_completion_style *s, const struct ig_tokenizer *t,
			       struct ig_grammar_cache *cache, const struct json_t *tools,
			       const char *name, bool parallel, struct ig_grammar **out,
			       struct ig_error *err);
