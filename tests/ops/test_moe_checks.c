/*
 * test_moe_checks.c: shapes and options that the ops of the module moe refuse, and what they say.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "runtime/modules/modules.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static struct ig_modules *modules;

static const struct ig_op *op_of(const char *name)
{
	const struct ig_op *op = ig_modules_op(modules, name);

	assert_non_null(op);
	return op;
}

static void expect_text(const char *op, struct ig_op_shape *s, int rc, const char *text)
{
	struct ig_error err = { 0 };

	assert_int_equal(op_of(op)->check(s, &err), rc);
	if (!strstr(err.text, text))
		fail_msg("\"%s\" does not say \"%s\"", err.text, text);
}

static void test_check_route(void **state)
{
	const struct ig_moe_route_params good = { sizeof good, 128, 8, 1, 1 };
	struct ig_moe_route_params p = good;
	struct ig_op_shape s = { .struct_size = sizeof s,
				 .n_in = 1,
				 .n_out = 1,
				 .params = &p,
				 .in = { { .n_cols = 128, .dtype = IG_F32 } } };

	assert_int_equal(op_of("moe_route")->check(&s, NULL), 0);
	assert_int_equal(s.out[0].n_cols, 32);
	assert_int_equal(s.out[0].dtype, IG_I32);
	s.in[0].n_cols = 64;
	expect_text("moe_route", &s, -EINVAL, "logits have 64 columns of type 0, expected 128");
	s.in[0].n_cols = 128;
	p.top_k = 0;
	expect_text("moe_route", &s, -EINVAL, "top_k is 0, not in 1 … 32");
	p.top_k = 129;
	expect_text("moe_route", &s, -EINVAL, "top_k is 129");
	p = good;
	p.n_experts = 1025;
	expect_text("moe_route", &s, -EINVAL, "1025 experts, not in 1 … 1024");
	p = good;
	p.normalise = 2;
	expect_text("moe_route", &s, -EINVAL, "normalise is 2");
	p = good;
	p.scale = INFINITY;
	expect_text("moe_route", &s, -EINVAL, "scale inf");
	p = good;
	p.sum_epsilon = -1;
	expect_text("moe_route", &s, -EINVAL, "sum_epsilon -1");
	p = good;
	p.gating = 2;
	expect_text("moe_route", &s, -EINVAL, "gating is 2");
	p = good;
	p.select_bias = 1;
	expect_text("moe_route", &s, -ENOTSUP, "need sigmoid gating");
	p = good;
	p.n_groups = 4;
	expect_text("moe_route", &s, -ENOTSUP, "need sigmoid gating");
	p.gating = IG_GATING_SIGMOID;
	expect_text("moe_route", &s, -EINVAL, "8 experts from 0 of 4 groups of 32");
	p.n_groups = 32;
	p.n_groups_used = 1;
	expect_text("moe_route", &s, -EINVAL, "8 experts from 1 of 32 groups of 4");
	p.n_groups = 3;
	expect_text("moe_route", &s, -EINVAL, "3 groups of 128 experts");
	p.n_groups = 64;
	expect_text("moe_route", &s, -EINVAL, "64 groups of 128 experts");
	p = good;
	p.gating = IG_GATING_SIGMOID;
	p.select_bias = 1;
	expect_text("moe_route", &s, -EINVAL, "0 weights, expected 1");
	s.n_weights = 1;
	s.weight[0] = (struct ig_shape){ 1, 127, IG_F32, 0 };
	expect_text("moe_route", &s, -EINVAL, "weight 0 must be [1, 128] of F32");
	s.weight[0].n_cols = 128;
	assert_int_equal(op_of("moe_route")->check(&s, NULL), 0);
	p.shared = 1;
	expect_text("moe_route", &s, -EINVAL, "128 columns of type 0, expected 129");
	s.in[0].n_cols = 129;
	assert_int_equal(op_of("moe_route")->check(&s, NULL), 0);
	assert_int_equal(s.out[0].n_cols, 33);
	p = good;
	s.n_in = 2;
	expect_text("moe_route", &s, -EINVAL, "2 inputs");
}

static void test_check_products(void **state)
{
	struct ig_moe_glu_params g = { sizeof g, IG_ACT_SILU, 8, 2 };
	struct ig_moe_combine_params c = { sizeof c, 8, 2, 0 };
	struct ig_op_shape s = {
		.struct_size = sizeof s,
		.n_in = 2,
		.n_weights = 2,
		.n_out = 1,
		.params = &g,
		.in = { { .n_cols = 64, .dtype = IG_F32 }, { .n_cols = 8, .dtype = IG_I32 } },
		.weight = { { 8 * 32, 64, IG_Q8_0, 0 }, { 8 * 32, 64, IG_Q8_0, 0 } }
	};

	assert_int_equal(op_of("moe_glu")->check(&s, NULL), 0);
	assert_int_equal(s.out[0].n_cols, 64);
	s.weight[1].dtype = IG_Q4_0;
	expect_text("moe_glu", &s, -ENOTSUP, "different weight formats");
	s.weight[1].dtype = IG_Q8_0;
	s.weight[1].n_cols = 32;
	expect_text("moe_glu", &s, -EINVAL, "up [256, 32] do not fit 64");
	s.weight[1].n_cols = 64;
	s.weight[0].n_rows = 8 * 24;
	expect_text("moe_glu", &s, -ENOTSUP,
		    "192 rows of weights for 8 experts; each must have a "
		    "multiple of 16");
	s.weight[0].n_rows = 257;
	expect_text("moe_glu", &s, -ENOTSUP, "257 rows of weights");
	s.weight[0].n_rows = 256;
	s.in[1].dtype = IG_F32;
	expect_text("moe_glu", &s, -EINVAL, "the route has 8 columns of type 0, expected 8");
	s.in[1].dtype = IG_I32;
	s.in[1].row_class = IG_ROWS_LOGITS;
	expect_text("moe_glu", &s, -EINVAL, "the route");
	s.in[1].row_class = IG_ROWS_TOKENS;
	g.top_k = 9;
	expect_text("moe_glu", &s, -EINVAL, "top_k is 9, not in 1 … 8");
	g.top_k = 2;
	g.act = IG_ACT_RELU2;
	expect_text("moe_glu", &s, -EINVAL, "activation 3");
	g.act = IG_ACT_GELU_ERF;
	expect_text("moe_glu", &s, -EINVAL, "activation 16");
	g.act = IG_ACT_CLAMPED;
	expect_text("moe_glu", &s, -EINVAL, "activation 4 with limit 0");
	g.limit = 7;
	assert_int_equal(op_of("moe_glu")->check(&s, NULL), 0);
	g.bias = 1;
	expect_text("moe_glu", &s, -EINVAL, "2 weights, 1 outputs; takes two, 4 and one");
	s.n_weights = 4;
	s.weight[2] = s.weight[3] = (struct ig_shape){ 8, 32, IG_F32, 0 };
	assert_int_equal(op_of("moe_glu")->check(&s, NULL), 0);
	s.weight[3].n_cols = 31;
	expect_text("moe_glu", &s, -EINVAL, "bias 1 must be [8, 32] of F32");
	g.form = IG_MOE_FUSED;
	expect_text("moe_glu", &s, -EINVAL, "form is 1, bias 1");
	g.bias = 0;
	s.n_weights = 1;
	assert_int_equal(op_of("moe_glu")->check(&s, NULL), 0);
	assert_int_equal(s.out[0].n_cols, 32);
	s.weight[0].n_rows = 8 * 48;
	expect_text("moe_glu", &s, -ENOTSUP, "48 rows of gate and up for each expert");
	s.weight[0].n_rows = 8 * 32;
	g.form = IG_MOE_UP;
	expect_text("moe_glu", &s, -EINVAL, "activation 4");
	g.act = IG_ACT_TANH;
	expect_text("moe_glu", &s, -EINVAL, "activation 17");
	g.act = IG_ACT_GELU_ERF;
	assert_int_equal(op_of("moe_glu")->check(&s, NULL), 0);
	g.act = IG_ACT_RELU2;
	assert_int_equal(op_of("moe_glu")->check(&s, NULL), 0);
	assert_int_equal(s.out[0].n_cols, 64);

	s.params = &c;
	s.n_weights = 1;
	s.n_in = 3;
	s.in[2] = (struct ig_shape){ .n_cols = 48, .dtype = IG_F32 };
	s.weight[0] = (struct ig_shape){ 8 * 48, 32, IG_Q8_0, 0 };
	assert_int_equal(op_of("moe_combine")->check(&s, NULL), 0);
	assert_int_equal(s.out[0].n_cols, 48);
	s.in[2].n_cols = 47;
	expect_text("moe_combine", &s, -EINVAL, "the residual has 47 columns");
	s.in[2].n_cols = 48;
	c.shared = 1;
	expect_text("moe_combine", &s, -EINVAL, "3 inputs");
	s.n_in = 4;
	s.in[3] = (struct ig_shape){ .n_cols = 32, .dtype = IG_F32 };
	expect_text("moe_combine", &s, -EINVAL, "the route has 8 columns of type 26, expected 9");
	s.in[1].n_cols = 9;
	expect_text("moe_combine", &s, -EINVAL, "the shared expert's result has 32 columns");
	s.in[3].n_cols = 48;
	assert_int_equal(op_of("moe_combine")->check(&s, NULL), 0);
	c.shared = 0;
	s.in[1].n_cols = 8;
	s.n_in = 2;
	s.weight[0].n_cols = 64;
	expect_text("moe_combine", &s, -EINVAL, "down has rows of 64 values");
	s.weight[0].n_cols = 24;
	expect_text("moe_combine", &s, -ENOTSUP, "a multiple of 16 is needed");
	s.n_weights = 2;
	expect_text("moe_combine", &s, -EINVAL, "2 weights");
	s.weight[0].n_cols = 32;
	s.weight[1] = (struct ig_shape){ 8, 48, IG_F32, 0 };
	c.bias = IG_MOE_BIAS_EACH;
	assert_int_equal(op_of("moe_combine")->check(&s, NULL), 0);
	c.bias = IG_MOE_BIAS_SUM;
	expect_text("moe_combine", &s, -EINVAL, "bias 0 must be [1, 48] of F32");
	s.weight[1].n_rows = 1;
	assert_int_equal(op_of("moe_combine")->check(&s, NULL), 0);
	c.bias = IG_MOE_BIAS_EACH;
	expect_text("moe_combine", &s, -EINVAL, "bias 0 must be [8, 48] of F32");
	c.bias = 3;
	expect_text("moe_combine", &s, -EINVAL, "2 weights");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_check_route),
		cmocka_unit_test(test_check_products),
	};
	struct ig_error err = { 0 };
	int rc = ig_modules_create(&modules, &err);

	if (!rc)
		rc = ig_modules_load(modules, ATTENTION_MODULE, &err);
	if (!rc)
		rc = ig_modules_load(modules, MOE_MODULE, &err);
	if (!rc)
		rc = ig_modules_start(modules, NULL, 0, &err);
	if (rc) {
		fprintf(stderr, "%s\n", err.text);
		return 1;
	}
	rc = cmocka_run_group_tests_name("refusals of the mixture of experts", tests, NULL, NULL);
	ig_modules_destroy(modules);
	return rc;
}
