/*
 * test_rows.c: the options of norm, multiply and soft_cap: the references against their definitions,
 * every cpu kernel against the reference, and refused shapes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "ops/float.h"
#include "runtime/cpu/isa.h"
#include "tests/ops/row_options.h"

#include <errno.h>
#include <stdlib.h>

static const float *row(const struct ig_tensor *t, int64_t r)
{
	return (const float *)((const char *)t->data + r * t->row_stride);
}

/* Value i of row r by the definition. */
static double defined(const struct ig_op *op, const struct ig_op_launch *c, int64_t r, int64_t i)
{
	if (op == &ig_op_multiply)
		return (double)row(&c->in[0], r)[i] * (double)row(&c->in[1], r)[77 + i];
	if (op == &ig_op_soft_cap) {
		const struct ig_soft_cap_params *p = c->params;
		const double v = (double)row(&c->in[0], r)[i] * (double)p->scale;
		return p->cap > 0 ? (double)p->cap * tanh(v / (double)p->cap) : v;
	}
	if (op == &ig_op_sum) {
		double sum = 0;
		for (uint32_t j = 0; j < c->n_in; j++)
			sum += (double)row(&c->in[j], r)[i];
		return sum;
	}
	if (op == &ig_op_concat) {
		uint32_t j = 0;
		for (; i >= c->in[j].n_cols; j++)
			i -= c->in[j].n_cols;
		return (double)row(&c->in[j], r)[i];
	}
	const struct ig_norm_params *p = c->params;
	const int64_t from = p->gather ? c->step->logit_rows[r] : r;
	const int64_t n = p->group ? p->group : OPTION_COLS, first = i / n * n;
	const float *w = c->weight[0].data, *s = c->weight[2].data;
	static double squares; /* of the columns from first on; they are asked for in order */
	double v;

	for (int64_t j = first; i == first && j < first + n; j++)
		squares = (j > first ? squares : 0) +
			  (double)row(&c->in[0], from)[j] * (double)row(&c->in[0], from)[j];
	v = (double)row(&c->in[0], from)[i] / sqrt(squares / (double)n + (double)p->eps) *
	    (w ? (double)w[i - first] : 1);
	if (!p->after)
		return v;
	return (v + (double)row(&c->in[1], from)[i]) * (p->scale != 0 ? (double)p->scale : 1) *
	       (s ? (double)*s : 1);
}

static void expect(const struct ig_op *op, const struct ig_op_launch *c, const char *what,
		   const char *by)
{
	for (int64_t r = 0; r < c->out[0].n_rows; r++)
		for (int64_t i = 0; i < c->out[0].n_cols; i++) {
			const double want = defined(op, c, r, i),
				     got = (double)row(&c->out[0], r)[i];
			if (!(fabs(got - want) <= 2e-6 * (fabs(want) + 1)))
				fail_msg("%s, %s: row %lld, column %lld is %g, expected %g", what,
					 by, (long long)r, (long long)i, got, want);
		}
}

static void check_launch(const struct ig_op *op, struct ig_op_launch *c, const char *what)
{
	const size_t n_bytes = sizeof(float) * OPTION_ROWS * OPTION_COLS;
	float *first = malloc(n_bytes);
	int n_ran = 0;

	assert_non_null(first);
	memset(c->out[0].data, 0xff, n_bytes);
	op->reference(c);
	expect(op, c, what, "reference");
	for (uint32_t j = 0; j < op->n_cpu_kernels; j++) {
		const struct ig_cpu_kernel *k = &op->cpu_kernels[j];
		if (!ig_isa_includes(ig_isa_best(), k->isa))
			continue;
		memset(c->out[0].data, 0xff, n_bytes);
		for (int64_t u = k->n_units(c) - 1; u >= 0; u--)
			k->run(c, u, u + 1, NULL);
		expect(op, c, what, ig_isa_name(k->isa));
		/* the same bits on every instruction set, and at once */
		if (n_ran++)
			assert_memory_equal(first, c->out[0].data, n_bytes);
		memcpy(first, c->out[0].data, n_bytes);
		k->run(c, 0, k->n_units(c), NULL);
		assert_memory_equal(first, c->out[0].data, n_bytes);
	}
	assert_true(n_ran > 0);
	free(first);
}

static void test_options(void **state) { each_row_option(check_launch); }

static void test_tanh(void **state)
{
	for (double x = -12; x < 12; x += 0.00071)
		assert_true(fabs((double)ig_tanhf((float)x) - tanh((double)(float)x)) < 2e-7);
	assert_true(ig_tanhf(INFINITY) == 1 && ig_tanhf(-INFINITY) == -1);
	assert_true(ig_tanhf(NAN) != ig_tanhf(NAN));
}

static void refused(const struct ig_op *op, struct ig_op_shape *s, const char *text)
{
	struct ig_error err = { 0 };

	assert_int_equal(op->check(s, &err), -EINVAL);
	if (!strstr(err.text, text))
		fail_msg("\"%s\" does not say \"%s\"", err.text, text);
}

static void test_check_norm(void **state)
{
	struct ig_norm_params p = { .struct_size = sizeof p, .eps = 1e-6f };
	const struct ig_shape x = { .n_cols = 64, .dtype = IG_F32 };
	struct ig_op_shape s = { .struct_size = sizeof s,
				 .n_in = 1,
				 .n_weights = 1,
				 .n_out = 1,
				 .params = &p,
				 .in = { x, x } };
	struct ig_error err;

	assert_int_equal(ig_op_norm.check(&s, &err), 0); /* without weights */
	p.scale = 1;
	refused(&ig_op_norm, &s, "a residual after it, or a scale");
	p.after = 1;
	refused(&ig_op_norm, &s, "a residual after it, or a scale");
	s.n_in = 2;
	assert_int_equal(ig_op_norm.check(&s, &err), 0);
	assert_int_equal(s.n_out, 1);
	p.scale = NAN;
	refused(&ig_op_norm, &s, "scale is");
	p.scale = 0;
	p.group = 24;
	refused(&ig_op_norm, &s, "64 columns in groups of 24");
	p.group = 16;
	s.weight[0] = (struct ig_shape){ .n_rows = 1, .n_cols = 64, .dtype = IG_F32 };
	refused(&ig_op_norm, &s, "weight 0 must be [1, 16]");
	s.weight[0].n_cols = 16;
	s.n_weights = 3;
	s.weight[2] = (struct ig_shape){ .n_rows = 1, .n_cols = 16, .dtype = IG_F32 };
	refused(&ig_op_norm, &s, "weight 2 must be [1, 1]");
	s.weight[2].n_cols = 1;
	assert_int_equal(ig_op_norm.check(&s, &err), 0);
	s.weight[1] = s.weight[0];
	refused(&ig_op_norm, &s, "only layer normalisation has a bias");
	s.n_weights = 1;
	s.n_in = 1;
	p = (struct ig_norm_params){ .struct_size = sizeof p, .kind = IG_NORM_LAYER, .eps = 1e-6f };
	s.weight[0] = (struct ig_shape){ 0 };
	refused(&ig_op_norm, &s, "only an RMS norm can do without weights");
}

static void test_check_elementwise(void **state)
{
	struct ig_multiply_params m = { sizeof m, 10 };
	struct ig_soft_cap_params c = { sizeof c, 1, 30 };
	struct ig_op_shape s = { .struct_size = sizeof s,
				 .n_in = 2,
				 .n_out = 1,
				 .params = &m,
				 .in = { { .n_cols = 6, .dtype = IG_F32 },
					 { .n_cols = 16, .dtype = IG_F32 } } };
	struct ig_error err;

	assert_int_equal(ig_op_multiply.check(&s, &err), 0);
	assert_int_equal(s.out[0].n_cols, 6);
	m.first = 11;
	refused(&ig_op_multiply, &s, "columns 11 to 17 of an input of 16");
	m.first = UINT32_MAX;
	refused(&ig_op_multiply, &s, "columns 4294967295 to");
	s.n_in = 1;
	refused(&ig_op_multiply, &s, "two inputs");
	s.params = &c;
	assert_int_equal(ig_op_soft_cap.check(&s, &err), 0);
	c.cap = -1;
	refused(&ig_op_soft_cap, &s, "a cap of -1");
	c.cap = INFINITY;
	refused(&ig_op_soft_cap, &s, "a cap of inf");
	c.cap = 0;
	c.scale = 0;
	refused(&ig_op_soft_cap, &s, "a scale of 0");
}

static void test_check_joins(void **state)
{
	const struct ig_sum_params p = { .struct_size = sizeof p };
	struct ig_op_shape s = { .struct_size = sizeof s,
				 .n_in = 3,
				 .n_out = 1,
				 .params = &p,
				 .in = { { .n_cols = 6, .dtype = IG_F32 },
					 { .n_cols = 6, .dtype = IG_F32 },
					 { .n_cols = 6, .dtype = IG_F32 } } };
	struct ig_error err;

	assert_int_equal(ig_op_sum.check(&s, &err), 0);
	assert_int_equal(s.out[0].n_cols, 6);
	assert_int_equal(ig_op_concat.check(&s, &err), 0);
	assert_int_equal(s.out[0].n_cols, 18);
	s.in[2].n_cols = 5;
	refused(&ig_op_sum, &s, "input 2 has 5 columns, the first 6");
	assert_int_equal(ig_op_concat.check(&s, &err), 0);
	assert_int_equal(s.out[0].n_cols, 17);
	s.in[1].row_class = IG_ROWS_LOGITS;
	refused(&ig_op_concat, &s, "input 1 has other rows");
	s.n_in = 1;
	refused(&ig_op_sum, &s, "two to 4 inputs");
}

static void test_check_stages(void **state)
{
	struct ig_stage_in_params in = { sizeof in, 2, 4, 6 };
	struct ig_stage_out_params out = { sizeof out, 1, 6 };
	struct ig_op_shape s = { .struct_size = sizeof s, .n_out = 1, .params = &in };
	struct ig_error err;

	assert_int_equal(ig_op_stage_in.check(&s, &err), 0);
	assert_int_equal(s.out[0].n_cols, 4);
	in.first = 3;
	refused(&ig_op_stage_in, &s, "columns 3 to 7 of 6");
	in.first = UINT32_MAX;
	refused(&ig_op_stage_in, &s, "of 6");
	in.first = in.n = 0;
	refused(&ig_op_stage_in, &s, "columns 0 to 0");
	s.n_in = 1;
	refused(&ig_op_stage_in, &s, "takes no input");
	s.params = &out;
	s.in[0] = (struct ig_shape){ .n_cols = 5, .dtype = IG_F32 };
	assert_int_equal(ig_op_stage_out.check(&s, &err), 0);
	assert_int_equal(s.n_out, 0);
	s.in[0].n_cols = 6;
	refused(&ig_op_stage_out, &s, "columns 1 to 7 of 6");
	s.in[0].row_class = IG_ROWS_LOGITS;
	refused(&ig_op_stage_out, &s, "no row for each token");
	s.in[0] = (struct ig_shape){ .n_cols = 5, .dtype = IG_I32 };
	refused(&ig_op_stage_out, &s, "no row for each token");
}

/* Columns 1 to 3 of rows of 4 go to columns 2 to 4 of rows of 5, and nothing else changes. */
static void test_stages(void **state)
{
	static const float from[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
	float y[2][3], to[10] = { 0 };
	const float want[10] = { 0, 0, 2, 3, 4, 0, 0, 6, 7, 8 };
	const struct ig_stage_in_params in = { sizeof in, 1, 3, 4 };
	const struct ig_stage_out_params out = { sizeof out, 2, 5 };
	const struct ig_step step = {
		.struct_size = sizeof step, .n_rows = 2, .stage_in = from, .stage_out = to
	};
	const struct ig_tensor t = { y, 2, 3, 3 * 4, IG_F32, IG_LAYOUT_ROWS };
	struct ig_op_launch take = {
		.struct_size = sizeof take, .n_out = 1, .params = &in, .out = { t }, .step = &step
	};
	struct ig_op_launch give = {
		.struct_size = sizeof give, .n_in = 1, .params = &out, .in = { t }, .step = &step
	};

	ig_op_stage_in.reference(&take);
	ig_op_stage_out.reference(&give);
	assert_memory_equal(to, want, sizeof want);
	memset(to, 0, sizeof to);
	memset(y, 0, sizeof y);
	for (int r = 1; r >= 0; r--) {
		assert_int_equal(ig_op_stage_in.cpu_kernels[0].n_units(&take), 2);
		ig_op_stage_in.cpu_kernels[0].run(&take, r, r + 1, NULL);
		assert_int_equal(ig_op_stage_out.cpu_kernels[0].n_units(&give), 2);
		ig_op_stage_out.cpu_kernels[0].run(&give, r, r + 1, NULL);
	}
	assert_memory_equal(to, want, sizeof want);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_options),	    cmocka_unit_test(test_tanh),
		cmocka_unit_test(test_check_norm),  cmocka_unit_test(test_check_elementwise),
		cmocka_unit_test(test_check_joins), cmocka_unit_test(test_check_stages),
		cmocka_unit_test(test_stages),
	};
	return cmocka_run_group_tests_name("rows", tests, NULL, NULL);
}
