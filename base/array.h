/* array.h: arrays that grow by doubling. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static inline bool ig_array_grow_size(void *array, size_t *cap, size_t n, size_t size)
{
	size_t larger = *cap ? *cap : 16;
	void *p;

	if (n < *cap)
		return true;
	while (larger <= n && larger <= INT32_MAX)
		larger *= 2;
	memcpy(&p, array, sizeof p);
	if (larger <= n || !(p = realloc(p, larger * size)))
		return false;
	memcpy(array, &p, sizeof p);
	*cap = larger;
	return true;
}

static inline bool ig_array_grow_u32(void *array, uint32_t *cap, size_t n, size_t size)
{
	size_t larger = *cap;
	bool ok = ig_array_grow_size(array, &larger, n, size);

	*cap = (uint32_t)larger;
	return ok;
}

/* Ensure capacity for element n of an array from malloc; *cap, a size_t or a uint32_t, counts its
 * elements.  False without memory, and for 2^31 elements, so that counts may have 32 bits; the
 * array is then as it was. */
#define ig_array_grow(array, cap, n)                                                               \
	_Generic((cap), uint32_t *: ig_array_grow_u32, size_t *: ig_array_grow_size)(              \
		&(array), cap, n, sizeof *(array))
