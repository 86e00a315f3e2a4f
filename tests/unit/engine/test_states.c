/*
 * test_states.c: models with recurrent layers: over a driver whose states are hashes of the tokens that they
 * stand for (fake_states.h), so that a state of other tokens, or none, is a breach.  What went
 * wrong in others' servers: states of sequences side by side mixed up (llama.cpp 29002), wrong positions
 * after a restore (SGLang 33450), states never written (SGLang 30862), no hits for short prompts
 * or in a common prefix (vLLM 40696, 45238), the whole prompt read again (llama.cpp 18497).
 */
#include "harness.h"

/* Parts of 256 and 512 bytes, 4 and 2 of them. */
#define STATE_BYTES (4 * 256 + 2 * 512)
#define N 10

static struct ig_config config;
static const char *const state_model[] = { "state" };
static const char *const both_models[] = { "state", "good" };
static unsigned seed = 1;

static int rnd(int n)
{
	seed = seed * 1664525u + 1013904223u;
	return (int)((seed >> 16) % (unsigned)n);
}

static int setup(void **state)
{
	fake_reset();
	harness_config(&config, state_model, 1);
	return 0;
}

static int teardown(void **state)
{
	harness_abandon();
	harness_config_finish(&config);
	return 0;
}

static void assert_answer(const struct client *c, const struct ask *a)
{
	char text[65536];
	int32_t n = expected(a, text, sizeof text);

	assert_string_equal(c->text, text);
	assert_int_equal(c->result.n_output, n);
}

static struct client client;

/* Ask, and return how many tokens of the prompt were cached. */
static int ask(struct ig_engine *e, const struct ask *a)
{
	client_ask(&client, e, a);
	client_finish(&client);
	assert_answer(&client, a);
	return client.result.n_cached;
}

/* ---- any requests side by side --------------------------------------------------------- */

static void one_round(bool small_arena)
{
	static struct client c[N];
	static int32_t prompts[N][200];
	struct ask a[N];
	struct ig_engine *e;

	harness_config_finish(&config);
	harness_config(&config, both_models, 2);
	for (int i = 0; i < 2; i++)
		config.models[i].context = 320;
	config.kvcache.prefix_cache = rnd(8) > 0;
	config.kvcache.arena = (uint64_t)(small_arena ? 13 + rnd(6) : 400) * SLAB_BYTES;
	config.scheduler.max_seqs = (uint32_t)(1 + rnd(10));
	config.scheduler.max_batch_tokens = (uint32_t)(12 + rnd(150));
	config.scheduler.prefill_chunk = (uint32_t)(1 + rnd(100));
	fake.split_rows = (uint32_t)(rnd(2) * 7);
	e = harness_engine(&config);
	for (int turn = 0; turn < 3; turn++) {
		for (int i = 0; i < N; i++) {
			int32_t n = 20 + rnd(180), same = rnd(n);
			make_prompt(prompts[i], n, (unsigned)rnd(1000));
			/* some begin as others do */
			if (i && rnd(3))
				memcpy(prompts[i], prompts[rnd(i)],
				       (size_t)(same < 20 ? same : 20) * 4);
			if (i && rnd(2))
				memcpy(prompts[i], prompts[0], (size_t)same / 3 * 4);
			a[i] = (struct ask){ .model = both_models[!rnd(5)],
					     .prompt = prompts[i],
					     .n_prompt = n,
					     .max_tokens = 1 + rnd(70),
					     .seed = (unsigned)i };
			client_ask(&c[i], e, &a[i]);
		}
		for (int i = 0; i < N; i++) {
			if (i == 3)
				ig_engine_cancel(e, c[i].gen, "client_gone");
			client_finish(&c[i]);
			if (i != 3)
				assert_answer(&c[i], &a[i]);
		}
	}
	wait_for(gauge(IG_GAUGE_KV_USED_BYTES) == 0);
	harness_close(e);
}

static void test_same_tokens(void **state)
{
	for (int i = 0; i < 20; i++)
		one_round(i % 2);
	assert_true(counter(IG_COUNTER_PREEMPTIONS) > 0);
}

/* ---- conversations ----------------------------------------------------------------------- */

#define TURNS 6

/* Four agents at once, with the same instructions: each turn is the one before, what was said, and more.
 * rewritten: tokens at the end of a prompt that are others in the next one. */
static void conversations(int rewritten)
{
	static int32_t texts[4][FAKE_CONTEXT];
	static struct client c[4];
	int32_t n[4];
	int64_t n_prompt = 0, n_cached = 0;
	struct ig_engine *e = harness_engine(&config);

	for (int i = 0; i < 4; i++) {
		make_prompt(texts[i], 100, 1);
		make_prompt(texts[i] + 100, 30, 10u + (unsigned)i);
		n[i] = 130;
	}
	for (int turn = 0; turn < TURNS; turn++) {
		struct ask a[4];
		for (int i = 0; i < 4; i++) {
			a[i] = (struct ask){ .model = "state",
					     .prompt = texts[i],
					     .n_prompt = n[i],
					     .max_tokens = 20 + turn,
					     .seed = (unsigned)i };
			client_ask(&c[i], e, &a[i]);
		}
		for (int i = 0; i < 4; i++) {
			client_finish(&c[i]);
			assert_answer(&c[i], &a[i]);
			if (turn) {
				/* but for what is new, and less than a block before it */
				int32_t before = n[i] - 30 - (rewritten ? rewritten : 0);
				n_prompt += before;
				n_cached += c[i].result.n_cached;
				assert_in_range(c[i].result.n_cached,
						before - 20 - turn - 2 * IG_BLOCK_TOKENS, before);
			}
			for (int32_t k = 0; k < 20 + turn; k++, n[i]++)
				texts[i][n[i]] = fake_next("state", texts[i], n[i], a[i].seed);
			if (rewritten) {
				n[i] -= 20 + turn + rewritten;
				make_prompt(texts[i] + n[i], 20 + turn + rewritten,
					    100u + (unsigned)turn);
				n[i] += 20 + turn + rewritten;
			}
			make_prompt(texts[i] + n[i], 30, 50u + (unsigned)turn);
			n[i] += 30;
		}
	}
	if (!rewritten)
		assert_true(n_cached * 100 >= n_prompt * 90); /* prompts here are short */
	harness_close(e);
}

static void test_conversations(void **state) { conversations(0); }

/* A template that writes the beginning of a reply in another way when the reply is there. */
static void test_rewritten_ends(void **state) { conversations(7); }

/* The third of those who begin alike and then differ begins where they part. */
static void test_junction(void **state)
{
	static int32_t prompts[4][120];
	struct ig_engine *e = harness_engine(&config);
	struct ask a = { .model = "state", .n_prompt = 120, .max_tokens = 20 };
	static const int cached[] = { 0, 0, 48, 48 };

	for (int i = 0; i < 4; i++) {
		make_prompt(prompts[i], 57, 1);
		make_prompt(prompts[i] + 57, 63, 10u + (unsigned)i);
		a.prompt = prompts[i];
		assert_int_equal(ask(e, &a), cached[i]);
	}
	assert_int_equal(client.result.report.reason, IG_PREFIX_DIVERGED);
	harness_close(e);
}

/* The second of those who have the same first message begins where that ends. */
static void test_first_message(void **state)
{
	static int32_t prompt[120];
	struct ig_engine *e = harness_engine(&config);
	struct ask a = { .model = "state", .prompt = prompt, .n_prompt = 120, .max_tokens = 20 };
	static const int ends[] = { 57, 15, 14, 110 }, cached[] = { 48, 16, 0, 96 };

	for (unsigned i = 0; i < 4; i++) {
		for (unsigned k = 0; k < 2; k++) {
			make_prompt(prompt, 120, i);
			prompt[ends[i]] = FAKE_END;
			make_prompt(prompt + ends[i] + 1, 119 - ends[i], 10 + k);
			assert_int_equal(ask(e, &a), k ? cached[i] : 0);
		}
	}
	harness_close(e);
}

/* Who is cancelled in the middle of a prompt, with or without steps in flight, leaves states of what was
 * read: the same prompt goes on there, and so does one that is read beside it. */
static void test_cancelled(void **state)
{
	static struct client c[2];
	struct ask a = { .model = "state", .n_prompt = 200, .max_tokens = 20 }, b = a;
	int n_cached = 0;

	config.scheduler.prefill_chunk = 20;
	config.scheduler.max_batch_tokens = 24;
	for (int n_steps = 1; n_steps < 8; n_steps++) {
		struct ig_engine *e;
		fake_reset();
		fake.gated = true;
		b.prompt_seed = 5;
		e = harness_engine(&config);
		client_ask(&c[0], e, &a);
		client_ask(&c[1], e, &b);
		for (int i = 0; i < n_steps; i++) {
			fake_wait_at_gate();
			fake_allow(1);
		}
		ig_engine_cancel(e, c[0].gen, "client_gone");
		fake_open_gate();
		client_finish(&c[0]);
		n_cached += ask(e, &a);
		client_finish(&c[1]);
		assert_answer(&c[1], &b);
		harness_close(e);
	}
	assert_true(n_cached > 7 * IG_BLOCK_TOKENS);
}

/* Many who begin alike read what they share once, also if they come together. */
static void test_together(void **state)
{
	static int32_t prompts[8][200];
	static struct client c[8];
	struct ask a[8];
	struct ig_engine *e;
	int n_cached = 0;

	fake.gated = true;
	e = harness_engine(&config);
	for (int i = 0; i < 8; i++) {
		make_prompt(prompts[i], 164, 1);
		make_prompt(prompts[i] + 164, 36, 10u + (unsigned)i);
		a[i] = (struct ask){
			.model = "state", .prompt = prompts[i], .n_prompt = 200, .max_tokens = 8
		};
		client_ask(&c[i], e, &a[i]);
	}
	fake_open_gate();
	for (int i = 0; i < 8; i++) {
		client_finish(&c[i]);
		assert_answer(&c[i], &a[i]);
		n_cached += c[i].result.n_cached;
	}
	/* the first two may have begun before the others came */
	assert_true(n_cached >= 6 * 160);
	harness_close(e);
}

/* Several choices of one prompt: each begins with the state of the first one. */
static void test_same_prompt(void **state)
{
	struct ig_engine *e = harness_engine(&config);
	struct ask a = { .model = "state", .n_prompt = 100, .max_tokens = 30 };

	assert_int_equal(ask(e, &a), 0);
	for (unsigned i = 1; i < 4; i++) {
		a.seed = i;
		assert_int_equal(ask(e, &a), 96);
	}
	a.n_prompt = 18; /* short ones too */
	a.prompt_seed = 9;
	assert_int_equal(ask(e, &a), 0);
	assert_int_equal(ask(e, &a), 16);
	harness_close(e);
}

/* ---- memory -------------------------------------------------------------------------------- */

/* A preempted sequence goes on from its last state, with the same tokens. */
static void test_preemption(void **state)
{
	static struct client c[6];
	struct ask a[6];
	struct ig_engine *e;

	config.kvcache.arena = 22 * SLAB_BYTES;
	config.models[0].context = 200;
	fake.gated = true;
	e = harness_engine(&config);
	for (int i = 0; i < 6; i++) {
		a[i] = (struct ask){ .model = "state",
				     .n_prompt = 60,
				     .max_tokens = 120,
				     .prompt_seed = (unsigned)i };
		client_ask(&c[i], e, &a[i]);
	}
	fake_open_gate();
	for (int i = 0; i < 6; i++) {
		client_finish(&c[i]);
		assert_answer(&c[i], &a[i]);
	}
	assert_true(counter(IG_COUNTER_PREEMPTIONS) > 0);
	harness_close(e);
}

/* What a sequence has of states: the live one and one behind it. */
static void test_memory(void **state)
{
	struct ask a = { .model = "state", .n_prompt = 200, .max_tokens = 100 };
	struct client c;
	struct ig_engine *e;
	double most = 0;

	fake.gated = true;
	e = harness_engine(&config);
	client_ask(&c, e, &a);
	for (int i = 0; i < 60; i++) {
		fake_wait_at_gate();
		double used = gauge(IG_GAUGE_KV_USED_BYTES);
		if (i > 6 && used > most)
			most = used;
		fake_allow(1);
	}
	fake_open_gate();
	client_finish(&c);
	assert_answer(&c, &a);
	/* with steps that run ahead one more; snapshots of the prompt are the index's */
	assert_true(most <= (200 + 60 + 16) / 16 * GOOD_BLOCK_BYTES + 3 * STATE_BYTES);
	wait_for(gauge(IG_GAUGE_KV_USED_BYTES) == 0);
	harness_close(e);
}

/* ---- what is left out ---------------------------------------------------------------------- */

/* A step that is not submitted has not changed a state. */
static void test_not_submitted(void **state)
{
	struct ask plain = { .model = "state", .n_prompt = 50, .max_tokens = 60 };
	struct ask probs = {
		.model = "state", .n_prompt = 40, .max_tokens = 20, .n_probs = 1, .prompt_seed = 3
	};
	struct client c[2];
	struct ig_engine *e;

	fake.no_logits = true;
	fake.gated = true;
	e = harness_engine(&config);
	client_ask(&c[0], e, &plain);
	client_ask(&c[1], e, &probs);
	fake_open_gate();
	client_finish(&c[0]);
	assert_answer(&c[0], &plain);
	client_finish(&c[1]);
	assert_int_equal(c[1].result.finish, IG_FINISH_ERROR);
	harness_close(e);
}

/* A draft of which some were right: their rows are computed again with the next step, which is no step of a
 * prompt, and no more often than a token is sampled. */
static void test_drafts(void **state)
{
	struct ask a = { .model = "state", .n_prompt = 60, .max_tokens = 200 };
	struct ig_engine *e;
	int32_t n_drafted, n_accepted;

	harness_config_finish(&config);
	harness_speculation = "lookup";
	harness_config(&config, state_model, 1);
	harness_speculation = "off";
	fake.memory = 2;
	fake.delay_us = 100;
	e = harness_engine(&config);
	client_ask(&client, e, &a);
	client_finish(&client);
	assert_answer(&client, &a);
	n_drafted = client.result.n_drafted;
	n_accepted = client.result.n_accepted;
	print_message("# %d drafted, %d accepted, %d rows of prompts\n", n_drafted, n_accepted,
		      fake.n_prefill_rows);
	assert_true(n_accepted > 20 && n_drafted > n_accepted);
	assert_int_equal(fake.n_prefill_rows, 60);
	assert_int_equal(fake.n_steps, 1 + 199 - n_accepted);
	harness_close(e);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_same_tokens, setup, teardown),
		cmocka_unit_test_setup_teardown(test_conversations, setup, teardown),
		cmocka_unit_test_setup_teardown(test_rewritten_ends, setup, teardown),
		cmocka_unit_test_setup_teardown(test_junction, setup, teardown),
		cmocka_unit_test_setup_teardown(test_first_message, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cancelled, setup, teardown),
		cmocka_unit_test_setup_teardown(test_together, setup, teardown),
		cmocka_unit_test_setup_teardown(test_same_prompt, setup, teardown),
		cmocka_unit_test_setup_teardown(test_preemption, setup, teardown),
		cmocka_unit_test_setup_teardown(test_memory, setup, teardown),
		cmocka_unit_test_setup_teardown(test_not_submitted, setup, teardown),
		cmocka_unit_test_setup_teardown(test_drafts, setup, teardown),
	};

	if (argc > 1 && !strcmp(argv[1], "ahead"))
		harness_run_ahead = "on";
	return cmocka_run_group_tests(tests, NULL, NULL);
}
