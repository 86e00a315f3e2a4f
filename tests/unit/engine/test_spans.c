/*
 * test_spans.c: prompts with rows that are no token's, as an image's would be: what the model reads of them is
 * theirs, no step cuts them, prefixes with the same ones are found and with others not, and what can't be is
 * refused.  The fake driver reports what a step must not have (fake_outside.h).
 */
#include "harness.h"

#include "fake_outside.h"

#define N 10
#define MAX_SPANS 4
#define LENGTH 200

static struct ig_config config;
static const char *const models[] = { "good", "groups", "window", "state" };
static unsigned seed = 1;

static int rnd(int n)
{
	seed = seed * 1664525u + 1013904223u;
	return (int)((seed >> 16) % (unsigned)n);
}

static int setup(void **state)
{
	fake_reset();
	fake.takes_outside = true;
	harness_config(&config, models, 1);
	return 0;
}

static int teardown(void **state)
{
	harness_abandon();
	harness_config_finish(&config);
	return 0;
}

/* A prompt with images. */
struct made {
	int32_t prompt[LENGTH]; /* as the model reads it */
	struct ig_span spans[MAX_SPANS];
	float rows[LENGTH][FAKE_OUTSIDE_WIDTH];
	int32_t positions[LENGTH][IG_ROPE_AXES];
	int32_t turned, end; /* where the text goes on behind the last image */
	struct ask ask;
};

/* n tokens of a text. */
static void begin(struct made *m, int32_t n, unsigned text)
{
	*m = (struct made){
		.ask = { .prompt = m->prompt, .n_prompt = n, .max_tokens = 20, .spans = m->spans }
	};
	make_prompt(m->prompt, n, text);
}

/* An image of n rows that differ with `content`, in two columns if it has positions of its own. */
static void add_image(struct made *m, int32_t first, int32_t n, int32_t content, bool has_positions)
{
	struct ig_span *x = &m->spans[m->ask.n_spans++];

	*x = (struct ig_span){
		.first = first, .n = n, .rows = m->rows[first], .both_ways = content % 2
	};
	m->turned += first - m->end;
	for (int32_t i = 0; i < n; i++) {
		int32_t *at = m->positions[first + i];
		at[0] = 0;
		at[1] = i / 2;
		at[2] = i % 2;
		m->prompt[first + i] = 1000 + content * 1000 + i;
		m->rows[first + i][0] = (float)m->prompt[first + i];
		m->rows[first + i][1] = (float)i;
		m->rows[first + i][2] = (float)n;
		m->rows[first + i][3] = (float)(m->turned + (has_positions ? i / 2 : i));
	}
	if (has_positions) {
		x->positions = m->positions[first];
		x->n_positions = (n + 1) / 2 + 1;
	}
	m->turned += has_positions ? x->n_positions : n;
	m->end = first + n;
}

static struct client client;

/* Ask, and return how many tokens of the prompt were cached. */
static int ask(struct ig_engine *e, struct made *m)
{
	char text[65536];

	client_ask(&client, e, &m->ask);
	client_finish(&client);
	expected(&m->ask, text, sizeof text);
	assert_string_equal(client.text, text);
	return client.result.n_cached;
}

/* ---- any requests side by side ------------------------------------------------------------- */

static void one_round(bool small_arena)
{
	static struct client c[N];
	static struct made m[N];
	char text[65536];
	struct ig_engine *e;
	const int n_models = sizeof models / sizeof *models;

	harness_config_finish(&config);
	harness_speculation = rnd(2) ? "on" : "off";
	harness_config(&config, models, (size_t)n_models);
	harness_speculation = "off";
	free(config.models[0].path);
	config.models[0].path = strdup("mtp:good");
	fake.memory = rnd(2) * 2; /* texts repeat themselves */
	for (int i = 0; i < n_models; i++)
		config.models[i].context = 320;
	config.kvcache.prefix_cache = rnd(8) > 0;
	config.kvcache.arena = (uint64_t)(small_arena ? 24 + rnd(8) : 400) * SLAB_BYTES;
	config.scheduler.max_batch_tokens = (uint32_t)(30 + rnd(100));
	config.scheduler.max_seqs = (uint32_t)(1 + rnd(10));
	config.scheduler.prefill_chunk = (uint32_t)(20 + rnd(60));
	fake.split_rows = (uint32_t)(rnd(2) * 7);
	e = harness_engine(&config);
	for (int turn = 0; turn < 3; turn++) {
		for (int i = 0; i < N; i++) {
			int32_t at = rnd(60), n = 100 + rnd(LENGTH - 100);
			begin(&m[i], n, (unsigned)rnd(3));
			for (int k = rnd(MAX_SPANS + 1); k > 0; k--) {
				int32_t rows = 1 + rnd(20);
				if (at + rows >= n)
					break;
				add_image(&m[i], at, rows, rnd(4), rnd(2));
				at += rows + rnd(40);
			}
			m[i].ask.model = models[rnd(n_models)];
			m[i].ask.max_tokens = 1 + rnd(60);
			m[i].ask.seed = (unsigned)i;
			client_ask(&c[i], e, &m[i].ask);
		}
		for (int i = 0; i < N; i++) {
			if (i == 3)
				ig_engine_cancel(e, c[i].gen, "client_gone");
			client_finish(&c[i]);
			expected(&m[i].ask, text, sizeof text);
			if (i != 3)
				assert_string_equal(c[i].text, text);
		}
	}
	wait_for(gauge(IG_GAUGE_KV_USED_BYTES) == 0);
	harness_close(e);
}

static void test_same_tokens(void **state)
{
	for (int i = 0; i < 16; i++)
		one_round(i % 2);
	assert_true(counter(IG_COUNTER_PREEMPTIONS) > 0);
}

/* ---- prefixes -------------------------------------------------------------------------------- */

/* The same image is found, another one in its place is not, and no match ends within one. */
static void test_prefixes(void **state)
{
	static struct made m, other;
	struct ig_engine *e = harness_engine(&config);

	begin(&m, 100, 1);
	add_image(&m, 25, 20, 2, false);
	assert_int_equal(ask(e, &m), 0);
	assert_int_equal(ask(e, &m), 99);
	/* another image: the text before it, although the ids of all rows are the same */
	begin(&other, 100, 1);
	add_image(&other, 25, 20, 4, false);
	assert_int_equal(ask(e, &other), 25);
	/* the same rows, turned otherwise */
	begin(&other, 100, 1);
	add_image(&other, 25, 20, 2, true);
	assert_int_equal(ask(e, &other), 25);
	/* as many rows of the same, that end otherwise, and a prompt that ends with the image */
	begin(&other, 100, 1);
	add_image(&other, 25, 18, 2, false);
	assert_int_equal(ask(e, &other), 25);
	begin(&other, 45, 1);
	add_image(&other, 25, 20, 2, false);
	assert_int_equal(ask(e, &other), 25);
	/* the image, and another text behind it */
	begin(&other, 100, 1);
	add_image(&other, 25, 20, 2, false);
	for (int32_t i = 70; i < 100; i++)
		other.prompt[i] = i % 50;
	assert_int_equal(ask(e, &other), 70);
	/* no image at all: ids are those of the rows */
	begin(&other, 100, 1);
	for (int32_t i = 25; i < 45; i++)
		other.prompt[i] = FAKE_OUTSIDE_ID;
	assert_int_equal(ask(e, &other), 25);
	harness_close(e);
}

/* Of more images than are remembered none is taken for another. */
static void test_many_images(void **state)
{
	static struct made m;
	struct ig_engine *e = harness_engine(&config);

	for (int i = 0; i < 4000; i++) {
		begin(&m, 20, 1);
		m.ask.max_tokens = 1;
		m.ask.prefill_only = i < 3990; /* quick */
		add_image(&m, 2, 4, i, false);
		client_ask(&client, e, &m.ask);
		client_finish(&client);
		assert_true(client.result.n_cached <= 2);
		if (i >= 3990) {
			char text[100];
			expected(&m.ask, text, sizeof text);
			assert_string_equal(client.text, text);
		}
	}
	harness_close(e);
}

/* ---- rounds ---------------------------------------------------------------------------------- */

/* An image as long as a step has its turn beside streams, whose rows leave it no room, and so has a long text
 * after it. */
static void test_room(void **state)
{
	static struct client streams[6], c;
	static struct made m;
	char text[65536];
	struct ig_engine *e;

	config.scheduler.max_batch_tokens = config.scheduler.prefill_chunk = 24;
	config.scheduler.max_seqs = 8;
	fake.split_rows = 8;
	e = harness_engine(&config);
	for (int i = 0; i < 6; i++)
		client_ask(&streams[i], e,
			   &(struct ask){ .n_prompt = 5,
					  .prompt_seed = (unsigned)i + 1,
					  .seed = 3,
					  .max_tokens = 300 });
	begin(&m, 150, 1);
	add_image(&m, 10, 24, 1, true);
	add_image(&m, 34, 24, 2, false);
	client_ask(&c, e, &m.ask);
	client_finish(&c);
	expected(&m.ask, text, sizeof text);
	assert_string_equal(c.text, text);
	assert_true(atomic_load(&fake.max_rows_seen) <= 24);
	for (int i = 0; i < 6; i++)
		client_finish(&streams[i]);
	harness_close(e);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void expect_refused(struct ig_engine *e, const struct ask *a, int code, const char *what)
{
	struct ig_error err = { 0 };

	assert_int_equal(client_try(&client, e, a, &err), code);
	if (!strstr(err.text, what))
		fail_msg("\"%s\" does not say \"%s\"", err.text, what);
}

static void test_refusals(void **state)
{
	static struct made m;
	struct ig_engine *e;

	config.scheduler.max_batch_tokens = 64;
	config.scheduler.prefill_chunk = 20;
	e = harness_engine(&config);
	begin(&m, 100, 1);
	add_image(&m, 10, 21, 0, true);
	expect_refused(e, &m.ask, -E2BIG,
		       "are 21, which must be in one step; a step of good has 20");
	begin(&m, 100, 1);
	add_image(&m, 10, 20, 0, true);
	assert_int_equal(ask(e, &m), 0);
	m.spans[0].first = 81;
	expect_refused(e, &m.ask, -EINVAL, "20 rows from 81 on, of a prompt of 100");
	m.spans[0].first = -1;
	expect_refused(e, &m.ask, -EINVAL, "rows from -1 on");
	m.spans[0].first = 10;
	m.positions[12][1] = -1;
	expect_refused(e, &m.ask, -EINVAL, "row 2 from outside is at position -1");
	m.positions[12][1] = 0;
	m.spans[0].n_positions = 1 << 24;
	expect_refused(e, &m.ask, -EINVAL, "take 16777216 positions");
	m.spans[0].n_positions = 1 << 23;
	expect_refused(e, &m.ask, -E2BIG, "the most is 8388608");
	m.spans[0].n_positions = 0;
	m.spans[0].rows = NULL;
	expect_refused(e, &m.ask, -EINVAL, "rows from outside 0");
	m.spans[0].rows = m.rows[10];
	m.ask.n_spans = 2; /* it begins in the first one */
	m.spans[1] = m.spans[0];
	m.spans[1].first = 29;
	expect_refused(e, &m.ask, -EINVAL, "rows from outside 1 have 20 rows from 29 on");
	harness_close(e);
}

/* Those of another prompt; two requests may share them. */
static void test_shared(void **state)
{
	static struct client c[2];
	static struct made m;
	char text[65536];
	struct ig_engine *e = harness_engine(&config);
	const struct ig_engine_model *model;
	struct ig_spans *spans = NULL;
	struct ig_error err = { 0 };
	int32_t ids[100];

	begin(&m, 100, 1);
	add_image(&m, 10, 8, 0, false);
	memcpy(ids, m.prompt, sizeof ids);
	for (int i = 10; i < 18; i++)
		ids[i] = FAKE_OUTSIDE_ID;
	assert_int_equal(ig_engine_take_model(e, "good", NULL, NULL, &model, &err), 0);
	assert_int_equal(ig_spans_create(model, ids, 100, m.spans, 1, &spans, &err), 0);
	memset(m.rows, 0, sizeof m.rows); /* they are copied */
	for (int i = 0; i < 2; i++) {
		struct ig_gen_spec spec = { .id = "shared",
					    .model = model,
					    .prompt = ids,
					    .n_prompt = 100 - i,
					    .spans = spans,
					    .n_top = -1,
					    .sampling = { .temperature = 1,
							  .top_p = 1,
							  .max_tokens = 20,
							  .seed = (uint64_t)i } };
		for (int k = 0; k < 2; k++) {
			spec.stream = ig_stream_create(65536, NULL, NULL);
			spec.origin = ig_origin_create("req_1", "test", "127.0.0.1",
						       &(struct ig_principal){ 0 });
			c[k] = (struct client){ .stream = spec.stream };
			int rc = ig_engine_submit(e, &spec, &c[k].gen, &err);
			ig_origin_unref(spec.origin);
			if (!i) {
				assert_int_equal(rc, 0);
				continue;
			}
			assert_int_equal(rc, -EINVAL);
			assert_non_null(strstr(err.text, "another prompt"));
			ig_stream_unref(spec.stream);
			ig_stream_unref(spec.stream);
		}
		for (int k = 0; k < 2 && !i; k++) {
			client_finish(&c[k]);
			expected(&m.ask, text, sizeof text);
			assert_string_equal(c[k].text, text);
		}
	}
	ig_spans_unref(spans);
	ig_engine_release_model(model);
	harness_close(e);
}

/* A model, or a driver, that has no place for them. */
static void test_no_place(void **state)
{
	static struct made m;
	struct ig_engine *e;

	fake.takes_outside = false;
	e = harness_engine(&config);
	begin(&m, 100, 1);
	add_image(&m, 10, 8, 0, false);
	expect_refused(e, &m.ask, -ENOTSUP, "good has no place for rows from outside");
	harness_close(e);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_same_tokens, setup, teardown),
		cmocka_unit_test_setup_teardown(test_prefixes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many_images, setup, teardown),
		cmocka_unit_test_setup_teardown(test_room, setup, teardown),
		cmocka_unit_test_setup_teardown(test_refusals, setup, teardown),
		cmocka_unit_test_setup_teardown(test_shared, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_place, setup, teardown),
	};

	if (argc > 1 && !strcmp(argv[1], "ahead"))
		harness_run_ahead = "on";
	return cmocka_run_group_tests(tests, NULL, NULL);
}
