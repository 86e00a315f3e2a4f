/*
 * test_adapt.c: the ops of adapters (ops/adapt.h): every kernel that this machine runs against the plain
 * reference, with the same bits as the others however its units are cut; rows without an adapter and
 * columns that no rank of the row's adapter has are not touched; what check refuses.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "ops/ops.h"
#include "runtime/cpu/isa.h"
#include "tests/ops/adapt_case.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void check_op(const struct ig_op *op, bool up, bool gathered)
{
	static float want[N_ROWS * N_Y], first[N_ROWS * N_Y], got[N_ROWS * N_Y],
		before[N_ROWS * N_Y];
	const struct ig_step step = adapt_make_step(gathered);
	const int64_t width = up ? N_Y : N_H, n_all = N_ROWS * width;
	struct ig_op_launch c = adapt_launch(&step, up, want);
	int n_ran = 0;

	adapt_begin_with(want, up);
	adapt_begin_with(before, up);
	op->reference(&c);
	for (uint32_t j = 0; j < op->n_cpu_kernels; j++) {
		const struct ig_cpu_kernel *k = &op->cpu_kernels[j];
		if (!ig_isa_includes(ig_isa_best(), k->isa))
			continue;
		for (int cut = 0; cut < 2; cut++) {
			c = adapt_launch(&step, up, got);
			adapt_begin_with(got, up);
			int64_t n = k->n_units(&c);
			assert_true(n > 0);
			if (!cut)
				k->run(&c, 0, n, NULL);
			for (int64_t u = n; cut && u-- > 0;)
				k->run(&c, u, u + 1, NULL);
			if (!n_ran++)
				memcpy(first, got, sizeof first);
			assert_memory_equal(got, first, (size_t)n_all * sizeof *got);
		}
	}
	assert_true(n_ran >= 2);
	for (int64_t i = 0; i < n_all; i++) {
		bool used =
			i / width < adapt_n_rows(&step) && adapt_is_used(up, i / width, i % width);
		if (!used)
			assert_memory_equal(&first[i], &before[i], sizeof *first);
		else if (!(fabsf(first[i] - want[i]) <= 1e-5f * (1 + fabsf(want[i]))) ||
			 first[i] == before[i])
			fail_msg("row %d, column %d: %g, expected %g", (int)(i / width),
				 (int)(i % width), (double)first[i], (double)want[i]);
	}
}

static void test_down(void **state)
{
	check_op(&ig_op_adapt_down, false, false);
	check_op(&ig_op_adapt_down, false, true);
}

static void test_up(void **state)
{
	check_op(&ig_op_adapt_up, true, false);
	check_op(&ig_op_adapt_up, true, true);
}

/* A step in which no row has one. */
static void test_none(void **state)
{
	struct ig_step step = adapt_make_step(false);
	struct ig_op_launch c;

	step.row_adapter = NULL;
	c = adapt_launch(&step, false, adapt_h);
	for (uint32_t j = 0; j < ig_op_adapt_down.n_cpu_kernels; j++)
		assert_int_equal(ig_op_adapt_down.cpu_kernels[j].n_units(&c), 0);
	c = adapt_launch(&step, true, adapt_y);
	for (uint32_t j = 0; j < ig_op_adapt_up.n_cpu_kernels; j++)
		assert_int_equal(ig_op_adapt_up.cpu_kernels[j].n_units(&c), 0);
}

static void test_join(void **state)
{
	static float want[N_ROWS * 371], got[N_ROWS * 371];
	const struct ig_step step = adapt_make_step(false);

	for (uint32_t act = IG_ACT_NONE; act <= IG_ACT_GELU; act++) {
		const struct ig_glu_join_params join = { sizeof join, act };
		struct ig_op_launch c = { .struct_size = sizeof c,
					  .n_in = 1,
					  .n_out = 1,
					  .params = &join,
					  .step = &step,
					  .in = { adapt_rows_of(adapt_y, N_ROWS, 742) },
					  .out = { adapt_rows_of(want, N_ROWS, 371) } };
		ig_op_glu_join.reference(&c);
		c.out[0] = adapt_rows_of(got, N_ROWS, 371);
		for (uint32_t j = 0; j < ig_op_glu_join.n_cpu_kernels; j++) {
			const struct ig_cpu_kernel *k = &ig_op_glu_join.cpu_kernels[j];
			if (!ig_isa_includes(ig_isa_best(), k->isa))
				continue;
			memset(got, 0xff, sizeof got);
			k->run(&c, 0, k->n_units(&c), NULL);
			for (size_t i = 0; i < sizeof got / sizeof *got; i++)
				assert_true(fabsf(got[i] - want[i]) <=
					    1e-5f * (1 + fabsf(want[i])));
		}
	}
}

/* ---- what check refuses ------------------------------------------------------------------- */

static struct ig_op_shape shape(bool up)
{
	struct ig_op_shape s = { .struct_size = sizeof s,
				 .params = &adapt_params,
				 .n_in = up ? 2 : 1,
				 .n_weights = N_WEIGHTS,
				 .n_out = 1 };

	s.in[0] = (struct ig_shape){ 0, up ? N_H : K, IG_F32, IG_ROWS_TOKENS };
	s.in[1] = (struct ig_shape){ 0, N_Y, IG_F32, IG_ROWS_TOKENS };
	for (int i = 0; i < N_WEIGHTS; i++)
		if (adapt_params.first[i][N_ADAPTERS])
			s.weight[i] = (struct ig_shape){ adapt_params.first[i][N_ADAPTERS],
							 up ? adapt_columns[i] : K, IG_F32, 0 };
	return s;
}

static void refuse(const struct ig_op *op, struct ig_op_shape *s, const char *text)
{
	struct ig_error err = { 0 };

	assert_int_equal(op->check(s, &err), -EINVAL);
	assert_string_equal(err.text, text);
}

static void test_check(void **state)
{
	const struct ig_op *down = &ig_op_adapt_down, *up = &ig_op_adapt_up;
	struct ig_op_shape s = shape(false);

	adapt_params.gathered = 0;
	assert_int_equal(down->check(&s, NULL), 0);
	assert_int_equal(s.out[0].n_cols, N_H);
	s = shape(true);
	assert_int_equal(up->check(&s, NULL), 0);
	assert_int_equal(s.out[0].n_cols, N_Y);
	s.in[1].n_cols++;
	refuse(up, &s, "adapt_up: its inputs do not fit");
	s = shape(true);
	s.weight[2].n_cols--;
	refuse(up, &s, "adapt_up: weight 2 has another width");
	s = shape(false);
	s.weight[0].n_cols++;
	refuse(down, &s, "adapt_down: weight 0 has another width");
	s = shape(false);
	s.weight[0].n_rows++;
	refuse(down, &s, "adapt_down: the matrices of weight 0 do not fit");
	s = shape(false);
	s.weight[2].dtype = IG_F16;
	refuse(down, &s, "adapt_down: the matrices of weight 2 do not fit");
	s = shape(false);
	s.in[0].row_class = IG_ROWS_LOGITS;
	refuse(down, &s, "adapt_down: takes one input of its rows");
	s = shape(false);
	adapt_params.first[2][1] = 21;
	refuse(down, &s, "adapt_down: a rank of -1");
	adapt_params.n_adapters = IG_MAX_ADAPTERS + 1;
	refuse(down, &s, "adapt_down: parameters out of range");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_down, adapt_setup),
		cmocka_unit_test_setup(test_up, adapt_setup),
		cmocka_unit_test_setup(test_none, adapt_setup),
		cmocka_unit_test_setup(test_join, adapt_setup),
		cmocka_unit_test_setup(test_check, adapt_setup),
	};

	return cmocka_run_group_tests_name("ops adapt", tests, NULL, NULL);
}
