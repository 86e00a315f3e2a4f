/*
 * no_memory.h: allocations that fail.  The linker puts the functions of no_memory.c in the
 * place of malloc, calloc, realloc, strdup and strndup (WRAP_MALLOC); other linkers than
 * GNU's and LLVM's for ELF can't.
 */
#pragma once

#include <stdbool.h>

/* From now on, of any thread, the allocation after the next n fails, and that alone. */
void no_memory_at(long n);
/* Whether it has failed; none will. */
bool no_memory_failed(void);
/* For allocators that are not wrapped: count one more; true: it is to fail. */
bool no_memory_fails(void);
/* Asked for each allocation that does not fail anyway; NULL at first. */
extern bool (*no_memory_also)(void);
