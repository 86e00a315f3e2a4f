/*
 * pool.h: a pool of threads that run one job together.  The caller is one of the threads.  After a
 * job workers poll for about 50 µs, because the next job usually follows at once, and then sleep.
 * A job does not wait for workers that have not entered it.
 */
#pragma once

#include <ingot/op.h>

struct ig_pool;

/* n_threads counts the caller. */
int ig_pool_create(uint32_t n_threads, struct ig_pool **out);
void ig_pool_destroy(struct ig_pool *p); /* NULL is fine */
uint32_t ig_pool_n_threads(const struct ig_pool *p);
/* How often a thread should poll for what another one does before it gives its processor away: a millisecond
 * if each thread has a processor, where a yield would give a neighbour's process a whole slice, and almost
 * not at all if threads of the pool share processors and may wait for this one's. */
uint32_t ig_pool_patience(const struct ig_pool *p);

/* Run job(ctx, i) on up to n_threads threads, i < n_threads; returns when all that started have
 * finished.  job must do all work even if only one thread runs it.  One caller at a time. */
void ig_pool_run(struct ig_pool *p, void (*job)(void *ctx, uint32_t thread), void *ctx);

/* Pause while polling a variable that another thread will change. */
static inline void ig_pool_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}
