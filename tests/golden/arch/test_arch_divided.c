/*
 * test_arch_divided.c: the tiny models of test_arch_golden.c divided over devices, and cut into stages between layers,
 * both on one device here: the golden's logits, and the bits of the whole.  INGOT_TEST_DRIVER names another driver than cpu.
 */
#include "tests/golden/arch/golden_runs.h"

#include "runtime/split.h"
#include "runtime/stages.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ranks {
	const char *name, *suffix; /* of the golden, and of the model */
	const char *refused[3];	   /* on two, three and four: why not; NULL: it is divided */
};

/* The nodes of two, three and four devices, run on one: the same logits within the same bound, and the same
 * bits in any chunk and batch.  What can't be divided is refused with the reason. */
static void test_ranks(void **state)
{
	const struct ranks *t = *state;
	struct golden g = { 0 };
	struct ig_stepper_model whole;
	struct ig_error err = { 0 };
	char path[512];

	open_golden(t->name, &g);
	snprintf(path, sizeof path, INGOT_TEST_ARCHS "/%s%s.gguf", t->name, t->suffix);
	if (ig_stepper_model_open(&whole, path, NULL, &err))
		fail_msg("%s", err.text);
	for (uint32_t n = 2; n <= 4; n++) {
		struct ig_stepper_model m = whole;
		int rc = ig_plan_split(whole.plan, n, IG_ALL_RANKS, &m.plan, &err);
		printf("# %s, %u devices: %s\n", t->name, n, rc ? err.text : "divided");
		if (t->refused[n - 2]) {
			assert_int_equal(rc, -ENOTSUP);
			assert_non_null(strstr(err.text, t->refused[n - 2]));
			continue;
		}
		if (rc)
			fail_msg("%s, %u devices: %s", t->name, n, err.text);
		assert_int_equal(run_isa(&m, &g, t->name, NULL), 1);
		ig_plan_destroy(m.plan);
	}
	ig_stepper_model_close(&whole);
	close_golden(&g);
}

/* ---- stages ---- */

struct staged {
	const char *name;
	uint32_t most;	 /* stages */
	const char *why; /* there can't be more; NULL: it has so many layers */
};

static uint64_t weight_bytes(const struct ig_plan *p)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < p->n_weights; i++)
		sum += p->weights[i].n_bytes;
	return sum;
}

static uint32_t n_layers(const struct ig_plan *p)
{
	uint32_t sum = 0;

	for (uint32_t g = 0; g < p->info.n_groups; g++)
		sum += p->info.groups[g].n_layers;
	return sum;
}

/* Cut into n stages, which get each other's rows and have their own weights and cache: the bits of the whole. */
static void expect_stages(const struct ig_stepper_model *whole, const struct golden *g,
			  const char *name, uint32_t n, const float *want)
{
	static const struct {
		uint32_t chunk, left;
	} ways[] = { { MAX_PROMPT, MAX_PROMPT }, { 1, 1 }, { 7, 3 }, { 64, 20 } };
	const size_t size = (size_t)N_PROMPTS * N_STEPS * g->n_vocab;
	struct ig_plan *plans[1 + IG_STEPPER_LATER] = { NULL };
	struct ig_stepper_model m = *whole;
	float *got = calloc(size, sizeof *got);
	struct ig_error err = { 0 };

	assert_non_null(got);
	for (uint32_t i = 0; i < n; i++) {
		if (ig_plan_cut(whole->plan, n, i, &plans[i], &err))
			fail_msg("%s, stage %u of %u: %s", name, i, n, err.text);
		assert_true(weight_bytes(plans[i]) < weight_bytes(whole->plan));
		assert_true(n_layers(plans[i]) <= n_layers(whole->plan));
		assert_int_equal(plans[i]->width_in, i ? plans[i - 1]->width_out : 0);
		assert_int_equal(plans[i]->width_out > 0, i + 1 < n);
	}
	m.plan = plans[0];
	m.later = plans + 1;
	m.n_later = n - 1;
	struct ig_stepper *s = open_stepper(&m, g, NULL, NULL, false);
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
		memset(got, 0, size * sizeof *got);
		run(s, g, 0, N_PROMPTS, ways[i].chunk, ways[i].left, got);
		assert_memory_equal(got, want, size * sizeof *got);
	}
	for (int i = 0; i < N_PROMPTS; i++)
		run(s, g, i, i + 1, 64, 20, got);
	assert_memory_equal(got, want, size * sizeof *got);
	ig_stepper_close(s);
	for (uint32_t i = 0; i < n; i++)
		ig_plan_destroy(plans[i]);
	free(got);
}

static void test_stages(void **state)
{
	const struct staged *t = *state;
	struct golden g = { 0 };
	struct ig_stepper_model whole;
	struct ig_error err = { 0 };
	char path[512];

	open_golden(t->name, &g);
	snprintf(path, sizeof path, INGOT_TEST_ARCHS "/%s.gguf", t->name);
	if (ig_stepper_model_open(&whole, path, NULL, &err))
		fail_msg("%s", err.text);
	float *want = calloc((size_t)N_PROMPTS * N_STEPS * g.n_vocab, sizeof *want);
	struct ig_stepper *s = open_stepper(&whole, &g, NULL, NULL, false);
	assert_non_null(want);
	run(s, &g, 0, N_PROMPTS, MAX_PROMPT, MAX_PROMPT, want);
	ig_stepper_close(s);
	for (uint32_t n = 2; n <= 4; n++) {
		struct ig_plan *plan;
		int rc = ig_plan_cut(whole.plan, n, 0, &plan, &err);
		printf("# %s, %u stages: %s\n", t->name, n, rc ? err.text : "cut");
		ig_plan_destroy(plan);
		if (n <= t->most) {
			if (rc)
				fail_msg("%s, %u stages: %s", t->name, n, err.text);
			expect_stages(&whole, &g, t->name, n, want);
			continue;
		}
		assert_int_equal(rc, -ENOTSUP);
		assert_non_null(strstr(err.text, t->why ? t->why : "it has no more layers"));
	}
	free(want);
	ig_stepper_model_close(&whole);
	close_golden(&g);
}

#define STAGES(name, most, why)                                                                    \
	{                                                                                          \
		#name " in stages", test_stages, NULL, NULL, &(struct staged) { #name, most, why } \
	}
#define RANKS(name, ...)                                                                           \
	{                                                                                          \
		#name " on devices", test_ranks, NULL, NULL, &(struct ranks)                       \
		{                                                                                  \
			#name, "", { __VA_ARGS__ }                                                 \
		}                                                                                  \
	}
#define WIDE(name, ...)                                                                            \
	{                                                                                          \
		#name "_wide on devices", test_ranks, NULL, NULL, &(struct ranks)                  \
		{                                                                                  \
			#name, "_wide", { __VA_ARGS__ }                                            \
		}                                                                                  \
	}

/* An argument is a pattern for names of tests: "*devices". */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		RANKS(llama3, NULL, "2 heads of keys", NULL),
		RANKS(linear, NULL, "2 heads of keys", NULL),
		RANKS(bias, NULL, "2 heads of keys", NULL),
		RANKS(mistral, NULL, "2 heads of keys", NULL),
		RANKS(mistral3, NULL, "2 heads of keys", NULL),
		RANKS(qwen2, NULL, "2 heads of keys", NULL),
		RANKS(qwen3, NULL, "2 heads of keys", NULL),
		RANKS(gemma4, NULL, "2 heads of keys", NULL),
		RANKS(gemma3, NULL, "it has 4 heads", NULL),
		RANKS(gpt2, "3 heads of keys", NULL, "3 heads of keys"),
		RANKS(qwen3moe, "80 rows of weights for 10 experts", "2 heads",
		      "its experts are too small"),
		WIDE(gptoss, NULL, "2 heads of keys", "multiple of 16"),
		WIDE(gemma4moe, NULL, "2 heads of keys", "multiple of 32"),
		WIDE(qwen3moe, NULL, "2 heads of keys", "multiple of 16"),
		RANKS(minimaxm2, "a norm over all heads", "2 heads", "a norm over all heads"),
		RANKS(lfm2, "states", "states", "states"),
		RANKS(deepseek3, "latent keys", "latent keys", "latent keys"),
		/* these last: of the driver cpu alone */
		STAGES(llama3, 2, NULL),
		STAGES(linear, 1, NULL),
		STAGES(bias, 1, NULL),
		STAGES(mistral, 2, NULL),
		STAGES(mistral3, 1, NULL),
		STAGES(qwen2, 2, NULL),
		STAGES(qwen3, 2, NULL),
		STAGES(gpt2, 2, NULL),
		STAGES(gemma3, 4, NULL),
		STAGES(gemma4, 3, NULL),
		STAGES(gemma4e, 1, "later layers read the cache of layer 0"),
		STAGES(gemma4moe, 2, NULL),
		STAGES(museglimmer, 4, NULL),
		STAGES(qwen3moe, 2, NULL),
		STAGES(mixtral, 2, NULL),
		STAGES(olmoe, 2, NULL),
		STAGES(glm4moe, 2, NULL),
		STAGES(gptoss, 2, NULL),
		STAGES(gptossmx, 2, NULL),
		STAGES(minimaxm2, 2, NULL),
		STAGES(lfm2, 4, NULL),
		STAGES(lfm2moe, 3, NULL),
		STAGES(qwen35, 4, NULL),
		STAGES(qwen35moe, 3, NULL),
		STAGES(qwen3next, 3, NULL),
		STAGES(glmlite, 2, NULL),
		STAGES(deepseek2, 2, NULL),
		STAGES(deepseek3, 2, NULL),
		STAGES(laguna, 3, NULL),
		STAGES(lagunam, 3, NULL),
		STAGES(nemotronh, 4, NULL),
		STAGES(nemotron3, 4, NULL),
		STAGES(nemotron3l, 3, NULL),
		STAGES(granite4, 4, NULL),
		STAGES(granite4a, 2, NULL),
		STAGES(granite4m, 2, NULL),
		STAGES(granite3s, 2, NULL),
	};
	size_t n = sizeof tests / sizeof *tests;

	while (ig_stepper_on_gpu() && tests[n - 1].test_func == test_stages)
		n--; /* GPUs have no stages */
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return _cmocka_run_group_tests("divided models", tests, n, NULL, NULL);
}
