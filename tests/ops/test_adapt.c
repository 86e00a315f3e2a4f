/*
 * test_adapt.c: the ops of adapters (ops/adapt.h): every kernel that this machine runs against the plain
 * reference, with the same bits as the others however its units are cut; rows without an adapter and
 * columns that no rank of the row's adapter has are not touched; what check refuses.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "ops/adapt.h"
#include "ops/ops.h"
#include "runtime/cpu/isa.h"
#include "tests/ops/cases.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define N_WEIGHTS 3
#define N_ADAPTERS 3
#define N_ROWS 9	     /* of the step */
#define K 99		     /* columns of x: not a whole number of sixteen */
#define N_H (7 + 0 + 19)     /* each weight's largest rank */
#define N_RANKS (1 + 19 + 5) /* of all adapters of a weight, at most */
#define N_Y (40 + 3 + 700)
#define UNTOUCHED 12345.0f

/* The middle weight has no adapter, and adapter 1 only the last one. */
static const int32_t ranks[N_WEIGHTS][N_ADAPTERS] = { { 7, 0, 2 }, { 0, 0, 0 }, { 1, 19, 5 } };
static const int32_t columns[N_WEIGHTS] = { 40, 3, 700 };
static int32_t row_adapter[N_ROWS] = { 0, -1, 1, 2, -1, 0, 0, 2, -1 };
static int32_t logit_rows[] = { 1, 2, 5, 7 };

static float a[N_WEIGHTS][N_RANKS * K], b[N_WEIGHTS][N_RANKS * 700];
static float x[N_ROWS * K], h[N_ROWS * N_H], y[N_ROWS * N_Y];
static struct ig_adapt_params params;

static void fill(float *v, size_t n, uint64_t *s)
{
	for (size_t i = 0; i < n; i++)
		v[i] = ig_random_normalish(s);
}

static int setup(void **state)
{
	uint64_t s = 77;

	params = (struct ig_adapt_params){ .struct_size = sizeof params,
					   .n_weights = N_WEIGHTS,
					   .n_adapters = N_ADAPTERS };
	for (int i = 0; i < N_WEIGHTS; i++) {
		int32_t most = 0;
		for (int d = 0; d < N_ADAPTERS; d++) {
			params.first[i][d + 1] = params.first[i][d] + ranks[i][d];
			params.scale[i][d] = 0.5f + (float)d;
			most = ranks[i][d] > most ? ranks[i][d] : most;
		}
		params.column[i + 1] = params.column[i] + most;
		params.n_rows[i] = columns[i];
		fill(a[i], sizeof a[i] / sizeof **a, &s);
		fill(b[i], sizeof b[i] / sizeof **b, &s);
	}
	fill(x, sizeof x / sizeof *x, &s);
	fill(h, sizeof h / sizeof *h, &s);
	fill(y, sizeof y / sizeof *y, &s);
	return 0;
}

static struct ig_tensor rows_of(float *data, int64_t n_rows, int64_t n_cols)
{
	return (struct ig_tensor){ data, n_rows, n_cols, n_cols * 4, IG_F32, IG_LAYOUT_ROWS };
}

static struct ig_step make_step(bool gathered)
{
	params.gathered = gathered;
	return (struct ig_step){ .struct_size = sizeof(struct ig_step),
				 .n_rows = N_ROWS,
				 .n_logit_rows = 4,
				 .logit_rows = logit_rows,
				 .row_adapter = row_adapter };
}

static int64_t n_rows(const struct ig_step *s)
{
	return params.gathered ? s->n_logit_rows : s->n_rows;
}

/* x and out, or h and out in place of y. */
static struct ig_op_launch launch(const struct ig_step *step, bool up, float *out)
{
	int64_t n = n_rows(step);
	struct ig_op_launch c = { .struct_size = sizeof c,
				  .n_in = up ? 2 : 1,
				  .n_weights = N_WEIGHTS,
				  .n_out = 1,
				  .params = &params,
				  .step = step };

	c.in[0] = up ? rows_of(h, n, N_H) : rows_of(x, n, K);
	c.out[0] = rows_of(out, n, up ? N_Y : N_H);
	c.in[1] = c.out[0];
	for (int i = 0; i < N_WEIGHTS; i++)
		if (params.first[i][N_ADAPTERS])
			c.weight[i] = rows_of(up ? b[i] : a[i], params.first[i][N_ADAPTERS],
					      up ? columns[i] : K);
	return c;
}

/* Whether a row's column takes part. */
static bool is_used(bool up, int64_t r, int64_t column)
{
	int32_t d = row_adapter[params.gathered ? logit_rows[r] : r];
	int64_t begin = 0;

	for (int i = 0; d >= 0 && i < N_WEIGHTS; i++) {
		int64_t n = up ? columns[i] : params.column[i + 1] - params.column[i];
		if (column < begin + n)
			return up ? ranks[i][d] > 0 : column - begin < ranks[i][d];
		begin += n;
	}
	return false;
}

static void begin_with(float *out, bool up)
{
	for (int64_t i = 0; i < N_ROWS * (up ? N_Y : N_H); i++)
		out[i] = up ? y[i] : UNTOUCHED;
}

static void check_op(const struct ig_op *op, bool up, bool gathered)
{
	static float want[N_ROWS * N_Y], first[N_ROWS * N_Y], got[N_ROWS * N_Y],
		before[N_ROWS * N_Y];
	const struct ig_step step = make_step(gathered);
	const int64_t width = up ? N_Y : N_H, n_all = N_ROWS * width;
	struct ig_op_launch c = launch(&step, up, want);
	int n_ran = 0;

	begin_with(want, up);
	begin_with(before, up);
	op->reference(&c);
	for (uint32_t j = 0; j < op->n_cpu_kernels; j++) {
		const struct ig_cpu_kernel *k = &op->cpu_kernels[j];
		if (!ig_isa_includes(ig_isa_best(), k->isa))
			continue;
		for (int cut = 0; cut < 2; cut++) {
			c = launch(&step, up, got);
			begin_with(got, up);
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
		bool used = i / width < n_rows(&step) && is_used(up, i / width, i % width);
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
	struct ig_step step = make_step(false);
	struct ig_op_launch c;

	step.row_adapter = NULL;
	c = launch(&step, false, h);
	for (uint32_t j = 0; j < ig_op_adapt_down.n_cpu_kernels; j++)
		assert_int_equal(ig_op_adapt_down.cpu_kernels[j].n_units(&c), 0);
	c = launch(&step, true, y);
	for (uint32_t j = 0; j < ig_op_adapt_up.n_cpu_kernels; j++)
		assert_int_equal(ig_op_adapt_up.cpu_kernels[j].n_units(&c), 0);
}

static void test_join(void **state)
{
	static float want[N_ROWS * 371], got[N_ROWS * 371];
	const struct ig_step step = make_step(false);

	for (uint32_t act = IG_ACT_NONE; act <= IG_ACT_GELU; act++) {
		const struct ig_glu_join_params join = { sizeof join, act };
		struct ig_op_launch c = { .struct_size = sizeof c,
					  .n_in = 1,
					  .n_out = 1,
					  .params = &join,
					  .step = &step,
					  .in = { rows_of(y, N_ROWS, 742) },
					  .out = { rows_of(want, N_ROWS, 371) } };
		ig_op_glu_join.reference(&c);
		c.out[0] = rows_of(got, N_ROWS, 371);
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
				 .params = &params,
				 .n_in = up ? 2 : 1,
				 .n_weights = N_WEIGHTS,
				 .n_out = 1 };

	s.in[0] = (struct ig_shape){ 0, up ? N_H : K, IG_F32, IG_ROWS_TOKENS };
	s.in[1] = (struct ig_shape){ 0, N_Y, IG_F32, IG_ROWS_TOKENS };
	for (int i = 0; i < N_WEIGHTS; i++)
		if (params.first[i][N_ADAPTERS])
			s.weight[i] = (struct ig_shape){ params.first[i][N_ADAPTERS],
							 up ? columns[i] : K, IG_F32, 0 };
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

	params.gathered = 0;
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
	params.first[2][1] = 21;
	refuse(down, &s, "adapt_down: a rank of -1");
	params.n_adapters = IG_MAX_ADAPTERS + 1;
	refuse(down, &s, "adapt_down: parameters out of range");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_down, setup),  cmocka_unit_test_setup(test_up, setup),
		cmocka_unit_test_setup(test_none, setup),  cmocka_unit_test_setup(test_join, setup),
		cmocka_unit_test_setup(test_check, setup),
	};

	return cmocka_run_group_tests_name("ops adapt", tests, NULL, NULL);
}
