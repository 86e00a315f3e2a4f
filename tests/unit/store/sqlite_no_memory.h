/* sqlite_no_memory.h: SQLite's allocations fail, too, as no_memory.h says. */
#pragma once

#include "tests/unit/no_memory.h"

#include <sqlite3.h>

/* SQLite's own, which the wrappers call. */
static sqlite3_mem_methods sqlite_methods;

static void *sqlite_malloc(int n) { return no_memory_fails() ? NULL : sqlite_methods.xMalloc(n); }

static void *sqlite_realloc(void *p, int n)
{
	return no_memory_fails() ? NULL : sqlite_methods.xRealloc(p, n);
}

/* Before SQLite is used. */
static inline void sqlite_without_memory(void)
{
	sqlite3_mem_methods mine;

	sqlite3_config(SQLITE_CONFIG_GETMALLOC, &sqlite_methods);
	mine = sqlite_methods;
	mine.xMalloc = sqlite_malloc;
	mine.xRealloc = sqlite_realloc;
	sqlite3_config(SQLITE_CONFIG_MALLOC, &mine);
}
