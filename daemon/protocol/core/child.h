/* child.h: a program that runs for a reply, and its output line by line.  A thread of its own
 * starts it and reads; the loop, which has all other functions, takes the lines. */
#pragma once

#include "base/strbuf.h"
#include "daemon/protocol/core/wake.h"

#include <ingot/error.h>

struct ig_child;

/* Start the program argv[0], a path, with empty standard input, our standard error and its standard
 * output read; the arguments are copied.  The loop calls news(ctx) when there is a line or it has
 * ended.  NULL without memory or threads. */
struct ig_child *ig_child_start(struct ig_wakes *wakes, const char *const *argv,
				void (*news)(void *ctx), void *ctx);
/* Move the next whole line, without its end, to out, which is cleared; false: none now. */
bool ig_child_take(struct ig_child *c, struct ig_strbuf *out);
/* It has ended, and all its lines were taken. */
bool ig_child_has_ended(struct ig_child *c);
/* Once it has ended: its exit status, or 128 and the signal that killed it; negative: it could not
 * be started (-errno). */
int ig_child_status(struct ig_child *c);
/* SIGTERM for the program and those that it started; NULL is fine. */
void ig_child_stop(struct ig_child *c);
/* The same, and nobody wants its output; NULL is fine. */
void ig_child_end(struct ig_child *c);
