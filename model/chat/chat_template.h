/*
 * chat_template.h: encodes messages to ids by the model's own template (a Jinja program, see
 * model/jinja/jinja.h).  Only the template's own text, and the model's tokens that it gets as
 * variables (bos_token …), become control tokens.  What a client wrote is tokenised as plain text,
 * wherever the template puts it.  Immutable, any thread.
 */
#pragma once

#include "model/tokenizer/tokenizer.h"

struct json_t; /* jansson's */
struct ig_chat_template;

/* Compile the file's template, and those that it has under other names.  -ENOTSUP with the line
 * of an error in one; -ENOENT without a template. */
int ig_chat_template_open(const struct ig_checkpoint *g, const struct ig_tokenizer *t,
			  struct ig_chat_template **out, struct ig_error *err);
void ig_chat_template_close(struct ig_chat_template *c);
/* "chatml", or "jinja" for one with other markers. */
const char *ig_chat_template_name(const struct ig_chat_template *c);
/* The source of template i (0: the default one), *len bytes; NULL: there are no more. */
const char *ig_chat_template_source(const struct ig_chat_template *c, size_t i, size_t *len);

/* A conversation as templates see it: messages in the format of OpenAI's chat completions, with
 * tool_calls, tool_call_id, reasoning_content and so on where they have them. */
struct ig_chat_input {
	const struct json_t *messages; /* a list of objects, each with a role */
	const struct json_t *tools; /* a list of {"type": "function", "function": …}; NULL: none */
	const struct json_t
		*extra; /* an object: further variables (enable_thinking …); NULL: none */
	bool add_generation_prompt;
	/* The last message is the assistant's, and the model continues its text: the output ends with
	 * it, without white space around it.  Without add_generation_prompt. */
	bool continues;
	const char *variant; /* the template's name; NULL: "tool_use" for tools, if there is one */
	int64_t now_s;	     /* Unix seconds, for templates with a date; 0: now */
};

/* Which turns a template has a place for. */
struct ig_chat_turns {
	bool system;	      /* a system message at the start */
	bool later_system;    /* further ones, where they stand, a second one at the start too */
	bool user_runs;	      /* several turns of the user in a row */
	bool user_after_tool; /* one right after the result of a tool */
};
/* Of the template that renders in. */
const struct ig_chat_turns *ig_chat_template_turns(const struct ig_chat_template *c,
						   const struct ig_chat_input *in);

/* Append the ids of the conversation (after a BOS where the file requires one and the template
 * has none), then the start of the assistant's turn if add_generation_prompt.  -EINVAL: what is
 * wrong with a message, or the template's own error; -E2BIG: more than max_ids. */
int ig_chat_template_encode_json(const struct ig_chat_template *c, const struct ig_chat_input *in,
				 size_t max_ids, struct ig_ids *out, struct ig_error *err);
/* The same as text; *out is the caller's (free). */
int ig_chat_template_render_json(const struct ig_chat_template *c, const struct ig_chat_input *in,
				 char **out, struct ig_error *err);
