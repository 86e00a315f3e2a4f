/* test_shapes.c: what the core ops' checks refuse, and what they fill in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "ops/ops.h"

#include <errno.h>
#include <string.h>

static struct ig_op_shape shape(const void *params, uint32_t n_in, uint32_t n_weights)
{
	struct ig_op_shape s = {
		.struct_size = sizeof s, .params = params, .n_in = n_in, .n_weights = n_weights
	};
	for (uint32_t i = 0; i < IG_MAX_IN; i++)
		s.in[i] = (struct ig_shape){ 0, 64, IG_F32, IG_ROWS_TOKENS };
	for (uint32_t i = 0; i < IG_MAX_WEIGHTS; i++)
		s.weight[i] = (struct ig_shape){ 32, 64, IG_Q8_0, 0 };
	return s;
}

static void refuse(const struct ig_op *op, struct ig_op_shape s, const char *what)
{
	struct ig_error err = { 0 };

	assert_true(op->check(&s, &err) < 0);
	assert_true(err.code < 0);
	if (!strstr(err.text, what))
		fail_msg("\"%s\" does not say \"%s\"", err.text, what);
}

static void accept(const struct ig_op *op, struct ig_op_shape *s)
{
	struct ig_error err = { 0 };

	if (op->check(s, &err))
		fail_msg("%s", err.text);
}

static void test_linear(void **state)
{
	struct ig_linear_params p = { sizeof p, 2, IG_ACT_NONE, 0 };
	struct ig_op_shape s = shape(&p, 1, 2);

	s.weight[1].n_rows = 10;
	accept(&ig_op_linear, &s);
	assert_int_equal(s.n_out, 1);
	assert_int_equal(s.out[0].n_cols, 42);
	assert_int_equal(s.out[0].row_class, IG_ROWS_TOKENS);
	s.weight[1].n_cols = 65;
	refuse(&ig_op_linear, s, "weight 1 has rows of 65 values, the input 64");
	s = shape(&p, 2, 2);
	accept(&ig_op_linear, &s); /* 32 + 32 columns, as the residual has */
	s.in[1].n_cols = 63;
	refuse(&ig_op_linear, s, "the residual has 63 columns");
	refuse(&ig_op_linear, shape(&p, 1, 3), "do not fit");
	p.n_weights = 5;
	refuse(&ig_op_linear, shape(&p, 1, 5), "out of range");
	p = (struct ig_linear_params){ sizeof p, 1, IG_ACT_NONE, 1 };
	s = shape(&p, 1, 2);
	refuse(&ig_op_linear, s, "bias 0 must be [1, 32] of F32");
	s.weight[1] = (struct ig_shape){ 1, 32, IG_F32, 0 };
	accept(&ig_op_linear, &s);
}

static void test_glu(void **state)
{
	struct ig_glu_params p = { sizeof p, IG_ACT_SILU };
	struct ig_op_shape s = shape(&p, 1, 2);

	accept(&ig_op_glu, &s);
	assert_int_equal(s.out[0].n_cols, 32);
	s.weight[1].n_rows = 31;
	refuse(&ig_op_glu, s, "up [31, 64]");
	s = shape(&p, 1, 2);
	s.weight[1].dtype = IG_F16;
	refuse(&ig_op_glu, s, "different weight formats");
	p.act = 9;
	refuse(&ig_op_glu, shape(&p, 1, 2), "known activation");
}

static void test_norm(void **state)
{
	struct ig_norm_params p = { sizeof p, IG_NORM_RMS, 1e-5f, 1 };
	struct ig_op_shape s = shape(&p, 1, 1);

	s.weight[0] = (struct ig_shape){ 1, 64, IG_F32, 0 };
	accept(&ig_op_norm, &s);
	assert_int_equal(s.out[0].row_class, IG_ROWS_LOGITS);
	s.in[0].row_class = IG_ROWS_LOGITS;
	refuse(&ig_op_norm, s, "gathered already");
	s.in[0].row_class = IG_ROWS_TOKENS;
	s.weight[0].dtype = IG_F16;
	refuse(&ig_op_norm, s, "must be [1, 64] of F32");
	s.weight[0] = (struct ig_shape){ 1, 64, IG_F32, 0 };
	s.n_weights = 2;
	s.weight[1] = s.weight[0];
	refuse(&ig_op_norm, s, "only layer normalisation");
	s.n_weights = 1;
	p.eps = -1.0f;
	refuse(&ig_op_norm, s, "eps -1");
	p.eps = 1e-5f;
	p.kind = 2;
	refuse(&ig_op_norm, s, "unknown kind 2");
	p.kind = IG_NORM_RMS;
	s.n_in = 2;
	s.in[1].n_cols = 63;
	refuse(&ig_op_norm, s, "residual");
	s.in[1].n_cols = 64;
	accept(&ig_op_norm, &s);
	assert_int_equal(s.n_out, 2);
}

static void test_ends(void **state)
{
	struct ig_embed_params e = { sizeof e, 1.0f };
	struct ig_logits_params l = { sizeof l, 0 };
	struct ig_sample_op_params p = { sizeof p, 0 };
	struct ig_op_shape s = shape(&e, 0, 1);

	accept(&ig_op_embed, &s);
	assert_int_equal(s.out[0].n_cols, 64);
	refuse(&ig_op_embed, shape(&e, 1, 1), "takes no input");
	s = shape(&l, 1, 1);
	refuse(&ig_op_logits, s, "not gathered");
	s.in[0].row_class = IG_ROWS_LOGITS;
	accept(&ig_op_logits, &s);
	assert_int_equal(s.out[0].n_cols, 32);
	s.weight[0].n_cols = 96;
	refuse(&ig_op_logits, s, "rows of 96 values");
	s = shape(&p, 1, 0);
	refuse(&ig_op_sample, s, "not logits");
	s.in[0].row_class = IG_ROWS_LOGITS;
	accept(&ig_op_sample, &s);
	assert_int_equal(s.n_out, 0);
	refuse(&ig_op_sample, shape(&p, 1, 1), "no weight");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_linear),
		cmocka_unit_test(test_glu),
		cmocka_unit_test(test_norm),
		cmocka_unit_test(test_ends),
	};
	return cmocka_run_group_tests_name("shape checks", tests, NULL, NULL);
}
