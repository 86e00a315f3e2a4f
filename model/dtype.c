/*
 * dtype.c: element types: their names, sizes and plain definitions.
 *
 * ig_dtype_to_f32 is the truth that kernels and packers are tested against; it
 * is written to be read, not to be fast.  Numbers and names are GGUF's.
 */
#include "model/gguf.h"

#include <stdio.h>
#include <string.h>

#define BLOCK 32 /* values in a block of every quantised type here */

/* All that GGUF has had, so that an error can name what Ingot does not read. */
static const char *const type_names[] = {
	[0] = "F32",      [1] = "F16",      [2] = "Q4_0",    [3] = "Q4_1",     [4] = "Q4_2",
	[5] = "Q4_3",     [6] = "Q5_0",     [7] = "Q5_1",    [8] = "Q8_0",     [9] = "Q8_1",
	[10] = "Q2_K",    [11] = "Q3_K",    [12] = "Q4_K",   [13] = "Q5_K",    [14] = "Q6_K",
	[15] = "Q8_K",    [16] = "IQ2_XXS", [17] = "IQ2_XS", [18] = "IQ3_XXS", [19] = "IQ1_S",
	[20] = "IQ4_NL",  [21] = "IQ3_S",   [22] = "IQ2_S",  [23] = "IQ4_XS",  [24] = "I8",
	[25] = "I16",     [26] = "I32",     [27] = "I64",    [28] = "F64",     [29] = "IQ1_M",
	[30] = "BF16",    [34] = "TQ1_0",   [35] = "TQ2_0",  [39] = "MXFP4",
};

const char *ig_dtype_name(uint32_t dtype)
{
	static _Thread_local char unknown[24];

	if (dtype < sizeof type_names / sizeof type_names[0] && type_names[dtype])
		return type_names[dtype];
	snprintf(unknown, sizeof unknown, "type %u", (unsigned)dtype);
	return unknown;
}

/* Bytes of one block and values in it; false for what Ingot does not read. */
static bool block_size(uint32_t dtype, uint64_t *bytes, int64_t *values)
{
	switch (dtype) {
	case IG_F32:
	case IG_I32: *bytes = 4; *values = 1; return true;
	case IG_F16:
	case IG_BF16: *bytes = 2; *values = 1; return true;
	case IG_Q4_0: *bytes = 2 + BLOCK / 2; *values = BLOCK; return true;
	case IG_Q4_1: *bytes = 4 + BLOCK / 2; *values = BLOCK; return true;
	case IG_Q8_0: *bytes = 2 + BLOCK; *values = BLOCK; return true;
	default: return false;
	}
}

uint64_t ig_dtype_row_bytes(uint32_t dtype, int64_t n)
{
	uint64_t bytes, total;
	int64_t values;

	if (n <= 0 || !block_size(dtype, &bytes, &values) || n % values)
		return 0;
	if (__builtin_mul_overflow((uint64_t)(n / values), bytes, &total))
		return 0;
	return total;
}

static float from_bits(uint32_t bits)
{
	float f;

	memcpy(&f, &bits, sizeof f);
	return f;
}

static uint16_t load_u16(const unsigned char *p)
{
	return (uint16_t)(p[0] | p[1] << 8);
}

static float load_f16(const unsigned char *p)
{
	uint32_t h = load_u16(p), sign = (h & 0x8000) << 16;
	uint32_t exponent = h >> 10 & 31, mantissa = h & 0x3ff;

	if (exponent == 31) /* infinities and NaNs */
		return from_bits(sign | 0x7f800000 | mantissa << 13);
	if (exponent == 0) { /* zero and subnormals: mantissa * 2^-24, exact */
		float f = (float)mantissa * 0x1p-24f;
		return sign ? -f : f;
	}
	return from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

void ig_dtype_to_f32(uint32_t dtype, const void *src, float *dst, int64_t n)
{
	const unsigned char *p = src;

	switch (dtype) {
	case IG_F32:
		memcpy(dst, src, (size_t)n * sizeof *dst);
		return;
	case IG_I32:
		for (int64_t i = 0; i < n; i++) {
			int32_t v;
			memcpy(&v, p + 4 * i, sizeof v);
			dst[i] = (float)v;
		}
		return;
	case IG_F16:
		for (int64_t i = 0; i < n; i++)
			dst[i] = load_f16(p + 2 * i);
		return;
	case IG_BF16:
		for (int64_t i = 0; i < n; i++)
			dst[i] = from_bits((uint32_t)load_u16(p + 2 * i) << 16);
		return;
	case IG_Q8_0:
		for (int64_t b = 0; b < n / BLOCK; b++, p += 2 + BLOCK) {
			float d = load_f16(p);
			for (int j = 0; j < BLOCK; j++)
				*dst++ = d * (float)(int8_t)p[2 + j];
		}
		return;
	case IG_Q4_0: /* byte j: value j in its low half, value j + 16 in its high half */
		for (int64_t b = 0; b < n / BLOCK; b++, p += 2 + BLOCK / 2, dst += BLOCK) {
			float d = load_f16(p);
			for (int j = 0; j < BLOCK / 2; j++) {
				dst[j] = d * (float)((p[2 + j] & 15) - 8);
				dst[j + BLOCK / 2] = d * (float)((p[2 + j] >> 4) - 8);
			}
		}
		return;
	case IG_Q4_1:
		for (int64_t b = 0; b < n / BLOCK; b++, p += 4 + BLOCK / 2, dst += BLOCK) {
			float d = load_f16(p), m = load_f16(p + 2);
			for (int j = 0; j < BLOCK / 2; j++) {
				dst[j] = d * (float)(p[4 + j] & 15) + m;
				dst[j + BLOCK / 2] = d * (float)(p[4 + j] >> 4) + m;
			}
		}
		return;
	default: /* row_bytes is 0 for it, so no row of this type was ever let in */
		for (int64_t i = 0; i < n; i++)
			dst[i] = 0;
	}
}
