/* waiting.h: replies back from prep, those that wait for their model, and their clocks. */
#pragma once

#include "daemon/protocol/core/reply.h"

/* Deliver what prep is done with; send to it whose model's load has ended. */
void ig_waiting_poll(struct ig_api *api);
/* Keep-alives and ends of waits; as ig_api_tick. */
int64_t ig_waiting_tick(struct ig_api *api, int64_t now_ns);
/* Nothing is loaded any more: what is parked is refused. */
void ig_waiting_drain(struct ig_api *api);
/* A parked reply is its owner's at the next poll, unprepared. */
void ig_reply_end_wait(struct ig_reply *r);
/* What a stream that waits is given now, by write (ig_protocol's wait, or as that); false:
 * nothing is due. */
bool ig_reply_keep_alive(struct ig_reply *r, bool (*write)(struct ig_reply *r, struct ig_strbuf *),
			 struct ig_strbuf *out);
