/* events.h: the WebSocket of changes. */
#pragma once

#include "daemon/protocol/core/exchange.h"

#define IG_EVENTS_PATH "/v1/ingot/events"

struct ig_session *ig_events_open(struct ig_api *api, const char *request_id, const char *client,
				  const struct ig_principal *who, void *conn);
void ig_events_init(struct ig_events *e);
void ig_events_finish(struct ig_events *e); /* no session is left */
/* Look for changes, if there is a session and it is time; as ig_api_tick. */
int64_t ig_events_tick(struct ig_api *api, int64_t now_ns);
void ig_events_drain(struct ig_api *api);
