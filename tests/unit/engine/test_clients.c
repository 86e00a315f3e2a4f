/*
 * test_clients.c: clients share the engine, not requests: whoever sends many gets no more than
 * others while they want something; weights, priorities, deadlines.
 */
#include "daemon/engine/clients_private.h"
#include "harness.h"

#define N_GREEDY 40
#define N_OTHERS 5
#define PLACES 16

static struct ig_config config;
static const char *const one[] = { "good" };
static struct client c[64];
static struct ask asks[64];

static int setup(void **state)
{
	fake_reset();
	harness_config(&config, one, 1);
	config.scheduler.max_seqs = PLACES;
	return 0;
}

static int teardown(void **state)
{
	harness_abandon();
	harness_config_finish(&config);
	return 0;
}

static void assert_answer(const struct client *got, const struct ask *a)
{
	char text[65536];
	int32_t n = expected(a, text, sizeof text);

	assert_string_equal(got->text, text);
	assert_int_equal(got->result.n_output, n);
}

/* Request i, with an id that begins with its client's letter. */
static void send(struct ig_engine *e, int i, char client, struct ask a)
{
	static char ids[64][8], names[64][2];

	snprintf(ids[i], sizeof ids[i], "%c%d", client, i);
	snprintf(names[i], sizeof names[i], "%c", client);
	a.id = ids[i];
	a.client = names[i];
	a.prompt_seed = (unsigned)i;
	a.seed = 77u + (unsigned)i;
	asks[i] = a;
	client_ask(&c[i], e, &asks[i]);
}

static int n_in_state(struct ig_engine *e, char client, const char *states)
{
	struct ig_gen_info info[64];
	size_t n = ig_engine_list(e, info, 64);
	int n_found = 0;

	for (size_t i = 0; i < n; i++)
		n_found += info[i].id[0] == client && strchr(states, info[i].state[0]);
	return n_found;
}

static int n_running(struct ig_engine *e, char client) { return n_in_state(e, client, "pd"); }

static int n_waiting(struct ig_engine *e, char client) { return n_in_state(e, client, "w"); }

/* Output tokens of a client's requests so far; of one that has ended all. */
static int n_output(struct ig_engine *e, char client, int n_sent, int each)
{
	struct ig_gen_info info[64];
	size_t n = ig_engine_list(e, info, 64);
	int n_tokens = 0, n_left = 0;

	for (size_t i = 0; i < n; i++) {
		if (info[i].id[0] != client)
			continue;
		n_left++;
		n_tokens += info[i].n_output;
	}
	return n_tokens + (n_sent - n_left) * each;
}

/* ---- one sends many ------------------------------------------------------------------------ */

/* A step costs as much as it has rows.  While the others are served, the greedy client has about as
 * much as one of them; without clients it would have PLACES times that.  Nothing is lost. */
static void test_a_greedy_client(void **state)
{
	enum { EACH = 60 };
	struct ig_engine *e;

	fake.row_us = 200;
	e = harness_engine(&config);
	for (int i = 0; i < N_GREEDY; i++)
		send(e, i, 'g', (struct ask){ .n_prompt = 5, .max_tokens = EACH });
	wait_for(n_output(e, 'g', N_GREEDY, EACH) > 100); /* in all places */
	assert_int_equal(n_running(e, 'g'), PLACES);
	int before = n_output(e, 'g', N_GREEDY, EACH);
	for (int i = N_GREEDY; i < N_GREEDY + N_OTHERS; i++)
		send(e, i, (char)('a' + i - N_GREEDY),
		     (struct ask){ .n_prompt = 5, .max_tokens = EACH });
	for (int i = N_GREEDY; i < N_GREEDY + N_OTHERS; i++) {
		client_finish(&c[i]);
		assert_answer(&c[i], &asks[i]);
	}
	int meanwhile = n_output(e, 'g', N_GREEDY, EACH) - before;
	print_message("# %d tokens of the greedy client beside %d of each other\n", meanwhile,
		      EACH);
	assert_in_range(meanwhile, 1, 4 * EACH);
	for (int i = 0; i < N_GREEDY; i++) {
		client_finish(&c[i]);
		assert_answer(&c[i], &asks[i]);
	}
	harness_close(e);
}

/* Where further rows cost nothing, all take part: nobody is held back for nothing.  On a busy machine
 * that may take some measuring. */
static void test_rows_that_cost_nothing(void **state)
{
	enum { N = 8, EACH = 500, SHORT = 40 };
	struct ig_engine *e;
	int meanwhile = 0;

	fake.delay_us = 3000;
	e = harness_engine(&config);
	for (int64_t end = ig_now_ns() + (int64_t)10 * 1000000000; ig_now_ns() < end;) {
		for (int i = 0; i < N; i++)
			send(e, i, 'g', (struct ask){ .n_prompt = 5, .max_tokens = EACH });
		wait_for(n_output(e, 'g', N, EACH) > 20 * N);
		int before = n_output(e, 'g', N, EACH);
		send(e, N, 'a', (struct ask){ .n_prompt = 5, .max_tokens = SHORT });
		client_finish(&c[N]);
		meanwhile = n_output(e, 'g', N, EACH) - before;
		for (int i = 0; i < N; i++) {
			ig_engine_cancel(e, c[i].gen, "test");
			client_finish(&c[i]);
		}
		if (meanwhile > SHORT * N / 2)
			break;
	}
	print_message("# %d tokens of the greedy client beside %d\n", meanwhile, SHORT);
	assert_true(meanwhile > SHORT * N / 2);
	harness_close(e);
}

/* ---- places and blocks ------------------------------------------------------------------------ */

static void step(void)
{
	fake_allow(1);
	fake_wait_at_gate();
}

/* The places are shared by weight, also when one client had them all; none is free. */
static void share_places(uint32_t weight, int of_greedy)
{
	struct ig_engine *e;

	fake.gated = true;
	config.scheduler.max_seqs = 8;
	e = harness_engine(&config);
	for (int i = 0; i < 20; i++)
		send(e, i, 'g',
		     (struct ask){ .n_prompt = 5, .max_tokens = 300, .salt = 1, .weight = weight });
	for (int i = 0; i < 3; i++)
		fake_wait_at_gate(), step();
	assert_int_equal(n_running(e, 'g'), 8);
	for (int i = 20; i < 40; i++)
		send(e, i, 'o',
		     (struct ask){ .n_prompt = 5, .max_tokens = 300, .salt = 2, .weight = 1 });
	for (int i = 0; i < 5; i++)
		step();
	assert_int_equal(n_running(e, 'g'), of_greedy);
	assert_int_equal(n_running(e, 'o'), 8 - of_greedy);
	int preempted = counter(IG_COUNTER_PREEMPTIONS);
	assert_int_equal(preempted, 8 - of_greedy);
	for (int i = 0; i < 30; i++)
		step();
	assert_int_equal(counter(IG_COUNTER_PREEMPTIONS), preempted); /* none goes back and forth */
	for (int i = 0; i < 40; i++)
		ig_engine_cancel(e, c[i].gen, "test");
	fake_open_gate();
	for (int i = 0; i < 40; i++)
		client_finish(&c[i]);
	harness_close(e);
}

static void test_places(void **state) { share_places(1, 4); }

static void test_places_by_weight(void **state) { share_places(3, 6); }

/* The cache is full of one client's blocks: another's request gets some, and keeps them although it
 * is younger. */
static void test_blocks(void **state)
{
	struct ig_engine *e;

	fake.gated = true;
	config.kvcache.arena = 20 * SLAB_BYTES; /* 80 blocks */
	config.kvcache.prefix_cache = false;
	e = harness_engine(&config);
	for (int i = 0; i < 10; i++)
		send(e, i, 'g', (struct ask){ .n_prompt = 200, .max_tokens = 300 });
	for (int i = 0; i < 30; i++)
		fake_wait_at_gate(), step();
	int n_greedy = n_running(e, 'g');
	assert_in_range(n_greedy, 2, 9);
	send(e, 10, 'o', (struct ask){ .n_prompt = 200, .max_tokens = 200 });
	for (int i = 0; i < 8; i++)
		step();
	assert_int_equal(n_running(e, 'o'), 1);
	fake_open_gate();
	client_finish(&c[10]);
	assert_answer(&c[10], &asks[10]);
	for (int i = 0; i < 10; i++) {
		client_finish(&c[i]);
		assert_answer(&c[i], &asks[i]);
	}
	harness_close(e);
}

/* A prompt does not wait for a common prefix that another client's request would compute, but does not
 * now: that client has its share. */
static void test_nobody_waits_for_what_is_held(void **state)
{
	struct ig_engine *e;

	fake.gated = true;
	e = harness_engine(&config);
	send(e, 0, 'g', (struct ask){ .n_prompt = 5, .max_tokens = 300 });
	send(e, 1, 'o', (struct ask){ .n_prompt = 5, .max_tokens = 300 });
	for (fake_wait_at_gate(); n_output(e, 'g', 1, 300) < 3 || n_output(e, 'o', 1, 300) < 3;)
		step();
	static int32_t prompt[200];
	make_prompt(prompt, 200, 99);
	send(e, 2, 'g', (struct ask){ .prompt = prompt, .n_prompt = 200, .max_tokens = 5 });
	for (int i = 0; i < 3; i++)
		step();
	assert_int_equal(n_running(e, 'g'), 2);
	send(e, 3, 'a', (struct ask){ .prompt = prompt, .n_prompt = 200, .max_tokens = 5 });
	for (int i = 0; i < 3; i++)
		step();
	assert_int_equal(n_running(e, 'a'), 1);
	fake_open_gate();
	for (int i = 3; i >= 0; i--)
		client_finish(&c[i]);
	harness_close(e);
}

/* A prompt gives its place to a more urgent one of its model, and gets that of a less urgent one of another model,
 * all at one boundary: it is once among the prompts whose prefix others may wait for. */
static void test_out_and_in_again(void **state)
{
	static const char *const two[] = { "good", "good2" };
	struct ig_engine *e;

	harness_config_finish(&config);
	harness_config(&config, two, 2);
	config.scheduler.max_seqs = 3;
	fake.gated = true;
	e = harness_engine(&config);
	send(e, 0, 'g', (struct ask){ .n_prompt = 400, .max_tokens = 5, .priority = 1 });
	send(e, 1, 'o',
	     (struct ask){ .model = "good2", .n_prompt = 400, .max_tokens = 5, .priority = 4 });
	send(e, 2, 'p',
	     (struct ask){ .model = "good2", .n_prompt = 400, .max_tokens = 5, .priority = 5 });
	for (fake_wait_at_gate(); !n_running(e, 'g') || !n_running(e, 'o') || !n_running(e, 'p');)
		step();
	send(e, 3, 'g', (struct ask){ .n_prompt = 200, .max_tokens = 5 });
	send(e, 4, 'a', (struct ask){ .n_prompt = 200, .max_tokens = 5, .priority = 3 });
	step();
	if (!strcmp(harness_run_ahead, "on"))
		step(); /* the one ahead had been submitted before they came */
	assert_int_equal(n_running(e, 'g'), 2);
	assert_int_equal(n_running(e, 'a'), 1);
	assert_int_equal(counter(IG_COUNTER_PREEMPTIONS), 3);
	fake_open_gate();
	for (int i = 0; i < 5; i++) {
		client_finish(&c[i]);
		assert_answer(&c[i], &asks[i]);
	}
	harness_close(e);
}

/* ---- the queue ------------------------------------------------------------------------------- */

/* Its place in the queue went to another client. */
static void assert_displaced(int i)
{
	client_finish(&c[i]);
	assert_int_equal(c[i].result.finish, IG_FINISH_ERROR);
	assert_int_equal(c[i].result.error.code, -EAGAIN);
	assert_non_null(strstr(c[i].result.error.text, "the queue is full"));
	struct ig_ledger_row row = ledger_find(asks[i].id);
	assert_int_equal(row.status, 503);
	assert_string_equal(row.finish, "refused");
}

static void assert_refused(struct ig_engine *e, const char *client, uint64_t salt, uint32_t weight,
			   int32_t priority)
{
	struct ask a = { .n_prompt = 5,
			 .max_tokens = 5,
			 .id = "refused",
			 .client = client,
			 .salt = salt,
			 .weight = weight,
			 .priority = priority };
	struct ig_error err;
	struct client got;

	assert_int_equal(client_try(&got, e, &a, &err), -EAGAIN);
	assert_non_null(strstr(err.text, "the queue is full"));
}

/* One client fills the queue; another has its share of it all the same, and the newest of the first
 * are refused for that. */
static void share_queue(uint32_t weight, int of_other)
{
	enum { QUEUE = 6 };
	struct ig_engine *e;
	int last = 2 + QUEUE - 1;

	fake.gated = true;
	config.scheduler.max_seqs = 2;
	config.scheduler.max_queue = QUEUE;
	e = harness_engine(&config);
	for (int i = 0; i <= last; i++)
		send(e, i, 'g',
		     (struct ask){ .n_prompt = 5,
				   .max_tokens = 100,
				   .salt = 1,
				   .priority = i >= 2 /* the first two keep their places */ });
	for (fake_wait_at_gate(); n_waiting(e, 'g') > QUEUE;)
		step();
	assert_refused(e, "g", 1, 1, 1);
	for (int i = 0; i < of_other; i++) {
		send(e, 20 + i, 'o',
		     (struct ask){ .n_prompt = 5,
				   .max_tokens = 5,
				   .salt = 2,
				   .weight = weight,
				   .priority = 1 });
		if (i % 2)
			step();
	}
	assert_refused(e, "o", 2, weight, 1);
	assert_refused(e, "g", 1, 1, 1);
	step();
	assert_int_equal(n_waiting(e, 'g'), QUEUE - of_other);
	assert_int_equal(n_waiting(e, 'o'), of_other);
	for (int i = last; i > last - of_other; i--)
		assert_displaced(i);
	assert_int_equal(counter(IG_COUNTER_REFUSED), of_other + 3);
	fake_open_gate();
	for (int i = 0; i <= last - of_other; i++) {
		client_finish(&c[i]);
		assert_answer(&c[i], &asks[i]);
	}
	for (int i = 20; i < 20 + of_other; i++) {
		client_finish(&c[i]);
		assert_answer(&c[i], &asks[i]);
	}
	harness_close(e);
}

static void test_queue(void **state) { share_queue(1, 3); }

static void test_queue_by_weight(void **state) { share_queue(2, 4); }

/* What a client has begun to read stays, and so does what is more urgent than the new one. */
static void test_what_keeps_its_place_in_the_queue(void **state)
{
	struct ig_engine *e;

	fake.gated = true;
	config.scheduler.max_seqs = 4;
	config.scheduler.max_queue = 2;
	e = harness_engine(&config);
	for (int i = 0; i < 4; i++)
		send(e, i, 'g', (struct ask){ .n_prompt = 5, .max_tokens = 100, .salt = 1 });
	for (fake_wait_at_gate(); n_output(e, 'g', 4, 100) < 12;)
		step();
	send(e, 4, 'g', (struct ask){ .n_prompt = 5, .max_tokens = 100, .salt = 1, .priority = 5 });
	send(e, 5, 'g', (struct ask){ .n_prompt = 5, .max_tokens = 100, .salt = 1, .priority = 3 });
	step();
	assert_refused(e, "o", 2, 1, 7);
	send(e, 6, 'o', (struct ask){ .n_prompt = 5, .max_tokens = 90, .salt = 2 });
	step();
	step();
	assert_displaced(4); /* the least urgent, although it is not the newest */
	assert_int_equal(n_running(e, 'o'), 1);
	send(e, 7, 'o', (struct ask){ .n_prompt = 5, .max_tokens = 90, .salt = 2 });
	step();
	step();
	assert_displaced(5);
	assert_int_equal(n_running(e, 'o'), 2);
	assert_int_equal(n_waiting(e, 'g'), 2); /* both have had tokens */
	assert_refused(e, "p", 3, 1, 0);
	fake_open_gate();
	for (int i = 0; i < 8; i++) {
		if (i == 4 || i == 5)
			continue;
		client_finish(&c[i]);
		assert_answer(&c[i], &asks[i]);
	}
	harness_close(e);
}

/* ---- priorities -------------------------------------------------------------------------------- */

static void test_priorities(void **state)
{
	struct ig_engine *e;

	fake.gated = true;
	config.scheduler.max_seqs = 2;
	e = harness_engine(&config);
	send(e, 0, 'a', (struct ask){ .n_prompt = 5, .max_tokens = 40 });
	send(e, 1, 'b', (struct ask){ .n_prompt = 5, .max_tokens = 40 });
	for (fake_wait_at_gate(); !n_running(e, 'b');)
		step();
	send(e, 2, 'l', (struct ask){ .n_prompt = 5, .max_tokens = 5, .priority = 5 });
	send(e, 3, 'u', (struct ask){ .n_prompt = 5, .max_tokens = 5 });
	send(e, 4, 'f', (struct ask){ .n_prompt = 5, .max_tokens = 20, .priority = -1 });
	for (int i = 0; i < 6; i++)
		step();
	/* the first one displaced the younger of two; of those that wait none did */
	assert_int_equal(n_running(e, 'f'), 1);
	assert_int_equal(n_running(e, 'a'), 1);
	assert_int_equal(n_waiting(e, 'b'), 1);
	assert_int_equal(counter(IG_COUNTER_PREEMPTIONS), 1);
	fake_open_gate();
	for (int i = 0; i < 5; i++) {
		client_finish(&c[i]);
		assert_answer(&c[i], &asks[i]);
	}
	/* the order in which they ended */
	int at[128] = { 0 };
	for (int i = 0; i < 5; i++)
		at[(int)ledger_row(i).id[0]] = i;
	assert_int_equal(at['f'], 0);
	assert_true(at['u'] < at['l']);
	assert_true(at['a'] < at['l'] && at['b'] < at['l']);
	harness_close(e);
}

/* Where each row costs, a request has the steps for itself while others have larger numbers. */
static void test_a_smaller_number_is_alone(void **state)
{
	enum { N = 8, EACH = 300, SHORT = 60 };
	struct ig_engine *e;

	fake.row_us = 300;
	e = harness_engine(&config);
	for (int i = 0; i < N; i++)
		send(e, i, 'l', (struct ask){ .n_prompt = 5, .max_tokens = EACH, .priority = 5 });
	wait_for(n_output(e, 'l', N, EACH) > 20 * N);
	int before = n_output(e, 'l', N, EACH);
	send(e, N, 'l', (struct ask){ .n_prompt = 5, .max_tokens = SHORT, .priority = 4 });
	client_finish(&c[N]);
	assert_answer(&c[N], &asks[N]);
	int meanwhile = n_output(e, 'l', N, EACH) - before;
	print_message("# %d tokens of %d others beside %d\n", meanwhile, N, SHORT);
	assert_true(meanwhile < SHORT * N / 4);
	for (int i = 0; i < N; i++) {
		client_finish(&c[i]);
		assert_answer(&c[i], &asks[i]);
	}
	harness_close(e);
}

/* Among the requests of one client that wait, the earlier deadline comes first. */
static void test_deadlines_order_a_client_s_requests(void **state)
{
	int64_t hour = ig_now_ns() + (int64_t)3600 * 1000000000;
	struct ig_engine *e;

	fake.gated = true;
	config.scheduler.max_seqs = 1;
	e = harness_engine(&config);
	send(e, 0, 'x', (struct ask){ .n_prompt = 5, .max_tokens = 5 });
	fake_wait_at_gate();
	send(e, 1, 'n', (struct ask){ .n_prompt = 5, .max_tokens = 5, .salt = 9 });
	send(e, 2, 'l',
	     (struct ask){ .n_prompt = 5, .max_tokens = 5, .salt = 9, .deadline_ns = hour + 1 });
	send(e, 3, 's',
	     (struct ask){ .n_prompt = 5, .max_tokens = 5, .salt = 9, .deadline_ns = hour });
	fake_open_gate();
	for (int i = 0; i < 4; i++)
		client_finish(&c[i]);
	assert_int_equal(ledger_row(1).id[0], 's');
	assert_int_equal(ledger_row(2).id[0], 'l');
	assert_int_equal(ledger_row(3).id[0], 'n');
	harness_close(e);
}

/* ---- deadlines ------------------------------------------------------------------------------- */

/* A moment that is as far off as a busy machine needs: twice as far at each try. */
static int64_t a_while(int try) { return ig_now_ns() + ((int64_t)20000000 << try); }

static void wait_until(int64_t ns) { wait_for(ig_now_ns() >= ns); }

/* One that runs and one that waits.  False: the first had no token before its deadline. */
static bool try_a_deadline(int try)
{
	struct ig_engine *e;
	int64_t end = a_while(try);
	bool had_tokens;
	int n;

	fake.gated = true;
	config.scheduler.max_seqs = 1;
	e = harness_engine(&config);
	send(e, 0, 'r', (struct ask){ .n_prompt = 5, .max_tokens = 400, .deadline_ns = end });
	send(e, 1, 'w', (struct ask){ .n_prompt = 5, .max_tokens = 5, .deadline_ns = end });
	send(e, 2, 'n', (struct ask){ .n_prompt = 5, .max_tokens = 100 });
	fake_wait_at_gate();
	for (n = 0; n < 10; n++)
		step();
	had_tokens = n_running(e, 'r') && n_output(e, 'r', 1, 0) > 0;
	/* the first step that is complete after it is the last one */
	wait_until(end);
	while (n_running(e, 'r') && n < 20) {
		step();
		n++;
	}
	assert_in_range(n, 10, 14);
	fake_open_gate();
	for (int i = 0; i < 3; i++)
		client_finish(&c[i]);
	assert_int_equal(c[0].result.error.code, -ETIME);
	if (had_tokens) {
		assert_in_range(c[0].result.n_output, 1, 14);
		assert_true(c[0].n_text > 0); /* what there was is not lost */
	}
	assert_int_equal(c[1].result.finish, IG_FINISH_ERROR);
	assert_int_equal(c[1].result.error.code, -ETIME);
	assert_int_equal(c[1].result.n_output, 0);
	assert_non_null(strstr(c[1].result.error.text, "deadline"));
	assert_answer(&c[2], &asks[2]);
	harness_close(e);
	return had_tokens;
}

static void test_a_deadline(void **state)
{
	for (int try = 0; !try_a_deadline(try); try++)
		assert_in_range(try, 0, 7);
}

/* One that waits for its reader, and for which no step comes, ends in time, too.  False: it did before it
 * waited. */
static bool try_a_deadline_while_paused(int try)
{
	struct ig_engine *e = harness_engine(&config);
	int64_t end = a_while(try);
	bool was_paused = false;

	send(e, 0, 'p',
	     (struct ask){ .n_prompt = 5, .max_tokens = 400, .ring = 64, .deadline_ns = end });
	wait_for(ig_now_ns() >= end || (was_paused = (int)gauge(IG_GAUGE_REQUESTS_PAUSED) == 1 &&
						     n_in_state(e, 'p', "p")));
	wait_for(gauge(IG_GAUGE_KV_USED_BYTES) == 0); /* it has ended, although nobody reads */
	assert_true(ig_now_ns() >= end);
	/* a reader that makes room says so: text may wait for it */
	wait_for((client_take(&c[0]), ig_engine_resume(e, c[0].gen), c[0].over));
	client_drop(&c[0]);
	assert_int_equal(c[0].result.error.code, -ETIME);
	harness_close(e);
	return was_paused;
}

static void test_a_deadline_while_paused(void **state)
{
	for (int try = 0; !try_a_deadline_while_paused(try); try++)
		assert_in_range(try, 0, 7);
}

/* ---- turns ------------------------------------------------------------------------------------ */

static struct ig_seq *new_seq(struct ig_client_list *list, const char *client, uint32_t weight)
{
	struct ig_origin *o =
		ig_origin_create("r", "test", client, &(struct ig_principal){ .weight = weight });
	struct ig_seq *s = calloc(1, sizeof *s);

	assert_non_null(o);
	assert_non_null(s);
	s->client = ig_client_create(o);
	s->origin = o;
	assert_non_null(s->client);
	ig_client_join(list, s);
	ig_client_arrive(s);
	ig_client_count_running(s->client, 1);
	return s;
}

static void drop_seq(struct ig_seq *s)
{
	ig_client_count_running(s->client, -1);
	ig_client_drop(s->client);
	ig_origin_unref(s->origin);
	free(s);
}

/* Clients have turns by the rows of their prompts and their weights; one that comes later has no
 * claim to what others had before. */
static void test_turns(void **state)
{
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct ig_client_list list;
	struct ig_seq *a, *b, *again, *late;

	ig_client_list_init(&list, &lock);
	a = new_seq(&list, "a", 1);
	b = new_seq(&list, "b", 3);
	again = new_seq(&list, "a", 1);

	assert_ptr_equal(again->client, a->client);
	ig_client_serve(a, 4000);
	assert_true(ig_client_turn(a) == ig_client_turn(b));
	ig_client_serve(again, 4000); /* both are the client's */
	assert_true(ig_client_turn(a) > ig_client_turn(b));
	ig_client_serve(b, 12000);
	assert_true(ig_client_turn(a) > ig_client_turn(b));
	ig_client_serve(b, 12000);
	assert_true(ig_client_turn(a) == ig_client_turn(b));
	ig_client_serve(a, 8000);
	late = new_seq(&list, "late", 1);
	assert_true(ig_client_turn(late) == ig_client_turn(b));
	drop_seq(a);
	drop_seq(again);
	drop_seq(b);
	drop_seq(late);
	assert_true(TAILQ_EMPTY(&list.all));
}

int main(int argc, char **argv)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_a_greedy_client),
		T(test_rows_that_cost_nothing),
		T(test_places),
		T(test_places_by_weight),
		T(test_blocks),
		T(test_nobody_waits_for_what_is_held),
		T(test_out_and_in_again),
		T(test_queue),
		T(test_queue_by_weight),
		T(test_what_keeps_its_place_in_the_queue),
		T(test_priorities),
		T(test_a_smaller_number_is_alone),
		T(test_deadlines_order_a_client_s_requests),
		T(test_a_deadline),
		T(test_a_deadline_while_paused),
		T(test_turns),
	};

	if (argc > 1)
		harness_run_ahead = "on";
	return cmocka_run_group_tests(tests, NULL, NULL);
}
