/* test_sample.c: drawing tokens: the kernels against the plain reference, against
 * the probabilities they claim, each parameter by what it means, and at the edges. */
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

#define N_MOST 5003 /* several blocks, the last one not full */
#define N 499
#define N_SMALL 12
#define MASK_WORDS ((N_MOST + 31) / 32)

#define PARAMS(t, p, k)                                                                            \
	{ .temperature = t, .top_p = p, .top_k = k, .repetition_penalty = 1.0f, .mask = -1 }

static float logits[N_MOST];
static uint64_t scratch[N_MOST * 4 + 8192];
static struct ig_logit_adjust adjusts[64];
static uint32_t masks[3][MASK_WORDS];

static void fill(int n, uint64_t seed)
{
	for (int i = 0; i < n; i++)
		logits[i] = ig_random_normalish(&seed) * 4.0f;
}

/* Run the op with a kernel, or with the reference. */
static int32_t draw_with(const struct ig_cpu_kernel *k, const struct ig_sample_params *p, int n,
			 float *copy)
{
	int32_t id = -1;
	struct ig_sample_op_params op = { sizeof op, 0 };
	struct ig_step step = { .struct_size = sizeof step,
				.n_rows = 1,
				.n_logit_rows = 1,
				.sample = p,
				.sampled_ids = &id,
				.logits = copy,
				.adjusts = adjusts,
				.n_adjusts = 64 };
	struct ig_op_launch c = { .struct_size = sizeof c,
				  .params = &op,
				  .n_in = 1,
				  .step = &step,
				  .in = { { logits, 1, n, n * 4, IG_F32, IG_LAYOUT_ROWS } } };
	uint32_t packed[3 * MASK_WORDS]; /* as the op finds them: rows of n's own length */
	int words = (n + 31) / 32;

	for (int i = 0; i < 3; i++)
		memcpy(packed + i * words, masks[i], (size_t)words * sizeof *packed);
	step.masks = packed;
	step.n_masks = 3;
	if (k) {
		assert_true(k->scratch_bytes(&c) <= sizeof scratch);
		k->run(&c, 0, k->n_units(&c), scratch);
	} else {
		ig_op_sample.reference(&c);
	}
	assert_in_range(id, 0, n - 1);
	return id;
}

/* With every kernel that this machine runs and the reference: all the same. */
static int32_t draw(const struct ig_sample_params *p, int n)
{
	int32_t id = draw_with(NULL, p, n, NULL);

	for (uint32_t j = 0; j < ig_op_sample.n_cpu_kernels; j++) {
		const struct ig_cpu_kernel *k = &ig_op_sample.cpu_kernels[j];
		if (ig_isa_includes(ig_isa_best(), k->isa))
			assert_int_equal(draw_with(k, p, n, NULL), id);
	}
	return id;
}

static void mask_all(int row, bool allowed)
{
	memset(masks[row], allowed ? 0xff : 0, sizeof masks[row]);
}

static void mask_one(int row, int id, bool allowed)
{
	masks[row][id / 32] &= ~(1u << (id % 32));
	masks[row][id / 32] |= (uint32_t)allowed << (id % 32);
}

/* ---- against the reference ---- */

/* Random adjustments of distinct ids, and a random mask. */
static void random_changes(int n, uint64_t *s)
{
	for (int i = 0; i < 64; i++)
		adjusts[i] = (struct ig_logit_adjust){
			.id = (int32_t)((ig_random_u64(s) % (uint64_t)(n / 64)) * 64) + i,
			.n_sampled = (uint32_t)(ig_random_u64(s) % 3),
			.seen = (uint32_t)(ig_random_u64(s) % 2),
			.bias = ig_random_normalish(s) * 3.0f
		};
	for (int i = 0; i < MASK_WORDS; i++)
		masks[1][i] = (uint32_t)(ig_random_u64(s) & ig_random_u64(s));
}

static void test_kernels_agree_with_the_reference(void **state)
{
	static const float temperatures[] = { 0.0f, 0.2f, 0.7f, 1.0f, 2.0f };
	static const float ps[] = { 1.0f, 0.95f, 0.5f, 0.01f, 0.0f };
	static const int32_t ks[] = { 0, 1, 2, 40, N, N + 5, 3000 };
	static const float min_ps[] = { 0.0f, 0.05f, 1.0f };
	uint64_t s = 42;

	mask_all(0, true);
	for (int n = N; n <= N_MOST; n += N_MOST - N)
		for (int t = 0; t < 5; t++)
			for (int a = 0; a < 5; a++)
				for (int b = 0; b < 7; b++)
					for (int pos = 0; pos < 6; pos++) {
						struct ig_sample_params p =
							PARAMS(temperatures[t], ps[a], ks[b]);
						p.position = pos;
						p.seed = ig_random_u64(&s);
						p.min_p = min_ps[pos % 3];
						fill(n, p.seed | 1);
						if (pos >= 3) { /* many ties */
							for (int i = 0; i < n; i++)
								logits[i] = rintf(logits[i]) * 0.5f;
							random_changes(n, &s);
							p.n_adjusts = 50;
							p.first_adjust = 7;
							p.repetition_penalty = 1.2f;
							p.frequency_penalty = 0.3f;
							p.presence_penalty = -0.4f;
							p.mask = pos - 4;
						}
						draw(&p, n);
					}
}

static void test_a_row_of_equals(void **state)
{
	struct ig_sample_params p = PARAMS(1.0f, 0.5f, 0);
	int32_t most = 0;

	for (int i = 0; i < N_MOST; i++)
		logits[i] = -3.0f;
	for (p.position = 0; p.position < 200; p.position++) {
		int32_t id = draw(&p, N_MOST);
		most = id > most ? id : most;
	}
	/* half of them, those with the lower ids */
	assert_in_range(most, N_MOST * 4 / 10, (N_MOST + 1) / 2 - 1);
	p.top_k = 10;
	for (p.position = 0; p.position < 200; p.position++)
		assert_in_range(draw(&p, N_MOST), 0, 4);
}

/* ---- edges ---- */

static void test_greedy_edges(void **state)
{
	struct ig_sample_params p = PARAMS(0.0f, 1.0f, 0);

	fill(N, 7);
	logits[17] = logits[400] = 50.0f; /* a tie: the first */
	assert_int_equal(draw(&p, N), 17);
	logits[3] = NAN; /* never wins */
	assert_int_equal(draw(&p, N), 17);
	logits[N - 1] = 51.0f; /* in the tail of the vector loop */
	assert_int_equal(draw(&p, N), N - 1);
	for (int i = 0; i < N; i++)
		logits[i] = NAN;
	for (int i = 0; i < 2; i++) { /* greedy, then random */
		assert_int_equal(draw(&p, N), 0);
		logits[9] = -INFINITY;
		assert_int_equal(draw(&p, N), 0);
		p.mask = 2;
		mask_all(2, false);
		assert_int_equal(draw(&p, N), 0); /* nothing is allowed */
		mask_one(2, 30, true);
		mask_one(2, 31, true);
		assert_int_equal(draw(&p, N), 30); /* the first that is allowed */
		logits[31] = -1e30f;
		assert_int_equal(draw(&p, N), 31);
		logits[31] = NAN;
		p.mask = -1;
		p.temperature = 1.0f;
		p.top_p = 0.5f;
	}
	logits[5] = INFINITY;
	logits[8] = INFINITY;
	assert_int_equal(draw(&p, N), 5);
	fill(N, 7);
	logits[33] = 60.0f;
	p = (struct ig_sample_params)PARAMS(1e-40f, 1.0f, 0);
	assert_int_equal(draw(&p, N), 33);
	p.temperature = NAN;
	assert_int_equal(draw(&p, N), 33);
	/* the hottest there is: all that is finite alike */
	p.temperature = INFINITY;
	for (int i = 0; i < N; i++)
		logits[i] = i < 3 ? -60.0f * (float)i : -INFINITY;
	bool seen[3] = { false };
	for (p.position = 0; p.position < 60; p.position++) {
		int32_t id = draw(&p, N);
		assert_in_range(id, 0, 2);
		seen[id] = true;
	}
	assert_true(seen[0] && seen[1] && seen[2]);
}

static void test_the_copy_is_what_the_model_gave(void **state)
{
	struct ig_sample_params p = PARAMS(1.0f, 0.9f, 0);
	static float before[N], copy[N];

	p.n_adjusts = 1;
	adjusts[0] = (struct ig_logit_adjust){ .id = 4, .bias = 100.0f };
	mask_all(0, false);
	mask_one(0, 4, true);
	p.mask = 0;
	fill(N, 19);
	memcpy(before, logits, sizeof before);
	for (uint32_t j = 0; j <= ig_op_sample.n_cpu_kernels; j++) {
		const struct ig_cpu_kernel *k = j ? &ig_op_sample.cpu_kernels[j - 1] : NULL;
		if (k && !ig_isa_includes(ig_isa_best(), k->isa))
			continue;
		memset(copy, 0, sizeof copy);
		assert_int_equal(draw_with(k, &p, N, copy), 4);
		assert_memory_equal(copy, before, sizeof copy);
		assert_memory_equal(logits, before, sizeof copy);
	}
}

/* ---- each parameter ---- */

static void small_row(void)
{
	for (int i = 0; i < N_SMALL; i++)
		logits[i] = (float)(i % 4) - 1.0f; /* -1 0 1 2 -1 0 1 2 … */
}

/* How often each id of the small row is sampled in 1,000 positions; the sum of ids. */
static int64_t tally(struct ig_sample_params p, int count[N_SMALL])
{
	int64_t sum = 0;

	memset(count, 0, N_SMALL * sizeof *count);
	for (p.position = 0; p.position < 1000; p.position++) {
		int32_t id = draw(&p, N_SMALL);
		count[id]++;
		sum += id * (p.position + 1);
	}
	return sum;
}

static void test_every_parameter_matters(void **state)
{
	static const struct ig_sample_params plain = PARAMS(1.0f, 1.0f, 0);
	struct ig_sample_params p[9];
	int count[N_SMALL];
	int64_t sums[10];

	small_row();
	for (int i = 0; i < 9; i++)
		p[i] = plain;
	adjusts[0] = (struct ig_logit_adjust){ .id = 3, .n_sampled = 2, .seen = 1 };
	adjusts[1] = (struct ig_logit_adjust){ .id = 7, .bias = 1.0f };
	mask_all(0, true);
	mask_one(0, 11, false);
	p[0].temperature = 0.7f;
	p[1].top_p = 0.7f;
	p[2].min_p = 0.2f;
	p[3].top_k = 5;
	p[4].repetition_penalty = 1.5f;
	p[5].frequency_penalty = 0.5f;
	p[6].presence_penalty = 0.5f;
	p[4].n_adjusts = p[5].n_adjusts = p[6].n_adjusts = 1;
	p[7].mask = 0;
	p[8].first_adjust = 1; /* a bias */
	p[8].n_adjusts = 1;
	sums[9] = tally(plain, count);
	for (int i = 0; i < N_SMALL; i++)
		assert_true(count[i] > 0);
	for (int i = 0; i < 9; i++) {
		sums[i] = tally(p[i], count);
		assert_true(sums[i] != sums[9]);
		for (int j = 0; j < i; j++)
			assert_true(sums[i] != sums[j]);
	}
	tally(p[3], count); /* logits of 2 at 3, 7, 11, then of 1 at 2, 6, 10 */
	assert_true(count[3] && count[7] && count[11] && count[2] && count[6]);
	assert_int_equal(count[3] + count[7] + count[11] + count[2] + count[6], 1000);
	tally(p[2], count); /* e^-1 > 0.2 > e^-2 */
	assert_int_equal(count[0] + count[4] + count[8] + count[1] + count[5] + count[9], 0);
	assert_true(count[2] && count[6] && count[10]);
	tally(p[7], count);
	assert_int_equal(count[11], 0);
	p[8].seed = 1;
	assert_true(tally(p[8], count) != sums[8]);
}

static void test_the_order_of_the_cuts(void **state)
{
	struct ig_sample_params p = PARAMS(1.0f, 0.5f, 3);
	int count[N_SMALL];

	small_row();
	/* top_p is a share of what top_k leaves: of three equals, two */
	tally(p, count);
	assert_true(count[3] && count[7]);
	assert_int_equal(count[3] + count[7], 1000);
	/* temperature comes before top_p: at 0.1, e^-10 of the next is out at 0.99 … */
	p = (struct ig_sample_params)PARAMS(0.1f, 0.99f, 0);
	tally(p, count);
	assert_int_equal(count[3] + count[7] + count[11], 1000);
	/* … and before min_p */
	p = (struct ig_sample_params)PARAMS(2.0f, 1.0f, 0);
	p.min_p = 0.5f; /* e^-0.5 = 0.61 stays, e^-1 = 0.37 goes */
	tally(p, count);
	assert_true(count[2] && count[6] && count[10]);
	assert_int_equal(count[1] + count[5] + count[9] + count[0] + count[4] + count[8], 0);
	/* the mask comes before top_k, adjustments before the mask */
	p = (struct ig_sample_params)PARAMS(1.0f, 1.0f, 2);
	mask_all(0, true);
	mask_one(0, 3, false);
	mask_one(0, 7, false);
	p.mask = 0;
	p.n_adjusts = 1;
	adjusts[0] = (struct ig_logit_adjust){ .id = 3, .bias = 100.0f };
	tally(p, count);
	assert_true(count[11] && count[2]);
	assert_int_equal(count[11] + count[2], 1000);
}

static void test_penalties(void **state)
{
	struct ig_sample_params p = PARAMS(0.0f, 1.0f, 0);
	struct ig_logit_adjust e = { .id = 0, .n_sampled = 3, .seen = 1, .bias = 0.125f };

	p.repetition_penalty = 2.0f;
	p.frequency_penalty = 0.5f;
	p.presence_penalty = 0.25f;
	assert_true(ig_sample_adjusted(5.0f, &e, &p) == 2.5f - 1.5f - 0.25f + 0.125f);
	assert_true(ig_sample_adjusted(-5.0f, &e, &p) == -10.0f - 1.5f - 0.25f + 0.125f);
	e.seen = 0;
	assert_true(ig_sample_adjusted(5.0f, &e, &p) == 5.0f - 1.5f - 0.25f + 0.125f);
	e.n_sampled = 0; /* in the prompt alone: no frequency, no presence */
	e.seen = 1;
	assert_true(ig_sample_adjusted(5.0f, &e, &p) == 2.5f + 0.125f);

	/* greedy with adjustments: the largest of what is left */
	fill(N, 3);
	logits[100] = 20.0f;
	logits[200] = 19.0f;
	logits[300] = 18.0f;
	assert_int_equal(draw(&p, N), 100);
	p.repetition_penalty = 1.0f;
	adjusts[5] = (struct ig_logit_adjust){ .id = 100, .n_sampled = 2, .seen = 1 };
	adjusts[6] = (struct ig_logit_adjust){ .id = 200, .n_sampled = 1, .seen = 1 };
	adjusts[7] = (struct ig_logit_adjust){ .id = -1, .bias = 1000.0f }; /* no token: nothing */
	adjusts[8] = (struct ig_logit_adjust){ .id = N, .bias = 1000.0f };
	p.first_adjust = 5;
	p.n_adjusts = 4;
	assert_int_equal(draw(&p, N), 100); /* 20 - 2 * 0.5 - 0.25 > 19 - 0.5 - 0.25 */
	p.frequency_penalty = 0.9f;
	p.presence_penalty = 0.0f;
	assert_int_equal(draw(&p, N), 100); /* 18.2 > 18.1 > 18 */
	p.frequency_penalty = 1.1f;
	assert_int_equal(draw(&p, N), 300); /* 17.8, 17.9, 18 */
	p.frequency_penalty = 0.0f;
	p.presence_penalty = 2.5f;
	assert_int_equal(draw(&p, N), 300);
}

static void test_bias(void **state)
{
	struct ig_sample_params p = PARAMS(1.0f, 1.0f, 0);

	p.n_adjusts = 1;
	for (p.position = 0; p.position < 300; p.position++) {
		fill(N, 3);
		adjusts[0] = (struct ig_logit_adjust){ .id = 77, .bias = 100.0f };
		assert_int_equal(draw(&p, N), 77);
		logits[78] = 30.0f;
		adjusts[0] = (struct ig_logit_adjust){ .id = 78, .bias = -100.0f };
		assert_int_not_equal(draw(&p, N), 78);
	}
}

static void test_mask_of_one(void **state)
{
	struct ig_sample_params p = PARAMS(1.0f, 0.9f, 50);

	mask_all(2, false);
	mask_one(2, 498, true);
	p.mask = 2;
	for (p.position = 0; p.position < 100; p.position++) {
		fill(N, (uint64_t)p.position + 1);
		p.temperature = (float)(p.position % 3);
		assert_int_equal(draw(&p, N), 498);
	}
}

/* ---- distribution ---- */

/* The share of draws of each token is its probability, within what chance allows. */
static void check_distribution(const struct ig_sample_params *base, int n_kept)
{
	enum { DRAWS = 40000 };
	static int count[N];
	double want[N], total = 0.0;
	struct ig_sample_params p = *base;
	const struct ig_cpu_kernel *k = &ig_op_sample.cpu_kernels[0];

	fill(N, 11);
	memset(count, 0, sizeof count);
	for (p.position = 0; p.position < DRAWS; p.position++)
		count[draw_with(k, &p, N, NULL)]++;
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
	struct ig_sample_params p = PARAMS(1.3f, 1.0f, 0);
	p.seed = 99;
	check_distribution(&p, N);
	p.top_k = 20;
	check_distribution(&p, 20);
}

static void test_top_p_keeps_the_shortest_prefix(void **state)
{
	struct ig_sample_params p = PARAMS(1.0f, 0.6f, 0);
	/* probabilities 0.5, 0.25, 0.125, … : 0.6 needs two tokens */
	for (int i = 0; i < N; i++)
		logits[i] = i < 60 ? -(float)i * 0.69314718f : -1000.0f;
	bool seen[3] = { false };
	for (p.position = 0; p.position < 2000; p.position++) {
		int32_t id = draw(&p, N);
		assert_in_range(id, 0, 1);
		seen[id] = true;
	}
	assert_true(seen[0] && seen[1]);
	p.top_p = 0.8f;
	for (p.position = 0; p.position < 2000; p.position++) {
		int32_t id = draw(&p, N);
		assert_in_range(id, 0, 2);
		seen[id] = true;
	}
	assert_true(seen[2]);
}

/* ---- the arithmetic ---- */

static uint32_t weight_of(float x, float top, float temperature)
{
	struct ig_sample_params p = PARAMS(temperature, 1.0f, 0);
	return ig_sample_weight(ig_sample_distance(x, top, ig_sample_scale(&p)));
}

static void test_weights(void **state)
{
	static const float temperatures[] = { 0.01f, 0.7f, 1.0f, 1.9f };

	assert_int_equal(weight_of(3.0f, 3.0f, 0.7f), 1 << 30);
	assert_int_equal(weight_of(NAN, 3.0f, 1.0f), 0);
	assert_int_equal(weight_of(-INFINITY, 3.0f, INFINITY), 0);
	assert_int_equal(weight_of(-3e38f, 3e38f, 1.0f), 0);
	assert_int_equal(weight_of(-21.48f, 0.0f, 1.0f), 1); /* 2^30 e^-21.48 = 0.505 */
	assert_int_equal(weight_of(-21.50f, 0.0f, 1.0f), 0); /* 0.495 */
	for (int i = 0; i < 4; i++)
		for (float z = 0.0f; z > -64.0f; z -= 0.00173f) {
			float x = z * temperatures[i];
			double want = ldexp(exp((double)x / (double)temperatures[i]), 30);
			assert_true(fabs(weight_of(x, 0.0f, temperatures[i]) - want) <=
				    3e-6 * want + 2.0);
		}
	for (uint32_t u = 0; u < 0x7fffff00u; u += 12345)
		assert_true(fabs(ig_sample_weight(u) - ldexp(exp2(-(double)u * 0x1p-26), 30)) <=
			    8.0);
}

static void test_integers(void **state)
{
	struct ig_sample_params p = PARAMS(1.0f, 0.5f, 0);
	uint64_t s = 5;

	for (int i = 0; i < 100000; i++) {
		uint64_t total = ig_random_u64(&s) >> (ig_random_u64(&s) % 40),
			 bits = ig_random_u64(&s);
		assert_true(ig_sample_place(total, bits) ==
			    (uint64_t)((unsigned __int128)total * bits >> 64));
	}
	assert_true(ig_sample_place(UINT64_MAX, UINT64_MAX) == UINT64_MAX - 1);
	assert_true(ig_sample_place(1, UINT64_MAX) == 0);
	assert_true(ig_sample_need((uint64_t)3 << 48, &p) == (uint64_t)3 << 47);
	assert_true(ig_sample_need(7, &p) == 3);
	p.top_p = 0.0f;
	assert_true(ig_sample_need((uint64_t)1 << 40, &p) == 1); /* one is always kept */
	p.top_p = 1.0f - 0x1p-24f;
	assert_true(ig_sample_need((uint64_t)1 << 50, &p) == ((uint64_t)1 << 50) - (1 << 26));
	p.min_p = 0.25f;
	assert_int_equal(ig_sample_min_weight(&p), 1 << 28);
	p.min_p = 7.0f;
	assert_int_equal(ig_sample_min_weight(&p), 1 << 30);
	p.min_p = NAN;
	assert_int_equal(ig_sample_min_weight(&p), 0);
}

static void test_bits_are_a_function_of_seed_and_position(void **state)
{
	double sum = 0.0;

	/* the known answer of philox4x32-10 for a counter and key of zeros */
	assert_true(ig_sample_bits(0, 0) == 0x6627e8d5e169c58du);
	assert_true(ig_sample_bits(1, 2) == ig_sample_bits(1, 2));
	assert_true(ig_sample_bits(1, 2) != ig_sample_bits(1, 3));
	assert_true(ig_sample_bits(1, 2) != ig_sample_bits(2, 2));
	for (uint64_t i = 0; i < 100000; i++)
		sum += (double)ig_sample_bits(7, i) * 0x1p-64;
	assert_true(fabs(sum / 100000 - 0.5) < 0.005);
	/* Four equals: the upper two bits say which, in the order of ids. */
	static const int32_t ids[] = { 2, 5, 7, 490 };
	struct ig_sample_params p = PARAMS(1.0f, 1.0f, 0);
	for (int i = 0; i < N; i++)
		logits[i] = -INFINITY;
	for (int i = 0; i < 4; i++)
		logits[ids[i]] = -2.5f;
	for (p.position = 0; p.position < 100; p.position++) {
		p.seed = (uint64_t)p.position << 33;
		p.top_k = p.position % 2 ? 4 : 0;
		assert_int_equal(draw(&p, N),
				 ids[ig_sample_bits(p.seed, (uint64_t)p.position) >> 62]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kernels_agree_with_the_reference),
		cmocka_unit_test(test_a_row_of_equals),
		cmocka_unit_test(test_greedy_edges),
		cmocka_unit_test(test_the_copy_is_what_the_model_gave),
		cmocka_unit_test(test_every_parameter_matters),
		cmocka_unit_test(test_the_order_of_the_cuts),
		cmocka_unit_test(test_penalties),
		cmocka_unit_test(test_bias),
		cmocka_unit_test(test_mask_of_one),
		cmocka_unit_test(test_distribution),
		cmocka_unit_test(test_top_p_keeps_the_shortest_prefix),
		cmocka_unit_test(test_weights),
		cmocka_unit_test(test_integers),
		cmocka_unit_test(test_bits_are_a_function_of_seed_and_position),
	};
	return cmocka_run_group_tests_name("sample", tests, NULL, NULL);
}
