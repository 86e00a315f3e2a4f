/*
 * failing_disk.h: calls of the file system that fail.  The linker puts the functions of
 * failing_disk.c in the place of those that open, read, write, sync, rename and look at files
 * (WRAP_DISK); other linkers than GNU's and LLVM's for ELF can't.
 */
#pragma once

#include <stdbool.h>

/* From now on, of any thread, the call after the next n fails with this errno, and that alone; with
 * `all` each one after it, too. */
void failing_disk_at(long n, int code, bool all);
/* All calls work again.  Whether one has failed. */
bool failing_disk_failed(void);
