/*
 * test_progress.c: the engine's loop always gets on.  Its turns are called one by one, on one thread, by a
 * clock of the test's own, over the fake device and over files of blocks that come late, fail or have no
 * room.  Any requests come, are cancelled, read slowly, are late, of several models in a cache that is much too
 * small for them; models go and come, memory is short, options are reloaded.  From a seed all is the same again.
 *
 * After any turn: a loop that rests waits for something that comes; one that does not has moved something.
 * When nothing comes any more, every request ends, with the text that it would have alone.
 *
 *   test_progress [FIRST_SEED N_SEEDS]    to look for more
 */
#include "harness.h"
#include "sim_files.h"

#include "daemon/engine/admission_private.h"
#include "daemon/engine/endings_private.h"
#include "daemon/engine/loader_private.h"
#include "daemon/engine/models_private.h"
#include "daemon/engine/queue_private.h"
#include "daemon/engine/scheduler_state_private.h"
#include "daemon/engine/standstill_private.h"

#include "base/log.h"

#include <stdio.h>
#include <time.h>

#define N_CLIENTS 40   /* requests at once */
#define N_TURNS 1500   /* with events, then as many as are needed without */
#define MOST_IDLE 3000 /* turns that neither rest nor move anything */
#define MOST_TURNS 200000

/* ---- the clock ------------------------------------------------------------------------------- */

static int64_t now_ns;

/* In the place of the system's: a little later at each look, so that what works until a time ends. */
int clock_gettime(clockid_t id, struct timespec *t)
{
	now_ns += 500;
	t->tv_sec = now_ns / 1000000000;
	t->tv_nsec = now_ns % 1000000000;
	return 0;
}

static uint64_t random_state;

static unsigned draw_of(unsigned n)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (unsigned)((random_state * 0x2545f4914f6cdd1dull >> 33) % n);
}

static bool chance(unsigned percent) { return draw_of(100) < percent; }

static int64_t row_ns; /* of a step; with much, files are faster */

/* What a step takes, by the clock too. */
static int64_t took(const struct ig_step *step, bool small)
{
	int64_t ns = 10 * row_ns + step->n_rows * row_ns;

	ns = small ? ns / 10 : ns;

	now_ns += ns;
	return ns;
}

/* ---- the engine -------------------------------------------------------------------------------- */

static const char *const names[] = { "good", "window", "groups", "state", "good2", "texts" };
#define N_NAMES 6
#define STATE 3

struct reader {
	struct client c;
	struct ask ask;
	bool used, is_plain; /* is_plain: its text is known */
	int slow;	     /* percent: how seldom it reads */
	char id[24];
	int32_t prompt[FAKE_CONTEXT];
};

static struct sim {
	struct ig_config config;
	struct ig_backend b;
	struct ig_sched *sch;
	struct ig_models *models;
	const struct ig_engine_model *held[N_NAMES]; /* NULL: not loaded */
	struct ig_model *removed;		     /* is being, or was */
	int removed_name;
	struct ig_change change;
	struct reader readers[N_CLIENTS];
	uint64_t n_asked, n_rests, n_cancelled, n_done;
	unsigned seed;
} sim;

static void open_sim(unsigned seed)
{
	struct ig_error err = { 0 };
	uint32_t n_models;

	memset(&sim, 0, sizeof sim);
	sim.seed = seed;
	random_state = seed * 0x9e3779b97f4a7c15ull + 1;
	now_ns = 1000000000;
	fake_reset();
	n_models = 1 + draw_of(N_NAMES);
	harness_run_ahead = chance(50) ? "on" : "off";
	harness_speculation = chance(70) ? "on" : "off";
	harness_config(&sim.config, names, n_models);
	sim.config.scheduler.max_seqs = 2 + draw_of(10);
	sim.config.scheduler.max_batch_tokens = 32 + draw_of(100);
	sim.config.scheduler.prefill_chunk = 16 + draw_of(80);
	sim.config.scheduler.prompt_share = 5 + draw_of(90);
	sim.config.scheduler.max_queue = 30;
	sim.config.server.slow_client_timeout_ms = 50 + draw_of(5000);
	sim.config.kvcache.arena = (320 + draw_of(400)) << 10;
	if (chance(30))
		sim.config.kvcache.slab = 4 * SLAB_BYTES;
	if (chance(60))
		sim.config.models[0].draft =
			(char *)(uintptr_t)(chance(70) ? "small:good" : "small:brief");
	if (chance(70))
		sim.config.kvcache.disk = strdup("/kept");
	fake.memory = chance(50) ? 2 : 0;
	fake.split_rows = chance(50) ? 8 + draw_of(60) : 0;
	fake.took = took;
	row_ns = chance(50) ? 20000 : 2000000;
	atomic_store(&fake.misguesses, (int)draw_of(100));
	sim_files_reset(chance(50) ? 3 : 64);
	if (ig_backend_open(&sim.b, &sim.config, &err) ||
	    ig_sched_create(&sim.b, &sim.config, NULL, NULL, &sim.sch, &err) ||
	    ig_models_create(&sim.b, &sim.config, ig_sched_change, sim.sch, &sim.models, &err))
		fail_msg("seed %u: %s", seed, err.text);
	sim.b.metrics = (struct ig_metrics *)&fake;
	if (sim.b.disk)
		ig_kv_files_start(sim.b.disk, ig_sched_wake, sim.sch, &err);
	for (uint32_t i = 0; i < n_models; i++)
		if (ig_models_take(sim.models, names[i], NULL, NULL, &sim.held[i], &err))
			fail_msg("seed %u: %s", seed, err.text);
}

static void close_sim(void)
{
	for (int i = 0; i < N_NAMES; i++)
		if (sim.held[i])
			ig_engine_release_model(sim.held[i]);
	sim_files_take_all();
	ig_kv_disk_finish(sim.sch);
	ig_models_stop(sim.models);
	ig_models_destroy(sim.models);
	ig_kv_files_close(sim.b.disk);
	sim.b.disk = NULL;
	ig_sched_destroy(sim.sch);
	ig_backend_close(&sim.b);
	sim.config.models[0].draft = NULL;
	harness_config_finish(&sim.config);
	if (fake.n_errors)
		fail_msg("seed %u: %d breaches: %s", sim.seed, fake.n_errors, fake.error);
	assert_int_equal(fake.n_mapped, 0);
	assert_int_equal(fake.n_programs, 0);
}

/* ---- what is said when it does not get on --------------------------------------------------------- */

static const char *list_of(const struct ig_seq *s)
{
	return s->list == &sim.sch->waiting ? "waiting" :
	       s->list == &sim.sch->running ? "running" :
	       s->list == &sim.sch->ended   ? "ended" :
					      "nowhere";
}

static void show_state(void)
{
	const struct ig_sched *sch = sim.sch;
	struct ig_kv_stats kv;
	const struct ig_seq *s;

	sim.b.kv->stats(sim.b.cache, &kv);
	fprintf(stderr,
		"seed %u: %u wait, %u run, %u paused, %u hold blocks, %llu of %llu free, kv_blocked %d\n",
		sim.seed, sch->n_waiting, sch->n_running, sch->n_paused, sch->n_holding,
		(unsigned long long)kv.free_bytes, (unsigned long long)kv.arena_bytes,
		sch->kv_blocked);
	TAILQ_FOREACH(s, &sch->all, all)
		fprintf(stderr,
			"  %s %s of %s: %d of %d tokens, prompt %d, priority %d%s%s%s%s%s\n", s->id,
			list_of(s), s->model->name, s->n_done, s->n_tokens, s->n_prompt,
			s->priority, s->held ? ", held" : "", s->restore ? ", restores" : "",
			s->kv ? ", has blocks" : "", ig_seq_is_paused(s) ? ", paused" : "",
			s->n_flights ? ", in flight" : "");
}

#define FAIL(...)                                                                                  \
	do {                                                                                       \
		show_state();                                                                      \
		fail_msg(__VA_ARGS__);                                                             \
	} while (0)

/* ---- requests ---------------------------------------------------------------------------------------- */

static void ask_one(struct reader *r, int model)
{
	static const struct fake_grammar rules = { .n_tokens = 12, .modulus = 3 };
	struct ig_gen_spec spec = { 0 };
	struct ig_error err = { 0 };
	bool whole = !strcmp(names[model], "texts");
	struct ig_text texts[6];

	if (!sim.held[model])
		return;
	memset(r, 0, sizeof *r);
	snprintf(r->id, sizeof r->id, "r%llu", (unsigned long long)++sim.n_asked);
	r->ask = (struct ask){ .model = names[model], .seed = draw_of(3) };
	/* beginnings that many share */
	int32_t n_same = (int32_t)draw_of(200);
	r->ask.n_prompt = 1 + (int32_t)draw_of(chance(30) ? 380 : 60);
	make_prompt(r->prompt, r->ask.n_prompt, 100 + draw_of(1000));
	make_prompt(r->prompt, n_same < r->ask.n_prompt ? n_same : r->ask.n_prompt, draw_of(3));
	r->ask.prompt = r->prompt;
	r->ask.max_tokens = 1 + (int32_t)draw_of(chance(30) ? 130 : 20);
	if (whole) {
		spec.n_texts = 1 + (int32_t)draw_of(5);
		spec.texts = texts;
		r->ask.n_prompt = 0;
		for (int i = 0; i < spec.n_texts; i++) {
			texts[i].n_ids = texts[i].second = 1 + (int32_t)draw_of(30);
			r->ask.n_prompt += texts[i].n_ids;
		}
		make_prompt(r->prompt, r->ask.n_prompt, 5);
		spec.vectors = ig_vectors_create(spec.n_texts, FAKE_COLUMNS);
		spec.sampling.max_tokens = 0;
	}
	spec.model = sim.held[model];
	spec.prompt = r->prompt;
	spec.n_prompt = r->ask.n_prompt;
	spec.sampling = (struct ig_sampling){
		.temperature = 1, .top_p = 1, .seed = r->ask.seed, .max_tokens = r->ask.max_tokens
	};
	spec.n_top = -1;
	r->is_plain = !whole;
	if (!whole && chance(15)) {
		spec.sampling.frequency_penalty = 0.5;
	} else if (!whole && chance(10)) {
		spec.n_top = 2;
	} else if (!whole && chance(10)) {
		spec.grammar = fake_grammar(&rules);
		r->is_plain = false;
	} else if (!whole && chance(5)) {
		spec.prefill_only = true;
		r->is_plain = false;
	}
	spec.priority = chance(30) ? (int32_t)draw_of(5) - 2 : 0;
	if (chance(10)) {
		spec.deadline_ns = now_ns + draw_of(20000000);
		r->is_plain = false;
	}
	spec.stream = ig_stream_create(chance(20) ? 16 + draw_of(40) : 65536, NULL, NULL);
	if (spec.n_top >= 0)
		assert_int_equal(ig_stream_enable_logprobs(spec.stream, chance(50) ? 2 : 1024), 0);
	r->slow = chance(20) ? 90 + (int)draw_of(10) : (int)draw_of(50);
	snprintf(spec.id, sizeof spec.id, "%s", r->id);
	char address[16];
	snprintf(address, sizeof address, "10.0.0.%u", draw_of(4));
	spec.origin = ig_origin_create(
		"x", "test", address,
		&(struct ig_principal){ .identity = chance(30) ? 1 + draw_of(2) : 0,
					.weight = chance(20) ? 3 : 1 });
	r->c.stream = spec.stream;
	int rc = ig_sched_submit(sim.sch, &spec, &r->c.gen, &err);
	if (rc) {
		if (rc != -EAGAIN && rc != -E2BIG)
			FAIL("refused: %d %s", rc, err.text);
		ig_stream_unref(spec.stream);
		ig_stream_unref(r->c.stream);
	}
	r->used = !rc;
	ig_origin_unref(spec.origin);
	ig_grammar_unref(spec.grammar);
	ig_vectors_unref(spec.vectors);
}

/* It takes what is there; at the end its text is what it would be alone. */
static void read_one(struct reader *r)
{
	static char want[65536];
	size_t before = r->c.n_text + r->c.n_logprobs;

	client_take(&r->c);
	if (r->c.n_text + r->c.n_logprobs > before)
		ig_sched_resume(sim.sch, r->c.gen);
	if (!r->c.over)
		return;
	sim.n_done++;
	enum ig_finish f = r->c.result.finish;
	if (r->is_plain && (f == IG_FINISH_STOP || f == IG_FINISH_LENGTH)) {
		expected(&r->ask, want, sizeof want);
		/* one that is alone in a cache that is too small ends sooner */
		if (strncmp(r->c.text, want, strlen(r->c.text)) ||
		    (f == IG_FINISH_STOP && strcmp(r->c.text, want)))
			FAIL("%s of %s: \"%s\" for \"%s\"", r->id, r->ask.model, r->c.text, want);
	}
	client_drop(&r->c);
	r->used = false;
}

/* ---- models that go and come --------------------------------------------------------------------------- */

static void begin_change(struct ig_model *remove, struct ig_model *add)
{
	sim.change = (struct ig_change){ .remove = remove, .add = add };
	pthread_mutex_lock(&sim.sch->lock);
	sim.sch->change = &sim.change;
	ig_sched_wake_locked(sim.sch);
	pthread_mutex_unlock(&sim.sch->lock);
}

static bool is_changing(void) { return sim.sch->change; }

static void switch_models(void)
{
	int i = (int)draw_of(N_NAMES);

	if (is_changing())
		return;
	if (sim.removed) {
		begin_change(NULL, sim.removed);
		sim.held[sim.removed_name] = &sim.removed->shown;
		sim.removed = NULL;
		return;
	}
	if (!sim.held[i] || atomic_load(&sim.held[i]->instance->n_active))
		return;
	sim.removed = sim.held[i]->instance;
	sim.removed_name = i;
	sim.held[i] = NULL;
	begin_change(sim.removed, NULL);
}

/* ---- turns --------------------------------------------------------------------------------------------------- */

static void reload(void)
{
	static const char *const how[] = { "on", "off", "lookup", "draft" };

	free(sim.config.scheduler.speculation);
	sim.config.scheduler.speculation = strdup(how[draw_of(4)]);
	sim.config.scheduler.prompt_share = 5 + draw_of(90);
	ig_sched_reload(sim.sch, &sim.config);
}

static void make_events(void)
{
	struct reader *r = &sim.readers[draw_of(N_CLIENTS)];

	if (!r->used && chance(60))
		ask_one(r, (int)draw_of(N_NAMES));
	else if (r->used && chance(8)) {
		ig_sched_cancel(sim.sch, r->c.gen, "client_gone");
		r->is_plain = false;
	}
	for (int i = 0; i < N_CLIENTS; i++)
		if (sim.readers[i].used && !chance((unsigned)sim.readers[i].slow))
			read_one(&sim.readers[i]);
	if (chance(30))
		sim_files_work(draw_of(8), chance(10) ? 40 : 0, draw_of);
	if (chance(2))
		sim_files_lose(draw_of(20), draw_of);
	if (chance(1))
		ig_sched_reclaim(sim.sch, (uint64_t)draw_of(200) << 10);
	if (chance(1))
		reload();
	if (chance(2))
		switch_models();
}

/* It rests: whether anything comes that wakes it. */
static void rest(bool events)
{
	int64_t next = ig_sched_next_timeout(sim.sch);

	sim.n_rests++;
	if (sim.sch->events || events || (!sim.sch->figures.n_all && !is_changing()))
		return;
	if (sim_files_work(1, 0, draw_of))
		return;
	if (next < INT64_MAX) {
		now_ns = next > now_ns ? next : now_ns;
		return;
	}
	FAIL("seed %u: the loop sleeps, and nothing will wake it", sim.seed);
}

static void run_turns(bool events)
{
	uint64_t last = 0;
	int n_idle = 0;

	for (int i = 0; i < (events ? N_TURNS : MOST_TURNS); i++) {
		bool rests;
		if (events) {
			make_events();
		} else {
			for (int k = 0; k < N_CLIENTS; k++)
				if (sim.readers[k].used)
					read_one(&sim.readers[k]);
			if (chance(30))
				sim_files_work(1, 0, draw_of);
			if (!sim.sch->figures.n_all && !is_changing())
				return;
		}
		assert_true(ig_sched_turn(sim.sch, &rests));
		n_idle = rests || sim.sch->n_moves != last ? 0 : n_idle + 1;
		last = sim.sch->n_moves;
		if (n_idle > MOST_IDLE)
			FAIL("seed %u: %d turns without a rest moved nothing", sim.seed, n_idle);
		if (rests)
			rest(events);
	}
	if (!events)
		FAIL("seed %u: requests have not ended after %d turns", sim.seed, MOST_TURNS);
}

static void run_seed(unsigned seed)
{
	open_sim(seed);
	run_turns(true);
	run_turns(false);
	if (sim.removed) {
		switch_models();
		run_turns(false);
	}
	assert_int_equal(sim.sch->n_waiting + sim.sch->n_running + sim.sch->n_holding +
				 sim.sch->n_paused,
			 0);
	close_sim();
}

static unsigned first_seed = 1, n_seeds = 24;

/* One that was preempted and admitted again in one admission was twice among the prompts that others may wait
 * for: a list without an end. */
static void test_admitted_again(void **state) { run_seed(1005); }

static void test_any(void **state)
{
	for (unsigned i = 0; i < n_seeds; i++) {
		run_seed(first_seed + i);
		if (n_seeds > 100 && i % 50 == 0)
			fprintf(stderr,
				"seed %u: %llu asked, %llu done, %d steps, %llu rests, %d preempted, %d restored\n",
				first_seed + i, (unsigned long long)sim.n_asked,
				(unsigned long long)sim.n_done, (int)fake.n_steps,
				(unsigned long long)sim.n_rests,
				(int)fake.counters[IG_COUNTER_PREEMPTIONS], (int)fake.n_restored);
	}
}

/* ---- the guard --------------------------------------------------------------------------------------- */

static struct ig_kvcache_service broken;
static const struct ig_kvcache_service *whole;
static bool is_broken;

/* A mistake: there are never states for a step. */
static int no_states(struct ig_kv_seq *s, uint32_t n_from, uint32_t n_to, struct ig_kv_segment *out)
{
	return is_broken ? -ENOSPC : whole->seq_step(s, n_from, n_to, out);
}

/* A loop that goes round for nothing says so once, and goes on when it can. */
static void test_standstill(void **state)
{
	struct reader *r = &sim.readers[0];
	bool rests;

	for (unsigned seed = 1; open_sim(seed), !sim.held[STATE]; seed++)
		close_sim();
	whole = sim.b.kv;
	broken = *whole;
	broken.seq_step = no_states;
	sim.b.kv = &broken;
	is_broken = true;
	do {
		ask_one(r, STATE);
	} while (!r->used);
	TAILQ_FIRST(&sim.sch->all)->deadline_ns = 0;
	for (int i = 0; i < IG_STILL_TURNS + 20; i++) {
		assert_true(ig_sched_turn(sim.sch, &rests));
		ig_sched_watch_turn(sim.sch, rests);
		assert_false(rests);
	}
	assert_int_equal(counter(IG_COUNTER_STANDSTILLS), 1);
	is_broken = false;
	while (r->used) {
		assert_true(ig_sched_turn(sim.sch, &rests));
		ig_sched_watch_turn(sim.sch, rests);
		read_one(r);
	}
	assert_int_equal(counter(IG_COUNTER_STANDSTILLS), 1);
	assert_int_equal(sim.sch->n_still, 0);
	sim.b.kv = whole;
	close_sim();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_admitted_again),
					    cmocka_unit_test(test_any),
					    cmocka_unit_test(test_standstill) };

	ig_log_set_level(IG_LOG_ERROR);
	if (argc > 2) {
		first_seed = (unsigned)atoi(argv[1]);
		n_seeds = (unsigned)atoi(argv[2]);
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
