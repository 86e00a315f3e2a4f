/*
 * test_models.c: models that come and go: loaded for a first request while others stream,
 * unloaded for one another's sake, after keep_alive or on request; what fails on the way;
 * many threads at once.
 */
#include "models_case.h"

/* ---- on first use ------------------------------------------------------------------------ */

static void test_first_use(void **state)
{
	const struct ig_engine_model *m;
	struct ig_model_status st;
	struct ig_error err;
	struct ig_engine *e;

	USE("good", "good2");
	models_first_use(1);
	e = harness_engine(&models_config);
	assert_int_equal(fake.n_programs, 1);
	assert_true(gauge(IG_GAUGE_MODELS_LOADED) == 1);
	assert_true(gauge(IG_GAUGE_WEIGHT_BYTES) == MIB);
	st = models_status(e, "good2");
	assert_int_equal(st.state, IG_MODEL_UNLOADED);
	assert_int_equal(st.n_context, FAKE_CONTEXT); /* known already */
	assert_int_equal(st.weight_bytes, MIB);
	assert_string_equal(st.arch, "fake");
	assert_int_equal(st.n_loads, 0);
	st = models_status(e, "good");
	assert_int_equal(st.state, IG_MODEL_READY);
	assert_true(st.is_default);
	assert_int_equal(st.n_loads, 1);
	assert_true(st.expires_s < 0);

	atomic_store(&models_n_ready, 0);
	fake_gate_loads(true);
	assert_int_equal(models_take(e, "good2", &m, &err), -EINPROGRESS);
	assert_string_equal(err.text, "the model good2 is being loaded");
	fake_wait_for_load();
	assert_int_equal(models_state(e, "good2"), IG_MODEL_LOADING);
	for (int i = 0; i < 3; i++)
		assert_int_equal(models_take(e, "good2", &m, &err), -EINPROGRESS);
	assert_int_equal(ig_engine_take_model(e, "good2", NULL, NULL, &m, &err), -EINPROGRESS);
	assert_int_equal(atomic_load(&models_n_ready), 0);
	models_assert_answers(e, "good", NULL); /* others stream */
	fake_gate_loads(false);
	wait_for(atomic_load(&models_n_ready) == 4);
	assert_int_equal(models_take(e, "good2", &m, &err), 0);
	assert_string_equal(m->name, "good2");
	st = models_status(e, "good2");
	assert_int_equal(st.state, IG_MODEL_READY);
	assert_int_equal(st.n_loads, 1);
	assert_true(st.loaded_s > 0 && !(st.idle_s > 0));
	models_assert_answers(e, "good2", NULL);
	ig_engine_release_model(m);
	assert_int_equal(fake.n_loads, 2);
	assert_true(gauge(IG_GAUGE_MODELS_LOADED) == 2);
	assert_true(gauge(IG_GAUGE_WEIGHT_BYTES) == 2 * MIB);
	usleep(20000);
	assert_int_equal(atomic_load(&models_n_ready), 4); /* each once */
	assert_true(models_status(e, "good2").idle_s > 0);
	harness_close(e);
}

/* What each device or machine has of the models that are loaded; on one device nothing is said of ranks. */
static void test_ranks(void **state)
{
	const struct ig_engine_model *m;
	struct ig_error err;
	struct ig_engine *e;

	USE("good", "good2");
	models_first_use(1);
	e = harness_engine(&models_config);
	assert_int_equal(fake.n_rank_gauges, 0);
	harness_close(e);
	fake.n_ranks = FAKE_RANKS;
	models_first_use(1);
	e = harness_engine(&models_config);
	for (int n = 1; n <= 2; n++) {
		pthread_mutex_lock(&fake.lock);
		assert_int_equal(fake.n_rank_gauges, FAKE_RANKS);
		for (uint32_t r = 0; r < FAKE_RANKS; r++) {
			assert_int_equal(fake.ranks[r].weights, (uint64_t)n * (r + 1) * MIB);
			assert_int_equal(fake.ranks[r].scratch, (uint64_t)n * (100 - r));
		}
		pthread_mutex_unlock(&fake.lock);
		if (n == 1) {
			atomic_store(&models_n_ready, 0);
			assert_int_equal(models_take(e, "good2", &m, &err), -EINPROGRESS);
			wait_for(atomic_load(&models_n_ready) == 1);
			assert_int_equal(models_take(e, "good2", &m, &err), 0);
			ig_engine_release_model(m);
		}
	}
	harness_close(e);
	fake.n_ranks = 0;
}

static void test_streams_go_on(void **state)
{
	static struct client c[4];
	struct ask a[4];
	struct ig_engine *e;
	int n_steps;

	USE("good", "good2", "groups");
	models_first_use(1);
	models_first_use(2);
	fake.delay_us = 300;
	e = harness_engine(&models_config);
	for (int i = 0; i < 4; i++) {
		a[i] = (struct ask){
			.n_prompt = 40, .prompt_seed = (unsigned)i, .seed = 3, .max_tokens = 400
		};
		client_ask(&c[i], e, &a[i]);
	}
	wait_for(fake.n_steps > 10);
	fake_gate_loads(true);
	n_steps = fake.n_steps;
	assert_int_equal(models_take(e, "good2", &(const struct ig_engine_model *){ NULL },
				     &(struct ig_error){ 0 }),
			 -EINPROGRESS);
	fake_wait_for_load();
	wait_for(fake.n_steps > n_steps + 50); /* though it does not end */
	fake_gate_loads(false);
	models_assert_answers(e, "good2", NULL);
	models_assert_answers(e, "groups", NULL);
	for (int i = 0; i < 4; i++) {
		client_finish(&c[i]);
		models_assert_answer(&c[i], &a[i]);
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
	models_first_use(1);
	fake.delay_us = 200;
	e = harness_engine(&models_config);
	scratch = gauge(IG_GAUGE_SCRATCH_BYTES);
	client_ask(&c, e, &a);
	wait_for(fake.n_logit_steps > 5);
	models_touch(e, "wide");
	client_ask(&w, e, &wide);
	client_finish(&w);
	models_assert_answer(&w, &wide);
	assert_int_equal(w.n_logprobs, 20);
	assert_true(gauge(IG_GAUGE_SCRATCH_BYTES) >=
		    scratch + (1 << 19) + 16 * 4 * (FAKE_WIDE_LOGITS - FAKE_LOGITS));
	assert_int_equal(ig_engine_unload_model(e, "wide", &(struct ig_error){ 0 }), 0);
	wait_for(gauge(IG_GAUGE_MODELS_LOADED) == 1);
	client_finish(&c);
	models_assert_answer(&c, &a);
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
	models_first_use(1);
	models_config.memory.budget = (4 + 3) * MIB + 100000;
	e = harness_engine(&models_config);
	models_touch(e, "wide");
	assert_int_equal(client_try(&c, e, &a, &err), -EINVAL);
	assert_string_equal(err.text,
			    "log probabilities of wide are not available: memory.budget has "
			    "no space for them");
	a.n_probs = 0;
	client_ask(&c, e, &a);
	client_finish(&c);
	models_assert_answer(&c, &a);
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
	e = harness_engine(&models_config);
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
	models_assert_answer(&c, &a);
	fake.unmap_us = 0;
	harness_close(e);
}

/* ---- the memory contract ----------------------------------------------------------------------- */

/* A budget for the arena and two of three models of 10 MiB. */
static void use_tight(void)
{
	USE("good", "w10", "w11", "w12");
	for (size_t i = 1; i < 4; i++)
		models_first_use(i);
	models_config.models[0].pin = true;
	models_config.memory.budget = (4 + 2 + 23 + 2) << 20;
}

static void test_least_recently_used_goes(void **state)
{
	const struct ig_engine_model *m, *n;
	struct ig_error err;
	struct ig_engine *e;

	use_tight();
	e = harness_engine(&models_config);
	models_touch(e, "w10");
	models_touch(e, "w11");
	assert_int_equal(fake.n_programs, 3);
	models_touch(e, "w10"); /* now w11 is older */
	models_touch(e, "w12");
	assert_int_equal(models_state(e, "w11"), IG_MODEL_UNLOADED);
	assert_int_equal(models_state(e, "w10"), IG_MODEL_READY);
	assert_int_equal(models_state(e, "good"), IG_MODEL_READY);
	assert_int_equal(fake.n_programs, 3);
	assert_int_equal(counter(IG_COUNTER_MODELS_UNLOADED), 1);
	assert_true(gauge(IG_GAUGE_WEIGHT_BYTES) == 23 * MIB);
	models_touch(e, "w11");
	assert_int_equal(models_state(e, "w10"), IG_MODEL_UNLOADED);
	assert_int_equal(models_status(e, "w11").n_loads, 2);

	/* Those in use stay, and nobody is unloaded for a load that can't be. */
	assert_int_equal(models_take(e, "w11", &m, &err), 0);
	assert_int_equal(models_take(e, "w12", &n, &err), 0);
	assert_int_equal(models_take(e, "w10", &(const struct ig_engine_model *){ NULL }, &err),
			 -ENOMEM);
	assert_string_equal(
		err.text,
		"there is no space for the model w10 now: it needs 10.50 MiB "
		"(weights 10.00, scratch 0.50); of memory.budget, 31.00 MiB, 1.49 are free; "
		"raise it, or unload or unpin another model");
	assert_int_equal(models_state(e, "w10"), IG_MODEL_UNLOADED);
	ig_engine_release_model(n);
	models_assert_answers(e, "w10", NULL);
	assert_int_equal(models_state(e, "w12"), IG_MODEL_UNLOADED);
	assert_int_equal(models_state(e, "w11"), IG_MODEL_READY);
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
	e = harness_engine(&models_config);
	models_touch(e, "w10");
	models_touch(e, "w11");
	models_touch(e, "w10");
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
	assert_int_equal(models_state(e, "w11"), IG_MODEL_UNLOADED);
	assert_int_equal(models_state(e, "w10"), IG_MODEL_READY);
	wait_for(gauge(IG_GAUGE_KV_CACHED_BYTES) < 1);
	fake.on_memory(fake.memory_ctx, (uint64_t)1 << 40);
	wait_for(counter(IG_COUNTER_MODELS_UNLOADED) == 2);
	assert_int_equal(models_state(e, "w10"), IG_MODEL_UNLOADED);
	assert_int_equal(models_state(e, "good"), IG_MODEL_READY); /* pinned */
	assert_int_equal(counter(IG_COUNTER_MEMORY_PRESSURE), 4);
	models_assert_answers(e, "w11", NULL); /* it is loaded again when it is wanted */
	harness_close(e);
}

/* A request that runs keeps its model and its blocks; what has passed frees nothing. */
static void test_pressure_spares_what_runs(void **state)
{
	static const struct ask ask = { .model = "w10", .n_prompt = 200, .max_tokens = 60 };
	struct client c;
	struct ig_engine *e;

	use_tight();
	e = harness_engine(&models_config);
	models_touch(e, "w10");
	models_touch(e, "w11");
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
	wait_for(models_state(e, "w11") != IG_MODEL_READY);
	fake.on_memory(fake.memory_ctx, 0);
	fake_allow(2);
	fake_wait_at_gate();
	fake_open_gate();
	client_finish(&c);
	models_assert_answer(&c, &ask);
	wait_for(models_state(e, "w11") == IG_MODEL_UNLOADED);
	assert_int_equal(models_state(e, "w10"), IG_MODEL_READY);
	assert_int_equal(counter(IG_COUNTER_MEMORY_PRESSURE), 1);
	harness_close(e);
}

static void test_pinned_stay(void **state)
{
	struct ig_error err;
	struct ig_engine *e;
	const struct ig_engine_model *m;

	use_tight();
	models_config.models[1].pin = true;
	models_config.models[2].pin = true;
	e = harness_engine(&models_config);
	models_touch(e, "w10");
	models_touch(e, "w11");
	assert_int_equal(models_take(e, "w12", &m, &err), -ENOMEM);
	assert_int_equal(ig_engine_unload_model(e, "w10", &err), 0); /* also pinned ones */
	wait_for(models_state(e, "w10") == IG_MODEL_UNLOADED);
	models_touch(e, "w12");
	harness_close(e);
}

static void assert_refused(const char *text)
{
	struct ig_engine_deps deps = { .config = &models_config,
				       .metrics = (struct ig_metrics *)&fake };
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
	models_first_use(1);
	models_first_use(2);
	models_config.kvcache.arena = 0;
	e = harness_engine(&models_config);
	assert_true(gauge(IG_GAUGE_KV_ARENA_BYTES) <= (64 - 1.5 - 30.5) * MIB);
	assert_true(gauge(IG_GAUGE_KV_ARENA_BYTES) >= (64 - 1.5 - 30.5 - 1) * MIB);
	models_touch(e, "w30");
	assert_int_equal(models_state(e, "good"), IG_MODEL_READY);
	harness_close(e);

	/* One that could never be loaded is a mistake of the configuration. */
	models_config.models[0].pin = true;
	models_config.kvcache.arena = 40 * MIB;
	assert_refused(
		"model w30, with those that are pinned, needs 72.0 MiB (weights 31.0, scratch "
		"1.0, cache 40.0), the budget is 64.0 MiB; set memory.budget, or pin fewer models");
	/* Without the pin it may take the other's place. */
	models_config.models[0].pin = false;
	models_config.kvcache.arena = 33 * MIB;
	e = harness_engine(&models_config);
	models_touch(e, "w30");
	assert_int_equal(models_state(e, "good"), IG_MODEL_UNLOADED);
	harness_close(e);
	/* What loads at start must fit as a whole. */
	models_set(&models_config.models[2].load, "start");
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
	models_config.models[1].keep_alive_ms = 150;
	e = harness_engine(&models_config);
	assert_int_equal(models_take(e, "good2", &m, &err), 0);
	st = models_status(e, "good2");
	assert_true(st.expires_s < 0 && !(st.idle_s > 0));
	usleep(250000);
	assert_int_equal(models_state(e, "good2"), IG_MODEL_READY); /* somebody has it */
	ig_engine_release_model(m);
	st = models_status(e, "good2");
	assert_true(st.expires_s > 0 && st.expires_s <= 0.15);
	wait_for(models_state(e, "good2") == IG_MODEL_UNLOADED);
	wait_for(fake.n_programs == 1);
	models_assert_answers(e, "good2", NULL);
	wait_for(models_state(e, "good2") == IG_MODEL_UNLOADED);
	assert_int_equal(models_state(e, "good"), IG_MODEL_READY);
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
	e = harness_engine(&models_config);
	assert_int_equal(models_take(e, "good", &m, &err), 0);
	ig_engine_set_keep_alive(m, (int64_t)3600 * 1000000000);
	assert_true(models_status(e, "good").expires_s < 0); /* somebody has it */
	assert_true(models_status(e, "good").keep_alive_s == 3600);
	ig_engine_release_model(m);
	st = models_status(e, "good");
	assert_true(st.expires_s > 3500 && st.expires_s <= 3600);
	assert_true(models_status(e, "good2").keep_alive_s == -1);
	models_config.models[0].keep_alive_ms = 7200000;
	ig_engine_reload(e, &models_config);
	assert_true(models_status(e, "good").expires_s > 3700);
	/* 0: when its last holder has released it */
	assert_int_equal(models_take(e, "good", &m, &err), 0);
	ig_engine_set_keep_alive(m, 0);
	assert_int_equal(models_state(e, "good"), IG_MODEL_READY);
	ig_engine_release_model(m);
	wait_for(models_state(e, "good") == IG_MODEL_UNLOADED);
	/* the next one has the configuration's again */
	models_touch(e, "good");
	assert_true(models_status(e, "good").keep_alive_s == 7200);
	assert_int_equal(models_take(e, "good", &m, &err), 0);
	ig_engine_set_keep_alive(m, -1);
	ig_engine_release_model(m);
	assert_true(models_status(e, "good").expires_s == -1);
	harness_close(e);
}

static void test_latest(void **state)
{
	const struct ig_engine_model *m;
	struct ig_error err;
	struct ig_engine *e;

	USE("good", "good2");
	e = harness_engine(&models_config);
	assert_int_equal(models_take(e, "good:latest", &m, &err), 0);
	assert_string_equal(m->name, "good");
	ig_engine_release_model(m);
	assert_int_equal(models_take(e, "good:7b", &m, &err), -ENOENT);
	assert_int_equal(models_take(e, ":latest", &m, &err), -ENOENT);
	assert_int_equal(models_take(e, "goo:latest", &m, &err), -ENOENT);
	harness_close(e);
}

static void test_traits(void **state)
{
	struct ig_engine *e;

	USE("good", "nochat");
	e = harness_engine(&models_config);
	struct ig_model_traits a = models_status(e, "good").traits,
			       b = models_status(e, "nochat").traits;
	assert_int_equal(a.n_params, 96);
	assert_int_equal(a.file_bytes, 77);
	assert_string_equal(a.quantization, "Q8_0");
	assert_string_equal(a.format, "gguf");
	assert_true(a.thinking && !a.tools && !b.thinking);
	/* requests copy the style */
	const struct ig_engine_model *m;
	struct ig_error err = { 0 };
	assert_int_equal(models_take(e, "good", &m, &err), 0);
	assert_true(m->style.reasoning && m->style.calls == IG_TOOL_CALLS_NONE);
	ig_engine_release_model(m);
	assert_int_equal(models_take(e, "nochat", &m, &err), 0);
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
	e = harness_engine(&models_config);
	assert_int_equal(ig_engine_unload_model(e, "best", &err), -ENOENT);
	assert_string_equal(err.text, "no model is named \"best\"; known: good, good2");
	client_ask(&c, e, &a);
	fake_wait_at_gate();
	assert_int_equal(ig_engine_unload_model(e, "good", &err), 0);
	assert_int_equal(models_state(e, "good"), IG_MODEL_UNLOADING);
	assert_int_equal(models_status(e, "good").n_active, 1);
	/* requested again, it is loaded beside the one that is unloaded */
	fake_gate_loads(true);
	assert_int_equal(client_try(&d, e, &a, &err), -EINPROGRESS);
	assert_int_equal(models_state(e, "good"), IG_MODEL_LOADING);
	fake_wait_for_load();
	/* a load that is discarded, and waiters are called */
	atomic_store(&models_n_ready, 0);
	assert_int_equal(models_take(e, "good", &(const struct ig_engine_model *){ NULL }, &err),
			 -EINPROGRESS);
	assert_int_equal(ig_engine_unload_model(e, "good", &err), 0);
	fake_open_gate();
	fake_gate_loads(false);
	wait_for(atomic_load(&models_n_ready) == 1);
	client_finish(&c);
	models_assert_answer(&c, &a);
	wait_for(models_state(e, "good") == IG_MODEL_UNLOADED);
	wait_for(fake.n_programs == 1);
	models_touch(e, "good");
	client_ask(&d, e, &a);
	client_finish(&d);
	models_assert_answer(&d, &a);
	harness_close(e);
}

/* ---- failures ------------------------------------------------------------------------------------ */

static void test_load_fails(void **state)
{
	const struct ig_engine_model *m;
	struct ig_error err;
	struct ig_engine *e;
	int n_opens;

	USE("good", "good2");
	models_first_use(1);
	e = harness_engine(&models_config);
	atomic_store(&fake.fail_load, true);
	assert_int_equal(models_await(e, "good2", &m, &err), -EIO);
	assert_string_equal(err.text,
			    "the model good2 could not be loaded: the fake device has no space");
	assert_int_equal(models_state(e, "good2"), IG_MODEL_FAILED);
	assert_string_equal(models_status(e, "good2").error, "the fake device has no space");
	assert_true(gauge(IG_GAUGE_WEIGHT_BYTES) == MIB);
	/* not tried again for a while */
	n_opens = fake.n_opens;
	for (int i = 0; i < 10; i++)
		assert_int_equal(models_take(e, "good2", &m, &err), -EIO);
	assert_int_equal(fake.n_opens, n_opens);
	models_assert_answers(e, "good", NULL);
	/* who unloads it has it tried again at once */
	atomic_store(&fake.fail_load, false);
	assert_int_equal(ig_engine_unload_model(e, "good2", &err), 0);
	assert_int_equal(models_state(e, "good2"), IG_MODEL_UNLOADED);
	models_assert_answers(e, "good2", NULL);
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
	models_first_use(1);
	for (n = 1;; n++) {
		struct ig_engine *e;
		atomic_int mine;
		bool failed;
		int rc;

		fake_reset();
		e = harness_engine(&models_config);
		usleep(1000);
		atomic_init(&mine, 0);
		fake.fail_any_at = n;
		err = (struct ig_error){ 0 };
		rc = ig_engine_take_model(e, "wide", models_on_ready, &mine, &m, &err);
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
		models_assert_answers(e, "good", NULL);
		models_assert_answers(e, "wide", NULL);
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
		e = harness_engine(&models_config);
		fake_fail_here(n - 1);
		ig_engine_reload(e, &next);
		failed = fake_failed_here();
		assert_int_equal(ig_engine_models(e, st, 4), failed ? 1 : 3);
		models_assert_answers(e, "good", NULL);
		ig_engine_reload(e, &next);
		models_assert_answers(e, "groups", NULL);
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
	models_first_use(1);
	models_first_use(2);
	e = harness_engine(&models_config);
	assert_int_equal(models_take(e, "good", &held, &err), 0);
	atomic_store(&models_n_ready, 0);
	fake_gate_loads(true);
	assert_int_equal(models_take(e, "good2", &m, &err), -EINPROGRESS);
	assert_int_equal(models_take(e, "groups", &m, &err), -EINPROGRESS);
	fake_wait_for_load();
	ig_engine_drain(e);
	assert_int_equal(atomic_load(&models_n_ready), 2); /* both are called */
	assert_int_equal(models_take(e, "good2", &m, &err), -ESHUTDOWN);
	assert_int_equal(models_take(e, "good", &m, &err), -ESHUTDOWN);
	fake_gate_loads(false);
	harness_close(e);
	assert_int_equal(atomic_load(&models_n_ready), 2);
	ig_engine_release_model(held); /* later than the engine's end */
}

static void test_held_past_the_end(void **state)
{
	const struct ig_engine_model *m[3];
	struct ig_error err;
	struct ig_engine *e;

	USE("good", "good2");
	e = harness_engine(&models_config);
	assert_int_equal(models_take(e, "good", &m[0], &err), 0);
	assert_int_equal(models_take(e, "good2", &m[1], &err), 0);
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
		rc = ig_engine_take_model(w->engine, a.model, models_on_ready, &w->ready, &m, &err);
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
		models_assert_answer(&c, &a);
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

	models_use(churned, 5);
	harness_config(&fewer, churned, 4);
	for (size_t i = 0; i < 5; i++) {
		models_first_use(i);
		if (i < 4)
			models_set(&fewer.models[i].load, "first_use");
		models_config.models[i].keep_alive_ms = i == 1 ? 1 : 0;
	}
	models_config.memory.budget = (4 + 2 + 2 + 23 + 2) << 20;
	e = harness_engine(&models_config);
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
		ig_engine_reload(e, i % 2 ? &models_config : &fewer);
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

int main(int argc, char **argv)
{
#define T(f) cmocka_unit_test_setup_teardown(f, models_setup, models_teardown)
	const struct CMUnitTest tests[] = {
		T(test_first_use),
		T(test_ranks),
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
					   NULL, NULL);
}
