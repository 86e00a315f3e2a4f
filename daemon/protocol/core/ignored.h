/* ignored.h: what requests have that is not known here, told to whoever runs the server. */
#pragma once

#include "base/hash.h"

#include <stddef.h>

struct ig_reply;

#define IG_IGNORED_SEEN 2048

/* What the log has said: a hash of client and name each.  The loop's. */
struct ig_ignored {
	struct ig_hash_key key;
	uint64_t seen[IG_IGNORED_SEEN];
	size_t n;
};

void ig_ignored_init(struct ig_ignored *g);
/* A request was parsed or prepared: what is new in its list goes to its origin, from where reply and
 * ledger have it; the log names each entry once for each client, and the metrics count it. */
void ig_ignored_take(struct ig_reply *r);
