/*
 * test_gaps.c: the gaps between a stream's tokens while sixteen long prompts arrive, as its client sees them:
 * the time of all steps between two that bring it tokens, by what the driver says that they took.  And what a very long
 * one and the stream beside it keep of their speed.
 */
#include "harness.h"

#define N_PROMPTS 16 /* at most */
#define N_STREAMS 4  /* at most */
#define CHUNK 512
#define N_QUIET 1000 /* steps before the prompts come */
#define MOST_GAPS 40000

static struct ig_config config;

/* ---- devices ------------------------------------------------------------------------------------ */

/* What a step takes, in ms: of n rows, of which n_long are a prompt's, behind `depth` thousand tokens on average. */
typedef double (*device)(int32_t n, int32_t n_long, double depth);

/* SmolLM2-135M on one core: each row costs the same, and more behind many tokens. */
static double a_cpu(int32_t n, int32_t n_long, double depth)
{
	return 7 + n + n_long * 0.35 * depth + (n_long ? 2 * depth : 0);
}

/* TinyLlama 1.1B on an H200: 16 rows are nearly free, more are computed by other kernels. */
static double a_gpu(int32_t n, int32_t n_long, double depth)
{
	return n <= 16 ? 1.3 + 0.002 * n : 1.3 + 0.5 + 0.006 * n + 0.0005 * n_long * depth;
}

/* Where these cost more. */
static double a_slow_gpu(int32_t n, int32_t n_long, double depth)
{
	return n <= 16 ? 0.93 + 0.002 * n : 0.93 + 1.2 + 0.006 * n + 0.0005 * n_long * depth;
}

/* The same far into a prompt: of a step with few rows most is attention, which costs hardly more with many. */
static double a_gpu_far(int32_t n, int32_t n_long, double depth)
{
	return 0.87 +
	       (n_long ? 0.3 + 0.035 * depth + n_long * (0.015 + 0.00008 * depth) : 0.002 * n);
}

/* ---- what the clients see ----------------------------------------------------------------------- */

struct gaps {
	double ms[MOST_GAPS];
	int n;
};

static struct {
	device device;
	int n_prompts;
	int32_t n_tokens; /* of each */
	double guess_ms;  /* of a step of the draft model */
	double now, last[N_STREAMS + 1];
	struct gaps quiet, beside;
	double begin, end; /* of reading the prompts; 0: not yet */
	int n_read;	   /* prompts */
	int32_t n_accepted;
} seen;

static void note(struct gaps *g, double ms)
{
	if (g->n < MOST_GAPS)
		g->ms[g->n++] = ms;
}

/* A stream's seed is its number from 1, a prompt's 0. */
static void note_tokens(const struct ig_step *s)
{
	bool is_over = seen.n_read == seen.n_prompts;

	for (int32_t i = 0; i < s->n_logit_rows; i++) {
		uint64_t stream = s->sample[i].seed;
		/* the tokens of a draft come together */
		if (i && stream && s->sample[i - 1].seed == stream)
			continue;
		if (!stream)
			seen.n_read++;
		else if (seen.last[stream] > 0 && !is_over)
			note(seen.begin > 0 ? &seen.beside : &seen.quiet,
			     seen.now - seen.last[stream]);
		if (stream)
			seen.last[stream] = seen.now;
	}
	if (seen.n_read == seen.n_prompts && !is_over)
		seen.end = seen.now;
}

static int64_t see(const struct ig_step *s, bool small)
{
	bool decodes[N_PROMPTS + N_STREAMS] = { false };
	int32_t n_long = 0;
	double depth = 0, ms = seen.guess_ms;

	for (int32_t i = 0; i < s->n_logit_rows; i++)
		decodes[s->row_seq[s->logit_rows[i]]] |= s->sample[i].seed > 0;
	for (int32_t r = 0; r < s->n_rows; r++) {
		n_long += !decodes[s->row_seq[r]];
		depth += decodes[s->row_seq[r]] ? 0 : s->positions[r] * 1e-3;
	}
	if (!small) {
		ms = seen.device(s->n_rows, n_long, n_long ? depth / n_long : 0);
		if (n_long && seen.quiet.n && seen.begin <= 0)
			seen.begin = seen.now;
	}
	seen.now += ms;
	if (!small)
		note_tokens(s);
	return (int64_t)(ms * 1e6);
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The gap that `part` of all are not longer than. */
static double quantile(struct gaps *g, double part)
{
	assert_true(g->n > 0 && g->n < MOST_GAPS);
	qsort(g->ms, (size_t)g->n, sizeof g->ms[0], by_size);
	return g->ms[(int)(part * (g->n - 1))];
}

/* What the prompts would take in whole chunks, without streams. */
static double alone(void)
{
	double ms = 0;

	for (int32_t at = 0; at < seen.n_tokens; at += CHUNK) {
		int32_t n = seen.n_tokens - at < CHUNK ? seen.n_tokens - at : CHUNK;
		ms += seen.device(n, n, (at + n / 2) * 1e-3);
	}
	return ms * seen.n_prompts;
}

/* ---- the engine ------------------------------------------------------------------------------- */

/* A text that repeats itself, with exceptions. */
static int32_t nearly_a_circle(const int32_t *tokens, int32_t n)
{
	return n % 61 ? n % 7 : 7 + n / 61 % 40;
}

static void reset(void)
{
	fake_reset();
	memset(&seen, 0, sizeof seen);
}

static int teardown(void **state)
{
	harness_abandon();
	harness_config_finish(&config);
	return 0;
}

static struct ig_engine *make_engine(const char *speculation, const char *run_ahead,
				     uint32_t split_rows)
{
	static const char *const one[] = { "good" };

	fake.no_compute = fake.gated = true;
	fake.n_context = 65536;
	fake.split_rows = split_rows;
	fake.script = nearly_a_circle;
	fake.misguesses = 15;
	fake.took = see;
	harness_speculation = speculation;
	harness_run_ahead = run_ahead;
	harness_config(&config, one, 1);
	harness_speculation = harness_run_ahead = "off";
	if (!strcmp(speculation, "draft"))
		config.models[0].draft = (char *)(uintptr_t)"small:good";
	config.scheduler.max_seqs = N_PROMPTS + N_STREAMS;
	config.scheduler.max_batch_tokens = config.scheduler.prefill_chunk = CHUNK;
	config.scheduler.prompt_share = 36;
	config.kvcache.slab = 1 << 20;
	config.kvcache.arena = 64 << 20;
	config.memory.budget = (uint64_t)256 << 20;
	return harness_engine(&config);
}

/* ---- prompts arrive ---------------------------------------------------------------------------- */

struct arrival {
	const char *name;
	device device;
	uint32_t split_rows; /* that it says */
	double guess_ms;
	double least; /* that the prompts must keep of their speed */
	int n_prompts;
	int32_t n_tokens; /* of each */
};

static void arrive(const struct arrival *a, const char *speculation, float penalty,
		   const char *run_ahead, int n_streams)
{
	static struct client streams[N_STREAMS], prompts[N_PROMPTS];
	struct ig_engine *e = make_engine(speculation, run_ahead, a->split_rows);

	seen.device = a->device;
	seen.guess_ms = a->guess_ms;
	seen.n_prompts = a->n_prompts;
	seen.n_tokens = a->n_tokens;
	for (int i = 0; i < n_streams; i++) {
		client_ask(&streams[i], e,
			   &(struct ask){ .n_prompt = 8,
					  .prompt_seed = (unsigned)i + 100,
					  .ring = 1 << 20, /* all of it */
					  .repetition_penalty = penalty,
					  .seed = (unsigned)i + 1 });
		fake_wait_at_gate(); /* the first alone, then the others */
	}
	fake_allow(N_QUIET);
	fake_wait_at_gate();
	for (int i = 0; i < a->n_prompts; i++)
		client_ask(&prompts[i], e,
			   &(struct ask){ .n_prompt = a->n_tokens,
					  .prompt_seed = (unsigned)i,
					  .max_tokens = 1 });
	fake_open_gate();
	for (int i = 0; i < a->n_prompts; i++)
		client_finish(&prompts[i]);
	for (int i = 0; i < n_streams; i++) {
		ig_engine_cancel(e, streams[i].gen, "client_gone");
		client_finish(&streams[i]);
		seen.n_accepted += streams[i].result.n_accepted;
	}
	harness_close(e);
}

/* No gap is more than four times as long as a quiet engine's, 99 of 100 at most three times, and the prompts keep
 * their part. */
static bool keeps_bounds(const struct arrival *a)
{
	double median = quantile(&seen.quiet, 0.5), p99 = quantile(&seen.beside, 0.99);
	double longest = quantile(&seen.beside, 1);
	double kept = alone() / (seen.end - seen.begin);

	print_message("# %.2f ms alone; %d gaps, p99 %.2f, longest %.2f; prompts keep %.1f %%; %d "
		      "accepted\n",
		      median, seen.beside.n, p99 / median, longest / median, 100 * kept,
		      seen.n_accepted);
	return p99 <= 3 * median && longest <= 4 * median && kept >= a->least;
}

static void sixteen_prompts(const char *speculation, float penalty)
{
	static const struct arrival devices[] = {
		{ "cpu", a_cpu, 64, 0.8, 0.35, N_PROMPTS, 2000 },
		{ "gpu", a_gpu, 0, 0.12, 0.35, N_PROMPTS, 2000 },
		{ "slow gpu", a_slow_gpu, 0, 0.12, 0.13, N_PROMPTS, 2000 },
	};
	static const char *const ahead[] = { "off", "on" };
	int n_bad = 0, n_accepted = 0;

	for (int i = 0; i < 12; i++) {
		const struct arrival *a = &devices[i / 4];
		int n_streams = i % 2 ? N_STREAMS : 1;
		reset();
		print_message("# %s, run ahead %s, %d streams\n", a->name, ahead[i / 2 % 2],
			      n_streams);
		arrive(a, speculation, penalty, ahead[i / 2 % 2], n_streams);
		n_bad += !keeps_bounds(a);
		n_accepted += seen.n_accepted;
		harness_config_finish(&config);
	}
	memset(&config, 0, sizeof config);
	assert_int_equal(n_bad, 0);
	assert_int_equal(n_accepted > 0, strcmp(speculation, "off") != 0);
}

static void test_without_drafts(void **state) { sixteen_prompts("off", 0); }

static void test_beside_looked_up_drafts(void **state) { sixteen_prompts("lookup", 0); }

static void test_beside_a_draft_model(void **state) { sixteen_prompts("draft", 0); }

/* A stream whose sampling depends on its tokens is in no step that runs ahead. */
static void test_with_penalties(void **state) { sixteen_prompts("off", 1.1f); }

/* It has whole chunks to its end, where few rows would cost the most. */
static void test_a_very_long_prompt(void **state)
{
	static const struct arrival a = { "gpu", a_gpu_far, 0, 0.12, 0.35, 1, 30000 };
	static const char *const ahead[] = { "off", "on" };

	for (int i = 0; i < 2; i++) {
		reset();
		arrive(&a, "off", 0, ahead[i], 1);
		double ms = seen.end - seen.begin, kept = alone() / ms;
		double stream = seen.beside.n * quantile(&seen.quiet, 0.5) / ms;
		print_message("# run ahead %s: the stream keeps %.1f %%, the prompt %.1f %%\n",
			      ahead[i], 100 * stream, 100 * kept);
		assert_true(stream >= 0.6);
		assert_true(kept >= a.least);
		harness_config_finish(&config);
	}
	memset(&config, 0, sizeof config);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_a_very_long_prompt, teardown),
		cmocka_unit_test_teardown(test_without_drafts, teardown),
		cmocka_unit_test_teardown(test_beside_looked_up_drafts, teardown),
		cmocka_unit_test_teardown(test_beside_a_draft_model, teardown),
		cmocka_unit_test_teardown(test_with_penalties, teardown),
	};

	return cmocka_run_group_tests_name("gaps", tests, NULL, NULL);
}
