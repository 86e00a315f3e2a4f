/* dtype.h: element types of tensors.  Tier 1 (module.h). */
#ifndef INGOT_DTYPE_H
#define INGOT_DTYPE_H

/* The numbers are those of GGUF. */
enum ig_dtype {
	IG_F32 = 0,
	IG_F16 = 1,
	IG_Q4_0 = 2, /* 32 values: f16 d, 16 bytes of nibbles; v = d (q - 8) */
	IG_Q4_1 = 3, /* 32 values: f16 d, f16 m, 16 bytes; v = d q + m */
	IG_Q5_0 = 6, /* 32 values: f16 d, 5 bits each; v = d (q - 16) */
	IG_Q5_1 = 7, /* 32 values: f16 d, f16 m, 5 bits each; v = d q + m */
	IG_Q8_0 = 8, /* 32 values: f16 d, 32 int8; v = d q */
	/* Blocks of 256 values with f16 d (and m), in sub-blocks of 16 (Q2_K, Q3_K, Q6_K) or
	 * 32 with integer scales s (and minima n): v = d s q, v = d s q - m n. */
	IG_Q2_K = 10,	/* 4-bit s and n, q of 2 bits */
	IG_Q3_K = 11,	/* 6-bit s, q - 4 of 3 bits */
	IG_Q4_K = 12,	/* 6-bit s and n, q of 4 bits */
	IG_Q5_K = 13,	/* 6-bit s and n, q of 5 bits */
	IG_Q6_K = 14,	/* 8-bit s, q - 32 of 6 bits */
	IG_IQ4_NL = 20, /* 32 values: f16 d, nibbles; v = d t[q] of a fixed table t */
	IG_IQ4_XS = 23, /* 256 values: f16 d, 6-bit s a sub-block of 32; v = d s t[q] */
	IG_I32 = 26,
	IG_BF16 = 30,
	IG_MXFP4 = 39,	/* 32 values: one exponent byte, 4-bit floats (E2M1) */
	IG_Q8_M = 1000, /* not in GGUF.  32 values: f16 d, f16 m, 32 uint8; v = d q + m */
};

#define IG_DTYPE_NONE 0xffffffffu

#endif
