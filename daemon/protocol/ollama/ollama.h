/* ollama.h: Ollama's API, for programs that speak it alone. */
#pragma once

#include "daemon/protocol/core/exchange.h"

extern const struct ig_protocol ig_ollama_chat_protocol, ig_ollama_generate_protocol,
	ig_ollama_show_protocol, ig_ollama_embed_protocol, ig_ollama_embeddings_protocol,
	ig_ollama_pull_protocol;

/* {"error": "text"} */
void ig_ollama_error(struct ig_strbuf *out, const struct ig_api_error *e);

/* GET / */
void ig_ollama_root(struct ig_exchange *x, const struct ig_http_request *r);
void ig_ollama_version(struct ig_exchange *x, const struct ig_http_request *r);
void ig_ollama_tags(struct ig_exchange *x, const struct ig_http_request *r);
void ig_ollama_ps(struct ig_exchange *x, const struct ig_http_request *r);
/* Paths of Ollama's that are not served. */
/* The folder of models was read again: replies that wait for it go on. */
void ig_ollama_pulls_look(struct ig_api *api);
bool ig_ollama_below(struct ig_exchange *x, const struct ig_http_request *r, const char *rest);
