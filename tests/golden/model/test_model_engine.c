/*
 * test_model_engine.c: the whole engine over a real model: the log probabilities that
 * come with its tokens against a softmax in double over the logits of the same tokens,
 * computed apart from the engine (stepper.h).
 *
 * Requests run side by side, with penalties and grammars that change the sampled tokens but
 * not their log probabilities; the output matches its grammar.  INGOT_TEST_MODEL names the
 * model's file; without it the tests are skipped.  INGOT_TEST_DRIVER names the driver, INGOT_TEST_SOFTWARE says that its device
 * is one in software: fewer tokens then.
 */
#include "base/clock.h"
#include "daemon/engine/engine.h"
#include "runtime/modules/modules.h"
#include "tests/golden/model/stepper.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N_REQUESTS 5
#define MAX_TOKENS 32
#define N_TOP 5

static struct ig_stepper_model model;
static struct ig_stepper *stepper;
static struct ig_config *config;
static struct ig_engine *engine;
static const struct ig_engine_model *served; /* held */
static struct ig_metrics *metrics;
static struct ig_modules *modules;
static int n_tokens = MAX_TOKENS;

struct request {
	struct ig_ids prompt;
	struct ig_stream *stream;
	struct ig_token_logprob notes[MAX_TOKENS];
	size_t n_logprobs, n_text;
	char text[4096];
	struct ig_gen_result result;
};

static int open_all(void **state)
{
	const char *driver = ig_stepper_driver();
	struct ig_engine_deps deps = { 0 };
	char text[4096], folders[2048] = INGOT_TEST_MODULES, *colon;
	struct ig_error err = { 0 };

	for (colon = folders; (colon = strchr(colon, ':'));)
		*colon = ',';
	if (getenv("INGOT_TEST_SOFTWARE"))
		n_tokens = 4;
	snprintf(text, sizeof text,
		 "models:\n  - name: m\n    path: %s\n    context: 512\n"
		 "scheduler:\n  max_batch_tokens: 64\n  prefill_chunk: 16\n  max_seqs: 4\n"
		 "kvcache:\n  arena: 128MiB\nruntime:\n  strict: true\n  driver: %s\n"
		 "modules:\n  path: [%s]\n",
		 getenv("INGOT_TEST_MODEL"), driver, folders);
	if (ig_config_parse(text, strlen(text), "test", &config, &err))
		goto fail;
	metrics = ig_metrics_create();
	if (ig_modules_create(&modules, &err) ||
	    ig_modules_load_folders(modules, config->modules.path, &err) ||
	    ig_modules_start(modules, NULL, 0, &err))
		goto fail;
	deps.modules = modules;
	deps.config = config;
	deps.metrics = metrics;
	if (ig_engine_create(&deps, &engine, &err) ||
	    ig_engine_take_model(engine, "m", NULL, NULL, &served, &err) ||
	    ig_stepper_model_open(&model, getenv("INGOT_TEST_MODEL"), NULL, &err) ||
	    ig_stepper_open(&model,
			    &(struct ig_stepper_options){ .k_dtype = IG_F16,
							  .v_dtype = IG_F16,
							  .max_rows = 512,
							  .max_seqs = 1,
							  .max_context = 512,
							  .cache_tokens = 512 },
			    &stepper, &err))
		goto fail;
	return 0;
fail:
	printf("# %s\n", err.text);
	return -1;
}

static int close_all(void **state)
{
	ig_stepper_close(stepper);
	ig_stepper_model_close(&model);
	ig_engine_release_model(served);
	ig_engine_destroy(engine);
	ig_metrics_destroy(metrics);
	ig_config_destroy(config);
	return 0;
}

static void ask(struct request *r, const char *prompt, struct ig_gen_spec spec)
{
	static struct ig_origin origin = { .n_refs = 1 };
	struct ig_error err = { 0 };
	uint64_t gen;

	spec.model = served;
	assert_int_equal(ig_tokenizer_encode(spec.model->tokenizer, prompt, strlen(prompt), false,
					     400, &r->prompt),
			 0);
	spec.origin = &origin;
	spec.prompt = r->prompt.ids;
	spec.n_prompt = (int32_t)r->prompt.n;
	spec.sampling.max_tokens = n_tokens;
	spec.sampling.top_p = 1;
	spec.n_top = N_TOP;
	spec.sampling.ignore_end = !spec.grammar;
	spec.stream = r->stream = ig_stream_create(sizeof r->text, NULL, NULL);
	assert_int_equal(ig_stream_enable_logprobs(r->stream, MAX_TOKENS), 0);
	if (ig_engine_submit(engine, &spec, &gen, &err))
		fail_msg("%s", err.text);
	ig_grammar_unref(spec.grammar);
}

static void finish(struct request *r)
{
	while (!ig_stream_finished(r->stream, &r->result)) {
		r->n_text += ig_stream_take(r->stream, r->text + r->n_text,
					    sizeof r->text - 1 - r->n_text);
		r->n_logprobs += ig_stream_take_logprobs(r->stream, r->notes + r->n_logprobs,
							 MAX_TOKENS - r->n_logprobs);
		usleep(500);
	}
	r->text[r->n_text] = 0;
	ig_stream_unref(r->stream);
	assert_int_equal(r->n_logprobs, r->result.n_output);
	assert_int_equal(r->notes[r->n_logprobs - 1].text_end, r->n_text);
}

static struct ig_grammar *regex(const char *text)
{
	const struct ig_grammar_part part = { .kind = IG_GRAMMAR_REGEX,
					      .text = text,
					      .len = strlen(text) };
	const struct ig_grammar_choice choice = { &part, 1 };
	const struct ig_grammar_source source = { .choices = &choice,
						  .n_choices = 1,
						  .max_repeats = 1 };
	struct ig_grammar *g = NULL;
	struct ig_error err = { 0 };

	if (ig_grammar_compile(served->tokenizer, &source, &g, &err))
		fail_msg("%s", err.text);
	return g;
}

/* Teacher-forced along the sampled tokens.  What the engine and the stepper compute of a
 * token has the same bits, so all that is left is the rounding of a sum of 49 thousand
 * floats and of one float at the end: below 1e-6 where this was written. */
static double judge(const struct request *r, int32_t n_vocab)
{
	int n_logits = (int)ig_stepper_n_vocab(stepper), seq;
	double worst = 0;

	ig_stepper_reset(stepper);
	seq = ig_stepper_add(stepper, 512);
	assert_true(seq >= 0);
	for (size_t i = 0; i < r->n_logprobs; i++) {
		const struct ig_token_logprob *note = &r->notes[i];
		const int32_t *ids = i ? &r->notes[i - 1].id : r->prompt.ids;
		int draw = ig_stepper_put(stepper, seq, ids, i ? 1 : (int32_t)r->prompt.n,
					  &ig_stepper_greedy);
		double max = -INFINITY, sum = 0;
		const float *x;

		assert_true(draw >= 0);
		assert_int_equal(ig_stepper_run(stepper, true), 0);
		x = ig_stepper_logits(stepper, draw);
		for (int k = 0; k < n_logits; k++)
			max = fmax(max, (double)x[k]);
		for (int k = 0; k < n_logits; k++)
			sum += exp((double)x[k] - max);
		worst = fmax(worst,
			     fabs((double)note->logprob - ((double)x[note->id] - max - log(sum))));
		assert_int_equal(note->n_top, N_TOP);
		for (int k = 0; k < N_TOP; k++) {
			const struct ig_token_prob *top = &note->top[k];
			int n_before = 0;

			for (int id = 0; id < n_vocab; id++)
				n_before +=
					x[id] > x[top->id] || (x[id] == x[top->id] && id < top->id);
			assert_int_equal(n_before, k);
			worst = fmax(worst, fabs((double)top->logprob -
						 ((double)x[top->id] - max - log(sum))));
		}
	}
	return worst;
}

static void test_log_probabilities(void **state)
{
	static struct request r[N_REQUESTS];
	static struct ig_bias bias = { 42, 100 };
	const struct ig_tokenizer *t = served->tokenizer;
	int n_largest[N_REQUESTS] = { 0 };

	ask(&r[0], "The quick brown fox jumps over", (struct ig_gen_spec){ 0 });
	ask(&r[1], "Once upon a time there was a",
	    (struct ig_gen_spec){ .sampling = { .temperature = 1.2, .seed = 3 } });
	ask(&r[2], "In the beginning",
	    (struct ig_gen_spec){ .sampling = { .biases = &bias, .n_biases = 1 } });
	ask(&r[3], "Is that so?", (struct ig_gen_spec){ .grammar = regex(" (yes|no)[.!]") });
	ask(&r[4], "Say nothing but digits:",
	    (struct ig_gen_spec){ .sampling = { .temperature = 2, .seed = 5 },
				  .grammar = regex("[0-9]+") });
	for (int i = 0; i < N_REQUESTS; i++) {
		double worst;

		finish(&r[i]);
		for (size_t k = 0; k < r[i].n_logprobs; k++)
			n_largest[i] += r[i].notes[k].id == r[i].notes[k].top[0].id;
		worst = judge(&r[i], ig_tokenizer_n_vocab(t));
		printf("# %d of %zu tokens are the likeliest; log probabilities off by %.1e at most\n",
		       n_largest[i], r[i].n_logprobs, worst);
		assert_true(worst < 2e-6);
	}
	/* Without penalties and temperature the most probable token is sampled; with them not always,
	 * and the probabilities are still the model's own. */
	assert_int_equal(r[0].n_logprobs, n_tokens);
	assert_int_equal(n_largest[0], n_tokens);
	assert_true(n_largest[2] < n_tokens);
	for (int k = 0; k < n_tokens; k++)
		assert_int_equal(r[2].notes[k].id, 42);
	/* A complete completion ends; one that may continue does. */
	assert_int_equal(r[3].result.finish, IG_FINISH_STOP);
	assert_true(!strcmp(r[3].text, " yes.") || !strcmp(r[3].text, " no.") ||
		    !strcmp(r[3].text, " yes!") || !strcmp(r[3].text, " no!"));
	assert_true(r[4].n_text > 0);
	assert_int_equal(strspn(r[4].text, "0123456789"), r[4].n_text);
	for (int i = 0; i < N_REQUESTS; i++)
		ig_ids_finish(&r[i].prompt);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_log_probabilities) };

	if (!getenv("INGOT_TEST_MODEL")) {
		printf("1..0 # SKIP INGOT_TEST_MODEL does not name the model's file\n");
		return 0;
	}
	return cmocka_run_group_tests_name("model engine", tests, open_all, close_all);
}
