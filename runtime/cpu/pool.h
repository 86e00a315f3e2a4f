/*
 * pool.h: threads that run one job together.
 *
 * The caller is the first of them.  Workers spin for some microseconds after a
 * job, since the next one mostly comes at once, and then sleep.  A job does not
 * need every worker: one that comes too late, or that the system has put aside,
 * is not waited for unless it has begun.
 */
#pragma once

#include <ingot/op.h>

struct ig_pool;

/* n_threads counts the caller. */
int ig_pool_create(uint32_t n_threads, struct ig_pool **out);
void ig_pool_destroy(struct ig_pool *p); /* NULL is fine */
uint32_t ig_pool_n_threads(const struct ig_pool *p);

/* Run job(ctx, i) on up to n_threads threads, i < n_threads, and return when all
 * that began are done.  job must finish all work even if called only once.  One
 * caller at a time. */
void ig_pool_run(struct ig_pool *p, void (*job)(void *ctx, uint32_t thread), void *ctx);

/* Between looks at a variable that another thread will change. */
static inline void ig_pool_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}
