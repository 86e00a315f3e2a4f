/*
 * test_scheduler_ends.c: how requests end: cancelled, with a slow client, by an end token, a stop
 * string, a limit, or an error of the driver.
 */
#include "scheduler_case.h"

#include "base/log.h"

/* ---- cancel --------------------------------------------------------------------------------- */

static void test_cancel_frees_within_one_step(void **state)
{
	struct client c[8];
	struct ig_engine *e;
	char id[16];

	fake.gated = true;
	e = harness_engine(&scheduler_config);
	for (int i = 0; i < 8; i++) {
		snprintf(id, sizeof id, "c%d", i);
		client_ask(&c[i], e,
			   &(struct ask){ .n_prompt = 20,
					  .prompt_seed = (unsigned)i,
					  .max_tokens = 100,
					  .id = id });
	}
	for (int i = 0; i < 6; i++) {
		fake_wait_at_gate();
		fake_allow(1);
	}
	fake_wait_at_gate();
	assert_int_equal((int)gauge(IG_GAUGE_REQUESTS_RUNNING), 8);
	double before = gauge(IG_GAUGE_KV_USED_BYTES);
	assert_true(before >= 8 * 2 * GOOD_BLOCK_BYTES);
	for (int i = 0; i < 4; i++)
		ig_engine_cancel(e, c[i].gen, "client_gone");
	usleep(5000);
	assert_true(gauge(IG_GAUGE_KV_USED_BYTES) == before); /* not while a step computes */
	fake_allow(1);
	fake_wait_at_gate(); /* the very next step */
	if (!strcmp(harness_run_ahead, "on")) {
		/* that one was under way with them; no later step is */
		assert_true(gauge(IG_GAUGE_KV_USED_BYTES) == before);
		fake_allow(1);
		fake_wait_at_gate();
	}
	assert_true(gauge(IG_GAUGE_KV_USED_BYTES) <= before / 2 + 4 * GOOD_BLOCK_BYTES);
	assert_int_equal((int)gauge(IG_GAUGE_REQUESTS_RUNNING), 4);
	assert_int_equal(ig_engine_n_active(e), 4);
	for (int i = 0; i < 4; i++) {
		client_finish(&c[i]);
		assert_int_equal(c[i].result.finish, IG_FINISH_CANCELLED);
		assert_string_equal(c[i].result.cancel_reason, "client_gone");
		assert_true(c[i].result.n_output > 0);
		snprintf(id, sizeof id, "c%d", i);
		struct ig_ledger_row row = ledger_find(id);
		assert_string_equal(row.finish, "cancelled");
		assert_string_equal(row.cancel_reason, "client_gone");
		assert_int_equal(row.status, 499);
		assert_int_equal(row.n_output, c[i].result.n_output);
	}
	ig_engine_cancel(e, c[0].gen, "client_gone"); /* gone: ignored */
	ig_engine_cancel(e, 999999, "client_gone");
	ig_engine_resume(e, 999999);
	fake_open_gate();
	for (int i = 4; i < 8; i++) {
		client_finish(&c[i]);
		scheduler_assert_answer(&c[i], &(struct ask){ .n_prompt = 20,
							      .prompt_seed = (unsigned)i,
							      .max_tokens = 100 });
	}
	wait_for(gauge(IG_GAUGE_KV_USED_BYTES) == 0);
	harness_close(e);
}

static void test_cancel_while_waiting(void **state)
{
	struct client a, b;
	struct ig_engine *e;

	fake.gated = true;
	scheduler_config.scheduler.max_seqs = 1;
	e = harness_engine(&scheduler_config);
	client_ask(&a, e, &(struct ask){ .n_prompt = 5, .max_tokens = 5 });
	fake_wait_at_gate();
	client_ask(&b, e, &(struct ask){ .n_prompt = 5, .max_tokens = 5, .id = "b" });
	struct ig_gen_info info[2];
	assert_int_equal(ig_engine_list(e, info, 2), 2);
	assert_string_equal(info[1].state, "waiting");
	ig_engine_cancel(e, b.gen, "client_cancel");
	fake_allow(1);
	client_finish(&b);
	assert_int_equal(b.result.finish, IG_FINISH_CANCELLED);
	struct ig_ledger_row row = ledger_find("b");
	assert_true(row.queue_ms < 0 && row.ttft_ms < 0 && row.total_ms >= 0);
	fake_open_gate();
	client_finish(&a);
	harness_close(e);
}

static void test_destroy_cancels(void **state)
{
	struct client c[3];
	struct ig_engine *e;

	fake.delay_us = 1000;
	scheduler_config.scheduler.max_seqs = 2;
	e = harness_engine(&scheduler_config);
	for (int i = 0; i < 3; i++)
		client_ask(&c[i], e, &(struct ask){ .n_prompt = 5 });
	usleep(5000);
	harness_close(e);
	for (int i = 0; i < 3; i++) {
		client_finish(&c[i]);
		assert_int_equal(c[i].result.finish, IG_FINISH_CANCELLED);
		assert_string_equal(c[i].result.cancel_reason, "shutdown");
	}
}

/* ---- slow clients ------------------------------------------------------------------------------ */

static void test_slow_client_pauses_alone(void **state)
{
	struct client slow, other;
	struct ig_engine *e = harness_engine(&scheduler_config);
	struct ask a = { .n_prompt = 10, .prompt_seed = 5, .max_tokens = 300, .ring = 32 };
	struct ask b = { .n_prompt = 10, .prompt_seed = 6, .max_tokens = 300 };

	client_ask(&slow, e, &a);
	wait_for(gauge(IG_GAUGE_REQUESTS_PAUSED) == 1);
	struct ig_gen_info info;
	assert_int_equal(ig_engine_list(e, &info, 1), 1);
	assert_string_equal(info.state, "paused");
	double used = gauge(IG_GAUGE_KV_USED_BYTES);
	assert_true(used > 0);
	client_ask(&other, e, &b); /* others go on */
	client_finish(&other);
	scheduler_assert_answer(&other, &b);
	wait_for(gauge(IG_GAUGE_KV_USED_BYTES) == used); /* its blocks stay */
	assert_int_equal((int)gauge(IG_GAUGE_REQUESTS_PAUSED), 1);
	/* read byte by byte: it resumes, pauses, resumes … and says the same */
	while (!slow.over) {
		size_t n = slow.n_text;
		wait_for((client_take(&slow), slow.over || slow.n_text > n));
		ig_engine_resume(e, slow.gen);
	}
	client_drop(&slow);
	scheduler_assert_answer(&slow, &a);
	assert_int_equal((int)gauge(IG_GAUGE_REQUESTS_PAUSED), 0);
	harness_close(e);
}

static void test_slow_client_times_out(void **state)
{
	struct client slow;
	struct ig_engine *e;
	int64_t start = ig_now_ns();

	scheduler_config.server.slow_client_timeout_ms = 60;
	e = harness_engine(&scheduler_config);
	client_ask(&slow, e, &(struct ask){ .n_prompt = 10, .ring = 32, .id = "slow" });
	wait_for(ig_engine_n_active(e) == 0);
	assert_true(ig_now_ns() - start >= 60 * 1000000);
	wait_for(gauge(IG_GAUGE_KV_USED_BYTES) == 0);
	client_finish(&slow);
	assert_int_equal(slow.result.finish, IG_FINISH_CANCELLED);
	assert_string_equal(slow.result.cancel_reason, "slow_client");
	assert_true(slow.n_text > 0 && slow.n_text <= 32);
	assert_string_equal(ledger_find("slow").cancel_reason, "slow_client");
	harness_close(e);
}

static int32_t euro_script(const int32_t *tokens, int32_t n) { return 19; /* three bytes */ }

/* A ring with a little space, but not for the next character, counts as full. */
static void test_slow_client_with_a_byte_of_space(void **state)
{
	struct client slow;
	struct ig_engine *e;

	fake.script = euro_script;
	scheduler_config.server.slow_client_timeout_ms = 30;
	e = harness_engine(&scheduler_config);
	client_ask(&slow, e, &(struct ask){ .n_prompt = 10, .ring = 16 });
	wait_for(ig_engine_n_active(e) == 0);
	client_finish(&slow);
	assert_string_equal(slow.result.cancel_reason, "slow_client");
	assert_int_equal(slow.n_text, 15);
	harness_close(e);
}

/* All slots full of slow clients: they give their slots to others. */
static void test_slow_clients_leave_their_slots(void **state)
{
	struct client slow[4], other;
	struct ask a = { .n_prompt = 10, .max_tokens = 100, .ring = 32 };
	struct ask b = { .n_prompt = 10, .prompt_seed = 9, .max_tokens = 50 };
	struct ig_engine *e;

	scheduler_config.scheduler.max_seqs = 2;
	e = harness_engine(&scheduler_config);
	for (int i = 0; i < 4; i++)
		client_ask(&slow[i], e, &a);
	wait_for(gauge(IG_GAUGE_REQUESTS_PAUSED) == 4);
	client_ask(&other, e, &b);
	client_finish(&other);
	scheduler_assert_answer(&other, &b);
	for (bool all = false; !all;) {
		all = true;
		for (int i = 0; i < 4; i++) {
			if (slow[i].over)
				continue;
			client_take(&slow[i]);
			ig_engine_resume(e, slow[i].gen);
			all = all && slow[i].over;
		}
		usleep(100);
	}
	for (int i = 0; i < 4; i++) {
		client_drop(&slow[i]);
		scheduler_assert_answer(&slow[i], &a);
	}
	assert_true(fake.max_seqs_seen <= 2);
	harness_close(e);
}

static int32_t long_token_script(const int32_t *tokens, int32_t n) { return 54; } /* 49 bytes */

/* A client whose text has space again gets it also while all places are taken, by requests of others; and it has
 * only as much time as any other. */
static void test_slow_client_without_a_place(void **state)
{
	struct ask a = { .n_prompt = 10, .max_tokens = 100, .ring = 16, .id = "slow" };
	struct ask b = { .n_prompt = 10, .max_tokens = 400, .ring = 1 << 16 };
	struct client slow, other;
	struct ig_engine *e;

	fake.script = long_token_script;
	fake.gated = true;
	scheduler_config.scheduler.max_seqs = 1;
	scheduler_config.server.slow_client_timeout_ms = 200;
	e = harness_engine(&scheduler_config);
	client_ask(&slow, e, &a);
	fake_wait_at_gate();
	client_ask(&other, e, &b); /* has the place from now on */
	for (int i = 0; i < 3; i++) {
		fake_allow(1);
		fake_wait_at_gate();
	}
	assert_int_equal((int)gauge(IG_GAUGE_REQUESTS_PAUSED), 1);
	client_take(&slow);
	assert_int_equal(slow.n_text, 16);
	ig_engine_resume(e, slow.gen);
	fake_allow(1);
	fake_wait_at_gate();
	client_take(&slow);
	assert_int_equal(slow.n_text, 32);
	ig_engine_resume(e, slow.gen); /* and reads no more */
	for (int64_t end = ig_now_ns() + (int64_t)10 * 1000000000;
	     ig_engine_n_active(e) > 1 && ig_now_ns() < end;) {
		usleep(20000);
		fake_allow(1);
		fake_wait_at_gate();
	}
	assert_int_equal(ig_engine_n_active(e), 1);
	client_finish(&slow);
	assert_string_equal(slow.result.cancel_reason, "slow_client");
	fake_open_gate();
	client_finish(&other);
	assert_int_equal(other.result.finish, IG_FINISH_LENGTH);
	harness_close(e);
}

/* One that reads again has a place before a client who has two. */
static void test_slow_client_gets_a_place(void **state)
{
	struct ask a = { .n_prompt = 10, .max_tokens = 60, .ring = 32, .client = "slow" };
	struct ask b = { .n_prompt = 10, .max_tokens = 490, .client = "many" };
	struct client slow, many[2];
	struct ig_engine *e;

	scheduler_config.scheduler.max_seqs = 2;
	e = harness_engine(&scheduler_config);
	client_ask(&slow, e, &a);
	wait_for(gauge(IG_GAUGE_REQUESTS_PAUSED) == 1);
	fake_close_gate();
	for (int i = 0; i < 2; i++) {
		b.prompt_seed = b.seed = (unsigned)i + 1;
		client_ask(&many[i], e, &b);
	}
	for (int i = 0; gauge(IG_GAUGE_REQUESTS_RUNNING) < 2; i++) {
		assert_in_range(i, 0, 10);
		fake_wait_at_gate();
		fake_allow(1);
	}
	for (int i = 0; !slow.over; i++) {
		assert_in_range(i, 0, 400);
		client_take(&slow);
		ig_engine_resume(e, slow.gen);
		fake_wait_at_gate();
		fake_allow(1);
	}
	client_drop(&slow);
	scheduler_assert_answer(&slow, &a);
	assert_int_equal(ig_engine_n_active(e), 2);
	assert_true(counter(IG_COUNTER_PREEMPTIONS) >= 1); /* once more if it was slow once more */
	fake_open_gate();
	for (int i = 0; i < 2; i++) {
		client_finish(&many[i]);
		b.prompt_seed = b.seed = (unsigned)i + 1;
		scheduler_assert_answer(&many[i], &b);
	}
	assert_true(fake.max_seqs_seen <= 2);
	harness_close(e);
}

static void test_long_token_through_a_small_ring(void **state)
{
	struct client c;
	int32_t prompt[] = { 54 }; /* forty-nine bytes of text */
	struct ig_engine *e;
	struct ask a = { .prompt = prompt, .n_prompt = 1, .max_tokens = 60, .ring = 16, .seed = 4 };

	e = harness_engine(&scheduler_config);
	client_ask(&c, e, &a);
	while (!c.over) {
		client_take(&c);
		ig_engine_resume(e, c.gen);
	}
	client_drop(&c);
	scheduler_assert_answer(&c, &a);
	assert_non_null(strstr(c.text, "one two three"));
	harness_close(e);
}

/* ---- ends ---------------------------------------------------------------------------------------- */

static int32_t count_script(const int32_t *tokens, int32_t n)
{
	/* letters d e f …, the end after 8 of them */
	return n >= 13 ? FAKE_END : 21 + n - 5;
}

static void test_end_token(void **state)
{
	struct client c;
	struct ig_engine *e;

	fake.script = count_script;
	e = harness_engine(&scheduler_config);
	client_ask(&c, e, &(struct ask){ .n_prompt = 5, .id = "end" });
	client_finish(&c);
	assert_string_equal(c.text, "defghijk");
	assert_int_equal(c.result.finish, IG_FINISH_STOP);
	assert_int_equal(c.result.n_output, 8);
	struct ig_ledger_row row = ledger_find("end");
	assert_string_equal(row.finish, "stop");
	assert_string_equal(row.model, "good");
	assert_string_equal(row.endpoint, "test");
	assert_string_equal(row.client, "127.0.0.1");
	assert_int_equal(row.status, 200);
	assert_int_equal(row.n_prompt, 5);
	assert_int_equal(row.n_output, 8);
	assert_true(row.queue_ms >= 0 && row.prefill_ms >= 0 && row.decode_ms >= 0);
	assert_true(row.ttft_ms >= row.queue_ms && row.total_ms >= row.ttft_ms);
	assert_true(row.received_ns > 0);
	uint32_t n_itl = 0;
	for (int i = 0; i < IG_ITL_BUCKETS; i++)
		n_itl += row.itl[i];
	assert_int_equal(n_itl, 8); /* between 9 tokens, the end's own included */
	assert_int_equal(fake.n_itl, 8);
	assert_int_equal(fake.n_requests, 1);
	harness_close(e);
}

static void test_stop_string_found_late(void **state)
{
	struct client c, beside;
	struct ig_engine *e;

	fake.script = count_script;
	e = harness_engine(&scheduler_config);
	client_ask(&beside, e, &(struct ask){ .n_prompt = 5 });
	client_ask(&c, e, &(struct ask){ .n_prompt = 5, .stops = { "zz", "gh" } });
	client_finish(&c);
	client_finish(&beside);
	assert_string_equal(c.text, "def"); /* no part of the stop string, no overshoot */
	assert_int_equal(c.result.finish, IG_FINISH_STOP);
	assert_int_equal(c.result.n_output, 5);
	assert_string_equal(beside.text, "defghijk");
	wait_for(gauge(IG_GAUGE_KV_USED_BYTES) == 0);
	assert_int_equal(ig_engine_n_active(e), 0);
	harness_close(e);
}

static void test_limits(void **state)
{
	struct client c;
	struct ig_engine *e;
	struct ask a = { .n_prompt = 500 };

	scheduler_config.scheduler.max_output_tokens = 9;
	e = harness_engine(&scheduler_config);
	client_ask(&c, e, &a);
	client_finish(&c);
	assert_int_equal(c.result.n_output, 9); /* the default of the configuration */
	a.max_tokens = 1;
	client_ask(&c, e, &a);
	client_finish(&c);
	scheduler_assert_answer(&c, &a);
	a.max_tokens = 1000;
	client_ask(&c, e, &a);
	client_finish(&c);
	assert_int_equal(c.result.n_output, 12); /* the context */
	scheduler_assert_answer(&c, &a);
	harness_close(e);
}

static int32_t bad_script(const int32_t *tokens, int32_t n) { return n >= 8 ? FAKE_VOCAB + 5 : 0; }

static void test_a_token_that_does_not_exist(void **state)
{
	struct client c;
	struct ig_engine *e;

	fake.script = bad_script;
	e = harness_engine(&scheduler_config);
	client_ask(&c, e, &(struct ask){ .n_prompt = 5, .id = "bad" });
	client_finish(&c);
	assert_int_equal(c.result.finish, IG_FINISH_ERROR);
	assert_string_equal(c.result.error.text,
			    "the model sampled token 69 at position 8; it has 64 tokens");
	assert_string_equal(c.text, "aaa");
	assert_int_equal(ledger_find("bad").status, 500);
	assert_non_null(strstr(ledger_find("bad").error, "token 69"));
	assert_string_equal(ledger_find("bad").request_id, "req_1");
	harness_close(e);
}

static void driver_fails(int submit_at, int wait_at)
{
	struct client a, b;
	struct ask again = { .n_prompt = 12, .max_tokens = 7 };
	struct ig_engine *e;

	fake.fail_submit_at = submit_at;
	fake.fail_wait_at = wait_at;
	fake.gated = true;
	e = harness_engine(&scheduler_config);
	client_ask(&a, e, &(struct ask){ .n_prompt = 10, .max_tokens = 50 });
	fake_wait_at_gate();
	client_ask(&b, e, &(struct ask){ .n_prompt = 10, .max_tokens = 50 });
	fake_open_gate();
	client_finish(&a);
	client_finish(&b);
	assert_int_equal(a.result.finish, IG_FINISH_ERROR);
	assert_int_equal(b.result.finish, IG_FINISH_ERROR);
	assert_int_equal(a.result.error.code, fake.fail_code ? fake.fail_code : -EIO);
	assert_int_equal(fake.n_lost, fake.fail_code == -ENODEV);
	assert_non_null(strstr(a.result.error.text, submit_at ? "begin a step" : "finish a step"));
	wait_for(gauge(IG_GAUGE_KV_USED_BYTES) == 0);
	/* the next ones are served */
	client_ask(&a, e, &again);
	client_finish(&a);
	scheduler_assert_answer(&a, &again);
	harness_close(e);
}

/* And the log names whose requests ended, as their clients know them. */
static void test_submit_fails(void **state)
{
	char path[] = "/tmp/ingot-scheduler-XXXXXX", text[8192] = "";
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	assert_int_equal(ig_log_set_file(path), 0);
	driver_fails(4, 0);
	ig_log_set_file(NULL);
	assert_true(read(fd, text, sizeof text - 1) > 0);
	assert_non_null(strstr(text, "request req (x-request-id req_1): "));
	close(fd);
	unlink(path);
}

static void test_wait_fails(void **state) { driver_fails(0, 4); }

/* Told once, whatever fails with it. */
static void test_device_is_lost(void **state)
{
	fake.fail_code = -ENODEV;
	driver_fails(0, 4);
}

/* With an argument: the same tests, running ahead. */
int main(int argc, char **argv)
{
#define T(f) cmocka_unit_test_setup_teardown(f, scheduler_setup, scheduler_teardown)
	const struct CMUnitTest tests[] = {
		T(test_cancel_frees_within_one_step),
		T(test_cancel_while_waiting),
		T(test_destroy_cancels),
		T(test_slow_client_pauses_alone),
		T(test_slow_client_times_out),
		T(test_slow_client_with_a_byte_of_space),
		T(test_slow_clients_leave_their_slots),
		T(test_slow_client_without_a_place),
		T(test_slow_client_gets_a_place),
		T(test_long_token_through_a_small_ring),
		T(test_end_token),
		T(test_stop_string_found_late),
		T(test_limits),
		T(test_a_token_that_does_not_exist),
		T(test_submit_fails),
		T(test_wait_fails),
		T(test_device_is_lost),
	};

	(void)argv;
	if (argc > 1)
		harness_run_ahead = "on";
	return cmocka_run_group_tests_name(argc > 1 ? "scheduler, ends of requests, running ahead" :
						      "scheduler, ends of requests",
					   tests, NULL, NULL);
}
