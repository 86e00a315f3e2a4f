/*
 * test_rounds.c: which prompts are prefilled first, and when streams decode meanwhile: steps go
 * through a gate one by one, and after each the clients' tokens are counted.
 */
#include "harness.h"

#include <unistd.h>

#define TOKEN 5

static struct ig_config config;
static const char *const one[] = { "good" };

static int32_t always_the_same(const int32_t *tokens, int32_t n) { return TOKEN; }

static int setup(void **state)
{
	fake_reset();
	fake.gated = true;
	fake.script = always_the_same;
	harness_config(&config, one, 1);
	return 0;
}

static int teardown(void **state)
{
	harness_abandon();
	harness_config_finish(&config);
	return 0;
}

/* One step through the gate; the text of all steps up to it is in the streams then. */
static void step(void)
{
	fake_allow(1);
	fake_wait_at_gate();
}

static int n_tokens(struct client *c)
{
	client_take(c);
	return (int)(c->n_text / strlen(fake_token_text(TOKEN)));
}

static void ask(struct client *c, struct ig_engine *e, int32_t n_prompt, int32_t max_tokens)
{
	static unsigned seed;

	client_ask(c, e,
		   &(struct ask){
			   .n_prompt = n_prompt, .prompt_seed = ++seed, .max_tokens = max_tokens });
}

static int32_t n_prefilled(struct ig_engine *e, int i)
{
	struct ig_gen_info info[32];

	assert_true(ig_engine_list(e, info, 32) > (size_t)i);
	return info[i].n_prefilled;
}

static void test_prompts_end_one_after_another(void **state)
{
	static struct client c[16], stream;
	static const int n_done[] = { 2, 4, 6, 8, 10, 12, 14, 16 };
	struct ig_engine *e;

	fake.split_rows = 64;
	config.scheduler.max_batch_tokens = config.scheduler.prefill_chunk = 512;
	config.scheduler.max_seqs = 32;
	e = harness_engine(&config);
	ask(&stream, e, 8, 100);
	fake_wait_at_gate();
	for (int i = 0; i < 16; i++)
		ask(&c[i], e, 22, 10);
	step();
	/* all are short: half of the rows are enough */
	for (int k = 0; k < 8; k++) {
		assert_int_equal(n_tokens(&stream), k ? 2 : 1);
		step();
		/* the oldest first; none that has its first token has a second */
		for (int i = 0; i < 16; i++)
			assert_int_equal(n_tokens(&c[i]), i < n_done[k]);
	}
	/* a stream has one row in all these steps, as in one step of all their rows */
	assert_int_equal(n_tokens(&stream), 2);
	assert_int_equal(fake.max_rows_seen, 1 + 2 * 22);
	assert_int_equal(fake.n_prefill_rows, 8 + 16 * 22);
	step();
	for (int i = 0; i < 16; i++)
		assert_int_equal(n_tokens(&c[i]), 2);
	assert_int_equal(n_tokens(&stream), 3);
	fake_open_gate();
	for (int i = 0; i < 16; i++)
		client_finish(&c[i]);
	client_finish(&stream);
	harness_close(e);
}

static void test_not_split(void **state)
{
	static struct client c[16];
	struct client first;
	struct ig_engine *e;

	config.scheduler.max_batch_tokens = config.scheduler.prefill_chunk = 512;
	config.scheduler.max_seqs = 32;
	e = harness_engine(&config); /* its driver does not say how many rows are enough */
	ask(&first, e, 8, 1);
	fake_wait_at_gate();
	for (int i = 0; i < 16; i++)
		ask(&c[i], e, 22, 10);
	step();
	step();
	for (int i = 0; i < 16; i++)
		assert_int_equal(n_tokens(&c[i]), 1);
	fake_open_gate();
	for (int i = 0; i < 16; i++)
		client_finish(&c[i]);
	client_finish(&first);
	harness_close(e);
}

static void test_shortest_prompt_first(void **state)
{
	static const int32_t lengths[] = { 100, 40, 70 };
	struct client first, c[3];
	struct ig_engine *e;

	fake.split_rows = 16;
	config.scheduler.max_batch_tokens = config.scheduler.prefill_chunk = 256;
	e = harness_engine(&config);
	ask(&first, e, 8, 1);
	fake_wait_at_gate();
	for (int i = 0; i < 3; i++)
		ask(&c[i], e, lengths[i], 4);
	step();
	for (int k = 0; k < 3; k++) {
		step();
		assert_int_equal(n_tokens(&c[1]), 1);
		assert_int_equal(n_tokens(&c[2]), k >= 1);
		assert_int_equal(n_tokens(&c[0]), k >= 2);
	}
	fake_open_gate();
	for (int i = 0; i < 3; i++)
		client_finish(&c[i]);
	client_finish(&first);
	harness_close(e);
}

static void test_equal_prompts_take_turns(void **state)
{
	struct client a, b;
	struct ig_engine *e;

	fake.split_rows = 32;
	config.scheduler.prefill_chunk = 128;
	e = harness_engine(&config);
	ask(&a, e, 300, 4);
	fake_wait_at_gate();
	ask(&b, e, 300, 4);
	for (int i = 0; i < 3; i++)
		step(); /* 128, 128, 44 rows of a */
	assert_int_equal(n_tokens(&a), 1);
	assert_int_equal(n_prefilled(e, 1), 0);
	fake_open_gate();
	client_finish(&a);
	client_finish(&b);
	harness_close(e);
}

static void test_long_and_short_prompts(void **state)
{
	enum { N = 4, SHORT = 60, LONG = 400 };
	static struct client a, b, c[N];
	struct ig_engine *e;
	int left, since, n_short = 0;

	fake.split_rows = 32;
	config.scheduler.prefill_chunk = 128;
	e = harness_engine(&config);
	ask(&a, e, LONG, 1);
	fake_wait_at_gate();
	ask(&b, e, 20, 1);
	step();
	/* The short one does not wait for the long one, which has what its step has left. */
	step();
	client_take(&b);
	assert_true(b.over);
	assert_int_equal(n_prefilled(e, 0), 128 + 12);
	client_drop(&b);

	/* More short ones than there are rows, all the time: the long one has half of the rows. */
	left = LONG - n_prefilled(e, 0);
	since = fake.n_prefill_rows;
	for (int i = 0; i < N; i++)
		ask(&c[i], e, SHORT, 1);
	while (client_take(&a), !a.over) {
		step();
		assert_true(fake.n_prefill_rows - since < 4 * LONG);
		for (int i = 0; i < N; i++) {
			client_take(&c[i]);
			if (!c[i].over)
				continue;
			client_drop(&c[i]);
			ask(&c[i], e, SHORT, 1);
			n_short++;
		}
	}
	assert_true(fake.n_prefill_rows - since <= 2 * left + 2 * 128);
	assert_true(n_short * SHORT >= left / 4);
	fake_open_gate();
	client_finish(&a);
	for (int i = 0; i < N; i++)
		client_finish(&c[i]);
	harness_close(e);
}

/* ---- streams beside long prompts ------------------------------------------------------------ */

/* The tokens that a stream gets while a prompt of 500 rows is read. */
static int beside(uint32_t prompt_share, int32_t n_prompt)
{
	static struct client stream, long_one;
	struct ig_engine *e;

	fake_open_gate();
	fake.delay_us = 1000;
	fake.row_us = 100;
	fake.split_rows = 64;
	config.scheduler.max_batch_tokens = config.scheduler.prefill_chunk = 512;
	config.scheduler.prompt_share = prompt_share;
	e = harness_engine(&config);
	ask(&stream, e, 8, 500);
	while (n_tokens(&stream) < 8)
		usleep(1000);
	fake.n_decode_before = -1;
	ask(&long_one, e, n_prompt, 1);
	client_finish(&long_one);
	ig_engine_cancel(e, stream.gen, "client_gone");
	client_finish(&stream);
	harness_close(e);
	return fake.n_decode_until - fake.n_decode_before;
}

static void test_streams_beside_a_long_prompt(void **state)
{
	/* at least a token for each step, which has some twelve rows of the prompt */
	int n = beside(33, 480), few = beside(90, 480), many = beside(10, 480);

	assert_in_range(n, 30, 250);
	assert_true(few < n && n < many);
	/* a short one is read in one step */
	assert_int_equal(beside(33, 60), 0);
}

/* Nobody waits until a long prompt's chunk is done: what is left of it is planned again. */
static void test_a_short_one_within_a_chunk(void **state)
{
	struct client a, b;
	struct ig_engine *e;

	fake.split_rows = 16;
	config.scheduler.max_batch_tokens = config.scheduler.prefill_chunk = 512;
	e = harness_engine(&config);
	ask(&a, e, 500, 4);
	fake_wait_at_gate();
	step();
	ask(&b, e, 10, 4);
	step();
	step();
	step();
	assert_true(n_tokens(&b) > 0);
	assert_true(n_prefilled(e, 0) < 100);
	fake_open_gate();
	client_finish(&a);
	client_finish(&b);
	harness_close(e);
}

/* ---- prefixes that are being computed ------------------------------------------------------ */

/* n_same tokens that are the same for all, then n of its own. */
static void ask_alike(struct client *c, struct ig_engine *e, int32_t n_same, int32_t n,
		      uint64_t salt)
{
	static unsigned seed = 1000;
	int32_t prompt[FAKE_CONTEXT];

	make_prompt(prompt, n_same, 999);
	make_prompt(prompt + n_same, n, ++seed);
	/* which begin to differ with the first */
	prompt[n_same] = (int32_t)(seed % FAKE_N_TEXT);
	client_ask(
		c, e,
		&(struct ask){
			.prompt = prompt, .n_prompt = n_same + n, .max_tokens = 4, .salt = salt });
}

static void compute_once(int32_t n_same, int32_t n, int32_t n_cached)
{
	static struct client c[4];
	struct client first;
	struct ig_engine *e;

	config.scheduler.max_batch_tokens = config.scheduler.prefill_chunk = 512;
	e = harness_engine(&config);
	ask(&first, e, 8, 1);
	fake_wait_at_gate();
	for (int i = 0; i < 4; i++)
		ask_alike(&c[i], e, n_same, n, 0);
	fake_open_gate();
	for (int i = 0; i < 4; i++) {
		client_finish(&c[i]);
		assert_int_equal(c[i].result.n_output, 4);
		assert_int_equal(c[i].result.n_cached, i ? n_cached : 0);
	}
	client_finish(&first);
	assert_int_equal(fake.n_prefill_rows, 8 + 4 * (n_same + n) - 3 * n_cached);
	harness_close(e);
}

static void test_a_prefix_is_computed_once(void **state) { compute_once(64, 20, 64); }

/* It ends inside a block, which the first one of them fills. */
static void test_part_of_a_block_is_computed_once(void **state) { compute_once(72, 20, 72); }

/* Nobody fills that block: what is before it is found. */
static void test_a_block_that_is_not_filled(void **state) { compute_once(72, 4, 64); }

static void test_prefixes_of_others_are_not_waited_for(void **state)
{
	static struct client c[2];
	struct client first;
	struct ig_engine *e;

	config.scheduler.max_batch_tokens = config.scheduler.prefill_chunk = 512;
	e = harness_engine(&config);
	ask(&first, e, 8, 1);
	fake_wait_at_gate();
	for (int i = 0; i < 2; i++)
		ask_alike(&c[i], e, 64, 20, 1 + (uint64_t)i);
	step();
	step(); /* both are in it */
	for (int i = 0; i < 2; i++)
		assert_int_equal(n_tokens(&c[i]), 1);
	fake_open_gate();
	for (int i = 0; i < 2; i++) {
		client_finish(&c[i]);
		assert_int_equal(c[i].result.n_cached, 0);
	}
	client_finish(&first);
	harness_close(e);
}

/* A short prompt that shares little with a long one is prefilled before it. */
static void test_a_short_one_does_not_wait(void **state)
{
	struct client first, a, b;
	struct ig_engine *e;

	fake.split_rows = 16;
	config.scheduler.max_batch_tokens = config.scheduler.prefill_chunk = 256;
	e = harness_engine(&config);
	ask(&first, e, 8, 1);
	fake_wait_at_gate();
	ask_alike(&a, e, 64, 400, 0);
	ask_alike(&b, e, 64, 4, 0);
	step();
	step();
	assert_int_equal(n_tokens(&b), 1);
	fake_open_gate();
	client_finish(&a);
	client_finish(&b);
	client_finish(&first);
	harness_close(e);
}

static void test_the_one_that_computes_it_ends(void **state)
{
	struct client a, b;
	struct ig_engine *e;

	config.scheduler.prefill_chunk = 16;
	e = harness_engine(&config);
	ask_alike(&a, e, 64, 20, 0);
	fake_wait_at_gate();
	ask_alike(&b, e, 64, 20, 0);
	step();
	step();
	assert_int_equal(n_prefilled(e, 0), 32);
	assert_int_equal(n_prefilled(e, 1), 0);
	ig_engine_cancel(e, a.gen, "client_gone");
	fake_open_gate();
	client_finish(&a);
	client_finish(&b);
	assert_int_equal(b.result.n_output, 4);
	harness_close(e);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_prompts_end_one_after_another),
		T(test_not_split),
		T(test_shortest_prompt_first),
		T(test_equal_prompts_take_turns),
		T(test_long_and_short_prompts),
		T(test_streams_beside_a_long_prompt),
		T(test_a_short_one_within_a_chunk),
		T(test_a_prefix_is_computed_once),
		T(test_part_of_a_block_is_computed_once),
		T(test_a_block_that_is_not_filled),
		T(test_prefixes_of_others_are_not_waited_for),
		T(test_a_short_one_does_not_wait),
		T(test_the_one_that_computes_it_ends),
	};

	return cmocka_run_group_tests_name("rounds", tests, NULL, NULL);
}
