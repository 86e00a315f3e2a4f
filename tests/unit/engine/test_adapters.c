/*
 * test_adapters.c: requests to a model and to its adapters in one batch, what they share of the cache
 * and of its files on disk (nothing), adapters that come, change and go by a new configuration, ones
 * that can't be read, and each allocation that fails.  The fake device knows the adapter of each
 * place in the cache, so a row that reads another one's is a breach.
 */
#include "harness.h"

#include "base/json.h"

#include <ftw.h>

static struct ig_config config;
static char folder[64];
static const char *const only_good[] = { "good" };

/* Adapters of the configuration's model, by their paths; their names are one, two, … */
static void use(const char *const *paths, size_t n)
{
	static const char *const names[] = { "one", "two", "three" };
	struct ig_config_model *m = &config.models[0];

	for (size_t i = 0; i < m->n_adapters; i++) {
		free(m->adapters[i].name);
		free(m->adapters[i].path);
	}
	free(m->adapters);
	m->adapters = calloc(n + 1, sizeof *m->adapters);
	assert_non_null(m->adapters);
	for (size_t i = 0; i < n; i++) {
		m->adapters[i].name = strdup(names[i]);
		m->adapters[i].path = strdup(paths[i]);
		m->adapters[i].scale_percent = 100;
	}
	m->n_adapters = n;
}

#define USE(...)                                                                                   \
	do {                                                                                       \
		const char *const paths_[] = { __VA_ARGS__ };                                      \
		use(paths_, sizeof paths_ / sizeof *paths_);                                       \
	} while (0)

static int setup(void **state)
{
	fake_reset();
	harness_config(&config, only_good, 1);
	USE("/first", "/second");
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	return remove(path);
}

static int teardown(void **state)
{
	fake.fail_any_at = 0;
	harness_abandon();
	use(NULL, 0);
	free(config.models[0].adapters);
	config.models[0].adapters = NULL;
	harness_config_finish(&config);
	if (folder[0])
		nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	folder[0] = 0;
	return 0;
}

static const struct ask asks[] = {
	{ .model = "good", .kind = "good", .n_prompt = 100, .max_tokens = 60, .seed = 1 },
	{ .model = "good:one", .kind = "good:1", .n_prompt = 100, .max_tokens = 60, .seed = 1 },
	{ .model = "good:two", .kind = "good:2", .n_prompt = 100, .max_tokens = 60, .seed = 1 },
};

static void finish(struct client *c, const struct ask *a)
{
	static char want[65536];

	client_finish(c);
	expected(a, want, sizeof want);
	assert_string_equal(c->text, want);
}

/* The answer is right; how much of the prompt was cached. */
static int32_t answer(struct ig_engine *e, const struct ask *a)
{
	static struct client c;

	client_ask(&c, e, a);
	finish(&c, a);
	return c.result.n_cached;
}

/* ---- batches, and the cache --------------------------------------------------------------- */

static void test_one_batch(void **state)
{
	static struct client c[3];
	struct ig_engine *e;

	fake.gated = true;
	e = harness_engine(&config);
	for (int i = 0; i < 3; i++)
		client_ask(&c[i], e, &asks[i]);
	fake_wait_at_gate();
	fake_open_gate();
	for (int i = 0; i < 3; i++) {
		finish(&c[i], &asks[i]);
		/* all at once, with the same prompt: nothing was shared */
		assert_int_equal(c[i].result.n_cached, 0);
	}
	assert_string_not_equal(c[0].text, c[1].text);
	assert_string_not_equal(c[1].text, c[2].text);
	assert_int_equal(fake.max_seqs_seen, 3);
	assert_string_equal(ledger_row(0).model, "good");
	harness_close(e);
}

static void test_cache(void **state)
{
	struct ig_engine *e = harness_engine(&config);

	for (int i = 0; i < 3; i++)
		assert_int_equal(answer(e, &asks[i]), 0);
	for (int i = 0; i < 3; i++)
		assert_in_range(answer(e, &asks[i]), 96, 99);
	assert_int_equal(fake.n_programs, 1);
	harness_close(e);
}

static void test_names(void **state)
{
	struct ig_engine *e = harness_engine(&config);
	const struct ig_engine_model *m;
	struct ig_model_status st[4];
	struct ig_error err = { 0 };

	assert_int_equal(ig_engine_models(e, st, 4), 3);
	assert_string_equal(st[1].name, "good:one");
	assert_string_equal(st[1].file, "/first");
	assert_true(st[1].is_adapter && !st[1].is_default && !st[0].is_adapter);
	assert_true(st[0].weight_bytes && !st[1].weight_bytes && !st[2].weight_bytes);
	assert_true(st[0].n_loads == 1 && !st[1].n_loads);
	assert_int_equal(ig_engine_take_model(e, "good:three", NULL, NULL, &m, &err), -ENOENT);
	assert_string_equal(err.text,
			    "no model is named \"good:three\"; known: good, good:one, good:two");
	assert_int_equal(ig_engine_take_model(e, "good:two", NULL, NULL, &m, &err), 0);
	assert_string_equal(m->name, "good:two");
	ig_engine_release_model(m);
	harness_close(e);
}

/* ---- a new configuration ------------------------------------------------------------------ */

static uint32_t n_loads(struct ig_engine *e)
{
	struct ig_model_status st[1];

	ig_engine_models(e, st, 1);
	return st[0].n_loads;
}

static void test_reload(void **state)
{
	struct ask again = asks[1];
	struct ig_error err = { 0 };
	struct ig_engine *e = harness_engine(&config);
	const struct ig_engine_model *held;

	assert_int_equal(ig_engine_take_model(e, "good:one", NULL, NULL, &held, &err), 0);
	assert_int_equal(answer(e, &asks[1]), 0);
	ig_engine_reload(e, &config); /* nothing changed */
	assert_in_range(answer(e, &asks[1]), 96, 99);
	assert_int_equal(n_loads(e), 1);

	USE("/third", "/second"); /* other numbers: its cache is another */
	ig_engine_reload(e, &config);
	wait_for(n_loads(e) == 2);
	assert_int_equal(answer(e, &asks[1]), 0);
	again.held = held; /* what a request holds is what it was */
	assert_in_range(answer(e, &again), 96, 99);
	ig_engine_release_model(held);

	config.models[0].adapters[0].scale_percent = 50;
	ig_engine_reload(e, &config);
	wait_for(n_loads(e) == 3);
	assert_int_equal(answer(e, &asks[1]), 0);

	USE("/third");
	ig_engine_reload(e, &config);
	wait_for(n_loads(e) == 4);
	err = (struct ig_error){ 0 };
	assert_int_equal(ig_engine_take_model(e, "good:two", NULL, NULL, &held, &err), -ENOENT);
	assert_int_equal(answer(e, &asks[0]), 0);

	USE("/third", "/bad"); /* what is loaded stays; the new one says why it is not there */
	ig_engine_reload(e, &config);
	wait_for(ig_engine_take_model(e, "good:two", NULL, NULL, &held, &err) == -EIO &&
		 strstr(err.text, "adapter two: /bad: tensor \"x\" is wrong"));
	assert_in_range(answer(e, &asks[0]), 96, 99);
	assert_int_equal(n_loads(e), 4);
	harness_close(e);
}

static void test_bad_at_start(void **state)
{
	struct ig_engine_deps deps = { .config = &config,
				       .ledger = (struct ig_ledger *)&fake,
				       .metrics = (struct ig_metrics *)&fake };
	struct ig_error err = { 0 };
	struct ig_engine *e = NULL;

	USE("/first", "/bad");
	assert_int_equal(ig_engine_create(&deps, &e, &err), -EINVAL);
	assert_null(e);
	assert_string_equal(err.text, "model good: adapter two: /bad: tensor \"x\" is wrong");
}

/* ---- files of computed blocks ------------------------------------------------------------- */

static bool says(struct ig_engine *e, const char *text)
{
	struct ig_strbuf b = { 0 };
	struct ig_json_writer w = { .out = &b };

	ig_engine_describe(e, &w);
	bool found = ig_strbuf_ok(&b) && strstr(b.data, text);
	ig_strbuf_finish(&b);
	return found;
}

static struct ig_engine *engine_with_files(void)
{
	struct ig_engine *e = harness_engine(&config);

	wait_for(says(e, "\"ready\":true"));
	return e;
}

static void test_files(void **state)
{
	struct ig_engine *e;

	snprintf(folder, sizeof folder, "/tmp/ingot-kv-XXXXXX");
	assert_non_null(mkdtemp(folder));
	free(config.kvcache.disk);
	config.kvcache.disk = strdup(folder);
	config.kvcache.disk_size = 64 << 20;
	config.kvcache.slab = 4 * SLAB_BYTES;
	fake.said_row_us = 10000; /* files are faster, however busy the machine is */
	e = engine_with_files();
	assert_int_equal(answer(e, &asks[1]), 0);
	harness_close(e);
	e = engine_with_files();
	assert_int_equal(answer(e, &asks[0]), 0);
	assert_int_equal(answer(e, &asks[2]), 0);
	assert_int_equal(answer(e, &asks[1]), 96);
	harness_close(e);

	/* a file knows the numbers, not the name */
	USE("/third", "/first");
	e = engine_with_files();
	assert_int_equal(answer(e, &asks[1]), 0);
	harness_close(e);
}

/* ---- without memory ----------------------------------------------------------------------- */

#ifdef WRAP_MALLOC
static void test_no_memory(void **state)
{
	int n;

	for (n = 1;; n++) {
		struct ig_engine_deps deps = { .config = &config,
					       .ledger = (struct ig_ledger *)&fake,
					       .metrics = (struct ig_metrics *)&fake };
		struct ig_engine *e = NULL;
		struct ig_error err = { 0 };
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
			assert_int_equal(fake.n_mapped, 0);
			assert_int_equal(fake.n_open, 0);
			continue;
		}
		assert_int_equal(answer(e, &asks[1]), 0);
		ig_engine_destroy(e);
		if (!failed)
			break;
	}
	assert_true(n > 60);
}
#endif

int main(int argc, char **argv)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_one_batch), T(test_cache),	 T(test_names),
		T(test_reload),	   T(test_bad_at_start), T(test_files),
#ifdef WRAP_MALLOC
		T(test_no_memory),
#endif
	};

	harness_run_ahead = argc > 1 ? "on" : "off";
	return cmocka_run_group_tests_name("adapters", tests, NULL, NULL);
}
