/*
 * wake.h: how news get back to the loop from other threads.
 *
 * Another thread signals a handle: a flag in it, one for all, one wake of the loop.
 * Handles are used again but not freed before the end, so that a late signal hits a handle
 * and at worst costs a look.  All but the two functions for any thread are the loop's.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

struct ig_wake; /* a handle */
struct wake_chunk;

struct ig_wakes {
	void (*loop)(void *ctx); /* any thread: have the loop poll soon */
	void *loop_ctx;
	atomic_bool woken;
	struct ig_wake *all, *idle;
	struct wake_chunk *chunks;
};

/* Any thread: the loop is to poll. */
void ig_wake_loop(struct ig_wakes *w);
/* Any thread: the handle has news. */
void ig_wake_signal(void *wake);

/* A handle that has fn(ctx) called by the loop after signals; NULL without memory. */
struct ig_wake *ig_wake_get(struct ig_wakes *w, void (*fn)(void *ctx), void *ctx);
void ig_wake_put(struct ig_wake *h);
void ig_wakes_init(struct ig_wakes *w, void (*loop)(void *ctx), void *ctx);
/* At the beginning of a poll: a wake from here on is a new one. */
void ig_wakes_clear(struct ig_wakes *w);
/* Call those that were signalled. */
void ig_wakes_deliver(struct ig_wakes *w);
void ig_wakes_finish(struct ig_wakes *w); /* no thread signals any more */
