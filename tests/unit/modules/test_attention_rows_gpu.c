/*
 * test_attention_rows_gpu.c: the ops without a cache on a GPU: near the reference, in float32 and in 16 bits, in
 * every type of results; the same bits of a text alone as beside others; what has no kernel is refused.
 */
#include "attention_rows_case.h"
#include "tests/brief.h"
#include "tests/ops/gpu_case.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static struct ig_gpu_lab *lab;

static void run(const struct rows_case *c, int32_t first, int32_t n, uint32_t f32,
		uint32_t out_dtype, struct guarded *out)
{
	static struct rows_step step;
	struct ig_op_launch launch;
	struct ig_error err = { 0 };
	const struct ig_gpu_case g = {
		.op = c->op, .launch = &launch, .f32 = f32, .out_dtype = out_dtype
	};

	rows_case_launch(c, first, n, out, &step, &launch);
	if (ig_gpu_case_run(lab, &g, &err))
		fail_msg("%s", err.text);
	guarded_check(out);
}

static void reference(const struct rows_case *c, uint32_t f32, struct guarded *out)
{
	static struct rows_step step;
	struct ig_op_launch launch;
	struct ig_error err = { 0 };
	const struct ig_gpu_case g = { .op = c->op, .launch = &launch, .f32 = f32 };

	rows_case_launch(c, 0, c->n_texts, out, &step, &launch);
	if (ig_gpu_case_reference(lab, &g, &err))
		fail_msg("%s", err.text);
}

static void check_alone(const struct rows_case *c, uint32_t f32, const struct guarded *all)
{
	for (int32_t i = 0; i < c->n_texts; i++) {
		struct guarded one;
		guarded_create(&one, c->lens[i], c->n_cols);
		run(c, i, 1, f32, IG_F32, &one);
		rows_expect_same(all, rows_case_first(c, i), &one, c->lens[i]);
		guarded_destroy(&one);
	}
}

/* Results in 16 bits are those in 32 bits, rounded. */
static void check_types(const struct rows_case *c, uint32_t f32, const struct guarded *all)
{
	static const uint32_t types[] = { IG_F16, IG_BF16 };
	struct guarded other;

	guarded_create(&other, c->n_rows, c->n_cols);
	for (size_t k = 0; k < 2; k++) {
		run(c, 0, c->n_texts, f32, types[k], &other);
		for (int64_t r = 0; r < c->n_rows; r++)
			for (int64_t i = 0; i < c->n_cols; i++)
				assert_true(guarded_row(&other, r)[i] ==
					    ig_gpu_case_round(types[k], guarded_row(all, r)[i]));
	}
	guarded_destroy(&other);
}

static void test_cases(void **state)
{
	for (size_t s = 0; s < n_rows_cases; s++)
		for (uint32_t f32 = 0; f32 < 2; f32++) {
			struct guarded want, got;
			struct rows_case c;

			if (ig_brief() && f32 != s % 2)
				continue;
			rows_case_open(&c, s);
			guarded_create(&want, c.n_rows, c.n_cols);
			guarded_create(&got, c.n_rows, c.n_cols);
			reference(&c, f32, &want);
			run(&c, 0, c.n_texts, f32, IG_F32, &got);
			double most = rows_difference(&got, &want);
			printf("# case %zu, %s, %s: a difference of %.1e\n", s, c.op->name,
			       f32 ? "float32" : "16 bits", most);
			/* weights are rounded to 11 bits; values are below 3 */
			if (!(most <= (f32 || !strcmp(c.op->name, "rope_rows") ? 1e-5 : 2e-3)))
				fail_msg("case %zu of %s: a difference of %g", s, c.op->name, most);
			check_alone(&c, f32, &got);
			if (f32 == s % 2)
				check_types(&c, f32, &got);
			guarded_destroy(&want);
			guarded_destroy(&got);
			rows_case_close(&c);
		}
}

/* Not a number, in v or in k, reaches the rows that see it and no other text. */
static void test_nan(void **state)
{
	const int32_t text = 2;

	for (size_t s = 0; s < n_rows_cases; s++) {
		struct guarded clean, got;
		struct rows_case c;

		rows_case_open(&c, s);
		guarded_create(&clean, c.n_rows, c.n_cols);
		guarded_create(&got, c.n_rows, c.n_cols);
		if (!strcmp(c.op->name, "attention_rows")) {
			const int32_t row = rows_case_first(&c, text) + 300;
			run(&c, 0, c.n_texts, 0, IG_F32, &clean);
			guarded_row(&c.in[0], row)[c.in[0].t.n_cols - 1] = NAN;
			run(&c, 0, c.n_texts, 0, IG_F32, &got);
			assert_true(isnan(guarded_row(&got, row)[c.n_cols - 1]));
			for (int32_t i = 0; i < c.n_texts; i++)
				for (int32_t r = 0; i != text && r < c.lens[i]; r++)
					assert_memory_equal(
						guarded_row(&got, rows_case_first(&c, i) + r),
						guarded_row(&clean, rows_case_first(&c, i) + r),
						(size_t)c.n_cols * sizeof(float));
		}
		guarded_destroy(&clean);
		guarded_destroy(&got);
		rows_case_close(&c);
	}
}

static void test_refused(void **state)
{
	const struct ig_attention_rows_params p = {
		sizeof p, 1, 1, 264, 0.1f, IG_ATTENTION_ALL, 0
	};
	static struct rows_step step;
	const int32_t len = 4;
	struct guarded x, y;
	struct ig_error err = { 0 };

	rows_step_make(&step, &len, 1);
	guarded_create(&x, 4, 3 * 264);
	guarded_create(&y, 4, 264);
	const struct ig_op_launch launch = { .struct_size = sizeof launch,
					     .n_in = 1,
					     .n_out = 1,
					     .params = &p,
					     .in = { x.t },
					     .out = { y.t },
					     .step = &step.step };
	const struct ig_gpu_case g = { .op = world_op("attention_rows"), .launch = &launch };
	assert_int_equal(ig_gpu_case_run(lab, &g, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "heads of 264, at most 256"));
	guarded_destroy(&x);
	guarded_destroy(&y);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cases),
		cmocka_unit_test(test_nan),
		cmocka_unit_test(test_refused),
	};
	struct ig_error err = { 0 };
	int rc = ig_gpu_lab_open(argc > 1 ? argv[1] : NULL, &lab, &err);

	if (rc) {
		fprintf(stderr, "%s\n", err.text);
		return 1;
	}
	rc = cmocka_run_group_tests_name("rows without a cache on a GPU", tests, NULL, NULL);
	ig_gpu_lab_close(lab);
	return rc;
}
