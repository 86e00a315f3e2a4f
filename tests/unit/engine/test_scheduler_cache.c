/*
 * test_scheduler_cache.c: what the scheduler does with the cache: prompts that begin alike, groups with
 * a window, preemption where the space ends.
 */
#include "scheduler_case.h"

/* ---- prompts that begin alike ------------------------------------------------------------- */

static void test_prefix_is_not_computed_again(void **state)
{
	struct ask a = { .n_prompt = 100, .max_tokens = 30, .seed = 1 }, b = a, longer = a;
	static int32_t both[140];
	struct client c;
	struct ig_engine *e = harness_engine(&scheduler_config);

	client_ask(&c, e, &a);
	client_finish(&c);
	scheduler_assert_answer(&c, &a);
	assert_int_equal(c.result.n_cached, 0);
	int before = fake.n_prefill_rows;
	client_ask(&c, e, &a); /* the same again */
	client_finish(&c);
	scheduler_assert_answer(&c, &a);
	assert_int_equal(c.result.n_cached, 99); /* its last block is full by now */
	assert_int_equal(fake.n_prefill_rows, before + 1);
	b.seed = 2; /* other samples after the same prompt */
	client_ask(&c, e, &b);
	client_finish(&c);
	scheduler_assert_answer(&c, &b);
	assert_int_equal(c.result.n_cached, 99);
	/* The prompt, its output and more: a conversation continues.  Output is cached too. */
	make_prompt(both, 100, a.prompt_seed);
	for (int i = 100; i < 140; i++)
		both[i] = fake_next("good", both, i, a.seed);
	longer.prompt = both;
	longer.n_prompt = 140;
	client_ask(&c, e, &longer);
	client_finish(&c);
	scheduler_assert_answer(&c, &longer);
	assert_int_equal(c.result.n_cached, 128); /* all 129 that were computed, in whole blocks */
	/* Not of another model, not with another first token. */
	both[0] = (both[0] + 1) % FAKE_N_TEXT;
	client_ask(&c, e, &longer);
	client_finish(&c);
	scheduler_assert_answer(&c, &longer);
	assert_int_equal(c.result.n_cached, 0);
	wait_for(gauge(IG_GAUGE_KV_USED_BYTES) == 0);
	assert_true(gauge(IG_GAUGE_KV_CACHED_BYTES) >= 8 * GOOD_BLOCK_BYTES);
	harness_close(e);
}

/* Where getting memory takes long, a step under way does not wait until all that came have theirs. */
static void test_admission_beside_a_step(void **state)
{
	enum { N = 8 }; /* two or three have a slab together */
	static struct client stream, prompts[N];
	struct ig_engine *e;
	int before, n;

	scheduler_config.kvcache.slab = 64 << 10;
	scheduler_config.kvcache.arena = 8 << 20;
	fake.gated = true;
	e = harness_engine(&scheduler_config);
	client_ask(&stream, e, &(struct ask){ .n_prompt = 8, .ring = 1 << 20 });
	fake_wait_at_gate();
	fake_allow(8);
	fake_wait_at_gate();
	fake.map_us = 1000;
	before = fake.n_mapped;
	for (int i = 0; i < N; i++)
		client_ask(&prompts[i], e,
			   &(struct ask){ .n_prompt = 480,
					  .prompt_seed = (unsigned)i + 1,
					  .max_tokens = 1 });
	fake_open_gate();
	for (int i = 0; i < N; i++)
		client_finish(&prompts[i]);
	n = fake.n_mapped - before;
	print_message("# %d slabs, at most %d between two steps\n", n, fake.most_maps);
	assert_true(n >= 3);
	/* without steps that run ahead nobody waits */
	assert_int_equal(fake.most_maps < 3, !strcmp(harness_run_ahead, "on"));
	ig_engine_cancel(e, stream.gen, "client_gone");
	client_finish(&stream);
	harness_close(e);
}

static void test_prefix_cache_off(void **state)
{
	struct ask a = { .n_prompt = 100, .max_tokens = 3, .seed = 1 };
	struct client c;
	struct ig_engine *e;

	scheduler_config.kvcache.prefix_cache = false;
	e = harness_engine(&scheduler_config);
	for (int i = 0; i < 2; i++) {
		client_ask(&c, e, &a);
		client_finish(&c);
		assert_int_equal(c.result.n_cached, 0);
	}
	wait_for(gauge(IG_GAUGE_KV_USED_BYTES) == 0);
	assert_true(gauge(IG_GAUGE_KV_CACHED_BYTES) == 0);
	harness_close(e);
}

/* A prompt that was computed with another salt is computed again, unless all share. */
static void test_prefixes_are_salted(void **state)
{
	for (int all = 0; all < 2; all++) {
		strcpy(scheduler_config.kvcache.share, all ? "all" : "key");
		struct ig_engine *e = harness_engine(&scheduler_config);
		struct client c;

		for (uint64_t salt = 0; salt < 3; salt++)
			for (int again = 0; again < 2; again++) {
				struct ask a = {
					.n_prompt = 100, .max_tokens = 3, .seed = 1, .salt = salt
				};
				client_ask(&c, e, &a);
				client_finish(&c);
				scheduler_assert_answer(&c, &a);
				assert_int_equal(c.result.n_cached,
						 again || (all && salt) ? 96 : 0);
			}
		harness_close(e);
	}
}

/* ---- a group with a window ------------------------------------------------------------------ */

#define WINDOW_BLOCK_BYTES 3072 /* of the second group of "window"; one a slab */

/* Blocks of the window's group for so many rows at a time. */
static int window_blocks(int chunk) { return (FAKE_WINDOW - 1 + 15 + chunk + 14) / 16 + 1; }

/* However long it is, a text has its window of the group that has one. */
static void test_window_is_all_that_is_used(void **state)
{
	struct ask a = { .model = "window", .n_prompt = 400, .max_tokens = 100, .seed = 5 };
	double read = 0, most = 0, cached;
	struct client c;
	struct ig_engine *e;

	scheduler_use(scheduler_windowed, 1);
	fake.gated = true;
	e = harness_engine(&scheduler_config);
	client_ask(&c, e, &a);
	for (int i = 0; i < 70; i++) {
		fake_wait_at_gate();
		double used = gauge(IG_GAUGE_KV_USED_BYTES);

		if (i < 7 && used > read)
			read = used;
		if (i > 10 && used > most)
			most = used;
		fake_allow(1);
	}
	cached = gauge(IG_GAUGE_KV_CACHED_BYTES);
	fake_open_gate();
	client_finish(&c);
	scheduler_assert_answer(&c, &a);
	/* 417 tokens of the first group, a chunk and its window of the second */
	assert_true(read > 27 * GOOD_BLOCK_BYTES);
	assert_true(read <= 27 * GOOD_BLOCK_BYTES + window_blocks(64) * WINDOW_BLOCK_BYTES);
	assert_true(most <= 32 * GOOD_BLOCK_BYTES + window_blocks(2) * WINDOW_BLOCK_BYTES);
	/* its blocks stay cached for the same prefix, as long as there is space */
	assert_true(cached >= 20 * WINDOW_BLOCK_BYTES);
	assert_int_equal(counter(IG_COUNTER_PREEMPTIONS), 0);
	harness_close(e);
}

static void test_window_turns(void **state)
{
	struct ask a = { .model = "window", .n_prompt = 100, .max_tokens = 30, .seed = 1 },
		   longer = a;
	static int32_t both[140];
	struct client c;
	struct ig_engine *e;

	scheduler_use(scheduler_windowed, 1);
	e = harness_engine(&scheduler_config);
	for (int i = 0; i < 2; i++) {
		client_ask(&c, e, &a);
		client_finish(&c);
		scheduler_assert_answer(&c, &a);
		assert_int_equal(c.result.n_cached, i * 99);
	}
	/* A conversation that continues finds everything that was computed, in whole blocks. */
	make_prompt(both, 100, a.prompt_seed);
	for (int i = 100; i < 140; i++)
		both[i] = fake_next("window", both, i, a.seed);
	longer.prompt = both;
	longer.n_prompt = 140;
	client_ask(&c, e, &longer);
	client_finish(&c);
	scheduler_assert_answer(&c, &longer);
	assert_int_equal(c.result.n_cached, 128);
	wait_for(gauge(IG_GAUGE_KV_USED_BYTES) == 0);
	harness_close(e);
}

/* What a prompt had of the window's group for its chunks is another's when it is read, not when its reply ends. */
static void test_window_makes_room(void **state)
{
	struct ask a = { .model = "window", .n_prompt = 290, .max_tokens = 30, .seed = 1 },
		   b = { .model = "window", .n_prompt = 30, .max_tokens = 4, .prompt_seed = 1 };
	struct client first, second;
	struct ig_engine *e;

	scheduler_use(scheduler_windowed, 1);
	fake.gated = true;
	/* Slabs: five for the first text in the first group, more than five in the window's while it is read, at
	 * most five then; the other text takes one and three. */
	scheduler_config.kvcache.arena = (uint64_t)(5 + window_blocks(1) + 1 + 3) * SLAB_BYTES;
	e = harness_engine(&scheduler_config);
	client_ask(&first, e, &a);
	fake_wait_at_gate();
	client_ask(&second, e, &b);
	fake_allow(1);
	fake_wait_at_gate();
	assert_int_equal((int)gauge(IG_GAUGE_REQUESTS_WAITING), 1);
	while (!second.over) {
		fake_wait_at_gate();
		client_take(&first);
		assert_false(first.over);
		fake_allow(1);
		client_take(&second);
	}
	client_drop(&second);
	scheduler_assert_answer(&second, &b);
	assert_int_equal(ig_engine_n_active(e), 1);
	fake_open_gate();
	client_finish(&first);
	scheduler_assert_answer(&first, &a);
	assert_int_equal(counter(IG_COUNTER_PREEMPTIONS), 0);
	harness_close(e);
}

/* One text that has the cache for itself is as long as it may be, in rows as many as fit. */
static void test_window_alone(void **state)
{
	struct ask a = { .model = "window", .n_prompt = 240, .max_tokens = 16, .seed = 5 };
	struct client c;
	struct ig_error err;
	struct ig_engine *e;

	scheduler_use(scheduler_windowed, 1);
	scheduler_config.scheduler.prefill_chunk = 16;
	/* four blocks of the first group a slab, one of the second */
	scheduler_config.kvcache.arena = (uint64_t)(4 + window_blocks(16)) * SLAB_BYTES;
	e = harness_engine(&scheduler_config);
	assert_int_equal(client_try(&c, e, &(struct ask){ .n_prompt = 257 }, &err), -E2BIG);
	assert_string_equal(err.text, "the prompt has 257 tokens, the cache holds 256 of window; "
				      "kvcache.arena sets its size");
	for (int i = 0; i < 3; i++) {
		a.prompt_seed = (unsigned)i;
		client_ask(&c, e, &a);
		client_finish(&c);
		scheduler_assert_answer(&c, &a);
		scheduler_config.scheduler.prefill_chunk = 100; /* more than a step has rows */
		ig_engine_reload(e, &scheduler_config);
	}
	harness_close(e);
}

/* Many prompts of few prefixes through a cache with space for some. */
static void test_prefixes_among_many(void **state)
{
	static struct client c[16];
	static int32_t prompts[16][120];
	struct ask a[16];
	struct ig_engine *e;
	int n_cached = 0;

	scheduler_config.kvcache.arena = 16 * SLAB_BYTES;
	e = harness_engine(&scheduler_config);
	for (int round = 0; round < 12; round++) {
		fake_close_gate(); /* so that they meet, however slow the asking is */
		for (int i = 0; i < 16; i++) {
			int n = 40 + (i * 7 + round * 13) % 80;

			make_prompt(prompts[i], 32, (unsigned)(i + round) % 3);
			make_prompt(prompts[i] + 32, 32, (unsigned)(i * round) % 5);
			make_prompt(prompts[i] + 64, 56, (unsigned)(i + 100 * round));
			a[i] = (struct ask){ .prompt = prompts[i],
					     .n_prompt = n,
					     .max_tokens = 60,
					     .seed = (unsigned)i };
			client_ask(&c[i], e, &a[i]);
		}
		fake_open_gate();
		for (int i = 0; i < 16; i++) {
			client_finish(&c[i]);
			scheduler_assert_answer(&c[i], &a[i]);
			assert_in_range(c[i].result.n_cached, 0, a[i].n_prompt - 1);
			n_cached += c[i].result.n_cached;
		}
	}
	assert_true(n_cached > 1000);
	assert_true(counter(IG_COUNTER_PREEMPTIONS) > 0); /* some 60 */
	harness_close(e);
}

/* ---- preemption ------------------------------------------------------------------------------- */

static void preempt_and_recompute(const char *const *models, uint32_t n_slabs, bool prefix_cache)
{
	static struct client c[12];
	struct ask a[12];
	struct ig_engine *e;

	scheduler_use(models, 1);
	scheduler_config.models[0].context = 200;
	scheduler_config.kvcache.arena = n_slabs * SLAB_BYTES;
	scheduler_config.kvcache.prefix_cache = prefix_cache;
	scheduler_config.scheduler.prefill_chunk = 16;
	fake.gated = true; /* until all twelve are there: fewer may fit */
	e = harness_engine(&scheduler_config);
	for (int i = 0; i < 12; i++) {
		a[i] = (struct ask){ .model = models[0],
				     .n_prompt = 10 + 5 * i,
				     .prompt_seed = 77u + (unsigned)i,
				     .max_tokens = 100,
				     .seed = (unsigned)i };
		client_ask(&c[i], e, &a[i]);
	}
	fake_open_gate();
	for (int i = 0; i < 12; i++) {
		client_finish(&c[i]);
		scheduler_assert_answer(&c[i], &a[i]);
	}
	assert_true(counter(IG_COUNTER_PREEMPTIONS) > 0);
	wait_for(gauge(IG_GAUGE_KV_USED_BYTES) == 0);
	/* what is not cached on purpose is freed */
	if (!prefix_cache)
		assert_true(gauge(IG_GAUGE_KV_COMMITTED_BYTES) <= 2 * SLAB_BYTES);
	harness_close(e);
}

static void test_preempt(void **state)
{
	/* a sequence has up to 165 tokens: 11 blocks; four blocks a slab */
	preempt_and_recompute(scheduler_one, 8, false);
	fake_reset();
	preempt_and_recompute(scheduler_one, 8, true);
}

static void test_preempt_two_groups(void **state)
{
	preempt_and_recompute(scheduler_grouped, 60, false);
	fake_reset();
	preempt_and_recompute(scheduler_grouped, 60, true);
}

static void test_preempt_window(void **state)
{
	preempt_and_recompute(scheduler_windowed, 24, false);
	fake_reset();
	preempt_and_recompute(scheduler_windowed, 24, true);
}

/* Two models in an arena that can't hold both at once. */
static void test_preempt_across_models(void **state)
{
	static struct client c[8];
	struct ask a[8];
	struct ig_engine *e;

	scheduler_use(scheduler_two, 2);
	scheduler_config.models[0].context = scheduler_config.models[1].context = 200;
	scheduler_config.kvcache.arena = 5 * SLAB_BYTES;
	fake.gated = true; /* until all eight are there */
	e = harness_engine(&scheduler_config);
	for (int i = 0; i < 8; i++) {
		a[i] = (struct ask){ .model = scheduler_two[i % 2],
				     .n_prompt = 20,
				     .prompt_seed = (unsigned)i,
				     .max_tokens = 150 };
		client_ask(&c[i], e, &a[i]);
	}
	fake_open_gate();
	for (int i = 0; i < 8; i++) {
		client_finish(&c[i]);
		scheduler_assert_answer(&c[i], &a[i]);
	}
	assert_true(counter(IG_COUNTER_PREEMPTIONS) > 0);
	harness_close(e);
}

static void test_alone_too_large(void **state)
{
	struct client c;
	struct ig_error err;
	struct ig_engine *e;

	scheduler_config.kvcache.arena =
		5 * SLAB_BYTES; /* 20 blocks: 320 tokens of a context of 512 */
	e = harness_engine(&scheduler_config);
	assert_int_equal(client_try(&c, e, &(struct ask){ .n_prompt = 400 }, &err), -E2BIG);
	assert_string_equal(err.text, "the prompt has 400 tokens, the cache holds 320 of good; "
				      "kvcache.arena sets its size");
	struct ask a = { .n_prompt = 300 };
	client_ask(&c, e, &a);
	client_finish(&c);
	assert_int_equal(c.result.finish, IG_FINISH_LENGTH);
	/* the last sampled token needs no space */
	assert_int_equal(c.result.n_output, 320 - 300 + 1);
	a.max_tokens = 21;
	scheduler_assert_answer(&c, &a);
	harness_close(e);
}

/* With an argument: the same tests, running ahead. */
int main(int argc, char **argv)
{
#define T(f) cmocka_unit_test_setup_teardown(f, scheduler_setup, scheduler_teardown)
	const struct CMUnitTest tests[] = {
		T(test_window_is_all_that_is_used),
		T(test_window_turns),
		T(test_window_makes_room),
		T(test_window_alone),
		T(test_prefix_is_not_computed_again),
		T(test_prefix_cache_off),
		T(test_admission_beside_a_step),
		T(test_prefixes_are_salted),
		T(test_prefixes_among_many),
		T(test_preempt),
		T(test_preempt_two_groups),
		T(test_preempt_window),
		T(test_preempt_across_models),
		T(test_alone_too_large),
	};

	(void)argv;
	if (argc > 1)
		harness_run_ahead = "on";
	return cmocka_run_group_tests_name(argc > 1 ? "scheduler, the cache, running ahead" :
						      "scheduler, the cache",
					   tests, NULL, NULL);
}
