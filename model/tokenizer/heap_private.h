/* heap_private.h: a heap of numbers, the smallest first; room for them is the caller's. */
#pragma once

#include <stddef.h>
#include <stdint.h>

static inline void heap_push(uint64_t *heap, size_t *n, uint64_t v)
{
	size_t i = (*n)++;

	for (; i > 0 && heap[(i - 1) / 2] > v; i = (i - 1) / 2)
		heap[i] = heap[(i - 1) / 2];
	heap[i] = v;
}

static inline uint64_t heap_pop(uint64_t *heap, size_t *n)
{
	uint64_t top = heap[0], v = heap[--*n];
	size_t i = 0, child;

	while ((child = 2 * i + 1) < *n) {
		if (child + 1 < *n && heap[child + 1] < heap[child])
			child++;
		if (heap[child] >= v)
			break;
		heap[i] = heap[child];
		i = child;
	}
	heap[i] = v;
	return top;
}
