/*
 * test_gpu_heads.c: linear_heads on a GPU: near its reference, in every type of result; one row's bits alone and
 * among few and many.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/formats/checkpoint.h"
#include "ops/ops.h"
#include "tests/ops/gpu_case.h"
#include "tests/ops/heads_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct ig_gpu_lab *lab;

struct variant {
	uint32_t f32, out_dtype;
};

static void run(const struct heads_case *c, const struct variant *v, int32_t first, int32_t n,
		bool reference, float *y)
{
	struct ig_error err = { 0 };
	struct ig_op_launch launch;
	struct ig_step step;
	const struct ig_gpu_case g = { .op = &ig_op_linear_heads,
				       .launch = &launch,
				       .in_class = IG_ROWS_TOKENS,
				       .out_dtype = v->out_dtype,
				       .f32 = v->f32 };

	heads_launch(c, first, n, y, &step, &launch);
	if (reference ? ig_gpu_case_reference(lab, &g, &err) : ig_gpu_case_run(lab, &g, &err))
		fail_msg("%d rows: %s", n, err.text);
}

/* Halves are rounded from sums that may differ in their last bits. */
static double tolerance_of(uint32_t dtype)
{
	return dtype == IG_F16 ? 1e-3 : dtype == IG_BF16 ? 8e-3 : 0;
}

static void check(const struct heads_shape *s, const struct variant *v)
{
	static const int32_t counts[] = { 1, 8, 9, 17, 64 };
	struct heads_case c;

	heads_open(&c, s);
	const size_t row = (size_t)c.y_cols * sizeof(float);
	float *want = malloc(row * (size_t)s->rows), *all = malloc(row * (size_t)s->rows),
	      *some = malloc(row * (size_t)s->rows);
	/* a weight in blocks is rounded once, to half, which the reference does not do */
	const double product = ig_dtype_row_bytes(s->dtype, 8) ? 2e-4 : 1e-3;
	double most = 0;

	assert_true(want && all && some);
	run(&c, v, 0, s->rows, true, want);
	run(&c, v, 0, s->rows, false, all);
	for (int64_t i = 0; i < s->rows * c.y_cols; i++)
		most = fmax(most, fabs((double)want[i]));
	for (int64_t i = 0; i < s->rows * c.y_cols; i++) {
		const double w = (double)want[i];
		const int64_t in_head = i % (s->m + s->n_rest);
		const double limit = tolerance_of(v->out_dtype) * fabs(w) +
				     (in_head < s->m ? product * most : 0);
		if (!(fabs((double)all[i] - w) <= limit))
			fail_msg("type %u of %u heads, row %lld, column %lld: %g, expected %g",
				 s->dtype, s->n_heads, (long long)(i / c.y_cols),
				 (long long)(i % c.y_cols), (double)all[i], w);
	}
	for (size_t i = 0; i < sizeof counts / sizeof *counts && counts[i] < s->rows; i++) {
		const int32_t first = s->rows - counts[i];
		run(&c, v, first, counts[i], false, some);
		if (memcmp(some, all + first * c.y_cols, row * (size_t)counts[i]))
			fail_msg("type %u: other bits among %d rows", s->dtype, counts[i]);
	}
	free(want);
	free(all);
	free(some);
	heads_close(&c);
}

static void test_shapes(void **state)
{
	for (size_t i = 0; i < n_heads_shapes; i++)
		check(&heads_shapes[i], &(struct variant){ 0, IG_F32 });
}

static void test_types(void **state)
{
	check(&heads_shapes[1], &(struct variant){ 0, IG_F16 });
	check(&heads_shapes[1], &(struct variant){ 0, IG_BF16 });
	check(&heads_shapes[1], &(struct variant){ 1, IG_F16 });
	check(&heads_shapes[1], &(struct variant){ 1, IG_F32 });
	check(&heads_shapes[6], &(struct variant){ 1, IG_F32 });
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shapes),
		cmocka_unit_test(test_types),
	};
	struct ig_error err = { 0 };
	int rc = ig_gpu_lab_open(argc > 1 ? argv[1] : NULL, &lab, &err);

	if (rc) {
		fprintf(stderr, "%s\n", err.text);
		return 1;
	}
	rc = cmocka_run_group_tests_name("linear_heads on a GPU", tests, NULL, NULL);
	ig_gpu_lab_close(lab);
	return rc;
}
