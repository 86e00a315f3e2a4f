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

static void count_wake(void *ctx) { atomic_fetch_add((atomic_int *)ctx, 1); }

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
		assert_false(ig_stream_has_space(s, 4));
		assert_true(ig_stream_has_space(s, 3));
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

/* The reader is woken for the number of cached tokens too, which may be none. */
static void test_begin(void **state)
{
	atomic_int wakes = 0;
	struct ig_stream *s = ig_stream_create(20, count_wake, &wakes);

	assert_int_equal(ig_stream_n_cached(s), -1);
	ig_stream_begin(s, 0, &(struct ig_prefix_report){ .n_same = 7 });
	assert_int_equal(ig_stream_n_cached(s), 0);
	assert_int_equal(ig_stream_report(s).n_same, 7);
	assert_int_equal(wakes, 1);
	ig_stream_unref(s);
	ig_stream_unref(s);
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

static void test_end(void **state)
{
	atomic_int wakes = 0;
	struct ig_stream *s = ig_stream_create(0, count_wake, &wakes);
	struct ig_gen_result in = { .finish = IG_FINISH_STOP, .n_prompt = 7, .n_output = 3 };
	struct ig_gen_result out;
	char buf[16];

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
	assert_int_equal(wakes, 2);
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

/* ---- logprobs ------------------------------------------------------------------------ */

static struct ig_token_logprob logprob_at(uint64_t text_end, int32_t id)
{
	return (struct ig_token_logprob){ .id = id,
					  .logprob = -1.5f,
					  .text_end = text_end,
					  .n_top = 1,
					  .top = { { id + 1, -0.5f } } };
}

static void test_logprobs(void **state)
{
	atomic_int wakes = 0;
	struct ig_stream *s = ig_stream_create(64, count_wake, &wakes);
	struct ig_token_logprob logprob = logprob_at(5, 1), got[4];
	struct ig_gen_result r = { .finish = IG_FINISH_STOP };
	char buf[64];

	assert_false(ig_stream_has_logprobs(s));
	assert_int_equal(ig_stream_put_logprob(s, &logprob), -EAGAIN);
	assert_int_equal(ig_stream_take_logprobs(s, got, 4), 0);
	assert_int_equal(ig_stream_enable_logprobs(s, 3), 0);
	assert_true(ig_stream_has_logprobs(s));
	for (uint64_t round = 0; round < 20; round++) { /* and round the ring */
		uint64_t at = round * 12;
		int64_t before;

		for (int32_t i = 0; i < 3; i++) {
			logprob = logprob_at(at + (i < 1 ? 5 : i < 2 ? 5 : 12), 10 + i);
			assert_true(ig_stream_has_logprob_space(s));
			assert_int_equal(ig_stream_put_logprob(s, &logprob), 0);
		}
		assert_false(ig_stream_has_logprob_space(s));
		assert_int_equal(ig_stream_put_logprob(s, &logprob), -EAGAIN);
		assert_int_equal(ig_stream_take_logprobs(s, got, 4),
				 0); /* their text comes first */
		assert_int_equal(ig_stream_put(s, "hello, you!!", 12), 0);
		assert_int_equal(ig_stream_take_logprobs(s, got, 4), 0);
		assert_int_equal(ig_stream_take(s, buf, 4), 4);
		assert_int_equal(ig_stream_take_logprobs(s, got, 4), 0);
		assert_int_equal(ig_stream_take(s, buf, 2), 2);
		assert_int_equal(ig_stream_take_logprobs(s, got, 1), 1);
		assert_int_equal(got[0].id, 10);
		before = ig_stream_last_take_ns(s);
		usleep(100);
		assert_int_equal(ig_stream_take_logprobs(s, got, 4), 1); /* one without text */
		assert_true(ig_stream_last_take_ns(s) > before);
		assert_int_equal(got[0].id, 11);
		assert_int_equal(got[0].text_end, at + 5);
		assert_int_equal(ig_stream_take(s, buf, 64), 6);
		if (round == 19)
			ig_stream_finish(s, &r);
		assert_false(ig_stream_finished(s, &r)); /* a logprob is still there */
		assert_int_equal(ig_stream_take_logprobs(s, got, 4), 1);
		assert_int_equal(got[0].id, 12);
		assert_int_equal(got[0].n_top, 1);
		assert_int_equal(got[0].top[0].id, 13);
		assert_true(got[0].logprob == -1.5f && got[0].top[0].logprob == -0.5f);
	}
	assert_true(ig_stream_finished(s, &r));
	assert_int_equal(wakes, 20 * 4 + 1);
	ig_stream_unref(s);
	ig_stream_unref(s);
	/* space for none is space for one */
	s = ig_stream_create(64, NULL, NULL);
	assert_int_equal(ig_stream_enable_logprobs(s, 0), 0);
	assert_int_equal(ig_stream_put_logprob(s, &logprob), 0);
	assert_int_equal(ig_stream_put_logprob(s, &logprob), -EAGAIN);
	ig_stream_unref(s);
	ig_stream_unref(s);
}

/* A logprob was written before text that never came. */
static void test_logprob_without_its_text(void **state)
{
	struct ig_stream *s = ig_stream_create(64, NULL, NULL);
	struct ig_token_logprob logprob = logprob_at(3, 1), got[4];
	struct ig_gen_result r = { .finish = IG_FINISH_CANCELLED };
	char buf[8];

	assert_int_equal(ig_stream_enable_logprobs(s, 8), 0);
	assert_int_equal(ig_stream_put_logprob(s, &logprob), 0);
	assert_int_equal(ig_stream_put(s, "abc", 3), 0);
	logprob = logprob_at(9, 2);
	assert_int_equal(ig_stream_put_logprob(s, &logprob), 0);
	assert_int_equal(ig_stream_put(s, "de", 2), 0);
	ig_stream_finish(s, &r);
	assert_int_equal(ig_stream_take(s, buf, 8), 5);
	assert_false(ig_stream_finished(s, &r));
	assert_int_equal(ig_stream_take_logprobs(s, got, 4), 1);
	assert_int_equal(got[0].id, 1);
	assert_true(ig_stream_finished(s, &r));
	ig_stream_unref(s);
	ig_stream_unref(s);
}

#define N_TOKENS 100000

/* Tokens of 0 to 6 bytes, each after its logprob. */
static void *write_tokens(void *arg)
{
	struct ig_stream *s = arg;
	struct ig_gen_result r = { .finish = IG_FINISH_LENGTH };
	uint64_t at = 0;

	for (int32_t i = 0; i < N_TOKENS; i++) {
		size_t n = (size_t)(i * 7 % 11) % 7;
		struct ig_token_logprob logprob = logprob_at(at + n, i);

		while (ig_stream_put_logprob(s, &logprob) == -EAGAIN)
			sched_yield();
		while (ig_stream_put(s, "abcdef", n) == -EAGAIN)
			sched_yield();
		at += n;
	}
	ig_stream_finish(s, &r);
	ig_stream_unref(s);
	return NULL;
}

static void test_logprobs_of_two_threads(void **state)
{
	struct ig_stream *s = ig_stream_create(23, NULL, NULL);
	struct ig_gen_result r;
	uint64_t at = 0, end = 0;
	int32_t next = 0;
	pthread_t t;

	assert_int_equal(ig_stream_enable_logprobs(s, 5), 0);
	assert_int_equal(pthread_create(&t, NULL, write_tokens, s), 0);
	while (!ig_stream_finished(s, &r)) {
		struct ig_token_logprob got[3];
		char buf[64];
		size_t n_text = ig_stream_take(s, buf, sizeof buf), n;

		at += n_text;
		for (bool more = true; more;) {
			n = ig_stream_take_logprobs(s, got, 3);
			more = n == 3;
			for (size_t i = 0; i < n; i++) {
				assert_int_equal(got[i].id, next);
				assert_int_equal(got[i].top[0].id, next + 1);
				assert_true(got[i].text_end >= end && got[i].text_end <= at);
				end = got[i].text_end;
				next++;
			}
		}
		assert_int_equal(end, at); /* all text that was taken has its logprobs */
		if (!n_text)
			sched_yield();
	}
	assert_int_equal(next, N_TOKENS);
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
		cmocka_unit_test(test_begin),
		cmocka_unit_test(test_whole_characters),
		cmocka_unit_test(test_end),
		cmocka_unit_test(test_two_threads),
		cmocka_unit_test(test_logprobs),
		cmocka_unit_test(test_logprob_without_its_text),
		cmocka_unit_test(test_logprobs_of_two_threads),
		cmocka_unit_test(test_names),
	};
	return cmocka_run_group_tests_name("stream", tests, NULL, NULL);
}
