/* job_thread.c: see job_thread_private.h.  When the queue is full, requests are refused with
 * Retry-After. */
#include "daemon/engine/job_thread_private.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define N_JOBS 256

struct job {
	void (*fn)(void *ctx);
	void *ctx;
};

struct ig_job_thread {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	/* under the lock */
	struct job jobs[N_JOBS];
	uint32_t first, n;
	bool stopping;
};

static void *run_jobs(void *arg)
{
	struct ig_job_thread *t = arg;

	pthread_mutex_lock(&t->lock);
	for (;;) {
		struct job j;
		while (!t->n && !t->stopping)
			pthread_cond_wait(&t->wake, &t->lock);
		if (!t->n)
			break;
		j = t->jobs[t->first];
		t->first = (t->first + 1) % N_JOBS;
		t->n--;
		pthread_mutex_unlock(&t->lock);
		j.fn(j.ctx);
		pthread_mutex_lock(&t->lock);
	}
	pthread_mutex_unlock(&t->lock);
	return NULL;
}

int ig_job_thread_create(const char *name, struct ig_job_thread **out, struct ig_error *err)
{
	struct ig_job_thread *t = calloc(1, sizeof *t);
	int rc;

	if (!t)
		return ig_fail(err, -ENOMEM, "out of memory for the %s queue", name);
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->wake, NULL);
	rc = pthread_create(&t->thread, NULL, run_jobs, t);
	if (rc) {
		pthread_cond_destroy(&t->wake);
		pthread_mutex_destroy(&t->lock);
		free(t);
		return ig_fail(err, -rc, "the %s thread can't be started: %s", name, strerror(rc));
	}
	*out = t;
	return 0;
}

int ig_job_thread_run(struct ig_job_thread *t, void (*fn)(void *ctx), void *ctx)
{
	int rc = 0;

	pthread_mutex_lock(&t->lock);
	if (t->stopping)
		rc = -ESHUTDOWN;
	else if (t->n == N_JOBS)
		rc = -EAGAIN;
	else {
		t->jobs[(t->first + t->n) % N_JOBS] = (struct job){ fn, ctx };
		t->n++;
		pthread_cond_signal(&t->wake);
	}
	pthread_mutex_unlock(&t->lock);
	return rc;
}

void ig_job_thread_destroy(struct ig_job_thread *t)
{
	if (!t)
		return;
	pthread_mutex_lock(&t->lock);
	t->stopping = true;
	pthread_cond_signal(&t->wake);
	pthread_mutex_unlock(&t->lock);
	pthread_join(t->thread, NULL);
	pthread_cond_destroy(&t->wake);
	pthread_mutex_destroy(&t->lock);
	free(t);
}
