/*
 * test_gpu_sample.c: the op `sample` on a GPU: every id is the reference's, whatever the
 * parameters, the size of the vocabulary and the rows beside it.  The arithmetic of a
 * draw is the same to the bit on every machine (ops/sampling.h), so nothing is allowed
 * for.
 *
 *   test_gpu_sample [soft|cuda]
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "ops/float.h"
#include "ops/ops.h"
#include "tests/ops/cases.h"
#include "tests/ops/gpu_case.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_ROWS 9
#define N_ADJUSTS 96
#define N_MASKS 2

static struct ig_gpu_lab *lab;
static bool on_soft;

/* Rows of logits and their sampling parameters. */
struct rows {
	int32_t n_rows;
	int64_t n, stride; /* of logits */
	float *logits;
	uint32_t *masks; /* [N_MASKS, words] */
	struct ig_logit_adjust adjusts[MAX_ROWS * N_ADJUSTS];
	struct ig_sample_params params[MAX_ROWS];
};

static void *must(void *p)
{
	if (!p)
		abort();
	return p;
}

static struct rows *make_rows(int32_t n_rows, int64_t n)
{
	struct rows *r = must(calloc(1, sizeof *r));

	r->n_rows = n_rows;
	r->n = n;
	r->logits = must(calloc((size_t)(n_rows * n), sizeof *r->logits));
	r->masks = must(calloc((size_t)(N_MASKS * ((n + 31) / 32)), sizeof *r->masks));
	for (int32_t i = 0; i < n_rows; i++)
		r->params[i] = (struct ig_sample_params){ .temperature = 1.0f,
							  .top_p = 1.0f,
							  .repetition_penalty = 1.0f,
							  .mask = -1,
							  .position = i,
							  .seed = 77 };
	return r;
}

static void free_rows(struct rows *r)
{
	free(r->logits);
	free(r->masks);
	free(r);
}

static void fill(struct rows *r, uint64_t seed, float scale)
{
	for (int64_t i = 0; i < r->n_rows * r->n; i++)
		r->logits[i] = (ig_random_normalish(&seed) + ig_random_normalish(&seed)) * scale;
}

/* Rows first … of r, by the reference or on the device. */
static int draw(const struct rows *r, int32_t first, int32_t n_rows, bool reference, int32_t *ids,
		float *copy)
{
	static const int32_t zeros[MAX_ROWS];
	int32_t logit_rows[MAX_ROWS];
	struct ig_sample_op_params op = { sizeof op, 0 };
	struct ig_step step = {
		.struct_size = sizeof step,
		.n_rows = n_rows,
		.n_logit_rows = n_rows,
		.n_seqs = 1,
		.token_ids = zeros,
		.positions = zeros,
		.row_seq = zeros,
		.seq_lens = zeros,
		.logit_rows = logit_rows,
		.sample = r->params + first,
		.sampled_ids = ids,
		.logits = copy,
		.adjusts = r->adjusts,
		.n_adjusts = MAX_ROWS * N_ADJUSTS,
		.masks = r->masks,
		.n_masks = N_MASKS,
	};
	struct ig_op_launch launch = {
		.struct_size = sizeof launch,
		.params = &op,
		.n_in = 1,
		.step = &step,
		.in = { { r->logits + first * r->n, n_rows, r->n, r->n * 4, IG_F32,
			  IG_LAYOUT_ROWS } },
	};
	const struct ig_gpu_case c = { .op = &ig_op_sample,
				       .launch = &launch,
				       .in_class = IG_ROWS_LOGITS,
				       .max_logit_rows = MAX_ROWS };
	struct ig_error err = { 0 };
	int rc;

	for (int32_t i = 0; i < n_rows; i++)
		logit_rows[i] = i;
	if (reference) {
		ig_op_sample.reference(&launch);
		return 0;
	}
	rc = ig_gpu_case_run(lab, &c, &err);
	if (rc)
		print_error("%s\n", err.text);
	return rc;
}

/* All rows together and one of them alone. */
static void check(const struct rows *r, const char *what)
{
	int32_t want[MAX_ROWS], got[MAX_ROWS], alone;
	int32_t one = (int32_t)(r->n % r->n_rows);

	assert_int_equal(draw(r, 0, r->n_rows, true, want, NULL), 0);
	assert_int_equal(draw(r, 0, r->n_rows, false, got, NULL), 0);
	for (int32_t i = 0; i < r->n_rows; i++)
		if (got[i] != want[i])
			fail_msg("%s: row %d of %d, %lld logits: %d was sampled, not %d", what, i,
				 r->n_rows, (long long)r->n, got[i], want[i]);
	assert_int_equal(draw(r, one, 1, false, &alone, NULL), 0);
	assert_int_equal(alone, want[one]);
}

static void random_adjusts(struct rows *r, uint64_t *s)
{
	for (int32_t row = 0; row < r->n_rows; row++) {
		struct ig_logit_adjust *e = r->adjusts + row * N_ADJUSTS;
		uint32_t n = 0;

		/* ascending steps: each id once */
		for (int64_t id = (int64_t)(ig_random_u64(s) % 3); id < r->n && n < N_ADJUSTS;
		     id += 1 + (int64_t)(ig_random_u64(s) % (uint64_t)(1 + 2 * r->n / N_ADJUSTS)))
			e[n++] = (struct ig_logit_adjust){ .id = (int32_t)id,
							   .n_sampled =
								   (uint32_t)(ig_random_u64(s) % 4),
							   .seen = (uint32_t)(ig_random_u64(s) % 2),
							   .bias = ig_random_normalish(s) * 4.0f };
		r->params[row].first_adjust = (uint32_t)(row * N_ADJUSTS);
		r->params[row].n_adjusts = n;
		r->params[row].repetition_penalty = 1.3f;
		r->params[row].frequency_penalty = 0.7f;
		r->params[row].presence_penalty = -0.4f;
	}
	for (int64_t i = 0; i < N_MASKS * ((r->n + 31) / 32); i++)
		r->masks[i] = (uint32_t)(ig_random_u64(s) & ig_random_u64(s));
}

static void test_draws(void **state)
{
	static const int64_t sizes[] = { 1, 31, 499, 4096, 4097, 12345, 49152 };
	static const float temperatures[] = { 0.0f, 0.3f, 1.0f, 1.7f };
	static const float ps[] = { 1.0f, 0.95f, 0.5f, 0.0f };
	static const float min_ps[] = { 0.0f, 0.0f, 0.03f };
	uint64_t s = 9;

	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		for (int round = 0; round < (sizes[i] > 20000 && on_soft ? 2 : 8); round++) {
			struct rows *r =
				make_rows(1 + (int32_t)(ig_random_u64(&s) % MAX_ROWS), sizes[i]);
			const int32_t ks[] = { 0, 0, 1, 40, 3000, (int32_t)sizes[i], 1 << 30 };

			fill(r, ig_random_u64(&s) | 1, 2.5f);
			if (round % 4 == 1) /* many ties */
				for (int64_t j = 0; j < r->n_rows * r->n; j++)
					r->logits[j] = rintf(r->logits[j]);
			for (int32_t j = 0; j < r->n_rows; j++) {
				struct ig_sample_params *p = &r->params[j];
				p->temperature = temperatures[ig_random_u64(&s) % 4];
				p->top_p = ps[ig_random_u64(&s) % 4];
				p->top_k = ks[ig_random_u64(&s) % 7];
				p->min_p = min_ps[ig_random_u64(&s) % 3];
				p->seed = ig_random_u64(&s);
				p->position = (int32_t)(ig_random_u64(&s) >> 40);
			}
			if (round % 2)
				random_adjusts(r, &s);
			for (int32_t j = 0; round % 4 == 3 && j < r->n_rows; j++)
				r->params[j].mask = (int32_t)(ig_random_u64(&s) % 3) - 1;
			check(r, "random");
			free_rows(r);
		}
}

static void test_a_large_vocabulary(void **state)
{
	struct rows *r = make_rows(3, 262144);

	fill(r, 5, 2.0f);
	r->params[0].temperature = 0.0f;
	r->logits[262143] = 30.0f;
	r->params[1].top_p = 0.9f;
	r->params[2].temperature = 1.5f;
	check(r, "large");
	free_rows(r);
}

/* More members in the cut's bucket than its list holds. */
static void test_crowded_buckets(void **state)
{
	struct rows *r = make_rows(6, 9001);
	uint64_t s = 3;

	for (int64_t i = 0; i < 2 * r->n; i++)
		r->logits[i] = 1.25f; /* equals: by id alone */
	for (int64_t i = 2 * r->n; i < 6 * r->n; i++)
		r->logits[i] = 1.0f + ig_random_normalish(&s) * 0.01f;
	r->params[0].top_p = 0.5f;
	r->params[1].top_k = 4000;
	r->params[2].top_p = 0.5f;
	r->params[3].top_k = 4000;
	r->params[4].top_k = 4000;
	r->params[4].top_p = 0.7f;
	r->params[5].top_k = 3;
	r->params[5].top_p = 0.5f;
	for (int position = 0; position < 3; position++) {
		for (int i = 0; i < 6; i++)
			r->params[i].position = position * 1000 + i;
		check(r, "crowded");
	}
	free_rows(r);
}

static void test_edges(void **state)
{
	struct rows *r = make_rows(9, 4500);
	int64_t n = r->n, words = (n + 31) / 32;
	int32_t ids[MAX_ROWS];

	fill(r, 21, 3.0f);
	r->params[0].temperature = 0.0f;
	r->logits[4100] = r->logits[4499] = r->logits[17] = 40.0f; /* a tie: the first */
	r->logits[3] = NAN;
	for (int64_t i = 0; i < n; i++)
		r->logits[n + i] = NAN; /* nothing finite */
	for (int64_t i = 0; i < n; i++)
		r->logits[2 * n + i] = i % 2 ? NAN : -INFINITY;
	r->params[2].mask = 1;
	r->masks[words + 130] = 0x80; /* 4167 and nothing before */
	r->masks[words + 131] = 0xff;
	r->params[3].mask = 0; /* nothing is allowed */
	r->params[4].temperature = 0.0f;
	r->params[4].mask = 1;
	r->logits[5 * n + 4444] = INFINITY;
	r->logits[5 * n + 4445] = INFINITY;
	r->params[6].temperature = 1e-35f; /* as good as none */
	r->params[7].temperature = INFINITY;
	for (int64_t i = 0; i < n; i++)
		r->logits[8 * n + i] = i == 77 ? -0.0f : i == 78 ? 0.0f : -1.0f - (float)i;
	r->params[8].temperature = 0.0f;
	check(r, "edges");
	assert_int_equal(draw(r, 0, 9, false, ids, NULL), 0);
	assert_int_equal(ids[0], 17);
	assert_int_equal(ids[1], 0);
	assert_int_equal(ids[2], 4167);
	assert_int_equal(ids[3], 0);
	assert_in_range(ids[4], 4167, 4199);
	assert_int_equal(ids[5], 4444);
	assert_int_equal(ids[8], 77);
	free_rows(r);
}

static void test_the_copy_is_what_the_model_gave(void **state)
{
	struct rows *r = make_rows(3, 4321);
	float *copy = must(calloc((size_t)(3 * r->n), sizeof *copy));
	int32_t ids[MAX_ROWS];
	uint64_t s = 4;

	fill(r, 8, 3.0f);
	random_adjusts(r, &s);
	r->params[1].mask = 1;
	assert_int_equal(draw(r, 0, 3, false, ids, copy), 0);
	assert_memory_equal(copy, r->logits, (size_t)(3 * r->n) * sizeof *copy);
	free(copy);
	free_rows(r);
}

/* Of some rows the token after the next one: with their parameters, one position later and without a mask. */
static void test_guesses(void **state)
{
	static const int32_t logit_rows[] = { 0, 1, 2, 3, 4, 5 }, guess_rows[] = { 1, 2, 5 },
			     next[6] = { -1, -2, -3, -4, -5, -6 };
	struct rows *r = make_rows(6, 9000);
	float *copy = must(calloc((size_t)(3 * r->n), sizeof *copy));
	int32_t sampled[6] = { 0 }, want[3], got[3], masked = 0;
	struct ig_sample_op_params op = { sizeof op, .guess = 1 };
	struct ig_step step = {
		.struct_size = sizeof step,
		.n_rows = 6,
		.n_logit_rows = 6,
		.n_seqs = 1,
		.token_ids = sampled,
		.positions = sampled,
		.row_seq = sampled,
		.seq_lens = sampled,
		.logit_rows = logit_rows,
		.sample = r->params,
		.sampled_ids = sampled,
		.adjusts = r->adjusts,
		.n_adjusts = MAX_ROWS * N_ADJUSTS,
		.masks = r->masks,
		.n_masks = N_MASKS,
		.next_ids = next,
		.guess_rows = guess_rows,
		.n_guesses = 3,
	};
	struct ig_op_launch launch = {
		.struct_size = sizeof launch,
		.params = &op,
		.n_in = 1,
		.step = &step,
		.in = { { r->logits, 3, r->n, r->n * 4, IG_F32, IG_LAYOUT_ROWS } },
	};
	const struct ig_gpu_case c = { .op = &ig_op_sample,
				       .launch = &launch,
				       .in_class = IG_ROWS_GUESSES,
				       .max_logit_rows = MAX_ROWS };
	struct ig_error err = { 0 };
	uint64_t s = 4;

	for (int round = 0; round < 6; round++) {
		fill(r, ig_random_u64(&s) | 1, 2.5f);
		random_adjusts(r, &s);
		for (int i = 0; i < 6; i++) {
			struct ig_sample_params *p = &r->params[i];
			p->temperature = round ? 1.0f : 0.0f;
			p->top_p = round % 2 ? 0.9f : 1.0f;
			p->top_k = round % 3 ? 50 : 0;
			p->seed = ig_random_u64(&s);
			p->mask = i % 2 - 1;
		}
		step.guessed_ids = want;
		step.guess_logits = NULL;
		ig_op_sample.reference(&launch);
		step.guessed_ids = got;
		step.guess_logits = copy;
		if (ig_gpu_case_run(lab, &c, &err))
			fail_msg("%s", err.text);
		assert_memory_equal(got, want, sizeof want);
		assert_memory_equal(copy, r->logits, (size_t)(3 * r->n) * sizeof *copy);
		for (int i = 0; i < 3; i++)
			masked += r->params[guess_rows[i]].mask >= 0 &&
				  !(r->masks[want[i] / 32] >> (want[i] % 32) & 1);
	}
	assert_true(masked > 0); /* the mask would have made a difference */
	free(copy);
	free_rows(r);
}

static void test_too_many_tokens(void **state)
{
	struct rows *r = make_rows(1, (1 << 20) + 1);
	int32_t id;

	print_message("# one refusal is meant:\n");
	assert_int_equal(draw(r, 0, 1, false, &id, NULL), -ENOTSUP);
	free_rows(r);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_draws),
		cmocka_unit_test(test_a_large_vocabulary),
		cmocka_unit_test(test_crowded_buckets),
		cmocka_unit_test(test_edges),
		cmocka_unit_test(test_the_copy_is_what_the_model_gave),
		cmocka_unit_test(test_guesses),
		cmocka_unit_test(test_too_many_tokens),
	};
	struct ig_error err = { 0 };
	const char *device = argc > 1 ? argv[1] : getenv("INGOT_TEST_GPU");
	int rc;

	on_soft = !device || !strcmp(device, "soft");
	rc = ig_gpu_lab_open(device, &lab, &err);
	if (rc) {
		fprintf(stderr, "%s: %s\n", device ? device : "soft", err.text);
		return 1;
	}
	rc = cmocka_run_group_tests_name("sample on a GPU", tests, NULL, NULL);
	ig_gpu_lab_close(lab);
	return rc;
}
