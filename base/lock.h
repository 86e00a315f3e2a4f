/* lock.h: a lock and a condition that can be waited for until a time of ig_now_ns. */
#pragma once

#include <pthread.h>
#include <stdint.h>

/* 0 or -errno. */
int ig_lock_init(pthread_mutex_t *lock, pthread_cond_t *cond);
/* Until the condition is signalled or the time has come (INT64_MAX: never); or sooner. */
void ig_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t deadline_ns);
