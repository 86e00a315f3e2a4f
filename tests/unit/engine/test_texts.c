/*
 * test_texts.c: a model without a cache: the results of all texts of a request, many of them in a step,
 * beside requests of other clients and beside a chat; cancelled, refused, over its deadline.
 */
#include "harness.h"

#define MAX_TEXTS 300

static struct ig_config config;
static const char *const two[] = { "good", "texts" };
static struct client c[8];

static int setup(void **state)
{
	fake_reset();
	harness_config(&config, two, 2);
	return 0;
}

static int teardown(void **state)
{
	harness_abandon();
	harness_config_finish(&config);
	return 0;
}

/* n texts of 1 to `longest` tokens. */
struct texts {
	struct ig_text list[MAX_TEXTS];
	int32_t ids[MAX_TEXTS * 64], n_texts, n_ids;
	struct ig_vectors *vectors;
};

static void make_texts(struct texts *t, int32_t n, int32_t longest, unsigned seed)
{
	t->n_texts = n;
	t->n_ids = 0;
	for (int32_t i = 0; i < n; i++) {
		t->list[i].n_ids = 1 + (int32_t)(seed + (unsigned)i * 7) % longest;
		t->list[i].second = i % 3 ? t->list[i].n_ids : t->list[i].n_ids / 2;
		t->n_ids += t->list[i].n_ids;
	}
	assert_in_range(t->n_ids, n, MAX_TEXTS * 64);
	make_prompt(t->ids, t->n_ids, seed);
	t->vectors = ig_vectors_create((uint32_t)n, FAKE_COLUMNS);
	assert_non_null(t->vectors);
}

static struct ask ask_for(const struct texts *t, const char *id, const char *client)
{
	return (struct ask){ .model = "texts",
			     .id = id,
			     .client = client,
			     .prompt = t->ids,
			     .n_prompt = t->n_ids,
			     .texts = t->list,
			     .n_texts = t->n_texts,
			     .vectors = t->vectors };
}

static void expect_results(const struct texts *t, const struct client *got)
{
	const int32_t *ids = t->ids;

	assert_int_equal(got->result.finish, IG_FINISH_STOP);
	assert_int_equal(got->result.n_prompt, t->n_ids);
	assert_int_equal(got->result.n_output, 0);
	for (int32_t i = 0; i < t->n_texts; i++) {
		const struct ig_text *x = &t->list[i];
		float want[FAKE_COLUMNS];
		int32_t types[FAKE_CONTEXT] = { 0 };

		for (int32_t k = x->second; k < x->n_ids; k++)
			types[k] = 1;
		fake_vector(ids, types, x->n_ids, want);
		assert_memory_equal(t->vectors->rows + (size_t)i * FAKE_COLUMNS, want, sizeof want);
		ids += x->n_ids;
	}
}

static struct texts many, few, other;

/* A request's texts are in as few steps as their rows allow, and leave one row in the ledger. */
static void test_many(void **state)
{
	struct ig_engine *e = harness_engine(&config);

	make_texts(&many, MAX_TEXTS, 40, 1);
	client_ask(&c[0], e, (struct ask[]){ ask_for(&many, "m", "a") });
	client_finish(&c[0]);
	expect_results(&many, &c[0]);
	assert_true(atomic_load(&fake.max_seqs_seen) > 2);
	assert_true(atomic_load(&fake.n_steps) < MAX_TEXTS / 2);
	struct ig_ledger_row row = ledger_find("m");
	assert_int_equal(row.n_prompt, many.n_ids);
	assert_int_equal(row.n_output, 0);
	assert_int_equal(row.n_cached, 0);
	assert_int_equal(row.status, 200);
	assert_string_equal(row.model, "texts");
	assert_true(row.prefill_ms >= 0);
	client_drop(&c[0]);
	ig_vectors_unref(many.vectors);
	harness_close(e);
}

/* Others' texts, and a chat, do not wait until a large request is done. */
static void test_beside(void **state)
{
	struct ask chat = {
		.model = "good", .id = "chat", .client = "c", .n_prompt = 40, .max_tokens = 30
	};
	char want[4096];
	struct ig_engine *e;

	fake.row_us = 50;
	e = harness_engine(&config);
	make_texts(&many, MAX_TEXTS, 60, 2);
	make_texts(&few, 3, 9, 3);
	make_texts(&other, 1, 500, 411);
	client_ask(&c[0], e, (struct ask[]){ ask_for(&many, "many", "a") });
	client_ask(&c[1], e, &chat);
	client_ask(&c[2], e, (struct ask[]){ ask_for(&few, "few", "b") });
	client_ask(&c[3], e, (struct ask[]){ ask_for(&other, "other", "d") });
	client_finish(&c[2]);
	client_take(&c[0]);
	assert_false(c[0].over);
	client_finish(&c[1]);
	client_finish(&c[3]);
	client_finish(&c[0]);
	expect_results(&many, &c[0]);
	expect_results(&few, &c[2]);
	expect_results(&other, &c[3]);
	expected(&chat, want, sizeof want);
	assert_string_equal(c[1].text, want);
	for (int i = 0; i < 4; i++)
		client_drop(&c[i]);
	ig_vectors_unref(many.vectors);
	ig_vectors_unref(few.vectors);
	ig_vectors_unref(other.vectors);
	harness_close(e);
}

/* With one place, a request of another client takes it, and what is done of the first one's texts is
 * not done again. */
static void test_gives_way(void **state)
{
	struct ask first, second;
	struct ig_engine *e;

	config.scheduler.max_seqs = 1;
	fake.row_us = 30;
	e = harness_engine(&config);
	make_texts(&many, MAX_TEXTS, 60, 2);
	make_texts(&few, 2, 9, 3);
	first = ask_for(&many, "many", "a");
	first.priority = 5;
	second = ask_for(&few, "few", "b");
	client_ask(&c[0], e, &first);
	wait_for(atomic_load(&fake.n_steps) > 3);
	client_ask(&c[1], e, &second);
	client_finish(&c[1]);
	client_take(&c[0]);
	assert_false(c[0].over);
	client_finish(&c[0]);
	expect_results(&many, &c[0]);
	expect_results(&few, &c[1]);
	client_drop(&c[0]);
	client_drop(&c[1]);
	ig_vectors_unref(many.vectors);
	ig_vectors_unref(few.vectors);
	harness_close(e);
}

static void test_ends(void **state)
{
	struct ask a;
	struct ig_engine *e;

	fake.row_us = 100;
	e = harness_engine(&config);
	make_texts(&many, MAX_TEXTS, 60, 2);
	client_ask(&c[0], e, (struct ask[]){ ask_for(&many, "gone", "a") });
	wait_for(atomic_load(&fake.n_steps) > 2);
	ig_engine_cancel(e, c[0].gen, "client_gone");
	client_finish(&c[0]);
	assert_int_equal(c[0].result.finish, IG_FINISH_CANCELLED);
	assert_int_equal(ledger_find("gone").status, 499);
	a = ask_for(&many, "late", "a");
	a.deadline_ns = ig_now_ns() + 20000000;
	client_ask(&c[1], e, &a);
	client_finish(&c[1]);
	assert_int_equal(c[1].result.finish, IG_FINISH_ERROR);
	assert_int_equal(c[1].result.error.code, -ETIME);
	client_drop(&c[0]);
	client_drop(&c[1]);
	ig_vectors_unref(many.vectors);
	harness_close(e);
}

/* A step that the device refuses ends its requests; the next one is served. */
static void test_device(void **state)
{
	struct ig_engine *e;

	fake.fail_wait_at = 2;
	e = harness_engine(&config);
	make_texts(&many, MAX_TEXTS, 60, 2);
	client_ask(&c[0], e, (struct ask[]){ ask_for(&many, "a", "a") });
	client_finish(&c[0]);
	assert_int_equal(c[0].result.finish, IG_FINISH_ERROR);
	client_ask(&c[1], e, (struct ask[]){ ask_for(&many, "b", "a") });
	client_finish(&c[1]);
	expect_results(&many, &c[1]);
	client_drop(&c[0]);
	client_drop(&c[1]);
	ig_vectors_unref(many.vectors);
	harness_close(e);
}

static void test_refused(void **state)
{
	struct ig_engine *e = harness_engine(&config);
	struct ig_error err = { 0 };
	struct ask a;

	make_texts(&few, 3, 9, 3);
	/* text of a model of vectors, and vectors of one of text */
	a = (struct ask){ .model = "texts", .n_prompt = 5, .max_tokens = 3 };
	assert_int_equal(client_try(&c[0], e, &a, &err), -EINVAL);
	a = ask_for(&few, "x", "a");
	a.model = "good";
	assert_int_equal(client_try(&c[0], e, &a, &err), -EINVAL);
	assert_non_null(strstr(err.text, "no model of embeddings"));
	/* a text without tokens, one beyond the context, and tokens that are no text's */
	few.list[1].n_ids = 0;
	a = ask_for(&few, "x", "a");
	assert_int_equal(client_try(&c[0], e, &a, &err), -EINVAL);
	few.list[1].n_ids = FAKE_CONTEXT + 1;
	assert_int_equal(client_try(&c[0], e, &a, &err), -E2BIG);
	few.list[1].n_ids = few.list[1].second = 1;
	a.n_prompt = few.list[0].n_ids + few.list[2].n_ids + 2;
	assert_int_equal(client_try(&c[0], e, &a, &err), -EINVAL);
	ig_vectors_unref(few.vectors);
	harness_close(e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_many, setup, teardown),
		cmocka_unit_test_setup_teardown(test_beside, setup, teardown),
		cmocka_unit_test_setup_teardown(test_gives_way, setup, teardown),
		cmocka_unit_test_setup_teardown(test_ends, setup, teardown),
		cmocka_unit_test_setup_teardown(test_device, setup, teardown),
		cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
	};

	return cmocka_run_group_tests_name("texts", tests, NULL, NULL);
}
