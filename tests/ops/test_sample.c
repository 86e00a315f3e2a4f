/* test_sample.c: drawing tokens: the kernels against the plain reference, against
 * the probabilities they claim, and at the edges. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "ops/cpu/rows.h"
#include "ops/float.h"
#include "ops/ops.h"
#include "ops/sampling.h"
#include "runtime/cpu/isa.h"
#include "tests/ops/cases.h"

#include <stdlib.h>

#define N 499

#define PARAMS(t, p, k, at, s)                                                                     \
	{ .temperature = t, .top_p = p, .top_k = k, .repetition_penalty = 1.0f, .mask = -1,        \
	  .position = at, .seed = s }

static float logits[N];
static uint64_t scratch[N];

static void fill(uint64_t seed)
{
	for (int i = 0; i < N; i++)
		logits[i] = ig_random_normalish(&seed) * 4.0f;
}

/* Run the op with a kernel, or with the reference. */
static int32_t draw(const struct ig_cpu_kernel *k, const struct ig_sample_params *p, float *copy)
{
	int32_t id = -1;
	struct ig_sample_op_params op = { sizeof op, 0 };
	struct ig_step step = { .struct_size = sizeof step, .n_rows = 1, .n_logit_rows = 1,
				.sample = p, .sampled_ids = &id, .logits = copy };
	struct ig_op_call c = { .struct_size = sizeof c, .params = &op, .n_in = 1, .step = &step,
				.in = { { logits, 1, N, N * 4, IG_F32, IG_FORM_ROWS } } };
	if (k) {
		assert_true(k->scratch_bytes(&c) <= sizeof scratch);
		k->run(&c, 0, k->n_units(&c), scratch);
	} else {
		ig_op_sample.reference(&c);
	}
	return id;
}

static void test_kernels_agree_with_the_reference(void **state)
{
	static const float temperatures[] = { 0.0f, 0.2f, 0.7f, 1.0f, 2.0f };
	static const float ps[] = { 1.0f, 0.95f, 0.5f, 0.01f };
	static const int32_t ks[] = { 0, 1, 2, 40, N, N + 5 };

	for (uint32_t j = 0; j < ig_op_sample.n_cpu_kernels; j++) {
		const struct ig_cpu_kernel *k = &ig_op_sample.cpu_kernels[j];
		if (!ig_isa_includes(ig_isa_best(), k->isa))
			continue;
		uint64_t s = 42;
		for (int t = 0; t < 5; t++)
			for (int a = 0; a < 4; a++)
				for (int b = 0; b < 6; b++)
					for (int pos = 0; pos < 4; pos++) {
						struct ig_sample_params p = PARAMS(temperatures[t], ps[a],
								ks[b], pos, ig_random_u64(&s));
						fill(p.seed | 1);
						assert_int_equal(draw(k, &p, NULL), draw(NULL, &p, NULL));
					}
	}
}

static void test_greedy_edges(void **state)
{
	struct ig_sample_params p = PARAMS(0.0f, 1.0f, 0, 0, 0);

	for (uint32_t j = 0; j < ig_op_sample.n_cpu_kernels; j++) {
		const struct ig_cpu_kernel *k = &ig_op_sample.cpu_kernels[j];
		float copy[N];
		if (!ig_isa_includes(ig_isa_best(), k->isa))
			continue;
		fill(7);
		logits[17] = logits[400] = 50.0f; /* a tie: the first */
		assert_int_equal(draw(k, &p, copy), 17);
		assert_memory_equal(copy, logits, sizeof copy);
		logits[3] = NAN; /* never wins */
		assert_int_equal(draw(k, &p, NULL), 17);
		logits[N - 1] = 51.0f; /* in the tail of the vector loop */
		assert_int_equal(draw(k, &p, NULL), N - 1);
		for (int i = 0; i < N; i++)
			logits[i] = NAN;
		int32_t id = draw(k, &p, NULL);
		assert_in_range(id, 0, N - 1);
		p.temperature = 1.0f;
		p.top_p = 0.5f;
		id = draw(k, &p, NULL);
		assert_in_range(id, 0, N - 1);
		for (int i = 0; i < N; i++)
			logits[i] = -INFINITY;
		id = draw(k, &p, NULL);
		assert_in_range(id, 0, N - 1);
		logits[5] = INFINITY;
		assert_int_equal(draw(k, &p, NULL), 5);
		p = (struct ig_sample_params)PARAMS(1e-40f, 1.0f, 0, 0, 0);
		fill(7);
		logits[33] = 60.0f;
		assert_int_equal(draw(k, &p, NULL), 33);
		p.temperature = 0.0f;
	}
}

/* The share of draws of each token is its probability, within what chance allows. */
static void check_distribution(const struct ig_sample_params *base, int n_kept)
{
	enum { DRAWS = 40000 };
	static int count[N];
	double want[N], total = 0.0;
	struct ig_sample_params p = *base;

	fill(11);
	memset(count, 0, sizeof count);
	for (p.position = 0; p.position < DRAWS; p.position++)
		count[ig_sample_draw(logits, N, &p, scratch)]++;
	/* the n_kept largest, by counting who is larger */
	for (int i = 0; i < N; i++) {
		int larger = 0;
		for (int j = 0; j < N; j++)
			larger += logits[j] > logits[i] || (logits[j] == logits[i] && j < i);
		want[i] = larger < n_kept ? exp((double)logits[i] / (double)p.temperature) : 0.0;
		total += want[i];
	}
	double chi2 = 0.0;
	int cells = 0;
	for (int i = 0; i < N; i++) {
		double e = want[i] / total * DRAWS;
		if (want[i] == 0.0)
			assert_int_equal(count[i], 0);
		if (e < 5.0)
			continue;
		chi2 += (count[i] - e) * (count[i] - e) / e;
		cells++;
	}
	/* chi-squared has mean `cells` and deviation sqrt(2 cells) */
	assert_true(cells > 3);
	assert_true(chi2 < cells + 5.0 * sqrt(2.0 * cells));
}

static void test_distribution(void **state)
{
	struct ig_sample_params p = PARAMS(1.3f, 1.0f, 0, 0, 99);
	check_distribution(&p, N);
	p.top_k = 20;
	check_distribution(&p, 20);
}

static void test_top_p_keeps_the_shortest_prefix(void **state)
{
	struct ig_sample_params p = PARAMS(1.0f, 0.6f, 0, 0, 5);
	/* probabilities 0.5, 0.25, 0.125, … : 0.6 needs two tokens */
	for (int i = 0; i < N; i++)
		logits[i] = i < 60 ? -(float)i * 0.69314718f : -1000.0f;
	bool seen[3] = { false };
	for (p.position = 0; p.position < 2000; p.position++) {
		int32_t id = ig_sample_draw(logits, N, &p, scratch);
		assert_in_range(id, 0, 1);
		seen[id] = true;
	}
	assert_true(seen[0] && seen[1]);
	p.top_p = 0.8f;
	for (p.position = 0; p.position < 2000; p.position++) {
		int32_t id = ig_sample_draw(logits, N, &p, scratch);
		assert_in_range(id, 0, 2);
		seen[id] = true;
	}
	assert_true(seen[2]);
}

static void test_uniform_is_a_function_of_seed_and_position(void **state)
{
	double sum = 0.0;

	assert_true(ig_sample_uniform(1, 2) == ig_sample_uniform(1, 2));
	assert_true(ig_sample_uniform(1, 2) != ig_sample_uniform(1, 3));
	assert_true(ig_sample_uniform(1, 2) != ig_sample_uniform(2, 2));
	for (uint64_t i = 0; i < 100000; i++) {
		double u = ig_sample_uniform(7, i);
		assert_true(u >= 0.0 && u < 1.0);
		sum += u;
	}
	assert_true(fabs(sum / 100000 - 0.5) < 0.005);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kernels_agree_with_the_reference),
		cmocka_unit_test(test_greedy_edges),
		cmocka_unit_test(test_distribution),
		cmocka_unit_test(test_top_p_keeps_the_shortest_prefix),
		cmocka_unit_test(test_uniform_is_a_function_of_seed_and_position),
	};
	return cmocka_run_group_tests_name("sample", tests, NULL, NULL);
}
