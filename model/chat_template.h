/*
 * chat_template.h: messages to ids, by the model's own template.
 *
 * Templates are recognised (ChatML and its variants); one that is not is
 * refused by name.  The template's own markers become control tokens, a
 * message's content is always tokenised as plain text.  Immutable, any thread.
 */
#ifndef INGOT_MODEL_CHAT_TEMPLATE_H
#define INGOT_MODEL_CHAT_TEMPLATE_H

#include "model/tokenizer.h"

struct ig_chat_template;

struct ig_chat_message {
	const char *role; /* system, user, assistant, … */
	const char *content;
	size_t content_len;
};

/* -ENOTSUP with a description of a template that is not recognised.  A file
 * without a template gives -ENOENT. */
int ig_chat_template_open(const struct ig_gguf *g, const struct ig_tokenizer *t,
			  struct ig_chat_template **out, struct ig_error *err);
void ig_chat_template_close(struct ig_chat_template *c);
const char *ig_chat_template_name(const struct ig_chat_template *c); /* "chatml" … */

/* Append the ids of the conversation (after a BOS where the file asks for one), then
 * the start of the assistant's turn when add_generation_prompt.  -EINVAL names a role
 * that the template refuses. */
int ig_chat_template_encode(const struct ig_chat_template *c, const struct ig_chat_message *m,
			    size_t n, bool add_generation_prompt, size_t max_ids,
			    struct ig_ids *out, struct ig_error *err);
/* The same as text (*out is the caller's, free()): for tests and people. */
int ig_chat_template_render(const struct ig_chat_template *c, const struct ig_chat_message *m,
			    size_t n, bool add_generation_prompt, char **out, struct ig_error *err);

#endif
