/*
 * quantize.h: floats into the element types of model files.  Each block is quantised separately:
 * scales (and minima) are searched that minimise the sum of squared errors after ig_dtype_to_f32.
 * model/quantize/convert.h selects the type of a tensor.  Any thread; nothing is allocated.
 */
#pragma once

#include <ingot/error.h>
#include <stdbool.h>

/* Whether ig_quantize_row writes this type: all GGUF types that Ingot reads. */
bool ig_quantize_knows(uint32_t dtype);

/* Write n values as one row of dtype, ig_dtype_row_bytes(dtype, n) bytes to dst.  0, or
 *   -EINVAL  the type is unknown, or n is not a multiple of its block
 *   -ERANGE  a value is not a finite number, or too large for the type; *at is its index (at may be
 *            NULL); nothing is written */
int ig_quantize_row(uint32_t dtype, const float *src, int64_t n, void *dst, int64_t *at);
/* The same with weights of the squared errors, [n], all above 0, of 1 on average; NULL: all 1.  A
 * block's weighted error is never larger than without weights. */
int ig_quantize_weighted(uint32_t dtype, const float *src, const float *weights, int64_t n,
			 void *dst, int64_t *at);
