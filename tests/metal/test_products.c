/*
 * test_products.c: runtime.repack and runtime.tensor_units.  Tiny models whose products run by other kernels, with weights
 * that are copied to tiles or on the tensor units of a GPU that has them: the same logits but for roundings as by
 * the usual kernels, and the same bits whether a prompt is read in chunks or at once, alone or beside another one.
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
	bool tensor; /* else tiles */
} models[] = { { "llama3", "Q8_0", false },
	       { "qwen3", "Q4_0", false },
	       { "llama3", "F16", true },
	       { "qwen3moe", "Q8_0", true } };

/* *n_kernels: that ran meanwhile. */
static struct ig_stepper *open_with(const struct ig_stepper_model *m, const char *repack,
				    const char *tensor_units, uint32_t *n_kernels)
{
	const uint32_t before = fake_count().dispatches;
	const struct ig_stepper_options o = {
		.repack = repack,
		.tensor_units = tensor_units,
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
		fail_msg("repack %s, tensor_units %s: %s", repack, tensor_units, err.text);
	*n_kernels = fake_count().dispatches - before;
	return s;
}

/* The usual kernels, and the others. */
static void open_tiles(const struct ig_stepper_model *m, struct ig_stepper **usual,
		       struct ig_stepper **other)
{
	uint32_t n_kernels, n_more;

	*usual = open_with(m, "auto", "auto", &n_kernels);
	assert_null(strstr(ig_stepper_describe(*usual), "repacked"));
	ig_stepper_close(*usual);
	*usual = open_with(m, "never", "auto", &n_more);
	assert_int_equal(n_more, n_kernels);
	assert_non_null(strstr(ig_stepper_describe(*usual), "weights not repacked"));
	*other = open_with(m, "always", "auto", &n_more);
	assert_true(n_more >= n_kernels + 4 * m->plan->info.groups[0].n_layers);
	assert_non_null(strstr(ig_stepper_describe(*other), "weights repacked"));
}

static void open_tensor(const struct ig_stepper_model *m, struct ig_stepper **usual,
			struct ig_stepper **other)
{
	uint32_t n_kernels;

	fake_play_m5();
	*usual = open_with(m, "always", "auto", &n_kernels); /* tiles have no such kernels */
	assert_null(strstr(ig_stepper_describe(*usual), "tensor units"));
	ig_stepper_close(*usual);
	*usual = open_with(m, "auto", "never", &n_kernels);
	assert_null(strstr(ig_stepper_describe(*usual), "tensor units"));
	*other = open_with(m, "auto", "auto", &n_kernels);
	assert_non_null(strstr(ig_stepper_describe(*other), "Software M5"));
	assert_non_null(strstr(ig_stepper_describe(*other), "tensor units"));
}

static void check(const struct ig_stepper_model *m, const struct golden *g,
		  const struct model *model)
{
	const size_t n = (size_t)N_PROMPTS * N_STEPS * g->n_vocab;
	float *of_usual = calloc(n, sizeof *of_usual), *of_other = calloc(n, sizeof *of_other),
	      *again = calloc(n, sizeof *again);
	struct ig_stepper *usual, *s;

	assert_true(of_usual && of_other && again);
	if (model->tensor)
		open_tensor(m, &usual, &s);
	else
		open_tiles(m, &usual, &s);
	run_along(usual, g, 0, N_PROMPTS, 64, 3, true, of_usual);
	ig_stepper_close(usual);
	run_along(s, g, 0, N_PROMPTS, 64, 3, true, of_other);
	double e = ig_nmse(of_usual, of_other, n);
	printf("# %s as %s: NMSE of %s against the usual kernels %.2e\n", model->name, model->mix,
	       model->tensor ? "tensor units" : "tiles", e);
	assert_true(e <= 1e-4 &&
		    (e > 0.0 || !model->tensor)); /* tensor units add in another order */
	run_along(s, g, 0, N_PROMPTS, 7, 1, true, again);
	assert_memory_equal(again, of_other, n * sizeof *of_other);
	for (int p = 0; p < N_PROMPTS; p++) {
		const size_t at = (size_t)p * N_STEPS * g->n_vocab;
		run_along(s, g, p, p + 1, 500, 2, true, again);
		assert_memory_equal(again + at, of_other + at,
				    N_STEPS * g->n_vocab * sizeof *of_other);
	}
	ig_stepper_close(s);
	free(of_usual);
	free(of_other);
	free(again);
}

static void test_model(void **state)
{
	const struct model *model = *state;
	const struct ig_convert_options o = { .mix = ig_mix_find(model->mix), .n_threads = 2 };
	struct ig_stepper_model folder, file;
	struct ig_convert_report r;
	struct ig_error err = { 0 };
	struct golden g = { 0 };
	char path[512], dir[] = "/tmp/ig-products-XXXXXX", out[64];

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
		tests[i] = (struct CMUnitTest){ models[i].name, test_model, NULL, NULL,
						(void *)(uintptr_t)&models[i] };
	return cmocka_run_group_tests_name("products by other kernels", tests, NULL, NULL);
}
