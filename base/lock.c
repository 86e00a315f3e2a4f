/* lock.c: see lock.h. */
#include "base/lock.h"

#include "base/clock.h"

#include <signal.h>

int ig_lock_init(pthread_mutex_t *lock, pthread_cond_t *cond)
{
	pthread_condattr_t attr;
	int rc = pthread_mutex_init(lock, NULL);

	if (rc)
		return -rc;
	pthread_condattr_init(&attr);
#ifndef __APPLE__
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
#endif
	rc = pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
	if (rc)
		pthread_mutex_destroy(lock);
	return -rc;
}

void ig_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t deadline_ns)
{
	struct timespec ts;
	int64_t left;

	if (deadline_ns == INT64_MAX) {
		pthread_cond_wait(cond, lock);
		return;
	}
	left = deadline_ns - ig_now_ns();
	if (left <= 0)
		return;
#ifdef __APPLE__
	ts = (struct timespec){ left / 1000000000, left % 1000000000 };
	pthread_cond_timedwait_relative_np(cond, lock, &ts);
#else
	ts = (struct timespec){ deadline_ns / 1000000000, deadline_ns % 1000000000 };
	pthread_cond_timedwait(cond, lock, &ts); /* CLOCK_MONOTONIC */
#endif
}

int ig_start_thread(pthread_t *out, void *(*run)(void *arg), void *arg)
{
	sigset_t all, before;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int rc = pthread_create(out, NULL, run, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -rc;
}

void ig_name_thread(const char *name)
{
#ifdef __APPLE__
	pthread_setname_np(name);
#else
	pthread_setname_np(pthread_self(), name);
#endif
}
