/*
 * dtype.c: element types: names, sizes and plain definitions.  ig_dtype_to_f32 is the reference for
 * the tests of kernels and packers, written for clarity.  Numbers, names and layouts are GGUF's,
 * except Q8_M's (MLX's groups of 8 bits); tests/golden/dtype compares every value with the Python
 * package `gguf`.
 */
#include "base/dtype.h"

#include <stdio.h>
#include <string.h>

/* All types that GGUF ever had, so that an error can name one that Ingot does not read. */
static const char *const type_names[] = {
	[0] = "F32",	 [1] = "F16",	   [2] = "Q4_0",    [3] = "Q4_1",     [4] = "Q4_2",
	[5] = "Q4_3",	 [6] = "Q5_0",	   [7] = "Q5_1",    [8] = "Q8_0",     [9] = "Q8_1",
	[10] = "Q2_K",	 [11] = "Q3_K",	   [12] = "Q4_K",   [13] = "Q5_K",    [14] = "Q6_K",
	[15] = "Q8_K",	 [16] = "IQ2_XXS", [17] = "IQ2_XS", [18] = "IQ3_XXS", [19] = "IQ1_S",
	[20] = "IQ4_NL", [21] = "IQ3_S",   [22] = "IQ2_S",  [23] = "IQ4_XS",  [24] = "I8",
	[25] = "I16",	 [26] = "I32",	   [27] = "I64",    [28] = "F64",     [29] = "IQ1_M",
	[30] = "BF16",	 [34] = "TQ1_0",   [35] = "TQ2_0",  [39] = "MXFP4",
};

/* The element type of K or V with this name. */
static bool cache_dtype(const char *name, size_t n, uint32_t *dtype)
{
	static const struct {
		const char *name;
		uint32_t dtype;
	} types[] = { { "f16", IG_F16 }, { "f32", IG_F32 }, { "q8_0", IG_Q8_0 } };

	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		if (n == strlen(types[i].name) && !memcmp(name, types[i].name, n)) {
			*dtype = types[i].dtype;
			return true;
		}
	return false;
}

bool ig_cache_dtypes(const char *text, uint32_t *k, uint32_t *v)
{
	const size_t n = strcspn(text, "/");
	const char *second = text[n] ? text + n + 1 : text;

	return cache_dtype(text, n, k) && cache_dtype(second, strlen(second), v);
}

const char *ig_dtype_name(uint32_t dtype)
{
	static _Thread_local char unknown[24];

	if (dtype < sizeof type_names / sizeof type_names[0] && type_names[dtype])
		return type_names[dtype];
	if (dtype == IG_Q8_M)
		return "Q8_M";
	snprintf(unknown, sizeof unknown, "type %u", (unsigned)dtype);
	return unknown;
}

/* ---- quantised types ------------------------------------------------------------- */

static const int8_t iq4_values[16] = IG_IQ4_VALUES;
static const int8_t fp4_values[16] = IG_FP4_VALUES;

const struct ig_quant_type *ig_quant_type(uint32_t dtype)
{
	static const struct ig_quant_type types[] = {
		[IG_Q4_0] = { 18, 32, 32, 4, 8, NULL, false },
		[IG_Q4_1] = { 20, 32, 32, 4, 0, NULL, true },
		[IG_Q5_0] = { 22, 32, 32, 5, 16, NULL, false },
		[IG_Q5_1] = { 24, 32, 32, 5, 0, NULL, true },
		[IG_Q8_0] = { 34, 32, 32, 8, 128, NULL, false },
		[IG_Q2_K] = { 84, 256, 16, 2, 0, NULL, true },
		[IG_Q3_K] = { 110, 256, 16, 3, 4, NULL, false },
		[IG_Q4_K] = { 144, 256, 32, 4, 0, NULL, true },
		[IG_Q5_K] = { 176, 256, 32, 5, 0, NULL, true },
		[IG_Q6_K] = { 210, 256, 16, 6, 32, NULL, false },
		[IG_IQ4_NL] = { 18, 32, 32, 4, 0, iq4_values, false },
		[IG_IQ4_XS] = { 136, 256, 32, 4, 0, iq4_values, false },
		[IG_MXFP4] = { 17, 32, 32, 4, 0, fp4_values, false },
	};

	static const struct ig_quant_type q8_m = { 36, 32, 32, 8, 0, NULL, true };

	if (dtype == IG_Q8_M)
		return &q8_m;
	return dtype < sizeof types / sizeof *types && types[dtype].bytes ? &types[dtype] : NULL;
}

/* Bytes of a block and values in it; false for types that Ingot does not read. */
static bool block_size(uint32_t dtype, uint64_t *bytes, int64_t *values)
{
	const struct ig_quant_type *t = ig_quant_type(dtype);

	*values = t ? t->values : 1;
	switch (dtype) {
	case IG_F32:
	case IG_I32: *bytes = 4; return true;
	case IG_F16:
	case IG_BF16: *bytes = 2; return true;
	default: *bytes = t ? t->bytes : 0; return t;
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

static uint16_t load_u16(const unsigned char *p) { return (uint16_t)(p[0] | p[1] << 8); }

static float from_half(uint32_t h)
{
	uint32_t sign = (h & 0x8000) << 16;
	uint32_t exponent = h >> 10 & 31, mantissa = h & 0x3ff;

	if (exponent == 31) /* infinities and NaNs */
		return from_bits(sign | 0x7f800000 | mantissa << 13);
	if (exponent == 0) { /* zero and subnormals: mantissa * 2^-24, exact */
		float f = (float)mantissa * 0x1p-24f;
		return sign ? -f : f;
	}
	return from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

static void take_scale(struct ig_quant_block *b, const unsigned char *p)
{
	b->d_bits = load_u16(p);
	b->d = from_half(b->d_bits);
}

/* sign -1: the type subtracts m times its minimum. */
static void take_min(struct ig_quant_block *b, const unsigned char *p, float sign)
{
	b->m_bits = load_u16(p);
	b->m = sign * from_half(b->m_bits);
}

/* Codes of 4 bits, 2 n at a time: n bytes have n codes in their low halves, then n in the high. */
static void take_nibbles(struct ig_quant_block *b, const unsigned char *p, int n_values, int n)
{
	for (int at = 0; at < n_values; at += 2 * n, p += n)
		for (int j = 0; j < n; j++) {
			b->code[at + j] = p[j] & 15;
			b->code[at + n + j] = p[j] >> 4;
		}
}

/* Codes of 2 bits, 32 at a time: 32 bytes have four times 32 codes, lowest bits first. */
static void take_pairs(struct ig_quant_block *b, const unsigned char *p, int shift)
{
	for (int at = 0; at < 256; at += 32)
		for (int j = 0; j < 32; j++)
			b->code[at + j] |=
				(uint8_t)((p[at / 128 * 32 + j] >> (at / 32 % 4 * 2) & 3) << shift);
}

/* One more bit of each code, 32 at a time: bit t of byte j belongs to code 32 t + j. */
static void take_planes(struct ig_quant_block *b, const unsigned char *p, int shift)
{
	for (int at = 0; at < 256; at += 32)
		for (int j = 0; j < 32; j++)
			b->code[at + j] |= (uint8_t)((p[j] >> (at / 32) & 1) << shift);
}

/* Bit 4 of 32 codes from a word of 32 bits. */
static void take_word(struct ig_quant_block *b, const unsigned char *p)
{
	for (int i = 0; i < 32; i++)
		b->code[i] |= (uint8_t)((p[i / 8] >> (i % 8) & 1) << 4);
}

/* Eight scales and eight minima of 6 bits in 12 bytes: bytes 0 to 7 have four of each in their low
 * 6 bits and the upper two bits of the other four above them; bytes 8 to 11 have the lower four
 * bits of those. */
static void take_scales_6(struct ig_quant_block *b, const unsigned char *p)
{
	for (int j = 0; j < 4; j++) {
		b->scale[j] = (int8_t)(p[j] & 63);
		b->min[j] = p[4 + j] & 63;
		b->scale[4 + j] = (int8_t)((p[8 + j] & 15) | (p[j] >> 6 << 4));
		b->min[4 + j] = (uint8_t)((p[8 + j] >> 4) | (p[4 + j] >> 6 << 4));
	}
}

void ig_quant_split(uint32_t dtype, const void *src, struct ig_quant_block *b)
{
	const unsigned char *p = src;

	memset(b, 0, sizeof *b);
	b->scale[0] = 1;
	switch (dtype) {
	case IG_Q4_0:
	case IG_IQ4_NL:
		take_scale(b, p);
		take_nibbles(b, p + 2, 32, 16);
		break;
	case IG_Q4_1:
	case IG_Q5_1:
		take_scale(b, p);
		take_min(b, p + 2, 1.0f);
		b->min[0] = 1;
		take_nibbles(b, dtype == IG_Q5_1 ? p + 8 : p + 4, 32, 16);
		if (dtype == IG_Q5_1)
			take_word(b, p + 4);
		break;
	case IG_Q5_0:
		take_scale(b, p);
		take_nibbles(b, p + 6, 32, 16);
		take_word(b, p + 2);
		break;
	case IG_Q8_0:
		take_scale(b, p);
		for (int j = 0; j < 32; j++)
			b->code[j] = p[2 + j] ^ 0x80;
		break;
	case IG_Q8_M:
		take_scale(b, p);
		take_min(b, p + 2, 1.0f);
		b->min[0] = 1;
		memcpy(b->code, p + 4, 32);
		break;
	case IG_MXFP4: /* 2^(e - 127), halved; the two smallest are subnormal */
		b->d_bits = p[0];
		b->d = from_bits(p[0] < 2 ? 0x00200000u << p[0] : (uint32_t)(p[0] - 1) << 23);
		take_nibbles(b, p + 1, 32, 16);
		break;
	case IG_Q2_K:
		for (int j = 0; j < 16; j++) {
			b->scale[j] = (int8_t)(p[j] & 15);
			b->min[j] = p[j] >> 4;
		}
		take_pairs(b, p + 16, 0);
		take_scale(b, p + 80);
		take_min(b, p + 82, -1.0f);
		break;
	case IG_Q3_K:
		take_planes(b, p, 2);
		take_pairs(b, p + 32, 0);
		for (int j = 0; j < 16; j++) {
			int low = p[96 + j % 8] >> (j / 8 * 4) & 15;
			int high = p[104 + j % 4] >> (j / 4 * 2) & 3;
			b->scale[j] = (int8_t)((low | high << 4) - 32);
		}
		take_scale(b, p + 108);
		break;
	case IG_Q4_K:
	case IG_Q5_K:
		take_scale(b, p);
		take_min(b, p + 2, -1.0f);
		take_scales_6(b, p + 4);
		take_nibbles(b, dtype == IG_Q5_K ? p + 48 : p + 16, 256, 32);
		if (dtype == IG_Q5_K)
			take_planes(b, p + 16, 4);
		break;
	case IG_Q6_K:
		take_nibbles(b, p, 256, 64);
		take_pairs(b, p + 128, 4);
		memcpy(b->scale, p + 192, 16);
		take_scale(b, p + 208);
		break;
	case IG_IQ4_XS:
		take_scale(b, p);
		for (int j = 0; j < 8; j++) {
			int low = p[4 + j / 2] >> (j % 2 * 4) & 15;
			int high = load_u16(p + 2) >> (2 * j) & 3;
			b->scale[j] = (int8_t)((low | high << 4) - 32);
		}
		take_nibbles(b, p + 8, 256, 16);
		break;
	default: break;
	}
}

static void quants_to_f32(uint32_t dtype, const struct ig_quant_type *t, const unsigned char *p,
			  float *dst, int64_t n)
{
	struct ig_quant_block b;

	for (int64_t at = 0; at < n; at += t->values, p += t->bytes) {
		ig_quant_split(dtype, p, &b);
		for (uint32_t s = 0; s < t->values / t->sub; s++) {
			const uint8_t *code = b.code + s * t->sub;
			float d = b.d * (float)b.scale[s], m = b.m * (float)b.min[s];
			for (uint32_t i = 0; i < t->sub; i++) {
				int v = t->table ? t->table[code[i]] : code[i] - t->offset;
				float value = d * (float)v;
				*dst++ = t->has_min ? value + m : value;
			}
		}
	}
}

void ig_dtype_to_f32(uint32_t dtype, const void *src, float *dst, int64_t n)
{
	const struct ig_quant_type *t = ig_quant_type(dtype);
	const unsigned char *p = src;

	if (t) {
		quants_to_f32(dtype, t, p, dst, n);
		return;
	}
	switch (dtype) {
	case IG_F32: memcpy(dst, src, (size_t)n * sizeof *dst); return;
	case IG_I32:
		for (int64_t i = 0; i < n; i++) {
			int32_t v;
			memcpy(&v, p + 4 * i, sizeof v);
			dst[i] = (float)v;
		}
		return;
	case IG_F16:
		for (int64_t i = 0; i < n; i++)
			dst[i] = from_half(load_u16(p + 2 * i));
		return;
	case IG_BF16:
		for (int64_t i = 0; i < n; i++)
			dst[i] = from_bits((uint32_t)load_u16(p + 2 * i) << 16);
		return;
	default: /* row_bytes is 0, so no row of this type was ever accepted */
		for (int64_t i = 0; i < n; i++)
			dst[i] = 0;
	}
}
