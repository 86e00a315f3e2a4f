/*
 * test_arch_golden.c: tiny random models of every architecture against transformers' results
 * (make.py).
 *
 * With float32 activations and cache: the logits' normalised squared error is at most
 * 1e-6, the sampled tokens are the golden's, and the bits are the same whether a prompt is
 * read at once or in chunks, alone or beside another one, on every instruction set that the
 * machine has.  INGOT_TEST_DRIVER names another driver than cpu.
 */
#include "tests/golden/arch/golden_runs.h"

#include "model/quantize/convert.h"
#include "ops/cpu/tile16.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Experts that stay in the file: the same bits for less memory. */
static void run_mapped(const struct ig_stepper_model *m, const struct golden *g)
{
	const size_t n = (size_t)N_PROMPTS * N_STEPS * g->n_vocab;
	struct ig_stepper *packed = open_stepper(m, g, NULL, "packed", false);
	struct ig_stepper *mapped = open_stepper(m, g, NULL, "mapped", false);
	float *a = calloc(n, sizeof *a), *b = calloc(n, sizeof *b);
	uint64_t n_bytes = 0;

	assert_non_null(a);
	assert_non_null(b);
	assert_null(strstr(ig_stepper_describe(packed), "experts"));
	assert_non_null(strstr(ig_stepper_describe(mapped), "experts mapped"));
	for (uint32_t i = 0; i < m->plan->n_weights; i++) {
		const struct ig_plan_weight *w = &m->plan->weights[i];
		if (!strstr(w->name, "_exps.weight"))
			continue;
		n_bytes += ig_tile16_tile_bytes(w->shape.dtype, w->shape.n_cols) *
			   (uint64_t)ig_tile16_n_tiles(w->shape.n_rows);
	}
	assert_true(n_bytes > 0);
	assert_int_equal(ig_stepper_weight_bytes(mapped) + n_bytes,
			 ig_stepper_weight_bytes(packed));
	run(packed, g, 0, N_PROMPTS, 64, 3, a);
	run(mapped, g, 0, N_PROMPTS, 64, 3, b);
	assert_memory_equal(a, b, n * sizeof *a);
	free(a);
	free(b);
	ig_stepper_close(packed);
	ig_stepper_close(mapped);
}

static bool has_experts(const struct ig_plan *p)
{
	for (uint32_t i = 0; i < p->n_nodes; i++)
		if (!strcmp(p->nodes[i].op->name, "moe_route"))
			return true;
	return false;
}

static void test_model(void **state)
{
	static const char *const isas[] = { NULL, "generic", "avx2", "avx512", "neon" };
	const char *name = *state;
	struct golden g = { 0 };
	struct ig_stepper_model m;
	struct ig_error err = { 0 };
	char path[512];

	open_golden(name, &g);
	snprintf(path, sizeof path, INGOT_TEST_ARCHS "/%s.gguf", name);
	if (ig_stepper_model_open(&m, path, NULL, &err))
		fail_msg("%s", err.text);
	assert_int_equal(run_isa(&m, &g, name, NULL), 1);
	if (!ig_stepper_on_gpu() && has_experts(m.plan))
		run_mapped(&m, &g);
	for (size_t i = 1; !ig_stepper_on_gpu() && i < sizeof isas / sizeof *isas; i++)
		run_isa(&m, &g, name, isas[i]);
	ig_stepper_model_close(&m);
	close_golden(&g);
}

/* What is left out is said, by the same words for both forms of a file. */
static void expect_left_out(const char *name, const struct ig_stepper_model *m)
{
	char text[256];

	ig_plan_left_out(m->plan, text, sizeof text);
	if (!strcmp(name, "glm4moe"))
		assert_string_equal(text, "4 tensors of the prediction of further tokens (MTP)");
	else if (!strcmp(name, "qwen35moe"))
		assert_string_equal(text, "2 tensors of the prediction of further tokens (MTP)");
	else if (!*text || strcmp(name, "mistral"))
		assert_string_equal(text, "");
	else
		assert_string_equal(text, "1 tensor of vision");
}

/* NAME/ holds the numbers of NAME.gguf: as its architecture reads them, to the bit. */
static void test_folder(void **state)
{
	const char *name = *state;
	struct ig_stepper_model file, folder;
	struct ig_error err = { 0 };
	struct golden g = { 0 };
	char path[512];

	open_golden(name, &g);
	const size_t n = (size_t)N_PROMPTS * N_STEPS * g.n_vocab;
	snprintf(path, sizeof path, INGOT_TEST_ARCHS "/%s.gguf", name);
	if (ig_stepper_model_open(&file, path, NULL, &err))
		fail_msg("%s", err.text);
	snprintf(path, sizeof path, INGOT_TEST_ARCHS "/%s", name);
	if (ig_stepper_model_open(&folder, path, NULL, &err))
		fail_msg("%s", err.text);
	assert_int_equal(folder.plan->info.n_context, file.plan->info.n_context);
	assert_int_equal(folder.plan->n_weights, file.plan->n_weights);
	expect_left_out(name, &file);
	expect_left_out(name, &folder);
	/* a device gets the same bytes from both, so one model is enough there */
	if (!ig_stepper_on_gpu() || !strcmp(name, "llama3")) {
		struct ig_stepper *a = open_stepper(&file, &g, NULL, NULL, false);
		struct ig_stepper *b = open_stepper(&folder, &g, NULL, NULL, false);
		float *x = calloc(n, sizeof *x), *y = calloc(n, sizeof *y);

		assert_non_null(x);
		assert_non_null(y);
		run(a, &g, 0, N_PROMPTS, 64, 3, x);
		run(b, &g, 0, N_PROMPTS, 64, 3, y);
		assert_memory_equal(x, y, n * sizeof *x);
		free(x);
		free(y);
		ig_stepper_close(a);
		ig_stepper_close(b);
	}
	ig_stepper_model_close(&file);
	ig_stepper_model_close(&folder);
	close_golden(&g);
}

static void expect_same_bytes(const struct ig_checkpoint *a, const struct ig_checkpoint *b,
			      const char *name)
{
	const struct ig_checkpoint_tensor *x = ig_checkpoint_find_tensor(a, name);
	const struct ig_checkpoint_tensor *y = ig_checkpoint_find_tensor(b, name);
	void *buf = malloc(x->n_bytes);

	assert_non_null(buf);
	assert_int_equal(y->dtype, x->dtype);
	assert_int_equal(y->n_bytes, x->n_bytes);
	assert_memory_equal(ig_checkpoint_rows(a, x, 0, x->n_rows, buf), y->data, x->n_bytes);
	free(buf);
}

/* What ig_convert writes of NAME/ loads; its logits are the golden's as far as its type allows, and
 * MXFP4 is the folder's bytes. */
static void test_converted(void **state)
{
	/* A changed choice of experts, which near-equal routes of random models invite, is the largest
	 * part of an error. */
	static const struct {
		const char *mix;
		double dense, experts; /* NMSE at most */
	} cases[] = { { "F32", 1e-6, 1e-6 }, { "Q8_0", 1e-2, 0.1 }, { "Q4_K_M", 0.26, 1 } };
	const char *name = *state;
	struct ig_stepper_model folder, file;
	struct ig_error err = { 0 };
	struct golden g = { 0 };
	char path[512], dir[] = "/tmp/ig-converted-XXXXXX", out[64];

	if (ig_stepper_on_gpu()) /* what is written is of no device */
		return;
	open_golden(name, &g);
	const size_t n = (size_t)N_PROMPTS * N_STEPS * g.n_vocab;
	float *logits = calloc(n, sizeof *logits);
	assert_non_null(logits);
	assert_non_null(mkdtemp(dir));
	snprintf(out, sizeof out, "%s/out.gguf", dir);
	snprintf(path, sizeof path, INGOT_TEST_ARCHS "/%s", name);
	if (ig_stepper_model_open(&folder, path, NULL, &err))
		fail_msg("%s", err.text);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const struct ig_convert_options o = { .mix = ig_mix_find(cases[i].mix),
						      .n_threads = 2 };
		const struct ig_checkpoint *from = folder.file;
		struct ig_convert_report r;

		if (ig_convert(from, out, &o, &r, &err) ||
		    ig_stepper_model_open(&file, out, NULL, &err))
			fail_msg("%s as %s: %s", name, cases[i].mix, err.text);
		for (size_t j = 0; j < r.n_tensors && i > 0; j++)
			if (r.tensors[j].from == IG_MXFP4)
				expect_same_bytes(from, file.file, r.tensors[j].name);
		ig_convert_report_finish(&r);
		struct ig_stepper *s = open_stepper(&file, &g, NULL, NULL, false);
		run_along(s, &g, 0, N_PROMPTS, 64, 3, i > 0, logits);
		for (int p = 0; p < N_PROMPTS; p++) {
			double e = nmse(&g, p, logits);
			printf("# %s as %s, prompt %d: NMSE %.2e\n", name, cases[i].mix, p, e);
			if (!(e <= (has_experts(file.plan) ? cases[i].experts : cases[i].dense)))
				fail_msg("%s as %s: NMSE %g", name, cases[i].mix, e);
		}
		ig_stepper_close(s);
		ig_stepper_model_close(&file);
		assert_int_equal(unlink(out), 0);
	}
	assert_int_equal(rmdir(dir), 0);
	ig_stepper_model_close(&folder);
	free(logits);
	close_golden(&g);
}

/* MLX's groups against the model of their exact values; mlxmix and mlxoss are MLX's own (mlx_made.py). */
static const struct mlx {
	const char *name;
	uint32_t n_q8_m, n_mxfp4; /* weights */
} mlx_folders[] = { { "mlx", 3, 0 },
		    { "mlxmoe", 0, 0 },
		    { "mlxmix", 7, 3 },
		    { "mlxoss", 10, 6 },
		    { "mlxlaguna", 0, 0 } };

static void test_mlx(void **state)
{
	static const char *const isas[] = { NULL, "generic", "avx2", "avx512", "neon" };
	const struct mlx *of = *state;
	const char *name = of->name;
	struct golden g = { 0 };
	struct ig_stepper_model m;
	struct ig_error err = { 0 };
	char path[512];
	uint32_t n_q8_m = 0, n_mxfp4 = 0;

	open_golden(name, &g);
	snprintf(path, sizeof path, INGOT_TEST_ARCHS "/%s", name);
	if (ig_stepper_model_open(&m, path, NULL, &err))
		fail_msg("%s", err.text);
	for (uint32_t i = 0; i < m.plan->n_weights; i++) {
		n_q8_m += m.plan->weights[i].shape.dtype == IG_Q8_M;
		n_mxfp4 += m.plan->weights[i].shape.dtype == IG_MXFP4;
	}
	assert_int_equal(n_q8_m, of->n_q8_m);
	assert_int_equal(n_mxfp4, of->n_mxfp4);
	for (size_t i = 0; i < (ig_stepper_on_gpu() ? 1 : sizeof isas / sizeof *isas); i++)
		assert_true(run_isa(&m, &g, name, isas[i]) || i);
	ig_stepper_model_close(&m);
	close_golden(&g);
}

#define MLX(i) { mlx_folders[i].name, test_mlx, NULL, NULL, (void *)(uintptr_t)&mlx_folders[i] }
#define MODEL(name) { #name, test_model, NULL, NULL, (void *)#name }
#define CONVERTED(name) { #name " converted", test_converted, NULL, NULL, (void *)#name }
#define FOLDER(name) { #name "/", test_folder, NULL, NULL, (void *)#name }

/* An argument is a pattern for names of tests. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		MODEL(llama3),
		MODEL(linear),
		MODEL(bias),
		MODEL(mistral),
		MODEL(mistral3),
		MODEL(qwen2),
		MODEL(qwen3),
		MODEL(gpt2),
		MODEL(gemma3),
		MODEL(gemma4e),
		MODEL(museglimmer),
		MODEL(gemma4moe),
		FOLDER(gemma4),
		FOLDER(gemma4e),
		FOLDER(gemma4moe),
		FOLDER(museglimmer),
		MODEL(gemma4),
		MODEL(qwen3moe),
		MODEL(mixtral),
		MODEL(olmoe),
		MODEL(glm4moe),
		FOLDER(glm4moe),
		MODEL(gptoss),
		MODEL(gptossmx),
		MODEL(minimaxm2),
		FOLDER(minimaxm2),
		FOLDER(gptoss),
		FOLDER(gptossmx),
		FOLDER(llama3),
		FOLDER(linear),
		FOLDER(bias),
		FOLDER(mistral),
		FOLDER(mistral3),
		FOLDER(qwen2),
		FOLDER(qwen3),
		FOLDER(gpt2),
		FOLDER(gemma3),
		FOLDER(qwen3moe),
		FOLDER(mixtral),
		FOLDER(olmoe),
		MODEL(lfm2),
		FOLDER(lfm2),
		MODEL(qwen35),
		FOLDER(qwen35),
		MODEL(glmlite),
		FOLDER(glmlite),
		MODEL(deepseek3),
		FOLDER(deepseek3),
		MODEL(deepseek2),
		FOLDER(deepseek2),
		MODEL(laguna),
		FOLDER(laguna),
		MODEL(lagunam),
		FOLDER(lagunam),
		MODEL(qwen35moe),
		FOLDER(qwen35moe),
		MODEL(qwen3next),
		FOLDER(qwen3next),
		MODEL(lfm2moe),
		FOLDER(lfm2moe),
		MLX(0),
		MLX(1),
		MLX(2),
		MLX(3),
		MLX(4),
		MODEL(nemotronh),
		FOLDER(nemotronh),
		MODEL(nemotron3),
		FOLDER(nemotron3),
		MODEL(nemotron3l),
		FOLDER(nemotron3l),
		MODEL(nemotronpuzzle),
		FOLDER(nemotronpuzzle),
		MODEL(qwen35o),
		MODEL(granite4a),
		FOLDER(granite4a),
		MODEL(granite),
		FOLDER(granite),
		MODEL(granite3m),
		FOLDER(granite3m),
		MODEL(granite3s),
		FOLDER(granite3s),
		MODEL(granite4m),
		MODEL(granite4),
		FOLDER(granite4m),
		FOLDER(granite4),
		/* these last: of the driver cpu alone */
		CONVERTED(gemma4),
		CONVERTED(gemma4e),
		CONVERTED(gemma4moe),
		CONVERTED(museglimmer),
		CONVERTED(glm4moe),
		CONVERTED(minimaxm2),
		CONVERTED(gptoss),
		CONVERTED(gptossmx),
		CONVERTED(llama3),
		CONVERTED(linear),
		CONVERTED(bias),
		CONVERTED(mistral),
		CONVERTED(mistral3),
		CONVERTED(qwen2),
		CONVERTED(qwen3),
		CONVERTED(gpt2),
		CONVERTED(gemma3),
		CONVERTED(qwen3moe),
		CONVERTED(mixtral),
		CONVERTED(olmoe),
		CONVERTED(lfm2),
		CONVERTED(qwen35),
		CONVERTED(glmlite),
		CONVERTED(deepseek3),
		CONVERTED(deepseek2),
		CONVERTED(laguna),
		CONVERTED(lagunam),
		CONVERTED(qwen35moe),
		CONVERTED(qwen3next),
		CONVERTED(lfm2moe),
		CONVERTED(nemotronh),
		CONVERTED(nemotron3),
		CONVERTED(nemotron3l),
		CONVERTED(nemotronpuzzle),
		CONVERTED(granite4a),
		CONVERTED(granite),
		CONVERTED(granite3m),
		CONVERTED(granite3s),
		CONVERTED(granite4m),
		CONVERTED(granite4),
		CONVERTED(mlx),
		CONVERTED(mlxmoe),
		CONVERTED(mlxmix),
		CONVERTED(mlxoss),
	};
	size_t n = sizeof tests / sizeof *tests;

	while (ig_stepper_on_gpu() && tests[n - 1].test_func == test_converted)
		n--; /* files that were written are read by the same code */
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return _cmocka_run_group_tests("architectures", tests, n, NULL, NULL);
}
