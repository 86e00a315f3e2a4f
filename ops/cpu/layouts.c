/* layouts.c: sizes of the layouts of activations. */
#include "ops/cpu/rows.h"

uint64_t ig_layout_row_bytes(uint32_t layout, int64_t n)
{
	uint64_t u = (uint64_t)n, bytes;

	switch (layout) {
	case IG_LAYOUT_Q8: bytes = u + u / 32 * 24; break;
	case IG_LAYOUT_BF16: bytes = (u + 1) / 2 * 4; break;
	default: bytes = u * 4;
	}
	return (bytes + 63) & ~(uint64_t)63;
}
