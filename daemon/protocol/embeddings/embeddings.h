/* embeddings.h: vectors of texts, and scores of texts for a query. */
#pragma once

#include "daemon/protocol/core/params.h"
#include "daemon/protocol/core/protocol.h"

extern const struct ig_protocol ig_embeddings_protocol, ig_rerank_protocol;
extern const struct ig_request_format ig_embeddings_request, ig_rerank_request;

#define IG_MAX_TEXTS 2048 /* of one request; as OpenAI's */

/* r->prompts from a text, or a list of texts; with ids also from a list of tokens, or a list of those. */
int ig_read_texts(struct ig_request *r, const char *name, json_t *v, bool ids,
		  struct ig_api_error *e);

/* The vector of text i: cut to the request's dimensions and of length 1, or as it is (raw).  out
 * [*n]: NULL without memory; the caller's. */
float *ig_embedding(const struct ig_reply *r, uint32_t i, uint32_t *n);
/* A list of numbers. */
void ig_put_vector(struct ig_json_writer *w, const char *key, const float *v, uint32_t n);
