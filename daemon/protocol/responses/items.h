/* items.h: the items of Responses. */
#pragma once

#include "daemon/protocol/core/params.h"

/* A text, or a list of items: r->items and r->messages. */
int ig_items_read(struct ig_request *r, const char *name, json_t *v, struct ig_api_error *e);
/* Append what an item, in the one spelling, is as messages; what belongs to one turn of the
 * assistant becomes one message.  0 or -1, out of memory. */
int ig_items_fold(json_t *messages, const json_t *item);
/* Results of tools get the names of their calls; one that has no call is an error.  Once the
 * history is there; r's messages must not be shared yet. */
int ig_items_link(struct ig_request *r, struct ig_api_error *e);
