/* rows.h: ops over the step's own rows, for models without a cache (attention_rows.c), and their
 * kernel, which is compiled once per instruction set (attention_rows_kernel.c). */
#pragma once

#include "kernels_private.h"

#include <ingot/op.h>

/* Rows of one text that a unit of attention_rows has; a unit is such rows and one KV head. */
#define ROWS_UNIT 16

#if defined(__x86_64__)
#define ATTENTION_ROWS_LIST(X)                                                                     \
	X(generic, IG_ISA_GENERIC)                                                                 \
	X(avx2, IG_ISA_AVX2)                                                                       \
	X(avx512, IG_ISA_AVX512)
#else
#define ATTENTION_ROWS_LIST(X) X(generic, IG_ISA_GENERIC)
#endif

#define ATTENTION_ROWS_DECLARE(name, isa)                                                          \
	uint64_t ig_attention_rows_scratch_##name(const struct ig_op_launch *launch);              \
	void ig_attention_rows_##name(const struct ig_op_launch *launch, int64_t first,            \
				      int64_t last, void *scratch);
ATTENTION_ROWS_LIST(ATTENTION_ROWS_DECLARE)
#undef ATTENTION_ROWS_DECLARE

/* The positions that a row at position i of a text of n sees: from *lo up to *hi - 1. */
static inline void rows_seen(const struct ig_attention_rows_params *p, int64_t i, int64_t n,
			     int64_t *lo, int64_t *hi)
{
	*lo = p->back == IG_ATTENTION_ALL || i < p->back ? 0 : i - p->back;
	*hi = p->ahead == IG_ATTENTION_ALL || n - i <= p->ahead ? n : i + 1 + p->ahead;
}
