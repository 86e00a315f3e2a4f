/* sys/sysctl.h: as mach/mach.h beside it. */
#pragma once

#include <stddef.h>

int sysctlbyname(const char *name, void *old, size_t *old_len, void *new, size_t new_len);
