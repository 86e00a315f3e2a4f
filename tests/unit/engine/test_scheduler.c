/*
 * test_scheduler.c: batching, chunks, cancellation, preemption, slow clients, several
 * models: over a driver that samples tokens by the contents of the cache.
 */
#include "harness.h"

#include "base/log.h"

#include <limits.h>
#include <sys/resource.h>

static struct ig_config config;
static const char *const one[] = { "good" };
static const char *const two[] = { "good", "good2" };
static const char *const grouped[] = { "groups" };
static const char *const windowed[] = { "window" };

static int setup(void **state)
{
	fake_reset();
	harness_config(&config, one, 1);
	return 0;
}

static int teardown(void **state)
{
	harness_abandon();
	harness_config_finish(&config);
	return 0;
}

static void use_models(const char *const *models, size_t n)
{
	harness_config_finish(&config);
	harness_config(&config, models, n);
}

static void assert_answer(const struct client *c, const struct ask *a)
{
	char text[65536];
	int32_t n = expected(a, text, sizeof text);

	assert_string_equal(c->text, text);
	assert_int_equal(c->result.finish, IG_FINISH_LENGTH);
	assert_int_equal(c->result.n_output, n);
	assert_int_equal(c->result.n_prompt, a->n_prompt);
}

/* ---- the same tokens, whatever runs beside ---------------------------------------------- */

static void same_tokens(const char *const *models, uint32_t chunk, uint32_t batch, int n_beside)
{
	static struct client c[16];
	struct ask a[16];
	struct ig_engine *e;

	use_models(models, 1);
	if (n_beside)
		fake.delay_us = 200; /* so that they meet */
	fake.gated = n_beside;
	config.scheduler.prefill_chunk = chunk;
	config.scheduler.max_batch_tokens = batch;
	if (fake.split_rows == 1) /* or the first answers end before the last prompts are read */
		config.scheduler.prompt_share = 95;
	e = harness_engine(&config);
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
		assert_answer(&c[i], &a[i]);
	}
	assert_true(fake.max_rows_seen <= (int)batch);
	assert_true(fake.max_seqs_seen <= (int)(batch < 16 ? batch : 16));
	if (n_beside == 15 && chunk > 1 && batch > 4)
		assert_true(fake.max_seqs_seen > 4); /* they really ran together */
	assert_int_equal(fake.max_in_flight, strcmp(harness_run_ahead, "on") ? 1 : 2);
	harness_close(e);
}

static void test_alone(void **state) { same_tokens(one, 64, 128, 0); }

static void test_among_fifteen(void **state) { same_tokens(one, 64, 128, 15); }

static void test_chunk_1(void **state) { same_tokens(one, 1, 128, 15); }

static void test_chunk_7(void **state) { same_tokens(one, 7, 32, 15); }

static void test_batch_less_than_sequences(void **state) { same_tokens(one, 64, 3, 15); }

static void test_two_cache_groups(void **state) { same_tokens(grouped, 7, 64, 15); }

static void test_window(void **state) { same_tokens(windowed, 7, 64, 15); }

static void test_window_less_than_chunk(void **state) { same_tokens(windowed, 100, 128, 15); }

/* Rounds of several steps. */
static void test_split(void **state)
{
	fake.split_rows = 20;
	same_tokens(one, 64, 128, 15);
}

static void test_split_window(void **state)
{
	fake.split_rows = 1;
	same_tokens(windowed, 7, 64, 15);
}

static void test_chunks_share_a_step(void **state)
{
	struct client a, b;
	struct ig_engine *e;

	fake.gated = true;
	config.scheduler.max_batch_tokens = 100;
	e = harness_engine(&config);
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
	struct ig_engine *e = harness_engine(&config);

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

/* ---- prompts that begin alike ------------------------------------------------------------- */

static void test_prefix_is_not_computed_again(void **state)
{
	struct ask a = { .n_prompt = 100, .max_tokens = 30, .seed = 1 }, b = a, longer = a;
	static int32_t both[140];
	struct client c;
	struct ig_engine *e = harness_engine(&config);

	client_ask(&c, e, &a);
	client_finish(&c);
	assert_answer(&c, &a);
	assert_int_equal(c.result.n_cached, 0);
	int before = fake.n_prefill_rows;
	client_ask(&c, e, &a); /* the same again */
	client_finish(&c);
	assert_answer(&c, &a);
	assert_int_equal(c.result.n_cached, 99); /* its last block is full by now */
	assert_int_equal(fake.n_prefill_rows, before + 1);
	b.seed = 2; /* other samples after the same prompt */
	client_ask(&c, e, &b);
	client_finish(&c);
	assert_answer(&c, &b);
	assert_int_equal(c.result.n_cached, 99);
	/* The prompt, its output and more: a conversation continues.  Output is cached too. */
	make_prompt(both, 100, a.prompt_seed);
	for (int i = 100; i < 140; i++)
		both[i] = fake_next("good", both, i, a.seed);
	longer.prompt = both;
	longer.n_prompt = 140;
	client_ask(&c, e, &longer);
	client_finish(&c);
	assert_answer(&c, &longer);
	assert_int_equal(c.result.n_cached, 128); /* all 129 that were computed, in whole blocks */
	/* Not of another model, not with another first token. */
	both[0] = (both[0] + 1) % FAKE_N_TEXT;
	client_ask(&c, e, &longer);
	client_finish(&c);
	assert_answer(&c, &longer);
	assert_int_equal(c.result.n_cached, 0);
	wait_for(gauge(IG_GAUGE_KV_USED_BYTES) == 0);
	assert_true(gauge(IG_GAUGE_KV_CACHED_BYTES) >= 8 * GOOD_BLOCK_BYTES);
	harness_close(e);
}

static void test_prefix_cache_off(void **state)
{
	struct ask a = { .n_prompt = 100, .max_tokens = 3, .seed = 1 };
	struct client c;
	struct ig_engine *e;

	config.kvcache.prefix_cache = false;
	e = harness_engine(&config);
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
		strcpy(config.kvcache.share, all ? "all" : "key");
		struct ig_engine *e = harness_engine(&config);
		struct client c;

		for (uint64_t salt = 0; salt < 3; salt++)
			for (int again = 0; again < 2; again++) {
				struct ask a = {
					.n_prompt = 100, .max_tokens = 3, .seed = 1, .salt = salt
				};
				client_ask(&c, e, &a);
				client_finish(&c);
				assert_answer(&c, &a);
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

	use_models(windowed, 1);
	fake.gated = true;
	e = harness_engine(&config);
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
	assert_answer(&c, &a);
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

	use_models(windowed, 1);
	e = harness_engine(&config);
	for (int i = 0; i < 2; i++) {
		client_ask(&c, e, &a);
		client_finish(&c);
		assert_answer(&c, &a);
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
	assert_answer(&c, &longer);
	assert_int_equal(c.result.n_cached, 128);
	wait_for(gauge(IG_GAUGE_KV_USED_BYTES) == 0);
	harness_close(e);
}

/* One text that has the cache for itself is as long as it may be, in rows as many as fit. */
static void test_window_alone(void **state)
{
	struct ask a = { .model = "window", .n_prompt = 240, .max_tokens = 16, .seed = 5 };
	struct client c;
	struct ig_error err;
	struct ig_engine *e;

	use_models(windowed, 1);
	config.scheduler.prefill_chunk = 16;
	/* four blocks of the first group a slab, one of the second */
	config.kvcache.arena = (uint64_t)(4 + window_blocks(16)) * SLAB_BYTES;
	e = harness_engine(&config);
	assert_int_equal(client_try(&c, e, &(struct ask){ .n_prompt = 257 }, &err), -E2BIG);
	assert_string_equal(err.text, "the prompt has 257 tokens, the cache holds 256 of window; "
				      "kvcache.arena sets its size");
	for (int i = 0; i < 3; i++) {
		a.prompt_seed = (unsigned)i;
		client_ask(&c, e, &a);
		client_finish(&c);
		assert_answer(&c, &a);
		config.scheduler.prefill_chunk = 100; /* more than a step has rows */
		ig_engine_reload(e, &config);
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

	config.kvcache.arena = 16 * SLAB_BYTES;
	e = harness_engine(&config);
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
			assert_answer(&c[i], &a[i]);
			assert_in_range(c[i].result.n_cached, 0, a[i].n_prompt - 1);
			n_cached += c[i].result.n_cached;
		}
	}
	assert_true(n_cached > 1000);
	assert_true(counter(IG_COUNTER_PREEMPTIONS) > 0); /* some 60 */
	harness_close(e);
}

/* ---- cancel --------------------------------------------------------------------------------- */

static void test_cancel_frees_within_one_step(void **state)
{
	struct client c[8];
	struct ig_engine *e;
	char id[16];

	fake.gated = true;
	e = harness_engine(&config);
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
		assert_answer(&c[i], &(struct ask){ .n_prompt = 20,
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
	config.scheduler.max_seqs = 1;
	e = harness_engine(&config);
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
	config.scheduler.max_seqs = 2;
	e = harness_engine(&config);
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

/* ---- preemption ------------------------------------------------------------------------------- */

static void preempt_and_recompute(const char *const *models, uint32_t n_slabs, bool prefix_cache)
{
	static struct client c[12];
	struct ask a[12];
	struct ig_engine *e;

	use_models(models, 1);
	config.models[0].context = 200;
	config.kvcache.arena = n_slabs * SLAB_BYTES;
	config.kvcache.prefix_cache = prefix_cache;
	config.scheduler.prefill_chunk = 16;
	fake.gated = true; /* until all twelve are there: fewer may fit */
	e = harness_engine(&config);
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
		assert_answer(&c[i], &a[i]);
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
	preempt_and_recompute(one, 8, false);
	fake_reset();
	preempt_and_recompute(one, 8, true);
}

static void test_preempt_two_groups(void **state)
{
	preempt_and_recompute(grouped, 60, false);
	fake_reset();
	preempt_and_recompute(grouped, 60, true);
}

static void test_preempt_window(void **state)
{
	preempt_and_recompute(windowed, 24, false);
	fake_reset();
	preempt_and_recompute(windowed, 24, true);
}

/* Two models in an arena that can't hold both at once. */
static void test_preempt_across_models(void **state)
{
	static struct client c[8];
	struct ask a[8];
	struct ig_engine *e;

	use_models(two, 2);
	config.models[0].context = config.models[1].context = 200;
	config.kvcache.arena = 5 * SLAB_BYTES;
	fake.gated = true; /* until all eight are there */
	e = harness_engine(&config);
	for (int i = 0; i < 8; i++) {
		a[i] = (struct ask){ .model = two[i % 2],
				     .n_prompt = 20,
				     .prompt_seed = (unsigned)i,
				     .max_tokens = 150 };
		client_ask(&c[i], e, &a[i]);
	}
	fake_open_gate();
	for (int i = 0; i < 8; i++) {
		client_finish(&c[i]);
		assert_answer(&c[i], &a[i]);
	}
	assert_true(counter(IG_COUNTER_PREEMPTIONS) > 0);
	harness_close(e);
}

static void test_alone_too_large(void **state)
{
	struct client c;
	struct ig_error err;
	struct ig_engine *e;

	config.kvcache.arena = 5 * SLAB_BYTES; /* 20 blocks: 320 tokens of a context of 512 */
	e = harness_engine(&config);
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
	assert_answer(&c, &a);
	harness_close(e);
}

/* ---- slow clients ------------------------------------------------------------------------------ */

static void test_slow_client_pauses_alone(void **state)
{
	struct client slow, other;
	struct ig_engine *e = harness_engine(&config);
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
	assert_answer(&other, &b);
	wait_for(gauge(IG_GAUGE_KV_USED_BYTES) == used); /* its blocks stay */
	assert_int_equal((int)gauge(IG_GAUGE_REQUESTS_PAUSED), 1);
	/* read byte by byte: it resumes, pauses, resumes … and says the same */
	while (!slow.over) {
		size_t n = slow.n_text;
		wait_for((client_take(&slow), slow.over || slow.n_text > n));
		ig_engine_resume(e, slow.gen);
	}
	client_drop(&slow);
	assert_answer(&slow, &a);
	assert_int_equal((int)gauge(IG_GAUGE_REQUESTS_PAUSED), 0);
	harness_close(e);
}

static void test_slow_client_times_out(void **state)
{
	struct client slow;
	struct ig_engine *e;
	int64_t start = ig_now_ns();

	config.server.slow_client_timeout_ms = 60;
	e = harness_engine(&config);
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
	config.server.slow_client_timeout_ms = 30;
	e = harness_engine(&config);
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

	config.scheduler.max_seqs = 2;
	e = harness_engine(&config);
	for (int i = 0; i < 4; i++)
		client_ask(&slow[i], e, &a);
	wait_for(gauge(IG_GAUGE_REQUESTS_PAUSED) == 4);
	client_ask(&other, e, &b);
	client_finish(&other);
	assert_answer(&other, &b);
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
		assert_answer(&slow[i], &a);
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

	e = harness_engine(&config);
	client_ask(&c, e, &a);
	while (!c.over) {
		client_take(&c);
		ig_engine_resume(e, c.gen);
	}
	client_drop(&c);
	assert_answer(&c, &a);
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
	e = harness_engine(&config);
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
	e = harness_engine(&config);
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

	config.scheduler.max_output_tokens = 9;
	e = harness_engine(&config);
	client_ask(&c, e, &a);
	client_finish(&c);
	assert_int_equal(c.result.n_output, 9); /* the default of the configuration */
	a.max_tokens = 1;
	client_ask(&c, e, &a);
	client_finish(&c);
	assert_answer(&c, &a);
	a.max_tokens = 1000;
	client_ask(&c, e, &a);
	client_finish(&c);
	assert_int_equal(c.result.n_output, 12); /* the context */
	assert_answer(&c, &a);
	harness_close(e);
}

static int32_t bad_script(const int32_t *tokens, int32_t n) { return n >= 8 ? FAKE_VOCAB + 5 : 0; }

static void test_a_token_that_does_not_exist(void **state)
{
	struct client c;
	struct ig_engine *e;

	fake.script = bad_script;
	e = harness_engine(&config);
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
	e = harness_engine(&config);
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
	assert_answer(&a, &again);
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

/* ---- models ------------------------------------------------------------------------------------- */

static void test_two_models_take_turns(void **state)
{
	struct client c[6];
	struct ask a[6];
	struct ig_engine *e;

	use_models(two, 2);
	fake.gated = true;
	e = harness_engine(&config);
	for (int i = 0; i < 6; i++) {
		a[i] = (struct ask){ .model = two[i % 2],
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
		assert_answer(&c[i], &a[i]);
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
	config.scheduler.max_seqs = 2;
	config.scheduler.max_queue = 3;
	e = harness_engine(&config);
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
	config.scheduler.max_queue = 0;
	wait_for(gauge(IG_GAUGE_REQUESTS_RUNNING) == 0);
	ig_engine_reload(e, &config);
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
	e = harness_engine(&config);
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
	assert_answer(&c, &a);
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

	use_models(two, 2);
	config.models[0].context = config.models[1].context = 150;
	config.kvcache.arena = 7 * SLAB_BYTES;
	config.scheduler.max_seqs = 6;
	config.scheduler.max_queue = 8;
	config.scheduler.prefill_chunk = 9;
	config.scheduler.max_batch_tokens = 20;
	fake.delay_us = 30;
	e = harness_engine(&config);
	for (bool busy = true; busy || n_asked < TOTAL;) {
		busy = false;
		usleep(100);
		if (ig_now_ns() > until)
			fail_msg("%d asked, %d answered: no progress", n_asked, n_answered);
		for (int i = 0; i < N; i++) {
			struct ig_error err;

			if (!used[i] && n_asked < TOTAL && !rnd(8)) {
				a[i] = (struct ask){ .model = two[rnd(2)],
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
	struct ig_engine *e = harness_engine(&config);
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
	struct ig_engine *e = harness_engine(&config);

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
	e = harness_engine(&config);
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
	config.scheduler.max_seqs = 64;
	e = harness_engine(&config);
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
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
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
		T(test_window_is_all_that_is_used),
		T(test_window_turns),
		T(test_window_alone),
		T(test_penalties_count_tokens),
		T(test_prefix_is_not_computed_again),
		T(test_prefix_cache_off),
		T(test_prefixes_are_salted),
		T(test_prefixes_among_many),
		T(test_cancel_frees_within_one_step),
		T(test_cancel_while_waiting),
		T(test_destroy_cancels),
		T(test_preempt),
		T(test_preempt_two_groups),
		T(test_preempt_window),
		T(test_preempt_across_models),
		T(test_alone_too_large),
		T(test_slow_client_pauses_alone),
		T(test_slow_client_times_out),
		T(test_slow_client_with_a_byte_of_space),
		T(test_slow_clients_leave_their_slots),
		T(test_long_token_through_a_small_ring),
		T(test_end_token),
		T(test_stop_string_found_late),
		T(test_limits),
		T(test_a_token_that_does_not_exist),
		T(test_submit_fails),
		T(test_wait_fails),
		T(test_device_is_lost),
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
