/* test_link.c: messages between ranks, over a transport between threads. */
#include "runtime/machines/link.h"
#include "base/build_id.h"
#include "tests/unit/runtime/loopback.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define SOON_MS 30000u /* for what must come */

static void open_links(struct ig_link **links, uint32_t n, uint32_t silence_ms)
{
	const struct ig_link_options o = { &loopback, silence_ms };

	loopback_begin(n);
	for (uint32_t i = 0; i < n; i++) {
		assert_int_equal(ig_link_open(&o, &links[i], NULL), 0);
		assert_int_equal(ig_link_rank(links[i]), i);
		assert_int_equal(ig_link_n_ranks(links[i]), n);
	}
}

static void put(struct ig_link *l, uint32_t to, enum ig_channel channel, uint32_t kind, size_t n)
{
	struct ig_message *m = ig_message_create(kind, n);

	assert_non_null(m);
	memset(m->data, (int)kind, n);
	assert_int_equal(ig_link_send(l, to, channel, m, NULL), 0);
}

/* In order on each channel, of every size. */
static void test_messages(void **state)
{
	struct ig_link *links[3];
	struct ig_message *m;

	open_links(links, 3, SOON_MS);
	for (uint32_t i = 0; i < 100; i++) {
		put(links[0], 1, IG_CHANNEL_COMMANDS, i, i * i * 10);
		put(links[0], 1, IG_CHANNEL_ROWS, 200 + i, 0);
		put(links[2], 0, IG_CHANNEL_RESULTS, i, 7);
	}
	for (uint32_t i = 0; i < 100; i++) {
		assert_int_equal(ig_link_receive(links[1], IG_CHANNEL_ROWS, SOON_MS, &m, NULL), 0);
		assert_int_equal(m->kind, 200 + i);
		assert_int_equal(m->n_bytes, 0);
		free(m);
		assert_int_equal(ig_link_receive(links[1], IG_CHANNEL_COMMANDS, SOON_MS, &m, NULL),
				 0);
		assert_int_equal(m->kind, i);
		assert_int_equal(m->from, 0);
		assert_int_equal(m->n_bytes, i * i * 10);
		for (size_t k = 0; k < m->n_bytes; k++)
			assert_int_equal(m->data[k], (uint8_t)i);
		free(m);
		assert_int_equal(ig_link_receive(links[0], IG_CHANNEL_RESULTS, SOON_MS, &m, NULL),
				 0);
		assert_int_equal(m->from, 2);
		free(m);
	}
	assert_int_equal(ig_link_receive(links[0], IG_CHANNEL_RESULTS, 1, &m, NULL), -ETIMEDOUT);
	assert_null(m);
	assert_null(ig_message_create(0, IG_LINK_MAX_BYTES + 1));
	for (uint32_t i = 0; i < 3; i++)
		ig_link_close(links[i]);
}

/* Every call then says which rank, also one that waits. */
static void test_rank_is_gone(void **state)
{
	struct ig_link *links[2];
	struct ig_message *m;
	struct ig_error err = { 0 };

	open_links(links, 2, 1500);
	loopback_kill(1);
	assert_int_equal(ig_link_receive(links[0], IG_CHANNEL_RESULTS, SOON_MS, &m, &err), -ENODEV);
	assert_non_null(strstr(err.text, "rank 1 has not been heard for "));
	err = (struct ig_error){ 0 };
	assert_int_equal(ig_link_send(links[0], 1, IG_CHANNEL_ROWS, ig_message_create(1, 1), &err),
			 -ENODEV);
	assert_non_null(strstr(err.text, "rank 1"));
	for (uint32_t i = 0; i < 2; i++)
		ig_link_close(links[i]);
}

/* What rank 1 sends to rank 0, and what rank 0 says. */
static void check_refused(const void *data, size_t n, const char *says)
{
	struct ig_link *links[2];
	struct ig_message *m;
	struct ig_error err = { 0 };

	open_links(links, 2, SOON_MS);
	loopback_put(1, 0, data, n);
	assert_int_equal(ig_link_receive(links[0], IG_CHANNEL_RESULTS, SOON_MS, &m, &err), -ENODEV);
	if (!strstr(err.text, says))
		fail_msg("\"%s\" says nothing of \"%s\"", err.text, says);
	for (uint32_t i = 0; i < 2; i++)
		ig_link_close(links[i]);
}

static void test_hostile_bytes(void **state)
{
	struct ig_message *m = ig_message_create(0, 64);
	const size_t n = sizeof *m + 64;

	assert_non_null(m);
	memset(m->data, 0, 64);
	m->channel = IG_CHANNEL_RESULTS;
	check_refused(m, 3, "wrong size");
	check_refused(m, n - 1, "what is no message");
	m->n_bytes = UINT64_MAX;
	check_refused(m, n, "what is no message");
	m->n_bytes = 64;
	m->channel = IG_N_CHANNELS;
	check_refused(m, n, "what is no message");
	m->channel = IG_CHANNEL_BEATS;
	check_refused(m, n, "rank 1 runs another version");
	free(m);
}

/* A rank that is not read does not fill the other's memory. */
static void test_flood(void **state)
{
	struct ig_link *links[2];
	struct ig_message *m;
	struct ig_error err = { 0 };

	open_links(links, 2, SOON_MS);
	for (uint32_t i = 0; i < 5000; i++)
		put(links[1], 0, IG_CHANNEL_ROWS, i, 1);
	assert_int_equal(ig_link_receive(links[0], IG_CHANNEL_RESULTS, SOON_MS, &m, &err), -ENODEV);
	assert_non_null(strstr(err.text, "rank 1 sends more than is read"));
	for (uint32_t i = 0; i < 2; i++)
		ig_link_close(links[i]);
}

/* A link that waits takes next to no processor time. */
static void test_idle(void **state)
{
	const struct timespec pause = { .tv_sec = 2 };
	struct ig_link *links[2];
	clock_t before;

	open_links(links, 2, SOON_MS);
	nanosleep(&pause, NULL);
	before = clock();
	nanosleep(&pause, NULL);
	assert_true(clock() - before < CLOCKS_PER_SEC / 5); /* 5 % of each thread; it is 0.2 % */
	for (uint32_t i = 0; i < 2; i++)
		ig_link_close(links[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_messages),      cmocka_unit_test(test_rank_is_gone),
		cmocka_unit_test(test_hostile_bytes), cmocka_unit_test(test_flood),
		cmocka_unit_test(test_idle),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
