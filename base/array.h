/* array.h: arrays that grow by doubling. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* The array with capacity for more than n elements of `size` bytes, which replaces the old one;
 * *cap follows.  NULL without memory: the old array is as before. */
static inline void *ig_array_grow(void *array, size_t n, size_t *cap, size_t size)
{
	size_t more = *cap ? *cap * 2 : 16;
	void *p;

	if (n < *cap)
		return array;
	p = more > SIZE_MAX / 2 / size ? NULL : realloc(array, more * size);
	if (p)
		*cap = more;
	return p;
}
