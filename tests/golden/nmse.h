/* nmse.h: how far logits are from others. */
#pragma once

#include <stddef.h>

/* The squared error of n values, in parts of the squares of what is wanted without its mean.  NaN fails every
 * comparison. */
static inline double ig_nmse(const float *want, const float *have, size_t n)
{
	double mean = 0, off = 0, all = 0;

	for (size_t i = 0; i < n; i++)
		mean += (double)want[i] / (double)n;
	for (size_t i = 0; i < n; i++) {
		double d = (double)have[i] - (double)want[i], v = (double)want[i] - mean;
		off += d * d;
		all += v * v;
	}
	return off / all;
}
