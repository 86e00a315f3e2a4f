/* archs.c: see archs.h. */
#include "tests/archs.h"

#define X(name) extern const struct ig_arch ig_arch_##name;
ARCHS
#undef X
#define X(name) &ig_arch_##name,
const struct ig_arch *const test_archs[] = { ARCHS NULL };
