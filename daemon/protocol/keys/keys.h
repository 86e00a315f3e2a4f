/* keys.h: API keys, for administrators. */
#pragma once

#include "daemon/protocol/core/exchange.h"

extern const struct ig_protocol ig_add_key_protocol;

void ig_get_keys(struct ig_exchange *x, const struct ig_http_request *r);
/* DELETE /v1/ingot/keys/{id} */
bool ig_keys_below(struct ig_exchange *x, const struct ig_http_request *r, const char *id);
