/* symbol.h: where in the source an address of this program is. */
#ifndef SOFT_SYMBOL_H
#define SOFT_SYMBOL_H

#include <stddef.h>

/* "linear.metal:88"; of inlined functions the innermost that is not our library's.
 * Empty where the debug information or addr2line is missing. */
void soft_symbol(const void *pc, char *out, size_t n_bytes);

#endif
