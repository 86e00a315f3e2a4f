/*
 * test_models.c: models that come and go: loaded for a first request while others stream,
 * unloaded for one another's sake, after keep_alive or on request, swapped and removed by
 * a new configuration; what fails on the way; many threads at once.
 */
#include "harness.h"

#include "daemon/engine/engine.h"

#include <sys/stat.h>

#define MIB (1 << 20)

static struct ig_config config;
static char folder[] = "/tmp/ingot-test-models-XXXXXX";

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

static void set(char **field, const char *value)
{
	free(*field);
	*field = strdup(value);
}

static void first_use(size_t i) { set(&config.models[i].load, "first_use"); }

static int setup(void **state)
{
	static const char *const one[] = { "good" };

	fake_reset();
	harness_config(&config, one, 1);
	return 0;
}

static int teardown(void **state)
{
	fake_gate_loads(false);
	fake.fail_any_at = 0;
	harness_abandon();
	harness_config_finish(&config);
	return 0;
}

/* ---- asking --------------------------------------------------------------------------- */

static atomic_int n_ready;

static void on_ready(void *ctx) { atomic_fetch_add((atomic_int *)ctx, 1); }

static struct ig_model_status status_of(struct ig_engine *e, const char *name)
{
	struct ig_model_status all[16];
	size_t n = ig_engine_models(e, all, 16);

	for (size_t i = 0; i < n && i < 16; i++)
		if (!strcmp(all[i].name, name))
			return all[i];
	fail_msg("there is no model %s", name);
	return all[0];
}

static enum ig_model_state state_of(struct ig_engine *e, const char *name)
{
	return status_of(e, name).state;
}

static int take(struct ig_engine *e, const char *name, const struct ig_engine_model **m,
		struct ig_error *err)
{
	*err = (struct ig_error){ 0 };
	return ig_engine_take_model(e, name, on_ready, &n_ready, m, err);
}

/* As a request does: wait while it is loaded.  The last word. */
static int await(struct ig_engine *e, const char *name, const struct ig_engine_model **m,
		 struct ig_error *err)
{
	int64_t until = ig_now_ns() + (int64_t)20 * 1000000000;
	atomic_int mine;
	int rc;

	for (;;) {
		atomic_init(&mine, 0);
		*err = (struct ig_error){ 0 };
		rc = ig_engine_take_model(e, name, on_ready, &mine, m, err);
		if (rc != -EINPROGRESS)
			return rc;
		while (!atomic_load(&mine)) {
			if (ig_now_ns() > until)
				fail_msg("%s is never ready", name);
			usleep(200);
		}
	}
}

/* Load and release it. */
static void touch(struct ig_engine *e, const char *name)
{
	const struct ig_engine_model *m;
	struct ig_error err;

	if (await(e, name, &m, &err))
		fail_msg("%s: %s", name, err.text);
	ig_engine_release_model(m);
}

static void assert_answer(const struct client *c, const struct ask *a)
{
	char text[65536];

	expected(a, text, sizeof text);
	assert_string_equal(c->text, text);
}

/* Its output is that of this kind of file. */
static void assert_answers(struct ig_engine *e, const char *name, const char *kind)
{
	struct ask a = { .model = name, .kind = kind, .n_prompt = 20, .max_tokens = 12, .seed = 7 };
	struct client c;

	touch(e, name);
	client_ask(&c, e, &a);
	client_finish(&c);
	assert_answer(&c, &a);
}

/* ---- on first use ------------------------------------------------------------------------ */

static void test_first_use(void **state)
{
	const struct ig_engine_model *m;
	struct ig_model_status st;
	struct ig_error err;
	struct ig_engine *e;

	USE("good", "good2");
	first_use(1);
	e = harness_engine(&config);
	assert_int_equal(fake.n_programs, 1);
	assert_true(gauge(IG_GAUGE_MODELS_LOADED) == 1);
	assert_true(gauge(IG_GAUGE_WEIGHT_BYTES) == MIB);
	st = status_of(e, "good2");
	assert_int_equal(st.state, IG_MODEL_UNLOADED);
	assert_int_equal(st.n_context, FAKE_CONTEXT); /* known already */
	assert_int_equal(st.weight_bytes, MIB);
	assert_string_equal(st.arch, "fake");
	assert_int_equal(st.n_loads, 0);
	st = status_of(e, "good");
	assert_int_equal(st.state, IG_MODEL_READY);
	assert_true(st.is_default);
	assert_int_equal(st.n_loads, 1);
	assert_true(st.expires_s < 0);

	atomic_store(&n_ready, 0);
	fake_gate_loads(true);
	assert_int_equal(take(e, "good2", &m, &err), -EINPROGRESS);
	assert_string_equal(err.text, "the model good2 is being loaded");
	fake_wait_for_load();
	assert_int_equal(state_of(e, "good2"), IG_MODEL_LOADING);
	for (int i = 0; i < 3; i++)
		assert_int_equal(take(e, "good2", &m, &err), -EINPROGRESS);
	assert_int_equal(ig_engine_take_model(e, "good2", NULL, NULL, &m, &err), -EINPROGRESS);
	assert_int_equal(atomic_load(&n_ready), 0);
	assert_answers(e, "good", NULL); /* others stream */
	fake_gate_loads(false);
	wait_for(atomic_load(&n_ready) == 4);
	assert_int_equal(take(e, "good2", &m, &err), 0);
	assert_string_equal(m->name, "good2");
	st = status_of(e, "good2");
	assert_int_equal(st.state, IG_MODEL_READY);
	assert_int_equal(st.n_loads, 1);
	assert_true(st.loaded_s > 0 && !(st.idle_s > 0));
	assert_answers(e, "good2", NULL);
	ig_engine_release_model(m);
	assert_int_equal(fake.n_loads, 2);
	assert_true(gauge(IG_GAUGE_MODELS_LOADED) == 2);
	assert_true(gauge(IG_GAUGE_WEIGHT_BYTES) == 2 * MIB);
	usleep(20000);
	assert_int_equal(atomic_load(&n_ready), 4); /* each once */
	assert_true(status_of(e, "good2").idle_s > 0);
	harness_close(e);
}

static void test_streams_go_on(void **state)
{
	static struct client c[4];
	struct ask a[4];
	struct ig_engine *e;
	int n_steps;

	USE("good", "good2", "groups");
	first_use(1);
	first_use(2);
	fake.delay_us = 300;
	e = harness_engine(&config);
	for (int i = 0; i < 4; i++) {
		a[i] = (struct ask){
			.n_prompt = 40, .prompt_seed = (unsigned)i, .seed = 3, .max_tokens = 400
		};
		client_ask(&c[i], e, &a[i]);
	}
	wait_for(fake.n_steps > 10);
	fake_gate_loads(true);
	n_steps = fake.n_steps;
	assert_int_equal(take(e, "good2", &(const struct ig_engine_model *){ NULL },
			      &(struct ig_error){ 0 }),
			 -EINPROGRESS);
	fake_wait_for_load();
	wait_for(fake.n_steps > n_steps + 50); /* though it does not end */
	fake_gate_loads(false);
	assert_answers(e, "good2", NULL);
	assert_answers(e, "groups", NULL);
	for (int i = 0; i < 4; i++) {
		client_finish(&c[i]);
		assert_answer(&c[i], &a[i]);
	}
	assert_int_equal(fake.max_in_flight, strcmp(harness_run_ahead, "on") ? 1 : 2);
	harness_close(e);
}

/* Copies of logits grow with the largest model that is loaded, also under steps that use
 * them, and shrink when it is unloaded. */
static void test_logits(void **state)
{
	struct ask a = { .n_prompt = 20, .max_tokens = 300, .n_probs = 3, .seed = 4 };
	struct ask wide = { .model = "wide", .n_prompt = 20, .max_tokens = 20, .n_probs = 3 };
	static struct client c, w;
	struct ig_engine *e;
	double scratch;

	USE("good", "wide");
	first_use(1);
	fake.delay_us = 200;
	e = harness_engine(&config);
	scratch = gauge(IG_GAUGE_SCRATCH_BYTES);
	client_ask(&c, e, &a);
	wait_for(fake.n_logit_steps > 5);
	touch(e, "wide");
	client_ask(&w, e, &wide);
	client_finish(&w);
	assert_answer(&w, &wide);
	assert_int_equal(w.n_logprobs, 20);
	assert_true(gauge(IG_GAUGE_SCRATCH_BYTES) >=
		    scratch + (1 << 19) + 16 * 4 * (FAKE_WIDE_LOGITS - FAKE_LOGITS));
	assert_int_equal(ig_engine_unload_model(e, "wide", &(struct ig_error){ 0 }), 0);
	wait_for(gauge(IG_GAUGE_MODELS_LOADED) == 1);
	client_finish(&c);
	assert_answer(&c, &a);
	assert_int_equal(c.n_logprobs, 300);
	assert_true(gauge(IG_GAUGE_SCRATCH_BYTES) == scratch);
	harness_close(e);
}

/* Where the budget has no space for larger copies, a model is served without them. */
static void test_no_memory_for_logits(void **state)
{
	struct ask a = { .model = "wide", .n_prompt = 20, .max_tokens = 5, .n_probs = 3 };
	struct client c;
	struct ig_error err = { 0 };
	struct ig_engine *e;

	USE("good", "wide");
	first_use(1);
	config.memory.budget = (4 + 3) * MIB + 100000;
	e = harness_engine(&config);
	touch(e, "wide");
	assert_int_equal(client_try(&c, e, &a, &err), -EINVAL);
	assert_string_equal(err.text,
			    "log probabilities of wide are not available: memory.budget has "
			    "no space for them");
	a.n_probs = 0;
	client_ask(&c, e, &a);
	client_finish(&c);
	assert_answer(&c, &a);
	a.model = "good";
	a.n_probs = 3;
	client_ask(&c, e, &a);
	client_finish(&c);
	assert_int_equal(c.n_logprobs, 5);
	harness_close(e);
}

/* The cached blocks of a removed model are freed in slices, between steps of others. */
static void test_a_full_cache_goes(void **state)
{
	struct ask a = { .n_prompt = 40, .seed = 3, .max_tokens = 450 };
	struct ask b = { .model = "good2", .n_prompt = 450, .max_tokens = 2 };
	static struct client c, d;
	struct ig_error err = { 0 };
	struct ig_engine *e;
	int n_steps, n_mapped;

	USE("good", "good2");
	e = harness_engine(&config);
	for (unsigned i = 0; i < 10; i++) {
		b.prompt_seed = i;
		client_ask(&d, e, &b);
		client_finish(&d);
	}
	n_mapped = fake.n_mapped;
	assert_true(n_mapped > 50);
	fake.unmap_us = 500;
	fake.delay_us = 100;
	client_ask(&c, e, &a);
	n_steps = fake.n_steps;
	assert_int_equal(ig_engine_unload_model(e, "good2", &err), 0);
	wait_for(fake.n_programs == 1);
	assert_true(fake.n_mapped < n_mapped - 40);
	assert_true(fake.n_steps > n_steps + 10);
	client_finish(&c);
	assert_answer(&c, &a);
	fake.unmap_us = 0;
	harness_close(e);
}

/* ---- the memory contract ----------------------------------------------------------------------- */

/* A budget for the arena and two of three models of 10 MiB. */
static void use_tight(void)
{
	USE("good", "w10", "w11", "w12");
	for (size_t i = 1; i < 4; i++)
		first_use(i);
	config.models[0].pin = true;
	config.memory.budget = (4 + 2 + 23 + 2) << 20;
}

static void test_least_recently_used_goes(void **state)
{
	const struct ig_engine_model *m, *n;
	struct ig_error err;
	struct ig_engine *e;

	use_tight();
	e = harness_engine(&config);
	touch(e, "w10");
	touch(e, "w11");
	assert_int_equal(fake.n_programs, 3);
	touch(e, "w10"); /* now w11 is older */
	touch(e, "w12");
	assert_int_equal(state_of(e, "w11"), IG_MODEL_UNLOADED);
	assert_int_equal(state_of(e, "w10"), IG_MODEL_READY);
	assert_int_equal(state_of(e, "good"), IG_MODEL_READY);
	assert_int_equal(fake.n_programs, 3);
	assert_int_equal(counter(IG_COUNTER_MODELS_UNLOADED), 1);
	assert_true(gauge(IG_GAUGE_WEIGHT_BYTES) == 23 * MIB);
	touch(e, "w11");
	assert_int_equal(state_of(e, "w10"), IG_MODEL_UNLOADED);
	assert_int_equal(status_of(e, "w11").n_loads, 2);

	/* Those in use stay, and nobody is unloaded for a load that can't be. */
	assert_int_equal(take(e, "w11", &m, &err), 0);
	assert_int_equal(take(e, "w12", &n, &err), 0);
	assert_int_equal(take(e, "w10", &(const struct ig_engine_model *){ NULL }, &err), -ENOMEM);
	assert_string_equal(
		err.text,
		"there is no space for the model w10 now: it needs 10.50 MiB "
		"(weights 10.00, scratch 0.50); of memory.budget, 31.00 MiB, 1.49 are free; "
		"raise it, or unload or unpin another model");
	assert_int_equal(state_of(e, "w10"), IG_MODEL_UNLOADED);
	ig_engine_release_model(n);
	assert_answers(e, "w10", NULL);
	assert_int_equal(state_of(e, "w12"), IG_MODEL_UNLOADED);
	assert_int_equal(state_of(e, "w11"), IG_MODEL_READY);
	ig_engine_release_model(m);
	harness_close(e);
}

/* A prompt of 20 blocks of the cache, 5 slabs. */
static void fill_cache(struct ig_engine *e, const char *model)
{
	struct client c;

	client_ask(&c, e, &(struct ask){ .model = model, .n_prompt = 320, .max_tokens = 1 });
	client_finish(&c);
}

/* The system is short of memory: what the driver keeps goes first, then idle blocks of the cache,
 * then idle models that are not pinned, the least recently used first. */
static void test_memory_pressure(void **state)
{
	struct ig_engine *e;

	use_tight();
	e = harness_engine(&config);
	touch(e, "w10");
	touch(e, "w11");
	touch(e, "w10");
	fill_cache(e, "good");
	wait_for(gauge(IG_GAUGE_KV_USED_BYTES) < 1); /* all is idle */
	int committed = (int)gauge(IG_GAUGE_KV_COMMITTED_BYTES);
	assert_true(committed >= 5 * SLAB_BYTES);

	fake.reserve = 1 << 20;
	fake.on_memory(fake.memory_ctx, 1 << 19);
	wait_for(counter(IG_COUNTER_RECLAIMED_BYTES) == 1 << 19);
	fake.reserve = 0;
	fake.on_memory(fake.memory_ctx, SLAB_BYTES);
	wait_for(counter(IG_COUNTER_RECLAIMED_BYTES) >= (1 << 19) + SLAB_BYTES);
	wait_for((int)gauge(IG_GAUGE_KV_COMMITTED_BYTES) <= committed - SLAB_BYTES);
	assert_int_equal(counter(IG_COUNTER_MODELS_UNLOADED), 0);
	assert_true(gauge(IG_GAUGE_KV_CACHED_BYTES) > SLAB_BYTES);

	fake.on_memory(fake.memory_ctx, 2 << 20);
	wait_for(counter(IG_COUNTER_MODELS_UNLOADED) == 1);
	assert_int_equal(state_of(e, "w11"), IG_MODEL_UNLOADED);
	assert_int_equal(state_of(e, "w10"), IG_MODEL_READY);
	wait_for(gauge(IG_GAUGE_KV_CACHED_BYTES) < 1);
	fake.on_memory(fake.memory_ctx, (uint64_t)1 << 40);
	wait_for(counter(IG_COUNTER_MODELS_UNLOADED) == 2);
	assert_int_equal(state_of(e, "w10"), IG_MODEL_UNLOADED);
	assert_int_equal(state_of(e, "good"), IG_MODEL_READY); /* pinned */
	assert_int_equal(counter(IG_COUNTER_MEMORY_PRESSURE), 4);
	assert_answers(e, "w11", NULL); /* it is loaded again when it is wanted */
	harness_close(e);
}

/* A request that runs keeps its model and its blocks; what has passed frees nothing. */
static void test_pressure_spares_what_runs(void **state)
{
	static const struct ask ask = { .model = "w10", .n_prompt = 200, .max_tokens = 60 };
	struct client c;
	struct ig_engine *e;

	use_tight();
	e = harness_engine(&config);
	touch(e, "w10");
	touch(e, "w11");
	fake_close_gate();
	client_ask(&c, e, &ask);
	fake_wait_at_gate();
	fake.on_memory(fake.memory_ctx, (uint64_t)1 << 40);
	fake.on_memory(fake.memory_ctx, 0);
	fake_allow(2);
	fake_wait_at_gate();
	assert_int_equal(counter(IG_COUNTER_MEMORY_PRESSURE), 0);
	fake.on_memory(fake.memory_ctx, (uint64_t)1 << 40);
	fake_allow(2);
	fake_wait_at_gate();
	wait_for(state_of(e, "w11") != IG_MODEL_READY);
	fake.on_memory(fake.memory_ctx, 0);
	fake_allow(2);
	fake_wait_at_gate();
	fake_open_gate();
	client_finish(&c);
	assert_answer(&c, &ask);
	wait_for(state_of(e, "w11") == IG_MODEL_UNLOADED);
	assert_int_equal(state_of(e, "w10"), IG_MODEL_READY);
	assert_int_equal(counter(IG_COUNTER_MEMORY_PRESSURE), 1);
	harness_close(e);
}

static void test_pinned_stay(void **state)
{
	struct ig_error err;
	struct ig_engine *e;
	const struct ig_engine_model *m;

	use_tight();
	config.models[1].pin = true;
	config.models[2].pin = true;
	e = harness_engine(&config);
	touch(e, "w10");
	touch(e, "w11");
	assert_int_equal(take(e, "w12", &m, &err), -ENOMEM);
	assert_int_equal(ig_engine_unload_model(e, "w10", &err), 0); /* also pinned ones */
	wait_for(state_of(e, "w10") == IG_MODEL_UNLOADED);
	touch(e, "w12");
	harness_close(e);
}

static void assert_refused(const char *text)
{
	struct ig_engine_deps deps = { .config = &config, .metrics = (struct ig_metrics *)&fake };
	struct ig_engine *e = NULL;
	struct ig_error err = { 0 };

	assert_int_equal(ig_engine_create(&deps, &e, &err), -ENOMEM);
	assert_string_equal(err.text, text);
	assert_null(e);
	assert_int_equal(fake.n_open, 0);
}

static void test_contract_at_start(void **state)
{
	struct ig_engine *e;

	/* The arena leaves space for the largest that is loaded later. */
	USE("good", "w10", "w30");
	first_use(1);
	first_use(2);
	config.kvcache.arena = 0;
	e = harness_engine(&config);
	assert_true(gauge(IG_GAUGE_KV_ARENA_BYTES) <= (64 - 1.5 - 30.5) * MIB);
	assert_true(gauge(IG_GAUGE_KV_ARENA_BYTES) >= (64 - 1.5 - 30.5 - 1) * MIB);
	touch(e, "w30");
	assert_int_equal(state_of(e, "good"), IG_MODEL_READY);
	harness_close(e);

	/* One that could never be loaded is a mistake of the configuration. */
	config.models[0].pin = true;
	config.kvcache.arena = 40 * MIB;
	assert_refused(
		"model w30, with those that are pinned, needs 72.0 MiB (weights 31.0, scratch "
		"1.0, cache 40.0), the budget is 64.0 MiB; set memory.budget, or pin fewer models");
	/* Without the pin it may take the other's place. */
	config.models[0].pin = false;
	config.kvcache.arena = 33 * MIB;
	e = harness_engine(&config);
	touch(e, "w30");
	assert_int_equal(state_of(e, "good"), IG_MODEL_UNLOADED);
	harness_close(e);
	/* What loads at start must fit as a whole. */
	set(&config.models[2].load, "start");
	assert_refused(
		"needs 65.0 MiB (weights 31.0, scratch 1.0, cache 33.0), the budget is 64.0 MiB; "
		"set memory.budget or kvcache.arena");
}

/* ---- keep_alive, unload ---------------------------------------------------------------------- */

static void test_keep_alive(void **state)
{
	const struct ig_engine_model *m;
	struct ig_model_status st;
	struct ig_error err;
	struct ig_engine *e;

	USE("good", "good2");
	config.models[1].keep_alive_ms = 150;
	e = harness_engine(&config);
	assert_int_equal(take(e, "good2", &m, &err), 0);
	st = status_of(e, "good2");
	assert_true(st.expires_s < 0 && !(st.idle_s > 0));
	usleep(250000);
	assert_int_equal(state_of(e, "good2"), IG_MODEL_READY); /* somebody has it */
	ig_engine_release_model(m);
	st = status_of(e, "good2");
	assert_true(st.expires_s > 0 && st.expires_s <= 0.15);
	wait_for(state_of(e, "good2") == IG_MODEL_UNLOADED);
	wait_for(fake.n_programs == 1);
	assert_answers(e, "good2", NULL);
	wait_for(state_of(e, "good2") == IG_MODEL_UNLOADED);
	assert_int_equal(state_of(e, "good"), IG_MODEL_READY);
	wait_for(counter(IG_COUNTER_MODELS_UNLOADED) == 2);
	harness_close(e);
}

/* A request's keep_alive: it counts until the model is unloaded, or the configuration's changes. */
static void test_asked_keep_alive(void **state)
{
	const struct ig_engine_model *m;
	struct ig_model_status st;
	struct ig_error err;
	struct ig_engine *e;

	USE("good", "good2");
	e = harness_engine(&config);
	assert_int_equal(take(e, "good", &m, &err), 0);
	ig_engine_set_keep_alive(m, (int64_t)3600 * 1000000000);
	assert_true(status_of(e, "good").expires_s < 0); /* somebody has it */
	assert_true(status_of(e, "good").keep_alive_s == 3600);
	ig_engine_release_model(m);
	st = status_of(e, "good");
	assert_true(st.expires_s > 3500 && st.expires_s <= 3600);
	assert_true(status_of(e, "good2").keep_alive_s == -1);
	config.models[0].keep_alive_ms = 7200000;
	ig_engine_reload(e, &config);
	assert_true(status_of(e, "good").expires_s > 3700);
	/* 0: when its last holder has released it */
	assert_int_equal(take(e, "good", &m, &err), 0);
	ig_engine_set_keep_alive(m, 0);
	assert_int_equal(state_of(e, "good"), IG_MODEL_READY);
	ig_engine_release_model(m);
	wait_for(state_of(e, "good") == IG_MODEL_UNLOADED);
	/* the next one has the configuration's again */
	touch(e, "good");
	assert_true(status_of(e, "good").keep_alive_s == 7200);
	assert_int_equal(take(e, "good", &m, &err), 0);
	ig_engine_set_keep_alive(m, -1);
	ig_engine_release_model(m);
	assert_true(status_of(e, "good").expires_s == -1);
	harness_close(e);
}

static void test_latest(void **state)
{
	const struct ig_engine_model *m;
	struct ig_error err;
	struct ig_engine *e;

	USE("good", "good2");
	e = harness_engine(&config);
	assert_int_equal(take(e, "good:latest", &m, &err), 0);
	assert_string_equal(m->name, "good");
	ig_engine_release_model(m);
	assert_int_equal(take(e, "good:7b", &m, &err), -ENOENT);
	assert_int_equal(take(e, ":latest", &m, &err), -ENOENT);
	assert_int_equal(take(e, "goo:latest", &m, &err), -ENOENT);
	harness_close(e);
}

static void test_traits(void **state)
{
	struct ig_engine *e;

	USE("good", "nochat");
	e = harness_engine(&config);
	struct ig_model_traits a = status_of(e, "good").traits, b = status_of(e, "nochat").traits;
	assert_int_equal(a.n_params, 96);
	assert_int_equal(a.file_bytes, 77);
	assert_string_equal(a.quantization, "Q8_0");
	assert_string_equal(a.format, "gguf");
	assert_true(a.thinking && !a.tools && !b.thinking);
	/* requests copy the style */
	const struct ig_engine_model *m;
	struct ig_error err = { 0 };
	assert_int_equal(take(e, "good", &m, &err), 0);
	assert_true(m->style.reasoning && m->style.calls == IG_TOOL_CALLS_NONE);
	ig_engine_release_model(m);
	assert_int_equal(take(e, "nochat", &m, &err), 0);
	assert_false(m->style.reasoning);
	ig_engine_release_model(m);
	harness_close(e);
}

static void test_unload(void **state)
{
	struct ask a = { .model = "good", .n_prompt = 20, .max_tokens = 100, .seed = 2 };
	struct ig_error err = { 0 };
	struct ig_engine *e;
	static struct client c, d;

	USE("good", "good2");
	fake.gated = true;
	e = harness_engine(&config);
	assert_int_equal(ig_engine_unload_model(e, "best", &err), -ENOENT);
	assert_string_equal(err.text, "no model is named \"best\"; known: good, good2");
	client_ask(&c, e, &a);
	fake_wait_at_gate();
	assert_int_equal(ig_engine_unload_model(e, "good", &err), 0);
	assert_int_equal(state_of(e, "good"), IG_MODEL_UNLOADING);
	assert_int_equal(status_of(e, "good").n_active, 1);
	/* requested again, it is loaded beside the one that is unloaded */
	fake_gate_loads(true);
	assert_int_equal(client_try(&d, e, &a, &err), -EINPROGRESS);
	assert_int_equal(state_of(e, "good"), IG_MODEL_LOADING);
	fake_wait_for_load();
	/* a load that is discarded, and waiters are called */
	atomic_store(&n_ready, 0);
	assert_int_equal(take(e, "good", &(const struct ig_engine_model *){ NULL }, &err),
			 -EINPROGRESS);
	assert_int_equal(ig_engine_unload_model(e, "good", &err), 0);
	fake_open_gate();
	fake_gate_loads(false);
	wait_for(atomic_load(&n_ready) == 1);
	client_finish(&c);
	assert_answer(&c, &a);
	wait_for(state_of(e, "good") == IG_MODEL_UNLOADED);
	wait_for(fake.n_programs == 1);
	touch(e, "good");
	client_ask(&d, e, &a);
	client_finish(&d);
	assert_answer(&d, &a);
	harness_close(e);
}

/* ---- a new configuration ------------------------------------------------------------------------- */

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
		paths[i] = file_at(config.models[i].name);
		write_file(paths[i], "good");
		set(&config.models[i].path, paths[i]);
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
	e = harness_engine(&config);
	client_ask(&c, e, &a);
	wait_for(fake.n_steps > 3);
	write_file(paths[0], "good2");
	ig_engine_reload(e, &config);
	wait_for(status_of(e, "a").n_loads == 2);
	assert_int_equal(state_of(e, "a"), IG_MODEL_READY);
	assert_int_equal(fake.n_programs, 3);
	assert_answers(e, "a", "good2");
	client_take(&c);
	assert_false(c.over);
	client_finish(&c);
	assert_answer(&c, &a); /* all of it by the old one */
	wait_for(fake.n_programs == 2);
	/* nothing has changed: nothing happens */
	int n_opens = fake.n_opens;
	ig_engine_reload(e, &config);
	usleep(30000);
	assert_int_equal(fake.n_opens, n_opens);
	/* another context of the same file */
	config.models[0].context = 100;
	ig_engine_reload(e, &config);
	wait_for(status_of(e, "a").n_loads == 3);
	assert_int_equal(status_of(e, "a").n_context, 100);
	assert_int_equal(status_of(e, "b").n_loads, 1);
	/* another type of its cache; that of all is not reloadable */
	assert_true(fake.k_dtype == IG_F16 && fake.v_dtype == IG_F16);
	config.models[0].kv_dtype = (char *)"f32";
	ig_engine_reload(e, &config);
	wait_for(status_of(e, "a").n_loads == 4);
	assert_true(fake.k_dtype == IG_F32 && fake.v_dtype == IG_F32);
	config.models[0].kv_dtype = (char *)"auto";
	ig_engine_reload(e, &config);
	wait_for(status_of(e, "a").n_loads == 5);
	assert_true(fake.k_dtype == IG_F16 && fake.v_dtype == IG_F16);
	/* heads of 8 have no groups of 32 */
	config.models[0].kv_dtype = (char *)"q8_0/f16";
	ig_engine_reload(e, &config);
	wait_for(strstr(status_of(e, "a").error, "keys in q8_0 (kvcache.dtype, or the model's"));
	assert_int_equal(state_of(e, "a"), IG_MODEL_READY);
	config.models[0].kv_dtype = NULL;
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
	config.memory.budget = (4 + 20 + 1 + 3) << 20;
	fake.delay_us = 2000;
	e = harness_engine(&config);
	client_ask(&c, e, &a);
	wait_for(fake.n_steps > 3);
	write_file(paths[0], "w21");
	ig_engine_reload(e, &config);
	wait_for(state_of(e, "a") == IG_MODEL_LOADING);
	atomic_store(&n_ready, 0);
	assert_int_equal(take(e, "a", &m, &err), -EINPROGRESS);
	assert_answers(e, "b", "good"); /* meanwhile */
	assert_int_equal(atomic_load(&n_ready), 0);
	assert_int_equal(fake.n_programs, 2);
	wait_for(atomic_load(&n_ready) == 1);
	client_finish(&c);
	assert_answer(&c, &a);
	assert_answers(e, "a", "w21");
	assert_int_equal(fake.n_programs, 2);
	/* while nobody uses it the same happens at once */
	write_file(paths[0], "w19");
	ig_engine_reload(e, &config);
	wait_for(status_of(e, "a").n_loads == 3);
	assert_answers(e, "a", "w19");
	/* one that does not fit even then: the old one stays */
	write_file(paths[0], "w40");
	ig_engine_reload(e, &config);
	wait_for(status_of(e, "a").error[0]);
	assert_non_null(strstr(status_of(e, "a").error,
			       "there is no space for the model a now: it needs "
			       "40.50 MiB"));
	assert_int_equal(state_of(e, "a"), IG_MODEL_READY);
	assert_answers(e, "a", "w19");
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
	e = harness_engine(&config);
	write_file(paths[0], "rubbish");
	ig_engine_reload(e, &config);
	wait_for(status_of(e, "a").error[0]);
	st = status_of(e, "a");
	snprintf(text, sizeof text, "%s: not a model", paths[0]);
	assert_string_equal(st.error, text);
	assert_int_equal(st.state, IG_MODEL_READY);
	assert_int_equal(counter(IG_COUNTER_MODEL_LOAD_FAILURES), 1);
	assert_answers(e, "a", "good");
	write_file(paths[0], "noload"); /* opens, but can't be loaded */
	ig_engine_reload(e, &config);
	wait_for(counter(IG_COUNTER_MODEL_LOAD_FAILURES) == 2);
	assert_answers(e, "a", "good");
	unlink(paths[0]);
	ig_engine_reload(e, &config);
	wait_for(counter(IG_COUNTER_MODEL_LOAD_FAILURES) == 3);
	assert_answers(e, "a", "good");
	write_file(paths[0], "good2");
	ig_engine_reload(e, &config);
	wait_for(status_of(e, "a").n_loads == 2);
	assert_string_equal(status_of(e, "a").error, "");
	assert_answers(e, "a", "good2");
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
	e = harness_engine(&config);
	client_ask(&c, e, &a);
	wait_for(fake.n_steps > 3);
	USE("nochat", "groups", "good2");
	first_use(1);
	ig_engine_reload(e, &config);
	assert_int_equal(ig_engine_models(e, st, 8), 3);
	assert_string_equal(st[0].name, "nochat");
	assert_true(st[0].is_default); /* the first, as none is named */
	assert_string_equal(st[2].name, "good2");
	assert_int_equal(take(e, "good", &m, &err), -ENOENT);
	wait_for(state_of(e, "nochat") == IG_MODEL_READY);	    /* load: start */
	wait_for(status_of(e, "groups").n_context == FAKE_CONTEXT); /* it was looked at */
	assert_int_equal(state_of(e, "groups"), IG_MODEL_UNLOADED);
	assert_answers(e, "groups", NULL);
	client_take(&c);
	assert_false(c.over);
	client_finish(&c);
	assert_answer(&c, &a); /* its model is no longer configured */
	wait_for(fake.n_programs == 3);
	/* a name that comes back is another entry */
	USE("good", "good2");
	set(&config.default_model, "good2");
	ig_engine_reload(e, &config);
	assert_answers(e, "good", NULL);
	assert_int_equal(take(e, NULL, &m, &err), 0);
	assert_string_equal(m->name, "good2");
	/* all of them */
	use(NULL, 0);
	ig_engine_reload(e, &config);
	assert_int_equal(ig_engine_models(e, st, 8), 0);
	assert_int_equal(take(e, "good2", &(const struct ig_engine_model *){ NULL }, &err),
			 -ENOENT);
	assert_string_equal(m->name, "good2"); /* held still */
	ig_engine_release_model(m);
	wait_for(fake.n_programs == 0);
	USE("good");
	ig_engine_reload(e, &config);
	assert_answers(e, NULL, "good");
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
	config.aliases = aliases;
	config.n_aliases = 3;
	set(&config.server.model_id_prefix, "p/");
	e = harness_engine(&config);
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		bool known = ig_engine_model_name(e, rows[i].name, name);
		if (known != (rows[i].means != NULL) ||
		    strcmp(name, rows[i].means ? rows[i].means : ""))
			fail_msg("%s: %s", rows[i].name, name);
	}
	assert_int_equal(take(e, "claude-haiku-4", &m, &err), 0);
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
	set(&config.server.model_id_prefix, "q/");
	ig_engine_reload(e, &config);
	assert_true(ig_engine_model_name(e, "goose", name));
	assert_string_equal(name, "good");
	assert_false(ig_engine_model_name(e, "p/good", name));
	assert_int_equal(take(e, "p/good", &m, &err), -ENOENT);
	harness_close(e);
	free(config.server.model_id_prefix);
	config.server.model_id_prefix = NULL;
	config.aliases = NULL;
	config.n_aliases = 0;
}

/* A bad file of a new entry is reported at once, not at its first request. */
static void test_a_bad_entry(void **state)
{
	struct ig_model_status st;
	struct ig_error err;
	struct ig_engine *e = harness_engine(&config);

	USE("good", "noarch");
	first_use(1);
	ig_engine_reload(e, &config);
	wait_for(state_of(e, "noarch") == IG_MODEL_FAILED);
	st = status_of(e, "noarch");
	assert_string_equal(st.error, "architecture \"strange\" is not known; known: fake");
	assert_int_equal(take(e, "noarch", &(const struct ig_engine_model *){ NULL }, &err), -EIO);
	harness_close(e);
}

/* The same at the start: the others are served. */
static void test_a_bad_entry_at_start(void **state)
{
	struct ig_model_status st;
	struct ig_error err;
	struct ig_engine *e;

	USE("good", "noarch");
	first_use(1);
	e = harness_engine(&config);
	st = status_of(e, "noarch");
	assert_int_equal(st.state, IG_MODEL_FAILED);
	assert_string_equal(st.error, "architecture \"strange\" is not known; known: fake");
	assert_int_equal(take(e, "noarch", &(const struct ig_engine_model *){ NULL }, &err), -EIO);
	assert_answers(e, "good", NULL);
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
	first_use(1);
	first_use(2);
	e = harness_engine(&config);
	atomic_store(&n_ready, 0);
	fake_gate_loads(true);
	assert_int_equal(take(e, "good2", &m, &err), -EINPROGRESS);
	fake_wait_for_load();
	assert_int_equal(take(e, "groups", &m, &err), -EINPROGRESS); /* queued behind it */
	USE("good");
	ig_engine_reload(e, &config);
	assert_int_equal(atomic_load(&n_ready), 2);
	assert_int_equal(take(e, "good2", &m, &err), -ENOENT);
	fake_gate_loads(false);
	wait_for(fake.n_programs == 1);
	assert_answers(e, "good", NULL);
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
	first_use(0);
	e = harness_engine(&config);
	fake_gate_loads(true);
	assert_int_equal(take(e, "a", &m, &err), -EINPROGRESS);
	fake_wait_for_load();
	set(&config.models[0].path, "good2");
	ig_engine_reload(e, &config);
	fake_gate_loads(false);
	assert_answers(e, "a", "good2");
	wait_for(fake.n_programs == 2);
	assert_int_equal(status_of(e, "a").n_loads, 1);
	harness_close(e);
	drop_files(paths);
}

/* ---- failures ------------------------------------------------------------------------------------ */

static void test_load_fails(void **state)
{
	const struct ig_engine_model *m;
	struct ig_error err;
	struct ig_engine *e;
	int n_opens;

	USE("good", "good2");
	first_use(1);
	e = harness_engine(&config);
	atomic_store(&fake.fail_load, true);
	assert_int_equal(await(e, "good2", &m, &err), -EIO);
	assert_string_equal(err.text,
			    "the model good2 could not be loaded: the fake device has no space");
	assert_int_equal(state_of(e, "good2"), IG_MODEL_FAILED);
	assert_string_equal(status_of(e, "good2").error, "the fake device has no space");
	assert_true(gauge(IG_GAUGE_WEIGHT_BYTES) == MIB);
	/* not tried again for a while */
	n_opens = fake.n_opens;
	for (int i = 0; i < 10; i++)
		assert_int_equal(take(e, "good2", &m, &err), -EIO);
	assert_int_equal(fake.n_opens, n_opens);
	assert_answers(e, "good", NULL);
	/* who unloads it has it tried again at once */
	atomic_store(&fake.fail_load, false);
	assert_int_equal(ig_engine_unload_model(e, "good2", &err), 0);
	assert_int_equal(state_of(e, "good2"), IG_MODEL_UNLOADED);
	assert_answers(e, "good2", NULL);
	harness_close(e);
}

#ifdef WRAP_MALLOC
/* Each allocation of a take, its load and a first request fails once. */
static void test_without_memory(void **state)
{
	const struct ig_engine_model *m;
	struct ig_error err = { 0 };
	int n, n_failed = 0;

	USE("good", "wide");
	first_use(1);
	for (n = 1;; n++) {
		struct ig_engine *e;
		atomic_int mine;
		bool failed;
		int rc;

		fake_reset();
		e = harness_engine(&config);
		usleep(1000);
		atomic_init(&mine, 0);
		fake.fail_any_at = n;
		err = (struct ig_error){ 0 };
		rc = ig_engine_take_model(e, "wide", on_ready, &mine, &m, &err);
		if (rc == -EINPROGRESS) {
			wait_for(atomic_load(&mine));
			rc = ig_engine_take_model(e, "wide", NULL, NULL, &m, &err);
		}
		failed = !fake.fail_any_at;
		fake.fail_any_at = 0;
		if (rc) {
			n_failed++;
			assert_true(failed && (rc == -EIO || rc == -ENOMEM));
			assert_true(err.text[0]);
			assert_true(gauge(IG_GAUGE_WEIGHT_BYTES) == MIB);
			assert_int_equal(fake.n_programs, 1);
			assert_int_equal(ig_engine_unload_model(e, "wide", &err), 0);
		} else {
			ig_engine_release_model(m);
		}
		assert_answers(e, "good", NULL);
		assert_answers(e, "wide", NULL);
		harness_close(e);
		if (!failed)
			break;
	}
	assert_true(n_failed > 15);
}

static void test_reload_without_memory(void **state)
{
	static const char *const other[] = { "good", "groups", "nochat" };
	struct ig_model_status st[4];
	struct ig_config next = { 0 };

	harness_config(&next, other, 3);
	for (int n = 1;; n++) {
		struct ig_engine *e;
		bool failed;

		fake_reset();
		e = harness_engine(&config);
		fake_fail_here(n - 1);
		ig_engine_reload(e, &next);
		failed = fake_failed_here();
		assert_int_equal(ig_engine_models(e, st, 4), failed ? 1 : 3);
		assert_answers(e, "good", NULL);
		ig_engine_reload(e, &next);
		assert_answers(e, "groups", NULL);
		harness_close(e);
		if (!failed)
			break;
	}
	harness_config_finish(&next);
}
#endif

/* ---- ends ---------------------------------------------------------------------------------------- */

static void test_destroy_while_loading(void **state)
{
	const struct ig_engine_model *m, *held;
	struct ig_error err;
	struct ig_engine *e;

	USE("good", "good2", "groups");
	first_use(1);
	first_use(2);
	e = harness_engine(&config);
	assert_int_equal(take(e, "good", &held, &err), 0);
	atomic_store(&n_ready, 0);
	fake_gate_loads(true);
	assert_int_equal(take(e, "good2", &m, &err), -EINPROGRESS);
	assert_int_equal(take(e, "groups", &m, &err), -EINPROGRESS);
	fake_wait_for_load();
	ig_engine_drain(e);
	assert_int_equal(atomic_load(&n_ready), 2); /* both are called */
	assert_int_equal(take(e, "good2", &m, &err), -ESHUTDOWN);
	assert_int_equal(take(e, "good", &m, &err), -ESHUTDOWN);
	fake_gate_loads(false);
	harness_close(e);
	assert_int_equal(atomic_load(&n_ready), 2);
	ig_engine_release_model(held); /* later than the engine's end */
}

static void test_held_past_the_end(void **state)
{
	const struct ig_engine_model *m[3];
	struct ig_error err;
	struct ig_engine *e;

	USE("good", "good2");
	e = harness_engine(&config);
	assert_int_equal(take(e, "good", &m[0], &err), 0);
	assert_int_equal(take(e, "good2", &m[1], &err), 0);
	m[2] = ig_engine_keep_model(m[1]);
	assert_int_equal(ig_engine_unload_model(e, "good2", &err), 0);
	harness_close(e);
	for (int i = 0; i < 3; i++)
		ig_engine_release_model(m[i]);
	ig_engine_release_model(NULL);
}

/* ---- everything at once ---------------------------------------------------------------------------- */

static atomic_bool over;
static atomic_int n_taken, n_waited, n_no_space;

struct worker {
	pthread_t thread;
	struct ig_engine *engine;
	unsigned seed;
	atomic_int ready;
};

static const char *const churned[] = { "good", "w10", "w11", "w12", "groups" };

static unsigned next_of(unsigned *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return *seed >> 16;
}

static void *takes(void *arg)
{
	struct worker *w = arg;
	static _Thread_local struct client c;

	while (!atomic_load(&over)) {
		struct ask a = { .model = churned[next_of(&w->seed) % 5],
				 .n_prompt = 10,
				 .max_tokens = 5,
				 .seed = w->seed };
		const struct ig_engine_model *m;
		struct ig_error err = { 0 };
		int rc;

		atomic_store(&w->ready, 0);
		rc = ig_engine_take_model(w->engine, a.model, on_ready, &w->ready, &m, &err);
		if (rc == -EINPROGRESS) {
			atomic_fetch_add(&n_waited, 1);
			while (!atomic_load(&w->ready))
				usleep(100);
			continue;
		}
		if (rc) {
			assert_true(rc == -ENOMEM || rc == -ENOENT);
			atomic_fetch_add(&n_no_space, 1);
			usleep(100);
			continue;
		}
		a.held = m;
		ig_engine_release_model(ig_engine_keep_model(m));
		client_ask(&c, w->engine, &a);
		ig_engine_release_model(m);
		client_finish(&c);
		assert_answer(&c, &a);
		atomic_fetch_add(&n_taken, 1);
	}
	return NULL;
}

static void *churns(void *arg)
{
	struct worker *w = arg;
	struct ig_model_status st[8];
	struct ig_error err;

	while (!atomic_load(&over)) {
		ig_engine_unload_model(w->engine, churned[next_of(&w->seed) % 5], &err);
		ig_engine_models(w->engine, st, 8);
		usleep(next_of(&w->seed) % 3000);
	}
	return NULL;
}

static void test_many_threads(void **state)
{
	enum { N = 6 };
	static struct worker workers[N];
	struct ig_config fewer = { 0 };
	struct ig_engine *e;
	int64_t until = ig_now_ns() + (int64_t)2 * 1000000000;

	use(churned, 5);
	harness_config(&fewer, churned, 4);
	for (size_t i = 0; i < 5; i++) {
		first_use(i);
		if (i < 4)
			set(&fewer.models[i].load, "first_use");
		config.models[i].keep_alive_ms = i == 1 ? 1 : 0;
	}
	config.memory.budget = (4 + 2 + 2 + 23 + 2) << 20;
	e = harness_engine(&config);
	atomic_store(&over, false);
	atomic_store(&n_taken, 0);
	for (unsigned i = 0; i < N; i++) {
		workers[i].engine = e;
		workers[i].seed = 77 * i + 1;
		assert_int_equal(
			pthread_create(&workers[i].thread, NULL, i ? takes : churns, &workers[i]),
			0);
	}
	for (int i = 0; ig_now_ns() < until || atomic_load(&n_taken) < 100; i++) {
		ig_engine_reload(e, i % 2 ? &config : &fewer);
		usleep(7000);
	}
	atomic_store(&over, true);
	for (int i = 0; i < N; i++)
		pthread_join(workers[i].thread, NULL);
	print_message("%d answers, %d waits, %d refusals, %d loads, %d unloads\n", n_taken,
		      n_waited, n_no_space, fake.n_loads, counter(IG_COUNTER_MODELS_UNLOADED));
	assert_true(n_waited > 10 && counter(IG_COUNTER_MODELS_UNLOADED) > 10);
	harness_close(e);
	harness_config_finish(&fewer);
}

static int make_folder(void **state) { return mkdtemp(folder) ? 0 : -1; }

static int drop_folder(void **state) { return rmdir(folder); }

int main(int argc, char **argv)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_first_use),
		T(test_streams_go_on),
		T(test_logits),
		T(test_no_memory_for_logits),
		T(test_a_full_cache_goes),
		T(test_least_recently_used_goes),
		T(test_memory_pressure),
		T(test_pressure_spares_what_runs),
		T(test_pinned_stay),
		T(test_contract_at_start),
		T(test_keep_alive),
		T(test_asked_keep_alive),
		T(test_latest),
		T(test_traits),
		T(test_unload),
		T(test_swap),
		T(test_swap_without_memory),
		T(test_swap_for_a_bad_file),
		T(test_add_and_remove),
		T(test_names),
		T(test_a_bad_entry),
		T(test_a_bad_entry_at_start),
		T(test_remove_while_loading),
		T(test_swap_while_loading),
		T(test_load_fails),
#ifdef WRAP_MALLOC
		T(test_without_memory),
		T(test_reload_without_memory),
#endif
		T(test_destroy_while_loading),
		T(test_held_past_the_end),
		T(test_many_threads),
	};

	(void)argv;
	if (argc > 1)
		harness_run_ahead = "on";
	return cmocka_run_group_tests_name(argc > 1 ? "models, running ahead" : "models", tests,
					   make_folder, drop_folder);
}
