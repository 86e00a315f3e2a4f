/* ids.h: ids that nobody can guess. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* prefix and 32 random characters of [a-z0-5], as far as there is room. */
void ig_random_id(char *out, size_t cap, const char *prefix);
uint64_t ig_random_seed(void);
