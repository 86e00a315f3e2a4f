/* status.h: what the daemon says of itself. */
#pragma once

#include "daemon/protocol/core/exchange.h"

void ig_get_health(struct ig_exchange *x, const struct ig_http_request *r);
void ig_get_metrics(struct ig_exchange *x, const struct ig_http_request *r);
void ig_get_requests(struct ig_exchange *x, const struct ig_http_request *r);
/* The list of running requests. */
void ig_status_write_requests(struct ig_api *api, struct ig_strbuf *out);
/* DELETE /v1/ingot/requests/{id} */
bool ig_requests_below(struct ig_exchange *x, const struct ig_http_request *r, const char *id);
/* The object of GET /v1/ingot/status. */
void ig_status_write(struct ig_api *api, struct ig_strbuf *out);
void ig_get_status(struct ig_exchange *x, const struct ig_http_request *r);
