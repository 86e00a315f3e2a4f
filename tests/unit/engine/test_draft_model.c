/*
 * test_draft_model.c: draft models: when they guess, what that costs, how they come and go with their
 * model.  That they change no token: test_speculation.c, with everything that a request may want.
 */
#include "harness.h"

static struct ig_config config;

static void configure(const char *draft, const char *speculation)
{
	static const char *const one[] = { "good" };

	harness_config_finish(&config);
	harness_speculation = speculation;
	harness_config(&config, one, 1);
	harness_speculation = "off";
	config.models[0].draft = (char *)(uintptr_t)draft;
}

static int setup(void **state)
{
	static const char *const one[] = { "good" };

	fake_reset();
	harness_config(&config, one, 1);
	fake.delay_us = 300;
	fake.small_us = 10;
	return 0;
}

static int teardown(void **state)
{
	harness_abandon();
	harness_config_finish(&config);
	return 0;
}

/* A request of these tokens, whose text is what it is without drafts. */
static void ask_and_check(struct ig_engine *e, struct ask *a, struct client *c)
{
	char text[4096];

	client_ask(c, e, a);
	client_finish(c);
	expected(a, text, sizeof text);
	assert_string_equal(c->text, text);
}

static struct client client;

/* ---- when it guesses ------------------------------------------------------------------------ */

static void test_right_guesses(void **state)
{
	struct ask a = { .n_prompt = 40, .max_tokens = 300, .id = "r1" };
	int before = fake.n_models_stepped[0];
	struct ig_engine *e;

	configure("small:good", "draft");
	e = harness_engine(&config);
	ask_and_check(e, &a, &client);
	assert_true(fake.n_models_stepped[0] - before < 120);
	assert_true(client.result.n_model_accepted > 200);
	assert_int_equal(client.result.n_model_drafted, client.result.n_drafted);
	assert_int_equal(counter(IG_COUNTER_MODEL_ACCEPTED_TOKENS), client.result.n_accepted);
	assert_int_equal(counter(IG_COUNTER_ACCEPTED_TOKENS), 0);
	wait_for(fake.n_rows > 0);
	struct ig_ledger_row row = ledger_find("r1");
	assert_int_equal(row.n_model_accepted, client.result.n_model_accepted);
	assert_int_equal(row.n_model_drafted, row.n_drafted);
	assert_true(row.draft_gain_ms > 20); /* of some 90 */
	assert_true(counter(IG_COUNTER_MODEL_DRAFT_SAVED_NS) >
		    counter(IG_COUNTER_MODEL_DRAFT_SPENT_NS));
	harness_close(e);
}

static void test_options(void **state)
{
	static const struct {
		const char *speculation;
		bool drafts;
	} cases[] = { { "off", false }, { "lookup", false }, { "draft", true }, { "on", true } };
	struct ask a = { .n_prompt = 40, .max_tokens = 60 };

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		configure("small:good", cases[i].speculation);
		struct ig_engine *e = harness_engine(&config);
		ask_and_check(e, &a, &client);
		assert_int_equal(client.result.n_model_drafted > 0, cases[i].drafts);
		assert_int_equal(fake.n_small_rows > 0, cases[i].drafts);
		harness_close(e);
	}
}

/* One that is never right is soon left alone: it costs a few drafts, and seldom one more. */
static void test_wrong_guesses(void **state)
{
	struct ask a = { .n_prompt = 20, .max_tokens = 480 };
	struct ig_engine *e;

	fake.misguesses = 100;
	configure("small:good", "draft");
	e = harness_engine(&config);
	ask_and_check(e, &a, &client);
	print_message("# %d drafted\n", client.result.n_drafted);
	assert_true(client.result.n_drafted > 0 && client.result.n_drafted < 80);
	/* the next request knows */
	a.prompt_seed = 1;
	ask_and_check(e, &a, &client);
	assert_true(client.result.n_drafted < 20);
	/* and finds out when it has become a good one */
	atomic_store(&fake.misguesses, 0);
	for (int i = 0; i < 8; i++) {
		a.prompt_seed++;
		ask_and_check(e, &a, &client);
	}
	assert_true(client.result.n_accepted > 200);
	harness_close(e);
}

/* Nor does it cost more of those that come together. */
static void test_wrong_guesses_together(void **state)
{
	enum { N = 4 };
	static struct client c[N];
	struct ask a[N];
	struct ig_engine *e;
	char text[4096];
	int n = 0;

	fake.misguesses = 100;
	configure("small:good", "draft");
	e = harness_engine(&config);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < N; i++) {
			a[i] = (struct ask){ .n_prompt = 20,
					     .max_tokens = 150,
					     .prompt_seed = (unsigned)(round * N + i) };
			client_ask(&c[i], e, &a[i]);
		}
		for (int i = 0; i < N; i++) {
			client_finish(&c[i]);
			n += c[i].result.n_drafted;
			assert_int_equal(c[i].result.n_accepted, 0);
			expected(&a[i], text, sizeof text);
			assert_string_equal(c[i].text, text);
		}
	}
	print_message("# %d drafted of 1,200 tokens\n", n);
	assert_in_range(n, 1, 200);
	harness_close(e);
}

/* One that takes as long as the model itself is not used. */
static void test_dear_guesses(void **state)
{
	struct ask a = { .n_prompt = 20, .max_tokens = 400 };
	struct ig_engine *e;

	fake.small_us = 600;
	configure("small:good", "draft");
	e = harness_engine(&config);
	ask_and_check(e, &a, &client);
	print_message("# %d drafted\n", client.result.n_drafted);
	assert_true(client.result.n_drafted < 60);
	harness_close(e);
}

/* A machine that did something else during its first step doesn't make it seem too dear for ever. */
static void test_disturbed_at_first(void **state)
{
	struct ask a = { .n_prompt = 80, .max_tokens = 300 };
	struct ig_engine *e;

	fake.small_first_us = 30000;
	configure("small:good", "draft");
	e = harness_engine(&config);
	ask_and_check(e, &a, &client);
	print_message("# %d accepted\n", client.result.n_model_accepted);
	assert_true(client.result.n_model_accepted > 100);
	harness_close(e);
}

/* Sequences of one step share the draft model's steps. */
static void test_together(void **state)
{
	static struct client c[6];
	struct ask a[6];
	struct ig_engine *e;
	char text[4096];

	configure("small:good", "draft");
	e = harness_engine(&config);
	for (int i = 0; i < 6; i++) {
		a[i] = (struct ask){ .n_prompt = 30,
				     .max_tokens = 150,
				     .prompt_seed = (unsigned)i };
		client_ask(&c[i], e, &a[i]);
	}
	int n = 0;
	for (int i = 0; i < 6; i++) {
		client_finish(&c[i]);
		expected(&a[i], text, sizeof text);
		assert_string_equal(c[i].text, text);
		n += c[i].result.n_model_accepted;
	}
	assert_true(n > 150);
	assert_true(fake.n_small_rows > fake.n_small_steps);
	harness_close(e);
}

/* ---- its cache ------------------------------------------------------------------------------- */

/* A conversation's next turn reads only what is new. */
static void test_prefix_is_kept(void **state)
{
	struct ask a = { .n_prompt = 300, .max_tokens = 60 };
	struct ig_engine *e;
	int first, second;

	configure("small:good", "draft");
	e = harness_engine(&config);
	ask_and_check(e, &a, &client);
	first = fake.n_small_rows;
	assert_true(first > 300);
	ask_and_check(e, &a, &client);
	second = fake.n_small_rows - first;
	assert_true(second < first - 250);
	assert_true(client.result.n_model_accepted > 20);
	/* another key shares nothing */
	a.salt = 9;
	ask_and_check(e, &a, &client);
	assert_true(fake.n_small_rows - first - second > 300);
	wait_for(gauge(IG_GAUGE_KV_USED_BYTES) == 0);
	harness_close(e);
}

/* A long text is read bit by bit, as it is paid for, while tokens come. */
static void test_reading_is_paid_for(void **state)
{
	struct ask a = { .n_prompt = 400, .max_tokens = 100 };
	struct ig_engine *e;

	fake.small_us = 150; /* a step, whatever its rows: the line makes rows dear */
	config.scheduler.max_batch_tokens = 32;
	configure("small:good", "draft");
	config.scheduler.max_batch_tokens = 32;
	e = harness_engine(&config);
	ask_and_check(e, &a, &client);
	/* so many steps as that part of the time allows, and the first */
	print_message("# %d small steps, %d drafted\n", fake.n_small_steps,
		      client.result.n_drafted);
	assert_true(fake.n_small_steps - client.result.n_drafted < 40);
	harness_close(e);
}

/* Where memory is short, nobody is preempted or waits for a draft: it is given up. */
static void test_gives_blocks_back(void **state)
{
	struct ask a = { .n_prompt = 200, .max_tokens = 150 };
	static struct client c[2];
	struct ig_engine *e;
	char text[4096];

	configure("small:good", "draft");
	config.models[0].context = 400;
	config.kvcache.arena = 14 * SLAB_BYTES; /* 56 blocks: two texts of 25, and some drafts */
	e = harness_engine(&config);
	for (int i = 0; i < 2; i++) {
		a.prompt_seed = (unsigned)i;
		client_ask(&c[i], e, &a);
	}
	for (int i = 0; i < 2; i++) {
		client_finish(&c[i]);
		a.prompt_seed = (unsigned)i;
		expected(&a, text, sizeof text);
		assert_string_equal(c[i].text, text);
	}
	assert_int_equal(counter(IG_COUNTER_PREEMPTIONS), 0);
	wait_for(gauge(IG_GAUGE_KV_USED_BYTES) == 0);
	harness_close(e);
}

/* A step of it that fails ends the drafts, not the request. */
static void test_failing_step(void **state)
{
	struct ask a = { .n_prompt = 40, .max_tokens = 200 };
	struct ig_engine *e;

	for (int at = 1; at < 8; at += 3) {
		configure("small:good", "draft");
		e = harness_engine(&config);
		fake.fail_small_at = at;
		ask_and_check(e, &a, &client);
		assert_int_equal(client.result.finish, IG_FINISH_LENGTH);
		ask_and_check(e, &a, &client);
		assert_true(client.result.n_model_accepted > 50);
		harness_close(e);
	}
}

/* Tokens that it does not have, and a model that has more of them. */
static void test_padded_vocabulary(void **state)
{
	struct ask a = { .n_prompt = 40, .max_tokens = 100 };
	struct ig_engine *e;

	configure("small:short", "draft"); /* its guesses are of "short", so none is right */
	e = harness_engine(&config);
	ask_and_check(e, &a, &client);
	assert_true(client.result.n_model_drafted > 0);
	harness_close(e);
}

static int32_t circle(const int32_t *tokens, int32_t n) { return n % 7; }

/* Up to the end of its context. */
static void test_a_shorter_context(void **state)
{
	struct ask a = { .n_prompt = 40, .max_tokens = 200 };
	struct ig_engine *e;

	fake.script = circle;
	configure("small:brief", "draft");
	e = harness_engine(&config);
	ask_and_check(e, &a, &client);
	assert_in_range(client.result.n_model_accepted, 20, FAKE_BRIEF - 40);
	harness_close(e);
}

/* ---- loading ---------------------------------------------------------------------------------- */

static void assert_refused(const char *draft, int code, const char *text)
{
	struct ig_error err = { 0 };
	struct ig_engine *e;

	configure(draft, "draft");
	assert_int_equal(harness_try_engine(&config, &e, &err), code);
	assert_string_equal(err.text, text);
	assert_int_equal(fake.n_open, 0);
}

static void test_refused_at_start(void **state)
{
	assert_refused("missing", -ENOENT, "model good: draft missing: missing: no such file");
	assert_refused("small:strange", -EINVAL,
		       "model good: draft small:strange: it has another vocabulary: token 7 is "
		       "\"cba\", the model's is \"abc\"");
	assert_refused(
		"noarch", -ENOTSUP,
		"model good: draft noarch: architecture \"strange\" is not known; known: fake");
	assert_refused(
		"small:noload", -ENOMEM,
		"model good: draft small:noload: out of memory for 1048576 bytes of weights");
	assert_refused(
		"heavy", -ENOMEM,
		"needs 1024.0 GiB (weights 1024.0 with 1024.00 of draft models, scratch 0.0, "
		"cache 0.0), the budget is 0.1 GiB; set memory.budget or kvcache.arena");
}

/* With first_use it is the request that is told. */
static void test_refused_at_load(void **state)
{
	struct ig_error err = { 0 };
	struct ig_engine *e;

	configure("small:noload", "draft");
	free(config.models[0].load);
	config.models[0].load = strdup("first_use");
	e = harness_engine(&config);
	const struct ig_engine_model *m;
	assert_int_equal(ig_engine_take_model(e, "good", NULL, NULL, &m, &err), -EINPROGRESS);
	wait_for(ig_engine_take_model(e, "good", NULL, NULL, &m, &err) != -EINPROGRESS);
	assert_string_equal(err.text,
			    "the model good could not be loaded: draft small:noload: out of "
			    "memory for 1048576 bytes of weights");
	harness_close(e);
}

static void wait_for_loads(int n) { wait_for(fake.n_loads == n); }

/* A reload with another one, or none, loads the model anew; running requests go on. */
static void test_reload(void **state)
{
	struct ask a = { .n_prompt = 40, .max_tokens = 100 };
	struct ig_engine *e;

	configure(NULL, "on");
	e = harness_engine(&config);
	assert_int_equal(fake.n_programs, 1);
	ask_and_check(e, &a, &client);
	assert_int_equal(client.result.n_model_drafted, 0);

	client_ask(&client, e, &(struct ask){ .n_prompt = 40, .max_tokens = 300 });
	configure("small:good", "on");
	ig_engine_reload(e, &config);
	wait_for_loads(2);
	client_finish(&client);
	assert_int_equal(client.result.n_output, 300);
	wait_for(fake.n_programs == 2);
	ask_and_check(e, &a, &client);
	assert_true(client.result.n_model_accepted > 20);

	ig_engine_reload(e, &config); /* nothing has changed */
	ask_and_check(e, &a, &client);
	assert_int_equal(fake.n_loads, 2);

	configure("", "on");
	ig_engine_reload(e, &config);
	wait_for_loads(3);
	wait_for(fake.n_programs == 1);
	ask_and_check(e, &a, &client);
	assert_int_equal(client.result.n_model_drafted, 0);
	harness_close(e);
}

static bool is_state(struct ig_engine *e, enum ig_model_state state)
{
	struct ig_model_status st;

	assert_int_equal(ig_engine_models(e, &st, 1), 1);
	return st.state == state;
}

/* It goes with its model, also while that has requests, and its memory counts. */
static void test_unload(void **state)
{
	struct ig_model_status st;
	struct ig_engine *e;

	configure("small:good", "on");
	e = harness_engine(&config);
	assert_int_equal(ig_engine_models(e, &st, 1), 1);
	assert_int_equal(st.weight_bytes, (1 << 20) + (1 << 17));
	assert_int_equal(st.scratch_bytes, 2 << 19);
	client_ask(&client, e, &(struct ask){ .n_prompt = 40, .max_tokens = 400 });
	assert_int_equal(ig_engine_unload_model(e, "good", NULL), 0);
	client_finish(&client);
	assert_int_equal(client.result.n_output, 400);
	wait_for(is_state(e, IG_MODEL_UNLOADED));
	wait_for(fake.n_programs == 0);
	wait_for(gauge(IG_GAUGE_KV_CACHED_BYTES) == 0);
	harness_close(e);
}

/* An adapter's requests are guessed by the draft of their model. */
static void test_adapter(void **state)
{
	struct ig_config_adapter adapter = { (char *)"x", (char *)"x", 100 };
	struct ask a = { .n_prompt = 40, .max_tokens = 60 };
	static struct client base;
	struct ig_engine *e;

	fake.memory = 2;
	configure("small:good", "draft");
	config.models[0].adapters = &adapter;
	config.models[0].n_adapters = 1;
	e = harness_engine(&config);
	ask_and_check(e, &a, &base);
	a.model = "good:x";
	a.kind = "good:1";
	ask_and_check(e, &a, &client);
	assert_string_not_equal(base.text, client.text);
	assert_true(client.result.n_model_drafted > 0);
	harness_close(e);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_right_guesses, setup, teardown),
		cmocka_unit_test_setup_teardown(test_options, setup, teardown),
		cmocka_unit_test_setup_teardown(test_wrong_guesses, setup, teardown),
		cmocka_unit_test_setup_teardown(test_wrong_guesses_together, setup, teardown),
		cmocka_unit_test_setup_teardown(test_dear_guesses, setup, teardown),
		cmocka_unit_test_setup_teardown(test_disturbed_at_first, setup, teardown),
		cmocka_unit_test_setup_teardown(test_together, setup, teardown),
		cmocka_unit_test_setup_teardown(test_prefix_is_kept, setup, teardown),
		cmocka_unit_test_setup_teardown(test_reading_is_paid_for, setup, teardown),
		cmocka_unit_test_setup_teardown(test_gives_blocks_back, setup, teardown),
		cmocka_unit_test_setup_teardown(test_failing_step, setup, teardown),
		cmocka_unit_test_setup_teardown(test_padded_vocabulary, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_shorter_context, setup, teardown),
		cmocka_unit_test_setup_teardown(test_refused_at_start, setup, teardown),
		cmocka_unit_test_setup_teardown(test_refused_at_load, setup, teardown),
		cmocka_unit_test_setup_teardown(test_reload, setup, teardown),
		cmocka_unit_test_setup_teardown(test_unload, setup, teardown),
		cmocka_unit_test_setup_teardown(test_adapter, setup, teardown),
	};

	if (argc > 1 && !strcmp(argv[1], "ahead"))
		harness_run_ahead = "on";
	return cmocka_run_group_tests(tests, NULL, NULL);
}
