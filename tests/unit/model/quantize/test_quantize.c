/* test_quantize.c: rows of floats in every element type, judged by what is read back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "model/formats/checkpoint.h"
#include "base/dtype.h"
#include "model/quantize/quantize_private.h"
#include "model/quantize/quantize.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define N 4096

/* The relative error of rows of normal deviates is at most what llama.cpp's quantisers leave
 * on the same rows (measured with this generator: ggml_quantize_chunk of ggml 0.25), without an importance matrix
 * and, of weighted squares, with one of lognormal weights; ours were what stands beside. */
static const struct {
	uint32_t dtype;
	double limit, weighted;
} quants[] = {
	{ IG_Q4_0, 0.08617, 0.05449 },	 /* 0.08107, 0.04639 */
	{ IG_Q4_1, 0.07805, 0.02547 },	 /* 0.06884, 0.02271 */
	{ IG_Q5_0, 0.04280, 0.03833 },	 /* 0.04004, 0.03533 */
	{ IG_Q5_1, 0.03776, 0.01335 },	 /* 0.03338, 0.01170 */
	{ IG_Q8_0, 0.00534, 0.01028 },	 /* 0.00520, 0.00970 */
	{ IG_Q2_K, 0.29785, 0.08996 },	 /* 0.25957, 0.06979 */
	{ IG_Q3_K, 0.15096, 0.07451 },	 /* 0.14382, 0.06138 */
	{ IG_Q4_K, 0.07128, 0.02784 },	 /* 0.06951, 0.02370 */
	{ IG_Q5_K, 0.03614, 0.01608 },	 /* 0.03447, 0.01406 */
	{ IG_Q6_K, 0.01785, 0.01242 },	 /* 0.01690, 0.00843 */
	{ IG_IQ4_NL, 0.07613, 0.03845 }, /* 0.07322, 0.02955 */
	{ IG_IQ4_XS, 0.07665, 0.04080 }, /* 0.07371, 0.03042 */
	{ IG_MXFP4, 0.11386, 0.13575 },	 /* 0.11143, 0.13360 */
};
#define N_QUANTS (sizeof quants / sizeof *quants)

static uint64_t state;

static double uniform(void)
{
	state += 0x9e3779b97f4a7c15u;
	uint64_t z = state;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

static void normals(float *x, int n, double scale)
{
	for (int i = 0; i < n; i++) {
		double r = sqrt(-2 * log(1 - uniform())), a = 2 * M_PI * uniform();
		x[i] = (float)(scale * r * cos(a));
	}
}

/* Quantise, read back, and return the root of errors over squares; w: their weights, or NULL. */
static double weighted_error_of(uint32_t dtype, const float *x, const float *w, int n, float *back)
{
	unsigned char *row = malloc(ig_dtype_row_bytes(dtype, n));
	double e = 0, s = 0;

	assert_non_null(row);
	assert_int_equal(ig_quantize_weighted(dtype, x, w, n, row, NULL), 0);
	ig_dtype_to_f32(dtype, row, back, n);
	free(row);
	for (int i = 0; i < n; i++) {
		const double by = w ? w[i] : 1;
		assert_true(isfinite(back[i]));
		e += by * ((double)x[i] - back[i]) * ((double)x[i] - back[i]);
		s += by * x[i] * x[i];
	}
	return s > 0 ? sqrt(e / s) : sqrt(e);
}

static double error_of(uint32_t dtype, const float *x, int n, float *back)
{
	return weighted_error_of(dtype, x, NULL, n, back);
}

static void every_half_comes_back(void **test)
{
	for (uint32_t h = 0; h < 0x10000; h++) {
		uint16_t bits = (uint16_t)h;
		float f = ig_half_to(bits);
		uint16_t again = ig_half_from(f);

		if (f != f)
			assert_true((again & 0x7c00) == 0x7c00 && (again & 0x3ff));
		else
			assert_int_equal(again, bits);
	}
}

/* Between two halves the nearer one, the even one in the middle. */
static void halves_are_rounded(void **test)
{
	for (uint32_t h = 0; h < 0x7bff; h++) {
		double low = ig_half_to((uint16_t)h), high = ig_half_to((uint16_t)(h + 1));
		float middle = (float)((low + high) / 2);

		assert_true((double)middle == (low + high) / 2);
		assert_int_equal(ig_half_from(middle), h & 1 ? h + 1 : h);
		assert_int_equal(ig_half_from(nextafterf(middle, 0)), h);
		assert_int_equal(ig_half_from(nextafterf(middle, INFINITY)), h + 1);
		assert_int_equal(ig_half_from(-nextafterf(middle, INFINITY)), (h + 1) | 0x8000);
	}
	assert_int_equal(ig_half_from(65519.99f), 0x7bff);
	assert_int_equal(ig_half_from(65520.0f), 0x7c00);
	assert_int_equal(ig_half_from(-FLT_MAX), 0xfc00);
	assert_int_equal(ig_half_from(FLT_TRUE_MIN), 0);
	assert_true(ig_half_clamped(1e9f) == 65504.0f && ig_half_clamped(-1e9f) == -65504.0f);
}

static void brain_floats_are_rounded(void **test)
{
	/* 1 + 2^-8 lies between 1 and 1 + 2^-7; 1 + 3 2^-8 between 1 + 2^-7 and 1 + 2^-6. */
	static const float x[] = { 1.00390625f, 1.01171875f, 1.0039064f, -1.00390625f, 0x1p-149f };
	static const uint16_t want[] = { 0x3f80, 0x3f82, 0x3f81, 0xbf80, 0 };
	uint16_t got[5];

	assert_int_equal(ig_quantize_row(IG_BF16, x, 5, got, NULL), 0);
	assert_memory_equal(got, want, sizeof want);
}

static void refusals(void **test)
{
	float x[512] = { 0 };
	unsigned char out[4 * 512];
	int64_t at = -1;

	assert_false(ig_quantize_knows(IG_I32));
	assert_false(ig_quantize_knows(99));
	assert_int_equal(ig_quantize_row(99, x, 256, out, &at), -EINVAL);
	assert_int_equal(ig_quantize_row(IG_I32, x, 256, out, &at), -EINVAL);
	assert_int_equal(ig_quantize_row(IG_Q4_0, x, 33, out, &at), -EINVAL);
	assert_int_equal(ig_quantize_row(IG_Q4_K, x, 128, out, &at), -EINVAL);
	assert_int_equal(ig_quantize_row(IG_F32, x, 0, out, &at), -EINVAL);
	assert_int_equal(at, -1);
	for (size_t i = 0; i < N_QUANTS; i++) {
		static const float bad[] = { NAN, INFINITY, -INFINITY, -FLT_MAX };
		assert_true(ig_quantize_knows(quants[i].dtype));
		for (int j = 0; j < 4; j++) {
			x[300] = bad[j];
			assert_int_equal(ig_quantize_row(quants[i].dtype, x, 512, out, &at),
					 -ERANGE);
			assert_int_equal(at, 300);
		}
	}
	x[300] = 65520;
	assert_int_equal(ig_quantize_row(IG_F16, x, 512, out, &at), -ERANGE);
	x[300] = FLT_MAX;
	assert_int_equal(ig_quantize_row(IG_F32, x, 512, out, &at), 0);
	assert_int_equal(ig_quantize_row(IG_BF16, x, 512, out, NULL), -ERANGE);
}

static void errors_of_normal_rows(void **test)
{
	float *x = malloc(N * sizeof *x), *back = malloc(N * sizeof *back);

	assert_true(x && back);
	for (size_t i = 0; i < N_QUANTS; i++) {
		double sum = 0;
		state = 1;
		for (int r = 0; r < 8; r++) {
			normals(x, N, 0.02);
			double e = error_of(quants[i].dtype, x, N, back);
			sum += e * e / 8;
		}
		printf("# %s: %.5f of %.5f\n", ig_dtype_name(quants[i].dtype), sqrt(sum),
		       quants[i].limit);
		assert_true(sqrt(sum) <= quants[i].limit);
	}
	free(x);
	free(back);
}

static void errors_of_weighted_rows(void **test)
{
	float *x = malloc(N * sizeof *x), *w = malloc(N * sizeof *w),
	      *back = malloc(N * sizeof *back);

	assert_true(x && w && back);
	state = 7;
	normals(x, N, 0.02);
	normals(w, N, 3);
	for (int i = 0; i < N; i++)
		w[i] = expf(w[i]);
	for (size_t i = 0; i < N_QUANTS; i++) {
		double e = weighted_error_of(quants[i].dtype, x, w, N, back);
		printf("# %s: %.5f of %.5f\n", ig_dtype_name(quants[i].dtype), e,
		       quants[i].weighted);
		assert_true(e <= quants[i].weighted);
	}
	free(x);
	free(w);
	free(back);
}

/* What a block can say comes back as it was, where its values say which scale they had. */
static void values_of_blocks_come_back(void **test)
{
	static const uint32_t types[] = { IG_Q4_0, IG_Q4_1,   IG_Q5_0, IG_Q5_1,
					  IG_Q8_0, IG_IQ4_NL, IG_MXFP4 };
	float x[32], back[32];

	state = 7;
	for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
		const struct ig_quant_type *t = ig_quant_type(types[i]);
		for (int trial = 0; trial < 200; trial++) {
			float d = ig_half_to((uint16_t)(0x1800 + trial * 97)), m = -4 * d;
			int n_codes = 1 << t->bits;
			if (types[i] == IG_MXFP4)
				d = ldexpf(1, trial / 4 - 25);
			for (int j = 0; j < 32; j++) {
				int code = j < 2 ? j * (n_codes - 1) : (int)(uniform() * n_codes);
				if (types[i] == IG_Q8_0 && code == 0)
					code = 1;
				x[j] = d * (float)(t->table ? t->table[code] : code - t->offset);
				if (t->has_min)
					x[j] += m;
			}
			if (error_of(types[i], x, 32, back) > 0)
				fail_msg("%s, trial %d", ig_dtype_name(types[i]), trial);
		}
	}
}

/* Zeros, one value, one outlier, all of one sign, scales near a half's ends. */
static void odd_rows(void **test)
{
	float x[512], back[512];

	for (size_t i = 0; i < N_QUANTS; i++) {
		uint32_t t = quants[i].dtype;

		memset(x, 0, sizeof x);
		assert_true(error_of(t, x, 512, back) == 0);
		for (int j = 0; j < 512; j++)
			x[j] = -0.0f;
		assert_true(error_of(t, x, 512, back) == 0);
		x[77] = -3;
		assert_true(error_of(t, x, 512, back) < 0.3);
		for (int sign = -1; sign <= 1; sign += 2) {
			for (int j = 0; j < 512; j++)
				x[j] = (float)sign * 0.37f;
			assert_true(error_of(t, x, 512, back) < 0.3);
		}
		state = 3;
		for (int e = -126; e <= 13; e++) {
			normals(x, 512, ldexp(1, e));
			double error = error_of(t, x, 512, back);
			assert_true(error <= 1.001);
			/* Where a half has all its digits the size makes no difference. */
			if (e >= -4)
				assert_true(error < 1.15 * quants[i].limit);
		}
		/* Larger than any half, which only a scale can say. */
		if (t != IG_Q4_1 && t != IG_Q5_1) {
			for (int j = 0; j < 512; j++)
				x[j] = j % 2 ? 4e5f : -4e5f;
			assert_true(error_of(t, x, 512, back) < 0.2);
		}
		for (int j = 0; j < 512; j++)
			x[j] = j % 2 ? FLT_TRUE_MIN : -FLT_MIN;
		assert_true(error_of(t, x, 512, back) <= 1.001);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_half_comes_back),
		cmocka_unit_test(halves_are_rounded),
		cmocka_unit_test(brain_floats_are_rounded),
		cmocka_unit_test(refusals),
		cmocka_unit_test(errors_of_normal_rows),
		cmocka_unit_test(errors_of_weighted_rows),
		cmocka_unit_test(values_of_blocks_come_back),
		cmocka_unit_test(odd_rows),
	};

	return cmocka_run_group_tests_name("model/quantize", tests, NULL, NULL);
}
