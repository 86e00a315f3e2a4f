/* test_dtype.c: names, sizes and plain definitions of the element types. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "model/gguf.h"

#include <math.h>
#include <string.h>

static void names(void **state)
{
	assert_string_equal(ig_dtype_name(IG_F32), "F32");
	assert_string_equal(ig_dtype_name(IG_Q4_1), "Q4_1");
	assert_string_equal(ig_dtype_name(IG_BF16), "BF16");
	assert_string_equal(ig_dtype_name(12), "Q4_K");
	assert_string_equal(ig_dtype_name(31), "type 31"); /* taken back from GGUF */
	assert_string_equal(ig_dtype_name(99), "type 99");
	assert_string_equal(ig_dtype_name(UINT32_MAX), "type 4294967295");
}

static void row_bytes(void **state)
{
	assert_int_equal(ig_dtype_row_bytes(IG_F32, 5), 20);
	assert_int_equal(ig_dtype_row_bytes(IG_I32, 5), 20);
	assert_int_equal(ig_dtype_row_bytes(IG_F16, 5), 10);
	assert_int_equal(ig_dtype_row_bytes(IG_BF16, 1), 2);
	assert_int_equal(ig_dtype_row_bytes(IG_Q8_0, 64), 68);
	assert_int_equal(ig_dtype_row_bytes(IG_Q4_0, 64), 36);
	assert_int_equal(ig_dtype_row_bytes(IG_Q4_1, 64), 40);
	assert_int_equal(ig_dtype_row_bytes(IG_Q4_1, 63), 0);
	assert_int_equal(ig_dtype_row_bytes(IG_Q4_1, 0), 0);
	assert_int_equal(ig_dtype_row_bytes(IG_F32, -4), 0);
	assert_int_equal(ig_dtype_row_bytes(IG_F32, INT64_MAX), 0); /* would overflow */
	assert_int_equal(ig_dtype_row_bytes(99, 32), 0);
}

/* Every half there is, against ldexp. */
static void halves(void **state)
{
	for (uint32_t h = 0; h < 0x10000; h++) {
		uint16_t bits = (uint16_t)h;
		unsigned exponent = h >> 10 & 31, mantissa = h & 0x3ff;
		float got;

		ig_dtype_to_f32(IG_F16, &bits, &got, 1);
		if (exponent == 31 && mantissa) {
			assert_true(isnan(got));
			continue;
		}
		double want = exponent == 31 ? INFINITY :
			      exponent ? ldexp(1024 + mantissa, (int)exponent - 25) :
					 ldexp(mantissa, -24);
		assert_true((double)fabsf(got) == want);
		assert_int_equal(signbit(got) != 0, h >> 15);
	}
}

static void wide_types(void **state)
{
	static const float f[3] = { 1.5f, -0.0f, 3e38f };
	static const uint16_t b[3] = { 0x3fc0, 0xc000, 0x7f80 };
	static const int32_t i[3] = { 0, -7, 1 << 24 };
	float out[3];

	ig_dtype_to_f32(IG_F32, f, out, 3);
	assert_memory_equal(out, f, sizeof f);
	ig_dtype_to_f32(IG_BF16, b, out, 3);
	assert_true(out[0] == 1.5f && out[1] == -2.0f && isinf(out[2]));
	ig_dtype_to_f32(IG_I32, i, out, 3);
	assert_true(out[0] == 0.0f && out[1] == -7.0f && out[2] == 16777216.0f);
}

#define HALF_2 0x00, 0x40 /* 2.0 */
#define HALF_MINUS_1_5 0x00, 0xbe /* -1.5 */

static void quantised(void **state)
{
	unsigned char block[2 * 36] = { HALF_2 };
	float out[64];

	for (int j = 0; j < 32; j++)
		block[2 + j] = (unsigned char)(j * 8 - 128);
	memcpy(block + 34, block, 34);
	block[34] = 0x00;
	block[35] = 0xbe;
	ig_dtype_to_f32(IG_Q8_0, block, out, 64);
	for (int j = 0; j < 32; j++) {
		assert_true(out[j] == 2.0f * (float)(j * 8 - 128));
		assert_true(out[32 + j] == -1.5f * (float)(j * 8 - 128));
	}

	/* Byte j: value j below, value j + 16 above. */
	unsigned char q4_0[2 * 18] = { HALF_2 };
	for (int j = 0; j < 16; j++)
		q4_0[2 + j] = (unsigned char)(j | (15 - j) << 4);
	memcpy(q4_0 + 18, q4_0, 18);
	ig_dtype_to_f32(IG_Q4_0, q4_0, out, 64);
	for (int j = 0; j < 16; j++) {
		assert_true(out[j] == 2.0f * (float)(j - 8));
		assert_true(out[j + 16] == 2.0f * (float)(7 - j));
		assert_true(out[32 + j] == out[j] && out[48 + j] == out[16 + j]);
	}

	unsigned char q4_1[20] = { HALF_2, HALF_MINUS_1_5 };
	for (int j = 0; j < 16; j++)
		q4_1[4 + j] = (unsigned char)(j | (15 - j) << 4);
	ig_dtype_to_f32(IG_Q4_1, q4_1, out, 32);
	for (int j = 0; j < 16; j++) {
		assert_true(out[j] == 2.0f * (float)j - 1.5f);
		assert_true(out[j + 16] == 2.0f * (float)(15 - j) - 1.5f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names), cmocka_unit_test(row_bytes), cmocka_unit_test(halves),
		cmocka_unit_test(wide_types), cmocka_unit_test(quantised),
	};

	return cmocka_run_group_tests_name("model/dtype", tests, NULL, NULL);
}
