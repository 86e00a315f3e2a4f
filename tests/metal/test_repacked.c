/*
 * test_repacked.c: runtime.repack.  Tiny models in Q8_0 and in Q4_0, their weights in the file's rows or copied to tiles by
 * kernels: the same logits but for roundings, and in tiles the same bits whether a prompt is read in chunks or at
 * once, alone or beside another one.
 */
#include "tests/golden/arch/golden_runs.h"
#include "tests/golden/nmse.h"

#include "model/quantize/convert.h"
#include "tests/metal/fake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef INGOT_TEST_ARCHS
#error "the build names the folder of the models"
#endif

static const struct model {
	const char *name, *mix;
} models[] = { { "llama3", "Q8_0" }, { "qwen3", "Q4_0" } };

/* *n_kernels: that ran meanwhile. */
static struct ig_stepper *open_repacked(const struct ig_stepper_model *m, const char *repack,
					uint32_t *n_kernels)
{
	const uint32_t before = fake_count().dispatches;
	const struct ig_stepper_options o = {
		.repack = repack,
		.k_dtype = IG_F16,
		.v_dtype = IG_F16,
		.max_rows = MAX_PROMPT + 16,
		.max_seqs = N_PROMPTS,
		.max_context = m->plan->info.n_context,
		.cache_tokens = 2 * (MAX_PROMPT + N_STEPS),
		.shuffle = 5,
	};
	struct ig_error err = { 0 };
	struct ig_stepper *s;

	if (ig_stepper_open(m, &o, &s, &err))
		fail_msg("repack %s: %s", repack, err.text);
	*n_kernels = fake_count().dispatches - before;
	return s;
}

static void check(const struct ig_stepper_model *m, const struct golden *g,
		  const struct model *model)
{
	const size_t n = (size_t)N_PROMPTS * N_STEPS * g->n_vocab;
	float *rows = calloc(n, sizeof *rows), *tiles = calloc(n, sizeof *tiles),
	      *again = calloc(n, sizeof *again);
	uint32_t n_kernels, n_more;
	struct ig_stepper *s;

	assert_true(rows && tiles && again);
	s = open_repacked(m, "auto", &n_kernels);
	assert_null(strstr(ig_stepper_describe(s), "repacked"));
	ig_stepper_close(s);
	s = open_repacked(m, "never", &n_more);
	assert_int_equal(n_more, n_kernels);
	assert_non_null(strstr(ig_stepper_describe(s), "weights not repacked"));
	run_along(s, g, 0, N_PROMPTS, 64, 3, true, rows);
	ig_stepper_close(s);
	s = open_repacked(m, "always", &n_more);
	assert_true(n_more >= n_kernels + 4 * m->plan->info.groups[0].n_layers);
	assert_non_null(strstr(ig_stepper_describe(s), "weights repacked"));
	run_along(s, g, 0, N_PROMPTS, 64, 3, true, tiles);
	double e = ig_nmse(rows, tiles, n);
	printf("# %s as %s: NMSE of tiles against rows %.2e\n", model->name, model->mix, e);
	assert_true(e <= 1e-4);
	run_along(s, g, 0, N_PROMPTS, 7, 1, true, again);
	assert_memory_equal(again, tiles, n * sizeof *tiles);
	for (int p = 0; p < N_PROMPTS; p++) {
		const size_t at = (size_t)p * N_STEPS * g->n_vocab;
		run_along(s, g, p, p + 1, 500, 2, true, again);
		assert_memory_equal(again + at, tiles + at, N_STEPS * g->n_vocab * sizeof *tiles);
	}
	ig_stepper_close(s);
	free(rows);
	free(tiles);
	free(again);
}

static void test_repacked(void **state)
{
	const struct model *model = *state;
	const struct ig_convert_options o = { .mix = ig_mix_find(model->mix), .n_threads = 2 };
	struct ig_stepper_model folder, file;
	struct ig_convert_report r;
	struct ig_error err = { 0 };
	struct golden g = { 0 };
	char path[512], dir[] = "/tmp/ig-repacked-XXXXXX", out[64];

	open_golden(model->name, &g);
	assert_non_null(mkdtemp(dir));
	snprintf(out, sizeof out, "%s/out.gguf", dir);
	snprintf(path, sizeof path, INGOT_TEST_ARCHS "/%s", model->name);
	if (ig_stepper_model_open(&folder, path, NULL, &err) ||
	    ig_convert(folder.file, out, &o, &r, &err) ||
	    ig_stepper_model_open(&file, out, NULL, &err))
		fail_msg("%s as %s: %s", model->name, model->mix, err.text);
	ig_convert_report_finish(&r);
	check(&file, &g, model);
	ig_stepper_model_close(&file);
	assert_int_equal(unlink(out), 0);
	assert_int_equal(rmdir(dir), 0);
	ig_stepper_model_close(&folder);
	close_golden(&g);
}

int main(void)
{
	struct CMUnitTest tests[sizeof models / sizeof *models];

	for (size_t i = 0; i < sizeof models / sizeof *models; i++)
		tests[i] = (struct CMUnitTest){ models[i].name, test_repacked, NULL, NULL,
						(void *)(uintptr_t)&models[i] };
	return cmocka_run_group_tests_name("repacked weights", tests, NULL, NULL);
}
