/*
 * test_no_memory.c: each allocation of a submit, of an admission and of the engine's
 * start fails once: an error comes back, nothing is lost or (under AddressSanitizer)
 * leaks, others go on, and the next try succeeds.
 */
#include "harness.h"

#ifdef WRAP_MALLOC

static struct ig_config config;
static const char *const two[] = { "good", "groups" };
static const struct fake_grammar rules = { 1000, 7, true, false };

static int setup(void **state)
{
	fake_reset();
	harness_config(&config, two, 2);
	return 0;
}

static int teardown(void **state)
{
	fake.fail_any_at = fake.fail_engine_at = 0;
	fake_fail_here(-1);
	harness_abandon();
	harness_config_finish(&config);
	return 0;
}

static void assert_answer(const struct client *c, const struct ask *a)
{
	char text[65536];

	expected(a, text, sizeof text);
	assert_string_equal(c->text, text);
}

/* ---- submit ----------------------------------------------------------------------------- */

/* With all that a request may have. */
static struct ig_gen_spec full_spec(struct ig_engine *e)
{
	static struct ig_origin origin = { .n_refs = 1 };
	static struct ig_bias bias = { 4, 1.5f };
	static char *stops[] = { "never that", "nor that", NULL };
	static int32_t prompt[20];
	struct ig_gen_spec spec = { .id = "full",
				    .origin = &origin,
				    .prompt = prompt,
				    .n_prompt = 20,
				    .sampling = { .temperature = 1,
						  .top_p = 1,
						  .repetition_penalty = 1.2,
						  .biases = &bias,
						  .n_biases = 1,
						  .max_tokens = 10,
						  .stops = stops },
				    .n_top = 5 };
	struct ig_error err;

	assert_int_equal(ig_engine_take_model(e, "good", NULL, NULL, &spec.model, &err), 0);
	make_prompt(prompt, 20, 3);
	spec.grammar = fake_grammar(&rules);
	spec.stream = ig_stream_create(4096, NULL, NULL);
	assert_int_equal(ig_stream_enable_logprobs(spec.stream, 64), 0);
	return spec;
}

static void test_submit(void **state)
{
	struct ask a = { .n_prompt = 30, .max_tokens = 400, .seed = 4 };
	struct client other, c = { 0 };
	struct ig_engine *e;
	struct ig_gen_spec spec;
	int n_failed = 0;

	fake.gated = true; /* the other runs all the while */
	e = harness_engine(&config);
	client_ask(&other, e, &a);
	fake_wait_at_gate();
	spec = full_spec(e);
	c.stream = spec.stream;
	for (;; n_failed++) {
		struct ig_error err = { 0 };
		bool failed;
		int rc;

		fake_fail_here(n_failed);
		rc = ig_engine_submit(e, &spec, &c.gen, &err);
		failed = fake_failed_here();
		if (!failed) {
			assert_int_equal(rc, 0);
			break;
		}
		assert_int_equal(rc, -ENOMEM);
		assert_int_equal(err.code, -ENOMEM);
		assert_string_equal(err.text, "out of memory for a request of 20 tokens");
		assert_int_equal(atomic_load(&spec.origin->n_refs), 1);
		assert_int_equal(ig_engine_n_active(e), 1);
	}
	/* sequence, adjusts and their table, stops and one table each, tokens, text, client,
	 * logprobs and alternatives, matcher */
	assert_int_equal(n_failed, 12);
	fake_open_gate();
	ig_grammar_unref(spec.grammar);
	client_finish(&c);
	assert_int_equal(c.result.finish, IG_FINISH_LENGTH);
	assert_int_equal(c.n_logprobs, 10);
	client_finish(&other);
	assert_answer(&other, &a);
	ig_engine_release_model(spec.model);
	/* each refusal has its row, then the two completions */
	assert_int_equal(fake.n_rows, n_failed + 2);
	for (int i = 0; i < n_failed; i++) {
		struct ig_ledger_row row = ledger_row(i);
		assert_string_equal(row.id, "full");
		assert_string_equal(row.finish, "refused");
		assert_int_equal(row.status, 500);
	}
	harness_close(e);
}

/* ---- streams -------------------------------------------------------------------------------- */

static void test_stream(void **state)
{
	struct ig_token_logprob logprob = { .text_end = 0 };
	struct ig_stream *s;

	fake_fail_here(0);
	assert_null(ig_stream_create(64, NULL, NULL));
	assert_true(fake_failed_here());
	s = ig_stream_create(64, NULL, NULL);
	fake_fail_here(0);
	assert_int_equal(ig_stream_enable_logprobs(s, 10), -ENOMEM);
	assert_true(fake_failed_here());
	assert_false(ig_stream_has_logprobs(s));
	assert_int_equal(ig_stream_enable_logprobs(s, 10), 0);
	fake_fail_here(0);
	assert_int_equal(ig_stream_enable_logprobs(s, 20), -ENOMEM); /* the ones there were stay */
	assert_true(fake_failed_here());
	assert_int_equal(ig_stream_put_logprob(s, &logprob), 0);
	ig_stream_unref(s);
	ig_stream_unref(s);
}

/* ---- admission -------------------------------------------------------------------------------- */

/* The n-th allocation of the engine's thread fails while a request joins one that runs:
 * it fails alone, or waits for blocks and is answered. */
static void test_admission(void **state)
{
	struct ask a = { .n_prompt = 30, .max_tokens = 450, .seed = 4 };
	struct ask b = { .model = "groups",
			 .n_prompt = 200,
			 .max_tokens = 40,
			 .prompt_seed = 8,
			 .seed = 5,
			 .id = "b" };
	int n_errors = 0, n_answers = 0, n;

	for (n = 1;; n++) {
		struct client other, c;
		struct ig_engine *e;
		bool failed;

		fake_reset();
		fake.delay_us = 20;
		e = harness_engine(&config);
		client_ask(&other, e, &a);
		wait_for(fake.n_steps > 2);
		fake.fail_engine_at = n;
		client_ask(&c, e, &b);
		client_finish(&c);
		failed = !fake.fail_engine_at;
		fake.fail_engine_at = 0;
		client_finish(&other);
		if (c.result.finish == IG_FINISH_ERROR) {
			n_errors++;
			assert_true(failed);
			assert_non_null(strstr(c.result.error.text, "out of memory"));
			assert_int_equal(ledger_find("b").status, 500);
		} else {
			n_answers += failed;
			assert_int_equal(c.result.finish, IG_FINISH_LENGTH);
			assert_answer(&c, &b);
		}
		assert_answer(&other, &a);
		client_ask(&c, e, &b); /* and again, with memory */
		client_finish(&c);
		assert_answer(&c, &b);
		harness_close(e);
		if (!failed)
			break;
	}
	assert_true(n_errors > 0 && n_answers > 0 && n > 10);
}

/* The same of one whose tokens a draft model guesses: without memory for that it goes on without. */
static void test_drafts(void **state)
{
	struct ask a = { .n_prompt = 30, .max_tokens = 60, .seed = 4, .id = "a" };
	int n_answers = 0, n;

	free(config.scheduler.speculation);
	config.scheduler.speculation = strdup("draft");
	config.models[0].draft = (char *)(uintptr_t)"small:good";
	for (n = 1;; n++) {
		struct ig_engine *e;
		struct client c;
		bool failed;

		fake_reset();
		fake.delay_us = 20;
		e = harness_engine(&config);
		client_ask(&c, e, &(struct ask){ .n_prompt = 4, .max_tokens = 4 });
		client_finish(&c);
		fake.fail_engine_at = n;
		client_ask(&c, e, &a);
		client_finish(&c);
		failed = !fake.fail_engine_at;
		fake.fail_engine_at = 0;
		if (c.result.finish == IG_FINISH_ERROR) {
			assert_true(failed);
			assert_non_null(strstr(c.result.error.text, "out of memory"));
		} else {
			n_answers += failed;
			assert_answer(&c, &a);
		}
		client_ask(&c, e, &a);
		client_finish(&c);
		assert_answer(&c, &a);
		assert_true(c.result.n_model_drafted > 0);
		harness_close(e);
		if (!failed)
			break;
	}
	assert_true(n_answers > 0 && n > 10);
}

/* ---- start -------------------------------------------------------------------------------------- */

static void start_without_memory(void)
{
	int n;

	for (n = 1;; n++) {
		struct ig_engine_deps deps = { .config = &config,
					       .ledger = (struct ig_ledger *)&fake,
					       .metrics = (struct ig_metrics *)&fake };
		struct ask a = { .n_prompt = 5, .max_tokens = 3, .n_probs = 1 };
		struct ig_engine *e = NULL;
		struct ig_error err = { 0 };
		struct client c;
		bool failed;
		int rc;

		fake_reset();
		fake.fail_any_at = n;
		rc = ig_engine_create(&deps, &e, &err);
		failed = !fake.fail_any_at;
		fake.fail_any_at = 0;
		if (rc) {
			assert_true(failed);
			assert_int_equal(rc, -ENOMEM);
			assert_true(err.text[0]);
			assert_null(e);
			assert_int_equal(fake.n_mapped, 0);
			continue;
		}
		/* Only copies of logits are done without: that is refused, the rest works. */
		rc = client_try(&c, e, &a, &err);
		assert_int_equal(rc, failed ? -EINVAL : 0);
		if (!rc)
			client_finish(&c);
		a.n_probs = 0;
		client_ask(&c, e, &a);
		client_finish(&c);
		assert_answer(&c, &a);
		ig_engine_destroy(e);
		if (!failed)
			break;
	}
	assert_true(n > 30);
}

static void test_start(void **state) { start_without_memory(); }

static void test_start_with_draft(void **state)
{
	config.models[0].draft = (char *)(uintptr_t)"small:good";
	start_without_memory();
}

static void test_start_with_head(void **state)
{
	free(config.scheduler.speculation);
	config.scheduler.speculation = strdup("mtp");
	free(config.models[0].path);
	config.models[0].path = strdup("mtp:good");
	start_without_memory();
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_submit), T(test_stream),		  T(test_admission),	   T(test_drafts),
		T(test_start),	T(test_start_with_draft), T(test_start_with_head),
	};
	return cmocka_run_group_tests_name("without memory", tests, NULL, NULL);
}

#else

int main(void)
{
	printf("1..0 # SKIP this linker can't put functions in the place of malloc\n");
	return 0;
}

#endif
