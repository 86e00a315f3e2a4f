/*
 * test_ops.c: every cpu kernel of the core ops that this machine runs, over the
 * table of cases: near its op's reference on the same (quantised) activations,
 * the same bits however units and rows are cut up and on each level of an
 * instruction set where that is promised, nothing written outside.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "ops/cpu/tile16.h"
#include "ops/float.h"
#include "ops/ops.h"
#include "tests/emulated.h"
#include "tests/ops/cases.h"

#include <stdlib.h>

/* Sums of up to 1,536 products in float32 against sums in double: the error of a
 * chain grows like sqrt(k) * 2^-24 of the sums' size, and the worst of some hundred
 * sums is about three deviations off; 1e-5 of (the result's usual size + the value
 * itself: glu multiplies two sums) leaves a factor of two. */
#define TOLERANCE 1e-5

static double worst_of(const float *a, const float *b, int64_t n)
{
	double size = 0.0, worst = 0.0;

	for (int64_t i = 0; i < n; i++)
		size += (double)b[i] * b[i];
	size = sqrt(size / (double)n) + 1e-3;
	for (int64_t i = 0; i < n; i++) {
		double e = fabs((double)a[i] - (double)b[i]) / (size + fabs((double)b[i]));
		if (!(e <= worst)) /* NaN is the worst */
			worst = e;
	}
	return worst;
}

static int check_kernel(const struct ig_case *c, struct ig_case_data *d,
			const struct ig_cpu_kernel *k, const float *ref, float *got, float *again)
{
	size_t bytes = (size_t)ig_case_out_len(d) * sizeof *got;
	int failed = 0;

	if (!ig_case_kernel(d, k, IG_CUT_NONE, got)) {
		print_error("%s: wrote outside its rows\n", ig_case_name(c, k));
		failed = 1;
	}
	double worst = worst_of(got, ref, ig_case_out_len(d));
	if (!(worst <= TOLERANCE)) {
		print_error("%s: off by %g of the result's size\n", ig_case_name(c, k), worst);
		failed = 1;
	}
	for (enum ig_case_cut cut = IG_CUT_UNITS; cut <= IG_CUT_ROWS && cuts_are_tested(k); cut++) {
		if (!ig_case_kernel(d, k, cut, again) || memcmp(got, again, bytes)) {
			print_error("%s: other bits when cut by %s\n", ig_case_name(c, k),
				    cut == IG_CUT_UNITS ? "units" : "rows");
			failed = 1;
		}
	}
	return failed;
}

/* 8-bit products sum integers, and every vector kernel scales the sums the same way, so the levels of an
 * instruction set give the same bits: a machine's level changes no token of theirs. */
static bool levels_agree(const struct ig_cpu_kernel *k)
{
	return k->isa != IG_ISA_GENERIC && k->in_layout == IG_LAYOUT_Q8;
}

static bool is_product(const struct ig_case *c)
{
	return !strcmp(c->op, "linear") || !strcmp(c->op, "glu") || !strcmp(c->op, "logits");
}

/* The case, or where each access is slow a smaller one with the same remainders of rows and inner length: two tiles
 * of outputs, the second with one column. */
static struct ig_case tried_case(const struct ig_case *c)
{
	struct ig_case tried = *c;

	if (is_slowed() && is_product(c) && ig_case_is_large(c))
		tried.n = IG_TILE + 1;
	return tried;
}

static void check_op(const char *name)
{
	int n_failed = 0, n_checked = 0, n_compared = 0;

	for (size_t i = 0; i < ig_n_cases; i++) {
		const struct ig_case tried = tried_case(&ig_cases[i]), *c = &tried;
		const float *level = NULL; /* the first level's result */
		if (strcmp(c->op, name) || c->bench ||
		    (is_slowed() && ig_case_repeats(&ig_cases[i])))
			continue;
		struct ig_case_data *d = ig_case_open(c);
		const struct ig_op *op = ig_case_op(d);
		size_t n = (size_t)ig_case_out_len(d);
		float *buf = malloc(6 * n * sizeof *buf);
		assert_non_null(buf);
		float *ref[4] = { buf, NULL, buf + n, buf + 2 * n };
		bool has_ref[4] = { false };
		for (uint32_t j = 0; j < op->n_cpu_kernels; j++) {
			const struct ig_cpu_kernel *k = &op->cpu_kernels[j];
			if (!ig_case_fits(c, k) || (i % 3 && !cuts_are_tested(k)))
				continue;
			if (!has_ref[k->in_layout])
				ig_case_reference(d, k->in_layout, ref[k->in_layout]);
			has_ref[k->in_layout] = true;
			n_failed +=
				check_kernel(c, d, k, ref[k->in_layout], buf + 3 * n, buf + 4 * n);
			n_checked++;
			if (level && levels_agree(k)) {
				n_compared++;
				if (memcmp(level, buf + 3 * n, n * sizeof *buf)) {
					print_error("%s: other bits than the level below\n",
						    ig_case_name(c, k));
					n_failed++;
				}
			} else if (levels_agree(k)) {
				level = memcpy(buf + 5 * n, buf + 3 * n, n * sizeof *buf);
			}
		}
		free(buf);
		ig_case_close(d);
	}
	print_message("# %d results of one level compared with another's\n", n_compared);
	assert_true(n_checked > 0);
	assert_int_equal(n_failed, 0);
}

static void test_linear(void **state) { check_op("linear"); }
static void test_glu(void **state) { check_op("glu"); }
static void test_logits(void **state) { check_op("logits"); }
static void test_norm(void **state) { check_op("norm"); }
static void test_embed(void **state) { check_op("embed"); }

/* ---- the functions under the kernels -------------------------------------------------- */

static void test_exp(void **state)
{
	double worst = 0.0;

	for (double x = -87.0; x < 88.0; x += 0.00137) {
		double want = exp((double)(float)x), got = (double)ig_expf((float)x);
		double e = fabs(got - want) / want;
		if (!(e <= worst))
			worst = e;
	}
	print_message("# exp: worst relative error %.3g\n", worst);
	assert_true(worst < 2.5e-7);
	assert_true(ig_expf(-INFINITY) == 0.0f);
	assert_true(ig_expf(INFINITY) == INFINITY);
	assert_true(ig_expf(0.0f) == 1.0f);
	assert_true(ig_expf(NAN) != ig_expf(NAN));
}

static void test_halves(void **state)
{
	/* Every half there is, by its definition. */
	for (uint32_t h = 0; h < 0x10000; h++) {
		int e = (int)(h >> 10 & 31);
		double m = (double)(h & 1023), v;
		v = e == 0 ? ldexp(m, -24) : ldexp(1024.0 + m, e - 25);
		if (e == 31) {
			float f = ig_f32_from_f16((uint16_t)h);
			assert_true((h & 1023) ? f != f : f == (h & 0x8000 ? -INFINITY : INFINITY));
			continue;
		}
		assert_true((double)ig_f32_from_f16((uint16_t)h) == (h & 0x8000 ? -v : v));
	}
	assert_int_equal(ig_bf16_from_f32(1.0f), 0x3f80);
	assert_int_equal(ig_bf16_from_f32(ig_f32_from_bits(0x3f808000)), 0x3f80); /* tie, to even */
	assert_int_equal(ig_bf16_from_f32(ig_f32_from_bits(0x3f818000)), 0x3f82);
	assert_int_equal(ig_bf16_from_f32(ig_f32_from_bits(0x3f808001)), 0x3f81);
	assert_true(ig_f32_from_bf16(ig_bf16_from_f32(NAN)) != 0.0f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_linear), cmocka_unit_test(test_glu),
		cmocka_unit_test(test_logits), cmocka_unit_test(test_norm),
		cmocka_unit_test(test_embed),  cmocka_unit_test(test_exp),
		cmocka_unit_test(test_halves),
	};
	return cmocka_run_group_tests_name("core ops", tests, NULL, NULL);
}
