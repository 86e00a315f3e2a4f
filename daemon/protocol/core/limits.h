/*
 * limits.h: rate limits of a key: concurrent requests, requests and tokens per minute.  Requests
 * without a key share one account.  Token buckets hold at most a minute's worth and fill evenly;
 * the caller has the clock.  Not thread-safe: the loop thread's.
 */
#pragma once

#include "daemon/protocol/core/errors.h"
#include "store/keys.h"

struct ig_limits;

/* defaults: where a key's own limit is 0; 0 there is no limit.  NULL: no limits at all.
 * Returns NULL without memory. */
struct ig_limits *ig_limits_create(const struct ig_key_limits *defaults);
void ig_limits_destroy(struct ig_limits *l); /* NULL is fine */
/* Applies from now on, to what was used before too. */
void ig_limits_set_defaults(struct ig_limits *l, const struct ig_key_limits *defaults);

/* Admit a request of who with n_tokens (its prompt).  0: it counts as running until
 * ig_limits_release, and n_tokens are taken from the bucket.  -1 with *e (429,
 * rate_limit_exceeded, with retry_after_s): nothing is counted.  A request larger than a
 * minute's tokens is admitted when the bucket is full; the next one waits longer then. */
int ig_limits_admit(struct ig_limits *l, const struct ig_principal *who, int64_t n_tokens,
		    int64_t now_ns, struct ig_api_error *e);
/* A request of who waits for its model before it can be admitted: it counts as concurrent until
 * ig_limits_release, and takes nothing from the buckets.  0, or -1 with *e as above. */
int ig_limits_hold(struct ig_limits *l, const struct ig_principal *who, int64_t now_ns,
		   struct ig_api_error *e);
/* An admitted request has used so many more tokens (negative: fewer). */
void ig_limits_charge(struct ig_limits *l, const struct ig_principal *who, int64_t n_tokens,
		      int64_t now_ns);
/* An admitted or held request has ended.  Once each. */
void ig_limits_release(struct ig_limits *l, const struct ig_principal *who);
