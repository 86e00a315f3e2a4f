/* lock.h: a lock and a condition with a wait until a time of ig_now_ns; threads. */
#pragma once

#include <pthread.h>
#include <stdint.h>

/* 0 or -errno. */
int ig_lock_init(pthread_mutex_t *lock, pthread_cond_t *cond);
/* Wait until the condition is signalled or the deadline (INT64_MAX: none); may return early. */
void ig_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t deadline_ns);
/* Start a thread with all signals blocked: they are for the main thread.  0 or -errno. */
int ig_start_thread(pthread_t *out, void *(*run)(void *arg), void *arg);
/* This thread's name, for debuggers and top; at most 15 bytes. */
void ig_name_thread(const char *name);
