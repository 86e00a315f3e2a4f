/*
 * chat_template.h: messages to ids, by the model's own template (a program in Jinja, see
 * model/jinja/jinja.h).
 *
 * The control tokens of the template's own text, and of the model's tokens that it is
 * given (bos_token …), are control tokens.  What a client wrote is tokenised as plain
 * text, wherever the template puts it.  Immutable, any thread.
 */
#pragma once

#include "model/tokenizer/tokenizer.h"

struct json_t; /* jansson's */
struct ig_chat_template;

struct ig_chat_message {
	const char *role; /* system, user, assistant, … */
	const char *content;
	size_t content_len;
};

/* Compile the file's template, and those that it has under other names.  -ENOTSUP with
 * the line of what is wrong in one.  A file without a template gives -ENOENT. */
int ig_chat_template_open(const struct ig_checkpoint *g, const struct ig_tokenizer *t,
			  struct ig_chat_template **out, struct ig_error *err);
void ig_chat_template_close(struct ig_chat_template *c);
/* "chatml", or "jinja" for one with other markers. */
const char *ig_chat_template_name(const struct ig_chat_template *c);
/* The source of the i-th of its templates (0: the default one), *len bytes; NULL: there
 * are no more. */
const char *ig_chat_template_source(const struct ig_chat_template *c, size_t i, size_t *len);

/* A conversation as templates see it: messages in the form of OpenAI's chat completions,
 * with tool_calls, tool_call_id, reasoning_content and so on where they have them. */
struct ig_chat_input {
	const struct json_t *messages; /* a list of objects, each with a role */
	const struct json_t *tools; /* a list of {"type": "function", "function": …}; NULL: none */
	const struct json_t
		*extra; /* an object: further variables (enable_thinking …); NULL: none */
	bool add_generation_prompt;
	const char *variant; /* the template's name; NULL: "tool_use" for tools, if there is one */
	int64_t now_s;	     /* for templates that tell the date; 0: the clock's */
};

/* Append the ids of the conversation (after a BOS where the file asks for one and the
 * template has none), then the start of the assistant's turn when add_generation_prompt.
 * -EINVAL: what a message lacks, or why the template refuses; -E2BIG past max_ids. */
int ig_chat_template_encode_json(const struct ig_chat_template *c, const struct ig_chat_input *in,
				 size_t max_ids, struct ig_ids *out, struct ig_error *err);
/* The same as text (*out is the caller's, free()): for tests and people. */
int ig_chat_template_render_json(const struct ig_chat_template *c, const struct ig_chat_input *in,
				 char **out, struct ig_error *err);

/* Both for messages of role and text only. */
int ig_chat_template_encode(const struct ig_chat_template *c, const struct ig_chat_message *m,
			    size_t n, bool add_generation_prompt, size_t max_ids,
			    struct ig_ids *out, struct ig_error *err);
int ig_chat_template_render(const struct ig_chat_template *c, const struct ig_chat_message *m,
			    size_t n, bool add_generation_prompt, char **out, struct ig_error *err);
