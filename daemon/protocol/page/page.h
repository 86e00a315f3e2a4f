/* page.h: the page for browsers. */
#pragma once

#include "daemon/protocol/core/exchange.h"

/* GET /: the page for a browser; for others what Ollama's clients look for. */
void ig_page_root(struct ig_exchange *x, const struct ig_http_request *r);
/* GET /ui */
void ig_page_get(struct ig_exchange *x, const struct ig_http_request *r);
bool ig_page_below(struct ig_exchange *x, const struct ig_http_request *r, const char *name);
