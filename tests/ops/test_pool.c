/* test_pool.c: pool and output: the kernels against the references, and shapes that are refused. */
#include "ops/ops.h"
#include "tests/ops/pool_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <string.h>

static void expect(const struct pool_case *c)
{
	for (int i = 0; i < POOL_RESULTS; i++)
		for (int k = 0; k < POOL_COLS; k++)
			assert_true(fabs((double)c->y[i][k] - pool_case_want(c, i, k)) <= 1e-6);
}

static void test_pool(void **state)
{
	static struct pool_case c;

	for (uint32_t kind = IG_POOL_MEAN; kind <= IG_POOL_LAST; kind++) {
		pool_case_make(&c, kind);
		ig_op_pool.reference(&c.launch);
		expect(&c);
		memset(c.y, 0xff, sizeof c.y);
		for (int i = POOL_RESULTS; i-- > 0;)
			ig_op_pool.cpu_kernels[0].run(&c.launch, i, i + 1, NULL);
		expect(&c);
	}
}

static void test_output(void **state)
{
	float x[3][8], to[3 * 5];
	const struct ig_output_params p = { sizeof p, 0 };
	struct ig_step step = { .struct_size = sizeof step, .n_logit_rows = 3 };
	struct ig_op_launch launch = { .struct_size = sizeof launch,
				       .n_in = 1,
				       .params = &p,
				       .step = &step,
				       .in = { { x, 3, 5, sizeof x[0], IG_F32, IG_LAYOUT_ROWS } } };

	for (int i = 0; i < 24; i++)
		x[i / 8][i % 8] = (float)i;
	ig_op_output.cpu_kernels[0].run(&launch, 0, 3, NULL); /* nobody wants them */
	step.logits = to;
	ig_op_output.cpu_kernels[0].run(&launch, 1, 3, NULL);
	ig_op_output.cpu_kernels[0].run(&launch, 0, 1, NULL);
	for (int i = 0; i < 15; i++)
		assert_true(to[i] == x[i / 5][i % 5]);
}

static void refused(const struct ig_op *op, const void *params, uint32_t row_class,
		    const char *text)
{
	struct ig_op_shape s = { .struct_size = sizeof s,
				 .n_in = 1,
				 .params = params,
				 .in = { { 0, 8, IG_F32, row_class } } };
	struct ig_error err = { 0 };

	assert_int_equal(op->check(&s, &err), -EINVAL);
	assert_non_null(strstr(err.text, text));
}

static void test_refused(void **state)
{
	struct ig_pool_params p = { sizeof p, IG_POOL_RANK };

	refused(&ig_op_pool, &p, IG_ROWS_TOKENS, "unknown kind 4");
	p.kind = IG_POOL_MEAN;
	refused(&ig_op_pool, &p, IG_ROWS_LOGITS, "not those of tokens");
	refused(&ig_op_output, &(struct ig_output_params){ 8, 0 }, IG_ROWS_TOKENS,
		"not a row of each sequence");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pool),
		cmocka_unit_test(test_output),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
