/*
 * test_functions.c: our part of Metal's library on the software device (functions.metal,
 * matrices.metal) against C.  Built twice, with plain and with checked shaders.
 */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bugs_args.h"
#include "soft.h"

#define N 128

static struct bug_args args;

static void run(const char *kernel, uint32_t groups, uint32_t threads, uint32_t shared, int n,
		const struct soft_binding *b)
{
	struct soft_dispatch d = { .groups = { groups, 1, 1 }, .threads = { threads, 1, 1 } };
	struct soft_report report;
	int rc;

	d.kernel = soft_find_kernel(NULL, kernel);
	assert_non_null(d.kernel);
	d.threadgroup_bytes = shared;
	memcpy(d.buffer, b, (size_t)n * sizeof *b);
	rc = soft_run(&d, &report);
	if (rc)
		print_message("# %s\n", report.text);
	assert_int_equal(rc, 0);
}

#define RUN(KERNEL, GROUPS, THREADS, SHARED, ...)                                                  \
	do {                                                                                       \
		const struct soft_binding bound[] = { { &args, sizeof args }, __VA_ARGS__ };       \
		run(KERNEL, GROUPS, THREADS, SHARED, (int)(sizeof bound / sizeof *bound), bound);  \
	} while (0)
#define B(X) { X, sizeof X }

static void near(float got, double want, double relative)
{
	if (!(fabs(got - want) <= relative * fmax(1e-6, fabs(want)))) {
		print_message("# %.9g, not %.9g\n", got, want);
		fail();
	}
}

static void math_float(void **state)
{
	static float x[N], out[12][N];

	(void)state;
	args.n = N;
	for (int i = 0; i < N; i++)
		x[i] = (float)(i - 60) * 0.173f + (i == 5 ? 0.5f : 0);
	RUN("math_float", 4, N / 4, 0, B(x), B(out));
	for (int i = 0; i < N; i++) {
		double v = x[i], a = fabs(v) + 0.5;

		near(out[0][i], exp(v), 1e-6);
		near(out[1][i], log(a), 1e-5);
		near(out[2][i], sqrt(a), 1e-6);
		near(out[3][i], 1 / sqrt(a), 1e-6);
		near(out[4][i], exp(v), 1e-6);
		near(out[5][i], log(a), 1e-5);
		near(out[6][i], sin((double)(x[i] * 1000.0f)), 1e-4);
		near(out[7][i], cos((double)(x[i] * 1000.0f)), 1e-4);
		near(out[8][i], tanh(v), 1e-6);
		near(out[9][i], 1 / a, 1e-6);
		near(out[10][i], rint(v) + floor(v) * 10 + ceil(v) * 100 + trunc(v) * 1000, 1e-6);
		near(out[11][i], 1 / sqrt(a), 1e-6);
	}
}

static void integers(void **state)
{
	static uint32_t x[N], out[10][N];

	(void)state;
	args.n = N;
	for (uint32_t i = 0; i < N; i++)
		x[i] = i < 33 ? (uint32_t)((1ull << i) - 1) : i * 2654435761u;
	RUN("integers", 4, N / 4, 0, B(x), B(out));
	for (int i = 0; i < N; i++) {
		uint32_t v = x[i], low = v < 77 ? v : 77, high = (v & 255) > 9 ? v & 255 : 9;
		uint64_t wide = (uint64_t)v * 0x100000001b3u + 12345;
		float one_or_two = v > 1000 ? 2.0f : 1.0f;
		uint32_t bits;

		assert_int_equal(out[0][i], __builtin_popcount(v));
		assert_int_equal(out[1][i], v ? __builtin_clz(v) : 32);
		assert_int_equal(out[2][i], v ? __builtin_ctz(v) : 32);
		assert_int_equal(out[3][i], (uint64_t)v * 0x9e3779b9u >> 32);
		assert_int_equal(out[4][i], v << 7 | v >> 25);
		assert_int_equal(out[5][i], (uint32_t)(wide >> 32));
		assert_int_equal(out[6][i], wide % 1000003);
		assert_int_equal(out[7][i], v >> 4 & 255);
		assert_int_equal(out[8][i], low + high + (v < 3 ? 3 : v > 5 ? 5 : v));
		memcpy(&bits, &one_or_two, sizeof bits);
		assert_int_equal(out[9][i], bits);
	}
}

/* Numbers that both types of 16 bits hold exactly come back as they were. */
static void convert(void **state)
{
	static const char *const names[] = { "convert_f16", "convert_bf16" };
	static float x[N], out[6][N];
	static uint16_t kept[N];

	(void)state;
	args.n = N;
	for (int i = 0; i < N; i++)
		x[i] = (float)(i - 64) * 0.25f;
	for (int k = 0; k < 2; k++) {
		memset(out, 0, sizeof out);
		RUN(names[k], 1, N, 0, B(x), B(out), B(kept));
		for (int i = 0; i < N; i++) {
			assert_true(out[0][i] == x[i]);
			assert_true(out[1][i] == x[i]);
			assert_true(out[2][i] == x[i] + 1);
			assert_true(out[3][i] == x[i] + 3);
			assert_true(out[4][i] == x[i] * 2 + 3);
			assert_true(out[5][i] == 3);
		}
	}
	/* 1 + 2^-9 lies in the middle of two bfloats: to the even one; a NaN stays one. */
	for (int i = 0; i < N; i++)
		x[i] = i == 1 ? 1.0f + 3.0f / 256 : i == 2 ? NAN : 1.0f + 1.0f / 256;
	RUN("convert_bf16", 1, N, 0, B(x), B(out), B(kept));
	assert_int_equal(kept[0], 0x3f80);
	assert_int_equal(kept[1], 0x3f82);
	assert_true(isnan(out[0][2]));
}

static void simd_functions(void **state)
{
	static float x[N], out[16][N];
	float sums[32];

	(void)state;
	args.n = N;
	for (int i = 0; i < N; i++)
		x[i] = (float)(i * 37 % 64 - 20) * 0.5f;
	RUN("simd_functions", 2, N / 2, 0, B(x), B(out));
	for (int g = 0; g < N; g += 32) {
		float sum = 0, most = -1e9f, least = 1e9f;
		uint32_t u_sum = 0, u_of[32], every_and = ~0u, every_or = 0, every_xor = 0,
			 ballot = 0;

		for (int i = 0; i < 32; i++) {
			float v = x[g + i];

			sum += v;
			sums[i] = sum;
			most = fmaxf(most, v);
			least = fminf(least, v);
			u_of[i] = (uint32_t)(g + i) * 7 % 32;
			u_sum += u_of[i];
			every_and &= u_of[i] | 64;
			every_or |= u_of[i];
			every_xor ^= u_of[i];
			ballot |= u_of[i] < 10 ? 1u << i : 0;
		}
		for (int i = 0, upto = 0; i < 32; i++) {
			int at = g + i;

			upto += (int)u_of[i];
			assert_true(out[0][at] == sum); /* all of them exact in float */
			assert_true(out[1][at] == most);
			assert_true(out[2][at] == least);
			assert_true(out[3][at] == sums[i]);
			assert_true(out[4][at] == (i ? sums[i - 1] : 0));
			assert_true(out[5][at] == (float)upto);
			assert_true(out[6][at] == (float)(upto - (int)u_of[i]));
			assert_true(out[7][at] == (float)u_sum);
			assert_true(out[8][at] == 15.0f - 1600.0f);
			assert_true(out[9][at] == x[g + (i ^ 5)]);
			assert_true(out[10][at] == x[g + (i + 3 < 32 ? i + 3 : i)]);
			assert_true(out[11][at] == x[g + (i < 3 ? i : i - 3)]);
			assert_true(out[12][at] == x[g + 9] + x[g]);
			near(out[13][at],
			     x[g + 31 - i] + (float)u_of[31 - i] * 1000.0f +
				     (float)(u_of[i ^ 1] + 3),
			     1e-7);
			near(out[14][at], (float)ballot + 0.75f, 1e-7);
			assert_true(out[15][at] ==
				    (float)(every_or + every_and + every_xor) + (float)u_of[i ^ 2]);
		}
	}
}

static void atomics(void **state)
{
	enum { GROUPS = 64 };
	static uint32_t counters[6], list[GROUPS * N];
	static uint8_t seen[GROUPS * N];
	float sum = 0;

	(void)state;
	memset(counters, 0, sizeof counters);
	counters[2] = UINT32_MAX;
	RUN("atomics", GROUPS, N, 16, B(counters), B(list), { &sum, sizeof sum });
	assert_int_equal(counters[0], GROUPS * N);
	assert_int_equal(counters[1], GROUPS * N - 1);
	assert_int_equal(counters[2], 0);
	assert_int_equal(counters[3], UINT32_MAX);
	assert_int_equal(counters[4], GROUPS * N);
	assert_int_equal(counters[5], GROUPS * N * 2);
	assert_true(sum == GROUPS * N);
	for (int i = 0; i < GROUPS * N; i++) {
		assert_true(list[i] < GROUPS * N);
		assert_int_equal(seen[list[i]]++, 0);
	}
}

static uint16_t half_bits(float x) /* of small integers */
{
	uint32_t u;

	memcpy(&u, &x, sizeof u);
	return x == 0 ? 0 :
			(uint16_t)((u >> 16 & 0x8000) | ((u >> 23 & 255) - 112) << 10 |
				   (u >> 13 & 1023));
}

/* Small integers: every sum is exact, whatever the order. */
static void matrices(void **state)
{
	static const char *const names[] = { "product_f32", "product_f16", "product_bf16" };
	static float a[256], b[256], y[320];
	static uint16_t a16[256], b16[256];

	(void)state;
	args.n = 16;
	for (int k = 0; k < 3; k++) {
		for (int i = 0; i < 256; i++) {
			a[i] = (float)(i * 7 % 11 - 5);
			b[i] = (float)(i * 5 % 13 - 6);
			if (k == 1) {
				a16[i] = half_bits(a[i]);
				b16[i] = half_bits(b[i]);
			} else if (k == 2) {
				uint32_t u, v;

				memcpy(&u, &a[i], 4);
				memcpy(&v, &b[i], 4);
				a16[i] = (uint16_t)(u >> 16);
				b16[i] = (uint16_t)(v >> 16);
			}
		}
		memset(y, 0, sizeof y);
		if (k == 0)
			RUN(names[k], 1, 32, 2048, B(a), B(b), B(y));
		else
			RUN(names[k], 1, 32, 2048, B(a16), B(b16), B(y));
		for (int r = 0; r < 16; r++) {
			for (int c = 0; c < 16; c++) {
				float want = (float)(r / 8 * 2 + c / 8);

				for (int i = 0; i < 16; i++)
					want += a[r * 16 + i] * b[c * 16 + i];
				want *= 2;
				for (int i = 0; i < 8; i++)
					want += a[r * 16 + i] * b[c * 16 + i];
				assert_true(y[r * 16 + c] == want);
				if (r >= 8 && c >= 8)
					assert_true(y[256 + (r - 8) * 8 + c - 8] == want);
			}
		}
	}
}

static void positions(void **state)
{
	static uint32_t out[6 * 6 * 8][4];
	struct soft_dispatch d = { .groups = { 2, 3, 2 }, .threads = { 3, 2, 4 } };
	struct soft_report report;

	(void)state;
	d.kernel = soft_find_kernel(NULL, "positions");
	d.buffer[0] = (struct soft_binding)B(out);
	assert_int_equal(soft_run(&d, &report), 0);
	for (uint32_t z = 0; z < 8; z++)
		for (uint32_t y = 0; y < 6; y++)
			for (uint32_t x = 0; x < 6; x++) {
				const uint32_t *o = out[(z * 6 + y) * 6 + x];

				assert_int_equal(o[0], x / 3 + 10 * (y / 2) + 100 * (z / 4) +
							       1000 * (x % 3) + 10000 * (y % 2) +
							       100000 * (z % 4));
				assert_int_equal(o[1], 1);
				assert_int_equal(o[2], 1);
				assert_int_equal(o[3], 232);
			}
}

/* What the table says of kernels is what their source says. */
static void table(void **state)
{
	const struct soft_shader *s = soft_find_shader("functions");
	const struct soft_kernel *k = soft_find_kernel(s, "atomics");

	(void)state;
	assert_non_null(s);
	assert_non_null(k);
	assert_ptr_equal(k->shader, s);
	assert_int_equal(k->n_arguments, 5);
	assert_int_equal(k->arguments[0].kind, SOFT_CONSTANTS);
	assert_int_equal(k->arguments[0].size, sizeof(struct bug_args));
	assert_int_equal(k->arguments[0].access, SOFT_READ);
	assert_int_equal(k->arguments[1].kind, SOFT_BUFFER);
	assert_int_equal(k->arguments[1].access, SOFT_READ | SOFT_WRITE);
	assert_int_equal(k->arguments[4].kind, SOFT_THREADGROUP);
	k = soft_find_kernel(NULL, "product_bf16");
	assert_non_null(k);
	assert_string_equal(k->shader->name, "matrices");
	assert_int_equal(k->arguments[1].access, SOFT_READ);
	assert_int_equal(k->max_threads, 1024);
	assert_null(soft_find_kernel(s, "product_bf16"));
	assert_null(soft_find_kernel(NULL, "nobody"));
	assert_null(soft_find_source("kernel", 6));
	assert_null(soft_shader(1000));
}

static int start(void **state)
{
	(void)state;
	return soft_start(2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(math_float), cmocka_unit_test(integers),
		cmocka_unit_test(convert),    cmocka_unit_test(simd_functions),
		cmocka_unit_test(atomics),    cmocka_unit_test(matrices),
		cmocka_unit_test(positions),  cmocka_unit_test(table),
	};

	return cmocka_run_group_tests(tests, start, NULL);
}
