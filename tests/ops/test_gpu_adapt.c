/*
 * test_gpu_adapt.c: the ops of adapters on a GPU against the plain reference: rows without an adapter and
 * columns that no rank of the row's adapter has are not touched, a row alone has the bits that it has among
 * others, a step without adapters runs nothing; and `linear` with glu_join has the bits of `glu`.
 *
 *   test_gpu_adapt [soft|cuda]
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/dtype.h"
#include "ops/ops.h"
#include "tests/ops/adapt_case.h"
#include "tests/ops/cases.h"
#include "tests/ops/gpu_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct ig_gpu_lab *lab;

static void run(const struct ig_op *op, const struct ig_op_launch *c, uint32_t in_class,
		uint32_t out_dtype)
{
	const struct ig_gpu_case g = {
		.op = op, .launch = c, .in_class = in_class, .out_dtype = out_dtype
	};
	struct ig_error err = { 0 };

	if (ig_gpu_case_run(lab, &g, &err))
		fail_msg("%s", err.text);
}

static bool is_near(float got, float want)
{
	return fabsf(got - want) <= 2e-5f * (1 + fabsf(want));
}

/* ---- down and up ---- */

static void check_op(const struct ig_op *op, bool up, bool gathered)
{
	static float want[N_ROWS * N_Y], got[N_ROWS * N_Y], before[N_ROWS * N_Y];
	const struct ig_step step = adapt_make_step(gathered);
	const int64_t width = up ? N_Y : N_H;
	struct ig_op_launch c = adapt_launch(&step, up, want);
	int n_used = 0;

	adapt_begin_with(want, up);
	adapt_begin_with(before, up);
	op->reference(&c);
	adapt_begin_with(got, up);
	c = adapt_launch(&step, up, got);
	run(op, &c, gathered ? IG_ROWS_LOGITS : IG_ROWS_TOKENS, IG_F32);
	for (int64_t i = 0; i < adapt_n_rows(&step) * width; i++) {
		bool used = adapt_is_used(up, i / width, i % width);
		n_used += used;
		/* what adapt_down leaves is what the memory had */
		if (!used && up)
			assert_memory_equal(&got[i], &before[i], sizeof *got);
		if (used && (!is_near(got[i], want[i]) || got[i] == before[i]))
			fail_msg("row %d, column %d: %g, expected %g", (int)(i / width),
				 (int)(i % width), (double)got[i], (double)want[i]);
		if (!used && !up)
			assert_true(got[i] != got[i]); /* the harness fills it with NaN */
	}
	assert_true(n_used > 20);
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

/* Each row by itself. */
static void test_alone(void **state)
{
	static float all[2][N_ROWS * N_Y], one[N_Y];
	struct ig_step step = adapt_make_step(false);
	const int32_t *adapters = step.row_adapter;
	struct ig_op_launch c;

	for (int up = 0; up < 2; up++) {
		adapt_begin_with(all[up], up);
		c = adapt_launch(&step, up, all[up]);
		run(up ? &ig_op_adapt_up : &ig_op_adapt_down, &c, IG_ROWS_TOKENS, IG_F32);
	}
	for (int r = 0; r < N_ROWS; r++) {
		step.n_rows = 1;
		step.row_adapter = adapters + r;
		for (int up = 0; up < 2; up++) {
			int64_t width = up ? N_Y : N_H;
			c = adapt_launch(&step, up, one);
			c.in[0].data = up ? adapt_h + r * N_H : adapt_x + r * K;
			if (up)
				memcpy(one, adapt_y + r * N_Y, sizeof one);
			run(up ? &ig_op_adapt_up : &ig_op_adapt_down, &c, IG_ROWS_TOKENS, IG_F32);
			for (int64_t i = 0; i < width; i++)
				if (adapt_is_used(up, r, i))
					assert_memory_equal(&one[i], &all[up][r * width + i],
							    sizeof *one);
		}
	}
}

/* Without adapters in the step nothing runs, so nothing changes. */
static void test_none(void **state)
{
	static float got[N_ROWS * N_Y];
	struct ig_step step = adapt_make_step(false);
	struct ig_op_launch c;

	step.row_adapter = NULL;
	adapt_begin_with(got, true);
	c = adapt_launch(&step, true, got);
	run(&ig_op_adapt_up, &c, IG_ROWS_TOKENS, IG_F32);
	assert_memory_equal(got, adapt_y, sizeof got);
}

/* ---- glu_join ---- */

static void test_join(void **state)
{
	enum { N = N_Y / 2 };
	static float want[N_ROWS * N], got[N_ROWS * N];
	const struct ig_step step = adapt_make_step(false);
	static const uint32_t types[] = { IG_F32, IG_F16, IG_BF16 };

	for (uint32_t act = IG_ACT_NONE; act <= IG_ACT_GELU; act++)
		for (int t = 0; t < 3; t++) {
			const struct ig_glu_join_params join = { sizeof join, act };
			struct ig_op_launch c = { .struct_size = sizeof c,
						  .n_in = 1,
						  .n_out = 1,
						  .params = &join,
						  .step = &step,
						  .in = { adapt_rows_of(adapt_y, N_ROWS, 2 * N) },
						  .out = { adapt_rows_of(want, N_ROWS, N) } };
			ig_op_glu_join.reference(&c);
			c.out[0] = adapt_rows_of(got, N_ROWS, N);
			run(&ig_op_glu_join, &c, IG_ROWS_TOKENS, types[t]);
			for (int i = 0; i < N_ROWS * N; i++) {
				float of = types[t] == IG_F32 ? 2e-6f :
					   types[t] == IG_F16 ? 1e-3f :
								8e-3f;
				assert_true(fabsf(got[i] - want[i]) <=
					    of * (0.01f + fabsf(want[i])));
			}
		}
}

/* For few rows and many, in each format: a row without an adapter has the bits that it has where no
 * weight has one. */
static void test_join_is_glu(void **state)
{
	enum { OUT = 96, IN = 512, MOST = 40 };
	static const uint32_t formats[] = { IG_F16, IG_BF16, IG_Q8_0, IG_Q4_K, IG_F32 };
	static _Alignas(64) uint8_t gate[OUT * IN * 4], up[OUT * IN * 4];
	static float in[MOST * IN], both[MOST * 2 * OUT], joined[MOST * OUT], glued[MOST * OUT];
	uint64_t seed = 5;

	for (int i = 0; i < MOST * IN; i++)
		in[i] = ig_random_normalish(&seed);
	for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
		int64_t row = (int64_t)ig_dtype_row_bytes(formats[f], IN);
		for (int64_t r = 0; r < OUT; r++) {
			ig_case_weight_row(formats[f], gate + r * row, IN, &seed);
			ig_case_weight_row(formats[f], up + r * row, IN, &seed);
		}
		for (int32_t n = 1; n <= MOST; n += 13) {
			const struct ig_linear_params linear = { sizeof linear, 2, IG_ACT_NONE, 0 };
			const struct ig_glu_params glu = { sizeof glu, IG_ACT_SILU };
			const struct ig_glu_join_params join = { sizeof join, IG_ACT_SILU };
			const struct ig_step step = { .struct_size = sizeof step, .n_rows = n };
			struct ig_op_launch c = {
				.struct_size = sizeof c,
				.n_in = 1,
				.n_weights = 2,
				.n_out = 1,
				.params = &linear,
				.step = &step,
				.in = { adapt_rows_of(in, n, IN) },
				.weight = { { gate, OUT, IN, row, formats[f], IG_LAYOUT_ROWS },
					    { up, OUT, IN, row, formats[f], IG_LAYOUT_ROWS } },
				.out = { adapt_rows_of(both, n, 2 * OUT) },
			};
			run(&ig_op_linear, &c, IG_ROWS_TOKENS, IG_F32);
			c.params = &glu;
			c.out[0] = adapt_rows_of(glued, n, OUT);
			run(&ig_op_glu, &c, IG_ROWS_TOKENS, IG_F16);
			c.params = &join;
			c.n_weights = 0;
			c.in[0] = adapt_rows_of(both, n, 2 * OUT);
			c.out[0] = adapt_rows_of(joined, n, OUT);
			run(&ig_op_glu_join, &c, IG_ROWS_TOKENS, IG_F16);
			assert_memory_equal(joined, glued, (size_t)n * OUT * sizeof *glued);
		}
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_down, adapt_setup),
		cmocka_unit_test_setup(test_up, adapt_setup),
		cmocka_unit_test_setup(test_alone, adapt_setup),
		cmocka_unit_test_setup(test_none, adapt_setup),
		cmocka_unit_test_setup(test_join, adapt_setup),
		cmocka_unit_test(test_join_is_glu),
	};
	struct ig_error err = { 0 };
	const char *device = argc > 1 ? argv[1] : getenv("INGOT_TEST_GPU");
	int rc = ig_gpu_lab_open(device, &lab, &err);

	if (rc) {
		fprintf(stderr, "%s: %s\n", device ? device : "soft", err.text);
		return 1;
	}
	rc = cmocka_run_group_tests_name("adapters on a GPU", tests, NULL, NULL);
	ig_gpu_lab_close(lab);
	return rc;
}
