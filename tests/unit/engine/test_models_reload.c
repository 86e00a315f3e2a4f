/*
 * test_models_reload.c: models that are swapped, added and removed by a new configuration, also while
 * they load.
 */
#include "models_case.h"

#include <sys/stat.h>

static char folder[] = "/tmp/ingot-test-models-XXXXXX";

static char *file_at(const char *name)
{
	char path[128];

	snprintf(path, sizeof path, "%s/%s", folder, name);
	return strdup(path);
}

/* A file, replaced as by rename. */
static void write_file(const char *path, const char *kind)
{
	char other[160];
	FILE *f;

	snprintf(other, sizeof other, "%s.new", path);
	f = fopen(other, "w");
	assert_non_null(f);
	fprintf(f, "%s\n", kind);
	fclose(f);
	assert_int_equal(rename(other, path), 0);
}

/* Models "a" and "b" with files of their own. */
static void use_files(char *paths[2])
{
	USE("a", "b");
	for (int i = 0; i < 2; i++) {
		paths[i] = file_at(models_config.models[i].name);
		write_file(paths[i], "good");
		models_set(&models_config.models[i].path, paths[i]);
	}
}

static void drop_files(char *paths[2])
{
	for (int i = 0; i < 2; i++) {
		unlink(paths[i]);
		free(paths[i]);
	}
}

static void test_swap(void **state)
{
	struct ask a = {
		.model = "a", .kind = "good", .n_prompt = 20, .max_tokens = 200, .seed = 5
	};
	struct ig_engine *e;
	static struct client c;
	char *paths[2];

	use_files(paths);
	fake.delay_us = 2000;
	e = harness_engine(&models_config);
	client_ask(&c, e, &a);
	wait_for(fake.n_steps > 3);
	write_file(paths[0], "good2");
	ig_engine_reload(e, &models_config);
	wait_for(models_status(e, "a").n_loads == 2);
	assert_int_equal(models_state(e, "a"), IG_MODEL_READY);
	assert_int_equal(fake.n_programs, 3);
	models_assert_answers(e, "a", "good2");
	client_take(&c);
	assert_false(c.over);
	client_finish(&c);
	models_assert_answer(&c, &a); /* all of it by the old one */
	wait_for(fake.n_programs == 2);
	/* nothing has changed: nothing happens */
	int n_opens = fake.n_opens;
	ig_engine_reload(e, &models_config);
	usleep(30000);
	assert_int_equal(fake.n_opens, n_opens);
	/* another context of the same file */
	models_config.models[0].context = 100;
	ig_engine_reload(e, &models_config);
	wait_for(models_status(e, "a").n_loads == 3);
	assert_int_equal(models_status(e, "a").n_context, 100);
	assert_int_equal(models_status(e, "b").n_loads, 1);
	/* another type of its cache; that of all is not reloadable */
	assert_true(fake.k_dtype == IG_F16 && fake.v_dtype == IG_F16);
	models_config.models[0].kv_dtype = (char *)"f32";
	ig_engine_reload(e, &models_config);
	wait_for(models_status(e, "a").n_loads == 4);
	assert_true(fake.k_dtype == IG_F32 && fake.v_dtype == IG_F32);
	models_config.models[0].kv_dtype = (char *)"auto";
	ig_engine_reload(e, &models_config);
	wait_for(models_status(e, "a").n_loads == 5);
	assert_true(fake.k_dtype == IG_F16 && fake.v_dtype == IG_F16);
	/* heads of 8 have no groups of 32 */
	models_config.models[0].kv_dtype = (char *)"q8_0/f16";
	ig_engine_reload(e, &models_config);
	wait_for(
		strstr(models_status(e, "a").error, "keys in q8_0 (kvcache.dtype, or the model's"));
	assert_int_equal(models_state(e, "a"), IG_MODEL_READY);
	models_config.models[0].kv_dtype = NULL;
	harness_close(e);
	drop_files(paths);
}

/* Without space for both, the old one is unloaded first, once its requests have ended. */
static void test_swap_without_memory(void **state)
{
	struct ask a = {
		.model = "a", .kind = "w20", .n_prompt = 20, .max_tokens = 150, .seed = 5
	};
	const struct ig_engine_model *m;
	struct ig_error err;
	struct ig_engine *e;
	static struct client c;
	char *paths[2];

	use_files(paths);
	write_file(paths[0], "w20");
	models_config.memory.budget = (4 + 20 + 1 + 3) << 20;
	fake.delay_us = 2000;
	e = harness_engine(&models_config);
	client_ask(&c, e, &a);
	wait_for(fake.n_steps > 3);
	write_file(paths[0], "w21");
	ig_engine_reload(e, &models_config);
	wait_for(models_state(e, "a") == IG_MODEL_LOADING);
	atomic_store(&models_n_ready, 0);
	assert_int_equal(models_take(e, "a", &m, &err), -EINPROGRESS);
	models_assert_answers(e, "b", "good"); /* meanwhile */
	assert_int_equal(atomic_load(&models_n_ready), 0);
	assert_int_equal(fake.n_programs, 2);
	wait_for(atomic_load(&models_n_ready) == 1);
	client_finish(&c);
	models_assert_answer(&c, &a);
	models_assert_answers(e, "a", "w21");
	assert_int_equal(fake.n_programs, 2);
	/* while nobody uses it the same happens at once */
	write_file(paths[0], "w19");
	ig_engine_reload(e, &models_config);
	wait_for(models_status(e, "a").n_loads == 3);
	models_assert_answers(e, "a", "w19");
	/* one that does not fit even then: the old one stays */
	write_file(paths[0], "w40");
	ig_engine_reload(e, &models_config);
	wait_for(models_status(e, "a").error[0]);
	assert_non_null(strstr(models_status(e, "a").error,
			       "there is no space for the model a now: it needs "
			       "40.50 MiB"));
	assert_int_equal(models_state(e, "a"), IG_MODEL_READY);
	models_assert_answers(e, "a", "w19");
	harness_close(e);
	drop_files(paths);
}

static void test_swap_for_a_bad_file(void **state)
{
	struct ig_model_status st;
	struct ig_engine *e;
	char *paths[2];
	char text[200];

	use_files(paths);
	e = harness_engine(&models_config);
	write_file(paths[0], "rubbish");
	ig_engine_reload(e, &models_config);
	wait_for(models_status(e, "a").error[0]);
	st = models_status(e, "a");
	snprintf(text, sizeof text, "%s: not a model", paths[0]);
	assert_string_equal(st.error, text);
	assert_int_equal(st.state, IG_MODEL_READY);
	assert_int_equal(counter(IG_COUNTER_MODEL_LOAD_FAILURES), 1);
	models_assert_answers(e, "a", "good");
	write_file(paths[0], "noload"); /* opens, but can't be loaded */
	ig_engine_reload(e, &models_config);
	wait_for(counter(IG_COUNTER_MODEL_LOAD_FAILURES) == 2);
	models_assert_answers(e, "a", "good");
	unlink(paths[0]);
	ig_engine_reload(e, &models_config);
	wait_for(counter(IG_COUNTER_MODEL_LOAD_FAILURES) == 3);
	models_assert_answers(e, "a", "good");
	write_file(paths[0], "good2");
	ig_engine_reload(e, &models_config);
	wait_for(models_status(e, "a").n_loads == 2);
	assert_string_equal(models_status(e, "a").error, "");
	models_assert_answers(e, "a", "good2");
	harness_close(e);
	drop_files(paths);
}

static void test_add_and_remove(void **state)
{
	struct ask a = { .model = "good", .n_prompt = 20, .max_tokens = 200, .seed = 5 };
	const struct ig_engine_model *m;
	struct ig_model_status st[8];
	struct ig_error err;
	struct ig_engine *e;
	static struct client c;

	USE("good", "good2");
	fake.delay_us = 2000;
	e = harness_engine(&models_config);
	client_ask(&c, e, &a);
	wait_for(fake.n_steps > 3);
	USE("nochat", "groups", "good2");
	models_first_use(1);
	ig_engine_reload(e, &models_config);
	assert_int_equal(ig_engine_models(e, st, 8), 3);
	assert_string_equal(st[0].name, "nochat");
	assert_true(st[0].is_default); /* the first, as none is named */
	assert_string_equal(st[2].name, "good2");
	assert_int_equal(models_take(e, "good", &m, &err), -ENOENT);
	wait_for(models_state(e, "nochat") == IG_MODEL_READY);		/* load: start */
	wait_for(models_status(e, "groups").n_context == FAKE_CONTEXT); /* it was looked at */
	assert_int_equal(models_state(e, "groups"), IG_MODEL_UNLOADED);
	models_assert_answers(e, "groups", NULL);
	client_take(&c);
	assert_false(c.over);
	client_finish(&c);
	models_assert_answer(&c, &a); /* its model is no longer configured */
	wait_for(fake.n_programs == 3);
	/* a name that comes back is another entry */
	USE("good", "good2");
	models_set(&models_config.default_model, "good2");
	ig_engine_reload(e, &models_config);
	models_assert_answers(e, "good", NULL);
	assert_int_equal(models_take(e, NULL, &m, &err), 0);
	assert_string_equal(m->name, "good2");
	/* all of them */
	models_use(NULL, 0);
	ig_engine_reload(e, &models_config);
	assert_int_equal(ig_engine_models(e, st, 8), 0);
	assert_int_equal(models_take(e, "good2", &(const struct ig_engine_model *){ NULL }, &err),
			 -ENOENT);
	assert_string_equal(m->name, "good2"); /* held still */
	ig_engine_release_model(m);
	wait_for(fake.n_programs == 0);
	USE("good");
	ig_engine_reload(e, &models_config);
	models_assert_answers(e, NULL, "good");
	harness_close(e);
}

/* Other names of models: behind the prefix, by aliases; changed by a reload. */
static void test_names(void **state)
{
	struct ig_config_alias aliases[] = { { (char *)"claude-haiku-*", (char *)"good2" },
					     { (char *)"claude-*-x", (char *)"good" },
					     { (char *)"goo*", (char *)"good2" } };
	static const struct {
		const char *name, *means; /* NULL: nothing */
	} rows[] = {
		{ "", "good" },
		{ "good", "good" }, /* its own name comes first */
		{ "good2", "good2" },
		{ "goose", "good2" },
		{ "goo", "good2" },
		{ "go", NULL },
		{ "p/good", "good" },
		{ "p/goose", NULL },
		{ "p/", NULL },
		{ "claude-haiku-4", "good2" },
		{ "claude-haiku-4-x", "good2" }, /* the first that matches */
		{ "claude-opus-x", "good" },
		{ "claude--x", "good" },
		{ "claude-x", NULL },
		{ "claude-a-xx", NULL },
		{ "claude-a-x-x", "good" },
	};
	char name[IG_MAX_MODEL_NAME + 1], longest[IG_MAX_MODEL_NAME + 2];
	const struct ig_engine_model *m;
	struct ig_error err;
	struct ig_engine *e;

	USE("good", "good2");
	models_config.aliases = aliases;
	models_config.n_aliases = 3;
	models_set(&models_config.server.model_id_prefix, "p/");
	e = harness_engine(&models_config);
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		bool known = ig_engine_model_name(e, rows[i].name, name);
		if (known != (rows[i].means != NULL) ||
		    strcmp(name, rows[i].means ? rows[i].means : ""))
			fail_msg("%s: %s", rows[i].name, name);
	}
	assert_int_equal(models_take(e, "claude-haiku-4", &m, &err), 0);
	assert_string_equal(m->name, "good2");
	ig_engine_release_model(m);
	/* replies repeat a name, so it has a limit */
	memset(longest, 'e', sizeof longest - 1);
	memcpy(longest, "goo", 3);
	longest[sizeof longest - 1] = 0;
	assert_false(ig_engine_model_name(e, longest, name));
	longest[sizeof longest - 2] = 0;
	assert_true(ig_engine_model_name(e, longest, name));
	aliases[2].model = (char *)"good";
	models_set(&models_config.server.model_id_prefix, "q/");
	ig_engine_reload(e, &models_config);
	assert_true(ig_engine_model_name(e, "goose", name));
	assert_string_equal(name, "good");
	assert_false(ig_engine_model_name(e, "p/good", name));
	assert_int_equal(models_take(e, "p/good", &m, &err), -ENOENT);
	harness_close(e);
	free(models_config.server.model_id_prefix);
	models_config.server.model_id_prefix = NULL;
	models_config.aliases = NULL;
	models_config.n_aliases = 0;
}

/* A bad file of a new entry is reported at once, not at its first request. */
static void test_a_bad_entry(void **state)
{
	struct ig_model_status st;
	struct ig_error err;
	struct ig_engine *e = harness_engine(&models_config);

	USE("good", "noarch");
	models_first_use(1);
	ig_engine_reload(e, &models_config);
	wait_for(models_state(e, "noarch") == IG_MODEL_FAILED);
	st = models_status(e, "noarch");
	assert_string_equal(st.error, "architecture \"strange\" is not known; known: fake");
	assert_int_equal(models_take(e, "noarch", &(const struct ig_engine_model *){ NULL }, &err),
			 -EIO);
	harness_close(e);
}

/* The same at the start: the others are served. */
static void test_a_bad_entry_at_start(void **state)
{
	struct ig_model_status st;
	struct ig_error err;
	struct ig_engine *e;

	USE("good", "noarch");
	models_first_use(1);
	e = harness_engine(&models_config);
	st = models_status(e, "noarch");
	assert_int_equal(st.state, IG_MODEL_FAILED);
	assert_string_equal(st.error, "architecture \"strange\" is not known; known: fake");
	assert_int_equal(models_take(e, "noarch", &(const struct ig_engine_model *){ NULL }, &err),
			 -EIO);
	models_assert_answers(e, "good", NULL);
	assert_true(gauge(IG_GAUGE_MODELS_LOADED) == 1);
	harness_close(e);
}

/* Removed while it is being loaded: waiters are called, and the load is discarded. */
static void test_remove_while_loading(void **state)
{
	const struct ig_engine_model *m;
	struct ig_error err;
	struct ig_engine *e;

	USE("good", "good2", "groups");
	models_first_use(1);
	models_first_use(2);
	e = harness_engine(&models_config);
	atomic_store(&models_n_ready, 0);
	fake_gate_loads(true);
	assert_int_equal(models_take(e, "good2", &m, &err), -EINPROGRESS);
	fake_wait_for_load();
	assert_int_equal(models_take(e, "groups", &m, &err), -EINPROGRESS); /* queued behind it */
	USE("good");
	ig_engine_reload(e, &models_config);
	assert_int_equal(atomic_load(&models_n_ready), 2);
	assert_int_equal(models_take(e, "good2", &m, &err), -ENOENT);
	fake_gate_loads(false);
	wait_for(fake.n_programs == 1);
	models_assert_answers(e, "good", NULL);
	harness_close(e);
}

/* What is loaded is not what is wanted by then: it is loaded once more. */
static void test_swap_while_loading(void **state)
{
	const struct ig_engine_model *m;
	struct ig_error err;
	struct ig_engine *e;
	char *paths[2];

	use_files(paths);
	models_first_use(0);
	e = harness_engine(&models_config);
	fake_gate_loads(true);
	assert_int_equal(models_take(e, "a", &m, &err), -EINPROGRESS);
	fake_wait_for_load();
	models_set(&models_config.models[0].path, "good2");
	ig_engine_reload(e, &models_config);
	fake_gate_loads(false);
	models_assert_answers(e, "a", "good2");
	wait_for(fake.n_programs == 2);
	assert_int_equal(models_status(e, "a").n_loads, 1);
	harness_close(e);
	drop_files(paths);
}

static int make_folder(void **state) { return mkdtemp(folder) ? 0 : -1; }

static int drop_folder(void **state) { return rmdir(folder); }

int main(int argc, char **argv)
{
#define T(f) cmocka_unit_test_setup_teardown(f, models_setup, models_teardown)
	const struct CMUnitTest tests[] = {
		T(test_swap),
		T(test_swap_without_memory),
		T(test_swap_for_a_bad_file),
		T(test_add_and_remove),
		T(test_names),
		T(test_a_bad_entry),
		T(test_a_bad_entry_at_start),
		T(test_remove_while_loading),
		T(test_swap_while_loading),
	};

	(void)argv;
	if (argc > 1)
		harness_run_ahead = "on";
	return cmocka_run_group_tests_name(argc > 1 ? "models by configuration, running ahead" :
						      "models by configuration",
					   tests, make_folder, drop_folder);
}
