/* no_memory.c: see no_memory.h. */
#include "tests/unit/no_memory.h"

#include <stdatomic.h>
#include <stddef.h>

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
char *__real_strdup(const char *s);
char *__real_strndup(const char *s, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
char *__wrap_strdup(const char *s);
char *__wrap_strndup(const char *s, size_t n);

bool (*no_memory_also)(void);
static atomic_long n_left = -1; /* allocations until one fails; -1: none does */

void no_memory_at(long n) { atomic_store(&n_left, n); }

bool no_memory_failed(void) { return atomic_exchange(&n_left, -1) < 0; }

bool no_memory_fails(void)
{
	long n = atomic_load(&n_left);

	while (n >= 0)
		if (atomic_compare_exchange_weak(&n_left, &n, n - 1))
			return n == 0;
	return no_memory_also && no_memory_also();
}

void *__wrap_malloc(size_t n) { return no_memory_fails() ? NULL : __real_malloc(n); }

void *__wrap_calloc(size_t n, size_t size)
{
	return no_memory_fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n) { return no_memory_fails() ? NULL : __real_realloc(p, n); }

char *__wrap_strdup(const char *s) { return no_memory_fails() ? NULL : __real_strdup(s); }

char *__wrap_strndup(const char *s, size_t n)
{
	return no_memory_fails() ? NULL : __real_strndup(s, n);
}
