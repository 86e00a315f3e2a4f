/*
 * prep.c: a thread that runs jobs in order.  The engine has two: one for the JSON of requests, one
 * for templates, tokenizing and grammars, which must block neither the sockets nor the engine.  The
 * queue is bounded; when it is full, requests are refused with Retry-After.
 */
#include "daemon/engine/prep_private.h"

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

struct ig_prep {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	/* under the lock */
	struct job jobs[N_JOBS];
	uint32_t first, n;
	bool stopping;
};

static void *prep_main(void *arg)
{
	struct ig_prep *p = arg;

	pthread_mutex_lock(&p->lock);
	for (;;) {
		struct job j;
		while (!p->n && !p->stopping)
			pthread_cond_wait(&p->wake, &p->lock);
		if (!p->n)
			break;
		j = p->jobs[p->first];
		p->first = (p->first + 1) % N_JOBS;
		p->n--;
		pthread_mutex_unlock(&p->lock);
		j.fn(j.ctx);
		pthread_mutex_lock(&p->lock);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

int ig_prep_create(struct ig_prep **out, struct ig_error *err)
{
	struct ig_prep *p = calloc(1, sizeof *p);
	int rc;

	if (!p)
		return ig_fail(err, -ENOMEM, "out of memory for the prep queue");
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->wake, NULL);
	rc = pthread_create(&p->thread, NULL, prep_main, p);
	if (rc) {
		pthread_cond_destroy(&p->wake);
		pthread_mutex_destroy(&p->lock);
		free(p);
		return ig_fail(err, -rc, "the prep thread can't be started: %s", strerror(rc));
	}
	*out = p;
	return 0;
}

int ig_prep_run(struct ig_prep *p, void (*fn)(void *ctx), void *ctx)
{
	int rc = 0;

	pthread_mutex_lock(&p->lock);
	if (p->stopping)
		rc = -ESHUTDOWN;
	else if (p->n == N_JOBS)
		rc = -EAGAIN;
	else {
		p->jobs[(p->first + p->n) % N_JOBS] = (struct job){ fn, ctx };
		p->n++;
		pthread_cond_signal(&p->wake);
	}
	pthread_mutex_unlock(&p->lock);
	return rc;
}

void ig_prep_destroy(struct ig_prep *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->stopping = true;
	pthread_cond_signal(&p->wake);
	pthread_mutex_unlock(&p->lock);
	pthread_join(p->thread, NULL);
	pthread_cond_destroy(&p->wake);
	pthread_mutex_destroy(&p->lock);
	free(p);
}
