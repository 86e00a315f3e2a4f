/*
 * quantize.h: floats into the element types of model files.
 *
 * Each block is quantised by itself: scales (and minima) are searched for that minimise
 * the sum of squared errors of what ig_dtype_to_f32 reads back.  Which tensor gets which
 * type is model/quantize/convert.h's business.  Any thread; nothing is allocated.
 */
#pragma once

#include <ingot/error.h>
#include <stdbool.h>

/* Whether ig_quantize_row writes this type: all that a GGUF file may have for Ingot. */
bool ig_quantize_knows(uint32_t dtype);

/* Write n values as one row of dtype, ig_dtype_row_bytes(dtype, n) bytes to dst.  0, or
 *   -EINVAL  the type is unknown, or n is no multiple of its block
 *   -ERANGE  a value is not a finite number, or too large for the type; *at is its place
 *            (at may be NULL), and dst is not whole */
int ig_quantize_row(uint32_t dtype, const float *src, int64_t n, void *dst, int64_t *at);
