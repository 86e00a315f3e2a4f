/* job_threads.c: see job_threads_private.h.  When the queue is full, requests are refused with
 * Retry-After. */
#include "daemon/engine/job_threads_private.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define N_JOBS 256

struct ig_job_threads {
	pthread_t threads[IG_MAX_JOB_THREADS];
	uint32_t n_threads;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	/* under the lock */
	struct ig_job jobs[N_JOBS]; /* [n], the oldest first */
	uint32_t n;
	struct ig_job large[IG_MAX_JOB_THREADS]; /* [n_large], under way */
	uint32_t n_large;
	bool stopping;
};

static bool is_large(const struct ig_job *j) { return j->n_bytes >= IG_LARGE_JOB_BYTES; }

/* Large jobs of j's client that are under way, if j is one, too. */
static uint32_t n_under_way(const struct ig_job_threads *t, const struct ig_job *j)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < t->n_large && is_large(j); i++)
		n += t->large[i].client == j->client;
	return n;
}

/* The job that is next; n: none may begin now. */
static uint32_t choose(const struct ig_job_threads *t)
{
	bool full = t->n_threads > 1 && t->n_large >= t->n_threads - 1;
	uint32_t best = t->n, least = UINT32_MAX;

	for (uint32_t i = 0; i < t->n && least; i++) {
		const struct ig_job *j = &t->jobs[i];
		if (full && is_large(j))
			continue;
		if (n_under_way(t, j) >= least)
			continue;
		least = n_under_way(t, j);
		best = i;
	}
	return best;
}

static void begin_large(struct ig_job_threads *t, const struct ig_job *j)
{
	t->large[t->n_large++] = *j;
}

static void end_large(struct ig_job_threads *t, const struct ig_job *j)
{
	uint32_t i = 0;

	while (t->large[i].ctx != j->ctx || t->large[i].fn != j->fn)
		i++;
	t->large[i] = t->large[--t->n_large];
}

static void *run_jobs(void *arg)
{
	struct ig_job_threads *t = arg;

	pthread_mutex_lock(&t->lock);
	for (;;) {
		uint32_t i;
		while ((i = choose(t)) == t->n && !(t->stopping && !t->n))
			pthread_cond_wait(&t->wake, &t->lock);
		if (i == t->n)
			break;
		struct ig_job j = t->jobs[i];
		t->n--;
		memmove(t->jobs + i, t->jobs + i + 1, (t->n - i) * sizeof *t->jobs);
		if (is_large(&j))
			begin_large(t, &j);
		pthread_mutex_unlock(&t->lock);
		j.fn(j.ctx);
		pthread_mutex_lock(&t->lock);
		if (is_large(&j))
			end_large(t, &j);
		if (t->stopping) /* others may wait for the last of the queue, or for a large one */
			pthread_cond_broadcast(&t->wake);
	}
	pthread_mutex_unlock(&t->lock);
	return NULL;
}

int ig_job_threads_create(const char *name, uint32_t n_threads, struct ig_job_threads **out,
			  struct ig_error *err)
{
	struct ig_job_threads *t = calloc(1, sizeof *t);
	int rc;

	if (!t)
		return ig_fail(err, -ENOMEM, "out of memory for the %s queue", name);
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->wake, NULL);
	while (t->n_threads < n_threads) {
		rc = pthread_create(&t->threads[t->n_threads], NULL, run_jobs, t);
		if (rc) {
			ig_job_threads_destroy(t);
			return ig_fail(err, -rc, "the %s thread can't be started: %s", name,
				       strerror(rc));
		}
		pthread_mutex_lock(&t->lock);
		t->n_threads++;
		pthread_mutex_unlock(&t->lock);
	}
	*out = t;
	return 0;
}

int ig_job_threads_run(struct ig_job_threads *t, const struct ig_job *job)
{
	int rc = 0;

	pthread_mutex_lock(&t->lock);
	if (t->stopping)
		rc = -ESHUTDOWN;
	else if (t->n == N_JOBS)
		rc = -EAGAIN;
	else {
		t->jobs[t->n++] = *job;
		pthread_cond_signal(&t->wake);
	}
	pthread_mutex_unlock(&t->lock);
	return rc;
}

void ig_job_threads_destroy(struct ig_job_threads *t)
{
	if (!t)
		return;
	pthread_mutex_lock(&t->lock);
	t->stopping = true;
	pthread_cond_broadcast(&t->wake);
	pthread_mutex_unlock(&t->lock);
	for (uint32_t i = 0; i < t->n_threads; i++)
		pthread_join(t->threads[i], NULL);
	pthread_cond_destroy(&t->wake);
	pthread_mutex_destroy(&t->lock);
	free(t);
}
