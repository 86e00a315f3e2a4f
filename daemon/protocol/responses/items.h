/* items.h: the items of Responses. */
#pragma once

#include "daemon/protocol/core/params.h"

/* Read a text or a list of items into r->items and r->messages. */
int ig_items_read(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e);
/* Append an item, in its one spelling, as a message; items of one turn of the assistant become
 * one message.  0 or -1, out of memory. */
int ig_items_fold(json_t *messages, const json_t *item);
/* Give tool results the names of their calls; a result without a call is an error.  Needs the
 * history; r's messages must not be shared yet. */
int ig_items_link(struct ig_request *r, struct ig_api_error *e);
