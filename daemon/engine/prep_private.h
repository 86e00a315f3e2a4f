/* prep_private.h: a thread that runs jobs in order; see prep.c. */
#pragma once

#include <ingot/error.h>

struct ig_prep;

int ig_prep_create(struct ig_prep **out, struct ig_error *err);
/* 0, -EAGAIN when 256 jobs wait, -ESHUTDOWN once it is being destroyed. */
int ig_prep_run(struct ig_prep *p, void (*fn)(void *ctx), void *ctx);
/* Runs what is queued, then stops.  NULL is fine. */
void ig_prep_destroy(struct ig_prep *p);
