/* waiting.h: replies that return from parsing or prep or wait for their model, and their timers. */
#pragma once

#include "daemon/protocol/core/reply.h"

/* Deliver replies that are parsed or prepared; send those to prep whose model's load has ended. */
void ig_waiting_poll(struct ig_api *api);
/* Keep-alives and timeouts; as ig_api_tick. */
int64_t ig_waiting_tick(struct ig_api *api, int64_t now_ns);
/* No model is loaded any more: refuse all parked replies. */
void ig_waiting_drain(struct ig_api *api);
/* Deliver a parked reply at the next poll, unprepared. */
void ig_reply_end_wait(struct ig_reply *r);
/* Write a keep-alive of a stream that is being prepared, or parked, by write (ig_protocol's wait, or
 * the like); false: none is due. */
bool ig_reply_keep_alive(struct ig_reply *r, bool (*write)(struct ig_reply *r, struct ig_strbuf *),
			 struct ig_strbuf *out);
