/*
 * rerank_template.h: the prompt of a reranker that was trained on a chat: a text of the file's
 * (tokenizer.chat_template.rerank, of llama.cpp's converter) in which {query} and {document} stand for what
 * a client sent.  Only the template's own text becomes control tokens.  Immutable, any thread.
 */
#pragma once

#include "model/tokenizer/tokenizer.h"

struct ig_rerank_template;

/* *out is NULL if the file has none and the tokenizer knows what is between a query and a text.  -ENOTSUP
 * if it does not; -EINVAL unless the template has {query} and, once, {document}. */
int ig_rerank_template_open(const struct ig_checkpoint *g, const struct ig_tokenizer *t,
			    struct ig_rerank_template **out, struct ig_error *err);
void ig_rerank_template_close(struct ig_rerank_template *c); /* NULL is fine */

/* Append the ids of the prompt, at most max_ids: of the document as many as there is room for, and at most
 * max_document (0: any number).  0; -E2BIG: nothing is left for the document; -ENOMEM. */
int ig_rerank_template_encode(const struct ig_rerank_template *c, const char *query, size_t n_query,
			      const char *document, size_t n_document, size_t max_document,
			      size_t max_ids, struct ig_ids *out);
