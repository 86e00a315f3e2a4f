/*
 * test_speculation.c: drafts change when tokens come, and nothing else: the same requests with and
 * without them, alone and together, with everything that a request may want.
 */
#include "harness.h"

#define N 10	 /* requests of a round */
#define MOST 120 /* tokens of an output */

static struct ig_config config;
static unsigned seed = 1;

static int rnd(int n)
{
	seed = seed * 1664525u + 1013904223u;
	return (int)((seed >> 16) % (unsigned)n);
}

static void configure(const char *const *models, size_t n, const char *speculation)
{
	harness_config_finish(&config);
	harness_speculation = speculation;
	harness_config(&config, models, n);
	harness_speculation = "off";
}

static int setup(void **state)
{
	static const char *const one[] = { "good" };

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

/* ---- the same with and without ---------------------------------------------------------- */

#define N_KINDS 4
static const char *const kinds[N_KINDS] = { "good", "groups", "window", "state" };

struct request {
	struct ask ask;
	struct ig_bias bias;
	struct fake_grammar grammar;
	int32_t prompt[128], predicted[MOST];
};

/* The options of a round. */
struct round {
	int prefix_cache, small_arena, max_seqs, batch, chunk, split, with_model, with_head;
};

/* What the output may be, with some tokens that differ. */
static void predict(struct request *r)
{
	int32_t tokens[128 + MOST], n = r->ask.n_prompt;

	memcpy(tokens, r->prompt, (size_t)n * sizeof *tokens);
	for (int32_t i = 0; i < MOST; i++) {
		tokens[n + i] = fake_next(r->ask.model, tokens, n + i, r->ask.seed);
		r->predicted[i] = rnd(12) ? tokens[n + i] : rnd(12);
	}
	r->ask.predicted = r->predicted;
	r->ask.n_predicted = 1 + rnd(MOST);
}

static void make_request(struct request *r)
{
	static const char *const stops[] = { "ab", "cabb", "aab", "xyz", "babaab" };
	struct ask *a = &r->ask;

	memset(r, 0, sizeof *r);
	*a = (struct ask){ .model = kinds[rnd(N_KINDS)],
			   .n_prompt = 1 + rnd(90),
			   .max_tokens = 1 + rnd(MOST),
			   .seed = (unsigned)rnd(5),
			   .salt = (unsigned)rnd(3) };
	a->prompt = r->prompt;
	for (int32_t i = 0, period = 3 + rnd(30); i < a->n_prompt; i++)
		r->prompt[i] = i < period || !rnd(15) ? rnd(12) : r->prompt[i - period];
	if (!rnd(3))
		predict(r);
	if (!rnd(3))
		a->frequency_penalty = 0.5f;
	if (!rnd(6))
		a->repetition_penalty = 1.25f;
	if (!rnd(5)) {
		r->bias = (struct ig_bias){ .id = rnd(12), .bias = -50 };
		a->bias = &r->bias;
	}
	if (!rnd(4)) {
		r->grammar = (struct fake_grammar){ .n_tokens = 1 + rnd(80),
						    .modulus = 1 + rnd(3),
						    .closes = rnd(2) };
		a->grammar = &r->grammar;
	} else if (!rnd(5)) {
		a->ignore_end = true;
	}
	if (!rnd(3))
		a->n_probs = 1 + rnd(21);
	for (int i = 0, n = rnd(3) ? 0 : 1 + rnd(3); i < n; i++)
		a->stops[i] = stops[rnd(5)];
	if (!rnd(4))
		a->ring = 16;
	if (!rnd(4))
		a->logprob_ring = 1 + (unsigned)rnd(4);
}

static struct ig_engine *start(const struct round *r, const char *speculation)
{
	static const char *const smalls[] = { "small:good", "small:groups", "small:window",
					      "small:state" };
	static const char *const heads[] = { "mtp:good", "mtp:groups", "mtp:window", "mtp:state" };

	configure(kinds, N_KINDS, speculation);
	for (int i = 0; i < N_KINDS; i++) {
		config.models[i].context = 256;
		if (r->with_model)
			config.models[i].draft = (char *)(uintptr_t)smalls[i];
		if (r->with_head) {
			free(config.models[i].path);
			config.models[i].path = strdup(heads[i]);
		}
	}
	config.kvcache.prefix_cache = r->prefix_cache;
	config.kvcache.arena = (r->small_arena ? 40 : 500) * SLAB_BYTES;
	config.scheduler.max_seqs = (uint32_t)r->max_seqs;
	config.scheduler.max_batch_tokens = (uint32_t)r->batch;
	config.scheduler.prefill_chunk = (uint32_t)r->chunk;
	fake.split_rows = (uint32_t)r->split;
	return harness_engine(&config);
}

/* Take what the engine brings until all are over; cancel one as soon as it has so many bytes. */
static void take_all(struct ig_engine *e, struct client *c, int n, int cancelled, size_t at)
{
	int64_t until = ig_now_ns() + (int64_t)60 * 1000000000;

	for (int n_over = 0; n_over < n;) {
		n_over = 0;
		for (int i = 0; i < n; i++) {
			if (!c[i].over) {
				client_take(&c[i]);
				ig_engine_resume(e, c[i].gen);
			}
			if (i == cancelled && c[i].n_text >= at)
				ig_engine_cancel(e, c[i].gen, "client_gone");
			n_over += c[i].over;
		}
		if (ig_now_ns() > until)
			fail_msg("%d of %d are over: no progress", n_over, n);
		usleep(50);
	}
	for (int i = 0; i < n; i++)
		client_drop(&c[i]);
}

static void assert_same(const struct client *a, const struct client *b)
{
	assert_string_equal(a->text, b->text);
	assert_int_equal(a->result.finish, b->result.finish);
	assert_int_equal(a->result.n_output, b->result.n_output);
	assert_int_equal(a->result.stop_index, b->result.stop_index);
	assert_int_equal(a->n_logprobs, b->n_logprobs);
	for (size_t i = 0; i < a->n_logprobs; i++) {
		const struct ig_token_logprob *x = &a->logprobs[i], *y = &b->logprobs[i];
		assert_int_equal(x->id, y->id);
		assert_memory_equal(&x->logprob, &y->logprob, sizeof x->logprob);
		assert_int_equal(x->text_end, y->text_end);
		assert_int_equal(x->n_top, y->n_top);
		assert_memory_equal(x->top, y->top, (size_t)x->n_top * sizeof *x->top);
	}
}

static struct client plain[N], together[N], alone;

static void one_round(const char *speculation)
{
	static struct request r[N];
	struct round options = {
		.prefix_cache = rnd(2),
		.small_arena = rnd(2),
		.max_seqs = 1 + rnd(10),
		.batch = 12 + rnd(100),
		.chunk = 1 + rnd(60),
		.split = rnd(2) * 7,
		.with_model = strcmp(speculation, "lookup") && strcmp(speculation, "mtp"),
		.with_head = !strcmp(speculation, "mtp") || (!strcmp(speculation, "on") && rnd(2))
	};
	int cancelled = rnd(N);
	size_t at = (size_t)rnd(30);
	struct ig_engine *e = start(&options, "off");
	int n_drafts = counter(IG_COUNTER_DRAFTS);

	for (int i = 0; i < N; i++) {
		make_request(&r[i]);
		client_ask(&plain[i], e, &r[i].ask);
	}
	take_all(e, plain, N, -1, 0);
	harness_close(e);
	assert_int_equal(counter(IG_COUNTER_DRAFTS), n_drafts);

	e = start(&options, speculation);
	for (int i = 0; i < N; i++)
		client_ask(&together[i], e, &r[i].ask);
	take_all(e, together, N, cancelled, at);
	for (int i = 0; i < N; i++) {
		if (together[i].result.finish == IG_FINISH_CANCELLED)
			assert_memory_equal(together[i].text, plain[i].text, together[i].n_text);
		else
			assert_same(&plain[i], &together[i]);
		client_ask(&alone, e, &r[i].ask);
		take_all(e, &alone, 1, -1, 0);
		assert_same(&plain[i], &alone);
	}
	wait_for(gauge(IG_GAUGE_KV_USED_BYTES) == 0);
	harness_close(e);
}

static void test_same_tokens(void **state)
{
	fake.memory = 2;
	fake.penalizes = true;
	fake.delay_us = 20;
	/* who meets whom is the threads' matter: more rounds until somebody had to make room */
	for (int i = 0; i < 25 || (!counter(IG_COUNTER_PREEMPTIONS) && i < 100); i++)
		one_round("lookup");
	int n = counter(IG_COUNTER_DRAFT_TOKENS), n_right = counter(IG_COUNTER_ACCEPTED_TOKENS);
	print_message("# %d drafts of %d tokens, %d accepted, %d preemptions\n",
		      counter(IG_COUNTER_DRAFTS), n, n_right, counter(IG_COUNTER_PREEMPTIONS));
	assert_true(n_right > 500 && n - n_right > 100);
	assert_true(counter(IG_COUNTER_PREEMPTIONS) > 0);
}

/* With a draft model that is sometimes right, or with both. */
static void test_same_tokens_as_guessed(void **state)
{
	fake.memory = 2;
	fake.penalizes = true;
	fake.delay_us = 40;
	fake.small_us = 2;
	for (int i = 0; i < 12 || (!counter(IG_COUNTER_PREEMPTIONS) && i < 60); i++) {
		atomic_store(&fake.misguesses, rnd(3) * 15);
		one_round(i % 3 ? "draft" : "on");
	}
	int n = counter(IG_COUNTER_MODEL_DRAFT_TOKENS);
	int n_right = counter(IG_COUNTER_MODEL_ACCEPTED_TOKENS);
	print_message("# %d drafts of %d tokens, %d accepted, %d preemptions\n",
		      counter(IG_COUNTER_MODEL_DRAFTS), n, n_right,
		      counter(IG_COUNTER_PREEMPTIONS));
	assert_true(n_right > 500 && n - n_right > 100);
	assert_true(counter(IG_COUNTER_ACCEPTED_TOKENS) > 20);
	assert_true(counter(IG_COUNTER_PREEMPTIONS) > 0);
}

/* With heads that are sometimes right, or with all sources. */
static void test_same_tokens_by_heads(void **state)
{
	fake.memory = 2;
	fake.penalizes = true;
	fake.delay_us = 40;
	fake.small_us = 2;
	for (int i = 0; i < 12 || (!counter(IG_COUNTER_PREEMPTIONS) && i < 60); i++) {
		atomic_store(&fake.misguesses, rnd(3) * 15);
		one_round(i % 3 ? "mtp" : "on");
	}
	int n = counter(IG_COUNTER_MTP_DRAFT_TOKENS);
	int n_right = counter(IG_COUNTER_MTP_ACCEPTED_TOKENS);
	print_message("# %d tokens guessed by heads, %d accepted, %d preemptions\n", n, n_right,
		      counter(IG_COUNTER_PREEMPTIONS));
	assert_true(n_right > 500 && n - n_right > 50);
	assert_true(counter(IG_COUNTER_PREEMPTIONS) > 0);
}

/* ---- when there are drafts ------------------------------------------------------------------ */

static int32_t circle(const int32_t *tokens, int32_t n) { return n % 7; }

/* A request of 200 tokens; returns the steps that it took. */
static int steps_of(const char *speculation)
{
	static const char *const one[] = { "good" };
	struct ask a = { .n_prompt = 30, .max_tokens = 200 };
	struct client c;
	char text[4096];
	struct ig_engine *e;
	int before = fake.n_steps;

	fake.script = circle;
	configure(one, 1, speculation);
	e = harness_engine(&config);
	client_ask(&c, e, &a);
	client_finish(&c);
	expected(&a, text, sizeof text);
	assert_string_equal(c.text, text);
	harness_close(e);
	assert_true(c.result.n_accepted <= c.result.n_drafted);
	assert_int_equal(counter(IG_COUNTER_DRAFT_TOKENS), c.result.n_drafted);
	assert_int_equal(counter(IG_COUNTER_ACCEPTED_TOKENS), c.result.n_accepted);
	return fake.n_steps - before;
}

static void test_off(void **state)
{
	fake.delay_us = 300;
	assert_true(steps_of("off") >= 200);
	assert_int_equal(counter(IG_COUNTER_DRAFTS), 0);
}

static void test_repetitions_take_few_steps(void **state)
{
	fake.delay_us = 300;
	assert_true(steps_of("lookup") < 80);
	assert_true(counter(IG_COUNTER_ACCEPTED_TOKENS) > 120);
}

/* Where a row takes as long as a step, there are few drafts: those that measure that. */
static void test_dear_rows(void **state)
{
	fake.row_us = 2000;
	steps_of("lookup");
	assert_true(counter(IG_COUNTER_DRAFT_TOKENS) < 130); /* 170 where rows are cheap */
}

static int32_t never_again(const int32_t *tokens, int32_t n)
{
	/* pairs of equal tokens that are followed by another one each time */
	return n % 3 ? 5 : n / 3 % FAKE_N_TEXT;
}

/* Guesses that are never right are not proposed. */
static void test_wrong_guesses(void **state)
{
	static const char *const one[] = { "good" };
	struct client c;
	struct ig_engine *e;

	fake.script = never_again;
	fake.delay_us = 500;
	fake.row_us = 200;
	configure(one, 1, "lookup");
	e = harness_engine(&config);
	client_ask(&c, e, &(struct ask){ .n_prompt = 6, .max_tokens = 170 });
	client_finish(&c);
	assert_int_equal(c.result.n_output, 170);
	print_message("# %d drafted, %d accepted\n", c.result.n_drafted, c.result.n_accepted);
	assert_true(c.result.n_drafted - c.result.n_accepted < 60);
	harness_close(e);
}

/* It is turned on and off for the requests that come. */
static void test_reload(void **state)
{
	static const char *const one[] = { "good" };
	struct ask a = { .n_prompt = 30, .max_tokens = 200 };
	struct client c;
	struct ig_engine *e;

	fake.script = circle;
	fake.delay_us = 100;
	configure(one, 1, "off");
	e = harness_engine(&config);
	client_ask(&c, e, &a);
	client_finish(&c);
	assert_int_equal(c.result.n_drafted, 0);
	configure(one, 1, "lookup");
	ig_engine_reload(e, &config);
	client_ask(&c, e, &a);
	client_finish(&c);
	assert_true(c.result.n_drafted > 0);
	configure(one, 1, "off");
	ig_engine_reload(e, &config);
	client_ask(&c, e, &a);
	client_finish(&c);
	assert_int_equal(c.result.n_drafted, 0);
	harness_close(e);
}

/* Beside a prompt that is read, and with one sequence at a time. */
static void test_one_sequence_at_a_time(void **state)
{
	static const char *const one[] = { "good" };
	struct client c[3];
	struct ig_engine *e;

	fake.script = circle;
	fake.delay_us = 300;
	configure(one, 1, "lookup");
	config.scheduler.max_seqs = 1;
	e = harness_engine(&config);
	for (int i = 0; i < 3; i++)
		client_ask(&c[i], e, &(struct ask){ .n_prompt = 100, .max_tokens = 100 });
	for (int i = 0; i < 3; i++) {
		client_finish(&c[i]);
		assert_true(c[i].result.n_accepted > 30);
	}
	harness_close(e);
}

/* ---- predictions ----------------------------------------------------------------------------- */

static int32_t all_different(const int32_t *tokens, int32_t n)
{
	return n * 7919 / 13 % FAKE_N_TEXT;
}

static int32_t accepted_with(const int32_t *predicted, int32_t n)
{
	static const char *const one[] = { "good" };
	struct ask a = {
		.n_prompt = 20, .max_tokens = 100, .predicted = predicted, .n_predicted = n
	};
	struct client c;
	char text[4096];
	struct ig_engine *e;

	configure(one, 1, "lookup");
	e = harness_engine(&config);
	for (int i = 0; i < 3; i++) { /* what a step takes is known from the second on */
		client_ask(&c, e, &a);
		client_finish(&c);
		expected(&a, text, sizeof text);
		assert_string_equal(c.text, text);
	}
	harness_close(e);
	return c.result.n_accepted;
}

static void test_prediction(void **state)
{
	int32_t predicted[120];

	fake.script = all_different;
	fake.delay_us = 300;
	for (int32_t i = 0; i < 120; i++)
		predicted[i] = all_different(NULL, 20 + i);
	int32_t n = accepted_with(predicted, 120);
	assert_true(n > 60);
	for (int32_t i = 0; i < 120; i++) /* an other one helps nothing */
		predicted[i] = 59 - predicted[i];
	assert_true(accepted_with(predicted, 120) < n);
}

static void test_wrong_predictions(void **state)
{
	static int32_t predicted[FAKE_CONTEXT + 1];
	struct ask a = { .n_prompt = 20, .predicted = predicted, .n_predicted = FAKE_CONTEXT + 1 };
	struct ig_engine *e = harness_engine(&config);
	struct ig_error err = { 0 };
	struct client c;

	assert_int_equal(client_try(&c, e, &a, &err), -E2BIG);
	assert_non_null(strstr(err.text, "the prediction has 513 tokens"));
	a.n_predicted = 9;
	predicted[7] = FAKE_VOCAB;
	assert_int_equal(client_try(&c, e, &a, &err), -EINVAL);
	assert_string_equal(err.text, "token 7 of the prediction is 64; good has 64 tokens");
	harness_close(e);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_same_tokens, setup, teardown),
		cmocka_unit_test_setup_teardown(test_same_tokens_as_guessed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_same_tokens_by_heads, setup, teardown),
		cmocka_unit_test_setup_teardown(test_off, setup, teardown),
		cmocka_unit_test_setup_teardown(test_repetitions_take_few_steps, setup, teardown),
		cmocka_unit_test_setup_teardown(test_dear_rows, setup, teardown),
		cmocka_unit_test_setup_teardown(test_wrong_guesses, setup, teardown),
		cmocka_unit_test_setup_teardown(test_reload, setup, teardown),
		cmocka_unit_test_setup_teardown(test_one_sequence_at_a_time, setup, teardown),
		cmocka_unit_test_setup_teardown(test_prediction, setup, teardown),
		cmocka_unit_test_setup_teardown(test_wrong_predictions, setup, teardown),
	};

	if (argc > 1 && !strcmp(argv[1], "ahead"))
		harness_run_ahead = "on";
	return cmocka_run_group_tests(tests, NULL, NULL);
}
