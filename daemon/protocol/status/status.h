/* status.h: what the daemon says of itself. */
#ifndef INGOT_PROTOCOL_STATUS_STATUS_H
#define INGOT_PROTOCOL_STATUS_STATUS_H

#include "daemon/protocol/core/exchange.h"

void ig_get_health(struct ig_exchange *x, const struct ig_http_request *r);
void ig_get_metrics(struct ig_exchange *x, const struct ig_http_request *r);
void ig_get_requests(struct ig_exchange *x, const struct ig_http_request *r);
void ig_get_status(struct ig_exchange *x, const struct ig_http_request *r);

#endif
