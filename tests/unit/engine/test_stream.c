/* test_stream.c: the ring between the engine's thread and the loop's. */
#include "daemon/engine/stream.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void count_wake(void *ctx)
{
	atomic_fetch_add((atomic_int *)ctx, 1);
}

static void test_put_take_wraps(void **state)
{
	atomic_int wakes = 0;
	struct ig_stream *s = ig_stream_create(20, count_wake, &wakes);
	char buf[64];

	assert_non_null(s);
	assert_int_equal(ig_stream_take(s, buf, sizeof buf), 0);
	for (int i = 0; i < 50; i++) {
		assert_int_equal(ig_stream_put(s, "hello, you", 10), 0);
		assert_int_equal(ig_stream_put(s, "1234567", 7), 0);
		assert_int_equal(ig_stream_put(s, "abcd", 4), -EAGAIN);
		assert_false(ig_stream_has_room(s, 4));
		assert_true(ig_stream_has_room(s, 3));
		assert_int_equal(ig_stream_take(s, buf, 5), 5);
		assert_memory_equal(buf, "hello", 5);
		assert_int_equal(ig_stream_take(s, buf, sizeof buf), 12);
		assert_memory_equal(buf, ", you1234567", 12);
	}
	assert_int_equal(wakes, 100);
	ig_stream_unref(s);
	ig_stream_unref(s);
	ig_stream_unref(NULL);
}

static void test_whole_characters(void **state)
{
	struct ig_stream *s = ig_stream_create(64, NULL, NULL);
	char buf[64];
	static const char text[] = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z"; /* 1 2 3 4 1 */

	assert_int_equal(ig_stream_put(s, text, 11), 0);
	assert_int_equal(ig_stream_take(s, buf, 2), 1);
	assert_int_equal(ig_stream_take(s, buf, 1), 0);
	assert_int_equal(ig_stream_take(s, buf, 4), 2);
	assert_int_equal(ig_stream_take(s, buf, 6), 3);
	assert_memory_equal(buf, "\xe2\x82\xac", 3);
	assert_int_equal(ig_stream_take(s, buf, 3), 0);
	assert_int_equal(ig_stream_take(s, buf, 4), 4);
	assert_int_equal(ig_stream_take(s, buf, 4), 1);
	/* bytes that are no character at all must not block the reader */
	assert_int_equal(ig_stream_put(s, "\x80\x80\x80\x80\x80\x80\x80\x80", 8), 0);
	assert_int_equal(ig_stream_take(s, buf, 6), 6);
	assert_int_equal(ig_stream_take(s, buf, 6), 2);
	ig_stream_unref(s);
	ig_stream_unref(s);
}

static void test_progress_and_end(void **state)
{
	atomic_int wakes = 0;
	struct ig_stream *s = ig_stream_create(0, count_wake, &wakes);
	struct ig_gen_result in = { .finish = IG_FINISH_STOP, .n_prompt = 7, .n_output = 3 };
	struct ig_gen_result out;
	int32_t done, total;
	char buf[16];

	assert_false(ig_stream_prefill(s, &done, &total));
	ig_stream_set_prefill(s, 0, 7, 0);
	assert_true(ig_stream_prefill(s, &done, &total));
	assert_int_equal(done, 0);
	assert_int_equal(total, 7);
	assert_int_equal(ig_stream_put(s, "0123456789abcdef", 16), 0); /* 16 at the least */
	assert_false(ig_stream_finished(s, &out));
	strcpy(in.cancel_reason, "none");
	ig_stream_finish(s, &in);
	assert_false(ig_stream_finished(s, &out)); /* text is still there */
	int64_t before = ig_stream_last_take_ns(s);
	usleep(1000);
	assert_int_equal(ig_stream_take(s, buf, 16), 16);
	assert_true(ig_stream_last_take_ns(s) > before);
	assert_true(ig_stream_finished(s, &out));
	assert_int_equal(out.finish, IG_FINISH_STOP);
	assert_int_equal(out.n_output, 3);
	assert_string_equal(out.cancel_reason, "none");
	assert_int_equal(wakes, 3);
	ig_stream_unref(s);
	ig_stream_unref(s);
	assert_null(ig_stream_create((size_t)1 << 40, NULL, NULL));
}

#define N_BYTES 2000000

static void *write_all(void *arg)
{
	struct ig_stream *s = arg;
	struct ig_gen_result r = { .finish = IG_FINISH_LENGTH, .n_output = 42 };
	unsigned rng = 1;
	char piece[40];

	for (size_t at = 0; at < N_BYTES;) {
		rng = rng * 1664525u + 1013904223u;
		size_t n = 1 + (rng >> 16) % sizeof piece;
		if (n > N_BYTES - at)
			n = N_BYTES - at;
		for (size_t i = 0; i < n; i++)
			piece[i] = (char)('!' + (at + i) % 90);
		while (ig_stream_put(s, piece, n) == -EAGAIN)
			sched_yield();
		at += n;
	}
	ig_stream_finish(s, &r);
	ig_stream_unref(s);
	return NULL;
}

static void test_two_threads(void **state)
{
	struct ig_stream *s = ig_stream_create(97, NULL, NULL);
	struct ig_gen_result r;
	pthread_t t;
	size_t at = 0;
	char buf[31];

	assert_int_equal(pthread_create(&t, NULL, write_all, s), 0);
	while (!ig_stream_finished(s, &r)) {
		size_t n = ig_stream_take(s, buf, 1 + at % sizeof buf);
		if (!n)
			sched_yield();
		for (size_t i = 0; i < n; i++)
			if (buf[i] != (char)('!' + (at + i) % 90))
				fail_msg("byte %zu is wrong", at + i);
		at += n;
	}
	assert_int_equal(at, N_BYTES);
	assert_int_equal(r.finish, IG_FINISH_LENGTH);
	assert_int_equal(r.n_output, 42);
	pthread_join(t, NULL);
	ig_stream_unref(s);
}

static void test_names(void **state)
{
	assert_string_equal(ig_finish_name(IG_FINISH_STOP), "stop");
	assert_string_equal(ig_finish_name(IG_FINISH_LENGTH), "length");
	assert_string_equal(ig_finish_name(IG_FINISH_CANCELLED), "cancelled");
	assert_string_equal(ig_finish_name(IG_FINISH_ERROR), "error");
	assert_string_equal(ig_finish_name(IG_FINISH_NONE), "none");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_put_take_wraps),
		cmocka_unit_test(test_whole_characters),
		cmocka_unit_test(test_progress_and_end),
		cmocka_unit_test(test_two_threads),
		cmocka_unit_test(test_names),
	};
	return cmocka_run_group_tests_name("stream", tests, NULL, NULL);
}
