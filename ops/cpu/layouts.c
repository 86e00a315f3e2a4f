/* layouts.c: the sizes of activations' forms, and what is in them. */
#include "ops/cpu/rows.h"

uint64_t ig_form_row_bytes(uint32_t form, int64_t n)
{
	uint64_t u = (uint64_t)n, bytes;

	switch (form) {
	case IG_FORM_Q8:
		bytes = u + u / 32 * 24;
		break;
	case IG_FORM_BF16:
		bytes = (u + 1) / 2 * 4;
		break;
	default:
		bytes = u * 4;
	}
	return (bytes + 63) & ~(uint64_t)63;
}

float ig_form_q8_value(const void *row, int64_t n, int64_t i)
{
	const int8_t *q = row;
	const float *d = (const float *)(q + n), *apart = d + 4 * (n / 32);
	const int32_t *next = (const int32_t *)(apart + n / 32);
	const int64_t b = i / 32;

	return next[b] == i % 32 ? apart[b] : d[b] * (float)q[i];
}
