/* job_threads_private.h: threads that run jobs of one queue.  For work of requests that must hold up
 * neither the sockets nor the steps.
 *
 * Jobs begin in order, but large ones never have all of several threads: what is small waits for none
 * of them.  Of the large ones those of a client come first that has the fewest under way. */
#pragma once

#include "daemon/engine/engine.h"

#define IG_MAX_JOB_THREADS 16
/* Bytes of a prompt from which on a job is large: 500 kB take 10 to 30 ms. */
#define IG_LARGE_JOB_BYTES ((size_t)64 << 10)

struct ig_job_threads;

/* name: for errors.  n_threads: 1 to IG_MAX_JOB_THREADS. */
int ig_job_threads_create(const char *name, uint32_t n_threads, struct ig_job_threads **out,
			  struct ig_error *err);
/* 0, -EAGAIN when 256 jobs wait, -ESHUTDOWN once it is being destroyed. */
int ig_job_threads_run(struct ig_job_threads *t, const struct ig_job *job);
/* Runs what is queued, then stops.  NULL is fine. */
void ig_job_threads_destroy(struct ig_job_threads *t);
