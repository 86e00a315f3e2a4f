/*
 * dtype.h: element types: names, sizes, values; blocks of quantised types as their parts, for
 * packers.
 *
 * A block of 32 or 256 values has integers and one or two half floats:
 *   value i = (d scale[i / sub]) v(code[i]) + (m min[i / sub])
 * where v is code - offset or an entry of the type's table.  Both products in parentheses and the
 * product with v are exact in float32: only the last sum rounds, in every implementation.
 */
#pragma once

#include <ingot/dtype.h>
#include <ingot/error.h>
#include <stdbool.h>

/* "Q4_1" and so on; "type 99" for an unknown type (static buffer per thread). */
const char *ig_dtype_name(uint32_t dtype);
/* Bytes of n values of one row, or 0 when n is not a multiple of the block. */
uint64_t ig_dtype_row_bytes(uint32_t dtype, int64_t n);
/* Dequantise one row of n values; the plain definition of each format. */
void ig_dtype_to_f32(uint32_t dtype, const void *src, float *dst, int64_t n);

/* The types of the cache's keys and values from "q8_0", which is both, or "q8_0/f16". */
bool ig_cache_dtypes(const char *text, uint32_t *k, uint32_t *v);

#define IG_MAX_BLOCK 256 /* values in a block of any type */

struct ig_quant_block {
	uint32_t d_bits, m_bits; /* as in the file: half floats, or MXFP4's exponent */
	float d, m; /* m is negative where the type subtracts its minimum; 0: it has none */
	int8_t scale[16];
	uint8_t min[16];
	uint8_t code[IG_MAX_BLOCK];
};

struct ig_quant_type {
	uint32_t bytes;	     /* of a block */
	uint32_t values;     /* in a block: 32 or 256 */
	uint32_t sub;	     /* values that share a scale: 16 or 32 */
	uint32_t bits;	     /* of a code */
	int32_t offset;	     /* v = code - offset, unless there is a table */
	const int8_t *table; /* v = table[code], NULL: none */
	bool has_min;
};

/* The tables of IQ4_NL and IQ4_XS, and of MXFP4: twice the values of E2M1, so that its scale is
 * halved. */
#define IG_IQ4_VALUES { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 }
#define IG_FP4_VALUES { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 }

/* NULL for types that are not quantised, or that Ingot does not read. */
const struct ig_quant_type *ig_quant_type(uint32_t dtype);
/* The parts of the block at src, of a type for which ig_quant_type is not NULL. */
void ig_quant_split(uint32_t dtype, const void *src, struct ig_quant_block *out);
