/*
 * test_pace.c: long prompts beside streams, with an engine that is only a formula: a step takes what its
 * streams take, and something for each row of a prompt.
 */
#include "daemon/engine/pace_private.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#define CHUNK 512
#define FEW 64

/* Times in ms. */
struct engine {
	struct ig_pace pace;
	struct ig_pace_account account;
	double quiet, row, step; /* of the streams, of a prompt's row, of a step that has one */
	double hiccup;		 /* that the next step takes longer */
	double few; /* that each of the first FEW rows of a prompt costs instead; 0: no more */
	int32_t prompt_rows; /* rows of the longest prompt */
	uint32_t n_streams, n_prompts;
	double share;
	/* what happened */
	double time, longest;
	int32_t n_rows, n_steps, n_mixed;
};

static void step(struct engine *e)
{
	struct ig_pace_plan plan = { .n_streams = e->n_streams,
				     .quiet_ns = ig_pace_quiet_ns(&e->pace, e->n_streams),
				     .share = e->share,
				     .n_all_streams = e->n_streams,
				     .n_prompts = e->n_prompts,
				     .chunk = CHUNK,
				     .n_rows = e->prompt_rows };
	int32_t rows = e->n_prompts ? ig_pace_rows(&e->account, &e->pace, &plan) : 0;

	assert_true(!e->n_streams || rows <= CHUNK);
	rows = rows < CHUNK ? rows : CHUNK;
	double row = e->few > 0 && rows <= FEW ? e->few : e->row;
	double ms = e->quiet + e->hiccup + row * rows + (rows ? e->step : 0);
	e->hiccup = 0;
	ig_pace_learn(&e->account, &e->pace,
		      &(struct ig_pace_step){ .n_decode = e->n_streams,
					      .n_prefill = (uint32_t)rows,
					      .n_long = (uint32_t)rows,
					      .limited = e->n_streams > 0,
					      .ns = ms * 1e6 });
	e->time += ms;
	e->longest = ms > e->longest ? ms : e->longest;
	e->n_rows += rows;
	e->n_mixed += rows > 0;
	e->n_steps++;
}

/* Streams that run alone, then beside the prompts for so many steps. */
static void run(struct engine *e, int n)
{
	uint32_t n_prompts = e->n_prompts;

	e->n_prompts = 0;
	for (int i = 0; i < 8; i++)
		step(e);
	e->n_prompts = n_prompts;
	for (int i = 0; i < 100; i++) /* until the costs are known */
		step(e);
	e->time = e->longest = 0;
	e->n_rows = e->n_steps = e->n_mixed = 0;
	for (int i = 0; i < n; i++)
		step(e);
}

/* What the streams keep of their speed, and the prompts of theirs. */
static double kept(const struct engine *e) { return e->n_steps * e->quiet / e->time; }
static double read(const struct engine *e)
{
	return e->n_rows * (e->row + e->step / CHUNK) / e->time;
}

static void test_shares(void **state)
{
	static const double shares[] = { 0.1, 0.33, 0.4, 0.6, 0.8 };

	for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
		struct engine e = {
			.quiet = 10, .row = 0.7, .n_streams = 1, .n_prompts = 1, .share = shares[i]
		};
		run(&e, 2000);
		assert_true(kept(&e) > 1 - shares[i] - 0.03 && kept(&e) < 1 - shares[i] + 0.03);
		assert_true(read(&e) > shares[i] - 0.03);
		/* some steps are the streams' alone */
		assert_true(e.n_mixed < e.n_steps - e.n_steps / 50);
	}
}

static void test_gaps(void **state)
{
	static const struct {
		double quiet, row;
		uint32_t n_streams, n_prompts;
	} cases[] = { { 10, 0.7, 1, 1 }, { 10, 0.7, 1, 16 }, { 16, 0.9, 16, 16 },
		      { 250, 60, 1, 1 }, { 3, 0.02, 1, 16 }, { 3, 0.02, 200, 1 } };

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct engine e = { .quiet = cases[i].quiet,
				    .row = cases[i].row,
				    .n_streams = cases[i].n_streams,
				    .n_prompts = cases[i].n_prompts,
				    .share = 0.33 };
		run(&e, 1000);
		assert_true(e.longest < 2.6 * e.quiet);
		assert_true(kept(&e) > 0.39);
	}
}

/* Sixteen prompts beside one stream are more than one: it waits longer, but no gap grows. */
static void test_many_prompts_have_more(void **state)
{
	struct engine one = {
		.quiet = 10, .row = 0.7, .n_streams = 1, .n_prompts = 1, .share = 0.33
	};
	struct engine many = one;

	many.n_prompts = 16;
	run(&one, 1000);
	run(&many, 1000);
	assert_true(many.n_rows > one.n_rows * 3 / 2);
	/* one among many streams has its share, too */
	struct engine crowd = {
		.quiet = 10, .row = 0.7, .n_streams = 64, .n_prompts = 2, .share = 0.33
	};
	run(&crowd, 1000);
	assert_true(read(&crowd) > 0.3);
}

/* A step costs much and a row little: fewer and larger steps, which take what a small one would. */
static void test_a_costly_step(void **state)
{
	static const double rows[] = { 0.5, 0.05 };

	for (int i = 0; i < 2; i++) {
		struct engine e = { .quiet = 10,
				    .row = rows[i],
				    .step = 40,
				    .n_streams = 1,
				    .n_prompts = 1,
				    .share = 0.33 };
		run(&e, 4000);
		assert_true(kept(&e) > 0.64 && kept(&e) < 0.70);
		/* at least 40 % of their time is the rows', or all that a chunk can have */
		double most = CHUNK * e.row / (CHUNK * e.row + e.step);
		double part = e.n_rows * e.row / (e.time - e.n_steps * e.quiet);
		assert_true(part > 0.4 || part > 0.8 * most);
		assert_true(e.n_mixed < e.n_steps / 4);
	}
}

/* As on a GPU: a chunk costs twenty steps of the streams, which have their share all the same. */
static void test_large_steps(void **state)
{
	struct engine e = {
		.quiet = 8, .row = 0.1, .step = 150, .n_streams = 1, .n_prompts = 1, .share = 0.36
	};

	run(&e, 4000);
	assert_true(kept(&e) > 0.62 && kept(&e) < 0.67);
	assert_true(e.n_rows > e.n_mixed * CHUNK / 2);
}

/* As on a GPU behind 31,000 tokens: few rows cost three times as much as a chunk's, which takes 44 ms.  A
 * prompt with many rows has chunks, though some plans are of few rows, and no gap is longer. */
static void test_whole_chunks(void **state)
{
	struct engine e = { .quiet = 4,
			    .row = 0.075,
			    .few = 0.2,
			    .step = 6,
			    .n_streams = 1,
			    .n_prompts = 1,
			    .share = 0.36,
			    .prompt_rows = 29000 };

	run(&e, 4000);
	assert_true(kept(&e) > 0.62 && kept(&e) < 0.67);
	assert_true(read(&e) > 0.33);
	assert_true(e.longest < 50);
	/* with few rows the streams have no such gap, and without many a chunk the prompt less */
	e.prompt_rows = 4000;
	run(&e, 4000);
	assert_true(kept(&e) > 0.62 && kept(&e) < 0.67);
	assert_true(read(&e) < 0.25);
	assert_true(e.longest < 30);
	/* nor, as soon as that is known, where a chunk takes too long */
	e.prompt_rows = 29000;
	e.row = 0.25;
	e.few = 0.7;
	run(&e, 200);
	run(&e, 400);
	assert_true(e.longest < 60);
	/* nor where few rows cost hardly more, but for those that find that out */
	e.row = e.few = 0.15;
	e.step = 0;
	run(&e, 4000);
	assert_true(kept(&e) > 0.62 && kept(&e) < 0.67);
	assert_true(e.n_rows < e.n_mixed * 60);
	/* until they do, much further on in the prompt */
	e.few = 0.4;
	run(&e, 4000);
	assert_true(e.n_rows > e.n_mixed * 200);
}

/* ---- sixteen prompts of 2,000 tokens arrive -------------------------------------------------- */

#define N_PROMPTS 16
#define LENGTH 2000
#define MOST_STEPS 40000

/* Times in ms: what streams take alone, what a step with rows of a prompt adds, each of them, and each draft.
 * Behind LENGTH tokens rows and such a step cost more. */
struct arrival {
	double quiet, step, row, deep_step, deep_row, draft;
	uint32_t n_streams, n_drafts;
	double noise;	/* a part of what a step takes, more or less */
	int32_t n_free; /* rows that hardly cost anything, if there are no more of them */
};

struct gaps {
	double ms[MOST_STEPS], sum;
	int n;
};

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The gaps between tokens of the streams, in ascending order. */
static void arrive(const struct arrival *a, struct gaps *g)
{
	struct ig_pace pace = { 0 };
	struct ig_pace_account account = { 0 };
	int32_t left[N_PROMPTS];
	uint32_t random = 1;
	int first = 0;

	g->n = 0;
	g->sum = 0;
	for (int i = 0; i < N_PROMPTS; i++)
		left[i] = LENGTH + 7 * i % 5;
	for (int i = 0; first < N_PROMPTS; i++) {
		struct ig_pace_plan plan = { .n_streams = a->n_streams,
					     .quiet_ns = ig_pace_quiet_ns(&pace, a->n_streams),
					     .share = 0.36,
					     .n_all_streams = a->n_streams,
					     .n_prompts =
						     i < 20 ? 0 : (uint32_t)(N_PROMPTS - first),
					     .chunk = CHUNK,
					     .n_rows = LENGTH };
		int32_t drafts = i % 3 ? ig_pace_most_drafts(&account, &pace, &plan) : 0, rows = 0;
		/* the oldest and another in turn */
		int p = first + (i % 2 && first + 1 < N_PROMPTS);
		plan.n_drafts = drafts < (int32_t)a->n_drafts ? (uint32_t)drafts : a->n_drafts;
		if (i >= 20)
			rows = ig_pace_rows(&account, &pace, &plan);
		rows = rows < left[p] ? rows : left[p];
		double depth = 1 - (double)left[p] / LENGTH;
		double own = rows * (a->row + (a->deep_row - a->row) * depth) +
			     (rows ? a->step + (a->deep_step - a->step) * depth : 0);
		double ms =
			a->quiet + a->draft * plan.n_drafts + (rows <= a->n_free ? own / 50 : own);
		random = random * 1664525u + 1013904223u;
		ms *= 1 + a->noise * ((random >> 8) / 8388608.0 - 1);
		ig_pace_learn(&account, &pace,
			      &(struct ig_pace_step){ .n_decode = a->n_streams,
						      .n_prefill = (uint32_t)rows,
						      .n_long = (uint32_t)rows,
						      .n_drafts = plan.n_drafts,
						      .limited = true,
						      .ns = ms * 1e6 });
		left[p] -= rows;
		while (first < N_PROMPTS && !left[first])
			first++;
		if (i < 20)
			continue;
		assert_true(g->n < MOST_STEPS);
		g->ms[g->n++] = ms;
		g->sum += ms;
	}
	qsort(g->ms, (size_t)g->n, sizeof g->ms[0], by_size);
}

/* 99 of 100 gaps are at most three times those of a quiet engine, and none is more than four times as long. */
static void test_sixteen_prompts(void **state)
{
	static const struct arrival cases[] = {
		/* SmolLM2-135M on one core, by its processor time; with drafts; with a disturbed clock */
		{ .quiet = 8, .row = 1.0, .deep_step = 4, .deep_row = 1.7, .n_streams = 1 },
		{ .quiet = 8,
		  .row = 1.0,
		  .deep_step = 4,
		  .deep_row = 1.7,
		  .n_streams = 1,
		  .n_drafts = 10,
		  .draft = 0.9 },
		{ .quiet = 8,
		  .row = 1.0,
		  .deep_step = 4,
		  .deep_row = 1.7,
		  .n_streams = 1,
		  .noise = 0.15 },
		/* many streams; a large model, whose rows cost much */
		{ .quiet = 16,
		  .row = 0.9,
		  .deep_step = 4,
		  .deep_row = 1.4,
		  .n_streams = 12,
		  .n_drafts = 20,
		  .draft = 0.8 },
		{ .quiet = 250, .row = 60, .deep_step = 20, .deep_row = 70, .n_streams = 1 },
		/* a GPU: a step of more than 16 rows takes more than two, and its rows little */
		{ .quiet = 0.93,
		  .step = 1.2,
		  .row = 0.006,
		  .deep_step = 1.3,
		  .deep_row = 0.007,
		  .n_streams = 1,
		  .noise = 0.05 },
		{ .quiet = 0.93,
		  .step = 1.2,
		  .row = 0.006,
		  .deep_step = 1.3,
		  .deep_row = 0.007,
		  .n_streams = 1,
		  .noise = 0.05,
		  .n_free = 15 },
		{ .quiet = 1.3,
		  .step = 0.5,
		  .row = 0.006,
		  .deep_step = 0.7,
		  .deep_row = 0.007,
		  .n_streams = 1,
		  .noise = 0.05,
		  .n_free = 15 },
	};
	static struct gaps g;

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		arrive(&cases[i], &g);
		double median = cases[i].quiet, rows = N_PROMPTS * LENGTH;
		print_message("# %d gaps, mean %.2f, p99 %.2f, longest %.2f; %.1f rows each\n", g.n,
			      g.sum / g.n / median, g.ms[g.n * 99 / 100] / median,
			      g.ms[g.n - 1] / median, rows / g.n);
		assert_true(g.ms[g.n * 99 / 100] <= 3 * median);
		assert_true(g.ms[g.n - 1] <= 4 * median);
		/* nor do the prompts wait for ever */
		assert_true(rows * (cases[i].row + cases[i].step / CHUNK) > 0.15 * g.sum);
	}
}

/* Whoever gives prompts more of the time by option gets longer gaps for it. */
static void test_sixteen_prompts_by_option(void **state)
{
	struct engine e = {
		.quiet = 10, .row = 0.7, .n_streams = 1, .n_prompts = 16, .share = 0.8
	};

	run(&e, 1000);
	assert_true(kept(&e) < 0.23);
	assert_true(e.longest > 5 * e.quiet);
}

/* What large steps without streams have shown says little of small ones: rows grow step by step. */
static void test_rows_grow(void **state)
{
	struct engine e = { .quiet = 10, .row = 0.7, .n_streams = 1, .share = 0.36 };

	for (uint32_t rows = 511; rows < 515; rows++)
		ig_pace_learn(
			&e.account, &e.pace,
			&(struct ig_pace_step){ .n_prefill = rows, .n_long = rows, .ns = 4e8 });
	for (int i = 0; i < 8; i++)
		step(&e);
	e.n_prompts = 1;
	e.longest = 0;
	for (int i = 0; i < 200; i++)
		step(&e);
	assert_true(e.longest < 3.3 * e.quiet);
}

static void test_nobody_waits(void **state)
{
	struct engine e = {
		.quiet = 10, .row = 0.7, .n_streams = 1, .n_prompts = 1, .share = 0.33
	};
	struct ig_pace_plan alone = { .share = 0.33, .n_prompts = 3 };

	run(&e, 10);
	e.account.credit_ns = -5e6;
	assert_int_equal(ig_pace_rows(&e.account, &e.pace, &alone), IG_PACE_NO_LIMIT);
	/* the next streams are owed what these were; a prompt saves no time up */
	assert_true(e.account.credit_ns == -5e6);
	e.account.credit_ns = 5e6;
	assert_int_equal(ig_pace_rows(&e.account, &e.pace, &alone), IG_PACE_NO_LIMIT);
	assert_true(e.account.credit_ns == 0);
}

/* The machine does something else for a second: for some steps prompts wait, and then all is as before. */
static void test_a_hiccup(void **state)
{
	struct engine e = {
		.quiet = 10, .row = 0.7, .n_streams = 1, .n_prompts = 1, .share = 0.33
	};
	int n = 0;

	run(&e, 100);
	for (int i = 0; i < 20; i++) {
		e.hiccup = 1000;
		step(&e);
	}
	for (e.n_mixed = 0; !e.n_mixed; n++)
		step(&e);
	assert_in_range(n, 1, 30);
	run(&e, 1000);
	assert_true(kept(&e) > 0.64 && kept(&e) < 0.70);
}

/* Streams that come when nothing was measured: one step is theirs alone; if none can be, prompts
 * go on in small parts. */
static void test_the_unknown(void **state)
{
	struct ig_pace_account a = { 0 };
	struct ig_pace p = { 0 };
	struct ig_pace_plan plan = {
		.n_streams = 1, .n_all_streams = 1, .n_prompts = 1, .share = 0.33
	};
	int n = 0;

	while (ig_pace_rows(&a, &p, &plan) == 0)
		assert_true(++n < 10);
	assert_true(n > 0);
	assert_int_equal(ig_pace_rows(&a, &p, &plan), 0);
	/* they are another model's */
	plan.n_streams = 0;
	assert_in_range(ig_pace_rows(&a, &p, &plan), 1, 64);
	/* measured by size: 2^i streams */
	ig_pace_learn(&a, &p, &(struct ig_pace_step){ .n_decode = 5, .ns = 7 });
	assert_true(ig_pace_quiet_ns(&p, 4) == 7 && ig_pace_quiet_ns(&p, 7) == 7);
	assert_true(ig_pace_quiet_ns(&p, 3) == 0 && ig_pace_quiet_ns(&p, 8) == 0);
	ig_pace_learn(&a, &p, &(struct ig_pace_step){ .n_decode = UINT32_MAX, .ns = 9 });
	assert_true(ig_pace_quiet_ns(&p, UINT32_MAX) == 9 && ig_pace_quiet_ns(&p, 1u << 13) == 9);
}

/* What rows of drafts add: a guess, then what was measured, and it is not taken for the streams' own
 * time nor for that of prompts. */
static void test_drafts(void **state)
{
	struct ig_pace_account a = { 0 };
	struct ig_pace p = { 0 };
	double step, row;

	assert_false(ig_pace_draft_cost(&p, 1, &step, &row));
	ig_pace_learn(&a, &p, &(struct ig_pace_step){ .n_decode = 1, .ns = 10 });
	assert_true(ig_pace_draft_cost(&p, 1, &step, &row));
	assert_true(step == 0 && row > 0 && row < 10);
	for (uint32_t i = 0; i < 100; i++) {
		uint32_t n = 1 + i % 8;
		ig_pace_learn(&a, &p,
			      &(struct ig_pace_step){
				      .n_decode = 1, .n_drafts = n, .ns = 10.5 + 0.25 * n });
	}
	assert_true(ig_pace_quiet_ns(&p, 1) == 10);
	assert_true(ig_pace_draft_cost(&p, 1, &step, &row));
	assert_true(step > 0.45 && step < 0.55 && row > 0.24 && row < 0.26);
	/* a step with rows of a prompt, too */
	for (uint32_t i = 0; i < 100; i++)
		ig_pace_learn(&a, &p,
			      &(struct ig_pace_step){ .n_decode = 1,
						      .n_drafts = 6,
						      .n_prefill = 10,
						      .n_long = 10,
						      .ns = 10.5 + 0.25 * 6 + 20 });
	/* 1 + 6 + 10 rows are at most 22 */
	assert_true(p.row_ns[9] > 1.95 && p.row_ns[9] < 2.05);
	for (int i = 0; i < 2000; i++)
		ig_pace_forget_drafts(&p);
	assert_true(ig_pace_draft_cost(&p, 1, &step, &row));
	assert_true(row < 0.025);
	/* rows that are free, and a step that was faster than the streams alone usually are */
	ig_pace_learn(&a, &p, &(struct ig_pace_step){ .n_decode = 1, .n_drafts = 6, .ns = 8 });
	assert_true(ig_pace_draft_cost(&p, 1, &step, &row) && step >= 0 && row > 0);
}

/* On a machine that does something else, too, many steps take several times as long as usual, the first one among
 * them.  What drafts and guesses of a head add is found all the same, by a few steps with some among many without. */
static void test_drafts_of_a_busy_machine(void **state)
{
	static const double parts[] = { 0.2, 0.4, 0.55 }; /* of the steps */
	struct ig_pace_account a = { 0 };
	double step, row, none, head;

	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
		struct ig_pace p = { 0 };
		uint32_t random = 1;
		for (uint32_t k = 0; k < 600; k++) {
			uint32_t n = k >= 20 && k % 64 < 8;
			struct ig_pace_step s = { .n_decode = 1, .ns = 10 };
			if (n && k % 2) {
				s.n_drafts = n;
				s.ns += 2;
			} else if (n) {
				s.n_guesses = n;
				s.ns += 1;
			}
			random = random * 1664525 + 1013904223;
			if (random < parts[i] * UINT32_MAX || (k >= 64 && k < 66))
				s.ns += 10 + 90.0 * (random >> 16 & 0xff) / 255;
			ig_pace_learn(&a, &p, &s);
		}
		assert_true(ig_pace_draft_cost(&p, 1, &step, &row));
		ig_pace_head_cost(&p, ig_pace_quiet_ns(&p, 1), &none, &head);
		print_message("# %g of the steps: quiet %.1f, a draft's row %.1f, a guess %.1f\n",
			      parts[i], ig_pace_quiet_ns(&p, 1), step + row, none + head);
		assert_true(step + row + none + head < 0.6 * ig_pace_quiet_ns(&p, 1));
	}
}

/* Prompts wait for streams that are owed time; if none of these can run, they wait no longer. */
static void test_forgiven(void **state)
{
	struct engine e = { .quiet = 10, .row = 1, .n_streams = 1, .n_prompts = 1, .share = 0.33 };
	struct ig_pace_plan plan = {
		.n_streams = 1, .n_all_streams = 1, .n_prompts = 1, .chunk = CHUNK, .share = 0.33
	};

	run(&e, 50);
	plan.quiet_ns = ig_pace_quiet_ns(&e.pace, 1);
	for (int i = 0; ig_pace_rows(&e.account, &e.pace, &plan) && i < 100; i++)
		step(&e);
	for (int i = 0; i < 5; i++) /* nothing but a step changes that */
		if (e.account.credit_ns < 0)
			assert_int_equal(ig_pace_rows(&e.account, &e.pace, &plan), 0);
	ig_pace_forgive(&e.account);
	assert_true(ig_pace_rows(&e.account, &e.pace, &plan) > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shares),
		cmocka_unit_test(test_gaps),
		cmocka_unit_test(test_many_prompts_have_more),
		cmocka_unit_test(test_a_costly_step),
		cmocka_unit_test(test_large_steps),
		cmocka_unit_test(test_whole_chunks),
		cmocka_unit_test(test_sixteen_prompts),
		cmocka_unit_test(test_sixteen_prompts_by_option),
		cmocka_unit_test(test_rows_grow),
		cmocka_unit_test(test_nobody_waits),
		cmocka_unit_test(test_a_hiccup),
		cmocka_unit_test(test_forgiven),
		cmocka_unit_test(test_the_unknown),
		cmocka_unit_test(test_drafts),
		cmocka_unit_test(test_drafts_of_a_busy_machine),
	};

	return cmocka_run_group_tests_name("pace", tests, NULL, NULL);
}
