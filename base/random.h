/* random.h: random bytes from the system.  Any thread. */
#pragma once

#include <stddef.h>

/* n is at most 256.  0, or -errno where the system has none: nothing is written then. */
int ig_random_bytes(void *out, size_t n);
