/*
 * test_generation.c: what a request may want beside text, through the whole
 * engine: log probabilities, a grammar, shown tokens, end tokens that do not end,
 * prompts without output.
 */
#include "harness.h"

#include "daemon/engine/logprobs.h"
#include "model/tokenizer/detokenizer.h"

static struct ig_config config;
static const char *const one[] = { "good" };

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

static bool runs_ahead(void) { return !strcmp(harness_run_ahead, "on"); }

/* ---- what must come of a request, computed here -------------------------------------- */

struct answer {
	int32_t tokens[FAKE_CONTEXT + 1];
	int32_t n_prompt, n; /* n: of prompt and output */
	char text[65536];
	enum ig_finish finish;
	int n_draws; /* the end token's among them */
};

static void answer_to(const struct ask *a, struct answer *w)
{
	struct ig_detokenizer d;
	const int32_t control = FAKE_CONTROL;
	size_t len = 0;
	int32_t max = a->max_tokens ? a->max_tokens : FAKE_CONTEXT - a->n_prompt;

	memset(w, 0, sizeof *w);
	w->n = w->n_prompt = a->n_prompt;
	if (a->prompt)
		memcpy(w->tokens, a->prompt, (size_t)w->n * sizeof *w->tokens);
	else
		make_prompt(w->tokens, w->n, a->prompt_seed);
	ig_detokenizer_init(&d, NULL);
	if (a->shows_control)
		ig_detokenizer_show(&d, &control, 1);
	while (w->finish == IG_FINISH_NONE) {
		int32_t id = fake_next("good", w->tokens, w->n, a->seed), i = w->n - w->n_prompt;

		w->n_draws++;
		while (a->grammar && !fake_grammar_allows(a->grammar, i, id))
			id = (id + 1) % FAKE_VOCAB;
		if (id == FAKE_END && !a->ignore_end) {
			w->finish = IG_FINISH_STOP;
			break;
		}
		w->tokens[w->n++] = id;
		if (id != FAKE_END)
			len += ig_detokenizer_put(&d, id, w->text + len);
		if (a->grammar && a->grammar->closes && i + 1 == a->grammar->n_tokens)
			w->finish = IG_FINISH_STOP;
		else if (i + 1 == max)
			w->finish = IG_FINISH_LENGTH;
	}
	if (w->finish != IG_FINISH_LENGTH)
		len += ig_detokenizer_flush(&d, w->text + len);
	w->text[len] = 0;
}

static void assert_logprobs(const struct client *c, const struct ask *a, const struct answer *w)
{
	int32_t n_top = a->n_probs - 1;

	assert_int_equal(c->n_logprobs, a->n_probs ? w->n - w->n_prompt : 0);
	for (int32_t i = w->n_prompt; i < w->n && a->n_probs; i++) {
		const struct ig_token_logprob *logprob = &c->logprobs[i - w->n_prompt];
		struct ig_token_prob top[IG_MAX_TOP];
		float logits[FAKE_LOGITS], p;
		int32_t n;

		fake_logits(w->tokens, i, logits);
		p = ig_logprobs(logits, FAKE_LOGITS, FAKE_VOCAB, w->tokens[i], top, n_top, &n);
		assert_int_equal(logprob->id, w->tokens[i]);
		assert_memory_equal(&logprob->logprob, &p, sizeof p); /* bit for bit */
		assert_int_equal(logprob->n_top, n_top);
		if (n_top)
			assert_memory_equal(logprob->top, top, (size_t)n * sizeof *top);
		assert_true(i == w->n_prompt || logprob->text_end >= logprob[-1].text_end);
	}
	if (c->n_logprobs)
		assert_int_equal(c->logprobs[c->n_logprobs - 1].text_end, strlen(w->text));
}

/* Whether c got the expected output; the number of samples. */
static int assert_answer(const struct client *c, const struct ask *a)
{
	static struct answer w;

	answer_to(a, &w);
	assert_string_equal(c->text, w.text);
	assert_int_equal(c->result.finish, w.finish);
	assert_int_equal(c->result.n_output, w.n - w.n_prompt);
	assert_int_equal(c->result.stop_index, -1);
	assert_logprobs(c, a, &w);
	return w.n_draws;
}

/* ---- log probabilities ------------------------------------------------------------------ */

static void test_probabilities(void **state)
{
	struct ask a = { .n_prompt = 30, .max_tokens = 50, .seed = 7, .n_probs = 21 };
	struct client c;
	struct ig_engine *e = harness_engine(&config);

	client_ask(&c, e, &a);
	client_finish(&c);
	assert_answer(&c, &a);
	assert_int_equal(fake.n_logit_steps, 50); /* one for each token */
	assert_int_equal(fake.max_in_flight, runs_ahead() ? 2 : 1);
	a.n_probs = 0; /* nobody wants any: no copies */
	client_ask(&c, e, &a);
	client_finish(&c);
	assert_answer(&c, &a);
	assert_int_equal(fake.n_logit_steps, 50);
	a.n_probs = 1; /* no alternatives */
	client_ask(&c, e, &a);
	client_finish(&c);
	assert_answer(&c, &a);
	assert_int_equal(fake.n_logit_steps, 100);
	harness_close(e);
}

/* Some of sixteen want them: the same bits as alone. */
static void test_probabilities_in_a_batch(void **state)
{
	static struct client c[16];
	struct ask a[16];
	struct ig_engine *e;

	fake.delay_us = 200;
	fake.gated = true; /* all begin together */
	e = harness_engine(&config);
	for (int i = 0; i < 16; i++) {
		a[i] = (struct ask){ .n_prompt = 1 + i * 37 % 200,
				     .prompt_seed = (unsigned)i,
				     .max_tokens = 30 + i,
				     .seed = 1000u + (unsigned)i,
				     .n_probs = i % 3 ? i : 0 };
		client_ask(&c[i], e, &a[i]);
	}
	fake_open_gate();
	for (int i = 0; i < 16; i++) {
		client_finish(&c[i]);
		assert_answer(&c[i], &a[i]);
	}
	assert_true(fake.max_seqs_seen > 4);
	harness_close(e);
}

/* Characters of two tokens, tokens without text, text that is held back. */
static int32_t odd_script(const int32_t *tokens, int32_t n)
{
	static const int32_t ids[] = { FAKE_HALF_1, FAKE_HALF_2, 0, FAKE_CONTROL, 1, FAKE_HALF_1 };

	return ids[n % 6];
}

static void test_probabilities_of_odd_tokens(void **state)
{
	struct ask a = {
		.n_prompt = 6, .max_tokens = 29, .n_probs = 3, .ring = 16, .logprob_ring = 1
	};
	struct client c;
	struct ig_engine *e;

	fake.script = odd_script;
	e = harness_engine(&config);
	for (int i = 0; i < 4; i++) {
		a.shows_control = i % 2;
		a.stops[0] = i / 2 ? "\xac"
				     "ab?" :
				     NULL;
		a.max_tokens++;
		client_ask(&c, e, &a);
		while (!c.over) {
			client_take(&c);
			ig_engine_resume(e, c.gen);
		}
		client_drop(&c);
		assert_answer(&c, &a);
	}
	harness_close(e);
}

static void test_full_ring_of_logprobs_pauses(void **state)
{
	struct client slow, other;
	struct ig_engine *e = harness_engine(&config);
	struct ask a = {
		.n_prompt = 10, .prompt_seed = 5, .max_tokens = 100, .n_probs = 2, .logprob_ring = 3
	};
	struct ask b = { .n_prompt = 10, .prompt_seed = 6, .max_tokens = 300 };

	client_ask(&slow, e, &a);
	wait_for(gauge(IG_GAUGE_REQUESTS_PAUSED) == 1);
	client_ask(&other, e, &b); /* others go on */
	client_finish(&other);
	assert_answer(&other, &b);
	assert_int_equal((int)gauge(IG_GAUGE_REQUESTS_PAUSED), 1);
	while (!slow.over) {
		client_take(&slow);
		assert_int_equal(slow.n_text,
				 slow.n_logprobs ? slow.logprobs[slow.n_logprobs - 1].text_end : 0);
		ig_engine_resume(e, slow.gen);
	}
	client_drop(&slow);
	assert_answer(&slow, &a);
	assert_int_equal((int)gauge(IG_GAUGE_REQUESTS_PAUSED), 0);
	harness_close(e);
}

/* A reader that takes text but no logprobs is slow, too; so is one that takes nothing. */
static void test_logprobs_that_nobody_takes(void **state)
{
	struct client slow[2];
	struct ask a = { .n_prompt = 10, .n_probs = 1, .logprob_ring = 4, .id = "slow" };
	char text[4096];
	struct ig_engine *e;

	config.server.slow_client_timeout_ms = 60;
	e = harness_engine(&config);
	client_ask(&slow[0], e, &a);
	a.logprob_ring = 1024;
	a.ring = 16;
	a.id = "slower";
	client_ask(&slow[1], e, &a);
	wait_for((ig_stream_take(slow[0].stream, text, sizeof text), ig_engine_n_active(e) == 0));
	assert_string_equal(ledger_find("slow").cancel_reason, "slow_client");
	assert_string_equal(ledger_find("slower").cancel_reason, "slow_client");
	ig_stream_take(slow[0].stream, text, sizeof text);
	for (int i = 0; i < 2; i++) { /* what was put can be taken still */
		client_finish(&slow[i]);
		assert_true(slow[i].n_logprobs > 0);
		assert_int_equal(slow[i].result.finish, IG_FINISH_CANCELLED);
	}
	harness_close(e);
}

/* Who wants what the device can't give fails alone. */
static void test_no_memory_for_logits(void **state)
{
	static struct client c[8], wants[4];
	struct ask a[8], w = { .n_prompt = 50, .max_tokens = 20, .n_probs = 3 };
	struct ig_engine *e;

	fake.no_logits = true;
	fake.delay_us = 100;
	config.scheduler.prefill_chunk = 16;
	e = harness_engine(&config);
	for (int i = 0; i < 8; i++) {
		a[i] = (struct ask){ .n_prompt = 20 + i * 16,
				     .prompt_seed = (unsigned)i,
				     .max_tokens = 60,
				     .seed = (unsigned)i };
		client_ask(&c[i], e, &a[i]);
		if (i % 2) {
			w.prompt_seed = 100u + (unsigned)i;
			client_ask(&wants[i / 2], e, &w);
			usleep(500);
		}
	}
	for (int i = 0; i < 4; i++) {
		client_finish(&wants[i]);
		assert_int_equal(wants[i].result.finish, IG_FINISH_ERROR);
		assert_int_equal(wants[i].result.error.code, -ENOMEM);
		assert_string_equal(wants[i].result.error.text,
				    "the device has no memory for log probabilities");
	}
	for (int i = 0; i < 8; i++) {
		client_finish(&c[i]);
		assert_answer(&c[i], &a[i]);
	}
	assert_int_equal(fake.max_in_flight, runs_ahead() ? 2 : 1);
	wait_for(gauge(IG_GAUGE_KV_USED_BYTES) == 0);
	harness_close(e);
}

/* ---- grammars ------------------------------------------------------------------------------- */

static void test_grammar(void **state)
{
	static const struct fake_grammar open = { 20, 7, false, false },
					 closed = { 20, 3, true, false };
	struct ask a = { .n_prompt = 10, .seed = 3, .grammar = &open };
	struct client c;
	struct ig_engine *e = harness_engine(&config);
	int n = 0;

	client_ask(&c, e, &a); /* ends with an end token */
	client_finish(&c);
	n += assert_answer(&c, &a);
	assert_int_equal(c.result.n_output, 20);
	assert_int_equal(fake.n_masked, 21);
	a.grammar = &closed; /* ends with its last token */
	client_ask(&c, e, &a);
	client_finish(&c);
	n += assert_answer(&c, &a);
	assert_int_equal(c.result.finish, IG_FINISH_STOP);
	assert_int_equal(c.result.n_output, 20);
	a.max_tokens = 20; /* whole, not cut */
	client_ask(&c, e, &a);
	client_finish(&c);
	n += assert_answer(&c, &a);
	assert_int_equal(c.result.finish, IG_FINISH_STOP);
	a.max_tokens = 9;
	client_ask(&c, e, &a);
	client_finish(&c);
	n += assert_answer(&c, &a);
	assert_int_equal(c.result.finish, IG_FINISH_LENGTH);
	assert_int_equal(fake.n_masked, n);
	assert_int_equal(fake.max_in_flight, 1); /* each mask needs the token before */
	assert_int_equal(fake.n_steps, n);
	harness_close(e);
}

/* With others, with and without grammars, in a cache that is too small for all, so that
 * some are read again. */
static void test_grammars_among_others(void **state)
{
	static const struct fake_grammar rules[] = { { 70, 7, true, false },
						     { 40, 2, false, false },
						     { 1000, 11, true, false } };
	static struct client c[12];
	struct ask a[12];
	struct ig_engine *e;
	int n = 0;

	config.models[0].context = 200;
	config.kvcache.arena = 8 * SLAB_BYTES;
	config.scheduler.prefill_chunk = 16;
	e = harness_engine(&config);
	fake_close_gate(); /* they arrive together, however slowly they are submitted */
	for (int i = 0; i < 12; i++) {
		a[i] = (struct ask){ .n_prompt = 10 + 5 * i,
				     .prompt_seed = 77u + (unsigned)i,
				     .max_tokens = 100,
				     .seed = (unsigned)i,
				     .grammar = i % 4 == 3 ? NULL : &rules[i % 4],
				     .n_probs = i % 5 };
		client_ask(&c[i], e, &a[i]);
	}
	fake_open_gate();
	for (int i = 0; i < 12; i++) {
		client_finish(&c[i]);
		n += assert_answer(&c[i], &a[i]) * (a[i].grammar != NULL);
	}
	assert_true(counter(IG_COUNTER_PREEMPTIONS) > 0);
	assert_int_equal(fake.n_masked, n);
	assert_int_equal(fake.max_in_flight, runs_ahead() ? 2 : 1); /* those without do */
	harness_close(e);
}

static void test_grammar_and_a_stop_string(void **state)
{
	static const struct fake_grammar rules = { 200, 1, true, false }; /* any text */
	struct ask a = { .n_prompt = 10,
			 .seed = 5,
			 .grammar = &rules,
			 .n_probs = 1,
			 .stops = { "not in there", "one two" } };
	struct answer *w = malloc(sizeof *w);
	struct client c;
	struct ig_engine *e = harness_engine(&config);
	const char *at;

	answer_to(&a, w);
	at = strstr(w->text, "one two");
	assert_non_null(at);
	client_ask(&c, e, &a);
	client_finish(&c);
	assert_int_equal(c.result.finish, IG_FINISH_STOP);
	assert_int_equal(c.result.stop_index, 1);
	assert_int_equal(c.n_text, at - w->text);
	assert_memory_equal(c.text, w->text, c.n_text);
	assert_true(c.n_logprobs > 0);
	assert_true(c.logprobs[c.n_logprobs - 1].text_end <= c.n_text);
	free(w);
	harness_close(e);
}

static void test_grammar_and_cancel(void **state)
{
	static const struct fake_grammar rules = { 1000, 5, true, false };
	struct client c;
	struct ig_engine *e;

	fake.gated = true;
	e = harness_engine(&config);
	client_ask(&c, e, &(struct ask){ .n_prompt = 20, .grammar = &rules });
	for (int i = 0; i < 3; i++) {
		fake_wait_at_gate();
		fake_allow(1);
	}
	fake_wait_at_gate();
	ig_engine_cancel(e, c.gen, "client_gone");
	fake_open_gate();
	client_finish(&c);
	assert_int_equal(c.result.finish, IG_FINISH_CANCELLED);
	harness_close(e); /* the matcher and its grammar are gone */
}

/* What can't be: a sample that the grammar did not allow.  One request fails, others continue. */
static void test_grammar_is_broken(void **state)
{
	static const struct fake_grammar rules = { 5, 60, true, true };
	struct ask a = { .n_prompt = 10, .max_tokens = 50 };
	struct client broken, other;
	struct ig_engine *e = harness_engine(&config);

	client_ask(&other, e, &a);
	client_ask(&broken, e,
		   &(struct ask){ .n_prompt = 3, .grammar = &rules, .id = "broken", .seed = 2 });
	client_finish(&broken);
	client_finish(&other);
	assert_answer(&other, &a);
	/* no bit is set, so token 0 is sampled: the first may be 0, the second not */
	assert_int_equal(broken.result.finish, IG_FINISH_ERROR);
	assert_string_equal(
		broken.result.error.text,
		"the model sampled token 0 at position 4, which the grammar does not allow");
	assert_int_equal(broken.result.n_output, 1);
	assert_int_equal(ledger_find("broken").status, 500);
	harness_close(e);
}

/* ---- end tokens that do not end ---------------------------------------------------------------- */

static int32_t ending_script(const int32_t *tokens, int32_t n)
{
	return n % 3 ? FAKE_END : 21 + n % 20;
}

static void test_ends_that_do_not_end(void **state)
{
	struct ask a = { .n_prompt = 6, .max_tokens = 40, .ignore_end = true, .n_probs = 2 };
	struct client c;
	struct ig_engine *e;

	fake.script = ending_script;
	e = harness_engine(&config);
	client_ask(&c, e, &a);
	client_finish(&c);
	assert_answer(&c, &a);
	assert_int_equal(c.result.finish, IG_FINISH_LENGTH);
	assert_int_equal(c.result.n_output, 40);
	assert_int_equal(c.n_text, 14); /* every third is a letter */
	a.ignore_end = false;
	client_ask(&c, e, &a);
	client_finish(&c);
	assert_answer(&c, &a);
	assert_int_equal(c.result.n_output, 1);
	harness_close(e);
}

/* ---- prompts without output ----------------------------------------------------------------------- */

static void test_prefill_only(void **state)
{
	struct ask a = { .n_prompt = 100,
			 .max_tokens = 20,
			 .seed = 1,
			 .prefill_only = true,
			 .id = "warm",
			 .repetition_penalty = 1.5f };
	struct client c;
	struct ig_ledger_row row;
	struct ig_engine *e = harness_engine(&config);

	client_ask(&c, e, &a);
	wait_for((client_take(&c), c.over));
	assert_int_equal(c.result.finish, IG_FINISH_STOP);
	assert_int_equal(c.result.n_prompt, 100);
	assert_int_equal(c.result.n_cached, 0);
	assert_int_equal(c.result.n_output, 0);
	assert_int_equal(c.result.stop_index, -1);
	assert_int_equal(c.n_text, 0);
	client_drop(&c);
	assert_int_equal(fake.n_prefill_rows, 100);
	assert_int_equal(fake.n_decode_rows, 0);
	assert_int_equal(fake.n_steps, 2); /* 64 and 36 */
	row = ledger_find("warm");
	assert_string_equal(row.finish, "stop");
	assert_int_equal(row.status, 200);
	assert_int_equal(row.n_prompt, 100);
	assert_int_equal(row.n_output, 0);
	assert_true(row.queue_ms >= 0 && row.prefill_ms >= 0 && row.total_ms >= row.prefill_ms);
	assert_true(row.ttft_ms == -1 && row.decode_ms == -1);
	assert_int_equal(fake.n_itl, 0);
	wait_for(gauge(IG_GAUGE_KV_USED_BYTES) == 0); /* in the cache, held by nobody */
	/* who asks then finds the prompt read */
	a.prefill_only = false;
	a.repetition_penalty = 0;
	a.id = "then";
	client_ask(&c, e, &a);
	client_finish(&c);
	assert_answer(&c, &a);
	assert_int_equal(c.result.n_cached, 96);
	/* and so does who reads it again */
	a.prefill_only = true;
	a.id = "again";
	client_ask(&c, e, &a);
	client_finish(&c);
	assert_int_equal(c.result.n_cached, 99);
	assert_int_equal(c.result.n_output, 0);
	assert_int_equal(ledger_find("again").n_cached, 99);
	harness_close(e);
}

/* Beside others, with a grammar without effect, logprobs that never come. */
static void test_prefill_only_among_others(void **state)
{
	static const struct fake_grammar rules = { 5, 7, true, false };
	static struct client c[16];
	struct ask a[16];
	struct ig_engine *e;

	config.kvcache.arena = 20 * SLAB_BYTES;
	fake.delay_us = 200;
	e = harness_engine(&config);
	for (int i = 0; i < 16; i++) {
		a[i] = (struct ask){ .n_prompt = 1 + i * 16,
				     .prompt_seed = (unsigned)i,
				     .max_tokens = 30,
				     .seed = (unsigned)i,
				     .prefill_only = i % 2,
				     .grammar = i % 4 == 1 ? &rules : NULL,
				     .n_probs = i % 3 };
		client_ask(&c[i], e, &a[i]);
	}
	for (int i = 0; i < 16; i++) {
		client_finish(&c[i]);
		if (!a[i].prefill_only) {
			assert_answer(&c[i], &a[i]);
			continue;
		}
		assert_int_equal(c[i].result.finish, IG_FINISH_STOP);
		assert_int_equal(c[i].result.n_output, 0);
		assert_int_equal(c[i].n_text + c[i].n_logprobs, 0);
	}
	assert_int_equal(fake.n_masked, 0);
	harness_close(e);
}

/* With an argument: the same tests, running ahead. */
int main(int argc, char **argv)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_probabilities),
		T(test_probabilities_in_a_batch),
		T(test_probabilities_of_odd_tokens),
		T(test_full_ring_of_logprobs_pauses),
		T(test_logprobs_that_nobody_takes),
		T(test_no_memory_for_logits),
		T(test_grammar),
		T(test_grammars_among_others),
		T(test_grammar_and_a_stop_string),
		T(test_grammar_and_cancel),
		T(test_grammar_is_broken),
		T(test_ends_that_do_not_end),
		T(test_prefill_only),
		T(test_prefill_only_among_others),
	};

	(void)argv;
	if (argc == 1)
		return cmocka_run_group_tests_name("answers", tests, NULL, NULL);
	harness_run_ahead = "on";
	return cmocka_run_group_tests_name("answers, running ahead", tests, NULL, NULL);
}
