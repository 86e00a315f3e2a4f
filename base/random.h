/* random.h: bytes that nobody can guess, from the system. */
#ifndef INGOT_BASE_RANDOM_H
#define INGOT_BASE_RANDOM_H

#include <stddef.h>

/* 0, or negative errno where the system has none: what is in out then is not random. */
int ig_random_bytes(void *out, size_t n);

#endif
