/*
 * wake.h: signals from other threads to the loop.  A thread signals a handle: sets its flag and,
 * once for all handles, wakes the loop.  Handles are reused but not freed before the end, so that a
 * late signal is harmless.  All functions but the two for any thread are the loop thread's.
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

/* Any thread: have the loop poll. */
void ig_wake_loop(struct ig_wakes *w);
/* Any thread: signal the handle. */
void ig_wake_signal(void *wake);

/* A handle for which the loop calls fn(ctx) after a signal; NULL without memory. */
struct ig_wake *ig_wake_get(struct ig_wakes *w, void (*fn)(void *ctx), void *ctx);
void ig_wake_put(struct ig_wake *h);
void ig_wakes_init(struct ig_wakes *w, void (*loop)(void *ctx), void *ctx);
/* At the start of a poll: signals from here on wake the loop again. */
void ig_wakes_clear(struct ig_wakes *w);
/* Call the functions of signalled handles. */
void ig_wakes_deliver(struct ig_wakes *w);
void ig_wakes_finish(struct ig_wakes *w); /* no thread may signal any more */
