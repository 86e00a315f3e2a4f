/* test_pool.c: jobs are done whole, by whichever threads come. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/machine.h"
#include "runtime/cpu/pool.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

struct job {
	atomic_int next, done, threads;
	atomic_uint seen; /* a bit a thread */
	int total;
};

static void work(void *ctx, uint32_t thread)
{
	struct job *j = ctx;

	atomic_fetch_add(&j->threads, 1);
	atomic_fetch_or(&j->seen, 1u << thread);
	while (atomic_fetch_add(&j->next, 1) < j->total)
		atomic_fetch_add(&j->done, 1);
}

static void test_jobs(void **state)
{
	for (uint32_t n = 1; n <= 4; n++) {
		struct ig_pool *p;
		assert_int_equal(ig_pool_create(n, &p), 0);
		assert_int_equal(ig_pool_n_threads(p), n);
		for (int i = 0; i < 3000; i++) {
			struct job j = { .total = i % 50 };
			ig_pool_run(p, work, &j);
			/* nobody is in the job any more: its memory may go */
			assert_int_equal(j.done, j.total);
			assert_true(j.threads >= 1 && j.threads <= (int)n);
			assert_true(j.seen & 1);
			assert_true(j.seen < 1u << n);
			if (i % 500 == 0)
				usleep(2000); /* let the workers fall asleep */
		}
		ig_pool_destroy(p);
	}
}

/* A thread that others wait for needs a processor of theirs. */
static void test_patience(void **state)
{
	struct ig_pool *few, *many;

	assert_int_equal(ig_pool_create(1, &few), 0);
	assert_int_equal(ig_pool_create(ig_machine_cpus() + 1, &many), 0);
	assert_true(ig_pool_patience(few) >= 100 * ig_pool_patience(many));
	ig_pool_destroy(few);
	ig_pool_destroy(many);
}

static void wait_for_all(void *ctx, uint32_t thread)
{
	struct job *j = ctx;
	atomic_fetch_add(&j->threads, 1);
	/* The caller stays until every worker has come: they do come. */
	while (thread == 0 && atomic_load(&j->threads) < j->total)
		usleep(100);
}

static void test_workers_come(void **state)
{
	struct ig_pool *p;
	assert_int_equal(ig_pool_create(4, &p), 0);
	for (int i = 0; i < 20; i++) {
		struct job j = { .total = 4 };
		ig_pool_run(p, wait_for_all, &j);
		assert_int_equal(j.threads, 4);
		usleep(i * 100);
	}
	ig_pool_destroy(p);
}

static void test_limits(void **state)
{
	struct ig_pool *p;
	assert_int_equal(ig_pool_create(0, &p), -EINVAL);
	assert_null(p);
	assert_int_equal(ig_pool_create(5000, &p), -EINVAL);
	ig_pool_destroy(NULL);
	/* Made and ended at once, without a job. */
	assert_int_equal(ig_pool_create(3, &p), 0);
	ig_pool_destroy(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_jobs),
		cmocka_unit_test(test_patience),
		cmocka_unit_test(test_workers_come),
		cmocka_unit_test(test_limits),
	};
	return cmocka_run_group_tests_name("thread pool", tests, NULL, NULL);
}
