/* golden_runs.c: see golden_runs.h; make.py describes the format of NAME.golden. */
#include "tests/golden/arch/golden_runs.h"
#include "tests/golden/nmse.h"

#include "tests/brief.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef INGOT_TEST_ARCHS
#error "the build names the folder of the models"
#endif

static void must_read(FILE *f, void *to, size_t n_bytes)
{
	if (fread(to, 1, n_bytes, f) != n_bytes)
		fail_msg("the golden is too short");
}

void open_golden(const char *name, struct golden *g)
{
	char path[512], magic[4];
	uint32_t n_prompts, n_steps;
	FILE *f;

	snprintf(path, sizeof path, INGOT_TEST_ARCHS "/%s.golden", name);
	f = fopen(path, "rb");
	if (!f)
		fail_msg("%s: %s", path, strerror(errno));
	must_read(f, magic, sizeof magic);
	assert_memory_equal(magic, "IGA1", 4);
	must_read(f, &g->n_vocab, 4);
	must_read(f, &n_prompts, 4);
	must_read(f, &n_steps, 4);
	assert_int_equal(n_prompts, N_PROMPTS);
	assert_int_equal(n_steps, N_STEPS);
	assert_in_range(g->n_vocab, 1, 100000);
	for (uint32_t i = 0; i < n_prompts; i++) {
		struct prompt *p = &g->prompts[i];

		must_read(f, &p->n_ids, 4);
		assert_in_range(p->n_ids, 1, MAX_PROMPT);
		must_read(f, p->ids, p->n_ids * sizeof *p->ids);
		must_read(f, p->greedy, sizeof p->greedy);
		p->logits = malloc((size_t)N_STEPS * g->n_vocab * sizeof *p->logits);
		assert_non_null(p->logits);
		must_read(f, p->logits, (size_t)N_STEPS * g->n_vocab * sizeof *p->logits);
	}
	assert_int_equal(fgetc(f), EOF);
	fclose(f);
}

void close_golden(struct golden *g)
{
	for (int i = 0; i < N_PROMPTS; i++)
		free(g->prompts[i].logits);
}

/* ---- one way of running ---- */

struct ig_stepper *open_stepper(const struct ig_stepper_model *m, const struct golden *g,
				const char *isa, const char *experts, bool keep_all)
{
	const struct ig_stepper_options o = {
		.isa = isa,
		.activations = "f32",
		.experts = experts,
		.k_dtype = IG_F32,
		.v_dtype = IG_F32,
		.n_threads = 2,
		.max_rows = MAX_PROMPT + 16,
		.max_seqs = N_PROMPTS,
		.max_context = m->plan->info.n_context,
		.cache_tokens = 2 * (MAX_PROMPT + N_STEPS),
		.shuffle = 5,
		.keep_all = keep_all,
	};
	struct ig_error err = { 0 };
	struct ig_stepper *s;
	int rc = ig_stepper_open(m, &o, &s, &err);

	if (rc == -ENOTSUP && isa)
		return NULL;
	if (rc)
		fail_msg("%s", err.text);
	assert_int_equal(ig_stepper_n_vocab(s), g->n_vocab);
	return s;
}

/* Feed prompt p but for its last `left` tokens, in chunks. */
static void feed(struct ig_stepper *s, int seq, const struct prompt *p, uint32_t chunk,
		 uint32_t left)
{
	for (uint32_t at = 0; at < p->n_ids - left; at += chunk) {
		uint32_t n = p->n_ids - left - at < chunk ? p->n_ids - left - at : chunk;

		assert_int_equal(ig_stepper_put(s, seq, p->ids + at, (int32_t)n, NULL), 0);
		assert_int_equal(ig_stepper_run(s, false), 0);
	}
}

void run_along(struct ig_stepper *s, const struct golden *g, int first, int last, uint32_t chunk,
	       uint32_t left, bool forced, float *logits)
{
	int32_t id[N_PROMPTS];
	int seq[N_PROMPTS], draw[N_PROMPTS];

	ig_stepper_reset(s);
	for (int i = first; i < last; i++) {
		seq[i] = ig_stepper_add(s, g->prompts[i].n_ids + N_STEPS);
		assert_in_range(seq[i], 0, N_PROMPTS - 1);
		if (left < g->prompts[i].n_ids)
			feed(s, seq[i], &g->prompts[i], chunk, left);
	}
	for (uint32_t t = 0; t < N_STEPS; t++) {
		for (int i = first; i < last; i++) {
			const struct prompt *p = &g->prompts[i];
			const uint32_t n = left < p->n_ids ? left : p->n_ids;

			draw[i] = ig_stepper_put(s, seq[i], t ? &id[i] : p->ids + p->n_ids - n,
						 t ? 1 : (int32_t)n, &ig_stepper_greedy);
			assert_int_equal(draw[i], i - first);
		}
		assert_int_equal(ig_stepper_run(s, true), 0);
		for (int i = first; i < last; i++) {
			id[i] = ig_stepper_sampled(s, draw[i]);
			memcpy(logits + ((size_t)i * N_STEPS + t) * g->n_vocab,
			       ig_stepper_logits(s, draw[i]), g->n_vocab * sizeof *logits);
			if (!forced && id[i] != g->prompts[i].greedy[t])
				fail_msg("prompt %d, step %u: token %d, expected %d", i, t, id[i],
					 g->prompts[i].greedy[t]);
			id[i] = g->prompts[i].greedy[t];
		}
	}
}

void run(struct ig_stepper *s, const struct golden *g, int first, int last, uint32_t chunk,
	 uint32_t left, float *logits)
{
	run_along(s, g, first, last, chunk, left, false, logits);
}

/* A prompt alone, with a wrong guess behind each token: the state of recurrent layers goes back. */
static void run_guessed(struct ig_stepper *s, const struct golden *g, int prompt, float *logits)
{
	const struct prompt *p = &g->prompts[prompt];
	int seq;

	ig_stepper_reset(s);
	seq = ig_stepper_add(s, p->n_ids + N_STEPS + 1);
	feed(s, seq, p, 64, 1);
	for (uint32_t t = 0; t < N_STEPS; t++) {
		int32_t id = t ? p->greedy[t - 1] : p->ids[p->n_ids - 1],
			wrong = (id + 1) % (int32_t)g->n_vocab;
		int draw;

		ig_stepper_checkpoint(s, seq, 1);
		draw = ig_stepper_put_draft(s, seq, (const int32_t[]){ id, wrong }, 2,
					    &ig_stepper_greedy);
		assert_int_equal(draw, 0);
		assert_int_equal(ig_stepper_run(s, true), 0);
		memcpy(logits + ((size_t)prompt * N_STEPS + t) * g->n_vocab,
		       ig_stepper_logits(s, draw), g->n_vocab * sizeof *logits);
		ig_stepper_rewind(s, seq, (int32_t)(p->n_ids + t));
	}
}

/* Of a group with a window, one sequence that was fed so many rows at a time had no more
 * blocks than its window and these rows touch, wherever they lie. */
static void expect_windows(const struct ig_stepper_model *m, const struct ig_stepper *s,
			   const char *name, uint32_t chunk, uint32_t n_tokens)
{
	const struct ig_model_info *info = &m->plan->info;

	for (uint32_t g = 0; g < info->n_groups; g++) {
		const uint32_t window = info->groups[g].window, all = (n_tokens + 15) / 16;
		const uint32_t most = (window + chunk + 13) / 16 + 1;
		const uint32_t had = ig_stepper_most_blocks(s, g);

		if (info->groups[g].kind == IG_CACHE_STATE)
			continue;
		if (!window) {
			assert_int_equal(had, all);
			continue;
		}
		printf("# %s, chunks of %u: group %u had %u of %u blocks\n", name, chunk, g, had,
		       all);
		assert_true(had <= most);
		assert_true(had < all);
	}
}

double nmse(const struct golden *g, int prompt, const float *logits)
{
	const size_t n = (size_t)N_STEPS * g->n_vocab;

	return ig_nmse(g->prompts[prompt].logits, logits + (size_t)prompt * n, n);
}

static bool has_window(const struct ig_stepper_model *m)
{
	for (uint32_t g = 0; g < m->plan->info.n_groups; g++)
		if (m->plan->info.groups[g].window)
			return true;
	return false;
}

int run_isa(const struct ig_stepper_model *m, const struct golden *g, const char *name,
	    const char *isa)
{
	const size_t n = (size_t)N_PROMPTS * N_STEPS * g->n_vocab;
	struct ig_stepper *s = open_stepper(m, g, isa, NULL, false);
	const bool brief = ig_stepper_on_gpu() && ig_brief();
	float *alone, *other;

	if (!s)
		return 0;
	alone = calloc(n, sizeof *alone);
	other = calloc(n, sizeof *other);
	assert_non_null(alone);
	assert_non_null(other);
	for (int i = 0; i < N_PROMPTS; i++)
		run(s, g, i, i + 1, MAX_PROMPT, MAX_PROMPT, alone);
	for (int i = 0; i < N_PROMPTS; i++) {
		double e = nmse(g, i, alone);

		printf("# %s, %s, prompt %d: NMSE %.2e\n", name, isa ? isa : "auto", i, e);
		if (!(e <= 1e-6))
			fail_msg("%s: NMSE %g", name, e);
	}
	/* chunks that are no multiple of a block, and of one token */
	if (!brief || has_window(m)) {
		for (int i = N_PROMPTS - 1; i >= 0; i--)
			run(s, g, i, i + 1, 37, 5, other);
		expect_windows(m, s, name, 37, g->prompts[0].n_ids + N_STEPS);
		assert_memory_equal(other, alone, n * sizeof *other);
	}
	if (!brief) {
		run(s, g, 1, 2, 1, 1, other);
		assert_memory_equal(other, alone, n * sizeof *other);
		run(s, g, 0, 1, 5, 1, other);
		assert_memory_equal(other, alone, n * sizeof *other);
		expect_windows(m, s, name, 5, g->prompts[0].n_ids + N_STEPS);
		/* longer than a window */
		run(s, g, 0, 1, 100, 64, other);
		assert_memory_equal(other, alone, n * sizeof *other);
		expect_windows(m, s, name, 100, g->prompts[0].n_ids + N_STEPS);
	}
	if (!has_window(m)) { /* whose blocks do not come back */
		memset(other, 0, n * sizeof *other);
		for (int i = brief ? N_PROMPTS - 1 : 0; i < N_PROMPTS; i++) {
			const size_t at = (size_t)i * N_STEPS * g->n_vocab;
			run_guessed(s, g, i, other);
			assert_memory_equal(other + at, alone + at,
					    N_STEPS * g->n_vocab * sizeof *other);
		}
	}
	/* side by side */
	memset(other, 0, n * sizeof *other);
	if (!brief) {
		run(s, g, 0, N_PROMPTS, MAX_PROMPT, MAX_PROMPT, other);
		assert_memory_equal(other, alone, n * sizeof *other);
	}
	run(s, g, 0, N_PROMPTS, brief ? 37 : 64, brief ? 5 : 3, other);
	assert_memory_equal(other, alone, n * sizeof *other);
	ig_stepper_close(s);
	/* whether or not blocks outside the window are freed */
	if (has_window(m) && !brief) {
		s = open_stepper(m, g, isa, NULL, true);
		run(s, g, 0, N_PROMPTS, 64, 3, other);
		assert_memory_equal(other, alone, n * sizeof *other);
		ig_stepper_close(s);
	}
	free(alone);
	free(other);
	return 1;
}
