/* layouts.c: sizes of the layouts of activations. */
#include "ops/cpu/rows.h"

uint64_t ig_form_row_bytes(uint32_t form, int64_t n)
{
	uint64_t u = (uint64_t)n, bytes;

	switch (form) {
	case IG_FORM_Q8: bytes = u + u / 32 * 24; break;
	case IG_FORM_BF16: bytes = (u + 1) / 2 * 4; break;
	default: bytes = u * 4;
	}
	return (bytes + 63) & ~(uint64_t)63;
}
