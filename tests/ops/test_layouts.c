/* test_layouts.c: the layouts: weights in tiles of sixteen and activations in their
 * short forms, against the plain definition of each format. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "model/formats/checkpoint.h"
#include "ops/cpu/rows.h"
#include "ops/cpu/tile16.h"
#include "ops/float.h"
#include "runtime/cpu/isa.h"
#include "tests/ops/cases.h"

#include <stdlib.h>

static const uint32_t dtypes[] = { IG_F32,  IG_F16,    IG_BF16,	  IG_Q8_0,  IG_Q4_0, IG_Q4_1,
				   IG_Q5_0, IG_Q5_1,   IG_Q2_K,	  IG_Q3_K,  IG_Q4_K, IG_Q5_K,
				   IG_Q6_K, IG_IQ4_NL, IG_IQ4_XS, IG_MXFP4, IG_Q8_M };

/* Random bytes; values that are not finite must come back so. */
static void random_matrix(uint32_t dtype, uint8_t *p, uint64_t bytes)
{
	uint64_t s = 1234567 + dtype;

	for (uint64_t i = 0; i < bytes; i++)
		p[i] = (uint8_t)(ig_random_u64(&s) >> 40);
}

#define MAX_K 768

static int64_t step_of(uint32_t dtype)
{
	return dtype == IG_F32 || dtype == IG_F16 || dtype == IG_BF16 ? 21 : 32;
}

static void test_tiles_hold_what_rows_hold(void **state)
{
	static const int64_t ns[] = { 1, 15, 16, 17, 40 };

	for (size_t t = 0; t < sizeof dtypes / sizeof *dtypes; t++)
		for (size_t i = 0; i < sizeof ns / sizeof *ns; i++)
			for (int64_t k = 32; k <= MAX_K; k += step_of(dtypes[t])) {
				if (!ig_dtype_row_bytes(dtypes[t], k))
					continue; /* blocks of 256 */
				uint64_t stride = ig_dtype_row_bytes(dtypes[t], k);
				uint64_t tile = ig_tile16_tile_bytes(dtypes[t], k);
				int64_t n_tiles = ig_tile16_n_tiles(ns[i]);
				uint8_t *rows = malloc(stride * (uint64_t)ns[i]);
				uint8_t *packed = aligned_alloc(64, tile * (uint64_t)n_tiles + 64);
				float a[MAX_K], b[MAX_K];
				assert_true(tile % 64 == 0 && rows && packed);
				memset(packed + tile * (uint64_t)n_tiles, 0xee, 64);
				random_matrix(dtypes[t], rows, stride * (uint64_t)ns[i]);
				/* in two goes, as two threads would */
				ig_tile16_pack(dtypes[t], rows, ns[i], k, packed, n_tiles / 2,
					       n_tiles);
				ig_tile16_pack(dtypes[t], rows, ns[i], k, packed, 0, n_tiles / 2);
				for (int64_t r = 0; r < ns[i]; r++) {
					ig_dtype_to_f32(dtypes[t], rows + stride * (uint64_t)r, a,
							k);
					ig_tile16_row_to_f32(dtypes[t], packed, k, r, b);
					for (int64_t j = 0; j < k; j++)
						assert_true(a[j] == b[j] ||
							    (a[j] != a[j] && b[j] != b[j]));
				}
				for (int64_t r = ns[i]; r < n_tiles * IG_TILE; r++) {
					ig_tile16_row_to_f32(dtypes[t], packed, k, r, b);
					for (int64_t j = 0; j < k; j++)
						assert_true(b[j] == 0.0f);
				}
				for (int j = 0; j < 64; j++)
					assert_int_equal(
						packed[tile * (uint64_t)n_tiles + (uint64_t)j],
						0xee);
				free(rows);
				free(packed);
			}
	assert_int_equal(ig_tile16_tile_bytes(IG_Q4_1, 33), 0);
	assert_int_equal(ig_tile16_tile_bytes(IG_I32, 32), 0);
	assert_int_equal(ig_tile16_tile_bytes(IG_F32, 0), 0);
	assert_int_equal(ig_tile16_tile_bytes(IG_Q4_K, 128), 0);
	assert_int_equal(ig_tile16_tile_bytes(16, 256), 0);
	assert_int_equal(ig_tile16_tile_bytes(UINT32_MAX, 256), 0);
}

/* What the packed weights of a model cost beside its file. */
static void test_tiles_are_as_small_as_files(void **state)
{
	for (size_t t = 0; t < sizeof dtypes / sizeof *dtypes; t++) {
		double rows = (double)ig_dtype_row_bytes(dtypes[t], 4096) * IG_TILE;
		double tile = (double)ig_tile16_tile_bytes(dtypes[t], 4096);
		print_message("# %s: %.2f %% of the file's bytes\n", ig_dtype_name(dtypes[t]),
			      100.0 * tile / rows);
		assert_true(tile >= rows && tile <= 1.04 * rows);
	}
}

static void (*const pack_q8[])(const struct ig_op_launch *, int64_t, int64_t, void *) = {
#define PACK(name, isa) ig_pack_q8_##name,
	ROWS_LIST(PACK)
#undef PACK
};
static void (*const pack_bf16[])(const struct ig_op_launch *, int64_t, int64_t, void *) = {
#define PACK(name, isa) ig_pack_bf16_##name,
	ROWS_LIST(PACK)
#undef PACK
};
static const uint32_t pack_isa[] = {
#define PACK(name, isa) isa,
	ROWS_LIST(PACK)
#undef PACK
};

#define K 96
#define ROWS 5

static void run_pack(void (*pack)(const struct ig_op_launch *, int64_t, int64_t, void *),
		     uint32_t layout, float (*x)[K], uint8_t *out)
{
	struct ig_op_launch c = {
		.n_in = 1,
		.n_out = 1,
		.in = { { x, ROWS, K, K * 4, IG_F32, IG_LAYOUT_ROWS } },
		.out = { { out, ROWS, K, (int64_t)ig_layout_row_bytes(layout, K), IG_F32,
			   layout } },
	};
	pack(&c, 2, ROWS, NULL);
	pack(&c, 0, 2, NULL);
}

static void test_q8(void **state)
{
	static float x[ROWS][K];
	uint8_t out[ROWS * 256], other[ROWS * 256];
	uint64_t s = 5;
	int n_apart = 0;

	assert_int_equal(ig_layout_row_bytes(IG_LAYOUT_Q8, K), 192); /* 96 + 3 * 24, rounded up */
	assert_int_equal(ig_layout_row_bytes(IG_LAYOUT_Q8, 256), 448);
	for (int r = 0; r < ROWS; r++)
		for (int i = 0; i < K; i++)
			x[r][i] = ig_random_normalish(&s) * (float)(r + 1);
	for (int i = 0; i < 32; i++)
		x[1][i] = 0.0f;	     /* a block of zeros */
	x[2][40] = -1000.0f;	     /* an outlier of its block */
	x[4][0] = x[4][1] = 1000.0f; /* two do: none lies apart */
	for (int i = 64; i < 96; i++)
		x[4][i] = i == 95 ? 7.0f : 0.0f; /* the only one */
	x[3][3] = INFINITY;
	x[3][70] = NAN;
	memset(out, 0, sizeof out);
	run_pack(pack_q8[0], IG_LAYOUT_Q8, x, out);
	for (int r = 0; r < ROWS; r++) {
		const int8_t *q = (const int8_t *)out + r * 192;
		const float *d = (const float *)(q + K), *sums = d + 3;
		const int32_t *neg = (const int32_t *)(sums + 3), *neg_half = neg + 3;
		const float *apart = (const float *)(neg_half + 3);
		const int32_t *next = (const int32_t *)(apart + 3);
		for (int b = 0; b < 3; b++) {
			int32_t sum = 0, half = 0;
			float amax = 0.0f;
			bool finite = true;
			for (int i = b * 32; i < b * 32 + 32; i++) {
				sum += q[i];
				half += i % 32 < 16 ? q[i] : 0;
				finite = finite && isfinite(x[r][i]);
				if (next[b] != i % 32)
					amax = fabsf(x[r][i]) > amax ? fabsf(x[r][i]) : amax;
			}
			if (next[b] < 32) {
				float v = x[r][b * 32 + next[b]];
				assert_true(v != 0.0f && apart[b] == v && q[b * 32 + next[b]] == 0);
				assert_true(fabsf(v) > 4.0f * amax);
				n_apart++;
			} else if (finite) { /* the largest is not an outlier */
				float most = 0.0f, second = 0.0f;
				for (int i = b * 32; i < b * 32 + 32; i++) {
					float v = fabsf(x[r][i]);
					second = v > most ? most : v > second ? v : second;
					most = v > most ? v : most;
				}
				assert_true(most <= 4.0f * second);
			}
			int on = b; /* the list goes to the next one, or beyond the row */
			while (on < 3 && next[on] >= 32)
				on++;
			assert_int_equal(next[b] / 32, on - b);
			assert_int_equal(neg[b], -sum);
			assert_int_equal(neg_half[b], -half);
			if (!finite) {
				assert_false(isfinite(d[b] * (float)q[b * 32]));
				continue;
			}
			assert_true(sums[b] == d[b] * (float)sum);
			for (int i = b * 32; i < b * 32 + 32; i++) {
				assert_true(q[i] >= -127);
				assert_true(
					fabs((double)ig_case_q8_value(q, K, i) - (double)x[r][i]) <=
					(double)amax / 127.0 * 0.50001);
			}
		}
	}
	assert_int_equal(n_apart, 2);
	for (size_t i = 1; i < sizeof pack_isa / sizeof *pack_isa; i++) {
		if (!ig_isa_includes(ig_isa_best(), pack_isa[i]))
			continue;
		memset(other, 0, sizeof other);
		run_pack(pack_q8[i], IG_LAYOUT_Q8, x, other);
		assert_memory_equal(out, other, ROWS * 192);
	}
}

static void test_bf16(void **state)
{
	static float x[ROWS][K];
	uint16_t out[ROWS * K], other[ROWS * K];
	uint64_t s = 6;

	for (int r = 0; r < ROWS; r++)
		for (int i = 0; i < K; i++)
			x[r][i] = ig_random_normalish(&s);
	run_pack(pack_bf16[0], IG_LAYOUT_BF16, x, (uint8_t *)out);
	for (int r = 0; r < ROWS; r++)
		for (int i = 0; i < K; i++)
			assert_true(fabsf(ig_f32_from_bf16(out[r * K + i]) - x[r][i]) <=
				    fabsf(x[r][i]) * 0x1p-8f);
	for (size_t i = 1; i < sizeof pack_isa / sizeof *pack_isa; i++) {
		if (!ig_isa_includes(ig_isa_best(), pack_isa[i]))
			continue;
		run_pack(pack_bf16[i], IG_LAYOUT_BF16, x, (uint8_t *)other);
		assert_memory_equal(out, other, sizeof out);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tiles_hold_what_rows_hold),
		cmocka_unit_test(test_tiles_are_as_small_as_files),
		cmocka_unit_test(test_q8),
		cmocka_unit_test(test_bf16),
	};
	return cmocka_run_group_tests_name("layouts", tests, NULL, NULL);
}
