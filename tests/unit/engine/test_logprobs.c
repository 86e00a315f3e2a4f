/* test_logprobs.c: log probabilities against the plain definition in double. */
#include "daemon/engine/logprobs.h"

#include "base/clock.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static unsigned rng = 1;

static unsigned rnd(unsigned n)
{
	rng = rng * 1664525u + 1013904223u;
	return (rng >> 8) % n;
}

/* log(sum of exp(x)) */
static double log_sum_exp(const float *x, int n)
{
	double max = -INFINITY, sum = 0;

	for (int i = 0; i < n; i++)
		max = fmax(max, (double)x[i]);
	for (int i = 0; i < n; i++)
		sum += exp((double)x[i] - max);
	return max + log(sum);
}

static void assert_near(double got, double want)
{
	if (!(fabs(got - want) <= 3e-7 + 1e-7 * fabs(want)))
		fail_msg("%.9g, expected %.9g", got, want);
}

/* Row lengths about and far from a multiple of the lanes; flat, peaked and far off rows. */
static void test_against_double(void **state)
{
	static const int lengths[] = { 1, 2, 15, 16, 17, 31, 33, 100, 1000, 49152, 151936 };
	static const float spreads[] = { 0, 0.5f, 10, 60, 300 }, offsets[] = { 0, -80, 1e4f };
	float *x = malloc(151936 * sizeof *x);

	for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
		for (size_t k = 0; k < 15; k++) {
			struct ig_token_prob top[IG_MAX_TOP];
			int n = lengths[l];
			double sum, whole = 0;
			int32_t n_found, id;
			float p;

			for (int i = 0; i < n; i++)
				x[i] = offsets[k / 5] +
				       spreads[k % 5] * ((float)rnd(1 << 20) / (1 << 19) - 1);
			sum = log_sum_exp(x, n);
			id = (int32_t)rnd((unsigned)n);
			p = ig_logprobs(x, n, n, id, top, 5, &n_found);
			assert_near((double)p, (double)x[id] - sum);
			assert_int_equal(n_found, n < 5 ? n : 5);
			for (int i = 0; i < n_found; i++)
				assert_near((double)top[i].logprob, (double)x[top[i].id] - sum);
			if (n > 1000)
				continue;
			for (int i = 0; i < n; i++) {
				p = ig_logprobs(x, n, n, i, NULL, 0, &n_found);
				assert_int_equal(n_found, 0);
				assert_true(p <= 0);
				whole += exp((double)p);
			}
			assert_true(fabs(whole - 1) < 1e-5);
		}
	}
	free(x);
}

static int by_logit(const float *x, int a, int b) { return x[a] != x[b] ? x[a] > x[b] : a < b; }

/* Few values, so that many are equal: the order is by probability, then id. */
static void test_top(void **state)
{
	float x[300];

	for (int round = 0; round < 2000; round++) {
		struct ig_token_prob top[IG_MAX_TOP];
		int n = 1 + (int)rnd(300), n_ids = 1 + (int)rnd((unsigned)n);
		int n_top = (int)rnd(IG_MAX_TOP + 1), order[300];
		int32_t n_found;

		for (int i = 0; i < n; i++)
			x[i] = (float)rnd(round % 2 ? 4 : 1000) - 2;
		for (int i = 0; i < n_ids; i++) { /* by insertion */
			int at = i;
			for (; at > 0 && by_logit(x, i, order[at - 1]); at--)
				order[at] = order[at - 1];
			order[at] = i;
		}
		ig_logprobs(x, n, n_ids, 0, top, n_top, &n_found);
		assert_int_equal(n_found, n_top < n_ids ? n_top : n_ids);
		for (int i = 0; i < n_found; i++) {
			assert_int_equal(top[i].id, order[i]);
			assert_true(!i || top[i].logprob <= top[i - 1].logprob);
		}
	}
}

/* NaN and a probability of 0 give a finite number too, since JSON has no other. */
static void test_no_numbers(void **state)
{
	struct ig_token_prob top[4];
	float x[40];
	int32_t n;

	for (int i = 0; i < 40; i++)
		x[i] = -INFINITY;
	x[3] = 2;
	x[20] = 2;
	assert_near((double)ig_logprobs(x, 40, 40, 20, top, 4, &n), -log(2));
	assert_int_equal(n, 4);
	assert_int_equal(top[0].id, 3);
	assert_int_equal(top[1].id, 20);
	assert_true(top[2].logprob == IG_LEAST_LOGPROB);
	assert_true(ig_logprobs(x, 40, 40, 0, top, 4, &n) == IG_LEAST_LOGPROB);
	x[3] = 3e38f;
	assert_true(ig_logprobs(x, 40, 40, 20, top, 4, &n) == IG_LEAST_LOGPROB);
	assert_true(ig_logprobs(x, 40, 40, 3, top, 4, &n) == 0);
	x[3] = INFINITY;
	assert_true(ig_logprobs(x, 40, 40, 3, top, 4, &n) == IG_LEAST_LOGPROB);
	for (int i = 0; i < 40; i++)
		x[i] = i % 3 ? NAN : (float)i;
	assert_true(isfinite(ig_logprobs(x, 40, 40, 1, top, 4, &n)));
	assert_int_equal(n, 4);
	assert_int_equal(top[0].id, 39);
	assert_int_equal(top[3].id, 30);
	for (int i = 0; i < 40; i++)
		x[i] = NAN;
	assert_true(ig_logprobs(x, 40, 40, 1, top, 4, &n) == IG_LEAST_LOGPROB);
	assert_int_equal(n, 0);
}

/* What a row costs the engine's thread: 0.4 ms where this was written. */
static void test_cost(void **state)
{
	struct ig_token_prob top[IG_MAX_TOP];
	const int n = 151936;
	float *x = malloc((size_t)n * sizeof *x);
	int64_t best = INT64_MAX;
	int32_t n_found;

	for (int i = 0; i < n; i++)
		x[i] = (float)rnd(1 << 20) / (1 << 16);
	for (int round = 0; round < 20; round++) {
		int64_t start = ig_now_ns(), took;

		ig_logprobs(x, n, n, round, top, IG_MAX_TOP, &n_found);
		took = ig_now_ns() - start;
		best = took < best ? took : best;
	}
	printf("# a row of %d logits: %.1f us\n", n, (double)best * 1e-3);
	assert_true(best < 50 * 1000000);
	free(x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_against_double),
		cmocka_unit_test(test_top),
		cmocka_unit_test(test_no_numbers),
		cmocka_unit_test(test_cost),
	};
	return cmocka_run_group_tests_name("logprobs", tests, NULL, NULL);
}
