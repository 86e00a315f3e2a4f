/*
 * test_scheduler.c: batching, chunks, several models, the queue, and what all of it costs: over a
 * driver that samples tokens by the contents of the cache.
 */
#include "scheduler_case.h"

#include <limits.h>
#include <sys/resource.h>

/* ---- the same tokens, whatever runs beside ---------------------------------------------- */

static void same_tokens(const char *const *models, uint32_t chunk, uint32_t batch, int n_beside)
{
	static struct client c[16];
	struct ask a[16];
	struct ig_engine *e;

	scheduler_use(models, 1);
	if (n_beside)
		fake.delay_us = 200; /* so that they meet */
	fake.gated = n_beside;
	scheduler_config.scheduler.prefill_chunk = chunk;
	scheduler_config.scheduler.max_batch_tokens = batch;
	if (fake.split_rows == 1) /* or the first answers end before the last prompts are read */
		scheduler_config.scheduler.prompt_share = 95;
	e = harness_engine(&scheduler_config);
	for (int i = 0; i <= n_beside; i++) {
		a[i] = (struct ask){ .model = models[0],
				     .n_prompt = 1 + i * 37 % 200,
				     .prompt_seed = (unsigned)i,
				     .max_tokens = 40 + i,
				     .seed = 1000u + (unsigned)i };
		client_ask(&c[i], e, &a[i]);
		if (i == n_beside / 2)
			fake_open_gate(); /* half of them begin together, the others join */
		else if (i % 3 == 0)
			usleep(300);
	}
	for (int i = 0; i <= n_beside; i++) {
		client_finish(&c[i]);
		scheduler_assert_answer(&c[i], &a[i]);
	}
	assert_true(fake.max_rows_seen <= (int)batch);
	assert_true(fake.max_seqs_seen <= (int)(batch < 16 ? batch : 16));
	if (n_beside == 15 && chunk > 1 && batch > 4)
		assert_true(fake.max_seqs_seen > 4); /* they really ran together */
	assert_int_equal(fake.max_in_flight, strcmp(harness_run_ahead, "on") ? 1 : 2);
	harness_close(e);
}

static void test_alone(void **state) { same_tokens(scheduler_one, 64, 128, 0); }

static void test_among_fifteen(void **state) { same_tokens(scheduler_one, 64, 128, 15); }

static void test_chunk_1(void **state) { same_tokens(scheduler_one, 1, 128, 15); }

static void test_chunk_7(void **state) { same_tokens(scheduler_one, 7, 32, 15); }

static void test_batch_less_than_sequences(void **state) { same_tokens(scheduler_one, 64, 3, 15); }

static void test_two_cache_groups(void **state) { same_tokens(scheduler_grouped, 7, 64, 15); }

static void test_window(void **state) { same_tokens(scheduler_windowed, 7, 64, 15); }

static void test_window_less_than_chunk(void **state)
{
	same_tokens(scheduler_windowed, 100, 128, 15);
}

/* Rounds of several steps. */
static void test_split(void **state)
{
	fake.split_rows = 20;
	same_tokens(scheduler_one, 64, 128, 15);
}

static void test_split_window(void **state)
{
	fake.split_rows = 1;
	same_tokens(scheduler_windowed, 7, 64, 15);
}

static void test_chunks_share_a_step(void **state)
{
	struct client a, b;
	struct ig_engine *e;

	fake.gated = true;
	scheduler_config.scheduler.max_batch_tokens = 100;
	e = harness_engine(&scheduler_config);
	client_ask(&a, e, &(struct ask){ .n_prompt = 150, .max_tokens = 2 });
	fake_wait_at_gate(); /* 64 rows of a */
	client_ask(&b, e, &(struct ask){ .n_prompt = 150, .prompt_seed = 3, .max_tokens = 2 });
	assert_int_equal(fake.max_rows_seen, 64);
	fake_allow(1);
	fake_wait_at_gate(); /* 64 of a, 36 of b */
	assert_int_equal(fake.max_rows_seen, 100);
	assert_int_equal(fake.max_seqs_seen, 2);
	struct ig_gen_info info[4];
	assert_int_equal(ig_engine_list(e, info, 4), 2);
	assert_string_equal(info[0].state, "prefill");
	assert_int_equal(info[0].n_prefilled, 64);
	assert_int_equal(info[0].n_prompt, 150);
	assert_string_equal(info[0].model, "good");
	assert_int_equal(info[1].n_prefilled, 0);
	fake_open_gate();
	client_finish(&a);
	client_finish(&b);
	assert_int_equal(fake.n_prefill_rows, 300);
	assert_int_equal(fake.n_decode_rows, 2);
	harness_close(e);
}

/* ---- what penalties count ------------------------------------------------------------------ */

static void test_penalties_count_tokens(void **state)
{
	static const int32_t prompt[] = { 3, 1, 4, 1, 5, 9, 2, 6, 5, 3 }; /* 7 different ones */
	static const struct ig_bias bias = { 40, 2.5f };
	struct ask a = { .prompt = prompt,
			 .n_prompt = 10,
			 .max_tokens = 30,
			 .seed = 3,
			 .repetition_penalty = 1.5f,
			 .bias = &bias };
	struct client c;
	struct ig_engine *e = harness_engine(&scheduler_config);

	client_ask(&c, e, &a);
	client_finish(&c);
	assert_int_equal(fake.n_sampled, 29); /* at the last of 30 samples */
	assert_true(fake.n_seen >= 7 && fake.n_seen <= 7 + 29);
	assert_true(fake.bias == 2.5f);
	assert_int_equal(fake.max_in_flight, 1); /* each sample needs the one before */
	a.repetition_penalty = 0;
	a.frequency_penalty = 0.5f;
	a.bias = NULL;
	client_ask(&c, e, &a);
	client_finish(&c);
	assert_int_equal(fake.n_sampled, 29); /* the output's, not the prompt's */
	assert_true(fake.n_seen <= 29 && fake.bias == 0);
	a.frequency_penalty = 0;
	a.bias = &bias;
	client_ask(&c, e, &a);
	client_finish(&c);
	assert_int_equal(fake.n_sampled, 0);
	assert_int_equal(fake.n_seen, 0);
	assert_true(fake.bias == 2.5f);
	assert_int_equal(fake.max_in_flight, strcmp(harness_run_ahead, "on") ? 1 : 2);
	harness_close(e);
}

/* ---- models ------------------------------------------------------------------------------------- */

static void test_two_models_take_turns(void **state)
{
	struct client c[6];
	struct ask a[6];
	struct ig_engine *e;

	scheduler_use(scheduler_two, 2);
	fake.gated = true;
	e = harness_engine(&scheduler_config);
	for (int i = 0; i < 6; i++) {
		a[i] = (struct ask){ .model = scheduler_two[i % 2],
				     .n_prompt = 20,
				     .prompt_seed = (unsigned)i,
				     .max_tokens = 60 };
		client_ask(&c[i], e, &a[i]);
	}
	for (int i = 0; i < 40; i++) {
		fake_wait_at_gate();
		fake_allow(1);
	}
	fake_wait_at_gate();
	assert_true(abs(fake.n_models_stepped[0] - fake.n_models_stepped[1]) <= 2);
	fake_open_gate();
	for (int i = 0; i < 6; i++) {
		client_finish(&c[i]);
		scheduler_assert_answer(&c[i], &a[i]);
	}
	harness_close(e);
}

/* ---- the queue ------------------------------------------------------------------------------------ */

static void test_queue_is_bounded(void **state)
{
	static struct client c[6];
	struct ig_error err;
	struct ig_engine *e;
	struct ask a = { .n_prompt = 5, .max_tokens = 30, .id = "q" };

	fake.gated = true;
	scheduler_config.scheduler.max_seqs = 2;
	scheduler_config.scheduler.max_queue = 3;
	e = harness_engine(&scheduler_config);
	for (int i = 0; i < 5; i++) /* at once: two find a slot, three wait */
		client_ask(&c[i], e, &a);
	a.id = "refused";
	assert_int_equal(client_try(&c[5], e, &a, &err), -EAGAIN);
	assert_non_null(strstr(err.text, "the queue is full"));
	fake_wait_at_gate(); /* the first step may have begun before all had come */
	fake_allow(1);
	fake_wait_at_gate();
	assert_int_equal(client_try(&c[5], e, &(struct ask){ .n_prompt = 5, .id = "r2" }, &err),
			 -EAGAIN);
	assert_string_equal(err.text, "the queue is full: 3 requests wait");
	assert_int_equal(counter(IG_COUNTER_REFUSED), 2);
	struct ig_ledger_row row = ledger_find("refused");
	assert_string_equal(row.finish, "refused");
	assert_int_equal(row.status, 503);
	assert_string_equal(row.model, "good");
	assert_true(row.queue_ms < 0 && row.total_ms >= 0);
	fake_open_gate();
	for (int i = 0; i < 5; i++) {
		client_finish(&c[i]);
		assert_int_equal(c[i].result.finish, IG_FINISH_LENGTH);
	}
	/* and there is space again, at once */
	scheduler_config.scheduler.max_queue = 0;
	wait_for(gauge(IG_GAUGE_REQUESTS_RUNNING) == 0);
	ig_engine_reload(e, &scheduler_config);
	for (int i = 0; i < 20; i++) {
		client_ask(&c[0], e, &a);
		client_finish(&c[0]);
	}
	harness_close(e);
}

static void test_drain(void **state)
{
	struct client c, d;
	struct ask a = { .n_prompt = 10, .max_tokens = 40 }, held = a;
	struct ig_error err;
	struct ig_engine *e;

	fake.gated = true;
	e = harness_engine(&scheduler_config);
	client_ask(&c, e, &a);
	fake_wait_at_gate();
	assert_int_equal(ig_engine_take_model(e, NULL, NULL, NULL, &held.held, &err), 0);
	ig_engine_drain(e);
	assert_int_equal(client_try(&d, e, &a, &err), -ESHUTDOWN);
	assert_string_equal(err.text, "the server is shutting down");
	memset(&err, 0, sizeof err);
	assert_int_equal(client_try(&d, e, &held, &err), -ESHUTDOWN);
	assert_string_equal(err.text, "the server is shutting down");
	ig_engine_release_model(held.held);
	assert_int_equal(ig_engine_n_active(e), 1);
	fake_open_gate();
	client_finish(&c);
	scheduler_assert_answer(&c, &a);
	wait_for(ig_engine_n_active(e) == 0);
	harness_close(e);
}

/* ---- everything at once ------------------------------------------------------------------------- */

static int rnd(unsigned n)
{
	static unsigned seed = 99;

	seed = seed * 1664525u + 1013904223u;
	return (int)((seed >> 16) % n);
}

/* Requests of two models come, are read slowly or fast, are cancelled or not, in an
 * arena that holds a few: who is not cancelled gets every byte, and nothing is left. */
static void chaos(void)
{
	enum { N = 18, TOTAL = 400 };
	static struct client c[N];
	struct ask a[N];
	bool used[N] = { 0 }, cancelled[N] = { 0 };
	size_t cancel_at[N] = { 0 }; /* bytes that were read */
	char text[65536];
	int n_asked = 0, n_refused = 0, n_cancelled = 0, n_answered = 0;
	struct ig_engine *e;
	int64_t until = ig_now_ns() + (int64_t)60 * 1000000000;

	scheduler_use(scheduler_two, 2);
	scheduler_config.models[0].context = scheduler_config.models[1].context = 150;
	scheduler_config.kvcache.arena = 7 * SLAB_BYTES;
	scheduler_config.scheduler.max_seqs = 6;
	scheduler_config.scheduler.max_queue = 8;
	scheduler_config.scheduler.prefill_chunk = 9;
	scheduler_config.scheduler.max_batch_tokens = 20;
	fake.delay_us = 30;
	e = harness_engine(&scheduler_config);
	for (bool busy = true; busy || n_asked < TOTAL;) {
		busy = false;
		usleep(100);
		if (ig_now_ns() > until)
			fail_msg("%d asked, %d answered: no progress", n_asked, n_answered);
		for (int i = 0; i < N; i++) {
			struct ig_error err;

			if (!used[i] && n_asked < TOTAL && !rnd(8)) {
				a[i] = (struct ask){ .model = scheduler_two[rnd(2)],
						     .n_prompt = 1 + rnd(100),
						     .prompt_seed = (unsigned)rnd(1000),
						     .max_tokens = 1 + rnd(49),
						     .seed = (unsigned)rnd(1000),
						     .ring = rnd(2) ? 0 : 16 };
				if (!rnd(3))
					a[i].stops[0] = rnd(2) ? "ab" : "x y";
				cancelled[i] = false;
				cancel_at[i] = rnd(5) ? SIZE_MAX : (size_t)rnd(40);
				used[i] = client_try(&c[i], e, &a[i], &err) == 0;
				if (used[i]) {
					n_asked++;
				} else {
					assert_int_equal(err.code, -EAGAIN);
					n_refused++;
				}
			}
			if (!used[i])
				continue;
			busy = true;
			if (!cancelled[i] && c[i].n_text >= cancel_at[i]) {
				ig_engine_cancel(e, c[i].gen, "client_gone");
				cancelled[i] = true;
			}
			if (!rnd(3)) {
				client_take(&c[i]);
				ig_engine_resume(e, c[i].gen);
			}
			if (!c[i].over)
				continue;
			used[i] = false;
			client_drop(&c[i]);
			if (c[i].result.finish == IG_FINISH_CANCELLED) {
				assert_true(cancelled[i]);
				n_cancelled++;
				continue;
			}
			expected(&a[i], text, sizeof text);
			if (a[i].stops[0] && strstr(text, a[i].stops[0])) {
				*strstr(text, a[i].stops[0]) = 0;
				assert_int_equal(c[i].result.finish, IG_FINISH_STOP);
			} else {
				assert_int_equal(c[i].result.finish, IG_FINISH_LENGTH);
			}
			assert_string_equal(c[i].text, text);
			n_answered++;
		}
	}
	assert_int_equal(n_answered + n_cancelled, TOTAL);
	assert_true(n_answered > TOTAL / 2 && n_cancelled > 10);
	assert_true(counter(IG_COUNTER_PREEMPTIONS) > 0);
	assert_true(fake.max_seqs_seen > 1 && fake.max_seqs_seen <= 6);
	wait_for(gauge(IG_GAUGE_KV_USED_BYTES) == 0);
	assert_int_equal((int)gauge(IG_GAUGE_REQUESTS_WAITING), 0);
	assert_int_equal((int)gauge(IG_GAUGE_REQUESTS_PAUSED), 0);
	assert_int_equal(ig_engine_n_active(e), 0);
	assert_int_equal(fake.n_requests, TOTAL + n_refused);
	print_message("# %d answered, %d cancelled, %d refused, %d preemptions\n", n_answered,
		      n_cancelled, n_refused, counter(IG_COUNTER_PREEMPTIONS));
	harness_close(e);
}

static void test_chaos(void **state) { chaos(); }

static void test_chaos_split(void **state)
{
	fake.split_rows = 5;
	chaos();
}

/* ---- cost ------------------------------------------------------------------------------------------ */

/* How often a thread of this process went to sleep by itself in half a second in which this one
 * does nothing. */
static long n_sleeps(void)
{
	struct rusage before, after;

	getrusage(RUSAGE_SELF, &before);
	usleep(500000);
	getrusage(RUSAGE_SELF, &after);
	return after.ru_nvcsw - before.ru_nvcsw;
}

static void *nothing(void *none) { return none; }

/* So many without what is tested: this thread's own, and those of a sanitizer's thread, which comes
 * with the first of ours. */
static long n_sleeps_without(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, nothing, NULL) == 0)
		pthread_join(thread, NULL);
	return n_sleeps();
}

static long n_sleeps_alone;

static void test_idle_costs_nothing(void **state)
{
	struct client c;
	struct ig_engine *e = harness_engine(&scheduler_config);
	long n = LONG_MAX;
	int steps = 0;

	client_ask(&c, e, &(struct ask){ .n_prompt = 10, .max_tokens = 4 });
	client_finish(&c);
	/* the engine's thread sleeps in the kernel: it is woken by nothing.  What still was to be
	 * done after the request may fall into the first stretch. */
	for (int i = 0; i < 20 && n > n_sleeps_alone + 1; i++) {
		steps = fake.n_steps;
		n = n_sleeps();
	}
	assert_true(n <= n_sleeps_alone + 1);
	assert_int_equal(fake.n_steps, steps);
	harness_close(e);
}

/* A step that does not end is no sign of life, but its progress is. */
static void test_alive(void **state)
{
	struct client c;
	struct ig_engine *e = harness_engine(&scheduler_config);

	for (int i = 0; i < 3; i++)
		wait_for(ig_engine_is_alive(e));
	fake_close_gate();
	client_ask(&c, e, &(struct ask){ .n_prompt = 10, .max_tokens = 4 });
	fake_wait_at_gate();
	ig_engine_is_alive(e); /* it moved until now */
	for (int i = 0; i < 3; i++)
		assert_false(ig_engine_is_alive(e));
	atomic_fetch_add(&fake.pulse, 1);
	assert_true(ig_engine_is_alive(e));
	assert_false(ig_engine_is_alive(e));
	fake_open_gate();
	wait_for(ig_engine_is_alive(e));
	client_finish(&c);
	harness_close(e);
}

static void test_nothing_allocated_per_token(void **state)
{
#ifdef WRAP_MALLOC
	static const struct fake_grammar rules = { 1000, 3, true, false };
	static struct client c[4];
	struct ig_engine *e;

	fake.gated = true;
	e = harness_engine(&scheduler_config);
	for (int i = 0; i < 4; i++)
		client_ask(&c[i], e,
			   &(struct ask){ .n_prompt = 8,
					  .prompt_seed = (unsigned)i,
					  .max_tokens = 400,
					  .stops = { "nothing ends it" },
					  .n_probs = i % 2 ? 6 : 0,
					  .grammar = i / 2 ? &rules : NULL });
	/* past the first step, in which all join and blocks are taken */
	for (int i = 0; i < 3; i++) {
		fake_wait_at_gate();
		fake_allow(1);
	}
	fake_wait_at_gate();
	int before = fake.n_allocations, mapped = fake.n_mapped, steps = fake.n_steps;
	for (int i = 0; i < 300; i++) {
		fake_allow(1);
		fake_wait_at_gate();
	}
	assert_int_equal(fake.n_steps - steps, 300);
	/* a slab that is mapped brings two tables; nothing else allocates */
	assert_true(fake.n_mapped > mapped);
	assert_int_equal(fake.n_allocations - before, 3 * (fake.n_mapped - mapped));
	fake_open_gate();
	for (int i = 0; i < 4; i++)
		client_finish(&c[i]);
	harness_close(e);
#else
	print_message("# this linker has no --wrap: not counted\n");
#endif
}

static void test_a_step_costs_microseconds(void **state)
{
	static struct client c[64];
	struct ig_engine *e;

	fake.no_compute = true;
	fake.gated = true;
	scheduler_config.scheduler.max_seqs = 64;
	e = harness_engine(&scheduler_config);
	for (int i = 0; i < 64; i++)
		client_ask(&c[i], e,
			   &(struct ask){ .n_prompt = 100,
					  .max_tokens = 400,
					  .stops = { "not in there", "nor this" } });
	for (int i = 0; i < 12; i++) { /* all have joined, most decode */
		fake_wait_at_gate();
		fake_allow(1);
	}
	fake_wait_at_gate();
	int steps = fake.n_steps;
	int64_t driver = fake.driver_ns;
	int64_t start = ig_now_ns();
	fake_allow(300);
	fake_wait_at_gate();
	int64_t ns = ig_now_ns() - start;
	assert_int_equal(fake.n_steps - steps, 300);
	double us = (double)(ns - (fake.driver_ns - driver)) * 1e-3 / 300;
	assert_int_equal(fake.max_seqs_seen, 64);
	fake_open_gate();
	for (int i = 0; i < 64; i++)
		client_finish(&c[i]);
	print_message("# scheduling, detokenizing and streams of 64 sequences: %.1f us a step\n",
		      us);
	/* far above what it takes, also under a sanitizer on a busy machine */
	assert_true(us < 5000);
	harness_close(e);
}

/* With an argument: the same tests, running ahead. */
int main(int argc, char **argv)
{
#define T(f) cmocka_unit_test_setup_teardown(f, scheduler_setup, scheduler_teardown)
	const struct CMUnitTest tests[] = {
		T(test_chunks_share_a_step), /* counts the rows of steps one by one */
		T(test_alone),
		T(test_among_fifteen),
		T(test_chunk_1),
		T(test_chunk_7),
		T(test_batch_less_than_sequences),
		T(test_two_cache_groups),
		T(test_window),
		T(test_window_less_than_chunk),
		T(test_split),
		T(test_split_window),
		T(test_penalties_count_tokens),
		T(test_two_models_take_turns),
		T(test_queue_is_bounded),
		T(test_drain),
		T(test_chaos),
		T(test_chaos_split),
		T(test_idle_costs_nothing),
		T(test_alive),
		T(test_nothing_allocated_per_token),
		T(test_a_step_costs_microseconds),
	};
	const size_t n = sizeof tests / sizeof *tests;

	(void)argv;
	n_sleeps_alone = n_sleeps_without();
	if (argc == 1)
		return cmocka_run_group_tests_name("scheduler", tests, NULL, NULL);
	harness_run_ahead = "on";
	return _cmocka_run_group_tests("scheduler, running ahead", tests + 1, n - 1, NULL, NULL);
}
