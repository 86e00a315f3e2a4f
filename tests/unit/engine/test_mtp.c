/*
 * test_mtp.c: heads that guess: when steps have their guesses, what that costs, and how they stop.  That they
 * change no token: test_speculation.c, with everything that a request may want.
 */
#include "harness.h"

static struct ig_config config;
static struct client client;

/* The model "good", whose file has a head. */
static void configure(const char *speculation)
{
	static const char *const one[] = { "good" };

	harness_config_finish(&config);
	harness_speculation = speculation;
	harness_config(&config, one, 1);
	harness_speculation = "off";
	free(config.models[0].path);
	config.models[0].path = strdup("mtp:good");
}

static int setup(void **state)
{
	static const char *const one[] = { "good" };

	fake_reset();
	harness_config(&config, one, 1);
	fake.delay_us = 300;
	fake.guess_us = 10;
	return 0;
}

static int teardown(void **state)
{
	harness_abandon();
	harness_config_finish(&config);
	return 0;
}

/* A request of these tokens, whose text is what it is without guesses. */
static void ask_and_check(struct ig_engine *e, struct ask *a)
{
	char text[4096];

	client_ask(&client, e, a);
	client_finish(&client);
	expected(a, text, sizeof text);
	assert_string_equal(client.text, text);
}

/* ---- when it guesses ------------------------------------------------------------------------ */

static void test_right_guesses(void **state)
{
	struct ask a = { .n_prompt = 40, .max_tokens = 300, .id = "r1" };
	int before = fake.n_steps;
	struct ig_engine *e;

	configure("mtp");
	e = harness_engine(&config);
	ask_and_check(e, &a);
	print_message("# %d steps, %d of %d accepted\n", fake.n_steps - before,
		      client.result.n_mtp_accepted, client.result.n_mtp_drafted);
	assert_true(fake.n_steps - before < 180);
	assert_true(client.result.n_mtp_accepted > 120);
	assert_int_equal(client.result.n_mtp_drafted, client.result.n_drafted);
	assert_int_equal(counter(IG_COUNTER_MTP_ACCEPTED_TOKENS), client.result.n_accepted);
	assert_int_equal(counter(IG_COUNTER_MTP_DRAFTS), client.result.n_mtp_drafted);
	assert_int_equal(counter(IG_COUNTER_ACCEPTED_TOKENS), 0);
	assert_int_equal(counter(IG_COUNTER_MODEL_ACCEPTED_TOKENS), 0);
	wait_for(fake.n_rows > 0);
	struct ig_ledger_row row = ledger_find("r1");
	assert_int_equal(row.n_mtp_accepted, client.result.n_mtp_accepted);
	assert_int_equal(row.n_mtp_drafted, row.n_drafted);
	assert_int_equal(row.n_model_drafted, 0);
	assert_true(row.draft_gain_ms > 20); /* of some 40 */
	assert_true(counter(IG_COUNTER_MTP_DRAFT_SAVED_NS) >
		    counter(IG_COUNTER_MTP_DRAFT_SPENT_NS));
	harness_close(e);
}

/* Which sources it may have says the option; one that was loaded without a head gets none. */
static void test_options(void **state)
{
	static const struct {
		const char *speculation;
		bool guesses;
	} cases[] = { { "on", true },
		      { "mtp", true },
		      { "lookup", false },
		      { "draft", false },
		      { "off", false } };
	struct ask a = { .n_prompt = 40, .max_tokens = 100 };

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		int before = fake.n_guesses;
		configure(cases[i].speculation);
		struct ig_engine *e = harness_engine(&config);
		ask_and_check(e, &a);
		assert_int_equal(client.result.n_mtp_drafted > 0, cases[i].guesses);
		assert_int_equal(fake.n_guesses > before, cases[i].guesses);
		harness_close(e);
	}
}

static void test_reload(void **state)
{
	struct ask a = { .n_prompt = 40, .max_tokens = 100 };
	struct ig_engine *e;

	configure("mtp");
	e = harness_engine(&config);
	ask_and_check(e, &a);
	assert_true(client.result.n_mtp_drafted > 0);
	configure("off");
	ig_engine_reload(e, &config);
	int guesses = fake.n_guesses, headless = fake.n_headless;
	ask_and_check(e, &a);
	assert_int_equal(client.result.n_drafted, 0);
	assert_int_equal(fake.n_guesses, guesses);
	assert_true(fake.n_headless >= headless + 100); /* the head costs nothing then */
	configure("mtp");
	ig_engine_reload(e, &config);
	ask_and_check(e, &a);
	assert_true(client.result.n_mtp_drafted > 0);
	harness_close(e);
}

/* A driver without heads, and a file whose head can't be used: it does without. */
static void test_refused(void **state)
{
	struct ask a = { .n_prompt = 40, .max_tokens = 100 };

	for (int i = 0; i < 3; i++) {
		fake.heads_refused = i == 0;
		fake.head_is_broken = i == 1;
		fake.head_is_odd = i == 2;
		configure("mtp");
		struct ig_engine *e = harness_engine(&config);
		ask_and_check(e, &a);
		assert_int_equal(client.result.n_drafted, 0);
		assert_int_equal(fake.n_guesses, 0);
		harness_close(e);
	}
}

/* ---- when it does not ----------------------------------------------------------------------- */

/* Guesses that are never right are soon not verified, then not made, and then the head is left out. */
static void test_wrong_guesses(void **state)
{
	struct ask a = { .n_prompt = 20, .max_tokens = 450 };
	struct ig_engine *e;

	atomic_store(&fake.misguesses, 100);
	configure("mtp");
	e = harness_engine(&config);
	ask_and_check(e, &a);
	print_message("# %d guesses, %d verified, %d steps without the head\n", fake.n_guesses,
		      client.result.n_mtp_drafted, fake.n_headless);
	assert_int_equal(client.result.n_accepted, 0);
	assert_true(client.result.n_mtp_drafted < 40);
	assert_true(fake.n_guesses < 150);
	for (int i = 0; i < 4; i++)
		ask_and_check(e, &a);
	int guesses = fake.n_guesses;
	for (int i = 0; i < 8; i++)
		ask_and_check(e, &a);
	print_message("# %d guesses of 8 later requests\n", fake.n_guesses - guesses);
	assert_true(fake.n_guesses - guesses < 150);
	assert_true(fake.n_headless > 2000);
	/* once they are right, one of the new ones finds that out */
	atomic_store(&fake.misguesses, 0);
	int accepted = 0;
	for (int i = 0; i < 40 && !accepted; i++) {
		ask_and_check(e, &a);
		accepted = client.result.n_mtp_accepted;
	}
	assert_true(accepted > 0);
	harness_close(e);
}

/* A guess that takes as long as a step is not asked for, but to measure that. */
static void test_dear_guesses(void **state)
{
	struct ask a = { .n_prompt = 20, .max_tokens = 300 };
	struct ig_engine *e;

	fake.guess_us = 600;
	configure("mtp");
	e = harness_engine(&config);
	ask_and_check(e, &a);
	print_message("# %d guesses\n", fake.n_guesses);
	assert_true(fake.n_guesses > 0 && fake.n_guesses < 80);
	harness_close(e);
}

/* A head in a file of its own, which the model's entry names as its draft: used as the model's own, and not opened as a
 * model where heads are not used. */
static void test_head_in_a_file(void **state)
{
	static const struct {
		const char *path, *speculation;
		bool guesses;
	} cases[] = { { "good", "mtp", true }, { "good", "lookup", false } };
	struct ask a = { .n_prompt = 40, .max_tokens = 300 };

	for (size_t i = 0; i < 2; i++) {
		configure(cases[i].speculation);
		free(config.models[0].path);
		config.models[0].path = strdup(cases[i].path);
		config.models[0].draft = (char *)(uintptr_t)"head";
		struct ig_engine *e = harness_engine(&config);
		ask_and_check(e, &a);
		assert_int_equal(client.result.n_mtp_accepted > 120, cases[i].guesses);
		assert_int_equal(client.result.n_model_drafted, 0);
		harness_close(e);
		assert_int_equal(fake.n_open, 0);
	}
	/* one that has its own */
	struct ig_error err = { 0 };
	configure("mtp");
	config.models[0].draft = (char *)(uintptr_t)"head";
	struct ig_engine *none;
	assert_int_equal(harness_try_engine(&config, &none, &err), -EINVAL);
	assert_non_null(strstr(err.text, "draft head: the model has a head of its own already"));
}

/* A row that takes as long as a step: nothing to gain. */
static void test_dear_rows(void **state)
{
	struct ask a = { .n_prompt = 20, .max_tokens = 300 };
	struct ig_engine *e;

	fake.delay_us = 10;
	fake.row_us = 1000;
	configure("mtp");
	e = harness_engine(&config);
	ask_and_check(e, &a);
	print_message("# %d verified\n", client.result.n_mtp_drafted);
	assert_true(client.result.n_mtp_drafted < 100);
	harness_close(e);
}

/* Several streams, whose guesses are right by turns: each is verified where it pays. */
static void test_streams(void **state)
{
	struct ask a = { .n_prompt = 30, .max_tokens = 200 };
	static struct client c[6];
	struct ig_engine *e;

	atomic_store(&fake.misguesses, 10);
	configure("mtp");
	e = harness_engine(&config);
	for (unsigned i = 0; i < 6; i++) {
		a.prompt_seed = i;
		client_ask(&c[i], e, &a);
	}
	for (unsigned i = 0; i < 6; i++) {
		char text[4096];
		a.prompt_seed = i;
		client_finish(&c[i]);
		expected(&a, text, sizeof text);
		assert_string_equal(c[i].text, text);
		assert_true(c[i].result.n_mtp_accepted > 20);
	}
	harness_close(e);
}

/* What steps in flight took while the device prepared a later one is not known: if that is so of every step, nothing
 * says that guesses pay. */
static void test_prepared(void **state)
{
	struct ask a = { .n_prompt = 40, .max_tokens = 300 };
	struct ig_engine *e;

	fake.prepare_ns = 1000000;
	configure("mtp");
	e = harness_engine(&config);
	ask_and_check(e, &a);
	if (!strcmp(harness_run_ahead, "on"))
		assert_int_equal(client.result.n_mtp_drafted, 0);
	else /* none is in flight then */
		assert_true(client.result.n_mtp_accepted > 120);
	harness_close(e);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_right_guesses, setup, teardown),
		cmocka_unit_test_setup_teardown(test_options, setup, teardown),
		cmocka_unit_test_setup_teardown(test_reload, setup, teardown),
		cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(test_wrong_guesses, setup, teardown),
		cmocka_unit_test_setup_teardown(test_dear_guesses, setup, teardown),
		cmocka_unit_test_setup_teardown(test_head_in_a_file, setup, teardown),
		cmocka_unit_test_setup_teardown(test_dear_rows, setup, teardown),
		cmocka_unit_test_setup_teardown(test_streams, setup, teardown),
		cmocka_unit_test_setup_teardown(test_prepared, setup, teardown),
	};

	if (argc > 1 && !strcmp(argv[1], "ahead"))
		harness_run_ahead = "on";
	return cmocka_run_group_tests(tests, NULL, NULL);
}
