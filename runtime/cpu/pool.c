/*
 * pool.c: see pool.h.  One word has the job's number, whether it is open, and the number of workers
 * in it.  A worker enters by adding one while the job is open; the caller closes it and waits until
 * the count is zero.
 */
#include "runtime/cpu/pool.h"
#include "base/machine.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#define OPEN 0x10000u  /* workers may enter the job */
#define INSIDE 0xffffu /* number of workers in it */
#define NEXT 0x20000u  /* unit of the job's number */

/* Polls before a worker sleeps: about 50 µs on a 3.5 GHz Zen 4, where a pause takes about 40
 * cycles; the engine needs 5 to 20 µs between two steps. */
#define SPINS 4000
/* Polls at a barrier: 0.2 ms there, 0.9 ms where a pause takes 140 cycles. */
#define PATIENCE 20000
/* The same of a pool with more threads than processors.  SmolLM2-135M with 64 threads on 2 processors:
 * docs/performance.md. */
#define SHARED_SPINS 32

struct ig_pool {
	_Alignas(64) atomic_uint_fast64_t word;
	void (*job)(void *ctx, uint32_t thread);
	void *ctx;
	_Alignas(64) atomic_uint sleepers;
	atomic_bool stop;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	uint32_t n_threads;
	uint32_t n_started;
	uint32_t spins, patience; /* SPINS, PATIENCE, or SHARED_SPINS for both */
	struct worker {
		struct ig_pool *pool;
		uint32_t number;
		pthread_t thread;
	} workers[];
};

/* Wait for an open job other than number `seen`; false: the pool stops. */
static bool await_job(struct ig_pool *p, uint_fast64_t seen, uint_fast64_t *word)
{
	for (uint32_t i = p->spins; i > 0; i--) {
		*word = atomic_load_explicit(&p->word, memory_order_acquire);
		if ((*word & OPEN) && *word / NEXT != seen)
			return true;
		if (atomic_load_explicit(&p->stop, memory_order_relaxed))
			return false;
		ig_pool_relax();
	}
	pthread_mutex_lock(&p->lock);
	atomic_fetch_add(&p->sleepers, 1);
	for (;;) {
		*word = atomic_load(&p->word);
		if (((*word & OPEN) && *word / NEXT != seen) || atomic_load(&p->stop))
			break;
		pthread_cond_wait(&p->wake, &p->lock);
	}
	atomic_fetch_sub(&p->sleepers, 1);
	pthread_mutex_unlock(&p->lock);
	return !atomic_load(&p->stop);
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct ig_pool *p = w->pool;
	uint_fast64_t seen = 0, word;

	while (await_job(p, seen, &word)) {
		/* Enter, unless the job has been closed. */
		if (!atomic_compare_exchange_strong(&p->word, &word, word + 1))
			continue;
		seen = word / NEXT;
		p->job(p->ctx, w->number);
		atomic_fetch_sub_explicit(&p->word, 1, memory_order_release);
	}
	return NULL;
}

int ig_pool_create(uint32_t n_threads, struct ig_pool **out)
{
	struct ig_pool *p;
	int rc;

	*out = NULL;
	if (n_threads < 1 || n_threads > 1024)
		return -EINVAL;
	size_t bytes = sizeof *p + (n_threads - 1) * sizeof p->workers[0];
	p = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
	if (!p)
		return -ENOMEM;
	bool shares = n_threads > ig_machine_cpus();
	*p = (struct ig_pool){ .n_threads = n_threads,
			       .spins = shares ? SHARED_SPINS : SPINS,
			       .patience = shares ? SHARED_SPINS : PATIENCE };
	atomic_init(&p->word, NEXT);
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->wake, NULL);
	for (uint32_t i = 0; i + 1 < n_threads; i++) {
		p->workers[i] = (struct worker){ .pool = p, .number = i + 1 };
		rc = pthread_create(&p->workers[i].thread, NULL, work, &p->workers[i]);
		if (rc) {
			ig_pool_destroy(p);
			return -rc;
		}
		p->n_started++;
	}
	*out = p;
	return 0;
}

void ig_pool_destroy(struct ig_pool *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	atomic_store(&p->stop, true);
	pthread_cond_broadcast(&p->wake);
	pthread_mutex_unlock(&p->lock);
	for (uint32_t i = 0; i < p->n_started; i++)
		pthread_join(p->workers[i].thread, NULL);
	pthread_cond_destroy(&p->wake);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

uint32_t ig_pool_n_threads(const struct ig_pool *p) { return p->n_threads; }

uint32_t ig_pool_patience(const struct ig_pool *p) { return p->patience; }

void ig_pool_run(struct ig_pool *p, void (*job)(void *ctx, uint32_t thread), void *ctx)
{
	p->job = job;
	p->ctx = ctx;
	atomic_fetch_add(&p->word, NEXT | OPEN);
	if (atomic_load(&p->sleepers)) {
		pthread_mutex_lock(&p->lock);
		pthread_cond_broadcast(&p->wake);
		pthread_mutex_unlock(&p->lock);
	}
	job(ctx, 0);
	uint_fast64_t word = atomic_fetch_and(&p->word, ~(uint_fast64_t)OPEN) & INSIDE;
	for (uint32_t spins = 0; word; spins++) {
		if (spins > p->spins)
			sched_yield(); /* a worker was preempted */
		ig_pool_relax();
		word = atomic_load_explicit(&p->word, memory_order_acquire) & INSIDE;
	}
}
