/* test_dtype.c: names, sizes and plain definitions of the element types. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/dtype.h"
#include "model/formats/checkpoint.h"

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
	assert_int_equal(ig_dtype_row_bytes(IG_Q5_0, 64), 44);
	assert_int_equal(ig_dtype_row_bytes(IG_Q5_1, 64), 48);
	assert_int_equal(ig_dtype_row_bytes(IG_Q2_K, 512), 168);
	assert_int_equal(ig_dtype_row_bytes(IG_Q3_K, 512), 220);
	assert_int_equal(ig_dtype_row_bytes(IG_Q4_K, 512), 288);
	assert_int_equal(ig_dtype_row_bytes(IG_Q5_K, 512), 352);
	assert_int_equal(ig_dtype_row_bytes(IG_Q6_K, 512), 420);
	assert_int_equal(ig_dtype_row_bytes(IG_IQ4_NL, 64), 36);
	assert_int_equal(ig_dtype_row_bytes(IG_IQ4_XS, 512), 272);
	assert_int_equal(ig_dtype_row_bytes(IG_MXFP4, 64), 34);
	assert_int_equal(ig_dtype_row_bytes(IG_Q4_K, 128), 0); /* blocks of 256 */
	assert_int_equal(ig_dtype_row_bytes(16, 256), 0);      /* IQ2_XXS */
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
			      exponent	     ? ldexp(1024 + mantissa, (int)exponent - 25) :
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

#define HALF_2 0x00, 0x40	  /* 2.0 */
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

/* Q4_1's minimum, codes of 8 bits; no GGUF file has it. */
static void q8_m(void **state)
{
	unsigned char block[36] = { HALF_2, HALF_MINUS_1_5 };
	float out[32];

	for (int j = 0; j < 32; j++)
		block[4 + j] = (unsigned char)(j * 8 + 7);
	assert_string_equal(ig_dtype_name(IG_Q8_M), "Q8_M");
	assert_int_equal(ig_dtype_row_bytes(IG_Q8_M, 64), 72);
	assert_int_equal(ig_dtype_row_bytes(IG_Q8_M, 33), 0);
	ig_dtype_to_f32(IG_Q8_M, block, out, 32);
	for (int j = 0; j < 32; j++)
		assert_true(out[j] == 2.0f * (float)(j * 8 + 7) - 1.5f);
}

/* Blocks of 256, by hand: one code, scale and minimum at a place that only its own bits
 * reach.  tests/golden/dtype holds all of them against the Python package gguf. */
static void super_blocks(void **state)
{
	unsigned char q4_k[144] = { HALF_2, HALF_MINUS_1_5 }, q6_k[210] = { 0 };
	float out[256];

	/* Scale 37 = 2 * 16 + 5 and minimum 18 = 1 * 16 + 2 of sub-block 6, code 9 of value
	 * 6 * 32 + 3: byte 3 of the last 32, low half. */
	q4_k[4 + 8 + 2] = 5 | 2 << 4;
	q4_k[4 + 2] = 2 << 6;
	q4_k[4 + 6] = 1 << 6;
	q4_k[16 + 3 * 32 + 3] = 9;
	ig_dtype_to_f32(IG_Q4_K, q4_k, out, 256);
	for (int i = 0; i < 256; i++)
		assert_true(out[i] == (i / 32 == 6 ? 1.5f * 18.0f : 0.0f) +
					      (i == 195 ? 2.0f * 37.0f * 9.0f : 0.0f));

	/* Code 3 * 16 + 7 of value 128 + 64 + 5: byte 64 + 5 of the nibbles' upper halves, bits
	 * 4 and 5 of byte 32 + 5 above; all other codes are 0, so -32; scales -100 and 2. */
	q6_k[64 + 5] = 7 << 4;
	q6_k[128 + 32 + 5] = 3 << 4;
	q6_k[192 + 12] = (unsigned char)-100;
	q6_k[192 + 3] = 2;
	q6_k[209] = 0x40;
	ig_dtype_to_f32(IG_Q6_K, q6_k, out, 256);
	for (int i = 0; i < 256; i++) {
		float scale = i / 16 == 12 ? -100.0f : i / 16 == 3 ? 2.0f : 0.0f;
		assert_true(out[i] == 2.0f * scale * (i == 197 ? 23.0f : -32.0f));
	}
}

static void parts(void **state)
{
	struct ig_quant_block b;
	unsigned char q5_1[24] = { HALF_2, HALF_MINUS_1_5, 0x01, 0x00, 0x00, 0x80 },
		      fp4[17] = { 128 };

	q5_1[8] = 0x3a;
	q5_1[8 + 15] = 0xf1;
	ig_quant_split(IG_Q5_1, q5_1, &b);
	assert_true(b.d == 2.0f && b.m == -1.5f && b.scale[0] == 1 && b.min[0] == 1);
	assert_int_equal(b.code[0], 0x1a);
	assert_int_equal(b.code[15], 1);
	assert_int_equal(b.code[16], 3);
	assert_int_equal(b.code[31], 0x1f);
	fp4[1 + 2] = 0xf5; /* value 2: 6 / 2 * 2, value 18: -12 / 2 * 2 */
	ig_quant_split(IG_MXFP4, fp4, &b);
	assert_true(b.d == 1.0f && b.d_bits == 128);
	assert_int_equal(ig_quant_type(IG_MXFP4)->table[b.code[2]], 6);
	assert_int_equal(ig_quant_type(IG_MXFP4)->table[b.code[18]], -12);
	fp4[0] = 0;
	ig_quant_split(IG_MXFP4, fp4, &b);
	assert_true(b.d == 0x1p-128f);
	assert_null(ig_quant_type(IG_F16));
	assert_null(ig_quant_type(16));
	assert_null(ig_quant_type(UINT32_MAX));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names),	cmocka_unit_test(row_bytes),
		cmocka_unit_test(halves),	cmocka_unit_test(wide_types),
		cmocka_unit_test(quantised),	cmocka_unit_test(q8_m),
		cmocka_unit_test(super_blocks), cmocka_unit_test(parts),
	};

	return cmocka_run_group_tests_name("model/dtype", tests, NULL, NULL);
}
