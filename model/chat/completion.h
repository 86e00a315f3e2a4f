/*
 * completion.h: splits what a model wrote into text, reasoning and tool calls.  Each family of
 * models has its own format of tool calls; the chat template shows which one a model was trained
 * on (tool_format.c).  The parser gets pieces of the text as they are generated and emits events; it holds back
 * what may be a prefix of a marker.  Text that only resembles a tool call stays text.
 */
#pragma once

#include "model/chat/chat_template.h"
#include "model/grammar/grammar.h"

struct json_t; /* jansson's */

/* Each has an entry in tool_format.c. */
enum ig_tool_call_format {
	IG_TOOL_CALLS_NONE,    /* the template does not support tools */
	IG_TOOL_CALLS_HERMES,  /* <tool_call>{"name": …, "arguments": {…}}</tool_call> (Qwen too) */
	IG_TOOL_CALLS_QWEN,    /* <tool_call><function=…><parameter=…>…</parameter></function> */
	IG_TOOL_CALLS_HARMONY, /* gpt-oss: channels and recipients */
	IG_TOOL_CALLS_GLM,     /* <tool_call>name<arg_key>…</arg_key><arg_value>…</arg_value> */
	IG_TOOL_CALLS_KIMI, /* <|tool_call_begin|>functions.name:0<|tool_call_argument_begin|>… */
	IG_TOOL_CALLS_DEEPSEEK,	    /* V3, R1: function<sep>name, then fenced JSON */
	IG_TOOL_CALLS_DEEPSEEK31,   /* V3.1: name<sep>{…} */
	IG_TOOL_CALLS_DSML,	    /* V3.2: <｜DSML｜invoke name="…"> */
	IG_TOOL_CALLS_DSML4,	    /* V4: the same in <｜DSML｜tool_calls> */
	IG_TOOL_CALLS_MINIMAX,	    /* <minimax:tool_call><invoke name="…"><parameter name="…"> */
	IG_TOOL_CALLS_GEMMA,	    /* <|tool_call>call:name{key:<|"|>…<|"|>}<tool_call|> */
	IG_TOOL_CALLS_GRANITE,	    /* <|tool_call|>[{"name": …, "arguments": {…}}, …] */
	IG_TOOL_CALLS_LFM2,	    /* <|tool_call_start|>[name(key="…"), …]<|tool_call_end|> */
	IG_TOOL_CALLS_PYTHON,	    /* Llama 3.2, 4: the list alone, or in <|python_start|> */
	IG_TOOL_CALLS_MISTRAL,	    /* [TOOL_CALLS][{"name": …, "arguments": {…}}, …] */
	IG_TOOL_CALLS_MISTRAL_ARGS, /* [TOOL_CALLS]name[ARGS]{…} */
	IG_TOOL_CALLS_LLAMA3, /* {"name": …, "parameters": {…}}, after <|python_tag|> or alone */
	IG_N_TOOL_CALLS,
};

/* How reasoning is marked. */
enum ig_think_format {
	IG_THINK_TAG,	  /* <think>…</think> */
	IG_THINK_BRACKET, /* [THINK]…[/THINK] */
	IG_THINK_CHANNEL, /* <|channel>thought…<channel|> */
	IG_N_THINK,
};

/* What the template's source shows about its model's completions. */
struct ig_completion_style {
	enum ig_tool_call_format calls;
	bool compact;  /* GLM 4.7: no newlines between the tags of a call */
	bool fallback; /* the template knows no tools: they are described by tool_fallback.c */
	enum ig_think_format think;
	bool reasoning;	     /* a completion may begin with reasoning, <think>…</think> */
	bool takes_thinking; /* the template reads the reasoning of a turn as its member thinking */
	bool opens_reasoning; /* the template itself ends its prompt with <think> */
};
/* opens_reasoning as for a prompt without further variables (enable_thinking …). */
void ig_completion_style_of(const struct ig_chat_template *c, struct ig_completion_style *out);
/* Set opens_reasoning by the end of this prompt. */
void ig_completion_style_prompted(struct ig_completion_style *s, const struct ig_tokenizer *t,
				  const int32_t *ids, size_t n);

/* "hermes" … */
const char *ig_tool_format_name(enum ig_tool_call_format f);

/* Ids, at most cap, of control tokens whose text is a part of the completion in this style
 * ([TOOL_CALLS] …); returns their number. */
size_t ig_completion_shown_tokens(const struct ig_completion_style *s, const struct ig_tokenizer *t,
				  int32_t *ids, size_t cap);

enum ig_completion_event_kind {
	IG_COMPLETION_TEXT,	 /* data: more text */
	IG_COMPLETION_REASONING, /* data: more of it */
	IG_COMPLETION_TOOL_CALL, /* a tool call begins; data: the tool's name */
	IG_COMPLETION_ARGUMENTS, /* data: more of the call's arguments, as JSON */
	IG_COMPLETION_TOOL_CALL_END,
	IG_COMPLETION_MARKUP, /* nothing to show: only raw */
};

/* Every byte of the completion is in one event: the concatenation of raw, and after it data where
 * that is text or reasoning, is the completion (with U+FFFD for what is not UTF-8). */
struct ig_completion_event {
	enum ig_completion_event_kind kind;
	const char *data; /* valid during the callback; whole UTF-8 characters */
	size_t len;
	const char *raw; /* what a call was written as; dropped markers and white space */
	size_t raw_len;
};

struct ig_completion_parser;

/* White space around reasoning and tool calls is dropped; text after a tool call that has text
 * before it keeps its white space.  Arguments that the model wrote as a JSON string are unescaped;
 * those in a format without JSON become JSON by the tool's schema: a value is a string if the
 * schema says so, otherwise JSON if it is that.  At most 64 KiB are held back: what is not known to
 * be a tool call by then is text.  What breaks off within a call is text from there on. */

/* with_calls: the request has tools (else markers of tool calls are plain text); tools: the list in
 * the format of chat completions, which must outlive the parser, or NULL. */
struct ig_completion_parser *ig_completion_parser_create(const struct ig_completion_style *s,
							 bool with_calls,
							 const struct json_t *tools);
void ig_completion_parser_destroy(struct ig_completion_parser *p); /* NULL is fine */
/* Feed a piece of the completion, cut at any byte; last: nothing follows, so what is held back is
 * emitted.  Calls event in order.  0 or -ENOMEM. */
int ig_completion_parser_feed(struct ig_completion_parser *p, const char *text, size_t len,
			      bool last,
			      void (*event)(void *ctx, const struct ig_completion_event *e),
			      void *ctx);

/* What was wrong with the first tool call that could not be read to its end: "hermes: expected …
 * at byte 12"; NULL: nothing. */
const char *ig_completion_parser_problem(const struct ig_completion_parser *p);

/* What a completion under a grammar must begin with so that it is not reasoning: the source's
 * before; NULL: nothing. */
const char *ig_completion_prefix(const struct ig_completion_style *s);

/* Which completions a grammar of tool calls allows. */
struct ig_tool_grammar {
	const char *name; /* only calls of this tool; NULL: of any */
	bool parallel;	  /* more than one call */
	/* auto: other text may come instead of calls, or around them; only tools with "strict"
	 * are held to their schemas.  Otherwise every call must match its tool's schema. */
	bool free;
	/* This may come instead of calls, and no other text (after reasoning); only tools with
	 * "strict" are held.  NULL: it may not. */
	const struct ig_grammar_part *answer;
};
/* A grammar, compiled through the cache, for calls of these tools (a list in the format of chat
 * completions) in the model's format.  -ENOTSUP for IG_TOOL_CALLS_NONE; -EINVAL with the schema's
 * place ("tools[1].function.parameters: …"). */
int ig_completion_tool_grammar(const struct ig_completion_style *s, const struct ig_tokenizer *t,
			       struct ig_grammar_cache *cache, const struct json_t *tools,
			       const struct ig_tool_grammar *g, struct ig_grammar **out,
			       struct ig_error *err);

/* ---- templates without tools (tool_fallback.c) ------------------------------------------------- */

/* The conversation for a template that knows no tools: they are described in the system message,
 * earlier calls are <tool_call> texts, and results <tool_response> texts in user turns, as in Hermes'
 * format.  tools: NULL or empty: only the messages.  *out is the caller's.  0 or -ENOMEM. */
int ig_tool_fallback(const struct json_t *messages, const struct json_t *tools,
		     struct json_t **out);
/* Give the calls and results of these messages (a list of the caller's own; the messages in it are
 * replaced, not changed) the ids that the format's model was trained on (tool_ids.c).  0 or
 * -ENOMEM. */
int ig_tool_ids(enum ig_tool_call_format f, struct json_t *messages);
