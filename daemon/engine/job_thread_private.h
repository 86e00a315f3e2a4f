/* job_thread_private.h: a thread that runs jobs in order.  For work of requests that must hold up
 * neither the sockets nor the steps. */
#pragma once

#include <ingot/error.h>

struct ig_job_thread;

/* name: for errors. */
int ig_job_thread_create(const char *name, struct ig_job_thread **out, struct ig_error *err);
/* 0, -EAGAIN when 256 jobs wait, -ESHUTDOWN once it is being destroyed. */
int ig_job_thread_run(struct ig_job_thread *t, void (*fn)(void *ctx), void *ctx);
/* Runs what is queued, then stops.  NULL is fine. */
void ig_job_thread_destroy(struct ig_job_thread *t);
