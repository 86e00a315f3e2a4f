/*
 * test_engine.c: the engine's start (modules, driver, models, memory contract), its
 * refusals, what it says of itself, the prep thread, a reload.
 */
#include "base/json.h"
#include "harness.h"

#include "daemon/engine/engine.h"

#include <jansson.h>
#include <sys/stat.h>

static struct ig_config config;

static void use(const char *const *models, size_t n)
{
	harness_config_finish(&config);
	harness_config(&config, models, n);
}

#define USE(...)                                                                                   \
	do {                                                                                       \
		const char *const names_[] = { __VA_ARGS__ };                                      \
		use(names_, sizeof names_ / sizeof *names_);                                       \
	} while (0)

static int setup(void **state)
{
	static const char *const one[] = { "good" };

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

static void assert_not_made(int code, const char *text)
{
	struct ig_engine_deps deps = { .config = &config, .metrics = (struct ig_metrics *)&fake };
	struct ig_engine *e = NULL;
	struct ig_error err = { 0 };

	assert_int_equal(ig_engine_create(&deps, &e, &err), code);
	assert_string_equal(err.text, text);
	assert_null(e);
	assert_int_equal(fake.n_mapped, 0);
	assert_int_equal(fake.n_errors, 0);
}

static void set(char **field, const char *value)
{
	free(*field);
	*field = strdup(value);
}

/* More than two devices give wrong tokens. */
static void test_three_devices(void **state)
{
	fake.n_ranks = 3;
	assert_not_made(-ENOTSUP,
			"runtime.devices: these are 3 GPUs; a model is divided over two at most "
			"for now, as on three and more some tokens were wrong");
}

static void test_models_that_do_not_load(void **state)
{
	USE("good", "missing");
	assert_not_made(-ENOENT, "model missing: missing: no such file");
	USE("notokenizer");
	assert_not_made(-ENOTSUP, "model notokenizer: tokenizer \"xyz\" is not known");
	USE("noarch");
	assert_not_made(-ENOTSUP,
			"model noarch: architecture \"strange\" is not known; known: fake");
	USE("noload", "good");
	assert_not_made(-ENOMEM, "model noload: out of memory for 1048576 bytes of weights");
	USE("good");
	config.models[0].context = 1;
	assert_not_made(-EINVAL, "model good: a context of 1 tokens");
	set(&config.default_model, "other");
	config.models[0].context = FAKE_CONTEXT + 1;
	assert_not_made(-EINVAL,
			"model good: context is 513, the model was trained for 512 tokens");
	config.models[0].context = 0;
	assert_not_made(-EINVAL, "default_model is \"other\", which is not among the models");
}

static void test_settings_that_are_wrong(void **state)
{
	char *there[] = { (char *)"/there", NULL };

	set(&config.runtime.driver, "metal");
	assert_not_made(-ENOTSUP, "there is no driver \"metal\"");
	set(&config.runtime.driver, "cpu");
	set(&config.kvcache.dtype, "q4_0");
	assert_not_made(-ENOTSUP, "kvcache.dtype is \"q4_0\"; f16, f32 and q8_0 are known, also as "
				  "keys/values");
	set(&config.kvcache.dtype, "f32");
	set(&config.kvcache.service, "flat");
	config.modules.path = there;
	assert_not_made(-ENOENT, "kvcache.service is \"flat\"; no module in /there provides it");
	set(&config.kvcache.service, "paged");
	config.kvcache.slab = 5000;
	assert_not_made(-EINVAL,
			"kvcache: a slab of 5000 bytes; it must be a power of two, 4096 or more");
	USE("groups");
	config.kvcache.slab = 4096;
	set(&config.kvcache.dtype, "f32");
	/* 2 heads x 2 (K, V) x 16 tokens x 24 x 4 bytes */
	assert_not_made(-EINVAL,
			"model groups: kvcache: a block of 16 tokens needs 6144 bytes, more "
			"than a slab of 4096; make kvcache.slab larger");
}

/* Of the two steps' masks of two models: 16 rows of 100 bits. */
#define MASK_BYTES (2 * 2 * 16 * 16)
/* 16 rows of 100 floats, for each step that may be under way at once. */
#define LOGITS_BYTES 6400

static void test_memory_contract(void **state)
{
	struct ask probs = { .n_prompt = 3, .max_tokens = 2, .n_probs = 1 };
	struct client c;
	struct ig_error err;
	struct ig_engine *e;

	USE("good", "good2");
	config.memory.budget = 2 << 20;
	assert_not_made(-ENOMEM,
			"needs 7.0 MiB (weights 2.0, scratch 1.0, cache 4.0), the budget is "
			"2.0 MiB; set memory.budget or kvcache.arena");
	config.memory.budget = (7 << 20) + MASK_BYTES - 1;
	assert_not_made(-ENOMEM,
			"needs 7.0 MiB (weights 2.0, scratch 1.0, cache 4.0), the budget is "
			"7.0 MiB; set memory.budget or kvcache.arena");
	config.memory.budget = (7 << 20) + MASK_BYTES;
	e = harness_engine(&config);
	assert_int_equal(client_try(&c, e, &probs, &err), -EINVAL);
	assert_string_equal(err.text,
			    "log probabilities of good are not available: memory.budget has "
			    "no space for them");
	harness_close(e);
	config.memory.budget += LOGITS_BYTES - 1;
	e = harness_engine(&config);
	assert_int_equal(client_try(&c, e, &probs, &err), -EINVAL);
	assert_true(gauge(IG_GAUGE_SCRATCH_BYTES) == (1 << 20) + MASK_BYTES);
	harness_close(e);
	config.memory.budget++;
	e = harness_engine(&config);
	client_ask(&c, e, &probs);
	client_finish(&c);
	assert_int_equal(c.n_logprobs, 2);
	assert_true(gauge(IG_GAUGE_SCRATCH_BYTES) == (1 << 20) + MASK_BYTES + LOGITS_BYTES);
	harness_close(e);
	set(&config.runtime.run_ahead, "on");
	e = harness_engine(&config);
	assert_int_equal(client_try(&c, e, &probs, &err), -EINVAL);
	harness_close(e);
	config.memory.budget += LOGITS_BYTES;
	e = harness_engine(&config);
	assert_true(gauge(IG_GAUGE_SCRATCH_BYTES) == (1 << 20) + MASK_BYTES + 2 * LOGITS_BYTES);
	harness_close(e);
	set(&config.runtime.run_ahead, "off");

	config.kvcache.arena = 0; /* the rest, at least one sequence of 256 tokens: 4 slabs */
	config.memory.budget = (3 << 20) + MASK_BYTES + 3 * SLAB_BYTES;
	assert_not_made(-ENOMEM,
			"needs 3.0 MiB (weights 2.0, scratch 1.0, cache 0.0), the budget is "
			"3.0 MiB; set memory.budget, or serve fewer or smaller models");
	config.memory.budget = (3 << 20) + MASK_BYTES + 5 * SLAB_BYTES + 100;
	e = harness_engine(&config);
	assert_true(gauge(IG_GAUGE_KV_ARENA_BYTES) == 5 * SLAB_BYTES);
	assert_true(gauge(IG_GAUGE_WEIGHT_BYTES) == 2 << 20);
	/* copies of logits would leave less than those 4 slabs */
	assert_true(gauge(IG_GAUGE_SCRATCH_BYTES) == (1 << 20) + MASK_BYTES);
	harness_close(e);
	config.memory.budget = (3 << 20) + MASK_BYTES + LOGITS_BYTES + 4 * SLAB_BYTES;
	e = harness_engine(&config);
	assert_true(gauge(IG_GAUGE_KV_ARENA_BYTES) == 4 * SLAB_BYTES);
	assert_true(gauge(IG_GAUGE_SCRATCH_BYTES) == (1 << 20) + MASK_BYTES + LOGITS_BYTES);
	harness_close(e);

	config.kvcache.arena = 2 * SLAB_BYTES;
	assert_not_made(-EINVAL,
			"kvcache.arena is 0.0 MiB; one sequence of 256 tokens needs 0.0 MiB");

	USE("heavy");
	assert_not_made(-ENOMEM,
			"needs 1024.0 GiB (weights 1024.0, scratch 0.0, cache 0.0), the budget "
			"is 0.1 GiB; set memory.budget or kvcache.arena");

	USE("good");
	config.memory.budget = 0; /* three quarters of the machine's */
	config.kvcache.arena = 0;
	config.kvcache.slab = 1 << 20;
	e = harness_engine(&config);
	assert_true(gauge(IG_GAUGE_KV_ARENA_BYTES) >= 1 << 20);
	assert_true(gauge(IG_GAUGE_KV_ARENA_BYTES) <= 4294967296.0);
	harness_close(e);
}

static int64_t budget_of(struct ig_engine *e)
{
	struct ig_strbuf b = { 0 };
	struct ig_json_writer jw = { .out = &b };
	json_t *j;
	int64_t n;

	ig_json_open_object(&jw, NULL);
	ig_engine_describe(e, &jw);
	ig_json_close_object(&jw);
	assert_true(ig_strbuf_ok(&b));
	j = json_loadb(b.data, b.len, 0, NULL);
	n = json_integer_value(json_object_get(json_object_get(j, "memory"), "budget_bytes"));
	json_decref(j);
	ig_strbuf_finish(&b);
	return n;
}

/* A device's own memory is the budget; of memory that it shares with the host, something is left
 * for the system.  A configured budget is what it is. */
static void test_default_budget(void **state)
{
	struct ig_engine *e;

	USE("good");
	fake.driver_memory = 512 << 20;
	for (int i = 0; i < 3; i++) {
		config.memory.budget = i < 2 ? 0 : 500 << 20;
		fake.is_unified = i > 0;
		e = harness_engine(&config);
		assert_int_equal(budget_of(e), (i == 0 ? 512 : i == 1 ? 256 : 500) << 20);
		harness_close(e);
	}
}

/* Take and release it at once: it stays, as nothing unloads it. */
static int take(struct ig_engine *e, const char *name, const struct ig_engine_model **m,
		struct ig_error *err)
{
	int rc = ig_engine_take_model(e, name, NULL, NULL, m, err);

	if (!rc)
		ig_engine_release_model(*m);
	return rc;
}

static void test_no_models(void **state)
{
	const struct ig_engine_model *m;
	struct ig_error err;
	struct ig_engine *e;

	use(NULL, 0);
	e = harness_engine(&config);
	assert_int_equal(ig_engine_models(e, NULL, 0), 0);
	assert_int_equal(take(e, NULL, &m, &err), -ENOENT);
	assert_string_equal(
		err.text,
		"there is no model yet; `ingot pull NAME` downloads one, and `ingot models` lists names");
	harness_close(e);
}

static void test_find_model(void **state)
{
	struct ig_model_status status[3];
	const struct ig_engine_model *m;
	struct ig_error err;
	struct ig_engine *e;

	USE("good", "nochat", "odd-template");
	config.models[1].context = 100;
	config.models[2].context = FAKE_CONTEXT;
	set(&config.default_model, "nochat");
	e = harness_engine(&config);
	assert_int_equal(ig_engine_models(e, status, 3), 3);
	assert_true(status[1].is_default && !status[0].is_default && !status[2].is_default);
	assert_int_equal(take(e, NULL, &m, &err), 0);
	assert_string_equal(m->name, "nochat");
	assert_int_equal(m->n_context, 100);
	assert_null(m->chat);
	assert_string_equal(m->chat_error, "the file has no chat template");
	assert_int_equal(take(e, "", &m, &err), 0);
	assert_string_equal(m->name, "nochat");
	assert_int_equal(take(e, "odd-template", &m, &err), 0);
	assert_string_equal(m->name, status[2].name);
	assert_null(m->chat);
	assert_string_equal(m->chat_error, "the chat template is not one that Ingot knows");
	assert_int_equal(m->n_context, FAKE_CONTEXT);
	assert_int_equal(take(e, "good", &m, &err), 0);
	assert_non_null(m->chat);
	assert_null(m->chat_error);
	assert_string_equal(m->arch, "fake");
	assert_int_equal(m->weight_bytes, 1 << 20);
	assert_int_equal(take(e, "gpt-5", &m, &err), -ENOENT);
	assert_string_equal(err.text,
			    "no model is named \"gpt-5\"; known: good, nochat, odd-template");
	set(&config.default_model, "good");
	ig_engine_reload(e, &config);
	assert_int_equal(take(e, NULL, &m, &err), 0);
	assert_string_equal(m->name, "good");
	set(&config.default_model, "gone");
	ig_engine_reload(e, &config);
	assert_int_equal(take(e, NULL, &m, &err), 0);
	assert_string_equal(m->name, "good");
	harness_close(e);
}

static void test_many_names(void **state)
{
	char name[60][32];
	const struct ig_engine_model *m;
	struct ig_error err;
	struct ig_engine *e;

	use(NULL, 0);
	free(config.models);
	config.models = calloc(60, sizeof *config.models);
	config.n_models = 60;
	for (int i = 0; i < 60; i++) {
		snprintf(name[i], sizeof name[i], "model-number-%02d", i);
		config.models[i].name = strdup(name[i]);
		config.models[i].path = strdup("good");
		config.models[i].load = strdup("start");
	}
	config.memory.budget = (uint64_t)1 << 30;
	e = harness_engine(&config);
	assert_int_equal(take(e, "x", &m, &err), -ENOENT);
	assert_true(strlen(err.text) < 350);
	assert_string_equal(err.text + strlen(err.text) - 5, ", …");
	assert_non_null(strstr(err.text, "model-number-07"));
	harness_close(e);
}

static void test_refusals_are_entered(void **state)
{
	struct client c;
	struct ig_error err;
	struct ig_engine *e = harness_engine(&config);

	assert_int_equal(client_try(&c, e, &(struct ask){ .n_prompt = 600, .id = "big" }, &err),
			 -E2BIG);
	assert_string_equal(err.text, "the prompt has 600 tokens, the context of good is 512");
	struct ig_ledger_row row = ledger_find("big");
	assert_string_equal(row.finish, "refused");
	assert_string_equal(row.error, err.text);
	assert_int_equal(row.status, 400);
	assert_int_equal(row.n_prompt, 600);
	assert_int_equal(client_try(&c, e, &(struct ask){ .n_prompt = 0, .id = "none" }, &err),
			 -EINVAL);
	assert_int_equal(ledger_find("none").status, 400);
	assert_int_equal(counter(IG_COUNTER_REFUSED), 0); /* those with 503 only */
	struct ig_ledger_row own = { .id = "early", .finish = "refused", .status = 503 };
	ig_engine_record_refused(e, &own);
	assert_int_equal(ledger_find("early").status, 503);
	assert_int_equal(counter(IG_COUNTER_REFUSED), 1);
	assert_int_equal(fake.n_requests, 3);
	assert_int_equal(ig_engine_n_active(e), 0);
	harness_close(e);
}

static void test_describe(void **state)
{
	struct client c;
	struct ig_strbuf b = { 0 };
	struct ig_json_writer jw = { .out = &b };
	struct ig_engine *e;
	json_error_t je;
	json_t *j, *m;

	USE("good", "nochat");
	fake.gated = true;
	e = harness_engine(&config);
	client_ask(&c, e, &(struct ask){ .n_prompt = 20, .max_tokens = 5 });
	fake_wait_at_gate();
	ig_json_open_object(&jw, NULL);
	ig_engine_describe(e, &jw);
	ig_json_close_object(&jw);
	assert_true(ig_strbuf_ok(&b));
	j = json_loadb(b.data, b.len, JSON_REJECT_DUPLICATES, &je);
	if (!j)
		fail_msg("%s in %s", je.text, b.data);
#define STR(o, k) json_string_value(json_object_get(o, k))
#define INT(o, k) json_integer_value(json_object_get(o, k))
	assert_string_equal(STR(j, "device"), "cpu, generic, 3 threads");
	assert_string_equal(STR(j, "driver"), "cpu");
	assert_string_equal(STR(j, "isa"), "generic");
	assert_int_equal(INT(j, "threads"), 3);
	m = json_object_get(j, "modules");
	assert_int_equal(json_array_size(m), 2);
	assert_string_equal(STR(json_array_get(m, 0), "name"), "kvcache");
	assert_string_equal(STR(json_array_get(m, 1), "version"), "1.2.3");
	assert_string_equal(STR(json_array_get(m, 1), "name"), "\"attention\"");
	assert_string_equal(STR(json_array_get(m, 1), "path"), "/dev/null");
	m = json_object_get(j, "models");
	assert_int_equal(json_array_size(m), 2);
	assert_string_equal(STR(json_array_get(m, 0), "name"), "good");
	assert_string_equal(STR(json_array_get(m, 0), "chat_template"), "chatml");
	assert_true(json_is_true(json_object_get(json_array_get(m, 0), "default")));
	assert_true(json_is_null(json_object_get(json_array_get(m, 1), "chat_template")));
	assert_string_equal(STR(json_array_get(m, 1), "chat_error"),
			    "the file has no chat template");
	assert_int_equal(INT(json_array_get(m, 1), "context"), FAKE_CONTEXT);
	m = json_object_get(j, "memory");
	assert_int_equal(INT(m, "budget_bytes"), 64 << 20);
	assert_int_equal(INT(m, "arena_bytes"), 4 << 20);
	assert_int_equal(INT(m, "weight_bytes"), 2 << 20);
	m = json_object_get(j, "kvcache");
	assert_string_equal(STR(m, "service"), "paged");
	assert_int_equal(INT(m, "used_bytes"), 2 * GOOD_BLOCK_BYTES); /* 20 + 5 tokens at most */
	assert_int_equal(INT(m, "blocks_used"), 2);
	m = json_object_get(j, "requests");
	assert_int_equal(INT(m, "active"), 1);
	assert_int_equal(INT(m, "running"), 1);
	assert_true(json_is_false(json_object_get(j, "draining")));
	json_decref(j);
	ig_strbuf_finish(&b);
	fake_open_gate();
	client_finish(&c);
	harness_close(e);
}

static void test_reload(void **state)
{
	struct client c;
	struct ig_engine *e = harness_engine(&config);

	config.scheduler.max_batch_tokens = 20; /* needs a restart */
	config.scheduler.prefill_chunk = 1000;
	config.scheduler.max_output_tokens = 2;
	ig_engine_reload(e, &config);
	client_ask(&c, e, &(struct ask){ .n_prompt = 300 });
	client_finish(&c);
	assert_int_equal(c.result.n_output, 2);
	assert_int_equal(fake.max_rows_seen, 128);
	harness_close(e);
}

/* ---- prep ------------------------------------------------------------------------------- */

static atomic_int n_begun, n_run;
static atomic_bool hold;
static int order[1000];

static void job(void *ctx)
{
	atomic_fetch_add(&n_begun, 1);
	while (atomic_load(&hold))
		usleep(200);
	order[atomic_load(&n_run)] = (int)(intptr_t)ctx;
	atomic_fetch_add(&n_run, 1);
}

static int prep(struct ig_engine *e, int number, uint64_t client, size_t n_bytes)
{
	return ig_engine_prep(e,
			      &(struct ig_job){ job, (void *)(intptr_t)number, client, n_bytes });
}

static void mark(void *ctx) { atomic_store((atomic_bool *)ctx, true); }

static void test_prep(void **state)
{
	struct ig_engine *e = harness_engine(&config);
	atomic_bool parsed = false;
	int n = 0;

	atomic_store(&n_begun, 0);
	atomic_store(&n_run, 0);
	atomic_store(&hold, true);
	while (prep(e, n, 0, 0) == 0) {
		if (n == 0)
			wait_for(atomic_load(&n_begun) == 1); /* it is taken from the queue */
		n++;
	}
	if (n != 257)
		atomic_store(&hold, false); /* or the engine never ends */
	assert_int_equal(n, 257);
	assert_int_equal(prep(e, 0, 0, 0), -EAGAIN);
	/* what is to be parsed does not wait for them */
	assert_int_equal(ig_engine_parse(e, mark, &parsed), 0);
	wait_for(atomic_load(&parsed));
	assert_int_equal(atomic_load(&n_run), 0);
	atomic_store(&hold, false);
	wait_for(atomic_load(&n_run) == 257);
	for (int i = 0; i < 257; i++)
		assert_int_equal(order[i], i);
	/* queued jobs still run when the engine is destroyed, and free their memory */
	atomic_store(&n_run, 0);
	for (int i = 0; i < 100; i++)
		assert_int_equal(prep(e, i, 0, 0), 0);
	harness_close(e);
	assert_int_equal(n_run, 100);
}

/* A prompt at prep, which stands there until it is let go. */
struct gate {
	atomic_bool begun, open;
};

static void pass(void *ctx)
{
	struct gate *g = ctx;

	atomic_store(&g->begun, true);
	while (!atomic_load(&g->open))
		usleep(200);
}

static void prep_gate(struct ig_engine *e, struct gate *g, uint64_t client, size_t n_bytes)
{
	atomic_init(&g->begun, false);
	atomic_init(&g->open, false);
	assert_int_equal(ig_engine_prep(e, &(struct ig_job){ pass, g, client, n_bytes }), 0);
}

/* Large prompts have all threads but one, each client's first come first; small ones wait for none of
 * them. */
static void test_large_prompts_leave_a_thread(void **state)
{
	enum { LARGE = 500000, A = 1, B = 2, N_SMALL = 20 };
	struct gate large[4], small[N_SMALL];
	struct ig_engine *e;

	config.server.prep_threads = 3;
	e = harness_engine(&config);
	prep_gate(e, &large[0], A, LARGE);
	wait_for(large[0].begun);
	prep_gate(e, &large[1], A, LARGE);
	wait_for(large[1].begun); /* nobody else wants that thread */
	prep_gate(e, &large[2], A, LARGE);
	prep_gate(e, &large[3], B, LARGE);
	for (int i = 0; i < N_SMALL; i++) {
		prep_gate(e, &small[i], i % 2 ? A : B, i % 2 ? LARGE / 10 : 0);
		atomic_store(&small[i].open, true);
		wait_for(small[i].begun);
	}
	assert_false(large[2].begun || large[3].begun);
	atomic_store(&large[1].open, true);
	wait_for(large[3].begun); /* the other client's, although it came later */
	assert_false(large[2].begun);
	atomic_store(&large[0].open, true);
	wait_for(large[2].begun);
	atomic_store(&large[2].open, true);
	atomic_store(&large[3].open, true);
	harness_close(e);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_three_devices),
		T(test_models_that_do_not_load),
		T(test_settings_that_are_wrong),
		T(test_memory_contract),
		T(test_default_budget),
		T(test_no_models),
		T(test_find_model),
		T(test_many_names),
		T(test_refusals_are_entered),
		T(test_describe),
		T(test_reload),
		T(test_prep),
		T(test_large_prompts_leave_a_thread),
	};
	return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
