/* ids.h: random ids. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* prefix and 32 random characters of [a-z0-5], truncated to cap. */
void ig_random_id(char *out, size_t cap, const char *prefix);
uint64_t ig_random_seed(void);
