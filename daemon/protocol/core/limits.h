/*
 * limits.h: how much one key may ask for: requests at once, requests a minute, tokens
 * a minute.  Requests without a key share one account.
 *
 * Token buckets that hold a minute's worth and fill evenly; the clock is the caller's.
 * Not for threads to share: the loop's.
 */
#pragma once

#include "daemon/protocol/core/errors.h"
#include "store/keys.h"

struct ig_limits;

/* defaults: for what a key's own limits leave at 0; a 0 there is no limit.  NULL: none
 * at all.  NULL on failure. */
struct ig_limits *ig_limits_create(const struct ig_key_limits *defaults);
void ig_limits_destroy(struct ig_limits *l); /* NULL is fine */
/* From now on; what was used counts on. */
void ig_limits_set_defaults(struct ig_limits *l, const struct ig_key_limits *defaults);

/* A request of who that will take about n_tokens (prompt and what is known of the
 * answer).  0: it counts as running until ig_limits_release, and n_tokens are taken from
 * the minute's.  -1 with *e (429, rate_limit_exceeded, when to come again): nothing is
 * counted.  A request larger than a minute's tokens is let in when the bucket is full,
 * and the next waits the longer. */
int ig_limits_admit(struct ig_limits *l, const struct ig_principal *who, int64_t n_tokens,
		    int64_t now_ns, struct ig_api_error *e);
/* A request of who that has to wait before it can be admitted: it counts as one at once
 * until ig_limits_release, and as nothing else.  0, or -1 with *e as above. */
int ig_limits_hold(struct ig_limits *l, const struct ig_principal *who, int64_t now_ns,
		   struct ig_api_error *e);
/* So many more tokens than was said (negative: fewer) were used by a request that was
 * admitted. */
void ig_limits_charge(struct ig_limits *l, const struct ig_principal *who, int64_t n_tokens,
		      int64_t now_ns);
/* A request that was admitted, or held, has ended.  Once each. */
void ig_limits_release(struct ig_limits *l, const struct ig_principal *who);
