/* normalize.h: the rules of kvcache.normalize on the conversation of a request. */
#pragma once

#include "base/json.h"

struct ig_reply;

/* Change the texts of the system's messages in list by the rules that hold for the request's model and
 * client, unless it has opted out; a message that has nothing left is removed.  Messages are shared,
 * so changed ones are copies.  r->applied says which rules did.  0, or -1 without memory.  On prep. */
int ig_normalize(struct ig_reply *r, json_t *list);
/* On the loop, once it was prepared: its origin has the rules' names, and the metrics count them. */
void ig_normalize_take(struct ig_reply *r);
